"""Run the steps of a query of plain SQL: its sources, its plan at bind, one gate for all parts, and one release."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from dpsql.arrays import from_values
from dpsql.engines.duckdb.lineage.texts import catalogued
from dpsql.engines.duckdb.query_planner import CORES, GATE, query_lines
from dpsql.engines.duckdb.releases import QueryAnswer, answers
from dpsql.engines.duckdb.running import RunningCall, resolved
from dpsql.engines.duckdb.session import Session
from dpsql.errors import InternalError
from dpsql.functions.estimate import of_query, query_to_estimate
from dpsql.functions.query import QueryCall, QueryPlan
from dpsql.functions.query_bounds import CoreBoundsCall, WaitingCall
from dpsql.functions.query_rows import RowsCall, limited
from dpsql.functions.registry import plan_from_json
from dpsql.ledger.ledger import Entry
from dpsql.parsing import with_call
from dpsql.udfs.release import left_out
from dpsql.udfs.values import ESTIMATED, Plans, UdfSpec, nested, seen_of, struct_list

_TICKET = [("ticket", pa.int64()), ("zero", pa.float64())]
_Text: TypeAlias = dict[str, str | None]
_TEXTS = struct_list({"query": "VARCHAR", "plan": "VARCHAR"})
_GATE = pa.struct([*_TICKET, ("parts", pa.list_(pa.struct(_TICKET)))])


def parsed(session: Session) -> Callable[..., str | None]:
    """Bind (sql) → the text that DuckDB parses, with a call in place of privacy options. Pure."""
    return lambda sql: None if sql is None else with_call(str(sql))


def tables(session: Session) -> Callable[..., list[str]]:
    """Bind (sql, tree, search path, database, time zone) → the queries whose plans show the tables read. Pure."""
    return session.queries.tables


def cores(session: Session) -> Callable[..., list[_Text]]:
    """Bind (sql, tree, arguments, plans of its tables) → the next queries to plan, and the queries with plans. Pure."""

    def run(sql: object, tree: object, arguments: Mapping[str, object], seen: Plans) -> list[_Text]:
        return _texts(session.queries.cores(sql, tree, left_out("dp_query", arguments), seen_of(seen)), seen)

    return run


def _texts(queries: Sequence[str], seen: Plans) -> list[_Text]:
    """Return the queries without plans, before the queries with plans."""
    missing: list[_Text] = [{"query": query, "plan": None} for query in queries]
    return missing + [{**entry} for entry in seen or ()]


def _bound(texts: Plans) -> tuple[list[tuple[str, str]], list[tuple[str, str, str]]]:
    """Return the plans of a query's tables, and the plans and trees of its other queries."""
    listed = texts or ()
    seen = [(entry["query"], entry["plan"]) for entry in listed if entry["tree"] is None]
    return seen, [(entry["query"], entry["plan"], entry["tree"]) for entry in listed if entry["tree"] is not None]


def plan(session: Session) -> Callable[..., str]:
    """Bind (sql, tree, arguments, all queries with their plans) → the statement to run. Pure."""

    def run(sql: object, tree: object, arguments: Mapping[str, object], texts: Plans) -> str:
        statement, free = session.queries.plan(sql, tree, left_out("dp_query", arguments), *_bound(texts))
        if statement is None:
            return free
        session.note(statement.plan.function, statement.plan, aggregate=False, lines=partial(query_lines, statement))
        return statement.sql() if session.past.replay(statement.plan) is None else statement.stored_sql()

    return run


def expected(session: Session) -> Callable[..., list[dict[str, Any]]]:
    """Bind (tree, arguments of dp_estimate, settings, all queries with their plans) → the cost of a query.

    DuckDB may run this in another thread than the request for the tables, so the arguments repeat its settings.
    """

    def run(tree: object, request: Mapping[str, object], settings: Sequence[str], texts: Plans) -> list[dict[str, Any]]:
        sql, arguments = query_to_estimate(request)
        session.queries.tables(sql, tree, *settings)
        return of_query(session.queries.expected(sql, tree, arguments, *_bound(texts)))

    return run


def expected_cores(session: Session) -> Callable[..., list[_Text]]:
    """Bind (tree, arguments of dp_estimate, plans of its tables, settings) → the queries of `cores`."""

    def run(tree: object, request: Mapping[str, object], seen: Plans, settings: Sequence[str]) -> list[_Text]:
        sql, arguments = query_to_estimate(request)
        session.queries.tables(sql, tree, *settings)
        return _texts(session.queries.cores(sql, tree, arguments, seen_of(seen)), seen)

    return run


def gate(session: Session) -> Callable[..., pa.Array]:
    """Bind (plan, probes of the parts' rows, SQL types of their keys, catalog) → a ticket, and one for each part."""

    def run(plans: pa.Array, probes: pa.StructArray, types: pa.Array, texts: pa.Array) -> pa.Array:
        if len(plans) != 1:
            raise nested()
        checked = _query(plan_from_json(plans[0].as_py()))
        session.gate_query(checked, catalogued(texts[0].as_py()))
        kinds, spelled = [field.type for field in probes.type], types[0].as_py()
        calls = [
            resolved(part.plan, part.plan.function, probe, listed or ())
            for part, probe, listed in zip(checked.parts, kinds, spelled, strict=True)
        ]
        session.check(checked)
        ticket, tickets = session.open_query(QueryCall.of(checked, calls))
        parts = [{"ticket": part_ticket, "zero": 0.0} for part_ticket in tickets]
        return from_values([{"ticket": ticket, "zero": 0.0, "parts": parts}], _GATE)

    return run


def free(session: Session) -> Callable[..., pa.Array]:
    """Bind (paths of public tables, all tables with their numbers) → true, if these are the declared public tables."""

    def run(paths: pa.Array, tables: pa.Array) -> pa.Array:
        for read, relations in zip(paths.to_pylist(), tables.to_pylist(), strict=True):
            session.sources.catalog()
            session.sources.refuse_other_tables(
                map(tuple, read), catalogued({"views": (), "tables": relations}).numbers
            )
        return pa.array([True] * len(paths))

    return run


def learn_rows(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket of a part, ticket of the part that draws its limit) → the first ticket, after the part learns it."""

    def learn_part(ticket: int, drawing: int) -> int:
        def learn(running: RunningCall) -> int:
            other = session.running(drawing, private=True)
            row_limit = other.call_as(RowsCall).limit
            if running.query is None or other.query is not running.query or row_limit is None:
                raise InternalError("I004", "a part is of another query. Use the dp_ functions.")
            plan = running.call.plan
            call = replace(running.call, plan=limited(plan, row_limit))
            call.check()
            running.limit_rows(call, row_limit)
            return ticket

        return session.guarded(ticket, learn, private=True)

    def run(tickets: pa.Array, drawing: pa.Array) -> pa.Array:
        pairs = zip(tickets.to_pylist(), drawing.to_pylist(), strict=True)
        return from_values([learn_part(*row) for row in pairs], pa.int64())

    return run


def learn_bounds(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket of a part, ticket of the part that draws bounds) → the ticket, after the part learns the bounds."""

    def learn_part(ticket: int, bounding: int) -> int:
        def learn(running: RunningCall) -> int:
            other = session.running(bounding, private=True)
            bounds = other.call_as(CoreBoundsCall).by_column
            if running.query is None or other.query is not running.query or not bounds:
                raise InternalError("I004", "a part is of another query. Use the dp_ functions.")
            running.learn_bounds(running.call_as(WaitingCall).within(bounds))
            return ticket

        return session.guarded(ticket, learn, private=True)

    def run(tickets: pa.Array, bounding: pa.Array) -> pa.Array:
        pairs = zip(tickets.to_pylist(), bounding.to_pylist(), strict=True)
        return from_values([learn_part(*row) for row in pairs], pa.int64())

    return run


def limit(session: Session) -> Callable[..., int | None]:
    """Bind (ticket) → the number of a unit's rows that count in the part."""
    return lambda ticket: session.running(ticket, private=True).limit


def release(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, tickets of the parts, their statistics, questions) → all answers, in one charge."""

    def release_call(ticket: int, tickets: Sequence[int], statistics: pa.Array) -> Entry:
        def work(running: RunningCall) -> Entry:
            def read(_: RunningCall) -> Any:
                parts = [session.running(part, private=True) for part in tickets]
                if any(part.query is not running for part in parts) or len(parts) != len(running.parts):
                    raise InternalError("I004", "a part is of another query. Use the dp_ functions.")
                if isinstance(running.call, QueryCall):
                    running.call = running.call.told(part.call for part in parts)
                return [(part.call, part.complete(row)) for part, row in zip(parts, statistics, strict=True)]

            return session.finish(ticket, running, session.guarded(ticket, read))

        return session.release_once(ticket, work)

    def run(tickets: pa.Array, parts: pa.Array, statistics: pa.Array, questions: pa.Array) -> pa.Array:
        rows = zip(tickets, parts, statistics, questions, strict=True)
        return answers(
            _answer(release_call(ticket.as_py(), listed.as_py(), row.values), text.as_py())
            for ticket, listed, row, text in rows
        )

    return run


def stored(session: Session) -> Callable[..., pa.Array]:
    """Bind (plan, questions, catalog) → the answers of all private aggregates from the ledger."""

    def run(plans: pa.Array, questions: pa.Array, texts: pa.Array) -> pa.Array:
        return answers(
            _answer(
                session.stored_query(_query(plan_from_json(text.as_py())), catalogued(relations.as_py())),
                question.as_py(),
            )
            for text, question, relations in zip(plans, questions, texts, strict=True)
        )

    return run


def _query(candidate: object) -> QueryPlan:
    if not isinstance(candidate, QueryPlan):
        raise InternalError("I004", "an internal function was given another plan. Use the dp_ functions.")
    return candidate


def _answer(entry: Entry, question: str) -> QueryAnswer:
    return QueryAnswer(entry.sequence, entry.receipt, entry.result, question, lambda: entry.covers)


SPECS = (
    UdfSpec("dpsql_query_parsed", parsed, "VARCHAR", native=True, pure=True),
    UdfSpec("dpsql_query_tables", tables, "VARCHAR[]", native=True, pure=True, spoken=True),
    UdfSpec("dpsql_query_cores", cores, _TEXTS, native=True, pure=True, spoken=True),
    UdfSpec("dpsql_query_plan", plan, "VARCHAR", native=True, pure=True, spoken=True),
    UdfSpec("dpsql_expected_cores", expected_cores, _TEXTS, native=True, spoken=True),
    UdfSpec("dpsql_expected", expected, ESTIMATED, native=True),
    UdfSpec("dpsql_query_gate", gate, GATE),
    UdfSpec("dpsql_query_free", free, "BOOLEAN"),
    UdfSpec("dpsql_learn_rows", learn_rows, "BIGINT"),
    UdfSpec("dpsql_learn_bounds", learn_bounds, "BIGINT"),
    UdfSpec("dpsql_limit", limit, "BIGINT", native=True),
    UdfSpec("dpsql_query_release", release, CORES),
    UdfSpec("dpsql_query_stored", stored, CORES),
)
