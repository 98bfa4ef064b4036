"""Who pays, when: every way to run a dp_sis, and what it adds to the ledger."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.engines.duckdb.lineage import functions
from dpsql.engines.duckdb.session import Session, Turns
from dpsql.functions import sis as sis_selector
from dpsql.functions.sis import SisCall
from dpsql.udfs import rows as row_functions
from support.cases import cases
from support.sessions import session_of

ARGUMENTS = "target := 'y', k := 1, epsilon := 1, lower := 0, upper := 1"
CALL = f"dp_sis('t', {ARGUMENTS})"
AGGREGATE = "dp_sis([a, b], y, n_features := 2, k := 1, epsilon := 1, lower := 0, upper := 1, dataset := 't')"


def fill(con: Any) -> None:
    con.execute(
        "CREATE TABLE t AS SELECT random() AS a, random() AS b, i % 2 = 0 AS y, i % 4 AS g FROM range(100) AS r(i)"
    )


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    opened = dpsql.connect()
    fill(opened)
    yield opened
    opened.close()


def charges(con: Any) -> int:
    return int(con.execute("SELECT count(*) FROM dp_ledger() WHERE kind = 'release'").fetchall()[0][0])


FREE = {
    "EXPLAIN": "EXPLAIN SELECT * FROM {call}",
    "DESCRIBE": "DESCRIBE SELECT * FROM {call}",
    "PREPARE": "PREPARE p AS SELECT * FROM {call}",
    "CREATE VIEW": "CREATE TEMP VIEW v AS SELECT * FROM {call}",
    "LIMIT 0": "SELECT * FROM {call} LIMIT 0",
    "WHERE false": "SELECT * FROM {call} WHERE false",
}
PAID = {
    "SELECT": (1, "SELECT * FROM {call}"),
    "FROM": (1, "FROM {call}"),
    "a column": (1, "SELECT feature FROM {call}"),
    "count(*)": (1, "SELECT count(*) FROM {call}"),
    "LIMIT 1": (1, "SELECT * FROM {call} LIMIT 1"),
    "filter": (1, "SELECT * FROM {call} WHERE rank = 1 AND feature <> 'zz'"),
    "CREATE TABLE AS": (1, "CREATE TABLE made AS SELECT * FROM {call}"),
    "INSERT": (1, "INSERT INTO kept SELECT * FROM {call}"),
    "EXPLAIN ANALYZE": (1, "EXPLAIN ANALYZE SELECT * FROM {call}"),
    "SUMMARIZE": (1, "SUMMARIZE SELECT * FROM {call}"),
    "view read": (1, "FROM view_of_it"),
    "CTE twice": (1, "WITH r AS (SELECT * FROM {call}) SELECT * FROM r AS a, r AS b WHERE a.feature = b.feature"),
    "CTE materialized twice": (1, "WITH r AS MATERIALIZED (SELECT * FROM {call}) SELECT * FROM r AS a, r AS b"),
    "CTE not materialized twice": (2, "WITH r AS NOT MATERIALIZED (SELECT * FROM {call}) SELECT * FROM r AS a, r AS b"),
    "self-join of two calls": (2, "SELECT * FROM {call} AS a JOIN {call} AS b ON a.rank = b.rank"),
    "UNION ALL of two calls": (2, "SELECT * FROM {call} UNION ALL SELECT * FROM {call}"),
    "scalar subquery over many rows": (1, "SELECT (SELECT feature FROM {call}) FROM range(10)"),
    "branch not taken": (1, "SELECT CASE WHEN false THEN (SELECT max(rank) FROM {call}) END"),
    "lateral join": (1, "SELECT r.i, f.feature FROM range(3) AS r(i), LATERAL (SELECT * FROM {call}) AS f"),
}


@cases("shape", FREE, quick=1)
def test_free(con: Any, shape: str) -> None:
    con.execute(FREE[shape].format(call=CALL)).fetchall()
    assert charges(con) == 0


@cases("shape", PAID, quick=1, alone=True)
def test_paid(con: Any, shape: str) -> None:
    expected, statement = PAID[shape]
    con.execute(f"CREATE TABLE kept AS FROM {CALL} LIMIT 0")
    con.execute(f"CREATE TEMP VIEW view_of_it AS FROM {CALL}")
    con.execute(statement.format(call=CALL)).fetchall()
    assert charges(con) == expected
    con.execute(statement.replace("made", "made_again").format(call=CALL)).fetchall()
    assert charges(con) == 2 * expected, "each execution is a release"


def test_an_unused_read_may_be_left_out(con: Any) -> None:
    """Where DuckDB proves that nothing of a release is used it is not run, and not charged."""
    rows = con.execute(f"SELECT count(*) FROM (SELECT 1 FROM {CALL} LIMIT 0)").fetchall()
    assert rows == [(0,)]
    assert charges(con) == 0


@pytest.mark.long
def test_aggregate_form(con: Any) -> None:
    for statement in ("EXPLAIN SELECT {call} FROM t", "DESCRIBE SELECT {call} FROM t", "SELECT {call} FROM t LIMIT 0"):
        con.execute(statement.format(call=AGGREGATE)).fetchall()
        assert charges(con) == 0, statement
    con.execute(f"SELECT {AGGREGATE} FROM t").fetchall()
    assert charges(con) == 1
    con.execute(f"SELECT g, {AGGREGATE} FROM t GROUP BY g").fetchall()
    assert charges(con) == 5, "one release for each of four groups"
    con.execute(f"SELECT {AGGREGATE} FROM t WHERE a > 2").fetchall()
    assert charges(con) == 6, "no rows are a table like any other"
    con.execute(f"PREPARE p AS SELECT {AGGREGATE} FROM t")
    assert charges(con) == 6
    con.execute("EXECUTE p").fetchall()
    con.execute("EXECUTE p").fetchall()
    assert charges(con) == 8


@pytest.mark.long
def test_execute_twice_draws_twice(con: Any) -> None:
    """40 draws among 40 features agree by chance with probability below 1e-60."""
    columns = ", ".join(f"0.5 AS f{j}" for j in range(40))
    con.execute(f"CREATE TABLE flat AS SELECT {columns}, true AS y FROM range(10)")
    con.execute(f"PREPARE p AS SELECT feature FROM dp_sis('flat', {ARGUMENTS})")
    draws = [con.execute("EXECUTE p").fetchall()[0][0] for _ in range(40)]
    assert charges(con) == 40
    assert len(set(draws)) > 1


def test_prepared_with_parameters(con: Any) -> None:
    con.execute("PREPARE p AS SELECT * FROM dp_sis($1, target := 'y', k := $2, epsilon := $3, lower := 0, upper := 1)")
    assert charges(con) == 0
    assert len(con.execute("EXECUTE p('t', 2, 0.5)").fetchall()) == 2
    assert con.execute("SELECT epsilon_spent FROM dp_budget()").fetchall() == [(0.5,)]
    rows = con.execute(
        "SELECT * FROM dp_sis(?, target := ?, k := ?, epsilon := ?, lower := 0, upper := 1)", ["t", "y", 1, 0.25]
    ).fetchall()
    assert len(rows) == 1
    assert con.execute("SELECT epsilon_spent FROM dp_budget()").fetchall() == [(0.75,)]


def test_a_relation_runs_and_pays_at_every_fetch(con: Any) -> None:
    relation = con.sql(f"SELECT * FROM {CALL}")
    assert relation.columns == ["rank", "feature", "score", "std_error", "verdict", "set_verdict"]
    made = charges(con)
    relation.fetchall()
    first = charges(con)
    relation = con.sql(f"SELECT * FROM {CALL}")
    relation.to_arrow_table()
    second = charges(con)
    assert made == 0
    assert (first, second) == (1, 2)


def test_rollback_keeps_the_charge(con: Any) -> None:
    con.begin()
    con.execute("CREATE TABLE gone AS FROM t")
    con.execute(f"SELECT * FROM dp_sis('gone', {ARGUMENTS})").fetchall()
    con.rollback()
    assert charges(con) == 1
    with pytest.raises(duckdb.CatalogException):
        con.execute("FROM gone")


def test_a_later_error_keeps_the_charge(con: Any) -> None:
    with pytest.raises(duckdb.Error):
        con.execute(f"SELECT error('later ' || feature) FROM {CALL}").fetchall()
    assert charges(con) == 1


@pytest.mark.long
def test_named_release_replays(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    named = f"SELECT * FROM dp_sis('t', {ARGUMENTS}, release := 'first')"
    con = dpsql.connect(path)
    columns = ", ".join(f"0.5 AS f{j}" for j in range(200))
    con.execute(f"CREATE TABLE t AS SELECT {columns}, true AS y FROM range(10)")
    first = con.execute(named).fetchall()
    assert [con.execute(named).fetchall() for _ in range(3)] == [first] * 3
    assert charges(con) == 1
    with pytest.raises(duckdb.Error, match="DPSQL-P014"):
        con.execute(named.replace("k := 1", "k := 2")).fetchall()
    with pytest.raises(duckdb.Error, match="DPSQL-P014"):
        con.execute(named.replace("epsilon := 1", "epsilon := 1.5")).fetchall()
    assert con.execute(named.replace("epsilon := 1", "epsilon := 1.0")).fetchall() == first, "1.0 is 1"
    con.execute("DROP TABLE t")
    assert con.execute(named).fetchall() == first, "the table is not needed"
    con.execute("CREATE TABLE t AS SELECT 'nothing' AS like_it")
    assert con.execute(named).fetchall() == first
    con.close()
    again = dpsql.connect(path)
    assert again.execute(named).fetchall() == first, "nor the process"
    assert charges(again) == 1
    again.execute("SELECT dp_protect('t', epsilon := 1)")
    assert again.execute(named).fetchall() == first, "a spent budget does not matter"
    again.close()


def test_a_statement_prepared_before_its_release_replays_it(con: Any) -> None:
    named = f"SELECT * FROM dp_sis('t', {ARGUMENTS}, release := 'r')"
    con.execute(f"PREPARE p AS {named}")
    first = con.execute(named).fetchall()
    assert con.execute("EXECUTE p").fetchall() == first
    assert charges(con) == 1


class PlantedError(Exception):
    """Its text is secret."""


FAILURES: dict[str, tuple[str, str]] = {
    "draw": ("draw_selection", ""),
    "centre": ("draw_center", ", center := 'target'"),
}


@cases("failing", FAILURES, quick=1, alone=True)
@cases("form", ["table", "aggregate"])
def test_a_failed_draw_is_charged_without_a_result(
    con: Any, monkeypatch: pytest.MonkeyPatch, failing: str, form: str
) -> None:
    name, more = FAILURES[failing]

    def fail(*_: Any) -> Any:
        raise PlantedError("SECRET-31337")

    monkeypatch.setattr(sis_selector, name, fail)
    if form == "table":
        statement = f"SELECT * FROM dp_sis('t', {ARGUMENTS}{more})"
    else:
        statement = f"SELECT {AGGREGATE.replace(', dataset', more + ', dataset')} FROM t"
    with pytest.raises(duckdb.Error, match="DPSQL-I001") as failure:
        con.execute(statement).fetchall()
    assert "31337" not in str(failure.value)
    assert con.execute("SELECT status, epsilon FROM dp_ledger()").fetchall() == [("charged, no result", 1.0)]
    monkeypatch.undo()
    con.execute(statement).fetchall()
    assert charges(con) == 2


@cases("part", ["CrossProducts.add_columns", "target_sums", "SisCall.coded_target"], quick=1, alone=True)
def test_a_failing_kernel_is_charged_once(con: Any, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    con.execute("CREATE TABLE many AS SELECT a, b, y FROM t, range(500)")
    con.execute("CREATE TABLE long AS SELECT rowid AS d, 'a' AS token, y FROM many")

    def fail(*_: Any) -> Any:
        raise PlantedError("SECRET-31337")

    monkeypatch.setattr(f"dpsql.{'functions.sis' if 'Sis' in part else 'statistics.xty'}.{part}", fail)
    source = (
        "'long', features := 'token', row_id := 'd', names := ['a']" if part == "SisCall.coded_target" else "'many'"
    )
    for center in ("public", "target"):
        if part == "target_sums" and center == "public":
            continue
        before = charges(con)
        with pytest.raises(duckdb.Error, match="DPSQL-I001") as failure:
            con.execute(f"SELECT * FROM dp_sis({source}, {ARGUMENTS}, center := '{center}')").fetchall()
        assert "31337" not in str(failure.value)
        assert charges(con) == before + 1, "several threads fail, the call is charged once"


def test_a_query_is_charged_as_a_whole_where_one_of_its_parts_fails(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise PlantedError("SECRET-31337")

    con.execute("SELECT dp_protect('t', epsilon := 10)").fetchall()
    monkeypatch.setattr("dpsql.functions.query_bounds.CoreBoundsCall.after", fail)
    with pytest.raises(duckdb.Error, match="DPSQL-I001") as failure:
        con.execute("FROM dp_query('SELECT count(*), avg(a) FROM t', epsilon := 1)").fetchall()
    assert "31337" not in str(failure.value)
    found = con.execute("SELECT function, status, epsilon FROM dp_ledger() WHERE kind = 'release'").fetchall()
    assert found == [("dp_query", "charged, no result", 1.0)]


@pytest.mark.parametrize("key", ["", "Ctrl-C"])
def test_a_statement_that_is_interrupted_after_its_gate_is_charged(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """No function of dpsql hears of it, so the caller's own process looks for calls that began and did not end."""
    with dpsql.Context() as ctx:
        ctx.sql("CREATE TABLE t AS SELECT i AS a FROM range(9) AS r(i)")
        opened, table = Session.open_call, Turns.table

        def stopped(*given: Any) -> pa.Table:
            with suppress(duckdb.Error):
                return table(*given)
            raise KeyboardInterrupt

        def interrupted(*given: Any) -> int:
            ticket = opened(*given)
            ctx.connection.interrupt()
            return ticket

        monkeypatch.setattr(Session, "open_call", interrupted)
        if key:
            monkeypatch.setattr(Turns, "table", stopped)
        with pytest.raises((duckdb.Error, dpsql.DpsqlError, KeyboardInterrupt)):
            ctx.dp_sum("t", target="a", lower=0, upper=9, epsilon=1)
        monkeypatch.undo()
        found = ctx.sql("SELECT status, epsilon FROM dp_ledger()").to_pylist()
        assert found == [{"status": "charged, no result", "epsilon": 1.0}]


def test_a_statement_that_fails_on_a_row_before_its_gate_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """It binds, so it was no name or type that failed; DuckDB may compute a row before it asks the gate."""

    def fail(*_: Any) -> Any:
        raise duckdb.ConversionException("Could not convert string 'SECRET-31337' to INT32")

    with dpsql.Context() as ctx:
        ctx.sql("CREATE TABLE t AS SELECT i AS a FROM range(9) AS r(i)")
        monkeypatch.setattr(Turns, "table", fail)
        with pytest.raises(dpsql.DpsqlError, match="DPSQL-I001") as failure:
            ctx.dp_sum("t", target="a", lower=0, upper=9, epsilon=1)
        assert "31337" not in str(failure.value)
        monkeypatch.undo()
        found = ctx.sql("SELECT status, epsilon FROM dp_ledger()").to_pylist()
        assert found == [{"status": "charged, no result", "epsilon": 1.0}]


def test_what_does_not_bind_is_refused_without_duckdbs_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file they may be a line of it. Names and types are told, because no row is in them."""

    def fail(*_: Any) -> Any:
        raise duckdb.InvalidInputException("CSV Error on Line: 2 Original Line: SECRET-31337")

    with dpsql.Context() as ctx:
        ctx.sql("CREATE TABLE t AS SELECT i AS a FROM range(9) AS r(i)")
        rows = Turns.rows
        monkeypatch.setattr(Turns, "table", fail)
        monkeypatch.setattr(Turns, "rows", lambda *given: (fail if "EXPLAIN" in given[1] else rows)(*given))
        with pytest.raises(dpsql.DpsqlError, match="DPSQL-S001") as failure:
            ctx.dp_sum("t", target="a", lower=0, upper=9, epsilon=1)
        assert "31337" not in str(failure.value)
        monkeypatch.undo()
        assert ctx.sql("SELECT status, epsilon FROM dp_ledger()").to_pylist() == []


def test_a_call_whose_process_is_ended_before_its_gate_is_charged() -> None:
    """Whether it had read a row is not known to whoever ends the process."""
    with dpsql.Context() as ctx:
        ctx.sql("CREATE TABLE t AS SELECT i AS a FROM range(9) AS r(i)")
        plan = ctx.planned("dp_count", "t", {"epsilon": 1, "release": "weekly"})
        session_of(ctx.connection).charge_before_end(plan)
        found = ctx.sql("SELECT status, epsilon FROM dp_ledger()").to_pylist()
        assert found == [{"status": "charged, no result", "epsilon": 1.0}]


def test_a_query_is_charged_to_the_budgets_of_all_that_it_reads() -> None:
    with dpsql.connect() as con:
        for name in ("first", "second"):
            con.execute(f"CREATE TABLE {name} AS SELECT i AS x FROM range(9) AS r(i)")
            con.execute(f"SELECT dp_protect('{name}', epsilon := 10)").fetchall()
        con.execute(
            "FROM dp_query('SELECT (SELECT count(*) FROM first) AS n, (SELECT count(*) FROM second) AS m', epsilon := 2)"
        ).fetchall()
        spent = con.execute("SELECT dataset, epsilon_spent FROM dp_budget() ORDER BY ALL").fetchall()
        assert spent == [("first", 2.0), ("second", 2.0)]


def test_a_failing_exact_statistic_charges_nothing(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise PlantedError("SECRET-31337")

    monkeypatch.setattr("dpsql.statistics.xty.CrossProducts.add_columns", fail)
    with pytest.raises(duckdb.Error, match="DPSQL-I001") as failure:
        con.execute("SELECT * FROM exact_xty('t', target := 'y', lower := 0, upper := 1)").fetchall()
    assert "31337" not in str(failure.value)
    assert charges(con) == 0


CORRELATED = {
    "scalar": "SELECT (SELECT feature FROM {call} WHERE rank = r.i) FROM range({n}) AS r(i)",
    "exists": "SELECT i FROM range({n}) AS r(i) WHERE EXISTS (SELECT 1 FROM {call} AS s WHERE s.rank = r.i)",
    "lateral": "SELECT * FROM range({n}) AS r(i), LATERAL (SELECT feature, r.i + rank AS z FROM {call}) AS s",
}


@cases("shape", CORRELATED, quick=1, alone=True)
@cases("n", [1, 2, 3, 3000, 5000])
@cases("more", ["", ", center := 'target'"])
def test_a_correlated_subquery_never_sums_a_row_twice(
    con: Any, monkeypatch: pytest.MonkeyPatch, shape: str, n: int, more: str
) -> None:
    """DuckDB 2.0 joins the outer rows to ours: the sums were up to 1000 times too large before this was refused."""
    seen: list[list[int]] = []

    def draw(plan: Any, utility: Any, features: Any) -> list[str]:
        seen.append([int(value) for value in utility])
        return list(features[: plan.k])

    monkeypatch.setattr(sis_selector, "draw_selection", draw)
    monkeypatch.setattr(sis_selector, "draw_center", lambda *_: 0)
    con.execute("CREATE TABLE big AS SELECT a, b, y FROM t, range(60)")
    b = "target := 'y', features := ['a', 'b'], lower := 0, upper := 1"
    expected = [abs(row[1]) for row in con.execute(f"FROM exact_xty('big', {b})").fetchall()]
    call = f"dp_sis('big', {b}, k := 1, epsilon := 1{more})"
    try:
        con.execute(CORRELATED[shape].format(call=call, n=n)).fetchall()
    except duckdb.Error as error:
        refused = str(error)
    else:
        refused = ""
    assert not refused or ("DPSQL-P019" in refused and n > 1)
    assert charges(con) == len(seen) == (0 if refused else max(1, len(seen)))
    assert seen == [expected] * len(seen)
    rows = con.execute(
        f"WITH s AS MATERIALIZED (SELECT * FROM {call}) " + CORRELATED[shape].format(call="s", n=n)
    ).fetchall()
    assert len(rows) in (n, min(n, 2) - 1)
    assert seen[-1] == expected


def test_a_failed_named_release_is_drawn_anew(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    named = f"SELECT * FROM dp_sis('t', {ARGUMENTS}, release := 'r')"

    def fail(*_: Any) -> Any:
        raise PlantedError

    monkeypatch.setattr(sis_selector, "draw_selection", fail)
    with pytest.raises(duckdb.Error, match="DPSQL-I001"):
        con.execute(named).fetchall()
    monkeypatch.undo()
    first = con.execute(named).fetchall()
    assert con.execute(named).fetchall() == first
    assert charges(con) == 2


def test_an_interrupted_kernel_is_charged(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("dpsql.statistics.xty.CrossProducts.add_columns", fail)
    with pytest.raises((duckdb.Error, KeyboardInterrupt)):
        con.execute(f"SELECT * FROM {CALL}").fetchall()
    assert charges(con) == 1


def test_strict_refuses_what_was_never_protected() -> None:
    con = dpsql.connect(strict=True)
    fill(con)
    for statement in (
        f"SELECT * FROM {CALL}",
        f"SELECT {AGGREGATE} FROM t",
        f"SELECT * FROM dp_sis('main.t', {ARGUMENTS})",
    ):
        with pytest.raises(duckdb.Error, match="DPSQL-B002"):
            con.execute(statement).fetchall()
    con.execute("SELECT dp_protect('t', epsilon := 10)")
    for statement in (
        f"SELECT * FROM {CALL}",
        f"SELECT {AGGREGATE} FROM t",
        f"SELECT * FROM dp_sis('main.t', {ARGUMENTS})",
    ):
        con.execute(statement).fetchall()
    assert charges(con) == 3
    with pytest.raises(duckdb.Error, match="DPSQL-S015"):
        con.execute(f"SELECT * FROM dp_sis('t', {ARGUMENTS}, dataset := 'another')").fetchall()
    con.close()


@pytest.mark.long
def test_a_respelled_table_is_charged_to_the_same_budget(con: Any) -> None:
    con.execute("SELECT dp_protect('t', epsilon := 100)")
    for source in ("t", "T", '"t"', "main.t", 'MAIN."t"'):
        con.execute(f"SELECT * FROM dp_sis('{source}', {ARGUMENTS})").fetchall()
    assert con.execute("SELECT dataset, releases FROM dp_budget()").fetchall() == [("t", 5)]
    con.execute("SELECT dp_protect('main.t', epsilon := 100)")  # the same budget again
    con.execute(f"SELECT * FROM dp_sis('main.t', {ARGUMENTS})").fetchall()
    assert con.execute("SELECT dataset, releases FROM dp_budget()").fetchall() == [("t", 6)]


def protect(con: Any, epsilon: float) -> None:
    """Give t a budget; its owner knows that the function in the watched views only looks at rows."""
    con.execute(f"SELECT dp_protect('t', epsilon := {epsilon})")
    for view in ("watched", "watched_long"):
        con.execute(f"SELECT dp_derive('{view}', 't', one_row_each := true)")


LONG = f"'watched_long', features := 'token', row_id := 'd', names := ['a'], {ARGUMENTS}, dataset := 't'"
CAPPED = "privacy_unit := 'g', max_rows_per_unit := 1"
WATCHED = {
    "wide": f"SELECT * FROM dp_sis('watched', {ARGUMENTS}, dataset := 't')",
    "wide, capped": f"SELECT * FROM dp_sis('watched', {ARGUMENTS}, dataset := 't', {CAPPED})",
    "centred": f"SELECT * FROM dp_sis('watched', {ARGUMENTS}, dataset := 't', center := 'target')",
    "long": f"SELECT * FROM dp_sis({LONG})",
    "long, with value": f"SELECT * FROM dp_sis({LONG}, value := 'v')",
    "long, centred": f"SELECT * FROM dp_sis({LONG}, center := 'target')",
    "aggregate": f"SELECT {AGGREGATE} FROM watched",
    "aggregate by group": f"SELECT g, {AGGREGATE} FROM watched GROUP BY g",
}


@pytest.fixture
def touched(con: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """How many rows of the watched views were read since the last look, by a function that counts as DuckDB's own."""
    rows = [0]
    own = functions.own()
    monkeypatch.setitem(own, "touch", own["lower"])  # type: ignore[arg-type]

    def touch(column: Any) -> Any:
        rows[0] += len(column)
        return column

    con.create_function("touch", touch, ["DOUBLE"], "DOUBLE", type="arrow", side_effects=True)
    con.execute("CREATE TEMP VIEW watched AS SELECT touch(a) AS a, b, y, g FROM t")
    con.execute("CREATE TEMP VIEW watched_long AS SELECT touch(g) AS d, 'a' AS token, a AS v, y FROM t")

    def look() -> int:
        seen, rows[0] = rows[0], 0
        return seen

    yield look
    con.remove_function("touch")


@cases("shape", WATCHED, quick=1, alone=True)
@cases("threads", [1, 4])
def test_a_budget_is_refused_before_a_row_is_read(
    con: Any, touched: Callable[[], int], shape: str, threads: int
) -> None:
    statement = WATCHED[shape]
    con.execute(f"SET threads = {threads}")
    con.execute(statement).fetchall()
    assert touched() >= 100, "the view does tell when it is read"
    con.execute(f"PREPARE p AS {statement}")
    assert touched() == 0
    spent = charges(con)
    protect(con, spent)
    with pytest.raises(duckdb.Error, match=r"DPSQL-(B00[18]|S044)"):  # 1.5 shows no text of EXECUTE
        con.execute("EXECUTE p").fetchall()
    assert touched() == 0, "at EXECUTE"
    for refused in (statement, f"EXPLAIN {statement}", f"PREPARE q AS {statement}"):
        with pytest.raises(duckdb.Error, match="DPSQL-B001"):
            con.execute(refused).fetchall()
    assert touched() == 0, "at bind"
    assert charges(con) == spent


@cases("shape", WATCHED, quick=1)
def test_the_gate_refuses_what_was_affordable_at_bind(
    con: Any, touched: Callable[[], int], monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    """Between the two another process may have spent the budget."""
    real = Session.check

    def check(self: Session, plan: Any) -> None:
        if sys._getframe(1).f_code.co_qualname != "Session.note":
            real(self, plan)

    monkeypatch.setattr(Session, "check", check)
    protect(con, 0.5)
    code = {"aggregate by group": "S023"}.get(shape, "B001")
    with pytest.raises(duckdb.Error, match=f"DPSQL-{code}"):
        con.execute(WATCHED[shape]).fetchall()
    assert touched() == 0
    assert charges(con) == 0


@cases("shape", [shape for shape in WATCHED if "aggregate" not in shape], quick=1)
def test_a_wrong_column_is_refused_before_a_row_is_read(con: Any, touched: Callable[[], int], shape: str) -> None:
    protect(con, 100)
    with pytest.raises(duckdb.Error, match="DPSQL-S002"):
        con.execute(WATCHED[shape].replace("target := 'y'", "target := 'nosuch'")).fetchall()
    assert touched() == 0
    assert charges(con) == 0


def test_functions_behind_the_macros_refuse_what_is_not_theirs(con: Any) -> None:
    """Each part of a call needs the ticket of a running call of its own kind."""
    seen: list[int] = []
    original = dpsql.install(con).open_call
    session = dpsql.install(con)
    session.open_call = lambda *a: seen.append(original(*a)) or seen[-1]  # type: ignore[method-assign, func-returns-value]
    con.execute("SELECT * FROM exact_xty('t', target := 'y', features := ['a'], lower := 0, upper := 1)").fetchall()
    exact_ticket = seen[-1]
    con.execute(f"SELECT * FROM {CALL}").fetchall()
    released = seen[-1]
    before = charges(con)
    for call in (
        f"dpsql_release_ranked({exact_ticket}, [1::HUGEINT])",
        f"dpsql_center({exact_ticket}, [1::HUGEINT, 2::HUGEINT])",
        f"dpsql_exact_xty({released}, [1::HUGEINT, 2::HUGEINT])",
        f"dpsql_center({released}, [1::HUGEINT, 2::HUGEINT])",
        "dpsql_release_ranked('made up', [1::HUGEINT])",
        "dpsql_release_ranked(NULL, NULL)",
    ):
        with pytest.raises(duckdb.Error, match="DPSQL-I002"):
            con.execute(f"SELECT {call}").fetchall()
    rows = con.execute(f"SELECT dpsql_release_ranked({released}, [7::HUGEINT, 9::HUGEINT, 1::HUGEINT])").fetchall()
    assert len(rows) == 1, "a ticket that has released gives that release again"
    assert charges(con) == before


def test_a_batch_of_two_calls_is_refused(con: Any) -> None:
    """However DuckDB plans it, rows that stand in two calls are never summed together."""
    session = dpsql.install(con)
    rows = pa.StructArray.from_arrays([pa.array([1.0, 0.0]), pa.array([True, False])], names=["a", "y"])
    plan = session.planner.plan("dp_sis", "t", {"target": "y", "k": 1, "epsilon": 1, "lower": 0, "upper": 1})
    call = SisCall.resolve(plan, rows.type, {})
    one, two = (session.open_call(call, "dp_sis") for _ in range(2))
    for bind in (row_functions.collect, row_functions.target):
        assert len(bind(session)(pa.array([one, one]), rows)) == 2
        for tickets in ([one, two], [one, None], [None, one]):
            with pytest.raises(dpsql.DpsqlError, match=r"P019|I002"):
                bind(session)(pa.array(tickets), rows)


def test_two_threads_that_fail_charge_once(con: Any) -> None:
    session = dpsql.install(con)
    plan = session.planner.plan("dp_sis", "t", {"target": "y", "k": 1, "epsilon": 1, "lower": 0, "upper": 1})
    rows = pa.struct([("a", pa.float64()), ("y", pa.bool_())])
    ticket = session.open_call(SisCall.resolve(plan, rows, {}), "dp_sis")

    def fail(_: Any) -> None:
        raise PlantedError("SECRET-31337")

    for _ in range(3):
        with pytest.raises(dpsql.InternalError, match="I001"):
            session.guarded(ticket, fail)
    assert charges(con) == 1


def test_session_setting_that_hides_types_is_refused_before_a_row_is_read(con: Any) -> None:
    con.execute("SET arrow_lossless_conversion = true")
    with pytest.raises(duckdb.Error, match="DPSQL-S008"):
        con.execute(f"SELECT * FROM {CALL}").fetchall()
    con.execute("RESET arrow_lossless_conversion")
    assert charges(con) == 0
