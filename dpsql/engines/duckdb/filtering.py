"""The SQL that keeps the rows of a source which meet the caller's condition.

DuckDB's optimizer must not touch a condition. ``TRY`` around it is not enough: a long IN list becomes a join, and a
subexpression that occurs twice is computed beforehand, in both cases outside of the TRY, so that an error there ends
the statement, by the rows (2.0.0 and 1.5.6). Nor may a comparison be decided from the minimum and maximum in a file,
which ignore NaN. So the condition is the body of a lambda over a list of one row, where the optimizer does not look:
there TRY makes NULL of an error, one row at a time. What is in the body was judged by its types
(`dpsql.contract.expression`), because TRY does not catch every error. The element of the list is picked by the gate's
zero, a value from run time: no row is judged before the gate has let the call pass.
"""

from __future__ import annotations

from dpsql.contract.expression.judge import Judged
from dpsql.rendering import call, cast, plus

# The column of the input that holds the columns which a condition names, as a struct, and its name in the lambda.
NAMED, ONE = "dpsql_condition", "dpsql_one"


def kept(rows: str, columns: str, judged: Judged | None, zero: str) -> str:
    """Return the query of the rows that meet a condition.

    Parameters
    ----------
    rows : str
        A FROM item with the struct `NAMED`.
    columns : str
        What is selected of it.
    judged : Judged or None
        The condition; None where no types are known, and the gate will refuse the call.
    zero : str
        SQL of the gate's zero.
    """
    verdicts = f"lambda {ONE}: TRY({'NULL::BOOLEAN' if judged is None else judged.sql})"
    position = plus("1", cast(zero, "BIGINT"))
    passes = call("list_extract", call("list_transform", call("list_value", NAMED), verdicts), position)
    return f"SELECT {columns} FROM {rows} WHERE {passes}"
