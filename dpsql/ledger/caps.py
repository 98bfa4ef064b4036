"""Compute a principal's spending on a dataset, and refuse calls beyond its grant.

The ledger charges each release of a principal to its datasets, as usual, and to the principal's **account** in each
dataset: a row of kind ``'charge'`` after the release's row, in the same transaction, whose block is ``@`` and the
principal's name. The account adds up under the dataset's accountant. The ledger checks the cap against this account
with the charged cost, under the lock of the ledger, so refused and failed calls do not move it, and no call is free. On
a dataset with periods the account covers one person's loss over all periods.

Caps protect nobody's rows: they share out a budget, and may sum to more than the budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.contract.events import units_down
from dpsql.errors import GatewayError
from dpsql.ledger import clock
from dpsql.ledger.budget import LEAST_RDP_DELTA, Budget, Spent
from dpsql.ledger.composition import begin

if TYPE_CHECKING:
    from dpsql.ledger.grants import Grant, Grants

NO_DATASET = "there is no such dataset for you. List the datasets that you may ask about."


def account_of(principal: str) -> str:
    """Return the name of a principal's account; no period has this name."""
    return f"@{principal}"


def granted(grants: Grants, principal: str, dataset: str) -> Grant:
    """Return the grant that lets a principal ask for new releases of a dataset.

    Raises
    ------
    GatewayError
        G015: there is no such grant.
    """
    grant = grants.grant(principal, dataset, clock.now())
    if grant is None or not grant.asks:
        raise GatewayError("G015", NO_DATASET)
    return grant


def under_cap(spent: Spent, cap: Budget | None, budget: Budget | None, order: Fraction | None = None) -> Spent:
    """Return an account with its accountant, which begins as soon as a cap and a budget allow one.

    Parameters
    ----------
    spent : Spent
        The account.
    cap : Budget or None
        The grant's current cap.
    budget : Budget or None
        The dataset's current budget.
    order : Fraction, optional
        Order of a new phase; the default order fits the most small releases into the cap.
    """
    epsilon, delta = (cap.epsilon, cap.delta) if cap is not None else (None, None)
    adds_renyi = (
        epsilon is not None
        and units_down(delta or Fraction(0)) >= LEAST_RDP_DELTA
        and budget is not None
        and budget.accountant == "rdp"
        and budget.dated is None
    )
    composition = begin(
        "rdp" if adds_renyi else "basic",
        epsilon=units_down(epsilon or Fraction(0)),
        delta=units_down(delta or Fraction(0)),
        spent=(spent.epsilon, spent.delta),
        standing=spent.composition,
        order=order,
    )
    return replace(spent, composition=composition)


def cap_of(grants: Mapping[tuple[str, str], Grant], principal: str, dataset: str) -> Budget | None:
    """Return the cap of the latest grant, even if expired; None without a cap."""
    grant = grants.get((principal, dataset))
    return None if grant is None else grant.cap
