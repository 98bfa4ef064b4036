"""Strata: every subset is in exactly one, and none that is not listed scores below its stratum's bound."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from dpsql.kernels import best_subsets as search
from dpsql.kernels import subset_strata as module
from dpsql.kernels.ball_least_squares import BallLeastSquares
from dpsql.kernels.best_subsets import best_subsets
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.subset_strata import subset_strata
from dpsql.mechanisms.subset_exponential import Strata, SubsetRejection
from dpsql.mechanisms.subsets import SubsetList
from support.cases import cases

WIDTH, SIZE = 11, 4
SUBSETS = np.array(list(combinations(range(WIDTH), SIZE)))


def noise(rng):
    return rng.normal(size=(60, WIDTH)) / 4


def correlated(rng):
    return noise(rng) / 3 + rng.normal(size=(60, 1)) / 4


def collinear(rng):
    x = noise(rng)
    x[:, 3] = (x[:, 0] + x[:, 1]) / 2
    x[:, 6] = -x[:, 5] / 2
    return x


def duplicated(rng):
    x = noise(rng)
    x[:, 1] = x[:, 0]
    x[:, 7] = x[:, 0]
    x[:, 9] = x[:, 8] + rng.normal(size=60) / 100
    x[:, 4] = 0
    return x


def few_rows(rng):
    return rng.normal(size=(3, WIDTH)) / 4


DESIGNS = [noise, correlated, collinear, duplicated, few_rows]


def statistics(design, seed, forced=0, slope=0.3):
    rng = np.random.default_rng(seed)
    x = design(rng)
    y = slope * x[:, :3].sum(axis=1) + rng.normal(size=len(x)) / 4
    columns = np.column_stack((np.ones((len(x), forced)), x, y))
    data = np.rint(np.clip(columns, -1, 1) * FIXED_POINT_ONE).astype(np.int64).astype(object)
    products = data.T.dot(data)
    return products[:-1, :-1], products[:-1, -1], int(products[-1, -1])


def strata_of(problem, monkeypatch, radius, ridge, forced, count, node_limit=None, most=None):
    monkeypatch.setattr(search, "_ENUMERATED", 0)
    if most is not None:
        monkeypatch.setattr(module, "_MOST_STRATA", most)
    options = {"radius": Fraction(radius), "ridge": Fraction(ridge), "forced": forced}
    found = best_subsets(*problem, size=SIZE, count=count, node_limit=node_limit, **options)
    canonical = BallLeastSquares(*problem, **options)
    keywords = {} if most is None else {"most": most}
    return canonical, found, Strata(*subset_strata(canonical, found, **keywords))


def stratum_of(strata):
    """The one stratum of every subset."""
    held = (strata.classes[:, SUBSETS][:, :, :, None] == np.arange(strata.counts.shape[1])).sum(axis=2)
    inside = (held[strata.division] == strata.counts[:, None]).all(axis=2)
    assert (inside.sum(axis=0) == 1).all()
    assert inside.any(axis=1).all()
    return inside.argmax(axis=0)


@cases("design", DESIGNS, quick=2)
@cases(("radius", "ridge", "forced"), [("11/10", 0, 0), ("11/10", "1/3", 1), ("1/10", 0, 0), ("1/20", 2, 1)])
@cases(("count", "node_limit", "most"), [(30, None, None), (1, 1, 60), (5, None, 400), (2, 3, 1)])
def test_every_subset_is_in_one_stratum_and_keeps_its_bound(
    monkeypatch, design, radius, ridge, forced, count, node_limit, most
):
    for seed, slope in ((0, 0.3), (1, 3.0), (2, 0.0)):
        problem = statistics(design, seed, forced, slope)
        canonical, found, strata = strata_of(problem, monkeypatch, radius, ridge, forced, count, node_limit, most)
        stratum = stratum_of(strata)
        listed = {tuple(row) for row in found.subsets.tolist()}
        unlisted = np.array([tuple(row) not in listed for row in SUBSETS.tolist()])
        scores = canonical.scores(SUBSETS)
        assert (scores >= strata.lower_bounds[stratum])[unlisted].all()
        # The sampler takes them for a partition too.
        coefficient = Fraction(1, 1 << 24)
        sampler = SubsetRejection(
            SubsetList(found.subsets, WIDTH), found.scores, found.lower_bound, canonical.scores, coefficient
        )
        sampler._stratify(strata)
        assert sampler._members == np.bincount(stratum).tolist()


def test_bounds_are_tight_where_columns_hardly_correlate(monkeypatch):
    """The best subset of a stratum of one more column scores its bound, but for rounding; others stay near."""
    canonical, found, strata = strata_of(statistics(noise, 0), monkeypatch, "11/10", 0, 0, 1)
    stratum = stratum_of(strata)
    scores = canonical.scores(SUBSETS)
    best = np.full(len(strata.counts), 1 << 62)
    np.minimum.at(best, stratum, scores)
    n_strong = sum((strata.classes == strata.classes[0]).all(axis=0))
    assert n_strong >= SIZE
    one_more = strata.counts[:, :n_strong].sum(axis=1) >= SIZE - 1
    excess = (best - strata.lower_bounds)[strata.lower_bounds > found.lower_bound]
    close = (best - strata.lower_bounds)[one_more & (strata.lower_bounds > found.lower_bound)]
    assert len(close) > 10
    assert close.max() <= 32
    assert np.median(excess) < 0.5 * (scores.max() - scores.min())


@pytest.mark.parametrize("by", [1, 1000])
def test_a_bound_that_is_too_high_is_noticed(monkeypatch, by):
    """The comparison above would see it: bounds of one more column raised by little."""
    canonical, _, strata = strata_of(statistics(noise, 0), monkeypatch, "11/10", 0, 0, 1)
    scores = canonical.scores(SUBSETS)
    assert (scores < strata.lower_bounds[stratum_of(strata)] + 32 * by).sum() >= 10


@cases(
    ("width", "size", "most"),
    [(5, 5, 20_000), (5, 1, 20_000), (40, 3, 20_000), (40, 20, 20_000), (30, 4, 5), (6, 3, 2)],
    quick=1,
)
def test_any_shape(width, size, most):
    rng = np.random.default_rng(width)
    data = rng.integers(-FIXED_POINT_ONE, FIXED_POINT_ONE + 1, size=(100, width + 1)).astype(object)
    products = data.T.dot(data)
    problem = (products[:-1, :-1], products[:-1, -1], int(products[-1, -1]))
    options = {"radius": Fraction(1), "ridge": Fraction(0)}
    found = best_subsets(*problem, size=size, count=3, node_limit=50, **options)
    strata = Strata(*subset_strata(BallLeastSquares(*problem, **options), found, most=most))
    assert len(strata.counts) <= max(most, size + 1)
    listed = SubsetList(found.subsets, width)
    if len(listed) < listed.total:
        SubsetRejection(listed, found.scores, found.lower_bound, None, Fraction(1))._stratify(strata)


def test_single_columns_some_of_them_equal():
    problem, options = statistics(duplicated, 0), {"radius": Fraction(1), "ridge": Fraction(0)}
    found = best_subsets(*problem, size=1, count=2, **options)
    canonical = BallLeastSquares(*problem, **options)
    strata = Strata(*subset_strata(canonical, found, most=4))
    sampler = SubsetRejection(SubsetList(found.subsets, WIDTH), found.scores, 0, canonical.scores, Fraction(1))
    sampler._stratify(strata)
    assert sum(sampler._members) == WIDTH
