"""What is drawn is what is charged: parts are sampled under the permit of their call, as often as their event says."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsql.functions
from dpsql import mechanisms
from dpsql.contract.events import (
    Approximate,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    GaussianDP,
    ObjectivePerturbation,
)
from dpsql.contract.gaussian_profile import gaussian_mu, share_of_mu
from dpsql.contract.measurement import (
    NOTHING,
    Draw,
    Measurement,
    Part,
    Permit,
    Within,
    draw_once,
    exchange,
    measurement_of,
)
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError
from dpsql.functions.registry import FUNCTIONS
from dpsql.ledger.budget import Budget
from dpsql.ledger.ledger import Charge, Ledger
from dpsql.mechanisms import one_shot as selecting
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.objective_perturbation import PerturbedObjective
from dpsql.mechanisms.one_shot import SelectionRounds
from dpsql.mechanisms.prefix_bounds import column_losses
from support.cases import cases

ONE = Fraction(1)
FIRST, SECOND = LaplaceNoise("first", ONE, 1), LaplaceNoise("second", 2 * ONE, 1)
BOTH = measurement_of(FIRST, SECOND)
GAUSSIAN = GaussianNoise("sums", Fraction("0.1"), ONE, Fraction(1, 10**6), (("a", ONE / 20), ("b", ONE / 30)))
refused = pytest.raises(InternalError, match="DPSQL-I034")


def sampling() -> list[tuple[type[Part], str]]:
    """Return every method that samples, of every kind of part."""
    modules = [
        importlib.import_module(f"dpsql.mechanisms.{each.name}") for each in pkgutil.iter_modules(mechanisms.__path__)
    ]
    found = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
    return [
        (kind, name)
        for kind in sorted(found, key=lambda kind: kind.__name__)
        if issubclass(kind, Part) and kind is not Part
        for name in dir(kind)
        if name == "draw" or name[:5] == "draw_"
    ]


@cases(("kind", "name"), sampling())
def test_no_part_samples_without_a_permit(kind: type[Part], name: str) -> None:
    part = object.__new__(kind)
    object.__setattr__(part, "name", "it")
    method = getattr(part, name)
    wanted = [
        each
        for each in inspect.signature(method).parameters.values()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]
    given: list[Any] = [None for each in wanted if each.kind is each.POSITIONAL_OR_KEYWORD]
    with refused:
        method(*given, **{each.name: None for each in wanted if each.kind is each.KEYWORD_ONLY})


def test_a_part_is_sampled_once() -> None:
    with Permit(BOTH).drawing():
        FIRST.draw([1])
        SECOND.draw([1])
        with refused:
            FIRST.draw([1])


def test_a_second_permit_does_not_carry_over() -> None:
    permit = Permit(BOTH)
    with permit.drawing():
        FIRST.draw([1])
    with refused:
        FIRST.draw([1])
    with permit.drawing(), refused:
        FIRST.draw([1])


def test_what_is_no_part_is_not_sampled() -> None:
    with Permit(measurement_of(FIRST)).drawing():
        for other in (SECOND, LaplaceNoise("first", 2 * ONE, 1), LaplaceNoise("first", ONE, 2)):
            with refused:
                other.draw([1])
    with Permit(NOTHING).drawing(), refused:
        FIRST.draw([1])


def test_another_thread_has_no_permit() -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            FIRST.draw([1])
        except InternalError as error:
            failures.append(error)

    with Permit(BOTH).drawing():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert [str(error)[:12] for error in failures] == ["[DPSQL-I034]"]


def test_rounds_and_shares_are_as_many_as_the_event_says() -> None:
    rounds = SelectionRounds("rounds", "gumbel", ONE, 3)
    with Permit(measurement_of(rounds, GAUSSIAN)).drawing():
        for _ in range(3):
            rounds.draw(np.array([1, 2]), utility_range=1)
        with refused:
            rounds.draw(np.array([1, 2]), utility_range=1)
        for share in ("a", "b"):
            GAUSSIAN.draw_counts(share, np.array([1]), squared_sensitivity=1)
            with refused:
                GAUSSIAN.draw_counts(share, np.array([1]), squared_sensitivity=1)
        with refused:
            GAUSSIAN.draw_counts("c", np.array([1]), squared_sensitivity=1)


def test_shares_of_gaussian_noise_spend_their_mu_together() -> None:
    """Counts of two shares, and the bounds of several columns of one, at the noise that is stated with them."""
    mu, shares = Fraction(1, 2), (("a", Fraction(3, 10)), ("b", Fraction(4, 10)))
    part = GaussianNoise("counts", mu, ONE, Fraction(1, 10**6), shares)
    with Permit(measurement_of(part)).drawing():
        noisy = [part.draw_counts(name, np.array([5, 7]), squared_sensitivity=2) for name, _ in shares]
    assert sum(2 / release.sigma**2 for release in noisy) == pytest.approx(float(mu**2), rel=1e-6)
    for width, last in ((1, False), (4, False), (5, True)):
        assert sum(column_losses(part.mu_of("a") ** 2, width, last=last)) == shares[0][1] ** 2


@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
def test_rounds_spend_together_what_they_are_charged(monkeypatch: pytest.MonkeyPatch, noise: str) -> None:
    part, spent = SelectionRounds("rounds", noise, ONE, 3), []

    def select(*given: Any, epsilon: Fraction, k: int, **named: Any) -> Any:
        spent.append(k * epsilon)
        return real(*given, epsilon=epsilon, k=k, **named)

    real = selecting.select
    monkeypatch.setattr(selecting, "select", select)
    with Permit(measurement_of(part)).drawing():
        for _ in range(3):
            part.draw(np.array([1, 2, 3]), utility_range=1)
    assert sum(spent) == part.event.cost.epsilon == ONE


def test_an_early_end_charges_what_was_drawn_and_no_less() -> None:
    permit = Permit(measurement_of(BOTH, SECOND))
    with permit.drawing():
        FIRST.draw([1])
    with refused:
        permit.reduce(measurement_of(measurement_of(SECOND)))
    with refused:
        permit.reduce(measurement_of(FIRST, FIRST))
    permit.reduce(measurement_of(BOTH.only("first")))
    assert permit.event == DiscreteLaplace(ONE)
    with permit.drawing(), refused:
        SECOND.draw([1])


def test_what_was_reserved_stays_charged() -> None:
    permit = Permit(measurement_of(BOTH, SECOND))
    whole = permit.reserve()
    permit.reduce(measurement_of(BOTH.only("first")))
    assert permit.event == whole == measurement_of(BOTH, SECOND).event
    with permit.drawing(), refused:
        SECOND.draw([1])


def test_less_may_be_charged_for_the_same_part_only_where_it_says_so() -> None:
    full = PerturbedObjective("coefficients", ONE, Fraction(1, 10**6))
    permit = Permit(measurement_of(full))
    with refused:
        permit.reduce(measurement_of(PerturbedObjective("coefficients", ONE / 2, Fraction(0))))
    assert permit.event == Approximate(ONE, Fraction(1, 10**6), "objective_perturbation")
    permit.reduce(measurement_of(PerturbedObjective("coefficients", ONE, Fraction(0))))
    assert permit.event == ObjectivePerturbation(ONE)


def test_parts_within_one_loss_may_stand_for_each_other_until_one_is_sampled() -> None:
    """What the ledger records is the loss that was stated, whichever of them are sampled."""
    bound = Approximate(2 * ONE, Fraction(1, 10**6), "either")
    halves = Within((FIRST, LaplaceNoise("other", ONE, 1)), bound)
    whole = Within((SECOND,), bound)
    before, after = measurement_of(GAUSSIAN, halves), measurement_of(GAUSSIAN, whole)
    assert before.event == after.event == Composed((GAUSSIAN.event, bound))
    permit = Permit(before)
    with permit.drawing():
        GAUSSIAN.draw_counts("a", np.array([1]), squared_sensitivity=1)
        exchange(halves, whole)
        with refused:
            FIRST.draw([1])
        with refused:
            GAUSSIAN.draw_counts("a", np.array([1]), squared_sensitivity=1)
        SECOND.draw([1])
        with refused:
            exchange(whole, halves)
    assert permit.event == before.event
    permit = Permit(before)
    with permit.drawing():
        FIRST.draw([1])
        with refused:
            exchange(halves, whole)
        with refused:
            SECOND.draw([1])
    with refused:
        exchange(halves, whole)
    with Permit(before).drawing(), refused:
        exchange(halves, Within((FIRST,), replace(bound, epsilon=3 * ONE)))


@pytest.mark.parametrize("bound", [Approximate(ONE, Fraction(1, 10), "small"), ObjectivePerturbation(ONE)])
def test_parts_that_cost_more_than_is_stated_are_refused(bound: Any) -> None:
    with refused:
        Within((SECOND,), bound)
    with refused:
        Within((GAUSSIAN,), replace(bound, epsilon=ONE) if bound.cost.delta == 0 else replace(bound, delta=ONE / 10**7))


def test_what_is_recorded_are_the_parts_in_their_order() -> None:
    assert BOTH.event == Composed((DiscreteLaplace(ONE), DiscreteLaplace(2 * ONE)))
    assert measurement_of(FIRST).event == FIRST.event
    assert measurement_of(BOTH, FIRST).event == Composed((BOTH.event, FIRST.event))
    assert measurement_of(BOTH, FIRST).leaves == (FIRST, SECOND, FIRST)
    assert BOTH["second"] is SECOND


@pytest.fixture
def ledger() -> Ledger:
    found = Ledger.open(":memory:")
    found.protect("d", Budget.of(epsilon=10))
    return found


def charge(ledger: Ledger, permit: Permit, draw: Callable[[], Any]) -> Any:
    return ledger.charge(Charge("d", event=permit, function="dp_sis", arguments={}), draw).result


def test_the_ledger_charges_what_its_draw_may_sample(ledger: Ledger) -> None:
    assert isinstance(charge(ledger, Permit(BOTH), lambda: FIRST.draw([0]) + SECOND.draw([0])), list)
    assert ledger.budgets()[0].epsilon_spent == 3
    with refused:
        FIRST.draw([0])


@pytest.mark.parametrize(
    "draw",
    [lambda: SECOND.draw([0]), lambda: [FIRST.draw([0]), FIRST.draw([0])]],
    ids=["not charged", "drawn twice"],
)
def test_a_draw_beyond_the_charge_gives_nothing_and_stays_charged(ledger: Ledger, draw: Callable[[], Any]) -> None:
    with pytest.raises(InternalError, match="DPSQL-I001"):
        charge(ledger, Permit(measurement_of(FIRST)), draw)
    assert ledger.budgets()[0].epsilon_spent == 1
    assert [row.status for row in ledger.entries()][-1] == "charged, no result"


def test_a_draw_without_a_permit_samples_nothing(ledger: Ledger) -> None:
    with pytest.raises(InternalError, match="DPSQL-I001"):
        ledger.charge(Charge("d", event=FIRST.event, function="dp_sis", arguments={}), lambda: FIRST.draw([0]))


def test_draws_without_a_ledger_are_single_ones() -> None:
    class Plan:
        measurement: Measurement = BOTH

    assert draw_once(lambda plan, value: plan.measurement["first"].draw([value])[0] is None, Plan(), 5) is False
    with refused:
        draw_once(lambda plan: [FIRST.draw([0]), FIRST.draw([0])], Plan())


def test_an_early_end_says_what_was_spent() -> None:
    assert Draw(BOTH.only("second"), lambda: 1).measurement.event == SECOND.event


def names_of(path: Path) -> set[str]:
    """Return the full names that a module imports, wherever it does."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


# What says how wide noise is, and keys of rows, which are no noise.
NO_NOISE = {"dpsql.noise.discrete.laplace_deviation", "dpsql.noise.entropy.SYSTEM"}


def samples(name: str) -> bool:
    """Whether a function takes a source of random bits."""
    module, _, attribute = name.rpartition(".")
    if not module.startswith("dpsql.mechanisms"):
        return False
    found = getattr(importlib.import_module(module), attribute, None)
    return callable(found) and "source" in getattr(getattr(found, "__code__", None), "co_varnames", ())


def test_the_check_of_imports_sees_samplers() -> None:
    assert samples("dpsql.mechanisms.one_shot.select")
    assert samples("dpsql.mechanisms.tukey.tukey")
    assert not samples("dpsql.mechanisms.tukey.LARGEST_MODELS")


FOLDER = Path(dpsql.functions.__path__[0])


@cases("name", [str(path.relative_to(FOLDER)) for path in sorted(FOLDER.rglob("*.py"))], quick=28)
def test_functions_sample_through_parts_alone(name: str) -> None:
    found = names_of(FOLDER / name)
    assert not {each for each in found if each.startswith("dpsql.noise.")} - NO_NOISE
    assert not {each for each in found if samples(each)}
    assert not {"Permit", "draw_once"} & {each.rpartition(".")[2] for each in found}


def test_every_function_has_its_own_measurement() -> None:
    for name, function in FUNCTIONS.items():
        assert "event" not in vars(function.plan), name
        assert not getattr(function.plan.measurement, "__isabstractmethod__", False), name


def _bounds_and_fit() -> GaussianNoise:
    epsilon, delta = Fraction(1), Fraction(1, 10**6)
    mu = gaussian_mu(epsilon, delta)
    shares = (("bounds", share_of_mu(Fraction(1, 4), mu)), ("fit", share_of_mu(Fraction(3, 4), mu)))
    return GaussianNoise("fit", mu, epsilon, delta, shares)


def test_some_releases_of_a_gaussian_part_have_a_smaller_mu() -> None:
    """The rest has its own mu, at the same epsilon and delta; a part with another loss is not covered."""
    whole = _bounds_and_fit()
    for names, share in ((["bounds"], 0.5), (["fit"], 0.75**0.5), (["bounds", "fit"], 1.0)):
        part = whole.spent(*names)
        assert float(part.mu / whole.mu) == pytest.approx(share, rel=1e-6)
        assert (part.epsilon, part.delta) == (whole.epsilon, whole.delta)
        assert whole.covers(part)
        assert not part.covers(whole) or names == ["bounds", "fit"]
        assert part.mu**2 >= sum(value**2 for name, value in whole.shares if name in names)
        for wrong in (
            {"epsilon": part.epsilon * 9 / 10},
            {"mu": part.mu * 9 / 10},
            {"delta": whole.delta / 2},
            {"shares": (("bounds", whole.mu),)},
        ):
            assert not whole.covers(replace(part, **wrong))
    permit = Permit(measurement_of(whole))
    with permit.drawing():
        whole.spend("bounds")
        permit.reduce(measurement_of(whole.spent("bounds")))
        with refused:
            whole.spend("fit")
    drawn = Permit(measurement_of(whole))
    with drawn.drawing():
        whole.spend("fit")
        with refused:
            drawn.reduce(NOTHING)
        with refused:
            drawn.reduce(measurement_of(whole.spent("bounds")))


@dataclass(frozen=True)
class _Cheaper(Part):
    """A part that says of every other part that it covers it."""

    event: Event = DiscreteLaplace(ONE)

    def covers(self, other: Part) -> bool:
        return isinstance(other, _Cheaper)


@cases(
    ("planned", "spent", "fits"),
    [
        (Approximate(ONE, ONE / 100), ObjectivePerturbation(ONE), True),
        (Approximate(ONE, ONE / 100), Approximate(ONE, ONE / 100), True),
        (Approximate(ONE, ONE / 100), Approximate(ONE, ONE / 200), False),
        (Approximate(ONE, ONE / 100), Approximate(ONE / 2, ONE / 100), False),
        (DiscreteLaplace(ONE), DiscreteLaplace(ONE / 2), False),
        (GaussianDP(ONE / 10, ONE, ONE / 100), GaussianDP(ONE / 20, ONE, ONE / 100), True),
        (GaussianDP(ONE / 10, ONE, ONE / 100), GaussianDP(ONE / 20, ONE / 2, ONE / 100), False),
        (GaussianDP(ONE / 10, ONE, ONE / 100), GaussianDP(ONE / 20, ONE, ONE / 200), False),
        (GaussianDP(ONE / 10, ONE, ONE / 100), DiscreteLaplace(ONE), False),
        (DiscreteGaussian(ONE / 100), DiscreteGaussian(ONE / 200), True),
        (DiscreteGaussian(ONE / 100, ONE / 100), DiscreteGaussian(ONE / 200, ONE / 100), False),
        (
            Composed((DiscreteLaplace(ONE), GaussianDP(ONE / 10, ONE, ONE / 100))),
            Composed((DiscreteLaplace(ONE), DiscreteLaplace(ONE))),
            False,
        ),
    ],
)
def test_a_cheaper_part_is_charged_at_a_point_fixed_before_it(planned: Event, spent: Event, fits: bool) -> None:
    permit = Permit(measurement_of(_Cheaper("it", planned)))
    with nullcontext() if fits else refused:
        permit.reduce(measurement_of(_Cheaper("it", spent)))


@pytest.mark.parametrize(
    "bound",
    [
        GaussianDP(ONE / 10, ONE, ONE / 100),
        Composed((DiscreteLaplace(ONE), DiscreteLaplace(ONE))),
        DiscreteGaussian(ONE),
    ],
)
def test_what_takes_the_place_of_other_parts_has_one_epsilon_and_delta(bound: Event) -> None:
    with refused:
        Within((LaplaceNoise("first", ONE / 2, 1),), bound)
    Within((LaplaceNoise("first", ONE / 2, 1),), Approximate(ONE, ONE / 100))
