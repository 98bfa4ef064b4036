"""The compiled kernels of `block_gram`: the same minima, maxima and integers as its NumPy forms.

Sums are of integers below ``2**53``, which doubles hold exactly: fused multiplication cannot change them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Floats, Longs
from dpsql.kernels.fixed_point import FIXED_POINT_ONE

if TYPE_CHECKING:
    from numba.core.base import BaseContext
    from numba.core.typing import Context, Signature

_ONE = float(FIXED_POINT_ONE)
_LARGEST = 2.0**500
_LANES = 8


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def ranges(rows: Floats, blocks: Longs, least: Doubles, most: Doubles) -> None:
    """Lower `least` and raise `most`, of shape (blocks, width), to the values of rows of shape (n, width)."""
    for i in range(len(rows)):
        row, low, high = rows[i], least[blocks[i]], most[blocks[i]]
        for j in range(len(low)):
            value = row[j]
            low[j] = value if (value < low[j]) & (value >= -_LARGEST) else low[j]
            high[j] = value if (value > high[j]) & (value <= _LARGEST) else high[j]


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def quantise_rows(
    rows: Floats, blocks: Longs, positions: Longs, middle: Doubles, scale: Doubles, values: NDArray[np.float32]
) -> None:
    """Quantise rows of shape (n, width); put (1, row) into row ``positions[i]`` of `values`, except rows in no fit."""
    width = rows.shape[1]
    for i in range(len(rows)):
        if blocks[i] == len(middle):
            continue
        values[positions[i], 0] = 1.0
        out, row = values[positions[i], 1 : width + 1], rows[i]
        m, s = middle[blocks[i]], scale[blocks[i]]
        for j in range(len(out)):
            u = (row[j] - m[j]) * s[j]
            u = _ONE if u > _ONE else u
            u = -_ONE if u < -_ONE else u
            q = np.floor(u + 0.5)
            out[j] = q if q == q else 0.0


@intrinsic  # type: ignore[untyped-decorator]
def _add_panel(
    typing_context: Context,
    tile: types.Array,
    rows: types.Integer,
    width: types.Integer,
    i: types.Integer,
    j: types.Integer,
    sums: types.Array,
    into: types.Integer,
) -> tuple[Signature, Callable[..., ir.Value]]:
    """Add ``tile[:rows, i : i + 8].T @ tile[:rows, j : j + 16]`` to ``sums[into:]``; both are flat, of rows of `width`.

    Registers hold sixteen vectors of eight sums during the pass.
    """
    del typing_context
    double, lanes = ir.DoubleType(), range(_LANES)
    vector = ir.VectorType(double, _LANES)
    exact = ("contract",)  # a fused product changes nothing, as every sum is an integer below 2**53

    def generate(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Sequence[ir.Value]
    ) -> ir.Value:
        def data(which: int) -> ir.Value:
            return context.make_array(signature.args[which])(context, builder, arguments[which]).data

        def vector_at(pointer: ir.Value) -> ir.Value:
            return builder.bitcast(pointer, vector.as_pointer())

        _, count, stride, first, second, _, start = arguments
        zero = ir.Constant(vector, [0.0] * _LANES)
        accumulators = [[cgutils.alloca_once_value(builder, zero) for _ in range(2)] for _ in lanes]
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES)
        with cgutils.for_range(builder, count) as loop:
            row = builder.gep(data(0), [builder.mul(loop.index, stride)])
            right = builder.gep(row, [second])
            both = [
                builder.load(vector_at(builder.gep(right, [ir.Constant(ir.IntType(64), half * _LANES)])), align=8)
                for half in range(2)
            ]
            left = builder.gep(row, [first])
            for lane in lanes:
                value = builder.load(builder.gep(left, [ir.Constant(ir.IntType(64), lane)]))
                scalar = builder.insert_element(
                    ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0)
                )
                spread = builder.shuffle_vector(scalar, ir.Constant(vector, ir.Undefined), everywhere)
                for half in range(2):
                    product = builder.fmul(spread, both[half], flags=exact)
                    slot = accumulators[lane][half]
                    builder.store(builder.fadd(builder.load(slot), product, flags=exact), slot)
        for lane in lanes:
            line = builder.add(start, builder.mul(ir.Constant(ir.IntType(64), lane), stride))
            for half in range(2):
                offset = builder.add(line, ir.Constant(ir.IntType(64), half * _LANES))
                pointer = vector_at(builder.gep(data(5), [offset]))
                total = builder.fadd(builder.load(pointer, align=8), builder.load(accumulators[lane][half]))
                builder.store(total, pointer, align=8)
        return context.get_dummy_value()

    integer = types.intp
    return types.void(tile, integer, integer, integer, integer, sums, integer), generate


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def gram(
    values: NDArray[np.float32], begin: Longs, end: Longs, first: int, last: int, tile: Doubles, sums: Doubles
) -> None:
    """Add the Gram matrices of rows ``values[begin[b] : end[b]]`` to the upper triangles of ``sums[b]``.

    The width is a multiple of 16; `tile` is a buffer of doubles for some rows.
    """
    width = values.shape[1]
    flat = tile.reshape(-1)
    for block in range(first, last):
        into = sums[block].reshape(-1)
        for start in range(begin[block], end[block], len(tile)):
            rows = min(len(tile), end[block] - start)
            for r in range(rows):
                target, source = tile[r], values[start + r]
                for j in range(len(target)):
                    target[j] = source[j]
            for i in range(0, width, _LANES):
                for j in range(i // (2 * _LANES) * (2 * _LANES), width, 2 * _LANES):
                    _add_panel(flat, rows, width, i, j, into, i * width + j)


def compile_all() -> None:
    """Compile every kernel for its argument types."""
    rows, index = np.ones((1, 1)), np.zeros(1, dtype=np.int64)
    least, most = np.full((1, 1), np.inf), np.full((1, 1), -np.inf)
    ranges(rows, index, least, most)
    rows.flags.writeable = False  # like Arrow's buffers
    ranges(rows, index, least, most)
    values = np.zeros((1, 16), dtype=np.float32)
    for batch in (rows, np.ones((1, 1))):
        quantise_rows(batch, index, index, least, most, values)
    gram(values, index, index + 1, 0, 1, np.zeros((1, 16)), np.zeros((1, 16, 16)))
