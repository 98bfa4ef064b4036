"""The text over released tables and public ones: DuckDB's SQL, written anew with every function and name in full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dpsql.contract.parameters import fold, show
from dpsql.contract.query.expressions import constant_sql
from dpsql.contract.query.nodes import Expr, Order, given
from dpsql.contract.query.relations import ROWS, PartOfQuery, Scope
from dpsql.contract.query.stages import frame_sql, order_words
from dpsql.contract.query.work import Env, Splitting
from dpsql.errors import ParameterError, SourceError
from dpsql.rendering import call, cast, coalesce, identifier, text

# What DuckDB knows as names without parentheses.
_CLOCK = {
    "current_date": "today",
    "current_timestamp": "get_current_timestamp",
    "current_time": "get_current_time",
    "localtimestamp": "current_localtimestamp",
    "localtime": "current_localtime",
}
_HIDDEN_NAMES = ("dpsql_", "dp_", "__dp")
_REFUSED = frozenset(
    (
        *("query", "query_table", "getvariable", "getenv", "nextval", "currval", "setval", "setseed", "pg_sleep"),
        *("sleep_ms", "write_log", "json_execute_serialized_sql", "current_setting", "json_serialize_plan"),
    )
)
# Stands in the text of a call for what it is of.
_HELD = "dpsql_held"
_INFIX = frozenset(("+", "-", "*", "/", "//", "%"))


def refuse_name(name: str) -> None:
    """Raise where a query gives a name that the statement uses itself."""
    if fold(name).startswith(_HIDDEN_NAMES):
        raise ParameterError("P101", f"sql names {show(name)}, which dpsql uses itself. Choose another name.")


@dataclass
class PostExpressions:
    """Writes expressions over released and public rows.

    Attributes
    ----------
    work : Splitting
    env : Env
    stub : bool
        Whether the text is over no rows.
    scope : Scope or None
        The columns of FROM, where they are known.
    """

    work: Splitting
    env: Env
    stub: bool = False
    scope: Scope | None = None
    inner: dict[int, PartOfQuery] | None = None  # the subqueries that were read already, by their address

    def sql(self, expr: Expr, bound: frozenset[str] = frozenset()) -> str:
        """Return the SQL of an expression."""
        writers: dict[str, Callable[[Expr], str]] = {
            "constant": constant_sql,
            "item": lambda one: f"{identifier(str(one.value))}.{identifier(one.name)}",
            "column": lambda one: self._column(one, bound),
            "star": lambda one: self._star(one, bound),
            "call": lambda one: self._call(one, bound),
            "window": lambda one: self._window(one, bound),
            "subquery": lambda one: self._subquery(one, bound),
            "lambda": lambda one: self._lambda(one, bound),
            "collate": lambda one: f"({self.sql(one.parts[0], bound)} COLLATE {_collation(one.name)})",
        }
        writer = writers.get(expr.what)
        if writer is not None:
            return writer(expr)
        return self._operator(expr, [self.sql(one, bound) for one in expr.parts])

    def _operator(self, expr: Expr, given: list[str]) -> str:
        what = expr.what
        if what in ("and", "or"):
            return f"({f' {what.upper()} '.join(given)})"
        if what == "compare":
            return f"({given[0]} {expr.name} {given[1]})"
        if what == "in":
            return f"({given[0]} IN ({', '.join(given[1:])}))"
        if what == "case":
            whens = "".join(f" WHEN {when} THEN {then}" for when, then in zip(given[:-1:2], given[1::2], strict=True))
            return f"(CASE{whens} ELSE {given[-1]} END)"
        if what == "cast":
            return f"TRY_CAST({given[0]} AS {expr.name})" if expr.flag else cast(given[0], expr.name)
        if what == "coalesce":
            return coalesce(*given)
        if what == "element":
            return call("array_extract", *given)
        if what == "field":
            return call("struct_extract", *given)
        if what == "slice":
            return call("array_slice", *given)
        if what == "grouping":
            return f"GROUPING({', '.join(given)})"
        forms = {"not": "(NOT {})", "null": "({} IS NULL)", "present": "({} IS NOT NULL)", "try": "TRY({})"}
        forms["between"] = "({} BETWEEN {} AND {})"
        if what not in forms:
            raise ParameterError("P101", f"sql: {what} is not read there. Write the query without it.")
        return forms[what].format(*given)

    def _column(self, expr: Expr, bound: frozenset[str]) -> str:
        names = expr.names
        if fold(names[0]) in bound:
            return ".".join(map(identifier, names))
        if not self._known(names):
            around = self.env.outer(names) if self.env.outer is not None else None
            if around is not None:
                return around
            if len(names) == 1 and fold(names[0]) in _CLOCK and not self._aliased(names[0]):
                return call(_CLOCK[fold(names[0])])
        return ".".join(map(identifier, self._shortened(names)))

    def _known(self, names: tuple[str, ...]) -> bool:
        """Whether a name is one of FROM; of several, as USING makes them, DuckDB chooses."""
        try:
            return self.scope is not None and self.scope.resolved(names) is not None
        except SourceError:
            return True

    def _aliased(self, name: str) -> bool:
        return self.scope is not None and fold(name) in self.scope.aliases

    def _shortened(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return a column's name without database and schema: tables stand under a name of their own."""
        if self.scope is None:
            return names
        for count in (3, 2):
            if len(names) > count:
                for item in self.scope.items:
                    whole = tuple(map(fold, item.relation.name[-count:]))
                    if whole == tuple(map(fold, names[:count])):
                        return (item.alias, *names[count:])
        return names

    def _star(self, expr: Expr, bound: frozenset[str]) -> str:
        out = f"{identifier(expr.name)}.*" if expr.name else "*"
        if expr.names:
            out += f" EXCLUDE ({', '.join(map(identifier, expr.names))})"
        if expr.parts:
            listed = (f"{self.sql(one.parts[0], bound)} AS {identifier(one.name)}" for one in expr.parts)
            out += f" REPLACE ({', '.join(listed)})"
        return out

    def _call(self, expr: Expr, bound: frozenset[str]) -> str:
        name = self._name(expr)
        if any(one.what == "star" for one in expr.parts):
            raise ParameterError("P101", "sql: COLUMNS within a function is not read. Write the columns out.")
        given = [self.sql(one, bound) for one in expr.parts]
        if expr.names:
            given = [
                f"{identifier(label)} := {one}" if label else one for label, one in zip(expr.names, given, strict=True)
            ]
        listed = ", ".join(given)
        if expr.flag:
            listed = f"DISTINCT {listed}"
        if expr.orders:
            listed += f" ORDER BY {self.orders(expr.orders, bound)}"
        out = f"{name}({listed})"
        if expr.filter is not None:
            out += f" FILTER (WHERE {self.sql(expr.filter, bound)})"
        return out

    def _name(self, expr: Expr) -> str:
        name = expr.name
        if name.startswith(_HIDDEN_NAMES):
            raise ParameterError("P019", f"sql calls {show(name)}. Ask one private query at a time, outside of sql.")
        if name in _REFUSED:
            raise ParameterError("P101", f"sql calls {show(name)}, which a query may not. Write the value itself.")
        return f"system.main.{name if name.isidentifier() else identifier(name)}"

    def _window(self, expr: Expr, bound: frozenset[str]) -> str:
        given = [self.sql(one, bound) for one in expr.parts]
        listed = ", ".join(given)
        listed = f"DISTINCT {listed}" if expr.flag else listed
        out = f"{self._name(expr)}({listed}{f' {expr.value}' if expr.value else ''})"
        if expr.filter is not None:
            out += f" FILTER (WHERE {self.sql(expr.filter, bound)})"
        over = []
        if expr.partitions:
            over.append(f"PARTITION BY {', '.join(self.sql(one, bound) for one in expr.partitions)}")
        if expr.orders:
            over.append(f"ORDER BY {self.orders(expr.orders, bound)}")
        frame = expr.frame
        if frame is not None and (frame.start, frame.end, frame.exclude) != (
            *("UNBOUNDED_PRECEDING", "CURRENT_ROW_RANGE"),
            "NO_OTHER",
        ):
            over.append(frame_sql(expr))
        return f"{out} OVER ({' '.join(over)})"

    def over(self, expr: Expr, sql: str | None) -> str:
        """Return the SQL of a call or window, with another SQL as its first argument unless that is None."""
        if sql is None:
            return self.sql(expr)
        held = Expr("column", names=(_HELD,))
        return self.sql(replace(expr, parts=(held, *expr.parts[1:]))).replace(identifier(_HELD), sql, 1)

    def _subquery(self, expr: Expr, bound: frozenset[str]) -> str:
        relation = self.subquery(expr)
        body = relation.stub if self.stub else relation.sql
        if expr.name == "EXISTS":
            return f"EXISTS {body}"
        if expr.name == "SCALAR":
            return body
        child = self.sql(expr.parts[0], bound)
        return f"({child} {expr.value} ANY {body})" if expr.value != "=" else f"({child} IN {body})"

    def subquery(self, expr: Expr) -> PartOfQuery:
        """Return the relation of a subquery over released and public rows."""
        known = self.inner if self.inner is not None else {}
        if id(expr.query) not in known:
            outer = self._outer
            relation = self.work.query(given(expr.query), replace(self.env, outer=outer))
            if relation.level == ROWS:
                raise ParameterError(
                    "P102", "sql: a subquery returns rows of people beside a public or released table. Aggregate them."
                )
            known[id(expr.query)] = relation
        return known[id(expr.query)]

    def _outer(self, names: tuple[str, ...]) -> str | None:
        """Return the SQL of a column for subqueries."""
        if self._known(names):
            return ".".join(map(identifier, self._shortened(names)))
        return self.env.outer(names) if self.env.outer is not None else None

    def _lambda(self, expr: Expr, bound: frozenset[str]) -> str:
        names = ", ".join(map(identifier, expr.names))
        return f"lambda {names}: {self.sql(expr.parts[0], bound | frozenset(map(fold, expr.names)))}"

    def orders(self, orders: tuple[Order, ...], bound: frozenset[str] = frozenset()) -> str:
        """Return the SQL of an ORDER BY's parts."""
        if len(orders) == 1 and orders[0].expression.what == "star":
            return f"ALL {order_words(orders[0])}".rstrip()
        return ", ".join(f"{self.sql(one.expression, bound)} {order_words(one)}".rstrip() for one in orders)


def _collation(name: str) -> str:
    return ".".join(map(identifier, name.split(".")))


def default_name(expr: Expr) -> str:
    """Return the name that DuckDB gives a column of the select list; ``''`` where it is not known."""
    if expr.alias:
        return expr.alias
    if expr.what == "column":
        return expr.names[-1]
    if expr.what == "call" and not (expr.flag or expr.filter or expr.orders) and all(
        one.what in ("column", "constant") for one in expr.parts
    ):  # fmt: skip
        given = ", ".join(text(str(one.value)) if one.name == "string" else default_name(one) for one in expr.parts)
        if expr.name in _INFIX and len(expr.parts) == 2:
            left, right = map(default_name, expr.parts)
            return f"({left} {expr.name} {right})"
        return f"{expr.name}({given})" if expr.name.isidentifier() else ""
    if expr.what == "constant":
        return constant_sql(expr)
    return ""
