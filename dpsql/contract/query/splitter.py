"""Splits a query: what is below its aggregates of people's rows becomes cores, everything above them post text.

**Keys from joins.** Groups that a query joins with a public table: its keys are the values that their column is
compared with.

**Released rows.** A SELECT over released and public rows: its text, and which released numbers are in each of its
columns.

**Set operations.** Set operations: UNION ALL of rows of people, with the owner behind their columns, and all of what is
released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dpsql.contract.expression.kinds import NUMBERS, Type
from dpsql.contract.parameters import fold, show
from dpsql.contract.query.aggregates import aggregates_in
from dpsql.contract.query.catalogue import Catalogue, Options
from dpsql.contract.query.cores import CoreSelect, made_core
from dpsql.contract.query.errors import (
    PUBLIC_STANDING,
    ErrorsAround,
    ReleasedErrors,
    hidden_names,
    named_ends,
    released,
    released_column,
    with_errors,
)
from dpsql.contract.query.expressions import ColumnSql, RowExpressions
from dpsql.contract.query.free import free_function, free_show, free_table, is_empty
from dpsql.contract.query.joins import of_nobody, without_unit
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
)
from dpsql.contract.query.people import TWO_STAGES, Lifter
from dpsql.contract.query.post import PostExpressions, refuse_name
from dpsql.contract.query.presence import columns_of, counts_nothing_without
from dpsql.contract.query.relations import (
    DATE,
    PUBLIC,
    RELEASED,
    ROWS,
    UNIT,
    Column,
    Item,
    KeyValues,
    Noisy,
    PartOfQuery,
    Scope,
    item_column,
)
from dpsql.contract.query.rows import Leaf, RowBlock, asks, first_of, levels
from dpsql.contract.query.split import ONE, NoisyNumbers, Split
from dpsql.contract.query.stages import Stage, replaced
from dpsql.contract.query.work import Env, Splitting, UnboundError, UnfoundError, check_written, stub_type
from dpsql.contract.query.writer import default_name, ends, leaves, select_text
from dpsql.errors import ParameterError, SourceError
from dpsql.rendering import call, cast, identifier

_NOTHING = "CAST(NULL AS DOUBLE)"


def is_union_of_different(query: SetOperation) -> bool:
    """Whether equal rows of several queries are one row of a UNION."""
    return query.kind == "UNION" and (not query.every or query.modifiers.distinct)


def as_distinct(query: SetOperation) -> Select:
    """Return SELECT DISTINCT of UNION ALL, which is the same as a UNION."""
    whole = replace(query, every=True, withs=(), modifiers=Modifiers())
    star = Expr("star")
    return Select(query.withs, replace(query.modifiers, distinct=True), (star,), Derived(whole, "united"))


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
    if any((part.pending, part.owned, part.dated) != (first.pending, first.owned, first.dated) for part in parts):
        raise ParameterError("P103", "sql: UNION ALL of tables that reach people in different ways. Join them first.")
    if len({len(part.columns) for part in parts}) > 1:
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
        tables=tuple(dict.fromkeys(table for part in parts for table in part.tables)),
        name=(),
    )


def released_union(
    work: Splitting, query: SetOperation, env: Env, parts: Sequence[PartOfQuery], level: str
) -> PartOfQuery:
    """Return a set operation of released and public rows; of a UNION each row has the intervals of its own part."""
    word = f" {query.kind}{' ALL' if query.every else ''} "
    inner: dict[int, PartOfQuery] = {}
    below = [ends(query, PostExpressions(work, env, stub, inner=inner)) for stub in (False, True)]
    distinct = "DISTINCT " if query.modifiers.distinct else ""
    both = ([part.sql for part in parts], [part.stub for part in parts])
    texts = [f"(SELECT {distinct}* FROM ({word.join(both[stub])}){below[stub]})" for stub in (0, 1)]
    width = min(len(part.columns) for part in parts)
    noisy = [frozenset().union(*(part.columns[place].noisy for part in parts)) for place in range(width)]
    out = released(work, texts[0], texts[1], noisy, level, within=env.outer is not None)
    names = [column.name for column in out.columns]
    widths = {len(one.columns) for one in (*parts, out)}
    if level == PUBLIC or query.kind != "UNION" or len(widths) > 1 or len(set(map(fold, names))) < width:
        return out
    made = [_made(place, out.columns[place].type, parts) for place in range(width)]
    every = query.every and not query.modifiers.distinct

    def told(counts: Sequence[NoisyNumbers]) -> tuple[str, str]:
        pairs = [(place, count) for place, own in enumerate(made) if own for count in counts if count.covers(own)]
        whole = [[_part(part, names, pairs, counts, stub) for part in parts] for stub in (0, 1)]
        joined = [" UNION ALL ".join(one) for one in whole]
        if not every:
            joined = [_joined_text(one, names, pairs) for one in joined]
        return (f"(SELECT * FROM ({joined[0]}){below[0]})", f"(SELECT * FROM ({joined[1]}){below[1]})")

    return replace(
        out,
        columns=tuple(replace(one, made=count) for one, count in zip(out.columns, made, strict=True)),
        told=told if any(made) else None,
        fixed=every and not query.modifiers.cuts and all(part.level == PUBLIC or part.fixed for part in parts),
    )


def _made(place: int, kind: Type, parts: Sequence[PartOfQuery]) -> NoisyNumbers | None:
    """Return of how many noisy numbers the column of a UNION is made, at most: a row is of one part."""
    found = [part.columns[place].made for part in parts if part.told is not None]
    known = [one for one in found if one]
    if kind.kind not in NUMBERS or not known:
        return None if any(part.columns[place].noisy for part in parts) else NoisyNumbers()
    return NoisyNumbers.most(known)


def _part(
    part: PartOfQuery,
    names: Sequence[str],
    pairs: Sequence[tuple[int, NoisyNumbers]],
    counts: Sequence[NoisyNumbers],
    stub: int,
) -> str:
    """Return the rows of a part of a UNION, with error and ends of some of their columns behind them."""
    text = ((part.sql, part.stub) if part.told is None else part.told(counts))[stub]
    listed = [f"u.{identifier(one.sql)} AS {identifier(name)}" for one, name in zip(part.columns, names, strict=True)]
    for place, count in pairs:
        column = part.columns[place]
        value = f"u.{identifier(column.sql)}"
        found = [_NOTHING] * 4
        if column.made:
            found = [f"u.{identifier(name)}" for name in hidden_names(place, count)]
        elif column.type.kind in NUMBERS and not column.noisy:
            found = [_NOTHING, cast(value, "DOUBLE"), cast(value, "DOUBLE"), PUBLIC_STANDING]
        listed += named_ends(found, place, count)
    return f"(SELECT {', '.join(listed)} FROM {text} AS u)"


def _joined_text(joined: str, names: Sequence[str], pairs: Sequence[tuple[int, NoisyNumbers]]) -> str:
    """Return different rows; what is the same row of several parts has an interval that holds those of all of them."""
    listed = [identifier(name) for name in names]
    for place, count in pairs:
        error, *both, standing = map(identifier, hidden_names(place, count))
        alone = f"CASE WHEN {call('count_star')} = 1 THEN {call('min', error)} END"
        unknown = call("count_if", " OR ".join(f"{end} IS NULL" for end in both))
        hull = [
            f"CASE WHEN {unknown} = 0 THEN {call(name, end)} END"
            for name, end in zip(("min", "max"), both, strict=True)
        ]
        listed += named_ends([alone, *hull, call("max", standing)], place, count)
    return f"SELECT {', '.join(listed)} FROM ({joined}) GROUP BY {', '.join(map(identifier, names))}"


def _column(place: int, kind: Type, parts: Sequence[PartOfQuery]) -> Column:
    found = [part.columns[place] for part in parts]
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


def released_select(
    work: Splitting, query: Select, env: Env, leaf: Leaf, relations: Sequence[PartOfQuery], names: Sequence[str] | None
) -> PartOfQuery:
    """Return what a SELECT over released and public rows returns; `names` are its columns', where they are known."""
    scope = Scope()
    for number, one in enumerate(leaves(query.source)):
        relation, alias = leaf(one)
        scope.items.append(Item(f"p{number}", relation, alias))
    scope.aliases = {fold(item.alias): item for item in query.items if item.alias}
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
    choosing += [order.expression for order in modifiers.orders] if modifiers.cuts else []
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
    aliases = {fold(item.alias): item for item in items if item.alias}
    out = []
    for group in query.groups:
        place = str(group.value) if group.what == "constant" and group.name == "number" else ""
        if place.isdecimal() and 1 <= int(place) <= len(items):
            out.append(items[int(place) - 1])
        elif group.what == "column" and released_column(group, scope) is None:
            out.append(aliases.get(fold(group.names[-1]), group))
        else:
            out.append(group)
    return out


def _windows(expr: Expr) -> bool:
    return any(part.what == "window" for part in expr.walk())


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
    for part in expr.walk():
        if part.what == "column":
            try:
                found = scope.resolved(part.names)
            except SourceError:  # of several relations, as of USING
                theirs = (item.column(part.names[-1]) for item in scope.items)
                out |= {number for column in theirs if column is not None for number in column.noisy}
                continue
            if found is not None and found.what == "item":
                out |= scope.column(found).noisy
            elif found is None and fold(part.names[0]) in scope.aliases:
                out |= every
        if part.what == "subquery" and id(part.query) in inner:
            out |= {number for column in inner[id(part.query)].columns for number in column.noisy}
        elif part.what in ("subquery", "star"):
            out |= every
    return frozenset(out)


def joined_values(work: Splitting, query: Select, env: Env) -> dict[str, KeyValues]:
    """Return the columns that a query equates with columns of public tables, with these columns' values."""
    scope = Scope()
    for leaf in leaves(query.source):
        if isinstance(leaf, TableRef) and (any(leaf.names[:2]) or fold(leaf.names[2]) not in env.withs):
            table = work.catalogue.table(leaf.names)
            if table is not None and table.public and not leaf.columns:
                scope.items.append(Item(f"p{len(scope.items)}", work.table(table), leaf.alias or leaf.names[2]))
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
        if found.what == "compare" and found.name == "=" and all(part.what == "column" for part in found.parts):
            yield found.parts[0].names, found.parts[1].names


_MOST_ASKED = 2_000
_LATERAL = (
    "sql: LATERAL is not read: a subquery in FROM reads columns of what stands beside it. Join a grouped subquery: "
    "JOIN (SELECT key, count(*) AS n FROM ... GROUP BY key) USING (key); compute of one row in the select list."
)
_Reader = Callable[[Mapping[str, KeyValues]], PartOfQuery]


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
        P065, P070, P080 to P084, P101 to P107: it cannot be answered, with the line to write.
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
            "values are public.",
        )
    cores = tuple(map(made_core, splitter.work.cores))
    if options.errors:
        relation = with_errors(splitter.work, relation, len(options.columns or relation.columns))
    names = options.columns or tuple((one.name, one.type.sql) for one in relation.columns)
    names += tuple((column.name, column.type.sql) for column in relation.columns[len(names) :])
    for one in (relation.sql, *(core.source for core in cores)):
        check_written(one)
    return Split(
        cores,
        _renamed(relation, [name for name, _ in names]),
        names,
        tuple(tuple(sorted(one.noisy)) for one in relation.columns),
        tuple(splitter.work.notes),
        tuple(splitter.work.told),
        splitter.work.differs,
    )


def _renamed(relation: PartOfQuery, names: list[str]) -> str:
    if [column.name for column in relation.columns] == names or len(names) != len(relation.columns):
        return relation.sql.removeprefix("(").removesuffix(")") if relation.sql.startswith("(SELECT") else (
            f"SELECT * FROM {relation.sql}"
        )  # fmt: skip
    # The order of rows is that of the text within, which stands alone.
    return f"SELECT * FROM {relation.sql} AS dpsql_result({', '.join(map(identifier, names))})"


def _empty(options: Options) -> Split:
    """Return the split of a query that no row can pass: its columns, and nothing else."""
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
        self._asked = 0
        self._lifter = Lifter(self.work, self._leaf)

    def query(self, query: Query, env: Env) -> PartOfQuery:
        """Return what a query, or a part of one, returns."""
        self._asked += 1
        if self._asked > _MOST_ASKED:
            raise ParameterError("P100", "sql has too many subqueries within one another. Keep parts of it as views.")
        inner, waiting = self._withs(query, replace(env, top=False, joined={}))
        if isinstance(query, Select):
            out = self._select(query, inner, env)
        elif isinstance(query, SetOperation):
            out = self._set_operation(query, inner)
        else:
            raise ParameterError("P101", "sql: a part of it is no SELECT. Write it as one.")
        for one in waiting:  # what nothing names is read, too, and refused where it may not be asked
            one({})
        return out

    def _withs(self, query: Query, env: Env) -> tuple[Env, list[_Reader]]:
        waiting = []
        for one in query.withs:
            refuse_name(one.name)
            reader = self._with(one, replace(env, outer=None))
            waiting.append(reader)
            env = replace(env, withs={**env.withs, fold(one.name): reader})
        return env, waiting

    def _with(self, one: With, env: Env) -> _Reader:
        known: list[PartOfQuery] = []

        def read(joined: Mapping[str, KeyValues]) -> PartOfQuery:
            if not known:
                found = self.query(one.query, replace(env, joined={} if one.columns else joined))
                known.append(self._columns_named(found, one.columns))
            return known[0]

        return read

    def _columns_named(self, relation: PartOfQuery, names: tuple[str, ...]) -> PartOfQuery:
        """Return a relation with other names of columns, also in its text where that is read by name."""
        if not names:
            return relation
        out = relation.renamed(names)
        if relation.level == ROWS:
            return out
        listed = ", ".join(identifier(column.name) for column in out.columns)

        def named(texts: tuple[str, str]) -> tuple[str, str]:
            whole, stub = (f"(SELECT * FROM {text} AS dpsql_with({listed}))" for text in texts)
            return whole, stub

        columns = tuple(replace(one, sql=one.name) for one in out.columns)
        sql, stub = named((relation.sql, relation.stub))
        write = relation.told
        told = None if write is None else lambda counts: named(write(counts))
        return replace(out, columns=columns, sql=sql, stub=stub, told=told)

    # FROM.

    def _leaf(self, env: Env, joined: Mapping[str, KeyValues] | None = None) -> Leaf:
        known: dict[int, tuple[PartOfQuery, str]] = {}

        def read(source: From) -> tuple[PartOfQuery, str]:
            if id(source) not in known:
                known[id(source)] = self._read(source, env, joined or {})
            return known[id(source)]

        return read

    def _read(self, source: From, env: Env, joined: Mapping[str, KeyValues]) -> tuple[PartOfQuery, str]:
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
            rows = ", ".join(f"({', '.join(writer.sql(one) for one in row)})" for row in source.rows)
            text = f"(SELECT * FROM (VALUES {rows}))"
            relation = released(self.work, text, text, (), PUBLIC)
        elif isinstance(source, TableFunction):
            relation = free_function(self.work, source, env)
            alias = alias or source.call.name
        elif isinstance(source, Show):
            relation = free_show(self.work, source)
        else:
            raise ParameterError("P101", "sql: a part of FROM is not read. Write tables and subqueries.")
        return self._columns_named(relation, columns), alias

    def _table(self, source: TableRef, env: Env, joined: Mapping[str, KeyValues]) -> PartOfQuery:
        named = source.names
        if not named[0] and not named[1] and fold(named[2]) in env.withs:
            return env.withs[fold(named[2])](joined)
        free = free_table(self.work, named)
        if free is not None:
            return free
        found = self.work.catalogue.table(named)
        if found is None:
            raise SourceError(
                "S001", f"sql: table {show('.'.join(one for one in named if one))} cannot be found. Check its name."
            )
        return self.work.table(found)

    # SELECT.

    def _select(self, query: Select, env: Env, asked: Env) -> PartOfQuery:
        top = asked.top
        leaf = self._leaf(env, joined_values(self.work, query, env))
        relations = self._relations(query, leaf)
        level = levels(relations)
        if level == ROWS and any(relation.level == RELEASED for relation in relations):
            raise ParameterError("P105", TWO_STAGES)
        if level == ROWS:
            return self._rows(query, replace(env, joined=asked.joined), leaf, top)
        names = [name for name, _ in self.work.options.columns or ()] if top else None
        return released_select(self.work, query, env, leaf, relations, names)

    def _relations(self, query: Select, leaf: Leaf) -> list[PartOfQuery]:
        """Return what the FROM items of a query return; raise P101 where one reads another's columns."""
        found = leaves(query.source)
        out = []
        for one in found:
            try:
                out.append(leaf(one)[0])
            except (SourceError, UnboundError) as error:
                # DuckDB binds the whole, so the names that are not found are those of the tables beside it.
                unseen = isinstance(error, (UnboundError, UnfoundError))
                if unseen and len(found) > 1 and isinstance(one, Derived) and self.work.options.columns is not None:
                    raise ParameterError("P101", _LATERAL) from None
                raise
        return out

    # Rows of people.

    def _rows(self, query: Select, env: Env, leaf: Leaf, top: bool) -> PartOfQuery:
        block = RowBlock(self.work, leaf, self._lifter.lift, env)
        block.open(query.source)
        items = self._items(query, block.scope)
        names = self._names(len(items)) if top else None
        items = [(expr, names[place] if names else name) for place, (expr, name) in enumerate(items)]
        try:
            block.where(query.where)
        except SourceError as error:
            self._refuse_correlated(error, query.where, block.scope, env)
            raise
        modifiers = query.modifiers
        having, qualify = (
            None if one is None else self.work.read(one, block.scope) for one in (query.having, query.qualify)
        )
        if modifiers.distinct_on:
            if qualify is not None:
                raise ParameterError(
                    "P103", "sql: DISTINCT ON beside QUALIFY is not read. Write QUALIFY in a subquery."
                )
            orders = self._orders(modifiers.orders, block.scope, items)
            on = self._orders(tuple(map(Order, modifiers.distinct_on)), block.scope, items)
            qualify, modifiers = first_of([one.expression for one in on], orders), replace(modifiers, distinct_on=())
        groups = self._groups(query, block.scope, items)
        everything = [one for one, _ in items] + [one for one in (having, qualify) if one is not None]
        aggregated = bool(groups or query.group_all or query.sets or any(aggregates_in(one) for one in everything))
        sets = query.sets
        if modifiers.distinct and not aggregated:
            groups, aggregated, sets = [expr for expr, _ in items], True, ()
            modifiers = replace(modifiers, distinct=False)
        orders = self._orders(modifiers.orders, block.scope, items) if aggregated else ()
        counted = [*everything, *(one.expression for one in orders)]
        if block.missing and not (aggregated and all(self._of_people(block, one) for one in counted)):
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
        groups = [block.lifted(expr) for expr in groups]
        having, qualify = (None if one is None else self._inside(block, one) for one in (having, qualify))
        orders = tuple(replace(order, expression=self._inside(block, order.expression)) for order in orders)
        stage = block.close()
        if any(stage.is_owner(group) or (stage.member.owned and stage.is_tied(group)) for group in groups):
            return self._per_person(stage, inside, groups, sets, having, qualify, modifiers.cuts)
        stage.member = block.joining.with_path(stage.member)
        return CoreSelect(
            self.work, stage, env, inside, groups, sets, having, qualify, orders, replace(modifiers, orders=orders),
            told=top and self.work.options.errors,
        ).relation()  # fmt: skip

    def _refuse_correlated(self, error: SourceError, where: Expr | None, scope: Scope, env: Env) -> None:
        """Raise P107 where an unknown name is one of the public or released query around rows of people."""
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
        """Whether rows that a public table has without people change no aggregate."""
        return all(counts_nothing_without(aggregate, columns_of(block.missing)) for aggregate in aggregates_in(expr))

    def _inside(self, block: RowBlock, expr: Expr) -> Expr:
        """Return an expression in which the aggregates' arguments hold no subquery any more."""
        if any(expr == aggregate for aggregate in aggregates_in(expr)):
            return expr.mapped(block.lifted)
        return expr.mapped(lambda part: self._inside(block, part))

    def _plain(self, stage: Stage, items: list[tuple[Expr, str]], conditions: list[Expr]) -> PartOfQuery:
        """Return rows of people, one by one, with windows of one person's rows."""
        everything = [*(expr for expr, _ in items), *conditions]
        windows = list(dict.fromkeys(part for expr in everything for part in expr.walk() if part.what == "window"))
        if windows:
            above, places = stage.windowed(windows, everything)
            items = [(replaced(expr, places), name) for expr, name in items]
            conditions = [replaced(condition, places) for condition in conditions]
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
    ) -> PartOfQuery:
        """Return groups of one person's rows."""
        if cuts or len(sets) > 1:
            raise ParameterError(
                "P102",
                "sql returns rows of people: a row for each person, or for each row of theirs. Aggregate these once "
                "more, without LIMIT and GROUPING SETS below.",
            )
        everything = [*(expr for expr, _ in items), *(one for one in (having, qualify) if one is not None)]
        if any(map(asks, everything)):
            raise ParameterError("P101", "sql: a subquery beside groups of one person's rows is not read. Join it.")
        aggregates = list(dict.fromkeys(aggregate for one in everything for aggregate in aggregates_in(one)))
        above, places = stage.grouped(groups, aggregates)
        conditions = [replaced(one, places) for one in (having,) if one is not None]
        above.conditions += conditions
        above.known += conditions
        found = [(replaced(expr, places), name) for expr, name in items]
        for expr, _ in found:
            for part in expr.walk():
                if part.what == "item" and part.value != "g0":
                    raise SourceError("S002", f"sql: column {show(part.name)} is not in GROUP BY. Add it there.")
        rest = [replaced(one, places) for one in (qualify,) if one is not None]
        return self._plain(above, found, rest)

    def _items(self, query: Select, scope: Scope) -> list[tuple[Expr, str]]:
        """Return the select list with columns found, each with its name."""
        out: list[tuple[Expr, str]] = []
        aliases: dict[str, Expr] = {}
        scope.aliases = aliases
        for item in query.items:
            if item.what == "star":
                out += self._starred(item, scope)
                continue
            name = default_name(item)
            found = self.work.read(item, scope)
            out.append((found, name))
            if item.alias:
                aliases.setdefault(fold(item.alias), found)
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
                place = int(str(group.value))
                if not 1 <= place <= len(items):
                    raise SourceError("S002", f"sql: GROUP BY {place} names no column of the select list.")
                out.append(replace(items[place - 1][0], alias=""))
            else:
                out.append(self.work.read(group, scope))
        for one in out:
            if aggregates_in(one):
                raise ParameterError("P106", "sql groups by an aggregate. Put it into a subquery, and group by that.")
        return out

    def _orders(self, orders: tuple[Order, ...], scope: Scope, items: list[tuple[Expr, str]]) -> tuple[Order, ...]:
        """Return ORDER BY with columns found: a name of the select list comes before a column."""
        names = {fold(name): expr for expr, name in reversed(items)}
        out = []
        for order in orders:
            expr = order.expression
            if expr.what == "constant" and expr.name == "number" and str(expr.value).isdecimal():
                place = int(str(expr.value))
                found = items[place - 1][0] if 1 <= place <= len(items) else expr
            elif expr.what == "column" and len(expr.names) == 1 and fold(expr.names[0]) in names:
                found = names[fold(expr.names[0])]
            elif expr.what == "star":
                out += [replace(order, expression=each) for each, _ in items]
                continue
            else:
                found = self.work.read(expr, scope)
            out.append(replace(order, expression=found))
        return tuple(out)

    def _names(self, count: int) -> list[str] | None:
        """Return the names of the whole query's columns, as DuckDB binds it."""
        found = self.work.options.columns
        return [name for name, _ in found] if found is not None and len(found) == count else None

    # Set operations.

    def _set_operation(self, query: SetOperation, env: Env) -> PartOfQuery:
        parts = [self.query(part, env) for part in query.parts]
        level = levels(parts)
        if level == ROWS:
            if is_union_of_different(query):
                return self.query(as_distinct(query), env)
            return union_of_rows(self.work, query, parts)
        return released_union(self.work, query, env, parts, level)


def _reads(expr: Expr) -> bool:
    return any(part.what == "item" for part in expr.walk())
