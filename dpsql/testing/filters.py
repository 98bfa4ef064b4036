"""Exact laws of feature filters: sparse vector, selection of keys, noisy scores against a threshold.

Independent of the samplers. The noise on a threshold is integrated out by Gauss-Legendre quadrature on pieces where the
integrand is smooth; everything else is a product over features or keys, because their noises are independent.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.partition_selection import PartitionSelection
from dpsql.mechanisms.sparse_vector import SparseVector

Array = NDArray[np.float64]
Bits = tuple[bool, ...]

# Noise this many scales away has a chance below 1e-21.
_REACH = 50.0
_NODES = 30


@dataclass(frozen=True)
class Noise:
    """The law of a noise.

    Attributes
    ----------
    kind : {'exponential', 'negative_exponential', 'laplace', 'none'}
        'negative_exponential' is minus an exponential variable; 'none' is 0.
    scale : float
        Mean of the exponential variable, scale of the Laplace law; > 0.
    """

    kind: Literal["exponential", "negative_exponential", "laplace", "none"]
    scale: float = 1.0

    def at_least(self, x: Array) -> Array:
        """``P(noise >= x)``, with a small relative error."""
        y = x / self.scale
        if self.kind == "exponential":
            return np.exp(-np.maximum(y, 0.0))
        if self.kind == "negative_exponential":
            return np.where(y >= 0.0, 0.0, -np.expm1(np.minimum(y, 0.0)))
        if self.kind == "laplace":
            return np.where(y >= 0.0, np.exp(-np.abs(y)) / 2.0, 1.0 - np.exp(-np.abs(y)) / 2.0)
        return np.where(x <= 0.0, 1.0, 0.0)

    def below(self, x: Array) -> Array:
        """``P(noise < x)``, with a small relative error."""
        y = x / self.scale
        if self.kind == "exponential":
            return -np.expm1(-np.maximum(y, 0.0))
        if self.kind == "negative_exponential":
            return np.exp(np.minimum(y, 0.0))
        if self.kind == "laplace":
            return np.where(y < 0.0, np.exp(-np.abs(y)) / 2.0, 1.0 - np.exp(-np.abs(y)) / 2.0)
        return np.where(x > 0.0, 1.0, 0.0)

    def density(self, x: Array) -> Array:
        """Density at x; not for 'none'."""
        bell = np.exp(-np.abs(x) / self.scale) / self.scale
        if self.kind == "laplace":
            return bell / 2.0
        return np.where(x >= 0.0 if self.kind == "exponential" else x <= 0.0, bell, 0.0)


def comparison_chance(
    scores: Sequence[float], bits: Sequence[bool], *, threshold: Noise, score: Noise, level: float
) -> float:
    """Return the probability that ``q_i + noise_i >= level + noise_0`` has the given truth for each of some scores.

    Parameters
    ----------
    scores : sequence of float
        Compared one after the other.
    bits : sequence of bool
        What came out, of equal length.
    threshold, score : Noise
        ``noise_0``, drawn once, and ``noise_i``, drawn afresh.
    level : float

    Returns
    -------
    chance : float
        Within about 1e-13 of itself.
    """
    gaps = [float(value) - level for value in scores]
    points, measure = _quadrature(tuple(sorted({0.0, *gaps})), threshold.scale)
    product = measure * threshold.density(points)
    for gap, bit in zip(gaps, bits, strict=True):
        product = product * (score.at_least(points - gap) if bit else score.below(points - gap))
    return float(product.sum())


def comparison_law(
    scores: Sequence[float], *, threshold: Noise, score: Noise, level: float, cutoff: int | None
) -> dict[Bits, float]:
    """Return the law of all comparisons in a fixed order, until `cutoff` of them are true; arguments as above."""
    law = {}
    for bits in itertools.product((False, True), repeat=len(scores)):
        if cutoff is not None and sum(bits) >= cutoff:
            stop = [place for place, bit in enumerate(bits) if bit][cutoff - 1] + 1
            bits = bits[:stop]
        if bits not in law:
            law[bits] = comparison_chance(
                scores[: len(bits)], bits, threshold=threshold, score=score, level=level
            )
    return law


def sparse_vector_law(scores: Sequence[int], parameters: SparseVector, *, level: int) -> dict[Bits, float]:
    """Return the law of `dpsql.mechanisms.sparse_vector.sparse_vector` for one order of comparison, that of `scores`.

    Parameters
    ----------
    scores : sequence of int
        About five of them.
    parameters, level
        As for `sparse_vector`.

    Returns
    -------
    law : dict
        What each comparison gave, until it stopped -> probability.
    """
    return comparison_law(
        scores,
        threshold=Noise("exponential", float(parameters.threshold_scale)),
        score=Noise("exponential", float(parameters.score_scale)),
        level=level,
        cutoff=parameters.cutoff,
    )


def sparse_vector_run_law(
    scores: Sequence[int], parameters: SparseVector, *, level: int
) -> dict[tuple[tuple[int, ...], int], float]:
    """Return the law of what `sparse_vector` releases: positions above in order of comparison, and where it stopped."""
    law: dict[tuple[tuple[int, ...], int], float] = {}
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        for bits, chance in sparse_vector_law([scores[j] for j in order], parameters, level=level).items():
            output = tuple(j for j, bit in zip(order, bits, strict=False) if bit), len(bits)
            law[output] = law.get(output, 0.0) + chance / len(orders)
    return law


def discrete_laplace_tail(scale: float, x: float) -> float:
    """``P(Z >= x)`` of discrete Laplace noise."""
    ratio, k = math.exp(-1.0 / scale), math.ceil(x)
    return ratio**k / (1.0 + ratio) if k >= 1 else 1.0 - ratio ** (1 - k) / (1.0 + ratio)


def normal_tail_chance(deviation: float, x: float) -> float:
    """``P(Z >= x)`` of Gaussian noise."""
    return math.erfc(x / deviation / math.sqrt(2.0)) / 2.0


def released_keys_law(counts: Mapping[str, int], selection: PartitionSelection) -> dict[frozenset[str], float]:
    """Return the law of `dpsql.mechanisms.partition_selection.select_partitions`, for a handful of keys."""
    if selection.noise == "laplace":
        chances = {
            key: discrete_laplace_tail(float(selection.scale), selection.threshold - count)
            for key, count in counts.items()
        }
    else:
        chances = {
            key: normal_tail_chance(selection.deviation, selection.threshold - count) for key, count in counts.items()
        }
    return product_law(chances)


def product_law(chances: Mapping[Any, float]) -> dict[frozenset[Any], float]:
    """Return the law of a random set whose members are in it independently, with the given chances."""
    law = {frozenset[Any](): 1.0}
    for key, chance in chances.items():
        without = {members: p * (1.0 - chance) for members, p in law.items()}
        law = without | {members | {key}: p * chance for members, p in law.items()}
    return law


def excess(first: Mapping[Any, float], second: Mapping[Any, float], epsilon: float) -> float:
    """Return the least delta with ``P <= exp(epsilon) Q + delta`` for all events, P the first law and Q the second."""
    factor = math.exp(epsilon)
    return math.fsum(max(0.0, chance - factor * second.get(output, 0.0)) for output, chance in first.items())


def log_ratio(first: Mapping[Any, float], second: Mapping[Any, float]) -> float:
    """Return the largest absolute log ratio of two laws; infinite where one of them has an output of its own."""
    worst = 0.0
    for output in {*first, *second}:
        p, q = first.get(output, 0.0), second.get(output, 0.0)
        if p > 0.0 or q > 0.0:
            worst = max(worst, abs(math.log(p / q)) if p > 0.0 and q > 0.0 else math.inf)
    return worst


def reported_law(
    counts: Sequence[int], *, tail: Callable[[float], float], threshold: float, absolute: bool
) -> dict[frozenset[int], float]:
    """Return the law of the set of features whose noisy count is at least a threshold.

    Parameters
    ----------
    counts : sequence of int
        Exact numbers to which independent noise is added.
    tail : callable
        ``P(Z >= x)`` of the noise, a symmetric law on integers or on real numbers.
    threshold : float
        > 0; a whole number for a law on integers.
    absolute : bool
        Whether the absolute value of the noisy number is compared.
    """
    return product_law(
        {
            j: tail(threshold - count) + (tail(threshold + count) if absolute else 0.0)
            for j, count in enumerate(counts)
        }
    )


@lru_cache(maxsize=256)
def _quadrature(breaks: tuple[float, ...], scale: float) -> tuple[Array, Array]:
    """Nodes and weights on pieces between the breaks, and far beyond them on either side."""
    ends = [breaks[0] - _REACH * scale, *breaks, breaks[-1] + _REACH * scale]
    cuts = np.concatenate(
        [np.linspace(low, high, 2 + int((high - low) / scale))[:-1] for low, high in itertools.pairwise(ends)]
        + [np.array(ends[-1:])]
    )
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    width = np.diff(cuts)[:, None]
    points = cuts[:-1, None] + width * (nodes + 1.0) / 2.0
    return points.reshape(-1), (width * weights / 2.0).reshape(-1)
