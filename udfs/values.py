"""Conversion of values between DuckDB and dpsql, and registration of functions in DuckDB.

Only this module sets the registration flags that keep a release private.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import to_numbers
from dpsql.dataclass import dataclass
from dpsql.errors import CODED, DpsqlError, InternalError, ParameterError, original
from dpsql.kernels.columns import single_chunk
from dpsql.progress import presses

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from duckdb.sqltypes import DuckDBPyType


# Exact integers: int64 if they fit, otherwise Python ints.
Integers: TypeAlias = NDArray[np.int64] | NDArray[np.object_]

# Queries and their plans, from the planner.
Plans: TypeAlias = Sequence[Mapping[str, str]] | None
# Type of the result of dp_estimate.
ESTIMATED = "STRUCT(quantity VARCHAR, value DOUBLE, meaning VARCHAR)[]"


def struct_list(columns: Mapping[str, str]) -> str:
    """Return the SQL type of a table from the type of each column."""
    return "STRUCT(" + ", ".join(f"{name} {kind}" for name, kind in columns.items()) + ")[]"


def seen_of(listed: Plans) -> list[tuple[str, str]]:
    """Return queries and their plans as pairs."""
    return [(entry["query"], entry["plan"]) for entry in listed or ()]


def refuse_again(arguments: Sequence[object]) -> None:
    """Raise the refusal that a spoken function returned in place of queries, if there is one."""
    for queries in arguments:
        for entry in queries if isinstance(queries, list) else ():
            if isinstance(entry, dict) and str(entry.get("query")).startswith(CODED):
                raise original(ValueError(entry["query"])) or nested()


def one_ticket(tickets: pa.Array) -> int:
    """Return the one ticket of a batch of rows."""
    batch = single_chunk(tickets)
    if batch.null_count == 0:
        numbers = to_numbers(batch)
        data = numbers.tobytes()  # NumPy would release Python's lock to compare, and wait for it
        if data == data[: numbers.itemsize] * len(numbers):
            return int(numbers[0])
    raise nested()


def nested() -> ParameterError:
    """Refuse to run once per row of an outer query.

    DuckDB 2.0 joins the outer rows to the source's, and such a batch would sum a row many times.
    """
    return ParameterError(
        "P019",
        "a private table function must not stand in a correlated subquery or lateral join: it would be a release per "
        "outer row. Name it once, WITH r AS MATERIALIZED (SELECT * FROM ...), and use r.",
    )


def integers(row: pa.Array, count: int) -> Integers:
    """Return a HUGEINT list as integers: int64 if they fit, otherwise Python ints; NULL (no rows at all) as zeros."""
    values = row.values
    if values is None or len(values) == 0:
        return np.zeros(count, dtype=np.int64)
    words = np.frombuffer(values.buffers()[1], dtype=np.int64)[2 * values.offset : 2 * (values.offset + len(values))]
    low, high = words[0::2], words[1::2]
    if (high == low >> 63).all() and low.min() > np.iinfo(np.int64).min:  # so that abs() fits too
        return low.copy()
    return np.array([int(value) for value in values.to_pylist()], dtype=object)


@dataclass(frozen=True)
class UdfSpec:
    """One function to register.

    Attributes
    ----------
    name : str
        Its SQL name, ``dpsql_…``; users call macros, which call it.
    bind : callable
        Takes the session, or in a worker of an engine the worker's `Calls`; returns the function.
    returns : str
        SQL type of the result.
    native : bool
        It takes and returns Python values instead of Arrow arrays.
    pure : bool
        The result depends on the arguments alone, and nothing is charged or drawn. Everything else is volatile:
        otherwise DuckDB runs it at EXPLAIN, freezes it at PREPARE and shares one draw between rows.
    nullary : bool
        It takes no arguments; every other function takes arguments of any type.
    spoken : bool
        A refusal is the text of the result, and the macro ``dpsql_said`` raises it: DuckDB writes ``Invalid Input
        Error: Python exception occurred while executing the UDF: ParameterError:`` before the text of an exception,
        and only ``Invalid Input Error:`` before a text that a macro raises. A function that gets the refusal of
        another in the queries to plan has that refusal. Nothing can run in its place: it follows from public values,
        comes before any row, and is no SQL that DuckDB could parse.
    """

    name: str
    bind: Callable[[Any], Callable[..., object]]
    returns: str
    native: bool = False
    pure: bool = False
    nullary: bool = False
    spoken: bool = False

    def run(self, function: Callable[..., object], arguments: tuple[object, ...]) -> object:
        """Call `function`, and return a result for each row or raise an error with a code; nothing else leaves it.

        DuckDB's own message about a result of the wrong length shows the number of rows, and the text of any other
        exception may quote them.

        Raises
        ------
        DpsqlError
            An intended error of `function`; P019 if a batch has rows of an outer query.
        KeyboardInterrupt
            Ctrl-C was pressed meanwhile.
        InternalError
            I004 replaces any other exception: dpsql's own statements do not pass such arguments.
        """
        before = presses()
        try:
            if self.native:
                refuse_again(arguments)
            result = function(*arguments)
            if not self.native and _rows(result) != _rows(arguments[0]):
                raise nested()
        except DpsqlError as error:
            if self.spoken:
                return self._said(str(error))
            raise error.in_duckdb() from None
        except Exception:
            if presses() != before:  # such as Arrow's error for it
                raise KeyboardInterrupt from None
            raise InternalError(
                "I004", f"{self.name} is not for direct use and does not take these arguments. Use the dp_ functions."
            ).in_duckdb() from None
        return result

    def _said(self, refusal: str) -> object:
        """Return a refusal as a result of this function: a text, or the only query of a list."""
        if self.returns == "VARCHAR":
            return refusal
        return [refusal] if self.returns == "VARCHAR[]" else [{"query": refusal, "plan": None}]

    def register(
        self, connection: duckdb.DuckDBPyConnection, function: Callable[..., object], returns: DuckDBPyType
    ) -> None:
        """Register `function`, a result of `bind`, on the instance of a connection.

        `returns` is the type that `self.returns` names; DuckDB takes longer to read a type name than for all the rest.
        """
        flags: dict[str, Any] = {  # DuckDB's annotations do not allow these values as text
            "type": "native" if self.native else "arrow",
            "null_handling": "special",  # a NULL statistic must get noise, not be passed through
            "side_effects": not self.pure,
        }
        connection.create_function(self.name, function, None, returns, **flags)


def _rows(column: pa.Array) -> int:
    return len(column)
