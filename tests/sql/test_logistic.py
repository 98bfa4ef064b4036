"""dp_logistic_regression through SQL: what is fitted, layouts, bad rows, real data, charges."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import dpsql
from dpsql.errors import ParameterError
from dpsql.functions.regression.logistic import LogisticCall, LogisticPlan
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.mechanisms.objective_perturbation import calibrate
from dpsql.statistics.regression import Standard
from support.cases import cases

S = FIXED_POINT_ONE
DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
# So much that next to no noise is left; the ridge then decides.
PLENTY = "epsilon := 1e6, regularization := 3"
ROWS = 600


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    made = dpsql.connect()
    yield made
    made.close()


def features() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(4)
    x = np.column_stack((rng.uniform(0, 10, ROWS), rng.uniform(-3, 1, ROWS), rng.uniform(20, 30, ROWS)))
    odds = 0.4 * x[:, 0] - 1.5 * x[:, 1] + 0.2 * x[:, 2] - 8
    return x, (odds + rng.logistic(size=ROWS) > 0).astype(int)


def reference(x: Any, y: Any, low: Any, high: Any, ridge: float, norm: float | None = None) -> np.ndarray[Any, Any]:
    """Fit with scikit-learn what the definition says, in the units of the features; the intercept first."""
    low, high = np.array(low, dtype=float), np.array(high, dtype=float)
    if norm is not None:
        far = np.maximum(-low, high)
        keep = (low <= 0) & (high >= 0)
        low, high = np.where(keep, -far, low), np.where(keep, far, high)
    middle, half = (low + high) / 2, (high - low) / 2
    longest = math.sqrt(len(low)) if norm is None else norm
    unit = math.hypot(longest, 1)
    scaled = (x - middle) / half
    scaled *= np.minimum(1, longest / np.maximum(np.sqrt((scaled**2).sum(axis=1, keepdims=True)), 1e-12))
    rows = np.column_stack((np.ones(len(x)), scaled)) / unit
    model = LogisticRegression(C=1 / ridge, fit_intercept=False, tol=1e-12, max_iter=10_000).fit(rows, y)
    slopes = model.coef_[0, 1:] / unit / half
    return np.concatenate(([model.coef_[0, 0] / unit - slopes @ middle], slopes))


LOWER, UPPER = [0, -3, 20], [10, 1, 30]
BOUNDS = f"lower := {LOWER}, upper := {UPPER}"


def load(con: duckdb.DuckDBPyConnection) -> None:
    x, y = features()
    con.execute("CREATE TABLE wide (id INTEGER, a DOUBLE, b DOUBLE, c DOUBLE, label INTEGER)")
    con.executemany(
        "INSERT INTO wide VALUES (?, ?, ?, ?, ?)", [(i, *map(float, r), int(y[i])) for i, r in enumerate(x)]
    )
    con.execute("CREATE TABLE fixed AS SELECT id, label, [a, b, c]::DOUBLE[3] AS x FROM wide")
    con.execute("CREATE TABLE long AS UNPIVOT wide ON a, b, c INTO NAME f VALUE v")


def fitted(con: duckdb.DuckDBPyConnection, sql: str) -> np.ndarray[Any, Any]:
    rows = con.execute(sql).fetchall()
    assert rows[0][0] == "intercept"
    assert all(row[2] is None for row in rows)
    return np.array([row[1] for row in rows])


LAYOUTS = {
    "wide": "dp_logistic_regression('wide', target := 'label', features := ['a', 'b', 'c'], {more})",
    "array": "dp_logistic_regression('fixed', target := 'label', features := 'x', {more})",
    "long": "dp_logistic_regression('long', target := 'label', features := 'f', value := 'v', row_id := 'id', "
    "names := ['a', 'b', 'c'], {more})",
}


@cases("norm", [None, 1.2])
@cases("layout", LAYOUTS)
def test_it_is_scikit_learns_fit(con: duckdb.DuckDBPyConnection, layout: str, norm: float | None) -> None:
    load(con)
    more = f"{PLENTY}, {BOUNDS}" + ("" if norm is None else f", row_norm := {norm}")
    found = fitted(con, "FROM " + LAYOUTS[layout].format(more=more))
    if layout == "long" and norm is None:  # measured from zero, and no row is too long
        norm = math.sqrt(3)
    assert found == pytest.approx(reference(*features(), LOWER, UPPER, 3, norm), abs=2e-4)


@cases("epsilon", ["1e6", "1e9"])
@cases("ridge", [None, 1e-3, 3.0])
def test_a_huge_epsilon_gives_scikit_learns_fit(
    con: duckdb.DuckDBPyConnection, epsilon: str, ridge: float | None
) -> None:
    """To six digits, with a ridge of one's own and with the usual one, which all but vanishes."""
    x, y = (np.tile(part, (40, 1)[: part.ndim]) for part in features())
    rng = np.random.default_rng(5)
    x = np.clip(x + rng.uniform(-0.5, 0.5, x.shape), LOWER, UPPER)
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "label": y})
    con.register("wide", table)
    more = f"epsilon := {epsilon}, {BOUNDS}" + ("" if ridge is None else f", regularization := {ridge}")
    found = fitted(con, "FROM " + LAYOUTS["wide"].format(more=more))
    noise = calibrate(Fraction(int(float(epsilon))), None, width=4, neighbours="add_remove", regularization=ridge)
    assert found == pytest.approx(reference(x, y, LOWER, UPPER, float(noise.regularization)), rel=1e-6)


def test_the_aggregate_form(con: duckdb.DuckDBPyConnection) -> None:
    load(con)
    sql = f"SELECT dp_logistic_regression(x, label, n_features := 3, dataset := 'd', {PLENTY}, {BOUNDS}) FROM fixed"
    found = [entry["coefficient"] for entry in con.execute(sql).fetchone()[0]]  # type: ignore[index]
    assert found == pytest.approx(reference(*features(), LOWER, UPPER, 3), abs=2e-4)


def test_values_outside_count_as_the_bound(con: duckdb.DuckDBPyConnection) -> None:
    load(con)
    con.execute("UPDATE wide SET a = CASE WHEN a > 9 THEN 'inf'::DOUBLE WHEN a < 1 THEN -1e300 ELSE a END")
    found = fitted(con, "FROM " + LAYOUTS["wide"].format(more=f"{PLENTY}, {BOUNDS}"))
    x, y = features()
    x[:, 0] = np.where(x[:, 0] > 9, 10, np.where(x[:, 0] < 1, 0, x[:, 0]))
    assert found == pytest.approx(reference(x, y, LOWER, UPPER, 3), abs=2e-4)


def test_missing_values_count_as_the_middle_and_missing_labels_as_no_row(con: duckdb.DuckDBPyConnection) -> None:
    load(con)
    con.execute(
        "CREATE TABLE holes AS SELECT id, CASE WHEN id % 5 = 0 THEN NULL WHEN id % 5 = 1 THEN 'nan'::DOUBLE ELSE a END AS a, "
        "b, c, CASE WHEN id % 7 = 0 THEN NULL WHEN id % 7 = 1 THEN 3 WHEN id % 7 = 2 THEN 'nan'::DOUBLE ELSE label END "
        "AS label FROM wide"
    )
    x, y = features()
    number = np.arange(ROWS)
    for middle, norm in ((5.0, None), (0.0, 1.5)):
        more = f"{PLENTY}, {BOUNDS}" + ("" if norm is None else f", row_norm := {norm}")
        found = fitted(con, "FROM " + LAYOUTS["wide"].format(more=more).replace("wide", "holes"))
        holed = x.copy()
        holed[number % 5 <= 1, 0] = middle
        kept = number % 7 > 2
        assert found == pytest.approx(reference(holed[kept], y[kept], LOWER, UPPER, 3, norm), abs=2e-4)


@pytest.mark.parametrize(
    ("kind", "levels", "argument"),
    [
        ("BOOLEAN", ("false", "true"), ""),
        ("VARCHAR", ("no", "yes"), "target_levels := ['no', 'yes']"),
        ("INTEGER", ("-1", "7"), "target_levels := [-1, 7]"),
        ("DOUBLE", ("0", "1"), ""),
    ],
)
def test_levels(con: duckdb.DuckDBPyConnection, kind: str, levels: tuple[str, str], argument: str) -> None:
    load(con)
    con.execute(
        f"CREATE TABLE named AS SELECT a, b, c, (CASE label WHEN 1 THEN '{levels[1]}' ELSE '{levels[0]}' END)::{kind} "
        "AS label FROM wide"
    )
    more = f"{PLENTY}, {BOUNDS}, {argument}" if argument else f"{PLENTY}, {BOUNDS}"
    found = fitted(con, "FROM " + LAYOUTS["wide"].format(more=more).replace("wide", "named"))
    assert found == pytest.approx(reference(*features(), LOWER, UPPER, 3), abs=2e-4)


BAD = {
    "no row": "SELECT 1.0 AS a, 1 AS label WHERE false",
    "no label": "SELECT 1.0 AS a, NULL::INTEGER AS label FROM range(9)",
    "another label": "SELECT 1.0 AS a, 5 AS label FROM range(9)",
    "one class": "SELECT i / 9 AS a, 1 AS label FROM range(9) r(i)",
    "no value": "SELECT NULL::DOUBLE AS a, i % 2 AS label FROM range(9) r(i)",
    "not numbers": "SELECT 'nan'::DOUBLE AS a, i % 2 AS label FROM range(9) r(i)",
    "infinite": "SELECT CASE i % 3 WHEN 0 THEN 'inf'::DOUBLE ELSE '-inf' END AS a, i % 2 AS label FROM range(9) r(i)",
    "separable": "SELECT i AS a, (i > 4)::INTEGER AS label FROM range(9) r(i)",
}


@cases("table", BAD)
def test_no_row_makes_it_fail(con: duckdb.DuckDBPyConnection, table: str) -> None:
    con.execute(f"CREATE TABLE t AS {BAD[table]}")
    for more in ("", ", delta := 1e-6", ", row_norm := 0.01", ", neighbours := 'replace'"):
        given = f"target := 'label', features := ['a'], epsilon := 1, lower := 0, upper := 1{more}"
        assert np.isfinite(fitted(con, f"FROM dp_logistic_regression('t', {given})")).all()


def test_charges(con: duckdb.DuckDBPyConnection) -> None:
    """Without normal noise no delta is spent, even where one is given."""
    load(con)
    con.execute("CREATE TABLE many AS SELECT label, list_transform(range(99), lambda i: a)::DOUBLE[99] AS x FROM wide")
    few = f"FROM {LAYOUTS['array'].format(more='epsilon := 0.5, delta := 1e-6, lower := 0, upper := 9, standardize := false')}"
    for number, (sql, charged) in enumerate(((few, 0.0), (few.replace("fixed", "many"), 1e-6))):
        con.execute(sql.replace("epsilon", f"dataset := 'd{number}', epsilon")).fetchall()
        event = json.loads(
            con.execute(f"SELECT event FROM dp_ledger() WHERE dataset = 'd{number}'").fetchone()[0]  # type: ignore[index]
        )
        assert float(Fraction(event["epsilon"])) == 0.5
        assert float(Fraction(event.get("delta", 0))) == charged
        assert event["mechanism"] == ("approximate" if charged else "objective_perturbation")


def test_a_release_predicts(con: duckdb.DuckDBPyConnection) -> None:
    load(con)
    con.execute("FROM " + LAYOUTS["wide"].format(more=f"{PLENTY}, {BOUNDS}, release := 'm'")).fetchall()
    share = con.execute("SELECT avg(((dp_predict('m', wide) > 0.5) = (label = 1))::INTEGER) FROM wide").fetchone()
    assert share is not None
    assert share[0] > 0.75


def test_estimate_says_how_strong_the_noise_is(con: duckdb.DuckDBPyConnection) -> None:
    rows = con.execute(
        "FROM dp_estimate('dp_logistic_regression', n_features := 99, n_rows := 1000, epsilon := 1, delta := 1e-6, "
        "lower := 0, upper := 1, standardize := false)"
    ).fetchall()
    found = {name: value for name, value, *_ in rows}
    noise = calibrate(Fraction(1), Fraction("1e-6"), width=100, neighbours="add_remove")
    assert found["linear_std_error"] == pytest.approx(noise.linear_deviation(100))
    assert found["coefficient_std_error"] == pytest.approx(noise.linear_deviation(100) / float(noise.regularization))
    assert found["rounding_std_error"] == pytest.approx(noise.output_deviation(100))
    assert found["linear_share"] == pytest.approx(noise.linear_deviation(100) / 1000)
    assert found["regularization"] == float(noise.regularization)


@cases(
    ("more", "code"),
    [
        ("epsilon := 1, lower := 0", "P003"),
        ("epsilon := 1, lower := [0, 0], upper := 1", "P035"),
        ("epsilon := 1, lower := 0, upper := 1, delta := 0.5", "P027"),
        ("epsilon := 1, lower := 0, upper := 1, regularization := 0.1", "P033"),
        ("epsilon := 1, lower := 0, upper := 1, regularization := -1", "P024"),
        ("epsilon := 1, lower := 0, upper := 1, row_norm := 0", "P024"),
        ("epsilon := 1, lower := 0, upper := 1, row_norm := 0.0001", "P050"),
        ("epsilon := 1e-12, lower := 0, upper := 1", "P038"),
        ("lower := 0, upper := 1", "P001"),
    ],
)
def test_refused_before_a_row_is_read(con: duckdb.DuckDBPyConnection, more: str, code: str) -> None:
    load(con)
    with pytest.raises(duckdb.Error, match=code):
        con.execute("FROM " + LAYOUTS["wide"].format(more=more)).fetchall()


def test_too_many_features() -> None:
    plan = LogisticPlan.from_arguments(
        "t", {"target": "y", "features": "x", "n_features": 20_001, "epsilon": 1, "lower": 0, "upper": 1}
    )
    with pytest.raises(ParameterError, match="P026"):
        plan.check_features(20_001)


def test_no_more_bounds_are_drawn_than_the_calibration_of_the_noise_covers() -> None:
    """Private bounds of a feature are up to 1,033 noisy numbers; a release has at most 2**24 (`mechanisms/gaussian.py`)."""
    given = {"target": "y", "features": "x", "n_features": 16_209, "epsilon": 1, "delta": 1e-6}
    LogisticPlan.from_arguments("t", given).check_features(16_209)
    with pytest.raises(ParameterError, match="P026"):
        LogisticPlan.from_arguments("t", given).check_features(16_210)
    LogisticPlan.from_arguments("t", {**given, "lower": 0, "upper": 1}).check_features(20_000)


@cases("norm", [None, 2.0**-10, 0.5, 1.0, 2.2, 1e9])
@cases("width", [1, 2, 7, 400])
@cases("epsilon", [1, 64])
def test_no_row_is_longer_than_one(width: int, norm: float | None, epsilon: int) -> None:
    """In exact integers, also where every coordinate is at its bound or beyond."""
    given = {
        "target": "y",
        "features": "x",
        "n_features": width,
        "epsilon": epsilon,
        "lower": -1,
        "upper": 3,
        "row_norm": norm,
    }
    scaling = LogisticPlan.from_arguments("t", given).scaling([(-1.0, 3.0)] * width)
    rng = np.random.default_rng(width)
    values = rng.uniform(-2, 4, (300, width)) * 10.0 ** rng.uniform(-6, 6, (300, 1))
    values[:3] = np.array([[-1.0], [3.0], [np.nan]])
    rows = scaling.rows(values.T)
    squares = [sum(int(value) ** 2 for value in row) for row in rows]
    assert max(squares) <= S**2
    assert (rows == np.rint(rows)).all()
    # Not much is lost: the longest row nearly reaches the bound.
    assert max(squares) >= S**2 * (1 - 1e-4)


def test_real_tables(con: duckdb.DuckDBPyConnection) -> None:
    """At epsilon 1 a private fit of a census is as accurate as scikit-learn's, but for two in a hundred."""
    path = DATA / "tables" / "adult.parquet"
    if not path.exists():
        pytest.skip("the shared data sets are not here")
    con.execute(
        "CREATE TABLE adult AS SELECT age, education_num, hours_per_week, (sex = 'Male')::INTEGER AS male, "
        "(marital_status LIKE 'Married-civ%')::INTEGER AS married, income "
        f"FROM '{path}'"
    )
    con.execute(
        "FROM dp_logistic_regression('adult', target := 'income', epsilon := 1, lower := [17, 1, 1, 0, 0], "
        "upper := [90, 16, 99, 1, 1], features := ['age', 'education_num', 'hours_per_week', 'male', 'married'], "
        "target_levels := ['<=50K', '>50K'], release := 'm')"
    ).fetchall()
    share = con.execute(
        "SELECT avg(((dp_predict('m', adult) > 0.5) = (income = '>50K'))::INTEGER) FROM adult"
    ).fetchone()
    frame = con.execute("SELECT age, education_num, hours_per_week, male, married FROM adult").fetchnumpy()
    x = np.column_stack([np.asarray(column, dtype=float) for column in frame.values()])
    y = np.asarray(con.execute("SELECT income = '>50K' AS y FROM adult").fetchnumpy()["y"])
    best = LogisticRegression(max_iter=1000).fit(x / x.max(axis=0), y).score(x / x.max(axis=0), y)
    assert share is not None
    assert share[0] > best - 0.02


def test_real_text(con: duckdb.DuckDBPyConnection) -> None:
    """Spam by a hundred words at epsilon 2: better than always saying no (0.866)."""
    path = DATA / "text" / "sms_spam_bow.parquet"
    if not path.exists():
        pytest.skip("the shared data sets are not here")
    con.execute(f"CREATE TABLE bow AS FROM '{path}'")
    words = con.execute("SELECT token FROM bow GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 100").fetchall()
    con.execute(
        "FROM dp_logistic_regression('bow', target := 'label', features := 'token', row_id := 'doc_id', names := ?, "
        "epsilon := 2, lower := 0, upper := 1, row_norm := 2, release := 'spam')",
        [[word for (word,) in words]],
    ).fetchall()
    share = con.execute(
        "SELECT avg(((dp_predict('spam', w) > 0.5) = (l = 1))::INTEGER) "
        "FROM (SELECT any_value(label) AS l, list(token) AS w FROM bow GROUP BY doc_id)"
    ).fetchone()
    assert share is not None
    assert share[0] > 0.9


def flags(rows: int, rare: int) -> pa.Table:
    """Return a label, four flags that tell it, and flags of one row in 300 that do not."""
    rng = np.random.default_rng(6)
    common = rng.random((4, rows)) < 0.4
    odds = 3 * common[0] + 2 * common[1] - 2 * common[2] - 1.0
    columns = {f"common{place}": column for place, column in enumerate(common)}
    columns |= {f"rare{place}": rng.random(rows) < 1 / 300 for place in range(rare)}
    return pa.table({**columns, "y": odds + rng.logistic(size=rows) > 0})


def test_flags_that_noise_decides_are_left_out(con: duckdb.DuckDBPyConnection) -> None:
    """Their rows hold a coefficient less than the ridge does: they are told, and make no row shorter."""
    con.register("frame", flags(6000, 60))
    con.execute("CREATE TABLE flags AS FROM frame")
    call = "FROM dp_logistic_regression('flags', target := 'y', epsilon := {}, delta := 1e-6)"
    calls, left_out = 6, 0
    for _ in range(calls):
        verdicts = {row[0]: row[3] for row in con.execute(call.format(0.5)).fetchall()}
        left_out += sum(verdicts[f"rare{place}"] == "undetermined" for place in range(60))
        assert all(verdicts[f"common{place}"] != "undetermined" for place in range(4))
    assert left_out >= 50 * calls  # 53 are, with a deviation of 2.2
    verdicts = {row[0]: row[3] for row in con.execute(call.format(500)).fetchall()}
    assert "undetermined" not in verdicts.values()


def test_a_flag_is_left_out_by_what_is_released_alone(con: duckdb.DuckDBPyConnection) -> None:
    """The heaviest features stay whatever the noise; of the others as many as the ridge leaves something of."""
    given = {"target": "y", "epsilon": 0.5, "delta": 1e-6, "features": [f"x{place}" for place in range(6)]}
    plan: LogisticPlan = LogisticPlan.from_arguments("t", given)
    call = object.__new__(LogisticCall)
    object.__setattr__(call, "plan", plan)

    def kept(*weights: float) -> list[int]:
        standard = Standard(np.zeros(len(weights)), np.ones(len(weights)), np.array(weights))
        return call._worth_fitting(standard, steps=False, ends=Fraction(0))

    assert kept(1, 1, 0.6, 1, 1, 0.9) == [0, 1, 2, 3, 4, 5]
    assert kept(10, 1e5, 20, 30, 1e5, 0) == [1, 4]
    assert kept(1e5, 3e4, 1e5, 0, 2e4, 5) == [0, 1, 2, 4]
    ridges = [float(plan.calibrated(count).regularization) for count in (1, 2)]
    light = 4 * 3 * ridges[1]
    assert kept(1e5, 1.01 * light) == [0, 1]
    assert kept(1e5, 0.99 * light) == [0]


def test_a_delta_costs_few_rows_no_more_than_its_share(con: duckdb.DuckDBPyConnection) -> None:
    """Moments of few rows are noise, and are not used: before, the mean area was 0.1 lower than without delta."""
    rng = np.random.default_rng(8)
    x = rng.uniform(-1, 1, (240, 10))
    y = x[:, :4] @ [3, -3, 2, 2] + rng.logistic(size=240) > 0
    names = [f"x{place}" for place in range(10)]
    con.register("frame", pa.table({**dict(zip(names, x.T, strict=True)), "y": y}))
    con.execute("CREATE TABLE few AS FROM frame")

    def area(more: str) -> float:
        found = []
        for _ in range(40):
            w = fitted(con, f"FROM dp_logistic_regression('few', target := 'y', lower := -1, upper := 1{more})")
            found.append(roc_auc_score(y, x @ w[1:]))
        return float(np.mean(found))

    pure, approximate = area(", epsilon := 1"), area(", epsilon := 1, delta := 1e-6")
    assert pure > 0.75
    assert approximate > pure - 0.05


def test_long_rows_without_values_need_no_bounds(con: duckdb.DuckDBPyConnection) -> None:
    words = "SELECT i AS id, i % 2 AS label, 'w' || (i % 2) AS word, 1.0 AS v FROM range(2000) AS r(i)"
    con.execute(f"CREATE TABLE words AS {words}")
    given = "target := 'label', features := 'word', row_id := 'id', names := ['w0', 'w1'], epsilon := 5"
    call = f"FROM dp_logistic_regression('words', {given}{{}})"
    for more in ("", ", delta := 1e-6", ", lower := 0, upper := 1"):
        found = {row[0]: row[1] for row in con.execute(call.format(more)).fetchall()}
        assert found["w1"] > 0 > found["w0"]
    with pytest.raises(duckdb.Error, match="DPSQL-P003"):
        con.execute(call.format(", value := 'v'")).fetchall()
