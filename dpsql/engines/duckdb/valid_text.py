"""The SQL that makes NULL of a value whose text is not UTF-8, before any other function meets it.

DuckDB checks text when it stores a table, and when it reads a Parquet, CSV or JSON file. It does not check frames,
whose bytes it takes as they are: `upper` and `lower` then end the whole instance, ILIKE and collations too, also inside
of TRY, and what comes out of other functions may be bytes of other rows (2.0.0 and 1.5.6). `decode` of a value's bytes
fails where they are not UTF-8, in a way that TRY catches, and `encode` never fails. Both stand in the body of a lambda,
as a condition does (`dpsql.engines.duckdb.filtering`): the optimizer could compute them outside of TRY. The lambda
keeps the value or leaves it out, so any type stays as it is.
"""

from __future__ import annotations

from dpsql.rendering import call, cast, text

# The types that hold no text, as `typeof` spells them.
_WITHOUT_TEXT = "|".join(
    (
        *("BOOLEAN", "U?(TINY|SMALL|BIG|HUGE)INT", "U?INTEGER", "FLOAT", "DOUBLE", r"DECIMAL\(\d+,\d+\)"),
        *("DATE", "TIME(_NS)?", "TIMESTAMP(_S|_MS|_NS)?", "(TIME|TIMESTAMP) WITH TIME ZONE", "INTERVAL"),
        *("UUID", "BLOB", "BIT", '"NULL"'),
    )
)
# The value, in the lambda.
_VALUE = "dpsql_value"


def valid_text(column: str) -> str:
    """Return a column of the same type, NULL where its text is not UTF-8.

    Types that hold no text cost nothing when rows are read: `typeof` is a constant when a statement is planned.
    """
    decoded = call("decode", call("encode", cast(_VALUE, "VARCHAR")))
    judged = f"lambda {_VALUE}: TRY({decoded}) IS NOT NULL"
    checked = call("list_extract", call("list_filter", call("list_value", column), judged), "1")
    without = call("regexp_full_match", call("typeof", column), text(_WITHOUT_TEXT))
    return f"CASE WHEN {without} THEN {column} ELSE {checked} END"
