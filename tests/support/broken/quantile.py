"""Broken private quantiles: a rank that ignores the data, the median's constant elsewhere, sub-ranges that share rows.

Every function returns an exact output law; the right one is `support.laws.quantile.quantile_law`. Rows are the
cells of the rows, None for a missing value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from support.laws.quantile import Cells, Rows, Split, halving_law, rank_law


def fixed_rank_law(rows: Rows, cells: int, *, rank: Fraction, epsilon: Fraction) -> dict[int, float]:
    """Return the law of one cell at a fixed rank, with the constant of the median.

    Parameters
    ----------
    rows, cells
        As for `support.laws.quantile.quantile_law`.
    rank : Fraction
        Public number of rows that are to lie up to somewhere in the cell.
    epsilon : Fraction
        Claimed privacy loss under add_remove, > 0.

    Returns
    -------
    law : dict
        Cell -> probability.

    Notes
    -----
    - **What is wrong**: an added row moves the distance up at one cell and down at another, by 1 each: range 2,
      where the median of the true number of rows has 1.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: epsilon = 1, rank 3, four cells for rows with 100 empty ones in the middle, at most 5 rows:
      loss 1.98 epsilon (tests/privacy/test_broken_quantile.py, as the numbers below).
    """
    return rank_law([row for row in rows if row is not None], 0, cells - 1, rank, epsilon)


def noisy_rank_law(
    rows: Rows, cells: int, *, quantile: Fraction, epsilon: Fraction, count_epsilon: Fraction, most: int
) -> dict[tuple[int, int], float]:
    """Return the joint law of a noisy number of rows and one cell at its share of that number.

    Parameters
    ----------
    rows, cells
        As for `support.laws.quantile.quantile_law`.
    quantile : Fraction
        In (0, 1).
    epsilon, count_epsilon : Fraction
        Claimed privacy losses of cell and count under add_remove, > 0.
    most : int
        The noisy count, two-sided geometric, is clamped to [0, most]; tables have no more rows than that.

    Returns
    -------
    law : dict
        (noisy count, cell) -> probability.

    Notes
    -----
    - **What is wrong**: given the noisy count the rank is fixed; see `fixed_rank_law`.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: the median, epsilon = 1 and count_epsilon = 1, the cells of `fixed_rank_law`, at most 5
      rows: loss 2.98 instead of 2.
    """
    known = [row for row in rows if row is not None]
    decay = math.exp(-count_epsilon)
    law = {}
    for noisy in range(most + 1):
        # An end takes all that lies beyond it.
        chance = decay ** abs(noisy - len(known)) / (1 + decay) * (1 - decay if 0 < noisy < most else 1)
        for cell, share in rank_law(known, 0, cells - 1, quantile * noisy, epsilon).items():
            law[noisy, cell] = chance * share
    return law


def median_constant_law(rows: Rows, cells: int, *, quantile: Fraction, epsilon: Fraction) -> dict[int, float]:
    """Return the law of one cell for any quantile with coefficient epsilon, which is right for the median alone.

    Parameters
    ----------
    rows, cells, quantile, epsilon
        As above; the claim is for add_remove.

    Returns
    -------
    law : dict
        Cell -> probability.

    Notes
    -----
    - **What is wrong**: the range is ``2 max(q, 1 - q)``, which is 1 for the median only.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: epsilon = 1, the cells of `fixed_rank_law`, at most 4 rows: loss 1.49 epsilon for
      q = 3/4, and 1.78 epsilon for q = 9/10 with 8 rows more in the first cell.
    """
    known = [row for row in rows if row is not None]
    return rank_law(known, 0, cells - 1, quantile * len(known), epsilon)


def median_constant_halving_law(
    rows: Rows, cells: int, *, quantiles: Sequence[Fraction], epsilon: Fraction
) -> dict[Cells, float]:
    """Return the joint law of a recursion with half the level's epsilon as the coefficient of every cell.

    Parameters
    ----------
    rows, cells, quantiles, epsilon
        As for `support.laws.quantile.quantile_law`; the claim is for replace.

    Returns
    -------
    law : dict
        Cells -> probability.

    Notes
    -----
    - **What is wrong**: this is right for the whole table and for medians. Below the first level a replaced row may
      leave one sub-range and enter another: two moves of ``2 max(q, 1 - q)`` each.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: epsilon = 1, quantiles 4/9, 2/3 and 8/9, 67 cells with one row in each of the cells 0, 1,
      33 and 64: a row that goes from cell 32 to the last one loses 1.25 times the share of the second level there.
    """
    share = epsilon / math.ceil(math.log2(len(quantiles) + 1))
    return halving_law(
        rows,
        cells,
        quantiles,
        lambda rows, low, high, quantile, level: rank_law(rows, low, high, quantile * len(rows), share / 2),
    )


def closed_cells_law(rows: Rows, cells: int, *, quantiles: Sequence[Fraction], epsilon: Fraction) -> dict[Cells, float]:
    """Return the joint law of a recursion whose sub-ranges both hold the released cell, like SQL's BETWEEN.

    Parameters
    ----------
    rows, cells, quantiles, epsilon
        As for `support.laws.quantile.quantile_law`; the claim is for add_remove.

    Returns
    -------
    law : dict
        Cells -> probability.

    Notes
    -----
    - **What is wrong**: a row of the released cell is in both sub-ranges, and one row moves both of them.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: epsilon = 1, quartiles, six cells for rows with 8 empty ones after the second and the
      fourth, at most 3 rows: loss 1.13 epsilon.
    """
    return _halving(rows, cells, quantiles, epsilon, _closed)


def rank_split_law(rows: Rows, cells: int, *, quantiles: Sequence[Fraction], epsilon: Fraction) -> dict[Cells, float]:
    """Return the joint law of a recursion that divides the sorted rows in the middle, like SQL's NTILE.

    Parameters
    ----------
    rows, cells, quantiles, epsilon
        As for `support.laws.quantile.quantile_law`; the claim is for add_remove.

    Returns
    -------
    law : dict
        Cells -> probability.

    Notes
    -----
    - **What is wrong**: an added row shifts the middle, and so moves a row of somebody else from one half to the
      other: both halves change.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: epsilon = 1, quartiles, the cells of `closed_cells_law`, at most 4 rows: loss 1.51
      epsilon.
    """
    return _halving(rows, cells, quantiles, epsilon, by_rank)


def _halving(
    rows: Rows, cells: int, quantiles: Sequence[Fraction], epsilon: Fraction, split: Split
) -> dict[Cells, float]:
    share = epsilon / math.ceil(math.log2(len(quantiles) + 1))

    def cell_law(rows: Sequence[int], low: int, high: int, quantile: Fraction, level: int) -> Mapping[int, float]:
        coefficient = share / (2 * max(quantile, 1 - quantile))
        return rank_law(rows, low, high, quantile * len(rows), coefficient)

    return halving_law(rows, cells, quantiles, cell_law, split)


def _closed(rows: Sequence[int], cell: int) -> tuple[Sequence[int], Sequence[int]]:
    return [row for row in rows if row <= cell], [row for row in rows if row >= cell]


def by_rank(rows: Sequence[int], cell: int) -> tuple[Sequence[int], Sequence[int]]:
    ordered = sorted(rows)
    return ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]
