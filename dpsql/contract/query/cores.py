"""A SELECT that aggregates rows of people: its core, and SQL over released and public tables.

A *free* query is one that no row can pass, or reads catalog views on columns and types, which an allow list names.

SQL over released and public tables is rewritten with full function names and quoted identifiers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce

from dpsql.contract.expression.functions import POST, listed
from dpsql.contract.expression.kinds import INTEGERS, ZONED_TIMESTAMP, Type
from dpsql.contract.parameters import fold, show
from dpsql.contract.query.aggregates import CoreAggregates, aggregates_in, is_one_of_equals
from dpsql.contract.query.draws import Forms, hidden, tried
from dpsql.contract.query.errors import PARTS, ColumnErrors, ErrorsAround, divided_sql, error_columns, released
from dpsql.contract.query.intervals import literal_number
from dpsql.contract.query.keys import WHOLE_NUMBERS
from dpsql.contract.query.nodes import (
    Expr,
    Modifiers,
    Order,
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
from dpsql.contract.query.relations import (
    DATE,
    PUBLIC,
    ROWS,
    UNIT,
    CoreDraft,
    Env,
    KeyValues,
    Noisy,
    QueryRelation,
    Scope,
    Splitting,
    UnboundError,
)
from dpsql.contract.query.spellings import functions_of
from dpsql.contract.query.split import NoisyNumbers, QueryCore, QueryKey, error_names
from dpsql.contract.query.stages import Stage, replaced
from dpsql.contract.query.tree import is_catalog
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError, SourceError
from dpsql.rendering import call, cast, identifier, struct, text

# The functions that DuckDB calls without parentheses.
_CLOCK = {
    "current_date": "today",
    "current_timestamp": "get_current_timestamp",
    "current_time": "get_current_time",
    "localtimestamp": "current_localtimestamp",
    "localtime": "current_localtime",
}
_HIDDEN_NAMES = ("dpsql_", "dp_", "__dp")
# Counts that are above 0 only in groups with rows, the best first; and what shares one draw of noise with them.
_COUNTS_OF_ROWS = ("rows", "units", "values", "items")
_IN_ONE_VECTOR = frozenset(("sum", "avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop"))
# Stands for the first argument in the SQL of a call.
_PLACEHOLDER = "dpsql_held"
_NOTHING = "CAST(NULL AS DOUBLE)"


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
            if len(names) > 1 or not self._aliased(names[0]):
                self._refuse_unseen(names[-1])
        return ".".join(map(identifier, self._shortened(names)))

    def _refuse_unseen(self, name: str) -> None:
        """Raise if a name is a column of a catalog that is not shown."""
        items = [] if self.scope is None else self.scope.items
        if any(fold(column.name) == fold(name) for item in items for column in item.relation.unseen):
            raise ParameterError("P101", f"sql reads {show(name)}, which rows may have made. It is NULL in SELECT *.")

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
# Drivers ask for it by name; it is NULL.
_EMPTY = frozenset(("column_default",))
# The columns of catalogs that are shown: names and types. The owner may have written other texts from rows.
_VIEWS: Mapping[str, frozenset[str]] = {
    "columns": frozenset(
        ("table_catalog", "table_schema", "table_name", "column_name", "ordinal_position", "is_nullable", "data_type")
    ),
    "tables": frozenset(("table_catalog", "table_schema", "table_name", "table_type")),
    "schemata": frozenset(("catalog_name", "schema_name")),
}
_FUNCTIONS: Mapping[str, frozenset[str]] = {
    "duckdb_tables": frozenset(("database_name", "schema_name", "table_name", "internal", "temporary")),
    "duckdb_columns": frozenset(
        ("database_name", "schema_name", "table_name", "column_name", "column_index", "data_type", "is_nullable")
    ),
}


def is_empty(query: Query) -> bool:
    """Whether no row can pass: LIMIT 0, or a WHERE condition that is always false."""
    limit = query.modifiers.limit
    if limit is not None and literal_number(limit) == 0:
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
        left, right = map(literal_number, expr.parts)
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


def _catalog_rows(work: Splitting, source: str, shown: frozenset[str]) -> QueryRelation:
    """Return a catalog's rows: its columns in order, as DuckDB has them, and NULL in all that are not `shown`."""
    described = work.catalogue.typing.columns(f"SELECT * FROM {source}")
    nulls = {name: f"NULL::{kind.sql} AS {identifier(name)}" for name, kind in require(described)}
    listed = [identifier(name) if name in shown else null for name, null in nulls.items()]
    listed = [_WITHOUT_LABELS if item == identifier("data_type") else item for item in listed]
    sql = f"(SELECT {', '.join(listed)} FROM {source})"
    work.without_rows[sql] = f"(SELECT {', '.join(nulls.values())} WHERE false)"
    relation = released(work, sql, (), PUBLIC)
    columns = [column for column in relation.columns if column.name in shown or column.name in _EMPTY]
    return replace(
        relation,
        columns=tuple(columns),
        unseen=tuple(column for column in relation.columns if column not in columns),
    )


def free_function(work: Splitting, source: TableFunction, env: Env) -> QueryRelation:
    """Return the rows that a table function generates from its arguments."""
    name = source.call.name
    if name in _FUNCTIONS:
        return _catalog_rows(work, f'"system"."main".{identifier(name)}()', _FUNCTIONS[name])
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


# The alias of all grouping sets together.
_SETS = "__dp_sets"


@dataclass
class CoreSelect:
    """One aggregating SELECT over rows of people.

    Attributes
    ----------
    work : Splitting
    stage : Stage
    env : Env
    items : list of (Expr, str)
        The select list over the stage, with names.
    groups : list of Expr
    sets : tuple of tuple of int
    having, qualify : Expr or None
    orders : tuple of Order
    modifiers : Modifiers
    has_error_columns : bool
        Whether error columns follow the columns.
    key_names : list of (Expr, str) or None
        The select list whose names the caller's keys use, if it differs from `items`.
    """

    work: Splitting
    stage: Stage
    env: Env
    items: list[tuple[Expr, str]]
    groups: list[Expr]
    sets: tuple[tuple[int, ...], ...]
    having: Expr | None
    qualify: Expr | None
    orders: tuple[Order, ...]
    modifiers: Modifiers
    has_error_columns: bool = False
    key_names: list[tuple[Expr, str]] | None = None
    # The replacements and the core of the grouping set written last.
    _last_set: tuple[dict[Expr, Expr], CoreDraft] = field(init=False, repr=False, compare=False)
    # The index of the first core of several grouping sets, which no other part of the query shares; None for one set.
    _first_core: int | None = None

    def relation(self) -> QueryRelation:
        """Return the released relation."""
        expressions = [expr for expr, _ in self.items] + [
            expr for expr in (self.having, self.qualify) if expr is not None
        ]
        expressions += [order.expression for order in self.orders]
        aggregates = list(dict.fromkeys(aggregate for expr in expressions for aggregate in aggregates_in(expr)))
        sets = self.sets or (tuple(range(len(self.groups))),)
        if len(sets) == 1:
            return self._single_set(sets[0], aggregates)
        positions = [self._position(order) for order in self.orders]
        windows = any(part.what == "window" for expr in expressions for part in expr.walk())
        if self.qualify is not None or windows or None in positions:
            return self._above_sets(sets, aggregates, expressions)
        union, noisy = self._united(sets, aggregates)
        ends = self._ends([position for position in positions if position is not None])
        return self._released(f"(SELECT * FROM ({union}){ends})", noisy)

    def _united(self, sets: tuple[tuple[int, ...], ...], aggregates: Sequence[Expr]) -> tuple[str, list[Noisy]]:
        """Return the SQL of all grouping sets, and each column's released numbers."""
        before = len(self.work.cores)
        self._first_core = before
        parts = [self._set(members, aggregates) for members in sets]
        self._margins(sets, self.work.cores[before:])
        noisy: list[Noisy] = [
            frozenset().union(*(numbers[index] for _, numbers in parts)) for index in range(len(self.items))
        ]
        return " UNION ALL ".join(f"({sql})" for sql, _ in parts), noisy

    def _above_sets(
        self, sets: tuple[tuple[int, ...], ...], aggregates: Sequence[Expr], expressions: Sequence[Expr]
    ) -> QueryRelation:
        """Return a query of all grouping sets, whose windows and order see every set.

        The inner query has the aggregates, keys and GROUPING() of each set; the outer query computes from them.
        """
        grouping = [part for expr in expressions for part in expr.walk() if part.what == "grouping"]
        parts = list(dict.fromkeys([*aggregates, *self.groups, *grouping]))
        below = replace(
            self, items=[(expr, f"c{index}") for index, expr in enumerate(parts)], having=None, qualify=None, orders=(),
            modifiers=Modifiers(), has_error_columns=False, key_names=self.items,
        )  # fmt: skip
        union, numbers = below._united(sets, aggregates)
        replacements = {expr: Expr("item", f"c{index}", value=_SETS) for index, expr in enumerate(parts)}
        self._last_set = replacements, below._last_set[1]
        over = [(self._over(expr, replacements), name) for expr, name in self.items]
        noisy: list[Noisy] = [
            frozenset().union(*(numbers[int(part.name[1:])] for part in expr.walk() if part.value == _SETS))
            for expr, _ in over
        ]
        writer = self._writer()
        listed = ", ".join(writer.sql(expr) + _as(expr, name, index) for index, (expr, name) in enumerate(over))
        distinct = "DISTINCT " if self.modifiers.distinct else ""
        out = f"SELECT {distinct}{listed} FROM ({union}) AS {identifier(_SETS)}"
        for word, condition in (("WHERE", self.having), ("QUALIFY", self.qualify)):
            out += "" if condition is None else f" {word} {writer.sql(self._over(condition, replacements))}"
        orders = [_ordered(self._order(order, replacements, writer), order) for order in self.orders]
        return self._released(f"({out}{self._ends(orders)})", noisy)

    def _margins(self, sets: tuple[tuple[int, ...], ...], cores: Sequence[CoreDraft]) -> None:
        """Mark all cores as margins of the core that has every key, if there is one.

        Cores with private keys are no margins: each core chooses its own groups.
        """
        keys = {number for members in sets for number in members}
        finest = next((core for core in cores if len(core.keys) == len(keys)), None)
        if finest is None or any(core.private for core in cores):
            return
        for core in cores:
            core.margin_of = finest.name

    def _position(self, order: Order) -> str | None:
        for number, (expr, _) in enumerate(self.items, start=1):
            if expr == order.expression:
                return _ordered(str(number), order)
        return None

    def _single_set(self, members: tuple[int, ...], aggregates: Sequence[Expr]) -> QueryRelation:
        sql, noisy = self._set(members, aggregates)
        replacements, _ = self._last_set
        writer = self._writer()
        qualify = "" if self.qualify is None else f" QUALIFY {writer.sql(self._over(self.qualify, replacements))}"
        orders = [_ordered(self._order(order, replacements, writer), order) for order in self.orders]
        ends = qualify + self._ends(orders)
        out = self._released(f"({sql}{ends})", noisy)
        if self._writes_errors or self.modifiers.distinct or not self.work.options.errors:
            return out
        return self._with_intervals(out, ends, noisy, [self._over(expr, replacements) for expr, _ in self.items])

    def _with_intervals(
        self, out: QueryRelation, ends: str, noisy: Sequence[Noisy], columns: Sequence[Expr]
    ) -> QueryRelation:
        """Return the relation with a function that appends its columns' intervals, for counts of numbers."""
        replacements, core = self._last_set
        errors = ColumnErrors(core, self._around(core, replacements))
        column_counts = [self._noisy_numbers(over, errors, replacements) for over in columns]

        def write_intervals(counts: Sequence[NoisyNumbers]) -> str:
            pairs = [
                (index, count)
                for index, own in enumerate(column_counts)
                if own
                for count in counts
                if count.covers(own)
            ]
            numbers = [
                (*number, count) for index, count in pairs for number in sorted(noisy[index]) if number[0] == core.name
            ]
            self.work.intervals.update(dict.fromkeys(numbers))
            writers = [(index, replace(errors, numbers=count)) for index, count in pairs]
            hidden = [sql for index, error in writers for sql in error.hidden(columns[index], index)]
            return f"({self._text(core, replacements, hidden)}{ends})"

        released_columns = tuple(
            replace(column, noisy_numbers=count) for column, count in zip(out.columns, column_counts, strict=True)
        )
        fixed = self._steady(core) and self.qualify is None and not self.modifiers.cuts
        out = replace(out, columns=released_columns, write_intervals=write_intervals, fixed=fixed)
        return self._with_draws(out, ends, columns, errors)

    def _with_draws(
        self, out: QueryRelation, ends: str, columns: Sequence[Expr], errors: ColumnErrors
    ) -> QueryRelation:
        """Return the relation with the forms of its columns, and a function that writes it for draws of the noise."""
        replacements, core = self._last_set
        if not errors.around.stays:
            return out
        writer = self._writer(replacements)
        forms = [Forms(errors, writer.sql).of(over) for over in columns]
        orders = [self._over(order.expression, replacements) for order in self.orders] if self.modifiers.cuts else []
        chosen = self.qualify is not None or not all(map(errors.quiet, orders))

        def write_draws() -> str:
            listed = []
            for index, (over, form, column) in enumerate(zip(columns, forms, out.columns, strict=True)):
                sql = _NOTHING if form is None else writer.sql(tried(over))
                listed += [f"{sql} AS {identifier(column.sql)}", *hidden(form, index)]
            source = f"{identifier(core.name)} AS {identifier(core.name)}"
            where = self._where(core, replacements, writer)
            return f"(SELECT {', '.join(listed)} FROM {source}{where}{'' if chosen else ends})"

        released_columns = [replace(column, form=form) for column, form in zip(out.columns, forms, strict=True)]
        return replace(out, columns=tuple(released_columns), write_draws=write_draws, stays=True, chosen=chosen)

    def _noisy_numbers(self, over: Expr, errors: ColumnErrors, replacements: dict[Expr, Expr]) -> NoisyNumbers | None:
        """Count the noisy numbers in a column; count those of all groups if noise chooses among groups."""
        numbers = errors.noisy_numbers(over)
        choosing = [expr for expr in (self.having, self.qualify) if expr is not None]
        choosing += [order.expression for order in self.orders] if self.modifiers.cuts else []
        if numbers and (self._drops_few or self._cuts_numbers(self._last_set[1])):
            return NoisyNumbers.of_all_groups(errors.noisy(over))
        if not numbers or all(errors.quiet(self._over(expr, replacements)) for expr in choosing):
            return numbers
        return NoisyNumbers.of_all_groups(errors.noisy(over))

    @property
    def _writes_errors(self) -> bool:
        """Whether this query writes its own error columns."""
        return self.has_error_columns and (len(self.sets) > 1 or self.modifiers.distinct)

    def _steady(self, core: CoreDraft) -> bool:
        """Whether no noise decides which groups exist, before QUALIFY and LIMIT."""
        return not (core.private or self._drops_few or self._cuts_numbers(core)) and self.having is None

    def _around(self, core: CoreDraft, replacements: dict[Expr, Expr]) -> ErrorsAround:
        """Return the surroundings for the errors of columns over a core."""
        writer = self._writer(replacements)
        stays = self.having is None and not self._cuts_numbers(core) and not self._drops_few
        return ErrorsAround(writer.over, writer.subquery, self._steady(core), stays)

    def _order(self, order: Order, replacements: dict[Expr, Expr], writer: PostExpressions) -> str:
        for number, (expr, _) in enumerate(self.items, start=1):
            if expr == order.expression:
                return str(number)
        return writer.sql(self._over(order.expression, replacements))

    def _ends(self, orders: Sequence[str]) -> str:
        out = f" ORDER BY {', '.join(orders)}" if orders else ""
        modifiers = self.modifiers
        writer = PostExpressions(self.work, self.env)
        if modifiers.limit is not None:
            out += f" LIMIT {writer.sql(modifiers.limit)}{'%' if modifiers.percent else ''}"
        if modifiers.offset is not None:
            out += f" OFFSET {writer.sql(modifiers.offset)}"
        return out

    def _set(self, members: tuple[int, ...], aggregates: Sequence[Expr]) -> tuple[str, list[Noisy]]:
        """Return the SQL of one grouping set, and each column's released numbers."""
        core = self._core(members)
        core_aggregates = CoreAggregates(self.work, self.stage, core)
        replacements = {
            aggregate: self._of_keys(aggregate, members, core) or core_aggregates.column_of(aggregate)
            for aggregate in aggregates
        }
        if not core.aggregates:
            core_aggregates.column_of(Expr("call", "count_star"))
        for number, group in enumerate(self.groups):
            key = Expr("item", f"k{number}", value=core.name)
            kind = self.stage.write(group).type
            replacements[group] = key if number in members else Expr("cast", kind.sql, (Expr("constant", "NULL"),))
            core.types[f"k{number}"] = kind
        replacements |= self._grouping(members)
        self._last_set = replacements, core
        noisy: list[Noisy] = []
        for expr, _ in self.items:
            over = self._over(expr, replacements)
            noisy.append(ColumnErrors(core, self._around(core, replacements)).noisy(over))
        errors, standings = self._errors(core, noisy, replacements) if self._writes_errors else ([], [])
        return self._text(core, replacements, errors, standings), noisy

    def _text(
        self,
        core: CoreDraft,
        replacements: dict[Expr, Expr],
        extra_columns: Sequence[str],
        standings: Sequence[str] = (),
    ) -> str:
        """Return the SQL of one grouping set, with extra columns.

        A column is NULL where its standing in `standings` says that a divisor may be 0.
        """
        writer = self._writer(replacements)
        values = [writer.sql(self._over(expr, replacements)) for expr, _ in self.items]
        for index, standing in enumerate(standings):
            values[index] = divided_sql(values[index], standing) if standing else values[index]
        listed = [values[index] + _as(expr, name, index) for index, (expr, name) in enumerate(self.items)]
        source = f"{identifier(core.name)} AS {identifier(core.name)}"
        distinct = "DISTINCT " if self.modifiers.distinct else ""
        out = f"SELECT {distinct}{', '.join([*listed, *extra_columns])} FROM {source}"
        return out + self._where(core, replacements, writer)

    def _where(self, core: CoreDraft, replacements: dict[Expr, Expr], writer: PostExpressions) -> str:
        """Return the SQL of the condition that a released group is in the answer."""
        where = [*self._together(core, replacements, writer), *self._occurring(core, writer)]
        where += [] if self.having is None else [writer.sql(self._over(self.having, replacements))]
        where += self._of_enough(core, writer)
        return f" WHERE {' AND '.join(where)}" if where else ""

    def _of_enough(self, core: CoreDraft, writer: PostExpressions) -> list[str]:
        """Return the condition that a group has the least number of persons, or of rows where a row is protected.

        The number is a released one, so which groups are shown is post-processing.
        """
        if not self._drops_few:
            return []
        persons = CoreAggregates(self.work, self.stage, core).persons()
        return [f"{writer.sql(persons)} >= {self.work.options.least_units}"]

    @property
    def _drops_few(self) -> bool:
        return self.work.options.least_units is not None and bool(self.groups)

    def _cuts_numbers(self, core: CoreDraft) -> bool:
        """Whether LIMIT keeps the first groups by a key that has all whole numbers between bounds."""
        modifiers = self.modifiers
        if modifiers.limit is None or modifiers.percent or self._first_core is not None or self.qualify is not None:
            return False
        ranged = any(WHOLE_NUMBERS in key.origin for _, key in core.keys) and not core.private
        return ranged and not any(map(aggregates_in, [order.expression for order in self.orders[:1]]))

    def _occurring(self, core: CoreDraft, writer: PostExpressions) -> list[str]:
        """Return the condition that LIMIT chooses among groups that surely have rows, if there are any.

        A key between bounds has groups without rows, which no database has: ``ORDER BY age DESC LIMIT 10`` asked for
        the ten oldest that occur. A group surely has rows if its noisy count, a released number, is above 0 with its
        interval, which holds for all groups at once. So the condition follows from the release, and costs nothing.
        """
        if not self._cuts_numbers(core):
            return []
        counts = [aggregate for aggregate in core.aggregates if aggregate.kind in _COUNTS_OF_ROWS]
        if not counts and not any(aggregate.kind in _IN_ONE_VECTOR for aggregate in core.aggregates):
            return []  # a count would take epsilon from the others
        if not counts:
            self.work.revised()
            CoreAggregates(self.work, self.stage, core).column_of(Expr("call", "count_star"))
            counts = core.aggregates[-1:]
        count = min(counts, key=lambda aggregate: _COUNTS_OF_ROWS.index(aggregate.kind))
        numbers = NoisyNumbers.of_groups(core.name)
        self.work.intervals[core.name, count.name, numbers] = None
        lower, groups = identifier(error_names(count.name, numbers)[1]), identifier(core.name)
        limit = writer.sql(require(self.modifiers.limit))
        sure = f"{groups}.{lower} > 0"
        few = f"(SELECT {call('count_star')} FROM {groups} AS dpsql_groups WHERE dpsql_groups.{lower} > 0) = 0"
        all_kept = f"(SELECT {call('count_star')} FROM {groups} AS dpsql_groups) <= {limit}"
        return [f"({sure} OR {few} OR {all_kept})"]

    def _together(self, core: CoreDraft, replacements: dict[Expr, Expr], writer: PostExpressions) -> list[str]:
        """Return conditions that drop groups whose keys are columns of one public table but occur in no row of it."""
        of_item: dict[str, list[Expr]] = {}
        together = {name for _, key in core.keys for name in key.together}
        for group in self.groups:
            replacement = replacements.get(group)
            own = (
                group.what == "item"
                and replacement is not None
                and replacement.what == "item"
                and replacement.name not in together
            )
            if own and not core.private:
                of_item.setdefault(str(group.value), []).append(group)
        out = []
        for number, columns in of_item.items():
            relation = self.stage.scope.item(number).relation
            if relation.level != PUBLIC or len(columns) < 2:
                continue
            kinds = [core.types[replacements[column].name].sql for column in columns]
            keys = _packed(writer.sql(replacements[column]) for column in columns)
            rows = _packed(cast(identifier(column.name), kind) for column, kind in zip(columns, kinds, strict=True))
            none = _packed(cast("NULL", kind) for kind in kinds)
            # If no row matches, as in a LEFT JOIN, all keys are NULL.
            out.append(f"{keys} IN (SELECT {rows} FROM {relation.sql} AS dpsql_public UNION ALL SELECT {none})")
        return out

    def _errors(
        self, core: CoreDraft, noisy: Sequence[Noisy], replacements: dict[Expr, Expr]
    ) -> tuple[list[str], list[str]]:
        """Return error, interval and verdict of every noisy column, and the standing of each."""
        names = error_columns([name for _, name in self.items])
        writer = self._writer(replacements)
        errors = ColumnErrors(core, self._around(core, replacements))
        out, standings = [], []
        for (expr, _), numbers, theirs in zip(self.items, noisy, names, strict=True):
            standings.append("")
            if numbers:
                over = self._over(expr, replacements)
                count = self._noisy_numbers(over, errors, replacements) or NoisyNumbers(len(numbers))
                own = [name for name_of, name in sorted(numbers) if name_of == core.name]
                self.work.intervals.update(dict.fromkeys((core.name, name, count) for name in own))
                column_errors = replace(errors, numbers=count)
                parts = column_errors.columns(over, writer.sql(over))
                out += [f"{sql} AS {identifier(name)}" for sql, name in zip(parts, theirs, strict=True)]
                standings[-1] = "" if column_errors.ends(over) is None else column_errors.standing(over)
        return out, standings

    def _of_keys(self, expr: Expr, members: tuple[int, ...], core: CoreDraft) -> Expr | None:
        """Return an aggregate computed from the group's keys, which are the same in all its rows; else None."""
        if not is_one_of_equals(expr):
            return None
        keys = {self.groups[number]: Expr("item", f"k{number}", value=core.name) for number in members}
        out = replaced(expr.parts[0], keys)
        read = [part for part in out.walk() if part.what == "item"]
        return out if read and all(part.value == core.name for part in read) else None

    def _grouping(self, members: tuple[int, ...]) -> dict[Expr, Expr]:
        """Return the value of GROUPING() in one set: a bit for each group outside the set."""
        out = {}
        expressions = [expr for expr, _ in self.items] + [order.expression for order in self.orders]
        expressions += [self.having] if self.having is not None else []
        for expr in expressions:
            for part in expr.walk():
                if part.what == "grouping":
                    bits = "".join("0" if self.groups.index(group) in members else "1" for group in part.parts)
                    out[part] = Expr("cast", "BIGINT", (Expr("constant", "number", value=str(int(bits, 2))),))
        return out

    def _writer(self, replacements: Mapping[Expr, Expr] | None = None) -> PostExpressions:
        """Return a writer of expressions, whose subqueries see the replacements; by default those of the last set."""
        replacements = self._last_set[0] if replacements is None else replacements

        def outer(names: tuple[str, ...]) -> str | None:
            column = self.stage.scope.resolved(names)
            if column is None:
                return self.env.outer(names) if self.env.outer is not None else None
            if column not in replacements:
                raise ParameterError(
                    "P107", f"sql: a subquery reads column {show(names[-1])} of rows of people. Group by it first."
                )
            return PostExpressions(self.work, self.env).sql(replacements[column])

        return PostExpressions(self.work, replace(self.env, outer=outer), inner=self._inner)

    @property
    def _inner(self) -> dict[int, QueryRelation]:
        self.__dict__.setdefault("_subqueries", {})
        relations: dict[int, QueryRelation] = self.__dict__["_subqueries"]
        return relations

    def _over(self, expr: Expr, replacements: dict[Expr, Expr]) -> Expr:
        """Return an expression over released columns; raise if it reads rows of people."""
        out = replaced(expr, replacements)
        for part in out.walk():
            if part.what == "item" and not str(part.value).startswith("__dp"):
                name = self.stage.scope.column(part).name
                with about(part):
                    raise SourceError(
                        "S002",
                        f"sql: column {show(name)} is neither in GROUP BY nor in an aggregate. Add it to GROUP BY, or "
                        f"aggregate it, as in count({name if name.isidentifier() else identifier(name)}).",
                    )
        return out

    # The core.

    def _core(self, members: tuple[int, ...]) -> CoreDraft:
        body = self.stage.body
        unit = self.stage.owner
        keys: list[tuple[str, QueryKey]] = []
        private = self.work.options.private_keys and bool(members)
        for number in members:
            with about(self.groups[number]):
                sql, key, missing = self._key(number)
            keys.append((sql, key))
            private = private or missing
        if private:
            keys = [(sql, replace(key, values=None, query=None, origin="drawn")) for sql, key in keys]
        elif self._first_core is None:  # dpsql fits grouping sets to one another as tables of all combinations
            of_groups = [(self.groups[number], key) for number, (_, key) in zip(members, keys, strict=True)]
            keys = [(sql, key) for (sql, _), key in zip(keys, self.stage.keys.together(of_groups), strict=True)]
        for index, draft in enumerate(self.work.cores):
            if index < self._first_core if self._first_core is not None else draft.margin_of is not None:
                continue
            if (draft.body, draft.unit, draft.keys, draft.private) == (body, unit, keys, private):
                return draft
        core = CoreDraft(
            f"__dp_{len(self.work.cores)}", body, unit, self.stage.date, keys, private, self._dates,
            self.stage.member.tables,
        )  # fmt: skip
        self.work.cores.append(core)
        return core

    @property
    def _dates(self) -> tuple[str, str] | None:
        """Return the first and last day within the conditions' literals."""
        column = min(self.stage.member.dates, default=None)
        return None if column is None else self.stage.keys.days(Expr("item", column[1], value=column[0]))

    def _key(self, number: int) -> tuple[str, QueryKey, bool]:
        group = self.groups[number]
        expression = self.stage.write(group)
        name = self._group_name(group)
        if self.work.revised(expression.type.collated):
            spelling = reduce(lambda x, call: f"{call}({x})", functions_of(expression.type.collation), name or "x")
            raise ParameterError(
                "P104",
                f"sql groups by {show(name or 'x')}, which is {expression.type.shown}: equal values of it may be "
                f"spelled differently. Group by one spelling, {spelling} COLLATE C, which has a name of its own.",
            )
        if expression.type.kind in ("LIST", "ARRAY", "STRUCT", "MAP", "UNION"):
            raise SourceError(
                "S003",
                f"sql groups by {show(name or 'a list or a struct')}, a {expression.type.kind}: a key is one value. "
                f"Group by its text, {identifier(name) if name else '(...)'}::VARCHAR.",
            )
        key_values: KeyValues | None = self.work.caller_keys(name) if name else None
        if key_values is None and not self.work.options.private_keys:
            key_values = self.stage.keys.find(group) or self.env.joined.get(fold(name))
        if key_values is None and not self.work.options.private_keys and self.work.lacking is None:
            what = show(name or f"its column {number + 1}")
            listed = f"keys := {{{identifier(name) if name else 'column'}: [...]}}"
            grouped = [fold(self._group_name(other)) for other in self.groups]
            others = [key for key in self.work.options.keys if fold(key) not in grouped]
            listed += f" and not {show(others[0])}" if others else ""
            self.work.lacking = (
                f"sql groups by {what}, whose values are private. Free: {self._free_way(group, expression.type)}list "
                f"them, {listed}, from public knowledge; or join a public table of them. Or pay for private keys: "
                "delta := 1e-6.",
                group.begins,
            )
        column = f"k{number}"
        if key_values is None:
            return expression.sql, QueryKey(column, expression.type.sql, None, None, "drawn"), True
        return (
            expression.sql,
            QueryKey(column, expression.type.sql, key_values.values, key_values.query, key_values.origin),
            False,
        )

    def _free_way(self, group: Expr, kind: Type) -> str:
        """Return how conditions make the values of a group public, for a date and for an integer; else ``''``."""
        columns = [part for part in group.walk() if part.what == "item"]
        dates = [
            part
            for part in columns
            if self.stage.scope.column(part).type.kind in ("DATE", "TIMESTAMP", ZONED_TIMESTAMP)
        ]
        if dates:
            day = identifier(self.stage.scope.column(dates[0]).name)
            return f"bound the date in WHERE, {day} >= DATE '2026-01-01' AND {day} < DATE '2027-01-01'; "
        if group.what == "item" and kind.kind in INTEGERS:
            return f"bound it in WHERE, {identifier(self.stage.scope.column(group).name)} BETWEEN 0 AND 99; "
        return ""

    def _group_name(self, group: Expr) -> str:
        """Return the name of a group in the result, else of its column."""
        for expr, name in self.items if self.key_names is None else self.key_names:
            if expr == group and name:
                return name
        if group.what == "item":
            return self.stage.scope.column(group).name
        return ""

    def _released(self, sql: str, noisy: Sequence[Noisy]) -> QueryRelation:
        more = len(PARTS) * sum(map(bool, noisy)) if self._writes_errors else 0
        noisy_columns = [*noisy, *[frozenset[tuple[str, str]]()] * more]
        return released(self.work, sql, noisy_columns, within=self.env.outer is not None)


def finish_core(core: CoreDraft) -> QueryCore:
    """Return the finished core of a draft."""
    return QueryCore(
        core.name,
        core_source(core),
        None if core.unit is None else UNIT,
        tuple(key for _, key in core.keys),
        core.private,
        tuple(core.aggregates),
        core.tables,
        core.dates,
        core.margin_of,
        core.disjoint,
    )


def _packed(values: Iterable[str]) -> str:
    """Return a struct of several values, in which NULLs compare equal."""
    return struct({f"c{index}": value for index, value in enumerate(values)})


def core_source(core: CoreDraft) -> str:
    """Return the SQL of a core's source: keys, then aggregated columns, and the privacy unit last."""
    listed = [f"{sql} AS {identifier(key.column)}" for sql, key in core.keys]
    listed += [f"{sql} AS {identifier(name)}" for sql, name in core.targets.items()]
    extra_columns = ((core.date, DATE), (core.unit, UNIT))
    listed += [f"{sql} AS {identifier(name)}" for sql, name in extra_columns if sql is not None]
    return f"SELECT {', '.join(listed) or '1 AS one'} {core.body}"


def _ordered(sql: str, order: Order) -> str:
    return " ".join(word for word in (sql, order.direction, order.nulls) if word)


def _as(expr: Expr, name: str, index: int) -> str:
    """Return the alias of a column: DuckDB names a subquery by its text, which differs where DuckDB binds it."""
    unlike = not name and any(part.what == "subquery" for part in expr.walk())
    name = f"dpsql_{index}" if unlike else name
    return f" AS {identifier(name)}" if name else ""
