"""The interface of a prompt to a database (`dpsql.cli.runner`) or a gateway (`dpsql.cli.remote_runner`).

The prompt completes and explains names: functions with their arguments, tables, columns, keywords.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import duckdb
from rich.table import Table

from dpsql.cli.output import Result
from dpsql.contract.names import IN_SELECT, OTHER_NAMES
from dpsql.dataclass import dataclass


class Prompted(Protocol):
    """Runs the statements of a prompt, and shows the budgets."""

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """Parses statements; for a database it also runs them."""

    @property
    def place(self) -> str:
        """Where statements run."""

    def execute(self, statement: str) -> Result | None:
        """Run one statement, once; return None if it has no rows to show."""

    def say_receipts(self, *, private: bool = False) -> None:
        """Report the free calls of the last statement, and the cost of a `private` statement."""

    def raise_if_stopped(self) -> None:
        """Raise if a request to stop came too late to stop the last statement."""

    def budgets(self) -> Table:
        """Show the total, spent and remaining budget of each dataset."""

    def policies(self, *dataset: str) -> Table:
        """Show declarations."""

    def entries(self, *dataset: str) -> Table:
        """Show the releases."""

    def explain(self, statement: str) -> str:
        """Return the SQL and the cost of a statement."""

    def fill(self) -> list[str]:
        """Create the example tables."""


_functions_sql = r"""
SELECT DISTINCT function_name, function_type, parameters FROM duckdb_functions()
WHERE regexp_matches(function_name, '^(dp|exact)_') AND function_type IN ('macro', 'table_macro')
ORDER BY ALL
"""
_columns_sql = """
SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns()
WHERE NOT internal AND database_name <> 'dpsql' AND NOT starts_with(table_name, '__dpsql__')
AND NOT starts_with(schema_name, 'dpsql_ledger_')
ORDER BY schema_name, table_name, column_index
"""


@dataclass(frozen=True)
class KnownFunction:
    """One SQL function of dpsql; a name may have a table form and an aggregate form."""

    name: str
    is_table: bool
    arguments: tuple[str, ...]


class KnownNames:
    """The names on a connection, read on first use.

    Parameters
    ----------
    runner : Prompted
    """

    def __init__(self, runner: Prompted) -> None:
        self._runner = runner

    def refresh(self) -> None:
        """Forget tables and columns, because a statement may have changed them."""
        self.__dict__.pop("columns", None)

    @cached_property
    def functions(self) -> list[KnownFunction]:
        """Every ``dp_`` and ``exact_`` function, without other names and places, which only say what to write."""
        return [
            KnownFunction(name, kind == "table_macro", tuple(arguments))
            for name, kind, arguments in self._read(_functions_sql)
            if name not in OTHER_NAMES and (name not in IN_SELECT or kind != "table_macro")
        ]

    @cached_property
    def keywords(self) -> list[str]:
        """DuckDB's keywords, in capitals, without the many unreserved keywords."""
        rows = self._read("SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'")
        common = "BEGIN BY COMMIT COPY DELETE DROP EXPLAIN INSERT REPLACE ROLLBACK SET TEMP UPDATE VALUES VIEW"
        return sorted({name.upper() for (name,) in rows} | set(common.split()))

    @cached_property
    def columns(self) -> dict[str, list[tuple[str, str]]]:
        """Tables and views, each with the names and types of its columns."""
        return self._columns()

    def _columns(self) -> dict[str, list[tuple[str, str]]]:
        """Read tables and views with their columns."""
        tables: dict[str, list[tuple[str, str]]] = {}
        for schema, table, column, kind in self._read(_columns_sql):
            name = table if schema in ("main", "temp") else f"{schema}.{table}"
            tables.setdefault(name, []).append((column, kind))
        return tables

    def columns_of(self, table: str) -> list[str]:
        """Return the columns of one table, or none if there is no such table."""
        table_name = table.replace('"', "").lower()
        return [name for key, columns in self.columns.items() if key.lower() == table_name for name, _ in columns]

    def arguments_of(self, function: str, *, table: bool) -> list[str]:
        """Return the argument names of a function's table or aggregate form; if it has only one form, of that form."""
        forms = [form for form in self.functions if form.name == function.lower()]
        fitting = [form for form in forms if form.is_table == table] or forms
        return [name for form in fitting for name in form.arguments]

    def _read(self, sql: str) -> list[tuple[str, ...]]:
        try:
            rows: list[tuple[str, ...]] = self._runner.connection.execute(sql).fetchall()
        except duckdb.Error:  # an aborted transaction refuses all reads until ROLLBACK
            return []
        return rows
