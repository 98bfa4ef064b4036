"""The plan that functions of one column share: the column is the target, and there are no features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from dpsql.contract.layout import Layout
from dpsql.contract.plan import NOT_STATED, Plan


@dataclass(frozen=True, kw_only=True)
class ColumnPlan(Plan):
    """The plan of a function of one numeric column."""

    target_needs_bounds: ClassVar[bool] = False
    stated_as: ClassVar[Mapping[str, str | None]] = NOT_STATED

    @classmethod
    def _layout(cls, given: Mapping[str, object]) -> Layout:
        """Return the layout of a table with a target and no features."""
        return replace(Layout.from_arguments({**given, "features": None}), features=())
