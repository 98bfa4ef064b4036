"""Broken fits and summaries behind the SQL functions: one piece of the product is replaced while a test runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from dpsql.contract.gaussian_profile import MU_UNIT, gaussian_mu
from dpsql.functions import regression_metrics as metrics
from dpsql.functions.grouped import quantile as quantile_function
from dpsql.functions.pipeline import SELECTORS
from dpsql.functions.regression import least_squares, method
from dpsql.functions.regression import tukey as tukey_method
from dpsql.functions.regression.least_squares import LeastSquares
from dpsql.functions.regression.linear import AdditiveModel
from dpsql.kernels.cells import TypedCells, fine_edges
from dpsql.kernels.gram import ClippedRows, fixed_coefficients
from dpsql.mechanisms import (
    ada_ssp,
    additive,
    gaussian,
    interval_scan,
    laplace,
    prefix_bounds,
    quantile,
    rank_counts,
    tukey,
)
from dpsql.mechanisms.one_shot import select
from dpsql.mechanisms.tukey import row_budget
from dpsql.noise.entropy import SYSTEM
from dpsql.statistics import additive as additive_statistics
from dpsql.statistics import counts, regression, votes
from dpsql.statistics.regression import UNIT
from support.broken.planting import Fault, Patch, planted
from support.broken.regression import round_after_clip
from support.broken.tukey import position_blocks

# The rank that the fault "fixed rank" takes for the number of rows.
PUBLIC_ROWS = 12


def broken_fit(name: str) -> AbstractContextManager[None]:
    """Plant one fault of `BROKEN_FITS` for as long as the context lasts. Never private; for tests only.

    Notes
    -----
    ``tests/privacy/test_broken_fits_sql.py`` catches each through SQL, by what the noise is worth (`worst_case`), by
    the replay on neighbours (`pair_loss`), by the ledger, or by `audit_sql`; the right function passes the same test.
    """
    return planted(*BROKEN_FITS[name].patches)


def _free_bounds(found: Any, cells: Any, **_: Any) -> list[prefix_bounds.ColumnBounds]:
    ends = []
    for column, of in zip(found, cells, strict=True):
        filled = np.flatnonzero(column)
        pair = (float(of.low[filled[0]]), float(of.high[filled[-1]])) if len(filled) else (-1.0, 1.0)
        ends.append(prefix_bounds.ColumnBounds(pair if pair[0] < pair[1] else (pair[0], pair[0] + 1.0), is_whole=False))
    return ends


_prefix_bounds = prefix_bounds.prefix_bounds


def _cut_cells(found: Any, cells: Any, **options: Any) -> Any:
    """Return bounds from the cells up to that of the largest value."""
    tops = [int(np.flatnonzero(column).max(initial=0)) + 1 for column in found]
    cut = [
        replace(of, starts=of.starts[:top], low=of.low[:top], high=of.high[:top])
        for of, top in zip(cells, tops, strict=True)
    ]
    return _prefix_bounds([column[:top] for column, top in zip(found, tops, strict=True)], cut, **options)


class _TypesOfValues(method.Magnitudes):
    """Columns whose values are whole are counted in the cells of integers, whatever their type is."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._whole = np.ones(len(given[1]), dtype=bool)

    def zero(self) -> Any:
        other = super().zero()
        other._whole = np.ones_like(self._whole)
        return other

    def add(self, target: Any, features: Any, batch: Any) -> None:
        self._whole &= (features == np.rint(features)).all(axis=1)
        super().add(target, features, batch)

    def merge(self, other: Any) -> None:
        self._whole &= other._whole
        super().merge(other)

    def turn(self, progress: Any) -> Any:
        integers = TypedCells.of(pa.int64())
        self._cells = [integers if whole else of for whole, of in zip(self._whole, self._cells, strict=True)]
        return super().turn(progress)


_gaussian_counts = gaussian.gaussian_counts


def _norm_of_tinyint(products: Any, *, squared_sensitivity: int, **options: Any) -> Any:
    own, other = (prefix_bounds.PrefixMatrix.of(cells).squared for cells in (len(products), 47))
    return _gaussian_counts(products, squared_sensitivity=squared_sensitivity // own * other, **options)


class _Ends:
    """The ends of the target of the rows that were added last."""

    least, most = math.inf, -math.inf

    def add(self, products: Any, target: Any, features: Any, batch: Any) -> None:
        self.least, self.most = min(self.least, float(target.min())), max(self.most, float(target.max()))
        _add_products(products, target, features, batch)

    def clips(self, _: Any, __: Any) -> Any:
        ends, self.least, self.most = [self.least, self.most], math.inf, -math.inf
        return {"prediction_bounds": ends}


_add_products = regression.RowProducts.add
_ends = _Ends()


def _ends_of_the_data(found: Any, _: Any) -> interval_scan.PrivateInterval:
    edges, filled = fine_edges(), np.flatnonzero(found)
    ends = (float(edges[filled[0]]), float(edges[filled[-1] + 1])) if len(filled) else (-1.0, 1.0)
    return interval_scan.PrivateInterval(ends, int(found.sum()), 0)


def _free_quantiles(found: Any, *, at: Sequence[Fraction], **_: Any) -> list[int]:
    upto = np.cumsum(found)
    return [int(np.searchsorted(upto, float(share) * upto[-1])) for share in at]


def _no_noise(_: Fraction, size: int) -> Any:
    return np.zeros(size, dtype=np.int64)


def _by_position(batch: Any, blocks: int) -> Any:
    return position_blocks(len(batch.keys), blocks)


def _unclipped_products(self: ClippedRows, theta: Any) -> Any:
    integers, bits = fixed_coefficients(theta)
    total = [0] * self.width
    for rows, target in self._batches:
        residual = np.floor(target - rows.astype(np.float64) @ integers * 2.0**-bits + 0.5)
        for column in range(self.width):
            total[column] += sum(int(a) * int(b) for a, b in zip(rows[:, column], residual, strict=True))
    return np.array(total, dtype=object)


def _clip_and_round(matrix: Any, radius: int) -> None:
    matrix[:] = round_after_clip(matrix, radius)


def _of_a_row(real: Callable[..., Any], relation: str | None = "add_remove", rows: int | None = None) -> Any:
    """Return a sensitivity that ignores the relation, or how many rows a unit has."""

    def sensitivity(neighbours: str, radius: int, max_rows_per_unit: int = 1) -> Any:
        return real(relation or neighbours, radius, rows or max_rows_per_unit)

    return sensitivity


def _for_rows(relation: str | None = "add_remove", rows: int | None = None) -> tuple[Patch, ...]:
    found = (regression.gram_sensitivity, regression.least_eigenvalue_sensitivity, regression.cross_sensitivity)
    return tuple((ada_ssp, real.__name__, _of_a_row(real, relation, rows)) for real in found)


def _one_sided_cells(real: Callable[..., int]) -> Callable[..., int]:
    return lambda neighbours, **options: real("add_remove", **options)


_scan_scale = vars(interval_scan.IntervalNoise)["scan_scale"].fget


def _added_scale(noise: interval_scan.IntervalNoise) -> Fraction:
    scale: Fraction = _scan_scale(replace(noise, neighbours="add_remove"))
    return scale


def _exact(_: Fraction, size: int, **options: Any) -> Any:
    return np.zeros(size, dtype=np.int64)


def _median_range(_: Fraction, neighbours: str, *, is_whole: bool, max_rows_per_unit: int = 1) -> Fraction:
    return Fraction(max_rows_per_unit * (2 if neighbours == "replace" else 1))


def _whole_range(share: Fraction, neighbours: str, *, is_whole: bool, max_rows_per_unit: int = 1) -> Fraction:
    return counts.rank_utility_range(share, neighbours, is_whole=True, max_rows_per_unit=max_rows_per_unit)


def _fixed_rank(ranks: Any, share: Fraction, spread: Fraction, epsilon: Fraction, source: Any) -> int:
    beyond = ranks * share.denominator - PUBLIC_ROWS * share.numerator
    utility = -np.maximum(np.maximum(beyond[:-1], -beyond[1:]), 0)
    unit = int(spread * share.denominator)
    return int(select(utility, utility_range=unit, epsilon=epsilon, k=1, noise="gumbel", source=source)[0])


def _bins_at_even_ranks(found: Any, cuts: Any) -> Any:
    """Count the rows in as many bins as there are, all of about as many cells that have rows."""
    filled = np.flatnonzero(found)
    places = filled[np.linspace(0, len(filled) - 1, len(cuts) - 1).astype(int)]
    return np.add.reduceat(found, np.maximum.accumulate(places))


def _closed_quantiles(
    found: Any,
    *,
    quantiles: Sequence[Fraction],
    epsilon: Fraction,
    neighbours: str,
    max_rows_per_unit: int = 1,
    **_: Any,
) -> list[int]:
    """Divide at the released cell, but let its rows count on both sides."""
    below = np.concatenate([[0], np.cumsum(found, dtype=np.int64)])
    share = epsilon / quantile.halving_levels(len(quantiles))
    chosen = [0] * len(quantiles)

    def divide(low: int, high: int, first: int, stop: int, start: Fraction, end: Fraction) -> None:
        if first == stop:
            return
        middle = (first + stop) // 2
        local = (quantiles[middle] - start) / (end - start)
        whole = stop - first == len(quantiles)
        spread = counts.rank_utility_range(local, neighbours, is_whole=whole, max_rows_per_unit=max_rows_per_unit)
        cell = low + quantile._cell(below[low : high + 2] - below[low], local, spread, share, SYSTEM)
        chosen[middle] = cell
        divide(cell, high, middle + 1, stop, quantiles[middle], end)
        divide(low, cell, first, middle, start, quantiles[middle])

    divide(0, len(found) - 1, 0, len(quantiles), Fraction(0), Fraction(1))
    return chosen


def _rescaled(name: str, factor: Callable[..., Fraction]) -> Patch:
    """Return a method of regression that is given another mu."""
    real = getattr(ada_ssp, name)

    def fit(*arguments: Any, mu: Fraction, **options: Any) -> Any:
        return real(*arguments, mu=mu * factor(mu, **options), **options)

    return ada_ssp, name, fit


_ada_ssp = ada_ssp.ada_ssp


def _radius_of_the_data(products: Any, *, radius: int, **options: Any) -> Any:
    rows = max(1, int(products[0, 0]) // regression.STANDARD_ONE**2)
    squares = sum(int(products[i, i]) for i in range(len(products) - 1))
    return _ada_ssp(products, radius=max(1, math.isqrt(squares // rows)), **options)


def _thrice(gram: Any, *given: Any, squared_mu: Fraction, **options: Any) -> Any:
    return _release_least_eigenvalue(gram, *given, squared_mu=3 * squared_mu, **options)


def _greedy_fit(method: Any, columns: Any, mapped: Any) -> Fraction:
    whole: Fraction = method.mu
    _spend_fit(method, columns, mapped)
    return whole


def _exact_rows(plan: Any, moments: Any, *given: Any) -> Any:
    return replace(_draw_standard(plan, moments, *given), rows=float(Fraction(int(moments.total()[0]), UNIT)))


def _every_visit(sums: Any, *given: Any, squared_mu: Fraction, **options: Any) -> Any:
    return _release_residuals(sums, *given, squared_mu=squared_mu * additive.VISITS, **options)


def _one_sided_residuals(neighbours: str, *given: Any) -> int:
    return _residuals_sensitivity("add_remove", *given)


def _of_one_feature(neighbours: str, features: int, *given: Any) -> int:
    return _cells_sensitivity(neighbours, 1, *given)


def _clipped_once(rows: Any, start: Any, moved: Any, most: int) -> Any:
    return np.clip(start, -most, most) - 8 * moved


def _largest_residual(sizes: Any, *given: Any, **options: Any) -> int:
    return int(additive_statistics.SIZES[max(0, int(np.flatnonzero(sizes)[0]) - 1)])


def _exact_bins(found: Any, *given: Any, **options: Any) -> Any:
    rows = np.maximum(np.asarray(found, dtype=np.float64), 1.0)
    return additive.Bins(np.tile(np.arange(found.shape[1]), (len(found), 1)), list(rows))


_spend_fit = AdditiveModel.spend_fit
_draw_standard = method.draw_standard
_release_residuals = additive.release_residuals
_residuals_sensitivity, _cells_sensitivity = (
    additive_statistics.residuals_sensitivity,
    additive_statistics.cells_sensitivity,
)
_gaussian_shares = vars(LeastSquares)["gaussian_shares"].func
_release_least_eigenvalue = ada_ssp.release_least_eigenvalue
_sensitivities_of_metrics = vars(metrics.MetricsPlan)["sensitivities"].func


def _one_sided_sums(plan: Any) -> Any:
    return _sensitivities_of_metrics(replace(plan, neighbours="add_remove"))


def _whole_epsilon(plan: Any) -> Any:
    return tuple(moved * share for moved, share in zip(_sensitivities_of_metrics(plan), plan.shares, strict=True))


def _greedy_mu(part: gaussian.GaussianNoise, share: str) -> Fraction:
    whole = part.epsilon / (1 - SELECTORS["kendall"].share)
    mine: Fraction = dict(part.shares)[share]
    return gaussian_mu(whole, part.delta) * mine / part.mu


def _whole_mu(method: Any) -> Any:
    return tuple((name, method.mu if name == "fit" else mu) for name, mu in _gaussian_shares(method))


def _mu_rounded_up(method: Any) -> Fraction:
    return gaussian_mu(method.plan.epsilon - method.scale_epsilon, method.plan.delta) + Fraction(1, MU_UNIT)


def _passes(boxes: Any, *_: Any) -> int:
    return tukey.longest_reach(boxes.models)


def _fit(what: str, *patches: Patch) -> Fault:
    return Fault(what, patches)


BROKEN_FITS: dict[str, Fault] = {
    "mu rounded up": _fit("the last digit of mu is too large", (LeastSquares, "mu", property(_mu_rounded_up))),
    "pasted multiplier": _fit(
        "7.3 for sqrt(3) / mu = 7.31736", _rescaled("ada_ssp", lambda mu, **_: Fraction("7.31736") / Fraction("7.3"))
    ),
    "sigma is mu": _fit(
        "noise of mu times the sensitivity, where sqrt(T + 2) / mu belongs",
        _rescaled("boosted_ada_ssp", lambda mu, *, rounds, **_: Fraction(math.sqrt(rounds + 2)) / mu**2),
    ),
    "forgotten rounds": _fit(
        "sqrt(T + 2) is missing: every release spends the whole mu",
        _rescaled("boosted_ada_ssp", lambda mu, *, rounds, **_: Fraction(math.sqrt(rounds + 2))),
    ),
    "share counted twice": _fit(
        "the least eigenvalue spends all of mu, not a third of its square",
        (ada_ssp, "release_least_eigenvalue", _thrice),
    ),
    "bounds not paid for": _fit(
        "the fit has all of mu, and so do the bounds in part",
        (LeastSquares, "gaussian_shares", property(_whole_mu)),
    ),
    "count not paid for": _fit(
        "the models have all of epsilon, and so does the count in part",
        (
            tukey_method.Tukey,
            "model_budget",
            property(lambda method: row_budget(method.plan.neighbours, method.plan.epsilon, method.plan.delta)),
        ),
    ),
    "pipeline pays twice": _fit(
        "selection and fit share nothing: the fit has all of epsilon",
        (gaussian.GaussianNoise, "mu_of", _greedy_mu),
    ),
    "whole epsilon per sum": _fit(
        "every sum of the metrics has all of epsilon", (metrics.MetricsPlan, "sensitivities", property(_whole_epsilon))
    ),
    "one-sided fit": _fit("under replace the noise of an added row", *_for_rows()),
    "one-sided cells": _fit(
        "as above, on the counts of private bounds",
        (prefix_bounds, "squared_l2_sensitivity", _one_sided_cells(counts.squared_l2_sensitivity)),
    ),
    "one-sided scans": _fit(
        "as above, on the scans for an interval",
        (interval_scan.IntervalNoise, "scan_scale", property(_added_scale)),
    ),
    "one-sided rows": _fit(
        "as above, on the rows inside and outside of an interval",
        (interval_scan, "l1_sensitivity", _one_sided_cells(counts.l1_sensitivity)),
    ),
    "free rows": _fit("the rows inside and outside have no noise", (interval_scan, "discrete_laplace", _exact)),
    "one-sided bins": _fit(
        "as above, on the rows between cuts around quantiles",
        (rank_counts, "l1_sensitivity", _one_sided_cells(counts.l1_sensitivity)),
    ),
    "free bins": _fit("the rows between cuts have no noise", (rank_counts, "discrete_laplace", _exact)),
    "cuts of the rows": _fit(
        "the rows are counted between cuts at even ranks of theirs",
        (quantile_function, "bins_between", _bins_at_even_ranks),
    ),
    "one-sided sums": _fit(
        "as above, on the sums of metrics", (metrics.MetricsPlan, "sensitivities", property(_one_sided_sums))
    ),
    "one-sided models": _fit(
        "a replaced row changes two blocks, and is paid for as one",
        (tukey_method, "row_budget", lambda neighbours, epsilon, delta: (epsilon, delta)),
    ),
    "noise for one row": _fit("a unit of several rows is protected like one row", *_for_rows(None, 1)),
    "constant of the median": _fit(
        "the range of the median's scores for any quantile", (quantile, "rank_utility_range", _median_range)
    ),
    "constant of the whole": _fit(
        "under replace a row may leave one sub-range and enter another, and pays for one",
        (quantile, "rank_utility_range", _whole_range),
    ),
    "fixed rank": _fit("a public rank for the data's own", (quantile, "_cell", _fixed_rank)),
    "closed cells": _fit(
        "the rows of a released cell count on both sides of it",
        (quantile, "quantiles", _closed_quantiles),
    ),
    "free bounds": _fit("bounds are the ends of the data", (prefix_bounds, "prefix_bounds", _free_bounds)),
    "cells of the data": _fit("no cells beyond the largest value", (prefix_bounds, "prefix_bounds", _cut_cells)),
    "types of values": _fit(
        "the cells follow from the values, not from the column's type", (least_squares, "Magnitudes", _TypesOfValues)
    ),
    "norm of another column": _fit(
        "the noise of every column by the matrix of a TINYINT", (prefix_bounds, "gaussian_counts", _norm_of_tinyint)
    ),
    "clipped to the data": _fit(
        "predictions are clipped to the ends of the target's values",
        (regression.RowProducts, "add", lambda *given: _ends.add(*given)),
        (method.RegressionCall, "clips", lambda *given: _ends.clips(*given)),
    ),
    "free range": _fit(
        "private intervals of a first pass are the ends of the data",
        (interval_scan, "interval_scan", _ends_of_the_data),
    ),
    "free scale": _fit("the target is scaled by its own quartiles", (quantile, "tied_quantiles", _free_quantiles)),
    "free count": _fit("the number of rows has no noise", (laplace, "discrete_laplace", _no_noise)),
    "free radius": _fit("the norm of a row is that of the data", (ada_ssp, "ada_ssp", _radius_of_the_data)),
    "rounded rows": _fit(
        "rows are rounded after they were clipped, and grow beyond it", (regression, "clip_rows", _clip_and_round)
    ),
    "steps not paid for": _fit(
        "the linear fit has all of mu, and so do the steps in part", (AdditiveModel, "spend_fit", _greedy_fit)
    ),
    "free visits": _fit(
        "every visit of a feature spends what all of them may",
        (additive, "release_residuals", _every_visit),
    ),
    "one-sided residuals": _fit(
        "under replace a residual may change its sign, and pays for coming",
        (additive, "residuals_sensitivity", _one_sided_residuals),
    ),
    "one feature's noise": _fit(
        "rows are in a cell of each feature, with the noise for one", (additive, "cells_sensitivity", _of_one_feature)
    ),
    "steps by exact rows": _fit(
        "whether there are steps, and so who gets their budget, is told by the exact number of rows",
        (least_squares, "draw_standard", _exact_rows),
    ),
    "clipped once": _fit(
        "residuals of the linear fit are clipped, and not again once there are steps",
        (additive_statistics.StepRows, "residuals", _clipped_once),
    ),
    "bound of the data": _fit(
        "residuals are clipped to the largest one there is", (additive, "release_bound", _largest_residual)
    ),
    "bins of the rows": _fit(
        "neighbouring cells are joined where their exact rows say so", (additive, "release_bins", _exact_bins)
    ),
    "unclipped residuals": _fit(
        "residuals of any size, under noise for those in [-1, 1]",
        (ClippedRows, "residual_products", _unclipped_products),
    ),
    "blocks by position": _fit("blocks of consecutive rows", (votes, "_assigned", _by_position)),
    "unsafe test": _fit("degenerate volumes pass the test of stability", (tukey, "stable_reach", _passes)),
}
