from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from dpsql.kernels import ball_least_squares as module
from dpsql.kernels.ball_least_squares import SCORE_CAP, SCORE_UNIT, SCORE_WIDTH, BallLeastSquares
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.gram import GramAccumulator, gram_products
from support.cases import cases


def table(seed, rows=40, columns=6, kind="plain"):
    """Quantised rows, the target last."""
    generator = np.random.default_rng(seed)
    values = generator.uniform(-1, 1, (rows, columns + 1))
    if kind == "equal":
        values[:, 1] = values[:, 0]
    elif kind == "nearly equal":
        values[:, 1] = values[:, 0] + 2e-6 * values[:, 2]
    elif kind == "zero":
        values[:, :2] = 0
    elif kind == "one-hot":
        values[:, :columns] = np.eye(columns)[generator.integers(0, columns, rows)]
    elif kind == "all zero":
        values[:] = 0
    values[:, -1] = np.clip(values[:, 0] * 1.2 - 0.8 * values[:, 3] + 0.3 * values[:, -1], -1, 1)
    return np.rint(np.clip(values, -1, 1) * FIXED_POINT_ONE)


def statistics(rows, times=1):
    products = gram_products(rows).astype(object) * times
    return products[:-1, :-1], products[:-1, -1], int(products[-1, -1])


def reference(gram, cross, total, columns, radius, ridge):
    """Return R(A) in 120 decimal digits, by bisection on the multiplier."""
    with localcontext(prec=120):
        unit = Decimal(FIXED_POINT_ONE**2)
        radius, ridge = (Decimal(value.numerator) / value.denominator for value in (radius, ridge))
        vector = [int(cross[i]) / unit for i in columns]
        matrix = [[int(gram[i, j]) / unit + (ridge if i == j else 0) for j in columns] for i in columns]

        def solution(multiplier):
            rows = [
                [*(value + (multiplier if i == j else 0) for j, value in enumerate(row)), vector[i]]
                for i, row in enumerate(matrix)
            ]
            for k in range(len(rows)):
                for i in range(k + 1, len(rows)):
                    factor = rows[i][k] / rows[k][k]
                    rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
            point = [Decimal(0)] * len(rows)
            for k in reversed(range(len(rows))):
                point[k] = (rows[k][-1] - sum(rows[k][j] * point[j] for j in range(k + 1, len(rows)))) / rows[k][k]
            return point

        def outside(point):
            return sum(value * value for value in point) > radius * radius

        low, high = Decimal(10) ** -40, sum(map(abs, vector)) / radius + 1
        if outside(solution(low)):
            for _ in range(200):
                middle = (low + high) / 2
                low, high = (middle, high) if outside(solution(middle)) else (low, middle)
        point = solution(low)
        products = [sum(a * b for a, b in zip(row, point, strict=True)) for row in matrix]
        return total / unit + sum(b * (product - 2 * h) for b, product, h in zip(point, products, vector, strict=True))


def check(gram, cross, total, subsets, radius, ridge, forced=0):
    problem = BallLeastSquares(gram, cross, total, radius=radius, ridge=ridge, forced=forced)
    for subset, score in zip(subsets, problem.scores(subsets).tolist(), strict=True):
        columns = [*range(forced), *(column + forced for column in subset)]
        error = score * SCORE_UNIT - Fraction(reference(gram, cross, total, columns, radius, ridge))
        tolerance = Fraction(1, 10**20)
        assert -SCORE_UNIT - tolerance <= error <= SCORE_WIDTH - SCORE_UNIT + tolerance


@cases("kind", ["plain", "equal", "nearly equal", "zero", "one-hot", "all zero"], quick=4)
@cases("radius", ["1/10", "11/10", "7"])
def test_scores_are_right_within_the_width(kind, radius):
    subsets = [(0, 1, 3), (0, 2, 4), (0, 1), (5,), (0, 1, 2, 3, 4, 5)]
    for ridge in ("0", "1/3"):
        for subset in subsets:
            check(*statistics(table(1, kind=kind)), [subset], Fraction(radius), Fraction(ridge))


@cases("times", [10**6, 10**10, 10**13], quick=5)
@cases("kind", ["plain", "nearly equal", "one-hot"])
def test_any_number_of_rows(kind, times):
    """Gram entries up to 4e14 in units of 1: doubles alone are wrong by far more than the width."""
    gram, cross, total = statistics(table(2, kind=kind), times)
    capped = times == 10**13
    for radius in (Fraction(1, 10), Fraction(11, 10), Fraction(50)):
        problem = BallLeastSquares(gram, cross, total, radius=radius, ridge=Fraction(0))
        if capped:
            assert (problem.scores([(4, 5)]) == SCORE_CAP).all()
        else:
            check(gram, cross, total, [(0, 1, 3), (1, 4, 5)], radius, Fraction(0))


def test_a_forced_column_is_inside_the_ball():
    rows = table(3)
    rows[:, 0] = FIXED_POINT_ONE
    rows[:, -1] = FIXED_POINT_ONE // 2
    check(*statistics(rows), [(0, 2), (3, 4)], Fraction(3, 10), Fraction(1), forced=1)


def test_the_slow_path_agrees_with_the_fast_one(monkeypatch):
    """Without a proposal every score comes from rational arithmetic: equal up to the width, and certified."""
    gram, cross, total = statistics(table(4))
    subsets = list(combinations(range(6), 3))
    for radius in (Fraction(1, 5), Fraction(3)):
        problem = BallLeastSquares(gram, cross, total, radius=radius, ridge=Fraction(0))
        fast = problem.scores(subsets)
        with monkeypatch.context() as patch:
            patch.setattr(module._Proposal, "point", lambda self: np.zeros(self.solution.shape, dtype=object))
            slow = problem.scores(subsets)
        assert np.abs(fast - slow).max() <= SCORE_WIDTH / SCORE_UNIT


def test_a_point_that_is_not_optimal_is_not_certified():
    gram, cross, total = statistics(table(5))
    problem = BallLeastSquares(gram, cross, total, radius=Fraction(11, 10), ridge=Fraction(0))
    columns = problem._columns([(0, 1, 3)])
    exact, point = module._Exact(problem, columns), module._Proposal(problem, columns).point()
    assert exact.certify(point)[1].all()
    assert not exact.certify(point + (1 << 52))[1].any()
    assert not exact.certify(point // 2)[1].any()


@pytest.mark.parametrize("seed", range(4))
def test_one_set_has_one_score(seed):
    """Whatever else is in the batch, in whatever order, and however the set is written."""
    gram, cross, total = statistics(table(seed, rows=200, columns=12), 10**seed)
    problem = BallLeastSquares(gram, cross, total, radius=Fraction(seed + 1, 4), ridge=Fraction(0))
    subsets = np.array(list(combinations(range(12), 4)))
    scores, duals = problem.scores(subsets), problem.dual(subsets)
    generator = np.random.default_rng(seed)
    for size in (1, 2, 3, 7, 100):
        some = generator.choice(len(subsets), size, replace=False)
        mixed = generator.permuted(subsets[some], axis=1)
        assert (problem.scores(mixed) == scores[some]).all()
        assert (problem.dual(mixed) == duals[some]).all()
    assert problem.scores(np.empty((0, 4), dtype=int)).shape == (0,)


def test_gram_sums_are_exact_in_any_pieces():
    generator = np.random.default_rng(1)
    rows = generator.integers(-FIXED_POINT_ONE, FIXED_POINT_ONE + 1, (9000, 5))
    rows[::3] = FIXED_POINT_ONE
    exact = rows.T @ rows
    assert (gram_products(rows.astype(np.float64)) == exact).all()
    whole = GramAccumulator(5)
    for piece in np.array_split(rows, 7):
        whole.add(piece.astype(np.float64))
    assert whole.total().dtype == np.int64
    assert (whole.total() == exact).all()
    assert whole.rows == 9000


def test_gram_sums_beyond_64_bits(monkeypatch):
    accumulator = GramAccumulator(2)
    rows = np.array([[1.0, -1.0]]) * FIXED_POINT_ONE
    batch = np.repeat(rows, 4096, axis=0)
    accumulator.add(batch)
    # As if 2**24 batches had been added: the carry into the high words is what is under test.
    accumulator.rows <<= 24
    accumulator.sums.high <<= 24
    carried = int(accumulator.total()[0, 0])
    accumulator.add(batch)
    total = accumulator.total()
    assert total[0, 0] == carried + 4096 * FIXED_POINT_ONE**2 == -total[0, 1]
    assert total[0, 0] >= 1 << 63
