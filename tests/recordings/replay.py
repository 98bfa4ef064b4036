"""Runs the cases, with entropy that each case's name decides.

The one place that knows where dpsql takes its randomness from, and it knows of Python's standard library alone: noise
is read from `os.urandom`, keys of samples and blocks from `secrets.token_bytes`. Names and tickets, which come from
`secrets` by other functions, stay as random as they are: no result may follow from them. A case runs in one thread, and
only there is entropy replaced: kernels that are compiled in the background may name files as they like.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import numpy as np
from cases import TABLES, Case

import dpsql

SHOWN = 20
_RENEWED = 25
_LEDGER = ("kind", "dataset", "function", "epsilon", "delta", "rho", "guarantee", "status")


class _Entropy:
    """Bytes of an extendable hash of a name, one after the other."""

    def __init__(self, name: str) -> None:
        self._seed, self._block, self._left = name.encode(), 0, b""

    def bytes(self, size: int, /) -> bytes:
        while len(self._left) < size:
            more = hashlib.shake_128(b"%d " % self._block + self._seed).digest(1 << 12)
            self._left, self._block = self._left + more, self._block + 1
        out, self._left = self._left[:size], self._left[size:]
        return out


@contextmanager
def fixed_entropy(name: str) -> Iterator[None]:
    """Replace the system's entropy in this process, until the block ends."""
    urandom, token_bytes, token_hex = os.urandom, secrets.token_bytes, secrets.token_hex
    changed: Any = secrets
    here, fixed = threading.get_ident(), _Entropy(name)
    os.urandom = lambda size, /: fixed.bytes(size) if threading.get_ident() == here else urandom(size)
    changed.token_bytes = lambda size=32: hashlib.shake_128(b"a key").digest(size)
    changed.token_hex = lambda size=32: token_bytes(size).hex()
    try:
        yield
    finally:
        os.urandom = urandom
        changed.token_bytes, changed.token_hex = token_bytes, token_hex


class Replay:
    """Connections on which cases run."""

    def __init__(self) -> None:
        self._shared = self._connect()
        self._runs = self._entries = 0

    def _connect(self) -> Any:
        with fixed_entropy("a connection"):
            connection = dpsql.connect()
        connection.execute("SET threads = 1")
        for statement in TABLES:
            connection.execute(statement)
        return connection

    def close(self) -> None:
        self._shared.close()

    def _renewed(self) -> Any:
        """Return the shared connection: now and then a new one, because every look at a ledger reads all of it."""
        self._runs += 1
        if self._runs % _RENEWED == 0:
            self._shared.close()
            self._shared, self._entries = self._connect(), 0
        return self._shared

    def run(self, case: Case) -> dict[str, Any]:
        """Run a case; return what is recorded of it."""
        connection = self._connect() if case.alone else self._renewed()
        before = 0 if case.alone else self._entries
        try:
            with fixed_entropy(case.name):
                rows = [row for statement in case.statements for row in _rows(connection, statement)]
            found = connection.execute(
                f"SELECT {', '.join(map(_quoted, _LEDGER))}, event FROM dp_ledger() WHERE sequence > {before} ORDER BY sequence"
            ).fetchall()
        finally:
            if case.alone:
                connection.close()
        if not case.alone:
            self._entries += len(found)
        entries = [
            {**dict(zip(_LEDGER, map(plain, entry[:-1]), strict=True)), "event": sha256(plain(entry[-1]))}
            for entry in found
        ]
        return {"sha256": sha256(rows), "rows": rows[:SHOWN], "ledger": entries}


def _quoted(name: str) -> str:
    return f'"{name}"'


def _rows(connection: Any, statement: str) -> list[Any]:
    """Return the rows of a statement, or the code and text of its refusal."""
    try:
        return [plain(row) for row in connection.execute(statement).fetchall()]
    except duckdb.Error as error:
        refusal = re.search(r"\[?DPSQL-\w+.*", str(error))
        return [["refused", refusal.group() if refusal else f"{type(error).__name__}: {error}"]]


def plain(value: Any) -> Any:
    """Return a value as JSON that tells any two values apart: doubles by the shortest digits that give them back."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    raise TypeError(f"no result has values of type {type(value).__name__}")


def sha256(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def arithmetic() -> str:
    """Return what this machine's linear algebra and functions make of a few numbers, to the last bit.

    Sums of doubles differ in their last bits with the processor, whose order of additions BLAS follows.
    """
    values = np.arange(1, 20001, dtype=np.float64).reshape(100, 200) % 1009 / 1009
    products = values @ values.T + np.eye(100)
    parts = (products, np.linalg.cholesky(products), np.linalg.eigvalsh(products), values.sum(axis=0), np.log1p(values))
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def same(found: Any, recorded: Any, *, exactly: bool) -> bool:
    """Whether two results are equal: to the last bit, or doubles but for rounding."""
    if exactly:
        return bool(found == recorded)
    return bool(found["ledger"] == recorded["ledger"]) and _close(found["rows"], recorded["rows"])


def _close(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_close, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_close(one[name], other[name]) for name in one)
    return bool(one == other)
