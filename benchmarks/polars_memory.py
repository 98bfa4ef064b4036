"""How much memory private releases from a Polars frame take beside the frame itself.

    python benchmarks/polars_memory.py [--rows 12000000]

The frame has 21 columns of doubles: 12 million rows are 2 GB. A small frame runs first, so that what is loaded once is
not counted. The peak is that of the process, as the system reports it.
"""

from __future__ import annotations

import argparse
import resource

import numpy as np
import polars as pl

import dpsql.polars

FEATURES = 20


def peak() -> float:
    """Return the largest resident size of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def releases(frame: pl.DataFrame) -> None:
    """Select, fit with private bounds (three passes), and count the rows of a lazy frame."""
    given = {"target": "y", "target_lower": 0, "target_upper": 1, "epsilon": 1}
    frame.dp.sis(k=3, lower=0, upper=1, **given)
    frame.dp.linear_regression(delta=1e-6, target="y", epsilon=1)
    frame.lazy().dp.of("lazy").dp.count(epsilon=1)


def main() -> None:
    """Print the size of the frame, and by how much the process grew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=12_000_000)
    rows = parser.parse_args().rows
    dpsql.polars.use()
    names = [f"x{number}" for number in range(FEATURES)]
    small = pl.DataFrame({name: np.linspace(0, 1, 1000) for name in (*names, "y")})
    frame = pl.DataFrame({name: np.linspace(0, 1, rows) for name in (*names, "y")})
    releases(small.dp.of("small"))
    before = peak()
    releases(frame.dp.of("large"))
    print(f"frame {frame.estimated_size('mb'):.0f} MB, process grew by {peak() - before:.0f} MB")


if __name__ == "__main__":
    main()
