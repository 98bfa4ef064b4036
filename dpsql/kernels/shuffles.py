"""Score many columns with permutations of one other: the k largest of each permutation.

All three ways return the same integers:

* If the permuted column has two values and none is missing, S is a sum over the rows of its larger value: the number of
  smaller values of the other column, less the number of larger values, as pairs within one value tie. S is a matrix
  product, exact in doubles: no partial sum passes ``n**2``, and that is at most ``2**52``.
* In a table of few rows, S is a sum over pairs of rows of the product of two signs, again a matrix product, exact in
  single precision: no partial sum passes ``n**2 / 2``, and that is at most ``2**23``.
* Otherwise every permutation is counted anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.kernels.kendall import RankedColumn, RankedTable, pair_counts

_MOST_ROWS = 1 << 26
# Signs are faster up to the first number; with more columns than rows, up to the second.
_FEW_ROWS, _SOME_ROWS = 1 << 9, 1 << 12
# Progress is reported in eighths: finer shares would reveal the number of rows.
_SHARES = 8
# Numbers in a block of columns, of permuted rows, and of signs.
_BLOCK = 1 << 22


def largest_sums(
    table: RankedTable,
    base: int,
    orders: Sequence[NDArray[np.intp]],
    k: int,
    progress: Callable[[float], None],
) -> list[int]:
    """Return the sum of the k largest ``|S|`` of the other columns with each permutation of one column.

    Parameters
    ----------
    table : RankedTable
        With one block.
    base : int
        Position of that column; all others are scored.
    orders : sequence of ndarray of intp, shape (n,)
        Row i of a permutation has the value of row ``order[i]``.
    k : int
        At most the number of other columns.
    progress : callable
        Called with the share of the work done, in eighths; its exceptions stop the work.
    """

    def report(share: float) -> None:
        progress(math.floor(min(1.0, share) * _SHARES) / _SHARES)

    base_column, others = table.columns[base], [column for number, column in enumerate(table.columns) if number != base]
    values = np.unique(base_column.codes)
    if len(values) == 2 and values[0] >= 0 and len(base_column.codes) <= _MOST_ROWS:
        larger = base_column.codes == values[1]
        return _of_two_values(others, np.array([larger[order] for order in orders]), k, report)
    if len(base_column.codes) <= max(_FEW_ROWS, min(_SOME_ROWS, len(others))):
        return _by_signs(others, np.array([base_column.codes[order] for order in orders]), k, report)
    return _counted(base_column, others, orders, k, report)


def _of_two_values(
    columns: Sequence[RankedColumn], larger: NDArray[np.bool_], k: int, progress: Callable[[float], None]
) -> list[int]:
    """Return the sums for two values; `larger`, shape (b, n), marks the larger value."""
    count, rows = larger.shape
    best = np.zeros((k, count))
    width = max(1, _BLOCK // rows)
    for start in range(0, len(columns), width):
        sides = np.array([_smaller_less_larger(column) for column in columns[start : start + width]])
        scores = np.zeros((len(sides), count))
        step = max(1, _BLOCK // count)
        for row in range(0, rows, step):
            scores += sides[:, row : row + step] @ larger[:, row : row + step].T.astype(np.float64)
        best = _largest(best, scores)
        progress((start + width) / len(columns))
    return [int(total) for total in best.sum(axis=0)]


def _largest(best: Doubles, scores: Doubles) -> Doubles:
    """Return each column's k largest, of those in `best` and the sizes of `scores`; shape (k, b)."""
    sizes = np.concatenate([best, np.abs(scores)])
    largest: Doubles = np.partition(sizes, len(sizes) - len(best), axis=0)[len(sizes) - len(best) :]
    return largest


def _smaller_less_larger(column: RankedColumn) -> Doubles:
    """Return each row's count of smaller values, less its count of larger values; 0 for a missing value."""
    codes = column.codes
    here = codes >= 0
    counts = np.bincount(codes[here], minlength=1)
    smaller = np.cumsum(counts) - counts
    sides = 2 * smaller + counts - int(here.sum())
    return np.where(here, sides[np.maximum(codes, 0)], 0).astype(np.float64)


def _by_signs(
    columns: Sequence[RankedColumn], shuffled: NDArray[np.int32], k: int, progress: Callable[[float], None]
) -> list[int]:
    """Return the sums for a permuted column with codes `shuffled`, shape (b, n); -1 is missing."""
    count, rows = shuffled.shape
    left, right = np.triu_indices(rows, 1)
    best = np.zeros((k, count))
    width, step = max(1, _BLOCK // count), max(1, _BLOCK // max(count, 256))
    for start in range(0, len(columns), width):
        codes = np.array([column.codes for column in columns[start : start + width]])
        scores = np.zeros((len(codes), count))
        for pair in range(0, len(left), step):
            pairs = left[pair : pair + step], right[pair : pair + step]
            ways = _signs(shuffled, *pairs).T
            for part in range(0, len(codes), 256):
                scores[part : part + 256] += _signs(codes[part : part + 256], *pairs) @ ways
            progress((start + len(codes) * pair / len(left)) / len(columns))
        best = _largest(best, scores)
    return [int(total) for total in best.sum(axis=0)]


def _signs(codes: NDArray[np.int32], left: NDArray[np.intp], right: NDArray[np.intp]) -> NDArray[np.float32]:
    """Return the sign of the difference of two rows of each column, 0 if one is missing; shape (d, pairs)."""
    first, second = codes[:, left], codes[:, right]
    signs: NDArray[np.float32] = np.sign(first - second).astype(np.float32)
    if (codes < 0).any():
        signs[(first < 0) | (second < 0)] = 0
    return signs


def _counted(
    base: RankedColumn,
    columns: Sequence[RankedColumn],
    orders: Sequence[NDArray[np.intp]],
    k: int,
    progress: Callable[[float], None],
) -> list[int]:
    """Return the sums by counting the pairs of every permutation."""
    sums = []
    for number, order in enumerate(orders):

        def report(share: float, number: int = number) -> None:
            progress((number + share) / len(orders))

        concordant, discordant = pair_counts(replace(base, codes=base.codes[order]), columns, progress=report)
        scores = np.abs(concordant - discordant)
        sums.append(int(np.partition(scores, len(columns) - k)[len(columns) - k :].sum()))
    return sums
