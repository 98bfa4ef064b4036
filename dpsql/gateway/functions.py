"""The functions that a stranger may call: DuckDB's by a list, and dpsql's that are asked in FROM."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.contract.expression.functions import ANYWHERE, STRANGER, called_in
from dpsql.functions.estimate import ESTIMATE
from dpsql.functions.registry import FUNCTIONS, QUERY, function_of

ALLOWED = called_in(STRANGER)
_AGGREGATING = ("exact", "addition", "ordered")
AGGREGATES = frozenset(name for name in ALLOWED if ANYWHERE[name].group in _AGGREGATING) | {"grouping", "grouping_id"}
# Rows of a release that is the principal's own: no budget pays for them.
SYNTHETIC_ROWS = "dp_synthetic_rows"
# Private calls of one statement.
MOST_CALLS = 8
# What may be asked in FROM, with its parameters in their order.
CALLS: Mapping[str, tuple[str, ...]] = {
    **{name: ("source", *function.plan.arguments) for name, function in FUNCTIONS.items()},
    QUERY: ("sql", *function_of(QUERY).plan.arguments),
    "dp_estimate": ("function", *ESTIMATE),
    "dp_budget": (),
    SYNTHETIC_ROWS: ("release", "n", "seed"),
}
