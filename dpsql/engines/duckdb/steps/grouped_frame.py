"""What the steps of a statement with groups share beside the frame: the names of their columns."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.engines.duckdb.steps.step import Frame
from dpsql.functions.grouped import GroupedPlan
from dpsql.rendering import field, plus

UNIT = ("unit_number", "unit_bytes")
ITEM = ("item_number", "item_bytes")


@dataclass(frozen=True)
class GroupedFrame(Frame):
    """The frame of a statement with groups; attributes as of `Frame`."""

    plan: GroupedPlan

    @property
    def columns(self) -> range:
        """Numbers of the columns that the call groups by."""
        return range(len(self.plan.by))

    @property
    def has_unit(self) -> bool:
        """Whether the privacy unit has an id, rather than being a row."""
        return self.plan.layout.privacy_unit is not None

    @property
    def draws_bounds(self) -> bool:
        """Whether a pass over the rows draws the bounds of the targets before they are added up."""
        return self.plan.passes > 1

    @property
    def waits_for(self) -> str:
        """The ticket that a scan waits for; with public keys it comes from the step that checks them."""
        return self.ticket if self.plan.has_private_keys or not self.plan.by else self.ticket_of("checked")

    @property
    def identities(self) -> list[str]:
        """Names of the columns that say which key a row has."""
        return [name for column in self.columns for name in (f"k{column}_number", f"k{column}_data")]

    @property
    def keys(self) -> list[str]:
        """Names of the columns that say which key a row has: positions of public keys, or the keys themselves."""
        return self.identities if self.plan.has_private_keys else [f"p{column}" for column in self.columns]

    @property
    def cell(self) -> list[str]:
        """Name of the column of the derived key: the position of a row's cell."""
        return [] if self.plan.derived is None else ["cell"]

    @property
    def groups(self) -> list[str]:
        """Names of the columns that say in which group a unit's rows are counted."""
        divided = self.plan.derived is not None and self.plan.derived.divides
        return [*self.keys, *(self.cell if divided else [])]

    @property
    def items(self) -> list[str]:
        """Names of the columns that say which item a row has, where different items are counted."""
        return list(ITEM) if self.plan.counts_items else []

    @property
    def codes(self) -> list[str]:
        """Names of the columns of the coded targets."""
        return [f"q{position}" for position in range(len(self.plan.targets))]

    def number(self, part: str) -> str:
        """Return a value of the row as a double that the planner knows nothing of; NULL where it is none."""
        return plus(f"TRY_CAST({field('dpsql_row', part)} AS DOUBLE)", self.zero)
