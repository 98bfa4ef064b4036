"""Long rows: cells are read once, become one row for each row id, or sums of products with a target."""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.engines.duckdb.keys import exact_text, first_rows, place
from dpsql.engines.duckdb.steps.rows import first_of_units, identities, owner
from dpsql.engines.duckdb.steps.source import rows_of
from dpsql.engines.duckdb.steps.step import Frame, Step, select
from dpsql.functions.sis import SisPlan
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.rendering import call, cast, coalesce, field, plus, struct


def owners(frame: Frame) -> tuple[str, ...]:
    """Return of what a cell is: of a unit, if there are units, and of a row."""
    return ("row",) if frame.plan.layout.privacy_unit is None else ("unit", "row")


def document(frame: Frame) -> str:
    """Return the columns that identify the row, and the privacy unit, of a cell."""
    return ", ".join(", ".join(owner(part)) for part in owners(frame))


def _cells(frame: Frame, *more: str) -> Step:
    condition = f"WHERE {frame.ticket} IS NOT NULL AND dpsql_row_id IS NOT NULL"
    if frame.plan.layout.privacy_unit is not None:
        condition += " AND dpsql_unit IS NOT NULL"
    return Step(
        "cells",
        "The cells of the long rows, read once and kept: so no join can be planned around the gate.",
        select([*identities(*owners(frame)), *more], rows_of(frame), condition),
        kept=True,
    )


def _name_of_cell(frame: Frame) -> str:
    """Return the name of a cell's feature, as it is compared."""
    return exact_text("dpsql_feature", frame.zero)


def features(frame: Frame) -> Step:
    """Return the step that names the public features by their position."""
    listed = call("unnest", call("dpsql_features", frame.ticket))
    name = exact_text(field("f", "name"), frame.zero)
    parts = [f"{field('f', 'j')} AS j", f"{name} AS name", f"{field('f', 'absent')} AS absent"]
    note = "The public names of the features, by their position."
    return Step("features", note, select(parts, f"(SELECT {listed} AS f)"), kept=True)


def documents(frame: Frame) -> Iterator[Step]:
    """Yield the cells, and one row per (unit, row id)."""
    value = "NULL" if frame.plan.layout.value is None else call("dpsql_value", frame.ticket, "dpsql_value")
    target = call("dpsql_target", frame.ticket, "dpsql_row")
    yield _cells(frame, f"{_name_of_cell(frame)} AS name", f"{value} AS value", f"{target} AS target")
    rows = select([document(frame), f"{call('max', 'target')} AS target"], f"{frame.name('cells')}", "GROUP BY ALL")
    note = "One row for each row id: of several targets the largest counts."
    yield Step("documents", f"{note}{_cap(frame)}", _capped(frame, rows), kept=True)


def _cap(frame: Frame) -> str:
    """Return the sentence on the cap of a unit's rows, for notes."""
    if frame.plan.layout.privacy_unit is None:
        return ""
    return f" At most {frame.plan.max_rows_per_unit} count of one privacy unit, chosen by a keyed hash."


def _capped(frame: Frame, rows: str) -> str:
    if frame.plan.layout.privacy_unit is None:
        return rows
    return first_of_units(frame, rows, place(frame.ticket, owner("row")))


def present(frame: Frame) -> Step:
    """Return the step of one row per cell that is present."""
    value = "1::DOUBLE" if frame.plan.layout.value is None else call("max", "value")
    joined = f"{frame.name('cells')} JOIN {frame.name('features')} USING (name)"
    return Step(
        "present",
        "One row for each feature that a row has: of duplicates the largest value counts.",
        select([document(frame), "j", f"{value} AS value"], joined, "GROUP BY ALL"),
    )


def gathered(frame: Frame) -> Iterator[Step]:
    """Yield the steps that make one row of all cells of a row id: its target, its features and their values."""
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
        kept=frame.plan.readings > 1,
    )


def gathered_names(frame: Frame) -> Iterator[Step]:
    """Yield the steps that make one row of all cells of a row id: its labels, and the numbers of its features.

    Both are lists with an element per cell, because few functions see single cells: labels are judged, and features
    sampled, for all cells of many row ids at once.
    """
    plan, name = frame.plan, _name_of_cell(frame)
    if plan.layout.value is not None:
        name = f"CASE WHEN {call('dpsql_present', frame.ticket, 'dpsql_value')} THEN {name} END"
    yield _cells(frame, f"{name} AS name", f"{field('dpsql_row', plan.layout.target)} AS label")
    if frame.opening.draws_names:  # a pass alone after the first knows which are released
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
        rows = first_rows(rows, most, place(frame.ticket, *map(owner, owners(frame))))
        note += f" At most {most} count in all."
    yield Step("gathered", note, rows, kept=plan.readings > 1)


def _private_names(frame: Frame) -> Iterator[Step]:
    """Yield the steps that number the names in the rows, in arbitrary order: the numbers only stand for them."""
    listed = call("list", f"{struct({'j': 'j', 'name': 'name'})} ORDER BY j ASC NULLS LAST")
    known = call("dpsql_vocabulary", frame.ticket, f"(SELECT {listed} FROM {frame.name('names')})")
    distinct = f"SELECT name FROM {frame.name('cells')} WHERE name IS NOT NULL GROUP BY name"
    yield Step(
        "names",
        "The names that occur in the rows, which are private, and a number for each. The numbers mean nothing.",
        select(["name", f"{call('row_number')} OVER () AS j"], f"({distinct})"),
        kept=True,
    )
    yield Step("vocabulary", "Tell the collector the names.", f"SELECT {known} AS ticket", kept=True)
    yield Step(
        "features",
        "The private names by their numbers, once the collector has learned them. Which are released is drawn.",
        select(["j", "name"], frame.name("names"), f"WHERE {frame.ticket_of('vocabulary')} IS NOT NULL"),
        kept=True,
    )


def products(frame: Frame) -> Iterator[Step]:
    """Yield the steps that sum how each present cell differs from an absent one, and add the sum over absent cells."""
    yield from documents(frame)
    yield from _center(frame)
    yield features(frame)
    centred = call("dpsql_centred", f"(SELECT mean FROM {frame.name('center')})", "target")
    yield Step(
        "centred",
        "The target less its centre, clipped again to its bounds.",
        select([document(frame), f"{centred} AS target"], frame.name("documents")),
        kept=True,
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
    """Yield the step of the centre of the target: 0, or the private mean that is drawn here from the first scan."""
    if not isinstance(frame.plan, SisPlan):
        raise TypeError("the statistic is of another plan")
    if frame.plan.center == "public":
        note = "The centre of the target: 0, the middle of its public bounds."
        yield Step("center", note, f"SELECT 0::BIGINT AS mean, {frame.ticket} AS ticket", kept=True)
        return
    one, target = str(FIXED_POINT_ONE), cast("target", "BIGINT")
    terms = [plus(one, target), call("-", one, target)]
    totals = call("list_value", *(coalesce(call("sum", term), "0::HUGEINT") for term in terms))
    drawn = call("dpsql_center", frame.ticket, f"(SELECT sums FROM {frame.name('target_sums')})")
    note = "Two exact integer sums, from which the private mean of the target is drawn."
    yield Step("target_sums", note, select([f"{totals} AS sums"], frame.name("documents")))
    note = "The centre of the target: a private mean, which the call pays for."
    query = f"SELECT mean, CASE WHEN mean IS NOT NULL THEN {frame.ticket} END AS ticket FROM (SELECT {drawn} AS mean)"
    yield Step("center", note, query, kept=True)
