"""Concordant and discordant pairs of columns, exactly, in O(n log n).

For columns x and y a pair of rows is concordant when ``(x_i - x_j)(y_i - y_j) > 0`` and discordant when it
is below 0. Ties count for neither, and neither do pairs with a missing value (NaN), which ties with
everything. Infinities are ordinary ends of the order, and ``-0.0 == 0.0``.

Every column is ranked once; counting works on ranks. All counts are exact, so they do not depend on row
order, threads, or on which of the two implementations ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.kernels import kendall_numpy
from dpsql.kernels.loading import Compiled
from dpsql.kernels.workers import Progress, default_threads

# In (row, column) cells, of which NumPy counts about 10 million in a second.
_WORTH_COMPILING = 1_000_000
_WORTH_WAITING = 30_000_000
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
    """

    ranks: NDArray[np.int32]
    missing: int
    tied: bool

    @property
    def plain(self) -> bool:
        """Whether no pair of rows ties: no missing value and no two equal ones."""
        return not (self.tied or self.missing)


class RankedTable:
    """Columns ranked once, ready for counting one against many.

    Parameters
    ----------
    columns : iterable of array_like of float64, shape (n,)
        Consumed one by one; the values are not kept.
    blocks : ndarray of int32, shape (n,), optional
        Block of each row, >= 0. Only pairs within a block are counted.
    threads : int, optional
        By default one for each processor.

    Attributes
    ----------
    columns : list of RankedColumn
        Rows of a block stand together.
    sizes : ndarray of int64, shape (m,)
        Rows of each block; one block with all rows where no blocks are given.

    Notes
    -----
    Memory: 4 bytes per cell, and for each thread about 28 bytes per row while columns are ranked.
    """

    def __init__(
        self,
        columns: Iterable[ArrayLike],
        blocks: NDArray[np.int32] | None = None,
        threads: int | None = None,
    ) -> None:
        self.columns: list[RankedColumn] = []
        self._rows: NDArray[np.intp] | None = None
        self._offsets = np.zeros(2, dtype=np.int64)
        if blocks is not None:
            self._offsets = np.append(0, np.cumsum(np.bincount(blocks, minlength=1))).astype(np.int64)
            self._rows = np.argsort(blocks, kind="stable")
        for column in columns:
            values = np.asarray(column, dtype=np.float64)
            if blocks is None:
                self._offsets[1] = len(values)
            self.columns.append(_rank(values if self._rows is None else values[self._rows], self._offsets))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows of each block."""
        return np.diff(self._offsets)

    def counts(
        self, base: int, others: Sequence[int], threads: int | None = None, progress: Progress | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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
        return _count(self.columns[base], [self.columns[j] for j in others], self._offsets, threads, progress)

    def scores(
        self, base: int, others: Sequence[int], threads: int | None = None, progress: Progress | None = None
    ) -> NDArray[np.int64]:
        """Return concordant less discordant pairs, shape (m, len(others)); arguments as for `counts`."""
        concordant, discordant = self.counts(base, others, threads, progress)
        return concordant - discordant


def rank_column(values: ArrayLike) -> RankedColumn:
    """Rank one column of doubles, shape (n,); NaN is missing."""
    array = np.asarray(values, dtype=np.float64)
    return _rank(array, np.array([0, len(array)], dtype=np.int64))


def pair_counts(
    base: RankedColumn,
    columns: Sequence[RankedColumn],
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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
    offsets = np.array([0, len(base.ranks)], dtype=np.int64)
    concordant, discordant = _count(base, columns, offsets, threads, progress)
    return concordant[0], discordant[0]


def _rank(values: NDArray[np.float64], offsets: NDArray[np.int64]) -> RankedColumn:
    ranks = kendall_numpy.rank(values, offsets)
    missing = int(np.count_nonzero(ranks < 0))
    return RankedColumn(ranks, missing, True)


def _count(
    base: RankedColumn,
    columns: Sequence[RankedColumn],
    offsets: NDArray[np.int64],
    threads: int | None,
    progress: Progress | None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    concordant, discordant = np.zeros((2, len(offsets) - 1, len(columns)), dtype=np.int64)
    plain = [base.plain and column.plain for column in columns]
    done, total = 0, max(1, len(base.ranks) * len(columns))
    steps = kendall_numpy.count(
        base.ranks, [column.ranks for column in columns], plain, offsets, concordant, discordant
    )
    for cells in steps:
        done += cells
        if progress is not None:
            progress(done / total)
    return concordant, discordant
