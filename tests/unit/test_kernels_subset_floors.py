"""Certified bounds on all completions of a set: below every score, and hardly so, compiled and in NumPy."""

from __future__ import annotations

import itertools
import time
from fractions import Fraction
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpsql.kernels import subset_floors as module
from dpsql.kernels import subset_floors_compiled
from dpsql.kernels.ball_least_squares import SCORE_UNIT, SCORE_WIDTH, BallLeastSquares
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.subset_floors import completion_floors, completions
from dpsql.kernels.workers import default_threads
from support.cases import cases

ENGINES: dict[str, ModuleType | None] = {"numpy": None, "compiled": subset_floors_compiled}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(module, "compiled_kernels", lambda work: ENGINES[request.param])
    return str(request.param)


@cases("taken", [1, 2])
@cases("count", [2, 3, 9])
def test_completions_are_in_lexicographic_order(taken: int, count: int) -> None:
    columns = np.arange(0, 3 * count, 3)
    every = list(itertools.combinations(columns.tolist(), taken))
    assert list(map(tuple, completions(columns, taken, np.arange(len(every))).tolist())) == every


@cases("rows", [0, 1, 3, 200], quick=3)
@cases(("radius", "ridge"), [(Fraction(11, 10), Fraction(0)), (Fraction(1, 10), Fraction(3))])
@cases("scale", [1, 10**9])
@cases(("forced", "chosen", "taken"), [(0, [], 1), (0, [], 2), (1, [0, 4], 2), (1, [2], 1)])
def test_floors_lie_just_below_the_scores(
    engine: str, rows: int, radius: Fraction, ridge: Fraction, scale: int, forced: int, chosen: list[int], taken: int
) -> None:
    rng = np.random.default_rng(rows)
    data = rng.integers(-FIXED_POINT_ONE, FIXED_POINT_ONE + 1, size=(rows, 9)).astype(object)
    data[:, 2] = data[:, 1]
    data[:, 3] = 0
    products = (data.T.dot(data) if rows else np.zeros((9, 9), dtype=object)) * scale
    total = int(products[8, 8])
    problem = BallLeastSquares(products[:8, :8], products[:8, 8], total, radius=radius, ridge=ridge, forced=forced)
    kept = np.array(chosen, dtype=np.intp)
    others = np.setdiff1d(np.arange(8 - forced), kept)
    floors = completion_floors(problem, kept, others, taken)
    more = completions(others, taken, np.arange(len(floors)))
    scores = problem.scores(np.column_stack((np.tile(kept, (len(more), 1)), more)))
    assert (floors <= scores).all()
    slack = 4 + int(SCORE_WIDTH / SCORE_UNIT) + 1e-11 * float(problem.constant) / float(SCORE_UNIT)
    assert (scores - floors <= slack).all()


def test_work_on_threads_stops_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """3.2 million pairs beside three columns, on several jobs: an exception from `tick` ends them.

    Each job begins once it is to stop, so that the work which it still does is counted.
    """
    done: list[tuple[int, int]] = []

    def duals(*given: Any) -> None:
        low, high, starts, found, stop = given[-5:]
        mine = found[starts[low] : starts[high]]
        mine[:] = np.nan
        while not stop[0]:
            time.sleep(0.001)
        subset_floors_compiled.duals(*given)
        done.append((np.isfinite(mine).sum(), len(mine)))

    monkeypatch.setattr(module, "compiled_kernels", lambda work: SimpleNamespace(duals=duals))
    rng = np.random.default_rng(0)
    data = rng.integers(-FIXED_POINT_ONE, FIXED_POINT_ONE, size=(40, 2527)).astype(np.float64)
    products = np.rint(data.T @ data).astype(np.int64)
    problem = BallLeastSquares(
        products[:-1, :-1], products[:-1, -1], int(products[-1, -1]), radius=Fraction(1), ridge=Fraction(0)
    )
    ticks: list[str] = []

    def tick() -> None:
        ticks.append("a tick")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        completion_floors(problem, np.arange(3), np.arange(3, 2526), 2, tick)
    assert len(ticks) == 1
    assert 0 < len(done) <= default_threads()
    assert all(finished < size / 2 for finished, size in done), done
