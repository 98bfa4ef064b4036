"""Verify a whole ledger: every row is chained, and every running total adds up, including totals of blocks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import field
from datetime import date
from fractions import Fraction

from dpsql.contract.events import Cost, cost_of
from dpsql.contract.periods import During
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.ledger.blocks import FRESH, Blocks, Ended, begun_of, charged_names, merged, of_person, restated
from dpsql.ledger.budget import Budget, Spent, amounts_of, with_accepted, with_row
from dpsql.ledger.caps import account_of, cap_of, under_cap
from dpsql.ledger.chain import (
    ACCEPTED,
    CARRY,
    CHAIN,
    CHARGE,
    GRANTS,
    MERGED,
    RESERVED,
    Last,
    Row,
    amount_text,
    charges,
    completes,
    genesis,
    hash_of_row,
    note,
)
from dpsql.ledger.composition import Composition
from dpsql.ledger.grants import StandingGrants, grant_row


@dataclass(frozen=True)
class VerifyReport:
    """The result of verifying the chain.

    Attributes
    ----------
    ok : bool
        Every row is chained, every running total adds up, and the remembered head is among the hashes.
    entries : int
        Number of intact rows, from the first on.
    head : str
        Hash of the last intact row. Keep it elsewhere: only a comparison with it reveals a truncated chain.
    first_bad : int or None
        Sequence of the first row that is missing, changed or out of order; None if the rows are intact.
    problem : str or None
        The problem, in words.
    """

    ok: bool
    entries: int
    head: str
    first_bad: int | None = None
    problem: str | None = None


def verify(
    ledger_id: str, rows: Iterable[Row], remembered: str | None, noted: Mapping[str, tuple[object, ...]] | None
) -> VerifyReport:
    """Verify the chain from its start, and compare it with `dpsql_ledger_last`; see `Ledger.verify`."""
    previous, count = genesis(ledger_id), 0
    seen = remembered is None or remembered == previous
    accounts = _Accounts()
    reservations: dict[int, Row] = {}
    lasts: dict[str, Last] = {}
    for row in rows:
        problem = _problem(previous, count + 1, row, accounts) or _problem_of_end(row, reservations)
        if problem:
            return VerifyReport(False, count, previous, count + 1, problem)
        previous, count = row["hash"], count + 1
        seen = seen or previous == remembered
        note(lasts, row)
    if accounts.awaited:
        return VerifyReport(False, count, previous, count + 1, f"row {count + 1} is missing: it charges a block")
    if noted is not None and noted != lasts:
        key = min(key for key in {*noted, *lasts} if noted.get(key) != lasts.get(key))
        end = max(last[0] for last in (noted.get(CHAIN), lasts.get(CHAIN)) if last and isinstance(last[0], int))
        first_bad = count + 1 if end > count else None
        lost = "rows were cut off" if first_bad else "a row was hidden or added"
        return VerifyReport(False, count, previous, first_bad, f"the last row of {key!r} is not the one noted: {lost}")
    if not seen:
        lost = "the remembered head is not in the chain: rows were cut off or rewritten"
        return VerifyReport(False, count, previous, None, lost)
    return VerifyReport(True, count, previous)


@dataclass
class _Account:
    """The sums of a dataset's rows."""

    spent: Spent = field(default_factory=Spent)
    policy: int | None = None
    budget: Budget | None = None
    accounts: dict[str, Spent] = field(default_factory=dict)  # by block
    principals: dict[str, Spent] = field(default_factory=dict)
    own: Ended | None = None  # the state before a merge
    ended: list[Ended] = field(default_factory=list)  # the merged datasets, until the new budget is declared
    blocks: Blocks = field(init=False)

    def __post_init__(self) -> None:
        self.blocks = Blocks(self.accounts)

    def as_ended(self, *, keeps_dates: bool) -> Ended:
        """Return the current budget and total, and all accounts of the blocks."""
        return Ended(self.budget, self.spent, Blocks(dict(self.blocks.spent), self.blocks.begun), keeps_dates)

    def begins(self, budget: Budget, before: _Account, begun: date | None = None) -> Blocks | None:
        """Return the initial accounts of the blocks under a budget, from the state before; None if they continue."""
        if before.own is not None:
            return merged(before.own, before.ended, budget, begun)
        return restated(before.budget, budget, before.spent, before.blocks, begun)


@dataclass
class _Accounts:
    """The sums of all rows, and the block rows that must follow now."""

    of: dict[str, _Account] = field(default_factory=dict)
    awaited: list[str] = field(default_factory=list)
    first: Row | None = None  # the row before the block rows
    before: _Account = field(default_factory=_Account)  # the state before that row
    charged: int = 0  # the number of blocks that it charges
    restated: Blocks | None = None
    standing: StandingGrants = field(default_factory=StandingGrants)

    def take(self, row: Row) -> tuple[Spent, int | None]:
        """Apply a row; return its expected totals, and the row of the budget in force.

        Raises
        ------
        ValueError
            The row is not the expected next row.
        """
        account = self.of.setdefault(row["dataset"], _Account())
        if self.awaited or row["block"] is not None:
            return self._of_block(account, row), account.policy
        self.first, self.before = row, copy(account)
        if row["kind"] in GRANTS:
            self.standing.take(grant_row(row))
        if row["kind"] == "protect":
            account.policy, account.budget = row["sequence"], Budget.from_json(row["budget"] or "")
            account.spent = account.spent.under(account.budget, _order(row))
            account.own, account.ended = None, []
            if account.begins(account.budget, self.before) is not None:
                self.awaited = [FRESH]
        elif charges(row) and row["status"] == ACCEPTED:
            account.spent = with_accepted(account.spent, row)
            self.awaited = list(json.loads(row["arguments"])["accounts"])
        elif charges(row):
            if row["status"] == MERGED:
                self._merge(account, row)
            during = _during(row)
            composition = account.spent.composition
            if composition is not None:
                composition = composition.plus(_cost(row) if during is None else amounts_of(row))
            account.spent = with_row(account.spent, row, composition)
            if during is not None:
                self.awaited, self.charged = charged_names(account.budget, during), len(during.blocks)
            if row.get("principal") is not None:
                self.awaited = [*self.awaited, account_of(row["principal"] or "")]
        return account.spent, account.policy

    def _of_block(self, account: _Account, row: Row) -> Spent:
        first, name, budget = self.first, row["block"], account.budget
        if not self.awaited or first is None or name != self.awaited[0]:
            raise ValueError("no row of a block is due, or that of another one")
        if row["dataset"] != first["dataset"] or row["kind"] != (CARRY if first["kind"] == "protect" else CHARGE):
            raise ValueError("a row of another kind is due")
        self.awaited.pop(0)
        blocks = account.blocks
        if first["status"] == ACCEPTED:
            return self._accepted(account, row, first)
        if row["kind"] == CHARGE:
            if json.loads(row["lineage"] or "") != {"of": first["sequence"]} or row["event"] != first["event"]:
                raise ValueError("the charge is of another release")
            if row.get("principal") is not None:
                return self._of_principal(account, row, first)
            if budget is None:
                raise ValueError("there are no blocks")
            if amounts_of(first) != of_person(amounts_of(row), self.charged):
                raise ValueError("the charges of the blocks do not add up to that of the person")
            before = blocks.of(budget, name)
            composition = before.composition and before.composition.plus(_cost(row))
            spent = with_row(before, row, composition)
        else:
            if budget is None:
                raise ValueError("nothing is stated")
            if name == FRESH:
                self._restate(account, budget, row)
            if self.restated is None:
                raise ValueError("nothing is restated")
            spent = self.restated.spent[name].under(budget, _order(row), of_block=True)
            account.blocks = Blocks(account.accounts, self.restated.begun)
        account.accounts[name] = spent
        return spent

    def _accepted(self, account: _Account, row: Row, first: Row) -> Spent:
        """Charge a block or a principal with spending that the owner accepted."""
        name, principal, budget = row["block"] or "", row["principal"], account.budget
        if json.loads(row["lineage"] or "") != {"of": first["sequence"]} or row["status"] != ACCEPTED:
            raise ValueError("the charge is of another entry")
        if principal is not None:
            if name != account_of(principal):
                raise ValueError("the charge is of another principal")
            cap = cap_of(self.standing.grants, principal, row["dataset"])
            spent = under_cap(account.principals.get(principal, Spent()), cap, budget, _order(row))
            account.principals[principal] = spent = with_accepted(spent, row)
            return spent
        account.accounts[name] = spent = with_accepted(account.blocks.of(budget, name), row)
        if name == FRESH:
            account.blocks = Blocks(account.accounts, begun_of(row["arguments"]))
        return spent

    def _merge(self, account: _Account, row: Row) -> None:
        """Note an ended dataset, and charge all its spending here."""
        facts = json.loads(row["lineage"] or "")
        predecessor = self.of.get(facts["merged"], _Account()).as_ended(keeps_dates=facts.get("keeps_dates") is True)
        epsilon, delta, rho = predecessor.total.losses
        if (row["epsilon"], row["delta"], row["rho"]) != (amount_text(epsilon), str(delta), amount_text(rho)):
            raise ValueError("the charge is not what was spent")
        account.own = account.own or account.as_ended(keeps_dates=True)
        account.ended = [*account.ended, predecessor]

    def _of_principal(self, account: _Account, row: Row, first: Row) -> Spent:
        principal = row["principal"] or ""
        if (
            principal != first["principal"]
            or row["block"] != account_of(principal)
            or amounts_of(row) != amounts_of(first)
        ):
            raise ValueError("the charge is of another principal, or another amount")
        cap = cap_of(self.standing.grants, principal, row["dataset"])
        spent = under_cap(account.principals.get(principal, Spent()), cap, account.budget, _order(row))
        composition = spent.composition
        if composition is not None:
            composition = composition.plus(_cost(row) if _during(first) is None else amounts_of(row))
        account.principals[principal] = spent = with_row(spent, row, composition)
        return spent

    def _restate(self, account: _Account, budget: Budget, row: Row) -> None:
        """Compute the initial spending of every block; the owner said which blocks have begun."""
        begun = begun_of(row["arguments"])
        self.restated = account.begins(budget, self.before, begun)
        if self.restated is None or self.restated.begun != begun:
            raise ValueError("the blocks that had begun are others")
        self.awaited = list(self.restated.spent)[1:]


def _during(row: Row) -> During | None:
    """Return the blocks that a release names, if any."""
    record = json.loads(row["arguments"]).get("during") if '"during"' in row["arguments"] else None
    return None if record is None else During.from_json(record)


def _cost(row: Row) -> Cost:
    return cost_of(json.loads(row["event"] or ""))


def _order(row: Row) -> Fraction | None:
    """Return the order of a new phase, the only value taken from a row."""
    text = row.get("composition")
    return None if text is None else Composition.from_json(text).order


def _problem(previous: str, sequence: int, row: Row, accounts: _Accounts) -> str | None:
    """Return a row's problem, or None; update `accounts`."""
    if row["sequence"] != sequence:
        return f"row {sequence} is missing"
    if hash_of_row(previous, row) != row["hash"]:
        return f"row {sequence} was changed, or a row before it"
    try:
        spent, policy = accounts.take(row)
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError, ParameterError):
        return (
            f"row {sequence} holds an amount that is no number, or an event or a state that cannot be read, or is not "
            "the row of a block that must stand there"
        )
    stored = (row["epsilon_spent"], row["delta_spent"], row["rho_spent"], row["releases"], row["budget_sequence"])
    if stored != (amount_text(spent.epsilon), str(spent.delta), amount_text(spent.rho), spent.releases, policy):
        return f"the totals of row {sequence} do not add up"
    if row.get("composition") != (None if spent.composition is None else spent.composition.to_json()):
        return f"the accountant's state after row {sequence} does not follow from the row before it"
    return None


def _problem_of_end(row: Row, reservations: dict[int, Row]) -> str | None:
    """Return the problem of the reservation that a row ends, or None; `reservations` are the open reservations."""
    if row["status"] == RESERVED:
        reservations[row["sequence"]] = row
    paid = row["hold"]
    if paid is None or completes(row, reservations.pop(paid, None)):
        return None
    return (
        f"row {row['sequence']} ends the reservation in entry {paid}, which is none of the same call, or has ended "
        "already"
    )
