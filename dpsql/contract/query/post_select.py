"""A SELECT over released and public rows: its text, and which released numbers are in each of its columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dpsql.contract.parameters import fold
from dpsql.contract.query.aggregates import aggregates_in
from dpsql.contract.query.errors import ErrorsAround, ReleasedErrors, released_column
from dpsql.contract.query.nodes import Expr, From, Join, Select
from dpsql.contract.query.noisy_numbers import ONE, NoisyNumbers
from dpsql.contract.query.post import PostExpressions
from dpsql.contract.query.relations import PUBLIC, Item, Noisy, PartOfQuery, Scope
from dpsql.contract.query.released_relation import released
from dpsql.contract.query.rows import Leaf, levels
from dpsql.contract.query.work import Env, Splitting
from dpsql.contract.query.writer import leaves, select_text
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

        def read(source: From, stub: bool = stub) -> str:
            return _leaf_text(leaf(source), stub)

        texts.append(f"({select_text(query, PostExpressions(work, env, stub, scope, inner), read)})")
    noisy = _noisy(query, scope, inner)
    level = levels([*relations, *inner.values()])
    out = released(work, texts[0], texts[1], noisy, level, within=env.outer is not None)
    if not work.options.errors or level == PUBLIC:
        return out
    return _with_told(query, out, scope, lambda stub: PostExpressions(work, env, stub, scope, inner))


def _with_told(query: Select, out: PartOfQuery, scope: Scope, writer: Callable[[bool], PostExpressions]) -> PartOfQuery:
    """Return a SELECT with what writes the intervals of its columns behind them."""
    modifiers = query.modifiers
    items = _spelled_out(query, scope)
    if len(query.sets) > 1 or modifiers.distinct or modifiers.distinct_on or items is None:
        return out
    # Relations without a name have one here, by which what is behind their columns is named.
    named = replace(scope, items=[replace(one, id=one.alias or f"dpsql_{one.id}") for one in scope.items])
    if len(items) != len(out.columns) or len({fold(one.id) for one in named.items}) < len(named.items):
        return out
    merged = _merged(query.source)
    still = merged is not None and not any(
        column.noisy for one in named.items for column in one.relation.columns if fold(column.name) in merged
    )

    def errors(numbers: NoisyNumbers, stub: bool = False, steady: bool = False) -> ReleasedErrors:
        return ReleasedErrors(
            None, ErrorsAround(writer(stub).over, writer(stub).subquery, steady, stub), numbers, scope=named
        )

    one = errors(ONE)
    conditions = [*_ons(query.source), *([] if query.where is None else [query.where])]
    steady = (
        still
        and all(each.relation.level == PUBLIC or each.relation.fixed for each in named.items)
        and all(map(one.quiet, conditions))
    )
    grouped = bool(query.groups or query.group_all or any(map(aggregates_in, items)))
    if grouped and not (steady and all(map(one.quiet, _groups(query, items, named)))):
        return out
    # Windows of a query of groups are of these, and not of the rows that FROM has.
    known = errors(ONE, steady=steady)
    made = [None if grouped and _windows(each) else known.made(each) for each in items]
    choosing = [*conditions, *(one for one in (query.having, query.qualify) if one is not None)]
    choosing += [each.expression for each in modifiers.orders] if modifiers.cuts else []
    if not all(map(one.quiet, choosing)):
        made = [each and NoisyNumbers.of_all_groups(one.noisy(item)) for each, item in zip(made, items, strict=True)]
    sources = dict(zip(map(id, leaves(query.source)), named.items, strict=True))

    def told(counts: Sequence[NoisyNumbers]) -> tuple[str, str]:
        pairs = [(place, count) for place, own in enumerate(made) if own for count in counts if count.covers(own)]
        texts = []
        for stub in (False, True):

            def read(source: From, stub: bool = stub) -> str:
                item = sources[id(source)]
                relation = item.relation
                both = (relation.sql, relation.stub) if relation.told is None else relation.told(counts)
                return f"{both[stub]} AS {identifier(item.id)}"

            hidden = (errors(count, stub, steady).hidden(items[place], place) for place, count in pairs)
            behind = [sql for each in hidden for sql in each]
            texts.append(f"({select_text(replace(query, items=tuple(items)), writer(stub), read, behind)})")
        return texts[0], texts[1]

    columns = tuple(replace(column, made=count) for column, count in zip(out.columns, made, strict=True))
    fixed = steady and query.qualify is None and query.having is None and not modifiers.cuts
    return replace(out, columns=columns, told=told if any(made) else None, fixed=fixed)


def _groups(query: Select, items: Sequence[Expr], scope: Scope) -> list[Expr]:
    """Return what the rows of a query are grouped by, with names and places of its select list written out."""
    if query.group_all and not query.groups:
        return [one for one in items if not aggregates_in(one)]
    aliases = {fold(one.alias): one for one in items if one.alias}
    out = []
    for one in query.groups:
        place = str(one.value) if one.what == "constant" and one.name == "number" else ""
        if place.isdecimal() and 1 <= int(place) <= len(items):
            out.append(items[int(place) - 1])
        elif one.what == "column" and released_column(one, scope) is None:
            out.append(aliases.get(fold(one.names[-1]), one))
        else:
            out.append(one)
    return out


def _windows(expr: Expr) -> bool:
    return any(one.what == "window" for one in expr.walk())


def _spelled_out(query: Select, scope: Scope) -> list[Expr] | None:
    """Return the select list with stars written out; None where a star is more than all columns."""
    out: list[Expr] = []
    for one in query.items:
        if one.what != "star":
            out.append(one)
            continue
        chosen = [item for item in scope.items if not one.name or fold(item.alias) == fold(one.name)]
        if one.names or one.parts or (not one.name and _merges(query.source)):
            return None
        if len(scope.items) > 1 and not all(item.alias for item in chosen):
            return None
        out += [
            Expr("column", names=(*((item.alias,) if item.alias else ()), column.name), alias=column.name)
            for item in chosen
            for column in item.relation.columns
        ]
    return out


def _ons(source: From) -> list[Expr]:
    """Return the conditions of joins, beside those of USING."""
    if not isinstance(source, Join):
        return []
    own = [source.condition] if source.condition is not None else []
    return [*own, *_ons(source.left), *_ons(source.right)]


def _merged(source: From) -> set[str] | None:
    """Return the columns by which USING joins, folded; None where NATURAL finds them."""
    if not isinstance(source, Join):
        return set()
    found = [_merged(source.left), _merged(source.right)]
    if source.natural or None in found:
        return None
    return set(map(fold, source.using)).union(*(one for one in found if one is not None))


def _merges(source: From) -> bool:
    """Whether columns of several relations are one, as USING and NATURAL make them."""
    if not isinstance(source, Join):
        return False
    return bool(source.using or source.natural) or _merges(source.left) or _merges(source.right)


def _leaf_text(found: tuple[PartOfQuery, str], stub: bool) -> str:
    relation, alias = found
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
            except SourceError:  # of several relations, as of USING
                theirs = (item.column(one.names[-1]) for item in scope.items)
                out |= {number for column in theirs if column is not None for number in column.noisy}
                continue
            if found is not None and found.what == "item":
                out |= scope.column(found).noisy
            elif found is None and fold(one.names[0]) in scope.aliases:
                out |= every
        if one.what == "subquery" and id(one.query) in inner:
            out |= {number for column in inner[id(one.query)].columns for number in column.noisy}
        elif one.what in ("subquery", "star"):
            out |= every
    return frozenset(out)
