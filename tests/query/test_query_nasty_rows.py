"""No row of people's tables can stop the texts that a query splits into."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from dpsql.contract.query.catalogue import Catalogue, CatalogueTable, Options
from dpsql.contract.query.splitter import split
from dpsql.contract.query.tree import read_tree
from dpsql.engines.duckdb.typed_expression import TYPING
from dpsql.errors import DpsqlError
from support.cases import cases
from tests.support.split_queries import columns_of_table, tree_of

NASTY = {
    "s": "'x', '', NULL, '12', 'é', 'e' || chr(769), ' A', 'a', 'A', '1e999', '2024-13-40', '%', '[', repeat('z', 2000)",
    "x": "'nan'::DOUBLE, 'inf'::DOUBLE, '-inf'::DOUBLE, -0.0::DOUBLE, 1e308, 5e-324, NULL, 0.5, -1",
    "d": "'infinity'::DATE, '-infinity'::DATE, DATE '5877642-06-25 (BC)', DATE '5881580-07-10', NULL, DATE '2024-02-29'",
    "t": "'infinity'::TIMESTAMP, '-infinity'::TIMESTAMP, TIMESTAMP '290309-12-22 (BC) 00:00:00', NULL, "
    "TIMESTAMP '294247-01-10 04:00:54', TIMESTAMP '2024-02-29 23:59:59.999999'",
    "b": "9223372036854775807, -9223372036854775808, 0, NULL, 1, -1, 7",
    "h": "'170141183460469231731687303715884105727'::HUGEINT, '-170141183460469231731687303715884105728'::HUGEINT, NULL, 0, 3",
    "m": f"{'9' * 36}.99::DECIMAL(38, 2), -{'9' * 36}.99::DECIMAL(38, 2), NULL, 0, 1.25",
    "z": "'infinity'::TIMESTAMPTZ, '-infinity'::TIMESTAMPTZ, TIMESTAMPTZ '294247-01-10 04:00:54+00', NULL, "
    "TIMESTAMPTZ '290309-12-22 (BC) 00:00:00+00', TIMESTAMPTZ '2024-02-29 23:59:59+00'",
}
VALUES = [
    "CAST(s AS INTEGER)", "CAST(s AS DATE)", "length(s) / b", "b + 1", "b * b", "-b", "b // (b - 1)", "b % 0", "abs(b)",
    "h + h", "h * 2", "CAST(h AS BIGINT)", "m * m", "m + 1", "CAST(x AS INTEGER)", "CAST(x AS DECIMAL(5, 2))", "sqrt(x)",
    "ln(x)", "x / 0", "1 / b", "round(x, 400)", "CAST(x AS VARCHAR)", "d + 1", "d - DATE '2000-01-01'", "d + INTERVAL 1 MONTH",
    "date_trunc('month', d)", "date_trunc('century', t)", "year(d)", "epoch(t)", "hour(z)", "date_trunc('week', z)",
    "CAST(t AS DATE)", "CAST(t AS VARCHAR)", "CAST(z AS VARCHAR)", "CAST(z AS DATE)", "strftime(d, '%Y-%m')",
    "replace(s, 'z', '_')", "regexp_replace(s, 'z*', '', 'g')", "regexp_extract(s, '(z)(z*)', 2)", "lpad(s, 999, s)",
    "rpad(s, 3, s)", "split_part(s, 'z', 9)", "reverse(s)", "d + to_months(CAST(b AS INTEGER))", "t + to_hours(b)",
    "strptime(s, '%Y-%m-%d')", "time_bucket(INTERVAL '2 weeks', d)", "time_bucket(INTERVAL '3 months', t)",
    "time_bucket(INTERVAL '2 hours', t)", "make_date(b, b, b)", "substring(s, b, b)", "left(s, b)", "upper(s)",
    "s LIKE s", "s ILIKE '%' || s", "regexp_matches(s, '(a|b)*c')", "s || s", "concat(s, b, x)", "CASE WHEN x > 0 THEN b ELSE h END",
    "greatest(b, h)", "least(x, b)", "coalesce(m, h)", "s IN ('a', '1')", "b BETWEEN h AND m", "nullif(b, h)", "pow(x, x)",
    "CAST(s AS BOOLEAN)", "CAST(b AS BOOLEAN)", "x IS DISTINCT FROM -0.0", "s = 'a'", "d = t", "dayname(d)", "last_day(d)",
    "replace(replace(s, 'z', 'zzzzzzzz'), 'z', 'zzzzzzzz')", "regexp_replace(s, 'z*', 'long', 'g')", "s LIKE '!%z%' ESCAPE '!'",
    "s NOT ILIKE 'Z!_%' ESCAPE '!'", "age(t, TIMESTAMP '2000-01-01')", "age(d, DATE '2000-01-01')", "age(t, CAST(z AS TIMESTAMP))",
    "t AT TIME ZONE 'Europe/Berlin'", "z AT TIME ZONE 'America/New_York'", "hour(t AT TIME ZONE 'UTC' AT TIME ZONE 'Pacific/Apia')",
    "hour(z AT TIME ZONE 'Asia/Tokyo') + hour(z)", "concat_ws(', ', s, b, x, z)", "concat_ws('', s, s)", "string_split(s, 'z')[1]",
    "split(s, 'z')[3]", "s IN ['a', '1']", "b = ANY([1, 7])", "list_contains([1.5, 7], x)",
    "date_diff('day', d, DATE '2000-01-01')", "trim(s, s)", "instr(s, s)", "CAST(d AS TIMESTAMP)", "isnan(x)",
]  # fmt: skip
PER_PERSON = [
    "sum(b)", "sum(h)", "sum(m)", "sum(x)", "avg(h)", "avg(m)", "avg(x)", "avg(b)", "min(s)", "max(x)", "max(z)", "median(x)",
    "median(b)", "median(h)", "quantile_cont(x, 0.9)", "count(DISTINCT x)", "bool_and(b > 0)", "count_if(x > 0)", "min(d)",
    "max(t)", "count(s)", "sum(b) FILTER (WHERE x > 0)", "sum(DISTINCT b)", "sum(DISTINCT x)", "avg(DISTINCT m)",
    "sum(DISTINCT h)", "min(DISTINCT x)",
]  # fmt: skip
WINDOWS = [
    "lag(s) OVER (PARTITION BY u ORDER BY x)", "lead(b, 2, 0) OVER (PARTITION BY u ORDER BY d, t)",
    "row_number() OVER (PARTITION BY u, s ORDER BY z)", "first_value(x) OVER (PARTITION BY u ORDER BY h DESC NULLS LAST)",
    "max(m) OVER (PARTITION BY u ORDER BY t ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)", "rank() OVER (PARTITION BY u ORDER BY m)",
]  # fmt: skip
OTHERS = [
    "SELECT count(*) FROM n a JOIN n b ON a.u = b.u AND a.s = b.s AND a.x = b.x AND a.d = b.d AND a.m = b.m AND a.h = b.b",
    "SELECT count(*) FROM n a JOIN p ON a.s = p.s LEFT JOIN p q ON q.x = a.x",
    "SELECT count(*) FROM n JOIN (SELECT s, CAST(s AS INTEGER) AS i FROM p WHERE s <> 'x') q ON q.s = n.s",
    "SELECT count(*) FROM n WHERE s IN (SELECT s FROM p) OR b NOT IN (SELECT CAST(x AS BIGINT) FROM p WHERE x < 5)",
    "SELECT count(*) FROM n WHERE u IN (SELECT u FROM n WHERE CAST(s AS INTEGER) > 3)",
    "SELECT avg((SELECT sum(b) FROM n m WHERE m.u = n.u AND m.x > n.x)) FROM n",
    "SELECT avg((SELECT max(b) FROM n m WHERE m.u = n.u)) FROM n",
    "SELECT count(*) FROM (SELECT u, b AS v FROM n UNION ALL SELECT u, x FROM n) WHERE v > 1",
]

# Whatever one of them holds, another one may be too narrow for.
DECIMALS = [(38, 0), (38, 2), (38, 30), (18, 6), (4, 1)]
NUMBERS = ["x", "b", "h", "m", "d38_30", "d4_1"]


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    found = duckdb.connect()
    longest = 14
    columns = ", ".join(
        f"list_extract([{values}], 1 + (i % {longest})::INTEGER) AS {name}" for name, values in NASTY.items()
    )
    mixed = ", ".join(
        f"list_extract([{values}], 1 + ((i * {step}) // 3 % {longest})::INTEGER) AS {name}"
        for step, (name, values) in enumerate(NASTY.items(), start=1)
    )
    found.execute(f"CREATE TABLE n AS SELECT i % 3 AS u, {columns} FROM range(28) AS r(i)")
    found.execute(f"INSERT INTO n SELECT nullif(i % 5, 4) AS u, {mixed} FROM range(200) AS r(i)")
    found.execute("CREATE TABLE p AS SELECT s, x FROM n WHERE s <> 'x' AND s ~ '^[0-9]+$' UNION ALL SELECT '7', 7")
    for width, scale in DECIMALS:
        most = f"{'9' * (width - scale)}.{'9' * scale}"
        found.execute(f"ALTER TABLE n ADD COLUMN d{width}_{scale} DECIMAL({width}, {scale})")
        found.execute(
            f"UPDATE n SET d{width}_{scale} = CAST('{most}' AS DECIMAL({width}, {scale})) WHERE rowid % 3 = 0"
        )
    yield found
    found.close()


def sources(con: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """Return the sources of a query's cores."""
    path = ("memory", "main")
    tables = {
        ("", "", "n"): CatalogueTable((*path, "n"), columns_of_table(con, "n"), False, ("u",)),
        ("", "", "p"): CatalogueTable((*path, "p"), columns_of_table(con, "p")),
    }
    found = split(read_tree(tree_of(con, sql)), Catalogue(tables, TYPING), Options(zone="Asia/Kolkata"))
    return [core.source for core in found.cores]


def run(con: duckdb.DuckDBPyConnection, sql: str) -> int:
    """Read all that a query's cores read, on all rows and on each one alone."""
    try:
        texts = sources(con, sql)
    except DpsqlError:
        return 0
    for text in texts:
        con.execute(f"CREATE OR REPLACE TEMP TABLE taken AS {text}")
        con.execute(f"SELECT count(*) FROM ({text})").fetchall()
    return len(texts)


@cases("value", VALUES, quick=3)
def test_no_row_stops_an_expression(con: duckdb.DuckDBPyConnection, value: str) -> None:
    ran = [
        run(con, f"SELECT count({value}) FROM n"),
        run(con, f"SELECT {value} AS k, count(*) FROM n GROUP BY k"),
        run(con, f"SELECT count(*) FROM n WHERE ({value}) IS NOT NULL AND CAST({value} AS VARCHAR) <> 'q'"),
        run(con, f"SELECT avg(v) FROM (SELECT u, count(DISTINCT {value}) AS v FROM n GROUP BY u)"),
    ]
    assert any(ran)


@cases("value", [*PER_PERSON, *WINDOWS], quick=16)
def test_no_row_stops_what_is_made_of_a_persons_rows(con: duckdb.DuckDBPyConnection, value: str) -> None:
    group = "" if " OVER " in value else " GROUP BY u"
    assert run(con, f"SELECT count(v) FROM (SELECT u, {value} AS v FROM n{group})") == 1


@cases("sql", OTHERS)
def test_no_row_stops_a_join(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    run(con, sql)


@cases(("one", "other"), itertools.permutations(DECIMALS, 2), quick=6)
def test_no_row_stops_a_join_by_the_order_of_decimals_of_two_types(
    con: duckdb.DuckDBPyConnection, one: tuple[int, int], other: tuple[int, int]
) -> None:
    """DuckDB would cast one to the type of the other, and say in an error which value does not fit."""
    join_by_order(con, *("d{}_{}".format(*sizes) for sizes in (one, other)))


@cases(("one", "other"), [*itertools.permutations(NUMBERS, 2), ("d", "t"), ("t", "d"), ("d", "d"), ("t", "t")], quick=4)
def test_no_row_stops_a_join_by_an_order(con: duckdb.DuckDBPyConnection, one: str, other: str) -> None:
    join_by_order(con, one, other)


@cases("sign", ["<", "<=", ">", ">=", "<>"])
def test_decimals_of_two_types_are_ordered_by_their_values(sign: str) -> None:
    """Tenths as 0.1 and as 0.1000, equal ones among them."""
    join = f"FROM n a LEFT JOIN n b ON a.u = b.u AND a.v {sign} b.w"
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE n AS SELECT i % 2 AS u, i / 10 AS v FROM range(-8, 12) AS r(i); CREATE TABLE p AS FROM n"
        )
        con.execute("ALTER TABLE n ADD COLUMN w DECIMAL(12, 4); UPDATE n SET w = v + (v * 100000) % 3 / 10000")
        con.execute("ALTER TABLE n ALTER v TYPE DECIMAL(4, 1)")
        [source] = sources(con, f"SELECT count(b.w), count(*) {join}")
        assert (
            con.execute(f"SELECT count(*) FROM ({source})").fetchone()
            == con.execute(f"SELECT count(*) {join}").fetchone()
        )


def join_by_order(con: duckdb.DuckDBPyConnection, one: str, other: str) -> None:
    for condition in (f"a.{one} < b.{other}", f"b.{other} BETWEEN a.{one} AND a.{other}"):
        assert run(con, f"SELECT count(b.s) FROM n a LEFT JOIN n b ON a.u = b.u AND {condition}") == 1


def test_no_text_grows_through_subqueries(con: duckdb.DuckDBPyConnection) -> None:
    """Each of 15 subqueries makes a text eight times as long: what is too long is NULL, and stops nothing."""
    inner = "SELECT s AS y FROM n"
    for _ in range(15):
        inner = f"SELECT y || y || y || y || y || y || y || y AS y FROM ({inner})"
    assert run(con, f"SELECT count(y), count_if(length(y) > 9) FROM ({inner})")


PUBLIC_VALUES = {
    "cast": "SELECT age, CAST(kind AS INTEGER) AS k FROM lookup",
    "error": "SELECT age, error(kind)::INTEGER AS k FROM lookup WHERE age > 70 UNION ALL SELECT age, 1 FROM lookup WHERE age < 10",
}


@cases("values", PUBLIC_VALUES.values(), ids=list(PUBLIC_VALUES), quick=1)
def test_a_public_value_that_fails_does_so_whomever_it_meets(values: str) -> None:
    """Else an error, which is free, would tell whether anybody is 77 years old."""
    asked = f"SELECT sum(k) FROM people JOIN ({values}) q USING (age)"
    told = []
    for age in (7, 77):
        with dpsql.connect() as con:
            con.execute("CREATE TABLE lookup AS SELECT i AS age, i::VARCHAR AS kind FROM range(10) AS r(i)")
            con.execute(
                "INSERT INTO lookup VALUES (77, 'x'); CREATE TABLE people AS SELECT i AS id, 7 AS age FROM range(9) AS r(i)"
            )
            con.execute(f"INSERT INTO people VALUES (9, {age}); SELECT dp_public('lookup')")
            con.execute(
                "SELECT dp_protect('people', epsilon := 9, privacy_unit := 'id', max_rows_per_unit := 1)"
            ).fetchall()
            with pytest.raises(duckdb.Error) as caught:
                con.execute(f"FROM dp_query('{asked}', epsilon := 1, lower := {{k: 0}}, upper := {{k: 9}})").fetchall()
            told.append(str(caught.value))
    assert told[0] == told[1]
