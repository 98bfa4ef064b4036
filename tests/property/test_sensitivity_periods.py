"""How far a person in a period moves what a call sees: nothing of a period that is not charged, and the cap of one that is.

Tables of at most four rows over two people, two periods and no period, and two values; every unit of it removed; every
choice of periods. Tests that are marked long take a sample of the tables, those that are marked slow all of at most
three rows.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.functions.covariance import CovarianceCall
from support.broken import periods as broken
from support.broken.planting import Fault, planted
from support.cases import cases
from support.exact_sums import Seen, distances, exact_sums
from support.sessions import one_key

Row = tuple[str, str | None, int]
DATES = {1: "2026-01-15", 2: "2026-02-03", None: None}
PEOPLE, VALUES = ("A", "B"), (0, 1)
ROWS: list[Row] = [(person, DATES[period], value) for person in PEOPLE for period in DATES for value in VALUES]
DURING = {(1,): "'2026-01'", (2,): "'2026-02'", (1, 2): "'2026-01/2026-02'"}
LIMITS = "by := 'x', keys := [0, 1], max_groups_per_unit := {g}, max_rows_per_unit_group := {r}, epsilon := 1"
CALLS = {
    "rows": "dp_count('t', epsilon := 1)",
    "rows of a view": "dp_count('v', epsilon := 1)",
    "rows that meet a condition": "dp_count('t', condition := 'x > 0', epsilon := 1)",
    "people": "dp_count('t', distinct_of := 'person', epsilon := 1)",
    "items": "dp_count('t', distinct_of := 'x', epsilon := 1)",
    "groups": f"dp_count('t', {LIMITS.format(g=1, r=1)})",
    "people of groups": "dp_count('t', distinct_of := 'person', by := 'x', keys := [0, 1], epsilon := 1)",
    "private keys": "dp_count('t', by := 'x', keys := 'private', delta := 1e-6, epsilon := 1)",
    "sums": "dp_sum('t', target := 'x', lower := 0, upper := 1, epsilon := 1)",
    "sums of units": "dp_sum('t', target := 'x', lower := 0, upper := 1, unit_value := 'sum', epsilon := 1)",
}
COLLECTED = "dp_covariance('t', features := ['x', 'y'], lower := 0, upper := 1, epsilon := 1)"


@pytest.fixture
def con() -> Iterator[Any]:
    with dpsql.connect() as connection:
        connection.execute("CREATE TABLE t (person VARCHAR, day DATE, x INTEGER, y INTEGER)")
        connection.execute("CREATE VIEW v AS SELECT x, day AS at, person AS who FROM t")
        connection.execute(
            f"SELECT dp_protect('t', epsilon := 1e9, delta := 0.5, privacy_unit := 'person', max_rows_per_unit := "
            f"{broken.CAP}, period := 'month', period_of := 'day')"
        )
        yield connection


def tables(most: int = 4) -> list[tuple[Row, ...]]:
    """Return every table of at most so many rows, in any order."""
    return [table for rows in range(most + 1) for table in itertools.combinations_with_replacement(ROWS, rows)]


def sample(number: int, seed: int) -> list[tuple[Row, ...]]:
    every = tables()
    return [every[place] for place in np.random.default_rng(seed).choice(len(every), number, replace=False)]


def load(con: Any, table: tuple[Row, ...]) -> None:
    con.execute("DELETE FROM t")
    if table:
        con.executemany("INSERT INTO t VALUES (?, ?, ?, 1)", [list(row) for row in table])


def less(table: tuple[Row, ...], person: str, date: str | None) -> tuple[Row, ...]:
    return tuple(row for row in table if row[:2] != (person, date))


class Exact:
    """The exact sums of a call, each computed once per table."""

    def __init__(self, con: Any, call: str) -> None:
        self._con, self._call = con, call
        self._known: dict[tuple[Any, ...], Seen] = {}

    def of(self, table: tuple[Row, ...], during: str) -> Seen:
        key = (tuple(sorted(table, key=str)), during)
        if key not in self._known:
            load(self._con, table)
            with one_key(), exact_sums() as seen:
                self._con.execute(f"FROM {self._call[:-1]}, during := {during})").fetchall()
            self._known[key] = seen[-1]
        return self._known[key]


def check(con: Any, call: str, chosen: list[tuple[Row, ...]]) -> int:
    """Raise where a unit moves more than its block is charged for; return how often one moved anything."""
    exact, moved = Exact(con, call), 0
    for table in chosen:
        for person, date in sorted({row[:2] for row in table}, key=str):
            period = next(period for period, day in DATES.items() if day == date)
            for charged, during in DURING.items():
                seen = [exact.of(each, during) for each in (table, less(table, person, date))]
                change = list(distances(*seen))
                moved += any(one[0] for one in change)
                if period not in charged:
                    assert not any(one[0] for one in change), ("an uncharged block", call, table, person, date, during)
                for l1, most, l2, squared in change:
                    assert l1 <= most, (call, table, person, date, during)
                    assert l2 <= squared, (call, table, person, date, during)
    return moved


@pytest.mark.long
@cases("call", CALLS.values(), ids=list(CALLS))
def test_a_unit_moves_no_more_than_its_block_is_charged_for(con: Any, call: str) -> None:
    assert check(con, call, sample(3, seed=len(call))) > 0


def test_which_rows_of_a_person_count_in_a_period_is_decided_there(con: Any) -> None:
    """As many count in each as in a call about it alone: what a person does in others takes none of their places."""
    rows = [("A", date, value % 2) for date in (DATES[1], DATES[2]) for value in range(2 * broken.CAP)]
    exact = Exact(con, CALLS["rows"])
    [[alone]] = exact.of(tuple(rows), DURING[1,]).groups[0].values()
    [[both]] = exact.of(tuple(rows), DURING[1, 2]).groups[0].values()
    assert (alone, both) == (broken.CAP, 2 * broken.CAP)


@pytest.mark.long
@cases("call", CALLS.values(), ids=list(CALLS))
def test_no_unit_of_many_small_tables_moves_more(con: Any, call: str) -> None:
    assert check(con, call, sample(12, seed=len(call) + 1)) > 4


@pytest.mark.slow
@cases("call", CALLS.values(), ids=list(CALLS))
def test_no_unit_of_any_small_table_moves_more(con: Any, call: str) -> None:
    assert check(con, call, tables(3)) > 100


@contextmanager
def collected() -> Iterator[list[Counter[tuple[Any, ...]]]]:
    """Note the rows that the collector of a call gets."""
    seen: list[Counter[tuple[Any, ...]]] = [Counter()]
    collect = vars(CovarianceCall).get("collect")
    owner = next(one for one in CovarianceCall.__mro__ if "collect" in vars(one))
    collect = vars(owner)["collect"]

    def noted(self: Any, collector: Any, rows: Any, batch: Any) -> Any:
        seen[-1].update(tuple(row.values()) for row in rows.to_pylist())
        return collect(self, collector, rows, batch)

    with planted((owner, "collect", noted)):
        yield seen


@pytest.mark.long
def test_a_unit_changes_no_more_rows_of_a_fit_than_its_cap(con: Any) -> None:
    largest = 0
    with one_key(), collected() as seen:

        def rows_of(table: tuple[Row, ...], during: str) -> Counter[tuple[Any, ...]]:
            load(con, table)
            seen.append(Counter())
            con.execute(f"FROM {COLLECTED[:-1]}, during := {during})").fetchall()
            return seen[-1]

        for table in sample(3, seed=3):
            for person, date in {row[:2] for row in table}:
                for charged, during in DURING.items():
                    first, second = rows_of(table, during), rows_of(less(table, person, date), during)
                    changed = (first - second).total() + (second - first).total()
                    in_charge = any(DATES[period] == date for period in charged)
                    assert changed <= (broken.CAP if in_charge else 0), (table, person, date, during)
                    largest = max(largest, changed)
    assert largest == broken.CAP


MANY = (("A", DATES[1], 0), ("A", DATES[1], 1), ("A", DATES[2], 0), ("A", None, 0))
ROWS_OF_A = (("A", DATES[1], 0), ("A", DATES[2], 1))


@pytest.mark.long
@cases(
    ("fault", "call", "table"),
    [
        (broken.CAP_PER_PERSON_ACROSS_PERIODS, CALLS["groups"], ROWS_OF_A),
        (broken.CAP_BEFORE_DURING, CALLS["rows"], (("A", DATES[1], 0), ("A", DATES[2], 1))),
        (broken.NULL_PERIOD_EVERYWHERE, CALLS["rows"], (("A", None, 0),)),
    ],
    ids=["cap_per_person_across_periods", "cap_before_during", "null_period_everywhere"],
    quick=1,
)
def test_a_fault_in_the_unit_is_found(con: Any, fault: Fault, call: str, table: tuple[Row, ...]) -> None:
    check(con, call, [table])
    with planted(*fault.patches), pytest.raises(AssertionError):
        check(con, call, [table])


def test_a_sum_per_person_that_is_none_per_period_is_refused_and_would_leak(con: Any) -> None:
    """`double_sum_per_person`: rows of February are in a sum for which January is charged."""
    con.execute("CREATE VIEW summed AS SELECT person, day, sum(x) OVER (PARTITION BY person) AS x FROM t")
    call = "dp_sum('summed', target := 'x', lower := 0, upper := 4, epsilon := 1)"
    table: tuple[Row, ...] = (("A", DATES[1], 1), ("A", DATES[2], 1))
    with pytest.raises(Exception, match="DPSQL-S012"):
        check(con, call, [table])
    with planted(*broken.DOUBLE_SUM_PER_PERSON.patches), pytest.raises(AssertionError, match="an uncharged block"):
        check(con, call, [table])
