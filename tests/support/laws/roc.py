"""Exact laws of the parts of dp_roc and dp_auc, from their definitions, and what their calls draw.

The laws are independent of the product: rows are a list, the smooth sensitivity is the maximum over all distances,
probabilities come from the arc tangent. `observe_roc` records every draw of one call through SQL, and `roc_loss` says
how far the draws of two calls on neighbouring tables tell them apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.mechanisms import auc, prefix_sums, quantile, smooth
from dpsql.testing.neighbours import Relation, Table, neighbouring_pairs
from support.laws.quantile import Cells, Rows, Split, halving_law

# (label, cell) of each row; True is the positive level.
Labelled = Sequence[tuple[bool, int]]
# (median, bound S, low, high, level from 0) -> law of the released cell
NoiseLaw = Callable[[int, float, int, int, int], Mapping[int, float]]


def discrete_laplace_law(centre: int, scale: float, *, reach: int) -> dict[int, float]:
    """Return value -> probability of an integer with discrete Laplace noise, cut off at -reach and reach.

    Either end takes all that lies beyond it; the centre is between them.
    """
    decay = math.exp(-1 / scale)
    return {
        value: decay ** abs(value - centre) / (1 + decay) * (1 - decay if abs(value) < reach else 1)
        for value in range(-reach, reach + 1)
    }


def cauchy_law(value: float, scale: float, *, lower: float, upper: float, steps: int) -> dict[int, float]:
    """Return point -> probability of `dpsql.mechanisms.smooth.cauchy_release`; `scale` is that constant times S."""
    width = (upper - lower) / steps
    edges = [-math.inf, *((lower + (point + 0.5) * width - value) / scale for point in range(steps)), math.inf]
    return {point: _between(edges[point], edges[point + 1]) for point in range(steps + 1)}


def cauchy_loss(centre: float, scale: float, other_centre: float, other_scale: float) -> float:
    """Return the largest log ratio of the densities of two Cauchy laws: their hyperbolic distance."""
    squares = (centre - other_centre) ** 2 + (scale - other_scale) ** 2
    return math.acosh(1 + squares / (2 * scale * other_scale))


def worst_step_loss(constant: float, beta: float, *, points: int = 64) -> float:
    """Return the largest loss of noise of `constant` times S, over all ways in which S and the centre may move.

    S moves by a factor up to ``exp(beta)``, the centre by the smaller S; `points` is how finely the factors are tried.
    """
    factors = (math.exp(beta * point / points) for point in range(points + 1))
    return max(cauchy_loss(0.0, constant, 1.0, constant * factor) for factor in factors)


def worst_median_loss(
    occupied: Sequence[int], cells: int, max_rows: int, relation: Relation, *, constant: float, beta: float
) -> float:
    """Return the largest loss of a median with noise of `constant` times S, over all neighbouring tables.

    Parameters
    ----------
    occupied : sequence of int
        Cells that rows may be in.
    cells, max_rows
        Cells of the grid; largest number of rows.
    relation : {'add_remove', 'replace'}
    constant, beta : float
        Of the noise, and of the smooth sensitivity.

    Notes
    -----
    Of the noisy median before it is rounded and cut off.
    """
    found = {}

    def release(table: Table) -> tuple[int, float]:
        if table not in found:
            rows = [row[0] for row in table]
            scale = constant * smooth_median_bound(rows, 0, cells - 1, beta)
            found[table] = lower_median(rows, 0), scale
        return found[table]

    pairs = neighbouring_pairs([(cell,) for cell in occupied], max_rows, relation)
    return max(cauchy_loss(*release(first), *release(second)) for first, second in pairs)


def best_beta(epsilon: float) -> float:
    """Return the beta that the product chooses for one step."""
    return max(epsilon / 2, min(math.log(2 * math.cosh(epsilon) - 1), epsilon * 15 / 16))


def least_scale(epsilon: float, beta: float) -> float:
    """Return the least constant for Cauchy noise at a smooth sensitivity."""
    first = 1 / (2 * math.sinh(epsilon / 2))
    return max(first, math.sqrt(math.exp(-beta) / (2 * (math.cosh(epsilon) - math.cosh(beta)))))


def lower_median(cells: Sequence[int], low: int) -> int:
    """Return the row of rank ceil(n / 2), or `low` without rows."""
    return sorted(cells)[(len(cells) + 1) // 2 - 1] if cells else low


def smooth_median_bound(cells: Sequence[int], low: int, high: int, beta: float) -> float:
    """Return the smooth sensitivity of the lower median: the bound of Nissim et al. with k from 0 to n + 1."""
    ordered = sorted(cells)
    middle = (len(ordered) + 1) // 2

    def at(rank: int) -> int:
        return low if rank < 1 else high if rank > len(ordered) else ordered[rank - 1]

    return max(
        math.exp(-k * beta) * max(at(middle + t) - at(middle + t - k - 1) for t in range(k + 2))
        for k in range(len(ordered) + 2)
    )


def smooth_medians_law(
    rows: Rows,
    cells: int,
    *,
    count: int,
    epsilon: Fraction,
    neighbours: str,
    max_rows_per_unit: int = 1,
) -> dict[Cells, float]:
    """Return the law of `dpsql.mechanisms.smooth.smooth_medians`.

    Parameters
    ----------
    rows : sequence of int or None
        The cell of each row, in [0, cells); None for a missing value.
    cells : int
        Cells of the grid.
    count, epsilon, neighbours, max_rows_per_unit
        As for `smooth_medians`.

    Returns
    -------
    law : dict
        Cells, one per median -> probability.
    """
    levels = math.ceil(math.log2(count + 1))

    def step(level: int) -> float:
        steps = max_rows_per_unit * (2 if neighbours == "replace" and level > 0 else 1)
        return float(epsilon) / levels / steps

    return medians_law(rows, cells, count, lambda level: best_beta(step(level)), calibrated(step))


def calibrated(step: Callable[[int], float]) -> NoiseLaw:
    """Return the noise of the product for a step of so much epsilon at each level."""

    def law(median: int, bound: float, low: int, high: int, level: int) -> Mapping[int, float]:
        scale = bound * least_scale(step(level), best_beta(step(level)))
        return shifted_cauchy(median, scale, low, high)

    return law


def shifted_cauchy(median: int, scale: float, low: int, high: int) -> dict[int, float]:
    """Return the law of a cell in [low, high] next to a median with Cauchy noise of that scale; beyond, the middle."""
    law = cauchy_law(median, scale, lower=low - 1, upper=high + 1, steps=high - low + 2)
    inside = {low - 1 + point: chance for point, chance in law.items() if 0 < point < high - low + 2}
    inside[(low + high) // 2] += law[0] + law[high - low + 2]
    return inside


def medians_law(
    rows: Rows,
    cells: int,
    count: int,
    beta: Callable[[int], float],
    noise: NoiseLaw,
    split: Split | None = None,
) -> dict[Cells, float]:
    """Return the joint law of medians by smooth sensitivity, halves and halves of halves.

    Parameters
    ----------
    rows, cells, count
        As for `smooth_medians_law`.
    beta : callable
        ``beta(level)`` of the smooth sensitivity.
    noise : callable
        ``noise(median, bound, low, high, level)``: the law of the released cell, for low < high.
    split : callable, optional
        As for `support.laws.quantile.halving_law`.
    """

    def cell_law(rows: Sequence[int], low: int, high: int, quantile: Fraction, level: int) -> Mapping[int, float]:
        if low == high:
            return {low: 1.0}
        bound = smooth_median_bound(rows, low, high, beta(level))
        return noise(lower_median(rows, low), bound, low, high, level)

    at = [Fraction(number, count + 1) for number in range(1, count + 1)]
    return halving_law(rows, cells, at, cell_law, split)


def area(rows: Labelled) -> Fraction:
    """Return the area under the ROC curve, a tie counting half; 1/2 when a class has no rows."""
    positives, negatives = ([cell for label, cell in rows if label == chosen] for chosen in (True, False))
    if not positives or not negatives:
        return Fraction(1, 2)
    twice = sum(2 * (p > n) + (p == n) for p in positives for n in negatives)
    return Fraction(twice, 2 * len(positives) * len(negatives))


def concordance(rows: Labelled) -> Fraction:
    """Return concordant less discordant pairs over the number of rows less one; 0 for fewer than two rows."""
    positives, negatives = ([cell for label, cell in rows if label == chosen] for chosen in (True, False))
    balance = sum((p > n) - (p < n) for p in positives for n in negatives)
    return Fraction(balance, len(rows) - 1) if len(rows) > 1 else Fraction(0)


def concordance_scales(epsilon: float, neighbours: str, max_rows_per_unit: int = 1) -> tuple[float, float]:
    """Return the scales of Laplace noise on the concordance and on each count."""
    m = max_rows_per_unit
    return (
        (m / (0.6 * epsilon), m / (0.4 * epsilon)) if neighbours == "add_remove" else (2 * m / epsilon, 4 * m / epsilon)
    )


def concordance_deviations(mu: float, neighbours: str, max_rows_per_unit: int = 1) -> tuple[float, float]:
    """Return the standard deviations of Gaussian noise on the concordance and on each count."""
    m = max_rows_per_unit
    if neighbours == "add_remove":
        return m / (0.8 * mu), m / (0.6 * mu)
    return 2 * m / mu, math.sqrt(2) * m / (0.866 * mu)


def area_smooth_bound(smaller: int, neighbours: str, beta: float) -> float:
    """Return the smooth sensitivity of the area: the maximum over all distances."""
    least = 2 if neighbours == "add_remove" else 1
    return max(math.exp(-k * beta) / max(smaller - k, least) for k in range(smaller + 2))


def area_law(
    rows: Labelled, *, epsilon: Fraction, neighbours: str, max_rows_per_unit: int = 1, steps: int = 1 << 20
) -> dict[int, float]:
    """Return the law of `dpsql.mechanisms.smooth.smooth_area`, as multiples of ``1 / steps``."""
    one = float(epsilon) / max_rows_per_unit
    beta = best_beta(one)
    positives = sum(label for label, _ in rows)
    bound = area_smooth_bound(min(positives, len(rows) - positives), neighbours, beta)
    return cauchy_law(float(area(rows)), bound * least_scale(one, beta), lower=0.0, upper=1.0, steps=steps)


def _between(low: float, high: float) -> float:
    """Return the mass of the standard Cauchy law between two points, without cancellation."""
    if math.isinf(low) or math.isinf(high):
        tail = 0.5 if math.isinf(low) and math.isinf(high) else math.atan2(1.0, -high if math.isinf(low) else low)
        return 1.0 if math.isinf(low) and math.isinf(high) else tail / math.pi
    return math.atan2(high - low, 1 + low * high) / math.pi


@dataclass(frozen=True)
class RocDraw:
    """One draw of a call.

    Attributes
    ----------
    kind : {'laplace', 'gaussian', 'choice', 'cauchy'}
    statistic : tuple
        What the noise was for: products, utilities, or value and scale.
    spread : float
        Scale of Laplace noise; mu over the sensitivity of Gaussian noise; coefficient of the utilities; 1 for Cauchy.
    answer : object
        What came out.
    """

    kind: str
    statistic: tuple[Any, ...]
    spread: float
    answer: Any


@dataclass(frozen=True)
class RocLoss:
    """How far two neighbours can be told apart by one call.

    Attributes
    ----------
    epsilon : float
        Largest log ratio of all draws but Gaussian ones; inf when the draws do not match.
    mu : float
        Distance of the means of Gaussian draws, in standard deviations.
    """

    epsilon: float
    mu: float


@contextmanager
def observe_roc(answers: Sequence[RocDraw] | None = None) -> Iterator[list[RocDraw]]:
    """Record the draws of the calls in the context; with `answers`, choices repeat those, one by one.

    Repeating the choices is what comparing two adaptive calls takes: given the same thresholds, the counts between them
    are the same statistic.
    """
    found: list[RocDraw] = []
    forced = iter([draw for draw in answers or () if draw.kind in ("choice", "cauchy")])
    products: list[Any] = []

    def chosen(kind: str, statistic: tuple[Any, ...], spread: float, answer: Any) -> Any:
        if answers is not None:
            repeated = next(forced, None)
            answer = answer if repeated is None else repeated.answer
        found.append(RocDraw(kind, statistic, spread, answer))
        return answer

    def select(utility: Any, *, utility_range: int, epsilon: Fraction, **options: Any) -> Any:
        answer = real["select"](utility, utility_range=utility_range, epsilon=epsilon, **options)
        return chosen("choice", tuple(int(u) for u in utility), float(epsilon / utility_range), answer)

    def cauchy(value: Fraction, bound: Any, *, scale: Fraction, **options: Any) -> Any:
        answer = real["cauchy_release"](value, bound, scale=scale, **options)
        size = float(scale * bound.bounds(40)[1] / 10**40)
        return chosen("cauchy", (float(value), size), 1.0, answer)

    def multiply(*given: Any) -> Any:
        products.append(real["_products"](*given))
        return products[-1]

    def laplace(scale: Fraction, size: int, **options: Any) -> Any:
        noise = real["discrete_laplace"](scale, size, **options)
        found.append(RocDraw("laplace", tuple(map(int, products.pop())), float(scale), noise))
        return noise

    def gaussian(counts: Any, *, squared_sensitivity: int, squared_mu: Fraction, **options: Any) -> Any:
        products.pop()
        given = {"squared_sensitivity": squared_sensitivity, "squared_mu": squared_mu}
        answer = real["gaussian_counts"](counts, **given, **options)
        statistic = tuple(int(value) for value in counts)
        found.append(RocDraw("gaussian", statistic, math.sqrt(squared_mu / squared_sensitivity), answer))
        return answer

    def with_laplace(values: list[int], scale: Fraction) -> Any:
        answer = real["_with_laplace"](values, scale)
        found.append(RocDraw("laplace", tuple(values), float(scale), answer))
        return answer

    def with_gaussian(values: list[int], squared_sensitivity: int, mu: Fraction) -> Any:
        answer = real["_with_gaussian"](values, squared_sensitivity, mu)
        found.append(RocDraw("gaussian", tuple(values), float(mu) / math.sqrt(squared_sensitivity), answer))
        return answer

    places = {
        "_with_laplace": (auc, with_laplace),
        "_with_gaussian": (auc, with_gaussian),
        "select": (quantile, select),
        "cauchy_release": (smooth, cauchy),
        "_products": (prefix_sums, multiply),
        "discrete_laplace": (prefix_sums, laplace),
        "gaussian_counts": (prefix_sums, gaussian),
    }
    real = {name: getattr(module, name) for name, (module, _) in places.items()}
    try:
        for name, (module, stand_in) in places.items():
            setattr(module, name, stand_in)
        yield found
    finally:
        for name, (module, _) in places.items():
            setattr(module, name, real[name])


def roc_loss(first: Sequence[RocDraw], second: Sequence[RocDraw]) -> RocLoss:
    """Return how far the draws of two calls tell their tables apart; the second repeats the choices of the first."""
    epsilon = squared = 0.0
    if [(one.kind, one.spread) for one in first] != [(other.kind, other.spread) for other in second]:
        return RocLoss(math.inf, math.inf)
    for one, other in zip(first, second, strict=True):
        if one.kind == "cauchy":
            epsilon += cauchy_loss(*one.statistic, *other.statistic)
            continue
        if len(one.statistic) != len(other.statistic):
            return RocLoss(math.inf, math.inf)
        moves = np.array([int(b) - int(a) for a, b in zip(one.statistic, other.statistic, strict=True)], dtype=object)
        if one.kind == "choice":
            epsilon += one.spread * int(moves.max() - moves.min())
        elif one.kind == "laplace":
            epsilon += int(abs(moves).sum()) / one.spread
        else:
            squared += one.spread**2 * int((moves**2).sum())
    return RocLoss(epsilon, math.sqrt(squared))
