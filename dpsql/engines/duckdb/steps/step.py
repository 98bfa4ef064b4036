"""A step of a statement, and what all steps of one statement share: its plan, its gate's values, and their names."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from dpsql.contract.plan import Plan
from dpsql.rendering import field as field_of

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
    blocks : int or None
        Number of blocks that a pass takes in as wholes.
    suffix : str
        Part of names that no source or column of the caller can have: drawn anew for each statement.
    """

    plan: Plan
    function: str
    only: int | None = None
    blocks: int | None = None
    suffix: str = field(default_factory=lambda: secrets.token_hex(8))

    def name(self, step: str) -> str:
        """Return the full name of a step."""
        return f"__dpsql__{step}_{self.suffix}"

    @property
    def ticket(self) -> str:
        """SQL of the ticket that the gate gives the call."""
        return f"(SELECT {field_of('gate', 'ticket')} FROM {self.name('gate')})"

    @property
    def zero(self) -> str:
        """SQL of the number 0 that the gate gives the call, which nobody knows when the statement is planned."""
        return f"(SELECT {field_of('gate', 'zero')} FROM {self.name('gate')})"

    def ticket_of(self, step: str) -> str:
        """Return SQL of the ticket that a later step hands on."""
        return f"(SELECT ticket FROM {self.name(step)})"

    def sql(self, step: Step, *, noted: bool) -> str:
        """Return a step as it stands in a WITH clause; after its note, where that is wanted."""
        note = f"-- {step.note}\n" if noted else ""
        return f"{note}{self.name(step.name)} AS {'MATERIALIZED ' if step.kept else ''}(\n  {step.query}\n)"


def select(columns: Iterable[str], rows: str, *clauses: str) -> str:
    """Return a query of some columns, its clauses on lines of their own; empty ones are left out."""
    columns = list(columns)
    between = ", " if sum(map(len, columns)) <= _LINE else ",\n    "
    return "\n  ".join((f"SELECT {between.join(columns)}", f"FROM {rows}", *filter(None, clauses)))
