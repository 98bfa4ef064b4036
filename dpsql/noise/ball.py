"""Vectors of continuous noise, each within a public distance of an ideal real vector whose law is exact.

A computer cannot draw a real number, but can approximate it. Here every uniform variable is an infinite stream of bits
with a known prefix, at least 48 significant bits of U and of ``1 - U``: if 64 bits are not enough, the code draws more.
The ideal vector is a function of the whole streams, hence exactly of its law; the returned doubles are a function of
the prefixes, and lie within `ball_error` of the ideal vector, always. Callers add the distance to the error that a
result must hide (`dpsql.mechanisms.objective_perturbation`).

Proof of the distance. A share of ``2**-48`` of U, or of ``1 - U``, is a share of at most ``2**-46`` of ``E = -log U``,
computed from the smaller of the two. A normal variable is ``sqrt(2 E) sin(pi V / 2)`` with a random sign (Box and
Muller; ``|cos(2 pi V)|`` and ``sin(pi V / 2)`` have the same law), and ``x cot x <= 1``: its magnitude is within a
share of ``2**-45``, even if it is small. Sums of positive numbers keep shares. The mathematical libraries in use are
within 4 units in the last place for log, log1p, sin and sqrt, of which ``2**-45`` allows 256. A vector is therefore
within a share of ``2**-43`` of its ideal length, and the code counts ``2**-42``.

A standard Cauchy variable is also here, with as many bits as a decision needs.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError, ParameterError
from dpsql.noise.entropy import SYSTEM, BitSource, WordReader


class LazyCauchy:
    """A standard Cauchy variable with only some known bits: a ratio of coordinates in the unit disk."""

    __slots__ = ("_reader", "_x", "_y", "bits", "negative")

    def __init__(self, reader: WordReader) -> None:
        self._reader = reader
        self.negative = bool(reader.word() & 1)
        self._draw()
        while (inside := self._inside()) is not True:
            if inside is None:
                self.extend()
            else:
                self._draw()

    def _draw(self) -> None:
        """Draw the first bits of either coordinate anew."""
        self.bits, self._x, self._y = 64, self._reader.word(), self._reader.word()

    def extend(self) -> None:
        """Draw 64 more bits of either coordinate."""
        self._x, self._y = (part << 64 | self._reader.word() for part in (self._x, self._y))
        self.bits += 64

    def bounds(self) -> tuple[Fraction, Fraction | None]:
        """Enclose the magnitude; no upper bound while all known bits of the divisor are zero."""
        return Fraction(self._x, self._y + 1), Fraction(self._x + 1, self._y) if self._y else None

    def _inside(self) -> bool | None:
        """Return whether the point is in the disk; None if the bits do not decide it."""
        square = 1 << 2 * self.bits
        if (self._x + 1) ** 2 + (self._y + 1) ** 2 <= square:
            return True
        return False if self._x**2 + self._y**2 >= square else None


_ERROR_BITS = 34
_SHARE_BITS = 42
_LEAST_PREFIX = 1 << 48
_LARGEST_SIZE = 1 << 24
# A prefix divided by it is a double.
_LARGEST_WHOLE = 1 << 960


def ball_error(scale: Fraction, size: int) -> Fraction:
    """Return the largest L2 distance of a returned vector from its ideal vector.

    Parameters
    ----------
    scale : Fraction
        As for `exponential_norm` and `gaussian_vector`, > 0.
    size : int
        Coordinates, >= 1.

    Returns
    -------
    error : Fraction
        ``scale (size + 64) / 2**34``.
    """
    return scale * (size + 64) / (1 << _ERROR_BITS)


def exponential_norm(scale: Fraction, size: int, *, source: BitSource = SYSTEM) -> NDArray[np.float64]:
    """Draw a vector whose density at b is proportional to ``exp(-||b|| / scale)``.

    Parameters
    ----------
    scale : Fraction
        In [1e-100, 1e100]. The norm has the Gamma law of shape `size` and this scale; the direction is uniform.
    size : int
        Coordinates, in [1, 2**24].
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    vector : ndarray of float64, shape (size,)
        Within ``ball_error(scale, size)`` of a vector of exactly this law.

    Raises
    ------
    ParameterError
        P017, when `scale` or `size` is out of range.
    InternalError
        I020, when the norm is more than ``256 (size + 64)`` scales, or 15 words are zeros, or ones: probability below
        ``2**-890``.

    Notes
    -----
    - **Guarantee**: none by itself; `dpsql.mechanisms.objective_perturbation` sets the scale.
    - **Randomness**: certified approximation of an exact draw, operating-system entropy, no seed.
    - **Does not protect**: the bits of the doubles. Release only results that hide the distance.
    """
    _check(scale, size)
    norm = math.fsum(_exponentials(size, source))
    direction = _normals(size, source)
    length = math.sqrt(math.fsum(direction * direction))
    return _certain(direction * (float(scale) * norm / length), scale)


def gaussian_vector(scale: Fraction, size: int, *, source: BitSource = SYSTEM) -> NDArray[np.float64]:
    """Draw a vector of independent normal variables with standard deviation `scale`.

    Parameters
    ----------
    scale, size, source
        As for `exponential_norm`.

    Returns
    -------
    vector : ndarray of float64, shape (size,)
        Within ``ball_error(scale, size)`` of a vector of exactly this law.

    Raises
    ------
    ParameterError, InternalError
        As for `exponential_norm`.

    Notes
    -----
    - **Guarantee**, **Randomness**, **Does not protect**: as for `exponential_norm`.
    """
    _check(scale, size)
    return _certain(_normals(size, source) * float(scale), scale)


def _check(scale: Fraction, size: int) -> None:
    if not isinstance(scale, Fraction) or not Fraction(1, 10**100) <= scale <= 10**100:
        raise ParameterError("P017", f"scale must be a Fraction in [1e-100, 1e100]; got {scale}.")
    if not 1 <= size <= _LARGEST_SIZE:
        raise ParameterError("P017", f"size must be in [1, {_LARGEST_SIZE}]; got {size}.")


def _certain(vector: NDArray[np.float64], scale: Fraction) -> NDArray[np.float64]:
    """Return the vector, or raise if its share of error is more than `ball_error`."""
    length = math.sqrt(math.fsum((vector / float(scale)) ** 2))
    if not length <= (len(vector) + 64) * 2.0 ** (_SHARE_BITS - _ERROR_BITS):
        raise InternalError("I020", "noise is out of range. Run the release again.")
    return vector


def _exponentials(size: int, source: BitSource) -> NDArray[np.float64]:
    """Return standard exponential variables, within a share of ``2**-45``."""
    uniform, complement = _uniforms(size, source)
    lower = uniform <= 0.5
    logarithm = np.log(np.where(lower, uniform, 1.0))
    return -np.where(lower, logarithm, np.log1p(-np.where(lower, 0.0, complement)))


def _normals(size: int, source: BitSource) -> NDArray[np.float64]:
    """Return standard normal variables, each within a share of ``2**-44``."""
    radius = np.sqrt(2.0 * _exponentials(size, source))
    magnitude = radius * np.sin(_uniforms(size, source)[0] * (math.pi / 2.0))
    return np.where(source.words(size) & np.uint64(1) == 1, -magnitude, magnitude)


def _uniforms(size: int, source: BitSource) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return uniform variables and their complements to 1, both within a share of ``2**-47``."""
    words = source.words(size)
    uniform, complement = words.astype(np.float64) * 2.0**-64, (~words).astype(np.float64) * 2.0**-64
    unsure = (words < np.uint64(_LEAST_PREFIX)) | (~words < np.uint64(_LEAST_PREFIX))
    for index in np.flatnonzero(unsure).tolist():
        reader = WordReader(source)
        prefix, denominator = int(words[index]), 1 << 64
        while not _LEAST_PREFIX <= prefix < denominator - _LEAST_PREFIX:
            if denominator >= _LARGEST_WHOLE:
                raise InternalError("I020", "noise is out of range. Run the release again.")
            prefix, denominator = prefix << 64 | reader.word(), denominator << 64
        uniform[index], complement[index] = prefix / denominator, (denominator - 1 - prefix) / denominator
    return uniform, complement
