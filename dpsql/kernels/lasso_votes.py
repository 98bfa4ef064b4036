"""Votes of a Lasso on every block of rows: the statistic of two-stage selection.

A block's vote is a function of the set of that block's rows and of random numbers that are drawn whatever the rows
are, and it never fails: this is what `dpsql.statistics.votes` builds on. Rows are sorted by their values first:
sums of doubles depend on the order, and one row more may change the order in which all others arrive.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.errors import ParameterError
from dpsql.kernels.gram import one_thread
from dpsql.kernels.lasso import lasso
from dpsql.kernels.workers import Signals, run
from dpsql.noise.entropy import SYSTEM, BitSource

# Coefficients that agree to this share of the k-th largest tie with it.
TIE = 1e-7
# A column that varies by less than this share of its largest value is constant.
CONSTANT = 1e-14
# A coefficient is 0 when its column moves the fit by less than this share of the target.
NEGLIGIBLE = 1e-9
# Sums of squares between these neither overflowed nor lost digits.
_SAFE = 1e-200, 1e200
# A column that varies by less than this share of its values is centred twice.
_CLOSE = 1e-3
# Below this many features NumPy's calls are too short for two threads to gain from each other.
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
        Blocks at work at the same time; 0 works in the caller's thread. Unless told, 0 below 2000 features and
        one for each processor from there.
    progress : callable, optional
        Called from the caller's thread with the share of the blocks that is done. What it raises ends the work.
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
    - **Randomness**: ties alone. Each column's penalty is raised by a random part of ``1e-8`` (of the largest
      ``|x'y|``), so equal columns and other ambiguous minima are settled uniformly, by numbers that are drawn
      anew for each block; coefficients within ``1e-7`` of the k-th largest take the places left in random order.
    - **Does not protect**: running time.

    Rules of a block, none of which looks at other rows:

    - the order of rows does not matter, to the last bit;
    - a row whose target is NaN or infinite is left out; with fewer than two rows left there is no vote;
    - NaN and infinite feature values become the mean of the column's other values in the block;
    - a column whose values are all equal gets no vote (also without an intercept), and no column does when all
      targets are equal and the target is centred or scaled;
    - columns and target of extreme scale are divided by their largest absolute value, so no square overflows;
    - only nonzero coefficients vote, so a block may cast fewer than k votes;
    - limits on pivots and passes are constants of `dpsql.kernels.lasso`; the vote is taken from where they end.
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
    """Numbers on a grid of ``2**-32``: they break ties, and no guarantee depends on them."""
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
            kept: NDArray[np.bool_] = effect > NEGLIGIBLE * np.linalg.norm(y)
        columns, size = columns[kept], size[kept]
        if len(columns) <= self.k:
            return columns
        cut = np.partition(size, -self.k)[-self.k]
        sure = columns[size > cut * (1.0 + TIE)]
        tied = columns[np.abs(size - cut) <= cut * TIE]
        places: Positions = np.concatenate([sure, tied[np.argsort(lift[tied], kind="stable")][: self.k - len(sure)]])
        return places

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
    """Fill, centre and scale the columns in place, 0 for those that are constant; return the unit they are in."""
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
    """Divide columns by their largest value, and give missing values the mean of the others; return the divisors."""
    missing = ~np.isfinite(columns)
    columns[missing] = 0.0
    size = np.abs(columns).max(axis=0)
    size[size == 0.0] = 1.0
    columns /= size
    present = len(columns) - missing.sum(axis=0)
    np.copyto(columns, columns.sum(axis=0) / np.maximum(present, 1), where=missing)
    return columns, size
