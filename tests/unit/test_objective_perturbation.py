"""Logistic regression by objective perturbation: accounting, the solver and its certificate."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from dpsql.contract.gaussian_profile import gaussian_delta
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.regression.logistic import LogisticPlan
from dpsql.kernels import logistic as kernel
from dpsql.kernels.descent import Descent, descent, minimise
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.logistic import FineGradient, GradientSums, SignedRows
from dpsql.mechanisms.objective_perturbation import (
    OUTPUT_SHARE,
    calibrate,
    default_regularization,
    exponential_rate,
    least_regularization,
    objective_epsilon,
    objective_perturbation,
)
from dpsql.noise.ball import ball_error
from dpsql.testing.bits import SeededBits
from support.cases import cases
from support.laws.logistic import published_calibration

S = FIXED_POINT_ONE
EPSILONS = [Fraction(1, 10), Fraction(1), Fraction(5)]


def signed(count: int, width: int, seed: int = 0, share: float = 1.0) -> np.ndarray:
    """Return signed integer rows of norm at most S, the first column the intercept."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(count, width)) * (generator.random((count, width)) < share)
    rows[:, 0] = 1.0
    labels = np.where(rows[:, :3].sum(axis=1) + generator.logistic(size=count) > 0, 1.0, -1.0)
    rows *= labels[:, None] / np.sqrt((rows**2).sum(axis=1, keepdims=True))
    return np.trunc(rows * S * (1 - 1e-9))


def kept(rows: np.ndarray) -> SignedRows:
    store = SignedRows(rows.shape[1])
    store.add(rows)
    return store


def slow_epsilon(rate: float, ridge: float) -> float:
    q = np.linspace(0, 1, 2_000_001)
    return float(np.max(rate * q + np.log1p(q * (1 - q) / ridge)))


@cases("ridge", [0.01, 0.3, 1.0, 7.0], quick=3)
@cases("rate", [0.0, 0.02, 0.7, 1.0, 2.0, 9.0])
def test_the_loss_is_the_maximum(rate: float, ridge: float) -> None:
    found = objective_epsilon(Fraction(rate), Fraction(ridge))
    assert float(found) == pytest.approx(slow_epsilon(rate, ridge), rel=1e-10)
    assert objective_epsilon(Fraction(rate), Fraction(ridge), "replace") == found + Fraction(rate)


@cases("neighbours", ["add_remove", "replace"], quick=17)
@cases("epsilon", EPSILONS)
@cases("times", [1.01, 1.5, 10.0, 1000.0])
def test_the_rate_is_the_largest(epsilon: Fraction, times: float, neighbours: str) -> None:
    ridge = Fraction(times * 0.25 / math.expm1(float(epsilon)))
    rate = exponential_rate(epsilon, ridge, neighbours)
    assert objective_epsilon(rate, ridge, neighbours) <= epsilon
    assert objective_epsilon(rate * (1 + Fraction(1, 10**9)), ridge, neighbours) > epsilon
    if rate * ridge >= 1:
        assert rate == epsilon / {"add_remove": 1, "replace": 2}[neighbours]


def test_too_small_a_ridge_leaves_no_rate() -> None:
    least = Fraction(0.25 / math.expm1(1.0))
    assert exponential_rate(Fraction(1), least * Fraction(99, 100)) == 0
    assert exponential_rate(Fraction(1), least * Fraction(101, 100)) > 0


def test_published_numbers() -> None:
    """The published calibration at epsilon 1, 1000 rows, ridge 0.001 is loose for both relations."""
    scale, ridge = published_calibration(1.0, 1000, 1e-3)
    spent = [
        float(objective_epsilon(1 / Fraction(scale), Fraction(ridge), relation))
        for relation in ("replace", "add_remove")
    ]
    assert spent == pytest.approx([0.6621, 0.3852], abs=5e-5)


@cases("neighbours", ["add_remove", "replace"])
@cases("delta", [None, Fraction("1e-6")])
@cases("rows", [1, 5])
@cases("epsilon", EPSILONS)
def test_a_calibration_spends_what_it_says(
    epsilon: Fraction, delta: Fraction | None, rows: int, neighbours: str
) -> None:
    noise = calibrate(epsilon, delta, width=200, neighbours=neighbours, max_rows_per_unit=rows)
    assert noise.law == ("exponential" if delta is None else "gaussian")
    assert noise.output_epsilon == epsilon * OUTPUT_SHARE
    left = epsilon - noise.output_epsilon
    if delta is None:
        one = objective_epsilon(1 / noise.scale, noise.regularization, neighbours)
        assert left * Fraction(999, 1000) < rows * one <= left
        assert noise.event.to_json() == {"mechanism": "objective_perturbation", "epsilon": str(epsilon)}
    else:
        steps = rows * {"add_remove": 1, "replace": 2}[neighbours]
        rate = exponential_rate(left / steps, noise.regularization)
        one = gaussian_delta(1 / noise.scale, rate)
        grown = float(left) / steps
        total = float(one) * math.expm1(steps * grown) / math.expm1(grown)
        assert 0.99 * float(delta) < total <= float(delta)
        assert noise.event.to_json()["delta"] == str(delta)


def test_delta_is_spent_only_where_it_helps() -> None:
    few, many = (calibrate(Fraction(1), Fraction("1e-6"), width=width, neighbours="add_remove") for width in (3, 100))
    assert (few.law, few.delta, few.event.mechanism) == ("exponential", 0, "objective_perturbation")
    assert many.law == "gaussian"
    assert many.linear_deviation(100) < calibrate(
        Fraction(1), None, width=100, neighbours="add_remove"
    ).linear_deviation(100)
    # A delta that no mu covers is of no use either, and no error.
    tiny = calibrate(Fraction(1), Fraction(1, 10**301), width=100, neighbours="add_remove")
    assert tiny.law == "exponential"


@pytest.mark.parametrize(
    ("epsilon", "ridge", "code"),
    [(1.0, 0.14, "P033"), (1.0, 1e-9, "P033"), (1.0, 1e20, "P033"), (1e-10, None, "P038"), (0.1, 1.0, "P033")],
)
def test_refused(epsilon: float, ridge: float | None, code: str) -> None:
    with pytest.raises(ParameterError) as caught:
        calibrate(Fraction(epsilon), None, width=3, neighbours="add_remove", regularization=ridge)
    assert caught.value.code == f"DPSQL-{code}"


def test_the_least_ridge_is_named() -> None:
    least = least_regularization(Fraction(1), 4)
    with pytest.raises(ParameterError, match=f"{least:.3g}"):
        calibrate(Fraction(1), None, width=3, neighbours="replace", max_rows_per_unit=4, regularization=least)
    noise = calibrate(
        Fraction(1), None, width=3, neighbours="replace", max_rows_per_unit=4, regularization=1.05 * least
    )
    assert noise.scale > 8


@cases("width", [1, 3, 20, 5000])
@cases("epsilon", [*EPSILONS, Fraction(1000)])
def test_the_usual_ridge_costs_nothing(epsilon: Fraction, width: int) -> None:
    for neighbours, steps in (("add_remove", 1), ("replace", 2)):
        ridge = default_regularization(epsilon, None, width=width, neighbours=neighbours, max_rows_per_unit=3)
        noise = calibrate(epsilon, None, width=width, neighbours=neighbours, max_rows_per_unit=3)
        assert float(noise.regularization) == ridge
        assert noise.scale == 3 * steps / (epsilon * (1 - OUTPUT_SHARE))
        assert noise.regularization >= 2 * noise.scale * Fraction(999, 1000)
        # Normal noise needs less of a hold.
        normal = calibrate(epsilon, Fraction("1e-6"), width=width, neighbours=neighbours, max_rows_per_unit=3)
        assert normal.regularization <= noise.regularization


@pytest.mark.long
def test_any_epsilon_gives_noise_or_a_plain_error() -> None:
    for power in range(-30, 31, 3):
        for delta in (None, Fraction("1e-6")):
            for neighbours in ("add_remove", "replace"):
                epsilon = Fraction(10) ** power
                if power < -9:
                    with pytest.raises(ParameterError, match="P038"):
                        calibrate(epsilon, delta, width=50, neighbours=neighbours)
                else:
                    noise = calibrate(epsilon, delta, width=50, neighbours=neighbours)
                    found = objective_perturbation(kept(signed(20, 50)), noise, source=SeededBits(0))
                    assert np.isfinite(found).all()


@cases("width", [1, 7, 3000])
@cases("delta", [None, Fraction("1e-6")])
def test_the_output_noise_hides_the_error(width: int, delta: Fraction | None) -> None:
    noise = calibrate(Fraction(1), delta, width=width, neighbours="add_remove")
    distance = (noise.tolerance(width) + ball_error(noise.scale, width)) / noise.regularization
    grid = noise.grid(width)
    assert grid.numerator == 1 or grid.denominator == 1
    moved = 2 * math.sqrt(width) * float(distance / grid) + width
    assert float(noise.output_scale(width) * noise.output_epsilon) >= moved
    assert float(noise.output_scale(width) * noise.output_epsilon) <= moved * 1.01 + 1
    # It is far smaller than the perturbation itself.
    assert noise.output_deviation(width) < 0.05 * noise.linear_deviation(width) / float(noise.regularization)


def test_all_regularisation_gives_nothing() -> None:
    rows = kept(signed(500, 4))
    noise = calibrate(Fraction(1), None, width=4, neighbours="add_remove", regularization=1e10)
    found = objective_perturbation(rows, noise, source=SeededBits(1))
    assert np.abs(found).max() < 1e-6


@pytest.mark.parametrize("ridge", [0.5, 20.0])
def test_without_noise_it_is_scikit_learns_fit(ridge: float) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    rows = signed(2000, 5, seed=3)
    labels = np.sign(rows[:, 0])
    model = linear_model.LogisticRegression(C=1 / ridge, fit_intercept=False, tol=1e-12, max_iter=10_000)
    model.fit(rows * labels[:, None] / S, labels)
    noise = calibrate(Fraction(10**6), None, width=5, neighbours="add_remove", regularization=ridge)
    found = objective_perturbation(kept(rows), noise, source=SeededBits(2))
    assert found == pytest.approx(model.coef_[0], abs=1e-5)


@pytest.mark.parametrize(("count", "width", "share"), [(3000, 6, 1.0), (900, 400, 0.01), (700, 300, 1.0), (1, 1, 1.0)])
def test_the_certificate_holds(count: int, width: int, share: float) -> None:
    """Against a gradient in extended precision, at the minimiser and far from it."""
    rows = signed(count, width, seed=5, share=share)
    store = kept(rows)
    generator = np.random.default_rng(6)
    linear = generator.normal(size=width)
    found = minimise(store, regularization=0.3, linear=linear, tolerance=1e-7)
    assert found.at_most <= 1e-7
    for at in (found.at, generator.normal(size=width) * 100, generator.normal(size=width) * 1e-3):
        gradient = store.gradient(at, 0.3, linear)
        exact = rows.astype(np.longdouble) / S
        q = 1 / (1 + np.exp(exact @ at.astype(np.longdouble)))
        true = np.longdouble(0.3) * at + linear - q @ exact
        distance = float(np.sqrt(((gradient.value - true) ** 2).sum()))
        assert distance <= gradient.error
        assert gradient.error < 1e-9
        assert float(np.sqrt((true**2).sum())) <= gradient.at_most


def test_a_wrong_gradient_would_be_noticed() -> None:
    """The bound is not so wide that a gradient of single precision would pass."""
    rows = signed(3000, 6)
    gradient = kept(rows).gradient(np.ones(6), 0.3, np.zeros(6))
    single = (rows / S).astype(np.float32)
    value = 0.3 - (1 / (1 + np.exp(single @ np.ones(6, dtype=np.float32)))) @ single
    assert np.linalg.norm(value - gradient.value) > 10 * gradient.error


def test_the_solver_always_arrives() -> None:
    """Separable rows, huge and tiny ridges, linear terms of any size, no row at all."""
    rows = signed(200, 3)
    rows[:, 1] = np.abs(rows[:, 1])
    for store in (kept(rows), kept(rows[:1]), SignedRows(3)):
        for ridge in (2.0**-20, 1.0, 2.0**40):
            for size in (0.0, 1.0, 1e4):
                linear = np.array([size, -size, 0.3 * size])
                found = minimise(store, regularization=ridge, linear=linear, tolerance=2.0**-20)
                assert found.at_most <= 2.0**-20
                assert np.linalg.norm(store.gradient(found.at, ridge, linear).value) <= 2.0**-20


@cases("at", [0.0, 0.3, -7.5, 2.0**20], quick=2)
def test_sums_of_a_step_are_those_of_rows_that_are_kept(at: float) -> None:
    """The same integers, so the same gradient and the same certificate, however the rows are divided."""
    rows, linear = signed(9000, 5), np.linspace(-1, 1, 5)
    multiples = [int(at * 2.0**96) + number for number in range(5)]
    whole = kept(rows).fine_gradient(multiples, 0.7, linear)
    parts = [GradientSums(multiples) for _ in range(3)]
    for part, some in zip(parts, np.array_split(rows, [10, 5000]), strict=True):
        part.add(some)
    for other in parts[1:]:
        parts[0].rows += other.rows
        parts[0].digits.absorb(other.digits.column())
        parts[0].curvature.absorb(other.curvature.column())
    found = parts[0].gradient(0.7, linear)
    assert found.value.tolist() == whole.value.tolist()
    assert (found.error, found.multiples) == (whole.error, whole.multiples)
    step = kept(rows).newton(whole, 0.7)
    assert np.linalg.norm(parts[0].newton(found, 0.7) - step) <= 0.02 * np.linalg.norm(step)


def last_of(steps: Descent, rows: np.ndarray, most: int) -> FineGradient:
    """Return what a descent ends with, after so many passes over the rows at most."""
    at = next(steps)
    for _ in range(most):
        sums = GradientSums(at)
        sums.add(rows)
        try:
            at = steps.send(sums)
        except StopIteration as end:
            return end.value
    raise AssertionError("the descent takes too many passes")


@pytest.mark.long
def test_the_descent_by_passes_always_arrives() -> None:
    """Separable rows, huge and tiny ridges, linear terms of any size, no row at all: within the passes of an engine."""
    rows = signed(200, 3)
    rows[:, 1] = np.abs(rows[:, 1])
    for some in (rows, rows[:1], rows[:0]):
        for ridge in (2.0**-20, 1.0, 2.0**40):
            for size in (0.0, 1.0, 1e4):
                linear = np.array([size, -size, 0.3 * size])
                steps = descent(3, regularization=ridge, linear=linear, tolerance=2.0**-20)
                found = last_of(steps, some, most=300)
                assert found.at_most <= 2.0**-20
                assert np.linalg.norm(kept(some).gradient(found.at, ridge, linear).value) <= 2.0**-19


def test_batches_and_their_form_do_not_matter() -> None:
    rows = signed(9000, 40, share=0.05)
    at = np.linspace(-1, 1, 40)
    whole = kept(rows).gradient(at, 1.0, np.zeros(40))
    parts = SignedRows(40)
    for start in range(0, 9000, 1234):
        parts.add(rows[start : start + 1234])
    dense = SignedRows(40)
    dense._blocks, dense.rows = [rows.astype(np.float32)[start : start + 4096] for start in (0, 4096, 8192)], 9000
    for other in (parts.gradient(at, 1.0, np.zeros(40)), dense.gradient(at, 1.0, np.zeros(40))):
        assert np.linalg.norm(other.value - whole.value) <= other.error + whole.error


def test_large_tables_stay_certain() -> None:
    """The largest number of rows leaves room for the gradient itself."""
    store = kept(signed(10, 5000, share=0.01))
    store.rows = kernel.MOST_ROWS
    error = store.gradient(np.full(5000, 0.3), 1.0, np.ones(5000)).error
    assert error < 2.0**-21
    store.rows += 1
    with pytest.raises(InternalError, match="I021"):
        minimise(store, regularization=1.0, linear=np.zeros(5000), tolerance=1e-6)


def test_a_tolerance_below_the_error_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.kernels.descent._MOST_STEPS", 20)
    with pytest.raises(InternalError, match="I022"):
        minimise(kept(signed(100, 3)), regularization=1.0, linear=np.zeros(3), tolerance=1e-30)


def test_a_batch_must_fit() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        SignedRows(3).add(np.zeros((2, 4)))


def test_a_tick_is_told_nothing_and_may_stop_the_search() -> None:
    seen: list[tuple[object, ...]] = []
    options = {"regularization": 1.0, "linear": np.ones(3), "tolerance": 1e-8}
    minimise(kept(signed(500, 3)), tick=lambda *given: seen.append(given), **options)
    assert seen
    assert set(seen) == {()}

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        minimise(kept(signed(500, 3)), tick=stop, **options)


@cases("epsilon", [10**6, 10**9], quick=1)
@cases("ridge", [None, 1e-3, 0.5, 20.0])
@cases(("count", "width", "share"), [(20_000, 5, 1.0), (4000, 300, 0.02)])
def test_a_huge_epsilon_gives_scikit_learns_fit(
    epsilon: int, ridge: float | None, count: int, width: int, share: float
) -> None:
    """What is left is the random term itself: its part of the deviation of a coefficient, and little beside."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    rows = signed(count, width, seed=3, share=share)
    labels = np.sign(rows[:, 0])
    noise = calibrate(Fraction(epsilon), None, width=width, neighbours="add_remove", regularization=ridge)
    model = linear_model.LogisticRegression(
        C=1 / float(noise.regularization), fit_intercept=False, tol=1e-14, max_iter=10_000, solver="newton-cholesky"
    )
    model.fit(rows * labels[:, None] / S, labels)
    found = objective_perturbation(kept(rows), noise, source=SeededBits(2))
    room = 1e-6 if width == 5 or epsilon == 10**9 else 1e-3
    assert found == pytest.approx(model.coef_[0], abs=room)


@pytest.mark.parametrize("width", [1, 7, 3000])
def test_the_certified_distance_is_small_from_an_epsilon_of_64_on(width: int) -> None:
    """And what was certified before is, below: there nothing has changed."""
    for epsilon in (1, 10, 63, 64, 10**3, 10**6, 10**9):
        for ridge in (None, 1e-3, 1.0, 100.0) if epsilon > 9 else (None,):
            noise = calibrate(Fraction(epsilon), None, width=width, neighbours="add_remove", regularization=ridge)
            certified = noise.tolerance(width) - ball_error(noise.scale, width)
            assert certified <= Fraction(1, 1 << 20)
            if epsilon < 64:
                assert certified == Fraction(1, 1 << 20)
            else:
                assert certified <= noise.regularization / 2**24
                assert noise.event.to_json() == {"mechanism": "objective_perturbation", "epsilon": str(epsilon)}
            # The grid and the output noise follow from the distance, whatever it is.
            moved = 2 * math.sqrt(width) * float(noise._distance(width) / noise.grid(width)) + width
            assert float(noise.output_scale(width) * noise.output_epsilon) >= moved


def exact_gradient(rows: np.ndarray, at: list[Fraction], ridge: float, linear: np.ndarray) -> list[Decimal]:
    """Return the gradient with 60 digits."""
    with localcontext(Context(prec=60)):
        point = [Decimal(value.numerator) / Decimal(value.denominator) for value in at]
        out = [Decimal(ridge) * value + Decimal(float(term)) for value, term in zip(point, linear, strict=True)]
        for row in rows.tolist():
            exact = [Decimal(entry) / S for entry in row]
            margin = sum((a * b for a, b in zip(exact, point, strict=True)), Decimal(0))
            q = 1 / (1 + max(min(margin, Decimal(500)), Decimal(-500)).exp())
            out = [value - q * entry for value, entry in zip(out, exact, strict=True)]
        return out


@cases("size", [1e-9, 1.0, 30.0, 1e4, 1e8])
@cases(("width", "share"), [(1, 1.0), (3, 1.0), (40, 0.1)])
def test_a_fine_gradient_is_certified(width: int, share: float, size: float) -> None:
    """Against 60 digits, at coefficients that are no doubles."""
    rows = signed(25, width, seed=8, share=share)
    store = kept(rows)
    generator = np.random.default_rng(9)
    multiples = [
        int(value * size * 2**40) * 2**56 + int(generator.integers(2**62)) for value in generator.normal(size=width)
    ]
    linear = generator.normal(size=width) * size
    found = store.fine_gradient(multiples, 1e-6, linear)
    at = [Fraction(value, 1 << 96) for value in multiples]
    assert found.at.tolist() == [float(value) for value in at]
    true = exact_gradient(rows, at, 1e-6, linear)
    # `value` is the nearest doubles: their rounding is a share of the norm.
    distance = math.sqrt(
        sum(float(Decimal(value) - exact) ** 2 for value, exact in zip(found.value.tolist(), true, strict=True))
    )
    assert distance <= found.error + 2.0**-52 * found.norm
    assert found.error < 2.0**-70 * max(1.0, size)
    assert math.sqrt(sum(float(value) ** 2 for value in true)) <= found.at_most


def test_the_errors_of_a_fine_gradient_are_seen_near_the_minimum() -> None:
    """There the gradient is far below the rounding of doubles, and the certificate says so truly."""
    rows = signed(300, 4, seed=11)
    linear = np.array([0.3, -0.2, 0.1, 0.0])
    found = minimise(kept(rows), regularization=2e-6, linear=linear, tolerance=2e-6 * 2.0**-24)
    assert isinstance(found, kernel.FineGradient)
    true = exact_gradient(rows, [Fraction(value, 1 << 96) for value in found.multiples], 2e-6, linear)
    assert math.sqrt(sum(float(value) ** 2 for value in true)) <= found.at_most <= 2e-6 * 2.0**-24


@pytest.mark.long
@pytest.mark.parametrize("ridge", [2.0**-20, 2e-6, 1.0, 2.0**40])
def test_the_solver_always_arrives_finely(ridge: float) -> None:
    rows = signed(200, 3)
    rows[:, 1] = np.abs(rows[:, 1])
    twice = signed(500, 300, share=0.05)
    twice[:, 150:] = twice[:, :150]
    stores = [kept(rows), kept(rows[:1]), kept(np.zeros((50, 3))), SignedRows(3), kept(np.trunc(0.7 * twice))]
    tolerance = min(2.0**-20, ridge * 2.0**-24)
    for store in stores:
        for size in (0.0, 1e-6, 1.0, 1e4):
            linear = np.resize([size, -size, 0.3 * size], store.width)
            assert minimise(store, regularization=ridge, linear=linear, tolerance=tolerance).at_most <= tolerance


def test_fine_coefficients_are_rounded_to_the_grid_exactly() -> None:
    """From their integers: the nearest doubles of large coefficients lie whole cells away."""
    values = [3 * 2**140 + 5 * 2**70, -(3 * 2**140) - 5 * 2**70, 2**69, 2**69 - 1, -(2**69) - 1, 0]
    found = kernel.FineGradient(np.zeros(6), np.zeros(6), 0.0, [], values)
    cells = [Fraction(value, 2**70) for value in values]
    assert [int(cell) for cell in found.cells(Fraction(1, 1 << 26))][2:] == [1, 0, -1, 0]
    assert all(
        abs(float(got) - cell) <= 0.5 + 2.0**-52 * abs(cell)
        for got, cell in zip(found.cells(Fraction(1, 1 << 26)), cells, strict=True)
    )
    digits, units = kernel._digits(values)
    assert [sum(int(digit) * unit for digit, unit in zip(row, units, strict=True)) for row in digits] == [
        Fraction(value, 1 << 96) for value in values
    ]


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("delta", [None, 1e-5])
def test_a_call_is_calibrated_for_its_relation_and_its_units(neighbours: str, rows: int, delta: float | None) -> None:
    unit = {"neighbours": neighbours, "max_rows_per_unit": rows}
    given = {"target": "y", "features": ["a", "b"], "lower": 0, "upper": 1, "standardize": False, "regularization": 99}
    plan = LogisticPlan.from_arguments("t", {**given, **unit, "privacy_unit": "u", "epsilon": 2, "delta": delta})
    exact = None if delta is None else Fraction(str(delta))
    expected = calibrate(Fraction(2), exact, width=3, regularization=99.0, **unit)  # type: ignore[arg-type]
    assert plan.calibrated(2) == expected
    # Less noise would be drawn for single rows that come or go.
    single = calibrate(Fraction(2), exact, width=3, regularization=99.0, neighbours="add_remove").scale
    assert (expected.scale > single) == (unit != {"neighbours": "add_remove", "max_rows_per_unit": 1})
