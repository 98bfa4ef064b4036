"""Boosting on an engine: every round is a pass over the rows, with the integers that stored rows give on DuckDB."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import polars as pl
import pytest

import dpsql
from dpsql.functions.regression.linear import RegressionPlan
from dpsql.kernels.gram import ClippedRows
from dpsql.statistics.regression import RoundProducts
from support.broken.planting import planted
from support.cases import cases
from support.twins import Sending, context, release, spent

ROWS = 900
NAMES = ["x0", "x1", "x2"]
CALL = {"target": "y", "features": NAMES, "epsilon": 5, "delta": 1e-6, "method": "boosted_ada_ssp", "rounds": 4}
BOUNDS = {"lower": -4, "upper": 4, "target_lower": -9, "target_upper": 9}


def frame() -> pl.DataFrame:
    generator = np.random.default_rng(11)
    x = generator.normal(size=(ROWS, 3)) * [1, 2, 0.3]
    y = x @ [1.0, -0.5, 2.0] + generator.normal(size=ROWS)
    x[::40, 1] = np.nan
    y[::70] = np.inf
    columns = dict(zip(NAMES, x.T, strict=True))
    return pl.DataFrame({"id": np.arange(ROWS), "u": generator.integers(0, 300, ROWS), "y": y, **columns}).with_columns(
        positive=pl.col("y") > 0
    )


@cases(
    "asked",
    [
        BOUNDS,
        {},
        {**BOUNDS, "row_norm": 1.0, "split": "thirds"},
        {**BOUNDS, "rounds": 1},
        {**BOUNDS, "privacy_unit": "u", "max_rows_per_unit": 2},
        {**BOUNDS, "condition": "x0 > 0"},
        {"lower": -4, "upper": 4, "target": "positive"},
        {"lower": -4, "upper": 4, "target": "positive", "target_levels": [False, True], "standardize": False},
        {"epsilon": 0.01},
    ],
)
def test_models_are_those_of_duckdb(asked: dict[str, Any]) -> None:
    """With the same entropy, the same integers have the same noise."""
    found = [release(frame(), "dp_linear_regression", engine=engine, **{**CALL, **asked}) for engine in (False, True)]
    assert repr(found[0].to_arrow().to_pylist()) == repr(found[1].to_arrow().to_pylist())


def test_every_round_sees_the_coefficients_of_the_one_before() -> None:
    """The integers of each round are those of rows that are kept, at the same coefficients."""
    seen: list[list[Any]] = [[], []]
    products, state = ClippedRows.residual_products, RoundProducts.products

    def kept(rows: ClippedRows, theta: Any) -> Any:
        found = products(rows, theta)
        seen[0].append((theta.tolist(), found.tolist()))
        return found

    def folded(fold: RoundProducts) -> Any:
        found = state(fold)
        seen[1].append((fold._given[2].tolist(), found.tolist()))
        return found

    with planted((ClippedRows, "residual_products", kept)):
        release(frame(), "dp_linear_regression", engine=False, **CALL, **BOUNDS)
    with planted((RoundProducts, "products", folded)):
        release(frame(), "dp_linear_regression", engine=True, **CALL, **BOUNDS)
    assert seen[0] == seen[1]
    assert len(seen[0]) == CALL["rounds"]
    assert seen[0][0][0] == [0.0] * 4


def test_auto_boosts_on_engines_too() -> None:
    given = {"target": "y", "features": NAMES, "epsilon": 5, "delta": 1e-6, **BOUNDS, "engine": "polars"}
    plan = RegressionPlan.from_arguments("t", given)
    assert (plan.method, plan.readings) == ("boosted_ada_ssp", 11)
    assert RegressionPlan.from_arguments("t", {**given, "engine": None}).readings == 1


@pytest.mark.parametrize("failing", [1, 3])
def test_a_failing_round_is_charged_once(failing: int) -> None:
    count, products = [0], RoundProducts.products

    def fail(fold: RoundProducts) -> Any:
        count[0] += 1
        if count[0] == failing:
            raise ValueError("a secret of the rows")
        return products(fold)

    with context(frame(), engine=True) as made:
        with planted((RoundProducts, "products", fail)), pytest.raises(dpsql.InternalError, match="I001") as failure:
            made.dp_linear_regression("t", **CALL, **BOUNDS)
        assert spent(made) == 5.0
    assert "secret" not in str(failure.value)


def test_what_a_worker_gets_knows_no_fit() -> None:
    """The pass of a round travels without the fit that asks for it, and adds rows all the same."""
    sent: list[Any] = []
    fold = Sending.fold

    def noted(engine: Sending, source: object, columns: Any, work: Any) -> Any:
        sent.append(work)
        return fold(engine, source, columns, work)

    with planted((Sending, "fold", noted)), context(frame(), engine=True) as made:
        made.dp_linear_regression("t", **CALL)
    assert len(sent) == 6
    last: Any = sent[-1].zero
    assert last._run is not None
    copy = pickle.loads(pickle.dumps(last))
    assert not {"_run", "_columns", "_scales"} & set(vars(copy))


def test_ranges_and_magnitudes_of_tukey_travel_together() -> None:
    """Without public bounds of the target, workers send the ranges of the blocks and the target's magnitudes."""
    generator = np.random.default_rng(4)
    x = generator.normal(size=6000)
    rows = pl.DataFrame({"id": np.arange(6000), "x0": x, "y": 2 * x + generator.normal(size=6000) / 10})
    given = {"target": "y", "features": ["x0"], "epsilon": 8, "delta": 1e-5, "method": "tukey", "row_id": "id"}
    found = [release(rows, "dp_linear_regression", engine=engine, **given) for engine in (False, True)]
    assert found[0].result["prediction_bounds"] is not None
    assert repr(found[0].to_arrow().to_pylist()) == repr(found[1].to_arrow().to_pylist())
    assert found[0].result["prediction_bounds"] == found[1].result["prediction_bounds"]
