"""Parse and bind SQL with DuckDB, in a separate database without tables, extensions or settings."""

from __future__ import annotations

import atexit
import re
import threading
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import duckdb
from duckdb.sqltypes import DuckDBPyType

from dpsql.contract.query.privacy_options import CALL, CLAUSE
from dpsql.rendering import text

_CLAUSES = ("differential_privacy", "anonymization")
# How a query that is written anew names DuckDB's functions.
_QUALIFIED = ["system", ".", "main", "."]
_WORD = re.compile(rb"\w+|.", re.DOTALL)


class Parser:
    """A DuckDB in memory that parses and binds SQL, and holds no data."""

    def __init__(self) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._lock = threading.Lock()
        atexit.register(self.close)

    def value(self, query: str, *parameters: str) -> str:
        """Return the one string that a query returns."""
        [row] = self.rows(query, *parameters)
        return str(row[0])

    def rows(self, query: str, *parameters: str) -> list[tuple[Any, ...]]:
        """Return what a query returns."""
        with self._lock:
            return self._open().execute(query, parameters).fetchall()

    def tree(self, sql: str) -> str:
        """Return the syntax tree of an SQL string, as JSON."""
        try:
            return self.value("SELECT system.main.json_serialize_sql(?)::VARCHAR", sql)
        except duckdb.Error:  # DuckDB 1.5 raises if the SQL is nested too deeply
            return '{"error": true, "error_message": "nested too deeply"}'

    def plan(self, query: str) -> str:
        """Return the bound plan of a query, as JSON."""
        return self.value("SELECT system.main.json_serialize_plan(?)", query)

    def statements(self, sql: str) -> list[duckdb.Statement]:
        """Return parsed statements, which any connection can run; no setting of a caller affects them."""
        with self._lock:
            return self._open().extract_statements(sql)

    def type(self, name: str) -> DuckDBPyType:
        """Return a type by its name."""
        with self._lock:
            return self._open().sqltype(name)

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


def in_dp_query(statement: str) -> str:
    """Return a statement; one with a clause of privacy options as a call of `dp_query`."""
    return statement if with_call(statement) == statement else f"FROM dp_query({text(statement)})"


def with_call(sql: str) -> str:
    """Return a text with a call of `CALL` in place of its clause of privacy options, which DuckDB does not parse.

    The call is the first column of its SELECT. Everything behind it keeps its offset; an option moves by one byte.
    """
    return _with_clauses(sql, blank=False)


def without_call(sql: str) -> str:
    """Return a text with blanks in place of its clause of privacy options, or of the call that `with_call` wrote."""
    return _with_clauses(sql, blank=True)


def _with_clauses(sql: str, *, blank: bool) -> str:
    if not CLAUSE.search(sql):
        return sql
    data = bytearray(sql.encode())
    for begin, inside, end in _clauses(bytes(data)):
        clause = bytes(data[begin:end])
        if blank:
            data[begin:end] = re.sub(rb"[^\r\n]", b" ", clause)
        elif clause[:4].lower() == b"with":
            options = clause[inside:-1] if inside else b""
            data[begin:end] = (f"{CALL}(".encode().ljust(inside - 1) + options + b"),").ljust(len(clause))
    return data.decode()


def _clauses(sql: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the begin of each clause and call, the place of its options (0 without any), and its end.

    DuckDB's tokenizer finds them: never in a string, a comment or a quoted name.
    """
    tokens = [offset for offset, kind in duckdb.tokenize(sql.decode()) if kind.name != "comment"]
    words = [_WORD.match(sql, offset) for offset in tokens]
    texts = ["" if word is None else word[0].decode(errors="replace").lower() for word in words] + [""] * 4
    for at in range(1, len(tokens)):
        name = at + len(_QUALIFIED) if texts[at : at + len(_QUALIFIED)] == _QUALIFIED else at
        is_call = texts[name] == CALL
        if texts[at - 1] != "select" or not (is_call or (texts[at] == "with" and texts[at + 1] in _CLAUSES)):
            continue
        opening = name + 1 if is_call else at + 3
        if texts[opening] != "(" or not (is_call or texts[opening - 1] == "options"):
            yield tokens[at], 0, tokens[at + 1] + len(texts[at + 1])
            continue
        closing, depth = opening, 1
        while depth and closing + 1 < len(tokens):
            closing += 1
            depth += {"(": 1, ")": -1}.get(texts[closing], 0)
        last = closing
        if is_call:  # its comma, behind its alias
            last += next((more for more in (1, 3) if texts[closing + more] == ","), 0)
        yield tokens[at], tokens[opening] + 1 - tokens[at], tokens[last] + 1
