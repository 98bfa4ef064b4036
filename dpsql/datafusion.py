"""Private releases over tables and frames of DataFusion.

>>> import dpsql.datafusion
>>> from datafusion import SessionContext
>>> session = SessionContext()
>>> frame = session.from_pydict({"age": [31, 46, 17]}, name="people")
>>> dp = dpsql.datafusion.context(session)
>>> release = dp.dp_avg("people", target="age", lower=0, upper=100, epsilon=1)
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from dpsql.context import Context
from dpsql.contract.boundary import public
from dpsql.engines.attached import PARTS, Attached

if TYPE_CHECKING:
    from datafusion import SessionContext

    from dpsql.engines.datafusion import DataFusionEngine


@public
def engine(session: SessionContext) -> DataFusionEngine:
    """Return the engine of a session, for `dpsql.attach_engine`."""
    from dpsql.engines.datafusion import DataFusionEngine

    return DataFusionEngine(session)


@public
def context(
    session: SessionContext,
    *,
    ledger: str | PathLike[str] | None = None,
    strict: bool = False,
    name: str = "datafusion",
    parts: int = PARTS,
) -> Context:
    """Return a context whose sources are tables of a session by name, or its DataFrames.

    Parameters
    ----------
    session : datafusion.SessionContext
    ledger : path or URL, optional
        As for `dpsql.connect`.
    strict : bool
        As for `dpsql.connect`.
    name : str
        The engine's name: the first part of its tables' full names.
    parts : int
        Number of groups of rows. All rows of a group are in memory at once.
    """
    return Context(ledger=ledger, strict=strict, engine=Attached(name, engine(session), parts))
