"""Broken histograms, tables and quantiles of groups: wrong constants for units, bins from the data, one row in two groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

from dpsql.contract.relation import Contribution
from dpsql.statistics.counts import MarginalCounts
from support.laws.quantile import group_quantile_law


class CellsForMargins(MarginalCounts):
    """Marginals whose squared norm is that of the cells, once per marginal: s K2.

    - **What is wrong**: the margins pool the cells of a unit.
    - **Caught by**: the norms of all units, `tests/property/test_sensitivity_tables.py`; the profile at the norm found.
    - **Counter-example**: a unit with a row in each of two cells of one row of the table: 12, where 4 K2 is 8. Noise
      for (1, 1e-6) is calibrated to mu, and the real one is mu times ``sqrt(12 / 8)``: delta 3.4e-5.
    """

    def squared_norm(self, contribution: Contribution) -> int:
        """Return s K2."""
        return contribution.relation.squared_norm(len(self.measured) * contribution.squared_rows, opposing=False)


def one_group_quantile_law(
    rows: Sequence[tuple[int, int | None]], groups: int, cells: int, **given: Any
) -> dict[Any, float]:
    """Return the law of the quantiles of groups with the constants of a whole table.

    - **What is wrong**: under replace the range 2 needs a number of rows that stays. A row that leaves one group and
      enters another changes both numbers.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: the 0.9-quantile of two groups of nine rows with 104 cells: 1.77 epsilon
      (tests/privacy/test_broken_tables.py, as the number below).
    """
    return group_quantile_law(rows, groups, cells, alone=True, **given)


def added_rows_quantile_law(
    rows: Sequence[tuple[int, int | None]], groups: int, cells: int, **given: Any
) -> dict[Any, float]:
    """Return the law of the quantiles of groups under replace with the constants of add_remove.

    - **What is wrong**: a replaced row is two rows, one in each group.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: the same tables: 1.97 epsilon.
    """
    return group_quantile_law(rows, groups, cells, alone=True, **{**given, "neighbours": "add_remove"})


def equal_height_law(rows: Sequence[int], *, epsilon: Fraction, reach: int = 3) -> dict[Any, float]:
    """Return the joint law of an edge at the median of the rows, exact, and of the noisy counts on both sides.

    - **What is wrong**: the edge is a value of the data, and has no noise.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: any two tables with other medians: infinite loss.
    """
    ordered = sorted(rows)
    edge = ordered[len(ordered) // 2] if ordered else 0
    counts = (sum(row <= edge for row in rows), sum(row > edge for row in rows))
    laws = [{count + by: _clipped(by, epsilon, reach) for by in range(-reach, reach + 1)} for count in counts]
    return {(edge, a, b): p * q for (a, p), (b, q) in product(*(law.items() for law in laws))}


def separate_margins_law(rows: Sequence[tuple[int, int]], *, epsilon: Fraction, reach: int = 4) -> dict[Any, float]:
    """Return the joint law of the noisy margins of a 2 x 2 table, each with noise for all of epsilon.

    - **What is wrong**: total, rows and columns are exact sums of the same rows; a row is in one entry of each.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: one row: 3 epsilon, and 4 with the cells.
    """
    total = [len(rows)]
    first = [sum(row[0] == key for row in rows) for key in range(2)]
    second = [sum(row[1] == key for row in rows) for key in range(2)]
    found: dict[Any, float] = {}
    for shift in product(range(-reach, reach + 1), repeat=5):
        chance = math.prod(_geometric(by, epsilon) for by in shift)
        found[tuple(count + by for count, by in zip((*total, *first, *second), shift, strict=True))] = chance
    return found


def _geometric(by: int, epsilon: Fraction) -> float:
    decay = math.exp(-float(epsilon))
    return (1 - decay) / (1 + decay) * decay ** abs(by)


def _clipped(by: int, epsilon: Fraction, reach: int) -> float:
    """Return the chance of noise that is clipped to the reach."""
    decay = math.exp(-float(epsilon))
    return decay**reach / (1 + decay) if abs(by) == reach else _geometric(by, epsilon)
