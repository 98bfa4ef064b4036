"""dp_sis: plan at bind, gate, partial sums, release."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from dpsql.call import Call
from dpsql.errors import InternalError
from dpsql.kernels.columns import single_chunk
from dpsql.plan import SIS_ARGUMENTS, SisPlan
from dpsql.selection import RANKED, draw_center, draw_selection, ranked
from dpsql.session import Session
from dpsql.source import Layout
from dpsql.statements import exact_sql, release_sql, rows_sql, stored_sql
from dpsql.udfs.spec import UdfSpec

_RELEASE = "STRUCT(sequence BIGINT, entries STRUCT(rank BIGINT, feature VARCHAR)[])"
_parse = lru_cache(maxsize=256)(SisPlan.from_json)


def plan(session: Session) -> Callable[..., str]:
    """(function, source, …arguments) → SQL text, or the checked plan in the aggregate form. Pure: never charges."""

    def run(function: str, source: Any, *values: Any) -> str:
        given = dict(zip(SIS_ARGUMENTS, values, strict=True))
        checked = session.plan(source, given, aggregate=function.endswith("aggregate"))
        if function == "exact_xty":
            return exact_sql(checked, function, session.catalog)
        session.check(checked)
        if function.endswith("aggregate"):
            return checked.to_json()
        stored = session.replay(checked) is not None
        return rows_sql(stored_sql(checked, function) if stored else release_sql(checked, function, session.catalog))

    return run


def gate(session: Session) -> Callable[..., pa.Array]:
    """(function, plan, probe of the row types) → ticket. Checks types and budget before a row is read."""

    def run(functions: Any, plans: Any, probe: Any) -> pa.Array:
        checked = _parse(plans[0].as_py())
        function = functions[0].as_py()
        kinds = {field.name: field.type for field in probe.type}
        parts = {"privacy_unit": "dpsql_unit", "row_id": "dpsql_row_id", "features": "dpsql_feature", "value": "dpsql_value"}
        call = Call.resolve(checked, kinds["dpsql_row"], {part: kinds[name] for part, name in parts.items() if name in kinds})
        if function != "exact_xty":
            session.check(checked)
        return pa.array([session.open_call(call, function)] * len(plans))

    return run


def xty(session: Session) -> Callable[..., pa.Array]:
    """(ticket, centre, row) → the batch's partial sums on its first row, NULL on the others."""

    def run(tickets: Any, centers: Any, rows: Any) -> pa.Array:
        batch = single_chunk(rows)
        center = int(centers[0].as_py())
        return _first_row(session.guarded(tickets[0].as_py(), lambda running: running.call.partial(batch, center)), len(batch))

    return run


def target_sums(session: Session) -> Callable[..., pa.Array]:
    """(ticket, row) → the batch's sums of S + t and S - t on its first row."""

    def run(tickets: Any, rows: Any) -> pa.Array:
        batch = single_chunk(rows)
        sums = session.guarded(tickets[0].as_py(), lambda running: running.call.target_sums(batch))
        return _first_row(sums, len(batch))

    return run


def target(session: Session) -> Callable[..., pa.Array]:
    """(ticket, row) → the coded target of each row."""

    def run(tickets: Any, rows: Any) -> pa.Array:
        batch = single_chunk(rows)
        coded = session.guarded(tickets[0].as_py(), lambda running: running.call.quantised_target(batch))
        return pa.array(coded.astype(np.int64))

    return run


def center(session: Session) -> Callable[..., pa.Array]:
    """(ticket, [sum of S + t, sum of S - t]) → the private mean of the target, charged with the release."""

    def run(tickets: Any, sums: Any) -> pa.Array:
        exact = [integers(row, 2) for row in sums]
        return pa.array([
            session.guarded(ticket.as_py(), lambda running, pair=pair: draw_center(running.call.plan, *pair))  # type: ignore[misc]
            for ticket, pair in zip(tickets, exact, strict=True)
        ])

    return run


def release(session: Session) -> Callable[..., pa.Array]:
    """(ticket, statistic) → the selection: charged, drawn and stored in one transaction."""

    def run(tickets: Any, statistics: Any) -> pa.Array:
        return _releases([_release(session, ticket.as_py(), row) for ticket, row in zip(tickets, statistics, strict=True)])

    return run


def _release(session: Session, ticket: str, statistic: Any) -> dict[str, Any]:
    running = session.running(ticket)
    call = running.call
    try:
        utility = session.guarded(ticket, lambda _: np.abs(integers(statistic, len(call.features))))
        entry = session.release(call.plan, running.function, lambda: draw_selection(call.plan, utility, call.features))
    finally:
        session.close_call(ticket)
    return {"sequence": entry.sequence, "entries": ranked(entry.result)}


def exact(session: Session) -> Callable[..., pa.Array]:
    """(ticket, statistic) → one row per feature, as it is. Not private."""

    def run(tickets: Any, statistics: Any) -> pa.Array:
        out = []
        for ticket, row in zip(tickets, statistics, strict=True):
            features = session.running(ticket.as_py()).call.features
            sums = integers(row, len(features)).tolist()
            session.close_call(ticket.as_py())
            out.append([{"feature": name, "xty": value} for name, value in zip(features, sums, strict=True)])
        kind = pa.struct([("feature", pa.string()), ("xty", pa.decimal128(38, 0))])
        return pa.array(out, type=pa.list_(kind))

    return run


def stored(session: Session) -> Callable[..., pa.Array]:
    """(function, plan) → a named release as the ledger holds it."""

    def run(functions: Any, plans: Any) -> pa.Array:
        out = []
        for function, text in zip(functions, plans, strict=True):
            entry = session.replay(_parse(text.as_py()), function.as_py())
            if entry is None:
                raise InternalError("I003", "the stored release is gone from the ledger. Run `dpsql ledger verify`.")
            out.append({"sequence": entry.sequence, "entries": ranked(entry.result)})
        return _releases(out)

    return run


def aggregate(session: Session) -> Callable[..., pa.Array]:
    """(plan, list of {y, x}) → the selection of each group; one group is one release."""

    def run(plans: Any, groups: Any) -> pa.Array:
        lists = single_chunk(groups)
        kind = lists.type.value_type
        out = []
        for text, position in zip(plans, range(len(lists)), strict=True):
            call = Call.resolve(_parse(text.as_py()), kind, {})
            session.check(call.plan)
            ticket = session.open_call(call, "dp_sis")
            start, stop = lists.offsets[position].as_py(), lists.offsets[position + 1].as_py()
            rows = lists.values.slice(start, stop - start)
            out.append(ranked(_release_rows(session, ticket, rows)))
        return pa.array(out, type=pa.list_(RANKED))

    return run


def _release_rows(session: Session, ticket: str, rows: pa.StructArray) -> Any:
    """Release from rows that are all at hand; what the table form does in SQL."""
    running = session.running(ticket)
    call = running.call
    try:
        mean = 0
        if call.plan.center == "target":
            mean = session.guarded(ticket, lambda _: draw_center(call.plan, *call.target_sums(rows).tolist()))
        utility = session.guarded(ticket, lambda _: np.abs(call.partial(rows, mean)))
        return session.release(call.plan, running.function, lambda: draw_selection(call.plan, utility, call.features)).result
    finally:
        session.close_call(ticket)


def features(session: Session) -> Callable[..., pa.Array]:
    """(ticket) → the public features with their affine maps."""

    def run(tickets: Any) -> pa.Array:
        kind = pa.struct([("j", pa.int64()), ("name", pa.string()), ("middle", pa.float64()), ("scale", pa.float64())])
        out = []
        for ticket in tickets:
            call = session.running(ticket.as_py()).call
            arrays = [np.arange(1, len(call.features) + 1), call.features, call.middle, call.scale]
            out.append(pa.StructArray.from_arrays([pa.array(part) for part in arrays], fields=list(kind)).to_pylist())
        return pa.array(out, type=pa.list_(kind))

    return run


def key(session: Session) -> Callable[..., pa.Array]:
    """(hash) → the hash under the session's secret key, to sample rows per privacy unit."""
    low, high = (np.uint64(session.sampling_key >> shift & 0xFFFFFFFFFFFFFFFF) for shift in (0, 64))

    def run(hashes: Any) -> pa.Array:
        mixed = single_chunk(hashes).to_numpy(zero_copy_only=False).astype(np.uint64) ^ low
        for _ in range(2):  # the finaliser of splitmix64, keyed before and between
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed = (mixed ^ (mixed >> np.uint64(31))) + high
        return pa.array(mixed)

    return run


def integers(row: Any, count: int) -> np.ndarray[Any, Any]:
    """Return a HUGEINT list as integers: int64 where they fit, Python ints beyond; NULL, no rows at all, as zeros."""
    values = row.values
    if values is None or len(values) == 0:
        return np.zeros(count, dtype=np.int64)
    words = np.frombuffer(values.buffers()[1], dtype=np.int64)[2 * values.offset : 2 * (values.offset + len(values))]
    low, high = words[0::2], words[1::2]
    if (high == low >> 63).all():
        return low.copy()
    return np.array([int(value) for value in values.to_pylist()], dtype=object)


def _first_row(sums: np.ndarray[Any, Any], rows: int) -> pa.Array:
    offsets = np.full(rows + 1, len(sums), dtype=np.int32)
    offsets[0] = 0
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(sums))


def _releases(rows: list[dict[str, Any]]) -> pa.Array:
    return pa.array(rows, type=pa.struct([("sequence", pa.int64()), ("entries", pa.list_(RANKED))]))


SPECS = (
    UdfSpec("dpsql_plan", plan, "VARCHAR", native=True, pure=True),
    UdfSpec("dpsql_gate", gate, "VARCHAR"),
    UdfSpec("dpsql_xty", xty, "BIGINT[]"),
    UdfSpec("dpsql_target_sums", target_sums, "BIGINT[]"),
    UdfSpec("dpsql_target", target, "BIGINT"),
    UdfSpec("dpsql_center", center, "BIGINT"),
    UdfSpec("dpsql_features", features, "STRUCT(j BIGINT, name VARCHAR, middle DOUBLE, scale DOUBLE)[]"),
    UdfSpec("dpsql_key", key, "UBIGINT", pure=True),
    UdfSpec("dpsql_release", release, _RELEASE),
    UdfSpec("dpsql_stored", stored, _RELEASE),
    UdfSpec("dpsql_exact", exact, "STRUCT(feature VARCHAR, xty HUGEINT)[]"),
    UdfSpec("dpsql_sis", aggregate, "STRUCT(rank BIGINT, feature VARCHAR)[]"),
)
