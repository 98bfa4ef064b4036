"""Concordant and discordant pairs of columns, exactly, in O(n log n).

For columns x and y a pair of rows is concordant when ``(x_i - x_j)(y_i - y_j) > 0`` and discordant when it
is below 0. Ties count for neither, and neither do pairs with a missing value (NaN), which ties with
everything. Infinities are ordinary ends of the order, and ``-0.0 == 0.0``.

Every column is ranked once; counting works on ranks. All counts are exact, so they do not depend on row
order, threads, or on which of the two implementations ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import length_hint
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.kernels import kendall_numpy
from dpsql.kernels.kendall_numpy import FEW_LEVELS
from dpsql.kernels.loading import Compiled
from dpsql.kernels.workers import Job, Progress, Signals, run, stream

# In (row, column) cells, of which NumPy counts some millions in a second and the compiled kernels 200 millions.
_WORTH_COMPILING = 1_000_000
_WORTH_WAITING = 20_000_000
_WORTH_THREADS = 2_000_000
_BATCH = 1 << 18  # cells ranked in one go
_NO_CODE = 255

Counts = tuple[NDArray[np.int64], NDArray[np.int64]]
compiled_kernels = Compiled("dpsql.kernels.kendall_compiled", _WORTH_COMPILING, _WORTH_WAITING)


def warm_up() -> None:
    """Load the compiled kernels now, and wait for them."""
    compiled_kernels.start().join()


@dataclass(frozen=True, slots=True)
class RankedColumn:
    """What is kept of a column: the order of its values.

    Attributes
    ----------
    ranks : ndarray of int32, shape (n,)
        Number of smaller values in the row's block; -1 where the value is missing. Equal values have equal
        ranks.
    missing : int
        Number of missing values.
    tied : bool
        Whether any two values of a block are equal.
    levels : ndarray of int32 or None
        The distinct ranks, ascending, where there is one block and they are few.
    """

    ranks: NDArray[np.int32]
    missing: int
    tied: bool
    levels: NDArray[np.int32] | None

    @property
    def plain(self) -> bool:
        """Whether no pair of rows ties: no missing value and no two equal ones."""
        return not (self.tied or self.missing)


class RankedTable:
    """Columns ranked once, ready for counting one against many.

    Parameters
    ----------
    columns : iterable of array_like of float64, shape (n,)
        Taken one by one; the values are not kept.
    blocks : ndarray of int, shape (n,), optional
        Block of each row, >= 0. Only pairs within a block are counted. Without it all rows are one block.
    threads : int, optional
        By default one for each processor.
    progress : callable, optional
        Called from this thread, several times a second, with the fraction done (0 where `columns` has no
        length). What it raises stops the work and is raised here.

    Attributes
    ----------
    columns : list of RankedColumn
        Rows of a block stand together.
    sizes : ndarray of int64, shape (m,)
        Rows of each block.

    Notes
    -----
    Memory: 4 bytes per cell; while columns are ranked, also about 32 bytes per row and thread.
    """

    def __init__(
        self,
        columns: Iterable[ArrayLike],
        blocks: NDArray[np.integer[Any]] | None = None,
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
            found = []
            while batch and not stop[0]:
                values = np.asarray(batch.pop(0), dtype=np.float64)
                found.append(_rank(values if rows is None else values[rows], block_of_row))
                ranked += 1
            return found

        def tick() -> None:
            if progress is not None:
                progress(min(1.0, ranked / expected) if expected else 0.0)

        for batch in stream(rank_batch, _batches(columns), threads, tick):
            self.columns += batch
        if blocks is None:
            self.sizes = np.array([len(self.columns[0].ranks) if self.columns else 0], dtype=np.int64)

    def counts(
        self, base: int, others: Sequence[int], threads: int | None = None, progress: Progress | None = None
    ) -> Counts:
        """Return the concordant and the discordant pairs of one column with each of some others.

        Parameters
        ----------
        base : int
            Position of the one column.
        others : sequence of int
            Positions of the others.
        threads : int, optional
            By default one for each processor; small work takes none.
        progress : callable, optional
            Called from this thread, several times a second, with the fraction done. What it raises stops
            the work and is raised here.

        Returns
        -------
        concordant, discordant : ndarray of int64, shape (m, len(others))
            Pairs within each block.
        """
        return _count(self.columns[base], [self.columns[j] for j in others], self.sizes, threads, progress)

    def scores(
        self, base: int, others: Sequence[int], threads: int | None = None, progress: Progress | None = None
    ) -> NDArray[np.int64]:
        """Return concordant less discordant pairs, shape (m, len(others)); arguments as for `counts`."""
        concordant, discordant = self.counts(base, others, threads, progress)
        return concordant - discordant


def rank_column(values: ArrayLike) -> RankedColumn:
    """Rank one column of doubles, shape (n,); NaN is missing."""
    return _rank(np.asarray(values, dtype=np.float64), None)


def pair_counts(
    base: RankedColumn, columns: Sequence[RankedColumn], threads: int | None = None, progress: Progress | None = None
) -> Counts:
    """Return the concordant and the discordant pairs of one column with each of d others.

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
    concordant, discordant = _count(base, columns, np.array([len(base.ranks)]), threads, progress)
    return concordant[0], discordant[0]


def _batches(columns: Iterable[ArrayLike]) -> Iterator[list[ArrayLike]]:
    """Gather small columns, so that ranking them is worth a thread's while."""
    batch: list[ArrayLike] = []
    cells = 0
    for column in columns:
        batch.append(column)
        cells += np.shape(column)[0]
        if cells >= _BATCH:
            yield batch
            batch, cells = [], 0
    if batch:
        yield batch


def _rank(values: NDArray[np.float64], block_of_row: NDArray[np.int32] | None) -> RankedColumn:
    """Rank the values, rows of a block standing together."""
    kernels = compiled_kernels(len(values))
    ranked = None if kernels is None else _rank_compiled(kernels, values, block_of_row)
    if ranked is None:
        ranks, present, levels = kendall_numpy.rank(values, block_of_row)
        few = levels.astype(np.int32) if block_of_row is None and len(levels) <= FEW_LEVELS else None
        ranked = RankedColumn(ranks, len(values) - present, len(levels) < present, few)
    return ranked


def _rank_compiled(
    kernels: ModuleType, values: NDArray[np.float64], block_of_row: NDArray[np.int32] | None
) -> RankedColumn | None:
    """Rank by sorting keys of the value's leading bits and the row; None where too many values share these bits."""
    values = np.ascontiguousarray(values).view()
    values.flags.writeable = False  # one type for the compiler
    bits = max(1, (len(values) - 1).bit_length())
    keys = np.empty(len(values), dtype=np.uint64)
    missing, exact = kernels.pack(values, bits, keys)
    keys.sort()
    keys = keys[: len(keys) - missing]
    ranks = np.full(len(values), -1, dtype=np.int32)
    levels = np.empty(FEW_LEVELS, dtype=np.int32)
    count = kernels.unpack(values, keys, bits, exact, ranks, levels)
    if count < 0:
        return None
    if block_of_row is not None:
        return RankedColumn(ranks, missing, kernels.rank_within_blocks(keys, bits, block_of_row, ranks), None)
    return RankedColumn(ranks, missing, count < len(keys), levels[:count].copy() if count <= FEW_LEVELS else None)


def _count(
    base: RankedColumn,
    columns: Sequence[RankedColumn],
    sizes: NDArray[np.int64],
    threads: int | None,
    progress: Progress | None,
) -> Counts:
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int64)
    concordant, discordant = np.zeros((2, len(columns), len(sizes)), dtype=np.int64)
    cells = len(base.ranks) * len(columns)
    kernels = compiled_kernels(cells)
    if kernels is not None:
        job = _counting(kernels, base, columns, offsets, concordant, discordant)
        run(job, len(columns), cells, threads if cells >= _WORTH_THREADS else 0, progress)
    else:
        ranks, plain = [column.ranks for column in columns], [base.plain and column.plain for column in columns]
        done = 0
        for step in kendall_numpy.count(base.ranks, ranks, plain, offsets, concordant, discordant):
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
    order = np.empty(len(base.ranks), dtype=np.int32)
    present = np.zeros(len(offsets) - 1, dtype=np.int64)
    kernels.base_order(base.ranks, base.tied, offsets, order, present)
    codes = None if base.levels is None else _codes(base.levels)[base.ranks]
    if codes is not None:
        codes[base.ranks < 0] = _NO_CODE
    workspaces: dict[int, Any] = {}

    def job(number: int, thread: int, signals: Signals) -> None:
        column = columns[number]
        if codes is not None and column.levels is not None:
            table = np.zeros((FEW_LEVELS, FEW_LEVELS), dtype=np.int64)
            kernels.tabulate(codes, column.ranks, _codes(column.levels), table)
            concordant[number], discordant[number] = _pairs(table), _pairs(table[:, ::-1])
            signals.done[thread] += len(codes)
            return
        if thread not in workspaces:
            workspaces[thread] = kernels.Workspace(int(np.diff(offsets).max())).arrays
        kernels.count(
            order,
            present,
            base.tied,
            column.ranks,
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


def _codes(levels: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Return the number of the level at each rank that is one."""
    codes = np.empty(int(levels[-1]) + 1 if len(levels) else 1, dtype=np.uint8)
    codes[levels] = np.arange(len(levels))
    return codes


def _pairs(table: NDArray[np.int64]) -> int:
    """Return the pairs of rows in cells of which one is larger in both directions."""
    smaller = np.zeros_like(table)
    smaller[1:, 1:] = table[:-1, :-1].cumsum(axis=0).cumsum(axis=1)
    return int((table * smaller).sum())
