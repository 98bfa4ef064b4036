"""`dpsql.kernels.lasso_votes` against its optimality conditions, `dpsql.kernels.lasso_votes` against scikit-learn."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.errors import ParameterError
from dpsql.kernels import lasso_votes as module
from dpsql.kernels.gram import one_thread
from dpsql.kernels.lasso_votes import PERTURBATION, lasso, lasso_votes
from dpsql.testing.bits import SeededBits
from support.cases import cases

Doubles = NDArray[np.float64]


def design(kind: str, rows: int, columns: int, seed: int) -> tuple[Doubles, Doubles]:
    """Features and target; most kinds have many columns that depend on one another."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, columns))
    if kind == "binary":
        x = generator.integers(0, 2, (rows, columns)).astype(float)
    elif kind == "one_hot":
        x = np.eye(columns)[generator.integers(0, columns, rows)]
    elif kind == "low_rank":
        x = generator.integers(-1, 2, (rows, 5)) @ generator.integers(-1, 2, (5, columns)).astype(float)
    elif kind == "nearly_low_rank":
        x = generator.normal(size=(rows, 3)) @ generator.normal(size=(3, columns)) + 1e-7 * x
    elif kind == "copies":
        x = np.repeat(x[:, : -(-columns // 3)], 3, axis=1)[:, :columns] * generator.choice([-1, 1], columns)
    elif kind == "walk":
        x = np.cumsum(x, axis=1)
    y = x[:, : min(4, columns)].sum(axis=1) + 0.5 * generator.normal(size=rows)
    return x, y


KINDS = ("normal", "binary", "one_hot", "low_rank", "nearly_low_rank", "copies", "walk")


def duality_gap(x: Doubles, y: Doubles, penalty: float, where: NDArray[np.intp], values: Doubles) -> float:
    """Bound the distance from the minimum, by the dual point that the residual gives."""
    residual = y - x[:, where] @ values
    dual = residual * min(1.0, penalty / np.abs(residual @ x).max())
    primal = residual @ residual / 2 + penalty * np.abs(values).sum()
    return float(primal - (y @ y - (y - dual) @ (y - dual)) / 2)


@cases("kind", KINDS)
@cases("share", [0.9, 0.3, 0.05, 0.001])
def test_the_minimum_is_met(kind: str, share: float) -> None:
    for rows, columns, seed in ((30, 200, 1), (8, 40, 2), (200, 20, 3), (2, 5, 4)):
        x, y = design(kind, rows, columns, seed)
        x, y = x - x.mean(axis=0), y - y.mean()
        deviation = x.std(axis=0)
        x, y = x / np.where(deviation > 1e-12, deviation, np.inf), y / y.std()
        penalty = share * float(np.abs(y @ x).max())
        where, values = lasso(x, y, penalty, np.random.default_rng(seed).random(columns))
        assert duality_gap(x, y, penalty, where, values) <= 200 * PERTURBATION * (y @ y)
        assert len(set(where.tolist())) == len(where) <= min(rows, columns)
        assert (values != 0.0).all()


@cases("seed", [53, 150, 189, 239, 346, 388, 406, 434])
def test_nearly_dependent_columns_at_a_tiny_penalty(seed: int) -> None:
    """Cases where an inverse that was updated pivot by pivot is too far off to tell dependent columns."""
    generator = np.random.default_rng(seed)
    rows = int(generator.integers(10, 60))
    columns = int(generator.integers(rows, 4 * rows))
    x = np.cumsum(generator.normal(size=(rows, columns)), axis=1)
    y = x[:, 0] + generator.normal(size=rows)
    x, y = x - x.mean(axis=0), y - y.mean()
    x, y = np.ascontiguousarray(x / x.std(axis=0)), y / y.std()
    penalty = float(np.abs(y @ x).max()) * float(generator.choice([1e-4, 1e-5, 1e-6]))
    found = lasso(x, y, penalty, generator.random(columns))
    assert duality_gap(x, y, penalty, *found) <= 1e-5 * (y @ y)


def sklearn_vote(x: Doubles, y: Doubles, k: int, penalty: float, standardize: bool, intercept: bool) -> set[int]:
    from sklearn.linear_model import Lasso

    if standardize:
        deviation = x.std(axis=0)
        x, y = x / np.where(deviation > 0.0, deviation, np.inf), y / y.std()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Lasso(alpha=penalty, fit_intercept=intercept, tol=1e-12, max_iter=100_000)
        size = np.abs(model.fit(x, y).coef_)
    return {int(j) for j in np.argsort(-size)[:k] if size[j] > 1e-8}


@cases("standardize", [True, False], quick=1)
@cases("intercept", [True, False])
@cases("kind", ["normal", "walk"])
def test_votes_are_those_of_sklearn(standardize: bool, intercept: bool, kind: str) -> None:
    pytest.importorskip("sklearn", reason="the reference is scikit-learn's Lasso: pip install 'dpsql[test]'")
    cast = 0
    for seed, (rows, columns, k, penalty) in enumerate(
        itertools.product((24, 60, 200), (5, 40), (1, 3, 10), (0.02, 0.2, 0.6))
    ):
        x, y = design(kind, rows, columns, seed)
        x, y = x + 0.5, y + 2.0
        block = np.random.default_rng(seed).permutation(rows) % 3
        expected = np.zeros(columns, dtype=np.int64)
        for number in range(3):
            inside = block == number
            expected[list(sklearn_vote(x[inside], y[inside], k, penalty, standardize, intercept))] += 1
        options: dict[str, Any] = {"standardize": standardize, "intercept": intercept}
        votes = lasso_votes(x, y, block, blocks=3, k=k, penalty=penalty, **options)
        assert votes.tolist() == expected.tolist()
        cast += int(votes.sum())
    assert cast > 200


def test_the_sum_of_the_votes() -> None:
    """At most k per block, exactly k where all blocks have k nonzero coefficients, none from penalty 1 upward."""
    x, y = design("normal", 600, 50, 0)
    block = np.random.default_rng(0).integers(0, 10, 600)
    assert lasso_votes(x, y, block, blocks=10, k=7, penalty=0.01).sum() == 70
    few = lasso_votes(x, y, block, blocks=10, k=50, penalty=0.1)
    assert 40 <= few.sum() < 500
    assert few.max() == 10
    assert lasso_votes(x, y, block, blocks=10, k=7, penalty=1.0).sum() == 0
    assert lasso_votes(x, y, block, blocks=10, k=7, penalty=0.97).sum() == 0


def test_small_and_empty_blocks() -> None:
    x, y = design("normal", 40, 6, 1)
    block = np.array([0] * 20 + [3] * 17 + [4, -1, 9])  # block 1, 2 empty; 4 of one row; two rows in no block
    votes = lasso_votes(x, y, block, blocks=5, k=2, penalty=0.1)
    own = [
        lasso_votes(x[block == b], y[block == b], np.zeros((block == b).sum(), int), blocks=1, k=2, penalty=0.1)
        for b in (0, 3)
    ]
    assert votes.tolist() == sum(own).tolist()
    assert votes.sum() == 4
    assert lasso_votes(x[:0], y[:0], block[:0], blocks=3, k=1, penalty=0.1).tolist() == [0] * 6
    assert lasso_votes(x[:, :0], y, block, blocks=3, k=1, penalty=0.1).shape == (0,)
    two = lasso_votes(x[:2], y[:2], block[:2], blocks=1, k=6, penalty=0.1)
    assert two.sum() == 1  # two rows are one direction


def test_missing_values() -> None:
    """A missing feature value is the mean of the column's others in the block; a missing target takes the row out."""
    x, y = design("normal", 30, 8, 2)
    block = np.zeros(30, dtype=np.int64)
    holes = np.random.default_rng(2).random(x.shape) < 0.1
    for missing in (math.nan, math.inf, -math.inf):
        spoiled = np.where(holes, missing, x)
        mended = np.where(holes, np.nanmean(np.where(holes, math.nan, x), axis=0), x)
        for options in ({}, {"intercept": False}, {"standardize": False}):
            votes = [lasso_votes(each, y, block, blocks=1, k=3, penalty=0.05, **options) for each in (spoiled, mended)]
            assert votes[0].tolist() == votes[1].tolist()
        lost = np.where(np.arange(30) < 5, missing, y)
        votes = lasso_votes(x, lost, block, blocks=1, k=3, penalty=0.05)
        assert votes.tolist() == lasso_votes(x[5:], y[5:], block[5:], blocks=1, k=3, penalty=0.05).tolist()
    assert lasso_votes(np.full((30, 3), math.nan), y, block, blocks=1, k=3, penalty=0.05).sum() == 0
    assert lasso_votes(x, np.full(30, math.nan), block, blocks=1, k=3, penalty=0.05).sum() == 0


@cases("scale", [1e300, 1.7e308, 1e155, 1e-155, 1e-300, 5e-324 * 2**20])
def test_extreme_scales(scale: float) -> None:
    x, y = design("normal", 30, 8, 3)
    x, y = np.sign(x) * np.ceil(np.abs(x) * 64) / 256, np.clip(y, -6.0, 6.0) / 6.0  # below 1, and survives 2**-1050
    block = np.zeros(30, dtype=np.int64)
    plain = lasso_votes(x, y, block, blocks=1, k=3, penalty=0.1).tolist()
    mixed = x * np.where(np.arange(8) % 2, scale, 1.0)
    assert sum(plain) == 3
    for features, target in ((x * scale, y), (mixed, y), (x, y * scale), (x * scale, y * scale)):
        votes = lasso_votes(features, target, block, blocks=1, k=3, penalty=0.1)
        if scale > 1e-310 or target is y:
            assert votes.tolist() == plain
        for options in itertools.product((True, False), repeat=2):
            arguments = dict(zip(("standardize", "intercept"), options, strict=True))
            assert lasso_votes(features, target, block, blocks=1, k=3, penalty=0.1, **arguments).sum() <= 3


@cases("standardize", [True, False])
@cases("intercept", [True, False])
@cases("rows", [3, 50, 5000])
def test_constant_columns_get_no_vote(standardize: bool, intercept: bool, rows: int) -> None:
    generator = np.random.default_rng(rows)
    x = np.hstack([np.tile([0.0, 0.1, 1e300, -1e15 / 3, 5e-324], (rows, 1)), generator.normal(size=(rows, 1))])
    y = 3.0 + x[:, 5] + 0.1 * generator.normal(size=rows)
    block = np.zeros(rows, dtype=np.int64)
    options: dict[str, Any] = {"standardize": standardize, "intercept": intercept}
    votes = lasso_votes(x, y, block, blocks=1, k=6, penalty=1e-3, **options)
    assert votes[:5].tolist() == [0] * 5
    if standardize or intercept:
        assert lasso_votes(x, np.full(rows, 0.1), block, blocks=1, k=6, penalty=1e-3, **options).sum() == 0


def test_a_column_far_from_zero_keeps_its_digits() -> None:
    """Centred twice: 1e9 + small values vote as the small values do."""
    x, y = design("normal", 40, 6, 5)
    x = np.round(x * 2**10) / 2**10
    block = np.zeros(40, dtype=np.int64)
    far = lasso_votes(x + 2.0**30, y, block, blocks=1, k=3, penalty=0.1)
    assert far.tolist() == lasso_votes(x, y, block, blocks=1, k=3, penalty=0.1).tolist()


def chi_square(counts: NDArray[np.int64]) -> float:
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2).sum() / expected)


@pytest.mark.long
@pytest.mark.parametrize("case", ["copies", "scaled copies", "equal coefficients"])
def test_ties_are_broken_uniformly(case: str) -> None:
    """Chi square over the columns that tie; 36.0 is exceeded by chance with probability 1e-7 (3 degrees of freedom)."""
    blocks, generator = 3000, np.random.default_rng(11)
    if case == "equal coefficients":
        # Four orthogonal columns with the same coefficient, two places.
        hadamard = np.array([[1.0]])
        for _ in range(3):
            hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
        x, k, columns = hadamard[:, [1, 2, 4, 7]], 2, [0, 1, 2, 3]
        y = x.sum(axis=1)
    else:
        base = generator.normal(size=(8, 3))
        y = base[:, 0] + 0.1 * base[:, 1]
        factors = np.array([1.0, -1.0, 1.0, 1.0]) if case == "copies" else np.array([1.0, -4.0, 0.5, 2.0])
        x, k, columns = np.hstack([base[:, 1:], base[:, :1] * factors]), 1, [2, 3, 4, 5]
    features, target = np.tile(x, (blocks, 1)), np.tile(y, blocks)
    block = np.repeat(np.arange(blocks), 8)
    votes = lasso_votes(features, target, block, blocks=blocks, k=k, penalty=0.1, source=SeededBits(5))
    assert votes[columns].sum() == votes.sum() == k * blocks
    assert chi_square(votes[columns]) < 36.0
    assert chi_square(votes[columns] + np.array([300, 0, -300, 0])) > 36.0  # a bias of a few percent would show


@pytest.mark.long
def test_a_tie_of_unlike_columns_is_broken_uniformly() -> None:
    """Two equal coefficients, of a column that is correlated with a third one and of one that is not."""
    blocks = 3000
    signs = np.array([[1, 1], [1, -1]])
    hadamard = np.kron(np.kron(signs, signs), np.kron(signs, signs)).astype(float)
    x = np.stack([hadamard[:, 1], hadamard[:, 2], (hadamard[:, 1] + math.sqrt(3.0) * hadamard[:, 4]) / 2], axis=1)
    gram = x.T @ x / 16
    y = x @ (np.array([1.0, 1.0, 0.2]) + np.linalg.solve(gram, np.full(3, 0.1)))
    features, target, block = np.tile(x, (blocks, 1)), np.tile(y, blocks), np.repeat(np.arange(blocks), 16)
    votes = lasso_votes(
        features, target, block, blocks=blocks, k=1, penalty=0.1, standardize=False, source=SeededBits(6)
    )
    assert votes[0] + votes[1] == blocks
    assert chi_square(votes[:2]) < 29.0  # probability 1e-7, one degree of freedom


@pytest.mark.parametrize("binary", [False, True])
def test_what_is_fitted_does_not_depend_on_the_order_of_rows(binary: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit: a vote at the edge of rounding must not turn when rows of other blocks move."""
    fitted: list[bytes] = []

    def recorded(matrix: Doubles, target: Doubles, *arguments: Any) -> Any:
        fitted.append(matrix.tobytes() + target.tobytes() + repr(arguments[0]).encode())
        return lasso(matrix, target, *arguments)

    monkeypatch.setattr("dpsql.kernels.lasso_votes.lasso", recorded)
    x, y = design("normal", 60, 20, 10)
    x[::7, ::3] = math.nan
    x[:20] = x[20:40]
    y = (y > 0).astype(float) if binary else y
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(60)
        lasso_votes(x[order], y[order], np.zeros(60, dtype=np.int64), blocks=1, k=4, penalty=0.1)
    assert len(fitted) == 5
    assert len(set(fitted)) == 1


def test_order_type_and_threads_do_not_matter() -> None:
    """Bit for bit: the rows in another order, stored otherwise, by any number of threads, from the same words."""
    for kind in ("normal", "binary", "low_rank"):
        x, y = design(kind, 300, 40, 6)
        x = x.astype(np.float32).astype(np.float64)
        y = y > 0 if kind == "binary" else y
        block = np.random.default_rng(6).integers(0, 12, 300)
        order = np.random.default_rng(7).permutation(300)

        def votes(x: NDArray[Any], y: NDArray[Any], block: NDArray[np.int64], threads: int = 0) -> list[int]:
            return lasso_votes(x, y, block, blocks=12, k=4, penalty=0.1, threads=threads, source=SeededBits(1)).tolist()  # type: ignore[no-any-return]

        expected = votes(x, y, block)
        assert votes(x[order], y[order], block[order]) == expected
        assert votes(np.asfortranarray(x), y, block) == expected
        assert votes(x.astype(np.float32), y, block.astype(np.int32)) == expected
        assert votes(x, y, block, threads=1) == expected
        if kind == "normal":
            assert votes(x, y, block, threads=3) == expected  # which words a block gets varies, but nothing ties


def test_progress_is_told_in_the_callers_thread() -> None:
    x, y = design("normal", 500, 60, 8)
    told: list[tuple[float, int]] = []
    for threads in (0, 2):
        told.clear()
        lasso_votes(
            x, y, np.arange(500) % 25, blocks=25, k=3, penalty=0.1, threads=threads,
            progress=lambda share: told.append((share, threading.get_ident())),
        )  # fmt: skip
        assert {thread for _, thread in told} <= {threading.get_ident()}
        assert [share for share, _ in told] == sorted(share for share, _ in told)
        assert all(0.0 <= share <= 1.0 for share, _ in told)
    assert told[-1][0] == 1.0


@pytest.mark.parametrize("threads", [0, 2])
def test_an_exception_from_progress_stops_the_work(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = design("walk", 4000, 400, 9)
    begun: list[int] = []

    def uniform(size: int, source: Any) -> Any:
        begun.append(size)
        return drawn(size, source)

    drawn = module._uniform
    monkeypatch.setattr(module, "_uniform", uniform)

    def stop(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lasso_votes(
            np.tile(x, (3, 1)), np.tile(y, 3), np.arange(12000) % 400, blocks=400, k=3, penalty=1e-6,
            threads=threads, progress=stop,
        )  # fmt: skip
    assert 0 < len(begun) < 200  # of 400 blocks
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("dpsql-kernel")]


def test_bad_parameters_are_refused() -> None:
    x, y, block = np.zeros((4, 2)), np.zeros(4), np.zeros(4, dtype=np.int64)
    for bad in ({"k": 0}, {"blocks": 0}, {"penalty": 0.0}, {"penalty": math.nan}, {"penalty": math.inf}):
        arguments: dict[str, Any] = {"k": 1, "blocks": 1, "penalty": 0.1} | bad
        with pytest.raises(ParameterError):
            lasso_votes(x, y, block, **arguments)


def test_no_slow_import() -> None:
    """A first call needs NumPy and threadpoolctl: no scikit-learn, SciPy or numba."""
    code = (
        "import sys, numpy as np; from dpsql.kernels.lasso_votes import lasso_votes;"
        "lasso_votes(np.eye(8), np.arange(8.0), np.zeros(8, int), blocks=1, k=1, penalty=0.1);"
        "sys.exit(len({'sklearn', 'scipy', 'numba', 'joblib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_blas_is_held_to_one_thread_while_asked_for() -> None:
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with one_thread():
            with one_thread():
                assert threads() <= {1}
            assert threads() <= {1}
        assert threads() == before
