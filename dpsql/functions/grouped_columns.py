"""dp_quantile and dp_bounds with `by`: one release of every group with a public key.

The rows of a group and cell are counted in SQL, and every group is given the whole epsilon: a row is in one group. For
quantiles a replaced row costs more than without groups (`dpsql.mechanisms.quantile.quantiles`), for bounds it does not
(`dpsql.mechanisms.interval_scan`). Of a privacy unit all rows count that its limits on groups and rows leave, K1
in `dpsql.contract.contribution`. Every group that is listed is in the result, also if it is empty.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dpsql.contract import parameters
from dpsql.contract.arguments import Signature
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import Quantity
from dpsql.errors import ParameterError
from dpsql.functions.bounds import BoundsPlan, interval_quantities
from dpsql.functions.group_counts import CountedCall, CountedPlan
from dpsql.functions.quantile import QuantilePlan, rank_error, read_grid
from dpsql.functions.value_cells import DerivedKey, EvenCells, MagnitudeCells
from dpsql.mechanisms.choices import GroupQuantileSelection
from dpsql.mechanisms.interval_scan import IntervalNoise
from dpsql.mechanisms.parts import ScannedInterval
from dpsql.progress import Progress
from dpsql.released.bounds import interval_record
from dpsql.released.results import groups_record
from dpsql.statistics.counts import rank_utility_range
from dpsql.statistics.grouped_sums import GroupedSums


@dataclass(frozen=True, kw_only=True)
class GroupedColumnPlan(CountedPlan):
    """The plan of a function of one numeric column, in groups.

    Attributes
    ----------
    target : str
    """

    target: str

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        if given.get("row_id") is not None:
            raise ParameterError("P045", "row_id has no effect beside by. Leave it out.")
        target = parameters.text("target", given["target"], hint="Give the name of a column.")
        return {**super()._own({**given, "target": None}, layout), "target": target}

    @property
    def row_columns(self) -> Mapping[str, str] | None:
        """The columns of `by`, and the target as v0."""
        return {**(super().row_columns or {}), "v0": self.target}

    @cached_property
    @abstractmethod
    def derived(self) -> DerivedKey:
        """The cells that values are counted in."""


@dataclass(frozen=True, kw_only=True)
class GroupedQuantilePlan(GroupedColumnPlan):
    """The checked public arguments of one ``dp_quantile`` call with `by`; see `QuantilePlan` for the fields."""

    quantiles: tuple[str, ...]
    lower: float
    upper: float
    cells: int

    function: ClassVar[str] = QuantilePlan.function
    arguments: ClassVar[Signature] = QuantilePlan.arguments

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        return {**super()._own(given, layout), **read_grid(given)}

    @classmethod
    def stand_ins(cls, given: Mapping[str, object]) -> dict[str, object]:
        """Return values for required arguments; the noise does not depend on the bounds."""
        return {**super().stand_ins(given), "lower": 0, "upper": 1}

    @cached_property
    def grid(self) -> EvenCells:
        """The cells between the bounds."""
        return EvenCells(self.lower, self.upper, self.cells)

    @cached_property
    def derived(self) -> DerivedKey:
        """The cells; a row without a value is in none."""
        return DerivedKey(self.grid, self.lower, self.upper, missing=False, divides=False)

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: one exponential mechanism per level, in all groups together."""
        at = tuple(Fraction(quantile) for quantile in self.quantiles)
        unit = (self.neighbours, self.contribution.rows)
        return measurement_of(GroupQuantileSelection("quantiles", self.epsilon, at, *unit))

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the call would be, as the error of a quantile in ranks (rows) of its group."""
        spread = rank_utility_range(
            Fraction(self.quantiles[len(self.quantiles) // 2]),
            self.neighbours,
            whole=False,
            max_rows_per_unit=self.contribution.rows,
        )
        ranks = rank_error(self.cells, len(self.quantiles), spread, self.epsilon)
        return [("rank_error", ranks, "rows of its group that a first quantile is off by, in 95 % of calls")]


class GroupedQuantileCall(CountedCall):
    """A dp_quantile call with `by`, with the column types of its source."""

    plan: GroupedQuantilePlan

    def prepare(self, statistic: GroupedSums, progress: Progress) -> Callable[[], Json]:
        """Return the draw of the quantiles of all groups."""
        plan, counts = self.plan, self.counts(statistic)
        keys = groups_record(plan.key_columns, self.places.labels, self.types)
        part: GroupQuantileSelection = plan.measurement["quantiles"]
        shares: list[Json] = [float(Fraction(quantile)) for quantile in plan.quantiles]

        def draw() -> Json:
            values: list[Json] = [[plan.grid.middle(cell) for cell in group] for group in part.draw_groups(counts)]
            return {**keys, "quantiles": shares, "values": values}

        return draw


@dataclass(frozen=True, kw_only=True)
class GroupedBoundsPlan(GroupedColumnPlan):
    """The checked public arguments of one ``dp_bounds`` call with `by`; see `BoundsPlan` for the fields."""

    failure: Fraction

    function: ClassVar[str] = BoundsPlan.function
    arguments: ClassVar[Signature] = BoundsPlan.arguments

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
        """The measurement: the intervals of all groups."""
        return measurement_of(ScannedInterval("interval", self.interval_noise))

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of the noise in scans and counts."""
        return self.interval_noise.scales

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the call would be, of the rows of one group."""
        return interval_quantities(self.interval_noise)


class GroupedBoundsCall(CountedCall):
    """A dp_bounds call with `by`, with the column types of its source."""

    plan: GroupedBoundsPlan

    def prepare(self, statistic: GroupedSums, progress: Progress) -> Callable[[], Json]:
        """Return the draw of the intervals of all groups."""
        plan, counts = self.plan, self.counts(statistic)
        keys = groups_record(plan.key_columns, self.places.labels, self.types)
        part: ScannedInterval = plan.measurement["interval"]

        def draw() -> Json:
            intervals: list[Json] = [interval_record(interval) for interval in part.draw_groups(counts)]
            return {**keys, "intervals": intervals, "std_error": part.noise.deviation}

        return draw
