"""Arrays of numbers, as the rooms hand them to each other, and rows as one array of Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
# Doubles, or floats as Arrow holds them.
Floats = NDArray[np.floating]
Longs = NDArray[np.int64]
# Exact integers: in 64 bits where they fit, else Python's.
Integers = Longs | NDArray[np.object_]


def struct_rows(table: pa.Table) -> pa.StructArray:
    """Return the rows of a table as one array; of no rows, too, which `Table.to_struct_array` of PyArrow 20 refuses."""
    columns = [column.combine_chunks() for column in table.columns]
    return pa.StructArray.from_arrays(columns, fields=list(table.schema))
