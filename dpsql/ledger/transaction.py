"""Read and append the ledger's rows within one transaction; every row used is verified when read."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from itertools import count, islice, takewhile
from typing import TYPE_CHECKING, Any

from dpsql.errors import LedgerError, ParameterError
from dpsql.ledger import clock
from dpsql.ledger.blocks import FRESH, Blocks, begun_of
from dpsql.ledger.budget import Budget, Spent
from dpsql.ledger.chain import (
    CHAIN,
    CHARGE,
    DECLARED,
    GRANTED,
    Draft,
    Row,
    amount_text,
    block_key,
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

    def stored_release(
        self,
        dataset: str,
        name: str | None,
        fingerprint: str,
        older: Older | None,
        arguments: Callable[[], str] = lambda: "{}",
    ) -> Entry | None:
        """Return the result stored under a call's name, if any; refuse a name of another call.

        `arguments` returns the call's as they are recorded, for the message.
        """
        row = None if name is None else self._row_of_name(dataset, name)
        if row is None:
            return None
        same = row["fingerprint"] == fingerprint
        if not same and (older is None or row["fingerprint"] not in older(row["lineage"] is None)):
            raise ParameterError(
                "P014",
                f"release '{name}' of dataset '{dataset}' holds the result of a call with other arguments, or of "
                f"another source: {_differing(row, arguments())}. Give this call another name, or ask for the same.",
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

    def releases_since(self, dataset: str, start: str | int) -> list[Row]:
        """Return the rows of a dataset's releases from the first row recorded at `start` or later, or from a number."""
        statements = self.statements
        statement = statements.releases_from if isinstance(start, int) else statements.releases_since
        return self.verified(statement, dataset=dataset, start=start)

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


# Recorded names of arguments, with the callers' words where these differ. A query has its other arguments in parts.
_WORDS = {
    **dict.fromkeys(("epsilon", "delta", "source", "condition", "by", "keys", "lower", "upper", "confidence"), ""),
    **{"targets": "target", "law": "noise", "groups": "max_groups_per_unit", "during": "", "quantiles": ""},
    **{"max_rows_per_unit": "", "privacy_unit": "", "neighbours": "", "bins": "", "k": ""},
    "layout": "target or features",
}


def _differing(row: Row, arguments: str) -> str:
    """Return the names of the arguments that two calls differ in, which are public; never a value."""
    theirs, mine = json.loads(row["arguments"]), json.loads(arguments)
    names = [word or name for name, word in _WORDS.items() if mine and mine.get(name) != theirs.get(name)]
    if mine and not names and mine.get("parts") != theirs.get("parts"):
        names = ["sql, keys or bounds"]
    return f"it differs in {' and '.join(names)}, see `dpsql show`" if names else "`dpsql show` tells which"
