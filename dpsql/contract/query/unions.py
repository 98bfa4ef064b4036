"""Set operations: UNION ALL of rows of people, with the owner behind their columns, and all of what is released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsql.contract.expression.kinds import NUMBERS, Type
from dpsql.contract.parameters import fold
from dpsql.contract.query.errors import PUBLIC_STANDING, hidden_names, named_ends
from dpsql.contract.query.expressions import ColumnSql
from dpsql.contract.query.joins import without_unit
from dpsql.contract.query.nodes import Derived, Expr, Modifiers, Select, SetOperation
from dpsql.contract.query.noisy_numbers import NoisyNumbers
from dpsql.contract.query.post import PostExpressions
from dpsql.contract.query.relations import DATE, PUBLIC, RELEASED, ROWS, UNIT, Column, KeyValues, PartOfQuery
from dpsql.contract.query.released_relation import released
from dpsql.contract.query.work import Env, Splitting, stub_type
from dpsql.contract.query.writer import ends
from dpsql.errors import ParameterError
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
    names = [one.name for one in out.columns]
    widths = {len(one.columns) for one in (*parts, out)}
    if level == PUBLIC or query.kind != "UNION" or len(widths) > 1 or len(set(map(fold, names))) < width:
        return out
    made = [_made(place, out.columns[place].type, parts) for place in range(width)]
    every = query.every and not query.modifiers.distinct

    def told(counts: Sequence[NoisyNumbers]) -> tuple[str, str]:
        pairs = [(place, count) for place, own in enumerate(made) if own for count in counts if count.covers(own)]
        whole = [[_part(one, names, pairs, counts, stub) for one in parts] for stub in (0, 1)]
        joined = [" UNION ALL ".join(one) for one in whole]
        if not every:
            joined = [_merged(one, names, pairs) for one in joined]
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


def _merged(joined: str, names: Sequence[str], pairs: Sequence[tuple[int, NoisyNumbers]]) -> str:
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
