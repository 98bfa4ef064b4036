"""dp_count, dp_sum, dp_avg, dp_variance, dp_stddev and dp_aggregate: private aggregates, in groups, as one release.

All groups, targets and aggregates of a call get their noise in one draw, and the ledger shows one event. A privacy unit
contributes to few of the numbers, and `dpsql.contract.relation` says to how many; so fifty groups cost what one
does. Which integers get noise is said in `dpsql.statistics.aggregates`, what is estimated from them in
`dpsql.released.covariance`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Longs
from dpsql.contract.fold import Batch, Collector
from dpsql.contract.json import Json
from dpsql.errors import InternalError
from dpsql.functions.grouped.aggregate_plan import AggregatePlan
from dpsql.functions.grouped.drawn_bounds import (
    NO_CODE,
    UNIT_BOUNDS,
    DrawnBoundsCall,
    TargetMagnitudes,
    ValueCode,
    drawn_of,
)
from dpsql.functions.grouped.left_out import GROUP, RECORD, UNITS
from dpsql.kernels.columns import to_doubles
from dpsql.kernels.fixed_point import quantise
from dpsql.mechanisms.aggregates import GroupedNoise, NoisyBlock
from dpsql.mechanisms.cube_vector import CubeVector
from dpsql.mechanisms.interval_scan import PrivateInterval
from dpsql.mechanisms.keyed_aggregates import KeyedNoise
from dpsql.progress import Progress
from dpsql.released.aggregates import record_of
from dpsql.released.stored_blocks import stored_block
from dpsql.statistics.aggregates import Block, Sums, ValueBlock
from dpsql.statistics.grouped_sums import GroupedSums, GroupRecords, KeyedSums, Labels, NamedSums, NumberedSums
from dpsql.statistics.left_out import left_out_blocks


@dataclass(frozen=True)
class AggregateCall(DrawnBoundsCall):
    """A call of dp_aggregate or of one of its thin forms, with the column types of its source.

    Attributes
    ----------
    drawn : tuple of (PrivateInterval or None)
        The private bounds of each target, once they were drawn; None of one that needs none.
    """

    plan: AggregatePlan
    drawn: tuple[PrivateInterval | None, ...] = ()

    @property
    def remark(self) -> str:
        """From which number of rows or units on a private key is shown in half of calls."""
        if not isinstance(self.plan.part, KeyedNoise):
            return ""
        counted = "units" if self.plan.counts_units else "rows"
        return f"keys are shown that about {math.ceil(self.plan.part.least_count)} {counted} have, or more"

    def check(self) -> None:
        """Raise if the keys do not fit the types, or if the noise cannot be drawn."""
        self.plan.check_drawable(1)
        if not self.plan.has_private_keys:
            _ = self.places

    @cached_property
    def needs_squares(self) -> bool:
        """Whether a target needs the sum of squares."""
        return any(block is not None and block.needs_squares for block in self.plan.target_blocks)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the targets, within private bounds once they were drawn; a column without any has no values."""
        blocks = self.plan.blocks
        if not self.drawn:
            return blocks
        return tuple(
            block if interval is None else within(block, self._clipped_to(target, interval))
            for target, (block, interval) in enumerate(zip(blocks, self.drawn, strict=True))
        )

    def _clipped_to(self, target: int, interval: PrivateInterval) -> tuple[float, float] | None:
        """Return the ends to which a target's values are clipped.

        How many groups share the rows is public. With private keys it is not, and the ends are those that were drawn.
        """
        if self.plan.has_private_keys:
            return interval.ends
        noise, power = self.plan.noise_of_sum(target)
        return interval.widened(noise, 1.0 / max(1, self.places.count), power)

    @property
    def target_blocks(self) -> list[ValueBlock | None]:
        """How the values of each target are coded; None where they are only counted."""
        return [block if isinstance(block, ValueBlock) else None for block in self.blocks[: len(self.plan.targets)]]

    @property
    def drawn_codes(self) -> list[ValueCode]:
        """How the values of each target are coded within private bounds, once they were drawn."""
        if not self.drawn:
            raise TypeError("no bounds were drawn")
        return [
            NO_CODE if block is None else ValueCode(block.lower, block.upper, *block.affine, *block.limits)
            for block in self.target_blocks
        ]

    def start(self) -> Collector:
        """Return the collector of the first pass."""
        return self._sums() if not self.plan.draws_bounds else TargetMagnitudes(len(self.plan.targets))

    def _sums(self) -> Collector:
        """Return the collector of the groups' sums."""
        if self.plan.has_private_keys:
            targets = len(self.plan.targets)
            return NumberedSums(targets) if self.plan.engine is None else NamedSums(targets, len(self.plan.by))
        behind = UNITS if self.plan.measures_left_out else 0
        return GroupedSums(self.places.count + behind, len(self.plan.targets), squares=self.needs_squares)

    def collect(self, collector: Collector, rows: pa.StructArray, batch: Batch) -> None:
        """Pass the sums of some groups to the collector, or their labels; in the aggregate form a batch of rows.

        The pass that finds bounds takes in rows in either form.
        """
        if isinstance(collector, TargetMagnitudes):
            collector.take(rows, batch)
            return
        if isinstance(collector, Labels):
            collector.add_labels(rows, len(self.plan.by))
            return
        if isinstance(collector, NamedSums):
            collector.add_groups(rows)
            return
        if isinstance(collector, NumberedSums):
            numbers = rows.field("j").to_numpy(zero_copy_only=False)
            collector.add_groups(numbers, GroupRecords.read(rows, len(self.plan.targets)))
            return
        if not isinstance(collector, GroupedSums):
            raise TypeError("the collector is of another call")
        if not self.plan.source:
            collector.add(np.zeros(len(rows)), self._codes(rows), batch)
            return
        columns = [rows.field(f"p{column}").to_numpy(zero_copy_only=False) for column in range(len(self.plan.by))]
        places = self.places.of(columns, len(rows))
        if self.plan.measures_left_out:
            record = rows.field(RECORD).to_numpy(zero_copy_only=False)
            places = np.where(record == GROUP, places, self.places.count - 1 + record)
        collector.add_groups(places, GroupRecords.read(rows, len(self.plan.targets)))

    def _codes(self, rows: pa.StructArray) -> NDArray[np.float64]:
        """Return the codes of a batch of rows, shape (targets, rows); NaN for NULL."""
        codes = np.zeros((len(self.plan.targets), len(rows)))
        for position, block in enumerate(self.target_blocks):
            column = rows.field(position)
            if block is None:
                codes[position, column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)] = np.nan
                continue
            values = to_doubles(column)
            missing = np.isnan(values)
            codes[position] = quantise(np.clip(values, block.lower, block.upper), *block.affine)
            codes[position, missing] = np.nan
        return codes

    def after(self, collector: Collector) -> AggregateCall:
        """Draw the bounds at the end of the pass that finds them; return the call that knows them.

        Notes
        -----
        - **Guarantee**: pure DP at ``plan.bounds_epsilon``, an equal part of it for each target, see
          `dpsql.mechanisms.interval_scan`.
        - **Sensitivity**: as there; the rows of a privacy unit are at most ``contribution.rows``.
        """
        if not isinstance(collector, TargetMagnitudes):
            return self
        return replace(self, drawn=drawn_of(self.plan.bounds_parts, collector))

    def turn(self, collector: Collector, progress: Progress) -> Collector:
        """Begin the sums; after those, draw the noise of private keys, and begin the labels of released ones."""
        if isinstance(collector, TargetMagnitudes):
            return self._sums()
        if not isinstance(collector, KeyedSums) or not isinstance(self.plan.part, KeyedNoise):
            raise TypeError("the collector is of another call")
        units, rows, *targets = collector.sums()
        given = self.plan.given(rows, *targets)
        places, noisy = self.plan.part.draw([units, *given] if self.plan.counts_units else given)
        keys = collector.keys(places) if isinstance(collector, NamedSums) else None
        return ReleasedKeys(places.astype(np.int64) + 1, noisy[1:] if self.plan.counts_units else noisy, keys)

    def prepare(self, statistic: GroupedSums | ReleasedKeys, progress: Progress) -> Callable[[], Json]:
        """Return the draw of all groups; of private keys, what was drawn."""
        plan = self.plan
        if isinstance(statistic, ReleasedKeys):
            order, labels = statistic.in_order(len(plan.by))
            record = self._record([noisy.taken(order) for noisy in statistic.noisy], labels)
            return lambda: record
        places = self.places
        sums = statistic.sums()
        groups = np.arange(places.count)
        beside = [one.taken(groups) for one in plan.given(*sums)]
        fallen = self._fallen(sums)

        def draw() -> Json:
            found = draw_aggregates(plan, beside)
            return self._record(found, places.labels) | self._left_out(fallen)

        return draw

    def _record(self, noisy: Sequence[NoisyBlock], labels: Sequence[Sequence[str | None]]) -> dict[str, Json]:
        """Return what the ledger keeps: noise does not depend on bounds, what is read from it does."""
        found = [replace(one, block=block) for one, block in zip(noisy, self.blocks, strict=True)]
        return record_of(found, self.plan, labels, self.types, self.drawn)

    def _fallen(self, sums: Sequence[Sums]) -> list[Sums]:
        """Return the exact sums of what was left out: of units, then of each target, or of all rows."""
        if not self.plan.measures_left_out:
            return []
        count = self.places.count
        rows, units = np.array([count]), np.array([count + 1])
        return [sums[0].taken(units), *(one.taken(rows) for one in self.plan.counted(*sums))]

    def _left_out(self, fallen: Sequence[Sums]) -> dict[str, Json]:
        """Draw what was left out; return what the ledger keeps of it, a `dpsql.released.left_out.LeftOut`."""
        named = (None, *(self.plan.targets or (None,)))
        for part in self.plan.left_out_parts:
            noisy = part.draw(fallen)
            blocks = (noisy[0].block, *left_out_blocks(self.blocks)[1:])
            found = [replace(one, block=block) for one, block in zip(noisy, blocks, strict=True)]
            stored: list[Json] = [stored_block(name, one) for name, one in zip(named, found, strict=True)]
            return {"left_out": {"most": self.plan.contribution.rows, "blocks": stored}}
        return {}


def within(block: Block, ends: tuple[float, float] | None) -> Block:
    """Return the block of values within other bounds; within `UNIT_BOUNDS` where there are none."""
    if not isinstance(block, ValueBlock):
        return block
    lower, upper = ends or UNIT_BOUNDS
    return replace(block, lower=lower, upper=upper)


class ReleasedKeys(Labels):
    """The labels of released keys, and the noisy numbers that were drawn for them."""

    def __init__(self, numbers: Longs, noisy: list[NoisyBlock], keys: pa.Table | None = None) -> None:
        super().__init__(numbers, keys)
        self.noisy = noisy


def draw_aggregates(plan: AggregatePlan, sums: Sequence[Sums]) -> list[NoisyBlock]:
    """Draw the noisy numbers of each target, in all groups with public keys; the part that draws has the guarantee."""
    if not isinstance(plan.part, (GroupedNoise, CubeVector)):
        raise InternalError("I032", "the keys of a call are private, and were drawn as public. Report it.")
    return [target for noisy in plan.part.draw(sums) for target in noisy.targets]
