"""A model of a whole table from a noisy tree: free post-processing of released numbers.

Cells of a column are first united: a noisy table of a few cells that hold rows has more information than a table of
many cells that hold noise. Ordered cells are united with their neighbours until they hold a 32nd of the rows, and more
than noise; a cell that alone holds as much stays alone. Other cells below three deviations of noise are one cell,
`rare`.

Inside of its cells a column has *atoms*: listed values whose noisy counts stand out. The other values of a cell follow
the grains of the column: multiples of the visible steps, in their visible shares. If all visible values are multiples
of a step, a cell without such a multiple holds nothing. Cells whose counts noise explains are filled evenly; such cells
at either end are filled by a density that decays outwards from the united cell before at the same rate.

The tables of pairs are then made consistent: with counts of their columns, by weights that follow from the noise, and
with each other. The deviation of a table from two independent columns is kept only as far as it stands out of the
noise: the part of its singular values above the largest singular value of noise alone.

**Trees.** Columns that depend on a hub and on one further column each: counts of pairs, of threes, and the order of
drawing.

The counts of an edge's two columns and the hub have no interaction of all three, and match the counts of the three
pairs: they use the pairs and nothing else (maximum entropy).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import combinations
from statistics import NormalDist

import numpy as np

from dpsql.arrays import Doubles, Longs
from dpsql.dataclass import dataclass
from dpsql.kernels.value_grid import BUCKETS
from dpsql.kernels.value_grid import grains as value_grains
from dpsql.mechanisms.private_tree import NoisyTree, Pair
from dpsql.statistics.coded_columns import CodedColumn, ValueSlots

# Most rounds of fitting counts, and the accuracy as a share of the rows.
_ROUNDS, CLOSE = 30, 1e-9


def ratio(target: Doubles, counts: Doubles) -> Doubles:
    """Return factors that turn counts into their targets; 0 for a count of 0."""
    return np.divide(target, counts, out=np.zeros(target.shape), where=counts > 0.0)


def of_three(hub_one: Doubles, hub_two: Doubles, both: Doubles) -> Doubles:
    """Return counts of three columns from the counts of their pairs.

    Parameters
    ----------
    hub_one : ndarray of float64, shape (h, a)
    hub_two : ndarray of float64, shape (h, b)
    both : ndarray of float64, shape (a, b)

    Returns
    -------
    counts : ndarray of float64, shape (h, a, b)
    """
    counts = np.ones((*hub_one.shape, hub_two.shape[1]))
    for _ in range(_ROUNDS):
        sums = counts.sum(axis=0)
        if np.abs(sums - both).max() <= CLOSE * max(both.sum(), 1.0):
            break
        counts *= ratio(both, sums)[np.newaxis]
        counts *= ratio(hub_one, counts.sum(axis=2))[:, :, np.newaxis]
        counts *= ratio(hub_two, counts.sum(axis=1))[:, np.newaxis, :]
    return counts


@dataclass(frozen=True)
class FittedTree:
    """Consistent counts of united cells.

    Attributes
    ----------
    hub : int or None
        The column that has a table with all others; None without a hub.
    margins : list of ndarray of float64
        Counts of each column's cells; they add up to the number of rows.
    tables : dict of Pair to ndarray of float64
        Counts of the measured pairs; their sums are the margins.
    """

    hub: int | None
    margins: list[Doubles]
    tables: dict[Pair, Doubles]

    def table(self, column: int, other: int) -> Doubles:
        """Return the counts of a measured pair, shape (cells of column, cells of other)."""
        return self.tables[column, other] if column < other else self.tables[other, column].T

    @cached_property
    def steps(self) -> list[tuple[int, tuple[int, ...]]]:
        """Return columns in the order of drawing, each with the columns that it depends on: the hub first."""
        order: list[tuple[int, tuple[int, ...]]] = [] if self.hub is None else [(self.hub, ())]
        always = () if self.hub is None else (self.hub,)
        seen = set(always)
        for root in range(len(self.margins)):
            if root in seen:
                continue
            seen.add(root)
            order.append((root, always))
            waiting = [root]
            while waiting:
                at = waiting.pop(0)
                for following in self._neighbours(at):
                    if following not in seen:
                        seen.add(following)
                        order.append((following, (*always, at)))
                        waiting.append(following)
        return order

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
        """Return the counts of a column by the hub's cells; without a hub there is one cell."""
        return self.margins[column][np.newaxis] if self.hub is None else self.table(self.hub, column)

    def _threes(self, column: int, other: int) -> Doubles:
        """Return the counts of an edge's columns by the hub's cells, shape (hub, column, other)."""
        if column > other:
            return self._threes(other, column).transpose(0, 2, 1)
        if self.hub is None:
            return self.tables[column, other][np.newaxis]
        return self._cliques[column, other]

    @cached_property
    def _cliques(self) -> Mapping[Pair, Doubles]:
        return {
            (column, other): of_three(self._of_hub(column), self._of_hub(other), table)
            for (column, other), table in self.tables.items()
            if self.hub not in (column, other)
        }

    def implied(self) -> dict[Pair, Doubles]:
        """Return the counts of every pair of columns, as they follow from the measured pairs."""
        tables: dict[Pair, Doubles] = {}
        columns = [column for column in range(len(self.margins)) if column != self.hub]
        for column in columns:
            if self.hub is not None:
                pair = min(self.hub, column), max(self.hub, column)
                tables[pair] = self.tables[pair]
        for start in columns:
            joints = self._joints(start)
            for end in columns:
                if end <= start:
                    continue
                if end in joints:
                    tables[start, end] = joints[end].sum(axis=0)
                else:  # independent, given the hub
                    margin = self._of_hub(start)
                    tables[start, end] = (
                        margin * ratio(np.ones(len(margin)), margin.sum(axis=1))[:, None]
                    ).T @ self._of_hub(end)
        return {pair: tables[pair] for pair in combinations(range(len(self.margins)), 2)}

    def _joints(self, start: int) -> dict[int, Doubles]:
        """Return the counts of a column with each column that the tree joins to it, by the hub's cells."""
        margin = self._of_hub(start)
        joints = {start: margin[:, :, np.newaxis] * np.eye(margin.shape[1])}
        waiting = [start]
        while waiting:
            at = waiting.pop()
            for following in self._neighbours(at):
                if following not in joints:
                    counts = self._threes(at, following)
                    sums = counts.sum(axis=2, keepdims=True)
                    joints[following] = joints[at] @ (counts * ratio(np.ones_like(sums), sums))
                    waiting.append(following)
        return joints


# A united cell holds at least a 32nd of the rows, and this many deviations of the noise of a cell.
_SHARE, _SEEN = 32.0, 3.0
# A single cell among many is visible from this many deviations on.
_PEAK = 4.0
_FIT_ROUNDS = 60


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
    position = np.zeros(len(noisy), dtype=np.int64)
    mass = float(noisy[0]) if len(noisy) else 0.0
    for cell in range(1, len(noisy)):
        # A heavy cell stays alone, unless the cells before it are not visible.
        ends = mass >= enough or (float(noisy[cell]) >= enough and mass >= seen)
        position[cell] = position[cell - 1] + ends
        mass = float(noisy[cell]) + (0.0 if ends else mass)
    if len(noisy) and position[-1] and mass < max(seen, enough / 2.0):
        position[position == position[-1]] -= 1
    return position


def united_values(noisy: Doubles, sigma: float, most: int) -> Longs:
    """Return the united cell of each of some cells without an order: invisible cells are the last one.

    If more than `most` cells are visible, the largest stay.
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
    result: Doubles = np.maximum(values - excess[last], 0.0)
    return result


def smoothed(noisy: Doubles, widths: Doubles, sigma: float, before: tuple[float, float] | None = None) -> Doubles:
    """Return the counts of neighbouring cells, by a plain density wherever noise explains the difference from it.

    A run of k cells has that density if the sum of squared differences, in deviations of the noise, is at most
    three deviations above its mean for noise alone, and no cell stands out by more than four; otherwise both halves of
    the run are examined. Counts of runs are then the nearest counts that are at least 0 and have the same sum, so that
    noise moves none of it away on average.

    Parameters
    ----------
    noisy, widths : ndarray of float64, shape (k,)
        Counts, and the content of each cell under an even density.
    sigma : float
        Standard deviation of the noise of a count.
    before : (float, float) or None
        Count and width of the run before the first cell, if nothing comes after the last cell: the density decays from
        there at the same rate for each unit of width. None for an even density.
    """
    runs = _runs(noisy, widths, sigma, before)
    sums, sizes = np.array([count for count, _ in runs]), np.array([float(len(density)) for _, density in runs])
    total = float(sums.sum())
    mass = _nearest(sums, sizes, total) if total > 0.0 else np.zeros(len(sums))
    return np.concatenate([count * density for count, (_, density) in zip(mass, runs, strict=True)])


def _runs(
    noisy: Doubles, widths: Doubles, sigma: float, before: tuple[float, float] | None
) -> list[tuple[float, Doubles]]:
    """Return the count and the density of each run; a density has the sum 1."""
    count, total = len(noisy), float(noisy.sum())
    density = _density(widths, total, before)
    if count < 2:
        return [(total, density)]
    off = (noisy - total * density) / sigma if sigma > 0.0 else np.full(count, math.inf)
    even = float(np.square(off).sum()) <= (count - 1) + _SEEN * math.sqrt(2.0 * (count - 1))
    if even and float(off.max()) <= _PEAK:
        return [(total, density)]
    half = count // 2
    first = noisy[:half]
    following = None if before is None else (float(first.sum()), float(widths[:half].sum()))
    return [*_runs(first, widths[:half], sigma, None), *_runs(noisy[half:], widths[half:], sigma, following)]


def _density(widths: Doubles, total: float, before: tuple[float, float] | None) -> Doubles:
    """Return the share of each cell of a run: even, or decaying as from the earlier run to this run."""
    width = float(widths.sum())
    even: Doubles = widths / width if width > 0.0 else np.full(len(widths), 1.0 / max(1, len(widths)))
    if before is None or not (total > 0.0 and before[0] > 0.0 and before[1] > 0.0 and width > 0.0):
        return even
    rate = _decay(before[0] / total, before[1], width)
    # Content of an exponential density up to each edge, without loss for an almost even density.
    masses = -np.expm1(-rate * np.append(0.0, np.cumsum(widths)))
    return np.diff(masses) / masses[-1] if masses[-1] > 0.0 else even


def _decay(ratio_: float, before: float, width: float) -> float:
    """Return the rate of an exponential density under which a run and the next run have this ratio of counts; >= 0.

    The runs have the widths `before` and `width`.
    """

    def mass(rate: float) -> float:
        return -math.expm1(-rate * before) / (math.exp(-rate * before) * -math.expm1(-rate * width))

    if ratio_ <= before / width:
        return 0.0
    low, high = 0.0, math.log1p(ratio_) / before
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if mass(middle) < ratio_ else (low, middle)
    return low


def _nearest(sums: Doubles, variances: Doubles, total: float) -> Doubles:
    """Return the likeliest counts of at least 0 with a sum, > 0, from noisy counts."""
    order = np.argsort(-sums / variances, kind="stable")
    excess = (np.cumsum(sums[order]) - total) / np.cumsum(variances[order])
    last = int(np.flatnonzero(sums[order] / variances[order] > excess)[-1])
    result: Doubles = np.maximum(sums - excess[last] * variances, 0.0)
    return result


def _unseen(column: CodedColumn, counts: Doubles, sigma: float) -> list[int]:
    """Return the cells of NULL and of other strings, if noise explains their counts."""
    cells = [0, *([len(counts) - 1] if column.other else [])]
    return [cell for cell in cells if counts[cell] < _SEEN * sigma]


def _united_texts(column: CodedColumn, counts: Doubles, sigma: float, most: int) -> Longs:
    """Return the united cells of strings; invisible NULL and other strings are in the largest cell, and empty."""
    unseen = _unseen(column, counts, sigma)
    others = [cell for cell in range(len(counts)) if cell not in unseen]
    result = np.zeros(len(counts), dtype=np.int64)
    if others:
        result[others] = united_values(counts[others], sigma, most)
        result[unseen] = result[others[int(np.argmax(counts[others]))]]
    return result


# A multiplier, a divisor, and the weight of the multiples of that step; 0 and 0 for any value.
Mixture = tuple[tuple[int, int, float], ...]
_ANY = (0, 0, 1.0)
# Most multiples that a cell lists, and that a column lists; buckets of fewer multiples are counted one by one.
_CELL_LISTED, _LISTED, _COUNTED = 1024, 4096, 256
# Expected number of values per column that look like atoms by chance.
_BY_CHANCE = 0.1
# A grain is visible from this many deviations of noise on; there are many grains.
_GRAIN_SEEN = 4.0


def grain_mixture(column: CodedColumn, counts: Doubles, sigma: float) -> Mixture:
    """Return the distribution of values in wide cells, the finest step first, from noisy counts of their grains.

    Even multiples of a step are multiples of the coarser steps, too, in a known share; a step is used if more values
    have its grain than the finer steps imply, and than noise explains.
    """
    steps = column.steps
    result: list[tuple[int, int, float]] = []
    if counts[0] >= _GRAIN_SEEN * sigma:
        result.append((0, 0, float(counts[0])))
    remaining = counts[1:].astype(np.float64)
    sizes = [divisor / multiplier for multiplier, divisor in steps]
    for position, size in enumerate(sizes):
        if remaining[position] < _GRAIN_SEEN * sigma:
            continue
        inverse = [1.0 / larger for larger in sizes[position:]] + [0.0]
        exact = size * -np.diff(inverse)
        weight = float(remaining[position] / exact[0])
        remaining[position:] -= weight * exact
        result.append((*steps[position], weight))
    if not result:
        return ((0, 0, 1.0),) if steps[0][0] > 1 else ((*steps[0], 1.0),)
    return tuple(result)


@dataclass(frozen=True, eq=False)
class ColumnGrains:
    """The noisy counts of the grains of one column's values in wide cells, and the deviation of their noise."""

    counts: Doubles
    sigma: float


@dataclass(frozen=True, eq=False)
class Atoms:
    """The values of a column that stand out in their cells.

    Attributes
    ----------
    slots : ndarray of int64
        Positions in `ValueSlots`.
    counts : ndarray of float64
        In rows, > 0.
    rests : dict of int to float
        Content of the other values of their cells, by the cell of the column.
    mixture : Mixture
        Distribution of these and all other values in wide cells.
    """

    slots: Longs
    counts: Doubles
    rests: dict[int, float]
    mixture: Mixture


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
    unions : tuple of ndarray of int64
        The united cell of each cell.
    grains : dict of int to ColumnGrains
        Grains of the columns with wide cells.
    atoms : dict of int to Atoms
        Atoms of the columns with released values in slots.
    total_sigma : float
        Standard deviation of the noise of the number of rows.
    """

    columns: tuple[CodedColumn, ...]
    noisy: tuple[Doubles, ...]
    sigma: float
    total: float
    unions: tuple[Longs, ...]
    grains: Mapping[int, ColumnGrains] = field(default_factory=dict)
    atoms: Mapping[int, Atoms] = field(default_factory=dict)
    total_sigma: float = 0.0

    @classmethod
    def of(
        cls,
        columns: Sequence[CodedColumn],
        noisy: Sequence[Doubles],
        sigma: float,
        total: float,
        most: int,
        grains: Mapping[int, ColumnGrains] | None = None,
    ) -> ReleasedColumns:
        """Return the counts with united cells; a column of strings has at most `most` of them."""
        positions, retained = [], list(noisy)
        grains = {} if grains is None else grains
        for number, (column, counts) in enumerate(zip(columns, noisy, strict=True)):
            if column.grid is None:
                positions.append(_united_texts(column, counts, sigma, most))
                continue
            able = np.ones(len(counts), dtype=bool)
            if number in grains:
                mixture = grain_mixture(column, grains[number].counts, grains[number].sigma)
                able[1:] = _even(column, mixture) > 0.0
                retained[number] = counts = np.where(able, counts, 0.0)
            is_null = bool(counts[0] >= _SEEN * sigma)
            if is_null and counts[1:].sum() < _SEEN * sigma * math.sqrt(max(1, able[1:].sum())):
                positions.append(np.zeros(len(counts), dtype=np.int64))  # only NULL is visible
                continue
            runs = united_runs(counts[1:], sigma, total)
            # A visible NULL has its own cell; otherwise it is in the first cell, which treats it as noise.
            positions.append(np.append(0, runs + is_null))
        return cls(tuple(columns), tuple(retained), sigma, total, tuple(positions), grains)

    @property
    def sums(self) -> list[Doubles]:
        """Return the counts of united cells."""
        return [
            np.bincount(position, weights=counts, minlength=int(position.max(initial=0)) + 1).astype(np.float64)
            for position, counts in zip(self.unions, self.noisy, strict=True)
        ]

    @property
    def variances(self) -> list[Doubles]:
        """Return the noise variances of united cells."""
        # A cell that holds nothing has a count of exactly 0, in spite of its noise.
        return [
            np.maximum(np.bincount(position, weights=counts != 0.0), 1.0) * self.sigma**2
            for position, counts in zip(self.unions, self.noisy, strict=True)
        ]

    def mixture(self, number: int) -> Mixture:
        """Return the distribution of values in the wide cells of a column that are not atoms."""
        return self.atoms[number].mixture if number in self.atoms else self._mixture(number)

    def _mixture(self, number: int) -> Mixture:
        """Return the distribution of all values in the wide cells of a column."""
        if number not in self.grains:
            return (_ANY,)
        return grain_mixture(self.columns[number], self.grains[number].counts, self.grains[number].sigma)

    @cached_property
    def slots(self) -> dict[int, ValueSlots]:
        """Return the slots of numbers with wide cells, or with drawn bounds: visible rows list their multiples."""
        result = {}
        for number, column in enumerate(self.columns):
            if column.grid is not None and (column.steps or column.is_drawn):
                result[number] = self._slots(number)
        return result

    def _slots(self, number: int) -> ValueSlots:
        column, cells = self.columns[number], self.columns[number].count - 1
        usual = next((step for step in self._mixture(number) if step[0]), (1, 1, 1.0))
        multipliers, divisors, first = np.full(cells, usual[0]), np.full(cells, usual[1]), np.zeros(cells)
        counts, remaining = np.zeros(cells, dtype=np.int64), np.ones(cells, dtype=bool)
        if column.grid is None or number not in self.grains:
            return ValueSlots(column, multipliers, divisors, first, counts)
        remaining &= column.wide[1:] & (self.noisy[number][1:] >= _SEEN * self.sigma)
        for multiplier, divisor, _ in self._mixture(number):
            if not multiplier:
                continue
            starts, lengths = column.grid.multiples((multiplier, divisor))
            chosen = remaining & (lengths > 0.0) & (lengths <= _CELL_LISTED)
            multipliers[chosen], divisors[chosen] = multiplier, divisor
            first[chosen], counts[chosen] = starts[chosen], lengths[chosen].astype(np.int64)
            remaining &= ~chosen
        order = np.argsort(-self.noisy[number][1:], kind="stable")
        over = order[np.cumsum(counts[order]) > _LISTED]
        counts[over] = 0
        return ValueSlots(column, multipliers, divisors, first, counts)

    def with_atoms(self, noisy: Mapping[int, Doubles], sigma: float) -> ReleasedColumns:
        """Return the columns with the atoms that noisy counts of listed values show."""
        return replace(self, atoms={number: self._atoms(number, counts, sigma) for number, counts in noisy.items()})

    def _atoms(self, number: int, counts: Doubles, sigma: float) -> Atoms:
        """Return the values with more rows than noise explains, and than the average other value of their cells."""
        column, slots, grains = self.columns[number], self.slots[number], self.grains[number]
        away = NormalDist().inv_cdf(1.0 - _BY_CHANCE / max(len(counts), 1)) * sigma
        seen, average = counts >= away, np.zeros(len(slots.counts))
        owners = slots.owners
        for _ in range(2):
            mass = np.bincount(owners[seen], weights=counts[seen], minlength=len(average))
            others = np.maximum(slots.counts - np.bincount(owners[seen], minlength=len(average)), 1)
            average = np.maximum(self.noisy[number][1:] - mass, 0.0) / others
            seen = counts >= away + average[owners]
        chosen = np.flatnonzero(seen)
        mass = np.bincount(owners[chosen], weights=counts[chosen], minlength=len(average))
        many = np.bincount(owners[chosen], minlength=len(average))
        rests = {}
        for cell in np.flatnonzero(many).tolist():
            rest = float(self.noisy[number][1 + cell] - mass[cell])
            noise = math.sqrt(self.sigma**2 + many[cell] * sigma**2)
            full = many[cell] == slots.counts[cell] and len(self._mixture(number)) == 1
            rests[1 + cell] = rest if rest >= _SEEN * noise and not full else 0.0
        mixture = self._mixture(number)
        if len(chosen):
            apart = np.bincount(
                value_grains(slots.multiples[chosen], column.type), weights=counts[chosen], minlength=len(grains.counts)
            )
            noise = math.sqrt(grains.sigma**2 + len(chosen) * sigma**2)
            if ((grains.counts - apart) >= _GRAIN_SEEN * noise).any():
                mixture = grain_mixture(column, grains.counts - apart, noise)
        return Atoms(chosen, counts[chosen], rests, mixture)

    @cached_property
    def shares(self) -> list[Doubles]:
        """Return the share of each cell of each column in its united cell, >= 0; an invisible NULL has 0."""
        return [self._shares(number) for number in range(len(self.columns))]

    def _shares(self, number: int) -> Doubles:
        column, counts, position = self.columns[number], self.noisy[number], self.unions[number]
        result = np.maximum(counts, 0.0)
        if column.grid is None:
            unseen = _unseen(column, counts, self.sigma)
            result[unseen] = 0.0
            if len(unseen) == len(counts):
                result[-1] = 1.0  # rows are visible, but no key and no NULL
            return result
        even = np.append(0.0, _even(column, self._mixture(number)))
        if counts[0] < _SEEN * self.sigma:
            result[0] = 0.0
        elif position[0] == position[-1]:
            result[1:] = 0.0
            return result
        unions = np.unique(position[1:]).tolist()
        runs = [1 + np.flatnonzero(position[1:] == union) for union in unions]
        for at, cells in enumerate(runs):
            able = cells[even[cells] > 0.0]
            result[cells] = 0.0
            if not len(able):
                result[cells] = 1.0
                continue
            filled = self._filled(number, counts, even, able, runs, at)
            result[able] = filled if filled.any() else even[able] / even[able].sum()
        if number in self.atoms:
            atoms = self.atoms[number]
            owners = 1 + self.slots[number].owners[atoms.slots]
            mass = np.bincount(owners, weights=atoms.counts, minlength=len(result))
            for cell, rest in atoms.rests.items():
                result[cell] = mass[cell] + rest
        return result

    def _filled(
        self, number: int, counts: Doubles, even: Doubles, able: Longs, runs: Sequence[Longs], at: int
    ) -> Doubles:
        """Return the counts of the cells of one run; at either end they decay outwards."""
        before: tuple[float, float] | None = None
        ends = at == len(runs) - 1, at == 0
        if len(runs) > 1 and any(ends):
            near = runs[at - 1] if ends[0] else runs[at + 1]
            # A single value among wide cells says nothing about the density next to it.
            dense = near[self.columns[number].wide[near]] if self.columns[number].steps else near
            before = float(counts[dense].sum()), float(even[dense].sum())
        if len(runs) > 1 and ends[1]:
            return smoothed(counts[able][::-1], even[able][::-1], self.sigma, before)[::-1]
        return smoothed(counts[able], even[able], self.sigma, before)

    def fractions(self, number: int) -> Doubles:
        """Return the share of each cell in its united cell."""
        position, shares = self.unions[number], self.shares[number]
        sums = np.bincount(position, weights=shares)
        sizes = np.bincount(position)
        return np.where(sums[position] > 0.0, shares / np.where(sums > 0.0, sums, 1.0)[position], 1.0 / sizes[position])

    def fine_cells(self, most: int) -> tuple[list[Longs], list[Longs], list[bool]]:
        """Return fine cells for the report, within united cells.

        Parameters
        ----------
        most : int
            Fine cells of a column.

        Returns
        -------
        places : list of ndarray of int64
            The fine cell of each cell.
        unions : list of ndarray of int64
            The united cell of each fine cell.
        whole : list of bool
            Whether each cell is a fine cell of its own.
        """
        result: tuple[list[Longs], list[Longs], list[bool]] = [], [], []
        for position in self.unions:
            order = np.argsort(position, kind="stable")
            starts = np.searchsorted(position[order], position[order])
            ranks, size = np.arange(len(position)) - starts, 1
            while True:
                parts = position[order] * len(position) + ranks // size
                labels, pieces = np.unique(parts, return_inverse=True)
                if len(labels) <= most or size >= len(position):
                    break
                size += 1
            fine = np.empty(len(position), dtype=np.int64)
            fine[order] = pieces
            result[0].append(fine)
            result[1].append(labels // max(1, len(position)))
            result[2].append(size == 1)
        return result

    def slot_model(self, number: int, margin: Doubles) -> tuple[Longs, Doubles]:
        """Return a part for each slot of a column, and the model's number of rows in each part.

        Parts are atoms, the buckets of other values by cell, and values beyond drawn bounds; the model has none of the
        latter.

        Parameters
        ----------
        number : int
        margin : ndarray of float64
            The model's counts of united cells.
        """
        slots, column = self.slots[number], self.columns[number]
        cells, listed = len(slots.counts), slots.listed
        buckets_at = slots.owners * BUCKETS
        if column.grid is not None and listed:
            buckets_at = buckets_at + column.grid.buckets(slots.multiples, slots.owners)
        parts = np.concatenate([buckets_at, np.arange(BUCKETS * cells), [BUCKETS * cells]])
        mass = (margin[self.unions[number]] * self.fractions(number))[1:]
        model = np.zeros(BUCKETS * cells + 1)
        atoms = self.atoms.get(number)
        if atoms is not None and len(atoms.slots):
            parts[atoms.slots] = BUCKETS * cells + 1 + np.arange(len(atoms.slots))
            owners = slots.owners[atoms.slots]
            rests = np.array([atoms.rests.get(1 + cell, 1.0) for cell in range(cells)])
            sums = np.bincount(owners, weights=atoms.counts, minlength=cells) + rests
            model = np.append(model, atoms.counts / sums[owners] * mass[owners])
            with_atoms = np.bincount(owners, minlength=cells) > 0
            mass = np.where(with_atoms, rests / sums * mass, mass)
        own = np.flatnonzero(parts[:listed] > BUCKETS * cells)
        own_parts = dict(zip(slots.multiples[own].tolist(), parts[own].tolist(), strict=True))
        _spread(column, np.where(column.wide[1:], mass, 0.0), self.mixture(number), own_parts, model)
        return parts, model


def _spread(
    column: CodedColumn, mass: Doubles, mixture: Mixture, own_parts: Mapping[float, int], model: Doubles
) -> None:
    """Add the rows of each cell to the parts of the values that `ValueGrid.grained` draws for them."""
    if column.grid is None:
        return
    weights = np.array([weight for *_, weight in mixture])
    carried = np.zeros(len(mass))
    for position in reversed(range(len(mixture))):
        carried = carried + mass * (weights[position] / weights.sum())
        multiplier, divisor, _ = mixture[position]
        if not multiplier:
            break
        first, counts = column.grid.multiples((multiplier, divisor))
        many = counts > _COUNTED
        model[: BUCKETS * len(mass)] += np.repeat(np.where(many, carried, 0.0) / BUCKETS, BUCKETS)
        some = np.flatnonzero((counts > 0.0) & ~many & (carried > 0.0))
        cells = np.repeat(some, counts[some].astype(np.int64))
        starts = np.repeat(np.cumsum(counts[some]) - counts[some], counts[some].astype(np.int64))
        values = (first[cells] + np.arange(len(cells)) - starts) * divisor / multiplier
        parts = cells * BUCKETS + column.grid.buckets(values, cells)
        if own_parts and len(values):
            names = np.array(sorted(own_parts))
            at = np.minimum(np.searchsorted(names, values), len(names) - 1)
            hits = names[at] == values
            parts[hits] = np.array([own_parts[name] for name in names.tolist()])[at[hits]]
        np.add.at(model, parts, (carried / np.maximum(counts, 1.0))[cells])
        carried = np.where(counts > 0.0, 0.0, carried)
    model[: BUCKETS * len(mass)] += np.repeat(carried / BUCKETS, BUCKETS)


def _even(column: CodedColumn, mixture: Mixture) -> Doubles:
    """Return each numeric cell's content under an even density of the drawn values; 0 for none."""
    if column.grid is None:
        raise TypeError("the column has no numbers")
    multiplier, divisor, _ = mixture[0]
    if multiplier:
        even = column.grid.multiples((multiplier, divisor))[1]
        # A single value keeps its weight for any grain of the other values.
        return np.where(column.grid.single, np.maximum(even, 1.0), even)
    widths = column.grid.widths
    return np.where(widths > 0.0, widths, np.where(column.grid.single, 5e-324, 0.0))


def fitted(noisy: Sequence[Doubles], variances: Sequence[Doubles], tree: NoisyTree, total: float) -> FittedTree:
    """Fit a tree.

    Parameters
    ----------
    noisy : sequence of ndarray of float64
        Released counts of each column's united cells.
    variances : sequence of ndarray of float64
        Variances of their noise.
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
    """Return a table with the part of its deviation from independent columns that stands out of the noise."""
    expected = np.outer(rows, columns) / total
    remaining, values, right = np.linalg.svd(table - expected, full_matrices=False)
    noise = sigma * (math.sqrt(table.shape[0]) + math.sqrt(table.shape[1]))
    retained = np.sqrt(np.maximum(values**2 - noise**2, 0.0))
    result: Doubles = expected + (remaining * retained) @ right
    return result


def _raked(table: Doubles, margins: Sequence[Doubles], pair: Pair) -> Doubles:
    """Return a table >= 0 with approximately the margins of its columns as sums."""
    rows, columns = margins[pair[0]], margins[pair[1]]
    # A small share of independence everywhere, so that each row of a table with a margin is nonempty.
    result: Doubles = np.maximum(table, 0.0) + np.outer(rows, columns) / max(rows.sum(), 1.0) * 1e-6
    for _ in range(_FIT_ROUNDS):
        sums = result.sum(axis=1)
        if np.abs(sums - rows).max() <= CLOSE * max(rows.sum(), 1.0):
            break
        result *= ratio(rows, sums)[:, None]
        result *= ratio(columns, result.sum(axis=0))
    return result
