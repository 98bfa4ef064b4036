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
from dpsql.engines.duckdb.releases import stored_answer
from dpsql.functions import query_parts
from dpsql.functions.query_parts import SOURCE
from support.broken.planting import planted
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


# Questions that are one: of the same numbers, at the same price. And others, that are not.
EQUAL: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "settings": [
        ("SELECT count(*) FROM t", {}),
        ("SELECT count(*) FROM t", {"delta": 1e-6}),
        ("SELECT count(*) FROM t", {"confidence": 0.9}),
        ("SELECT 2 * count(*) AS n FROM main.t AS q", {"errors": True, "delta": 1e-9, "confidence": 0.99}),
        (
            "SELECT count(*) FROM t",
            {"max_rows_per_unit": 2, "left_out_share": 0.05, "lower": {"x": 0}, "keys": {"k": [1]}},
        ),
    ],
    "a mean": [("SELECT avg(x) FROM t", {}), ("SELECT avg(x) + 1 FROM t", {"delta": 1e-6, "confidence": 0.5})],
    "groups": [
        ("SELECT k, count(*) FROM t GROUP BY k", {}),
        ("SELECT k, count(*) FROM t GROUP BY ALL", {"delta": 1e-5}),
    ],
    "a double": [
        (f"SELECT count(*) FROM t WHERE x > {one}", {})
        for one in (
            "1.5",
            "'1.5'::DOUBLE",
            "'1.5'",
            "1.50",
            "15e-1",
            "1.5::DECIMAL(9, 4)",
            "CAST('1.50' AS DOUBLE)",
            "+1.5",
        )
    ],
    "doubles": [
        (f"SELECT count(*) FROM t WHERE x {one}", {})
        for one in ("BETWEEN 1 AND 2", "BETWEEN '1' AND 2.0", "BETWEEN 1e0 AND 2::BIGINT")
    ],
    "a whole number": [
        (f"SELECT count(*) FROM t WHERE n > {one}", {}) for one in ("3", "'3'", "3::BIGINT", "'3'::TINYINT", "3::INT")
    ],
    "negative ones": [
        (f"SELECT count(*) FROM t WHERE n IN ({one})", {}) for one in ("-3, 4", "'-3', 4", "(-3)::BIGINT, '4'::INT")
    ],
    "a decimal": [
        (f"SELECT count(*) FROM t WHERE m = {one}", {}) for one in ("1.5", "1.50", "'1.5'", "1.5::DECIMAL(4, 2)")
    ],
    "a date": [
        (f"SELECT count(*) FROM t WHERE d > {one}", {})
        for one in ("'2026-01-05'", "DATE '2026-01-05'", "'2026-01-05'::DATE")
    ],
}
OTHERS = {
    "another number": ("SELECT count(*) FROM t WHERE x > 1.5", "SELECT count(*) FROM t WHERE x > 1.6"),
    "a float": ("SELECT count(*) FROM t WHERE x > 0.1", "SELECT count(*) FROM t WHERE x > 0.1::FLOAT"),
    "more digits": ("SELECT count(*) FROM t WHERE x > 0.1", "SELECT count(*) FROM t WHERE x > 0.10000000000000001"),
    "rounded": ("SELECT count(*) FROM t WHERE m > 1.555", "SELECT count(*) FROM t WHERE m > '1.555'"),
    "an integer": ("SELECT count(*) FROM t WHERE n > 3", "SELECT count(*) FROM t WHERE n > 3.5"),
    "a text": ("SELECT count(*) FROM t WHERE s = '1.5'", "SELECT count(*) FROM t WHERE s = '1.50'"),
    "a text that is cast": ("SELECT count(*) FROM t WHERE s = '1'", "SELECT count(*) FROM t WHERE s::INT = '1'"),
}


@pytest.fixture(scope="module")
def numbers() -> Iterator[dpsql.Context]:
    with dpsql.Context() as opened:
        opened.connection.execute("""
            CREATE TABLE t AS SELECT i // 3 AS who, i * 0.5::DOUBLE AS x, i::INT - 9 AS n, (i * 0.5)::DECIMAL(9, 2) AS m,
              ['1', '1.5', '1.50'][1 + i % 3] AS s, DATE '2026-01-01' + (i % 30)::INT AS d, i % 3 AS k FROM range(300) AS r(i)""")
        opened.connection.execute("""
            SELECT dp_protect('t', epsilon := 1e13, delta := 0.1, privacy_unit := 'who', max_rows_per_unit := 2,
              keys := {k: [0, 1, 2]}, lower := {x: 0}, upper := {x: 10})""")
        yield opened


@cases("name", EQUAL, quick=2)
def test_a_question_is_what_it_spends_and_computes(numbers: dpsql.Context, name: str) -> None:
    """Settings that it does not use, and how a literal is spelled, make no other one: it is charged once."""
    entries = {numbers.query(sql, epsilon=1, **given).ledger_id for sql, given in EQUAL[name]}
    assert len(entries) == 1
    for sql, _ in EQUAL[name]:
        if "WHERE" in sql:
            exact = numbers.query(sql, epsilon=1e9, max_rows_per_unit=3, fresh=True, left_out_share=0).value.to_pylist()
            assert [tuple(row.values()) for row in exact] == numbers.connection.execute(sql).fetchall()


@cases("sqls", OTHERS.values(), ids=OTHERS, quick=2)
def test_other_questions_are_others(numbers: dpsql.Context, sqls: tuple[str, str]) -> None:
    first, second = (numbers.query(sql, epsilon=1) for sql in sqls)
    assert first.ledger_id != second.ledger_id
    for sql in sqls:
        exact = numbers.query(sql, epsilon=1e9, max_rows_per_unit=3, fresh=True, left_out_share=0).value.to_pylist()
        assert [tuple(row.values()) for row in exact] == numbers.connection.execute(sql).fetchall()


def test_a_delta_that_noise_spends_makes_another_question(numbers: dpsql.Context) -> None:
    many = ", ".join(f"count(*) FILTER (WHERE n % 40 > {one})" for one in range(30))
    without, with_it, more = (
        numbers.query(f"SELECT {many} FROM t", epsilon=1, **given) for given in ({}, {"delta": 1e-4}, {"delta": 1e-3})
    )
    assert len({without.ledger_id, with_it.ledger_id, more.ledger_id}) == 3
    quantiles = {numbers.query("SELECT median(x) FROM t", epsilon=1, confidence=one).ledger_id for one in (0.9, 0.95)}
    assert len(quantiles) == 2  # how far the noise of its ranks reaches was drawn for a confidence


def recorded(kind: Any, given: Any, placed: Any, share: object) -> Any:
    """Return the plan of a part with all that it was given, as it was before what it does not use was left out."""
    plan = kind.from_arguments(SOURCE, dict(given), dict(placed.protection))
    return plan, {}


@cases("named", [{}, {"release": "old"}], ids=["by its question", "by name"])
def test_what_was_asked_with_settings_that_it_did_not_use_is_replayed(named: dict[str, Any]) -> None:
    given = {"delta": 1e-6, "confidence": 0.9, **named}
    with dpsql.Context() as ctx:
        ctx.connection.execute("CREATE TABLE t AS SELECT i AS x FROM range(100) AS r(i)")
        ctx.connection.execute("SELECT dp_protect('t', epsilon := 100, delta := 1e-3)")
        with planted((query_parts, "_planned", recorded)):
            made = ctx.query("SELECT count(*) FROM t WHERE x > '5'", epsilon=1, **given)
        again = ctx.query("SELECT count(*) FROM t WHERE x > '5'", epsilon=1, **given)
        assert (again.replayed, again.ledger_id) == (True, made.ledger_id)
        assert again.value.equals(made.value)
