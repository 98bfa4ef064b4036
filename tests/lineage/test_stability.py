"""What the rules say of a query holds for its rows: one row, or one unit, more or fewer changes no more than that."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from dpsql.contract.names import TableName
from dpsql.engines.duckdb.lineage import bound
from dpsql.engines.duckdb.lineage.rows import PUBLIC, Leaf, Rows
from dpsql.engines.duckdb.lineage.stability import walk
from support.cases import cases

LEAVES = {
    "patients": Leaf(("patients",)),
    "cohort": Leaf(("cohort",)),
    "visits": Leaf(("visits",), "pid"),
    "people": Leaf(("people",), "pid"),
    "airports": PUBLIC,
    "codes": replace(PUBLIC, unique=(frozenset(("code",)), frozenset(("size",)))),
}


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute("CREATE TABLE patients (id BIGINT, a BIGINT); CREATE TABLE cohort (id BIGINT, a BIGINT)")
        opened.execute("CREATE TABLE visits (pid BIGINT, a BIGINT); CREATE TABLE people (pid BIGINT, a BIGINT)")
        opened.execute("CREATE TABLE airports AS SELECT i % 3 AS code, i AS b FROM range(5) AS r(i)")
        opened.execute("CREATE TABLE codes (code BIGINT PRIMARY KEY, b BIGINT, size DOUBLE NOT NULL UNIQUE)")
        opened.execute("INSERT INTO codes VALUES (0, 1, -0.0), (1, 1, 2), (2, 2, 1)")
        yield opened


def judged(con: Any, query: str) -> Rows:
    [(text,)] = con.execute("SELECT json_serialize_plan(?)::VARCHAR", [query]).fetchall()
    node = bound.read(text)
    assert node is not None
    return walk(node, lambda path, _: LEAVES.get(path[2]), {})


PIECES = (
    "SELECT * FROM {t}",
    "SELECT * FROM {t} WHERE a > 1",
    "SELECT {k}, a + 1 AS a FROM {t}",
    "SELECT DISTINCT * FROM {t}",
    "SELECT DISTINCT ON ({k}) * FROM {t} ORDER BY a",
    "SELECT DISTINCT ON (a) * FROM {t} ORDER BY ALL",
    "SELECT {k}, max(a) AS a FROM {t} GROUP BY {k}",
    "SELECT max({k}) AS {k}, a FROM {t} GROUP BY a",
    "SELECT {k}, sum(a) OVER (PARTITION BY {k}) AS a FROM {t}",
    "SELECT {k}, sum(a) OVER () AS a FROM {t}",
    "SELECT * FROM {t} ORDER BY ALL LIMIT 2",
    "SELECT {k}, unnest([a, a + 1]) AS a FROM {t}",
    "SELECT {t}.* FROM {t}, range(2)",
    "SELECT {t}.* FROM {t} JOIN airports ON a = code",
    "SELECT {t}.{k}, b AS a FROM {t} LEFT JOIN airports ON a = code",
    "SELECT {t}.{k}, b AS a FROM {t} LEFT JOIN (SELECT code, max(b) AS b FROM airports GROUP BY code) ON a = code",
    "SELECT {t}.{k}, b AS a FROM {t} JOIN (SELECT DISTINCT ON (code) * FROM airports ORDER BY ALL) ON a = code",
    "SELECT {k}, b AS a FROM airports LEFT JOIN {t} ON a = code",
    "SELECT {k}, b AS a FROM airports FULL JOIN {t} ON a = code",
    "SELECT * FROM {t} WHERE a IN (SELECT code FROM airports)",
    "SELECT * FROM {t} WHERE a > (SELECT min(b) FROM airports)",
    "SELECT * FROM {t} WHERE a > (SELECT avg(a) FROM {t})",
    "SELECT * FROM {t} UNION ALL SELECT * FROM {t}",
    "SELECT * FROM {t} WHERE a > 1 UNION ALL SELECT * FROM {t} WHERE a <= 1",
    "SELECT * FROM {t} EXCEPT SELECT * FROM {t} WHERE a > 1",
    "SELECT x.{k}, y.a FROM {t} x JOIN {t} y USING ({k})",
    "SELECT x.{k}, y.a FROM {t} x LEFT JOIN {t} y ON x.{k} = y.{k} AND x.a < y.a",
    "SELECT x.{k}, y.a FROM {t} x JOIN {t} y ON x.a = y.a",
    "WITH q AS MATERIALIZED (FROM {t}) SELECT x.{k}, y.a FROM q x JOIN q y ON x.a = y.a",
    "WITH q AS (FROM {t}) SELECT * FROM q",
    "SELECT row_number() OVER () AS {k}, a FROM {t}",
    "SELECT {k} * 2 AS {k}, a FROM {t}",
    "SELECT a AS {k}, {k} AS a FROM {t}",
    "SELECT * FROM {t} USING SAMPLE 2",
    "SELECT 1 AS {k}, 2 AS a FROM {t}",
    "SELECT * FROM {t} WHERE {k} IN (SELECT {k} FROM {t} WHERE a > 1)",
    "SELECT * FROM {t} WHERE {k} NOT IN (SELECT {k} FROM {t} WHERE a > 2)",
    "SELECT {k}, ({k} IN (SELECT {k} FROM {t} WHERE a > 2))::BIGINT AS a FROM {t}",
    "SELECT * FROM {t} WHERE ({k} IN (SELECT {k} FROM {t} WHERE a > 2)) IS NULL",
    "SELECT * FROM {t} x WHERE NOT EXISTS (FROM {t} y WHERE y.{k} = x.{k} AND y.a > 2)",
    "SELECT * FROM {t} x WHERE NOT EXISTS (FROM {t} y WHERE y.{k} IS NOT DISTINCT FROM x.{k} AND y.a > 2)",
    "SELECT * FROM {t} ANTI JOIN (SELECT {k} FROM {t} WHERE a > 2) o USING ({k})",
    "SELECT x.{k}, y.a FROM {t} x JOIN {t} y ON x.{k} IS NOT DISTINCT FROM y.{k}",
    "SELECT {t}.{k}, b AS a FROM {t} LEFT JOIN (SELECT * FROM airports QUALIFY row_number() OVER (PARTITION BY code ORDER BY b) = 1) "
    "ON a = code",
    "SELECT {t}.{k}, b AS a FROM {t} ASOF JOIN (SELECT code, max(b) AS b FROM airports GROUP BY code) ON a >= code",
    "SELECT {t}.{k}, b AS a FROM {t} ASOF LEFT JOIN (SELECT DISTINCT code, b FROM airports) ON a = code AND {k} < b",
    "SELECT * FROM {t} QUALIFY row_number() OVER (PARTITION BY {k} ORDER BY a) = 1",
    "SELECT {k}, a FROM (SELECT *, row_number() OVER (PARTITION BY {k} ORDER BY a) AS n FROM {t}) WHERE 2 = n",
    "SELECT {t}.{k}, code AS a FROM {t}, (SELECT max(code) AS code FROM airports)",
    "SELECT {t}.{k}, b AS a FROM {t} LEFT JOIN codes ON a = code",
    "SELECT {t}.{k}, b AS a FROM {t} JOIN (SELECT code::VARCHAR AS word, max(b) AS b FROM airports GROUP BY word) "
    "ON encode(a::VARCHAR) = encode(word)",
    "SELECT {t}.{k}, code AS a FROM {t} JOIN codes ON a = b",
)


def queries(table: str, key: str) -> Iterator[str]:
    """Every piece, and every piece over every other."""
    for piece in PIECES:
        yield piece.format(t=table, k=key)
    for outer, inner in itertools.product(PIECES, PIECES):
        yield f"WITH inside AS ({inner.format(t=table, k=key)}) {outer.format(t='inside', k=key)}".replace(
            ") WITH q AS", "), q AS"
        )


def rows_of(con: Any, query: str) -> Counter[Any]:
    return Counter(con.execute(query).fetchall())


Table = list[tuple[int | None, int]]


def differences(con: Any, query: str, table: str, rows: Table, gone: Table) -> Any:
    """Return what a query loses and gains when some rows go."""
    for name, kept in ((table, rows), (f"{table}_less", [row for row in rows if row not in gone])):
        con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM {table.removesuffix('_less')} LIMIT 0")
        for row in kept:
            con.execute(f"INSERT INTO temp.{name} VALUES (?, ?)", row)
    before = rows_of(con, query)
    con.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS FROM {table}_less")
    after = rows_of(con, query)
    con.execute(f"DROP TABLE temp.{table}; DROP TABLE temp.{table}_less")
    return before - after, after - before


def sample(found: list[str], share: int) -> list[str]:
    return random.Random(11).sample(found, min(len(found), share))


@pytest.mark.parametrize(
    "share", [pytest.param(50, marks=pytest.mark.long), pytest.param(1 << 30, marks=pytest.mark.slow)]
)
def test_row_level_means_one_row(con: Any, share: int) -> None:
    """A row more or fewer in the table is at most a row more or fewer in a query that is called row level."""
    kept = [query for query in queries("patients", "id") if not judged(con, query).row_level]
    refused = [query for query in queries("patients", "id") if judged(con, query).row_level]
    assert len(kept) > 40
    assert len(refused) > 800
    rows = [(i, i % 3) for i in range(6)]
    for query in sample(kept, share):
        for row in rows:
            lost, gained = differences(con, query, "patients", rows, [row])
            assert lost.total() + gained.total() <= 1, (query, row)
    # And the rules refuse for a reason: much of what they refuse does change more.
    more = sum(
        any(sum(map(Counter.total, differences(con, query, "patients", rows, [row]))) > 1 for row in rows)
        for query in sample(refused, 80)
        if "SAMPLE" not in query
    )
    assert more >= 30


@pytest.mark.parametrize(
    "share", [pytest.param(50, marks=pytest.mark.long), pytest.param(1 << 30, marks=pytest.mark.slow)]
)
def test_own_rows_means_rows_of_the_unit(con: Any, share: int) -> None:
    """A unit more or fewer changes only rows that carry it, in the column that is called the unit's."""
    found = {query: judged(con, query) for query in queries("visits", "pid")}
    kept = [query for query, rows in found.items() if not rows.own_rows and rows.unit]
    assert len(kept) > 250
    # Few rows, some of them nobody's: then a single unit decides whether anybody has a value, and what NULL is beside.
    tables = [[(i % 4, i % 3) for i in range(9)], [(0, 0), (1, 1), (2, 2)], [(0, 2), (1, 3), (None, 2)]]
    for query in sample(kept, share):
        places = found[query].unit
        for rows, unit in ((each, unit) for each in tables for unit in sorted({row[0] for row in each} - {None})):
            lost, gained = differences(con, query, "visits", rows, [row for row in rows if row[0] == unit])
            for row in (*lost, *gained):
                assert all(row[place] in (unit, None) for place in places), (query, unit, row)


@pytest.mark.long
@pytest.mark.parametrize(
    "share", [120, pytest.param(500, marks=pytest.mark.long), pytest.param(1 << 30, marks=pytest.mark.slow)]
)
def test_once_means_one_row_of_a_unit(con: Any, share: int) -> None:
    """Where a plan says that a unit has one row at most, it has; and elsewhere some unit mostly has more."""
    found = {query: judged(con, query) for query in queries("visits", "pid")}
    kept = {query: rows for query, rows in found.items() if not rows.own_rows and rows.unit}
    once = [query for query, rows in kept.items() if rows.once]
    assert len(once) > 120
    assert len(kept) - len(once) > 150
    more = 0
    con.execute("CREATE OR REPLACE TEMP TABLE visits AS SELECT pid, a FROM main.visits LIMIT 0")
    for rows in ([(i % 4, i % 3) for i in range(9)], [(0, 2), (1, 3), (None, 2), (None, 1), (1, 1), (1, 1), (2, 1)]):
        con.execute("DELETE FROM temp.visits")
        con.executemany("INSERT INTO temp.visits VALUES (?, ?)", rows)
        for query in (*sample(once, share), *sample([*kept.keys() - set(once)], 40)):
            counts = Counter(row[min(found[query].unit)] for row in con.execute(query).fetchall())
            most = max([0, *(counts[unit] for unit in counts if unit is not None)])
            assert most <= 1 or query not in once, (query, rows)
            more += query not in once and most > 1
    con.execute("DROP TABLE temp.visits")
    assert more > 40


@cases(
    ("query", "row_level"),
    [
        ("FROM patients UNION ALL FROM cohort", ""),
        ("FROM patients UNION ALL BY NAME FROM cohort", ""),
        ("FROM patients UNION ALL SELECT code, b FROM airports", "UNION"),
        ("FROM patients JOIN cohort USING (id)", "INNER JOIN"),
        ("SELECT rowid, * FROM patients", "rowid"),
        ("SELECT rowid FROM patients", "rowid"),
        ("SELECT 1 FROM patients WHERE rowid > 3", "rowid"),
        ("SELECT 1 AS one, 'x' AS two FROM patients", ""),
        ("SELECT 1 AS one FROM patients WHERE 1 = 1", ""),
        ("SELECT 1 AS one FROM (SELECT 2 AS two FROM patients WHERE true) WHERE 1 = 0", ""),
        ("SELECT rowid AS one FROM patients WHERE 1 = 1", "rowid"),
        ("SELECT 1 AS one FROM patients WHERE 1 = 1 AND rowid > 3", "rowid"),
        ("SELECT 1 AS one FROM (SELECT 1 AS inner_one FROM patients)", ""),
        ("SELECT p.id, b FROM patients p LEFT JOIN airports ON id = code", "LEFT JOIN"),
        (
            "SELECT p.id, b FROM patients p LEFT JOIN "
            "(SELECT * FROM airports QUALIFY row_number() OVER (PARTITION BY code ORDER BY b) = 1) ON id = code",
            "",
        ),
        (
            "SELECT p.id, b FROM patients p LEFT JOIN "
            "(SELECT * FROM airports QUALIFY row_number() OVER (PARTITION BY code ORDER BY b) <= 2) ON id = code",
            "LEFT JOIN",
        ),
        (
            "SELECT p.id, b FROM patients p LEFT JOIN "
            "(SELECT * FROM airports QUALIFY rank() OVER (PARTITION BY code ORDER BY b) = 1) ON id = code",
            "LEFT JOIN",
        ),
        *(
            (
                "SELECT p.id, b FROM patients p LEFT JOIN (SELECT * FROM airports QUALIFY "
                f"{kept.replace('{number}', 'row_number() OVER (PARTITION BY code ORDER BY b)')}) ON id = code",
                "" if kept in ("{number} = 1 AND b > 0", "b > 0 AND (1 = {number} AND code > 0)") else "LEFT JOIN",
            )
            for kept in (
                *("{number} = 1 AND b > 0", "b > 0 AND (1 = {number} AND code > 0)"),
                *("{number} = 1 OR true", "{number} = 1 OR b > 0", "NOT ({number} = 1)", "({number} = 1) = (b > 0)"),
                *("CASE WHEN {number} = 1 THEN true ELSE b > 0 END", "coalesce(nullif({number} = 1, true), true)"),
                *("row_number(ORDER BY b) OVER (PARTITION BY code ROWS BETWEEN CURRENT ROW AND CURRENT ROW) = 1",),
                *("{number} = code", "{number} = ceil(random() * 2)", "{number} = (SELECT max(code) FROM airports)"),
            )
        ),
        (
            "SELECT p.id, n FROM patients p LEFT JOIN (SELECT code, count(*) AS n FROM airports GROUP BY code) "
            "ON id IS NOT DISTINCT FROM code",
            "",
        ),
        (
            "SELECT p.id, n FROM patients p LEFT JOIN (SELECT code, b, count(*) AS n FROM airports GROUP BY code, b) "
            "ON id = code",
            "LEFT JOIN",
        ),
        ("SELECT p.id, b FROM patients p JOIN codes ON id = code", ""),
        ("SELECT p.id, b FROM codes RIGHT JOIN patients p ON id = code AND a < b", ""),
        ("SELECT p.id, b FROM codes LEFT JOIN patients p ON id = code", "LEFT JOIN"),
        ("SELECT p.id, b FROM patients p JOIN codes ON id = code // 2", "INNER JOIN"),
        ("SELECT p.id, code FROM patients p JOIN codes ON id = b", "INNER JOIN"),
        ("SELECT p.id, b FROM patients p JOIN (SELECT code, b FROM codes WHERE b > 0) ON id = code", ""),
        ("SELECT p.id, b FROM patients p JOIN codes ON id = code OR id = b", "ANY_JOIN"),
        ("SELECT p.id, b FROM patients p JOIN codes ON id::DOUBLE = size", "INNER JOIN"),  # no type that is listed
        ("SELECT p.id, b FROM patients p JOIN (FROM codes UNION ALL FROM codes) ON id = code", "INNER JOIN"),
        ("SELECT p.id FROM patients p JOIN (SELECT DISTINCT w FROM {words}) ON encode(id::VARCHAR) = encode(w)", ""),
        ("SELECT p.id FROM patients p JOIN (SELECT w FROM {words}) ON encode(id::VARCHAR) = encode(w)", "INNER JOIN"),
        (
            "SELECT p.id FROM patients p JOIN (SELECT DISTINCT w FROM {words}) ON encode(id::VARCHAR) = encode(w[1:1])",
            "INNER JOIN",
        ),
        ("FROM patients POSITIONAL JOIN airports", "POSITIONAL_JOIN"),
        ("FROM patients ASOF JOIN airports ON a >= b", "ASOF_JOIN"),
        ("FROM patients ASOF JOIN (SELECT max(b) AS b FROM airports GROUP BY code) ON a >= b", "ASOF_JOIN"),
        ("FROM patients ASOF JOIN (SELECT DISTINCT b FROM airports) ON a >= b", ""),
        ("FROM patients ASOF LEFT JOIN (SELECT code, b FROM airports GROUP BY ALL) ON id = code AND a < b", ""),
        ("FROM patients ASOF RIGHT JOIN (SELECT DISTINCT b FROM airports) ON a >= b", "ASOF_JOIN"),
        ("FROM airports ASOF JOIN (SELECT DISTINCT a FROM patients) ON b >= a", "DISTINCT"),
        ("FROM patients p ASOF JOIN (SELECT DISTINCT a FROM patients) q ON p.a >= q.a", "DISTINCT"),
    ],
)
def test_what_breaks_row_level(con: Any, query: str, row_level: str) -> None:
    words = "(SELECT code::VARCHAR AS w FROM airports)"
    assert judged(con, query.replace("{words}", words)).row_level == row_level


def test_people_joined_by_unit(con: Any) -> None:
    rows = judged(con, "SELECT v.pid, v.a, p.a FROM visits v JOIN people p ON p.pid = v.pid")
    assert (rows.own_rows, rows.unit, sorted(rows.scans)) == ("", {0}, ["people", "visits"])
    assert judged(con, "SELECT v.pid, p.a FROM visits v JOIN people p ON p.pid = v.pid + 0").own_rows == "INNER JOIN"
    assert judged(con, "SELECT v.pid, p.a FROM visits v RIGHT JOIN people p USING (pid)").unit == frozenset()


@cases(
    ("query", "own_rows"),
    [
        ("SELECT * FROM visits WHERE pid IN (SELECT pid FROM people)", ""),
        ("FROM visits WHERE a > 1 AND pid IN (FROM (SELECT pid FROM people)) AND pid IN (SELECT pid FROM people)", ""),
        ("SELECT * FROM visits ANTI JOIN people USING (pid)", ""),
        *(
            (f"SELECT {shown} FROM visits WHERE {chosen}", "MARK JOIN")
            for shown, chosen in (
                ("*", "pid NOT IN (SELECT pid FROM people WHERE a > 1)"),
                ("*", "pid IN (SELECT pid FROM people) OR a > 1"),
                ("*", "(pid IN (SELECT pid FROM people)) IS NULL"),
                ("*", "pid IN (SELECT pid FROM people) AND pid NOT IN (SELECT pid FROM people WHERE a > 1)"),
                ("pid, pid IN (SELECT pid FROM people)", "true"),
            )
        ),
        ("SELECT * FROM visits SEMI JOIN people USING (pid)", ""),
        ("SELECT * FROM visits WHERE pid IN (SELECT a FROM people)", "MARK JOIN"),
        ("SELECT * FROM visits WHERE a IN (SELECT pid FROM people)", "MARK JOIN"),
        ("SELECT * FROM visits WHERE (pid, a) NOT IN (SELECT pid, a FROM people)", "MARK JOIN"),
        ("SELECT v.pid, p.a FROM visits v JOIN people p ON v.pid IS NOT DISTINCT FROM p.pid", ""),
        ("SELECT v.pid, p.a FROM visits v JOIN people p ON v.a IS NOT DISTINCT FROM p.pid", "INNER JOIN"),
        ("SELECT DISTINCT ON (pid) pid, a FROM visits ORDER BY pid, a", ""),
        ("SELECT DISTINCT ON (a) pid, a FROM visits ORDER BY a, pid", "DISTINCT"),
        ("SELECT pid, a, count(*) FROM visits GROUP BY pid, a", ""),
        ("SELECT min(pid) AS pid, a, count(*) FROM visits GROUP BY a", "AGGREGATE"),
        ("SELECT pid, rank() OVER (PARTITION BY pid ORDER BY a) AS r FROM visits", ""),
        ("SELECT pid, rank() OVER (PARTITION BY a ORDER BY pid) AS r FROM visits", "WINDOW"),
    ],
)
def test_what_keeps_rows_of_a_unit_apart(con: Any, query: str, own_rows: str) -> None:
    rows = judged(con, query)
    assert (rows.own_rows, bool(rows.unit)) == (own_rows, not own_rows)


@cases(
    ("aggregate", "unfixed"),
    [
        *(
            (exact, "")
            for exact in ("sum(a)", "avg(a)", "sum(a::DECIMAL(9, 2))", "max(a::DOUBLE)", "median(a::DOUBLE)")
        ),
        *((exact, "") for exact in ("count(*)", "count(DISTINCT a)", "bool_or(a > 1)", "list_sort(list(a))")),
        *((exact, "") for exact in ("list_sort(list(DISTINCT a::DOUBLE))", "list(a ORDER BY a)")),
        ("sum(a::DOUBLE)", "sum() of a DOUBLE"),
        ("avg(a::FLOAT)", "avg() of a DOUBLE"),
        ("list(a)", "list()"),
        ("list_sort(list(a))[1] + len(list(a))", "list()"),
        ("first(a)", "first()"),
        ("any_value(a)", "any_value()"),
        ("arg_max(a, a % 2)", "arg_max()"),
        ("stddev(a)", "stddev()"),
        ("string_agg(a::VARCHAR, ',')", "string_agg()"),
        ("mode(a)", "mode()"),
        ("sum(a::DOUBLE) OVER (PARTITION BY pid)", "sum() of a DOUBLE"),
        ("first(a) OVER (PARTITION BY pid)", "first_value()"),
        ("row_number() OVER (PARTITION BY pid ORDER BY a % 2)", "row_number()"),
        ("row_number() OVER (PARTITION BY pid ORDER BY a)", ""),
        ("sum(a) OVER (PARTITION BY pid)", ""),
    ],
)
def test_an_aggregate_that_the_order_of_rows_decides(con: Any, aggregate: str, unfixed: str) -> None:
    group = "" if "OVER" in aggregate else " GROUP BY pid"
    found = judged(con, f"SELECT pid, {aggregate} AS a FROM visits{group}").unfixed
    assert found == unfixed
    over = aggregate.replace("pid", "code")
    public = judged(
        con, f"SELECT code, {over} AS a FROM (SELECT code, b AS a FROM airports){group.replace('pid', 'code')}"
    )
    assert public.unfixed == unfixed  # rows of people may decide in which order DuckDB reads public rows


def test_the_first_row_of_a_unit_needs_an_order(con: Any) -> None:
    unordered = "SELECT DISTINCT ON (pid) pid, a FROM visits"
    assert judged(con, unordered).unfixed == "DISTINCT ON"
    assert judged(con, f"{unordered} ORDER BY a").unfixed == ""
    assert judged(con, "SELECT DISTINCT pid, a FROM visits").unfixed == ""
    assert judged(con, "SELECT DISTINCT ON (code) code, b FROM airports").unfixed == "DISTINCT ON"


@cases("aggregate", ["sum(CAST(x AS DECIMAL(18, 3)))", "list_sort(list(x))::VARCHAR", "avg(i)", "median(x)"], quick=1)
def test_what_is_answered_is_equal_to_the_last_bit(aggregate: str) -> None:
    """A million rows, read by 1, 2 and 8 threads, and with other people's rows before them."""
    found = set()
    with duckdb.connect() as opened:
        for others, threads in itertools.product((0, 1, 70_000), (1, 2, 8)):
            opened.execute(f"SET threads = {threads}")
            opened.execute(
                "CREATE OR REPLACE TABLE t AS SELECT -1 - i AS pid, 0.5::DOUBLE AS x, 1::BIGINT AS i FROM range(?) AS o(i) UNION ALL "
                "SELECT i % 9, (sin(i) * 1e6)::DECIMAL(18, 3)::DOUBLE, i FROM range(1_000_000) AS r(i)",
                [others],
            )
            query = f"SELECT pid, {aggregate} AS v FROM t WHERE pid >= 0 GROUP BY pid"
            found.add(
                opened.execute(
                    f"SELECT md5(string_agg(concat(pid, ' ', v), ';' ORDER BY pid)) FROM ({query})"
                ).fetchone()
            )
    assert len(found) == 1


def test_nothing_unknown_is_read(con: Any) -> None:
    [(text,)] = con.execute("SELECT json_serialize_plan('FROM patients WHERE a > 1')::VARCHAR").fetchall()
    for wrong in (
        text.replace("LOGICAL_FILTER", "LOGICAL_INVENTED"),
        text.replace('"table":"patients"', '"tables":"patients"'),
        text.replace("seq_scan", "invented_scan"),
        text.replace('"plans"', '"plan"'),
        "[]",
        "{",
    ):
        with pytest.raises(bound.UnreadableError):
            node = bound.read(wrong)
            assert node is not None
            walk(node, lambda path, _: LEAVES.get(path[2]), {})


def test_the_fields_that_are_read(con: Any) -> None:
    """What DuckDB calls things: a new name here is a refusal everywhere, until it is understood."""
    [(text,)] = con.execute(
        "SELECT json_serialize_plan('SELECT max(a) FROM patients WHERE id > 1')::VARCHAR"
    ).fetchall()
    node = bound.read(text)
    assert node is not None
    kinds = [bound.kind(operator) for operator in bound.operators(node)]
    assert kinds == ["PROJECTION", "AGGREGATE_AND_GROUP_BY", "FILTER", "GET"]
    [scan] = bound.scans(node)
    assert bound.table_of(scan) == ("memory", "main", "patients")
    assert set(bound.scanned_columns(scan)) == {"id", "a"}
    assert bound.output(node) == ["max(a)"]
    assert "max" in bound.functions(node)
    assert TableName.of("Memory", "MAIN", "ÉT") == ("memory", "main", "Ét")


def test_a_list_of_names_to_predict_for_has_no_order_and_a_vector_has(con: Any) -> None:
    con.create_function("dpsql_predict", lambda model, names: 0.5, ["VARCHAR", "VARCHAR[]"], "DOUBLE")
    con.create_function("dpsql_predict_class", lambda model, vector: 0.5, ["VARCHAR", "BIGINT[]"], "DOUBLE")
    view = "SELECT pid, dpsql_predict{}('m', list(a{})) AS score FROM visits GROUP BY pid"
    assert judged(con, view.format("", "::VARCHAR")).unfixed == ""
    assert judged(con, view.format("_class", "")).unfixed == "list()"
    assert judged(
        con, f"SELECT *, names[1] FROM ({view.format('', '::VARCHAR').replace('AS score', 'AS s, list(a) AS names')})"
    ).unfixed
