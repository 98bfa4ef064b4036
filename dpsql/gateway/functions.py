"""Functions that users may call: allowed DuckDB functions, and dpsql functions in FROM."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.contract.expression.functions import STRANGER, called_in, listed
from dpsql.functions.estimate import ESTIMATE
from dpsql.functions.registry import FUNCTIONS, QUERY, function_of

ALLOWED = called_in(STRANGER)
_AGGREGATING = ("exact", "addition", "ordered")
AGGREGATES = frozenset(name for name in ALLOWED if listed()[name].group in _AGGREGATING) | {"grouping", "grouping_id"}
# Rows of the principal's own release: they cost nothing.
SYNTHETIC_ROWS = "dp_synthetic_rows"
# Most calls per statement.
MOST_CALLS = 8
# Functions in FROM, with their parameters in order.
CALLS: Mapping[str, tuple[str, ...]] = {
    **{name: ("source", *function.plan.arguments) for name, function in FUNCTIONS.items()},
    QUERY: ("sql", *function_of(QUERY).plan.arguments),
    "dp_estimate": ("function", *ESTIMATE),
    "dp_budget": (),
    SYNTHETIC_ROWS: ("release", "n", "seed"),
}
