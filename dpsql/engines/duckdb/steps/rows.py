"""The keys and values of rows, the rows that count, and the passes that hand them to the call's collector.

Scores are counted by label and cell: the only statistic that SQL counts by comparing values.

If a query draws its row limit, the module hands over the row count of every unit and waits for the limit. A unit's
rows have its identity, which includes the period; so every unit has one value, whatever others have. No other part of
the core reads a row before the limit is drawn.

Cells of long rows are read once. They become one row for each row id, or sums of products with a target.

Values are hidden from the planner's statistics, and are integers within bounds that may be drawn.

**Row limits** sort only the rows of owners that exceed the limit. Sorting all rows by contents, owner by owner, takes
most of a call's time, but a sample is all rows of an owner within the limit. So the rows are stored once and counted,
and only rows of owners over the limit are sorted and sampled. The choice of an owner's rows stays a function of its own
rows and the call's key. The rows are read once, so the counted rows are the rows that are handed over, even if a file
changes meanwhile; and NULL keys are one owner in all three steps. The rows are chosen once for all passes of a call,
which read what is stored: a pass never reads the source again.

Rows over the limits are also recorded, unit by unit and cut, see `dpsql.statistics.aggregates`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dpsql.contract.call import LONG_POSITIONS, LONG_TARGET, LONG_VALUES
from dpsql.contract.plan import COLLECTED
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.keys import (
    FLOATS,
    block_hash,
    exact_text,
    first_rows,
    identity,
    key,
    order_by,
    partition_by,
    place_hash,
    sampled,
    text_bytes,
)
from dpsql.engines.duckdb.steps.step import ITEM, UNIT, Frame, GroupedFrame, Step, rows_of, select
from dpsql.functions.grouped.left_out import GROUP, RECORD, ROWS, UNITS
from dpsql.functions.query import DisjointPlan, PairsPlan, half_units
from dpsql.functions.query_rows import STEPS, step_of
from dpsql.functions.roc import ScorePlan
from dpsql.functions.sis import SisPlan
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.rendering import call, cast, coalesce, double, field, plus, struct, text
from dpsql.statistics.aggregates import ValueBlock


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
    sort_keys : tuple of str
        SQL of the columns ``place1``, ``place2``, … that the condition orders by. Only rows of owners with more rows
        have them. They are columns, because DuckDB 2.0 accepts nothing volatile in a window's order.
    """

    condition: str
    owner: tuple[str, ...] = ()
    most: int | str = 0
    sort_keys: tuple[str, ...] = ()

    @property
    def divides(self) -> bool:
        """Whether only rows of owners with more rows are put in order."""
        return bool(self.owner)


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
    if not cap.divides:
        return [], _chosen(cap, rows, flag)
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
    return steps, f"{all_of_them}\n  UNION ALL\n  {_chosen(cap, heavy, flag)}"


def _chosen(cap: Cap, rows: str, flag: str) -> str:
    if flag:
        return f"SELECT *, ({cap.condition}) AS {flag}\n  FROM {rows}"
    if not cap.sort_keys:
        return f"SELECT * FROM {rows}\n  QUALIFY {cap.condition}"
    names = [f"place{number}" for number in range(1, len(cap.sort_keys) + 1)]
    placed = ", ".join(f"{key_sql} AS {name}" for key_sql, name in zip(cap.sort_keys, names, strict=True))
    return f"SELECT * EXCLUDE ({', '.join(names)}) FROM (SELECT *, {placed} FROM {rows})\n  QUALIFY {cap.condition}"


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
        rows = f"(SELECT * REPLACE ({', '.join(_exclusive_cells(len(values)))}) FROM {rows})"
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


def _exclusive_cells(count: int) -> Iterator[str]:
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


# The key of rows if no block or sample depends on it.
NO_KEY = "NULL::UBIGINT"
_IDS = {"unit": "dpsql_unit", "row": "dpsql_row_id"}


def identities(*parts: str) -> list[str]:
    """Return the columns that identify the unit, or the row, as a number and bytes; `parts` are ``'unit'``, ``'row'``.

    They are computed here, once per row, and have these names from then on.
    """
    columns = []
    for part in parts:
        number, data = identity(_IDS[part])
        columns += [f"{number} AS {part}_number", f"{data} AS {part}_bytes"]
    return columns


def units(frame: Frame) -> list[str]:
    """Return the columns that identify a row's unit, named as `Frame.unit`."""
    return [f"{cast(_IDS['unit'], 'BIGINT')} AS {UNIT[0]}"] if frame.is_numbered else identities("unit")


def owner(part: str) -> tuple[str, str]:
    """Return the names of the columns of `identities`."""
    return f"{part}_number", f"{part}_bytes"


def _unit(frame: Frame) -> tuple[str, str]:
    """Return the number and the bytes of a row's unit, from the columns of `units`."""
    return (UNIT[0], "''::BLOB") if frame.is_numbered else owner("unit")


def _first_of_units(frame: Frame, unit: tuple[str, ...], *sort_keys: str) -> Cap:
    """Return the limit that keeps the first rows of each unit by their places.

    BETWEEN, since DuckDB 2.0 makes an aggregate of a comparison with one end, which takes twice the time.
    """
    window = f"{partition_by(list(unit))} {order_by([f'place{number}' for number in range(1, len(sort_keys) + 1)])}"
    most = frame.most_of_unit
    return Cap(f"{call('row_number')} OVER ({window}) BETWEEN 1 AND {most}", unit, most, sort_keys)


def chosen(frame: Frame) -> Iterator[Step]:
    """Yield the steps that choose the rows of each privacy unit that count, once for all passes.

    Only rows with equal contents can tie, and these are interchangeable. A row's columns are those of `counted`.
    """
    if frame.plan.layout.privacy_unit is None:
        return
    columns, order = ["dpsql_row", *units(frame)], []
    contents = call("dpsql_contents", frame.ticket, "dpsql_row")
    if frame.plan.layout.row_id is not None:  # contents distinguish rows with one id
        columns += identities("row")
        order = [place_hash(frame.ticket, owner("row"))]
    condition = f"WHERE {frame.ticket} IS NOT NULL AND dpsql_unit IS NOT NULL"
    cap = _first_of_units(frame, frame.unit, *order, contents)
    steps, rows = within(frame, "unit", cap, f"({select(columns, rows_of(frame), condition)})")
    yield from steps
    yield Step("chosen", f"The rows that count.{_cap(frame)}", rows, is_materialized=frame.plan.readings > 1)


def counted(frame: Frame, name: str, ticket: str, *, keyed: bool) -> Step:
    """Return the step of the rows of a pass, of each privacy unit those that `chosen` kept.

    Rows are `keyed` if a later step sorts them into blocks.
    """
    layout, note, condition = frame.plan.layout, "The rows that count", f"WHERE {ticket} IS NOT NULL"
    if layout.privacy_unit is None:
        ids = identities("row") if layout.row_id is not None and keyed else []
        rows = select(["dpsql_row", *ids], rows_of(frame), condition)
    else:
        rows = select(["*"], frame.name("chosen"), condition)
    most = frame.opening.most_rows
    if most is not None:
        # Equal rows must not be kept or dropped together, so each gets its own random numbers. DuckDB's numbers are
        # unsafe: the caller can set their seed.
        draw = call("dpsql_random", frame.ticket)
        rows = first_rows(rows, most, draw, draw)
        note += f"; at most {most} in all, at random"
    return Step(name, f"{note}.", rows)


def block_key(frame: Frame) -> str:
    """Return 64 bits of the hash that decides a row's block: of its unit, its row id, its contents, or NULL.

    The hash uses contents, not a random number, if a row must be in the same block in every pass.
    """
    layout = frame.plan.layout
    if layout.privacy_unit is not None:
        return block_hash(frame.ticket, _unit(frame))
    contents = block_hash(frame.ticket, call("dpsql_contents", frame.ticket, "dpsql_row"))
    if layout.row_id is not None:
        key = block_hash(frame.ticket, owner("row"))
        return coalesce(key, contents) if layout.kind != "long" else key  # a row may lack an id
    return contents if frame.opening.keyed else NO_KEY


def parts_of_rows(frame: Frame, part: str, position: str, parts: int) -> str:
    """Return the query of each row's part and position, because DuckDB may change the order of rows.

    All rows of a unit or a block are in one part; rows without a unit are in none. `part` and `position` name the
    columns of the result.
    """
    layout = frame.plan.layout
    holder = "row" if layout.privacy_unit is None else "unit"
    key = block_key(frame)
    if frame.blocks:
        key = call("%", key, f"{frame.blocks}::UBIGINT")
    number = f"CAST({call('%', key, f'{parts}::UBIGINT')} AS BIGINT)"
    if layout.privacy_unit is not None or layout.kind == "long":
        number = f"CASE WHEN {_IDS[holder]} IS NOT NULL THEN {number} END"
    columns = ["dpsql_row", _IDS[holder], position, *identities(holder)]
    source = rows_of(frame, filtered=False, also=(position,))
    return select([f"{number} AS {part}", position], f"({select(columns, source)})")


# Up to this many columns, one thread hands rows over faster, or at less cost, than several.
_FEW_COLUMNS = 17


def in_passes(frame: Frame) -> Iterator[Step]:
    """Yield the steps of all the call's passes over the rows, and the statistic."""
    if frame.plan.layout.kind != "long":
        yield from chosen(frame)
    if frame.only is not None:
        yield from _pass(frame, frame.only, frame.ticket)
        yield statistic(frame, frame.only)
        return
    ticket, last = frame.ticket, frame.plan.readings
    for number in range(1, last):
        yield from _pass(frame, number, ticket)
        yield turn(frame, number)
        ticket = frame.ticket_of(f"turn{number}")
    yield from _pass(frame, last, ticket)
    yield statistic(frame, last)


def _pass(frame: Frame, number: int, ticket: str) -> Iterator[Step]:
    """Yield the steps of one pass over the rows, which waits for its ticket."""
    plan, is_long = frame.plan, frame.plan.layout.kind == "long"
    key = block_key(frame) if is_long or frame.opening.keyed or frame.blocks else NO_KEY
    if is_long:
        parts = {LONG_TARGET: "target", LONG_POSITIONS: "js"}
        if plan.statement == COLLECTED:
            parts[LONG_VALUES] = "vs"
        gathered = f"{frame.name('gathered')} WHERE {ticket} IS NOT NULL"
        rows = f"(SELECT {struct(parts)} AS dpsql_row, {key} AS key FROM {gathered})"
    else:
        yield counted(frame, f"rows{number}", ticket, keyed=True)
        rows = f"(SELECT dpsql_row, {key} AS key FROM {frame.name(f'rows{number}')})"
    arguments, note = ["dpsql_row"], "Every row"
    if key != NO_KEY:
        arguments.append("key")
        note += ", with the keyed hash that decides its block"
    if frame.blocks:
        block = call("%", "key", f"{frame.blocks}::UBIGINT")
        rows = f"(SELECT dpsql_row, {block} AS key FROM {rows})"
        rows = f"(SELECT *, {call('count_star')} OVER (PARTITION BY key) AS size FROM {rows})"
        arguments.append("size")
        note += ", block by block, and the number of rows in the block"
    columns = ", ".join(arguments)
    if _in_one_thread(frame):
        rows = f"(SELECT {columns}, {call('row_number')} OVER () AS position FROM {rows})\n  WHERE position > 0"
        note += "; rows are numbered, so that one thread hands them over"
    yield Step(f"keyed{number}", f"{note}.", f"SELECT {columns}\n  FROM {rows}")
    yield batches(frame, number, frame.name(f"keyed{number}"), ticket, *arguments)


def batches(frame: Frame, number: int, rows: str, ticket: str, *arguments: str) -> Step:
    """Return the step that hands rows to a pass's collector, and returns the numbers of its batches."""
    collect = call("dpsql_collect", ticket, *arguments)
    return Step(
        f"parts{number}",
        "Add up each batch of rows in exact integers; what is left here is the batch's number.",
        f"SELECT s\n  FROM (SELECT {collect} AS s FROM {rows})\n  WHERE s IS NOT NULL",
    )


def turn(frame: Frame, number: int) -> Step:
    """Return the step that ends a pass and passes its ticket on; a single pass follows one that ended."""
    ticket = frame.ticket
    if frame.only is None:
        numbers = f"(SELECT {call('list', 's')} FROM {frame.name(f'parts{number}')})"
        before = frame.opening_ticket if number == 1 else frame.ticket_of(f"turn{number - 1}")
        ticket = call("dpsql_turn", before, str(number), numbers)
    note = "Draw what the next pass over the rows needs, which the call pays for."
    return Step(f"turn{number}", note, f"SELECT {ticket} AS ticket", is_materialized=True)


def statistic(frame: Frame, last: int) -> Step:
    """Return the statistic, the numbers of a pass's batches."""
    note = "The exact statistic is with the collector; here are the numbers of the batches that it took in."
    return Step("statistic", note, f"SELECT s, s AS j FROM {frame.name(f'parts{last}')}")


def _in_one_thread(frame: Frame) -> bool:
    """Whether one thread hands all rows over, because more threads would only wait for Python's lock.

    DuckDB numbers rows in one thread. Every number is positive; comparing them keeps them in the plan.
    """
    plan = frame.plan
    columns = plan.row_columns
    few = columns is not None and len(columns) <= _FEW_COLUMNS
    return plan.adds_fast and few and plan.layout.kind == "wide" and plan.layout.privacy_unit is None


def _scored(frame: Frame) -> Iterator[Step]:
    """Yield the steps of every row's label and score.

    Each score adds the gate's zero. This does not change the score (except -0.0 to 0.0), but the zero comes from a
    volatile function at run time, so DuckDB has no statistics of the sum and cannot decide a comparison with it at
    planning time. DuckDB could decide one for any function of the column alone, even `isnan`, if a Parquet file
    declares equal minimum and maximum.
    """
    layout = frame.plan.layout
    label, score = (field("dpsql_row", name) for name in (layout.target, *(layout.features or ())))
    opaque = plus(f"TRY_CAST({score} AS DOUBLE)", frame.zero)
    yield from chosen(frame)
    yield counted(frame, "rows", frame.ticket, keyed=False)
    note = "Label and score of every row. The gate adds 0 to each score, which hides it from column statistics."
    yield Step("scored", note, select([f"{label} AS label", f"{opaque} AS score"], frame.name("rows")))


def _grouped_labels(frame: Frame, columns: list[str], values: list[str], notes: tuple[str, str]) -> Iterator[Step]:
    """Yield the steps that group scored rows by label and find its level; `values` are of a group.

    Few functions see single rows: labels are judged once per group. If the levels are texts, labels may be texts too;
    they are also grouped by their bytes, so that no collation merges two labels.
    """
    texts = isinstance((frame.plan.target_levels or (None,))[0], str)
    exact = [f"{text_bytes('label')} AS exact"] if texts else []
    grouped, judged = notes
    yield Step("groups", grouped, select(["label", *exact, *columns], frame.name("scored"), "GROUP BY ALL"))
    target = call("dpsql_target", frame.ticket, struct({frame.plan.layout.target: "label"}))
    yield Step("judged", judged, select([f"{target} AS target", *values], frame.name("groups")))


def compared(frame: Frame) -> Iterator[Step]:
    """Yield the steps that gather the scores of both classes and compare them pair by pair."""
    plan = frame.plan
    if not isinstance(plan, ScorePlan):
        raise TypeError("the statistic is of another plan")
    yield from _scored(frame)
    low, high, missing = map(double, (plan.lower, plan.upper, plan.missing_score))
    clipped = (
        f"CASE WHEN score BETWEEN {low} AND {high} THEN score WHEN score < {low} THEN {low} "
        f"WHEN score > {high} AND NOT {call('isnan', 'score')} THEN {high} ELSE {missing} END"
    )
    notes = "Gather the scores of each label.", "Say which of the two public levels a label is; others count not."
    yield from _grouped_labels(frame, [f"{call('list', clipped)} AS scores"], ["scores"], notes)
    none = cast(call("list_value"), "DOUBLE[]")
    both = [
        coalesce(call("flatten", f"{call('list', 'scores')} FILTER (WHERE target {sign} 0)"), none) for sign in "<>"
    ]
    numbers = call("dpsql_concordance", frame.ticket, *both)
    yield Step(
        "concordance",
        "How many more pairs of both classes are in the right order than in the wrong one; and the rows of both.",
        select([f"{numbers} AS numbers"], frame.name("judged")),
    )
    listed = f"{call('unnest', call('range', '3'))} AS j", f"{call('unnest', 'numbers')}::HUGEINT AS s"
    yield Step("statistic", "The exact integers. They never leave.", select([*listed], frame.name("concordance")))


def counts(frame: Frame) -> Iterator[Step]:
    """Yield the steps that count rows by label and cell, including cells without rows."""
    plan = frame.plan
    if not isinstance(plan, ScorePlan):
        raise TypeError("the statistic is of another plan")
    yield from _scored(frame)
    cells, count = plan.cells, plan.cells.count
    [missing] = cells.of(np.array([plan.missing_score])).tolist()
    cell = cells.clipped_sql("score", plan.lower, plan.upper, str(missing))
    notes = (
        "Count rows by label and by cell of the score's public grid.",
        "Say which of the two public levels a label is; other rows count for nothing.",
    )
    columns = [f"{cell} AS cell", f"{call('count_star')} AS s"]
    yield from _grouped_labels(frame, columns, ["cell", "s"], notes)
    j = f"CASE WHEN target > 0 THEN {plus('cell', str(count))} WHEN target < 0 THEN cell END"
    columns = [f"{j} AS j", f"{call('sum', 's')} AS s"]
    yield Step("counts", "Counts by level and cell.", select(columns, frame.name("judged"), "GROUP BY 1"))
    grid = f"{call('range', str(2 * count))} AS places(j)"
    yield Step(
        "statistic",
        "The exact counts, with 0 for a cell without rows. They never leave.",
        select(
            ["places.j", f"{coalesce('s', '0')}::HUGEINT AS s"],
            f"{grid} LEFT JOIN {frame.name('counts')} USING (j)",
        ),
    )


def rows_of_units(frame: Frame, limits: int) -> Iterator[Step]:
    """Yield the steps that count every unit's rows, hand the counts over, and draw one of `limits` limits."""
    condition = f"WHERE {frame.ticket} IS NOT NULL AND dpsql_unit IS NOT NULL"
    rows = select(units(frame), rows_of(frame), condition)
    yield Step("owned", "The unit of every row.", rows)
    counted = select([f"{call('count_star')} AS n"], frame.name("owned"), f"GROUP BY {', '.join(frame.unit)}")
    value = struct({STEPS: step_of("n", limits)})
    yield Step("held", "How many rows a unit has, one value for each unit.", f"SELECT {value} AS r FROM ({counted})")
    yield batches(frame, 1, frame.name("held"), frame.ticket, "r")
    yield turn(frame, 1)
    yield Step("statistic", "The limit is drawn.", "SELECT CAST(NULL AS BIGINT) AS s, 0 AS j WHERE false")


def limited(frame: Frame, drawing: Frame) -> Step:
    """Return the step with the ticket and the limit of a part whose limit another part draws."""
    before = f"(SELECT {field('gate', 'ticket')} FROM {frame.name('gate')})"
    learned = call("dpsql_learn_rows", before, drawing.closing_ticket)
    return Step(
        "limited",
        "As many rows of each unit count as were drawn. Every scan below waits for this ticket.",
        select(["ticket", f"{call('dpsql_limit', 'ticket')} AS most"], f"(SELECT {learned} AS ticket)"),
        is_materialized=True,
    )


def owners(frame: Frame) -> tuple[str, ...]:
    """Return a cell's owner: its unit, if there are units, and its row."""
    return ("row",) if frame.plan.layout.privacy_unit is None else ("unit", "row")


def document(frame: Frame) -> str:
    """Return the columns that identify a cell's row and privacy unit."""
    return ", ".join(", ".join(owner(part)) for part in owners(frame))


def _cells(frame: Frame, *more: str) -> Step:
    condition = f"WHERE {frame.ticket} IS NOT NULL AND dpsql_row_id IS NOT NULL"
    if frame.plan.layout.privacy_unit is not None:
        condition += " AND dpsql_unit IS NOT NULL"
    return Step(
        "cells",
        "The cells of the long rows, read once and kept: so no join can be planned around the gate.",
        select([*identities(*owners(frame)), *more], rows_of(frame), condition),
        is_materialized=True,
    )


def _name_of_cell(frame: Frame) -> str:
    """Return a cell's feature name, in comparable form."""
    return exact_text("dpsql_feature", frame.zero)


def features(frame: Frame) -> Step:
    """Return the step that numbers the public features by position."""
    listed = call("unnest", call("dpsql_features", frame.ticket))
    name = exact_text(field("f", "name"), frame.zero)
    parts = [f"{field('f', 'j')} AS j", f"{name} AS name", f"{field('f', 'absent')} AS absent"]
    note = "The public names of the features, by their position."
    return Step("features", note, select(parts, f"(SELECT {listed} AS f)"), is_materialized=True)


def documents(frame: Frame) -> Iterator[Step]:
    """Yield the cells, and one row per (unit, row id)."""
    value = "NULL" if frame.plan.layout.value is None else call("dpsql_value", frame.ticket, "dpsql_value")
    target = call("dpsql_target", frame.ticket, "dpsql_row")
    yield _cells(frame, f"{_name_of_cell(frame)} AS name", f"{value} AS value", f"{target} AS target")
    rows = select([document(frame), f"{call('max', 'target')} AS target"], f"{frame.name('cells')}", "GROUP BY ALL")
    note = "One row for each row id: of several targets the largest counts."
    before, rows = _capped(frame, rows)
    yield from before
    yield Step("documents", f"{note}{_cap(frame)}", rows, is_materialized=True)


def _cap(frame: Frame) -> str:
    """Return the sentence on the row limit of a unit, for notes."""
    if frame.plan.layout.privacy_unit is None:
        return ""
    return f" At most {frame.plan.max_rows_per_unit} count of one privacy unit, chosen by a keyed hash."


def _capped(frame: Frame, rows: str) -> tuple[list[Step], str]:
    if frame.plan.layout.privacy_unit is None:
        return [], rows
    cap = _first_of_units(frame, owner("unit"), place_hash(frame.ticket, owner("row")))
    return within(frame, "unit", cap, f"({rows})")


def present(frame: Frame) -> Step:
    """Return the step of one row per present cell."""
    value = "1::DOUBLE" if frame.plan.layout.value is None else call("max", "value")
    joined = f"{frame.name('cells')} JOIN {frame.name('features')} USING (name)"
    return Step(
        "present",
        "One row for each feature that a row has: of duplicates the largest value counts.",
        select([document(frame), "j", f"{value} AS value"], joined, "GROUP BY ALL"),
    )


def gathered(frame: Frame) -> Iterator[Step]:
    """Yield the steps that join all cells of a row id into one row: its target, features and values."""
    lists = {"js": call("list", "j"), "vs": call("list", "value")}
    cells = (f"{values} FILTER (WHERE j IS NOT NULL) AS {name}" for name, values in lists.items())
    joined = f"{frame.name('documents')} LEFT JOIN {frame.name('present')} USING ({document(frame)})"
    yield from documents(frame)
    yield features(frame)
    yield present(frame)
    yield Step(
        "gathered",
        "One row for each row id, with its target, and the lists of its features and their values.",
        select([document(frame), "target", *cells], joined, f"GROUP BY {document(frame)}, target"),
        is_materialized=frame.plan.readings > 1,
    )


def gathered_names(frame: Frame) -> Iterator[Step]:
    """Yield the steps that join all cells of a row id into one row: its labels, and its feature numbers.

    Both are lists with an element per cell, because few functions see single cells: they judge labels, and sample
    features, for all cells of many row ids at once.
    """
    plan, name = frame.plan, _name_of_cell(frame)
    if plan.layout.value is not None:
        name = f"CASE WHEN {call('dpsql_present', frame.ticket, 'dpsql_value')} THEN {name} END"
    yield _cells(frame, f"{name} AS name", f"{field('dpsql_row', plan.layout.target)} AS label")
    if frame.opening.draws_names:  # a single later pass knows which names are released
        yield from _private_names(frame)
    else:
        yield features(frame)
    rows = select(
        [document(frame), f"{call('list', 'label')} AS target", f"{call('list', cast('j', 'INTEGER'))} AS js"],
        f"{frame.name('cells')} LEFT JOIN {frame.name('features')} USING (name)",
        f"GROUP BY {document(frame)}",
    )
    before, rows = _capped(frame, rows)
    yield from before
    note = f"One row for each row id, with its labels and features.{_cap(frame)}"
    most = frame.opening.most_rows
    if most is not None:
        rows = first_rows(rows, most, place_hash(frame.ticket, *map(owner, owners(frame))))
        note += f" At most {most} count in all."
    yield Step("gathered", note, rows, is_materialized=plan.readings > 1)


def _private_names(frame: Frame) -> Iterator[Step]:
    """Yield the steps that number the names in the rows, in arbitrary order: numbers only replace names."""
    listed = call("list", f"{struct({'j': 'j', 'name': 'name'})} ORDER BY j ASC NULLS LAST")
    vocabulary = call("dpsql_vocabulary", frame.ticket, f"(SELECT {listed} FROM {frame.name('names')})")
    distinct = f"SELECT name FROM {frame.name('cells')} WHERE name IS NOT NULL GROUP BY name"
    yield Step(
        "names",
        "The names that occur in the rows, which are private, and a number for each. The numbers mean nothing.",
        select(["name", f"{call('row_number')} OVER () AS j"], f"({distinct})"),
        is_materialized=True,
    )
    yield Step("vocabulary", "Tell the collector the names.", f"SELECT {vocabulary} AS ticket", is_materialized=True)
    yield Step(
        "features",
        "The private names by their numbers, once the collector has learned them. Which are released is drawn.",
        select(["j", "name"], frame.name("names"), f"WHERE {frame.ticket_of('vocabulary')} IS NOT NULL"),
        is_materialized=True,
    )


def products(frame: Frame) -> Iterator[Step]:
    """Yield the steps that sum each present cell's difference from an absent one, plus the sum of absent cells."""
    yield from documents(frame)
    yield from _center(frame)
    yield features(frame)
    centred = call("dpsql_centred", f"(SELECT mean FROM {frame.name('center')})", "target")
    yield Step(
        "centred",
        "The target less its centre, clipped again to its bounds.",
        select([document(frame), f"{centred} AS target"], frame.name("documents")),
        is_materialized=True,
    )
    yield present(frame)
    product = call("dpsql_product", frame.ticket, "j", "value", "target")
    cells = f"{frame.name('present')} JOIN {frame.name('centred')} USING ({document(frame)})"
    note = "For each feature, what the cells that are present add to the sum."
    yield Step("sums", note, select(["j", f"{call('sum', product)} AS s"], cells, "GROUP BY j"))
    everything = f"(SELECT {coalesce(call('sum', 'target'), '0')} FROM {frame.name('centred')})"
    total = plus(coalesce("s", "0"), call("*", "absent", everything))
    joined = f"{frame.name('features')} LEFT JOIN {frame.name('sums')} USING (j)"
    yield Step("statistic", "The exact sums, integers. They never leave.", select(["j", f"{total} AS s"], joined))


def _center(frame: Frame) -> Iterator[Step]:
    """Yield the step of the target's centre: 0, or the private mean that this step draws from the first scan."""
    if not isinstance(frame.plan, SisPlan):
        raise TypeError("the statistic is of another plan")
    if frame.plan.center == "public":
        note = "The centre of the target: 0, the middle of its public bounds."
        yield Step("center", note, f"SELECT 0::BIGINT AS mean, {frame.ticket} AS ticket", is_materialized=True)
        return
    unity, target = str(FIXED_POINT_ONE), cast("target", "BIGINT")
    terms = [plus(unity, target), call("-", unity, target)]
    totals = call("list_value", *(coalesce(call("sum", term), "0::HUGEINT") for term in terms))
    mean = call("dpsql_center", frame.ticket, f"(SELECT sums FROM {frame.name('target_sums')})")
    note = "Two exact integer sums, from which the private mean of the target is drawn."
    yield Step("target_sums", note, select([f"{totals} AS sums"], frame.name("documents")))
    note = "The centre of the target: a private mean, which the call pays for."
    query = f"SELECT mean, CASE WHEN mean IS NOT NULL THEN {frame.ticket} END AS ticket FROM (SELECT {mean} AS mean)"
    yield Step("center", note, query, is_materialized=True)
