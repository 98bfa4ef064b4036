"""privacy_unit and max_rows_per_unit: who is capped, by what, and what that does to the sums."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import duckdb
import pytest
from exact_reference import ONE, exact

import dpsql
from dpsql.engines.duckdb.keys import sampled
from dpsql.statistics import xty
from support.cases import cases
from support.sessions import one_key

# Every row has a feature of its own, so the sums tell which rows were kept: S**2 each, or 0.
LAYOUTS = ("wide", "array", "long")


@pytest.fixture(scope="module")
def opened() -> Iterator[duckdb.DuckDBPyConnection]:
    made = dpsql.connect()
    yield made
    made.close()


@pytest.fixture
def con(opened: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection whose calls all have one key, so that what two of them count can be compared."""
    with one_key():
        yield opened


def load(con: Any, rows: list[tuple[Any, int]], name: str = "m", width: int = 0) -> None:
    """Rows of (unit, mark); row with mark j has feature j at its upper bound, all others at the middle."""
    con.execute(f"CREATE OR REPLACE TABLE {name}_rows(u VARCHAR, mark BIGINT)")
    if rows:
        con.executemany(f"INSERT INTO {name}_rows VALUES (?, ?)", [list(row) for row in rows])
    width = width or 1 + max((mark for _, mark in rows), default=0)
    columns = ", ".join(f"(mark = {j})::INT::DOUBLE AS f{j}" for j in range(width))
    con.execute(f"CREATE OR REPLACE TABLE {name}_wide AS SELECT u, {columns}, true AS y FROM {name}_rows")
    marks = ", ".join(f"(mark = {j})::INT::DOUBLE" for j in range(width))
    con.execute(f"CREATE OR REPLACE TABLE {name}_array AS SELECT u, mark, [{marks}] AS x, true AS y FROM {name}_rows")
    con.execute(
        f"CREATE OR REPLACE TABLE {name}_long AS SELECT u, mark AS d, 'f' || mark AS token, true AS y FROM {name}_rows"
    )


def kept(con: Any, layout: str, cap: int | None, width: int, name: str = "m", **more: Any) -> list[int]:
    """How many rows with each mark were counted."""
    arguments: dict[str, Any] = {"target": "y", "lower": -1, "upper": 1, **more}
    if cap is not None:
        arguments |= {"privacy_unit": "u", "max_rows_per_unit": cap}
    if layout == "wide":
        arguments["features"] = [f"f{j}" for j in range(width)]
    elif layout == "array":
        arguments |= {"features": "x", "n_features": width}
    else:
        arguments |= {"features": "token", "row_id": "d", "names": [f"f{j}" for j in range(width)]}
    sums = exact(con, f"{name}_{layout}", **arguments)
    assert all(value % (ONE * ONE) == 0 for value in sums)
    return [value // (ONE * ONE) for value in sums]


UNITS = [
    ("p", 0),
    ("p", 1),
    ("p", 2),
    ("p", 3),
    ("p", 4),
    ("q", 5),
    ("q", 6),
    ("r", 7),
    (None, 8),
    (None, 9),
    (None, 10),
]


@cases("layout", LAYOUTS, quick=2)
@cases("cap", [1, 2, 3, 5, 9])
def test_every_unit_gives_at_most_its_cap_and_all_it_has_below(con: Any, layout: str, cap: int) -> None:
    load(con, UNITS)
    counted = kept(con, layout, cap, 11)
    by_unit: dict[Any, int] = {}
    for (unit, _), count in zip(UNITS, counted, strict=True):
        assert count in (0, 1)
        by_unit[unit] = by_unit.get(unit, 0) + count
    assert by_unit == {"p": min(5, cap), "q": min(2, cap), "r": 1, None: 0}, "rows without a unit are dropped"
    if cap == 1:
        assert kept(con, layout, None, 11) == [1] * 11, "without a unit every row counts"


@pytest.mark.parametrize("most", [1, 2, 7])
def test_the_condition_keeps_as_many_rows_as_a_unit_may_have(most: int) -> None:
    with duckdb.connect() as plain:
        plain.execute(
            "CREATE TABLE visits AS SELECT owner, i FROM range(60) AS a(owner), range(60) AS b(i) WHERE i <= owner"
        )
        kept = sampled("hash(owner)", ["owner"], ["i"], most)
        found = plain.execute(f"SELECT owner, count(*) FROM (FROM visits QUALIFY {kept}) GROUP BY owner").fetchall()
    assert dict(found) == {owner: min(owner + 1, most) for owner in range(60)}


@cases("layout", LAYOUTS, quick=1)
def test_row_order_and_threads_do_not_choose(con: Any, layout: str) -> None:
    rows = [(f"p{mark % 3}", mark) for mark in range(30)]
    load(con, rows)
    before = kept(con, layout, 4, 30)
    draw = random.Random(1)
    for threads in (1, 2, 4):
        con.execute(f"SET threads = {threads}")
        draw.shuffle(rows)
        load(con, rows, "other")
        assert kept(con, layout, 4, 30, "other") == before
    con.execute("RESET threads")


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
def test_other_units_keep_their_rows(con: Any, layout: str) -> None:
    """Adding, removing or rewriting one unit, or rows without a unit, moves no row of another."""
    draw = random.Random(7)
    for _ in range(15):
        base = [(draw.choice("abc"), mark) for mark in range(draw.randint(0, 14))]
        extra = [("z", 14 + j) for j in range(draw.randint(1, 5))] + [(None, 19 + j) for j in range(draw.randint(0, 3))]
        table = base + extra
        draw.shuffle(table)
        cap = draw.randint(1, 3)
        load(con, base, "base", 22)
        load(con, table, "more", 22)
        more = kept(con, layout, cap, 22, "more")
        assert more[:14] == kept(con, layout, cap, 22, "base")[:14]
        assert sum(more[14:19]) == min(cap, sum(unit == "z" for unit, _ in table))
        assert sum(more[19:]) == 0


@cases("layout", LAYOUTS, quick=1)
@cases("relation", ["add_remove", "replace"])
def test_one_unit_moves_no_sum_beyond_the_scaled_sensitivity(con: Any, layout: str, relation: str) -> None:
    draw = random.Random(3)
    for _ in range(8):
        cap = draw.randint(1, 4)
        rows = [(draw.choice("abz"), draw.randint(0, 2)) for _ in range(12)]
        without = [row for row in rows if row[0] != "z"]
        other = [("z", draw.randint(0, 2)) for _ in range(draw.randint(0, 9))] if relation == "replace" else []
        load(con, rows, "one", 3)
        load(con, [*without, *other], "two", 3)
        moved = zip(kept(con, layout, cap, 3, "one"), kept(con, layout, cap, 3, "two"), strict=True)
        bound = xty.component_sensitivity(relation, cap) // ONE**2
        assert max(abs(first - second) for first, second in moved) <= bound


def test_identical_rows_are_counted_up_to_the_cap(con: Any) -> None:
    load(con, [("p", 0)] * 7 + [("q", 0)] * 2)
    for layout in ("wide", "array"):
        assert kept(con, layout, 3, 1) == [5]
    assert kept(con, "long", 3, 1) == [2], "in long rows these are one document each"


def test_a_stored_row_id_chooses_and_ties_fall_to_contents(con: Any) -> None:
    load(con, [("p", mark) for mark in range(20)])
    con.execute("CREATE OR REPLACE TABLE m_array AS SELECT * REPLACE (mark // 10 AS mark) FROM m_array")
    chosen = kept(con, "array", 4, 20, row_id="mark")
    assert sum(chosen[:10]) in (0, 4), "one of the two ids comes first"
    con.execute("CREATE OR REPLACE TABLE m_array AS FROM m_array ORDER BY hash(x)")
    assert kept(con, "array", 4, 20, row_id="mark") == chosen


def test_values_that_compare_equal_do_not_let_the_place_choose(con: Any) -> None:
    con.execute(
        "CREATE OR REPLACE TABLE z AS FROM (VALUES ('p', 0.0::DOUBLE, 'nan'::DOUBLE, true), "
        "('p', -0.0, '-nan'::DOUBLE, true), "
        "('p', 0.0, NULL, true), ('p', NULL, 1.0, true)) AS t(u, a, b, y)"
    )
    con.execute("CREATE OR REPLACE TABLE zz AS FROM z ORDER BY rowid DESC")
    b = {"target": "y", "features": ["a", "b"], "lower": -1, "upper": 2, "privacy_unit": "u"}
    for cap in (1, 2, 3):
        assert exact(con, "z", **b, max_rows_per_unit=cap) == exact(con, "zz", **b, max_rows_per_unit=cap)


@cases("layout", LAYOUTS, quick=1)
def test_which_rows_are_kept_is_the_secret_of_each_call(layout: str) -> None:
    """Six calls of a session keep the same 1 of 40 rows with probability 40**-5."""
    con = dpsql.connect()
    load(con, [("p", mark) for mark in range(40)])
    assert len({tuple(kept(con, layout, 1, 40)) for _ in range(6)}) > 1
    con.close()


@pytest.mark.long
def test_the_sample_is_uniform_over_a_units_rows() -> None:
    """Chi-square of the kept row over 200 calls, 4 cells: above 40 with probability below 1e-7.

    Each call of a session has a key of its own, as on an engine.
    """
    con = dpsql.connect()
    counts = [0] * 4
    load(con, [("p", mark) for mark in range(4)])
    for _ in range(200):
        counts[kept(con, "array", 1, 4).index(1)] += 1
    con.close()
    assert sum((count - 50) ** 2 / 50 for count in counts) < 40


def test_event_range_and_guarantee_scale(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpsql.mechanisms import one_shot

    ranges: list[int] = []

    def select(utility: Any, *, utility_range: int, **_: Any) -> list[int]:
        ranges.append(utility_range)
        return [0]

    monkeypatch.setattr(one_shot, "select", select)
    load(con, UNITS)
    call = (
        "SELECT * FROM dp_sis('m_array', target := 'y', features := 'x', n_features := 11, k := 1, epsilon := 1, "
        "lower := -1, upper := 1"
    )
    for relation, cap in itertools.product(("add_remove", "replace"), (1, 3)):
        con.execute(f"{call}, neighbours := '{relation}', privacy_unit := 'u', max_rows_per_unit := {cap})").fetchall()
    assert [Fraction(value, 2 * ONE**2) for value in ranges] == [1, 3, 2, 6]
    guarantees = [row[0] for row in con.execute("SELECT guarantee FROM dp_ledger()").fetchall()]
    assert "all rows of one u (at most 3 rows)" in guarantees[1]
