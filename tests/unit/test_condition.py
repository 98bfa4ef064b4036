"""The grammar of conditions: what is understood is what DuckDB understands, and the rest is refused."""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dpsql.contract.expression.functions import FUNCTIONS, KNOWN
from dpsql.contract.expression.kinds import Type
from dpsql.contract.query.condition import MOST_CHARACTERS, check, columns_of, expression
from dpsql.contract.query.expressions import ColumnSql, RowExpressions, UntypedSql
from dpsql.contract.query.nodes import Expr
from dpsql.engines.duckdb.typed_expression import TYPING
from dpsql.errors import ParameterError
from dpsql.rendering import text
from support.cases import cases

ROW = (
    "SELECT i % 7 - 2 AS a, (i * 5) % 11 - 4 AS b, i / 3 AS x, CASE WHEN i % 5 > 0 THEN 'w' || i % 3 END AS t, "
    "i % 2 = 0 AS f, DATE '2020-01-30' + (i * 9)::INTEGER AS day, {'city': 'c' || i % 2, 'in': {'n': i}} AS place, "
    '[i, i % 3] AS l, i AS "odd ""name""", i AS date FROM range(60) AS r(i)'
)
UNDERSTOOD = [
    "a >= 1",
    "A<>b and not f",
    "a = 1 or b = 2 and f",
    "not a = 1 or not not f",
    "a + b * 2 - x / 3 > -1",
    "a - b - 1 < 2 // 1 % 3",
    "-a < +b",
    "- 1 < a::INTEGER",
    "-a::DOUBLE < 1e-1",
    "2 - -1 = a",
    "a between 0 and 3 and b not between -1 and 1",
    "t in ('w1', 'w2') or t not in ('w0', null)",
    "t is null or t is not distinct from 'w1' or f is not true",
    "t like 'w%' and t not ilike '%1'",
    "t like 'w!_%' escape '!' or t not ilike 'W^1' escape '^'",
    "t || '-' || t = 'w1-w1'",
    "case when a > 1 then b > 1 when f then true else null end",
    "case a when 1 then 'one' else t end = 'one'",
    "cast(x as integer) = 3 or try_cast(t as bigint) > 1 or x::decimal(9, 2) > 3",
    "coalesce(t, 'none') = 'none'",
    "day >= '2020-03-01' and day < date '2021-01-01' + interval '30 days'",
    "year(day) = 2020 and extract(month from day) in (2, 3) and date_trunc('month', day) = DATE '2020-02-01'",
    "place.city = 'c1' and place.\"in\".n > 4",
    '"odd ""name""" > 5 and date < 50',
    "list_contains(l, 2) and len(l) = 2",
    "round(x, 1) > 2.5 and greatest(a, b, 0) = least(3, a) and abs(a) < .5e1",
    "regexp_matches(t, '^w[12]$') and length(t) = 2 and upper(t) <> 'it''s'",
    "(a > 1) = (b > 1)",
    "((((f))))",
    "(" * 60 + "a > 1" + ")" * 60,
    "a > 1 -- and so on",
    "a /* b */ > 1 and t = $$w1$$ or t = E'w\\x32'",
    "a in [1, 2] or (a, b) = (3, 4) or (a, b) in ((1, 2), (4, 0))",
    "t || a + 1 = 'w12'",
    "2 ** a > 1_0 and x operator(+) 1 > 1 and 2 ^ b < 4",
    "system.main.lower(t) = 'w1' and t::varchar(3) <> 'w2'",
    "t ~ 'w[12]' and t similar to '.[01]' and t notnull",
    "if(f, a, b) > 0 and ifnull(t, 'x') <> nullif('w1', t) and concat(t, a) <> 'w12'",
    "split_part(t, 'w', 2) = '1' and date_add(day, interval 1 day) > '2020-03-01'",
    "day + 30 between date '2020-03-01' and date '2021-03-01' and mod(a, 2) = 0",
]
REFUSED = {
    "a subquery": "a > (SELECT avg(a) FROM t)",
    "a subquery that exists": "EXISTS (SELECT 1) AND a > 1",
    "a subquery in a list": "a IN (SELECT 1)",
    "a subquery after all": "a > ALL (SELECT 1)",
    "an aggregate": "a > avg(a)",
    "a count": "count(*) > 1 AND f",
    "a window": "row_number() OVER () < 5 AND f",
    "a window over a column": "sum(a) OVER (ORDER BY b) < 5",
    "an aggregate with a filter": "sum(a) FILTER (f) > 1",
    "a random number": "random() < x",
    "a uuid": "uuid() > t",
    "a sequence": "nextval('s') > a",
    "a user variable": "getvariable('v') > a",
    "a setting": "current_setting('threads') > a",
    "an internal function": "dpsql_ticket() > a",
    "a private function": "dp_quantile(a) > 1",
    "a macro": "mine(a)",
    "a method": "t.lower() = 'a'",
    "a file": "read_text(t) = 'a'",
    "a long text": "repeat(t, 1000000000) = 'a'",
    "an error": "error(t)",
    "a parameter": "a > ?",
    "a numbered parameter": "a > $1",
    "a named parameter": "a > $x",
    "a lambda": "len(list_filter(l, lambda y: y > 1)) > 1",
    "an arrow": "len(list_filter(l, y -> y > 1)) > 1",
    "a comprehension": "[y FOR y IN l] = l",
    "a subscript": "l[1] = 2",
    "a struct": "{'a': a} = 1",
    "a star": "*",
    "columns": "COLUMNS(*) > 1",
    "a star in a function": "greatest(*) > 1",
    "a position": "#1 > 2",
    "a second statement": "a > 1; DROP TABLE t",
    "more after it": "a > 1) OR (true",
    "an open parenthesis": "(a > 1",
    "an open text": "t = 'w",
    "an open name": 'a > 1 AND "a',
    "an empty name": '"" > 1',
    "a collation": "t COLLATE NOCASE = 'W'",
    "a clause": "a > 1 ORDER BY b",
    "a chain": "0 < a < 3",
    "a chain of equals": "a = b = f",
    "bits": "a & 1 = 1",
    "a factorial": "a! > 1",
    "no column": "1 = 1",
    "no value": "a >",
    "nothing": " ",
    "a type of the caller": "a::mood > 1",
    "an alias": "a > 1 AS b",
    "a reserved word": "select > 1",
    "a hexadecimal number": "a > 0x10",
    "two values": "a b",
    "a column of ours": "dpsql_row IS NOT NULL",
    "the user": "current_user = t",
    "the user in quotes": '"Session_User" = t',
    "the day": "current_date > day",
    "a long one": "a > 1 OR " * (MOST_CHARACTERS // 9) + "a > 123456789",
}  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> Iterator[Any]:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS {ROW}")
        with suppress(duckdb.CatalogException):  # 1.5 has no such setting, and gives NULL
            connection.execute("SET error_on_division_by_zero = false")
        yield connection


def condition_sql(condition: str) -> str:
    """Return the SQL of a condition as it is read, before its types are known; strings that are cast are columns."""
    texts: list[str] = []
    found = UntypedSql({("", name): name for name in columns_of(condition)}, texts).sql(expression(condition))
    for number, said in enumerate(texts, 1):
        found = found.replace(f'"dpsql_text{number}"', text(said))
    return found


def verdicts(rows: Any, sql: str) -> list[Any]:
    return [row[0] for row in rows.execute(f"SELECT {sql}\nFROM t").fetchall()]


@cases("condition", UNDERSTOOD)
def test_a_condition_means_what_duckdb_reads(rows: Any, condition: str) -> None:
    expected = verdicts(rows, condition)
    assert len(set(expected)) > 1
    assert verdicts(rows, condition_sql(check(f" {condition}\n"))) == expected


def _random(chosen: random.Random, depth: int) -> str:
    """Return a random condition, with few parentheses, so that precedence decides."""

    def term(depth: int) -> str:
        if depth == 0 or chosen.random() < 0.3:
            return chosen.choice(["a", "b", "x", "-a", "1", "-2", "2.5", "a::DOUBLE", "-b::INTEGER", "abs(b)"])
        return f"{term(depth - 1)} {chosen.choice('+-*/%')} {term(depth - 1)}"

    kind = chosen.randrange(8 if depth else 5)
    if kind < 2:
        return f"{term(2)} {chosen.choice(['=', '<>', '<', '>=', '!=', '=='])} {term(2)}"
    if kind == 2:
        return f"{term(1)} {chosen.choice(['', 'NOT '])}BETWEEN {term(1)} AND {term(1)}"
    if kind == 3:
        return f"{term(1)} {chosen.choice(['', 'NOT '])}IN ({term(1)}, {term(1)}, NULL)"
    if kind == 4:
        return chosen.choice(["f", "t IS NULL", "t LIKE 'w%' || '1'", "f IS NOT TRUE", "a + 1 IS DISTINCT FROM b"])
    if kind == 5:
        return f"NOT {_random(chosen, depth - 1)}"
    return f"{_random(chosen, depth - 1)} {chosen.choice(['AND', 'OR'])} {_random(chosen, depth - 1)}"


@pytest.mark.long
def test_precedence_is_that_of_duckdb(rows: Any) -> None:
    chosen = random.Random(5)
    for _ in range(400):
        condition = f"{_random(chosen, 3)} AND a + b < 9"
        assert verdicts(rows, condition_sql(condition)) == verdicts(rows, condition), condition


@cases("condition", REFUSED.values(), ids=REFUSED)
def test_what_no_condition_may_say(condition: str) -> None:
    with pytest.raises(ParameterError, match=r"DPSQL-P0(70|13)") as refused:
        check(condition)
    assert len(str(refused.value)) < 400


@cases("given", [3, True, ["a > 1"], {"a": 1}, "", "a > '\x00'", "a = '\ud800'"])
def test_a_condition_is_text(given: object) -> None:
    with pytest.raises(ParameterError, match="DPSQL-P013"):
        check(given)


def test_the_time_is_that_of_the_call() -> None:
    """A condition with a clock is another one on another day; what is stored is the day."""
    before = datetime.datetime.now(datetime.UTC)
    asked = check("day > today() - 30 AND day < now()::TIMESTAMP")
    found = [datetime.datetime.fromisoformat(one) for one in re.findall(r"'(\d[^']*)'", asked)]
    assert columns_of(asked) == ("day",)
    assert found[0].date() == before.date()
    assert before <= found[1].replace(tzinfo=datetime.UTC) <= datetime.datetime.now(datetime.UTC)
    assert check(asked) == asked


def test_columns_are_named_once() -> None:
    assert columns_of("Day > DATE '2020-01-01' AND year(day) = 1 AND lower(t) = 'a' AND \"T\" <> 'day'") == ("Day", "t")


@cases("name", sorted(KNOWN), quick=9)
def test_functions_are_built_in_and_look_at_their_arguments_alone(rows: Any, name: str) -> None:
    found = rows.execute(
        "SELECT function_type, stability, schema_name, internal, parameter_types FROM duckdb_functions() "
        "WHERE function_name = ?",
        [name],
    ).fetchall()
    # DuckDB 2.0.1 says of those that read the session's time zone that they do; none takes such a value here.
    mine = {
        tuple(one[:4])
        for one in found
        if not any("TIMESTAMP" in kind and ("ZONE" in kind or "TZ" in kind) for kind in one[4])
    }
    assert mine == {("scalar", "CONSISTENT", "main", True)}


@cases("name", ["replace", "regexp_replace"], quick=6)
@cases("put", ["", "_", "é", "abc" * 20])
def test_no_number_of_calls_makes_a_text_too_long(rows: Any, name: str, put: str) -> None:
    """Else calls within calls would make a text so long that a row could end the statement."""
    asked = Expr("item", "x", value="t")
    for part in ("a", "b"):
        literals = (part, put, *(("g",) if name == "regexp_replace" else ()))
        asked = Expr("call", name, (asked, *(Expr("constant", "string", value=one) for one in literals)))
    written = RowExpressions(TYPING).write(asked, {("t", "x"): ColumnSql("t.x", Type("VARCHAR"))})
    for size in (1, 100, 1000, 30_000, 65_536, 200_000):
        [(found,)] = rows.execute(
            f"SELECT strlen({written.sql}) FROM (SELECT repeat('a', {size}) AS x) AS t"
        ).fetchall()
        assert found is None or found <= max(65_536, size)
        assert found is not None or size * (1 + len(put.encode())) ** 2 > 65_536


def test_no_text_of_the_caller_is_run() -> None:
    """Every name is quoted and every function named in full, whatever is in it."""
    sql = condition_sql("\"a\"\" OR true --\" = 'it''s' AND lower(\"select\") = 'x'")
    assert sql == "((\"a\"\" OR true --\" = 'it''s') AND (system.main.lower(\"select\") = 'x'))"


def test_the_page_lists_every_function() -> None:
    """All but second names of one function, and parts of dates, which are the functions of one argument."""
    page = (Path(__file__).parents[2] / "docs" / "calls.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(\w+)`", page[page.index("### Conditions") : page.index("### Bounds")]))
    same = {"ceiling", "power", "substr", "month", "day", "hour", "minute", "second", "millisecond", "microsecond"}
    parts = {word for one in FUNCTIONS if one.names == ("date_part",) for word in one.takes[0].words["DATE"]}
    assert listed | same | parts >= KNOWN
