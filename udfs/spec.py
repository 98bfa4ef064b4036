"""How a function is registered in DuckDB; the flags that keep a release private are set in this one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

    from dpsql.session import Session


@dataclass(frozen=True)
class UdfSpec:
    """One function to register.

    Attributes
    ----------
    name : str
        Its SQL name, ``dpsql_…``; users call macros, which call it.
    bind : callable
        Takes the session, returns the function.
    returns : str
        SQL type of the result.
    native : bool
        Python values in and out instead of Arrow arrays.
    pure : bool
        The result depends on the arguments alone, and nothing is charged or drawn. Everything else is
        volatile: without that DuckDB runs it at EXPLAIN, freezes it at PREPARE and shares one draw.
    """

    name: str
    bind: Callable[[Session], Callable[..., Any]]
    returns: str
    native: bool = False
    pure: bool = False

    def register(self, connection: duckdb.DuckDBPyConnection, session: Session) -> None:
        """Register the function on the instance of a connection."""
        connection.create_function(
            self.name,
            self.bind(session),
            None,
            self.returns,
            type="native" if self.native else "arrow",  # type: ignore[arg-type]
            null_handling="special",  # type: ignore[arg-type]  # a NULL statistic must be noised, not passed through
            side_effects=not self.pure,
        )
