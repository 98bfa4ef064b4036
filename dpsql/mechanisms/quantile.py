"""Private quantiles over a public grid: recursive halving with the exponential mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Longs
from dpsql.contract.events import Event, GumbelNoise
from dpsql.contract.measurement import Part, sampled
from dpsql.contract.relation import relation_of
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.mechanisms.one_shot import select
from dpsql.noise.entropy import SYSTEM, BitSource
from dpsql.statistics.counts import rank_utility_range

_LARGEST_INT64 = 1 << 62
_PARTS = 16
_MOST_PARTS = 1 << 21


def quantiles(
    counts: NDArray[np.int64],
    *,
    quantiles: Sequence[Fraction],
    epsilon: Fraction,
    neighbours: str,
    max_rows_per_unit: int = 1,
    alone: bool = True,
    source: BitSource = SYSTEM,
) -> list[int]:
    """Return private cells of a public grid: a share q of the rows lies up to a point in the cell for q.

    The mechanism selects the middle quantile first, over all cells of the grid. Then the rows up to its cell,
    inclusive, decide the quantiles before it, and the other rows the quantiles after it; and so on.

    Parameters
    ----------
    counts : ndarray of int64, shape (cells,)
        Exact number of rows in each cell, in ascending order of the cells, at least one cell. The grid is public.
    quantiles : sequence of Fraction
        In (0, 1), strictly ascending, at least one. Public.
    epsilon : Fraction
        Privacy loss of all quantiles together, > 0.
    neighbours : {'add_remove', 'replace'}
        The neighbouring relation.
    max_rows_per_unit : int
        Rows that one privacy unit may have, >= 1.
    alone : bool
        Whether these rows are the whole table. Otherwise they are one of disjoint groups, which all get the same
        epsilon and spend it together.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    cells : list of int
        In [0, cells), one per quantile, not descending.

    Raises
    ------
    ParameterError
        Depends on public parameters only: P018 (epsilon, neighbours, max_rows_per_unit), P018
        (quantiles).

    Notes
    -----
    - **Guarantee**: pure ``epsilon``-DP for all cells together, and ``epsilon**2 / (8 levels)``-zCDP with the
      levels of `halving_levels` (see `quantile_event`).
    - **Neighbouring relation**: add or remove one unit, or replace one.
    - **Sensitivity**: range of the utility ``-max(0, left - q n, q n - right)``, with left the rows of the sub-range
      before the cell, right the rows up to its end and n all rows (`dpsql.statistics.counts.rank_utility_range`).
    - **Randomness**: Gumbel noise by an exact race, operating-system entropy, no seed.
    - **Assumes**: every row is in one cell, by its value alone, or in none.
    - **Does not protect**: the grid, the quantiles; running time.

    Proof. Every level spends ``epsilon / levels``. Given the released cells of the levels above, the sub-ranges are
    fixed, disjoint sets of cells, so rows are divided by value and each row is in one sub-range. The number of rows n
    of a sub-range is the true number, never released. Dividing rows by rank instead, or counting the rows of a released
    cell on both sides of it, would let one row move two sub-ranges.

    Groups are sub-ranges like any other: they are disjoint sets of rows, and the group of a row depends on that row
    alone. So the argument above holds for the selections of one level in all groups together, which share ``epsilon /
    levels`` among the rows that leave or enter. Groups lack the better range of a replaced row in the whole table, 2 in
    place of ``4 max(q, 1 - q)``: it needs a fixed number n of rows, and a replaced row may leave one group and enter
    another. Then n moves in both, and the utilities of each move by up to ``max(q, 1 - q)`` either way. Calibrated to
    2, the groups would spend ``2 max(q, 1 - q) epsilon``: nothing more for medians, and almost 2 epsilon for extreme
    quantiles. A unit of at most K1 rows spends a share ``1 / K1`` for each row, in any groups; so `max_rows_per_unit`
    is K1, and limits on groups only lower it.

    A released cell is a candidate on both sides of it; to the right it has no rows. So every sub-range has a candidate,
    and quantiles may share a cell.

    One quantile is right with any ties: cells with utility 0 are the cells in which an exact quantile may lie. A
    recursion is right if few rows share a cell: the rows of a released cell all go left, instead of being divided at
    the quantile. `tied_quantiles` divides them.

    References
    ----------
    .. [1] H. Kaplan, S. Schnapp, U. Stemmer, Differentially private approximate quantiles, ICML 2022.
    """
    _check(quantiles, epsilon)
    below = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    share = epsilon / halving_levels(len(quantiles))
    cells = [0] * len(quantiles)
    # (first and last candidate, first cell with rows of the sub-range, its quantiles among all, the ranks of its ends
    # as shares of the table)
    pending = [(0, len(counts) - 1, 0, 0, len(quantiles), Fraction(0), Fraction(1))]
    while pending:
        low, high, occupied, first, stop, start, end = pending.pop()
        if first == stop:
            continue
        middle = (first + stop) // 2
        local = (quantiles[middle] - start) / (end - start)
        spread = rank_utility_range(
            local, neighbours, is_whole=alone and stop - first == len(quantiles), max_rows_per_unit=max_rows_per_unit
        )
        ranks = np.maximum(below[low : high + 2] - below[occupied], 0)
        cell = low + _cell(ranks, local, spread, share, source)
        cells[middle] = cell
        pending.append((low, cell, occupied, first, middle, start, quantiles[middle]))
        pending.append((cell, high, cell + 1, middle + 1, stop, quantiles[middle], end))
    return cells


def tied_quantiles(
    counts: NDArray[np.int64],
    *,
    at: Sequence[Fraction],
    epsilon: Fraction,
    neighbours: str,
    max_rows_per_unit: int = 1,
    alone: bool = True,
    source: BitSource = SYSTEM,
) -> list[int]:
    """Return private cells like `quantiles`, also if many rows share a cell.

    Every cell is divided into `parts_of_a_cell` public parts, and a row counts once in each part of its cell. A
    recursion then divides a cell with many rows at a quantile, up to one part. Parameters (`at` the quantiles), results
    and errors as for `quantiles`.

    Notes
    -----
    - **Guarantee**, **neighbouring relation**, **randomness**, **does not protect**: as of `quantiles`.
    - **Sensitivity**: a row is as many rows of the finer grid as a cell has parts, so a privacy unit has that many
      times its rows, and the utilities have that many times their range.
    - **Assumes**: as `quantiles`.
    """
    parts = parts_of_a_cell(len(counts), len(at))
    cells = quantiles(
        np.repeat(counts, parts),
        quantiles=at,
        epsilon=epsilon,
        neighbours=neighbours,
        max_rows_per_unit=parts * max_rows_per_unit,
        alone=alone,
        source=source,
    )
    return [cell // parts for cell in cells]


def parts_of_a_cell(cells: int, count: int) -> int:
    """Return the number of parts into which `tied_quantiles` divides a cell, for each number of quantiles; public."""
    return 1 if count == 1 else max(1, min(_PARTS, _MOST_PARTS // cells))


def halving_levels(count: int) -> int:
    """Return the depth of the recursion for so many quantiles: ``ceil(log2(count + 1))``."""
    return count.bit_length()


def quantile_event(epsilon: Fraction, levels: int, neighbours: str) -> GumbelNoise:
    """Return the ledger's event for `quantiles`, which is the same under both relations.

    Parameters
    ----------
    epsilon : Fraction
        Privacy loss of all levels together.
    levels : int
        Of `halving_levels`.
    neighbours : {'add_remove', 'replace'}
        The relation of the quantiles.

    Notes
    -----
    A level is ``epsilon / levels``-bounded-range under either relation, so it costs one round of the exponential
    mechanism. The selection in a sub-range has a log ratio that lies, over its outputs, in an interval of length
    coefficient times utility range. The selections of a level are independent, so the interval of the level has the sum
    of the lengths, and the rows that leave or enter divide at most ``epsilon / levels`` among all the sub-ranges that
    they touch (`dpsql.statistics.counts`). Levels compose adaptively.
    """
    relation_of(neighbours)
    return GumbelNoise(epsilon, rounds=levels)


def _cell(ranks: NDArray[np.int64], quantile: Fraction, spread: Fraction, epsilon: Fraction, source: BitSource) -> int:
    """Select one cell; `ranks` has the rows of the sub-range below the first candidate and up to each one's end."""
    if len(ranks) == 2:
        return 0
    rows = int(ranks[-1])
    if max(rows, 1) * quantile.denominator >= _LARGEST_INT64:
        ranks = ranks.astype(object)
    # The unit is one row over the denominator, so utility and range are integers.
    beyond = ranks * quantile.denominator - rows * quantile.numerator
    utility = -np.maximum(np.maximum(beyond[:-1], -beyond[1:]), 0)
    unit = int(spread * quantile.denominator)
    return int(select(utility, utility_range=unit, epsilon=epsilon, k=1, noise="gumbel", source=source)[0])


def _check(quantiles: Sequence[Fraction], epsilon: Fraction) -> None:
    if not isinstance(epsilon, Fraction) or not epsilon > 0:
        raise ParameterError("P018", f"epsilon must be a Fraction > 0; got {epsilon}. Give the privacy loss to spend.")
    inside = all(isinstance(quantile, Fraction) and 0 < quantile < 1 for quantile in quantiles)
    ascending = all(first < second for first, second in pairwise(quantiles))
    if not quantiles or not inside or not ascending:
        text = ", ".join(map(str, quantiles))
        raise ParameterError("P018", f"quantiles must be Fractions in (0, 1), strictly ascending; got [{text}].")


@dataclass(frozen=True)
class QuantileSelection(Part):
    """Quantiles of counts by cell, by recursive halving.

    Attributes
    ----------
    epsilon : Fraction
    at : tuple of Fraction
        Ascending, each in (0, 1).
    neighbours : str
    max_rows_per_unit : int
    """

    epsilon: Fraction
    at: tuple[Fraction, ...]
    neighbours: str
    max_rows_per_unit: int

    @property
    def event(self) -> Event:
        """Event for the ledger: an exponential mechanism per level."""
        return quantile_event(self.epsilon, halving_levels(len(self.at)), self.neighbours)

    @sampled
    def draw(self, counts: Longs) -> list[int]:
        """Return each quantile's cell; see `quantiles`."""
        return quantiles(
            counts,
            quantiles=self.at,
            epsilon=self.epsilon,
            neighbours=self.neighbours,
            max_rows_per_unit=self.max_rows_per_unit,
        )

    @sampled
    def draw_tied(self, counts: Longs) -> list[int]:
        """Return each quantile's cell for shared cells; see `tied_quantiles`."""
        return tied_quantiles(
            counts,
            at=self.at,
            epsilon=self.epsilon,
            neighbours=self.neighbours,
            max_rows_per_unit=self.max_rows_per_unit,
        )


@dataclass(frozen=True)
class GroupQuantileSelection(QuantileSelection):
    """Quantiles of disjoint groups of rows, as one release; see `quantiles`.

    `max_rows_per_unit` counts the rows of one unit in all groups together.
    """

    @sampled
    def draw_groups(self, counts: Longs) -> list[list[int]]:
        """Return the cells of each group, from counts of shape (groups, cells)."""
        return [
            tied_quantiles(
                group,
                at=self.at,
                epsilon=self.epsilon,
                neighbours=self.neighbours,
                max_rows_per_unit=self.max_rows_per_unit,
                alone=False,
            )
            for group in counts
        ]


@dataclass(frozen=True)
class LaterQuantiles(GroupQuantileSelection):
    """Quantiles that earlier draws of the same measurement choose, of one group of all rows or of several.

    Attributes
    ----------
    number : int
        The number of quantiles.

    Notes
    -----
    Parts with other quantiles are equal, since a permit is for the cost, and the event follows from the number of
    quantiles alone: for all quantiles that earlier draws may choose, the selection is private at that cost, so both
    compose adaptively.
    """

    at: tuple[Fraction, ...] = field(compare=False)
    number: int

    def __post_init__(self) -> None:
        if len(self.at) != self.number:
            raise InternalError("I034", "other quantiles were to be drawn than are charged. Report it.")
