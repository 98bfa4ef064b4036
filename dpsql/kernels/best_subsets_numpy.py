"""The branch and bound of `best_subsets` in NumPy: serves small searches, before the compiled one has loaded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.kernels.best_subsets_bounds import Relaxation, pair_gains

Doubles = NDArray[np.float64]

_LEAVES = 4096


@dataclass(slots=True)
class _Node:
    """A set of chosen columns, and what elimination of them left of the others, best first."""

    chosen: tuple[int, ...]
    columns: NDArray[np.intp]
    products: Doubles
    diagonal: Doubles
    rows: Doubles  # of the Cholesky factor, shape (len(chosen), len(columns))
    value: float
    bounds: Doubles  # on the relaxed scores below each child, ascending
    place: int = 0


class Search:
    """A depth-first search that runs in pieces."""

    def __init__(self, relaxation: Relaxation, size: int) -> None:
        self._relaxation, self._size = relaxation, size
        self.nodes = 0
        self._stack: list[_Node] = []
        width = len(relaxation.cross)
        root = _Node(
            (), np.arange(width), relaxation.cross, np.ones(width), np.empty((0, width)), relaxation.constant, _NONE
        )
        self._push(root, np.inf)

    @property
    def done(self) -> bool:
        """Whether no node is left open."""
        return not self._stack

    def open_bound(self) -> float:
        """Return a lower bound on the relaxed scores of all subsets in open nodes."""
        return min((float(node.bounds[node.place]) for node in self._stack), default=np.inf)

    def run(self, limit: float, nodes: int) -> NDArray[np.int32]:
        """Go into about `nodes` nodes; return the subsets met whose relaxed score is below `limit`, shape (m, size)."""
        found = [np.empty((0, self._size), dtype=np.int32)]
        count, last = 0, self.nodes + nodes
        while self._stack and self.nodes < last and count < _LEAVES:
            node = self._stack[-1]
            if node.place == len(node.bounds) or node.bounds[node.place] >= limit:
                self._stack.pop()
            elif self._size - len(node.chosen) <= 2:
                self._stack.pop()
                found.append(self._leaves(node, limit))
                count += len(found[-1])
                self.nodes += len(node.bounds)
            else:
                node.place += 1
                self.nodes += 1
                self._push(self._child(node, node.place - 1), limit)
        return np.concatenate(found)

    def _child(self, node: _Node, place: int) -> _Node:
        """Return the node of one more column, with the columns after it left to choose from."""
        later = slice(place + 1, None)
        root = np.sqrt(node.diagonal[place])
        row = self._relaxation.gram[node.columns[place], node.columns[later]]
        row = (row - node.rows[:, place] @ node.rows[:, later]) / root
        image = float(node.products[place] / root)
        return _Node(
            (*node.chosen, int(node.columns[place])),
            node.columns[later],
            node.products[later] - row * image,
            node.diagonal[later] - row * row,
            np.vstack((node.rows[:, later], row)),
            node.value - image * image,
            _NONE,
        )

    def _push(self, node: _Node, limit: float) -> None:
        """Sort a node's columns, leave out those that are in no subset below the limit, and put it on the stack."""
        left = self._size - len(node.chosen)
        if len(node.columns) < left:
            return
        gains = node.products * node.products
        order = np.argsort(-gains, kind="stable")
        gains = gains[order]
        kappa = self._relaxation.kappa(left, node.diagonal)
        order = order[node.value - (gains + gains[: left - 1].sum()) / kappa < limit]
        if len(order) < left:
            return
        sums = np.concatenate(([0.0], np.cumsum(gains[: len(order)])))
        node.bounds = np.maximum.accumulate(node.value - (sums[left:] - sums[:-left]) / kappa)
        node.columns, node.products, node.diagonal = node.columns[order], node.products[order], node.diagonal[order]
        node.rows = node.rows[:, order]
        self._stack.append(node)

    def _leaves(self, node: _Node, limit: float) -> NDArray[np.int32]:
        """Return the subsets of one or two columns more than the node's whose relaxed score is below the limit."""
        if self._size - len(node.chosen) == 1:
            places = np.flatnonzero(node.value - node.products**2 / node.diagonal < limit)[:, None]
        else:
            schur = self._relaxation.gram[np.ix_(node.columns, node.columns)] - node.rows.T @ node.rows
            gains = pair_gains(schur, node.products, node.diagonal)
            places = np.argwhere(np.triu(node.value - gains < limit, 1))
        sets = np.empty((len(places), self._size), dtype=np.int32)
        sets[:, : len(node.chosen)] = node.chosen
        sets[:, len(node.chosen) :] = node.columns[places]
        return sets


_NONE = np.empty(0)
