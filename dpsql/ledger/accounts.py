"""Rows of accounts, and what principals have spent, within a transaction of the ledger (see `dpsql.ledger.caps`)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.contract.cost import units_up
from dpsql.contract.events import cost_of
from dpsql.contract.periods import first_day, following
from dpsql.errors import BudgetError, GatewayError
from dpsql.ledger import clock
from dpsql.ledger.caps import account_of, cap_of, granted, under_cap
from dpsql.ledger.chain import CHARGE, canonical
from dpsql.ledger.grants import time_text
from dpsql.ledger.spent import Spent, amounts_of, refuse_beyond, with_row

if TYPE_CHECKING:
    from dpsql.contract.cost import Cost
    from dpsql.ledger.budget import Budget
    from dpsql.ledger.chain import Draft, Row
    from dpsql.ledger.grants import Grant
    from dpsql.ledger.transaction import Transaction


def refuse_cap(transaction: Transaction, principal: str, dataset: str, cost: Cost) -> None:
    """Raise unless a cost fits what a principal was granted of a dataset.

    Raises
    ------
    GatewayError
        G015: there is no such grant now. G017: the cap would be passed.
    """
    grant = granted(transaction.grants(None), principal, dataset)
    if grant.cap is None:
        return
    spent, period = counted(transaction, grant)
    within, end = "", ""
    if period is not None:
        within, end = f" of {grant.per} {period}", _next(grant.per or "", period)
    try:
        refuse_beyond(f"your grant on dataset '{dataset}'{within}", grant.cap, spent, cost, end=end)
    except BudgetError as error:
        refused = error.message
    else:
        return
    raise GatewayError("G017", refused)


def of_account(row: Draft, block: str, release: int) -> Draft:
    """Return the row that charges an account for a release, which has an entry."""
    charged: Draft = {**row, "kind": CHARGE, "name": None, "arguments": "{}", "result": None, "block": block}
    charged["lineage"], charged["status"] = canonical({"of": release}), f"charged for entry {release}"
    return charged


def charge_account(transaction: Transaction, row: Draft, release: int, cost: Cost) -> None:
    """Append the row that charges a principal's account for a release of a dataset, which has an entry."""
    principal, dataset = row["principal"] or "", row["dataset"]
    cap = cap_of(transaction.grants(None).grants, principal, dataset)
    spent = account(transaction, principal, dataset, cap).plus(cost)
    charged = of_account(row, account_of(principal), release)
    transaction.append(charged, replace(transaction.state(dataset), spent=spent))


def _next(per: str, period: str) -> str:
    after = following(per, period)
    return "" if after is None else f" The next {per} begins on {first_day(per, after)}."


def counted(transaction: Transaction, grant: Grant) -> tuple[Spent, str | None]:
    """Return what counts against the cap of a grant now, and the period of the calendar in which it was charged.

    The period is None, and the whole account counts, where the cap is not by periods. Otherwise those entries of the
    account count that follow on the first one recorded in this period, or later: so a clock that goes back makes no
    entry count less. They are composed anew, under the accountant of the dataset, from nothing.
    """
    whole, now = account(transaction, grant.principal, grant.dataset, grant.cap), time_text(clock.now())
    period = grant.period_at(now)
    if period is None:
        return whole, None
    start, budget = f"{first_day(grant.per or '', period)}T", transaction.state(grant.dataset).budget
    rows = transaction.charges_since(grant.dataset, account_of(grant.principal), start, whole.releases)
    return _composed(under_cap(Spent(), grant.cap, budget), rows), period


def _composed(spent: Spent, rows: Iterable[Row]) -> Spent:
    for row in rows:
        composition = spent.composition
        if composition is not None:
            cost, charged = cost_of(json.loads(row["event"] or "")), amounts_of(row)
            # A release on several periods of the data costs a person more than its event says.
            is_whole = None if cost.epsilon is None else units_up(cost.epsilon)
            same = (is_whole, str(units_up(cost.delta))) == (row["epsilon"] and int(row["epsilon"]), row["delta"])
            composition = composition.plus(cost if same else charged)
        spent = with_row(spent, row, composition)
    return spent


def account(transaction: Transaction, principal: str, dataset: str, cap: Budget | None) -> Spent:
    """Return what a principal has spent of a dataset."""
    state, name = transaction.state(dataset), account_of(principal)
    found = transaction.blocks(dataset, [name]).spent.get(name, Spent())
    return under_cap(found, cap, state.budget)
