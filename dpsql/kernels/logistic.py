"""Logistic regression with a linear term: rows in memory, a gradient with a certified error, and the minimiser.

The objective over signed rows ``v_i = y_i x_i`` of norm at most 1 is ::

    J(w) = sum_i log(1 + exp(-v_i . w)) + regularization / 2 ||w||^2 + linear . w

It is strongly convex: ``||w - w*|| <= ||grad J(w)|| / regularization`` for every w. So a w with a *certainly* small
gradient is certainly near the minimiser, whatever led to it.

Errors of the gradient, with ``u = 2**-53``, p columns, n rows, and S = ``2**20``:

- A row is integers of norm at most S over S. A coefficient is a multiple of ``2**-bits`` plus a rest. The product of a
  row with the multiples is an exact integer: by Cauchy and Schwarz no partial sum exceeds ``2**53``. The product with
  the rests r has an error of at most ``g_p ||r||``, ``g_p = p u / (1 - p u)``, in any order of summation. The sum m of
  both products is rounded once.
- ``q = 1 / (1 + exp(m))`` moves by at most ``q (1 - q)`` per unit of m. As ``|m| q (1 - q) < 1/4``, and the exponential
  is within 8 units in the last place, q is within ``12 u + g_p ||r|| / 4`` of the true q.
- ``sum q_i v_i`` over a block of at most 4096 rows: multiples of ``2**-20`` of q times integers are exact integers
  below ``2**53``, and so are their 64-bit sums. The rests of q, at most ``2**-21``, lose less than ``4096 u 2**-21``
  per row in a block, and less than ``u 2**-21`` per row and block when B blocks are summed up.
- Rounding the total, and the sum with ``regularization w + linear``: ``4 u`` times the norms of the terms.

``n u (20 + B 2**-20 + g_p ||r|| / u)`` and eight u times the norms of the last terms cover all these errors.

If this bound is too large, the module computes the same gradient *finely*. Coefficients are integers over ``2**96``,
cut into L digits so short that each digit's product with a row is an exact integer. The module adds up these products
and computes q as sums of two doubles (`dpsql.kernels.fixed_point`). Four digits of q of 20 bits each make
``sum q_i v_i`` exact except beyond the fourth, and all the rest is integers. So a row adds at most

- ``2**-88`` for q, and ``2**-81`` for the omitted digits;
- for the sum of the L products: each addition is within ``3 u**2`` of a partial sum, and a partial sum is at most |m|
  plus the lower digits' part, ``T sqrt(p)`` with T the unit of the highest digit. As q moves by ``q (1 - q)`` per unit
  of m, that is ``L u**2 (1 + T sqrt(p))``, with a fourth of 3 rounded up.

``n (2**-80 + L u**2 (1 + T sqrt(p)))`` covers these errors; a linear term is cut off at ``2**-200``. For the ``2**27``
allowed rows, and coefficients up to ``2**20``, the bound is below ``2**-52``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Integers
from dpsql.dataclass import dataclass
from dpsql.kernels import fixed_point
from dpsql.kernels.fixed_point import FIXED_POINT_BITS, FIXED_POINT_ONE, WideSums
from dpsql.kernels.gram import one_thread
from dpsql.kernels.xty import BLOCK_ROWS

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MOST_ROWS = 1 << 27
_ROUNDING = 2.0**-53
_GRADIENT_UNITS = 20.0
# Coefficients in units of 2**-bits have a norm of at most 2**33: times a norm of 2**20, that is 2**53.
_NORM_BITS = 33
_MOST_BITS = 24
_LOW_BITS = 32
# Up to this many columns, factorise the matrix of second derivatives; beyond, use conjugate gradients.
MOST_FACTORISED = 256
# Rows with at most this share of nonzero values are stored as sparse.
_SPARSE = 0.125
_LINEAR_SHARE = 1e-3
# Fine coefficients are integers over 2**96, fine gradients over 2**200.
_FINE_BITS = 96
_GRADIENT_BITS = 200
_SHARE_DIGITS = 4
# For second derivatives as integer sums: the unit of rows, over 2**-20, rows added at once, and digits of weights.
_CURVATURE_CUT = 16.0
_CURVATURE_ROWS = 1 << 8
_WEIGHT_BASE = 2.0**12
_WEIGHT_DIGITS = 4


@dataclass(frozen=True)
class Gradient:
    """The gradient at some coefficients.

    Attributes
    ----------
    at : ndarray of float64, shape (p,)
        The coefficients.
    value : ndarray of float64, shape (p,)
    error : float
        Bound on the L2 distance from the true gradient.
    weights : list of ndarray
        Second derivatives ``q (1 - q)`` of the rows, block by block.
    """

    at: NDArray[np.float64]
    value: NDArray[np.float64]
    error: float
    weights: list[NDArray[np.float64]]

    @property
    def norm(self) -> float:
        """L2 norm of the computed gradient."""
        return math.sqrt(math.fsum(self.value * self.value))

    @property
    def at_most(self) -> float:
        """Certain bound on the L2 norm of the true gradient."""
        return self.norm * (1.0 + 2.0**-40) + self.error

    def cells(self, grid: Fraction) -> NDArray[np.float64]:
        """Return the coefficients in units of a grid that is a power of two, rounded to integers."""
        return np.rint(self.at / float(grid))


@dataclass(frozen=True)
class FineGradient(Gradient):
    """The gradient at coefficients of more than 53 bits.

    Attributes
    ----------
    multiples : list of int
        The coefficients, in units of ``2**-96``; `at` are the nearest doubles.
    """

    multiples: list[int]

    def cells(self, grid: Fraction) -> NDArray[np.float64]:
        """Return the coefficients in units of a grid that is a power of two, rounded to integers."""
        cell = grid * (1 << _FINE_BITS)
        return np.array([float((2 * value + cell) // (2 * cell)) for value in self.multiples])


class SignedRows:
    """Rows times their labels, stored in memory.

    Parameters
    ----------
    width : int
        Columns p, including the intercept.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows = 0
        self._blocks: list[NDArray[np.float32] | csr_array] = []

    def add(self, rows: NDArray[np.float64]) -> None:
        """Store a copy of a batch.

        Parameters
        ----------
        rows : ndarray of float64, shape (n, p)
            Integers, ``sum q_j**2 <= S**2`` in each row: stored in single precision, which is exact.
        """
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise ValueError(f"a batch of shape {rows.shape} does not fit")
        blocks: list[NDArray[np.float32] | csr_array] = []
        for start in range(0, len(rows), BLOCK_ROWS):
            block = rows[start : start + BLOCK_ROWS]
            if np.count_nonzero(block) <= _SPARSE * block.size:
                from scipy.sparse import csr_array

                blocks.append(csr_array(block))
            else:
                blocks.append(block.astype(np.float32, order="C"))
        self.rows += len(rows)
        self._blocks.extend(blocks)

    def extend(self, other: SignedRows) -> None:
        """Append the rows of another instance."""
        self.rows += other.rows
        self._blocks.extend(other._blocks)

    def gradient(self, at: NDArray[np.float64], regularization: float, linear: NDArray[np.float64]) -> Gradient:
        """Return the gradient of the objective with a bound on its error.

        Parameters
        ----------
        at, linear : ndarray of float64, shape (p,)
            Coefficients, and the objective's linear term.
        regularization : float
            >= 0.
        """
        multiples, rest, bits = _split(at)
        factors = np.column_stack((multiples, rest))
        unit = 2.0**-bits
        low, high = np.zeros(self.width, dtype=np.int64), np.zeros(self.width, dtype=np.int64)
        small = np.zeros(self.width)
        weights = []
        with one_thread():
            for block in self._doubles():
                products = block @ factors
                margins = (products[:, 0] * unit + products[:, 1]) / FIXED_POINT_ONE
                with np.errstate(over="ignore"):
                    share = 1.0 / (1.0 + np.exp(margins))
                weights.append(share * (1.0 - share))
                coarse = np.rint(share * FIXED_POINT_ONE)
                parts = block.T @ np.column_stack((coarse, share - coarse / FIXED_POINT_ONE))
                low += parts[:, 0].astype(np.int64)
                high += low >> _LOW_BITS
                low &= (1 << _LOW_BITS) - 1
                small += parts[:, 1]
        total = (high * 2.0**_LOW_BITS + low) * 2.0 ** (-2 * FIXED_POINT_BITS) + small / FIXED_POINT_ONE
        value = regularization * at + linear - total
        spread = self.width * _ROUNDING / (1.0 - self.width * _ROUNDING)
        units = _GRADIENT_UNITS + len(weights) * 2.0**-FIXED_POINT_BITS
        error = self.rows * (units * _ROUNDING + spread * _norm(rest))
        error += 8.0 * _ROUNDING * (regularization * _norm(at) + _norm(linear))
        return Gradient(at, value, error, weights)

    def fine_gradient(self, multiples: list[int], regularization: float, linear: NDArray[np.float64]) -> FineGradient:
        """Return the gradient with an error some ``2**25`` times smaller, in some twenty times the time.

        Parameters
        ----------
        multiples : list of int
            Coefficients, in units of ``2**-96``.
        regularization : float
            In [2**-40, 2**60].
        linear : ndarray of float64, shape (p,)
        """
        factors, units = _digits(multiples)
        sums = WideSums((_SHARE_DIGITS, self.width))
        weights = []
        with one_thread():
            for block in self._doubles():
                weight, digits = _fine_sums(block, factors, units)
                weights.append(weight)
                sums.add(digits)
        return _fine_gradient(multiples, units, sums.total(), self.rows, weights, regularization, linear)

    def newton(self, gradient: Gradient, regularization: float) -> NDArray[np.float64]:
        """Return an approximate Newton step at a gradient; nothing depends on its accuracy."""
        with one_thread():
            if self.width > MOST_FACTORISED:
                return self._conjugate_gradients(gradient, regularization)
            matrix = np.zeros((self.width, self.width))
            for block, weight in zip(self._doubles(), gradient.weights, strict=True):
                if isinstance(block, np.ndarray):
                    matrix += block.T @ (block * weight[:, None])
                else:
                    matrix += (block.T @ block.multiply(weight[:, None]).tocsr()).toarray()
            matrix /= float(FIXED_POINT_ONE) ** 2
            matrix[np.diag_indices(self.width)] += regularization
            return np.asarray(np.linalg.solve(matrix, -gradient.value), dtype=np.float64)

    def _conjugate_gradients(self, gradient: Gradient, regularization: float) -> NDArray[np.float64]:
        def times(vector: NDArray[np.float64]) -> NDArray[np.float64]:
            total = np.zeros(self.width)
            for block, weight in zip(self._doubles(), gradient.weights, strict=True):
                total += block.T @ (weight * (block @ vector))
            product: NDArray[np.float64] = total / float(FIXED_POINT_ONE) ** 2 + regularization * vector
            return product

        step = np.zeros(self.width)
        residual = -gradient.value
        direction = residual.copy()
        square = float(residual @ residual)
        enough = square * _LINEAR_SHARE**2
        for _ in range(2 * self.width + 50):
            if square <= enough:
                break
            moved = times(direction)
            length = square / float(direction @ moved)
            step += length * direction
            residual -= length * moved
            square, before = float(residual @ residual), square
            direction = residual + square / before * direction
        return step

    def _doubles(self) -> Iterator[Doubles | csr_array]:
        for block in self._blocks:
            yield block.astype(np.float64) if isinstance(block, np.ndarray) else block


class GradientSums:
    """The rows' part of the fine gradient at some coefficients, as exact integers in any order and any division.

    The class adds rows and forgets them, so the owner of the rows may compute the sums.

    Parameters
    ----------
    multiples : list of int
        The coefficients, in units of ``2**-96``; p of them, at most 256.

    Attributes
    ----------
    rows : int
    digits : WideSums, shape (4, p)
        The digits of ``sum q_i v_i``.
    curvature : WideSums, shape (4, p (p + 1) / 2)
        About ``sum q_i (1 - q_i) v_i v_i'``, the upper triangle: from the weights' digits, to the base ``2**12``, and
        rows rounded to ``2**-16``. It only leads to the minimiser, so nothing depends on its accuracy.
    """

    def __init__(self, multiples: list[int]) -> None:
        self.multiples = multiples
        self.rows = 0
        self.digits = WideSums((_SHARE_DIGITS, len(multiples)))
        self._upper = np.triu_indices(len(multiples))
        self.curvature = WideSums((_WEIGHT_DIGITS, len(self._upper[0])))

    def add(self, rows: Doubles) -> None:
        """Add rows; see `SignedRows.add`."""
        factors, units = _digits(self.multiples)
        with one_thread():
            for start in range(0, len(rows), BLOCK_ROWS):
                block = rows[start : start + BLOCK_ROWS]
                weight, digits = _fine_sums(block, factors, units)
                self.digits.add(digits)
                cut = np.rint(block / _CURVATURE_CUT)
                for first in range(0, len(block), _CURVATURE_ROWS):
                    some = slice(first, first + _CURVATURE_ROWS)
                    self.curvature.add(self._curvature(cut[some], weight[some]))
        self.rows += len(rows)

    def _curvature(self, rows: Doubles, rest: Doubles) -> NDArray[np.int64]:
        """Return the sums of some rows: products are below ``2**44``, so doubles hold them exactly."""
        sums = []
        for _ in range(_WEIGHT_DIGITS):
            digit = np.floor(rest * _WEIGHT_BASE)
            rest = rest * _WEIGHT_BASE - digit
            sums.append((rows.T @ (rows * digit[:, np.newaxis]))[self._upper])
        return np.array(sums).astype(np.int64)

    def gradient(self, regularization: float, linear: Doubles) -> FineGradient:
        """Return the gradient with a bound on its error; parameters as for `SignedRows.fine_gradient`."""
        _, units = _digits(self.multiples)
        return _fine_gradient(self.multiples, units, self.digits.total(), self.rows, [], regularization, linear)

    def newton(self, gradient: Gradient, regularization: float) -> Doubles:
        """Return an approximate Newton step at a gradient."""
        units = _WEIGHT_BASE ** -np.arange(1.0, 1.0 + _WEIGHT_DIGITS) * (_CURVATURE_CUT / FIXED_POINT_ONE) ** 2
        matrix = np.zeros((len(self.multiples), len(self.multiples)))
        matrix[self._upper] = units @ self.curvature.total().astype(np.float64)
        matrix = np.triu(matrix) + np.triu(matrix, 1).T
        matrix[np.diag_indices(len(matrix))] += regularization
        return np.asarray(np.linalg.solve(matrix, -gradient.value), dtype=np.float64)


def _fine_sums(
    block: Doubles | csr_array, factors: Doubles, units: list[Fraction]
) -> tuple[Doubles, NDArray[np.int64]]:
    """Return the second derivatives of a block's rows, and the digits of their sum of ``q v``, shape (4, p)."""
    share = fixed_point.share(_fine_margins(block @ factors, units))
    parts = fixed_point.digits(share, FIXED_POINT_BITS, _SHARE_DIGITS)
    return share[0] * (1.0 - share[0]), (block.T @ np.column_stack(parts)).T.astype(np.int64)


def _fine_gradient(
    multiples: list[int],
    units: list[Fraction],
    total: Integers,
    rows: int,
    weights: list[Doubles],
    regularization: float,
    linear: Doubles,
) -> FineGradient:
    """Return the gradient of `rows` rows, given the digits of their ``sum q v``."""
    numerator, denominator = regularization.as_integer_ratio()
    ridge = numerator << (_GRADIENT_BITS - _FINE_BITS - (denominator.bit_length() - 1))
    # Digit k of q is in units of 2**(-20 (k + 1)), a row in units of 2**-20.
    shifts = [_GRADIENT_BITS - FIXED_POINT_BITS * (number + 2) for number in range(_SHARE_DIGITS)]
    value = [
        ridge * coefficient
        + int(math.ldexp(term, _GRADIENT_BITS))
        - sum(part << shift for part, shift in zip(column, shifts, strict=True))
        for coefficient, term, column in zip(multiples, linear.tolist(), total.T.tolist(), strict=True)
    ]
    width = len(multiples)
    rounding = len(units) * _ROUNDING**2 * (1.0 + float(units[0]) * math.sqrt(width))
    return FineGradient(
        at=np.array([math.ldexp(float(value), -_FINE_BITS) for value in multiples]),
        value=np.array([math.ldexp(float(entry), -_GRADIENT_BITS) for entry in value]),
        error=rows * (2.0**-80 + rounding) + math.sqrt(width) * 2.0**-190,
        weights=weights,
        multiples=multiples,
    )


def coefficient_multiples(values: NDArray[np.float64]) -> list[int]:
    """Return numbers in units of ``2**-96``, cut off toward zero."""
    return [int(math.ldexp(value, _FINE_BITS)) for value in values.tolist()]


def _digits(multiples: list[int]) -> tuple[NDArray[np.float64], list[Fraction]]:
    """Return integers (p, L) and units (L,), highest first, with ``multiples / 2**96 = integers @ units``, exactly.

    The integers of a column have a norm of at most ``2**33``, so their products with a row are exact.
    """
    bits = _NORM_BITS - 1 - (math.isqrt(len(multiples)).bit_length())
    rest = list(multiples)
    columns: list[list[int]] = []
    while any(rest) or not columns:
        column = [((value + (1 << (bits - 1))) & ((1 << bits) - 1)) - (1 << (bits - 1)) for value in rest]
        rest = [(value - digit) >> bits for value, digit in zip(rest, column, strict=True)]
        columns.append(column)
    units = [Fraction(1 << (bits * number), 1 << _FINE_BITS) for number in range(len(columns))]
    return np.array(columns[::-1], dtype=np.float64).T, units[::-1]


def _fine_margins(products: NDArray[np.float64], units: list[Fraction]) -> fixed_point.Doubled:
    """Return the sum of products of rows with digits, each times its unit over ``2**20``."""
    zero = np.zeros(len(products))
    margin = (zero, zero)
    for column, unit in zip(products.T, units, strict=True):
        margin = fixed_point.add(margin, (column * float(unit / FIXED_POINT_ONE), zero))
    return margin


def _split(at: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Return integers and rests with ``at = integers / 2**bits + rests``, exactly, and the bits."""
    bits = min(_MOST_BITS, _NORM_BITS - 1 - math.frexp(_norm(at))[1])
    # Rounding adds at most 1/2 per coordinate: in norm, half the root of the number of columns, below 2**32.
    integers = np.rint(at * 2.0**bits)
    return integers, at - integers * 2.0**-bits, bits


def _norm(vector: NDArray[np.float64]) -> float:
    return math.sqrt(math.fsum(vector * vector))
