"""Exact laws of private quantiles, from the definition of recursive halving.

Independent of the product: rows are a list and are sorted into sub-ranges one by one, ranks are fractions, weights
are exponentials.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

# The cell of each row, None for a missing value.
Rows = Sequence[int | None]
Cells = tuple[int, ...]
# (rows of the sub-range, first and last candidate, quantile within the sub-range, level from 0) -> law of the cell
CellLaw = Callable[[Sequence[int], int, int, Fraction, int], Mapping[int, float]]
Split = Callable[[Sequence[int], int], tuple[Sequence[int], Sequence[int]]]


def quantile_law(
    rows: Rows,
    cells: int,
    *,
    quantiles: Sequence[Fraction],
    epsilon: Fraction,
    neighbours: str,
    max_rows_per_unit: int = 1,
    alone: bool = True,
) -> dict[Cells, float]:
    """Return the law of `dpsql.mechanisms.quantile.quantiles`.

    Parameters
    ----------
    rows : sequence of int or None
        The cell of each row, in [0, cells); None for a missing value.
    cells : int
        Cells of the grid.
    quantiles, epsilon, neighbours, max_rows_per_unit, alone
        As for `quantiles`.

    Returns
    -------
    law : dict
        Cells, one per quantile -> probability.

    Examples
    --------
    >>> law = quantile_law([], 2, quantiles=[Fraction(1, 2)], epsilon=Fraction(1), neighbours="add_remove")
    >>> sorted(law.items())
    [((0,), 0.5), ((1,), 0.5)]
    """
    levels = math.ceil(math.log2(len(quantiles) + 1))

    def cell_law(rows: Sequence[int], low: int, high: int, quantile: Fraction, level: int) -> Mapping[int, float]:
        larger = max(quantile, 1 - quantile)
        if neighbours == "add_remove":
            coefficient = epsilon / levels / (2 * larger)
        elif level == 0 and alone:
            coefficient = epsilon / levels / 2
        else:
            coefficient = epsilon / levels / (4 * larger)
        return rank_law(rows, low, high, quantile * len(rows), coefficient / max_rows_per_unit)

    return halving_law(rows, cells, quantiles, cell_law)


def group_quantile_law(
    rows: Sequence[tuple[int, int | None]], groups: int, cells: int, **given: Any
) -> dict[Any, float]:
    """Return the joint law of the quantiles of disjoint groups; rows are (group, cell), other arguments as above."""
    laws = [
        quantile_law([cell for group, cell in rows if group == one], cells, **{"alone": False, **given})
        for one in range(groups)
    ]
    return {
        tuple(found for found, _ in parts): math.prod(chance for _, chance in parts)
        for parts in itertools.product(*(law.items() for law in laws))
    }


def halving_law(
    rows: Rows, cells: int, quantiles: Sequence[Fraction], cell_law: CellLaw, split: Split | None = None
) -> dict[Cells, float]:
    """Return the joint law of all cells of a recursive halving.

    Parameters
    ----------
    rows, cells, quantiles
        As for `quantile_law`.
    cell_law : callable
        ``cell_law(rows, low, high, quantile, level)``: the law of the cell of one sub-range.
    split : callable, optional
        ``split(rows, cell)``: the rows of either side, by default those up to the cell's end and the others.
    """

    def law(rows: Sequence[int], low: int, high: int, first: int, stop: int, level: int) -> dict[Cells, float]:
        if first == stop:
            return {(): 1.0}
        middle = (first + stop) // 2
        start, end = (Fraction(0), *quantiles, Fraction(1))[first], (*quantiles, Fraction(1))[stop]
        local = (quantiles[middle] - start) / (end - start)
        found: dict[Cells, float] = {}
        for cell, chance in cell_law(rows, low, high, local, level).items():
            left, right = (split or by_value)(rows, cell)
            before = law(left, low, cell, first, middle, level + 1)
            after = law(right, cell, high, middle + 1, stop, level + 1)
            for one, this in before.items():
                for other, that in after.items():
                    found[*one, cell, *other] = chance * this * that
        return found

    return law([row for row in rows if row is not None], 0, cells - 1, 0, len(quantiles), 0)


def by_value(rows: Sequence[int], cell: int) -> tuple[Sequence[int], Sequence[int]]:
    """Divide rows into those up to the end of a cell and those after it; each is on one side."""
    return [row for row in rows if row <= cell], [row for row in rows if row > cell]


def rank_law(rows: Sequence[int], low: int, high: int, rank: Fraction, coefficient: Fraction) -> dict[int, float]:
    """Return the law of a cell in [low, high] with probability ``exp(-coefficient distance)``, up to a factor.

    The distance is that of `rank` from the ranks of the cell, which has some of `rows` before it and some in it.
    """
    losses = {}
    for cell in range(low, high + 1):
        before, until = sum(row < cell for row in rows), sum(row <= cell for row in rows)
        losses[cell] = max(Fraction(0), before - rank, rank - until)
    best = min(losses.values())
    weights = {cell: math.exp(-coefficient * (loss - best)) for cell, loss in losses.items()}
    total = math.fsum(weights.values())
    return {cell: weight / total for cell, weight in weights.items()}
