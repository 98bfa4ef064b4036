"""Rows of synthetic tables for whoever released them: they are made of stored numbers, and no budget pays for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dpsql.context import Context
from dpsql.engines.duckdb.synthetic_table import read_count, read_seed
from dpsql.errors import GatewayError, ParameterError
from dpsql.ledger.rows import StoredRelease

# Of one answer.
_MOST_CELLS = 2_000_000


def synthetic_rows(context: Context, own: Sequence[StoredRelease], given: Mapping[str, Any]) -> pa.Table:
    """Return rows of a synthetic table.

    Parameters
    ----------
    context : Context
    own : sequence of StoredRelease
        What the principal may name.
    given : mapping
        The arguments of the call: the number of the release, and n and seed.

    Raises
    ------
    GatewayError
        G012, G018: there is another argument, or no such release.
    ParameterError
        P002, P013, P050: n or seed is none, or n is too large.
    """
    if others := sorted(set(given) - {"release", "n", "seed"}):
        raise GatewayError("G012", f"dp_synthetic_rows has no {others[0]}. Its arguments: release, n, seed.")
    key = given.get("release")
    number = str(key) if isinstance(key, (int, str)) and not isinstance(key, bool) else ""
    found = [one for one in own if number == str(one.sequence) and one.function == "dp_synthetic"]
    if not found:
        raise GatewayError("G018", "you have no such release of dp_synthetic. Its receipt has the number: its entry.")
    stored = found[0]
    count, most = read_count(given.get("n")), _MOST_CELLS // len(stored.result["columns"])
    if (stored.result["rows"] if count is None else count) > most:
        raise ParameterError("P050", f"n must be at most {most} here. Ask again with another seed for more rows.")
    return context.dp_synthetic_rows(stored.sequence, n=count, seed=read_seed(given.get("seed")))
