"""Flight SQL over real boxes and a real broker: what is charged, and tokens that hold no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pytest

from dpsql.gateway import flight_messages as messages
from dpsql.gateway.door import Door
from support.flight_server import RawClient, bearer, data_of, descriptor, execution, flying, query
from support.gateway_boxes import boxes_in
from support.gateway_broker import SECRET, Gateway, made

dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")
pytestmark = pytest.mark.long
QUESTION = "SELECT ward, count(*) AS n FROM patients GROUP BY ward ORDER BY ward"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Door, str]]:
    folder = tmp_path_factory.mktemp("flight")
    usual = {"epsilon": 20, "default_epsilon": 0.2}
    gateway = made(folder, ana=usual, ben=usual, cora=usual, dora=usual)
    gateway.start()
    with boxes_in(folder / "boxes") as boxes:
        door = Door(gateway.socket, boxes)
        try:
            with flying(door) as address:
                yield gateway, door, address
        finally:
            door.close()
            gateway.kill()


def asked(address: str, token: str, sql: str = QUESTION, values: tuple[object, ...] = ()) -> tuple[Any, list[Any]]:
    options = {"adbc.flight.sql.authorization_header": f"Bearer {token}"}
    with dbapi.connect(address, options, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(sql, values or None)
        found = cursor.fetch_arrow_table()
    return found.to_pylist(), json.loads(found.schema.metadata[b"dpsql.receipts"])


def spent(gateway: Gateway, principal: str) -> float:
    with gateway.ledger() as ledger:
        return ledger.granted_budgets(principal)[0].epsilon_spent or 0.0


@pytest.mark.odds("0: numbers are compared with their own replays")
def test_to_execute_charges_once_and_to_prepare_does_not(served: tuple[Gateway, Door, str]) -> None:
    gateway, door, address = served
    token = gateway.tokens["ana"]
    before = spent(gateway, "ana")
    client = RawClient(address, bearer(token))
    prepared = client.prepare(QUESTION).prepared_statement_handle
    for command in (execution(prepared), query(QUESTION)):
        [told] = client.call("GetSchema", descriptor(command))
        assert pa.ipc.read_schema(pa.py_buffer(messages.read("SchemaResult", told).schema)).names == ["ward", "n"]
    function = "SELECT value FROM dp_count('patients', epsilon := 0.3)"
    assert "G031" in client.refused("GetSchema", descriptor(query(function)))[1]
    assert spent(gateway, "ana") == before
    first = client.ask(execution(prepared)).to_pylist()
    assert spent(gateway, "ana") == pytest.approx(before + 0.2)
    again, receipts = asked(address, token)
    assert (again, [one["charged"] for one in receipts]) == (first, [False])
    assert door.answer(token, QUESTION, {}).table.to_pylist() == first  # as over HTTP
    assert spent(gateway, "ana") == pytest.approx(before + 0.2)
    client.close()


@pytest.mark.odds("0: numbers are compared with their own replays")
def test_a_driver_of_jdbc_is_told_columns_and_kinds_without_a_charge(served: tuple[Gateway, Door, str]) -> None:
    """The same question, written and bound, over JDBC and ADBC, is one number and one charge."""
    gateway, _, address = served
    token = gateway.tokens["dora"]
    client = RawClient(address, bearer(token), agent="JDBC Flight SQL Driver 19.0.0 grpc-java-netty/1.76.0")
    prepared = client.prepare("SELECT count(*) AS n FROM patients WHERE age > ? AND ward = ?")
    columns, kinds = (
        pa.ipc.read_schema(pa.py_buffer(told)) for told in (prepared.dataset_schema, prepared.parameter_schema)
    )
    assert columns == pa.schema([("n", pa.int64())])
    assert kinds.types == [pa.float64(), pa.string()]
    function = client.prepare("SELECT value FROM dp_count('patients', epsilon := ?)")
    assert pa.ipc.read_schema(pa.py_buffer(function.dataset_schema)).names == ["answer"]
    assert spent(gateway, "dora") == 0
    values = pa.table([[40.0], ["A"]], schema=kinds)
    command = execution(prepared.prepared_statement_handle)
    client.call("DoPut", *data_of(values, command))
    found = client.ask(command).to_pylist()
    assert spent(gateway, "dora") == pytest.approx(0.2)
    written = "SELECT count(*) AS n FROM patients WHERE age > 40 AND ward = 'A'"
    assert client.ask(query(written)).to_pylist() == found
    assert asked(address, token, written)[0] == found
    unset = pa.table([pa.array([None], pa.float64()), ["A"]], schema=kinds)
    assert "G013" in client.refused("DoPut", *data_of(unset, command))[1]
    assert spent(gateway, "dora") == pytest.approx(0.2)
    client.close()


@pytest.mark.odds("0: numbers are compared with their own replays")
def test_a_bound_value_is_the_question_with_its_literal(served: tuple[Gateway, Door, str]) -> None:
    gateway, _, address = served
    token = gateway.tokens["ana"]
    sql = "SELECT count(*) AS n FROM patients WHERE age > ? AND ward = ?"
    bound, receipts = asked(address, token, sql, (40, "A"))
    assert [one["charged"] for one in receipts] == [True]
    written, receipts = asked(address, token, "SELECT count(*) AS n FROM patients WHERE age > 40 AND ward = 'A'")
    assert (written, [one["charged"] for one in receipts]) == (bound, [False])
    _, receipts = asked(address, token, "SELECT value FROM dp_count('patients', epsilon := ?)", (0.25,))
    assert [one["epsilon"] for one in receipts] == ["0.25"]
    for hostile in ("A' OR (SELECT name FROM staff) = '", "'; DROP TABLE patients; --", SECRET):
        found, _ = asked(address, token, "SELECT count(*) AS n FROM patients WHERE ward = ?", (hostile,))
        assert SECRET not in str(found)


def test_many_at_once_with_one_new_question(served: tuple[Gateway, Door, str]) -> None:
    gateway, _, address = served
    before = spent(gateway, "ben")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: asked(address, gateway.tokens["ben"]), range(8)))
    assert len({str(rows) for rows, _ in answers}) == 1
    assert sum(receipts[0]["charged"] for _, receipts in answers) == 1
    assert spent(gateway, "ben") == pytest.approx(before + 0.2)


def test_tokens_that_hold_no_more(served: tuple[Gateway, Door, str]) -> None:
    """A revoked one opens nothing that was made with it, and not what waits to be fetched."""
    gateway, _, address = served
    token = gateway.tokens["cora"]
    client = RawClient(address, bearer(token))
    info = client.info(query(QUESTION))
    prepared = client.prepare(QUESTION).prepared_statement_handle
    client.call("Handshake")
    client.metadata.append(("cookie", client.headers["set-cookie"]))
    assert client.info(query("SET epsilon = 0.1")).endpoint
    with gateway.ledger() as ledger:
        ledger.revoke("cora", token=token.removeprefix("dpsql_")[:8])
    ticket = info.endpoint[0].ticket.SerializeToString()
    calls = [("DoGet", ticket), ("GetFlightInfo", descriptor(execution(prepared))), ("ListActions", b"")]
    for name, body in [*calls, ("Handshake", b"")]:
        status, text = client.refused(name, body)
        assert (status, text[:12]) == ("UNAUTHENTICATED", "[DPSQL-G020]")
    client.close()
    with gateway.ledger() as ledger:
        fresh = ledger.issue_token("cora", now=True).text
    renewed = RawClient(address, bearer(fresh))
    assert renewed.refused("DoGet", ticket)[0] == "NOT_FOUND"  # it was the other token's; asked again it is free
    assert len(renewed.ask(query(QUESTION))) == 2
    renewed.close()
