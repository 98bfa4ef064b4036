"""Vectors of integers whose probability falls with their largest coordinate: exact noise of the norm of the maximum.

Noise of a norm hides a vector that moves by a bounded norm (Hardt and Talwar 2010). Its law for the largest coordinate
is a mixture of uniform laws on cubes: with ``P(R = r)`` proportional to ``(2 r + 1)**d exp(-r / scale)`` and x uniform
in ``{-R, ..., R}**d``, the chance of x is proportional to the sum of ``exp(-r / scale)`` over all r that are at least
its largest coordinate, which is ``exp(-max abs(x) / scale)`` times a constant.

The radius is drawn by rejection. A sum of d + 1 geometric variables is r with a chance proportional to the binomial
coefficient of r + d over d times ``exp(-r / scale)``, and ``(2 r + 1)**d`` is ``2**d d!`` times that coefficient times
the product of ``(2 r + 1) / (2 (r + i))`` over i from 1 to d, each of which is below 1.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ParameterError
from dpsql.noise.discrete import geometric
from dpsql.noise.entropy import SYSTEM, BitSource, WordReader

# The largest drawn radius is below scale * (d + 1) * 64 with a chance of all but exp(-60 d).
LARGEST_CUBE_SCALE = 1 << 48
MOST_CUBE_COORDINATES = 1 << 7
_SHARE = 2.0**-40
_WORD = 1 << 64


def cube_noise(scale: Fraction, size: int, count: int, *, source: BitSource = SYSTEM) -> NDArray[np.int64]:
    """Draw independent vectors whose probability is proportional to ``exp(-max abs(x) / scale)``.

    Parameters
    ----------
    scale : Fraction
        In ``(0, 2**48]``. Below about ``size**2`` most proposals are rejected.
    size : int
        Coordinates of a vector, in [1, 128].
    count : int
        Vectors, >= 0.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    noise : ndarray of int64, shape (size, count)

    Raises
    ------
    ParameterError
        P017, when an argument is out of range.
    InternalError
        I017, when a radius does not fit 64 bits: probability below ``exp(-255)``.

    Notes
    -----
    - **Guarantee**: added to integers, pure ``epsilon``-DP, for a scale of their sensitivity over epsilon.
    - **Neighbouring relation**: the relation behind the sensitivity in `scale`.
    - **Sensitivity**: the largest change of a coordinate, added up over the vectors that change.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: the sum of statistic and noise does not overflow.
    - **Does not protect**: running time, which depends on the noise.
    """
    if not isinstance(scale, Fraction) or not 0 < scale <= LARGEST_CUBE_SCALE:
        raise ParameterError("P017", f"scale must be a Fraction in (0, {LARGEST_CUBE_SCALE}]; got {scale}.")
    if not 1 <= size <= MOST_CUBE_COORDINATES or not count >= 0:
        raise ParameterError("P017", f"size must be in [1, {MOST_CUBE_COORDINATES}], count >= 0; got {size}, {count}.")
    radius = _radii(scale, size, count, source)
    offsets = _below(2 * np.broadcast_to(radius, (size, count)).ravel().astype(np.uint64) + np.uint64(1), source)
    noise: NDArray[np.int64] = offsets.view(np.int64).reshape(size, count) - radius
    return noise


def cube_deviation(scale: Fraction, size: int) -> float:
    """Return the standard deviation of one coordinate, for a scale of at least 64, by the continuous law.

    The radius has a Gamma law of ``size + 1`` of the scale, and a coordinate is uniform up to the radius: the variance
    is ``(size + 1) (size + 2) scale**2 / 3``. The discrete law has a third of 5/4 less.
    """
    return float(scale) * math.sqrt((size + 1) * (size + 2) / 3.0)


def _radii(scale: Fraction, size: int, count: int, source: BitSource) -> NDArray[np.int64]:
    parts = [np.empty(0, dtype=np.int64)]
    missing = count
    while missing > 0:
        proposals = geometric(scale, missing * (size + 1), source=source).reshape(size + 1, missing).sum(axis=0)
        mask = np.ones(missing, dtype=np.bool_)
        for number in range(1, size + 1):
            indices = np.flatnonzero(mask)
            mask[indices] = _accepted(proposals[indices], number, source)
        parts.append(proposals[mask])
        missing -= int(mask.sum())
    return np.concatenate(parts)


def _accepted(radius: NDArray[np.int64], number: int, source: BitSource) -> NDArray[np.bool_]:
    """Accept with the chance ``(2 r + 1) / (2 (r + number))``: reject if ``U < (2 number - 1) / (2 (r + number))``.

    A word is the first bits of U. If the floating-point quotient and a margin do not decide, the code draws more bits
    and compares integers.
    """
    words = source.words(len(radius))
    uniform = words.astype(np.float64) * 2.0**-64
    chance = (2 * number - 1) / (2.0 * (radius.astype(np.float64) + number))
    accepted = uniform >= chance
    unsure = np.abs(uniform - chance) <= _SHARE * chance + 2.0**-52 * uniform + 2.0**-62
    for index in np.flatnonzero(unsure).tolist():
        reader = WordReader(source)
        prefix, denominator = int(words[index]), _WORD
        above, below = 2 * number - 1, 2 * (int(radius[index]) + number)
        # U is in [prefix, prefix + 1) / whole.
        while prefix * below < above * denominator < (prefix + 1) * below:
            prefix, denominator = prefix << 64 | reader.word(), denominator << 64
        accepted[index] = prefix * below >= above * denominator
    return accepted


def _below(bounds: NDArray[np.uint64], source: BitSource) -> NDArray[np.uint64]:
    """Return integers uniform on ``[0, bound)``, by rejection: no modulo bias. Every bound is below ``2**63``."""
    # The words below the largest multiple of the bound; 2**64 is a multiple itself if the remainder is 0.
    remainder = (np.uint64(_WORD - 1) % bounds + np.uint64(1)) % bounds
    largest = np.uint64(_WORD - 1) - remainder
    words = source.words(len(bounds)).copy()
    while True:
        again = np.flatnonzero(words > largest)
        if not len(again):
            break
        words[again] = source.words(len(again))
    integers: NDArray[np.uint64] = words % bounds
    return integers
