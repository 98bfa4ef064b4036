"""The quick lower bounds that spare rejected subsets their exact scores."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np

from dpsql.kernels.ball_least_squares import SCORE_UNIT, SCORE_WIDTH, BallLeastSquares
from dpsql.kernels.best_subsets import score_floors
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from support.cases import cases


@cases("rows", [0, 1, 3, 50, 2000])
@cases(("radius", "ridge"), [(Fraction(11, 10), Fraction(0)), (Fraction(1, 10), Fraction(3))])
@cases("scale", [1, 10**9])
def test_floors_lie_just_below_the_scores(rows: int, radius: Fraction, ridge: Fraction, scale: int) -> None:
    rng = np.random.default_rng(rows)
    data = rng.integers(-FIXED_POINT_ONE, FIXED_POINT_ONE + 1, size=(rows, 7)).astype(object)
    data[:, 1] = data[:, 0]
    data[:, 2] = 0
    products = (data.T.dot(data) if rows else np.zeros((7, 7), dtype=object)) * scale
    problem = BallLeastSquares(products[:6, :6], products[:6, 6], int(products[6, 6]), radius=radius, ridge=ridge)
    subsets = np.array(list(combinations(range(6), 3)))
    floors, scores = score_floors(problem, subsets), problem.scores(subsets)
    assert (floors <= scores).all()
    slack = 4 + int(SCORE_WIDTH / SCORE_UNIT) + 1e-11 * float(problem.constant) / float(SCORE_UNIT)
    assert (scores - floors <= slack).all()
