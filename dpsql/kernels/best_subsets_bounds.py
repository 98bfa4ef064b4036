"""The relaxed problem that `best_subsets` searches: a quadratic without a ball, and bounds on what columns can gain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.kernels.ball_least_squares import BallLeastSquares

Doubles = NDArray[np.float64]

# Relative size of every error that rounding makes; see `best_subsets`.
ROUNDING = 2.0**-44
# The least multiplier, as a part of the largest diagonal entry: keeps factors of singular matrices real in doubles.
_SHIFT = 2.0**-33
_TINY = 2.0**-90
_SHRINKAGE = (0.0, 0.05)
_HALVINGS = 6


def margin(problem: BallLeastSquares, size: int) -> float:
    """Return how far rounding may move a relaxed score, at any multiplier up to ``||h_A|| / r``; see `best_subsets`."""
    columns, radius = size + problem.forced, float(problem.radius)
    largest = float(problem.matrix.diagonal().max()) * (1 + _SHIFT) + _TINY
    products = math.sqrt(columns * largest * problem.constant)
    return ROUNDING * (math.sqrt(problem.constant) + math.sqrt(columns * radius * (radius * largest + products))) ** 2


class Relaxation:
    """The problem with the ball paid for by a multiplier, the forced columns eliminated, scaled to a unit diagonal.

    Attributes
    ----------
    gram : ndarray of float64, shape (p, p)
    cross : ndarray of float64, shape (p,)
    constant : float
        Relaxed score of the forced columns alone.
    """

    def __init__(self, problem: BallLeastSquares, multiplier: float) -> None:
        matrix, cross, forced = problem.matrix.copy(), problem.vector.copy(), problem.forced
        diagonal = np.diag_indices(len(matrix))
        largest = float(matrix[diagonal].max())
        multiplier = max(multiplier, largest * _SHIFT + _TINY)
        matrix[diagonal] += multiplier
        constant = problem.constant - multiplier * float(problem.radius) ** 2
        for k in range(forced):
            row = matrix[k] / math.sqrt(matrix[k, k])
            image = cross[k] / math.sqrt(matrix[k, k])
            matrix -= row[:, None] * row
            cross -= row * image
            constant -= float(image) ** 2
        matrix, cross = matrix[forced:, forced:], cross[forced:]
        scale = 1.0 / np.sqrt(matrix.diagonal())
        self.gram: Doubles = matrix * scale * scale[:, None]
        np.fill_diagonal(self.gram, 1.0)
        self.cross: Doubles = cross * scale
        self.constant = constant
        # Every eigenvalue of M is at least ridge + multiplier, and scaling divides by a diagonal entry.
        self._least = (float(problem.ridge) + multiplier) / (largest + multiplier) / 2
        self.kappas: Doubles = np.empty(0)

    def prepare(self, size: int) -> None:
        """Find lower bounds on the least eigenvalue of every block of 1, ..., `size` columns."""
        self.kappas = np.maximum(sparse_eigenvalues(self.gram, size) - size * ROUNDING, self._least)

    def kappa(self, left: int, diagonal: Doubles) -> float:
        """Return a lower bound on the least eigenvalue of blocks of `left` columns of a Schur complement."""
        lost = 1.0 - np.partition(diagonal, left - 1)[:left]
        return float(max(self.kappas[-1], self.kappas[left - 1] - lost.sum()))

    def eliminate(self, chosen: Sequence[int]) -> tuple[float, Doubles, Doubles, Doubles]:
        """Return (relaxed score, residual products, diagonal, Cholesky rows) of all columns, given the chosen ones."""
        value, products, diagonal = self.constant, self.cross.copy(), np.ones(len(self.cross))
        rows = np.empty((len(chosen), len(self.cross)))
        for k, column in enumerate(chosen):
            root = math.sqrt(diagonal[column])
            rows[k] = (self.gram[column] - rows[:k, column] @ rows[:k]) / root
            image = float(products[column]) / root
            value -= image * image
            products = products - rows[k] * image
            diagonal = diagonal - rows[k] * rows[k]
        return value, products, diagonal, rows


def pair_gains(schur: Doubles, products: Doubles, diagonal: Doubles) -> Doubles:
    """Return what every pair of columns gains, from their Schur complement; shape (m, m), 0 on the diagonal and below."""
    scaled = np.triu(schur / diagonal[:, None], 1)
    rest = products - scaled * products[:, None]
    gains: Doubles = rest * rest / (diagonal - scaled * schur)
    gains += (products * products / diagonal)[:, None]
    return np.triu(gains, 1)


def sparse_eigenvalues(gram: Doubles, size: int) -> Doubles:
    """Return certified lower bounds on the least eigenvalues of blocks of 1, ..., size columns of a unit-diagonal matrix.

    For blocks of t columns: 1 minus the largest sum of t - 1 entries in a row beside the diagonal (Gershgorin); or
    the least eigenvalue of the whole matrix; or that of the matrix with its other entries shrunk towards 0 by nu,
    minus ``nu (t - 1)`` for what was shrunk away.
    """
    beside = np.abs(gram)
    np.fill_diagonal(beside, 0.0)
    most = min(size, len(gram)) - 1
    largest = -np.sort(-np.partition(beside, len(gram) - 1 - most, axis=1)[:, len(gram) - 1 - most :], axis=1)
    bounds = np.ones(size)
    bounds[1 : most + 1] -= np.cumsum(largest[:, :most], axis=1).max(axis=0)
    for nu in _SHRINKAGE:
        shrunk = np.sign(gram) * np.maximum(beside - nu, 0.0)
        np.fill_diagonal(shrunk, 1.0)
        np.maximum(bounds, least_eigenvalue(shrunk) - nu * np.arange(size), out=bounds)
    return bounds


def least_eigenvalue(matrix: Doubles) -> float:
    """Return a number below the least eigenvalue of a unit-diagonal matrix; -inf when that is near 0 or below.

    A Cholesky factorisation in doubles that succeeds on ``A - x I`` proves that ``x - p^2 2^-48`` is such a number
    (S. Rump, Verification of positive definiteness, BIT 46, 2006). Some halvings find x.
    """
    low, high = -math.inf, 1.0
    for step in range(_HALVINGS):
        middle = (low + high) / 2 if step else 2.0**-10
        try:
            np.linalg.cholesky(matrix - middle * np.eye(len(matrix)))
            low = middle
        except np.linalg.LinAlgError:
            high = middle
            if step == 0:
                return low
    return low - len(matrix) ** 2 * 2.0**-48
