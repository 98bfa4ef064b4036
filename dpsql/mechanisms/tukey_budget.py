"""Models of disjoint blocks: the statistic of the Tukey mechanism.

The rows are assigned to m blocks by a keyed hash of the row's id or, where a privacy unit may have several rows, of
the unit; m is public or was released before. Every block has one model, least squares of the target on the features,
that depends on the rows of that block alone (`dpsql.kernels.block_gram`).

Sensitivity, in models that are replaced by others:

==============  =============================  ===================================================================
relation        models that change             why
==============  =============================  ===================================================================
add_remove      1                              all rows of a row id, or of a privacy unit, are in one block, however
                                               many they are
replace         2                              the id is part of the row: one block loses rows, another gains some
==============  =============================  ===================================================================

`dpsql.mechanisms.tukey` is ``(epsilon, delta)``-DP for one model. For two, go through the table in which only the
removal was made: ``P(E) <= e**a P'(E) + d <= e**(2 a) P''(E) + (1 + e**a) d``. With ``a = epsilon / 2`` and
``d = delta / (1 + e**(epsilon / 2))`` this is ``(epsilon, delta)``: `row_budget`.

None of this holds for blocks of consecutive rows, ``m`` blocks of ``floor(n / m)``: one row more moves rows between
all blocks (`tests/support/broken/tukey.py`).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from dpsql.contract.relation import relation_of
from dpsql.errors import ParameterError
from dpsql.mechanisms.tukey import LARGEST_MODELS, growth_per_level, longest_reach, passing_score
from dpsql.noise.exact import exp_bounds

# Chance that noise fails the test of well-behaved models, and what K may fall short of its typical value.
_FAILURE = 0.01
_SPREAD = 2


def row_budget(neighbours: str, epsilon: Fraction, delta: Fraction) -> tuple[Fraction, Fraction]:
    """Return the budget (epsilon, delta) per replaced model that makes neighbouring tables (epsilon, delta)-DP.

    Parameters
    ----------
    neighbours : {'add_remove', 'replace'}
        The neighbouring relation, of rows or of privacy units.
    epsilon, delta : Fraction
        What the release may cost, each > 0.

    Returns
    -------
    epsilon, delta : Fraction
        For `dpsql.mechanisms.tukey`: epsilon to be divided between test and draw; delta rounded down.
    """
    if relation_of(neighbours).norm(1) == 1:  # one model changes
        return epsilon, delta
    half = epsilon / 2
    bits = 64 + 3 * math.ceil(half) // 2
    unit = 10 ** (bits // 3 + 20)
    share = exp_bounds(-half, bits // 3 + 20)[0]
    # 1 / (1 + e**a) = e**-a / (1 + e**-a) grows with e**-a, which is rounded down.
    return half, delta * Fraction((share << bits) // (unit + share), 1 << bits)


@lru_cache(maxsize=256)
def models_needed(p: int, epsilon: Fraction, delta: Fraction) -> int:
    """Return how many models make the test pass nearly always, when they scatter like a Gaussian; free of data.

    Parameters
    ----------
    p : int
        Coefficients of a model, the intercept included; >= 1.
    epsilon, delta : Fraction
        Budget of the mechanism per replaced model (see `row_budget`), half of epsilon for test and for draw.

    Returns
    -------
    models : int
        With this many the test fails in about one of a hundred calls. No guarantee depends on it.

    Raises
    ------
    ParameterError
        P039, when more models would be needed than the mechanism takes.

    Notes
    -----
    K is computed for models whose order statistics are Gaussian quantiles, which simulated models meet within 2; it
    does not depend on the scale of a coordinate, nor on correlations of the coefficients. Least-squares models of
    blocks with as few as p rows each have heavier tails, which lowered K by 5 at most (p from 3 to 31).
    """
    test = epsilon / 2
    target = passing_score(test, delta) + math.ceil(-math.log(2 * _FAILURE) / float(test)) + _SPREAD
    if typical_reach(LARGEST_MODELS, p, epsilon / 2, delta) < target:
        raise ParameterError(
            "P039",
            f"with epsilon {float(epsilon):.3g} the Tukey mechanism would need more than {LARGEST_MODELS} blocks. "
            "Raise epsilon, or use another method.",
        )
    low, high = 8, LARGEST_MODELS
    while low < high:
        middle = (low + high) // 2
        if typical_reach(middle, p, test, delta) >= target:
            high = middle
        else:
            low = middle + 1
    return low


def typical_reach(models: int, p: int, epsilon_draw: Fraction, delta: Fraction) -> int:
    """Return the K of Gaussian quantiles, in floating point; the arguments are those of `models_needed`."""
    start, deepest = models // 4, models // 2
    factor, shift = growth_per_level(epsilon_draw)
    rate = math.log(factor) - shift * math.log(2.0)
    normal = NormalDist()
    levels = np.arange(1, deepest + 1)
    widths = np.array([-normal.inv_cdf((level - 0.375) / (models + 0.25)) for level in levels.tolist()])
    volumes = p * np.log(widths)
    layers = np.log(-np.expm1(np.append(np.diff(volumes), -np.inf)))
    tails = np.logaddexp.accumulate((volumes + layers + rate * levels)[::-1])[::-1]
    k = np.arange(max(0, longest_reach(models) + 1))
    # Entry i - 1 belongs to depth i.
    kappa = volumes[start - k - 2] + rate * (start + k + 1) - tails[start + k]
    least = math.log(delta.numerator) - math.log(delta.denominator) - np.logaddexp(0.0, math.log(2.0) + 2.0 * rate)
    return int(np.count_nonzero(kappa <= least)) - 1
