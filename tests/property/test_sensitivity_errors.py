"""How far one privacy unit moves the five sums of errors, and what coarser sums are moved by."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.contract.fold import Batch
from dpsql.contract.relation import relation_of
from dpsql.functions.regression_metrics import MetricsPlan
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.mechanisms.laplace import SumWithNoise
from dpsql.statistics.regression import ErrorSums, error_centres, sensitivities
from dpsql.testing.neighbours import RELATIONS, Relation
from support.cases import cases

S = FIXED_POINT_ONE
# Targets and predictions, the ends and beyond them, and what is no number.
VALUES = (-9.0, -1.0, -0.5, 0.0, 0.25, 1.0, 9.0, np.nan, np.inf, -np.inf)


def sums(rows: np.ndarray, bound: int, relation: Relation) -> np.ndarray:
    """Return the five sums of rows of a target and a prediction, both in [-1, 1]."""
    fold = ErrorSums(-1.0, 1.0, bound, error_centres(relation_of(relation), bound))
    fold.add(rows[:, 0].copy(), rows[:, 1:].T.copy(), Batch())
    return np.array(fold.sums(), dtype=object)


@cases("bound", [1, S // 3, 2 * S])
@cases("unit", [1, 3])
@cases("relation", RELATIONS)
def test_every_pair_of_small_rows_stays_within_and_attains_the_bounds(
    relation: Relation, unit: int, bound: int
) -> None:
    """A unit of equal rows comes, or takes the place of another one, and nothing moves a sum further."""
    kinds = [np.array([[target, prediction]] * unit) for target in VALUES for prediction in VALUES]
    found = np.array([sums(rows, bound, relation) for rows in kinds])
    before = np.zeros((1, 5), dtype=object) if relation == "add_remove" else found
    moved = abs(found[:, None] - before[None]).max(axis=(0, 1))
    most = sensitivities(relation_of(relation, unit), bound)
    fewer = abs(found[:, None] - np.zeros((1, 5), dtype=object)[None]).max(axis=(0, 1))
    assert np.maximum(moved, fewer).tolist() == list(most)


def test_a_plan_draws_for_the_largest_error_and_spends_its_epsilon_once() -> None:
    given = {"target": "y", "prediction": "p", "epsilon": 0.7, "lower": 0, "upper": 4, "error_bound": 0.5}
    for relation in RELATIONS:
        unit = {"neighbours": relation, "privacy_unit": "u", "max_rows_per_unit": 3}
        plan: MetricsPlan = MetricsPlan.from_arguments("t", {**given, **unit})
        most = sensitivities(relation_of(relation, 3), S // 4)
        spent = [Fraction(moved) / part.scale() for moved, part in zip(most, plan.sums, strict=True)]
        assert sum(spent) == plan.epsilon == plan.measurement.event.cost.epsilon


@pytest.mark.parametrize("sensitivity", [2**50 + 1, 2**60 + 1, 3 * 2**70 - 5])
def test_coarser_sums_move_by_what_their_noise_is_for(sensitivity: int) -> None:
    """A sum in a coarser unit is rounded, and may then move by one unit more than its sensitivity says."""
    part = SumWithNoise("sum", Fraction(1, 8), sensitivity)
    unit = part.unit
    assert unit > 1
    moved = max((start + sensitivity) // unit - start // unit for start in (0, 1, unit // 2, unit - 1))
    assert moved > Fraction(sensitivity, unit)
    assert moved <= part.unit_scale * part.epsilon <= Fraction(sensitivity, unit) + 1
