"""Released contingency tables: their record in the ledger, and their rows. Everything here is free.

**Marginals.** Consistent marginals from noisy marginals, by least squares in closed form: free post-processing.

Every marginal splits into *effects*. The effect of a subset S of its columns is the rest of the table's sums over all
other columns, after the mean over each column of S is subtracted. Effects of different subsets are orthogonal in every
marginal, so least squares treats each by itself. A measured marginal T that has the columns of S determines the effect
by sums over the N = N(T, S) combinations of its other columns, with N times the noise; hence its weight is 1 / N, over
the sum W(S) of these weights. The estimate of a marginal spreads the effects of its subsets evenly over its entries.
For two columns these are the formulas of a two-way table with noisy margins; sums of estimated cells are the estimated
margins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations, product
from statistics import NormalDist
from typing import NamedTuple, Protocol, TypedDict

import numpy as np

from dpsql.arrays import Doubles
from dpsql.contract.json import Json
from dpsql.dataclass import dataclass
from dpsql.mechanisms.aggregates import NoisyBlock
from dpsql.released.aggregates import StoredBlock, restored_block, stored_block
from dpsql.released.intervals import combined_quantile, interval_verdict
from dpsql.statistics.aggregates import LAPLACE
from dpsql.statistics.counts import Axes, MarginalCounts


class Weights(NamedTuple):
    """The weights of the measured entries in an estimated entry, with the number of times of each, shape (k,)."""

    weight: Doubles
    times: Doubles

    @property
    def variance(self) -> float:
        """Return the variance of the estimate, for noise of variance 1 on every measured entry."""
        return float((self.times * self.weight**2).sum())


def estimated_marginal(design: MarginalCounts, noisy: dict[Axes, Doubles], target: Axes) -> Doubles:
    """Return the least-squares estimate of a marginal.

    Parameters
    ----------
    design : MarginalCounts
    noisy : dict
        The noisy marginals, as `MarginalCounts.split` returns them.
    target : tuple of int
        Columns of the marginal; some measured marginal has all of them.

    Returns
    -------
    estimate : ndarray of float64, shape (sizes of the columns)
    """
    if len(design.measured) == 1:  # the same estimate, without rounding
        [(axes, table)] = noisy.items()
        return np.asarray(_summed(table, axes, target))
    estimate = np.zeros([design.sizes[axis] for axis in target])
    for subset in _subsets(target):
        effect = np.zeros([design.sizes[axis] for axis in subset])
        for axes in _with(design, subset):
            summed = _summed(noisy[axes], axes, subset)
            for dimension in range(summed.ndim):
                summed = summed - summed.mean(axis=dimension, keepdims=True)
            effect += summed / _rest(design, axes, subset)
        shape = [design.sizes[axis] if axis in subset else 1 for axis in target]
        estimate += (effect / (_total(design, subset) * _rest(design, target, subset))).reshape(shape)
    return estimate


def entry_weights(design: MarginalCounts, target: Axes) -> Weights:
    """Return how every entry of an estimated marginal depends on the measured entries; the same for all entries."""
    if len(design.measured) == 1:
        [axes] = design.measured
        return Weights(np.ones(1), np.array([float(_rest(design, axes, target))]))
    weights, times = [], []
    for axes in design.measured:
        shared = tuple(axis for axis in axes if axis in target)
        for equal in _subsets(shared):
            weights.append(sum(_part(design, axes, target, subset, equal) for subset in _subsets(shared)))
            differing = [design.sizes[axis] - 1 for axis in shared if axis not in equal]
            times.append(float(np.prod([*differing, _rest(design, axes, shared)])))
    return Weights(np.array(weights), np.array(times))


def _part(design: MarginalCounts, axes: Axes, target: Axes, subset: Axes, equal: Axes) -> float:
    """Return one effect's part in the weight of measured entries that share some keys with the target entry."""
    kernel = float(np.prod([(axis in equal) - 1 / design.sizes[axis] for axis in subset]))
    return kernel / (_total(design, subset) * _rest(design, axes, subset) * _rest(design, target, subset))


def _total(design: MarginalCounts, subset: Axes) -> float:
    """Return W: the sum of the weights of the marginals with an effect."""
    return sum(1 / _rest(design, axes, subset) for axes in _with(design, subset))


def _with(design: MarginalCounts, subset: Axes) -> list[Axes]:
    """Return the measured marginals that have some columns."""
    return [axes for axes in design.measured if set(subset) <= set(axes)]


def _rest(design: MarginalCounts, axes: Axes, subset: Axes) -> int:
    """Return the number of combinations of the other columns of a marginal."""
    return design.length(axis for axis in axes if axis not in subset)


def _summed(table: Doubles, axes: Axes, target: Axes) -> Doubles:
    """Return the sums of a marginal over its other columns."""
    return np.asarray(table.sum(axis=tuple(index for index, axis in enumerate(axes) if axis not in target)))


def _subsets(axes: Axes) -> Iterator[Axes]:
    """Yield all subsets of some columns."""
    for size in range(len(axes) + 1):
        yield from combinations(axes, size)


TOTAL, CELLS = "total", "cells"


class Crosstab(TypedDict):
    """A table of counts: names, types and keys of its columns, the marginals with noise, and the shown marginals.

    Each marginal is a tuple of column positions.
    """

    columns: list[str]
    types: list[str]
    keys: list[list[str | None]]
    measured: list[list[int]]
    shown: list[list[int]]
    confidence: float
    block: StoredBlock


class CrosstabRequest(Protocol):
    """The request of a plan."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Return the names of the columns."""

    @property
    def design(self) -> MarginalCounts:
        """Return the marginals that get noise."""

    @property
    def shown(self) -> tuple[Axes, ...]:
        """Return the marginals of the result."""

    @property
    def confidence(self) -> Fraction:
        """Return the coverage of the intervals."""


@dataclass(frozen=True, eq=False)
class Margin:
    """One estimated marginal: its columns, its entries, and the noise in each of them."""

    axes: Axes
    count: Doubles
    std_error: float
    reach: float


def crosstab_record(
    request: CrosstabRequest, keys: Sequence[Sequence[str | None]], types: Sequence[str], noisy: NoisyBlock
) -> dict[str, Json]:
    """Return the ledger's record of a table, a `Crosstab`; keys are the lists of the columns."""
    return {
        "columns": list(request.key_columns),
        "types": list(types),
        "keys": [list(column) for column in keys],
        "measured": [list(axes) for axes in request.design.measured],
        "shown": [list(axes) for axes in request.shown],
        "confidence": float(request.confidence),
        "block": stored_block(None, noisy),
    }


def margins_of(result: Crosstab) -> list[Margin]:
    """Return the estimated marginals of a stored table, in display order."""
    design = MarginalCounts(tuple(map(len, result["keys"])), tuple(map(tuple, result["measured"])))
    noisy = restored_block(result["block"])
    measured = design.split(noisy.values[0])
    return [
        Margin(axes, estimated_marginal(design, measured, axes), *_errors(design, noisy, axes, result["confidence"]))
        for axes in map(tuple, result["shown"])
    ]


def _errors(design: MarginalCounts, noisy: NoisyBlock, axes: Axes, confidence: float) -> tuple[float, float]:
    """Return the standard error of an estimated marginal, and half of the length of its interval."""
    weights, tail = entry_weights(design, axes), 1.0 - confidence
    unit = float(np.sqrt(weights.variance))
    if noisy.lattice.noise != LAPLACE:
        return noisy.deviation * unit, -NormalDist().inv_cdf(tail / 2.0) * noisy.deviation * unit
    # Laplace noise of scale b has the variance 2 b**2, and discrete noise a little less.
    quantile = float(combined_quantile(weights.weight[np.newaxis], weights.times[np.newaxis], tail)[0])
    reach = quantile * unit * noisy.scale * float(np.sqrt(2.0))
    is_integer = len(design.measured) == 1 and noisy.lattice.bits == 0
    return noisy.deviation * unit, float(np.ceil(reach)) if is_integer else reach


def crosstab_rows(result: Crosstab) -> list[dict[str, object]]:
    """Return the rows of a stored table: marginal by marginal, in the order of the keys; a margin has NULLs."""
    rows: list[dict[str, object]] = []
    for margin in margins_of(result):
        name = _name(result, margin.axes)
        lists = [keys if at in margin.axes else [None] for at, keys in enumerate(result["keys"])]
        for keys, count in zip(product(*lists), margin.count.ravel().tolist(), strict=True):
            lower, upper = max(count - margin.reach, 0.0), count + margin.reach
            rows.append(
                {
                    "keys": list(keys),
                    "margin": name,
                    "count": count,
                    "std_error": margin.std_error,
                    "lower": lower,
                    "upper": upper,
                    "verdict": interval_verdict(count, lower, upper),
                }
            )
    return rows


def _name(result: Crosstab, axes: Axes) -> str:
    """Return the name of a marginal: its columns."""
    if not axes:
        return TOTAL
    return CELLS if len(axes) == len(result["columns"]) else ", ".join(result["columns"][axis] for axis in axes)
