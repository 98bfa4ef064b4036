"""Names of tables that are no plain words: other schemas, dots, quotes, spaces, and what a refusal says of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.errors import DpsqlError
from dpsql.gateway.audit import Audit
from dpsql.gateway.desk import Desk
from dpsql.gateway.limits import Buckets, Rates
from dpsql.gateway.statement import read
from dpsql.ledger.grants import Grant
from support.cases import cases

# What it is called, and how owners and DuckDB write it.
TABLES = {
    "bib.loans": '"bib"."loans"',
    "bib.the loans": '"bib"."the loans"',
    'a.b"c': '"main"."a.b""c"',
    "größe (m²)": '"main"."größe (m²)"',
    "order": '"main"."order"',
}
Asks = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def parse() -> Iterator[Callable[[str], str]]:
    with duckdb.connect(config={"threads": 1, "max_expression_depth": 250}) as connection:
        yield lambda text: str(connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0][0])


@pytest.fixture(scope="module")
def asks(tmp_path_factory: pytest.TempPathFactory, parse: Callable[[str], str]) -> Iterator[Asks]:
    """Ask as the door does: what a box reads of a text goes to a desk; every table has its number of rows."""
    folder = tmp_path_factory.mktemp("names")
    with dpsql.Context(str(folder / "names.duckdb")) as context:
        context.sql("CREATE SCHEMA bib")
        for number, place in enumerate(TABLES.values(), start=1):
            context.sql(f'CREATE TABLE {place} AS SELECT i AS id, i % 3 AS "x y" FROM range({number * 100}) AS r(i)')
            context.dp_protect(place, epsilon=10**9, privacy_unit="id", max_rows_per_unit=1)
        # Another one whose dotted name looks alike: nobody was granted it.
        context.sql('CREATE TABLE "bib.loans" AS SELECT i AS id FROM range(7) AS r(i)')
        context.sql(
            """CREATE TABLE kurse AS SELECT i AS id, i % 70 AS kind, DATE '2026-01-01' + CAST(i % 90 AS INTEGER) AS tag,
                 5 + i % 14 AS "alter", 'Zaphod-' || i AS "group" FROM range(900) AS r(i)"""
        )
        context.dp_protect("kurse", epsilon=10**9, privacy_unit="kind", max_rows_per_unit=20)
        for row in context.ledger.budgets():
            context.ledger.grant(Grant.of("ana", row.dataset))
        context.ledger.grant(Grant.of("ben", "order"))
        tokens = {name: context.ledger.issue_token(name).text for name in ("ana", "ben")}
        desk = Desk(context, Audit(None), Rates(factor=10_000.0), buckets=Buckets(sleep=lambda _: None))

        def ask(sql: str, principal: str = "ana", epsilon: str | None = "1000000") -> dict[str, Any]:
            try:
                [call] = read(sql, parse).calls
            except DpsqlError as error:
                return {"error": {"code": error.code.removeprefix("DPSQL-"), "position": error.position}}
            before = len(context.ledger.entries())
            request = {
                "want": "call",
                **json.loads(json.dumps(call.to_json())),
                "settings": {} if epsilon is None else {"epsilon": epsilon},
            }
            reply, tables = desk.answer({"token": tokens[principal], **request})
            rows = [list(row.values()) for row in tables[0].to_pylist()] if tables else []
            return {**reply, "rows": rows, "entries": len(context.ledger.entries()) - before}

        yield ask


HOSTILE = [json.loads(line) for line in (Path(__file__).parent / "hostile.jsonl").read_text("utf-8").splitlines()]
REACHED = [one["text"] for one in HOSTILE if one["code"] is None and "kurse" in one["text"]]


@pytest.mark.parametrize(
    "statements",
    [pytest.param(REACHED, marks=pytest.mark.long), pytest.param(REACHED[::5])],
    ids=["all", "some"],
)
def test_hostile_statements_that_a_box_takes_get_no_row_of_the_broker(asks: Asks, statements: list[str]) -> None:
    """Each is refused, uncharged and by a code of its own, or is a release, or shows no row."""
    wrong = []
    for sql in statements:
        told = asks(sql)
        code = told.get("error", {}).get("code", "")
        if "Zaphod" in json.dumps(told, default=str) or code.startswith(("I", "L")):
            wrong.append((sql, told))
        elif code and code != "P108" and told["entries"]:  # P108: on answers, which stand
            wrong.append((sql, "charged for a refusal"))
        elif not code and told["rows"] and not told["receipts"] and not sql.startswith(("DESCRIBE", "SHOW")):
            wrong.append((sql, "rows without a receipt"))
    assert not wrong
    assert len(REACHED) > 60


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_a_name_that_is_listed_is_asked_about_in_plain_sql_and_in_calls(asks: Asks, name: str) -> None:
    rows = 100 * (1 + list(TABLES).index(name))
    assert [name] in asks("SHOW TABLES")["rows"]
    assert asks(f"SELECT count(*) FROM {quoted(name)}")["rows"] == [[rows]]
    assert asks(f"SELECT count(*) FROM {quoted(name)} AS t WHERE t.id >= 0")["rows"] == [[rows]]
    assert asks(f'SELECT count({quoted(name)}."x y") FROM {quoted(name)}')["rows"] == [[rows]]
    assert asks(f"WITH w AS (SELECT * FROM {quoted(name)}) SELECT count(*) FROM w")["rows"] == [[rows]]
    assert [row[0] for row in asks(f"DESCRIBE {quoted(name)}")["rows"]] == ["id", "x y"]
    text = name.replace("'", "''")
    assert asks(f"FROM dp_count('{text}')")["rows"][0][2] == rows


def test_a_schema_may_be_written_as_in_duckdb(asks: Asks) -> None:
    assert asks("SELECT count(*) FROM bib.loans")["rows"] == [[100]]
    assert asks('SELECT count(loans."x y") FROM bib.loans')["rows"] == [[100]]
    assert asks('SELECT count(*) FROM bib."the loans" AS t')["rows"] == [[200]]
    assert len(asks("DESCRIBE bib.loans")["rows"]) == 2
    for other in ("names.bib.loans", "main.loans", 'main."bib.loans"', "pg_catalog.pg_class", "temp.loans"):
        assert asks(f"SELECT count(*) FROM {other}")["error"]["code"] == "G014"
    taken = 'WITH "bib.loans" AS (SELECT * FROM "bib.loans") SELECT count(*) FROM "bib.loans"'
    assert asks(taken)["error"]["code"] == "G014"


def test_a_misspelt_name_is_mended_by_the_asker_s_own_names_alone(asks: Asks) -> None:
    for given, meant in {"ORDER": "order", "loans": "bib.loans", "bib.LOANS": "bib.loans", "orders": "order"}.items():
        told = asks(f"SELECT count(*) FROM {quoted(given)}")["error"]
        assert (told["code"], told["hint"]) == ("G015", f"Do you mean '{meant}'?")
    there, nowhere = (asks(f'SELECT count(*) FROM "{name}"', "ben")["error"] for name in ("bib.loans", "bib.lobes"))
    assert there == nowhere == {"code": "G015", "message": there["message"]}


@cases(
    ("sql", "code", "where"),
    [
        ('SELECT \n 1, max("x y") FROM "order"', "P106", 'max("x y")'),
        ('SELECT "ü", version()', "G007", "version()"),
        ('SELECT count(*) AS "äöü", sum(nothing) FROM bib.loans', "S002", "nothing"),
        ('SELECT count(*) FROM "größe (m²)" WHERE foo(1)', "G007", "foo(1)"),
        ("FROM dp_query('SELECT max(id) FROM bib.loans')", "P106", None),
        ("FROM dp_query('SELECT count(*), foo(1) FROM bib.loans')", "G007", None),
    ],
)
def test_a_refusal_points_into_the_statement_that_was_sent(asks: Asks, sql: str, code: str, where: str | None) -> None:
    told = asks(sql)["error"]
    assert told["code"] == code
    assert "It stands at" not in told.get("message", "")
    position = told.get("position")
    assert (position is None) == (where is None)
    assert where is None or sql[position:].startswith(where)


@cases(
    "sql",
    [
        "SELECT CAST(count(*) AS TINYINT) FROM kurse WHERE kind > 5",
        "SELECT (SELECT n FROM (SELECT 1 AS n UNION ALL SELECT count(*) FROM kurse WHERE kind > 6))",
        "SELECT factorial(CAST(count(*) AS INTEGER)) FROM kurse WHERE kind > 7",
    ],
    quick=1,
)
def test_what_fails_on_answers_is_charged_once_and_says_so(asks: Asks, sql: str) -> None:
    """Planted: a failure after the release that is taken for one on a row was charged at every attempt (I001)."""
    first, again = asks(sql), asks(sql)
    assert first["error"] == again["error"]
    assert first["error"]["code"] == "P108"
    assert "I001" not in first["error"]["message"]
    assert (first["entries"] > 0, again["entries"]) == (True, 0)
    whole = asks("SELECT count(*) " + sql[sql.index("FROM kurse") :].rstrip(")"))
    assert (len(whole["rows"]), whole["entries"]) == (1, 0)


def test_a_refusal_is_spelled_in_sql(asks: Asks) -> None:
    assert "lower := " in asks("FROM dp_histogram('order', target := 'id', bins := 9)")["error"]["message"]


def test_who_states_no_epsilon_is_told_where_plain_sql_has_it(asks: Asks) -> None:
    for sql in ('SELECT count(*) FROM "order"', "FROM dp_count('order')"):
        told = asks(sql, epsilon=None)["error"]
        assert told["code"] == "P001"
        assert "beside the statement" in told["message"]
        assert "SET epsilon" in told["message"]


def test_a_view_of_a_file_is_told_how_it_can_be_asked(asks: Asks, tmp_path: Path) -> None:
    with dpsql.Context() as context:
        context.sql(f"COPY (SELECT 1 AS id, 2 AS x) TO '{tmp_path}/a.csv'")
        context.sql(
            f"CREATE VIEW v AS FROM read_csv('{tmp_path}/a.csv', columns := {{'id': 'INTEGER', 'x': 'INTEGER'}})"
        )
        context.dp_protect("v", epsilon=1, privacy_unit="id", max_rows_per_unit=1)
        with pytest.raises(DpsqlError, match=r"S069.*CREATE TABLE t AS FROM v.*dp_count\('v'\)"):
            context.query("SELECT count(*) FROM v", epsilon=0.1)
