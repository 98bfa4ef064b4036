"""Keys of groups, of every type: what is equal, what a key is called, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from support.cases import cases

HUGE = "epsilon := 1e12"
PRIVATE = "keys := 'private', delta := 1e-6, epsilon := 20"
# Values as SQL; all of a type are different.
TYPES = {
    "VARCHAR": ["'a'", "'A'", "'ä'", "''", "'NULL'", "'it''s'", "'\"b\"'", "'☃️🤷🏽'", "repeat('x', 10000)", "' a'"],
    "VARCHAR COLLATE NOCASE": ["'a'", "'A'", "'B'"],
    "VARCHAR COLLATE NOACCENT": ["'a'", "'ä'", "'â'"],
    "BOOLEAN": ["true", "false"],
    "DATE": ["'2020-02-29'", "'-infinity'", "'infinity'", "'0044-03-15 (BC)'", "'5881580-07-10'"],
    "TIMESTAMP": [
        "'2020-02-29 12:34:56.789012'",
        "'1969-12-31 23:59:59.999999'",
        "'infinity'",
        "'0001-01-01 (BC) 00:00'",
    ],
    "TIMESTAMP_S": ["'2020-02-29 12:34:56'", "'1900-01-01'"],
    "TIMESTAMP_MS": ["'2020-02-29 12:34:56.789'", "'1900-01-01'"],
    "TIMESTAMP_NS": ["'2020-02-29 12:34:56.789012345'", "'1900-01-01'"],
    "TIME": ["'00:00:00'", "'23:59:59.999999'", "'24:00:00'"],
    "UUID": ["'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"],
    "BLOB": ["'\\x00'", "''", "'a\\xFF'", "'\\x5C'", "'\\x27'"],
    "DECIMAL(4, 1)": ["0.5", "-999.9", "0"],
    "DECIMAL(38, 0)": ["99999999999999999999999999999999999999", "-1", "0"],
    "FLOAT": ["0.1", "'inf'", "'-inf'", "'nan'", "0", "3.4028235e38", "1.1754944e-38", "16777217"],
    "DOUBLE": ["0.1", "'inf'", "'-inf'", "'nan'", "0", "1.7976931348623157e308", "5e-324", "9007199254740993"],
    "TINYINT": ["-128", "127", "0"],
    "SMALLINT": ["-32768", "32767"],
    "INTEGER": ["-2147483648", "2147483647", "0"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807", "0"],
    "UTINYINT": ["0", "255"],
    "USMALLINT": ["0", "65535"],
    "UINTEGER": ["0", "4294967295"],
    "UBIGINT": ["0", "18446744073709551615", "9223372036854775808"],
    "HUGEINT": ["-170141183460469231731687303715884105728", "170141183460469231731687303715884105727", "0"],
    "UHUGEINT": ["340282366920938463463374607431768211455", "0"],
    "ENUM('a', 'it''s', 'c, d', '')": ["'a'", "'it''s'", "'c, d'", "''"],
}


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    made = dpsql.connect()
    yield made
    made.close()


def rows(con: Any, sql: str) -> list[Any]:
    return con.execute(sql).fetchall()


def load(con: Any, kind: str) -> tuple[list[str], str]:
    """Make a table in which the n-th value occurs 10 + n times, and NULL five times; return its literals and type."""
    plain = kind.partition(" COLLATE")[0]
    values = [f"({value})::{plain}" for value in TYPES[kind]]
    con.execute(f"CREATE TABLE t (unit INTEGER, k {kind}, x DOUBLE)")
    for number, value in enumerate(values):
        con.execute(f"INSERT INTO t SELECT {number} * 1000 + i, {value}, i % 3 FROM range({10 + number}) AS r(i)")
    con.execute("INSERT INTO t SELECT 99999 + i, NULL, 1 FROM range(5) AS r(i)")
    return values, plain


@cases("unit", ["", "privacy_unit := 'unit', max_rows_per_unit := 1, "])
@cases("kind", TYPES)
def test_every_type(con: Any, kind: str, unit: str) -> None:
    """Public and private keys count each value by itself, show it in its own type, and take it back as a key."""
    values, plain = load(con, kind)
    listed = ", ".join(f"CAST({value} AS VARCHAR)" for value in values)
    exact = [float(10 + number) for number in range(len(values))]
    public = f"by := 'k', keys := [{listed}, NULL], {unit} {HUGE}"
    assert [row[0] for row in rows(con, f"SELECT value FROM dp_count('t', {public})")] == [*exact, 5.0]
    # Of the types of Python's values: these have no infinity and no nanoseconds, so such keys are given as text.
    given = ", ".join(values)
    if plain != "BLOB" and not (plain.startswith(("DATE", "TIME")) and ("infinity" in given or plain.endswith("NS"))):
        typed = f"by := 'k', keys := [{given}], other := true, {unit} {HUGE}"
        assert [row[0] for row in rows(con, f"SELECT value FROM dp_count('t', {typed})")] == [*exact, 5.0]
    con.execute(f"CREATE TABLE found AS SELECT * FROM dp_count('t', by := 'k', {PRIVATE}, {unit} release := 'r')")
    con.execute(f"CREATE TABLE again AS SELECT * FROM dp_count('t', by := 'k', {PRIVATE}, {unit} release := 'r')")
    assert rows(con, "FROM found") == rows(con, "FROM again") or "nan" in kind or "DOUBLE" in kind or "FLOAT" in kind
    assert rows(con, "SELECT DISTINCT typeof(k) FROM found") == rows(con, "SELECT DISTINCT typeof(k) FROM t")
    for number, value in enumerate(values):
        # The same bytes, and not only what a collation takes for equal.
        same = f'CAST(k AS VARCHAR) COLLATE "binary" = CAST({value} AS VARCHAR)'
        [(value_found,)] = rows(con, f"SELECT value FROM found WHERE {same}")
        assert value_found == pytest.approx(10 + number, abs=4)
    [(nothing,)] = rows(con, "SELECT value FROM found WHERE k IS NULL")
    assert nothing == pytest.approx(5, abs=4)
    assert len(rows(con, "FROM found")) == len(values) + 1


@cases("collation", ["NOCASE", "NOACCENT", "NOCASE.NOACCENT"])
@cases("unit", ["", "privacy_unit := 'unit', max_groups_per_unit := 2, max_rows_per_unit_group := 1, "])
def test_a_label_is_no_rows_spelling(con: Any, collation: str, unit: str) -> None:
    """The first row, or any other, does not decide how a key is called that others share by collation."""
    con.execute(f"CREATE TABLE t (unit INTEGER, k VARCHAR COLLATE {collation})")
    con.execute("INSERT INTO t VALUES (-1, 'aLÍCE')")
    con.execute("INSERT INTO t SELECT i, 'Alice' FROM range(1000) AS r(i)")
    con.execute("INSERT INTO t VALUES (-2, 'AlicE')")
    for _ in range(3):
        found = rows(con, f"SELECT k, value FROM dp_count('t', by := 'k', {PRIVATE}, {unit} noise := 'laplace')")
        assert [key for key, _ in found] == ["Alice"]
        assert found[0][1] == pytest.approx(1000, abs=2)
    public = f"SELECT k, value FROM dp_count('t', by := 'k', keys := ['aLÍCE', 'Alice'], {unit} {HUGE})"
    assert rows(con, public) == [("aLÍCE", 1.0), ("Alice", 1000.0)]


@cases("kind", ["FLOAT", "DOUBLE"])
@cases("first", ["-0.0", "'nan'", "'-nan'"])
def test_zeros_and_nans_are_one_key_each(con: Any, kind: str, first: str) -> None:
    con.execute(f"CREATE TABLE t AS SELECT ({first})::{kind} AS k")
    con.execute(f"INSERT INTO t SELECT (['0', '-0', 'nan', '-nan'][1 + i % 4])::{kind} FROM range(400) AS r(i)")
    found = rows(con, f"SELECT k::VARCHAR, value FROM dp_count('t', by := 'k', {PRIVATE})")
    assert [key for key, _ in found] == ["0.0", "nan"]
    listed = rows(con, f"SELECT k::VARCHAR, value FROM dp_count('t', by := 'k', keys := ['nan', '0'], {HUGE})")
    assert sum(value for _, value in listed) == 401
    for keys in ("['nan', '-nan']", "['0', '-0.0']"):
        with pytest.raises(duckdb.Error, match="P044"):
            rows(con, f"FROM dp_count('t', by := 'k', keys := {keys}, {HUGE})")


@cases(
    ("kind", "keys", "code"),
    [
        ("INTEGER", "['1', '01']", "P044"),
        ("INTEGER", "[1, 1.0]", "P044"),
        ("INTEGER", "['x']", "P067"),
        ("INTEGER", "[99999999999]", "P067"),
        ("UTINYINT", "[-1]", "P067"),
        ("DECIMAL(4, 1)", "['1', '1.0']", "P044"),
        ("DATE", "['2020-01-01', '2020-1-1']", "P044"),
        ("DATE", "['2020-02-30']", "P067"),
        ("TIMESTAMP", "['2020-01-01', '2020-01-01 00:00:00']", "P044"),
        ("UUID", "['x']", "P067"),
        ("UUID", "['00000000-0000-0000-0000-00000000000A', '00000000-0000-0000-0000-00000000000a']", "P044"),
        ("BOOLEAN", "['true', 'TRUE']", "P044"),
        ("BOOLEAN", "['maybe']", "P067"),
        ("ENUM('a', 'b')", "['c']", "P067"),
        ("VARCHAR", "['a', 'a']", "P044"),
        ("VARCHAR", "[NULL, NULL]", "P044"),
        ("VARCHAR", "[]", "P066"),
        ("VARCHAR", "{'other': ['a']}", "P066"),
        ("VARCHAR", "'public'", "P"),
        ("VARCHAR", "NULL", "P065"),
        ("INTEGER[]", "['a']", "S003"),
        ("STRUCT(a INTEGER)", "['a']", "S003"),
        ("INTERVAL", "['1 month']", "S003"),
        ("TIMESTAMPTZ", "['2020-01-01']", "S003"),
        ("TIMETZ", "['00:00:00+00']", "S003"),
        ("MAP(VARCHAR, INTEGER)", "['a']", "S003"),
        ("BIT", "['0']", "S003"),
        ("INTERVAL", "'private'", "S003"),
        ("TIMESTAMPTZ", "'private'", "S003"),
        ("INTEGER[2]", "'private'", "S003"),
    ],
)
def test_what_is_refused(con: Any, kind: str, keys: str, code: str) -> None:
    """Before a row is read, and without a charge."""
    con.execute(f"CREATE TABLE t (k {kind}, x DOUBLE)")
    for more in ("", "privacy_unit := 'x', max_rows_per_unit := 1, "):
        with pytest.raises(duckdb.Error, match=f"DPSQL-{code}"):
            rows(con, f"FROM dp_count('t', by := 'k', keys := {keys}, delta := 1e-6, {more} epsilon := 1)")
    assert rows(con, "SELECT count(*) FROM dp_ledger()") == [(0,)]


def test_wrong_keys_are_found_before_a_row_is_read(con: Any) -> None:
    """A view that fails on every row does not get to fail."""
    con.execute("CREATE TABLE t AS SELECT 1 AS k FROM range(100000)")
    con.execute("CREATE VIEW v AS SELECT k, CAST(concat('x', k) AS INTEGER) AS x FROM t")
    for more in ("", "privacy_unit := 'x', max_rows_per_unit := 1, "):
        for keys, code in (("['1', '01']", "P044"), ("['x']", "P067")):
            sql = "FROM dp_sum('v', target := 'x', lower := 0, upper := 1, by := 'k', keys := {}, {} epsilon := 1)"
            with pytest.raises(duckdb.Error, match=code):
                rows(con, sql.format(keys, more))
    assert rows(con, "SELECT count(*) FROM dp_ledger()") == [(0,)]


def test_several_private_columns_of_different_types(con: Any) -> None:
    con.execute(
        "CREATE TABLE t AS SELECT ['a', NULL][1 + i % 2] AS a, DATE '2020-01-01' + (i % 3)::INTEGER AS d, "
        "(i % 2) / 2 AS f FROM range(600) AS r(i)"
    )
    found = rows(con, f"SELECT a, d, f, round(value) FROM dp_count('t', by := ['a', 'd', 'f'], {PRIVATE})")
    ordered = f"SELECT a, d, f FROM dp_count('t', by := ['a', 'd', 'f'], {PRIVATE}) ORDER BY a NULLS LAST, d, f"
    assert [row[:3] for row in found] == rows(con, ordered)
    assert {row[:3] for row in found} == set(rows(con, "SELECT DISTINCT a, d, f FROM t"))


@cases("name", ["target", "AGGREGATE", "value", "std_error", "lower", "upper"])
def test_a_key_is_called_like_no_other_column_of_the_result(con: Any, name: str) -> None:
    con.execute(f'CREATE TABLE t AS SELECT 1 AS "{name}"')
    with pytest.raises(duckdb.Error, match="P044"):
        rows(con, f"FROM dp_count('t', by := '{name}', keys := [1], epsilon := 1)")


def test_a_column_called_other(con: Any) -> None:
    con.execute("CREATE TABLE t AS SELECT 1 AS other")
    assert rows(con, f"SELECT other, value FROM dp_count('t', by := 'other', keys := [1], {HUGE})") == [(1, 1.0)]
    with pytest.raises(duckdb.Error, match="P044"):
        rows(con, f"FROM dp_count('t', by := 'other', keys := [1], other := true, {HUGE})")


@cases(
    "name",
    ["p0", "k0", "k0_number", "dpsql_zero", "dpsql_row", "unit_number", "q0", "found0", "label0", 'a "b"', "n"],
)
def test_columns_called_like_parts_of_ours(con: Any, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    con.execute(f"CREATE TABLE t AS SELECT i % 2 AS {quoted}, i AS unit FROM range(100) AS r(i)")
    for keys in ("keys := [0, 1]", "keys := 'private', delta := 1e-6"):
        for unit in ("", "privacy_unit := 'unit', max_rows_per_unit := 1, "):
            sql = f"SELECT {quoted}, round(value) FROM dp_count('t', by := '{name}', {keys}, {unit} epsilon := 500)"
            assert rows(con, sql) == [(0, 50.0), (1, 50.0)]


def test_most_keys(con: Any) -> None:
    """A hundred thousand public keys are one release, each in its place."""
    con.execute("CREATE TABLE t AS SELECT i % 7 AS k FROM range(70) AS r(i)")
    found = rows(con, f"SELECT k, value FROM dp_count('t', by := 'k', keys := range(100000), {HUGE})")
    assert [key for key, _ in found] == list(range(100000))
    assert [value for _, value in found] == [10.0] * 7 + [0.0] * (100000 - 7)
    with pytest.raises(duckdb.Error, match="P068"):
        rows(con, f"FROM dp_count('t', by := 'k', keys := range(1000001), {HUGE})")
