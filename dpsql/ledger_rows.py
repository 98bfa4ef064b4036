"""What is read back from the ledger: the state of a dataset, a stored release, and the rows of two SQL tables."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.accountant import DEFAULT_REPORT_DELTA, UNITS_PER_ONE, units_down, zcdp_epsilon
from dpsql.budget import Budget, Spent
from dpsql.errors import ParameterError

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True)
class Entry:
    """One release as the ledger holds it.

    Attributes
    ----------
    sequence : int
        Position in the chain, from 1.
    result : Any
        What `draw` returned, as JSON values (a tuple comes back as a list).
    replayed : bool
        True when a named release was answered from the ledger, at no charge.
    guarantee : str
        Such as ``'pure 1-DP, add_remove of one row'``.
    hash : str
        Hash of the row, and of everything before it.
    """

    sequence: int
    result: Any
    replayed: bool
    guarantee: str
    hash: str


@dataclass(frozen=True)
class StoredRelease:
    """What a function released, with the public arguments of its call."""

    sequence: int
    dataset: str
    name: str | None
    function: str
    arguments: dict[str, Any]
    result: Any
    guarantee: str
    recorded_at: str


@dataclass(frozen=True)
class BudgetRow:
    """One dataset in `dp_budget`. Amounts are the nearest floats of exact totals; None where unlimited or infinite.

    `epsilon_zcdp` reads the same releases under zCDP at `zcdp_delta`: a report, never a reason to allow more.
    """

    dataset: str
    budget: str
    releases: int
    epsilon_spent: float | None
    epsilon_remaining: float | None
    delta_spent: float
    delta_remaining: float | None
    rho_spent: float | None
    rho_remaining: float | None
    epsilon_zcdp: float | None
    zcdp_delta: float
    neighbours: str | None
    privacy_unit: str | None
    max_rows_per_unit: int | None


@dataclass(frozen=True)
class LedgerRow:
    """One entry in `dp_ledger`. Amounts are this entry's charge; None for a budget, or where no finite one exists."""

    sequence: int
    recorded_at: str
    kind: str
    dataset: str
    function: str
    release: str | None
    epsilon: float | None
    delta: float | None
    rho: float | None
    guarantee: str
    status: str
    event: str | None
    hash: str


def state(connection: Connection, dataset: str) -> tuple[Budget | None, Spent, int | None]:
    """Return the standing budget, the totals, and the row of the budget; one indexed look-up."""
    from dpsql import ledger_schema as schema

    row = connection.execute(schema.state, {"dataset": dataset}).first()
    if row is None:
        return None, Spent(), None
    budget = None if row.budget is None else Budget.from_json(row.budget)
    return budget, _spent(row), row.budget_sequence


def _spent(row: Any) -> Spent:
    epsilon, rho = (None if text is None else int(text) for text in (row.epsilon_spent, row.rho_spent))
    return Spent(epsilon, int(row.delta_spent), rho, row.releases)


def stored_release(connection: Connection, dataset: str, name: str, fingerprint: str) -> Entry | None:
    """Return the result stored under a name, or refuse when it belongs to another call."""
    from dpsql import ledger_schema as schema

    row = connection.execute(schema.named, {"dataset": dataset, "name": name}).first()
    if row is None:
        return None
    if row.fingerprint != fingerprint:
        raise ParameterError(
            "P014",
            f"release '{name}' of dataset '{dataset}' holds the result of a call with other arguments. "
            "Give this call another name, or the same arguments.",
        )
    return Entry(row.sequence, json.loads(row.result), True, row.guarantee, row.hash)


def releases_of(
    connection: Connection, functions: Sequence[str], dataset: str | None, key: str | int | None
) -> list[StoredRelease]:
    """Return what some functions released, in the order of the chain: of one dataset, by name or number, or all."""
    from dpsql import ledger_schema as schema

    statement = schema.of_functions(functions)
    if dataset is not None:
        statement = statement.where(schema.entry.c.dataset == dataset)
    if key is not None:
        column = schema.entry.c.sequence if isinstance(key, int) else schema.entry.c.name
        statement = statement.where(column == key)
    return [
        StoredRelease(
            sequence=row.sequence,
            dataset=row.dataset,
            name=row.name,
            function=row.function,
            arguments=json.loads(row.arguments),
            result=json.loads(row.result),
            guarantee=row.guarantee,
            recorded_at=row.recorded_at,
        )
        for row in connection.execute(statement)
    ]


def event_of(connection: Connection, sequence: int) -> dict[str, Any]:
    """Return the event of an entry."""
    from dpsql import ledger_schema as schema

    event: dict[str, Any] = json.loads(connection.execute(schema.event_at, {"sequence": sequence}).scalar_one())
    return event


def budget_rows(connection: Connection) -> list[BudgetRow]:
    """Return one row per dataset, by name."""
    from dpsql import ledger_schema as schema

    rows = []
    for row in connection.execute(schema.states):
        budget = None if row.budget is None else Budget.from_json(row.budget)
        spent = _spent(row)
        at_delta = (budget.delta if budget else None) or DEFAULT_REPORT_DELTA
        converted = None if spent.rho is None else zcdp_epsilon(Fraction(spent.rho, UNITS_PER_ONE), at_delta)
        rows.append(
            BudgetRow(
                dataset=row.dataset,
                budget="unlimited" if budget is None else budget.text,
                releases=spent.releases,
                epsilon_spent=_float(spent.epsilon),
                epsilon_remaining=_remaining(budget.epsilon if budget else None, spent.epsilon),
                delta_spent=spent.delta / UNITS_PER_ONE,
                delta_remaining=_remaining(budget.delta if budget and not budget.rho else None, spent.delta),
                rho_spent=_float(spent.rho),
                rho_remaining=_remaining(budget.rho if budget else None, spent.rho),
                epsilon_zcdp=None if converted is None else float(converted),
                zcdp_delta=float(at_delta),
                neighbours=budget.neighbours if budget else None,
                privacy_unit=budget.privacy_unit if budget else None,
                max_rows_per_unit=budget.max_rows_per_unit if budget else None,
            )
        )
    return rows


def _remaining(limit: Fraction | None, spent: int | None) -> float | None:
    if limit is None:
        return None
    return 0.0 if spent is None else max(0, units_down(limit) - spent) / UNITS_PER_ONE


def _float(units: int | None) -> float | None:
    if units is None:
        return None
    try:
        return units / UNITS_PER_ONE
    except OverflowError:
        return math.inf


def ledger_rows(connection: Connection, dataset: str | None) -> list[LedgerRow]:
    """Return the entries in the order of the chain, of one dataset or of all."""
    from dpsql import ledger_schema as schema

    statement = schema.everything if dataset is None else schema.of_dataset
    rows = []
    for row in connection.execute(statement, {} if dataset is None else {"dataset": dataset}):
        charged = row.kind == "release"
        epsilon, delta, rho = (
            _float(int(text)) if charged and text is not None else None for text in (row.epsilon, row.delta, row.rho)
        )
        rows.append(
            LedgerRow(
                sequence=row.sequence,
                recorded_at=row.recorded_at,
                kind=row.kind,
                dataset=row.dataset,
                function=row.function,
                release=row.name,
                epsilon=epsilon,
                delta=delta,
                rho=rho,
                guarantee=row.guarantee,
                status=row.status,
                event=row.event,
                hash=row.hash,
            )
        )
    return rows
