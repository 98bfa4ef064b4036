"""The relaxed problem that `best_subsets` searches: a quadratic without a ball, and bounds on the gains of columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.kernels.ball_least_squares import BallLeastSquares

# The least multiplier, as a share of the largest diagonal entry; keeps factors of singular matrices real in doubles.
_SHIFT = 2.0**-33
_TINY = 2.0**-90
_SHRINKAGE = (0.0, 0.05, 0.1)
_HALVINGS = 6
# Columns with a correlation above this are nearly equal.
_CLOSE = 0.9


def rounding_error(columns: int) -> float:
    """Return the relative rounding error in the statistics of this many columns; see `best_subsets`."""
    return (columns + 8) * 2.0**-50


def margin(problem: BallLeastSquares, size: int) -> float:
    """Return a bound on rounding in a relaxed score, at any multiplier up to ``||h_A|| / r``; see `best_subsets`."""
    columns, radius = size + problem.forced, float(problem.radius)
    largest = float(problem.matrix.diagonal().max()) * (1 + _SHIFT) + _TINY
    products = math.sqrt(columns * largest * problem.constant)
    reach = math.sqrt(problem.constant) + math.sqrt(columns * radius * (radius * largest + products))
    return rounding_error(columns) * reach**2


class Relaxation:
    """The problem with a multiplier instead of the ball, forced columns eliminated, scaled to a unit diagonal.

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
        self.least = (float(problem.ridge) + multiplier) / (largest + multiplier) / 2

    def eliminate(self, chosen: Sequence[int]) -> tuple[float, Doubles, Doubles, Doubles]:
        """Return (relaxed score, residual products, diagonal, Cholesky rows) of all columns, given chosen columns."""
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


class SearchSpace:
    """The columns that a search chooses from, and bounds on blocks of them.

    A pair of nearly equal columns, j < k, would make every bound useless, because its block has an eigenvalue near 0.
    So each such pair adds a column: the remainder of k after elimination of j. This column represents k next to j; the
    search never chooses k itself with j. Every subset has such a form, and blocks in the search contain no such pair.

    Attributes
    ----------
    gram : ndarray of float64, shape (w, w)
        Unit diagonal.
    cross : ndarray of float64, shape (w,)
    constant : float
    conflicts : ndarray of bool, shape (w, w) or (0, 0)
        Pairs of columns never chosen together; empty if there are none.
    kappas : ndarray of float64, shape (size,)
        Lower bounds on the least eigenvalue of every block of 1, ..., size columns without a conflict.
    """

    def __init__(self, relaxation: Relaxation, size: int) -> None:
        width = len(relaxation.cross)
        first, second = _close_pairs(relaxation.gram)
        self.gram, self.cross, self.constant = relaxation.gram, relaxation.cross, relaxation.constant
        self.conflicts: NDArray[np.bool_] = np.zeros((0, 0), dtype=np.bool_)
        # For each column: the column that it represents, and the column that it requires, if any.
        self.stands_for, self._beside = np.append(np.arange(width), second), np.append(np.full(width, -1), first)
        if len(first) and size > 1:
            near = relaxation.gram[first, second]
            scale = 1.0 / np.sqrt(1.0 - near * near)
            rows = (relaxation.gram[second] - near[:, None] * relaxation.gram[first]) * scale[:, None]
            rows[np.arange(len(first)), first] = 0.0
            block = (rows[:, second] - near * rows[:, first]) * scale
            np.fill_diagonal(block, 1.0)
            self.gram = np.block([[relaxation.gram, rows.T], [rows, (block + block.T) / 2]])
            cross = (relaxation.cross[second] - near * relaxation.cross[first]) * scale
            self.cross = np.append(relaxation.cross, cross)
            self.conflicts = self.stands_for[:, None] == self.stands_for
            self.conflicts[first, second] = self.conflicts[second, first] = True
            np.fill_diagonal(self.conflicts, False)
        blocks = np.where(self.conflicts, 0.0, self.gram) if len(self.conflicts) else self.gram
        # Pairs are a change of basis whose inverse has a squared norm of at most `size`.
        least = relaxation.least / size
        self.kappas: Doubles = sparse_eigenvalues(blocks, size) - size * rounding_error(size)
        np.maximum(self.kappas, least, out=self.kappas)

    def subsets(self, sets: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the subsets that sets of search columns represent; drop sets that represent none."""
        if not len(self.conflicts):
            return sets
        beside = self._beside[sets]
        valid = ((beside[:, :, None] == sets[:, None, :]).any(axis=2) | (beside < 0)).all(axis=1)
        subsets: NDArray[np.int32] = self.stands_for[sets[valid]].astype(np.int32)
        return subsets

    def kappa(self, size: int, diagonal: Doubles) -> Doubles:
        """Return lower bounds on the least eigenvalues of blocks of `size` columns of Schur complements.

        The diagonals have shape (..., m); m >= size.
        """
        if self.kappas[size - 1] <= self.kappas[-1]:
            return np.full(diagonal.shape[:-1], self.kappas[-1])
        lost = size - np.partition(diagonal, size - 1, axis=-1)[..., :size].sum(axis=-1)
        bounds: Doubles = np.maximum(self.kappas[-1], self.kappas[size - 1] - lost)
        return bounds


def _close_pairs(gram: Doubles) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the closest pairs (j < k) of nearly equal columns, at most as many as there are columns."""
    first, second = np.nonzero(np.triu(np.abs(gram) > _CLOSE, 1))
    closest = np.argsort(-np.abs(gram[first, second]), kind="stable")[: len(gram)]
    return first[closest], second[closest]


def pair_gains(schur: Doubles, products: Doubles, diagonal: Doubles) -> Doubles:
    """Return the gains of all pairs of columns, from their Schur complement; shape (m, m), 0 but above the diagonal."""
    scaled = np.triu(schur / diagonal[:, None], 1)
    rest = products - scaled * products[:, None]
    gains: Doubles = rest * rest / (diagonal - scaled * schur)
    gains += (products * products / diagonal)[:, None]
    return np.triu(gains, 1)


def sparse_eigenvalues(gram: Doubles, size: int) -> Doubles:
    """Return certified lower bounds on the least eigenvalues of blocks of 1, ..., size columns of a matrix.

    The matrix's diagonal is 1. For blocks of t columns: 1 minus the largest sum of t - 1 off-diagonal entries in a row
    (Gershgorin); or the least eigenvalue of the whole matrix; or the least eigenvalue after shrinking off-diagonal
    entries towards 0 by nu, minus ``nu (t - 1)`` for the shrinkage.
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
    """Return a number below the least eigenvalue of a unit-diagonal matrix; -inf when it is near 0 or below.

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
