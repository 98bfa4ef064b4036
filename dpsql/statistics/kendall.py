"""Compute scaled tau-a ``tau = S / (n - 1)``, the statistic of Kendall selection.

``S`` is the number of concordant minus the number of discordant pairs of rows. A pair that is tied in either column, or
has a missing value, counts 0. ``tau`` is 0 for n < 2. It lies in ``[-n/2, n/2]`` and without ties is ``n / 2`` times
the usual coefficient. n counts all rows, including rows with missing values.

The utility of feature j in round r, with target y and the features s selected so far, is ``|tau_yj|`` in round 1 and
``|tau_yj| - mean_s |tau_sj|`` later. With blocks ``tau`` is the sum of the blocks' ``S_b / (n_b - 1)``.

The table gives the smallest and the largest change by one row, and the utility range that selection needs, which is the
spread of the changes over all features:

===========  ==============  =======================  =======  =======
blocks       relation        ``|tau|`` moves within   round 1  later
===========  ==============  =======================  =======  =======
none         add_remove      [-3/2, 1] when added     5/2      5
none         replace         [-2, 2]                  4        8
some         add_remove      [-3/2, 3/2]              3        6
some         replace         [-3, 3]                  6        12
===========  ==============  =======================  =======  =======

Adding a row to n >= 1 others turns S into ``S + s`` with ``|s| <= n``, and ``|S| <= n (n - 1) / 2``. So ``|S + s| / n -
|S| / (n - 1)`` is at most ``|s| / n <= 1``, and at least ``-|s| / n - |S| / (n (n - 1)) >= -1 - 1/2``. By the same
argument the signed tau moves by at most 3/2.

Replacing a row keeps n and moves S by at most ``2 (n - 1)``, because each of the n - 1 pairs of that row moves by at
most 2.

A later round subtracts a mean of such values, which moves within the same limits. So the change of the utility lies in
an interval of twice the length, ``[-5/2, 5/2]`` for an added row.

With blocks, adding a row changes one block's signed term by at most 3/2, and the absolute value of the sum by no more.
The sum may have another sign than the block, so the asymmetric bound does not apply. The block of a row is part of the
row: a replacement may remove a row from one block and add one to another, which moves two terms by 3/2 each.

A unit of ``max_rows_per_unit`` rows takes that many steps. Replacing a unit of a rows by one of b rows takes ``min(a,
b)`` replacements and ``|a - b|`` additions or removals, none of which moves more than a replacement.

The usual coefficient tau-b, which divides by the number of untied pairs, has no such bound: for binary columns one row
moves ``n/2 * tau_b`` by the order of n.

`Pairs` has scores S of pairs of columns in the whole table or within blocks, for the utilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract.fold import Batch, Fold, KeptRows, numbers, record
from dpsql.contract.relation import relation_of
from dpsql.dataclass import dataclass
from dpsql.kernels.columns import StagedColumns
from dpsql.kernels.kendall import RankedTable, compiled_kernels
from dpsql.kernels.shuffles import largest_sums


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
    largest : callable or None
        (permutations of the target, k, progress) to the sums of the k largest ``|S|``; None for blocks.
    """

    features: int
    sizes: NDArray[np.int64]
    scores: Callable[..., NDArray[np.int64]]
    largest: Callable[[Sequence[NDArray[np.intp]], int, Callable[[float], None]], list[int]] | None = None


class WholeTable(KeptRows):
    """All rows, for counting pairs between any two columns."""

    def __init__(self, width: int) -> None:
        self._staged = StagedColumns(width)
        self._pairs: Pairs | None = None

    @property
    def rows(self) -> int:
        """Number of rows, also after ranking."""
        return self._staged.rows

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows."""
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
        """Return the scores of any two columns, counted on demand and cached."""
        if self._pairs is None:
            table, features = self._ranked(progress), self._staged.width - 1
            self._pairs = Pairs(
                features,
                table.sizes,
                lambda base, others, progress: table.scores(base, others, progress=progress),
                lambda orders, k, progress: largest_sums(table, features, orders, k, progress),
            )
        return self._pairs

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


# Largest spread of the changes of two |tau| by an added row, in one table and in blocks.
_SPREAD = Fraction(5, 2)
_BLOCKED_SPREAD = Fraction(3)
# The same for a replaced row in one table: less than for a removal and an addition, as n does not change.
_REPLACED_SPREAD = Fraction(4)


def utility_range(neighbours: str, *, first: bool, blocked: bool, max_rows_per_unit: int = 1) -> Fraction:
    """Return the largest spread of the changes of all utilities between neighbouring tables.

    Parameters
    ----------
    neighbours : {'add_remove', 'replace'}
    first : bool
        Whether this is round 1, which subtracts nothing.
    blocked : bool
        Whether pairs are counted within blocks; the block is part of a row.
    max_rows_per_unit : int
        >= 1.
    """
    relation = relation_of(neighbours, max_rows_per_unit)
    if blocked:
        spread = relation.spread(_BLOCKED_SPREAD)
    else:
        spread = relation.rows * relation.pick(_SPREAD, _REPLACED_SPREAD)
    return spread if first else 2 * spread


# Numerators and their common denominator.
_Fractions = tuple[NDArray[np.object_], int]


def scaled_tau(scores: NDArray[np.int64], sizes: NDArray[np.int64]) -> _Fractions:
    """Return ``sum_b S_b / (n_b - 1)`` of each column over one common denominator.

    Parameters
    ----------
    scores : ndarray of int64, shape (m, d)
        ``S`` in each block.
    sizes : ndarray of int64, shape (m,)
        Rows of each block. Blocks of fewer than two rows contribute 0.

    Returns
    -------
    numerators : ndarray of object, shape (d,)
        Python ints.
    denominator : int
        >= 1; the least common multiple of all ``n_b - 1``.
    """
    steps = np.asarray(sizes) - 1
    terms: list[_Fractions] = []
    for step in np.unique(steps[steps > 0]):
        # At most n**2 / 2 over all blocks, so there is no overflow.
        terms.append((np.asarray(scores)[steps == step].sum(axis=0).astype(object), int(step)))
    if not terms:
        return np.array([0] * np.shape(scores)[1], dtype=object), 1
    # In pairs, so that most additions have short operands.
    while len(terms) > 1:
        terms = [_add(*terms[i : i + 2]) for i in range(0, len(terms), 2)]
    return terms[0]


def _add(first: _Fractions, second: _Fractions | None = None) -> _Fractions:
    """Add two vectors of fractions."""
    if second is None:
        return first
    common = math.lcm(first[1], second[1])
    return first[0] * (common // first[1]) + second[0] * (common // second[1]), common


def exact_utilities(
    target: NDArray[np.int64], selected: Sequence[NDArray[np.int64]], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.object_], int]:
    """Return the utilities of all features as integers over one common denominator.

    Parameters
    ----------
    target : ndarray of int64, shape (m, d)
        ``S`` of the target with each feature, per block; without blocks m is 1.
    selected : sequence of ndarray of int64, shape (m, d)
        ``S`` of each feature selected so far with each feature. Empty in round 1.
    sizes : ndarray of int64, shape (m,)
        Rows of each block.

    Returns
    -------
    utilities : ndarray of object, shape (d,)
        Python ints.
    unit : int
        >= 1. Feature j has the utility ``utilities[j] / unit``.
    """
    values, denominator = scaled_tau(target, sizes)
    utilities = np.abs(values)
    if selected:
        utilities = utilities * len(selected)
        for scores in selected:
            utilities = utilities - np.abs(scaled_tau(scores, sizes)[0])
    return utilities, denominator * max(1, len(selected))
