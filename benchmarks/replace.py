"""Sums and averages under replace, with public sizes: the spread of dpsql's answers beside diffprivlib's.

    pip install diffprivlib
    python benchmarks/replace.py               # --calls N, --rows N

Both have pure noise at the same epsilon and the same bounds, and both know how many rows there are.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from diffprivlib import tools
from numpy.typing import NDArray

import dpsql

SETTINGS = [("sum", 20.0, 80.0), ("sum", -2.0, 8.0), ("sum", 0.0, 100.0), ("avg", 20.0, 80.0), ("avg", 0.0, 100.0)]


def spread(call: Callable[[], float], calls: int) -> float:
    """Return the mean absolute distance of the answers from their median."""
    found = np.array([call() for _ in range(calls)])
    return float(np.abs(found - np.median(found)).mean())


def rivals(
    context: dpsql.Context, values: NDArray[np.float64], aggregate: str, bounds: tuple[float, float]
) -> tuple[Callable[[], float], Callable[[], float]]:
    """Return a call of dpsql and one of diffprivlib."""
    method = context.dp_sum if aggregate == "sum" else context.dp_avg
    peer = tools.sum if aggregate == "sum" else tools.mean
    lower, upper = bounds

    def ours() -> float:
        given = {"lower": lower, "upper": upper, "neighbours": "replace", "group_sizes": len(values)}
        return float(method("people", target="x", epsilon=1.0, **given).to_arrow()["value"][0].as_py())

    return ours, lambda: float(peer(values, epsilon=1.0, bounds=bounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--rows", type=int, default=1000)
    asked = parser.parse_args()
    values = np.random.default_rng(1).uniform(-2.0, 100.0, asked.rows)
    with TemporaryDirectory() as folder, dpsql.Context(Path(folder) / "people.duckdb") as context:
        context.connection.execute("CREATE TABLE people (x DOUBLE)")
        context.connection.executemany("INSERT INTO people VALUES (?)", [[value] for value in values.tolist()])
        context.dp_protect("people", epsilon=1e5)
        print(f"{asked.rows} rows, {asked.calls} calls: mean absolute error by noise")
        for aggregate, lower, upper in SETTINGS:
            errors = [spread(call, asked.calls) for call in rivals(context, values, aggregate, (lower, upper))]
            print(
                f"{aggregate} in [{lower:g}, {upper:g}]: dpsql {errors[0]:.4g}, diffprivlib {errors[1]:.4g}, "
                f"ratio {errors[0] / errors[1]:.2f}"
            )


if __name__ == "__main__":
    main()
