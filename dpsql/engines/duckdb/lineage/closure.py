"""What the text of a source names, at any depth: the functions, macros, types and relations of its views.

A plan shows which tables a source reads, but not what was folded into it before it was made: a variable, a setting, the
values of a type, a query that was put together from texts. So every word of the text behind a source is read, too, by
DuckDB's own parser, through views and the bodies of macros. A function must be in `functions.toml`, a type must be
DuckDB's own or an alias of one that holds no values, and the text that names a query or a table must be one that can be
read. What cannot be read is refused.

A name may stand for several macros or views: which one depends on search paths. All of them are read, so a source may
be taken to read more than it does, but never less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpsql.contract.names import is_file, source_parts
from dpsql.contract.parameters import fold
from dpsql.engines.duckdb.lineage import functions
from dpsql.engines.duckdb.lineage.own_forms import own_columns
from dpsql.engines.duckdb.lineage.refusals import (
    default_left_out,
    function_refused,
    hidden_statement,
    type_refused,
    unreadable_text,
)
from dpsql.engines.duckdb.lineage.texts import Tree, UnreadableTextError, expression_tree, tree_of
from dpsql.errors import ParameterError

# What DuckDB's trees are made of. Anything else is not read, and so refused.
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
# Words that are functions without parentheses, where no column has that name. `user` is a name that columns do have.
_WORDS = frozenset(
    (
        *("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"),
        *("current_catalog", "current_role", "current_schema", "current_user", "session_user"),
    )
)
_WORD_FUNCTIONS = {
    "current_time": "get_current_time",
    "current_timestamp": "get_current_timestamp",
    "localtime": "current_localtime",
    "localtimestamp": "current_localtimestamp",
}
# Functions that DuckDB calls for what is written otherwise: x.y, x[1], x[1:2].
_UNWRITTEN = ("struct_extract", "array_extract", "array_slice")
# Functions whose text may name a type.
_TYPED = frozenset(("from_json", "from_json_strict", "json_transform", "json_transform_strict"))
# Types whose aliases hold no values.
_PLAIN = frozenset(
    (
        *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER"),
        *("UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "VARCHAR", "BLOB", "BIT", "UUID", "DATE", "TIME"),
        *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "INTERVAL"),
    )
)
# So many calls of macros are followed; beyond that a source counts as one that cannot be read.
_MOST_CALLS = 2000


@dataclass(frozen=True)
class View:
    """A view of the catalog; `sql` is empty for a frame that DuckDB shows no text of."""

    path: tuple[str, str, str]
    sql: str


@dataclass(frozen=True)
class Macro:
    """One form of a macro that somebody made."""

    path: tuple[str, str, str]
    table: bool
    parameters: tuple[str, ...]
    types: tuple[str | None, ...]
    body: str


@dataclass(frozen=True)
class Catalogued:
    """What the catalog holds, as the statement sees it that reads a source.

    Attributes
    ----------
    views : sequence of View
    macros : sequence of Macro, or None
        None where they were not asked for: the plan is one whose texts were read before, or the texts call nothing.
    types : mapping of str to set of str
        The types that users made: by their name, folded, what they are.
    tables : sequence of path
    """

    views: Sequence[View] = ()
    macros: Sequence[Macro] | None = None
    types: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tables: Sequence[tuple[str, str, str]] = ()


def catalogued(found: Mapping[str, Any] | None) -> Catalogued:
    """Read what the statement that reads a source says of the catalog: views, and maybe macros, types and tables."""
    if found is None:
        return Catalogued()
    views = [View(_three(one["path"]), one["sql"] or "") for one in found["views"] or ()]
    tables = [_three(path) for path in found.get("tables") or ()]
    if "macros" not in found:
        return Catalogued(views, tables=tables)
    macros = [
        Macro(
            _three(one["path"]),
            one["sort"] == "table_macro",
            tuple(one["parameters"] or ()),
            tuple(one["types"] or ()),
            one["body"],
        )
        for one in found["macros"] or ()
    ]
    types: dict[str, frozenset[str]] = {}
    for one in found["types"] or ():
        name = fold(one["name"])
        types[name] = types.get(name, frozenset()) | {str(one["is"])}
    return Catalogued(views, macros, types, tables)


def _three(path: Sequence[str]) -> tuple[str, str, str]:
    database, schema, name = path
    return database, schema, name


@dataclass(frozen=True)
class _Text:
    """An expression, and what the parameters in it stand for."""

    tree: Tree
    given: Mapping[str, _Text]


@dataclass
class Closure:
    """What a source names.

    Parameters
    ----------
    source : str
        As the caller wrote it, for messages.
    catalogued : Catalogued
    enums : bool
        Whether a column that is read has an ENUM type.

    Attributes
    ----------
    named : dict of str to str
        The tables, views, files and frames that texts name: the last parts of their names, folded, and as written.
    texts : dict of str to str
        The texts that were read, by their paths.
    files : dict of str
        The files that a reader is given.
    calls : bool
        Whether a function, a macro or a type is named, which somebody may make anew.
    defined : set of str
        The names of WITH queries, folded.
    """

    source: str
    catalogued: Catalogued
    enums: bool = False
    named: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    files: dict[str, None] = field(default_factory=dict)
    calls: bool = False
    defined: set[str] = field(default_factory=set)
    _calls: int = 0
    _depth: int = 0

    def __post_init__(self) -> None:
        self._macros: dict[str, list[Macro]] = {}
        for macro in self.catalogued.macros or ():
            self._macros.setdefault(fold(macro.path[2]), []).append(macro)
        self._views: dict[str, list[View]] = {}
        for view in self.catalogued.views:
            self._views.setdefault(fold(view.path[2]), []).append(view)

    def source_of_rows(self, name: str) -> None:
        """Read the views of the source's own name, and what they name."""
        for view in self._views.get(fold(name), ()):
            self.view(view)

    def statement(self, sql: str) -> None:
        """Read what an aggregate form aggregates: its own SELECT and every WITH query, not what else is selected."""
        try:
            tree = tree_of(sql)
        except UnreadableTextError:
            raise hidden_statement() from None
        self.defined |= {fold(name) for node in _objects(tree) for name in _with_names(node.get("cte_map"))}
        around = [node for node in _objects(tree) if node.get("type") == "SELECT_NODE" and self._aggregates(node)]
        for node in around:
            self._read([part for name, part in node.items() if name != "select_list"], {})
            for call in self._aggregates(node):
                self._read(call, {})
        self._read(list(_objects_with(tree, "cte_map")) if around else tree, {})

    @property
    def elsewhere(self) -> list[str]:
        """The names that are no table, view, WITH query or file: variables of Python."""
        paths = (*(view.path for view in self.catalogued.views), *self.catalogued.tables)
        known = self.defined | {fold(path[2]) for path in paths}
        return [written for name, written in self.named.items() if name not in known and not is_file(written)]

    def _aggregates(self, node: Mapping[str, object]) -> list[Mapping[str, object]]:
        """Return the aggregate forms in what a SELECT returns, outside of subqueries."""
        found: list[Mapping[str, object]] = []
        open_ones = [node.get("select_list")]
        while open_ones:
            part = open_ones.pop()
            if isinstance(part, list):
                open_ones += part
            elif isinstance(part, dict) and part.get("class") != "SUBQUERY":
                path = _path(part, "function_name") if part.get("class") == "FUNCTION" else ()
                if path and own_columns(path[-1], self._candidates(path)) is not None:
                    found.append(part)
                else:
                    open_ones += [one for one in part.values() if isinstance(one, (dict, list))]
        return found

    def _named(self, name: str) -> None:
        """Note that a text names a table, and read the views of that name."""
        if fold(name) not in self.named:
            self.named[fold(name)] = name
            self.source_of_rows(name)

    def view(self, view: View) -> None:
        """Read a view, and what it names."""
        key = "\n".join(view.path)
        if key not in self.texts:
            self.texts[key] = view.sql
            if view.sql:
                self.query(view.sql)

    def query(self, sql: str) -> None:
        """Read a query."""
        try:
            tree = tree_of(sql)
        except UnreadableTextError:
            raise unreadable_text(self.source) from None
        for name in _UNWRITTEN:
            for macro in self._macros.get(name, ()):
                self._macro(macro, self._macros[name], [(None, None)] * len(macro.parameters), {})
        self._read(tree, {})

    def _read(self, tree: Tree, given: Mapping[str, _Text]) -> None:
        if isinstance(tree, list):
            for part in tree:
                self._read(part, given)
        if not isinstance(tree, dict):
            return
        self.defined |= set(map(fold, _with_names(tree.get("cte_map"))))
        whole = self._part(tree, given)
        for name, part in tree.items():
            if isinstance(part, (dict, list)) and name not in whole:
                self._read(part, given)

    def _part(self, tree: Mapping[str, object], given: Mapping[str, _Text]) -> tuple[str, ...]:
        """Judge one part of a tree; return its fields that need no further reading."""
        sort, kind = tree.get("class"), tree.get("type")
        if isinstance(sort, str):
            if sort not in _EXPRESSIONS:
                raise unreadable_text(self.source)
            return self._expression(sort, tree, given)
        if not isinstance(kind, str):
            return ()
        if kind == "BASE_TABLE":
            self._named(str(tree.get("table_name", "")))
        elif kind == "TABLE_FUNCTION":
            self._call(_as_call(tree.get("function"), self.source), given, table=True)
            return ("function",)
        elif kind == "SHOW_REF":
            self._show(tree)
        elif kind == "UNBOUND_TYPE_INFO":
            self._type([str(tree.get(part) or "") for part in ("catalog", "schema", "name")])
        elif kind not in _PARTS and not kind.endswith("_TYPE_INFO"):
            raise unreadable_text(self.source)
        if any(_objects_with(tree.get("pivots"), "pivot_enum")):
            raise type_refused(self.source, "PIVOT ... IN a type")
        return ()

    def _expression(self, sort: str, tree: Mapping[str, object], given: Mapping[str, _Text]) -> tuple[str, ...]:
        if sort == "CONSTANT":
            return ("value", "literal")
        if sort in ("FUNCTION", "WINDOW"):
            self._call(tree, given, table=False)
            return ("children", "arguments")
        if sort == "TYPE":
            path = _path(tree, "type_name")
            self._type(["", "", *path][-3:])
        elif sort == "COLUMN_REF":
            names = tree.get("column_names")
            word = fold(str(names[0])) if isinstance(names, list) and len(names) == 1 else ""
            if word in _WORDS and word not in given:
                self._function((_WORD_FUNCTIONS.get(word, word),), [], given, table=False)
        return ()

    def _show(self, tree: Mapping[str, object]) -> None:
        """Allow SUMMARIZE, which shows types; nothing else of that kind reads rows."""
        if tree.get("show_type") != "SUMMARY":
            raise unreadable_text(self.source)
        self._function(("typeof",), [], {}, table=False)
        if tree.get("table_name"):
            self._named(str(tree["table_name"]))

    def _type(self, path: Sequence[str]) -> None:
        """Refuse a type that somebody made, unless it is another name of a type without values."""
        self.calls = True
        name = fold(path[-1])
        made = self.catalogued.types.get(name)
        if made is None and (name not in functions.types() or any(path[:-1])):
            raise type_refused(self.source, path[-1])
        if made is not None and not made <= _PLAIN:
            raise type_refused(self.source, path[-1])

    def _call(self, tree: Mapping[str, object], given: Mapping[str, _Text], *, table: bool) -> None:
        """Judge a call, and read its arguments."""
        path, arguments = _path(tree, "function_name"), _arguments(tree)
        columns = own_columns(path[-1], self._candidates(path))
        if columns is not None and not table:  # an aggregate form of dpsql: all else are arguments of the call
            chosen = [one for place, one in enumerate(arguments) if (one[0] or "") in columns or place < len(columns)]
            for _, argument in chosen:
                self._read(argument, given)
            return
        self._function(path, arguments, given, table=table)
        for _, argument in arguments:
            self._read(argument, given)

    def _candidates(self, path: Sequence[str]) -> list[Macro]:
        """Return the macros that a name may stand for."""
        before = {fold(part) for part in path[:-1]}
        return [one for one in self._macros.get(fold(path[-1]), ()) if before <= set(map(fold, one.path[:2]))]

    def _function(
        self,
        path: Sequence[str],
        arguments: Sequence[tuple[str | None, Tree]],
        given: Mapping[str, _Text],
        *,
        table: bool,
    ) -> None:
        self.calls = True
        name = fold(path[-1])
        macros = self._candidates(path)
        group = functions.groups().get(name)
        if group is None and not macros:
            raise function_refused(self.source, path[-1])
        if group is not None:
            in_from = group.name in _FROM
            if not group.allowed or (group.name == "type" and self.enums) or (in_from and not table):
                raise function_refused(self.source, path[-1])
            if table and not (in_from or group.name == "generator" or macros):
                raise function_refused(self.source, path[-1])
        for macro in macros:
            self._macro(macro, macros, arguments, given)
        if name in ("query", "query_table"):
            self._by_text(name, arguments, given)
        elif name in _TYPED or (group is not None and group.name == "reader"):
            self._texts_of_types(arguments)
            file = _text(arguments[0][1], given) if arguments and table else None
            if file is not None:
                self.files[file] = None

    def _macro(
        self,
        macro: Macro,
        forms: Sequence[Macro],
        arguments: Sequence[tuple[str | None, Tree]],
        given: Mapping[str, _Text],
    ) -> None:
        """Read the body of a macro, with what its parameters stand for."""
        count = len(arguments)
        if len(macro.parameters) > count and not any(len(one.parameters) == count for one in forms):
            raise default_left_out(self.source, macro.path[2], macro.parameters)
        if len(macro.parameters) != count:
            return
        if any(kind is not None and "ENUM(" in kind for kind in macro.types):
            raise type_refused(self.source, "ENUM")
        self._calls += 1
        if self._calls > _MOST_CALLS or self._depth > _DEEPEST:
            raise unreadable_text(self.source)
        stands = {
            fold(name if name is not None else macro.parameters[place]): _Text(tree, given)
            for place, (name, tree) in enumerate(arguments)
        }
        self.texts["\n".join((*macro.path, *macro.parameters))] = macro.body
        try:
            tree = tree_of(macro.body) if macro.table else expression_tree(macro.body)
        except UnreadableTextError:
            raise unreadable_text(self.source) from None
        self._depth += 1
        self._read(tree, stands)
        self._depth -= 1

    def _by_text(self, name: str, arguments: Sequence[tuple[str | None, Tree]], given: Mapping[str, _Text]) -> None:
        """Read the query, or the tables, that a text names."""
        argument = arguments[0][1] if arguments else None
        if name == "query":
            predicted = _predicted_source(argument)
            found = None if predicted is None else _text(predicted, given)
            if found is not None:
                self._named(_last(found))
                return
            found = _text(argument, given)
            if found is None:
                raise unreadable_text(self.source, "query()")
            self.query(found)
            return
        for one in _listed(argument, given):
            found = _text(one.tree, one.given)
            if found is None:
                raise unreadable_text(self.source, "query_table()")
            self._named(_last(found))

    def _texts_of_types(self, arguments: Sequence[tuple[str | None, Tree]]) -> None:
        """Refuse a text that may name a type which somebody made, such as the types of a reader's columns."""
        made = [name for name, kinds in self.catalogued.types.items() if not kinds <= _PLAIN]
        for part in _objects([argument for _, argument in arguments]):
            text = _text(part, {}) if part.get("class") == "CONSTANT" else None
            for name in made:
                if text is not None and name in fold(text):
                    raise type_refused(self.source, name)


_FROM = frozenset(("reader", "frame", "query"))
_DEEPEST = 50


def _objects(tree: Tree) -> Iterator[Mapping[str, object]]:
    """Yield every object of a tree."""
    if isinstance(tree, dict):
        yield tree
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    for part in parts:
        yield from _objects(part)


def _objects_with(tree: Tree, name: str) -> Iterator[object]:
    return (found[name] for found in _objects(tree) if found.get(name))


def _as_call(tree: Tree, source: str) -> Mapping[str, object]:
    if not isinstance(tree, dict) or tree.get("class") != "FUNCTION":
        raise unreadable_text(source)
    return tree


def _path(tree: Mapping[str, object], last: str) -> tuple[str, ...]:
    """Return the name of a function or a type: ``qualified_name`` since DuckDB 2.0."""
    whole = tree.get("qualified_name")
    path = whole.get("path") if isinstance(whole, dict) else None
    if isinstance(path, list) and path:
        return tuple(map(str, path))
    return (*(str(tree[part]) for part in ("catalog", "schema") if tree.get(part)), str(tree.get(last, "")))


def _arguments(tree: Mapping[str, object]) -> list[tuple[str | None, Tree]]:
    """Return the arguments of a call, each with its name: ``arguments`` since DuckDB 2.0, ``children`` before."""
    listed = tree.get("arguments")
    if isinstance(listed, list):
        return [(one.get("name") or None, one.get("expression")) for one in listed if isinstance(one, dict)]
    children = tree.get("children")
    return [
        (one.get("alias") or None, one)
        for one in (children if isinstance(children, list) else ())
        if isinstance(one, dict)
    ]


def _text(tree: Tree, given: Mapping[str, _Text]) -> str | None:
    """Return the text that an expression is; None where it is no literal, and no parameter that stands for one."""
    if not isinstance(tree, dict):
        return None
    if tree.get("class") == "COLUMN_REF":
        names = tree.get("column_names")
        one = given.get(fold(str(names[0]))) if isinstance(names, list) and len(names) == 1 else None
        return None if one is None else _text(one.tree, one.given)
    literal, value = tree.get("literal"), tree.get("value")
    if isinstance(literal, dict) and literal.get("kind") == "STRING":
        return str(literal.get("text"))
    if isinstance(value, dict) and isinstance(value.get("value"), str):
        return str(value["value"])
    return None


def _listed(tree: Tree, given: Mapping[str, _Text]) -> list[_Text]:
    """Return the elements of a list of expressions; of any other expression, itself."""
    if isinstance(tree, dict) and tree.get("class") == "COLUMN_REF" and _text(tree, given) is None:
        names = tree.get("column_names")
        one = given.get(fold(str(names[0]))) if isinstance(names, list) and len(names) == 1 else None
        if one is not None:
            return _listed(one.tree, one.given)
    if isinstance(tree, dict) and tree.get("class") == "FUNCTION" and _path(tree, "function_name")[-1] == "list_value":
        return [_Text(argument, given) for _, argument in _arguments(tree)]
    return [_Text(tree, given)]


def _with_names(tree: Tree) -> list[str]:
    """Return the names of the queries of a WITH clause."""
    listed = tree.get("map") if isinstance(tree, dict) else None
    return [str(one.get("key")) for one in listed or () if isinstance(one, dict)] if isinstance(listed, list) else []


def _predicted_source(tree: Tree) -> Tree | None:
    """Return the source of the query that `dp_predictions` writes."""
    if not isinstance(tree, dict) or tree.get("class") != "FUNCTION":
        return None
    arguments = _arguments(tree)
    return arguments[2][1] if _path(tree, "function_name")[-1] == "dpsql_predictions" and len(arguments) == 3 else None


def _last(name: str) -> str:
    """Return the table's own name in a name that `query_table` takes."""
    try:
        return source_parts(name)[-1]
    except ParameterError:
        return name
