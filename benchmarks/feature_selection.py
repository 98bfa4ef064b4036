"""The four selectors beside each other on three real tables: how good is what they choose, at which epsilon.

The measure is the share of the variance that a least squares fit on the chosen features explains, relative to
that of the best forward selection without privacy: 1 is as good as without privacy. Every number is a mean over
repeated calls of the SQL functions; bounds are stated from what the columns mean, not read off the tables.

    python benchmarks/feature_selection.py [--runs 20] [--data ../shared/data] [--start]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dpsql

EPSILONS = (0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True)
class Table:
    """A real table: where it is, what is asked of it, and public bounds."""

    name: str
    sql: str
    features: tuple[str, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    target: tuple[float, float]
    k: int


SMALL = Table("small", "", ("a", "b", "c"), (0, 0, 0), (16, 100, 6), (0, 40), 2)


def tables(data: Path) -> list[Table]:
    """Return the tables."""
    bounds = {
        "MedInc": (0, 15), "HouseAge": (0, 52), "AveRooms": (0, 15), "AveBedrms": (0, 4), "Population": (0, 5000),
        "AveOccup": (0, 8), "Latitude": (32, 42), "Longitude": (-125, -114),
    }  # fmt: skip
    wine = {
        "fixed_acidity": (3, 16), "volatile_acidity": (0, 1.6), "citric_acid": (0, 1.2), "residual_sugar": (0, 40),
        "chlorides": (0, 0.4), "free_sulfur_dioxide": (0, 150), "total_sulfur_dioxide": (0, 400),
        "density": (0.98, 1.02), "pH": (2.5, 4.5), "sulphates": (0, 2), "alcohol": (8, 15),
    }  # fmt: skip
    per_second = {
        name: (0, largest)
        for name, largest in {
            "lread": 200, "lwrite": 100, "scall": 10000, "sread": 2000, "swrite": 2000, "fork": 20, "exec": 40,
            "rchar": 1e6, "wchar": 1e6, "pgout": 50, "ppgout": 100, "pgfree": 100, "pgscan": 300, "atch": 20,
            "pgin": 100, "ppgin": 200, "pflt": 1000, "vflt": 1500, "runqsz": 20, "freemem": 10000, "freeswap": 2e6,
        }.items()
    }  # fmt: skip
    return [
        _table("california", data / "regression/california.parquet", bounds, (0, 5), 3),
        _table("wine_quality", data / "regression/wine_quality.parquet", wine, (0, 10), 3),
        _table("cpu_act", data / "regression/cpu_act.parquet", per_second, (0, 100), 5),
    ]


def _table(name: str, path: Path, bounds: dict[str, Any], target: tuple[float, float], k: int) -> Table:
    low, high = zip(*bounds.values(), strict=True)
    return Table(name, f"SELECT * FROM '{path}'", tuple(bounds), low, high, target, k)


def calls(table: Table, rows: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the contenders: SQL function and arguments besides those that all share."""
    bounds = {
        "lower": list(table.lower),
        "upper": list(table.upper),
        "target_lower": table.target[0],
        "target_upper": table.target[1],
    }
    return {
        "dp_sis, center := 'target'": ("dp_sis", {**bounds, "center": "target"}),
        "dp_sis": ("dp_sis", bounds),
        "dp_kendall": ("dp_kendall", {}),
        "dp_two_stage": ("dp_two_stage", {"blocks": max(20, rows // 100)}),
        "dp_best_subset, intercept": ("dp_best_subset", {**bounds, "intercept": True}),
        "dp_best_subset": ("dp_best_subset", bounds),
    }


def explained(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> float:
    """Return R squared of least squares with an intercept."""
    x = np.column_stack([np.ones(len(y)), x])
    residual = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    return float(1 - residual @ residual / ((y - y.mean()) @ (y - y.mean())))


def forward(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], k: int) -> float:
    """Return R squared of forward selection without privacy."""
    chosen: list[int] = []
    for _ in range(k):
        rest = [j for j in range(x.shape[1]) if j not in chosen]
        chosen.append(max(rest, key=lambda j: explained(x[:, [*chosen, j]], y)))
    return explained(x[:, chosen], y)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared/data")
    parser.add_argument("--start", action="store_true", help="time the first call of new processes instead")
    options = parser.parse_args()
    if options.start:
        start(options.runs)
        return
    if not options.data.is_dir():
        raise SystemExit(f"no data in {options.data}: give --data, the folder of the Parquet files")
    for table in tables(options.data):
        measure(table, options.runs)


def start(runs: int) -> None:
    """Print how long the first call of a process takes, connected, on 2,000 rows of three features."""
    for name, (function, arguments) in calls(SMALL, 2000).items():
        code = (
            "import time, dpsql\n"
            "context = dpsql.Context()\n"
            "context.connection.execute('CREATE TABLE t AS SELECT i % 17 AS a, i * 13 % 101 AS b, i % 7 AS c, "
            "i % 17 * 2 + i % 7 AS y FROM range(2000) AS r(i)')\n"
            "start = time.perf_counter()\n"
            f"context.{function}('t', target='y', features=['a', 'b', 'c'], k=2, epsilon=1, **{arguments})\n"
            "print(time.perf_counter() - start)"
        )
        command = [sys.executable, "-c", code]
        times = [float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(runs)]
        print(f"{name:30}{statistics.median(times):6.3f} s")


def measure(table: Table, runs: int) -> None:
    """Print one row per contender."""
    with dpsql.Context() as context:
        context.connection.execute(f"CREATE TABLE t AS {table.sql}")
        rows = context.sql("FROM t")
        target = "y"
        x = np.column_stack([rows.column(name).to_numpy().astype(float) for name in table.features])
        x = np.clip(x, table.lower, table.upper)
        y = rows.column(target).to_numpy().astype(float)
        best = forward(x, y, table.k)
        print(f"\n{table.name}: {len(y)} rows, {len(table.features)} features, k = {table.k}; forward R2 {best:.3f}")
        print(f"{'':30}" + "".join(f"  eps {epsilon:<5}" for epsilon in EPSILONS) + "   seconds")
        place = {name: j for j, name in enumerate(table.features)}
        for name, (function, arguments) in calls(table, len(y)).items():
            line, seconds = [], []
            for epsilon in EPSILONS:
                quality = []
                for _ in range(runs):
                    started = time.perf_counter()
                    release = getattr(context, function)(
                        "t", target=target, features=list(table.features), k=table.k, epsilon=epsilon, **arguments
                    )
                    seconds.append(time.perf_counter() - started)
                    quality.append(explained(x[:, [place[feature] for feature in release.features]], y) / best)
                line.append(statistics.mean(quality))
            cells = "".join(f"  {value:9.3f}" for value in line)
            print(f"{name:30}{cells}   {statistics.median(seconds):.3f}", flush=True)


if __name__ == "__main__":
    main()
