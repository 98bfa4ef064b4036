"""Aggregates whose bounds are drawn, through SQL: what the bounds and the sums cost, and what planted faults cost.

The scans for the bounds are observed at their samplers; the sums are read without noise, after the same bounds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

import dpsql
from dpsql.functions.grouped.aggregate import AggregatePlan
from dpsql.mechanisms.aggregates import GroupedNoise
from dpsql.mechanisms.keyed_aggregates import KeyedNoise
from support.broken import broken_fit
from support.broken.groups import BOUNDS_FOR_ROWS, BOUNDS_OF_ALL_ROWS
from support.broken.planting import planted
from support.cases import cases
from support.exact_sums import Seen, distances, exact_sums
from support.laws.regression import Loss, Observation, Stated, observe, pair_loss, worst_case
from support.sql_text import named

INTERVAL = ["start", "scan", "scan", "rows"]
ROWS = 1200
UNIT = {"privacy_unit": "u", "max_rows_per_unit": 3}
GROUPS = {"by": "g", "keys": ["a", "b", "c"]}
LIMITS = {"privacy_unit": "u", "max_groups_per_unit": 2, "max_rows_per_unit_group": 2}
TWO = {"aggregates": ["count", "sum", "avg", "stddev"], "target": ["x", "y"]}
# Function, arguments, rows of a unit that count, and targets.
CASES: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "sum": ("dp_sum", {"target": "y"}, 1, 1),
    "mean, replace": ("dp_avg", {"target": "y", "neighbours": "replace"}, 1, 1),
    "variance of units": ("dp_variance", {"target": "y", **UNIT}, 3, 1),
    "two columns": ("dp_aggregate", {**TWO, "bounds_share": 0.6}, 1, 2),
    "Gaussian groups": ("dp_avg", {"target": "y", **GROUPS, "delta": 1e-5, "noise": "gaussian"}, 1, 1),
    "groups of units": ("dp_sum", {"target": "y", **GROUPS, **LIMITS}, 4, 1),
    "groups of units, replace": ("dp_avg", {"target": "y", **GROUPS, **LIMITS, "neighbours": "replace"}, 4, 1),
    "other groups": ("dp_avg", {"target": "y", "by": "g", "keys": ["a"], "other": True, **UNIT}, 3, 1),
    "private keys": ("dp_avg", {"target": "y", "by": "g", "keys": "private", "delta": 1e-5, **LIMITS}, 4, 1),
}
EPSILON = 24


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    opened = dpsql.connect()
    opened.execute(
        "CREATE TABLE t AS SELECT i % ? AS u, ['a', 'b', 'c', 'd'][1 + i // ? % 4] AS g, ((i * 37) % 101) / 50 + 3 AS y, "
        "-((i * 53) % 97)::DOUBLE AS x FROM range(?) AS r(i)",
        [ROWS // 3, ROWS // 6, ROWS],
    )
    yield opened
    opened.close()


def seen(
    connection: Any, name: str, source: str, answers: Observation | None = None, epsilon: float = EPSILON
) -> tuple[Observation, Seen]:
    """Return the releases of the bounds, and the exact sums after these."""
    function, given, _, _ = CASES[name]
    sql = f"FROM {function}('{source}', {named({'epsilon': epsilon, **given})})"
    with exact_sums() as sums:
        found = observe(lambda: connection.execute(sql).fetchall(), None if answers is None else answers.releases)
    return Observation(None, found.releases), sums[-1]


def columns(found: Observation) -> list[Observation]:
    """Return the releases of each column; every column has its own scans."""
    assert [one.role for one in found.releases] == INTERVAL * (len(found.releases) // 4)
    return [Observation(None, found.releases[start : start + 4]) for start in range(0, len(found.releases), 4)]


def stated(name: str, rows: int = ROWS) -> Stated:
    _, given, most, _ = CASES[name]
    return Stated(given.get("neighbours", "add_remove"), rows, max_rows_per_unit=most)


def spent(loss: Loss) -> float:
    assert not loss.squared_mu
    return sum(loss.epsilon.values())


@cases("name", CASES)
def test_bounds_and_sums_are_worth_what_the_ledger_says(connection: Any, name: str) -> None:
    _, given, most, targets = CASES[name]
    share = given.get("bounds_share", 0.25)
    found, sums = seen(connection, name, "t")
    each = columns(found)
    assert len(each) == targets
    bounds = [spent(worst_case(one, stated(name))) for one in each]
    assert bounds == pytest.approx([EPSILON * share / targets] * targets, rel=0.01)
    assert sum(bounds) <= EPSILON * share * (1 + 1e-9)
    [charged] = connection.execute(
        "SELECT epsilon, delta FROM dp_ledger() WHERE kind = 'release' ORDER BY sequence DESC LIMIT 1"
    ).fetchall()
    assert charged == (EPSILON, given.get("delta", 0))
    part: Any = plan(name).part
    assert sums.contribution.rows == most
    assert sums.blocks == list(part.blocks)
    assert part.epsilon == EPSILON * (1 - Fraction(str(share)) - (plan(name).left_out_share or 0))


def plan(name: str) -> AggregatePlan:
    from dpsql.functions.registry import function_of

    function, given, _, _ = CASES[name]
    made = function_of(function).plan.from_arguments("t", {"epsilon": EPSILON, **given})
    assert isinstance(made, AggregatePlan)
    return made


def pairs(name: str, seed: int, count: int) -> Iterator[tuple[str, str]]:
    """Yield scripts of neighbouring tables, with missing and wild values; units have more rows than count."""
    generator = random.Random(seed)
    _, given, _, _ = CASES[name]
    by_unit = "privacy_unit" in given

    def value() -> str:
        wild = ["NULL", "'nan'", "'inf'", "-1e300", "1e6", "0", "-0.0"]
        return f"({generator.choice(wild) if generator.random() < 0.2 else generator.gauss(5, 3)})::DOUBLE"

    def unit(number: int) -> list[str]:
        rows = generator.randrange(1, 9) if by_unit else 1
        return [f"({number}, '{generator.choice('abcd')}', {value()}, {value()})" for _ in range(rows)]

    for _ in range(count):
        base = [row for number in range(200) for row in unit(number)]
        first, second = base + unit(1000), base + (unit(1000) if given.get("neighbours") == "replace" else [])
        yield (
            f"SELECT * FROM (VALUES {', '.join(first)}) AS v(u, g, y, x)",
            f"SELECT * FROM (VALUES {', '.join(second)}) AS v(u, g, y, x)",
        )


def replayed(connection: Any, name: str, tables: tuple[str, str]) -> tuple[list[Loss], list[Loss], float]:
    """Return what the bounds of each column cost on two tables and at worst, and how far the sums are apart."""
    for source, rows in zip(("one", "other"), tables, strict=True):
        connection.execute(f"CREATE OR REPLACE TABLE {source} AS {rows}")
    first, before = seen(connection, name, "one")
    second, after = seen(connection, name, "other", first)
    worst = [worst_case(one, stated(name)) for one in columns(first)]
    cost = [pair_loss(*both) for both in zip(columns(first), columns(second), strict=True)]
    apart = max(max(l1 / most, l2 / squared) for l1, most, l2, squared in distances(before, after))
    return cost, worst, apart


@cases("name", CASES)
def test_neighbours_differ_by_what_the_noise_is_for(connection: Any, name: str) -> None:
    """Bounds by their scans; after equal bounds, sums by the norms of their blocks."""
    for tables in pairs(name, 5, 2):
        cost, worst, apart = replayed(connection, name, tables)
        for one, most in zip(cost, worst, strict=True):
            assert one.exceeds(most) == []
        assert apart <= 1


@pytest.mark.slow
@cases("name", CASES)
def test_many_neighbours_differ_by_what_the_noise_is_for(connection: Any, name: str) -> None:
    for tables in pairs(name, 6, 40):
        cost, worst, apart = replayed(connection, name, tables)
        assert all(one.exceeds(most) == [] for one, most in zip(cost, worst, strict=True))
        assert apart <= 1


# --- planted faults

BASE = "SELECT i AS u, 'a' AS g, 5.0 + i % 3 AS y, 0.0 AS x FROM range(300) AS r(i)"
MORE = f"{BASE} UNION ALL SELECT 1000, 'b', 1e6, 0.0 FROM range(40)"


def test_bounds_of_all_rows_of_a_unit(connection: Any) -> None:
    """The scans stay within the loss for m rows; where a unit's rows are not capped in that pass, they do not."""
    name = "groups of units"
    [cost], [worst], _ = replayed(connection, name, (BASE, MORE))
    assert cost.exceeds(worst) == []
    with planted(*BOUNDS_OF_ALL_ROWS.patches):
        [cost], [worst], apart = replayed(connection, name, (BASE, MORE))
    assert cost.exceeds(worst) != []
    assert apart <= 1


def test_bounds_at_the_noise_of_one_row(connection: Any) -> None:
    [found] = columns(seen(connection, "groups of units", "t")[0])
    assert spent(worst_case(found, stated("groups of units"))) <= EPSILON / 4 * (1 + 1e-9)
    with planted(*BOUNDS_FOR_ROWS.patches):
        [found] = columns(seen(connection, "groups of units", "t")[0])
    assert spent(worst_case(found, stated("groups of units"))) == pytest.approx(EPSILON)


@pytest.mark.parametrize("fault", [None, "free range"])
def test_bounds_are_not_the_ends_of_the_data(connection: Any, fault: str | None) -> None:
    """What the result says of its bounds follows from the answers of the scans alone."""

    def bounds(source: str, answers: Observation | None = None) -> Observation:
        context = dpsql.Context(connection)

        def ends() -> list[float]:
            block = context.dp_sum(source, target="y", epsilon=EPSILON).result["blocks"][0]
            return [*block["drawn"], *block["bounds"]]

        with exact_sums():
            return observe(ends, None if answers is None else answers.releases)

    connection.execute(f"CREATE OR REPLACE TABLE one AS {BASE}")
    connection.execute(f"CREATE OR REPLACE TABLE other AS {BASE} UNION ALL SELECT 1000, 'b', 1e6, 0.0")
    if fault is None:
        first = bounds("one")
        assert len(first.result) == 12
        assert pair_loss(first, bounds("other", first)).within(EPSILON / 4, 0)
        return
    with broken_fit(fault):
        first = bounds("one")
        assert first.releases == []
        with pytest.raises(AssertionError, match="the result depends on the table"):
            pair_loss(first, bounds("other", first))


# --- what cannot fail late


@cases("function", ["dp_sum", "dp_avg", "dp_stddev"])
@cases("noise", ["laplace", "gaussian"])
def test_every_interval_makes_a_block_of_equal_noise(function: str, noise: str) -> None:
    """Every cell as an interval: codes are numbers, and the noise of the block does not know the bounds."""
    from dpsql.functions.grouped.aggregate import within
    from dpsql.functions.registry import function_of
    from dpsql.kernels.cells import FINE_CELLS, GridCounts, fine_interval

    given = {"target": "x", "epsilon": 1, "delta": 1e-6, "noise": noise}
    made = function_of(function).plan.from_arguments("t", given)
    assert isinstance(made, AggregatePlan)
    assert isinstance(made.part, (GroupedNoise, KeyedNoise))
    [block] = made.blocks
    for cell in (*range(0, FINE_CELLS, 97), FINE_CELLS // 2, FINE_CELLS - 1):
        ends = fine_interval(cell, cell)
        other: Any = within(block, ends)
        middle, scale = other.affine
        assert other.norm(made.contribution) == block.norm(made.contribution)
        assert other.squared_norm(made.contribution) == block.squared_norm(made.contribution)
        assert abs((ends[1] - middle) * scale) <= 2**20 + 1
        assert other.limits[0] <= other.limits[1]
        assert GridCounts(*ends, 1024).edges[-1] == ends[1]
