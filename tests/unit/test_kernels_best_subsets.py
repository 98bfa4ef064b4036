from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from dpsql.kernels import best_subsets as module
from dpsql.kernels import best_subsets_compiled, best_subsets_numpy
from dpsql.kernels.ball_least_squares import SCORE_CAP, SCORE_UNIT, SCORE_WIDTH, BallLeastSquares
from dpsql.kernels.best_subsets import LIST_WIDTH, best_subsets
from dpsql.kernels.best_subsets_bounds import Relaxation, SearchSpace, least_eigenvalue, margin, sparse_eigenvalues
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.gram import gram_products
from support.cases import cases

KINDS = ("plain", "equal", "zero", "signs", "one-hot", "opposite", "nearly equal", "sum")
ENGINES = {"numpy": None, "compiled": best_subsets_compiled}


@pytest.fixture(params=ENGINES)
def engine(request, monkeypatch):
    """Run with either search; without the short cut for few subsets."""
    monkeypatch.setattr(module, "compiled_kernels", lambda work: ENGINES[request.param])
    monkeypatch.setattr(module, "_ENUMERATED", 0)
    return request.param


def table(seed, rows, columns, kind="plain", forced=0):
    generator = np.random.default_rng(seed)
    values = generator.uniform(-1, 1, (rows, columns + forced))
    chosen = values[:, forced:]
    if kind == "equal":
        chosen[:, 1], chosen[:, 2] = chosen[:, 0], chosen[:, 3]
    elif kind == "zero":
        chosen[:, :3] = 0
    elif kind == "signs":
        chosen[:] = np.sign(chosen)
    elif kind == "one-hot":
        chosen[:] = np.eye(columns)[generator.integers(0, columns, rows)]
    elif kind == "opposite":
        chosen[:, 4] = -chosen[:, 0]
    elif kind == "nearly equal":
        chosen[:, 1], chosen[:, 2] = chosen[:, 0] * (1 - 1e-5), 0.98 * chosen[:, 0] + 0.02 * chosen[:, 3]
    elif kind == "sum":
        chosen[:, 2] = (chosen[:, 0] + chosen[:, 1]) / 2
    if forced:
        values[:, 0] = 1
    target = values @ generator.normal(0, 0.5, columns + forced) + 0.3 * generator.normal(size=rows)
    return np.rint(np.clip(np.column_stack((values, target)), -1, 1) * FIXED_POINT_ONE)


def design(seed, rows, columns, size, correlation, ratio):
    """Correlated normal columns and a sparse signal, clipped at 0.5."""
    generator = np.random.default_rng(seed)
    noise = generator.standard_normal((rows, columns))
    values = noise.copy()
    for j in range(1, columns):
        values[:, j] = correlation * values[:, j - 1] + math.sqrt(1 - correlation**2) * noise[:, j]
    signal = values[:, 1 : 2 * size : 2].sum(axis=1) / math.sqrt(size)
    target = signal + generator.standard_normal(rows) * math.sqrt(signal.var() / ratio)
    return np.rint(np.clip(np.column_stack((values, target)) * 2, -1, 1) * FIXED_POINT_ONE)


def statistics(rows, times=1):
    products = gram_products(rows).astype(object) * times
    return products[:-1, :-1], products[:-1, -1], int(products[-1, -1])


def check(problem, found, every, scores, count, complete):
    """Compare a result with the scores of all subsets."""
    listed = {tuple(subset) for subset in found.subsets.tolist()}
    assert len(listed) == len(found.subsets)
    assert (np.diff(found.subsets, axis=1) > 0).all()
    assert (found.scores == problem.scores(found.subsets)).all()
    keys = list(zip(found.scores.tolist(), found.subsets.tolist(), strict=True))
    assert keys == sorted(keys)
    others = [
        score for subset, score in zip(every.tolist(), scores.tolist(), strict=True) if tuple(subset) not in listed
    ]
    assert 0 <= found.lower_bound <= min(others, default=SCORE_CAP)
    if complete:
        assert found.exhausted
        assert len(listed) == min(count, len(every))
        assert (found.scores == np.sort(scores)[:count]).all()
        assert found.lower_bound >= found.scores[-1]


@cases("kind", KINDS, quick=1)
def test_equals_brute_force(engine, kind):
    for seed in range(5):
        generator = np.random.default_rng([seed, KINDS.index(kind)])
        columns, size = int(generator.integers(6, 13)), int(generator.integers(1, 5))
        forced, rows = int(generator.integers(0, 2)), int(generator.integers(3, 60))
        statistic = statistics(table(seed, rows, columns, kind, forced), int(10 ** generator.integers(0, 8)))
        options = {
            "radius": Fraction(int(generator.integers(1, 30)), 10),
            "ridge": Fraction(int(generator.choice([0, 0, 1, 50])), 3),
            "forced": forced,
        }
        problem = BallLeastSquares(*statistic, **options)
        every = np.array(list(combinations(range(columns), size)))
        scores = problem.scores(every)
        for count in (1, 7, 60):
            found = best_subsets(*statistic, size=size, count=count, **options)
            # Ties at the end of the list may be cut off a little early; the bound then says so.
            check(problem, found, every, scores, count, complete=False)
            assert found.exhausted
            assert len(found.scores) == min(count, len(every))
            wrong = found.scores - np.sort(scores)[:count]
            assert wrong.min() >= 0
            assert wrong.max() <= LIST_WIDTH / SCORE_UNIT
            for node_limit in (0, 1, 5):
                stopped = best_subsets(*statistic, size=size, count=count, node_limit=node_limit, **options)
                check(problem, stopped, every, scores, count, complete=False)


@cases("radius", ["1/5", "11/10"], quick=2, alone=True)
def test_equals_brute_force_at_a_larger_size(engine, radius):
    statistic = statistics(design(3, 400, 22, 4, 0.6, 1.0))
    options = {"radius": Fraction(radius), "ridge": Fraction(5)}
    problem = BallLeastSquares(*statistic, **options)
    every = np.array(list(combinations(range(22), 4)))
    scores = problem.scores(every)
    for count in (1, 20, 500):
        check(problem, best_subsets(*statistic, size=4, count=count, **options), every, scores, count, complete=True)


@pytest.mark.parametrize("count", [1, 9, 10, 500])
def test_few_subsets_are_listed_as_they_are(count):
    statistic = statistics(table(1, 30, 10))
    found = best_subsets(*statistic, size=1, count=count, radius=Fraction(1), ridge=Fraction(0))
    assert len(found.scores) == min(count, 10)
    assert (found.lower_bound == SCORE_CAP) == (count >= 10)
    assert found.exhausted


def test_both_searches_agree(monkeypatch):
    statistic = statistics(design(1, 300, 60, 5, 0.7, 1.0))
    results = []
    for kernels in ENGINES.values():
        monkeypatch.setattr(module, "compiled_kernels", lambda work, kernels=kernels: kernels)
        results.append(best_subsets(*statistic, size=5, count=300, radius=Fraction(11, 10), ridge=Fraction(0)))
    first, second = results
    assert (first.subsets == second.subsets).all()
    assert (first.scores == second.scores).all()
    assert min(first.nodes, second.nodes) > 100


def test_the_compiled_search_takes_over(monkeypatch):
    """Kernels that become ready in the middle finish the work, and nothing is listed twice."""
    statistic = statistics(design(1, 300, 60, 5, 0.7, 1.0))
    options = {"size": 5, "count": 300, "radius": Fraction(11, 10), "ridge": Fraction(0)}
    monkeypatch.setattr(module, "compiled_kernels", lambda work: None)
    expected = best_subsets(*statistic, **options)
    monkeypatch.setattr(module, "compiled_kernels", lambda work: best_subsets_compiled if work else None)
    monkeypatch.setattr(best_subsets_numpy.Search, "cells_per_run", 1)
    found = best_subsets(*statistic, **options)
    assert (found.subsets == expected.subsets).all()
    assert len(np.unique(found.subsets, axis=0)) == 300


@cases("kind", ["zero columns", "equal columns", "nothing"])
def test_many_ties(engine, kind):
    """More subsets tie than can be listed: the search ends, and the bound is the tie."""
    generator = np.random.default_rng(1)
    values = np.zeros((100, 40))
    if kind == "zero columns":
        values[:, :2] = generator.uniform(-1, 1, (100, 2))
    elif kind == "equal columns":
        values[:] = generator.uniform(-1, 1, (100, 1))
    target = np.clip(values[:, 0] + 0.1 * generator.normal(size=100), -1, 1) if kind != "nothing" else np.zeros(100)
    statistic = statistics(np.rint(np.column_stack((values, target)) * FIXED_POINT_ONE))
    found = best_subsets(*statistic, size=4, count=50, radius=Fraction(1), ridge=Fraction(0))
    assert found.exhausted
    assert len(np.unique(found.subsets, axis=0)) == 50
    assert found.scores[-1] - found.lower_bound <= LIST_WIDTH / SCORE_UNIT
    problem = BallLeastSquares(*statistic, radius=Fraction(1), ridge=Fraction(0))
    others = np.sort(generator.permuted(np.tile(np.arange(40), (500, 1)), axis=1)[:, :4], axis=1)
    listed = {tuple(subset) for subset in found.subsets.tolist()}
    assert all(
        score >= found.lower_bound
        for subset, score in zip(others.tolist(), problem.scores(others).tolist(), strict=True)
        if tuple(subset) not in listed
    )


def test_equal_columns_do_not_stop_the_search(engine):
    """Every column twice, exactly or nearly: bounds without a form of their own for pairs would prune nothing."""
    rows = design(2, 900, 60, 5, 0.1, 5.0)
    noise = np.random.default_rng(2).normal(size=(900, 60)) * 0.02 * FIXED_POINT_ONE
    for twin in (rows[:, :-1], np.rint(np.clip(rows[:, :-1] + noise, -FIXED_POINT_ONE, FIXED_POINT_ONE))):
        statistic = statistics(np.column_stack((rows[:, :-1], twin, rows[:, -1])))
        found = best_subsets(*statistic, size=5, count=300, radius=Fraction(11, 10), ridge=Fraction(0))
        assert found.exhausted
        assert found.nodes < 2_000
        assert found.lower_bound >= found.scores[-1] - LIST_WIDTH / SCORE_UNIT


def test_a_threshold_that_comes_too_early_shows(engine, monkeypatch):
    """Seeds counted twice lower the threshold too soon: sets go missing, and the lower bound admits it."""
    statistic = statistics(design(3, 400, 22, 4, 0.6, 1.0))
    options = {"size": 4, "count": 40, "radius": Fraction(11, 10), "ridge": Fraction(0)}
    expected = best_subsets(*statistic, **options)
    seed = module._seed

    def twice(*arguments):
        sets, multiplier = seed(*arguments)
        return np.repeat(sets, 2, axis=0), multiplier

    monkeypatch.setattr(module, "_seed", twice)
    assert (best_subsets(*statistic, **options).subsets == expected.subsets).all()
    monkeypatch.setattr(module, "_distinct", lambda sets: np.arange(len(sets)))
    broken = best_subsets(*statistic, **options)
    assert len({tuple(subset) for subset in broken.subsets.tolist()}) < 40
    assert broken.lower_bound < expected.lower_bound
    problem = BallLeastSquares(*statistic, radius=Fraction(11, 10), ridge=Fraction(0))
    listed = {tuple(subset) for subset in broken.subsets.tolist()}
    others = [subset for subset in combinations(range(22), 4) if subset not in listed]
    assert broken.lower_bound <= problem.scores(others).min()


def test_dual_values_that_fall_short_are_made_good(engine, monkeypatch):
    """Lower bounds in place of scores give a threshold too low; the second search goes up to the scores themselves."""
    statistic = statistics(design(3, 400, 22, 4, 0.6, 1.0))
    options = {"size": 4, "count": 40, "radius": Fraction(11, 10), "ridge": Fraction(0)}
    expected = best_subsets(*statistic, **options)
    dual = BallLeastSquares.dual
    monkeypatch.setattr(BallLeastSquares, "dual", lambda self, sets: dual(self, sets) * (1 - 1e-3))
    found = best_subsets(*statistic, **options)
    assert (found.subsets == expected.subsets).all()
    assert found.lower_bound >= found.scores[-1]


def test_a_tick_is_told_nothing_and_may_stop_the_search(monkeypatch):
    monkeypatch.setattr(module, "compiled_kernels", lambda work: None)
    monkeypatch.setattr(best_subsets_numpy.Search, "cells_per_run", 1)
    statistic = statistics(design(1, 300, 60, 5, 0.7, 1.0))
    options = {"size": 5, "count": 300, "radius": Fraction(11, 10), "ridge": Fraction(0)}
    seen = []
    best_subsets(*statistic, **options, tick=lambda *given: seen.append(given))
    assert len(seen) > 10
    assert set(seen) == {()}

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        best_subsets(*statistic, **options, tick=stop)


def test_sparse_eigenvalues_are_lower_bounds():
    for seed in range(5):
        rows = table(seed, 30, 9, KINDS[seed])
        space = Relaxation(BallLeastSquares(*statistics(rows), radius=Fraction(1), ridge=Fraction(0)), 0.1)
        bounds = sparse_eigenvalues(space.gram, 4)
        for size in range(1, 5):
            least = min(
                np.linalg.eigvalsh(space.gram[np.ix_(block, block)])[0] for block in combinations(range(9), size)
            )
            assert bounds[size - 1] <= least + 1e-12
        whole = np.linalg.eigvalsh(space.gram)[0]
        assert least_eigenvalue(space.gram) <= whole
        assert least_eigenvalue(space.gram) >= 0.9 * whole - 0.05 or whole < 2e-3


def test_close_pairs_get_a_form_of_their_own():
    """Blocks of the search space have larger eigenvalues, and every subset keeps its relaxed score."""
    problem = BallLeastSquares(*statistics(table(1, 200, 8, "nearly equal")), radius=Fraction(1), ridge=Fraction(0))
    relaxation = Relaxation(problem, 0.5)
    space = SearchSpace(relaxation, 3)
    assert len(space.cross) > 8
    seen = {}
    for found in combinations(range(len(space.cross)), 3):
        if any(space.conflicts[pair] for pair in combinations(found, 2)):
            continue
        block = space.gram[np.ix_(found, found)]
        assert np.linalg.eigvalsh(block)[0] >= space.kappas[2]
        (subset,) = space.subsets(np.array([found], dtype=np.int32)).tolist() or ([],)
        if subset:
            cross = space.cross[list(found)]
            seen[tuple(sorted(subset))] = space.constant - cross @ np.linalg.solve(block, cross)
    assert len(seen) == math.comb(8, 3)
    for subset, score in seen.items():
        assert score == pytest.approx(relaxation.eliminate(subset)[0], rel=1e-9)


def test_rounding_stays_within_the_margin():
    """Relaxed scores in doubles against canonical ones, where doubles are worst: many rows and nearly equal columns."""
    for kind in KINDS:
        problem = BallLeastSquares(
            *statistics(table(7, 50, 8, kind), 10**7), radius=Fraction(11, 10), ridge=Fraction(0)
        )
        every = np.array(list(combinations(range(8), 3)))
        scores = problem.scores(every) * float(SCORE_UNIT)
        assert (problem.dual(every) <= scores + margin(problem, 3) + float(SCORE_UNIT)).all()
        relaxation = Relaxation(problem, float(np.median(problem.multipliers(every))))
        relaxed = np.array([relaxation.eliminate(subset)[0] for subset in every.tolist()])
        assert (relaxed <= scores + margin(problem, 3) + float(SCORE_UNIT)).all()
        assert margin(problem, 3) < 1e-12 * problem.constant * 20 + float(SCORE_WIDTH)


def test_results_repeat(engine):
    statistic = statistics(design(5, 300, 40, 4, 0.5, 1.0))
    options = {"size": 4, "count": 100, "radius": Fraction(4, 5), "ridge": Fraction(1)}
    first, second = best_subsets(*statistic, **options), best_subsets(*statistic, **options)
    assert (first.subsets == second.subsets).all()
    assert (first.scores == second.scores).all()
    assert (first.lower_bound, first.nodes) == (second.lower_bound, second.nodes)


def test_small_first_calls_load_no_compiler():
    code = (
        "import sys, numpy as np; from fractions import Fraction; from dpsql.kernels.best_subsets import best_subsets; "
        "from dpsql.kernels.gram import gram_products; rows = np.random.default_rng(1).integers(-99, 100, (200, 41)); "
        "g = gram_products(rows.astype(float)); best_subsets(g[:-1, :-1], g[:-1, -1], int(g[-1, -1]), size=4, "
        "count=100, radius=Fraction(1), ridge=Fraction(0)); print('numba' in sys.modules, 'scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
