"""FROM and WHERE over rows of people: turn tables, joins and conditions of one SELECT into a stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dpsql.contract.parameters import fold
from dpsql.contract.query.catalogue import PathKey
from dpsql.contract.query.intervals import columns_of, fails_without
from dpsql.contract.query.joins import Ids, Joining, Member, member_of, of_nobody, person_of
from dpsql.contract.query.nodes import Expr, From, Join, Nothing, Order, Select, leaves, require
from dpsql.contract.query.relations import PUBLIC, ROWS, Env, Item, QueryRelation, Scope, Splitting, item_column
from dpsql.contract.query.stages import DISTINCT_ON, Stage
from dpsql.errors import ParameterError, SourceError
from dpsql.rendering import identifier

Leaf = Callable[[From], tuple[QueryRelation, str]]
# Rewrites a condition with a subquery; None if a join replaces it.
Lift = Callable[["RowBlock", Expr, bool], Expr | None]


class RowBlock:
    """Reads the FROM and WHERE of one SELECT.

    Parameters
    ----------
    work : Splitting
    leaf : callable
        Returns the relation of a FROM item, and its name.
    lift : callable
    env : Env
    outer : Scope or None
        The outer scope of a correlated subquery.
    """

    def __init__(self, work: Splitting, leaf: Leaf, lift: Lift, env: Env, outer: Scope | None = None) -> None:
        self.work, self._leaf, self._lift, self.env = work, leaf, lift, env
        self.scope = Scope(outer=outer)
        self.ids = Ids(chr(ord("a") + min(env.depth, 5)))
        self.joining = Joining(
            self.scope, self.ids, work.catalogue, work.expressions, work.parent, work.revised, work.notes
        )
        self.conditions: list[Expr] = []
        self.read_conditions: list[Expr] = []
        self.added: list[Expr] = []  # conditions from subqueries
        self.correlated: list[Expr] = []  # conditions on the outer scope
        self._opened: list[Member] = []
        self.chosen: list[Member] = []  # subqueries that became joins
        self.looked_up: list[tuple[Member, list[Expr]]] = []  # subqueries that became LEFT JOINs
        self._choosing: list[Expr] = []  # SEMI and ANTI joins
        # Conditions of a public table LEFT JOIN rows of people: they keep the table's rows.
        self._outer_conditions: list[Expr] = []
        self.missing: set[str] = set()  # items with NULL columns in rows that only such a table has

    def open(self, source: From) -> None:
        """Read a FROM."""
        self._opened = self._members(source)

    def where(self, where: Expr | None) -> None:
        """Read a WHERE."""
        if where is not None:
            self.conditions += self.conjuncts(where)

    def close(self) -> Stage:
        """Return the stage, after all conditions and all subqueries that became joins are read."""
        self.correlated = [condition for condition in self.conditions if not self.scope.own(condition)]
        own = [condition for condition in self.conditions if self.scope.own(condition)]
        if any(
            self._reads_missing(condition) and not fails_without(condition, columns_of(self.missing))
            for condition in own
        ):
            raise of_nobody()
        self.read_conditions += own
        lifted = [self._lifted(condition) for condition in (*own, *self._choosing, *self._outer_conditions)]
        conditions = [*(condition for condition in lifted if condition is not None), *self.added]
        member = self.joining.together([*self._opened, *self.chosen], conditions)
        for looked_up, on in self.looked_up:
            member, on = self._of_one_person(member, looked_up, on)
            equal = list(self.joining.equalities(member, looked_up, on))
            if len(equal) < len(on):
                raise SourceError(
                    "S003", "sql: a subquery is compared with a column of another type. Cast the column in a view."
                )
            member = self.joining.left(member, looked_up, equal)
        all_conditions = [condition for condition in [*self.read_conditions, *self.added] if not _asks(condition)]
        return Stage(self.work, self.scope, member, conditions, all_conditions)

    def _of_one_person(self, member: Member, looked_up: Member, on: list[Expr]) -> tuple[Member, list[Expr]]:
        """Resolve the rows' owner, and demand the same owner, if they look up the end of their path.

        Rows without a match keep their owner that way.
        """
        if member.pending is None or not looked_up.people or looked_up.pending is not None:
            return member, on
        member = self.joining.with_path(member)
        mine, theirs = (Expr("item", name, value=at) for at, name in (min(member.owner), min(looked_up.owner)))
        return member, [*on, Expr("compare", "=", (mine, theirs))]

    @property
    def has_owner(self) -> bool:
        """Whether rows of FROM have a privacy unit."""
        return any(member.owned for member in self._opened)

    @property
    def person(self) -> str:
        """The query's name for the privacy unit's column in FROM; '' if it has none."""
        return next((name for name in map(person_of, self._opened) if name), "")

    def leads_to(self, expr: Expr) -> PathKey | None:
        """Return the key of the path that a column of FROM follows; None for other columns."""
        column = (str(expr.value), expr.name) if expr.what == "item" else None
        keys = (member.pending for member in self._opened if column in member.owner)
        return next(keys, None)

    def lifted(self, expr: Expr) -> Expr:
        """Return an expression with LEFT JOINs in place of its subqueries."""
        if not _asks(expr):
            return expr
        return require(self._lift(self, expr, False))

    def _lifted(self, condition: Expr) -> Expr | None:
        return self._lift(self, condition, True) if _asks(condition) else condition

    def item(self, relation: QueryRelation, alias: str = "", *, hidden: bool = False) -> Item:
        """Return a new item of the scope."""
        item = Item(self.ids.next(), _computed_first(relation), alias, hidden)
        self.scope.items.append(item)
        return item

    def conjuncts(self, condition: Expr) -> list[Expr]:
        """Return the conjuncts of a condition, with resolved columns."""
        return list(_conjuncts(self.work.read(condition, self.scope)))

    # FROM.

    def _members(self, source: From) -> list[Member]:
        if isinstance(source, Join):
            return self._join(source)
        if isinstance(source, Nothing):
            return []
        relation, alias = self._leaf(source)
        return [member_of(self.item(relation, alias))]

    def _join(self, join: Join) -> list[Member]:
        if join.kind == "RIGHT":
            return self._outer(replace(join, kind="LEFT", left=join.right, right=join.left), swapped=True)
        if join.kind == "LEFT":
            return self._outer(join)
        if join.kind == "OUTER":
            raise ParameterError(
                "P103",
                "sql: FULL JOIN of rows of people is not answered. Write LEFT JOIN from a table that has all of them: "
                "FROM people LEFT JOIN a USING (person) LEFT JOIN b USING (person).",
            )
        if join.kind in ("SEMI", "ANTI"):
            return self._semi_join(join)
        before = len(self.scope.items)
        left = self._members(join.left)
        middle = len(self.scope.items)
        right = self._members(join.right)
        self.conditions += self._using(join, before, middle)
        if join.condition is not None:
            self.conditions += self.conjuncts(join.condition)
        return [*left, *right]

    def _semi_join(self, join: Join) -> list[Member]:
        """Return the left side of a SEMI or ANTI JOIN; EXISTS or NOT EXISTS in WHERE chooses its rows."""
        before = len(self.scope.items)
        members = self._members(join.left)
        ours = self.scope.items[before:]
        names = join.using
        if join.natural:
            theirs = {fold(column.name) for source in leaves(join.right) for column in self._leaf(source)[0].columns}
            names = tuple(
                column.name for item in ours for column in item.relation.columns if fold(column.name) in theirs
            )
        equal = [Expr("compare", "=", (Expr("column", names=(name,)), self._column_in(ours, name))) for name in names]
        met = [*equal, *([] if join.condition is None else [join.condition])]
        where = met[0] if len(met) == 1 else Expr("and", parts=tuple(met)) if met else None
        literal = Expr("constant", "number", value="1")
        subquery = Expr("subquery", "EXISTS", query=Select(items=(literal,), source=join.right, where=where))
        self._choosing.append(subquery if join.kind == "SEMI" else Expr("not", parts=(subquery,)))
        return members

    def _reads_missing(self, expr: Expr) -> bool:
        return bool(self.scope.numbers(expr) & self.missing)

    def _using(self, join: Join, before: int, middle: int) -> list[Expr]:
        """Return the equalities of USING and NATURAL, and store the column of each name."""
        left, right = self.scope.items[before:middle], self.scope.items[middle:]
        names = join.using
        if join.natural:
            left_names = {fold(column.name) for item in left for column in item.relation.columns}
            names = tuple(
                column.name for item in right for column in item.relation.columns if fold(column.name) in left_names
            )
        out = []
        for name in names:
            sides = [self._column_in(items, name) for items in (left, right)]
            out.append(Expr("compare", "=", tuple(sides)))
            self.scope.merged[fold(name)] = sides[0]
        return out

    def _column_in(self, items: Sequence[Item], name: str) -> Expr:
        for item in items:
            if not item.hidden and (column := item.column(name)) is not None:
                return item_column(item, column)
        raise SourceError("S002", f"sql: column {name} of USING is not found on both sides. Write ON.")

    def _outer(self, join: Join, *, swapped: bool = False) -> list[Member]:
        """Return a LEFT JOIN, with conditions on its right side alone moved into that side."""
        around, self.conditions = self.conditions, []
        before = len(self.scope.items)
        left = self._members(join.left)
        ours, self.conditions = self.conditions, []
        middle, choosing, missing = len(self.scope.items), len(self._choosing), len(self.missing)
        right = self._members(join.right)
        theirs, self.conditions = self.conditions, around
        if len(self._choosing) > choosing or len(self.missing) > missing:
            raise ParameterError(
                "P101",
                "sql: a SEMI, ANTI or LEFT JOIN on the joined side of a LEFT JOIN is not read. Put it into WITH.",
            )
        on = self._using(join, before, middle)
        if join.condition is not None:
            on += self.conjuncts(join.condition)
        ids = {item.id for item in self.scope.items[middle:]}
        if any(map(self._reads_missing, on)):
            self.missing |= ids
        equal = []
        for condition in on:
            if _asks(condition):
                raise ParameterError("P101", "sql: a subquery in the ON of a LEFT JOIN is not read. Put it into WITH.")
            read = self.scope.numbers(condition)
            if read and read <= ids:
                theirs.append(condition)
            else:
                equal.append(condition)
        if not any(member.people for member in left) and any(member.people for member in right):
            self._outer_conditions += [*theirs, *equal]
            self.missing |= ids
            self._optional(ids)
            outer = self.joining.together(left, ours)
            return [self._filtered(outer, ours) if ours else outer, *right]
        inner = self._filtered(self.joining.together(right, theirs), theirs)
        met = [*ours, *self._outer_conditions]
        outer = self.joining.together(left, met)
        ours, self._outer_conditions = (
            [condition for condition in conditions if condition in met] for conditions in (ours, self._outer_conditions)
        )
        if ours:
            outer = self._filtered(outer, ours)
        equal = [part for condition in equal for part in _ends(condition)]
        equalities = list(self.joining.equalities(outer, inner, equal))
        comparisons = list(self.joining.comparisons(outer, inner, equal))
        if len(equalities) + len(comparisons) < len(equal):
            raise ParameterError(
                "P101",
                "sql: ON of a LEFT JOIN has more than comparisons of one side with the other and conditions on the "
                "joined table, such as an OR of both sides. Write the rest into CASE: max(CASE WHEN ... THEN x END).",
            )
        self._optional(ids)
        return [replace(self.joining.left(outer, inner, equalities, comparisons), is_single=False)]

    def _optional(self, ids: set[str]) -> None:
        """Mark items whose columns an outer join may make NULL."""
        for index, item in enumerate(self.scope.items):
            if item.id in ids:
                self.scope.items[index] = replace(item, optional=True)

    def _filtered(self, member: Member, conditions: list[Expr]) -> Member:
        """Return a table with only the rows that meet conditions."""
        if not conditions:
            return member
        if len(member.items) > 1:
            raise ParameterError(
                "P101", "sql: a condition on several tables joined at once in ON is not read. Put them into WITH."
            )
        [item] = member.items
        condition = conditions[0] if len(conditions) == 1 else Expr("and", parts=tuple(conditions))
        where = self.work.expressions.write(condition, self.scope.columns(condition), "BOOLEAN").sql
        name = identifier(item.id)
        return replace(member, text=f"(SELECT * FROM {item.relation.sql} AS {name} WHERE {where}) AS {name}")


def _computed_first(relation: QueryRelation) -> QueryRelation:
    """Materialize a public query, so that DuckDB computes all its rows, matched or not.

    If the query fails, it must fail for any rows of people.
    """
    if relation.level != PUBLIC or not relation.sql.startswith("("):
        return relation
    text = f"(WITH query_public AS MATERIALIZED (SELECT * FROM {relation.sql} AS q) SELECT * FROM query_public)"
    return replace(relation, sql=text)


def _conjuncts(expr: Expr) -> list[Expr]:
    """Return the conditions that must all hold, including the common conditions of an OR's parts."""
    if expr.what == "and":
        return [conjunct for part in expr.parts for conjunct in _conjuncts(part)]
    if expr.what == "or":
        demanded = [_conjuncts(part) for part in expr.parts]
        common = [conjunct for conjunct in demanded[0] if all(conjunct in conjuncts for conjuncts in demanded[1:])]
        return [*common, expr]
    return [expr]


def _ends(condition: Expr) -> tuple[Expr, ...]:
    """Return the comparisons of a condition: two for BETWEEN."""
    if condition.what != "between":
        return (condition,)
    value, least, most = condition.parts
    return Expr("compare", ">=", (value, least)), Expr("compare", "<=", (value, most))


def _asks(expr: Expr) -> bool:
    """Whether an expression holds a subquery."""
    return any(part.what == "subquery" for part in expr.walk())


def asks(expr: Expr) -> bool:
    """Whether an expression holds a subquery."""
    return _asks(expr)


def levels(relations: Sequence[QueryRelation]) -> str:
    """Return the level of relations read together."""
    kinds = {relation.level for relation in relations}
    return ROWS if ROWS in kinds else next((level for level in kinds if level != PUBLIC), PUBLIC)


def first_of(groups: Sequence[Expr], orders: tuple[Order, ...]) -> Expr:
    """Return the QUALIFY condition that keeps the first row of each group in an order, as DISTINCT ON does."""
    number = Expr("window", "row_number", orders=orders, partitions=tuple(groups), alias=DISTINCT_ON)
    return Expr("compare", "=", (number, Expr("constant", "number", value="1")))
