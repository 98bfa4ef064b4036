"""Engines that SQL names, attached to a connection."""

from __future__ import annotations

import duckdb

from dpsql.context import Context
from dpsql.contract.boundary import public_sql
from dpsql.engines.attached import PARTS, Attached, engines_of
from dpsql.engines.port import Engine


@public_sql
def attach_engine(
    connection: duckdb.DuckDBPyConnection | Context, name: str, engine: Engine, *, parts: int = PARTS
) -> None:
    """Let SQL on a connection name the sources of an engine: ``FROM dp_count('visits', ..., engine := 'lake')``.

    Every connection of the same database has the engine then. Another engine of this name is replaced.

    Parameters
    ----------
    connection : DuckDB connection or Context
        It need not have dpsql installed.
    name : str
        The engine's name in SQL, in budgets and in receipts; one word. Other sessions that share the ledger should
        give the same catalog the same name, because budgets are kept under it.
    engine : Engine
        Such as `dpsql.polars.engine` and its like make.
    parts : int
        Number of parts that rows are grouped into where a call needs all rows of a person at once. All rows of one part
        are in the memory of a worker at once.

    Raises
    ------
    ParameterError
        P079: the name is not one word, or `engine` is not an engine.
    """
    attached = Attached(name, engine, parts)
    opened = connection if isinstance(connection, Context) else Context(connection)
    engines_of(opened._session).attach(attached)
