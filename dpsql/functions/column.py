"""The plan that functions of one column share: the column is the target, and there are no features.

With `by` they have another plan, and read counts of groups that SQL adds up (`dpsql.functions.grouped_columns`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from dpsql.contract.arguments import BUDGET, ROW_ID
from dpsql.contract.layout import Layout
from dpsql.contract.plan import NOT_STATED, Plan
from dpsql.functions.grouped_arguments import GROUP_LIMITS, GROUPS, KEYS, OTHER, UNIT, refuse_without_by

# Arguments about groups, of functions of one column that take `by`.
COLUMN_GROUPS = (KEYS, OTHER, *GROUP_LIMITS)
GROUPED_COLUMN = (*GROUPS, *UNIT, ROW_ID, *BUDGET)


@dataclass(frozen=True, kw_only=True)
class ColumnPlan(Plan):
    """The plan of a function of one numeric column."""

    target_needs_bounds: ClassVar[bool] = False
    adds_fast: ClassVar[bool] = True
    stated_as: ClassVar[Mapping[str, str | None]] = NOT_STATED

    @classmethod
    def _layout(cls, given: Mapping[str, object]) -> Layout:
        """Return the layout of a table with a target and no features."""
        refuse_without_by(given, COLUMN_GROUPS)
        return replace(Layout.from_arguments({**given, "features": None}), features=())
