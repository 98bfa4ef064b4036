"""Broken verdicts of a set: public permutations, permutations of another length, a free threshold, another set.

Functions that end on law return an exact output law; the right one is `support.laws.lead.lead_law`. Their numbers are
those of tests/privacy/test_broken_lead.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from fractions import Fraction

import numpy as np

from dpsql.arrays import Doubles
from dpsql.kernels.kendall import RankedTable
from dpsql.kernels.shuffles import largest_sums
from dpsql.mechanisms.ranking import LeadNoise
from dpsql.testing.neighbours import Table
from support.broken.planting import planted
from support.laws.lead import lead_law, place_law, scores, top_law


def public_permutations_top(columns: Sequence[Doubles], target: Doubles, seed: int) -> Fraction:
    """Return q, of the permutations that follow from a public seed, which is printed with the lead.

    Notes
    -----
    - **What is wrong**: the coupling of the proof is one of *drawn* permutations. Printed ones of n rows have nothing to
      do with those of n + 1 rows, so q moves as far as it varies from seed to seed: by the order of the root of n.
    - **Caught by**: the loss of two neighbours, that of two Laplace laws around known leads.
    - **Counter-example**: 4,000 rows in two levels of even size, one feature, and a row more: of 20 seeds the worst has
      twice the loss that was paid for.
    """
    coins = np.random.default_rng(seed)
    orders = [coins.permutation(len(target)) for _ in range(199)]
    sums = largest_sums(RankedTable([*columns, target]), len(columns), orders, 1, lambda share: None)
    return Fraction(sorted(sums)[-2], len(target) - 1)


def longer_permutations(table: Table, k: int, n_rows: int) -> dict[Fraction, float]:
    """Return the law of the top of a target that is permuted by a permutation of ``n_rows`` rows, not of the table's.

    Notes
    -----
    - **What is wrong**: rows beyond the table have no target, so shuffled targets miss values that the target has. They
      are not exchangeable with it.
    - **Caught by**: the chance of a lead above 0 without any relation, by enumeration.
    - **Counter-example**: five rows, a feature of five values, two rows of the one level; nine permutations of ten rows:
      0.2 in place of 0.1.
    """
    return top_law(table, k, itertools.permutations(range(n_rows), len(table)))


def threshold_law(table: Table, k: int) -> dict[Fraction, float]:
    """Return the law of q, which is released beside the noisy lead as if it were public.

    Notes
    -----
    - **What is wrong**: q is computed from the rows. Only the noisy lead hides it.
    - **Caught by**: the log ratio of exact laws.
    - **Counter-example**: any two tables of n and n + 1 rows whose q have other denominators: an infinite loss.
    """
    return place_law(top_law(table, k), 9, 1)


def lead_of_the_best(table: Table, k: int, *, epsilon: float) -> dict[int, float]:
    """Return the law of the lead of the true best k in place of those that were released.

    Notes
    -----
    - **What is wrong**: it is private, and it is no verdict of the release: features that noise chose are called clear
      because others would have been.
    - **Caught by**: a table in which one feature follows the target and the released one is constant.
    - **Counter-example**: the lead of the constant one is at most 0, that of the best one above it.
    """
    found = scores(table)
    best = sorted(range(len(found)), key=found.__getitem__, reverse=True)[:k]
    return lead_law(table, best, epsilon=epsilon, delta=3)


def narrow_noise() -> AbstractContextManager[None]:
    """Plant noise of sensitivity 1, as if q were a public threshold and one row moved a score by 1.

    Notes
    -----
    - **What is wrong**: a row moves the mean over the released features, and q as well: by 3 together with two levels,
      and by 5 with any target.
    - **Caught by**: the log ratio of exact laws, and an audit through SQL.
    - **Counter-example**: a feature that follows a numeric target in 8 rows, and a row that denies it: 1.56 epsilon.
    """
    return planted((LeadNoise, "_moved", lambda part, bits, two_levels: 1 << bits))
