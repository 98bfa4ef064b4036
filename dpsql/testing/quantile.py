"""Exact laws of private quantiles, from the definition of recursive halving.

Independent of the product: rows are a list and are sorted into sub-ranges one by one, ranks are fractions, weights
are exponentials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

# The cell of each row, None for a missing value.
Rows = Sequence[int | None]
Cuts = tuple[int, ...]
# (rows of the sub-range, first cut, last cut, quantile within the sub-range, level from 0) -> law of the cut
CutLaw = Callable[[Sequence[int], int, int, Fraction, int], Mapping[int, float]]
Split = Callable[[Sequence[int], int], tuple[Sequence[int], Sequence[int]]]


def quantile_law(
    rows: Rows,
    cells: int,
    *,
    quantiles: Sequence[Fraction],
    epsilon: Fraction,
    neighbours: str,
    max_rows_per_unit: int = 1,
) -> dict[Cuts, float]:
    """Return the law of `dpsql.mechanisms.quantile.quantiles`.

    Parameters
    ----------
    rows : sequence of int or None
        The cell of each row, in [0, cells); None for a missing value.
    cells : int
        Cells of the grid.
    quantiles, epsilon, neighbours, max_rows_per_unit
        As for `quantiles`.

    Returns
    -------
    law : dict
        Cuts, one per quantile -> probability.

    Examples
    --------
    >>> law = quantile_law([0], 1, quantiles=[Fraction(1, 2)], epsilon=Fraction(1), neighbours="add_remove")
    >>> sorted(law.items())
    [((0,), 0.5), ((1,), 0.5)]
    """
    levels = math.ceil(math.log2(len(quantiles) + 1))

    def cut_law(rows: Sequence[int], low: int, high: int, quantile: Fraction, level: int) -> Mapping[int, float]:
        larger = max(quantile, 1 - quantile)
        if neighbours == "add_remove":
            coefficient = epsilon / levels / (2 * larger)
        elif level == 0:
            coefficient = epsilon / levels / 2
        else:
            coefficient = epsilon / levels / (4 * larger)
        return rank_law(rows, low, high, quantile * len(rows), coefficient / max_rows_per_unit)

    return halving_law(rows, cells, quantiles, cut_law)


def halving_law(
    rows: Rows, cells: int, quantiles: Sequence[Fraction], cut_law: CutLaw, split: Split | None = None
) -> dict[Cuts, float]:
    """Return the joint law of all cuts of a recursive halving.

    Parameters
    ----------
    rows, cells, quantiles
        As for `quantile_law`.
    cut_law : callable
        ``cut_law(rows, low, high, quantile, level)``: the law of the cut of one sub-range.
    split : callable, optional
        ``split(rows, cut)``: the rows of either side, by default those below the cut and the others.
    """

    def law(rows: Sequence[int], low: int, high: int, first: int, stop: int, level: int) -> dict[Cuts, float]:
        if first == stop:
            return {(): 1.0}
        middle = (first + stop) // 2
        start, end = (Fraction(0), *quantiles, Fraction(1))[first], (*quantiles, Fraction(1))[stop]
        local = (quantiles[middle] - start) / (end - start)
        found: dict[Cuts, float] = {}
        for cut, chance in cut_law(rows, low, high, local, level).items():
            left, right = (split or by_value)(rows, cut)
            before = law(left, low, cut, first, middle, level + 1)
            after = law(right, cut, high, middle + 1, stop, level + 1)
            for one, this in before.items():
                for other, that in after.items():
                    found[*one, cut, *other] = chance * this * that
        return found

    return law([row for row in rows if row is not None], 0, cells, 0, len(quantiles), 0)


def by_value(rows: Sequence[int], cut: int) -> tuple[Sequence[int], Sequence[int]]:
    """Divide rows into those below a cut and those above; each is on one side."""
    return [row for row in rows if row < cut], [row for row in rows if row >= cut]


def rank_law(rows: Sequence[int], low: int, high: int, rank: Fraction, coefficient: Fraction) -> dict[int, float]:
    """Return the law of a cut in [low, high] with probability proportional to ``exp(-coefficient |left - rank|)``."""
    losses = {cut: abs(sum(row < cut for row in rows) - rank) for cut in range(low, high + 1)}
    best = min(losses.values())
    weights = {cut: math.exp(-coefficient * (loss - best)) for cut, loss in losses.items()}
    total = math.fsum(weights.values())
    return {cut: weight / total for cut, weight in weights.items()}
