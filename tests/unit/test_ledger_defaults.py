"""Defaults of epsilon and delta in a ledger: what an owner may declare, and what a day allows without a stated epsilon."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import BudgetError, ParameterError
from dpsql.ledger import clock
from dpsql.ledger.budget import Budget
from dpsql.ledger.copies import backup, restore
from dpsql.ledger.grants import Grant
from dpsql.ledger.ledger import Charge, Ledger
from support.cases import cases

NAN = float("nan")
EVENING = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)
At = Callable[[datetime], None]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> At:
    """Set the ledger's clock."""
    return lambda time: monkeypatch.setattr(clock, "_source", lambda: time)


def asked(amount: object = "0.1", *, stated: bool = False, **more: Any) -> Charge:
    event = {"mechanism": "exponential_noise", "epsilon": str(amount)}
    lineage = None if stated else {"defaults": {"epsilon": str(amount)}}
    return Charge("visits", event, "dp_count", {}, lineage=lineage, **more)


def spend(ledger: Ledger, charge: Charge) -> str:
    """Charge a call; return the code of its refusal, or ''."""
    try:
        ledger.check(charge)
        ledger.charge(charge, lambda: {})
    except BudgetError as error:
        return error.code.removeprefix("DPSQL-")
    return ""


@cases(
    ("settings", "code"),
    [
        ({"default_epsilon": NAN}, "P001"),
        ({"default_epsilon": float("inf")}, "P001"),
        ({"default_epsilon": -1}, "P001"),
        ({"default_epsilon": 0}, "P001"),
        ({"default_epsilon": True}, "P001"),
        ({"default_epsilon": "much"}, "P001"),
        ({"default_epsilon": 1e13}, "P001"),
        ({"default_epsilon": 3.5}, "P024"),
        ({"default_epsilon": 1, "default_daily_epsilon": 0.5}, "P024"),
        ({"default_daily_epsilon": NAN}, "P001"),
        ({"default_daily_epsilon": -1}, "P001"),
        ({"default_delta": NAN}, "P027"),
        ({"default_delta": -1e-6}, "P027"),
        ({"default_delta": 0}, "P027"),
        ({"default_delta": 0.5}, "P027"),
        ({"default_delta": 1e-5}, "P024"),
        ({"default_delta": 1e-200}, "P024"),
        ({"default_delta": 1e-6, "delta": None}, "P024"),
    ],
)
def test_a_default_that_no_question_can_spend(settings: dict[str, Any], code: str) -> None:
    with pytest.raises(ParameterError, match=code):
        Budget.of(**{"epsilon": 3, "delta": 1e-6, **settings})


def test_defaults_are_declared_restated_and_withdrawn() -> None:
    budget = Budget.of(epsilon=3, delta=1e-6, default_epsilon=0.1, default_delta=1e-8)
    assert budget.default_epsilon == Fraction(1, 10)
    assert budget.daily_epsilon == 1
    assert Budget.from_json(budget.to_json()) == budget
    other = budget.restated({"default_daily_epsilon": 0.3, "default_delta": "none"})
    assert (other.default_epsilon, other.default_delta, other.daily_epsilon) == (Fraction(1, 10), None, Fraction(3, 10))
    plain = Budget.of(epsilon=3, delta=1e-6)
    assert budget.restated({"default_epsilon": "none", "default_delta": "none"}) == plain
    assert "default" not in plain.to_json()  # the text of budgets as before there were defaults


@cases("named", ["default_epsilon", "default_delta"])
def test_a_grant_has_defaults(ledger: Ledger, named: str) -> None:
    grant = Grant.of("ana", "visits", **{named: 1e-4})
    ledger.grant(grant)
    assert ledger.grants().grants["ana", "visits"] == grant
    assert [str(float(amount)) for _, _, amount in grant.defaults] == ["0.0001"]
    assert [getattr(row, named) for row in ledger.granted_rows()] == [1e-4]
    for wrong in (NAN, -1, 0, 1e13):
        with pytest.raises(ParameterError):
            Grant.of("ana", "visits", **{named: wrong})


def test_what_a_day_allows_without_a_stated_epsilon(ledger: Ledger, at: At) -> None:
    """Only such questions count, of one principal, from midnight in UTC on; a refusal charges nothing."""
    at(EVENING)
    ledger.protect("visits", Budget.of(epsilon=10, default_epsilon=0.1, default_daily_epsilon=0.3))
    ledger.grant(Grant.of("ana", "visits", days=9))
    assert [spend(ledger, asked()) for _ in range(4)] == ["", "", "", "B022"]
    assert spend(ledger, asked("0.5", stated=True)) == ""
    assert spend(ledger, asked("0.1", stated=True)) == ""
    assert [spend(ledger, asked(principal="ana")) for _ in range(4)] == ["", "", "", "B022"]
    [row] = ledger.budgets()
    assert row.epsilon_spent == pytest.approx(1.2)
    at(EVENING + timedelta(seconds=1))
    assert [spend(ledger, asked()) for _ in range(4)] == ["", "", "", "B022"]
    at(EVENING)  # a clock that goes back frees nothing
    assert spend(ledger, asked()) == "B022"
    at(EVENING + timedelta(days=1))
    assert spend(ledger, asked()) == "B022"
    assert ledger.verify().ok


def test_what_a_day_allowed_survives_a_restart(durable_location: str, at: At) -> None:
    at(EVENING)
    for refusals in (["", "B022"], ["B022", "B022"]):
        ledger = Ledger.open(durable_location)
        ledger.protect("visits", Budget.of(epsilon=10, default_epsilon=0.1, default_daily_epsilon=0.1))
        assert [spend(ledger, asked()) for _ in range(2)] == refusals
        ledger.close()


def test_two_processes_share_a_day(durable_location: str, at: At) -> None:
    """Each has its own memory of the sum; planted: a memory that another ledger's entries do not reach."""
    at(EVENING)
    one, other = (Ledger.open(durable_location) for _ in range(2))
    one.protect("visits", Budget.of(epsilon=10, default_epsilon=0.1, default_daily_epsilon=0.4))
    assert [spend(ledger, asked()) for ledger in (one, other, one, other)] == [""] * 4
    assert [spend(ledger, asked()) for ledger in (one, other)] == ["B022", "B022"]
    one.close()
    other.close()


def test_a_further_budget_has_its_own_day(ledger: Ledger, at: At) -> None:
    """All budgets of a question are checked; its entry in each says which amounts were defaults."""
    at(EVENING)
    ledger.protect("visits", Budget.of(epsilon=10, default_epsilon=0.1))
    ledger.protect("labs", Budget.of(epsilon=10, default_epsilon=0.2, default_daily_epsilon=0.2))
    assert [spend(ledger, asked(also=["labs"])) for _ in range(3)] == ["", "", "B022"]
    assert [row.epsilon_spent for row in ledger.budgets()] == pytest.approx([0.2, 0.2])


def test_a_loss_without_a_finite_epsilon_counts_as_the_default(ledger: Ledger, at: At) -> None:
    at(EVENING)
    ledger.protect("visits", Budget.of(rho=10, default_epsilon=0.1, default_daily_epsilon=0.2))
    event = {"mechanism": "discrete_gaussian", "rho": "0.02"}
    charge = Charge("visits", event, "dp_count", {}, lineage={"defaults": {"epsilon": "0.1"}})
    assert charge.cost.epsilon is None
    assert [spend(ledger, charge) for _ in range(3)] == ["", "", "B022"]


def test_defaults_are_in_a_backup(durable_ledger: Ledger, tmp_path: Path, at: At) -> None:
    """They are restored with what the day already spent."""
    at(EVENING)
    durable_ledger.protect("visits", Budget.of(epsilon=10, default_epsilon=0.1, default_daily_epsilon=0.1))
    assert spend(durable_ledger, asked()) == ""
    assert durable_ledger.entries()[-1].guarantee.endswith("; epsilon by default")
    backup(durable_ledger, str(tmp_path / "copy"))
    restore(str(tmp_path / "copy"), str(tmp_path / "again.dpsql-ledger"))
    again = Ledger.open(str(tmp_path / "again.dpsql-ledger"))
    assert spend(again, asked()) == "B022"
    assert again.verify().ok
    again.close()
