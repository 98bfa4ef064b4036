"""Intervals of columns by draws of the known noise: which columns have them, and their SQL.

Interval arithmetic (`dpsql.contract.query.errors`) has no interval for ranks, and none for sums, shares and differences
over private keys. The law of the noise is public. So the text above the released numbers x runs over ``x - e`` as well,
for draws e of that law, and the interval follows from the order of the results. The true value is that of the same text
over the numbers without noise, for the groups that the answer shows.

**Claim.** Let f be a column of a row and mu the numbers without noise, ``x = mu + e0``. Let the set ``{f <= t}`` be a
half-space for every t. Of n draws, the k-th smallest and the k-th largest value of ``f(x - e)`` enclose ``f(mu)``,
except for a chance of ``2 k / (n + 1)`` at most.

*Proof.* For ``t = f(mu)`` there is a linear L that is 0 at mu, with ``f(y) <= t`` if and only if ``L(y) <= 0``. (With a
plateau at t, the half-space only becomes larger.) So ``f(x - e) <= t`` if and only if ``L'e >= L'e0``, for the linear
part L' of L. The lower end exceeds t only if fewer than k draws have ``f(x - e) <= t``: ``L'e0`` is among the k largest
of n + 1 independent numbers of one law, with a chance of ``k / (n + 1)`` at most. The upper end alike. The proof asks
nothing of the law, so it holds for every noise and for numbers whose noise is one vector.

Such columns are linear in the released numbers, quotients of two linear numbers if the divisor has one sign, and either
of these times and plus public numbers, or rounded. The half-space of a quotient holds where the divisor has its sign: a
quotient has no interval if the divisor has two signs among the draws, and the answer says how much epsilon it takes.
`Forms` lists them; any other column has no interval.

**Ranks, and rows that noise chooses.** A rank is no such column: near ties, ranks of draws are more spread than the
rank of the truth. All values that are ranked get intervals that hold at once: with the standard deviation s of each
row's draws, the largest ``abs(e) / s`` of all rows is below its quantile c among the draws, except for the chance that
it fails. If all values lie within ``x - c s`` and ``x + c s``, as many rows as lie wholly before a row are before it,
and at most as many as do not lie wholly behind it. The intervals hold for all rows, so LIMIT and QUALIFY may choose
among them. For numbers that are linear the chance is exact, but for s, which the draws tell.

**Privacy.** The draws follow from a hash of the released numbers (`dpsql.released.query`), so intervals are
post-processing of the release: they cost nothing, tell nothing more, and are the same at every replay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dpsql.contract.expression.kinds import NUMBERS
from dpsql.contract.query.errors import RISING, ColumnErrors, counts, draw_names, gathers, passes_on, window_terms
from dpsql.contract.query.nodes import Expr
from dpsql.contract.query.relations import CONSTANT, LINEAR, PUBLIC, QUOTIENT, RANK, Form, Splitting
from dpsql.contract.query.split import DRAWS, SPANS, DrawColumn, Draws, QueryAggregate, QueryKey
from dpsql.dataclass import dataclass
from dpsql.rendering import call, cast, coalesce, double, element, identifier, struct

_SUMS = frozenset(("sum", "avg", "mean"))
_RANKS = frozenset(("rank", "row_number"))
# Aggregates of a pair that are linear in the first argument if the second one is public.
_OF_PUBLIC = frozenset(("regr_slope", "regr_intercept", "covar_pop", "covar_samp"))
_CONSTANT = Form(CONSTANT)


@dataclass(frozen=True)
class Forms:
    """Reads the forms of columns.

    Attributes
    ----------
    errors : ColumnErrors
        Knows the numbers of the rows, and their noise.
    sql : callable
        Returns the SQL of an expression over the rows.
    """

    errors: ColumnErrors
    sql: Callable[[Expr], str]

    def of(self, expr: Expr) -> Form | None:
        """Return the form of a column; None if draws give no interval."""
        return self._rank(expr) if expr.what == "window" and expr.name in _RANKS else self._form(expr)

    def _rank(self, expr: Expr) -> Form | None:
        if expr.parts or expr.filter or len(expr.orders) != 1 or not all(map(self.errors.quiet, expr.partitions)):
            return None
        [order] = expr.orders
        ranked = self._form(order.expression)
        if ranked is None or ranked.kind not in (LINEAR, QUOTIENT):
            return None
        value = cast(self.sql(tried(order.expression)), "DOUBLE")
        among = struct({f"c{index}": self.sql(part) for index, part in enumerate(expr.partitions)} or {"c0": "0"})
        return Form(RANK, ranked.divisor, call("-", value) if order.direction == "DESC" else value, among)

    def _form(self, expr: Expr) -> Form | None:
        if self.errors.quiet(expr):
            return _CONSTANT
        if expr.what in ("item", "column"):
            return self.errors.form_of_leaf(expr)
        if expr.what == "subquery":
            return self._of_subquery(expr)
        if expr.what == "cast" and expr.name.partition("(")[0] in NUMBERS:
            inner = self._form(expr.parts[0])
            return inner if expr.name == "DOUBLE" else _stepped(inner)
        if (kept := _unless_null(expr)) is not None:
            return _stepped(self._form(kept))  # a draw may be NULL: then its row has no interval, and no sum counts it
        if expr.what == "window" and passes_on(expr):
            quiet = self.errors.around.stays and all(map(self.errors.quiet, window_terms(expr)))
            return _only(self._form(expr.parts[0]), LINEAR) if quiet else None
        if expr.what in ("call", "window") and (counts(expr) or gathers(expr) or expr.name in _OF_PUBLIC):
            return self._gathered(expr)
        return self._call(expr) if expr.what == "call" else None

    def _of_subquery(self, expr: Expr) -> Form | None:
        relation = self.errors.around.subquery(expr)
        [column, *_] = relation.columns
        if expr.name != "SCALAR" or relation.level == PUBLIC:
            return _CONSTANT if expr.name == "SCALAR" else None
        return _only(column.form, LINEAR) if relation.stays and not relation.chosen else None

    def _gathered(self, expr: Expr) -> Form | None:
        """Return the form of an aggregate over released rows, or of a window over them."""
        plain = not (expr.flag or expr.value or (expr.what == "call" and expr.orders))
        noisy = 0 if counts(expr) else 1
        quiet = all(map(self.errors.quiet, list(expr.inner)[noisy:]))
        if not (self.errors.around.stays and plain and quiet):
            return None
        if not noisy:
            return _CONSTANT
        is_linear = expr.name in _SUMS or expr.name in _OF_PUBLIC
        return _only(self._form(expr.parts[0]), LINEAR) if is_linear else None

    def _call(self, expr: Expr) -> Form | None:
        divisors = [_unless_null(part) or part for part in expr.parts[1:]] if expr.name == "/" else expr.parts[1:]
        parts = [self._form(part) for part in (*expr.parts[:1], *divisors)]
        forms = [part for part in parts if part is not None]
        noisy = [part for part in forms if part.kind != CONSTANT]
        if len(forms) < len(parts) or not parts:
            return None
        first, others = forms[0], forms[1:]
        if expr.name in RISING and all(part.what == "constant" for part in expr.parts[1:]):
            return _stepped(first)
        if expr.name == "-" and not others:
            return first
        if len(others) != 1 or expr.name not in ("+", "-", "*", "/"):
            return None
        if len(noisy) < 2 and (expr.name != "/" or others[0].kind == CONSTANT):
            return noisy[0] if noisy else _CONSTANT
        if expr.name in ("+", "-"):
            return first if first.kind == others[0].kind == LINEAR else None
        if expr.name == "/" and first.kind in (CONSTANT, LINEAR) and others[0].kind == LINEAR:
            return Form(QUOTIENT, cast(self.sql(tried(expr.parts[1])), "DOUBLE"))
        return None


def _unless_null(expr: Expr) -> Expr | None:
    """Return the value of nullif, also as a case, or None for any other expression."""
    if expr.what == "case" and len(expr.parts) == 3 and expr.parts[1] == Expr("constant", "NULL"):
        return expr.parts[2]
    return expr.parts[0] if (expr.what, expr.name, len(expr.parts)) == ("call", "nullif", 2) else None


def _stepped(form: Form | None) -> Form | None:
    """Return the form of a number that is rounded, or NULL in some draws."""
    return replace(form, kind=QUOTIENT) if form is not None and form.kind == LINEAR else form


def _only(form: Form | None, *kinds: str) -> Form | None:
    return form if form is not None and form.kind in (CONSTANT, *kinds) else None


def tried(expr: Expr) -> Expr:
    """Return an expression whose casts are NULL where they fail: a draw stops no statement."""
    out = expr.mapped(tried)
    return replace(out, flag=True) if out.what == "cast" else out


def hidden(form: Form | None, index: int) -> list[str]:
    """Return the SQL of the hidden columns of a column: its divisor, what it ranks, and among which rows."""
    parts = () if form is None else zip(draw_names(index), (form.divisor, form.order, form.among), strict=True)
    return [f"{sql} AS {identifier(name)}" for name, sql in parts if sql]


def binds(work: Splitting) -> bool:
    """Whether DuckDB binds the tables of a query's draws; if not, the query has none."""
    if work.draws is None:
        return True
    keys = {core.name: [key for _, key in core.keys] for core in work.cores}
    numbers = {core.name: core.aggregates for core in work.cores}
    tables = with_tables(stub_tables(work.draws, keys, numbers, intervals=True))
    return work.bound(f"(WITH {', '.join(tables)} SELECT * FROM {identifier(SPANS)})") is not None


def stub_tables(
    draws: Draws,
    keys: Mapping[str, Sequence[QueryKey]],
    numbers: Mapping[str, Sequence[QueryAggregate]],
    *,
    intervals: bool = False,
) -> dict[str, str]:
    """Return tables for binding, from keys and numbers by core: numbers without rows, then those of `draws_sql`.

    Without `intervals` the last table has none: the text of the draws is all that follows from the query.
    """
    stubs, cores = {}, {}
    for name in dict.fromkeys(core for core, _ in draws.numbers):
        columns = [*((key.column, key.type) for key in keys[name]), *((part.name, "DOUBLE") for part in numbers[name])]
        nulls = (f"{cast('NULL', kind)} AS {identifier(column)}" for column, kind in columns)
        listed = ", ".join([f"{cast('NULL', 'BIGINT')} AS draw", *nulls])
        stubs[numbers_name(name)] = f"SELECT {listed} WHERE false"
        cores[name] = [column for column, _ in columns]
    tables = draws_sql(draws, cores, 0.5)
    if intervals:
        return stubs | tables
    needed = f"CAST((SELECT {call('max', 'draw')} FROM {identifier(DRAWN)}) AS DOUBLE) AS needed"
    return {**stubs, DRAWN: tables[DRAWN], SPANS: f"SELECT * REPLACE ({needed}) FROM ({draws.spans})"}


def with_tables(tables: Mapping[str, str]) -> list[str]:
    """Return tables as parts of WITH, each of which runs once."""
    return [f"{identifier(name)} AS MATERIALIZED ({sql})" for name, sql in tables.items()]


# The table of the rows of the text by draw.
DRAWN = "__dp_drawn"
# The tables of a column whose intervals hold for all rows at once: of each row, and of its interval.
_CENTRES, _BANDS = "__dp_centres_{}", "__dp_bands_{}"
_NOTHING = "CAST(NULL AS DOUBLE)"


def numbers_name(core: str) -> str:
    """Return the table of a core's numbers by draw."""
    return f"{core}_draws"


def draws_sql(draws: Draws, cores: Mapping[str, Sequence[str]], confidence: float) -> dict[str, str]:
    """Return the tables of WITH by name, of which the last one has the intervals.

    Parameters
    ----------
    draws : Draws
    cores : mapping
        The columns of each core's numbers by draw, which are a table named by `numbers_name`.
    confidence : float
    """
    tables = [
        f"{identifier(core)} AS NOT MATERIALIZED (SELECT {', '.join(map(identifier, columns))} FROM "
        f"{identifier(numbers_name(core))} AS dpsql_numbers WHERE dpsql_numbers.draw = dpsql_draws.draw)"
        for core, columns in cores.items()
    ]
    numbered = f"(SELECT {call('unnest', call('range', str(DRAWS + 1)))} AS draw) AS dpsql_draws"
    lateral = f"(WITH {', '.join(tables)} SELECT * FROM ({draws.text}))"
    rows = f"SELECT dpsql_draws.draw AS draw, dpsql_rows.* FROM {numbered}"
    out, listed = {DRAWN: f"{rows}, LATERAL {lateral} AS dpsql_rows"}, []
    for position, column in enumerate(draws.columns):
        spans = _alone(position, column, confidence)
        if column.at_once:
            out |= _bands(position, column, confidence)
            spans = _ranks(position) if column.ranks else f"SELECT * FROM {identifier(_BANDS.format(position))}"
        pairs = call("list", struct({"key": "dpsql_key", "value": struct({"lower": "lower", "upper": "upper"})}))
        listed.append(f"(SELECT {call('map_from_entries', pairs)} FROM ({spans})) AS {identifier(f's{position}')}")
    listed.append(f"({_needed(draws)}) AS needed")
    return {**out, SPANS: f"SELECT {', '.join(listed)}"}


def _count(part: str) -> str:
    return f"{call('count_star')} FILTER (WHERE {part})"


def _if_all(condition: str) -> str:
    return call("bool_and", f"coalesce({condition}, false)")


def _is_sound(position: int, column: DrawColumn) -> str:
    """Return the condition that a group of draws is of one row, whose value and divisor's sign every draw has."""
    value, divisor = identifier(f"v{position}"), identifier(f"d{position}")
    parts = [
        f"{_count('draw = 0')} = 1",
        f"{call('count_star')} = {DRAWS + 1}",
        _if_all(call("isfinite", value)),
    ]
    if column.divided:
        parts.append(f"({_if_all(f'{divisor} > 0')} OR {_if_all(f'{divisor} < 0')})")
    return " AND ".join(parts)


def _ordered(value: str, *ranks: int) -> str:
    """Return the values at some places of the ordered draws; a share half a place before each finds them exactly."""
    shares = (double((rank - 0.5) / DRAWS) for rank in ranks)
    return call("quantile_disc", value, call("list_value", *shares))


def _alone(position: int, column: DrawColumn, confidence: float) -> str:
    """Return the query of intervals that hold for each row by itself."""
    rank = int((1.0 - confidence) / 2.0 * (DRAWS + 1) * (1.0 + 1e-9))
    if not rank:
        return f"SELECT dpsql_key, {_NOTHING} AS lower, {_NOTHING} AS upper FROM {identifier(DRAWN)} GROUP BY dpsql_key"
    ends = f"{_ordered(identifier(f'v{position}'), rank, DRAWS + 1 - rank)} FILTER (WHERE draw > 0)"
    rows = f"SELECT dpsql_key, {_is_sound(position, column)} AS sound, {ends} AS ends FROM {identifier(DRAWN)}"
    lower, upper = (f"CASE WHEN sound THEN {element('ends', at)} END" for at in (1, 2))
    return f"SELECT dpsql_key, {lower} AS lower, {upper} AS upper FROM ({rows} GROUP BY dpsql_key)"


def _bands(position: int, column: DrawColumn, confidence: float) -> dict[str, str]:
    """Return the tables of intervals that hold for all rows at once."""
    value, among = identifier(f"v{position}"), identifier(f"g{position}") if column.ranks else "NULL"
    sound, centres = _is_sound(position, column), identifier(_CENTRES.format(position))
    middle = f"{call('max', value)} FILTER (WHERE draw = 0)"
    spread = f"{call('stddev_pop', value)} FILTER (WHERE draw > 0)"
    rows = (
        f"SELECT dpsql_key, {call('any_value', among)} AS among, {_count('draw = 0')} AS amount, "
        f"CASE WHEN {sound} THEN {middle} END AS middle, CASE WHEN {sound} THEN {spread} END AS spread "
        f"FROM (SELECT * REPLACE (CASE WHEN {call('abs', value)} < 1e100 THEN {value} END AS {value}) "
        f"FROM {identifier(DRAWN)} AS dpsql_drawn) GROUP BY dpsql_key"
    )
    away = call("/", call("abs", call("-", f"numbers.{value}", "centre.middle")), "centre.spread")
    largest = (
        f"SELECT {call('max', away)} AS away FROM {identifier(DRAWN)} AS numbers JOIN {centres} AS centre "
        "ON numbers.dpsql_key IS NOT DISTINCT FROM centre.dpsql_key "
        "WHERE numbers.draw > 0 AND centre.spread > 0 GROUP BY numbers.draw"
    )
    rank = DRAWS + 1 - int((1.0 - confidence) * (DRAWS + 1) * (1.0 + 1e-9))
    within = element(_ordered("away", rank), 1) if rank <= DRAWS else _NOTHING
    reach = f"CASE WHEN spread > 0 THEN {call('*', 'spread', f'(SELECT {within} FROM ({largest}))')} ELSE spread END"
    ends = f"{call('-', 'middle', 'reach')} AS lower, {call('+', 'middle', 'reach')} AS upper"
    bands = f"SELECT dpsql_key, among, amount, {ends} FROM (SELECT *, {reach} AS reach FROM {centres} AS centre)"
    return {_CENTRES.format(position): rows, _BANDS.format(position): bands}


def _ranks(position: int) -> str:
    """Return the query of the intervals of ranks; a row whose number has no interval may be anywhere."""
    bands = identifier(_BANDS.format(position))
    others = "o.dpsql_key IS DISTINCT FROM r.dpsql_key"
    counted = (f"o.upper < r.lower AND {others}", f"coalesce(NOT (o.lower > r.upper), true) AND {others}")
    before = (coalesce(f"{call('sum', 'o.amount')} FILTER (WHERE {rows})", "0") for rows in counted)
    bounded = "r.lower IS NOT NULL AND r.upper IS NOT NULL"
    lower, upper = (f"CASE WHEN {bounded} THEN {cast(call('+', count, '1'), 'DOUBLE')} END" for count in before)
    return (
        f"SELECT r.dpsql_key, {lower} AS lower, {upper} AS upper FROM {bands} AS r JOIN {bands} AS o "
        "ON o.among IS NOT DISTINCT FROM r.among GROUP BY r.dpsql_key, r.lower, r.upper"
    )


def _needed(draws: Draws) -> str:
    """Return the query of how many times epsilon gives every divisor one sign; NULL if each has one."""
    parts = []
    for position, column in enumerate(draws.columns):
        if column.divided:
            divisor = identifier(f"d{position}")
            middle = f"{call('max', divisor)} FILTER (WHERE draw = 0)"
            ends = [call(name, divisor) for name in ("min", "max")]
            both = call("greatest", *(call("abs", call("-", end, middle)) for end in ends))
            parts.append(
                f"SELECT CASE WHEN {ends[0]} <= 0 AND {ends[1]} >= 0 THEN {call('/', both, call('abs', middle))} END "
                f"AS needed FROM {identifier(DRAWN)} GROUP BY dpsql_key"
            )
    if not parts:
        return "NULL::DOUBLE"
    return f"SELECT {call('max', 'needed')} FROM ({' UNION ALL '.join(parts)}) WHERE {call('isfinite', 'needed')}"
