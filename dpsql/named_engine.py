"""Attach engines to a connection, so that SQL can name them."""

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

    Every connection of the same database then has the engine. It replaces another engine of the same name.

    Parameters
    ----------
    connection : DuckDB connection or Context
        dpsql need not be installed on it.
    name : str
        The engine's name in SQL, in budgets and in receipts; one word. Sessions that share the ledger should use the
        same name for the same catalog, because the name identifies budgets.
    engine : Engine
        The result of `dpsql.polars.engine` or a similar function.
    parts : int
        Number of groups of rows if a call needs all rows of a person at once. All rows of one group are in a worker's
        memory at once.

    Raises
    ------
    ParameterError
        P079: the name is not one word, or `engine` is not an engine.
    """
    attached = Attached(name, engine, parts)
    opened = connection if isinstance(connection, Context) else Context(connection)
    engines_of(opened._session).attach(attached)
