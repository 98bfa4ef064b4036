"""How a function is registered in DuckDB; the flags that keep a release private are set in this one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsql.errors import DpsqlError, InternalError
from dpsql.udfs.values import nested

if TYPE_CHECKING:
    import duckdb

    from dpsql.engines.duckdb.session import Session


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

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Call `function`, and let nothing out but a result for each row or an error with a code.

        DuckDB's own text about a result of the wrong length tells how many rows there were, and the text of any other
        exception may hold what they hold.

        Raises
        ------
        DpsqlError
            What `function` raises on purpose; P019 when the rows of an outer query are mixed with ours.
        InternalError
            I004 in place of any other exception: the arguments are none that dpsql's own statements give.
        """
        try:
            result = function(*arguments)
            if not self.native and len(result) != len(arguments[0]):
                raise nested()
        except DpsqlError as error:
            raise error.in_duckdb() from None
        except Exception:
            raise InternalError(
                "I004", f"{self.name} is not for direct use and does not take these arguments. Use the dp_ functions."
            ).in_duckdb() from None
        return result

    def register(self, connection: duckdb.DuckDBPyConnection, function: Callable[..., Any]) -> None:
        """Register `function`, which does what `bind` returns, on the instance of a connection."""
        flags: dict[str, Any] = {
            "type": "native" if self.native else "arrow",
            "null_handling": "special",  # a NULL statistic must be noised, not passed through
            "side_effects": not self.pure,
        }
        connection.create_function(self.name, function, None, self.returns, **flags)
