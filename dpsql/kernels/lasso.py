"""The Lasso of one small matrix, by pivots instead of sweeps: an active-set method in NumPy.

Minimises ``|y - X w|^2 / 2 + L |w|_1``. The columns that violate the optimality conditions most join a working
set; on that set one column after another becomes active, all active coefficients go to their joint minimum or
to the first change of sign, and what reaches 0 leaves [1]_. Every pivot lowers the objective, and there are
finitely many sets: the minimum is met up to rounding, where a sweeping solver stops at a gap.

Own code because of the first call of a process: importing scikit-learn takes a second, celer and skglm import it
(``benchmarks/two_stage.py``).

References
----------
.. [1] M. Osborne, B. Presnell, B. Turlach, A new approach to variable selection in least squares problems,
   IMA Journal of Numerical Analysis, 2000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles

# A column may enter while its |correlation| exceeds its penalty by this share of the largest |x'y|.
TOLERANCE = 1e-11
# The penalties of the columns differ by random parts of this share of the largest |x'y|.
PERTURBATION = 1e-8
# Most pivots, and most passes over all columns, of one fit; the current solution is returned then.
MAX_PIVOTS = 10_000
MAX_PASSES = 200
# A column is linearly dependent on the active ones when no more than this share of its square is left.
_DEPENDENT = 1e-10
# Below this share the inverse is recomputed.
_DELICATE = 1e-6
# Columns per extension of the working set, at least.
_BATCH = 96
# Pivots between fresh inverses.
_REFRESH = 64

Positions = NDArray[np.intp]
Number = TypeVar("Number", bound=np.generic)


def lasso(
    matrix: Doubles, target: Doubles, weight: float, lift: Doubles, running: Callable[[], bool] = lambda: True
) -> tuple[Positions, Doubles]:
    """Return the nonzero coefficients of the Lasso.

    Parameters
    ----------
    matrix : ndarray of float64, shape (n, p)
        Finite columns, of comparable scale and at most about 1.
    target : ndarray of float64, shape (n,)
        Finite, of a scale of about 1.
    weight : float
        ``L`` >= 0.
    lift : ndarray of float64, shape (p,)
        Independent uniform numbers in [0, 1): column j pays ``L + PERTURBATION max|x'y| lift_j``. So the minimum is
        unique, whatever the columns, and of equal columns the one that pays least takes the whole coefficient.
    running : callable
        Asked between pivots; once it returns False the fit ends where it stands.

    Returns
    -------
    columns : ndarray of intp
        Where the coefficients are not 0.
    coefficients : ndarray of float64
        Theirs.
    """
    correlation = target @ matrix
    largest = float(np.abs(correlation).max(initial=0.0))
    penalty = weight + PERTURBATION * largest * lift
    chosen = _WorkingSet(target, TOLERANCE * largest)
    for _ in range(MAX_PASSES):
        excess = np.abs(correlation) - penalty
        excess[chosen.columns] = 0.0
        entering = np.flatnonzero(excess > TOLERANCE * largest)
        batch = max(_BATCH, chosen.active)
        if len(entering) > batch:
            entering = _largest(entering, excess[entering], batch)
        if len(entering) == 0:
            break
        chosen.extend(entering, matrix[:, entering], penalty[entering])
        if not chosen.solve(running):
            break
        correlation = chosen.residual() @ matrix
    return chosen.solution()


def _largest(columns: Positions, excess: Doubles, count: int) -> Positions:
    """Return the `count` columns of largest excess, ascending; of equal ones the first, on any processor."""
    cut = np.partition(excess, -count)[-count]
    kept = excess > cut
    kept[np.flatnonzero(excess == cut)[: count - np.count_nonzero(kept)]] = True
    largest: Positions = columns[kept]
    return largest


class _WorkingSet:
    """Some columns, their Gram matrix, and the minimum over them.

    Buffers have room to spare: the first `size` columns and the first `active` places are in use.
    """

    def __init__(self, target: Doubles, tolerance: float) -> None:
        self.size = 0
        self.active = 0
        self._target = target
        self._tolerance = tolerance
        self._pivots = 0
        self._stale = 0  # pivots since the inverse was recomputed
        self._values = np.empty((0, len(target)))
        self._gram = np.empty((0, 0))
        # By column of the set: its number in the matrix, its penalty, its product with target and residual.
        self._number = np.empty(0, dtype=np.intp)
        self._penalty, self._product, self._gradient = np.empty((3, 0))
        # By active place: the column, its sign, coefficient and row of the Gram matrix; the inverse of the
        # Gram matrix of the active columns; room to work.
        self._column = np.empty(0, dtype=np.intp)
        self._sign, self._coefficient = np.empty((2, 0))
        self._row, self._inverse, self._scratch = np.empty((3, 0, 0))

    @property
    def columns(self) -> Positions:
        """The columns of the matrix that are in the set."""
        return self._number[: self.size]

    def solution(self) -> tuple[Positions, Doubles]:
        """Return the columns with a nonzero coefficient, and the coefficients."""
        coefficient = self._coefficient[: self.active]
        kept = coefficient * self._sign[: self.active] > 0.0
        return self._number[self._column[: self.active][kept]], coefficient[kept]

    def residual(self) -> Doubles:
        """Return ``y - X w``."""
        residual: Doubles = self._target - self._coefficient[: self.active] @ self._values[self._column[: self.active]]
        return residual

    def extend(self, numbers: Positions, values: Doubles, penalty: Doubles) -> None:
        """Add columns: their numbers, their values of shape (n, number), their penalties."""
        old, new = self.size, self.size + len(numbers)
        self._make_room(new)
        part = slice(old, new)
        self._number[part] = numbers
        self._values[part] = values.T
        self._product[part] = self._values[part] @ self._target
        self._penalty[part] = penalty
        cross = self._values[:new] @ self._values[part].T
        self._gram[:new, part] = cross
        self._gram[part, :new] = cross.T
        self._row[: self.active, part] = self._gram[self._column[: self.active], part]
        self.size = new

    def _make_room(self, size: int) -> None:
        if size > len(self._number):
            room = max(size, 2 * self.size)
            self._number = _enlarged(self._number, room)
            self._penalty, self._product = _enlarged(self._penalty, room), _enlarged(self._product, room)
            self._gradient = _enlarged(self._gradient, room)
            self._values = _enlarged(self._values, room, len(self._target))
            self._gram = _enlarged(self._gram, room, room)
            self._row = _enlarged(self._row, len(self._column), room)

    def _make_active_room(self) -> None:
        if self.active == len(self._column):
            room = 2 * self.active + 16
            self._column, self._sign = _enlarged(self._column, room), _enlarged(self._sign, room)
            self._coefficient = _enlarged(self._coefficient, room)
            self._row = _enlarged(self._row, room, self._row.shape[1])
            self._inverse, self._scratch = _enlarged(self._inverse, room, room), np.empty((room, room))

    def solve(self, running: Callable[[], bool]) -> bool:
        """Move to the minimum over the set; return False if the whole fit is to end."""
        self._refresh()
        while self._pivots < MAX_PIVOTS and running():
            excess = np.abs(self._gradient[: self.size]) - self._penalty[: self.size]
            excess[self._column[: self.active]] = 0.0
            entering = int(excess.argmax())
            if not excess[entering] > self._tolerance:
                return True
            self._enter(entering)
            while self._descend():
                self._pivots += 1
            self._pivots += 1
            if self._stale > _REFRESH:
                self._refresh()
        return False

    def _enter(self, column: int) -> None:
        """Make a column active. One that depends on the active columns takes the place of one of them."""
        self._make_active_room()
        sign = 1.0 if self._gradient[column] > 0.0 else -1.0
        square = float(self._gram[column, column])
        dependence, left = self._dependence(column)
        if left <= _DELICATE * square and self._stale:
            self._refresh()
            dependence, left = self._dependence(column)
        coefficient = 0.0
        if left <= _DEPENDENT * square and self.active:
            # In this direction the fit is constant and |w|_1 falls, so some coefficient must reach 0.
            step, blocking = self._crossing(-sign * dependence)
            if blocking >= 0:
                self._move(-step * sign * dependence)
                self._gradient[: self.size] -= step * sign * self._gram[column, : self.size]
                self._leave(blocking)
                coefficient = step * sign
                dependence, left = self._dependence(column)
        left = max(left, _DEPENDENT * square)
        a = self.active
        self._column[a], self._sign[a], self._coefficient[a] = column, sign, coefficient
        self._row[a, : self.size] = self._gram[column, : self.size]
        self._update_inverse(a, dependence, 1.0 / left)
        self._inverse[:a, a] = self._inverse[a, :a] = -dependence / left
        self._inverse[a, a] = 1.0 / left
        self.active += 1

    def _dependence(self, column: int) -> tuple[Doubles, float]:
        """Return the column's coefficients on the active columns, and what is left of its square."""
        beside = self._row[: self.active, column]
        dependence = self._inverse[: self.active, : self.active] @ beside
        return dependence, float(self._gram[column, column] - beside @ dependence)

    def _descend(self) -> bool:
        """Move the active coefficients to their minimum, or until one reaches 0 and leaves: then return True."""
        a = self.active
        column = self._column[:a]
        slope = self._gradient[column] - self._penalty[column] * self._sign[:a]
        direction = self._inverse[:a, :a] @ slope
        step, blocking = self._crossing(direction)
        if blocking < 0 or step >= 1.0:
            self._move(direction)
            return False
        self._move(step * direction)
        self._leave(blocking)
        return True

    def _crossing(self, direction: Doubles) -> tuple[float, int]:
        """Return the step at which the first active coefficient reaches 0, and its place; (inf, -1) if none does."""
        sign = self._sign[: self.active]
        speed = -direction * sign
        approaching = np.flatnonzero(speed > 0.0)
        if len(approaching) == 0:
            return np.inf, -1
        steps = np.maximum((self._coefficient[: self.active] * sign)[approaching], 0.0) / speed[approaching]
        first = int(steps.argmin())
        return float(steps[first]), int(approaching[first])

    def _move(self, change: Doubles) -> None:
        self._coefficient[: self.active] += change
        self._gradient[: self.size] -= change @ self._row[: self.active, : self.size]

    def _leave(self, place: int) -> None:
        """Take a column out of the active ones; the last one takes its place."""
        a = self.active
        pivot = self._inverse[place, :a].copy()
        sound = pivot[place] > 0.0
        if sound:
            self._update_inverse(a, pivot, -1.0 / pivot[place])
        last = a - 1
        for values in (self._column, self._sign, self._coefficient, self._row):
            values[place] = values[last]
        self._inverse[place, :a] = self._inverse[last, :a]
        self._inverse[:a, place] = self._inverse[:a, last]
        self.active = last
        if not sound:
            self._stale += 1
            self._refresh()

    def _update_inverse(self, size: int, vector: Doubles, factor: float) -> None:
        """Add ``factor * vector vector'``."""
        product = self._scratch[:size, :size]
        np.multiply(vector[:, None], factor * vector, out=product)
        self._inverse[:size, :size] += product
        self._stale += 1

    def _refresh(self) -> None:
        """Recompute inverse and gradient."""
        a, n = self.active, self.size
        active = self._row[:a, self._column[:a]]
        if a and self._stale:
            try:
                self._inverse[:a, :a] = np.linalg.inv(active)
                self._stale = 0
            except np.linalg.LinAlgError:  # exactly singular: keep the updated inverse
                pass
        self._gradient[:n] = self._product[:n] - self._coefficient[:a] @ self._row[:a, :n]


def _enlarged(array: NDArray[Number], *shape: int) -> NDArray[Number]:
    larger = np.empty(shape, dtype=array.dtype)
    larger[tuple(map(slice, array.shape))] = array
    return larger
