"""What an owner is warned of when a gateway starts: sources that may raise an error on a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

from dpsql.contract.names import source_sql
from dpsql.engines.duckdb.lineage.bound import MissingError, UnreadableError, read
from dpsql.engines.duckdb.lineage.failing import may_fail
from dpsql.gateway.granted import Granted
from dpsql.ledger import clock

if TYPE_CHECKING:
    from dpsql.context import Context


def raising(context: Context) -> dict[str, list[str]]:
    """Return what may raise in each source that somebody may ask about, by the source's name."""
    grants, now = context.ledger.grants(), clock.now()
    granted = (Granted(name, grants.of(name, now), context.ledger).names for name in grants.principals)
    causes = {name: _of_source(context, name) for name in sorted({name for names in granted for name in names})}
    return {name: parts for name, parts in causes.items() if parts}


def _of_source(context: Context, name: str) -> list[str]:
    try:
        [(text,)] = context.connection.execute(
            "SELECT system.main.json_serialize_plan(?)::VARCHAR", [f"FROM {source_sql(name)}"]
        ).fetchall()
        plan = read(text)
    except (duckdb.Error, MissingError, UnreadableError):  # it is refused when it is asked about
        return []
    return [] if plan is None else may_fail(plan)
