"""The verbs of Flight SQL over a door: what each command, ticket and action is answered with.

GetFlightInfo of a statement asks it, since it has to know the columns: so it charges, and DoGet hands out what was
answered, once, to who asked. Preparing a statement only keeps its text. Whatever would change something is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.ipc

from dpsql.errors import GatewayError
from dpsql.gateway import flight_catalog as catalog
from dpsql.gateway import flight_messages as messages
from dpsql.gateway.asked import MOST_BODY, SETTINGS
from dpsql.gateway.encoding import RECEIPTS, json_bytes
from dpsql.gateway.flight_columns import KnownColumns
from dpsql.gateway.flight_java import as_given, columns_for_java, for_java, schema_for_java
from dpsql.gateway.flight_parameters import read_values, with_values
from dpsql.gateway.flight_session import Caller, Sessions, is_setting
from dpsql.gateway.flight_shelf import Shelf
from dpsql.gateway.http import Answering

_COMMAND = 2
_BATCH_BYTES = 1 << 20
_INVALID_NAME, _INVALID_VALUE = 1, 2
_CANCELLED, _CLOSED = 1, 1
# Where the only catalog and the only schema may be named in a session.
_PLACES = {"catalog": ("", "dpsql"), "schema": ("", "main")}


class AnsweringFlight(Answering, Protocol):
    """What Flight needs of a door beside `Answering`."""

    def known(self, token: str) -> None:
        """Raise for who has no token."""


@dataclass(frozen=True)
class Prepared:
    """A prepared statement: its text, and what was bound to it."""

    text: str
    values: list[object] | None = None


@dataclass
class Reply:
    """What a verb is answered with.

    Attributes
    ----------
    parts : iterable of bytes
        The messages, in their order.
    session : str or None
        The identifier that the client's session has from now on, where it changed.
    """

    parts: Iterator[bytes] | Sequence[bytes]
    session: str | None = None


class FlightSql:
    """The verbs over a door; threads may share it.

    Parameters
    ----------
    door : AnsweringFlight
    clock : callable
        Returns seconds.
    """

    def __init__(self, door: AnsweringFlight, clock: Callable[[], float] = time.monotonic) -> None:
        self._door = door
        self.sessions = Sessions()
        self._answers: Shelf[pa.Table] = Shelf(
            "ticket", seconds=300, most=1000, most_bytes=64 << 20, most_bytes_of_all=512 << 20, clock=clock
        )
        self._prepared: Shelf[list[Prepared]] = Shelf(
            "prepared statement", seconds=3600, most=256, most_bytes=4 << 20, most_bytes_of_all=64 << 20, clock=clock
        )
        self._columns = KnownColumns(door, clock)
        self._commands: dict[str, tuple[pa.Schema, Callable[[Caller, Any], pa.Table]]] = {
            "CommandGetSqlInfo": (catalog.INFO, lambda _, command: catalog.info(command.info)),
            "CommandGetXdbcTypeInfo": (
                catalog.TYPES,
                lambda _, command: catalog.types(command.data_type if command.HasField("data_type") else None),
            ),
            "CommandGetCatalogs": (catalog.CATALOGS, _nothing(catalog.CATALOGS)),
            "CommandGetDbSchemas": (catalog.DB_SCHEMAS, lambda _, command: catalog.db_schemas(command)),
            "CommandGetTables": (catalog.TABLES, self._tables),
            "CommandGetTableTypes": (
                catalog.TABLE_TYPES,
                lambda _, __: pa.table([[catalog.TABLE]], schema=catalog.TABLE_TYPES),
            ),
            "CommandGetPrimaryKeys": (catalog.PRIMARY_KEYS, _nothing(catalog.PRIMARY_KEYS)),
            "CommandGetExportedKeys": (catalog.FOREIGN_KEYS, _nothing(catalog.FOREIGN_KEYS)),
            "CommandGetImportedKeys": (catalog.FOREIGN_KEYS, _nothing(catalog.FOREIGN_KEYS)),
            "CommandGetCrossReference": (catalog.FOREIGN_KEYS, _nothing(catalog.FOREIGN_KEYS)),
        }
        self._actions: dict[str, tuple[str, Callable[[Caller, bytes], Reply]]] = {
            "CreatePreparedStatement": ("Keep a statement; nothing is charged.", self._prepare),
            "ClosePreparedStatement": ("Forget a statement.", self._close_prepared),
            "SetSessionOptions": (f"Set {', '.join(SETTINGS)}.", self._set_options),
            "GetSessionOptions": ("Return what is set.", self._get_options),
            "CloseSession": ("Forget what is set.", self._close_session),
            "CancelFlightInfo": ("Forget an answer; what was charged stays charged.", self._cancel),
            "CancelQuery": ("The same, as earlier drivers ask it.", self._cancel_query),
        }

    def check(self, caller: Caller) -> None:
        """Raise for who has no token."""
        self._door.known(caller.token)

    # The calls of the service.

    def flight_info(self, caller: Caller, body: bytes) -> Reply:
        """Answer a command, and return how its rows are fetched; a new statement is charged."""
        descriptor = messages.read("FlightDescriptor", body)
        name, command = _command(descriptor)
        if name in self._commands:
            schema = self._schema_of(name, command)
            return Reply([_info(descriptor, schema, bytes(descriptor.cmd))])
        text = self._statement(caller, name, command)
        answer = self._door.answer(caller.token, text, self.sessions.settings(caller))
        session = None
        table, receipts = answer.table, json_bytes(answer.receipts)
        if answer.settings:
            changes = {key: str(value) for key, value in answer.settings.items()}
            session = self.sessions.change(caller, changes)
            table = pa.table({"setting": list(changes), "value": list(changes.values())})
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), RECEIPTS: receipts})
        if caller.is_java:
            self._columns.remember(caller, text, table.schema)
            table = for_java(table)
        handle = self._answers.put(caller.owner, table, table.nbytes + 1000)
        ticket = messages.packed(messages.new("TicketStatementQuery", statement_handle=handle))
        return Reply([_info(descriptor, table.schema, ticket, len(table), receipts)], session)

    def schema(self, caller: Caller, body: bytes) -> Reply:
        """Return the columns of a command, and of a statement where they are known before it is answered."""
        name, command = _command(messages.read("FlightDescriptor", body))
        if name in self._commands:
            schema = self._schema_of(name, command)
        else:
            text = self._statement(caller, name, command)
            found = self._columns.of_statement(caller, text, self.sessions.settings(caller))
            if found is None:
                raise GatewayError(
                    "G031", "these columns are known when it is answered. GetFlightInfo asks it, and charges."
                )
            schema = found
        return Reply([messages.new("SchemaResult", schema=_bytes_of(schema)).SerializeToString()])

    def get(self, caller: Caller, body: bytes) -> Reply:
        """Return the rows of a ticket: an answer once, and what is told of datasets at any time."""
        name, command = messages.unpacked(messages.read("Ticket", body).ticket)
        if name == "TicketStatementQuery":
            return Reply(_streamed(self._answers.take(caller.owner, command.statement_handle)))
        if name not in self._commands:
            raise GatewayError("G024", "there is no such ticket of yours, or no more. Ask again: that is free.")
        return Reply(_streamed(self._commands[name][1](caller, command)))

    def put(self, caller: Caller, bodies: Sequence[bytes]) -> Reply:
        """Bind values to a prepared statement; nothing else may be put."""
        found = [messages.read("FlightData", body) for body in bodies]
        name, command = _command(found[0].flight_descriptor) if found else ("", None)
        if name != "CommandPreparedStatementQuery" or command is None:
            raise GatewayError("G031", "nothing is written through the gateway. Ask one SELECT, as a query.")
        [prepared] = kept = self._prepared.get(caller.owner, command.prepared_statement_handle)
        values = read_values([(one.data_header, one.data_body) for one in found if one.data_header])
        kept[0] = Prepared(prepared.text, as_given(values) if caller.is_java else values)
        result = messages.new(
            "DoPutPreparedStatementResult", prepared_statement_handle=command.prepared_statement_handle
        )
        return Reply([messages.new("PutResult", app_metadata=result.SerializeToString()).SerializeToString()])

    def action(self, caller: Caller, body: bytes) -> Reply:
        """Do what an action says."""
        action = messages.read("Action", body)
        if action.type not in self._actions:
            raise GatewayError("G031", "there is no such action here: answers are only read. ListActions lists them.")
        reply = self._actions[action.type][1](caller, action.body)
        return Reply([messages.new("Result", body=part).SerializeToString() for part in reply.parts], reply.session)

    def actions(self, _: Caller, __: bytes) -> Reply:
        """List the actions."""
        return Reply(
            [
                messages.new("ActionType", type=name, description=what).SerializeToString()
                for name, (what, _) in self._actions.items()
            ]
        )

    # Statements.

    def _statement(self, caller: Caller, name: str, command: Any) -> str:
        """Return the text of the statement that a command asks."""
        if name == "CommandStatementQuery":
            return _short(command.query)
        if name == "CommandPreparedStatementQuery":
            [prepared] = self._prepared.get(caller.owner, command.prepared_statement_handle)
            return with_values(prepared.text, prepared.values)
        raise GatewayError("G031", "there is no such command here. Ask one SELECT, as a query.")

    def _prepare(self, caller: Caller, body: bytes) -> Reply:
        name, request = messages.unpacked(body)
        if name != "ActionCreatePreparedStatementRequest":
            raise GatewayError("G021", "the body of the action is of another kind. Use a driver of Arrow Flight SQL.")
        text = _short(request.query)
        parameters = self._columns.parameters(caller, text)
        handle = self._prepared.put(caller.owner, [Prepared(text)], len(text) + 1000)
        result = messages.new("ActionCreatePreparedStatementResult", prepared_statement_handle=handle, is_update=False)
        if parameters is not None:
            result.parameter_schema = _bytes_of(parameters)
        if caller.is_java:  # a statement that is told to have no columns is an update for it
            columns = self._columns.of_statement(caller, text, self.sessions.settings(caller))
            known = pa.schema([("answer", pa.string())]) if columns is None else schema_for_java(columns)
            result.dataset_schema = _bytes_of(known)
        return Reply([messages.packed(result)])

    def _close_prepared(self, caller: Caller, body: bytes) -> Reply:
        name, request = messages.unpacked(body)
        if name == "ActionClosePreparedStatementRequest":
            self._prepared.take(caller.owner, request.prepared_statement_handle)
        return Reply([])

    def _cancel(self, caller: Caller, body: bytes) -> Reply:
        return self._cancelled(caller, messages.read("CancelFlightInfoRequest", body).info, "CancelFlightInfoResult")

    def _cancel_query(self, caller: Caller, body: bytes) -> Reply:
        name, request = messages.unpacked(body)
        info = messages.read("FlightInfo", request.info if name == "ActionCancelQueryRequest" else b"")
        return self._cancelled(caller, info, "ActionCancelQueryResult")

    def _cancelled(self, caller: Caller, info: Any, kind: str) -> Reply:
        for endpoint in info.endpoint:
            name, ticket = messages.unpacked(endpoint.ticket.ticket)
            if name == "TicketStatementQuery":
                self._answers.take(caller.owner, ticket.statement_handle)
        if kind == "ActionCancelQueryResult":
            return Reply([messages.packed(messages.new(kind, result=_CANCELLED))])
        return Reply([messages.new(kind, status=_CANCELLED).SerializeToString()])

    # Sessions.

    def _set_options(self, caller: Caller, body: bytes) -> Reply:
        changes: dict[str, str | None] = {}
        result = messages.new("SetSessionOptionsResult")
        for option in messages.read("SetSessionOptionsRequest", body).session_options:
            value = _option_text(option.value)
            if option.key in _PLACES:
                wrong = 0 if value is None or value in _PLACES[option.key] else _INVALID_VALUE
            elif option.key not in SETTINGS:
                wrong = _INVALID_NAME
            else:
                wrong = 0 if value is None or is_setting(option.key, value) else _INVALID_VALUE
                changes.update({} if wrong else {option.key: value})
            if wrong:
                error = messages.new("SessionError", value=wrong)
                result.errors.append(messages.new("SessionErrorOf", key=option.key[:100], value=error))
        session = self.sessions.change(caller, changes) if changes else None
        return Reply([result.SerializeToString()], session)

    def _get_options(self, caller: Caller, _: bytes) -> Reply:
        result = messages.new("GetSessionOptionsResult")
        for name, value in self.sessions.settings(caller).items():
            option = messages.new("SessionOptionValue", string_value=value)
            result.session_options.append(messages.new("SessionOption", key=name, value=option))
        return Reply([result.SerializeToString()])

    def _close_session(self, caller: Caller, _: bytes) -> Reply:
        self.sessions.close(caller)
        return Reply([messages.new("CloseSessionResult", status=_CLOSED).SerializeToString()])

    # What is told of datasets.

    def _schema_of(self, name: str, command: Any) -> pa.Schema:
        if name == "CommandGetTables" and command.include_schema:
            return catalog.TABLES_WITH_SCHEMA
        return self._commands[name][0]

    def _tables(self, caller: Caller, command: Any) -> pa.Table:
        names = sorted({str(one["name"]) for one in self._door.datasets(caller.token)})
        if command.HasField("table_name_filter_pattern"):
            pattern = command.table_name_filter_pattern
            if len(pattern) > 1000:
                raise GatewayError("G021", "the pattern of names is too long.")
            names = [name for name in names if catalog.is_like(name, pattern)]
        elsewhere = command.catalog or command.db_schema_filter_pattern.strip("%")
        if elsewhere or (command.table_types and catalog.TABLE not in command.table_types):
            names = []
        rows: list[dict[str, object]] = [{"table_name": name, "table_type": catalog.TABLE} for name in names]
        if not command.include_schema:
            return pa.Table.from_pylist(rows, schema=catalog.TABLES)
        for row, name in zip(rows, names, strict=True):
            columns = self._columns.of_dataset(caller, name)
            row["table_schema"] = columns_for_java(columns) if caller.is_java else columns
        return pa.Table.from_pylist(rows, schema=catalog.TABLES_WITH_SCHEMA)


def _nothing(schema: pa.Schema) -> Callable[[Caller, Any], pa.Table]:
    return lambda _, __: schema.empty_table()


def _command(descriptor: Any) -> tuple[str, Any]:
    """Return the name of the command of a descriptor, and the command."""
    if descriptor.type != _COMMAND:
        raise GatewayError("G031", "nothing is found by a path. Ask with a driver of Arrow Flight SQL.")
    return messages.unpacked(descriptor.cmd)


def _short(text: str) -> str:
    if len(text) > MOST_BODY:
        raise GatewayError("G003", f"the statement is longer than {MOST_BODY} characters. Ask a shorter one.")
    return text


def _option_text(value: Any) -> str | None:
    """Return the value of a session's option as text; None for one without a value."""
    for kind in ("string_value", "int64_value", "double_value"):
        if value.HasField(kind):
            return str(getattr(value, kind))
    if value.HasField("bool_value"):
        return "true" if value.bool_value else "false"
    return "" if value.HasField("string_list_value") else None


def _bytes_of(schema: pa.Schema) -> bytes:
    found: bytes = schema.serialize().to_pybytes()
    return found


def _info(descriptor: Any, schema: pa.Schema, ticket: bytes, rows: int = -1, receipts: bytes = b"") -> bytes:
    made = messages.new("FlightInfo", schema=_bytes_of(schema), total_records=rows, total_bytes=-1, ordered=True)
    made.flight_descriptor.CopyFrom(descriptor)
    made.endpoint.append(messages.new("FlightEndpoint", ticket=messages.new("Ticket", ticket=ticket)))
    made.app_metadata = receipts
    found: bytes = made.SerializeToString()
    return found


def _streamed(table: pa.Table) -> Iterator[bytes]:
    """Yield a table as messages of Flight, of about a megabyte each."""
    yield _data(table.schema.serialize())
    rows = max(1, _BATCH_BYTES // max(1, table.nbytes // max(1, len(table))))
    for batch in table.combine_chunks().to_batches(max_chunksize=rows):
        yield _data(batch.serialize())


def _data(message: pa.Buffer) -> bytes:
    found = pa.ipc.read_message(message)
    made = messages.new("FlightData", data_header=found.metadata.to_pybytes())
    if found.body is not None:
        made.data_body = found.body.to_pybytes()
    sent: bytes = made.SerializeToString()
    return sent
