"""Exact laws by quadrature: who wins a race of exponential noises.

Written from the definition and used as a second opinion on the laws that the product is tested
against, and for the broken mechanisms, which have no other.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def race_law(values: ArrayLike, sizes: Sequence[int]) -> NDArray[np.float64]:
    """Return the probability that each group holds the winner of a race.

    Group i has ``sizes[i]`` members, each scoring ``values[i] + E`` with independent E ~ Exp(1).

    Parameters
    ----------
    values : array_like, shape (groups,)
        Head start of each group.
    sizes : sequence of int
        Members, >= 1; their sum sets the number of nodes.

    Returns
    -------
    law : ndarray of float64, shape (groups,)
        Probabilities, exact up to rounding: with ``w = exp(max(values) - x)`` the winning score x is
        the integral of a polynomial over [0, 1], which Gauss-Legendre gets right.
    """
    lead = np.asarray(values, dtype=np.float64)
    ratio = np.exp(lead - lead.max())
    count = np.asarray(sizes, dtype=np.float64)
    nodes, weights = np.polynomial.legendre.leggauss(int(sum(sizes)) // 2 + 1)
    points = (nodes + 1.0) / 2.0
    below = 1.0 - points[:, None] * ratio[None, :]
    everyone = np.prod(below**count, axis=1)
    density = count * ratio * everyone[:, None] / below
    law: NDArray[np.float64] = (weights / 2.0) @ density
    return law


def subset_race_law(
    utility: Sequence[int], *, utility_range: int, epsilon: Fraction, k: int, gamma: Fraction
) -> Mapping[tuple[int, ...], float]:
    """Return the canonical Lipschitz law from its definition: every k-subset races on its own.

    Parameters
    ----------
    utility : sequence of int
        Scores, in the unit of `utility_range`.
    utility_range : int
        Twice the sensitivity of a score, for scores that may move both ways.
    epsilon : Fraction
        Privacy loss, > 0.
    k : int
        Size of the subsets.
    gamma : Fraction
        Weight in (0, 1).

    Returns
    -------
    law : dict
        Ascending tuple of k positions -> probability. The loss of a subset is
        ``(1 - gamma) max(M, m) - gamma m``, M the best score outside, m the worst inside.
    """
    subsets = list(itertools.combinations(range(len(utility)), k))
    lead = []
    for subset in subsets:
        worst = min(utility[j] for j in subset)
        best = max((utility[j] for j in range(len(utility)) if j not in subset), default=worst)
        loss = (1 - gamma) * max(best, worst) - gamma * worst
        lead.append(float(-loss * epsilon / utility_range))
    law = race_law(lead, [1] * len(subsets))
    return dict(zip(subsets, law.tolist(), strict=True))


def ordered_race_law(
    utility: Sequence[int], *, utility_range: int, epsilon: Fraction, k: int
) -> Mapping[tuple[int, ...], float]:
    """Return the law of the k largest of ``c u_j + Exp(1)``, best first, with ``c = epsilon / (k utility_range)``.

    The same parameters as `subset_race_law`. The k-th largest score is integrated out piece by
    piece between the head starts; meant for a handful of candidates.
    """
    lead = [float(value * epsilon / (k * utility_range)) for value in utility]
    law = {}
    for order in itertools.permutations(range(len(lead)), k):
        rest = [lead[j] for j in range(len(lead)) if j not in order]
        law[order] = _ordered_probability([lead[j] for j in order], rest)
    return law


def _ordered_probability(chosen: Sequence[float], rest: Sequence[float]) -> float:
    """P(X_1 > ... > X_k > everyone in `rest`) for shifted exponentials, by composite quadrature."""
    breaks = sorted({*chosen, *rest})
    nodes, weights = np.polynomial.legendre.leggauss(40)
    points_list: list[Any] = []
    measure_list: list[Any] = []
    for low, high in itertools.pairwise(breaks):
        points_list.append((high - low) / 2 * nodes + (high + low) / 2)
        measure_list.append((high - low) / 2 * weights)
    tail = (nodes + 1.0) / 2.0  # x = breaks[-1] - log w beyond the last head start
    points_list.append(breaks[-1] - np.log(tail))
    measure_list.append(weights / 2.0 / tail)
    points, measure = np.concatenate(points_list), np.concatenate(measure_list)

    # P(X_1 > ... > X_(k-1) > x) as a function of x = X_k, then the k-th density and everyone below it.
    above = _chain_above(chosen[:-1], points)
    density = np.where(points >= chosen[-1], np.exp(np.minimum(chosen[-1] - points, 0.0)), 0.0)
    below = np.ones_like(points)
    for lead in rest:
        below *= np.where(points > lead, -np.expm1(np.minimum(lead - points, 0.0)), 0.0)
    return float(np.sum(measure * above * density * below))


def _chain_above(leads: Sequence[float], floor: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(X_1 > ... > X_m > x) for every x in `floor`, as sums of exponentials on pieces."""
    if not leads:
        return np.ones_like(floor)
    # On [a, b) between head starts the chance is sum_i coefficient_i exp(-i x): integrate exactly.
    breaks = sorted(set(leads))
    edges = [-np.inf, *breaks, np.inf]
    table = [np.array([1.0]) for _ in range(len(edges) - 1)]
    for lead in leads:
        fresh = [np.zeros(len(table[0]) + 1) for _ in table]
        carry = 0.0
        for piece in range(len(table) - 1, -1, -1):
            low, high = edges[piece], edges[piece + 1]
            if high <= lead:
                fresh[piece][0] = carry
                continue
            # integral over (x, high) of exp(lead - y) * sum_i c_i exp(-i y) dy
            for power, coefficient in enumerate(table[piece]):
                fresh[piece][power + 1] += np.exp(lead) * coefficient / (power + 1)
                if np.isfinite(high):
                    fresh[piece][0] -= np.exp(lead - (power + 1) * high) * coefficient / (power + 1)
            fresh[piece][0] += carry
            carry = float(sum(c * np.exp(-p * low) for p, c in enumerate(fresh[piece]))) if np.isfinite(low) else carry
        table = fresh
    place = np.searchsorted(breaks, floor, side="right")
    result = np.zeros_like(floor)
    for piece, coefficients in enumerate(table):
        inside = place == piece
        for power, coefficient in enumerate(coefficients):
            result[inside] += coefficient * np.exp(-power * floor[inside])
    return result
