"""Gram matrices of quantised rows, as exact integers.

As in `xty`, a block of at most 4096 rows of integers in ``[-2**20, 2**20]`` has products whose sums
are integers below ``2**53``: a BLAS product of doubles computes them exactly, in any order.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Integers
from dpsql.kernels.blas import one_thread
from dpsql.kernels.wide_sums import WideSums
from dpsql.kernels.xty import BLOCK_ROWS

# Rows whose sums fit an int64 with room to spare.
_BATCH_ROWS = 1 << 21
_INT64_ROWS = 1 << 22


def gram_products(matrix: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return ``matrix.T @ matrix``, exactly.

    Parameters
    ----------
    matrix : ndarray of float64, shape (rows, q)
        Quantised values: integers in ``[-S, S]``, fewer than ``2**23`` rows.

    Returns
    -------
    products : ndarray of int64, shape (q, q)
        In units of ``S**2``.
    """
    products = np.zeros((matrix.shape[1], matrix.shape[1]), dtype=np.int64)
    for start in range(0, len(matrix), BLOCK_ROWS):
        block = matrix[start : start + BLOCK_ROWS]
        products += (block.T @ block).astype(np.int64)
    return products


class GramAccumulator:
    """The exact sum of the Gram matrices of any number of batches.

    Parameters
    ----------
    width : int
        Columns of every batch.
    """

    def __init__(self, width: int) -> None:
        self.rows = 0
        self.sums = WideSums((width, width))

    def add(self, matrix: NDArray[np.float64]) -> None:
        """Add the Gram matrix of quantised rows of shape (rows, width), any number of rows."""
        for start in range(0, len(matrix), _BATCH_ROWS):
            batch = matrix[start : start + _BATCH_ROWS]
            with one_thread():  # DuckDB brings the threads
                products = gram_products(batch)
            self.rows += len(batch)
            self.sums.add(products)

    def total(self) -> Integers:
        """Return the sum, shape (width, width), in units of ``S**2``: int64 where it fits, else Python ints."""
        return self.sums.total(np.int64 if self.rows < _INT64_ROWS else object)

    @property
    def size(self) -> int:
        """Bytes of the sums."""
        return 2 * self.sums.low.nbytes

    def add_sums(self, rows: int, products: pa.Array) -> None:
        """Add the products of rows that were summed elsewhere, as `WideSums.column` gives them."""
        self.rows += rows
        self.sums.absorb(products)
