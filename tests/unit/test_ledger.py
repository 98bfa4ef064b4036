from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from dpsql.contract.events import UNITS_PER_ONE
from dpsql.errors import BudgetError, InternalError, LedgerError, ParameterError
from dpsql.ledger.ledger import Budget, Charge, Entry, Ledger
from support.cases import cases


def event(epsilon: object = "0.1") -> dict[str, Any]:
    return {"mechanism": "exponential_noise", "epsilon": str(epsilon)}


def charge(ledger: Ledger, dataset: str = "patients", *, epsilon: object = "0.1", **changes: Any) -> Entry:
    draw, remark = changes.pop("draw", lambda: ["g17"]), changes.pop("remark", "")
    arguments = {"k": 2, "epsilon": str(epsilon)}
    call: dict[str, Any] = {"event": event(epsilon), "function": "dp_sis", "arguments": arguments}
    return ledger.charge(Charge(dataset, **call | changes), draw, remark=remark)


def test_a_charge_returns_its_receipt_and_is_recorded(ledger: Ledger) -> None:
    entry = charge(ledger, draw=lambda: [{"rank": 1, "feature": "g17"}, (1, 2.5)])
    assert entry.sequence == 1
    assert entry.result == [{"rank": 1, "feature": "g17"}, [1, 2.5]]
    assert not entry.replayed
    (row,) = ledger.entries()
    assert (row.sequence, row.dataset, row.function, row.status) == (1, "patients", "dp_sis", "released")
    assert (row.epsilon, row.delta, row.rho) == (0.1, 0.0, 0.005)
    assert row.guarantee == entry.guarantee == "pure 0.1-DP, add_remove of one row"
    assert row.event == '{"epsilon":"0.1","mechanism":"exponential_noise"}'
    assert row.hash == entry.hash == ledger.verify().head
    assert row.recorded_at.endswith("Z")


def test_what_reads_two_datasets_is_charged_to_both_and_refused_by_either(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(epsilon=1))
    ledger.protect("visits", Budget.of(epsilon=0.3))
    charge(ledger, epsilon="0.2", also=["Visits"])
    assert {row.dataset: row.epsilon_spent for row in ledger.budgets()} == {"patients": 0.2, "visits": 0.2}
    for datasets in (("patients", "visits"), ("visits", "patients")):
        with pytest.raises(BudgetError, match=r"DPSQL-B001.*visits"):
            charge(ledger, datasets[0], epsilon="0.2", also=[datasets[1]])
    with pytest.raises(InternalError, match="DPSQL-I001"):
        charge(ledger, epsilon="0.1", also=["visits"], draw=lambda: 1 / 0)
    assert {row.dataset: round(row.epsilon_spent or 0, 9) for row in ledger.budgets()} == {
        "patients": 0.3,
        "visits": 0.3,
    }


def test_the_guarantee_names_the_privacy_unit(ledger: Ledger) -> None:
    entry = charge(ledger, neighbours="replace", privacy_unit="patient_nbr", max_rows_per_unit=3)
    assert entry.guarantee == "pure 0.1-DP, replace of all rows of one patient_nbr (at most 3 rows)"


def test_a_tenth_fits_three_times_into_three_tenths_and_not_once_more(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(epsilon=0.3))
    for _ in range(3):
        charge(ledger, epsilon=0.1)
    (budget,) = ledger.budgets()
    assert (budget.epsilon_spent, budget.epsilon_remaining) == (0.3, 0.0)
    with pytest.raises(BudgetError, match="DPSQL-B001"):
        charge(ledger, epsilon=Fraction(1, UNITS_PER_ONE))
    with pytest.raises(BudgetError, match="DPSQL-B001"):
        ledger.check(Charge("patients", event("1e-30"), "dp_sis", {}))  # rounded up to one unit, not down to nothing


def test_the_float_of_ln_3_is_spent_to_the_last_digit(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(epsilon=math.log(3)))
    charge(ledger, epsilon=repr(math.log(3)))
    assert ledger.budgets()[0].epsilon_remaining == 0.0


def test_amounts_beyond_64_bits_stay_exact(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(epsilon=10**6))
    charge(ledger, epsilon=Fraction(10**6) - Fraction(1, UNITS_PER_ONE))
    charge(ledger, epsilon=Fraction(1, UNITS_PER_ONE))
    with pytest.raises(BudgetError):
        charge(ledger, epsilon=Fraction(1, UNITS_PER_ONE))


def test_delta_is_a_limit_of_its_own(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(epsilon=10, delta=2e-6))
    approximate = {"mechanism": "approximate", "epsilon": "1", "delta": "1e-6"}
    for _ in range(2):
        charge(ledger, event=approximate)
    with pytest.raises(BudgetError, match="needs delta 1e-06, nothing remains of 2e-06"):
        charge(ledger, event=approximate)
    charge(ledger, epsilon=8)  # pure releases still fit
    (budget,) = ledger.budgets()
    assert (budget.delta_spent, budget.delta_remaining, budget.rho_spent, budget.epsilon_zcdp) == (
        2e-6,
        0.0,
        None,
        None,
    )


def test_a_rho_budget_adds_up_rho(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(rho=0.5, delta=1e-5))
    charge(ledger, event={"mechanism": "gumbel_noise", "epsilon": "2", "rounds": 2})
    charge(ledger, event={"mechanism": "discrete_gaussian", "rho": "0.25"})
    with pytest.raises(BudgetError, match="DPSQL-B001"):
        charge(ledger, epsilon="1e-6")
    (budget,) = ledger.budgets()
    assert (budget.budget, budget.rho_spent, budget.rho_remaining) == ("rho 0.5", 0.5, 0.0)
    assert (budget.epsilon_spent, budget.epsilon_remaining, budget.delta_remaining) == (None, None, None)
    assert budget.epsilon_zcdp == pytest.approx(4.7, abs=0.2)
    assert budget.zcdp_delta == 1e-5


def test_a_dataset_never_protected_is_unlimited_except_under_strict(ledger: Ledger) -> None:
    charge(ledger, epsilon=1000)
    (budget,) = ledger.budgets()
    assert (budget.budget, budget.releases, budget.epsilon_spent, budget.epsilon_remaining) == (
        "unlimited",
        1,
        1000.0,
        None,
    )
    with pytest.raises(BudgetError, match="DPSQL-B002"):
        ledger.check(Charge("patients", event(), "dp_sis", {}, strict=True))
    with pytest.raises(BudgetError, match="DPSQL-B002"):
        charge(ledger, strict=True, draw=_never)
    ledger.protect("patients", Budget.of(epsilon=1001))
    charge(ledger, strict=True, epsilon=1)
    with pytest.raises(BudgetError, match="DPSQL-B001"):  # what was spent before counts
        charge(ledger)


def test_protect_is_idempotent_and_changes_only_by_replace(ledger: Ledger) -> None:
    budget = Budget.of(epsilon=1, lower=0, upper=16)
    assert ledger.policy("patients") is None
    assert ledger.protect("patients", budget)
    assert not ledger.protect("patients", Budget.of(epsilon=1.0, lower=0.0, upper=16))
    assert ledger.policy("patients") == budget
    charge(ledger, epsilon=1)
    with pytest.raises(BudgetError, match=r"DPSQL-B005.*epsilon 1.*replace := true"):
        ledger.protect("patients", Budget.of(epsilon=2))
    assert ledger.policy("patients") == budget
    assert ledger.protect("patients", Budget.of(epsilon=2), replace=True)
    charge(ledger, epsilon=1)
    with pytest.raises(BudgetError):
        charge(ledger)
    ledger.protect("patients", Budget.of(epsilon=0.5), replace=True)
    assert ledger.budgets()[0].epsilon_remaining == 0.0
    assert [row.status for row in ledger.entries()] == ["protected", "released", "protected", "released", "protected"]
    assert ledger.entries()[0].epsilon is None
    assert ledger.verify().ok


def test_datasets_have_budgets_of_their_own_and_names_without_case(ledger: Ledger) -> None:
    ledger.protect("Patients", Budget.of(epsilon=1))
    ledger.protect("other", Budget.of(epsilon=5))
    charge(ledger, "PATIENTS", epsilon=1)
    with pytest.raises(BudgetError):
        charge(ledger, "patients")
    charge(ledger, "other", epsilon=5)
    assert [(row.dataset, row.releases) for row in ledger.budgets()] == [("other", 1), ("patients", 1)]
    assert len(ledger.entries("pAtients")) == 2
    assert len(ledger.entries()) == 4


@cases("name", ["a'b\"c; --", "Größe.表", "x" * 1000, "%s :name ?", "\\"], quick=2, alone=True)
def test_any_name_is_only_a_name(ledger: Ledger, name: str) -> None:
    ledger.protect(name, Budget.of(epsilon=1))
    entry = charge(ledger, name, name=name, epsilon=1, draw=lambda: name)
    again = charge(ledger, name, name=name, epsilon=1, draw=_never)
    assert again == Entry(2, name, True, entry.guarantee, entry.hash, entry.recorded_at)
    with pytest.raises(BudgetError):
        charge(ledger, name)
    assert ledger.verify().ok


@cases("name", ["", "a\x00b", "\ud800", "x" * 1001, None, 3], quick=4, alone=True)
def test_a_name_that_no_database_keeps_is_refused(ledger: Ledger, name: Any) -> None:
    with pytest.raises(ParameterError, match="DPSQL-P013"):
        charge(ledger, name, draw=_never)
    with pytest.raises(ParameterError, match="DPSQL-P013"):
        ledger.replay("patients", name, "0")
    assert ledger.entries() == []


def test_the_owner_s_policy_binds_every_call(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(epsilon=1, neighbours="replace", privacy_unit="patient", max_rows_per_unit=2))
    unit = {"neighbours": "replace", "privacy_unit": "Patient"}
    ledger.check(Charge("patients", event(), "dp_sis", {}, **unit))  # type: ignore[arg-type]
    charge(ledger, max_rows_per_unit=7, **unit)
    for wrong in ({"neighbours": "add_remove"}, {"privacy_unit": None}, {"privacy_unit": "visit"}):
        with pytest.raises(BudgetError, match="DPSQL-B003"):
            ledger.check(Charge("patients", event(), "dp_sis", {}, **(unit | wrong)))  # type: ignore[arg-type]
        with pytest.raises(BudgetError, match="DPSQL-B003"):
            charge(ledger, **(unit | wrong), draw=_never)


def test_a_named_release_is_replayed_and_charged_once(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(epsilon=0.1))
    first = charge(ledger, name="weekly", arguments={"k": 2, "lower": 0, "names": ["a", "b"]}, draw=lambda: ["g17"])
    again = charge(ledger, name="weekly", arguments={"names": ("a", "b"), "lower": 0.0, "k": 2}, draw=_never)
    assert (again.result, again.sequence, again.replayed) == (first.result, 1 + 1, True)
    fingerprint = Ledger.fingerprint("Patients", "dp_sis", {"k": 2, "lower": 0, "names": ["a", "b"]})
    assert ledger.replay("patients", "weekly", fingerprint) == again
    assert ledger.replay("patients", "monthly", fingerprint) is None
    assert ledger.replay("others", "weekly", fingerprint) is None
    assert ledger.budgets()[0].releases == 1
    assert ledger.entries()[1].release == "weekly"


@cases("changes", [{"arguments": {"k": 3}}, {"function": "dp_other"}], quick=2, alone=True)
def test_a_name_with_other_arguments_is_an_error(ledger: Ledger, changes: dict[str, Any]) -> None:
    charge(ledger, name="weekly", arguments={"k": 2})
    with pytest.raises(ParameterError, match=r"DPSQL-P014.*'weekly'"):
        charge(ledger, **({"name": "weekly", "arguments": {"k": 2}, "draw": _never} | changes))
    assert len(ledger.entries()) == 1


def test_a_refused_charge_draws_nothing(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(epsilon=0.05))
    with pytest.raises(BudgetError):
        charge(ledger, draw=_never)
    with pytest.raises(ParameterError, match="DPSQL-P049"):
        charge(ledger, arguments={"k": object()}, draw=_never)
    with pytest.raises(ParameterError, match="DPSQL-P048"):
        charge(ledger, event={"mechanism": "magic"}, draw=_never)
    assert len(ledger.entries()) == 1


@cases(
    "draw",
    [
        lambda: 1 / 0,
        lambda: math.nan,
        lambda: object(),
        lambda: _raise(BudgetError("B001", "secret 42")),
        lambda: _raise(MemoryError()),
    ],
    ids=["error", "nan", "no JSON", "our own error", "memory"],
    quick=2,
    alone=True,
)
def test_a_draw_that_fails_stays_charged_and_says_nothing(ledger: Ledger, draw: Callable[[], Any]) -> None:
    ledger.protect("patients", Budget.of(epsilon=0.1))
    with pytest.raises(InternalError, match="DPSQL-I001") as caught:
        charge(ledger, draw=draw)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert "42" not in str(caught.value)
    assert ledger.entries()[-1].status == "charged, no result"
    assert ledger.budgets()[0].epsilon_remaining == 0.0
    assert ledger.verify().ok


@cases("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit], quick=3, alone=True)
def test_an_interrupted_draw_stays_charged(ledger: Ledger, interrupt: type[BaseException]) -> None:
    with pytest.raises(interrupt):
        charge(ledger, draw=lambda: _raise(interrupt()))
    (row,) = ledger.entries()
    assert (row.status, row.epsilon) == ("charged, no result", 0.1)


def test_a_failed_named_release_draws_and_charges_anew(ledger: Ledger) -> None:
    with pytest.raises(InternalError):
        charge(ledger, name="weekly", draw=lambda: 1 / 0)
    entry = charge(ledger, name="weekly", draw=lambda: None)
    assert (entry.result, entry.replayed) == (None, False)
    assert charge(ledger, name="weekly", draw=_never).replayed  # a result of None is a result
    assert ledger.budgets()[0].epsilon_spent == 0.2


def test_a_statistic_that_failed_is_charged_even_beyond_the_budget(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(epsilon=0.1))
    call: dict[str, Any] = {"event": event(), "function": "dp_sis", "arguments": {}}
    assert [ledger.charge_failure(Charge("patients", **call)) for _ in range(2)] == [2, 3]
    (budget,) = ledger.budgets()
    assert (budget.epsilon_spent, budget.epsilon_remaining, budget.releases) == (0.2, 0.0, 2)
    assert ledger.verify().ok


def test_an_empty_ledger(ledger: Ledger) -> None:
    assert ledger.entries() == []
    assert ledger.budgets() == []
    assert ledger.policy("patients") is None
    report = ledger.verify()
    assert (report.ok, report.entries) == (True, 0)
    assert ledger.verify(report.head).ok


def test_a_closed_ledger_says_so() -> None:
    ledger = Ledger.open(":memory:")
    ledger.close()
    with pytest.raises(LedgerError, match="DPSQL-L012"):
        ledger.budgets()


def test_memory_ledgers_are_apart() -> None:
    first, second = Ledger.open(), Ledger.open(":memory:")
    charge(first)
    assert (len(first.entries()), len(second.entries())) == (1, 0)
    first.close()
    second.close()


def test_sqlalchemy_is_imported_late() -> None:
    check = "import sys, dpsql, dpsql.ledger.ledger; dpsql.ledger.ledger.Ledger.open(); sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def _never() -> Any:
    raise AssertionError("draw was called")


def _raise(error: BaseException) -> Any:
    raise error
