"""Broken rank scores: a third level between two, the range of two levels elsewhere, scores scaled up, exact verdicts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from dpsql.testing.neighbours import Table
from support.laws.selection import one_shot_law

_TWO_LEVELS = Fraction(2)
_ANY_TARGET = Fraction(5, 2)


def _sign(one: Any, other: Any) -> int:
    return 0 if None in (one, other) else (one > other) - (one < other)


def _score(rows: Sequence[tuple[Any, ...]], feature: int) -> int:
    """Return concordant less discordant pairs of a feature with the target, a row's last value."""
    return sum(_sign(p[feature], q[feature]) * _sign(p[-1], q[-1]) for p, q in itertools.combinations(rows, 2))


def range_of_two_levels_law(table: Table, *, epsilon: Fraction, **selection: Any) -> dict[tuple[int, ...], float]:
    """Return the law of a selection with the range 2 whatever the target: positions -> probability.

    Parameters
    ----------
    table : tuple of tuple
        Rows of floats or None, the target last.
    epsilon : Fraction
        Claimed privacy loss, > 0.
    **selection
        ``mechanism``, ``gamma`` and ``k``.

    Notes
    -----
    - **What is wrong**: the range 2 holds for two levels alone. It does not for a numeric target, also one that
      happens to hold two values; nor for two levels beside a third value that is coded as 0 between -1 and 1.
    - **Caught by**: `check_exhaustively`, the log ratio of exact laws.
    - **Counter-example**: epsilon = 1, Gumbel noise, many copies of the first feature. Numeric: five rows (i, 0, i) and
      one row (-99, 1, 99) more move two scores 5/2 apart; loss 5/4. Third value as 0: rows (1, 0, -1) twice and
      (0, 0, 0) twice, and one row (2, 1, 1) more: 7/3; loss 7/6.
    """
    scores = [Fraction(abs(_score(table, feature)), max(1, len(table) - 1)) for feature in range(len(table[0]) - 1)]
    return _law(scores, _TWO_LEVELS, max(1, len(table) - 1), epsilon=epsilon, **selection)


def exact_verdict_law(table: Table) -> dict[str, float]:
    """Return the law of a verdict of the first feature that reads its exact score and the table's number of rows.

    Notes
    -----
    - **What is wrong**: a verdict is released, so it must follow from released numbers. The exact score does not cost
      less for being compared with a level first.
    - **Caught by**: the log ratio of the laws of neighbours, and an audit of the released verdicts.
    - **Counter-example**: one feature that follows the target. With 18 rows it is `unclear` and with 19 `clear`, always:
      the loss is infinite.
    """
    rows = max(2, len(table))
    level = math.sqrt(rows**2 / (rows - 1) * math.log(4 * (len(table[0]) - 1) / 0.05))
    clear = abs(_score(table, 0)) / (rows - 1) > level
    return {"clear": float(clear), "unclear": float(not clear)}


def present_rows_law(table: Table, *, epsilon: Fraction, **selection: Any) -> dict[tuple[int, ...], float]:
    """Return the law of a selection by n/2 times the coefficient over the rows in which a feature is present.

    Parameters are those of `range_of_two_levels_law`, with the range 5/2.

    Notes
    -----
    - **What is wrong**: one row changes the coefficient of a feature that few rows have by the order of 1, and so its
      score by the order of n.
    - **Caught by**: the log ratio of exact laws on neighbours.
    - **Counter-example**: epsilon = 1; n rows of which two have feature a, which follows the target there. One row more,
      which denies both, moves its score from n/2 to (n + 1)/6: loss 1.0, 13 and 133 for n = 10, 100 and 1000.
    """
    scores = []
    for feature in range(len(table[0]) - 1):
        present = [row for row in table if row[feature] is not None]
        pairs = max(1, len(present) * (len(present) - 1))
        scores.append(Fraction(len(table) * abs(_score(present, feature)), pairs))
    unit = 1
    for score in scores:
        unit *= score.denominator
    return _law(scores, _ANY_TARGET, unit, epsilon=epsilon, **selection)


def _law(scores: Sequence[Fraction], spread: Fraction, unit: int, **given: Any) -> dict[tuple[int, ...], float]:
    """Return the law of a selection; twice `unit` makes scores and range integers."""
    return one_shot_law([int(2 * unit * score) for score in scores], utility_range=int(2 * unit * spread), **given)
