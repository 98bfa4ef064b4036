"""What one principal has spent of a dataset, and the refusal of calls beyond what was granted.

Every release that a principal asked for is charged to its datasets as any other, and to an **account** of the principal
in each of them: a row of kind ``'charge'`` behind the release's, in the same transaction, whose block is the
principal's name behind ``@``. It adds up under the dataset's accountant. A cap is judged on this account by the cost
that is charged, under the lock of the ledger, so that no refused or failed call moves it, and none is free. On a
dataset with periods the account is of what one person loses over all of them.

Caps protect nobody's rows: they share out a budget, and may sum to more than it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.contract.cost import units_down
from dpsql.errors import GatewayError
from dpsql.ledger import clock
from dpsql.ledger.budget import LEAST_RDP_DELTA, Budget
from dpsql.ledger.composition import begin
from dpsql.ledger.spent import Spent

if TYPE_CHECKING:
    from dpsql.ledger.grants import Grant, Grants

NO_DATASET = "there is no such dataset for you. List the datasets that you may ask about."


def account_of(principal: str) -> str:
    """Return the name of a principal's account, which no period has."""
    return f"@{principal}"


def granted(grants: Grants, principal: str, dataset: str) -> Grant:
    """Return what lets a principal ask for new releases of a dataset.

    Raises
    ------
    GatewayError
        G015: nothing does.
    """
    grant = grants.grant(principal, dataset, clock.now())
    if grant is None or not grant.asks:
        raise GatewayError("G015", NO_DATASET)
    return grant


def under_cap(spent: Spent, cap: Budget | None, budget: Budget | None, order: Fraction | None = None) -> Spent:
    """Return an account with the state of its accountant, which begins as soon as a cap and a budget allow one.

    Parameters
    ----------
    spent : Spent
        The account.
    cap : Budget or None
        What stands of the grant.
    budget : Budget or None
        What stands of the dataset.
    order : Fraction, optional
        Of a new phase; by default the one under which the most small releases fit the cap.
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
    """Return the cap of the latest grant, whether it has expired or not; None without one."""
    grant = grants.get((principal, dataset))
    return None if grant is None else grant.cap
