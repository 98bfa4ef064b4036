"""The keys and values of rows: hidden from the planner's statistics, and integers within bounds that may be drawn.

Row limits sort only the rows of owners that exceed the limit. Sorting all rows by contents, owner by owner, takes most
of a call's time, but a sample is all rows of an owner within the limit. So the rows are stored once and counted, and
only rows of owners over the limit are sorted and sampled. The choice of an owner's rows stays a function of its own
rows and the call's key. The rows are read once, so the counted rows are the rows that are handed over, even if a file
changes meanwhile; and NULL keys are one owner in all three steps.

Rows over the limits are also recorded, unit by unit and cut, see `dpsql.statistics.aggregates`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpsql.engines.duckdb.keys import FLOATS, identity, key, sampled
from dpsql.engines.duckdb.steps.rows import batches, turn, units
from dpsql.engines.duckdb.steps.step import ITEM, Frame, GroupedFrame, Step, rows_of, select
from dpsql.functions.grouped.left_out import GROUP, RECORD, ROWS, UNITS
from dpsql.functions.query_vector import DisjointPlan, PairsPlan, half_units
from dpsql.rendering import call, cast, coalesce, double, field, plus, struct, text
from dpsql.statistics.aggregates import ValueBlock

# If fewer rows count, most owners have more, and one sort of all rows is faster.
_FEW = 8


@dataclass(frozen=True)
class Cap:
    """A limit.

    Attributes
    ----------
    condition : str
        SQL that tells whether a row counts, by windows over all rows of its owner.
    owner : tuple of str
        Columns; none if rows of several owners are compared.
    most : int or str
        Row limit per owner, or its SQL.
    """

    condition: str
    owner: tuple[str, ...] = ()
    most: int | str = 0

    @property
    def divides(self) -> bool:
        """Whether telling apart owners with more rows pays."""
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
        If given, all rows stay, and a column of this name says whether they count.
    """
    chosen = f"SELECT *, ({cap.condition}) AS {flag}\n  FROM {{rows}}" if flag else (
        f"SELECT * FROM {{rows}}\n  QUALIFY {cap.condition}"
    )  # fmt: skip
    if not cap.divides:
        return [], chosen.format(rows=rows)
    relation, above = frame.name(f"{name}rows"), frame.name(f"{name}above")
    owner = ", ".join(cap.owner)
    counted = f"SELECT {owner} FROM {relation}\n  GROUP BY {owner} HAVING {call('count_star')} > {cap.most}"
    steps = [
        Step(f"{name}rows", "The rows of all owners, read once.", f"SELECT * FROM {rows}", is_materialized=True),
        Step(
            f"{name}above",
            "The owners with more rows than count: only these are put in order.",
            counted,
            is_materialized=True,
        ),
    ]
    light, heavy = (_joined(word, relation, above, cap.owner) for word in ("ANTI", "SEMI"))
    all_of_them = f"SELECT *, true AS {flag} FROM {light}" if flag else f"SELECT * FROM {light}"
    return steps, f"{all_of_them}\n  UNION ALL\n  {chosen.format(rows=heavy)}"


def _joined(word: str, rows: str, owners: str, columns: Sequence[str]) -> str:
    equal = " AND ".join(f"one.{column} IS NOT DISTINCT FROM other.{column}" for column in columns)
    return f"(SELECT * FROM {rows} AS one {word} JOIN {owners} AS other ON {equal})"


# The column that says whether a row counts.
COUNTS = "counts"


def flagged(frame: GroupedFrame, rows: str, caps: Sequence[Cap], note: str) -> Iterator[Step]:
    """Yield the steps of rows that count and rows that do not; each limit reads the rows within the last one.

    If units have many rows, most rows exceed the first limit, so the other limits sort few.
    """
    fallen = []
    for number, cap in enumerate(caps, start=1):
        before, chosen = within(frame, f"limit{number}", cap, rows, COUNTS)
        yield from before
        yield Step(
            f"flagged{number}",
            f"{note} Whether a row meets the limit of number {number}.",
            chosen,
            is_materialized=True,
        )
        relation = frame.name(f"flagged{number}")
        rows = f"(SELECT * EXCLUDE ({COUNTS}) FROM {relation} WHERE {COUNTS})"
        fallen.append(select([*frame.unit, *frame.codes], relation, f"WHERE NOT {COUNTS}"))
    yield Step("kept", "The rows that count.", f"SELECT * FROM {rows}")
    yield Step("left", "The rows beyond one of the limits.", "\n  UNION ALL\n  ".join(fallen))


def apart(frame: GroupedFrame) -> Iterator[Step]:
    """Yield the steps that sum the rows that do not count: unit by unit and cut, then all."""
    most = str(frame.plan.contribution.rows)
    numbers = range(len(frame.codes))
    totals = [f"{call('count_star')} AS n"]
    for number, code in zip(numbers, frame.codes, strict=True):
        totals.append(f"{call('count', code)} AS n{number}")
        totals.append(f"{cast(call('sum', code), 'HUGEINT')} AS s{number}")
    unit = select(totals, frame.name("left"), f"GROUP BY {', '.join(frame.unit)}")
    parts = [f"{call('least', 'n', most)} AS n"]
    for number in numbers:
        count = call("least", f"n{number}", most)
        # DuckDB may divide before CASE decides; 2.0 fails on division by 0.
        divisor = call("greatest", f"n{number}", "1")
        share = call("//", call("*", call("abs", f"s{number}"), cast(count, "HUGEINT")), divisor)
        signed = f"CASE WHEN s{number} < 0 THEN {call('-', share)} ELSE {share} END"
        parts.append(f"{count} AS n{number}")
        parts.append(f"CASE WHEN n{number} > 0 THEN {signed} ELSE 0 END AS s{number}")
    note = f"What each unit has beyond its limits, cut to {most} rows in proportion: as much as counts of it."
    yield Step("beyond", note, select(parts, f"({unit})"))
    sums = [f"{call('count_star')} AS units", f"{coalesce(call('sum', 'n'), '0')} AS n"]
    for number in numbers:
        sums += [f"{coalesce(call('sum', f'{name}{number}'), '0')} AS {name}{number}" for name in ("n", "s")]
    yield Step("fallen", "What fell away: units, rows, and sums of values.", select(sums, frame.name("beyond")))


def recorded(frame: GroupedFrame, rows: str, totals: Sequence[str]) -> Step:
    """Return the step of the group records, plus two: of the rows that do not count, and of their units."""
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


def bounds_pass(frame: GroupedFrame) -> Iterator[Step]:
    """Yield the steps that hand over the values of all rows, within the limit of each unit.

    Rows of all groups count, and each unit's sample has the size that its limits allow over all groups.
    """
    columns = enumerate(frame.plan.value_parts)
    parts = [f"{frame.number(part)} AS v{position}" for position, part in columns]
    values = {f"v{position}": f"v{position}" for position in range(len(parts))}
    condition, note = f"WHERE {frame.opening_ticket} IS NOT NULL", "The values of all rows, to draw bounds from"
    if frame.has_unit:
        parts += units(frame)
        condition += " AND dpsql_unit IS NOT NULL"
    rows = select(parts, rows_of(frame), condition)
    if frame.has_unit:
        most = frame.plan.max_rows_per_unit if frame.drawing is None else frame.most_of_unit
        cap = Cap(sampled(frame.place_of(*frame.unit), list(frame.unit), list(values), most), frame.unit, most)
        before, rows = within(frame, "scan", cap, f"({rows})")
        yield from before
        note += f": of each unit at most {'what is drawn' if frame.drawing else most}, sampled by a keyed hash"
    yield Step("scanned", f"{note}.", rows)
    yield batches(frame, 1, frame.name("scanned"), frame.ticket, struct(values))


def bounds_alone(frame: GroupedFrame) -> Iterator[Step]:
    """Yield the steps of a part of a query that draws bounds for others."""
    yield from bounds_pass(frame)
    yield turn(frame, 1)
    yield Step("statistic", "The bounds are drawn.", "SELECT CAST(NULL AS BIGINT) AS s, 0 AS j WHERE false")


def drawn_bounds(frame: GroupedFrame) -> Iterator[Step]:
    """Yield the steps that read the coding of values, after this or another part has drawn the bounds."""
    if frame.bounding is None:
        yield turn(frame, 1)
    else:
        learned = call("dpsql_learn_bounds", frame.checked_ticket, frame.bounding.closing_ticket)
        note = "The bounds are those that another part has drawn. Every scan below waits for this ticket."
        yield Step("bounded", note, f"SELECT {learned} AS ticket", is_materialized=True)
    coded = call("dpsql_drawn_codes", frame.coding_ticket)
    note = "The private bounds of each column, and how its values are coded within them."
    yield Step("drawn", note, f"SELECT {coded} AS drawn", is_materialized=True)


# A unit's sum saturates far beyond any bounds; 2**47 rows fit into 128 bits.
_WIDEST_VALUE = 2.0**80


def opened(frame: GroupedFrame) -> Step:
    """Return the step of every row's key, and its values in a form without planner statistics.

    With private bounds, rows wait until the bounds are drawn.
    """
    plan, zero, parts = frame.plan, "dpsql_zero", []
    for column in frame.columns:
        parts.append(f"{key(field('dpsql_row', f'k{column}'), zero)} AS k{column}")
    for position, block in enumerate(plan.target_blocks):
        target = f"t{position}"
        is_number = block is not None or isinstance(plan, DisjointPlan)
        if _is_coded_whole(frame, position):
            opaque = _scaled(frame, position, zero)
        else:
            opaque = frame.number(target, zero) if is_number else _presence(field("dpsql_row", target), zero)
        parts.append(f"{opaque} AS v{position}")
    condition = "WHERE dpsql_ticket IS NOT NULL"
    if frame.has_unit:
        parts += units(frame)
        condition += " AND dpsql_unit IS NOT NULL"
    if plan.counts_items:
        item = field("dpsql_row", "d0")
        parts += [f"{expression} AS {name}" for expression, name in zip(identity(item), ITEM, strict=True)]
        condition += f" AND {item} IS NOT NULL"
    if plan.derived is not None:
        parts.append(f"{frame.number('v0', zero)} AS number")
    # One row joined to all others: every subquery in the columns would be a separate join.
    constants = f"(SELECT {frame.coding_ticket} AS dpsql_ticket, {frame.zero} AS {zero})"
    rows = select(parts or ["true AS counted"], f"{rows_of(frame)} CROSS JOIN {constants}", condition)
    if plan.derived is not None and frame.is_bounded:
        rows = f"SELECT * FROM ({rows}) CROSS JOIN {frame.name('drawn')}"
    return Step(
        "opened",
        "The key and the values of every row. The gate adds 0 to values, which hides them from column statistics.",
        rows if plan.derived is None else plan.derived.query(rows),
    )


def valued(frame: GroupedFrame) -> Step:
    """Return the step of the rows with their values coded."""
    values = [f"v{position}" for position in range(len(frame.plan.targets))]
    codes = [f"{_code(frame, position)} AS q{position}" for position in range(len(values))]
    rows, left_out = frame.name("opened"), values
    if frame.is_bounded and frame.plan.derived is None:
        rows, left_out = f"{rows} CROSS JOIN {frame.name('drawn')}", [*values, "drawn"]
    if isinstance(frame.plan, PairsPlan):
        rows = f"(SELECT * REPLACE ({', '.join(_of_pairs(frame.plan))}) FROM {rows})"
    if isinstance(frame.plan, DisjointPlan):
        rows = f"(SELECT * REPLACE ({', '.join(_cells(len(values)))}) FROM {rows})"
    others = [f"* EXCLUDE ({', '.join(left_out)})" if values else "*"]
    if not (frame.identities or frame.has_unit) and values:
        others = []
    note = "The values in fixed point, within their bounds; NULL and NaN have none." if values else "No values."
    return Step("valued", note, select([*others, *codes], rows))


def _is_coded_whole(frame: GroupedFrame, position: int) -> bool:
    """Whether the codes of all values, even beyond the bounds, are computed first and clipped afterwards.

    This makes one pass of each operation over whole vectors of rows; a CASE would gather the rows of each branch. The
    codes are the same if the bounds' own codes are at the limits or beyond, because rounding keeps order.
    """
    plan, block = frame.plan, frame.plan.target_blocks[position]
    special = isinstance(plan, (DisjointPlan, PairsPlan)) or plan.derived is not None
    if block is None or special or plan.merges_units or plan.is_drawn(position):
        return False
    low, high = _end_codes(block)
    return low <= block.limits[0] and block.limits[1] <= high


def _scaled(frame: GroupedFrame, position: int, zero: str) -> str:
    """Return a value in units of its code, rounded and not clipped; add the gate's zero to the middle, once."""
    block = frame.plan.target_blocks[position]
    if block is None:
        raise TypeError("a target without values")
    middle, scale = map(double, block.affine)
    value = f"TRY_CAST({field('dpsql_row', f't{position}')} AS DOUBLE)"
    moved = call("-", value, plus(middle, zero))
    return call("floor", plus(call("*", moved, scale), double(0.5)))


def _code(frame: GroupedFrame, position: int) -> str:
    """Return the code of a target; NULL without a value."""
    value, block = f"v{position}", frame.plan.target_blocks[position]
    if block is None:
        return value
    middle, scale = block.affine
    if frame.plan.merges_units:
        wide = call("*", value, double(scale))
        bounded = call("least", call("greatest", wide, double(-_WIDEST_VALUE)), double(_WIDEST_VALUE))
        code = cast(call("floor", plus(bounded, double(0.5))), "HUGEINT")
        return f"CASE WHEN NOT {call('isnan', value)} THEN {code} END"
    if _is_coded_whole(frame, position):
        low, high = map(str, block.limits)
        beyond = f"CASE WHEN NOT {call('isnan', value)} THEN {high} END"
        return (
            f"CASE WHEN {value} > {double(block.limits[1])} THEN {beyond} WHEN {value} < {double(block.limits[0])} "
            f"THEN {low} ELSE TRY_CAST({value} AS INTEGER) END"
        )
    is_drawn = frame.plan.is_drawn(position)
    if is_drawn:
        lower, upper, shift, factor, low, high = _column_bounds(
            position, "lower", "upper", "middle", "scale", "low", "high"
        )
    else:
        low, high = map(str, block.limits)
        lower, upper, shift, factor = map(double, (block.lower, block.upper, middle, scale))
    moved = value if middle == 0 and not is_drawn else call("-", value, shift)
    code = f"TRY_CAST({call('floor', plus(call('*', moved, factor), double(0.5)))} AS INTEGER)"
    if is_drawn or not _keeps_limits(block):
        code = call("least", call("greatest", code, low), high)
    return (
        f"CASE WHEN {value} BETWEEN {lower} AND {upper} THEN {code} WHEN {value} < {lower} THEN {low} "
        f"WHEN {value} > {upper} AND NOT {call('isnan', value)} THEN {high} END"
    )


def _column_bounds(position: int, *names: str) -> list[str]:
    """Return a column's coding, after its bounds are drawn."""
    bounds = call("list_extract", "drawn", str(position + 1))
    return [field(bounds, name) for name in names]


def _cells(count: int) -> Iterator[str]:
    """Yield 0 for the first of `count` values that is 1, and NULL for all others.

    So any row is in at most one cell: disjoint counts have the sensitivity of one count.
    """
    for cell in range(count):
        before = "".join(f"WHEN v{other} >= 0.5 THEN NULL " for other in range(cell))
        yield f"CASE {before}WHEN v{cell} >= 0.5 THEN 0 END AS v{cell}"


def _of_pairs(plan: PairsPlan) -> Iterator[str]:
    """Yield three numbers per pair of columns, each in [-1, 1], instead of its values; NULL if one is NULL.

    They are the first and the second value, in half widths of their bounds from the middle, and the mean of both.
    """
    for number, pair in enumerate(plan.pairs):
        values = [f"v{3 * number}", f"v{3 * number + 1}"]
        condition = " AND ".join(f"{value} IS NOT NULL AND NOT {call('isnan', value)}" for value in values)
        units = []
        for value, name in zip(values, pair, strict=True):
            if name in plan.unbounded:
                lower, upper, middle, half = _column_bounds(
                    plan.unbounded.index(name), "lower", "upper", "middle", "scale"
                )
            else:
                code = half_units(*plan.bounds_of[name])
                lower, upper, middle, half = map(double, (code.lower, code.upper, code.middle, code.scale))
            clipped = call("least", call("greatest", value, lower), upper)
            units.append(call("/", call("-", clipped, middle), half))
        units.append(call("/", call("+", *units), double(2.0)))
        for index, unit in enumerate(units):
            yield f"CASE WHEN {condition} THEN {unit} END AS v{3 * number + index}"


def _presence(column: str, zero: str) -> str:
    """Return 0 if a column has a value, and NULL if it is NULL or NaN."""
    is_float = f"{call('typeof', column)} IN ({', '.join(map(text, FLOATS))})"
    number = plus(f"TRY_CAST({cast(column, 'VARCHAR')} AS DOUBLE)", zero)
    return f"CASE WHEN {column} IS NULL OR ({is_float} AND {call('isnan', number)}) THEN NULL ELSE 0 END"


def _keeps_limits(block: ValueBlock) -> bool:
    """Whether values within the bounds have codes within the limits: the same arithmetic keeps their order."""
    low, high = _end_codes(block)
    return block.limits[0] <= low and high <= block.limits[1]


def _end_codes(block: ValueBlock) -> tuple[int, int]:
    """Return the codes of the bounds, before clipping."""
    middle, scale = block.affine
    low, high = (math.floor((value - middle) * scale + 0.5) for value in (block.lower, block.upper))
    return low, high
