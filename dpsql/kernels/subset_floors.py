"""Certified lower bounds on the scores of all subsets that complete a chosen set by one or two columns.

The number of subsets is public, so the work is public, too: `dpsql.mechanisms.subset_selection` draws from their scores
without a search. The bound of a subset is the value of the dual problem of `dpsql.kernels.ball_least_squares` at a
multiplier that Newton's method finds, less the rounding error (`margin`). The value is a bound at every multiplier up
to ``||h_A|| / r``, so the method's precision affects only the running time.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.kernels import workers
from dpsql.kernels.ball_least_squares import SCORE_CAP, SCORE_UNIT, BallLeastSquares
from dpsql.kernels.best_subsets import score_floors
from dpsql.kernels.best_subsets_bounds import margin
from dpsql.kernels.workers import Compiled

# Subsets that NumPy bounds in some tenths of a second.
_WORTH_COMPILING = 20_000
_WORTH_WAITING = 50_000
_BLOCK = 1 << 17

compiled_kernels = Compiled("dpsql.kernels.subset_floors_compiled", _WORTH_COMPILING, _WORTH_WAITING)


def warm_up() -> None:
    """Load the compiled bounds and wait for them."""
    compiled_kernels.start().join()


def completions(columns: NDArray[np.intp], count: int, positions: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return completions of a set: one or two of some columns, by their positions in lexicographic order.

    Parameters
    ----------
    columns : ndarray of intp, shape (n,)
        Ascending.
    count : int
        1 or 2.
    positions : ndarray of intp, shape (m,)
        In ``[0, C(n, count))``.

    Returns
    -------
    more : ndarray of intp, shape (m, count)
    """
    if count == 1:
        return columns[positions, None]
    starts = _starts(len(columns))
    lows = np.searchsorted(starts, positions, side="right") - 1
    return columns[np.column_stack((lows, positions - starts[lows] + lows + 1))]


def completion_floors(
    problem: BallLeastSquares,
    chosen: NDArray[np.intp],
    columns: NDArray[np.intp],
    count: int,
    tick: Callable[[], object] | None = None,
) -> NDArray[np.int64]:
    """Return certified lower bounds on the scores of all subsets ``chosen + T``.

    Parameters
    ----------
    problem : BallLeastSquares
    chosen : ndarray of intp, shape (s,)
        Column numbers, counted without the forced ones.
    columns : ndarray of intp, shape (n,)
        The columns to choose T from, ascending, none of them in `chosen`.
    count : int
        Number of columns in T: 1 or 2.
    tick : callable, optional
        Called every few tenths of a second; its exceptions stop the work.

    Returns
    -------
    floors : ndarray of int64, shape (C(n, count),)
        In units of `SCORE_UNIT`, in lexicographic order of T: see `completions`.
    """
    total = math.comb(len(columns), count)
    fast = compiled_kernels(total)
    if fast is None:
        floors = np.empty(total, dtype=np.int64)
        for begin in range(0, total, _BLOCK):
            more = completions(columns, count, np.arange(begin, min(total, begin + _BLOCK)))
            prefixes = np.broadcast_to(chosen, (len(more), len(chosen)))
            floors[begin : begin + _BLOCK] = score_floors(problem, np.column_stack((prefixes, more)))
            if tick is not None:
                tick()
        return floors
    own = np.concatenate((np.arange(problem.forced), chosen + problem.forced))
    duals = np.empty(total)
    starts = _starts(len(columns)) if count == 2 else np.arange(len(columns) + 1)
    # Every job begins with another column, and gets about as many subsets.
    edges = np.unique(np.searchsorted(starts, np.append(np.arange(0, total, _BLOCK), total)))
    matrix, vector, others = np.ascontiguousarray(problem.matrix), problem.vector, columns + problem.forced
    constant, radius = problem.constant, float(problem.radius)

    def job(number: int, thread: int, signals: workers.Signals) -> None:
        low, high = int(edges[number]), int(edges[number + 1])
        fast.duals(matrix, vector, constant, radius, own, others, count, low, high, starts, duals, signals.stop)
        signals.done[thread] += starts[high] - starts[low]

    def report(share: float) -> None:
        if tick is not None:
            tick()

    workers.run(job, len(edges) - 1, total, progress=report)
    return _units(duals, margin(problem, len(chosen) + count))


def _starts(count: int) -> NDArray[np.intp]:
    """Return the place of the first pair that begins with each column, and the number of pairs."""
    starts: NDArray[np.intp] = np.append(0, np.cumsum(np.arange(count - 1, -1, -1)))
    return starts


def _units(duals: Doubles, rounding: float) -> NDArray[np.int64]:
    duals -= rounding
    duals /= float(SCORE_UNIT)
    np.clip(duals, -float(SCORE_CAP), float(SCORE_CAP), out=duals)
    return np.floor(duals, out=duals).astype(np.int64) - 2
