"""Exact discrete Laplace and discrete Gaussian noise, in bulk.

Both start from ``floor(scale * E)`` with a standard exponential ``E = -log U``, which is geometric:
``P(floor(scale * E) >= m) = exp(-m / scale)``. The logarithm of a 63-bit prefix of U in double
precision decides the floor for all but about one sample in ten thousand; the others get more bits and
arithmetic of growing precision (`dpsql.noise.discrete`). The law is therefore exact, not exact up to some
number of bits. Discrete Gaussian noise follows by rejection [1]_.

Doubles have a radius of ``2**-40`` around every logarithm. The logarithms are below 16,
so this allows an error of more than 250 units in the last place; the mathematical libraries in use stay
below 4. The rest is IEEE 754 addition and multiplication, each with a relative error of at most ``2**-53``.

The module has its own code for speed: OpenDP 0.16 draws 0.17 (Laplace) and 0.10 (Gaussian, standard deviation 1000)
million samples per second, this module tens of millions, bound by the operating system's generator
(``benchmarks/noise.py``).

**Enclosures** are rigorous bounds, as tight as a decision needs.

Two integers enclose a number, in units of ``10**-digits``. The logarithm and the exponential of
the standard library's ``decimal`` are correctly rounded at any precision, so one unit outward on either
side encloses the real value. A random number is a prefix of its binary expansion; if its enclosure
does not decide a comparison, the code draws more bits. So it decides comparisons as on real
numbers: no rounding remains in the law of the noise.

References
----------
.. [1] C. Canonne, G. Kamath, T. Steinke, The Discrete Gaussian for Differential Privacy, NeurIPS 2020,
   Algorithm 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError, ParameterError
from dpsql.noise.entropy import SYSTEM, BitSource, WordReader

Bounds = tuple[int, int]


def fraction_bounds(value: Fraction, digits: int) -> Bounds:
    """Enclose a rational number, in units of ``10**-digits``."""
    scaled = value.numerator * 10**digits
    return scaled // value.denominator, -(-scaled // value.denominator)


def log_bounds(value: int, digits: int) -> Bounds:
    """Enclose the natural logarithm of an integer >= 1, in units of ``10**-digits``."""
    # Only leading bits go into the logarithm: value is in [lead, lead + 1) * 2**shift.
    shift = max(0, value.bit_length() - (10 * digits) // 3 - 32)
    lead = value >> shift
    low, high = _log_bounds(lead, digits)
    if shift:
        two_low, two_high = _log_two(digits + len(str(shift)))
        unit = 10 ** len(str(shift))
        low += shift * two_low // unit
        high += -(-shift * two_high // unit) + _step_up(lead, digits)
    return low, high


def exp_bounds(exponent: Fraction, digits: int) -> Bounds:
    """Enclose ``e**exponent`` for an exponent <= 0, in units of ``10**-digits``."""
    if exponent < -3 * (digits + 1):
        return 0, 1
    context = _context(digits)
    low, high = fraction_bounds(exponent, digits + 2)
    below = context.exp(context.scaleb(Decimal(low), -digits - 2))
    above = context.exp(context.scaleb(Decimal(high), -digits - 2))
    return max(0, _scaled(context, below, digits)[0]), _scaled(context, above, digits)[1]


class LazyExponential:
    """A standard exponential variable ``-log U`` with only some known bits of U.

    Parameters
    ----------
    reader : WordReader
        Source of further bits.
    prefix : int, optional
        The known first `bits` bits of U; by default one fresh word.
    bits : int
        Count.
    """

    __slots__ = ("_reader", "bits", "prefix")

    def __init__(self, reader: WordReader, prefix: int | None = None, bits: int = 64) -> None:
        self._reader = reader
        self.prefix = reader.word() if prefix is None else prefix
        self.bits = bits

    @property
    def digits(self) -> int:
        """The number of decimal digits that the known bits justify."""
        return 10 + self.bits * 302 // 1000

    def extend(self) -> None:
        """Draw 64 more bits."""
        self.prefix = self.prefix << 64 | self._reader.word()
        self.bits += 64

    def bounds(self, digits: int) -> tuple[int, int | None]:
        """Enclose the variable; no upper bound while all known bits are zero."""
        two_low, two_high = _log_two(digits)
        if self.prefix == 0:
            return self.bits * two_low, None
        log_low, log_high = log_bounds(self.prefix, digits)
        low = self.bits * two_low - log_high - _step_up(self.prefix, digits)
        return max(0, low), self.bits * two_high - log_low

    def exceeds(self, threshold: Callable[[int], Bounds]) -> bool:
        """Decide whether the variable is larger than the number that `threshold` encloses."""
        while True:
            low, high = self.bounds(self.digits)
            at_least, at_most = threshold(self.digits)
            if low >= at_most:
                return True
            if high is not None and high <= at_least:
                return False
            self.extend()

    def floor_of_multiple(self, factor: Fraction) -> int:
        """Return ``floor(factor * variable)``, factor > 0."""
        while True:
            # Each digit before the product's point needs one more behind it.
            digits = self.digits + max(0, factor.numerator.bit_length() - factor.denominator.bit_length()) // 3
            low, high = self.bounds(digits)
            if high is not None:
                divisor = factor.denominator * 10**digits
                floor: int = low * factor.numerator // divisor
                if floor == high * factor.numerator // divisor:
                    return floor
            self.extend()


def _context(digits: int) -> Context:
    return Context(prec=digits + 20, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


def _scaled(context: Context, value: Decimal, digits: int) -> Bounds:
    """Enclose, two units outward: one for the cut fraction, one for the rounding of `value`'s last digit."""
    integer = int(context.scaleb(value, digits))
    return integer - 2, integer + 2


def _step_up(value: int, digits: int) -> int:
    """Bound ``log((value + 1) / value) < 1 / value`` from above."""
    unit: int = 10**digits
    return -(-unit // value)


def _log_bounds(value: int, digits: int) -> Bounds:
    if value == 1:
        return 0, 0
    context = _context(digits)
    return _scaled(context, context.ln(Decimal(value)), digits)


@lru_cache(maxsize=32, typed=True)
def _log_two(digits: int) -> Bounds:
    context = _context(digits)
    return _scaled(context, context.ln(Decimal(2)), digits)


# Words per step: 128 KiB, so that the working arrays stay in the second-level cache.
_CHUNK = 1 << 14
_PREFIX_BITS = 63
_SMALLEST_PREFIX = 1 << 47
_RADIUS = 2.0**-40
# Above this scale a sample has two parts, so that `_RADIUS` times the scale stays small.
_LARGEST_SINGLE_SCALE = 1 << 20
LARGEST_SCALE = 1 << 50


def discrete_laplace(scale: Fraction, size: int, *, source: BitSource = SYSTEM) -> NDArray[np.int64]:
    """Draw independent discrete Laplace (two-sided geometric) variables.

    Parameters
    ----------
    scale : Fraction
        In (0, 2**50]; ``l1_sensitivity / epsilon`` in the unit of the statistic.
    size : int
        Number of variables, >= 0.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    noise : ndarray of int64, shape (size,)
        ``P(x) = (1 - a) / (1 + a) * a**abs(x)`` with ``a = exp(-1 / scale)``. Mean 0, variance
        ``2 a / (1 - a)**2``.

    Raises
    ------
    ParameterError
        P017, when `scale` or `size` is out of range.
    InternalError
        I017, when a sample does not fit 64 bits: probability below ``exp(-2**63 / scale)``, hence below
        ``exp(-8192)``.

    Notes
    -----
    - **Guarantee**: added to an integer statistic, pure ``epsilon``-DP.
    - **Neighbouring relation**: the relation behind the sensitivity in `scale`.
    - **Sensitivity**: L1.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: the sum of statistic and noise does not overflow.
    - **Does not protect**: running time, which depends on the noise (redrawn zeros, refined samples).
    """
    _check(scale, size, "scale", Fraction(LARGEST_SCALE))
    parts = []
    missing = size
    # The sign and the magnitude are independent but for zero, which would count twice: redraw minus zero.
    redraw = (1.0 + math.exp(-float(1 / max(scale, Fraction(1, 700))))) / 2.0
    while missing > 0:
        attempts = min(_CHUNK, int(missing / redraw) + 8 if missing > 4 else missing)
        part = _laplace_chunk(scale, attempts, source)[:missing]
        parts.append(part)
        missing -= len(part)
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def geometric(scale: Fraction, size: int, *, source: BitSource = SYSTEM) -> NDArray[np.int64]:
    """Draw independent geometric variables: the one-sided relative of `discrete_laplace`.

    Parameters
    ----------
    scale : Fraction
        In (0, 2**50].
    size : int
        Number of variables, >= 0.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    noise : ndarray of int64, shape (size,)
        ``P(x) = (1 - a) * a**x`` on x = 0, 1, 2, ... with ``a = exp(-1 / scale)``.

    Raises
    ------
    ParameterError
        P017, when `scale` or `size` is out of range.
    InternalError
        I017, as `discrete_laplace`.

    Notes
    -----
    - **Guarantee**: none by itself. Raising a variable by 1 makes it less likely by a factor of ``exp(-1 / scale)``;
      lowering it may be impossible, so the noise hides a change in one direction only.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Does not protect**: running time, which depends on the noise.
    """
    _check(scale, size, "scale", Fraction(LARGEST_SCALE))
    parts = [np.empty(0, dtype=np.int64)]
    for start in range(0, size, _CHUNK):
        words = source.words(min(_CHUNK, size - start))
        parts.append(_magnitude(words >> np.uint64(1), scale, source))
    return np.concatenate(parts)


def truncated_laplace(scale: Fraction, bound: int, size: int, *, source: BitSource = SYSTEM) -> NDArray[np.int64]:
    """Draw independent discrete Laplace variables, conditioned on a bound.

    Parameters
    ----------
    scale : Fraction
        In (0, 2**50].
    bound : int
        At least `scale`, to accept most proposals.
    size : int
        Number of variables, >= 0.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    noise : ndarray of int64, shape (size,)
        ``P(x) = (1 - a) / (1 + a - 2 a**(bound + 1)) * a**abs(x)`` on ``[-bound, bound]``, ``a = exp(-1 / scale)``.

    Raises
    ------
    ParameterError
        P017, when an argument is out of range.
    InternalError
        I017, as `discrete_laplace`.

    Notes
    -----
    - **Guarantee**: added to an integer that neighbouring tables move by d, (d / scale, delta)-DP, with delta the
      probability of the d largest values.
    - **Neighbouring relation**: the relation behind d.
    - **Sensitivity**: of one number.
    - **Randomness**: exact integer sampler with rejection, operating-system entropy, no seed.
    - **Assumes**: the sum of statistic and noise does not overflow.
    - **Does not protect**: running time, which depends on the noise.
    """
    _check(scale, size, "scale", Fraction(LARGEST_SCALE))
    if not isinstance(bound, int) or not bound >= scale:
        raise ParameterError("P017", f"bound must be an integer of at least the scale; got {bound}.")
    parts = [np.empty(0, dtype=np.int64)]
    missing = size
    while missing > 0:
        proposals = discrete_laplace(scale, missing, source=source)
        parts.append(proposals[np.abs(proposals) <= bound])
        missing -= len(parts[-1])
    return np.concatenate(parts)


def discrete_gaussian(variance: Fraction, size: int, *, source: BitSource = SYSTEM) -> NDArray[np.int64]:
    """Draw independent discrete Gaussian variables.

    Parameters
    ----------
    variance : Fraction
        In (0, 2**98]; ``l2_sensitivity**2 / (2 rho)``. The variance of the noise is at most this, and equal
        to it up to 1e-6 from 1 upward.
    size : int
        Number of variables, >= 0.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    noise : ndarray of int64, shape (size,)
        ``P(x)`` is proportional to ``exp(-x**2 / (2 variance))``.

    Raises
    ------
    ParameterError
        P017, when `variance` or `size` is out of range.
    InternalError
        I017, when a proposal does not fit 64 bits: probability below ``exp(-8192)``.

    Notes
    -----
    - **Guarantee**: added to an integer statistic, ``rho``-zCDP.
    - **Neighbouring relation**: the relation behind the sensitivity in `variance`.
    - **Sensitivity**: L2.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: the sum of statistic and noise does not overflow.
    - **Does not protect**: running time, which depends on the noise.
    """
    _check(variance, size, "variance", Fraction(LARGEST_SCALE) ** 2 / 4)
    proposal_scale = math.isqrt(math.floor(variance)) + 1
    parts = []
    missing = size
    while missing > 0:
        attempts = min(_CHUNK, missing * 3 // 2 + 8)
        proposals = _laplace_chunk(Fraction(proposal_scale), attempts, source)
        part = proposals[_accepted(proposals, variance, proposal_scale, source)][:missing]
        parts.append(part)
        missing -= len(part)
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def laplace_deviation(scale: Fraction, denominator: int = 1) -> float:
    """Return the standard deviation of discrete Laplace noise of that scale, > 0, in units of ``1 / denominator``."""
    # a / (1 - a)**2 with a = exp(-1 / scale) is 1 / (2 sinh(1 / (2 scale)))**2.
    half = float(1 / (2 * scale * denominator))
    return math.sqrt(0.5) / math.sinh(half) / denominator if half < 700 else 0.0


def _check(value: Fraction, size: int, name: str, largest: Fraction) -> None:
    if not isinstance(value, Fraction) or not 0 < value <= largest:
        raise ParameterError("P017", f"{name} must be a Fraction in (0, {float(largest):.3g}]; got {value}.")
    if not size >= 0:
        raise ParameterError("P017", f"size must be >= 0; got {size}.")


def _laplace_chunk(scale: Fraction, attempts: int, source: BitSource) -> NDArray[np.int64]:
    """Draw at most `attempts` samples: all attempts but minus zeros."""
    words = source.words(attempts)
    # Sign from the lowest bit, U from the other 63: independent.
    negative = (words & np.uint64(1)).view(np.int64)
    magnitude = _magnitude(words >> np.uint64(1), scale, source)
    mask = (magnitude | (negative ^ 1)) != 0
    if not mask.all():
        magnitude, negative = magnitude[mask], negative[mask]
    signed: NDArray[np.int64] = (magnitude ^ -negative) + negative
    return signed


def _magnitude(prefixes: NDArray[np.uint64], scale: Fraction, source: BitSource) -> NDArray[np.int64]:
    """Return ``floor(-scale * log U)`` from 63 known bits of U; a large result has two parts."""
    shift = max(0, (math.ceil(scale) - 1).bit_length() - _LARGEST_SINGLE_SCALE.bit_length() + 1)
    magnitude = _geometric(prefixes, scale / (1 << shift), source)
    if shift:
        if int(magnitude.max(initial=0)) >= 1 << (_PREFIX_BITS - shift):
            raise InternalError("I017", "noise does not fit 64 bits. Run the release again.")
        magnitude = (magnitude << shift) + _low_part(scale, shift, len(prefixes), source)
    return magnitude


def _geometric(prefixes: NDArray[np.uint64], scale: Fraction, source: BitSource) -> NDArray[np.int64]:
    """Return ``floor(-scale * log U)`` from 63 known bits of U; scale <= 2**20."""
    exponential, certain = _exponential(prefixes)
    factor = float(scale)
    product = exponential * factor
    # The radius of the logarithm, and as much again for the roundings of factor and product.
    margin = 2.0 * _RADIUS * factor
    floor = np.floor(product + margin)
    certain &= floor <= product - margin
    magnitude = floor.astype(np.int64)
    for index in np.flatnonzero(~certain):
        variable = LazyExponential(WordReader(source), int(prefixes[index]), _PREFIX_BITS)
        magnitude[index] = variable.floor_of_multiple(scale)
    return magnitude


def _exponential(prefixes: NDArray[np.uint64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return ``-log U`` within `_RADIUS` if the second array is true; U has the given 63-bit prefix.

    A prefix p puts U in ``[p, p + 1] / 2**63``, which is narrow compared to U for p >= 2**47: the
    logarithm moves by less than ``2**-46`` within it.
    """
    signed = prefixes.view(np.int64)
    certain = signed >= _SMALLEST_PREFIX
    uniform = np.maximum(signed, 1) * 2.0**-_PREFIX_BITS
    return np.negative(np.log(uniform, out=uniform), out=uniform), certain


def _low_part(scale: Fraction, shift: int, size: int, source: BitSource) -> NDArray[np.int64]:
    """Draw from ``P(x)`` proportional to ``exp(-x / scale)`` on ``[0, 2**shift)``, with a small ``2**shift / scale``.

    Uniform proposals are accepted if ``1 - U < exp(-x / scale)``: one word has the proposal (low bits) and a prefix of
    U (high bits), and U >= x / scale suffices.
    """
    words = source.words(size)
    values = (words & np.uint64((1 << shift) - 1)).view(np.int64)
    prefixes = words >> np.uint64(shift)
    bits = 64 - shift
    enough = math.ceil(Fraction(1 << (shift + bits)) / scale)
    for index in np.flatnonzero(prefixes < np.uint64(enough)):
        reader = WordReader(source)
        value, prefix = int(values[index]), int(prefixes[index])
        # 1 - U has the complement as its prefix; it is below exp(-x) when its exponential exceeds x.
        while not _exceeds(LazyExponential(reader, (1 << bits) - 1 - prefix, bits), Fraction(value) / scale):
            value, prefix = reader.below(1 << shift), reader.below(1 << bits)
        values[index] = value
    return values


def _exceeds(variable: LazyExponential, threshold: Fraction) -> bool:
    return variable.exceeds(lambda digits: fraction_bounds(threshold, digits))


def _accepted(
    proposals: NDArray[np.int64], variance: Fraction, proposal_scale: int, source: BitSource
) -> NDArray[np.bool_]:
    """Accept y with probability ``exp(-(|y| - variance / t)**2 / (2 variance))``, t = `proposal_scale`.

    With ``q`` the exponent, ``|d| c`` the product of difference and centre: the roundings of q are below
    ``2**-50 (q + |d| c / (2 variance))``, and the second term is at most ``(q + 1/2) / 2`` since
    ``variance <= t**2``. The radius of the logarithm covers this many times over.
    """
    prefixes = source.words(len(proposals)) >> np.uint64(1)
    exponential, certain = _exponential(prefixes)
    difference = np.abs(proposals).astype(np.float64) - float(variance / proposal_scale)
    # The cap changes nothing: a proposal other than 0 is rejected with either exponent, and 0 has exponent 0.
    exponent = difference * difference * float(min(1 / (2 * variance), Fraction(2) ** 1000))
    distance = exponential - exponent
    accepted = distance > 0.0
    certain &= np.abs(distance) > 2.0 * _RADIUS * (1.0 + exponent)
    for index in np.flatnonzero(~certain):
        variable = LazyExponential(WordReader(source), int(prefixes[index]), _PREFIX_BITS)
        gap = abs(int(proposals[index])) - variance / proposal_scale
        accepted[index] = _exceeds(variable, gap * gap / (2 * variance))
    return accepted
