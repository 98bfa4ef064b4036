"""`sampling := true`: intervals hold the number of the population in 95 % of samples, noise and sampling included.

Every interval is of fresh rows and fresh noise. A rate of 5 % exceeds the limits with a chance of 1e-6 at most; without
sampling all of them fail by far, which is tested, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom

import dpsql
from support.cases import cases

GROUPS = 500
# Populations of single values with their means, and rows of a group.
VALUES: dict[str, tuple[Any, float, int]] = {
    "skewed": (lambda rng, n: np.minimum(rng.exponential(1.0, n), 10.0), 1.0 - np.exp(-10.0), 60),
    "shares": (lambda rng, n: 10.0 * (rng.random(n) < 0.03), 0.3, 100),
    "uniform": (lambda rng, n: rng.uniform(0.0, 10.0, n), 5.0, 300),
    "few rows": (lambda rng, n: 10.0 * (rng.random(n) < 0.5), 5.0, 8),
}


def most(count: int) -> int:
    return int(binom.isf(1e-6, count, 0.05))


@pytest.fixture(scope="module")
def opened() -> Iterator[Any]:
    with dpsql.connect() as connection:
        yield connection


def load(connection: Any, **columns: Any) -> None:
    connection.register("made", pa.table(columns))
    connection.execute("CREATE OR REPLACE TABLE t AS FROM made")


def missed(connection: Any, name: str, epsilon: float, more: str = "sampling := true") -> tuple[int, int]:
    """Count the groups' intervals that miss the mean of the population, and all intervals.

    An undetermined group has no interval. In the case of few rows 31 % have one: 100 of 500, up to a chance of 1e-7.
    """
    draw, mean, rows = VALUES[name]
    load(connection, x=draw(np.random.default_rng(3), GROUPS * rows), g=np.repeat(np.arange(GROUPS), rows))
    found = connection.execute(
        "SELECT lower, upper FROM dp_avg('t', target := 'x', lower := 0, upper := 10, by := 'g', "
        f"keys := range({GROUPS}), epsilon := {epsilon}, {more})"
    ).fetchall()
    told = [ends for ends in found if ends != (None, None)]
    assert len(told) > GROUPS // 5
    return sum(not low <= mean <= high for low, high in told), len(told)


@cases("epsilon", [0.5, 100.0])
@cases("name", VALUES)
def test_means(opened: Any, name: str, epsilon: float) -> None:
    wrong, told = missed(opened, name, epsilon)
    assert wrong <= most(told)


def test_gaussian_means(opened: Any) -> None:
    more = "sampling := true, delta := 1e-5, noise := 'gaussian'"
    assert missed(opened, "uniform", 1.0, more)[0] <= most(GROUPS)


def test_means_without_sampling_miss_more(opened: Any) -> None:
    assert missed(opened, "uniform", 100.0, "sampling := false")[0] > 3 * most(GROUPS)


def test_units(opened: Any) -> None:
    """Three equal rows of each unit are one row."""
    rows, rng = 60, np.random.default_rng(4)
    values = np.repeat(rng.uniform(0, 10, GROUPS * rows), 3)
    load(opened, x=values, u=np.repeat(np.arange(GROUPS * rows), 3), g=np.repeat(np.arange(GROUPS), 3 * rows))
    call = (
        f"SELECT lower, upper FROM dp_avg('t', target := 'x', lower := 0, upper := 10, by := 'g', keys := range({GROUPS}), "
        "epsilon := 300, sampling := true, privacy_unit := 'u', max_rows_per_unit := 3, max_groups_per_unit := 1)"
    )
    found = opened.execute(call).fetchall()
    assert sum(not low <= 5.0 <= high for low, high in found) <= most(GROUPS)


DRAWS = 100


def repeated(connection: Any, call: str, make: Any, true: float, column: str) -> tuple[int, float]:
    """Return how many intervals miss a number in fresh samples, and their mean length."""
    rng, wrong, lengths = np.random.default_rng(6), 0, []
    for _ in range(DRAWS):
        load(connection, **make(rng))
        result = connection.execute(f"SELECT * FROM {call}")
        row = dict(zip([one[0] for one in result.description], result.fetchall()[-1], strict=True))
        low, high = (row["lower"], row["upper"]) if "lower" in row else (
            row[column] - 1.96 * row["std_error"], row[column] + 1.96 * row["std_error"])  # fmt: skip
        wrong += not low <= true <= high
        lengths.append(high - low)
    return wrong, float(np.mean(lengths))


def labelled(rng: np.random.Generator) -> dict[str, Any]:
    y = rng.random(300) < 0.2
    return {"y": y, "s": rng.normal(size=300) + 1.0 * y}


def pairs(rng: np.random.Generator) -> dict[str, Any]:
    a = rng.normal(size=400)
    return {"a": a, "b": 0.6 * a + 0.8 * rng.normal(size=400)}


def line(rng: np.random.Generator) -> dict[str, Any]:
    a, b = rng.random(3000), rng.random(3000)
    return {"a": a, "b": b, "y": 0.5 * b + rng.random(3000)}


AREA = "dp_auc('t', label := 'y', score := 's', lower := -5, upper := 6, epsilon := 5"
CORRELATION = "dp_correlation('t', features := ['a', 'b'], lower := -4, upper := 4, epsilon := 20"
SLOPE = (
    "dp_linear_regression('t', target := 'y', features := ['a', 'b'], lower := 0, upper := 1, target_lower := 0, "
    "target_upper := 1.5, epsilon := 5, delta := 1e-5, method := 'ada_ssp'"
)
# Phi(1 / sqrt(2)), the correlation, and the slope.
CASES = {
    "area": (AREA, labelled, 0.7602, "auc"),
    "correlation": (CORRELATION, pairs, 0.6, "value"),
    "slope": (SLOPE, line, 0.5, "coefficient"),
}


@pytest.mark.parametrize("name", CASES)
def test_areas_correlations_and_slopes(opened: Any, name: str) -> None:
    call, *rest = CASES[name]
    wrong, length = repeated(opened, f"{call}, sampling := true)", *rest)
    assert wrong <= most(DRAWS)
    assert length < {"area": 0.35, "correlation": 0.5, "slope": 0.15}[name]


def test_slopes_without_sampling_miss_more(opened: Any) -> None:
    call, *rest = CASES["slope"]
    wrong, _ = repeated(opened, f"{call.replace('epsilon := 5', 'epsilon := 1000')})", *rest)
    assert wrong > most(DRAWS)
