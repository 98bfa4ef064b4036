"""Exact laws of the selection mechanisms, from their definitions.

Independent of the samplers: nothing here knows about classes, blocks, clocks or prefixes. With
``S = exp(-score)`` a candidate with head start v and exponential noise has S uniform on
``(0, exp(-v)]``, the winner has the smallest S, and every probability is an integral of piecewise
polynomials, which Gauss-Legendre quadrature of sufficient order computes without error but rounding.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def select_law(
    utility: Sequence[int],
    *,
    utility_range: int,
    epsilon: Fraction,
    k: int,
    noise: Literal["exponential", "gumbel"] = "exponential",
) -> dict[tuple[int, ...], float]:
    """Return the law of `dpsql.mechanisms.one_shot.select`.

    Parameters
    ----------
    utility : sequence of int, length d
        Scores; d up to about 7.
    utility_range, epsilon, k, noise
        As for `select`.

    Returns
    -------
    law : dict
        Ordered tuple of k positions, best first -> probability, within 1e-12 (and relatively, as long as
        scores that follow each other are within ``60 k utility_range / epsilon``).

    Examples
    --------
    >>> law = select_law([1, 0], utility_range=1, epsilon=Fraction(1), k=1, noise="gumbel")
    >>> round(law[(0,)], 6)
    0.731059
    """
    lead = _leads([Fraction(epsilon) / (k * utility_range) * value for value in utility])
    outputs = np.array(list(itertools.permutations(range(len(utility)), k)), dtype=np.intp)
    probabilities = _exponential_order(lead, outputs) if noise == "exponential" else _gumbel_order(lead, outputs)
    return dict(zip(map(tuple, outputs.tolist()), probabilities.tolist(), strict=True))


def one_shot_law(
    utility: Sequence[int], *, mechanism: str, gamma: Fraction, utility_range: int, epsilon: Fraction, k: int
) -> dict[tuple[int, ...], float]:
    """Return the law of `dpsql.mechanisms.one_shot.OneShotSelection`; arguments as there."""
    if mechanism == "canonical_lipschitz":
        return canonical_lipschitz_law(utility, utility_range=utility_range, epsilon=epsilon, k=k, gamma=gamma)
    noise: Literal["exponential", "gumbel"] = "exponential" if mechanism == "one_shot" else "gumbel"
    return select_law(utility, utility_range=utility_range, epsilon=epsilon, k=k, noise=noise)


def canonical_lipschitz_law(
    utility: Sequence[int], *, utility_range: int, epsilon: Fraction, k: int, gamma: Fraction
) -> dict[tuple[int, ...], float]:
    """Return the law of `dpsql.mechanisms.one_shot.canonical_lipschitz`.

    Parameters
    ----------
    utility : sequence of int, length d
        Scores; up to some thousands of subsets.
    utility_range, epsilon, k, gamma
        As for `canonical_lipschitz`.

    Returns
    -------
    law : dict
        Ascending tuple of k positions -> probability, within 1e-12. Every subset races on its own.
    """
    subsets = list(itertools.combinations(range(len(utility)), k))
    coefficient = Fraction(epsilon) / utility_range
    # Loss differences are exact before they become doubles.
    lead = _leads([-coefficient * subset_loss(utility, subset, gamma) for subset in subsets])
    nodes, weights = _gauss_legendre(len(subsets) // 2 + 1)
    # The best has S uniform on (0, 1], so the winning S is in (0, 1] too.
    shortfall = 1.0 - nodes[:, None] * np.exp(lead)
    others = _products_without_one(shortfall)
    law = np.exp(lead) * (weights @ others)
    return dict(zip(subsets, law.tolist(), strict=True))


def subset_loss(utility: Sequence[int], subset: Sequence[int], gamma: Fraction) -> Fraction:
    """Return the loss of a subset as the paper defines it, in units of the scores.

    With ``j_1, j_2, ...`` in descending order of the scores: h is the largest integer < k with
    ``j_1..j_h`` in the subset, t the smallest integer >= k with ``j_(t+1)..j_d`` outside of it; the loss is
    ``(1 - gamma) x_(h+1) - gamma x_t``.
    """
    order = sorted(range(len(utility)), key=lambda j: -utility[j])
    k, inside = len(subset), set(subset)
    h = next((place for place in range(k) if order[place] not in inside), k - 1)
    t = max(place + 1 for place in range(len(order)) if order[place] in inside)
    return (1 - gamma) * utility[order[h]] - gamma * utility[order[max(t, k) - 1]]


def _leads(exact: Sequence[Fraction]) -> Array:
    """Head starts relative to the best, as doubles.

    Gaps between neighbours in the order are cut off so that ``exp`` of the sum fits a double: beyond
    ``600 / d`` the order is all but certain, and by how much does not show.
    """
    order = sorted(range(len(exact)), key=lambda number: -exact[number])
    limit = Fraction(max(60, 600 // len(exact)))
    leads = np.zeros(len(exact))
    lead = 0.0
    for better, number in itertools.pairwise(order):
        lead -= float(min(exact[better] - exact[number], limit))
        leads[number] = lead
    return leads


def _gumbel_order(lead: Array, outputs: NDArray[np.intp]) -> Array:
    """Peeling: every round is an exponential mechanism on those that remain."""
    weight = np.exp(lead)
    probability = np.ones(len(outputs))
    remaining = np.broadcast_to(weight, (len(outputs), len(weight))).copy()
    rows = np.arange(len(outputs))
    for place in range(outputs.shape[1]):
        probability *= remaining[rows, outputs[:, place]] / remaining.sum(axis=1)
        remaining[rows, outputs[:, place]] = 0.0
    return probability


def _exponential_order(lead: Array, outputs: NDArray[np.intp]) -> Array:
    """``P(S_1 < ... < S_k < all others)`` with independent ``S_j`` uniform on ``(0, exp(-lead_j)]``."""
    ends = np.exp(-lead)
    breaks = np.concatenate([[0.0], np.unique(ends)])
    start, width = breaks[:-1], np.diff(breaks)
    degree = len(lead) + 1
    nodes, weights = _gauss_legendre(degree)
    points = start[:, None] + width[:, None] * nodes
    density = np.where(points < ends[:, None, None], 1.0 / ends[:, None, None], 0.0)
    survival = np.maximum(1.0 - points / ends[:, None, None], 0.0)
    chosen = np.zeros((len(outputs), len(lead)), dtype=np.bool_)
    np.put_along_axis(chosen, outputs, True, axis=1)
    # order[o, piece, node] = P(S_1 < ... < S_i < point), integrated piece by piece.
    order = np.ones((len(outputs), *points.shape))
    for place in range(outputs.shape[1]):
        integrand = density[outputs[:, place]] * order
        if place == outputs.shape[1] - 1:
            for j in range(len(lead)):
                integrand *= np.where(chosen[:, j][:, None, None], 1.0, survival[j])
            return np.asarray(((integrand @ weights) * width).sum(axis=1), dtype=np.float64)
        whole = (integrand @ weights) * width
        before = np.cumsum(whole, axis=1) - whole
        order = before[:, :, None] + (integrand @ _integration_matrix(degree).T) * width[:, None]
    raise AssertionError("k is at least 1")


def _products_without_one(factors: Array) -> Array:
    """Product over each row but for one factor; no division, since a factor may be 0."""
    ones = np.ones((len(factors), 1))
    left = np.concatenate([ones, np.cumprod(factors[:, :-1], axis=1)], axis=1)
    right = np.concatenate([np.cumprod(factors[:, :0:-1], axis=1)[:, ::-1], ones], axis=1)
    return np.asarray(left * right, dtype=np.float64)


@lru_cache(maxsize=64)
def _gauss_legendre(count: int) -> tuple[Array, Array]:
    """Nodes and weights on [0, 1], exact up to degree ``2 count - 1``."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1.0) / 2.0, weights / 2.0


@lru_cache(maxsize=16)
def _integration_matrix(count: int) -> Array:
    """Matrix that takes values at the nodes to integrals from 0 to the nodes, for polynomials below degree `count`."""
    nodes, weights = _gauss_legendre(count)
    legendre = np.polynomial.legendre.legvander(2.0 * nodes - 1.0, count)
    degrees = np.arange(count)
    # Coefficients by orthogonality; the integral of P_n is (P_(n+1) - P_(n-1)) / (2 n + 1).
    coefficients = (legendre[:, :count] * weights[:, None]).T * (2.0 * degrees + 1.0)[:, None]
    integrals = np.empty((count, count))
    integrals[:, 0] = nodes
    for degree in range(1, count):
        integrals[:, degree] = (legendre[:, degree + 1] - legendre[:, degree - 1]) / (2.0 * (2.0 * degree + 1.0))
    return np.asarray(integrals @ coefficients, dtype=np.float64)
