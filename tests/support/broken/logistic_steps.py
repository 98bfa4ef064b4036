"""Broken steps of a classifier: what is not charged, noise for less than a row adds, rows without a clip."""

from __future__ import annotations

from contextlib import AbstractContextManager
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.functions.regression import logistic
from dpsql.functions.regression.logistic import LogisticPlan
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.mechanisms import additive
from dpsql.statistics import additive as statistics
from dpsql.statistics.score_rows import ScoreRows
from support.broken.planting import Fault, planted

_release_bins, _release_residuals = additive.release_bins, additive.release_residuals
_cells_sensitivity, _residuals_sensitivity = statistics.cells_sensitivity, statistics.residuals_sensitivity
_residuals, _weights = ScoreRows.residuals, ScoreRows.weights


def _free_bins(counts: Any, *given: Any, squared_mu: Fraction, **options: Any) -> Any:
    return _release_bins(counts, *given, squared_mu=squared_mu * 16, **options)


def _every_visit(sums: Any, *given: Any, squared_mu: Fraction, **options: Any) -> Any:
    return _release_residuals(sums, *given, squared_mu=squared_mu * additive.VISITS, **options)


def _of_one_feature(neighbours: str, features: int, *given: Any) -> int:
    return _cells_sensitivity(neighbours, 1, *given)


def _one_sided(neighbours: str, *given: Any) -> int:
    return _residuals_sensitivity("add_remove", *given)


def _whole(plan: LogisticPlan, steps: bool, ends: Fraction = Fraction(0)) -> Any:
    return plan.rest


def _of_scores(rows: ScoreRows, start: Any, moved: Any, most: int) -> Any:
    """Residuals of the score itself, as least squares has them, and not clipped."""
    return np.where(start[:, 1] > 0, FIXED_POINT_ONE, 0) - (start[:, 0] + moved)


def _any_label(rows: ScoreRows, start: Any, moved: Any, most: int) -> Any:
    """Labels of any size: a target that is no level counts as what it is."""
    return _residuals(rows, start, moved, most) + 3 * start[:, 1] * FIXED_POINT_ONE


def _four_times(rows: ScoreRows, start: Any) -> Any:
    return 4 * _weights(rows, start)


def _exact_bins(found: Any, *given: Any, denominator: int = 1, **options: Any) -> Any:
    weights = np.maximum(np.asarray(found, dtype=np.float64) / denominator, 1.0)
    return additive.Bins(np.tile(np.arange(found.shape[1]), (len(found), 1)), list(weights))


def _kept_rows(fit: Any, rows: Any, progress: Any) -> Any:
    """The linear fit of the rows themselves, without its noise, which the steps then start from."""
    signed = rows.signed
    total = sum(np.asarray(block, dtype=np.float64).sum(axis=0) for block in signed._blocks)
    return total / FIXED_POINT_ONE / 100


BROKEN_STEPS: dict[str, Fault] = {
    "free weights": Fault("bins cost four times their mu", ((additive, "release_bins", _free_bins),)),
    "visits of one": Fault("every visit spends what all may", ((additive, "release_residuals", _every_visit),)),
    "weights of one feature": Fault(
        "rows are in a cell of each feature, with the noise for one",
        ((additive, "cells_sensitivity", _of_one_feature),),
    ),
    "labels that cannot turn": Fault(
        "under replace a residual may change its sign, and pays for coming",
        ((additive, "residuals_sensitivity", _one_sided),),
    ),
    "a linear fit of the whole": Fault(
        "the linear fit has all that is left, and so have the steps their half",
        ((LogisticPlan, "objective", _whole),),
    ),
    "scores for chances": Fault("residuals of the score are as large as it", ((ScoreRows, "residuals", _of_scores),)),
    "labels beyond 1": Fault("residuals of more than 1", ((ScoreRows, "residuals", _any_label),)),
    "weights beyond 1": Fault("16 p (1 - p) with the noise for 4", ((ScoreRows, "weights", _four_times),)),
    "bins of the weights": Fault(
        "neighbouring cells are joined where their exact weights say so", ((additive, "release_bins", _exact_bins),)
    ),
    "steps on a secret fit": Fault(
        "scores are those of a fit without noise", ((logistic.Classifier, "draw", _kept_rows),)
    ),
}


def broken_steps(name: str) -> AbstractContextManager[None]:
    """Plant one fault of `BROKEN_STEPS` for as long as the context lasts. Never private; for tests only."""
    return planted(*BROKEN_STEPS[name].patches)
