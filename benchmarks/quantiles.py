"""Quantiles of columns of all kinds: how far off in ranks they are, how often found, and what their intervals hold.

``python benchmarks/quantiles.py [quantile] [calls]`` draws from columns of real tables (those of `bounds.py`, left out
where ``../shared/data`` is absent) and made ones, with fresh samples of n rows per call, at three n times epsilon. Each
line is one way to ask:

- found: share of calls that give a value;
- error: rank error as a share of the rows, in half of the calls and in 95 % of them, over all columns;
- held: share of intervals that hold the quantile of the sample, and the share of its rows within them, the median.

Bounds are none, the range of the whole column, or a wild guess: from 0, or minus ten times the largest size where there
are values below 0, to ten times the largest size. "1024 cells" and "drawn bounds" are what dpsql did before cells
followed from type and bounds. The peer is diffprivlib's quantile at the same epsilon and bounds, where it is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from bounds import columns
from numpy.typing import NDArray

from dpsql.contract.measurement import draw_once
from dpsql.functions.grouped.quantile import QuantilePlan, draw_quantiles
from dpsql.kernels.cells import FINE_CELLS, magnitude_cells
from dpsql.kernels.column_cells import ScaleCounts, cells_between
from dpsql.mechanisms.interval_scan import interval_scan
from dpsql.released.quantile_spans import quantile_rows

ROWS = 500
RATES = (150, 300, 500, 1000)
CHOSEN = (
    *("california.MedInc", "california.Longitude", "diamonds.carat", "house_sales.sqft_lot", "cpu_act.freemem"),
    *("adult.age", "adult.capital_gain", "lognormal", "normal far", "years"),
)
Drawn = dict[str, Any]


def plan(quantile: float, epsilon: float, **more: Any) -> QuantilePlan:
    """Return the plan of a call."""
    return QuantilePlan.from_arguments("t", {"target": "y", "quantiles": quantile, "epsilon": epsilon, **more})


def kind_of(column: NDArray[np.float64]) -> pa.DataType:
    """Return the type that a table would have."""
    return pa.int64() if (column == np.rint(column)).all() else pa.float64()


def free(values: Any, kind: Any, quantile: float, epsilon: float, **more: Any) -> Drawn:
    """Draw without bounds."""
    cells = ScaleCounts(kind)
    cells.add(values)
    [row] = quantile_rows(draw_once(draw_quantiles, plan(quantile, epsilon, **more), cells))
    return dict(row)


def within(values: Any, kind: Any, quantile: float, epsilon: float, bounds: tuple[float, float], **more: Any) -> Drawn:
    """Draw within bounds."""
    asked = plan(quantile, epsilon, lower=bounds[0], upper=bounds[1], **more)
    cells = cells_between(*bounds, kind, asked.cells)
    cells.add(values)
    [row] = quantile_rows(draw_once(draw_quantiles, asked, cells))
    return dict(row)


def before(values: Any, kind: Any, quantile: float, epsilon: float) -> Drawn:
    """Draw bounds at a quarter of epsilon, and the quantile from 1024 cells between them."""
    asked = plan(quantile, epsilon, bounds_share=0.25, interval_share=0, cells=1024)
    drawn = interval_scan(np.bincount(magnitude_cells(values), minlength=FINE_CELLS)[:FINE_CELLS], asked.bounds_noise)
    if drawn.ends is None:
        return {"value": None, "lower": None, "upper": None, "verdict": "undetermined"}
    return within(values, kind, quantile, float(asked.remaining_epsilon), drawn.ends, cells=1024, interval_share=0)


def ways(whole: NDArray[np.float64]) -> dict[str, Callable[..., Drawn]]:
    """Return the ways to ask for a quantile of a column, by name."""
    least, most = float(whole.min()), float(whole.max())
    size = max(abs(least), abs(most), 1.0)
    near, wild = (least, most + (most == least)), (0.0 if least >= 0 else -10 * size, 10 * size)
    old = {"interval_share": 0, "cells": 1024}
    found: dict[str, Callable[..., Drawn]] = {
        "no bounds": free,
        "no bounds, no interval": lambda *given: free(*given, interval_share=0),
        "before: drawn bounds": before,
        "range": lambda *given: within(*given, near),
        "range, before: 1024 cells": lambda *given: within(*given, near, **old),
        "wild": lambda *given: within(*given, wild),
        "wild, before: 1024 cells": lambda *given: within(*given, wild, **old),
        "wild, 2**20 cells": lambda *given: within(*given, wild, interval_share=0, cells=1 << 20),
    }
    try:
        from diffprivlib import tools
    except ImportError:
        return found

    def peer(values: Any, kind: Any, quantile: float, epsilon: float, bounds: Any) -> Drawn:
        value = tools.quantile(values, quantile, epsilon=epsilon, bounds=bounds)
        return {"value": float(value), "lower": None, "upper": None, "verdict": "not measured"}

    found["range, diffprivlib"] = lambda *given: peer(*given, near)
    found["wild, diffprivlib"] = lambda *given: peer(*given, wild)
    return found


def main() -> None:
    """Print a line for each way and n times epsilon."""
    quantile = float(sys.argv[1]) if len(sys.argv) > 1 else 0.5
    calls = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    every = {name: column for name, column in columns().items() if name in CHOSEN}
    print(f"{len(every)} columns, {ROWS} rows, the quantile {quantile}, {calls} calls of each")
    print(f"{'':28} {'n eps':>6} {'found':>6} {'error':>7} {'95 %':>7} {'held':>6} {'wide':>6}")
    generator = np.random.default_rng(1)
    for name in ways(np.array([0.0, 1.0])):
        for rate in RATES:
            errors, held, wide, asked = [], [], [], 0
            for column in every.values():
                draw, kind = ways(column)[name], kind_of(column)
                for _ in range(calls):
                    values = np.sort(generator.choice(column, ROWS))
                    row, asked = draw(values, kind, quantile, rate / ROWS), asked + 1
                    if row["value"] is None:
                        continue
                    rank = quantile * ROWS
                    below, upto = (np.searchsorted(values, row["value"], side=side) for side in ("left", "right"))
                    errors.append(max(0.0, below - rank, rank - upto) / ROWS)
                    if row["verdict"] == "not measured":
                        continue
                    low = -np.inf if row["lower"] is None else row["lower"]
                    high = np.inf if row["upper"] is None else row["upper"]
                    held.append(low <= np.quantile(values, quantile) <= high)
                    wide.append(((values >= low) & (values <= high)).mean())
            half, most = np.quantile(errors, [0.5, 0.95]) if errors else (np.nan, np.nan)
            told = f"{np.mean(held):6.1%} {np.median(wide):6.1%}" if held else ""
            print(f"{name:28} {rate:6} {len(errors) / asked:6.1%} {half:7.2%} {most:7.2%} {told}", flush=True)


if __name__ == "__main__":
    main()
