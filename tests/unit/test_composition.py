"""The accountant 'rdp': sums, phases, the ledger's use of it, and the theorem itself on a small domain."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.contract.events import UNITS_PER_ONE, Cost, GaussianDP, cost_of, renyi_conversion, zcdp_epsilon
from dpsql.contract.gaussian_profile import gaussian_mu
from dpsql.errors import BudgetError, ParameterError
from dpsql.ledger.budget import Budget, Spent, refuse_overspend
from dpsql.ledger.composition import Composition, begin, best_order, pure_renyi_loss, renyi_loss
from dpsql.ledger.ledger import Charge, Ledger
from support.cases import cases

RDP = {"epsilon": 3, "delta": 1e-6, "accountant": "rdp"}


def pure(epsilon: object) -> dict[str, Any]:
    return {"mechanism": "exponential_noise", "epsilon": str(epsilon)}


def chosen(epsilon: object, rounds: int = 1) -> dict[str, Any]:
    return {"mechanism": "gumbel_noise", "epsilon": str(epsilon), "rounds": rounds}


def gaussian(epsilon: str, delta: str) -> dict[str, Any]:
    return GaussianDP(gaussian_mu(Fraction(epsilon), Fraction(delta)), Fraction(epsilon), Fraction(delta)).to_json()


FAILING = {"mechanism": "approximate", "epsilon": "0.1", "delta": "1e-8"}
EVENTS = (pure("0.05"), pure("1.5"), chosen("0.2", 4), gaussian("0.3", "1e-8"), FAILING)


def state(*events: dict[str, Any], **limits: Any) -> Composition:
    spent = Spent().under(Budget.of(**(RDP | limits)))
    for event in events:
        spent = spent.plus(cost_of(event))
    assert spent.composition is not None
    return spent.composition


def number(units: int | None) -> float:
    assert units is not None
    return units / UNITS_PER_ONE


def charge(ledger: Ledger, event: dict[str, Any], **changes: Any) -> None:
    draw = changes.pop("draw", lambda: 1)
    call: dict[str, Any] = {"function": "dp_sis", "arguments": {"k": 2}}
    ledger.charge(Charge("patients", event=event, **call | changes), draw)


def test_the_loss_of_randomised_response() -> None:
    for epsilon in (1e-6, 0.05, 1.0, 7.0, 30.0):
        for order in (1.5, 9.36, 80.0):
            true, false = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
            logs = [order * math.log(x) + (1 - order) * math.log(y) for x, y in ((true, false), (false, true))]
            exact = max(logs) + math.log1p(math.exp(min(logs) - max(logs)))
            ours = float(pure_renyi_loss(Fraction(epsilon), Fraction(order)))
            assert ours == pytest.approx(exact / (order - 1), rel=1e-6, abs=1e-14)
            assert ours <= min(epsilon, order * epsilon**2 / 2) * (1 + 1e-12)
    assert pure_renyi_loss(Fraction(10**30), Fraction(2)) == 10**30


def test_every_mechanism_has_the_least_loss_that_its_guarantees_imply() -> None:
    order = Fraction("9.36")
    small, large = Fraction("0.05"), Fraction(8)
    assert renyi_loss(cost_of(chosen(small)), order) == order * small**2 / 8
    assert renyi_loss(cost_of(chosen(4 * small, 4)), order) == 4 * order * small**2 / 8
    assert renyi_loss(cost_of(chosen(large)), order) == pure_renyi_loss(large, order) < large
    mu = Fraction(gaussian("0.3", "1e-8")["mu"])
    assert renyi_loss(cost_of(gaussian("0.3", "1e-8")), order) == order * mu**2 / 2
    assert renyi_loss(cost_of({"mechanism": "discrete_gaussian", "rho": "0.1"}), order) == order / 10
    # One point of a privacy profile bounds no Rényi loss: with a large delta its epsilon is below the true loss.
    wide = gaussian("0.1", "0.3")
    assert pure_renyi_loss(Fraction("0.1"), order) < order * Fraction(wide["mu"]) ** 2 / 2
    assert renyi_loss(cost_of(wide), order) == order * Fraction(wide["mu"]) ** 2 / 2
    assert renyi_loss(cost_of(FAILING), order) == pure_renyi_loss(Fraction("0.1"), order)


@settings(max_examples=30)
@given(st.lists(st.sampled_from(EVENTS), min_size=1, max_size=12))
def test_more_releases_never_cost_less(events: list[dict[str, Any]]) -> None:
    states = [state(*events[:count]) for count in range(len(events) + 1)]
    for before, after in pairwise(states):
        assert after.epsilon is not None
        assert before.epsilon is not None
        assert (after.epsilon, after.delta) >= (before.epsilon, before.delta)
        assert after.delta >= before.delta
    for event in events:
        alone = state(event)
        assert number(states[-1].epsilon) >= number(alone.epsilon)
        assert states[-1].delta >= alone.delta


def test_order_does_not_matter() -> None:
    ends = {state(*events) for events in permutations(EVENTS, 4) if FAILING in events and EVENTS[0] in events}
    assert len(ends) == 3  # one for each event that is left out
    assert state({"mechanism": "composed", "events": list(EVENTS)}) == replace(state(*EVENTS), releases=1)


def test_every_amount_is_rounded_up() -> None:
    tiny = state(pure("1e-30"))
    assert (tiny.pure, tiny.renyi) == (1, 1)
    assert Fraction(tiny.conversion, UNITS_PER_ONE) >= renyi_conversion(
        tiny.order or Fraction(2), Fraction(1, 2 * 10**6)
    )
    assert (tiny.tail, tiny.failure) == (5 * 10**11, 0)
    assert state(FAILING).failure == 10**10


def test_pure_releases_never_cost_more_than_under_basic() -> None:
    for events in ([pure(3)], [pure(1), chosen(2)], [pure("0.05")] * 60):
        assert number(state(*events).epsilon) <= 3
    assert state().epsilon == state().delta == 0
    assert number(state(*[pure("0.05")] * 145).epsilon) <= 3 < number(state(*[pure("0.05")] * 146).epsilon)


def test_the_order_suits_small_releases() -> None:
    order = best_order(3, 5e-7)
    room = [(3 - float(renyi_conversion(o, Fraction(1, 2 * 10**6)))) / float(o) for o in (order - 1, order, order + 1)]
    assert room[1] == max(room)
    # So it is as good as zCDP, whose order is chosen last.
    losses = Fraction(room[1])
    assert float(zcdp_epsilon(losses, Fraction(1, 2 * 10**6))) == pytest.approx(3, rel=1e-4)


def worst_strategy(limit: float, tail: Fraction, conversion: float, order: Fraction) -> float:
    """Return the largest chance, over all strategies, that a loss exceeds `limit`, weighted as delta is.

    The caller chooses after each answer which of three randomised responses to ask next, as long as the filter allows.
    """
    unit = Fraction("0.1")
    losses = [float(pure_renyi_loss(unit * size, order)) for size in (1, 2, 3)]

    @cache
    def value(loss: int, asked: tuple[int, int, int]) -> float:
        best = max(0.0, 1 - math.exp(limit - loss * float(unit)))
        for place, size in enumerate((1, 2, 3)):
            after = tuple(count + (place == at) for at, count in enumerate(asked))
            basic = sum(float(unit) * size * count for size, count in zip((1, 2, 3), after, strict=True))
            renyi = sum(each * count for each, count in zip(losses, after, strict=True)) + conversion
            if min(basic, max(0.0, renyi)) <= limit + 1e-9:
                true = 1 / (1 + math.exp(-float(unit) * size))
                ends = [value(loss + sign * size, (after[0], after[1], after[2])) for sign in (1, -1)]
                best = max(best, true * ends[0] + (1 - true) * ends[1])
        return best

    return value(0, (0, 0, 0))


@cases("limit", [0.8, 1.0, 1.5], quick=1)
def test_no_adaptive_strategy_exceeds_the_tail(limit: float) -> None:
    """The theorem, exactly, on every strategy of a small game; half of the conversion would break it."""
    tail = Fraction(1, 100)
    order = best_order(limit, float(tail))
    conversion = float(renyi_conversion(order, tail))
    worst = worst_strategy(limit, tail, conversion, order)
    assert 0.4 * tail < worst <= tail
    assert worst_strategy(limit, tail, conversion / 2, order) > tail


def test_a_state_is_written_and_read() -> None:
    for each in (state(), state(*EVENTS), Composition(None, 0, None, 7, None, 0, 9, 2)):
        assert Composition.from_json(each.to_json()) == each
    for text in ("{}", "[]", state().to_json().replace('"tail":"5', '"tail":"-5')):
        with pytest.raises((KeyError, TypeError, ValueError)):
            Composition.from_json(text)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"epsilon": 3, "accountant": "rdp"}, "P046"),
        ({"epsilon": 3, "delta": 1e-16, "accountant": "rdp"}, "P046"),
        ({"rho": 1, "delta": 1e-6, "accountant": "rdp"}, "P045"),
        ({"epsilon": 3, "delta": 1e-6, "accountant": "gdp"}, "P005"),
        ({"epsilon": 3, "delta": 1e-6, "accountant": 1}, "P005"),
    ],
)
def test_an_accountant_that_does_not_fit_is_refused(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(ParameterError, match=f"DPSQL-{code}"):
        Budget.of(**arguments)


def test_a_budget_keeps_its_accountant() -> None:
    budget = Budget.of(**RDP)
    assert Budget.from_json(budget.to_json()) == budget
    assert budget.text == "epsilon 3, delta 1e-06, accountant rdp"
    assert "accountant" not in Budget.of(epsilon=3, accountant="basic").to_json()


@pytest.mark.parametrize(
    ("event", "scale"),
    [
        (pure("0.05"), lambda epsilon: pure(epsilon)),
        (chosen("1", 5), lambda epsilon: chosen(epsilon, 5)),
        (gaussian("1", "1e-7"), lambda epsilon: gaussian(epsilon, "1e-7")),
    ],
    ids=["pure", "chosen", "gaussian"],
)
def test_the_epsilon_that_a_refusal_names_fits_and_little_more_does(event: dict[str, Any], scale: Any) -> None:
    budget = Budget.of(**RDP)
    spent = Spent().under(budget)
    with pytest.raises(BudgetError, match=r"B001.*under accountant rdp.*Lower epsilon to [\d.]+, or repeat") as caught:
        for _ in range(2000):
            refuse_overspend("d", budget, spent, cost_of(event), strict=True)
            spent = spent.plus(cost_of(event))
    epsilon = str(caught.value).split("Lower epsilon to ")[1].split(",")[0]
    refuse_overspend("d", budget, spent, cost_of(scale(epsilon)), strict=True)
    with pytest.raises(BudgetError, match="DPSQL-B001"):
        refuse_overspend("d", budget, spent, cost_of(scale(str(float(epsilon) + 2e-4))), strict=True)
    assert "dp_protect" not in str(caught.value)


def test_failures_have_the_other_half_of_delta() -> None:
    budget = Budget.of(**RDP)
    half, more = ({"mechanism": "approximate", "epsilon": "0.1", "delta": delta} for delta in ("5e-7", "5.1e-7"))
    refuse_overspend("d", budget, Spent().under(budget), cost_of(half), strict=True)
    with pytest.raises(BudgetError, match=r"needs delta 1.01e-06, 1e-06 remains of 1e-06\. Lower delta to 5e-07"):
        refuse_overspend("d", budget, Spent().under(budget), cost_of(more), strict=True)
    spent = Spent().under(budget).plus(cost_of(half))
    with pytest.raises(BudgetError, match=r"nothing remains of 1e-06\. Repeat"):
        refuse_overspend("d", budget, spent, cost_of(FAILING), strict=True)
    refuse_overspend("d", budget, spent, cost_of(gaussian("0.3", "1e-6")), strict=True)  # no failure


def test_a_cost_without_an_event_is_composed_by_what_it_says() -> None:
    whole = Spent().under(Budget.of(**RDP)).plus(Cost(Fraction(1), Fraction("1e-8"), None)).composition
    assert whole == state({"mechanism": "approximate", "epsilon": "1", "delta": "1e-8"})


def test_the_ledger_spends_under_the_accountant(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(**RDP))
    assert ledger.budgets()[0].epsilon_spent == ledger.budgets()[0].delta_spent == 0.0
    for event in EVENTS:
        charge(ledger, event)
    (row,) = ledger.budgets()
    expected = state(*EVENTS)
    assert row.accountant == f"rdp of order {float(expected.order or 0):g}"
    assert (row.epsilon_spent, row.delta_spent) == (number(expected.epsilon), number(expected.delta))
    assert row.epsilon_remaining == pytest.approx(3 - number(expected.epsilon))
    assert row.delta_remaining == pytest.approx(1e-6 - number(expected.delta))
    assert row.renyi_spent == number(expected.renyi)
    assert row.renyi_remaining == pytest.approx(3 - number(expected.conversion) - number(expected.renyi))
    assert ledger.verify().ok


@pytest.mark.long
def test_nothing_that_was_charged_is_charged_again_or_forgotten(ledger: Ledger) -> None:
    """Basic, then rdp, then a larger rdp budget, then basic again: each phase begins with what was spent."""
    ledger.protect("patients", Budget.of(epsilon=3, delta=1e-6))
    for _ in range(40):
        charge(ledger, pure("0.05"))
    charge(ledger, {"mechanism": "approximate", "epsilon": "0.1", "delta": "2e-7"})
    ledger.protect("patients", Budget.of(**RDP), replace=True)
    (row,) = ledger.budgets()
    assert (row.epsilon_spent, row.delta_spent) == (2.1, 2e-7)  # not one unit less
    with pytest.raises(BudgetError, match="DPSQL-B001"):
        while True:
            charge(ledger, pure("0.05"))
    (row,) = ledger.budgets()
    assert 2.99 < (row.epsilon_spent or 0) <= 3
    assert row.delta_spent == pytest.approx(2e-7 + 4e-7)

    ledger.protect("patients", Budget.of(epsilon=6, delta=2e-6, accountant="rdp"), replace=True)
    assert ledger.budgets()[0].epsilon_spent == row.epsilon_spent
    for _ in range(60):
        charge(ledger, pure("0.05"))
    spent = ledger.budgets()[0].epsilon_spent
    assert spent is not None
    assert 3 < spent < 6
    assert ledger.entries()[-1].epsilon == 0.05

    ledger.protect("patients", Budget.of(epsilon=7, delta=2e-6), replace=True)
    assert ledger.budgets()[0].epsilon_spent == spent
    charge(ledger, pure("0.05"))
    assert ledger.budgets()[0].epsilon_spent == pytest.approx(spent + 0.05)
    assert ledger.budgets()[0].accountant == "basic"
    ledger.protect("patients", Budget.of(rho=10), replace=True)
    assert ledger.budgets()[0].rho_spent is None  # the failing release has none
    assert ledger.verify().ok


@pytest.mark.long
def test_each_dataset_that_a_release_is_charged_to_has_its_own_accountant(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(**RDP))
    ledger.protect("visits", Budget.of(epsilon=3, delta=1e-6))
    ledger.protect("wards", Budget.of(epsilon=2, delta=1e-6, accountant="rdp"))
    event = pure("0.05")
    for _ in range(60):
        charge(ledger, event, also=["visits", "wards", "unlimited"])
    with pytest.raises(BudgetError, match=r"dataset 'visits' needs epsilon 0\.05, nothing"):
        charge(ledger, event, also=["visits", "wards"])
    while True:
        try:
            charge(ledger, event, also=["wards"])
        except BudgetError as error:
            assert "dataset 'wards' needs epsilon" in str(error)
            assert "under accountant rdp" in str(error)
            break
    rows = {row.dataset: row for row in ledger.budgets()}
    calls = rows["wards"].releases
    assert calls > 60
    assert {name: row.releases for name, row in rows.items()} == {
        "patients": calls, "visits": 60, "wards": calls, "unlimited": 60
    }  # fmt: skip
    assert rows["patients"].epsilon_spent == number(state(*[event] * calls).epsilon)
    assert rows["wards"].epsilon_spent == number(state(*[event] * calls, epsilon=2).epsilon)
    assert (rows["visits"].epsilon_spent, rows["unlimited"].epsilon_spent) == (3, 3)
    ledger.charge_failure(Charge("patients", event=event, function="dp_sis", arguments={}, also=["wards"]))
    rows = {row.dataset: row for row in ledger.budgets()}
    assert rows["wards"].epsilon_remaining == 0
    assert rows["patients"].epsilon_spent == number(state(*[event] * (calls + 1)).epsilon)
    assert ledger.verify().ok


def test_a_lower_budget_leaves_nothing(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(**RDP))
    for _ in range(100):
        charge(ledger, pure("0.05"))
    ledger.protect("patients", Budget.of(epsilon=1, delta=1e-7, accountant="rdp"), replace=True)
    (row,) = ledger.budgets()
    assert (row.epsilon_remaining, row.delta_remaining) == (0.0, 0.0)
    with pytest.raises(BudgetError, match="DPSQL-B001"):
        charge(ledger, pure("1e-9"))


def test_a_phase_without_a_release_chooses_its_order_anew(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(**RDP))
    ledger.protect("patients", Budget.of(epsilon=1, delta=1e-6, accountant="rdp"), replace=True)
    assert ledger.budgets()[0].accountant == f"rdp of order {float(best_order(1, 5e-7)):g}"
    assert ledger.verify().ok


def test_a_gaussian_without_a_delta_counts_under_rdp_only(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(**RDP))
    charge(ledger, {"mechanism": "discrete_gaussian", "rho": "0.01"})
    assert ledger.budgets()[0].epsilon_spent is not None
    ledger.protect("patients", Budget.of(epsilon=6, delta=1e-6), replace=True)
    charge(ledger, pure("0.05"))
    ledger.charge_failure(
        Charge("patients", event={"mechanism": "discrete_gaussian", "rho": "0.01"}, function="dp_sis", arguments={})
    )
    ledger.protect("patients", Budget.of(**RDP), replace=True)
    with pytest.raises(BudgetError, match="DPSQL-B004"):
        charge(ledger, pure("0.05"))


def test_a_race_of_threads_gets_exactly_what_fits(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(**RDP))
    event = pure("0.2")
    fitting = 0
    while (spent := state(*[event] * (fitting + 1)).epsilon) is not None and number(spent) <= 3:
        fitting += 1

    def work(_: int) -> int:
        granted = 0
        for _ in range(6):
            try:
                charge(ledger, event)
                granted += 1
            except BudgetError:
                ledger.budgets()
        return granted

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == fitting < 48
    assert ledger.verify().ok


def test_begin_says_nothing_while_all_is_basic() -> None:
    limits = {"epsilon": 10**18, "delta": 0}
    assert begin("basic", **limits, spent=(5, 0), standing=None) is None
    back = begin("basic", **limits, spent=(5, 0), standing=state(pure(1)))
    assert back is not None
    assert (back.epsilon, back.delta) == (state(pure(1)).epsilon, state(pure(1)).delta)
