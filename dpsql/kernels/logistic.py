"""Logistic regression with a linear term: rows in memory, a gradient with a certified error, and the minimiser.

The objective over signed rows ``v_i = y_i x_i`` of norm at most 1 is ::

    J(w) = sum_i log(1 + exp(-v_i . w)) + regularization / 2 ||w||^2 + linear . w

It is strongly convex: ``||w - w*|| <= ||grad J(w)|| / regularization`` for every w. So a w whose gradient is
*certainly* small is certainly near the minimiser, whatever led to it.

Errors of the gradient, with ``u = 2**-53``, p columns, n rows, and S = ``2**20``:

- A row is integers of norm at most S over S. A coefficient is a multiple of ``2**-bits`` plus a rest. The product of a
  row with the multiples is an exact integer: by Cauchy and Schwarz no partial sum exceeds ``2**53``. That with the
  rests r has an error of at most ``g_p ||r||``, ``g_p = p u / (1 - p u)``, in any order of summation. Their sum m is
  rounded once.
- ``q = 1 / (1 + exp(m))`` moves by at most ``q (1 - q)`` per unit of m. As ``|m| q (1 - q) < 1/4``, and the exponential
  is within 8 units in the last place, q is within ``12 u + g_p ||r|| / 4`` of the true one.
- ``sum q_i v_i`` over a block of at most 4096 rows: multiples of ``2**-20`` of q times integers are exact integers
  below ``2**53``, and so are their 64-bit sums. The rests of q, at most ``2**-21``, lose less than ``4096 u 2**-21``
  per row in a block, and less than ``u 2**-21`` per row and block when B blocks are summed up.
- Rounding the total, and the sum with ``regularization w + linear``: ``4 u`` times the norms of the terms.

``n u (20 + B 2**-20 + g_p ||r|| / u)`` and eight u times the norms of the last terms cover all of these.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.kernels.blas import one_thread
from dpsql.kernels.xty import BLOCK_ROWS
from dpsql.statistics.fixed_point import FIXED_POINT_BITS, FIXED_POINT_ONE

MOST_ROWS = 1 << 27
_ROUNDING = 2.0**-53
_GRADIENT_UNITS = 20.0
# Coefficients in units of 2**-bits have a norm of at most 2**33: times a norm of 2**20, that is 2**53.
_NORM_BITS = 33
_MOST_BITS = 24
_LOW_BITS = 32
# Up to so many columns the matrix of second derivatives is factorised; beyond, conjugate gradients.
_MOST_FACTORISED = 256
# Rows with at most this share of values other than 0 are kept as such.
_SPARSE = 0.125
_LINEAR_SHARE = 1e-3
_MOST_STEPS = 1000
_MOST_HALVINGS = 60


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


class SignedRows:
    """Rows times their labels, kept in memory; threads may add at the same time.

    Parameters
    ----------
    width : int
        Columns p, the intercept's included.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows = 0
        self._blocks: list[Any] = []
        self._lock = threading.Lock()

    def add(self, rows: NDArray[np.float64]) -> None:
        """Keep a copy of a batch.

        Parameters
        ----------
        rows : ndarray of float64, shape (n, p)
            Integers, ``sum q_j**2 <= S**2`` in each row: exact in single precision, in which they are kept.
        """
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise ValueError(f"a batch of shape {rows.shape} does not fit")
        blocks: list[Any] = []
        for start in range(0, len(rows), BLOCK_ROWS):
            block = rows[start : start + BLOCK_ROWS]
            if np.count_nonzero(block) <= _SPARSE * block.size:
                from scipy.sparse import csr_array

                blocks.append(csr_array(block))
            else:
                blocks.append(block.astype(np.float32, order="C"))
        with self._lock:
            self.rows += len(rows)
            self._blocks.extend(blocks)

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

    def newton(self, gradient: Gradient, regularization: float) -> NDArray[np.float64]:
        """Return about the Newton step at a gradient; nothing depends on how exact it is."""
        with one_thread():
            if self.width > _MOST_FACTORISED:
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

    def _doubles(self) -> Any:
        for block in self._blocks:
            yield block.astype(np.float64) if isinstance(block, np.ndarray) else block


def minimise(
    rows: SignedRows,
    *,
    regularization: float,
    linear: NDArray[np.float64],
    tolerance: float,
    progress: Callable[[float], None] | None = None,
) -> Gradient:
    """Return coefficients where the norm of the gradient is certainly at most `tolerance`.

    Parameters
    ----------
    rows : SignedRows
    regularization : float
        > 0.
    linear : ndarray of float64, shape (p,)
    tolerance : float
        > 0; above the error of the gradient, which is below ``2**-21`` for any number of rows allowed.
    progress : callable, optional
        Called with a share of the work done, in [0, 1].

    Returns
    -------
    gradient : Gradient
        ``gradient.at`` is within ``tolerance / regularization`` of the minimiser in the L2 norm.

    Raises
    ------
    InternalError
        I021, when there are more than ``2**27`` rows; I022, when the gradient stays large, which strong convexity rules
        out.

    Notes
    -----
    Newton steps, halved until the norm of the gradient falls. Along a Newton direction, also one solved for to a share
    of its right-hand side, the norm of the gradient falls at first at the rate of its value: there is always such a
    step, and no other point where the norm is stationary than the minimiser.
    """
    if rows.rows > MOST_ROWS:
        raise InternalError("I021", f"a fit takes at most {MOST_ROWS} rows. Fit a sample of them.")
    current = rows.gradient(np.zeros(rows.width), regularization, linear)
    first = max(current.norm, 2.0 * tolerance)
    for _ in range(_MOST_STEPS):
        if current.at_most <= tolerance:
            return current
        if progress is not None:
            progress(min(1.0, max(0.0, math.log(first / max(current.norm, tolerance)) / math.log(first / tolerance))))
        step = rows.newton(current, regularization)
        share = 1.0
        for _ in range(_MOST_HALVINGS):
            trial = rows.gradient(current.at + share * step, regularization, linear)
            if trial.norm <= (1.0 - share / 4.0) * current.norm:
                break
            share /= 2.0
        else:
            break
        current = trial
    raise InternalError("I022", "the fit did not converge. Raise regularization.")


def _split(at: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Return integers and rests with ``at = integers / 2**bits + rests``, exactly, and the bits."""
    bits = min(_MOST_BITS, _NORM_BITS - 1 - math.frexp(_norm(at))[1])
    # Rounding adds at most 1/2 to a coordinate: a norm of half the number of columns' root, below 2**32.
    integers = np.rint(at * 2.0**bits)
    return integers, at - integers * 2.0**-bits, bits


def _norm(vector: NDArray[np.float64]) -> float:
    return math.sqrt(math.fsum(vector * vector))
