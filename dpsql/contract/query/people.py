"""Writes subqueries below a core as joins: EXISTS, IN, their negations, and scalar subqueries of one person.

No correlated subquery reaches DuckDB, since its plans differ between versions. EXISTS and IN become a join with
distinct keys; if negated or part of a larger condition, they become a LEFT JOIN and a NULL test of its key. A scalar
subquery becomes a LEFT JOIN with a group for each key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dpsql.contract.parameters import show
from dpsql.contract.query.aggregates import aggregates_in
from dpsql.contract.query.intervals import literal_number
from dpsql.contract.query.joins import member_of, person_of, without_unit
from dpsql.contract.query.nodes import Derived, Expr, From, Nothing, Query, Select, about, require
from dpsql.contract.query.relations import (
    PUBLIC,
    RELEASED,
    ROWS,
    Column,
    Env,
    Item,
    QueryRelation,
    Splitting,
    UnboundError,
)
from dpsql.contract.query.stages import Leaf, RowBlock, Stage, asks, first_rows, replaced
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError, SourceError
from dpsql.rendering import call, identifier

_TRUE, _FALSE, _NULL = (
    Expr("constant", "boolean", value="true"),
    Expr("constant", "boolean", value="false"),
    Expr("constant", "NULL"),
)
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "<>": "<>", "=": "="}
TWO_STAGES = (
    "sql compares rows of people with a released number, which takes two queries. Ask the inner query first, and write "
    "its answer into the outer one; one of several rows becomes a table to join, CREATE TABLE answer AS FROM "
    "dp_query(...), of which SELECT dp_public('answer') says that it tells of nobody."
)


@dataclass(frozen=True)
class _Pair:
    """A condition between a subquery and its outer query."""

    inner: Expr
    sign: str
    outer: Expr


@dataclass
class Lifter:
    """Writes subqueries of rows as joins.

    Attributes
    ----------
    work : Splitting
    leaves : callable
        Returns the reader of a query's FROM items.
    """

    work: Splitting
    leaves: Callable[[Env], Leaf]

    def lift(self, block: RowBlock, expr: Expr, top: bool) -> Expr | None:
        """Return an expression without subqueries; None if a join replaced the condition."""
        if not asks(expr):
            return expr
        with about(expr):
            return self._lifted(block, expr, top)

    def _lifted(self, block: RowBlock, expr: Expr, top: bool) -> Expr | None:
        if expr.what == "subquery":
            if expr.name == "SCALAR":
                return self._scalar(block, _query_of(expr))
            return self._exists(block, expr, top)
        if expr.what == "not" and expr.parts[0].what == "subquery" and expr.parts[0].name != "SCALAR":
            condition = self._exists(block, expr.parts[0], False)
            return replace(expr, parts=(condition or _TRUE,))
        return expr.mapped(lambda part: self.lift(block, part, False) or _TRUE)

    # EXISTS and IN.

    def _exists(self, block: RowBlock, expr: Expr, top: bool) -> Expr | None:
        env = replace(block.env, depth=block.env.depth + 1)
        query = _plain(_query_of(expr), is_exists=expr.name == "EXISTS")
        inner = RowBlock(self.work, self._refusing(env), self.lift, env, block.scope)
        inner.open(query.source)
        inner.where(query.where)
        children = [require(self.lift(block, column, False)) for column in _row_of(expr.parts[0])] if expr.parts else []
        if len(children) > 1 and (not top or expr.value != "="):
            raise ParameterError(
                "P107",
                "sql: IN of several columns is read as a condition of WHERE on its own. Write EXISTS or NOT EXISTS "
                "with an equality for each column.",
            )
        values = self._values(inner, query, len(children))
        stage = inner.close()
        pairs = [self._pair(inner, condition) for condition in inner.correlated]
        pairs += [_Pair(value, _TURNED[str(expr.value)], child) for value, child in zip(values, children, strict=True)]
        if stage.member.people and not any(pair.sign == "=" and self._keeps(block, stage, pair) for pair in pairs):
            if not stage.member.owned:
                raise without_unit(stage.member.tables, beside=block.has_owner)
            sides = [person_of(stage.member), block.person]
            equal = f", {' = '.join(sides)}" if all(sides) else ""
            raise SourceError(
                "S012",
                f"sql: a subquery of {_table_names(stage)} chooses people by other people's rows. Write IN with the "
                f"column of the privacy unit on both sides, or EXISTS with WHERE that equates it{equal}.",
            )
        alone = children[0] if len(children) == 1 and not stage.member.people else None
        return self._met(block, stage, pairs, top, negatable=alone)

    def _keeps(self, block: RowBlock, stage: Stage, pair: _Pair) -> bool:
        """Whether an equality joins a subquery's rows with their own person, or with rows along a path to them."""
        return stage.is_owner(pair.inner) or block.leads_to(pair.outer) in stage.ties_of(pair.inner)

    def _met(self, block: RowBlock, stage: Stage, pairs: list[_Pair], top: bool, negatable: Expr | None) -> Expr | None:
        equal = [pair for pair in pairs if pair.sign == "="]
        others = [pair for pair in pairs if pair.sign != "="]
        if len(others) > 1 or any(pair.sign not in _TURNED for pair in others):
            raise ParameterError(
                "P107",
                "sql: a subquery meets what is around it by more than equalities and one comparison. Join its tables, "
                "and count different rows: SELECT count(*) FROM (SELECT DISTINCT a.person, a.id FROM a JOIN b ON ...).",
            )
        extremes = [Expr("call", name, (other.inner,)) for other in others for name in ("min", "max")]
        if not equal:
            return self._anywhere(block, stage, others, extremes)
        item, columns = self._item(block, stage, [pair.inner for pair in equal], extremes)
        on = [Expr("compare", "=", (pair.outer, columns[pair.inner])) for pair in equal]
        condition = _some(others, columns)
        if top:
            block.chosen.append(member_of(item))
            block.added += on
            return condition
        block.looked_up.append((member_of(item), on))
        presence = Expr("present", parts=(columns[equal[0].inner],))
        if condition is not None:
            return Expr("and", parts=(presence, Expr("coalesce", parts=(condition, _FALSE))))
        if negatable is None or len(equal) > 1:
            return presence
        # IN is NULL if its value is, or if the list holds NULL and no equal value.
        nulls = self._nulls(block, stage, equal[0].inner)
        unknown = Expr("or", parts=(Expr("null", parts=(negatable,)), nulls[0]))
        return Expr("case", parts=(presence, _TRUE, nulls[1], _FALSE, unknown, _NULL, _FALSE))

    def _nulls(self, block: RowBlock, stage: Stage, value: Expr) -> tuple[Expr, Expr]:
        """Return whether a public list holds NULL, and whether it is empty."""
        column = stage.write(value).sql
        some = call("count_if", f"{column} IS NULL")
        text = f"(SELECT {some} > 0 AS nulls, {call('count_star')} = 0 AS nothing {stage.body})"
        item = self._alone(block, text, "SELECT true AS nulls, true AS nothing")
        return (Expr("item", "nulls", value=item.id), Expr("item", "nothing", value=item.id))

    def _anywhere(self, block: RowBlock, stage: Stage, others: list[_Pair], extremes: list[Expr]) -> Expr:
        """Return whether a public query has a row, or a matching row."""
        if others:
            item, columns = self._item(block, stage, [], extremes, alone=True)
            return Expr("coalesce", parts=(require(_some(others, columns)), _FALSE))
        item = self._alone(block, f"(SELECT {call('count_star')} > 0 AS there {stage.body})", "SELECT true AS there")
        return Expr("item", "there", value=item.id)

    def _item(
        self, block: RowBlock, stage: Stage, keys: list[Expr], aggregates: list[Expr], *, alone: bool = False
    ) -> tuple[Item, dict[Expr, Expr]]:
        """Return the groups of a subquery's rows as an item of the outer query."""
        above, columns = stage.grouped(list(dict.fromkeys(keys)), list(dict.fromkeys(aggregates)))
        relation = above.scope.items[0].relation
        relation = relation if stage.member.people else replace(relation, level=PUBLIC)
        item = block.item(relation, hidden=True)
        if alone:
            block.chosen.append(member_of(item))
        return item, {expr: replace(position, value=item.id) for expr, position in columns.items()}

    def _alone(self, block: RowBlock, text: str, stub: str) -> Item:
        """Return a public query of one row as an item of the outer query."""
        types = require(self.work.catalogue.typing.columns(stub))
        columns = QueryRelation(PUBLIC, (), text)
        from_types = tuple(Column(name, name, kind) for name, kind in types)
        item = block.item(replace(columns, columns=from_types), hidden=True)
        block.chosen.append(member_of(item))
        return item

    def _pair(self, inner: RowBlock, condition: Expr) -> _Pair:
        if condition.what == "compare" and condition.name in _TURNED and not asks(condition):
            left, right = condition.parts
            if inner.scope.own(left) and not inner.scope.numbers(right):
                return _Pair(left, condition.name, right)
            if inner.scope.own(right) and not inner.scope.numbers(left):
                return _Pair(right, _TURNED[condition.name], left)
        raise ParameterError(
            "P107",
            "sql: a subquery's condition on what is around it is no comparison of one with the other. Join a grouped "
            "subquery instead.",
        )

    def _values(self, inner: RowBlock, query: Select, width: int) -> list[Expr]:
        """Return the columns of IN's subquery; none for EXISTS."""
        if not width:
            return []
        if not any(item.what == "star" for item in query.items):
            columns = [self.work.read(item, inner.scope) for item in query.items]
            columns = list(columns[0].parts) if len(columns) == 1 and columns[0].name == "row" else columns
        else:
            listed = [
                (item, column) for item in inner.scope.items if not item.hidden for column in item.relation.columns
            ]
            columns = [Expr("item", column.sql, value=item.id) for item, column in listed]
        if len(columns) != width:
            raise ParameterError(
                "P107",
                f"sql: IN compares {width} columns with a subquery of {len(columns)}. Write as many on both sides.",
            )
        return columns

    def _refusing(self, env: Env) -> Leaf:
        leaf = self.leaves(env)

        def read(source: From) -> tuple[QueryRelation, str]:
            relation, alias = leaf(source)
            if relation.level == RELEASED:
                raise ParameterError("P105", TWO_STAGES)
            return relation, alias

        return read

    # Scalar subqueries.

    def _scalar(self, block: RowBlock, query: Query) -> Expr:
        before = len(self.work.cores)
        try:
            relation = self.work.query(query, replace(block.env, outer=None))
        except (SourceError, UnboundError) as error:
            if error.code not in ("DPSQL-S002", "DPSQL-P101"):
                raise
            del self.work.cores[before:]
            return self._correlated(block, query)
        if relation.level == RELEASED:
            raise ParameterError("P105", TWO_STAGES)
        if relation.level == ROWS:
            raise ParameterError(
                "P103", "sql: a subquery that stands for one value returns rows of people. Aggregate it by the person."
            )
        column = relation.columns[0]
        text = f"(SELECT {call('min', identifier(column.sql))} AS v FROM {relation.sql} AS s)"
        item = self._alone(block, text, f"SELECT NULL::{column.type.sql} AS v")
        return Expr("item", "v", value=item.id)

    def _correlated(self, block: RowBlock, query: Query) -> Expr:
        if not isinstance(query, Select) or query.groups or query.group_all or len(query.items) != 1:
            raise ParameterError("P107", _GROUPED)
        env = replace(block.env, depth=block.env.depth + 1)
        inner = RowBlock(self.work, self._refusing(env), self.lift, env, block.scope)
        inner.open(query.source)
        inner.where(query.where)
        value = self.work.read(query.items[0], inner.scope)
        stage = inner.close()
        pairs = [self._pair(inner, condition) for condition in inner.correlated]
        aggregates = list(dict.fromkeys(aggregates_in(value)))
        people = stage.member.people
        if people and not any(pair.sign == "=" and stage.is_owner(pair.inner) for pair in pairs):
            raise ParameterError("P105", TWO_STAGES)
        if not people and not aggregates and query.modifiers.limit is not None:
            return self._first(block, query, inner, stage, pairs, value)
        if (people and not aggregates) or any(pair.sign != "=" for pair in pairs) or not pairs:
            raise ParameterError("P107", _GROUPED)
        if not aggregates:
            value = Expr("call", "min", (value,))
            aggregates = [value]
        item, columns = self._item(block, stage, [pair.inner for pair in pairs], aggregates)
        on = [Expr("compare", "=", (pair.outer, columns[pair.inner])) for pair in pairs]
        block.looked_up.append((member_of(item), on))
        zero = Expr("constant", "number", value="0")
        for aggregate in aggregates:
            if aggregate.name in ("count", "count_star", "count_if", "countif"):
                columns[aggregate] = Expr("coalesce", parts=(columns[aggregate], zero))
        return replaced(value, columns)

    def _first(
        self, block: RowBlock, query: Select, inner: RowBlock, stage: Stage, pairs: list[_Pair], value: Expr
    ) -> Expr:
        """Return the value of the first public row that meets a row: by equalities, and the nearest by one comparison.

        The nearest row comes first in the order, so that no other comparison is needed.
        """
        modifiers = query.modifiers
        is_one = modifiers.limit is not None and literal_number(modifiers.limit) == 1 and modifiers.offset is None
        orders = [
            replace(order, expression=self.work.read(order.expression, inner.scope)) for order in modifiers.orders
        ]
        nearest = [pair for pair in pairs if pair.sign != "="]
        for pair in nearest:
            words = ("", "ASC") if pair.sign in (">", ">=") else ("DESC",)
            first = bool(orders) and orders[0].expression == pair.inner and orders[0].direction in words
            is_one = is_one and first and pair.sign != "<>"
        own = all(map(inner.scope.own, [value, *(order.expression for order in orders)]))
        if not (is_one and own and pairs and orders and len(nearest) < 2):
            raise ParameterError("P107", _GROUPED)
        compared = [Expr("compare", _TURNED[pair.sign], (pair.outer, pair.inner)) for pair in pairs]
        keys = [(condition.parts[1], inner.compared_as(condition)) for condition in compared]
        relation, names = first_rows(stage, keys, orders[len(nearest) :], value)
        item = replace(block.item(relation, hidden=True), optional=True)
        block.scope.items[-1] = item
        on = [
            replace(condition, parts=(condition.parts[0], Expr("item", name, value=item.id)))
            for condition, name in zip(compared, names, strict=True)
        ]
        block.looked_up.append((member_of(item), on))
        return Expr("item", "v", value=item.id)


_GROUPED = (
    "sql: a subquery for each row is not one aggregate with equalities to what is around it. Join a grouped subquery: "
    "LEFT JOIN (SELECT key, max(x) AS x FROM ... GROUP BY key) USING (key)."
)


def _table_names(stage: Stage) -> str:
    """Return the names of the tables of people that a subquery reads."""
    return ", ".join(show(table.split(".")[-1].strip('"')) for table in stage.member.tables) or "people's rows"


def _query_of(expr: Expr) -> Query:
    return require(expr.query)


def _is_plain(query: Query) -> bool:
    """Whether a query returns the rows of its FROM one by one; its columns do not matter to EXISTS."""
    return (
        isinstance(query, Select)
        and not isinstance(query.source, Nothing)
        and not (query.groups or query.group_all or query.having or query.qualify or query.withs)
        and not (query.modifiers.cuts or query.modifiers.distinct_on)
        and not any(aggregates_in(item) or item.what == "window" for item in query.items)
    )


def _row_of(expr: Expr) -> tuple[Expr, ...]:
    """Return the columns that IN compares."""
    return expr.parts if expr.what == "call" and expr.name == "row" else (expr,)


def _plain(query: Query, *, is_exists: bool) -> Select:
    """Return a query of the same rows that reads them one by one from its FROM."""
    stars = [item for item in query.items if item.what == "star"] if isinstance(query, Select) else []
    bare = stars == [Expr("star")] and isinstance(query, Select) and len(query.items) == 1
    if _is_plain(query) and isinstance(query, Select) and not is_exists and (not stars or bare):
        return query
    if is_exists and isinstance(query, Select) and not query.withs and query.modifiers.limit is not None:
        first = query.modifiers.limit
        if first.what == "constant" and first.value not in ("0", None) and query.modifiers.offset is None:
            return _plain(replace(query, modifiers=replace(query.modifiers, limit=None)), is_exists=True)
    if is_exists and _is_plain(query) and isinstance(query, Select):
        return query
    return Select(items=(Expr("star"),), source=Derived(query))


def _some(others: list[_Pair], columns: dict[Expr, Expr]) -> Expr | None:
    """Return the condition that some value of a group compares, from its minimum and maximum."""
    for other in others:
        least, most = (columns[Expr("call", name, (other.inner,))] for name in ("min", "max"))
        if other.sign in ("<", "<="):
            return Expr("compare", other.sign, (least, other.outer))
        if other.sign in (">", ">="):
            return Expr("compare", other.sign, (most, other.outer))
        return Expr("or", parts=tuple(Expr("compare", "<>", (end, other.outer)) for end in (least, most)))
    return None
