"""Compute a difference of two groups or of two scores from released moments, at no privacy cost.

Each of the two estimates has an interval for its noise. If sampling counts, it also has a distance to the population on
either side (`dpsql.released.sampling`). Distances add up in squares, and so do distances of two independent estimates:
the difference reaches down by the first estimate's distance down and the second estimate's distance up.

==========  ==========================================  ============================================================
of          noise                                       sampling
==========  ==========================================  ============================================================
mean        the means that are compatible with the      the largest sum of squares about the noisy mean that is
            noisy sums of each group                    compatible with the noise, over the fewest rows that are
share       the same                                    ``p (1 - p)``, which no values in [0, 1] exceed at that mean
count       the noise of both counts                    units that arrive as a Poisson process: the sum of both
                                                        counts, times the rows of a unit
error       the mean of the difference of two errors,   its variance, as of a mean: rows are paired
            row by row
auc         a box around the noisy difference of        see below
            concordances and both class sizes
==========  ==========================================  ============================================================

The difference of two areas of the same rows is the mean, over pairs of a positive and a negative row, of ``h = psi1 -
psi2``, where psi is 1, 1/2 or 0 as a score ranks the pair. An average over disjoint pairs, as many as rows in the
smaller class, has the same expectation, and the mean over all pairs is a mean of such averages. So its variance is at
most the variance of h over the smaller class (Hoeffding 1963). h is not 0 only for pairs that the scores order
differently: the variance of h is at most the share of such pairs, and the release has their noisy number. The variance
of h is also at most ``(s1 + s2)**2`` with ``s**2 = a (1 - a)`` at the area a, as in Birnbaum's bound for one area. The
code uses the smaller bound. With m rows per unit a pair shares a unit with up to ``2 (m - 1)`` others, so the smaller
class counts as ``1 / (2 m - 1)`` of its rows. For independent scores the bound is close to the true variance if one
class is small, and up to twice it if both are alike; DeLong's estimate would need every row's place.

``rows_needed`` is the number of rows at which a difference like this one would be significant, if noise and sampling
were as they are here: a share of 1 / n of the variance is sampling, and a share of ``1 / n**2`` is noise. If the call
is undetermined, it is the number of rows from which noise leaves an answer, computed from public arguments alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import NotRequired, TypedDict

import numpy as np

from dpsql.contract.covers import DIFFERS, NO_EVIDENCE, UNDETERMINED
from dpsql.contract.json import Json
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.released.aggregates import StoredBlock, restored_block
from dpsql.released.areas import per_concordance
from dpsql.released.covariance import estimates
from dpsql.released.sampling import count_reach_of_sampling, mean_reaches, sampled_mean
from dpsql.statistics.aggregates import AVG, COUNT, ValueBlock

MEAN, SHARE, OF_COUNT, AREA, ERROR = KINDS = ("mean", "share", "count", "auc", "error")


class PairedArea(TypedDict):
    """Noisy numbers of two concordances: their difference and sum, and pairs that are ordered differently.

    `errors` are standard deviations of the noise in the first two and in a class size. These numbers and the
    disagreement exceed `reaches` with a chance of ``(1 - confidence) / 4``.
    """

    difference: float
    total: float
    positives: float
    negatives: float
    disagreement: float | None
    errors: tuple[float, float]
    reaches: tuple[float, float, float]


class Compared(TypedDict):
    """A comparison in the ledger: noisy integers, and public facts about them."""

    of: str
    sampling: bool
    confidence: float
    rows_per_unit: int
    rows_needed: float | None
    scale: float  # whole range of an error, in its unit
    blocks: NotRequired[list[StoredBlock]]
    area: NotRequired[PairedArea]


@dataclass(frozen=True)
class _Estimate:
    """A number and the distances to the ends of its interval, in its own unit.

    Attributes
    ----------
    value : float
    below, above : float
        The distances, with noise and sampling.
    noise, sampling : float
        Standard deviations.
    least, most : float
        Bounds of the number.
    rows : float
        Noisy rows behind it.
    empty : bool
        Whether there may be no rows at all.
    """

    value: float
    below: float
    above: float
    noise: float
    sampling: float
    least: float
    most: float
    rows: float
    empty: bool = False


def comparison_rows(result: Compared) -> list[Mapping[str, Json]]:
    """Return the one row of a stored comparison."""
    if result["of"] in (MEAN, SHARE):
        first, second = _means(result)
        return [_row(result, first.value, second.value, _difference(first, second))]
    if result["of"] == OF_COUNT:
        count, other, both = _counts(result)
        return [_row(result, count, other, both)]
    if result["of"] == ERROR:
        return [_errors(result)]
    return [_areas(result)]


def _row(result: Compared, first: float, second: float, estimate: _Estimate) -> Mapping[str, Json]:
    lower, upper = (
        max(estimate.least, estimate.value - estimate.below),
        min(estimate.most, estimate.value + estimate.above),
    )
    if estimate.empty or (lower <= estimate.least and upper >= estimate.most):
        names = ("first", "second", "difference", "std_error", "lower", "upper")
        return {**dict.fromkeys(names), "rows_needed": result["rows_needed"], "verdict": UNDETERMINED}
    return {
        "first": first,
        "second": second,
        "difference": estimate.value,
        "std_error": math.hypot(estimate.noise, estimate.sampling),
        "lower": lower,
        "upper": upper,
        "rows_needed": _needed(estimate, 1.0 - result["confidence"]),
        "verdict": DIFFERS if lower > 0.0 or upper < 0.0 else NO_EVIDENCE,
    }


def _needed(estimate: _Estimate, tail: float) -> float | None:
    """Return the rows at which the difference is significant; None without a difference."""
    if estimate.value == 0.0:
        return None
    rows, unit = max(1.0, estimate.rows), abs(estimate.value)
    away = -NormalDist().inv_cdf(tail / 2.0)
    # In units of the difference; products, which are infinite where powers raise.
    sampling, noise = away * estimate.sampling / unit, away * estimate.noise / unit * rows
    by_row, by_square = sampling * sampling * rows, noise * noise
    needed = (by_row + math.sqrt(by_row * by_row + 4.0 * by_square)) / 2.0
    return float(math.ceil(needed)) if math.isfinite(needed) else None


def _difference(first: _Estimate, second: _Estimate) -> _Estimate:
    """Return the difference of two independent numbers."""
    width = first.most - first.least
    return _Estimate(
        first.value - second.value,
        math.hypot(first.below, second.above),
        math.hypot(first.above, second.below),
        math.hypot(first.noise, second.noise),
        math.hypot(first.sampling, second.sampling),
        -width,
        width,
        first.rows + second.rows,
        first.empty or second.empty,
    )


def _means(result: Compared) -> tuple[_Estimate, _Estimate]:
    first, second = block_means(
        result["blocks"][0],
        result["confidence"],
        sampling=result["sampling"],
        rows_per_unit=result["rows_per_unit"],
    )
    return first, second


def block_means(stored: StoredBlock, confidence: float, *, sampling: bool, rows_per_unit: int) -> list[_Estimate]:
    """Return the mean of each group of a block, with noise and sampling.

    Parameters
    ----------
    stored : StoredBlock
    confidence : float
    sampling : bool
    rows_per_unit : int
    """
    noisy, tail = restored_block(stored), 1.0 - confidence
    columns = estimates(noisy, (COUNT, AVG), confidence=confidence)
    count, mean = columns[COUNT], columns[AVG]
    population = mean
    if sampling:
        population = sampled_mean(noisy, mean, count.lower, tail=tail, rows_per_unit=rows_per_unit)
    if not isinstance(noisy.block, ValueBlock):
        raise ParameterError("P018", "a count tells nothing of values. Take the block of the comparison.")
    middle, half = noisy.block.middle_and_half
    spread = np.sqrt(np.maximum(population.std_error**2 - mean.std_error**2, 0.0))
    return [
        _Estimate(
            value=float(mean.value[group]),
            below=float(mean.value[group] - population.lower[group]),
            above=float(population.upper[group] - mean.value[group]),
            noise=float(mean.std_error[group]),
            sampling=float(spread[group]),
            least=middle - half,
            most=middle + half,
            rows=float(count.value[group]),
            empty=bool(count.lower[group] < 1.0),
        )
        for group in range(len(mean.value))
    ]


def _counts(result: Compared) -> tuple[float, float, _Estimate]:
    counts = estimates(restored_block(result["blocks"][0]), (COUNT,), confidence=result["confidence"])[COUNT]
    first, second = counts.value.tolist()
    # A count's interval is cut at 0, and its noise is not.
    reach = max(float((counts.upper - counts.value).max()), 0.0)
    away = math.hypot(reach, reach)
    sampling, deviation = 0.0, 0.0
    if result["sampling"]:
        most = float(counts.upper.sum())
        sampling, deviation = count_reach_of_sampling(most, result["rows_per_unit"], 1.0 - result["confidence"])
    way = math.hypot(away, sampling)
    noise = math.hypot(*counts.std_error.tolist())
    rows = max(0.0, first) + max(0.0, second)
    estimate = _Estimate(first - second, way, way, noise, deviation, -math.inf, math.inf, rows)
    return first, second, estimate


def _errors(result: Compared) -> Mapping[str, Json]:
    confidence, unit = result["confidence"], result["rows_per_unit"]
    [difference] = block_means(result["blocks"][0], confidence, sampling=result["sampling"], rows_per_unit=unit)
    [level] = block_means(result["blocks"][1], confidence, sampling=False, rows_per_unit=unit)
    scale = result["scale"]
    first = min(max(level.value, difference.value, 0.0), 1.0, 1.0 + difference.value)
    scaled = replace(
        difference,
        value=scale * difference.value,
        below=scale * difference.below,
        above=scale * difference.above,
        noise=scale * difference.noise,
        sampling=scale * difference.sampling,
        least=-scale,
        most=scale,
    )
    return _row(result, scale * first, scale * (first - difference.value), scaled)


def _areas(result: Compared) -> Mapping[str, Json]:
    area = result["area"]
    by_concordance, by_class, by_pairs = area["reaches"]
    counts = [max(1.0, area[name]) for name in ("positives", "negatives")]
    fewest, most = ([max(1.0, count + side * by_class) for count in counts] for side in (-1.0, 1.0))
    at, narrow, wide = per_concordance(*counts), per_concordance(*most), per_concordance(*fewest)
    value = area["difference"] * at
    low, high = (_product(area["difference"] + side * by_concordance, narrow, wide, side) for side in (-1.0, 1.0))
    noise = math.hypot(at * area["errors"][0], *(value * area["errors"][1] / count for count in counts))
    both = [0.5 + (area["total"] + sign * area["difference"]) / 2.0 * at for sign in (1.0, -1.0)]
    ways = (0.0, 0.0, 0.0)
    if result["sampling"]:
        both_concordances = [(area["total"] + sign * area["difference"]) / 2.0 for sign in (1.0, -1.0)]
        ends = [
            [0.5 + _product(both_concordance + side * by_concordance, narrow, wide, side) for side in (-1.0, 1.0)]
            for both_concordance in both_concordances
        ]
        variance = sum(math.sqrt(_largest_spread(*pair)) for pair in ends) ** 2
        if area["disagreement"] is not None:
            variance = min(variance, max(0.0, area["disagreement"] + by_pairs) * 2.0 * wide)
        rows = min(fewest) / (2 * result["rows_per_unit"] - 1)
        mean, spread = (np.array([number]) for number in (min(1.0, max(-1.0, value)), min(1.0, variance)))
        below, above, deviation = (
            float(part[0]) for part in mean_reaches(mean, spread, np.array([rows]), 1.0 - result["confidence"])
        )
        ways = below, above, deviation
    empty = min(area["positives"], area["negatives"]) - by_class < 1.0
    estimate = _Estimate(
        min(1.0, max(-1.0, value)),
        math.hypot(max(0.0, value - low), ways[0]),
        math.hypot(max(0.0, high - value), ways[1]),
        noise,
        ways[2],
        -1.0,
        1.0,
        sum(counts),
        empty,
    )
    first, second = (min(1.0, max(0.0, number)) for number in both)
    return _row(result, first, second, estimate)


def _product(concordance: float, narrow: float, wide: float, side: float) -> float:
    """Return the end of a concordance times its factor, on one side."""
    return concordance * (wide if concordance * side > 0.0 else narrow)


def _largest_spread(low: float, high: float) -> float:
    """Return the largest ``a (1 - a)`` of areas in an interval."""
    low, high = min(1.0, max(0.0, low)), min(1.0, max(0.0, high))
    nearest = 0.5 if low <= 0.5 <= high else low if low > 0.5 else high
    return nearest * (1.0 - nearest)
