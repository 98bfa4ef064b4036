"""Broken naive Bayes behind the SQL function: one piece of the product is replaced while a test runs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from dpsql.functions import naive_bayes
from dpsql.mechanisms import laplace
from dpsql.statistics import feature_counts, presence
from dpsql.statistics.feature_counts import Norms
from support.broken.planting import Patch, planted


def _of_one_feature(released: str, neighbours: str, **given: Any) -> Norms:
    return feature_counts.released_norms(released, neighbours, **{**given, "max_features_per_row": 1})


def _all_in_full(held: Any, most: int, one: int) -> Any:
    return np.full_like(held, one)


def _as_if_added(released: str, neighbours: str, **given: Any) -> Norms:
    return feature_counts.released_norms(released, "add_remove", **given)


def _as_if_one_row(released: str, neighbours: str, *, max_rows_per_unit: int, **given: Any) -> Norms:
    return feature_counts.released_norms(released, neighbours, **given)


def _exact_rows(scale: Any, size: int) -> Any:
    from dpsql.noise.discrete import discrete_laplace

    return np.zeros(size, dtype=np.int64) if size == 2 else discrete_laplace(scale, size)


# Owner, name and replacement of the piece that is wrong.
BROKEN_NAIVE_BAYES: dict[str, Patch] = {
    "noise of one feature for a row of many": (naive_bayes, "released_norms", _of_one_feature),
    "a row counts more than it may": (presence, "feature_shares", _all_in_full),
    "replaced rows as added ones": (naive_bayes, "released_norms", _as_if_added),
    "units as rows": (naive_bayes, "released_norms", _as_if_one_row),
    "numbers of rows without noise": (laplace, "discrete_laplace", _exact_rows),
}


def broken_naive_bayes(name: str) -> AbstractContextManager[None]:
    """Plant one fault of `BROKEN_NAIVE_BAYES` for as long as the context lasts. Never private; for tests only."""
    return planted(BROKEN_NAIVE_BAYES[name])
