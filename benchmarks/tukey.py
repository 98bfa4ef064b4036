"""Models of blocks beside scikit-learn and LAPACK block by block, and the Tukey mechanism on its own.

    python benchmarks/tukey.py [models] [mechanism]

Ours streams batches of 2048 rows, twice, and knows no bounds; peers get the rows of a block in one piece, which
costs them a copy that is timed. Each contender is timed with BLAS held to one thread; "default" leaves it as it is.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from racing import race
from threadpoolctl import threadpool_limits

from dpsql.kernels.block_gram import BlockGram, BlockRanges, warm_up
from dpsql.mechanisms.tukey import models_needed, tukey

ROWS, FEATURES, BLOCKS = 500_000, 90, 1000
BATCH = 2048
ROUNDS = 3
SHARE = 20  # peers with default threads fit one block of so many: they may take minutes on a busy machine
GOAL = 8.0

Doubles = NDArray[np.float64]


def ours(values: Doubles, assigned: NDArray[np.int64], threads: int) -> Doubles:
    def fed(into: BlockRanges | BlockGram, first: int) -> None:
        for start in range(first * BATCH, len(values), threads * BATCH):
            into.add(assigned[start : start + BATCH], values[start : start + BATCH].T)

    ranges = [BlockRanges(BLOCKS, values.shape[1]) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(fed, ranges, range(threads)))
    for other in ranges[1:]:
        ranges[0].widen(*other.ends())
    grams = [BlockGram(*ranges[0].maps()) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(fed, grams, range(threads)))
    for more in grams[1:]:
        grams[0].add_products(more.products())
    return grams[0].models(threads=threads)


def block_by_block(values: Doubles, assigned: NDArray[np.int64], peer: str, blocks: int = BLOCKS) -> Doubles:
    from sklearn.linear_model import LinearRegression

    models = np.empty((blocks, values.shape[1]))
    order = np.argsort(assigned, kind="stable")
    starts = np.searchsorted(assigned[order], np.arange(BLOCKS + 1))
    for block in range(blocks):
        rows = values[order[starts[block] : starts[block + 1]]]
        if peer == "sklearn":
            model = LinearRegression().fit(rows[:, :-1], rows[:, -1])
            models[block] = np.append(model.intercept_, model.coef_)
        else:
            design = np.column_stack([np.ones(len(rows)), rows[:, :-1]])
            models[block] = np.linalg.lstsq(design, rows[:, -1], rcond=None)[0]
    return models


def models() -> bool:
    generator = np.random.default_rng(0)
    values = generator.normal(size=(ROWS, FEATURES + 1))
    values[:, -1] += values[:, :-1] @ generator.normal(size=FEATURES)
    assigned = generator.integers(0, BLOCKS, ROWS)
    warm_up()
    contenders: dict[str, Any] = {f"ours, {count} threads": partial(ours, values, assigned, count) for count in (1, 2)}
    peers = {peer: partial(block_by_block, values, assigned, peer) for peer in ("sklearn", "lstsq")}
    with threadpool_limits(1):
        times = race(contenders | peers, ROUNDS)
        gap = float(np.abs(ours(values, assigned, 2) - block_by_block(values, assigned, "lstsq")).max())
    few = {peer: partial(block_by_block, values, assigned, peer, BLOCKS // SHARE) for peer in peers}
    times |= {f"{name}, default": SHARE * seconds for name, seconds in race(few, 1).items()}
    print(f"{BLOCKS} models of {ROWS} × {FEATURES}; largest difference {gap:.1e}")
    for name, seconds in times.items():
        ratios = "   ".join(f"{seconds / times[own]:6.1f} × {own}" for own in contenders)
        print(f"  {name:18} {seconds:7.3f} s   {ratios}", flush=True)
    return times["sklearn"] >= GOAL * times["ours, 2 threads"]


def mechanism() -> bool:
    generator = np.random.default_rng(1)
    half, delta = Fraction("0.5493"), Fraction(1, 10**5)
    slowest = 0.0
    for width in (2, 6, 12, 31, 101):
        count = models_needed(width, 2 * half, delta)
        table = generator.normal(size=(count, width))
        start = time.perf_counter()
        passed = sum(tukey(table, epsilon_test=half, epsilon_draw=half, delta=delta) is not None for _ in range(20))
        seconds = (time.perf_counter() - start) / 20
        slowest = max(slowest, seconds)
        print(f"  p = {width:3}, m = {count:5}   {1000 * seconds:8.2f} ms, {passed} of 20 passed", flush=True)
    return slowest < 1.0


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["models", "mechanism"]
    good = [{"models": models, "mechanism": mechanism}[name]() for name in chosen]
    sys.exit(0 if all(good) else 1)
