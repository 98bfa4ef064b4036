"""Past releases of queries: the rows that were returned, from the ledger alone."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import dpsql
from dpsql.cli.commands import main
from dpsql.engines.duckdb.query_answers import stored_answer
from support.cases import cases
from support.sql_text import literal


@pytest.fixture
def ctx(tmp_path: Path) -> Iterator[dpsql.Context]:
    with dpsql.Context(tmp_path / "clinic.duckdb") as opened:
        con = opened.connection
        con.execute("""
            CREATE TABLE visits AS
              SELECT i % 500 AS patient, ['A', 'B'][1 + i % 2] AS ward, CAST(i % 14 AS INTEGER) AS days,
                TIMESTAMPTZ '2026-01-01 00:00:00+00' + to_days(CAST(i % 60 AS INTEGER)) AS seen
              FROM range(1500) AS r(i)
        """)
        con.execute("CREATE TABLE wards AS SELECT * FROM (VALUES ('A', 10), ('B', 20)) AS v(ward, beds)")
        con.execute("""
            SELECT dp_protect('visits', epsilon := 300, delta := 0.01, max_rows_per_unit := 3, privacy_unit := 'patient',
              keys := {ward: ['A', 'B']}, lower := {days: 0}, upper := {days: 14})
        """).fetchall()
        con.execute("SELECT dp_public('wards')").fetchall()
        yield opened


def asked(ctx: dpsql.Context, sql: str, more: str = "") -> Any:
    call = f"FROM dp_query({literal(sql)}, epsilon := 5, release := 'asked'{more})"
    return ctx.connection.sql(call).to_arrow_table()


QUERIES = {
    "groups": "SELECT ward, count(*) AS n, sum(days) / count(*) AS r FROM visits GROUP BY ward HAVING count(*) > 9 ORDER BY n DESC",
    "totals": "SELECT ward, count(*) AS n FROM visits GROUP BY CUBE (ward) ORDER BY ward NULLS FIRST",
    "two cores": "SELECT (SELECT count(*) FROM visits) - (SELECT count(*) FROM visits WHERE days > 3) AS d, 'x' AS \"a b\"",
    "quantiles": "SELECT median(days) AS m, quantile_cont(days, [0.1, 0.9]) AS q FROM visits",
    "windows": "SELECT ward, n, sum(n) OVER (ORDER BY ward) AS s FROM (SELECT ward, count(*) AS n FROM visits GROUP BY ward)",
    "zones": "SELECT count(*) AS n, CAST(TIMESTAMP '2026-01-01 12:00:00' AS TIMESTAMPTZ) AS t FROM visits",
    "keys of a public table": "SELECT beds, count(*) AS n FROM visits JOIN wards USING (ward) GROUP BY beds ORDER BY beds",
    "persons": "SELECT ward, count(DISTINCT patient) AS n FROM visits GROUP BY ward ORDER BY ward LIMIT 1",
}


@cases("errors", ["", ", errors := true"], ids=["plain", "errors"], quick=1)
@cases("name", QUERIES)
def test_the_rows_are_those_that_were_returned(ctx: dpsql.Context, name: str, errors: str) -> None:
    ctx.connection.execute("SET TimeZone = 'Asia/Tokyo'")
    before = asked(ctx, QUERIES[name], errors)
    found = ctx.release("asked")
    assert found.value.equals(before)
    assert found.value.schema == before.schema
    assert (found.function, found.replayed) == ("dp_query", True)
    assert ctx.dp_budget()["releases"].to_pylist() == [1]


@pytest.mark.long
def test_they_are_those_of_the_first_time(ctx: dpsql.Context) -> None:
    first = asked(ctx, QUERIES["groups"])
    asked(ctx, QUERIES["groups"].replace("DESC", "ASC LIMIT 1"))
    assert ctx.release("asked").value.equals(first)


def test_a_query_of_python_is_kept_too(ctx: dpsql.Context) -> None:
    first = ctx.query(QUERIES["groups"], epsilon=5)
    assert ctx.release(first.ledger_id).value.equals(first.value)


@pytest.mark.long
def test_what_reads_a_public_table_besides_is_not_made_again(ctx: dpsql.Context, tmp_path: Path) -> None:
    sql = "SELECT n / beds AS r FROM (SELECT ward, count(*) AS n FROM visits GROUP BY ward) JOIN wards USING (ward)"
    asked(ctx, sql)
    with pytest.raises(dpsql.ParameterError, match=r"P030.*free replay"):
        ctx.release("asked").value  # noqa: B018
    shown = show(tmp_path, "asked")
    assert shown["rows"] is None
    assert len(shown["parts"]) == 1


def show(folder: Path, *arguments: str) -> Any:
    done = CliRunner().invoke(main, ["show", *arguments, "--db", str(folder / "clinic.duckdb")])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout) if len(arguments) == 1 else done.stdout


def test_the_command_shows_rows_and_answers(ctx: dpsql.Context, tmp_path: Path) -> None:
    rows = asked(ctx, QUERIES["groups"]).to_pylist()
    shown = show(tmp_path, "asked")
    assert shown["rows"] == rows
    assert len(shown["parts"]) == 1
    assert "answer" not in shown["lineage"]
    assert shown["lineage"]["source"] == QUERIES["groups"]
    assert show(tmp_path, "asked", "--format", "csv").splitlines()[0] == "ward,n,r"


def test_the_text_that_is_kept_runs_where_nothing_else_is(ctx: dpsql.Context, tmp_path: Path) -> None:
    asked(ctx, QUERIES["groups"])
    stored = ctx.ledger.releases(("dp_query",), None, "asked")[0]
    (tmp_path / "secret.csv").write_text("a\n1\n", encoding="utf-8")
    made = tmp_path / "made.csv"
    for sql in (
        f"FROM read_csv('{tmp_path / 'secret.csv'}')",
        f"COPY (SELECT 1) TO '{made}'",
        f"ATTACH '{tmp_path / 'other.duckdb'}'",
        "FROM ctx",  # a variable of Python
    ):
        answer = {**stored.lineage["answer"], "sql": sql}  # type: ignore[index,dict-item]
        with pytest.raises(dpsql.ParameterError, match="P030"):
            stored_answer(dataclasses.replace(stored, lineage={**stored.lineage, "answer": answer}))  # type: ignore[dict-item]
    assert not made.exists()


def test_a_release_that_was_stored_without_its_text_says_so(ctx: dpsql.Context) -> None:
    asked(ctx, QUERIES["groups"])
    stored = ctx.ledger.releases(("dp_query",), None, "asked")[0]
    lineage = {name: found for name, found in (stored.lineage or {}).items() if name != "answer"}
    with pytest.raises(dpsql.ParameterError, match="P030"):
        stored_answer(dataclasses.replace(stored, lineage=lineage))
