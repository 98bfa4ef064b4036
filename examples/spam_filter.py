"""A spam filter from a public list of words, and the ROC curve of what it does with new messages."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl

import dpsql
from dpsql.released.plots import save

# A row for each distinct word of 5,552 text messages: doc_id, label (1 is spam), token.
DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "text" / "sms_spam_bow.parquet"
# A public list: what anyone would think of, and not the words of these messages.
SUSPECTS = [
    "account", "awarded", "bonus", "call", "camera", "cash", "chat", "claim", "code", "collect", "contact", "cost",
    "credit", "customer", "draw", "entry", "free", "gift", "guaranteed", "holiday", "landline", "latest", "line",
    "mobile", "offer", "order", "phone", "pick", "prize", "reply", "ringtone", "selected", "send", "service", "stop",
    "text", "tone", "txt", "urgent", "video", "voucher", "win", "winner", "won",
]  # fmt: skip
OTHERS = [
    "ask", "come", "day", "dinner", "feel", "going", "good", "home", "later", "lol", "love", "meet", "night", "ok",
    "sorry", "thanks", "think", "time", "today", "tomorrow", "ur", "wait", "want", "week", "work",
]  # fmt: skip


def read() -> pl.DataFrame:
    if DATA.exists():
        return pl.read_parquet(DATA)
    generator = np.random.default_rng(7)
    spam = generator.random(5000) < 0.15
    suspect = np.arange(len(SUSPECTS + OTHERS)) < len(SUSPECTS)
    chance = np.where(suspect, np.where(spam[:, None], 0.15, 0.01), np.where(spam[:, None], 0.02, 0.06))
    message, word = np.nonzero(generator.random(chance.shape) < chance)
    return pl.DataFrame(
        {"doc_id": message, "label": spam[message].astype(int), "token": np.array(SUSPECTS + OTHERS)[word]}
    )


def main(folder: Path) -> None:
    words = read().with_columns(spam=pl.col("label") == 1)
    fresh = pl.col("doc_id").hash(7) % 4 == 0
    with dpsql.Context() as ctx:
        for name, rows in (("training", words.filter(~fresh)), ("fresh", words.filter(fresh))):
            ctx.connection.register("rows", rows)
            ctx.sql(f"CREATE TABLE {name} AS FROM rows")
            ctx.dp_protect(name, epsilon=2.0, delta=1e-5, privacy_unit="doc_id", max_rows_per_unit=1)
        # A message counts with five of its words: fewer mean less noise.
        chosen = ctx.dp_score_filter(
            "training",
            target="spam",
            features="token",
            row_id="doc_id",
            names=SUSPECTS + OTHERS,
            score="information_gain",
            k=20,
            max_features_per_row=5,
            epsilon=1.0,
            delta=1e-6,
            release="words",
        )
        print(chosen)
        model = ctx.dp_naive_bayes(
            "training", target="spam", features=chosen, epsilon=1.0, delta=1e-6, release="filter"
        )
        print(model)

        # Predictions are free. A view with a row per message is traced to its table, whose budget is charged.
        ctx.sql(
            "CREATE VIEW judged AS SELECT doc_id, max(spam) AS spam, "
            "dp_predict('filter', list_sort(list(token))) AS score FROM fresh GROUP BY doc_id"
        )
        curve = ctx.dp_roc("judged", label="spam", score="score", epsilon=1.0, n_thresholds=15)
        print(curve)
        print("verdict:", curve.verdict)
        save(curve.plot(), folder / "spam_filter.svg")


if __name__ == "__main__":
    main(Path(*sys.argv[1:2]))
