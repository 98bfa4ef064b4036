"""Rows of accounts, and what principals have spent, within a transaction of the ledger (see `dpsql.ledger.caps`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.errors import BudgetError, GatewayError
from dpsql.ledger.caps import account_of, cap_of, granted, under_cap
from dpsql.ledger.chain import CHARGE, canonical
from dpsql.ledger.spent import Spent, refuse_beyond

if TYPE_CHECKING:
    from dpsql.contract.cost import Cost
    from dpsql.ledger.budget import Budget
    from dpsql.ledger.chain import Draft
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
    spent = account(transaction, principal, dataset, grant.cap)
    try:
        refuse_beyond(f"your grant on dataset '{dataset}'", grant.cap, spent, cost)
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


def account(transaction: Transaction, principal: str, dataset: str, cap: Budget | None) -> Spent:
    """Return what a principal has spent of a dataset."""
    state, name = transaction.state(dataset), account_of(principal)
    found = transaction.blocks(dataset, [name]).spent.get(name, Spent())
    return under_cap(found, cap, state.budget)
