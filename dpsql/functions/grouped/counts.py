"""Counts of rows by group, and within a group by the cells of a derived key: for histograms, quantiles and bounds.

The plan and the call here also serve functions of one numeric column: the column is the target, and there are no
features.

With `by`, SQL counts rows by group and cell, and every group gets the whole epsilon: a row is in one group. For
quantiles a replaced row costs more than without groups (`dpsql.mechanisms.quantile.quantiles`), for bounds it does not
(`dpsql.mechanisms.interval_scan`). All rows of a privacy unit within its limits on groups and rows count, K1 in
`dpsql.contract.relation`. The result has every listed group, also if it is empty.

Without `by`, all rows are one group. A collector reads them as in any function without groups, so row ids may order
them, and a second pass may follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from dpsql.arrays import Longs
from dpsql.contract import parameters
from dpsql.contract.arguments import BUDGET, ROW_ID
from dpsql.contract.fold import Batch, Collector
from dpsql.contract.json import Json
from dpsql.contract.keys import PublicKeys
from dpsql.contract.layout import Layout
from dpsql.contract.plan import COLLECTED, NOT_STATED, Pass, Plan
from dpsql.contract.relation import Contribution
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.grouped.plan import (
    GROUP_LIMITS,
    GROUPS,
    KEYS,
    OTHER,
    UNIT,
    GroupedCall,
    GroupedPlan,
    refuse_without_by,
)
from dpsql.functions.value_cells import DerivedKey
from dpsql.kernels.columns import to_doubles
from dpsql.released.results import groups_record
from dpsql.statistics.aggregates import GroupedSums, GroupRecords

# Most counts of one call: each thread holds all of them.
_MOST_COUNTS = 1 << 22


class CountedPlan(GroupedPlan):
    """The plan of a function that counts rows in groups with public keys."""

    takes_private_keys = False
    stated_as = NOT_STATED


@dataclass(frozen=True, kw_only=True)
class ValuePlan(CountedPlan):
    """The plan of a function of one numeric column, whose values have cells."""

    target: str

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        target = parameters.text("target", arguments["target"], hint="Give the name of a column.")
        return {**super()._own({**arguments, "target": None}, layout), "target": target}

    @property
    def row_columns(self) -> Mapping[str, str] | None:
        """Return the columns of `by`, and the target as v0."""
        return {**(super().row_columns or {}), "v0": self.target}

    @property
    def value_parts(self) -> tuple[str, ...]:
        """Return the parts of a row that hold its values."""
        return ("v0",)


@dataclass(frozen=True)
class CountedCall(GroupedCall):
    """A call that counts the rows of every group and cell, with the column types of its source."""

    def check(self) -> None:
        """Raise if the keys do not fit the types, if there are too many counts, or if the noise cannot be drawn."""
        groups = self.places.count
        if groups * self.cells > _MOST_COUNTS:
            raise ParameterError(
                "P068", f"{groups} groups of {self.cells} cells are more than {_MOST_COUNTS} counts. Ask for fewer."
            )
        self.plan.check_drawable(groups)

    @property
    def cells(self) -> int:
        """Return the number of cells of a group; 1 if rows are not divided."""
        return 1 if self.plan.derived is None else self.plan.derived.count

    def start(self) -> Collector:
        """Return empty counts."""
        return GroupedSums(self.places.count * self.cells, 0, squares=False)

    def collect(self, collector: Collector, rows: pa.StructArray, batch: Batch) -> None:
        """Pass counts of groups and cells to the collector; in the aggregate form a batch of rows."""
        if not isinstance(collector, GroupedSums):
            raise TypeError("the collector is of another call")
        if not self.plan.source:
            cells = self._derived.of(to_doubles(rows.field(0)))
            counts = np.bincount(cells[cells >= 0], minlength=self.cells)
            collector.add_counts(counts)
            return
        columns = [rows.field(f"p{column}").to_numpy(zero_copy_only=False) for column in range(len(self.plan.by))]
        positions = self.places.of(columns, len(rows)) * self.cells
        if self.plan.derived is not None:
            positions = positions + rows.field("cell").to_numpy(zero_copy_only=False)
        collector.add_groups(positions, GroupRecords.read(rows, 0))

    def counts(self, statistic: GroupedSums) -> Longs:
        """Return the exact counts, shape (groups, cells), groups in the order of their keys."""
        return statistic.rows.reshape(self.places.count, self.cells)

    @property
    def keys_record(self) -> dict[str, Json]:
        """Return the record of the groups' keys for the ledger."""
        return groups_record(self.plan.key_columns, self.places.labels, self.types)

    @property
    def _derived(self) -> DerivedKey:
        if self.plan.derived is None:
            raise InternalError("I032", "the aggregate form has no groups. Report it.")
        return self.plan.derived


GROUPED_COLUMN = (*GROUPS, *UNIT, ROW_ID, *BUDGET)
# Fields that a record without `by` does not have, as in earlier versions without groups.
_OF_GROUPS = ("by", "keys", "other", "groups", "rows_per_group", "targets", "target")


@dataclass(frozen=True, kw_only=True)
class ColumnPlan(ValuePlan):
    """The plan of a function of one numeric column."""

    adds_fast: ClassVar[bool] = True

    @classmethod
    def _layout(cls, arguments: Mapping[str, object]) -> Layout:
        """Return the layout of a table with a target and no features; with `by` the columns are the group columns."""
        if not arguments["by"]:
            refuse_without_by(arguments, (KEYS, OTHER, *GROUP_LIMITS))
            return replace(Layout.from_arguments({**arguments, "features": None}), features=())
        if arguments.get("row_id") is not None:
            raise ParameterError("P045", "row_id has no effect beside by. Leave it out.")
        return super()._layout(arguments)

    @classmethod
    def _contribution(
        cls, arguments: Mapping[str, object], layout: Layout, keys: PublicKeys | None, *, other: bool
    ) -> Contribution:
        if arguments["by"]:
            return super()._contribution(arguments, layout, keys, other=other)
        rows = super(GroupedPlan, cls)._rows_per_unit(arguments, layout)
        return Contribution("add_remove", rows, 1, rows)

    @property
    def contribution(self) -> Contribution:
        """Return the contribution limit of one privacy unit; without `by` all its rows to one group."""
        rows = self.max_rows_per_unit
        return super().contribution if self.by else Contribution(self.neighbours, rows, 1, rows)

    @property
    def row_columns(self) -> Mapping[str, str] | None:
        """Return the columns of `by`, and the target as v0; without `by` the target alone."""
        return super().row_columns if self.by else {self.layout.target: self.layout.target}

    def _passes(self) -> tuple[Pass, ...]:
        """Return the passes; without `by` rows are collected."""
        return super()._passes() if self.by else tuple(replace(scan, statement=COLLECTED) for scan in super()._passes())

    @cached_property
    def public_arguments(self) -> dict[str, Json]:
        """Return the arguments of the call as JSON values."""
        record = super().public_arguments
        return record if self.by else {name: value for name, value in record.items() if name not in _OF_GROUPS}


@dataclass(frozen=True)
class ColumnCall(CountedCall):
    """A call of a function of one column, with the column types of its source; without `by` a call without groups."""

    plan: ColumnPlan

    @classmethod
    def resolve(cls, plan: Plan, row: pa.DataType, others: dict[str, pa.DataType], types: Sequence[str] = ()) -> Self:
        """Resolve a plan against the column types of its source; parameters and errors as for `Call.resolve`."""
        if isinstance(plan, GroupedPlan) and plan.by:
            return super().resolve(plan, row, others, types)
        return super(GroupedCall, cls).resolve(plan, row, others, types)

    def check(self) -> None:
        """Raise if the arguments do not fit the types, or if the noise cannot be drawn."""
        if self.plan.by:
            super().check()
        else:
            super(GroupedCall, self).check()

    def collect(self, collector: Any, rows: pa.StructArray, batch: Batch) -> None:
        """Pass counts of groups and cells to the collector; without `by` a batch of rows."""
        if self.plan.by:
            super().collect(collector, rows, batch)
        else:
            super(GroupedCall, self).collect(collector, rows, batch)
