"""Count the votes of blocks, the statistic of two-stage selection, and sums for Tukey regression.

Each row (or each privacy unit) is assigned to one of m blocks, independently of all others. Every block casts one vote
for each of at most k features, by a rule that reads the rows of that block only. ``v_j`` is the number of votes for
feature j, in ``[0, m]``.

Sensitivity, if the rows of a privacy unit are in at most ``b`` blocks (b = 1 if blocks are drawn per unit or a unit is
one row; b = rows per unit if blocks are drawn per row):

==============  ============  ============  ============  ===============================================
relation        |v_j| moves   L1            range         why
==============  ============  ============  ============  ===============================================
add_remove      b             2 k b         2 b           one block exchanges one set of at most k
                                                          features for another
replace         2 b           4 k b         4 b           the id is part of the row, so one block loses a
                                                          row and another gains one
==============  ============  ============  ============  ===============================================

Proof sketch. Fix the assignment of every id that occurs in either table and the random numbers that break ties, block
by block; none of these draws depends on the rows' values. A block that no row entered or left votes the same in both
tables. Any other block contributes 0 or 1 to each ``v_j`` before and after, so its contribution moves by -1, 0 or 1,
for at most 2 k of the features. Sum over the affected blocks. A guarantee that holds for every fixed value of the draws
also holds on average over them.

Votes are not monotone: an added row may raise the votes of one feature and lower another feature's, so the range is
twice the sensitivity. Under replace both blocks may do so for the same features: (5, 5, 0) becomes (3, 7, 0).

`BlockVotes` counts the votes of some of the blocks: votes are integers, so their sum does not depend on the division.
The random numbers of a block follow from its number and from the call's key, and the doubles of all blocks from one
kind of arithmetic, so a block has the same vote in every worker.

None of this holds for consecutive blocks of a shuffled table, ``m`` blocks of ``floor(n / m)`` rows, because an added
row shifts the borders of all blocks (`tests/support/broken/votes.py`). Nor may m depend on the private n, except
through a released count: `blocks_from_count`.

`ColumnRanges` and `BlockProducts` are ranges and products of columns in disjoint blocks of rows, for the models of
`tukey`. The block of a row is its key modulo the public number of blocks, so one row moves one block (`tukey`). The
target is the last column. `dpsql.kernels.block_gram` defines which rows and values enter a fit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract.fold import Batch, Fold, KeptRows, field, numbers, record
from dpsql.contract.parameters import show
from dpsql.contract.relation import relation_of
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.kernels.block_gram import BlockGram, BlockRanges
from dpsql.noise.discrete import exp_bounds, log_bounds
from dpsql.noise.entropy import SYSTEM


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
        """Widen the ranges by another fold's ranges."""
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


_DIGITS = 40


def component_sensitivity(neighbours: str, *, max_rows_per_unit: int = 1, unit_blocks: bool = True) -> int:
    """Return the sensitivity of one ``v_j``.

    Parameters
    ----------
    neighbours : {'add_remove', 'replace'}
        The neighbouring relation.
    max_rows_per_unit : int
        Largest number of rows of one privacy unit, >= 1.
    unit_blocks : bool
        Whether a block is drawn per privacy unit, so that all rows of a unit are in one block; otherwise per row.
    """
    # If a block is drawn per unit, all rows of the unit are in one block, as for a unit of one row.
    return relation_of(neighbours, 1 if unit_blocks else max_rows_per_unit).norm(1)


def utility_range(neighbours: str, *, max_rows_per_unit: int = 1, unit_blocks: bool = True) -> int:
    """Return the largest spread of the changes of all ``v_j``; see `component_sensitivity` for the arguments."""
    return 2 * component_sensitivity(neighbours, max_rows_per_unit=max_rows_per_unit, unit_blocks=unit_blocks)


def total_sensitivity(neighbours: str, k: int, *, max_rows_per_unit: int = 1, unit_blocks: bool = True) -> int:
    """Return the L1 sensitivity of the votes, k per block; see `component_sensitivity`."""
    return 2 * k * component_sensitivity(neighbours, max_rows_per_unit=max_rows_per_unit, unit_blocks=unit_blocks)


def blocks_from_count(noisy_count: int, *, rows_per_block: int, epsilon: Fraction, failure: Fraction) -> int:
    """Return the number of blocks that a released row count allows; post-processing.

    Parameters
    ----------
    noisy_count : int
        The number of rows n plus discrete Laplace noise of scale ``1 / epsilon``.
    rows_per_block : int
        Public average number of rows per block, >= 1.
    epsilon : Fraction
        Inverse scale of the noise, > 0: the epsilon of the count divided by the rows of a privacy unit.
    failure : Fraction
        In (0, 1): bound on the chance that the average block is smaller than requested, because noise made the
        count too large. No guarantee depends on it.

    Returns
    -------
    blocks : int
        ``max(1, floor((noisy_count - shift) / rows_per_block))``, see `count_shift`.
    """
    if not rows_per_block >= 1:
        raise ParameterError("P018", f"rows_per_block must be >= 1; got {rows_per_block}.")
    return max(1, (noisy_count - count_shift(epsilon, failure)) // rows_per_block)


def count_shift(epsilon: Fraction, failure: Fraction) -> int:
    """Return the smallest s >= 0 with ``P(Z > s) <= failure``, where Z is discrete Laplace of scale ``1 / epsilon``.

    ``P(Z >= t) = a**t / (1 + a)`` for t >= 1, ``a = exp(-epsilon)``. All rounding increases s; it exceeds the
    smallest value only if ``failure`` agrees with one of these probabilities to 30 digits.
    """
    if not epsilon > 0:
        raise ParameterError("P018", f"epsilon must be > 0; got {epsilon}.")
    if not 0 < failure < 1:
        raise ParameterError("P018", f"failure must be strictly between 0 and 1; got {show(failure)}.")
    unit = 10**_DIGITS
    # An upper bound on -log(failure * (1 + a)).
    exponent = (
        log_bounds(failure.denominator, _DIGITS)[1]
        - log_bounds(failure.numerator, _DIGITS)[0]
        + log_bounds(unit, _DIGITS)[1]
        - log_bounds(unit + exp_bounds(-epsilon, _DIGITS)[0], _DIGITS)[0]
    )
    least = -(-exponent * epsilon.denominator // (unit * epsilon.numerator)) - 1
    return max(0, int(least))


@dataclass(frozen=True)
class VoteRule:
    """Rule of a block's votes: arguments of `dpsql.kernels.lasso_votes.lasso_votes`."""

    k: int
    penalty: float
    standardize: bool
    intercept: bool


@dataclass(frozen=True)
class KeyedWords:
    """Words from a secret key, in place of random words: everyone with the key reads the same ones."""

    key: bytes

    def words(self, size: int, /) -> NDArray[np.uint64]:
        """Return the first words."""
        return np.frombuffer(hashlib.shake_128(self.key).digest(8 * size), dtype=np.uint64)


class BlockVotes(Fold):
    """The votes of complete blocks.

    Parameters
    ----------
    width : int
        Number of features.
    blocks : int
        Number of blocks, >= 1. A block without rows has no vote.
    rule : VoteRule
    """

    def __init__(self, width: int, blocks: int, rule: VoteRule) -> None:
        self._given = width, blocks, rule
        self.votes = np.zeros(width, dtype=np.int64)
        self._arithmetic = 0

    @property
    def whole_blocks(self) -> int:
        """Number of blocks."""
        return self._given[1]

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add the votes of some blocks; each depends on the rows of the block, its number and the call's key."""
        from dpsql.kernels.gram import arithmetic
        from dpsql.kernels.lasso_votes import lasso_votes

        keys, sizes, rule = batch.keys, batch.sizes, self._given[2]
        if keys is None or sizes is None or not batch.secret:
            raise ValueError("rows of a blocked call carry their block and its key")
        self._agree(arithmetic())
        for block in np.unique(keys).tolist():
            here = np.flatnonzero(keys == block)
            if len(here) != int(sizes[here[0]]):
                raise ValueError("a block is not complete")
            self.votes += lasso_votes(
                features[:, here].T,
                target[here],
                np.zeros(len(here), dtype=np.int64),
                blocks=1,
                **vars(rule),
                threads=0,
                source=KeyedWords(b"%b votes of block %d" % (batch.secret, block)),
            )

    def _agree(self, arithmetic: int) -> None:
        """Raise if blocks were fitted on processors that round differently: other rows could then change a vote."""
        if 0 not in (self._arithmetic, arithmetic) and self._arithmetic != arithmetic:
            raise ValueError("workers with different processors or versions of NumPy cannot vote together")
        self._arithmetic = self._arithmetic or arithmetic

    def state(self) -> pa.RecordBatch:
        """Return the votes and their arithmetic; 0 for nothing."""
        return record({"votes": self.votes, "arithmetic": [self._arithmetic]})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add the votes of other blocks."""
        self._agree(int(numbers(state, "arithmetic")[0]))
        self.votes += numbers(state, "votes")


class KeyedRows(KeptRows):
    """All rows, with the key that determines each row's block."""

    def __init__(self, width: int) -> None:
        self.rows = 0
        self._width = width
        self._batches: list[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.uint64]]] = []

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows; a row without an id draws its own key."""
        keys = SYSTEM.words(len(target)) if batch.keys is None else batch.keys
        self._batches.append((target, np.ascontiguousarray(features.T), keys))
        self.rows += len(target)

    def merge(self, other: KeyedRows) -> None:
        """Append the rows of another collection."""
        self._batches += other._batches
        self.rows += other.rows

    def table(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.uint64]]:
        """Return features, row-major of shape (n, p), and target and keys of shape (n,); this empties the collector."""
        features, target = np.empty((self.rows, self._width)), np.empty(self.rows)
        keys = np.empty(self.rows, dtype=np.uint64)
        stop = self.rows
        while self._batches:
            part = self._batches.pop()
            start = stop - len(part[0])
            target[start:stop], features[start:stop], keys[start:stop] = part
            stop = start
        return features, target, keys
