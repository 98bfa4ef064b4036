"""Released means and deviations: what they are without noise, what they never are, and what is asked of the noise."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.contract.fold import Batch
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, affine_maps
from dpsql.mechanisms import prefix_bounds as module
from dpsql.mechanisms.gaussian import GaussianRelease
from dpsql.mechanisms.prefix_bounds import released_standard
from dpsql.statistics.regression import (
    DEVIATIONS,
    STANDARD_ONE,
    UNIT,
    ColumnMoments,
    RowMap,
    Scales,
    moments_sensitivity,
)
from support.cases import cases

MAPPED = RowMap(Scales(*affine_maps([(-1.0, 1.0)] * 3), 0.0, 1.0))


def moments(columns: np.ndarray) -> np.ndarray:
    found = ColumnMoments(MAPPED)
    for part in np.array_split(columns, 3, axis=1):
        one = found.zero()
        one.add(np.zeros(part.shape[1]), part, Batch())
        found.merge(one)
    return found.total()


COLUMNS = np.stack([np.full(6000, 0.5), *np.random.default_rng(0).normal([[0.1], [-0.2]], [[0.2], [0.01]], (2, 6000))])


def test_without_noise_they_are_those_of_the_rows() -> None:
    drawn = [
        released_standard(moments(COLUMNS), squared_mu=Fraction(10**6), neighbours="add_remove") for _ in range(15)
    ]
    for found in drawn:
        assert found.mean == pytest.approx(COLUMNS.mean(axis=1), abs=1e-5)
        assert found.deviation[1:] == pytest.approx(COLUMNS.std(axis=1)[1:], rel=0.05)
        assert (found.mean * 2.0**40 % 1 == 0).all()
    # A constant is not blown up beyond what noise makes of it: more than so much in one draw of 50.
    sigma = moments_sensitivity("add_remove", 3) / 1000 / UNIT
    assert np.median([found.deviation[0] for found in drawn]) == pytest.approx(math.sqrt(2 * sigma / 6000), rel=0.2)


def test_a_missing_value_is_the_middle_of_the_bounds_to_the_moments_and_the_mean_to_the_fit() -> None:
    assert (moments(np.array([[np.nan], [0.5], [-0.5]]).repeat(3, axis=1)) // UNIT * 0 == 0).all()
    standard = released_standard(moments(COLUMNS), squared_mu=Fraction(10**6), neighbours="add_remove")
    mapped = MAPPED.standardised(standard)
    rows, [weight] = mapped.matrix(mapped.quantised(np.array([[np.nan], [np.nan], [0.0]])))
    # 0.2 is twenty deviations, clipped to three; then the whole row is scaled down to a norm of 2.
    assert weight == pytest.approx(2 / math.sqrt(10))
    assert rows[0] / STANDARD_ONE == pytest.approx(weight * np.array([1, 0, 0, 3]), abs=1e-5)


@cases("rows", [0, 1, 40], quick=6)
@cases("mu", [Fraction(1, 1000), Fraction(1), Fraction(1000)])
def test_they_are_always_usable(rows: int, mu: Fraction) -> None:
    for _ in range(20):
        found = released_standard(
            moments(COLUMNS[:, :rows]), squared_mu=mu**2, neighbours="replace", max_rows_per_unit=3
        )
        assert (abs(found.mean) <= 1).all()
        assert ((found.deviation >= 2.0**-40) & (found.deviation <= 1)).all()


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_the_noise_that_is_asked_for(monkeypatch: pytest.MonkeyPatch, neighbours: str) -> None:
    asked: dict[str, Any] = {}

    def record(values: np.ndarray, **given: Any) -> GaussianRelease:
        asked.update(given, values=values)
        return GaussianRelease(values.astype(float), 1.0)

    monkeypatch.setattr(module, "gaussian_release", record)
    exact = moments(COLUMNS)
    released_standard(exact, squared_mu=Fraction(2), neighbours=neighbours, max_rows_per_unit=5)
    squared = 4 * 3 if neighbours == "replace" else 1 + Fraction(15, 4)
    assert (asked["sensitivity"] - 1) ** 2 < (5 * UNIT) ** 2 * squared <= asked["sensitivity"] ** 2
    assert asked["squared_mu"] == 2
    assert (asked["values"] == exact).all()
    assert exact[0] == 6000 * UNIT
    q = np.floor(COLUMNS * FIXED_POINT_ONE + 0.5)
    assert exact[1:4].tolist() == [2 * FIXED_POINT_ONE * int(one) for one in q.sum(axis=1)]


def test_limits_are_three_deviations_from_the_mean() -> None:
    standard = released_standard(moments(COLUMNS), squared_mu=Fraction(10**6), neighbours="add_remove")
    mapped = MAPPED.standardised(standard)
    low, high = np.array(mapped.counted(np.full(3, -1.0), np.full(3, 1.0))).T
    assert high - low == pytest.approx(2 * DEVIATIONS * standard.deviation)
    quantised = mapped.quantised(np.array([[high[0]], [high[1]], [low[2]]]))
    assert mapped.in_deviations(quantised)[0] == pytest.approx(
        [3 * STANDARD_ONE, 3 * STANDARD_ONE, -3 * STANDARD_ONE], rel=1e-2
    )


def test_a_row_far_out_in_a_whole_feature_counts_less_and_stays_in_line() -> None:
    """Features, intercept and target are shortened alike, so a linear truth still goes through the row."""
    standard = released_standard(moments(COLUMNS), squared_mu=Fraction(10**6), neighbours="add_remove")
    mapped = replace(MAPPED, unclipped=np.array([False, True, True])).standardised(standard)
    given = np.array([[0.5], [0.9], [-0.21]])
    rows, [weight] = mapped.matrix(mapped.quantised(given))
    far = (0.9 - standard.mean[1]) / standard.deviation[1]
    assert far > DEVIATIONS
    assert rows[0, 1:] / rows[0, 0] == pytest.approx(
        (given[:, 0] - standard.mean) / standard.deviation, rel=1e-2, abs=1e-4
    )
    first = DEVIATIONS / far
    # As long as the intercept, 0, three deviations, and one below the mean; then no longer than one of each.
    assert weight == pytest.approx(first * min(1.0, 2 / np.linalg.norm([first, 0, DEVIATIONS, -first])), rel=1e-2)
    assert np.abs(rows).max() <= FIXED_POINT_ONE
    # Whole features keep their bounds, and the others have three deviations.
    counted = mapped.counted(np.full(3, -1.0), np.full(3, 1.0))
    assert counted[1:] == [(-1.0, 1.0)] * 2
    assert counted[0][1] < 1.0


@cases("mu", [Fraction(1, 1000), Fraction(1), Fraction(1000)], quick=2)
def test_whole_features_are_counted_all_the_way_to_their_bounds(mu: Fraction) -> None:
    """Whatever was drawn, no value within the bounds is clipped, and the bounds come out as they were given."""
    for _ in range(20):
        found = released_standard(
            moments(COLUMNS), squared_mu=mu**2, neighbours="replace", reach=[3, math.inf, 3], max_rows_per_unit=3
        )
        assert (found.deviation <= 1).all()
        mapped = MAPPED.standardised(found)
        assert mapped.counted(np.full(3, -1.0), np.full(3, 1.0))[::2] == [(-1.0, 1.0)] * 2
        ends = mapped.in_deviations(mapped.quantised(np.array([[-1.0, 1.0]] * 3)))
        assert (np.abs(ends[:, [0, 2]]) <= DEVIATIONS * STANDARD_ONE).all()
    if mu == 1000:
        # The spread of the others is their own, and so is that of a whole one that fills its bounds.
        assert found.deviation[1] == pytest.approx(COLUMNS.std(axis=1)[1], rel=0.05)


@pytest.mark.parametrize("least", [0.0, 4.0])
def test_moments_of_few_rows_are_not_used_where_the_call_says_so(least: float) -> None:
    few = moments(COLUMNS[:, :40])
    for _ in range(20):
        found = released_standard(few, squared_mu=Fraction(1, 10**4), neighbours="add_remove", least_rows=least)
        noisy = bool(np.any(found.mean))
        assert noisy == (least == 0.0)
        if least:
            assert found.deviation.tolist() == [1.0] * 3
    assert np.any(
        released_standard(moments(COLUMNS), squared_mu=Fraction(1), neighbours="add_remove", least_rows=least).mean
    )
