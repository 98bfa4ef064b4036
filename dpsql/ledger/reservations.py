"""How reservations end: by a release, by a failure, or because their process is lost.

A call that may be ended from outside before its release is charged first. The row that ends its reservation names it in
the column `hold`, charges nothing, and there is one at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsql.errors import InternalError
from dpsql.ledger.chain import Draft
from dpsql.ledger.charge import NOTHING_RELEASED
from dpsql.ledger.rows import Entry

if TYPE_CHECKING:
    from dpsql.ledger.transaction import Transaction


def append_end(transaction: Transaction, row: Draft, keys: Sequence[str], reservation: int, outcome: str) -> Entry:
    """Append the row that ends a reservation, whose entries have charged every budget of the call.

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
    """End every reservation of a principal that nothing has ended; return their entries.

    What they charged stays charged, and the question is charged again when it is asked again.
    """
    lost = transaction.lost_reservations()
    for row in lost:
        _append_end(transaction, row, row["sequence"], NOTHING_RELEASED)
    return [row["sequence"] for row in lost]


def free(row: Draft) -> Draft:
    """Return what an entry says whose call was charged before."""
    return {**row, "epsilon": "0", "delta": "0", "rho": "0"}


def _append_end(transaction: Transaction, row: Draft, reservation: int, outcome: str) -> Entry:
    end: Draft = {**free(row), "status": f"{outcome}, charged in entry {reservation}", "hold": reservation}
    return transaction.append(end, transaction.state(end["dataset"]))
