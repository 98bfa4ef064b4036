"""Everything that the text of a source names, at any depth: functions, macros, types and relations.

A plan shows which tables a source reads, but not what DuckDB folded into the plan: a variable, a setting, the values of
a type, a query that was put together from strings. So DuckDB's own parser reads every text behind a source: views,
bodies of macros, and generated columns, which DuckDB computes when it reads a row. Nothing else of a table's definition
matters: DuckDB computed defaults, CHECKs and keys of indexes when it stored a row, and a collation only compares.

A function must be in `functions.toml`, a type must be DuckDB's own or an alias of a type without values, and a text
that names a query or a table must be readable. dpsql refuses a text that it cannot read.

A name may stand for several macros or views, depending on search paths. dpsql reads all of them, so a source may seem
to read more than it does, but never less. `own_columns` tells dpsql's aggregate forms from macros of the same names by
their bodies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import TypeVar

from dpsql.contract.expression.functions import VIEW
from dpsql.contract.names import is_file, source_parts
from dpsql.contract.parameters import fold
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.lineage import functions, refusals
from dpsql.engines.duckdb.lineage.bound import PLAIN_TYPES
from dpsql.engines.duckdb.lineage.orders import decided_by_order
from dpsql.engines.duckdb.lineage.texts import (
    Catalogued,
    Macro,
    Node,
    Tree,
    UnreadableTextError,
    View,
    arguments_of,
    expression_tree,
    generated_columns,
    literal_of,
    objects,
    objects_with,
    path_of,
    tree_of,
    with_names,
    word_of,
)
from dpsql.engines.duckdb.macros import macros_sql
from dpsql.errors import ParameterError, SourceError
from dpsql.functions.registry import FUNCTIONS

_POSITIONS = frozenset(("query_location", "query_location_length"))


def own_columns(name: str, macros: Iterable[Macro]) -> list[str] | None:
    """Return the column parameters of an aggregate form of dpsql, in order; None for any other call.

    `macros` are the macros that the called name may stand for.
    """
    bodies = {macro.body for macro in macros if not macro.table}
    columns, shipped = _forms().get(name.lower(), ((), "")) if bodies else ((), "")
    if not columns or any(_meaning(body) != _meaning(shipped) for body in bodies):
        return None
    return list(columns)


@cache
def _forms() -> dict[str, tuple[tuple[str, ...], str]]:
    """Return the columns and the body of every aggregate form, as dpsql ships them."""
    pattern = r"^CREATE OR REPLACE MACRO (dp_\w+)\(\n((?:(?!\n\)).)*)\n\) AS\n(.*?);$"
    forms: dict[str, tuple[tuple[str, ...], str]] = {}
    for name, listed, body in re.findall(pattern, macros_sql("MACRO ", "dpsql"), re.M | re.S):
        arguments = FUNCTIONS[name].plan.arguments.values() if name in FUNCTIONS else ()
        columns = {argument.column for argument in arguments}
        parameters = (part.split(":=")[0].strip().strip('"') for part in listed.split(","))
        forms[name] = tuple(parameter for parameter in parameters if parameter in columns), body
    return forms


def _meaning(body: str) -> Tree:
    """Return the tree of a body without the positions of its words."""
    try:
        return _without_positions(expression_tree(body))
    except UnreadableTextError:
        return None


def _without_positions(tree: Tree) -> Tree:
    if isinstance(tree, dict):
        return {name: _without_positions(part) for name, part in tree.items() if name not in _POSITIONS}
    return [_without_positions(part) for part in tree] if isinstance(tree, list) else tree


# The nodes of DuckDB's trees. dpsql refuses any other node.
_EXPRESSIONS = frozenset(
    (
        *("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "DEFAULT"),
        *("FUNCTION", "LAMBDA", "LAMBDA_REF", "OPERATOR", "PARAMETER", "POSITIONAL_REFERENCE", "STAR", "SUBQUERY"),
        *("TYPE", "WINDOW"),
    )
)
_PARTS = frozenset(
    (
        *("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE", "BASE_TABLE", "SUBQUERY", "JOIN"),
        *("TABLE_FUNCTION", "EMPTY", "EXPRESSION_LIST", "PIVOT", "COLUMN_DATA", "ORDER_MODIFIER", "LIMIT_MODIFIER"),
        *("LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER", "ORDER_DEFAULT", "ASCENDING", "DESCENDING"),
    )
)
# Words that call a function without parentheses, unless a column has that name. Columns are often called `user`.
_WORDS = frozenset(
    (
        *("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "current_catalog"),
        *("current_role", "current_schema", "current_user", "session_user"),
    )
)
_WORD_FUNCTIONS = {
    "current_time": "get_current_time",
    "current_timestamp": "get_current_timestamp",
    "localtime": "current_localtime",
    "localtimestamp": "current_localtimestamp",
}
# Functions that DuckDB calls for another syntax: x.y, x[1], x[1:2].
_UNWRITTEN = ("struct_extract", "array_extract", "array_slice")
# Functions with a string that may name a type.
_TYPED = frozenset(("from_json", "from_json_strict", "json_transform", "json_transform_strict"))
# The limits on calls of macros: a source beyond them counts as unreadable.
_MOST_CALLS = 2000
_DEEPEST = 50
# Groups of functions that only FROM may call.
_FROM = frozenset(("reader", "frame", "query"))
_Entry = TypeVar("_Entry", View, Macro)


@dataclass(frozen=True)
class _Text:
    """An expression with the bindings of its macro parameters."""

    tree: Tree
    bindings: Bindings

    @property
    def stood_for(self) -> _Text:
        """The argument of a macro parameter; any other expression itself."""
        binding = self.bindings.get(word_of(self.tree))
        return self if binding is None else binding.stood_for

    @property
    def literal(self) -> str | None:
        """The string literal that this is or stands for; None for any other expression."""
        return literal_of(self.stood_for.tree)

    @property
    def listed(self) -> list[_Text]:
        """The elements of a list; any other expression is the only element."""
        text = self.stood_for
        tree = text.tree
        if isinstance(tree, dict) and tree.get("class") == "FUNCTION" and path_of(tree)[-1] == "list_value":
            return [_Text(argument, text.bindings) for _, argument in arguments_of(tree)]
        return [text]


Bindings = Mapping[str, _Text]
Arguments = Sequence[tuple[str | None, Tree]]
Option = tuple[str, frozenset[str | None]]  # the name of a reader's option, and the literals that it has


@dataclass
class Closure:
    """The tables, views, files, frames, functions and types that a source names."""

    source: str  # as the caller wrote it, for messages
    catalogued: Catalogued
    enums: bool = False  # whether the source reads a column of an ENUM type
    # The last parts of the names of relations in texts: folded, and as written.
    relations: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)  # the texts that were read, by their paths
    files: dict[str, None] = field(default_factory=dict)  # the files that readers read
    calls: bool = False  # whether a text names a function, a macro or a type, which users may replace
    defined: set[str] = field(default_factory=set)  # the names of WITH queries, folded
    ordered: list[str] = field(default_factory=list)  # expressions in texts that the order of rows decides
    readers: list[tuple[str, tuple[Option, ...]]] = field(default_factory=list)  # each with its options
    hidden: bool = False  # whether a reader reads something that is no literal
    words: set[str] = field(default_factory=set)  # the last parts of the names of columns, folded
    collated: bool = False  # whether a text names a collation
    casts: bool = False  # whether a text has a CAST of more than a literal, which fails where TRY_CAST is NULL
    _calls: int = 0
    _depth: int = 0

    def __post_init__(self) -> None:
        self._macros = _by_name(self.catalogued.macros or ())
        self._views = _by_name(self.catalogued.views)
        self._generated: dict[str, list[str]] = {}
        for name, sql in self.catalogued.generated:
            self._generated.setdefault(fold(name), []).append(sql)

    def source_of_rows(self, name: str) -> None:
        """Read the views and the generated columns of a name, and everything that they name."""
        for view in self._views.get(fold(name), ()):
            self.view(view)
        for sql in self._generated.pop(fold(name), ()):  # once: a generated column names no table
            for expression in self._generated_in(sql):
                self._read(self._parsed(expression, expression=True), {})

    def _generated_in(self, sql: str) -> tuple[str, ...]:
        try:
            return generated_columns(sql)
        except UnreadableTextError:
            raise self._unreadable() from None

    def statement(self, sql: str) -> None:
        """Read the input of an aggregate form: its own SELECT and every WITH query, but no other column."""
        try:
            tree = tree_of(sql)
        except UnreadableTextError:
            raise refusals.hidden_statement() from None
        self.defined |= {fold(name) for node in objects(tree) for name in with_names(node)}
        around = [node for node in objects(tree) if node.get("type") == "SELECT_NODE" and self._aggregates(node)]
        for node in around:
            self._read([part for name, part in node.items() if name != "select_list"], {})
            for call in self._aggregates(node):
                self._read(call, {})
        self._read(list(objects_with(tree, "cte_map")) if around else tree, {})

    @property
    def elsewhere(self) -> list[str]:
        """The names of Python variables: no table, view, WITH query or file has these names."""
        paths = (*(view.path for view in self.catalogued.views), *self.catalogued.tables)
        names = self.defined | {fold(path[2]) for path in paths}
        return [spelling for name, spelling in self.relations.items() if name not in names and not is_file(spelling)]

    def view(self, view: View) -> None:
        """Read a view, and everything that it names."""
        key = "\n".join(view.path)
        if key not in self.texts:
            self.texts[key] = view.sql
            if view.sql:
                self.query(view.sql)

    def query(self, sql: str) -> None:
        """Read a query."""
        tree = self._parsed(sql)
        for name in _UNWRITTEN:
            for macro in self._macros.get(name, ()):
                self._macro(macro, self._macros[name], [(None, None)] * len(macro.parameters), {})
        self._read(tree, {})

    def _parsed(self, sql: str, *, expression: bool = False) -> Tree:
        try:
            return expression_tree(sql) if expression else tree_of(sql)
        except UnreadableTextError:
            raise self._unreadable() from None

    def _unreadable(self, what: str = "") -> SourceError:
        return refusals.unreadable_text(self.source, what)

    def _aggregates(self, node: Node) -> list[Node]:
        """Return the aggregate forms in a SELECT list, outside of subqueries."""
        forms: list[Node] = []
        open_ones = [node.get("select_list")]
        while open_ones:
            part = open_ones.pop()
            if isinstance(part, list):
                open_ones += part
            elif isinstance(part, dict) and part.get("class") != "SUBQUERY":
                path = path_of(part) if part.get("class") == "FUNCTION" else ()
                if path and own_columns(path[-1], self._candidates(path)) is not None:
                    forms.append(part)
                else:
                    open_ones += [child for child in part.values() if isinstance(child, (dict, list))]
        return forms

    def _note_table(self, name: str) -> None:
        """Note that a text names a table, and read the views and generated columns of that name."""
        if fold(name) not in self.relations:
            self.relations[fold(name)] = name
            self.source_of_rows(name)

    def _read(self, tree: Tree, bindings: Bindings) -> None:
        if isinstance(tree, list):
            for part in tree:
                self._read(part, bindings)
        if not isinstance(tree, dict):
            return
        self.defined |= set(map(fold, with_names(tree)))
        fields = self._part(tree, bindings)
        for name, part in tree.items():
            if isinstance(part, (dict, list)) and name not in fields:
                self._read(part, bindings)

    def _part(self, tree: Node, bindings: Bindings) -> tuple[str, ...]:
        """Judge one node of a tree; return its fields that need no further reading."""
        sort, kind = tree.get("class"), tree.get("type")
        self.ordered += filter(None, [decided_by_order(tree)])
        if isinstance(sort, str):
            return self._expression(sort, tree, bindings)
        if not isinstance(kind, str):
            return ()
        if kind == "BASE_TABLE":
            self._note_table(str(tree.get("table_name", "")))
        elif kind == "TABLE_FUNCTION":
            call = tree.get("function")
            if not isinstance(call, dict) or call.get("class") != "FUNCTION":
                raise self._unreadable()
            self._call(call, bindings, table=True)
            return ("function",)
        elif kind == "SHOW_REF":
            self._show(tree)
        elif kind == "UNBOUND_TYPE_INFO":
            self._type([str(tree.get(part) or "") for part in ("catalog", "schema", "name")])
        elif kind not in _PARTS and not kind.endswith("_TYPE_INFO"):
            raise self._unreadable()
        if any(objects_with(tree.get("pivots"), "pivot_enum")):
            raise refusals.type_refused(self.source, "PIVOT ... IN a type")
        return ()

    def _expression(self, sort: str, tree: Node, bindings: Bindings) -> tuple[str, ...]:
        if sort not in _EXPRESSIONS:
            raise self._unreadable()
        self.collated = self.collated or sort == "COLLATE"
        self.casts = self.casts or (
            sort == "CAST" and not tree.get("try_cast") and literal_of(tree.get("child")) is None
        )
        names = tree.get("column_names") if sort == "COLUMN_REF" else None
        self.words |= {fold(str(names[-1]))} if isinstance(names, list) and names else set()
        if sort == "CONSTANT":
            return ("value", "literal")
        if sort in ("FUNCTION", "WINDOW"):
            self._call(tree, bindings, table=False)
            return ("children", "arguments")
        if sort == "TYPE":
            self._type(["", "", *path_of(tree, "type_name")][-3:])
        word = word_of(tree)
        if word in _WORDS and word not in bindings:
            self._function((_WORD_FUNCTIONS.get(word, word),), [], bindings, table=False)
        return ()

    def _show(self, tree: Node) -> None:
        """Allow SUMMARIZE, which shows types; nothing else of that kind reads rows."""
        if tree.get("show_type") != "SUMMARY":
            raise self._unreadable()
        self._function(("typeof",), [], {}, table=False)
        if tree.get("table_name"):
            self._note_table(str(tree["table_name"]))

    def _type(self, path: Sequence[str]) -> None:
        """Refuse a user's type, unless it is an alias of a type without values."""
        self.calls = True
        name = fold(path[-1])
        kinds = self.catalogued.types.get(name)
        plain = name in functions.types() and not any(path[:-1]) if kinds is None else kinds <= PLAIN_TYPES
        if not plain:
            raise refusals.type_refused(self.source, path[-1])

    def _call(self, tree: Node, bindings: Bindings, *, table: bool) -> None:
        """Judge a call, and read its arguments; for an aggregate form of dpsql, only the columns."""
        path, arguments = path_of(tree), arguments_of(tree)
        columns = None if table else own_columns(path[-1], self._candidates(path))
        if columns is None:
            self._function(path, arguments, bindings, table=table)
        for position, (name, argument) in enumerate(arguments):
            if columns is None or (name or "") in columns or position < len(columns):
                self._read(argument, bindings)

    def _candidates(self, path: Sequence[str]) -> list[Macro]:
        """Return the macros that a name may stand for."""
        before = {fold(part) for part in path[:-1]}
        return [macro for macro in self._macros.get(fold(path[-1]), ()) if before <= set(map(fold, macro.path[:2]))]

    def _function(self, path: Sequence[str], arguments: Arguments, bindings: Bindings, *, table: bool) -> None:
        self.calls = True
        name = fold(path[-1])
        macros = self._candidates(path)
        listed = functions.own().get(name)
        if listed is None:
            refused = not macros
        else:
            in_from = listed.group in _FROM
            elsewhere = table and not (in_from or listed.group == "generator" or macros)
            shows = listed.group == "type" and self.enums
            refused = VIEW not in listed.places or shows or (in_from and not table) or elsewhere
        if refused:
            raise refusals.function_refused(self.source, path[-1], in_from=table)
        for macro in macros:
            self._macro(macro, macros, arguments, bindings)
        if name in ("query", "query_table"):
            self._by_text(name, _Text(arguments[0][1] if arguments else None, bindings))
        elif name in _TYPED or (listed is not None and listed.group == "reader"):
            self._texts_of_types(arguments)
            if table:
                self._reader(name, arguments, bindings)

    def _reader(self, name: str, arguments: Arguments, bindings: Bindings) -> None:
        """Note the files and the options of a reader in FROM."""
        files = [part.literal for _, first in arguments[:1] for part in _Text(first, bindings).listed]
        self.files.update((file, None) for file in files if file is not None)
        self.hidden = self.hidden or None in files
        self.readers.append((name, tuple(self._option(option, argument) for option, argument in arguments[1:])))

    def _option(self, name: str | None, argument: Tree) -> Option:
        """Return an option, `name := value` or `name = value`; its name is ``''`` for any other argument."""
        sides = argument if isinstance(argument, dict) and argument.get("type") == "COMPARE_EQUAL" else {}
        if name is None:
            return word_of(sides.get("left")), self._values(sides.get("right"))
        return fold(name), self._values(argument)

    def _values(self, tree: Tree) -> frozenset[str | None]:
        """Return the literals of an option, folded: of a struct those of its fields. None stands for anything else."""
        if isinstance(tree, dict) and tree.get("class") == "FUNCTION":
            path = path_of(tree)
            if path[-1] == "struct_pack" and not self._candidates(path):
                return frozenset(_literal(field) for _, field in arguments_of(tree))
        return frozenset((_literal(tree),))

    def _macro(self, macro: Macro, forms: Sequence[Macro], arguments: Arguments, bindings: Bindings) -> None:
        """Read the body of a macro, with the bindings of its parameters."""
        count = len(arguments)
        if len(macro.parameters) > count and not any(len(form.parameters) == count for form in forms):
            raise refusals.default_left_out(self.source, macro.path[2], macro.parameters)
        if len(macro.parameters) != count:
            return
        if any(kind is not None and "ENUM(" in kind for kind in macro.types):
            raise refusals.type_refused(self.source, "ENUM")
        self._calls += 1
        if self._calls > _MOST_CALLS or self._depth > _DEEPEST:
            raise self._unreadable()
        stands = {
            fold(name if name is not None else macro.parameters[position]): _Text(tree, bindings)
            for position, (name, tree) in enumerate(arguments)
        }
        self.texts["\n".join((*macro.path, *macro.parameters))] = macro.body
        tree = self._parsed(macro.body, expression=not macro.table)
        self._depth += 1
        self._read(tree, stands)
        self._depth -= 1

    def _by_text(self, name: str, argument: _Text) -> None:
        """Read the query, or the tables, that a text names."""
        if name == "query":
            source = _Text(_predicted_source(argument.tree), argument.bindings).literal
            if source is not None:
                self._note_table(_last(source))
                return
        for element in [argument] if name == "query" else argument.listed:
            text = element.literal
            if text is None:
                raise self._unreadable(f"{name}()")
            if name == "query":
                self.query(text)
            else:
                self._note_table(_last(text))

    def _texts_of_types(self, arguments: Arguments) -> None:
        """Refuse a string that may name a user's type, such as the column types of a reader."""
        names = [name for name, kinds in self.catalogued.types.items() if not kinds <= PLAIN_TYPES]
        for part in objects([argument for _, argument in arguments]):
            text = literal_of(part) if part.get("class") == "CONSTANT" else None
            for name in names:
                if text is not None and name in fold(text):
                    raise refusals.type_refused(self.source, name)


def _by_name(listed: Iterable[_Entry]) -> dict[str, list[_Entry]]:
    """Group views or macros by their folded names."""
    groups: dict[str, list[_Entry]] = {}
    for entry in listed:
        groups.setdefault(fold(entry.path[2]), []).append(entry)
    return groups


def _literal(tree: Tree) -> str | None:
    """Return a string or boolean literal as folded text; None for anything else."""
    if not isinstance(tree, dict):
        return None
    text, literal = literal_of(tree), tree.get("literal")
    if isinstance(literal, dict) and literal.get("kind") == "BOOLEAN":
        return fold(str(literal.get("text")))
    if tree.get("class") == "CAST":  # DuckDB 1.5 writes booleans as CAST('t' AS BOOLEAN)
        return {"t": "true", "f": "false"}.get(literal_of(tree.get("child")) or "")
    return None if text is None else fold(text)


def _predicted_source(tree: Tree) -> Tree:
    """Return the source of the query that `dp_predictions` writes; None for any other query."""
    if not isinstance(tree, dict) or tree.get("class") != "FUNCTION":
        return None
    arguments = arguments_of(tree)
    return arguments[2][1] if path_of(tree)[-1] == "dpsql_predictions" and len(arguments) == 3 else None


def _last(name: str) -> str:
    """Return the table's own name in an argument of `query_table`."""
    try:
        return source_parts(name)[-1]
    except ParameterError:
        return name
