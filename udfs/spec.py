"""How a function is registered in DuckDB: the only place that sets the flags that keep a release private."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsql.errors import DpsqlError, InternalError
from dpsql.progress import presses
from dpsql.udfs.values import nested

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


@dataclass(frozen=True)
class UdfSpec:
    """One function to register.

    Attributes
    ----------
    name : str
        Its SQL name, ``dpsql_…``; users call macros, which call it.
    bind : callable
        Takes the session, or where a worker of an engine runs it the worker's `Calls`; returns the function.
    returns : str
        SQL type of the result.
    native : bool
        It takes and returns Python values instead of Arrow arrays.
    pure : bool
        The result depends on the arguments alone, and nothing is charged or drawn. Everything else is
        volatile: otherwise DuckDB runs it at EXPLAIN, freezes it at PREPARE and shares one draw between rows.
    nullary : bool
        It takes no arguments; every other function takes arguments of any type.
    """

    name: str
    bind: Callable[[Any], Callable[..., object]]
    returns: str
    native: bool = False
    pure: bool = False
    nullary: bool = False

    def run(self, function: Callable[..., object], arguments: tuple[object, ...]) -> object:
        """Call `function`, and return a result for each row or raise an error with a code; nothing else gets out.

        DuckDB's own message about a result of the wrong length shows the number of rows, and the text of any other
        exception may quote them.

        Raises
        ------
        DpsqlError
            What `function` raises on purpose; P019 if a batch has rows of an outer query.
        KeyboardInterrupt
            Ctrl-C was pressed meanwhile.
        InternalError
            I004 replaces any other exception: dpsql's own statements do not pass such arguments.
        """
        before = presses()
        try:
            result = function(*arguments)
            if not self.native and _rows(result) != _rows(arguments[0]):
                raise nested()
        except DpsqlError as error:
            raise error.in_duckdb() from None
        except Exception:
            if presses() != before:  # such as Arrow's error for it
                raise KeyboardInterrupt from None
            raise InternalError(
                "I004", f"{self.name} is not for direct use and does not take these arguments. Use the dp_ functions."
            ).in_duckdb() from None
        return result

    def register(self, connection: duckdb.DuckDBPyConnection, function: Callable[..., pa.Array]) -> None:
        """Register `function`, which does what `bind` returns, on the instance of a connection."""
        flags: dict[str, Any] = {  # which DuckDB's annotations do not allow as text
            "type": "native" if self.native else "arrow",
            "null_handling": "special",  # a NULL statistic must get noise, not be passed through
            "side_effects": not self.pure,
        }
        connection.create_function(self.name, function, None, self.returns, **flags)


def _rows(column: pa.Array) -> int:
    return len(column)
