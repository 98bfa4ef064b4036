"""Splits a query: what is below its aggregates of people's rows becomes cores, everything above them post text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from dpsql.contract.parameters import fold, show
from dpsql.contract.query.aggregates import aggregates_in
from dpsql.contract.query.catalogue import Catalogue, Options
from dpsql.contract.query.cores import CoreSelect, made_core
from dpsql.contract.query.expressions import RowExpressions
from dpsql.contract.query.free import free_function, free_show, free_table, is_empty
from dpsql.contract.query.joined_values import joined_values
from dpsql.contract.query.joins import of_nobody
from dpsql.contract.query.nodes import (
    Derived,
    Expr,
    From,
    Listed,
    Order,
    Query,
    Select,
    SetOperation,
    Show,
    TableFunction,
    TableRef,
    With,
)
from dpsql.contract.query.people import TWO_STAGES, Lifter
from dpsql.contract.query.places import about
from dpsql.contract.query.post import PostExpressions, refuse_name
from dpsql.contract.query.post_select import released_select
from dpsql.contract.query.presence import columns_of, counts_nothing_without
from dpsql.contract.query.relations import (
    PUBLIC,
    RELEASED,
    ROWS,
    KeyValues,
    PartOfQuery,
    Scope,
    item_column,
)
from dpsql.contract.query.released_relation import UnboundError, released, with_errors
from dpsql.contract.query.rows import Leaf, RowBlock, asks, first_of, levels
from dpsql.contract.query.split import Split
from dpsql.contract.query.stages import Stage, replaced
from dpsql.contract.query.unions import as_distinct, is_union_of_different, released_union, union_of_rows
from dpsql.contract.query.work import Env, Splitting, UnfoundError, check_written
from dpsql.contract.query.writer import default_name, leaves
from dpsql.errors import ParameterError, SourceError
from dpsql.rendering import identifier

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
    names += tuple((one.name, one.type.sql) for one in relation.columns[len(names) :])
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
    if [one.name for one in relation.columns] == names or len(names) != len(relation.columns):
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
        listed = ", ".join(identifier(one.name) for one in out.columns)

        def named(texts: tuple[str, str]) -> tuple[str, str]:
            whole, stub = (f"(SELECT * FROM {one} AS dpsql_with({listed}))" for one in texts)
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
        if level == ROWS and any(one.level == RELEASED for one in relations):
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
        orders = tuple(replace(one, expression=self._inside(block, one.expression)) for one in orders)
        stage = block.close()
        if any(stage.is_owner(one) or (stage.member.owned and stage.is_tied(one)) for one in groups):
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
        names = [one.names for one in where.walk() if one.what == "column"]
        if any(scope.resolved(one) is None and env.outer(one) is not None for one in names):
            raise ParameterError(
                "P107",
                "sql: an aggregate of people's rows is asked for each row of a public table. Join a grouped subquery: "
                "JOIN (SELECT key, sum(x) AS x FROM ... GROUP BY key) USING (key).",
            )

    def _of_people(self, block: RowBlock, expr: Expr) -> bool:
        """Whether rows that a public table has without people change no aggregate."""
        return all(counts_nothing_without(one, columns_of(block.missing)) for one in aggregates_in(expr))

    def _inside(self, block: RowBlock, expr: Expr) -> Expr:
        """Return an expression in which the aggregates' arguments hold no subquery any more."""
        if any(expr == one for one in aggregates_in(expr)):
            return expr.mapped(block.lifted)
        return expr.mapped(lambda part: self._inside(block, part))

    def _plain(self, stage: Stage, items: list[tuple[Expr, str]], conditions: list[Expr]) -> PartOfQuery:
        """Return rows of people, one by one, with windows of one person's rows."""
        everything = [*(expr for expr, _ in items), *conditions]
        windows = list(dict.fromkeys(one for expr in everything for one in expr.walk() if one.what == "window"))
        if windows:
            above, places = stage.windowed(windows, everything)
            items = [(replaced(expr, places), name) for expr, name in items]
            conditions = [replaced(one, places) for one in conditions]
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
        aggregates = list(dict.fromkeys(found for one in everything for found in aggregates_in(one)))
        above, places = stage.grouped(groups, aggregates)
        conditions = [replaced(one, places) for one in (having,) if one is not None]
        above.conditions += conditions
        above.known += conditions
        found = [(replaced(expr, places), name) for expr, name in items]
        for expr, _ in found:
            for one in expr.walk():
                if one.what == "item" and one.value != "g0":
                    raise SourceError("S002", f"sql: column {show(one.name)} is not in GROUP BY. Add it there.")
        rest = [replaced(one, places) for one in (qualify,) if one is not None]
        return self._plain(above, found, rest)

    def _items(self, query: Select, scope: Scope) -> list[tuple[Expr, str]]:
        """Return the select list with columns found, each with its name."""
        out: list[tuple[Expr, str]] = []
        aliases: dict[str, Expr] = {}
        scope.aliases = aliases
        for one in query.items:
            if one.what == "star":
                out += self._starred(one, scope)
                continue
            name = default_name(one)
            found = self.work.read(one, scope)
            out.append((found, name))
            if one.alias:
                aliases.setdefault(fold(one.alias), found)
        return out

    def _starred(self, star: Expr, scope: Scope) -> list[tuple[Expr, str]]:
        left_out = set(map(fold, star.names))
        replaced_by = {fold(one.name): one.parts[0] for one in star.parts}
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
        for one in query.groups:
            if one.what == "constant" and one.name == "number" and str(one.value).isdecimal():
                place = int(str(one.value))
                if not 1 <= place <= len(items):
                    raise SourceError("S002", f"sql: GROUP BY {place} names no column of the select list.")
                out.append(replace(items[place - 1][0], alias=""))
            else:
                out.append(self.work.read(one, scope))
        for one in out:
            if aggregates_in(one):
                raise ParameterError("P106", "sql groups by an aggregate. Put it into a subquery, and group by that.")
        return out

    def _orders(self, orders: tuple[Order, ...], scope: Scope, items: list[tuple[Expr, str]]) -> tuple[Order, ...]:
        """Return ORDER BY with columns found: a name of the select list comes before a column."""
        names = {fold(name): expr for expr, name in reversed(items)}
        out = []
        for one in orders:
            expr = one.expression
            if expr.what == "constant" and expr.name == "number" and str(expr.value).isdecimal():
                place = int(str(expr.value))
                found = items[place - 1][0] if 1 <= place <= len(items) else expr
            elif expr.what == "column" and len(expr.names) == 1 and fold(expr.names[0]) in names:
                found = names[fold(expr.names[0])]
            elif expr.what == "star":
                out += [replace(one, expression=each) for each, _ in items]
                continue
            else:
                found = self.work.read(expr, scope)
            out.append(replace(one, expression=found))
        return tuple(out)

    def _names(self, count: int) -> list[str] | None:
        """Return the names of the whole query's columns, as DuckDB binds it."""
        found = self.work.options.columns
        return [name for name, _ in found] if found is not None and len(found) == count else None

    # Set operations.

    def _set_operation(self, query: SetOperation, env: Env) -> PartOfQuery:
        parts = [self.query(one, env) for one in query.parts]
        level = levels(parts)
        if level == ROWS:
            if is_union_of_different(query):
                return self.query(as_distinct(query), env)
            return union_of_rows(self.work, query, parts)
        return released_union(self.work, query, env, parts, level)


def _reads(expr: Expr) -> bool:
    return any(one.what == "item" for one in expr.walk())
