"""Opening a ledger, and what is read from it: each time as one transaction of its store."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Self, TypeVar

from dpsql.errors import LedgerError
from dpsql.ledger.budget import Budget
from dpsql.ledger.charge import folded_dataset, is_name
from dpsql.ledger.location import LedgerPlace
from dpsql.ledger.policy import PolicyRow, policy_rows
from dpsql.ledger.rows import BudgetRow, LedgerRow, RecordedDeclarations, State, StoredRelease
from dpsql.ledger.spending import Totals, totals_between
from dpsql.ledger.transaction import Transaction
from dpsql.progress import held_back

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from dpsql.ledger.blocks import Blocks
    from dpsql.ledger.chain import Head, Row
    from dpsql.ledger.charge import Receipt
    from dpsql.ledger.store import Store

T = TypeVar("T")


class _Reading(threading.local):
    """The transaction that this thread reads in, while it wants to see one state."""

    transaction: Transaction | None = None


class OpenLedger:
    """A ledger at one location, opened on first use; `dpsql.ledger.ledger.Ledger` adds what is written to it."""

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
        """Open a ledger, and create it where there is none.

        Parameters
        ----------
        location : path or str or None
            A SQLite file, a ``postgresql://`` URL, or None or ``':memory:'`` for one that ends with the process.
        read_only : bool
            Open it for reading only; it must exist, and one of an earlier version is not upgraded. A file without
            write permission is always opened this way.
        accept : bool
            Open a ledger, or make one, whatever was noted beside the file; for `Ledger.accept`.

        Raises
        ------
        LedgerError
            The location cannot be reached or written, or does not hold a ledger of a supported version.
        """
        location = LedgerPlace.of(location)
        ledger = cls(location, read_only=read_only, accept=accept)
        if ledger._location is not None:  # in memory nothing can fail, and SQLAlchemy's import can wait
            ledger._opened()
        return ledger

    @property
    def location(self) -> str:
        """Where the ledger lives, without a password; ``'in memory'`` for none."""
        return "in memory" if self._location is None else self._opened().description

    @property
    def in_memory(self) -> bool:
        """Whether the ledger ends with the process."""
        return self._location is None

    @property
    def untouched(self) -> bool:
        """Whether the ledger is in memory and nothing was ever read from it or written to it."""
        return self._location is None and self._store is None

    def close(self) -> None:
        """Close every connection. What was charged stays charged, and a SQLite file then holds all of it."""
        self._closed = True
        if self._store is not None:
            self._store.close()

    def checkpoint(self) -> None:
        """Write everything to the SQLite file, so that a copy of it is complete; the ledger stays open."""
        if self._store is not None:
            self._store.checkpoint()

    @property
    def id(self) -> str:
        """What the chain starts from: 32 random hexadecimal digits, made with the ledger."""
        return self._opened().ledger_id

    @contextmanager
    def watch(self, watcher: Callable[[Receipt], None]) -> Iterator[None]:
        """Call `watcher` with the receipt of every call that this object charges, reserves, ends or replays.

        It is called once the entry is on disk, on the thread of the call, in the body of a with statement.
        """
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    def declarations(self) -> RecordedDeclarations:
        """Return every declaration that stands; one look-up as long as there is no new one."""
        known = self._declarations
        found = self._declarations = self._read(lambda transaction: transaction.declarations(known))
        return found

    def policy(self, dataset: str) -> Budget | None:
        """Return the budget and policy that stand for a dataset; None while it is unlimited."""
        key = folded_dataset(dataset)
        return self._read(lambda transaction: transaction.state(key).budget)

    def releases(
        self, functions: Sequence[str], dataset: str | None = None, key: str | int | None = None
    ) -> list[StoredRelease]:
        """Return what some functions released, with its arguments, oldest first.

        Parameters
        ----------
        functions : sequence of str
        dataset : str, optional
            Only of this dataset.
        key : str or int, optional
            Only those of this name, or the one with this number.
        """
        of = None if dataset is None else folded_dataset(dataset)
        storable = 0 < key < 1 << 63 if isinstance(key, int) else key is None or is_name(key)
        if not storable:  # so nothing is stored under it
            return []
        return self._read(lambda transaction: transaction.releases_of(functions, of, key))

    def event(self, sequence: int) -> dict[str, object]:
        """Return the event of an entry: what was charged."""
        return self._read(lambda transaction: transaction.event_of(sequence))

    def states(self, datasets: Iterable[str]) -> dict[str, State]:
        """Return the budget of each dataset, and what is spent of it."""
        keys = [folded_dataset(dataset) for dataset in datasets]
        return self._read(lambda transaction: {key: transaction.state(key) for key in keys})

    def blocks(self, dataset: str) -> Blocks | None:
        """Return what is spent of the blocks of a dataset; None where it has no periods."""
        key = folded_dataset(dataset)

        def work(transaction: Transaction) -> Blocks | None:
            return transaction.blocks(key) if transaction.state(key).is_dated else None

        return self._read(work)

    def head(self) -> tuple[int, str]:
        """Return the number and the hash of the last entry: what `verify` can be given later."""

        def work(transaction: Transaction) -> tuple[int, str]:
            transaction.state("")  # looks at the last row
            return transaction.head

        return self._read(work)

    def has_entry(self, sequence: int, digits: str) -> bool:
        """Whether the chain holds an entry of a number, whose hash begins with some digits."""

        def work(transaction: Transaction) -> bool:
            row = transaction.row_at(sequence)
            return row is not None and row["hash"].startswith(digits)

        return self._read(work)

    def totals_since(self, sequence: int) -> list[Totals]:
        """Return the totals of each account that was charged or stated after an entry; of all accounts after 0."""
        return self._read(lambda transaction: totals_between(transaction, sequence))

    @property
    def place(self) -> tuple[str, str | None]:
        """Where the ledger is, without a password, and the number of its file on its disk; None without a file."""
        store = self._opened()
        return store.description, store.file_number

    def last_recorded(self) -> datetime | None:
        """Return the time of the last entry; None of an empty ledger."""
        sequence, _ = self.head()
        row = self._read(lambda transaction: transaction.row_at(sequence)) if sequence else None
        return None if row is None else datetime.fromisoformat(row["recorded_at"].replace("Z", "+00:00"))

    def budgets(self) -> list[BudgetRow]:
        """Return one row per dataset, for `dp_budget`."""
        return self._read(lambda transaction: transaction.budget_rows())

    def policies(self, dataset: str | None = None) -> list[PolicyRow]:
        """Return what owners stated and what stands of it, of one dataset or of all, for `dp_policy`."""
        key = None if dataset is None else folded_dataset(dataset)

        def work(transaction: Transaction) -> list[PolicyRow]:
            latest = transaction.declarations(None).latest
            budgets = {name: transaction.state(name).budget for name in latest}
            return list(policy_rows({name: one for name, one in budgets.items() if one is not None}, latest))

        return [row for row in self._read(work) if key in (None, row.dataset)]

    def entries(self, dataset: str | None = None) -> list[LedgerRow]:
        """Return the entries in the order of the chain, of one dataset or of all, for `dp_ledger`."""
        key = None if dataset is None else folded_dataset(dataset)
        return self._read(lambda transaction: transaction.ledger_rows(key))

    def of_one_state(self, work: Callable[[], T]) -> T:
        """Run `work`, which only reads; what this thread reads of the ledger in it is one state, in one transaction."""

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
        store.note(self._seen)  # before anybody is told of the entry
        for recorder in self.recorders if appended else ():
            recorder(appended)
        return result

    def _inside(
        self, work: Callable[[Transaction], T], appended: list[Row] | None = None
    ) -> Callable[[Connection], tuple[T, tuple[int, str]]]:
        """Return `work` on a connection; it returns the chain's last row, too, and notes which rows it `appended`."""
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
        from dpsql.ledger.store import Store  # which loads SQLAlchemy

        store = Store(self._location, read_only=self._read_only, accept=self._accept)
        try:
            if not store.is_read_only:
                noted = store.read_note()  # before the ledger is read, which may only be ahead of it

                def look(connection: Connection) -> tuple[tuple[int, str], bool]:
                    transaction = Transaction(store, connection, (0, ""))
                    return transaction.end(), transaction.holds(noted)

                self._refuse_lost(store, *store.read(look), noted)
        except BaseException:
            store.close()
            raise
        return store

    def _refuse_lost(self, store: Store, head: tuple[int, str], stands: bool, noted: Head | None) -> None:
        """Raise where a ledger has lost entries that somebody was told of; else note its last one.

        Parameters
        ----------
        store : Store
        head : tuple of int and str
            The last entry.
        stands : bool
            Whether the noted entry is in the ledger.
        noted : Head or None
            What was noted before the ledger was read.

        Raises
        ------
        LedgerError
            L050, L056.
        """
        if self._accept:
            return  # `Ledger.accept` says what is lost, and records it
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
