"""A release as Python sees it: the private value with its receipt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


@dataclass(frozen=True, repr=False)
class Release:
    """A private result and what it cost.

    Attributes
    ----------
    value : pyarrow.Table
        The private rows; for a selection ``rank`` and ``feature``.
    function : str
        The SQL function that made it.
    dataset : str
        The budget that was charged.
    guarantee : str
        What holds, for whom.
    event : dict
        Mechanisms and parameters, as the ledger records them.
    ledger_id : int
        Sequence of the ledger's entry.
    replayed : bool
        The stored result of a named release was returned, and nothing was charged.
    """

    value: pa.Table
    function: str
    dataset: str
    guarantee: str
    event: dict[str, Any]
    ledger_id: int
    replayed: bool

    def to_arrow(self) -> pa.Table:
        """Return the value as an Arrow table."""
        return self.value

    def to_polars(self) -> pl.DataFrame:
        """Return the value as a Polars frame."""
        import polars as pl

        return pl.DataFrame(self.value)

    @property
    def features(self) -> list[str]:
        """The selected features by rank."""
        return list(self.value.column("feature").to_pylist())

    def __repr__(self) -> str:
        rows = self.value.to_pylist()
        shown = [f"  {row['rank']:>3}  {row['feature']}" for row in rows[:20]]
        if len(rows) > 20:
            shown.append(f"       and {len(rows) - 20} more")
        charge = "replayed at no charge" if self.replayed else "charged"
        head = f"Release {self.ledger_id} of {self.function} on {self.dataset!r}: {self.guarantee} ({charge})"
        return "\n".join([head, *shown])
