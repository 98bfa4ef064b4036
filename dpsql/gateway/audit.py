"""Log each request of the broker (time, principal, kind, digest, code, entry) and each failure.

The log is not part of the chain, so a flood of requests does not grow the ledger. Each request is a line of JSON with
a digest of its text; the log holds the text of a refused request only if the owner wants it. A failure inside dpsql
has the number that the user got and the lines of code on its path, but no messages, which may hold rows.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpsql.contract.boundary import stack

_MOST_BYTES, _KEPT, _MOST_TEXT = 16 << 20, 5, 10_000
# Bytes read for refusals.
_MOST_READ = 1 << 20


class Audit:
    """Log in a rotated file.

    Parameters
    ----------
    path : path or None
        None for no log.
    refused : bool
        Log the text of refused requests, without the token.
    """

    def __init__(self, path: str | os.PathLike[str] | None, *, refused: bool = False) -> None:
        self._refused = refused
        self._path = None if path is None else Path(path)
        self._lock = threading.Lock()

    def request(
        self, began: float, principal: str, request: Mapping[str, object], code: str, entry: int | None
    ) -> None:
        """Log a request."""
        want, text = request.get("want"), _request_text(request)
        kind = want if isinstance(want, str) and len(want) < 40 else "?"
        when = datetime.fromtimestamp(began, UTC).isoformat(timespec="milliseconds")
        line = {"time": when, "principal": principal, "kind": kind, "digest": _digest(text), "code": code}
        self._write({**line, "entry": entry, **({"asked": text[:_MOST_TEXT]} if code and self._refused else {})})

    def failure(self, number: str, error: BaseException) -> None:
        """Log a failure inside dpsql."""
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._write({"time": when, "failure": number, "text": stack(error)})

    def refusals(self, principals: Collection[str], most: int = 200) -> list[dict[str, Any]]:
        """Return some principals' refusals from the end of the log, latest first."""
        if self._path is None or not self._path.exists():
            return []
        with self._lock, self._path.open("rb") as file:
            file.seek(max(0, self._path.stat().st_size - _MOST_READ))
            lines = file.read().split(b"\n")
        refusals: list[dict[str, Any]] = []
        for line in reversed(lines):
            try:
                record = json.loads(line)
            except ValueError:  # the first line may be cut
                continue
            if record.get("code") and record.get("principal") in principals:
                refusals.append(record)
                if len(refusals) == most:
                    break
        return refusals

    def _write(self, line: Mapping[str, object]) -> None:
        if self._path is None:
            return
        text = json.dumps(line, separators=(",", ":"), default=repr) + "\n"
        try:
            self._append(self._path, text)
        except OSError as error:  # a release cannot be undone
            print(f"dpsql: the log of the gateway cannot be written: {error.strerror}", file=sys.stderr)

    def _append(self, path: Path, text: str) -> None:
        with self._lock:
            if path.exists() and path.stat().st_size > _MOST_BYTES:
                self._rotate(path)
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with open(descriptor, "a", encoding="utf-8") as file:
                file.write(text)

    @staticmethod
    def _rotate(path: Path) -> None:
        for number in range(_KEPT, 0, -1):
            older = path.with_name(f"{path.name}.{number}")
            if older.exists():
                older.replace(path.with_name(f"{path.name}.{number + 1}"))
        path.replace(path.with_name(f"{path.name}.1"))
        path.with_name(f"{path.name}.{_KEPT + 1}").unlink(missing_ok=True)


def _request_text(request: Mapping[str, object]) -> str:
    """Return a request as JSON text, without the token."""
    fields = {name: value for name, value in request.items() if name != "token"}
    try:
        return json.dumps(fields, sort_keys=True, default=repr)
    except (RecursionError, ValueError, TypeError):  # the broker refuses it
        return ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
