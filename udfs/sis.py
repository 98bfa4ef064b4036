"""dp_sis: plan at bind, gate, partial sums, release."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from dpsql.call import Call
from dpsql.errors import InternalError, ParameterError
from dpsql.kernels.columns import single_chunk
from dpsql.ledger import Entry
from dpsql.plan import SIS_ARGUMENTS, SisPlan
from dpsql.selection import RANKED, draw_center, draw_selection, ranked
from dpsql.session import RunningCall, Session
from dpsql.statements import admit_sql, exact_sql, release_sql, rows_sql, stored_sql
from dpsql.udfs.spec import UdfSpec

_RELEASE = "STRUCT(sequence BIGINT, guarantee VARCHAR, entries STRUCT(rank BIGINT, feature VARCHAR)[])"
_BATCH = 1 << 16  # rows of the aggregate form that are worked on at once: bounds the memory of a dense copy
_parse = lru_cache(maxsize=256)(SisPlan.from_json)


def plan(session: Session) -> Callable[..., str]:
    """Bind (function, source, …arguments) → the text to run, for query(). Pure: never charges."""

    def run(function: str, source: Any, *values: Any) -> str:
        given = dict(zip(SIS_ARGUMENTS, values, strict=True))
        checked = session.plan(source, given, aggregate=function.endswith("aggregate"))
        if function == "exact_xty":
            return exact_sql(checked, function, session.catalog)
        session.check(checked)
        if function.endswith("aggregate"):
            return admit_sql(checked)
        stored = session.replay(checked) is not None
        return rows_sql(stored_sql(checked, function) if stored else release_sql(checked, function, session.catalog))

    return run


def _ticket(tickets: Any) -> int:
    """Return the one ticket of a batch of rows."""
    batch = single_chunk(tickets)
    if batch.null_count == 0:
        numbers = batch.to_numpy()
        if (numbers == numbers[0]).all():
            return int(numbers[0])
    raise _nested()


def _nested() -> ParameterError:
    """Refuse to run once per row of an outer query.

    DuckDB 2.0 joins such rows to ours, and a batch that mixes them would sum a row many times over.
    """
    return ParameterError(
        "P019",
        "a private table function must not stand in a correlated subquery or lateral join: it would be a release per "
        "outer row. Name it once, WITH r AS MATERIALIZED (SELECT * FROM ...), and use r.",
    )


def admit(session: Session) -> Callable[..., pa.Array]:
    """Bind (plan) → the plan, where the budget allows it: the aggregate form reads no row before."""

    def run(plans: Any) -> pa.Array:
        session.check(_parse(plans[0].as_py()))
        return single_chunk(plans)

    return run


def gate(session: Session) -> Callable[..., pa.Array]:
    """Bind (function, plan, probe of the row types) → ticket. Checks types and budget before a row is read."""

    def run(functions: Any, plans: Any, probe: Any) -> pa.Array:
        if len(plans) != 1:
            raise _nested()
        checked = _parse(plans[0].as_py())
        function = functions[0].as_py()
        kinds = {field.name: field.type for field in probe.type}
        parts = {
            "privacy_unit": "dpsql_unit",
            "row_id": "dpsql_row_id",
            "features": "dpsql_feature",
            "value": "dpsql_value",
        }
        call = Call.resolve(
            checked, kinds["dpsql_row"], {part: kinds[name] for part, name in parts.items() if name in kinds}
        )
        if function != "exact_xty":
            session.check(checked)
        return pa.array([session.open_call(call, function)])

    return run


def xty(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, centre, row) → the batch's partial sums on its first row, NULL on the others."""

    def run(tickets: Any, centers: Any, rows: Any) -> pa.Array:
        batch = single_chunk(rows)
        center = int(centers[0].as_py())
        return _first_row(
            session.guarded(_ticket(tickets), lambda running: running.call.partial(batch, center)), len(batch)
        )

    return run


def target_sums(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, row) → the batch's sums of S + t and S - t on its first row."""

    def run(tickets: Any, rows: Any) -> pa.Array:
        batch = single_chunk(rows)
        sums = session.guarded(_ticket(tickets), lambda running: running.call.target_sums(batch), private=True)
        return _first_row(sums, len(batch))

    return run


def target(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, row) → the coded target of each row."""

    def run(tickets: Any, rows: Any) -> pa.Array:
        batch = single_chunk(rows)
        coded = session.guarded(_ticket(tickets), lambda running: running.call.quantised_target(batch))
        return pa.array(coded.astype(np.int64))

    return run


def center(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, [sum of S + t, sum of S - t]) → the private mean of the target, charged with the release."""

    def one(ticket: int, sums: Any) -> int:
        return session.guarded(
            ticket, lambda running: draw_center(running.call.plan, *integers(sums, 2).tolist()), private=True
        )

    def run(tickets: Any, sums: Any) -> pa.Array:
        means = [one(ticket.as_py(), row) for ticket, row in zip(tickets, sums, strict=True)]
        return pa.array(means, type=pa.int64())

    return run


def release(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, statistic) → the selection: charged, drawn and stored in one transaction."""

    def one(ticket: int, statistic: Any) -> Entry:
        def work(running: RunningCall) -> Entry:
            call = running.call
            utility = session.guarded(ticket, lambda _: np.abs(integers(statistic, len(call.features))))
            return session.release(
                call.plan, running.function, lambda: draw_selection(call.plan, utility, call.features)
            )

        return session.release_once(ticket, work)

    def run(tickets: Any, statistics: Any) -> pa.Array:
        return _releases([one(ticket.as_py(), row) for ticket, row in zip(tickets, statistics, strict=True)])

    return run


def exact(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, statistic) → one row per feature, as it is. Not private."""

    def run(tickets: Any, statistics: Any) -> pa.Array:
        out = []
        for ticket, row in zip(tickets, statistics, strict=True):
            features = session.running(ticket.as_py(), private=False).call.features
            sums = integers(row, len(features)).tolist()
            out.append([{"feature": name, "xty": value} for name, value in zip(features, sums, strict=True)])
        kind = pa.struct([("feature", pa.string()), ("xty", pa.decimal128(38, 0))])
        return pa.array(out, type=pa.list_(kind))

    return run


def stored(session: Session) -> Callable[..., pa.Array]:
    """Bind (function, plan) → a named release as the ledger holds it."""

    def run(functions: Any, plans: Any) -> pa.Array:
        out = []
        for function, text in zip(functions, plans, strict=True):
            entry = session.replay(_parse(text.as_py()), function.as_py())
            if entry is None:
                raise InternalError("I003", "the stored release is gone from the ledger. Run `dpsql ledger verify`.")
            out.append(entry)
        return _releases(out)

    return run


def aggregate(session: Session) -> Callable[..., pa.Array]:
    """Bind (list of {y, x}, plan) → the selection of each group; one group is one release."""

    def run(groups: Any, plans: Any) -> pa.Array:
        lists = single_chunk(groups)
        checked = _parse(plans[0].as_py())
        if checked.release is not None and len(lists) > 1:
            raise ParameterError(
                "P013", "release names one release, and with GROUP BY each group is one. Leave release out."
            )
        call = Call.resolve(checked, lists.type.value_type, {})
        session.check(checked)
        out = []
        for start, stop in pairwise(lists.offsets.to_numpy()):
            ticket = session.open_call(call, "dp_sis")
            rows = lists.values.slice(start, stop - start)
            out.append(ranked(session.release_once(ticket, partial(_release_rows, session, ticket, rows)).result))
        return pa.array(out, type=pa.list_(RANKED))

    return run


def _release_rows(session: Session, ticket: int, rows: pa.StructArray, running: RunningCall) -> Entry:
    """Release from rows that are all at hand; what the table form does in SQL."""
    call = running.call
    batches = [rows.slice(start, _BATCH) for start in range(0, len(rows), _BATCH)]
    mean = 0
    if call.plan.center == "target":
        mean = session.guarded(
            ticket, lambda _: draw_center(call.plan, *_add(map(call.target_sums, batches), 2).tolist())
        )
    parts = (call.partial(batch, mean) for batch in batches)
    utility = session.guarded(ticket, lambda _: np.abs(_add(parts, len(call.features))))
    return session.release(call.plan, running.function, lambda: draw_selection(call.plan, utility, call.features))


def _add(parts: Iterable[np.ndarray[Any, Any]], count: int) -> np.ndarray[Any, Any]:
    """Add integers of any size: int64 where the total is sure to fit, Python ints beyond."""
    low, high = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=object)
    for part in parts:
        low += part & 0xFFFFFFFF
        high += part >> 32
    total = high * 2**32 + low
    return total.astype(np.int64) if max(map(abs, total), default=0) < 2**63 else total


def features(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket) → the public features with their affine maps."""

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


def integers(row: Any, count: int) -> np.ndarray[Any, Any]:
    """Return a HUGEINT list as integers: int64 where they fit, Python ints beyond; NULL, no rows at all, as zeros."""
    values = row.values
    if values is None or len(values) == 0:
        return np.zeros(count, dtype=np.int64)
    words = np.frombuffer(values.buffers()[1], dtype=np.int64)[2 * values.offset : 2 * (values.offset + len(values))]
    low, high = words[0::2], words[1::2]
    if (high == low >> 63).all() and low.min() > np.iinfo(np.int64).min:  # so that abs() fits too
        return low.copy()
    return np.array([int(value) for value in values.to_pylist()], dtype=object)


def _first_row(sums: np.ndarray[Any, Any], rows: int) -> pa.Array:
    offsets = np.full(rows + 1, len(sums), dtype=np.int32)
    offsets[0] = 0
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(sums))


def _releases(entries: list[Entry]) -> pa.Array:
    kind = pa.struct([("sequence", pa.int64()), ("guarantee", pa.string()), ("entries", pa.list_(RANKED))])
    rows = [
        {"sequence": entry.sequence, "guarantee": entry.guarantee, "entries": ranked(entry.result)} for entry in entries
    ]
    return pa.array(rows, type=kind)


SPECS = (
    UdfSpec("dpsql_plan", plan, "VARCHAR", native=True, pure=True),
    UdfSpec("dpsql_admit", admit, "VARCHAR"),
    UdfSpec("dpsql_gate", gate, "BIGINT"),
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
