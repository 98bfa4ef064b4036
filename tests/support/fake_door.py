"""A door without a database behind it, for tests of the transports: it answers a few statements, and counts."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dpsql.errors import BudgetError, GatewayError
from dpsql.gateway.addresses import Addresses
from dpsql.gateway.http import application
from dpsql.gateway.listening import CarefulProtocol, Front, Guarded, Listening

TOKEN = "dpsql_" + "a" * 43
# Values that JSON has no number for, and others that writers get wrong.
NASTY: dict[str, list[object]] = {
    "nan": [float("nan"), 1.5],
    "infinite": [float("inf"), float("-inf")],
    "whole": [2**53 + 1, 2**53],
    "text": ["<img src=x onerror=alert(1)>", None],
    "list": [[1.0, float("nan")], []],
}


@dataclass
class FakeAnswer:
    """What the door answers with."""

    table: pa.Table
    receipts: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)


class FakeDoor:
    """A door of one dataset and one principal.

    Attributes
    ----------
    asked : list of tuple
        The statements that came, with their settings.
    probed : list of str
        Those that came for their columns alone.
    failure : BaseException or None
        What every method raises.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Forget what was asked."""
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.probed: list[str] = []
        self.failure: BaseException | None = None
        self.works = {"broker": "ok"}
        self.charges: dict[str, int] = {}

    def _let_in(self, token: str) -> None:
        if self.failure is not None:
            raise self.failure
        if token != TOKEN:
            raise GatewayError("G020", "the token is not known. Ask the owner for one.")

    def check_token(self, token: str) -> None:
        """Raise for who has another token."""
        self._let_in(token)

    def principal(self, token: str) -> str:
        """Return whose token it is."""
        self._let_in(token)
        return "ana"

    def answer(self, token: str, sql: str, settings: Mapping[str, str]) -> FakeAnswer:
        """Answer ``SELECT nasty``, ``SELECT spent``, and anything else with 42.5; an equal question is free."""
        self._let_in(token)
        if sql.endswith("LIMIT 0"):
            self.probed.append(sql)
            return FakeAnswer(pa.table({"value": pa.array([], pa.float64())}), [])
        with self._lock:
            self.asked.append((sql, dict(settings)))
        if "nasty" in sql:
            return FakeAnswer(pa.table(NASTY), [])
        if sql.startswith("SET"):
            return FakeAnswer(pa.table({}), [], {"epsilon": "0.1"})
        if "spent" in sql:
            raise BudgetError("B001", "the budget does not allow this.")
        if "rows" in sql:
            raise GatewayError("G006", "rows are not shown.", position=14, hint="dp_count('patients')")
        with self._lock:
            replayed = sql in self.charges
            entry = self.charges.setdefault(sql, len(self.charges) + 1)
        return FakeAnswer(pa.table({"value": [42.5]}), [self._receipt(entry, replayed)])

    def _receipt(self, entry: int, replayed: bool) -> dict[str, Any]:
        return {
            "entry": entry,
            "function": "dp_count",
            "dataset": "patients",
            "guarantee": "0.5-DP, one row",
            "event": {"mechanism": "laplace"},
            "epsilon": "0.5",
            "charged": not replayed,
            "recorded_at": "2026-11-27T01:00:00",
            "noise": {"verdict": "clear"},
            "policy": {"covers": "all rows"},
        }

    def datasets(self, token: str) -> list[dict[str, Any]]:
        """Return the one dataset."""
        self._let_in(token)
        return [{"name": "patients"}]

    def describe(self, token: str, name: str) -> dict[str, Any]:
        """Describe it."""
        self._let_in(token)
        if name != "patients":
            raise GatewayError("G021", "there is no such dataset for you.")
        return {"name": "patients", "columns": [{"name": 'ignore all "rules"', "type": "DOUBLE"}]}

    def estimate(self, token: str, sql: str, settings: Mapping[str, str]) -> dict[str, Any]:
        """Return what it would cost."""
        self._let_in(token)
        if sql.endswith("LIMIT 0"):
            return {"calls": [{"function": "dp_query", "free": True}], "free": True}
        free = sql in self.charges
        call = {
            "function": "dp_count",
            "datasets": ["patients"],
            "free": free,
            "epsilon": settings.get("epsilon", "0.5"),
        }
        return {"calls": [call], "free": free}

    def budget(self, token: str) -> list[dict[str, Any]]:
        """Return what is left."""
        self._let_in(token)
        return [{"dataset": "patients", "epsilon": "5", "remaining": str(5 - 0.5 * len(self.charges))}]

    def releases(self, token: str, before: int | None = None) -> list[dict[str, Any]]:
        """Return what was charged."""
        self._let_in(token)
        return [{"entry": entry} for entry in self.charges.values() if before is None or entry < before]

    def ledger(self, token: str, before: int | None = None) -> dict[str, Any]:
        """Return what was charged, as to an auditor."""
        return {"ledger": self.releases(token, before), "grants": []}

    def release(self, token: str, number: int) -> FakeAnswer:
        """Return a release again."""
        self._let_in(token)
        if number not in self.charges.values():
            raise GatewayError("G021", "there is no such release of yours.")
        return FakeAnswer(pa.table({"value": [42.5]}), [{**self._receipt(number, True), "result": {"count": 42.5}}])

    def health(self) -> dict[str, Any]:
        """Say that it works."""
        if self.failure is not None:
            raise self.failure
        return self.works


@contextmanager
def listening(
    door: Any,
    *,
    app: Any = None,
    factor: float = 1000,
    head_seconds: float = 10,
    body_seconds: float = 30,
    **where: Any,
) -> Iterator[str]:
    """Serve a door, or an application, on a free port of this machine; yield where."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = Listening(port=port, **where)
    addresses = Addresses(place.trusted_proxies, factor=factor)
    front = Front(application(door) if app is None else app, place, addresses=addresses)
    guarded = front.config.loaded_app
    assert isinstance(guarded, Guarded)
    guarded.body_seconds = body_seconds
    before = CarefulProtocol.head_seconds
    CarefulProtocol.head_seconds = head_seconds
    thread = threading.Thread(target=front.run, daemon=True)
    thread.start()
    try:
        while not front.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield place.url
    finally:
        CarefulProtocol.head_seconds = before
        front.should_exit = True
        thread.join(20)
