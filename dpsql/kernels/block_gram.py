"""Least squares on every block of rows, from exact sums: the models of the Tukey mechanism.

Rows stream in batches, in any order and from several threads, twice. The first pass finds the range of every column
in every block, the second adds up the block's Gram matrix of values quantised to that range. Minima, maxima and sums
of integers do not depend on the order, so the model of a block is a function of the set of the block's rows: where
one row more shifts all batches, every other block has the same model to the last bit. Nothing of O(n) is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.kernels.blas import one_thread
from dpsql.kernels.loading import Compiled
from dpsql.kernels.workers import Signals, run
from dpsql.kernels.xty import BLOCK_ROWS
from dpsql.statistics.fixed_point import FIXED_POINT_ONE, quantise

CHUNK_CELLS = 1 << 23
# What is larger counts for no range and is taken for the end of it.
LARGEST = 2.0**500
# A direction in which standardised features vary by less than this share of the widest is noise of the quantisation.
NEGLIGIBLE = 1e-9
# Cells that a process handles before the compiled kernels are worth loading: about a second of NumPy.
_WORTH_COMPILING = 20_000_000
_STRIPES = 16  # locks of one table: blocks are shared out among them
_CARRY_ROWS = 1 << 21
_LOW_BITS = 32
_BLOCKS_PER_JOB = 16

compiled_kernels = Compiled("dpsql.kernels.block_gram_compiled", _WORTH_COMPILING)

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]


def warm_up() -> None:
    """Load the compiled kernels now, and wait for them."""
    compiled_kernels.start().join()


class _Chunks:
    """Batches that are worked on together once there are enough of them; threads may add at the same time."""

    def __init__(self, blocks: int, width: int) -> None:
        self.blocks = blocks
        self.width = width
        self._waiting: list[tuple[Integers, Doubles]] = []
        self._cells = 0
        self._waiting_lock = threading.Lock()

    def add(self, assigned: Integers, columns: Doubles) -> None:
        """Add rows.

        Parameters
        ----------
        assigned : ndarray of int64, shape (rows,)
            The block of each row. A row outside ``[0, blocks)`` is in none.
        columns : ndarray of float64, shape (width, rows)
            The features and, last, the target, in their own units; NaN stands for NULL. Not to be changed
            afterwards. The transpose of a row-major matrix is faster.
        """
        with self._waiting_lock:
            self._waiting.append((assigned, columns))
            self._cells += columns.size
            if self._cells < CHUNK_CELLS:
                return
            batches, self._waiting, self._cells = self._waiting, [], 0
        self._work(batches)

    def _flush(self) -> None:
        with self._waiting_lock:
            batches, self._waiting, self._cells = self._waiting, [], 0
        if batches:
            self._work(batches)

    def _work(self, batches: list[tuple[Integers, Doubles]]) -> None:
        """Bring the rows of one chunk into the order of blocks."""
        assigned = np.concatenate([batch for batch, _ in batches])
        if len(batches) == 1 and batches[0][1].T.flags.c_contiguous:
            matrix = batches[0][1].T
        else:
            matrix = np.empty((len(assigned), self.width))
            start = 0
            for batch, columns in batches:
                matrix[start : start + len(batch)] = columns.T
                start += len(batch)
        blocks = np.where(np.isfinite(matrix[:, -1]) & (assigned >= 0), assigned, self.blocks)
        blocks = np.minimum(blocks, self.blocks).astype(np.int32)
        starts = np.zeros(self.blocks + 1, dtype=np.int64)
        np.cumsum(np.bincount(blocks, minlength=self.blocks + 1)[: self.blocks], out=starts[1:])
        self._sorted(matrix, np.argsort(blocks, kind="stable")[: starts[-1]], starts)

    def _sorted(self, matrix: Doubles, order: Integers, starts: Integers) -> None:
        """Take in rows: those of block b are ``matrix[order[starts[b] : starts[b + 1]]]``."""
        raise NotImplementedError


class BlockRanges(_Chunks):
    """First pass: the smallest and the largest value of every column in every block.

    Parameters
    ----------
    blocks : int
        Number of blocks, >= 1; public.
    width : int
        Features and target, >= 1.

    Notes
    -----
    A row whose target is not finite is in no fit. NaN and what is beyond ``2**500`` are in no range.
    """

    def __init__(self, blocks: int, width: int) -> None:
        super().__init__(blocks, width)
        self._least = np.full((blocks, width), np.inf)
        self._most = np.full((blocks, width), -np.inf)
        self._lock = threading.Lock()

    def _sorted(self, matrix: Doubles, order: Integers, starts: Integers) -> None:
        fast = compiled_kernels(matrix.size)
        if fast is not None:
            least, most = np.full_like(self._least, np.inf), np.full_like(self._most, -np.inf)
            fast.ranges(matrix, order, starts, least, most)
            present = slice(None)
        else:
            present = np.flatnonzero(np.diff(starts))
            least = np.empty((len(present), self.width))
            most = np.empty((len(present), self.width))
            for column in range(self.width if len(present) else 0):
                values = matrix[order, column]
                unfit = ~(np.abs(values) <= LARGEST)
                least[:, column] = np.minimum.reduceat(np.where(unfit, np.inf, values), starts[present])
                most[:, column] = np.maximum.reduceat(np.where(unfit, -np.inf, values), starts[present])
        with self._lock:
            self._least[present] = np.minimum(self._least[present], least)
            self._most[present] = np.maximum(self._most[present], most)

    def maps(self) -> tuple[Doubles, Doubles]:
        """Return (middle, scale), each of shape (blocks, width), for `BlockGram`.

        They send the range of a column in a block to ``[-S, S]`` with ``S = FIXED_POINT_ONE``. Where the range is a
        point or empty the scale is 0, and so is every quantised value.
        """
        self._flush()
        with self._lock, np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            found = self._least <= self._most
            middle = np.where(found, self._least / 2.0 + self._most / 2.0, 0.0)
            scale = 2.0 * FIXED_POINT_ONE / (self._most - self._least)
        point = ~(found & (scale > 0.0) & (scale < np.inf))
        # The half of a subnormal is rounded, and a point is its own middle.
        middle = np.where(point & found, self._least, middle)
        return middle, np.where(point, 0.0, scale)


class BlockGram(_Chunks):
    """Second pass: the exact Gram matrix of (1, features, target) of every block, and the models.

    Parameters
    ----------
    middle, scale : ndarray of float64, shape (blocks, width)
        Affine maps per block and column: of `BlockRanges`, or public ones. Scale 0 leaves a column out.

    Notes
    -----
    A row whose target is not finite is in no fit. A feature that is NaN (NULL) counts as the middle of its range.
    Memory is ``8 blocks (width + 1)**2`` bytes and a chunk of 64 MiB for each thread.
    """

    def __init__(self, middle: Doubles, scale: Doubles) -> None:
        blocks, width = middle.shape
        super().__init__(blocks, width)
        self._middle = np.ascontiguousarray(middle)
        self._scale = np.ascontiguousarray(scale)
        # Sums are in units of S**2, S or 1; the upper triangle alone is kept.
        self._low = np.zeros((blocks, width + 1, width + 1), dtype=np.int64)
        self._high: Integers | None = None
        self._rows_since = 0
        borders = np.linspace(0, blocks, min(_STRIPES, blocks) + 1).astype(np.int64)
        self._stripes = [(int(a), int(b), threading.Lock()) for a, b in zip(borders[:-1], borders[1:], strict=True)]
        self._lock = threading.Lock()

    def _sorted(self, matrix: Doubles, order: Integers, starts: Integers) -> None:
        fast = compiled_kernels(matrix.size)
        with one_thread():
            # Threads begin at different stripes.
            first = threading.get_ident() // 64 % len(self._stripes)
            for start, stop, lock in self._stripes[first:] + self._stripes[:first]:
                with lock:
                    if fast is not None:
                        fast.gram(matrix, order, starts, self._middle, self._scale, start, stop, self._low)
                    else:
                        self._stripe(matrix, order, starts, start, stop)
        self._carry(int(np.diff(starts).max()))

    def _stripe(self, matrix: Doubles, order: Integers, starts: Integers, first: int, last: int) -> None:
        for block in range(first, last):
            for start in range(int(starts[block]), int(starts[block + 1]), BLOCK_ROWS):
                rows = order[start : min(start + BLOCK_ROWS, int(starts[block + 1]))]
                values = np.empty((len(rows), self.width + 1))
                values[:, 0] = 1.0
                values[:, 1:] = quantise(matrix[rows], self._middle[block], self._scale[block])
                # At most 4096 products below 2**40: doubles add them up exactly, in any order.
                self._low[block] += np.triu(values.T @ values).astype(np.int64)

    def _carry(self, rows: int) -> None:
        """Move the upper halves away before a block has more rows than an int64 has room for."""
        with self._lock:
            self._rows_since += rows
            if self._rows_since < _CARRY_ROWS:
                return
            self._rows_since = 0
            if self._high is None:
                self._high = np.zeros_like(self._low)
            for start, stop, lock in self._stripes:
                with lock:
                    self._high[start:stop] += self._low[start:stop] >> _LOW_BITS
                    self._low[start:stop] &= (1 << _LOW_BITS) - 1

    def models(self, progress: Callable[[float], None] | None = None, threads: int | None = None) -> Doubles:
        """Return the least-squares model of every block.

        Parameters
        ----------
        progress : callable, optional
            Called from the calling thread with the fraction done. What it raises stops the work.
        threads : int, optional
            By default one for each processor; 0 works in the calling thread.

        Returns
        -------
        models : ndarray of float64, shape (blocks, width)
            The intercept first, then the features, in units of the columns. A feature that does not vary within
            the block has coefficient 0. Where the features do not determine the model, it is the one of the least
            norm in units of the features' standard deviations. An empty block and a block whose model is not
            finite have zeros.
        """
        self._flush()
        models = np.zeros((self.blocks, self.width))
        jobs = -(-self.blocks // _BLOCKS_PER_JOB)

        def fit(number: int, thread: int, signals: Signals) -> None:
            for block in range(number * _BLOCKS_PER_JOB, min((number + 1) * _BLOCKS_PER_JOB, self.blocks)):
                if signals.stop[0]:
                    return
                models[block] = _least_squares(self.gram(block), self._middle[block], self._scale[block])
                signals.done[thread] += 1

        with one_thread():
            run(fit, jobs, self.blocks, threads, progress)
        return models

    def gram(self, block: int) -> Doubles:
        """Return the Gram matrix of a block, shape (width + 1, width + 1); the upper triangle, correctly rounded."""
        total = self._low[block].astype(np.float64)
        if self._high is not None:
            total += self._high[block].astype(np.float64) * float(1 << _LOW_BITS)
        return total


def _least_squares(gram: Doubles, middle: Doubles, scale: Doubles) -> Doubles:
    """Return the model (intercept, features) of one block; a function of these arguments alone."""
    from scipy.linalg.lapack import dpocon, dpotrf, dpotrs

    width = len(middle)
    model: Doubles = np.zeros(width)
    rows = gram[0, 0]
    if rows == 0.0:
        return model
    means = gram[0, 1:] / rows
    centred = gram[1:, 1:] - np.outer(means, gram[0, 1:])
    # A column whose quantised values do not vary has a sum of squares of rounding errors.
    spread = np.diagonal(centred).copy()
    varies = spread > 1e-12 * np.diagonal(gram)[1:]
    features = np.flatnonzero(varies[:-1])
    with np.errstate(all="ignore"):
        if len(features) and varies[-1]:
            unit = np.sqrt(spread)
            standard = (centred[:-1, :-1] / unit[:-1, None] / unit[:-1])[np.ix_(features, features)]
            target = centred[features, -1] / unit[features] / unit[-1]
            factor, failed = dpotrf(standard)
            norm = np.abs(np.triu(standard) + np.triu(standard, 1).T).sum(axis=0).max()
            if failed == 0 and dpocon(factor, norm)[0] > 10.0 * NEGLIGIBLE:
                slopes = dpotrs(factor, target)[0]
            else:
                slopes = _least_norm(standard, target)
            model[1 + features] = slopes * (unit[-1] / scale[-1]) / (unit[features] / scale[features])
        centres = middle + np.where(scale > 0.0, means / scale, 0.0)
        model[0] = centres[-1] - model[1:] @ centres[:-1]
    return model if np.isfinite(model).all() else np.zeros(width)


def _least_norm(standard: Doubles, target: Doubles) -> Doubles:
    """Solve a symmetric system given by its upper triangle, without the directions that are negligible."""
    values, vectors = np.linalg.eigh(standard, UPLO="U")
    kept = values > NEGLIGIBLE * values[-1]
    along = (vectors.T @ target)[kept] / values[kept]
    solution: Doubles = vectors[:, kept] @ along
    return solution
