"""Conversion of values between DuckDB and dpsql."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.errors import ParameterError
from dpsql.kernels.columns import single_chunk

# Exact integers: int64 where they fit, Python ints beyond.
Integers: TypeAlias = NDArray[np.int64] | NDArray[np.object_]

# Queries and their plans, as the planner hands them over.
Plans: TypeAlias = Sequence[Mapping[str, str]] | None


def struct_list(columns: Mapping[str, str]) -> str:
    """Return the SQL type of a table, of which each column's type is given."""
    return "STRUCT(" + ", ".join(f"{name} {kind}" for name, kind in columns.items()) + ")[]"


def seen_of(listed: Plans) -> list[tuple[str, str]]:
    """Return queries and their plans as pairs."""
    return [(one["query"], one["plan"]) for one in listed or ()]


def one_ticket(tickets: pa.Array) -> int:
    """Return the one ticket of a batch of rows."""
    batch = single_chunk(tickets)
    if batch.null_count == 0:
        numbers = batch.to_numpy()
        data = numbers.tobytes()  # NumPy would release Python's lock to compare, and wait for it
        if data == data[: numbers.itemsize] * len(numbers):
            return int(numbers[0])
    raise nested()


def nested() -> ParameterError:
    """Refuse to run once per row of an outer query.

    DuckDB 2.0 joins the outer rows to the source's, and such a batch would sum a row many times.
    """
    return ParameterError(
        "P019",
        "a private table function must not stand in a correlated subquery or lateral join: it would be a release per "
        "outer row. Name it once, WITH r AS MATERIALIZED (SELECT * FROM ...), and use r.",
    )


def integers(row: pa.Array, count: int) -> Integers:
    """Return a HUGEINT list as integers: int64 where they fit, Python ints beyond; NULL, no rows at all, as zeros."""
    values = row.values
    if values is None or len(values) == 0:
        return np.zeros(count, dtype=np.int64)
    words = np.frombuffer(values.buffers()[1], dtype=np.int64)[2 * values.offset : 2 * (values.offset + len(values))]
    low, high = words[0::2], words[1::2]
    if (high == low >> 63).all() and low.min() > np.iinfo(np.int64).min:  # so that abs() fits too
        return low.copy()
    return np.array([int(value) for value in values.to_pylist()], dtype=object)
