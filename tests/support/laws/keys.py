"""Exact laws of released keys with their noisy counts, independent of samplers and of the bounds of the product.

The weights of a noise are written down from its definition and add up to 1. A key with a count n > 0 gives its noisy count
if that is at least the threshold, and else nothing; a key with count 0 gives nothing. What a table gives is the product over
keys. Outcomes of a key with the same ratio of probabilities in both tables are put together, which changes no delta.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpsql.mechanisms.count_noise import CountNoise, GaussianCountNoise, LaplaceCountNoise, TruncatedCountNoise

Array = NDArray[np.float64]

# Noise this many deviations away has a chance below 1e-20.
_REACH = 70
# Cells of Gaussian noise to a deviation.
_STEPS = 40


@lru_cache(maxsize=64)
def weights(noise: LaplaceCountNoise | TruncatedCountNoise) -> Array:
    """Return the probabilities of the noise from -R to R."""
    bound = noise.bound if isinstance(noise, TruncatedCountNoise) else math.ceil(_REACH * float(noise.scale)) + 2
    one = np.exp(-np.abs(np.arange(-bound, bound + 1)) / float(noise.scale))
    one /= one.sum()
    found = one
    for _ in range(noise.terms - 1 if isinstance(noise, LaplaceCountNoise) else 0):
        found = np.convolve(found, one)
    return found


def upper_tail(noise: CountNoise, steps: float) -> float:
    """``P(Z >= steps)``, from the weights; of a fine Gaussian lattice that of the continuous law."""
    if isinstance(noise, GaussianCountNoise):
        return float(ndtr(-steps / noise.spread))
    assert isinstance(noise, LaplaceCountNoise | TruncatedCountNoise)
    found = weights(noise)
    first = math.ceil(steps) + len(found) // 2
    return math.fsum(found[max(0, first) :]) if first < len(found) else 0.0


def released_law(noise: CountNoise, threshold: int, count: int, most: int) -> Array:
    """Return the law of one key: noisy counts from the threshold on, as far as `most` can get, and last nothing.

    Gaussian noise is put into narrow cells: what is shown is the cell.
    """
    if isinstance(noise, GaussianCountNoise):
        least, spread = threshold / noise.unit, noise.deviation
        cells = math.ceil((max(0.0, most - least) / spread + 12) * _STEPS)
        upper = ndtr((count - least) / spread - np.arange(cells + 1) / _STEPS)
        law = np.append(upper[:-1] - upper[1:], ndtr((least - count) / spread))
        law[-2] += upper[-1]
    else:
        assert isinstance(noise, LaplaceCountNoise | TruncatedCountNoise)
        found = weights(noise)
        half = len(found) // 2
        values = np.arange(-half, half + 1) + count * noise.unit
        law = np.zeros(max(0, most * noise.unit + half - threshold + 1) + 1)
        released = values >= threshold
        law[values[released] - threshold] = found[released]
        law[-1] = found[~released].sum()
    if count == 0:
        law[:] = 0.0
        law[-1] = 1.0
    return law


def one_key(noise: CountNoise, threshold: int, first: int, second: int) -> tuple[Array, Array]:
    """Return the laws of one key with these two counts, outcomes of one ratio put together."""
    p, q = (released_law(noise, threshold, count, max(first, second)) for count in (first, second))
    return merged(p, q)


def one_pair_key(
    noise: LaplaceCountNoise, threshold: int, first: Sequence[int], second: Sequence[int]
) -> tuple[Array, Array]:
    """Return the laws of one key with two numbers in each table, shown where their noisy sum is at least the threshold.

    `noise` is that of the sum: it has two terms, each of them the noise of a number. A key whose numbers are 0 is absent.
    """
    one = weights(replace(noise, terms=1))
    half = len(one) // 2
    ends = [(min(a, b) - half, max(a, b) + half) for a, b in zip(first, second, strict=True)]
    axes = [np.arange(low, high + 1) for low, high in ends]
    released = np.add.outer(*axes) >= threshold
    laws = []
    for values in (first, second):
        shifted = [np.zeros(len(axis)) for axis in axes]
        for axis, number, (low, _) in zip(shifted, values, ends, strict=True):
            axis[number - half - low : number + half + 1 - low] = one
        joint = np.outer(*shifted)
        law = np.append(joint[released], joint[~released].sum())
        laws.append(law if any(values) else np.append(np.zeros(len(law) - 1), 1.0))
    return merged(*laws)


def merged(p: Array, q: Array) -> tuple[Array, Array]:
    """Return two laws with outcomes of one ratio put together."""
    kept = (p > 0) | (q > 0)
    p, q = p[kept], q[kept]
    with np.errstate(divide="ignore"):
        ratio = np.round(np.log(p) - np.log(q), 9)
    _, where = np.unique(ratio, return_inverse=True)
    out = np.zeros((2, int(where.max(initial=-1)) + 1))
    np.add.at(out[0], where, p)
    np.add.at(out[1], where, q)
    return out[0], out[1]


def excess_of_keys(keys: Sequence[tuple[Array, Array]], epsilon: float) -> float:
    """Return the least delta at epsilon between two products of laws of keys, both ways."""
    p, q = np.ones(1), np.ones(1)
    for one in keys:
        p, q = np.outer(p, one[0]).ravel(), np.outer(q, one[1]).ravel()
    factor = math.exp(epsilon)
    return max(math.fsum(np.maximum(0, p - factor * q)), math.fsum(np.maximum(0, q - factor * p)))


def joint_excess(noise: CountNoise, threshold: int, counts: Sequence[tuple[int, int]], epsilon: float) -> float:
    """Return the least delta at epsilon between two tables whose keys have these pairs of counts, both ways."""
    return excess_of_keys([one_key(noise, threshold, first, second) for first, second in counts], epsilon)


def normal_profile(mu: float, epsilon: float) -> float:
    """Return the delta at epsilon of two normal laws mu standard deviations apart."""
    if mu == 0.0:
        return max(0.0, -math.expm1(epsilon))
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def shares(total: int, most: int, keys: int) -> Iterator[tuple[int, ...]]:
    """How a unit's rows may be spread over keys: at most `most` to a key, `total` in all, over at most `keys`."""
    for count in range(keys + 1):
        for parts in combinations_with_replacement(range(1, most + 1), count):
            if sum(parts) <= total:
                yield parts


def neighbouring_counts(
    both: bool, total: int, most: int, keys: int, others: Sequence[int]
) -> Iterator[list[tuple[int, int]]]:
    """Yield pairs of counts by key: keys of the unit alone, and keys that as many others have as `others` says."""
    for left in shares(total, most, keys):
        for right in shares(total, most, keys) if both else [()]:
            for lone in range(len(left) + 1):
                for lone_right in range(len(right) + 1):
                    for base in others:
                        yield [
                            *((a, 0) for a in left[:lone]),
                            *((base + a, base) for a in left[lone:]),
                            *((0, a) for a in right[:lone_right]),
                            *((base, base + a) for a in right[lone_right:]),
                        ]
