"""Register the exact counts for dp_kendall."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from dpsql.engines.duckdb.running import RunningCall
from dpsql.engines.duckdb.session import Session
from dpsql.statistics.kendall import WholeTable
from dpsql.udfs.values import UdfSpec


def exact(session: Session) -> Callable[..., pa.Array]:
    """Bind (ticket, numbers of the batches) → one row per feature, without noise. Not private."""

    def run(tickets: pa.Array, statistics: pa.Array) -> pa.Array:
        out = []
        for ticket, numbers in zip(tickets, statistics, strict=True):
            running = session.running(ticket.as_py(), private=False)
            collector = session.guarded(ticket.as_py(), partial(RunningCall.complete, numbers=numbers))
            if not isinstance(collector, WholeTable):
                raise TypeError("the counts are of another function")
            counts = zip(running.call.features, *collector.counts(), strict=True)
            out.append([{"feature": name, "discordant": no, "concordant": yes} for name, yes, no in counts])
            session.close_call(ticket.as_py())
        number = pa.decimal128(38, 0)
        kind = pa.struct([("feature", pa.string()), ("discordant", number), ("concordant", number)])
        return pa.array(out, type=pa.list_(kind))

    return run


SPECS = (UdfSpec("dpsql_exact_discordant", exact, "STRUCT(feature VARCHAR, discordant HUGEINT, concordant HUGEINT)[]"),)
