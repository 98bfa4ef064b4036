"""How far one privacy unit moves what its limits leave out: on random tables, by the twin and by the statement itself."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.contract.relation import Contribution
from dpsql.mechanisms.aggregates import GroupedNoise, NoisyBlock, on_lattice
from dpsql.statistics.aggregates import (
    Block,
    DirectSum,
    GroupCount,
    Sums,
    TransformedPair,
    UnitsOver,
    left_out_contribution,
    shortened,
)
from support.broken import left_out as broken
from support.broken.planting import planted
from support.cases import cases
from support.sessions import one_key

ONE = 4
BLOCKS: tuple[Block, ...] = (
    UnitsOver(),
    GroupCount(),
    DirectSum(-1.0, 0.5, ONE),
    DirectSum(0.0, 1.0, ONE),
    TransformedPair(-1.0, 1.0, ONE),
)


def codes_of(block: Block) -> range:
    if isinstance(block, DirectSum):
        return range(round(block.lower * ONE), round(block.upper * ONE) + 1)
    return range(-ONE, ONE + 1)


def added(block: Block, beyond: Sequence[int], most: int) -> list[int]:
    """Return what a unit adds to a block, by the codes of its rows beyond its limits."""
    if isinstance(block, UnitsOver):
        return [int(bool(beyond))]
    rows, total = shortened(len(beyond), sum(beyond), most)
    sums = Sums(np.array([rows]), np.array([total]))
    return [int(one) for one in block.coordinates(sums)[:, 0]]


def test_the_cut_keeps_sums_between_those_of_as_many_rows() -> None:
    for rows, most, low, high in itertools.product(range(9), range(1, 5), range(-4, 1), range(5)):
        for total in range(rows * low, rows * high + 1):
            kept, found = shortened(rows, total, most)
            assert kept == min(rows, most)
            assert kept * low <= found <= kept * high
            assert rows > most or found == total


@cases("relation", ["add_remove", "replace"], quick=3)
@cases("most", [1, 2, 3])
@cases("block", BLOCKS, ids=lambda block: f"{block.kind} {getattr(block, 'lower', '')}")
def test_no_unit_moves_it_further(block: Block, most: int, relation: str) -> None:
    """Of all that units may add; some pair of them is as far apart as the noise is wide."""
    contribution = left_out_contribution(Contribution(relation, most, 1, most, keys=1))
    ends = codes_of(block)
    rng = random.Random(most)
    units = [[], *([ends[place]] * rows for place in (0, -1) for rows in (1, most, most + 1, 1000))]
    units += [[rng.choice(ends) for _ in range(rng.randrange(12))] for _ in range(60)]
    pairs = itertools.product(units, units if relation == "replace" else [[]])
    moves = [
        [a - b for a, b in zip(added(block, one, most), added(block, other, most), strict=True)] for one, other in pairs
    ]
    assert max(sum(map(abs, move)) for move in moves) == block.norm(contribution)
    assert max(sum(c * c for c in move) for move in moves) <= block.squared_norm(contribution)


@contextmanager
def fallen() -> Iterator[list[tuple[GroupedNoise, list[Any]]]]:
    """Note what the part of what was left out is given; draw nothing. Never private; for tests only."""
    seen: list[tuple[GroupedNoise, list[Any]]] = []

    def draw(part: GroupedNoise, sums: Sequence[Sums]) -> list[NoisyBlock]:
        exact = [block.words(given) for block, given in zip(part.blocks, sums, strict=True)]
        if part.name == "left out":
            seen.append((part, [words.integers()[:, 0].tolist() for words in exact]))
        lattices = part.lattices
        return [
            NoisyBlock(block, lattice, on_lattice(words, lattice.bits))
            for block, lattice, words in zip(part.blocks, lattices, exact, strict=True)
        ]

    with planted((GroupedNoise, "draw", draw)):
        yield seen


LIMITS = {
    "rows": "max_rows_per_unit := 3",
    "groups": "max_groups_per_unit := 2, max_rows_per_unit := 4",
    "rows in a group": "max_groups_per_unit := 2, max_rows_per_unit_group := 2",
    "all": "max_groups_per_unit := 2, max_rows_per_unit_group := 3, max_rows_per_unit := 4",
}
CALLS = {
    "count": "dp_count('t', by := 'h', keys := ['a', 'b', 'c'], ",
    "count, other keys": "dp_count('t', by := 'h', keys := ['a', 'b'], other := true, ",
    "sum": "dp_sum('t', target := 'x', lower := -1, upper := 4, by := 'h', keys := ['a', 'b', 'c'], ",
    "both": "dp_aggregate('t', aggregates := ['count', 'avg', 'variance'], target := ['x', 'y'], lower := -4, "
    "upper := 4, by := 'h', keys := ['a', 'b', 'c'], ",
    "sums of units": "dp_sum('t', target := 'x', lower := -1, upper := 4, unit_value := 'sum', by := 'h', "
    "keys := ['a', 'b', 'c'], ",
    "items": "dp_count('t', distinct_of := 'y', by := 'h', keys := ['a', 'b', 'c'], ",
}


def random_rows(rng: random.Random, unit: int, count: int) -> list[str]:
    return [
        f"({unit}, '{rng.choice('abcz')}', {rng.choice(['NULL', '-9', '-1', '0.5', '3', '99'])}::DOUBLE, "
        f"{rng.randrange(4)}::DOUBLE)"
        for _ in range(count)
    ]


@cases("limits", LIMITS, quick=1)
@cases("call", CALLS)
def test_the_statement_keeps_the_sensitivity(call: str, limits: str) -> None:
    if call == "sums of units" and limits != "groups":
        pytest.skip("its units have one row in a group")
    given = "max_groups_per_unit := 2" if call == "sums of units" else LIMITS[limits]
    rng, con, moved = random.Random(limits + call), dpsql.connect(), 0
    with fallen() as seen, one_key(b"one key, 16 byte"):
        for count in (40, 6):
            others = [row for unit in range(3) for row in random_rows(rng, unit, rng.randrange(9))]
            for mine in ([], random_rows(rng, 9, count)):
                rows = [*others, *mine, "(NULL, 'a', 1, 1)"]
                con.execute(f"CREATE OR REPLACE TABLE t AS FROM (VALUES {', '.join(rows)}) AS v(u, h, x, y)")
                con.execute(f"FROM {CALLS[call]}{given}, privacy_unit := 'u', epsilon := 1)").fetchall()
            (part, before), (_, after) = seen[-2:]
            for block, one, other in zip(part.blocks, before, after, strict=True):
                change = [a - b for a, b in zip(one, other, strict=True)]
                assert sum(map(abs, change)) <= block.norm(part.contribution)
                moved += sum(map(abs, change))
    assert moved


def test_it_is_what_fell_away() -> None:
    """Rows of units with more than count, cut; by a count that DuckDB makes of the table, and the fault by 1,000."""
    con = dpsql.connect()
    con.execute("CREATE TABLE t AS SELECT i % 7 AS u, 'a' AS h, 3.0 AS x FROM range(40) AS r(i)")
    con.execute("INSERT INTO t SELECT 9, 'a', 3.0 FROM range(1006)")
    call = "FROM dp_aggregate('t', aggregates := ['count', 'sum'], target := 'x', lower := 0, upper := 4, "
    call += "privacy_unit := 'u', max_rows_per_unit := 5, epsilon := 1)"
    exact = (
        "SELECT count(*), sum(least(n - 5, 5)), sum(n - 5) FROM (SELECT count(*) AS n FROM t GROUP BY u) WHERE n > 5"
    )
    units, rows, whole = con.execute(exact).fetchall()[0]
    with fallen() as seen:
        con.execute(call).fetchall()
        with planted(*broken.UNCUT.patches):
            con.execute(call).fetchall()
    (part, [[one], [up, down]]), (_, [[same], [high, low]]) = seen
    unit = part.blocks[1].unit
    assert (one, (up + down) / unit) == (units, rows)
    # A value of 3 is half a width above the middle of the bounds, for each row that is told of.
    assert (up - down) / unit == rows / 2
    assert (same, (high + low) / unit, (high - low) / unit) == (units, whole, whole / 2)
