"""Two groups' means: dp_compare beside Welch's test without privacy, and a difference of diffprivlib's private means.

For each size it draws samples of two normal populations within [0, 100] (standard deviation 10), whose means differ by
0 or by 2, and says how often each method tells a difference, and how far its difference is off.

Run ``python benchmarks/compare.py [draws]``; diffprivlib is left out where it is not installed. It has no intervals, so
that only its error is shown; bounds are given to both, and diffprivlib's numbers of rows are public.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.stats import ttest_ind

import dpsql

try:
    from diffprivlib.tools import mean as private_mean
except ImportError:
    private_mean = None

BOUNDS = (0.0, 100.0)
CALL = "FROM dp_compare('t', target := 'x', groups := 'g', keys := [0, 1], lower := 0, upper := 100, epsilon := {})"


def sample(rng: np.random.Generator, rows: int, difference: float) -> tuple[Any, Any]:
    """Return the values of two groups."""
    first = np.clip(rng.normal(50 + difference, 10, rows), *BOUNDS)
    return first, np.clip(rng.normal(50, 10, rows), *BOUNDS)


def main(draws: int) -> None:
    """Print a table."""
    rng = np.random.default_rng(1)
    names = ("rows per group", "epsilon", "true difference", "told: Welch", "told: dp_compare", "error: dpsql")
    print(f"| {' | '.join((*names, 'error: diffprivlib'))} |\n|{'---|' * 7}")
    with dpsql.connect() as connection:
        for rows in (50, 200, 1000, 10_000):
            for epsilon in (0.5, 1.0):
                for true in (0.0, 2.0):
                    welch = told = 0
                    errors, others = [], []
                    for _ in range(draws):
                        first, second = sample(rng, rows, true)
                        exact = first.mean() - second.mean()
                        welch += ttest_ind(first, second, equal_var=False).pvalue < 0.05
                        made = pa.table({"x": np.r_[first, second], "g": np.repeat([0, 1], rows)})
                        connection.register("made", made)
                        connection.execute("CREATE OR REPLACE TABLE t AS FROM made")
                        row = connection.execute(CALL.format(epsilon)).fetchall()[0]
                        told += row[-1] == "differs"
                        if row[2] is not None:
                            errors.append(row[2] - exact)
                        if private_mean is not None:
                            means = [private_mean(part, epsilon=epsilon, bounds=BOUNDS) for part in (first, second)]
                            others.append(means[0] - means[1] - exact)
                    other = f"{np.std(others):.3f}" if others else "not run"
                    shown = f"{welch / draws:.2f} | {told / draws:.2f} | {np.std(errors):.3f} | {other}"
                    print(f"| {rows:,} | {epsilon} | {true} | {shown} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
