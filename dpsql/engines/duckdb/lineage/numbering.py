"""Windows, and the numbers that they give to rows: which order decides them, and which rows a filter on them keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from dpsql.engines.duckdb.lineage import bound, orders, spellings
from dpsql.engines.duckdb.lineage.dates import is_whole_period
from dpsql.engines.duckdb.lineage.rows import Rows


def blind(rows: Rows, expressions: Sequence[object]) -> tuple[Rows, list[bool]]:
    """Return rows whose expressions are read, unfixed where one tells spellings apart; and which ones are loose."""
    told, loose = spellings.read(rows, expressions)
    return rows.unfixed_by(told and f"{told} of a number with several spellings"), loose


def checked_firsts(node: bound.Node, expressions: Sequence[object]) -> set[int]:
    """Return the first values of an aggregate below that count only where there is one row, by address.

    So DuckDB writes a subquery in place of a value: ``CASE WHEN count(*) > 1 THEN error(...) ELSE first(x) END``.
    """
    if bound.kind(node) != "AGGREGATE_AND_GROUP_BY" or bound.listed(node, "groups"):
        return set()
    made, found = list(map(bound.as_node, bound.listed(node, "expressions"))), set[int]()
    for one in map(bound.as_node, expressions):
        checks = one.get("case_checks")
        check = checks[0] if isinstance(checks, list) and len(checks) == 1 else {}
        when = check.get("when_expr") if isinstance(check, dict) else None
        if not isinstance(when, dict) or when.get("type") != "COMPARE_GREATERTHAN":
            continue
        sides = bound.arguments(when) or [when.get("left"), when.get("right")]
        counted, place = bound.reference(sides[0]), bound.reference(one.get("else_expr"))
        fails = bound.called(bound.as_node(check["then_expr"])) == "error"
        if not fails or counted is None or place is None or bound.constant(sides[1]) != 1:
            continue
        if bound.called(made[counted]) == "count_star" and bound.references(expressions).count(place) == 1:
            found.add(id(made[place]))
    return found


def windows_of(rows: Rows, windows: Sequence[bound.Node], node: bound.Node) -> tuple[Rows, frozenset[int]]:
    """Return rows that windows are computed of, unfixed where an order decides one; and the columns that are loose."""
    columns = orders.columns_of(bound.children(node)[0])
    judged = [orders.window(rows, one) for one in windows]
    for said, choice in judged:
        rows = spellings.loosened(
            rows.unfixed_by(said.unfixed, orders.words(columns, said.missing, said.begun)), choice.loose
        )
    for one in windows:
        rows, _ = blind(rows, spellings.parts(one))
    numbering = [one for one in windows if orders.numbers_rows(one)]
    if not rows.unique and not rows.alone and not orders.same_order(numbering):
        rows = rows.unfixed_by("a second order of windows")
    loose = {place for place, (said, _) in enumerate(judged, start=rows.width) if said.loose}
    return rows, rows.loose | loose


def says_whose(rows: Rows) -> Callable[[object], bool]:
    """Return whether all rows of a unit have the same value of an expression."""
    return lambda one: bound.reference(one) in rows.unit or is_whole_period(one, rows.date)


def one_number(rows: Rows, conditions: Iterable[bound.Node]) -> Rows:
    """Return rows of which conditions keep those with one number.

    Two rows of one partition have different numbers, so at most one of them is kept: the partition is a key.
    """
    for found in conditions:
        sides = bound.arguments(found) or [found.get("left"), found.get("right")]
        first = found.get("type") == "COMPARE_LESSTHANOREQUALTO" and bound.constant(sides[1]) == 1
        if first or (found.get("type") == "COMPARE_EQUAL" and any(map(_constant, sides))):
            columns = [bound.reference(side) for side in sides]
            for among in (among for place, among in rows.numbers if place in columns):
                rows = replace(rows, keys=among) if among else replace(rows, once=True)
            for parts in (parts for place, parts in rows.firsts if place in columns):
                rows = replace(rows, unique=rows.unique | {parts})
    return rows


def numbering_of(rows: Rows, window: bound.Node) -> frozenset[int] | None:
    """Return within which columns a window numbers rows, none where it numbers those of a unit; None if it does not."""
    parts = bound.listed(window, "partitions")
    ordered = bound.listed(window, "arg_orders")  # with an order of its own it numbers a frame
    if window.get("type") != "WINDOW_ROW_NUMBER" or ordered or not parts:
        return None
    if not rows.public:
        return frozenset() if all(map(says_whose(rows), parts)) else None
    keys = [bound.reference(part) for part in parts]
    return None if None in keys else places(keys)


def firsts_of(rows: Rows, windows: Sequence[bound.Node]) -> frozenset[tuple[int, frozenset[int]]]:
    """Return the columns with numbers of rows, each with the columns within which it numbers them."""
    found = set[tuple[int, frozenset[int]]]()
    for place, window in enumerate(windows, start=rows.width):
        parts = [bound.reference(part) for part in bound.listed(window, "partitions")]
        plain = window.get("type") == "WINDOW_ROW_NUMBER" and not bound.listed(window, "arg_orders")
        if plain and None not in parts:
            found.add((place, places(parts)))
    return frozenset(found)


def places(columns: Iterable[int | None]) -> frozenset[int]:
    """Return the columns among expressions."""
    return frozenset(place for place in columns if place is not None)


def conjuncts(expressions: Sequence[object]) -> Iterator[bound.Node]:
    """Yield what must hold for each row that a filter keeps; what stands below OR, NOT or CASE need not."""
    for expression in expressions:
        node = bound.as_node(expression)
        if node.get("type") == "CONJUNCTION_AND":
            yield from conjuncts(bound.arguments(node))
        else:
            yield node


def _constant(expression: object) -> bool:
    """Whether an expression is a literal, maybe cast: one value for all rows, which random() is not."""
    node = bound.as_node(expression)
    if node.get("type") == "OPERATOR_CAST":
        [of] = bound.arguments(node) or [node.get("child")]
        return _constant(of)
    return node.get("type") == "VALUE_CONSTANT"
