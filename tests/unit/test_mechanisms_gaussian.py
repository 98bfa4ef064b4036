from __future__ import annotations

import math
import random
import time
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import log_ndtr

from dpsql.contract.gaussian_profile import (
    DELTA_MARGIN,
    EPSILON_MARGIN,
    LARGEST_EPSILON,
    SMALLEST_DELTA,
    gaussian_covers,
    gaussian_delta,
    gaussian_mu,
)
from dpsql.contract.measurement import Permit, measurement_of
from dpsql.errors import InternalError, ParameterError
from dpsql.mechanisms import gaussian
from dpsql.mechanisms.gaussian import (
    LEAST_VARIANCE,
    MOST_COORDINATES,
    GaussianNoise,
    counting_unit,
    gaussian_noise,
    gaussian_release,
)
from dpsql.noise.discrete import discrete_gaussian
from dpsql.testing.bits import SeededBits
from support.cases import cases

LN3 = Fraction(math.log(3))
# epsilon, delta, mu to 10 digits, mu to 6 digits rounded down.
CONSTANTS = [
    (LN3, "1e-5", 0.2919995853, 0.291999),
    (Fraction(1), "1e-6", 0.2367043807, 0.236704),
    (Fraction("0.1"), "1e-6", 0.0275446502, 0.027544),
    (Fraction(10), "1e-6", 1.8481322, 1.848132),
]


@pytest.mark.parametrize(("epsilon", "delta", "exact", "printed"), CONSTANTS)
def test_constants_are_rounded_down(epsilon: Fraction, delta: str, exact: float, printed: float) -> None:
    mu = gaussian_mu(epsilon, Fraction(delta))
    assert math.floor(mu * 10**6) / 10**6 == printed
    assert float(mu) == pytest.approx(exact, abs=2e-8)
    assert (mu * 10**9).denominator == 1
    assert gaussian_delta(mu, epsilon) <= Fraction(delta)
    assert not gaussian_covers(mu + Fraction(1, 10**9), epsilon, Fraction(delta))


def test_multipliers() -> None:
    at_1, at_ln3 = (
        float(gaussian_mu(epsilon, Fraction(delta))) for epsilon, delta, _, _ in (CONSTANTS[1], CONSTANTS[0])
    )
    found = [math.sqrt(102) / at_1, math.sqrt(102) / at_ln3, math.sqrt(3) / at_1, math.sqrt(300) / at_1]
    assert [round(number, 2) for number in found] == [42.67, 34.59, 7.32, 73.17]
    assert [math.ceil(number * 100) / 100 for number in found[2:]] == [7.32, 73.18]


@pytest.mark.long
def test_delta_against_many_digits() -> None:
    mpmath = pytest.importorskip("mpmath")
    generator = random.Random(1)
    tested = 0
    with mpmath.workdps(60):
        while tested < 150:
            mu, epsilon = (Fraction(int(10 ** generator.uniform(0, 12)), 10**10) for _ in range(2))
            m, e = (mpmath.mpf(x.numerator) / x.denominator for x in (mu, epsilon))
            exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
            if exact < mpmath.mpf(10) ** -900:
                continue
            bound = gaussian_delta(mu, epsilon)
            excess = mpmath.mpf(bound.numerator) / bound.denominator / exact - 1
            assert 0 <= excess < 1e-12
            tested += 1


@cases("mu", ["1e-4", "0.01", "0.3", "1", "7", "30"])
@cases("epsilon", ["0", "0.001", "0.5", "3", "200"])
def test_delta_against_doubles(mu: str, epsilon: str) -> None:
    m, e = float(mu), float(epsilon)
    exact = math.exp(log_ndtr(m / 2 - e / m)) - math.exp(min(700.0, e + log_ndtr(-m / 2 - e / m)))
    assert float(gaussian_delta(Fraction(mu), Fraction(epsilon))) == pytest.approx(exact, rel=1e-7, abs=1e-15)


def test_delta_at_the_ends() -> None:
    assert gaussian_delta(Fraction(1, 10**9), Fraction(10**5)) == Fraction(1, 10**1000)
    assert gaussian_delta(Fraction(1000), Fraction(1)) == 1
    assert float(gaussian_delta(Fraction(1), Fraction(0))) == pytest.approx(math.erf(0.5 / math.sqrt(2)))
    for mu, epsilon in ((0, 1), (-1, 1), (1, -1)):
        with pytest.raises(ParameterError, match="P018"):
            gaussian_delta(Fraction(mu), Fraction(epsilon))


@cases(
    ("epsilon", "delta"),
    [("1e-6", "1e-9"), ("0.001", "0.4"), ("1", "1e-300"), ("3", "0.999"), ("100", "1e-30"), ("524288", "1e-6")],
)
def test_mu_is_the_largest(epsilon: str, delta: str) -> None:
    mu = gaussian_mu(Fraction(epsilon), Fraction(delta))
    assert gaussian_covers(mu, Fraction(epsilon), Fraction(delta))
    assert not gaussian_covers(mu + Fraction(1, 10**9), Fraction(epsilon), Fraction(delta))


@cases(
    ("epsilon", "delta", "code"),
    [
        ("0", "1e-6", "P001"),
        ("-1", "1e-6", "P001"),
        ("524289", "1e-6", "P001"),
        ("1", "0", "P027"),
        ("1", "1", "P027"),
        ("1", "1e-301", "P027"),
        ("1e-11", "1e-300", "P038"),
        ("1e-14", "1e-200", "P038"),
    ],
)
def test_refusals(epsilon: str, delta: str, code: str) -> None:
    with pytest.raises(ParameterError, match=code):
        gaussian_mu(Fraction(epsilon), Fraction(delta))


@pytest.mark.parametrize("squared", [1, 2, 3, 5, 10**12 + 1, 2**80 + 1])
@pytest.mark.parametrize("mu", ["1e-6", "0.3", "40"])
def test_the_root_of_a_squared_sensitivity_is_rounded_up(squared: int, mu: str) -> None:
    shift, sensitivity = counting_unit(squared, Fraction(mu) ** 2)
    assert sensitivity**2 > squared << 2 * shift >= (sensitivity - 1) ** 2
    assert sensitivity**2 >= LEAST_VARIANCE * Fraction(mu) ** 2


@pytest.mark.parametrize("squared", [Fraction(2), Fraction(10**12 + 1), Fraction(2 * 10**25 + 1, 3), Fraction(2**80)])
def test_sums_have_the_noise_of_the_root_rounded_up(monkeypatch: pytest.MonkeyPatch, squared: Fraction) -> None:
    mu, given = Fraction(1, 3), list[int]()

    def noted(values: object, *, sensitivity: int, squared_mu: Fraction) -> None:
        assert squared_mu == mu**2
        given.append(sensitivity)

    monkeypatch.setattr(gaussian, "gaussian_release", noted)
    part = GaussianNoise("sums", mu, Fraction(1), Fraction(1, 10**6), (("it", mu),))
    with Permit(measurement_of(part)).drawing():
        part.draw_sums("it", np.array([5]), squared_sensitivity=squared)
    [root] = given
    assert root**2 >= squared > (root - 1) ** 2


def test_the_search_is_fast() -> None:
    gaussian_mu.cache_clear()
    start = time.thread_time()
    gaussian_mu(Fraction("0.7"), Fraction("1e-7"))
    assert time.thread_time() - start < 0.25


def test_the_margins_cover_what_the_module_says() -> None:
    """A, B and t for the largest release of the finest noise."""
    radius = 1 << 13
    both = Fraction(MOST_COORDINATES, 24 * LEAST_VARIANCE) + Fraction(radius**2, 24 * LEAST_VARIANCE)
    assert both < EPSILON_MARGIN - Fraction(1, 1 << 60)
    # Rounding moves a vector of noise by at most sqrt(d) / 2 units; P(chi2 > d + 2 sqrt(d x) + 2 x) <= exp(-x).
    inner = radius - math.sqrt(MOST_COORDINATES / LEAST_VARIANCE)
    d, x = MOST_COORDINATES, 1 << 22
    assert d + 2 * math.sqrt(d * x) + 2 * x < inner**2
    assert LARGEST_EPSILON - x < math.log(SMALLEST_DELTA * DELTA_MARGIN / 2)
    # exp(A) on delta (1 - 2**-38).
    assert Fraction(MOST_COORDINATES, 24 * LEAST_VARIANCE) * 2 < DELTA_MARGIN / 2


def discrete_delta(sigma: float, shift: int, epsilon: float) -> float:
    """Exact profile of discrete Gaussian noise in one dimension."""
    reach = int(40 * sigma) + abs(shift) + 2
    points = np.arange(-reach, reach + 1, dtype=np.float64)
    log_mass = -(points**2) / (2 * sigma**2)
    log_mass -= math.log(math.fsum(np.exp(log_mass)))
    loss = (shift**2 - 2 * shift * points) / (2 * sigma**2)
    return math.fsum(np.exp(log_mass) * -np.expm1(np.minimum(0.0, epsilon - loss)))


@pytest.mark.long
@pytest.mark.parametrize("sigma", [2.0, 5.0, 16.0, 40.0])
def test_the_discrete_profile_is_within_the_margin(sigma: float) -> None:
    """In one dimension, with the A and B of this sigma; without them the discrete profile is above the continuous."""
    above = False
    for mu in (0.05, 0.25, 0.5, 1.0, 2.0):
        shift = max(1, round(mu * sigma))
        exact = Fraction(shift) / Fraction(sigma)
        for epsilon in np.linspace(0.05, 6, 60):
            found = discrete_delta(sigma, shift, float(epsilon))
            if found < 1e-12:
                continue
            above |= found > gaussian_delta(exact, Fraction(float(epsilon))) * (1 + Fraction(1, 10**9))
            r = 12.0
            margin = 1 / (24 * sigma**2) + r**2 / (24 * sigma**2)
            target = gaussian_delta(exact, max(Fraction(0), Fraction(epsilon - margin)))
            tail = math.exp(epsilon) * math.erfc((r - 0.5 / sigma) / math.sqrt(2))
            assert found <= math.exp(1 / (24 * sigma**2)) * (float(target) + tail) * (1 + 1e-9)
    assert above


@pytest.mark.parametrize("epsilon", ["1e-6", "1", "5"])
def test_the_margins_are_kept(epsilon: str) -> None:
    """A mu whose continuous profile needs the whole epsilon and delta is refused, one within the margins is not."""
    mu, target = Fraction("0.3"), Fraction(epsilon)
    exact = gaussian_delta(mu, target)
    assert not gaussian_covers(mu, target, exact)
    assert not gaussian_covers(mu, target, gaussian_delta(mu, target - EPSILON_MARGIN))
    assert gaussian_covers(mu, target + EPSILON_MARGIN, exact * (1 + 2 * DELTA_MARGIN))
    assert not gaussian_covers(mu, Fraction(LARGEST_EPSILON + 1), Fraction(1, 2))
    assert not gaussian_covers(Fraction(1, 10**9), target, SMALLEST_DELTA / 2)


def test_fine_noise_and_long_vectors_are_refused() -> None:
    assert len(gaussian_noise(Fraction(LEAST_VARIANCE), 3)) == 3
    for variance, size in ((Fraction(LEAST_VARIANCE) - 1, 3), (Fraction(LEAST_VARIANCE), MOST_COORDINATES + 1)):
        with pytest.raises(InternalError, match="I023"):
            gaussian_noise(variance, size)


@pytest.mark.parametrize("kind", [np.int64, object])
@pytest.mark.parametrize("mu", ["1/3", "1/100000"])
def test_release_adds_noise_of_the_stated_size(kind: type, mu: str) -> None:
    values = np.array([0, 5 << 50, -(7 << 50)] * 2000).astype(kind)
    twice = np.arange(6000) % 2 == 1
    release = gaussian_release(
        values, sensitivity=3 << 40, squared_mu=Fraction(mu) ** 2, twice=twice, source=SeededBits(1)
    )
    assert release.sigma == pytest.approx((3 << 40) / float(Fraction(mu)), rel=1e-6)
    noise = (release.values - values.astype(float)) / release.sigma
    assert noise[~twice].std() == pytest.approx(1, abs=0.06)
    assert noise[twice].std() == pytest.approx(math.sqrt(0.5), abs=0.05)
    assert abs(noise.mean()) < 0.06


def test_coarse_values_are_rounded_and_their_sensitivity_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest unit that brings the noise below 2**48, and a whole unit per coordinate in the sensitivity."""
    seen = []

    def silent(variance: Fraction, size: int, *, source: object) -> np.ndarray:
        seen.append(variance)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(gaussian, "gaussian_noise", silent)
    values = np.array([(3 << 69) + 5, -(1 << 69) - 1, (7 << 14) + (1 << 13) + 1], dtype=object)
    twice = np.array([False, True, True])
    release = gaussian_release(values, sensitivity=1 << 60, squared_mu=Fraction(1, 4), twice=twice)
    unit = 1 << 14
    assert release.values.tolist() == [float(3 << 69), -float(1 << 69), float(8 << 14)]
    sensitivity = (1 << 60) / unit + math.sqrt(5)
    assert [float(variance) for variance in seen] == pytest.approx([4 * sensitivity**2, 2 * sensitivity**2], rel=1e-15)
    assert seen[0] >= 4 * Fraction((1 << 60) // unit + 2) ** 2
    fine = gaussian_release(values, sensitivity=1 << 40, squared_mu=Fraction(1, 4), twice=twice)
    assert fine.values.tolist() == [float(3 << 69), -float(1 << 69), float((7 << 14) + (1 << 13) + 1)]
    assert seen[2:] == [Fraction(1 << 82), Fraction(1 << 81)]


def test_noise_is_the_discrete_sampler() -> None:
    variance = Fraction(LEAST_VARIANCE) * 3
    assert gaussian_noise(variance, 50, source=SeededBits(3)).tolist() == (
        discrete_gaussian(variance, 50, source=SeededBits(3)).tolist()
    )
