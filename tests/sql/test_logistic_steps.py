"""Additive classifiers through SQL: what is released, how it predicts, and that engines release the same integers."""

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
from dpsql.functions.regression.logistic import MOST_STEPS, WORTH_STEPS, LogisticPlan
from dpsql.mechanisms.additive import MOST_ROUNDS, VISITS
from dpsql.mechanisms.objective_perturbation import PerturbedObjective
from dpsql.released.model import LinearModel
from dpsql.statistics.additive import ResidualSums
from support.broken.planting import planted
from support.cases import cases
from support.twins import Sending, context, release, spent

ROWS = 4000
NAMES = ["x0", "x1", "x2"]
CALL = {"target": "ill", "features": NAMES, "epsilon": 8, "delta": 1e-5, "method": "additive"}
BOUNDS = {"lower": -4, "upper": 4}


def frame(rows: int = ROWS) -> pl.DataFrame:
    """A label whose log odds are a line and a wave; some values are missing."""
    generator = np.random.default_rng(11)
    x = generator.uniform(-3, 3, size=(rows, 3))
    ill = generator.logistic(size=rows) < x[:, 0] + 3 * np.sin(2 * x[:, 1])
    x[::40, 1] = np.nan
    columns = dict(zip(NAMES, x.T, strict=True))
    made = pl.DataFrame({"u": generator.integers(0, rows // 2, rows), "ill": ill, **columns})
    return made.with_columns(word=pl.Series([["yes", "no", "who knows"][number % 3] for number in range(rows)]))


@pytest.fixture(scope="module")
def made() -> Iterator[dpsql.Context]:
    with context(frame(), engine=False) as found:
        found.dp_logistic_regression("t", **CALL, **BOUNDS, release="wave")
        yield found


def coarse(part: PerturbedObjective, rows: Any, noise: Any, *, tick: Any) -> Any:
    """Stand in for the solver, whose last digits are another on an engine, where it is certified all the same."""
    return np.array([0.1, 0.9, -0.2, 0.05])[: rows.width]


def coarse_run(part: PerturbedObjective, width: int, noise: Any) -> Any:
    yield [0] * width
    return np.array([0.1, 0.9, -0.2, 0.05])[:width]


@cases(
    "asked",
    [
        BOUNDS,
        {},
        {**BOUNDS, "neighbours": "replace"},
        {**BOUNDS, "standardize": False},
        {**BOUNDS, "row_norm": 0.5},
        {**BOUNDS, "privacy_unit": "u", "max_rows_per_unit": 2, "epsilon": 20},
        {**BOUNDS, "target": "word", "target_levels": ["no", "yes"]},
        {**BOUNDS, "epsilon": 0.02},
    ],
)
@pytest.mark.long
def test_steps_are_those_of_duckdb(asked: dict[str, Any]) -> None:
    """With the same entropy and the same linear fit, the same integers have the same noise."""
    rows = frame(1500)
    given = {**CALL, **asked}
    with planted((PerturbedObjective, "draw", coarse), (PerturbedObjective, "start", coarse_run)):
        found = [release(rows, "dp_logistic_regression", engine=engine, **given) for engine in (False, True)]
    assert found[0].result == found[1].result
    assert ("steps" in found[0].result) == (asked.get("epsilon") != 0.02)


@pytest.mark.long
def test_an_engine_reads_for_the_solver_and_then_for_every_round() -> None:
    """Ends, weights, and 3 features twice; what a worker gets knows no rounds."""
    sent: list[Any] = []
    fold = Sending.fold

    def noted(engine: Sending, source: object, columns: Any, work: Any) -> Any:
        sent.append(work)
        return fold(engine, source, columns, work)

    with planted((Sending, "fold", noted)), context(frame(1500), engine=True) as opened:
        found = opened.dp_logistic_regression("t", **CALL, **BOUNDS)
        assert "steps" in found.result
        assert spent(opened) == 8.0
    kinds = [type(work.zero).__name__ for work in sent]
    assert kinds[0] == "Spreads"
    assert 3 <= kinds.count("FitStep") <= 20
    assert kinds[-7:] == ["FirstWeights", *["StepRound"] * 6]
    last: Any = sent[-1].zero
    assert last._rounds is not None
    assert not {"_rounds", "_stage"} & set(vars(pickle.loads(pickle.dumps(last))))


@pytest.mark.long
def test_a_failing_round_is_charged_once() -> None:
    def fail(fold: ResidualSums) -> Any:
        raise ValueError("a secret of the rows")

    for engine in (False, True):
        with context(frame(1500), engine=engine) as opened:
            with planted((ResidualSums, "sums", fail)), pytest.raises(dpsql.InternalError, match="I001") as failure:
                opened.dp_logistic_regression("t", **CALL, **BOUNDS)
            assert spent(opened) == 8.0
        assert "secret" not in str(failure.value)


@pytest.mark.long
def test_steps_follow_the_wave(made: dpsql.Context) -> None:
    """The shape of x1 is the wave, those of the others are lines."""
    found = made.release("wave").shapes.to_pylist()
    middle = [((one["lower"] + one["upper"]) / 2, (one["at_lower"] + one["at_upper"]) / 2) for one in found]
    for name, truth in (("x0", lambda x: x), ("x1", lambda x: 3 * math.sin(2 * x)), ("x2", lambda x: 0.0)):
        inside = [pair for one, pair in zip(found, middle, strict=True) if one["feature"] == name]
        inside = [(x, value) for x, value in inside if abs(x) < 2.7]
        shift = float(np.mean([value - truth(x) for x, value in inside]))
        errors = [value - truth(x) - shift for x, value in inside]
        assert float(np.sqrt(np.mean(np.square(errors)))) < 1.0, (name, errors)


@pytest.mark.long
def test_all_ways_predict_alike(made: dpsql.Context) -> None:
    """SQL, the function of one row, NumPy, and what was stored as JSON; a missing feature gives no prediction."""
    model = made.model("wave")
    rows = frame().select(NAMES).to_numpy()
    expected = model.predict_proba(rows)[:, 1]
    assert np.isnan(expected).sum() == len(rows[::40])
    con = made.connection
    for sql in ("SELECT probability FROM dp_predictions('wave', 't')", "SELECT dp_predict('wave', t) FROM t"):
        [found] = con.execute(sql).fetchnumpy().values()
        assert np.allclose(np.ma.filled(found.astype(float), np.nan), expected, rtol=1e-12, atol=1e-12, equal_nan=True)
    again: Any = LinearModel.from_json(model.to_json())
    assert np.array_equal(again.predict_proba(rows)[:, 1], expected, equal_nan=True)
    by_hand = model.intercept_ + np.clip(rows, *np.array(model.feature_bounds_).T) @ model.coef_
    for place, steps in enumerate(model.steps_ or ()):
        if steps is not None:
            by_hand += np.array(steps["values"])[np.searchsorted(steps["edges"], rows[:, place], side="right")]
    assert np.allclose(1 / (1 + np.exp(-by_hand)), expected, equal_nan=True)


@pytest.mark.long
def test_a_wave_is_told_better_than_by_a_line(made: dpsql.Context) -> None:
    """By dp_auc of predictions in SQL, whose noise is far below .01."""
    made.dp_logistic_regression("t", **{**CALL, **BOUNDS, "method": "linear"}, release="line")
    con = made.connection
    areas = {}
    for name in ("wave", "line"):
        con.execute(
            f"CREATE OR REPLACE TABLE scored AS SELECT ill, probability FROM dp_predictions('{name}', 't') "
            "WHERE probability IS NOT NULL"
        )
        [(areas[name],)] = con.execute(
            "SELECT auc FROM dp_auc('scored', label := 'ill', score := 'probability', epsilon := 20, lower := 0, "
            f"upper := 1, dataset := '{name}')"
        ).fetchall()
    assert areas["wave"] > 0.85 > 0.83 > areas["line"]


@pytest.mark.long
def test_the_receipt_says_what_each_feature_adds(made: dpsql.Context) -> None:
    box = made.release("wave").noise["glass_box"]
    assert [one["feature"] for one in box][2] == "x2"
    assert box[0]["adds"] > 3 > 1.5 > box[2]["adds"] >= 0


@pytest.mark.long
def test_the_picture_has_a_part_for_each_feature(made: dpsql.Context) -> None:
    pytest.importorskip("matplotlib")
    assert len(made.release("wave").plot().child_axes) == 3
    assert made.release("wave").plot("effects") is not None


def plan(**more: Any) -> LogisticPlan:
    return LogisticPlan.from_arguments("t", {**CALL, **BOUNDS, **more})


def test_the_plan_counts_passes_and_shares_the_budget() -> None:
    assert plan().readings == 2
    assert plan(engine="polars").readings == 1 + MOST_STEPS + 1 + VISITS * MOST_ROUNDS
    scaling, part = plan().scaling_part, plan().steps_part
    assert scaling is not None
    assert part is not None
    assert [name for name, _ in part.shares] == ["bins", "steps"]
    assert sum(mu**2 for _, mu in part.shares) <= part.mu**2
    assert scaling.epsilon + part.epsilon + plan().coefficients(True).epsilon == plan().epsilon
    assert scaling.delta + part.delta + plan().coefficients(True).delta == plan().delta
    assert (plan().event.cost.epsilon, plan().event.cost.delta) == (plan().epsilon, plan().delta)
    assert plan().choice(steps=False).event == plan().choice(steps=True).event == plan().first_choice.event  # type: ignore[union-attr]
    assert scaling == plan(method="linear").scaling_part
    assert plan().coefficients(False) == plan(method="linear").coefficients(False)
    lines = {name: value for name, value, _ in plan().noise(3, None)}
    shares = dict(part.shares)
    assert lines["steps_noise"] == pytest.approx(math.sqrt(3 * VISITS) / float(shares["steps"]))
    needed = WORTH_STEPS * math.sqrt(3) / float(part.mu)
    assert lines["steps_rows_needed"] == pytest.approx(needed)
    assert plan().has_steps(3, needed + 1)
    assert not plan().has_steps(3, needed - 1)
    assert plan().has_steps(3, None)
    assert plan(max_rows_per_unit=4, privacy_unit="u").steps_rows_needed(3) == pytest.approx(4 * needed)
    assert "steps_rows_needed" not in {name for name, *_ in plan(standardize=False).noise(3, None)}


def test_a_linear_call_is_recorded_as_it_was_before() -> None:
    assert "method" not in plan(method="linear").public_arguments
    assert plan().public_arguments["method"] == "additive"
    assert plan(method="linear").steps_part is None
    assert plan(method="linear").event == plan(method="linear").after_scaling(plan().coefficients(False)).event


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"delta": None}, "P046"),
        ({"features": "f", "row_id": "r", "names": ["a", "b"]}, "P045"),
        ({"method": "boosted"}, "P005"),
    ],
)
def test_what_has_no_steps_is_refused_and_charges_nothing(more: dict[str, Any], code: str) -> None:
    with context(frame(50), engine=False) as opened:
        with pytest.raises(dpsql.ParameterError, match=code):
            opened.dp_logistic_regression("t", **{**CALL, **BOUNDS, **more})
        assert opened.dp_ledger().num_rows == 0


def test_so_many_features_have_no_steps() -> None:
    with pytest.raises(dpsql.ParameterError, match="P026"):
        plan().check_features(2001)
    plan(method="linear").check_features(2001)


@pytest.mark.parametrize("steps", [False, True])
def test_ends_within_public_bounds_are_paid_by_the_fit(steps: bool) -> None:
    """Whatever is chosen after moments costs what was planned; the parts add up to it, and no less."""
    asked = plan() if steps else plan(method="linear")
    for share in (Fraction(1, 4), Fraction(1, 50)):
        chosen = asked.choice(steps=steps, ends=share)
        costs = [part.event.cost for part in chosen.leaves]
        assert sum(cost.epsilon for cost in costs) == asked.rest[0]
        assert sum(cost.delta for cost in costs) == asked.rest[1]
        assert chosen.event == asked.first_choice.event  # type: ignore[union-attr]
        assert asked.ends_part(share).epsilon == share * asked.epsilon
    assert asked.ends_share(4, 4) == asked.bounds_share == Fraction(1, 4)
    assert Fraction(1, 8) <= asked.ends_share(1, 4) <= Fraction(1, 8) + Fraction(1, 4000)
