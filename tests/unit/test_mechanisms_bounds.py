"""Private bounds: what noisy counts say, thresholds that fit the noise, and families of columns."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.errors import ParameterError
from dpsql.kernels.cells import (
    COARSE_CELLS,
    FINE_CELLS,
    SUBCELLS,
    ZERO_FINE,
    MagnitudeCounts,
    coarse_counts,
    fine_edges,
    magnitude_cells,
)
from dpsql.mechanisms import bounds as module
from dpsql.mechanisms.bounds import (
    Thresholds,
    gaussian_bounds,
    interval_from_counts,
)
from dpsql.testing.bits import SeededBits

PLAIN = Thresholds(10.0, (10.0,) * (SUBCELLS - 1))
SMALLEST = 2.0**-64
ROWS = 40_000


def counted(values: Any) -> np.ndarray:
    magnitudes = MagnitudeCounts(1)
    magnitudes.add(np.asarray(values, dtype=np.float64)[np.newaxis])
    return magnitudes.counts[0]


def exact(values: Any, thresholds: Thresholds = PLAIN) -> tuple[float, float]:
    """Return the interval of counts without noise."""
    fine = counted(values)
    return interval_from_counts(fine, coarse_counts(fine), thresholds)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0] * 20, (3.0, 3.125)),
        ([-3.0] * 20, (-3.125, -3.0)),
        ([0.0] * 20 + [1.0] * 20, (0.0, 1.0625)),
        ([0.0] * 20 + [-1.0] * 20, (-1.0625, 0.0)),
        ([-1.0] * 20 + [1.0] * 20, (-1.0625, 1.0625)),
        ([0.0] * 20, (-SMALLEST, SMALLEST)),
        (list(range(1922, 2012)), (1920.0, 2048.0)),
        ([5.0] * 20 + [300.0] * 9, (5.0, 5.25)),
        ([5.0] * 20 + [300.0] * 11, (5.0, 304.0)),
        # 12 rows in one coarse cell, 4 at each end of it: the last fine cells whose total stays below 10 go.
        ([4.0] * 4 + [5.0] * 6 + [6.0] * 12 + [7.0] * 4, (5.0, 6.25)),
        # Ends that would cross are left alone.
        ([4.0] * 6 + [7.9] * 6, (4.0, 8.0)),
        ([math.inf] * 20, (2.0**65 - 2.0**60, 2.0**65)),
        ([-math.inf] * 20 + [5e-324] * 20, (-(2.0**65), 0.0)),
        # None above the threshold: the largest count.
        ([5.0] * 3 + [17.0] * 4 + [33.0] * 2, (16.0, 32.0)),
    ],
)
def test_intervals_of_counts_without_noise(values: list[float], expected: tuple[float, float]) -> None:
    thresholds = PLAIN
    assert exact(values, thresholds) == expected


def test_negative_columns_mirror_positive_ones() -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        values = np.round(generator.normal(size=300) * 10.0 ** generator.integers(-9, 9), generator.integers(0, 9))
        lower, upper = exact(values)
        assert exact(-values) == (-upper, -lower)
        assert lower < upper


def test_any_counts_give_an_interval() -> None:
    """Noise alone, of any size: the answer is finite and lower < upper."""
    generator = np.random.default_rng(1)
    edges = set(fine_edges().tolist()) | {0.0}
    for _ in range(300):
        scale = 10.0 ** generator.integers(0, 12)
        fine = (generator.normal(size=FINE_CELLS) * scale).astype(np.int64)
        coarse = (generator.normal(size=COARSE_CELLS) * scale).astype(np.int64)
        lower, upper = interval_from_counts(fine, coarse, PLAIN)
        assert lower < upper
        assert {lower, upper} <= edges


# --- thresholds


def widened(monkeypatch: pytest.MonkeyPatch, factor: float, runs: int) -> int:
    """Return how often the interval is wider than the fine cells that hold rows, with thresholds times a factor."""
    counts = counted(np.repeat([5.0, 70.0], 5000))
    given: dict[str, Any] = {"neighbours": "add_remove", "failure": Fraction(1, 5), "source": SeededBits(7)}
    thresholds = module._thresholds

    def scaled(*arguments: Any) -> Thresholds:
        right = thresholds(*arguments)
        return Thresholds(factor * right.coarse, tuple(factor * one for one in right.fine))

    monkeypatch.setattr(module, "_thresholds", scaled)
    count = 0
    for _ in range(runs):
        ((lower, upper),) = gaussian_bounds(counts[np.newaxis], mu=Fraction(1), **given)
        assert lower <= 5.0
        assert upper >= 72.0
        count += (lower, upper) != (5.0, 72.0)
    monkeypatch.undo()
    return count


def test_failure_bounds_the_chance_that_noise_widens(monkeypatch: pytest.MonkeyPatch) -> None:
    # 250 draws with chance at most 1/5 exceed 90 with chance 2e-9 at most; halved thresholds fail nearly always.
    assert 0 <= widened(monkeypatch, 1.0, 250) <= 90
    assert widened(monkeypatch, 0.5, 250) > 90


# --- columns

GENERATOR = np.random.default_rng(5)
COLUMNS: dict[str, Any] = {
    "normal": GENERATOR.normal(size=ROWS),
    "far": GENERATOR.normal(1e6, 1.0, size=ROWS),
    "years": GENERATOR.integers(1922, 2012, ROWS),
    "binary": GENERATOR.integers(0, 2, ROWS),
    "signs": GENERATOR.choice([-1.0, 1.0], ROWS),
    "heavy": GENERATOR.standard_cauchy(ROWS),
    "skewed": -GENERATOR.lognormal(0.0, 3.0, ROWS),
    "small": GENERATOR.normal(size=ROWS) * 1e-12,
    "half missing": np.where(GENERATOR.random(ROWS) < 0.5, np.nan, GENERATOR.random(ROWS)),
    "constant": np.full(ROWS, -7.0),
    "zeros": np.zeros(ROWS),
    "infinite": np.full(ROWS, np.inf),
}


def share_inside(values: Any, interval: tuple[float, float]) -> float:
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    outermost = fine_edges()[-1]
    known = np.clip(known, -outermost, outermost)
    return float(np.mean((known >= interval[0]) & (known <= interval[1])))


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("name", COLUMNS)
def test_bounds_hold_the_bulk(name: str, neighbours: str) -> None:
    values = COLUMNS[name]
    for lower, upper in gaussian_bounds(counted(values)[np.newaxis], mu=Fraction(1, 2), neighbours=neighbours):
        assert share_inside(values, (lower, upper)) > 0.98
        assert math.isfinite(lower)
        assert math.isfinite(upper)
        if name == "years":
            assert (lower, upper) == (1920.0, 2048.0)
        elif name == "binary":
            assert (lower, upper) == (0.0, 1.0625)
        elif name == "zeros":
            assert (lower, upper) == (-SMALLEST, SMALLEST)
        elif name in ("normal", "signs"):
            assert -6 <= lower < 0 < upper <= 6


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**6), Fraction(1), Fraction(10**4)])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_an_answer_without_data(rows: int, epsilon: Fraction) -> None:
    for values in ([math.nan] * rows, [4.5] * rows):
        for _ in range(5):
            both = np.stack([counted(values)] * 2)
            for lower, upper in gaussian_bounds(both, mu=epsilon, neighbours="add_remove"):
                assert lower < upper
                assert math.isfinite(lower)
                assert math.isfinite(upper)


def test_without_noise_to_speak_of_every_row_counts() -> None:
    counts = counted([0.5] * 3 + [-20.0])
    many = np.stack([40 * counts, counted([9.0] * 40)])  # noise of a third of a row is the least there is
    assert gaussian_bounds(many, mu=Fraction(1000), neighbours="replace") == [
        (-21.0, 0.53125),
        (9.0, 9.5),
    ]


def test_no_columns() -> None:
    assert gaussian_bounds(np.zeros((0, FINE_CELLS), dtype=np.int64), mu=Fraction(1), neighbours="replace") == []


@pytest.mark.parametrize("mu", [Fraction(1, 100), Fraction(1), Fraction(50), Fraction(10**6)])
@pytest.mark.parametrize("width", [1, 7])
def test_gaussian_noise_has_the_stated_multiplier_and_a_fine_grain(
    monkeypatch: pytest.MonkeyPatch, mu: Fraction, width: int
) -> None:
    """L2 sensitivity ``m sqrt(4 width)`` under replace, over mu; in steps of which it is at least 2**30."""
    asked: list[tuple[Fraction, int]] = []
    seen: list[tuple[np.ndarray, np.ndarray]] = []

    def record(variance: Fraction, size: int, *, source: Any) -> np.ndarray:
        asked.append((variance, size))
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(module, "gaussian_noise", record)
    monkeypatch.setattr(module, "interval_from_counts", lambda fine, coarse, _: seen.append((fine, coarse)))
    counts = np.stack([counted([3.0] * (number + 1)) for number in range(width)])
    gaussian_bounds(counts, mu=mu, neighbours="replace", max_rows_per_unit=3)
    (variance,) = {variance for variance, _ in asked}
    assert [size for _, size in asked] == [COARSE_CELLS, FINE_CELLS] * width
    (unit,) = {fine.sum() // (number + 1) for number, (fine, _) in enumerate(seen)}
    assert variance == Fraction(int(unit)) ** 2 * 4 * width * 9 / min(mu, Fraction(8)) ** 2
    assert variance >= 2**60
    for fine, coarse in seen:
        assert np.array_equal(coarse, coarse_counts(fine))
        assert fine[magnitude_cells(np.array([3.0]))[0]] == fine.sum()
    assert len(seen) == width
    assert fine_edges()[ZERO_FINE] == -SMALLEST


def test_failure_is_shared_by_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    thresholds = module._thresholds
    monkeypatch.setattr(module, "_thresholds", lambda tail, chance: asked.append(chance) or thresholds(tail, chance))
    for width in (1, 4):
        counts = np.zeros((width, FINE_CELLS), dtype=np.int64)
        gaussian_bounds(counts, mu=Fraction(1), neighbours="replace", failure=Fraction(1, 8))
    assert asked == [0.125, 0.03125]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"mu": Fraction(0)}, "P018"),
        ({"mu": 0.5}, "P018"),
        ({"neighbours": "both"}, "P018"),
        ({"max_rows_per_unit": 0}, "P018"),
        ({"failure": Fraction(0)}, "P018"),
        ({"failure": Fraction(1)}, "P018"),
        ({"failure": 0.5}, "P018"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], code: str) -> None:
    given = {"mu": Fraction(1), "neighbours": "add_remove", **changed}
    for columns in (1, 0):
        with pytest.raises(ParameterError) as caught:
            gaussian_bounds(np.zeros((columns, FINE_CELLS), dtype=np.int64), **given)
        assert caught.value.code == f"DPSQL-{code}"
