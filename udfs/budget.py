"""dp_protect, dp_budget, dp_ledger and dp_estimate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from dpsql import estimate as estimates
from dpsql.budget import Budget
from dpsql.parameters import text
from dpsql.session import Session
from dpsql.udfs.spec import UdfSpec

_BUDGET = {
    "dataset": "VARCHAR",
    "budget": "VARCHAR",
    "releases": "BIGINT",
    "epsilon_spent": "DOUBLE",
    "epsilon_remaining": "DOUBLE",
    "delta_spent": "DOUBLE",
    "delta_remaining": "DOUBLE",
    "rho_spent": "DOUBLE",
    "rho_remaining": "DOUBLE",
    "epsilon_zcdp": "DOUBLE",
    "zcdp_delta": "DOUBLE",
}


def protect(session: Session) -> Callable[..., str]:
    """Bind (dataset, …budget and policy) → what now stands."""

    def run(dataset: Any, epsilon: Any, delta: Any, rho: Any, *rest: Any) -> str:
        names = ("neighbours", "privacy_unit", "max_rows_per_unit", "lower", "upper", "target_lower", "target_upper")
        *stated, replace = rest
        dataset = text("dataset", dataset, code="P013", hint="Give the name of the budget.")
        budget = Budget.of(epsilon=epsilon, delta=delta, rho=rho, **dict(zip(names, stated, strict=True)))
        session.ledger.protect(dataset, budget, replace=replace is True)
        return f"{dataset}: {budget.text}"

    return run


def budget(session: Session) -> Callable[..., list[dict[str, Any]]]:
    """Bind () → one row per dataset."""
    return lambda: [{name: getattr(row, name) for name in _BUDGET} for row in session.ledger.budgets()]


def ledger(session: Session) -> Callable[..., list[dict[str, Any]]]:
    """Bind () → one row per entry."""
    return lambda: [{name: asdict(row)[name] for name in _LEDGER} for row in session.ledger.entries()]


_LEDGER = {
    "sequence": "BIGINT",
    "recorded_at": "VARCHAR",
    "kind": "VARCHAR",
    "dataset": "VARCHAR",
    "function": "VARCHAR",
    "release": "VARCHAR",
    "epsilon": "DOUBLE",
    "delta": "DOUBLE",
    "rho": "DOUBLE",
    "guarantee": "VARCHAR",
    "status": "VARCHAR",
    "event": "VARCHAR",
    "hash": "VARCHAR",
}


def estimate(session: Session) -> Callable[..., list[dict[str, Any]]]:
    """Bind (function, …public arguments) → what a call would cost and how noisy it would be."""

    def run(function: Any, *values: Any) -> list[dict[str, Any]]:
        given = zip(estimates.ESTIMATE_ARGUMENTS, values, strict=True)
        return estimates.estimate(function, **{name: value for name, value in given if value is not None})

    return run


def _rows(columns: dict[str, str]) -> str:
    return "STRUCT(" + ", ".join(f"{name} {kind}" for name, kind in columns.items()) + ")[]"


SPECS = (
    UdfSpec("dpsql_protect", protect, "VARCHAR", native=True),
    UdfSpec("dpsql_budget", budget, _rows(_BUDGET), native=True, nullary=True),
    UdfSpec("dpsql_ledger", ledger, _rows(_LEDGER), native=True, nullary=True),
    UdfSpec(
        "dpsql_estimate", estimate, "STRUCT(quantity VARCHAR, value DOUBLE, meaning VARCHAR)[]", native=True, pure=True
    ),
)
