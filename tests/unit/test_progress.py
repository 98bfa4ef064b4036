"""What progress shows is public: shares of work that is counted without a look at values, or that work goes on."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql import progress as module
from dpsql.engines.duckdb import session
from dpsql.kernels import kendall
from dpsql.progress import Progress

ROWS, COLUMNS = 200, 5


class Recorder(Progress):
    """Progress that keeps what it was told."""

    told: list[tuple[str, float | None]] = []  # noqa: RUF012

    def __call__(self, share: float) -> None:
        self.told.append((self._label, share))

    def tick(self) -> None:
        self.told.append((self._label, None))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, float | None]]]:
    monkeypatch.setattr(session, "Progress", Recorder)
    monkeypatch.setattr(kendall, "compiled_kernels", lambda work: None)
    Recorder.told.clear()
    yield Recorder.told
    Recorder.told.clear()


def table(different: bool) -> pa.Table:
    """Return a table of one size: noise, or rows that all but repeat with a target that follows from one feature."""
    rng = np.random.default_rng(3)
    features = rng.random((ROWS, COLUMNS))
    if different:
        features = np.round(features[:, :1] * np.linspace(0.1, 1, COLUMNS), 2)
    target = (features[:, 0] > 0.5) * 1.0 if different else rng.integers(0, 2, ROWS) * 1.0
    names = [f"x{j}" for j in range(COLUMNS)]
    return pa.table({**{name: features[:, j] for j, name in enumerate(names)}, "y": target})


X = "features := ['x0', 'x1', 'x2', 'x3', 'x4'], target := 'y', lower := 0, upper := 1"
BY_SEARCH = {
    "dp_logistic_regression": f"dp_logistic_regression('t', {X}, epsilon := 1)",
    "dp_best_subset": f"dp_best_subset('t', {X}, k := 2, target_lower := 0, target_upper := 1, epsilon := 1)",
}
BY_SHARE = {
    "dp_kendall": "dp_kendall('t', target := 'y', k := 3, epsilon := 5)",
    "dp_two_stage": "dp_two_stage('t', target := 'y', k := 2, blocks := 8, epsilon := 5)",
    "dp_linear_regression": f"dp_linear_regression('t', {X}, target_lower := 0, target_upper := 1, epsilon := 5, "
    "delta := 1e-6, method := 'boosted_ada_ssp', rounds := 10)",
}


def run(call: str, different: bool, told: list[Any]) -> list[Any]:
    told.clear()
    con = dpsql.connect()
    con.register("t", table(different))
    con.execute(f"FROM {call}").fetchall()
    con.close()
    return list(told)


@pytest.mark.long
@pytest.mark.parametrize("name", BY_SEARCH)
def test_a_search_tells_no_share(told: list[Any], name: str) -> None:
    for different in (False, True):
        seen = run(BY_SEARCH[name], different, told)
        assert seen
        assert set(seen) == {(name, None)}


@pytest.mark.long
@pytest.mark.parametrize("name", BY_SHARE)
def test_shares_are_the_same_for_unlike_tables_of_one_size(told: list[Any], name: str) -> None:
    """Threads are looked at by the clock: what they may tell is a share of columns, blocks or rounds, or an eighth of shuffling."""
    first, second = (
        {share for _, share in run(BY_SHARE[name], different, told)} - {None} for different in (False, True)
    )
    counted = {part / whole for whole in (COLUMNS, COLUMNS + 1, 8, 10) for part in range(whole + 1)}
    assert {share for share in first ^ second if min(abs(share - part) for part in counted) > 1e-12} == set()
    if name != "dp_two_stage":  # few blocks: done before anybody looks
        assert first


def test_a_tick_takes_nothing_and_shows_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(inspect.signature(Progress.tick).parameters) == ["self"]
    monkeypatch.setattr(module, "_SHOWN_AFTER", -1.0)
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True, raising=False)
    with Progress("dp_logistic_regression") as bar:
        bar.tick()
        task = bar._bar.tasks[0]
        assert (task.total, task.completed) == (None, 0)
        bar(0.25)
        assert (task.total, task.completed) == (1.0, 0.25)
        bar.tick()
        assert (task.total, task.completed) == (1.0, 0.25)
        module.interrupt()
        with pytest.raises(KeyboardInterrupt):
            bar.tick()


def test_searches_are_given_ticks() -> None:
    """The kernels whose work depends on the values have no way to tell a share."""
    from dpsql.functions.best_subset import draw_subset
    from dpsql.kernels.best_subsets import best_subsets
    from dpsql.kernels.descent import minimise
    from dpsql.mechanisms.objective_perturbation import objective_perturbation

    for function in (best_subsets, minimise, objective_perturbation, draw_subset):
        parameters = inspect.signature(function).parameters
        assert "tick" in parameters
        assert "progress" not in parameters
