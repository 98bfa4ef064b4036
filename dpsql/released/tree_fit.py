"""A model of a whole table from a noisy tree: free post-processing of what was released.

Cells of a column are first united: a noisy table of few cells that hold rows tells more than one of many that hold
noise. Ordered cells are united with their neighbours until they hold a 32nd of the rows, and more than noise; a
cell that alone holds as much stays alone. Other cells below three deviations of noise are one cell, `rare`.

The tables of pairs are then made agree: with counts of their columns, by weights that follow from the noise, and with
each other. The part of a table that two independent columns would not have is kept only as far as it stands out of
the noise: of its singular values what exceeds the largest one that noise alone would have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.arrays import Doubles, Longs
from dpsql.mechanisms.private_tree import NoisyTree, Pair
from dpsql.released.fitted_tree import FittedTree, ratio
from dpsql.statistics.coded_columns import CodedColumn

# A united cell holds this share of the rows, and so many deviations of the noise of a cell.
_SHARE, _SEEN = 32.0, 3.0
_ROUNDS = 60


def united_runs(noisy: Doubles, sigma: float, total: float) -> Longs:
    """Return the united cell of each of some ordered cells, numbered in their order.

    Parameters
    ----------
    noisy : ndarray of float64, shape (m,)
        Released counts.
    sigma : float
        Standard deviation of their noise.
    total : float
        Released number of rows.
    """
    enough, seen = max(total / _SHARE, _SEEN * sigma), _SEEN * sigma
    place = np.zeros(len(noisy), dtype=np.int64)
    held = float(noisy[0]) if len(noisy) else 0.0
    for cell in range(1, len(noisy)):
        # A heavy cell stays alone, unless what is before it is not seen.
        ends = held >= enough or (float(noisy[cell]) >= enough and held >= seen)
        place[cell] = place[cell - 1] + ends
        held = float(noisy[cell]) + (0.0 if ends else held)
    if len(noisy) and place[-1] and held < max(seen, enough / 2.0):
        place[place == place[-1]] -= 1
    return place


def united_values(noisy: Doubles, sigma: float, most: int) -> Longs:
    """Return the united cell of each of some cells without an order: those that are not seen are the last one.

    Of more than `most` that are seen the largest ones are kept.
    """
    seen = noisy >= _SEEN * sigma
    if int(seen.sum()) >= most:
        order = np.argsort(-noisy, kind="stable")
        seen[order[most - 1 :]] = False
    return np.where(seen, np.cumsum(seen) - 1, int(seen.sum())).astype(np.int64)


def on_simplex(values: Doubles, total: float) -> Doubles:
    """Return the nearest numbers that are at least 0 and add up to `total`, > 0."""
    descending = -np.sort(-values.ravel(), kind="stable")
    excess = (np.cumsum(descending) - total) / np.arange(1, len(descending) + 1)
    last = int(np.flatnonzero(descending > excess)[-1])
    found: Doubles = np.maximum(values - excess[last], 0.0)
    return found


def smoothed(noisy: Doubles, widths: Doubles, sigma: float) -> Doubles:
    """Return the counts of neighbouring cells, evenly by width wherever noise explains what differs from that.

    A run of k cells is even if the sum of squares of what differs, in deviations of the noise, is no more than three
    deviations above its mean for noise alone; else both halves of the run are looked at.
    """
    count, total, width = len(noisy), float(noisy.sum()), float(widths.sum())
    even = total * (widths / width if width > 0.0 else np.full(count, 1.0 / max(1, count)))
    off = float(np.square((noisy - even) / sigma).sum()) if sigma > 0.0 else math.inf
    if count < 2 or off <= (count - 1) + _SEEN * math.sqrt(2.0 * (count - 1)):
        return np.maximum(even, 0.0)
    half = count // 2
    return np.concatenate([smoothed(noisy[:half], widths[:half], sigma), smoothed(noisy[half:], widths[half:], sigma)])


def _unseen(column: CodedColumn, counts: Doubles, sigma: float) -> list[int]:
    """Return the cells of NULL and of other texts, as far as noise explains what is in them."""
    cells = [0, *([len(counts) - 1] if column.other else [])]
    return [cell for cell in cells if counts[cell] < _SEEN * sigma]


def _united_texts(column: CodedColumn, counts: Doubles, sigma: float, most: int) -> Longs:
    """Return the united cells of texts; NULL and others that are not seen are in the largest one, and hold nothing."""
    unseen = _unseen(column, counts, sigma)
    others = [cell for cell in range(len(counts)) if cell not in unseen]
    found = np.zeros(len(counts), dtype=np.int64)
    if others:
        found[others] = united_values(counts[others], sigma, most)
        found[unseen] = found[others[int(np.argmax(counts[others]))]]
    return found


@dataclass(frozen=True, eq=False)
class ReleasedColumns:
    """The noisy counts of every column.

    Attributes
    ----------
    columns : tuple of CodedColumn
    noisy : tuple of ndarray of float64
        Counts of each column's cells; cell 0 is NULL.
    sigma : float
        Standard deviation of the noise of a cell.
    total : float
        Number of rows, > 0.
    places : tuple of ndarray of int64
        The united cell of each cell.
    """

    columns: tuple[CodedColumn, ...]
    noisy: tuple[Doubles, ...]
    sigma: float
    total: float
    places: tuple[Longs, ...]

    @classmethod
    def of(
        cls, columns: Sequence[CodedColumn], noisy: Sequence[Doubles], sigma: float, total: float, most: int
    ) -> ReleasedColumns:
        """Return the counts with united cells, of texts at most so many for each column."""
        places = []
        for column, counts in zip(columns, noisy, strict=True):
            if column.grid is None:
                places.append(_united_texts(column, counts, sigma, most))
                continue
            runs = united_runs(counts[1:], sigma, total)
            # NULL has a cell of its own where it is seen; else it is in the first one, which holds it for noise.
            places.append(np.append(0, runs + (counts[0] >= _SEEN * sigma)))
        return cls(tuple(columns), tuple(noisy), sigma, total, tuple(places))

    @property
    def sums(self) -> list[Doubles]:
        """Counts of united cells."""
        return [
            np.bincount(place, weights=counts, minlength=int(place.max(initial=0)) + 1).astype(np.float64)
            for place, counts in zip(self.places, self.noisy, strict=True)
        ]

    @property
    def variances(self) -> list[Doubles]:
        """Variances of their noise."""
        return [np.bincount(place).astype(np.float64) * self.sigma**2 for place in self.places]

    def shares(self, number: int) -> Doubles:
        """Return what each cell of a column holds of its union, >= 0; NULL nothing where it is not seen."""
        column, counts, place = self.columns[number], self.noisy[number], self.places[number]
        found = np.maximum(counts, 0.0)
        unseen = _unseen(column, counts, self.sigma)
        if len(unseen) < len(counts):
            found[unseen] = 0.0
        if column.grid is not None:
            for union in np.unique(place[1:]).tolist():
                cells = 1 + np.flatnonzero(place[1:] == union)
                found[cells] = smoothed(counts[cells], column.grid.widths[cells - 1], self.sigma)
        return found


def fitted(noisy: Sequence[Doubles], variances: Sequence[Doubles], tree: NoisyTree, total: float) -> FittedTree:
    """Fit a tree.

    Parameters
    ----------
    noisy : sequence of ndarray of float64
        Released counts of each column's united cells.
    variances : sequence of ndarray of float64
        Of their noise.
    tree : NoisyTree
    total : float
        Released number of rows, > 0.
    """
    margins = []
    for column, (counts, variance) in enumerate(zip(noisy, variances, strict=True)):
        weights, sums = 1.0 / variance, counts / variance
        for pair, table, sigma in zip(tree.edges, tree.tables, tree.sigmas, strict=True):
            if column in pair:
                other = pair.index(column) ^ 1
                weight = 1.0 / (sigma**2 * table.shape[other])
                weights, sums = weights + weight, sums + table.sum(axis=other) * weight
        margins.append(on_simplex(sums / weights, total))
    tables = {
        pair: _raked(_denoised(table, sigma, margins[pair[0]], margins[pair[1]], total), margins, pair)
        for pair, table, sigma in zip(tree.edges, tree.tables, tree.sigmas, strict=True)
    }
    return FittedTree(tree.hub, margins, tables)


def _denoised(table: Doubles, sigma: float, rows: Doubles, columns: Doubles, total: float) -> Doubles:
    """Return a table with what stands out of the noise of what independent columns would not have."""
    expected = np.outer(rows, columns) / total
    left, values, right = np.linalg.svd(table - expected, full_matrices=False)
    noise = sigma * (math.sqrt(table.shape[0]) + math.sqrt(table.shape[1]))
    kept = np.sqrt(np.maximum(values**2 - noise**2, 0.0))
    found: Doubles = expected + (left * kept) @ right
    return found


def _raked(table: Doubles, margins: Sequence[Doubles], pair: Pair) -> Doubles:
    """Return a table >= 0 whose sums are the margins of its columns, near enough."""
    rows, columns = margins[pair[0]], margins[pair[1]]
    # A little of independence everywhere, so that no row of a table is empty that has a margin.
    found: Doubles = np.maximum(table, 0.0) + np.outer(rows, columns) / max(rows.sum(), 1.0) * 1e-6
    for _ in range(_ROUNDS):
        found *= ratio(rows, found.sum(axis=1))[:, None]
        found *= ratio(columns, found.sum(axis=0))
    return found
