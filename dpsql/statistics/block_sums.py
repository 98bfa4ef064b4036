"""Ranges and products of columns within disjoint blocks of rows, from which the models of `tukey` are fitted.

The block of a row is its key modulo the public number of blocks, so one row moves one block (`tukey`). The target is
the last column. `dpsql.kernels.block_gram` defines which rows and values enter a fit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract.fold import Batch, Fold, field, numbers, record
from dpsql.kernels.block_gram import BlockGram, BlockRanges


def _assigned(batch: Batch, blocks: int) -> NDArray[np.int64]:
    """Return the block of each row."""
    keys = batch.keys
    if keys is None:
        raise ValueError("rows of a Tukey regression came without keys")
    return (keys % np.uint64(blocks)).astype(np.int64)


class ColumnRanges(Fold):
    """The range of every column in every block.

    Parameters
    ----------
    blocks, width : int
        Number of blocks, and number of columns: the features and the target.
    """

    def __init__(self, blocks: int, width: int) -> None:
        self._ranges = BlockRanges(blocks, width)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Widen the ranges by a batch of rows."""
        self._ranges.add(_assigned(batch, self._ranges.blocks), np.concatenate((features, target[np.newaxis])))

    def maps(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return middles and scales of the affine maps derived from the ranges, each of shape (blocks, width)."""
        return self._ranges.maps()

    def state(self) -> pa.RecordBatch:
        """Return the ends of the ranges as the bits of doubles, with a single zero."""
        least, most = self._ranges.ends()
        return record({"least": (least + 0.0).view(np.int64), "most": (most + 0.0).view(np.int64)})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Widen the ranges by those of another fold."""
        least, most = (numbers(state, name).view(np.float64) for name in ("least", "most"))
        self._ranges.widen(least.reshape(-1, self._ranges.width), most.reshape(-1, self._ranges.width))


class BlockProducts(Fold):
    """The products of all columns, the constant 1 first, in every block; in units of ``S**2``, S or 1.

    Parameters
    ----------
    middle, scale : ndarray of float64, shape (blocks, width)
        Affine maps per block and column.
    """

    def __init__(self, middle: NDArray[np.float64], scale: NDArray[np.float64]) -> None:
        self._gram = BlockGram(middle, scale)

    @property
    def size(self) -> int:
        """Bytes of the sums."""
        return self._gram.size

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add the products of a batch of rows."""
        self._gram.add(_assigned(batch, self._gram.blocks), np.concatenate((features, target[np.newaxis])))

    def models(self, progress: Callable[[float], None]) -> NDArray[np.float64]:
        """Return the least-squares model of every block."""
        return self._gram.models(progress)

    def state(self) -> pa.RecordBatch:
        """Return the upper triangles, block by block."""
        return record({"products": self._gram.products()})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other products."""
        self._gram.add_products(field(state, "products"))
