"""Counts of rows by group, and in a group by the cells of a derived key: for histograms, quantiles and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpsql.arrays import Longs
from dpsql.contract import parameters
from dpsql.contract.fold import Batch, Collector
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.plan import NOT_STATED
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.grouped.plan import GroupedCall, GroupedPlan
from dpsql.functions.value_cells import DerivedKey
from dpsql.kernels.columns import to_doubles
from dpsql.released.results import groups_record
from dpsql.statistics.grouped_sums import GroupedSums, GroupRecords

# Most counts of one call: each thread has them all.
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
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        target = parameters.text("target", given["target"], hint="Give the name of a column.")
        return {**super()._own({**given, "target": None}, layout), "target": target}

    @property
    def row_columns(self) -> Mapping[str, str] | None:
        """The columns of `by`, and the target as v0."""
        return {**(super().row_columns or {}), "v0": self.target}


@dataclass(frozen=True)
class CountedCall(GroupedCall):
    """A call that counts the rows of every group and cell, with the column types of its source."""

    def check(self) -> None:
        """Raise if the keys do not fit the types, if there are too many counts, or if noise cannot be drawn."""
        groups = self.places.count
        if groups * self.cells > _MOST_COUNTS:
            raise ParameterError(
                "P068", f"{groups} groups of {self.cells} cells are more than {_MOST_COUNTS} counts. Ask for fewer."
            )
        self.plan.check_drawable(groups)

    @property
    def cells(self) -> int:
        """Number of cells of a group; 1 if rows are not divided."""
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
        places = self.places.of(columns, len(rows)) * self.cells
        if self.plan.derived is not None:
            places = places + rows.field("cell").to_numpy(zero_copy_only=False)
        collector.add_groups(places, GroupRecords.read(rows, 0))

    def counts(self, statistic: GroupedSums) -> Longs:
        """Return the exact counts, shape (groups, cells), groups in the order of their keys."""
        return statistic.rows.reshape(self.places.count, self.cells)

    @property
    def keys_record(self) -> dict[str, Json]:
        """What the ledger keeps of the groups' keys."""
        return groups_record(self.plan.key_columns, self.places.labels, self.types)

    @property
    def _derived(self) -> DerivedKey:
        if self.plan.derived is None:
            raise InternalError("I032", "the aggregate form has no groups. Report it.")
        return self.plan.derived
