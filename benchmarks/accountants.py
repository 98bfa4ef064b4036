"""How many calls fit one budget under each accountant: the table of docs/performance.md, from events of real calls."""

from __future__ import annotations

from typing import Any

from dpsql.errors import BudgetError
from dpsql.functions.registry import FUNCTIONS
from dpsql.ledger.budget import Budget, Spent, refuse_overspend

COLUMNS = {"target": "y", "features": ["a", "b", "c", "d", "e", "f", "g", "h"]}
BOUNDS = {"lower": 0, "upper": 1}
FIT = COLUMNS | BOUNDS | {"target_lower": 0, "target_upper": 1}
CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("`dp_quantile`, the median, ε = 0.05", "dp_quantile", {"target": "y", "epsilon": 0.05, **BOUNDS}),
    (
        "`dp_quantile`, three quartiles, ε = 0.05",
        "dp_quantile",
        {"target": "y", "quantiles": [0.25, 0.5, 0.75], "epsilon": 0.05, **BOUNDS},
    ),
    ("`dp_sis`, k = 5, ε = 0.05", "dp_sis", FIT | {"k": 5, "epsilon": 0.05}),
    ("`dp_sis`, k = 5, `'gumbel'`, ε = 0.05", "dp_sis", FIT | {"k": 5, "epsilon": 0.05, "mechanism": "gumbel"}),
    ("`dp_kendall`, k = 5, ε = 0.05", "dp_kendall", COLUMNS | {"k": 5, "epsilon": 0.05}),
    (
        "`dp_linear_regression`, public bounds, ε = 0.05, δ = 10⁻⁸",
        "dp_linear_regression",
        FIT | {"method": "ada_ssp", "epsilon": 0.05, "delta": 1e-8},
    ),
    (
        "`dp_linear_regression`, nothing given, ε = 0.3, δ = 10⁻⁸",
        "dp_linear_regression",
        COLUMNS | {"epsilon": 0.3, "delta": 1e-8},
    ),
    ("`dp_roc`, ε = 0.3", "dp_roc", {"label": "y", "score": "s", "epsilon": 0.3}),
    ("`dp_sis`, k = 5, ε = 1", "dp_sis", FIT | {"k": 5, "epsilon": 1}),
]


def calls_that_fit(function: str, arguments: dict[str, Any], accountant: str) -> int:
    """Return how many equal calls fit epsilon 3 and delta 1e-6."""
    budget = Budget.of(epsilon=3, delta=1e-6, accountant=accountant)
    spent = Spent().under(budget)
    plan = FUNCTIONS[function].plan
    given = {"dataset": "d"} | plan.arguments.stand_ins
    cost = plan.from_arguments("d", given | arguments).event.cost
    for count in range(100_000):
        try:
            refuse_overspend("d", budget, spent, cost, strict=True)
        except BudgetError:
            return count
        spent = spent.plus(cost)
    raise RuntimeError("the budget has no end")


def main() -> None:
    """Print the table."""
    print("| calls that fit ε = 3, δ = 10⁻⁶ | `'basic'` | `'rdp'` |\n|---|---|---|")
    for name, function, arguments in CALLS:
        counts = [calls_that_fit(function, arguments, accountant) for accountant in ("basic", "rdp")]
        print(f"| {name} | {counts[0]:,} | {counts[1]:,} |")


if __name__ == "__main__":
    main()
