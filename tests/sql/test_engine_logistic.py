"""Logistic regression on an engine: every step of the solver is a pass over the rows, summed up in exact integers."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest

import dpsql
from dpsql.functions.regression import logistic as logistic
from dpsql.mechanisms.objective_perturbation import ObjectiveNoise
from dpsql.statistics.logistic_rows import StepSums
from support.arrow_engine import ArrowEngine
from support.broken.planting import planted
from support.cases import cases
from support.twins import Sending, context, release, same_draws, spent

ROWS = 900
NAMES = ["x0", "x1", "x2"]
CALL = {"target": "ill", "features": NAMES, "epsilon": 5, "lower": -4, "upper": 4}


def frame() -> pl.DataFrame:
    generator = np.random.default_rng(11)
    x = generator.normal(size=(ROWS, 3)) * [1, 2, 0.3]
    ill = x @ [1.0, -0.5, 2.0] + generator.logistic(size=ROWS) > 0
    x[::40, 1] = np.nan
    columns = dict(zip(NAMES, x.T, strict=True))
    made = pl.DataFrame({"id": np.arange(ROWS), "u": generator.integers(0, 300, ROWS), "ill": ill, **columns})
    return made.with_columns(word=pl.Series([f"w{number % 3}" for number in range(ROWS)]))


ASKED: dict[str, dict[str, Any]] = {
    "pure": {},
    "normal noise": {"delta": 1e-6},
    "drawn bounds": {"delta": 1e-6, "lower": None, "upper": None},
    "unscaled": {"delta": 1e-6, "standardize": False},
    "short rows": {"row_norm": 0.5},
    "units": {"privacy_unit": "u", "max_rows_per_unit": 2},
    "a condition": {"condition": "x0 > 0"},
    "replace": {"neighbours": "replace"},
    "long rows": {"features": "word", "names": ["w0", "w1", "w2"], "row_id": "u", "lower": 0, "upper": 1},
    "a fine gradient": {"epsilon": 1e5},
    "hardly a ridge": {"epsilon": 60, "regularization": 2.0**-20},
    "nobody counts": {"target": "word", "target_levels": ["a", "b"]},
    "bounds of no feature": {"epsilon": 0.01, "delta": 1e-6, "lower": None, "upper": None},
}


@cases("case", ASKED)
def test_models_are_those_of_duckdb(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same entropy, both ways end within the certified distance of one minimiser, and get one noise."""
    noises: list[tuple[ObjectiveNoise, int]] = []
    calibrated = logistic.LogisticPlan.calibrated

    def noted(plan: Any, count: int, **spent_before: Any) -> ObjectiveNoise:
        noises.append((calibrated(plan, count, **spent_before), 1 + count))
        return noises[-1][0]

    monkeypatch.setattr(logistic.LogisticPlan, "calibrated", noted)
    asked = {name: value for name, value in {**CALL, **ASKED[case]}.items() if value is not None}
    found = [release(frame(), "dp_logistic_regression", engine=engine, **asked).result for engine in (False, True)]
    noise, width = noises[-1]
    # Each is within h of the minimiser, and rounded to the grid; the unit of a coefficient is at least a sixteenth.
    scaled = 16 * float(2 * (noise.tolerance(width) / noise.regularization) + noise.grid(width))
    np.testing.assert_allclose(found[0]["coefficients"], found[1]["coefficients"], rtol=1e-3, atol=1 * scaled)
    assert {**found[0], "coefficients": None} == {**found[1], "coefficients": None}


@pytest.mark.parametrize("asked", [{}, {"delta": 1e-6}, {"privacy_unit": "u", "max_rows_per_unit": 2}])
def test_however_rows_are_divided_the_bits_are_the_same(asked: dict[str, Any]) -> None:
    table = frame().to_arrow()
    found = []
    for partitions in (1, 3, 16):
        with same_draws(), dpsql.Context() as made:
            dpsql.attach_engine(made, "lake", ArrowEngine({"t": table}, partitions))
            found.append(made.dp_logistic_regression("t", engine="lake", dataset="t", **CALL, **asked).result)
    found.append(release(frame(), "dp_logistic_regression", engine=True, **CALL, **asked).result)
    assert all(one == other for one, other in pairwise(found))


def test_passes_end_with_the_solver_and_the_rows_are_read_no_more() -> None:
    engine = ArrowEngine({"t": frame().to_arrow()})
    with dpsql.Context() as made:
        dpsql.attach_engine(made, "lake", engine)
        made.dp_logistic_regression("t", engine="lake", dataset="t", **CALL)
        assert 3 <= engine.actions <= 20
        call = (
            "FROM dp_logistic_regression('t', target := 'ill', epsilon := 1, lower := 0, upper := 1, engine := 'lake')"
        )
        assert "-- at most 300 passes over the rows" in made.explain(call)


def test_too_many_steps_are_charged_without_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logistic, "MOST_STEPS", 2)
    with context(frame(), engine=True) as made:
        with pytest.raises(dpsql.InternalError, match="I001"):
            made.dp_logistic_regression("t", **CALL)
        assert spent(made) == 5.0


def test_it_is_charged_before_a_worker_learns_of_a_draw() -> None:
    seen: list[tuple[float, list[int]]] = []
    fold = Sending.fold

    def noted(engine: Sending, source: object, columns: Any, work: Any) -> Any:
        seen.append((spent(made) if made.dp_ledger().num_rows else 0.0, work.zero.inner.sums.multiples))
        return fold(engine, source, columns, work)

    with planted((Sending, "fold", noted)), context(frame(), engine=True) as made:
        made.dp_protect("t", epsilon=9, source=False)
        made.dp_logistic_regression("t", dataset="t", **CALL)
        assert spent(made) == 5.0
    assert seen[0][1] == [0] * 4
    assert {charged for charged, _ in seen} == {5.0}


def test_what_a_worker_gets_knows_neither_plan_nor_fit() -> None:
    sent: list[Any] = []
    fold = Sending.fold

    def noted(engine: Sending, source: object, columns: Any, work: Any) -> Any:
        sent.append(work)
        return fold(engine, source, columns, work)

    with planted((Sending, "fold", noted)), context(frame(), engine=True) as made:
        made.dp_logistic_regression("t", **CALL)
    assert sent[-1].zero._run is not None
    assert not {"_run", "_plan"} & set(vars(pickle.loads(pickle.dumps(sent[-1].zero))))


def test_a_failing_step_is_charged_once() -> None:
    def fail(sums: StepSums, state: Any) -> None:
        raise ValueError("a secret of the rows")

    with context(frame(), engine=True) as made:
        with planted((StepSums, "absorb", fail)), pytest.raises(dpsql.InternalError, match="I001") as failure:
            made.dp_logistic_regression("t", **CALL)
        assert spent(made) == 5.0
    assert "secret" not in str(failure.value)


def test_more_features_than_the_driver_solves_for_are_refused() -> None:
    wide = pl.DataFrame({"ill": [True, False], **{f"x{number}": [0.0, 1.0] for number in range(256)}})
    with context(wide, engine=True) as made:
        given = {**CALL, "features": [f"x{number}" for number in range(256)]}
        with pytest.raises(dpsql.ParameterError, match=r"P073.*at most 255 features; got 256"):
            made.dp_logistic_regression("t", **given)
        assert made.dp_ledger().num_rows == 0
        made.dp_logistic_regression("t", **{**given, "features": given["features"][:255]})
