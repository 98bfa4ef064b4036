"""Broken naive Bayes behind the SQL function: one piece of the product is replaced while a test runs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from dpsql.models import naive_bayes
from dpsql.models.naive_bayes import NaiveBayesPlan
from dpsql.selectors import feature_counts
from dpsql.statistics import counts
from dpsql.testing.broken.planting import Patch, planted


def _absent_counts_too(plan: Any, count: int) -> tuple[int, int]:
    """Every feature is there or not, so a row moves a count of each when both are released."""
    return 1, 1


def _keep_all(present: Any, most: int) -> Any:
    return present


def _as_if_added(neighbours: str, **given: Any) -> int:
    return counts.l1_sensitivity("add_remove", **given)


def _as_if_one_row(neighbours: str, *, max_rows_per_unit: int, **given: Any) -> int:
    return counts.l1_sensitivity(neighbours, **given)


def _exact_rows(scale: Any, size: int) -> Any:
    from dpsql.noise.discrete import discrete_laplace

    return np.zeros(size, dtype=np.int64) if size == 2 else discrete_laplace(scale, size)


# Owner, name and replacement of the piece that is wrong.
BROKEN_NAIVE_BAYES: dict[str, Patch] = {
    "noise of one feature for a row of many": (NaiveBayesPlan, "moved", _absent_counts_too),
    "a row keeps more features than it may": (feature_counts, "_sample", _keep_all),
    "replaced rows as added ones": (naive_bayes, "l1_sensitivity", _as_if_added),
    "units as rows": (naive_bayes, "l1_sensitivity", _as_if_one_row),
    "numbers of rows without noise": (naive_bayes, "discrete_laplace", _exact_rows),
}


def broken_naive_bayes(name: str) -> AbstractContextManager[None]:
    """Plant one fault of `BROKEN_NAIVE_BAYES` for as long as the context lasts. Never private; for tests only."""
    return planted(BROKEN_NAIVE_BAYES[name])
