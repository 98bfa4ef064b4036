"""A partition of all subsets of a size by similar scores, with a certified lower bound for each part.

`dpsql.mechanisms.subset_exponential` draws a subset by rejection. If no subset stands out from the others, almost every
round goes to unlisted subsets, and one lower bound on all their scores is far below most scores.

Some columns are strong. The remainders of the other columns after elimination of a set A of strong columns divide them
into a few classes, from strongest to weakest. A stratum is the subsets ``A + T`` where T has given numbers of columns
of A's classes, t in all: every subset is in exactly one stratum. The stratum's bound is a node's bound in the search of
`dpsql.kernels.best_subsets`; the node has chosen A, and has all columns left that are not strong:

    relaxed score of A - (sum of the largest c_j^2 of each class, as many as it gives) / kappa,

or for one more column the relaxed score of A minus the largest ``c_j^2 / d_j`` of its class; less the rounding error,
`margin`. That argument holds for any set A and for any multiplier of the ball that some subset has. No unlisted subset
scores below the certificate of the search either: the larger bound counts.

Nearly equal columns have forms of their own: one represents k next to j, for j before k (`SearchSpace`). Strong columns
come before all others, so A has a form that does not depend on T. A subset takes one form of a weak column; the form of
the largest ``c_j^2`` represents all its forms.

The choice and number of strong columns and the classes affect only the running time.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.kernels.ball_least_squares import SCORE_CAP, SCORE_UNIT, BallLeastSquares
from dpsql.kernels.best_subsets import BestSubsets
from dpsql.kernels.best_subsets_bounds import Relaxation, SearchSpace, margin

Indices = NDArray[np.intp]

_MOST_STRATA = 20_000
# Numbers in a table of classes.
_MOST_CLASSES = 1 << 20
_WEAK_CLASSES = range(7, 0, -1)
# Numbers per array of elimination.
_CELLS = 1 << 17


def subset_strata(
    problem: BallLeastSquares, best: BestSubsets, *, most: int = _MOST_STRATA
) -> tuple[Indices, Indices, Indices, NDArray[np.int64]]:
    """Split all subsets into strata, and bound the scores of the unlisted ones in each.

    Parameters
    ----------
    problem : BallLeastSquares
    best : BestSubsets
        Result of `best_subsets` for that problem; at least one subset.
    most : int
        Strata, roughly.

    Returns
    -------
    classes : ndarray of intp, shape (divisions, p)
        The class of each column, counted without the forced columns, in several divisions of all columns into classes
        of equal sizes. Each strong column has its own class, the same in all divisions.
    division : ndarray of intp, shape (strata,)
        The division whose classes a stratum counts: one for each set of strong columns.
    counts : ndarray of intp, shape (strata, number of classes)
        Number of columns of each class in a stratum's subsets: all possible counts.
    lower_bounds : ndarray of int64, shape (strata,)
        In units of `SCORE_UNIT`: no unlisted subset of the stratum has a lower score.

    Notes
    -----
    Exact, not private. Everything here depends on the data.
    """
    size = best.subsets.shape[1]
    width = len(problem.vector) - problem.forced
    relaxation = Relaxation(problem, float(problem.multipliers(best.subsets[:1])[0]))
    n_strong, n_weak = _numbers(width, size, most)
    # Columns are now numbered by strength.
    order = _by_strength(relaxation, best.subsets[0])
    relaxation.gram, relaxation.cross = relaxation.gram[np.ix_(order, order)], relaxation.cross[order]
    space = SearchSpace(relaxation, size)
    edges = np.ceil((width - n_strong) ** (np.arange(1, n_weak + 1) / max(1, n_weak)))
    labels = np.searchsorted(edges, np.arange(width - n_strong), side="right")
    sizes = np.bincount(labels, minlength=n_weak)
    # Ranks of the weak columns, by division.
    ranks = [np.arange(width - n_strong)[None]]
    division, counts, bounds = [], [], []
    for chosen in range(min(size, n_strong) + 1):
        sets, shares = _combinations(n_strong, chosen), _shares(size - chosen, n_weak)
        shares = shares[(shares <= sizes).all(axis=1)]
        if not len(shares):
            continue
        values, gains = _gains(space, n_strong, width, sets, size - chosen)
        first = sum(map(len, ranks))
        own = size - chosen > 1 and (first + len(sets)) * width <= _MOST_CLASSES
        if own:
            ranks.append(_ranks(np.argsort(-gains, axis=1, kind="stable")))
        is_member = (sets[:, :, None] == np.arange(n_strong)).any(axis=1)
        division.append(np.repeat(np.arange(first, first + len(sets)) * own, len(shares)))
        counts.append(np.column_stack((np.repeat(is_member, len(shares), axis=0), np.tile(shares, (len(sets), 1)))))
        ordered = np.empty(gains.shape)
        np.put_along_axis(ordered, ranks[-1] if own else ranks[0], gains, axis=1)
        bounds.append((values[:, None] - _largest(ordered, sizes, shares)).ravel())
    relaxed = np.concatenate(bounds) - margin(problem, size)
    units = np.floor(np.clip(relaxed / float(SCORE_UNIT), -float(SCORE_CAP), float(SCORE_CAP >> 1)))
    # Scores are sums of squares, rounded down.
    lower_bounds = np.maximum(units.astype(np.int64) - 2, max(best.lower_bound, 0))
    classes = np.empty((sum(map(len, ranks)), width), dtype=np.intp)
    classes[:, order[:n_strong]] = np.arange(n_strong)
    classes[:, order[n_strong:]] = n_strong + labels[np.concatenate(ranks)]
    return classes, np.concatenate(division), np.concatenate(counts), lower_bounds


def _ranks(orders: Indices) -> Indices:
    """Return the inverses of permutations, one per row."""
    ranks = np.empty_like(orders)
    np.put_along_axis(ranks, orders, np.arange(orders.shape[1])[None], axis=1)
    return ranks


def _combinations(count: int, size: int) -> Indices:
    return np.array(list(combinations(range(count), size)), dtype=np.intp).reshape(math.comb(count, size), size)


def _shares(count: int, parts: int) -> Indices:
    """Return all ways to split `count` into `parts` numbers, shape (ways, parts)."""
    if not parts:
        return np.empty((int(count == 0), 0), dtype=np.intp)
    bars = _combinations(count + parts - 1, parts - 1)
    return np.diff(bars, axis=1, prepend=-1, append=count + parts - 1) - 1


def _numbers(width: int, size: int, most: int) -> tuple[int, int]:
    """Return the number of strong columns and of weak classes to use."""
    for parts in _WEAK_CLASSES:
        strong = 0
        while strong < width and _strata(strong + 1, size, parts) <= most:
            strong += 1
        if strong >= min(size + 2, width):
            break
    return strong, parts if strong < width else 0


def _strata(strong: int, size: int, parts: int) -> int:
    return sum(math.comb(strong, k) * math.comb(size - k + parts - 1, parts - 1) for k in range(size + 1))


def _by_strength(relaxation: Relaxation, best: NDArray[np.int32]) -> Indices:
    """Return all columns: the best subset's, then the others by their gain next to it, largest first."""
    _, products, diagonal, _ = relaxation.eliminate(best.tolist())
    gains = np.divide(products**2, diagonal, out=np.zeros(len(products)), where=diagonal > 0)
    gains[best] = np.inf
    return np.argsort(-gains, kind="stable")


def _gains(space: SearchSpace, n_strong: int, width: int, sets: Indices, count: int) -> tuple[Doubles, Doubles]:
    """Return (relaxed scores of sets of strong columns, largest gains of weak columns when `count` are added)."""
    strong = np.arange(n_strong)
    scores, most = np.empty(len(sets)), np.zeros((len(sets), width - n_strong))
    if not count:
        return _eliminate(space, strong, sets)[0], most
    column = space.stands_for[: len(space.gram)]
    forms = np.flatnonzero(column >= n_strong)
    forms = forms[np.argsort(column[forms], kind="stable")]
    starts = np.flatnonzero(np.diff(column[forms], prepend=-1))
    columns = np.concatenate((strong, forms))
    step = max(1, _CELLS // len(columns))
    for begin in range(0, len(sets), step):
        part = slice(begin, begin + step)
        scores[part], products, diagonal = _eliminate(space, columns, sets[part])
        squares = np.maximum.reduceat(products[:, n_strong:] ** 2, starts, axis=1)
        diagonal = np.minimum.reduceat(diagonal[:, n_strong:], starts, axis=1)
        if count == 1:
            most[part] = np.divide(squares, diagonal, out=np.full(squares.shape, np.inf), where=diagonal > 0)
        else:
            most[part] = squares / space.kappa(count, diagonal)[:, None]
    return scores, most


def _largest(gains: Doubles, sizes: Indices, shares: Indices) -> Doubles:
    """Return the sums of the largest gains of every class, as many as its share, shape (sets, shares)."""
    total = np.zeros((len(gains), len(shares)))
    for part, share in zip(np.split(gains, np.cumsum(sizes)[:-1], axis=1), shares.T, strict=False):
        most = int(share.max())
        largest = -np.sort(-part, axis=1)[:, :most]
        total += np.cumsum(np.pad(largest, ((0, 0), (1, 0))), axis=1)[:, share]
    return total


def _eliminate(space: SearchSpace, columns: Indices, sets: Indices) -> tuple[Doubles, Doubles, Doubles]:
    """Return (relaxed scores, residual products, diagonals) of some columns, given sets of positions among them."""
    every = np.arange(len(sets))
    values = np.full(len(sets), space.constant)
    products = np.tile(space.cross[columns], (len(sets), 1))
    diagonal = np.ones(products.shape)
    rows: list[Doubles] = []
    for position in sets.T:
        row = space.gram[columns[position][:, None], columns]
        for earlier in rows:
            row -= earlier[every, position][:, None] * earlier
        root = np.sqrt(diagonal[every, position])
        row /= root[:, None]
        image = products[every, position] / root
        values -= image * image
        products -= row * image[:, None]
        diagonal -= row * row
        rows.append(row)
    return values, products, diagonal
