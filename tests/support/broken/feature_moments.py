"""Broken covariances and correlations behind the SQL functions: one piece of the product is replaced."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.functions import covariance as functions
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.statistics import feature_moments as statistics
from dpsql.statistics.feature_moments import UNIT, CompleteProducts
from support.broken.planting import Fault, Patch, planted


def broken_moments(name: str) -> AbstractContextManager[None]:
    """Plant one fault of `BROKEN_MOMENTS` for as long as the context lasts. Never private; for tests only."""
    return planted(*BROKEN_MOMENTS[name].patches)


def _one_sided(real: Callable[..., Fraction]) -> Any:
    return lambda neighbours, features, rows=1: real("add_remove", features, rows)


def _of_one_row(real: Callable[..., Fraction]) -> Any:
    return lambda neighbours, features, rows=1: real(neighbours, features)


def _root_of_rows(neighbours: str, features: int, rows: int = 1) -> Fraction:
    return rows * statistics.squared_l2_sensitivity(neighbours, features)


def _halved_products(neighbours: str, features: int, rows: int = 1) -> Fraction:
    real = statistics.squared_l2_sensitivity(neighbours, features, rows)
    return real - rows**2 * Fraction(math.comb(features, 2), 2)


def _exact_means(plan: Any, moments: Any, features: int) -> list[float]:
    noisy = _draw_moments(plan, moments, features)
    noisy[1 : 1 + features] = [float(value) / UNIT for value in moments[1 : 1 + features]]
    return noisy


def _with_nan(self: CompleteProducts, target: Any, features: Any, batch: Any) -> None:
    middle, scale = (part[:, None] for part in self._maps)
    columns = np.vstack([np.full((1, features.shape[1]), float(FIXED_POINT_ONE)), (features - middle) * scale])
    with np.errstate(invalid="ignore"):
        self._sums.add(np.clip(columns, -FIXED_POINT_ONE, FIXED_POINT_ONE).T)


def _unclipped(self: CompleteProducts, target: Any, features: Any, batch: Any) -> None:
    middle, scale = (part[:, None] for part in self._maps)
    quantised = np.floor((features - middle) * scale + 0.5)
    complete = np.isfinite(quantised).all(axis=0)
    self._sums.add(np.vstack([np.full((1, features.shape[1]), float(FIXED_POINT_ONE)), quantised])[:, complete].T)


def _by_pair(self: CompleteProducts, target: Any, features: Any, batch: Any) -> None:
    missing = np.isnan(features)
    _add(self, target, np.where(missing, self._maps[0][:, None], features), batch)


def _everywhere(name: str, broken: Any) -> tuple[Patch, ...]:
    return ((functions, name, broken),)


_draw_moments, _add = functions.draw_moments, CompleteProducts.add
_SQUARED, _COARSE = "squared_l2_sensitivity", "coarse_l1_sensitivity"

BROKEN_MOMENTS: dict[str, Fault] = {
    "one-sided norm": Fault(
        "the constant of add_remove under replace: 4.5 for 8 with two features",
        _everywhere(_SQUARED, _one_sided(statistics.squared_l2_sensitivity)),
    ),
    "one-sided sum": Fault(
        "the constant of add_remove under replace, for Laplace noise: 5 for 16/3",
        _everywhere(_COARSE, _one_sided(statistics.coarse_l1_sensitivity)),
    ),
    "halved products": Fault(
        "products count half, as if both triangles were released and averaged: 4 for 4.5 with two features",
        _everywhere(_SQUARED, _halved_products),
    ),
    "noise for one row": Fault(
        "a unit of m rows has the noise of one row: m mu instead of mu",
        _everywhere(_SQUARED, _of_one_row(statistics.squared_l2_sensitivity)),
    ),
    "root of the rows": Fault("m for m**2: the rows of a unit may all be alike", _everywhere(_SQUARED, _root_of_rows)),
    "exact means": Fault(
        "products are centred by means without noise: the released numbers tell them",
        _everywhere("draw_moments", _exact_means),
    ),
    "a NaN in the sums": Fault(
        "a NaN is neither clipped nor left out, and makes the sums those of no rows",
        ((CompleteProducts, "add", _with_nan),),
    ),
    "values beyond the bounds": Fault("values are not clipped", ((CompleteProducts, "add", _unclipped),)),
    "one count for all pairs": Fault(
        "a row with NULL counts in the pairs of its other features and among the rows of every pair",
        ((CompleteProducts, "add", _by_pair),),
    ),
}
