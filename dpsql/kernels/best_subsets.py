"""Find the best subsets of a size by branch and bound over exact Gram statistics, with a certificate.

`dpsql.kernels.ball_least_squares` scores subsets. The search lists the `count` subsets of lowest score, and an integer
lower bound on the score of all other subsets.

**Relaxation.** For every multiplier ``mu >= 0``, ``R(A) >= min over b of f_A(b) + mu (||b||^2 - r^2)``: a penalty
replaces the constraint. With ``M = G + (ridge + mu) I``, scaled to a unit diagonal, the bound is
``c - mu r^2 - h_A' M_AA^-1 h_A``. A node of the search has chosen a set I. Elimination of I leaves for each other
column j a residual product ``c_j`` and a diagonal ``d_j <= 1``, and for a set T of t more columns the gain
``c_T' S_TT^-1 c_T``; S is the Schur complement.

**Bound.** The gain is at most the sum of the t largest ``c_j^2`` divided by ``kappa``, a lower bound on the least
eigenvalue of any ``S_TT``. Two such bounds exist: the least eigenvalue of any size x size block of M (eigenvalues of a
Schur complement lie above the matrix's eigenvalues), and the least eigenvalue of any t x t block of M minus the t
largest ``1 - d_j`` (the trace of the eliminated part). Children come in the order of ``c_j^2`` and have only later
columns left, so the first child whose bound fails ends its node. The search computes the gains of the last two columns
instead of bounding them. `SearchSpace` treats nearly equal columns separately.

**Threshold.** `_Pool` holds distinct subsets with their dual values; greedy search and its swaps seed the pool. The
search drops a node when its bound reaches the threshold: the count-th least value in the pool, plus a slack that covers
rounding errors and the width `SCORE_WIDTH`. So at the end the pool holds every subset that could be among the `count`
best by canonical score, and canonical scores decide. If more subsets tie at the threshold than fit the list, the slack
changes its sign.

**Certificate.** Thresholds only fall, so every dropped subset has a bound, in doubles, of at least the last threshold;
the bounds of nodes left open by `node_limit` lower it. Neither a poor pool nor a poor multiplier can make that number
too high: they only cost time, or give a worse list.

**Rounding.** Elimination in doubles is exact for statistics that differ by ``|E_ij| <= e sqrt(M_ii M_jj)``, where e is
a few ``2^-53`` for every column (N. Higham, Accuracy and Stability of Numerical Algorithms, theorem 10.3, on the matrix
bordered by h and c; pivots stay positive because mu is never quite 0). In the ball such a difference moves a relaxed
score by at most ``e (sqrt(c) + r sqrt(k max M_jj))^2``, however ill-conditioned M is. `rounding_error` takes
``e = (k + 8) 2^-50`` for k columns, several times the theorem's requirement, with room for the conversion of integers,
scaling, changes of basis and sums of bounds. The code lowers ``kappa`` by ``k e``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.arrays import Doubles
from dpsql.dataclass import dataclass
from dpsql.kernels import best_subsets_numpy
from dpsql.kernels.ball_least_squares import SCORE_CAP, SCORE_UNIT, SCORE_WIDTH, BallLeastSquares
from dpsql.kernels.best_subsets_bounds import Relaxation, SearchSpace, margin, pair_gains
from dpsql.kernels.gram import one_thread
from dpsql.kernels.workers import Compiled

# After a complete search, the last listed score exceeds the lower bound by at most this width.
LIST_WIDTH = Fraction(1, 1 << 17)

# Score up to this many subsets one by one.
_ENUMERATED = 4096
_SWAP_COLUMNS = 256
_SWAPS = 30
# More subsets within the slack than this multiple of the list are a tie.
_TIES = 4
# Numbers that NumPy computes in some tenths of a second.
_WORTH_COMPILING = 12_000_000

Sets = NDArray[np.int32]

compiled_kernels = Compiled("dpsql.kernels.best_subsets_compiled", _WORTH_COMPILING)


def warm_up() -> None:
    """Load the compiled search and wait for it."""
    compiled_kernels.start().join()


@dataclass(frozen=True)
class BestSubsets:
    """The subsets of lowest score, and a bound for all others.

    Attributes
    ----------
    subsets : ndarray of int32, shape (R, size)
        Column numbers counted without the forced columns, ascending in a row. Rows ascend by score, then in
        lexicographic order. R is the requested number, or the number of all subsets if smaller.
    scores : ndarray of int64, shape (R,)
        In units of `SCORE_UNIT`; equal to `BallLeastSquares.scores`.
    lower_bound : int
        Lower bound on the scores of all other subsets; `SCORE_CAP` if the list is complete.
    exhausted : bool
        Whether the search ended before its node limit. If so, the list has the R lowest scores; if more subsets tie at
        its end than fit, their scores are right to within `LIST_WIDTH`.
    nodes : int
        Number of sets of fewer than `size` columns expanded by the search.
    """

    subsets: Sets
    scores: NDArray[np.int64]
    lower_bound: int
    exhausted: bool
    nodes: int


def best_subsets(
    gram: ArrayLike,
    cross: ArrayLike,
    total: int,
    *,
    size: int,
    count: int,
    radius: Fraction,
    ridge: Fraction,
    forced: int = 0,
    node_limit: int | None = None,
    tick: Callable[[], object] | None = None,
) -> BestSubsets:
    """List the subsets of lowest score, with a certified lower bound on the scores of all others.

    Parameters
    ----------
    gram, cross, total, radius, ridge, forced
        The problem, as for `BallLeastSquares`.
    size : int
        Chosen columns per subset, in [1, p], without the forced ones; p = len(gram) - forced.
    count : int
        Subsets to list, >= 1.
    node_limit : int, optional
        The search stops after this many nodes and lists its best subsets; the lower bound holds.
    tick : callable, optional
        Called every few tenths of a second; its exceptions stop the search. It takes no argument, because the progress
        of the search depends on the data.

    Returns
    -------
    BestSubsets

    Notes
    -----
    Exact, not private. The list, the bound and above all the running time depend on the data.
    """
    problem = BallLeastSquares(gram, cross, total, radius=radius, ridge=ridge, forced=forced)
    width = len(problem.vector) - forced
    subsets = math.comb(width, size)
    if subsets <= max(count, _ENUMERATED):
        every = np.array(list(combinations(range(width), size)), dtype=np.int32).reshape(subsets, size)
        return _listed(problem, every, count, SCORE_CAP, exhausted=True, nodes=0)
    with one_thread():
        return _search(problem, size, count, node_limit, tick)


def score_floors(problem: BallLeastSquares, subsets: ArrayLike) -> NDArray[np.int64]:
    """Return certified lower bounds on the scores of subsets, shape (m, size), much faster than `scores`."""
    rows = np.asarray(subsets)
    least = (problem.dual(rows) - margin(problem, rows.shape[1])) / float(SCORE_UNIT)
    return np.floor(np.clip(least, -float(SCORE_CAP), float(SCORE_CAP))).astype(np.int64) - 2


def _search(
    problem: BallLeastSquares, size: int, count: int, node_limit: int | None, tick: Callable[[], object] | None
) -> BestSubsets:
    rounding = margin(problem, size)
    pool = _Pool(problem, size, count, rounding)
    seeds, multiplier = _seed(problem, size, count)
    pool.add(seeds)
    space = SearchSpace(Relaxation(problem, multiplier), size)
    nodes = 0
    while True:
        most = math.inf if node_limit is None else node_limit - nodes
        done, bound, entered = _explore(space, size, pool, most, tick)
        nodes += entered
        units = math.floor(max(min(bound, pool.limit) - rounding, 0.0) / float(SCORE_UNIT)) - 2
        best = _listed(problem, pool.sets, count, units, done, nodes)
        if not done or best.lower_bound >= best.scores[-1] - LIST_WIDTH // SCORE_UNIT:
            return best
        # Dual values fell short of the scores by more than rounding: search once more, up to the scores.
        pool.widen(int(best.scores[-1]))


class _Search(Protocol):
    """A search that runs in pieces, in NumPy or compiled; see `best_subsets_numpy.Search`."""

    nodes: int

    @property
    def done(self) -> bool: ...

    def open_bound(self) -> float: ...

    def run(self, limit: float, nodes: float) -> Sets: ...


def _explore(
    space: SearchSpace, size: int, pool: _Pool, most: float, tick: Callable[[], object] | None
) -> tuple[bool, float, int]:
    """Search up to `most` nodes; return (whether no node is open, lower bound, nodes)."""
    kernels = compiled_kernels(0) if size > 1 else None
    search: _Search = (kernels or best_subsets_numpy).Search(space, size)
    nodes = 0
    while not search.done and nodes + search.nodes < most:
        pool.add(space.subsets(search.run(pool.limit, most - nodes - search.nodes)))
        if tick is not None:
            tick()
        if kernels is None and size > 1:
            kernels = compiled_kernels(best_subsets_numpy.Search.cells_per_run)
            if kernels is not None and not search.done:
                nodes, search = nodes + search.nodes, kernels.Search(space, size)
    return search.done, search.open_bound(), nodes + search.nodes


def _listed(problem: BallLeastSquares, sets: Sets, count: int, bound: int, exhausted: bool, nodes: int) -> BestSubsets:
    """Score the sets and list the best; `bound` holds for all subsets outside the sets."""
    scores = problem.scores(sets)
    order = np.lexsort((*sets.T[::-1], scores))
    if len(order) > count:
        bound = min(bound, int(scores[order[count]]))
    order = order[:count]
    return BestSubsets(sets[order], scores[order], max(bound, 0), exhausted, nodes)


class _Pool:
    """Distinct subsets with their dual values: all seen below the limit, and at least `count` if possible.

    The limit is the count-th least value plus a slack that covers rounding and the width of canonical scores. The slack
    is below 0 if too many subsets tie and rounding is small enough for the promise of `LIST_WIDTH`.
    """

    def __init__(self, problem: BallLeastSquares, size: int, count: int, rounding: float) -> None:
        self.sets: Sets = np.empty((0, size), dtype=np.int32)
        self.values: Doubles = np.empty(0)
        self.limit = math.inf
        self._problem, self._count, self._rounding = problem, count, rounding
        self._slack = 2 * rounding + 2 * float(SCORE_WIDTH)
        self._least_limit = -math.inf

    def add(self, sets: Sets) -> None:
        """Add subsets and lower the limit."""
        values = self._problem.dual(sets)
        below = values < self.limit
        if not below.any():
            return
        sets = np.concatenate((self.sets, np.sort(sets[below], axis=1)))
        values = np.concatenate((self.values, values[below]))
        first = _distinct(sets)
        order = first[np.argsort(values[first], kind="stable")]
        sets, values = sets[order], values[order]
        if len(sets) >= self._count:
            last = float(values[self._count - 1])
            many = np.searchsorted(values, last + self._slack) > _TIES * self._count + _ENUMERATED
            if many and self._rounding <= SCORE_WIDTH:
                self._slack = -abs(self._slack)
            self.limit = max(self._least_limit, min(self.limit, last + self._slack))
        keep = (values < self.limit) | (np.arange(len(values)) < self._count)
        self.sets, self.values = sets[keep], values[keep]

    def widen(self, score: int) -> None:
        """Raise the limit for good above all subsets up to a canonical score."""
        self.limit = self._least_limit = float(score * SCORE_UNIT + SCORE_WIDTH) + 2 * self._rounding


def _distinct(sets: Sets) -> NDArray[np.intp]:
    """Return the first position of each distinct row."""
    rows = np.ascontiguousarray(sets).view(np.dtype((np.void, sets.itemsize * sets.shape[1])))[:, 0]
    return np.unique(rows, return_index=True)[1]


def _seed(problem: BallLeastSquares, size: int, count: int) -> tuple[Sets, float]:
    """Return good subsets, and a multiplier of the ball for similar subsets.

    The subsets are distinct; each differs in at most two columns from the result of greedy search and swaps.
    """
    relaxation = Relaxation(problem, 0.0)
    chosen = _improve(relaxation, _greedy(relaxation, size))
    multiplier = float(problem.multipliers([chosen])[0])
    if multiplier > 0.0:
        relaxation = Relaxation(problem, multiplier)
        chosen = _improve(relaxation, chosen)
    others = np.setdiff1d(np.arange(len(relaxation.cross)), chosen)
    sets, values = [np.array([chosen])], [np.array([-np.inf])]
    for combination in combinations(chosen, size - 1):
        value, products, diagonal, _ = relaxation.eliminate(combination)
        sets.append(np.column_stack((np.tile(combination, (len(others), 1)), others)))
        values.append(value - products[others] ** 2 / diagonal[others])
    for core in combinations(chosen, size - 2) if size > 1 else ():
        value, products, diagonal, rows = relaxation.eliminate(core)
        best = others[np.argsort(-(products[others] ** 2) / diagonal[others], kind="stable")[:_SWAP_COLUMNS]]
        schur = relaxation.gram[np.ix_(best, best)] - rows[:, best].T @ rows[:, best]
        gains = pair_gains(schur, products[best], diagonal[best])
        first, second = np.triu_indices(len(best), 1)
        sets.append(np.column_stack((np.tile(core, (len(first), 1)), best[first], best[second])))
        values.append(value - gains[first, second])
    best = np.argsort(np.concatenate(values), kind="stable")[: count + count // 4 + 100]
    return np.concatenate(sets).astype(np.int32)[best], multiplier


def _greedy(relaxation: Relaxation, size: int) -> list[int]:
    """Return the columns of forward selection."""
    chosen: list[int] = []
    for _ in range(size):
        _, column = _next(relaxation, chosen, [])
        chosen.append(column)
    return chosen


def _improve(relaxation: Relaxation, chosen: list[int]) -> list[int]:
    """Swap one column for another while a swap lowers the relaxed score."""
    best = relaxation.eliminate(chosen)[0]
    for _ in range(_SWAPS):
        swaps = [(*_next(relaxation, [*chosen[:k], *chosen[k + 1 :]], chosen), k) for k in range(len(chosen))]
        value, column, k = min(swaps)
        if not value < best:
            break
        best, chosen = value, [*chosen[:k], column, *chosen[k + 1 :]]
    return chosen


def _next(relaxation: Relaxation, chosen: list[int], without: list[int]) -> tuple[float, int]:
    """Return (relaxed score, column) of the column whose addition to the chosen columns lowers the score most."""
    value, products, diagonal, _ = relaxation.eliminate(chosen)
    columns = [*chosen, *without]
    products[columns], diagonal[columns] = 0.0, 1.0
    gains = products**2 / diagonal
    gains[columns] = -1.0
    column = int(np.argmax(gains))
    return value - float(gains[column]), column
