"""Answer the verbs of Flight SQL: each command, ticket and action.

GetFlightInfo of a statement runs it, because it must return the columns: so it charges, and DoGet returns the answer
once, to the same caller. Preparing a statement only stores its text. The gateway refuses every change. Drivers read
the columns of a dataset or statement before they run it, without a charge.

Arrow's JDBC driver misreads some values and changes others. Driver 19.0.0 shows the highest bit of an unsigned number
as a sign, reads the digits of a DECIMAL only from the field's metadata, writes each bound number into the double that
the gateway declared, and sends NULL for an unbound parameter.

A JDBC driver refuses to bind a number to a string parameter, or a string to a number parameter. A statement may be
invalid when it is prepared, so this module reads only its words to find a parameter's type: a column next to the
parameter, a function, an argument, a cast. Any other parameter is a string, which DuckDB compares with anything.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.ipc

from dpsql.dataclass import dataclass
from dpsql.errors import DpsqlError, GatewayError
from dpsql.functions.registry import FUNCTIONS
from dpsql.gateway import flight_catalog as catalog
from dpsql.gateway import flight_messages as messages
from dpsql.gateway.asked import MOST_BODY, SETTINGS
from dpsql.gateway.encoding import RECEIPTS, json_bytes
from dpsql.gateway.flight_catalog import arrow_type
from dpsql.gateway.flight_parameters import Word, parts_of, read_values, with_values
from dpsql.gateway.flight_session import Caller, Sessions, Settings, Shelf, is_setting
from dpsql.gateway.http import Answering

# Drivers convert bound values to these types: every number to a double, and a timestamp to milliseconds.
_NUMBER, _TRUTH, _TEXT, _DAY, _TIME = pa.float64(), pa.bool_(), pa.string(), pa.date32(), pa.timestamp("ms")
_CALLS = {
    **dict.fromkeys(("count", "sum", "avg", "mean", "median", "mode", "stddev", "stddev_pop", "stddev_samp"), _NUMBER),
    **dict.fromkeys(("variance", "var_pop", "var_samp", "quantile", "quantile_cont", "quantile_disc", "mad"), _NUMBER),
    **dict.fromkeys(("corr", "covar_pop", "covar_samp", "row_number", "rank", "dense_rank"), _NUMBER),
    **dict.fromkeys(("abs", "ceil", "ceiling", "floor", "round", "trunc", "sign", "sqrt", "exp", "ln"), _NUMBER),
    **dict.fromkeys(("log", "log2", "log10", "pow", "power", "length", "len", "char_length", "strlen"), _NUMBER),
    **dict.fromkeys(("strpos", "date_part", "datepart", "date_diff", "datediff", "epoch", "year", "month"), _NUMBER),
    **dict.fromkeys(("day", "quarter", "week", "dayofweek", "dayofmonth", "dayofyear", "hour", "minute"), _NUMBER),
    **dict.fromkeys(("lower", "upper", "lcase", "ucase", "trim", "ltrim", "rtrim", "left", "right"), _TEXT),
    **dict.fromkeys(("substring", "substr", "concat", "concat_ws", "replace"), _TEXT),
}
# Functions that return the type of their first argument.
_SAME = ("min", "max", "any_value", "first", "last", "coalesce", "nullif", "ifnull", "greatest", "least")
# Words before parentheses that are no function call.
_NO_CALLS = (
    *("and", "or", "not", "where", "having", "on", "when", "then", "else", "by", "select", "case", "in", "between"),
    *("is", "as", "like", "ilike", "limit", "offset"),
)
_SIGNS, _SUMS = frozenset("=<>!"), frozenset("+-*/%")
_BEFORE = {"limit": _NUMBER, "offset": _NUMBER, "like": _TEXT, "ilike": _TEXT, "glob": _TEXT, "escape": _TEXT}
_LITERALS = {"date": _DAY, "timestamp": _TIME, "timestamptz": _TIME}


def _arguments() -> dict[str, pa.DataType]:
    """Return the type of each argument of dpsql's functions that is one number or one string."""
    kinds: dict[str, pa.DataType] = {}
    for function in FUNCTIONS.values():
        for name, argument in function.plan.arguments.items():
            if argument.exact or argument.kind in ("Integer", "Number"):
                kinds.setdefault(name, _NUMBER)
    return kinds


_ARGUMENTS = _arguments()


def parameter_schema(text: str, columns: Mapping[str, pa.DataType]) -> pa.Schema | None:
    """Return the Arrow schema of a statement's parameters; None if there are none.

    Parameters
    ----------
    text : str
    columns : mapping
        Types of its datasets' columns, by name in lower case.
    """
    parts = list(parts_of(text))
    if not any(part.kind == "value" for part in parts):
        return None
    return _Reader(parts, {name: _kind_of(kind) for name, kind in columns.items()}).schema()


def _kind_of(kind: pa.DataType) -> pa.DataType:
    """Return the parameter type for a column comparison."""
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return _NUMBER
    if types.is_boolean(kind):
        return _TRUTH
    if types.is_date(kind):
        return _DAY
    return _TIME if types.is_timestamp(kind) and kind.tz is None else _TEXT


class _Reader:
    """A statement; determines each parameter's type from its neighbours."""

    def __init__(self, parts: Sequence[Word], columns: Mapping[str, pa.DataType]) -> None:
        self._parts, self._columns = parts, dict(columns)
        for at in range(1, len(parts) - 1):  # an alias has the type of its expression
            if self._is(at, "as") and parts[at + 1].kind in ("word", "name"):
                kind = self._ending(at - 1)
                if kind is not None:
                    self._columns.setdefault(self._name(at + 1), kind)

    def schema(self) -> pa.Schema:
        """Return the types of the parameters, in the order of their numbers."""
        parameters: dict[int, pa.DataType] = {}
        count = 0
        for at, part in enumerate(self._parts):
            if part.kind == "value":
                number = int(part.text[1:]) - 1 if len(part.text) > 1 else count
                count += 1
                kind = self._kind(at)
                parameters[number] = kind if parameters.get(number) in (None, kind) else _TEXT
        kinds = [parameters[number] or _TEXT for number in sorted(parameters)]
        return pa.schema([(f"parameter_{position}", kind) for position, kind in enumerate(kinds, 1)])

    def _kind(self, at: int) -> pa.DataType | None:
        return self._cast(at) or self._kind_before(at) or self._kind_after(at)

    def _cast(self, at: int) -> pa.DataType | None:
        """Return the type of ``?::DATE`` and ``CAST(? AS DATE)``."""
        if self._text(at + 1) == ":" and self._text(at + 2) == ":":
            return _kind_of(arrow_type(self._text(at + 3).upper()))
        if self._is(at + 1, "as") and self._text(at - 1) == "(" and self._text(at - 2).lower() in ("cast", "try_cast"):
            return _kind_of(arrow_type(self._text(at + 2).upper()))
        return None

    def _kind_before(self, at: int) -> pa.DataType | None:
        """Return a parameter's type from the words before it."""
        before, earlier = self._text(at - 1), self._text(at - 2)
        if before.lower() in _BEFORE and self._parts[at - 1].kind == "word":
            return _BEFORE[before.lower()]
        if (earlier, before) in ((":", "="), ("=", ">")):
            return _ARGUMENTS.get(self._name(at - 3))
        if self._is(at - 1, "between"):
            return self._ending(self._without(at - 2, "not"))
        if self._is(at - 1, "and") and self._is(at - 3, "between"):
            return self._ending(self._without(at - 4, "not"))
        if before in _SUMS:
            if before in "+-" and self._kind_at(at - 2) == "mark" and earlier != ")":
                return _NUMBER  # a sign
            return self._number(self._ending(at - 2))
        if before in ("(", ","):
            return self._listed(at - 1)
        position = at - 1
        while self._text(position) in _SIGNS:
            position -= 1
        return self._ending(position) if position < at - 1 else None

    def _listed(self, at: int) -> pa.DataType | None:
        """Return the type of the values of ``column IN (1, ?)``, from a position among them."""
        while at >= 0 and (self._text(at) in (",", "-") or self._parts[at].kind in ("value", "text", "number")):
            at -= 1
        if self._text(at) == "(" and self._is(at - 1, "in"):
            return self._ending(self._without(at - 2, "not"))
        return None

    def _kind_after(self, at: int) -> pa.DataType | None:
        """Return a parameter's type from the words after it."""
        if self._is(at + 1, "between"):
            return self._beginning(at + 2)
        if self._text(at + 1) in _SUMS:
            return self._number(self._beginning(at + 2))
        position = at + 1
        while self._text(position) in _SIGNS:
            position += 1
        return self._beginning(position) if position > at + 1 else None

    def _ending(self, at: int) -> pa.DataType | None:
        """Return an expression's type from its end."""
        if not 0 <= at < len(self._parts):
            return None
        part = self._parts[at]
        if part.kind == "number":
            return _NUMBER
        if part.kind == "text":
            return _LITERALS.get(self._text(at - 1).lower(), _TEXT)
        if part.kind in ("word", "name"):
            if self._text(at - 1) == ":" and self._text(at - 2) == ":":
                return _kind_of(arrow_type(part.text.upper()))
            return self._columns.get(self._name(at))
        if part.text != ")":
            return None
        deep, begin = 1, at
        while deep and begin > 0:
            begin -= 1
            deep += {")": 1, "(": -1}.get(self._text(begin), 0)
        return self._called(begin, at)

    def _called(self, begin: int, end: int) -> pa.DataType | None:
        """Return the type of a call, or of a parenthesis, between two positions."""
        before = self._parts[begin - 1] if begin > 0 else None
        if before is None or before.kind != "word" or before.text.lower() in _NO_CALLS:
            compares = any(self._text(at) in _SIGNS for at in range(begin, end))
            return None if compares else self._ending(end - 1)
        name = before.text.lower()
        if name in ("cast", "try_cast"):
            return _kind_of(arrow_type(self._text(end - 1).upper()))
        return self._beginning(begin + 1) if name in _SAME else _CALLS.get(name)

    def _beginning(self, at: int) -> pa.DataType | None:
        """Return an expression's type from its start."""
        while self._text(at) in ("-", "("):
            at += 1
        while self._text(at + 1) == ".":
            at += 2
        if not 0 <= at < len(self._parts):
            return None
        part = self._parts[at]
        if part.kind == "word" and self._text(at + 1) == "(":
            end, deep = at + 1, 1
            while deep and end < len(self._parts) - 1:
                end += 1
                deep += {"(": 1, ")": -1}.get(self._text(end), 0)
            return self._called(at + 1, end)
        if part.kind == "word" and part.text.lower() in _LITERALS and self._kind_at(at + 1) == "text":
            return _LITERALS[part.text.lower()]
        return self._ending(at)

    @staticmethod
    def _number(kind: pa.DataType | None) -> pa.DataType | None:
        return kind if kind == _NUMBER else None

    def _without(self, at: int, word: str) -> int:
        """Return a position, or the previous one if `word` is there."""
        return at - 1 if self._is(at, word) else at

    def _text(self, at: int) -> str:
        return self._parts[at].text if 0 <= at < len(self._parts) else ""

    def _kind_at(self, at: int) -> str:
        return self._parts[at].kind if 0 <= at < len(self._parts) else ""

    def _is(self, at: int, word: str) -> bool:
        return self._kind_at(at) == "word" and self._parts[at].text.lower() == word

    def _name(self, at: int) -> str:
        return self._parts[at].name if 0 <= at < len(self._parts) else ""


_DATASET_SECONDS, _STATEMENT_SECONDS, _MOST = 60.0, 3600.0, 4096
_QUERIES = ("select", "with", "from", "values")
_Kept = TypeVar("_Kept")


class _Remembered(Generic[_Kept]):
    """Results of the last seconds, for each owner."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds, self._clock = seconds, clock
        self._things: dict[bytes, tuple[float, _Kept]] = {}

    def get(self, caller: Caller, text: str) -> _Kept | None:
        until, thing = self._things.get(_digest(caller, text), (0.0, None))
        return thing if until >= self._clock() else None

    def put(self, caller: Caller, text: str, thing: _Kept) -> _Kept:
        if len(self._things) >= _MOST:
            self._things.clear()
        self._things[_digest(caller, text)] = (self._clock() + self._seconds, thing)
        return thing


def _digest(caller: Caller, text: str) -> bytes:
    return hashlib.sha256(f"{caller.owner} {text}".encode()).digest()


class KnownColumns:
    """Stores the columns of datasets and statements; threads may share it.

    Parameters
    ----------
    door : Answering
    clock : callable
        Returns seconds.
    """

    def __init__(self, door: Answering, clock: Callable[[], float] = time.monotonic) -> None:
        self._door = door
        self._datasets: _Remembered[bytes] = _Remembered(_DATASET_SECONDS, clock)
        self._statements: _Remembered[pa.Schema] = _Remembered(_STATEMENT_SECONDS, clock)

    def of_dataset(self, caller: Caller, name: str) -> bytes:
        """Return the schema of a dataset, as an Arrow message; schemas are cached for one minute."""
        columns = self._datasets.get(caller, name)
        if columns is None:
            described = self._door.describe(caller.token, name)["columns"]
            columns = self._datasets.put(caller, name, catalog.columns_schema(name, described))
        return columns

    def remember(self, caller: Caller, text: str, schema: pa.Schema) -> None:
        """Store the columns of a statement's answer."""
        self._statements.put(caller, text, schema.remove_metadata())

    def of_statement(self, caller: Caller, text: str, settings: Settings) -> pa.Schema | None:
        """Return the columns of a statement; None if only its answer tells them.

        The gateway answers a statement without rows from public facts. This method first checks the price, so it reads
        nothing private; a statement with a function such as ``dp_count`` gives None. Each parameter is NULL.
        """
        columns = self._statements.get(caller, text)
        parts = list(parts_of(text))
        if columns is not None or not parts or parts[0].text.lower() not in _QUERIES:
            return columns
        while parts and parts[-1].text == ";":
            del parts[-1]
        values = {part.text if len(part.text) > 1 else part.begin for part in parts if part.kind == "value"}
        try:
            inner = with_values(text[: parts[-1].end], [None] * len(values))
            probe = f"SELECT * FROM (\n{inner}\n) AS answer LIMIT 0"
            if any(price.get("datasets") for price in self._door.estimate(caller.token, probe, settings)["calls"]):
                return None
            schema = self._door.answer(caller.token, probe, settings).table.schema
        except DpsqlError:  # raised again when the statement itself runs
            return None
        return self._statements.put(caller, text, schema.remove_metadata())

    def parameters(self, caller: Caller, text: str) -> pa.Schema | None:
        """Return the types of a statement's parameters, from the columns of its datasets; None if there are none."""
        parts = list(parts_of(text))
        if not any(part.kind == "value" for part in parts):
            return None
        words = {part.name for part in parts if part.kind in ("word", "name")}
        names = (str(dataset["name"]) for dataset in self._door.datasets(caller.token))
        columns: dict[str, pa.DataType] = {}
        for name in sorted(name for name in names if name.lower() in words):
            for field in pa.ipc.read_schema(pa.py_buffer(self.of_dataset(caller, name))):
                if columns.setdefault(field.name.lower(), field.type) != field.type:
                    columns[field.name.lower()] = pa.string()
        return parameter_schema(text, columns)


_EXACT = 2**53
# The smallest signed type that holds all values of an unsigned type.
_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


def for_java(table: pa.Table) -> pa.Table:
    """Return a table whose numbers the driver shows correctly, with the digits of its DECIMAL columns."""
    schema = schema_for_java(table.schema)
    return table if schema == table.schema else table.cast(schema)


def columns_for_java(columns: bytes) -> bytes:
    """Return the schema of a dataset's columns with the types of `for_java`."""
    message: bytes = schema_for_java(pa.ipc.read_schema(pa.py_buffer(columns))).serialize().to_pybytes()
    return message


def schema_for_java(schema: pa.Schema) -> pa.Schema:
    """Return a table's schema with the types of `for_java`."""
    fields = []
    for field in schema:
        kind = _SIGNED.get(field.type, field.type)
        metadata = dict(field.metadata or {})
        if pa.types.is_decimal(kind):
            metadata[b"ARROW:FLIGHT:SQL:PRECISION"] = str(kind.precision).encode()
            metadata[b"ARROW:FLIGHT:SQL:SCALE"] = str(kind.scale).encode()
        fields.append(field.with_type(kind).with_metadata(metadata or None))
    return pa.schema(fields, schema.metadata)


def as_given(values: Sequence[object]) -> list[object]:
    """Return the bound values, with whole numbers as integers again.

    Raises
    ------
    GatewayError
        G013: a parameter is unbound, or a whole number outside a double's exact range.
    """
    return [_as_given(value) for value in values]


def _as_given(value: object) -> object:
    if value is None:  # nothing equals NULL: the question would cost budget and return nothing
        raise GatewayError("G013", "a parameter has no value. Set each one; write IS NULL for what is missing.")
    if not isinstance(value, float) or not value.is_integer():
        return value
    if abs(value) > _EXACT:
        raise GatewayError(
            "G013", "a driver of JDBC does not send a whole number beyond 2**53 as it is. Write it in the statement."
        )
    return int(value)


_COMMAND = 2
_BATCH_BYTES = 1 << 20
_INVALID_NAME, _INVALID_VALUE = 1, 2
_CANCELLED, _CLOSED = 1, 1
# Session options that may name the only catalog and schema.
_PLACES = {"catalog": ("", "dpsql"), "schema": ("", "main")}


class AnsweringFlight(Answering, Protocol):
    """Door that Flight needs, in addition to `Answering`."""

    def check_token(self, token: str) -> None:
        """Raise for an unknown token."""


@dataclass(frozen=True)
class Prepared:
    """A prepared statement: its text, and its bound values."""

    text: str
    values: list[object] | None = None


@dataclass
class Reply:
    """The reply to a verb.

    Attributes
    ----------
    parts : iterable of bytes
        The messages, in their order.
    session : str or None
        The session's new identifier, if it changed.
    """

    parts: Iterator[bytes] | Sequence[bytes]
    session: str | None = None


class FlightSql:
    """Answers verbs over a door; threads may share it.

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
        """Raise for an unknown token."""
        self._door.check_token(caller.token)

    # Calls of the service.

    def flight_info(self, caller: Caller, body: bytes) -> Reply:
        """Answer a command, and return the ticket for its rows; charge a new statement."""
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
        """Return the columns of a command; for a statement, only if they are known before its answer."""
        name, command = _command(messages.read("FlightDescriptor", body))
        if name in self._commands:
            schema = self._schema_of(name, command)
        else:
            text = self._statement(caller, name, command)
            columns = self._columns.of_statement(caller, text, self.sessions.settings(caller))
            if columns is None:
                raise GatewayError(
                    "G031", "these columns are known when it is answered. GetFlightInfo asks it, and charges."
                )
            schema = columns
        return Reply([messages.new("SchemaResult", schema=_bytes_of(schema)).SerializeToString()])

    def get(self, caller: Caller, body: bytes) -> Reply:
        """Return the rows of a ticket: an answer once, and facts on datasets at any time."""
        name, command = messages.unpacked(messages.read("Ticket", body).ticket)
        if name == "TicketStatementQuery":
            return Reply(_streamed(self._answers.take(caller.owner, command.statement_handle)))
        if name not in self._commands:
            raise GatewayError("G024", "there is no such ticket of yours, or no more. Ask again: that is free.")
        return Reply(_streamed(self._commands[name][1](caller, command)))

    def put(self, caller: Caller, bodies: Sequence[bytes]) -> Reply:
        """Bind values to a prepared statement; refuse any other put."""
        parts = [messages.read("FlightData", body) for body in bodies]
        name, command = _command(parts[0].flight_descriptor) if parts else ("", None)
        if name != "CommandPreparedStatementQuery" or command is None:
            raise GatewayError("G031", "nothing is written through the gateway. Ask one SELECT, as a query.")
        [prepared] = slot = self._prepared.get(caller.owner, command.prepared_statement_handle)
        values = read_values([(part.data_header, part.data_body) for part in parts if part.data_header])
        slot[0] = Prepared(prepared.text, as_given(values) if caller.is_java else values)
        result = messages.new(
            "DoPutPreparedStatementResult", prepared_statement_handle=command.prepared_statement_handle
        )
        return Reply([messages.new("PutResult", app_metadata=result.SerializeToString()).SerializeToString()])

    def action(self, caller: Caller, body: bytes) -> Reply:
        """Perform an action."""
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
        """Return the text of a command's statement."""
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
        if caller.is_java:  # it treats a statement without columns as an update
            columns = self._columns.of_statement(caller, text, self.sessions.settings(caller))
            schema = pa.schema([("answer", pa.string())]) if columns is None else schema_for_java(columns)
            result.dataset_schema = _bytes_of(schema)
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

    # Facts on datasets.

    def _schema_of(self, name: str, command: Any) -> pa.Schema:
        if name == "CommandGetTables" and command.include_schema:
            return catalog.TABLES_WITH_SCHEMA
        return self._commands[name][0]

    def _tables(self, caller: Caller, command: Any) -> pa.Table:
        names = sorted({str(dataset["name"]) for dataset in self._door.datasets(caller.token)})
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
    """Return the name of a descriptor's command, and the command."""
    if descriptor.type != _COMMAND:
        raise GatewayError("G031", "nothing is found by a path. Ask with a driver of Arrow Flight SQL.")
    return messages.unpacked(descriptor.cmd)


def _short(text: str) -> str:
    if len(text) > MOST_BODY:
        raise GatewayError("G003", f"the statement is longer than {MOST_BODY} characters. Ask a shorter one.")
    return text


def _option_text(value: Any) -> str | None:
    """Return the value of a session option as a string; None without a value."""
    for kind in ("string_value", "int64_value", "double_value"):
        if value.HasField(kind):
            return str(getattr(value, kind))
    if value.HasField("bool_value"):
        return "true" if value.bool_value else "false"
    return "" if value.HasField("string_list_value") else None


def _bytes_of(schema: pa.Schema) -> bytes:
    message: bytes = schema.serialize().to_pybytes()
    return message


def _info(descriptor: Any, schema: pa.Schema, ticket: bytes, rows: int = -1, receipts: bytes = b"") -> bytes:
    info = messages.new("FlightInfo", schema=_bytes_of(schema), total_records=rows, total_bytes=-1, ordered=True)
    info.flight_descriptor.CopyFrom(descriptor)
    info.endpoint.append(messages.new("FlightEndpoint", ticket=messages.new("Ticket", ticket=ticket)))
    info.app_metadata = receipts
    body: bytes = info.SerializeToString()
    return body


def _streamed(table: pa.Table) -> Iterator[bytes]:
    """Yield a table as Flight messages, of about a megabyte each."""
    yield _data(table.schema.serialize())
    rows = max(1, _BATCH_BYTES // max(1, table.nbytes // max(1, len(table))))
    for batch in table.combine_chunks().to_batches(max_chunksize=rows):
        yield _data(batch.serialize())


def _data(message: pa.Buffer) -> bytes:
    arrow_message = pa.ipc.read_message(message)
    flight_data = messages.new("FlightData", data_header=arrow_message.metadata.to_pybytes())
    if arrow_message.body is not None:
        flight_data.data_body = arrow_message.body.to_pybytes()
    sent: bytes = flight_data.SerializeToString()
    return sent
