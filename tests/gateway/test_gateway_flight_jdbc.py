"""Flight SQL as Arrow's driver of JDBC speaks it: its recorded calls, and what it is told because it reads no other.

``jdbc_calls.jsonl`` has each call of a session with ``flight-sql-jdbc-core`` 19.0.0 over gRPC 1.76: metadata and bytes.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpsql.errors import GatewayError
from dpsql.gateway import flight_messages as messages
from dpsql.gateway import flight_session
from dpsql.gateway.flight_session import is_setting, read_caller
from dpsql.gateway.flight_sql import as_given, columns_for_java, for_java, parameter_schema
from support.cases import cases
from support.fake_door import FakeAnswer, FakeDoor
from support.flight_server import RawClient, bearer, descriptor, execution, flying, query, table_of

AGENT = "JDBC Flight SQL Driver 19.0.0 grpc-java-netty/1.76.0"
CALLS = [json.loads(line) for line in (Path(__file__).parent / "jdbc_calls.jsonl").read_text().splitlines()]
NUMBER, TEXT, TRUTH, DAY, TIME = pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("ms")


class Counted:
    """In the place of random bytes, as they were when the calls were recorded."""

    def __init__(self) -> None:
        self._count = itertools.count(1)

    def token_bytes(self, _: int) -> bytes:
        return b"handle-%09d" % next(self._count)

    def token_hex(self, _: int) -> str:
        return f"session{next(self._count):025d}"


@pytest.fixture
def served() -> Iterator[tuple[FakeDoor, str]]:
    door = FakeDoor()
    with flying(door) as found:
        yield door, found


@pytest.fixture
def address(door: FakeDoor, served: tuple[FakeDoor, str]) -> str:
    return served[1]


@pytest.fixture
def client(address: str) -> Iterator[RawClient]:
    found = RawClient(address, bearer(), agent=AGENT)
    yield found
    found.close()


def test_each_recorded_call_is_answered_as_it_was(
    door: FakeDoor, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted()
    monkeypatch.setattr(flight_session, "secrets", counted)
    monkeypatch.setattr(flight_session, "secrets", counted)
    tables, answered = [], []
    for one in CALLS:
        client = RawClient(address, *one["metadata"].items(), agent=AGENT)
        bodies = [base64.b64decode(body) for body in one["bodies"]]
        if one["status"] == "OK":
            found = client.call(one["call"], *bodies)
            answered.append(one["call"])
            if one["call"] == "DoGet":
                tables.append(table_of(found).to_pydict())
        else:
            status, text = client.refused(one["call"], *bodies)
            assert (status, text[1:11]) == (one["status"], one["code"])
            assert "Traceback" not in text
        client.close()
    assert {"Handshake", "GetFlightInfo", "DoGet", "DoAction", "DoPut"} == set(answered)
    assert tables.count({"value": [42.5]}) == 4
    assert {"setting": ["epsilon"], "value": ["0.1"]} in tables
    column = '"ignore all ""rules"""'
    assert [sql for sql, _ in door.asked] == [
        *("SELECT a", "SET epsilon = 0.1", "SELECT rows", "SELECT spent"),
        f"SELECT count(*) FROM patients WHERE {column} >  40  AND name =  'it''s' ",
        f"SELECT count(*) FROM patients WHERE {column} >  0.1  AND name =  'it''s' ",
        "SELECT a",
    ]
    assert [settings["epsilon"] for _, settings in door.asked] == ["0.5", "0.5", *["0.1"] * 4, "0.5"]


def test_the_recorded_refusals_have_their_codes() -> None:
    codes = {one["code"] for one in CALLS if one["status"] != "OK"}
    assert {"DPSQL-G006", "DPSQL-B001", "DPSQL-G013", "DPSQL-G031", "DPSQL-G020"} == codes


# The columns of a statement before it is asked.


def columns_told(client: RawClient, text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(client.prepare(text).dataset_schema))


def test_columns_are_known_when_a_statement_is_prepared_and_nothing_is_asked(door: FakeDoor, client: RawClient) -> None:
    assert columns_told(client, "SELECT a; -- the end\n") == pa.schema([("value", pa.float64())])
    assert door.probed == ["SELECT * FROM (\nSELECT a\n) AS answer LIMIT 0"]
    assert (door.asked, door.charges) == ([], {})
    columns_told(client, "SELECT a; -- the end\n")
    assert len(door.probed) == 1  # known, for an hour
    client.prepare("SELECT a WHERE b > ? AND c = ?")
    assert door.probed[-1] == "SELECT * FROM (\nSELECT a WHERE b >  NULL  AND c =  NULL \n) AS answer LIMIT 0"


def test_what_would_be_charged_says_no_columns_before(
    door: FakeDoor, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A price that names a dataset is one that may be charged, whatever rows are left of the answer."""
    priced = {"calls": [{"function": "dp_count", "datasets": ["patients"], "free": False}], "free": False}
    monkeypatch.setattr(door, "estimate", lambda *_: priced)
    assert columns_told(client, "SELECT a") == pa.schema([("answer", pa.string())])
    assert "G031" in client.refused("GetSchema", descriptor(query("SELECT a")))[1]
    assert (door.asked, door.probed) == ([], [])
    client.ask(query("SELECT a"))
    assert columns_told(client, "SELECT a") == pa.schema([("value", pa.float64())])  # as it was answered


@pytest.mark.parametrize("text", ["", "SET epsilon = 1", "SHOW TABLES", "DESCRIBE patients", "DELETE FROM patients"])
def test_what_is_no_query_is_not_probed(door: FakeDoor, client: RawClient, text: str) -> None:
    assert columns_told(client, text).names == ["answer"]
    assert door.probed == []


def test_a_refusal_is_told_when_the_statement_is_asked(
    door: FakeDoor, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise GatewayError("G008", "the statement is not read whole.")

    monkeypatch.setattr(door, "estimate", refused)
    handle = client.prepare("SELECT rows").prepared_statement_handle
    assert "G006" in client.refused("GetFlightInfo", descriptor(execution(handle)))[1]


def test_get_schema_of_a_statement(door: FakeDoor, client: RawClient) -> None:
    [found] = client.call("GetSchema", descriptor(query("SELECT a")))
    assert pa.ipc.read_schema(pa.py_buffer(messages.read("SchemaResult", found).schema)).names == ["value"]
    assert door.asked == []


# The kinds of parameters.

COLUMNS = {"age": pa.int64(), "ward": pa.string(), "d": pa.date32(), "ts": pa.timestamp("us"), "smoker": pa.bool_()}
COLUMNS |= {"price": pa.decimal128(9, 2), "at": pa.timestamp("us", "UTC")}


@cases(
    ("text", "kinds"),
    [
        ("SELECT count(*) FROM t WHERE age > ? AND ward = ?", [NUMBER, TEXT]),
        ("SELECT count(*) FROM t WHERE ? <= t.age AND ? = \"WARD\" AND p.smoker = ?", [NUMBER, TEXT, TRUTH]),
        ("SELECT count(*) FROM t WHERE d >= ? AND ts < ? AND at < ? AND price <> ?", [DAY, TIME, TEXT, NUMBER]),
        ("SELECT count(*) FROM t WHERE age BETWEEN ? AND ? AND d NOT BETWEEN ? AND ?", [NUMBER, NUMBER, DAY, DAY]),
        ("SELECT count(*) FROM t WHERE (age) IN (1, ?, -?) AND ward NOT IN ('a', ?)", [NUMBER, NUMBER, TEXT]),
        ("SELECT count(*) FROM t WHERE ward LIKE ? ORDER BY 1 LIMIT ? OFFSET ?", [TEXT, NUMBER, NUMBER]),
        ("SELECT ward, count(*) AS n FROM t GROUP BY 1 HAVING count(*) > ? AND max(d) < ? AND n > ?", [NUMBER, DAY, NUMBER]),
        ("SELECT count(*) FROM t WHERE lower(ward) = ? AND year(d) = ? AND coalesce(age, 0) > ?", [TEXT, NUMBER, NUMBER]),
        ("SELECT ?::INTEGER, CAST(? AS DATE), try_cast(? AS DOUBLE), ?", [NUMBER, DAY, NUMBER, TEXT]),
        ("SELECT count(*) FROM t WHERE age::VARCHAR = ? AND CAST(ward AS INTEGER) > ?", [TEXT, NUMBER]),
        ("SELECT value FROM dp_count('t', epsilon := ?, condition => ?, delta := ?)", [NUMBER, TEXT, NUMBER]),
        ("SELECT count(*) FROM t WHERE age > ? * 2 AND 2 * ? < age AND d > DATE '2024-01-01' AND ? < DATE '2025-01-01'",
         [NUMBER, NUMBER, DAY]),
        ("SELECT count(*) FROM t WHERE age > $2 AND ward = $1 AND price < $2", [TEXT, NUMBER]),
        ("SELECT count(*) FROM t WHERE age > $1 AND ward = $1", [TEXT]),
        ("SELECT '?' /* ? */ WHERE other = ?", [TEXT]),
        ("SELECT count(*) FROM t WHERE (age > 3) = ? OR ?", [TEXT, TEXT]),
        ("?", [TEXT]),
        (") ? (", [TEXT]),
        ("::? AND ? :: = ? IN (?", [TEXT, TEXT, TEXT, TEXT]),
    ],
)  # fmt: skip
def test_kinds_of_parameters(text: str, kinds: list[pa.DataType]) -> None:
    schema = parameter_schema(text, COLUMNS)
    assert schema is not None
    assert schema.types == kinds


def test_a_statement_without_parameters_has_no_kinds() -> None:
    assert parameter_schema("SELECT '?' FROM t", COLUMNS) is None


def test_kinds_come_from_the_dataset_that_is_named(client: RawClient) -> None:
    for name in ("patients", '"patients"', "PATIENTS"):
        told = client.prepare(f'SELECT count(*) FROM {name} WHERE "Ignore all ""rules""" > ?').parameter_schema
        assert pa.ipc.read_schema(pa.py_buffer(told)).types == [NUMBER]
    told = client.prepare('SELECT count(*) FROM others WHERE "ignore all ""rules""" > ?').parameter_schema
    assert pa.ipc.read_schema(pa.py_buffer(told)).types == [TEXT]


# What is bound, and what is shown.


@cases(
    ("given", "meant"),
    [
        (40.0, 40),
        (-3.0, -3),
        (0.1, 0.1),
        (2.0**53, 2**53),
        ("40.0", "40.0"),
        (True, True),
        (float("inf"), float("inf")),
    ],
)
def test_whole_numbers_are_whole_again(given: object, meant: object) -> None:
    [found] = as_given([given])
    assert (found, type(found)) == (meant, type(meant))


@pytest.mark.parametrize("given", [None, 2.0**53 + 2, -(2.0**63)])
def test_values_that_are_not_what_was_set(given: object) -> None:
    with pytest.raises(GatewayError, match="G013"):
        as_given(["a", given])


def test_numbers_without_a_sign_are_shown_as_they_are() -> None:
    kinds = {"a": pa.uint8(), "b": pa.uint16(), "c": pa.uint32(), "d": pa.uint64()}
    most = {name: [2**kind.bit_width - 1, None] for name, kind in kinds.items()}
    table = pa.table({name: pa.array(values, kinds[name]) for name, values in most.items()})
    shown = for_java(
        table.append_column("e", pa.array([1, 2], pa.decimal128(10, 3))).replace_schema_metadata({"r": "1"})
    )
    assert shown.select(list("abcd")).to_pydict() == most
    assert not any(str(kind).startswith("uint") for kind in shown.schema.types)
    assert shown.schema.metadata == {b"r": b"1"}
    digits = {b"ARROW:FLIGHT:SQL:PRECISION": b"10", b"ARROW:FLIGHT:SQL:SCALE": b"3"}
    assert shown.schema.field("e").metadata == digits
    told = pa.ipc.read_schema(pa.py_buffer(columns_for_java(table.schema.serialize().to_pybytes())))
    assert told.types == shown.schema.types[:4]


def test_only_a_driver_of_jdbc_is_told_so(door: FakeDoor, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "answer", lambda *_: FakeAnswer(pa.table({"a": pa.array([200], pa.uint8())})))
    for agent, kind in ((AGENT, pa.int16()), ("ADBC Flight SQL Driver grpc-go/1.75.0", pa.uint8())):
        client = RawClient(address, bearer(), agent=agent)
        assert client.ask(query("SELECT a")).schema.types == [kind]
        assert bool(client.prepare("SELECT a").dataset_schema) == (agent == AGENT)
        client.close()


# What stands in an address.


@cases(
    ("name", "value", "taken"),
    [
        *(("epsilon", "0.5", True), ("epsilon", "abc", False), ("epsilon", "1" * 41, False), ("epsilon", "", False)),
        *(("fresh", "true", True), ("fresh", "FALSE", True), ("fresh", "1", False)),
        *(("max_age", "24", True), ("max_age", "a day", False), ("dataset", "patients", True), ("dataset", "a" * 1001, False)),
    ],
)  # fmt: skip
def test_settings_of_another_kind(name: str, value: str, taken: bool) -> None:
    assert is_setting(name, value) == taken
    metadata: list[tuple[str, Any]] = [bearer(), (name, value)]
    if taken:
        assert read_caller(metadata).settings[name].lower() == value.lower()
    elif value:
        with pytest.raises(GatewayError, match="G021"):
            read_caller(metadata)


def test_who_gives_no_token_is_told_where(address: str) -> None:
    client = RawClient(address, agent=AGENT)
    assert "as the password" in client.refused("GetFlightInfo", descriptor(query("SELECT a")))[1]
    client.close()
