"""Intervals of columns computed from private answers: interval arithmetic as SQL.

Every noisy number has its own interval. In a column of j numbers each interval fails with a j-th of the chance, so all
hold together with the requested confidence, and so does the computed interval. An unknown operation gives a NULL
interval and the verdict ``'not measured'``; a divisor that may be 0 gives a NULL value and interval and the verdict
``'undetermined'``.

Each number also has a standing (`dpsql.contract.covers`): whether it claims not to be 0, or to be narrowed to half of
the public range, and whether the claim holds. An expression that passes one number on, such as ``round(x + 1)``, keeps
its standing; an expression of several numbers has the worst standing, and claims not to be 0.

A query over released rows counts again: each column of each relation in FROM has its own numbers, since two rows of one
core are two numbers. So dpsql writes a relation with intervals only when it knows how many numbers the columns above
have, and writes an interval for each of these counts.

If no noise decides which released rows exist, an aggregate over them is made of the numbers of all groups of the cores
below. If each number lies in its interval, the sum, average, minimum and maximum of the lower ends and of the upper
ends enclose that of the exact numbers: none of these aggregates falls when an argument rises.

The module also binds relations over released and public tables without rows, and appends their error columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from dpsql.contract.covers import (
    BIASED,
    CLEAR,
    COUNTED,
    DOUBTED,
    LEFT_OUT,
    NARROWED,
    NOT_MEASURED,
    UNCLEAR,
    UNDETERMINED,
    UNDIVIDED,
)
from dpsql.contract.expression.kinds import FLOATS, INTEGERS, NOTHING, NUMBERS, Type
from dpsql.contract.query.nodes import Expr, require
from dpsql.contract.query.relations import (
    CONSTANT,
    LINEAR,
    PUBLIC,
    QUOTIENT,
    RANK,
    RELEASED,
    Column,
    CoreDraft,
    Form,
    Item,
    Noisy,
    QueryRelation,
    Scope,
    Splitting,
    UnboundError,
    check_written,
)
from dpsql.contract.query.split import ONE, SPANS, DrawColumn, Draws, NoisyNumbers, error_names
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError, SourceError
from dpsql.rendering import call, cast, identifier, struct, text

# The suffixes of a result column's error columns.
PARTS = ("error", "lower", "upper", "verdict")
_NULL = "CAST(NULL AS DOUBLE)"
# The standing of a number without noise.
PUBLIC_STANDING = cast(str(COUNTED), "DOUBLE")
# Functions that never fall when their argument rises, for all numbers.
RISING = frozenset(("round", "floor", "ceil", "ceiling", "trunc"))
# Calls that pass one number on if the other arguments have no noise.
_PASSING_CALLS = frozenset(("+", "-", "*", "nullif"))
# Windows that pass on the number of another row.
_PASSING = frozenset(("lag", "lead", "first_value", "last_value"))
# Aggregates that never fall when one of their arguments rises.
_GATHERING = frozenset(("sum", "avg", "mean", "min", "max"))
# Aggregates without noise if no noise decides which rows exist.
_COUNTING = frozenset(("count_star", "count"))
# Expressions that are NULL exactly where the exact value is NULL, if their inputs are.
_EVERYWHERE = frozenset(("constant", "item", "column", "cast", "call"))
_QUIET = _EVERYWHERE | {"compare", "and", "or", "not", "null", "present", "in", "between", "case", "coalesce"}
Ends = tuple[str, str]
# The forms of a core's numbers; an average is a quotient of two of them, and never beyond its bounds.
_FORMS = {**dict.fromkeys(("rows", "values", "units", "items", "sum"), LINEAR), "avg": QUOTIENT}


@dataclass(frozen=True)
class ErrorsAround:
    """The query around a column.

    Attributes
    ----------
    over : callable
        Returns the SQL of a call or window, with other SQL as its first argument unless that SQL is None.
    subquery : callable
        Returns the relation of a subquery.
    steady : bool
        Whether no noise decides which rows exist.
    stays : bool
        Whether no noise but that of private keys decides it.
    """

    over: Callable[[Expr, str | None], str]
    subquery: Callable[[Expr], QueryRelation]
    steady: bool = False
    stays: bool = False


@dataclass(frozen=True)
class ColumnErrors:
    """Writes the error, the interval and the verdict of a column over one core.

    Attributes
    ----------
    core : CoreDraft or None
    around : ErrorsAround
    numbers : NoisyNumbers
        The count of noisy numbers in the column.
    """

    core: CoreDraft | None
    around: ErrorsAround
    numbers: NoisyNumbers = ONE

    def columns(self, expr: Expr, sql: str) -> list[str]:
        """Return the SQL of error, lower end, upper end and verdict of an expression with SQL `sql`."""
        ends = self.ends(expr)
        if ends is None:
            return [self.error(expr), _NULL, _NULL, unmeasured_sql(sql)]
        return [self.error(expr), *ends, verdict_sql(sql, *ends, self.standing(expr))]

    def hidden(self, expr: Expr, index: int) -> list[str]:
        """Return the SQL of a column's hidden columns, named by `hidden_names` of the column's index."""
        parts = (self.error(expr), *require(self.ends(expr)), self.standing(expr))
        return hidden_sql(parts, index, self.numbers)

    def error(self, expr: Expr) -> str:
        """Return the SQL of the error of an unchanged number."""
        if expr.what == "window" and passes_on(expr):
            return self.around.over(expr, self.error(expr.parts[0]))
        return self._own(expr)[0] if self._is_number(expr) else _NULL

    def noisy_numbers(self, expr: Expr) -> NoisyNumbers | None:
        """Return the count of noisy numbers in a column; None if it has no computable interval."""
        if self.ends(expr) is None:
            return None
        seen: dict[object, NoisyNumbers] = {}
        self._count(expr, seen)
        return NoisyNumbers.total(seen.values())

    def quiet(self, expr: Expr) -> bool:
        """Whether an expression over these rows certainly has no noise."""
        return all(part.what in _QUIET and self._is_quiet(part) for part in expr.walk())

    def noisy(self, expr: Expr) -> Noisy:
        """Return the released numbers that an expression reads."""
        return frozenset(number for part in expr.walk() for number in self._read(part))

    # The differences between queries over one core and over released rows.

    def form_of_leaf(self, expr: Expr) -> Form | None:
        """Return the form of a number or of a column, see `dpsql.contract.query.draws`."""
        if not self._is_number(expr):
            return None
        kinds = {aggregate.name: aggregate.kind for aggregate in require(self.core).aggregates}
        kind = _FORMS.get(kinds[expr.name])
        return None if kind is None else Form(kind)

    def _is_number(self, expr: Expr) -> bool:
        return self.core is not None and expr.what == "item" and expr.value == self.core.name and expr.name[0] == "a"

    def _is_quiet(self, expr: Expr) -> bool:
        return expr.what != "column" and not self._is_number(expr)

    def _read(self, expr: Expr) -> Noisy:
        if self._is_number(expr):
            return frozenset(((require(self.core).name, expr.name),))
        return self.around.subquery(expr).columns[0].noisy if expr.what == "subquery" else frozenset()

    def _counted(self, expr: Expr, seen: dict[object, NoisyNumbers]) -> None:
        if self._is_number(expr):
            seen[expr.value, expr.name] = ONE

    def _own(self, expr: Expr) -> tuple[str, ...]:
        """Return the SQL of a number's error, ends and standing."""
        names = error_names(expr.name, self.numbers)
        return tuple(f"{identifier(require(self.core).name)}.{identifier(name)}" for name in names)

    def _leaf(self, expr: Expr) -> Ends | None:
        if expr.what != "item":
            return None
        if self._is_number(expr):
            _, lower, upper, _ = self._own(expr)
            return lower, upper
        core = require(self.core)
        if expr.value != core.name or core.types[expr.name].kind not in NUMBERS:
            return None
        value = cast(f"{identifier(core.name)}.{identifier(expr.name)}", "DOUBLE")
        return value, value

    # Standings.

    def standing(self, expr: Expr) -> str:
        """Return the SQL of the standing of an expression with known ends."""
        if expr.what in ("item", "column"):
            return self._standing_of_leaf(expr)
        if expr.what == "subquery":
            relation = self.around.subquery(expr)
            is_noisy = bool(relation.columns[0].noisy_numbers) and relation.level != PUBLIC
            return self._hidden_of_subquery(relation)[3] if is_noisy else PUBLIC_STANDING
        if gathers(expr):
            return _mixed([self.around.over(replace(expr, name="max"), self.standing(expr.parts[0]))])
        if expr.what == "window":
            return self.around.over(expr, self.standing(expr.parts[0])) if passes_on(expr) else PUBLIC_STANDING
        passing = expr.what in ("cast", "case", "coalesce") or expr.name in _PASSING_CALLS or expr.name in RISING
        read = expr.parts
        if expr.what == "case":  # the written form of nullif
            read = expr.parts[2:]
        elif expr.name == "nullif":
            read = expr.parts[:1]
        parts = [standing for standing in map(self.standing, read) if standing != PUBLIC_STANDING]
        if expr.name == "/" and len(expr.parts) == 2 and self.standing(expr.parts[1]) != PUBLIC_STANDING:
            lower, upper = require(self.ends(expr.parts[1]))
            parts.append(f"CASE WHEN {lower} <= 0 AND {upper} >= 0 THEN {UNDIVIDED} ELSE {PUBLIC_STANDING} END")
            passing = False
        if not parts or expr.name in _COUNTING:
            return PUBLIC_STANDING
        return parts[0] if passing and len(parts) == 1 else _mixed(parts)

    def _standing_of_leaf(self, expr: Expr) -> str:
        return self._own(expr)[3] if self._is_number(expr) else PUBLIC_STANDING

    # Numbers.

    def _count(self, expr: Expr, seen: dict[object, NoisyNumbers]) -> None:
        if gathers(expr):
            for core, number in self.noisy(expr.parts[0]):
                seen["groups", core, number] = NoisyNumbers.of_groups(core)
            return
        if expr.what == "window":  # the numbers of other rows, even of the same column
            seen[expr] = NoisyNumbers.total(self.noisy_numbers(part) or NoisyNumbers() for part in expr.parts)
            return
        if expr.what == "subquery":
            seen["subquery", id(expr.query)] = self.around.subquery(expr).columns[0].noisy_numbers or NoisyNumbers()
            return
        self._counted(expr, seen)
        for part in expr.parts:
            self._count(part, seen)

    # Ends.

    def ends(self, expr: Expr) -> Ends | None:
        """Return the SQL of the ends of an expression's interval, as doubles; None if unknown."""
        if expr.what == "constant" and expr.name == "number":
            value = cast(text(str(expr.value)), "DOUBLE")
            return value, value
        if expr.what in ("item", "column"):
            return self._leaf(expr)
        if expr.what == "subquery":
            return self._subquery(expr)
        if gathers(expr):
            return self._gathered(expr)
        if expr.what == "call" and expr.name in _COUNTING:
            is_exact = self.around.steady and all(map(self.quiet, expr.inner))
            value = cast(self.around.over(expr, None), "DOUBLE") if is_exact else _NULL
            return (value, value) if is_exact else None
        if expr.what == "window":
            return self._window(expr)
        if expr.what == "cast" and expr.name.partition("(")[0] in NUMBERS:
            return _cast_ends(self.ends(expr.parts[0]), expr.name)
        if expr.what == "case" and len(expr.parts) == 3 and expr.parts[1] == Expr("constant", "NULL"):
            return self.ends(expr.parts[2])  # the written form of nullif: if it is NULL, so is the column
        if expr.what == "coalesce":
            parts = [self.ends(part) for part in expr.parts]
            if None in parts:
                return None
            lower, upper = ([ends[side] for ends in parts if ends is not None] for side in (0, 1))
            return _all_of(call("least", *lower), lower), _all_of(call("greatest", *upper), upper)
        if expr.what == "call":
            return self._call(expr)
        return None

    def _subquery(self, expr: Expr) -> Ends | None:
        """Return the ends of a subquery of one value that no noise chooses."""
        relation = self.around.subquery(expr)
        [column, *_] = relation.columns
        public = relation.level == PUBLIC
        if expr.name != "SCALAR" or not (public or (relation.fixed and column.noisy_numbers is not None)):
            return None
        if not column.noisy_numbers:
            if column.type.kind not in NUMBERS:
                return None
            value = cast(relation.sql, "DOUBLE")
            return value, value
        _, lower, upper, _ = self._hidden_of_subquery(relation)
        return lower, upper

    def _hidden_of_subquery(self, relation: QueryRelation) -> list[str]:
        """Return the SQL of the hidden columns of a relation's only column."""
        source = require(relation.write_intervals)([self.numbers])
        names = hidden_names(0, self.numbers)
        return [f"(SELECT {identifier(name)} FROM {source} AS dpsql_told)" for name in names]

    def _gathered(self, expr: Expr) -> Ends | None:
        """Return the ends of an aggregate over all released rows, or over a window."""
        plain = not (expr.flag or expr.value or len(expr.parts) != 1 or (expr.what == "call" and expr.orders))
        if not (plain and self.around.steady and all(map(self.quiet, list(expr.inner)[1:]))):
            return None
        [value] = expr.parts
        if not all(part.what in _EVERYWHERE and part.name != "nullif" and not part.flag for part in value.walk()):
            return None
        ends = self.ends(value)
        if ends is None:
            return None
        unknown = self.around.over(replace(expr, name="count_if"), f"({ends[0]} IS NULL OR {ends[1]} IS NULL)")
        lower, upper = (f"CASE WHEN {unknown} = 0 THEN {self.around.over(expr, end)} END" for end in ends)
        return lower, upper

    def _window(self, expr: Expr) -> Ends | None:
        if not (self.around.steady and passes_on(expr) and all(map(self.quiet, window_terms(expr)))):
            return None
        ends = self.ends(expr.parts[0])
        return None if ends is None else (self.around.over(expr, ends[0]), self.around.over(expr, ends[1]))

    def _call(self, expr: Expr) -> Ends | None:
        parts = [self.ends(part) for part in expr.parts]
        first = parts[0] if parts else None
        if first is None:
            return None
        name, others = expr.name, parts[1:]
        if name == "nullif":
            return first  # if it is NULL, so is the column
        if name in RISING and all(part.what == "constant" for part in expr.parts[1:]):
            # Rounding moves a number by less than 1, or by less than a unit of its last digit.
            digits = [str(part.value) for part in expr.parts[1:]]
            return tuple(call(name, end, *(cast(text(digit), "INTEGER") for digit in digits)) for end in first)  # type: ignore[return-value]
        if name == "-" and not others:
            return call("-", first[1]), call("-", first[0])
        if name in ("greatest", "least"):
            lower, upper = ([ends[side] for ends in parts if ends is not None] for side in (0, 1))
            is_complete = len(lower) == len(parts)
            return (_all_of(call(name, *lower), lower), _all_of(call(name, *upper), upper)) if is_complete else None
        if name == "abs" and not others:
            greatest = call("greatest", call("abs", first[0]), call("abs", first[1]))
            inside = f"{first[0]} <= 0 AND {first[1]} >= 0"
            least = call("least", call("abs", first[0]), call("abs", first[1]))
            return f"CASE WHEN {inside} THEN CAST(0 AS DOUBLE) ELSE {least} END", greatest
        if len(others) != 1 or others[0] is None:
            return None
        second = others[0]
        if name == "+":
            return call("+", first[0], second[0]), call("+", first[1], second[1])
        if name == "-":
            return call("-", first[0], second[1]), call("-", first[1], second[0])
        if name in ("*", "/"):
            corners = [call(name, mine, theirs) for mine in first for theirs in second]
            both = [_all_of(call("least", *corners), corners), _all_of(call("greatest", *corners), corners)]
            if name == "/":
                away = f"({second[0]} > 0 OR {second[1]} < 0)"
                both = [f"CASE WHEN {away} THEN {end} END" for end in both]
            return both[0], both[1]
        return None


@dataclass(frozen=True)
class ReleasedErrors(ColumnErrors):
    """Writes the intervals of a query over released rows, from the intervals of the relations in its FROM.

    Attributes
    ----------
    scope : Scope
        The IDs of its items are their aliases in the SQL.
    """

    scope: Scope = field(default_factory=Scope)

    def error(self, expr: Expr) -> str:
        """Return the SQL of the error of an unchanged number."""
        if expr.what != "column":
            return super().error(expr)
        reference = self._reference(expr)
        if reference is None or not reference[2].noisy_numbers:
            return _NULL
        return reference[0].sql(hidden_names(reference[1], self.numbers)[0])

    def form_of_leaf(self, expr: Expr) -> Form | None:
        """Return the form of a column, whose divisor is a hidden column of its relation."""
        reference = self._reference(expr)
        if reference is None:
            return None
        item, index, column = reference
        if column.form is None or column.form.kind == RANK:
            return None
        divisor = item.sql(draw_names(index)[0]) if column.form.divisor else ""
        return Form(column.form.kind, divisor)

    def _reference(self, expr: Expr) -> tuple[Item, int, Column] | None:
        return released_column(expr, self.scope) if expr.what == "column" else None

    def _is_quiet(self, expr: Expr) -> bool:
        reference = self._reference(expr)
        return expr.what != "item" and (expr.what != "column" or (reference is not None and not reference[2].noisy))

    def _read(self, expr: Expr) -> Noisy:
        reference = self._reference(expr)
        return super()._read(expr) if reference is None else reference[2].noisy

    def _counted(self, expr: Expr, seen: dict[object, NoisyNumbers]) -> None:
        reference = self._reference(expr)
        if reference is not None:
            seen[reference[0].id, reference[1]] = reference[2].noisy_numbers or NoisyNumbers()

    def _leaf(self, expr: Expr) -> Ends | None:
        reference = self._reference(expr)
        if reference is None:
            return None
        item, index, column = reference
        if item.relation.level != PUBLIC and column.noisy_numbers is None:
            return None
        if column.noisy_numbers:
            _, lower, upper, _ = (item.sql(name) for name in hidden_names(index, self.numbers))
            return lower, upper
        if column.type.kind not in NUMBERS:
            return None
        value = cast(item.sql(column.sql), "DOUBLE")
        return value, value

    def _standing_of_leaf(self, expr: Expr) -> str:
        reference = self._reference(expr)
        if reference is None or not reference[2].noisy_numbers:
            return PUBLIC_STANDING
        return reference[0].sql(hidden_names(reference[1], self.numbers)[3])


def counts(expr: Expr) -> bool:
    """Whether an expression counts rows or values."""
    return expr.what in ("call", "window") and expr.name in _COUNTING


def gathers(expr: Expr) -> bool:
    """Whether an expression is an aggregate over rows or a window."""
    return expr.what in ("call", "window") and expr.name in _GATHERING


def passes_on(expr: Expr) -> bool:
    """Whether a window passes on another row's value, NULLs included."""
    plain = not (expr.flag or expr.filter or expr.value)
    return expr.name in _PASSING and plain and 1 <= len(expr.parts) <= 2 and expr.parts[1:] == tuple(
        part for part in expr.parts[1:] if part.what == "constant"
    )  # fmt: skip


def window_terms(expr: Expr) -> list[Expr]:
    """Return the expressions that decide which row a window reads."""
    return [*expr.partitions, *(order.expression for order in expr.orders)]


def released_column(expr: Expr, scope: Scope) -> tuple[Item, int, Column] | None:
    """Return the item, the index and the column of a name; None if they are uncertain."""
    try:
        item_expr = scope.resolved(expr.names)
    except SourceError:
        return None
    if item_expr is None or item_expr.what != "item":
        return None
    item = scope.item(str(item_expr.value))
    return next(
        ((item, index, column) for index, column in enumerate(item.relation.columns) if column.sql == item_expr.name),
        None,
    )


def hidden_names(index: int, numbers: NoisyNumbers) -> tuple[str, str, str, str]:
    """Return the hidden names of a column's error, ends and standing, by the column's index and count of numbers."""
    before = f"dpsql_{index}_{numbers.tag}"
    return f"{before}_error", f"{before}_lower", f"{before}_upper", f"{before}_standing"


def hidden_sql(sql: Sequence[str], index: int, numbers: NoisyNumbers) -> list[str]:
    """Return the SQL of a column's error, ends and standing, with their hidden names."""
    return [f"{part} AS {identifier(name)}" for part, name in zip(sql, hidden_names(index, numbers), strict=True)]


def verdict_sql(sql: str, lower: str, upper: str, standing: str) -> str:
    """Return the SQL of a column's verdict, from its interval (one end may be open) and its standing."""
    words = (
        (f"{sql} IS NULL OR {standing} = {UNDIVIDED}", UNDETERMINED),
        (f"{standing} = {LEFT_OUT}", BIASED),
        (f"{lower} IS NULL AND {upper} IS NULL", NOT_MEASURED),
        (f"{standing} = {DOUBTED}", UNCLEAR),
        (f"{standing} = {NARROWED} OR {lower} > 0 OR {upper} < 0", CLEAR),
    )
    cases = " ".join(f"WHEN {condition} THEN {text(word)}" for condition, word in words)
    return f"CASE {cases} ELSE {text(UNCLEAR)} END"


def divided_sql(sql: str, standing: str) -> str:
    """Return the SQL of a column with a standing: NULL where a divisor may be 0."""
    return f"CASE WHEN {standing} = {UNDIVIDED} THEN NULL ELSE {sql} END"


def unmeasured_sql(sql: str) -> str:
    """Return the SQL of the verdict of a column with unknown error."""
    return f"CASE WHEN {sql} IS NULL THEN {text(UNDETERMINED)} ELSE {text(NOT_MEASURED)} END"


def _mixed(standings: Sequence[str]) -> str:
    """Return the SQL of the standing of several numbers together: the worst, but claiming not to be 0."""
    worst = standings[0] if len(standings) == 1 else call("greatest", *standings)
    return f"CASE WHEN {worst} = {NARROWED} THEN {PUBLIC_STANDING} ELSE {worst} END"


def _cast_ends(ends: Ends | None, kind: str) -> Ends | None:
    """Return the ends of a cast to a numeric type, widened by the rounding of integers and decimals."""
    name, _, sizes = kind.partition("(")
    if ends is None or name in FLOATS:
        return ends
    if name in INTEGERS:
        return call("floor", ends[0]), call("ceil", ends[1])
    digits = int(sizes.rstrip(")").rpartition(",")[2] or 3) if sizes else 3
    last = cast(text(f"1e-{digits}"), "DOUBLE")
    return call("-", ends[0], last), call("+", ends[1], last)


def _all_of(sql: str, parts: list[str]) -> str:
    """Return an expression that is NULL if a part is NULL; least and greatest skip NULLs."""
    return f"CASE WHEN {' AND '.join(f'{part} IS NOT NULL' for part in parts)} THEN {sql} END"


def error_columns(names: list[str]) -> list[tuple[str, ...]]:
    """Return the names of each column's error columns, with suffix `_1` and so on if a name exists."""
    all_names = {name.casefold() for name in names}
    out = []
    for name in names:
        columns = []
        for part in PARTS:
            base, number = f"{name}_{part}", 0
            while (base if not number else f"{base}_{number}").casefold() in all_names:
                number += 1
            columns.append(base if not number else f"{base}_{number}")
            all_names.add(columns[-1].casefold())
        out.append(tuple(columns))
    return out


def released(
    work: Splitting, sql: str, noisy: Sequence[Noisy], level: str = RELEASED, *, within: bool = False
) -> QueryRelation:
    """Return the relation of SQL over released and public tables.

    A subquery `within` an expression may read columns of the outer query, and then does not bind alone.
    """
    check_written(sql)
    types = work.bound(sql)
    if types is None and within:
        types = (("", Type(NOTHING)),)
    if types is None:
        raise UnboundError(
            "P101", "sql: a part over released or public tables does not fit the types there. Check it without noise."
        )
    every: Noisy = frozenset().union(*noisy) if noisy else frozenset()
    columns = tuple(
        Column(name, name, kind, noisy=noisy[index] if len(noisy) == len(types) else every)
        for index, (name, kind) in enumerate(types)
    )
    return QueryRelation(level, columns, sql)


def draw_names(index: int) -> tuple[str, str, str]:
    """Return the hidden names of a column's divisor, of what it ranks and of the rows that it ranks."""
    return f"dpsql_{index}_divisor", f"dpsql_{index}_order", f"dpsql_{index}_among"


def with_errors(work: Splitting, relation: QueryRelation, columns: int, *, draws: bool = True) -> QueryRelation:
    """Return a relation with its noisy columns' errors after the columns.

    A relation with more than `columns` columns already has them. Without `draws` no interval is one by draws.
    """
    noisy = [column.noisy for column in relation.columns]
    if len(relation.columns) > columns or not any(noisy):
        return relation
    none = NoisyNumbers()
    counts = [
        column.noisy_numbers or none if relation.write_intervals is not None else none for column in relation.columns
    ]
    work.draws, drawings = _drawings(work, relation, counts) if draws else (None, {})
    tries: list[tuple[Sequence[NoisyNumbers], Mapping[int, Drawing]]] = [(counts, drawings)] if drawings else []
    tries += [(counts, {})] if any(counts) else []
    for some_counts, some_drawings in tries:
        try:
            return _with_ends(work, relation, some_counts, some_drawings)
        except ParameterError as error:  # the SQL of the intervals does not bind: write none
            if not isinstance(error, UnboundError) and error.code != "DPSQL-P100":
                raise
            work.draws = None
    return _with_ends(work, relation, [none] * len(counts), {})


@dataclass(frozen=True)
class Drawing:
    """The SQL of a column with an interval by draws: the struct of both ends, and its standing."""

    span: str
    standing: str


def _drawings(
    work: Splitting, relation: QueryRelation, counts: Sequence[NoisyNumbers]
) -> tuple[Draws | None, dict[int, Drawing]]:
    """Return the columns that have no other interval, and have one by draws: together, and each by its index."""
    if relation.write_draws is None or not relation.stays:
        return None, {}
    forms = {
        index: column.form
        for index, column in enumerate(relation.columns)
        if column.form is not None and column.form.kind != CONSTANT and column.noisy and not counts[index]
    }
    if not forms:
        return None, {}
    quiet = {f"c{index}": column for index, column in enumerate(relation.columns) if not column.noisy}
    key = struct({name: f"dpsql_told.{identifier(column.sql)}" for name, column in quiet.items()} or {"c0": "0"})
    kinds = [f"{name} {column.type.sql}" for name, column in quiet.items()] or ["c0 INTEGER"]
    listed, columns, drawings = [f"{key} AS dpsql_key"], [], {}
    for position, (index, form) in enumerate(forms.items()):
        column = relation.columns[index]
        divisor, order, among = (f"dpsql_told.{identifier(name)}" for name in draw_names(index))
        is_rank = form.kind == RANK
        value = order if is_rank else cast(f"dpsql_told.{identifier(column.sql)}", "DOUBLE")
        listed.append(f"{value} AS {identifier(f'v{position}')}")
        listed += [f"{divisor} AS {identifier(f'd{position}')}"] if form.divisor else []
        listed += [f"{among} AS {identifier(f'g{position}')}"] if is_rank else []
        columns.append(DrawColumn(is_rank, bool(form.divisor), is_rank or relation.chosen))
        spans = f"(SELECT {identifier(f's{position}')} FROM {identifier(SPANS)})"
        span = call("list_extract", call("map_extract", spans, key), "1")
        drawings[index] = Drawing(span, _standing_of_drawn(work, column.noisy, index if is_rank else None))
    numbers = sorted(frozenset().union(*(relation.columns[index].noisy for index in forms)))
    text_of_draws = f"SELECT {', '.join(listed)} FROM {relation.write_draws()} AS dpsql_told"
    return Draws(text_of_draws, tuple(columns), tuple(numbers), f"STRUCT({', '.join(kinds)})"), drawings


def _standing_of_drawn(work: Splitting, noisy: Noisy, rank: int | None) -> str:
    """Return the SQL of a drawings column's standing: limits left out too much of any of its numbers, in any group.

    The claim of a rank, whose column is given, is that it is the only one in its interval.
    """
    left_out = []
    for core, name in sorted(noisy):
        work.intervals[core, name, ONE] = None
        standing = identifier(error_names(name, ONE)[3])
        left_out.append(f"(SELECT {call('count_star')} FROM {identifier(core)} WHERE {standing} = {LEFT_OUT}) > 0")
    claim = PUBLIC_STANDING
    if rank is not None:
        claim = f"CASE WHEN {_end(rank, 'lower')} = {_end(rank, 'upper')} THEN {NARROWED} ELSE {DOUBTED} END"
    return f"CASE WHEN {' OR '.join(left_out)} THEN {LEFT_OUT} ELSE {claim} END"


def _end(index: int, name: str) -> str:
    """Return an end of the interval by draws of a column."""
    return call("struct_extract", f"dpsql_told.{identifier(f'dpsql_{index}_span')}", text(name))


def _with_ends(
    work: Splitting, relation: QueryRelation, counts: Sequence[NoisyNumbers], drawings: Mapping[int, Drawing]
) -> QueryRelation:
    """Return a relation with the errors of its noisy columns, from each column's count of numbers, or by draws."""
    noisy = [column.noisy for column in relation.columns]
    source = relation.sql
    if relation.write_intervals is not None and any(counts):
        source = relation.write_intervals(sorted({count for count in counts if count}))
    columns = [f"dpsql_told.{identifier(column.sql)}" for column in relation.columns]
    values, listed = list(columns), []
    for index, names in enumerate(error_columns([column.name for column in relation.columns])):
        if not noisy[index]:
            continue
        ends = ["CAST(NULL AS DOUBLE)"] * 3
        verdict = unmeasured_sql(columns[index])
        if counts[index]:
            ends = [f"dpsql_told.{identifier(name)}" for name in hidden_names(index, counts[index])]
            standing = ends.pop()
            verdict = verdict_sql(columns[index], lower=ends[1], upper=ends[2], standing=standing)
            values[index] = f"{divided_sql(columns[index], standing)} AS {identifier(relation.columns[index].sql)}"
        elif index in drawings:
            value = cast(columns[index], "DOUBLE")
            ends[1:] = [
                f"CASE WHEN {columns[index]} IS NOT NULL AND {end} IS NOT NULL THEN {call(name, value, end)} END"
                for name, end in (("least", _end(index, "lower")), ("greatest", _end(index, "upper")))
            ]
            verdict = verdict_sql(columns[index], lower=ends[1], upper=ends[2], standing=drawings[index].standing)
        listed += [f"{sql} AS {identifier(name)}" for sql, name in zip((*ends, verdict), names, strict=True)]
    if drawings:
        spans = [f"{column.span} AS {identifier(f'dpsql_{index}_span')}" for index, column in drawings.items()]
        source = f"(SELECT *, {', '.join(spans)} FROM {source} AS dpsql_told)"
    selected = ", ".join([*(values if any(counts) or drawings else ["*"]), *listed])
    sql = f"(SELECT {selected} FROM {source} AS dpsql_told)"
    return released(work, sql, [*noisy, *[frozenset[tuple[str, str]]()] * len(listed)], relation.level)
