"""Boosted AdaSSP beside the same algorithm in plain NumPy, in one run on the same rows (kernel 6).

    python benchmarks/ada_ssp.py                 # 500,000 x 90, 50 rounds
    python benchmarks/ada_ssp.py --rounds 1

Options: --rows N, --columns N, --rounds N, --repeats N. Medians; the contenders take turns. One BLAS thread each; ours
runs with one thread and with two of its own. Both go from rows in memory to coefficients: Gram matrix, eigenvalue,
noise and rounds. The rows are clipped and kept beforehand.
"""

from __future__ import annotations

import argparse
from fractions import Fraction

import numpy as np
from racing import race
from threadpoolctl import threadpool_limits

from dpsql.contract.gaussian_profile import gaussian_mu
from dpsql.kernels import gram as gram_kernels
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.gram import ClippedRows, clip_rows, gram_products
from dpsql.mechanisms.ada_ssp import boosted_ada_ssp
from dpsql.statistics.regression import largest_norm

BATCH = 1 << 16


def plain(x: np.ndarray, y: np.ndarray, rounds: int, mu: float, radius: float) -> np.ndarray:
    """Boosted AdaSSP as one writes it in NumPy, with inexact sums and inexact noise."""
    generator = np.random.default_rng()
    width = x.shape[1]
    sigma = np.sqrt(rounds + 2) / mu
    noise = np.triu(generator.normal(0, sigma * radius**2, (width, width)))
    gram = x.T @ x
    least = max(0.0, np.linalg.eigvalsh(gram)[0] + sigma * radius**2 * (generator.normal() - 1.96))
    gram += noise + np.triu(noise, 1).T
    ridge = max(0.0, np.sqrt(width) * sigma * radius**2 * 1.96 - least)
    inverse = np.linalg.inv(gram + ridge * np.eye(width))
    theta = np.zeros(width)
    for _ in range(rounds):
        residual = np.clip(y - x @ theta, -1.0, 1.0)
        theta += inverse @ (x.T @ residual + generator.normal(0, sigma * radius, width))
    return theta


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--columns", type=int, default=90)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    generator = np.random.default_rng(1)
    features = np.rint(generator.uniform(-1, 1, (options.rows, options.columns - 1)) * FIXED_POINT_ONE)
    clip_rows(features, 4 * FIXED_POINT_ONE)
    rows = np.column_stack((np.full(options.rows, float(FIXED_POINT_ONE)), features))
    del features
    true = generator.normal(0, 0.1, options.columns)
    target = np.rint(rows @ true + generator.normal(0, 0.2, options.rows) * FIXED_POINT_ONE)
    target = np.clip(target, -FIXED_POINT_ONE, FIXED_POINT_ONE)
    x, y = rows / FIXED_POINT_ONE, target / FIXED_POINT_ONE
    radius, mu = largest_norm(options.columns - 1, 4 * FIXED_POINT_ONE), gaussian_mu(Fraction(1), Fraction("1e-6"))
    gram_kernels.compiled_kernels.start().join()
    kept = {}
    for threads in (1, 2):
        kept[threads] = ClippedRows(options.columns, threads=threads)
        for start in range(0, options.rows, BATCH):
            kept[threads].add(rows[start : start + BATCH], target[start : start + BATCH])

    def ours(threads: int) -> np.ndarray:
        return boosted_ada_ssp(
            kept[threads],
            gram_products(rows),
            radius=radius,
            mu=mu,
            neighbours="add_remove",
            rounds=options.rounds,
        ).coefficients

    contenders = {
        "plain NumPy": lambda: plain(x, y, options.rounds, float(mu), radius / FIXED_POINT_ONE),
        "dpsql, one thread": lambda: ours(1),
        "dpsql, two threads": lambda: ours(2),
    }
    with threadpool_limits(1):
        for name, work in contenders.items():
            print(f"  {name:20s} distance to the true coefficients {np.abs(work() - true).max():.4f}")
        medians = race(contenders, options.repeats)
    print(f"{options.rows:,} x {options.columns}, {options.rounds} rounds")
    for name, median in medians.items():
        print(f"  {name:20s} {median:8.3f} s   {medians['plain NumPy'] / median:5.2f} x as fast as plain NumPy")


if __name__ == "__main__":
    main()
