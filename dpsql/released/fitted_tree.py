"""Columns that depend on a hub and on one further column each: counts of pairs, of threes, and the order of drawing.

The counts of an edge's two columns and the hub are those without an interaction of all three that have the counts of
the three pairs: what is known of the pairs, and nothing else (maximum entropy).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from dpsql.arrays import Doubles
from dpsql.mechanisms.private_tree import Pair

# Counts are fitted in so many rounds at most, up to this share of the rows.
_ROUNDS, CLOSE = 30, 1e-9


def ratio(wanted: Doubles, held: Doubles) -> Doubles:
    """Return factors that make what is held what is wanted; 0 where nothing is held."""
    return np.divide(wanted, held, out=np.zeros(wanted.shape), where=held > 0.0)


def of_three(hub_one: Doubles, hub_two: Doubles, both: Doubles) -> Doubles:
    """Return counts of three columns from those of their pairs.

    Parameters
    ----------
    hub_one : ndarray of float64, shape (h, a)
    hub_two : ndarray of float64, shape (h, b)
    both : ndarray of float64, shape (a, b)

    Returns
    -------
    counts : ndarray of float64, shape (h, a, b)
    """
    found = np.ones((*hub_one.shape, hub_two.shape[1]))
    for _ in range(_ROUNDS):
        sums = found.sum(axis=0)
        if np.abs(sums - both).max() <= CLOSE * max(both.sum(), 1.0):
            break
        found *= ratio(both, sums)[np.newaxis]
        found *= ratio(hub_one, found.sum(axis=2))[:, :, np.newaxis]
        found *= ratio(hub_two, found.sum(axis=1))[:, np.newaxis, :]
    return found


@dataclass(frozen=True)
class FittedTree:
    """Counts of united cells that agree with each other.

    Attributes
    ----------
    hub : int or None
        The column of which all others have a table; None where there is none.
    margins : list of ndarray of float64
        Counts of each column's cells; they add up to the number of rows.
    tables : dict of Pair to ndarray of float64
        Counts of the measured pairs, whose sums are the margins.
    """

    hub: int | None
    margins: list[Doubles]
    tables: dict[Pair, Doubles]

    def table(self, one: int, other: int) -> Doubles:
        """Return the counts of a measured pair, shape (cells of one, cells of other)."""
        return self.tables[one, other] if one < other else self.tables[other, one].T

    @cached_property
    def steps(self) -> list[tuple[int, tuple[int, ...]]]:
        """Columns in the order in which they are drawn, each with the columns that it depends on: the hub first."""
        found: list[tuple[int, tuple[int, ...]]] = [] if self.hub is None else [(self.hub, ())]
        always = () if self.hub is None else (self.hub,)
        seen = set(always)
        for root in range(len(self.margins)):
            if root in seen:
                continue
            seen.add(root)
            found.append((root, always))
            waiting = [root]
            while waiting:
                at = waiting.pop(0)
                for following in self._neighbours(at):
                    if following not in seen:
                        seen.add(following)
                        found.append((following, (*always, at)))
                        waiting.append(following)
        return found

    def _neighbours(self, column: int) -> list[int]:
        return [sum(pair) - column for pair in self.tables if column in pair and self.hub not in pair]

    def weights(self, column: int, parents: tuple[int, ...]) -> Doubles:
        """Return the counts of one step of `steps`, shape (cells of its parents, cells of the column)."""
        if not parents:
            return self.margins[column][np.newaxis]
        if len(parents) == 1:
            return self.table(parents[0], column)
        return self._threes(parents[1], column).reshape(-1, len(self.margins[column]))

    def _of_hub(self, column: int) -> Doubles:
        """Return the counts of a column by the hub's cells, of which there is one where there is no hub."""
        return self.margins[column][np.newaxis] if self.hub is None else self.table(self.hub, column)

    def _threes(self, one: int, other: int) -> Doubles:
        """Return the counts of an edge's columns by the hub's cells, shape (hub, one, other)."""
        if one > other:
            return self._threes(other, one).transpose(0, 2, 1)
        if self.hub is None:
            return self.tables[one, other][np.newaxis]
        return self._cliques[one, other]

    @cached_property
    def _cliques(self) -> Mapping[Pair, Doubles]:
        return {
            (one, other): of_three(self._of_hub(one), self._of_hub(other), table)
            for (one, other), table in self.tables.items()
            if self.hub not in (one, other)
        }

    def implied(self) -> dict[Pair, Doubles]:
        """Return the counts of every pair of columns, as they follow from the measured ones."""
        found: dict[Pair, Doubles] = {}
        columns = [column for column in range(len(self.margins)) if column != self.hub]
        for column in columns:
            if self.hub is not None:
                pair = min(self.hub, column), max(self.hub, column)
                found[pair] = self.tables[pair]
        for start in columns:
            reached = self._reached(start)
            for end in columns:
                if end <= start:
                    continue
                if end in reached:
                    found[start, end] = reached[end].sum(axis=0)
                else:  # independent, given the hub
                    held = self._of_hub(start)
                    found[start, end] = (held * ratio(np.ones(len(held)), held.sum(axis=1))[:, None]).T @ self._of_hub(
                        end
                    )
        return {pair: found[pair] for pair in combinations(range(len(self.margins)), 2)}

    def _reached(self, start: int) -> dict[int, Doubles]:
        """Return the counts of a column and each one that the tree joins to it, by the hub's cells."""
        held = self._of_hub(start)
        found = {start: held[:, :, np.newaxis] * np.eye(held.shape[1])}
        waiting = [start]
        while waiting:
            at = waiting.pop()
            for following in self._neighbours(at):
                if following not in found:
                    counts = self._threes(at, following)
                    sums = counts.sum(axis=2, keepdims=True)
                    found[following] = found[at] @ (counts * ratio(np.ones_like(sums), sums))
                    waiting.append(following)
        return found
