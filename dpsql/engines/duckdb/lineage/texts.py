"""The texts of views, macros and statements, as DuckDB's own parser reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

Tree = object
_NAME = r'(?:"(?:[^"]|"")+"|[^\s".(),]+)'
_PATH = rf"{_NAME}(?:\.{_NAME})*"
_COLUMNS = rf"(?:\s*\(\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\))?"
_SPACE = r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
# What stands before the query of a view, and of the statements that may hold an aggregate form.
_BEFORE = re.compile(
    rf"{_SPACE}(?:EXPLAIN\s+(?:ANALYZE\s+)?(?:\([^)]*\)\s*)?)?(?:CREATE\s+(?:OR\s+REPLACE\s+)?(?:\w+\s+)*?(?:VIEW|TABLE)\s+(?:IF\s+NOT\s+EXISTS\s+)?{_PATH}{_COLUMNS}\s+AS\s"
    rf"|INSERT\s+INTO\s+{_PATH}{_COLUMNS}\s(?=\s*(?:SELECT|FROM|WITH)\b))?",
    re.IGNORECASE | re.DOTALL,
)
# Without `read_by` no text can be read.
_cursor: ContextVar[Callable[[], duckdb.DuckDBPyConnection | None]] = ContextVar("cursor", default=lambda: None)
_COPY = re.compile(rf"{_SPACE}COPY\s*\((.*)\)\s*TO\s", re.IGNORECASE | re.DOTALL)


class UnreadableTextError(Exception):
    """A text is none that can be read."""


@contextmanager
def read_by(cursor: Callable[[], duckdb.DuckDBPyConnection | None]) -> Iterator[None]:
    """Let a connection of the caller's instance parse the texts in the body of a with statement."""
    before = _cursor.set(cursor)
    try:
        yield
    finally:
        _cursor.reset(before)


@lru_cache(maxsize=512)
def tree_of(sql: str) -> Tree:
    """Return the syntax tree of a query; of a view or a statement, the tree of the query in it.

    Raises
    ------
    UnreadableTextError
        The text holds no query, or more than one.
    """
    copied, before = _COPY.match(sql), _BEFORE.match(sql)
    found = _parsed(copied.group(1) if copied is not None else sql if before is None else sql[before.end() :])
    if found is None:
        raise UnreadableTextError
    return found


@lru_cache(maxsize=512)
def relations(sql: str) -> tuple[str, ...]:
    """Return the last parts of the names that a query reads; none of a text that cannot be read."""
    try:
        open_ones = [tree_of(sql)]
    except UnreadableTextError:
        return ()
    found: list[str] = []
    while open_ones:
        part = open_ones.pop()
        if isinstance(part, dict):
            found += [str(part.get("table_name", ""))] if part.get("type") == "BASE_TABLE" else []
            open_ones += part.values()
        elif isinstance(part, list):
            open_ones += part
    return tuple(found)


def expression_tree(sql: str) -> Tree:
    """Return the syntax tree of an expression, as that of a query which selects it."""
    return tree_of(f"SELECT {sql}")


def _parsed(sql: str) -> Tree | None:
    opened = _cursor.get()()
    if opened is None:
        return None
    with opened as parser:
        [(text,)] = parser.execute("SELECT system.main.json_serialize_sql(?)::VARCHAR", [sql]).fetchall()
    found = json.loads(text)
    statements = found.get("statements")
    return None if found.get("error") or not isinstance(statements, list) or len(statements) != 1 else statements[0]
