"""Intervals from the public law of the noise: which true values are compatible with the noisy sums of a block.

The noise of a block is independent and of one known law on every coordinate. A linear form of the coordinates
therefore has a noise of known law, too, and `noise_quantile` gives its quantile. A mean is compatible with the noisy
sums if the form that is 0 at the true mean is within its quantile (Fieller 1954); so the coverage is exact, also where
the noisy count is near 0, and the interval may be all of the bounds. A variance is compatible if it belongs to a point
of a confidence region of all sums.

Sums of values are in units of half the interval of the bounds, from its middle: z in [-1, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.mechanisms.aggregates import NoisyBlock
from dpsql.statistics.aggregates import LAPLACE

Interval = tuple[Doubles, Doubles]

# Nodes in [-1, 1] at which the quantile of a mean's form is tabulated. Multiples of 1/2 are among them: there the
# weights of two variables are equal, or one is 0.
_NODES = np.linspace(-1.0, 1.0, 1025)
_HALVINGS = 40
# Laplace variables whose weights are this close are treated as this far apart, with the larger one raised.
_GAP = 1e-4
# Means at which the range of a variance is sought, per group, and groups at a time.
_MEANS = 0.5 - 0.5 * np.cos(np.linspace(0.0, math.pi, 65))
_CHUNK = 1 << 13
# Of the failures of a variance's interval with Gaussian noise: those of the count.
_COUNT_PART = 0.1
# Distribution functions are inverted for tails down to this.
_LEAST_TAIL = 1e-4


def noise_quantile(noisy: NoisyBlock, weights: Doubles, tail: float) -> Doubles:
    """Return x such that the absolute noise of a linear form of the coordinates exceeds x with probability `tail`.

    Parameters
    ----------
    noisy : NoisyBlock
    weights : ndarray of float64, shape (…, size)
        Of the form.
    tail : float
        In (0, 1).

    Returns
    -------
    quantile : ndarray of float64, shape (…)
        Never too small. Noise that is counted in rows or in codes takes the least integer that is enough. Elsewhere a
        step of the lattice per coordinate makes up for discrete noise, and half a step for sums that were rounded:
        discrete Laplace noise is ``floor(X) - floor(Y)`` where Laplace noise is ``X - Y``.
    """
    size = np.abs(weights)
    if noisy.lattice.noise != LAPLACE:
        sigma: Doubles = noisy.scale * np.sqrt((size**2).sum(axis=-1))
        return -NormalDist().inv_cdf(tail / 2.0) * sigma
    if noisy.block.size == 1 and noisy.lattice.bits == 0:
        scale = float(noisy.lattice.spread)
        # P(noise > k or noise < -k) is 2 a**(k + 1) / (1 + a) with a = exp(-1 / scale).
        enough = math.ceil(scale * (math.log(2.0 / tail) - math.log1p(math.exp(-1.0 / scale)))) - 1
        found: Doubles = size[..., 0] * (noisy.step * max(0, enough))
        return found
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
    the product of ``w_i**2 / (w_i**2 - w_j**2)`` over all other j. Raising a weight raises it, because the variables
    are symmetric and unimodal; so weights that are almost equal are moved apart upwards.
    """
    apart = np.sort(weights.astype(np.float64), axis=-1)
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


def combined_quantile(weights: Doubles, times: Doubles, tail: float) -> Doubles:
    """Return the quantile of the absolute value of sums of many Laplace variables, in standard deviations of each sum.

    Parameters
    ----------
    weights : ndarray of float64, shape (R, k)
        In row i, the weights of the variables of sum i.
    times : ndarray of float64, shape (R, k) or (k,)
        How many variables have the weight.
    tail : float
        Probability of a larger value, in (0, 1).

    Notes
    -----
    The distribution function is inverted from the characteristic function, the product of ``1 / (1 + w**2 t**2)``, by
    the midpoint rule (Davies 1973). The rule's error is the probability of about 25 standard deviations, and what is
    cut off is below 1e-6. For smaller tails than 1e-4 the quantile is Chernoff's bound. Discrete noise is closer to 0
    than Laplace noise of its scale.
    """
    deviation = np.sqrt(2.0 * (times * weights**2).sum(axis=-1, keepdims=True))
    nodes = (np.arange(600) + 0.5) * 0.25
    squares = (weights / deviation) ** 2
    many = np.broadcast_to(times, weights.shape)
    if tail < _LEAST_TAIL:
        return np.array([_chernoff(row, each, tail) for row, each in zip(squares, many, strict=True)])
    # Weights of one row at a time, so that the working array is small.
    logs = [np.log1p(np.outer(nodes**2, row)) @ each for row, each in zip(squares, many, strict=True)]
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


def ratio_interval(count: Doubles, total: Doubles, quantile: Callable[[Doubles], Doubles]) -> Interval:
    """Return the hull of all z in [-1, 1] with ``abs(total - z count) <= quantile(z)``; NaN where there is none.

    Parameters
    ----------
    count, total : ndarray of float64, shape (G,)
        Noisy number of rows, and noisy sum of z.
    quantile : callable
        A function of z that is nowhere below a convex one, which is what the set is meant for. The quantile of a linear
        form is convex in its weights where the noise has a symmetric and log-concave density, as here (Meyer and
        Reisner 1991, Bobkov 2010).

    Notes
    -----
    A line less a convex function is concave, so the form is above the quantile in an interval, and below minus the
    quantile in another one. The set is the rest of [-1, 1]: each of its ends is an end of [-1, 1], or that of the
    interval which covers it. Bisection only gives up points that are outside; chords between nodes, and a function
    above the quantile, only give up fewer.
    """
    table = quantile(_NODES)

    def end(outer: float) -> Doubles:
        form = total - outer * count
        found = np.full(len(count), outer)
        beyond = np.flatnonzero(np.abs(form) > table[0 if outer < 0 else -1])
        sign, t, n = np.sign(form[beyond]), total[beyond], count[beyond]

        def excess(z: Doubles) -> Doubles:
            return sign * (t - z * n) - np.interp(z, _NODES, table)

        outside, inside = np.full(len(beyond), outer), np.full(len(beyond), -outer)
        empty = excess(inside) > 0.0
        for _ in range(_HALVINGS):
            middle = (outside + inside) / 2.0
            above = excess(middle) > 0.0
            outside, inside = np.where(above, middle, outside), np.where(above, inside, middle)
        found[beyond] = np.where(empty, np.nan, outside)
        return found

    return end(-1.0), end(1.0)


def mean_interval(noisy: NoisyBlock, count: Doubles, total: Doubles, tail: float) -> Interval:
    """Return the means z that are compatible with the noisy sums; NaN where there is none."""
    rows, values = (np.array(weights) for weights in noisy.block.moments[:2])
    return ratio_interval(count, total, lambda z: noise_quantile(noisy, values - z[..., np.newaxis] * rows, tail))


def variance_interval(noisy: NoisyBlock, tail: float, ddof: int) -> Interval:
    """Return the variances of z that are compatible with the noisy sums; NaN where there is none.

    A variance that divides by ``n - ddof`` is at least the one that divides by n, and larger by at most
    ``n / (n - ddof)`` for the smallest compatible count.
    """
    values = noisy.values
    if noisy.lattice.noise == LAPLACE:
        reach = float(noise_quantile(noisy, np.array([1.0] + [0.0] * (noisy.block.size - 1)), tail / 3.0))
        least, most = np.maximum(values - reach, 0.0), np.maximum(values + reach, 0.0)
        low, high = _box_variances(least, most)
        rows = least.sum(axis=0)
    else:
        part = _COUNT_PART * tail if ddof else 0.0
        squared = -2.0 * math.log(tail - part) * noisy.scale**2  # the chi-square law with two degrees of freedom
        chunks = [_cone_variances(values[:, i : i + _CHUNK], squared) for i in range(0, values.shape[1], _CHUNK)]
        low, high = (np.concatenate(ends) for ends in zip(*chunks, strict=True)) if chunks else (values[0], values[0])
        rows = values[0] + (NormalDist().inv_cdf(part) * noisy.scale if ddof else 0.0)
    rows = np.maximum(rows, ddof + 1)
    return low, high * rows / (rows - ddof)


def _box_variances(least: Doubles, most: Doubles) -> Interval:
    """Return the range of the variance of z over a box of Bernstein sums >= 0, each array of shape (3, G).

    With x, c, y the three sums, the variance is ``(4 x y - c**2) / (x + c + y)**2``. It falls in c. In x it rises up to
    ``y + c + c**2 / (2 y)`` and falls from there on, and likewise in y. So it is least at a corner with the largest c.
    Where it is largest, with the smallest c, x and y are not both below their largest values, because each would have
    to be larger than the other; so one has its largest value, and the other its best one.
    """

    def variance(x: Doubles, c: Doubles, y: Doubles) -> Doubles:
        total = x + c + y
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(total > 0.0, (4.0 * x * y - c**2) / total**2, 0.0)

    def best(other: Doubles, c: Doubles, low: Doubles, high: Doubles) -> Doubles:
        with np.errstate(invalid="ignore", divide="ignore"):
            peak = np.where(other > 0.0, other + c + c**2 / (2.0 * other), high)
        return np.clip(peak, low, high)

    corners = [variance(x, most[1], y) for x in (least[0], most[0]) for y in (least[2], most[2])]
    ridges = [
        variance(most[0], least[1], best(most[0], least[1], least[2], most[2])),
        variance(best(most[2], least[1], least[0], most[0]), least[1], most[2]),
    ]
    return np.clip(np.minimum.reduce(corners), 0.0, 1.0), np.clip(np.maximum.reduce(ridges), 0.0, 1.0)


def _cone_variances(values: Doubles, squared: float) -> Interval:
    """Return the range of the variance of z over all moments whose line is near the noisy Chebyshev sums.

    Rows with the moments ``a`` and ``(1 + b) / 2`` of z and of ``z**2`` have sums on the line through (1, a, b). A
    point (a, b) belongs to the region if the squared distance of the noisy sums from its line is at most `squared`. For
    given a these b are those of a ratio in the plane of (1, a, 0) and (0, 0, 1); the variance ``(1 + b) / 2 - a**2``
    rises in b, and is in [0, 1 - a**2].
    """
    c0, c1, c2 = (part[:, np.newaxis] for part in values)
    low, high = ratio_interval(values[0], values[1], lambda z: np.sqrt(squared * (1.0 + z**2)))
    a = low[:, np.newaxis] + (high - low)[:, np.newaxis] * _MEANS
    length = np.sqrt(1.0 + a**2)
    along = (c0 + c1 * a) / length
    left = np.maximum(squared - ((c1 - c0 * a) / length) ** 2, 0.0)  # 0 at the ends, but for rounding
    least, most = 2.0 * a**2 - 1.0, np.ones_like(a)

    def within(b: Doubles) -> NDArray[np.bool_]:
        near: NDArray[np.bool_] = (c2 * length - along * b) ** 2 <= left * (length**2 + b**2)
        return near

    with np.errstate(invalid="ignore", divide="ignore"):
        root = np.sqrt(left * (along**2 + c2**2 - left))
        roots = length * (c2 * along + np.stack([-root, root])) / (along**2 - left)
    roots = np.where((roots >= least) & (roots <= most), roots, np.nan)
    bottom = np.where(within(least), least, np.fmin(roots[0], roots[1]))
    top = np.where(within(most), most, np.fmax(roots[0], roots[1]))
    with np.errstate(invalid="ignore"):
        found = np.fmin.reduce((1.0 + bottom) / 2.0 - a**2, axis=1), np.fmax.reduce((1.0 + top) / 2.0 - a**2, axis=1)
    return np.clip(found[0], 0.0, 1.0), np.clip(found[1], 0.0, 1.0)
