"""The vector of a core that counts conditions of which at most one holds for a row.

A row is in one cell at most, so one row moves one count by 1, however many counts there are
(`dpsql.statistics.disjoint_counts`, with proof). The statement gives a row the first cell whose condition holds for it:
the guarantee does not depend on whether what was said of the conditions is true. Whichever noise has the smaller
errors, by public arguments alone, is drawn: that of these counts, or that of any vector.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpsql.functions.query_vector import VectorCall, VectorPlan
from dpsql.mechanisms.aggregates import GroupedNoise
from dpsql.mechanisms.cube_vector import CubeVector
from dpsql.mechanisms.keyed_aggregates import KeyedNoise
from dpsql.statistics.aggregates import Sums
from dpsql.statistics.disjoint_counts import DisjointCounts


@dataclass(frozen=True, kw_only=True)
class DisjointPlan(VectorPlan):
    """The plan of counts of which a row enters one at most; its keys are public."""

    function: ClassVar[str] = "dp_query.disjoint"

    def _parts(self, law: str) -> list[GroupedNoise | KeyedNoise]:
        """Return the parts with noise of one law: of the counts together, or of each by itself."""
        return [*super()._parts(law), self._public((DisjointCounts(len(self.targets)),), law)]

    def given(self, rows: Sums, *targets: Sums) -> list[Sums]:
        """Return the sums that the blocks are drawn from."""
        if not isinstance(self.part, CubeVector) and isinstance(self.part.blocks[0], DisjointCounts):
            return [replace(rows, s1=np.stack([each.n for each in targets]))]
        return super().given(rows, *targets)


@dataclass(frozen=True)
class DisjointCall(VectorCall):
    """A call of disjoint counts, with the column types of its source."""

    plan: DisjointPlan
