"""Release from Polars frames: the namespace `dp` of frames, a context for Polars' streaming engine, or an engine.

::

    import dpsql.polars  # gives frames their namespace

    dpsql.polars.use(ledger="patients.dpsql-ledger")
    visits = pl.scan_parquet("visits/*.parquet").dp.of("visits")
    visits.dp.count(by="ward", keys=["A", "B"], epsilon=0.5)

``import dpsql`` alone does not register the namespace, because it does not import Polars. A context has its own ledger,
and names for its frames::

    ctx = dpsql.polars.context({"visits": pl.scan_parquet("visits/*.parquet")})
    ctx.dp_count("visits", epsilon=0.5)
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING

from dpsql.context import Context
from dpsql.contract.boundary import public
from dpsql.engines.attached import PARTS, Attached
from dpsql.engines.polars import PolarsEngine
from dpsql.frames import register, use

if TYPE_CHECKING:
    import polars

__all__ = ["context", "engine", "use"]
register()


@public
def context(
    frames: Mapping[str, polars.LazyFrame | polars.DataFrame] | None = None,
    *,
    ledger: str | PathLike[str] | None = None,
    strict: bool = False,
    name: str = "polars",
    parts: int = PARTS,
) -> Context:
    """Return a context whose calls run on Polars.

    Parameters
    ----------
    frames : mapping of str to polars.LazyFrame or polars.DataFrame, optional
        Frames by the names that calls use. A call also accepts a frame itself.
    ledger : path or URL, optional
        The store of budgets and releases; in memory by default.
    strict : bool
        As for `dpsql.connect`.
    name : str
        The engine's name in SQL, in budgets and in receipts.
    parts : int
        Number of groups of rows if a call needs all rows of a person at once. All rows of one group are in memory at
        once.

    Returns
    -------
    context : Context
    """
    return Context(ledger=ledger, strict=strict, engine=Attached(name, engine(frames), parts))


@public
def engine(frames: Mapping[str, polars.LazyFrame | polars.DataFrame] | None = None) -> PolarsEngine:
    """Return an engine over Polars frames, for `dpsql.attach_engine`; parameters as for `context`."""
    return PolarsEngine(frames)
