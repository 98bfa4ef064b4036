"""Logistic regression by objective perturbation: random linear terms in the objective, and their cost.

The release is the minimiser of ::

    J(w) = sum_i log(1 + exp(-y_i w . x_i)) + lambda / 2 ||w||^2 + b . w,     ||x_i|| <= 1, y_i in {-1, 1}

with b random: density proportional to ``exp(-r ||b||)`` (pure), or normal of standard deviation ``1 / mu``
in every coordinate [1]_ [2]_. The intercept is a coordinate like any other: of x, of b, and of the ridge.

**Cost.** For given rows, ``w -> b = -grad(sum_i loss_i)(w) - lambda w`` is a smooth bijection, so the density of the
minimiser at w is the density of b at b(w) times the determinant of the objective's second derivatives H. One more row
(x, y) moves ``b(w)`` by ``q v``, with ``v = y x`` and ``q = 1 / (1 + exp(w . v))`` in (0, 1), and multiplies the
determinant by ``1 + q (1 - q) x' H^-1 x``, which lies in ``[1, 1 + q (1 - q) / lambda]``, with *the same q*. The bound
covers a shorter row: with ``p = q ||x||`` in place of q, b moves by p and the determinant grows by at most ``p (1 - p)
/ lambda``, because ``(1 - q) ||x|| <= 1 - q ||x||``.

- *Pure, add_remove.* The logarithm of the ratio of densities is in ``[-r q, r q + ln(1 + q (1 - q) / lambda)]``. So the
  loss is ``E(r) = max over q in [0, 1] of r q + ln(1 + q (1 - q) / lambda)``, and it is attained. The function of q is
  concave; for ``lambda r >= 1`` it rises up to q = 1 and ``E(r) = r``.
- *Pure, replace.* One row goes, another comes, seen from the rows in common: b moves by at most ``q_1 + q_2``, one
  determinant is at least and the other at most as above. The loss is ``r + E(r)``, attained from two columns on.
- *Normal, add_remove.* Let P be the law without the row and P' with it. Under P', ``Z = -b . v / (s ||v||)`` with ``s =
  1 / mu`` is *one* standard normal variable, for every w, and the logarithm of P'/P at w is ``p mu Z + p^2 mu^2 / 2 +
  ln(1 + p (1 - p) / lambda)`` at most, with ``p = q ||v||`` in [0, 1]. As ``p^2 <= p``, it is at most E(G) for ``G = mu
  Z + mu^2 / 2``, with the E of above for any real number: ``E(G) = max over p in [0, 1] of p G + ln(1 + p (1 - p) /
  lambda)``. E does not fall, and rises at most as fast as its argument. So with r a rate for which ``E(r) <= epsilon``,
  the loss beyond epsilon is at most ``max(0, G - r)``. G is the privacy loss of a normal release whose means are mu
  standard deviations apart: **delta(epsilon) is at most the delta of a mu-GDP release at r**. In the other direction,
  with ``Z = b . v / (s ||v||)`` under P, the logarithm of P/P' is at most ``p mu Z + p^2 mu^2 / 2 <= max(0, G)``, and
  the same bound holds. With ``lambda >= 1 / epsilon``, r is epsilon: the determinants cost nothing.
- *Several rows.* A unit of c rows is c steps of one row. Losses add up; for normal noise, k steps at (e, d) are
  ``(k e, d (exp(k e) - 1) / (exp(e) - 1))``. Replacing a unit is c replaced rows, because zero rows (x = 0) fill up the
  shorter of the two units, and change nothing; a replaced row is two steps of normal noise.

A lambda of at most ``1 / (4 (exp(epsilon) - 1))`` admits no rate: the determinants alone cost epsilon.

**Computer arithmetic.** The b in use is within eta of an ideal b (`dpsql.noise.ball`); the computed coefficients
have a certified gradient of at most g, which does not depend on the rows (`dpsql.kernels.logistic`). By strong
convexity they are within ``h = (g + eta) / lambda`` of the ideal minimiser w*, always. The release rounds them to a
public grid, and adds discrete Laplace noise of a small part of epsilon that hides a distance of 2 h. Proof:
for all rows, *given* w* = w the rounded coefficients are near w, so that for any two tables the laws K, K' of
the output given w* = w satisfy ``K(w, S) <= exp(epsilon_out) K'(w, S)`` for every w and set S. Hence, with P and P' the
laws of w*, ::

    P(S) = E_P K(w*, S) <= E_P min(1, exp(epsilon_out) K'(w*, S))
        <= exp(epsilon_obj) E_P' min(1, exp(epsilon_out) K'(w*, S)) + delta
        <= exp(epsilon_obj + epsilon_out) P'(S) + delta

The proof does not need a small h, only a public h that holds for every table. g is ``2**-20``,
and from an epsilon of 64 on at most ``lambda / 2**24``: the ridge shrinks with epsilon, and a fixed g would keep the
coefficients ``g / lambda`` from the minimiser, on a grid as coarse, even for a large epsilon. Grid and output noise
follow from the same h, so they shrink with it, and the event is the same: it holds epsilon and delta alone. For
``lambda >= 2**-20`` and ``2**27`` rows the least g is ``2**-44``, which a fine gradient certifies (its error is below
``2**-52``). Rounding to the grid starts from those finer coefficients, not from doubles near them.

References
----------
.. [1] K. Chaudhuri, C. Monteleoni, A. Sarwate, Differentially private empirical risk minimization, JMLR 2011. Its
   calibration is for replaced rows, and loose: it bounds two determinants apart, each by its largest value.
.. [2] D. Kifer, A. Smith, A. Thakurta, Private convex empirical risk minimization, COLT 2012. Its constants are for
   added rows: at a fixed number of rows they lose up to 1.27 epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import replace
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.events import Approximate, Event, ObjectivePerturbation
from dpsql.contract.gaussian_profile import EPSILON_MARGIN, LARGEST_EPSILON, SMALLEST_DELTA, gaussian_mu
from dpsql.contract.measurement import Part, sampled
from dpsql.contract.relation import relation_of
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.kernels.descent import descent, minimise
from dpsql.kernels.logistic import Gradient, GradientSums, SignedRows
from dpsql.noise.ball import ball_error, exponential_norm, gaussian_vector
from dpsql.noise.discrete import LARGEST_SCALE, discrete_laplace
from dpsql.noise.entropy import SYSTEM, BitSource

# Part of epsilon that hides the distance from the ideal minimiser.
OUTPUT_SHARE = Fraction(1, 100)
# The usual ridge is this many times the least ridge with free determinants, or this share of the linear term's
# deviation if that is more: about the best on text of 10 to 1000 words and on tables, for epsilon in [0.1, 5].
_STRENGTH = 2
_HOLD = 0.6
_LEAST_EPSILON = Fraction(1, 10**9)
_LEAST_SCALE = Fraction(1, 10**12)
_drowned = "epsilon is too small: the noise would drown any table. Raise epsilon."
LEAST_REGULARIZATION = Fraction(1, 1 << 20)
LARGEST_REGULARIZATION = Fraction(1 << 40)
# Norm of the gradient that the solver certifies, in addition to the error of the noise: the limit of doubles for any
# number of rows. For very large epsilon it is also a share of the ridge, so that the result tends to the noiseless fit.
_GRADIENT_NORM = Fraction(1, 1 << 20)
FINE_EPSILON = 64
_FINE_SHARE = Fraction(1, 1 << 24)
_BISECTIONS = 64
_CLIP_BITS = 61
_hint = "Leave it out for the usual value."


# Yields coefficients, takes the sums there, and returns the release.
PerturbedFit: TypeAlias = Generator[list[int], GradientSums, NDArray[np.float64]]


@dataclass(frozen=True)
class ObjectiveNoise:
    """A calibrated objective perturbation: public numbers only.

    Attributes
    ----------
    epsilon, delta : Fraction
        Cost of the release; delta is 0 with exponential noise.
    law : {'exponential', 'gaussian'}
        Of the linear term: density proportional to ``exp(-||b|| / scale)``, or normal.
    scale : Fraction
        The unit of that law.
    regularization : Fraction
        lambda, the ridge of the sum over all rows.
    output_epsilon : Fraction
        Part of epsilon that hides the distance from the ideal minimiser.
    """

    epsilon: Fraction
    delta: Fraction
    law: str
    scale: Fraction
    regularization: Fraction
    output_epsilon: Fraction

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        return objective_event(self.epsilon, self.delta)

    def linear_deviation(self, width: int) -> float:
        """Return the standard deviation of each coordinate of the linear term."""
        return float(self.scale) * (math.sqrt(width + 1) if self.law == "exponential" else 1.0)

    def tolerance(self, width: int) -> Fraction:
        """Return the norm of the certified gradient: public."""
        norm = _GRADIENT_NORM
        if self.epsilon >= FINE_EPSILON:
            norm = min(norm, self.regularization * _FINE_SHARE)
        return norm + ball_error(self.scale, width)

    def grid(self, width: int) -> Fraction:
        """Return the spacing of the released coefficients, a power of two."""
        return Fraction(2) ** (math.frexp(float(2 * self._distance(width)) / math.sqrt(width))[1] - 1)

    def output_scale(self, width: int) -> Fraction:
        """Return the scale of the discrete Laplace noise, in units of the grid."""
        # Two points within 2 h have an L1 distance of at most 2 h sqrt(p); rounding adds at most 1 per coordinate.
        root = Fraction(1 + math.isqrt(width << 40), 1 << 20)
        sensitivity = math.ceil(2 * self._distance(width) * root / self.grid(width)) + width
        return sensitivity / self.output_epsilon

    def output_deviation(self, width: int) -> float:
        """Return the standard deviation of the noise on each released coefficient."""
        return math.sqrt(2) * float(self.output_scale(width) * self.grid(width))

    def _distance(self, width: int) -> Fraction:
        """Return h, the largest distance of the computed coefficients from the ideal minimiser."""
        return (self.tolerance(width) + ball_error(self.scale, width)) / self.regularization


def objective_event(epsilon: Fraction, delta: Fraction) -> Event:
    """Return the ledger's event of a release; delta is 0 with exponential noise."""
    if not delta:
        return ObjectivePerturbation(epsilon)
    return Approximate(epsilon, delta, "objective_perturbation")


def objective_epsilon(rate: Fraction, regularization: Fraction, neighbours: str = "add_remove") -> Fraction:
    """Return the rounded-up cost of objective perturbation with exponential noise.

    Parameters
    ----------
    rate : Fraction
        One over the scale of the noise, >= 0.
    regularization : Fraction
        lambda, > 0.
    neighbours : {'add_remove', 'replace'}

    Returns
    -------
    epsilon : Fraction
        At most a share of 1e-39 above ``max over q of rate q + ln(1 + q (1 - q) / lambda)``, plus `rate` under
        'replace'.

    Notes
    -----
    The maximum is where ``rate q^2 + (2 - rate) q - (1 + rate lambda) = 0``, or at 1. The function is concave, so the
    tangent at any point bounds it: a rounded maximiser gives a certain bound.
    """
    more = relation_of(neighbours).pick(added=Fraction(0), replaced=rate)
    if rate * regularization >= 1:
        return rate + more
    with localcontext(Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])):
        slope, ridge = (Decimal(value.numerator) / Decimal(value.denominator) for value in (rate, regularization))
        product = 1 + slope * ridge
        q = min(Decimal(1), 2 * product / (2 - slope + ((2 - slope) ** 2 + 4 * slope * product).sqrt()))
        value = slope * q + (1 + q * (1 - q) / ridge).ln()
        tangent = slope + (1 - 2 * q) / (ridge + q * (1 - q))
        bound = value + max(tangent * (1 - q), -tangent * q)
        return Fraction(bound * (1 + Decimal("1e-40"))) + Fraction(1, 10**50) + more


@lru_cache(maxsize=1024, typed=True)
def exponential_rate(epsilon: Fraction, regularization: Fraction, neighbours: str = "add_remove") -> Fraction:
    """Return the largest rate at which `objective_epsilon` is at most `epsilon`, rounded down.

    Parameters
    ----------
    epsilon, regularization : Fraction
        > 0.
    neighbours : {'add_remove', 'replace'}

    Returns
    -------
    rate : Fraction
        At most ``2**-64 epsilon`` below the largest; 0 if no rate is small enough.
    """
    low, high = Fraction(0), epsilon / relation_of(neighbours).steps
    if objective_epsilon(high, regularization, neighbours) <= epsilon:
        return high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if objective_epsilon(middle, regularization, neighbours) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def least_regularization(epsilon: Fraction, max_rows_per_unit: int = 1) -> float:
    """Return the least ridge that leaves room for noise, ``1 / (4 (exp(epsilon / c) - 1))``; not rounded.

    Parameters
    ----------
    epsilon : Fraction
        Of the whole release, > 0.
    max_rows_per_unit : int
        c, >= 1.
    """
    share = float(epsilon * (1 - OUTPUT_SHARE) / max_rows_per_unit)
    return 0.25 / math.expm1(share) if share < 700 else 0.0


def default_regularization(
    epsilon: Fraction, delta: Fraction | None, *, width: int, neighbours: str, max_rows_per_unit: int = 1
) -> float:
    """Return the usual ridge, from public numbers alone; parameters as for `calibrate`.

    Returns
    -------
    regularization : float
        At least twice the least ridge with free determinants; more if strong noise needs a stronger ridge.
    """
    steps = relation_of(neighbours, max_rows_per_unit).steps
    least = min(_STRENGTH * steps / (epsilon * (1 - OUTPUT_SHARE)), LARGEST_REGULARIZATION)
    noise = _at_ridge(epsilon, delta, width, neighbours, max_rows_per_unit, max(least, LEAST_REGULARIZATION))
    usual = max(float(least), _HOLD * noise.linear_deviation(width))
    return min(max(usual, float(LEAST_REGULARIZATION)), float(LARGEST_REGULARIZATION))


def calibrate(
    epsilon: Fraction,
    delta: Fraction | None,
    *,
    width: int,
    neighbours: str,
    max_rows_per_unit: int = 1,
    regularization: float | None = None,
) -> ObjectiveNoise:
    """Return the noise of a release.

    Parameters
    ----------
    epsilon : Fraction
        > 0.
    delta : Fraction or None
        In (0, 1): allows normal noise, used if it is smaller than exponential noise.
    width : int
        Coefficients p, the intercept's included, >= 1.
    neighbours : {'add_remove', 'replace'}
    max_rows_per_unit : int
        c, >= 1.
    regularization : float, optional
        Public lambda; by default `default_regularization`.

    Returns
    -------
    noise : ObjectiveNoise

    Raises
    ------
    ParameterError
        P033, when the ridge is too small for epsilon, or out of range; P038, when epsilon is too small for any use.
    """
    if epsilon < _LEAST_EPSILON * max_rows_per_unit:
        raise ParameterError("P038", _drowned)
    if regularization is None:
        regularization = default_regularization(
            epsilon, delta, width=width, neighbours=neighbours, max_rows_per_unit=max_rows_per_unit
        )
    if not LEAST_REGULARIZATION <= regularization <= LARGEST_REGULARIZATION:
        raise ParameterError("P033", f"regularization must be in [2**-20, 2**40]; got {regularization}. {_hint}")
    return _at_ridge(epsilon, delta, width, neighbours, max_rows_per_unit, Fraction(regularization))


def _at_ridge(
    epsilon: Fraction, delta: Fraction | None, width: int, neighbours: str, max_rows_per_unit: int, ridge: Fraction
) -> ObjectiveNoise:
    """Return the smaller of the two kinds of noise."""
    output = epsilon * OUTPUT_SHARE
    row = (epsilon - output) / max_rows_per_unit
    rate = exponential_rate(row, ridge, neighbours)
    # Below this share of the row's epsilon the determinants took the rest: no useful noise remains.
    if rate < row / 1000:
        least = least_regularization(epsilon, max_rows_per_unit)
        raise ParameterError(
            "P033", f"regularization must be well above {least:.3g} at this epsilon; got {float(ridge)}. {_hint}"
        )
    # More noise than needed does no harm: less would only leave the samplers' range.
    noise = ObjectiveNoise(epsilon, Fraction(0), "exponential", max(1 / rate, _LEAST_SCALE), ridge, output)
    if delta is not None:
        steps = relation_of(neighbours, max_rows_per_unit).steps
        mu = _gaussian_mu((epsilon - output) / steps, delta, steps, ridge)
        if mu is not None:
            normal = ObjectiveNoise(epsilon, delta, "gaussian", 1 / mu, ridge, output)
            if normal.linear_deviation(width) < noise.linear_deviation(width):
                noise = normal
    if noise.output_scale(width) > LARGEST_SCALE:
        raise ParameterError("P038", _drowned)
    return noise


def objective_perturbation(
    rows: SignedRows, noise: ObjectiveNoise, *, tick: Callable[[], object] | None = None, source: BitSource = SYSTEM
) -> NDArray[np.float64]:
    """Release the coefficients of a logistic regression.

    Parameters
    ----------
    rows : SignedRows
        Rows times their labels, the intercept a column, each of norm at most 1 exactly.
    noise : ObjectiveNoise
        From `calibrate`.
    tick : callable, optional
        Called now and then; may raise. Gets nothing: the progress depends on the rows.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    coefficients : ndarray of float64, shape (p,)
        Per unit of the rows: ``w . x`` is the logarithm of the odds of the second label.

    Raises
    ------
    InternalError
        I020-I022: too many rows, or an impossible state.

    Notes
    -----
    - **Guarantee**: pure ``noise.epsilon``-DP with exponential noise, (``noise.epsilon``, ``noise.delta``)-DP with
      normal noise.
    - **Neighbouring relation**: the relation in the noise's calibration.
    - **Sensitivity**: not a norm of a statistic; see above. The norm of a row must be at most 1.
    - **Randomness**: certified approximation of the linear term, exact integer sampler for the output, operating-system
      entropy, no seed.
    - **Assumes**: at most ``2**27`` rows. IEEE 754 doubles and mathematical libraries within 8 units in the last place.
    - **Does not protect**: running time, which depends on the rows.
    """
    start = _Start.draw(noise, rows.width, source)
    gradient = minimise(
        rows, regularization=start.regularization, linear=start.linear, tolerance=start.tolerance, tick=tick
    )
    return _output(gradient, noise, rows.width, source)


def perturbed_fit(noise: ObjectiveNoise, width: int, *, source: BitSource = SYSTEM) -> PerturbedFit:
    """Yield coefficients, take the exact sums of the rows there, and return the released coefficients.

    The owner of the rows computes the sums, in one pass over them. Yielded coefficients depend on the linear term and
    on the rows: only the final coefficients are released, and the others are as secret as the rows. Parameters and
    guarantee as for `objective_perturbation`, for any number of rows: the certificate counts them.

    Notes
    -----
    - **Does not protect**: running time and the number of passes, which depend on the rows.
    """
    start = _Start.draw(noise, width, source)
    gradient = yield from descent(
        width, regularization=start.regularization, linear=start.linear, tolerance=start.tolerance
    )
    return _output(gradient, noise, width, source)


@dataclass(frozen=True)
class _Start:
    """Start of a fit: the numbers of `minimise`, with the linear term drawn."""

    regularization: float
    linear: NDArray[np.float64]
    tolerance: float

    @classmethod
    def draw(cls, noise: ObjectiveNoise, width: int, source: BitSource) -> _Start:
        draw = {"exponential": exponential_norm, "gaussian": gaussian_vector}[noise.law]
        linear = draw(noise.scale, width, source=source)
        # Rounded down: the certificate must hold for the bound of the output noise.
        return cls(float(noise.regularization), linear, float(noise.tolerance(width)) * (1.0 - 2.0**-50))


def _output(gradient: Gradient, noise: ObjectiveNoise, width: int, source: BitSource) -> NDArray[np.float64]:
    """Return coefficients on the grid, with the noise that hides their distance from the minimiser."""
    grid = noise.grid(width)
    # Clipping coordinates moves no two points apart.
    cells = np.clip(gradient.cells(grid), -(2.0**_CLIP_BITS), 2.0**_CLIP_BITS).astype(np.int64)
    return (cells + discrete_laplace(noise.output_scale(width), width, source=source)).astype(np.float64) * float(grid)


def _gaussian_mu(epsilon: Fraction, delta: Fraction, steps: int, regularization: Fraction) -> Fraction | None:
    """Return the mu at which each of these steps costs at most `epsilon` and all of them `delta`; None for none."""
    rate = exponential_rate(epsilon, regularization)
    if not 2 * EPSILON_MARGIN < rate <= LARGEST_EPSILON or steps * epsilon > LARGEST_EPSILON:
        return None
    with localcontext(Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])):
        grown = Decimal(epsilon.numerator) / Decimal(epsilon.denominator)
        share = (grown.exp() - 1) / ((steps * grown).exp() - 1) if steps > 1 else Decimal(1)
        least = delta * Fraction(share) * (1 - Fraction(1, 10**30)) if steps > 1 else delta
    if least < SMALLEST_DELTA:
        return None
    try:
        return gaussian_mu(rate, least)
    except ParameterError:  # the calibration covers no such mu: use exponential noise
        return None


@dataclass(frozen=True)
class PerturbedObjective(Part):
    """A fit whose objective is perturbed.

    Attributes
    ----------
    epsilon : Fraction
    delta : Fraction
        0 if the perturbation is not normal.
    """

    epsilon: Fraction
    delta: Fraction

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        return objective_event(self.epsilon, self.delta)

    def covers(self, other: Part) -> bool:
        """Whether `other` is this part, or the same without normal noise, which spends no delta."""
        return other in (self, replace(self, delta=Fraction(0)))

    def spent(self, noise: ObjectiveNoise) -> PerturbedObjective:
        """Return the cost of sampling some calibrated noise."""
        return replace(self, epsilon=noise.epsilon, delta=noise.delta)

    @sampled
    def draw(
        self, rows: SignedRows, noise: ObjectiveNoise, *, tick: Callable[[], object] | None
    ) -> NDArray[np.float64]:
        """Return the coefficients, from noise within this part's cost."""
        self._check(noise)
        return objective_perturbation(rows, noise, tick=tick)

    @sampled
    def start(self, width: int, noise: ObjectiveNoise) -> PerturbedFit:
        """Return a fit that asks for the sums of the rows, from noise within this part's cost."""
        self._check(noise)
        return perturbed_fit(noise, width)

    def _check(self, noise: ObjectiveNoise) -> None:
        if not self.covers(self.spent(noise)):
            raise InternalError("I034", f"{self.name} was calibrated for another loss. Report it.")
