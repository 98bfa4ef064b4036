"""DuckDB's bound plan as JSON: the fields that dpsql reads, on every supported version.

``json_serialize_plan`` binds a query in the caller's session and returns the logical plan before optimisation. It runs
nothing, reads no row, and does not depend on the rows. This module alone reads its output. Anything unexpected raises
`UnreadableError`: dpsql does not place, and so does not answer, a source whose plan it cannot read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from dpsql.contract.parameters import fold
from dpsql.engines.duckdb.spending_record import of_mark, record_named
from dpsql.rendering import cast, identifier, text

Node = Mapping[str, object]

# The first number of virtual columns, such as rowid.
_VIRTUAL = 1 << 63
# Numbers that the binder assigns in the order of tables.
_NUMBERED = frozenset(
    (
        *("table_index", "group_index", "aggregate_index", "groupings_index", "window_index", "unnest_index"),
        *("mark_index", "cte_index"),
    )
)
# Fields that depend on rows or spelling.
_FORGOTTEN = frozenset(
    ("estimated_cardinality", "has_estimated_cardinality", "query_location", "query_location_length")
)
# Fields that hold only names and types of columns.
_PLAIN = frozenset(
    ("returned_types", "column_indexes", "names", "types", "chunk_types", "return_type", "type", "arguments")
)
_INTEGERS = frozenset(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"))
# JSON's containers. A test of the class takes a third of the time of a test for subclasses.
NESTED = frozenset((dict, list))
# Expressions whose parts are all in `children` or `child`.
_SIMPLE = frozenset(("BOUND_FUNCTION", "BOUND_OPERATOR", "BOUND_CAST", "BOUND_CONSTANT"))
# Types that contain no other types and no values, as an ENUM does.
PLAIN_TYPES = frozenset(
    (
        *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER"),
        *("UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "VARCHAR", "BLOB", "BIT", "UUID", "DATE", "TIME"),
        *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "INTERVAL"),
    )
)
# Types without text, and types whose text DuckDB checks for UTF-8 when it stores them, also inside other types. VARIANT
# is not among them. The plan contains the labels of an ENUM, and would not be UTF-8 otherwise.
_CHECKED = PLAIN_TYPES | {"TIME_NS", "TIME WITH TIME ZONE", "ENUM", "STRUCT", "LIST", "ARRAY", "MAP", "UNION"}


# The first word of the text that marks the twin of a view over files.
_TWIN = "dpsql_file "


class UnreadableError(Exception):
    """The plan contains a part that this module does not know; the message names it."""


class MissingError(Exception):
    """The query names an object that is not in the catalog."""


@lru_cache(maxsize=8)  # a call reads its plans several times
def read(text: str) -> Node | None:
    """Return the root of a plan, or None if DuckDB cannot serialize the plan (files, frames).

    Raises
    ------
    MissingError
        The catalog has no such table.
    UnreadableError
        The text is not a plan.
    SourceError
        S016: the plan reads the database's record of its ledger.
    """
    try:
        # DuckDB 2.0 casts literals while it binds, and writes NaN as NAN, which is not JSON.
        # Inside a string a backslash would precede these quotes.
        document = json.loads(text.replace('"value":NAN', '"value":NaN'))
    except ValueError:
        raise UnreadableError("the plan") from None
    if not isinstance(document, dict):
        raise UnreadableError("the plan")
    if document.get("error"):
        if document.get("error_subtype") == "MISSING_ENTRY":
            raise MissingError
        return None
    if of_mark(text):
        raise record_named()
    plans = document.get("plans")
    if not isinstance(plans, list) or len(plans) != 1 or not isinstance(plans[0], dict):
        raise UnreadableError("the plan")
    node: Node = plans[0]
    return node


def kind(node: Node) -> str:
    """Return an operator's kind, such as ``'FILTER'``."""
    name = node.get("type")
    if not isinstance(name, str) or not name.startswith("LOGICAL_"):
        raise UnreadableError("an operator without a kind")
    return name.removeprefix("LOGICAL_")


def children(node: Node) -> list[Node]:
    """Return the inputs of an operator."""
    inputs = node.get("children", [])
    if not isinstance(inputs, list) or not all(isinstance(child, dict) for child in inputs):
        raise UnreadableError(kind(node))
    return inputs


def number(node: Node, field: str) -> int:
    """Return an integer field of an operator; a missing field is 0."""
    integer = node.get(field, 0)
    if not isinstance(integer, int) or isinstance(integer, bool):
        raise UnreadableError(f"{kind(node)} {field}")
    return integer


def listed(node: Node, field: str) -> list[object]:
    """Return a list field of an operator; a missing field is empty."""
    elements = node.get(field, [])
    if not isinstance(elements, list):
        raise UnreadableError(f"{node.get('type')} {field}")
    return elements


def as_node(value: object) -> Node:
    """Return a part of a plan that is an object."""
    if not isinstance(value, dict):
        raise UnreadableError("a part that is no object")
    return value


def as_list(value: object) -> list[object]:
    """Return a part of a plan that is a list."""
    if not isinstance(value, list):
        raise UnreadableError("a part that is no list")
    return value


def integer(value: object, what: str) -> int:
    """Return a part of a plan that is an integer."""
    if not isinstance(value, int):
        raise UnreadableError(what)
    return value


def reference(expression: object) -> int | None:
    """Return the column that an expression passes on unchanged; None for any other expression.

    An ENUM that is cast to VARCHAR counts as unchanged: two labels of one type are two strings.
    """
    if not isinstance(expression, dict):
        return None
    expression = _of_label(expression)
    if expression.get("expression_class") != "BOUND_REF":
        return None
    index = expression.get("index", 0)
    return index if isinstance(index, int) else None


def _of_label(expression: dict[str, object]) -> dict[str, object]:
    """Return the operand of a cast from ENUM to VARCHAR; any other expression unchanged."""
    if expression.get("type") != "OPERATOR_CAST" or type_of(expression) != "VARCHAR":
        return expression
    inner = expression.get("child") or (arguments(expression) or [None])[0]
    return inner if isinstance(inner, dict) and type_of(inner) == "ENUM" else expression


def twin_sql(path: tuple[str, str, str], digest: str, columns: Iterable[tuple[str, str]]) -> str:
    """Return the FROM item of an empty twin of a view over files: its columns by name and type, and no row.

    DuckDB does not serialise the plan of what reads a file. So queries are judged over the twin, whose scan tells which
    view it stands for, and in which words. It never runs.
    """
    marked = text(f"{_TWIN}{json.dumps([*path, digest])}")
    nulls = ", ".join(f"{cast('NULL', kind)} AS {identifier(name)}" for name, kind in columns)
    return f"(SELECT {nulls} FROM system.main.repeat({marked}, 0))"


def is_twin(node: Node) -> bool:
    """Whether a scan is that of a twin of a view over files."""
    return _marked(node) is not None


def _marked(node: Node) -> tuple[str, str, str] | None:
    """Return the view that the scan of a twin stands for; None for any other scan."""
    arguments = listed(node, "parameters")
    mark = as_node(arguments[0]).get("value") if arguments and function_of(node) == "repeat" else None
    if not isinstance(mark, str) or not mark.startswith(_TWIN):
        return None
    try:
        database, schema, name, _ = map(str, json.loads(mark.removeprefix(_TWIN)))
    except (ValueError, TypeError):
        return None  # a text of a caller, repeated
    return database, schema, name


def table_of(node: Node) -> tuple[str, str, str] | None:
    """Return the database, schema and name of the table that a scan reads; None for a scan of anything else.

    The scan of a twin counts as a scan of its view.
    """
    data = node.get("function_data")
    if function_of(node) != "seq_scan":
        return _marked(node)
    parts = [str(data.get(part) or "") for part in ("catalog", "schema", "table")] if isinstance(data, dict) else []
    if len(parts) != 3 or not all(parts):
        raise UnreadableError("a scan without its table")
    return parts[0], parts[1], parts[2]


def function_of(node: Node) -> str:
    """Return the table function that a scan calls: ``name`` on DuckDB 1.5, the end of ``qname.path`` since 2.0."""
    name, qname = node.get("name"), node.get("qname")
    if name is None and isinstance(qname, dict):
        path = qname.get("path")
        name = path[-1] if isinstance(path, list) and path else None
    if not isinstance(name, str):
        raise UnreadableError("a scan without its function")
    return name


def is_checked(node: Node) -> bool:
    """Whether a scan reads a stored table, with only types whose text DuckDB checked when it stored the rows."""
    return table_of(node) is not None and not is_twin(node) and _are_checked(listed(node, "returned_types"))


def _are_checked(value: object) -> bool:
    """Return whether DuckDB checks every type in a part of a plan."""
    if isinstance(value, list):
        return all(map(_are_checked, value))
    if not isinstance(value, dict):
        return True
    return value.get("id", "VARCHAR") in _CHECKED and _are_checked(list(value.values()))


def scanned_columns(node: Node) -> list[str | None]:
    """Return the column names of a scan, in order; None for a virtual column, such as rowid."""
    names, indexes = listed(node, "names"), listed(node, "column_indexes")
    if listed(node, "projection_ids"):
        indexes = [indexes[integer(position, "a scan's columns")] for position in listed(node, "projection_ids")]
    out: list[str | None] = []
    for index in indexes:
        position = integer(index.get("index", 0) if isinstance(index, dict) else index, "a scan's columns")
        if position >= _VIRTUAL:
            out.append(None)
        elif position < len(names) and not (isinstance(index, dict) and listed(index, "child_indexes")):
            name = names[position]
            out.append(None if name is None else str(name))
        else:
            raise UnreadableError("a scan's columns")
    return out


def _objects(value: object) -> Iterator[dict[str, object]]:
    """Yield every object of a plan; skip the lists of columns and types, which may be long."""
    open_ones = [value]
    while open_ones:
        tree = open_ones.pop()
        if isinstance(tree, dict):
            yield tree
            open_ones += [part for name, part in tree.items() if part.__class__ in NESTED and name not in _PLAIN]
        elif isinstance(tree, list):
            open_ones += [part for part in tree if part.__class__ in NESTED]


def scans(value: object) -> Iterator[Node]:
    """Yield every scan of a plan, also outside the operators' children."""
    return (node for node in _objects(value) if node.get("type") == "LOGICAL_GET")


def operators(node: Node) -> Iterator[Node]:
    """Yield every operator of a plan."""
    yield node
    for child in children(node):
        yield from operators(child)


def functions(value: object) -> Iterator[str]:
    """Yield the name of every function that the expressions of a plan call."""
    for expression in _objects(value):
        if expression.get("expression_class") in ("BOUND_FUNCTION", "BOUND_AGGREGATE", "BOUND_WINDOW"):
            yield called(expression)


def called(expression: Node) -> str:
    """Return the name of the function that an expression calls; ``''`` for any other expression."""
    qname = expression.get("qname")
    path = qname.get("path") if isinstance(qname, dict) else None
    return str(path[-1] if path else expression.get("name", ""))


def is_own(expression: Node) -> bool:
    """Whether an expression calls a function of DuckDB's own schema, which nobody can write to."""
    qname = expression.get("qname")
    path = qname.get("path") if isinstance(qname, dict) else None
    schema = path[:2] if isinstance(path, list) else [expression.get("catalog_name"), expression.get("schema_name")]
    return schema == ["system", "main"]


def references(value: object) -> list[int | None]:
    """Return the columns that expressions read, one entry for each use."""
    return [
        reference(expression) for expression in _objects(value) if expression.get("expression_class") == "BOUND_REF"
    ]


def expressions(value: object) -> Iterator[Node]:
    """Yield every expression of a plan."""
    return (node for node in _objects(value) if "expression_class" in node)


def calls(value: object) -> Iterator[Node]:
    """Yield every call in expressions."""
    return (expression for expression in _objects(value) if expression.get("expression_class") == "BOUND_FUNCTION")


def arguments(expression: Node) -> list[object]:
    """Return the arguments of a call."""
    operands = expression.get("children", [])
    return operands if isinstance(operands, list) else []


def constant(expression: object) -> object:
    """Return the value of a literal; None for any other expression, and for NULL."""
    literal = expression.get("value") if isinstance(expression, dict) else None
    if not isinstance(literal, dict) or as_node(expression).get("type") != "VALUE_CONSTANT" or literal.get("is_null"):
        return None
    return literal.get("value")


def applied(expression: object) -> object:
    """Return what a lambda over a list of one row computes, over the columns of that row; else the expression itself.

    The splitter writes ``list_transform([struct_pack(c0 := x)], lambda row: TRY(f(row.c0)))[1]``, which is
    ``TRY(f(x))``: the list has one row, and the lambda reads only fields of it, no index and no other column.
    """
    transform, position = (*_arguments_of(expression, "list_extract"), None, None)[:2]
    lists = _arguments_of(transform, "list_transform")
    rows = _arguments_of(lists[0], "list_value") if len(lists) == 1 else []
    columns = _arguments_of(rows[0], "struct_pack") if len(rows) == 1 else []
    data = transform.get("function_data") if isinstance(transform, dict) else None
    if not columns or not isinstance(data, dict) or data.get("has_index") or constant(_uncast(position)) != 1:
        return expression
    body = _over(data.get("lambda_expr"), dict(zip(_fields(rows[0]), columns, strict=False)))
    return expression if body is None else body


def _arguments_of(expression: object, name: str) -> list[object]:
    """Return the arguments of a call of one of DuckDB's own functions, without lambdas; none for other expressions."""
    if not isinstance(expression, dict) or called(expression) != name or not is_own(expression):
        return []
    operands = list(map(as_node, arguments(expression)))
    lambdas = [operand for operand in operands if operand.get("expression_class") == "BOUND_LAMBDA"]
    return [] if any(part.get("captures") for part in lambdas) else [part for part in operands if part not in lambdas]


def _fields(row: object) -> list[str]:
    """Return the names of a struct's fields, in the order of its values."""
    info = as_node(as_node(as_node(row).get("return_type")).get("type_info"))
    return [str(as_node(field).get("first")) for field in listed(info, "child_types")]


def _uncast(expression: object) -> object:
    if isinstance(expression, dict) and expression.get("type") == "OPERATOR_CAST":
        return expression.get("child") or next(iter(arguments(expression)), None)
    return expression


def _over(body: object, columns: Mapping[str, object]) -> object:
    """Return a lambda's body with columns in place of its row's fields; None if it may read anything else."""
    if not isinstance(body, dict) or body.get("expression_class") not in _SIMPLE:
        return None
    field = _arguments_of(body, "struct_extract")
    if len(field) == 2 and reference(field[0]) == 0:
        return columns.get(str(constant(field[1])))
    out = dict(body)
    if "children" in body:
        out["children"] = [_over(part, columns) for part in arguments(body)]
    if "child" in body:
        out["child"] = _over(body["child"], columns)
    return None if None in (*arguments(out), out.get("child", body)) else out


def type_of(expression: object) -> str:
    """Return the name of an expression's type; ``''`` if the plan has none."""
    return_type = expression.get("return_type") if isinstance(expression, dict) else None
    return str(return_type.get("id", "")) if isinstance(return_type, dict) else ""


def output(node: Node) -> list[str] | None:
    """Return the names of a plan's columns; None if no projection gives them."""
    while kind(node) in ("MATERIALIZED_CTE", "ORDER_BY", "DISTINCT", "LIMIT"):
        node = children(node)[-1]
    if kind(node) != "PROJECTION":
        return None
    return [str(as_node(expression).get("alias", "")) for expression in listed(node, "expressions")]


def is_numbered(node: Node, column: str | None) -> bool:
    """Whether a plan shows that a column holds integers of at most 64 bits; names compare as in DuckDB."""
    while kind(node) in ("MATERIALIZED_CTE", "ORDER_BY", "DISTINCT", "LIMIT"):
        node = children(node)[-1]
    if column is None or kind(node) != "PROJECTION":
        return False
    matches = [
        expression
        for expression in listed(node, "expressions")
        if fold(str(as_node(expression).get("alias", ""))) == fold(column)
    ]
    return bool(matches) and all(type_of(expression) in _INTEGERS for expression in matches)


def normal_form(node: Node) -> str:
    """Return a plan's text with tables numbered by first occurrence: equal for equal plans in different statements."""
    return _text(node, whole_tables=True)


def meaning(node: Node, *, labels: bool = True) -> str:
    """Return a plan's text like `normal_form`, but of each table only the name and the columns that the plan reads.

    Private `labels` are left out: a digest of the text names a release, and so tells of the labels.
    """
    return _text(node, whole_tables=False, labels=labels)


def _text(node: Node, *, whole_tables: bool, labels: bool = True) -> str:
    numbers: dict[int, int] = {}

    def plain(value: object) -> object:
        if isinstance(value, list):
            return [plain(part) if part.__class__ in NESTED else part for part in value]
        if not isinstance(value, dict):
            return value
        if not labels and value.get("type") == "ENUM_TYPE_INFO":
            return "ENUM"
        if not whole_tables and value.get("type") == "LOGICAL_GET" and function_of(value) == "seq_scan":
            index = numbers.setdefault(number(value, "table_index"), len(numbers))
            return [index, table_of(value), scanned_columns(value)]
        out: dict[str, object] = {}
        for name in sorted(value):
            part = value[name]
            if name in _NUMBERED and isinstance(part, int):
                out[name] = numbers.setdefault(part, len(numbers))
            elif name not in _FORGOTTEN:
                out[name] = plain(part) if part.__class__ in NESTED else part
        return out

    return json.dumps(plain(node), separators=(",", ":"))
