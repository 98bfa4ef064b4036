"""The syntax trees of views, macros and statements, from DuckDB's own parser; and the contents of the catalog.

`Catalogued` holds the catalog as a statement on a source sees it: views, macros, types and tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any

from dpsql.contract.parameters import fold
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.lineage.bound import NESTED
from dpsql.engines.duckdb.lineage.paths import Path, unique_keys
from dpsql.parsing import PARSER

Tree = object
Node = Mapping[str, object]
_NAME = r'(?:"(?:[^"]|"")+"|[^\s".(),]+)'
_PATH = rf"{_NAME}(?:\.{_NAME})*"
_COLUMNS = rf"(?:\s*\(\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\))?"
_SPACE = r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
# The text before the query of a view, and of a statement that may contain an aggregate form.
_BEFORE = re.compile(
    rf"{_SPACE}(?:EXPLAIN\s+(?:ANALYZE\s+)?(?:\([^)]*\)\s*)?)?(?:CREATE\s+(?:OR\s+REPLACE\s+)?(?:\w+\s+)*?(?:VIEW|TABLE)\s+(?:IF\s+NOT\s+EXISTS\s+)?{_PATH}{_COLUMNS}\s+AS\s"
    rf"|INSERT\s+INTO\s+{_PATH}{_COLUMNS}\s(?=\s*(?:SELECT|FROM|WITH)\b))?",
    re.IGNORECASE | re.DOTALL,
)
# The words before a generated column in DuckDB's text of a table. A string or a quoted name is one token.
GENERATED = "GENERATED ALWAYS AS"
_GENERATED = [*GENERATED.split(), "("]
_TOKEN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\w+|\s+|.""", re.DOTALL)
_COPY = re.compile(rf"{_SPACE}COPY\s*\((.*)\)\s*TO\s", re.IGNORECASE | re.DOTALL)


class UnreadableTextError(Exception):
    """dpsql cannot read a text."""


@lru_cache(maxsize=512)
def tree_of(sql: str) -> Tree:
    """Return the syntax tree of a query, or of the query in a view or a statement.

    Raises
    ------
    UnreadableTextError
        The text contains no query, or more than one.
    """
    copied, before = _COPY.match(sql), _BEFORE.match(sql)
    tree = _parsed(copied.group(1) if copied is not None else sql if before is None else sql[before.end() :])
    if tree is None:
        raise UnreadableTextError
    return tree


def relations(sql: str) -> tuple[str, ...]:
    """Return the last parts of the table names in a query; empty for a text that dpsql cannot read."""
    try:
        tree = tree_of(sql)
    except UnreadableTextError:
        return ()
    return tuple(str(part.get("table_name", "")) for part in objects(tree) if part.get("type") == "BASE_TABLE")


def expression_tree(sql: str) -> Tree:
    """Return the syntax tree of a query that selects an expression."""
    return tree_of(f"SELECT {sql}")


def _parsed(sql: str) -> Tree | None:
    """Return the tree of one statement, from a DuckDB without user settings, which all sessions share."""
    document = json.loads(PARSER.tree(sql))
    statements = document.get("statements")
    return None if document.get("error") or not isinstance(statements, list) or len(statements) != 1 else statements[0]


def objects(tree: Tree) -> Iterator[Node]:
    """Yield every object of a tree, each before its parts."""
    open_ones = [tree]
    while open_ones:
        part = open_ones.pop()
        if isinstance(part, dict):
            yield part
            open_ones += [child for child in reversed(part.values()) if child.__class__ in NESTED]
        elif isinstance(part, list):
            open_ones += [child for child in reversed(part) if child.__class__ in NESTED]


def objects_with(tree: Tree, name: str) -> Iterator[object]:
    """Yield the fields of one name in the objects of a tree."""
    return (node[name] for node in objects(tree) if node.get(name))


def path_of(tree: Node, last: str = "function_name") -> tuple[str, ...]:
    """Return the name of a function or a type: ``qualified_name`` since DuckDB 2.0."""
    qualified_name = tree.get("qualified_name")
    path = qualified_name.get("path") if isinstance(qualified_name, dict) else None
    if isinstance(path, list) and path:
        return tuple(map(str, path))
    return (*(str(tree[part]) for part in ("catalog", "schema") if tree.get(part)), str(tree.get(last, "")))


def arguments_of(tree: Node) -> list[tuple[str | None, Tree]]:
    """Return the arguments of a call, each with its name: ``arguments`` since DuckDB 2.0, ``children`` before."""
    listed, children = tree.get("arguments"), tree.get("children")
    if isinstance(listed, list):
        return [
            (argument.get("name") or None, argument.get("expression"))
            for argument in listed
            if isinstance(argument, dict)
        ]
    operands = children if isinstance(children, list) else []
    return [(argument.get("alias") or None, argument) for argument in operands if isinstance(argument, dict)]


def word_of(tree: Tree) -> str:
    """Return the name of a column without a path, folded; ``''`` for any other expression."""
    names = tree.get("column_names") if isinstance(tree, dict) and tree.get("class") == "COLUMN_REF" else None
    return fold(str(names[0])) if isinstance(names, list) and len(names) == 1 else ""


def literal_of(tree: Tree) -> str | None:
    """Return the text of a string literal; None for any other expression."""
    if not isinstance(tree, dict) or tree.get("class") == "COLUMN_REF":
        return None
    literal, value = tree.get("literal"), tree.get("value")
    if isinstance(literal, dict) and literal.get("kind") == "STRING":
        return str(literal.get("text"))
    return str(value["value"]) if isinstance(value, dict) and isinstance(value.get("value"), str) else None


def with_names(tree: Node) -> list[str]:
    """Return the names of the queries of a WITH clause."""
    clause = tree.get("cte_map")
    listed = clause.get("map") if isinstance(clause, dict) else None
    return [str(entry.get("key")) for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


@dataclass(frozen=True)
class View:
    """A view of the catalog; `sql` is empty for a frame without a text in DuckDB."""

    path: Path
    sql: str


@dataclass(frozen=True)
class Macro:
    """One overload of a user's macro."""

    path: Path
    table: bool
    parameters: tuple[str, ...]
    types: tuple[str | None, ...]
    body: str


@dataclass(frozen=True)
class Catalogued:
    """The contents of the catalog.

    `macros` and `functions` are None if they were not listed: dpsql judges a source once in each state of the catalog
    (`CatalogState`). `types` maps the folded names of users' types to their kinds. `generated` has the names and the
    texts of tables with generated columns. `functions` has DuckDB's own functions and all registered ones, see
    `functions.LINE`.
    """

    views: Sequence[View] = ()
    macros: Sequence[Macro] | None = None
    types: Mapping[str, frozenset[str]] = field(default_factory=dict)
    numbers: Mapping[Path, int] = field(default_factory=dict)  # of tables, by their paths
    constraints: Mapping[Path, Sequence[tuple[str, Sequence[str]]]] = field(default_factory=dict)  # by folded paths
    generated: Sequence[tuple[str, str]] = ()
    functions: Sequence[str] | None = None
    transaction: int = 0

    @property
    def tables(self) -> Sequence[Path]:
        """The paths of all tables."""
        return tuple(self.numbers)

    def unique(self, path: Path) -> list[frozenset[str]]:
        """Return the keys of a table; see `paths.unique_keys`."""
        database, schema, name = map(fold, path)
        return unique_keys(self.constraints.get((database, schema, name), ()))


def catalogued(catalog: Mapping[str, Any] | None) -> Catalogued:
    """Read the catalog from a statement's listing: views, and maybe macros, types and tables."""
    if catalog is None:
        return Catalogued()
    views = [View(_path(view["path"]), view["sql"] or "") for view in catalog.get("views") or ()]
    numbers = {_path(table["path"]): table["number"] for table in catalog.get("tables") or ()}
    generated = [(table["name"], table["sql"]) for table in catalog.get("generated") or ()]
    constraints: dict[Path, list[tuple[str, Sequence[str]]]] = {}
    for entry in catalog.get("keys") or ():
        database, schema, name = map(fold, entry["path"])
        constraints.setdefault((database, schema, name), []).append((str(entry["sort"]), entry["columns"] or ()))
    listed = catalog.get("listed") or catalog
    macros = None
    if listed.get("functions") is not None or "macros" in catalog:
        macros = [
            Macro(_path(macro["path"]), macro["sort"] == "table_macro", *_parameters(macro), macro["body"])
            for macro in listed["macros"] or ()
        ]
    types: dict[str, frozenset[str]] = {}
    for entry in catalog.get("types") or ():
        name = fold(entry["name"])
        types[name] = types.get(name, frozenset()) | {str(entry["is"])}
    return Catalogued(
        views,
        macros,
        types,
        numbers,
        constraints,
        generated,
        listed.get("functions"),
        catalog.get("transaction") or 0,
    )


def generated_columns(sql: str) -> tuple[str, ...]:
    """Return the expressions of a table's generated columns, from DuckDB's text of the table.

    Raises
    ------
    UnreadableTextError
        The text has the words without an expression after them.
    """
    expressions: list[str] = []
    words = [token for token in _TOKEN.finditer(sql) if not token[0].isspace()]
    for position in range(len(words)):
        if [word[0].upper() for word in words[position : position + 4]] != _GENERATED:
            continue
        depth, start = 1, words[position + 3].end()
        for word in words[position + 4 :]:
            depth += {"(": 1, ")": -1}.get(word[0], 0)
            if depth == 0:
                expressions.append(sql[start : word.start()])
                break
        else:
            raise UnreadableTextError
    return tuple(expressions)


def _path(parts: Sequence[str]) -> Path:
    database, schema, name = parts
    return database, schema, name


def _parameters(macro: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str | None, ...]]:
    return tuple(macro["parameters"] or ()), tuple(macro["types"] or ())
