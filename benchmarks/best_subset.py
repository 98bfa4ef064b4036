"""The R best subsets with a certificate, beside peers on the same data (kernel 4).

    python benchmarks/best_subset.py designs   # the goals, compiled and in NumPy
    python benchmarks/best_subset.py hard      # weak signal, collinear and repeated columns, few rows
    python benchmarks/best_subset.py leaps     # R's leaps (regsubsets), if Rscript and the package are there
    python benchmarks/best_subset.py mip       # HiGHS (scipy.optimize.milp): outer approximation, one cut per subset
    python benchmarks/best_subset.py draws     # whole draws of the law, over sizes, signals and epsilons
    python benchmarks/best_subset.py steps     # true columns found and CPU, all subsets at once and in steps
    python benchmarks/best_subset.py scores    # canonical scores and dual values, per subset
    python benchmarks/best_subset.py start     # first call in a new process

Options: --repeats N (medians), --mip-subsets N. Every time is that of the whole call from the Gram statistics: seeds,
bounds, search, canonical scores. Designs: rows N(0, Sigma), Sigma_ij = rho^|i-j|, coefficients 1/sqrt(s) on columns
1, 3, 5, ..., noise for a signal-to-noise ratio, all clipped at 0.5 and scaled to [-1, 1]; r = 1.1, no ridge.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np

from dpsql.contract.measurement import draw_once
from dpsql.functions.best_subset import BestSubsetPlan, draw_subset
from dpsql.kernels import best_subsets as kernel
from dpsql.kernels import subset_floors as floors
from dpsql.kernels.ball_least_squares import SCORE_UNIT, BallLeastSquares
from dpsql.kernels.best_subsets import BestSubsets, best_subsets
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.gram import gram_products

RADIUS = Fraction(11, 10)
# columns, size, subsets, goal in seconds
GOALS = ((100, 5, 476, 0.05), (250, 5, 1226, 0.2), (250, 5, 10_000, 1.0), (250, 7, 1702, 2.0), (1000, 5, 4976, 3.0))
SIGNALS = ((900, 0.1, 5.0), (900, 0.5, 2.0), (5000, 0.1, 5.0), (5000, 0.5, 2.0))


def median(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def design(columns: int, size: int, rows: int, correlation: float, ratio: float) -> np.ndarray:
    """Return quantised rows, the target last."""
    draw = np.random.default_rng(0)
    values = draw.standard_normal((rows, columns))
    for j in range(1, columns):
        values[:, j] = correlation * values[:, j - 1] + math.sqrt(1 - correlation**2) * values[:, j]
    signal = values[:, 1 : 2 * size : 2].sum(axis=1) / math.sqrt(size)
    target = signal + draw.standard_normal(rows) * math.sqrt(signal.var() / ratio)
    return quantised(np.column_stack((values, target)) * 2)


def quantised(values: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(values, -1, 1) * FIXED_POINT_ONE)


def solve(rows: np.ndarray, size: int, count: int, **options: object) -> BestSubsets:
    products = gram_products(rows)
    problem = (products[:-1, :-1], products[:-1, -1], int(products[-1, -1]))
    return best_subsets(*problem, size=size, count=count, **{"radius": RADIUS, "ridge": Fraction(0), **options})


def timed(rows: np.ndarray, size: int, count: int, repeats: int, **options: object) -> tuple[float, BestSubsets]:
    """Return (median seconds without the Gram matrix, result)."""
    found = solve(rows, size, count, **options)
    whole = median(lambda: solve(rows, size, count, **options), repeats)
    return whole - median(lambda: gram_products(rows), repeats), found


def designs(options: argparse.Namespace) -> None:
    kernel.warm_up()
    compiled = kernel.compiled_kernels
    print("   p  s      R     n  rho  snr    compiled       NumPy       goal    nodes")
    for columns, size, count, goal in GOALS:
        for rows, correlation, ratio in SIGNALS:
            table = design(columns, size, rows, correlation, ratio)
            fast, found = timed(table, size, count, options.repeats)
            kernel.compiled_kernels = lambda work: None
            slow, _ = timed(table, size, count, options.repeats)
            kernel.compiled_kernels = compiled
            assert found.exhausted
            assert found.lower_bound >= found.scores[-1]
            print(
                f"{columns:4d} {size:2d} {count:6d} {rows:5d} {correlation:4.1f} {ratio:4.1f} {fast * 1e3:8.1f} ms "
                f"{slow * 1e3:8.1f} ms {goal * 1e3:7.0f} ms {found.nodes:8d}",
                flush=True,
            )


def draws(options: argparse.Namespace) -> None:
    """Time whole draws of dp_best_subset's law, from the Gram matrix: search, strata where needed, rejections."""
    kernel.warm_up()
    print("    n     p  s  snr  eps   seconds, cut at 10")
    for rows, columns, size, ratio in itertools.product((500, 1000, 2000), (250, 1000), (5, 7), (0.5, 1.0, 2.0, 5.0)):
        products = gram_products(design(columns, size, rows, 0.1, ratio))
        for epsilon in (0.3, 1, 3):
            given = {"target": "y", "features": "x", "n_features": columns, "k": size, "epsilon": epsilon}
            bounds = {"lower": -1, "upper": 1, "target_lower": -1, "target_upper": 1}
            plan = BestSubsetPlan.from_arguments("t", {**given, **bounds})
            times = [_drawn(plan, products) for _ in range(options.repeats)]
            shown = " ".join(f"{seconds:6.2f}" for seconds in times)
            print(f"{rows:5d} {columns:5d} {size:2d} {ratio:4.1f} {epsilon:4.1f}   {shown}", flush=True)


def steps(options: argparse.Namespace) -> None:
    """Draw by both laws on the same tables: how many of the true columns are found, and the processor's time."""
    kernel.warm_up()
    floors.warm_up()
    print("    n     p  s  snr  eps   exact: found, CPU s    steps: found, CPU s")
    for (rows, columns, ratio), epsilon in itertools.product(
        ((900, 250, 1.0), (2000, 250, 1.0), (5000, 250, 1.0), (5000, 1000, 1.0), (5000, 2500, 1.0)), (1, 3, 10)
    ):
        products = gram_products(design(columns, 5, rows, 0.1, ratio))
        shown = []
        for method in ("exact", "steps"):
            given = {"target": "y", "features": "x", "n_features": columns, "k": 5, "epsilon": epsilon}
            bounds = {"lower": -1, "upper": 1, "target_lower": -1, "target_upper": 1, "method": method}
            plan = BestSubsetPlan.from_arguments("t", {**given, **bounds})
            start, found = time.process_time(), []
            for _ in range(options.repeats):
                if time.process_time() < start + 60:
                    found.append(len({1, 3, 5, 7, 9}.intersection(draw_once(draw_subset, plan, products, _quietly))))
            shown.append(f"{statistics.mean(found):8.2f} {(time.process_time() - start) / len(found):10.2f}")
        print(f"{rows:5d} {columns:5d}  5 {ratio:4.1f} {epsilon:4.1f}  {'    '.join(shown)}", flush=True)


def _quietly() -> None:
    """Do nothing: nobody waits."""


def _drawn(plan: BestSubsetPlan, products: np.ndarray) -> float:
    start = time.perf_counter()

    def stop_in_time() -> None:
        if time.perf_counter() - start > 10:
            raise TimeoutError

    with contextlib.suppress(TimeoutError):
        draw_once(draw_subset, plan, products, stop_in_time)
    return time.perf_counter() - start


def hard(options: argparse.Namespace) -> None:
    del options
    kernel.warm_up()
    draw = np.random.default_rng(5)
    groups = np.concatenate([np.eye(5)[draw.integers(0, 5, 2000)] for _ in range(50)], axis=1)
    factors = draw.normal(size=(900, 10)) @ draw.normal(size=(10, 250)) * 0.15 + draw.normal(size=(900, 250)) * 0.25
    half = design(125, 5, 900, 0.1, 5)
    near = half[:, :-1] + draw.normal(size=(900, 125)) * 0.02 * FIXED_POINT_ONE
    cases = {
        "p=250 s=5, snr 0.2": (design(250, 5, 900, 0.5, 0.2), 5, 1226),
        "p=250 s=5, rho 0.9": (design(250, 5, 900, 0.9, 2.0), 5, 1226),
        "p=250 s=5, 300 rows": (design(250, 5, 300, 0.5, 2.0), 5, 1226),
        "p=250 s=10": (design(250, 10, 900, 0.1, 5.0), 10, 2402),
        "p=1000 s=5, snr 0.5": (design(1000, 5, 900, 0.5, 0.5), 5, 4976),
        "p=1000 s=7, 5000 rows": (design(1000, 7, 5000, 0.5, 2.0), 7, 6953),
        "50 groups of 5 levels, one-hot": (
            quantised(np.column_stack((groups, groups @ draw.normal(0, 0.15, 250) + 0.2 * draw.normal(size=2000)))),
            5,
            1226,
        ),
        "10 factors, p=250": (
            quantised(np.column_stack((factors, factors[:, 1:10:2].sum(axis=1) + draw.normal(size=900) * 0.25))),
            5,
            1226,
        ),
        "125 columns twice": (np.column_stack((half[:, :-1], half)), 5, 1226),
        "125 columns and nearly the same": (
            np.rint(np.column_stack((np.clip(near, -FIXED_POINT_ONE, FIXED_POINT_ONE), half))),
            5,
            1226,
        ),
    }
    for name, (rows, size, count) in cases.items():
        seconds, found = timed(rows, size, count, 1)
        print(
            f"{name:34s} R={count:5d} {seconds:8.3f} s {found.nodes:10d} nodes, exhausted: {found.exhausted}",
            flush=True,
        )


def leaps(options: argparse.Namespace) -> None:
    rscript = shutil.which("Rscript")
    if rscript is None or subprocess.run([rscript, "-e", "library(leaps)"], capture_output=True).returncode:
        print("skipped: Rscript with the package leaps is not installed")
        return
    kernel.warm_up()
    for columns in (60, 80, 100):
        size, count = 5, (columns - 5) * 5 + 1
        rows = design(columns, size, 900, 0.5, 2.0)
        ours, found = timed(rows, size, count, options.repeats, radius=Fraction(100))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.csv"
            np.savetxt(path, rows / FIXED_POINT_ONE, delimiter=",", fmt="%.17g")
            code = f"""
                library(leaps); d <- as.matrix(read.csv("{path}", header=FALSE)); p <- ncol(d) - 1
                s <- system.time(r <- regsubsets(d[, 1:p], d[, p + 1], nbest={count}, nvmax={size}, intercept=FALSE,
                                                 really.big=TRUE, method="exhaustive"))
                v <- sort(r$ress[{size}, 1:{count}]); cat(sprintf("%.15g", c(s[["elapsed"]], v[1], v[{count}])))
            """
            done = subprocess.run([rscript, "-e", code], capture_output=True, text=True, check=True)
        theirs, first, last = map(float, done.stdout.split()[-3:])
        best = found.scores * float(SCORE_UNIT)
        print(
            f"p={columns} s={size} R={count}: {ours * 1e3:.1f} ms, leaps {theirs * 1e3:.0f} ms (all sizes to {size}), "
            f"{theirs / ours:.0f} times; values {best[0] - first:+.1e} and {best[-1] - last:+.1e} apart",
            flush=True,
        )


def mip(options: argparse.Namespace) -> None:
    """Outer approximation of the ridge score, convex in the indicators, and a cut that excludes each subset found."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    kernel.warm_up()
    columns, size, ridge, count = 30, 3, Fraction(10), options.mip_subsets
    rows = design(columns, size, 900, 0.5, 2.0)
    ours, found = timed(rows, size, count, options.repeats, ridge=ridge, radius=Fraction(100))
    products = gram_products(rows) / FIXED_POINT_ONE**2
    gram, cross, total = products[:-1, :-1], products[:-1, -1], products[-1, -1]
    cuts: list[np.ndarray] = []
    levels: list[float] = []
    taken: list[float] = []
    start = time.perf_counter()
    solved = 0
    while len(taken) < count:
        matrix = [np.append(np.ones(columns), 0.0), *cuts]
        result = milp(
            np.append(np.zeros(columns), 1.0),
            constraints=LinearConstraint(np.array(matrix), [size, *levels], [size, *([np.inf] * len(levels))]),
            integrality=np.append(np.ones(columns), 0),
            bounds=Bounds(np.zeros(columns + 1), np.append(np.ones(columns), np.inf)),
            options={"mip_rel_gap": 1e-9},
        )
        solved += 1
        chosen = np.flatnonzero(result.x[:columns] > 0.5)
        block = gram[np.ix_(chosen, chosen)] + float(ridge) * np.eye(size)
        solution = np.linalg.solve(block, cross[chosen])
        score = total - cross[chosen] @ solution
        residuals = cross - gram[:, chosen] @ solution
        slope = -(residuals**2) / float(ridge)
        if result.fun >= score - 1e-6 * max(1.0, score):
            taken.append(score)
            cuts.append(np.append(-np.isin(np.arange(columns), chosen).astype(float), 0.0))
            levels.append(-(size - 1))
        else:
            cuts.append(np.append(-slope, 1.0))
            levels.append(score - slope[chosen].sum())
    theirs = time.perf_counter() - start
    apart = np.abs(np.array(taken) - found.scores * float(SCORE_UNIT)).max()
    print(
        f"p={columns} s={size} R={count} ridge {ridge}: {ours * 1e3:.1f} ms, HiGHS {theirs:.1f} s, {solved} problems, "
        f"{theirs / ours:.0f} times; values at most {apart:.1e} apart"
    )


def scores(options: argparse.Namespace) -> None:
    draw = np.random.default_rng(1)
    products = gram_products(design(250, 5, 900, 0.5, 2.0)).astype(object)
    subsets = np.array([draw.choice(250, 5, replace=False) for _ in range(10_000)])
    for times in (1, 10**6, 10**9):
        whole = products * times
        for radius in (Fraction(1, 10), RADIUS):
            problem = BallLeastSquares(whole[:-1, :-1], whole[:-1, -1], whole[-1, -1], radius=radius, ridge=Fraction(0))
            exact = median(lambda problem=problem: problem.scores(subsets), options.repeats)
            dual = median(lambda problem=problem: problem.dual(subsets), options.repeats)
            print(
                f"{900 * times:.0e} rows, r={float(radius)}: {exact / len(subsets) * 1e6:6.1f} us for a certified "
                f"score, {dual / len(subsets) * 1e6:.2f} us for a dual value",
                flush=True,
            )


def start(options: argparse.Namespace) -> None:
    code = """
import time, sys, numpy as np
from fractions import Fraction
began = time.perf_counter()
from dpsql.kernels.best_subsets import best_subsets
loaded = time.perf_counter()
g = np.load(sys.argv[1])
size = int(sys.argv[2])
best_subsets(g[:-1, :-1], g[:-1, -1], int(g[-1, -1]), size=size, count=476, radius=Fraction(11, 10), ridge=Fraction(0))
print(loaded - began, time.perf_counter() - loaded)
"""
    for columns, size in ((30, 3), (60, 5), (100, 5)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "gram.npy"
            np.save(path, gram_products(design(columns, size, 900, 0.5, 2.0)))
            runs = [
                subprocess.run(
                    [sys.executable, "-c", code, path, str(size)], capture_output=True, text=True, check=True
                )
                for _ in range(options.repeats)
            ]
        times = np.median([[float(value) for value in run.stdout.split()] for run in runs], axis=0) * 1e3
        print(f"p={columns} s={size} R=476: import {times[0]:.0f} ms, first call {times[1]:.0f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choices = {work.__name__: work for work in (designs, draws, hard, leaps, mip, scores, start, steps)}
    parser.add_argument("what", choices=choices)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--mip-subsets", type=int, default=20)
    options = parser.parse_args()
    choices[options.what](options)


if __name__ == "__main__":
    main()
