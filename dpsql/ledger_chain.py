"""The hash chain over the ledger's rows, and its verification."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dpsql.budget import Spent


def genesis(ledger_id: str) -> str:
    """Return the hash that the first row is chained to."""
    return hashlib.sha256(f"dpsql ledger 1 {ledger_id}".encode()).hexdigest()


def canonical(value: Any) -> str:
    """Return `value` as JSON text that is the same for equal values; NaN and infinities are refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def row_hash(previous: str, row: Mapping[str, Any]) -> str:
    """Return ``sha256(previous || canonical JSON of every column but the hash)``."""
    fields = {name: value for name, value in row.items() if name != "hash"}
    return hashlib.sha256((previous + canonical(fields)).encode()).hexdigest()


@dataclass(frozen=True)
class VerifyReport:
    """What a walk along the chain found.

    Attributes
    ----------
    ok : bool
        Every row is chained, every running total adds up, and the remembered head is among the hashes.
    entries : int
        Rows that were found intact, from the first on.
    head : str
        Hash of the last intact row. Keep it somewhere else: only against it can a cut-off tail be seen.
    first_bad : int or None
        Sequence of the first row that is missing, changed or out of order; None when the rows are intact.
    problem : str or None
        What is wrong, in words.
    """

    ok: bool
    entries: int
    head: str
    first_bad: int | None = None
    problem: str | None = None


def verify(ledger_id: str, rows: Iterable[Mapping[str, Any]], remembered: str | None) -> VerifyReport:
    """Walk the chain from its start; see `dpsql.ledger.Ledger.verify`."""
    previous, count = genesis(ledger_id), 0
    seen = remembered is None or remembered == previous
    totals: dict[str, tuple[Spent, int | None]] = {}
    for row in rows:
        problem = _problem(previous, count + 1, row, totals)
        if problem:
            return VerifyReport(False, count, previous, count + 1, problem)
        previous, count = row["hash"], count + 1
        seen = seen or previous == remembered
    if not seen:
        lost = "the remembered head is not in the chain: rows were cut off or rewritten"
        return VerifyReport(False, count, previous, None, lost)
    return VerifyReport(True, count, previous)


def _problem(
    previous: str, sequence: int, row: Mapping[str, Any], totals: dict[str, tuple[Spent, int | None]]
) -> str | None:
    """Return what is wrong with a row, or None; `totals` moves on with it."""
    if row["sequence"] != sequence:
        return f"row {sequence} is missing"
    if row_hash(previous, row) != row["hash"]:
        return f"row {sequence} was changed, or a row before it"
    spent, policy = totals.get(row["dataset"], (Spent(), None))
    try:
        if row["kind"] == "protect":
            policy = sequence
        else:
            spent = Spent(
                _added(spent.epsilon, row["epsilon"]),
                spent.delta + int(row["delta"]),
                _added(spent.rho, row["rho"]),
                spent.releases + 1,
            )
    except (TypeError, ValueError):
        return f"row {sequence} holds an amount that is no number"
    totals[row["dataset"]] = (spent, policy)
    stored = tuple(row[name] for name in ("epsilon_spent", "delta_spent", "rho_spent", "releases", "budget_sequence"))
    if stored != (amount_text(spent.epsilon), str(spent.delta), amount_text(spent.rho), spent.releases, policy):
        return f"the totals of row {sequence} do not add up"
    return None


def _added(total: int | None, amount: str | None) -> int | None:
    return None if total is None or amount is None else total + int(amount)


def amount_text(units: int | None) -> str | None:
    """Return units of 1e-18 as the text that the ledger stores."""
    return None if units is None else str(units)
