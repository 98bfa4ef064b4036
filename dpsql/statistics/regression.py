"""The statistics of linear regression, and how far one privacy unit moves them.

Units: a row is ``q = (S, q_1, …, q_d)``, integers in units where ``S = 2**20`` (`fixed_point`) is 1, with an intercept
of exactly S and features whose norm was clipped (`dpsql.kernels.clipped_rows`). ``sum q_j**2 <= R**2`` holds exactly
for the public integer R. The target t, and a clipped residual, is an integer in [-S, S]. So ``G = sum q q'`` and
``h = sum q t`` are exact integers in units of ``S**2``.

Sensitivities, with a unit of at most m rows:

==================  =============  =================  ==========================================================
statistic           add_remove     replace            why
==================  =============  =================  ==========================================================
G, Frobenius norm   m R^2          sqrt(2) m R^2      below
least eigenvalue    m R^2          m R^2              below
h, L2 norm          m R S          2 m R S            each row adds a vector of norm ``||q|| |t| <= R S``
==================  =============  =================  ==========================================================

Replacing takes away the sum A of at most m matrices ``q q'``, and brings the sum B of at most m. Each ``q q'`` has
Frobenius norm ``||q||**2 <= R**2``, and A and B are positive semidefinite, so that ``trace(A B) >= 0`` and
``||A - B||**2 = ||A||**2 + ||B||**2 - 2 trace(A B) <= 2 (m R**2)**2``. Add_remove is the case B = 0. Both A and B have
eigenvalues in [0, m R^2], hence the least eigenvalues of G' + A and of G' + B are both between that of G' and m R^2
more (Weyl): they differ by at most m R^2.

For two rows the identity is ``||q||**4 + ||z||**4 - 2 (q'z)**2``: orthogonal rows attain sqrt(2) R^2.

G is symmetric: its upper triangle is released, and what is off the diagonal counts twice in the norm.
"""

from __future__ import annotations

import math

from dpsql.contract.relation import relation_of
from dpsql.statistics.fixed_point import FIXED_POINT_ONE


def row_radius(feature_radius: int) -> int:
    """Return the least integer R with ``R**2 >= S**2 + feature_radius**2``: the bound of a row with its intercept.

    Parameters
    ----------
    feature_radius : int
        Bound on the norm of a row's features, >= 0, in units where S is 1.
    """
    return 1 + math.isqrt(FIXED_POINT_ONE**2 + feature_radius**2 - 1)


def gram_sensitivity(neighbours: str, radius: int, max_rows_per_unit: int = 1) -> int:
    """Return the bound on the Frobenius norm of a change of G, in units of ``S**2``, rounded up.

    Parameters
    ----------
    neighbours : {'add_remove', 'replace'}
    radius : int
        R, >= 1: bound on the norm of a row, in units where S is 1.
    max_rows_per_unit : int
        Rows that one privacy unit may have, >= 1.
    """
    squared = relation_of(neighbours, max_rows_per_unit).squared_norm(radius**4, opposing=False)
    return 1 + math.isqrt(squared - 1)


def least_eigenvalue_sensitivity(neighbours: str, radius: int, max_rows_per_unit: int = 1) -> int:
    """Return the bound on a change of the least eigenvalue of G, in units of ``S**2``.

    Parameters
    ----------
    neighbours, radius, max_rows_per_unit
        As for `gram_sensitivity`.
    """
    return relation_of(neighbours, max_rows_per_unit).rise(radius**2)


def cross_sensitivity(neighbours: str, radius: int, max_rows_per_unit: int = 1) -> int:
    """Return the bound on the norm of a change of ``sum q t``, in units of ``S**2``.

    Parameters
    ----------
    neighbours, radius, max_rows_per_unit
        As for `gram_sensitivity`.
    """
    return relation_of(neighbours, max_rows_per_unit).norm(radius * FIXED_POINT_ONE)
