"""Exact laws of feature filters: sparse vector, selection of keys, noisy scores against a threshold.

Independent of the samplers. The noise on a threshold is integrated out by Gauss-Legendre quadrature on pieces where the
integrand is smooth; everything else is a product over features or keys, because their noises are independent.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpsql.functions import score_filter
from dpsql.functions.feature_counts import Counts
from dpsql.functions.score_filter import ScoreFilterPlan, released_counts
from dpsql.mechanisms import gaussian as gaussian_noise
from dpsql.mechanisms import laplace as laplace_noise
from dpsql.mechanisms import one_shot, partition_selection
from dpsql.mechanisms import sparse_vector as technique
from dpsql.mechanisms.gaussian import GaussianRelease
from dpsql.mechanisms.partition_selection import PartitionSelection, select_partitions
from dpsql.mechanisms.sparse_vector import SparseVector, SparseVectorRun
from dpsql.statistics.feature_counts import exact_scores
from support.laws.keys import upper_tail
from support.laws.selection import one_shot_law

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
            law[bits] = comparison_chance(scores[: len(bits)], bits, threshold=threshold, score=score, level=level)
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
    noise = selection.noise
    return product_law(
        {key: upper_tail(noise, selection.threshold - count * noise.unit) for key, count in counts.items()}
    )


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
        {j: tail(threshold - count) + (tail(threshold + count) if absolute else 0.0) for j, count in enumerate(counts)}
    )


def filter_law(plan: ScoreFilterPlan, counts: Counts) -> dict[Any, float]:
    """Return the exact law of what `dpsql.functions.score_filter.draw_features` reports.

    Parameters
    ----------
    plan : ScoreFilterPlan
        Public names; a threshold with Laplace or Gaussian noise on any score but ``information_gain``, or a method that
        looks at exact scores.
    counts : Counts
        Of a handful of features.

    Returns
    -------
    law : dict
        With noise on counts, the set of the features' positions -> probability. Of 'svt', what `sparse_vector_run_law`
        gives; of a selection, tuples of positions, by rank or ascending.
    """
    if plan.noise_law is not None:
        return _noisy_law(plan, counts)
    scores = exact_scores(plan.score, counts.positive, counts.negative, counts.positive_rows, counts.negative_rows)
    if plan.chosen == "svt":
        level = plan.sparse_vector.level(Fraction(plan.applied_threshold(len(scores))) * plan.unit)
        return dict(sparse_vector_run_law(scores.tolist(), plan.sparse_vector, level=level))
    return dict(
        one_shot_law(
            scores.tolist(),
            mechanism=plan.chosen,
            gamma=Fraction(1, 2),
            utility_range=plan.score_range(len(scores)),
            epsilon=plan.score_epsilon,
            k=plan.k or 1,
        )
    )


def _noisy_law(plan: ScoreFilterPlan, counts: Counts) -> dict[frozenset[int], float]:
    values = released_counts(plan.released, counts).tolist()
    d = len(counts.positive)
    threshold, deviation = plan.applied_threshold(d), plan.deviation(d)
    if plan.noise_law == "laplace":
        scale = float(plan.noise_scale(d))
        threshold = math.ceil(threshold)

        def tail(x: float) -> float:
            return discrete_laplace_tail(scale, x)
    else:

        def tail(x: float) -> float:
            return normal_tail_chance(deviation, x)

    if plan.score != "purity":
        return reported_law(values, tail=tail, threshold=threshold, absolute=plan.score == "difference_count")
    # Given the noisy difference t of the labels, feature j stays below where |s| < threshold and |t - s| < threshold.
    law: dict[frozenset[int], float] = {}
    for t, weight in _noisy_values(values[-1], plan, deviation):
        low, high = max(-threshold, t - threshold), min(threshold, t + threshold)
        edge = 1.0 if plan.noise_law == "laplace" else 0.0  # integers strictly between low and high
        chances = {
            j: 1.0 - max(0.0, tail(low + edge - s) - tail(high - s)) if low < high else 1.0
            for j, s in enumerate(values[:-1])
        }
        for members, chance in product_law(chances).items():
            law[members] = law.get(members, 0.0) + weight * chance
    return law


def _noisy_values(value: int, plan: ScoreFilterPlan, deviation: float) -> list[tuple[float, float]]:
    """Return what a released number can be, and how likely."""
    if plan.noise_law == "laplace":
        ratio = math.exp(-1.0 / float(plan.noise_scale(None)))
        reach = math.ceil(_REACH / -math.log(ratio))
        weights = ((x, (1.0 - ratio) / (1.0 + ratio) * ratio ** abs(x)) for x in range(-reach, reach + 1))
        return [(value + x, weight) for x, weight in weights]
    points = np.linspace(-9.0, 9.0, 3001)
    density = np.exp(-(points**2) / 2.0)
    return list(zip((value + deviation * points).tolist(), (density / density.sum()).tolist(), strict=True))


@dataclass
class FilterCall:
    """What one call of a feature filter asked its samplers for.

    Attributes
    ----------
    result : object
        What the call returned; without noise.
    kind : {'laplace', 'gaussian', 'svt', 'selection', ''}
        How its scores were released; '' for not at all.
    statistic : list of int
        Exact numbers or scores that went in.
    spread : object
        Scale (laplace), standard deviation (gaussian), `SparseVector` (svt), ``epsilon / range`` (selection).
    keys : dict
        Rows by name, of a private vocabulary.
    key_selection : PartitionSelection or None
        What they were drawn with.
    """

    result: Any = None
    kind: str = ""
    statistic: list[int] = field(default_factory=list)
    spread: Any = None
    keys: dict[str, int] = field(default_factory=dict)
    key_selection: PartitionSelection | None = None


def observe_filter(run: Callable[[], Any], *, names: Sequence[str] = ()) -> FilterCall:
    """Run a feature filter without noise and return what its noise would have been added to.

    Parameters
    ----------
    run : callable
        Makes one call of ``dp_score_filter``.
    names : sequence of str
        What a private vocabulary gives: the same for calls that are to be compared.

    Returns
    -------
    seen : FilterCall

    Notes
    -----
    Functions of `dpsql.mechanisms` are replaced meanwhile, so only one call at a time.
    """
    seen = FilterCall()
    released, selection = score_filter.released_counts, vars(partition_selection)["select_partitions"]

    def numbers(kind: str, counts: Counts) -> NDArray[np.int64]:
        values = released(kind, counts)
        seen.statistic = values.tolist()
        return values

    def laplace(scale: Fraction, size: int) -> NDArray[np.int64]:
        seen.kind, seen.spread = "laplace", scale
        return np.zeros(size, dtype=np.int64)

    def gaussian(values: Any, *, squared_sensitivity: int, squared_mu: Fraction, denominator: int) -> GaussianRelease:
        seen.kind, seen.spread = "gaussian", math.sqrt(squared_sensitivity / squared_mu) * denominator
        return GaussianRelease(values.astype(np.float64) / denominator, seen.spread / denominator)

    def sparse(scores: Any, parameters: SparseVector, *, level: int) -> SparseVectorRun:
        seen.kind, seen.spread, seen.statistic = "svt", parameters, scores.tolist()
        return SparseVectorRun((), len(scores))

    def select(utility: Any, *, utility_range: int, epsilon: Fraction, k: int, **_: Any) -> list[int]:
        seen.kind, seen.spread, seen.statistic = "selection", epsilon / utility_range, utility.tolist()
        return list(range(k))

    def vocabulary(found: Sequence[str], rows: Any, chosen: PartitionSelection) -> list[str]:
        seen.keys, seen.key_selection = dict(zip(found, rows.tolist(), strict=True)), chosen
        return sorted(names)

    hooks: list[tuple[Any, str, Any]] = [
        (score_filter, "released_counts", numbers),
        (laplace_noise, "discrete_laplace", laplace),
        (gaussian_noise, "gaussian_counts", gaussian),
        (technique, "sparse_vector", sparse),
        (one_shot, "select", select),
        (one_shot, "canonical_lipschitz", select),
    ]
    if selection.__module__ == select_partitions.__module__:
        hooks.append((partition_selection, "select_partitions", vocabulary))
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in hooks]
    try:
        for owner, name, hook in hooks:
            setattr(owner, name, hook)
        seen.result = run()
    finally:
        for owner, name, real in before:
            setattr(owner, name, real)
    return seen


def score_loss(first: FilterCall, second: FilterCall) -> float:
    """Return what the scores of two observed calls cost: epsilon, or mu of Gaussian noise.

    Parameters
    ----------
    first, second : FilterCall
        On two tables, with the same arguments.

    Returns
    -------
    loss : float
        The bound that the proofs of the mechanisms give for these two statistics.
    """
    if (first.kind, first.spread, len(first.statistic)) != (second.kind, second.spread, len(second.statistic)):
        raise AssertionError("the noise depends on the table")
    moves = [b - a for a, b in zip(first.statistic, second.statistic, strict=True)]
    if first.kind == "laplace":
        return float(sum(map(abs, moves)) / first.spread)
    if first.kind == "gaussian":
        return math.sqrt(sum(move * move for move in moves)) / float(first.spread)
    up, down = max(0, *moves), max(0, *(-move for move in moves))
    if first.kind == "selection":
        return float((max(moves) - min(moves)) * first.spread)
    run: SparseVector = first.spread
    # The threshold follows the score that rises most; every score that is found above makes up for that and its fall.
    return max(
        float(rise / run.threshold_scale + run.cutoff * (rise + fall) / run.score_scale)
        for rise, fall in ((up, down), (down, up))
    )


def vocabulary_delta(first: FilterCall, second: FilterCall, epsilon: float) -> float:
    """Return the delta that the vocabularies of two observed calls have at epsilon, from the law of what comes out."""
    if first.key_selection is None or first.key_selection != second.key_selection:
        raise AssertionError("the noise depends on the table")
    moved = sorted(name for name in {*first.keys, *second.keys} if first.keys.get(name) != second.keys.get(name))
    laws = [
        released_keys_law({name: seen.keys[name] for name in moved if name in seen.keys}, first.key_selection)
        for seen in (first, second)
    ]
    return max(excess(laws[0], laws[1], epsilon), excess(laws[1], laws[0], epsilon))


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
