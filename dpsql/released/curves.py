"""Compute ROC, precision-recall and calibration curves from noisy cumulative counts, at no privacy cost.

A released curve is one record of noisy numbers: how many positive and negative rows score at least each threshold. All
curves use its consistent version: isotonic regression makes counts ascend as thresholds descend, negative counts become
0, and the last counts are the totals.

Weights of the regression are one over the variance of the noise, which is public. On spam and sentiment scores isotonic
regression was closer to the true curve than the projection onto non-negative counts with the same total.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from dpsql.arrays import Doubles
from dpsql.contract.covers import CLEAR, UNCLEAR, UNDETERMINED
from dpsql.contract.json import Json
from dpsql.dataclass import dataclass
from dpsql.released.intervals import FAILURE, count_reach
from dpsql.released.results import Bin, ConfusionRow, Curve, PrecisionRow, RocRow


@dataclass(frozen=True)
class RocCounts:
    """Noisy cumulative counts of a released curve.

    Attributes
    ----------
    thresholds : tuple of float, length m
        Strictly descending; the last one is the lower bound of the scores. Threshold t means ``score >= t``.
    positives, negatives : tuple of float, length m
        Noisy number of rows of either class with ``score >= t``; the last one is the total. Not consistent yet.
    std_error : tuple of float, length m
        Standard deviation of the noise in each, in rows; the same for both classes.
    covariance : tuple of float, length m
        Covariance of the noise in each with the noise in the total of its class.
    upper : float
        Upper bound of the scores.
    """

    thresholds: tuple[float, ...]
    positives: tuple[float, ...]
    negatives: tuple[float, ...]
    std_error: tuple[float, ...]
    covariance: tuple[float, ...]
    upper: float

    @classmethod
    def from_record(cls, record: Curve) -> RocCounts:
        """Read a record of `to_record`; ignore other fields."""
        return cls(
            thresholds=tuple(map(float, record["thresholds"])),
            positives=tuple(map(float, record["positives"])),
            negatives=tuple(map(float, record["negatives"])),
            std_error=tuple(map(float, record["std_error"])),
            covariance=tuple(map(float, record["covariance"])),
            upper=float(record["upper"]),
        )

    def to_record(self) -> dict[str, Json]:
        """Return the curve as JSON values."""
        return {
            "thresholds": list(self.thresholds),
            "positives": list(self.positives),
            "negatives": list(self.negatives),
            "std_error": list(self.std_error),
            "covariance": list(self.covariance),
            "upper": self.upper,
        }

    @cached_property
    def consistent(self) -> tuple[Doubles, Doubles]:
        """Positives and negatives, each of shape (m,): not descending and not negative."""
        return consistent(self.positives, self.std_error), consistent(self.negatives, self.std_error)

    @cached_property
    def rates(self) -> tuple[Doubles, Doubles]:
        """False and true positive rate at each threshold, each of shape (m,), in [0, 1]; the last ones are 1.

        If noise has left a class without rows, both rates are the diagonal's.
        """
        positives, negatives = self.consistent
        if not (positives[-1] > 0 and negatives[-1] > 0):
            even = np.arange(1, len(positives) + 1) / len(positives)
            return even, even
        return negatives / negatives[-1], positives / positives[-1]


def consistent(sums: ArrayLike, std_error: ArrayLike) -> Doubles:
    """Return the closest cumulative counts that do not descend and are not negative.

    Parameters
    ----------
    sums : array_like of float, shape (m,)
        Noisy cumulative counts, m >= 1.
    std_error : array_like of float, shape (m,)
        Their standard errors, all > 0 or all 0; public.
    """
    errors = np.asarray(std_error, dtype=np.float64)
    weights = np.square(errors.min() / errors) if errors.min() > 0 else np.ones(len(errors))
    # Pool adjacent violators: blocks of mean, weight and length whose means ascend. Curves are short, and importing a
    # library would take longer.
    blocks: list[tuple[float, float, int]] = []
    for mean, weight in zip(np.asarray(sums, dtype=np.float64).tolist(), weights.tolist(), strict=True):
        length = 1
        while blocks and blocks[-1][0] >= mean:
            before, share, count = blocks.pop()
            mean = (before * share + mean * weight) / (share + weight)
            weight, length = share + weight, count + length
        blocks.append((mean, weight, length))
    fitted = np.repeat([mean for mean, _, _ in blocks], [length for _, _, length in blocks])
    return np.asarray(np.maximum(fitted, 0.0), dtype=np.float64)


def roc_rows(result: Curve) -> list[RocRow]:
    """Return the ROC curve of a stored result, as rows of threshold, fpr (false positive rate) and tpr.

    The first row is ``(inf, 0, 0)``, the last one is ``(lower bound, 1, 1)``, both without noise; thresholds descend,
    rates do not. Standard errors come from `rate_errors`; they are None if noise has left a class without rows.
    """
    curve = RocCounts.from_record(result)
    fpr, tpr = (part.tolist() for part in curve.rates)
    errors = [np.where(np.isfinite(part), part, np.nan).tolist() for part in rate_errors(curve)]
    false_errors, true_errors = ([0.0, *part[:-1], 0.0] for part in errors)
    verdicts = rate_verdicts(curve)
    columns = (
        (math.inf, *curve.thresholds),
        (0.0, *fpr),
        (0.0, *tpr),
        false_errors,
        true_errors,
        (verdicts[-1], *verdicts),
    )
    return [
        {
            "threshold": threshold,
            "fpr": false,
            "tpr": true,
            "fpr_std_error": _or_none(false_error),
            "tpr_std_error": _or_none(true_error),
            "verdict": verdict,
        }
        for threshold, false, true, false_error, true_error, verdict in zip(*columns, strict=True)
    ]


def rate_verdicts(curve: RocCounts) -> list[str]:
    """Return at each threshold whether the rates of the two classes differ, whatever the noise was.

    Four noisy counts determine the two rates, and all are within reach except with a chance of 5 %. Over that box the
    rates are in two intervals; the rates clearly differ if the intervals have no point in common.
    """
    reaches = [count_reach(error, FAILURE / 4) for error in curve.std_error]
    verdicts = []
    for positives, negatives, reach in zip(curve.positives, curve.negatives, reaches, strict=True):
        sides = [
            _rate_interval(part, total, reach, reaches[-1])
            for part, total in ((positives, curve.positives[-1]), (negatives, curve.negatives[-1]))
        ]
        (least, most), (low, high) = sides
        verdicts.append(CLEAR if least > high or low > most else UNCLEAR)
    if not all(part[-1] > 0 for part in curve.consistent):
        return [UNDETERMINED] * len(verdicts)
    # At the lower bound both rates are 1, which says nothing about the classes.
    return [*verdicts[:-1], UNCLEAR]


def _rate_interval(part: float, total: float, reach: float, total_reach: float) -> tuple[float, float]:
    """Return the least and the largest rate in a box of two counts."""
    fewest, most = total - total_reach, total + total_reach
    low = max(0.0, part - reach) / most if most > 0 else 0.0
    return min(1.0, low), min(1.0, max(0.0, part + reach) / fewest) if fewest > 0 else 1.0


def _or_none(error: float) -> float | None:
    return None if math.isnan(error) else error


def precision_recall(result: Curve) -> list[PrecisionRow]:
    """Return rows of threshold, precision and recall of a stored curve, thresholds descending.

    Precision is None if no row scores that much.
    """
    curve = RocCounts.from_record(result)
    positives, negatives = (part.tolist() for part in curve.consistent)
    columns = zip(curve.thresholds, positives, negatives, curve.rates[1].tolist(), strict=True)
    return [
        {"threshold": threshold, "precision": _share(hits, hits + alarms), "recall": recall}
        for threshold, hits, alarms, recall in columns
    ]


def calibration(result: Curve) -> list[Bin]:
    """Return bins of a stored curve: lower, upper, mean_score, positive_rate and rows; scores ascending.

    A bin lies between two consecutive thresholds. The mean score is the middle of the bin: the release does not contain
    the scores. The rate of a bin without rows is None.
    """
    curve = RocCounts.from_record(result)
    positives, negatives = (np.diff(part, prepend=0.0).tolist() for part in curve.consistent)
    columns = zip(curve.thresholds, (curve.upper, *curve.thresholds[:-1]), positives, negatives, strict=True)
    return [
        {
            "lower": lower,
            "upper": upper,
            "mean_score": lower / 2 + upper / 2,
            "positive_rate": _share(hits, hits + alarms),
            "rows": hits + alarms,
        }
        for lower, upper, hits, alarms in reversed(list(columns))
    ]


def confusion_rows(result: Curve) -> list[ConfusionRow]:
    """Return the confusion matrix at every threshold of a stored curve but the lower bound; thresholds ascend.

    Counts are in rows and not negative; positives have one total at all thresholds, and so have negatives. The standard
    error covers the noise in the number of positives, or of negatives, from the threshold on. A share of nothing is
    None. Verdicts come from `rate_verdicts`.
    """
    curve = RocCounts.from_record(result)
    positives, negatives = (part.tolist() for part in curve.consistent)
    rows: list[ConfusionRow] = []
    verdicts = rate_verdicts(curve)
    parts = (curve.thresholds, positives, negatives, curve.std_error, verdicts)
    for threshold, hits, alarms, error, verdict in list(zip(*parts, strict=True))[:-1]:
        missed, rejected = positives[-1] - hits, negatives[-1] - alarms
        rows.append(
            {
                "threshold": threshold,
                "true_positives": hits,
                "false_positives": alarms,
                "false_negatives": missed,
                "true_negatives": rejected,
                "accuracy": _share(hits + rejected, positives[-1] + negatives[-1]),
                "precision": _share(hits, hits + alarms),
                "recall": _share(hits, positives[-1]),
                "f1": _share(2 * hits, 2 * hits + alarms + missed),
                "std_error": error,
                "verdict": verdict,
            }
        )
    return rows[::-1]


def rate_errors(curve: RocCounts) -> tuple[Doubles, Doubles]:
    """Return the standard errors of false and true positive rate at each threshold, each of shape (m,).

    They measure how far the noise of the release moves a rate, to first order (a rate is a ratio of two noisy counts),
    before rates are made consistent, which reduces the noise. They do not cover other rows. They are infinite if noise
    has left a class without rows.
    """
    errors, shared = np.array(curve.std_error), np.array(curve.covariance)
    deviations = []
    for rate, total in zip(curve.rates, (part[-1] for part in curve.consistent[::-1]), strict=True):
        variance = np.square(errors) + np.square(rate * errors[-1]) - 2 * rate * shared
        with np.errstate(over="ignore"):
            deviations.append(np.sqrt(np.maximum(variance, 0.0)) / total if total > 0 else np.full(len(errors), np.inf))
    return deviations[0], deviations[1]


def area_under(fpr: ArrayLike, tpr: ArrayLike) -> float:
    """Return the area under a curve of straight lines between points; both shapes (k,), fpr not descending."""
    return float(np.trapezoid(np.asarray(tpr, dtype=np.float64), np.asarray(fpr, dtype=np.float64)))


def area_between(curve: tuple[ArrayLike, ArrayLike], other: tuple[ArrayLike, ArrayLike]) -> float:
    """Return the area between two curves of straight lines between points.

    Parameters
    ----------
    curve, other : pair of array_like of float, shape (k,)
        False and true positive rates, from (0, 0) to (1, 1), neither descending. A curve may rise at one fpr.

    Returns
    -------
    area : float
        In [0, 1]: the integral over fpr of the distance of the curves.
    """
    curves = [tuple(np.asarray(part, dtype=np.float64) for part in points) for points in (curve, other)]
    cuts = np.unique(np.concatenate([fpr for fpr, _ in curves]))
    start, end = cuts[:-1], cuts[1:]
    ends = []
    for fpr, tpr in curves:
        # A curve is one line between two cuts, from its last point at or before the first.
        at = np.searchsorted(fpr, start, side="right") - 1
        slope = (tpr[at + 1] - tpr[at]) / (fpr[at + 1] - fpr[at])
        ends.append((tpr[at] + slope * (start - fpr[at]), tpr[at] + slope * (end - fpr[at])))
    first, last = ends[0][0] - ends[1][0], ends[0][1] - ends[1][1]
    total = np.abs(first) + np.abs(last)
    # Two triangles if the lines cross, otherwise a trapezium.
    crossing = (np.square(first) + np.square(last)) / np.where(total > 0, total, 1.0)
    height = np.where(first * last < 0, crossing, total) / 2
    return float(np.sum(height * (end - start)))


def _share(part: float, total: float) -> float | None:
    return part / total if total > 0 else None
