"""The rows that count, where a row is a line of the source, and the blocks that they are in."""

from __future__ import annotations

from dpsql.engines.duckdb.keys import block_hash, first_rows, identity, place
from dpsql.engines.duckdb.steps.source import rows_of
from dpsql.engines.duckdb.steps.step import Frame, Step, select
from dpsql.rendering import call, coalesce

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


def owner(part: str) -> tuple[str, str]:
    """Return the names of the columns of `identities`."""
    return f"{part}_number", f"{part}_bytes"


def first_of_units(frame: Frame, rows: str, *places: str) -> str:
    """Return the rows of each unit which come first by their places."""
    return first_rows(rows, frame.plan.max_rows_per_unit, *places, partition=", ".join(owner("unit")))


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
    if plan.most_rows is not None:
        # Equal rows must not be kept or dropped together, so each gets random numbers of its own. DuckDB's will not
        # do, because the caller can set their seed.
        draw = call("dpsql_random", frame.ticket)
        rows = first_rows(rows, plan.most_rows, draw, draw)
        note += f"; at most {plan.most_rows} in all, at random"
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
    return contents if frame.plan.in_blocks else NO_KEY


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
