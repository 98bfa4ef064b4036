"""Which functions of a catalog are DuckDB's own: exactly the overloads that a fresh DuckDB of this version has.

A function that a user registers stands in ``system.main`` and is marked ``internal``, as DuckDB's own are, and nothing
in a bound plan tells them apart. So the functions of the catalog are compared with those of a new database in memory,
into which nobody has registered anything and which has the same extensions loaded. A registered function of a new name
is no matter here: sources may not call it (`dpsql.contract.expression.functions`). A further overload of a name of
DuckDB's, or of dpsql's, may be called in place of it, in a source and in dpsql's own statements, and is refused; so is
a catalog that lacks one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from functools import cache, lru_cache

import duckdb

from dpsql.contract.expression.functions import ListedFunction, listed, types_of
from dpsql.contract.parameters import show
from dpsql.errors import SourceError
from dpsql.rendering import call, cast, coalesce, concatenated, text

# What stands between the parts of a function's line.
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
# Where they are: nobody can create a macro there, and functions are registered nowhere else.
WHERE = f"database_name = 'system' AND schema_name = 'main' AND function_type IN ({', '.join(map(text, _KINDS))})"
# The extensions that are loaded into an instance, and not part of DuckDB itself.
EXTENSIONS = (
    f"SELECT {call('list', 'install_path')} FROM {call('duckdb_extensions')} "
    "WHERE loaded AND install_mode <> 'STATICALLY_LINKED'"
)


def refuse_foreign(lines: Iterable[str], extensions: Callable[[], Collection[str]]) -> None:
    """Raise unless the functions of DuckDB's names are exactly its own.

    Parameters
    ----------
    lines : iterable of str
        The functions of a catalog, see `LINE`.
    extensions : callable
        Returns the files of the extensions that are loaded into it, if a fresh DuckDB has other functions.

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

    An extension that cannot be loaded there gives none.
    """
    with duckdb.connect(":memory:", config={"threads": 1, "allow_unsigned_extensions": True}) as connection:
        for file in extensions:
            try:
                connection.execute(f"LOAD {text(file)}")
            except duckdb.Error:
                continue
        rows = connection.execute(f"SELECT {LINE} FROM system.main.duckdb_functions() WHERE {WHERE}").fetchall()
    lines = frozenset(line for (line,) in rows)
    return lines, frozenset(map(_name_of, lines))


_NEWER = not duckdb.__version__.startswith("1.")


@cache
def own() -> Mapping[str, ListedFunction]:
    """Return every function of DuckDB's own, and of dpsql's that may stand in a source, by its name in lower case."""
    return listed(_NEWER)


@cache
def types() -> frozenset[str]:
    """Return the names of DuckDB's own types."""
    return types_of(_NEWER)
