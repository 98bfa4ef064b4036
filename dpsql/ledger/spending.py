"""Totals of all accounts at an entry, which a database stores, and the charge of a ledger's later losses.

A database remembers each account of its ledger: the spending of a dataset, of one of its periods, and by a principal,
with the state of the accountant. A ledger restored from an earlier copy, or another ledger, lacks some of these
charges. `accept` charges them to the ledger, in one transaction, as entries that `verify` adds up again.

**The difference.** Let t be the last remembered entry in the ledger. For one account, the database says D, the ledger
said L(t) at t, and says L now. The lost entries spent D - L(t), so the account becomes L + D - L(t). If the accountant
is in the same phase at t, in D and now, its sums increase in the same way. Otherwise the difference is added as one
release: by basic composition all lost entries together are as private as the sums of their losses say.

**All that remains.** The difference is too small for another ledger, or if the lost entries merged datasets or
declared new periods. Then `accept` charges all that remains of the dataset's budget, of each period and of each cap, or
the difference if it is more. If the ledger has no budget for the dataset, `accept` charges all of the remembered
budget, so that the same budget, declared again, does not begin anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.contract.events import UNITS_PER_ONE, Cost, units_text
from dpsql.dataclass import dataclass
from dpsql.ledger import clock
from dpsql.ledger.accounts import account, counted
from dpsql.ledger.blocks import FRESH, Blocks
from dpsql.ledger.budget import ENDED, Budget, Spent, with_accepted
from dpsql.ledger.caps import account_of, cap_of
from dpsql.ledger.chain import ACCEPTED, CHARGE, Draft, Row, canonical
from dpsql.ledger.charge import fingerprint_of
from dpsql.ledger.composition import Composition

if TYPE_CHECKING:
    from dpsql.ledger.rows import State
    from dpsql.ledger.transaction import Transaction

DIGITS = 16  # of an entry's hash
_LAST = (1 << 31) - 1  # an entry's number is a 32-bit integer on PostgreSQL
_AMOUNTS = ("epsilon", "delta", "rho")


@dataclass(frozen=True)
class Totals:
    """The spending of one account after an entry.

    Attributes
    ----------
    sequence : int
        The entry.
    hash : str
        The first `DIGITS` of its hash.
    dataset : str
    block : str or None
        A period, the account of a principal, or None for the dataset itself.
    spent : Spent
        Without the number of releases.
    budget : str or None
        The dataset's budget as the ledger writes it, if the entry declares one or it was looked up.
    """

    sequence: int
    hash: str
    dataset: str
    block: str | None
    spent: Spent
    budget: str | None = None

    @classmethod
    def of(cls, row: Row, budget: str | None = None) -> Totals:
        """Return the totals after a row."""
        composition = row["composition"]
        spent = Spent(
            None if row["epsilon_spent"] is None else int(row["epsilon_spent"]),
            int(row["delta_spent"]),
            None if row["rho_spent"] is None else int(row["rho_spent"]),
            composition=None if composition is None else Composition.from_json(composition),
        )
        return cls(row["sequence"], row["hash"][:DIGITS], row["dataset"], row["block"], spent, row["budget"] or budget)

    @property
    def text(self) -> str:
        """The spending as JSON, in the accountant's numbers."""
        record: dict[str, object] = {
            name: None if amount is None else str(amount)
            for name, amount in zip(_AMOUNTS, (self.spent.epsilon, self.spent.delta, self.spent.rho), strict=True)
        }
        if self.spent.composition is not None:
            record["composition"] = json.loads(self.spent.composition.to_json())
        if self.budget is not None:
            record["budget"] = self.budget
        return canonical(record)

    @classmethod
    def read(cls, sequence: int, digits: str, dataset: str, block: str | None, text: str) -> Totals:
        """Read back what `text` wrote."""
        record = json.loads(text)
        epsilon, delta, rho = (None if record[name] is None else int(record[name]) for name in _AMOUNTS)
        composition = record.get("composition")
        state = None if composition is None else Composition.from_json(json.dumps(composition))
        spent = Spent(epsilon, delta or 0, rho, composition=state)
        return cls(sequence, digits, dataset, block, spent, record.get("budget"))


def totals_between(transaction: Transaction, since: int, until: int = _LAST) -> list[Totals]:
    """Return each account's totals after its last entry after `since`, up to `until`."""
    rows = transaction.verified(transaction.statements.last_of_accounts, since=since, until=until)
    return [Totals.of(row, _budget_of(transaction, row)) for row in rows]


def _budget_of(transaction: Transaction, row: Row) -> str | None:
    """Return the budget in force at the last entry of a dataset."""
    sequence = None if row["block"] is not None or row["budget_sequence"] is None else row["budget_sequence"]
    entry = None if sequence is None else transaction.row_at(sequence)
    return None if entry is None else entry["budget"]


@dataclass(frozen=True)
class Lost:
    """The charge of one account for lost entries, in units of 1e-18.

    Attributes
    ----------
    dataset : str
    block : str or None
        As in `Totals`.
    epsilon, delta, rho : int or None
        None without a finite amount.
    added : mapping
        Increases of the accountant's sums, see `Composition.with_added`.
    everything : bool
        Whether the charge is all that remained.
    """

    dataset: str
    block: str | None
    epsilon: int | None
    delta: int
    rho: int | None
    added: Mapping[str, str | None] = field(default_factory=dict)
    everything: bool = False

    @property
    def text(self) -> str:
        """The charge in words, such as ``'patients: epsilon 0.5'``."""
        amounts = {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho}
        losses = {name: amount for name, amount in amounts.items() if amount}
        if self.epsilon is not None or self.rho is None:  # rho is shown if it alone is finite
            losses.pop("rho", None)
        texts = [f"{name} {units_text(amount)}" for name, amount in losses.items()]
        where = self.dataset if self.block is None else f"{self.dataset}, {self.block}"
        return f"{where}: {', '.join(texts) or 'no finite amount'}{' (all that remained)' * self.everything}"

    @property
    def is_nothing(self) -> bool:
        """Whether the charge is zero."""
        return (self.epsilon, self.delta, self.rho) == (0, 0, 0) and not self.added


def lost_charges(transaction: Transaction, remembered: Sequence[Totals], *, same: bool) -> list[list[Lost]]:
    """Return a ledger's losses in the accounts that a database remembers, by dataset, its own account first.

    Parameters
    ----------
    transaction : Transaction
    remembered : sequence of Totals
        In entry order.
    same : bool
        Whether the remembered ledger has this ledger's id.
    """
    since = _last_common(transaction, remembered) if same else 0
    before = (
        {(totals.dataset, totals.block): totals.spent for totals in totals_between(transaction, 0, since)}
        if since
        else {}
    )
    budgets: dict[str, str | None] = {}
    lost: dict[str, dict[str | None, Totals]] = {}
    for totals in remembered:
        budgets[totals.dataset] = totals.budget or budgets.get(totals.dataset)
        if totals.sequence > since:
            lost.setdefault(totals.dataset, {})[totals.block] = totals
    into, groups = transaction.declarations(None).aliases, list[list[Lost]]()
    for dataset, accounts in lost.items():
        account = _Dataset(transaction, into.get(dataset, dataset), accounts, before, budgets[dataset])
        groups.append(account.lost(all_of_it=not same or dataset in into))
    return [
        charges for charges in ([charge for charge in group if not charge.is_nothing] for group in groups) if charges
    ]


def _last_common(transaction: Transaction, remembered: Sequence[Totals]) -> int:
    """Return the last remembered entry in the ledger, or 0. The ledger has all entries before it, too."""
    low, high = 0, len(remembered)
    while low < high:
        middle = (low + high) // 2
        row = transaction.row_at(remembered[middle].sequence)
        if row is not None and row["hash"].startswith(remembered[middle].hash):
            low = middle + 1
        else:
            high = middle
    return remembered[low - 1].sequence if low else 0


class _Dataset:
    """One dataset with lost entries: its state now, and the database's memory of it."""

    def __init__(
        self,
        transaction: Transaction,
        dataset: str,
        accounts: Mapping[str | None, Totals],
        before: Mapping[tuple[str, str | None], Spent],
        budget: str | None,
    ) -> None:
        self._transaction, self._dataset, self._accounts = transaction, dataset, accounts
        self._before = {block: spent for (name, block), spent in before.items() if name == dataset}
        self._state: State = transaction.state(dataset)
        self._blocks: Blocks = transaction.blocks(dataset) if self._state.is_dated else Blocks()
        self._remembered = None if budget is None else Budget.from_json(budget)

    def lost(self, *, all_of_it: bool) -> list[Lost]:
        """Return the charges of its accounts."""
        standing, remembered = self._state.budget, self._remembered
        dated, was_dated = (None if budget is None else budget.dated for budget in (standing, remembered))
        restated = standing is not None and (dated != was_dated or (remembered == ENDED) != (standing == ENDED))
        everything = all_of_it or restated
        names = dict.fromkeys(
            [None, *self._live_periods(), *(name for name in self._accounts if name and name[0] == "@")]
        )
        if everything and standing is not None:
            names |= dict.fromkeys([*(self._blocks.spent if self._state.is_dated else ()), *self._capped()])
        return [self._lost(name, everything=everything) for name in names]

    def _live_periods(self) -> list[str]:
        """Return the remembered periods that the ledger can charge."""
        if not self._state.is_dated or self._state.budget is None:
            return []
        live = Blocks({name: totals.spent for name, totals in self._accounts.items() if name}).live(self._state.budget)
        return [*([FRESH] if FRESH in self._accounts else []), *live]

    def _capped(self) -> list[str]:
        """Return the accounts of principals whose grants have a cap."""
        grants = self._transaction.grants(None).grants.values()
        return [
            account_of(grant.principal) for grant in grants if grant.dataset == self._dataset and grant.cap is not None
        ]

    def _lost(self, name: str | None, *, everything: bool) -> Lost:
        now, before = self.now(name), self._before.get(name)
        if before is None:  # a period without charges begins like all others
            of_period = name is not None and name[0] != "@"
            before = self._before.get(FRESH, Spent()) if of_period else Spent()
        theirs = self._accounts.get(name)
        difference = _difference(self._dataset, name, now, before, before if theirs is None else theirs.spent)
        if difference is None or everything:
            return self._all_that_remains(name, now, difference)
        return difference

    def now(self, name: str | None) -> Spent:
        """Return an account's spending in the ledger."""
        if name is None:
            return self._state.spent
        if name[0] == "@":
            return _account(self._transaction, name[1:], self._dataset)
        return self._blocks.of(self._state.budget, name)

    def _limits(self, name: str | None, now: Spent) -> list[tuple[str, int, int | None]]:
        """Return an account's limits: the kind of loss, the limit, and the spending against it."""
        if name is not None and name[0] == "@":
            return _limits_of_cap(self._transaction, name[1:], self._dataset)
        budget = self._state.budget
        if budget is None:  # all of the remembered budget, and of one person's total
            record = self._remembered
            limits = [] if record is None or record == ENDED else [*record.limits.items(), *record.total_limits.items()]
        elif budget.dated is not None and name is None:
            limits = list(budget.total_limits.items())
        else:
            limits = list(budget.limits.items())
        kinds = ((kind.removesuffix("_total"), limit) for kind, limit in limits)
        return [(kind, limit, now.charged(kind)) for kind, limit in kinds]

    def _all_that_remains(self, name: str | None, now: Spent, difference: Lost | None) -> Lost:
        """Return all that remains of an account, or the known difference if it is more."""
        difference = difference or Lost(self._dataset, name, None, 0, None)
        remainder = {"epsilon": 0, "delta": 0, "rho": 0}
        for kind, limit, charged in self._limits(name, now):
            remainder[kind] = max(remainder[kind], 0 if charged is None else limit - charged)
        if not any(remainder.values()):
            return difference
        delta = max(remainder["delta"], difference.delta)
        # A loss without a limit has no finite amount: nothing shows how much of it an unknown ledger spent.
        epsilon = (
            None if difference.epsilon is None or remainder["rho"] else max(remainder["epsilon"], difference.epsilon)
        )
        rho = max(remainder["rho"], difference.rho or 0) if remainder["rho"] else None
        added: dict[str, str | None] = {}
        if now.composition is not None:
            finite = epsilon if remainder["rho"] else max(remainder["epsilon"], difference.epsilon or 0)
            added = {"before_epsilon": None if finite is None else str(finite), "before_delta": str(delta)}
        return Lost(self._dataset, name, epsilon, delta, rho, added, everything=True)


def _account(transaction: Transaction, principal: str, dataset: str) -> Spent:
    return account(transaction, principal, dataset, cap_of(transaction.grants(None).grants, principal, dataset))


def _limits_of_cap(transaction: Transaction, principal: str, dataset: str) -> list[tuple[str, int, int | None]]:
    grant = transaction.grants(None).grants.get((principal, dataset))
    if grant is None or grant.cap is None:
        return []
    spent, _ = counted(transaction, grant)
    return [(kind, limit, spent.charged(kind)) for kind, limit in grant.cap.limits.items()]


def _difference(dataset: str, block: str | None, now: Spent, before: Spent, theirs: Spent) -> Lost | None:
    """Return an account's loss between two states of its chain; None if no accountant can add it up."""
    epsilon, rho = _beyond(theirs.epsilon, before.epsilon), _beyond(theirs.rho, before.rho)
    delta = theirs.delta - before.delta
    if replace(theirs, releases=0) == replace(before, releases=0):
        return Lost(dataset, block, 0, 0, 0)
    added: dict[str, str | None] = {}
    if now.composition is not None:
        phase, start = theirs.composition, before.composition
        if phase is not None and start is not None and phase.is_phase_of(start) and phase.is_phase_of(now.composition):
            added = phase.beyond(start)
        elif epsilon is None and (rho is None or now.composition.order is None):
            return None
        else:
            cost = Cost(_fraction(epsilon), _fraction(delta) or Fraction(0), _fraction(rho))
            added = now.composition.plus(cost).beyond(now.composition)
    return Lost(dataset, block, epsilon, delta, rho, added)


def _beyond(after: int | None, before: int | None) -> int | None:
    return None if after is None else after - (before or 0)


def _fraction(units: int | None) -> Fraction | None:
    return None if units is None else Fraction(units, UNITS_PER_ONE)


def append_lost(transaction: Transaction, charges: Iterable[Sequence[Lost]], row: Draft) -> None:
    """Append the entries that charge the losses; `row` has their common columns.

    A dataset's first entry is its own, and names the accounts that the later entries charge.
    """
    for first, *others in (_with_own(charge) for charge in charges):
        state = transaction.state(first.dataset)
        own = _row(row, first, {"accounts": [loss.block for loss in others]})
        entry = transaction.append(own, replace(state, spent=with_accepted(state.spent, own)))
        blocks = transaction.blocks(first.dataset) if state.is_dated else Blocks()
        for other in others:
            name = other.block or ""
            is_principal = name[0] == "@"
            now = _account(transaction, name[1:], other.dataset) if is_principal else blocks.of(state.budget, name)
            charged: Draft = {
                **_row(row, other, _begun(blocks) if name == FRESH else {}),
                "kind": CHARGE,
                "block": name,
            }
            charged["lineage"] = canonical({"of": entry.sequence})
            charged["principal"] = name[1:] if is_principal else None
            transaction.append(charged, replace(transaction.state(other.dataset), spent=with_accepted(now, charged)))


def _with_own(charges: Sequence[Lost]) -> list[Lost]:
    first = charges[0]
    return list(charges) if first.block is None else [Lost(first.dataset, None, 0, 0, 0), *charges]


def _begun(blocks: Blocks) -> dict[str, object]:
    """Return the latest possible date of rows now, if their owner declared that none are dated ahead."""
    tomorrow = clock.now().date() + timedelta(days=1)  # in every time zone
    return {} if blocks.begun is None else {"begun": max(tomorrow, blocks.begun).isoformat()}


def _row(row: Draft, loss: Lost, facts: Mapping[str, object]) -> Draft:
    arguments = canonical({**facts, "added": dict(loss.added)})
    return {
        **row,
        "dataset": loss.dataset,
        "arguments": arguments,
        "fingerprint": fingerprint_of(loss.dataset, row["function"], arguments),
        "epsilon": None if loss.epsilon is None else str(loss.epsilon),
        "delta": str(loss.delta),
        "rho": None if loss.rho is None else str(loss.rho),
        "status": ACCEPTED,
    }
