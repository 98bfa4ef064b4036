"""A query of plain SQL from Python: planned on a connection as its macro plans it, and run once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from dpsql.contract.asker import Asker
from dpsql.contract.parameters import plain_value
from dpsql.engines.duckdb.query_options import text_of
from dpsql.engines.duckdb.query_statement import QueryStatement, shown
from dpsql.engines.duckdb.releasing import AfterReleaseError, Turns, run_release
from dpsql.engines.duckdb.session import Session
from dpsql.errors import DpsqlError, InternalError, ParameterError
from dpsql.functions.estimate import of_query, query_to_estimate
from dpsql.functions.query import QueryPlan
from dpsql.ledger.rows import Entry

_SETTINGS = (
    "SELECT system.main.current_setting('search_path'), system.main.current_database(), "
    "system.main.current_setting('TimeZone'), system.main.json_serialize_sql(?)::VARCHAR"
)


@dataclass(frozen=True)
class Answered:
    """The answer of a query.

    Attributes
    ----------
    value : pyarrow.Table
    plan : QueryPlan or None
        None of a query that reads nobody's rows, which charged nothing.
    entry : Entry or None
        Its entry of the ledger.
    replayed : bool
        Whether it was stored before, so that nothing was charged.
    """

    value: pa.Table
    plan: QueryPlan | None = None
    entry: Entry | None = None
    replayed: bool = False


def planned_query(
    session: Session, turns: Turns, sql: object, arguments: Mapping[str, object], asker: Asker | None = None
) -> tuple[QueryStatement | None, str]:
    """Return what a query would run, and of one that reads nobody's rows its text; nothing is read or charged."""
    return session.queries.plan(*_bound(session, turns, sql, arguments), asker)


def expected_query(
    session: Session, turns: Turns, arguments: Mapping[str, object]
) -> list[dict[str, str | float | None]]:
    """Return what a query would cost and how noisy its columns would be, by the arguments of ``dp_estimate``."""
    with turns.alone():
        return of_query(session.queries.expected(*_bound(session, turns, *query_to_estimate(arguments))))


def _bound(
    session: Session, turns: Turns, sql: object, arguments: Mapping[str, object]
) -> tuple[object, str, Mapping[str, object], list[tuple[str, str]], list[tuple[str, str, str]]]:
    """Return a query, its tree, its arguments, and DuckDB's plans of what it reads and of what is written of it."""
    sql = text_of(sql)
    arguments = {name: plain_value(value) for name, value in arguments.items()}
    [(search_path, database, zone, tree)] = turns.rows(_SETTINGS, sql)
    seen = turns.plans(session.queries.tables(sql, tree, search_path, database, zone))
    texts = session.queries.cores(sql, tree, arguments, seen)
    written = zip(turns.plans(texts), turns.trees(texts), strict=True)
    return sql, tree, arguments, seen, [(text, plan, found) for (text, plan), found in written]


def run_query(
    session: Session,
    turns: Turns,
    sql: object,
    arguments: Mapping[str, object],
    before: Callable[[QueryStatement], None] | None = None,
    asker: Asker | None = None,
) -> Answered:
    """Return the answer of a query: asked and charged, or read from the ledger.

    `sql` is its text, or what `planned_query` has made of it. What is to be done `before` rows are read is done when
    the budget allows the query, and not for a stored answer.
    """
    with turns.alone():
        found, free = (
            (sql, "") if isinstance(sql, QueryStatement) else planned_query(session, turns, sql, arguments, asker)
        )
        if found is None:
            return Answered(_computed(turns, free, told=False))
        session.note(found.plan.function, found.plan, aggregate=False, shown=lambda: shown(found))
        stored = session.past.replay(found.plan)
        if stored is None and before is not None:
            before(found)
        if stored is None:
            value = _released(session, turns, found)
        else:
            value = _computed(turns, found.stored_sql())
    entry = stored or session.past.replay(found.plan)
    if entry is None:
        raise InternalError("I003", "the stored release is gone from the ledger. Run `dpsql ledger verify`.")
    return Answered(value, found.plan, entry, stored is not None)


def _released(session: Session, turns: Turns, found: QueryStatement) -> pa.Table:
    """Return what follows from the answers of a query that is asked and charged."""
    try:
        return run_release(session, turns, found.sql(), found.plan, lambda: session.past.replay(found.plan) is not None)
    except AfterReleaseError:
        # Once more, over the stored answers: what DuckDB says of these is no more than they say.
        return _computed(turns, found.stored_sql())


def _computed(turns: Turns, statement: str, *, told: bool = True) -> pa.Table:
    """Return what a statement that reads nobody's rows returns.

    Raises
    ------
    ParameterError
        P108: it fails; with DuckDB's text where that is `told`.
    """
    try:
        return turns.table(statement)
    except DpsqlError:
        raise
    except (duckdb.InterruptException, KeyboardInterrupt):
        raise
    except duckdb.Error as error:
        said = f": {str(error).strip().splitlines()[0].rstrip('.!')}" if told else ""
    kept = " The answers are stored, so that it is free." if told else ""
    raise ParameterError("P108", f"what the query computes of its answers fails{said}. Mend that, and ask again.{kept}")
