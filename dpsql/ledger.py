"""The durable record of every release: budgets, charges with their results, and a hash chain over them.

A charge and its result are one row in one transaction, on disk before the result is returned. SQLite by default,
PostgreSQL by URL; the same code and the same table on both. SQLAlchemy loads on first use.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.accountant import Cost, cost_of, loss_text, units_up
from dpsql.budget import Budget, Spent, refuse_contradiction, refuse_overspend
from dpsql.errors import BudgetError, InternalError, LedgerError, ParameterError
from dpsql.ledger_chain import VerifyReport, amount_text, canonical, genesis, row_hash, verify
from dpsql.ledger_rows import (
    BudgetRow,
    Entry,
    LedgerRow,
    StoredRelease,
    budget_rows,
    event_of,
    ledger_rows,
    releases_of,
    state,
    stored_release,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from dpsql.ledger_store import Store

__all__ = ["Budget", "BudgetRow", "Entry", "Ledger", "LedgerRow", "VerifyReport"]

RELEASED = "released"
NO_RESULT = "charged, no result"
PROTECTED = "protected"
_longest_name = 1000  # bytes: two names fit one index entry of PostgreSQL


class Ledger:
    """The budgets and releases at one location, shared by every thread and process that opens it.

    Open it with `Ledger.open`. Dataset names compare without ASCII case, as DuckDB's table names do: were
    'Patients' and 'patients' two budgets, respelling a table would double its budget.
    """

    def __init__(self, location: str | None) -> None:
        self._location = location
        self._store: Store | None = None
        self._closed = False
        self._opening = threading.Lock()

    @classmethod
    def open(cls, location: str | os.PathLike[str] | None = None) -> Ledger:
        """Open a ledger, and create it where there is none.

        Parameters
        ----------
        location : path or str or None
            A SQLite file, a ``postgresql://`` URL, or None or ``':memory:'`` for one that ends with the process.

        Raises
        ------
        LedgerError
            The place cannot be reached or written, or holds a ledger of another version.
        """
        text = None if location is None else os.fspath(location)
        ledger = cls(None if text == ":memory:" else text)
        if ledger._location is not None:  # in memory nothing can fail, and SQLAlchemy's import can wait
            ledger._opened()
        return ledger

    @property
    def location(self) -> str:
        """Where the ledger lives, without a password; ``'in memory'`` for none."""
        return "in memory" if self._location is None else self._opened().description

    def close(self) -> None:
        """Close every connection. What was charged stays charged."""
        self._closed = True
        if self._store is not None:
            self._store.close()

    def protect(self, dataset: str, budget: Budget, *, replace: bool = False) -> bool:
        """Record a budget and policy for a dataset; charges made before it count against it.

        Parameters
        ----------
        dataset : str
            Name of the budget.
        budget : Budget
            The limit, and what the owner states about every call.
        replace : bool
            Allow it to replace a different budget. What was spent stays spent.

        Returns
        -------
        recorded : bool
            False when the same budget already stands.

        Raises
        ------
        BudgetError
            Another budget stands and `replace` is False.
        """
        dataset = _dataset_key(dataset)
        record = budget.to_json()

        def work(connection: Connection) -> bool:
            standing, spent, _ = state(connection, dataset)
            if standing == budget:
                return False
            if standing is not None and not replace:
                raise BudgetError(
                    "B005",
                    f"dataset '{dataset}' already has a budget of {standing.text}, or another policy. "
                    "To change it, add replace := true to dp_protect; what was spent stays spent.",
                )
            row = _row("protect", dataset, "dp_protect", "{}", guarantee=f"budget {budget.text}", status=PROTECTED)
            _append(self._opened(), connection, row | {"budget": record}, spent, None)
            return True

        return self._opened().write(work)

    def policy(self, dataset: str) -> Budget | None:
        """Return the budget and policy that stand for a dataset; None while it is unlimited."""
        key = _dataset_key(dataset)
        return self._opened().read(lambda connection: state(connection, key)[0])

    def check(
        self,
        dataset: str,
        cost: Cost,
        *,
        strict: bool = False,
        neighbours: str = "add_remove",
        privacy_unit: str | None = None,
        max_rows_per_unit: int | None = None,
    ) -> None:
        """Raise unless a release of this cost would be allowed now; charges nothing and waits for nobody.

        Parameters
        ----------
        dataset : str
            Name of the budget.
        cost : Cost
            Loss of the release, from `dpsql.accountant.cost_of`.
        strict : bool
            Refuse a dataset that was never protected; otherwise it has no limit.
        neighbours, privacy_unit : str
            What the call protects; it must be what the owner stated.
        max_rows_per_unit : int, optional
            Not compared: any cap keeps the guarantee.

        Raises
        ------
        BudgetError
            B001 too little remains, B002 no budget, B003 policy contradicted, B004 the loss has no such number.
        """
        key = _dataset_key(dataset)
        budget, spent, _ = self._opened().read(lambda connection: state(connection, key))
        refuse_contradiction(key, budget, neighbours=neighbours, privacy_unit=privacy_unit)
        refuse_overspend(key, budget, spent, cost, strict=strict)

    @staticmethod
    def fingerprint(dataset: str, function: str, arguments: Mapping[str, Any]) -> str:
        """Return the sha256 of a call's public arguments; numbers of equal value count as equal (1 and 1.0)."""
        return _fingerprint(_dataset_key(dataset), function, canonical(_plain(arguments)))

    def replay(self, dataset: str, name: str, fingerprint: str) -> Entry | None:
        """Return the result stored under a release's name, or None when there is none.

        A release that was charged without a result (its draw failed) is not there to replay: asked again under
        the same name it draws and is charged anew, for what the failed attempt might have shown is not known.

        Raises
        ------
        ParameterError
            P014: the name holds the result of a call with other arguments.
        """
        key = _dataset_key(dataset)
        _refuse_name("release", name)
        return self._opened().read(lambda connection: stored_release(connection, key, name, fingerprint))

    def charge(
        self,
        dataset: str,
        *,
        event: Mapping[str, Any],
        function: str,
        arguments: Mapping[str, Any],
        draw: Callable[[], Any],
        name: str | None = None,
        strict: bool = False,
        neighbours: str = "add_remove",
        privacy_unit: str | None = None,
        max_rows_per_unit: int | None = None,
        row: str = "one row",
    ) -> Entry:
        """Charge a release, draw its noise and store both, in one durable transaction.

        Parameters
        ----------
        dataset : str
            Name of the budget.
        event : mapping
            The mechanism and its parameters, see `dpsql.accountant.cost_of`.
        function : str
            Such as ``'dp_sis'``.
        arguments : mapping
            The call's public arguments, as JSON values.
        draw : callable
            Draws the noise and returns the result as JSON values. It runs while the ledger is locked: noise only.
        name : str, optional
            Name of the release: with the same arguments, the stored result is returned and nothing is charged.
        strict, neighbours, privacy_unit : optional
            As in `check`, which is repeated here under the lock.
        max_rows_per_unit : int, optional
            Rows that one unit may contribute; recorded in the guarantee.
        row : str
            What counts as one row where no privacy unit is given; recorded in the guarantee.

        Returns
        -------
        entry : Entry
            Only once the row is on disk.

        Raises
        ------
        BudgetError
            Nothing was charged or drawn.
        ParameterError
            The name holds another call's result, or an argument cannot be recorded; nothing was charged or drawn.
        InternalError
            I001: `draw` failed. The charge stands; an interrupt is raised again, also with the charge standing.
        LedgerError
            The database failed; nothing is returned.
        """
        record, cost = _release_row(
            dataset, event, function, arguments, name, neighbours, privacy_unit, max_rows_per_unit, row
        )
        key, store = record["dataset"], self._opened()

        def work(connection: Connection) -> tuple[Entry, BaseException | None]:
            if name is not None:
                stored = stored_release(connection, key, name, record["fingerprint"])
                if stored is not None:
                    return stored, None
            budget, spent, policy = state(connection, key)
            refuse_contradiction(key, budget, neighbours=neighbours, privacy_unit=privacy_unit)
            refuse_overspend(key, budget, spent, cost, strict=strict)
            failure = None
            try:
                result = canonical(draw())
            except BaseException as error:  # whatever it was, the charge is recorded first
                failure = error
                outcome = {"status": NO_RESULT}
            else:
                outcome = {"status": RELEASED, "result": result}
            return _append(store, connection, record | outcome, spent.plus(cost), policy), failure

        entry, failure = store.write(work)
        if failure is None:
            return entry
        if isinstance(failure, Exception):
            raise InternalError(
                "I001",
                f"{function} failed after it read the table. The charge stands and nothing was released; "
                "this says nothing about the data. Try again, and report it if it stays.",
            )
        raise failure

    def charge_failure(
        self,
        dataset: str,
        *,
        event: Mapping[str, Any],
        function: str,
        arguments: Mapping[str, Any],
        name: str | None = None,
        neighbours: str = "add_remove",
        privacy_unit: str | None = None,
        max_rows_per_unit: int | None = None,
        row: str = "one row",
    ) -> int:
        """Charge a release that failed after the table was read; return its sequence.

        It is recorded even beyond the budget: what was looked at stays charged.
        """
        record, cost = _release_row(
            dataset, event, function, arguments, name, neighbours, privacy_unit, max_rows_per_unit, row
        )
        store = self._opened()

        def work(connection: Connection) -> int:
            _, spent, policy = state(connection, record["dataset"])
            return _append(store, connection, record | {"status": NO_RESULT}, spent.plus(cost), policy).sequence

        return store.write(work)

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
        of = None if dataset is None else _dataset_key(dataset)
        storable = 0 < key < 1 << 63 if isinstance(key, int) else key is None or _is_name(key)
        if not storable:  # so nothing is stored under it
            return []
        return self._opened().read(lambda connection: releases_of(connection, functions, of, key))

    def event(self, sequence: int) -> dict[str, Any]:
        """Return the event of an entry: what was charged."""
        return self._opened().read(lambda connection: event_of(connection, sequence))

    def budgets(self) -> list[BudgetRow]:
        """Return one row per dataset, for `dp_budget`."""
        return self._opened().read(budget_rows)

    def entries(self, dataset: str | None = None) -> list[LedgerRow]:
        """Return the entries in the order of the chain, of one dataset or of all, for `dp_ledger`."""
        key = None if dataset is None else _dataset_key(dataset)
        return self._opened().read(lambda connection: ledger_rows(connection, key))

    def verify(self, head: str | None = None) -> VerifyReport:
        """Walk the hash chain and add up every total again.

        Parameters
        ----------
        head : str, optional
            The hash of some row, remembered elsewhere from an earlier look.

        Notes
        -----
        The chain shows any change, removal or reordering of rows by someone who does not rewrite the rows after
        them. It has no key: who may write the file can rewrite the whole chain, or cut off its end, and the rest
        still adds up. Both show against a head that was remembered where they cannot write.
        """
        from dpsql import ledger_store

        store = self._opened()

        def work(connection: Connection) -> VerifyReport:
            with closing(ledger_store.stream(connection)) as rows:
                return verify(store.ledger_id, rows, head)

        return store.read(work)

    def _opened(self) -> Store:
        if self._closed:
            raise LedgerError("L012", "the ledger is closed. Connect again to open it.")
        if self._store is None:
            from dpsql import ledger_store

            with self._opening:
                if self._store is None:
                    self._store = ledger_store.Store(self._location)
        return self._store


def _dataset_key(dataset: str) -> str:
    _refuse_name("dataset", dataset)
    return "".join(letter.lower() if letter.isascii() else letter for letter in dataset)


def _is_name(name: str) -> bool:
    """Whether every database can store and index `name` as it is."""
    try:
        length = len(name.encode())
    except (AttributeError, UnicodeEncodeError):
        return False
    return 0 < length <= _longest_name and "\x00" not in name


def _refuse_name(argument: str, name: str) -> None:
    """Raise unless `name` can be one."""
    if not _is_name(name):
        raise ParameterError(
            "P013",
            f"{argument} must be text of 1 to {_longest_name} bytes without NUL. Give {argument} := another name.",
        )


def _fingerprint(dataset: str, function: str, arguments: str) -> str:
    return hashlib.sha256(f"{canonical([dataset, function])}{arguments}".encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Return `value` with exact numbers as text and whole floats as integers, so that equal calls are equal text."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if set(map(type, value)) == {str}:  # the names of a large vocabulary
            return list(value)
        return [_plain(item) for item in value]
    return value


def _release_row(
    dataset: str,
    event: Mapping[str, Any],
    function: str,
    arguments: Mapping[str, Any],
    name: str | None,
    neighbours: str,
    privacy_unit: str | None,
    max_rows_per_unit: int | None,
    row: str,
) -> tuple[dict[str, Any], Cost]:
    """Return everything of a release's row that is known before its noise, with its cost."""
    key = _dataset_key(dataset)
    if name is not None:
        _refuse_name("release", name)
    cost = cost_of(event)
    try:
        arguments_text, event_text = canonical(_plain(arguments)), canonical(_plain(event))
    except (TypeError, ValueError):
        raise ParameterError("P016", f"the arguments of {function} must be JSON values, to be recorded.") from None
    subject = row
    if privacy_unit is not None:
        subject = f"all rows of one {privacy_unit}"
        if max_rows_per_unit is not None:
            subject += f" (at most {max_rows_per_unit} {'row' if max_rows_per_unit == 1 else 'rows'})"
    record = _row("release", key, function, arguments_text, guarantee=f"{loss_text(cost)}, {neighbours} of {subject}")
    amounts = {
        "epsilon": None if cost.epsilon is None else str(units_up(cost.epsilon)),
        "delta": str(units_up(cost.delta)),
        "rho": None if cost.rho is None else str(units_up(cost.rho)),
    }
    return record | amounts | {"name": name, "event": event_text}, cost


def _row(
    kind: str, dataset: str, function: str, arguments: str, *, guarantee: str, status: str = NO_RESULT
) -> dict[str, Any]:
    return {
        "kind": kind,
        "dataset": dataset,
        "name": None,
        "function": function,
        "arguments": arguments,
        "fingerprint": _fingerprint(dataset, function, arguments),
        "event": None,
        "guarantee": guarantee,
        "epsilon": "0",
        "delta": "0",
        "rho": "0",
        "budget": None,
        "result": None,
        "status": status,
    }


def _append(store: Store, connection: Connection, row: dict[str, Any], spent: Spent, policy: int | None) -> Entry:
    """Insert one row at the end of the chain; the caller holds the lock."""
    from dpsql import ledger_schema as schema

    last = connection.execute(schema.head).first()
    sequence, previous = (last.sequence + 1, last.hash) if last else (1, genesis(store.ledger_id))
    row = row | {
        "sequence": sequence,
        "recorded_at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "epsilon_spent": amount_text(spent.epsilon),
        "delta_spent": str(spent.delta),
        "rho_spent": amount_text(spent.rho),
        "releases": spent.releases,
        "budget_sequence": sequence if row["kind"] == "protect" else policy,
    }
    row["hash"] = row_hash(previous, row)
    connection.execute(schema.append, row)
    result = None if row["result"] is None else json.loads(row["result"])
    return Entry(sequence, result, False, row["guarantee"], row["hash"])
