"""Compute the spending of a budget, and refuse calls beyond the remaining budget or the owner's declarations."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.contract import parameters
from dpsql.contract.cost import UNITS_PER_ONE, Cost, units_down, units_text, units_up
from dpsql.contract.events import Composed, Event
from dpsql.contract.names import NAMELESS
from dpsql.errors import BudgetError, ParameterError
from dpsql.ledger.budget import Budget
from dpsql.ledger.chain import Draft, Row
from dpsql.ledger.composition import Composition, begin

_repeat = "repeat an earlier release by its name, which costs nothing. Only the data's owner can change the budget."


@dataclass(frozen=True)
class Spent:
    """Running totals of one dataset, in units of 1e-18; None after a release without a finite loss of that kind.

    Attributes
    ----------
    epsilon, delta, rho : int or None
        Sums over all releases.
    releases : int
    composition : Composition or None
        The state of the accountant; None if composition was always basic, because the sums are that state.
    """

    epsilon: int | None = 0
    delta: int = 0
    rho: int | None = 0
    releases: int = 0
    composition: Composition | None = None

    def plus(self, cost: Cost) -> Spent:
        """Return the totals after one more release; every charge rounds up."""
        epsilon = None if self.epsilon is None or cost.epsilon is None else self.epsilon + units_up(cost.epsilon)
        rho = None if self.rho is None or cost.rho is None else self.rho + units_up(cost.rho)
        composition = None if self.composition is None else self.composition.plus(cost)
        return Spent(epsilon, self.delta + units_up(cost.delta), rho, self.releases + 1, composition)

    def with_all_of(self, epsilon: int | None, delta: int, rho: int | None) -> Spent:
        """Return the totals of a new dataset after another dataset's spending, added as one more release."""
        return Spent(
            None if self.epsilon is None or epsilon is None else self.epsilon + epsilon,
            self.delta + delta,
            None if self.rho is None or rho is None else self.rho + rho,
            self.releases + 1,
        )

    def under(self, budget: Budget, order: Fraction | None = None, *, of_block: bool = False) -> Spent:
        """Return the totals under a declared budget: nothing is forgotten, and its accountant begins.

        With periods each block has the declared accountant; a dataset's own totals are one person's loss over all
        blocks, which adds up.
        """
        composition = begin(
            budget.accountant if budget.dated is None or of_block else "basic",
            epsilon=units_down(budget.epsilon or Fraction(0)),
            delta=units_down(budget.delta or Fraction(0)),
            spent=(self.epsilon, self.delta),
            standing=self.composition,
            order=order,
        )
        return replace(self, composition=composition)

    def charged(self, name: str) -> int | None:
        """Return the amount that counts against a limit of ``'epsilon'``, ``'delta'`` or ``'rho'``."""
        totals: Spent | Composition = self if name == "rho" or self.composition is None else self.composition
        charged: int | None = getattr(totals, name)
        return charged

    @property
    def losses(self) -> tuple[int | None, int, int | None]:
        """Epsilon, delta and rho as limits count them."""
        return self.charged("epsilon"), self.charged("delta") or 0, self.rho


def amounts_of(row: Row) -> Cost:
    """Return the charges of a row."""
    epsilon, delta, rho = (
        None if amount is None else Fraction(int(amount), UNITS_PER_ONE)
        for amount in (row["epsilon"], row["delta"], row["rho"])
    )
    return Cost(epsilon, delta or Fraction(0), rho)


def with_row(spent: Spent, row: Draft, composition: Composition | None) -> Spent:
    """Return the totals after a row's charge, with the accountant's state after it."""
    return Spent(
        _added(spent.epsilon, row["epsilon"]),
        spent.delta + int(row["delta"]),
        _added(spent.rho, row["rho"]),
        spent.releases + 1,
        composition,
    )


def with_accepted(spent: Spent, row: Draft) -> Spent:
    """Return the totals after a row that charges spending of lost entries, which the owner accepted.

    The row also states its addition to the accountant's sums (see `dpsql.ledger.spending`).
    """
    composition = spent.composition
    if composition is not None:
        composition = composition.with_added(json.loads(row["arguments"])["added"])
    return with_row(spent, row, composition)


def _added(total: int | None, amount: str | None) -> int | None:
    return None if total is None or amount is None else total + int(amount)


def refuse_overspend(dataset: str, budget: Budget | None, spent: Spent, cost: Cost, *, strict: bool) -> None:
    """Raise a BudgetError unless `cost` fits the dataset's remaining budget."""
    if budget is None:
        if strict and dataset == NAMELESS:
            raise BudgetError(
                "B002",
                "the rows belong to no dataset, and this connection is strict. Name one, dataset := 'NAME', after "
                "the data's owner has run SELECT dp_protect('NAME', source := false, epsilon := ...).",
            )
        if strict:
            raise BudgetError(
                "B002",
                f"dataset '{dataset}' has no budget, and this connection is strict. "
                f"Let the data's owner run SELECT dp_protect('{dataset}', epsilon := ...).",
            )
        return
    refuse_beyond(f"dataset '{dataset}'", budget, spent, cost)


def refuse_beyond(what: str, budget: Budget, spent: Spent, cost: Cost, *, end: str = "") -> None:
    """Raise a BudgetError unless `cost` fits the remainder; `what` names the account, and `end` ends the message."""
    after = spent.plus(cost)
    for name, limit in budget.limits.items():
        _refuse(what, name, limit, spent, after, budget, cost, end)


def _refuse(what: str, name: str, limit: int, spent: Spent, after: Spent, budget: Budget, cost: Cost, end: str) -> None:
    before, total = spent.charged(name), after.charged(name)
    if total is None:
        which = "an earlier release had" if before is None else "this release has"
        raise BudgetError(
            "B004",
            f"{what} has a budget in {name}, but {which} no finite {name}. "
            "Use another mechanism, or give the call a delta. Only the data's owner can change the budget's kind.",
        )
    if total <= limit:
        return
    remaining = max(0, limit - (before or 0))
    needed, remains, under = total - (before or 0), remaining, ""
    if budget.accountant != "basic" and name == "epsilon":  # show computed numbers with six digits, not eighteen
        needed, remains = _rounded(needed, up=True), _rounded(remaining)
        under = f" under accountant {budget.accountant}"
    lower = _affordable(name, remaining, budget, spent, after, cost)
    raise BudgetError(
        "B001",
        f"{what} needs {name} {units_text(needed)}{under}, "
        f"{units_text(remains) if remains else 'nothing'} remains of {units_text(limit)}. "
        f"{f'Lower {lower}, or {_repeat}' if lower else _repeat[0].upper() + _repeat[1:]}{end}",
    )


def _affordable(name: str, remaining: int, budget: Budget, spent: Spent, after: Spent, cost: Cost) -> str | None:
    """Return the amount that fits, such as ``'epsilon to 0.2'``; None if nothing fits."""
    if remaining == 0:
        return None
    if name == "delta":
        rest = remaining
        if spent.composition is not None and after.composition is not None and not spent.composition.releases:
            rest -= after.composition.tail  # the first release of a phase pays for the conversion
        return f"delta to {units_text(rest)}" if rest > 0 else None
    if name == "epsilon" and budget.accountant == "basic":
        return f"epsilon to {units_text(remaining)}"
    if cost.epsilon is None:
        return f"rho to {units_text(remaining)}" if name == "rho" else None
    share = _affordable_share(name, budget.limits[name], spent, cost)
    epsilon = _rounded(int(units_down(cost.epsilon) * share), digits=4)
    return f"epsilon to {units_text(epsilon)}" if epsilon else None


def _rounded(units: int, *, digits: int = 6, up: bool = False) -> int:
    unit: int = UNITS_PER_ONE // 10**digits
    return -(-units // unit) * unit if up else units // unit * unit


def _affordable_share(name: str, limit: int, spent: Spent, cost: Cost) -> Fraction:
    """Return roughly the largest share of a call's epsilon that fits, from below."""
    low, high = Fraction(0), Fraction(1)
    event = Composed(tuple(part.event for part in cost.mechanisms if isinstance(part.event, Event)))
    for _ in range(24):
        middle = (low + high) / 2
        try:
            total = spent.plus(event.scaled(middle).cost).charged(name)
        except ParameterError:  # the call does not allow so little epsilon
            total = None
        low, high = (middle, high) if total is not None and total <= limit else (low, middle)
    return low


def refuse_contradiction(
    dataset: str, budget: Budget | None, *, neighbours: str, privacy_unit: str | None, traced: bool = False
) -> None:
    """Raise a BudgetError if a call does not protect the declared privacy unit.

    A privacy unit `traced` through the source's plan is the declared unit, whatever its column's name.
    """
    if budget is None:
        return
    if budget.neighbours is not None and neighbours != budget.neighbours:
        raise _contradiction(dataset, "neighbours", budget.neighbours, neighbours)
    if (
        budget.privacy_unit is not None
        and not traced
        and parameters.fold(privacy_unit or "") != parameters.fold(budget.privacy_unit)
    ):
        raise _contradiction(dataset, "privacy_unit", budget.privacy_unit, privacy_unit)


def _contradiction(dataset: str, name: str, policy: str, argument: str | None) -> BudgetError:
    return BudgetError(
        "B003",
        f"{name} of dataset '{dataset}' was stated by its owner as {parameters.stored_text(policy)}; got "
        f"{parameters.show(argument)}. "
        f"Leave {name} out. Only the data's owner can restate it.",
    )
