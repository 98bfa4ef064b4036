"""Read and append the ledger's rows within one transaction; every row used is verified when read.

The module also defines an entry's contents: a charge and its row, names that every database can store, and
fingerprints of calls. A receipt gives a call's ledger entry, its charge, and whether it is a replay.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as changed
from fractions import Fraction
from functools import lru_cache
from itertools import count, islice, takewhile
from typing import TYPE_CHECKING, Any

from dpsql.contract.covers import covered
from dpsql.contract.events import UNITS_PER_ONE, Cost, Event, cost_of, loss_text, units_up
from dpsql.contract.measurement import Permit
from dpsql.contract.periods import During, spans
from dpsql.errors import LedgerError, ParameterError
from dpsql.ledger import clock
from dpsql.ledger.accounts import charge_account, of_account, refuse_cap
from dpsql.ledger.blocks import FRESH, Blocks, Ended, begun_of, charged_names, of_person, refuse_blocks
from dpsql.ledger.budget import Budget, Spent, refuse_contradiction, refuse_overspend
from dpsql.ledger.chain import (
    CARRY,
    CHAIN,
    CHARGE,
    DECLARED,
    GRANTED,
    MERGED,
    Amounts,
    Draft,
    Row,
    amount_text,
    block_key,
    canonical,
    completes,
    damaged,
    dataset_key,
    genesis,
    hash_of_row,
    name_key,
    row_hash,
    row_of,
    verified_rows,
)
from dpsql.ledger.composition import Composition
from dpsql.ledger.grants import Grants, StandingGrants, grant_row
from dpsql.ledger.policy import in_force
from dpsql.ledger.rows import (
    BudgetRow,
    Entry,
    LedgerRow,
    Older,
    RecordedDeclarations,
    State,
    StoredRelease,
    budget_rows_of,
    declaration_of,
    ledger_row,
    release_of,
)
from dpsql.ledger.verification import VerifyReport, verify

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

    from dpsql.ledger.chain import Head
    from dpsql.ledger.store import Store


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
DECLARATION = "declared"
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
        row = entry_row("release", key, self.function, arguments, guarantee=guarantee + f"; {remark}" * bool(remark))
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
    for key in keys[1:]:
        append(
            key,
            {
                **row,
                "dataset": key,
                "name": None,
                "result": None,
                "lineage": json_text({"of": entry.sequence}),
                "fingerprint": fingerprint_of(key, row["function"], row["arguments"]),
            },
        )
    return entry


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


_most_remembered = 256


class Transaction:
    """Reads from a ledger, and appends to it, within one transaction of its database.

    Parameters
    ----------
    store : Store
        The ledger's store.
    connection : Connection
        A connection within a transaction; for `append`, the only writer.
    seen : tuple of int and str
        Sequence and hash of the chain's last row at this process's last read; (0, '') at first. The process must note
        them before the transaction begins.
    """

    def __init__(self, store: Store, connection: Connection, seen: tuple[int, str]) -> None:
        from dpsql.ledger import schema as ledger_schema

        self._store = store
        self.composed = store.composed
        self._connection = connection
        self._schema = ledger_schema
        self.statements = store.statements
        self._genesis = genesis(store.ledger_id)
        self._columns = ledger_schema.COLUMNS
        self._seen = seen
        self._tail: tuple[int, str] | None = None
        self.appended: list[Row] = []

    @property
    def head(self) -> tuple[int, str]:
        """Sequence and hash of the chain's last row, as this transaction knows them."""
        return self._tail or self._seen

    def end(self) -> tuple[int, str]:
        """Return sequence and hash of the chain's last row.

        Raises
        ------
        LedgerError
            L030: the first row is not chained to this ledger's id, or the last row is damaged.
        """
        self.row_at(1)
        self.state("")  # reads the last row
        return self.head

    def holds(self, noted: Head | None) -> bool:
        """Whether the chain contains the entry noted next to the ledger; true without a note."""
        if noted is None or noted.sequence == 0:
            return True
        return noted.ledger == self._store.ledger_id and self.stands((noted.sequence, noted.hash))

    def state(self, dataset: str) -> State:
        """Return the state of a dataset, after verifying every row that the state depends on."""
        sequence, hash_seen = self._seen
        record = self._connection.execute(
            self.statements.state, {"dataset": dataset, "key": dataset_key(dataset), "seen": sequence}
        ).one()
        chain, last, tail, at_seen = tuple(record[:2]), tuple(record[2:4]), tuple(record[4:6]), record[6]
        width = len(self._columns)
        row, before = record[7 : 7 + width], record[7 + width]
        policy, before_policy = record[8 + width : -1], record[-1]
        if sequence and (tail[0] is None or at_seen != hash_seen):
            raise LedgerError(
                "L031",
                f"ledger {self._store.description!r} has lost entries that this process has read: it was replaced. "
                "Nothing was released. Put the right file back, then connect again.",
            )
        if self.statements.has_lasts:
            if chain != tail:
                raise self._damaged(_largest(chain[0], tail[0]))
            if last != (row[0], row[self._columns.index("hash")]):
                raise self._damaged(_largest(last[0], row[0]))
        self._tail = (0, self._genesis) if tail[0] is None else tail
        if row[0] is None:
            return State()
        return self._state(self._verify(row, before), policy, before_policy)

    def _state(self, row: Row, policy: Sequence[object], before_policy: str | None) -> State:
        budget, spent = None, self._spent(row)
        if row["budget_sequence"] is not None:
            if policy[0] is None:
                raise self._damaged(row["budget_sequence"])
            declaration = self._verify(policy, before_policy)
            with self._decoding(declaration["sequence"]):
                budget = _budget(declaration["budget"])
        return State(budget, spent, row["budget_sequence"])

    def _spent(self, row: Row) -> Spent:
        with self._decoding(row["sequence"]):
            return Spent(
                _units(row["epsilon_spent"]),
                int(row["delta_spent"]),
                _units(row["rho_spent"]),
                row["releases"],
                None if row["composition"] is None else _composition(row["composition"]),
            )

    def blocks(self, dataset: str, names: Sequence[str] | None = None) -> Blocks:
        """Return the spending of some or all blocks of a dataset, after verifying every row with this spending."""
        statement, parameters = self.statements.blocks, dict[str, object](dataset=dataset)
        if names is not None:
            statement, parameters = self.statements.blocks_named, {"dataset": dataset, "blocks": [FRESH, *names]}
        index = {block_key(dataset, row[0]): row[1] for row in self._connection.execute(statement, parameters)}
        keys = [block_key(dataset, name) for name in (FRESH, *names)] if names is not None else list(index)
        spent, begun, noted = dict[str, Spent](), None, dict[str, int]()
        for key, hash_noted, *values, before in self._connection.execute(
            self.statements.last_of_blocks, {"keys": keys}
        ):
            row = self._verify(values, before)
            name = row["block"] or ""
            if key != block_key(dataset, name) or row["hash"] != hash_noted:
                raise self._damaged(row["sequence"])
            noted[key], spent[name] = row["sequence"], self._spent(row)
            if name == FRESH:
                with self._decoding(row["sequence"]):
                    begun = begun_of(row["arguments"])
        if noted != index:
            raise self._damaged(
                max((sequence for _, sequence in set(noted.items()) ^ set(index.items())), default=None)
            )
        return Blocks(spent, begun)

    def append(self, draft: Draft, after: State) -> Entry:
        """Append a row to the chain; the dataset's state becomes `after`, computed from the `state` read before."""
        if self._tail is None:
            self.state(draft["dataset"])
        sequence, previous = self.head[0] + 1, self.head[1]
        row: Row = {
            **draft,
            "sequence": sequence,
            "recorded_at": clock.time_text(clock.now()),
            "epsilon_spent": amount_text(after.spent.epsilon),
            "delta_spent": str(after.spent.delta),
            "rho_spent": amount_text(after.spent.rho),
            "releases": after.spent.releases,
            "budget_sequence": sequence if draft["kind"] == "protect" else after.policy,
            "composition": None if after.spent.composition is None else after.spent.composition.to_json(),
            "hash": "",
        }
        row["hash"] = row_hash(previous, row)
        self._connection.execute(self._schema.append, row)
        self._remember((previous, *(row[name] for name in self._columns)))  # type: ignore[literal-required]
        self._tail = (sequence, row["hash"])
        self.appended.append(row)
        return self._entry(row, row["result"], replayed=False)

    def stored_release(self, dataset: str, name: str | None, fingerprint: str, older: Older | None) -> Entry | None:
        """Return the result stored under a call's name, if any; refuse a name of another call."""
        row = None if name is None else self._row_of_name(dataset, name)
        if row is None:
            return None
        same = row["fingerprint"] == fingerprint
        if not same and (older is None or row["fingerprint"] not in older(row["lineage"] is None)):
            raise ParameterError(
                "P014",
                f"release '{name}' of dataset '{dataset}' holds the result of a call with other arguments, or of "
                "another source: `dpsql show` tells which. Give this call another name, or ask for the same.",
            )
        return self._entry(row, row["result"] or "", replayed=True)

    def standing(self, reservation: int | None, name: str | None) -> int | None:
        """Return a call's reservation; None if another driver of the same name has ended it."""
        ended = reservation is not None and name is not None and self.has_ended(reservation)
        return None if ended else reservation

    def open_reservation(self, draft: Draft, datasets: Sequence[str]) -> Entry | None:
        """Return the open reservation of this exact call, under its name."""
        if draft["name"] is None:
            return None
        of_name = {"dataset": draft["dataset"], "name": draft["name"]}
        for (reservation,) in self._connection.execute(self.statements.open_reservations, of_name).all():
            row = self.reserved(reservation, draft, datasets)
            if row is not None:
                return self._entry(row, None, replayed=False)
        return None

    def has_ended(self, reservation: int) -> bool:
        """Whether an entry ends a reservation."""
        return self._connection.execute(self.statements.end_of_reservation, {"hold": reservation}).first() is not None

    def reserved(self, reservation: int, draft: Draft, datasets: Sequence[str]) -> Row | None:
        """Return the entry of a reservation, if it and its entries for further datasets belong to this exact call."""
        entry = self.row_at(reservation)
        rows = (self.row_at(reservation + offset) for offset in count())
        present = takewhile(lambda row: row is not None, rows)
        names = (row["dataset"] for row in present if row and row["kind"] != CHARGE)  # without rows of accounts
        same = completes(draft, entry) and list(islice(names, len(datasets))) == list(datasets)
        return entry if same else None

    def lost_reservations(self) -> list[Row]:
        """Return the principals' open reservations, oldest first."""
        numbers = self._connection.execute(self.statements.lost_reservations).all()
        return [row for (number,) in numbers if (row := self.row_at(number)) is not None]

    def _entry(self, row: Row, result: str | None, *, replayed: bool) -> Entry:
        """Return an entry with a result in JSON."""
        with self._decoding(row["sequence"]):
            return Entry(
                row["sequence"],
                None if result is None else json.loads(result),
                replayed,
                row["guarantee"],
                row["hash"],
                row["recorded_at"],
                None if row["lineage"] is None else json.loads(row["lineage"]),
                row["arguments"],
            )

    def stands(self, head: tuple[int, str]) -> bool:
        """Whether the chain contains a row, by sequence and hash; true for no row."""
        row = self.row_at(head[0]) if head[0] else None
        return not head[0] or (row is not None and row["hash"] == head[1])

    def releases_of(self, functions: Sequence[str], dataset: str | None, key: str | int | None) -> list[StoredRelease]:
        """Return the releases of some functions, in chain order: of one dataset, by name or number, or all."""
        if isinstance(key, int):
            row = self.row_at(key)
            rows = [] if row is None else [row]
        elif key is not None:
            candidates = (
                self._row_of_name(name, key) for name in ([dataset] if dataset is not None else self._datasets())
            )
            rows = sorted((row for row in candidates if row is not None), key=lambda row: row["sequence"])
        else:
            rows = list(self.walk())
        return [
            self._release_of(row)
            for row in rows
            if row["result"] is not None and row["function"] in functions and dataset in (None, row["dataset"])
        ]

    def event_of(self, sequence: int) -> dict[str, object]:
        """Return the event of an entry."""
        row = self.row_at(sequence)
        with self._decoding(sequence):
            event: dict[str, object] = json.loads((row and row["event"]) or "")
        return event

    def budget_rows(self) -> list[BudgetRow]:
        """Return one row per dataset with a budget or a release, by name; with periods, one row per block."""
        rows, ended = [], self.declarations(None).aliases
        for dataset in self._datasets():
            state = self.state(dataset)
            if dataset not in ended and (state.budget or state.spent.releases):
                rows += budget_rows_of(dataset, state, self.blocks(dataset) if state.is_dated else None)
        return rows

    def ledger_rows(self, dataset: str | None) -> list[LedgerRow]:
        """Return the entries in chain order, of one dataset or of all."""
        rows = []
        for row in self.walk():
            if dataset in (None, row["dataset"]):
                with self._decoding(row["sequence"]):
                    rows.append(ledger_row(row))
        return rows

    def declarations(self, memory: RecordedDeclarations | None) -> RecordedDeclarations:
        """Return every current declaration; `known` again, if no row was declared after it."""
        last = self._last(DECLARED) or (0, "", 0)
        if memory is not None and self.statements.has_lasts and (memory.counter, memory.hash) == last[:2]:
            return memory
        latest: dict[str, dict[str, Any]] = {}
        rows, end = self._every(self.statements.declarations, last)
        for row in rows:
            with self._decoding(row["sequence"]):
                declaration = declaration_of(row)
            latest.setdefault(row["dataset"], {})[row["kind"]] = declaration
        return RecordedDeclarations(end[0], end[1], latest)

    def grants(self, memory: Grants | None) -> Grants:
        """Return the current grants; `known` again, if no row granted or revoked anything after it."""
        last = self._last(GRANTED) or (0, "", 0)
        if memory is not None and (memory.counter, memory.hash) == last[:2]:
            return memory
        rows, end = self._every(self.statements.grants, last)
        standing = StandingGrants()
        for row in rows:
            with self._decoding(row["sequence"]):
                standing.take(grant_row(row))
        return standing.grants_at(end)

    def releases_by(self, principal: str) -> list[StoredRelease]:
        """Return a principal's releases, oldest first."""
        return [self._release_of(row) for row in self.verified(self.statements.of_principal, principal=principal)]

    def charges_since(self, dataset: str, block: str, start: str | int, number: int) -> list[Row]:
        """Return the rows of an account from the first row recorded at `start` or later, or with a number.

        `number` is the account's number of rows; each row states its own number, so no row can be hidden.
        """
        statement = self.statements.of_account_from if isinstance(start, int) else self.statements.of_account
        rows = self.verified(statement, dataset=dataset, block=block, start=start)
        numbers = [row["releases"] for row in rows]
        if numbers != list(range(number - len(rows) + 1, number + 1)) * bool(rows):
            raise self._damaged(rows[-1]["sequence"])
        if not rows or isinstance(start, int):
            return rows
        if rows[0]["releases"] > 1 and rows[0]["recorded_at"] >= start:
            raise self._damaged(rows[0]["sequence"])
        return [row for row in rows if row is not rows[0] or row["recorded_at"] >= start]

    def verified(self, statement: Select[Any], **parameters: object) -> list[Row]:
        """Return the rows that a statement finds, each verified."""
        return [self._verify(row[:-1], row[-1]) for row in self._connection.execute(statement, parameters).all()]

    def _every(self, statement: Select[Any], last: tuple[int, str, int]) -> tuple[list[Row], tuple[int, str]]:
        """Return all rows of a kind, with number and hash of the last row; the rows must be as many as noted."""
        rows = self.verified(statement)
        end = (rows[-1]["sequence"], rows[-1]["hash"]) if rows else (0, "")
        if self.statements.has_lasts and (*end, len(rows)) != last:
            raise self._damaged(_largest(last[0], end[0]))
        return rows, end

    def verify(self, head: str | None, *, noted: bool = True) -> VerifyReport:
        """Verify the whole chain, and compare the data stored next to it."""
        last = self._store.read_note() if noted else None  # first, because the ledger may only be ahead of it
        lasts = self._connection.execute(self.statements.lasts) if self.statements.has_lasts else None
        ends = None if lasts is None else {row[0]: tuple(row[1:]) for row in lasts}
        with closing(self._rows()) as rows:
            report = verify(self._store.ledger_id, rows, head, ends)
        if report.ok and self._connection.dialect.name == "sqlite":
            answer = self._connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
            if answer != "ok":
                lost = "the entries are intact, but the file's indexes are damaged"
                return VerifyReport(False, report.entries, report.head, None, lost)
        if report.ok and not self.holds(last):
            return VerifyReport(False, report.entries, report.head, None, "the entry noted as its last one is lost")
        return report

    def carry(self, ledger_id: str, rows: Iterator[Row]) -> bool:
        """Append rows of another ledger; False if the rows here are not the first of them."""
        mine = [row["hash"] for row in self.walk()]
        if ledger_id != self._store.ledger_id:
            if mine:
                return False
            self._connection.execute(self._schema.set_ledger_id, {"ledger_id": ledger_id})
            self._store.ledger_id = ledger_id
        if [row["hash"] for row in islice(rows, len(mine))] != mine:
            return False
        while batch := list(islice(rows, 500)):
            self._connection.execute(self._schema.append, batch)
            self._tail = (batch[-1]["sequence"], batch[-1]["hash"])
        return True

    def _rows(self) -> Generator[Row]:
        return self._schema.stream(self._connection, self._store.version)

    def walk(self) -> Iterator[Row]:
        """Yield every row, verified, and check that the last row is the end of the chain."""
        last = self._last(CHAIN)
        end = (0, self._genesis)
        with closing(self._rows()) as rows:
            for row in verified_rows(self._store.description, self._store.ledger_id, rows):
                end = (row["sequence"], row["hash"])
                yield row
        if self.statements.has_lasts and (last or (0, self._genesis))[:2] != end:
            raise self._damaged(_largest(last and last[0], end[0]))

    def _last(self, key: str) -> tuple[int, str, int] | None:
        """Return sequence, hash and number of the last row under a key."""
        if not self.statements.has_lasts:
            return None
        row = self._connection.execute(self.statements.last, {"key": key}).first()
        return None if row is None else (row[1], row[2], row[3])

    def row_at(self, sequence: int) -> Row | None:
        """Return the row with a sequence number; None if the chain is shorter."""
        record = self._connection.execute(self.statements.entry, {"sequence": sequence}).first()
        if record is not None:
            return self._verify(record[:-1], record[-1])
        last = self._last(CHAIN)
        if last is not None and not 1 <= last[0] < sequence:
            raise self._damaged(sequence)
        return None

    def _row_of_name(self, dataset: str, name: str) -> Row | None:
        """Return the row that holds the result of a name."""
        record = self._connection.execute(
            self.statements.release, {"dataset": dataset, "name": name, "key": name_key(dataset, name)}
        ).one()
        last, values = tuple(record[:2]), record[2:-1]
        if self.statements.has_lasts and last != (values[0], values[self._columns.index("hash")]):
            raise self._damaged(_largest(last[0], values[0]))
        return None if values[0] is None else self._verify(values, record[-1])

    def _datasets(self) -> list[str]:
        """Return the names of all datasets; an index and `dpsql_ledger_last` must agree on them."""
        last = {dataset_key(str(row[0])): row[1] for row in self._connection.execute(self.statements.datasets)}
        if self.statements.has_lasts:
            noted = {row[0]: row[1] for row in self._connection.execute(self.statements.last_of_datasets)}
            if noted != last:
                raise self._damaged(
                    max((sequence for _, sequence in set(noted.items()) ^ set(last.items())), default=None)
                )
        return sorted(key.removeprefix(dataset_key("")) for key in last)

    def _release_of(self, row: Row) -> StoredRelease:
        with self._decoding(row["sequence"]):
            return release_of(row)

    def _verify(self, values: Sequence[object], before: str | None) -> Row:
        """Return a row by its columns, after checking its hash against the previous row's hash."""
        sequence = values[0]
        previous = self._genesis if sequence == 1 else before
        content = (previous, *values)
        memory = self._store.verified.get(sequence)
        if memory == content:  # this process has verified or written this row before
            return row_of(self._columns, memory[1:])
        row = row_of(self._columns, values)
        if previous is None or hash_of_row(previous, row) != row["hash"]:
            raise self._damaged(sequence)
        self._remember(content)
        return row

    def _remember(self, content: tuple[object, ...]) -> None:
        verified = self._store.verified
        if len(verified) >= _most_remembered:
            verified.clear()
        verified[content[1]] = content

    def _damaged(self, sequence: object) -> LedgerError:
        return damaged(self._store.description, sequence)

    @contextmanager
    def _decoding(self, sequence: int) -> Iterator[None]:
        """Turn any failure to parse a row's text into the error that names the row."""
        try:
            yield
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError):
            failure = self._damaged(sequence)
        else:
            return
        raise failure


_budget = lru_cache(maxsize=256)(Budget.from_json)
_composition = lru_cache(maxsize=256)(Composition.from_json)


def _units(text: str | None) -> int | None:
    return None if text is None else int(text)


def _largest(*sequences: object) -> int | None:
    return max((sequence for sequence in sequences if isinstance(sequence, int)), default=None)
