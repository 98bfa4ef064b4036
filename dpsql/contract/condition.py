"""The condition on one row that a caller gives as text: an expression whose value is true or false.

A condition looks at one row. So whether a row passes depends on nothing else, neighbouring tables remain neighbouring
tables once rows are left out, and no sensitivity changes. Under 'replace' a unit that passes may be replaced by one
that does not: a unit of at most m rows by one of fewer rows, for which the bounds of `dpsql.contract.relation` hold.
"""

from __future__ import annotations

from functools import lru_cache

from dpsql.contract import parameters
from dpsql.contract.expression.grammar import Reader
from dpsql.rendering import identifier


def checked(given: object) -> str:
    """Return a condition without the blanks around it.

    Raises
    ------
    ParameterError
        P013: it is no text. P070: it says what no condition may say.
    """
    found = parameters.text("condition", given, hint="Give it as text, such as 'age >= 18'.").strip()
    columns_of(found)
    return found


@lru_cache(maxsize=256)  # a call asks several times
def columns_of(condition: str) -> tuple[str, ...]:
    """Return the columns that a condition names, as spelled first.

    Raises
    ------
    ParameterError
        P070.
    """
    reader = Reader(condition, identifier)
    reader.whole()
    return tuple(reader.columns.values())
