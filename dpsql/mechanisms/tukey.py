"""The Tukey mechanism: a point of high depth among the models of disjoint blocks, or no release.

Every block of rows has one model, a vector of coefficients. A point is deep if many models lie on either side of it in
every coordinate. The mechanism first tests, privately, whether the deep region is stable; then it draws a point whose
density grows with the depth. Coefficients need no bounds.

**The grid.** A public grid, the same for all tables, compares and measures coordinates: a double is cut to
`MANTISSA_BITS` leading bits, exponents are clipped to `EXPONENTS`, and smaller values are in the cell of zero. Every
cell is an interval of known dyadic ends and of positive length. The volume of the box of the cells from ``a`` to ``b``
is therefore an integer, in units of the finest cell, and never zero: equal models, and features that are 0 in every
model, are no special case. Nothing below rounds.

**Blocks.** The statistic is the models of disjoint blocks.

A keyed hash assigns rows to m blocks, by the row's id or, if a privacy unit may have several rows, by the unit; m is
public or was released before. Every block has one model, least squares of the target on the features, that depends on
the rows of that block alone (`dpsql.kernels.block_gram`).

Sensitivity, in replaced models:

==============  =============================  ===================================================================
relation        models that change             why
==============  =============================  ===================================================================
add_remove      1                              all rows of a row id, or of a privacy unit, are in one block, however
                                               many they are
replace         2                              the id is part of the row: one block loses rows, another gains some
==============  =============================  ===================================================================

The mechanism is ``(epsilon, delta)``-DP for one model. For two, go through the table after the removal alone: ``P(E) <=
e**a P'(E) + d <= e**(2 a) P''(E) + (1 + e**a) d``. With ``a = epsilon / 2`` and ``d = delta / (1 + e**(epsilon / 2))``
this is ``(epsilon, delta)``: `row_budget`.

Blocks of consecutive rows, ``m`` blocks of ``floor(n / m)``, break all of this: one row more moves rows between all
blocks (`tests/support/broken/tukey.py`).
"""

from __future__ import annotations

import bisect
import math
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.events import Approximate, Event
from dpsql.contract.measurement import Part, sampled
from dpsql.contract.relation import relation_of
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.noise.discrete import discrete_laplace, exp_bounds, log_bounds
from dpsql.noise.entropy import SYSTEM, BitSource, WordReader

# Chance that noise fails the test of well-behaved models, and shortfall of K from its typical value.
_FAILURE = 0.01
_SPREAD = 2


def row_budget(neighbours: str, epsilon: Fraction, delta: Fraction) -> tuple[Fraction, Fraction]:
    """Return the budget (epsilon, delta) per replaced model that makes neighbouring tables (epsilon, delta)-DP.

    Parameters
    ----------
    neighbours : {'add_remove', 'replace'}
        The neighbouring relation, of rows or of privacy units.
    epsilon, delta : Fraction
        Cost of the release, each > 0.

    Returns
    -------
    epsilon, delta : Fraction
        For `tukey`: epsilon to divide between test and draw; delta rounded down.
    """
    if relation_of(neighbours).norm(1) == 1:  # one model changes
        return epsilon, delta
    half = epsilon / 2
    bits = 64 + 3 * math.ceil(half) // 2
    unit = 10 ** (bits // 3 + 20)
    share = exp_bounds(-half, bits // 3 + 20)[0]
    # 1 / (1 + e**a) = e**-a / (1 + e**-a) grows with e**-a, which is rounded down.
    return half, delta * Fraction((share << bits) // (unit + share), 1 << bits)


@lru_cache(maxsize=256, typed=True)
def models_needed(p: int, epsilon: Fraction, delta: Fraction) -> int:
    """Return the number of models with Gaussian scatter that nearly always pass the test; free of data.

    Parameters
    ----------
    p : int
        Coefficients of a model, the intercept included; >= 1.
    epsilon, delta : Fraction
        Budget of the mechanism per replaced model (see `row_budget`), half of epsilon for test and for draw.

    Returns
    -------
    models : int
        Models for which the test fails in about one of a hundred calls. No guarantee needs it.

    Raises
    ------
    ParameterError
        P039, when the test needs more models than the mechanism accepts.

    Notes
    -----
    K assumes models whose order statistics are Gaussian quantiles, which simulated models match within 2; it does not
    depend on the scale of a coordinate, nor on correlations of the coefficients. Least-squares models of blocks with as
    few as p rows each have heavier tails, which lowered K by 5 at most (p from 3 to 31).
    """
    test = epsilon / 2
    target = passing_score(test, delta) + math.ceil(-math.log(2 * _FAILURE) / float(test)) + _SPREAD
    if typical_reach(LARGEST_MODELS, p, epsilon / 2, delta) < target:
        raise ParameterError(
            "P039",
            f"with epsilon {float(epsilon):.3g} the Tukey mechanism would need more than {LARGEST_MODELS} blocks. "
            "Raise epsilon, or use another method.",
        )
    low, high = 8, LARGEST_MODELS
    while low < high:
        middle = (low + high) // 2
        if typical_reach(middle, p, test, delta) >= target:
            high = middle
        else:
            low = middle + 1
    return low


def typical_reach(models: int, p: int, epsilon_draw: Fraction, delta: Fraction) -> int:
    """Return the K of Gaussian quantiles, in floating point; arguments as for `models_needed`."""
    start, deepest = models // 4, models // 2
    factor, shift = growth_per_level(epsilon_draw)
    rate = math.log(factor) - shift * math.log(2.0)
    normal = NormalDist()
    levels = np.arange(1, deepest + 1)
    widths = np.array([-normal.inv_cdf((level - 0.375) / (models + 0.25)) for level in levels.tolist()])
    volumes = p * np.log(widths)
    layers = np.log(-np.expm1(np.append(np.diff(volumes), -np.inf)))
    tails = np.logaddexp.accumulate((volumes + layers + rate * levels)[::-1])[::-1]
    k = np.arange(max(0, longest_reach(models) + 1))
    # Entry i - 1 belongs to depth i.
    kappa = volumes[start - k - 2] + rate * (start + k + 1) - tails[start + k]
    least = math.log(delta.numerator) - math.log(delta.denominator) - np.logaddexp(0.0, math.log(2.0) + 2.0 * rate)
    return int(np.count_nonzero(kappa <= least)) - 1


MANTISSA_BITS = 30
EXPONENTS = -200, 200  # magnitudes below 2**-200 are zero, those above 2**200 fall in the last cell
LARGEST_MODELS = 1 << 14
_FRACTION_BITS = MANTISSA_BITS - 1
_LARGEST_CELL = (EXPONENTS[1] - EXPONENTS[0]) << _FRACTION_BITS
_LARGEST_EXPONENT = Fraction(690)  # of the growth per level of depth: a factor of 2**995
_DIGITS = 60


def tukey(
    models: NDArray[np.float64],
    *,
    epsilon_test: Fraction,
    epsilon_draw: Fraction,
    delta: Fraction,
    source: BitSource = SYSTEM,
) -> NDArray[np.float64] | None:
    """Draw a point of high depth among the models, if the stability test passes.

    Parameters
    ----------
    models : ndarray of float64, shape (m, p)
        One model per block; m and p are public. A model with a coefficient that is not finite counts as zeros.
    epsilon_test, epsilon_draw : Fraction
        Privacy loss of the test and of the draw, each > 0.
    delta : Fraction
        In (0, 1/2].
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    point : ndarray of float64, shape (p,), or None
        Midpoint of a cell of the grid; None when the test did not pass, as always for m < 8. None costs as much as a
        point.

    Raises
    ------
    ParameterError
        Depends on public parameters only: P018 (epsilon, delta, models).

    Notes
    -----
    - **Guarantee**: ``(epsilon_test + epsilon_draw, delta)``-DP, for the point and for None.
    - **Neighbouring relation**: one model is replaced by any other. The module's table translates this to rows.
    - **Sensitivity**: the depth of every point, and the distance K to instability, change by at most 1.
    - **Randomness**: exact integer samplers, operating-system entropy, no seed.
    - **Assumes**: m and p depend on the rows through releases alone; the model of a block depends on the rows of that
      block alone.
    - **Does not protect**: running time (lengths of integers, rejections); m and p.

    The depth of a point is ``T(y) = min(floor(m / 2), min_j min(#{i: x_ij <= y_j}, #{i: x_ij >= y_j}))`` on cells. ``{T
    >= i}`` is the box of the cells from the i-th smallest to the i-th largest in every coordinate; ``V_i`` is its
    volume, 0 beyond ``M = floor(m / 2)``, and ``w(p) = sum_{i >= p} (V_i - V_{i + 1}) r**i``. The density is
    proportional to ``r**T`` on ``{T >= t}``, ``t = floor(m / 4)``, with a rational ``r <= exp(epsilon_draw / 2)``. With
    ``kappa(k) = V_{t-k-1} r**(t+k+1) / w(t+k+1)`` for k up to ``min(t - 2, M - t - 1)``, K is the largest k with
    ``kappa(k) <= k0 = delta / (1 + 2 r**2)``, -1 if none exists. The test passes when K plus discrete Laplace noise of
    scale ``1 / epsilon_test`` exceeds ``log(1 / (2 delta)) / epsilon_test``.

    Proof. Let tables 1 and 2 differ in one model. The depth changes by at most 1 everywhere, so ``V2_i <= V1_{i-1}``
    and ``w2(p - 1) >= w1(p) / r``; hence ``kappa2(k - 1) <= kappa1(k)`` and K changes by at most 1. (kappa grows with
    k: V falls with its index, and so does ``w(p) / r**p``, because r >= 1.)

    Let ``K1 >= 0``. Of the support ``{T1 >= t}``, the part with ``T2 = t - 1`` has ``T1 = t`` and mass
    ``<= V1_t r**t / w1(t) <= kappa1(0)``; of ``{T2 >= t}``, the part with ``T1 = t - 1`` has mass
    ``<= V1_{t-1} r**t / (w1(t + 1) / r) = kappa1(0)``. On the rest the weights ``r**T`` differ by at most a factor r,
    and so do the sums over the rest. This gives ``P1(E) <= r**2 / (1 - k0) P2(E) + k0`` and the same with 1 and 2
    exchanged; with ``k0 <= 1/3`` the draw is ``(2 log r, k0 (1 + 2 r**2))``-DP, and this is
    ``(epsilon_draw, delta)``. So when K1 or K2 is at least 0, the whole is ``(epsilon_test + epsilon_draw, delta)``-DP.
    Otherwise both are -1, and either passes with probability at most ``2 delta / (1 + exp(epsilon_test)) <= delta``.
    One of the two cases holds, so delta is spent once.

    The argument needs only that the volume is a measure, public, and positive and finite on boxes of cells. Reporting
    the midpoint of a cell for its uniform point is post-processing.

    References
    ----------
    .. [1] K. Amin, M. Joseph, M. Ribero, S. Vassilvitskii, Easy Differentially Private Linear Regression, ICLR 2023.
       There the density grows twice as fast, because depth is assumed monotone; it is if a model is added, and it is
       not if a row is added, which replaces the model of its block.
    """
    _check(models, epsilon_test, epsilon_draw, delta)
    count = len(models)
    steps = longest_reach(count)
    if steps < 0:
        return None
    boxes = DepthBoxes(models)
    growth = growth_per_level(epsilon_draw)
    tails = tail_weights(boxes, growth)
    reach = stable_reach(boxes, tails, growth, delta)
    noise = int(discrete_laplace(1 / epsilon_test, 1, source=source)[0])
    if not reach + noise >= passing_score(epsilon_test, delta):
        return None
    reader = WordReader(source)
    return boxes.point(draw_depth(boxes, tails, growth, reader), reader)


def cells(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the cell number of each value, ascending with the values.

    Parameters
    ----------
    values : ndarray of float64
        Finite.

    Returns
    -------
    numbers : ndarray of int64, same shape
        0 is the cell around zero; the cell of ``-v`` has the opposite number.
    """
    bits = np.abs(values).view(np.int64)
    numbers = (bits >> (52 - _FRACTION_BITS)) - ((1023 + EXPONENTS[0]) << _FRACTION_BITS) + 1
    signed: NDArray[np.int64] = np.where(values < 0.0, -1, 1) * np.clip(numbers, 0, _LARGEST_CELL)
    return signed


def lower_end(cell: int) -> int:
    """Return the lower end of a cell, in units of the finest cell; its upper end is the next lower end."""
    if cell <= 0:
        return -lower_end(1 - cell)
    exponent, fraction = divmod(cell - 1, 1 << _FRACTION_BITS)
    return ((1 << _FRACTION_BITS) + fraction) << exponent


def cell_at(position: int) -> int:
    """Return the cell of the points between `position` and `position` + 1, in units of the finest cell."""
    if position < 0:
        return -cell_at(-position - 1)
    exponent = position.bit_length() - MANTISSA_BITS
    if exponent < 0:
        return 0
    return (exponent << _FRACTION_BITS) + (position >> exponent) - (1 << _FRACTION_BITS) + 1


def midpoint(cell: int) -> float:
    """Return the middle of a cell, exactly."""
    return math.ldexp(lower_end(cell) + lower_end(cell + 1), EXPONENTS[0] - MANTISSA_BITS)


class DepthBoxes:
    """The boxes ``{T >= i}`` of some models, ``1 <= i <= deepest``.

    Parameters
    ----------
    models : ndarray of float64, shape (m, p)
        m >= 2. A model with a coefficient that is not finite counts as zeros.

    Attributes
    ----------
    deepest : int
        ``floor(m / 2)``: no point counts as deeper.
    models : int
        m.
    """

    def __init__(self, models: NDArray[np.float64]) -> None:
        self.models = len(models)
        self.deepest = self.models // 2
        finite = np.isfinite(models).all(axis=1, keepdims=True)
        ordered = np.sort(cells(np.where(finite, models, 0.0)), axis=0)
        ends = [
            _ends(ordered[: self.deepest, column], ordered[: -self.deepest - 1 : -1, column] + 1)
            for column in range(ordered.shape[1])
        ]
        # Ends of column j are in units of 2**shift_j finest cells: volumes of all boxes share one factor.
        self._shifts = [end[0] for end in ends]
        self._lower = list(zip(*(end[1] for end in ends), strict=True))
        self._upper = list(zip(*(end[2] for end in ends), strict=True))
        self._volumes: dict[int, int] = {}

    def volume(self, depth: int) -> int:
        """Return ``V_i`` for a depth i >= 1, up to a factor common to all depths."""
        if depth > self.deepest:
            return 0
        if depth not in self._volumes:
            self._volumes[depth] = math.prod(self._widths(depth))
        return self._volumes[depth]

    def _widths(self, depth: int) -> list[int]:
        if depth > self.deepest:
            return [0] * len(self._shifts)
        pairs = zip(self._lower[depth - 1], self._upper[depth - 1], strict=True)
        return [upper - lower for lower, upper in pairs]

    def point(self, depth: int, reader: WordReader) -> NDArray[np.float64]:
        """Draw a uniform point of exactly this depth; return the middle of its cell, shape (p,).

        The box ``{T >= i}`` without ``{T >= i + 1}`` is a disjoint union of slabs: slab j has the points that leave the
        inner box in coordinate j first.
        """
        outer, inner = self._widths(depth), self._widths(depth + 1)
        width = len(outer)
        after = [1] * (width + 1)
        for column in reversed(range(width)):
            after[column] = after[column + 1] * outer[column]
        rest = reader.below(after[0] - math.prod(inner))
        before, slab = 1, 0
        while rest >= (weight := before * (outer[slab] - inner[slab]) * after[slab + 1]):
            rest -= weight
            before *= inner[slab]
            slab += 1
        middles = np.empty(width)
        for column in range(width):
            # Inner coordinates before the slab, outer ones after it, and an end piece of the outer in the slab.
            level = depth + 1 if column < slab else depth
            position = self._lower[level - 1][column]
            if column == slab:
                offset = reader.below(outer[column] - inner[column])
                if inner[column] and offset >= self._lower[depth][column] - position:
                    offset += inner[column]
            else:
                offset = reader.below(inner[column] if column < slab else outer[column])
            shift = self._shifts[column]
            middles[column] = midpoint(cell_at((position + offset << shift) + reader.below(1 << shift)))
        return middles


def _ends(first: NDArray[np.int64], past: NDArray[np.int64]) -> tuple[int, list[int], list[int]]:
    """Return (shift, ends of `first`, ends of `past`): lower ends of cells, in units of ``2**shift`` finest cells."""
    numbers = np.concatenate([first, past])
    exponents, fractions = np.divmod(np.where(numbers > 0, numbers, 1 - numbers) - 1, 1 << _FRACTION_BITS)
    shift = int(exponents.min())
    significands = np.where(numbers > 0, 1, -1) * (fractions + (1 << _FRACTION_BITS))
    pairs = zip(significands.tolist(), (exponents - shift).tolist(), strict=True)
    ends = [significand << exponent for significand, exponent in pairs]
    return shift, ends[: len(first)], ends[len(first) :]


def longest_reach(models: int) -> int:
    """Return the largest value of K for a number of models; negative if there are too few for any test."""
    return min(models // 4 - 2, models // 2 - models // 4 - 1)


@lru_cache(maxsize=256, typed=True)
def growth_per_level(epsilon_draw: Fraction) -> tuple[int, int]:
    """Return (a, s): the density grows by ``r = a / 2**s`` per level of depth, ``1 <= r <= exp(epsilon_draw / 2)``."""
    exponent = min(epsilon_draw / 2, _LARGEST_EXPONENT)
    shift = 32 + max(0, exponent.denominator.bit_length() - exponent.numerator.bit_length())
    digits = _DIGITS + shift // 3 + int(exponent) // 2
    return (10**digits << shift) // exp_bounds(-exponent, digits)[1], shift


def tail_weights(boxes: DepthBoxes, growth: tuple[int, int]) -> list[int]:
    """Return ``w(i) / r**i * 2**(s (M - i))`` for i = t, …, M: integers, t = floor(m / 4)."""
    factor, shift = growth
    tails = [boxes.volume(boxes.deepest)]
    for depth in range(boxes.deepest - 1, boxes.models // 4 - 1, -1):
        layer = boxes.volume(depth) - boxes.volume(depth + 1)
        tails.append((layer << shift * (boxes.deepest - depth)) + factor * tails[-1])
    tails.reverse()
    return tails


def stable_reach(boxes: DepthBoxes, tails: list[int], growth: tuple[int, int], delta: Fraction) -> int:
    """Return K, in [-1, `longest_reach`]: the number of replaced models before the draw becomes unsafe."""
    factor, shift = growth
    least = delta / (1 + 2 * Fraction(factor, 1 << shift) ** 2)
    start = boxes.models // 4

    def unsafe(k: int) -> bool:
        scaled = boxes.volume(start - k - 1) << shift * (boxes.deepest - start - k - 1)
        return not scaled * least.denominator <= least.numerator * tails[k + 1]

    return bisect.bisect_left(range(longest_reach(boxes.models) + 1), True, key=unsafe) - 1


@lru_cache(maxsize=256, typed=True)
def passing_score(epsilon_test: Fraction, delta: Fraction) -> int:
    """Return the least integer above ``log(1 / (2 delta)) / epsilon_test``, at least 1."""
    unit = 10**_DIGITS
    odds = log_bounds(delta.denominator, _DIGITS)[1] - log_bounds(2 * delta.numerator, _DIGITS)[0]
    return int(max(0, odds) * epsilon_test.denominator // (unit * epsilon_test.numerator)) + 1


def draw_depth(boxes: DepthBoxes, tails: list[int], growth: tuple[int, int], reader: WordReader) -> int:
    """Draw a depth i in [t, M] with weight ``(V_i - V_{i + 1}) r**i``."""
    factor, shift = growth
    rest = reader.below(tails[0])
    for depth in range(boxes.models // 4, boxes.deepest):
        layer = boxes.volume(depth) - boxes.volume(depth + 1)
        rest -= layer << shift * (boxes.deepest - depth)
        if rest < 0:
            return depth
        rest //= factor
    return boxes.deepest


def _check(models: NDArray[np.float64], epsilon_test: Fraction, epsilon_draw: Fraction, delta: Fraction) -> None:
    for name, value in (("epsilon_test", epsilon_test), ("epsilon_draw", epsilon_draw)):
        if not isinstance(value, Fraction) or not value > 0:
            raise ParameterError("P018", f"{name} must be a Fraction > 0; got {value}. Give the privacy loss to spend.")
    if not isinstance(delta, Fraction) or not 0 < delta <= Fraction(1, 2):
        raise ParameterError("P018", f"delta must be a Fraction in (0, 1/2]; got {delta}. Give a small probability.")
    if models.ndim != 2 or not models.shape[1] >= 1 or not len(models) <= LARGEST_MODELS:
        raise ParameterError(
            "P018",
            f"models must have the shape (m, p), m <= {LARGEST_MODELS} and p >= 1; got {models.shape}. "
            "Use fewer blocks.",
        )


@dataclass(frozen=True)
class DeepModel(Part):
    """A point that is deep among models.

    Attributes
    ----------
    epsilon, delta : Fraction
        Cost.
    budget : tuple of (Fraction, Fraction)
        Its epsilon and delta for one replaced model.
    """

    epsilon: Fraction
    delta: Fraction
    budget: tuple[Fraction, Fraction]

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        return Approximate(self.epsilon, self.delta, "tukey")

    @sampled
    def draw(self, models: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Return the point; None if the test does not pass."""
        epsilon, delta = self.budget
        return tukey(models, epsilon_test=epsilon / 2, epsilon_draw=epsilon / 2, delta=delta)
