"""Cells by type: golden edges, and counts that equal those of a grid made directly from the definition."""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np
import pyarrow as pa
import pytest

from dpsql.kernels.cells import FINE_CELLS, MOST_CELLS, MagnitudeCounts, TypedCells, fine_edges
from support.cases import cases

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
DECIMALS = [pa.decimal128(1, 0), pa.decimal128(3, 1), pa.decimal128(9, 2), pa.decimal128(15, 15)]
DOUBLES = [pa.float32(), pa.float64(), pa.decimal128(38, 2), pa.decimal128(19, 0)]


def direct(most: int, signed: bool) -> list[int]:
    """The least integer of each cell but the first, by the definition."""
    starts = []
    for exponent in range(most.bit_length()):
        runs = min(2**exponent, 4)
        starts += [2**exponent + run * 2**exponent // runs for run in range(runs)]
    starts = [start for start in starts if start <= most]
    # A negative cell ends at minus its start; the next one begins one above it. The outermost one has no least value.
    return [*([1 - start for start in starts[::-1]] if signed else []), *starts]


def counted(cells: TypedCells, values: list[float]) -> list[int]:
    magnitudes = MagnitudeCounts(1)
    magnitudes.add(cells.coded(np.array([values], dtype=np.float64)))
    return cells.counts(magnitudes.counts[0]).tolist()


def range_of(kind: pa.DataType) -> tuple[int, int, int]:
    """The least and the greatest integer of a type, and the power of ten that it counts."""
    if pa.types.is_decimal(kind):
        return 1 - 10**kind.precision, 10**kind.precision - 1, kind.scale
    signed = pa.types.is_signed_integer(kind)
    most = 2 ** (kind.bit_width - signed) - 1
    return (-most - 1 if signed else 0), most, 0


@cases("kind", [*INTEGERS, *DECIMALS], ids=str)
def test_aggregated_counts_are_those_of_the_direct_grid(kind: pa.DataType) -> None:
    """At every edge and beside it, at the ends of the type, and beyond them."""
    least, most, digits = range_of(kind)
    cells, starts = TypedCells.of(kind), direct(most, least < 0)
    assert cells.count == len(starts) + 1
    near = sorted({start + by for start in starts for by in (-1, 0, 1)} | {least, most, 0})
    near = [one for one in near if least <= one <= most and abs(one) < 2**50]
    expected = [0] * cells.count
    for one in near:
        expected[bisect_right(starts, one)] += 1
    values = [one / 10**digits for one in near]
    assert counted(cells, values) == expected
    for one, value in zip(near, values, strict=True):
        cell = bisect_right(starts, one)
        assert cells.low[cell] <= value <= cells.high[cell]
    beyond = [0] * cells.count
    beyond[0] += 2
    beyond[-1] += 2
    assert counted(cells, [math.inf, -math.inf, 1e300, -1e300, math.nan]) == beyond


@cases("kind", [*INTEGERS, *DECIMALS, *DOUBLES], ids=str)
def test_cells_are_unions_of_fine_cells(kind: pa.DataType) -> None:
    cells = TypedCells.of(kind)
    assert cells.starts[0] == 0
    assert (np.diff(cells.starts) > 0).all()
    assert cells.counts(np.ones(FINE_CELLS, dtype=np.int64)).sum() == FINE_CELLS
    assert (cells.low <= cells.high).all()
    assert (np.diff(cells.low) > 0).all()
    assert cells.low[cells.zero] <= 0 <= cells.high[cells.zero]
    assert cells.count <= MOST_CELLS
    assert cells is TypedCells.of(kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", DOUBLES, ids=str)
def test_doubles_have_four_cells_in_an_octave(kind: pa.DataType) -> None:
    cells, edges = TypedCells.of(kind), fine_edges()
    assert cells.count == MOST_CELLS == 1033
    assert cells.zero == 516
    assert set(cells.low) | set(cells.high) <= set(edges)
    assert (cells.high[:-1] == cells.low[1:]).all()
    up = cells.low[cells.zero + 1 :]
    assert up[:5].tolist() == [2.0**-64 * by for by in (1, 1.25, 1.5, 1.75, 2)]
    assert (-cells.high[: cells.zero][::-1] == up).all()


@pytest.mark.long
def test_golden_ends() -> None:
    """Of small types all cells; of larger ones how many, and the outermost."""
    one = TypedCells.of(pa.uint8())
    assert list(zip(one.low, one.high, strict=True)) == [
        *((value, value) for value in range(8)),
        *((8, 9), (10, 11), (12, 13), (14, 15), (16, 19), (20, 23), (24, 27), (28, 31)),
        *((32, 39), (40, 47), (48, 55), (56, 63), (64, 79), (80, 95), (96, 111), (112, 127)),
        *((128, 159), (160, 191), (192, 223), (224, 255)),
    ]
    tiny = TypedCells.of(pa.int8())
    assert tiny.low[23:].tolist() == one.low[:24].tolist()
    assert tiny.high[23:].tolist() == one.high[:24].tolist()
    assert (tiny.low[1:23] == -tiny.high[45:23:-1]).all()
    assert [tiny.low[0], tiny.high[0]] == [-128, -112]
    ends = {
        kind: (of.count, float(of.low[0]), float(of.high[0]), float(of.low[-1]), float(of.high[-1]))
        for kind in [*INTEGERS[1:4], *INTEGERS[5:], *DECIMALS]
        for of in [TypedCells.of(kind)]
    }
    assert ends == {
        pa.int16(): (111, -32768, -28672, 28672, 32767),
        pa.int32(): (239, -(2.0**31), -1879048192, 1879048192, 2147483647),
        pa.int64(): (495, -(2.0**63), -(2.0**60) * 7, 2.0**60 * 7, 2.0**63),
        pa.uint16(): (60, 0, 0, 57344, 65535),
        pa.uint32(): (124, 0, 0, 3758096384, 4294967295),
        pa.uint64(): (252, 0, 0, 2.0**61 * 7, 2.0**64),
        pa.decimal128(1, 0): (17, -9, -8, 8, 9),
        pa.decimal128(3, 1): (71, -99.9, -89.6, 89.6, 99.9),
        pa.decimal128(9, 2): (231, -9999999.99, -9395240.96, 9395240.96, 9999999.99),
        pa.decimal128(15, 15): (391, -0.999999999999999, -0.985162418487296, 0.985162418487296, 0.999999999999999),
    }
