"""Scores as exact integers, and the doubles that replace them when doubles suffice."""

from __future__ import annotations

import numbers
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.arrays import Doubles, Integers
from dpsql.errors import ParameterError

# Relative error of `scaled`: three roundings of 2**-53 each, and room to spare.
RELATIVE_ERROR = 2.0**-50
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
        P018, when it is not one row of integers.
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
    """Return ``abs(scores - reference)`` exactly, and where the score is below the reference.

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

    A sample bounds it from below, so that of a long array only a few entries need to be partitioned.
    """
    if values.dtype == object:
        ordered: list[int] = sorted(values.tolist(), reverse=True)
        return ordered[k - 1]
    sample = values[::_SAMPLE_STEP]
    if len(sample) >= k:
        values = values[values >= np.partition(sample, len(sample) - k)[len(sample) - k]]
    found: float = np.partition(values, len(values) - k)[len(values) - k]
    return found


def scaled(distance: Distances, coefficient: Fraction) -> NDArray[np.float64]:
    """Return ``coefficient * distance`` as doubles, cut off at `LARGEST_SCALED`.

    Non-decreasing in `distance`; the relative error is below `RELATIVE_ERROR` where it is not cut off.

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


def _objects(values: list[int]) -> NDArray[np.object_]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
