"""Where a source's rows come from, and whose budgets a call on it is charged to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dpsql.contract.json import Json


@dataclass(frozen=True)
class Placement:
    """Where a source's rows come from.

    Attributes
    ----------
    counter : int
        The ledger's declarations that this was decided by, see `Declarations.counter`.
    charged : tuple of str
        The budgets to charge, the one whose policy counts first.
    written : str
        The source as the caller wrote it.
    source : str
        The spelling to read, which no WITH query of the caller's can take over.
    tables : tuple of str
        What is read, as far as it was seen.
    seen : bool
        Whether DuckDB could write the plan down.
    claimed : bool
        Whether `charged` is the caller's word alone.
    unit : str or None
        The column that holds the privacy unit, found through the plan.
    content : str
        Digest of what the source means: the same for another spelling, another one for another view.
    direct : bool
        Whether the source is a table of the catalog, and no view, file or frame.
    governed : bool
        Whether anything was protected.
    views : str
        Digest of the texts of the views that the source stands on, once the call runs.
    """

    counter: int
    charged: tuple[str, ...] = ()
    written: str = ""
    source: str = ""
    tables: tuple[str, ...] = ()
    seen: bool = False
    claimed: bool = False
    unit: str | None = None
    content: str = ""
    direct: bool = False
    governed: bool = True
    views: str = ""

    def to_json(self) -> dict[str, Json]:
        """Return the placement as JSON values."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> Placement:
        """Read back what `to_json` wrote."""
        plain = {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}
        build: Callable[..., Placement] = cls
        return build(**plain)
