"""Certified least squares in a ball: the routine that scores a subset.

The score of a subset A is ``R(A) = min over ||b|| <= r of f(b)`` with ``f(b) = c - 2 h'b + b'(G + ridge I) b`` on the
subset's exact integer Gram statistics (`dpsql.statistics.regression`). The release mechanism allows for a score error
inside an interval of public width `SCORE_WIDTH`, so that width must hold for every possible table: singular and nearly
singular Gram matrices, zero columns, any number of rows.

A certificate in exact integers ensures the width. Floating point proposes a point ``b`` of the ball, whose coordinates
are multiples of ``2**-B``. For any such point, convexity gives::

    f(b) - (g'b + r ||g||)  <=  R(A)  <=  f(b),        g = gradient of f at b

because ``f(b') >= f(b) + g'(b' - b)`` and ``g'b' >= -r ||g||`` in the ball. The code computes both sides without
rounding, except for square roots, which it rounds to the safe side. The score is ``f(b)`` rounded down to a multiple of
`SCORE_UNIT`. The code accepts a score when the gap ``g'b + r ||g||`` is at most ``SCORE_WIDTH - SCORE_UNIT``. So
``score * SCORE_UNIT - R(A)`` lies in ``[-SCORE_UNIT, SCORE_WIDTH - SCORE_UNIT]``.

Doubles give the proposals (a Cholesky factor, and Newton's method on the multiplier of the ball), and exact residuals
refine them. If a proposal does not close the gap, rational arithmetic solves the same problem and always closes it.
Only the running time shows which method gave the answer.

The code caps scores at `SCORE_CAP` units: ``min(R, cap)`` changes by no more than R does.

Every step is elementwise over the subsets (no BLAS, no sums by NumPy), with operations that IEEE arithmetic defines to
the last bit: a subset has one score, whatever its batch, order or thread.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.arrays import Doubles
from dpsql.kernels.fixed_point import FIXED_POINT_ONE

SCORE_UNIT = Fraction(1, 1 << 24)
SCORE_WIDTH = Fraction(1, 1 << 20)
SCORE_CAP = 1 << 62

_CHUNK = 4096
# This share of the largest diagonal entry keeps a Cholesky factor of a singular Gram matrix real in doubles.
_SHIFT = 2.0**-42
_TINY = 2.0**-90
_NEWTON_STEPS = 40
_isqrt = np.frompyfunc(math.isqrt, 1, 1)

Objects = NDArray[np.object_]


class BallLeastSquares:
    """Scores of subsets, from one table's exact Gram statistics.

    Parameters
    ----------
    gram : array_like of int, shape (q, q)
        ``X'X`` in units of ``S**2``: int64 or Python ints. The first `forced` columns are in every subset.
    cross : array_like of int, shape (q,)
        ``X'y``, same units.
    total : int
        ``y'y``, same units.
    radius : Fraction
        Public radius of the ball, > 0.
    ridge : Fraction
        Public ridge penalty, >= 0.
    forced : int
        Number of columns in every subset; the ball includes them.

    Notes
    -----
    Subsets are rows of column numbers, counted without the forced columns, in any order.
    """

    def __init__(
        self, gram: ArrayLike, cross: ArrayLike, total: int, *, radius: Fraction, ridge: Fraction, forced: int = 0
    ) -> None:
        self.radius, self.ridge, self.forced = radius, ridge, forced
        self.gram, self.cross, self.total = np.asarray(gram), np.asarray(cross), int(total)
        # The same problem in doubles, in units of 1; each number is rounded once.
        self.matrix: Doubles = self.gram.astype(np.float64) / FIXED_POINT_ONE**2
        self.matrix[np.diag_indices(len(self.matrix))] += float(ridge)
        self.vector: Doubles = self.cross.astype(np.float64) / FIXED_POINT_ONE**2
        self.constant = self.total / FIXED_POINT_ONE**2

    def scores(self, subsets: ArrayLike) -> NDArray[np.int64]:
        """Return the certified scores of subsets of shape (m, size), in units of `SCORE_UNIT`; see the module."""
        columns = self._columns(subsets)
        return np.concatenate([np.empty(0, dtype=np.int64), *map(self._scores, _chunks(columns))])

    def dual(self, subsets: ArrayLike) -> Doubles:
        """Return ``c - h'(G + (ridge + mu) I)^-1 h - mu r**2`` for subsets of shape (m, size), in doubles.

        A lower bound on ``R(A)`` for every multiplier ``mu >= 0``, with equality at the multiplier that Newton's method
        seeks. Not certified: `dpsql.kernels.best_subsets` bounds the rounding error.
        """
        columns = self._columns(subsets)
        return np.concatenate([np.empty(0), *(_Proposal(self, part).dual() for part in _chunks(columns))])

    def multipliers(self, subsets: ArrayLike) -> Doubles:
        """Return the ball's multipliers for subsets of shape (m, size): 0 if the ball does not bind."""
        columns = self._columns(subsets)
        return np.concatenate([np.empty(0), *(_Proposal(self, part).multiplier for part in _chunks(columns))])

    def _columns(self, subsets: ArrayLike) -> NDArray[np.intp]:
        """Return the Gram columns of each subset, ascending, shape (forced + size, m)."""
        chosen = np.sort(np.asarray(subsets, dtype=np.intp), axis=1).T + self.forced
        forced = np.broadcast_to(np.arange(self.forced)[:, None], (self.forced, chosen.shape[1]))
        return np.concatenate((forced, chosen))

    def _scores(self, columns: NDArray[np.intp]) -> NDArray[np.int64]:
        scores = np.empty(columns.shape[1], dtype=np.int64)
        rest = np.arange(len(scores))
        proposal, exact = _Proposal(self, columns), _Exact(self, columns)
        for refinements in (1, 2, 0):
            exact_scores, good = exact.certify(proposal.point())
            scores[rest[good]] = exact_scores[good]
            rest = rest[~good]
            if not len(rest):
                return scores
            proposal, exact = proposal.part(~good), exact.part(~good)
            for _ in range(refinements):
                proposal.refine(exact)
        scores[rest] = [exact.part(slice(k, k + 1)).solve() for k in range(len(rest))]
        return scores


def _chunks(columns: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    return [columns[:, start : start + _CHUNK] for start in range(0, columns.shape[1], _CHUNK)]


def _fraction_bits(radius: Fraction) -> int:
    """Return B such that coordinates in the ball, in units of ``2**-B``, fit an int64."""
    return 60 - math.ceil(radius).bit_length()


class _Exact:
    """The problems of m subsets of k columns in integers, in units of ``1 / scale``; Q = G + ridge I."""

    def __init__(self, problem: BallLeastSquares, columns: NDArray[np.intp]) -> None:
        denominator = problem.ridge.denominator
        self.radius = problem.radius
        self.scale = FIXED_POINT_ONE**2 * denominator
        self.matrix: Objects = problem.gram[columns[:, None], columns].astype(object) * denominator
        for i in range(len(columns)):
            self.matrix[i, i] += problem.ridge.numerator * FIXED_POINT_ONE**2
        self.vector: Objects = problem.cross[columns].astype(object) * denominator
        self.total = problem.total * denominator

    def part(self, keep: slice | NDArray[np.bool_] | NDArray[np.intp]) -> _Exact:
        part = object.__new__(_Exact)
        part.radius, part.scale, part.total = self.radius, self.scale, self.total
        part.matrix, part.vector = self.matrix[:, :, keep], self.vector[:, keep]
        return part

    def half_gradient(self, point: Objects, bits: int) -> Objects:
        """Return ``Q b - h`` for ``b = point / 2**bits``, in units of ``2**-bits / scale``; shape (k, m)."""
        product = (self.matrix * point).sum(axis=1)
        return np.asarray(product - self.vector * (1 << bits), dtype=object)

    def certify(self, point: Objects, bits: int | None = None) -> tuple[Objects, NDArray[np.bool_]]:
        """Return (scores, mask of certified scores) at points of the ball, shape (k, m)."""
        bits = _fraction_bits(self.radius) if bits is None else bits
        half = self.half_gradient(point, bits)
        along = (half * point).sum(axis=0)
        radius = math.ceil(self.radius * (1 << bits))
        gap = 2 * (along + radius * (_isqrt((half * half).sum(axis=0)) + 1))
        unit = int(SCORE_UNIT * self.scale) << 2 * bits
        value = (self.total << 2 * bits) + along - (self.vector * point).sum(axis=0) * (1 << bits)
        good = np.asarray(gap <= int((SCORE_WIDTH - SCORE_UNIT) / SCORE_UNIT) * unit, dtype=np.bool_)
        return np.minimum(value // unit, SCORE_CAP), good

    def solve(self) -> int:
        """Return the certified score of a single subset; always succeeds.

        ``b(mu)``, the solution of ``(Q + mu I) b = h``, is rational for rational mu, and shrinks as mu grows. The
        search halves an interval of multipliers until it certifies the upper end. At the smallest multiplier, delta, a
        ``b`` inside the ball has a gap of at most ``delta r**2 / 2``. Otherwise the gap at the upper end is at most
        ``2 mu r (r - ||b(mu)||)``, which is below ``2 r**2`` times the interval's length.
        """
        matrix, vector = self.matrix[:, :, 0].tolist(), self.vector[:, 0].tolist()
        size = math.ceil(self.radius)
        shift = 2 * size.bit_length() + 8
        bits = 80 + 2 * size.bit_length() + max(row.bit_length() for row in (self.total, *map(max, matrix)))
        low = (self.scale << shift) // (size * size << 24)
        norm = math.isqrt(sum(value * value for value in vector)) + 1
        high = max(low, math.ceil((norm << shift) / self.radius))
        middle = low
        while True:
            raised = [
                [(value << shift) + (middle if i == j else 0) for j, value in enumerate(row)]
                for i, row in enumerate(matrix)
            ]
            numerators, denominator = _solve_exactly(raised, [value << shift for value in vector])
            squares = sum(value * value for value in numerators)
            if squares * self.radius.denominator**2 <= (denominator * self.radius.numerator) ** 2:
                point = [(abs(value) << bits) // denominator * (1 if value > 0 else -1) for value in numerators]
                score, good = self.certify(np.array(point, dtype=object)[:, None], bits)
                if good[0]:
                    return int(score[0])
                high = middle
            else:
                low = middle
            middle = (low + high) // 2


def _solve_exactly(matrix: list[list[int]], vector: list[int]) -> tuple[list[int], int]:
    """Return (numerators, denominator > 0) of the solution of a positive definite integer system, by Bareiss."""
    rows = [[*row, right] for row, right in zip(matrix, vector, strict=True)]
    size, last = len(rows), 1
    for k in range(size):
        pivot = rows[k][k]
        for i in range(size):
            if i != k:
                factor = rows[i][k]
                rows[i] = [(pivot * a - factor * b) // last for a, b in zip(rows[i], rows[k], strict=True)]
        last = pivot
    return [row[-1] for row in rows], last


class _Proposal:
    """Solutions of m subsets of k columns in doubles; arrays have the subsets last."""

    def __init__(self, problem: BallLeastSquares, columns: NDArray[np.intp]) -> None:
        self.radius, self.constant = problem.radius, problem.constant
        self.matrix: Doubles = problem.matrix[columns[:, None], columns]
        self.vector: Doubles = problem.vector[columns]
        self.shift: Doubles = self.matrix.max(axis=(0, 1)) * _SHIFT + _TINY
        self.multiplier: Doubles = np.zeros(columns.shape[1])
        factor = _cholesky(self.matrix, self.shift)
        self.image: Doubles = _forward(factor, self.vector)
        self.solution: Doubles = _backward(factor, self.image)
        self._approach()

    def part(self, keep: slice | NDArray[np.bool_] | NDArray[np.intp]) -> _Proposal:
        part = object.__new__(_Proposal)
        part.radius, part.constant = self.radius, self.constant
        for name in ("matrix", "vector", "shift", "multiplier", "image", "solution"):
            setattr(part, name, getattr(self, name)[..., keep])
        return part

    def _approach(self) -> None:
        """Raise the multipliers by Newton's method on ``1 / ||b||`` until the solutions are in the ball."""
        radius = float(self.radius)
        outside = np.flatnonzero(_norm(self.solution) > radius)
        for _ in range(_NEWTON_STEPS):
            if not len(outside):
                return
            part = self.part(outside)
            norm = _norm(part.solution)
            slope = _norm(_forward(_cholesky(part.matrix, part.shift + part.multiplier), part.solution))
            multiplier = part.multiplier + (norm / slope) ** 2 * ((norm - radius) / radius)
            factor = _cholesky(part.matrix, part.shift + multiplier)
            image = _forward(factor, part.vector)
            solution = _backward(factor, image)
            self.multiplier[outside], self.image[:, outside], self.solution[:, outside] = multiplier, image, solution
            outside = outside[_norm(solution) > radius * (1 + 2.0**-44)]

    def dual(self) -> Doubles:
        """Return the value of the dual problem at the present multipliers."""
        value: Doubles = self.constant - _dot(self.image, self.image)
        return value - (self.multiplier + self.shift) * float(self.radius) ** 2

    def point(self) -> Objects:
        """Return the solutions in fixed point, in the ball, and on its surface if the multiplier is positive."""
        bits = _fraction_bits(self.radius)
        inside = self.solution / np.maximum(_norm(self.solution) / float(self.radius), 1.0)
        point: Objects = np.rint(inside * 2.0**bits).astype(np.int64).astype(object)
        radius = math.floor(self.radius * (1 << bits))
        norm = _isqrt((point * point).sum(axis=0)) + 1
        move = np.asarray(norm > radius, dtype=np.bool_) | (self.multiplier > 0)
        point[:, move] = np.sign(point[:, move]) * (abs(point[:, move]) * radius // norm[move])
        return point

    def refine(self, exact: _Exact) -> None:
        """Improve the solutions by a step on their exact residuals, and positive multipliers by a Newton step."""
        bits = _fraction_bits(self.radius)
        point = self.point()
        gradient: Doubles = (exact.half_gradient(point, bits) / (exact.scale << bits)).astype(np.float64)
        start: Doubles = (point / (1 << bits)).astype(np.float64)
        factor = _cholesky(self.matrix, self.shift + self.multiplier)
        solution = start - _backward(factor, _forward(factor, gradient + self.multiplier * start))
        turned = _backward(factor, _forward(factor, solution))
        norm = _norm(solution)
        raised = (norm - float(self.radius)) * norm / (_dot(solution, turned) + _TINY)
        raised = np.where(self.multiplier > 0, np.maximum(raised, -self.multiplier), 0.0)
        self.multiplier = self.multiplier + raised
        self.solution = solution - turned * raised


def _dot(first: Doubles, second: Doubles) -> Doubles:
    """Return the inner products over the first axis, added in order."""
    total: Doubles = first[0] * second[0]
    for a, b in zip(first[1:], second[1:], strict=True):
        total = total + a * b
    return total


def _norm(vectors: Doubles) -> Doubles:
    return np.sqrt(_dot(vectors, vectors))


def _cholesky(matrix: Doubles, shift: Doubles) -> list[list[Doubles]]:
    """Return the lower factors of ``matrix + shift I``, shape (k, k, m), with inverted diagonals."""
    factor: list[list[Doubles]] = []
    for i in range(len(matrix)):
        row: list[Doubles] = []
        for j in range(i):
            value = matrix[i, j]
            for a, b in zip(row, factor[j], strict=False):
                value = value - a * b
            row.append(value * factor[j][j])
        value = matrix[i, i] + shift
        for a in row:
            value = value - a * a
        row.append(1.0 / np.sqrt(np.maximum(value, _TINY)))
        factor.append(row)
    return factor


def _forward(factor: list[list[Doubles]], vector: Doubles) -> Doubles:
    """Return the solution of ``L z = vector``."""
    out: list[Doubles] = []
    for value, row in zip(vector, factor, strict=True):
        for a, b in zip(row, out, strict=False):
            value = value - a * b
        out.append(value * row[len(out)])
    return np.array(out)


def _backward(factor: list[list[Doubles]], vector: Doubles) -> Doubles:
    """Return the solution of ``L' b = vector``."""
    out = list(vector)
    for i in reversed(range(len(out))):
        value = out[i]
        for j in range(i + 1, len(out)):
            value = value - factor[j][i] * out[j]
        out[i] = value * factor[i][i]
    return np.array(out)
