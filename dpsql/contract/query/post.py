"""SQL over released and public tables, rewritten with full function names and quoted identifiers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dpsql.contract.expression.functions import POST, listed
from dpsql.contract.parameters import fold, show
from dpsql.contract.query.aggregates import aggregates_in
from dpsql.contract.query.errors import released
from dpsql.contract.query.intervals import number
from dpsql.contract.query.nodes import (
    Expr,
    Query,
    Select,
    Show,
    TableFunction,
    TableRef,
    Writer,
    about,
    default_name,
    require,
)
from dpsql.contract.query.relations import PUBLIC, ROWS, Env, QueryRelation, Scope, Splitting, UnboundError
from dpsql.contract.query.tree import is_catalog
from dpsql.errors import ParameterError, SourceError
from dpsql.rendering import call, identifier, text

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


# The labels of an ENUM may come from rows; a catalog does not name the owner.
_WITHOUT_LABELS = (
    call("regexp_replace", "data_type", text(r"ENUM\('(?:[^']|'')*'(?:, '(?:[^']|'')*')*\)"), text("ENUM"), text("g"))
    + " AS data_type"
)
_GENERATORS = frozenset(("range", "generate_series", "unnest", "repeat"))
# Catalog columns that are shown as NULL: the owner may have written their text from rows. Drivers ask for the columns.
_HIDDEN = frozenset(("column_default",))
_VIEWS: Mapping[str, Mapping[str, str]] = {
    "columns": {
        **dict.fromkeys(("table_catalog", "table_schema", "table_name", "column_name"), "VARCHAR"),
        "ordinal_position": "INTEGER",
        **dict.fromkeys(("column_default", "is_nullable", "data_type"), "VARCHAR"),
    },
    "tables": dict.fromkeys(("table_catalog", "table_schema", "table_name", "table_type"), "VARCHAR"),
    "schemata": dict.fromkeys(("catalog_name", "schema_name"), "VARCHAR"),
}
_FUNCTIONS: Mapping[str, Mapping[str, str]] = {
    "duckdb_tables": {
        **dict.fromkeys(("database_name", "schema_name", "table_name"), "VARCHAR"),
        **dict.fromkeys(("internal", "temporary"), "BOOLEAN"),
    },
    "duckdb_columns": {
        **dict.fromkeys(("database_name", "schema_name", "table_name", "column_name"), "VARCHAR"),
        "column_index": "INTEGER",
        "data_type": "VARCHAR",
        "is_nullable": "BOOLEAN",
    },
}


def is_empty(query: Query) -> bool:
    """Whether no row can pass: LIMIT 0, or a WHERE condition that is always false."""
    limit = query.modifiers.limit
    if limit is not None and number(limit) == 0:
        return True
    if not isinstance(query, Select) or query.where is None or not _is_false(query.where):
        return False
    # Without GROUP BY, aggregates of no rows are one row.
    expressions = [*query.items, *((query.having,) if query.having is not None else ())]
    return not any(map(aggregates_in, expressions)) or (bool(query.groups) and len(query.sets) <= 1)


def _is_false(expr: Expr) -> bool:
    if expr.what == "constant":
        return expr.name == "boolean" and expr.value == "false"
    if expr.what == "and":
        return any(map(_is_false, expr.parts))
    if expr.what == "compare" and expr.name == "=":
        left, right = map(number, expr.parts)
        return left is not None and right is not None and left != right
    return False


def free_table(work: Splitting, names: tuple[str, str, str]) -> QueryRelation | None:
    """Return the relation of a catalog view; None for any other name."""
    if not is_catalog(names):
        return None
    _, schema, name = map(fold, names)
    if schema == "information_schema":
        if name not in _VIEWS:
            raise ParameterError("P101", f"sql reads information_schema.{name}. Ask its columns, tables or schemata.")
        return _catalog_rows(work, f'"system"."information_schema".{identifier(name)}', _VIEWS[name])
    if name in _FUNCTIONS and schema in ("", "main"):
        return _catalog_rows(work, f'"system"."main".{identifier(name)}()', _FUNCTIONS[name])
    raise ParameterError("P101", f"sql reads {show(name)}. Ask information_schema.columns or SHOW TABLES.")


def _catalog_rows(work: Splitting, source: str, columns: Mapping[str, str]) -> QueryRelation:
    nulls = {name: f"NULL::{kind} AS {identifier(name)}" for name, kind in columns.items()}
    replacements = {"data_type": _WITHOUT_LABELS} | {name: nulls[name] for name in _HIDDEN.intersection(columns)}
    listed = ", ".join(replacements.get(name, identifier(name)) for name in columns)
    sql = f"(SELECT {listed} FROM {source})"
    work.without_rows[sql] = f"(SELECT {', '.join(nulls.values())} WHERE false)"
    return released(work, sql, (), PUBLIC)


def free_function(work: Splitting, source: TableFunction, env: Env) -> QueryRelation:
    """Return the rows that a table function generates from its arguments."""
    name = source.call.name
    if name in _FUNCTIONS:
        return _catalog_rows(work, f"system.main.{name}()", _FUNCTIONS[name])
    if name.startswith(("dp_", "dpsql_")):
        raise ParameterError("P019", f"sql calls {show(name)}. Ask one private query at a time, outside of sql.")
    if name not in _GENERATORS:
        raise ParameterError(
            "P104",
            f"sql reads the table function {show(name)}. Make a table or a view of it, and declare that with "
            "dp_protect or dp_public.",
        )
    if source.call.names:
        raise ParameterError("P101", f"sql names an argument of {name}. Write its arguments by their order.")
    writer = PostExpressions(work, env)
    sql = f"(SELECT * FROM system.main.{name}({', '.join(map(writer.sql, source.call.parts))}))"
    return released(work, sql, (), PUBLIC)


def free_show(work: Splitting, source: Show) -> QueryRelation:
    """Return the relation of SHOW or DESCRIBE: names and types."""
    if source.query is None:
        name = fold(source.name)
        if name not in ("tables", "databases", "schemas"):
            raise ParameterError("P101", f"sql: SHOW {name} is not read. Ask SHOW TABLES or DESCRIBE a table.")
        # Their columns do not depend on the tables.
        return released(work, f"(SELECT * FROM (SHOW {name.upper()}))", (), PUBLIC)
    inner = source.query
    plain = isinstance(inner, Select) and isinstance(inner.source, TableRef) and not inner.where
    if not plain or not isinstance(inner, Select) or not isinstance(inner.source, TableRef) or len(inner.items) != 1:
        raise ParameterError("P101", "sql: DESCRIBE takes the name of a table. Ask LIMIT 0 of a query for its columns.")
    table = work.catalogue.table(inner.source.names)
    if table is None:
        raise SourceError("S001", f"sql: table {show(inner.source.names[2])} cannot be found. Check its name.")
    path = ".".join(map(identifier, table.path))
    nulls = ", ".join(f"NULL::{column.type.sql} AS {identifier(column.name)}" for column in table.columns)
    replaced = ['NULL::VARCHAR AS "default"', "NULL::VARCHAR AS extra"]
    if table.texts:
        types = {column.name: column.type.sql for column in table.columns}
        kinds = " ".join(f"WHEN {text(name)} THEN {text(types[name])}" for name, _ in table.texts)
        replaced.append(f"CASE column_name {kinds} ELSE column_type END AS column_type")
    described = f"(SELECT * REPLACE ({', '.join(replaced)}) FROM (DESCRIBE {path}))"
    work.without_rows[described] = f"(SELECT * FROM (DESCRIBE SELECT {nulls}))"
    return released(work, described, (), PUBLIC)
