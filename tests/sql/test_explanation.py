"""`dpsql explain`: what a statement would run and charge, without running it."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.planner import call_sql
from dpsql.engines.duckdb.session import Session
from dpsql.functions.registry import EXACT

sys.path.insert(0, str(Path(__file__).parent))

from test_rendering import plans

from support.cases import cases
from support.sessions import session_of

SIS = "dp_sis('patients', target := 'y', features := ['a', 'b'], k := 1, epsilon := 1, lower := 0, upper := 1, "
SIS += "target_lower := 0, target_upper := 1"


NAME = re.compile(r"__dpsql__(\w+)_[0-9a-f]{16}")


def steps_of(statement: str) -> list[str]:
    """The names of the steps of a statement, in order."""
    return re.findall(rf"^{NAME.pattern} AS ", statement, re.MULTILINE)


@pytest.fixture
def ctx() -> Any:
    with dpsql.Context() as context:
        context.connection.execute(
            "CREATE TABLE patients AS SELECT i AS id, (i % 10) / 10 AS a, (i % 7) / 7 AS b, (i % 3) / 3 AS y "
            "FROM range(700) AS r(i)"
        )
        yield context


def test_a_query_is_explained(ctx: Any) -> None:
    ctx.sql("SELECT dp_protect('patients', epsilon := 3)")
    query = "dp_query('SELECT avg(y) FROM patients', epsilon := 1)"
    told = ctx.explain(f"FROM {query}")
    assert told.count("-- dp_query") == 1
    assert "pure 1-DP" in told
    assert ctx.sql("FROM dp_ledger()").num_rows == 1, "the budget alone"


def test_notes_are_all_that_is_added_to_what_runs() -> None:
    """Looked at for one plan of each sequence of steps that there is."""
    seen = set()
    for name, plan in plans():
        steps = [] if name in EXACT else steps_of(call_sql(plan, name))
        if steps and tuple(steps) not in seen:
            seen.add(tuple(steps))
            shown, run = (NAME.sub(r"\1", call_sql(plan, name, noted=noted)) for noted in (True, False))
            assert re.sub(r"^-- .*\n", "", shown, flags=re.MULTILINE) == run, plan
            assert steps[:2] == ["types", "gate"], plan
            assert steps[-1] == "statistic", plan
            assert all(re.search(rf"^-- [A-Z0-9].*\.\n{step} AS ", shown, re.MULTILINE) for step in steps), plan
    assert len(seen) > 20


def test_a_private_vocabulary_is_not_called_public() -> None:
    name, plan = next((name, plan) for name, plan in plans() if plan.passes[0].draws_names)
    notes = re.findall("^-- .*", call_sql(plan, name, noted=True), re.MULTILINE)
    assert any("private names" in note for note in notes)
    assert not any("public name" in note for note in notes)


def test_nothing_is_read_drawn_or_charged(ctx: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx.dp_protect("patients", epsilon=3)
    before = ctx.ledger.entries()

    def fail(*_: Any) -> None:
        raise AssertionError("the gate was opened")

    monkeypatch.setattr(Session, "open_call", fail)
    shown = ctx.explain(f"SELECT * FROM {SIS})")
    assert shown.startswith(
        "-- dp_sis on memory.main.patients\n-- charges patients: pure 1-DP; remaining epsilon 3\n"
        "-- guarantee pure 1-DP, add_remove of one row\n"
    )
    assert ctx.ledger.entries() == before


@cases(
    "text",
    [
        f"SELECT 1; FROM {SIS})",
        f"ANALYZE FROM {SIS})",
        f"(ANALYZE) FROM {SIS})",
        f"/* a remark */ ANALYZE FROM {SIS})",
        f"PIVOT (FROM {SIS})) ON feature USING count(*)",
        f"SELECT * FROM (PIVOT (FROM {SIS})) ON feature USING count(*))",
        f"EXPLAIN FROM {SIS})",
        f"EXPLAIN ANALYZE FROM {SIS})",
        "",
        "-- a remark",
    ],
    quick=1,
)
def test_what_duckdb_would_run_is_not_explained(ctx: Any, text: str) -> None:
    with pytest.raises((duckdb.ParserException, dpsql.ParameterError), match=r"P064|syntax error|not yet supported"):
        ctx.explain(text)
    assert ctx.ledger.entries() == []


def test_names_may_be_odd(ctx: Any) -> None:
    ctx.connection.execute(
        """CREATE TABLE "odd ""name""; x\n -- y" AS
        SELECT i % 10 AS "a 'b", i % 7 AS "é\n", i % 3 AS "select", i AS "@#$" FROM range(30) AS r(i)"""
    )
    features = "['a ''b', 'é\n', '@#$']"
    rest = f"target := 'select', features := {features}, {SIS.partition('], ')[2]}"
    shown = ctx.explain(f"""FROM dp_sis('"odd ""name""; x\n -- y"', {rest})""")
    assert shown.partition("\n")[0].endswith('x -- y"')
    assert all(name in shown for name in ('"select"', '"a \'b"', '"@#$"', '"odd ""name""; x'))
    assert ctx.ledger.entries() == []


def test_a_remark_and_a_semicolon_may_stand_around_it(ctx: Any) -> None:
    assert ctx.explain(f"-- a remark\nFROM {SIS}); -- another").startswith("-- dp_sis on")
    assert ctx.ledger.entries() == []


@pytest.mark.odds("0: looks at codes")
def test_other_threads_are_checked_as_ever(ctx: Any) -> None:
    ctx.dp_protect("patients", epsilon=0.5)
    session = session_of(ctx.connection)
    with session.planning() as planned, ThreadPoolExecutor(1) as pool:
        with ctx.connection.cursor() as cursor, pytest.raises(duckdb.Error, match="B001"):
            pool.submit(cursor.execute, f"PREPARE p AS FROM dpsql.{SIS})").result()
        assert planned == []


def test_every_call_of_a_statement_is_explained(ctx: Any) -> None:
    shown = ctx.explain(
        f"CREATE TABLE made AS SELECT * FROM {SIS}) UNION ALL SELECT * FROM {SIS}, mechanism := 'gumbel')"
    )
    assert shown.count("-- dp_sis on") == 2
    assert ctx.sql("SELECT count(*) AS n FROM duckdb_tables() WHERE table_name = 'made'").to_pylist() == [{"n": 0}]


def test_a_call_that_would_be_refused_is_explained(ctx: Any) -> None:
    ctx.dp_protect("patients", epsilon=0.5)
    assert "-- refused now: [DPSQL-B001]" in ctx.explain(f"FROM {SIS})")
    with pytest.raises(dpsql.BudgetError, match="B001"):  # a statement that runs is refused as before
        ctx.sql(f"FROM {SIS})")


def test_a_stored_release_costs_nothing(ctx: Any) -> None:
    ctx.sql(f"FROM {SIS}, release := 'may')")
    shown = ctx.explain(f"FROM {SIS}, release := 'may')")
    assert "charges nothing: it returns the stored release 'may'" in shown
    assert "WITH" not in shown


def test_the_aggregate_form(ctx: Any) -> None:
    shown = ctx.explain("SELECT dp_quantile(a, epsilon := 1, lower := 0, upper := 1, dataset := 'd') FROM patients")
    assert shown.startswith("-- dp_quantile, aggregate form\n-- charges d: pure 1-DP; remaining unlimited\n")
    assert ctx.ledger.entries() == []


def test_what_has_no_private_call_and_what_is_no_statement(ctx: Any) -> None:
    assert ctx.explain("SELECT 1") == "-- No private call: nothing would be charged."
    with pytest.raises(dpsql.ParameterError, match="P002"):
        ctx.explain(f"FROM {SIS.replace('k := 1', 'k := 3')})")
    with pytest.raises(duckdb.Error, match="nowhere"):
        ctx.explain("SELECT * FROM nowhere")


def test_what_is_pasted_is_charged_and_answers_as_the_call_does() -> None:
    call = "FROM dp_count('t', epsilon := 1e12, by := 'k', keys := [0, 1, 2])"
    with dpsql.Context() as ctx:
        ctx.sql("CREATE TABLE t AS SELECT i % 3 AS k FROM range(10) AS r(i)")
        shown = ctx.explain(call)
        assert ctx.ledger.entries() == []
        assert ctx.sql(shown) == ctx.sql(call)
        assert [entry.kind for entry in ctx.ledger.entries()] == ["release", "release"]
