from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from dpsql.contract.gaussian_profile import gaussian_mu
from dpsql.errors import InternalError, ParameterError
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.gram import ClippedRows, clip_rows, fixed_coefficients, gram_products
from dpsql.mechanisms import ada_ssp as module
from dpsql.mechanisms.ada_ssp import (
    LinearFit,
    ada_ssp,
    boosted_ada_ssp,
    gram_noise_covariance,
    release_gram,
)
from dpsql.mechanisms.gaussian import GaussianRelease
from dpsql.statistics.regression import cross_sensitivity, gram_sensitivity, largest_norm
from dpsql.testing.bits import SeededBits

S = FIXED_POINT_ONE
FEATURE_RADIUS = round(1.2 * S)
R = largest_norm(4, FEATURE_RADIUS)
EPSILON_1 = gaussian_mu(Fraction(1), Fraction("1e-6"))
NO_PRIVACY = gaussian_mu(Fraction(400_000), Fraction("1e-6"))


class Table:
    """Clipped rows with their targets, in mapped units about ``intercept + x coefficients``."""

    def __init__(self, count: int, width: int, seed: int = 0, spread: float = 1.0) -> None:
        generator = np.random.default_rng(seed)
        features = np.rint(generator.uniform(-1, 1, (count, width - 1)) * S)
        clip_rows(features, FEATURE_RADIUS)
        self.rows = np.column_stack((np.full(count, float(S)), features))
        self.true = generator.normal(0, 0.1, width)
        noise = generator.normal(0, 0.05 * spread, count) * S
        self.target = np.clip(np.rint(self.rows @ self.true + noise), -S, S)
        self.products = gram_products(np.column_stack((self.rows, self.target)))
        self.gram = self.products[:-1, :-1]

    def kept(self) -> ClippedRows:
        rows = ClippedRows(self.rows.shape[1], threads=0)
        rows.add(self.rows, self.target)
        return rows

    def least_squares(self, ridge: float = 0.0) -> np.ndarray:
        matrix = self.gram.astype(float) / S**2 + ridge * np.eye(len(self.gram))
        return np.linalg.solve(matrix, self.products[:-1, -1].astype(float) / S**2)


Release = Callable[..., GaussianRelease]


@pytest.fixture
def releases(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What was asked of the noise, in order."""
    seen: list[dict[str, Any]] = []
    original = module.gaussian_release

    def recorded(values: np.ndarray, **options: Any) -> GaussianRelease:
        seen.append({"size": len(values), **options})
        return original(values, **options)

    monkeypatch.setattr(module, "gaussian_release", recorded)
    return seen


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_without_noise_it_is_least_squares(neighbours: str) -> None:
    table = Table(4000, 5)
    fit = ada_ssp(table.products, radius=R, mu=NO_PRIVACY, neighbours=neighbours)
    assert fit.coefficients == pytest.approx(table.least_squares(), abs=2e-4)
    assert fit.std_errors is not None
    assert fit.std_errors.max() < 1e-4


@pytest.mark.parametrize("split", ["even", "thirds"])
def test_without_noise_boosting_is_least_squares(split: str) -> None:
    table = Table(4000, 5)
    fit = boosted_ada_ssp(
        table.kept(), table.gram, radius=R, mu=NO_PRIVACY, neighbours="add_remove", rounds=10, split=split
    )
    assert fit.coefficients == pytest.approx(table.least_squares(), abs=1e-3)
    assert fit.std_errors is not None
    assert fit.std_errors.max() < 1e-3


def silence(values: np.ndarray, *, sensitivity: int, squared_mu: Fraction, **_: Any) -> GaussianRelease:
    return GaussianRelease(values.astype(np.float64), math.sqrt(sensitivity**2 / squared_mu))


def test_the_ridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of the stated size, all draws 0: a ridge estimate with the ridge of the papers."""
    monkeypatch.setattr(module, "gaussian_release", silence)
    for count in (300, 60_000):
        table = Table(count, 4)
        sigma = R**2 / S**2 * math.sqrt(3) / float(EPSILON_1)
        least = np.linalg.eigvalsh(table.gram.astype(float) / S**2)[0]
        floor = max(0.0, least - sigma * NormalDist().inv_cdf(0.975))
        ridge = max(0.0, sigma * math.sqrt(4 * math.log(2 * 16 / 0.05)) - floor)
        assert (ridge > 0) == (count == 300)
        fit = ada_ssp(table.products, radius=R, mu=EPSILON_1, neighbours="add_remove")
        assert fit.coefficients == pytest.approx(table.least_squares(ridge), rel=1e-4, abs=1e-9)
        less = ada_ssp(table.products, radius=R, mu=EPSILON_1, neighbours="add_remove", failure=0.9)
        assert np.linalg.norm(less.coefficients) >= np.linalg.norm(fit.coefficients) * (1 - 1e-9)
        ridge = max(0.0, 1.96 * math.sqrt(4) * sigma - max(0.0, least - 1.96 * sigma))
        boosted = boosted_ada_ssp(
            table.kept(), table.gram, radius=R, mu=EPSILON_1, neighbours="add_remove", rounds=1, split="thirds"
        )
        assert boosted.coefficients == pytest.approx(table.least_squares(ridge), rel=1e-4, abs=1e-6)


def test_boosting_clips_the_residuals_of_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise, against the same rounds in doubles; targets up to 9 S make the clip bite."""
    monkeypatch.setattr(module, "gaussian_release", silence)
    table = Table(60_000, 3)
    target = table.target * 9
    rows = ClippedRows(3, threads=0)
    rows.add(table.rows, target)
    x, y, theta = table.rows / S, target / S, np.zeros(3)
    gram = x.T @ x
    assert np.linalg.eigvalsh(gram)[0] > 4 * 1.96 * math.sqrt(3) * R**2 / S**2 * math.sqrt(6) / float(EPSILON_1)
    for rounds in range(1, 5):
        residual = np.clip(y - x @ theta, -1, 1)
        if rounds == 1:
            assert np.mean(abs(y - x @ theta) > 1) > 0.02
        theta = theta + np.linalg.solve(gram, x.T @ residual)
        fit = boosted_ada_ssp(rows, table.gram, radius=R, mu=EPSILON_1, neighbours="add_remove", rounds=rounds)
        assert fit.coefficients == pytest.approx(theta, abs=1e-5)
        integers, bits = fixed_coefficients(fit.coefficients)
        assert (integers * 2.0**-bits == fit.coefficients).all()


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("unit", [1, 3])
def test_the_shares_of_ada_ssp_add_up(releases: list[dict[str, Any]], neighbours: str, unit: int) -> None:
    table = Table(100, 4)
    ada_ssp(table.products, radius=R, mu=EPSILON_1, neighbours=neighbours, max_rows_per_unit=unit)
    assert [release["size"] for release in releases] == [10, 1, 4]
    assert [release["squared_mu"] for release in releases] == [EPSILON_1**2 / 3] * 3
    bounds = [release["sensitivity"] for release in releases]
    assert bounds[0] == gram_sensitivity(neighbours, R, unit)
    assert 0 < bounds[1] - unit * R**2 < 1e-3 * R**2
    assert bounds[2] == cross_sensitivity(neighbours, R, unit)
    assert releases[0]["twice"].tolist() == [i != j for i in range(4) for j in range(i, 4)]
    assert releases[1].get("twice") is releases[2].get("twice") is None


@pytest.mark.parametrize("split", ["even", "thirds"])
@pytest.mark.parametrize("rounds", [1, 7])
def test_the_shares_of_boosting_add_up(releases: list[dict[str, Any]], split: str, rounds: int) -> None:
    table = Table(100, 3)
    boosted_ada_ssp(table.kept(), table.gram, radius=R, mu=EPSILON_1, neighbours="replace", rounds=rounds, split=split)
    assert [release["size"] for release in releases] == [6, 1] + [3] * rounds
    shares = [release["squared_mu"] for release in releases]
    assert sum(shares) == EPSILON_1**2
    third = EPSILON_1**2 / (rounds + 2 if split == "even" else 3)
    assert shares[:2] == [third, third]
    assert {release["sensitivity"] for release in releases[2:]} == {cross_sensitivity("replace", R)}


def test_a_sum_of_hugeints_is_as_good() -> None:
    table = Table(500, 3)
    fits = [
        ada_ssp(products, radius=R, mu=EPSILON_1, neighbours="add_remove", source=SeededBits(5))
        for products in (table.products, table.products.astype(object))
    ]
    assert (fits[0].coefficients == fits[1].coefficients).all()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_tables_that_noise_drowns(count: int) -> None:
    """The noisy Gram matrix is indefinite; whatever comes out is finite."""
    table = Table(max(count, 1), 6)
    products = table.products * (count > 0)
    for seed in range(30):
        fit = ada_ssp(products, radius=R, mu=EPSILON_1, neighbours="replace", failure=0.999, source=SeededBits(seed))
        assert np.isfinite(fit.coefficients).all()
        assert fit.std_errors is not None
        assert np.isfinite(fit.std_errors).all()
        assert np.abs(fit.coefficients).max() < 100
    rows = ClippedRows(6, threads=0)
    rows.add(table.rows[:count], table.target[:count])
    fit = boosted_ada_ssp(rows, products[:-1, :-1], radius=R, mu=EPSILON_1, neighbours="replace", rounds=20)
    assert np.isfinite(fit.coefficients).all()


def test_singular_gram_without_noise() -> None:
    """A column twice: as good as infinitely many solutions, of which a finite one comes out."""
    table = Table(2000, 3)
    rows = np.column_stack((table.rows, table.rows[:, 2]))
    products = gram_products(np.column_stack((rows, table.target)))
    fit = ada_ssp(products, radius=2 * R, mu=NO_PRIVACY, neighbours="add_remove")
    assert np.isfinite(fit.coefficients).all()
    fitted = rows @ fit.coefficients - table.rows @ table.least_squares()
    assert np.abs(fitted).max() / S < 0.01


@pytest.mark.long
def test_covariance_of_the_noise_of_the_gram_matrix() -> None:
    """``E theta`` over many draws of E, against the formula; a wrong split of the diagonal is far off."""
    theta = np.array([2.0, -1.0, 0.25, 0.0])
    source = SeededBits(1)
    upper = np.triu_indices(4)
    draws = []
    for _ in range(4000):
        release = release_gram(
            np.zeros((4, 4), dtype=np.int64), "add_remove", S, squared_mu=Fraction(1, 9), source=source
        )
        noise = np.zeros((4, 4))
        noise[upper] = release.values
        noise.T[upper] = release.values
        draws.append(noise @ theta / release.sigma)
    found = np.cov(np.array(draws).T)
    expected = gram_noise_covariance(theta, 1.0)
    assert release.sigma == pytest.approx(3.0 * S**2)
    assert found == pytest.approx(expected, abs=0.06 * expected.max())
    assert found != pytest.approx(np.eye(4) * float(theta @ theta), abs=0.06 * expected.max())


def test_the_covariance_is_that_of_all_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The formula, with a ridge of 0, with one that the noisy least eigenvalue sets, and with the largest one."""
    monkeypatch.setattr(module, "gaussian_release", silence)
    for count, kind in ((30, "largest"), (350, "between"), (20_000, "none")):
        table = Table(count, 3)
        fit = ada_ssp(table.products, radius=R, mu=EPSILON_1, neighbours="replace")
        norm = R / S
        multiplier = math.sqrt(3) / float(EPSILON_1)
        gram, least, cross = math.sqrt(2) * norm**2 * multiplier, norm**2 * multiplier, 2 * norm * multiplier
        floor = np.linalg.eigvalsh(table.gram.astype(float) / S**2)[0] - least * NormalDist().inv_cdf(0.975)
        threshold = gram * math.sqrt(3 * math.log(2 * 9 / 0.05))
        assert kind == ("largest" if floor <= 0 else "between" if floor < threshold else "none")
        ridge = max(0.0, threshold - max(0.0, floor))
        inverse = np.linalg.inv(table.gram.astype(float) / S**2 + ridge * np.eye(3))
        theta = inverse @ table.products[:-1, -1] / S**2
        noise = cross**2 * np.eye(3) + gram**2 / 2 * (theta @ theta * np.eye(3) + np.outer(theta, theta))
        noise += (least**2 if kind == "between" else 0.0) * np.outer(theta, theta)
        assert fit.covariance == pytest.approx(inverse @ noise @ inverse, rel=1e-3, abs=1e-15)


def test_progress_is_reported_and_may_stop() -> None:
    table = Table(50, 3)
    seen: list[float] = []
    options = {"radius": R, "mu": EPSILON_1, "neighbours": "add_remove", "rounds": 4}
    boosted_ada_ssp(table.kept(), table.gram, progress=seen.append, **options)
    assert seen == [0.25, 0.5, 0.75, 1.0]

    def stop(done: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        boosted_ada_ssp(table.kept(), table.gram, progress=stop, **options)


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("P018", {"rounds": 0}),
        ("P018", {"rounds": -1}),
        ("P018", {"rounds": 2.5}),
        ("P018", {"split": "halves"}),
        ("P026", {"rounds": 1 << 23}),
    ],
)
def test_boosting_refuses(code: str, wrong: dict[str, Any]) -> None:
    table = Table(20, 3)
    with pytest.raises(ParameterError, match=code):
        boosted_ada_ssp(table.kept(), table.gram, radius=R, mu=EPSILON_1, neighbours="add_remove", **wrong)


@pytest.mark.parametrize("failure", [0.0, 1.0, -1.0, math.nan])
def test_ada_ssp_refuses(failure: float) -> None:
    with pytest.raises(ParameterError, match="P018"):
        ada_ssp(Table(20, 3).products, radius=R, mu=EPSILON_1, neighbours="add_remove", failure=failure)


def test_too_many_columns_and_too_little_noise() -> None:
    with pytest.raises(ParameterError, match="P026"):
        ada_ssp(np.broadcast_to(np.int64(0), (5794, 5794)), radius=R, mu=EPSILON_1, neighbours="add_remove")
    with pytest.raises(InternalError, match="I023"):
        ada_ssp(Table(20, 3).products, radius=S, mu=Fraction(10_000), neighbours="add_remove")


def test_standard_errors_are_roots_of_the_diagonal() -> None:
    fit = LinearFit(np.zeros(2), np.array([[4.0, 1.0], [1.0, 9.0]]))
    assert fit.std_errors is not None
    assert fit.std_errors.tolist() == [2.0, 3.0]


@pytest.mark.long
def test_errors_of_boosting_allow_for_a_gram_matrix_of_noise() -> None:
    """The mean of M C M' over matrices that the noisy one may come from; with little noise what the rounds alone give."""
    rng, width, sigma = np.random.default_rng(2), 4, 0.3
    noisy = np.diag([4.0, 3.0, 2.0, 1.0])
    inverse = np.linalg.inv(noisy + 0.1 * np.eye(width))
    theta = np.array([1.0, -2.0, 0.0, 0.5])
    upper = np.triu_indices(width)
    release = GaussianRelease(noisy[upper], sigma)
    two = module._rounds_covariance(release, inverse, 2, 0.05, theta)
    totals = []
    for _ in range(20_000):
        noise = rng.normal(0, sigma, (width, width))
        noise = (noise + noise.T) / 2  # sigma on the diagonal, sigma / sqrt(2) off it
        step = np.eye(width) - inverse @ noisy + inverse @ noise
        part = inverse @ inverse.T
        first = step @ part @ step.T
        other = rng.normal(0, sigma, (width, width))
        again = np.eye(width) - inverse @ noisy + inverse @ (other + other.T) / 2
        left = again @ step @ np.outer(theta, theta) @ step.T @ again.T
        totals.append(0.05**2 * (part + first) + left)
    assert two == pytest.approx(np.mean(totals, axis=0), abs=0.05 * np.abs(two).max())
    few = module._rounds_covariance(GaussianRelease(noisy[upper], 1e-9), inverse, 30, 0.05, theta)
    step = np.eye(width) - inverse @ noisy
    powers = [np.linalg.matrix_power(step, number) @ inverse for number in range(30)]
    assert few == pytest.approx(0.05**2 * sum(power @ power.T for power in powers), rel=1e-6, abs=1e-12)
    drowned = module._rounds_covariance(GaussianRelease(noisy[upper], 1e9), inverse, 30, 0.05, theta)
    assert (np.diag(drowned) >= 1e59).all()
    assert np.isfinite(drowned).all()
