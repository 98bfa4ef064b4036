"""How far one privacy unit moves grouped sums, through SQL: every order of the steps, on random neighbouring tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from support.cases import cases
from support.exact_sums import Seen, distances, exact_sums
from support.sessions import one_key

Row = tuple[Any, ...]
COLUMNS = "unit INTEGER, h VARCHAR, ward INTEGER, x DOUBLE, y DOUBLE, item VARCHAR"
RELATIONS = ("add_remove", "replace")
VALUES = (None, float("nan"), float("inf"), float("-inf"), -9.0, -4.0, -1.5, 0.0, 0.25, 2.0, 4.0, 1e300)
KEYS = {
    "": [""],
    "h": ["['a', 'b']", "['a', NULL, 'c']", "'private'"],
    "h, ward": ["{'h': ['a', 'b'], 'ward': [0, 1, 2]}", "[{'h': 'a', 'ward': 0}, {'h': 'b', 'ward': 2}]", "'private'"],
}


@pytest.fixture(autouse=True)
def same_key() -> Iterator[None]:
    """Neighbouring tables are compared under one key: a guarantee holds for each."""
    with one_key():
        yield


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    made = dpsql.connect()
    yield made
    made.close()


def load(con: Any, rows: list[Row], rng: np.random.Generator) -> None:
    """Make the table t of rows in a random order."""
    con.execute(f"CREATE OR REPLACE TABLE t ({COLUMNS})")
    listed = [rows[place] for place in rng.permutation(len(rows))]
    if listed:
        con.execute("INSERT INTO t VALUES " + ", ".join(_row(row) for row in listed))


def _row(row: Row) -> str:
    def one(value: Any) -> str:
        if value is None:
            return "NULL"
        return f"'{value}'" if isinstance(value, (str, float)) else str(value)

    return f"({', '.join(map(one, row))})"


def member(rng: np.random.Generator, unit: int | None) -> list[Row]:
    """Return the rows of one unit: few groups with many rows, or many groups, with duplicates."""
    rows: list[Row] = []
    for _ in range(rng.integers(1, 9)):
        row = (
            unit,
            [None, "a", "b", "c", "d"][rng.integers(5)],
            [None, 0, 1, 2][rng.integers(4)],
            VALUES[rng.integers(len(VALUES))],
            VALUES[rng.integers(len(VALUES))],
            [None, "p", "q", "r"][rng.integers(4)],
        )
        rows += [row] * int(rng.integers(1, 4))
    return rows


def arguments(rng: np.random.Generator, relation: str) -> tuple[str, str]:
    """Return a random function with its arguments."""
    by = list(KEYS)[rng.integers(len(KEYS))]
    keys = KEYS[by][rng.integers(len(KEYS[by]))]
    given = [f"neighbours := '{relation}'", "privacy_unit := 'unit'", "epsilon := 1"]
    if by:
        listed = ", ".join(f"'{name}'" for name in by.split(", "))
        given += [f"by := [{listed}]", f"keys := {keys}"]
        if keys != "'private'" and rng.random() < 0.4:
            given.append("other := true")
    groups, each, rows = (int(rng.integers(1, 5)) for _ in range(3))
    if by:
        given += [f"max_groups_per_unit := {groups}", f"max_rows_per_unit_group := {each}"]
    if not by or rng.random() < 0.5:
        given.append(f"max_rows_per_unit := {rows}")
    if keys == "'private'" or rng.random() < 0.5:
        given.append("delta := 1e-3")
        if rng.random() < 0.5:
            given.append("noise := 'gaussian'")
    way = rng.integers(5)
    if way == 0:
        return "dp_count", ", ".join([*given, f"distinct_of := '{['unit', 'item'][rng.integers(2)]}'"])
    if way == 1:
        return "dp_count", ", ".join([*given, *(["target := 'x'"] if rng.random() < 0.5 else [])])
    several = rng.random() < 0.5
    given.append("target := ['x', 'y']" if several else "target := 'x'")
    given += ["lower := -4", f"upper := {[4, -1][rng.integers(2)]}"]
    if rng.random() < 0.4:
        given.append("unit_value := 'sum'")
    chosen = rng.permutation(["count", "sum", "avg", "variance"])[: rng.integers(1, 4)]
    listed = ", ".join(f"'{name}'" for name in chosen)
    return "dp_aggregate", ", ".join([*given, f"aggregates := [{listed}]"])


def run(con: Any, seen: list[Seen], function: str, given: str) -> Seen:
    con.execute(f"SELECT * FROM {function}('t', {given})").fetchall()
    return seen[-1]


@pytest.mark.long
@cases("relation", RELATIONS)
@cases("seed", range(8))
def test_no_unit_moves_the_sums_further_than_noise_is_drawn_for(con: Any, relation: str, seed: int) -> None:
    rng = np.random.default_rng([seed, RELATIONS.index(relation)])
    con.execute(f"SET threads = {1 + seed % 2}")
    largest = 0.0
    with exact_sums() as seen:
        for _ in range(12):
            function, given = arguments(rng, relation)
            base = [row for unit in range(rng.integers(0, 6)) for row in member(rng, unit)]
            base += [(None, *row[1:]) for row in member(rng, None)]
            tables = (base, base + member(rng, 99))
            if relation == "replace":
                tables = (base + member(rng, 99), base + member(rng, 99))
            found = []
            for rows in tables:
                load(con, rows, rng)
                found.append(run(con, seen, function, given))
            for l1, most, l2, squared in distances(*found):
                assert l1 <= most, (function, given, tables)
                assert l2 <= squared, (function, given, tables)
                largest = max(largest, l1 / most)
    assert largest > 0.2


def test_the_bounds_are_reached(con: Any) -> None:
    """A unit with all that it may have moves the sums by just what the noise is drawn for."""
    rows = [(7, key, 0, 4.0, 0.0, "p") for key in "abcd" for _ in range(5)]
    given = (
        "target := 'x', lower := -4, upper := 4, by := 'h', keys := ['a', 'b', 'c', 'd'], privacy_unit := 'unit', "
        "max_groups_per_unit := 3, max_rows_per_unit_group := 2, epsilon := 1"
    )
    rng = np.random.default_rng(1)
    for law in ("", ", delta := 1e-3, noise := 'gaussian'"):
        with exact_sums() as seen:
            found = []
            for part in ([], rows):
                load(con, part, rng)
                found.append(run(con, seen, "dp_avg", given + law))
            [(l1, most, l2, squared)] = distances(*found)
            assert (l1, l2) == (most, squared)
            assert found[0].contribution.squared_rows == 12


@pytest.mark.long
def test_rows_of_other_units_do_not_move(con: Any) -> None:
    """Each foreign row has a bit of its own in the sum, so the sums say which of them were kept."""
    rng = np.random.default_rng(5)
    given = (
        "target := 'x', lower := -1, upper := 1, by := 'h', keys := ['a', 'b', 'c'], other := {}, privacy_unit := 'unit', "
        "max_groups_per_unit := {}, max_rows_per_unit_group := {}, max_rows_per_unit := {}, epsilon := 1"
    )
    for trial in range(12):
        con.execute(f"SET threads = {1 + trial % 2}")
        foreign = [
            (int(rng.integers(3)), [None, "a", "b", "c", "z"][rng.integers(5)], 0, 2.0 ** (bit - 20), 0.0, "p")
            for bit in range(19)
        ]
        limits = [int(limit) for limit in rng.integers(1, 4, 3)]
        call = given.format(str(bool(trial % 3)).lower(), *limits)
        kept = []
        with exact_sums() as seen:
            for more in range(3):
                mine = [(*row[:3], 0.0, 0.0, "p") for row in member(rng, 99 if more else None)]
                load(con, foreign + [row for row in mine if more], rng)
                if more == 2:  # and rows without an id
                    con.execute("INSERT INTO t SELECT NULL, 'a', 0, 0, 0, 'p' FROM range(9)")
                kept.append(run(con, seen, "dp_sum", call).sums[-1].s1.tolist())
        assert kept[0] == kept[1] == kept[2]
        assert any(kept[0])


def test_equal_rows_are_one_another(con: Any) -> None:
    """Rows that read alike tie, and which of them stays changes nothing; a column that is not read decides nothing."""
    rng = np.random.default_rng(6)
    given = (
        "target := 'x', lower := -4, upper := 4, by := 'h', keys := ['a', 'b'], privacy_unit := 'unit', "
        "max_groups_per_unit := 1, max_rows_per_unit_group := 2, epsilon := 1"
    )
    rows = [(unit, "ab"[part], 0, float(part), 0.0, "p") for unit in range(30) for part in (0, 1, 1, 0)]
    found = []
    with exact_sums() as seen:
        for shift in range(4):
            load(
                con,
                [(*row[:2], shift * place, *row[3:4], float(place), f"{place}") for place, row in enumerate(rows)],
                rng,
            )
            run(con, seen, "dp_sum", given)
            found.append(seen[-1].groups)
    assert all(one == found[0] for one in found)


@cases(("groups", "each", "most"), [(5, 3, None), (5, 3, 12), (7, 4, 9), (1000, 1, 1000), (2, 60, 100)], quick=3)
@cases("keys", ["range(1000)", "'private', delta := 1e-3"])
def test_a_unit_with_very_many_rows(con: Any, groups: int, each: int, most: int | None, keys: str) -> None:
    con.execute("CREATE OR REPLACE TABLE t AS SELECT 1 AS unit, i % 1000 AS h, i % 17 AS x FROM range(100000) AS r(i)")
    limit = "" if most is None else f"max_rows_per_unit := {most},"
    given = f"by := 'h', keys := {keys}, privacy_unit := 'unit', max_groups_per_unit := {groups}, {limit} "
    with exact_sums() as seen:
        con.execute(f"FROM dp_count('t', {given} max_rows_per_unit_group := {each}, epsilon := 1)").fetchall()
    counts = [values[0] for values in seen[-1].groups[-1].values() if values[0]]
    assert sum(counts) == min(groups * each, most or groups * each)
    assert len(counts) <= groups
    assert max(counts) <= each
    assert sum(count**2 for count in counts) <= seen[-1].contribution.squared_rows


def test_unlisted_keys_take_no_room(con: Any) -> None:
    """Rows of keys that are not listed go before a unit's groups and rows are bounded; so do the rows of NULL."""
    con.execute("CREATE OR REPLACE TABLE t AS SELECT u AS unit, k AS h FROM range(50) AS a(u), range(50) AS b(k)")
    con.execute("INSERT INTO t SELECT u, NULL FROM range(50) AS a(u)")
    unit = "privacy_unit := 'unit', max_groups_per_unit := 2, max_rows_per_unit_group := 1, epsilon := 1e12"
    sql = "SELECT value FROM dp_count('t', by := 'h', keys := [3, 17], {} {})"
    assert con.execute(sql.format("", unit)).fetchall() == [(50.0,), (50.0,)]
    # With the group of other keys a unit has three groups to choose from, and a row in each that it keeps.
    counts = [value for (value,) in con.execute(sql.format("other := true,", unit)).fetchall()]
    assert sum(counts) == 100
    assert all(20 <= count <= 48 for count in counts)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("INTEGER", "['1', '01']"),
        ("DATE", "['2020-01-01', '2020-1-1']"),
        ("DOUBLE", "['0', '-0.0']"),
        ("DOUBLE", "['nan', '-nan']"),
    ],
)
def test_two_spellings_of_a_key_are_no_two_groups(con: Any, kind: str, keys: str) -> None:
    """A row would count in both, and the noise is for one. What a type reads alike is known once it is."""
    con.execute(f"CREATE OR REPLACE TABLE t (h {kind})")
    with pytest.raises(duckdb.Error, match="P044"):
        con.execute(f"FROM dp_count('t', by := 'h', keys := {keys}, epsilon := 1)").fetchall()


# Sums of units.


@cases("value", [1e300, -1e300, 9.0, -9.0])
def test_the_sum_of_a_person_ends_at_the_bounds(con: Any, value: float) -> None:
    """Far beyond either one it moves the sums by just what the noise is drawn for, and no further."""
    given = (
        "target := 'x', lower := -4, upper := 4, unit_value := 'sum', by := 'h', keys := ['a', 'b', 'c'], "
        "privacy_unit := 'unit', max_groups_per_unit := 2, epsilon := 1, aggregates := ['sum']"
    )
    rng = np.random.default_rng(2)
    with exact_sums() as seen:
        found = []
        for part in ([], [(7, key, 0, value, 0.0, "p") for key in "abc" for _ in range(3)]):
            load(con, part, rng)
            found.append(run(con, seen, "dp_aggregate", given))
    [(l1, most, _, _)] = distances(*found)
    assert l1 == most


def test_a_person_is_one_of_those_who_decide_on_a_private_key(con: Any) -> None:
    """Whatever rows of theirs count: keys are released by the number of persons, whose noise is that of one row."""
    given = (
        "by := 'h', keys := 'private', target := 'x', lower := -4, upper := 4, privacy_unit := 'unit', "
        "max_groups_per_unit := 2, max_rows_per_unit_group := 5, delta := 1e-3, epsilon := 1, aggregates := ['count', 'sum']"
    )
    rows = [(unit, key, 0, 1.0, 0.0, "p") for unit in (1, 2) for key in "ab" for _ in range(9)]
    load(con, rows, np.random.default_rng(3))
    with exact_sums() as seen:
        run(con, seen, "dp_aggregate", given)
    assert seen[-1].groups[0] == {("a",): [2], ("b",): [2]}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT", "DECIMAL(18, 6)"])
def test_sums_of_units_hang_on_nothing_but_their_rows(con: Any, kind: str) -> None:
    """Neither on the order of rows, nor on threads, nor on other units."""
    con.execute(
        f"CREATE OR REPLACE TABLE base AS SELECT i % 20000 AS unit, 'a' AS h, ((hash(i) % 1000003) / 7919)::{kind} AS x "
        "FROM range(160000) AS r(i)"
    )
    given = (
        "target := 'x', lower := 0, upper := 700, unit_value := 'sum', by := 'h', keys := ['a'], privacy_unit := 'unit', "
        "max_groups_per_unit := 1, epsilon := 1, aggregates := ['sum', 'variance']"
    )
    found = []
    with exact_sums() as seen:
        for threads, order in itertools.product((1, 2), ("unit, x", "x", "hash(x)")):
            con.execute(f"SET threads = {threads}")
            con.execute(f"CREATE OR REPLACE TABLE t AS FROM base ORDER BY {order}")
            found.append(run(con, seen, "dp_aggregate", given).groups)
    assert all(one == found[0] for one in found)


@pytest.mark.long
@cases(
    ("kind", "values"),
    [
        ("HUGEINT", ["170141183460469231731687303715884105727"] * 3),
        ("HUGEINT", ["-170141183460469231731687303715884105728"] * 3),
        ("UHUGEINT", ["340282366920938463463374607431768211455"] * 3),
        ("DECIMAL(38, 0)", ["99999999999999999999999999999999999999"] * 3),
        ("DECIMAL(38, 37)", ["9.9999999999999999999999999999999999999"] * 3),
        ("BIGINT", ["9223372036854775807"] * 3),
        ("DOUBLE", ["1e308"] * 3),
        ("DOUBLE", ["'inf'", "'-inf'", "'nan'"]),
        ("DOUBLE", ["'nan'", "'nan'", "'nan'"]),
        ("DOUBLE", ["NULL", "NULL", "NULL"]),
        ("FLOAT", ["3.4028235e38"] * 3),
        ("FLOAT", ["-1e-45", "1e-45", "0"]),
    ],
)
@cases(
    "bounds",
    [
        (-1, 1),
        (0, 1e100),
        *(pytest.param(far, marks=pytest.mark.slow) for far in ((1e15, 1e15 + 2), (-1e-100, 1e-100))),
    ],
)
def test_no_value_raises(con: Any, kind: str, values: list[str], bounds: tuple[float, float]) -> None:
    """Whatever a row holds, all calls answer, within what one unit may move."""
    con.execute(f"CREATE OR REPLACE TABLE t (unit INTEGER, h {kind}, x {kind})")
    for value in values:
        con.execute(f"INSERT INTO t VALUES (1, {value}, {value})")
    keys = {"keys": "by := 'h', keys := ['0'],", "private": "by := 'h', keys := 'private',", "": ""}
    for by, unit in itertools.product(keys.values(), (False, True)):
        for merged in ("rows", "sum") if unit else ("rows",):
            limits = "max_groups_per_unit := 1, max_rows_per_unit_group := 1," if by else "max_rows_per_unit := 1,"
            owner = f"privacy_unit := 'unit', {limits}" if unit else ""
            given = (
                f"aggregates := ['count', 'avg', 'variance'], target := 'x', lower := {bounds[0]!r}, upper := {bounds[1]!r}, "
                f"{by} {owner} unit_value := '{merged}', delta := 1e-3, epsilon := 1"
            )
            with exact_sums() as seen:
                con.execute(f"FROM dp_aggregate('t', {given})").fetchall()
                assert seen
