"""A step of a statement, and what all steps of one statement share: its plan, its gate's values, and names."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from dpsql.contract.plan import COLLECTED, FEATURE_COUNTS, GROUPED, XTY, Pass, Plan
from dpsql.engines.duckdb.keys import key_parts, short_place
from dpsql.functions.grouped.plan import GroupedPlan
from dpsql.rendering import cast, field, plus

# Statements whose rows are handed over in passes.
IN_PASSES = (COLLECTED, FEATURE_COUNTS, GROUPED)
# The columns of a unit, and of an item that is counted: a number, and bytes (`dpsql.engines.duckdb.keys.identity`).
UNIT = ("unit_number", "unit_bytes")
ITEM = ("item_number", "item_bytes")
# Columns beyond so many letters stand on lines of their own.
_LINE = 80


@dataclass(frozen=True)
class Step:
    """A named query.

    Attributes
    ----------
    name : str
        Its plain name; a number at the end is that of its pass, or of a column.
    note : str
        What it is for, as a sentence.
    query : str
    kept : bool
        Whether DuckDB runs it once and keeps its rows.
    """

    name: str
    note: str
    query: str
    kept: bool = False


@dataclass(frozen=True)
class Frame:
    """What the steps of one statement share.

    Attributes
    ----------
    plan : Plan
    function : str
        The SQL function that the statistic is for, such as ``'dp_sis'``.
    only : int or None
        The one pass that runs, over some of the rows and without a gate: what a worker of an engine does. None for all
        passes over all rows.
    own_blocks : int or None
        Number of blocks that the one pass takes in as wholes; None for what the plan says.
    drawing : Frame or None
        The frame of the part of the same statement that draws how many rows of a unit count; None where it is stated.
    suffix : str
        Part of names that no source or column of the caller can have: drawn anew for each statement.
    """

    plan: Plan
    function: str
    only: int | None = None
    own_blocks: int | None = None
    drawing: Frame | None = None
    suffix: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))

    @property
    def opening(self) -> Pass:
        """The one pass that runs, or the first one."""
        return self.plan.passes[(self.only or 1) - 1]

    @property
    def blocks(self) -> int:
        """Number of blocks that a pass takes in as wholes; 0 if there are none."""
        return self.opening.whole_blocks if self.own_blocks is None else self.own_blocks

    def name(self, step: str) -> str:
        """Return the full name of a step."""
        return f"__dpsql__{step}_{self.suffix}"

    @property
    def ticket(self) -> str:
        """SQL of the ticket that the gate gives the call; where a limit is drawn, once it is."""
        if self.drawing is not None:
            return self.ticket_of("limited")
        return f"(SELECT {field('gate', 'ticket')} FROM {self.name('gate')})"

    @property
    def most_of_unit(self) -> str:
        """SQL of how many rows of a unit count."""
        return (
            str(self.plan.max_rows_per_unit) if self.drawing is None else f"(SELECT most FROM {self.name('limited')})"
        )

    @property
    def zero(self) -> str:
        """SQL of the number 0 that the gate gives the call, which nobody knows when the statement is planned."""
        return f"(SELECT {field('gate', 'zero')} FROM {self.name('gate')})"

    @property
    def is_numbered(self) -> bool:
        """Whether units are integers, which are told apart by one column; with periods they are texts."""
        placement = self.plan.placement
        return placement is not None and placement.numbered and self.plan.chosen_by_date is None

    @property
    def unit(self) -> tuple[str, ...]:
        """Names of the columns that say which unit a row is of."""
        return UNIT[:1] if self.is_numbered else UNIT

    def place_of(self, *columns: str) -> str:
        """Return SQL of a keyed hash of some columns; that of a unit is the same in one column and in two."""
        bytes_of = {UNIT[0]: ("''::BLOB",)} if self.is_numbered else {}
        return short_place(self.ticket, *(part for name in columns for part in (name, *bytes_of.get(name, ()))))

    def ticket_of(self, step: str) -> str:
        """Return SQL of the ticket that a later step hands on."""
        return f"(SELECT ticket FROM {self.name(step)})"

    @property
    def opening_ticket(self) -> str:
        """SQL of the ticket after all that must have run before the first pass ends."""
        if self.opening.draws_names:
            return self.ticket_of("vocabulary")
        return self.ticket_of("center") if self.plan.statement == XTY else self.ticket

    @property
    def closing_ticket(self) -> str:
        """SQL of the ticket after all that must have run before the release."""
        turns = len(self.plan.passes) - 1 if self.plan.statement in IN_PASSES else 0
        return self.ticket_of(f"turn{turns}") if turns else self.opening_ticket

    def sql(self, step: Step, *, noted: bool) -> str:
        """Return a step as it stands in a WITH clause; after its note, where that is wanted."""
        note = f"-- {step.note}\n" if noted else ""
        return f"{note}{self.name(step.name)} AS {'MATERIALIZED ' if step.kept else ''}(\n  {step.query}\n)"


def select(columns: Iterable[str], rows: str, *clauses: str) -> str:
    """Return a query of some columns, its clauses on lines of their own; empty ones are left out."""
    columns = list(columns)
    between = ", " if sum(map(len, columns)) <= _LINE else ",\n    "
    return "\n  ".join((f"SELECT {between.join(columns)}", f"FROM {rows}", *filter(None, clauses)))


@dataclass(frozen=True)
class GroupedFrame(Frame):
    """The frame of a statement with groups; attributes as of `Frame`, and those below.

    Attributes
    ----------
    keyed : GroupedFrame or None
        The frame of the part of the same statement whose released keys are the groups of this one.
    bounding : GroupedFrame or None
        The frame of the part of the same statement that draws bounds of columns for this one.
    """

    plan: GroupedPlan
    keyed: GroupedFrame | None = None
    bounding: GroupedFrame | None = None

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
        return self.plan.readings > 1

    @property
    def is_bounded(self) -> bool:
        """Whether bounds are drawn before values are coded, by a pass of its own or by another part."""
        return self.draws_bounds or self.bounding is not None

    @property
    def checked_ticket(self) -> str:
        """SQL of the ticket after public keys were checked, where there are some."""
        return self.ticket if self.plan.has_private_keys or not self.plan.by else self.ticket_of("checked")

    @property
    def opening_ticket(self) -> str:
        """SQL of the ticket that a scan waits for: keys are checked, and bounds that another part draws are there."""
        return self.checked_ticket if self.bounding is None else self.ticket_of("bounded")

    @property
    def coding_ticket(self) -> str:
        """SQL of the ticket after which it is known how values are coded."""
        return self.ticket_of("turn1") if self.draws_bounds else self.opening_ticket

    @property
    def identities(self) -> list[str]:
        """Names of the columns that say which key a row has."""
        return [f"k{column}" for column in self.columns]

    def place_of(self, *columns: str) -> str:
        """Return SQL of a keyed hash of some columns: of a key by its number and text, of a position by 64 bits."""
        parts: list[str] = []
        for name in columns:
            if name in self.identities:
                parts += key_parts(name)
            else:
                parts.append(cast(name, "BIGINT") if name in self.keys else name)
        return super().place_of(*parts)

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

    def number(self, part: str, zero: str = "") -> str:
        """Return a value of the row as a double that the planner knows nothing of; NULL where it is none.

        `zero` is the column that holds the gate's zero, where there is one.
        """
        return plus(f"TRY_CAST({field('dpsql_row', part)} AS DOUBLE)", zero or self.zero)
