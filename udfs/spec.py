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
    nullary : bool
        It takes no argument; every other function takes arguments of any type.
    """

    name: str
    bind: Callable[[Session], Callable[..., Any]]
    returns: str
    native: bool = False
    pure: bool = False
    nullary: bool = False

    def register(self, connection: duckdb.DuckDBPyConnection, function: Callable[..., Any]) -> None:
        """Register `function`, which does what `bind` returns, on the instance of a connection."""
        flags: dict[str, Any] = {
            "type": "native" if self.native else "arrow",
            "null_handling": "special",  # a NULL statistic must be noised, not passed through
            "side_effects": not self.pure,
        }
        connection.create_function(self.name, function, None, self.returns, **flags)
