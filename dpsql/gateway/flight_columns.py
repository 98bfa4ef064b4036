"""Which columns a dataset and a statement have: told to drivers before anything is asked, and without a charge."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.ipc

from dpsql.errors import DpsqlError
from dpsql.gateway import flight_catalog as catalog
from dpsql.gateway.flight_kinds import parameter_schema
from dpsql.gateway.flight_parameters import parts_of, with_values
from dpsql.gateway.flight_session import Caller, Settings
from dpsql.gateway.http import Answering

_DATASET_SECONDS, _STATEMENT_SECONDS, _MOST = 60.0, 3600.0, 4096
_QUERIES = ("select", "with", "from", "values")
_Kept = TypeVar("_Kept")


class _Remembered(Generic[_Kept]):
    """What was found out some seconds ago, for each owner."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds, self._clock = seconds, clock
        self._kept: dict[bytes, tuple[float, _Kept]] = {}

    def get(self, caller: Caller, text: str) -> _Kept | None:
        until, found = self._kept.get(_digest(caller, text), (0.0, None))
        return found if until >= self._clock() else None

    def put(self, caller: Caller, text: str, found: _Kept) -> _Kept:
        if len(self._kept) >= _MOST:
            self._kept.clear()
        self._kept[_digest(caller, text)] = (self._clock() + self._seconds, found)
        return found


def _digest(caller: Caller, text: str) -> bytes:
    return hashlib.sha256(f"{caller.owner} {text}".encode()).digest()


class KnownColumns:
    """The columns of datasets and of statements; threads may share it.

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
        """Return the schema of a dataset, as a message of Arrow; what was told a minute ago is not asked again."""
        found = self._datasets.get(caller, name)
        if found is None:
            described = self._door.describe(caller.token, name)["columns"]
            found = self._datasets.put(caller, name, catalog.columns_schema(name, described))
        return found

    def remember(self, caller: Caller, text: str, schema: pa.Schema) -> None:
        """Keep which columns a statement was answered with."""
        self._statements.put(caller, text, schema.remove_metadata())

    def of_statement(self, caller: Caller, text: str, settings: Settings) -> pa.Schema | None:
        """Return the columns that a statement will have; None if they are known when it is answered alone.

        Where no row is asked of it the gateway answers from what is public. That nothing private is read is made sure
        of by its price, before; so a function such as ``dp_count`` in it says nothing yet. What stands for a value is
        NULL in it.
        """
        found = self._statements.get(caller, text)
        parts = list(parts_of(text))
        if found is not None or not parts or parts[0].text.lower() not in _QUERIES:
            return found
        while parts and parts[-1].text == ";":
            del parts[-1]
        values = {part.text if len(part.text) > 1 else part.begin for part in parts if part.kind == "value"}
        try:
            inner = with_values(text[: parts[-1].end], [None] * len(values))
            probe = f"SELECT * FROM (\n{inner}\n) AS answer LIMIT 0"
            if any(one.get("datasets") for one in self._door.estimate(caller.token, probe, settings)["calls"]):
                return None
            schema = self._door.answer(caller.token, probe, settings).table.schema
        except DpsqlError:  # told when the statement itself is asked
            return None
        return self._statements.put(caller, text, schema.remove_metadata())

    def parameters(self, caller: Caller, text: str) -> pa.Schema | None:
        """Return the kinds of a statement's parameters, from the columns of its datasets; None if there are none."""
        parts = list(parts_of(text))
        if not any(part.kind == "value" for part in parts):
            return None
        words = {part.name for part in parts if part.kind in ("word", "name")}
        names = (str(one["name"]) for one in self._door.datasets(caller.token))
        columns: dict[str, pa.DataType] = {}
        for name in sorted(name for name in names if name.lower() in words):
            for field in pa.ipc.read_schema(pa.py_buffer(self.of_dataset(caller, name))):
                if columns.setdefault(field.name.lower(), field.type) != field.type:
                    columns[field.name.lower()] = pa.string()
        return parameter_schema(text, columns)
