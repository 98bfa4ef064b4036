"""Budgets on an engine hang on the full names of its tables: no spelling, view or frame leads to another one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from lake import Lake, visits

import dpsql
from dpsql.engines.attached import Attached, engines_of
from dpsql.engines.driver import release
from dpsql.errors import BudgetError, ParameterError, SourceError
from support.cases import cases
from support.sessions import session_of

OWN = "lake.main.clinic.visits"
SPELLINGS = ["clinic.visits", "CLINIC.Visits", "main.clinic.visits", "lake.clinic.visits", "LAKE.Main.clinic.VISITS"]


@pytest.fixture
def engine() -> Lake:
    return Lake(
        {
            ("clinic", "visits"): visits(),
            ("default", "patients"): visits(),
            ("lake", "visits"): visits(),
            ("clinic", "odd.name"): visits(),
        },
        {"recent": visits().filter(pl.col("a") > 0.5)},
    )


@pytest.fixture
def ctx(engine: Lake, tmp_path: Path) -> Iterator[dpsql.Context]:
    with dpsql.Context(ledger=tmp_path / "ledger", engine=Attached("lake", engine)) as opened:
        yield opened


def protect(ctx: dpsql.Context, **more: Any) -> str:
    return ctx.dp_protect("clinic.visits", epsilon=3, **more)


def lineage(ctx: dpsql.Context, entry: int) -> dict[str, Any]:
    with sqlite3.connect(ctx.ledger.location) as connection:
        (found,) = connection.execute("SELECT lineage FROM dpsql_ledger WHERE sequence = ?", [entry]).fetchone()
    return dict(json.loads(found))


@pytest.mark.long
def test_one_table_has_one_budget_however_it_is_spelled(ctx: dpsql.Context) -> None:
    assert protect(ctx).startswith(f"{OWN}: epsilon 3")
    for number, spelling in enumerate(SPELLINGS, 1):
        assert ctx.dp_count(spelling, epsilon=0.5).dataset == OWN
        (row,) = ctx.dp_budget().to_pylist()
        assert (row["dataset"], row["epsilon_spent"]) == (OWN, 0.5 * number)
    with pytest.raises(BudgetError, match="B001"):
        ctx.dp_count("Clinic.VISITS", epsilon=1)
    assert protect(ctx) == ctx.dp_protect("LAKE.CLINIC.VISITS", epsilon=3)
    with pytest.raises(BudgetError, match="B005"):
        ctx.dp_protect("main.clinic.visits", epsilon=4)


@pytest.mark.long
def test_what_was_spent_before_counts(ctx: dpsql.Context) -> None:
    for spelling in SPELLINGS:
        ctx.dp_count(spelling, epsilon=0.5)
    assert "epsilon 3" in protect(ctx)
    assert ctx.dp_budget().to_pylist()[0]["epsilon_remaining"] == 0.5


@pytest.mark.long
def test_the_engines_name_is_left_out_once(ctx: dpsql.Context) -> None:
    assert ctx.dp_count("lake.lake.visits", epsilon=1).dataset == "lake.main.lake.visits"
    with pytest.raises(SourceError, match="S024"):
        ctx.dp_count("lake.visits", epsilon=1)  # the default database has none


@pytest.mark.long
def test_a_part_with_a_dot_is_no_two_parts(engine: Lake) -> None:
    attached = Attached("lake", engine)
    engine.table = lambda source: ("main", "clinic", "odd.name")  # type: ignore[method-assign]
    ctx = dpsql.Context(engine=attached)
    assert ctx.dp_count("anything", epsilon=1).dataset == 'lake.main.clinic."odd.name"'
    assert engine.read[-1] is engine.tables["clinic", "odd.name"]


@pytest.mark.long
def test_a_table_is_read_by_its_full_name(ctx: dpsql.Context, engine: Lake) -> None:
    """So a view that takes a table's short name after the call was planned is not read."""
    session = session_of(ctx.connection)
    plan = session.planner.plan("dp_count", "clinic.visits", {"epsilon": 0.5, "engine": "lake"})
    engine.views["clinic.visits"] = visits().head(1)
    engine.read.clear()
    assert release(session, engines_of(session).named("lake"), plan).sequence == 1
    assert {one for one in engine.read if isinstance(one, (str, tuple))} == {("main", "clinic", "visits")}


@pytest.mark.long
@pytest.mark.parametrize("source", ["recent", "RECENT", "lake.recent", visits(), visits().lazy()])
def test_whose_rows_a_view_or_a_frame_holds_must_be_said(ctx: dpsql.Context, source: Any) -> None:
    ctx.dp_count(source, epsilon=0.1)  # nothing is protected yet
    protect(ctx)
    with pytest.raises(SourceError, match=r"S025.*dataset='\.\.\.'"):
        ctx.dp_count(source, epsilon=0.5)
    found = ctx.dp_count(source, epsilon=0.5, dataset=OWN.upper())
    assert found.dataset == OWN
    assert lineage(ctx, found.ledger_id)["claimed"] is True
    assert {row["dataset"]: row["epsilon_spent"] for row in ctx.dp_budget().to_pylist()}[OWN] == 0.5


@pytest.mark.long
def test_a_temporary_view_of_a_tables_name_is_a_view(ctx: dpsql.Context, engine: Lake) -> None:
    protect(ctx)
    ctx.dp_protect("patients", epsilon=3)
    engine.views["patients"] = visits()  # which may read clinic.visits
    with pytest.raises(SourceError, match="S025"):
        ctx.dp_count("patients", epsilon=0.5)
    with pytest.raises(SourceError, match="S025"):  # a view is no table, though a budget has this name
        ctx.dp_count("patients", epsilon=0.5, dataset="patients")


@pytest.mark.long
def test_a_budget_of_a_views_name_is_not_taken_for_its_own(ctx: dpsql.Context) -> None:
    """Another table, here of DuckDB, may have that name."""
    ctx.connection.execute("CREATE TABLE recent AS SELECT 1 AS a")
    ctx.connection.execute("SELECT dp_protect('recent', epsilon := 3)")
    with pytest.raises(SourceError, match=r"S025.*dataset='recent'"):
        ctx.dp_count("recent", epsilon=0.5)


@pytest.mark.long
def test_only_a_budget_can_be_named(ctx: dpsql.Context) -> None:
    protect(ctx)
    with pytest.raises(SourceError, match=r"S025.*there is no budget 'nobody'"):
        ctx.dp_count("recent", epsilon=0.5, dataset="nobody")


@pytest.mark.long
@cases("dataset", [None, OWN, "clinic.visits", "patients", "lake.main.default.patients", "nobody"])
def test_a_table_without_a_budget_is_not_answered(ctx: dpsql.Context, dataset: str | None) -> None:
    """Whatever budget is named: another table's would pay for rows that its guarantee says nothing of."""
    protect(ctx)
    for spelling in ("patients", "lake.patients", "main.default.PATIENTS"):
        with pytest.raises(BudgetError, match=rf"B006.*ctx\.dp_public\('{spelling}', engine='lake'\)"):
            ctx.dp_count(spelling, epsilon=0.5, dataset=dataset)
        argument = "" if dataset is None else f", dataset := '{dataset}'"
        with pytest.raises(duckdb.Error, match="B006"):
            ctx.connection.execute(f"FROM dp_count('{spelling}', epsilon := 0.5, engine := 'lake'{argument})")
    assert [(row["dataset"], row["releases"]) for row in ctx.dp_budget().to_pylist()] == [(OWN, 0)]
    ctx.sql("SELECT dp_protect('patients', epsilon := 1.0, engine := 'lake')")
    found = ctx.dp_count("patients", epsilon=0.5)
    assert found.dataset == "lake.main.default.patients"
    assert "claimed" not in lineage(ctx, found.ledger_id)


@pytest.mark.long
def test_a_table_with_a_budget_is_not_charged_to_another(ctx: dpsql.Context) -> None:
    protect(ctx)
    ctx.dp_protect("patients", epsilon=3)
    with pytest.raises(SourceError, match="S015"):
        ctx.dp_count("clinic.visits", epsilon=0.5, dataset="lake.main.default.patients")
    for same in (OWN, "CLINIC.visits", "lake.clinic.VISITS"):
        assert ctx.dp_count("lake.clinic.visits", epsilon=0.5, dataset=same).dataset == OWN


@pytest.mark.long
def test_the_owners_policy_holds(ctx: dpsql.Context) -> None:
    with pytest.raises(SourceError, match=r"S002.*'patient'"):
        protect(ctx, privacy_unit="patient", max_rows_per_unit=2)
    protect(ctx, privacy_unit="pid", max_rows_per_unit=2, neighbours="replace")
    found = ctx.dp_count("clinic.visits", epsilon=0.5)
    assert "replace of all rows of one pid (at most 2 rows)" in found.guarantee
    with pytest.raises(BudgetError, match="B003"):
        ctx.dp_count("clinic.visits", epsilon=0.5, privacy_unit="a", max_rows_per_unit=2)


@pytest.mark.long
def test_columns_that_sql_cannot_tell_apart_are_refused(engine: Lake) -> None:
    engine.tables["clinic", "visits"] = visits().with_columns(PID=pl.int_range(pl.len()))
    with dpsql.Context(engine=Attached("lake", engine)) as ctx:
        with pytest.raises(SourceError, match=r"S039.*'pid' and 'PID'"):
            ctx.dp_protect("clinic.visits", epsilon=3, privacy_unit="pid", max_rows_per_unit=1)
        with pytest.raises(SourceError, match="S039"):
            ctx.dp_count("clinic.visits", epsilon=1, privacy_unit="pid", max_rows_per_unit=1)
        assert ctx.dp_budget().num_rows == 0


@pytest.mark.long
def test_a_strict_session_answers_what_has_a_budget(engine: Lake) -> None:
    with dpsql.Context(engine=Attached("lake", engine), strict=True) as ctx:
        for source in ("clinic.visits", "recent", visits()):
            with pytest.raises(BudgetError, match="B002"):
                ctx.dp_count(source, epsilon=1)
        protect(ctx)
        ctx.dp_count("clinic.visits", epsilon=1)


@pytest.mark.long
def test_a_release_replays_in_another_spelling_and_on_no_other_engine(ctx: dpsql.Context, engine: Lake) -> None:
    protect(ctx)
    first = ctx.dp_count("clinic.visits", epsilon=0.5, release="n")
    again = ctx.dp_count("LAKE.Main.Clinic.Visits", epsilon=0.5, release="n", engine="LAKE")
    assert (again.replayed, again.ledger_id, again.value, again.engine) == (True, 1 + 1, first.value, "lake 1.2")
    dpsql.attach_engine(ctx, "pond", engine)
    with pytest.raises(ParameterError, match="P014"):
        ctx.dp_count("recent", epsilon=0.5, release="n", engine="pond", dataset=OWN)
    with dpsql.Context(ledger=ctx.ledger.location) as other, pytest.raises(ParameterError, match="P014"):
        other.dp_count(visits(), epsilon=0.5, release="n", dataset=OWN)
    engine.version = "1.3"  # is no part of what a replay compares
    assert ctx.dp_count("clinic.visits", epsilon=0.5, release="n").engine == "lake 1.2"


@pytest.mark.long
def test_the_same_engine_under_another_name_has_no_other_budget(ctx: dpsql.Context, engine: Lake) -> None:
    protect(ctx)
    dpsql.attach_engine(ctx, "pond", engine)
    for dataset in (None, OWN):
        with pytest.raises(BudgetError, match="B006"):
            ctx.dp_count("clinic.visits", epsilon=0.5, engine="pond", dataset=dataset)


@pytest.mark.long
def test_duckdb_is_not_asked_what_an_engines_source_reads(ctx: dpsql.Context) -> None:
    """A table of DuckDB with the same name is another table, and four parts are a name of an engine's table alone."""
    ctx.connection.execute("CREATE SCHEMA clinic; CREATE TABLE clinic.visits AS SELECT 1.0 AS a")
    ctx.sql(f"SELECT dp_protect('{OWN}', epsilon := 3, engine := 'lake')")
    for spelling in ("clinic.visits", OWN):
        found = ctx.sql(f"FROM dp_count('{spelling}', epsilon := 1, engine := 'lake')")
        assert found["value"][0].as_py() > 500
    with pytest.raises(BudgetError, match="B006"):
        ctx.sql("FROM dp_count('clinic.visits', epsilon := 1)")


@pytest.mark.long
def test_the_receipt_names_the_engine(ctx: dpsql.Context) -> None:
    found = ctx.dp_count("clinic.visits", epsilon=0.5)
    assert found.engine == "lake 1.2"
    assert "on lake 1.2" in repr(found)
    assert lineage(ctx, found.ledger_id)["engine"] == "lake 1.2"
    assert dpsql.Context().dp_count(visits(), epsilon=1).engine is None


@pytest.mark.long
@cases("name", ["", "a b", "a.b", 'a"', 5, None])
def test_an_engines_name_is_one_word(ctx: dpsql.Context, name: Any) -> None:
    with pytest.raises(ParameterError, match="P079"):
        dpsql.attach_engine(ctx, name, Lake({}))


@pytest.mark.long
def test_only_an_engine_is_attached(ctx: dpsql.Context) -> None:
    with pytest.raises(ParameterError, match=r"P079.*dpsql\.polars\.engine"):
        dpsql.attach_engine(ctx, "x", visits())  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="P021"):
        dpsql.attach_engine(ctx, "x", Lake({}), parts=0)
