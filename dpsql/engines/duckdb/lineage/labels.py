"""Public and private labels of ENUM columns, and the operations that a source may use on private labels.

`CREATE TYPE ... AS ENUM (SELECT ...)`, and every frame with categories, makes labels of rows: the labels and their
order depend on people. So dpsql reads an ENUM column of a protected table as text until the owner declares its labels.
A declaration stores a digest of the column's type: a column with other labels has private labels again.

A view may pass on such a column, test it for equality, count it, and cast it to text. All other operations on an ENUM
use the position of its labels (order, `min`, `max`, ranks) or show them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dpsql.contract.expression.kinds import Type, type_of
from dpsql.contract.parameters import fold, show
from dpsql.engines.duckdb.lineage import bound, paths
from dpsql.engines.duckdb.lineage.declarations import PUBLIC_KIND, Declaration, Declarations
from dpsql.errors import InternalError, SourceError
from dpsql.rendering import cast, identifier

# Operations that pass values on, or only test equality, by their names in DuckDB's plans.
_MOVES = frozenset(
    (
        *("CASE_EXPR", "OPERATOR_COALESCE", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "BOUND_UNNEST"),
        *("COMPARE_EQUAL", "COMPARE_NOTEQUAL", "COMPARE_IN", "COMPARE_NOT_IN", "COMPARE_DISTINCT_FROM"),
        *("COMPARE_NOT_DISTINCT_FROM", "WINDOW_LAG", "WINDOW_LEAD", "WINDOW_FIRST_VALUE", "WINDOW_LAST_VALUE"),
        *("WINDOW_NTH_VALUE", "WINDOW_ROW_NUMBER", "WINDOW_RANK", "WINDOW_RANK_DENSE", "WINDOW_PERCENT_RANK"),
        *("WINDOW_CUME_DIST", "WINDOW_NTILE"),
    )
)
_MOVING = frozenset(("struct_pack", "row", "list_value", "struct_extract", "struct_extract_at", "array_extract"))
_COUNTS = frozenset(("count",))
_EQUAL = frozenset(
    ("COMPARE_EQUAL", "COMPARE_NOTEQUAL", "COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM", "COMPARE_IN")
)


def digests(columns: Sequence[str], node: bound.Node | None) -> dict[str, str]:
    """Return a digest of the type of each labelled column of a source, by folded name."""
    types = [] if node is None else output_types(node)
    pairs = zip(columns, types, strict=False)
    return {fold(name): paths.digest(kind.sql) for name, kind in pairs if any(kind.labels)}


def private_labels_text(enum_labels: str, tables: Iterable[tuple[Sequence[str], bound.Node | None]]) -> str:
    """Return the message to an owner about ENUM columns with private labels; ``''`` if there are none.

    `tables` has the columns and the plan of each table.
    """
    sources = [(columns, digests(columns, node)) for columns, node in tables]
    names = [name for columns, labelled in sources for name in columns if fold(name) in labelled]
    if enum_labels == "public" or not names:
        return ""
    return (
        f"; read as text, as rows may have made their labels: {', '.join(dict.fromkeys(names))} (where these are known "
        "without the rows: enum_labels := 'public', replace := true)"
    )


def output_types(node: bound.Node) -> list[Type]:
    """Return the types of a plan's columns; none if no projection gives them."""
    while bound.kind(node) in ("MATERIALIZED_CTE", "ORDER_BY", "DISTINCT", "LIMIT"):
        node = bound.children(node)[-1]
    return (
        [_type(expression) for expression in bound.listed(node, "expressions")]
        if bound.kind(node) == "PROJECTION"
        else []
    )


def _type(expression: object) -> Type:
    record = bound.as_node(expression).get("return_type")
    if not isinstance(record, Mapping):
        value = bound.as_node(expression).get("value")  # of a constant
        record = value.get("type") if isinstance(value, Mapping) else None
    return type_of(record) if isinstance(record, Mapping) else Type("BOOLEAN")


class EnumLabels:
    """The public labels, as the owners declared them.

    Parameters
    ----------
    declarations : Declarations
    catalog : paths.Catalog
    own : sequence of Declaration
        Declarations of the source itself; a view's labels count for the columns that the view reads.
    """

    def __init__(self, declarations: Declarations, catalog: paths.Catalog, own: Sequence[Declaration] = ()) -> None:
        self._declarations = declarations
        self._catalog = catalog
        self._own = {
            digest for declaration in own if declaration.view is not None for digest in declaration.labels.values()
        }

    def private(self, node: bound.Node) -> dict[str, Type]:
        """Return the columns with private labels that the scans of a plan read, by folded name."""
        columns: dict[str, Type] = {}
        for scan in bound.scans(node):
            table = bound.table_of(scan)
            if table is None:
                continue
            about = self._declarations.about(self._catalog.table(table), table[0])
            if about and all(declaration.kind == PUBLIC_KIND for declaration in about):
                continue
            declared_labels = [declaration.labels for declaration in about if declaration.kind != PUBLIC_KIND]
            for name, kind in _scanned(scan):
                digest = paths.digest(kind.sql)
                if digest not in self._own and not any(labels.get(fold(name)) == digest for labels in declared_labels):
                    columns[fold(name)] = kind
        return columns

    def of_source(self, source: str, node: bound.Node, *, direct: bool) -> tuple[tuple[str, str], ...]:
        """Return the columns of a source that dpsql reads as text, in the form of `Placement.texts`.

        If a view reads private labels, these are all its columns with labels: equal labels tell of private labels.

        Raises
        ------
        SourceError
            S067: a view uses private labels, or their order.
        """
        private = self.private(node)
        if not private:
            return ()
        if not direct:
            refuse_order_of_labels(source, node, private)
        return tuple(
            (name, as_text(name, kind))
            for name, kind in zip(bound.output(node) or (), output_types(node), strict=False)
            if any(kind.labels) and (not direct or fold(name) in private)
        )

    def refuse_order(self, source: str, node: bound.Node) -> None:
        """Raise S067 if a plan uses private labels."""
        private = self.private(node)
        if private:
            refuse_order_of_labels(source, node, private)

    def contents(self, *parts: bound.Node) -> dict[str, Any]:
        """Return digests of the meaning of a plan's parts, for `Placement`: the digest, and that of earlier versions.

        A reader of a digest can guess labels, so it covers no private labels.
        """
        private = any(map(self.private, parts))
        content = paths.digest("".join(map(bound.meaning, parts)))
        if not private:
            return {"content": content}
        return {
            "content": paths.digest("".join(bound.meaning(part, labels=False) for part in parts)),
            "earlier": content,
        }

    def refuse_shown(self, source: str, node: bound.Node) -> bool:
        """Raise if the text written for a query uses or returns private labels; return whether it reads any.

        Raises
        ------
        SourceError
            S067: the text uses them.
        InternalError
            I036: the text returns them.
        """
        private = self.private(node)
        if private:
            refuse_order_of_labels(source, node, private)
            if any(any(kind.labels) for kind in output_types(node)):
                raise InternalError("I036", f"{source} was written with private labels. Report it.")
        return bool(private)


def _scanned(scan: bound.Node) -> Iterator[tuple[str, Type]]:
    """Yield the columns that a scan reads whose types have labels."""
    types = bound.listed(scan, "returned_types")
    names = [None if name is None else str(name) for name in bound.listed(scan, "names")]
    read = set(bound.scanned_columns(scan))
    for name, record in zip(names, types, strict=False):
        if name in read and name is not None and isinstance(record, Mapping):
            kind = type_of(record)
            if any(kind.labels):
                yield name, kind


def as_text(name: str, kind: Type) -> str:
    """Return the SQL of a column with VARCHAR for every ENUM."""
    return cast(identifier(name), kind.without_labels.sql)


def refuse_order_of_labels(source: str, node: bound.Node, private: Mapping[str, Type]) -> None:
    """Raise if a plan does more with an ENUM than pass it on, count it, or test it for equality."""
    for expression in bound.expressions(node):
        used = [operand for operand in _operands(expression) if any(_type(operand).labels)]
        if not used and not (_is_made(expression) and any(_type(expression).labels)):
            continue
        if _is_made(expression):
            raise goes_by_labels(source, private)
        if (
            _is_text(expression, used)
            or str(expression.get("type")) in _MOVES
            or bound.called(expression) in _MOVING | _COUNTS
        ):
            continue
        raise goes_by_labels(source, private)
    for part in _orders(node):
        if any(_type(part["expression"]).labels):
            raise goes_by_labels(source, private)
    for operator in bound.operators(node):
        for condition in _conditions(operator):
            sides = [condition.get(side) for side in ("left", "right")]
            ordered = condition.get("comparison") not in _EQUAL
            if ordered and any(any(_type(side).labels) for side in sides if isinstance(side, dict)):
                raise goes_by_labels(source, private)


def _is_made(expression: bound.Node) -> bool:
    """Whether an expression makes an ENUM value, and does not pass it on: a constant, or a cast to the type."""
    value = expression.get("value")
    if expression.get("type") == "VALUE_CONSTANT":
        return isinstance(value, Mapping) and not value.get("is_null") and any(_type(expression).labels)
    inner = _operands(expression)
    is_null = bool(inner) and all(_is_null(operand) for operand in inner)
    return expression.get("type") == "OPERATOR_CAST" and any(_type(expression).labels) and not is_null


def _is_null(expression: bound.Node) -> bool:
    value = expression.get("value")
    return expression.get("type") == "VALUE_CONSTANT" and isinstance(value, Mapping) and bool(value.get("is_null"))


def _is_text(expression: bound.Node, used: Sequence[bound.Node]) -> bool:
    """Whether an expression casts its one labelled operand to the same type with VARCHAR for every ENUM."""
    if expression.get("type") != "OPERATOR_CAST" or len(used) != 1:
        return False
    return _type(expression).sql == _type(used[0]).without_labels.sql


def _operands(expression: bound.Node) -> list[bound.Node]:
    """Return the operands of an expression."""
    candidates: list[object] = [
        expression.get(name) for name in ("left", "right", "child", "else_expr", "input", "lower", "upper")
    ]
    for name in ("children", "case_checks"):
        children = expression.get(name)
        candidates += children if isinstance(children, list) else []
    out: list[bound.Node] = []
    for candidate in candidates:
        if isinstance(candidate, dict) and "expression_class" in candidate:
            out.append(candidate)
        elif isinstance(candidate, dict):
            out += [part for part in candidate.values() if isinstance(part, dict) and "expression_class" in part]
    return out


def _orders(value: object) -> Iterator[Mapping[str, object]]:
    """Yield all order keys of rows or values in a plan."""
    open_ones = [value]
    while open_ones:
        branch = open_ones.pop()
        if isinstance(branch, dict):
            if "null_order" in branch and isinstance(branch.get("expression"), dict):
                yield branch
            open_ones += [part for part in branch.values() if part.__class__ in bound.NESTED]
        elif isinstance(branch, list):
            open_ones += [part for part in branch if part.__class__ in bound.NESTED]


def _conditions(node: bound.Node) -> Iterator[Mapping[str, object]]:
    conditions = node.get("conditions")
    yield from (
        (condition for condition in conditions if isinstance(condition, dict)) if isinstance(conditions, list) else ()
    )


def goes_by_labels(source: str, private: Mapping[str, Type]) -> SourceError:
    """Return the refusal of a source that uses private labels."""
    name = next(iter(private))
    return SourceError(
        "S067",
        f"{show(source)} goes by the labels of the ENUM column {show(name)}, or by their order, which rows may have "
        f"made. Write CAST({identifier(name)} AS VARCHAR) in the view; or, if the labels are known without the rows, "
        "let the owner declare them: dp_protect(..., enum_labels := 'public', replace := true).",
    )
