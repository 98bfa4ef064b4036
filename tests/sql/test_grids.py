"""Whatever a grid merges, an interval that is called clear holds the exact number of the rows, clipped as it says.

All values in a cell, at the edges of cells, below the resolution, at a code far outside, crowded at an end: at an
epsilon of 20 noise is nearly nothing, and what a cell merges is all that an interval may be wrong about.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsql
from support.cases import cases

ROWS = 4000
NUMBERS = np.random.default_rng(1)
PLACE = np.arange(ROWS)
LABEL = PLACE % 2
EVEN = NUMBERS.uniform(0, 1, ROWS)
SHAPES = {
    "one cell": 0.3001 + 1e-6 * EVEN + 1e-7 * LABEL,
    "edges": np.array([0.25, 0.5, np.nextafter(0.5, 0)])[PLACE % 3],
    "below the resolution": 1e-9 * (1 + EVEN) + 5e-10 * LABEL,
    "constant": np.full(ROWS, 0.7),
    "a code above": np.where(PLACE % 50 == 0, EVEN, 9999.0),
    "a code below": np.where(PLACE % 4 == 0, -1.0, EVEN),
    "crowded": np.where(PLACE % 10 == 0, EVEN, 1 - 1e-7 * EVEN * (1 + LABEL)),
}
LEVELS = (0.1, 0.5, 0.9)


def area(values: Any) -> float:
    """Return the area of the label by a score: pairs in order, and half of the ties."""
    without = np.sort(values[LABEL == 0])
    before, upto = (np.searchsorted(without, values[LABEL == 1], side) for side in ("left", "right"))
    return float((before + upto).mean() / 2 / len(without))


def holds(found: Any, exact: tuple[float, float]) -> bool:
    """Whether a row of lower end, upper end and verdict holds one of the numbers between two, or claims nothing.

    An interval may fail by its noise in one of twenty cases; so half of its width more is allowed on either side.
    """
    lower, upper, verdict = found
    low, high = -np.inf if lower is None else lower, np.inf if upper is None else upper
    more = (high - low) / 2 if np.isfinite(high - low) else 0.0
    return bool(verdict not in {"clear", "unclear"} or (low - more <= exact[1] and exact[0] <= high + more))


@cases("shape", SHAPES, quick=1)
def test_no_grid_makes_a_false_interval(shape: str) -> None:
    values = SHAPES[shape]
    clipped = np.clip(values, 0, 1)
    with dpsql.connect() as connection:
        connection.register("rows", pa.table({"x": values, "y": LABEL}))
        connection.execute("CREATE TABLE t AS SELECT * FROM rows")
        connection.execute("SELECT dp_protect('t', epsilon := 1000)")

        def told(call: str, ends: str = "lower, upper") -> list[Any]:
            return connection.execute(f"SELECT {ends}, verdict FROM {call}").fetchall()

        for bounds, of in (
            ("", values),
            (", lower := 0, upper := 1", clipped),
            (", lower := 0, upper := 1, cells := 64", clipped),
        ):
            for by, parts in (("", [of]), (", by := 'y', keys := [0, 1]", [of[LABEL == 0], of[LABEL == 1]])):
                call = f"dp_quantile('t', target := 'x', quantiles := {list(LEVELS)}, epsilon := 20{bounds}{by})"
                found = iter(told(call))
                for rows in map(np.sort, parts):
                    for level in LEVELS:
                        exact = [rows[int(rounding(level * (len(rows) - 1)))] for rounding in (np.floor, np.ceil)]
                        assert holds(next(found), (exact[0], exact[1])), call
        connection.execute(
            "CREATE TABLE h AS FROM dp_histogram('t', target := 'x', lower := 0, upper := 1, n_bins := 16, epsilon := 20, release := 'h')"
        )
        counts = np.bincount(np.maximum(np.ceil(clipped * 16), 1).astype(int), minlength=17)[1:]
        for found, exact in zip(told("h", "count_lower, count_upper"), [*counts, 0], strict=True):
            assert holds(found, (exact, exact)), found
        for level, found in zip(LEVELS, told(f"dp_histogram_quantile('h', quantiles := {list(LEVELS)})"), strict=True):
            exact = np.quantile(clipped, level, method="inverted_cdf")
            assert holds(found, (exact, exact)), found
        [found] = told("dp_auc('t', label := 'y', score := 'x', epsilon := 20)")
        assert holds(found, (area(values), area(values)))
        for thresholds in ("recursive", "fixed"):
            roc = f"dp_roc('t', label := 'y', score := 'x', lower := 0, upper := 1, thresholds := '{thresholds}', epsilon := 20"
            curve = connection.execute(f"SELECT threshold, fpr, tpr FROM {roc}, release := '{thresholds}')").fetchall()
            for threshold, *rates in curve:
                exact_rates = [float(np.mean(clipped[label == LABEL] >= threshold)) for label in (0, 1)]
                assert rates == pytest.approx(exact_rates, abs=0.01)
            [found] = told(f"dp_auc(release := '{thresholds}')")
            assert holds(found, (area(clipped), area(clipped))), thresholds
            bins = connection.execute(
                f"SELECT lower, upper, rows, positive_rate FROM dp_calibration('{thresholds}')"
            ).fetchall()
            for lower, upper, rows, rate in bins:
                inside = (clipped >= lower) & ((clipped < upper) | (upper == 1))
                assert rows == pytest.approx(inside.sum(), abs=20)
                if inside.sum() > 100:
                    assert rate == pytest.approx(LABEL[inside].mean(), abs=0.1)
