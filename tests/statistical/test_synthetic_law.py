"""The noise of dp_synthetic against its law; 0.7 and 1.3 times must show."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpsql.contract.measurement import Permit, measurement_of
from dpsql.functions import synthetic
from dpsql.functions.synthetic import SyntheticPlan, draw_report
from dpsql.mechanisms.private_tree import (
    CELLS,
    CROWDS,
    EDGES,
    GRAINS,
    ONE,
    REPORT,
    TREE,
    VALUES,
    TreeNoise,
    draw_tree,
    noisy_tables,
)
from dpsql.statistics.coded_columns import CodedColumn, ColumnCounts

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


@pytest.mark.parametrize("share", [CROWDS, GRAINS, VALUES])
@pytest.mark.parametrize(("neighbours", "rows", "squared"), UNITS)
def test_counts_of_parts(neighbours: str, rows: int, squared: int, share: str) -> None:
    """A row has one magnitude, grain and listed value of each of three columns: three times the squared sensitivity."""
    asked = plan(neighbours, rows, lower={"a": 0}, upper={"a": 1})
    exact = [np.arange(2000)] * 3
    with Permit(asked.measurement).drawing():
        noisy = asked.noise_part.draw_parts(share, exact, **asked.unit)
    judged(noisy.values - np.concatenate(exact), 3 * squared / (2 * float(asked.noise_part.rho_of(share))))


@pytest.mark.parametrize("runs", [200, pytest.param(3000, marks=pytest.mark.long)])
def test_a_value_that_neighbours_do_not_share_is_as_rare_as_said(monkeypatch: pytest.MonkeyPatch, runs: int) -> None:
    """With m rows more than the m that hide a value, it is released with the chance of the stated deviations."""
    rows = 20
    asked = plan("add_remove", rows, columns=["g"], epsilon=20, private_keys=True)
    counts = ColumnCounts([CodedColumn("g", "VARCHAR", None, True, None, 0, draws_keys=True)])
    counts.add_columns([pa.array(["twice"] * 2 * rows + ["once"] * rows)])
    monkeypatch.setattr(synthetic, "key_reach", lambda *_: 1.0)
    found: list[str] = []
    for _ in range(runs):
        with Permit(asked.measurement).drawing():
            released = synthetic.draw_columns(asked, counts)
        found += released.columns[0].keys or ()
    assert set(found) == {"twice"}
    chance = NormalDist().cdf(-1)
    assert abs(len(found) / runs - chance) < AWAY * math.sqrt(chance * (1 - chance) / runs)


def test_values_of_one_person_in_all_columns_share_their_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of m rows each has a value in each column that nobody else has; any of them shows with the stated chance."""
    rows, names = 2, ["g", "h", "i"]
    asked = plan("replace", rows, columns=names, private_keys=True)
    counts = ColumnCounts([CodedColumn(name, "VARCHAR", None, True, None, 0, draws_keys=True) for name in names])
    counts.add_columns([pa.array(["every"] * 99)] * len(names))
    reach, reached = synthetic.key_reach, list[float]()

    def noted(*given: Any) -> float:
        reached.append(reach(*given))
        return reached[-1]

    monkeypatch.setattr(synthetic, "key_reach", noted)
    with Permit(asked.measurement).drawing():
        synthetic.draw_columns(asked, counts)
    chance = rows * len(names) * NormalDist().cdf(-reached[0]) * (1 + math.exp(1))
    assert chance <= 1e-5 / 2
    assert chance > 0.9 * 1e-5 / 2


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


# Of rho: noisy tables are then worth so little that a useless pair is chosen with a chance below 1e-9.
FEW = Fraction(1, 1000)


def part_of(epsilon: int, edges: Fraction = Fraction(1, 10)) -> TreeNoise:
    weights = {CELLS: Fraction(1, 10), TREE: Fraction(9, 10) - edges, EDGES: edges}
    return TreeNoise.of("tree", Fraction(epsilon), Fraction(1, 10**5), weights, draws_keys=False)


def penalty_of(part: TreeNoise, tables: int, neighbours: str, rows: int) -> float:
    squared = tables * rows**2 * (2 if neighbours == "replace" else 1)
    return 0.5 * math.sqrt(2 / math.pi) * math.sqrt(squared / (2 * float(part.rho_of(EDGES)))) * 4


@pytest.mark.long
@pytest.mark.parametrize(("neighbours", "rows"), [("add_remove", 1), ("replace", 2)])
def test_hub(neighbours: str, rows: int) -> None:
    """Of two columns each is the hub with the odds exp(epsilon q / (2 Delta)); their counts get the noise of one table."""
    unit: dict[str, Any] = {"neighbours": neighbours, "rows": rows}
    changes = (2 if neighbours == "replace" else 1) * rows
    part = part_of(1)
    each = math.sqrt(8 * float(part.rho_of(TREE)) / 2)
    penalty = penalty_of(part, 1, neighbours, rows)
    margins = [np.array([500.0, 500.0])] * 2
    moved = round((2.0 * 2 * changes / each + penalty) / 4)  # odds of exp(2) about
    table = np.array([[250 + moved, 250 - moved], [250 - moved, 250 + moved]])
    odds = each * (4 * moved - penalty) / (2 * changes)
    runs, chosen = 9000, 0
    noise = []
    for _ in range(runs):
        with Permit(measurement_of(part)).drawing():
            tree = draw_tree(part, lambda _: table, margins, 1000.0, lambda _: {}, hub=None, **unit)
        if tree.hub is None:
            assert len(tree.edges) < 2  # a round for the tree is left
        else:
            chosen += 1
            noise.append((tree.tables[0] - table).ravel())

    def law(odds: float) -> float:
        return 2 / (2 + math.exp(-odds))

    away = AWAY * math.sqrt(law(odds) * (1 - law(odds)) / runs)
    assert abs(chosen / runs - law(odds)) < away
    for factor in (0.7, 1.3):
        assert abs(chosen / runs - law(odds / factor)) > away
    judged(np.concatenate(noise), changes**2 / (2 if neighbours == "replace" else 1) / (2 * float(part.rho_of(EDGES))))


@pytest.mark.long
@pytest.mark.parametrize(("neighbours", "rows"), [("add_remove", 1), ("replace", 2)])
def test_tree(neighbours: str, rows: int) -> None:
    """Given a hub, the one pair of the others is chosen with the odds exp(epsilon q / (2 Delta)) of what it tells more."""
    unit: dict[str, Any] = {"neighbours": neighbours, "rows": rows}
    changes = (2 if neighbours == "replace" else 1) * rows
    part = part_of(1)
    each = math.sqrt(8 * float(part.rho_of(TREE)))
    penalty = penalty_of(part, 3, neighbours, rows)
    moved = round((2.0 * 2 * changes / each + penalty) / 4)  # odds of exp(2) about
    pairs = {(0, 1): np.full((2, 2), 7), (0, 2): np.full((2, 2), 9)}
    pairs[1, 2] = np.array([[250 + moved, 250 - moved], [250 - moved, 250 + moved]])
    star = {pair: np.full((2, 2), 250.0) for pair in pairs}
    odds = each * (4 * moved - penalty) / (2 * changes)
    runs, chosen = 6000, 0
    noise: dict[tuple[int, int], list[np.ndarray]] = {pair: [] for pair in pairs}
    for _ in range(runs):
        with Permit(measurement_of(part)).drawing():
            tree = draw_tree(
                part, pairs.__getitem__, [np.array([500.0, 500.0])] * 3, 1e3, lambda _: star, hub=0, **unit
            )
        chosen += len(tree.edges) - 2
        for pair, table in zip(tree.edges, tree.tables, strict=True):
            noise[pair].append((table - pairs[pair]).ravel())
    chance = 1 / (1 + math.exp(-odds))
    away = AWAY * math.sqrt(chance * (1 - chance) / runs)
    assert abs(chosen / runs - chance) < away
    for factor in (0.7, 1.3):
        assert abs(chosen / runs - 1 / (1 + math.exp(-odds / factor))) > away
    for found in noise.values():
        judged(np.concatenate(found), 3 * (penalty / 4 / 0.5 / math.sqrt(2 / math.pi)) ** 2 / 3)


def test_what_rounds_leave_goes_to_the_edges() -> None:
    """Four columns, of which two are the same given the hub: one round of two chooses them, the next one stops."""
    part = part_of(100, FEW)
    same, apart = np.diag([500, 500]), np.full((2, 2), 250)
    pairs = {pair: same if pair == (1, 2) else apart for pair in itertools.combinations(range(4), 2)}
    star = dict.fromkeys(pairs, apart * 1.0)
    with Permit(measurement_of(part)).drawing():
        tree = draw_tree(
            part,
            pairs.__getitem__,
            [np.array([500.0, 500.0])] * 4,
            1000.0,
            lambda _: star,
            hub=3,
            neighbours="add_remove",
            rows=1,
        )
    assert tree.edges == [(0, 3), (1, 3), (2, 3), (1, 2)]
    rho = float(part.rho_of(EDGES))
    assert tree.sigmas[:3] == [pytest.approx(math.sqrt(3 / (2 * rho * 3 / 5)), rel=1e-6)] * 3
    assert tree.sigmas[3] == pytest.approx(math.sqrt(1 / (2 * rho * 2 / 5)), rel=1e-6)  # both rounds ran


def test_no_hub_where_columns_are_independent() -> None:
    part = part_of(100, FEW)
    with Permit(measurement_of(part)).drawing():
        tree = draw_tree(
            part,
            lambda _: np.full((2, 2), 250),
            [np.array([500.0, 500.0])] * 4,
            1000.0,
            lambda _: {},
            hub=None,
            neighbours="add_remove",
            rows=1,
        )
    assert (tree.hub, tree.edges) == (None, [])
    assert ONE == 1 << 20
