"""Make the small tables for every page and every example of the manual, from ``sql/demonstration.sql``.

`dpsql example hospital.duckdb` makes them, and so do `.examples` in the shell and `dpsql.example("hospital.duckdb")`.
"""

from __future__ import annotations

from importlib.resources import files
from os import PathLike

from dpsql.context import Context
from dpsql.contract.boundary import public_sql
from dpsql.contract.parameters import show
from dpsql.errors import ParameterError

# Budgets large enough for all examples of the manual. `dpsql example` leaves budgets to the reader.
BUDGETS = (
    "SELECT dp_protect('patients', epsilon := 1000, delta := 1e-3);",
    "SELECT dp_protect('visits', epsilon := 1000, delta := 1e-3,\n"
    "  privacy_unit := 'patient_id', max_rows_per_unit := 3);",
    "SELECT dp_protect('scores', epsilon := 1000, delta := 1e-3);",
    "SELECT dp_protect('words', epsilon := 1000, delta := 1e-3, privacy_unit := 'message', max_rows_per_unit := 4);",
)
STATEMENTS = tuple(
    files("dpsql.sql").joinpath("demonstration.sql").read_text(encoding="utf-8").strip().split("\n\n")[1:]
)
TABLES = ("patients", "visits", "scores", "words")


@public_sql
def example(database: str | PathLike[str]) -> list[str]:
    """Make the example tables in a database file: invented patients, their visits, scores and words.

    The tables are the same everywhere, without a budget.

    Parameters
    ----------
    database : path
        A DuckDB file; made if missing.

    Returns
    -------
    tables : list of str

    Raises
    ------
    ParameterError
        P091: a table of such a name exists.
    """
    with Context(database) as context:
        return fill(context)


def fill(context: Context) -> list[str]:
    """Make the example tables in a context's database; parameters and errors as for `example`."""
    tables = {row["table_name"] for row in context.sql("SELECT table_name FROM duckdb_tables()").to_pylist()}
    for name in TABLES:
        if name in tables:
            raise ParameterError(
                "P091", f"there is a table {show(name)} already. Name another file, or drop the table."
            )
    for statement in STATEMENTS:
        context.sql(statement)
    return list(TABLES)
