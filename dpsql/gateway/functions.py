"""The functions that a stranger may call: DuckDB's by a list, and dpsql's that are asked in FROM."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from dpsql.functions.estimate import ESTIMATE
from dpsql.functions.registry import FUNCTIONS, QUERY, function_of


def _listed() -> dict[str, frozenset[str]]:
    found: dict[str, list[str]] = {}
    for line in (files("dpsql.gateway") / "functions.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            kind = found.setdefault(line.strip("[]"), [])
        elif not line.startswith("#"):
            kind += line.split()
    return {name: frozenset(words) for name, words in found.items()}


LISTED: Mapping[str, frozenset[str]] = _listed()
AGGREGATES = LISTED["aggregate"]
ALLOWED = frozenset().union(*LISTED.values())
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
