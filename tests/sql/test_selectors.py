"""What holds for every function that selects k features: forms, layouts, bad input, charges, interrupts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

import dpsql
from dpsql.functions.registry import FUNCTIONS, SELECTORS
from support.cases import cases
from support.sql_text import named

# What a call of each function needs besides source, target, features, k and epsilon.
NEEDS: dict[str, dict[str, Any]] = {
    "dp_sis": {"lower": -3, "upper": 3, "target_lower": -3, "target_upper": 3},
    "dp_kendall": {},
    "dp_two_stage": {"blocks": 20},
    "dp_best_subset": {"lower": -3, "upper": 3, "target_lower": -3, "target_upper": 3},
}
COLLECTING = [name for name in NEEDS if name != "dp_sis"]
ROWS = 600
FEATURES = ["a", "b", "c", "d"]


def test_every_selector_of_k_features_is_here() -> None:
    """dp_score_filter, which may take a threshold instead, is in test_fits.py."""
    assert {*NEEDS, "dp_score_filter"} == set(SELECTORS)


def arguments(name: str, **more: Any) -> str:
    given = {"k": 2, "epsilon": 1000, **NEEDS[name], **more}
    return named(given)


def call(name: str, source: str = "t", features: Any = FEATURES, **more: Any) -> str:
    return f"{name}('{source}', target := 'y', {arguments(name, features=features, **more)})"


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """The target follows a and, less, c; b and d are noise."""
    opened = dpsql.connect()
    rng = np.random.default_rng(7)
    x = rng.normal(size=(ROWS, 4))
    y = x[:, 0] + 0.6 * x[:, 2] + 0.2 * rng.normal(size=ROWS)
    frame = pl.DataFrame({"id": range(ROWS), **dict(zip(FEATURES, x.T, strict=True)), "y": y})
    opened.register("frame", frame.to_arrow())
    opened.execute("CREATE TABLE t AS FROM frame")
    yield opened
    opened.close()


def charges(con: Any) -> list[tuple[str, str]]:
    found = con.execute("SELECT function, status FROM dp_ledger() WHERE kind = 'release' ORDER BY sequence").fetchall()
    return [(row[0], row[1]) for row in found]


def selected(rows: list[tuple[Any, ...]]) -> list[str]:
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    return [row[1] for row in rows]


@pytest.mark.parametrize("name", NEEDS)
def test_every_layout_finds_what_the_target_follows(con: Any, name: str) -> None:
    con.execute("CREATE TABLE vectors AS SELECT [a, b, c, d] AS x, y FROM t")
    con.execute("CREATE TABLE arrays AS SELECT x::DOUBLE[4] AS x, y FROM vectors")
    cells = " UNION ALL ".join(f"SELECT id, '{f}' AS feature, {f} AS v, y FROM t" for f in FEATURES)
    con.execute(f"CREATE TABLE cells AS {cells}")
    sources: list[tuple[str, Any, dict[str, Any]]] = [
        ("t", FEATURES, {}),
        ("vectors", "x", {"n_features": 4}),
        ("vectors", "x", {"names": FEATURES}),
        ("arrays", "x", {}),
        ("cells", "feature", {"row_id": "id", "value": "v", "names": FEATURES}),
    ]
    for source, features, more in sources:
        rows = con.execute(f"FROM {call(name, source, features, **more)}").fetchall()
        index = {"a": "a", "c": "c", "x[1]": "a", "x[3]": "c"}
        assert {index[feature] for feature in selected(rows)} == {"a", "c"}, (source, more)
    con.execute("CREATE VIEW v AS SELECT * EXCLUDE (id) FROM t")
    assert set(selected(con.execute(f"FROM {call(name, 'v', None)}").fetchall())) == {"a", "c"}


@pytest.mark.parametrize("name", NEEDS)
def test_aggregate_form(con: Any, name: str) -> None:
    form = f"{name}([a, b, c, d], y, n_features := 4, {arguments(name)})"
    [(rows,)] = con.execute(f"SELECT {form} FROM t").fetchall()
    assert {row["feature"] for row in rows} == {"x[1]", "x[3]"}
    groups = con.execute(f"SELECT id % 2, {form} FROM t GROUP BY 1 ORDER BY 1").fetchall()
    assert len(groups) == 2
    assert len(charges(con)) == 3
    [(empty,)] = con.execute(f"SELECT {form} FROM t WHERE id < 0").fetchall()
    assert len(empty) == 2


@pytest.mark.parametrize("name", NEEDS)
def test_python_form_on_a_frame(con: Any, name: str) -> None:
    with dpsql.Context() as context:
        frame = pl.DataFrame(con.sql("FROM t").to_arrow_table())
        select = getattr(context, name)
        release = select(frame, target="y", features=FEATURES, k=2, epsilon=1000, **NEEDS[name], release="r")
        assert release.function == name
        assert set(release.features) == {"a", "c"}
        again = select(frame, target="y", features=FEATURES, k=2, epsilon=1000, **NEEDS[name], release="r")
        assert again.replayed
        assert again.features == release.features
        assert context.dp_ledger().column("kind").to_pylist()[0] == "release"
        assert set(context.dp_ledger().column("kind").to_pylist()[1:]) <= {"replay"}
        with pytest.raises(dpsql.ParameterError, match="P014"):
            select(frame, target="y", features=FEATURES, k=1, epsilon=1000, **NEEDS[name], release="r")


@cases("name", NEEDS)
@cases(
    "rows",
    [
        "SELECT 1.0 AS a, 2.0 AS b, 3.0 AS y WHERE false",
        "SELECT 1.0 AS a, 2.0 AS b, 3.0 AS y",
        "SELECT NULL::DOUBLE AS a, NULL::DOUBLE AS b, NULL::DOUBLE AS y FROM range(9)",
        "SELECT 'nan'::DOUBLE AS a, 'inf'::DOUBLE AS b, '-inf'::DOUBLE AS y FROM range(9)",
        "SELECT 1e300 * (i % 3 - 1) AS a, 1e-300 * i AS b, i AS y FROM range(50) AS r(i)",
        "SELECT 1.0 AS a, i AS b, 1.0 AS y FROM range(50) AS r(i)",
        "SELECT i AS a, i AS b, i AS y FROM range(50) AS r(i)",
        "SELECT i % 2 = 0 AS a, i % 3 = 0 AS b, i % 5 AS y FROM range(50) AS r(i)",
        "SELECT i::HUGEINT AS a, i::DECIMAL(18, 3) AS b, CASE WHEN i % 2 = 0 THEN i END AS y FROM range(50) AS r(i)",
    ],
)
def test_whatever_the_rows_hold_a_call_answers(con: Any, name: str, rows: str) -> None:
    con.execute(f"CREATE TABLE odd AS {rows}")
    for k in (1, 2):
        found = con.execute(f"FROM {call(name, 'odd', ['a', 'b'], k=k, epsilon=1)}").fetchall()
        assert len(set(selected(found))) == k


@pytest.mark.parametrize("name", NEEDS)
def test_levels_of_a_text_target_and_a_boolean_one(con: Any, name: str) -> None:
    bounds = {"target_lower": None, "target_upper": None} if "target_lower" in NEEDS[name] else {}
    con.execute("CREATE TABLE texts AS SELECT * REPLACE (CASE WHEN y > 0 THEN 'yes' ELSE 'no' END AS y) FROM t")
    con.execute("CREATE TABLE flags AS SELECT * REPLACE (y > 0 AS y) FROM t")
    levels = call(name, "texts", target_levels=["no", "yes"], **bounds)
    assert "a" in selected(con.execute(f"FROM {levels}").fetchall())
    assert "a" in selected(con.execute(f"FROM {call(name, 'flags', **bounds)}").fetchall())
    with pytest.raises(duckdb.Error, match="DPSQL-S005"):
        con.execute(f"FROM {call(name, 'texts', **bounds)}").fetchall()
    assert len(charges(con)) == 2


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    *((name, {"k": 0}, "P021") for name in NEEDS),
    *((name, {"k": 5}, "P002") for name in NEEDS),
    *((name, {"epsilon": -1}, "P001") for name in NEEDS),
    *((name, {"neighbours": "both"}, "P005") for name in NEEDS),
    *((name, {"privacy_unit": "id"}, "P009") for name in NEEDS),
    *((name, {"features": ["a", "nowhere"], "k": 1}, "S002") for name in NEEDS),
    ("dp_kendall", {"mechanism": "one_shot"}, "P005"),
    ("dp_kendall", {"split": "uneven"}, "P005"),
    ("dp_kendall", {"blocks": 0, "row_id": "id"}, "P021"),
    ("dp_kendall", {"blocks": 3}, "P046"),
    ("dp_two_stage", {"blocks": None}, "P046"),
    ("dp_two_stage", {"rows_per_block": 10}, "P046"),
    ("dp_two_stage", {"penalty": 0}, "P024"),
    ("dp_two_stage", {"penalty": 10**400}, "P024"),
    ("dp_two_stage", {"standardize": 1}, "P023"),
    ("dp_best_subset", {"lower": None}, "P003"),
    ("dp_best_subset", {"target_lower": None, "target_upper": None}, "P004"),
    ("dp_best_subset", {"radius": 0}, "P024"),
    ("dp_best_subset", {"ridge": -1}, "P024"),
    ("dp_best_subset", {"method": "mistakes"}, "P005"),
    ("dp_best_subset", {"gap": 3}, "P045"),
    ("dp_best_subset", {"list_size": 0, "method": "top_r"}, "P021"),
]


@cases(("name", "change", "code"), REFUSED, ids=lambda value: str(value))
def test_refused_before_a_row_is_read(con: Any, name: str, change: dict[str, Any], code: str) -> None:
    change = {"features": FEATURES, **change}
    features = change.pop("features")
    with pytest.raises(duckdb.Error, match=f"DPSQL-{code}"):
        con.execute(f"FROM {call(name, 't', features, **change)}").fetchall()
    assert charges(con) == []


def test_more_features_than_fit_in_memory_are_refused(con: Any) -> None:
    con.execute("CREATE TABLE vectors AS SELECT [a, b] AS x, y FROM t")
    with pytest.raises(duckdb.Error, match="DPSQL-P026"):
        con.execute(f"FROM {call('dp_best_subset', 'vectors', 'x', n_features=5001)}").fetchall()
    assert charges(con) == []


@pytest.mark.parametrize("name", COLLECTING)
def test_charges(con: Any, name: str) -> None:
    for free in ("EXPLAIN FROM {c}", "DESCRIBE FROM {c}", "PREPARE p AS FROM {c}", "FROM {c} LIMIT 0"):
        con.execute(free.format(c=call(name))).fetchall()
    assert charges(con) == []
    con.execute("EXECUTE p").fetchall()
    con.execute(f"WITH r AS (FROM {call(name)}) SELECT * FROM r AS a, r AS b").fetchall()
    con.execute(f"EXPLAIN ANALYZE FROM {call(name)}").fetchall()
    assert charges(con) == [(name, "released")] * 3


CORRELATED = {
    "scalar": "SELECT (SELECT feature FROM {call} WHERE rank = r.i) FROM range({n}) AS r(i)",
    "exists": "SELECT i FROM range({n}) AS r(i) WHERE EXISTS (SELECT 1 FROM {call} AS s WHERE s.rank = r.i)",
    "lateral": "SELECT * FROM range({n}) AS r(i), LATERAL (SELECT feature, r.i + rank AS z FROM {call}) AS s",
}


@cases("shape", CORRELATED)
@cases("n", [1, 2, 3000])
@cases("with_id", [False, True])
def test_a_correlated_subquery_never_collects_a_row_twice(
    con: Any, monkeypatch: pytest.MonkeyPatch, shape: str, n: int, with_id: bool
) -> None:
    """DuckDB 2.0 joins the outer rows to ours: such a call is refused, or every row comes once."""
    collected: list[int] = []
    prepare = FUNCTIONS["dp_two_stage"].call.prepare

    def look(self: Any, statistic: Any, progress: Any) -> Any:
        collected.append(statistic.rows)
        return prepare(self, statistic, progress)

    monkeypatch.setattr(FUNCTIONS["dp_two_stage"].call, "prepare", look)
    statement = CORRELATED[shape].format(call=call("dp_two_stage", row_id="id" if with_id else None), n=n)
    try:
        con.execute(statement).fetchall()
    except duckdb.Error as error:
        assert "DPSQL-P019" in str(error)
        assert n > 1
    assert collected == [ROWS] * len(collected)


@pytest.mark.parametrize("name", NEEDS)
def test_a_budget_that_does_not_suffice_is_refused_before_the_scan(con: Any, name: str) -> None:
    con.execute("SELECT dp_protect('t', epsilon := 1)").fetchall()
    con.execute("CREATE VIEW bad AS SELECT * REPLACE (error('read')::DOUBLE AS a) FROM t")
    with pytest.raises(duckdb.Error, match="DPSQL-B"):
        con.execute(f"FROM {call(name, 'bad', dataset='t', epsilon=2)}").fetchall()
    con.execute(f"FROM {call(name, epsilon=1)}").fetchall()
    with pytest.raises(duckdb.Error, match="DPSQL-B"):
        con.execute(f"FROM {call(name, epsilon=0.1)}").fetchall()
    assert len(charges(con)) == 1


class PlantedError(Exception):
    """Its text is secret."""


@cases("name", COLLECTING)
@cases("part", ["read", "prepare"])
@cases(
    "error",
    [PlantedError("SECRET-31337"), KeyboardInterrupt(), dpsql.ParameterError("P018", "SECRET-31337")],
    ids=["own", "interrupt", "refusal behind the gate"],
)
@cases("form", ["table", "aggregate"])
def test_a_failure_after_the_gate_is_charged_once(
    con: Any, monkeypatch: pytest.MonkeyPatch, name: str, part: str, error: BaseException, form: str
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(FUNCTIONS[name].call, part, fail)
    statement = f"FROM {call(name)}"
    if form == "aggregate":
        statement = f"SELECT {name}([a, b], y, n_features := 2, {arguments(name)}) FROM t"
    with pytest.raises((duckdb.Error, KeyboardInterrupt)) as failure:
        con.execute(statement).fetchall()
    assert "31337" not in str(failure.value)
    assert charges(con) == [(name, "charged, no result")]
    monkeypatch.undo()
    con.execute(statement).fetchall()
    assert len(charges(con)) == 2


@pytest.mark.parametrize("name", COLLECTING)
def test_a_batch_that_does_not_come_back_once_is_refused(con: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Were a batch read twice, its rows would count twice: the release notices, whatever DuckDB does."""
    session = dpsql.install(con)
    opened = session.open_call

    def miscount(*given: Any) -> int:
        ticket = opened(*given)
        session.running(ticket).batches += 1
        return ticket

    monkeypatch.setattr(session, "open_call", miscount)
    with pytest.raises(duckdb.Error, match="DPSQL-I001"):
        con.execute(f"FROM {call(name)}").fetchall()
    assert charges(con) == [(name, "charged, no result")]


def test_rows_of_an_aborted_statement_are_freed(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB does not tell when a scan fails; what the call had read goes once it has been silent for long."""
    con.execute(
        "CREATE VIEW bad AS SELECT * REPLACE (CASE WHEN id = 599 THEN error('x')::DOUBLE ELSE a END AS a) FROM t"
    )
    session = dpsql.install(con)
    with pytest.raises(duckdb.Error):
        con.execute(f"FROM {call('dp_kendall', 'bad')}").fetchall()
    con.execute(f"FROM {call('dp_kendall')}").fetchall()
    assert len(session._calls) == 1
    monkeypatch.setattr("dpsql.engines.duckdb.session._DEAD_AFTER", 0.0)
    con.execute(f"FROM {call('dp_kendall')}").fetchall()
    assert not session._calls


@pytest.mark.parametrize("name", NEEDS)
def test_rows_of_one_person_are_capped(con: Any, name: str) -> None:
    """One person with a flood of rows that say the opposite does not turn the selection."""
    con.execute("CREATE TABLE people AS SELECT id AS person, * FROM t")
    con.execute("INSERT INTO people SELECT -1, i, 0, sin(i), 0, 0, 3 * sin(i) FROM range(20000) AS r(i)")
    one = {"privacy_unit": "person", "max_rows_per_unit": 1}
    assert "b" in selected(con.execute(f"FROM {call(name, 'people', epsilon=10**6)}").fetchall())
    assert selected(con.execute(f"FROM {call(name, 'people', epsilon=10**6, **one)}").fetchall()) in (
        ["a", "c"],
        ["c", "a"],
    )
    guarantee = con.execute("SELECT guarantee FROM dp_ledger() ORDER BY sequence DESC LIMIT 1").fetchall()[0][0]
    assert "all rows of one person" in guarantee


@pytest.mark.parametrize("name", NEEDS)
def test_estimate(con: Any, name: str) -> None:
    more = "".join(f", {key} := {value}" for key, value in NEEDS[name].items() if key == "blocks")
    rows = dict(
        con.execute(
            f"SELECT quantity, value FROM dp_estimate('{name}', n_features := 50, k := 3, epsilon := 2, n_rows := 1000{more})"
        ).fetchall()
    )
    assert rows["epsilon"] == 2
    assert 0 < rows["rho"] <= 2
    assert rows["noise_scale"] > 0
    assert rows["score_gap_share"] > 0
    with pytest.raises(duckdb.Error, match="DPSQL-P016"):
        wrong = "center := 'target'" if name != "dp_sis" else "radius := 1"
        con.execute(f"FROM dp_estimate('{name}', n_features := 50, k := 3, epsilon := 2, {wrong}{more})").fetchall()
