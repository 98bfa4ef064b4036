"""The steps that tell what the limits of privacy units leave out, see `dpsql.statistics.left_out`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpsql.engines.duckdb.steps.caps import Cap, within
from dpsql.engines.duckdb.steps.step import GroupedFrame, Step, select
from dpsql.functions.grouped.left_out import GROUP, RECORD, ROWS, UNITS
from dpsql.rendering import call, cast, coalesce

# The column that says whether a row counts.
COUNTS = "counts"


def flagged(frame: GroupedFrame, rows: str, caps: Sequence[Cap], note: str) -> Iterator[Step]:
    """Yield the steps of the rows that count, and of those that do not, each limit looking at what the last one left.

    Most rows fall at the first limit where units have many, so the others put few in order.
    """
    fallen = []
    for number, cap in enumerate(caps, start=1):
        before, chosen = within(frame, f"limit{number}", cap, rows, COUNTS)
        yield from before
        yield Step(f"flagged{number}", f"{note} Whether a row meets the limit of number {number}.", chosen, kept=True)
        one = frame.name(f"flagged{number}")
        rows = f"(SELECT * EXCLUDE ({COUNTS}) FROM {one} WHERE {COUNTS})"
        fallen.append(select([*frame.unit, *frame.codes], one, f"WHERE NOT {COUNTS}"))
    yield Step("kept", "The rows that count.", f"SELECT * FROM {rows}")
    yield Step("left", "The rows beyond one of the limits.", "\n  UNION ALL\n  ".join(fallen))


def apart(frame: GroupedFrame) -> Iterator[Step]:
    """Yield the steps of what the rows that do not count add up to: unit by unit and cut, then all."""
    most = str(frame.plan.contribution.rows)
    numbers = range(len(frame.codes))
    totals = [f"{call('count_star')} AS n"]
    for number, code in zip(numbers, frame.codes, strict=True):
        totals.append(f"{call('count', code)} AS n{number}")
        totals.append(f"{cast(call('sum', code), 'HUGEINT')} AS s{number}")
    unit = select(totals, frame.name("left"), f"GROUP BY {', '.join(frame.unit)}")
    parts = [f"{call('least', 'n', most)} AS n"]
    for number in numbers:
        kept = call("least", f"n{number}", most)
        # DuckDB may divide before CASE decides, and 2.0 fails where it divides by 0.
        divisor = call("greatest", f"n{number}", "1")
        share = call("//", call("*", call("abs", f"s{number}"), cast(kept, "HUGEINT")), divisor)
        signed = f"CASE WHEN s{number} < 0 THEN {call('-', share)} ELSE {share} END"
        parts.append(f"{kept} AS n{number}")
        parts.append(f"CASE WHEN n{number} > 0 THEN {signed} ELSE 0 END AS s{number}")
    note = f"What each unit has beyond its limits, cut to {most} rows in proportion: as much as counts of it."
    yield Step("beyond", note, select(parts, f"({unit})"))
    sums = [f"{call('count_star')} AS units", f"{coalesce(call('sum', 'n'), '0')} AS n"]
    for number in numbers:
        sums += [f"{coalesce(call('sum', f'{name}{number}'), '0')} AS {name}{number}" for name in ("n", "s")]
    yield Step("fallen", "What fell away: units, rows, and sums of values.", select(sums, frame.name("beyond")))


def recorded(frame: GroupedFrame, rows: str, totals: Sequence[str]) -> Step:
    """Return the step of the records of groups, and two more: of the rows that fell away, and of their units."""
    keys, fallen_rows = [*frame.keys, *frame.cell], frame.name("fallen")
    nothing = [f"0 AS {name}" for name in keys]
    of_rows = [name if name[:1] in "ns" and not name.startswith("ss") else f"0 AS {name}" for name in totals]
    of_units = ["units AS n", *(f"0 AS {name}" for name in totals if name != "n")]
    queries = (
        select([f"{GROUP} AS {RECORD}", *keys, *totals], rows),
        select([f"{ROWS} AS {RECORD}", *nothing, *of_rows], fallen_rows),
        select([f"{UNITS} AS {RECORD}", *nothing, *of_units], fallen_rows),
    )
    note = "The sums of groups, and as two more records what fell away."
    return Step("recorded", note, "\n  UNION ALL BY NAME\n  ".join(queries))
