from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from dpsql.contract.events import UNITS_PER_ONE, cost_of, units_down, units_up
from dpsql.errors import BudgetError, ParameterError
from dpsql.ledger.budget import Budget, Spent, refuse_overspend
from support.cases import cases


@pytest.mark.parametrize("upper", [16, [2, 16], {"b": 16, "a": 2}])
def test_a_budget_survives_json(upper: object) -> None:
    budget = Budget.of(epsilon=1, lower=0, upper=upper, target_levels=["a", "b"])
    assert Budget.from_json(budget.to_json()) == budget


def test_what_is_charged_is_rounded_up_and_a_budget_down() -> None:
    third = Fraction(1, 3)
    assert units_down(third) * 3 < UNITS_PER_ONE < units_up(third) * 3
    assert units_up(Fraction(1, 2)) == units_down(Fraction(1, 2)) == UNITS_PER_ONE // 2


def test_a_budget_reads_floats_as_their_shortest_decimal() -> None:
    budget = Budget.of(
        epsilon=0.3, delta=1e-6, neighbours="Replace", privacy_unit="id", max_rows_per_unit=3, lower=[0, 1], upper=16
    )
    assert (budget.epsilon, budget.delta) == (Fraction(3, 10), Fraction(1, 10**6))
    assert budget.text == "epsilon 0.3, delta 1e-06"
    assert budget.terms == {
        "lower": [0.0, 1.0], "upper": 16.0, "neighbours": "replace", "privacy_unit": "id", "max_rows_per_unit": 3
    }  # fmt: skip
    assert Budget.of(rho=0.5).text == "rho 0.5"
    assert Budget.of(rho=0.5).terms == {}
    assert Budget.of(epsilon=1) == Budget.of(epsilon=1.0, delta=0.0)


def test_a_restated_budget_keeps_its_accountant_unless_it_becomes_one_in_rho() -> None:
    budget = Budget.of(epsilon=3, delta=1e-6, accountant="rdp", target_levels=["a", "b"])
    larger = budget.restated({"epsilon": 5})
    assert larger == Budget.of(epsilon=5, delta=1e-6, accountant="rdp", target_levels=["a", "b"])
    assert larger.policy_text == "epsilon 5, delta 1e-06, accountant rdp; protects one row; target_levels ['a', 'b']"
    assert "accountant" not in larger.terms, "it is no argument of a call"
    assert budget.restated({"accountant": "basic"}).accountant == "basic"
    rho = budget.restated({"rho": 1})
    assert (rho.rho, rho.epsilon, rho.accountant) == (1, None, "basic")
    assert rho.restated({"epsilon": 3, "accountant": "rdp"}) == budget
    with pytest.raises(ParameterError, match="DPSQL-P046"):
        budget.restated({"delta": 0})
    with pytest.raises(ParameterError, match="DPSQL-P045"):
        budget.restated({"rho": 1, "accountant": "rdp"})


@cases(
    ("arguments", "code"),
    [
        ({}, "P015"),
        ({"epsilon": 1, "rho": 1}, "P015"),
        ({"epsilon": 0}, "P024"),
        ({"epsilon": -1}, "P024"),
        ({"epsilon": math.nan}, "P024"),
        ({"epsilon": math.inf}, "P024"),
        ({"epsilon": "much"}, "P024"),
        ({"epsilon": True}, "P024"),
        ({"epsilon": 1e-19}, "P024"),
        ({"epsilon": 1, "delta": 1}, "P006"),
        ({"epsilon": 1, "delta": -1e-6}, "P006"),
        ({"epsilon": 1, "delta": 1e-20}, "P024"),
        ({"rho": math.nan}, "P024"),
        ({"epsilon": 1, "neighbours": "add"}, "P005"),
        ({"epsilon": 1, "privacy_unit": 3}, "P013"),
        ({"epsilon": 1, "privacy_unit": "u"}, "P009"),
        ({"epsilon": 1, "max_rows_per_unit": 2}, "P009"),
        ({"epsilon": 1, "max_rows_per_unit": 0}, "P021"),
        ({"epsilon": 1, "lower": 0}, "P003"),
        ({"epsilon": 1, "target_lower": 2, "target_upper": 1}, "P003"),
        ({"epsilon": 1, "width": 2}, "P016"),
    ],
)
def test_a_budget_that_means_nothing_is_refused(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(ParameterError, match=f"DPSQL-{code}"):
        Budget.of(**arguments)


REPEAT = "or repeat an earlier release by its name, which costs nothing. Only the data's owner can change the budget."


@pytest.mark.parametrize(
    ("limit", "spent", "event", "message"),
    [
        (
            {"epsilon": 3}, "2.8", {"mechanism": "exponential_noise", "epsilon": "0.5"},
            "[DPSQL-B001] dataset 'd' needs epsilon 0.5, 0.2 remains of 3. "
            "Lower epsilon to 0.2, " + REPEAT,
        ),
        (
            {"epsilon": 3}, "3", {"mechanism": "exponential_noise", "epsilon": "0.5"},
            "[DPSQL-B001] dataset 'd' needs epsilon 0.5, nothing remains of 3. "
            "Repeat" + REPEAT.removeprefix("or repeat"),
        ),
        (
            {"rho": 2}, "1", {"mechanism": "exponential_noise", "epsilon": "2"},
            "[DPSQL-B001] dataset 'd' needs rho 2, 1.5 remains of 2. "
            "Lower epsilon to 1.732, " + REPEAT,
        ),
        (
            {"epsilon": 3}, "1", {"mechanism": "approximate", "epsilon": "1", "delta": "1e-6"},
            "[DPSQL-B001] dataset 'd' needs delta 1e-06, nothing remains of 0. "
            "Repeat" + REPEAT.removeprefix("or repeat"),
        ),
    ],
)  # fmt: skip
def test_the_refusal_says_what_would_fit(
    limit: dict[str, Any], spent: str, event: dict[str, str], message: str
) -> None:
    before = Spent().plus(cost_of({"mechanism": "exponential_noise", "epsilon": spent}))
    with pytest.raises(BudgetError) as caught:
        refuse_overspend("d", Budget.of(**limit), before, cost_of(event), strict=False)
    assert str(caught.value) == message


def test_the_epsilon_that_a_refusal_names_does_fit() -> None:
    before = Spent().plus(cost_of({"mechanism": "exponential_noise", "epsilon": "1"}))
    refuse_overspend(
        "d", Budget.of(rho=2), before, cost_of({"mechanism": "exponential_noise", "epsilon": "1.732"}), strict=True
    )


def test_a_loss_without_a_number_of_the_budget_s_kind_is_refused() -> None:
    gaussian = cost_of({"mechanism": "discrete_gaussian", "rho": "0.1"})
    tested = cost_of({"mechanism": "approximate", "epsilon": "0.1", "delta": "1e-9"})
    with pytest.raises(BudgetError, match="DPSQL-B004"):
        refuse_overspend("d", Budget.of(epsilon=3, delta=0.1), Spent(), gaussian, strict=False)
    with pytest.raises(BudgetError, match="DPSQL-B004"):
        refuse_overspend("d", Budget.of(rho=3, delta=0.1), Spent(), tested, strict=False)
    pure = cost_of({"mechanism": "discrete_laplace", "epsilon": "0.1"})
    with pytest.raises(BudgetError, match="DPSQL-B004"):  # what came before already has no finite epsilon
        refuse_overspend("d", Budget.of(epsilon=3), Spent().plus(gaussian), pure, strict=False)
