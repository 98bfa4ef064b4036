"""Run the steps of every function that reads a table: plan at bind, gate, collect, release."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa

from dpsql.arrays import from_numbers, from_values
from dpsql.contract import parameters
from dpsql.contract.fold import Batch, Collector
from dpsql.contract.plan import Plan
from dpsql.engines.attached import engines_of
from dpsql.engines.driver import engine_key_types
from dpsql.engines.driver import release as release_of_engine
from dpsql.engines.duckdb.lineage.aggregates import Around
from dpsql.engines.duckdb.lineage.texts import catalogued
from dpsql.engines.duckdb.planner import admit_sql, call_sql, condition_queries, exact_sql
from dpsql.engines.duckdb.releases import engine_sql, rows_sql, stored_sql
from dpsql.engines.duckdb.running import RunningCall, Statistic, resolved
from dpsql.engines.duckdb.session import Session
from dpsql.engines.duckdb.typed_expression import refuse_other_types
from dpsql.errors import ParameterError
from dpsql.functions.registry import EXACT, function_of, plan_from_json
from dpsql.kernels.columns import single_chunk
from dpsql.ledger.ledger import Entry
from dpsql.noise.entropy import SYSTEM
from dpsql.released.shapes import SHAPES, Shape, key_types
from dpsql.udfs.keys import learn_keys, learn_released, released_keys
from dpsql.udfs.values import Plans, UdfSpec, integers, nested, seen_of

Number = TypeVar("Number", np.int64, np.uint64)
_BATCH = 1 << 16  # rows of the aggregate form that are processed at once


def plan(session: Session) -> Callable[..., str]:
    """Bind (function, its form, tables of its source, source, arguments) → the SQL to run. Pure: never charges."""

    def run(name: str, form: str, seen: Plans, source: object, arguments: dict[str, object]) -> str:
        plans = None if seen is None else seen_of(seen)
        checked = session.planner.plan(
            name, source, left_out(name, arguments), seen=plans, aggregate=form == "aggregate"
        )
        if name in EXACT:
            return exact_sql(checked, name)
        session.note(name, checked, aggregate=form == "aggregate")
        if form == "aggregate":
            return admit_sql(checked)
        stored = session.past.replay(checked)
        if stored is not None:
            return rows_sql(checked, stored_sql(checked, key_types(stored.result)))
        if checked.engine is not None:
            types = engine_key_types(engines_of(session).named(checked.engine), checked)
            return rows_sql(checked, engine_sql(checked, types))
        return call_sql(checked, name)

    return run


def left_out(name: str, arguments: Mapping[str, object]) -> dict[str, object]:
    """Return a call's arguments without omitted arguments, whose value is false; refuse NULL there.

    Raises
    ------
    ParameterError
        P089.
    """
    rest = dict(arguments)
    for argument in function_of(name).plan.arguments.values():
        if not argument.null_is_wrong or argument.name not in rest:
            continue
        if rest[argument.name] is None:
            raise ParameterError(
                "P089",
                f"{argument.name} is NULL, so the call would have no name and be charged at each run. Look which part "
                f"of the name is NULL; leave {argument.name} out for a call without a name.",
            )
        if rest[argument.name] is False:
            del rest[argument.name]
    return rest


def spellings(session: Session) -> Callable[..., list[str] | None]:
    """Bind (source, search path, database, always) → the queries whose plans the planner needs, if any.

    Pure, so that DuckDB knows the value while it binds a statement.
    """

    def run(source: object, search_path: str, database: str, always: object) -> list[str] | None:
        source = parameters.text("source", source, hint="Give the name of a table, view or registered frame.")
        return session.sources.spellings(source, search_path, database, always=always is True)

    return run


def type_queries(session: Session) -> Callable[..., list[str]]:
    """Bind (source, condition) → the queries whose plans show the types of the condition's columns. Pure.

    There are none without a condition, or with a condition that dpsql will refuse.
    """
    return condition_queries


def admit(session: Session) -> Callable[..., pa.Array]:
    """Bind (plan, plan and text of the outer statement, catalog) → the plan with its place; no row is read yet."""

    def run(plans: pa.Array, statements: pa.Array, queries: pa.Array, texts: pa.Array) -> pa.Array:
        if len(plans) != 1:
            raise nested()
        checked, around = (
            plan_from_json(plans[0].as_py()),
            Around(statements[0].as_py() or "", queries[0].as_py() or ""),
        )
        return from_values([session.admit(checked, around, catalogued(texts[0].as_py())).to_json()], pa.string())

    return run


def gate(session: Session) -> Callable[..., pa.Array]:
    """Bind (function, plan, probe of the row types, catalog, SQL types of keys and condition) → ticket and zero.

    The planner cannot know that the number is zero.
    """

    def run(
        functions: pa.Array,
        plans: pa.Array,
        probe: pa.Array,
        texts: pa.Array,
        types: pa.Array | None = None,
        condition: pa.Array | None = None,
    ) -> pa.Array:
        if len(plans) != 1:
            raise nested()
        checked = plan_from_json(plans[0].as_py())
        function = functions[0].as_py()
        private = function_of(function).spends
        if private:
            checked = session.gate(checked, catalogued(texts[0].as_py()))
        call = resolved(checked, function, probe.type, () if types is None else types[0].as_py() or ())
        refuse_other_types(checked, None if condition is None else condition[0].as_py())
        if private:
            session.check(checked)
        ticket = session.open_call(call, function)
        kind = pa.struct([("ticket", pa.int64()), ("zero", pa.float64())])
        return from_values([{"ticket": ticket, "zero": 0.0}], kind)

    return run


def turn(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, pass, numbers of its batches) → the ticket, after drawing for the next pass."""

    def run(tickets: pa.Array, passes: pa.Array, statistics: pa.Array) -> pa.Array:
        for ticket, number, row in zip(tickets, passes, statistics, strict=True):
            session.turn(ticket.as_py(), number.as_py(), partial(RunningCall.complete, numbers=row))
        return single_chunk(tickets)

    return run


def release(shape: Shape, session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, statistic) → the result: charged, drawn and stored in one transaction."""

    def release_call(ticket: int, statistic: pa.Array) -> Entry:
        def work(running: RunningCall) -> Entry:
            def read(_: RunningCall) -> Statistic:
                totals: Statistic
                if running.collecting is None:
                    totals = integers(statistic, running.call.statistic_length)
                else:
                    totals = running.complete(statistic)
                return totals

            return session.finish(ticket, running, session.guarded(ticket, read))

        return session.release_once(ticket, work)

    def run(tickets: pa.Array, statistics: pa.Array) -> pa.Array:
        return releases(
            shape, [release_call(ticket.as_py(), row) for ticket, row in zip(tickets, statistics, strict=True)]
        )

    return run


def stored(shape: Shape, session: Session) -> Callable[..., pa.Array]:
    """Bind (plan, catalog) → a named release from the ledger."""

    def run(plans: pa.Array, texts: pa.Array) -> pa.Array:
        return releases(
            shape,
            [
                session.stored(plan_from_json(text.as_py()), catalogued(tables.as_py()))
                for text, tables in zip(plans, texts, strict=True)
            ],
        )

    return run


def of_engine(shape: Shape, session: Session) -> Callable[..., pa.Array]:
    """Bind (plan) → the release of a call on an engine's rows."""

    def release_plan(checked: Plan) -> Entry:
        return release_of_engine(session, engines_of(session).named(checked.engine), checked)

    def run(plans: pa.Array) -> pa.Array:
        if len(plans) != 1:
            raise nested()
        return releases(shape, [release_plan(plan_from_json(plans[0].as_py()))])

    return run


def aggregate(shape: Shape, session: Session) -> Callable[..., pa.Array]:
    """Bind (list of {y, x}, plan) → the result of each group; one group is one release."""

    def run(groups: pa.Array, plans: pa.Array) -> pa.Array:
        lists = single_chunk(groups)
        checked = plan_from_json(plans[0].as_py())
        call = function_of(checked.function).call.resolve(checked, lists.type.value_type, {}, ())
        session.check(checked)
        out = []
        for start, stop in pairwise(lists.offsets.to_numpy()):
            ticket = session.open_call(call, checked.function)
            rows = lists.values.slice(start, stop - start)
            entry = session.release_once(ticket, partial(_release_rows, session, ticket, rows))
            out.append(shape.entries(entry.result, entry.covers))
        return _lists(out, shape)

    return run


def _release_rows(session: Session, ticket: int, rows: pa.StructArray, running: RunningCall) -> Entry:
    """Release from rows in memory, like the table form in SQL."""
    first = running.call.plan.passes[0]
    most = first.most_rows
    if most is not None and len(rows) > most:
        rows = rows.take(pa.array(np.sort(np.argsort(SYSTEM.words(len(rows)), kind="stable")[:most])))
    batches = [rows.slice(start, _BATCH) for start in range(0, len(rows), _BATCH)]
    # The key that decides a row's block must be the same in every pass.
    keys = [SYSTEM.words(len(batch)) if first.keyed else None for batch in batches]

    def gather(_: RunningCall) -> Collector:
        collecting = running.collecting
        if collecting is None:
            raise TypeError("the call collects nothing")
        for batch, words in zip(batches, keys, strict=True):
            collecting.add(running.call, batch, Batch(words))
        return collecting.merge()

    for number in range(1, running.call.plan.readings):
        session.turn(ticket, number, gather)
    return session.finish(ticket, running, session.guarded(ticket, gather))


def random(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket) → a random number for each row."""
    return lambda tickets: from_numbers(SYSTEM.words(len(tickets)))


def releases(shape: Shape, entries: list[Entry]) -> pa.Array:
    """Return releases as an SQL result: sequence, guarantee and rows of each."""
    parts = [
        from_values([entry.sequence for entry in entries], pa.int64()),
        from_values([entry.receipt for entry in entries], pa.string()),
        _lists([shape.entries(entry.result, entry.covers) for entry in entries], shape),
    ]
    return pa.StructArray.from_arrays(parts, names=["sequence", "guarantee", "entries"])


def _lists(rows: list[pa.StructArray], shape: Shape) -> pa.ListArray:
    """Return the rows of each release as one list."""
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    entries = pa.concat_arrays(rows) if rows else pa.array([], type=shape.arrow)
    return pa.ListArray.from_arrays(from_numbers(offsets), entries)


def _shaped() -> Iterator[UdfSpec]:
    """Yield one set of functions for each kind of result, because DuckDB must know the type."""
    for shape in SHAPES:
        struct = f"STRUCT(sequence BIGINT, guarantee VARCHAR, entries {shape.struct}[])"
        yield UdfSpec(f"dpsql_release_{shape.name}", partial(release, shape), struct)
        yield UdfSpec(f"dpsql_stored_{shape.name}", partial(stored, shape), struct)
        yield UdfSpec(f"dpsql_engine_{shape.name}", partial(of_engine, shape), struct)
        group = shape.without_keys
        yield UdfSpec(f"dpsql_aggregate_{shape.name}", partial(aggregate, group), f"{group.struct}[]")


SPECS = (
    UdfSpec("dpsql_learn_keys", learn_keys, "BIGINT"),
    UdfSpec("dpsql_learn_released", learn_released, "BIGINT"),
    UdfSpec("dpsql_released_keys", released_keys, "BIGINT[]"),
    UdfSpec("dpsql_plan", plan, "VARCHAR", native=True, pure=True, spoken=True),
    UdfSpec("dpsql_spellings", spellings, "VARCHAR[]", native=True, pure=True, spoken=True),
    UdfSpec("dpsql_type_queries", type_queries, "VARCHAR[]", native=True, pure=True, spoken=True),
    UdfSpec("dpsql_admit", admit, "VARCHAR"),
    UdfSpec("dpsql_gate", gate, "STRUCT(ticket BIGINT, zero DOUBLE)"),
    UdfSpec("dpsql_random", random, "UBIGINT"),
    UdfSpec("dpsql_turn", turn, "BIGINT"),
    *_shaped(),
)
