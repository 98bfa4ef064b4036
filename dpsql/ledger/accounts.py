"""Charge principals' accounts, and compute their spending, in a transaction of the ledger (see `dpsql.ledger.caps`)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.contract.events import cost_of, units_down, units_text, units_up
from dpsql.contract.grant_fields import DEFAULTS
from dpsql.contract.periods import first_day, following
from dpsql.errors import BudgetError, GatewayError
from dpsql.ledger import clock
from dpsql.ledger.budget import Spent, amounts_of, refuse_beyond, with_row
from dpsql.ledger.caps import account_of, cap_of, granted, under_cap
from dpsql.ledger.chain import ACCEPTED, CHARGE, canonical

if TYPE_CHECKING:
    from dpsql.contract.events import Cost
    from dpsql.ledger.budget import Budget
    from dpsql.ledger.chain import Draft, Row
    from dpsql.ledger.composition import Composition
    from dpsql.ledger.grants import Grant
    from dpsql.ledger.transaction import Transaction


def refuse_cap(transaction: Transaction, principal: str, dataset: str, cost: Cost) -> None:
    """Raise unless a cost fits a principal's grant on a dataset.

    Raises
    ------
    GatewayError
        G015: there is no such grant now. G017: the cost exceeds the cap.
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
    """Return the row that charges an account for a recorded release."""
    charged: Draft = {**row, "kind": CHARGE, "name": None, "arguments": "{}", "result": None, "block": block}
    charged["lineage"], charged["status"] = canonical({"of": release}), f"charged for entry {release}"
    return charged


def charge_account(transaction: Transaction, row: Draft, release: int, cost: Cost) -> None:
    """Append the row that charges a principal's account for a recorded release of a dataset."""
    principal, dataset = row["principal"] or "", row["dataset"]
    cap = cap_of(transaction.grants(None).grants, principal, dataset)
    spent = account(transaction, principal, dataset, cap).plus(cost)
    charged = of_account(row, account_of(principal), release)
    transaction.append(charged, replace(transaction.state(dataset), spent=spent))


def _next(per: str, period: str) -> str:
    after = following(per, period)
    return "" if after is None else f" The next {per} begins on {first_day(per, after)}."


def counted(transaction: Transaction, grant: Grant) -> tuple[Spent, str | None]:
    """Return the spending that counts against a grant's cap now, and the calendar period of the charge.

    If the cap has no periods, the period is None and the whole account counts. Otherwise the account's entries count
    from the first entry recorded in this period or later: a clock that goes back makes no entry count less. Their
    composition starts from zero, under the accountant of the dataset.
    """
    total, now = account(transaction, grant.principal, grant.dataset, grant.cap), clock.time_text(clock.now())
    period = grant.period_at(now)
    if period is None:
        return total, None
    start, budget = f"{first_day(grant.per or '', period)}T", transaction.state(grant.dataset).budget
    first = under_cap(Spent(), grant.cap, budget)
    return _since(transaction, grant.dataset, account_of(grant.principal), start, total.releases, first), period


def _since(transaction: Transaction, dataset: str, block: str, start: str, number: int, first: Spent) -> Spent:
    """Return the spending of an account of `number` entries since `start`, composed from `first` on.

    The process caches its last composition with the last entry in it, and reads only later entries: entries extend a
    chain, so the same entry, by its hash, has the same predecessors, and the entries that count from `start` on are a
    run of the account's entries up to its end. If the chain lacks that entry (its transaction failed, or another file
    replaced the ledger), everything is composed again.
    """
    key = (dataset, block, start, first)
    memory = transaction.composed.get(key)
    if memory is not None:
        last, end, spent = memory
        rows = transaction.charges_since(dataset, block, last, number)
        if not rows or (rows[0]["sequence"], rows[0]["hash"]) != (last, end):
            memory = None
        else:
            rows = rows[1:]
    if memory is None:
        rows, spent = transaction.charges_since(dataset, block, start, number), first
    spent = _composed(spent, rows)
    if rows:
        if len(transaction.composed) >= _most_remembered:
            transaction.composed.clear()
        transaction.composed[key] = (rows[-1]["sequence"], rows[-1]["hash"], spent)
    return spent


def refuse_daily(
    transaction: Transaction, principal: str | None, dataset: str, budget: Budget | None, needed: int
) -> None:
    """Raise if a question that states no epsilon is beyond what its principal may spend so on this day in UTC.

    Parameters
    ----------
    transaction : Transaction
    principal : str or None
        Who asks through the gateway; None for all who ask on a connection of their own.
    dataset : str
    budget : Budget or None
        The dataset's budget, which states the limit.
    needed : int
        The epsilon that the question costs one person, in units of 1e-18.

    Raises
    ------
    BudgetError
        B022: it depends on the ledger's entries for this principal alone.
    """
    most = None if budget is None else budget.daily_epsilon
    if most is None:
        return
    start = clock.time_text(clock.now())[: len("2026-01-01")]
    spent, limit = _spent_by_default(transaction, principal, dataset, start), units_down(most)
    if spent + needed > limit:
        raise BudgetError(
            "B022",
            f"calls that state no epsilon may spend {units_text(limit)} of dataset '{dataset}' per day in UTC; "
            f"this one needs {units_text(needed)}, and {units_text(max(0, limit - spent))} remains of today. "
            f"State it: epsilon := {units_text(needed)}. The data's owner can raise default_daily_epsilon.",
        )


def _spent_by_default(transaction: Transaction, principal: str | None, dataset: str, start: str) -> int:
    """Return what a principal's questions without a stated epsilon spent of a dataset since a day began.

    Entries count from the first entry recorded on this day or later: a clock that goes back makes no entry count less.
    The process remembers its last sum with the last entry in it, as `_since` does.
    """
    key = (dataset, account_of(principal or ""), start, DEFAULTS)
    memory = transaction.composed.get(key)
    rows: list[Row] = []
    spent = 0
    if memory is not None:
        last, end, total = memory
        rows, spent = transaction.releases_since(dataset, last), total.epsilon or 0
        memory = memory if rows and (rows[0]["sequence"], rows[0]["hash"]) == (last, end) else None
        rows = rows[1:]
    if memory is None:
        rows, spent = transaction.releases_since(dataset, start), 0
    spent += sum(by_default(row["lineage"], row["epsilon"]) for row in rows if row["principal"] == principal)
    if rows:
        if len(transaction.composed) >= _most_remembered:
            transaction.composed.clear()
        transaction.composed[key] = (rows[-1]["sequence"], rows[-1]["hash"], Spent(epsilon=spent))
    return spent


def by_default(lineage: str | None, charged: str | None) -> int:
    """Return the epsilon of a release that states none, in units of 1e-18; 0 for one that states it.

    It is the charge or, if that has no finite epsilon, the default itself.
    """
    if lineage is None or DEFAULTS not in lineage:
        return 0
    amount = json.loads(lineage).get(DEFAULTS, {}).get("epsilon")
    return 0 if amount is None else units_up(Fraction(amount)) if charged is None else int(charged)


_most_remembered = 1024


def _composed(spent: Spent, rows: Iterable[Row]) -> Spent:
    for row in rows:
        composition = spent.composition
        if composition is not None and row["status"] == ACCEPTED:
            composition = _after_accepted(composition, row)
        elif composition is not None:
            cost, charged = cost_of(json.loads(row["event"] or "")), amounts_of(row)
            # A release on several periods of the data costs a person more than its event states.
            is_whole = None if cost.epsilon is None else units_up(cost.epsilon)
            same = (is_whole, str(units_up(cost.delta))) == (row["epsilon"] and int(row["epsilon"]), row["delta"])
            composition = composition.plus(cost if same else charged)
        spent = with_row(spent, row, composition)
    return spent


def _after_accepted(composition: Composition, row: Row) -> Composition:
    """Return a period's accountant after lost entries, whose sums may be of another order."""
    added, amounts = json.loads(row["arguments"])["added"], amounts_of(row)
    remained = {name: added[name] for name in ("before_epsilon", "before_delta") if name in added}
    if not remained and amounts.epsilon is None and amounts.rho is None:
        remained = {"before_epsilon": None}
    return composition.with_added(remained) if remained else composition.plus(amounts)


def account(transaction: Transaction, principal: str, dataset: str, cap: Budget | None) -> Spent:
    """Return a principal's spending on a dataset."""
    state, name = transaction.state(dataset), account_of(principal)
    spent = transaction.blocks(dataset, [name]).spent.get(name, Spent())
    return under_cap(spent, cap, state.budget)
