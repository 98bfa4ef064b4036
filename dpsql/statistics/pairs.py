"""Scores S of pairs of columns in the whole table or within blocks, from which `kendall` computes utilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract.fold import Batch, Fold, KeptRows, numbers, record
from dpsql.kernels.kendall import RankedTable, compiled_kernels
from dpsql.kernels.staging import StagedColumns


@dataclass(frozen=True)
class Pairs:
    """Scores S of pairs of columns; the target follows the features.

    Attributes
    ----------
    features : int
        Number of features.
    sizes : ndarray of int64, shape (m,)
        Rows of each block.
    scores : callable
        (base, others, progress) to int64 of shape (m, len(others)).
    """

    features: int
    sizes: NDArray[np.int64]
    scores: Callable[..., NDArray[np.int64]]


class WholeTable(KeptRows):
    """All rows, for counting pairs between any two of them."""

    def __init__(self, width: int) -> None:
        self._staged = StagedColumns(width)

    @property
    def rows(self) -> int:
        """Number of rows, also after they were ranked."""
        return self._staged.rows

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Keep a batch of rows."""
        self._staged.append([*features, target])

    def merge(self, other: WholeTable) -> None:
        """Append the rows of another collection."""
        self._staged.extend(other._staged)

    def _ranked(self, progress: Callable[[float], None] | None = None) -> RankedTable:
        """Rank every column, and free the rows."""
        compiled_kernels(self._staged.rows * self._staged.width)  # compiling them pays off for large tables
        columns = (self._staged.take(position) for position in range(self._staged.width))
        return RankedTable(columns, progress=progress)

    def pairs(self, progress: Callable[[float], None]) -> Pairs:
        """Return the scores of any two columns, counted on demand."""
        table = self._ranked(progress)
        return Pairs(
            self._staged.width - 1,
            table.sizes,
            lambda base, others, progress: table.scores(base, others, progress=progress),
        )

    def counts(self) -> tuple[list[int], list[int]]:
        """Return the numbers of concordant and of discordant pairs of every feature with the target."""
        features = self._staged.width - 1
        concordant, discordant = self._ranked().counts(features, range(features))
        return concordant[0].tolist(), discordant[0].tolist()


class BlockScores(Fold):
    """The scores of all pairs of columns within blocks, summed over the blocks of one size.

    Parameters
    ----------
    width : int
        Features and target.
    blocks : int

    Notes
    -----
    A batch holds whole blocks, identified by `Batch.keys`. The rows of a block are consecutive, in any order.
    """

    grows = True

    def __init__(self, width: int, blocks: int) -> None:
        self._width, self._blocks = width, blocks
        self._scores: dict[int, NDArray[np.int64]] = {}

    @property
    def whole_blocks(self) -> int:
        """Number of blocks."""
        return self._blocks

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Count the pairs of some blocks."""
        keys, sizes = batch.keys, batch.sizes
        if keys is None or sizes is None:
            raise ValueError("rows of a blocked call carry their block")
        for key in np.unique(keys):
            here = np.flatnonzero(keys == key)
            if len(here) != int(sizes[here[0]]):
                raise ValueError("a block is not complete")
            alone = len(here) == len(keys)
            self._count([*features, target] if alone else [*features[:, here], target[here]], len(here))

    def _count(self, columns: list[NDArray[np.float64]], size: int) -> None:
        width = self._width
        table = RankedTable(iter(columns))
        scores = np.zeros((width, width), dtype=np.int64)
        for base in range(width):
            scores[base, :base] = table.scores(base, range(base), threads=1)[0]
        total = self._scores.setdefault(size, np.zeros((width, width), dtype=np.int64))
        total += scores + scores.T

    def pairs(self, progress: Callable[[float], None]) -> Pairs:
        """Return the scores."""
        sizes = np.array(sorted(self._scores), dtype=np.int64)
        scores = np.array([self._scores[size] for size in sizes.tolist()]).reshape(len(sizes), self._width, self._width)
        return Pairs(self._width - 1, sizes, lambda base, others, progress: scores[:, base, others])

    def state(self) -> pa.RecordBatch:
        """Return the block sizes that occur, ascending, and the matrix of each."""
        sizes = sorted(self._scores)
        scores = [self._scores[size].ravel() for size in sizes]
        return record({"sizes": sizes, "scores": np.concatenate(scores) if scores else []})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add the scores of other blocks."""
        sizes = numbers(state, "sizes")
        scores = numbers(state, "scores").reshape(len(sizes), self._width, self._width)
        for size, more in zip(sizes.tolist(), scores, strict=True):
            self._scores[size] = self._scores[size] + more if size in self._scores else more.copy()
