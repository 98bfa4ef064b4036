"""The branch and bound of `best_subsets` in NumPy, for small searches and before the compiled search is loaded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.kernels.best_subsets_bounds import SearchSpace

_LEAVES = 4096
# Children of a node processed together.
_BLOCK = 64


@dataclass(slots=True)
class _Node:
    """A set of chosen columns, and the others after their elimination."""

    chosen: tuple[int, ...]
    columns: NDArray[np.intp]
    products: Doubles
    diagonal: Doubles
    rows: Doubles  # of the Cholesky factor, shape (len(chosen), len(columns))
    value: float
    bound: float  # on the relaxed scores of all unseen subsets below
    bounds: Doubles | None = None  # the same from each child on, ascending, once the columns have an order
    position: int = 0


class Search:
    """A depth-first search that runs in pieces."""

    cells_per_run = 4_000_000  # some tenths of a second

    def __init__(self, space: SearchSpace, size: int) -> None:
        self._space, self._size = space, size
        self.nodes = self.cells = 0
        width = len(space.cross)
        self._stack = [
            _Node((), np.arange(width), space.cross, np.ones(width), np.empty((0, width)), space.constant, -np.inf)
        ]

    @property
    def done(self) -> bool:
        """Whether no node is open."""
        return not self._stack

    def open_bound(self) -> float:
        """Return a lower bound on the relaxed scores of all subsets in open nodes."""
        return min((node.bound for node in self._stack), default=np.inf)

    def run(self, limit: float, nodes: float) -> NDArray[np.int32]:
        """Continue the search for a while, for about `nodes` nodes at most.

        Returns the found subsets with a relaxed score below `limit`, shape (m, size).
        """
        subsets = [np.empty((0, self._size), dtype=np.int32)]
        count, nodes, cells = 0, self.nodes + nodes, self.cells + self.cells_per_run
        while self._stack and self.nodes < nodes and self.cells < cells and count < _LEAVES:
            node = self._stack[-1]
            if node.bound >= limit:
                self._stack.pop()
                continue
            if node.bounds is None:
                self._order(node, limit)
            elif self._size == len(node.chosen) + 1:
                self._stack.pop()
                subsets.append(self._sets(node, np.arange(len(node.columns))[:, None]))
            else:
                subsets.append(self._expand(node, node.bounds, limit))
            count += len(subsets[-1])
        return np.concatenate(subsets)

    def _order(self, node: _Node, limit: float) -> None:
        """Order a node's columns, and drop columns that are in no subset below the limit."""
        height = self._size - len(node.chosen)
        gains = node.products * node.products
        gains /= node.diagonal if height == 1 else self._space.kappa(height, node.diagonal)
        order = np.argsort(-gains, kind="stable")
        gains = gains[order]
        order = order[node.value - (gains + gains[: height - 1].sum()) < limit]
        sums = np.concatenate(([0.0], np.cumsum(gains[: len(order)])))
        node.bounds = np.append(np.maximum.accumulate(node.value - (sums[height:] - sums[:-height])), np.inf)
        node.bound = float(node.bounds[0])
        node.columns, node.products, node.diagonal = node.columns[order], node.products[order], node.diagonal[order]
        node.rows = node.rows[:, order]

    def _expand(self, node: _Node, ends: Doubles, limit: float) -> NDArray[np.int32]:
        """Process some children of a node: push them on the stack, or return the subsets completed by two columns.

        `ends` holds the node's bounds from each child on.
        """
        height = self._size - len(node.chosen) - 1
        first = node.position
        last = min(first + _BLOCK, int(np.searchsorted(ends, limit)))
        node.position, node.bound = last, float(ends[last])
        self.nodes += last - first
        # Eliminate each child's column from the columns after the block's first; columns not after it gain nothing.
        own = slice(first, last)
        roots = np.sqrt(node.diagonal[own])
        images = node.products[own] / roots
        rows = self._space.gram[node.columns[own, None], node.columns[first:]]
        self.cells += rows.size
        rows -= node.rows[:, own].T @ node.rows[:, first:]
        rows /= roots[:, None]
        products = node.products[first:] - rows * images[:, None]
        diagonal = node.diagonal[first:] - rows * rows
        values = node.value - images * images
        gains = products * products
        out = np.tri(*rows.shape, dtype=np.bool_)
        if len(self._space.conflicts):
            out |= self._space.conflicts[node.columns[own, None], node.columns[first:]]
        gains[out], diagonal[out] = 0.0, 1.0
        if height == 1:
            gains /= diagonal
            return self._sets(node, np.argwhere((values[:, None] - gains < limit) & ~out) + first)
        kappas = self._space.kappa(height, diagonal)
        bounds = values - np.partition(gains, -height, axis=1)[:, -height:].sum(axis=1) / kappas
        for k in reversed(np.flatnonzero(bounds < limit).tolist()):
            later = np.flatnonzero(~out[k])
            if len(later) >= height:
                self._stack.append(
                    _Node(
                        (*node.chosen, int(node.columns[first + k])),
                        node.columns[first + later],
                        products[k, later],
                        diagonal[k, later],
                        np.vstack((node.rows[:, first + later], rows[k, later])),
                        float(values[k]),
                        float(bounds[k]),
                    )
                )
        return self._sets(node, np.empty((0, 1), dtype=np.intp))

    def _sets(self, node: _Node, positions: NDArray[np.intp]) -> NDArray[np.int32]:
        """Return the subsets: the node's columns plus the given positions."""
        sets = np.empty((len(positions), self._size), dtype=np.int32)
        sets[:, : len(node.chosen)] = node.chosen
        sets[:, len(node.chosen) :] = node.columns[positions]
        return sets
