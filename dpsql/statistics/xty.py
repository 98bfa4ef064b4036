"""The cross product ``s_j = sum_i q_ij t_i`` of quantised features and target: the statistic of dp_sis.

Units: feature and target are integers in ``[-S, S]`` (`fixed_point`), so ``s_j`` is in units of
``S**2``; ``S = 2**20``.

Sensitivity of one component, in those units, per privacy unit of at most ``m`` rows:

==============  ==============  =====================================================
relation        |s_j| moves by  why
==============  ==============  =====================================================
add_remove      m S²            one row adds one product in [-S², S²], and
                                ``||a + b| - |a|| <= |b|``; a unit of m rows is m steps
replace         2 m S²          one removal and one addition
==============  ==============  =====================================================

``|s_j|`` is not monotone (a product of either sign may raise or lower it), so the range over
features is twice the sensitivity.

Centring the target by a released mean ``mu`` keeps these constants because ``t`` is clipped again:
``t' = clip(t - mu, -S, S)``, row by row, and ``mu`` is a public number by then.

The mean is ``(P - Q) / (P + Q)`` of two non-negative sums, ``P = sum (S + t)`` and
``Q = sum (S - t)``: one row adds ``(S + t) + (S - t) = 2 S`` to their L1 norm whatever its target,
so the pair has L1 sensitivity ``2 S m`` under add_remove. Under replace the row count cancels
(``P`` moves by ``t' - t`` and ``Q`` by its negative): ``4 S m`` bounds it.
"""

from __future__ import annotations

from dpsql.contract.relation import relation_of
from dpsql.statistics.fixed_point import FIXED_POINT_ONE


def component_sensitivity(neighbours: str, max_rows_per_unit: int = 1) -> int:
    """Return how far one ``|s_j|`` can move between neighbouring tables, in units of ``1 / S**2``."""
    return relation_of(neighbours, max_rows_per_unit).norm(FIXED_POINT_ONE**2)


def utility_range(neighbours: str, max_rows_per_unit: int = 1) -> int:
    """Return the largest spread of the changes of all ``|s_j|`` between neighbouring tables."""
    return relation_of(neighbours, max_rows_per_unit).spread(2 * FIXED_POINT_ONE**2)


def target_sums_sensitivity(neighbours: str, max_rows_per_unit: int = 1) -> int:
    """Return the L1 sensitivity of ``(P, Q)``, in units of ``1 / S``."""
    return relation_of(neighbours, max_rows_per_unit).norm(2 * FIXED_POINT_ONE)


def mean_from_sums(high: int, low: int) -> int:
    """Return the mean ``mu`` in ``[-S, S]`` from (noisy) ``P`` and ``Q``; post-processing.

    Sums that noise has made unusable (their total is not positive) give 0, the public midpoint.
    """
    total = high + low
    if total <= 0:
        return 0
    mean = ((high - low) * FIXED_POINT_ONE + total // 2) // total
    return max(-FIXED_POINT_ONE, min(FIXED_POINT_ONE, mean))
