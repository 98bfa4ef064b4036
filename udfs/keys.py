"""Pass public keys of groups to a statement: listed, cast by DuckDB, and checked before dpsql reads a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dpsql.arrays import from_numbers, from_values, to_numbers
from dpsql.contract.keys import RELEASED, keys_of_rows, refuse_many
from dpsql.contract.parameters import show
from dpsql.engines.duckdb.running import Calls, RunningCall
from dpsql.engines.duckdb.session import Session
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.grouped.plan import GroupedCall
from dpsql.kernels.columns import single_chunk
from dpsql.statistics.aggregates import Labels


def learn_keys(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, rows of a public table as lists of strings) → the ticket, after the call has learned its keys."""

    def run(tickets: pa.Array, rows: pa.Array) -> pa.Array:
        for ticket, listed in zip(tickets, rows, strict=True):
            running = session.running(ticket.as_py(), private=True)
            call = _grouped(session, ticket.as_py())
            keys = keys_of_rows(listed.as_py() or (), len(call.plan.by))
            refuse_many(keys.count)
            running.learn(replace(call, listed=keys))
        return single_chunk(tickets)

    return run


def learn_released(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, ticket of the part that releases keys, their labels) → the ticket, after its call learns the keys.

    A failure here, or in the check of the keys, comes after a draw: the query is charged.
    """

    def learn_part(ticket: int, keyed: int, rows: list[list[str | None]] | None) -> int:
        def learn(running: RunningCall) -> int:
            other = session.running(keyed, private=True)
            collecting, call = other.collecting, running.call
            first = None if collecting is None else collecting.first
            if running.query is None or other.query is not running.query or not isinstance(first, Labels):
                raise InternalError("I004", "a part is of another query. Use the dp_ functions.")
            if not isinstance(call, GroupedCall) or len(rows or ()) != len(first.numbers):
                raise InternalError("I005", "DuckDB did not read each released key exactly once. Report it.")
            keys = keys_of_rows(rows or (), len(call.plan.by))
            refuse_many(keys.count)
            keyed_call = replace(call, listed=keys)
            keyed_call.check()
            running.learn(keyed_call)
            return ticket

        return session.guarded(ticket, learn, private=True)

    def run(tickets: pa.Array, keyed: pa.Array, rows: pa.Array) -> pa.Array:
        entries = zip(tickets.to_pylist(), keyed.to_pylist(), rows.to_pylist(), strict=True)
        return from_values([learn_part(*row) for row in entries], pa.int64())

    return run


def key_list(calls: Calls) -> Callable[..., pa.Array]:
    """Bind (ticket, column) → the listed values of one column of `by`, as strings by position."""
    kind = pa.struct([("p", pa.int64()), ("text", pa.string())])

    def run(tickets: pa.Array, columns: pa.Array) -> pa.Array:
        out = []
        for ticket, column in zip(tickets, columns, strict=True):
            call = _grouped(calls, ticket.as_py())
            texts = from_values(call.keys.lists[column.as_py()] or (), pa.string())
            out.append(pa.StructArray.from_arrays([from_numbers(np.arange(len(texts))), texts], fields=list(kind)))
        offsets = np.cumsum([0, *map(len, out)]).astype(np.int32)
        return pa.ListArray.from_arrays(from_numbers(offsets), pa.concat_arrays(out))

    return run


def key_rows(calls: Calls) -> Callable[..., pa.Array]:
    """Bind (ticket) → the combinations of keys that are groups, as positions."""

    def run(tickets: pa.Array) -> pa.Array:
        rows = [_grouped(calls, ticket.as_py()).keys.rows or () for ticket in tickets]
        return pa.array([list(map(list, row)) for row in rows], type=pa.list_(pa.list_(pa.int64())))

    return run


def check_keys(calls: Calls) -> Callable[..., pa.Array]:
    """Bind (ticket, list of cast keys for each column) → the ticket, unless a key is wrong or a duplicate."""

    def check_call(ticket: int, columns: pa.Array) -> int:
        call = _grouped(calls, ticket)
        if call.plan.keys_table == RELEASED:  # a fault in a released key may depend on rows
            return calls.guarded(ticket, lambda _: checked(ticket, columns, call))
        return checked(ticket, columns, call)

    def checked(ticket: int, columns: pa.Array, call: GroupedCall) -> int:
        for position, (name, kind) in enumerate(zip(call.plan.by, call.types, strict=True)):
            texts, keys = call.keys.lists[position] or (), columns[position].values
            if keys is None:  # there are no keys
                continue
            wrong = np.flatnonzero(to_numbers(keys.field("wrong").cast(pa.uint8())))
            if len(wrong):
                text = texts[wrong[0]]
                raise ParameterError(
                    "P067",
                    f"key {show(text)} is no {_type_name(kind)}, which {show(name)} holds. Give values of that type.",
                )
            twice = _first_twice(keys)
            if twice is not None:
                first, again = (show(texts[index]) for index in twice)
                raise ParameterError(
                    "P044", f"keys {first} and {again} of {show(name)} are one {_type_name(kind)}. Give each one once."
                )
        return ticket

    def run(tickets: pa.Array, columns: pa.Array) -> pa.Array:
        checked_tickets = [
            check_call(ticket.as_py(), listed.values) for ticket, listed in zip(tickets, columns, strict=True)
        ]
        return from_values(checked_tickets, pa.int64())

    return run


def _grouped(calls: Calls, ticket: int) -> GroupedCall:
    call = calls.running(ticket).call
    if not isinstance(call, GroupedCall):
        raise InternalError("I004", "an internal function was given a part of another call. Use the dp_ functions.")
    return call


def _first_twice(keys: pa.StructArray) -> tuple[int, int] | None:
    """Return the positions of the first repeated key: its previous one, then the repeat; None if all keys differ."""
    numbers = to_numbers(keys.field("number").dictionary_encode("encode").indices)
    data = to_numbers(keys.field("data").dictionary_encode("encode").indices)
    order = np.lexsort((data, numbers))  # stable: equal keys stay in order of position
    again = np.flatnonzero((np.diff(numbers[order]) == 0) & (np.diff(data[order]) == 0))
    if not len(again):
        return None
    index = again[np.argmin(order[again + 1])]
    return int(order[index]), int(order[index + 1])


def released_keys(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket) → the numbers of the released private keys."""

    def run(tickets: pa.Array) -> pa.Array:
        out = []
        for ticket in tickets:
            collecting = session.running(ticket.as_py(), private=True).collecting
            first = None if collecting is None else collecting.first
            if not isinstance(first, Labels):
                raise TypeError("no keys were drawn")
            out.append(from_values(first.numbers, pa.int64()))
        offsets = np.cumsum([0, *map(len, out)]).astype(np.int32)
        return pa.ListArray.from_arrays(from_numbers(offsets), pa.concat_arrays(out))

    return run


def released_values(calls: Calls) -> Callable[..., pa.Array]:
    """Bind (ticket) → the released private keys: number, and the numbers and strings of their columns."""
    kind = pa.list_(pa.struct([("j", pa.int64()), ("numbers", pa.list_(pa.int64())), ("texts", pa.list_(pa.string()))]))

    def run(tickets: pa.Array) -> pa.Array:
        out = []
        for ticket in tickets:
            collecting = calls.running(ticket.as_py()).collecting
            first = None if collecting is None else collecting.first
            if not isinstance(first, Labels) or first.keys is None:
                raise TypeError("no keys were drawn")
            columns = [column.to_pylist() for column in first.keys.columns]
            rows = zip(first.numbers.tolist(), *columns, strict=True)
            out.append([{"j": j, "numbers": parts[::2], "texts": parts[1::2]} for j, *parts in rows])
        return from_values(out, kind)

    return run


def _type_name(kind: str) -> str:
    """Return a SQL type for a message, without the values of an ENUM."""
    return kind.partition("(")[0]
