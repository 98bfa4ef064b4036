"""Compute the area under an ROC curve from a noisy concordance and two noisy counts, at no privacy cost.

With x positive and y negative rows the area is ``1/2 + T h(x, y)``, ``h = (x + y - 1) / (2 x y) = (1/x + 1/y - 1/(x y))
/ 2``, which falls in x and in y from 1 on. The interval holds the areas that are compatible with the noisy numbers
(`interval`). It covers noise, not the sampling of the rows. If a class has no row, T is 0 and the area is 1/2.

==============  ====================================================
verdict         meaning
==============  ====================================================
clear           the interval excludes 1/2
unclear         it does not: noise of this size explains a difference
undetermined    it is all of [0, 1], and there is no area
not measured    the noise is not known (``method := 'smooth'``)
==============  ====================================================

`curve_area` computes the area under a released ROC curve, with the same verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np

from dpsql.arrays import Doubles
from dpsql.contract.covers import CLEAR, NOT_MEASURED, UNCLEAR, UNDETERMINED
from dpsql.contract.json import Json
from dpsql.released.curves import RocCounts, area_under
from dpsql.released.intervals import FAILURE, compatible, laplace_quantile
from dpsql.released.results import Area, Curve, ScaledArea
from dpsql.released.sampling import mean_reaches

# Chance that one of three noisy numbers is beyond its reach.
AREA_FAILURE = Fraction(1, 60)
# Of the 5 %, the chance that a count is outside the box of both counts.
_OF_COUNTS = 0.005
# Number of tabulated noise quantiles.
_NODES = 33
# Chance that any count of a curve is beyond its reach.
_CURVE_FAILURE = 0.05


def area_rows(result: Area | ScaledArea) -> list[Mapping[str, Json]]:
    """Return the one row of a stored result."""
    if "auc" in result:
        record: Any = result
        return [_row(record["auc"], None, None, None, NOT_MEASURED)]
    ends = interval(result)
    area = point(result, ends)
    if "sampled" in result and ends != (0.0, 1.0):
        return [_judged(area, *_sampled(result, area, ends, result["sampled"]))]
    return [_judged(area, standard_error(result), *ends)]


def _sampled(
    result: ScaledArea, area: float, ends: tuple[float, float], rows_per_unit: int
) -> tuple[float, float, float]:
    """Return the standard error of an area, and an interval for the population's area.

    The variance of the area is at most ``a (1 - a)`` over the rows of the smaller class, whatever the scores are
    (Hoeffding 1963; Birnbaum and Klose 1957): close if one class is small, and up to twice the variance if both are
    alike. Rows of a unit count as in `dpsql.released.comparison`. Noise and sampling add up in squares.
    """
    lower, upper = ends
    nearest = 0.5 if lower <= 0.5 <= upper else lower if lower > 0.5 else upper
    fewest = max(1.0, min(result["positives"], result["negatives"]) - result["count_reach"])
    rows = np.array([fewest / (2 * rows_per_unit - 1)])
    # Twice the area less 1 is a mean of values in [-1, 1].
    spread = np.array([4.0 * nearest * (1.0 - nearest)])
    below, above, error = (
        float(part[0]) / 2.0 for part in mean_reaches(np.array([2.0 * area - 1.0]), spread, rows, FAILURE)
    )
    around = area - math.hypot(area - lower, below), area + math.hypot(upper - area, above)
    return math.hypot(standard_error(result), error), _clipped(around[0]), _clipped(around[1])


def curve_area(result: Curve) -> list[Mapping[str, Json]]:
    """Return the one row of a stored ROC curve: the area under its straight lines, and an interval.

    Notes
    -----
    Let T and F be the true and false positive rates from each threshold on, thresholds descending. The rows' area lies
    between ``sum (T_i - T_(i-1)) (1 - F_i)`` and ``sum (T_i - T_(i-1)) (1 - F_(i-1))``, in any order of rows with
    scores between two thresholds. Both sums grow in every T_i and fall in every F_i, so their ends over a band around
    the counts are an interval. All counts are within `reach` except with a chance of 5 %. The standard deviation of the
    noise in the area is not known: a release stores no covariances of counts except with the totals.
    """
    curve = RocCounts.from_record(result)
    failure = _CURVE_FAILURE / (2 * len(curve.thresholds))
    reaches = np.array([reach(error, failure) for error in curve.std_error])
    (false_low, false_high), (true_low, true_high) = (
        _rate_band(np.array(counts), reaches) for counts in (curve.negatives, curve.positives)
    )
    lower, upper = _steps(false_high[1:], true_low), _steps(false_low[:-1], true_high)
    # Straight lines between consistent rates may leave a narrow band.
    area = area_under(*(np.concatenate([[0.0], rates]) for rates in curve.rates))
    return [_judged(area, None, _clipped(min(lower, area)), _clipped(max(upper, area)))]


def reach(deviation: float, failure: float) -> float:
    """Return a reach that noise of a known standard deviation exceeds, either way, with a chance <= `failure`.

    Notes
    -----
    The noise is a sum of independent discrete Laplace noise with weights of at most 1, or Gaussian. For variance v the
    moment generating function of all of them at x is at most ``1 / (1 - v (cosh(x) - 1))``, as for discrete Laplace
    noise: ``(cosh(w x) - 1) / w^2`` grows in w, products of ``1 - a_i`` are at least ``1 - sum a_i``, and ``exp(v x^2 /
    2)`` is at most ``1 / (1 - v x^2 / 2)``. Chernoff's bound holds for every x, so a grid is enough.
    """
    if deviation <= 0:
        return 0.0
    variance = deviation * deviation
    at = 2 * math.asinh(math.sqrt(0.5) / deviation) * np.linspace(0.002, 0.998, 499)
    denominator = 1 - variance * 2 * np.square(np.sinh(at / 2))
    return float(np.min((math.log(2 / failure) - np.log(np.maximum(denominator, np.finfo(float).tiny))) / at))


def _rate_band(counts: Doubles, reaches: Doubles) -> tuple[Doubles, Doubles]:
    """Return the least and the largest rates at infinity and all thresholds, from counts and their reaches."""
    low = np.maximum.accumulate(np.maximum(counts - reaches, 0.0))
    high = np.minimum.accumulate((counts + reaches)[::-1])[::-1]
    least = low / high[-1] if high[-1] > 0 else np.zeros_like(low)
    most = np.clip(high / low[-1], 0.0, 1.0) if low[-1] > 0 else np.ones_like(high)
    least, most = np.minimum(least, 1.0), np.maximum(most, 0.0)
    least[-1] = most[-1] = 1.0
    return np.concatenate([[0.0], least]), np.concatenate([[0.0], most])


def _steps(false: Doubles, true: Doubles) -> float:
    """Return the area above and by steps: the sum of ``(T_i - T_(i-1)) (1 - F_i)``."""
    return math.fsum((np.diff(true) * (1.0 - false)).tolist())


def interval(result: ScaledArea) -> tuple[float, float]:
    """Return an interval that holds the area of these rows with a chance of at least 95 %.

    If no area is within reach of the noisy numbers, noise is beyond its reach and the interval is [0, 1].

    Notes
    -----
    With ``g(x, y) = 2 x y / (x + y - 1)`` an area of 1/2 + a means ``T = a g(x, y)``. For exact counts x and y the
    noisy T differs from a times the tangent plane of g at (x, y), at the noisy counts, by the noise of T less a times
    the slopes times the noise of the counts: a sum of known law. An a is compatible if this difference is within the
    sum's 4.5 % quantile, at one of the (x, y) of a box that holds the counts except with a chance of .5 %. The code
    searches a grid of that box. If all of the box says that a class has no row, no (x, y) of it has a tangent plane.
    """
    if "fineness" not in result:
        return _boxed(result)
    reach = _area_noise(result, np.array([[0.0, 1.0]]), _OF_COUNTS / 2)[0]
    if min(result["positives"], result["negatives"]) + reach < 1.0:
        return _boxed(result)
    sides = [np.maximum(1.0, result[count] + reach * np.linspace(-1.0, 1.0, 3)) for count in ("positives", "negatives")]
    x, y = (part.ravel() for part in np.meshgrid(*sides))
    others = x + y - 1
    slopes = 2 * y * (y - 1) / others**2, 2 * x * (x - 1) / others**2
    height = 2 * x * y / others
    height += slopes[0] * (result["positives"] - x) + slopes[1] * (result["negatives"] - y)
    nodes = np.linspace(-0.5, 0.5, _NODES)
    weights = np.stack(np.broadcast_arrays(1.0, *(np.abs(nodes[:, np.newaxis]) * slope for slope in slopes)), axis=-1)
    table, columns = _area_noise(result, weights, 0.05 - _OF_COUNTS), np.arange(len(x))

    def quantile(shift: Doubles) -> Doubles:
        index = np.clip(((shift + 0.5) * (_NODES - 1)).astype(np.intp), 0, _NODES - 2)
        way = (shift + 0.5) * (_NODES - 1) - index
        quantiles: Doubles = table[index, columns] * (1 - way) + table[index + 1, columns] * way
        return quantiles

    ends = np.full_like(x, -0.5), np.full_like(x, 0.5)
    low, high = compatible(lambda shift: result["concordance"] - shift * height, quantile, *ends)
    if np.isnan(low).all():
        return _boxed(result)
    return _clipped(0.5 + float(np.nanmin(low))), _clipped(0.5 + float(np.nanmax(high)))


def _area_noise(result: ScaledArea, weights: Doubles, tail: float) -> Doubles:
    """Return a reach that noise of forms of T and counts exceeds with chance `tail`; shape (…, numbers)."""
    of = np.minimum(np.arange(weights.shape[-1]), 1)
    steps: Doubles = weights @ np.array(result["fineness"])[of]
    if "laplace" in result:
        return laplace_quantile(weights * np.array(result["laplace"])[of], tail) + steps
    errors = np.array([result["concordance_error"], result["count_error"]])[of]
    quantiles: Doubles = -NormalDist().inv_cdf(tail / 2) * np.sqrt(((weights * errors) ** 2).sum(axis=-1)) + steps
    return quantiles


def _boxed(result: ScaledArea) -> tuple[float, float]:
    """Return the ends of the area over a box that holds all three numbers with a chance of at least 95 %."""
    fewest, most = (
        [max(1.0, result[count] + side * result["count_reach"]) for count in ("positives", "negatives")]
        for side in (-1, 1)
    )
    low, high = (result["concordance"] + side * result["concordance_reach"] for side in (-1, 1))
    lower = 0.5 + low * per_concordance(*(most if low > 0 else fewest))
    upper = 0.5 + high * per_concordance(*(fewest if high > 0 else most))
    return (0.0, 1.0) if lower > 1.0 or upper < 0.0 else (_clipped(lower), _clipped(upper))


def point(result: ScaledArea, ends: tuple[float, float]) -> float:
    """Return the estimated area; it is in the interval with the given ends.

    Noise may carry the estimate out of [0, 1]. Then the end of [0, 1] would claim a perfect score. The middle of the
    interval is closer to the truth, since noise explains all of the interval.
    """
    raw = 0.5 + result["concordance"] * per_concordance(*_counts(result))
    lower, upper = ends
    return raw if 0.0 <= raw <= 1.0 and lower <= raw <= upper else (lower + upper) / 2


def standard_error(result: ScaledArea) -> float:
    """Return the standard deviation of the noise in the area, to first order in the noise of the three numbers."""
    x, y = _counts(result)
    slope = result["concordance"]
    by_count = (slope * (y - 1) / (2 * x * x * y), slope * (x - 1) / (2 * y * y * x))
    noise = (
        per_concordance(x, y) * result["concordance_error"],
        *(by * result["count_error"] for by in by_count),
    )
    return math.hypot(*noise)


def _counts(result: ScaledArea) -> tuple[float, float]:
    return max(1.0, result["positives"]), max(1.0, result["negatives"])


def per_concordance(positives: float, negatives: float) -> float:
    """Return h; counts are at least 1."""
    return (1 / positives + 1 / negatives - 1 / positives / negatives) / 2


def _judged(area: float, error: float | None, lower: float, upper: float) -> Mapping[str, Json]:
    """Return the row of an area and its interval, without the area if the interval is [0, 1]."""
    if (lower, upper) == (0.0, 1.0):
        return _row(None, None, lower, upper, UNDETERMINED)
    return _row(area, error, lower, upper, UNCLEAR if lower <= 0.5 <= upper else CLEAR)


def _clipped(area: float) -> float:
    return min(1.0, max(0.0, area))


def _row(
    area: float | None, error: float | None, lower: float | None, upper: float | None, verdict: str
) -> Mapping[str, Json]:
    return {"auc": area, "std_error": error, "lower": lower, "upper": upper, "verdict": verdict}
