"""Groups that a query joins with a public table: its keys are the values that their column is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dpsql.contract.parameters import fold
from dpsql.contract.query.nodes import Expr, From, Join, Select, TableRef
from dpsql.contract.query.relations import Item, KeyValues, PartOfQuery, Scope
from dpsql.contract.query.work import Env, Splitting
from dpsql.contract.query.writer import leaves
from dpsql.errors import SourceError
from dpsql.rendering import identifier


def joined_values(work: Splitting, query: Select, env: Env) -> dict[str, KeyValues]:
    """Return the columns that a query equates with columns of public tables, with these columns' values."""
    scope = Scope()
    for one in leaves(query.source):
        if isinstance(one, TableRef) and (any(one.names[:2]) or fold(one.names[2]) not in env.withs):
            table = work.catalogue.table(one.names)
            if table is not None and table.public and not one.columns:
                scope.items.append(Item(f"p{len(scope.items)}", work.table(table), one.alias or one.names[2]))
    out: dict[str, KeyValues] = {}
    for left, right in _equated(query.source, query.where):
        sides = [_public(one, scope) for one in (left, right)]
        for found, other in ((sides[0], right), (sides[1], left)):
            if found is not None and None in sides:
                column = f"{identifier(found.relation.name[-1])}.{identifier(found.column)}"
                listed = f"SELECT DISTINCT {column} AS v FROM {found.relation.sql}"
                out[fold(other[-1])] = KeyValues(None, listed, f"the public {found.relation.name[-1]}")
    return out


class _Found(NamedTuple):
    relation: PartOfQuery
    column: str


def _public(names: tuple[str, ...], scope: Scope) -> _Found | None:
    """Return the public table and column of a name."""
    try:
        found = scope.resolved(names)
    except SourceError:
        return None
    if found is None or found.what != "item":
        return None
    return _Found(scope.item(str(found.value)).relation, found.name)


def _equated(source: From, where: Expr | None) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield the pairs of columns that rows must have equal."""
    conditions = [where] if where is not None else []
    todo = [source]
    while todo:
        one = todo.pop()
        if isinstance(one, Join) and one.kind == "INNER":
            todo += [one.left, one.right]
            conditions += [one.condition] if one.condition is not None else []
    while conditions:
        found = conditions.pop()
        if found.what == "and":
            conditions += found.parts
        if found.what == "compare" and found.name == "=" and all(one.what == "column" for one in found.parts):
            yield found.parts[0].names, found.parts[1].names
