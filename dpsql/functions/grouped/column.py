"""The plan and the call of functions of one numeric column: the column is the target, and there are no features.

With `by` rows are counted by group and cell in SQL, and every group is given the whole epsilon: a row is in one group.
For quantiles a replaced row costs more than without groups (`dpsql.mechanisms.quantile.quantiles`), for bounds it does
not (`dpsql.mechanisms.interval_scan`). Of a privacy unit all rows count that its limits on groups and rows leave, K1 in
`dpsql.contract.contribution`. Every group that is listed is in the result, also if it is empty.

Without `by` all rows are one group, whose rows a collector takes in like those of any function without groups: row ids
may then order them, and a second pass may follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import pyarrow as pa

from dpsql.contract.arguments import BUDGET, ROW_ID
from dpsql.contract.contribution import Contribution
from dpsql.contract.fold import Batch
from dpsql.contract.json import Json
from dpsql.contract.keys import PublicKeys
from dpsql.contract.layout import Layout
from dpsql.contract.passes import COLLECTED, Pass
from dpsql.contract.plan import Plan
from dpsql.errors import ParameterError
from dpsql.functions.grouped.arguments import GROUP_LIMITS, GROUPS, KEYS, OTHER, UNIT, refuse_without_by
from dpsql.functions.grouped.counts import CountedCall, ValuePlan
from dpsql.functions.grouped.plan import GroupedCall, GroupedPlan

GROUPED_COLUMN = (*GROUPS, *UNIT, ROW_ID, *BUDGET)
# Fields that a record without `by` does not have: such calls were recorded before there were groups.
_OF_GROUPS = ("by", "keys", "other", "groups", "rows_per_group", "targets", "target")


@dataclass(frozen=True, kw_only=True)
class ColumnPlan(ValuePlan):
    """The plan of a function of one numeric column."""

    adds_fast: ClassVar[bool] = True

    @classmethod
    def _layout(cls, given: Mapping[str, object]) -> Layout:
        """Return the layout of a table with a target and no features; with `by` the columns are those of the groups."""
        if not given["by"]:
            refuse_without_by(given, (KEYS, OTHER, *GROUP_LIMITS))
            return replace(Layout.from_arguments({**given, "features": None}), features=())
        if given.get("row_id") is not None:
            raise ParameterError("P045", "row_id has no effect beside by. Leave it out.")
        return super()._layout(given)

    @classmethod
    def _contribution(
        cls, given: Mapping[str, object], layout: Layout, keys: PublicKeys | None, *, other: bool
    ) -> Contribution:
        if given["by"]:
            return super()._contribution(given, layout, keys, other=other)
        rows = super(GroupedPlan, cls)._rows_per_unit(given, layout)
        return Contribution("add_remove", rows, 1, rows)

    @property
    def contribution(self) -> Contribution:
        """What one privacy unit contributes at most; without `by` all its rows to one group."""
        rows = self.max_rows_per_unit
        return super().contribution if self.by else Contribution(self.neighbours, rows, 1, rows)

    @property
    def row_columns(self) -> Mapping[str, str] | None:
        """The columns of `by`, and the target as v0; without `by` the target alone."""
        return super().row_columns if self.by else {self.layout.target: self.layout.target}

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes; without `by` rows are collected."""
        return super().passes if self.by else tuple(replace(one, statement=COLLECTED) for one in super().passes)

    @cached_property
    def public_arguments(self) -> dict[str, Json]:
        """The arguments of the call as JSON values."""
        record = super().public_arguments
        return record if self.by else {name: value for name, value in record.items() if name not in _OF_GROUPS}


@dataclass(frozen=True)
class ColumnCall(CountedCall):
    """A call of a function of one column, with the column types of its source; without `by` one as without groups."""

    plan: ColumnPlan

    @classmethod
    def resolve(cls, plan: Plan, row: pa.DataType, others: dict[str, pa.DataType], types: Sequence[str] = ()) -> Self:
        """Resolve a plan against the column types of its source; parameters and errors as for `Call.resolve`."""
        if isinstance(plan, GroupedPlan) and plan.by:
            return super().resolve(plan, row, others, types)
        return super(GroupedCall, cls).resolve(plan, row, others, types)

    def check(self) -> None:
        """Raise if the arguments do not fit the types, or if noise cannot be drawn."""
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
