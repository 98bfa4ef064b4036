"""A SELECT over released and public rows: its text, and which released numbers are in each of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsql.contract.parameters import fold
from dpsql.contract.query.cores import released
from dpsql.contract.query.nodes import Expr, From, Join, Nothing, Query, Select
from dpsql.contract.query.post import PostExpressions, default_name
from dpsql.contract.query.relations import Item, Noisy, PartOfQuery, Scope
from dpsql.contract.query.rows import Leaf, levels
from dpsql.contract.query.work import Env, Splitting
from dpsql.errors import SourceError
from dpsql.rendering import identifier


def released_select(
    work: Splitting, query: Select, env: Env, leaf: Leaf, relations: Sequence[PartOfQuery], names: Sequence[str] | None
) -> PartOfQuery:
    """Return what a SELECT over released and public rows returns; `names` are its columns', where they are known."""
    scope = Scope()
    for number, one in enumerate(leaves(query.source)):
        relation, alias = leaf(one)
        scope.items.append(Item(f"p{number}", relation, alias))
    scope.aliases = {fold(one.alias): one for one in query.items if one.alias}
    inner: dict[int, PartOfQuery] = {}
    texts = []
    if names is not None and len(names) == len(query.items) and not any(one.what == "star" for one in query.items):
        items = zip(query.items, names, strict=True)
        query = replace(query, items=tuple(replace(one, alias=name) for one, name in items))
    for stub in (False, True):
        writer = PostExpressions(work, env, stub, scope, inner)
        texts.append(f"({_select_text(query, writer, leaf, stub)})")
    noisy = _noisy(query, scope, inner)
    level = levels([*relations, *inner.values()])
    return released(work, texts[0], texts[1], noisy, level, within=env.outer is not None)


def _select_text(query: Select, writer: PostExpressions, leaf: Leaf, stub: bool) -> str:
    modifiers = query.modifiers
    distinct = "DISTINCT " if modifiers.distinct else ""
    if modifiers.distinct_on:
        distinct = f"DISTINCT ON ({', '.join(map(writer.sql, modifiers.distinct_on))}) "
    listed = []
    for one in query.items:
        name = default_name(one)
        alias = f" AS {identifier(name)}" if name and one.what != "star" else ""
        listed.append(f"{writer.sql(one)}{alias}")
    out = f"SELECT {distinct}{', '.join(listed)}"
    source = _from_text(query.source, writer, leaf, stub)
    out += f" FROM {source}" if source else ""
    out += f" WHERE {writer.sql(query.where)}" if query.where is not None else ""
    out += _group_text(query, writer)
    out += f" HAVING {writer.sql(query.having)}" if query.having is not None else ""
    out += f" QUALIFY {writer.sql(query.qualify)}" if query.qualify is not None else ""
    return out + ends(query, writer)


def _group_text(query: Select, writer: PostExpressions) -> str:
    if query.group_all and not query.groups:
        return " GROUP BY ALL"
    if not query.groups and not query.sets:
        return ""
    listed = [writer.sql(one) for one in query.groups]
    if len(query.sets) <= 1:
        return f" GROUP BY {', '.join(listed)}" if listed else ""
    sets = ", ".join(f"({', '.join(listed[place] for place in one)})" for one in query.sets)
    return f" GROUP BY GROUPING SETS ({sets})"


def _from_text(source: From, writer: PostExpressions, leaf: Leaf, stub: bool) -> str:
    if isinstance(source, Nothing):
        return ""
    if isinstance(source, Join):
        sides = [_from_text(one, writer, leaf, stub) for one in (source.left, source.right)]
        right = f"({sides[1]})" if isinstance(source.right, Join) else sides[1]
        word = {"INNER": "JOIN", "OUTER": "FULL JOIN"}.get(source.kind, f"{source.kind} JOIN")
        if source.natural:
            return f"{sides[0]} NATURAL {word} {right}"
        if source.using:
            return f"{sides[0]} {word} {right} USING ({', '.join(map(identifier, source.using))})"
        if source.condition is None:
            return f"{sides[0]} CROSS JOIN {right}"
        return f"{sides[0]} {word} {right} ON {writer.sql(source.condition)}"
    relation, alias = leaf(source)
    text = relation.stub if stub else relation.sql
    return f"{text} AS {identifier(alias)}" if alias else text


def _noisy(query: Select, scope: Scope, inner: dict[int, PartOfQuery]) -> list[Noisy]:
    """Return the released numbers in each column of the select list; one of all where a star stands there."""
    every: Noisy = frozenset().union(
        *(column.noisy for item in scope.items for column in item.relation.columns),
        *(column.noisy for relation in inner.values() for column in relation.columns),
    )
    if any(one.what == "star" for one in query.items):
        if len(query.items) == 1 and not query.items[0].names and not isinstance(query.source, Join):
            return [column.noisy for item in scope.items for column in item.relation.columns]
        return [every]
    return [_noisy_of(one, scope, inner, every) for one in query.items]


def _noisy_of(expr: Expr, scope: Scope, inner: dict[int, PartOfQuery], every: Noisy) -> Noisy:
    out: set[tuple[str, str]] = set()
    for one in expr.walk():
        if one.what == "column":
            try:
                found = scope.resolved(one.names)
            except SourceError:
                out |= every
                continue
            if found is not None and found.what == "item":
                out |= scope.column(found).noisy
            elif found is None and fold(one.names[0]) in scope.aliases:
                out |= every
        if one.what == "subquery" or one.what == "star":
            out |= every
    return frozenset(out)


def leaves(source: From) -> list[From]:
    """Return what a FROM reads, from left to right."""
    if isinstance(source, Join):
        return [*leaves(source.left), *leaves(source.right)]
    return [] if isinstance(source, Nothing) else [source]


def ends(query: Query, writer: PostExpressions) -> str:
    """Return the SQL of ORDER BY, LIMIT and OFFSET."""
    modifiers = query.modifiers
    out = f" ORDER BY {writer.orders(modifiers.orders)}" if modifiers.orders else ""
    if modifiers.limit is not None:
        out += f" LIMIT {writer.sql(modifiers.limit)}{'%' if modifiers.percent else ''}"
    if modifiers.offset is not None:
        out += f" OFFSET {writer.sql(modifiers.offset)}"
    return out
