"""Arrays that go between Python, NumPy and Arrow without pandas are those that Arrow itself would make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpsql.arrays import _FEW, are_missing, from_numbers, from_values, to_numbers
from support.cases import cases

ROW = pa.struct([("name", pa.string()), ("counts", pa.list_(pa.int64())), ("value", pa.float64())])
ROWS: list[Any] = [
    {"name": "größe", "counts": [1, -(2**63)], "value": 0.5},
    None,
    {"name": None, "counts": None, "value": None},
    {"name": "", "counts": [], "value": 1},
    {"counts": [None, 2**63 - 1], "value": float("inf")},
]
VALUES: dict[str, tuple[Any, pa.DataType]] = {
    "rows": (ROWS, ROW),
    "lists of rows": ([ROWS, None, [], ROWS[:1]], pa.list_(ROW)),
    "nothing": ([], pa.list_(ROW)),
    "NULL alone": ([None] * 9, pa.string()),
    "text of NumPy": (np.array(["a", None, "bb"], dtype=object), pa.string()),
    "lists of NumPy": ([np.array([0.5, 1]), None, np.zeros(0)], pa.list_(pa.float64())),
    "one long list": ([{"numbers": range(_FEW + 1)}, None], pa.struct([("numbers", pa.list_(pa.int64()))])),
    "booleans": ([True, None], pa.bool_()),
    "small integers": ([7, None, -(2**31)], pa.int32()),
    "many": (list(range(_FEW + 1)), pa.int64()),
}


@cases("name", VALUES)
def test_values_are_those_of_arrow(name: str) -> None:
    values, kind = VALUES[name]
    made = from_values(values, kind)
    made.validate(full=True)
    assert made.equals(pa.array(values, type=kind))


@cases(("value", "kind"), [(0.5, pa.int64()), (2**63, pa.int64()), ("1", pa.float64()), (2**31, pa.int32())])
def test_values_of_another_type_are_refused(value: object, kind: pa.DataType) -> None:
    with pytest.raises((TypeError, OverflowError)):
        from_values([value], kind)


@cases("kind", ["int64", "uint64", "float64", "int32"])
def test_numbers_go_to_arrow_and_back(kind: str) -> None:
    numbers = np.arange(20, dtype=kind)[::2]
    missing = numbers % 3 == 0
    array = from_numbers(numbers, missing)
    assert array.equals(pa.array(numbers, mask=missing))
    assert np.array_equal(to_numbers(from_numbers(numbers)[2:5]), numbers[2:5])
    for part in (array, array[3:]):
        assert np.array_equal(to_numbers(part), part.to_numpy(zero_copy_only=False), equal_nan=True)
        assert np.array_equal(are_missing(part), part.is_null().to_numpy(zero_copy_only=False))
