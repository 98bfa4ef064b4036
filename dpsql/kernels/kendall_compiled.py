"""The compiled Kendall kernels. Importing this module compiles them, or loads them from numba's cache.

Counting walks the rows of a block in the order of the base column and stores the ranks seen so far in the other column,
as a bitmap with prefix counts at four distances: per 64 ranks within 2**11, per 2**11 within 2**16, per 2**16 within
2**21 and per 2**21 overall. A query adds four counts and some bits of one word; an insertion adds 0 or 1 to whole rows
of counts, each a few vectors of 64 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Longs

if TYPE_CHECKING:
    from numba.core.base import BaseContext
    from numba.core.typing import Context, Signature

_CHUNK = 1024  # ranks fetched ahead of their use
_VECTOR = 64  # bytes
_SHORT_RUN = 32  # rows whose values agree in their leading bits, sorted by insertion


Number = TypeVar("Number", bound=np.generic)
Words = NDArray[np.uint64]
Shorts = NDArray[np.uint16]
Ints = NDArray[np.int32]
# The set's words and counts, the steps of its counts, and buffers for repeats and waiting rows.
Arrays = tuple[Words, Shorts, Shorts, Ints, Ints, Shorts, Ints, Ints, Ints]


def _aligned(length: int, dtype: type[Number]) -> NDArray[Number]:
    """Return zeros that start at, and fill, whole vectors."""
    size = -(-max(length, 1) * np.dtype(dtype).itemsize // _VECTOR) * _VECTOR
    raw = np.zeros(size + _VECTOR, dtype=np.uint8)
    start = -raw.ctypes.data % _VECTOR
    return raw[start : start + size].view(dtype)


def _steps(dtype: type[Number]) -> NDArray[Number]:
    """Return 32 rows, row i with ones after position i, and a last row of ones."""
    steps = _aligned(33 * 32, dtype)
    steps.reshape(33, 32)[:] = np.arange(32) > np.append(np.arange(32), -1)[:, None]
    return steps


class Workspace:
    """The buffers of one thread, for blocks of at most `rows` rows."""

    def __init__(self, rows: int) -> None:
        def blocks(bits: int) -> int:
            return (rows >> bits) + 1

        self.arrays: Arrays = (
            _aligned(blocks(6), np.uint64),
            _aligned(32 * blocks(11), np.uint16),
            _aligned(32 * blocks(16), np.uint16),
            _aligned(32 * blocks(21), np.int32),
            _aligned(blocks(21), np.int32),
            _steps(np.uint16),
            _steps(np.int32),
            np.zeros(rows, dtype=np.int32),
            np.zeros(rows, dtype=np.int32),
        )


@intrinsic  # type: ignore[untyped-decorator]
def _popcount(typing_context: Context, word: types.Integer) -> tuple[Signature, Callable[..., ir.Value]]:
    """Return the number of bits set in a word."""
    del typing_context

    def generate(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Sequence[ir.Value]
    ) -> ir.Value:
        del context, signature
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _add_vector(
    typing_context: Context, rows: types.Array, at: types.Integer, steps: types.Array, step: types.Integer
) -> tuple[Signature, Callable[..., ir.Value]]:
    """Add one vector: ``rows[at:] += steps[step:]`` for as many entries as 64 bytes hold."""
    del typing_context
    bits = rows.dtype.bitwidth
    vector = ir.VectorType(ir.IntType(bits), 8 * _VECTOR // bits)

    def generate(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Sequence[ir.Value]
    ) -> ir.Value:
        def pointer(which: int) -> ir.Value:
            array = context.make_array(signature.args[which])(context, builder, arguments[which])
            return builder.bitcast(builder.gep(array.data, [arguments[which + 1]]), vector.as_pointer())

        address = pointer(0)
        added = builder.add(builder.load(address, align=bits // 8), builder.load(pointer(2), align=bits // 8))
        builder.store(added, address, align=bits // 8)
        return context.get_dummy_value()

    return types.void(rows, types.intp, steps, types.intp), generate


@njit(nogil=True, cache=True, inline="always")  # type: ignore[untyped-decorator]
def _clear(count: int, words: Words, by_6: Shorts, by_11: Shorts, by_16: Ints, by_21: Ints) -> None:
    """Empty the set, for ranks below `count`."""
    words[: (count >> 6) + 1] = 0
    by_6[: ((count >> 11) + 1) << 5] = 0
    by_11[: ((count >> 16) + 1) << 5] = 0
    by_16[: ((count >> 21) + 1) << 5] = 0
    by_21[:] = 0


@njit(nogil=True, cache=True, inline="always")  # type: ignore[untyped-decorator]
def _below(v: np.uint32, words: Words, by_6: Shorts, by_11: Shorts, by_16: Ints, by_21: Ints) -> np.int64:
    """Return the number of set members below v."""
    bits = words[v >> 6] & ((np.uint64(1) << np.uint64(v & 63)) - np.uint64(1))
    near = np.int64(by_6[v >> 6]) + np.int64(by_11[v >> 11])
    far = np.int64(by_16[v >> 16]) + np.int64(by_21[v >> 21])
    return near + far + np.int64(_popcount(bits))


@njit(nogil=True, cache=True, inline="always")  # type: ignore[untyped-decorator]
def _insert(
    v: np.uint32,
    words: Words,
    by_6: Shorts,
    by_11: Shorts,
    by_16: Ints,
    by_21: Ints,
    short_steps: Shorts,
    steps: Ints,
    middles: int,
    tops: int,
) -> None:
    """Put v into the set.

    `middles` is the number of vectors of a row of `by_16` in use, 0 up to 2**16 ranks and 1 up to 2**20; `tops` is the
    same for `by_21`, 0 up to 2**21.
    """
    words[v >> 6] |= np.uint64(1) << np.uint64(v & 63)
    _add_vector(by_6, (v >> 11) << 5, short_steps, ((v >> 6) & 31) << 5)
    _add_vector(by_11, (v >> 16) << 5, short_steps, ((v >> 11) & 31) << 5)
    row, step = (v >> 21) << 5, ((v >> 16) & 31) << 5
    if middles > 0:
        _add_vector(by_16, row, steps, step)
    if middles > 1:
        _add_vector(by_16, row + 16, steps, step + 16)
    if tops > 0:
        own = v >> 25
        _add_vector(by_21, own << 4, steps, ((v >> 21) & 15) << 5)
        for vector in range(own + 1, tops):
            _add_vector(by_21, vector << 4, steps, 32 << 5)


@njit(nogil=True, cache=True, inline="always")  # type: ignore[untyped-decorator]
def _first(code: np.uint32, starts: Ints) -> np.int64:
    """Return the rank of a code; without starts, the code is the rank."""
    return np.int64(code) if len(starts) == 0 else np.int64(starts[code])


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def count(
    order: Ints,
    present: Longs,
    base_tied: bool,
    codes: Ints,
    starts: Ints,
    tied: bool,
    offsets: Longs,
    workspace: Arrays,
    stop: NDArray[np.uint8],
    done: Longs,
    thread: int,
    concordant: Longs,
    discordant: Longs,
) -> None:
    """Count the concordant and discordant pairs of the base and one column in each block.

    `order` and `present` come from `base_order`; `codes` and `starts` describe the column. The kernel queries all rows
    of equal base value before it inserts any of them. It numbers equal values of the column in the order of insertion,
    so a query for the next number counts the smaller and the equal values.
    """
    words, by_6, by_11, by_16, by_21, short_steps, steps, repeats, waiting = workspace
    fetched = np.empty(_CHUNK, dtype=np.int32)
    begins = np.empty(_CHUNK, dtype=np.bool_)
    for block in range(len(present)):
        start = offsets[block]
        size = offsets[block + 1] - start
        own = codes[start : start + size]
        middles = 0 if size <= 1 << 16 else 1 if size <= 1 << 20 else 2
        tops = 0 if size <= 1 << 21 else (size >> 25) + 1
        _clear(size, words, by_6, by_11, by_16, by_21)
        if tied:
            repeats[: size if len(starts) == 0 else len(starts)] = 0
        below, repeated, pairs, inserted, backlog = 0, 0, 0, 0, 0
        for first in range(0, present[block], _CHUNK):
            if stop[0] != 0:
                return
            length = min(_CHUNK, present[block] - first)
            rows = order[start + first : start + first + length]
            if base_tied:
                for i in range(length):
                    begins[i] = rows[i] >= 0
                    fetched[i] = own[np.uint32(rows[i] if rows[i] >= 0 else ~rows[i])]
            else:
                for i in range(length):
                    fetched[i] = own[np.uint32(rows[i])]
            for i in range(length):
                if base_tied and begins[i]:
                    for k in range(backlog):
                        v = np.uint32(waiting[k])
                        if tied:
                            earlier = repeats[v]
                            repeats[v] = earlier + 1
                            v = np.uint32(_first(v, starts) + earlier)
                        _insert(v, words, by_6, by_11, by_16, by_21, short_steps, steps, middles, tops)
                    inserted += backlog
                    backlog = 0
                if fetched[i] < 0:
                    continue
                v = np.uint32(fetched[i])
                if tied:
                    earlier = repeats[v]
                    repeated += earlier
                    if not base_tied:
                        repeats[v] = earlier + 1
                    v = np.uint32(_first(v, starts) + earlier)
                below += _below(v, words, by_6, by_11, by_16, by_21)
                pairs += inserted
                if base_tied:
                    waiting[backlog] = fetched[i]
                    backlog += 1
                else:
                    _insert(v, words, by_6, by_11, by_16, by_21, short_steps, steps, middles, tops)
                    inserted += 1
            done[thread] += length
        concordant[block] = below - repeated
        discordant[block] = pairs - below


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def base_order(codes: Ints, starts: Ints, offsets: Longs, order: Ints, present: Longs) -> None:
    """Fill in each block's rows in the order of their values, and the number of rows with a value.

    Rows are numbered within their block; ``~row`` means a row whose value equals the value before.
    """
    for block in range(len(present)):
        start = offsets[block]
        size = offsets[block + 1] - start
        own = codes[start : start + size]
        out = order[start : start + size]
        repeats = np.zeros(size, dtype=np.int32)
        count = 0
        for row in range(size):
            if own[row] >= 0:
                code = np.uint32(own[row])
                earlier = repeats[code]
                out[_first(code, starts) + earlier] = row if earlier == 0 else ~row
                repeats[code] = earlier + 1
                count += 1
        present[block] = count


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def pack(values: Doubles, bits: int, keys: Words) -> tuple[int, bool]:
    """Fill sortable keys with the row number in the last `bits` bits; return (missing, whether these bits were 0)."""
    patterns = values.view(np.uint64)
    rows = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    sign = np.uint64(1) << np.uint64(63)
    missing = 0
    lost = np.uint64(0)
    for i in range(len(values)):
        pattern = patterns[i]
        pattern = np.uint64(0) if pattern == sign else pattern
        if values[i] != values[i]:
            keys[i] = ~np.uint64(0)
            missing += 1
        else:
            lost |= pattern & rows
            pattern = ~pattern if pattern >= sign else pattern | sign
            keys[i] = (pattern & ~rows) | np.uint64(i)
    return missing, lost == 0


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def unpack(values: Doubles, keys: Words, bits: int, exact: bool, codes: Ints, starts: Ints) -> int:
    """Give numbers to distinct values: fill in each row's number and each number's rank; return the count.

    The kernel sorts rows whose values agree in their leading bits; it returns -1 if too many.
    """
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    levels = 0
    first = 0
    while first < len(keys):
        last = first + 1
        while last < len(keys) and keys[last] ^ keys[first] <= mask:
            last += 1
        if not exact and last > first + 1 and not _equal(values, keys, first, last, mask):
            if last - first > _SHORT_RUN:
                return -1
            _insertion_sort(values, keys, first, last, mask)
            # Only the first value of this run; the loop returns for the others.
            value = values[keys[first] & mask]
            while values[keys[last - 1] & mask] != value:
                last -= 1
        for k in range(first, last):
            codes[keys[k] & mask] = levels
        starts[levels] = first
        levels += 1
        first = last
    return levels


@njit(nogil=True, cache=True, inline="always")  # type: ignore[untyped-decorator]
def _equal(values: Doubles, keys: Words, first: int, last: int, mask: np.uint64) -> bool:
    value = values[keys[first] & mask]
    for k in range(first + 1, last):  # noqa: SIM110  # numba has no generator expressions
        if values[keys[k] & mask] != value:
            return False
    return True


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _insertion_sort(values: Doubles, keys: Words, first: int, last: int, mask: np.uint64) -> None:
    for k in range(first + 1, last):
        key = keys[k]
        value = values[key & mask]
        index = k
        while index > first and values[keys[index - 1] & mask] > value:
            keys[index] = keys[index - 1]
            index -= 1
        keys[index] = key


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def rank_within_blocks(keys: Words, bits: int, block_of_row: Ints, codes: Ints) -> bool:
    """Turn numbers of distinct values into ranks within blocks; return whether any two are equal."""
    if len(keys) == 0:
        return False
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    blocks = block_of_row[-1] + 1  # rows of a block are adjacent, in the order of blocks
    seen = np.zeros(blocks, dtype=np.int32)
    level = np.full(blocks, -1, dtype=np.int32)
    start = np.zeros(blocks, dtype=np.int32)
    tied = False
    for k in range(len(keys)):
        row = keys[k] & mask
        block = np.uint32(block_of_row[row])
        if level[block] == codes[row]:
            tied = True
        else:
            level[block] = codes[row]
            start[block] = seen[block]
        codes[row] = start[block]
        seen[block] += 1
    return tied


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def tabulate(base: Ints, codes: Ints, table: Longs) -> None:
    """Count the rows with each pair of codes; missing values have no code."""
    for i in range(len(base)):
        if base[i] >= 0 and codes[i] >= 0:
            table[np.uint32(base[i]), np.uint32(codes[i])] += 1


def compile_all() -> None:
    """Compile every kernel for its argument types."""
    values, keys = np.array([2.0, 1.0]), np.zeros(2, dtype=np.uint64)
    values.flags.writeable = False  # as `kendall` passes them
    codes, starts, order = np.zeros((3, 2), dtype=np.int32)
    offsets, present, done = np.array([0, 2]), np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    pack(values, 1, keys)
    unpack(values, np.sort(keys), 1, True, codes, starts)
    rank_within_blocks(np.sort(keys), 1, order, codes)
    base_order(codes, starts[:0], offsets, order, present)
    stop, arrays = np.zeros(1, dtype=np.uint8), Workspace(2).arrays
    count(
        order, present, False, codes, starts[:0], False, offsets, arrays, stop, done, 0, present.copy(), present.copy()
    )  # fmt: skip
    tabulate(codes, codes, np.zeros((1, 1), dtype=np.int64))
