"""What a prompt stands before: a database (`dpsql.cli.runner`), or a gateway (`dpsql.cli.remote_runner`)."""

from __future__ import annotations

from typing import Protocol

import duckdb
from rich.table import Table

from dpsql.cli.output import Result


class Prompted(Protocol):
    """Runs the statements of a prompt, and shows what there is."""

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """Parses statements; of a database it runs them, too."""

    @property
    def place(self) -> str:
        """Where statements are answered."""

    def execute(self, statement: str) -> Result | None:
        """Run one statement, once; None where it has no rows to show."""

    def say_receipts(self, *, private: bool = False) -> None:
        """Say which calls of the last statement were free, and of a `private` one what it cost."""

    def raise_if_stopped(self) -> None:
        """Raise when a request to stop came too late to stop the last statement."""

    def budgets(self) -> Table:
        """Show what each dataset may spend, has spent and has left."""

    def policies(self, *dataset: str) -> Table:
        """Show what owners stated."""

    def entries(self, *dataset: str) -> Table:
        """Show what was released."""

    def explain(self, statement: str) -> str:
        """Say what a statement would run and charge."""

    def fill(self) -> list[str]:
        """Make the example tables."""
