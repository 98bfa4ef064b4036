"""Text that is not UTF-8 is NULL to every function of SQL: it ends no instance, moves no other row, and is not shown.

Keys that are text are told apart, and come in the order, of their bytes.
"""

from __future__ import annotations

import itertools
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.engines.duckdb.keys import valid_text
from dpsql.engines.duckdb.planner import release_sql
from dpsql.engines.duckdb.session import Session
from dpsql.errors import DpsqlError
from support.cases import cases
from support.damaged_text import DAMAGED, FORMS, text_array
from support.exact_sums import exact_sums

# Bytes at which the rules of UTF-8 change.
EDGES = (0, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEE, 0xEF, 0xF0, 0xF1,
         0xF4, 0xF5, 0xFF)  # fmt: skip
SQL_TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"),
    *("UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL(9,3)", "DATE", "TIME", "TIMETZ", "TIMESTAMP", "TIMESTAMP_S"),
    *("TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ", "INTERVAL", "UUID", "BLOB", "BIT", "VARCHAR", "ENUM('a','b')"),
    *("JSON", "INTEGER[]", "VARCHAR[]", "VARCHAR[2]", "STRUCT(a INTEGER, b VARCHAR)", "MAP(VARCHAR, INTEGER)"),
    *("UNION(x INTEGER, y VARCHAR)", "DECIMAL(9,3)[]"),
)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _judged(values: list[bytes], form: str, expression: str = "{}") -> list[Any]:
    with duckdb.connect() as plain:
        plain.register("given", pa.table({"s": text_array(values, form)}))
        return [row[0] for row in plain.execute(f"SELECT {expression.format(valid_text('s'))} FROM given").fetchall()]


@pytest.mark.long
def test_it_is_text_exactly_where_python_decodes_it() -> None:
    short = [bytes(each) for length in (1, 2) for each in itertools.product(range(256), repeat=length)]
    edges = [
        bytes(each)
        for length in (3, 4)
        for each in itertools.product(EDGES[: 30 if length == 3 else 23], repeat=length)
    ]
    values = [*short[::7], *edges[::11], *(b"0123456789abcdef" + each for each in edges[::53])]
    expected = [value.decode() if _is_text(value) else None for value in values]
    assert _judged(values, "string") == expected
    assert None in expected


@cases("form", FORMS, quick=1)
def test_functions_that_would_end_the_instance_do_not_meet_it(form: str) -> None:
    values = [b"good", *DAMAGED.values(), b"\xc3\xbcber"] * 300  # so that chunks are full, and dictionaries repeat
    expected = [None if not _is_text(value) else value.decode().upper() for value in values]
    assert _judged(values, form, "upper({})") == expected
    texts = [value.decode() for value in values if _is_text(value)]
    assert _judged(values, form, "count(*) FILTER ({} ILIKE '%O%')") == [sum("o" in one for one in texts)]


@cases("kind", SQL_TYPES, quick=2)
def test_a_column_keeps_its_type_and_its_values(kind: str) -> None:
    samples = {
        "ENUM": "'b'", "BOOLEAN": "true", "DATE": "'2020-02-29'", "TIMESTAMP": "'2020-02-29 01:02:03'", "TIME": "'01:02:03'",
        "UUID": "'00000000-0000-0000-0000-000000000001'", "INTERVAL": "'1 day'", "JSON": "'{\"a\": 1}'", "BIT": "'101'",
        "BLOB": "'\\xFF'", "VARCHAR[": "['ß', NULL]", "INTEGER[": "[1, NULL]", "DECIMAL(9,3)[": "[1.5]", "STRUCT": "{'a': 1, 'b': 'ß'}",
        "MAP": "MAP {'ß': 1}", "UNION": "'ß'", "VARCHAR": "'ß'",
    }  # fmt: skip
    value = next((text for name, text in samples.items() if kind.startswith(name)), "1")
    with duckdb.connect() as plain:
        try:
            plain.execute(f"CREATE TABLE t AS SELECT * FROM (VALUES (CAST({value} AS {kind})), (NULL)) AS t(x)")
        except duckdb.NotImplementedException:
            pytest.skip("not a type of this version")
        told = "count(*), count(x), count(y), count(*) FILTER (x::VARCHAR = y::VARCHAR), any_value(typeof(y))"
        expected = [(2, 1, 1, 1, plain.execute("SELECT typeof(x) FROM t LIMIT 1").fetchall()[0][0])]
        for setting in ("RESET threads", "PRAGMA disable_optimizer"):
            plain.execute(setting)
            found = plain.execute(f"SELECT {told} FROM (SELECT x, {valid_text('x')} AS y FROM t)").fetchall()
            assert found == expected


def test_a_nested_value_with_damaged_text_is_null() -> None:
    parts = text_array([b"good", b"\x80", b"more", b"\xed\xa0\x80"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4]), parts)
    structs = pa.StructArray.from_arrays([parts[:3]], ["a"])
    with duckdb.connect() as plain:
        plain.register("given", pa.table({"l": lists, "s": structs}))
        found = plain.execute(f"SELECT {valid_text('l')}, {valid_text('s')} FROM given").fetchall()
    assert found == [(["good"], {"a": "good"}), (None, None), (None, {"a": "more"})]


CALLS = {
    "a condition": "dp_count('{}', epsilon := 1, condition := 'upper(s) <> ''B'' OR s ILIKE ''%x%''')",
    "keys": "dp_count('{}', \"by\" := 's', keys := ['a', 'b'], other := true, epsilon := 1)",
    "private keys": "dp_count('{}', \"by\" := 's', keys := 'private', epsilon := 1, delta := 1e-6)",
    "a target": "dp_count('{}', target := 's', epsilon := 1)",
    "units": "dp_count('{}', privacy_unit := 's', max_rows_per_unit := 1, epsilon := 1)",
    "distinct": "dp_count('{}', distinct_of := 's', privacy_unit := 'u', max_rows_per_unit := 1, epsilon := 1)",
}


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_other_rows_count_as_they_would_beside_null(form: str) -> None:
    rows = [b"a", b"b", b"a", b"", "ß".encode()] * 40
    hurt = [*DAMAGED.values()]
    with dpsql.connect() as connection, exact_sums() as seen:
        for name, given in (("nulls", [None] * len(hurt)), ("hurt", hurt)):
            frame = pa.table({"s": text_array([*rows, *given], form), "u": list(range(len(rows) + len(hurt)))})
            connection.register(name, frame)
        for call in CALLS.values():
            seen.clear()
            for name in ("nulls", "hurt"):
                connection.execute(f"SELECT * FROM {call.format(name)}").fetchall()
            assert seen[0].groups == seen[1].groups, call


@cases("label", DAMAGED, quick=1)
def test_a_label_that_is_no_text_is_no_label(label: str) -> None:
    with dpsql.connect() as connection:
        connection.execute("SET default_collation = 'nocase'")
        for name, text in (("f", DAMAGED[label]), ("g", None)):
            frame = {"t": text_array([b"a", b"B", text] * 20), "s": [0.1, 0.9, 0.5] * 20, "x": [0.1, 0.2, 0.3] * 20}
            connection.register(name, pa.table(frame))
            connection.execute(
                f"SELECT * FROM dp_auc('{name}', label := 't', target_levels := ['a', 'B'], score := 's', lower := 0, "
                "upper := 1, epsilon := 1)"
            ).fetchall()
        sums = [
            connection.execute(
                f"SELECT * FROM exact_xty('{name}', target := 't', target_levels := ['a', 'B'], features := ['s', 'x'], "
                "lower := 0, upper := 1)"
            ).fetchall()
            for name in "fg"
        ]
    assert sums[0] == sums[1]


def test_nothing_of_it_is_quoted() -> None:
    text = b"secret of a person \xff"
    context = dpsql.Context()
    frame = pa.table({"s": text_array([b"a", text]), "x": [1.0, 2.0]})
    shown = []
    for call in CALLS.values():
        try:
            shown.append(str(context.sql(f"SELECT * FROM {call.format('f').replace('u', 'x')}")))
        except (DpsqlError, duckdb.Error) as error:
            shown.append(str(error))
    shown.append(str(context.dp_count(frame, by="s", keys=["a"], epsilon=1).value))
    assert "secret" not in "".join(shown)
    context.close()


@pytest.mark.long
def test_a_table_of_duckdb_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    call = "dp_count('{}', \"by\" := 's', keys := ['a'], epsilon := 0.1, condition := 's IS NOT NULL')"
    plans = []
    monkeypatch.setattr(Session, "note", lambda session, function, plan, **given: plans.append(plan))
    with dpsql.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 'a' AS s, 1 AS x, 'ß'::ENUM('ß') AS e, ['a'] AS l")
        connection.execute("CREATE TABLE v AS SELECT 'a' AS s, 1::VARIANT AS x")
        connection.execute("CREATE VIEW w AS FROM t")
        for name in "tv":
            connection.execute(f"SELECT dp_protect('{name}', epsilon := 1)").fetchall()
        for name in "tvw":
            connection.execute(f"SELECT * FROM {call.format(name)}").fetchall()
    assert ["system.main.decode" in release_sql(plan, "dp_count") for plan in plans] == [False, True, True]


@cases("kind", DAMAGED, quick=3)
@cases("what", ["s", "[s]", "{'a': s}", "union_value(a := s)"])
def test_duckdb_stores_no_such_text(kind: str, what: str) -> None:
    """What `Placement.checked` rests on."""
    with duckdb.connect() as plain:
        plain.register("f", pa.table({"s": text_array([b"good", DAMAGED[kind]])}))
        with pytest.raises(duckdb.InvalidInputException, match="unicode"):
            plain.execute(f"CREATE TABLE t AS SELECT {what} AS s FROM f")


@cases("keys", ["private", "public"])
@cases("collation", ["de", "nocase"])
def test_keys_are_those_of_their_bytes_under_any_collation(keys: str, collation: str) -> None:
    with dpsql.connect() as connection:
        connection.execute(f"SET default_collation = '{collation}'")
        connection.execute("CREATE TABLE t AS SELECT unnest(['b', 'A', 'a', 'B', 'á']) AS key FROM range(100)")
        connection.execute("CREATE TABLE listed AS SELECT unnest(['á', 'B', 'a', 'A', 'b']) AS key")
        connection.execute("SELECT dp_public('listed')").fetchall()
        given = "'private', delta := 1e-6" if keys == "private" else "'listed'"
        rows = connection.execute(f"FROM dp_count('t', by := 'key', keys := {given}, epsilon := 100)").fetchall()
        assert [row[0] for row in rows] == ["A", "B", "a", "b", "á"]
        assert all(90 < float(row[1 + row.index("count")]) < 110 for row in rows)
