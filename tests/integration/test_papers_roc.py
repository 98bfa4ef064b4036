"""The default ROC curve against the printed ones of Stoddard et al. (2014), Table 1, on scores of real texts.

Their error is the area between the private and the true curve, their median that of ten draws on test sets of 558 text
messages and 684 tweets; `PRINTED` are their best numbers, with thresholds by recursive medians. The classifier is
scikit-learn's logistic regression on the other texts, not private: what is measured is the curve.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_curve

from dpsql.contract.measurement import draw_once
from dpsql.functions.roc import RocPlan, draw_roc
from dpsql.released.curves import area_between

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "text"
SIZES = {"sms_spam": 558, "tweets_sentiment140_7304": 684}
EPSILONS = (1, 0.5, 0.25, 0.1)
PRINTED = {"sms_spam": (0.023, 0.029, 0.054, 0.092), "tweets_sentiment140_7304": (0.055, 0.063, 0.102, 0.203)}
RUNS = 100


def scores(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and scores of the test set."""
    raw = duckdb.sql(f"SELECT doc_id, label FROM '{DATA / name}_raw.parquet' ORDER BY doc_id").fetchnumpy()
    words = duckdb.sql(
        f"SELECT doc_id, dense_rank() OVER (ORDER BY token) - 1 AS word FROM '{DATA / name}_bow.parquet'"
    ).fetchnumpy()
    place = {document: number for number, document in enumerate(raw["doc_id"].tolist())}
    rows = [place[document] for document in words["doc_id"].tolist()]
    width = int(words["word"].max()) + 1
    features = csr_matrix((np.ones(len(rows)), (rows, words["word"].astype(int))), shape=(len(place), width))
    labels = raw["label"].astype(int)
    order = np.random.default_rng(0).permutation(len(labels))
    test, train = order[: SIZES[name]], order[SIZES[name] :]
    model = LogisticRegression(max_iter=500).fit(features[train], labels[train])
    return labels[test], model.predict_proba(features[test])[:, 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_the_default_beats_the_printed_curves(name: str) -> None:
    if not (DATA / f"{name}_bow.parquet").exists():
        pytest.skip("the texts are not here; they belong beside the project, in ../shared/data")
    labels, found = scores(name)
    fpr, tpr, _ = roc_curve(labels, found, drop_intermediate=False)
    for epsilon, printed in zip(EPSILONS, PRINTED[name], strict=True):
        plan = RocPlan.from_arguments("t", {"label": "y", "score": "p", "epsilon": epsilon})
        cells = plan.cells.of(found)
        counts = [np.bincount(cells[labels == level], minlength=plan.cells.count) for level in (0, 1)]
        errors = []
        for _ in range(RUNS):
            rates = draw_once(draw_roc, plan, *counts).rates
            errors.append(area_between((fpr, tpr), (np.append(0, rates[0]), np.append(0, rates[1]))))
        assert np.median(errors) < printed, epsilon
