"""The SQL that keeps the rows of a source which meet the caller's condition.

DuckDB's optimizer must not touch a condition. ``TRY`` around it is not enough: a long IN list becomes a join, and a
subexpression that occurs twice is computed beforehand, in both cases outside of the TRY, so that an error there ends
the statement, by the rows (2.0.0 and 1.5.6). Nor may a comparison be decided from the minimum and maximum in a file,
which ignore NaN. So the condition is the body of a lambda over a list of one row, where the optimizer does not look:
there TRY makes NULL of an error, one row at a time. The element of the list is picked by the gate's zero, a value from
run time: no row is judged before the gate has let the call pass.
"""

from __future__ import annotations

from dpsql.contract.condition import columns_of, condition_sql
from dpsql.rendering import call, cast, field, identifier, plus

# The column of the input that holds the columns which a condition names, as a struct, and its name in the lambda.
NAMED, _ONE = "dpsql_condition", "dpsql_one"


def absent_columns(condition: str | None) -> dict[str, str]:
    """Return, by quoted column, a NULL that stands for it where rows are judged, if the source lacks it.

    The condition must bind although the gate is about to refuse the call. NULL has no type, which suits every operator
    and function but those of dates, which have several forms.
    """
    named = {} if condition is None else columns_of(condition)
    return {identifier(name): "NULL::TIMESTAMP" if is_date else "NULL" for name, is_date in named.items()}


def kept(rows: str, columns: str, condition: str, zero: str) -> str:
    """Return the query of the rows that meet a condition.

    Parameters
    ----------
    rows : str
        A FROM item with the struct `NAMED`.
    columns : str
        What is selected of it.
    condition : str
    zero : str
        SQL of the gate's zero.
    """
    judged = condition_sql(condition, lambda name: field(_ONE, name))
    verdicts = f"lambda {_ONE}: TRY({cast(judged, 'BOOLEAN')})"
    position = plus("1", cast(zero, "BIGINT"))
    passes = call("list_extract", call("list_transform", call("list_value", NAMED), verdicts), position)
    return f"SELECT {columns} FROM {rows} WHERE {passes}"
