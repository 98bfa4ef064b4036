"""Open a ledger and read it, and write the owner's grants for the gateway.

Each read is one transaction of the ledger's store. A call that may be ended from outside before its release is charged
first, by a reservation. A reservation ends by a release, by a failure, or because its process is lost. The row that
ends a reservation names it in the column `hold` and charges nothing; at most one row ends it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Self, TypeVar

from dpsql.contract.events import UNITS_PER_ONE
from dpsql.contract.grant_fields import USUAL_DAYS
from dpsql.contract.parameters import show
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, LedgerError, ParameterError
from dpsql.ledger import clock
from dpsql.ledger.accounts import counted
from dpsql.ledger.budget import Budget
from dpsql.ledger.chain import GRANT, REVOKE, TOKEN, Draft, canonical
from dpsql.ledger.charge import NOTHING_RELEASED, entry_row, folded_dataset, is_name
from dpsql.ledger.grants import OVERLAP, Grant, Grants, Issued, new_token, principal_dataset, principal_named
from dpsql.ledger.location import LedgerPlace
from dpsql.ledger.policy import PolicyRow, policy_rows
from dpsql.ledger.rows import BudgetRow, Entry, LedgerRow, RecordedDeclarations, State, StoredRelease, ledger_row
from dpsql.ledger.spending import Totals, totals_between
from dpsql.ledger.transaction import Transaction
from dpsql.progress import held_back

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from dpsql.ledger.blocks import Blocks
    from dpsql.ledger.chain import Head, Row
    from dpsql.ledger.charge import Receipt
    from dpsql.ledger.store import Store
    from dpsql.ledger.transaction import Transaction


def append_end(transaction: Transaction, row: Draft, keys: Sequence[str], reservation: int, outcome: str) -> Entry:
    """Append the row that ends a reservation, which has charged every budget of the call.

    Raises
    ------
    InternalError
        I035: the entry reserves another call, or has ended.
    """
    if transaction.reserved(reservation, row, keys) is None:
        raise InternalError("I035", f"entry {reservation} does not reserve this call. Nothing was released. Report it.")
    if transaction.has_ended(reservation):
        raise InternalError(
            "I035", f"the reservation in entry {reservation} has ended. Nothing was released. Report it."
        )
    return _append_end(transaction, row, reservation, outcome)


def end_lost(transaction: Transaction) -> list[int]:
    """End all open reservations of principals; return their entries.

    Their charges stay, and a repeated question is charged again.
    """
    lost = transaction.lost_reservations()
    for row in lost:
        _append_end(transaction, row, row["sequence"], NOTHING_RELEASED)
    return [row["sequence"] for row in lost]


def free(row: Draft) -> Draft:
    """Return an uncharged row: its call was charged before."""
    return {**row, "epsilon": "0", "delta": "0", "rho": "0"}


def _append_end(transaction: Transaction, row: Draft, reservation: int, outcome: str) -> Entry:
    end: Draft = {**free(row), "status": f"{outcome}, charged in entry {reservation}", "hold": reservation}
    return transaction.append(end, transaction.state(end["dataset"]))


T = TypeVar("T")


class _Reading(threading.local):
    """The thread's transaction while it reads one state."""

    transaction: Transaction | None = None


class OpenLedger:
    """A ledger at one location, opened on first use; `dpsql.ledger.ledger.Ledger` adds the writing methods."""

    def __init__(
        self, location: str | os.PathLike[str] | None, *, read_only: bool = False, accept: bool = False
    ) -> None:
        self._location = LedgerPlace.of(location)
        self._read_only = read_only
        self._accept = accept
        self._store: Store | None = None
        self._closed = False
        self._seen = (0, "")  # the chain's last row at the latest read
        self._declarations: RecordedDeclarations | None = None
        self._opening = threading.Lock()
        self._watchers: list[Callable[[Receipt], None]] = []
        self.recorders: list[Callable[[Sequence[Row]], None]] = []  # called with the entries of each commit
        self._reading = _Reading()

    @classmethod
    def open(
        cls, location: str | os.PathLike[str] | None = None, *, read_only: bool = False, accept: bool = False
    ) -> Self:
        """Open a ledger, or create it.

        Parameters
        ----------
        location : path or str or None
            A SQLite file, a ``postgresql://`` URL, or None or ``':memory:'`` for a ledger that ends with the process.
        read_only : bool
            Open the ledger for reading only; it must exist, and an earlier version is not upgraded. A file without
            write permission always opens this way.
        accept : bool
            Open or create a ledger, despite the note next to the file; for `Ledger.accept`.

        Raises
        ------
        LedgerError
            The location is not reachable or writable, or contains no ledger of a supported version.
        """
        location = LedgerPlace.of(location)
        ledger = cls(location, read_only=read_only, accept=accept)
        if ledger._location is not None:  # memory cannot fail, and SQLAlchemy's import can wait
            ledger._opened()
        return ledger

    @property
    def location(self) -> str:
        """The ledger's location, without a password; ``'in memory'`` for none."""
        return "in memory" if self._location is None else self._opened().description

    @property
    def in_memory(self) -> bool:
        """Whether the ledger ends with the process."""
        return self._location is None

    @property
    def untouched(self) -> bool:
        """Whether the ledger is in memory and was never read or written."""
        return self._location is None and self._store is None

    def close(self) -> None:
        """Close every connection. Charges stay, and a SQLite file then contains all of them."""
        self._closed = True
        if self._store is not None:
            self._store.close()

    def checkpoint(self) -> None:
        """Write everything to the SQLite file, so that its copies are complete; the ledger stays open."""
        if self._store is not None:
            self._store.checkpoint()

    @property
    def id(self) -> str:
        """The start of the chain: 32 random hexadecimal digits, made with the ledger."""
        return self._opened().ledger_id

    @contextmanager
    def watch(self, watcher: Callable[[Receipt], None]) -> Iterator[None]:
        """Call `watcher` with the receipt of every call that this object charges, reserves, ends or replays.

        The call comes after the entry is on disk, on the thread of the call, in the body of a with statement.
        """
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    def declarations(self) -> RecordedDeclarations:
        """Return every declaration in force; one look-up as long as there is no new one."""
        memory = self._declarations
        declarations = self._declarations = self._read(lambda transaction: transaction.declarations(memory))
        return declarations

    def policy(self, dataset: str) -> Budget | None:
        """Return the budget and policy in force for a dataset; None while it is unlimited."""
        key = folded_dataset(dataset)
        return self._read(lambda transaction: transaction.state(key).budget)

    def releases(
        self, functions: Sequence[str], dataset: str | None = None, key: str | int | None = None
    ) -> list[StoredRelease]:
        """Return the releases of some functions, with their arguments, oldest first.

        Parameters
        ----------
        functions : sequence of str
        dataset : str, optional
            Only of this dataset.
        key : str or int, optional
            Only releases of this name, or the release with this number.
        """
        of = None if dataset is None else folded_dataset(dataset)
        storable = 0 < key < 1 << 63 if isinstance(key, int) else key is None or is_name(key)
        if not storable:  # so no release has this name
            return []
        return self._read(lambda transaction: transaction.releases_of(functions, of, key))

    def event(self, sequence: int) -> dict[str, object]:
        """Return the event of an entry, its charge."""
        return self._read(lambda transaction: transaction.event_of(sequence))

    def states(self, datasets: Iterable[str]) -> dict[str, State]:
        """Return the budget and the spending of each dataset."""
        keys = [folded_dataset(dataset) for dataset in datasets]
        return self._read(lambda transaction: {key: transaction.state(key) for key in keys})

    def blocks(self, dataset: str) -> Blocks | None:
        """Return the spending of a dataset's blocks; None without periods."""
        key = folded_dataset(dataset)

        def work(transaction: Transaction) -> Blocks | None:
            return transaction.blocks(key) if transaction.state(key).is_dated else None

        return self._read(work)

    def head(self) -> tuple[int, str]:
        """Return the number and the hash of the last entry, for a later `verify`."""

        def work(transaction: Transaction) -> tuple[int, str]:
            transaction.state("")  # reads the last row
            return transaction.head

        return self._read(work)

    def has_entry(self, sequence: int, digits: str) -> bool:
        """Whether the chain has an entry with this number, whose hash begins with `digits`."""

        def work(transaction: Transaction) -> bool:
            row = transaction.row_at(sequence)
            return row is not None and row["hash"].startswith(digits)

        return self._read(work)

    def totals_since(self, sequence: int) -> list[Totals]:
        """Return the totals of each account charged or declared after an entry; of all accounts after 0."""
        return self._read(lambda transaction: totals_between(transaction, sequence))

    @property
    def place(self) -> tuple[str, str | None]:
        """The ledger's location, without a password, and its file's number on its disk; None without a file."""
        store = self._opened()
        return store.description, store.file_number

    def last_recorded(self) -> datetime | None:
        """Return the time of the last entry; None for an empty ledger."""
        sequence, _ = self.head()
        row = self._read(lambda transaction: transaction.row_at(sequence)) if sequence else None
        return None if row is None else datetime.fromisoformat(row["recorded_at"].replace("Z", "+00:00"))

    def budgets(self) -> list[BudgetRow]:
        """Return one row per dataset, for `dp_budget`."""
        return self._read(lambda transaction: transaction.budget_rows())

    def policies(self, dataset: str | None = None) -> list[PolicyRow]:
        """Return the owners' declarations and those in force, of one dataset or of all, for `dp_policy`."""
        key = None if dataset is None else folded_dataset(dataset)

        def work(transaction: Transaction) -> list[PolicyRow]:
            latest = transaction.declarations(None).latest
            budgets = {name: transaction.state(name).budget for name in latest}
            return list(policy_rows({name: budget for name, budget in budgets.items() if budget is not None}, latest))

        return [row for row in self._read(work) if key in (None, row.dataset)]

    def entries(self, dataset: str | None = None) -> list[LedgerRow]:
        """Return the entries in chain order, of one dataset or of all, for `dp_ledger`."""
        key = None if dataset is None else folded_dataset(dataset)
        return self._read(lambda transaction: transaction.ledger_rows(key))

    def of_one_state(self, work: Callable[[], T]) -> T:
        """Run `work`, which only reads, in one transaction; this thread reads one state of the ledger in it."""

        def inside(transaction: Transaction) -> T:
            outer, self._reading.transaction = self._reading.transaction, transaction
            try:
                return work()
            finally:
                self._reading.transaction = outer

        return self._read(inside)

    def _read(self, work: Callable[[Transaction], T]) -> T:
        if self._reading.transaction is not None:
            return work(self._reading.transaction)
        result, self._seen = self._opened().read(self._inside(work))
        return result

    def _write(self, work: Callable[[Transaction], T]) -> T:
        store = self._opened()

        def stands(connection: Connection, result: tuple[T, tuple[int, str]]) -> bool:
            return Transaction(store, connection, (0, "")).stands(result[1])

        appended: list[Row] = []
        result, self._seen = store.write(self._inside(work, appended), stands)
        store.note(self._seen)  # before anybody learns of the entry
        for recorder in self.recorders if appended else ():
            recorder(appended)
        return result

    def _inside(
        self, work: Callable[[Transaction], T], appended: list[Row] | None = None
    ) -> Callable[[Connection], tuple[T, tuple[int, str]]]:
        """Return `work` as a function of a connection; it also returns the chain's last row, and fills `appended`."""
        store, seen = self._opened(), self._seen  # read first: the snapshot is at least as recent

        def inside(connection: Connection) -> tuple[T, tuple[int, str]]:
            transaction = Transaction(store, connection, seen)
            result = work(transaction)
            if appended is not None:
                appended[:] = transaction.appended
            return result, transaction.head

        return inside

    def _opened(self) -> Store:
        if self._closed:
            raise LedgerError("L012", "the ledger is closed. Connect again to open it.")
        if self._store is None:
            with self._opening, held_back() if self.in_memory else nullcontext():
                if self._store is None:
                    self._store = self._open_store()
        return self._store

    def _open_store(self) -> Store:
        from dpsql.ledger.store import Store  # loads SQLAlchemy

        store = Store(self._location, read_only=self._read_only, accept=self._accept)
        try:
            if not store.is_read_only:
                noted = store.read_note()  # before the ledger: it may only be ahead of the note

                def look(connection: Connection) -> tuple[tuple[int, str], bool]:
                    transaction = Transaction(store, connection, (0, ""))
                    return transaction.end(), transaction.holds(noted)

                self._refuse_lost(store, *store.read(look), noted)
        except BaseException:
            store.close()
            raise
        return store

    def _refuse_lost(self, store: Store, head: tuple[int, str], stands: bool, noted: Head | None) -> None:
        """Raise if a ledger has lost entries that somebody has seen; else note its last entry.

        Parameters
        ----------
        store : Store
        head : tuple of int and str
            The last entry.
        stands : bool
            Whether the noted entry is in the ledger.
        noted : Head or None
            The note before the ledger was read.

        Raises
        ------
        LedgerError
            L050, L056.
        """
        if self._accept:
            return  # `Ledger.accept` reports and records the loss
        if noted is not None and not stands:
            raise LedgerError(
                "L050",
                f"ledger {store.description!r} has lost entries: it ends with entry {head[0]}, and does not hold what "
                f"was its entry {noted.sequence}. Its log was lost, cut or damaged, or an earlier or another file was "
                "put in its place. Nothing was released. Put the right files back, or restore a backup with dpsql "
                "ledger restore; dpsql ledger accept goes on without the lost entries.",
            )
        if noted is None and store.keeps_note and store.has_log:
            raise LedgerError(
                "L056",
                f"ledger {store.description!r} was not closed, and the note of its last entry is gone, so nothing "
                "tells whether its log is whole. Nothing was released. Put the file that ends in .head back; dpsql "
                "ledger accept goes on with the entries that are there.",
            )
        store.note(head)
        store.keep_note()


_STATUS = {GRANT: "granted", REVOKE: "revoked", TOKEN: "issued"}


@dataclass(frozen=True)
class GrantedBudget:
    """A principal's cap, spending and remaining budget of one dataset; None without a limit or a number.

    Attributes
    ----------
    dataset : str
    per, period : str or None
        For a cap by calendar periods: their kind, and the present period; all numbers are of it.
    releases : int
    epsilon_cap, epsilon_spent, epsilon_remaining : float or None
    delta_cap, delta_spent : float or None
    rho_cap, rho_spent : float or None
    """

    dataset: str
    per: str | None
    period: str | None
    releases: int
    epsilon_cap: float | None
    epsilon_spent: float | None
    epsilon_remaining: float | None
    delta_cap: float | None
    delta_spent: float | None
    rho_cap: float | None
    rho_spent: float | None


@dataclass(frozen=True)
class GrantedRow:
    """One grant in `dpsql principals`; None for unset terms.

    Attributes
    ----------
    principal, dataset, role : str
    cap, spent : str or None
        In words; for a cap by periods, the spending in the present period.
    releases : int
    default_epsilon, default_delta : float or None
    functions, sources : str or None
        Names, separated by commas.
    expires : str or None
    share, total : bool
    """

    principal: str
    dataset: str
    role: str
    cap: str | None
    spent: str
    releases: int
    default_epsilon: float | None
    default_delta: float | None
    functions: str | None
    sources: str | None
    expires: str | None
    share: bool
    total: bool


class GrantingLedger(OpenLedger):
    """A ledger with readable and writable grants and tokens."""

    _grants: Grants | None = None

    def grants(self) -> Grants:
        """Return all rights to ask; one look-up as long as nobody grants or revokes."""
        memory = self._grants
        grants = self._grants = self._read(lambda transaction: transaction.grants(memory))
        return grants

    def end_lost_reservations(self) -> list[int]:
        """End the reservations of principals whose process was lost; return their entries.

        Call it only if no such process remains. Charges stay, and a repeated question is charged again: the way a call
        ended its process may have revealed something.
        """
        return self._write(end_lost) if self._read(lambda transaction: transaction.lost_reservations()) else []

    def open_reservations(self) -> list[LedgerRow]:
        """Return the open reservations of principals, oldest first.

        Their calls run now, or ran in a process that was lost.
        """
        return self._read(lambda transaction: [ledger_row(row) for row in transaction.lost_reservations()])

    def grant(self, grant: Grant) -> bool:
        """Let a principal ask about a dataset, replacing its earlier grant.

        Returns
        -------
        recorded : bool
            False if the same grant is in force.

        Raises
        ------
        ParameterError
            P013: its subject is another principal's.
        """
        dataset = folded_dataset(grant.dataset)
        grant = replace(grant, dataset=dataset)

        def work(transaction: Transaction) -> bool:
            standing = transaction.grants(None).grants
            if standing.get((grant.principal, dataset)) == grant:
                return False
            subjects = {entry.subject: entry.principal for entry in standing.values() if entry.subject is not None}
            if grant.subject is not None and subjects.get(grant.subject, grant.principal) != grant.principal:
                raise ParameterError(
                    "P013",
                    f"subject {show(grant.subject)} is that of principal '{subjects[grant.subject]}'. Revoke its "
                    "grants first.",
                )
            _append(transaction, GRANT, dataset, grant.principal, grant.facts)
            return True

        return self._write(work)

    def revoke(self, principal: str, dataset: str | None = None, token: str | None = None) -> None:
        """Take one grant, one token, or everything from a principal, from the next request on.

        Parameters
        ----------
        principal : str
        dataset : str, optional
        token : str, optional
            A token's id, its first characters after the prefix.

        Raises
        ------
        ParameterError
            P013: there is no such grant or token, or both were given.
        """
        principal_named(principal)
        if dataset is not None and token is not None:
            raise ParameterError("P013", "revoke takes a dataset or a token. Call it once for each.")
        of = None if dataset is None else folded_dataset(dataset)

        def work(transaction: Transaction) -> None:
            grants = transaction.grants(None)
            holdings = {
                *(("dataset", name) for owner, name in grants.grants if owner == principal),
                *(
                    ("token", credential.id)
                    for credential in grants.tokens.values()
                    if credential.principal == principal
                ),
            }
            what = ("dataset", of) if of is not None else ("token", token)
            if not holdings or (what[1] is not None and what not in holdings):
                raise ParameterError(
                    "P013", f"principal '{principal}' has no such grant or token. `dpsql principals` lists them."
                )
            facts = {} if what[1] is None else {what[0]: what[1]}
            _append(transaction, REVOKE, of or principal_dataset(principal), principal, facts)

        self._write(work)

    def issue_token(self, principal: str, *, days: object = USUAL_DAYS, now: bool = False) -> Issued:
        """Make a token for a principal with a grant; return its text this once and store it nowhere.

        Parameters
        ----------
        principal : str
        days : int
            Lifetime of the token.
        now : bool
            End earlier tokens at once; else they last 24 hours more.

        Raises
        ------
        ParameterError
            P013: this principal has no grant.
        """
        issued = new_token(principal_named(principal), days)
        keeps = clock.now() + (OVERLAP * (not now))
        facts = {
            "id": issued.token.id,
            "digest": issued.token.digest,
            "expires": issued.token.expires,
            "keeps": clock.time_text(keeps),
        }

        def work(transaction: Transaction) -> Issued:
            if not any(owner == principal for owner, _ in transaction.grants(None).grants):
                raise ParameterError(
                    "P013",
                    f"principal '{principal}' has no grant. Give one first: dpsql grant {principal} --dataset NAME.",
                )
            _append(transaction, TOKEN, principal_dataset(principal), principal, facts)
            return issued

        return self._write(work)

    def granted_budgets(self, principal: str) -> list[GrantedBudget]:
        """Return a principal's spending and remaining budget of each dataset in its grants."""

        def work(transaction: Transaction) -> list[GrantedBudget]:
            grants = transaction.grants(None).of(principal, clock.now())
            return [_granted_budget(transaction, grant) for grant in grants]

        return self._read(work)

    def granted_rows(self) -> list[GrantedRow]:
        """Return every grant, with its spending."""

        def work(transaction: Transaction) -> list[GrantedRow]:
            return [_granted_row(transaction, grant) for _, grant in sorted(transaction.grants(None).grants.items())]

        return self._read(work)

    def releases_by(self, principal: str) -> list[StoredRelease]:
        """Return a principal's releases, oldest first."""
        return self._read(lambda transaction: transaction.releases_by(principal))


def _append(transaction: Transaction, kind: str, dataset: str, principal: str, facts: Mapping[str, object]) -> None:
    row: Draft = entry_row(kind, dataset, f"dpsql {kind}", canonical(facts), guarantee="", status=_STATUS[kind])
    row["principal"] = principal
    transaction.append(row, transaction.state(dataset))


def _granted_budget(transaction: Transaction, grant: Grant) -> GrantedBudget:
    spent, period = counted(transaction, grant)
    limits = {} if grant.cap is None else grant.cap.limits
    charged = {name: spent.charged(name) for name in ("epsilon", "delta", "rho")}
    limit = limits.get("epsilon")
    remainder = (
        None if limit is None else 0.0 if charged["epsilon"] is None else _number(max(0, limit - charged["epsilon"]))
    )
    return GrantedBudget(
        grant.dataset,
        grant.per,
        period,
        spent.releases,
        *(_number(limits.get("epsilon")), _number(charged["epsilon"]), remainder),
        *(_number(limits.get("delta")), _number(charged["delta"])),
        *(_number(limits.get("rho")), _number(charged["rho"])),
    )


def _granted_row(transaction: Transaction, grant: Grant) -> GrantedRow:
    budget = _granted_budget(transaction, grant)
    names = ("rho",) if budget.rho_cap is not None else ("epsilon", "delta")
    spent = {name: getattr(budget, f"{name}_spent") for name in names}
    amounts = [f"{name} {'no finite bound' if value is None else f'{value:.12g}'}" for name, value in spent.items()]
    return GrantedRow(
        grant.principal,
        grant.dataset,
        grant.role,
        None if grant.cap is None else grant.cap.text + (f" per {grant.per}" if grant.per else ""),
        ", ".join(amount for amount in amounts if amount != "delta 0"),
        budget.releases,
        None if grant.default_epsilon is None else float(grant.default_epsilon),
        None if grant.default_delta is None else float(grant.default_delta),
        None if grant.functions is None else ", ".join(grant.functions),
        None if grant.sources is None else ", ".join(grant.sources),
        grant.expires,
        grant.share,
        grant.total,
    )


def _number(units: int | None) -> float | None:
    return None if units is None else units / UNITS_PER_ONE
