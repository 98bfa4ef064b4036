"""What DataFusion's own logical plan of a frame shows of where its rows come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dpsql.engines.provenance import Passed, Provenance, Scan, UnseenError, union

if TYPE_CHECKING:
    from datafusion import Expr
    from datafusion.plan import LogicalPlan

# Expressions whose value in a row follows from their operands in that row.
_EXPRESSIONS = frozenset(
    (
        *("Alias", "Between", "BinaryExpr", "Case", "Cast", "Column", "ILike", "InList", "IsFalse", "IsNotFalse"),
        *("IsNotNull", "IsNotTrue", "IsNotUnknown", "IsNull", "IsTrue", "IsUnknown", "Like", "Literal", "Negative"),
        *("Not", "TryCast"),
    )
)
# Functions of the same kind, by DataFusion's own names for what computes them: a user's function may have any name.
_FUNCTIONS = frozenset(
    (
        *("AbsFunc", "BTrimFunc", "CeilFunc", "CharacterLengthFunc", "CoalesceFunc", "ConcatFunc", "DatePartFunc"),
        *("DateTruncFunc", "EndsWithFunc", "ExpFunc", "FloorFunc", "GreatestFunc", "IsNanFunc", "LeastFunc"),
        *("LeftFunc", "LnFunc", "Log10Func", "Log2Func", "LogFunc", "LowerFunc", "LtrimFunc", "NVLFunc", "NullIfFunc"),
        *("PowerFunc", "ReplaceFunc", "RightFunc", "RoundFunc", "RtrimFunc", "SignumFunc", "SqrtFunc"),
        *("StartsWithFunc", "SubstrFunc", "TruncFunc", "UpperFunc"),
    )
)
# DataFusion shows what computes a function only where it says that it has no form in Python.
_COMPUTED_BY = re.compile(r"[^{]*ScalarFunction \{ func: ScalarUDF \{ inner: (\w+) \{")
# Names of tables that DataFusion makes for rows in memory.
_IN_MEMORY = re.compile(r"c[0-9a-f]{32}|\?table\?")


def provenance_of(
    plan: LogicalPlan,
    table: Callable[[LogicalPlan], tuple[str, ...] | None],
    names: Callable[[LogicalPlan], Sequence[str]],
) -> Provenance:
    """Return what the rows of a plan come from; no row is read.

    Parameters
    ----------
    plan : datafusion.plan.LogicalPlan
    table, names : callable
        Take a scan, and return the full name of the table that it reads, None for one that the catalog does not have;
        and the names of its columns.

    Raises
    ------
    UnseenError
        The plan has an operator or a function that is not on the list.
    """
    try:
        node: Any = plan.to_variant()
    except Exception:
        raise UnseenError("an operator that DataFusion does not show") from None
    kind = type(node).__name__
    below = [provenance_of(one, table, names) for one in plan.inputs()]
    if kind == "TableScan":
        for condition in node.filters():
            _refuse(condition)
        in_memory = _IN_MEMORY.fullmatch(node.table_name()) is not None
        found = None if in_memory else table(plan)
        if node.fetch() is not None or not (in_memory or found):
            raise UnseenError("a scan of some rows" if found else "a scan outside of the catalog")
        return Provenance.of(Scan(found), names(plan))
    if kind == "Union":
        return union(below)
    if len(below) != 1 or kind not in ("Filter", "Projection", "Repartition", "Sort", "SubqueryAlias"):
        raise UnseenError(kind)
    if kind == "Filter":
        _refuse(node.predicate())
    elif kind == "Projection":
        return below[0].select(_passed(one, below[0]) for one in node.projections())
    elif kind == "Sort" and node.get_fetch_val() is not None:
        raise UnseenError("Limit")
    return below[0]


def _passed(expression: Expr, below: Provenance) -> Passed:
    """Return the name of an expression, and the column that it is."""
    name = expression.schema_name()
    inner = expression
    while inner.variant_name() == "Alias":
        shown: Any = inner.to_variant()
        inner = shown.expr()
    if inner.variant_name() == "Column":
        column: Any = inner.to_variant()
        name = column.name() if inner is expression else name
        return name, below.column(column.name())
    _refuse(inner)
    return name, None


def _refuse(expression: Expr) -> None:
    """Raise unless an expression's value in a row follows from that row."""
    kind = expression.variant_name()
    if kind == "ScalarFunction":
        found = None
        try:
            expression.to_variant()
        except Exception as hidden:
            found = _COMPUTED_BY.match(str(hidden))
        if found is None or found[1] not in _FUNCTIONS:
            raise UnseenError(f"{expression.rex_call_operator()}()")
    elif kind not in _EXPRESSIONS:
        raise UnseenError(kind)
    for below in _below(expression):
        _refuse(below)


def _below(expression: Expr) -> Iterator[Expr]:
    """Yield the operands of an expression; a column and a constant have none."""
    kind = expression.variant_name()
    if kind == "Case":
        case: Any = expression.to_variant()
        parts = [case.expr(), case.else_expr(), *(one for pair in case.when_then_expr() for one in pair)]
        yield from (one for one in parts if one is not None)
    elif kind == "Alias":
        alias: Any = expression.to_variant()
        yield alias.expr()
    elif kind not in ("Column", "Literal"):
        yield from expression.rex_call_operands()
