"""Broken regression: noise calibrated wrongly, norms that are not public or do not hold, a mu rounded up.

A noise multiplier is the standard deviation of a release over its sensitivity. Releases with multipliers m_1, m_2, … on
tables that move each by its sensitivity are mu-GDP with ``mu**2 = sum 1 / m_i**2``, and no better.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def repository_multipliers(mu: float, rounds: int) -> list[float]:
    """Return the noise multipliers of a public program for boosted AdaSSP: mu itself.

    Parameters
    ----------
    mu : float
        Allowed loss, > 0.
    rounds : int
        T.

    Returns
    -------
    multipliers : list of float, length T + 2

    Notes
    -----
    - **What is wrong**: ``sigma = mu`` where ``sqrt(T + 2) / mu`` belongs: it grows with the allowed loss.
    - **Caught by**: the mu that all releases spend together.
    - **Counter-example**: (1, 1e-6) and T = 100: mu is 42.7 instead of 0.237, epsilon at delta = 1e-6 is 1112.

    References
    ----------
    .. [1] github.com/shuaitang/BoostedAdaSSP, since commit 3a7198b.
    """
    return [mu] * (rounds + 2)


def one_release_multipliers(mu: float, rounds: int) -> list[float]:
    """Return multipliers as if there were one release.

    Parameters
    ----------
    mu, rounds
        As for `repository_multipliers`.

    Returns
    -------
    multipliers : list of float, length T + 2

    Notes
    -----
    - **What is wrong**: the square root of the number of releases is missing.
    - **Caught by**: the mu that all releases spend together.
    - **Counter-example**: (1, 1e-6) and T = 100: mu is 2.39 instead of 0.237.
    """
    return [1 / mu] * (rounds + 2)


def whole_budget_multipliers(mu: float) -> list[float]:
    """Return multipliers of AdaSSP's three releases that count one budget three times.

    Parameters
    ----------
    mu : float
        Allowed loss, > 0.

    Returns
    -------
    multipliers : list of float, length 3

    Notes
    -----
    - **What is wrong**: Gram matrix, least eigenvalue and X'y get the whole mu each, not a third of its square.
    - **Caught by**: the mu that all releases spend together; shares that add up to 3.
    - **Counter-example**: (1, 1e-6): mu is 0.410 instead of 0.237, delta at epsilon = 1 is 1.6e-3.
    """
    return [1 / mu] * 3


def add_remove_sensitivities(radius: int, target: int) -> tuple[int, int, int]:
    """Return the sensitivities of Gram matrix, least eigenvalue and X'y, whatever the relation.

    Parameters
    ----------
    radius, target : int
        Bounds on the norm of a row, and on a target.

    Returns
    -------
    sensitivities : tuple of int

    Notes
    -----
    - **What is wrong**: a replaced row takes one product away and brings another: the Gram matrix moves by up to
      ``sqrt(2) radius**2`` and X'y by up to ``2 radius target``.
    - **Caught by**: the change between neighbouring tables.
    - **Counter-example**: rows (1, 1) and (1, -1); a target that changes its sign.
    """
    return radius**2, radius**2, radius * target


def round_after_clip(matrix: NDArray[np.float64], radius: int) -> NDArray[np.float64]:
    """Clip the norms of quantised rows and round to the nearest integers.

    Parameters
    ----------
    matrix : ndarray of float64, shape (rows, d)
        Integers.
    radius : int
        Largest norm.

    Returns
    -------
    clipped : ndarray of float64, shape (rows, d)
        Integers whose norm may exceed the radius.

    Notes
    -----
    - **What is wrong**: every coordinate may grow by 1/2, the norm by ``sqrt(d) / 2``.
    - **Caught by**: the sum of squares, in integers.
    - **Counter-example**: 100 coordinates of 32768, clipped to a norm of 32765: 3276.5 becomes 3277, and the squared
      norm exceeds its bound by a share of 3e-4.
    """
    norms = np.sqrt((matrix**2).sum(axis=1, keepdims=True))
    rounded: NDArray[np.float64] = np.floor(matrix * np.minimum(1.0, radius / np.maximum(norms, 1.0)) + 0.5)
    return rounded


def radius_of_the_data(matrix: NDArray[np.float64]) -> float:
    """Return the largest norm of a row, for use as the bound that noise is scaled by.

    Parameters
    ----------
    matrix : ndarray of float64, shape (rows, d)

    Returns
    -------
    radius : float
        0 without rows.

    Notes
    -----
    - **What is wrong**: the noise's size depends on the table, and one row can change it by any factor.
    - **Caught by**: a sensitivity that differs between neighbours; the variance of released noise tells them apart.
    - **Counter-example**: a thousand rows of norm 1/100 and one of norm 1: the noise on the Gram matrix is 10,000 times
      as large with it as without it.

    References
    ----------
    .. [1] google-research/dp_regression, the AdaSSP baseline.
    """
    return math.sqrt(float((matrix**2).sum(axis=1).max(initial=0.0)))


def rounded_up_mu(epsilon: float, delta: float, step: float = 0.01) -> float:
    """Return the first multiple of `step` whose delta exceeds the target.

    Parameters
    ----------
    epsilon, delta : float
        Allowed loss.
    step : float
        > 0.

    Returns
    -------
    mu : float

    Notes
    -----
    - **What is wrong**: the search stops one step too late; printed constants that are rounded up are as bad.
    - **Caught by**: the exact profile.
    - **Counter-example**: (ln 3, 1e-5): 0.292000 has 1.000024 times the target delta, and (0.1, 1e-6): 0.027545 has
      1.0002 times.

    References
    ----------
    .. [1] google-research/private_kendall, ``dp_to_gdp``.
    """

    def tail(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    number = 1
    while True:
        mu = number * step
        if tail(mu / 2 - epsilon / mu) - math.exp(epsilon) * tail(-mu / 2 - epsilon / mu) > delta:
            return mu
        number += 1
