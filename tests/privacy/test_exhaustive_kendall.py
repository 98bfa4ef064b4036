"""``dp_kendall`` on every small table: the largest log ratio against the claimed epsilon, from exact laws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from dpsql.kernels.kendall import RankedTable
from dpsql.testing import check_exhaustively, tables
from dpsql.testing.neighbours import RELATIONS, Relation, Row, Table
from support.cases import cases
from support.laws.kendall import KendallLaw, Statistic

MECHANISMS: list[dict[str, Any]] = [{}, {"mechanism": "exponential"}, {"split": "scaled"}]
IDS = ["gumbel", "exponential", "scaled"]
BLOCKED = {"blocks": 2, "row_id": "id"}

# A row is the features, the target, and with blocks the number of its block.
LEVELS: list[Row] = [tuple(map(float, row)) for row in itertools.product((-1, 0, 1), repeat=3)]
BINARY: list[Row] = [tuple(map(float, row)) for row in itertools.product((0, 1), repeat=4)]
ODD: list[Row] = [
    (math.nan, 0.0, 1.0),
    (1.0, None, -1.0),
    (0.0, 1.0, None),
    (None, math.nan, math.nan),
    (math.inf, -math.inf, 2.0),
    (-math.inf, -0.0, math.inf),
    (5e-324, 1e300, 0.0),
]
# Rows in one order by a and y while b is constant, and one that denies the order of a and is the first of b's.
ORDERED: list[Row] = [*((float(i), 0.0, float(i)) for i in range(4)), (-1.0, 1.0, 9.0)]
# Block 0 gives both sums their sign; in block 1 a falls and b rises with the target, until the last row.
TURNED: list[Row] = [
    *((i, i, i, 0) for i in (0.0, 1.0)),
    *((-i, i, i, 1) for i in (0.0, 1.0, 2.0)),
    (9.0, -9.0, 9.0, 1),
]


def count_all(law: KendallLaw, everything: Iterable[Table]) -> dict[Table, Statistic]:
    """Return the counts of every table, all of them counted at once, as blocks of one table."""
    listed, blocks = list(dict.fromkeys(everything)), law.plan.blocks or 1
    width = len(law.call.features) + 1
    rows = [(*row[:width], blocks * number + sum(row[width:])) for number, table in enumerate(listed) for row in table]
    values = np.array(rows, dtype=np.float64)  # None becomes NaN
    ranked = RankedTable(values[:, :width].T, values[:, width].astype(np.int64))
    features = list(range(width - 1))
    scores = np.stack([ranked.scores(base, features) for base in range(width)], axis=1)
    scores[:, features, features] = 0  # a column with itself is not looked at
    found = {}
    for number, table in enumerate(listed):
        sums: dict[int, Any] = {} if table or law.plan.blocks else {0: 0 * scores[0]}
        for block in {blocks * number + sum(row[width:]) for row in table}:
            size = int(ranked.sizes[block])
            sums[size] = sums.get(size, 0) + scores[block]
        found[table] = tuple((size, tuple(map(tuple, sums[size].tolist()))) for size in sorted(sums))
    return found


def worst(domain: Sequence[Row], max_rows: int, relation: Relation, **arguments: Any) -> float:
    """Return the largest loss as a share of epsilon."""
    law = KendallLaw("abc"[: len(domain[0]) - (2 if "blocks" in arguments else 1)], neighbours=relation, **arguments)
    counts = count_all(law, tables(domain, max_rows))
    report = check_exhaustively(
        lambda table: law.selection_law(counts[table]), domain, max_rows, relation, key=counts.__getitem__
    )
    assert report.within(law.plan.epsilon), str(report)
    return report.log_ratio / float(law.plan.epsilon)


def with_blocks(domain: Sequence[Row]) -> list[Row]:
    return [(*row, block) for row in domain for block in (0, 1)]


@pytest.mark.parametrize("more", [{}, BLOCKED], ids=["whole", "blocks"])
def test_counting_at_once_is_counting_one_by_one(more: dict[str, Any]) -> None:
    domain = [*LEVELS[::5], *ODD]
    law = KendallLaw("ab", k=1, epsilon=1, **more)
    counts = count_all(law, tables(with_blocks(domain[::2]) if more else domain, 3))
    for table in list(counts)[::19]:
        assert counts[table] == law.statistic(table), table


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("mechanism", MECHANISMS[:2], ids=IDS[:2])
def test_loss_stays_within_epsilon(mechanism: dict[str, Any], relation: Relation) -> None:
    worst(LEVELS, 3, relation, k=1, epsilon=4, **mechanism)


@cases("relation", RELATIONS)
@cases("mechanism", MECHANISMS, ids=IDS)
def test_loss_of_two_rounds_stays_within_epsilon(mechanism: dict[str, Any], relation: Relation) -> None:
    worst(BINARY, 3, relation, k=2, epsilon=4, **mechanism)


@cases("relation", RELATIONS)
@cases("mechanism", MECHANISMS, ids=IDS)
def test_loss_with_odd_values_stays_within_epsilon(mechanism: dict[str, Any], relation: Relation) -> None:
    worst([*LEVELS[::5], *ODD], 4, relation, k=2, epsilon=2, **mechanism)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("mechanism", MECHANISMS[:2], ids=IDS[:2])
def test_loss_with_blocks_stays_within_epsilon(mechanism: dict[str, Any], relation: Relation) -> None:
    """The block is part of the row: a replacement may take a row from one block and put one into the other."""
    worst(with_blocks([*LEVELS[::5], *ODD[::3]]), 3, relation, k=1, epsilon=4, **BLOCKED, **mechanism)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("mechanism", MECHANISMS[:2], ids=IDS[:2])
def test_loss_of_a_unit_with_two_rows(mechanism: dict[str, Any], relation: Relation) -> None:
    """Neighbours differ in all rows of one unit, which owns up to two."""
    law = KendallLaw("ab", k=1, epsilon=4, neighbours=relation, privacy_unit="u", max_rows_per_unit=2, **mechanism)
    pairs = list(itertools.combinations_with_replacement(LEVELS[::5], 2))
    ordered = [*((row,) for row in ORDERED[:-1]), (ORDERED[-1], (-2.0, 2.0, 10.0))]
    for units, most, tight in (([*((row,) for row in LEVELS[::2]), *pairs], 2, 0.15), (ordered, 8, 0.35)):
        flat = {table: tuple(itertools.chain.from_iterable(table)) for table in tables(units, most)}
        counts = count_all(law, flat.values())
        report = check_exhaustively(
            lambda table, flat=flat, counts=counts: law.selection_law(counts[flat[table]]),
            units,
            most,
            relation,
            key=lambda table, flat=flat, counts=counts: counts[flat[table]],
        )
        assert report.within(4), str(report)
        assert report.log_ratio > 4 * tight, str(report)


@pytest.mark.slow
@cases("relation", RELATIONS)
@cases("mechanism", MECHANISMS, ids=IDS)
def test_loss_on_larger_tables_stays_within_epsilon(mechanism: dict[str, Any], relation: Relation) -> None:
    worst(LEVELS, 4, relation, k=2, epsilon=1, **mechanism)
    worst(BINARY, 5, relation, k=2, epsilon=8, **mechanism)
    worst([*LEVELS[::2], *ODD], 4, relation, k=1, epsilon=8, **mechanism)
    worst(with_blocks([*BINARY[1::3], (0.0, 1.0, 2.0, 3.0)]), 5, relation, k=3, epsilon=3, **BLOCKED, **mechanism)


@pytest.mark.parametrize(
    ("domain", "max_rows", "arguments", "tight"),
    [
        (ORDERED, 8, {"mechanism": "exponential", "epsilon": 1}, 0.97),
        (ORDERED, 8, {"epsilon": 8}, 0.95),
        (TURNED, 9, {"mechanism": "exponential", "epsilon": 1, **BLOCKED}, 1 - 1e-9),
    ],
)
def test_epsilon_is_nearly_used_up(domain: list[Row], max_rows: int, arguments: dict[str, Any], tight: float) -> None:
    """A mechanism far below its epsilon would be private, but not the one that is meant."""
    share = worst(domain, max_rows, "add_remove", k=1, **arguments)
    assert share >= tight


def test_order_of_rows_tells_nothing() -> None:
    """Tables with the same rows in another order count as neighbours, too; they have one law."""
    law = KendallLaw("ab", k=1, epsilon=4)
    domain = [*LEVELS[::9], ODD[0], ODD[4]]
    losses = [
        check_exhaustively(law.law, domain, 3, "add_remove", ordered=ordered).log_ratio for ordered in (True, False)
    ]
    assert losses[0] == losses[1] > 0.5


# --- public pairs of tables on which all of epsilon is spent


def permutation(length: int, inversions: int) -> list[float]:
    """Return a permutation with so many inversions: the largest shifts first."""
    out = list(range(length))
    for place in range(length):
        step = min(inversions, length - 1 - place)
        out.insert(place, out.pop(place + step))
        inversions -= step
    return [float(value) for value in out]


def rows(*columns: Sequence[float], block: Sequence[int] = ()) -> Table:
    return tuple(zip(*columns, *([list(block) * len(columns[0])] if block else []), strict=True))


LOW, HIGH = -99.0, 99.0
FIVE, SEVEN, NINE, MANY = (permutation(length, 0) for length in (5, 7, 9, 20))
HALF, MOST = permutation(20, 95), permutation(20, 80)
AGREED = rows(FIVE, [0.0] * 5, FIVE)
SPLIT = rows(SEVEN, permutation(7, 7), SEVEN)
LATER, REPLACED = (rows(column, MANY, column, MANY) for column in (HALF, MOST))
UP, DOWN = [0.0, 1.0, 2.0], [2.0, 1.0, 0.0]
THREE_BLOCKS = (
    *rows(permutation(9, 12), NINE, NINE, block=[0]),
    *rows(UP, DOWN, UP, block=[1]),
    *rows(DOWN, UP, UP, block=[2]),
)
SPENT: dict[str, tuple[Relation, tuple[Table, Table], dict[str, Any], float]] = {
    "round 1": ("add_remove", (AGREED, (*AGREED, (LOW, 1.0, HIGH))), {"epsilon": 1}, 1.0),
    "round 1, gumbel": (
        "add_remove",
        (rows(MANY, [0.0] * 20, MANY), (*rows(MANY, [0.0] * 20, MANY), (LOW, 1.0, HIGH))),
        {"epsilon": 8, "mechanism": "gumbel"},
        0.999,
    ),
    "two rounds": ("add_remove", (LATER, (*LATER, (HIGH, LOW, LOW, HIGH))), {"k": 2, "epsilon": 8}, 0.98),
    "scaled": (
        "add_remove",
        (LATER, (*LATER, (HIGH, LOW, LOW, HIGH))),
        {"k": 2, "epsilon": 8, "split": "scaled"},
        0.98,
    ),
    "round 1, replace": (
        "replace",
        ((*SPLIT, (HIGH, LOW, HIGH)), (*SPLIT, (LOW, HIGH, HIGH))),
        {"epsilon": 1},
        1.0,
    ),
    "two rounds, replace": (
        "replace",
        ((*REPLACED, (LOW, HIGH, LOW, HIGH)), (*REPLACED, (HIGH, LOW, LOW, HIGH))),
        {"k": 2, "epsilon": 8},
        0.74,
    ),
    "blocks, replace": (
        "replace",
        ((*THREE_BLOCKS, (LOW, HIGH, HIGH, 1)), (*THREE_BLOCKS, (HIGH, LOW, HIGH, 2))),
        {"epsilon": 1, "blocks": 3, "row_id": "id"},
        1.0,
    ),
}


@cases("name", SPENT)
def test_epsilon_is_used_up(name: str) -> None:
    relation, pair, arguments, share = SPENT[name]
    names = "abc"[: len(pair[0][0]) - (2 if "blocks" in arguments else 1)]
    law = KendallLaw(names, neighbours=relation, **{"k": 1, "mechanism": "exponential", **arguments})
    first, second = map(law.law, pair)
    losses = {outcome: math.log(first[outcome] / second[outcome]) for outcome in first}
    loss = max(map(abs, losses.values())) / arguments["epsilon"]
    assert share - 1e-9 <= loss <= 1 + 1e-9
