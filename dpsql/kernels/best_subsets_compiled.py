"""The compiled branch and bound of `best_subsets`. Importing this module compiles it, or loads numba's cache.

It uses the bounds of `best_subsets_numpy`, node by node instead of in blocks.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Longs
from dpsql.kernels.best_subsets_bounds import SearchSpace

_LEAVES = 4096
# Numbers computed per run, a tenth of a second; opening a node counts as several.
_CELLS = 40_000_000
_CELLS_PER_NODE = 64


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _largest(values: Doubles, count: int) -> float:
    """Return the sum of the `count` largest of non-negative values."""
    top = np.zeros(count)
    for value in values:
        if value > top[0]:
            k = 0
            while k + 1 < count and top[k + 1] < value:
                top[k] = top[k + 1]
                k += 1
            top[k] = value
    total = 0.0
    for value in top:
        total += value
    return total


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _sort(keys: Doubles, order: Longs) -> None:
    """Sort keys in descending order by Shell's sort, and `order` with them."""
    gap = 1
    while 3 * gap < len(keys):
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, len(keys)):
            key, index, j = keys[i], order[i], i
            while j >= gap and keys[j - gap] < key:
                keys[j], order[j] = keys[j - gap], order[j - gap]
                j -= gap
            keys[j], order[j] = key, index
        gap //= 3


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _kappa(kappas: Doubles, size: int, lost: Doubles) -> float:
    """Return a lower bound on the least eigenvalue of `size` columns, given the loss on each diagonal entry."""
    least: float = kappas[len(kappas) - 1]
    if kappas[size - 1] <= least:
        return least
    bound: float = kappas[size - 1] - _largest(lost, size)
    return max(least, bound)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def descend(
    gram: Doubles,
    conflicts: NDArray[np.bool_],
    kappas: Doubles,
    limit: float,
    cells: int,
    most: int,
    level: int,
    chosen: Longs,
    counts: Longs,
    positions: Longs,
    values: Doubles,
    kappa: Doubles,
    columns: Longs,
    products: Doubles,
    diagonal: Doubles,
    rows: Doubles,
    out: NDArray[np.int32],
) -> tuple[int, int, int]:
    """Continue from a level until about `cells` numbers are computed, `most` nodes are seen, or `out` is full.

    Level k of the arrays is the open node of k chosen columns, its other columns in descending order of their products.
    Returns (level, -1 at the end; leaves written to `out`; nodes).
    """
    size, width = len(kappas), gram.shape[0]
    leaves = nodes = 0
    row, rest, lost, gains = np.empty(width), np.empty(width), np.empty(width), np.empty(width)
    order = np.empty(width, dtype=np.int64)
    while level >= 0 and cells > 0 and nodes < most and leaves + width <= len(out):
        k, a, m = level, positions[level], counts[level]
        height = size - k - 1
        total = 0.0
        for b in range(a, min(a + height + 1, m)):
            total += products[k, b] ** 2
        if a + height >= m or values[k] - total / kappa[k] >= limit:
            level -= 1
            continue
        positions[k] = a + 1
        nodes += 1
        # The columns that may follow: their products leave room for a subset below the limit.
        n = m - a - 1
        if height == 1:
            needed = (values[k] - limit) * kappa[k] - products[k, a] ** 2
            while n > 1 and products[k, a + n] ** 2 < needed:
                n -= 1
        cells -= n * (k + 2) + _CELLS_PER_NODE
        chosen[k] = columns[k, a]
        root = np.sqrt(diagonal[k, a])
        image = products[k, a] / root
        value = values[k] - image * image
        line = gram[columns[k, a]]
        later = columns[k, a + 1 : a + 1 + n]
        r = row[:n]
        for b in range(n):
            r[b] = line[later[b]]
        for q in range(k):
            factor = rows[k, q, a]
            earlier = rows[k, q, a + 1 : a + 1 + n]
            for b in range(n):
                r[b] -= factor * earlier[b]
        c, d, g = rest[:n], lost[:n], gains[:n]
        before, squares = products[k, a + 1 : a + 1 + n], diagonal[k, a + 1 : a + 1 + n]
        inverse = 1.0 / root
        for b in range(n):
            r[b] *= inverse
            c[b] = before[b] - r[b] * image
            d[b] = squares[b] - r[b] * r[b]
            g[b] = c[b] * c[b]
        if len(conflicts):
            excluded = conflicts[columns[k, a]]
            for b in range(n):
                if excluded[later[b]]:
                    g[b], d[b] = -np.inf, 1.0
        if height == 1:
            least = value - limit
            for b in range(n):
                if g[b] > least * d[b]:
                    for q in range(k + 1):
                        out[leaves, q] = chosen[q]
                    out[leaves, k + 1] = later[b]
                    leaves += 1
            continue
        for b in range(n):
            d[b] = 1.0 - d[b]
        bound = _kappa(kappas, height, d)
        needed = (value - limit) * bound
        if _largest(g, height) <= needed:
            continue
        needed -= _largest(g, height - 1)
        survivors = 0
        for b in range(n):
            if g[b] > needed:
                gains[survivors], order[survivors] = g[b], b
                survivors += 1
        if survivors < height:
            continue
        _sort(gains[:survivors], order[:survivors])
        level += 1
        for i in range(survivors):
            b = order[i]
            columns[level, i], products[level, i], diagonal[level, i] = later[b], c[b], 1.0 - d[b]
            rows[level, k, i] = r[b]
        for q in range(k):
            for i in range(survivors):
                rows[level, q, i] = rows[k, q, a + 1 + order[i]]
        counts[level], positions[level], values[level], kappa[level] = survivors, 0, value, bound
    return level, leaves, nodes


class Search:
    """A depth-first search that runs in pieces, for size >= 2; see `best_subsets_numpy.Search`."""

    def __init__(self, space: SearchSpace, size: int) -> None:
        width, levels = len(space.cross), size - 1
        self.nodes, self._size = 0, size
        self._gram, self._conflicts, self._kappas = np.ascontiguousarray(space.gram), space.conflicts, space.kappas
        self._level = 0
        self._counts, self._positions = np.zeros((2, levels), dtype=np.int64)
        self._values, self._kappa = np.zeros((2, levels))
        self._chosen = np.zeros(size, dtype=np.int64)
        self._columns = np.zeros((levels, width), dtype=np.int64)
        self._products, self._diagonal = np.zeros((2, levels, width))
        self._rows = np.zeros((levels, max(levels - 1, 1), width))
        self._out = np.zeros((_LEAVES + width, size), dtype=np.int32)
        order = np.argsort(-(space.cross**2), kind="stable")
        self._columns[0], self._products[0], self._diagonal[0] = order, space.cross[order], 1.0
        self._counts[0], self._values[0], self._kappa[0] = width, space.constant, space.kappas[-1]

    @property
    def done(self) -> bool:
        """Whether no node is open."""
        return self._level < 0

    def open_bound(self) -> float:
        """Return a lower bound on the relaxed scores of all subsets in open nodes."""
        bound = np.inf
        for level in range(self._level + 1):
            first = self._positions[level]
            last = min(first + self._size - level, self._counts[level])
            gain = (self._products[level, first:last] ** 2).sum() / self._kappa[level]
            bound = min(bound, float(self._values[level] - gain))
        return bound

    def run(self, limit: float, nodes: float) -> NDArray[np.int32]:
        """Continue the search for a while, for at most `nodes` nodes; see `best_subsets_numpy.Search`."""
        self._level, leaves, entered = descend(
            self._gram,
            self._conflicts,
            self._kappas,
            limit,
            _CELLS,
            int(min(nodes, _CELLS)),
            self._level,
            self._chosen,
            self._counts,
            self._positions,
            self._values,
            self._kappa,
            self._columns,
            self._products,
            self._diagonal,
            self._rows,
            self._out,
        )
        self.nodes += entered
        return self._out[:leaves].copy()


def compile_all() -> None:
    """Compile the kernel for its argument types."""
    space = object.__new__(SearchSpace)
    space.gram, space.cross, space.kappas, space.constant = np.eye(3), np.ones(3), np.ones(3), 0.0
    space.conflicts = np.zeros((0, 0), dtype=np.bool_)
    Search(space, 3).run(0.0, 1)
