"""Comparisons: where the population has no difference, `differs` is said in at most 5 % of calls, noise and sampling
included; and intervals hold the population's difference.

Each call has fresh rows and fresh noise. Populations are skewed, discrete, or of rare values, and groups are small or
uneven. A false alarm rate of 5 % exceeds the limits below with a chance of 1e-6 at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom, poisson, t

from dpsql.contract.fold import Batch
from dpsql.contract.measurement import draw_once
from dpsql.functions.compare import CompareCall, ComparePlan, draw_areas, draw_sums
from dpsql.released.comparison import comparison_rows
from dpsql.released.sampling import count_reach_of_sampling, mean_reaches, student
from support.cases import cases

GROUPED = {"groups": "g", "keys": [0, 1]}
PAIRED = {"scores": ["s1", "s2"], "label": "g"}
Rows = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def call_of(**given: Any) -> CompareCall:
    """Return a call on numeric columns."""
    plan = ComparePlan.from_arguments("t", given)
    names = (plan.layout.target, *(plan.layout.features or ()))
    return CompareCall.resolve(plan, pa.struct([(name, pa.float64()) for name in names]), {})


def compare(call: CompareCall, rows: Rows) -> dict[str, Any]:
    """Return the row of a comparison of labels, shape (n,), and values or scores, shape (d, n)."""
    labels, values = rows
    collector: Any = call.start()
    coded = call.target.code(pa.array(labels, type=pa.float64()))
    collector.add(coded, np.array(values, dtype=np.float64), Batch())
    plan: Any = call.plan
    if plan.of == "auc":
        pairs = collector.disagreement(plan.pairs_bits) if plan.sampling else 0
        found: Any = draw_once(draw_areas, plan, collector, pairs)
    else:
        found = draw_once(draw_sums, plan, collector.compared())
    [row] = comparison_rows(found)
    return dict(row)


def groups(first: int, second: int, draw: Callable[[np.random.Generator, int], Any]) -> Callable[..., Rows]:
    def rows(rng: np.random.Generator) -> Rows:
        return np.repeat([0.0, 1.0], [first, second]), draw(rng, first + second)[np.newaxis]

    return rows


def scores(positives: int, negatives: int, shift: float, shared: float) -> Callable[..., Rows]:
    """Return rows with two exchangeable scores, which share a part of their noise."""

    def rows(rng: np.random.Generator) -> Rows:
        labels = np.repeat([1.0, 0.0], [positives, negatives])
        common = rng.normal(size=len(labels))
        own = rng.normal(size=(2, len(labels)))
        latent = shift * labels + shared * common + (1 - shared**2) ** 0.5 * own
        return labels, 1 / (1 + np.exp(-latent))

    return rows


def poisson_groups(rng: np.random.Generator) -> Rows:
    first, second = rng.poisson(40, size=2)
    return np.repeat([0.0, 1.0], [first, second]), np.empty((0, first + second))


MEANS = {**GROUPED, "of": "mean", "target": "x", "lower": 0, "upper": 10}
SHARES = {**GROUPED, "of": "share", "target": "x"}
ERRORS = {**PAIRED, "of": "error"}
# Populations without a difference: arguments, and rows.
NULLS: dict[str, tuple[dict[str, Any], Callable[..., Rows]]] = {
    "mean, skewed": (MEANS, groups(60, 60, lambda rng, n: np.minimum(rng.exponential(1.0, n), 10))),
    "mean, skewed and uneven": (MEANS, groups(5, 5000, lambda rng, n: np.minimum(rng.lognormal(0, 1, n), 10))),
    "mean, wide": (MEANS, groups(2000, 1000, lambda rng, n: rng.uniform(0, 10, n))),
    "mean, rare": (MEANS, groups(50, 400, lambda rng, n: 10.0 * (rng.random(n) < 0.01))),
    "share, even": (SHARES, groups(40, 40, lambda rng, n: 1.0 * (rng.random(n) < 0.5))),
    "share, uneven": (SHARES, groups(5, 5000, lambda rng, n: 1.0 * (rng.random(n) < 0.5))),
    "share, rare": (SHARES, groups(300, 3000, lambda rng, n: 1.0 * (rng.random(n) < 0.004))),
    "count": ({**GROUPED, "of": "count"}, poisson_groups),
    "error": (ERRORS, scores(50, 50, 1.0, 0.5)),
    "error, uneven": (ERRORS, scores(5, 5000, 0.5, 0.0)),
    "error, squared": ({**ERRORS, "loss": "squared", "lower": 0, "upper": 1}, scores(30, 100, 1.0, 0.8)),
    "auc": ({**PAIRED, "of": "auc"}, scores(60, 60, 1.0, 0.0)),
    "auc, alike": ({**PAIRED, "of": "auc"}, scores(100, 300, 1.0, 0.95)),
    "auc, uneven": ({**PAIRED, "of": "auc"}, scores(5, 5000, 1.0, 0.0)),
    "auc, nearly perfect": ({**PAIRED, "of": "auc"}, scores(40, 40, 3.0, 0.5)),
}
# Nearly no noise, so that sampling decides; and a usual budget.
BUDGETS = (1000.0, 1.0)


def false_alarms(name: str, epsilon: float, draws: int, *, seed: int = 1, **more: Any) -> tuple[int, int]:
    """Return how many calls said 'differs', and how many were undetermined."""
    given, rows = NULLS[name]
    call = call_of(**{**given, "epsilon": epsilon, **more})
    rng = np.random.default_rng(seed)
    verdicts = [compare(call, rows(rng))["verdict"] for _ in range(draws)]
    return verdicts.count("differs"), verdicts.count("undetermined")


def most(draws: int) -> int:
    """Return the largest number of alarms that a rate of 5 % explains."""
    return int(binom.isf(1e-6, draws, 0.05))


@cases("epsilon", BUDGETS)
@cases("name", NULLS)
def test_no_difference_is_rarely_told(name: str, epsilon: float) -> None:
    assert false_alarms(name, epsilon, 150)[0] <= most(150)


@pytest.mark.parametrize(("first", "second"), [(5, 5), (40, 40), (5, 5000), (20, 300), (100, 100)])
def test_shares_without_noise_are_right_at_every_share(first: int, second: int) -> None:
    """Exactly, over all pairs of counts: two equal shares differ in at most 5 % of samples."""
    ways = [
        np.stack([z, *mean_reaches(z, 1 - z * z, np.full_like(z, rows), 0.05)[:2]], axis=1)
        for rows in (first, second)
        for z in [2 * np.arange(rows + 1) / rows - 1]
    ]
    one, other = ways[0][:, np.newaxis], ways[1][np.newaxis]
    difference = one[..., 0] - other[..., 0]
    low = difference - np.hypot(one[..., 1], other[..., 2])
    high = difference + np.hypot(one[..., 2], other[..., 1])
    for share in (0.01, 0.05, 0.1, 0.3, 0.5):
        law = np.outer(*(binom.pmf(np.arange(rows + 1), rows, share) for rows in (first, second)))
        assert law[(low > 0) | (high < 0)].sum() <= 0.05


@pytest.mark.parametrize("freedom", [3.0, 7.5, 60.0, 250.0])
def test_student(freedom: float) -> None:
    for tail in (0.1, 0.05, 1e-3):
        assert student(tail, freedom) == pytest.approx(t.isf(tail / 2, freedom), rel=2e-3)


@pytest.mark.parametrize("expected", [2, 10, 40, 200])
def test_counts_without_noise_are_right_at_every_size(expected: int) -> None:
    """Exactly, over all pairs of Poisson counts: two equal rates differ in at most 5 % of samples."""
    counts = np.arange(int(expected + 12 * expected**0.5 + 20))
    law = np.outer(*[poisson.pmf(counts, expected)] * 2)
    reach = np.array([count_reach_of_sampling(rows, 1, 0.05)[0] for rows in range(2 * len(counts))])
    told = np.abs(counts[:, np.newaxis] - counts) > reach[counts[:, np.newaxis] + counts]
    assert 0.001 < law[told].sum() <= 0.05
