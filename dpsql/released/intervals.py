"""Intervals from the public law of the noise: all true values that are compatible with the noisy sums of a block.

The noise of a block has one known law on every coordinate, independent or the law of a cube. A linear form of the
coordinates therefore has noise of a known law, too, and `noise_quantile` gives its quantile. A value is compatible with
the noisy sums if a form that is 0 at the true value is within its quantile (Fieller 1954). For the mean m this form is
``sum(z) - m n``; for the variance V, ``sum((z - m)**2) - V n``, for any mean that is itself compatible. So the coverage
holds at every number of rows, also if the noisy count is near 0; the interval may then be all of the bounds.

Sums of values are in units of half the interval of the bounds, from its middle: z in [-1, 1].

**Bounds.** The rows of private bounds: post-processing, so it costs no privacy.

==============  ==================================================================================================
verdict         meaning
==============  ==================================================================================================
clear           more than half of the rows with a value lie inside, and the interval did not start beyond all rows:
                each except for a chance of `failure` (`dpsql.mechanisms.interval_scan`)
undetermined    there are too few rows for that, and no bounds
not measured    bounds of a version that did not count rows
==============  ==================================================================================================

**Verdicts.** The verdict of each row follows from released numbers and public noise, at no privacy cost.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Doubles, from_values
from dpsql.contract.covers import BIASED, CLEAR, DIFFERS, NO_EVIDENCE, NOT_MEASURED, UNCLEAR, UNDETERMINED
from dpsql.contract.json import Json
from dpsql.mechanisms.aggregates import Lattice, NoisyBlock
from dpsql.mechanisms.interval_scan import PrivateInterval, Tail
from dpsql.statistics.aggregates import CUBE, LAPLACE, Block, Words

Interval = tuple[Doubles, Doubles]

# Nodes of the quantile tables, over the mean, and over the variance as a share of the largest variance at that mean.
# Multiples of 1/2 are among them: there the weights of two variables are equal, or one is 0.
_MEAN_NODES = np.linspace(-1.0, 1.0, 1025)
_ROUGH_MEAN_NODES = np.linspace(-1.0, 1.0, 129)
_SHARE_NODES = np.linspace(0.0, 1.0, 65)
# Between nodes of the mean, a quantile may be above the chord by a share of a thousandth.
_ABOVE_CHORD = 1.001
# Steps of the search for an end until it is final: with half of them a processor's rounding decides the fifth digit.
_STEPS = 12
# Laplace variables whose weights are this close are treated as this far apart, with the larger one raised.
_GAP = 1e-4
# Means for the search of the range of a variance, as shares of their interval; and groups at a time.
_MEANS = np.linspace(0.0, 1.0, 5)
_CHUNK = 1 << 12
# Share of a variance interval's failures that goes to the mean, and the same share to the count.
_PART = 0.1

Function = Callable[[Doubles], Doubles]
# A position, and the excess of the form over the quantile there.
_Point = tuple[Doubles, Doubles]
# Weights of coordinates of noise of a cube are no smaller than this share of the largest one.
_LEAST_WEIGHT = 1e-2
# Distribution functions are inverted for tails down to this.
_LEAST_TAIL = 1e-4


def noise_quantile(noisy: NoisyBlock, weights: Doubles, tail: float) -> Doubles:
    """Return x such that the absolute noise of a linear form of the coordinates exceeds x with probability `tail`.

    Parameters
    ----------
    noisy : NoisyBlock
    weights : ndarray of float64, shape (…, size)
        Weights of the form.
    tail : float
        In (0, 1).

    Returns
    -------
    quantile : ndarray of float64, shape (…)
        Never too small. Noise that is counted in rows or in codes gets the least sufficient integer. Elsewhere a step
        of the lattice per coordinate makes up for discrete noise, and half a step for rounded sums: discrete Laplace
        noise is ``floor(X) - floor(Y)``, and Laplace noise is ``X - Y``.
    """
    size = np.abs(weights)
    if noisy.lattice.noise == CUBE:
        steps: Doubles = 1.5 * noisy.step * size.sum(axis=-1)
        return noisy.scale * cube_quantile(size, noisy.lattice.together, tail) + steps
    if noisy.lattice.noise != LAPLACE:
        sigma: Doubles = noisy.scale * np.sqrt((size**2).sum(axis=-1))
        return -NormalDist().inv_cdf(tail / 2.0) * sigma
    if noisy.block.size == 1 and noisy.lattice.bits == 0:
        scale = float(noisy.lattice.spread)
        # P(noise > k or noise < -k) is 2 a**(k + 1) / (1 + a) with a = exp(-1 / scale).
        enough = math.ceil(scale * (math.log(2.0 / tail) - math.log1p(math.exp(-1.0 / scale)))) - 1
        quantile: Doubles = size[..., 0] * (noisy.step * max(0, enough))
        return quantile
    rounding: Doubles = 1.5 * noisy.step * size.sum(axis=-1)
    return noisy.scale * laplace_quantile(size, tail) + rounding


def laplace_quantile(weights: Doubles, tail: float) -> Doubles:
    """Return the quantile of the absolute value of a weighted sum of standard Laplace variables; never too small.

    Parameters
    ----------
    weights : ndarray of float64, shape (…, k)
        >= 0, one of them > 0 in every row.
    tail : float
        Probability of a larger value, in (0, 1).

    Notes
    -----
    With different weights w the probability of more than x is the sum over i of ``c_i exp(-x / w_i)``, where ``c_i`` is
    the product of ``w_i**2 / (w_i**2 - w_j**2)`` over all other j. A larger weight gives a larger probability, because
    the variables are symmetric and unimodal; so almost equal weights are moved apart upwards.
    """
    apart = np.sort(weights.astype(np.float64), axis=-1, kind="stable")
    apart[..., 0] = np.maximum(apart[..., 0], 1e-6 * apart[..., -1])
    for i in range(1, apart.shape[-1]):
        apart[..., i] = np.maximum(apart[..., i], apart[..., i - 1] * (1.0 + _GAP))
    squares = apart**2
    factors = np.ones_like(apart)
    for i in range(apart.shape[-1]):
        for j in range(apart.shape[-1]):
            if i != j:
                factors[..., i] *= squares[..., i] / (squares[..., i] - squares[..., j])
    low = np.zeros(apart.shape[:-1])
    high: Doubles = apart.sum(axis=-1) * math.log(apart.shape[-1] / tail)  # a bound for each variable alone
    for _ in range(60):
        middle = (low + high) / 2.0
        above = (factors * np.exp(-middle[..., np.newaxis] / apart)).sum(axis=-1) > tail
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return high


def cube_quantile(weights: Doubles, together: int, tail: float) -> Doubles:
    """Return the quantile of the absolute value of a weighted sum of coordinates of noise of a cube; never too small.

    Parameters
    ----------
    weights : ndarray of float64, shape (…, k)
        >= 0, of k of the coordinates, k at most `together`; one of them > 0 in every row.
    together : int
        Coordinates of the whole vector, d; its scale is 1.
    tail : float
        Probability of a larger value, in (0, 1).

    Notes
    -----
    The coordinates are a radius of Gamma law, of d + 1, times independent uniform variables. A weighted sum of k of
    these has a density that is a piecewise polynomial: with ``a = sum of e_i w_i`` over all signs e, the probability of
    more than x in one direction is the sum over all e with a > 0 and a r > x of ``sign(e) (a r - x)**k``, over
    ``k! r**k`` times the product of all ``2 w_i``. Its mean over r is, with ``y = x / a``, the sum of
    ``sign(e) a**k exp(-y)`` times the sum over i of ``binomial(d - k, i) y**i (d - i)! / d!``. A larger weight gives a
    larger probability, because the variables are symmetric and unimodal; so no weight stays much smaller than the
    largest.
    """
    used = weights.astype(np.float64)
    count = used.shape[-1]
    used = np.maximum(used, _LEAST_WEIGHT * used.max(axis=-1, keepdims=True))
    signs = np.array(list(product((-1.0, 1.0), repeat=count)))
    ends = used @ signs.T
    factors = 2.0 * signs.prod(axis=1) * np.maximum(ends, 0.0) ** count
    factors /= math.factorial(count) * (2.0 * used).prod(axis=-1, keepdims=True)
    powers = range(together - count + 1)
    terms = [math.comb(together - count, i) / math.perm(together, i) for i in powers]
    over = np.where(ends > 0.0, ends, np.inf)
    low = np.zeros(used.shape[:-1])
    high: Doubles = used.sum(axis=-1) * (2.0 * together + 6.0 + 4.0 * math.log(1.0 / tail))
    for _ in range(50):
        middle = (low + high) / 2.0
        y = middle[..., np.newaxis] / over
        chance = (factors * np.exp(-y) * np.polynomial.polynomial.polyval(y, terms)).sum(axis=-1)
        low, high = np.where(chance > tail, middle, low), np.where(chance > tail, high, middle)
    return high


def combined_quantile(weights: Doubles, times: Doubles, tail: float) -> Doubles:
    """Return the quantile of the absolute value of sums of many Laplace variables, in standard deviations of each sum.

    Parameters
    ----------
    weights : ndarray of float64, shape (R, k)
        In row i, the weights of the variables of sum i.
    times : ndarray of float64, shape (R, k) or (k,)
        Number of variables with the weight.
    tail : float
        Probability of a larger value, in (0, 1).

    Notes
    -----
    The distribution function is inverted from the characteristic function, the product of ``1 / (1 + w**2 t**2)``, by
    the midpoint rule (Davies 1973). The rule's error is the probability of about 25 standard deviations, and the
    truncated part is below 1e-6. For smaller tails than 1e-4 the quantile is Chernoff's bound. Discrete noise is closer
    to 0 than Laplace noise of its scale.
    """
    deviation = np.sqrt(2.0 * (times * weights**2).sum(axis=-1, keepdims=True))
    nodes = (np.arange(600) + 0.5) * 0.25
    squares = (weights / deviation) ** 2
    many = np.broadcast_to(times, weights.shape)
    if tail < _LEAST_TAIL:
        return np.array([_chernoff(row, counts, tail) for row, counts in zip(squares, many, strict=True)])
    # Weights of one row at a time, so that the working array is small.
    logs = [np.log1p(np.outer(nodes**2, row)) @ counts for row, counts in zip(squares, many, strict=True)]
    factors = np.exp(-np.array(logs)) / (nodes / 0.25 * math.pi)
    low, high = np.zeros(len(weights)), np.full(len(weights), 12.0)
    for _ in range(40):
        middle = (low + high) / 2.0
        above = 1.0 - 2.0 * (np.sin(middle[:, np.newaxis] * nodes) * factors).sum(axis=1) > tail
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return high


def _chernoff(squares: Doubles, times: Doubles, tail: float) -> float:
    """Return a number that a sum of Laplace variables with these squared weights exceeds with chance `tail` at most."""
    rates = np.linspace(0.01, 0.99, 99) / math.sqrt(squares.max())
    logs = -np.log1p(-np.outer(rates**2, squares)) @ times
    return float(((math.log(2.0 / tail) + logs) / rates).min())


def compatible(form: Function, quantile: Function, low: Doubles, high: Doubles) -> Interval:
    """Return the hull of all x in [low, high] with ``abs(form(x)) <= quantile(x)``; NaN without any.

    Parameters
    ----------
    form : callable
        Linear in x.
    quantile : callable
        Nowhere below a convex function, for which the hull is correct. The quantile of a linear form is convex in its
        weights if the noise has a symmetric and log-concave density, as here (Meyer and Reisner 1991, Bobkov 2010).
    low, high : ndarray of float64
        Arguments of both callables, of the same shape.

    Notes
    -----
    A line less a convex function is concave, so the form is above the quantile in an interval, and below minus the
    quantile in another interval. The set is the rest of [low, high]: each of its ends is low, high, or the end of the
    interval that covers it. The search finds this end between a point outside and a point within, by a chord, which is
    below a concave function, and by the line through two points outside, which is above it beyond them. The search
    drops only points that are outside; chords between nodes, and a function above the quantile, drop even fewer.
    """

    def end(outer: Doubles, inner: Doubles) -> Doubles:
        sign = np.sign(form(outer))

        def excess(x: Doubles) -> Doubles:
            return sign * form(x) - quantile(x)

        out, within = (outer, excess(outer)), (inner, excess(inner))
        covered, empty = out[1] > 0.0, within[1] > 0.0
        for _ in range(_STEPS):
            before = out
            chord = _crossing(within, out, within)
            out, within = _narrowed(out, within, chord, excess(chord))
            beyond = _crossing(before, out, within)
            out, within = _narrowed(out, within, beyond, excess(beyond))
        return np.where(covered, np.where(empty, np.nan, out[0]), outer)

    return end(low, high), end(high, low)


def _crossing(first: _Point, second: _Point, limit: _Point) -> Doubles:
    """Return the zero of the line through two points, or the middle of the second and the limit if not between them."""
    with np.errstate(invalid="ignore", divide="ignore"):
        x = second[0] + second[1] * (second[0] - first[0]) / (first[1] - second[1])
    between = (x - second[0]) * (x - limit[0]) < 0.0
    return np.where(between, x, (second[0] + limit[0]) / 2.0)


def _narrowed(out: _Point, within: _Point, x: Doubles, excess: Doubles) -> tuple[_Point, _Point]:
    """Return the points with one of them replaced by x, which is outside where the excess is above 0."""
    beyond = excess > 0.0
    return (
        (np.where(beyond, x, out[0]), np.where(beyond, excess, out[1])),
        (np.where(beyond, within[0], x), np.where(beyond, within[1], excess)),
    )


def mean_interval(noisy: NoisyBlock, tail: float) -> Interval:
    """Return the means z that are compatible with the noisy sums; NaN if there are none."""
    rows, values = np.array(noisy.block.moments[:2])
    table = _mean_quantiles(noisy.block, noisy.lattice, tail)
    count, total = rows @ noisy.values, values @ noisy.values
    ends = np.full_like(count, -1.0), np.full_like(count, 1.0)
    return compatible(lambda z: total - z * count, lambda z: np.interp(z, _MEAN_NODES, table), *ends)


@lru_cache(maxsize=64, typed=True)
def _mean_quantiles(block: Block, lattice: Lattice, tail: float) -> Doubles:
    """Return the quantile of ``sum(z - m)`` by the nodes of m."""
    rows, values = np.array(block.moments[:2])
    nothing = NoisyBlock(block, lattice, Words(np.empty((block.size, 0), dtype=np.int64)))
    table = noise_quantile(nothing, values - _MEAN_NODES[:, np.newaxis] * rows, tail)
    table.setflags(write=False)
    return table


def variance_interval(noisy: NoisyBlock, tail: float, ddof: int) -> Interval:
    """Return the variances of z that are compatible with the noisy sums; NaN if there are none.

    A variance over ``n - ddof`` is at least the variance over n, and larger by a factor of at most ``n / (n - ddof)``
    for the smallest compatible count.
    """
    part = _PART * tail
    rest = tail - part - (part if ddof else 0.0)
    sums = np.array(noisy.block.moments) @ noisy.values
    means, table = np.stack(mean_interval(noisy, part)), _variance_quantiles(noisy, rest)
    chunks = [slice(begin, begin + _CHUNK) for begin in range(0, sums.shape[1], _CHUNK)]
    bounds = [_variances(sums[:, chunk], means[:, chunk], table) for chunk in chunks]
    low, high = np.concatenate([np.empty((2, 0)), *bounds], axis=1)
    one_sided = noise_quantile(noisy, np.array(noisy.block.moments[0]), 2.0 * part)
    rows = np.maximum(sums[0] - one_sided, ddof + 1)
    return low, high * (rows / (rows - ddof))


def _variance_quantiles(noisy: NoisyBlock, tail: float) -> Doubles:
    """Return the quantile of ``sum((z - m)**2) - V n`` by the nodes of m and of V."""
    rows, values, squares = np.array(noisy.block.moments)
    mean, share = _ROUGH_MEAN_NODES[:, np.newaxis, np.newaxis], _SHARE_NODES[:, np.newaxis]
    forms = squares - 2.0 * mean * values + (mean**2 - (1.0 - mean**2) * share) * rows
    return _ABOVE_CHORD * noise_quantile(noisy, forms, tail)


def _variances(sums: Doubles, means: Doubles, table: Doubles) -> Doubles:
    """Return the range of the variance over the compatible means, shape (2, G).

    The square about m exceeds the square about the best mean by ``n`` times its squared distance. So the range over all
    means is the range over a few with both ends, except for the square of half a step; the result allows twice this
    square.
    """
    count, total, square = (part[:, np.newaxis] for part in sums)
    mean = means[0][:, np.newaxis] + (means[1] - means[0])[:, np.newaxis] * _MEANS
    mean = np.where(np.isnan(mean), 0.0, mean)
    form, most = square - 2.0 * mean * total + mean**2 * count, 1.0 - mean**2
    node, above = _locate(mean, _ROUGH_MEAN_NODES)
    flat, row = table.ravel(), len(_SHARE_NODES)

    def quantile(share: Doubles) -> Doubles:
        at, right = _locate(share, _SHARE_NODES)
        at += row * node
        lower = flat.take(at) * (1.0 - right) + flat.take(at + 1) * right
        upper = flat.take(at + row) * (1.0 - right) + flat.take(at + row + 1) * right
        between: Doubles = lower * (1.0 - above) + upper * above
        return between

    low, high = compatible(lambda share: form - share * most * count, quantile, np.zeros_like(mean), np.ones_like(mean))
    slack = ((means[1] - means[0]) * _MEANS[1]) ** 2 / 2.0
    ends = np.fmin.reduce(low * most, axis=1) - slack, np.fmax.reduce(high * most, axis=1) + slack
    clipped: Doubles = np.clip(np.stack(ends), 0.0, 1.0)
    return clipped


def _locate(x: Doubles, nodes: Doubles) -> tuple[NDArray[np.intp], Doubles]:
    """Return the equidistant node before x, and the share of the way from it to the next node."""
    steps = (x - nodes[0]) / (nodes[1] - nodes[0])
    node = np.clip(steps.astype(np.intp), 0, len(nodes) - 2)
    way: Doubles = steps - node
    return node, way


def interval_record(interval: PrivateInterval) -> list[Json]:
    """Return the ledger's record of an interval: both ends, the rows inside and outside, its tails, and whose rows."""
    lower, upper = interval.ends or (None, None)
    tails = [number for tail in interval.tails or () for number in (tail.rows, tail.fall, tail.reach)]
    return [lower, upper, interval.inside, interval.outside, *tails, *([1] if tails and interval.by_unit else [])]


def restored_interval(record: Sequence[Any]) -> PrivateInterval:
    """Return the interval that `interval_record` wrote; without tails for earlier versions that did not count them."""
    lower, upper, inside, outside = record[:4] if len(record) >= 4 else [*record, 0, 0]
    ends = None if lower is None else (lower, upper)
    tails = (Tail(*record[4:7]), Tail(*record[7:10])) if len(record) > 4 else None
    return PrivateInterval(ends, inside, outside, tails, by_unit=len(record) > 10)


def interval_row(record: Sequence[Any], std_error: float | None) -> Mapping[str, Json]:
    """Return the row of a stored interval."""
    lower, upper, inside, outside = record if len(record) == 4 else [*record, None, None]
    verdict = NOT_MEASURED if inside is None else UNDETERMINED if lower is None else CLEAR
    return {
        "lower": lower,
        "upper": upper,
        "rows_inside": inside,
        "rows_outside": outside,
        "std_error": std_error,
        "verdict": verdict,
    }


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
    return from_values(words.ravel(), pa.string())


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


@lru_cache(maxsize=1024, typed=True)
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
