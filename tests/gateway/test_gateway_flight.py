"""Flight SQL: each verb as drivers send it, each refusal, and that no exception leaves."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight
import pytest

from dpsql.errors import BudgetError, GatewayError, InternalError
from dpsql.gateway import flight, flight_catalog
from dpsql.gateway import flight_messages as messages
from dpsql.gateway.flight_session import COOKIE
from dpsql.gateway.flight_sql import FlightSql, KnownColumns
from support.cases import cases
from support.fake_door import TOKEN, FakeDoor
from support.flight_server import RawClient, bearer, data_of, descriptor, execution, flying, query

dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")

SECRET = "row of Ms Smith"
OTHER = "dpsql_" + "b" * 43


VERBS = {
    "flight_info": "GetFlightInfo",
    "schema": "GetSchema",
    "get": "DoGet",
    "put": "DoPut",
    "action": "DoAction",
    "actions": "ListActions",
    "check": "Handshake",
}


class TwoPrincipals(FakeDoor):
    """A door that another one may enter, too."""

    def _let_in(self, token: str) -> None:
        super()._let_in(TOKEN if token == OTHER else token)


class Planted(FlightSql):
    """Verbs of which one may raise what it should not."""

    fault: tuple[str, Exception] | None = None

    def __getattribute__(self, name: str) -> Any:
        if name not in VERBS:
            return super().__getattribute__(name)

        def verb(*arguments: Any) -> Any:
            if Planted.fault is not None and Planted.fault[0] == name:
                raise Planted.fault[1]
            return getattr(FlightSql, name)(self, *arguments)

        return verb


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FakeDoor, str]]:
    door = TwoPrincipals()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flight, "FlightSql", Planted)
        with flying(door) as address:
            yield door, address


@pytest.fixture
def address(door: FakeDoor, served: tuple[FakeDoor, str]) -> str:
    return served[1]


@pytest.fixture
def client(address: str) -> Iterator[RawClient]:
    found = RawClient(address, bearer())
    yield found
    found.close()


def connected(address: str, **options: str) -> Any:
    given = {"adbc.flight.sql.authorization_header": f"Bearer {TOKEN}", **options}
    return dbapi.connect(address, db_kwargs=given, autocommit=True)


# As ADBC sends it.


def test_adbc_asks_with_a_receipt_and_an_equal_question_is_free(door: FakeDoor, address: str) -> None:
    with connected(address) as connection, connection.cursor() as cursor:
        for charged in (b"true", b"false"):
            cursor.execute("SELECT a")
            found = cursor.fetch_arrow_table()
            assert found.to_pydict() == {"value": [42.5]}
            assert b'"charged":' + charged in found.schema.metadata[b"dpsql.receipts"]
        cursor.execute("SELECT nasty")
        assert cursor.fetch_arrow_table().column("whole").to_pylist() == [2**53 + 1, 2**53]
    assert [sql for sql, _ in door.asked] == ["SELECT a", "SELECT a", "SELECT nasty"]


def test_adbc_sees_datasets_and_their_columns(address: str) -> None:
    with connected(address) as connection:
        assert connection.adbc_get_info()["vendor_name"] == "dpsql"
        assert connection.adbc_get_table_types() == ["TABLE"]
        [catalog] = connection.adbc_get_objects(depth="all").read_all().to_pylist()
        [schema] = catalog["catalog_db_schemas"]
        [table] = schema["db_schema_tables"]
        assert (table["table_name"], table["table_type"]) == ("patients", "TABLE")
        assert [one["column_name"] for one in table["table_columns"]] == ['ignore all "rules"']
        assert connection.adbc_get_table_schema("patients").field(0).type == pa.float64()


def test_adbc_binds_values_which_become_literals(door: FakeDoor, address: str) -> None:
    with connected(address) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT ?, '?' -- ?\n, ?", (-1, "it's"))
        assert door.asked[-1][0] == "SELECT  -1 , '?' -- ?\n,  'it''s' "
        cursor.adbc_prepare("SELECT ?")
        asked = len(door.asked)
        with pytest.raises(dbapi.ProgrammingError, match="G013"):
            cursor.execute("SELECT ?", (b"bytes",))
        assert len(door.asked) == asked


@pytest.mark.parametrize(
    ("sql", "kind", "said"),
    [
        ("SELECT rows", "ProgrammingError", "[DPSQL-G006] rows are not shown. (hint: dp_count('patients'))"),
        ("SELECT spent", "ProgrammingError", "[DPSQL-B001] the budget"),
    ],
)
def test_adbc_shows_the_code(address: str, sql: str, kind: str, said: str) -> None:
    with connected(address) as connection, connection.cursor() as cursor, pytest.raises(getattr(dbapi, kind)) as caught:
        cursor.execute(sql)
    assert said in str(caught.value)


def test_adbc_with_a_password_cookies_and_settings(door: FakeDoor, address: str) -> None:
    options = {
        "username": "ana",
        "password": TOKEN,
        "adbc.flight.sql.rpc.with_cookie_middleware": "true",
        "adbc.flight.sql.rpc.call_header.epsilon": "0.7",
    }
    with dbapi.connect(address, db_kwargs=options, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT a")
        cursor.execute("SET epsilon = 0.1")
        assert cursor.fetchall() == [("epsilon", "0.1")]
        cursor.execute("SELECT a")
    assert [settings for _, settings in door.asked] == [{"epsilon": "0.7"}, {"epsilon": "0.7"}, {"epsilon": "0.1"}]


def test_set_is_refused_where_it_would_be_forgotten(address: str) -> None:
    refusal = pytest.raises(dbapi.ProgrammingError, match=r"G021.*cookies")
    with connected(address) as connection, connection.cursor() as cursor, refusal:
        cursor.execute("SET epsilon = 0.1")


def test_what_adbc_may_not_write(address: str) -> None:
    with connected(address) as connection, connection.cursor() as cursor, pytest.raises(dbapi.Error, match="G031"):
        cursor.adbc_ingest("stolen", pa.table({"a": [1]}))


# As the JDBC driver sends it (arrow-java, flight-sql-jdbc-core).


def test_the_calls_of_a_jdbc_driver(door: FakeDoor, address: str) -> None:
    """Handshake, prepare, execute, fetch, close; and what DBeaver shows of a database."""
    location = pa.flight.FlightClient(address)
    key, token = location.authenticate_basic_token("ana", TOKEN)
    assert (key, token) == (b"authorization", f"Bearer {TOKEN}".encode())
    location.close()

    client = RawClient(address, bearer(), agent="JDBC Flight SQL Driver 18.3.0 grpc-java-netty/1.65.0")
    client.call("Handshake")
    cookie = client.headers["set-cookie"]
    client.metadata.append(("cookie", cookie))
    prepared = client.prepare("SELECT a")
    assert prepared.HasField("is_update")
    assert prepared.is_update is False
    assert prepared.dataset_schema  # an empty one is an update for drivers that do not know is_update
    assert door.asked == []
    info = client.info(execution(prepared.prepared_statement_handle))
    assert client.rows(info).to_pydict() == {"value": [42.5]}
    closing = messages.new(
        "ActionClosePreparedStatementRequest", prepared_statement_handle=prepared.prepared_statement_handle
    )
    assert client.act("ClosePreparedStatement", messages.packed(closing)) == []
    assert client.refused("GetFlightInfo", descriptor(execution(prepared.prepared_statement_handle)))[0] == "NOT_FOUND"

    setting = messages.new("SessionOptionValue", string_value="0.3")
    place = messages.new("SessionOptionValue", string_value="dpsql")
    request = messages.new(
        "SetSessionOptionsRequest",
        session_options=[
            messages.new("SessionOption", key="epsilon", value=setting),
            messages.new("SessionOption", key="catalog", value=place),
        ],
    )
    [result] = client.act("SetSessionOptions", request.SerializeToString())
    assert not messages.read("SetSessionOptionsResult", result).errors
    client.metadata[-1] = ("cookie", client.headers["set-cookie"])
    assert client.headers["set-cookie"] != cookie
    client.ask(query("SELECT a"))
    assert door.asked[-1] == ("SELECT a", {"epsilon": "0.3"})
    [result] = client.act("GetSessionOptions")
    [option] = messages.read("GetSessionOptionsResult", result).session_options
    assert (option.key, option.value.string_value) == ("epsilon", "0.3")
    [result] = client.act("CloseSession")
    assert messages.read("CloseSessionResult", result).status == 1
    assert client.refused("GetFlightInfo", descriptor(query("SELECT a")))[1].startswith("[DPSQL-G024]")
    client.close()


def test_session_options_that_are_not_taken_are_told(client: RawClient, address: str) -> None:
    client.call("Handshake")
    client.metadata.append(("cookie", client.headers["set-cookie"]))
    options = {
        "epsilon": messages.new("SessionOptionValue", string_value=""),
        "search_path": messages.new("SessionOptionValue", string_value="a"),
        "catalog": messages.new("SessionOptionValue", string_value="other"),
        "fresh": messages.new("SessionOptionValue", bool_value=True),
        "max_age": messages.new("SessionOptionValue", double_value=0.5),
        "delta": messages.new("SessionOptionValue"),
    }
    request = messages.new(
        "SetSessionOptionsRequest",
        session_options=[messages.new("SessionOption", key=key, value=value) for key, value in options.items()],
    )
    [result] = client.act("SetSessionOptions", request.SerializeToString())
    errors = {one.key: one.value.value for one in messages.read("SetSessionOptionsResult", result).errors}
    assert errors == {"epsilon": 2, "search_path": 1, "catalog": 2}


KEYS = ("CommandGetPrimaryKeys", "CommandGetExportedKeys", "CommandGetImportedKeys")


def test_what_is_told_of_a_database_has_the_columns_of_the_protocol(client: RawClient) -> None:
    schemas = {name: client.ask(messages.new(name, table="patients")).schema for name in KEYS}
    assert schemas["CommandGetPrimaryKeys"] == flight_catalog.PRIMARY_KEYS
    assert schemas["CommandGetExportedKeys"] == schemas["CommandGetImportedKeys"] == flight_catalog.FOREIGN_KEYS
    assert len(client.ask(messages.new("CommandGetCrossReference", pk_table="a", fk_table="b"))) == 0
    assert client.ask(messages.new("CommandGetCatalogs")).num_rows == 0
    assert client.ask(messages.new("CommandGetDbSchemas")).to_pylist() == [{"catalog_name": None, "db_schema_name": ""}]
    types = client.ask(messages.new("CommandGetXdbcTypeInfo"))
    assert types.num_columns == 19
    assert types.column("data_type").to_pylist() == sorted(types.column("data_type").to_pylist())
    assert client.ask(messages.new("CommandGetXdbcTypeInfo", data_type=8)).column("type_name").to_pylist() == ["DOUBLE"]
    told = client.ask(messages.new("CommandGetSqlInfo"))
    numbers = told.column("info_name").to_pylist()
    assert set(range(500, 577)) <= set(numbers)
    assert dict(zip(numbers, told.column("value").to_pylist(), strict=True))[3] is True
    assert client.ask(messages.new("CommandGetSqlInfo", info=[0, 99999])).num_rows == 1
    assert told.schema.field("value").type.num_fields == 6


@cases(
    ("asked", "count"),
    [
        ({}, 1),
        ({"table_name_filter_pattern": "pat%"}, 1),
        ({"table_name_filter_pattern": "_atients"}, 1),
        ({"table_name_filter_pattern": "p%x"}, 0),
        ({"table_types": ["TABLE", "VIEW"]}, 1),
        ({"table_types": ["VIEW"]}, 0),
        ({"catalog": ""}, 1),
        ({"catalog": "elsewhere"}, 0),
        ({"db_schema_filter_pattern": "%"}, 1),
        ({"db_schema_filter_pattern": "main"}, 0),
    ],
)
def test_tables_by_pattern(client: RawClient, asked: dict[str, Any], count: int) -> None:
    assert client.ask(messages.new("CommandGetTables", **asked)).num_rows == count
    assert client.ask(messages.new("CommandGetTables", include_schema=True, **asked)).num_rows == count


def test_columns_are_asked_once_a_minute(client: RawClient, door: FakeDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    command = messages.new("CommandGetTables", include_schema=True)
    client.ask(command)
    monkeypatch.setattr(door, "describe", lambda *_: 1 / 0)
    assert client.ask(command).num_rows == 1


# Who is let in.


@cases(
    "metadata",
    [
        [],
        [bearer("dpsql_" + "x" * 43)],
        [bearer(TOKEN.upper())],
        [bearer(TOKEN[:-1])],
        [bearer(), bearer()],
        [("authorization", TOKEN)],
        [("authorization", "Basic " + TOKEN)],
        [("authorization", "Basic " + base64.b64encode(TOKEN.encode()).decode())],
        [("authorization", f"Digest {TOKEN}")],
        [("x-token", TOKEN)],
        [("cookie", f"authorization=Bearer {TOKEN}")],
    ],
)
def test_who_has_no_token_is_told_nothing(door: FakeDoor, address: str, metadata: list[tuple[str, str]]) -> None:
    client = RawClient(address, *metadata)
    for name in VERBS.values():
        status, text = client.refused(name, descriptor(query("SELECT a")))
        assert (status, text[:12]) == ("UNAUTHENTICATED", "[DPSQL-G020]")
    assert door.asked == []
    client.close()


@pytest.mark.parametrize("name", ["GetFlightInfo", "DoGet", "DoPut"])
def test_who_has_no_token_is_told_so_before_anything_is_read(address: str, name: str) -> None:
    client = RawClient(address)
    call = client.channel.stream_stream(f"/arrow.flight.protocol.FlightService/{name}")
    waiting = call(iter(lambda: b"", None), metadata=[], timeout=20)  # messages without an end
    with pytest.raises(grpc.RpcError) as caught:
        next(waiting)
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]
    client.close()


def test_a_ticket_is_for_one_principal_once(client: RawClient, address: str) -> None:
    info = client.info(query("SELECT a"))
    ticket = info.endpoint[0].ticket.SerializeToString()
    thief = RawClient(address, bearer(OTHER))
    stolen = thief.refused("DoGet", ticket)
    assert client.rows(info).num_rows == 1
    again = client.refused("DoGet", ticket)
    forged = messages.packed(messages.new("TicketStatementQuery", statement_handle=bytes(16)))
    unknown = client.refused("DoGet", messages.new("Ticket", ticket=forged).SerializeToString())
    assert stolen == again == unknown
    assert stolen[0] == "NOT_FOUND"
    prepared = client.prepare("SELECT a").prepared_statement_handle
    taken = thief.refused("GetFlightInfo", descriptor(execution(prepared)))
    bound = thief.refused("DoPut", *data_of(pa.table({"a": [1]}), execution(prepared)))
    assert taken == bound
    assert taken[0] == "NOT_FOUND"
    thief.close()


def test_a_session_is_for_one_principal(client: RawClient, door: FakeDoor, address: str) -> None:
    client.call("Handshake")
    client.metadata.append(("cookie", client.headers["set-cookie"]))
    client.ask(query("SET epsilon = 0.1"))
    [handed] = client.call("GetFlightInfo", descriptor(query("SET epsilon = 0.1")))
    assert handed
    cookie = client.headers["set-cookie"]
    thief = RawClient(address, bearer(OTHER), ("cookie", cookie))
    assert "G024" in thief.refused("GetFlightInfo", descriptor(query("SELECT a")))[1]
    thief.close()


def test_a_session_that_is_gone_is_told_once(address: str) -> None:
    client = RawClient(address, bearer(), ("cookie", f"{COOKIE}=set-{'0' * 32}"))
    call = client.channel.stream_stream("/arrow.flight.protocol.FlightService/GetFlightInfo")
    answer = call(iter([descriptor(query("SELECT a"))]), metadata=client.metadata)
    with pytest.raises(grpc.RpcError):
        next(answer)
    assert "G024" in answer.details()
    client.metadata[-1] = ("cookie", dict(answer.trailing_metadata())["set-cookie"])
    assert client.ask(query("SELECT a")).num_rows == 1
    client.close()


# What is refused, and how.


@cases(
    ("error", "status"),
    [
        (GatewayError("G020", "no."), "UNAUTHENTICATED"),
        (GatewayError("G015", "no."), "NOT_FOUND"),
        (GatewayError("G017", "no."), "PERMISSION_DENIED"),
        (BudgetError("B001", "no."), "PERMISSION_DENIED"),
        (GatewayError("G006", "no."), "INVALID_ARGUMENT"),
        (GatewayError("G030", "no."), "RESOURCE_EXHAUSTED"),
        (GatewayError("G032", "no."), "RESOURCE_EXHAUSTED"),
        (GatewayError("G033", "no."), "UNAVAILABLE"),
        (InternalError("I000", "no."), "INTERNAL"),
    ],
)
def test_codes_and_statuses(client: RawClient, door: FakeDoor, error: Exception, status: str) -> None:
    door.failure = error
    found, text = client.refused("GetFlightInfo", descriptor(query("SELECT a")))
    assert found == status
    assert text.startswith(f"[{error.code}] no.")  # type: ignore[attr-defined]


ACTIONS = (
    *("BeginTransaction", "EndTransaction", "BeginSavepoint", "EndSavepoint", "CreatePreparedSubstraitPlan"),
    *("RenewFlightEndpoint", "Healthcheck", ""),
)


def test_what_nobody_may_do_is_g031(client: RawClient) -> None:
    for kind in ACTIONS:
        status, text = client.refused("DoAction", messages.new("Action", type=kind).SerializeToString())
        assert (status, text[:12]) == ("UNIMPLEMENTED", "[DPSQL-G031]"), kind
    for name in ("CommandStatementUpdate", "CommandPreparedStatementUpdate", "CommandStatementIngest"):
        written = renamed(query("DROP TABLE patients"), name)
        put = messages.new("FlightData", flight_descriptor=messages.new("FlightDescriptor", type=2, cmd=written))
        assert client.refused("DoPut", put.SerializeToString())[0] == "UNIMPLEMENTED"
    substrait = messages.new("FlightDescriptor", type=2, cmd=renamed(query("x"), "CommandStatementSubstraitPlan"))
    assert client.refused("GetFlightInfo", substrait.SerializeToString())[0] == "UNIMPLEMENTED"
    path = messages.new("FlightDescriptor", type=1, path=["patients"]).SerializeToString()
    assert client.refused("GetFlightInfo", path)[0] == "UNIMPLEMENTED"
    for name in ("ListFlights", "PollFlightInfo", "DoExchange"):
        assert client.refused(name, b"")[0] == "UNIMPLEMENTED"
    assert client.refused("Nothing", b"")[0] == "UNIMPLEMENTED"
    assert client.refused("GetSchema", descriptor(query("SET epsilon = 1")))[0] == "UNIMPLEMENTED"
    [found] = client.call("GetSchema", descriptor(messages.new("CommandGetTables")))
    told = pa.ipc.read_schema(pa.py_buffer(messages.read("SchemaResult", found).schema))
    assert told == flight_catalog.TABLES
    listed = [messages.read("ActionType", one).type for one in client.call("ListActions", b"")]
    assert {"CreatePreparedStatement", "ClosePreparedStatement", "SetSessionOptions"} <= set(listed)


def renamed(message: Any, name: str) -> bytes:
    """Return a message under another name."""
    found: bytes = messages.packed(message)
    return messages.Packed(
        type_url=f"type.googleapis.com/{messages.SQL_PACKAGE}.{name}", value=messages.Packed.FromString(found).value
    ).SerializeToString()


def test_an_answer_may_be_forgotten(client: RawClient) -> None:
    info = client.info(query("SELECT a"))
    request = messages.new("CancelFlightInfoRequest", info=info).SerializeToString()
    [result] = client.act("CancelFlightInfo", request)
    assert messages.read("CancelFlightInfoResult", result).status == 1
    assert client.refused("DoGet", info.endpoint[0].ticket.SerializeToString())[0] == "NOT_FOUND"
    again = messages.new("Action", type="CancelFlightInfo", body=request).SerializeToString()
    assert client.refused("DoAction", again)[0] == "NOT_FOUND"
    info = client.info(query("SELECT a"))
    earlier = messages.new("ActionCancelQueryRequest", info=info.SerializeToString())
    [result] = client.act("CancelQuery", messages.packed(earlier))
    assert messages.unpacked(result)[1].result == 1


@cases("verb", VERBS)
@cases("error", [RuntimeError(SECRET), RecursionError(SECRET), KeyError(SECRET), MemoryError(SECRET)])
def test_no_exception_leaves_a_verb(
    client: RawClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, verb: str, error: Exception
) -> None:
    monkeypatch.setattr(Planted, "fault", (verb, error))
    with caplog.at_level(logging.ERROR, "dpsql.gateway"):
        status, text = client.refused(VERBS[verb], descriptor(query("SELECT a")))
    assert status == "INTERNAL"
    assert text.startswith("[DPSQL-I000]")
    assert SECRET not in text
    assert "Traceback" not in text
    assert SECRET not in caplog.text  # the owner's log has the lines of code that it came through, and its type
    assert f"{type(error).__name__}\n" in caplog.text
    assert Path(__file__).name in caplog.text


@pytest.mark.parametrize("method", ["check_token", "answer", "datasets", "describe"])
def test_no_exception_of_the_door_leaves(
    client: RawClient, door: FakeDoor, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def planted(*_: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(door, method, planted)
    monkeypatch.setattr(KnownColumns, "of_dataset", lambda self, caller, name: self._door.describe(caller.token, name))
    tables = messages.new("Ticket", ticket=messages.packed(messages.new("CommandGetTables", include_schema=True)))
    name, body = ("DoGet", tables.SerializeToString()) if method in ("datasets", "describe") else ("GetFlightInfo", b"")
    status, text = client.refused(name, body or descriptor(query("SELECT a")))
    assert (status, text[:12]) == ("INTERNAL", "[DPSQL-I000]")
    assert SECRET not in text
