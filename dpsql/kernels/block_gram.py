"""Fit least squares on every block of rows, from exact sums: the models of the Tukey mechanism.

Rows stream in batches, in any order, twice. The first pass finds every column's range in every block. The second pass
quantises values to that range and adds up the block's Gram matrix. Minima, maxima and integer sums do not depend on the
order, so a block's model is a function of the set of the block's rows: if one more row shifts all batches, every other
block has the same model to the last bit. Nothing of O(n) is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Longs
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, quantise, wide_column, wide_parts
from dpsql.kernels.gram import one_thread
from dpsql.kernels.workers import Compiled, Signals, run
from dpsql.kernels.xty import BLOCK_ROWS

CHUNK_CELLS = 1 << 23
# Larger values do not extend a range; they are clipped to its end.
LARGEST = 2.0**500
# A direction in which standardised features vary by less than this share of the widest is quantisation noise.
NEGLIGIBLE = 1e-9
# Above this unexplained share of its variance, a feature is not doubtful.
COLLINEAR = 1e-6
# Cells that a process handles before it loads the compiled kernels: about half a second of NumPy.
_WORTH_COMPILING = 20_000_000
_LARGEST_SUM = 1 << 13  # rows whose products a double still adds up exactly
_CARRY_ROWS = 1 << 21
_LOW_BITS = 32
_BLOCKS_PER_JOB = 16
_CACHE_LINE = 64
_TILE_ROWS = 128  # rows that the compiled kernel holds as doubles

compiled_kernels = Compiled("dpsql.kernels.block_gram_compiled", _WORTH_COMPILING)

Number = TypeVar("Number", bound=np.generic)


def warm_up() -> None:
    """Load the compiled kernels and wait for them."""
    compiled_kernels.start().join()


class _Chunks:
    """Batches that are processed together once there are enough."""

    def __init__(self, blocks: int, width: int) -> None:
        self.blocks = blocks
        self.width = width
        self._waiting: list[tuple[Longs, Doubles]] = []
        self._cells = 0

    def add(self, assigned: Longs, columns: Doubles) -> None:
        """Add rows.

        Parameters
        ----------
        assigned : ndarray of int64, shape (rows,)
            The block of each row. A row outside ``[0, blocks)`` is in no block.
        columns : ndarray of float64, shape (width, rows)
            The features and, last, the target, in their own units; NaN means NULL. Do not change it afterwards. The
            transpose of a row-major matrix is faster.
        """
        self._waiting.append((assigned, columns))
        self._cells += columns.size
        if self._cells >= CHUNK_CELLS:
            self._flush()

    def _flush(self) -> None:
        batches, self._waiting, self._cells = self._waiting, [], 0
        if batches:
            self._work(batches)

    def _work(self, batches: list[tuple[Longs, Doubles]]) -> None:
        raise NotImplementedError

    def _block_of(self, batch: tuple[Longs, Doubles]) -> Longs:
        """Return the block of each row; `blocks` for a row in no fit."""
        assigned, columns = batch
        inside = np.isfinite(columns[-1]) & (assigned >= 0) & (assigned < self.blocks)
        return np.where(inside, assigned, self.blocks)


def _order(blocks: Longs, count: int) -> tuple[NDArray[np.intp], Longs]:
    """Return (order, starts): block b, below `count`, has the rows ``order[starts[b] : starts[b + 1]]``."""
    starts = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(blocks, minlength=count + 1)[:count], out=starts[1:])
    small = blocks.astype(np.uint16 if count < 1 << 16 else np.uint64)  # radix sort if short
    return np.argsort(small, kind="stable")[: starts[-1]], starts


def _aligned(shape: tuple[int, ...], kind: type[Number]) -> NDArray[Number]:
    """Return zeros aligned to a cache line."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    room = np.zeros(size + _CACHE_LINE, dtype=np.uint8)
    skip = -room.ctypes.data % _CACHE_LINE
    aligned: NDArray[Number] = room[skip : skip + size].view(kind).reshape(shape)
    return aligned


class BlockRanges(_Chunks):
    """First pass: the smallest and largest value of every column in every block.

    Parameters
    ----------
    blocks : int
        Number of blocks, >= 1; public.
    width : int
        Features and target, >= 1.

    Notes
    -----
    A row with a non-finite target is in no fit. NaN and values beyond ``2**500`` are in no range.
    """

    def __init__(self, blocks: int, width: int) -> None:
        super().__init__(blocks, width)
        self._least = np.full((blocks, width), np.inf)
        self._most = np.full((blocks, width), -np.inf)

    def _work(self, batches: list[tuple[Longs, Doubles]]) -> None:
        blocks = [self._block_of(batch) for batch in batches]
        fast = compiled_kernels(sum(columns.size for _, columns in batches))
        if fast is not None:
            # Rows in no fit share an extra block.
            least = np.full((self.blocks + 1, self.width), np.inf)
            most = -least
            for (_, columns), block in zip(batches, blocks, strict=True):
                fast.ranges(np.ascontiguousarray(columns.T), block, least, most)
            least, most = least[:-1], most[:-1]
        else:
            order, starts = _order(np.concatenate(blocks), self.blocks)
            least, most = self._reduced([columns for _, columns in batches], order, starts)
        self.widen(least, most)

    def widen(self, least: Doubles, most: Doubles) -> None:
        """Widen ranges by other ranges, each of shape (blocks, width)."""
        np.minimum(self._least, least, out=self._least)
        np.maximum(self._most, most, out=self._most)

    def ends(self) -> tuple[Doubles, Doubles]:
        """Return the smallest and largest values; empty ranges are infinite and reversed."""
        self._flush()
        return self._least, self._most

    def _reduced(self, batches: list[Doubles], order: NDArray[np.intp], starts: Longs) -> tuple[Doubles, Doubles]:
        least, most = np.full_like(self._least, np.inf), np.full_like(self._most, -np.inf)
        present = np.flatnonzero(np.diff(starts))
        for column in range(self.width if len(present) else 0):
            values = np.concatenate([columns[column] for columns in batches])[order]
            unfit = ~(np.abs(values) <= LARGEST)
            least[present, column] = np.minimum.reduceat(np.where(unfit, np.inf, values), starts[present])
            most[present, column] = np.maximum.reduceat(np.where(unfit, -np.inf, values), starts[present])
        return least, most

    def maps(self) -> tuple[Doubles, Doubles]:
        """Return (middle, scale), each of shape (blocks, width), for `BlockGram`.

        They map the range of a column in a block to ``[-S, S]`` with ``S = FIXED_POINT_ONE``. If the range is a point
        or empty, the scale and every quantised value are 0.
        """
        self._flush()
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            has_range = self._least <= self._most
            middle = np.where(has_range, self._least / 2.0 + self._most / 2.0, 0.0)
            scale = 2.0 * FIXED_POINT_ONE / (self._most - self._least)
        point = ~(has_range & (scale > 0.0) & (scale < np.inf))
        # Half of a subnormal is rounded, and a point is its own middle.
        middle = np.where(point & has_range, self._least, middle)
        return middle, np.where(point, 0.0, scale)


class BlockGram(_Chunks):
    """Second pass: the exact Gram matrix of (1, features, target) of every block, and the models.

    Parameters
    ----------
    middle, scale : ndarray of float64, shape (blocks, width)
        Affine maps per block and column: from `BlockRanges`, or public. Scale 0 excludes a column.

    Notes
    -----
    A row with a non-finite target is in no fit. A NaN (NULL) feature counts as the middle of its range. Memory is
    ``8 blocks (width + 1)**2`` bytes, the width rounded up to a multiple of 16, and 96 MiB for each thread.
    """

    def __init__(self, middle: Doubles, scale: Doubles) -> None:
        blocks, width = middle.shape
        super().__init__(blocks, width)
        import_module("scipy.linalg")  # load its BLAS before all BLAS is limited to one thread
        self._middle = np.ascontiguousarray(middle)
        self._scale = np.ascontiguousarray(scale)
        self._padded = -(-(width + 1) // 16) * 16
        # The sum of a block is partial + low + 2**32 high, in units of S**2, S or 1; entries below the diagonal are
        # meaningless. Doubles hold the partial sums exactly.
        self._partial: Doubles = _aligned((blocks, self._padded, self._padded), np.float64)
        self._low: Longs | None = None
        self._high: Longs | None = None
        # The largest number of rows whose products are in either sum of a block.
        self._rows = 0
        self._rows_low = 0
        self._spare: NDArray[np.float32] | None = None

    def _work(self, batches: list[tuple[Longs, Doubles]]) -> None:
        blocks = [self._block_of(batch) for batch in batches]
        order, starts = _order(np.concatenate(blocks), self.blocks)
        fast = compiled_kernels(sum(columns.size for _, columns in batches))
        values = self._placed([columns for _, columns in batches], blocks, order, fast)
        for first in range(0, int(np.diff(starts).max()), BLOCK_ROWS):
            begin = np.minimum(starts[:-1] + first, starts[1:])
            end = np.minimum(begin + BLOCK_ROWS, starts[1:])
            self._add_up(values, begin, end, fast)
        self._spare = values

    def _placed(
        self, batches: list[Doubles], blocks: list[Longs], order: NDArray[np.intp], fast: ModuleType | None
    ) -> NDArray[np.float32]:
        """Return the quantised rows in the order of blocks; each row is (1, features, target, 0, …)."""
        rows = sum(map(len, blocks))
        positions = np.full(rows, rows, dtype=np.int64)
        positions[order] = np.arange(len(order))
        values = self._spare
        if values is None or len(values) <= rows:
            # Integers up to 2**20: floats hold them exactly. The last row receives the rows in no fit.
            values = _aligned((rows + 1, self._padded), np.float32)
        start = 0
        for columns, block in zip(batches, blocks, strict=True):
            slots = positions[start : start + len(block)]
            if fast is not None:
                fast.quantise_rows(np.ascontiguousarray(columns.T), block, slots, self._middle, self._scale, values)
            else:
                has_slot = slots < rows
                of = block[has_slot]
                values[slots[has_slot], 0] = 1.0
                values[slots[has_slot], 1 : self.width + 1] = quantise(
                    columns.T[has_slot], self._middle[of], self._scale[of]
                )
            start += len(block)
        return values

    def _add_up(self, values: NDArray[np.float32], begin: Longs, end: Longs, fast: ModuleType | None) -> None:
        """Add the Gram matrices of rows ``values[begin[b] : end[b]]``, at most 4096 rows of each block b."""
        self._make_room(int((end - begin).max()))
        with one_thread():
            if fast is not None:
                tile = _aligned((_TILE_ROWS, self._padded), np.float64)
                fast.gram(values, begin, end, 0, self.blocks, tile, self._partial)
                return
            for block in np.flatnonzero(begin < end):
                rows = values[begin[block] : end[block]].astype(np.float64)
                # At most 4096 products below 2**40: doubles add them up exactly, in any order.
                self._partial[block] += rows.T @ rows

    def _make_room(self, rows: int) -> None:
        """Empty the partial sums before a block has more rows than doubles, or an int64, can hold."""
        self._rows += rows
        if self._rows <= _LARGEST_SUM:
            return
        self._rows, self._rows_low = rows, self._rows_low + _LARGEST_SUM
        low = self._lower()
        low += self._partial.astype(np.int64)
        self._partial[:] = 0.0
        if self._rows_low > _CARRY_ROWS:
            self._carry()

    def _lower(self) -> Longs:
        """Return the sums that are no longer partial, below ``2**63``."""
        if self._low is None:
            self._low = np.zeros(self._partial.shape, dtype=np.int64)
        return self._low

    def _carry(self) -> None:
        """Move the bits above 32 to the high part."""
        low = self._lower()
        if self._high is None:
            self._high = np.zeros(self._partial.shape, dtype=np.int64)
        self._high += low >> _LOW_BITS
        low &= (1 << _LOW_BITS) - 1
        self._rows_low = 0

    @property
    def size(self) -> int:
        """Bytes of the partial sums."""
        return self._partial.nbytes

    def _triangles(self, part: NDArray[Number]) -> NDArray[Number]:
        """Return the upper triangles of all blocks, row by row."""
        rows, columns = np.triu_indices(self.width + 1)
        triangles: NDArray[Number] = part[:, rows, columns]
        return triangles

    def products(self) -> pa.Array:
        """Return the sums as decimals: the upper triangle of each block."""
        self._flush()
        low = self._triangles(self._partial).astype(np.int64)
        if self._low is not None:
            low += self._triangles(self._low)
        high = low >> _LOW_BITS
        if self._high is not None:
            high += self._triangles(self._high)
        return wide_column(high.ravel(), (low & ((1 << _LOW_BITS) - 1)).ravel())

    def add_products(self, column: pa.Array) -> None:
        """Add the `products` of another instance."""
        self._flush()
        rows, columns = np.triu_indices(self.width + 1)
        high, low = (part.reshape(self.blocks, -1) for part in wide_parts(column))
        self._carry()
        sums = self._lower()
        sums[:, rows, columns] += low
        if self._high is not None:
            self._high[:, rows, columns] += high
        self._carry()

    def models(self, progress: Callable[[float], None] | None = None, threads: int | None = None) -> Doubles:
        """Return the least-squares model of every block.

        Parameters
        ----------
        progress : callable, optional
            Called from the calling thread with the fraction done. Its exceptions stop the work.
        threads : int, optional
            By default one for each processor; 0 works in the calling thread.

        Returns
        -------
        models : ndarray of float64, shape (blocks, width)
            The intercept first, then the features, in units of the columns. A feature that does not vary within the
            block has coefficient 0. If the features do not determine the model, the model has the least norm in units
            of the features' standard deviations. An empty block and a block whose model is not finite have zeros.
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
        """Return the Gram matrix of a block, shape (width + 1, width + 1): upper triangle, correctly rounded."""
        self._flush()
        size = self.width + 1
        total: Doubles = self._partial[block, :size, :size].copy()
        if self._low is not None:
            # The sum is below 2**63 without a high part; a high part is a multiple of 2**32: one rounding either way.
            low = self._low[block, :size, :size] + total.astype(np.int64)
            if self._high is None:
                return low.astype(np.float64)
            high = self._high[block, :size, :size] + (low >> _LOW_BITS)
            total = high.astype(np.float64) * float(1 << _LOW_BITS) + (low & ((1 << _LOW_BITS) - 1))
        return total


def _least_squares(gram: Doubles, middle: Doubles, scale: Doubles) -> Doubles:
    """Return the model (intercept, features) of one block; it depends on these arguments alone."""
    model: Doubles = np.zeros(len(middle))
    rows = gram[0, 0]
    if rows == 0.0:
        return model
    means = gram[0, 1:] / rows
    standard = gram[1:, 1:] - means[:, None] * gram[0, 1:]
    spread = standard.diagonal().copy()
    # If the quantised values do not vary, the remaining sum of squares is a rounding error.
    varies = spread > 1e-12 * gram.diagonal()[1:]
    with np.errstate(all="ignore"):
        if varies[-1] and varies[:-1].any():
            unit = 1.0 / np.sqrt(np.where(varies, spread, np.inf))
            standard *= unit
            standard *= unit[:, None]
            # Make a feature that does not vary uncorrelated with all others.
            standard.ravel()[:: len(unit) + 1][~varies] = 1.0
            try:
                slopes = _solve(standard[:-1, :-1], standard[:-1, -1])
            except np.linalg.LinAlgError:  # no convergence: a failure must not reveal data
                return model
            model[1:] = np.where(varies[:-1], slopes * (unit[:-1] * scale[:-1]) / (unit[-1] * scale[-1]), 0.0)
        centres = middle + np.where(scale > 0.0, means / scale, 0.0)
        model[0] = centres[-1] - model[1:] @ centres[:-1]
    return model if np.isfinite(model).all() else np.zeros(len(middle))


def _solve(matrix: Doubles, target: Doubles) -> Doubles:
    """Solve a system of correlations, given its upper triangle, for least norm without negligible directions."""
    from scipy.linalg.lapack import dpotrf, dpotrs

    factor, failed = dpotrf(matrix, clean=0)
    # The squared diagonal is the share of a feature's variance that earlier features leave unexplained.
    if failed == 0 and factor.diagonal().min() ** 2 > COLLINEAR:
        return np.asarray(dpotrs(factor, target)[0])
    values, vectors = np.linalg.eigh(matrix, UPLO="U")
    is_large = values > NEGLIGIBLE * values[-1]
    return np.asarray(vectors[:, is_large] @ ((vectors.T @ target)[is_large] / values[is_large]))
