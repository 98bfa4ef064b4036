"""What owners declare of an engine's tables: public, derived, unplaced; and that it leads to no other table."""

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
from support.sessions import session_of

OWN, CODES, SCORED = "lake.main.clinic.visits", "lake.main.clinic.codes", "lake.main.clinic.scored"


class Cased(Lake):
    """An engine on which names that differ in case are two tables, as on Sail and DataFusion."""

    def table(self, source: str) -> tuple[str, ...] | None:
        """Return the full name of a table whose name has this case, or of the one in small letters."""
        database, name = source.split(".")[-2:]
        return ("main", database, name) if (database, name) in self.tables else super().table(source)


def codes() -> pl.DataFrame:
    return pl.DataFrame({"code": [1, 2, 3], "weight": [0.1, 0.2, 0.3]})


def lake(kind: type[Lake] = Lake, **more: pl.DataFrame) -> Lake:
    rows = visits()
    tables = {
        "visits": rows,
        "codes": codes(),
        "scored": rows.select(person=pl.col("pid"), score="a"),
        **more,
    }
    return kind({("clinic", name): frame for name, frame in tables.items()}, {"recent": rows, "listed": codes()})


@pytest.fixture
def ctx(tmp_path: Path) -> Iterator[dpsql.Context]:
    with dpsql.Context(ledger=tmp_path / "ledger", engine=Attached("lake", lake())) as opened:
        yield opened


@pytest.fixture
def governed(ctx: dpsql.Context) -> dpsql.Context:
    ctx.dp_protect("clinic.visits", epsilon=30, privacy_unit="pid", max_rows_per_unit=2)
    return ctx


def spent(ctx: dpsql.Context) -> dict[str, float]:
    return {row["dataset"]: row["epsilon_spent"] for row in ctx.dp_budget().to_pylist()}


def lineage(ctx: dpsql.Context, entry: int) -> dict[str, Any]:
    with sqlite3.connect(ctx.ledger.location) as connection:
        (found,) = connection.execute("SELECT lineage FROM dpsql_ledger WHERE sequence = ?", [entry]).fetchone()
    return dict(json.loads(found))


@pytest.mark.long
def test_calls_on_a_public_table_are_charged_to_nobody(governed: dpsql.Context) -> None:
    with pytest.raises(BudgetError, match="B006"):
        governed.dp_count("clinic.codes", epsilon=1)
    assert governed.dp_public("Clinic.CODES") == f"{CODES}: public"
    for spelling in ("clinic.codes", "lake.clinic.codes", "main.clinic.codes"):
        found = governed.dp_count(spelling, epsilon=1)
        assert found.dataset == CODES
        assert "claimed" not in lineage(governed, found.ledger_id)
    assert spent(governed) == {OWN: 0, CODES: 3}
    with pytest.raises(SourceError, match=r"S015.*is public"):
        governed.dp_count("clinic.codes", epsilon=1, dataset=OWN)


@pytest.mark.long
def test_sql_declares_of_an_engine_too(governed: dpsql.Context) -> None:
    con = governed.connection
    assert con.execute("SELECT dp_public('clinic.codes', engine := 'LAKE')").fetchall() == [(f"{CODES}: public",)]
    said = "own_rows_only := true, privacy_unit := 'person', engine := 'lake'"
    [(text,)] = con.execute(f"SELECT dp_derive('clinic.scored', 'clinic.visits', {said})").fetchall()
    assert text == f"{SCORED}: derived from {OWN}"
    assert len(con.execute("FROM dp_count('clinic.scored', epsilon := 1, engine := 'lake')").fetchall()) == 1
    assert spent(governed) == {OWN: 1}
    assert con.execute("FROM dp_unplaced(engine := 'lake')").fetchall() == []


@pytest.mark.long
def test_a_derived_table_shares_the_budget_of_its_base(governed: dpsql.Context) -> None:
    governed.dp_derive("clinic.scored", "clinic.visits", own_rows_only=True, privacy_unit="person")
    for dataset in (None, OWN, SCORED, "clinic.scored"):
        found = governed.dp_count("clinic.scored", epsilon=1, dataset=dataset)
        assert found.dataset == OWN
        assert "one person (at most 2 rows)" in found.guarantee
        kept = lineage(governed, found.ledger_id)
        assert (kept["tables"], kept["charged"], "claimed" in kept) == ([SCORED], [OWN], False)
    assert spent(governed) == {OWN: 4}
    assert found.value["value"][0].as_py() < 450  # at most two rows of each of 200 people, of 1000 rows
    governed.dp_protect("clinic.codes", epsilon=1)
    with pytest.raises(SourceError, match="S015"):
        governed.dp_count("clinic.scored", epsilon=1, dataset=CODES)
    with pytest.raises(SourceError, match="S017"):
        governed.dp_count("clinic.scored", epsilon=1, privacy_unit="score")
    assert spent(governed) == {OWN: 4, CODES: 0}


@pytest.mark.long
def test_a_chain_of_derived_tables_leads_to_its_budget(tmp_path: Path) -> None:
    again = visits().select(who=pl.col("pid"), score="a")
    with dpsql.Context(ledger=tmp_path / "ledger", engine=Attached("lake", lake(again=again))) as ctx:
        ctx.dp_protect("clinic.visits", epsilon=3, privacy_unit="pid", max_rows_per_unit=2)
        ctx.dp_derive("clinic.scored", OWN, own_rows_only=True, privacy_unit="person")
        ctx.dp_derive("clinic.again", "clinic.scored", own_rows_only=True, privacy_unit="who")
        assert "one who (at most 2 rows)" in ctx.dp_count("clinic.again", epsilon=1).guarantee
        assert spent(ctx) == {OWN: 1}
        ctx.dp_derive("clinic.scored", "clinic.again", own_rows_only=True, privacy_unit="person")  # a circle
        for source in ("clinic.again", "clinic.scored"):
            with pytest.raises(BudgetError, match="B006"):
                ctx.dp_count(source, epsilon=1)


@pytest.mark.long
def test_what_a_derived_table_must_have(governed: dpsql.Context) -> None:
    ctx = governed
    for named in ({}, {"privacy_unit": "nobody"}):
        with pytest.raises(SourceError, match="S017"):
            ctx.dp_derive("clinic.scored", "clinic.visits", own_rows_only=True, **named)
    with pytest.raises(ParameterError, match="P061"):
        ctx.dp_derive("clinic.scored", "clinic.visits", privacy_unit="person")
    with pytest.raises(BudgetError, match="B010"):
        ctx.dp_derive("clinic.scored", "clinic.codes", own_rows_only=True, privacy_unit="person")
    with pytest.raises(BudgetError, match="B010"):
        ctx.dp_derive("clinic.scored", "nowhere", own_rows_only=True, privacy_unit="person")
    with pytest.raises(BudgetError, match="B009"):
        ctx.dp_derive("clinic.visits", "clinic.visits", own_rows_only=True)
    with pytest.raises(SourceError, match="S024"):
        ctx.dp_derive("clinic.nothing", "clinic.visits", own_rows_only=True)
    with pytest.raises(BudgetError, match="B006"):  # none of these declared anything
        ctx.dp_count("clinic.scored", epsilon=1)
    assert ctx.dp_ledger().num_rows == 1


@pytest.mark.long
def test_a_table_of_an_engine_may_be_derived_from_one_of_duckdb(ctx: dpsql.Context) -> None:
    ctx.connection.execute("CREATE TABLE people AS SELECT 1 AS a")
    ctx.connection.execute("SELECT dp_protect('people', epsilon := 3)").fetchall()
    with pytest.raises(ParameterError, match="P061"):
        ctx.dp_derive("clinic.scored", "people")
    assert ctx.dp_derive("clinic.scored", "main.people", one_row_each=True).startswith(f"{SCORED}: derived")
    assert ctx.dp_count("clinic.scored", epsilon=1).dataset == "people"


@pytest.mark.long
def test_a_base_is_a_table_of_the_engine_before_it_is_a_budget(ctx: dpsql.Context) -> None:
    ctx.connection.execute("CREATE SCHEMA clinic; CREATE TABLE clinic.codes AS SELECT 1 AS a")
    ctx.connection.execute("SELECT dp_protect('clinic.codes', epsilon := 3)").fetchall()
    with pytest.raises(BudgetError, match="B010"):
        ctx.dp_derive("clinic.scored", "clinic.codes", one_row_each=True)


@pytest.mark.long
def test_a_base_that_gets_a_privacy_unit_later(ctx: dpsql.Context) -> None:
    ctx.dp_protect("clinic.visits", epsilon=3)
    ctx.dp_derive("clinic.scored", "clinic.visits", one_row_each=True)
    ctx.dp_count("clinic.scored", epsilon=1)
    ctx.dp_protect("clinic.visits", privacy_unit="pid", max_rows_per_unit=2, replace=True)
    with pytest.raises(SourceError, match="S013"):
        ctx.dp_count("clinic.scored", epsilon=1)
    assert spent(ctx) == {OWN: 1}


@pytest.mark.long
@pytest.mark.parametrize("source", ["recent", "RECENT", "listed"])
def test_nothing_is_declared_of_a_view(governed: dpsql.Context, source: str) -> None:
    """What it reads cannot be seen, and another view may take its place."""
    with pytest.raises(SourceError, match=r"S040.*dp_public cannot"):
        governed.dp_public(source, force=True)
    with pytest.raises(SourceError, match=r"S040.*dp_derive cannot"):
        governed.dp_derive(source, "clinic.visits", own_rows_only=True)
    with pytest.raises(SourceError, match="S025"):
        governed.dp_count(source, epsilon=1)
    assert governed.dp_ledger().num_rows == 1


@pytest.mark.long
def test_a_view_that_hides_a_public_table_is_not_public(governed: dpsql.Context) -> None:
    session = session_of(governed.connection)
    engine: Any = engines_of(session).named("lake").engine
    governed.dp_public("clinic.codes")
    plan = session.planner.plan("dp_count", "clinic.codes", {"epsilon": 1, "engine": "lake"})
    engine.views["clinic.codes"] = visits()
    with pytest.raises(SourceError, match="S025"):
        governed.dp_count("clinic.codes", epsilon=1)
    engine.read.clear()
    release(session, engines_of(session).named("lake"), plan)  # a call that was planned before reads the table
    assert {one for one in engine.read if isinstance(one, (str, tuple))} == {("main", "clinic", "codes")}


@pytest.mark.long
def test_a_table_with_a_budget_is_not_public(governed: dpsql.Context) -> None:
    with pytest.raises(BudgetError, match="B009"):
        governed.dp_public("clinic.visits", force=True)
    governed.dp_derive("clinic.scored", "clinic.visits", own_rows_only=True, privacy_unit="person")
    with pytest.raises(BudgetError, match="B009"):
        governed.dp_public("clinic.scored", force=True)
    governed.dp_public("clinic.codes")
    governed.dp_protect("clinic.codes", epsilon=1)
    governed.dp_count("clinic.codes", epsilon=1)
    with pytest.raises(BudgetError, match="B001"):  # a budget counts, whatever was declared before
        governed.dp_count("clinic.codes", epsilon=1)


@pytest.mark.long
def test_a_table_like_a_protected_one_is_not_public_by_mistake(tmp_path: Path) -> None:
    engine = lake(copied=visits().head(5))
    with dpsql.Context(ledger=tmp_path / "ledger", engine=Attached("lake", engine)) as ctx:
        ctx.dp_protect("clinic.visits", epsilon=3)
        said = r"ctx\.dp_derive\('clinic.copied', 'lake.main.clinic.visits', ..., engine='lake'\).*force=True"
        with pytest.raises(BudgetError, match=f"B009.*{said}"):
            ctx.dp_public("clinic.copied")
        ctx.connection.execute("CREATE TABLE local AS SELECT 1 AS pid, 1 AS a, 1 AS b, 1 AS noise, 1 AS y, 'A' AS ward")
        with pytest.raises(duckdb.Error, match="B009"):  # nor one of DuckDB
            ctx.connection.execute("SELECT dp_public('local')")
        assert ctx.dp_public("clinic.copied", force=True).endswith("clinic.copied: public")


@pytest.mark.long
def test_public_tables_stated_with_the_budget_are_the_engines(ctx: dpsql.Context) -> None:
    with pytest.raises(SourceError, match="S024"):
        ctx.dp_protect("clinic.visits", epsilon=3, public=["clinic.nothing"])
    with pytest.raises(SourceError, match="S040"):
        ctx.dp_protect("clinic.visits", epsilon=3, public=["listed"])
    assert ctx.dp_budget().num_rows == 0
    assert ctx.dp_protect("clinic.visits", epsilon=3, public=["clinic.codes"]).endswith(f"; public {CODES}")
    ctx.dp_count("clinic.codes", epsilon=1)
    assert spent(ctx)[OWN] == 0


@pytest.mark.long
def test_another_engine_under_the_name_inherits_no_declaration(tmp_path: Path) -> None:
    """Its catalog may have other tables of these names, and nothing in it tells which ledger it belongs to."""
    where = tmp_path / "ledger"
    with dpsql.Context(ledger=where, engine=Attached("lake", lake())) as ctx:
        ctx.dp_protect("clinic.visits", epsilon=3, privacy_unit="pid", max_rows_per_unit=2)
        ctx.dp_public("clinic.codes")
        ctx.dp_derive("clinic.scored", "clinic.visits", own_rows_only=True, privacy_unit="person")
        session = session_of(ctx.connection)
        plan = session.planner.plan("dp_count", "clinic.codes", {"epsilon": 1, "engine": "lake"})
        dpsql.attach_engine(ctx, "pond", lake())
        dpsql.attach_engine(ctx, "lake", engines_of(session).named("lake").engine)  # the same one
        ctx.dp_count("clinic.codes", epsilon=1)
        dpsql.attach_engine(ctx, "LAKE", lake(codes=visits()))
        with pytest.raises(BudgetError, match="B008"):
            release(session, engines_of(session).named("lake"), plan)
        for source in ("clinic.codes", "clinic.scored"):
            with pytest.raises(BudgetError, match="B006"):
                ctx.dp_count(source, epsilon=1)
        with pytest.raises(BudgetError, match="B006"):
            ctx.dp_count("clinic.codes", epsilon=1, engine="pond")
    with dpsql.Context(ledger=where, engine=Attached("lake", lake(codes=visits()))) as other:
        for source in ("clinic.codes", "clinic.scored"):
            with pytest.raises(BudgetError, match="B006"):
                other.dp_count(source, epsilon=1)
        assert spent(other)[OWN] == 0  # the budget is in the ledger


@pytest.mark.long
def test_a_table_of_duckdb_of_the_same_name_inherits_nothing(governed: dpsql.Context) -> None:
    con = governed.connection
    governed.dp_public("clinic.codes")
    con.execute("ATTACH ':memory:' AS lake; CREATE SCHEMA lake.clinic; CREATE TABLE lake.clinic.codes AS SELECT 1 AS a")
    con.execute("""CREATE SCHEMA "main.clinic"; CREATE TABLE "main.clinic".codes AS SELECT 1 AS a""")
    for source in ("lake.clinic.codes", '"main.clinic".codes'):
        with pytest.raises(duckdb.Error, match="B006"):
            con.execute(f"FROM dp_count('{source}', epsilon := 1)")
    assert con.execute("SELECT count(*) FROM dp_unplaced()").fetchall() == [(2,)]
    con.execute("SELECT dp_public('lake.clinic.codes')").fetchall()
    assert con.execute("FROM dp_count('lake.clinic.codes', epsilon := 1)").fetchall()
    with pytest.raises(ParameterError, match="P071"):  # keys are listed by a public table of DuckDB
        governed.dp_count("clinic.codes", by="code", keys=CODES, epsilon=1)


@pytest.mark.long
def test_tables_that_differ_in_case_are_declared_apart(tmp_path: Path) -> None:
    with dpsql.Context(ledger=tmp_path / "ledger", engine=Attached("lake", lake(Cased, Codes=visits()))) as ctx:
        ctx.dp_protect("clinic.visits", epsilon=3)
        ctx.dp_public("clinic.codes")
        ctx.dp_count("clinic.codes", epsilon=1)
        with pytest.raises(BudgetError, match="B006"):
            ctx.dp_count("clinic.Codes", epsilon=1)
        ctx.dp_protect("clinic.Codes", epsilon=1)  # a budget has no case: it counts for both
        with pytest.raises(BudgetError, match="B001"):
            ctx.dp_count("clinic.Codes", epsilon=0.6)
        with pytest.raises(BudgetError, match="B001"):
            ctx.dp_count("clinic.codes", epsilon=0.6)


@pytest.mark.long
def test_tables_without_a_place_are_listed(tmp_path: Path) -> None:
    odd = {"odd.name": codes(), "o'clock": codes()}
    with dpsql.Context(ledger=tmp_path / "ledger", engine=Attached("lake", lake(**odd))) as ctx:
        ctx.connection.execute("CREATE TABLE of_duckdb AS SELECT 1 AS a")
        assert ctx.dp_unplaced().num_rows == 5
        ctx.dp_protect("clinic.visits", epsilon=3, privacy_unit="pid", max_rows_per_unit=2)
        assert ctx.dp_unplaced(engine=None)["table_name"].to_pylist() == ["of_duckdb"]
        rows = {row["table_name"]: row for row in ctx.dp_unplaced().to_pylist()}
        assert list(rows) == ['lake.main.clinic."odd.name"', CODES, "lake.main.clinic.o'clock", SCORED]
        assert rows[CODES] == {
            "table_name": CODES,
            "if_public": f"SELECT dp_public('{CODES}', engine := 'lake');",
            "if_derived": f"SELECT dp_derive('{CODES}', '...', ..., engine := 'lake');",
            "if_protected": f"SELECT dp_protect('{CODES}', epsilon := 3.0, engine := 'lake');",
        }
        for row in rows.values():
            ctx.connection.execute(row["if_public"]).fetchall()
        assert ctx.dp_unplaced().num_rows == 0
        with pytest.raises(ParameterError, match="P016"):
            ctx.dp_unplaced(motor="lake")
        for statement in ("FROM dp_unplaced(engine := 'pond')", "SELECT dp_public('clinic.codes', engine := 'pond')"):
            with pytest.raises(duckdb.Error, match="P074"):
                ctx.connection.execute(statement)


@pytest.mark.long
def test_budgets_of_a_name_alone_hold_for_the_engines_table(ctx: dpsql.Context) -> None:
    """As `dp_protect` without a source states them, and as ledgers kept them before they kept an engine's tables."""
    ctx.dp_protect(OWN.upper(), epsilon=1, source=False)
    assert ctx.dp_count("clinic.visits", epsilon=1).dataset == OWN
    with pytest.raises(BudgetError, match="B001"):
        ctx.dp_count("clinic.visits", epsilon=1)
    assert OWN not in ctx.dp_unplaced()["table_name"].to_pylist()
    with pytest.raises(BudgetError, match="B009"):
        ctx.dp_public("clinic.visits", force=True)
