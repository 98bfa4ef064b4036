"""Released selections: their rows, whatever the ledger keeps of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpsql.contract.json import Json
from dpsql.contract.verdicts import CLEAR, NOT_MEASURED, UNCLEAR
from dpsql.released.results import Ranked


def selected(result: Ranked | Sequence[str]) -> list[str]:
    """Return the names of the features, by rank."""
    return list(result["names"] if isinstance(result, Mapping) else result)


def ranked_rows(result: Ranked | Sequence[str]) -> list[Mapping[str, Json]]:
    """Return a row per feature, by rank; scores are NULL where none were released."""
    names = selected(result)
    known: Ranked = result if isinstance(result, Mapping) else {"names": names}
    scores: Sequence[float | None] = known.get("scores") or [None] * len(names)
    columns = zip(names, scores, _verdicts(known), strict=True)
    error = known.get("std_error")
    return [
        {"rank": rank, "feature": name, "score": score, "std_error": error, "verdict": verdict}
        for rank, (name, score, verdict) in enumerate(columns, start=1)
    ]


def _verdicts(known: Ranked) -> list[str]:
    """Return what is said of each feature."""
    scores, level, reach = known.get("scores"), known.get("level"), known.get("reach")
    if scores is None or level is None or reach is None:
        return [known.get("verdict", NOT_MEASURED)] * len(known["names"])
    return [CLEAR if score - reach > level else UNCLEAR for score in scores]
