"""Compute the lead of a selection over shuffled targets, for the selection's verdict.

Let J be the k released features and ``a_j = |S_j| / (n - 1)`` their scores, as in `dpsql.statistics.rank_scores`. The
target's column is permuted over the rows B times, missing values with the others, by secret and exactly uniform
permutations. ``top(z)`` is the mean of the k largest of all p scores with the target z, and q the r-th largest of
``top(y pi_1), .., top(y pi_B)``. The lead is

    ``D = mean of a_j over J - q``,

and 0 for n < 2. It lies in ``[-n / 2, n / 2]``, and for two levels within ``n**2 / (4 (n - 1))`` of 0. D is released
with discrete Laplace noise; q is not released.

*Chance.* If the target is independent of all features together, all orders of its values are equally likely given the
features. Then y, y pi_1, .., y pi_B are exchangeable, and ``P(top(y) > q) <= r / (B + 1)``: fewer than r of the others
reach top(y). Ties only lower this chance. The mean over J is at most top(y), for any J and any way to find it. So ``P(D
> 0) <= r / (B + 1)``, which is `CHANCE`, for every n and p, any ties, missing values and sizes of classes, and any
dependence among the features: no approximation and no correction for the selection. The claim is about the k features
together, and about the table as a sample.

*Sensitivity.* The table bounds how far one row moves D, including the law of pi:

==============  ============  ===========  =========  =====
target          relation      mean over J  q          Delta
==============  ============  ===========  =========  =====
two levels      add_remove    1            1 + 1      3
any             add_remove    3/2          3/2 + 2    5
two levels      replace       2            2 + 1      5
any             replace       2            2 + 2      6
==============  ============  ===========  =========  =====

J is the same on both tables: it was released before. A mean over J, and an order statistic of means of the k largest
(each the maximum of the means over all k-subsets), moves no further than the score that moves most.

*A row is added.* Let pi be a uniform permutation of n rows, and i uniform in 1 .. n + 1, independent of pi. Put the new
row after the others, with its own target if i = n + 1; else give it the target that pi gave row i, and row i the new
row's target. The result is a uniform permutation of n + 1 rows. So its table comes from the permuted table of n rows by
*one changed target*, in row i, and then *one added row*. A changed target moves S by at most ``2 (n - 1)``, as each of
the n - 1 pairs of that row moves by at most 2, and so a score by 2. With two levels and all else missing, a row of one
level is compared with the rows of the other: before with at most n0 and afterwards with at most n1 of the n - 1 others,
which are different rows. So S moves by at most ``n - 1``, and a score by 1. The added row moves a score by at most 3/2,
or 1 with two levels (`dpsql.statistics.rank_scores`). The B permutations are coupled one by one.

*A row is replaced.* Both tables have the same pi. The row's features change under a fixed target, which moves a score
by at most 2. Its target, in any row after pi, changes once: 2, or 1 with two levels. If a condition removes a row of
the unit, the replacement is an addition or a removal, which moves less.

The law of the noisy D is the mean over pi of the law given pi. Coupled pi move D by at most Delta, so the loss given pi
is at most the share of epsilon, and so is the mixture's loss, by joint convexity.

*Units of several rows* get no verdict. Rows of one person are not exchangeable one by one, so the claim would be false,
though m times Delta would be private.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from dpsql.contract.relation import Relation
from dpsql.noise.permutations import permutation
from dpsql.statistics.kendall import Pairs

# Number of permutations, and the rank of the largest score that counts: 2 of 199 if one matrix product counts all of
# them, else 1 of 99. The chance of the claim is the same.
SHUFFLES = {True: (199, 2), False: (99, 1)}
CHANCE = Fraction(1, 100)
# Delta by whether the target has two levels: for an added row, and for a replaced one.
_ADDED = {True: 3, False: 5}
_REPLACED = {True: 5, False: 6}


def lead_sensitivity(relation: Relation, *, two_levels: bool) -> int:
    """Return how far one privacy unit of one row moves the lead, in units of a score.

    Parameters
    ----------
    relation : Relation
        With units of one row.
    two_levels : bool
        As for `dpsql.statistics.rank_scores.rank_spread`.
    """
    if relation.rows != 1:
        raise ValueError("units of several rows have no lead")
    return int(relation.pick(_ADDED[two_levels], _REPLACED[two_levels]))


def shuffled_top(pairs: Pairs, k: int, *, two_levels: bool, progress: Callable[[float], None]) -> int:
    """Return q as an integer: the r-th largest sum of the k largest ``|S_j|`` of a permuted target.

    Parameters
    ----------
    pairs : Pairs
        Of the whole table.
    k : int
    two_levels : bool
    progress : callable
        Called with the share of the work done.

    Notes
    -----
    - **Randomness**: fresh permutations of all rows (`dpsql.noise.permutations`). They are part of the mechanism, and
      stay secret.
    - **Does not protect**: running time, which grows with the number of rows.
    """
    count, rank = SHUFFLES[two_levels]
    rows = int(pairs.sizes.sum())
    if rows < 2 or pairs.largest is None:
        return 0
    sums = pairs.largest([permutation(rows) for _ in range(count)], k, progress)
    return sorted(sums, reverse=True)[rank - 1]


def exact_lead(scores: Sequence[Fraction], top: int, rows: int) -> Fraction:
    """Return D.

    Parameters
    ----------
    scores : sequence of Fraction, length k
        ``a_j`` of the released features.
    top : int
        Of `shuffled_top`.
    rows : int
        n.
    """
    return (sum(scores) - Fraction(top, max(1, rows - 1))) / len(scores)
