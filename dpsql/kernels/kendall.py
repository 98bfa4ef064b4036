"""Count concordant and discordant pairs of columns, exactly, in O(n log n).

For columns x and y a pair of rows is concordant when ``(x_i - x_j)(y_i - y_j) > 0`` and discordant when the product is
below 0. Ties count for neither, and neither do pairs with a missing value (NaN), which ties with everything. Infinities
are ordinary ends of the order, and ``-0.0 == 0.0``.

The module ranks every column once; counting works on ranks. All counts are exact, so they do not depend on row order,
threads or the implementation.

NumPy serves small inputs and checks the compiled kernels. It counts a discordant pair as an inversion: with the rows in
the order of one column (ties by the other), a pair is strictly discordant exactly when the other column falls. It
counts inversions bottom up, many columns and blocks at once: by comparison in runs of 16, then at each doubling by the
left half's positions after both halves are sorted together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import length_hint
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.kernels.workers import Compiled, Job, Progress, Signals, run, stream

if TYPE_CHECKING:
    from dpsql.kernels.kendall_compiled import Arrays


_RUN = 16
_ENTRIES = 1 << 19  # per step: about 50 ms, and a few tens of MB


def number(
    values: NDArray[np.float64], block_of_row: NDArray[np.int32] | None
) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    """Assign numbers to the distinct values, block by block and in ascending order.

    Parameters
    ----------
    values : ndarray of float64, shape (n,)
        Rows of a block are adjacent, in the order of blocks.
    block_of_row : ndarray of int32, shape (n,), optional

    Returns
    -------
    codes : ndarray of int32, shape (n,)
        Number of each row's value; -1 if missing.
    starts : ndarray of int32
        For each number, the count of smaller values in the block.
    present : int
        Number of values present.
    """
    codes = np.full(len(values), -1, dtype=np.int32)
    order = np.argsort(values)[: len(values) - np.count_nonzero(np.isnan(values))]
    ordered = values[order]
    blocks = np.zeros(len(order), dtype=np.int32)
    if block_of_row is not None:
        by_block = np.argsort(block_of_row[order], kind="stable")
        order, ordered = order[by_block], ordered[by_block]
        blocks = block_of_row[order]
    new_block = np.append(True, blocks[1:] != blocks[:-1])[: len(order)]
    new = new_block.copy()
    new[1:] |= ordered[1:] != ordered[:-1]
    edges = np.flatnonzero(new)
    codes[order] = np.repeat(np.arange(len(edges)), np.diff(edges, append=len(order)))
    first = np.flatnonzero(new_block)[np.cumsum(new_block)[edges] - 1]
    return codes, (edges - first).astype(np.int32), len(order)


def count(
    base: NDArray[np.int32],
    columns: Sequence[NDArray[np.int32]],
    plain: Sequence[bool],
    offsets: NDArray[np.int64],
    concordant: NDArray[np.int64],
    discordant: NDArray[np.int64],
) -> Iterator[int]:
    """Fill in the counts; yield the number of (row, column) cells that each step has done.

    Parameters
    ----------
    base : ndarray of int32, shape (n,)
        Numbers in the order of the values, below the size of the block; -1 for a missing value.
    columns : sequence of ndarray of int32, shape (n,)
        As `base`.
    plain : sequence of bool
        Per column: neither it nor the base has ties or missing values, so every pair is concordant or discordant.
    offsets : ndarray of int64, shape (m + 1,)
    concordant, discordant : ndarray of int64, shape (len(columns), m)
        Overwritten.
    """
    sizes = np.diff(offsets)
    widths = 1 << np.ceil(np.log2(np.maximum(sizes, _RUN))).astype(np.int64)
    for width in np.unique(widths[sizes > 1]):
        blocks = np.flatnonzero((widths == width) & (sizes > 1))
        matrices = max(1, _ENTRIES // int(width))
        for first in range(0, len(blocks), matrices):
            group = blocks[first : first + matrices]
            rows = np.minimum(offsets[group, None] + np.arange(width), len(base) - 1)
            high = np.where(np.arange(width) < sizes[group, None], base[rows], -1)
            total = sizes[group] * (sizes[group] - 1) // 2
            step = max(1, matrices // len(group))
            for is_plain in (True, False):
                chosen = np.flatnonzero(np.array(plain, dtype=np.bool_) == is_plain)
                for start in range(0, len(chosen), step):
                    batch = chosen[start : start + step]
                    low = np.stack([columns[j][rows] for j in batch], axis=1)
                    falls = _inversions(high[:, None], low)
                    rises = total[:, None] - falls if is_plain else _inversions(high[:, None], width - 1 - low)
                    discordant[np.ix_(batch, group)] = falls.T
                    concordant[np.ix_(batch, group)] = rises.T
                    yield int(sizes[group].sum()) * len(batch)


def _inversions(high: NDArray[np.int32], low: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the number of pairs that rise in `high` and fall in `low`, along the last axis.

    The axis length is a power of two; numbers are below it. Other numbers go last, where they invert nothing.
    """
    width = low.shape[-1]
    keys = high.astype(np.int64) << 32 | low
    keys[(high < 0) | (low < 0) | (low >= width)] = np.int64(width) << 32 | width
    keys.sort(axis=-1)
    sequence = keys & 0xFFFFFFFF
    bits = width.bit_length() - 1
    kind = np.int32 if 2 * bits + 1 < 32 else np.int64
    keys = (sequence << bits | np.arange(width)).astype(kind)
    total = np.zeros(low.shape[:-1], dtype=np.int64)
    runs = keys.reshape(*total.shape, -1, _RUN)
    for shift in range(1, _RUN):
        total += np.count_nonzero(runs[..., :-shift] > runs[..., shift:], axis=(-2, -1))
    half = _RUN
    while half < width:
        runs = keys.reshape(*total.shape, -1, 2 * half)
        runs.sort(axis=-1)
        is_left = (runs & half == 0).astype(np.float64)
        # Positions of the left entries, less their positions if they all came first.
        landed = (is_left @ np.arange(2 * half, dtype=np.float64)).sum(axis=-1).astype(np.int64)
        total += landed - runs.shape[-2] * (half * (half - 1) // 2)
        half *= 2
    return total


# In (row, column) cells; NumPy counts about 10 million per second, the compiled kernels 200 million.
_WORTH_COMPILING = 5_000_000
_WORTH_WAITING = 20_000_000
_WORTH_THREADS = 2_000_000
_BATCH = 1 << 18  # cells ranked at once
_FEW = 64  # distinct values that justify a table of counts
_REPEATED = 8  # rows per distinct value that justify a list of values

Counts = tuple[NDArray[np.int64], NDArray[np.int64]]
compiled_kernels = Compiled("dpsql.kernels.kendall_compiled", _WORTH_COMPILING, _WORTH_WAITING)


def warm_up() -> None:
    """Load the compiled kernels and wait for them."""
    compiled_kernels.start().join()


@dataclass(frozen=True, slots=True)
class RankedColumn:
    """A ranked column: the order of its values.

    Attributes
    ----------
    codes : ndarray of int32, shape (n,)
        Rank of the value: the count of smaller values in its block; -1 if missing. With `starts`, the number of the
        value in the order of the distinct values.
    starts : ndarray of int32
        Rank of each distinct value, if values repeat often in a table of one block; otherwise empty.
    missing : int
        Number of missing values.
    tied : bool
        Whether any two values of a block are equal.
    """

    codes: NDArray[np.int32]
    starts: NDArray[np.int32]
    missing: int
    tied: bool

    @property
    def plain(self) -> bool:
        """Whether no pair of rows ties: no missing value and no equal values."""
        return not (self.tied or self.missing)


class RankedTable:
    """Columns ranked once, ready to count one against many.

    Parameters
    ----------
    columns : iterable of array_like of float64, shape (n,)
        Read one by one; the values are not stored.
    blocks : ndarray of int, shape (n,), optional
        Block of each row, >= 0. Only pairs within a block are counted. Without it all rows are one block.
    threads : int, optional
        By default one for each processor.
    progress : callable, optional
        Called from this thread, several times a second, with the fraction done (0 if `columns` has no length). Its
        exceptions stop the work and propagate.

    Attributes
    ----------
    columns : list of RankedColumn
        Rows of a block are adjacent.
    sizes : ndarray of int64, shape (m,)
        Rows of each block.

    Notes
    -----
    Memory: 4 bytes per cell; while columns are ranked, also about 32 bytes per row and thread.
    """

    def __init__(
        self,
        columns: Iterable[ArrayLike],
        blocks: NDArray[np.integer] | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.columns: list[RankedColumn] = []
        rows, block_of_row = None, None
        if blocks is not None:
            rows = np.argsort(blocks, kind="stable")
            block_of_row = np.asarray(blocks)[rows].astype(np.int32)
            self.sizes = np.bincount(block_of_row, minlength=1).astype(np.int64)
        expected = length_hint(columns)
        ranked = 0

        def rank_batch(batch: list[ArrayLike], stop: NDArray[np.uint8]) -> list[RankedColumn]:
            nonlocal ranked
            ranks = []
            while batch and not stop[0]:
                values = np.asarray(batch.pop(0), dtype=np.float64)
                ranks.append(_rank(values if rows is None else values[rows], block_of_row))
                ranked += 1
            return ranks

        def tick() -> None:
            if progress is not None:
                progress(min(1.0, ranked / expected) if expected else 0.0)

        rest: list[ArrayLike] = []
        for batch in stream(rank_batch, _batches(columns, rest), threads, tick):
            self.columns += batch
        self.columns += rank_batch(rest, np.zeros(1, dtype=np.uint8))
        if blocks is None:
            self.sizes = np.array([len(self.columns[0].codes) if self.columns else 0], dtype=np.int64)

    def counts(
        self, base: int, others: Sequence[int], threads: int | None = None, progress: Progress | None = None
    ) -> Counts:
        """Return the concordant and discordant pairs of one column with each of some others.

        Parameters
        ----------
        base : int
            Position of that column.
        others : sequence of int
            Positions of the others.
        threads : int, optional
            By default one for each processor; small work uses none.
        progress : callable, optional
            Called from this thread, several times a second, with the fraction done. Its exceptions stop the work and
            propagate.

        Returns
        -------
        concordant, discordant : ndarray of int64, shape (m, len(others))
            Pairs within each block.
        """
        return _count(self.columns[base], [self.columns[j] for j in others], self.sizes, threads, progress)

    def scores(
        self, base: int, others: Sequence[int], threads: int | None = None, progress: Progress | None = None
    ) -> NDArray[np.int64]:
        """Return concordant minus discordant pairs, shape (m, len(others)); arguments as for `counts`."""
        concordant, discordant = self.counts(base, others, threads, progress)
        return concordant - discordant


def rank_column(values: ArrayLike) -> RankedColumn:
    """Rank one column of doubles, shape (n,); NaN is missing."""
    return _rank(np.asarray(values, dtype=np.float64), None)


def pair_counts(
    base: RankedColumn, columns: Sequence[RankedColumn], threads: int | None = None, progress: Progress | None = None
) -> Counts:
    """Return the concordant and discordant pairs of one column with each of d others.

    Parameters
    ----------
    base : RankedColumn
    columns : sequence of RankedColumn
        Of the same rows as `base`.
    threads, progress : optional
        As for `RankedTable.counts`.

    Returns
    -------
    concordant, discordant : ndarray of int64, shape (d,)
    """
    concordant, discordant = _count(base, columns, np.array([len(base.codes)]), threads, progress)
    return concordant[0], discordant[0]


def _batches(columns: Iterable[ArrayLike], rest: list[ArrayLike]) -> Iterator[list[ArrayLike]]:
    """Gather columns until ranking them is worth a thread's work; leave the others in `rest`."""
    cells = 0
    for column in columns:
        rest.append(column)
        cells += np.shape(column)[0]
        del column
        if cells >= _BATCH:
            batch, rest[:], cells = rest[:], [], 0
            yield batch


def _rank(values: NDArray[np.float64], block_of_row: NDArray[np.int32] | None) -> RankedColumn:
    """Rank the values; rows of a block are adjacent."""
    kernels = compiled_kernels(len(values))
    ranked = None if kernels is None else _rank_compiled(kernels, values, block_of_row)
    if ranked is None:
        codes, starts, present = number(values, block_of_row)
        ranked = _ranked(codes, starts, present, block_of_row is not None)
    return ranked


def _rank_compiled(
    kernels: ModuleType, values: NDArray[np.float64], block_of_row: NDArray[np.int32] | None
) -> RankedColumn | None:
    """Rank by sorting keys of the value's leading bits and the row; None if too many values share these bits."""
    values = np.ascontiguousarray(values).view()
    values.flags.writeable = False  # one type for the compiler
    bits = max(1, (len(values) - 1).bit_length())
    keys = np.empty(len(values), dtype=np.uint64)
    missing, exact = kernels.pack(values, bits, keys)
    keys.sort()
    keys = keys[: len(keys) - missing]
    codes = np.full(len(values), -1, dtype=np.int32)
    starts = np.empty(len(keys), dtype=np.int32)
    levels = kernels.unpack(values, keys, bits, exact, codes, starts)
    if levels < 0:
        return None
    if block_of_row is not None:
        tied = kernels.rank_within_blocks(keys, bits, block_of_row, codes)
        return RankedColumn(codes, starts[:0].copy(), missing, tied)
    return _ranked(codes, starts[:levels], len(keys), blocked=False)


def _ranked(codes: NDArray[np.int32], starts: NDArray[np.int32], present: int, blocked: bool) -> RankedColumn:
    """Store the list of distinct values if it is short; otherwise replace codes by ranks."""
    missing, tied = len(codes) - present, len(starts) < present
    if not blocked and len(starts) * _REPEATED <= present:
        return RankedColumn(codes, starts.copy(), missing, tied)
    if tied or blocked:
        here = codes >= 0
        codes[here] = starts[codes[here]]
    return RankedColumn(codes, starts[:0].copy(), missing, tied)


def _count(
    base: RankedColumn,
    columns: Sequence[RankedColumn],
    sizes: NDArray[np.int64],
    threads: int | None,
    progress: Progress | None,
) -> Counts:
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int64)
    concordant, discordant = np.zeros((2, len(columns), len(sizes)), dtype=np.int64)
    cells = len(base.codes) * len(columns)
    kernels = compiled_kernels(cells)
    if kernels is not None:
        job = _counting(kernels, base, columns, offsets, concordant, discordant)
        run(job, len(columns), cells, threads if cells >= _WORTH_THREADS else 0, progress)
    else:
        codes, plain = [column.codes for column in columns], [base.plain and column.plain for column in columns]
        done = 0
        for step in count(base.codes, codes, plain, offsets, concordant, discordant):
            done += step
            if progress is not None:
                progress(done / cells)
    return concordant.T, discordant.T


def _counting(
    kernels: ModuleType,
    base: RankedColumn,
    columns: Sequence[RankedColumn],
    offsets: NDArray[np.int64],
    concordant: NDArray[np.int64],
    discordant: NDArray[np.int64],
) -> Job:
    """Return the job that counts one column."""
    order = np.empty(len(base.codes), dtype=np.int32)
    present = np.zeros(len(offsets) - 1, dtype=np.int64)
    kernels.base_order(base.codes, base.starts, offsets, order, present)
    workspaces: dict[int, Arrays] = {}

    def job(number: int, thread: int, signals: Signals) -> None:
        column = columns[number]
        if 0 < len(base.starts) <= _FEW and 0 < len(column.starts) <= _FEW:
            concordant[number], discordant[number] = _tabulated(kernels, base, column)
            signals.done[thread] += len(base.codes)
            return
        if thread not in workspaces:
            workspaces[thread] = kernels.Workspace(int(np.diff(offsets).max())).arrays
        kernels.count(
            order,
            present,
            base.tied,
            column.codes,
            column.starts,
            column.tied,
            offsets,
            workspaces[thread],
            signals.stop,
            signals.done,
            thread,
            concordant[number],
            discordant[number],
        )

    return job


def _tabulated(kernels: ModuleType, base: RankedColumn, column: RankedColumn) -> tuple[int, int]:
    """Return the concordant and discordant pairs of two columns of few values."""
    table = np.zeros((len(base.starts), len(column.starts)), dtype=np.int64)
    kernels.tabulate(base.codes, column.codes, table)
    return _pairs(table), _pairs(table[:, ::-1])


def _pairs(table: NDArray[np.int64]) -> int:
    """Return the number of row pairs in which one row is larger in both columns."""
    smaller = table[:-1, :-1].cumsum(axis=0).cumsum(axis=1)
    return int((table[1:, 1:] * smaller).sum())
