"""Pass arrays of numbers between modules, and rows as one Arrow array."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
# Doubles; Arrow may hold them as floats.
Floats = NDArray[np.floating]
Longs = NDArray[np.int64]
Words = NDArray[np.uint64]
# Exact integers: 64 bits if they fit, else Python integers.
Integers = Longs | NDArray[np.object_]


def struct_rows(table: pa.Table) -> pa.StructArray:
    """Return the rows of a table as one array; `Table.to_struct_array` of PyArrow 20 refuses an empty table."""
    columns = [column.combine_chunks() for column in table.columns]
    return pa.StructArray.from_arrays(columns, fields=list(table.schema))
