"""dp_count, dp_sum, dp_avg, dp_variance, dp_stddev and dp_aggregate: private aggregates, in groups, as one release.

All groups, targets and aggregates of a call get their noise in one draw, and the ledger shows one event. A privacy unit
contributes to few of the numbers, and `dpsql.contract.contribution` says to how many; so fifty groups cost what one
does. Which integers get noise is said in `dpsql.statistics.aggregates`, what is estimated from them in
`dpsql.released.moments`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract.fold import Batch, Collector
from dpsql.contract.json import Json
from dpsql.errors import InternalError
from dpsql.functions.aggregate_plan import AggregatePlan
from dpsql.functions.grouped import GroupedCall
from dpsql.kernels.columns import to_doubles
from dpsql.kernels.fixed_point import quantise
from dpsql.mechanisms.aggregates import NoisyBlock
from dpsql.progress import Progress
from dpsql.released.aggregates import record_of
from dpsql.statistics.aggregates import Sums
from dpsql.statistics.grouped_sums import GroupedSums, GroupRecords


@dataclass(frozen=True)
class AggregateCall(GroupedCall):
    """A call of dp_aggregate or of one of its thin forms, with the column types of its source."""

    plan: AggregatePlan

    def check(self) -> None:
        """Raise if the keys do not fit the types, or if the noise cannot be drawn."""
        self.plan.check_drawable(1)
        _ = self.places

    @cached_property
    def needs_squares(self) -> bool:
        """Whether a target needs the sum of squares."""
        return any(block is not None and block.needs_squares for block in self.plan.target_blocks)

    def start(self) -> Collector:
        """Return the collector of the groups' sums."""
        return GroupedSums(self.places.count, len(self.plan.targets), squares=self.needs_squares)

    def collect(self, collector: GroupedSums, rows: pa.StructArray, batch: Batch) -> None:
        """Pass the sums of some groups to the collector, or in the aggregate form a batch of rows."""
        if not self.plan.source:
            collector.add(np.empty(0), self._codes(rows), batch)
            return
        columns = [rows.field(f"p{column}").to_numpy(zero_copy_only=False) for column in range(len(self.plan.by))]
        collector.add_groups(self.places.of(columns, len(rows)), GroupRecords.read(rows, len(self.plan.targets)))

    def _codes(self, rows: pa.StructArray) -> NDArray[np.float64]:
        """Return the codes of a batch of rows, shape (targets, rows); NaN for NULL."""
        codes = np.zeros((len(self.plan.targets), len(rows)))
        for position, block in enumerate(self.plan.target_blocks):
            column = rows.field(position)
            if block is None:
                codes[position, column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)] = np.nan
                continue
            values = to_doubles(column)
            missing = np.isnan(values)
            codes[position] = quantise(np.clip(values, block.lower, block.upper), *block.affine)
            codes[position, missing] = np.nan
        return codes

    def prepare(self, statistic: GroupedSums, progress: Progress) -> Callable[[], Json]:
        """Return the draw of all groups."""
        plan, places = self.plan, self.places
        sums = statistic.sums()
        given = sums[1:] if plan.targets else sums[:1]
        return lambda: record_of(draw_aggregates(plan, given), plan, places.labels, self.types)


def draw_aggregates(plan: AggregatePlan, sums: Sequence[Sums]) -> list[NoisyBlock]:
    """Draw the noisy blocks of all groups; see `dpsql.mechanisms.aggregates.GroupedNoise`."""
    return plan.part.draw(sums)
