"""Limits on rows by their owner: rows are put in order only where an owner has more of them than count.

To put all rows in the order of what they hold, owner by owner, takes most of the time of a call. But a sample of so
many rows is all rows of whoever has no more. So the rows are kept once, their numbers are counted, and only those of
owners with more are put in order and sampled. Which rows of an owner count is what it was: a function of its own rows
and the key of the call. The rows are read once, so what is counted is what is handed over, whatever a file does
meanwhile; and keys that are NULL are one owner in all three steps.

**What is left out.** The rows beyond the limits, unit by unit and cut, see `dpsql.statistics.left_out`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpsql.engines.duckdb.steps.step import Frame, GroupedFrame, Step, select
from dpsql.functions.grouped.left_out import GROUP, RECORD, ROWS, UNITS
from dpsql.rendering import call, cast, coalesce

# With fewer rows that count, most owners have more, and one order of all rows is faster.
_FEW = 8


@dataclass(frozen=True)
class Cap:
    """A limit.

    Attributes
    ----------
    condition : str
        SQL of whether a row counts, by windows over all rows of its owner.
    owner : tuple of str
        Columns; none where rows of several owners are compared.
    most : int or str
        How many rows of an owner count, or SQL of that.
    """

    condition: str
    owner: tuple[str, ...] = ()
    most: int | str = 0

    @property
    def divides(self) -> bool:
        """Whether it is worth to tell owners with more rows apart."""
        return bool(self.owner) and (isinstance(self.most, str) or self.most >= _FEW)


def within(frame: Frame, name: str, cap: Cap, rows: str, flag: str = "") -> tuple[list[Step], str]:
    """Return the steps before a limit, and the query of the rows that count.

    Parameters
    ----------
    frame : Frame
    name : str
        Of the limit, for the names of its steps.
    cap : Cap
    rows : str
        FROM item of all rows.
    flag : str
        With it all rows stay, and a column of this name says whether they count.
    """
    chosen = f"SELECT *, ({cap.condition}) AS {flag}\n  FROM {{rows}}" if flag else (
        f"SELECT * FROM {{rows}}\n  QUALIFY {cap.condition}"
    )  # fmt: skip
    if not cap.divides:
        return [], chosen.format(rows=rows)
    whole, above = frame.name(f"{name}rows"), frame.name(f"{name}above")
    owner = ", ".join(cap.owner)
    counted = f"SELECT {owner} FROM {whole}\n  GROUP BY {owner} HAVING {call('count_star')} > {cap.most}"
    steps = [
        Step(f"{name}rows", "The rows of all owners, read once.", f"SELECT * FROM {rows}", kept=True),
        Step(f"{name}above", "The owners with more rows than count: only these are put in order.", counted, kept=True),
    ]
    light, heavy = (_joined(word, whole, above, cap.owner) for word in ("ANTI", "SEMI"))
    all_of_them = f"SELECT *, true AS {flag} FROM {light}" if flag else f"SELECT * FROM {light}"
    return steps, f"{all_of_them}\n  UNION ALL\n  {chosen.format(rows=heavy)}"


def _joined(word: str, rows: str, owners: str, columns: Sequence[str]) -> str:
    equal = " AND ".join(f"one.{column} IS NOT DISTINCT FROM other.{column}" for column in columns)
    return f"(SELECT * FROM {rows} AS one {word} JOIN {owners} AS other ON {equal})"


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
