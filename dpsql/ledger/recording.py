"""What an entry records: names that every database can store, fingerprints of calls, and the columns of a row."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace as changed
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.contract.cost import Cost, loss_text, units_up
from dpsql.contract.events import Event, cost_of
from dpsql.errors import ParameterError
from dpsql.ledger.chain import Draft, canonical
from dpsql.ledger.rows import Entry

if TYPE_CHECKING:
    from dpsql.ledger.transaction import Transaction

RELEASED = "released"
NOTHING_RELEASED = "no result"
NO_RESULT = f"charged, {NOTHING_RELEASED}"
PROTECTED = "protected"
DECLARED = "declared"
_longest_name = 1000  # bytes: two names fit one index entry of PostgreSQL


def folded_dataset(dataset: str) -> str:
    """Return the name that a dataset has in the ledger, which ignores ASCII case; raise where it cannot be one."""
    refuse_name("dataset", dataset)
    return "".join(letter.lower() if letter.isascii() else letter for letter in dataset)


def is_name(name: str) -> bool:
    """Whether every database can store and index `name` as it is."""
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
    """Return the digest that tells a call apart: its dataset, its function and its recorded arguments."""
    return hashlib.sha256(f"{canonical([dataset, function])}{arguments}".encode()).hexdigest()


def as_recorded(value: object) -> object:
    """Return `value` with exact numbers as text and whole floats as integers, so that equal calls give equal text."""
    if value is None or isinstance(value, (str, int)):  # most of what there is, and the tests below are slow
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


def append_charges(transaction: Transaction, row: Draft, keys: Sequence[str], cost: Cost) -> Entry:
    """Append a release's row, and one without its result for each further budget that it is charged to."""

    def append(key: str, row: Draft) -> Entry:
        state = transaction.state(key)
        return transaction.append(row, changed(state, spent=state.spent.plus(cost)))

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


def append_end(transaction: Transaction, row: Draft, keys: Sequence[str], hold: int, outcome: str) -> Entry:
    """Append the row that ends a hold, whose entries have charged every budget of the call."""
    transaction.refuse_other_hold(hold, row, keys)
    end: Draft = {**row, "status": f"{outcome}, charged in entry {hold}", "hold": hold}
    end["epsilon"] = end["delta"] = end["rho"] = "0"
    return transaction.append(end, transaction.state(end["dataset"]))


def guarantee_text(
    cost: Cost,
    neighbours: str,
    privacy_unit: str | None,
    max_rows_per_unit: int | None,
    row: str,
    lineage: Mapping[str, object] | None = None,
) -> str:
    """Return the guarantee of a release in words; arguments as of `Ledger.charge`.

    It ends with ``', as claimed'`` if the caller alone says that what was read holds rows of the dataset.
    """
    subject = row
    if privacy_unit is not None:
        subject = f"all rows of one {privacy_unit}"
        if max_rows_per_unit is not None:
            subject += f" (at most {max_rows_per_unit} {'row' if max_rows_per_unit == 1 else 'rows'})"
    claimed = ", as claimed" if lineage is not None and lineage.get("claimed") else ""
    return f"{loss_text(cost)}, {neighbours} of {subject}{claimed}"


def release_row(
    dataset: str,
    event: Event | Mapping[str, object],
    function: str,
    arguments: Mapping[str, object],
    name: str | None,
    neighbours: str,
    privacy_unit: str | None,
    max_rows_per_unit: int | None,
    row: str,
    lineage: Mapping[str, object] | None = None,
) -> tuple[Draft, Cost]:
    """Return everything of a release's row that is known before its noise, with its cost."""
    key = folded_dataset(dataset)
    if name is not None:
        refuse_name("release", name)
    spent = event.to_json() if isinstance(event, Event) else event
    cost = event.cost if isinstance(event, Event) else cost_of(event)
    try:
        arguments_text, event_text = canonical(as_recorded(arguments)), canonical(as_recorded(spent))
    except (TypeError, ValueError):
        raise ParameterError("P049", f"the arguments of {function} must be JSON values, to be recorded.") from None
    guarantee = guarantee_text(cost, neighbours, privacy_unit, max_rows_per_unit, row, lineage)
    record = entry_row("release", key, function, arguments_text, guarantee=guarantee)
    record["epsilon"] = None if cost.epsilon is None else str(units_up(cost.epsilon))
    record["delta"] = str(units_up(cost.delta))
    record["rho"] = None if cost.rho is None else str(units_up(cost.rho))
    record["name"], record["event"] = name, event_text
    return record, cost


def entry_row(
    kind: str, dataset: str, function: str, arguments: str, *, guarantee: str, status: str = NO_RESULT
) -> Draft:
    """Return the columns of an entry that charges nothing; a release overwrites what it charges."""
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
    }


def json_text(value: Mapping[str, object] | None) -> str | None:
    """Return a mapping as canonical JSON; None for none."""
    return None if value is None else canonical(as_recorded(value))
