"""A database with a broker over it, in a process of its own, for tests of the gateway."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

import dpsql
from dpsql.contract.query import condition
from dpsql.gateway.door import Door
from dpsql.ledger.grants import Grant
from dpsql.ledger.ledger import Ledger

ROOT = Path(__file__).resolve().parents[2]
PEOPLE = 600
SECRET = "Zaphod-4711"


@dataclass
class Gateway:
    """A database, its broker and tokens.

    Attributes
    ----------
    folder : Path
    tokens : dict
        By principal.
    """

    folder: Path
    tokens: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def database(self) -> str:
        """The database's file."""
        return str(self.folder / "hospital.duckdb")

    @property
    def socket(self) -> str:
        """The broker's socket."""
        return str(self.folder / "run" / "broker")

    @property
    def log(self) -> Path:
        """The broker's log."""
        return self.folder / "audit.jsonl"

    def start(self, *options: str) -> None:
        """Start the broker, and wait until it listens."""
        command = [sys.executable, "-m", "dpsql.gateway.broker", self.database, "--socket", self.socket]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [*command, "--log", str(self.log), "--rates", "1000", *options], env=environment
        )
        door = Door(self.socket)
        for _ in range(1200):
            if door.health() == {"broker": "ok"}:
                door.close()
                return
            assert self.process.poll() is None, "the broker ended"
            time.sleep(0.05)
        raise TimeoutError("the broker does not listen")

    def kill(self) -> None:
        """Kill the broker, as a crash would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """Open the ledger to look at it."""
        opened = Ledger.open(f"{self.database}.dpsql-ledger")
        try:
            yield opened
        finally:
            opened.close()


def made(folder: Path, **grants: Mapping[str, Any]) -> Gateway:
    """Return a database of invented patients with one secret among them, and a token for each principal."""
    gateway = Gateway(folder)
    with dpsql.Context(gateway.database) as context:
        context.sql(
            "CREATE TABLE patients AS SELECT i AS id, CASE WHEN i % 2 = 0 THEN 'A' ELSE 'B' END AS ward, "
            "(i % 90)::DOUBLE AS age FROM range(600) r(i)"
        )
        context.sql(f"CREATE TABLE staff AS SELECT '{SECRET}' AS name, 7 AS salary")
        context.sql("CREATE VIEW adults AS SELECT * FROM patients WHERE age >= 18")
        stated: dict[str, Any] = {"privacy_unit": "id", "max_rows_per_unit": 1, "keys": {"ward": ["A", "B"]}}
        context.dp_protect("patients", epsilon=100, lower={"age": 0}, upper={"age": 90}, **stated)
        context.dp_protect("staff", epsilon=1)
        for principal, grant in grants.items():
            context.ledger.grant(Grant.of(principal, "patients", **grant))
            gateway.tokens[principal] = context.ledger.issue_token(principal).text
    return gateway


def tree_of(sql: str) -> str:
    """Return the tree of a query, as a box makes it."""
    with duckdb.connect() as connection:
        found = connection.execute("SELECT json_serialize_sql(?)::VARCHAR", [sql]).fetchone()
    assert found is not None
    return str(found[0])


def number(text: object) -> dict[str, str]:
    """Return a number as an argument."""
    return {"number": str(text)}


def count(epsilon: str = "0.1", source: str | None = "patients", **arguments: object) -> dict[str, object]:
    """Return a call of dp_count; a condition as a box sends it."""
    if isinstance(text := arguments.get("condition"), str):
        arguments["condition"] = {"condition": tree_of(condition.QUERY + text)}
    return {"function": "dp_count", "source": source, "arguments": {"epsilon": number(epsilon), **arguments}}
