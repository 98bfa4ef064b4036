"""The noise of dp_synthetic against its law; 0.7 and 1.3 times must show."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.contract.measurement import Permit, measurement_of
from dpsql.functions.synthetic import draw_report
from dpsql.functions.synthetic_plan import SyntheticPlan
from dpsql.mechanisms.private_tree import CELLS, EDGES, ONE, REPORT, TREE, TreeNoise, draw_tree, noisy_tables

# Chance of a false alarm below 1e-6 for each number of draws below.
AWAY = 5.2
UNITS = [("add_remove", 1, 1), ("replace", 1, 2), ("add_remove", 3, 9)]


def plan(neighbours: str, rows: int, **more: object) -> SyntheticPlan:
    unit = {"privacy_unit": "u", "max_rows_per_unit": rows} if rows > 1 else {}
    given = {"columns": ["a", "b", "c"], "epsilon": 1, "delta": 1e-5, "neighbours": neighbours}
    return SyntheticPlan.from_arguments("t", {**given, **unit, **more})


def judged(noise: np.ndarray, variance: float) -> None:
    """Accept a variance, and reject what 0.7 and 1.3 times the noise would have."""
    share, away = float(np.mean(np.square(noise))) / variance, AWAY * math.sqrt(2.0 / len(noise))
    assert abs(share - 1.0) < away
    for factor in (0.7, 1.3):
        assert abs(share / factor**2 - 1.0) > away


@pytest.mark.parametrize(("neighbours", "rows", "squared"), UNITS)
def test_counts_of_columns(neighbours: str, rows: int, squared: int) -> None:
    """The squared L2 sensitivity of three tables is three times that of one."""
    asked = plan(neighbours, rows)
    rho = asked.noise_part.rho_of(CELLS)
    exact = np.arange(6000)
    noisy = noisy_tables(exact, 3, rho, **asked.unit)
    judged(noisy.values - exact, 3 * squared / (2 * float(rho)))
    assert noisy.sigma == pytest.approx(asked.deviations(3)[0])


@pytest.mark.parametrize(
    ("neighbours", "rows", "squared"), [("add_remove", 1, 1), ("replace", 1, 4), ("replace", 3, 36)]
)
def test_report(neighbours: str, rows: int, squared: int) -> None:
    """The squared L2 sensitivity of the distances of P pairs is P, and four times that under replace."""
    asked = plan(neighbours, rows)
    tables = [np.array([[7, 1], [2, 5]])] * 4000
    with Permit(asked.measurement).drawing():
        found, sigma = draw_report(asked, tables, [np.zeros((2, 2))] * 4000)
    variance = 4000 * squared / (2 * float(asked.noise_part.rho_of(REPORT)))
    judged(found - 15.0, variance)
    assert sigma == pytest.approx(math.sqrt(variance), rel=1e-6)


@pytest.mark.long
@pytest.mark.parametrize(("neighbours", "rows"), [("add_remove", 1), ("replace", 2)])
def test_tree(neighbours: str, rows: int) -> None:
    """Of two columns the pair is chosen with the odds exp(epsilon q / (2 Delta)); its counts get the noise of one table."""
    unit = {"neighbours": neighbours, "rows": rows}
    changes = (2 if neighbours == "replace" else 1) * rows
    weights = {CELLS: Fraction(1, 10), TREE: Fraction(8, 10), EDGES: Fraction(1, 10)}
    part = TreeNoise.of("tree", Fraction(1), Fraction(1, 10**5), weights, draws_keys=False)
    each = math.sqrt(8 * float(part.rho_of(TREE)))
    deviation = math.sqrt(rows**2 * (2 if neighbours == "replace" else 1) / (2 * float(part.rho_of(EDGES))))
    penalty = 0.5 * math.sqrt(2 / math.pi) * deviation * 4
    margins = [np.array([500.0, 500.0])] * 2
    wanted = 3.0 * 2 * changes / each + penalty  # odds of exp(3)
    moved = round(wanted / 4)
    table = np.array([[250 + moved, 250 - moved], [250 - moved, 250 + moved]])
    odds = each * (4 * moved - penalty) / (2 * changes)
    runs, chosen = 4500, 0
    noise = []
    for _ in range(runs):
        with Permit(measurement_of(part)).drawing():
            tree = draw_tree(part, lambda _: table, margins, 1000.0, favoured=None, **unit)
        chosen += len(tree.edges)
        noise += [(one - table).ravel() for one in tree.tables]
    chance = 1 / (1 + math.exp(-odds))
    away = AWAY * math.sqrt(chance * (1 - chance) / runs)
    assert abs(chosen / runs - chance) < away
    for factor in (0.7, 1.3):
        assert abs(chosen / runs - 1 / (1 + math.exp(-odds / factor))) > away
    judged(np.concatenate(noise), deviation**2)


def test_what_rounds_leave_goes_to_the_edges() -> None:
    """Three columns, of which two are the same: one round chooses them, the next one stops."""
    weights = {CELLS: Fraction(1, 10), TREE: Fraction(8, 10), EDGES: Fraction(1, 10)}
    part = TreeNoise.of("tree", Fraction(100), Fraction(1, 10**5), weights, draws_keys=False)
    same, apart = np.diag([500, 500]), np.full((2, 2), 250)
    with Permit(measurement_of(part)).drawing():
        tree = draw_tree(
            part,
            lambda pair: same if pair == (0, 1) else apart,
            [np.array([500.0, 500.0])] * 3,
            1000.0,
            favoured=None,
            neighbours="add_remove",
            rows=1,
        )
    assert tree.edges == [(0, 1)]
    assert tree.sigma == pytest.approx(math.sqrt(1 / (2 * float(part.rho_of(EDGES)))), rel=1e-6)  # both rounds ran
    assert ONE == 1 << 20
