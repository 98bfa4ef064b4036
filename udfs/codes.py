"""How values are coded within private bounds, on its way into a statement."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from dpsql.engines.duckdb.running import Calls
from dpsql.functions.grouped.aggregate import AggregateCall
from dpsql.udfs.values import struct_list

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

    def one(ticket: int) -> list[dict[str, float]]:
        call = calls.running(ticket).call_as(AggregateCall)
        if not call.drawn:
            raise TypeError("no bounds were drawn")
        blocks = [block for block in call.target_blocks if block is not None]
        rows = ((block.lower, block.upper, *block.affine, *block.limits) for block in blocks)
        return [dict(zip(CODE, row, strict=True)) for row in rows]

    def run(tickets: pa.Array) -> pa.Array:
        return pa.array([one(ticket.as_py()) for ticket in tickets], type=_KIND)

    return run
