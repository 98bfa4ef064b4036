"""The rows that count, and the passes that hand them to the call's collector, each after the round before it.

**Scores.** Counts of rows by label and cell of the score: the one statistic that SQL counts by comparing values.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpsql.contract.call import LONG_POSITIONS, LONG_TARGET, LONG_VALUES
from dpsql.contract.plan import COLLECTED
from dpsql.engines.duckdb.keys import block_hash, first_rows, identity, place, text_bytes
from dpsql.engines.duckdb.steps.source import rows_of
from dpsql.engines.duckdb.steps.step import UNIT, Frame, Step, select
from dpsql.functions.roc import ScorePlan
from dpsql.rendering import call, cast, coalesce, double, field, plus, struct

# The key of rows that no block or sample depends on.
NO_KEY = "NULL::UBIGINT"
_IDS = {"unit": "dpsql_unit", "row": "dpsql_row_id"}


def identities(*parts: str) -> list[str]:
    """Return the columns that say which unit, or row, it is, as a number and bytes; `parts` are ``'unit'``, ``'row'``.

    They are computed here, once for a row, and known by these names from then on.
    """
    columns = []
    for part in parts:
        number, data = identity(_IDS[part])
        columns += [f"{number} AS {part}_number", f"{data} AS {part}_bytes"]
    return columns


def units(frame: Frame) -> list[str]:
    """Return the columns that say which unit a row is of, named as `Frame.unit`."""
    return [f"{cast(_IDS['unit'], 'BIGINT')} AS {UNIT[0]}"] if frame.is_numbered else identities("unit")


def owner(part: str) -> tuple[str, str]:
    """Return the names of the columns of `identities`."""
    return f"{part}_number", f"{part}_bytes"


def first_of_units(frame: Frame, rows: str, *places: str) -> str:
    """Return the rows of each unit which come first by their places."""
    return first_rows(rows, frame.most_of_unit, *places, partition=", ".join(owner("unit")))


def counted(frame: Frame, name: str, ticket: str, *, keyed: bool) -> Step:
    """Return the step of the rows, with a cap on those of each privacy unit; only rows with equal contents can tie.

    Rows that a later step needs to sort into blocks are `keyed`.
    """
    plan, layout, note = frame.plan, frame.plan.layout, "The rows that count"
    columns, condition = ["dpsql_row"], f"WHERE {ticket} IS NOT NULL"
    if layout.privacy_unit is not None:
        columns += identities("unit")
        condition += " AND dpsql_unit IS NOT NULL"
    if layout.row_id is not None and (keyed or layout.privacy_unit is not None):
        columns += identities("row")
    rows = select(columns, rows_of(frame), condition)
    if layout.privacy_unit is not None:
        contents = call("dpsql_contents", frame.ticket, "dpsql_row")
        # Rows with one id are distinguished by their contents; rows with equal contents are interchangeable.
        order = (
            (place(frame.ticket, contents),) if layout.row_id is None else (place(frame.ticket, owner("row")), contents)
        )
        rows = first_of_units(frame, rows, *order)
        note += f": at most {plan.max_rows_per_unit} of one privacy unit, chosen by a keyed hash"
    most = frame.opening.most_rows
    if most is not None:
        # Equal rows must not be kept or dropped together, so each gets random numbers of its own. DuckDB's will not
        # do, because the caller can set their seed.
        draw = call("dpsql_random", frame.ticket)
        rows = first_rows(rows, most, draw, draw)
        note += f"; at most {most} in all, at random"
    return Step(name, f"{note}.", rows)


def block_key(frame: Frame) -> str:
    """Return 64 bits of the hash that decides a row's block: of its unit, its row id, its contents, or NULL.

    Contents are used instead of a random number when a row must be in the same block in every pass.
    """
    layout = frame.plan.layout
    if layout.privacy_unit is not None:
        return block_hash(frame.ticket, owner("unit"))
    contents = block_hash(frame.ticket, call("dpsql_contents", frame.ticket, "dpsql_row"))
    if layout.row_id is not None:
        key = block_hash(frame.ticket, owner("row"))
        return coalesce(key, contents) if layout.kind != "long" else key  # a row may lack an id
    return contents if frame.opening.keyed else NO_KEY


def parts_of_rows(frame: Frame, part: str, position: str, parts: int) -> str:
    """Return the query of the part of each row, and of its position, because DuckDB may change the order of rows.

    All rows of a unit are in one part, and all rows of a block; rows of nobody are in none. `part` and `position` name
    the columns of the result.
    """
    layout = frame.plan.layout
    named = "row" if layout.privacy_unit is None else "unit"
    key = block_key(frame)
    if frame.blocks:
        key = call("%", key, f"{frame.blocks}::UBIGINT")
    number = f"CAST({call('%', key, f'{parts}::UBIGINT')} AS BIGINT)"
    if layout.privacy_unit is not None or layout.kind == "long":
        number = f"CASE WHEN {_IDS[named]} IS NOT NULL THEN {number} END"
    columns = ["dpsql_row", _IDS[named], position, *identities(named)]
    source = rows_of(frame, filtered=False, also=(position,))
    return select([f"{number} AS {part}", position], f"({select(columns, source)})")


# Up to so many columns one thread hands rows over faster, or at less cost, than several.
_FEW_COLUMNS = 17


def in_passes(frame: Frame) -> Iterator[Step]:
    """Yield the steps that read the rows as often as the call asks for, and the statistic."""
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
    plan, key = frame.plan, block_key(frame)
    if plan.layout.kind == "long":
        parts = {LONG_TARGET: "target", LONG_POSITIONS: "js"}
        if plan.statement == COLLECTED:
            parts[LONG_VALUES] = "vs"
        gathered = f"{frame.name('gathered')} WHERE {ticket} IS NOT NULL"
        rows = f"(SELECT {struct(parts)} AS dpsql_row, {key} AS key FROM {gathered})"
    else:
        yield counted(frame, f"rows{number}", ticket, keyed=True)
        rows = f"(SELECT dpsql_row, {key} AS key FROM {frame.name(f'rows{number}')})"
    given, note = ["dpsql_row"], "Every row"
    if key != NO_KEY:
        given.append("key")
        note += ", with the keyed hash that decides its block"
    if frame.blocks:
        block = call("%", "key", f"{frame.blocks}::UBIGINT")
        rows = f"(SELECT dpsql_row, {block} AS key FROM {rows})"
        rows = f"(SELECT *, {call('count_star')} OVER (PARTITION BY key) AS size FROM {rows})"
        given.append("size")
        note += ", block by block, and the number of rows in the block"
    columns = ", ".join(given)
    if _in_one_thread(frame):
        rows = f"(SELECT {columns}, {call('row_number')} OVER () AS position FROM {rows})\n  WHERE position > 0"
        note += "; rows are numbered, so that one thread hands them over"
    yield Step(f"keyed{number}", f"{note}.", f"SELECT {columns}\n  FROM {rows}")
    yield batches(frame, number, frame.name(f"keyed{number}"), ticket, *given)


def batches(frame: Frame, number: int, rows: str, ticket: str, *given: str) -> Step:
    """Return the step that hands rows to the collector of a pass, and has the numbers of its batches."""
    collect = call("dpsql_collect", ticket, *given)
    return Step(
        f"parts{number}",
        "Add up each batch of rows in exact integers; what is left here is the batch's number.",
        f"SELECT s\n  FROM (SELECT {collect} AS s FROM {rows})\n  WHERE s IS NOT NULL",
    )


def turn(frame: Frame, number: int) -> Step:
    """Return the step that ends a pass and hands its ticket on; a pass that runs alone follows one that ended."""
    ticket = frame.ticket
    if frame.only is None:
        found = f"(SELECT {call('list', 's')} FROM {frame.name(f'parts{number}')})"
        before = frame.opening_ticket if number == 1 else frame.ticket_of(f"turn{number - 1}")
        ticket = call("dpsql_turn", before, str(number), found)
    note = "Draw what the next pass over the rows needs, which the call pays for."
    return Step(f"turn{number}", note, f"SELECT {ticket} AS ticket", kept=True)


def statistic(frame: Frame, last: int) -> Step:
    """Return the statistic that consists of the numbers of a pass's batches."""
    note = "The exact statistic is with the collector; here are the numbers of the batches that it took in."
    return Step("statistic", note, f"SELECT s, s AS j FROM {frame.name(f'parts{last}')}")


def _in_one_thread(frame: Frame) -> bool:
    """Whether one thread hands all rows over, because more would only wait for Python's lock.

    DuckDB numbers rows in one thread. Every number is positive; the comparison keeps them from being left out.
    """
    plan = frame.plan
    columns = plan.row_columns
    few = columns is not None and len(columns) <= _FEW_COLUMNS
    return plan.adds_fast and few and plan.layout.kind == "wide" and plan.layout.privacy_unit is None


def _scored(frame: Frame) -> Iterator[Step]:
    """Yield the steps of the label and the score of every row.

    The gate's zero is added to every score. It does not change the score (except -0.0 to 0.0), but because it comes
    from a volatile function at run time, DuckDB has no statistics of the sum and cannot decide a comparison with it
    at planning time. It could for any function of the column alone, even `isnan`, when a Parquet file states equal
    minimum and maximum.
    """
    layout = frame.plan.layout
    label, score = (field("dpsql_row", name) for name in (layout.target, *(layout.features or ())))
    opaque = plus(f"TRY_CAST({score} AS DOUBLE)", frame.zero)
    yield counted(frame, "rows", frame.ticket, keyed=False)
    note = "Label and score of every row. The gate adds 0 to each score, which hides it from column statistics."
    yield Step("scored", note, select([f"{label} AS label", f"{opaque} AS score"], frame.name("rows")))


def _grouped_labels(frame: Frame, columns: list[str], values: list[str], notes: tuple[str, str]) -> Iterator[Step]:
    """Yield the steps that group scored rows by their label, and say which level that is; `values` are of a group.

    Few functions see single rows: labels are judged once per group. If the levels are texts, labels may be texts as
    well; they are grouped by their bytes too, so that no collation merges two of them.
    """
    texts = isinstance((frame.plan.target_levels or (None,))[0], str)
    exact = [f"{text_bytes('label')} AS exact"] if texts else []
    grouped, judged = notes
    yield Step("groups", grouped, select(["label", *exact, *columns], frame.name("scored"), "GROUP BY ALL"))
    target = call("dpsql_target", frame.ticket, struct({frame.plan.layout.target: "label"}))
    yield Step("judged", judged, select([f"{target} AS target", *values], frame.name("groups")))


def compared(frame: Frame) -> Iterator[Step]:
    """Yield the steps that gather the scores of both classes, and compare them pair by pair."""
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
    """Yield the steps that count rows by label and cell; cells without rows are there too."""
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
    places = f"{call('range', str(2 * count))} AS places(j)"
    yield Step(
        "statistic",
        "The exact counts, with 0 for a cell without rows. They never leave.",
        select(
            ["places.j", f"{coalesce('s', '0')}::HUGEINT AS s"],
            f"{places} LEFT JOIN {frame.name('counts')} USING (j)",
        ),
    )
