"""Additive models through SQL: what is released, how it predicts, and that every engine releases the same integers."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

import dpsql
from dpsql.functions.regression.linear import WORTH_STEPS, RegressionPlan
from dpsql.mechanisms import ada_ssp, prefix_bounds
from dpsql.mechanisms.additive import MOST_ROUNDS, VISITS, StepRounds
from dpsql.released.model import LinearModel
from dpsql.statistics.additive import ResidualSums
from support.broken.planting import planted
from support.cases import cases
from support.twins import Sending, context, release, spent

ROWS = 3000
NAMES = ["x0", "x1", "x2"]
CALL = {"target": "y", "features": NAMES, "epsilon": 8, "delta": 1e-5, "method": "additive", "rounds": 3}
BOUNDS = {"lower": -4, "upper": 4, "target_lower": -9, "target_upper": 9}


def frame(rows: int = ROWS) -> pl.DataFrame:
    """A target of a line, a wave and noise; some values are missing."""
    generator = np.random.default_rng(11)
    x = generator.uniform(-3, 3, size=(rows, 3))
    y = x[:, 0] + 3 * np.sin(2 * x[:, 1]) + 0.3 * generator.normal(size=rows)
    x[::40, 1] = np.nan
    y[::70] = np.inf
    columns = dict(zip(NAMES, x.T, strict=True))
    return pl.DataFrame({"u": generator.integers(0, 900, rows), "y": y, **columns}).with_columns(
        positive=pl.col("y") > 0
    )


@pytest.fixture(scope="module")
def made() -> Iterator[dpsql.Context]:
    with context(frame(), engine=False) as found:
        found.dp_linear_regression("t", **CALL, **BOUNDS, release="wave")
        yield found


@cases(
    "asked",
    [
        BOUNDS,
        {},
        {**BOUNDS, "neighbours": "replace"},
        {**BOUNDS, "standardize": False},
        {**BOUNDS, "privacy_unit": "u", "max_rows_per_unit": 2, "epsilon": 20},
        {**BOUNDS, "target": "positive"},
        {"epsilon": 0.02},
        {"lower": -3000, "upper": 5000, "target_lower": -9000, "target_upper": 9000},
        {"lower": -3000, "upper": 5000},
        {"target_lower": -9000, "target_upper": 9000},
    ],
)
@pytest.mark.long
def test_models_are_those_of_duckdb(asked: dict[str, Any]) -> None:
    """With the same entropy, the same integers have the same noise."""
    rows = frame(900)
    found = [release(rows, "dp_linear_regression", engine=engine, **{**CALL, **asked}) for engine in (False, True)]
    assert repr(found[0].to_arrow().to_pylist()) == repr(found[1].to_arrow().to_pylist())
    assert found[0].result.get("steps") == found[1].result.get("steps")


def test_what_a_worker_gets_knows_no_rounds() -> None:
    """The pass of a round travels without what draws it, and adds rows all the same."""
    sent: list[Any] = []
    fold = Sending.fold

    def noted(engine: Sending, source: object, columns: Any, work: Any) -> Any:
        sent.append(work)
        return fold(engine, source, columns, work)

    with planted((Sending, "fold", noted)), context(frame(900), engine=True) as opened:
        opened.dp_linear_regression("t", **CALL, **BOUNDS)
    # Scales, 3 rounds of boosting, bins, and 3 features twice.
    assert len(sent) == 1 + 3 + 1 + 2 * 3
    last: Any = sent[-1].zero
    assert last._rounds is not None
    assert not {"_rounds", "_stage"} & set(vars(pickle.loads(pickle.dumps(last))))


def test_a_failing_round_is_charged_once() -> None:
    def fail(fold: ResidualSums) -> Any:
        raise ValueError("a secret of the rows")

    for engine in (False, True):
        with context(frame(900), engine=engine) as opened:
            with planted((ResidualSums, "sums", fail)), pytest.raises(dpsql.InternalError, match="I001") as failure:
                opened.dp_linear_regression("t", **CALL, **BOUNDS)
            assert spent(opened) == 8.0
        assert "secret" not in str(failure.value)


def test_steps_follow_the_wave(made: dpsql.Context) -> None:
    """The shape of x1 is the wave, those of the others are lines."""
    found = made.release("wave").shapes.to_pylist()
    middle = [((one["lower"] + one["upper"]) / 2, (one["at_lower"] + one["at_upper"]) / 2) for one in found]
    for name, truth in (("x0", lambda x: x), ("x1", lambda x: 3 * math.sin(2 * x)), ("x2", lambda x: 0.0)):
        inside = [pair for one, pair in zip(found, middle, strict=True) if one["feature"] == name]
        inside = [(x, value) for x, value in inside if abs(x) < 2.7]
        shift = float(np.mean([value - truth(x) for x, value in inside]))
        errors = [value - truth(x) - shift for x, value in inside]
        assert float(np.sqrt(np.mean(np.square(errors)))) < 0.8, (name, errors)


def test_all_ways_predict_alike(made: dpsql.Context) -> None:
    """SQL, the function of one row, NumPy, and what was stored as JSON; a missing feature gives no prediction."""
    model = made.model("wave")
    rows = frame().select(NAMES).to_numpy()
    expected = model.predict(rows)
    assert np.isnan(expected).sum() == len(rows[::40])
    con = made.connection
    for sql in ("SELECT prediction FROM dp_predictions('wave', 't')", "SELECT dp_predict('wave', t) FROM t"):
        [found] = con.execute(sql).fetchnumpy().values()
        assert np.allclose(np.ma.filled(found.astype(float), np.nan), expected, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert np.array_equal(LinearModel.from_json(model.to_json()).predict(rows), expected, equal_nan=True)
    by_hand = model.intercept_ + np.clip(rows, *np.array(model.feature_bounds_).T) @ model.coef_
    for place, steps in enumerate(model.steps_ or ()):
        if steps is not None:
            by_hand += np.array(steps["values"])[np.searchsorted(steps["edges"], rows[:, place], side="right")]
    assert np.allclose(np.clip(by_hand, *model.prediction_bounds_), expected, equal_nan=True)


def test_a_wave_is_told_better_than_by_a_line(made: dpsql.Context) -> None:
    rows = frame().filter(pl.col("y").is_finite(), pl.col("x1").is_not_nan())
    model = made.model("wave")
    additive = model.score(rows.select(NAMES).to_numpy(), rows["y"].to_numpy())
    assert additive > 0.75
    made.dp_linear_regression("t", **{**CALL, **BOUNDS, "method": "boosted_ada_ssp"}, release="line")
    assert made.model("line").score(rows.select(NAMES).to_numpy(), rows["y"].to_numpy()) < 0.6


def test_the_receipt_says_what_each_feature_adds(made: dpsql.Context) -> None:
    box = made.release("wave").noise["glass_box"]
    assert [one["feature"] for one in box][2] == "x2"
    assert box[0]["adds"] > 4 > 1.5 > box[2]["adds"] >= 0


def test_few_rows_for_the_noise_get_a_linear_model() -> None:
    """Then the linear fit gets all of the budget, and there are no steps."""
    with context(frame(300), engine=False) as opened:
        opened.dp_linear_regression("t", **{**CALL, "epsilon": 0.3}, **BOUNDS, release="few")
        assert "steps" not in opened.release("few").result
        assert opened.model("few").steps_ is None
        assert spent(opened) == pytest.approx(0.3)


def test_the_plan_counts_passes_and_says_from_where_there_are_steps() -> None:
    given = {"target": "y", "features": NAMES, "epsilon": 1, "delta": 1e-6, "method": "additive", **BOUNDS}
    on_engine = RegressionPlan.from_arguments("t", {**given, "engine": "polars"})
    assert on_engine.readings == 1 + 10 + 1 + VISITS * MOST_ROUNDS
    plan = RegressionPlan.from_arguments("t", given)
    assert plan.readings == 1
    noise = {name: value for name, value, _ in plan.noise(3, None)}
    assert noise["steps_rows_needed"] == pytest.approx(WORTH_STEPS * math.sqrt(3) / noise["mu"])
    shares = dict(plan.fit.gaussian_shares)
    assert set(shares) == {"ends", "moments", "fit", "bins", "residuals", "steps"}
    assert 0.999999 * plan.fit.mu**2 < sum(mu**2 for mu in shares.values()) <= plan.fit.mu**2


def test_a_norm_of_rows_is_refused() -> None:
    with pytest.raises(dpsql.ParameterError, match="P045"):
        RegressionPlan.from_arguments("t", {**CALL, **BOUNDS, "row_norm": 1.0})


def test_the_picture_has_a_part_for_each_feature(made: dpsql.Context) -> None:
    pytest.importorskip("matplotlib")
    axes = made.release("wave").plot()
    assert len(axes.child_axes) == 3
    assert made.release("wave").plot("effects") is not None


WIDE = {"lower": -3000, "upper": 5000, "target_lower": -9000, "target_upper": 9000}


@pytest.mark.parametrize(
    "bounds", [BOUNDS, WIDE, {"lower": -3000, "upper": 5000}, {"target_lower": -9000, "target_upper": 9000}]
)
@pytest.mark.parametrize("epsilon", [0.5, 8])
def test_all_draws_together_spend_the_call(
    monkeypatch: pytest.MonkeyPatch, bounds: dict[str, Any], epsilon: float
) -> None:
    """Squares of mu of bounds, moments, ends, fit and steps add up to that of the call, whatever ends are drawn."""
    spent_on: list[Fraction] = []

    def spy(owner: Any, name: str, losses: Any) -> None:
        real = getattr(owner, name)

        def recorded(*arguments: Any, **named: Any) -> Any:
            spent_on.extend(losses(named))
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, recorded)

    spy(prefix_bounds, "prefix_bounds", lambda named: named["squared_mus"])
    spy(prefix_bounds, "released_standard", lambda named: [named["squared_mu"]])
    spy(ada_ssp, "boosted_ada_ssp", lambda named: [named["mu"] ** 2])
    spy(StepRounds, "draw", lambda named: [mu**2 for mu in named["mus"].values()])
    call = {**CALL, **bounds, "epsilon": epsilon}
    with context(frame(), engine=False) as opened:
        opened.dp_linear_regression("t", **call)
    whole = RegressionPlan.from_arguments("t", call).fit.mu ** 2  # type: ignore[attr-defined]
    assert 0.9999 * whole < sum(spent_on) <= whole
    assert len(spent_on) > 1 + (bounds is not BOUNDS)


@pytest.mark.parametrize("method", ["ada_ssp", pytest.param("additive", marks=pytest.mark.long)])
def test_slopes_of_rare_and_skewed_columns(method: str) -> None:
    """A linear truth with private bounds: a coefficient that is clear is the true one, within 5.5 of its errors.

    A noisy one is farther with a chance below 4e-8, of which there are 18.
    """
    with dpsql.connect() as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            "CREATE TABLE t AS SELECT *, 2 * rare + 2 * single + skewed + heavy + zeros + y0 AS y FROM (SELECT "
            "(random() < 0.05)::DOUBLE AS rare, (random() < 0.05)::FLOAT AS single, -ln(1 - random()) AS skewed, "
            "exp(sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random())) AS heavy, "
            "CASE WHEN random() < 0.1 THEN 3 + 4 * random() ELSE 0 END AS zeros, random() AS y0 FROM range(60000))"
        )
        truth = {"rare": 2.0, "single": 2.0, "skewed": 1.0, "heavy": 1.0, "zeros": 1.0, "y0": 1.0}
        sql = f"FROM dp_linear_regression('t', target := 'y', epsilon := 10, delta := 1e-5, method := '{method}')"
        clear = 0
        for _ in range(3):
            for term, slope, error, verdict in connection.execute(sql).fetchall():
                if verdict == "clear" and term in truth:
                    clear += 1
                    assert abs(slope - truth[term]) < 5.5 * error, term
        assert clear >= 12
