"""The receipt of a call: which entry of the ledger it has, what it was charged, and whether it is a replay."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpsql.contract.cost import UNITS_PER_ONE
from dpsql.ledger.chain import Draft
from dpsql.ledger.charge import RELEASED
from dpsql.ledger.policy import in_force
from dpsql.ledger.rows import Entry


@dataclass(frozen=True)
class Receipt:
    """What the ledger recorded for one call. It holds public values only, and no result.

    Attributes
    ----------
    entry : int
        Number of the entry. Of a replay it is that of the first release.
    function : str
    datasets : tuple of str
        The budgets that were charged, or would be if it were no replay.
    release : str or None
        Its name.
    source : str or None
        What was read, as the call named it; None in the aggregate form.
    guarantee : str
    epsilon, delta, rho : float or None
        What each of the datasets was charged now; 0 for a replay. None where the loss has no such number.
    status : str
        As in `dp_ledger`, or ``'replay'``.
    recorded_at : str
        When the entry was made, in UTC; of a replay, when it was released first.
    replayed : bool
    policy : dict
        What bound the call: its privacy unit, relation and limits, and the bounds, levels and keys that were used.
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

    @property
    def has_result(self) -> bool:
        """Whether the entry keeps a result, which can be read again."""
        return self.replayed or self.status.startswith(RELEASED)


def receipt_of(entry: Entry, row: Draft, datasets: Sequence[str]) -> Receipt:
    """Return the receipt of a call.

    Parameters
    ----------
    entry : Entry
        The one that was written for it, or the stored one that answers it.
    row : Draft
        What was recorded, or would have been.
    datasets : sequence of str
    """
    epsilon, delta, rho = ((0 if entry.replayed else _amount(row[name])) for name in ("epsilon", "delta", "rho"))
    arguments = json.loads(row["arguments"])
    source = (entry.lineage or {}).get("source") or arguments.get("source")
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
    )


def _amount(units: str | None) -> float | None:
    return None if units is None else int(units) / UNITS_PER_ONE
