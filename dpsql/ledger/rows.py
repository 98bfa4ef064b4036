"""Represent the ledger's contents: states of datasets, stored releases, declarations, and rows of two SQL tables."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, TypedDict

from dpsql.contract.covers import covers
from dpsql.contract.events import DEFAULT_REPORT_DELTA, UNITS_PER_ONE, zcdp_epsilon
from dpsql.contract.names import MARKED
from dpsql.dataclass import dataclass
from dpsql.ledger.blocks import FRESH, Blocks
from dpsql.ledger.budget import Budget, Spent
from dpsql.ledger.chain import CHARGE, Row
from dpsql.ledger.composition import Composition


@dataclass(frozen=True)
class Entry:
    """One release in the ledger.

    Attributes
    ----------
    sequence : int
        Position in the chain, from 1.
    result : JSON values
        The result of `draw`, as JSON values (a tuple comes back as a list).
    replayed : bool
        True if the ledger answered a named release at no charge.
    guarantee : str
        Such as ``'pure 1-DP, add_remove of one row'``.
    hash : str
        Hash of the row and everything before it.
    recorded_at : str
        Time of the release, in UTC.
    lineage : dict or None
        The sources read, as far as the ledger records them.
    arguments : str
        The public arguments of the call, as JSON text.
    """

    sequence: int
    result: Any
    replayed: bool
    guarantee: str
    hash: str
    recorded_at: str = ""
    lineage: Mapping[str, object] | None = None
    arguments: str = field(default="{}", compare=False, repr=False)

    @property
    def covers(self) -> str:
        """The rows that the numbers cover."""
        return covers(json.loads(self.arguments))

    @property
    def receipt(self) -> str:
        """The guarantee; for a replay, a second line names the original entry and its time."""
        again = f"\n{replay_of(self.sequence, self.recorded_at)}" if self.replayed else ""
        return self.guarantee + again


# Fingerprints of a call in earlier versions; `before_lineage`: from before ledgers stored the meaning of a source.
Older = Callable[[bool], Collection[str]]


@dataclass(frozen=True)
class StoredRelease:
    """A function's release, with the public arguments of its call."""

    sequence: int
    dataset: str
    name: str | None
    function: str
    arguments: dict[str, Any]
    result: Any
    guarantee: str
    recorded_at: str
    lineage: Mapping[str, object] | None = None


def release_of(row: Row) -> StoredRelease:
    """Return the release in a row."""
    return StoredRelease(
        sequence=row["sequence"],
        dataset=row["dataset"],
        name=row["name"],
        function=row["function"],
        arguments=json.loads(row["arguments"]),
        result=json.loads(row["result"] or ""),
        guarantee=row["guarantee"],
        recorded_at=row["recorded_at"],
        lineage=None if row["lineage"] is None else json.loads(row["lineage"]),
    )


@dataclass(frozen=True)
class BudgetRow:
    """One dataset, or one block, in `dp_budget`. Amounts are the nearest floats of exact totals; None if unlimited.

    Attributes
    ----------
    block : str or None
        The name of a period; `EVERY_OTHER` for every block that no call has charged; `TOTAL` for one person's loss over
        all blocks. None for a dataset without periods.
    epsilon_spent, epsilon_remaining, delta_spent, delta_remaining : float or None
        All releases together are (epsilon_spent, delta_spent)-DP under the accountant.
    accountant : str or None
        The composition of releases: ``'basic'``, ``'rdp of order 9.87'``, or ``'zcdp'`` for a budget in rho.
    renyi_spent, renyi_remaining : float or None
        Under ``'rdp'``, the sum of Rényi losses since the accountant was declared, and the remaining amount.
    epsilon_zcdp, zcdp_delta : float or None
        The same releases under zCDP at that delta: a report that never allows more.
    """

    dataset: str
    block: str | None
    budget: str
    releases: int
    epsilon_spent: float | None
    epsilon_remaining: float | None
    delta_spent: float
    delta_remaining: float | None
    rho_spent: float | None
    rho_remaining: float | None
    accountant: str | None
    renyi_spent: float | None
    renyi_remaining: float | None
    epsilon_zcdp: float | None
    zcdp_delta: float
    neighbours: str | None
    privacy_unit: str | None
    max_rows_per_unit: int | None

    @property
    def spent_text(self) -> str:
        """The spent amount in words: ``'epsilon 0.5, delta 1e-06'``, ``'rho 0.5'`` or ``'epsilon no finite bound'``."""
        if self.rho_remaining is not None:
            return f"rho {_number(self.rho_spent)}"
        return f"epsilon {_number(self.epsilon_spent)}" + (
            f", delta {_number(self.delta_spent)}" * (self.delta_spent > 0)
        )

    @property
    def remaining_text(self) -> str:
        """The remaining amount in words: ``'epsilon 2.5, delta 1e-06'``, ``'rho 0.5'`` or ``'unlimited'``."""
        if self.rho_remaining is not None:
            return f"rho {self.rho_remaining:.12g}"
        if self.epsilon_remaining is None:
            return "unlimited"
        delta = f", delta {self.delta_remaining or 0:.12g}" if self.delta_remaining or self.delta_spent else ""
        return f"epsilon {self.epsilon_remaining:.12g}{delta}"


def replay_of(sequence: int, recorded_at: str) -> str:
    """Return the note of a replayed release, with the original entry and its time."""
    return f"replay of entry {sequence} of {recorded_at}"


def _number(value: float | None) -> str:
    return "no finite bound" if value is None else f"{value:.12g}"


@dataclass(frozen=True)
class LedgerRow:
    """One entry in `dp_ledger`. Amounts are this entry's charge; None for a budget, or if no finite amount exists."""

    sequence: int
    recorded_at: str
    kind: str
    dataset: str
    block: str | None
    function: str
    release: str | None
    epsilon: float | None
    delta: float | None
    rho: float | None
    guarantee: str
    status: str
    event: str | None
    principal: str | None
    hash: str


@dataclass(frozen=True)
class State:
    """The state of one dataset.

    Attributes
    ----------
    budget : Budget or None
        None if unlimited.
    spent : Spent
        The totals, with the state of the accountant.
    policy : int or None
        Sequence of the budget's row.
    """

    budget: Budget | None = None
    spent: Spent = field(default_factory=Spent)
    policy: int | None = None

    @property
    def is_dated(self) -> bool:
        """Whether the dataset has periods."""
        return self.budget is not None and self.budget.dated is not None


class Facts(TypedDict, total=False):
    """The recorded facts of a declared table.

    Attributes
    ----------
    table : sequence of str or None
        Its database ID, or alias, its schema and its name.
    view, base, unit : str or None
    columns : sequence of str
    others : sequence of Facts
        The facts of tables of that name in other databases.
    tables : sequence of Facts
        For a budget of several tables: the facts of each table, with its `name` and, if it has no unit, its `path`.
    path : mapping
        The table's `column`, its `parent` table, the parent's `key`, and whether the columns contain `text`.
    name, kind : str
        The table's name, and the comparison of its ids.
    rows : int or None
        For one of several tables: a person's default row limit.
    labels : mapping of str to str
        The columns with public labels, with digests of their types; omitted if empty.
    merged_into : str
        For an ended dataset: its replacement.
    in_place : bool
        For a derived table: whether its own uncharged budget has ended.
    shape : sequence of str
        For a public table: its columns with their types.
    bound : sequence of str
        For a view over files: its columns with their types; omitted if they are not known.
    without : sequence of sequence of str
        For a public table: the protected and derived tables of its database that were missing at the declaration.
    forced : bool
        For a public table: whether its owner declared it although it may have had the columns of a protected table.
    """

    table: Sequence[str] | None
    view: str | None
    columns: Sequence[str]
    base: str | None
    unit: str | None
    others: Sequence[Facts]
    tables: Sequence[Facts]
    path: Mapping[str, object] | None
    name: str
    kind: str
    rows: int | None
    labels: Mapping[str, str]
    merged_into: str
    in_place: bool
    bound: Sequence[str]
    shape: Sequence[str]
    without: Sequence[Sequence[str]]
    forced: bool


def tables_of(facts: Facts | None) -> Sequence[Facts]:
    """Return the recorded facts of each table of a declaration."""
    facts = facts or {}
    return facts.get("tables") or (facts, *facts.get("others", ()))


def merged_into(lineage: Mapping[str, object] | None) -> str | None:
    """Return the replacement of a dataset, from the facts recorded with its budget; None if it has not ended."""
    successor = (lineage or {}).get("merged_into")
    return successor if isinstance(successor, str) else None


def path_text(facts: Facts) -> str:
    """Return an owner's declaration for one of several tables: its column, or its path."""
    path = facts.get("path")
    if path is None:
        return str(facts.get("unit"))
    parent = path["parent"] if isinstance(path["parent"], (list, tuple)) else ()
    return f"{path['column']} -> {parent[-1] if parent else ''}.{path['key']}"


@dataclass(frozen=True)
class RecordedDeclaration:
    """A row without a charge: a data owner's declaration about a dataset.

    Attributes
    ----------
    sequence : int
    kind : str
        ``'protect'``, ``'public'``, ``'derive'``, ``'adopt'``, ``'accept'``.
    dataset : str
    function : str
        Such as ``'dp_public'``.
    facts : dict
        The declared facts; empty for ``'protect'``, whose budget `Ledger.policy` returns.
    lineage : dict or None
        The recorded lineage, or None.
    recorded_at : str
        The time, in UTC.
    """

    sequence: int
    kind: str
    dataset: str
    function: str
    facts: Facts
    lineage: Facts | None = None
    recorded_at: str = ""


def declaration_of(row: Row) -> RecordedDeclaration:
    """Return the declaration in a row."""
    return RecordedDeclaration(
        row["sequence"],
        row["kind"],
        row["dataset"],
        row["function"],
        json.loads(row["arguments"]),
        None if row["lineage"] is None else json.loads(row["lineage"]),
        row["recorded_at"],
    )


@dataclass(frozen=True)
class RecordedDeclarations:
    """Every declaration in force.

    Attributes
    ----------
    counter : int
        Sequence of the last declaration, 0 if there is none; every declaration changes it.
    hash : str
        Hash of that row.
    latest : dict
        Dataset → kind → the latest declaration of that kind.
    """

    counter: int
    hash: str
    latest: Mapping[str, Mapping[str, RecordedDeclaration]]

    @cached_property
    def aliases(self) -> Mapping[str, str]:
        """The ended datasets, with their replacements."""
        ended = {
            name: merged_into(kinds["protect"].lineage) for name, kinds in self.latest.items() if "protect" in kinds
        }
        aliases = {name: into for name, into in ended.items() if into is not None}
        for name in aliases:
            while aliases[name] in aliases:
                aliases[name] = aliases[aliases[name]]
        return aliases

    @cached_property
    def databases(self) -> frozenset[str]:
        """The database IDs of every declaration."""
        databases = set()
        for row in (row for kinds in self.latest.values() for row in kinds.values()):
            facts: Facts = (row.lineage if row.kind == "protect" else row.facts) or {}
            tables = [entry.get("table") for entry in tables_of(facts)]
            databases |= {table[0][1:] for table in tables if table and table[0].startswith(MARKED)}
            tied = dict(facts).get("database") if row.kind in ("adopt", "accept") else None
            databases |= set() if tied is None else {str(tied)}
        return frozenset(databases)


EVERY_OTHER, TOTAL = "every other", "total"


def budget_rows_of(dataset: str, state: State, blocks: Blocks | None) -> list[BudgetRow]:
    """Return a dataset's rows of `dp_budget`; with periods, one per block with an account, and one for the others.

    If spending from before periods counts only in blocks that had begun, the row of the others shows such a block.
    """
    budget = state.budget
    if budget is None or blocks is None:
        return [budget_row(dataset, state)]
    rows = [budget_row(dataset, replace(state, spent=blocks.spent[name]), name) for name in blocks.live(budget)]
    rows.append(budget_row(dataset, replace(state, spent=blocks.spent[FRESH]), EVERY_OTHER))
    return [*rows, total_row(dataset, state)]


def total_row(dataset: str, state: State) -> BudgetRow:
    """Return a dataset's total row of `dp_budget`; with periods, the loss of one person over all periods."""
    budget = state.budget
    if budget is None or budget.dated is None:
        return budget_row(dataset, state)
    total = replace(budget, epsilon=budget.epsilon_total, delta=budget.delta_total, accountant="basic")
    row = budget_row(dataset, replace(state, budget=total), TOTAL)
    if budget.epsilon_total is None:
        row = replace(row, budget="unlimited", epsilon_remaining=None)
    return row if budget.delta_total is not None else replace(row, delta_remaining=None)


def budget_row(dataset: str, state: State, block: str | None = None) -> BudgetRow:
    """Return the row of `dp_budget` for a dataset or a block."""
    budget, spent = state.budget, state.spent
    at_delta = (budget.delta if budget else None) or DEFAULT_REPORT_DELTA
    converted = None if spent.rho is None else zcdp_epsilon(Fraction(spent.rho, UNITS_PER_ONE), at_delta)
    limits = {} if budget is None else budget.limits
    charged = {name: spent.charged(name) for name in ("epsilon", "delta", "rho")}
    remaining = {name: _remaining(limits.get(name), charged[name]) for name in charged}
    renyi_spent, renyi_remaining = _renyi(limits.get("epsilon"), spent.composition)
    return BudgetRow(
        dataset=dataset,
        block=block,
        budget="unlimited" if budget is None else budget.text,
        releases=spent.releases,
        epsilon_spent=_float(charged["epsilon"]),
        epsilon_remaining=remaining["epsilon"],
        delta_spent=(charged["delta"] or 0) / UNITS_PER_ONE,
        delta_remaining=remaining["delta"],
        rho_spent=_float(charged["rho"]),
        rho_remaining=remaining["rho"],
        accountant=None if budget is None else _accountant(budget, spent.composition),
        renyi_spent=renyi_spent,
        renyi_remaining=renyi_remaining,
        epsilon_zcdp=None if converted is None else float(converted),
        zcdp_delta=float(at_delta),
        neighbours=budget.neighbours if budget else None,
        privacy_unit=budget.privacy_unit if budget else None,
        max_rows_per_unit=budget.max_rows_per_unit if budget else None,
    )


def _remaining(limit: int | None, spent: int | None) -> float | None:
    if limit is None:
        return None
    return 0.0 if spent is None else max(0, limit - spent) / UNITS_PER_ONE


def _accountant(budget: Budget, composition: Composition | None) -> str:
    if budget.rho is not None:
        return "zcdp"
    if budget.accountant == "basic" or composition is None or composition.order is None:
        return "basic"
    return f"{budget.accountant} of order {float(composition.order):g}"


def _renyi(epsilon: int | None, composition: Composition | None) -> tuple[float | None, float | None]:
    """Return the spent and remaining Rényi losses."""
    if epsilon is None or composition is None or composition.order is None:
        return None, None
    limit = epsilon - (composition.before_epsilon or 0) - composition.conversion
    return composition.renyi / UNITS_PER_ONE, _remaining(limit, composition.renyi)


def _float(units: int | None) -> float | None:
    if units is None:
        return None
    try:
        return units / UNITS_PER_ONE
    except OverflowError:
        return math.inf


def ledger_row(row: Row) -> LedgerRow:
    """Return the row of `dp_ledger` for an entry."""
    charged = row["kind"] in ("release", CHARGE)
    epsilon, delta, rho = (
        _float(int(amount)) if charged and amount is not None else None
        for amount in (row["epsilon"], row["delta"], row["rho"])
    )
    return LedgerRow(
        sequence=row["sequence"],
        recorded_at=row["recorded_at"],
        kind=row["kind"],
        dataset=row["dataset"],
        block=row["block"],
        function=row["function"],
        release=row["name"],
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        guarantee=row["guarantee"],
        status=row["status"],
        event=row["event"],
        principal=row.get("principal"),
        hash=row["hash"],
    )
