"""Compute Gram matrices of quantised rows as exact integers.

As in `xty`, a block of at most 4096 rows of integers in ``[-2**20, 2**20]`` has products whose sums are integers below
``2**53``: a BLAS product of doubles computes them exactly, in any order.

BLAS uses one thread: kernels have their own threads, and two pools on the same processors slow each other down.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Integers
from dpsql.kernels.fixed_point import WideSums
from dpsql.kernels.xty import BLOCK_ROWS

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


_lock = threading.Lock()
_users = 0
_limits = ExitStack()
_limited: frozenset[str] = frozenset()
_controllers: dict[frozenset[str], ThreadpoolController] = {}
# Each module loads its own BLAS, which can be limited after loading.
_BRINGERS = ("numpy", "scipy.linalg")


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit the BLAS of NumPy and SciPy to one thread in the whole process, until the last user is done.

    This limits SciPy only if it is imported before the block.
    """
    global _limited, _users
    with _lock:
        loaded = frozenset(name for name in _BRINGERS if name in sys.modules)
        if loaded != _limited:
            _limits.enter_context(_controller(loaded).limit(limits=1, user_api="blas"))
            _limited = loaded
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limits.close()
                _limited = frozenset()


@cache
def arithmetic() -> int:
    """Return a number that identifies NumPy, its BLAS and the processor's kind: they decide the last bits of sums.

    If the number is the same, the same operations on the same doubles have the same results.
    """
    abilities = import_module("numpy._core._multiarray_umath").__cpu_features__
    with one_thread():
        libraries = _controllers[_limited].info()
    kinds = sorted([str(library.get(name)) for name in ("prefix", "version", "architecture")] for library in libraries)
    description = repr((np.__version__, sorted(name for name, has in abilities.items() if has), kinds))
    return int.from_bytes(hashlib.sha256(description.encode()).digest()[:7], "big")


def _controller(loaded: frozenset[str]) -> ThreadpoolController:
    """Return the controller of the libraries that are loaded; it does not know later libraries."""
    if loaded not in _controllers:
        from threadpoolctl import ThreadpoolController

        _controllers[loaded] = ThreadpoolController()
    return _controllers[loaded]


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
            with one_thread():  # DuckDB has its own threads
                products = gram_products(batch)
            self.rows += len(batch)
            self.sums.add(products)

    def total(self) -> Integers:
        """Return the sum, shape (width, width), in units of ``S**2``: int64 if it fits, else Python ints."""
        return self.sums.total(np.int64 if self.rows < _INT64_ROWS else object)

    @property
    def size(self) -> int:
        """Bytes of the sums."""
        return 2 * self.sums.low.nbytes

    def add_sums(self, rows: int, products: pa.Array) -> None:
        """Add the products of rows summed elsewhere, as `WideSums.column` returns them."""
        self.rows += rows
        self.sums.absorb(products)
