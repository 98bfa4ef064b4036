"""Private bounds of columns of all kinds: how often they are found, what they leave out, and how wide they are.

``python benchmarks/bounds.py [add_remove|replace] [calls]`` draws from 21 columns of real tables (``../shared/data``;
left out where it is absent) and six made ones, with fresh samples of n rows per call. Each line is one n and epsilon:

- found: share of calls with an interval;
- outside: median over columns of the median share of rows outside, of found intervals;
- false: found intervals that hold half of the rows or fewer;
- width: of found intervals, over that of the cells that hold the middle 98 % of the column, which is the least that an
  interval may have (a cell is a sixteenth as wide as its values are large): 90th percentile, and how many exceed 100.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpsql.kernels.cells import FINE_CELLS, fine_interval, magnitude_cells
from dpsql.mechanisms.interval_scan import IntervalNoise, interval_scan

DATA = Path(__file__).parents[2] / "shared" / "data"
REAL = {
    "regression/california": ["MedInc", "AveRooms", "Population", "Longitude", "y"],
    "regression/diamonds": ["carat", "depth", "y"],
    "regression/wine_quality": ["residual.sugar", "density", "y"],
    "regression/house_sales": ["sqft_lot", "yr_built", "y"],
    "regression/cpu_act": ["lread", "freemem"],
    "regression/sgemm_gpu_kernel": ["y"],
    "tables/adult": ["age", "capital_gain", "hours_per_week"],
    "tables/diabetes130_hospital": ["num_medications", "number_emergency"],
}
SETTINGS = (
    *((200, rate) for rate in ("0.25", "0.5")),
    *((1000, rate) for rate in ("0.1", "0.15", "0.2", "0.3", "1")),
    *((5000, rate) for rate in ("0.03", "0.1", "0.2")),
)
CALLS = 20


def columns() -> dict[str, NDArray[np.float64]]:
    """Return the columns by name."""
    import duckdb

    found: dict[str, NDArray[np.float64]] = {}
    for path, wanted in REAL.items():
        file = DATA / f"{path}.parquet"
        if not file.exists():
            continue
        names = [row[0] for row in duckdb.sql(f"DESCRIBE FROM '{file}'").fetchall()]
        for name in (one for one in wanted if one in names):
            values = duckdb.sql(f'SELECT "{name}"::DOUBLE FROM \'{file}\' WHERE "{name}" IS NOT NULL').fetchnumpy()
            found[f"{path.split('/')[1]}.{name}"] = np.asarray(next(iter(values.values())), dtype=np.float64)
    generator = np.random.default_rng(0)
    size = 50_000
    found["cauchy"] = generator.standard_cauchy(size)
    found["lognormal"] = generator.lognormal(0, 2, size)
    found["years"] = generator.integers(1922, 2012, size).astype(np.float64)
    found["constant"] = np.full(size, 42.0)
    found["zero-inflated"] = np.where(generator.random(size) < 0.9, 0.0, generator.lognormal(3, 1, size))
    found["normal far"] = generator.normal(1e6, 1, size)
    return found


def measure(column: NDArray[np.float64], rows: int, noise: IntervalNoise, calls: int) -> NDArray[np.float64]:
    """Return of each found interval the share of rows outside and the width; the rows are drawn with replacement."""
    generator = np.random.default_rng(rows)
    least, most = fine_interval(*magnitude_cells(np.quantile(column, [0.01, 0.99])).tolist())
    found = []
    for _ in range(calls):
        sample = generator.choice(column, rows)
        drawn = interval_scan(np.bincount(magnitude_cells(sample), minlength=FINE_CELLS)[:FINE_CELLS], noise)
        if drawn.ends is not None:
            lower, upper = drawn.ends
            outside = 1 - np.mean((sample >= lower) & (sample <= upper))
            found.append((outside, (upper - lower) / (most - least)))
    return np.array(found).reshape(-1, 2)


def main(neighbours: str = "add_remove", calls: int = CALLS) -> None:
    """Print a line for each setting."""
    known = columns()
    print(f"{len(known)} columns, {calls} calls each, {neighbours}")
    print("     n  epsilon  n eps   found  outside  false  width .9  > 100")
    for rows, rate in SETTINGS:
        noise = IntervalNoise(Fraction(rate), neighbours, 1, Fraction(1, 100))
        drawn = {name: measure(column, rows, noise, calls) for name, column in known.items()}
        whole = np.concatenate(list(drawn.values()))
        share = len(whole) / (calls * len(known))
        medians = [np.median(one[:, 0]) for one in drawn.values() if len(one)]
        widths = whole[:, 1]
        outside = np.median(medians) if medians else np.nan
        wide = np.quantile(widths, 0.9) if len(widths) else np.nan
        print(
            f"{rows:6d} {rate:>8s} {rows * float(rate):6.0f} {share:7.3f} {outside:8.3f} "
            f"{np.count_nonzero(whole[:, 0] >= 0.5):6d} {wide:9.2f} {np.count_nonzero(widths > 100):6d}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
