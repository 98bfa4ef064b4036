"""SQL over released and public tables, rewritten with full function names and quoted identifiers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsql.contract.expression.functions import POST, listed
from dpsql.contract.parameters import fold, show
from dpsql.contract.query.nodes import Expr, about, require
from dpsql.contract.query.relations import ROWS, QueryRelation, Scope
from dpsql.contract.query.work import Env, Splitting, UnboundError
from dpsql.contract.query.writer import Writer, default_name
from dpsql.errors import ParameterError, SourceError
from dpsql.rendering import call, identifier

# The functions that DuckDB calls without parentheses.
_CLOCK = {
    "current_date": "today",
    "current_timestamp": "get_current_timestamp",
    "current_time": "get_current_time",
    "localtimestamp": "current_localtimestamp",
    "localtime": "current_localtime",
}
_HIDDEN_NAMES = ("dpsql_", "dp_", "__dp")
# Stands for the first argument in the SQL of a call.
_PLACEHOLDER = "dpsql_held"


def refuse_name(name: str) -> None:
    """Raise if a query gives a name that dpsql reserves."""
    if fold(name).startswith(_HIDDEN_NAMES):
        raise ParameterError("P101", f"sql names {show(name)}, which dpsql uses itself. Choose another name.")


@dataclass
class PostExpressions(Writer):
    """Writes expressions over released and public rows.

    Attributes
    ----------
    work : Splitting
    env : Env
    scope : Scope or None
        The columns of FROM, if known.
    """

    work: Splitting
    env: Env
    scope: Scope | None = None
    inner: dict[int, QueryRelation] | None = None  # the subqueries already read, by address

    def column(self, expr: Expr, bound: frozenset[str]) -> str:
        """Return the SQL of a column of FROM or of an outer query, or of a parameter."""
        names = expr.names
        if fold(names[0]) in bound:
            return ".".join(map(identifier, names))
        if not self._is_in_from(names):
            around = self.env.outer(names) if self.env.outer is not None else None
            if around is not None:
                return around
            if len(names) == 1 and fold(names[0]) in _CLOCK and not self._aliased(names[0]):
                return call(_CLOCK[fold(names[0])])
        return ".".join(map(identifier, self._shortened(names)))

    def _is_in_from(self, names: tuple[str, ...]) -> bool:
        """Whether FROM has a column of this name; DuckDB chooses among several, as USING makes them."""
        try:
            return self.scope is not None and self.scope.resolved(names) is not None
        except SourceError:
            return True

    def _aliased(self, name: str) -> bool:
        return self.scope is not None and fold(name) in self.scope.aliases

    def _shortened(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return a column's name without database and schema: each table has an alias."""
        if self.scope is None:
            return names
        for count in (3, 2):
            if len(names) > count:
                for item in self.scope.items:
                    path = tuple(map(fold, item.relation.name[-count:]))
                    if path == tuple(map(fold, names[:count])):
                        return (item.alias, *names[count:])
        return names

    def name(self, expr: Expr) -> str:
        """Return the name of the function that an expression calls.

        Raises
        ------
        ParameterError
            P019, P101: a query may not call the function.
        """
        name = expr.name
        with about(expr):
            if name.startswith(_HIDDEN_NAMES):
                raise ParameterError(
                    "P019", f"sql calls {show(name)}. Ask one private query at a time, outside of sql."
                )
            function = listed(self.work.catalogue.typing.newer).get(name)
            if function is None:
                raise UnboundError(
                    "P101",
                    f"sql calls {show(name)}, which is none of DuckDB's own functions. Call it on the answer, "
                    "outside of sql.",
                )
            if POST not in function.places:
                raise ParameterError(
                    "P101",
                    f"sql calls {show(name)}, which a query may not. {function.reason} {function.instead}".rstrip(),
                )
        return super().name(expr)

    def shown(self, expr: Expr) -> str:
        """Return the name of a column; ``''`` if only DuckDB knows it."""
        return default_name(expr)

    def over(self, expr: Expr, sql: str | None) -> str:
        """Return the SQL of a call or window, with other SQL as its first argument unless `sql` is None."""
        if sql is None:
            return self.sql(expr)
        placeholder = Expr("column", names=(_PLACEHOLDER,))
        return self.sql(replace(expr, parts=(placeholder, *expr.parts[1:]))).replace(identifier(_PLACEHOLDER), sql, 1)

    def subquery_sql(self, expr: Expr, bound: frozenset[str]) -> str:
        """Return the SQL of a subquery over released and public rows."""
        relation = self.subquery(expr)
        return self.compared(expr, relation.sql, bound)

    def subquery(self, expr: Expr) -> QueryRelation:
        """Return the relation of a subquery over released and public rows."""
        relations = self.inner if self.inner is not None else {}
        if id(expr.query) not in relations:
            outer = self._outer
            with about(expr):
                relation = self.work.query(require(expr.query), replace(self.env, outer=outer))
                if relation.level == ROWS:
                    raise ParameterError(
                        "P102",
                        "sql: a subquery returns rows of people beside a public or released table. Aggregate them.",
                    )
            relations[id(expr.query)] = relation
        return relations[id(expr.query)]

    def _outer(self, names: tuple[str, ...]) -> str | None:
        """Return the SQL of a column for subqueries."""
        if self._is_in_from(names):
            return ".".join(map(identifier, self._shortened(names)))
        return self.env.outer(names) if self.env.outer is not None else None
