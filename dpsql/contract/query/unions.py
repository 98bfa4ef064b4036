"""UNION ALL of rows of people: columns by their places, each of one type, and the owner behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsql.contract.expression.kinds import Type
from dpsql.contract.query.expressions import ColumnSql
from dpsql.contract.query.joins import without_unit
from dpsql.contract.query.nodes import Expr, SetOperation
from dpsql.contract.query.relations import DATE, RELEASED, ROWS, UNIT, Column, KeyValues, PartOfQuery
from dpsql.contract.query.work import Splitting, stub_type
from dpsql.errors import ParameterError
from dpsql.rendering import identifier


def union_of_rows(work: Splitting, query: SetOperation, parts: Sequence[PartOfQuery]) -> PartOfQuery:
    """Return rows of people of several queries.

    Raises
    ------
    ParameterError
        P103: it is another operation, or cuts by an order. P105: one part is released.
    """
    if query.kind != "UNION" or not query.every or query.modifiers.distinct or query.modifiers.cuts:
        raise ParameterError(
            "P103",
            f"sql: {query.kind}{'' if query.every else ' of distinct rows'} of people's rows is not answered. Write "
            "UNION ALL without LIMIT, or WHERE EXISTS and NOT EXISTS by the person.",
        )
    if any(one.level == RELEASED for one in parts):
        raise ParameterError(
            "P105", "sql: released numbers stand among rows of people. Aggregate each part on its own."
        )
    if any(one.level != ROWS for one in parts):
        raise ParameterError("P103", "sql: public rows stand among rows of people. Aggregate each part on its own.")
    first = parts[0]
    if len({one.owned for one in parts}) > 1:
        raise without_unit(table for one in parts if not one.owned for table in one.tables)
    if any((one.pending, one.owned, one.dated) != (first.pending, first.owned, first.dated) for one in parts):
        raise ParameterError("P103", "sql: UNION ALL of tables that reach people in different ways. Join them first.")
    if len({len(one.columns) for one in parts}) > 1:
        raise ParameterError("P101", "sql: the parts of UNION ALL have different numbers of columns. Select the same.")
    stubs = (
        f"SELECT {', '.join(f'NULL::{stub_type(one.type)} AS c{at}' for at, one in enumerate(part.columns))}"
        for part in parts
    )
    kinds = work.catalogue.typing.columns(f"SELECT * FROM ({' UNION ALL '.join(stubs)})")
    if kinds is None:
        raise ParameterError("P101", "sql: the parts of UNION ALL have types that do not go together. Cast them.")
    texts = []
    for part in parts:
        listed = []
        for place, column in enumerate(part.columns):
            value = Expr("item", column.sql, value="u")
            read = {("u", column.sql): ColumnSql(f"u.{identifier(column.sql)}", column.type)}
            kind = kinds[place][1]
            written = work.expressions.write(value, read, None if kind == column.type else kind.sql)
            listed.append(f"{written.sql} AS {identifier(f'c{place}')}")
        if part.owned:
            owner = next(one.sql for one in (*part.columns, *part.unseen) if one.owner)
            date = next((one.sql for one in (*part.columns, *part.unseen) if one.dated), None)
            listed += [f"u.{identifier(date)} AS {identifier(DATE)}"] if date is not None else []
            listed.append(f"u.{identifier(owner)} AS {identifier(UNIT)}")
        texts.append(f"SELECT {', '.join(listed)} FROM {part.sql} AS u")
    columns = tuple(_column(place, kinds[place][1], parts) for place in range(len(first.columns)))
    return replace(
        first,
        columns=columns,
        sql=f"({' UNION ALL '.join(texts)})",
        unseen=tuple(
            replace(one, name=name, sql=name)
            for name, one in (
                (DATE, next((one for one in (*first.columns, *first.unseen) if one.dated), None)),
                (UNIT, next((one for one in (*first.columns, *first.unseen) if one.owner), None)),
            )
            if one is not None
        ),
        tables=tuple(dict.fromkeys(table for one in parts for table in one.tables)),
        name=(),
    )


def _column(place: int, kind: Type, parts: Sequence[PartOfQuery]) -> Column:
    found = [one.columns[place] for one in parts]
    bounds = found[0].interval
    for one in found[1:]:
        bounds = bounds.hull(one.interval)
    ties = {one.tie for one in found}
    return replace(
        found[0],
        sql=f"c{place}",
        type=kind,
        interval=bounds,
        keys=lambda: _keys(found),
        owner=all(one.owner for one in found),
        dated=all(one.dated for one in found),
        whole=all(one.whole for one in found),
        tie=ties.pop() if len(ties) == 1 else None,
    )


def _keys(found: Sequence[Column]) -> KeyValues | None:
    """Return the public values of all parts."""
    each = [one.keys() for one in found]
    if any(one is None or one.values is None for one in each):
        return None
    values = dict.fromkeys(value for one in each if one is not None for value in one.values or ())
    return KeyValues(tuple(values), None, each[0].origin if each[0] is not None else "")
