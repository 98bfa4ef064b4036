"""An entry's contents: a charge and its row, names that every database can store, and fingerprints of calls.

A receipt gives a call's ledger entry, its charge, and whether it is a replay.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from dataclasses import replace as changed
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.contract.covers import covered
from dpsql.contract.events import UNITS_PER_ONE, Cost, Event, cost_of, loss_text, units_up
from dpsql.contract.grant_fields import DEFAULTS
from dpsql.contract.measurement import Permit
from dpsql.contract.periods import During, spans
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.ledger.accounts import by_default, charge_account, of_account, refuse_cap, refuse_daily
from dpsql.ledger.blocks import FRESH, Blocks, Ended, charged_names, of_person, refuse_blocks
from dpsql.ledger.budget import Budget, Spent, refuse_contradiction, refuse_overspend
from dpsql.ledger.chain import CARRY, MERGED, Amounts, Draft, canonical
from dpsql.ledger.policy import in_force
from dpsql.ledger.rows import Entry, Older, State

if TYPE_CHECKING:
    from dpsql.ledger.transaction import Transaction


@dataclass(frozen=True)
class Receipt:
    """The ledger's record of one call: public values only, and no result.

    Attributes
    ----------
    entry : int
        Number of the entry. A replay has the number of the first release.
    function : str
    datasets : tuple of str
        The charged budgets; for a replay, those of a new release.
    release : str or None
        Its name.
    source : str or None
        The source, as the call named it; None in the aggregate form.
    guarantee : str
    epsilon, delta, rho : float or None
        Present charge of each dataset, or of each block; 0 for a replay. None if the loss has no such number.
    status : str
        As in `dp_ledger`, or ``'replay'``.
    recorded_at : str
        Time of the entry, in UTC; for a replay, of the first release.
    replayed : bool
    policy : dict
        The call's privacy unit, relation and limits, the bounds, levels and keys that it used, and the rows that its
        numbers cover (`covers`).
    blocks : tuple of str
        The charged periods, in spans such as ``'2026-01/2026-12'``; none if the dataset has no periods.
    epsilon_of_person, delta_of_person : float or None
        Most that it may cost one person, who may be in all periods; 0 for a replay, and None without periods.
    """

    entry: int
    function: str
    datasets: tuple[str, ...]
    release: str | None
    source: str | None
    guarantee: str
    epsilon: float | None
    delta: float
    rho: float | None
    status: str
    recorded_at: str
    replayed: bool = False
    policy: Mapping[str, object] = field(default_factory=dict)
    blocks: tuple[str, ...] = ()
    epsilon_of_person: float | None = None
    delta_of_person: float | None = None

    @property
    def covers(self) -> str | None:
        """The rows that the numbers cover."""
        return covered(self.policy)

    @property
    def speaks_of(self) -> str | None:
        """Same as `covers`: its earlier name, for one more version."""
        return self.covers

    @property
    def has_result(self) -> bool:
        """Whether the entry stores a result to read again."""
        return self.replayed or self.status.startswith(RELEASED)


def receipt_of(entry: Entry, row: Draft, datasets: Sequence[str]) -> Receipt:
    """Return the receipt of a call.

    Parameters
    ----------
    entry : Entry
        The call's new entry, or the stored one that answers it.
    row : Draft
        The recorded row; for a replay, the row of a new release.
    datasets : sequence of str
    """
    epsilon, delta, rho = ((0 if entry.replayed else _amount(row[name])) for name in ("epsilon", "delta", "rho"))
    arguments = json.loads(row["arguments"])
    source = (entry.lineage or {}).get("source") or arguments.get("source")
    during = None if arguments.get("during") is None else During.from_json(arguments["during"])
    person: tuple[float | None, float | None] = None, None
    if during is not None:
        block_cost = Cost(_fraction(row["epsilon"]), _fraction(row["delta"]) or Fraction(0), None)
        charged = _charged(of_person(block_cost, len(during.blocks)))
        person = (0, 0) if entry.replayed else (_amount(charged["epsilon"]), _amount(charged["delta"]))
    return Receipt(
        entry=entry.sequence,
        function=row["function"],
        datasets=tuple(datasets),
        release=row["name"],
        source=None if not source else str(source),
        guarantee=entry.guarantee,
        epsilon=epsilon,
        delta=delta or 0,
        rho=rho,
        status="replay" if entry.replayed else row["status"],
        recorded_at=entry.recorded_at,
        replayed=entry.replayed,
        policy=in_force(arguments),
        blocks=() if during is None else tuple(spans(during.dated.period, during.blocks)),
        epsilon_of_person=person[0],
        delta_of_person=person[1],
    )


def _fraction(units: str | None) -> Fraction | None:
    return None if units is None else Fraction(int(units), UNITS_PER_ONE)


def _amount(units: str | None) -> float | None:
    return None if units is None else int(units) / UNITS_PER_ONE


RELEASED = "released"
NOTHING_RELEASED = "no result"
NO_RESULT = f"charged, {NOTHING_RELEASED}"
PROTECTED = "protected"
DECLARED = "declared"
CARRIED = "carried over"
_longest_name = 1000  # bytes: two names fit one index entry of PostgreSQL


@dataclass(frozen=True)
class Charge:
    """A release's spending, its budgets, and the ledger's record of the call.

    Attributes
    ----------
    dataset : str
        Name of the budget.
    event : Permit, Event or mapping
        The spending. A draw samples under a permit, and costs at most the allowed amount; an event, or its record, is
        for a draw without its own mechanisms.
    function : str
        Such as ``'dp_sis'``.
    arguments : mapping
        The call's public arguments, as JSON values.
    name : str or None
        Name of the release: a call with the same arguments returns the stored result and costs nothing.
    strict : bool
        Refuse a dataset that was never protected; otherwise it has no limit.
    neighbours, privacy_unit : str or None
        What the call protects; must match the owner's declaration.
    max_rows_per_unit : int or None
        Row limit per unit; recorded in the guarantee, and not compared: any limit keeps the guarantee.
    row : str
        Definition of one row without a privacy unit; recorded in the guarantee.
    lineage : mapping or None
        The tables read and the budgets charged for them, as JSON values.
    also : sequence of str
        Further budgets to charge for the same release, in the same transaction: all of them, or none.
    traced : bool
        The privacy unit's column was followed through the source's plan, and may have another name there.
    older : callable or None
        Returns the fingerprints of the same call in earlier versions, if the name has another one.
    during : During or None
        The charged blocks of `dataset`, each with the whole loss; None without periods.
    principal : str or None
        Who asks through the gateway; this principal's grants must allow the charge.
    """

    dataset: str
    event: Permit | Event | Mapping[str, object]
    function: str
    arguments: Mapping[str, object]
    name: str | None = None
    strict: bool = False
    neighbours: str = "add_remove"
    privacy_unit: str | None = None
    max_rows_per_unit: int | None = None
    row: str = "one row"
    lineage: Mapping[str, object] | None = None
    also: Sequence[str] = ()
    traced: bool = False
    older: Older | None = None
    during: During | None = None
    principal: str | None = None

    def whole(self) -> Charge:
        """Return the charge of everything that a permit allows; the permit's call costs that, however it ends."""
        return changed(self, event=self.event.reserve()) if isinstance(self.event, Permit) else self

    @property
    def keys(self) -> list[str]:
        """The names of the budgets in the ledger, first `dataset`."""
        return [folded_dataset(dataset) for dataset in (self.dataset, *self.also)]

    @property
    def cost(self) -> Cost:
        """The loss of the event, as far as the permit allows it now."""
        spent = self._spent
        return spent.cost if isinstance(spent, Event) else cost_of(spent)

    @property
    def _spent(self) -> Event | Mapping[str, object]:
        return self.event.event if isinstance(self.event, Permit) else self.event

    def draft(self, cost: Cost, remark: str = "") -> Draft:
        """Return the columns of the release's row that are known before its noise.

        Raises
        ------
        ParameterError
            P013: no database can store a name. P049: an argument is not a JSON value.
        """
        key, spent = folded_dataset(self.dataset), self._spent
        if self.name is not None:
            refuse_name("release", self.name)
        try:
            arguments = canonical(as_recorded(self.arguments))
            event = canonical(as_recorded(spent.to_json() if isinstance(spent, Event) else spent))
        except (TypeError, ValueError):
            raise ParameterError(
                "P049", f"the arguments of {self.function} must be JSON values, to be recorded."
            ) from None
        within = "" if self.during is None else self.during.within
        guarantee = guarantee_text(
            cost, self.neighbours, self.privacy_unit, self.max_rows_per_unit, self.row, self.lineage, within=within
        )
        usual = " and ".join(_defaults_of(self.lineage))
        guarantee += f"; {usual} by default" * bool(usual) + f"; {remark}" * bool(remark)
        row = entry_row("release", key, self.function, arguments, guarantee=guarantee)
        row = {**row, **_charged(cost)}
        row["name"], row["event"], row["lineage"] = self.name, event, json_text(self.lineage)
        row["principal"] = self.principal
        return row

    def _of_person(self, cost: Cost) -> Cost:
        return cost if self.during is None else of_person(cost, len(self.during.blocks))

    def refuse(self, transaction: Transaction, cost: Cost) -> None:
        """Raise a BudgetError unless every budget allows the charge."""
        for key in self.keys:
            state = transaction.state(key)
            refuse_contradiction(
                key, state.budget, neighbours=self.neighbours, privacy_unit=self.privacy_unit, traced=self.traced
            )
            if self.principal is not None:
                refuse_cap(transaction, self.principal, key, self._of_person(cost))
            if "epsilon" in _defaults_of(self.lineage):
                needed = by_default(json_text(self.lineage), _charged(self._of_person(cost))["epsilon"])
                refuse_daily(transaction, self.principal, key, state.budget, needed)
            during = self.during if key == self.keys[0] else None
            blocks = transaction.blocks(key, during.blocks) if during is not None and state.is_dated else Blocks()
            refuse_charge(key, state, blocks, during, cost, strict=self.strict)


def refuse_charge(
    dataset: str, state: State, blocks: Blocks, during: During | None, cost: Cost, *, strict: bool
) -> None:
    """Raise unless a budget allows a charge: a dataset's, or each named block's.

    Raises
    ------
    BudgetError
        As in `refuse_overspend` and `refuse_blocks`.
    ParameterError
        P110: the dataset has periods, and the call names none, or the owner declared new periods since.
    """
    if during is not None:
        refuse_blocks(dataset, state.budget, blocks, state.spent, during, cost)
    elif state.is_dated:
        raise ParameterError(
            "P110",
            f"during is missing: the budget of dataset '{dataset}' is kept by periods. Say which count, such as "
            "during := '2026-10'.",
        )
    else:
        refuse_overspend(dataset, state.budget, state.spent, cost, strict=strict)


def folded_dataset(dataset: str) -> str:
    """Return a dataset's name in the ledger, which ignores ASCII case; raise if the name is invalid."""
    refuse_name("dataset", dataset)
    return "".join(letter.lower() if letter.isascii() else letter for letter in dataset)


def is_name(name: str) -> bool:
    """Whether every database can store and index `name` unchanged."""
    try:
        length = len(name.encode())
    except (AttributeError, UnicodeEncodeError):
        return False
    return 0 < length <= _longest_name and "\x00" not in name


def refuse_name(argument: str, name: str) -> None:
    """Raise unless `name` can be stored."""
    if not is_name(name):
        raise ParameterError(
            "P013",
            f"{argument} must be text of 1 to {_longest_name} bytes without NUL. Give {argument} := another name.",
        )


def fingerprint_of(dataset: str, function: str, arguments: str) -> str:
    """Return the digest that identifies a call: its dataset, its function and its recorded arguments."""
    return hashlib.sha256(f"{canonical([dataset, function])}{arguments}".encode()).hexdigest()


def as_recorded(value: object) -> object:
    """Return `value` with exact numbers as text and whole floats as integers, so that equal calls give equal text."""
    if value is None or isinstance(value, (str, int)):  # most values, and the tests below are slow
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): as_recorded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if set(map(type, value)) == {str}:  # the names of a large vocabulary
            return list(value)
        return [as_recorded(item) for item in value]
    return value


def append_charges(
    transaction: Transaction, row: Draft, keys: Sequence[str], cost: Cost, during: During | None = None
) -> Entry:
    """Append a release's row, and a row without a result for each further charged budget.

    If the call names blocks, the dataset is charged its cost to one person; the rows of the blocks follow.
    """
    spent = cost if during is None else of_person(cost, len(during.blocks))
    row = {**row, **_charged(spent)}

    def append(key: str, row: Draft) -> Entry:
        state = transaction.state(key)
        entry = transaction.append(row, changed(state, spent=state.spent.plus(spent)))
        if during is not None and state.budget is not None:
            _append_blocks(transaction, {**row, **_charged(cost)}, entry.sequence, state, cost, during)
        if row["principal"] is not None:
            charge_account(transaction, row, entry.sequence, spent)
        return entry

    entry = append(keys[0], row)
    usual = _defaults_of(json.loads(row["lineage"] or "{}"))
    for key in keys[1:]:
        append(
            key,
            {
                **row,
                "dataset": key,
                "name": None,
                "result": None,
                "lineage": json_text({"of": entry.sequence, **({DEFAULTS: usual} if usual else {})}),
                "fingerprint": fingerprint_of(key, row["function"], row["arguments"]),
            },
        )
    return entry


def _defaults_of(lineage: Mapping[str, object] | None) -> Mapping[str, object]:
    """Return the amounts of a release that were defaults, by name."""
    usual = (lineage or {}).get(DEFAULTS)
    return usual if isinstance(usual, Mapping) else {}


def append_budget(
    transaction: Transaction, dataset: str, budget: Budget, lineage: Mapping[str, object] | None
) -> Entry:
    """Append the row that establishes a budget."""
    state = transaction.state(dataset)
    row = entry_row("protect", dataset, "dp_protect", "{}", guarantee=f"budget {budget.text}", status=PROTECTED)
    after = changed(state, spent=state.spent.under(budget))
    return transaction.append({**row, "budget": budget.to_json(), "lineage": json_text(lineage)}, after)


def append_accounts(transaction: Transaction, dataset: str, budget: Budget, entry: Entry, begin: Blocks | None) -> None:
    """Append the rows that begin the accounts of blocks under the budget of an entry."""
    if begin is None:
        return
    row = entry_row(CARRY, dataset, "dp_protect", "{}", guarantee="", status=CARRIED)
    for name, spent in begin.spent.items():
        facts = begin.facts if name == FRESH else "{}"
        stands = State(budget, spent.under(budget, of_block=True), entry.sequence)
        transaction.append({**row, "block": name, "arguments": facts}, stands)


def append_merged(transaction: Transaction, dataset: str, ended: str, *, keeps_dates: bool = False) -> Ended:
    """Append the row that charges a new dataset with the spending of a dataset that it replaces; return the old one.

    `keeps_dates` says that its rows keep their dates in the new dataset.
    """
    predecessor, state = ended_of(transaction, ended, keeps_dates=keeps_dates), transaction.state(dataset)
    epsilon, delta, rho = predecessor.total.losses
    row = entry_row("release", dataset, "dp_protect", "{}", guarantee=f"all releases on {ended}", status=MERGED)
    row["epsilon"] = None if epsilon is None else str(epsilon)
    row["delta"], row["rho"] = str(delta), None if rho is None else str(rho)
    after = state.spent.with_all_of(epsilon, delta, rho)
    facts = {"merged": ended, **({"keeps_dates": True} if keeps_dates else {})}
    transaction.append({**row, "lineage": json_text(facts)}, changed(state, spent=after))
    return predecessor


def ended_of(transaction: Transaction, dataset: str, *, keeps_dates: bool) -> Ended:
    """Return the state of a dataset, and all accounts of its blocks."""
    state = transaction.state(dataset)
    return Ended(state.budget, state.spent, transaction.blocks(dataset), keeps_dates)


def _append_blocks(
    transaction: Transaction, row: Draft, release: int, state: State, cost: Cost, during: During
) -> None:
    """Append the rows that charge the blocks of a release with an entry."""
    names = charged_names(state.budget, during)
    blocks, charged = transaction.blocks(row["dataset"], names) if names else Blocks(), dict[str, Spent]()
    for name in names:
        charged[name] = (charged.get(name) or blocks.of(state.budget, name)).plus(cost)
        transaction.append(of_account({**row, "principal": None}, name, release), changed(state, spent=charged[name]))


def _charged(cost: Cost) -> Amounts:
    """Return the columns of a charge."""
    return {
        "epsilon": None if cost.epsilon is None else str(units_up(cost.epsilon)),
        "delta": str(units_up(cost.delta)),
        "rho": None if cost.rho is None else str(units_up(cost.rho)),
    }


def guarantee_text(
    cost: Cost,
    neighbours: str,
    privacy_unit: str | None,
    max_rows_per_unit: int | None,
    row: str,
    lineage: Mapping[str, object] | None = None,
    *,
    within: str = "",
) -> str:
    """Return a release's guarantee in words; arguments as in `Charge`, and the period `within` which rows count.

    It ends with ``', as claimed'`` if only the caller says that the source contains rows of the dataset.
    """
    subject = row
    if privacy_unit is not None:
        subject = f"all rows of one {privacy_unit}{within}"
        if max_rows_per_unit is not None:
            subject += f" (at most {max_rows_per_unit} {'row' if max_rows_per_unit == 1 else 'rows'})"
    claimed = ", as claimed" if lineage is not None and lineage.get("claimed") else ""
    return f"{loss_text(cost)}, {neighbours} of {subject}{claimed}"


def entry_row(
    kind: str, dataset: str, function: str, arguments: str, *, guarantee: str, status: str = NO_RESULT
) -> Draft:
    """Return the columns of an entry without a charge; a release overwrites its charge columns."""
    return {
        "kind": kind,
        "dataset": dataset,
        "name": None,
        "function": function,
        "arguments": arguments,
        "fingerprint": fingerprint_of(dataset, function, arguments),
        "event": None,
        "guarantee": guarantee,
        "epsilon": "0",
        "delta": "0",
        "rho": "0",
        "budget": None,
        "result": None,
        "status": status,
        "lineage": None,
        "hold": None,
        "block": None,
        "principal": None,
    }


def json_text(value: Mapping[str, object] | None) -> str | None:
    """Return a mapping as canonical JSON; None for None."""
    return None if value is None else canonical(as_recorded(value))
