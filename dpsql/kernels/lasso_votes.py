"""Votes of a Lasso on every block of rows: the statistic of two-stage selection.

A block's vote is a function of the block's set of rows and of random numbers that do not depend on the rows, and it
never fails: `dpsql.statistics.votes` relies on this. Each vote first sorts the rows by their values: sums of doubles
depend on the order, and one more row may change the order of all other rows.

`lasso` solves the Lasso of one small matrix by pivots instead of sweeps: an active-set method in NumPy. It minimises
``|y - X w|^2 / 2 + L |w|_1``. The columns that violate the optimality conditions most join a working set. On that set
one column after another becomes active, all active coefficients go to their joint minimum or to the first change of
sign, and coefficients that reach 0 leave [1]_. Every pivot lowers the objective, and there are finitely many sets: the
method reaches the minimum up to rounding, while a sweeping solver stops at a gap.

Own code keeps a process's first call fast: importing scikit-learn takes a second, celer and skglm import it
(``benchmarks/two_stage.py``).

References
----------
.. [1] M. Osborne, B. Presnell, B. Turlach, A new approach to variable selection in least squares problems,
   IMA Journal of Numerical Analysis, 2000.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.kernels.gram import one_thread
from dpsql.kernels.workers import Signals, run
from dpsql.noise.entropy import SYSTEM, BitSource

# A column may enter while its |correlation| exceeds its penalty by this share of the largest |x'y|.
TOLERANCE = 1e-11
# The penalties of the columns differ by random parts of this share of the largest |x'y|.
PERTURBATION = 1e-8
# Most pivots, and most passes over all columns, of one fit, which then returns its current solution.
MAX_PIVOTS = 10_000
MAX_PASSES = 200
# A column depends linearly on the active columns when at most this share of its square is left.
_DEPENDENT = 1e-10
# Below this share the inverse is recomputed.
_DELICATE = 1e-6
# Columns per extension of the working set, at least.
_BATCH = 96
# Pivots between fresh inverses.
_REFRESH = 64

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
        unique, whatever the columns, and the cheapest of equal columns takes the whole coefficient.
    running : callable
        Called between pivots; if False, the fit returns its current solution.

    Returns
    -------
    columns : ndarray of intp
        Columns with nonzero coefficients.
    coefficients : ndarray of float64
        Their coefficients.
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
    """Return the `count` columns of largest excess, ascending; the first of equal columns, on any processor."""
    cut = np.partition(excess, -count)[-count]
    is_large = excess > cut
    is_large[np.flatnonzero(excess == cut)[: count - np.count_nonzero(is_large)]] = True
    largest: Positions = columns[is_large]
    return largest


class _WorkingSet:
    """Some columns, their Gram matrix, and the minimum over them.

    Buffers have spare room: the first `size` columns and the first `active` places are in use.
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
        # For each column of the set: its number in the matrix, its penalty, its product with target and residual.
        self._number = np.empty(0, dtype=np.intp)
        self._penalty, self._product, self._gradient = np.empty((3, 0))
        # For each active place: the column, its sign, coefficient and row of the Gram matrix; the inverse of the Gram
        # matrix of the active columns; a work buffer.
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
        is_nonzero = coefficient * self._sign[: self.active] > 0.0
        return self._number[self._column[: self.active][is_nonzero]], coefficient[is_nonzero]

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
        """Move to the minimum over the set; return False if the whole fit must end."""
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
        """Make a column active. A column that depends on the active columns replaces one of them."""
        self._make_active_room()
        sign = 1.0 if self._gradient[column] > 0.0 else -1.0
        square = float(self._gram[column, column])
        dependence, remainder = self._dependence(column)
        if remainder <= _DELICATE * square and self._stale:
            self._refresh()
            dependence, remainder = self._dependence(column)
        coefficient = 0.0
        if remainder <= _DEPENDENT * square and self.active:
            # In this direction the fit is constant and |w|_1 falls, so some coefficient must reach 0.
            step, blocking = self._crossing(-sign * dependence)
            if blocking >= 0:
                self._move(-step * sign * dependence)
                self._gradient[: self.size] -= step * sign * self._gram[column, : self.size]
                self._leave(blocking)
                coefficient = step * sign
                dependence, remainder = self._dependence(column)
        remainder = max(remainder, _DEPENDENT * square)
        a = self.active
        self._column[a], self._sign[a], self._coefficient[a] = column, sign, coefficient
        self._row[a, : self.size] = self._gram[column, : self.size]
        self._update_inverse(a, dependence, 1.0 / remainder)
        self._inverse[:a, a] = self._inverse[a, :a] = -dependence / remainder
        self._inverse[a, a] = 1.0 / remainder
        self.active += 1

    def _dependence(self, column: int) -> tuple[Doubles, float]:
        """Return the column's coefficients on the active columns, and the remainder of its square."""
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

    def _leave(self, position: int) -> None:
        """Remove an active column; the last active column takes its place."""
        a = self.active
        pivot = self._inverse[position, :a].copy()
        sound = pivot[position] > 0.0
        if sound:
            self._update_inverse(a, pivot, -1.0 / pivot[position])
        last = a - 1
        for values in (self._column, self._sign, self._coefficient, self._row):
            values[position] = values[last]
        self._inverse[position, :a] = self._inverse[last, :a]
        self._inverse[:a, position] = self._inverse[:a, last]
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


# Coefficients within this share of the k-th largest tie with it.
TIE = 1e-7
# A column that varies by less than this share of its largest value is constant.
CONSTANT = 1e-14
# A coefficient is 0 when its column moves the fit by less than this share of the target.
NEGLIGIBLE = 1e-9
# Sums of squares in this interval neither overflowed nor lost digits.
_SAFE = 1e-200, 1e200
# A column that varies by less than this share of its values is centred twice.
_CLOSE = 1e-3
# Below this many features, NumPy's calls are too short to benefit from two threads.
_WORTH_THREADS = 2000

Positions = NDArray[np.intp]


def lasso_votes(
    features: NDArray[np.number | np.bool_],
    target: NDArray[np.number | np.bool_],
    block: NDArray[np.integer],
    *,
    blocks: int,
    k: int,
    penalty: float,
    standardize: bool = True,
    intercept: bool = True,
    threads: int | None = None,
    progress: Callable[[float], None] | None = None,
    source: BitSource = SYSTEM,
) -> NDArray[np.int64]:
    """Count for every feature the blocks whose Lasso gives it one of the k largest coefficients.

    Parameters
    ----------
    features : ndarray, shape (n, p)
        Feature values, real numbers of any type; row-major is faster for wide matrices.
    target : ndarray, shape (n,)
        Target values.
    block : ndarray of int, shape (n,)
        The block of each row, assigned independently row by row (or unit by unit). A row outside
        ``[0, blocks)`` is in no block.
    blocks : int
        Number of blocks, >= 1; public.
    k : int
        Votes per block at most, >= 1; public.
    penalty : float
        ``lambda`` in ``|y - X w|^2 / (2 n_b) + lambda |w|_1``, n_b the rows of the block; finite and > 0, public.
    standardize : bool
        Scale features and target to unit standard deviation within the block, which makes `penalty` free of
        units: from 1 upward there is no vote. False: coefficients, hence votes, depend on the units.
    intercept : bool
        Fit an unpenalised intercept, which takes no vote: features and target are centred within the block.
    threads : int, optional
        Blocks at work at the same time; 0 works in the caller's thread. By default 0 below 2000 features, and one for
        each processor from there.
    progress : callable, optional
        Called from the caller's thread with the share of finished blocks. Its exceptions stop the work.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    votes : ndarray of int64, shape (p,)
        In ``[0, blocks]``; their sum is at most ``k * blocks``.

    Raises
    ------
    ParameterError
        Depends on public parameters only: P018 (k, blocks, penalty).

    Notes
    -----
    - **Guarantee**: none by itself; the votes are exact. Sensitivities: `dpsql.statistics.votes`.
    - **Sensitivity**: a row enters the vote of its own block and nothing else: no rule below looks beyond a block.
    - **Randomness**: only ties. A random part of ``1e-8`` (of the largest ``|x'y|``) raises each column's penalty, so
      numbers drawn anew for each block settle equal columns and other ambiguous minima uniformly; coefficients within
      ``1e-7`` of the k-th largest take the remaining places in random order.
    - **Does not protect**: running time.

    Rules of a block, none of which looks at other rows:

    - the order of rows does not matter, to the last bit;
    - a row with a NaN or infinite target is excluded; fewer than two remaining rows give no vote;
    - NaN and infinite feature values become the mean of the column's other values in the block;
    - a column of equal values gets no vote (also without an intercept), and no column gets a vote when all targets are
      equal and the target is centred or scaled;
    - columns and target of extreme scale are divided by their largest absolute value, so no square overflows;
    - only nonzero coefficients vote, so a block may cast fewer than k votes;
    - limits on pivots and passes are constants of this module; at a limit, the current solution votes.
    """
    _check(blocks, k, penalty)
    width = features.shape[1]
    votes = np.zeros(width, dtype=np.int64)
    if width == 0:
        return votes
    members = _members(np.asarray(block), blocks)
    voter = _Voter(features, np.asarray(target, dtype=np.float64), k, penalty, standardize, intercept)
    lock = threading.Lock()

    def job(number: int, thread: int, signals: Signals) -> None:
        chosen = voter.vote(members(number), _uniform(width, source), lambda: not signals.stop[0])
        with lock:
            votes[chosen] += 1
        signals.done[thread] += 1

    if threads is None and width < _WORTH_THREADS:
        threads = 0
    with one_thread():
        run(job, blocks, blocks, threads, progress)
    return votes


def _check(blocks: int, k: int, penalty: float) -> None:
    if not k >= 1:
        raise ParameterError("P018", f"k must be >= 1; got {k}. Give the number of votes of a block.")
    if not blocks >= 1:
        raise ParameterError("P018", f"blocks must be >= 1; got {blocks}. Give the number of blocks.")
    if not (penalty > 0 and math.isfinite(penalty)):
        raise ParameterError("P018", f"penalty must be finite and > 0; got {penalty}. Try 0.1 on standardised columns.")


def _members(block: NDArray[np.integer], blocks: int) -> Callable[[int], Positions]:
    """Return a function from a block's number to its rows, ascending."""
    order = np.argsort(block, kind="stable")
    ends = np.searchsorted(block[order], np.arange(blocks + 1))
    return lambda number: order[ends[number] : ends[number + 1]]


def _uniform(size: int, source: BitSource) -> Doubles:
    """Return numbers on a grid of ``2**-32``: they break ties, and no guarantee depends on them."""
    words = source.words(-(-size // 2))
    return np.asarray(words.view(np.uint32)[:size] * 2.0**-32, dtype=np.float64)


@dataclass(frozen=True)
class _Voter:
    """The parameters that all blocks share."""

    features: NDArray[np.number | np.bool_]
    target: Doubles
    k: int
    penalty: float
    standardize: bool
    intercept: bool

    def vote(self, rows: Positions, lift: Doubles, running: Callable[[], bool]) -> Positions:
        """Return the features that a block of these rows votes for, at most k."""
        nobody: Positions = np.empty(0, dtype=np.intp)
        rows = rows[np.isfinite(self.target[rows])]
        if len(rows) < 2:
            return nobody
        with np.errstate(all="ignore"):
            matrix, target = self._ordered(rows)
            y, y_scale = _prepared_target(target, self.standardize, self.intercept)
            if y_scale == 0.0:
                return nobody
            x_scale = _prepare(matrix, self.standardize, self.intercept)
            # In the units of the prepared columns and target.
            weight = len(rows) * self.penalty / x_scale / y_scale
            columns, coefficients = lasso(matrix, y, weight, lift, running)
            size = np.abs(coefficients)
            effect = size * np.linalg.norm(matrix[:, columns], axis=0)
            is_large: NDArray[np.bool_] = effect > NEGLIGIBLE * np.linalg.norm(y)
        columns, size = columns[is_large], size[is_large]
        if len(columns) <= self.k:
            return columns
        cut = np.partition(size, -self.k)[-self.k]
        sure = columns[size > cut * (1.0 + TIE)]
        tied = columns[np.abs(size - cut) <= cut * TIE]
        votes: Positions = np.concatenate([sure, tied[np.argsort(lift[tied], kind="stable")][: self.k - len(sure)]])
        return votes

    def _ordered(self, rows: Positions) -> tuple[Doubles, Doubles]:
        """Return a copy of some rows' features and target, in an order determined by their values."""
        rows = rows[np.argsort(self.target[rows], kind="stable")]
        target = self.target[rows]
        matrix = np.ascontiguousarray(self.features[rows], dtype=np.float64)
        if (target[1:] == target[:-1]).any():
            order = np.argsort(matrix.view(np.dtype((np.void, matrix[0].nbytes)))[:, 0], kind="stable")
            matrix, target = matrix[order], target[order]
        return matrix, target


def _prepared_target(target: Doubles, standardize: bool, intercept: bool) -> tuple[Doubles, float]:
    """Return the target centred and scaled, and its unit; 0 if there is nothing to explain."""
    scale = float(np.abs(target).max())
    if scale == 0.0:
        return target, 0.0
    y = target / scale
    centred = y - y.mean()
    deviation = float(np.sqrt(np.square(centred).mean()))
    if (standardize or intercept) and deviation <= CONSTANT:
        return target, 0.0
    y = centred if intercept else y
    return (y / deviation, 1.0) if standardize else (y, scale)


def _prepare(matrix: Doubles, standardize: bool, intercept: bool) -> float:
    """Fill, centre and scale the columns in place, 0 for constant columns; return the columns' unit."""
    rows = len(matrix)
    square = np.einsum("ij,ij->j", matrix, matrix)
    unit = np.ones(len(square))
    odd = np.flatnonzero(~((square > _SAFE[0]) & (square < _SAFE[1])))
    if len(odd):
        matrix[:, odd], unit[odd] = _filled(matrix[:, odd])
        square[odd] = np.square(matrix[:, odd]).sum(axis=0)
    centred = np.subtract(matrix, matrix.mean(axis=0), out=matrix if intercept else None)
    deviation = np.sqrt(np.einsum("ij,ij->j", centred, centred) / rows)
    size = np.sqrt(square / rows)
    varies = deviation > 0.0
    near = np.flatnonzero(deviation <= _CLOSE * size)
    if len(near):  # the mean was rounded: centre once more
        again = centred[:, near] - centred[:, near].mean(axis=0)
        deviation[near] = np.sqrt(np.square(again).mean(axis=0))
        varies[near] = (again.max(axis=0) > again.min(axis=0)) & (deviation[near] > CONSTANT * size[near])
        centred[:, near] = again
    scale = 1.0
    if standardize:
        unit = 1.0 / deviation
    else:
        # One unit for all columns.
        largest = np.maximum(matrix.max(axis=0), -matrix.min(axis=0)) * unit
        scale = float(largest[varies].max(initial=0.0)) or 1.0
        unit /= scale
    matrix *= np.where(varies, unit, 0.0)
    return scale


def _filled(columns: Doubles) -> tuple[Doubles, Doubles]:
    """Divide columns by their largest value, and set missing values to the mean of the others; return the divisors."""
    missing = ~np.isfinite(columns)
    columns[missing] = 0.0
    size = np.abs(columns).max(axis=0)
    size[size == 0.0] = 1.0
    columns /= size
    present = len(columns) - missing.sum(axis=0)
    np.copyto(columns, columns.sum(axis=0) / np.maximum(present, 1), where=missing)
    return columns, size
