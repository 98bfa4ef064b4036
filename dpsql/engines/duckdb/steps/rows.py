"""The rows that count, and the passes that hand them to the call's collector, each after the round before it.

Scores are counted by label and cell: the only statistic that SQL counts by comparing values.

If a query draws its row limit, the module hands over the row count of every unit and waits for the limit. A unit's
rows have its identity, which includes the period; so every unit has one value, whatever others have. No other part of
the core reads a row before the limit is drawn.

Cells of long rows are read once. They become one row for each row id, or sums of products with a target.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpsql.contract.call import LONG_POSITIONS, LONG_TARGET, LONG_VALUES
from dpsql.contract.plan import COLLECTED
from dpsql.engines.duckdb.keys import block_hash, exact_text, first_rows, identity, place_hash, text_bytes
from dpsql.engines.duckdb.steps.step import UNIT, Frame, Step, rows_of, select
from dpsql.functions.query_rows import STEPS, step_of
from dpsql.functions.roc import ScorePlan
from dpsql.functions.sis import SisPlan
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.rendering import call, cast, coalesce, double, field, plus, struct

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


def first_of_units(frame: Frame, rows: str, *sort_keys: str) -> str:
    """Return the first rows of each unit by their sort keys."""
    return first_rows(rows, frame.most_of_unit, *sort_keys, partition=", ".join(owner("unit")))


def counted(frame: Frame, name: str, ticket: str, *, keyed: bool) -> Step:
    """Return the step of the rows, with a row limit per privacy unit; only rows with equal contents can tie.

    Rows are `keyed` if a later step sorts them into blocks.
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
        # Contents distinguish rows with one id; rows with equal contents are interchangeable.
        order = (
            (place_hash(frame.ticket, contents),)
            if layout.row_id is None
            else (place_hash(frame.ticket, owner("row")), contents)
        )
        rows = first_of_units(frame, rows, *order)
        note += f": at most {plan.max_rows_per_unit} of one privacy unit, chosen by a keyed hash"
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
        return block_hash(frame.ticket, owner("unit"))
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
    yield Step("documents", f"{note}{_cap(frame)}", _capped(frame, rows), is_materialized=True)


def _cap(frame: Frame) -> str:
    """Return the sentence on the row limit of a unit, for notes."""
    if frame.plan.layout.privacy_unit is None:
        return ""
    return f" At most {frame.plan.max_rows_per_unit} count of one privacy unit, chosen by a keyed hash."


def _capped(frame: Frame, rows: str) -> str:
    if frame.plan.layout.privacy_unit is None:
        return rows
    return first_of_units(frame, rows, place_hash(frame.ticket, owner("row")))


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
    rows, note = _capped(frame, rows), f"One row for each row id, with its labels and features.{_cap(frame)}"
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
