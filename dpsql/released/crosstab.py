"""Released contingency tables: what the ledger keeps of them, and their rows. Everything here is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from statistics import NormalDist
from typing import Protocol, TypedDict

import numpy as np

from dpsql.arrays import Doubles
from dpsql.contract.json import Json
from dpsql.mechanisms.aggregates import NoisyBlock
from dpsql.released.aggregates import StoredBlock, restored_block, stored_block
from dpsql.released.intervals import combined_quantile
from dpsql.released.marginals import entry_weights, estimated_marginal
from dpsql.released.verdicts import interval_verdict
from dpsql.statistics.aggregates import LAPLACE
from dpsql.statistics.marginals import Axes, MarginalCounts

TOTAL, CELLS = "total", "cells"


class Crosstab(TypedDict):
    """A table of counts: names, types and keys of its columns, the marginals that got noise, and those that are shown.

    Marginals are positions of their columns.
    """

    columns: list[str]
    types: list[str]
    keys: list[list[str | None]]
    measured: list[list[int]]
    shown: list[list[int]]
    confidence: float
    block: StoredBlock


class AskedCrosstab(Protocol):
    """What a plan asked for."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    def design(self) -> MarginalCounts:
        """The marginals that get noise."""

    @property
    def shown(self) -> tuple[Axes, ...]:
        """The marginals of the result."""

    @property
    def confidence(self) -> Fraction:
        """Coverage of the intervals."""


@dataclass(frozen=True, eq=False)
class Margin:
    """One estimated marginal: its columns, its entries, and how far the noise moves each of them."""

    axes: Axes
    count: Doubles
    std_error: float
    reach: float


def crosstab_record(
    asked: AskedCrosstab, keys: Sequence[Sequence[str | None]], types: Sequence[str], noisy: NoisyBlock
) -> dict[str, Json]:
    """Return what the ledger keeps of a table, a `Crosstab`; keys are the lists of the columns."""
    return {
        "columns": list(asked.key_columns),
        "types": list(types),
        "keys": [list(column) for column in keys],
        "measured": [list(axes) for axes in asked.design.measured],
        "shown": [list(axes) for axes in asked.shown],
        "confidence": float(asked.confidence),
        "block": stored_block(None, noisy),
    }


def margins_of(result: Crosstab) -> list[Margin]:
    """Return the estimated marginals of a stored table, in the order in which they are shown."""
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
    whole = len(design.measured) == 1 and noisy.lattice.bits == 0
    return noisy.deviation * unit, float(np.ceil(reach)) if whole else reach


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
    """Return the name of a marginal: the columns that it has."""
    if not axes:
        return TOTAL
    return CELLS if len(axes) == len(result["columns"]) else ", ".join(result["columns"][axis] for axis in axes)
