"""Answer plain SQL privately: `dpsql query --private`, and `.private on` in the shell."""

from __future__ import annotations

import re

import click
import duckdb

from dpsql.contract.parameters import show
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.rendering import text as literal

_CALL = re.compile(r"\bdp_\w+\s*\(", re.IGNORECASE)


@dataclass(frozen=True)
class Private:
    """The budget of each query of plain SQL.

    Attributes
    ----------
    epsilon, delta : str or None
        As the user typed them; pure DP without delta.
    """

    epsilon: str
    delta: str | None = None

    @classmethod
    def of(cls, epsilon: str | None, delta: str | None) -> Private:
        """Return the arguments, checked to be numbers.

        Raises
        ------
        click.UsageError
            An argument is missing, or is not a number.
        """
        if epsilon is None:
            raise click.UsageError("a private query needs epsilon, such as 0.5.")
        for name, value in (("epsilon", epsilon), ("delta", delta)):
            try:
                float(value or 0)
            except ValueError:
                raise click.UsageError(f"{name} must be a number; got {show(value)}.") from None
        return cls(epsilon, delta)

    def written(self, statement: str) -> str:
        """Return the call of `dp_query` that answers a statement."""
        delta = "" if self.delta is None else f", delta := {self.delta}"
        return f"FROM dp_query({literal(statement)}, epsilon := {self.epsilon}{delta})"

    def applied(self, connection: duckdb.DuckDBPyConnection, statement: str) -> str:
        """Return the SQL that runs instead of a statement: a SELECT without a dp_ function becomes private.

        Raises
        ------
        ParameterError
            P100: DuckDB runs the statement in several steps.
        """
        parsed = connection.extract_statements(statement)
        if len(parsed) != 1:
            raise ParameterError("P100", "the statement is not one SELECT. Write it without a dynamic PIVOT.")
        if parsed[0].type.name != "SELECT" or _CALL.search(statement):
            return statement
        return self.written(statement)
