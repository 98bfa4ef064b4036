"""What is bound to a statement of Flight SQL, and what is kept for its clients."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpsql.errors import GatewayError
from dpsql.gateway import flight_catalog
from dpsql.gateway import flight_messages as messages
from dpsql.gateway.flight_parameters import literal, positions_of, read_values, with_values
from dpsql.gateway.flight_session import Shelf, address_of, read_caller, read_headers
from dpsql.gateway.flight_sql import parameter_schema
from support.cases import cases
from support.fake_door import TOKEN
from support.flight_server import data_of

ONE = pa.table({"a": [1]})


def sent(table: pa.Table, options: Any = None) -> list[tuple[bytes, bytes]]:
    found = [messages.read("FlightData", one) for one in data_of(table, options=options)]
    return [(one.data_header, one.data_body) for one in found]


@cases(
    ("text", "count"),
    [
        ("SELECT ?", 1),
        ("SELECT ? + ?", 2),
        ("SELECT '?', \"?\", ?", 1),
        ("SELECT 'it''s ?' || ?", 1),
        ("SELECT E'\\'?' || ?", 1),
        ("SELECT e'\\\\' || ?", 1),
        ("SELECT some'\\' || ?", 1),
        ("SELECT $$ ? $$, $a$ ? $$ $a$, ?", 1),
        ("SELECT a$1 + $1", 1),
        ("SELECT $2 + $1 + $1", 2),
        ("SELECT 1 -- ?\n + ?", 1),
        ("SELECT 1 /* ? /* ? */ ? */ + ?", 1),
        ("SELECT 1 /* ?", 0),
        ("SELECT '?", 0),
        ("SELECT $name", 0),
        ("", 0),
    ],
)
def test_where_parameters_are(text: str, count: int) -> None:
    assert len({number for _, _, number in positions_of(text)}) == count
    schema = parameter_schema(text, {})
    assert (0 if schema is None else len(schema)) == count


_texts = st.text(st.sampled_from("?'\"$eE\\-/*\n a1é"), max_size=12)
_values = st.lists(st.one_of(_texts, st.integers(-(2**62), 2**62), st.none(), st.booleans()), max_size=3)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as found:
        yield found


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_texts, _values)
def test_duckdb_reads_the_literals_as_the_values(
    connection: duckdb.DuckDBPyConnection, text: str, values: list[object]
) -> None:
    """Whatever stands in quotes and comments before them, and whatever is bound."""
    quoted, name = (mark + text.replace(mark, mark * 2) + end for mark, end in (("'", "'"), ('"', 'x"')))
    comment = text.replace("*/", "").replace("/*", "").rstrip("*/")
    line = text.partition("\n")[0]
    statement = f"SELECT {quoted} AS {name} /* {comment} */ -- {line}\n" + ", ?" * len(values)
    [row] = connection.execute(with_values(statement, values)).fetchall()
    assert list(row) == [text, *values]


@cases(
    ("value", "said"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (-3, "-3"),
        (0.1, "0.1"),
        (Decimal("1E+2"), "100"),
        ("'; DROP TABLE a; --", "'''; DROP TABLE a; --'"),
        (datetime.date(2026, 1, 2), "DATE '2026-01-02'"),
        (datetime.datetime(2026, 1, 2, 3), "TIMESTAMP '2026-01-02 03:00:00'"),
    ],
)
def test_literals(value: object, said: str) -> None:
    assert literal(value) == said


@cases("value", [float("nan"), float("inf"), b"a", [1], {"a": 1}, datetime.time(1)])
def test_values_that_have_no_literal(value: object) -> None:
    with pytest.raises(GatewayError, match="G013"):
        literal(value)


@pytest.mark.parametrize(
    ("text", "values"), [("SELECT ?", []), ("SELECT ?", [1, 2]), ("SELECT 1", [1]), ("SELECT $2", [1])]
)
def test_as_many_values_as_parameters(text: str, values: list[object]) -> None:
    with pytest.raises(GatewayError, match="G013"):
        with_values(text, values)


def test_a_minus_of_a_negative_value_is_no_comment() -> None:
    assert with_values("SELECT 1 -?", [-2]) == "SELECT 1 - -2 "
    assert with_values("SELECT ?", None) == "SELECT ?"


def test_values_are_read() -> None:
    table = pa.table(
        {
            "a": [1],
            "b": [1.5],
            "c": pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
            "d": ["é"],
            "e": [None],
            "f": [True],
            "g": [datetime.date(2026, 1, 2)],
        }
    )
    assert read_values(sent(table)) == list(table.to_pylist()[0].values())


def _codec(name: str) -> pa.ipc.IpcWriteOptions:
    return pa.ipc.IpcWriteOptions(compression=name)


@cases(
    "given_messages",
    [
        [],
        sent(ONE)[:1],
        sent(ONE)[1:],
        sent(ONE) + sent(ONE)[1:],
        sent(pa.table({"a": [1, 2]})),
        sent(pa.table({"a": pa.array([], pa.int64())})),
        sent(pa.table({"a": ["b" * 1000]}), _codec("zstd")),
        sent(pa.table({"a": ["b" * 1000]}), _codec("lz4")),
        sent(pa.table({"a": pa.array(["b"]).dictionary_encode()})),
        sent(pa.table({"a": [[1, 2]]})),
        sent(pa.table({"a": [{"b": 1}]})),
        sent(pa.table({"a": [b"b"]})),
        sent(pa.table({"a": pa.array([[None] * 3], pa.list_(pa.null()))})),
        sent(pa.table({"a": pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([7]))})),
        [(b"", b""), (b"\xff" * 64, b"")],
    ],
)  # fmt: skip
def test_what_is_not_one_row_of_plain_values(given_messages: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(GatewayError, match="G013"):
        read_values(given_messages)


@pytest.mark.long
@settings(max_examples=2000, deadline=None)
@given(st.data())
def test_damaged_messages_are_refused_or_read(data: st.DataObject) -> None:
    """Bytes that are turned in a header or a body end as a refusal or as values; nothing else is raised."""
    [schema, batch] = sent(pa.table({"a": ["some text"], "b": [7]}))
    parts = [bytearray(part) for part in (*schema, *batch)]
    for _ in range(data.draw(st.integers(1, 4))):
        part = data.draw(st.sampled_from([one for one in parts if one]))
        part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    header, body, other, rest = map(bytes, parts)
    try:
        read_values([(header, body), (other, rest)])
    except GatewayError as error:
        assert error.code == "DPSQL-G013"


# Patterns of names.


@cases(
    ("name", "pattern", "fits"),
    [
        ("visits", "%", True),
        ("visits", "vis%", True),
        ("visits", "%s%s", True),
        ("visits", "v_sits", True),
        ("visits", "v_its", False),
        ("a_b", r"a\_b", True),
        ("axb", r"a\_b", False),
        ("", "%%", True),
        ("", "_", False),
        ("a%", r"a\%", True),
        ("visits", "", False),
    ],
)
def test_patterns(name: str, pattern: str, fits: bool) -> None:
    assert flight_catalog.is_like(name, pattern) is fits


def test_a_pattern_that_would_take_for_ever_does_not() -> None:
    assert not flight_catalog.is_like("a" * 500, "%a" * 499 + "b")


def test_types_of_columns() -> None:
    assert flight_catalog.arrow_type("DECIMAL(10,2)") == pa.decimal128(10, 2)
    assert flight_catalog.arrow_type("DECIMAL(99,2)") == pa.string()
    assert flight_catalog.arrow_type("INTEGER[]") == pa.string()
    assert flight_catalog.arrow_type("TIMESTAMP WITH TIME ZONE").tz == "UTC"


# What is kept.


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_shelf_forgets_what_is_old_or_too_much() -> None:
    clock = Clock()
    shelf: Shelf[str] = Shelf("thing", seconds=300, most=3, most_bytes=64, most_bytes_of_all=100, clock=clock)
    first = shelf.put("ana", "a", 40)
    second = shelf.put("ana", "b", 40)  # the first one leaves
    with pytest.raises(GatewayError, match="G024"):
        shelf.get("ana", first)
    assert shelf.get("ana", second) == "b"
    with pytest.raises(GatewayError, match="G024"):
        shelf.take("ben", second)
    other = shelf.put("ben", "c", 60)
    with pytest.raises(GatewayError, match="G032"):
        shelf.put("cora", "d", 1)
    clock.now = 299.0
    assert shelf.get("ben", other) == "c"
    clock.now = 301.0
    with pytest.raises(GatewayError, match="G024"):
        shelf.get("ana", second)
    assert shelf.take("ben", other) == "c"
    with pytest.raises(GatewayError, match="G024"):
        shelf.take("ben", other)
    many = [shelf.put("ana", str(number)) for number in range(5)]
    assert [shelf.get("ana", one) for one in many[2:]] == ["2", "3", "4"]
    assert len({len(one) for one in many}) == 1
    assert len(many[0]) == 16


def test_settings_in_metadata() -> None:
    caller = read_caller([("authorization", f"Bearer {TOKEN}"), ("epsilon", "0.1"), ("max_age", "2"), ("other", "a")])
    assert caller.settings == {"epsilon": "0.1", "max_age": "2"}
    for twice in ([("epsilon", "0.1"), ("epsilon", "9")], [("dataset", "a" * 2000)]):
        with pytest.raises(GatewayError, match="G021"):
            read_caller([("authorization", f"Bearer {TOKEN}"), *twice])


def test_where_a_call_comes_from() -> None:
    assert address_of("ipv4:127.0.0.1:4711") == "127.0.0.1"
    assert address_of("ipv6:%5B2001:db8::1%5D:4711") == "2001:db8::1"
    assert address_of("unix:/tmp/a") == ""
    basic = ("authorization", "Basic OmRwc3Fs")  # as a bearer of the same token, so that both are one
    assert read_headers([basic, ("x-forwarded-for", "192.0.2.1"), ("cookie", "a")]) == [
        (b"authorization", b"Bearer dpsql"),
        (b"x-forwarded-for", b"192.0.2.1"),
    ]
