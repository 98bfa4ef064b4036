"""The plan of every recorded call is a value: it has a hash, equals its copy, and comes back from its JSON."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from typing import Any

import duckdb
import pytest
from cases import TABLES, every_case

import dpsql
from dpsql.contract.parameters import FrozenMapping
from dpsql.contract.plan import Plan
from dpsql.engines.duckdb.planner import Planner
from dpsql.functions.registry import FUNCTIONS, plan_from_json

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    found: dict[str, Plan] = {}
    plan = Planner.plan

    def noted(planner: Planner, *given: Any, **more: Any) -> Plan:
        made = plan(planner, *given, **more)
        found.setdefault(made.to_json(), made)
        return made

    with pytest.MonkeyPatch.context() as patch, dpsql.connect() as connection:
        patch.setattr(Planner, "plan", noted)
        for statement in TABLES:
            connection.execute(statement)
        for case in every_case():
            for statement in case.statements:
                with contextlib.suppress(duckdb.Error):  # some are refused, and some cannot be explained
                    connection.execute(f"EXPLAIN {statement}")
    return list(found.values())


def test_a_plan_is_a_value(plans: list[Plan]) -> None:
    assert {plan.function for plan in plans} == set(FUNCTIONS)
    assert any(isinstance(getattr(plan, "lower", None), FrozenMapping) for plan in plans)
    for plan in plans:
        again = plan_from_json(plan.to_json())
        assert again == plan == copy.copy(plan)
        assert hash(again) == hash(plan)
        assert again.to_json() == plan.to_json()
        assert again.public_arguments == plan.public_arguments


def test_a_plan_holds_nothing_that_changes(plans: list[Plan]) -> None:
    for plan in plans:
        held = [getattr(plan, field.name) for field in dataclasses.fields(plan)]
        assert not [value for value in held if isinstance(value, (dict, list, set))]
