"""The functions that read rows, in a session or in a worker of an engine.

`drawn_codes` passes the codes of values within private bounds to a statement.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import astuple
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import from_values
from dpsql.contract.fold import Batch
from dpsql.engines.duckdb.running import Calls, RunningCall
from dpsql.errors import InternalError
from dpsql.functions.grouped.plan import DrawnBoundsCall
from dpsql.kernels.columns import single_chunk, to_doubles
from dpsql.kernels.identity import identity_bytes, row_contents
from dpsql.statistics.auc import Concordance
from dpsql.statistics.feature_counts import present_in
from dpsql.udfs.keys import check_keys, key_list, key_rows, released_values
from dpsql.udfs.values import UdfSpec, one_ticket, struct_list

CODE = {
    "lower": "DOUBLE",
    "upper": "DOUBLE",
    "middle": "DOUBLE",
    "scale": "DOUBLE",
    "low": "INTEGER",
    "high": "INTEGER",
}
CODES = struct_list(CODE)
_KIND = pa.list_(pa.struct([(name, pa.int32() if kind == "INTEGER" else pa.float64()) for name, kind in CODE.items()]))


def drawn_codes(calls: Calls) -> Callable[..., pa.Array]:
    """Bind (ticket) → bounds, affine map and limits of the codes of each target, after its bounds were drawn."""

    def codes_of(ticket: int) -> list[dict[str, float]]:
        return [code._asdict() for code in calls.running(ticket).call_as(DrawnBoundsCall).drawn_codes]

    def run(tickets: pa.Array) -> pa.Array:
        return from_values([codes_of(ticket.as_py()) for ticket in tickets], _KIND)

    return run


Number = TypeVar("Number", np.int64, np.uint64)


def target(calls: Calls) -> Callable[..., pa.Array]:
    """Bind (ticket, row) → the target of each row in the call's code."""

    def run(tickets: pa.Array, rows: pa.Array) -> pa.Array:
        batch = single_chunk(rows)
        return pa.array(calls.guarded(one_ticket(tickets), lambda running: running.call.coded_target(batch)))

    return run


def concordance(calls: Calls) -> Callable[..., pa.Array]:
    """Bind (ticket, scores of the negative class, of the positive class) → the integers of their `Concordance`."""

    def run(tickets: pa.Array, *classes: pa.Array) -> pa.Array:
        def compare(_: RunningCall) -> list[int]:
            both = (np.sort(single_chunk(scores).flatten().to_numpy(zero_copy_only=False)) for scores in classes)
            return [*astuple(Concordance.of_scores(*both))]

        return pa.array([calls.guarded(one_ticket(tickets), compare)], type=pa.list_(pa.int64()))

    return run


def collect(calls: Calls) -> Callable[..., pa.Array]:
    """Bind (ticket, row[, key[, rows of the block]]) → the batch's number on its first row, else NULL.

    Every column costs time, so no column names the pass: `complete` finds a batch of another pass.
    """

    def run(tickets: pa.Array, rows: pa.Array, *more: pa.Array) -> pa.Array:
        batch = single_chunk(rows)
        keys = _numbers(more[0], np.uint64) if more else None
        sizes = _numbers(more[1], np.int64) if len(more) > 1 else None

        def add(running: RunningCall) -> int:
            if running.collecting is None:
                raise InternalError(
                    "I004", "an internal function was given a part of another call. Use the dp_ functions."
                )
            running.collecting.add(running.call, batch, Batch(keys, sizes, running.key))
            with running.lock:
                running.batches += 1
                running.touched = time.monotonic()
                return running.batches

        return _on_first_row(calls.guarded(one_ticket(tickets), add), len(batch))

    return run


def _on_first_row(number: int, rows: int) -> pa.Array:
    """Return a column that holds a number in its first row, and NULL in the others."""
    values = np.zeros(rows, dtype=np.int64)
    values[0] = number
    valid = np.zeros(-(-rows // 8), dtype=np.uint8)
    valid[0] = 1
    return pa.Array.from_buffers(pa.int64(), rows, [pa.py_buffer(valid), pa.py_buffer(values)])


def _numbers(column: pa.Array, kind: type[Number]) -> NDArray[Number]:
    """Return a column of integers; 0 for NULL. With NULLs, NumPy would return doubles."""
    return np.asarray(single_chunk(column).fill_null(0).to_numpy(zero_copy_only=False), dtype=kind)


def features(calls: Calls) -> Callable[..., pa.Array]:
    """Bind (ticket) → the public features, and the value of an absent one."""

    def run(tickets: pa.Array) -> pa.Array:
        kind = pa.struct([("j", pa.int64()), ("name", pa.string()), ("absent", pa.int64())])
        out = []
        for ticket in tickets:
            call = calls.running(ticket.as_py()).call
            arrays = [np.arange(1, len(call.features) + 1), call.features, call.absent]
            typed = [pa.array(part, type=field.type) for part, field in zip(arrays, kind, strict=True)]
            out.append(pa.StructArray.from_arrays(typed, fields=list(kind)))
        offsets = np.cumsum([0, *map(len, out)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.concat_arrays(out))

    return run


def vocabulary(calls: Calls) -> Callable[..., pa.Array]:
    """Bind (ticket, list of {j, name}) → the ticket, after the call has stored the number of every name."""

    def learn_names(ticket: int, listed: pa.Array) -> int:
        def learn(running: RunningCall) -> int:
            names = [] if listed.values is None else listed.values.field("name").cast(pa.binary()).to_pylist()
            if running.collecting is not None:
                running.collecting.learn(names, running.key)
            return ticket

        return calls.guarded(ticket, learn, private=True)

    def run(tickets: pa.Array, lists: pa.Array) -> pa.Array:
        out = [learn_names(ticket.as_py(), listed) for ticket, listed in zip(tickets, lists, strict=True)]
        return pa.array(out, type=pa.int64())

    return run


def identities(calls: Calls) -> Callable[..., pa.Array]:
    """Bind (value) → the bytes of its identity, to which collations do not apply."""
    return lambda values: identity_bytes(single_chunk(values))


def contents(calls: Calls) -> Callable[..., pa.Array]:
    """Bind (ticket, row) → a hash of the row as the call reads it, under the call's key."""

    def run(tickets: pa.Array, rows: pa.Array) -> pa.Array:
        batch = single_chunk(rows)

        def hashed(running: RunningCall) -> pa.Array:
            parts = running.call.read_parts(batch, Batch())
            return pa.concat_arrays([row_contents(part[0], part[1], running.sampling_key) for part in parts])

        return calls.guarded(one_ticket(tickets), hashed)

    return run


def values(calls: Calls) -> Callable[..., pa.Array]:
    """Bind (ticket, value) → the value of each cell as a double."""

    def run(tickets: pa.Array, cells: pa.Array) -> pa.Array:
        batch = single_chunk(cells)
        missing = batch.is_null().to_numpy(zero_copy_only=False)
        return pa.array(calls.guarded(one_ticket(tickets), lambda _: to_doubles(batch)), mask=missing)

    return run


def present(calls: Calls) -> Callable[..., pa.Array]:
    """Bind (ticket, value) → whether each cell counts as present: neither missing nor zero."""

    def run(tickets: pa.Array, cells: pa.Array) -> pa.Array:
        batch = single_chunk(cells)
        return pa.array(calls.guarded(one_ticket(tickets), lambda _: present_in(to_doubles(batch), None)))

    return run


def sampling_key(calls: Calls) -> Callable[..., bytes]:
    """Bind (ticket) → the key that hashes the rows and privacy units of the call."""
    return lambda ticket: calls.running(ticket).sampling_key


# The functions that read rows, in a session or in a worker of an engine.
SPECS = (
    UdfSpec("dpsql_key_list", key_list, "STRUCT(p BIGINT, text VARCHAR)[]"),
    UdfSpec("dpsql_key_rows", key_rows, "BIGINT[][]"),
    UdfSpec("dpsql_check_keys", check_keys, "BIGINT"),
    UdfSpec("dpsql_released_values", released_values, "STRUCT(j BIGINT, numbers BIGINT[], texts VARCHAR[])[]"),
    UdfSpec("dpsql_drawn_codes", drawn_codes, CODES),
    UdfSpec("dpsql_target", target, "DOUBLE"),
    UdfSpec("dpsql_concordance", concordance, "BIGINT[]"),
    UdfSpec("dpsql_sampling_key", sampling_key, "BLOB", native=True),
    UdfSpec("dpsql_identity", identities, "BLOB"),
    UdfSpec("dpsql_contents", contents, "BLOB"),
    UdfSpec("dpsql_value", values, "DOUBLE"),
    UdfSpec("dpsql_present", present, "BOOLEAN"),
    UdfSpec("dpsql_features", features, "STRUCT(j BIGINT, name VARCHAR, absent BIGINT)[]"),
    UdfSpec("dpsql_vocabulary", vocabulary, "BIGINT"),
    UdfSpec("dpsql_collect", collect, "BIGINT"),
)
