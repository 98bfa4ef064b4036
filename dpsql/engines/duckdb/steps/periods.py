"""The period of every row, and the unit that follows: one place, before anything else looks at a row.

With periods the privacy unit is a person in a period (`dpsql.contract.periods`). Rows of other periods than those of
the call, and rows without one, are left out first; what is left has the identity of (person, period) in place of the
person's, so that caps, groups, merges and blocks of every function are those of that unit.

The number of a period is made of parts of the date that DuckDB has for every date; nothing here can fail for a row's
value. The gate's zero is added to it, which hides it from column statistics.
"""

from __future__ import annotations

from dpsql.contract.periods import PARTS, During
from dpsql.engines.duckdb.keys import identity
from dpsql.engines.duckdb.steps.step import select
from dpsql.rendering import call, cast, concatenated, plus, text

# The column of the date, as the source has it.
DATE = "dpsql_date"
_MOMENT, _PERIOD = "dpsql_moment", "dpsql_period"
_ZONED = "TIMESTAMP WITH TIME ZONE"


def _moment(during: During) -> str:
    """Return the date as a timestamp; NULL where the column has another type, which the gate refuses."""
    kind = call("typeof", DATE)
    if during.dated.zone is None:
        return f"CASE WHEN {kind} IN ('DATE', 'TIMESTAMP') THEN TRY_CAST({DATE} AS TIMESTAMP) END"
    # A cast to TIMESTAMP follows the session's time zone; the number of microseconds is that of UTC.
    moment = call("make_timestamp", call("epoch_us", f"TRY_CAST({DATE} AS {_ZONED})"))
    return f"CASE WHEN {kind} = {text(_ZONED)} THEN {moment} END"


def _number(period: str) -> str:
    """Return the number of the period that a timestamp is in."""
    first, others = PARTS[period]
    number = call("date_part", text(first), _MOMENT)
    for part, values in others:
        number = plus(call("*", number, str(values)), call("-", call("date_part", text(part), _MOMENT), "1"))
    return number


def dated(rows: str, during: During, zero: str, *, filtered: bool) -> str:
    """Return the FROM item of rows with the unit (person, period); `filtered`, of those that a call sees.

    Rows that it does not see have no unit.
    """
    moments = select([f"* EXCLUDE ({DATE})", f"{_moment(during)} AS {_MOMENT}"], rows)
    number = plus(_number(during.dated.period), cast(zero, "BIGINT"))
    numbered = select([f"* EXCLUDE ({_MOMENT})", f"{number} AS {_PERIOD}"], f"({moments})")
    seen = " OR ".join(f"{_PERIOD} BETWEEN {first} AND {last}" for first, last in during.numbers)
    number, data = identity("dpsql_unit")
    # Whatever the person's bytes are, they begin after the second colon.
    unit = concatenated(cast(_PERIOD, "VARCHAR"), "':'", cast(number, "VARCHAR"), "':'", call("hex", data))
    columns = [f"* EXCLUDE (dpsql_unit, {_PERIOD})", f"CASE WHEN {seen} THEN {unit} END AS dpsql_unit"]
    return f"({select(columns, f'({numbered})', f'WHERE {seen}' if filtered else '')}) AS input"
