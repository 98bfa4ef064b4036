"""Compute Gram matrices of quantised rows as exact integers.

As in `xty`, a block of at most 4096 rows of integers in ``[-2**20, 2**20]`` has products whose sums are integers below
``2**53``: a BLAS product of doubles computes them exactly, in any order.

BLAS uses one thread: kernels have their own threads, and two pools on the same processors slow each other down.

`ClippedRows` are rows of bounded norm. Here are also the passes of boosted regression over them. All sums are exact
integers, so no result depends on the order of rows, on batches or on threads.
"""

from __future__ import annotations

import hashlib
import math
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

from dpsql.arrays import Floats, Integers
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, WideSums
from dpsql.kernels.workers import Compiled, Signals, run
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


# Slightly less than 1: covers the roundings of root, division and two products, each a share of 2**-53.
SHRINK = 1.0 - 2.0**-45
# Squares are at most 2**40: a double sums this many exactly.
_EXACT_COLUMNS = 4096
# Cells per job of a pass: a tenth of a second at most, and integer sums that fit 64 bits.
_JOB_CELLS = 1 << 24
_JOB_ROWS = 1 << 20
# Rows whose products fit an int64.
# Cells that a process handles before the compiled kernel is worth loading: about 0.3 s of NumPy.
_WORTH_COMPILING = 200_000_000
# Targets are at most 2**28. Coefficients in units of 2**-u, u <= 24, sum to at most 2**32 in absolute value, and values
# are at most 2**20: the products of a row, its target's included, sum to at most 2**53.
_LARGEST_SUM = 2.0**20
_SUM_BITS = 32
_MOST_BITS = 24

compiled_kernels = Compiled("dpsql.kernels.clipped_rows_compiled", _WORTH_COMPILING)


def warm_up() -> None:
    """Load the compiled kernels and wait for them."""
    compiled_kernels.start().join()


def clip_rows(matrix: NDArray[np.float64], radius: int) -> NDArray[np.float64]:
    """Shorten the rows that are longer than `radius`, in place, and return the factors.

    Parameters
    ----------
    matrix : ndarray of float64, shape (rows, d)
        Quantised values: integers in ``[-S, S]``, d below ``2**22``.
    radius : int
        Largest norm of a row, >= 0, in units where S is 1.

    Returns
    -------
    factors : ndarray of float64, shape (rows,)
        Multiplier of each row before truncation, in [0, 1].

    Notes
    -----
    Afterwards ``sum q_j**2 <= radius**2`` holds exactly, in integers. A row whose squared norm, an exact integer,
    exceeds ``radius**2`` becomes ``trunc(q_j * f)`` with ``f = radius / sqrt(norm2) * SHRINK`` in doubles. The double f
    is less than the real ``radius / sqrt(norm2)`` by more than all roundings, including the product's, and truncation
    goes toward zero. Rounding to nearest would fail: it can make every coordinate larger.

    The code sums squares in doubles, exactly, over 4096 columns at a time, and adds these sums as 64-bit integers. So
    the rule depends on the row alone, and any exact sum of squares gives the same integers.
    """
    limit = min(radius, 1 << 31) ** 2
    factors = np.ones(len(matrix))
    for start in range(0, len(matrix), BLOCK_ROWS):
        block = matrix[start : start + BLOCK_ROWS]
        norm2 = np.zeros(len(block), dtype=np.int64)
        for first in range(0, block.shape[1], _EXACT_COLUMNS):
            part = block[:, first : first + _EXACT_COLUMNS]
            norm2 += np.einsum("ij,ij->i", part, part).astype(np.int64)
        longer = np.flatnonzero(norm2 > limit)
        if len(longer):
            factor = radius / np.sqrt(norm2[longer].astype(np.float64)) * SHRINK
            block[longer] = np.trunc(block[longer] * factor[:, None])
            factors[start + longer] = factor
    return factors


def fixed_coefficients(theta: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Return public coefficients as integers, and the number u of bits behind the point.

    Parameters
    ----------
    theta : ndarray of float64, shape (p,)
        Any doubles. Non-finite values become 0; if the absolute values sum to more than ``2**20``, all are scaled down.

    Returns
    -------
    integers : ndarray of float64, shape (p,)
        ``theta * 2**u``, cut off toward zero, so residuals in units of ``2**-u`` are exact in doubles.
    bits : int
        u, in [11, 24].
    """
    finite = np.where(np.isfinite(theta), theta, 0.0)
    finite = np.clip(finite, -_LARGEST_SUM, _LARGEST_SUM)
    size = math.fsum(abs(finite))
    if size > _LARGEST_SUM:
        finite = finite * (_LARGEST_SUM / size)
        size = _LARGEST_SUM
    # size < 2**k for this k: the sum stays below 2**32 despite a rounding error.
    bits = min(_MOST_BITS, _SUM_BITS - math.ceil(size).bit_length())
    return np.trunc(finite * 2.0**bits), bits


class ClippedRows:
    """Rows stored in memory for several passes.

    Parameters
    ----------
    width : int
        Columns p of every batch.
    threads : int, optional
        For the passes; by default one for each processor. If 0, the calling thread does the work.
    """

    def __init__(self, width: int, *, threads: int | None = None) -> None:
        self.width = width
        self.rows = 0
        self._threads = threads
        self._batches: list[tuple[NDArray[np.float32], NDArray[np.float64]]] = []

    def add(self, rows: Floats, target: Floats) -> None:
        """Store a copy of a batch.

        Parameters
        ----------
        rows : ndarray, shape (n, p)
            Integers in ``[-S, S]``: stored in single precision, which is exact.
        target : ndarray, shape (n,)
            Integers in ``[-2**28, 2**28]``, in units where S is 1.
        """
        if rows.shape != (len(target), self.width):
            raise ValueError(f"a batch of shape {rows.shape} does not fit")
        self.rows += len(target)
        self._batches.append((rows.astype(np.float32, order="C"), target.astype(np.float64)))

    def residual_products(self, theta: NDArray[np.float64]) -> Integers:
        """Return ``sum_i q_i clip(t_i - q_i . theta)``, exactly for the coefficients of `fixed_coefficients`.

        Parameters
        ----------
        theta : ndarray of float64, shape (p,)
            Public, in units of the target per unit of a column, both scaled to [-1, 1].

        Returns
        -------
        products : ndarray, shape (p,)
            In units of ``S**2``: int64 if it fits, else Python ints. Residuals are clipped to [-S, S] and rounded to
            integers.
        """
        integers, bits = fixed_coefficients(theta)
        jobs = self._jobs()
        sums = np.zeros((len(jobs), self.width), dtype=np.int64)
        fast = compiled_kernels(self.rows * self.width)

        def work(number: int, thread: int, signals: Signals) -> None:
            batch, start, end = jobs[number]
            rows, target = self._batches[batch]
            rows, target = rows[start:end], target[start:end]
            if fast is None:
                _blocked_products(rows, target, integers, bits, sums[number])
            else:
                fast.residual_products(rows, target, integers, bits, sums[number])
            signals.done[thread] += end - start

        with one_thread():
            run(work, len(jobs), self.rows, threads=self._threads)
        kind = np.int64 if self.rows < _INT64_ROWS else object
        total: Integers = sums.astype(kind).sum(axis=0)
        return total

    def _jobs(self) -> list[tuple[int, int, int]]:
        """Cut the batches into (batch, first row, row after the last)."""
        length = max(1, min(_JOB_ROWS, _JOB_CELLS // max(1, self.width)))
        return [
            (number, start, min(start + length, len(target)))
            for number, (_, target) in enumerate(self._batches)
            for start in range(0, len(target), length)
        ]


def _blocked_products(
    rows: NDArray[np.float32],
    target: NDArray[np.float64],
    integers: NDArray[np.float64],
    bits: int,
    sums: NDArray[np.int64],
) -> None:
    """Add the products of one job to `sums`: within a block a BLAS product of integers is exact."""
    unit = 2.0**bits
    for start in range(0, len(target), BLOCK_ROWS):
        block = rows[start : start + BLOCK_ROWS].astype(np.float64)
        residual = target[start : start + BLOCK_ROWS] * unit - block @ integers
        np.clip(residual, -FIXED_POINT_ONE * unit, FIXED_POINT_ONE * unit, out=residual)
        np.multiply(residual, 1.0 / unit, out=residual)
        np.floor(np.add(residual, 0.5, out=residual), out=residual)
        sums += (residual @ block).astype(np.int64)
