"""How far a person in a period moves what calls on several tables with periods see, through SQL.

Nothing of a period that is not charged, the cap of one that is; and nothing of undated rows. Every database of at most
two rows is taken by the test that is marked long, and a sample of them by default.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import dpsql
from support.broken import periods as broken
from support.broken.planting import Fault, planted
from support.cases import cases
from support.dated import (
    Database,
    Owner,
    create,
    fill,
    frozen,
    owners,
    protect,
    random_database,
    small_databases,
    without,
)
from support.exact_sums import Seen, distances, exact_sums
from support.sessions import one_key

_M = "date_trunc('month', {})"
VIEWS = {
    "looked_up": "SELECT who, day, people.x FROM visits JOIN people ON id = who",
    "two_tables": f"SELECT a.who, day, b.x FROM visits a JOIN stays b ON a.who = b.who AND {_M.format('day')} = {_M.format('since')}",
    "months": f"SELECT who, {_M.format('day')} AS month, sum(x) AS x FROM visits GROUP BY ALL",
}
DATED, UNDATED = ("visits", "labs", "parts", *VIEWS), ("people", "notes")
DURING = {(1,): "'2026-01'", (2,): "'2026-02'", (1, 2): "'2026-01/2026-02'"}
CALLS = {
    "rows": "dp_count('{}', epsilon := 1{})",
    "sums": "dp_sum('{}', target := 'x', lower := 0, upper := 1, epsilon := 1{})",
    "groups": "dp_count('{}', by := 'x', keys := [0, 1], max_groups_per_unit := 1, epsilon := 1{})",
}


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        create(opened)
        for name, query in VIEWS.items():
            opened.execute(f"CREATE VIEW {name} AS {query}")
        protect(opened, broken.CAP)
        yield opened


class Exact:
    """The exact sums of calls, each computed once per database."""

    def __init__(self, con: Any) -> None:
        self._con = con
        self._known: dict[tuple[Any, ...], Seen] = {}

    def of(self, database: Database, call: str) -> Seen:
        """Return what a call adds up."""
        key = (frozen(database), call)
        if key not in self._known:
            fill(self._con, database)
            with one_key(), exact_sums() as seen:
                self._con.execute(f"FROM {call}").fetchall()
            self._known[key] = seen[-1]
        return self._known[key]


def calls(forms: Iterable[str], sources: Iterable[str]) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Yield calls, with their source and what they are charged to."""
    for source in sources:
        for form in forms:
            if source in UNDATED:
                yield form.format(source, ""), source, ("undated",)
            else:
                for charged, during in DURING.items():
                    yield form.format(source, f", during := {during}"), source, charged


def check(
    con: Any, databases: Iterable[Database], forms: Iterable[str], sources: Iterable[str] = (*DATED, *UNDATED)
) -> int:
    """Raise where an owner moves more than its block is charged for; return how often one moved anything."""
    exact, moved, forms, sources = Exact(con), 0, list(forms), list(sources)
    for database in databases:
        leaving: set[Owner] = {one for whose in owners(database).values() for each in whose for one in each}
        for owner in leaving:
            for call, source, charged in calls(forms, sources):
                if owner[1] == "undated" and source not in UNDATED:
                    continue  # what undated rows add to dated ones is protected as the whole person is
                first, second = exact.of(database, call), exact.of(without(database, owner), call)
                for l1, most, l2, squared in distances(first, second):
                    assert owner[1] in charged or l1 == 0, ("an uncharged block", call, owner, database)
                    assert l1 <= most, (call, owner, database)
                    assert l2 <= squared, (call, owner, database)
                    moved += l1 > 0
    return moved


def rich(draw: random.Random) -> Database:
    """Return a database in which more than one owner has rows."""
    while True:
        database = random_database(draw)
        found = {one for whose in owners(database).values() for each in whose for one in each}
        if {1, 2} <= {period for _, period in found}:
            return database


@pytest.mark.long
@pytest.mark.parametrize("form", CALLS.values(), ids=CALLS)
def test_an_owner_moves_no_more_than_its_block_is_charged_for(con: Any, form: str) -> None:
    assert check(con, [rich(random.Random(len(form)))], [form]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("form", CALLS.values(), ids=CALLS)
def test_no_owner_of_any_small_database_moves_more(con: Any, form: str) -> None:
    assert check(con, small_databases(2), [form]) > 100


@pytest.mark.long
@cases("seed", range(10))
def test_no_owner_of_random_databases_moves_more(con: Any, seed: int) -> None:
    check(con, [rich(random.Random(seed))], CALLS.values())


EMPTY: Database = {table: [] for table in ("people", "notes", "visits", "stays", "labs", "parts", "public")}
ONE = {**EMPTY, "people": [(1, 1, 0)], "visits": [(1, 1, "2026-01-15", 0), (2, 1, "2026-02-01", 1)]}
NULL = {**EMPTY, "people": [(1, 1, 0)], "visits": [(1, 1, None, 0)]}


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "form", "source", "database"),
    [
        (broken.CAP_PER_PERSON_ACROSS_PERIODS, CALLS["groups"], "visits", ONE),
        (broken.CAP_BEFORE_DURING, CALLS["rows"], "looked_up", ONE),
        (broken.NULL_PERIOD_EVERYWHERE, CALLS["rows"], "looked_up", NULL),
    ],
    ids=["cap_per_person_across_periods", "cap_before_during", "null_period_everywhere"],
)
def test_a_fault_in_the_unit_of_several_tables_is_found(
    con: Any, fault: Fault, form: str, source: str, database: Database
) -> None:
    check(con, [database], [form], [source])
    with planted(*fault.patches), pytest.raises(AssertionError):
        check(con, [database], [form], [source])
