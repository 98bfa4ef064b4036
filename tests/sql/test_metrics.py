"""dp_regression_metrics: exact values, intervals that hold, sensitivity of the sums, scales of the noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

import dpsql
from dpsql.contract.fold import Batch
from dpsql.contract.measurement import draw_once
from dpsql.functions import regression_metrics
from dpsql.functions.regression_metrics import SUMS, MetricsPlan, draw_metrics
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, affine_map
from dpsql.statistics.regression import ErrorSums
from support.cases import cases

ROWS = 2000
CALL = "dp_regression_metrics('{source}', target := 'y', prediction := 'p', lower := {low}, upper := {high}{more})"


def columns() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(11)
    y = rng.normal(50, 20, size=ROWS)
    return y, y + rng.normal(1, 8, size=ROWS)


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    opened = dpsql.connect()
    y, p = columns()
    opened.register("frame", pl.DataFrame({"id": range(ROWS), "y": y, "p": p}).to_arrow())
    opened.execute("CREATE TABLE t AS FROM frame")
    yield opened
    opened.close()


def measure(con: Any, source: str = "t", low: float = 0, high: float = 100, **more: Any) -> dict[str, tuple[Any, ...]]:
    given = {"epsilon": 10**6, **more}
    text = "".join(f", {name} := {value!r}" for name, value in given.items())
    rows = con.execute(f"FROM {CALL.format(source=source, low=low, high=high, more=text)}").fetchall()
    assert [row[0] for row in rows] == ["r2", "rmse", "mae", "rows"]
    return {row[0]: row[1:4] for row in rows}


def exact(y: Any, p: Any) -> dict[str, float]:
    return {
        "r2": r2_score(y, p),
        "rmse": root_mean_squared_error(y, p),
        "mae": mean_absolute_error(y, p),
        "rows": float(len(y)),
    }


def values(found: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    return {name: value for name, (value, *_) in found.items()}


@pytest.mark.parametrize(("low", "high"), [(0, 100), (-300, 400), (40, 60), (-1e4, 1e4)])
def test_values_are_those_of_the_clipped_columns(con: Any, low: float, high: float) -> None:
    y, p = (np.clip(column, low, high) for column in columns())
    rel = 0.02 if high == 1e4 else 1e-4  # wide bounds need much noise
    assert values(measure(con, low=low, high=high)) == pytest.approx(exact(y, p), rel=rel)


def test_error_bound_clips_errors_alone(con: Any) -> None:
    y, p = (np.clip(column, 0, 100) for column in columns())
    error = np.clip(y - p, -5, 5)
    found = values(measure(con, error_bound=5))
    assert found["rmse"] == pytest.approx(math.sqrt((error**2).mean()), rel=1e-4)
    assert found["mae"] == pytest.approx(np.abs(error).mean(), rel=1e-4)
    assert found["r2"] == pytest.approx(1 - (error**2).sum() / ((y - y.mean()) ** 2).sum(), rel=1e-4)
    assert values(measure(con, error_bound=10**9)) == pytest.approx(exact(y, p), rel=1e-4)
    noisy, bounded = (measure(con, epsilon=1, **more)["rmse"] for more in ({}, {"error_bound": 25}))
    assert bounded[2] - bounded[1] < noisy[2] - noisy[1], "smaller errors need less noise"


def test_missing_values_count_as_the_middle_of_the_bounds(con: Any) -> None:
    con.execute(
        "CREATE OR REPLACE TABLE holes AS SELECT CASE WHEN id % 5 = 0 THEN NULL WHEN id % 5 = 1 THEN 'nan' ELSE y END::DOUBLE "
        "AS y, CASE WHEN id % 3 > 0 THEN p END AS p FROM t ORDER BY id"
    )
    y, p = (np.clip(column, 0, 100) for column in columns())
    number = np.arange(ROWS)
    y, p = np.where(number % 5 < 2, 50, y), np.where(number % 3 == 0, 50, p)
    assert values(measure(con, "holes")) == pytest.approx(exact(y, p), rel=1e-4)


def test_perfect_constant_and_no_predictions(con: Any) -> None:
    con.execute("CREATE OR REPLACE TABLE perfect AS SELECT y, y AS p FROM t")
    assert values(measure(con, "perfect")) == pytest.approx({"r2": 1, "rmse": 0, "mae": 0, "rows": ROWS}, abs=0.01)
    con.execute("CREATE OR REPLACE TABLE constant AS SELECT 30 AS y, 30 + id % 2 AS p FROM t")
    found = measure(con, "constant")
    assert found["rmse"][0] == pytest.approx(math.sqrt(0.5), rel=0.01)
    assert found["r2"][0] is None or found["r2"][0] < -100
    con.execute("CREATE OR REPLACE TABLE nobody AS SELECT y, p FROM t WHERE id < 0")
    found = measure(con, "nobody", epsilon=1)
    assert found["rows"][1] == 0
    assert all(0 <= found[name][1] <= found[name][0] <= found[name][2] <= 200 for name in ("rmse", "mae"))


def plan(epsilon: Any = 1, **more: Any) -> MetricsPlan:
    given = {"target": "y", "prediction": "p", "epsilon": epsilon, "lower": 0, "upper": 100, **more}
    made: MetricsPlan = MetricsPlan.from_arguments("t", given)
    return made


def sums_of(made: MetricsPlan, y: Any, p: Any) -> list[int]:
    collector = ErrorSums(made.lower, made.upper, made.largest_error, made.centres)
    y, p = np.asarray(y, dtype=float), np.asarray(p, dtype=float)
    for start in range(0, len(y), 700):
        collector.add(y[start : start + 700], p[np.newaxis, start : start + 700], Batch())
    return collector.sums()


def test_sums_are_exact_integers() -> None:
    made = plan(error_bound=30)
    y, p = columns()
    coded_y, coded_p = (
        [max(-FIXED_POINT_ONE, min(FIXED_POINT_ONE, math.floor((v - middle) * scale + 0.5))) for v in column]
        for middle, scale in [affine_map(0, 100)]
        for column in (y, p)
    )
    bound = made.largest_error
    assert bound == int(0.6 * FIXED_POINT_ONE)
    errors = [max(-bound, min(bound, a - b)) for a, b in zip(coded_y, coded_p, strict=True)]
    squares, sizes = sum(e * e for e in errors), sum(map(abs, errors))
    expected = [ROWS, sum(coded_y), sum(v * v for v in coded_y), squares, sizes]
    assert sums_of(plan(error_bound=30, neighbours="replace"), y, p) == expected
    middles = (0, 0, FIXED_POINT_ONE**2 // 2, bound**2 // 2, bound // 2)
    centred = [total - ROWS * middle for total, middle in zip(expected, middles, strict=True)]
    assert sums_of(made, y, p) == centred


number = st.one_of(
    st.sampled_from([0.0, 100.0, 50.0, -1e300, 1e300, math.nan, math.inf, -math.inf]), st.floats(-50, 150)
)
row = st.tuples(number, number)


@settings(max_examples=300)
@given(
    table=st.lists(row, max_size=8),
    removed=st.lists(row, min_size=0, max_size=3),
    entered=st.lists(row, min_size=0, max_size=3),
    error_bound=st.sampled_from([None, 0.01, 25, 100, 1e9]),
    neighbours=st.sampled_from(["add_remove", "replace"]),
)
def test_neighbours_differ_by_at_most_what_the_scales_allow(
    table: list[Any], removed: list[Any], entered: list[Any], error_bound: float | None, neighbours: str
) -> None:
    """Each sum moves by at most scale times its epsilon, with up to three rows of one privacy unit."""
    epsilon = Fraction(1)
    made = plan(error_bound=error_bound, neighbours=neighbours, privacy_unit="id", max_rows_per_unit=3)
    if neighbours == "add_remove":
        entered = []
    one, other = (
        sums_of(made, *zip(*rows, strict=True)) if rows else [0] * 5 for rows in (table + removed, table + entered)
    )
    for name, first, second, scale, share in zip(SUMS, one, other, made.scales, made.shares, strict=True):
        assert abs(first - second) <= scale * epsilon * share, name


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("error_bound", [None, 25])
def test_the_sensitivity_is_reached(neighbours: str, error_bound: float | None) -> None:
    """Smaller noise would not do: some neighbours are as far apart as the scales say."""
    made = plan(error_bound=error_bound, neighbours=neighbours)
    allowed = [scale * made.epsilon * share for scale, share in zip(made.scales, made.shares, strict=True)]
    none = [0] * 5
    tops = [sums_of(made, [y], [p]) for y, p in ((100, 0), (0, 100), (50, 50))]
    pairs = (
        [(a, none) for a in tops]
        if neighbours == "add_remove"
        else [(a, b) for a in tops for b in tops] + [(tops[0], none)]
    )
    reached = [max(abs(a[at] - b[at]) for a, b in pairs) for at in range(5)]
    assert reached == pytest.approx([float(value) for value in allowed], rel=1e-5)
    assert sum(made.shares) == 1


def deviations(noise: np.ndarray[Any, Any], scales: list[float]) -> list[float]:
    """Return how many standard deviations the mean size of Laplace samples, shape (draws, sums), is off its scale."""
    off = np.abs(noise).mean(axis=0) / scales - 1
    return list(np.abs(off) * math.sqrt(len(noise)))


def drawn_sums(
    monkeypatch: pytest.MonkeyPatch, made: MetricsPlan, draws: int, factor: float = 1.0
) -> np.ndarray[Any, Any]:
    """Return the noise of the five sums in so many draws, as the mechanism asks for it; scaled to plant a fault."""
    from dpsql.mechanisms import laplace

    sample, seen = laplace.discrete_laplace, []

    def scaled(scale: Fraction, size: int) -> Any:
        noise = sample(scale * Fraction(str(factor)), size)
        seen.append(int(noise[0]))
        return noise

    monkeypatch.setattr(laplace, "discrete_laplace", scaled)
    monkeypatch.setattr(regression_metrics, "metric_rows", lambda sums, **_: [])
    for _ in range(draws):
        draw_once(draw_metrics, made, [0] * 5)
    monkeypatch.undo()
    return np.array(seen, dtype=float).reshape(draws, 5)


@pytest.mark.long
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_noise_has_the_scales_that_are_stated(monkeypatch: pytest.MonkeyPatch, neighbours: str) -> None:
    """The size of the noise and its law; a check that rejects 0.7 and 1.3 times the noise."""
    made = plan(epsilon=Fraction(1, 4), neighbours=neighbours, error_bound=50, privacy_unit="id", max_rows_per_unit=2)
    one, bound = FIXED_POINT_ONE, FIXED_POINT_ONE
    # Sensitivity over share of epsilon, from the table of the module's text; epsilon 1/4 and two rows make it 8 times.
    moves = {
        "add_remove": (1 / 4, one / 2, one**2 / 2 / 2, bound**2 / 2 / 5, bound / 2 / 2),
        "replace": (1 / 2, 2 * one / 2, one**2 / 2, bound**2 / 6, bound / 3),
    }[neighbours]
    stated = [8 * 15 * move for move in moves]
    assert [float(scale) for scale in made.scales] == pytest.approx(stated, rel=1e-12)
    noise = drawn_sums(monkeypatch, made, 2000)
    assert max(deviations(noise, stated)) < 6
    assert kstest((noise[:, 1:] / stated[1:]).ravel(), "laplace").pvalue > 1e-6
    for factor in (0.7, 1.3):
        assert min(deviations(drawn_sums(monkeypatch, made, 2000, factor), stated)) > 6


def covered(made: MetricsPlan, sums: list[int], truth: dict[str, float], runs: int) -> dict[str, tuple[float, float]]:
    """Return of each metric the share of intervals that hold it, and their median width."""
    held, widths = dict.fromkeys(truth, 0), {name: [] for name in truth}
    for _ in range(runs):
        for name, value, low, high in draw_once(draw_metrics, made, sums):
            low = -math.inf if low is None else low
            held[name] += low - 1e-4 <= truth[name] <= high + 1e-4  # the sums are of integers
            widths[name].append(high - low)
            assert value is None or low <= value <= high
    return {name: (held[name] / runs, float(np.median(widths[name]))) for name in truth}


@cases("epsilon", ["0.05", "1", "20"])
@cases("neighbours", ["add_remove", "replace"])
def test_each_interval_holds_in_95_percent_of_draws(epsilon: str, neighbours: str) -> None:
    made = plan(Fraction(epsilon), neighbours=neighbours, error_bound=100)
    y, p = (np.clip(column, 0, 100) for column in columns())
    found = covered(made, sums_of(made, y, p), exact(y, p), 1000)
    assert min(share for share, _ in found.values()) > 0.92  # four deviations below 0.95


# Widths of the joint intervals by union bounds, with sums about 0, over the same rows at the same epsilon.
ONCE = {"r2": 2.02, "mae": 12.1, "rows": 600.7}


def test_intervals_are_half_as_wide_as_the_joint_ones_were() -> None:
    y, p = (np.clip(column, 0, 100) for column in columns())
    made = plan(Fraction(1, 5))
    found = covered(made, sums_of(made, y, p), exact(y, p), 300)
    for name, once in ONCE.items():
        share, width = found[name]
        assert share > 0.9
        assert width <= 0.52 * once, name


def test_intervals_of_more_noise_do_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of the test: noise that is 3 times what is stated leaves the intervals."""
    from dpsql.mechanisms import laplace

    sample = laplace.discrete_laplace
    monkeypatch.setattr(laplace, "discrete_laplace", lambda scale, size: sample(3 * scale, size))
    made = plan(1)
    y, p = (np.clip(column, 0, 100) for column in columns())
    found = covered(made, sums_of(made, y, p), exact(y, p), 500)
    assert max(share for share, _ in found.values()) < 0.9


@pytest.mark.parametrize("more", [{"epsilon": 1e-5}, {"epsilon": 0.01}, {"epsilon": 1, "max_rows_per_unit": 10**4}])
def test_noise_wider_than_the_sampler_draws_is_drawn_in_a_coarser_unit(con: Any, more: dict[str, Any]) -> None:
    """Squares in the fixed point are large: a small epsilon or many rows per person must answer all the same."""
    protection = {"privacy_unit": "id"} if "max_rows_per_unit" in more else {}
    found = measure(con, **more, **protection)
    assert 0 <= found["rmse"][1] <= found["rmse"][0] <= found["rmse"][2] <= 200
    made = plan(**more, **protection)
    truth = exact(*(np.clip(column, 0, 100) for column in columns()))
    assert min(share for share, _ in covered(made, sums_of(made, *columns()), truth, 300).values()) > 0.9


def test_noise_in_a_coarser_unit_has_the_scale_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """In units of 2**k the sum of squares moves by one unit more, and its noise is of that scale."""
    made = plan(Fraction(1, 10**4))
    epsilon = made.epsilon * made.shares[3]
    unit = 1 << (math.floor(made.scales[3]) >> 48).bit_length()
    assert unit > 1
    stated = [float(made.scales[3] + unit / epsilon)]
    noise = drawn_sums(monkeypatch, made, 2000)[:, 3:4] * unit
    assert deviations(noise, stated)[0] < 6
    assert all(deviations(noise * factor, stated)[0] > 6 for factor in (0.7, 1.3))
    assert made.scales[3] + unit / epsilon < made.scales[3] * Fraction(1001, 1000)


def test_of_one_person_only_some_rows_count(con: Any) -> None:
    con.execute("CREATE OR REPLACE TABLE people AS SELECT id, y, p FROM t")
    con.execute("INSERT INTO people SELECT -1, 0, 100 FROM range(5000)")
    found = values(measure(con, "people", privacy_unit="id", max_rows_per_unit=1))
    assert found["rows"] == pytest.approx(ROWS + 1, abs=0.1)
    assert values(measure(con, "people"))["rows"] == pytest.approx(ROWS + 5000, abs=0.1)


def test_aggregate_form_over_predictions_of_a_model(con: Any) -> None:
    """Fit, predict and measure in SQL alone; groups are measured apart."""
    con.execute(
        "FROM dp_linear_regression('t', target := 'y', features := ['p'], epsilon := 10000, delta := 1e-6, release := 'fit')"
    ).fetchall()
    form = "dp_regression_metrics(y, dp_predict('fit', {'p': p}), epsilon := 1e6, lower := -100, upper := 200)"
    [(rows,)] = con.execute(f"SELECT {form} FROM t").fetchall()
    y, p = columns()
    slope, intercept = np.polyfit(p, y, 1)
    assert {row["metric"]: row["value"] for row in rows} == pytest.approx(exact(y, intercept + slope * p), rel=0.01)
    groups = con.execute(f"SELECT {form} FROM t GROUP BY id % 4 ORDER BY id % 4").fetchall()
    assert [group[0][3]["value"] for group in groups] == pytest.approx([500] * 4, abs=0.1)
