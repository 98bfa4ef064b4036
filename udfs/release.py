"""What every function that reads a table goes through: plan at bind, gate, collect, release."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.call import Batch, Collector
from dpsql.errors import InternalError
from dpsql.functions import EXACT, function_of, plan_from_json
from dpsql.kernels.columns import single_chunk
from dpsql.ledger import Entry
from dpsql.noise.entropy import SYSTEM
from dpsql.results import SHAPES, Shape
from dpsql.session import RunningCall, Session
from dpsql.statements import admit_sql, exact_sql, release_sql, rows_sql, stored_sql
from dpsql.udfs import sis
from dpsql.udfs.spec import UdfSpec
from dpsql.udfs.values import integers, nested, one_ticket

_BATCH = 1 << 16  # rows of the aggregate form that are worked on at once: bounds the memory of a dense copy


def plan(session: Session) -> Callable[..., str]:
    """Bind (function, source, …arguments) → the text to run, for query(). Pure: never charges."""

    def run(function: str, source: Any, *values: Any) -> str:
        name, _, form = function.partition(" ")
        given = dict(zip(function_of(name).plan.arguments, values, strict=True))
        checked = session.plan(name, source, given, aggregate=form == "aggregate")
        if name in EXACT:
            return exact_sql(checked, name, session.catalog)
        session.check(checked)
        if form == "aggregate":
            return admit_sql(checked)
        stored = session.replay(checked) is not None
        return rows_sql(stored_sql(checked) if stored else release_sql(checked, name, session.catalog))

    return run


def admit(session: Session) -> Callable[..., pa.Array]:
    """Bind (plan) → the plan under a number of its statement, where the budget allows it.

    The aggregate form reads no row before; the number tells it which groups are of one statement.
    """

    def run(plans: Any) -> pa.Array:
        text = plans[0].as_py()
        session.check(plan_from_json(text))
        return pa.array([f"{secrets.randbits(62)} {text}"])

    return run


def gate(session: Session) -> Callable[..., pa.Array]:
    """Bind (function, plan, probe of the row types) → ticket. Checks types and budget before a row is read."""

    def run(functions: Any, plans: Any, probe: Any) -> pa.Array:
        if len(plans) != 1:
            raise nested()
        checked = plan_from_json(plans[0].as_py())
        function = functions[0].as_py()
        kinds = {field.name: field.type for field in probe.type}
        parts = {
            "privacy_unit": "dpsql_unit",
            "row_id": "dpsql_row_id",
            "features": "dpsql_feature",
            "value": "dpsql_value",
        }
        others = {part: kinds[name] for part, name in parts.items() if name in kinds}
        call = function_of(function).call.resolve(checked, kinds["dpsql_row"], others)
        if function not in EXACT:
            session.check(checked)
        return pa.array([session.open_call(call, function)])

    return run


def target(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, row) → the target of each row as the call codes it."""

    def run(tickets: Any, rows: Any) -> pa.Array:
        batch = single_chunk(rows)
        return pa.array(session.guarded(one_ticket(tickets), lambda running: running.call.coded_target(batch)))

    return run


def collect(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, pass, row, key, rows of the block) → on the batch's first row its number, NULL on the others."""

    def run(tickets: Any, passes: Any, rows: Any, keys: Any, sizes: Any) -> pa.Array:
        batch = single_chunk(rows)
        beside = Batch(_numbers(keys, np.uint64), _numbers(sizes, np.int64))

        def add(running: RunningCall) -> int:
            if running.collector is None or running.passed != passes[0].as_py() - 1:
                raise InternalError("I004", "a part of the call came to the wrong function. Report it.")
            target, columns = running.call.read(batch)
            running.collector.add(target, columns, beside)
            with running.lock:
                running.batches += 1
                running.touched = time.monotonic()
                return running.batches

        number = session.guarded(one_ticket(tickets), add)
        return pa.array([number] + [None] * (len(batch) - 1), type=pa.int64())

    return run


def _numbers(column: Any, kind: Any) -> NDArray[Any] | None:
    """Return a column of integers; None where there is none, a column of NULL."""
    array = single_chunk(column)
    return None if array.null_count == len(array) else array.to_numpy(zero_copy_only=False).astype(kind)


def complete(running: RunningCall, numbers: Any) -> Collector:
    """Return the collector once every batch that it took in has come back, each once."""
    came = [] if numbers.values is None else numbers.values.to_pylist()
    if running.collector is None or sorted(came) != list(range(1, running.batches + 1)):
        raise InternalError("I004", "DuckDB read a batch of rows not exactly once. Report it.")
    return running.collector


def turn(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, pass, numbers of its batches) → the ticket, once what the next pass needs is drawn."""

    def run(tickets: Any, passes: Any, statistics: Any) -> pa.Array:
        for ticket, number, row in zip(tickets, passes, statistics, strict=True):
            session.turn(ticket.as_py(), number.as_py(), partial(complete, numbers=row))
        return single_chunk(tickets)

    return run


def release(shape: Shape, session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, statistic) → the result: charged, drawn and stored in one transaction."""

    def one(ticket: int, statistic: Any) -> Entry:
        def work(running: RunningCall) -> Entry:
            def read(_: RunningCall) -> Any:
                if running.collector is None:
                    return integers(statistic, running.call.statistic_length)
                return complete(running, statistic)

            return session.finish(ticket, running, session.guarded(ticket, read))

        return session.release_once(ticket, work)

    def run(tickets: Any, statistics: Any) -> pa.Array:
        return _releases(shape, [one(ticket.as_py(), row) for ticket, row in zip(tickets, statistics, strict=True)])

    return run


def stored(shape: Shape, session: Session) -> Callable[..., pa.Array]:
    """Bind (plan) → a named release as the ledger holds it."""

    def run(plans: Any) -> pa.Array:
        out = []
        for text in plans:
            entry = session.replay(plan_from_json(text.as_py()))
            if entry is None:
                raise InternalError("I003", "the stored release is gone from the ledger. Run `dpsql ledger verify`.")
            out.append(entry)
        return _releases(shape, out)

    return run


def aggregate(shape: Shape, session: Session) -> Callable[..., pa.Array]:
    """Bind (list of {y, x}, plan) → the result of each group; one group is one release."""

    def run(groups: Any, plans: Any) -> pa.Array:
        lists = single_chunk(groups)
        statement, _, text = plans[0].as_py().partition(" ")
        checked = plan_from_json(text)
        if checked.release is not None:
            session.refuse_groups(int(statement), len(lists))
        call = function_of(checked.function).call.resolve(checked, lists.type.value_type, {})
        session.check(checked)
        out = []
        for start, stop in pairwise(lists.offsets.to_numpy()):
            ticket = session.open_call(call, checked.function)
            rows = lists.values.slice(start, stop - start)
            entry = session.release_once(ticket, partial(_release_rows, session, ticket, rows))
            out.append(shape.rows(entry.result))
        return pa.array(out, type=pa.list_(shape.arrow))

    return run


def _release_rows(session: Session, ticket: int, rows: pa.StructArray, running: RunningCall) -> Entry:
    """Release from rows that are all at hand; what the table form does in SQL."""
    most = running.call.plan.most_rows
    if most is not None and len(rows) > most:
        rows = rows.take(pa.array(np.sort(np.argpartition(SYSTEM.words(len(rows)), most)[:most])))
    batches = [rows.slice(start, _BATCH) for start in range(0, len(rows), _BATCH)]
    # What decides a row's block must be the same in every pass.
    keys = [SYSTEM.words(len(batch)) if running.call.plan.in_blocks else None for batch in batches]

    def read(_: RunningCall) -> Any:
        if running.collector is None:
            return sis.statistic(running.call, batches)
        for batch, words in zip(batches, keys, strict=True):
            target, columns = running.call.read(batch)
            running.collector.add(target, columns, Batch(words))
        return running.collector

    if running.collector is not None:
        for number in range(1, running.call.plan.passes):
            session.turn(ticket, number, read)
    return session.finish(ticket, running, session.guarded(ticket, read))


def features(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket) → the public features with their affine maps."""

    def run(tickets: Any) -> pa.Array:
        kind = pa.struct([("j", pa.int64()), ("name", pa.string()), ("middle", pa.float64()), ("scale", pa.float64())])
        out = []
        for ticket in tickets:
            call = session.running(ticket.as_py()).call
            unmapped = np.zeros(len(call.features))
            maps = getattr(call, "maps", (unmapped, unmapped))
            arrays = [np.arange(1, len(call.features) + 1), call.features, *maps]
            out.append(pa.StructArray.from_arrays([pa.array(part) for part in arrays], fields=list(kind)))
        offsets = np.cumsum([0, *map(len, out)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.concat_arrays(out))

    return run


def vocabulary(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, list of {name, rows}) → the names that are released, which are the call's features from now on."""
    kind = pa.struct([("j", pa.int64()), ("name", pa.string())])

    def one(ticket: int, counted: Any) -> list[dict[str, Any]]:
        def draw(running: RunningCall) -> list[str]:
            with running.turning:
                if running.passed == 0:  # DuckDB evaluates a function again where it likes
                    values = counted.values
                    names = [] if values is None else values.field("name").to_pylist()
                    rows = np.array([] if values is None else values.field("rows").to_numpy(), dtype=np.int64)
                    released = running.call.draw_vocabulary(names, rows)
                    running.call, running.passed = replace(running.call, features=tuple(released)), 1
                return list(running.call.features)

        names = session.guarded(ticket, draw, private=True)
        return [{"j": position, "name": name} for position, name in enumerate(names, start=1)]

    def run(tickets: Any, counts: Any) -> pa.Array:
        out = [one(ticket.as_py(), counted) for ticket, counted in zip(tickets, counts, strict=True)]
        return pa.array(out, type=pa.list_(kind))

    return run


def key(session: Session) -> Callable[..., pa.Array]:
    """Bind (hash) → the hash under the session's secret key, to sample rows per privacy unit."""
    low, high = (np.uint64(session.sampling_key >> shift & 0xFFFFFFFFFFFFFFFF) for shift in (0, 64))

    def run(hashes: Any) -> pa.Array:
        mixed = single_chunk(hashes).to_numpy(zero_copy_only=False).astype(np.uint64) ^ low
        for _ in range(2):  # the finaliser of splitmix64, keyed before and between
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed = (mixed ^ (mixed >> np.uint64(31))) + high
        return pa.array(mixed)

    return run


def random(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket) → a random number for each row."""
    return lambda tickets: pa.array(SYSTEM.words(len(tickets)))


def _releases(shape: Shape, entries: list[Entry]) -> pa.Array:
    kind = pa.struct([("sequence", pa.int64()), ("guarantee", pa.string()), ("entries", pa.list_(shape.arrow))])
    rows = [
        {"sequence": entry.sequence, "guarantee": entry.guarantee, "entries": shape.rows(entry.result)}
        for entry in entries
    ]
    return pa.array(rows, type=kind)


def _shaped() -> Iterator[UdfSpec]:
    """One set of functions for each kind of result: DuckDB must know its type."""
    for shape in SHAPES:
        one = f"STRUCT(sequence BIGINT, guarantee VARCHAR, entries {shape.struct}[])"
        yield UdfSpec(f"dpsql_release_{shape.name}", partial(release, shape), one)
        yield UdfSpec(f"dpsql_stored_{shape.name}", partial(stored, shape), one)
        yield UdfSpec(f"dpsql_aggregate_{shape.name}", partial(aggregate, shape), f"{shape.struct}[]")


SPECS = (
    UdfSpec("dpsql_plan", plan, "VARCHAR", native=True, pure=True),
    UdfSpec("dpsql_admit", admit, "VARCHAR"),
    UdfSpec("dpsql_gate", gate, "BIGINT"),
    UdfSpec("dpsql_target", target, "DOUBLE"),
    UdfSpec("dpsql_features", features, "STRUCT(j BIGINT, name VARCHAR, middle DOUBLE, scale DOUBLE)[]"),
    UdfSpec("dpsql_vocabulary", vocabulary, "STRUCT(j BIGINT, name VARCHAR)[]"),
    UdfSpec("dpsql_collect", collect, "BIGINT"),
    UdfSpec("dpsql_random", random, "UBIGINT"),
    UdfSpec("dpsql_key", key, "UBIGINT", pure=True),
    UdfSpec("dpsql_turn", turn, "BIGINT"),
    *_shaped(),
)
