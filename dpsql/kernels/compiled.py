"""The compiled kernels. Importing this module compiles them, or loads them from numba's cache.

They use plain IEEE doubles (no fast-math): the same integers as the NumPy forms in `xty`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numba import carray, njit, types
from numba.extending import intrinsic

from dpsql.arrays import Doubles, Floats, Longs, Words
from dpsql.kernels.fixed_point import FIXED_POINT_ONE

if TYPE_CHECKING:
    from llvmlite import ir
    from numba.core.base import BaseContext
    from numba.core.typing import Context, Signature

_ONE = float(FIXED_POINT_ONE)
_TILE = 4096  # columns per pass: accumulator and maps stay in the second-level cache
_BLOCK = 4096  # a double sums the products of so many rows exactly

# Storage types of a column's values: the codes of `xty.storage_codes`.
DOUBLE, FLOAT, INT64, INT32 = 0, 1, 2, 3


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(
    typing_context: Context, address: types.Integer, like: types.Number
) -> tuple[Signature, Callable[..., ir.Value]]:
    """Turn an address into a pointer to values of the type of `like`."""
    del typing_context
    signature = types.CPointer(like)(address, like)

    def generate(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Sequence[ir.Value]
    ) -> ir.Value:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return signature, generate


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def locate(struct: Longs, positions: Longs, addresses: Longs, validity: Longs, offsets: Longs) -> None:
    """Find the buffers of some children of a struct array exported by the Arrow C data interface.

    `struct` is the ArrowArray as ten 64-bit words: length, null count, offset, number of buffers, number
    of children, buffers, children, dictionary, release, private data.
    """
    children = carray(_pointer(struct[6], np.int64(0)), struct[4])
    for k in range(len(positions)):
        child = carray(_pointer(children[positions[k]], np.int64(0)), 10)
        buffers = carray(_pointer(child[5], np.int64(0)), 2)
        validity[k] = buffers[0]
        addresses[k] = buffers[1]
        offsets[k] = child[2] + struct[2]


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def row_major(values: Floats, target: Doubles, middle: Doubles, scale: Doubles, sums: Longs) -> None:
    """Add ``sum_i q_ij t_i`` to `sums` for values of shape (rows, d); see `xty.cross_products`."""
    rows, width = values.shape
    partial = np.empty(_TILE)
    for first in range(0, width, _TILE):
        last = min(first + _TILE, width)
        m = middle[first:last]
        s = scale[first:last]
        a = partial[: last - first]
        for start in range(0, rows, _BLOCK):
            a[:] = 0.0
            for i in range(start, min(start + _BLOCK, rows)):
                t = target[i]
                x = values[i, first:last]
                for j in range(len(a)):
                    u = (x[j] - m[j]) * s[j]
                    u = _ONE if u > _ONE else u
                    u = -_ONE if u < -_ONE else u
                    q = np.floor(u + 0.5)
                    q = q if q == q else 0.0
                    a[j] += t * q
            for j in range(len(a)):
                sums[first + j] += np.int64(a[j])


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def column_major(
    addresses: Longs,
    validity: Longs,
    offsets: Longs,
    codes: Longs,
    target: Doubles,
    middle: Doubles,
    scale: Doubles,
    sums: Longs,
) -> None:
    """Add ``sum_i q_ij t_i`` to `sums` for columns given by the addresses of their Arrow buffers.

    `validity` holds the address of each column's validity bitmap, 0 if every value is present.
    """
    rows = len(target)
    tile = np.empty(_BLOCK)
    for j in range(len(addresses)):
        for start in range(0, rows, _BLOCK):
            count = min(_BLOCK, rows - start)
            first = offsets[j] + start
            x = tile[:count]
            if codes[j] == DOUBLE:
                x[:] = carray(_pointer(addresses[j], np.float64(0)), first + count)[first:]
            elif codes[j] == FLOAT:
                x[:] = carray(_pointer(addresses[j], np.float32(0)), first + count)[first:]
            elif codes[j] == INT64:
                x[:] = carray(_pointer(addresses[j], np.int64(0)), first + count)[first:]
            else:
                x[:] = carray(_pointer(addresses[j], np.int32(0)), first + count)[first:]
            if validity[j] != 0:
                bits = carray(_pointer(validity[j], np.uint8(0)), (first + count + 7) // 8)
                for i in range(count):
                    if not (bits[(first + i) >> 3] >> ((first + i) & 7)) & 1:
                        x[i] = np.nan
            m = middle[j]
            s = scale[j]
            for i in range(count):
                u = (x[i] - m) * s
                u = _ONE if u > _ONE else u
                u = -_ONE if u < -_ONE else u
                u = np.floor(u + 0.5)
                x[i] = u if u == u else 0.0
            # Integers below 2**53 throughout: exact in any order of additions.
            sums[j] += np.int64(np.dot(x, target[start : start + count]))


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def add_words(values: Words, keys: Words, lanes: Words) -> None:
    """Set the lanes of rows; see `identity.row_contents`."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    for lane in range(lanes.shape[0]):
        lanes[lane, :] = keys[2 * values.shape[0], lane]
    for column in range(values.shape[0]):
        for lane in range(lanes.shape[0]):
            first = keys[2 * column, lane]
            second = keys[2 * column + 1, lane]
            for row in range(values.shape[1]):
                value = values[column, row]
                lanes[lane, row] += (value & low) * first + (value >> half) * second


def compile_all() -> None:
    """Compile every kernel for its argument types."""
    words = np.zeros((1, 1), dtype=np.uint64)
    keys = np.zeros((3, 1), dtype=np.uint64)
    keys.flags.writeable = False  # like a digest's bytes
    add_words(words, keys, words.copy())
    doubles, integers = np.zeros(1), np.zeros(1, dtype=np.int64)
    for values in (np.zeros((1, 1)), np.zeros((1, 1), dtype=np.float32)):
        values.flags.writeable = False  # like Arrow's buffers
        row_major(values, doubles, doubles, doubles, integers.copy())
    value = np.zeros(1)
    address = np.array([value.ctypes.data], dtype=np.int64)
    struct = np.zeros(10, dtype=np.int64)
    nothing = np.zeros(0, dtype=np.int64)
    locate(struct, nothing, nothing, nothing, nothing)
    column_major(address, integers, integers, np.zeros(1, dtype=np.int64), doubles, doubles, doubles, integers.copy())
