"""Joins the tables of a core: equalities of WHERE and ON become explicit joins, and a path leads to the person.

`dpsql.engines.duckdb.lineage.stability` proves from the bound plan which joins keep people apart. This module writes
joins that satisfy its rules, or refuses them with the line to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace

from dpsql.contract.expression.kinds import INTEGERS, NUMBERS
from dpsql.contract.parameters import fold, show
from dpsql.contract.query.catalogue import Catalogue, PathKey
from dpsql.contract.query.expressions import RowExpressions, is_text
from dpsql.contract.query.nodes import Expr
from dpsql.contract.query.relations import ROWS, Item, QueryRelation, Scope
from dpsql.contract.query.spellings import by_collation
from dpsql.dataclass import dataclass
from dpsql.errors import SourceError
from dpsql.rendering import call, identifier
from dpsql.rendering import text as sql_text

# The signs of an order, and the signs for swapped sides.
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "<>": "<>"}
ColumnId = tuple[str, str]  # an item's number, and the SQL name of its column


@dataclass
class Ids:
    """Numbers items of one scope."""

    prefix: str
    used: int = 0

    def next(self) -> str:
        """Return the next number."""
        self.used += 1
        return f"{self.prefix}{self.used - 1}"


@dataclass
class Member:
    """Joined tables, and the owner of their rows."""

    items: list[Item]
    text: str
    is_single: bool = True  # whether the text is one FROM item
    people: bool = False
    owned: bool = False
    owner: frozenset[ColumnId] = frozenset()
    pending: PathKey | None = None
    ties: frozenset[tuple[ColumnId, PathKey]] = frozenset()
    tables: tuple[str, ...] = ()
    period: str = ""
    dates: frozenset[ColumnId] = frozenset()

    @property
    def ids(self) -> frozenset[str]:
        """The numbers of its items."""
        return frozenset(item.id for item in self.items)

    @property
    def within(self) -> str:
        """The text for use in another join."""
        return self.text if self.is_single else f"({self.text})"


@dataclass(frozen=True)
class JoinEquality:
    """A comparison of a joined member with the next one: both sides, and the original condition."""

    ours: Expr
    theirs: Expr
    condition: Expr
    sign: str = "="


def member_of(item: Item) -> Member:
    """Return the member of one table."""
    relation = item.relation
    ties = frozenset(((item.id, column.sql), column.tie) for column in relation.columns if column.tie is not None)
    return Member(
        [item],
        f"{relation.sql} AS {identifier(item.id)}",
        people=relation.level == ROWS,
        owned=relation.owned,
        owner=frozenset((item.id, name) for name in item.owner),
        pending=relation.pending,
        ties=ties,
        tables=relation.tables,
        period=relation.period,
        dates=frozenset((item.id, name) for name in item.dates),
    )


@dataclass
class Joining:
    """Joins the tables of one query.

    Attributes
    ----------
    scope : Scope
    ids : Ids
    catalogue : Catalogue
    expressions : RowExpressions
    table : callable
        Returns the relation of a table of the catalogue.
    revised : callable
        As `dpsql.contract.query.work.Splitting.revised`.
    notes : list of str
        Lines for explain.
    """

    scope: Scope
    ids: Ids
    catalogue: Catalogue
    expressions: RowExpressions
    table: Callable[[PathKey], QueryRelation | None]
    revised: Callable[[bool], bool]
    notes: list[str] = field(default_factory=list)

    def together(self, members: Sequence[Member], conditions: list[Expr]) -> Member:
        """Return all members joined; remove the conditions that became joins from the list."""
        rest = list(members)
        first = next((candidate for candidate in rest if candidate.people), rest[0])
        rest.remove(first)
        current = first
        while rest:
            join = self._next(current, rest, conditions)
            if join is None:
                again = self._with_paths(current, rest)
                if again is None:
                    raise _apart(current, next(candidate for candidate in rest if candidate.people))
                current = again
                continue
            member, equal, linked = join
            rest.remove(member)
            current = self._joined("JOIN", current, member, equal, linked)
            for equality in equal:
                conditions[:] = [condition for condition in conditions if condition != equality.condition]
        return current

    def _next(
        self, current: Member, rest: Sequence[Member], conditions: Sequence[Expr]
    ) -> tuple[Member, list[JoinEquality], Member | None] | None:
        """Return the next member to join, with the equalities; None if rows of several people would meet."""
        apart = []
        for member in [
            *(candidate for candidate in rest if candidate.people),
            *(candidate for candidate in rest if not candidate.people),
        ]:
            equal = list(self.equalities(current, member, conditions))
            if current.people and member.people:
                linked = link(current, member, equal)
                if linked is not None:
                    return member, equal, linked
                apart.append(member)
            elif equal:
                return member, equal, None
        return None if apart else (rest[0], [], None)

    def equalities(self, ours: Member, theirs: Member, conditions: Sequence[Expr]) -> Iterator[JoinEquality]:
        """Yield the equalities between two members, of types that a join may compare."""
        for condition in conditions:
            if condition.what != "compare" or condition.name != "=":
                continue
            for left, right in (condition.parts, condition.parts[::-1]):
                read = self.scope.numbers(left), self.scope.numbers(right)
                if all(read) and read[0] <= ours.ids and read[1] <= theirs.ids and self._equal(left, right):
                    yield JoinEquality(left, right, condition)
                    break

    def comparisons(self, ours: Member, theirs: Member, conditions: Sequence[Expr]) -> Iterator[JoinEquality]:
        """Yield the comparisons by order between two members, of types that never fail."""
        for condition in conditions:
            if condition.what != "compare" or condition.name not in _TURNED:
                continue
            first, second = condition.parts
            for left, right, sign in ((first, second, condition.name), (second, first, _TURNED[condition.name])):
                read = self.scope.numbers(left), self.scope.numbers(right)
                if all(read) and read[0] <= ours.ids and read[1] <= theirs.ids and self._ordered(left, right, sign):
                    yield JoinEquality(left, right, condition, sign)
                    break

    def _ordered(self, left: Expr, right: Expr, sign: str) -> str | None:
        """Return the SQL of a comparison by order; None if its sides have no common type.

        Within one person any condition may choose the joined rows: lineage also demands the person's equality.
        Decimals of different sizes are compared as doubles: DuckDB would cast one, and fail on a large value.
        """
        sides = [self.expressions.write(side, self.scope.columns(side)) for side in (left, right)]
        kinds = {side.type.kind for side in sides}
        sizes = {side.type.sizes for side in sides}
        target = None
        if kinds <= {"DATE", "TIMESTAMP"} and len(kinds) > 1:
            target = "TIMESTAMP"
        elif kinds <= NUMBERS and max(len(kinds), len(sizes)) > 1:
            target = "DOUBLE"
        elif not (kinds <= NUMBERS | {"DATE", "TIMESTAMP", "TIME", "INTERVAL"} and len(kinds) == 1):
            return None
        if target is not None:
            sides = [self.expressions.write(side, self.scope.columns(side), target) for side in (left, right)]
        return f"{sides[0].sql} {sign} {sides[1].sql}"

    def _equal(self, left: Expr, right: Expr) -> str | None:
        """Return the SQL of an equality of a join; None if its sides have different types."""
        sides = [self.expressions.write(side, self.scope.columns(side)) for side in (left, right)]
        kinds = [side.type for side in sides]
        # A cast between integers never fails, except for unsigned 128 bits.
        if all(kind.kind in INTEGERS - {"UHUGEINT"} for kind in kinds):
            return f"{sides[0].sql} = {sides[1].sql}"
        if all(map(is_text, kinds)):
            by = next((kind.collation for kind in kinds if kind.collated), "")
            # The bytes of ids distinguish people, whatever the collation is.
            if self.revised(bool(by) and not (self._is_key(left) and self._is_key(right))):
                collated = [by_collation(side, by) for side in (left, right)]
                sides = [self.expressions.write(side, self.scope.columns(side)) for side in collated]
            return f"{call('encode', sides[0].sql)} = {call('encode', sides[1].sql)}"
        if kinds[0] == kinds[1] and kinds[0].known:
            return f"{sides[0].sql} = {sides[1].sql}"
        return None

    def _is_key(self, expr: Expr) -> bool:
        column = self.scope.column(expr) if expr.what == "item" else None
        return column is not None and (column.owner or column.tie is not None)

    def _joined(
        self,
        word: str,
        ours: Member,
        theirs: Member,
        equal: Sequence[JoinEquality],
        linked: Member | None,
        more: Sequence[JoinEquality] = (),
    ) -> Member:
        equalities = [str(self._equal(equality.ours, equality.theirs)) for equality in equal]
        on = " AND ".join(
            [
                *equalities,
                *(str(self._ordered(comparison.ours, comparison.theirs, comparison.sign)) for comparison in more),
            ]
        )
        if equal or more:
            text = f"{ours.text} {word} {theirs.within} ON {on}"
        elif word == "JOIN":
            text = f"{ours.text} CROSS JOIN {theirs.within}"
        else:
            text = f"{ours.text} {word} {theirs.within} ON TRUE"
        people = next((member for member in (ours, theirs) if member.people), ours)
        out = linked or people
        both = ours.ties | theirs.ties | (linked.ties if linked else frozenset())
        return replace(
            out,
            items=[*ours.items, *theirs.items],
            text=text,
            is_single=False,
            people=ours.people or theirs.people,
            ties=both,
            period=ours.period or theirs.period,
            dates=ours.dates | theirs.dates,
            tables=tuple(dict.fromkeys((*ours.tables, *theirs.tables))),
        )

    def left(
        self, ours: Member, theirs: Member, equal: Sequence[JoinEquality], more: Sequence[JoinEquality] = ()
    ) -> Member:
        """Return a LEFT JOIN by equalities, and by `more` comparisons."""
        linked = None
        if ours.people and theirs.people:
            linked = link(ours, theirs, equal, outer=True)
            if linked is None and (ours.pending or theirs.pending):
                ours, theirs = self.with_path(ours), self.with_path(theirs)
                linked = link(ours, theirs, equal, outer=True)
            if linked is None:
                raise _apart(ours, theirs)
        elif theirs.people:
            raise of_nobody()
        return self._joined("LEFT JOIN", ours, theirs, equal, linked, more)

    def nearest(self, ours: Member, theirs: Member, conditions: Sequence[Expr], *, outer: bool) -> Member:
        """Return an ASOF JOIN with a public table: `conditions` are equalities, and one comparison by order.

        The table has one row for all values that the conditions compare (`stages.first_rows`). So the row that a row of
        people meets follows from this row and from public rows, and there is at most one.

        Raises
        ------
        SourceError
            S003: a condition compares values of different types.
        """
        on = []
        for condition in conditions:
            [mine, their] = condition.parts
            kinds = [self.expressions.type(side, self.scope.columns(side)) for side in (mine, their)]
            dated = {kind.kind for kind in kinds} == {"DATE", "TIMESTAMP"}
            if condition.name == "=":
                on.append(self._equal(mine, their))
            elif dated or kinds[0] == kinds[1] or all(kind.kind in INTEGERS - {"UHUGEINT"} for kind in kinds):
                target = "TIMESTAMP" if dated else None  # the table's column is one, see `compared_as`
                sql = self.expressions.write(mine, self.scope.columns(mine), target).sql
                on.append(f"{sql} {condition.name} {self.expressions.write(their, self.scope.columns(their)).sql}")
            else:
                on.append(None)
        if None in on:
            raise SourceError(
                "S003", "sql: a table is looked up by a column of another type. Cast one of both columns in a view."
            )
        text = f"{ours.text} ASOF {'LEFT ' if outer else ''}JOIN {theirs.within} ON {' AND '.join(map(str, on))}"
        return replace(ours, items=[*ours.items, *theirs.items], text=text, is_single=False)

    def _with_paths(self, current: Member, rest: list[Member]) -> Member | None:
        """Join every member along its path, and return the current member; None if no member has a path."""
        if current.pending is None and not any(member.pending for member in rest):
            return None
        rest[:] = [self.with_path(member) for member in rest]
        return self.with_path(current)

    def with_path(self, member: Member) -> Member:
        """Return a member joined along its path until its rows belong to a person."""
        while member.pending is not None:
            key = member.pending
            relation = self.table(key)
            if relation is None:
                raise SourceError(
                    "S017", f"sql: the path of a table leads to {show('.'.join(key.table))}, which is not there."
                )
            parent = Item(self.ids.next(), relation, "", hidden=True)
            self.scope.items.append(parent)
            number, column = min(member.owner)
            target = next(candidate for candidate in relation.columns if candidate.name.lower() == key.column.lower())
            ours, theirs = Expr("item", column, value=number), Expr("item", target.sql, value=parent.id)
            equal = [JoinEquality(ours, theirs, ours)]
            joined = member_of(parent)
            linked = link(member, joined, equal)
            if linked is None:
                raise _apart(member, joined)
            self.notes.append(f"joined along its path: {key.table[-1]} by {key.column}")
            member = self._joined("JOIN", member, joined, equal, linked)
        return member


def link(ours: Member, theirs: Member, equal: Sequence[JoinEquality], *, outer: bool = False) -> Member | None:
    """Return the member that owns the joined rows; None if rows of several people would meet."""
    if not ours.owned or not theirs.owned:
        return None
    bare = [(_column_of(equality.ours), _column_of(equality.theirs)) for equality in equal]
    pairs = [(left, right) for left, right in bare if left is not None and right is not None]
    if ours.pending == theirs.pending and any(a in ours.owner and b in theirs.owner for a, b in pairs):
        return replace(ours, owner=ours.owner if outer else ours.owner | theirs.owner)
    if theirs.pending is not None and any((a, theirs.pending) in ours.ties and b in theirs.owner for a, b in pairs):
        return replace(ours, ties=ours.ties | {(column, theirs.pending) for column in theirs.owner})
    if ours.pending is not None and any((b, ours.pending) in theirs.ties and a in ours.owner for a, b in pairs):
        tied = frozenset((column, ours.pending) for column in ours.owner)
        return replace(theirs, ties=theirs.ties | ours.ties | tied)
    return None


def _column_of(expr: Expr) -> ColumnId | None:
    return (str(expr.value), expr.name) if expr.what == "item" else None


def without_unit(tables: Iterable[str], *, beside: bool = True) -> SourceError:
    """Return the refusal to join tables without a privacy unit, with tables that have one or with each other."""
    names = [fromkey.replace('"', "") for fromkey in dict.fromkeys(tables)]
    advice = (
        "Have the owner state whose they are, "
        f"SELECT dp_protect({sql_text(names[0] if names else '...')}, epsilon := ..., privacy_unit := ..., "
        "max_rows_per_unit := ..., replace := true), and join tables of one budget, which tables := {...} "
        "and merge := [...] make. Or ask of each by itself."
    )
    rows = f"sql: rows of {', '.join(map(show, names))} have no privacy unit,"
    if beside:
        return SourceError("S013", f"{rows} and those beside it have one. {advice}")
    return SourceError("S012", f"{rows} so that one row would meet many. {advice}")


def of_nobody() -> SourceError:
    """Return the refusal to count rows of a public table that match nobody."""
    return SourceError(
        "S012",
        "sql: a public table LEFT JOIN rows of people has rows of nobody, and what is asked would count them. Count a "
        "column of the people's table, count(patient) for count(*), and write JOIN where a condition is on one.",
    )


def _apart(ours: Member, theirs: Member) -> SourceError:
    lacking = [member for member in (ours, theirs) if not member.owned]
    if lacking:
        return without_unit((table for member in lacking for table in member.tables), beside=len(lacking) == 1)
    tables = " and ".join(_called(member.items[0]) for member in (ours, theirs))
    sides = [person_of(member) for member in (ours, theirs)]
    how = _along_path(ours, theirs) or _along_path(theirs, ours)
    if how or all(sides):
        how = f"Add the condition {how or ' = '.join(sides)}, which stands by itself, not within OR."
    else:
        how = (
            "Join them by the column of the privacy unit, or along a path: child = parent. It stands by itself, not "
            "within OR."
        )
    return SourceError(
        "S012", f"sql: rows of several people would meet, since {tables} are not joined by the person. {how}"
    )


def _along_path(child: Member, parent: Member) -> str:
    """Return the condition that joins two FROM items along a step of a path; '' if there is none."""
    for item in child.items:
        key, names = item.relation.pending, [column for column in item.relation.columns if column.owner]
        for other in parent.items if key is not None and names and not item.hidden else ():
            if (
                not other.hidden
                and key is not None
                and tuple(map(fold, other.relation.name)) == tuple(map(fold, key.table))
            ):
                return f"{item.alias}.{names[0].name} = {other.alias}.{key.column}"
    return ""


def person_of(member: Member) -> str:
    """Return the query's name for the column of the person in a FROM item; '' if it has none."""
    for item in member.items:
        name = item.alias or "".join(item.relation.name[-1:])
        for column in item.relation.columns if not item.hidden and name else ():
            if (item.id, column.sql) in member.owner:
                return f"{name}.{column.name}"
    return ""


def _called(item: Item) -> str:
    """Return the name of a FROM relation in messages."""
    name = item.alias or "".join(item.relation.name[-1:])
    return show(name) if name else "a subquery"
