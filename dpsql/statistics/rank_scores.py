"""Compute rank scores ``|tau_j|`` of all features with the target, the statistic of dp_sis with ``score := 'rank'``.

``tau_j = S_j / (n - 1)`` is the scaled tau-a of `dpsql.statistics.kendall`: S_j is the number of concordant minus the
number of discordant pairs of rows, a tie or a missing value counts 0, and n counts all rows, including rows with
missing values. It is 0 for n < 2. A coefficient over the n_j rows in which feature j is present, scaled up to ``n S_j /
(n_j (n_j - 1))``, has no bound: one row moves it by n/3 if n_j is 2.

The table gives the smallest and the largest change of ``|tau_j|`` by one row, and the range that a selection needs,
which is the spread of the changes over all features:

==============  ============  ========================  =====  ================================
target          relation      ``|tau|`` moves within    range  proof
==============  ============  ========================  =====  ================================
any             add_remove    [-3/2, 1] when added      5/2    `dpsql.statistics.kendall`
two levels      add_remove    [-1, 1]                   2      below
any, or two     replace       [-2, 2]                   4      `dpsql.statistics.kendall`
==============  ============  ========================  =====  ================================

*Two levels.* Let n1 and n0 rows have the one and the other level, and the target of all others be missing. Only pairs
of an n1-row and an n0-row count, so ``|S| <= n1 n0``. An added row of the first level adds s with ``|s| <= n0``. For n
>= 2 rows before it,

    ``| |S + s| / n - |S| / (n - 1) | <= n0 / n + n1 n0 / (n (n - 1)) = n0 (n - 1 + n1) / (n (n - 1)) <= 1``,

because ``n1 <= n - n0`` gives ``n (n - 1) - n0 (n - 1 + n1) >= (n - n0) (n - n0 - 1) >= 0``. By symmetry this holds for
the other level. A row without a level has s = 0, which moves ``|tau|`` by ``|S| / (n (n - 1)) <= 1/2``. After the first
row ``|tau|`` is 0, and after the second at most 1. The range 2 is not reached but approached: 9/5 for n = 5. Replacing
a row moves two scores up to 4 apart in the limit, as for any target, so there is no discount.

A third value must be missing, not a level between the two. Coded as 0 between -1 and 1 it makes three levels, and
``|tau|`` falls by up to 3/2 again. So `RankScores`, which knows the range 2, also makes every other value missing.

For two levels S is Mann-Whitney's ``2 U - n1 n0``. The area under the curve, which divides by ``n1 n0``, has no such
bound: one row moves it by the order of 1 if a level is rare.

A unit of ``max_rows_per_unit`` rows takes that many steps; see `dpsql.statistics.kendall` for units of unequal size.

*Released scores.* The scores of k features and the number n of rows, as one vector, move in L1 by at most

==============  ============================  =========================================================
relation        by one step                   proof
==============  ============================  =========================================================
add_remove      ``k c + 1``                   ``|tau|`` moves by at most c, 3/2 or 1, and n by 1
replace         ``max(2 k, k c + 1)``         a row that stays moves ``|tau|`` by at most 2, n by none;
                                              one that comes or goes is a step as above
==============  ============================  =========================================================

and by m times that for a unit of m rows, which is at most m such steps. Here n is private under either relation: a
condition, or a unit of fewer rows, may change n even if units are replaced. A score is rounded to a multiple of an
integer's inverse by ``floor(x + 1/2)``, which keeps any bound that is such a multiple, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Integers
from dpsql.contract.fold import Batch
from dpsql.contract.relation import Relation
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.statistics import kendall
from dpsql.statistics.kendall import WholeTable

# Largest spread of the changes of two |tau| by an added row, if the target has two levels.
_TWO_LEVEL_SPREAD = Fraction(2)
# Largest move of |tau| by an added or removed row, for any target.
_MOST_MOVED = Fraction(3, 2)


def rank_spread(relation: Relation, *, two_levels: bool) -> Fraction:
    """Return the largest spread of the changes of all ``|tau_j|`` between neighbouring tables.

    Parameters
    ----------
    relation : Relation
    two_levels : bool
        Whether the target has two public levels and its other values are missing. The caller or the column's type says
        so, never the rows.
    """
    any_target = kendall.utility_range(relation.kind, first=True, blocked=False, max_rows_per_unit=relation.rows)
    return relation.pick(relation.rows * _TWO_LEVEL_SPREAD, any_target) if two_levels else any_target


def released_sensitivity(relation: Relation, k: int, *, two_levels: bool, bits: int) -> int:
    """Return the L1 sensitivity of k scores and the number of rows, in units of ``2**-bits``.

    Parameters
    ----------
    relation : Relation
    k : int
    two_levels : bool
        As for `rank_spread`.
    bits : int
        >= 0.
    """
    moved = math.ceil(Fraction(1 if two_levels else _MOST_MOVED) * (1 << bits))
    added = k * moved + (1 << bits)
    return relation.rows * relation.pick(added, max(2 * k << bits, added))


class RankScores(WholeTable):
    """All rows, for the scores ``|tau_j|`` of every feature with the target.

    Parameters
    ----------
    features : int
        Number of features.
    two_levels : bool
        Whether the target has two public levels, coded as -S and S; any other value is then missing.
    """

    def __init__(self, features: int, *, two_levels: bool) -> None:
        super().__init__(features + 1)
        self.two_levels = two_levels

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows."""
        if self.two_levels:
            target = np.where(np.abs(target) == FIXED_POINT_ONE, target, np.nan)
        super().add(target, features, batch)

    def spread(self, relation: Relation) -> Fraction:
        """Return the largest spread of the changes of the scores."""
        return rank_spread(relation, two_levels=self.two_levels)

    def utilities(self, relation: Relation, progress: Callable[[float], None]) -> tuple[Integers, int]:
        """Return the scores and their range as integers in units of ``1 / (2 (n - 1))``.

        Parameters
        ----------
        relation : Relation
        progress : callable
            Called with the share of the work done.

        Returns
        -------
        utilities : ndarray of object, shape (d,)
            Python ints; ``2 |S_j|``.
        utility_range : int
            >= 1.
        """
        pairs = self.pairs(progress)
        scores = pairs.scores(pairs.features, range(pairs.features), progress)
        utilities, unit = kendall.exact_utilities(scores, [], pairs.sizes)
        return 2 * utilities, int(2 * unit * self.spread(relation))
