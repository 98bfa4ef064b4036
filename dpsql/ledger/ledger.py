"""The durable record of every release: budgets, charges with their results, and a hash chain over them.

A charge and its result are one row in one transaction, on disk before dpsql returns the result. A call that must draw
earlier makes a reservation: a row of its own charges the call, and the row of its result refers to that row. The ledger
is in SQLite by default, or in PostgreSQL by URL, with the same code and the same table. SQLAlchemy loads on first use.
If an owner accepts lost entries, their spending is charged again (see `dpsql.ledger.spending`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from dpsql.contract.events import Event
from dpsql.contract.measurement import Permit
from dpsql.errors import UNWRITABLE, BudgetError, InternalError, LedgerError
from dpsql.ledger.blocks import merged, restated
from dpsql.ledger.budget import ENDED, Budget
from dpsql.ledger.chain import RESERVED, Draft, canonical
from dpsql.ledger.charge import (
    DECLARED,
    NO_RESULT,
    NOTHING_RELEASED,
    RELEASED,
    Charge,
    append_accounts,
    append_budget,
    append_charges,
    append_merged,
    as_recorded,
    ended_of,
    entry_row,
    fingerprint_of,
    folded_dataset,
    json_text,
    receipt_of,
    refuse_name,
)
from dpsql.ledger.granting import GrantingLedger, append_end, free
from dpsql.ledger.rows import BudgetRow, Entry, Facts, LedgerRow, Older, RecordedDeclarations, merged_into
from dpsql.ledger.spending import Lost, Totals, append_lost, lost_charges
from dpsql.ledger.verification import VerifyReport

if TYPE_CHECKING:
    from dpsql.ledger.chain import Head
    from dpsql.ledger.transaction import Transaction


class AcceptingLedger(GrantingLedger):
    """A ledger that can charge the spending of its lost entries."""

    def lost(self, remembered: Sequence[Totals], ledger_id: str) -> list[Lost]:
        """Return this ledger's losses against a database's remembered totals of a ledger; charge nothing."""
        same = self.id == ledger_id
        groups = self._read(lambda transaction: lost_charges(transaction, remembered, same=same))
        return [charge for charges in groups for charge in charges]

    def charge_lost(
        self, remembered: Sequence[Totals], ledger_id: str, kind: str, facts: Mapping[str, object]
    ) -> list[Lost]:
        """Charge this ledger's losses, and declare them accepted, in one transaction.

        Parameters
        ----------
        remembered : sequence of Totals
            A database's memory.
        ledger_id : str
            The ledger that it remembers.
        kind : str
            ``'accept'``, or ``'adopt'`` if the database gets another ledger.
        facts : mapping
            The `database`, with its memory. If the ledger has declared them already, nothing is charged again: the
            command ended before it told the database.
        """
        same, dataset, function = self.id == ledger_id, f"database {facts['database']}", f"dpsql ledger {kind}"
        declared = entry_row(kind, dataset, function, canonical(facts), guarantee="", status=DECLARED)
        charged = entry_row("release", "", function, "{}", guarantee="spent by lost entries")

        def work(transaction: Transaction) -> list[Lost]:
            latest = transaction.declarations(None).latest.get(dataset, {}).values()
            newest = max(latest, key=lambda declaration: declaration.sequence, default=None)
            if newest is not None and dict(newest.facts) == dict(facts):
                return []
            charges = lost_charges(transaction, remembered, same=same)
            append_lost(transaction, charges, charged)
            transaction.append(declared, transaction.state(dataset))
            return [loss for charge in charges for loss in charge]

        return self._write(work)


__all__ = ["Budget", "BudgetRow", "Charge", "Entry", "Ledger", "LedgerRow", "RecordedDeclarations", "VerifyReport"]

T = TypeVar("T")


class Ledger(AcceptingLedger):
    """The budgets and releases at one location, shared by every thread and process that opens it.

    Open it with `Ledger.open`. Dataset names ignore ASCII case, as DuckDB's table names do: if 'Patients' and
    'patients' were two budgets, respelling a table would double its budget.
    """

    def protect(
        self,
        dataset: str,
        budget: Budget,
        *,
        replace: bool = False,
        lineage: Mapping[str, object] | None = None,
        merge: Sequence[str] = (),
        keep_dates: Collection[str] = (),
        dated_ahead: bool = True,
    ) -> bool:
        """Record a budget and policy for a dataset; earlier charges count against it.

        Parameters
        ----------
        dataset : str
            Name of the budget.
        budget : Budget
            The limit, and the owner's terms for every call.
        replace : bool
            Allow it to replace a different budget. Its spending stays.
        lineage : mapping, optional
            Further facts to store with the entry, as JSON values.
        merge : sequence of str
            Datasets that this one replaces: it begins with the spending of all of them, and they end.
        keep_dates : collection of str
            Merged datasets with periods whose rows keep their dates, so that each block begins with its own spending.
        dated_ahead : bool
            For new periods: rows may be dated in the future, so earlier spending counts in later periods, too.

        Returns
        -------
        recorded : bool
            False if the same budget is already in force.

        Raises
        ------
        BudgetError
            Another budget is in force and `replace` is False.

        Notes
        -----
        Merged datasets may contain rows of one person, so their spending adds up, under basic composition: each under
        its own accountant is (epsilon, delta)-DP, or rho-zCDP, and all of them together are as private as the sums say.
        The spending, the new budget and the end of the old ones are one transaction, so the ledger refuses a call that
        was admitted under an old budget and not charged.
        """
        dataset = folded_dataset(dataset)

        def work(transaction: Transaction) -> bool:
            state = transaction.state(dataset)
            standing = state.budget
            if standing == budget and (lineage is None or _lineage_of(transaction, dataset) == lineage):
                return False
            if standing not in (None, budget) and not replace:
                raise BudgetError(
                    "B005",
                    f"dataset '{dataset}' already has a budget of {standing.text}, or another policy. Call under it. "
                    "Only the data's owner can change it, with replace := true; what was spent stays spent.",
                )
            ended = [folded_dataset(name) for name in merge if merged_into(_lineage_of(transaction, name)) != dataset]
            own = ended_of(transaction, dataset, keeps_dates=True)
            keepers = [folded_dataset(keep_date) for keep_date in keep_dates]
            parts = [append_merged(transaction, dataset, name, keeps_dates=name in keepers) for name in ended]
            begin = None
            if budget.dated is not None:
                begun = None if dated_ahead else datetime.now(UTC).date() + timedelta(days=1)  # in every time zone
                if parts:
                    begin = merged(own, parts, budget, begun)
                else:
                    begin = restated(standing, budget, own.total, own.blocks, begun)
            entry = append_budget(transaction, dataset, budget, lineage)
            append_accounts(transaction, dataset, budget, entry, begin)
            for name in ended:
                append_budget(transaction, name, ENDED, {"table": None, "merged_into": dataset})
            return True

        return self._write(work)

    def declare(
        self,
        kind: str,
        dataset: str,
        facts: Mapping[str, object],
        function: str,
        *,
        lineage: Mapping[str, object] | None = None,
    ) -> bool:
        """Record a data owner's declaration about a dataset; charge nothing.

        Parameters
        ----------
        kind : str
            Such as ``'public'``, ``'derive'`` or ``'adopt'``; not ``'release'`` or ``'protect'``.
        dataset : str
            Name of the dataset.
        facts : mapping
            The declared facts, as JSON values.
        function : str
            Such as ``'dp_public'``.
        lineage : mapping, optional
            Further facts to store with them, as JSON values.

        Returns
        -------
        recorded : bool
            False if the latest declaration of this dataset has the same facts.
        """
        dataset = folded_dataset(dataset)
        row = entry_row(kind, dataset, function, canonical(as_recorded(facts)), guarantee="", status=DECLARED)

        def work(transaction: Transaction) -> bool:
            latest = transaction.declarations(None).latest.get(dataset, {})
            newest = max(latest.values(), key=lambda declaration: declaration.sequence, default=None)
            if newest is not None and newest.kind == kind and newest.facts == json.loads(row["arguments"]):
                return False
            transaction.append({**row, "lineage": json_text(lineage)}, transaction.state(dataset))
            return True

        return self._write(work)

    def check(self, charge: Charge) -> None:
        """Raise unless every budget allows the release now; charge nothing and never wait.

        Raises
        ------
        BudgetError
            B001 too little remains, B002 no budget, B003 policy contradicted, B004 the loss has no such number.
        """
        self._opened().refuse_read_only()
        self._read(lambda transaction: charge.refuse(transaction, charge.cost))

    @staticmethod
    def fingerprint(dataset: str, function: str, arguments: Mapping[str, object]) -> str:
        """Return the sha256 of a call's public arguments; equal numbers count as equal (1 and 1.0)."""
        return fingerprint_of(folded_dataset(dataset), function, canonical(as_recorded(arguments)))

    def replay(
        self,
        dataset: str,
        name: str,
        fingerprint: str,
        older: Older | None = None,
        arguments: Mapping[str, object] | None = None,
    ) -> Entry | None:
        """Return the result stored under a release's name, or None if there is none.

        `older` returns the fingerprints of the same call in earlier versions, if the name has another one; `arguments`
        are the call's, for the message about a name that another call has.

        A release that was charged without a result (its draw failed) has no replay: a repeated call under the same name
        draws and is charged anew, because nobody knows what the failed attempt revealed.

        Raises
        ------
        ParameterError
            P014: the name has the result of a call with other arguments.
        """
        key = folded_dataset(dataset)
        refuse_name("release", name)

        def recorded() -> str:
            return canonical(as_recorded(arguments or {}))

        return self._read(lambda transaction: transaction.stored_release(key, name, fingerprint, older, recorded))

    def note_replay(self, dataset: str, function: str, name: str, entry: Entry) -> None:
        """Record a repeated call for a stored release; skip this if the ledger is not writable."""
        row = entry_row("replay", folded_dataset(dataset), function, "{}", guarantee=entry.guarantee)
        row["name"], row["status"] = name, f"replay of entry {entry.sequence}"
        row["lineage"] = json_text({"of": entry.sequence})

        def work(transaction: Transaction) -> None:
            transaction.append(row, transaction.state(row["dataset"]))

        try:
            self._write(work)
        except LedgerError as error:
            if error.code not in UNWRITABLE:
                raise
        self._tell(entry, row, [row["dataset"]])

    def charge(
        self, charge: Charge, draw: Callable[[], object], *, remark: str = "", reservation: int | None = None
    ) -> Entry:
        """Charge a release, draw its noise and store both, in one durable transaction.

        Parameters
        ----------
        charge : Charge
            Checked as in `check`, under the lock.
        draw : callable
            Draws the noise and returns the result as JSON values. It runs while the ledger is locked: noise only.
        remark : str
            A public remark on the result, such as its omitted columns; recorded after the guarantee.
        reservation : int, optional
            Sequence of the entry that charged this call by `reserve`: this entry refers to it, and charges nothing.

        Returns
        -------
        entry : Entry
            Only once the row is on disk.

        Raises
        ------
        BudgetError
            Nothing was charged or drawn.
        ParameterError
            The name has another call's result, or an argument is not recordable; nothing was charged or drawn.
        InternalError
            I001: `draw` failed. The charge stands; an interrupt is raised again, and its charge stands too.
            I035: the reservation is of another call, or has ended; nothing was released.
        LedgerError
            The database failed; nothing is returned.
        """
        keys, cost = charge.keys, charge.cost
        row = charge.draft(cost, remark)

        def work(transaction: Transaction) -> tuple[Entry, BaseException | None, int | None]:
            paid = transaction.standing(reservation, charge.name)
            stored = transaction.stored_release(keys[0], charge.name, row["fingerprint"], charge.older)
            if stored is not None:
                if paid is not None:
                    append_end(transaction, row, keys, paid, f"replay of entry {stored.sequence}")
                return stored, None, paid
            if paid is None:
                charge.refuse(transaction, cost)
            result, failure = _run_draw(charge.event, draw)
            done: Draft = {**row, "result": result}
            if paid is not None:
                outcome = RELEASED if failure is None else NOTHING_RELEASED
                return append_end(transaction, done, keys, paid, outcome), failure, paid
            done["status"] = RELEASED if failure is None else NO_RESULT
            return append_charges(transaction, done, keys, cost, charge.during), failure, None

        entry, failure, paid = self._write(work)
        row["status"] = RELEASED if failure is None else NO_RESULT
        self._tell(entry, row if paid is None else free(row), keys)
        if failure is None:
            return entry
        if isinstance(failure, Exception):
            raise InternalError(
                "I001",
                f"{charge.function} failed after it read the table. The charge stands and nothing was released; "
                "this says nothing about the data. Try again, and report it if it stays.",
            )
        raise failure

    def reserve(self, charge: Charge) -> Entry:
        """Charge a call in full before its first draw, because its draws leave this process before its release.

        `charge` and `charge_failure` take the entry's sequence as `reservation`, and charge nothing more. If neither
        runs, for example after the driver is killed, the charge stays. Unused parts of it are not refunded.

        If a named call has an open reservation, because its driver died or still runs, the call gets that reservation,
        and is charged nothing more. A charge pays for one release of everything that the call draws, and exactly one
        results: a repeated call draws anew, and only the engine's workers, who have the rows themselves, saw the draws
        of a lost driver. A reservation ends once, and a name has one result, so only one of several drivers publishes;
        a driver that finds the reservation ended pays its own charge.

        Parameters
        ----------
        charge : Charge
            The same as `charge` gets later. A permit's whole measurement is charged.

        Returns
        -------
        entry : Entry
            Only once the row is on disk. If it is `replayed`, the name's stored result is the answer: nothing was
            charged.

        Raises
        ------
        BudgetError
            Nothing was charged.
        ParameterError
            As in `charge`.
        LedgerError
            The database failed. The call must not go on.
        """
        charge = charge.whole()
        keys, cost = charge.keys, charge.cost
        row = charge.draft(cost)
        reserved: Draft = {**row, "status": RESERVED}

        def work(transaction: Transaction) -> tuple[Entry, Draft]:
            stored = transaction.stored_release(keys[0], charge.name, row["fingerprint"], charge.older)
            if stored is not None:
                return stored, reserved
            open_entry = transaction.open_reservation(row, keys)
            if open_entry is not None:
                return open_entry, free(reserved)
            charge.refuse(transaction, cost)
            return append_charges(transaction, reserved, keys, cost, charge.during), reserved

        entry, draft = self._write(work)
        self._tell(entry, draft, keys)
        return entry

    def is_reserved(self, charge: Charge) -> bool:
        """Whether an open reservation has already charged a named call."""
        row = charge.draft(charge.cost)
        return self._read(lambda transaction: transaction.open_reservation(row, charge.keys) is not None)

    def charge_failure(self, charge: Charge, *, reservation: int | None = None) -> int:
        """Charge a release that failed after it read the table; return its sequence.

        The entry is recorded even beyond the budget: data that was read stays charged. A call with a reservation is
        charged already; the entry then records the failure.
        """
        keys, cost = charge.keys, charge.cost
        row = charge.draft(cost)

        def work(transaction: Transaction) -> tuple[Entry, Draft]:
            paid = transaction.standing(reservation, charge.name)
            if paid is None:
                into = transaction.declarations(None).aliases  # datasets may have merged meanwhile
                standing = list(dict.fromkeys(into.get(key, key) for key in keys))
                return append_charges(transaction, {**row, "dataset": standing[0]}, standing, cost, charge.during), row
            return append_end(transaction, row, keys, paid, NOTHING_RELEASED), free(row)

        entry, draft = self._write(work)
        self._tell(entry, draft, keys)
        return entry.sequence

    def verify(self, head: str | None = None, *, noted: bool = True) -> VerifyReport:
        """Verify the hash chain and add up every total again.

        Parameters
        ----------
        head : str, optional
            The hash of some row, stored elsewhere earlier.
        noted : bool
            Look for the entry noted next to the file, too.

        Notes
        -----
        The chain shows any change, removal or reordering of rows by someone who does not rewrite the later rows, and
        the notes of the last rows show a cut end. Neither has a key: anybody who may write the file can rewrite all of
        it. A head that is stored out of their reach shows that.
        """
        return self._read(lambda transaction: transaction.verify(head, noted=noted))

    def carry(self, source: Ledger) -> bool:
        """Append another ledger's entries beyond this one.

        Parameters
        ----------
        source : Ledger
            It must begin with every entry of this one. A ledger without entries takes its id too.

        Returns
        -------
        carried : bool
            False if this one has other entries; then nothing changes.
        """
        ledger_id = source.id
        return source._read(lambda origin: self._write(lambda transaction: transaction.carry(ledger_id, origin.walk())))

    def read_note(self) -> Head | None:
        """Return the entry noted next to the file as the last one; None without a note."""
        return self._opened().read_note()

    def accept(self, noted: Head | None, function: str) -> bool:
        """Continue with the remaining entries after a loss, and record that; the ledger is open for it.

        Parameters
        ----------
        noted : Head or None
            The last entry known before the loss.
        function : str
            Such as ``'dpsql ledger accept'``, whose last word is the kind of the entry.

        Returns
        -------
        lost : bool
            Whether that entry is missing.
        """

        def look(transaction: Transaction) -> tuple[tuple[int, str], bool]:
            return transaction.end(), transaction.holds(noted)

        (entries, _), stands = self._read(look)
        if noted is not None and not stands:
            facts = {"entries": entries, "noted": noted.sequence, "hash": noted.hash, "ledger": noted.ledger}
            self.declare(function.split()[-1], f"ledger {self.id[:16]}", facts, function)
        store = self._opened()
        store.note(self.head(), replace=True)
        store.keep_note()
        return not stands

    def _tell(self, entry: Entry, row: Draft, datasets: Sequence[str]) -> None:
        """Tell the watchers of a call; parameters as in `receipt_of`."""
        if self._watchers:
            if entry.replayed:  # a replay's row lacks arguments
                [first] = self.releases([row["function"]], key=entry.sequence)
                row = {**row, "arguments": canonical(first.arguments)}
            receipt = receipt_of(entry, row, datasets)
            for watcher in self._watchers:
                watcher(receipt)


def _run_draw(
    event: Permit | Event | Mapping[str, object], draw: Callable[[], object]
) -> tuple[str | None, BaseException | None]:
    """Return the draw's result as text, or its error: whatever it was, the charge is recorded first."""
    try:
        with event.drawing() if isinstance(event, Permit) else nullcontext():
            return canonical(draw()), None
    except BaseException as error:
        return None, error


def _lineage_of(transaction: Transaction, dataset: str) -> Facts | None:
    """Return the lineage of a dataset's budget."""
    declared = transaction.declarations(None).latest.get(dataset, {}).get("protect")
    return None if declared is None else declared.lineage
