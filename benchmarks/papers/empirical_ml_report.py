from __future__ import annotations
from pathlib import Path

CURVE_COLUMNS = (
    "set",
    "scorer",
    "true_auc",
    "method",
    "epsilon",
    "curves",
    "median_of_ten",
    "median",
    "lower_quartile",
    "upper_quartile",
    "auc_error",
)


def write_report(folder: Path, *, figures: bool = True) -> None: ...
