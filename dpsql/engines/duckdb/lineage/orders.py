"""The order of rows: where DuckDB chooses among rows that compare equal, and which values depend on the choice.

DuckDB reads rows in morsels, and the split into morsels depends on all rows. So dpsql adds no doubles, as the last bit
would depend on the order, and a choice among tied rows is fixed only if the tied rows are alike.

An order *tells* a column if tied rows have the same bytes in it: the column is an order key and its type gives equal
values one spelling, or the key is an image of its bytes (``encode(name)``). An order is *total* if it tells every
column of the rows, or all columns of one key (`Rows.unique`): then tied rows are interchangeable, or there are none.
By induction, an operator's rows, as a multiset, depend only on the rows of its inputs. Two windows of one SELECT that
number rows by different orders may number identical rows differently, so without a key all windows need one order.

A DOUBLE has two zeros and several NaNs, which compare equal. If an order has such a key, tied rows are alike except for
these spellings, and the column is *loose* (`Rows.loose`): an expression may read a loose column only if it ignores
spellings, and dpsql reads loose columns of a source with one spelling. Other types with several spellings (INTERVAL,
text with a collation) need an order by an image of their bytes.

Lists name the functions and frames that are known to be fixed; all others count as decided by the order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.lineage import bound
from dpsql.engines.duckdb.lineage.functions import own
from dpsql.engines.duckdb.lineage.rows import INTEGERS, Rows
from dpsql.rendering import identifier

FLOATS = frozenset(("FLOAT", "DOUBLE"))
# Types whose equal values have the same bytes, and types made of others.
ONE_SPELLING = INTEGERS | frozenset(
    (
        *(
            "BOOLEAN",
            "HUGEINT",
            "UHUGEINT",
            "DECIMAL",
            "VARCHAR",
            "CHAR",
            "BLOB",
            "BIT",
            "UUID",
            "ENUM",
            "DATE",
            "TIME",
        ),
        *("TIME_NS", "TIME WITH TIME ZONE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"),
        "TIMESTAMP WITH TIME ZONE",
    )
)
NESTED = frozenset(("LIST", "ARRAY", "STRUCT", "MAP"))
# Types that add exactly.
EXACT = INTEGERS | frozenset(("BOOLEAN", "HUGEINT", "UHUGEINT", "DECIMAL", "BIGNUM", "INTERVAL"))
# Functions that ignore spellings of numbers: `_BLIND` return one spelling, `_LOOSE` a number with several.
_BLIND = frozenset(("isnan", "isfinite", "isinf", "=", "!=", "<", "<=", ">", ">=", "__between"))
_BLIND_TYPES = frozenset(("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "COMPARE_BETWEEN", "COMPARE_IN", "OPERATOR_NOT"))
_LOOSE = frozenset(("+", "-", "*", "abs", "round", "floor", "ceil", "ceiling", "trunc", "greatest", "least"))
_LOOSE_TYPES = frozenset(("OPERATOR_COALESCE", "CASE_EXPR"))


def type_in(expression: object) -> object:
    """Return the type of an expression in the plan."""
    return expression.get("return_type") if isinstance(expression, dict) else None


def type_names(kind: object) -> list[str]:
    """Return the names of a type and its inner types; text with a collation adds a name that no list has."""
    names: list[str] = []
    open_ones = [kind]
    while open_ones:
        part = open_ones.pop()
        if isinstance(part, list):
            open_ones += part
        elif isinstance(part, dict):
            if "id" in part:
                names.append(str(part["id"]))
            if part.get("collation"):
                names.append("a collation")
            open_ones += [child for name, child in part.items() if name != "values"]
    return names


def name_of(kind: object) -> str:
    """Return the name of a type without parameters."""
    return str(kind.get("id", "")) if isinstance(kind, dict) else ""


def article(expression: object) -> str:
    """Return the type of an expression in words."""
    ids = type_names(type_in(expression))
    if "a collation" in ids:
        return "text with a collation"
    kind = ids[0] if ids else "value"
    return f"{'an' if kind[:1] in 'AEIOU' else 'a'} {kind}"


def one_spelling(kind: object) -> bool:
    """Whether equal values of a type have the same bytes, however they are nested."""
    return bool(type_names(kind)) and {*type_names(kind)} <= ONE_SPELLING | NESTED


def has_one_spelling(expression: object) -> bool:
    """Whether equal values of an expression have the same bytes: an integer cast to a float has one zero."""
    node = expression if isinstance(expression, dict) else {}
    below = bound.arguments(node) or [node.get("child")]
    cast = node.get("type") == "OPERATOR_CAST" and bound.type_of(node) in FLOATS
    return one_spelling(type_in(node)) or (cast and bound.type_of(below[0]) in EXACT - {"INTERVAL", "BIGNUM"})


def group(expression: object) -> str | None:
    """Return ``''`` if each group of GROUP BY has one spelling, None for floats; or a description of the key.

    DuckDB groups text by the bytes of its collation key.
    """
    if has_one_spelling(expression) or (bound.reference(expression) is None and bound.type_of(expression) == "VARCHAR"):
        return ""
    return None if bound.type_of(expression) in FLOATS else f"GROUP BY {article(expression)}"


def reads_loose(rows: Rows, expressions: object) -> bool:
    """Whether expressions read a loose column of rows."""
    return bool(rows.loose.intersection(bound.references(expressions)))


def read(rows: Rows, expressions: Sequence[object]) -> tuple[str, list[bool]]:
    """Return the function that shows the spellings of a loose column, and whether each expression is loose."""
    spellings = [_spelled(rows, expression) for expression in expressions]
    return next((spelling for spelling in spellings if isinstance(spelling, str)), ""), [
        spelling is True for spelling in spellings
    ]


def _spelled(rows: Rows, expression: object) -> bool | str:
    """Return whether an expression is loose, or the name of its function that shows spellings."""
    if not reads_loose(rows, expression) or not isinstance(expression, dict):
        return False
    if bound.reference(expression) is not None:
        return True
    name, kind = bound.called(expression), str(expression.get("type"))
    below = [_spelled(rows, part) for part in parts(expression)]
    function = next((spelling for spelling in below if isinstance(spelling, str)), "")
    if function:
        return function
    if not any(below) or kind.startswith(("COMPARE_", "CONJUNCTION_")) or kind in _BLIND_TYPES or name in _BLIND:
        return False
    if kind == "CASE_EXPR" and _is_of_one_spelling(expression):
        return False
    if kind == "OPERATOR_CAST":
        target = bound.type_of(expression)
        return False if target in EXACT else True if target in FLOATS else f"a cast to {target}"
    if (kind in _LOOSE_TYPES or name in _LOOSE) and bound.type_of(expression) in FLOATS:
        return True
    return f"{name}()" if name else kind


def _is_of_one_spelling(node: bound.Node) -> bool:
    """Whether a CASE gives a number one zero and one NaN, as ``CASE WHEN isnan(x) THEN 'nan' ELSE x + 0 END`` does."""
    checks, last = bound.listed(node, "case_checks"), bound.as_node(node.get("else_expr"))
    first, *others = [(bound.as_node(check["when_expr"]), check["then_expr"]) for check in map(bound.as_node, checks)]
    of = shape(bound.arguments(first[0]))
    if bound.called(first[0]) != "isnan" or not all(_is_literal(then) for _, then in (first, *others)):
        return False
    if not others:
        operands = bound.arguments(last)
        return bound.called(last) == "+" and len(operands) == 2 and shape(operands[:1]) == of and _is_zero(operands[1])
    when = others[0][0]
    operands = bound.arguments(when) or [when.get("left"), when.get("right")]
    equal = when.get("type") == "COMPARE_EQUAL" and shape(operands[:1]) == of and _is_zero(operands[1])
    return len(others) == 1 and equal and _is_zero(others[0][1]) and shape([last]) == of


def _is_literal(expression: object) -> bool:
    """Whether an expression is a literal, maybe cast."""
    node = bound.as_node(expression)
    if node.get("type") == "OPERATOR_CAST":
        return _is_literal((bound.arguments(node) or [node.get("child")])[0])
    return node.get("type") == "VALUE_CONSTANT"


def _is_zero(expression: object) -> bool:
    """Whether an expression is the literal 0, maybe cast; -0 has another text."""
    node = bound.as_node(expression)
    if node.get("type") == "OPERATOR_CAST":
        return _is_zero((bound.arguments(node) or [node.get("child")])[0])
    return repr(bound.constant(node)) in ("0", "0.0", "'0'", "'0.0'")


def parts(expression: bound.Node) -> list[object]:
    """Return the direct subexpressions of an expression."""
    expressions: list[object] = []
    open_ones: list[object] = list(expression.values())
    while open_ones:
        part = open_ones.pop()
        if isinstance(part, dict) and "expression_class" in part:
            expressions.append(part)
        elif isinstance(part, dict):
            open_ones += part.values()
        elif isinstance(part, list):
            open_ones += part
    return expressions


def shape(value: object) -> object:
    """Return a part of a plan without the names and positions of its expressions."""
    if isinstance(value, list):
        return [shape(part) for part in value]
    if not isinstance(value, dict):
        return value
    left_out = ("alias", "query_location", "query_location_length")
    return {name: shape(part) for name, part in sorted(value.items()) if name not in left_out}


def loosened(rows: Rows, columns: Iterable[int]) -> Rows:
    """Return rows with more loose columns."""
    return replace(rows, loose=rows.loose | frozenset(columns))


# Types whose order distinguishes all values that a key distinguishes.
_COMPARED = ONE_SPELLING | FLOATS | {"INTERVAL"}
# Casts that show all of a value, by source type.
_IMAGES = {
    "DOUBLE": "BIT",
    "FLOAT": "BIT",
    **dict.fromkeys(("INTERVAL", "BIGNUM"), "VARCHAR"),
}
# Types whose text shows all of a value.
_SHOWN = frozenset(("VARCHAR", "INTERVAL", "BIGNUM"))
# Functions that DuckDB writes around an order key to compare bytes.
_COMPARABLE = frozenset(("bitstring_byte_comparable", "timetz_byte_comparable"))
_COUNTS = frozenset(("count", "count_star", "count_if", "countif", "regr_count", "bool_and", "bool_or"))
# Aggregates that return one of their values, or a value between two of them.
_VALUES = frozenset(("min", "max", "median", "quantile", "quantile_cont", "quantile_disc", "mad"))
_LISTS = frozenset(("list", "array_agg", "string_agg", "group_concat", "listagg"))
_FIRSTS = frozenset(("first", "last", "any_value", "arbitrary"))
_EXTREMES = frozenset(
    f"{name}{nulls}" for name in ("arg_max", "arg_min") for nulls in ("", "_null", "_nulls_last")
) | frozenset(("argmax", "argmin", "max_by", "min_by"))
# Window functions that give tied rows the same value; that choose a row of the frame; and that number rows.
_OF_PEERS = frozenset(f"WINDOW_{name}" for name in ("RANK", "RANK_DENSE", "PERCENT_RANK", "CUME_DIST"))
_OF_FRAME = frozenset(f"WINDOW_{name}" for name in ("FIRST_VALUE", "LAST_VALUE", "NTH_VALUE"))
_NUMBERING = frozenset(f"WINDOW_{name}" for name in ("ROW_NUMBER", "LEAD", "LAG", "NTILE", "FILL"))
# Frame ends that do not separate tied rows.
_WHOLE_ENDS = frozenset(
    f"{end}_{unit}" for end in ("CURRENT_ROW", "EXPR_PRECEDING", "EXPR_FOLLOWING") for unit in ("RANGE", "GROUPS")
) | frozenset(("UNBOUNDED_PRECEDING", "UNBOUNDED_FOLLOWING"))
_SORTS = frozenset(("list_sort", "array_sort", "list_reverse_sort", "array_reverse_sort"))
# Predictions for a list of names, each counted once: `LinearModel.predict_rows` sorts them.
_PREDICTS = frozenset(("dpsql_predict", "dpsql_predict_class"))


class PlanColumn(NamedTuple):
    """A column of an operator, as the plan names it."""

    name: str
    kind: object  # its type in the plan


def _image(expression: object) -> list[int]:
    """Return the columns whose bytes an expression shows in full."""
    node = expression if isinstance(expression, dict) else {}
    position = bound.reference(node)
    if position is not None:
        return [position] if one_spelling(type_in(node)) else []
    below = bound.arguments(node) or [node.get("child")]
    inner = bound.reference(below[0])
    source, target = bound.type_of(below[0]), bound.type_of(node)
    if node.get("type") == "OPERATOR_CAST":
        is_image = inner is not None and not node.get("try_cast") and _IMAGES.get(source) == target
        return [inner] if is_image and inner is not None else []
    if not bound.is_own(node) and node.get("catalog_name") is not None:
        return []
    name = bound.called(node)
    if name == "encode" and len(below) == 1:
        reference = as_text(below[0])
        return (
            []
            if reference is None or type_names(type_in(reference))[0] not in _SHOWN
            else [bound.reference(reference) or 0]
        )
    if name in ("row", "struct_pack") or name in _COMPARABLE:
        return [column for part in below for column in _image(part)]
    return []


def as_text(expression: object) -> bound.Node | None:
    """Return the reference to a column if an expression is the column's text; else None."""
    node: bound.Node = expression if isinstance(expression, dict) else {}
    if node.get("type") == "OPERATOR_CAST" and bound.type_of(node) == "VARCHAR" and not node.get("try_cast"):
        node = bound.as_node((bound.arguments(node) or [node.get("child")])[0])
    return node if bound.reference(node) is not None and bound.type_of(node) else None


def _with_spelling(expressions: Sequence[object]) -> set[int]:
    """Return the columns that an order has twice: by value, and by an image that distinguishes equal values."""
    columns = set[int]()
    passed = {column for column in map(bound.reference, expressions) if column is not None}
    for node in (expression for expression in expressions if isinstance(expression, dict)):
        below = bound.arguments(node)
        name = bound.called(node) if len(below) == 1 else ""
        reference = as_text(below[0]) if name in ("encode", "signbit") else None
        ids = {*type_names(type_in(reference))}
        if reference is not None and (name == "signbit") == (ids <= FLOATS) and ids <= _COMPARED | NESTED:
            columns |= passed & {bound.reference(reference) or 0}
    return columns


def determined_columns(rows: Rows, expressions: Sequence[object]) -> frozenset[int]:
    """Return the columns that have the same bytes in rows with equal expressions."""
    columns = {column for expression in expressions for column in _image(expression)} | _with_spelling(expressions)
    return _closed(rows, columns)


def _closed(rows: Rows, columns: set[int]) -> frozenset[int]:
    """Return columns and the columns that they tell."""
    more = {other for column, other in rows.tells if column in columns} - columns
    return _closed(rows, columns | more) if more else frozenset(columns)


def _compared(expressions: Iterable[object]) -> frozenset[int]:
    """Return the columns that are equal in rows with equal expressions."""
    columns: set[int] = set()
    for expression in expressions:
        column = bound.reference(expression)
        if column is not None and {*type_names(type_in(expression))} <= _COMPARED:
            columns.add(column)
        elif isinstance(expression, dict) and bound.called(expression) in ("row", "struct_pack"):
            columns |= _compared(bound.arguments(expression))
    return frozenset(columns)


@dataclass(frozen=True)
class Choice:
    """The columns that an order does not fix (`missing`), or fixes except for spellings (`loose`).

    `missing` is None if no ORDER BY can fix the choice.
    """

    missing: frozenset[int] | None = frozenset()
    loose: frozenset[int] = frozenset()

    @property
    def fixed(self) -> bool:
        """Whether tied rows are alike, except for the spellings of loose columns."""
        return self.missing == frozenset()


def choice(rows: Rows, by: Sequence[object], of: Collection[int] | None = None) -> Choice:
    """Return the columns that a choice among rows with equal expressions leaves open.

    With `of`, only these columns count, such as the arguments of an aggregate.
    """
    if rows.alone:
        return Choice()
    fixed_columns, compared = determined_columns(rows, by), _compared(by)
    for key in rows.unique:
        if key <= fixed_columns | compared:
            return Choice()
    columns = frozenset(range(rows.width) if of is None else of)
    floats = frozenset(
        column
        for expression in by
        for column in [bound.reference(expression)]
        if column is not None and bound.type_of(expression) in FLOATS
    )
    missing = columns - fixed_columns
    if missing <= floats:
        return Choice(loose=missing)
    ways = [missing - floats, *(key - fixed_columns - compared for key in rows.unique)]
    return Choice(min(ways, key=lambda way: (len(way), sorted(way))))


def ordering(node: bound.Node, field: str) -> list[object]:
    """Return the expressions of an order."""
    orders = node.get(field)
    if isinstance(orders, dict):
        orders = orders.get("orders")
    return [bound.as_node(order).get("expression") for order in (orders if isinstance(orders, list) else [])]


def words(columns: Sequence[PlanColumn] | None, missing: Collection[int] | None, begun: bool) -> str:
    """Return an ORDER BY that tells some columns, after the keys that it has (`begun`); ``''`` if there is none.

    There is none if the plan does not name the columns, or a column's type has no known order.
    """
    if columns is None or not missing or max(missing) >= len(columns):
        return ""
    names = [column.name for column in columns]
    keys: list[str] = []
    for index in sorted(missing):
        name, kind = columns[index]
        if not name or names.count(name) > 1:
            return ""
        name = name if re.fullmatch("[a-z_][a-z0-9_]*", name) else identifier(name)
        ids = type_names(kind)
        if one_spelling(kind):
            keys.append(name)
        elif ids == ["VARCHAR", "a collation"]:
            keys.append(f"encode({name})")
        elif ids and ids[0] in FLOATS:
            keys.append(name)
        elif len(ids) == 1 and ids[0] in _IMAGES:
            keys.append(f"CAST({name} AS {_IMAGES[ids[0]]})")
        else:
            return ""
    return f"ORDER BY {'..., ' if begun else ''}{', '.join(keys)}"


def columns_of(node: bound.Node) -> list[PlanColumn] | None:
    """Return the names and types of an operator's columns; None if the plan lacks them."""
    kind, below = bound.kind(node), bound.children(node)
    outputs = [PlanColumn(_last(expression), type_in(expression)) for expression in bound.listed(node, "expressions")]
    if kind == "GET":
        names, types = bound.scanned_columns(node), dict(zip(bound.listed(node, "names"), _types(node), strict=False))
        return [PlanColumn(name or "", types.get(name)) for name in names]
    if kind == "PROJECTION":
        under = None if all(output.name for output in outputs) else columns_of(below[0])
        positions = [bound.reference(expression) for expression in bound.listed(node, "expressions")]
        return [
            under[position] if not output.name and under and position is not None and position < len(under) else output
            for output, position in zip(outputs, positions, strict=True)
        ]
    if kind == "AGGREGATE_AND_GROUP_BY":
        return [
            *(PlanColumn(_last(expression), type_in(expression)) for expression in bound.listed(node, "groups")),
            *outputs,
        ]
    inputs = [columns_of(child) for child in below]
    if any(columns is None for columns in inputs) or not inputs:
        return None
    if kind in ("FILTER", "ORDER_BY", "DISTINCT") and not bound.listed(node, "projection_map"):
        return inputs[0]
    if kind == "UNION":
        return inputs[0]
    if kind == "WINDOW":
        return [*(inputs[0] or ()), *outputs]
    if kind in ("CROSS_PRODUCT", "COMPARISON_JOIN") and node.get("join_type", "INNER") in ("INNER", "LEFT", "RIGHT"):
        maps = [bound.listed(node, f"{side}_projection_map") for side in ("left", "right")]
        return None if any(maps) else [*(inputs[0] or ()), *(inputs[1] or ())]
    return None


def _last(expression: object) -> str:
    """Return the name of an expression; DuckDB 1.5 may put the table before it; ``''`` means no name."""
    name = str(bound.as_node(expression).get("alias", ""))
    return name.rsplit(".", 1)[-1] if bound.reference(expression) is not None else name


def _types(node: bound.Node) -> list[object]:
    return bound.listed(node, "returned_types")


def sorted_lists(expressions: Sequence[object]) -> frozenset[int]:
    """Return the columns that expressions read only as lists to sort, or as names to predict for.

    The order of these lists does not matter.
    """
    read, within = bound.references(expressions), list[int | None]()
    for call in bound.calls(expressions):
        if bound.called(call) in _SORTS:
            within += [bound.reference(argument) for argument in bound.arguments(call)[:1]]
            within += bound.references(call.get("function_data"))  # DuckDB stores the sort keys here
        elif bound.called(call) in _PREDICTS:
            within += [bound.reference(argument) for argument in bound.arguments(call)[1:] if _is_names(argument)]
    return frozenset(column for column in within if column is not None and read.count(column) == within.count(column))


def _is_names(expression: object) -> bool:
    """Whether an expression is a list of texts."""
    kind = bound.as_node(expression).get("return_type")
    details = kind.get("type_info") if isinstance(kind, dict) and kind.get("id") == "LIST" else None
    inner = details.get("child_type") if isinstance(details, dict) else None
    return isinstance(inner, dict) and inner.get("id") == "VARCHAR"


class Dependence(NamedTuple):
    """A function's dependence on order: its name if the order decides, and the columns that the order leaves open."""

    unfixed: str = ""
    missing: frozenset[int] | None = None
    loose: bool = False  # the function's own value has several spellings
    begun: bool = False  # its ORDER BY lacks keys


def aggregate(rows: Rows, node: bound.Node, by: Sequence[object], *, is_sorted: bool = False) -> Dependence:
    """Judge an aggregate of rows with equal expressions `by`.

    Sums and averages of integers and decimals are exact, so no order changes them. A list has the rows' values in
    order: tied elements of a sorted list are equal.
    """
    name, arguments = bound.called(node), bound.arguments(node)
    listed = own().get(name)
    if rows.alone:
        return Dependence(loose=bound.type_of(node) in FLOATS and reads_loose(rows, arguments))
    if listed is not None and listed.group == "addition":
        exact = all(bound.type_of(argument) in EXACT for argument in arguments)
        return Dependence("" if exact else f"{name}() of a {bound.type_of(arguments[0])}")
    if listed is not None and listed.group == "exact":
        return _of_values(rows, name, arguments)
    if listed is None or listed.group != "ordered" or name not in _LISTS | _FIRSTS | _EXTREMES:
        return Dependence(f"{name}()")
    if is_sorted and not ordering(node, "order_bys"):
        return Dependence("" if all(map(has_one_spelling, arguments)) else f"{name}()")
    order = ordering(node, "order_bys") or ordering(node, "arg_orders")
    if name in _EXTREMES:
        arguments, order = arguments[:1], arguments[1:2]
    selection = choice(
        rows, [*by, *order], {reference for reference in bound.references(arguments) if reference is not None}
    )
    function, loose = read(loosened(rows, selection.loose), arguments)
    if selection.fixed and not function and (not any(loose) or bound.type_of(node) in FLOATS):
        return Dependence(loose=any(loose))
    return Dependence(f"{name}()", None if name in _EXTREMES else selection.missing or None, begun=bool(order))


def _of_values(rows: Rows, name: str, arguments: Sequence[object]) -> Dependence:
    """Judge an aggregate that no order decides, except for the spelling of its value."""
    if name in _COUNTS or (all(map(has_one_spelling, arguments)) and not reads_loose(rows, arguments)):
        return Dependence()
    if name in _VALUES and bound.type_of(arguments[0]) in FLOATS:
        return Dependence(loose=True)
    return Dependence(f"{name}() of {article(arguments[0])}")


def window(rows: Rows, node: bound.Node) -> tuple[Dependence, Choice]:
    """Judge a window function; if it numbers rows, the choice has the columns that its order leaves open.

    Without ORDER BY, a number or a first value depends on the row that came first.
    """
    kind, parts = str(node.get("type")), bound.listed(node, "partitions")
    orders, own = ordering(node, "orders"), ordering(node, "arg_orders")
    name = bound.called(node) if kind == "WINDOW_AGGREGATE" else kind.removeprefix("WINDOW_").lower()
    total = choice(rows, [*parts, *orders])
    is_whole = node.get("start") in _WHOLE_ENDS and node.get("end") in _WHOLE_ENDS
    loose = bound.type_of(node) in FLOATS and reads_loose(rows, bound.arguments(node))
    if kind in _OF_PEERS and (is_whole or not own):
        return Dependence(), Choice()
    if kind == "WINDOW_AGGREGATE":
        judged = aggregate(rows, node, parts)
        if judged.unfixed or is_whole:
            return judged, Choice()
        return judged if total.fixed else Dependence(f"{name}() over ROWS", total.missing, begun=bool(orders)), total
    if kind in _OF_FRAME and is_whole:
        of = {reference for reference in bound.references(bound.arguments(node)) if reference is not None}
        selection = choice(rows, [*parts, *(own or orders)], of)
        begun = bool(own or orders)
        return Dependence(
            "" if selection.fixed else f"{name}()", selection.missing, loose or bool(selection.loose), begun
        ), Choice()
    if kind in _OF_FRAME | _NUMBERING and total.fixed:
        if own and not (selection := choice(rows, [*parts, *own])).fixed:
            return Dependence(f"{name}()", selection.missing, begun=True), total
        return Dependence(loose=loose), total
    if kind in _OF_PEERS and total.fixed:
        return Dependence(), total
    return Dependence(f"{name}()", total.missing, begun=bool(orders)), total


def numbers_rows(node: bound.Node) -> bool:
    """Whether a window function distinguishes rows that tie in its order."""
    kind = str(node.get("type"))
    is_whole = node.get("start") in _WHOLE_ENDS and node.get("end") in _WHOLE_ENDS
    if kind in _OF_PEERS:
        return bool(ordering(node, "arg_orders")) and not is_whole
    return kind in _NUMBERING or not is_whole


def same_order(nodes: Sequence[bound.Node]) -> bool:
    """Whether window functions have one order, so that DuckDB sorts rows once for all of them."""
    plain = [not ordering(node, "arg_orders") for node in nodes]
    shapes = {str(shape([node.get("partitions", []), node.get("orders", [])])) for node in nodes}
    return all(plain) and len(shapes) <= 1


def keys_of(expressions: Sequence[object], before: Rows) -> frozenset[frozenset[int]]:
    """Return the keys that a projection keeps: it passes on each column, or an image of its bytes."""
    passed: dict[int, int] = {}
    for index, expression in enumerate(expressions):
        position = bound.reference(expression)
        for column in [position] if position is not None else _image(expression):
            if column is not None and (position is not None or column not in passed):
                passed[column] = index
    return frozenset(frozenset(passed[column] for column in key) for key in before.unique if key <= passed.keys())


def tells(expressions: Sequence[object], before: Rows) -> frozenset[tuple[int, int]]:
    """Return pairs of projected columns: the first tells the second, as ``encode(name)`` tells ``name``."""
    passed: dict[int, list[int]] = {}
    for index, expression in enumerate(expressions):
        position = bound.reference(expression)
        if position is not None:
            passed.setdefault(position, []).append(index)
    pairs = set()
    for index, expression in enumerate(expressions):
        position = bound.reference(expression)
        columns = set(_image(expression)) if position is None else {position}
        for column in _closed(before, columns):
            pairs |= {(index, other) for other in passed.get(column, ()) if other != index}
    return frozenset(pairs)


def decided_by_order(tree: Mapping[str, object]) -> str:
    """Return the clause or function that the order of rows decides in a part of a query's text; ``''`` for none.

    A text shows neither columns nor types, so every form that an order could fix counts.
    """
    kind, sort = str(tree.get("type")), tree.get("class")
    if kind in ("LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER"):
        return "LIMIT"
    if kind == "DISTINCT_MODIFIER" and tree.get("distinct_on_targets"):
        return "DISTINCT ON"
    if tree.get("sample") is not None:
        return "USING SAMPLE"
    if sort not in ("FUNCTION", "WINDOW"):
        return ""
    is_whole = tree.get("start") in _WHOLE_ENDS and tree.get("end") in _WHOLE_ENDS
    name = str(tree.get("function_name", "")).lower()
    if kind in _OF_PEERS and (is_whole or not tree.get("arg_orders")):
        return ""
    listed = own().get(name)
    if (sort == "WINDOW" and kind != "WINDOW_AGGREGATE") or (kind == "WINDOW_AGGREGATE" and not is_whole):
        return f"{name}()"
    if listed is not None and listed.group == "addition":
        return "" if _is_exact_cast(tree) else f"{name}()"
    return f"{name}()" if listed is not None and listed.group == "ordered" else ""


def _is_exact_cast(tree: Mapping[str, object]) -> bool:
    """Whether a call in a text casts its argument to a type that adds exactly."""
    listed = tree.get("arguments") or tree.get("children")
    first = listed[0] if isinstance(listed, list) and listed else None
    argument = first.get("expression", first) if isinstance(first, dict) else None
    if not isinstance(argument, dict) or argument.get("class") != "CAST":
        return False
    kind = argument.get("cast_type") or argument.get("type_expr")
    name = kind.get("id") or kind.get("type_name") if isinstance(kind, dict) else ""
    return str(name).upper() in EXACT
