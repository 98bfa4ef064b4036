"""Values that compare equal and have different bytes: which types have them, and which expressions tell them apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dpsql.engines.duckdb.lineage import bound
from dpsql.engines.duckdb.lineage.rows import INTEGERS, Rows

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
# What is blind to the spellings of numbers: it returns a value that has one, or another number with several.
_BLIND = frozenset(("isnan", "isfinite", "isinf", "=", "!=", "<", "<=", ">", ">=", "__between"))
_BLIND_TYPES = frozenset(("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "COMPARE_BETWEEN", "COMPARE_IN", "OPERATOR_NOT"))
_LOOSE = frozenset(("+", "-", "*", "abs", "round", "floor", "ceil", "ceiling", "trunc", "greatest", "least"))
_LOOSE_TYPES = frozenset(("OPERATOR_COALESCE", "CASE_EXPR"))


def type_in(expression: object) -> object:
    """Return the type of an expression, as the plan has it."""
    return expression.get("return_type") if isinstance(expression, dict) else None


def type_names(kind: object) -> list[str]:
    """Return the names of a type and of all types in it; one that nothing knows where a text has a collation."""
    found: list[str] = []
    open_ones = [kind]
    while open_ones:
        part = open_ones.pop()
        if isinstance(part, list):
            open_ones += part
        elif isinstance(part, dict):
            if "id" in part:
                found.append(str(part["id"]))
            if part.get("collation"):
                found.append("a collation")
            open_ones += [each for name, each in part.items() if name != "values"]
    return found


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
    """Whether equal values of an expression have the same bytes: an integer that is cast to a number has one zero."""
    node = expression if isinstance(expression, dict) else {}
    below = bound.arguments(node) or [node.get("child")]
    cast = node.get("type") == "OPERATOR_CAST" and bound.type_of(node) in FLOATS
    return one_spelling(type_in(node)) or (cast and bound.type_of(below[0]) in EXACT - {"INTERVAL", "BIGNUM"})


def group(expression: object) -> str | None:
    """Return ``''`` if GROUP BY an expression has one spelling for each group, None for numbers; or what it groups by.

    Text is grouped by what its collation makes of it, whose bytes are compared.
    """
    if has_one_spelling(expression) or (bound.reference(expression) is None and bound.type_of(expression) == "VARCHAR"):
        return ""
    return None if bound.type_of(expression) in FLOATS else f"GROUP BY {article(expression)}"


def reads_loose(rows: Rows, expressions: object) -> bool:
    """Whether expressions read a loose column of rows."""
    return bool(rows.loose.intersection(bound.references(expressions)))


def read(rows: Rows, expressions: Sequence[object]) -> tuple[str, list[bool]]:
    """Return the function that tells apart spellings of a loose column, and which of the expressions are loose."""
    found = [_spelled(rows, one) for one in expressions]
    return next((one for one in found if isinstance(one, str)), ""), [one is True for one in found]


def _spelled(rows: Rows, expression: object) -> bool | str:
    """Return whether an expression is loose; or the name of what tells spellings apart in it."""
    if not reads_loose(rows, expression) or not isinstance(expression, dict):
        return False
    if bound.reference(expression) is not None:
        return True
    name, kind = bound.called(expression), str(expression.get("type"))
    below = [_spelled(rows, part) for part in parts(expression)]
    told = next((one for one in below if isinstance(one, str)), "")
    if told:
        return told
    if not any(below) or kind.startswith(("COMPARE_", "CONJUNCTION_")) or kind in _BLIND_TYPES or name in _BLIND:
        return False
    if kind == "CASE_EXPR" and _is_of_one_spelling(expression):
        return False
    if kind == "OPERATOR_CAST":
        wanted = bound.type_of(expression)
        return False if wanted in EXACT else True if wanted in FLOATS else f"a cast to {wanted}"
    if (kind in _LOOSE_TYPES or name in _LOOSE) and bound.type_of(expression) in FLOATS:
        return True
    return f"{name}()" if name else kind


def _is_of_one_spelling(node: bound.Node) -> bool:
    """Whether a CASE gives a number one zero and one NaN, as ``CASE WHEN isnan(x) THEN 'nan' ELSE x + 0 END`` does."""
    checks, last = bound.listed(node, "case_checks"), bound.as_node(node.get("else_expr"))
    first, *others = [(bound.as_node(one["when_expr"]), one["then_expr"]) for one in map(bound.as_node, checks)]
    of = shape(bound.arguments(first[0]))
    if bound.called(first[0]) != "isnan" or not all(_is_literal(then) for _, then in (first, *others)):
        return False
    if not others:
        given = bound.arguments(last)
        return bound.called(last) == "+" and len(given) == 2 and shape(given[:1]) == of and _is_zero(given[1])
    when = others[0][0]
    given = bound.arguments(when) or [when.get("left"), when.get("right")]
    equal = when.get("type") == "COMPARE_EQUAL" and shape(given[:1]) == of and _is_zero(given[1])
    return len(others) == 1 and equal and _is_zero(others[0][1]) and shape([last]) == of


def _is_literal(expression: object) -> bool:
    """Whether an expression is a literal, maybe cast."""
    node = bound.as_node(expression)
    if node.get("type") == "OPERATOR_CAST":
        return _is_literal((bound.arguments(node) or [node.get("child")])[0])
    return node.get("type") == "VALUE_CONSTANT"


def _is_zero(expression: object) -> bool:
    """Whether an expression is the literal 0, maybe cast; the text of -0 is another one."""
    node = bound.as_node(expression)
    if node.get("type") == "OPERATOR_CAST":
        return _is_zero((bound.arguments(node) or [node.get("child")])[0])
    return repr(bound.constant(node)) in ("0", "0.0", "'0'", "'0.0'")


def parts(expression: bound.Node) -> list[object]:
    """Return the expressions that an expression is made of."""
    found: list[object] = []
    open_ones: list[object] = list(expression.values())
    while open_ones:
        part = open_ones.pop()
        if isinstance(part, dict) and "expression_class" in part:
            found.append(part)
        elif isinstance(part, dict):
            open_ones += part.values()
        elif isinstance(part, list):
            open_ones += part
    return found


def shape(value: object) -> object:
    """Return a part of a plan without the names and places of its expressions."""
    if isinstance(value, list):
        return [shape(one) for one in value]
    if not isinstance(value, dict):
        return value
    left_out = ("alias", "query_location", "query_location_length")
    return {name: shape(part) for name, part in sorted(value.items()) if name not in left_out}


def loosened(rows: Rows, places: Iterable[int]) -> Rows:
    """Return rows of which more columns have a value whose spelling is not fixed."""
    return replace(rows, loose=rows.loose | frozenset(places))
