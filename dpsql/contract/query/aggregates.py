"""Translates the aggregates of SQL for a core, or refuses them with the line to write."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from fractions import Fraction

from dpsql.contract.expression.kinds import FLOATS, NUMBERS, TIMESTAMPS, Type
from dpsql.contract.parameters import fold, show
from dpsql.contract.query.intervals import NOWHERE, Limits, literal_number
from dpsql.contract.query.nodes import Expr, about
from dpsql.contract.query.relations import CoreDraft, Splitting, indicator
from dpsql.contract.query.spellings import by_collation
from dpsql.contract.query.split import QueryAggregate
from dpsql.contract.query.stages import Stage
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError

_MOMENTS = {
    **{name: name for name in ("sum", "avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop")},
    **{"mean": "avg", "variance": "var_samp", "stddev": "stddev_samp"},
}
_PAIRS = frozenset(
    (
        *("corr", "covar_pop", "covar_samp", "regr_slope", "regr_intercept", "regr_r2", "regr_sxx", "regr_syy"),
        "regr_sxy",
    )
)
_QUANTILES = {"quantile_cont": False, "quantile_disc": True, "quantile": True, "approx_quantile": False}
_COUNTS = frozenset(("count", "count_star", "count_if", "countif", "approx_count_distinct", "regr_count"))
_EXTREMES = frozenset(("min", "max"))
_EQUALS = frozenset(("min", "max", "any_value", "arbitrary", "first", "last", "mode"))
_ONE_VALUE = (
    "It returns a value of one row. Write SELECT {column}, count(*) ... GROUP BY {column} ORDER BY 2 DESC LIMIT 1, or "
    "of a number quantile_cont({column}, 0.5)"
)
_OTHERS = {
    **dict.fromkeys(
        (
            "mode",
            "first",
            "last",
            "any_value",
            "arbitrary",
            "arg_max",
            "arg_min",
            "argmax",
            "argmin",
            "max_by",
            "min_by",
        ),
        _ONE_VALUE,
    ),
    **dict.fromkeys(
        ("arg_max_null", "arg_min_null", "arg_max_nulls_last", "arg_min_nulls_last"),
        _ONE_VALUE,
    ),
    **dict.fromkeys(
        ("list", "array_agg", "string_agg", "group_concat", "listagg", "json_group_array", "json_group_object"),
        "It lists rows. Write SELECT {column}, count(*) ... GROUP BY {column}",
    ),
    **dict.fromkeys(
        ("histogram", "histogram_exact", "approx_top_k", "map"),
        "Write SELECT {column}, count(*) ... GROUP BY {column}, of a number GROUP BY floor({column} / 10) * 10",
    ),
    **dict.fromkeys(("bool_and", "bool_or", "bit_and", "bit_or", "bit_xor", "bitstring_agg"), "Ask count_if of it"),
    **dict.fromkeys(
        (
            *("skewness", "kurtosis", "kurtosis_pop", "entropy", "mad", "product", "sem", "geomean", "geometric_mean"),
            *("favg", "fsum", "sumkahan", "kahan_sum", "sum_no_overflow", "weighted_avg", "wavg", "regr_avgx_"),
        ),
        "Ask sums, averages or quantiles, and compute it from them",
    ),
}
# Of quantiles in place of min; in place of max, 1 less this. The release may choose a level nearer to the middle.
LEAST_LEVEL = Fraction(1, 1000)
_DAY, _EPOCH = 86_400, datetime.date(1970, 1, 1).toordinal()
# The seconds of the years 1 to 9999.
_SECONDS = (-62_135_596_800, 253_402_300_799)
AGGREGATES = (
    frozenset(_MOMENTS) | _PAIRS | frozenset(_QUANTILES) | _COUNTS | _EXTREMES | frozenset(_OTHERS)
    | {"median", "regr_avgx", "regr_avgy", "percentile_cont", "percentile_disc"}
)  # fmt: skip


def is_aggregate(expr: Expr) -> bool:
    """Whether an expression is an aggregate of rows."""
    return expr.what == "call" and expr.name in AGGREGATES


def aggregates_in(expr: Expr) -> list[Expr]:
    """Return the outermost aggregates in an expression, also in arguments of windows."""
    if is_aggregate(expr):
        return [expr]
    return [aggregate for part in expr.inner for aggregate in aggregates_in(part)]


def is_one_of_equals(expr: Expr) -> bool:
    """Whether an aggregate of equal values returns that value."""
    return expr.name in _EQUALS and len(expr.parts) == 1 and expr.filter is None


def refuse_nested(expr: Expr) -> None:
    """Raise if an aggregate contains another aggregate."""
    if any(aggregate for part in expr.inner for aggregate in aggregates_in(part)):
        raise ParameterError("P106", f"sql: an aggregate stands within {expr.name}. Put the inner one into a subquery.")


@dataclass
class CoreAggregates:
    """Writes the aggregates of one core.

    Attributes
    ----------
    work : Splitting
    stage : Stage
    core : CoreDraft
    """

    work: Splitting
    stage: Stage
    core: CoreDraft

    def column_of(self, expr: Expr) -> Expr:
        """Return the core's released column for an aggregate."""
        with about(expr):
            return self._placed(expr)

    def persons(self) -> Expr:
        """Return the core's released column for the number of persons, or of rows where a row is protected."""
        return self._add("rows" if self.core.unit is None else "units", None, Type("BIGINT"))

    def _placed(self, expr: Expr) -> Expr:
        refuse_nested(expr)
        name = expr.name
        if any(fold(part.alias).startswith("contribution_bounds") for part in expr.parts) or any(
            fold(label).startswith("contribution_bounds") for label in expr.names
        ):
            raise ParameterError(
                "P106",
                f"sql: {name} takes no contribution bounds, which are of what a person adds. Bound each value, "
                "lower := {x: 0} and upper := {x: 100} of the call, and state max_rows_contributed in OPTIONS.",
            )
        if expr.flag and name not in ("count", "approx_count_distinct"):
            raise ParameterError(
                "P106",
                f"sql: {name}(DISTINCT ...) is not answered. Ask count(DISTINCT ...), {name} without DISTINCT, or "
                f"it of each person: {name}(x) FROM (SELECT person, {name}(DISTINCT x) AS x FROM ... GROUP BY person).",
            )
        if name in _EXTREMES:
            return self._extreme(expr)
        if name in _OTHERS:
            column = self._column_name(expr.parts[0]) if expr.parts else "x"
            raise ParameterError(
                "P106", f"sql: {name} is not answered privately. {_OTHERS[name].format(column=column)}."
            )
        if name in _COUNTS:
            return self._count(expr)
        if name in _MOMENTS:
            return self._moment(_MOMENTS[name], expr, expr.parts[0])
        if name in ("regr_avgx", "regr_avgy"):
            y, x = expr.parts
            value, other = (x, y) if name == "regr_avgx" else (y, x)
            return self._moment("avg", expr, _when(Expr("present", parts=(other,)), value))
        if name in _PAIRS:
            return self._pair(expr)
        return self._quantiles(expr)

    def _extreme(self, expr: Expr) -> Expr:
        """Return the released quantile for min or max, if the owners allow it.

        The quantile of a date is that of its seconds, read as a date.

        Raises
        ------
        ParameterError
            P106: they do not, or the type has no quantiles. The text has the line to write.
        """
        value = expr.parts[0] if len(expr.parts) == 1 else Expr("constant", "NULL")
        kind = self.stage.write(value).type.kind
        is_dated = kind in ("DATE", "TIMESTAMP")
        if not self._allows_extremes or not (kind in NUMBERS or is_dated):
            raise self._refused_extreme(expr.name, value, kind)
        number = Expr("call", "epoch", (value,)) if is_dated else value
        bounds, origin = self._bounds(number)
        days = self.stage.keys.days(value) if is_dated and value.what == "item" else None
        if days is not None:
            first, last = (datetime.date.fromisoformat(day).toordinal() - _EPOCH for day in days)
            bounds, origin = Limits(Fraction(first * _DAY), Fraction((last + 1) * _DAY)), "the range of its dates"
        plain = Expr("call", "quantile_disc")
        level = LEAST_LEVEL if expr.name == "min" else 1 - LEAST_LEVEL
        released = self._add(
            "extreme", self._target(self._filtered(expr, number)), self._result(plain, (number,), str(float(level))),
            bounds, origin, share=level, discrete=True,
        )  # fmt: skip
        return _as_date(released, kind) if is_dated else released

    @property
    def _allows_extremes(self) -> bool:
        """Whether the owners of all protected tables of the query let quantiles answer min and max."""
        return all(table.extremes for table in self.work.catalogue.tables.values() if not table.public)

    def _refused_extreme(self, name: str, value: Expr, kind: str) -> ParameterError:
        """Return the refusal of min or max, with the line to write for its type."""
        share = "0.01" if name == "min" else "0.99"
        column = self._column_name(value)
        allow = ""
        if not self._allows_extremes:
            allow = (
                " Or let the owner allow private quantiles for min and max: dp_protect(..., extremes := 'quantiles', "
                "replace := true)."
            )
        instead = f"Write quantile_cont({column}, {share}), and state bounds with lower and upper."
        if kind in ("DATE", *TIMESTAMPS):
            instead = (
                f"Write quantile_cont(epoch({column}), {share}), in seconds, and state bounds with lower and upper."
            )
        elif kind not in NUMBERS:
            instead = f"Ask count(*) with GROUP BY {column}, and of the answer {name}({column}) in a query around it."
            allow = ""
        return ParameterError("P106", f"sql: {name} is one row's value, which no noise hides. {instead}{allow}")

    def _column_name(self, value: Expr) -> str:
        """Return a column's name in the query, qualified if the name is ambiguous."""
        if value.what != "item":
            return "x"
        item, name = self.stage.scope.item(str(value.value)), self.stage.scope.column(value).name
        alone = sum(source.column(name) is not None for source in self.stage.scope.items if not source.hidden) < 2
        return name if alone or not item.alias else f"{item.alias}.{name}"

    def _filtered(self, expr: Expr, value: Expr) -> Expr:
        return value if expr.filter is None else _when(expr.filter, value)

    def _count(self, expr: Expr) -> Expr:
        name, constant = expr.name, Expr("constant", "number", value="1")
        if name == "count_star" or (name == "count" and not expr.parts):
            if expr.filter is None:
                return self._add("rows", None, Type("BIGINT"))
            return self._add("values", self._target(self._filtered(expr, constant)), Type("BIGINT"))
        if name in ("count_if", "countif"):
            kind = Type("HUGEINT") if self._is_hugeint(expr) else Type("BIGINT")
            return self._add("values", self._target(_when(expr.parts[0], self._filtered(expr, constant))), kind)
        if name == "regr_count":
            both = Expr("and", parts=tuple(Expr("present", parts=(part,)) for part in expr.parts))
            return self._add(
                "values", self._target(_when(both, self._filtered(expr, constant))), self._result(expr, expr.parts)
            )
        if len(expr.parts) != 1:
            columns = ", ".join(map(self._column_name, expr.parts))
            raise ParameterError(
                "P106",
                "sql: count takes one column. Count each on its own, or count groups: SELECT count(*) FROM (SELECT "
                f"{columns} FROM ... GROUP BY {columns}).",
            )
        [value] = expr.parts
        if expr.flag or name == "approx_count_distinct":
            if self.stage.is_owner(value) and self.stage.member.pending is None:
                if expr.filter is None:
                    return self._add("units", None, Type("BIGINT"))
                return self._add("units", self._target(_when(expr.filter, constant)), Type("BIGINT"))
            if not self.stage.member.owned:
                column = self._column_name(value)
                raise ParameterError(
                    "P046",
                    f"sql: count(DISTINCT {column}) needs a privacy unit, since one value has many rows. Have the "
                    f"owner state one, or count groups: SELECT count(*) FROM (SELECT {column} FROM ... "
                    f"GROUP BY {column}).",
                )
            kind = self.stage.write(value).type
            value = by_collation(value, kind.collation) if self.work.revised(kind.collated) else value
            return self._add("items", self._target(self._filtered(expr, value)), Type("BIGINT"))
        present = self.stage.has_number(value) or self.work.revised(self.stage.present(value))
        if expr.filter is None and present:
            return self._add("rows", None, Type("BIGINT"))
        # A count includes NaN, a sum does not.
        if self.work.revised(self.stage.write(value).type.kind in FLOATS):
            value = _when(Expr("present", parts=(value,)), constant)
        return self._add("values", self._target(self._filtered(expr, value)), Type("BIGINT"))

    def _is_hugeint(self, expr: Expr) -> bool:
        return self._result(expr, expr.parts).kind == "HUGEINT"

    def _result(self, expr: Expr, parts: tuple[Expr, ...], *literals: str) -> Type:
        """Return the type of an aggregate, as DuckDB binds it over no rows."""
        arguments = [f"NULL::{self.stage.write(part).type.sql}" for part in parts]
        columns = self.work.catalogue.typing.columns(
            f"SELECT system.main.{expr.name}({', '.join([*arguments, *literals])}) AS x"
        )
        if columns is None:
            kinds = ", ".join(self.stage.write(part).type.shown for part in parts)
            raise ParameterError("P106", f"sql: {expr.name} does not take ({kinds}). Cast to a number.")
        return columns[0][1]

    def _number(self, expr: Expr, value: Expr) -> None:
        kind = self.stage.write(value).type
        if kind.kind not in NUMBERS and kind.kind not in ("BOOLEAN", "NULL"):
            column = self._column_name(value)
            number = f"TRY_CAST({column} AS DOUBLE)" if kind.kind == "VARCHAR" else f"epoch({column})"
            raise ParameterError(
                "P106",
                f"sql: {expr.name} of a {kind.shown} is not answered. Make it a number: {expr.name}({number}).",
            )

    def _moment(self, kind: str, expr: Expr, value: Expr) -> Expr:
        self._number(expr, value)
        bounds, origin = self._bounds(value)
        parts = (value,)
        return self._add(
            kind, self._target(self._filtered(expr, value)), self._result(expr, parts)
            if expr.name not in ("regr_avgx", "regr_avgy") else Type("DOUBLE"), bounds, origin,
            is_complete=expr.filter is None and self.stage.has_number(value),
        )  # fmt: skip

    def _pair(self, expr: Expr) -> Expr:
        for part in expr.parts:
            self._number(expr, part)
        first, second = (self._filtered(expr, part) for part in expr.parts)
        bounds, origin = self._bounds(expr.parts[0])
        other, _ = self._bounds(expr.parts[1])
        return self._add(
            expr.name, self._target(first), self._result(expr, expr.parts), bounds, origin, self._target(second),
            second=other,
        )  # fmt: skip

    def _quantiles(self, expr: Expr) -> Expr:
        name, parts = expr.name, expr.parts
        if expr.orders:
            if len(parts) != 1 or len(expr.orders) != 1 or expr.orders[0].direction == "DESC":
                raise ParameterError(
                    "P106", f"sql: {name} with this ORDER BY is not answered. Write quantile_cont(x, 0.5)."
                )
            parts = (expr.orders[0].expression, *parts)
        if name == "median":
            parts = (*parts, Expr("constant", "number", value="0.5"))
        if len(parts) < 2:
            raise ParameterError("P106", f"sql: {name} needs the share of rows below. Write {name}(x, 0.5).")
        value, shares = parts[0], parts[1]
        self._number(expr, value)
        if self.stage.write(value).type.kind == "BOOLEAN":
            raise ParameterError(
                "P106",
                f"sql: {name} of a BOOLEAN is not answered. Write count_if(x) / count(x), the share that is true.",
            )
        discrete = _QUANTILES.get(name, name == "percentile_disc")
        listed = shares.what == "call" and shares.name == "list_value"
        bounds, origin = self._bounds(value)
        target = self._target(self._filtered(expr, value))
        quantiles = []
        for part in shares.parts if listed else (shares,):
            share = literal_number(part)
            if share is None or not 0 <= share <= 1:
                percent = f" Write {name}(x, {show(share / 100)})." if share is not None and 0 < share <= 100 else ""
                raise ParameterError("P106", f"sql: {name} takes literals from 0 to 1. Write them out.{percent}")
            plain = Expr("call", name if name not in ("percentile_cont", "percentile_disc") else "quantile_cont")
            literals = () if name == "median" else (str(part.value),)
            kind = self._result(plain, (value,), *literals)
            quantiles.append(self._add("quantile", target, kind, bounds, origin, share=share, discrete=discrete))
        return Expr("call", "list_value", tuple(quantiles)) if listed else quantiles[0]

    def _bounds(self, value: Expr) -> tuple[Limits, str]:
        limits = self.stage.interval(value)
        position = self.stage.column_of(value)
        fallback = [side.get("") for side in (self.work.options.lower, self.work.options.upper)]
        if limits.lower is None or limits.upper is None:
            limits = Limits(
                limits.lower if limits.lower is not None else fallback[0],
                limits.upper if limits.upper is not None else fallback[1],
            )
        if limits.lower is None or limits.upper is None:
            return NOWHERE, "drawn"
        if limits.lower == limits.upper:  # a constant: sums need an interval with a width
            limits = Limits(min(limits.lower, Fraction(0)), max(limits.upper, Fraction(0)) or Fraction(1))
        origin = self.stage.scope.column(value).bounds_from if position is not None else ""
        return limits, origin or "interval arithmetic"

    def _target(self, value: Expr) -> str:
        """Return the column of the core's source that holds a value."""
        column = self.stage.write(value)
        if column.sql not in self.core.targets:
            self.core.targets[column.sql] = f"t{len(self.core.targets)}"
            self.core.types[self.core.targets[column.sql]] = column.type
        name, condition = self.core.targets[column.sql], indicator(value)
        if condition is not None and self._tells_texts_apart(condition.holds):
            self.core.indicators[name] = condition
        return name

    def _tells_texts_apart(self, condition: Expr) -> bool:
        """Return whether different strings are different values: as numbers, '1' and '01' are equal."""
        for node in condition.walk():
            texts = [part for part in node.parts if part.what == "constant" and part.name == "string"]
            if texts and node.what in ("compare", "in"):
                others = [part for part in node.parts if part.what != "constant"]
                if any(self.stage.write(part).type.kind != "VARCHAR" for part in others):
                    return False
        return True

    def _add(
        self,
        kind: str,
        column: str | None,
        result: Type,
        bounds: Limits = NOWHERE,
        origin: str = "",
        other: str | None = None,
        *,
        share: Fraction | None = None,
        discrete: bool = False,
        second: Limits = NOWHERE,
        is_complete: bool = False,
    ) -> Expr:
        draft = QueryAggregate(
            "", kind, column, other, result.sql, share, discrete, bounds.lower, bounds.upper, origin,
            *((second.lower, second.upper) if other is not None else (None, None)), is_complete=is_complete,
        )  # fmt: skip
        for aggregate in self.core.aggregates:
            if _without_name(aggregate) == draft:
                return Expr("item", aggregate.name, value=self.core.name)
        name = f"a{len(self.core.aggregates)}"
        self.core.types[name] = result
        self.core.aggregates.append(_with_name(draft, name))
        return Expr("item", name, value=self.core.name)


def _without_name(aggregate: QueryAggregate) -> QueryAggregate:
    return _with_name(aggregate, "")


def _with_name(aggregate: QueryAggregate, name: str) -> QueryAggregate:
    values: Mapping[str, object] = {**vars(aggregate), "name": name}
    make: Callable[..., QueryAggregate] = QueryAggregate
    return make(**values)


def _as_date(seconds: Expr, kind: str) -> Expr:
    """Return a date from its seconds since 1970; NULL outside of the years 1 to 9999."""
    first, last, million = (Expr("constant", "number", value=str(number)) for number in (*_SECONDS, 1_000_000))
    micros = Expr("cast", "BIGINT", (Expr("call", "*", (seconds, million)),))
    date = Expr("cast", kind, (Expr("call", "make_timestamp", (micros,)),))
    return _when(Expr("between", parts=(seconds, first, last)), date)


def _when(condition: Expr, then: Expr) -> Expr:
    return Expr("case", parts=(condition, then, Expr("constant", "NULL")))
