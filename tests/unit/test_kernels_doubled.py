"""Numbers of two doubles, against 60 digits."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext

import numpy as np
import pytest

from dpsql.kernels import fixed_point


def pairs(seed: int, size: int, spread: float) -> fixed_point.Doubled:
    generator = np.random.default_rng(seed)
    high = generator.normal(size=size) * np.exp(spread * generator.normal(size=size))
    return fixed_point.two_sum(high, high * generator.uniform(-1, 1, size) * 2.0**-54)


def decimals(value: fixed_point.Doubled) -> list[Decimal]:
    return [Decimal(a) + Decimal(b) for a, b in zip(value[0].tolist(), value[1].tolist(), strict=True)]


@pytest.mark.parametrize("spread", [0.0, 1.0, 10.0])
def test_sums_and_products(spread: float) -> None:
    first, second = pairs(1, 3000, spread), pairs(2, 3000, spread)
    # Also sums of which next to nothing is left.
    second[0][:500], second[1][:500] = -first[0][:500], -first[1][:500] * 0.75
    with localcontext(Context(prec=60)):
        for made, exact in (
            (fixed_point.add(first, second), [a + b for a, b in zip(decimals(first), decimals(second), strict=True)]),
            (
                fixed_point.multiply(first, second),
                [a * b for a, b in zip(decimals(first), decimals(second), strict=True)],
            ),
        ):
            for found, true in zip(decimals(made), exact, strict=True):
                assert abs(found - true) <= abs(true) * Decimal(2) ** -103


def test_the_logistic_function() -> None:
    high = np.concatenate(
        [pairs(3, 2000, 2.0)[0], np.linspace(-64, 64, 501), [0.0, -0.0, 1e-300, 64.1, -64.1, 900, -1e308]]
    )
    low = np.where(np.abs(high) < 1e300, high * 2.0**-54, 0.0)
    with localcontext(Context(prec=60)):
        found = decimals(fixed_point.share((high, low)))
        for a, b, value in zip(high.tolist(), low.tolist(), found, strict=True):
            margin = max(min(Decimal(a) + Decimal(b), Decimal(2000)), Decimal(-2000))
            assert abs(value - 1 / (1 + margin.exp())) <= Decimal(2) ** -88


def test_digits_are_all_of_a_share() -> None:
    value = fixed_point.share(pairs(4, 2000, 1.5))
    value = (np.append(value[0], [0.0, 1.0, 0.5]), np.append(value[1], [0.0, 0.0, 0.0]))
    found = fixed_point.digits(value, 20, 4)
    assert max(float(np.abs(digit).max()) for digit in found) <= 2.0**20
    with localcontext(Context(prec=60)):
        for place, true in enumerate(decimals(value)):
            total = sum(int(digit[place]) * Decimal(2) ** (-20 * (k + 1)) for k, digit in enumerate(found))
            assert abs(total - true) <= Decimal(2) ** -81
