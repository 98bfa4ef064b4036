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
        The private rows: for a selection ``rank`` and ``feature``, for a model ``term``, ``coefficient`` and
        ``std_error``.
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
        """The selected features by rank, or those of a model."""
        if "feature" in self.value.column_names:
            return list(self.value.column("feature").to_pylist())
        if "term" in self.value.column_names:
            return list(self.value.column("term").to_pylist()[1:])
        raise AttributeError(f"a release of {self.function} has no features")

    def __repr__(self) -> str:
        rows = [[_shown(value) for value in row.values()] for row in self.value.to_pylist()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        shown = ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows[:20]]
        if len(rows) > 20:
            shown.append(f"  and {len(rows) - 20} more")
        charge = "replayed at no charge" if self.replayed else "charged"
        head = f"Release {self.ledger_id} of {self.function} on {self.dataset!r}: {self.guarantee} ({charge})"
        return "\n".join([head, *shown])


def _shown(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
