"""Splits a query: aggregates of people's rows and everything below become cores, everything above post text.

If a query joins groups with a public table, the values of the equated public column are the keys. A SELECT over
released and public rows becomes a text, with the released numbers in each of its columns. UNION ALL may combine rows of
people, with the owner as the last column; every set operation may combine released rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dpsql.contract.expression.kinds import NUMBERS, Type
from dpsql.contract.parameters import fold, show
from dpsql.contract.query.aggregates import aggregates_in, is_aggregate
from dpsql.contract.query.catalogue import Catalogue, Options
from dpsql.contract.query.cores import (
    CoreSelect,
    PostExpressions,
    finish_core,
    free_function,
    free_show,
    free_table,
    is_empty,
    refuse_name,
)
from dpsql.contract.query.draws import Forms, binds, hidden, tried
from dpsql.contract.query.errors import (
    PUBLIC_STANDING,
    ErrorsAround,
    ReleasedErrors,
    draw_names,
    hidden_names,
    hidden_sql,
    released,
    released_column,
    with_errors,
)
from dpsql.contract.query.expressions import ColumnSql, RowExpressions
from dpsql.contract.query.intervals import columns_of, counts_nothing_without
from dpsql.contract.query.joins import of_nobody, without_unit
from dpsql.contract.query.keys import values_query
from dpsql.contract.query.nodes import (
    Derived,
    Expr,
    From,
    Join,
    Listed,
    Modifiers,
    Order,
    Query,
    Select,
    SetOperation,
    Show,
    TableFunction,
    TableRef,
    With,
    about,
    default_name,
    ends,
    leaves,
    select_text,
)
from dpsql.contract.query.people import TWO_STAGES, Lifter
from dpsql.contract.query.relations import (
    DATE,
    PUBLIC,
    RELEASED,
    ROWS,
    UNIT,
    Column,
    Env,
    Form,
    Item,
    KeyValues,
    Noisy,
    QueryRelation,
    Scope,
    Splitting,
    UnboundError,
    UnfoundError,
    check_written,
    item_column,
    nulls_sql,
)
from dpsql.contract.query.spellings import is_plain
from dpsql.contract.query.split import ONE, NoisyNumbers, Split
from dpsql.contract.query.stages import NUMBERING, Leaf, RowBlock, Stage, asks, first_of, levels, replaced
from dpsql.contract.query.tree import chosen_by_others
from dpsql.errors import ParameterError, SourceError
from dpsql.rendering import call, cast, identifier

_NOTHING = "CAST(NULL AS DOUBLE)"


def is_union_of_different(query: SetOperation) -> bool:
    """Whether a UNION merges equal rows of its queries."""
    return query.kind == "UNION" and (not query.every or query.modifiers.distinct)


def as_distinct(query: SetOperation) -> Select:
    """Return SELECT DISTINCT of UNION ALL, which equals UNION."""
    union = replace(query, every=True, withs=(), modifiers=Modifiers())
    star = Expr("star")
    return Select(query.withs, replace(query.modifiers, distinct=True), (star,), Derived(union, "united"))


def union_of_rows(work: Splitting, query: SetOperation, parts: Sequence[QueryRelation]) -> QueryRelation:
    """Return the union of rows of people.

    Raises
    ------
    ParameterError
        P103: the operation is not UNION ALL, or has a LIMIT. P105: a part is released.
    """
    if query.kind != "UNION" or not query.every or query.modifiers.distinct or query.modifiers.cuts:
        raise ParameterError(
            "P103",
            f"sql: {query.kind} of people's rows{' with LIMIT' if query.kind == 'UNION' else ''} is not answered. "
            + ("Leave LIMIT out." if query.kind == "UNION" else "Write WHERE EXISTS or NOT EXISTS by the person."),
        )
    if any(part.level == RELEASED for part in parts):
        raise ParameterError(
            "P105", "sql: released numbers stand among rows of people. Aggregate each part on its own."
        )
    if any(part.level != ROWS for part in parts):
        raise ParameterError("P103", "sql: public rows stand among rows of people. Aggregate each part on its own.")
    first = parts[0]
    if len({part.owned for part in parts}) > 1:
        raise without_unit(table for part in parts if not part.owned for table in part.tables)
    if any((part.pending, part.owned, part.period) != (first.pending, first.owned, first.period) for part in parts):
        raise ParameterError("P103", "sql: UNION ALL of tables that reach people in different ways. Join them first.")
    if len({len(part.columns) for part in parts}) > 1:
        raise ParameterError("P101", "sql: the parts of UNION ALL have different numbers of columns. Select the same.")
    nulls = (nulls_sql((f"c{at}", column.type) for at, column in enumerate(part.columns)) for part in parts)
    kinds = work.catalogue.typing.columns(f"SELECT * FROM ({' UNION ALL '.join(nulls)})")
    if kinds is None:
        raise ParameterError("P101", "sql: the parts of UNION ALL have types that do not go together. Cast them.")
    texts = []
    for part in parts:
        listed = []
        for index, column in enumerate(part.columns):
            value = Expr("item", column.sql, value="u")
            read = {("u", column.sql): ColumnSql(f"u.{identifier(column.sql)}", column.type)}
            kind = kinds[index][1]
            projection = work.expressions.write(value, read, None if kind == column.type else kind.sql)
            listed.append(f"{projection.sql} AS {identifier(f'c{index}')}")
        if part.owned:
            owner = next(candidate.sql for candidate in (*part.columns, *part.unseen) if candidate.owner)
            date = next((candidate.sql for candidate in (*part.columns, *part.unseen) if candidate.dated), None)
            listed += [f"u.{identifier(date)} AS {identifier(DATE)}"] if date is not None else []
            listed.append(f"u.{identifier(owner)} AS {identifier(UNIT)}")
        texts.append(f"SELECT {', '.join(listed)} FROM {part.sql} AS u")
    columns = tuple(_column(work, index, kinds[index][1], parts) for index in range(len(first.columns)))
    return replace(
        first,
        columns=columns,
        sql=f"({' UNION ALL '.join(texts)})",
        unseen=tuple(
            replace(column, name=name, sql=name)
            for name, column in (
                (DATE, next((candidate for candidate in (*first.columns, *first.unseen) if candidate.dated), None)),
                (UNIT, next((candidate for candidate in (*first.columns, *first.unseen) if candidate.owner), None)),
            )
            if column is not None
        ),
        tables=tuple(dict.fromkeys(table for part in parts for table in part.tables)),
        name=(),
    )


def released_union(
    work: Splitting, query: SetOperation, env: Env, parts: Sequence[QueryRelation], level: str
) -> QueryRelation:
    """Return a set operation of released and public rows; each row of a UNION has the intervals of its part."""
    word = f" {query.kind}{' ALL' if query.every else ''} "
    inner: dict[int, QueryRelation] = {}
    below = ends(query, PostExpressions(work, env, inner=inner))
    distinct = "DISTINCT " if query.modifiers.distinct else ""
    sql = f"(SELECT {distinct}* FROM ({word.join(part.sql for part in parts)}){below})"
    width = min(len(part.columns) for part in parts)
    noisy = [frozenset().union(*(part.columns[index].noisy for part in parts)) for index in range(width)]
    out = released(work, sql, noisy, level, within=env.outer is not None)
    names = [column.name for column in out.columns]
    widths = {len(part.columns) for part in (*parts, out)}
    if level == PUBLIC or query.kind != "UNION" or len(widths) > 1 or len(set(map(fold, names))) < width:
        return out
    noise_counts = [_noise_count(index, out.columns[index].type, parts) for index in range(width)]
    every = query.every and not query.modifiers.distinct

    def with_intervals(counts: Sequence[NoisyNumbers]) -> str:
        pairs = [
            (index, count) for index, own in enumerate(noise_counts) if own for count in counts if count.covers(own)
        ]
        union = " UNION ALL ".join(_part(part, names, pairs, counts) for part in parts)
        return f"(SELECT * FROM ({union if every else _joined_text(union, names, pairs)}){below})"

    return replace(
        out,
        columns=tuple(
            replace(column, noisy_numbers=count) for column, count in zip(out.columns, noise_counts, strict=True)
        ),
        write_intervals=with_intervals if any(noise_counts) else None,
        fixed=every and not query.modifiers.cuts and all(part.level == PUBLIC or part.fixed for part in parts),
    )


def _noise_count(index: int, kind: Type, parts: Sequence[QueryRelation]) -> NoisyNumbers | None:
    """Return the most noisy numbers in a column of a UNION: a row comes from one part."""
    candidates = [part.columns[index].noisy_numbers for part in parts if part.write_intervals is not None]
    counts = [candidate for candidate in candidates if candidate]
    if kind.kind not in NUMBERS or not counts:
        return None if any(part.columns[index].noisy for part in parts) else NoisyNumbers()
    return NoisyNumbers.most(counts)


def _part(
    part: QueryRelation,
    names: Sequence[str],
    pairs: Sequence[tuple[int, NoisyNumbers]],
    counts: Sequence[NoisyNumbers],
) -> str:
    """Return the rows of a part of a UNION, then the error and ends of some columns."""
    text = part.sql if part.write_intervals is None else part.write_intervals(counts)
    listed = [
        f"u.{identifier(source.sql)} AS {identifier(name)}" for source, name in zip(part.columns, names, strict=True)
    ]
    for index, count in pairs:
        column = part.columns[index]
        value = f"u.{identifier(column.sql)}"
        interval = [_NOTHING] * 4
        if column.noisy_numbers:
            interval = [f"u.{identifier(name)}" for name in hidden_names(index, count)]
        elif column.type.kind in NUMBERS and not column.noisy:
            interval = [_NOTHING, cast(value, "DOUBLE"), cast(value, "DOUBLE"), PUBLIC_STANDING]
        listed += hidden_sql(interval, index, count)
    return f"(SELECT {', '.join(listed)} FROM {text} AS u)"


def _joined_text(joined: str, names: Sequence[str], pairs: Sequence[tuple[int, NoisyNumbers]]) -> str:
    """Return distinct rows; the interval of a row of several parts contains the intervals of all these parts."""
    listed = [identifier(name) for name in names]
    for index, count in pairs:
        error, *both, standing = map(identifier, hidden_names(index, count))
        alone = f"CASE WHEN {call('count_star')} = 1 THEN {call('min', error)} END"
        unknown = call("count_if", " OR ".join(f"{end} IS NULL" for end in both))
        hull = [
            f"CASE WHEN {unknown} = 0 THEN {call(name, end)} END"
            for name, end in zip(("min", "max"), both, strict=True)
        ]
        listed += hidden_sql([alone, *hull, call("max", standing)], index, count)
    return f"SELECT {', '.join(listed)} FROM ({joined}) GROUP BY {', '.join(map(identifier, names))}"


def _column(work: Splitting, index: int, kind: Type, parts: Sequence[QueryRelation]) -> Column:
    columns = [part.columns[index] for part in parts]
    bounds = columns[0].interval
    for column in columns[1:]:
        bounds = bounds.hull(column.interval)
    ties = {column.tie for column in columns}
    return replace(
        columns[0],
        sql=f"c{index}",
        type=kind,
        interval=bounds,
        keys=lambda: _keys(work, columns, kind),
        owner=all(column.owner for column in columns),
        dated=all(column.dated for column in columns),
        is_present=all(column.is_present for column in columns),
        tie=ties.pop() if len(ties) == 1 else None,
    )


def _keys(work: Splitting, columns: Sequence[Column], kind: Type) -> KeyValues | None:
    """Return the public values of all parts."""
    listings = [listing for listing in (column.keys() for column in columns) if listing is not None]
    if len(listings) < len(columns):
        return None
    origin = listings[0].origin
    if all(listing.values is not None for listing in listings):
        return KeyValues(
            tuple(dict.fromkeys(value for listing in listings for value in listing.values or ())), None, origin
        )
    if not work.revised():
        return None
    queries = [values_query(listing, column.type) for listing, column in zip(listings, columns, strict=True)]
    listed = (f"(SELECT CAST(v AS {kind.sql}) AS v FROM ({query}) AS listed(v))" for query in queries)
    return KeyValues(None, " UNION ".join(listed), origin)


def released_select(
    work: Splitting,
    query: Select,
    env: Env,
    leaf: Leaf,
    relations: Sequence[QueryRelation],
    names: Sequence[str] | None,
) -> QueryRelation:
    """Return the relation of a SELECT over released and public rows; `names` are its columns' names, if known."""
    scope = Scope()
    for number, reference in enumerate(leaves(query.source)):
        relation, alias = leaf(reference)
        scope.items.append(Item(f"p{number}", relation, alias))
    scope.aliases = {fold(item.alias): item for item in query.items if item.alias}
    inner: dict[int, QueryRelation] = {}
    if names is not None and len(names) == len(query.items) and not any(item.what == "star" for item in query.items):
        items = zip(query.items, names, strict=True)
        query = replace(query, items=tuple(replace(item, alias=name) for item, name in items))
    query = _ordered_by_contents(work, query, scope)
    writer = PostExpressions(work, env, scope, inner)
    sql = f"({select_text(query, writer, lambda source: _leaf_text(leaf(source)))})"
    noisy = _noisy(query, scope, inner)
    level = levels([*relations, *inner.values()])
    out = released(work, sql, noisy, level, within=env.outer is not None)
    if not work.options.errors or level == PUBLIC:
        return out
    return _with_intervals(query, out, scope, writer)


def _ordered_by_contents(work: Splitting, query: Select, scope: Scope) -> Select:
    """Return a query of public tables whose windows number rows in a total order: the caller's, then all contents.

    Otherwise DuckDB would number rows that tie as it reads them, which is refused beside rows of people (S045).
    """
    columns = [(item, column) for item in scope.items for column in item.relation.columns]
    aliases = [fold(item.alias) for item in scope.items]
    is_named = all(item.relation.level == PUBLIC and item.alias for item in scope.items) and len({*aliases}) == len(
        aliases
    )
    grouped = query.groups or query.group_all or query.sets or any(map(aggregates_in, query.items))
    if (
        grouped
        or not is_named
        or not all(column.type.kind == "VARCHAR" or is_plain(column.type) for _, column in columns)
    ):
        return query
    contents = [(column.type, Expr("column", names=(item.alias, column.name))) for item, column in columns]
    more = tuple(
        Order(Expr("call", "encode", (column,)) if kind.kind == "VARCHAR" else column, "ASC", "NULLS LAST")
        for kind, column in contents
    )

    def numbered(expr: Expr) -> Expr:
        out = expr.mapped(numbered)
        return replace(out, orders=(*out.orders, *more)) if out.what == "window" and out.name in NUMBERING else out

    items = tuple(numbered(item) if item.alias else item for item in query.items)
    qualify = None if query.qualify is None else numbered(query.qualify)
    ordered = replace(query, items=items, qualify=qualify)
    return ordered if ordered != query and work.revised() else query


def _with_intervals(query: Select, out: QueryRelation, scope: Scope, writer: PostExpressions) -> QueryRelation:
    """Return a SELECT with the writer of its columns' intervals."""
    modifiers = query.modifiers
    items = _spelled_out(query, scope)
    if len(query.sets) > 1 or modifiers.distinct or modifiers.distinct_on or items is None:
        return out
    # Relations without a name get one here, which qualifies their interval columns.
    named_scope = replace(scope, items=[replace(item, id=item.alias or f"dpsql_{item.id}") for item in scope.items])
    if len(items) != len(out.columns) or len({fold(item.id) for item in named_scope.items}) < len(named_scope.items):
        return out
    merged = _merged(query.source)
    still = merged is not None and not any(
        column.noisy for item in named_scope.items for column in item.relation.columns if fold(column.name) in merged
    )

    def errors(numbers: NoisyNumbers, steady: bool = False, stays: bool = False) -> ReleasedErrors:
        around = ErrorsAround(writer.over, writer.subquery, steady, stays)
        return ReleasedErrors(None, around, numbers, scope=named_scope)

    checker = errors(ONE)
    conditions = [*_ons(query.source), *([] if query.where is None else [query.where])]
    is_still = still and all(map(checker.quiet, conditions))
    relations = [item.relation for item in named_scope.items if item.relation.level != PUBLIC]
    steady = is_still and all(relation.fixed for relation in relations)
    grouped = bool(query.groups or query.group_all or any(map(aggregates_in, items)))
    is_grouped_still = not grouped or all(map(checker.quiet, _groups(query, items, named_scope)))
    if is_still and is_grouped_still and all(relation.stays and not relation.chosen for relation in relations):
        out = _with_draws(query, items, out, errors(ONE, stays=True), writer, named_scope)
    if grouped and not (steady and is_grouped_still):
        return out
    # Windows of a grouped query read groups, not the rows of FROM.
    counter = errors(ONE, steady=steady)
    noise_counts = [None if grouped and _windows(item) else counter.noisy_numbers(item) for item in items]
    choosing = [*conditions, *(clause for clause in (query.having, query.qualify) if clause is not None)]
    choosing += [order.expression for order in modifiers.orders] if modifiers.cuts else []
    if not all(map(checker.quiet, choosing)):
        noise_counts = [
            count and NoisyNumbers.of_all_groups(checker.noisy(item))
            for count, item in zip(noise_counts, items, strict=True)
        ]
    sources = dict(zip(map(id, leaves(query.source)), named_scope.items, strict=True))

    def with_intervals(counts: Sequence[NoisyNumbers]) -> str:
        pairs = [
            (index, count) for index, own in enumerate(noise_counts) if own for count in counts if count.covers(own)
        ]

        def read(source: From) -> str:
            item = sources[id(source)]
            sql = item.relation.sql if item.relation.write_intervals is None else item.relation.write_intervals(counts)
            return f"{sql} AS {identifier(item.id)}"

        hidden = (errors(count, steady).hidden(items[index], index) for index, count in pairs)
        intervals = [sql for interval in hidden for sql in interval]
        return f"({select_text(replace(query, items=tuple(items)), writer, read, intervals)})"

    columns = tuple(
        replace(column, noisy_numbers=count) for column, count in zip(out.columns, noise_counts, strict=True)
    )
    fixed = steady and query.qualify is None and query.having is None and not modifiers.cuts
    return replace(out, columns=columns, write_intervals=with_intervals if any(noise_counts) else None, fixed=fixed)


def _with_draws(
    query: Select, items: list[Expr], out: QueryRelation, errors: ReleasedErrors, writer: PostExpressions, scope: Scope
) -> QueryRelation:
    """Return a SELECT with the forms of its columns, and a function that writes it for draws of the noise."""
    modifiers = query.modifiers
    if query.having is not None and not errors.quiet(query.having):
        return out
    chosen = query.qualify is not None or (
        modifiers.cuts and not all(errors.quiet(order.expression) for order in modifiers.orders)
    )
    grouped = bool(query.groups or query.group_all or any(map(aggregates_in, items)))
    plain = len(scope.items) == 1 and query.where is None and not grouped
    forms: list[Form | None] = []
    for item in items:
        form = None if grouped and _windows(item) else Forms(errors, writer.sql).of(item)
        passed = released_column(item, scope) if form is None and item.what == "column" and plain else None
        if passed is not None and passed[2].form is not None:
            divisor, order, among = (passed[0].sql(name) for name in draw_names(passed[1]))
            form = Form(passed[2].form.kind, divisor if passed[2].form.divisor else "", order, among)
        forms.append(form)
    sources = dict(zip(map(id, leaves(query.source)), scope.items, strict=True))

    def write_draws() -> str:
        def read(source: From) -> str:
            item = sources[id(source)]
            write = item.relation.write_draws
            return f"{item.relation.sql if write is None else write()} AS {identifier(item.id)}"

        listed = []
        for item, form, column in zip(items, forms, out.columns, strict=True):
            value = Expr("cast", "DOUBLE", (Expr("constant", "NULL"),)) if form is None else tried(item)
            listed.append(replace(value, alias=column.sql))
        more = [sql for index, form in enumerate(forms) for sql in hidden(form, index)]
        shortened = replace(query, items=tuple(listed))
        if chosen or not modifiers.cuts:
            shortened = replace(shortened, qualify=None, modifiers=Modifiers())
        return f"({select_text(shortened, writer, read, more)})"

    columns = tuple(replace(column, form=form) for column, form in zip(out.columns, forms, strict=True))
    return replace(out, columns=columns, write_draws=write_draws, stays=True, chosen=chosen)


def _groups(query: Select, items: Sequence[Expr], scope: Scope) -> list[Expr]:
    """Return the expressions of GROUP BY, with names and positions of the select list replaced."""
    if query.group_all and not query.groups:
        return [item for item in items if not aggregates_in(item)]
    aliases = {fold(item.alias): item for item in items if item.alias}
    out = []
    for group in query.groups:
        position = str(group.value) if group.what == "constant" and group.name == "number" else ""
        if position.isdecimal() and 1 <= int(position) <= len(items):
            out.append(items[int(position) - 1])
        elif group.what == "column" and released_column(group, scope) is None:
            out.append(aliases.get(fold(group.names[-1]), group))
        else:
            out.append(group)
    return out


def _windows(expr: Expr) -> bool:
    return any(part.what == "window" for part in expr.walk())


def _spelled_out(query: Select, scope: Scope) -> list[Expr] | None:
    """Return the select list with stars expanded; None if a star is more than all columns."""
    out: list[Expr] = []
    for expr in query.items:
        if expr.what != "star":
            out.append(expr)
            continue
        chosen = [item for item in scope.items if not expr.name or fold(item.alias) == fold(expr.name)]
        if expr.names or expr.parts or (not expr.name and _merges(query.source)):
            return None
        if len(scope.items) > 1 and not all(item.alias for item in chosen):
            return None
        out += [
            Expr("column", names=(*((item.alias,) if item.alias else ()), column.name), alias=column.name)
            for item in chosen
            for column in item.relation.columns
        ]
    return out


def _takes_nearest(source: From) -> bool:
    """Whether a FROM has an ASOF JOIN."""
    return isinstance(source, Join) and (source.nearest or any(map(_takes_nearest, (source.left, source.right))))


def _ons(source: From) -> list[Expr]:
    """Return the conditions of joins, without USING."""
    if not isinstance(source, Join):
        return []
    own = [source.condition] if source.condition is not None else []
    return [*own, *_ons(source.left), *_ons(source.right)]


def _merged(source: From) -> set[str] | None:
    """Return the folded columns of USING; None for NATURAL joins."""
    if not isinstance(source, Join):
        return set()
    sides = [_merged(source.left), _merged(source.right)]
    if source.natural or None in sides:
        return None
    return set(map(fold, source.using)).union(*(side for side in sides if side is not None))


def _merges(source: From) -> bool:
    """Whether USING or NATURAL merges columns of several relations."""
    if not isinstance(source, Join):
        return False
    return bool(source.using or source.natural) or _merges(source.left) or _merges(source.right)


def _leaf_text(leaf: tuple[QueryRelation, str]) -> str:
    relation, alias = leaf
    return f"{relation.sql} AS {identifier(alias)}" if alias else relation.sql


def _noisy(query: Select, scope: Scope, inner: dict[int, QueryRelation]) -> list[Noisy]:
    """Return the released numbers in each column of the select list; one set of all if it has a star."""
    every: Noisy = frozenset().union(
        *(column.noisy for item in scope.items for column in item.relation.columns),
        *(column.noisy for relation in inner.values() for column in relation.columns),
    )
    if any(item.what == "star" for item in query.items):
        if len(query.items) == 1 and not query.items[0].names and not isinstance(query.source, Join):
            return [column.noisy for item in scope.items for column in item.relation.columns]
        return [every]
    return [_noisy_of(item, scope, inner, every) for item in query.items]


def _noisy_of(expr: Expr, scope: Scope, inner: dict[int, QueryRelation], every: Noisy) -> Noisy:
    out: set[tuple[str, str]] = set()
    for part in expr.walk():
        if part.what == "column":
            try:
                reference = scope.resolved(part.names)
            except SourceError:  # in several relations, as by USING
                theirs = (item.column(part.names[-1]) for item in scope.items)
                out |= {number for column in theirs if column is not None for number in column.noisy}
                continue
            if reference is not None and reference.what == "item":
                out |= scope.column(reference).noisy
            elif reference is None and fold(part.names[0]) in scope.aliases:
                out |= every
        if part.what == "subquery" and id(part.query) in inner:
            out |= {number for column in inner[id(part.query)].columns for number in column.noisy}
        elif part.what in ("subquery", "star"):
            out |= every
    return frozenset(out)


def joined_values(work: Splitting, query: Select, env: Env) -> dict[str, KeyValues]:
    """Return the columns that a query equates with public columns, with the values of these."""
    scope = Scope()
    for leaf in leaves(query.source):
        if isinstance(leaf, TableRef) and (any(leaf.names[:2]) or fold(leaf.names[2]) not in env.withs):
            table = work.catalogue.table(leaf.names)
            if table is not None and table.public and not leaf.columns:
                scope.items.append(Item(f"p{len(scope.items)}", work.table(table), leaf.alias or leaf.names[2]))
    out: dict[str, KeyValues] = {}
    for left, right in _equated(query.source, query.where):
        sides = [_public(names, scope) for names in (left, right)]
        for source, other in ((sides[0], right), (sides[1], left)):
            if source is not None and None in sides:
                column = f"{identifier(source.relation.name[-1])}.{identifier(source.column)}"
                listed = f"SELECT DISTINCT {column} AS v FROM {source.relation.sql}"
                out[fold(other[-1])] = KeyValues(None, listed, f"the public {source.relation.name[-1]}")
    return out


class _PublicColumn(NamedTuple):
    relation: QueryRelation
    column: str


def _public(names: tuple[str, ...], scope: Scope) -> _PublicColumn | None:
    """Return the public table and column of a name."""
    try:
        column = scope.resolved(names)
    except SourceError:
        return None
    if column is None or column.what != "item":
        return None
    return _PublicColumn(scope.item(str(column.value)).relation, column.name)


def _equated(source: From, where: Expr | None) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield the pairs of columns that are equal in every row."""
    conditions = [where] if where is not None else []
    todo = [source]
    while todo:
        relation = todo.pop()
        if isinstance(relation, Join) and relation.kind == "INNER":
            todo += [relation.left, relation.right]
            conditions += [relation.condition] if relation.condition is not None else []
    while conditions:
        condition = conditions.pop()
        if condition.what == "and":
            conditions += condition.parts
        if (
            condition.what == "compare"
            and condition.name == "="
            and all(part.what == "column" for part in condition.parts)
        ):
            yield condition.parts[0].names, condition.parts[1].names


_MOST_SUBQUERIES = 2_000
_LATERAL = (
    "sql: LATERAL is not read: a subquery in FROM reads columns of what stands beside it. Join a grouped subquery: "
    "JOIN (SELECT key, count(*) AS n FROM ... GROUP BY key) USING (key); compute of one row in the select list."
)
_Reader = Callable[[Mapping[str, KeyValues]], QueryRelation]


def _example_of(relation: QueryRelation) -> str:
    """Return an aggregate over the columns of a relation of rows."""
    writable = [column for column in relation.columns if column.name.isidentifier()]
    numbers = [column.name for column in writable if column.type.kind in NUMBERS]
    others = [column.name for column in writable if column.type.kind not in NUMBERS]
    value = f", avg({numbers[0]})" if numbers else ""
    if not others:
        return f"SELECT count(*){value} FROM ..."
    return f"SELECT {others[0]}, count(*){value} FROM ... GROUP BY {others[0]}"


def split(query: Query, catalogue: Catalogue, options: Options) -> Split:
    """Return the parts of a query.

    Parameters
    ----------
    query : Query
        As `tree.read_tree` returns it.
    catalogue : Catalogue
    options : Options

    Raises
    ------
    ParameterError
        P065, P070, P080 to P084, P101 to P107: the query is refused, with the line to write.
    SourceError
        S002: a name is not found. S012: rows of several people would meet.
    """
    if is_empty(query):
        return _empty(options)
    splitter = Splitter(catalogue, options)
    relation = splitter.query(query, Env(top=True))
    if relation.level == ROWS:
        raise ParameterError(
            "P102",
            "sql returns rows of people. Ask for counts, sums, averages or quantiles, with GROUP BY columns whose "
            f"values are public, such as {_example_of(relation)}.",
        )
    cores = tuple(map(finish_core, splitter.work.cores))
    if options.errors:
        columns = len(options.columns or relation.columns)
        with_columns = with_errors(splitter.work, relation, columns)
        if not binds(splitter.work):
            with_columns = with_errors(splitter.work, relation, columns, draws=False)
        relation = with_columns
    names = options.columns or tuple((column.name, column.type.sql) for column in relation.columns)
    names += tuple((column.name, column.type.sql) for column in relation.columns[len(names) :])
    for text in (relation.sql, *(core.source for core in cores)):
        check_written(text)
    post, intervals = _renamed(relation, [name for name, _ in names]), tuple(splitter.work.intervals)
    if splitter.work.split_again:
        cores = tuple(core for core in cores if re.search(rf"\b{core.name}\b", post))
        intervals = tuple(interval for interval in intervals if interval[0] in {core.name for core in cores})
    return Split(
        cores,
        post,
        names,
        tuple(tuple(sorted(column.noisy)) for column in relation.columns),
        tuple(splitter.work.notes),
        intervals,
        frozenset(splitter.work.differs),
        splitter.work.lacking,
        splitter.work.draws,
    )


def _renamed(relation: QueryRelation, names: list[str]) -> str:
    if [column.name for column in relation.columns] == names or len(names) != len(relation.columns):
        return relation.sql.removeprefix("(").removesuffix(")") if relation.sql.startswith("(SELECT") else (
            f"SELECT * FROM {relation.sql}"
        )  # fmt: skip
    # The text within, which is complete, keeps the order of rows.
    return f"SELECT * FROM {relation.sql} AS dpsql_result({', '.join(map(identifier, names))})"


def _empty(options: Options) -> Split:
    """Return the split of a query that no row can pass: its columns only."""
    columns = options.columns or ()
    listed = ", ".join(f"CAST(NULL AS {kind}) AS {identifier(name)}" for name, kind in columns)
    return Split(
        (),
        f"SELECT {listed or 'NULL AS nothing'} WHERE false",
        columns,
        tuple(() for _ in columns),
        ("no row can pass",),
    )


class Splitter:
    """Reads one query.

    Parameters
    ----------
    catalogue : Catalogue
    options : Options
    """

    def __init__(self, catalogue: Catalogue, options: Options) -> None:
        self.work = Splitting(catalogue, options, self.query, RowExpressions(catalogue.typing, options.zone))
        self._subqueries = 0
        self._lifter = Lifter(self.work, self._leaf)

    def query(self, query: Query, env: Env) -> QueryRelation:
        """Return the relation of a query, or of a part."""
        self._subqueries += 1
        if self._subqueries > _MOST_SUBQUERIES:
            raise ParameterError("P100", "sql has too many subqueries within one another. Keep parts of it as views.")
        inner, waiting = self._withs(query, replace(env, top=False, joined={}))
        if isinstance(query, Select):
            out = self._select(query, inner, env)
        elif isinstance(query, SetOperation):
            out = self._set_operation(query, inner)
        else:
            raise ParameterError("P101", "sql: a part of it is no SELECT. Write it as one.")
        for reader in waiting:  # unused WITH queries are read, too, and refused if they are not allowed
            reader({})
        return out

    def _withs(self, query: Query, env: Env) -> tuple[Env, list[_Reader]]:
        waiting = []
        for clause in query.withs:
            refuse_name(clause.name)
            reader = self._with(clause, replace(env, outer=None))
            waiting.append(reader)
            env = replace(env, withs={**env.withs, fold(clause.name): reader})
        return env, waiting

    def _with(self, clause: With, env: Env) -> _Reader:
        cache: list[QueryRelation] = []

        def read(joined: Mapping[str, KeyValues]) -> QueryRelation:
            if not cache:
                relation = self.query(clause.query, replace(env, joined={} if clause.columns else joined))
                cache.append(self._columns_named(relation, clause.columns))
            return cache[0]

        return read

    def _columns_named(self, relation: QueryRelation, names: tuple[str, ...]) -> QueryRelation:
        """Return a relation with other column names, also in its text if names are read there."""
        if not names:
            return relation
        out = relation.renamed(names)
        if relation.level == ROWS:
            return out
        listed = ", ".join(identifier(column.name) for column in out.columns)

        def with_names(sql: str) -> str:
            return f"(SELECT * FROM {sql} AS dpsql_with({listed}))"

        columns = tuple(replace(column, sql=column.name) for column in out.columns)
        write = relation.write_intervals
        intervals = None if write is None else lambda counts: with_names(write(counts))
        draws = relation.write_draws
        drawing = None if draws is None else lambda: with_names(draws())
        sql = with_names(relation.sql)
        return replace(out, columns=columns, sql=sql, write_intervals=intervals, write_draws=drawing)

    # FROM.

    def _leaf(self, env: Env, joined: Mapping[str, KeyValues] | None = None) -> Leaf:
        cache: dict[int, tuple[QueryRelation, str]] = {}

        def read(source: From) -> tuple[QueryRelation, str]:
            if id(source) not in cache:
                cache[id(source)] = self._read(source, env, joined or {})
            return cache[id(source)]

        return read

    def _read(self, source: From, env: Env, joined: Mapping[str, KeyValues]) -> tuple[QueryRelation, str]:
        """Return the relation of a FROM item, and its name."""
        alias = str(getattr(source, "alias", ""))
        refuse_name(alias)
        columns: tuple[str, ...] = getattr(source, "columns", ())
        if isinstance(source, TableRef):
            relation = self._table(source, env, joined)
            alias = alias or source.names[2]
        elif isinstance(source, Derived):
            relation = self.query(source.query, replace(env, joined=joined))
        elif isinstance(source, Listed):
            writer = PostExpressions(self.work, env)
            rows = ", ".join(f"({', '.join(writer.sql(cell) for cell in row)})" for row in source.rows)
            text = f"(SELECT * FROM (VALUES {rows}))"
            relation = released(self.work, text, (), PUBLIC)
        elif isinstance(source, TableFunction):
            relation = free_function(self.work, source, env)
            alias = alias or source.call.name
        elif isinstance(source, Show):
            relation = free_show(self.work, source)
        else:
            raise ParameterError("P101", "sql: a part of FROM is not read. Write tables and subqueries.")
        return self._columns_named(relation, columns), alias

    def _table(self, source: TableRef, env: Env, joined: Mapping[str, KeyValues]) -> QueryRelation:
        names = source.names
        if not names[0] and not names[1] and fold(names[2]) in env.withs:
            return env.withs[fold(names[2])](joined)
        free = free_table(self.work, names)
        if free is not None:
            return free
        table = self.work.catalogue.table(names)
        if table is None:
            raise SourceError(
                "S001", f"sql: table {show('.'.join(name for name in names if name))} cannot be found. Check its name."
            )
        return self.work.table(table)

    # SELECT.

    def _select(self, query: Select, env: Env, outer: Env) -> QueryRelation:
        top = outer.top
        leaf = self._leaf(env, joined_values(self.work, query, env))
        relations = self._relations(query, leaf)
        level = levels(relations)
        if level == ROWS and any(relation.level == RELEASED for relation in relations):
            condition = _joined_as_condition(query)
            chosen = None if condition is None else _choosing_groups(condition)
            if chosen is None:
                raise ParameterError("P105", TWO_STAGES)
            self.work.split_again = True
            return self._select(chosen, env, outer)
        if level == ROWS:
            rows_env = replace(env, joined=outer.joined)
            try:
                return self._rows(query, rows_env, leaf, top)
            except ParameterError as error:
                chosen = _choosing_groups(query) if error.code == "DPSQL-P105" else None
                if chosen is None:
                    raise
            self.work.split_again = True
            return self._rows(chosen, rows_env, leaf, top)
        if _takes_nearest(query.source):
            raise chosen_by_others("ASOF")
        names = [name for name, _ in self.work.options.columns or ()] if top else None
        return released_select(self.work, query, env, leaf, relations, names)

    def _relations(self, query: Select, leaf: Leaf) -> list[QueryRelation]:
        """Return the relations of the FROM items; raise P101 if one reads columns of another."""
        sources = leaves(query.source)
        out = []
        for source in sources:
            try:
                out.append(leaf(source)[0])
            except (SourceError, UnboundError) as error:
                # DuckDB binds the whole query, so other FROM items have the names that are not found.
                unseen = isinstance(error, (UnboundError, UnfoundError))
                if (
                    unseen
                    and len(sources) > 1
                    and isinstance(source, Derived)
                    and self.work.options.columns is not None
                ):
                    raise ParameterError("P101", _LATERAL) from None
                raise
        return out

    # Rows of people.

    def _rows(self, query: Select, env: Env, leaf: Leaf, top: bool) -> QueryRelation:
        block = RowBlock(self.work, leaf, self._lifter.lift, env)
        block.open(query.source)
        items = self._items(query, block.scope)
        names = self._names(len(items)) if top else None
        items = [(expr, names[index] if names else name) for index, (expr, name) in enumerate(items)]
        try:
            block.where(query.where)
        except SourceError as error:
            self._refuse_correlated(error, query.where, block.scope, env)
            raise
        modifiers, groups = query.modifiers, self._groups(query, block.scope, items)
        having = None if query.having is None else _with_aliases(query.having, block.scope, groups)
        having, qualify = (
            None if clause is None else self.work.read(clause, block.scope) for clause in (having, query.qualify)
        )
        if modifiers.distinct_on:
            if qualify is not None:
                raise ParameterError(
                    "P103", "sql: DISTINCT ON beside QUALIFY is not read. Write QUALIFY in a subquery."
                )
            orders = self._orders(modifiers.orders, block.scope, items)
            on = self._orders(tuple(map(Order, modifiers.distinct_on)), block.scope, items)
            qualify, modifiers = (
                first_of([order.expression for order in on], orders),
                replace(modifiers, distinct_on=()),
            )
        everything = [expr for expr, _ in items] + [expr for expr in (having, qualify) if expr is not None]
        aggregated = bool(groups or query.group_all or query.sets or any(aggregates_in(expr) for expr in everything))
        sets = query.sets
        if modifiers.distinct and not aggregated:
            groups, aggregated, sets = [expr for expr, _ in items], True, ()
            modifiers = replace(modifiers, distinct=False)
        orders = self._orders(modifiers.orders, block.scope, items) if aggregated else ()
        counted = [*everything, *(order.expression for order in orders)]
        if block.missing and not (aggregated and all(self._of_people(block, expr) for expr in counted)):
            raise of_nobody()
        if not aggregated:
            if modifiers.cuts and not top:
                with about(modifiers.limit or modifiers.offset):
                    raise ParameterError(
                        "P103",
                        "sql: LIMIT on rows of people is not answered, since it would choose them by their order. "
                        "Leave it out, or write a condition such as a range of dates.",
                    )
            lifted = [(block.lifted(expr), name) for expr, name in items]
            chosen = None if qualify is None else block.lifted(qualify)
            return self._plain(block.close(), lifted, [] if chosen is None else [chosen])
        inside = [(self._inside(block, expr), name) for expr, name in items]
        lookups = {group: block.lifted(group) for group in groups if asks(group)}
        groups = [lookups.get(group, group) for group in groups]
        inside = [(replaced(expr, lookups), name) for expr, name in inside]
        having, qualify = (None if clause is None else self._inside(block, clause) for clause in (having, qualify))
        orders = tuple(replace(order, expression=self._inside(block, order.expression)) for order in orders)
        stage = block.close()
        if any(stage.is_owner(group) or (stage.member.owned and stage.is_tied(group)) for group in groups):
            return self._per_person(stage, inside, groups, sets, having, qualify, modifiers.cuts)
        stage.member = block.joining.with_path(stage.member)
        return CoreSelect(
            self.work, stage, env, inside, groups, sets, having, qualify, orders, replace(modifiers, orders=orders),
            has_error_columns=top and self.work.options.errors,
        ).relation()  # fmt: skip

    def _refuse_correlated(self, error: SourceError, where: Expr | None, scope: Scope, env: Env) -> None:
        """Raise P107 if an unknown name belongs to the public or released query around rows of people."""
        if env.outer is None or where is None or error.code != "DPSQL-S002":
            return
        names = [part.names for part in where.walk() if part.what == "column"]
        if any(scope.resolved(name) is None and env.outer(name) is not None for name in names):
            raise ParameterError(
                "P107",
                "sql: an aggregate of people's rows is asked for each row of a public table. Join a grouped subquery: "
                "JOIN (SELECT key, sum(x) AS x FROM ... GROUP BY key) USING (key).",
            )

    def _of_people(self, block: RowBlock, expr: Expr) -> bool:
        """Whether rows of a public table that match nobody change no aggregate."""
        return all(counts_nothing_without(aggregate, columns_of(block.missing)) for aggregate in aggregates_in(expr))

    def _inside(self, block: RowBlock, expr: Expr) -> Expr:
        """Return an expression without subqueries in the arguments of aggregates."""
        if any(expr == aggregate for aggregate in aggregates_in(expr)):
            return expr.mapped(block.lifted)
        return expr.mapped(lambda part: self._inside(block, part))

    def _plain(self, stage: Stage, items: list[tuple[Expr, str]], conditions: list[Expr]) -> QueryRelation:
        """Return rows of people, one by one, with windows of one person's rows."""
        everything = [*(expr for expr, _ in items), *conditions]
        windows = list(dict.fromkeys(part for expr in everything for part in expr.walk() if part.what == "window"))
        if windows:
            above, columns = stage.windowed(windows, everything)
            items = [(replaced(expr, columns), name) for expr, name in items]
            conditions = [replaced(condition, columns) for condition in conditions]
            stage = above
        stage.conditions += conditions
        return stage.relation(items)

    def _per_person(
        self,
        stage: Stage,
        items: list[tuple[Expr, str]],
        groups: list[Expr],
        sets: tuple[tuple[int, ...], ...],
        having: Expr | None,
        qualify: Expr | None,
        cuts: bool,
    ) -> QueryRelation:
        """Return groups of one person's rows."""
        if cuts or len(sets) > 1:
            raise ParameterError(
                "P102",
                "sql returns rows of people: a row for each person, or for each row of theirs. Aggregate these once "
                "more, without LIMIT and GROUPING SETS below.",
            )
        everything = [*(expr for expr, _ in items), *(clause for clause in (having, qualify) if clause is not None)]
        if any(map(asks, everything)):
            raise ParameterError("P101", "sql: a subquery beside groups of one person's rows is not read. Join it.")
        aggregates = list(dict.fromkeys(aggregate for expr in everything for aggregate in aggregates_in(expr)))
        above, columns = stage.grouped(groups, aggregates)
        conditions = [replaced(condition, columns) for condition in (having,) if condition is not None]
        above.conditions += conditions
        above.all_conditions += conditions
        selection = [(replaced(expr, columns), name) for expr, name in items]
        for expr, _ in selection:
            for part in expr.walk():
                if part.what == "item" and part.value != "g0":
                    raise SourceError("S002", f"sql: column {show(part.name)} is not in GROUP BY. Add it there.")
        rest = [replaced(condition, columns) for condition in (qualify,) if condition is not None]
        return self._plain(above, selection, rest)

    def _items(self, query: Select, scope: Scope) -> list[tuple[Expr, str]]:
        """Return the select list with resolved columns and names."""
        out: list[tuple[Expr, str]] = []
        aliases: dict[str, Expr] = {}
        scope.aliases = aliases
        for item in query.items:
            if item.what == "star":
                out += self._starred(item, scope)
                continue
            name = default_name(item)
            expr = self.work.read(item, scope)
            out.append((expr, name))
            if item.alias:
                aliases.setdefault(fold(item.alias), expr)
        return out

    def _starred(self, star: Expr, scope: Scope) -> list[tuple[Expr, str]]:
        left_out = set(map(fold, star.names))
        replaced_by = {fold(part.name): part.parts[0] for part in star.parts}
        out, merged = [], set()
        for item in scope.items:
            if item.hidden or (star.name and fold(item.alias) != fold(star.name)):
                continue
            for column in item.relation.columns:
                name = fold(column.name)
                if name in left_out or (not star.name and name in merged):
                    continue
                if not star.name and name in scope.merged:
                    merged.add(name)
                expr = item_column(item, column)
                if name in replaced_by:
                    expr = self.work.read(replaced_by[name], scope)
                elif not star.name and name in scope.merged:
                    expr = scope.merged[name]
                out.append((expr, column.name))
        if not out:
            raise SourceError("S002", f"sql: {show(star.name or '*')} names no table. Check its name.")
        return out

    def _groups(self, query: Select, scope: Scope, items: list[tuple[Expr, str]]) -> list[Expr]:
        if query.group_all and not query.groups:
            return list(dict.fromkeys(expr for expr, _ in items if not aggregates_in(expr) and _reads(expr)))
        out = []
        for group in query.groups:
            if group.what == "constant" and group.name == "number" and str(group.value).isdecimal():
                position = int(str(group.value))
                if not 1 <= position <= len(items):
                    raise SourceError("S002", f"sql: GROUP BY {position} names no column of the select list.")
                out.append(replace(items[position - 1][0], alias=""))
            else:
                out.append(self.work.read(group, scope))
        for key in out:
            if aggregates_in(key):
                raise ParameterError("P106", "sql groups by an aggregate. Put it into a subquery, and group by that.")
        return out

    def _orders(self, orders: tuple[Order, ...], scope: Scope, items: list[tuple[Expr, str]]) -> tuple[Order, ...]:
        """Return ORDER BY with resolved columns: a name of the select list precedes a column."""
        names = {fold(name): expr for expr, name in reversed(items)}
        out = []
        for order in orders:
            expr = order.expression
            if expr.what == "constant" and expr.name == "number" and str(expr.value).isdecimal():
                position = int(str(expr.value))
                target = items[position - 1][0] if 1 <= position <= len(items) else expr
            elif expr.what == "column" and len(expr.names) == 1 and fold(expr.names[0]) in names:
                target = names[fold(expr.names[0])]
            elif expr.what == "star":
                out += [replace(order, expression=item) for item, _ in items]
                continue
            else:
                target = self.work.read(expr, scope)
            out.append(replace(order, expression=target))
        return tuple(out)

    def _names(self, count: int) -> list[str] | None:
        """Return the column names of the whole query, as DuckDB binds it."""
        columns = self.work.options.columns
        return [name for name, _ in columns] if columns is not None and len(columns) == count else None

    # Set operations.

    def _set_operation(self, query: SetOperation, env: Env) -> QueryRelation:
        parts = [self.query(part, env) for part in query.parts]
        level = levels(parts)
        if level == ROWS:
            if is_union_of_different(query):
                return self.query(as_distinct(query), env)
            return union_of_rows(self.work, query, parts)
        return released_union(self.work, query, env, parts, level)


def _choosing_groups(query: Select) -> Select | None:
    """Return a query that chooses whole groups by released numbers, in HAVING; None for any other.

    WHERE conditions with subqueries, of whose own columns GROUP BY has all, are equal for all rows of a group. So they
    choose groups, and HAVING with them gives the same answer: there they read released numbers alone, which is
    post-processing of two cores. Conditions that compare a person's value with a released number stay refused.
    """
    numbered = {str(number): item for number, item in enumerate(query.items, start=1)}
    groups = [numbered.get(str(group.value), group) if group.what == "constant" else group for group in query.groups]
    keys = {fold(group.names[-1]) for group in groups if group.what == "column"}
    if query.where is None or not keys or len(query.sets) > 1 or query.modifiers.distinct_on:
        return None
    staying: list[Expr] = []
    moving: list[Expr] = []
    for condition in query.where.parts if query.where.what == "and" else (query.where,):
        parts = list(condition.walk())
        columns = {fold(part.names[-1]) for part in parts if part.what == "column"}
        moves = any(part.what == "subquery" for part in parts) and columns <= keys
        (moving if moves else staying).append(condition)
    if not moving:
        return None
    having = [*moving, *([] if query.having is None else [query.having])]
    return replace(query, where=_all_of(staying), having=_all_of(having))


def _joined_as_condition(query: Select) -> Select | None:
    """Return a query with IN in place of a join with the one key of a grouped subquery; None for any other.

    The subquery has one row for each value of its key, so the join keeps each row at most once, and IN keeps the same
    rows if nothing else of the subquery is read. Dashboards limit their series in this way.
    """
    join = query.source
    inner = join.right if isinstance(join, Join) else None
    if not isinstance(join, Join) or not isinstance(inner, Derived) or not isinstance(inner.query, Select):
        return None
    if (
        join.kind != "INNER"
        or join.natural
        or join.nearest
        or inner.columns
        or len(inner.query.groups) != 1
        or len(inner.query.sets) > 1
    ):
        return None
    names = [fold(item.alias or (item.names[-1] if item.what == "column" else "")) for item in inner.query.items]
    [group] = inner.query.groups
    keys = {
        name
        for number, (name, item) in enumerate(zip(names, inner.query.items, strict=True), start=1)
        if name and (item == group or (group.what, group.value) == ("constant", str(number)))
    }

    def is_inner(part: Expr) -> bool:
        if part.what != "column" or len(part.names) > 1:
            return part.what == "star" or (part.what == "column" and fold(part.names[-2]) == fold(inner.alias))
        return fold(part.names[0]) in names and part.names != join.using

    condition = join.condition
    sides = () if condition is None or (condition.what, condition.name) != ("compare", "=") else condition.parts
    if len(join.using) == 1:
        sides = (Expr("column", names=join.using), Expr("column", names=(inner.alias, *join.using)))
    outer_sides = [side for side in sides if side.what == "column" and not is_inner(side)]
    key_sides = [side for side in sides if side.what == "column" and is_inner(side) and fold(side.names[-1]) in keys]
    clauses = [*query.items, *query.groups, *(order.expression for order in query.modifiers.orders)]
    clauses = [clause for clause in clauses if clause != Expr("star") or clause in query.items]  # ORDER BY ALL
    clauses += [clause for clause in (query.where, query.having, query.qualify) if clause is not None]
    is_read = any(is_inner(part) for clause in clauses for part in clause.walk())
    if len(outer_sides) != 1 or len(key_sides) != 1 or is_read:
        return None
    key = Select(items=(Expr("column", names=key_sides[0].names[-1:]),), source=inner)
    chosen = Expr("subquery", "ANY", (outer_sides[0],), value="=", query=key)
    where = () if query.where is None else query.where.parts if query.where.what == "and" else (query.where,)
    return replace(query, source=join.left, where=_all_of([chosen, *where]))


def _all_of(conditions: Sequence[Expr]) -> Expr | None:
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return Expr("and", parts=tuple(conditions))


def _with_aliases(condition: Expr, scope: Scope, groups: Sequence[Expr]) -> Expr:
    """Return HAVING with the select list's expressions in place of its names, which precede columns without a group."""
    if is_aggregate(condition) or condition.what in ("lambda", "window"):
        return condition
    if condition.what != "column":
        return condition.mapped(lambda part: _with_aliases(part, scope, groups))
    alias = scope.aliases.get(fold(condition.names[0])) if len(condition.names) == 1 else None
    return condition if alias is None or scope.resolved(condition.names) in groups else replace(alias, alias="")


def _reads(expr: Expr) -> bool:
    return any(part.what == "item" for part in expr.walk())
