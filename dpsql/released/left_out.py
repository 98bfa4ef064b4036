"""What limits of privacy units left out, and drawn bounds clipped, as far as noisy numbers show it: post-processing.

A row is `biased` where it is shown that more fell away than half of its interval is wide. The interval speaks of the
rows that count, and the noise on them; what fell away is beside it.

**Why at least, and not at most.** Each unit's part is cut (`dpsql.statistics.left_out`), so the numbers say how much
fell away at least, but for noise, with the chance `confidence`. No private number says how much it was at most: one
person's million rows must not show. Nor would an upper end of the noisy number do: with a share s of epsilon its noise
is (1 - s) / s times that of a count, so at a share of 5 % it always exceeds the count's own interval, and no row would
ever be `clear`. So `clear` does not say that nothing fell away; `covers` says what the number is of.

**Groups.** What fell away is known over all groups together. If it is L, at most L / h groups lack more than h, half of
a row's interval. A row is `biased` where that is at least one group, and more than the share of the groups, one less
the confidence, whose intervals may fail anyway. With up to 20 groups at 95 % that is any row with h < L, as if all fell
away in its group; with many groups the rows stay `clear` as long as 95 % of them are within their intervals.

==================  ===================================================================================================
aggregate           what is compared with h
==================  ===================================================================================================
count, sum          rows, or the absolute sum of their values, that fell away at least
avg                 how far the mean of all groups together would move at least, were they there: to first order,
                    because the noisy mean is taken for the mean of the rows that count
variance, stddev    nothing: their rows are judged by noise alone
==================  ===================================================================================================

**Clipping.** Bounds that were drawn clip the values beyond them, and what that takes from a sum, or from a sum of
squares, over all groups follows from the tails that were counted (`dpsql.mechanisms.interval_scan`, *Wider ends*). It
is a forecast, on the safe side of what is likely, and no limit: so a row is `biased` where it exceeds a quarter of the
interval, which then still covers nearly as often as it says. Sums are compared as above; of a mean, a variance and a
deviation it is what moves that of all groups together. Bounds that the owner or the caller states are public, and clip
what the call is told to clip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.contract.json import Json
from dpsql.mechanisms.aggregates import NoisyBlock
from dpsql.released.covariance import Estimated
from dpsql.released.intervals import noise_quantile, restored_interval
from dpsql.released.stored_blocks import StoredBlock, restored_block
from dpsql.statistics.aggregates import AVG, COUNT, POWERS, STDDEV, SUM, ValueBlock


class LeftOut(TypedDict):
    """What the limits left out: noisy blocks of units, then of each target or of all rows.

    `most` is how many rows of one unit they hold at most.
    """

    most: int
    blocks: list[StoredBlock]


# The part of half an interval that clipping may take before a row is biased.
_CUT = 0.5


def are_biased(
    result: Mapping[str, Any], series: Sequence[tuple[str | None, str, Estimated]]
) -> list[NDArray[np.bool_]]:
    """Return which rows lack more than half of their intervals, by target, name and estimates of each aggregate."""
    names = len(result["aggregates"])
    return [is_biased(result, number // names, name, one) for number, (_, name, one) in enumerate(series)]


def is_biased(result: Mapping[str, Any], target: int, name: str, estimated: Estimated) -> NDArray[np.bool_]:
    """Return which rows of one aggregate of a target lack more than half of their intervals."""
    half = np.fmax(estimated.upper - estimated.value, estimated.value - estimated.lower)
    some = 1.0 if name not in (COUNT, SUM) else max(1.0, (1.0 - result["confidence"]) * len(estimated.value))
    least = at_least(result, target, name) if "left_out" in result else 0.0
    cut = clipped(result, target, name)
    # A deviation moves by half where its square moves by this.
    far = half * (2.0 * estimated.value + half) if name == STDDEV else half
    return np.asarray((least > half * some) | (cut > _CUT * far * some), dtype=np.bool_)  # false for NaN


def clipped(result: Mapping[str, Any], target: int, name: str) -> float:
    """Return how far drawn bounds moved an aggregate over all groups, or the square of a deviation; 0 if not known."""
    stored = result["blocks"][target]
    if name == COUNT or stored["bounds"] is None or not stored.get("drawn"):
        return 0.0
    moved = restored_interval(stored["drawn"]).clipped(tuple(stored["bounds"]), POWERS[name])
    if name == SUM or not moved:
        return moved
    return moved / max(1.0, _mean(result, target)[1])


def at_least(result: Mapping[str, Any], target: int, name: str) -> float:
    """Return how much an aggregate of a target lacks at least, over all groups; 0 where nothing is shown."""
    units, block = (restored_block(result["left_out"]["blocks"][place]) for place in (0, 1 + target))
    tail = 1.0 - result["confidence"]
    if name == COUNT:
        rows = _shown(block, _weights(block)[0], tail)
        # Of a unit without a value in any of its rows no value fell away.
        return rows if result["blocks"][target]["target"] is not None else max(rows, _shown(units, np.ones(1), tail))
    if not isinstance(block.block, ValueBlock):
        return 0.0
    counted, values = _weights(block)
    middle, half = block.block.middle_and_half
    if name == SUM:
        return _shown(block, middle * counted + half * values, tail, signed=True)
    mean, rows = _mean(result, target)
    if name != AVG or not counted.any() or mean is None:
        return 0.0
    fallen = max(0.0, float(counted @ block.values[:, 0]))
    return half * _shown(block, values - mean * counted, tail, signed=True) / (rows + fallen)


def _weights(noisy: NoisyBlock) -> tuple[Doubles, Doubles]:
    """Return the forms of the number of rows and of the sum of z; zeros where a block does not tell one."""
    weights = np.zeros((2, noisy.block.size))
    for place, one in enumerate(noisy.block.moments[:2]):
        weights[place] = one
    return weights[0], weights[1]


def _shown(noisy: NoisyBlock, weights: Doubles, tail: float, *, signed: bool = False) -> float:
    """Return the least size of a form that noise leaves, but for a chance of `tail`; 0 where that is nothing."""
    value = float(weights @ noisy.values[:, 0])
    return max(0.0, (abs(value) if signed else value) - float(noise_quantile(noisy, weights, tail)))


def _mean(result: Mapping[str, Any], target: int) -> tuple[float | None, float]:
    """Return the noisy mean z of the rows that count in all groups together, and their noisy number."""
    noisy = restored_block(result["blocks"][target])
    counted, values = _weights(noisy)
    rows = float(sum(result["sizes"]) if "sizes" in result else (counted @ noisy.values).sum())
    if not rows > 0.0:
        return None, 0.0
    return float(np.clip((values @ noisy.values).sum() / rows, -1.0, 1.0)), rows


def left_out_statement(result: Mapping[str, Any], *, named: bool = True) -> dict[str, Json]:
    """Return what the receipt says of what was left out: noisy numbers with the standard deviations of their noise.

    Rows and sums hold at most `most_rows_of_a_unit` rows of each unit, so they are too small where units have more.
    Targets that are not `named` are columns that a query was split into, whose names nobody has read.
    """
    units, *targets = map(restored_block, result["left_out"]["blocks"])
    statement: dict[str, Json] = {
        "units": float(units.values[0, 0]),
        "units_std_error": units.deviation,
        "most_rows_of_a_unit": result["left_out"]["most"],
    }
    listed: list[Json] = []
    for stored, noisy in zip(result["left_out"]["blocks"][1:], targets, strict=True):
        counted, values = _weights(noisy)
        forms = {"rows": counted} if counted.any() else {}
        if isinstance(noisy.block, ValueBlock):
            middle, half = noisy.block.middle_and_half
            forms["sum"] = middle * counted + half * values
        numbers: dict[str, Json] = {"target": stored["target"]} if named else {}
        for name, form in forms.items():
            numbers[name] = float(form @ noisy.values[:, 0])
            numbers[f"{name}_std_error"] = noisy.deviation * float(np.linalg.norm(form))
        listed.append(numbers)
    return statement | {"fell_away": listed}
