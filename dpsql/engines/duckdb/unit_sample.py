"""Which rows of a privacy unit count: a systematic sample of them, which follows from its own rows and a secret key."""

from __future__ import annotations

from dpsql.engines.duckdb.keys import short_place
from dpsql.rendering import call, cast, plus

# Times a number of rows below 2**43, smaller limits fit into 64 bits.
_LARGE = 1 << 20


def partition_by(names: list[str]) -> str:
    """Return the clause of a window over the rows that agree in some columns."""
    return f"PARTITION BY {', '.join(names)}"


def order_by(names: list[str]) -> str:
    """Return the clause of an order; nothing for no columns."""
    return f"ORDER BY {', '.join(f'{name} ASC NULLS LAST' for name in names)}" if names else ""


def sampled(ticket: str, owner: list[str], sorted_by: list[str], most: int) -> str:
    """Return the condition that keeps `most` rows of each owner, or all if it has fewer: a systematic sample.

    The n rows of an owner are in the order of what they hold, so that only equal rows may change places. Each is in the
    sample with the same chance most / n, over the key of the call: row i is, if ``i * most + start`` modulo n is below
    `most`, where a keyed hash of the owner is the start.
    """
    window = f"{partition_by(owner)} {order_by(sorted_by)} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    position, count = (f"{call(name)} OVER ({window})" for name in ("row_number", "count_star"))
    if most >= _LARGE:
        position = cast(position, "HUGEINT")
    start = cast(call(">>", short_place(ticket, *owner), "16"), "BIGINT")
    return f"{call('%', plus(call('*', position, str(most)), start), count)} < {most}"
