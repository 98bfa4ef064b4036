"""Votes of two-stage selection: our Lasso of one block beside celer and scikit-learn, whole calls, a first call.

    python benchmarks/two_stage.py [fits] [calls] [start]

Peers that are not installed are left out (celer and skglm are in no extra: celer brings seaborn, xarray and more).
Peers get columns that are centred and scaled already, in the order they like best, and their own stopping rules
(celer 1e-4 and 1e-8, scikit-learn 1e-4, skglm 1e-4); ours stops at the minimum. "block" adds what a block costs
besides: copying its rows, sorting, centring and scaling them. BLAS is held to one thread throughout.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from dpsql.kernels.lasso_votes import lasso, lasso_votes

ROUNDS = 7
# (rows, columns, share of the smallest penalty without any vote)
FITS = (
    (100, 20_000, 0.5),
    (100, 20_000, 0.2),
    (500, 20_000, 0.5),
    (500, 20_000, 0.2),
    (100, 2_000, 0.2),
    (50, 100, 0.2),
    (1000, 50, 0.2),
    (10, 100, 0.2),
)
DESIGNS = ("strong", "weak", "correlated", "binary")

Doubles = NDArray[np.float64]


def design(kind: str, rows: int, columns: int) -> tuple[Doubles, Doubles]:
    generator = np.random.default_rng([rows, columns, DESIGNS.index(kind)])
    x = generator.normal(size=(rows, columns))
    weights, noise = np.zeros(columns), 1.0
    weights[:10] = 1.0
    if kind == "weak":
        weights[:40], noise = 0.3, 3.0
    elif kind == "correlated":
        for j in range(1, columns):
            x[:, j] = 0.9 * x[:, j - 1] + np.sqrt(0.19) * x[:, j]
        weights[:], noise = 0.0, 2.0
        weights[: min(columns, 200) : 10] = 1.0
    elif kind == "binary":
        x = (x > 1.0).astype(np.float64)
    return x, x @ weights + noise * generator.normal(size=rows)


def standardised(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles]:
    deviation = x.std(axis=0)
    return (x - x.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0), (y - y.mean()) / y.std()


def peers(x: Doubles, y: Doubles, penalty: float) -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {}
    by_column = np.asfortranarray(x)
    for name, module, arguments in (
        ("celer", "celer", {"tol": 1e-4}),
        ("celer 1e-8", "celer", {"tol": 1e-8}),
        ("sklearn", "sklearn.linear_model", {"tol": 1e-4, "max_iter": 10_000}),
        ("skglm", "skglm", {"tol": 1e-4}),
    ):
        try:
            maker = __import__(module, fromlist=["Lasso"]).Lasso
        except ImportError:
            continue
        found[name] = partial(maker(alpha=penalty, fit_intercept=False, **arguments).fit, by_column, y)
    return found


def interleaved(contenders: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return median milliseconds, the contenders taking turns."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(ROUNDS + 1):
        for name, run in contenders.items():
            begin = time.perf_counter()
            run()
            if turn:  # the first turn may compile
                times[name].append(1000 * (time.perf_counter() - begin))
    return {name: statistics.median(values) for name, values in times.items()}


def fits() -> bool:
    good = True
    for kind in DESIGNS:
        for rows, columns, share in FITS:
            raw, target = design(kind, rows, columns)
            x, y = standardised(raw, target)
            penalty = share * float(np.abs(y @ x).max()) / rows
            lift = np.random.default_rng(0).random(columns)
            contenders = {
                "ours": partial(lasso, np.ascontiguousarray(x), y, rows * penalty, lift),
                "block": partial(
                    lasso_votes, raw, target, np.zeros(rows, dtype=np.int64), blocks=1, k=5, penalty=penalty, threads=0
                ),
            }
            times = interleaved(contenders | peers(x, y, penalty))
            ours = times.pop("ours")
            said = "".join(f"   {name} {value:7.2f} ({value / ours:5.1f} ×)" for name, value in times.items())
            print(f"{kind:10} {rows:>5} × {columns:<6} {share:.1f}   ours {ours:7.2f} ms{said}", flush=True)
            if columns == 20_000 and "celer" in times:
                good &= times["celer"] >= ours
    return good


def calls() -> bool:
    generator = np.random.default_rng(0)
    for rows, columns, blocks in ((2000, 20_000, 20), (5000, 20_000, 10), (10_000, 100, 1000), (100_000, 50, 300)):
        x, y = generator.normal(size=(rows, columns)), generator.normal(size=rows)
        y += x[:, :10].sum(axis=1)
        block = generator.integers(0, blocks, rows)
        run = partial(lasso_votes, x, y, block, blocks=blocks, k=5, penalty=0.2)
        times = interleaved({f"{threads} threads": partial(run, threads=threads) for threads in (0, 1, 2)})
        said = "   ".join(f"{name} {value:8.1f} ms" for name, value in times.items())
        print(f"{rows:>6} × {columns:<6} in {blocks:>4} blocks   {said}", flush=True)
    print(f"most memory so far: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
    return True


def start() -> bool:
    """Time a first call on small data in a new process, beside the import that the peers begin with."""
    ours = (
        "import numpy as np; from dpsql.kernels.lasso_votes import lasso_votes; g = np.random.default_rng(0);"
        "lasso_votes(g.normal(size=(1000, 50)), g.normal(size=1000), np.arange(1000) % 20, blocks=20, k=3, penalty=.1)"
    )
    contenders = {
        "NumPy": "import numpy",
        "our first call": ours,
        "import sklearn.linear_model": "import sklearn.linear_model",
        "import celer": "import celer",
    }
    runs = {
        name: partial(subprocess.run, [sys.executable, "-c", code], check=True)
        for name, code in contenders.items()
        if subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0
    }
    times = interleaved(runs)
    for name, value in times.items():
        print(f"new process, {name:30} {value:7.0f} ms")
    return times["our first call"] < 1000


def main() -> int:
    warnings.simplefilter("ignore")
    parts = {"fits": fits, "calls": calls, "start": start}
    met = [parts[name]() for name in sys.argv[1:] or parts]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
