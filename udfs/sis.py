"""Register for dp_sis the private centre, the products of long rows, and the exact statistic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from dpsql.engines.duckdb.running import RunningCall
from dpsql.engines.duckdb.session import Session
from dpsql.functions.sis import SisCall, draw_center
from dpsql.kernels.columns import single_chunk, to_doubles
from dpsql.statistics.xty import CrossProducts, centre
from dpsql.udfs.values import UdfSpec, integers, one_ticket


def center(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, [sum of S + t, sum of S - t]) → the private mean of the target, charged with the release."""

    def draw_once(ticket: int, sums: pa.Array) -> int:
        def draw(running: RunningCall) -> int:
            with running.turning:
                if running.center is None:  # DuckDB may evaluate a function more than once
                    running.center = draw_center(running.call_as(SisCall).plan, *integers(sums, 2).tolist())
                return running.center

        return session.guarded(ticket, draw, private=True)

    def run(tickets: pa.Array, sums: pa.Array) -> pa.Array:
        means = [draw_once(ticket.as_py(), row) for ticket, row in zip(tickets, sums, strict=True)]
        return pa.array(means, type=pa.int64())

    return run


def centred(session: Session) -> Callable[..., pa.Array]:
    """Bind (centre, target) → the coded target minus the centre, clipped, as an integer."""

    def run(centers: pa.Array, targets: pa.Array) -> pa.Array:
        return pa.array(centre(single_chunk(targets).to_numpy(), int(centers[0].as_py())).astype(np.int64))

    return run


def product(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, position of the feature, value, target) → a present cell's addition to an absent cell's product."""

    def run(tickets: pa.Array, positions: pa.Array, cells: pa.Array, targets: pa.Array) -> pa.Array:
        features, values, target = (single_chunk(part) for part in (positions, cells, targets))
        return pa.array(
            session.guarded(
                one_ticket(tickets),
                lambda running: running.call_as(SisCall).cell_products(
                    features.to_numpy() - 1, to_doubles(values), target.to_numpy()
                ),
            )
        )

    return run


def exact(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, statistic) → one row per feature, without noise. Not private."""

    def run(tickets: pa.Array, statistics: pa.Array) -> pa.Array:
        out = []
        for ticket, row in zip(tickets, statistics, strict=True):
            running = session.running(ticket.as_py(), private=False)
            features = running.call.features
            if running.collecting is None:
                sums = integers(row, len(features)).tolist()
            else:
                collector = session.guarded(ticket.as_py(), partial(RunningCall.complete, numbers=row))
                if not isinstance(collector, CrossProducts):
                    raise TypeError("the sums are of another function")
                sums = collector.total().tolist()
            out.append([{"feature": name, "xty": value} for name, value in zip(features, sums, strict=True)])
        kind = pa.struct([("feature", pa.string()), ("xty", pa.decimal128(38, 0))])
        return pa.array(out, type=pa.list_(kind))

    return run


SPECS = (
    UdfSpec("dpsql_center", center, "BIGINT"),
    UdfSpec("dpsql_centred", centred, "BIGINT"),
    UdfSpec("dpsql_product", product, "BIGINT"),
    UdfSpec("dpsql_exact_xty", exact, "STRUCT(feature VARCHAR, xty HUGEINT)[]"),
)
