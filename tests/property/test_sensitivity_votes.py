"""Sensitivities of `dpsql/statistics/votes.py` on random neighbouring tables, with the faults that break them."""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.errors import ParameterError
from dpsql.functions.registry import FUNCTIONS
from dpsql.functions.two_stage import TwoStagePlan, draw_votes
from dpsql.kernels.lasso_votes import lasso_votes
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.one_shot import OneShotSelection, select
from dpsql.statistics.votes import (
    blocks_from_count,
    component_sensitivity,
    count_shift,
    total_sensitivity,
    utility_range,
)
from dpsql.testing import random_pairs, random_unit_pairs
from dpsql.testing.bits import SeededBits
from dpsql.testing.neighbours import RELATIONS, Relation, Row, Table
from support.broken.votes import batches_of_floor
from support.cases import cases

BLOCKS = 4
K = 2
WIDTH = 5
Assign = Callable[[Table], NDArray[np.int64]]


def keyed(value: Any, blocks: int = BLOCKS) -> int:
    """The block of an id: a keyed hash."""
    digest = hashlib.blake2b(repr(value).encode(), key=b"a key", digest_size=8).digest()
    return int.from_bytes(digest, "big") % blocks


def count(table: Table, assign: Assign, blocks: int = BLOCKS, k: int = K, **options: Any) -> NDArray[np.int64]:
    """The votes of rows (id, features..., target), ties from the same words in every table."""
    values = np.array([[math.nan if v is None else v for v in row[1:]] for row in table], dtype=np.float64)
    values = values.reshape(len(table), WIDTH if len(table) == 0 else -1)
    arguments: dict[str, Any] = {"blocks": blocks, "k": k, "penalty": 0.05, "source": SeededBits(3)} | options
    return lasso_votes(values[:, :-1], values[:, -1], assign(table), **arguments)


def by_id(table: Table) -> NDArray[np.int64]:
    return np.array([keyed(row[0]) for row in table], dtype=np.int64)


def by_row(table: Table) -> NDArray[np.int64]:
    return np.array([keyed(row) for row in table], dtype=np.int64)


def changed_blocks(first: Table, second: Table, assign: Assign) -> int:
    """How many blocks vote otherwise."""

    def alone(table: Table, number: int) -> list[int]:
        return count(table, lambda rows: np.where(assign(rows) == number, number, -1)).tolist()  # type: ignore[no-any-return]

    return sum(alone(first, number) != alone(second, number) for number in range(BLOCKS))


def check(first: Table, second: Table, assign: Assign, relation: str, **unit: Any) -> tuple[int, int]:
    """Compare what changes with the constants; return the largest change and the range."""
    changes = count(second, assign) - count(first, assign)
    assert np.abs(changes).max() <= component_sensitivity(relation, **unit)
    assert changes.max() - changes.min() <= utility_range(relation, **unit)
    assert np.abs(changes).sum() <= total_sensitivity(relation, K, **unit)
    assert changed_blocks(first, second, assign) <= component_sensitivity(relation, **unit)
    return int(np.abs(changes).max()), int(changes.max() - changes.min())


def with_ids(pair: tuple[Table, Table], generator: random.Random) -> tuple[Table, Table]:
    """Give each row an id of its own; a row in both tables keeps its id, a replaced one brings a new one."""
    ids: dict[tuple[str, int], int] = {}
    tables = []
    for table in pair:
        seen: dict[str, int] = {}
        rows = []
        for row in table:
            seen[repr(row)] = seen.get(repr(row), 0) + 1
            key = (repr(row), seen[repr(row)])
            rows.append((ids.setdefault(key, generator.randrange(10**9)), *row))
        tables.append(tuple(rows))
    return tables[0], tables[1]


@pytest.mark.long
@pytest.mark.parametrize("relation", RELATIONS)
def test_one_row(relation: Relation) -> None:
    generator = random.Random(2)
    found = [
        check(*with_ids(pair, generator), by_id, relation)
        for pair in random_pairs(31, relation, columns=5, count=120, max_rows=30)
    ]
    # The tables are hard enough: the constants are reached.
    assert max(largest for largest, _ in found) == component_sensitivity(relation)
    assert max(spread for _, spread in found) == utility_range(relation)


def test_scaling_by_the_whole_table_is_caught() -> None:
    """A fit that looks beyond its block, at the columns' scales: one row changes the votes of several blocks."""
    most = 0
    generator = np.random.default_rng(8)
    for _ in range(40):
        x = generator.normal(size=(40, 5))
        rows = np.hstack([np.arange(40)[:, None], x, x @ np.ones((5, 1)) + generator.normal(size=(40, 1))])
        rows[-1, 2] = 30.0
        tables = []
        for values in (rows[:-1], rows):
            spread = np.append(1.0, values[:, 1:].std(axis=0))
            tables.append(tuple(tuple(row) for row in values / spread))
        votes = [count(table, by_id, standardize=False) for table in tables]
        most = max(most, int(np.abs(votes[1] - votes[0]).max()))
    assert most > component_sensitivity("add_remove")


@cases("relation", RELATIONS, quick=1)
def test_one_unit_in_one_block(relation: Relation) -> None:
    """Blocks drawn for the unit: all rows of a unit count as one."""
    for first, second in random_unit_pairs(32, relation, columns=5, count=80, max_units=12, max_rows_per_unit=6):
        owned = [tuple(row for row in table if row[0] is not None) for table in (first, second)]
        check(owned[0], owned[1], by_id, relation, max_rows_per_unit=6)


@cases("relation", RELATIONS, quick=1)
@cases("rows", [1, 3])
def test_one_unit_in_several_blocks(relation: Relation, rows: int) -> None:
    """Blocks drawn for each row: multiplied by the rows per unit."""
    for first, second in random_unit_pairs(33, relation, columns=5, count=60, max_units=12, max_rows_per_unit=rows):
        check(first, second, by_row, relation, max_rows_per_unit=rows, unit_blocks=False)


def strong(size: int, feature: int) -> list[tuple[float, ...]]:
    """Rows (features, target) that make a block vote for one of two features."""
    generator = np.random.default_rng(feature)
    x = generator.normal(size=(size, 2))
    return [(*row, row[feature]) for row in x.tolist()]


def test_a_replaced_id_changes_two_blocks() -> None:
    """Ten blocks, votes (5, 5): a row leaves one block and another enters a second one: (3, 7), range 4, not 2."""
    names = {number: next(name for name in itertools.count() if keyed(name, 10) == number) for number in range(10)}

    def table(*extra: Row) -> Table:
        rows: list[Row] = []
        for number in range(10):
            feature = 1 if number in (0, 2, 3, 4, 5, 6) else 0  # block 0 votes for 1 unless the extra row is there
            rows += [(names[number], *values) for values in strong(6, feature)]
        return (*rows, *extra)

    def assign(rows: Table) -> NDArray[np.int64]:
        return np.array([keyed(row[0], 10) for row in rows])

    # An outlier decides its block: in block 0 for feature 0, in block 1 for feature 1.
    before = table((names[0], 1e4, 0.0, 1e4))
    after = table((names[1], 0.0, 1e4, 1e4))
    votes = [count(each, assign, 10, 1).tolist() for each in (before, after)]
    assert votes == [[5, 5], [3, 7]]
    changes = [b - a for a, b in zip(*votes, strict=True)]
    assert max(map(abs, changes)) == component_sensitivity("replace") == 2
    assert max(changes) - min(changes) == utility_range("replace") == 4
    assert sum(map(abs, changes)) == total_sensitivity("replace", 1) == 4
    # The constants of add_remove would be broken; they are attained by leaving the second row out.
    removed = count(table(), assign, 10, 1)
    changes = (removed - np.array(votes[0])).tolist()
    assert changes == [-1, 1]
    assert component_sensitivity("add_remove") == 1
    assert utility_range("add_remove") == 2


def test_floor_of_n_over_m_breaks_the_sensitivity() -> None:
    """One row more, from 99 to 100, changes the vote of all 20 batches; of hashed blocks it changes one."""
    rows, blocks = 100, 20
    x, y = _opposed_periods()
    before = lasso_votes(x[:99], y[:99], batches_of_floor(99, blocks), blocks=blocks, k=1, penalty=0.01)
    after = lasso_votes(x, y, batches_of_floor(rows, blocks), blocks=blocks, k=1, penalty=0.01)
    assert before.tolist() == [20, 0]
    assert after.tolist() == [0, 20]
    block = np.array([keyed(number, blocks) for number in range(rows)])
    kept = [
        lasso_votes(x[:n], y[:n], block[:n], blocks=blocks, k=1, penalty=0.01, source=SeededBits(0)) for n in (99, 100)
    ]
    assert np.abs(kept[1] - kept[0]).max() <= 1


def _opposed_periods() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """100 rows of which the first 20 batches of 4 correlate with feature 0, and the 20 batches of 5 with feature 1.

    Put together from periods of 20 rows, the first that random numbers give; batches of 4 reach row 80.
    """
    generator = np.random.default_rng(1)
    x, y = generator.normal(size=(20_000, 20, 2)), generator.normal(size=(20_000, 20))

    def prefers(size: int) -> NDArray[np.float64]:
        parts, target = x.reshape(-1, 20 // size, size, 2), y.reshape(-1, 20 // size, size)
        parts, target = parts - parts.mean(axis=2, keepdims=True), target - target.mean(axis=2, keepdims=True)
        products = np.abs((parts * target[..., None]).sum(axis=2)) / parts.std(axis=2)
        return products[..., 0] - products[..., 1]

    found = np.flatnonzero((prefers(4) > 0).all(axis=1) & (prefers(5) < 0).all(axis=1))[:5]
    assert len(found) == 5
    return x[found].reshape(100, 2), y[found].reshape(100)


def test_without_noise_the_selection_is_that_of_the_votes() -> None:
    generator = np.random.default_rng(4)
    x = generator.normal(size=(400, 30))
    y = x[:, [3, 11, 17]] @ [3.0, 2.0, 1.0] + 0.1 * generator.normal(size=400)
    block = generator.integers(0, 10, 400)
    votes = lasso_votes(x, y, block, blocks=10, k=3, penalty=0.1)
    assert np.flatnonzero(votes == 10).tolist() == [3, 11, 17]
    chosen = select(votes, utility_range=utility_range("replace"), epsilon=Fraction(10**9), k=3)
    assert sorted(chosen.tolist()) == [3, 11, 17]


def tail(epsilon: Fraction, least: int) -> Decimal:
    """P(Z >= least) of discrete Laplace noise, least >= 1, to 60 digits."""
    with localcontext() as context:
        context.prec = 80
        rate = Decimal(epsilon.numerator) / Decimal(epsilon.denominator)
        return (-rate * least).exp() / (1 + (-rate).exp())


@cases("epsilon", [Fraction(1), Fraction(1, 20), Fraction(7, 3), Fraction(1, 10**6), Fraction(50)])
@cases("failure", [Fraction(1, 10**4), Fraction(1, 2), Fraction(1, 3), Fraction(1, 10**30)])
def test_the_shift_is_the_least_that_holds(epsilon: Fraction, failure: Fraction) -> None:
    shift = count_shift(epsilon, failure)
    allowed = Decimal(failure.numerator) / Decimal(failure.denominator)
    assert tail(epsilon, shift + 1) <= allowed
    assert shift == 0 or tail(epsilon, shift) > allowed


def test_a_shift_at_the_border_is_enough() -> None:
    """Where the failure is just above and just below a probability, and at extreme scales."""
    with localcontext() as context:
        context.prec = 80
        exact = Fraction(tail(Fraction(1, 10), 40))
    for nudge, expected in ((Fraction(1, 10**25), 39), (-Fraction(1, 10**25), 40)):
        assert count_shift(Fraction(1, 10), exact + nudge) == expected
    assert count_shift(Fraction(10**6), Fraction(1, 100)) == 0
    assert count_shift(Fraction(1, 10**300), Fraction(1, 100)) > 10**300


def test_blocks_from_count() -> None:
    epsilon, failure = Fraction(1), Fraction(1, 10**4)
    shift = count_shift(epsilon, failure)
    assert shift == 8
    assert blocks_from_count(1000 + shift, rows_per_block=10, epsilon=epsilon, failure=failure) == 100
    assert blocks_from_count(999 + shift, rows_per_block=10, epsilon=epsilon, failure=failure) == 99
    for small in (-(10**6), 0, 9, 10 + shift):
        assert blocks_from_count(small, rows_per_block=10, epsilon=epsilon, failure=failure) == 1
    with pytest.raises(ParameterError):
        blocks_from_count(10, rows_per_block=0, epsilon=epsilon, failure=failure)
    for bad in (Fraction(0), Fraction(1), Fraction(-1, 2)):
        with pytest.raises(ParameterError):
            count_shift(epsilon, bad)
    with pytest.raises(ParameterError):
        count_shift(Fraction(0), failure)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("rows", [1, 3])
def test_the_count_that_blocks_follow_from_hides_a_whole_unit(relation: Relation, rows: int) -> None:
    """A unit that comes, goes or takes another's place moves the number of rows by all of its rows."""
    given = {"target": "y", "k": 1, "epsilon": 1, "lower": 0, "upper": 1, "rows_per_block": 20, "count_share": 0.25}
    unit = {"privacy_unit": "u", "max_rows_per_unit": rows, "neighbours": relation}
    plan = FUNCTIONS["dp_two_stage"].plan.from_arguments("t", {**given, **unit})
    count, selection = plan.measurement.parts
    assert isinstance(count, LaplaceNoise)
    assert rows / count.scale() == count.epsilon == Fraction(1, 4)
    assert count.epsilon + selection.event.cost.epsilon == plan.epsilon


@pytest.mark.parametrize("relation", RELATIONS)
def test_votes_are_drawn_for_the_spread_of_their_changes(monkeypatch: pytest.MonkeyPatch, relation: Relation) -> None:
    """A block may take a vote from one feature and give it to another; a replaced unit changes two blocks."""
    ranges: list[int] = []

    def noted(part: OneShotSelection, votes: NDArray[np.int64], *, utility_range: int) -> list[int]:
        ranges.append(utility_range)
        return [0]

    monkeypatch.setattr(OneShotSelection, "draw", noted)
    given = {"target": "y", "features": ["a", "b"], "k": 1, "epsilon": 1, "blocks": 5, "row_id": "id"}
    plan = TwoStagePlan.from_arguments("t", {**given, "neighbours": relation})
    draw_votes(plan, np.array([3, 2]))
    assert ranges == [{"add_remove": 2, "replace": 4}[relation]]
