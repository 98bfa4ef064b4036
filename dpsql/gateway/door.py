"""Answer a statement for every transport. The door runs in the front, which has no data.

A box parses the statement and lists its private calls, the broker answers them, and the box computes the rest over the
released tables. If the answer of one call is the whole result, the box ends before the call. The door stores readings
for the next time that the same token sends the same text. The door neither knows the ledger nor parses SQL.
"""

from __future__ import annotations

import hashlib
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import field
from typing import Any, Protocol

import pyarrow as pa

from dpsql.dataclass import dataclass
from dpsql.errors import DpsqlError, GatewayError, original
from dpsql.gateway.frames import check_result, receive, send
from dpsql.gateway.functions import SYNTHETIC_ROWS
from dpsql.gateway.problems import advised

_MOST_IDLE = 32
_MOST_NOTED = 10_000
# Most characters of stored statements; with their readings they take some thirty times as much.
_MOST_READ = 1 << 18


class _Asks(Protocol):
    """A private call of a statement; see `dpsql.gateway.statement.PrivateCall`."""

    def to_json(self) -> dict[str, object]:
        """Return the call as JSON values."""


class _Says(Protocol):
    """A box's reading of a statement."""

    @property
    def calls(self) -> tuple[_Asks, ...]:
        """Its private calls."""

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings of a SET."""

    @property
    def is_whole(self) -> bool:
        """Whether its one call's answer is its result."""


class _Computes(Protocol):
    """A process for one statement."""

    def parse(self, text: str) -> Any:
        """Return the reading."""

    def finish(self, tables: list[Any]) -> pa.Table:
        """Return the result over the answers."""


class _Opens(Protocol):
    """Opens boxes."""

    def open(self) -> Any:
        """Return a box, as a context manager."""


@dataclass(frozen=True)
class Answer:
    """The answer to one statement.

    Attributes
    ----------
    table : pyarrow.Table
    receipts : list of dict
        One per private call, in order: entry, function, dataset, guarantee, cost, and whether it was charged now.
    settings : mapping
        Session settings that a SET changes, as strings for `Door.answer`; empty for any other statement.
    """

    table: pa.Table
    receipts: list[dict[str, Any]] = field(default_factory=list)
    settings: Mapping[str, str] = field(default_factory=dict)


class _ReadBefore:
    """Readings of the last statements, by the token that sent them; threads may share it.

    A reading depends on the text alone. So only the token's owner can learn that a text was sent before, and a
    hijacked box changes only what its own token asks by the same text.
    """

    def __init__(self) -> None:
        self._readings: OrderedDict[bytes, tuple[_Says, int]] = OrderedDict()  # least recently used first
        self._size = 0
        self._lock = threading.Lock()

    def get(self, token: str, sql: str) -> _Says | None:
        """Return the stored reading of a statement."""
        key = _key(token, sql)
        with self._lock:
            if key not in self._readings:
                return None
            self._readings.move_to_end(key)
            return self._readings[key][0]

    def keep(self, token: str, sql: str, reading: _Says) -> None:
        """Store a statement's reading."""
        key = _key(token, sql)
        with self._lock:
            if key not in self._readings:
                self._readings[key] = reading, len(sql)
                self._size += len(sql)
            while self._size > _MOST_READ:
                self._size -= self._readings.popitem(last=False)[1][1]


class Door:
    """Answers statements of token holders; threads may share it.

    Parameters
    ----------
    broker : str
        The broker's socket.
    boxes : Boxes or None
        Parse statements; None for a door that only passes calls on.
    serial : bool
        No box runs during another statement's release, so no box can detect that release by its slowdown.
    """

    def __init__(self, broker: str, boxes: _Opens | None = None, *, serial: bool = False) -> None:
        self._alone: AbstractContextManager[object] = threading.RLock() if serial else nullcontext()
        self._path = broker
        self._boxes = boxes
        self._before = _ReadBefore()
        self._idle: list[socket.socket] = []
        self._lock = threading.Lock()

    def answer(self, token: str, sql: str, settings: Mapping[str, str]) -> Answer:
        """Answer a statement.

        Parameters
        ----------
        token, sql : str
        settings : mapping of str to str
            ``epsilon``, ``delta``, ``dataset``, ``fresh``, ``max_age`` in hours, and ``idempotency_key``.

        Raises
        ------
        DpsqlError
            A refusal or failure: dpsql's own codes, and G codes.
        """
        self.check_token(token)
        with self._alone:
            reading = self._before.get(token, sql)
            if reading is None or not (reading.is_whole or reading.settings):
                with self._opened().open() as box:
                    reading = self._parsed(token, sql, box)
                    if not (reading.is_whole or reading.settings):
                        tables, receipts = self._called(token, sql, reading, settings)
                        table = _without_dictionaries(self._noted(token, sql, box.finish, tables))
                        return Answer(table, receipts)
            if reading.settings:
                return Answer(pa.table({}), [], {name: _text(value) for name, value in reading.settings.items()})
            [stream], receipts = self._called(token, sql, reading, settings)
            table = _table(stream)
            check_result(table.num_rows, table.nbytes)
            return Answer(table, receipts)

    def estimate(self, token: str, sql: str, settings: Mapping[str, str]) -> dict[str, Any]:
        """Return the cost of each private call, and whether the statement is free; read no data."""
        self.check_token(token)
        with self._alone:
            reading = self._before.get(token, sql)
            if reading is None:
                with self._opened().open() as box:
                    reading = self._parsed(token, sql, box)
        calls = [
            call for call in (private_call.to_json() for private_call in reading.calls) if call["function"] not in FREE
        ]
        prices = []
        if calls:
            request = {"want": "estimate", "calls": calls, "settings": dict(settings)}
            try:
                prices = self._ask(token, request)[0]["estimate"]
            except DpsqlError as error:
                raise advised(error, sql) from None
        return {"calls": prices, "free": all(price["free"] for price in prices)}

    def call(
        self, token: str, call: Mapping[str, object], settings: Mapping[str, str]
    ) -> tuple[dict[str, Any], list[bytes]]:
        """Return the receipts and the tables of a private call, or of ``calls``; a table is an Arrow IPC stream."""
        with self._alone:
            return self._ask(token, {"want": "call", **call, "settings": dict(settings)})

    def datasets(self, token: str) -> list[dict[str, Any]]:
        """Return the names that a token may query."""
        datasets: list[dict[str, Any]] = self._ask(token, {"want": "datasets"})[0]["datasets"]
        return datasets

    def describe(self, token: str, name: str) -> dict[str, Any]:
        """Return a name's public facts: columns, types, and the owner's declarations."""
        description: dict[str, Any] = self._ask(token, {"want": "describe", "name": name})[0]["describe"]
        return description

    def budget(self, token: str) -> list[dict[str, Any]]:
        """Return granted and spent budget by dataset."""
        budgets: list[dict[str, Any]] = self._ask(token, {"want": "budget"})[0]["budget"]
        return budgets

    def releases(self, token: str, before: int | None = None) -> list[dict[str, Any]]:
        """Return receipts of the token's last 200 releases (before an entry, if given), oldest first."""
        releases: list[dict[str, Any]] = self._ask(token, {"want": "releases", "before": before})[0]["releases"]
        return releases

    def release(self, token: str, number: int) -> Answer:
        """Return one own release by number; free."""
        reply, tables = self._ask(token, {"want": "release", "number": number})
        return Answer(_table(tables[0]), reply["receipts"])

    def ledger(self, token: str, before: int | None = None) -> dict[str, Any]:
        """Return the auditor's view: 200 entries of the datasets as ``ledger``, and all ``grants`` on them.

        The entries are the last ones (before an entry, if given), oldest first.
        """
        return self._ask(token, {"want": "ledger", "before": before})[0]

    def principal(self, token: str) -> str:
        """Return a token's principal."""
        return str(self._ask(token, {"want": "known"})[0]["principal"])

    def own(self, token: str, want: str, **fields: object) -> Any:
        """Return the field `want` of the broker's reply to an owner or auditor (`dpsql.gateway.owned`)."""
        return self._ask(token, {**fields, "want": want})[0].get(want)

    def health(self) -> dict[str, Any]:
        """Return health: ``{'broker': 'ok'}``."""
        try:
            health: dict[str, Any] = self._ask("", {"want": "health"})[0]["health"]
        except GatewayError:
            return {"broker": "lost"}
        return health

    def close(self) -> None:
        """Close idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def check_token(self, token: str) -> None:
        """Raise for an unknown token, before a box opens."""
        self._ask(token, {"want": "known"})

    def _parsed(self, token: str, sql: str, box: _Computes) -> _Says:
        """Return a box's reading, and store it."""
        reading: _Says = self._noted(token, sql, box.parse, sql)
        self._before.keep(token, sql, reading)
        return reading

    def _called(
        self, token: str, sql: str, reading: _Says, settings: Mapping[str, str]
    ) -> tuple[list[bytes], list[dict[str, Any]]]:
        """Return a statement's answers as Arrow streams, and their receipts."""
        if not reading.calls:
            return [], []
        calls = [call.to_json() for call in reading.calls]
        # All calls at once: the broker judges the statement as a whole.
        try:
            reply, tables = self.call(token, calls[0] if len(calls) == 1 else {"calls": calls}, settings)
        except DpsqlError as error:
            raise advised(error, sql) from None
        return tables, reply["receipts"]

    def _noted(self, token: str, sql: str, work: Callable[..., Any], argument: object) -> Any:
        """Return a box's result; report a refusal to the broker, which counts and logs refusals."""
        try:
            return work(argument)
        except GatewayError as error:
            with suppress(DpsqlError):
                self._ask(token, {"want": "refused", "code": error.code, "sql": sql[:_MOST_NOTED]})
            raise

    def _opened(self) -> _Opens:
        if self._boxes is None:
            raise GatewayError("G033", "the gateway takes no statements now. Try again in a while.")
        return self._boxes

    def _ask(self, token: str, request: Mapping[str, object]) -> tuple[dict[str, Any], list[bytes]]:
        """Return the broker's reply.

        The door replaces a closed connection once, before it sends on the new one: so it asks a question twice only if
        the broker never read the first.
        """
        with self._connection() as connection:
            send(connection, {"token": token, **request})
            reply, tables = receive(connection)
        if "error" in reply:
            raise _error_of(reply["error"])
        return reply, tables

    @contextmanager
    def _connection(self) -> Iterator[socket.socket]:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is not None and _is_closed(connection):
            connection.close()
            connection = None
        try:
            connection = connection or _connected(self._path)
            yield connection
        except (OSError, EOFError, GatewayError) as error:
            if connection is not None:
                connection.close()
            if isinstance(error, GatewayError) and error.code != "DPSQL-G098":
                raise
            failure = GatewayError("G033", "the broker is gone. Ask again in a while: what was answered is kept.")
        else:
            with self._lock:
                if len(self._idle) < _MOST_IDLE:
                    self._idle.append(connection)
                    return
            connection.close()
            return
        raise failure


# Calls without cost.
FREE = ("dp_budget", "dp_estimate", SYNTHETIC_ROWS, "show_tables", "describe")


def _key(token: str, sql: str) -> bytes:
    """Return a digest of a token and its statement; it reveals neither."""
    return hashlib.sha256(f"{token}\n{sql}".encode("utf-8", "surrogatepass")).digest()


def _connected(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _is_closed(connection: socket.socket) -> bool:
    """Return whether the peer closed an idle connection."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _error_of(fields: Mapping[str, Any]) -> DpsqlError:
    """Return the broker's error."""
    error = original(Exception(f"[DPSQL-{fields.get('code')}] {fields.get('message')}"))
    if error is None:
        return GatewayError("G033", "the broker is gone. Ask again in a while.")
    error.position, error.hint = fields.get("position"), fields.get("hint")
    return error


def _text(setting: object) -> str:
    """Return the value of a SET as a string."""
    if isinstance(setting, Mapping):
        return str(setting["number"])
    return str(setting).lower() if isinstance(setting, bool) else str(setting)


def _table(stream: bytes) -> pa.Table:
    with pa.ipc.open_stream(stream) as reader:
        return _without_dictionaries(reader.read_all())


def _without_dictionaries(table: pa.Table) -> pa.Table:
    """Return a table with ENUM columns as strings: a dictionary is not part of an answer."""
    schema = pa.schema([field.with_type(_plain(field.type)) for field in table.schema], table.schema.metadata)
    return table if schema == table.schema else table.cast(schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    return kind
