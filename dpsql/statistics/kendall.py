"""Scaled tau-a ``tau = S / (n - 1)``: the statistic of Kendall selection.

``S`` is the number of concordant minus the number of discordant pairs of rows. A pair that is tied in either
column, or has a missing value, counts 0. ``tau`` is 0 for n < 2. It lies in ``[-n/2, n/2]`` and without ties is
``n / 2`` times the usual coefficient. n counts all rows, including those with missing values.

The utility of feature j in round r, with target y and the features s selected so far, is
``|tau_yj|`` in round 1 and ``|tau_yj| - mean_s |tau_sj|`` later. With blocks ``tau`` is the sum of the
blocks' ``S_b / (n_b - 1)``.

The table gives the smallest and the largest change by one row, and the range of the utility that selection
needs, which is the spread of the changes over all features:

===========  ==============  =======================  =======  =======
blocks       relation        ``|tau|`` moves within   round 1  later
===========  ==============  =======================  =======  =======
none         add_remove      [-3/2, 1] when added     5/2      5
none         replace         [-2, 2]                  4        8
some         add_remove      [-3/2, 3/2]              3        6
some         replace         [-3, 3]                  6        12
===========  ==============  =======================  =======  =======

Adding a row to n >= 1 others turns S into ``S + s`` with ``|s| <= n``, and ``|S| <= n (n - 1) / 2``. So
``|S + s| / n - |S| / (n - 1)`` is at most ``|s| / n <= 1``, and at least
``-|s| / n - |S| / (n (n - 1)) >= -1 - 1/2``. By the same argument the signed tau moves by at most 3/2.
Replacing a row keeps n and moves S by at most ``2 (n - 1)``, because each of the n - 1 pairs of that row moves
by at most 2.

A later round subtracts a mean of such values, which moves within the same limits. So the change of the utility
lies in an interval of twice the length, ``[-5/2, 5/2]`` for an added row.

With blocks, adding a row changes one block's signed term by at most 3/2, and the absolute value of the sum by
no more. The sum may have another sign than the block, so the asymmetric bound does not apply. The block of a
row is part of the row: a replacement may remove a row from one block and add one to another, which moves two
terms by 3/2 each.

A unit of ``max_rows_per_unit`` rows takes that many steps. Replacing a unit of a rows by one of b rows takes
``min(a, b)`` replacements and ``|a - b|`` additions or removals, none of which moves more than a replacement.

The usual coefficient tau-b, which divides by the number of untied pairs, has no such bound: for binary
columns one row moves ``n/2 * tau_b`` by the order of n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.relation import relation_of

# Largest spread of the changes of two |tau| by an added row, in one table and in blocks.
_SPREAD = Fraction(5, 2)
_BLOCKED_SPREAD = Fraction(3)
# The same for a replaced row in one table: n does not change, so it is less than for a removal and an addition.
_REPLACED_SPREAD = Fraction(4)


def utility_range(neighbours: str, *, first: bool, blocked: bool, max_rows_per_unit: int = 1) -> Fraction:
    """Return the largest spread of the changes of all utilities between neighbouring tables.

    Parameters
    ----------
    neighbours : {'add_remove', 'replace'}
    first : bool
        Whether this is round 1, in which nothing is subtracted.
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
    # Pairwise, so that most additions have short operands.
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
        ``S`` of the target with each feature, per block; one block where there are none.
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
