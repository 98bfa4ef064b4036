"""dp_quantile: private quantiles of one column, or of each group of it, within public bounds, or within private ones.

Groups need public bounds. Without public bounds there are two passes over the rows. The first draws an interval that
holds the bulk of the column (`dpsql.mechanisms.interval_scan`) at `bounds_share` of epsilon; it is released. The second
counts the rows in the cells of that interval, and the quantiles are drawn at the rest of epsilon. By basic composition
both cost epsilon, and under zCDP what their events add up to. Where no interval is found nothing more is drawn, and the
rest is not charged.

**Bounds.** dp_bounds: a private interval that holds the bulk of one column, or of each group of it, without any prior
bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

from dpsql.contract import parameters
from dpsql.contract.arguments import COLUMN_BOUNDS, EPSILON, TARGET, Argument, Signature, integer, share
from dpsql.contract.bounds import column_bounds
from dpsql.contract.fold import Collector, Ignoring, RowTransform
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Draw, Measurement, measurement_of
from dpsql.contract.plan import Quantity
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.grouped.counts import GROUPED_COLUMN, ColumnCall, ColumnPlan
from dpsql.functions.grouped.plan import BOUNDS_SHARE, DrawnBoundsPlan, are_missing, read_share
from dpsql.functions.value_cells import DerivedKey, EvenCells, MagnitudeCells
from dpsql.kernels.cells import GridCounts
from dpsql.mechanisms.interval_scan import IntervalNoise, PrivateInterval, ScannedInterval
from dpsql.mechanisms.quantile import GroupQuantileSelection, QuantileSelection, halving_levels, parts_of_a_cell
from dpsql.progress import Progress
from dpsql.released.intervals import interval_record
from dpsql.statistics.counts import GridHistogram, MagnitudeHistogram, rank_utility_range
from dpsql.statistics.grouped_sums import GroupedSums


@dataclass(frozen=True, kw_only=True)
class BoundsPlan(ColumnPlan):
    """The checked public arguments of one ``dp_bounds`` call."""

    failure: Fraction

    function: ClassVar[str] = "dp_bounds"
    arguments: ClassVar[Signature] = Signature(
        TARGET,
        EPSILON,
        share(
            "failure",
            "Chance, at most, that either claim about a clear interval is false, between 0 and 1.",
            0.01,
            hint="0.01 is the usual value.",
            earlier=(0.001,),
        ),
        *GROUPED_COLUMN,
    )

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        return {**super()._own(given, layout), **cls._read(given, "failure")}

    @cached_property
    def derived(self) -> DerivedKey:
        """The universal cells; a row without a value is in none."""
        return DerivedKey(MagnitudeCells(), -math.inf, math.inf, missing=False, divides=False)

    @property
    def interval_noise(self) -> IntervalNoise:
        """The noise of each interval: of a unit all rows count that its limits leave, in all groups together."""
        return IntervalNoise(self.epsilon, self.neighbours, self.contribution.rows, self.failure)

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: the interval of the column, or those of all groups."""
        return measurement_of(ScannedInterval("interval", self.interval_noise))

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of the noise in scans and counts."""
        return self.interval_noise.scales

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the call would be, of the rows of one group: what an interval needs and leaves out."""
        noise = self.interval_noise
        return [
            (
                "rows_needed",
                float(noise.rows_needed),
                "rows with a value from which the verdict is clear, but for noise",
            ),
            ("rows_left", float(noise.rows_left), "rows that either end leaves outside, but for noise"),
            ("std_error", noise.deviation, "standard deviation of the noise in rows_inside and in rows_outside"),
            ("count_reach", float(noise.count_reach), "error of both, with a chance of at least 1 - failure"),
        ]


@dataclass(frozen=True)
class BoundsCall(ColumnCall):
    """A dp_bounds call, with the column types of its source."""

    plan: BoundsPlan

    def start(self) -> Collector:
        """Return empty counts."""
        return super().start() if self.plan.by else MagnitudeHistogram(0, target=True)

    def prepare(self, statistic: GroupedSums | MagnitudeHistogram, progress: Progress) -> Callable[[], Json]:
        """Return the draw of the interval, or of those of all groups."""
        part: ScannedInterval = self.plan.measurement["interval"]
        error: dict[str, Json] = {"std_error": part.noise.deviation}
        if isinstance(statistic, MagnitudeHistogram):
            counts = statistic.cells.counts[0]
            return lambda: {"interval": interval_record(part.draw(counts)), **error}
        groups, keys = self.counts(statistic), self.keys_record
        return lambda: {**keys, "intervals": [interval_record(drawn) for drawn in part.draw_groups(groups)], **error}


_MOST_CELLS = 1 << 20
_MOST_QUANTILES = 1000


def _quantiles(given: object) -> tuple[str, ...]:
    """Return the quantiles as exact decimals, ascending."""
    items = parameters.list_items(given, most=_MOST_QUANTILES)
    items = (given,) if items is None else items
    hint = "0.5 is the median; give ascending numbers such as [0.25, 0.5, 0.75]."
    checked = [parameters.open_unit_interval("a quantile", item, hint=hint) for item in items]
    if not checked or len(checked) > _MOST_QUANTILES or any(a >= b for a, b in pairwise(checked)):
        raise ParameterError("P029", f"quantiles must be 1 to {_MOST_QUANTILES} ascending numbers. {hint}")
    return tuple(str(quantile) for quantile in checked)


@dataclass(frozen=True, kw_only=True)
class QuantilePlan(ColumnPlan, DrawnBoundsPlan):
    """The checked public arguments of one ``dp_quantile`` call."""

    quantiles: tuple[str, ...]  # exact decimals
    lower: float | None  # None where bounds are private
    upper: float | None
    cells: int

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
        *(replace(one, shown="drawn privately; required with by", stand_in=None) for one in COLUMN_BOUNDS),
        integer(
            "cells",
            "Number of cells between the bounds, from 1 to 1048576. A quantile is the midpoint of a cell.",
            1024,
            hint="1024 is the usual value.",
            most=_MOST_CELLS,
        ),
        BOUNDS_SHARE,
        *GROUPED_COLUMN,
    )

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = {**super()._own(given, layout), **cls._read(given, "cells", "quantiles")}
        if not given["by"] and are_missing(given):
            return {**own, "lower": None, "upper": None, "bounds_share": read_share(given)}
        return {**own, **column_bounds(given, "dp_quantile reads one column"), "bounds_share": None}

    @classmethod
    def stand_ins(cls, given: Mapping[str, object]) -> dict[str, object]:
        """Return values for required arguments; the noise of groups does not depend on their bounds."""
        return {**super().stand_ins(given), **({"lower": 0, "upper": 1} if given.get("by") else {})}

    @cached_property
    def grid(self) -> EvenCells:
        """The cells between public bounds, of the rows of each group."""
        if self.public_bounds is None:
            raise InternalError("I032", "cells between private bounds were asked for too early. Report it.")
        return EvenCells(*self.public_bounds, self.cells)

    @cached_property
    def derived(self) -> DerivedKey:
        """The cells; a row without a value is in none."""
        lower, upper = self.grid.ends
        return DerivedKey(self.grid, lower, upper, missing=False, divides=False)

    @property
    def public_bounds(self) -> tuple[float, float] | None:
        """The public bounds; None where they are private."""
        return None if self.lower is None or self.upper is None else (self.lower, self.upper)

    @cached_property
    def levels(self) -> int:
        """Number of rounds of halving; each spends the same share of epsilon."""
        return halving_levels(len(self.quantiles))

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: one exponential mechanism per level, in all groups together, after any private bounds."""
        at = tuple(map(Fraction, self.quantiles))
        select = GroupQuantileSelection if self.by else QuantileSelection
        selection = select("quantiles", self.remaining_epsilon, at, self.neighbours, self.contribution.rows)
        bounds = (ScannedInterval("bounds", self.bounds_noise),) if self.draws_bounds else ()
        return measurement_of(*bounds, selection)

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of the noise of private bounds."""
        return self.bounds_scales

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the call would be, as the error of a quantile in ranks (rows), of its group if there are."""
        ranks = self.ranks
        if self.by:
            return [("rank_error", ranks, "rows of its group that a first quantile is off by, in 95 % of calls")]
        out: list[Quantity] = [("rank_error", ranks, "rows that the first quantile drawn is off by, in 95 % of calls")]
        if n_rows is not None:
            out.append(("rank_error_share", ranks / n_rows, "that as a share of the rows"))
        needed = self.rows_needed
        if self.draws_bounds:
            out.append(self.bounds_needed)
            needed = max(needed, self.bounds_noise.rows_needed)
        meaning = "rows from which that error leaves rows on both sides of the outermost quantile"
        if n_rows is not None and n_rows < needed:
            meaning += f"; with {n_rows:,} rows the noise may put it beyond all rows"
        out.append(("rows_needed", needed, meaning))
        return out

    @property
    def ranks(self) -> float:
        """Rows that the first quantile drawn is off by, in 95 % of calls."""
        middle = Fraction(self.quantiles[len(self.quantiles) // 2])
        rows = self.contribution.rows
        spread = rank_utility_range(middle, self.neighbours, whole=not self.by, max_rows_per_unit=rows)
        # A cell r ranks off is exp(-c r) times as likely. With a chance of 95 %, the error is below log(20 cells) / c.
        candidates = self.cells * parts_of_a_cell(self.cells, len(self.quantiles))
        return math.log(20 * candidates) * float(spread * self.levels / self.remaining_epsilon)

    @property
    def rows_needed(self) -> int:
        """Rows from which that error leaves rows on both sides of every quantile."""
        return math.ceil(self.ranks / float(min(min(at, 1 - at) for at in map(Fraction, self.quantiles))))


@dataclass(frozen=True)
class QuantileCall(ColumnCall):
    """A dp_quantile call, with the column types of its source."""

    plan: QuantilePlan

    def start(self) -> Collector:
        """Return the collector of the first pass: empty counts."""
        if self.plan.by:
            return super().start()
        bounds = self.plan.public_bounds
        return ColumnMagnitudes(self.plan) if bounds is None else GridHistogram(GridCounts(*bounds, self.plan.cells))

    def prepare(
        self, statistic: GroupedSums | GridHistogram | BoundedCells | WithoutBounds, progress: Progress
    ) -> Callable[[], Json] | Draw:
        """Return the draw of the quantiles, of all groups if there are."""
        plan, shares = self.plan, [float(Fraction(quantile)) for quantile in self.plan.quantiles]
        if isinstance(statistic, GroupedSums):
            part: GroupQuantileSelection = plan.measurement["quantiles"]
            counts, keys = self.counts(statistic), self.keys_record

            def draw() -> Json:
                values: list[Json] = [list(map(plan.grid.middle, cells)) for cells in part.draw_groups(counts)]
                return {**keys, "quantiles": [*shares], "values": values}

            return draw
        if isinstance(statistic, GridHistogram):
            cells = statistic.cells
            return lambda: draw_quantiles(plan, cells)
        known_bounds: dict[str, Json] = {
            "interval": interval_record(statistic.drawn),
            "std_error": plan.bounds_noise.deviation,
        }
        if isinstance(statistic, WithoutBounds):
            values: list[Json] = [[share, None] for share in shares]
            return Draw(plan.measurement.only("bounds"), lambda: {"values": values, "bounds": known_bounds})
        cells = statistic.inner.cells
        return lambda: {"values": [*draw_quantiles(plan, cells)], "bounds": known_bounds}


class ColumnMagnitudes(RowTransform[MagnitudeHistogram]):
    """The pass that finds bounds: the rows by their universal cells."""

    def __init__(self, plan: QuantilePlan) -> None:
        super().__init__(MagnitudeHistogram(0, target=True))
        self._plan = plan

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw the bounds, and return the pass over the cells between them.

        Notes
        -----
        - **Guarantee**: pure DP at ``plan.bounds_epsilon``, see `dpsql.mechanisms.interval_scan`.
        - **Sensitivity**: as there; the rows of a privacy unit are at most ``max_rows_per_unit``.
        """
        part: ScannedInterval = self._plan.measurement["bounds"]
        drawn = part.draw(self.inner.cells.counts[0])
        if drawn.ends is None:
            return WithoutBounds(drawn)
        # No interval is too narrow for the cells: it is a sixteenth of a power of two wide, or around zero.
        return BoundedCells(GridHistogram(GridCounts(*drawn.ends, self._plan.cells)), drawn)


class BoundedCells(RowTransform[GridHistogram]):
    """The pass over the cells between private bounds."""

    def __init__(self, cells: GridHistogram, drawn: PrivateInterval) -> None:
        super().__init__(cells)
        self.drawn = drawn


class WithoutBounds(Ignoring):
    """The end of a call without bounds: only these are charged."""

    def __init__(self, drawn: PrivateInterval) -> None:
        self.drawn = drawn


def draw_quantiles(plan: QuantilePlan, cells: GridCounts) -> list[list[float]]:
    """Draw the quantiles; return pairs of quantile and value.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.remaining_epsilon``, see `dpsql.mechanisms.quantile.quantiles`.
    """
    part: QuantileSelection = plan.measurement["quantiles"]
    found = part.draw_tied(cells.counts)
    shares = [float(Fraction(quantile)) for quantile in plan.quantiles]
    return [[share, cells.middle(cell)] for share, cell in zip(shares, found, strict=True)]
