"""Compute the verdict of each row of a release from released numbers and public noise, at no privacy cost.

A row is `clear` if noise alone explains its claim with a chance of at most 5 %, or one less the confidence of the call.
The claim is about that row, and can fail: if a result has many rows, some are `clear` by chance unless the table says
that the claim holds for all rows at once. `dpsql.contract.covers` defines the words; the first word that holds is the
verdict.

===================  ======================================================================================
rows                 claim
===================  ======================================================================================
counts, sums,        the interval excludes 0
deviations
means, quantiles     the interval is at most half as wide as the public interval before (`is_narrowed`)
bins, cells          the interval excludes 0: there are rows
covariances,         the interval excludes 0
correlations
metrics              the interval excludes 0
coefficients         not 0: farther from 0 than noise of all features at once moves one of them
scores               above the threshold, or above 0: for all compared features at once
curve, confusion     the rates of the two classes differ at this threshold
area                 the interval excludes 1/2
===================  ======================================================================================

A stored curve has the standard deviation s of its noise, but not its law: Laplace, Gaussian, or a sum of many. For a
sum of weights w, ``|w| <= 1``, times independent discrete Laplace noise of variances v the moment generating function
is the product of ``1 / (1 - v (cosh(w t) - 1))``, which is at most ``1 / (1 - s**2 (cosh(t) - 1))``, since ``cosh(w t)
- 1 <= w**2 (cosh(t) - 1)``. The function of Gaussian noise is below it, as ``exp(x) <= 1 / (1 - x)``. So Chernoff's
bound with it holds for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.contract.covers import BIASED, CLEAR, DIFFERS, NO_EVIDENCE, NOT_MEASURED, UNCLEAR, UNDETERMINED

# Chance that a row is clear by noise alone, if the call gives no other.
FAILURE = 0.05
# Noise of a smaller standard deviation is 0: counts are whole, or noise has many bits.
_NO_NOISE = 1e-150
# Rates of Chernoff's bound, as shares of the largest one.
_RATES = np.linspace(0.02, 0.999, 200)


def interval_verdict(value: float | None, lower: float | None, upper: float | None, null: float = 0.0) -> str:
    """Return whether the interval of a number excludes `null`; an end that is None is not known."""
    if value is None:
        return UNDETERMINED
    if lower is None and upper is None:
        return NOT_MEASURED
    return CLEAR if (lower is not None and lower > null) or (upper is not None and upper < null) else UNCLEAR


def interval_verdicts(
    value: Doubles,
    lower: Doubles,
    upper: Doubles,
    biased: NDArray[np.bool_] | None = None,
    width: Doubles | float = math.nan,
) -> pa.Array:
    """Return the verdicts of many numbers, with NaN for None: the first word that holds, as in the module's text.

    Parameters
    ----------
    value, lower, upper : ndarray of float64
    biased : ndarray of bool, optional
        Where row limits dropped too much (`dpsql.released.aggregates`).
    width : ndarray of float64, or float
        For means: the width of the public interval before. NaN for numbers that claim not to be 0.
    """
    words = np.full(np.shape(value), UNCLEAR, dtype=object)
    words[np.isnan(lower) & np.isnan(upper)] = NOT_MEASURED
    words[is_narrowed(lower, upper, width) | (np.isnan(width) & ((lower > 0.0) | (upper < 0.0)))] = CLEAR
    if biased is not None:
        words[biased] = BIASED
    words[np.isnan(value)] = UNDETERMINED
    return pa.array(words.ravel(), type=pa.string())


def is_narrowed(lower: Doubles, upper: Doubles, width: Doubles | float) -> NDArray[np.bool_]:
    """Return where an interval is at most half as wide as the public one before; False at NaN."""
    return np.asarray(upper - lower <= np.multiply(width, 0.5), dtype=np.bool_)


def coefficient_verdicts(
    terms: Sequence[str],
    values: Sequence[float],
    errors: Sequence[float | None],
    undetermined: Iterable[str] = (),
    unclear: Iterable[str] = (),
) -> list[str]:
    """Return whether each coefficient differs from 0, for all features at once but for a chance of 5 %.

    Parameters
    ----------
    terms : sequence of str
        The intercept first.
    values : sequence of float
    errors : sequence of float or None
        Standard deviation of the noise in each, to first order; None if it is not known.
    undetermined : iterable of str
        Terms to which the mechanism has no answer.
    unclear : iterable of str
        Terms that are unclear at best, whatever their errors.
    """
    away = NormalDist().inv_cdf(1 - FAILURE / (2 * max(1, len(terms) - 1)))
    unknown, doubted = set(undetermined), set(unclear)
    return [
        UNDETERMINED
        if term in unknown
        else UNCLEAR
        if term in doubted
        else NOT_MEASURED
        if error is None
        else (CLEAR if abs(value) > away * error else UNCLEAR)
        for term, value, error in zip(terms, values, errors, strict=True)
    ]


def score_reach(error: float, compared: int) -> float:
    """Return how far noise moves any of the compared scores, except with a chance of 5 %.

    A score is one noisy number, or the larger of two, each with noise of that standard deviation.
    """
    return count_reach(error, FAILURE / (2 * max(1, compared)))


@lru_cache(maxsize=1024)
def count_reach(deviation: float, failure: float) -> float:
    """Return a reach that the noise of a count, or of a sum of counts, exceeds with a chance <= `failure`.

    Parameters
    ----------
    deviation : float
        Standard deviation of the noise, in rows; 0 for none.
    failure : float
        In (0, 1).
    """
    if deviation < _NO_NOISE:
        return 0.0
    # s**2 (cosh(t) - 1) is 2 (s sinh(t / 2))**2, and 1 at the largest rate.
    rates = _RATES * 2 * math.asinh(1 / (math.sqrt(2) * deviation))
    logs = -np.log1p(-2 * np.square(deviation * np.sinh(rates / 2)))
    return float(((math.log(2 / failure) + logs) / rates).min())


def call_verdict(*columns: Iterable[str | None]) -> str | None:
    """Return the verdict of a call from its rows' verdicts: clear only if every row is, else the first doubt.

    The first column with a word counts; None if no column has one.
    """
    words = ({word for word in column if word is not None} for column in columns)
    verdicts = next(filter(None, words), None)
    if verdicts is None:
        return None
    order = (BIASED, UNCLEAR, NO_EVIDENCE, UNDETERMINED, NOT_MEASURED, CLEAR, DIFFERS)
    return next((word for word in order if word in verdicts), UNDETERMINED)
