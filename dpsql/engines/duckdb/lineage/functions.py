"""Compare the functions of a catalog with the overloads of a fresh DuckDB of this version.

DuckDB puts a function that a user registers into ``system.main`` and marks it ``internal``, like its own functions, and
a bound plan does not distinguish the two. So this module compares the catalog with a new database in memory, which has
the same extensions and no registered functions. A registered function of a new name is harmless: sources may not call
it (`dpsql.contract.expression.functions`). But a source, or a statement of dpsql, may call a further overload of a name
of DuckDB's or dpsql's in place of the original. So dpsql refuses such an overload, and a catalog that lacks a function
of DuckDB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

import duckdb

from dpsql.contract.expression.functions import ListedFunction, listed, types_of
from dpsql.contract.parameters import show
from dpsql.errors import SourceError
from dpsql.parsing import PARSER
from dpsql.rendering import call, cast, coalesce, concatenated, text

# The separator of the parts of a function's line.
_BETWEEN = "\n"
# Kinds of functions that an expression or FROM may call.
_KINDS = ("scalar", "aggregate", "window", "table")
_OWN = "dpsql_"

# One function of `duckdb_functions()` as a line: its kind, its name, and its signature.
LINE = concatenated(
    "function_type",
    *(
        part
        for column in (
            "function_name",
            cast("parameter_types", "VARCHAR"),
            coalesce("varargs", "''"),
            coalesce("return_type", "''"),
        )
        for part in (text(_BETWEEN), column)
    ),
)
# The schema of functions: nobody can create a macro there, and DuckDB registers functions nowhere else.
WHERE = f"database_name = 'system' AND schema_name = 'main' AND function_type IN ({', '.join(map(text, _KINDS))})"
# The loaded extensions that are not part of DuckDB itself.
EXTENSIONS = (
    f"SELECT {call('list', 'install_path')} FROM {call('duckdb_extensions')} "
    "WHERE loaded AND install_mode <> 'STATICALLY_LINKED'"
)


def refuse_foreign(lines: Iterable[str], extensions: Callable[[], Collection[str]]) -> None:
    """Raise if a catalog has other overloads of DuckDB's functions than DuckDB.

    Parameters
    ----------
    lines : iterable of str
        The functions of a catalog, see `LINE`.
    extensions : callable
        Returns the files of the loaded extensions; called if a fresh DuckDB has other functions.

    Raises
    ------
    SourceError
        S051.
    """
    functions = set(lines)
    own, own_names = fresh(())
    loaded = () if _is_own(functions, own, own_names) else tuple(sorted(extensions()))
    if loaded:
        own, own_names = fresh(loaded)
    added = sorted(functions - own)
    foreign = [line for line in added if _name_of(line) in own_names]
    mine = Counter(_name_of(line) for line in added if _name_of(line).startswith(_OWN))
    names = [*map(_name_of, foreign), *(name for name, count in sorted(mine.items()) if count > 1)]
    if names:
        raise SourceError(
            "S051",
            f"a function is registered under the name {show(names[0])}, which is a function of DuckDB's own: it may be "
            "called in its place, in any statement. Register it under another name on a new connection.",
        )
    lost = sorted(map(_name_of, own - functions))
    if lost:
        raise SourceError(
            "S051",
            f"DuckDB's own function {show(lost[0])} was removed from this database's catalog. Open a new connection; "
            "and register a function under a name that DuckDB does not have, since to remove it removes DuckDB's, too.",
        )


def _is_own(functions: Set[str], own: frozenset[str], own_names: frozenset[str]) -> bool:
    return own <= functions and not any(_name_of(line) in own_names for line in functions - own)


def _name_of(line: str) -> str:
    return line.split(_BETWEEN, 2)[1].lower()


@lru_cache(maxsize=16)
def fresh(extensions: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the functions of a new database with some extensions, and their names in lower case.

    An extension that DuckDB cannot load there adds none.
    """
    query = f"SELECT {LINE} FROM system.main.duckdb_functions() WHERE {WHERE}"
    rows = _rows_with(extensions, query) if extensions else PARSER.rows(query)
    lines = frozenset(line for (line,) in rows)
    return lines, frozenset(map(_name_of, lines))


def _rows_with(extensions: tuple[str, ...], query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(":memory:", config={"threads": 1, "allow_unsigned_extensions": True}) as connection:
        for file in extensions:
            with suppress(duckdb.Error):
                connection.execute(f"LOAD {text(file)}")
        return connection.execute(query).fetchall()


_NEWER = not duckdb.__version__.startswith("1.")


@cache
def own() -> Mapping[str, ListedFunction]:
    """Return DuckDB's own functions, and those of dpsql's that a source may call, by name in lower case."""
    return listed(_NEWER)


@cache
def types() -> frozenset[str]:
    """Return the names of DuckDB's own types."""
    return types_of(_NEWER)
