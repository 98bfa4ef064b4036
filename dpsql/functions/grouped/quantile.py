"""dp_quantile: private quantiles of one column, or of each group, with an interval for each quantile.

Without `by`, rows are counted in cells that follow from the column's type, and from bounds if there are any
(`dpsql.kernels.column_cells`); so the quantiles need no bounds. With `by`, SQL counts rows in cells of equal width
between bounds: public bounds, or an interval that is drawn for all groups together. The call draws from the counts:

1. with `bounds_share`, in an earlier pass, an interval that holds the bulk of the column
(`dpsql.mechanisms.interval_scan`); the call releases it, and it bounds the cells of the second pass;
2. the quantiles (`dpsql.mechanisms.quantile`);
3. noisy counts around the quantiles at `interval_share` of the remaining epsilon (`dpsql.mechanisms.rank_counts`), from
which the intervals follow (`dpsql.released.quantile_spans`).

By basic composition all draws cost epsilon together; under zCDP they cost the sum of the events. If the draw of the
bounds finds none, the call draws nothing more and is not charged the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import pyarrow as pa

from dpsql.arrays import Longs
from dpsql.contract import parameters
from dpsql.contract.arguments import COLUMN_BOUNDS, EPSILON, TARGET, Argument, Signature, integer, optional_share
from dpsql.contract.fold import Batch, Collector, Ignoring, RowTransform
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout, column_bounds
from dpsql.contract.measurement import Draw, Measurement, measurement_of
from dpsql.contract.plan import Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.grouped.counts import GROUPED_COLUMN, ColumnCall, ColumnPlan
from dpsql.functions.grouped.plan import (
    BOUNDS_SHARE,
    UNIT_BOUNDS,
    DrawnBoundsCall,
    DrawnBoundsPlan,
    TargetMagnitudes,
    ValueCode,
    are_missing,
    read_share,
)
from dpsql.functions.value_cells import DerivedKey, EvenCells, LearnedCells
from dpsql.kernels.cells import CellCounts, decimals
from dpsql.kernels.column_cells import EVEN_CELLS, ScaleCounts, cells_between, most_cells, whole_steps
from dpsql.mechanisms.interval_scan import PrivateInterval, ScannedInterval
from dpsql.mechanisms.quantile import GroupQuantileSelection, QuantileSelection, halving_levels, parts_of_a_cell
from dpsql.mechanisms.rank_counts import RankCounts, bins_between, cuts_around
from dpsql.progress import Progress
from dpsql.released.intervals import FAILURE, interval_record
from dpsql.released.quantile_spans import BEYOND, among_rows, rank_reach, rows_needed, span, span_record
from dpsql.statistics.aggregates import GroupedSums
from dpsql.statistics.counts import GridHistogram, MagnitudeHistogram, rank_utility_range


class GroupCells:
    """The cells of a group with their representative values; for whole numbers these values are whole.

    Parameters
    ----------
    grid : EvenCells
    is_whole : bool
        Whether the values of the column are whole numbers.
    """

    def __init__(self, grid: EvenCells, *, is_whole: bool) -> None:
        self._grid = grid
        self._is_whole = is_whole

    def middle(self, cell: int) -> float:
        """Return the representative value of a cell; it is within the bounds."""
        centre = self._grid.middle(cell)
        lower, upper = self._grid.ends
        return min(max(float(round(centre)), lower), upper) if self._is_whole else centre

    def ends(self, first: int, last: int) -> tuple[float, float]:
        """Return the least and the greatest value in the cells first to last."""
        lower, upper = self._grid.limits(first, last)
        if not self._is_whole:
            return lower, upper
        inside = upper if upper == self._grid.ends[1] else math.nextafter(upper, -math.inf)
        ends = float(math.ceil(lower)), float(math.floor(inside))
        return ends if ends[0] <= ends[1] else (lower, upper)


_MOST_CELLS = 1 << 20
_MOST_QUANTILES = 1000
# Default cells: all groups together have at most the second number, unless each group has the first.
_LEAST_GROUP_CELLS, _ALL_GROUP_CELLS = 1 << 10, 1 << 20
# Bounds that are whole numbers have at least so many cells, the same number between two neighbouring whole numbers.
_WHOLE_CELLS = 1 << 12


def _quantiles(quantiles: object) -> tuple[str, ...]:
    """Return the quantiles as exact decimals, ascending."""
    items = parameters.list_items(quantiles, most=_MOST_QUANTILES)
    items = (quantiles,) if items is None else items
    hint = "0.5 is the median; give ascending numbers such as [0.25, 0.5, 0.75]."
    checked = [parameters.open_unit_interval("a quantile", item, hint=hint) for item in items]
    if not checked or len(checked) > _MOST_QUANTILES or any(a >= b for a, b in pairwise(checked)):
        raise ParameterError("P029", f"quantiles must be 1 to {_MOST_QUANTILES} ascending numbers. {hint}")
    return tuple(str(quantile) for quantile in checked)


@dataclass(frozen=True, kw_only=True)
class QuantilePlan(ColumnPlan, DrawnBoundsPlan):
    """The checked public arguments of one ``dp_quantile`` call."""

    quantiles: tuple[str, ...]  # exact decimals
    lower: float | None  # None without public bounds
    upper: float | None
    cells: int | None  # None if the cells follow from type and bounds
    interval_share: Fraction | None  # of the epsilon that bounds leave; None for no intervals

    function: ClassVar[str] = "dp_quantile"
    arguments: ClassVar[Signature] = Signature(
        TARGET,
        Argument(
            "quantiles",
            "The quantiles to draw: one number between 0 and 1, or up to 1000 in ascending order.",
            0.5,
            check=_quantiles,
            kind="Numbers",
        ),
        EPSILON,
        *(replace(argument, default_text="none; drawn privately with by", stand_in=None) for argument in COLUMN_BOUNDS),
        replace(
            integer(
                "cells",
                "Number of cells of equal width between the bounds, from 1 to 1048576. A quantile is the midpoint of a "
                "cell.",
                hint="Leave it out for cells that follow from the column's type and the bounds.",
                most=_MOST_CELLS,
                default_text="by the column's type and the bounds",
            ),
            earlier=(1024,),
        ),
        optional_share(
            "interval_share",
            "Share of epsilon, from 0 to below 1, that pays for the intervals of the quantiles.",
            0.25,
            hint="0.25 is usual; 0 pays for no intervals.",
            earlier=(0,),
        ),
        replace(
            BOUNDS_SHARE,
            doc="Share of epsilon that draws bounds first where none are given, between 0 and 1. Quantiles need none "
            "without by.",
            default=None,
            default_text="none are drawn; 0.25 with by",
            earlier=(0.25,),
        ),
        *GROUPED_COLUMN,
    )

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = {**super()._own(arguments, layout), **cls._read(arguments, "cells", "quantiles", "interval_share")}
        if not are_missing(arguments):
            return {**own, **column_bounds(arguments, "dp_quantile reads one column"), "bounds_share": None}
        read = cls._read(arguments, "bounds_share")
        if arguments["by"]:
            return {**own, "lower": None, "upper": None, "bounds_share": read["bounds_share"] or read_share({})}
        if own["cells"] is not None and read["bounds_share"] is None:
            raise ParameterError(
                "P046", "cells divide bounds, and there are none. Give lower and upper, or leave cells out."
            )
        return {**own, "lower": None, "upper": None, **read}

    @property
    def group_cells(self) -> int:
        """Return the number of cells of each group, from public bounds, or the largest number within drawn bounds."""
        return self._most_group_cells if self.public_bounds is None else self._cells_of(*self.public_bounds)

    @property
    def _most_group_cells(self) -> int:
        """Return the largest number of cells of each group: the argument, or a number by the groups."""
        if self.cells is not None:
            return self.cells
        keys = None if self.public_keys is None else self.public_keys.count
        groups = _ALL_GROUP_CELLS if keys is None else keys + self.other
        share = _ALL_GROUP_CELLS // max(1, groups)
        return min(max(1 << max(0, share.bit_length() - 1), _LEAST_GROUP_CELLS), EVEN_CELLS)

    def _cells_of(self, lower: float, upper: float) -> int:
        """Return the number of cells of each group between bounds."""
        most, width = self._most_group_cells, upper - lower
        if self.cells is not None or not (lower.is_integer() and upper.is_integer() and 2 * width <= most):
            return most
        steps, cells = int(width), 2 * int(width)
        while cells < _WHOLE_CELLS and 2 * cells <= most:
            cells *= 2
        return max(cells, steps)

    def grid(self, lower: float, upper: float) -> EvenCells:
        """Return the cells between bounds, of the rows of each group."""
        return EvenCells(lower, upper, self._cells_of(lower, upper))

    @cached_property
    def derived(self) -> DerivedKey:
        """Return the cells; a row without a value is in none."""
        if self.public_bounds is None:
            return DerivedKey(LearnedCells(self.group_cells), -math.inf, math.inf, missing=False, divides=False)
        return DerivedKey(self.grid(*self.public_bounds), *self.public_bounds, missing=False, divides=False)

    @property
    def public_bounds(self) -> tuple[float, float] | None:
        """Return the public bounds; None if there are none."""
        return None if self.lower is None or self.upper is None else (self.lower, self.upper)

    @cached_property
    def levels(self) -> int:
        """Return the number of rounds of halving; each spends the same share of epsilon."""
        return halving_levels(len(self.quantiles))

    @cached_property
    def at(self) -> tuple[Fraction, ...]:
        """Return the quantiles."""
        return tuple(map(Fraction, self.quantiles))

    def at_levels_of(self, groups: Sequence[Longs]) -> QuantilePlan:
        """Return the plan whose quantiles are drawn from the counts of all groups: this plan."""
        return self

    @property
    def failures(self) -> tuple[float, ...]:
        """Return the failure chances of intervals: each quantile has one interval for each chance."""
        return (FAILURE,)

    @cached_property
    def rank_part(self) -> RankCounts | None:
        """Return the noisy counts for intervals; None if intervals have no share, or the noise is too wide to draw."""
        if self.interval_share is None:
            return None
        epsilon = self.remaining_epsilon * self.interval_share
        part = RankCounts("ranks", epsilon, self.neighbours, self.contribution.rows)
        return part if part.is_drawable else None

    @cached_property
    def selection(self) -> QuantileSelection:
        """Return the selection of the quantiles, at the remaining epsilon."""
        epsilon = self.remaining_epsilon - (0 if self.rank_part is None else self.rank_part.epsilon)
        select = GroupQuantileSelection if self.by else QuantileSelection
        return select("quantiles", epsilon, self.at, self.neighbours, self.contribution.rows)

    @cached_property
    def measurement(self) -> Measurement:
        """Return the measurement: any bounds, an exponential mechanism per level, and counts, in all groups."""
        bounds = (ScannedInterval("bounds", self.bounds_noise),) if self.draws_bounds else ()
        return measurement_of(*bounds, self.selection, *(() if self.rank_part is None else (self.rank_part,)))

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of the noise of private bounds, and of the counts for intervals."""
        return (*self.bounds_scales, *(() if self.rank_part is None else (self.rank_part.scale,)))

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the noise of the call: the error of a quantile in ranks (rows), within its group with `by`."""
        whose = "rows of its group" if self.by else "rows"
        which = "a first quantile is" if self.by else "the first quantile drawn is"
        out: list[Quantity] = [("rank_error", self.ranks, f"{whose} that {which} off by, in 95 % of calls")]
        if n_rows is not None and not self.by:
            out.append(("rank_error_share", self.ranks / n_rows, "that as a share of the rows"))
        if self.rank_part is not None:
            meaning = f"{whose} between a quantile and either end of its interval, but for noise of as many"
            out.append(("interval_ranks", rank_reach(self.at, self.rank_part.scale), meaning))
        needed = self.rows_needed
        if self.draws_bounds:
            out.append(self.bounds_needed)
            needed = max(needed, self.bounds_noise.rows_needed)
        meaning = f"{whose} from which that error leaves rows on both sides of the outermost quantile"
        if self.rank_part is not None:
            meaning = f"{whose} from which a quantile may be clear"
        if n_rows is not None and n_rows < needed:
            meaning += f"; with {n_rows:,} rows the noise may put it beyond all rows"
        out.append(("rows_needed", needed, meaning))
        return out

    @property
    def ranks(self) -> float:
        """Return the rank error in rows of the first drawn quantile in 95 % of calls."""
        return self.off(1 / 20, self.group_cells if self.by else most_cells(self.cells, bounded=self.lower is not None))

    def off(self, failure: float, cells: int) -> float:
        """Return the rank error in rows that the first drawn quantile exceeds with a chance of at most `failure`.

        A cell r ranks off is ``exp(-c r)`` times as likely as a cell at the quantile, and there are `cells` cells: the
        error is below ``log(cells / failure) / c`` except for that chance.
        """
        middle = self.at[len(self.at) // 2]
        rows = self.contribution.rows
        spread = rank_utility_range(middle, self.neighbours, is_whole=not self.by, max_rows_per_unit=rows)
        candidates = cells * parts_of_a_cell(cells, len(self.at))
        return math.log(candidates / failure) * float(spread * self.levels / self.selection.epsilon)

    def astray(self, cells: int) -> tuple[float, float]:
        """Return the two rank errors in rows that `among_rows` needs, for `cells` cells."""
        return self.off(BEYOND, cells), self.off(1.0, cells)

    @property
    def rows_needed(self) -> float:
        """Return the rows at which every quantile has rows on both sides of its error, and every interval is closed."""
        needed = of_ranks = self.ranks / float(min(min(share, 1 - share) for share in self.at))
        part = self.rank_part
        if part is not None:
            bounded = self.public_bounds is not None or self.draws_bounds or bool(self.by)
            needed = max(of_ranks, rows_needed(self.at, part.scale, bounded=bounded))
        return float(math.ceil(needed)) if math.isfinite(needed) else math.inf


@dataclass(frozen=True)
class QuantileCall(ColumnCall, DrawnBoundsCall):
    """A dp_quantile call, with the column types of its source.

    Attributes
    ----------
    interval : PrivateInterval or None
        The private bounds of a call with groups, after their draw.
    """

    plan: QuantilePlan
    interval: PrivateInterval | None = None

    @cached_property
    def grid(self) -> EvenCells:
        """Return the cells of the rows of each group, between public bounds, or private bounds after their draw."""
        ends = self.plan.public_bounds
        if ends is None and self.interval is not None:
            ends = whole_steps(*(self.interval.ends or UNIT_BOUNDS), self.kind)
        if ends is None:
            raise InternalError("I032", "cells of groups were asked for without bounds. Report it.")
        return self.plan.grid(*ends)

    @property
    def drawn_codes(self) -> list[ValueCode]:
        """Return the codes for the cells of values, after the draw."""
        return [ValueCode(*self.grid.learned)]

    @property
    def cells(self) -> int:
        """Return the number of cells of a group; the largest number before the bounds are drawn."""
        return super().cells if self.interval is None else self.grid.count

    def start(self) -> Collector:
        """Return the collector of the first pass: empty counts."""
        if self.plan.by:
            return super().start() if not self.plan.draws_bounds or self.interval is not None else TargetMagnitudes(1)
        if self.plan.draws_bounds:
            return ColumnMagnitudes(self.plan, self.kind)
        bounds = self.plan.public_bounds
        return GridHistogram(
            ScaleCounts(self.kind) if bounds is None else cells_between(*bounds, self.kind, self.plan.cells)
        )

    @property
    def kind(self) -> pa.DataType:
        """Return the type of the column."""
        return self.kinds[-1]

    def collect(self, collector: Collector, rows: pa.StructArray, batch: Batch) -> None:
        """Pass rows, or counts of groups and cells, to the collector."""
        if isinstance(collector, TargetMagnitudes):
            collector.take(rows, batch)
        else:
            super().collect(collector, rows, batch)

    def after(self, collector: Collector) -> QuantileCall:
        """Draw the bounds of groups at the end of the pass that finds them; return the call with these bounds.

        Notes
        -----
        - **Guarantee**: pure DP at ``plan.bounds_epsilon``, see `dpsql.mechanisms.interval_scan`.
        - **Sensitivity**: the same; the rows of a privacy unit are at most ``contribution.rows``, in all groups.
        """
        if not isinstance(collector, TargetMagnitudes):
            return self
        part: ScannedInterval = self.plan.measurement["bounds"]
        return replace(self, interval=part.draw(collector.inner.cells.counts[0]))

    def turn(self, collector: Collector, progress: Progress) -> Collector:
        """Begin the counts of groups after the draw of their bounds."""
        return self.start() if isinstance(collector, TargetMagnitudes) else super().turn(collector, progress)

    def prepare(
        self, statistic: GroupedSums | GridHistogram | BoundedCells | WithoutBounds, progress: Progress
    ) -> Callable[[], Json] | Draw:
        """Return the draw of the quantiles, of all groups if there are groups."""
        plan = self.plan
        if isinstance(statistic, GroupedSums):
            counts, keys = self.counts(statistic), self.keys_record
            if self.interval is not None:
                noise: dict[str, Json] = {"std_error": plan.bounds_noise.deviation} if plan.draws_bounds else {}
                keys |= {"bounds": {"interval": interval_record(self.interval), **noise}}
            if self.interval is not None and self.interval.ends is None:
                return self._without_bounds({**keys, **undrawn_group_quantiles(plan, len(counts))})
            cells = GroupCells(self.grid, is_whole=plan.cells is None and decimals(self.kind) == 0)
            return lambda: {**keys, **draw_group_quantiles(plan, cells, counts)}
        if isinstance(statistic, GridHistogram):
            column = statistic.cells
            return lambda: draw_quantiles(plan, column)
        known_bounds: dict[str, Json] = {
            "interval": interval_record(statistic.interval),
            "std_error": plan.bounds_noise.deviation,
        }
        if isinstance(statistic, WithoutBounds):
            values: list[Json] = [[float(share), None] for share in plan.at]
            return Draw(plan.measurement.only("bounds"), lambda: {"values": values, "bounds": known_bounds})
        column = statistic.inner.cells
        return lambda: {**_as_mapping(draw_quantiles(plan, column)), "bounds": known_bounds}

    def _without_bounds(self, record: dict[str, Json]) -> Callable[[], Json] | Draw:
        """Return the end of a call with groups without bounds: only the bounds are charged."""
        return Draw(self.plan.measurement.only("bounds"), lambda: record)


class ColumnMagnitudes(RowTransform[MagnitudeHistogram]):
    """The pass that finds bounds: the rows by their universal cells."""

    def __init__(self, plan: QuantilePlan, kind: pa.DataType) -> None:
        super().__init__(MagnitudeHistogram(0, target=True))
        self._plan, self._kind = plan, kind

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw the bounds, and return the pass over the cells between them.

        Notes
        -----
        - **Guarantee**: pure DP at ``plan.bounds_epsilon``, see `dpsql.mechanisms.interval_scan`.
        - **Sensitivity**: the same; the rows of a privacy unit are at most ``max_rows_per_unit``.
        """
        part: ScannedInterval = self._plan.measurement["bounds"]
        interval = part.draw(self.inner.cells.counts[0])
        if interval.ends is None:
            return WithoutBounds(interval)
        # No interval is too narrow for the cells: its width is a sixteenth of a power of two, or it contains zero.
        ends = whole_steps(*interval.ends, self._kind)
        return BoundedCells(GridHistogram(cells_between(*ends, self._kind, self._plan.cells)), interval)


class BoundedCells(RowTransform[GridHistogram]):
    """The pass over the cells between private bounds."""

    def __init__(self, cells: GridHistogram, interval: PrivateInterval) -> None:
        super().__init__(cells)
        self.interval = interval


class WithoutBounds(Ignoring):
    """The end of a call without bounds: only the bounds are charged."""

    def __init__(self, interval: PrivateInterval) -> None:
        self.interval = interval


def draw_quantiles(plan: QuantilePlan, cells: CellCounts) -> Json:
    """Draw the quantiles and their intervals; return their record for the ledger.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.remaining_epsilon``, see `dpsql.mechanisms.quantile.quantiles` and
      `dpsql.mechanisms.rank_counts`: the counts follow from the cells drawn before.
    """
    counts = cells.counts
    plan = plan.at_levels_of([counts])
    positions = plan.selection.draw_tied(counts)
    [record] = _records(plan, cells, [counts], [positions])
    pairs: list[Json] = [[float(share), value] for share, value in zip(plan.at, record["values"], strict=True)]
    return pairs if plan.rank_part is None else {**record, "values": pairs}


def draw_group_quantiles(plan: QuantilePlan, cells: GroupCells, counts: Longs) -> dict[str, Json]:
    """Draw the quantiles of all groups and their intervals; return their record for the ledger.

    Parameters
    ----------
    plan : QuantilePlan
    cells : GroupCells
    counts : ndarray of int64, shape (groups, cells)

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.epsilon`` for all groups together, as for `draw_quantiles`.
    """
    plan = plan.at_levels_of(list(counts))
    if not isinstance(plan.selection, GroupQuantileSelection):
        raise InternalError("I032", "quantiles of groups were asked for of a plan without groups. Report it.")
    records = _records(plan, cells, list(counts), plan.selection.draw_groups(counts))
    lists: dict[str, Json] = {name: [record[name] for record in records] for name in (records or [{}])[0]}
    return {"quantiles": [float(share) for share in plan.at], "values": [], **lists}


def undrawn_group_quantiles(plan: QuantilePlan, groups: int) -> dict[str, Json]:
    """Return the ledger's record for quantiles of groups without bounds: no value, and no interval."""
    nothing: list[Json] = [[None] * len(plan.at) for _ in range(groups)]
    return {"quantiles": [float(share) for share in plan.at], "values": nothing}


def _records(
    plan: QuantilePlan, cells: CellCounts | GroupCells, groups: Sequence[Longs], selections: Sequence[Sequence[int]]
) -> list[dict[str, list[Json]]]:
    """Return the values of each group, and the counts for its intervals."""
    part = plan.rank_part
    if part is None:
        return [{"values": [cells.middle(cell) for cell in group]} for group in selections]
    cuts = [cuts_around(group, len(counts)) for group, counts in zip(selections, groups, strict=True)]
    noisy = part.draw([bins_between(counts, between) for counts, between in zip(groups, cuts, strict=True)])
    bounded = plan.public_bounds is not None or plan.draws_bounds or bool(plan.by)
    bounds = cells.ends(0, len(groups[0]) - 1) if bounded and len(groups) else (None, None)
    records = []
    for selection, between, rows in zip(selections, cuts, noisy, strict=True):
        own: dict[str, list[Json]] = {}
        among = (
            [*selection]
            if bounded
            else among_rows(rows, between, selection, plan.at, part.scale, *plan.astray(len(groups[0])))
        )
        standing = [cell if near is None else near for cell, near in zip(selection, among, strict=True)]
        values = [cells.middle(cell) for cell in standing]
        for number, failure in enumerate(plan.failures, start=1):
            spans = [
                replace(interval, moved=near != cell, off=math.inf if near is None else interval.off)
                for cell, near, interval in zip(
                    selection,
                    among,
                    (span(rows, between, *pair, part.scale, failure) for pair in zip(standing, plan.at, strict=True)),
                    strict=True,
                )
            ]
            ends = [cells.ends(interval.first, interval.last) for interval in spans]
            record = span_record(values, spans, ends, bounds)
            own |= record if number == 1 else {f"{end}_{number}": record[end] for end in ("lower", "upper")}
        records.append(own)
    return records


def _as_mapping(record: Json) -> dict[str, Json]:
    """Return a record of quantiles as a mapping, which has room for bounds."""
    return dict(record) if isinstance(record, Mapping) else {"values": record}
