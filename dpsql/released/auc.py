"""The area under the ROC curve from a noisy concordance and two noisy counts: post-processing, so it costs no privacy.

With x positive and y negative rows the area is ``1/2 + T h(x, y)``, ``h = (x + y - 1) / (2 x y) = (1/x + 1/y - 1/(x y))
/ 2``, which falls in x and in y from 1 on. T and both counts are within their reach but for a chance of 5 % together;
so the ends of the area over that box are an exact interval. It is about these rows: it accounts for noise, not for the
sampling of the rows. With no row in a class T is 0 and the area 1/2.

==============  ====================================================
verdict         meaning
==============  ====================================================
clear           the interval excludes 1/2
unclear         it does not: noise of this size explains a difference
undetermined    it is all of [0, 1], and there is no area
not measured    the noise is not known (``method := 'smooth'``)
==============  ====================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dpsql.contract.json import Json
from dpsql.contract.verdicts import CLEAR, NOT_MEASURED, UNCLEAR, UNDETERMINED
from dpsql.released.results import Area, ScaledArea

# Chance that one of three noisy numbers is out of its reach.
FAILURE = Fraction(1, 60)


def area_rows(result: Area | ScaledArea) -> list[Mapping[str, Json]]:
    """Return the one row of a stored result."""
    if "auc" in result:
        known: Any = result
        return [_row(known["auc"], None, None, None, NOT_MEASURED)]
    lower, upper = interval(result)
    if (lower, upper) == (0.0, 1.0):
        return [_row(None, None, lower, upper, UNDETERMINED)]
    verdict = UNCLEAR if lower <= 0.5 <= upper else CLEAR
    return [_row(point(result), standard_error(result), lower, upper, verdict)]


def interval(result: ScaledArea) -> tuple[float, float]:
    """Return an interval that holds the area of these rows with a chance of at least 95 %."""
    fewest, most = (
        [max(1.0, result[count] + side * result["count_reach"]) for count in ("positives", "negatives")]
        for side in (-1, 1)
    )
    low, high = (result["concordance"] + side * result["concordance_reach"] for side in (-1, 1))
    lower = 0.5 + low * _per_concordance(*(most if low > 0 else fewest))
    upper = 0.5 + high * _per_concordance(*(fewest if high > 0 else most))
    return _clipped(lower), _clipped(upper)


def point(result: ScaledArea) -> float:
    """Return the area that the noisy numbers stand for; it is in the interval."""
    return _clipped(0.5 + result["concordance"] * _per_concordance(*_counts(result)))


def standard_error(result: ScaledArea) -> float:
    """Return the standard deviation of the noise in the area, to first order in the noise of the three numbers."""
    x, y = _counts(result)
    slope = result["concordance"]
    by_count = (slope * (y - 1) / (2 * x * x * y), slope * (x - 1) / (2 * y * y * x))
    noise = (
        _per_concordance(x, y) * result["concordance_error"],
        *(by * result["count_error"] for by in by_count),
    )
    return math.hypot(*noise)


def _counts(result: ScaledArea) -> tuple[float, float]:
    return max(1.0, result["positives"]), max(1.0, result["negatives"])


def _per_concordance(positives: float, negatives: float) -> float:
    """Return h; counts are at least 1."""
    return (1 / positives + 1 / negatives - 1 / positives / negatives) / 2


def _clipped(area: float) -> float:
    return min(1.0, max(0.0, area))


def _row(
    area: float | None, error: float | None, lower: float | None, upper: float | None, verdict: str
) -> Mapping[str, Json]:
    return {"auc": area, "std_error": error, "lower": lower, "upper": upper, "verdict": verdict}
