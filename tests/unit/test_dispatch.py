"""What is exact is the same number on every processor: NumPy, OpenBLAS and numba may choose any of their loops.

Doubles do differ: exponentials and logarithms by NumPy's path, products of matrices by OpenBLAS's. They only propose, or
decide within a radius that covers the difference. Statistics, scores and orders are integers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

ROOT = Path(__file__).resolve().parents[2]
PRESENT = " ".join(name for name in __cpu_dispatch__ if __cpu_features__.get(name))

# Seeded by integers alone: NumPy's normal variables use logarithms, which differ in their last bits.
PROGRAM = """
import hashlib, json, sys
from fractions import Fraction
import numpy as np
from dpsql.kernels import gram as gram_kernels
from dpsql.kernels import kendall
from dpsql.kernels.ball_least_squares import BallLeastSquares
from dpsql.kernels.fixed_point import share
from dpsql.kernels.gram import gram_products
from dpsql.kernels.kendall import RankedTable
from dpsql.kernels.logistic import SignedRows
from dpsql.mechanisms.ranking import Ranking
from dpsql.noise.race import integer_scores
from dpsql.contract.fold import Batch
from dpsql.statistics.presence import FeatureCounts

def digest(values):
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()

rng = np.random.default_rng(5)
S = 1 << 20
rows = rng.integers(-S, S + 1, (4096, 12)).astype(np.float64)
out = {}
gram = gram_products(rows.copy())
out["gram"] = digest(gram)
assert gram[0][:3].tolist() == [sum(int(a) * int(b) for a, b in zip(rows[:, 0], rows[:, j])) for j in range(3)]
target = rows[:, -1]
out["xty"] = digest(np.rint(target @ rows[:, :-1]))
if "compiled" in sys.argv:
    for kernels in (kendall.compiled_kernels, gram_kernels.compiled_kernels):
        kernels.start().join()
        assert kernels.kernels is not None
else:
    kendall.compiled_kernels = gram_kernels.compiled_kernels = lambda work: None
values = rng.integers(-40, 40, (900, 6)) * np.array([1.0, 0.5, -0.0, 1e300, 1e-300, 3.0])
values[rng.random(values.shape) < 0.05] = np.nan
values[:, 5] = rng.random(900)
blocks = rng.integers(0, 7, 900)
for name, given in (("kendall", None), ("kendall in blocks", blocks)):
    out[name] = [digest(part) for part in RankedTable(list(values.T), blocks=given).counts(5, range(5))]
clipped = rows.copy()
gram_kernels.clip_rows(clipped, 2 * S)
out["clipped"] = digest(clipped)
counts, present = FeatureCounts(30, 5, denominator=1 << 20), rng.integers(0, 2, (30, 5000)).astype(np.float64)
counts.add(rng.integers(-1, 2, 5000).astype(np.float64), present, Batch())
out["feature counts"] = counts.counts.tolist()
problem = BallLeastSquares(gram[:-1, :-1], gram[:-1, -1], int(gram[-1, -1]), radius=Fraction(1), ridge=Fraction(1, 100))
out["scores"] = problem.scores([[0, 1, 2], [3, 4, 5], [2, 7, 9], [0, 5, 10]]).tolist()
scores = integer_scores(rng.integers(0, 3, 3000))
ranking = Ranking(scores, 5)
ranking.blocks(Fraction(1, 10**9), 40.0)
out["order"] = digest(np.array([ranking._rest[ranking._locate(place)[1]] for place in range(1, 200)]))
doubles = rng.random(1000) * 60 - 30
out["doubled"] = [digest(part) for part in share((doubles, doubles * 2.0**-55))]
signed = np.trunc(rows / 4)
store = SignedRows(12)
store.add(signed)
fine = store.fine_gradient([int(value) << 60 for value in rng.integers(-(2**36), 2**36, 12)], 1e-6, np.zeros(12))
out["fine gradient"] = digest(fine.value)
print(json.dumps(out))
"""
SETTINGS = {
    "the least of NumPy": {"NPY_DISABLE_CPU_FEATURES": PRESENT} if PRESENT else {},
    "OpenBLAS for Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "OpenBLAS for Prescott": {"OPENBLAS_CORETYPE": "Prescott"},
}
COMPILED = {
    "numba": {},
    "numba for any processor": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
}


def exact(setting: dict[str, str], *words: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **setting},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def here() -> dict[str, object]:
    return exact({})


@pytest.mark.long
@pytest.mark.parametrize("setting", SETTINGS)
def test_what_is_exact_is_the_same_on_every_path(here: dict[str, object], setting: str) -> None:
    assert exact(SETTINGS[setting]) == here


@pytest.mark.slow
@pytest.mark.parametrize("setting", COMPILED)
def test_compiled_kernels_are_the_same_on_every_path(
    here: dict[str, object], setting: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nothing is contracted or reordered in numba's kernels but sums of integers that doubles hold exactly."""
    cache = {"NUMBA_CACHE_DIR": str(tmp_path_factory.mktemp("numba"))}
    assert exact({**COMPILED[setting], **cache}, "compiled") == here
