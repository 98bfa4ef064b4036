"""Parse and bind SQL with DuckDB, in a separate database without tables, extensions or settings."""

from __future__ import annotations

import atexit
import threading
from functools import cached_property

import duckdb


class Parser:
    """A DuckDB in memory that parses and binds SQL, and holds no data."""

    def __init__(self) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._lock = threading.Lock()
        atexit.register(self.close)

    def value(self, query: str, *parameters: str) -> str:
        """Return the one string that a query returns."""
        with self._lock:
            [row] = self._open().execute(query, parameters).fetchall()
        return str(row[0])

    def tree(self, sql: str) -> str:
        """Return the syntax tree of an SQL string, as JSON."""
        try:
            return self.value("SELECT system.main.json_serialize_sql(?)::VARCHAR", sql)
        except duckdb.Error:  # DuckDB 1.5 raises if the SQL is nested too deeply
            return '{"error": true, "error_message": "nested too deeply"}'

    def plan(self, query: str) -> str:
        """Return the bound plan of a query, as JSON."""
        return self.value("SELECT system.main.json_serialize_plan(?)", query)

    @cached_property
    def newer(self) -> bool:
        """Whether DuckDB uses IEEE 754 arithmetic by default: from 2.0 on, a logarithm of 0 is not an error."""
        return self.value("SELECT TRY(system.main.ln(0::DOUBLE)) IS NOT NULL") == "True"

    def hands_over(self, type_sql: str) -> bool:
        """Return whether DuckDB passes values of a type to Python; 1.5 does not pass VARIANT."""
        with self._lock:
            try:
                self._open().sql(f"SELECT NULL::{type_sql} AS given").to_arrow_table()
            except duckdb.Error:
                return False
        return True

    def _open(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            config: dict[str, str | bool | int | float | list[str]] = {
                "threads": 1,
                "autoload_known_extensions": False,
                "autoinstall_known_extensions": False,
            }
            self._connection = duckdb.connect(":memory:", config=config)
        return self._connection

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


PARSER = Parser()
