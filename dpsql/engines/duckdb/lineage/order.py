"""Which values follow from the order in which DuckDB reads rows.

DuckDB reads rows in morsels, and which rows fall into one follows from all rows. So doubles are not added, as the last
bit would follow from the order, and lists are sorted by what they hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.engines.duckdb.lineage import bound
from dpsql.engines.duckdb.lineage.functions import groups

INTEGERS = frozenset(f"{sign}{size}" for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT"))
# Types that add exactly.
_EXACT = INTEGERS | frozenset(("BOOLEAN", "HUGEINT", "UHUGEINT", "DECIMAL", "BIGNUM", "INTERVAL"))
_LISTS = frozenset(("list", "array_agg", "string_agg", "group_concat", "listagg"))
_NUMBERING = frozenset(
    f"WINDOW_{name}"
    for name in ("ROW_NUMBER", "FIRST_VALUE", "LAST_VALUE", "NTH_VALUE", "LEAD", "LAG", "NTILE", "FILL")
)
_SORTS = frozenset(("list_sort", "array_sort", "list_reverse_sort", "array_reverse_sort"))
# Predictions for a list of names, each of which counts once: `LinearModel.predict_rows` sorts them.
_PREDICTS = frozenset(("dpsql_predict", "dpsql_predict_class"))


def sorted_lists(expressions: Sequence[object]) -> frozenset[int]:
    """Return the columns that are read as lists to be sorted, or as the names to predict for, and in no other way.

    Then the order of a list is lost.
    """
    read, within = bound.references(expressions), list[int | None]()
    for call in bound.calls(expressions):
        if bound.called(call) in _SORTS:
            within += [bound.reference(argument) for argument in bound.arguments(call)[:1]]
            within += bound.references(call.get("function_data"))  # where DuckDB notes what it sorts by
        elif bound.called(call) in _PREDICTS:
            within += [bound.reference(argument) for argument in bound.arguments(call)[1:] if _is_names(argument)]
    return frozenset(one for one in within if one is not None and read.count(one) == within.count(one))


def _is_names(expression: object) -> bool:
    """Whether an expression is a list of texts."""
    shown = bound.as_node(expression).get("return_type")
    details = shown.get("type_info") if isinstance(shown, dict) and shown.get("id") == "LIST" else None
    inner = details.get("child_type") if isinstance(details, dict) else None
    return isinstance(inner, dict) and inner.get("id") == "VARCHAR"


def order_decides(expression: object, *, is_sorted: bool = False) -> str:
    """Return the name of an aggregate whose value follows from the order of its rows; ``''`` if it does not.

    Sums and averages of integers and decimals are exact, so that no order changes them. A list holds the rows' values
    in their order: sorted by itself, its elements that tie are equal.
    """
    node = bound.as_node(expression)
    name = bound.called(node)
    group = groups().get(name)
    if group is None or (group.name == "ordered" and not is_sorted and not _sorted_by_itself(node)):
        return f"{name}()"
    exact = all(bound.type_of(argument) in _EXACT for argument in bound.arguments(node))
    return f"{name}() of a {bound.type_of(bound.arguments(node)[0])}" if group.name == "addition" and not exact else ""


def window_order_decides(node: bound.Node) -> str:
    """Return the name of a window function whose value follows from the order of its rows; ``''`` if it does not.

    Without ORDER BY a number, or the first value, is that of whichever row came first. Where rows tie, it is, too, but
    ORDER BY may name a key, which a plan does not show: that is the author's to know (docs/privacy.md).
    """
    kind = str(node.get("type"))
    if kind == "WINDOW_AGGREGATE":
        return order_decides(node)
    decides = kind in _NUMBERING and not bound.listed(node, "orders")
    return f"{kind.removeprefix('WINDOW_').lower()}()" if decides else ""


def _sorted_by_itself(node: bound.Node) -> bool:
    """Whether a list is made in the order of its own elements."""
    orders, given = node.get("order_bys"), bound.arguments(node)
    ordered = orders.get("orders") if isinstance(orders, dict) else None
    first = ordered[0] if isinstance(ordered, list) and ordered else None
    by = bound.reference(first.get("expression")) if isinstance(first, dict) else None
    return bound.called(node) in _LISTS and by is not None and bool(given) and bound.reference(given[0]) == by
