"""The k winners of a race of noisy scores, decided without floating-point gaps.

Every candidate scores ``coefficient * utility + Z``. Doubles give an interval that certainly has the
score; candidates whose intervals do not overlap are in their true order. If intervals overlap and the
order matters (among the winners, or between the last winner and the first loser), the code draws more bits of the
noise and compares in arithmetic of growing precision (`dpsql.noise.discrete`), until the order is certain.
The outcome is the same as with real numbers; ties have probability 0.

The noise comes from a 64-bit prefix w of a uniform U, ``E = -log U``, and ``-log E`` for Gumbel noise.
Logarithms of doubles have a radius of ``2**-40`` (see `dpsql.noise.discrete` for the allowed errors).

**Scores** are exact integers, or doubles if doubles suffice.
"""

from __future__ import annotations

import numbers
from fractions import Fraction
from functools import cmp_to_key
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.arrays import Doubles, Integers
from dpsql.errors import ParameterError
from dpsql.noise.discrete import LazyExponential, fraction_bounds, log_bounds
from dpsql.noise.entropy import SYSTEM, BitSource, WordReader

Noise = Literal["exponential", "gumbel"]
NOISES: tuple[Noise, ...] = ("exponential", "gumbel")

_Intervals = tuple[NDArray[np.float64], NDArray[np.float64]]

# Candidates per step, so that the working arrays stay in the second-level cache.
_CHUNK = 1 << 14
_RADIUS = 2.0**-40
_SMALLEST_PREFIX = np.uint64(1 << 48)
_NEAR_ONE = 2.0**-10


def top_k(
    utility: ArrayLike, coefficient: Fraction, k: int, *, noise: Noise, source: BitSource = SYSTEM
) -> NDArray[np.intp]:
    """Return the positions of the k largest ``coefficient * utility_j + Z_j``, largest first.

    Parameters
    ----------
    utility : array_like of int, shape (d,)
        Exact scores: int64, or Python ints of any size.
    coefficient : Fraction
        > 0, in one over the unit of the scores.
    k : int
        In [1, d].
    noise : {'exponential', 'gumbel'}
        Law of the independent ``Z_j``: Exp(1) or Gumbel(0, 1).
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    winners : ndarray of intp, shape (k,)
        The order follows the exact law.

    Raises
    ------
    ParameterError
        P018, when `utility` is not one row of integers or `coefficient` is not a positive Fraction, or
        the noise is unknown. P002, when k is not in [1, d].

    Notes
    -----
    - **Guarantee**: none by itself; `dpsql.mechanisms.one_shot` sets the coefficient.
    - **Randomness**: exact, operating-system entropy, no seed.
    - **Does not protect**: running time. All d noises are always drawn, but the time shows how many candidates can be
      among the winners, and (about once in ``2**30`` comparisons) how many need more bits.
    """
    scores = integer_scores(utility)
    _check(len(scores), coefficient, k, noise)
    # Doubles are fine near the reference; at most k - 1 scores lie above, maybe so far that doubles are coarse.
    reference = int(kth_largest(scores, k))
    words = np.empty(len(scores), dtype=np.uint64)
    low, high = np.empty(len(scores)), np.empty(len(scores))
    for begin in range(0, len(scores), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        words[part] = source.words(len(words[part]))
        low[part], high[part] = _noisy(scores[part], reference, coefficient, words[part], noise)
    # k candidates score at least the k-th largest lower bound: candidates certainly below it cannot win.
    candidates = np.flatnonzero(high >= kth_largest(low, k))
    candidates = candidates[np.argsort(-low[candidates], kind="stable")]
    low, high = low[candidates], high[candidates]

    # Everyone after place i scores at most after[i]; a cut there is clean if everyone before scores more.
    after = np.append(np.maximum.accumulate(high[::-1])[::-1][1:], -np.inf)
    ends = np.append(np.flatnonzero(low[:-1] > after[:-1]) + 1, len(candidates))
    starts = np.concatenate([[0], ends[:-1]])
    reader = WordReader(source)
    for number in np.flatnonzero((ends - starts > 1) & (starts < k)).tolist():
        group = candidates[starts[number] : ends[number]]
        refined = [
            _LazyScore(reader, j, coefficient * (int(scores[j]) - reference), int(words[j]), noise)
            for j in group.tolist()
        ]
        refined.sort(key=cmp_to_key(_compare))
        group[:] = [score.position for score in refined]
    return candidates[:k]


def _check(size: int, coefficient: Fraction, k: int, noise: str) -> None:
    if not isinstance(coefficient, Fraction) or not coefficient > 0:
        raise ParameterError("P018", f"coefficient must be a Fraction > 0; got {coefficient}.")
    if not 1 <= k <= size:
        raise ParameterError("P002", f"k must be in [1, {size}], the number of candidates; got {k}. Lower k.")
    if noise not in NOISES:
        raise ParameterError("P018", f"noise must be one of 'exponential', 'gumbel'; got {noise!r}.")


def _noisy(
    scores: Integers, reference: int, coefficient: Fraction, words: NDArray[np.uint64], noise: Noise
) -> _Intervals:
    """Bound ``coefficient * (score - reference) + Z``."""
    low, high = _exponential(words)
    if noise == "gumbel":
        low, high = _gumbel(words, low, high)
    distance, below = differences(scores, reference)
    size = scaled(distance, coefficient)
    centre = np.where(below, -size, size)
    # Covers the error of the product, and the rounding of the sums (the noise is below 64 or has no bound).
    spread = size * (2.0 * RELATIVE_ERROR) + _RADIUS
    low += centre - spread
    high += centre + spread
    beyond = size >= LARGEST_SCALED
    if beyond.any():
        low[beyond & below] = -np.inf
        high[beyond & ~below] = np.inf
    return low, high


def _exponential(words: NDArray[np.uint64]) -> _Intervals:
    """Bound ``-log U``, U in ``[w, w + 1] / 2**64``, without the roundings that `_noisy` covers.

    For w >= 2**48 the width of the interval is below 2**-47 and joins the radius.
    """
    uniform = np.maximum(words, np.uint64(1)).astype(np.float64) * 2.0**-64
    centre = -np.log(uniform)
    low, high = centre - _RADIUS, centre + _RADIUS
    small = np.flatnonzero(words < _SMALLEST_PREFIX)
    if len(small):
        prefix = words[small].astype(np.float64)
        low[small] = -np.log((prefix + 1.0) * 2.0**-64) - _RADIUS
        high[small] = np.where(prefix > 0.0, -np.log(np.maximum(prefix, 1.0) * 2.0**-64) + _RADIUS, np.inf)
    return low, high


def _gumbel(words: NDArray[np.uint64], low: NDArray[np.float64], high: NDArray[np.float64]) -> _Intervals:
    """Bound ``-log E`` from bounds on E; use the complement of U if U is near 1 and E near 0."""
    near = np.flatnonzero(low < _NEAR_ONE)
    if len(near):
        complement = (~words[near]).astype(np.float64)
        # Up to 2**55 or so; the conversion and log1p are within a few units in the last place, relatively.
        low[near] = -np.log1p(-complement * 2.0**-64) * (1.0 - _RADIUS)
        high[near] = -np.log1p(-(complement + 1.0) * 2.0**-64) * (1.0 + _RADIUS)
    with np.errstate(divide="ignore"):
        return -np.log(high) - _RADIUS, -np.log(low) + _RADIUS


class _LazyScore:
    """One candidate's score, as precisely as its known bits allow."""

    __slots__ = ("_gumbel", "_lead", "position", "variable")

    def __init__(self, reader: WordReader, position: int, lead: Fraction, word: int, noise: Noise) -> None:
        self.position = position
        self.variable = LazyExponential(reader, word)
        self._lead = lead
        self._gumbel = noise == "gumbel"

    def bounds(self, digits: int) -> tuple[int | None, int | None]:
        """Enclose the score in units of ``10**-digits``; None if there is no bound yet."""
        lead_low, lead_high = fraction_bounds(self._lead, digits)
        noise_low, noise_high = self._noise(digits)
        low = None if noise_low is None else noise_low + lead_low
        return low, None if noise_high is None else noise_high + lead_high

    def _noise(self, digits: int) -> tuple[int | None, int | None]:
        low, high = self.variable.bounds(digits)
        if not self._gumbel:
            return low, high
        # The bounds on E are integers: -log(E / 10**digits) = log(10**digits) - log(E).
        unit = log_bounds(10**digits, digits)
        below = None if high is None else unit[0] - log_bounds(high, digits)[1]
        return below, None if low == 0 else unit[1] - log_bounds(low, digits)[0]


def _compare(score: _LazyScore, other: _LazyScore) -> int:
    """Order by descending score; draw bits until the order is certain."""
    while True:
        digits = max(score.variable.digits, other.variable.digits)
        low, high = score.bounds(digits)
        other_low, other_high = other.bounds(digits)
        if low is not None and other_high is not None and low >= other_high:
            return -1
        if other_low is not None and high is not None and other_low >= high:
            return 1
        score.variable.extend()
        other.variable.extend()


# Relative error of `scaled`: three roundings of 2**-53 each, and room to spare.
RELATIVE_ERROR = 2.0**-50
# Weights are integers in units of 2**-40 of the largest, unless they are very many.
WEIGHT_BITS = 40
# Relative increase of weights: many times the rounding error of their logarithms if a weight is above one unit.
WEIGHT_MARGIN = 2.0**-20
LARGEST_SCALED = 1e290
_SAMPLE_STEP = 16

# Distances between scores.
Distances = NDArray[np.uint64] | NDArray[np.object_]


def integer_scores(utility: ArrayLike) -> Integers:
    """Read scores exactly.

    Parameters
    ----------
    utility : array_like of int, shape (d,)
        Python ints of any size, or an integer array.

    Returns
    -------
    scores : ndarray of int64, or of Python ints (dtype object), shape (d,)

    Raises
    ------
    ParameterError
        P018, when `utility` is not one row of integers.
    """
    array = utility if isinstance(utility, np.ndarray) else np.array(utility, dtype=object)
    if array.ndim == 1 and array.dtype.kind in "iu":
        if array.dtype.kind == "i" or int(array.max(initial=0)) < 1 << 63:
            return array.astype(np.int64, copy=False)
        return array.astype(object)
    if array.ndim != 1 or array.dtype != object or not all(isinstance(value, numbers.Integral) for value in array):
        raise ParameterError("P018", "utility must be one row of integers.")
    values = [int(value) for value in array]
    if all(-(1 << 63) <= value < 1 << 63 for value in values):
        return np.array(values, dtype=np.int64)
    return _objects(values)


def differences(scores: Integers, reference: int) -> tuple[Distances, NDArray[np.bool_]]:
    """Return ``abs(scores - reference)`` exactly, and which scores are below the reference.

    Parameters
    ----------
    scores : ndarray of int64 or object
        As returned by `integer_scores`.
    reference : int
        One of the scores.

    Returns
    -------
    distance : ndarray of uint64, or object
        Always fits: two int64 are less than ``2**64`` apart.
    below : ndarray of bool
    """
    below = np.asarray(scores < reference, dtype=np.bool_)
    if scores.dtype == object:
        return np.abs(scores - reference), below
    offset = scores.view(np.uint64) - np.uint64(reference % (1 << 64))  # modulo 2**64
    return np.where(below, np.uint64(0) - offset, offset), below


def kth_largest(values: Integers | Doubles, k: int) -> float:
    """Return the k-th largest entry of an array without NaN, k in [1, d].

    A sample bounds it from below, so only a few entries of a long array need a partition.
    """
    if values.dtype == object:
        ordered: list[int] = sorted(values.tolist(), reverse=True)
        return ordered[k - 1]
    sample = values[::_SAMPLE_STEP]
    if len(sample) >= k:
        values = values[values >= np.partition(sample, len(sample) - k)[len(sample) - k]]
    entry: float = np.partition(values, len(values) - k)[len(values) - k]
    return entry


def scaled(distance: Distances, coefficient: Fraction) -> NDArray[np.float64]:
    """Return ``coefficient * distance`` as doubles, cut off at `LARGEST_SCALED`.

    Non-decreasing in `distance`; the relative error is below `RELATIVE_ERROR` unless cut off.

    Parameters
    ----------
    distance : ndarray of uint64 or object
        >= 0.
    coefficient : Fraction
        > 0.
    """
    bits = int(distance.max(initial=0)).bit_length() if len(distance) else 0
    power = coefficient.numerator.bit_length() - coefficient.denominator.bit_length()
    if bits <= 500 and abs(power) <= 400:
        return distance.astype(np.float64) * float(coefficient)
    limit = Fraction(LARGEST_SCALED)
    products = (coefficient * int(value) for value in distance)
    # Below 2**-1022 the error is absolute, 2**-1074; the absolute margins of all callers cover it.
    return np.array([float(min(value, limit)) for value in products], dtype=np.float64)


def weights_above(logarithms: Doubles, bits: int = WEIGHT_BITS) -> NDArray[np.int64]:
    """Return integers certainly above the exponentials of the logarithms, in units of ``2**-bits``.

    Accepting a draw in proportion to them with the quotient of the two, which must be a probability, gives a draw by
    the exact exponentials.

    Parameters
    ----------
    logarithms : ndarray of float64
        At most about 0; each within ``2**-22`` of the exact logarithm, or below ``-30``.
    bits : int
        So few that the sum of all weights fits 63 bits.
    """
    shares = np.exp(logarithms) * (2.0**bits * (1.0 + WEIGHT_MARGIN))
    return shares.astype(np.int64) + 1


def _objects(values: list[int]) -> NDArray[np.object_]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
