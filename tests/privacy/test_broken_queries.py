"""Planted faults of queries of plain SQL: each is noticed, and the right product passes the same check."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.contract.query.split import Split
from support.answers import private
from support.broken import queries as broken
from support.broken.planting import Fault, planted
from support.cases import cases
from support.worlds import hospital

_TOLD = itertools.count()
COUNT = "SELECT ward, count(*) AS n FROM visits GROUP BY ward"
SECRET = "Zoe Zwilling"


@pytest.fixture
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        hospital(opened, people=40)
        opened.execute(f"UPDATE visits SET note = '{SECRET}'")
        yield opened


def asked(con: Any, sql: str, before: str = "") -> list[tuple[Any, ...]]:
    """Ask a query under a text that was not split before; return its answer, in order."""
    found = con.execute(before + private(f"{sql} -- {next(_TOLD)}", "fresh := true")).fetchall()
    return sorted(found, key=str)


def post(text: str) -> Callable[[Split], Split]:
    return lambda split: replace(split, post=text)


def keys(query: str) -> Callable[[Split], Split]:
    def wrong(split: Split) -> Split:
        [core] = split.cores
        [key] = core.keys
        return replace(split, cores=(replace(core, keys=(replace(key, values=None, query=query),)),))

    return wrong


# What a wrong splitter may write, and what of its answer tells of people.
READING = {
    "post_reads_people": post("SELECT name AS ward, CAST(id AS BIGINT) AS n FROM memory.main.patients"),
    "having_on_rows": post(
        'SELECT k.* FROM (FROM "__dp_0") AS k(ward, n) WHERE (SELECT count(*) FROM memory.main.visits v WHERE v.ward = k.ward) > 60'
    ),
    "order_by_exact": post(
        'SELECT k.* FROM (FROM "__dp_0") AS k(ward, n) ORDER BY (SELECT count(*) FROM memory.main.visits v WHERE v.ward = k.ward) '
        "LIMIT 1"
    ),
    "keys_from_rows": keys("SELECT DISTINCT ward FROM memory.main.visits"),
    "metadata_probe_reads": post(
        "SELECT table_name AS ward, estimated_size AS n FROM system.main.duckdb_tables() WHERE table_name = 'visits'"
    ),
}


@cases("name", READING, quick=1)
def test_a_text_that_reads_people_is_refused_by_its_plan_alone(con: Any, name: str) -> None:
    with planted(broken.splitting(READING[name])), pytest.raises(duckdb.Error, match=r"DPSQL-[SIP]"):
        asked(con, COUNT)
    with planted(broken.splitting(READING[name]), *broken.UNJUDGED):
        told = asked(con, COUNT)
    if name == "post_reads_people":
        assert len(told) == 40
    elif name == "keys_from_rows":
        assert len(told) == 4
    elif name == "metadata_probe_reads":
        assert told == con.execute("SELECT 'visits', count(*) FROM visits").fetchall()
    else:
        assert len(told) < 4


# By what is wrong: a query, the query of its keys that a wrong splitter may write, and whose going hides a group.
GROUPS = {
    "where_bound_ignored": (
        "SELECT date_trunc('month', visit_date) AS ward, count(*) AS n FROM visits "
        "WHERE visit_date >= DATE '2024-01-01' AND visit_date < DATE '2025-01-01' GROUP BY 1",
        "SELECT DISTINCT date_trunc('month', visit_date) FROM memory.main.visits",
        "month(visit_date) = 3",
        12,
    ),
    "public_table_joined_rows": (
        "SELECT w.building AS ward, count(*) AS n FROM visits v JOIN wards w ON v.ward = w.ward GROUP BY 1",
        "SELECT DISTINCT w.building FROM memory.main.wards w JOIN memory.main.visits v ON v.ward = w.ward",
        "ward IN ('C', 'D')",
        2,
    ),
}


@cases("name", GROUPS, quick=1, alone=True)
def test_groups_do_not_depend_on_rows(con: Any, name: str) -> None:
    sql, wrong, gone, groups = GROUPS[name]
    with planted(broken.splitting(keys(wrong))), pytest.raises(duckdb.Error, match=r"DPSQL-[SIP]"):
        asked(con, sql)
    shown = []
    for _ in range(2):
        right = {row[0] for row in asked(con, sql)}
        with planted(broken.splitting(keys(wrong)), *broken.UNJUDGED):
            shown.append({row[0] for row in asked(con, sql)})
        assert len(right) == groups
        con.execute(f"DELETE FROM visits WHERE {gone}")
    assert shown[0] > shown[1]


@pytest.mark.long
def test_a_name_that_is_not_whole_is_captured_unless_it_is_refused(con: Any) -> None:
    """cte_captured."""
    caller = f"WITH wards AS (SELECT '{SECRET}' AS ward) "
    wrong = post('SELECT w.ward, CAST(1 AS BIGINT) AS n FROM "__dp_0", wards w')
    with planted(broken.splitting(wrong)), pytest.raises(duckdb.Error, match=r"DPSQL-[SIP]"):
        asked(con, COUNT, caller)
    with planted(broken.splitting(wrong), *broken.UNPINNED, *broken.UNJUDGED):
        assert (SECRET, 1) in asked(con, COUNT, caller)


@pytest.mark.long
@pytest.mark.parametrize("fault", [broken.MACRO_CAPTURED, broken.MAIN_PREFIX], ids=["macro_captured", "main_prefix"])
def test_a_function_without_its_schema_is_captured(con: Any, fault: Fault) -> None:
    sql = "SELECT count(*) FROM visits WHERE upper(doctor) = 'ADA'"
    clean = asked(con, sql)
    con.execute("CREATE MACRO upper(x) AS 'ADA'; CREATE TEMP MACRO upper(x) AS 'ADA'")
    assert asked(con, sql) == clean
    with planted(*fault.patches):
        try:
            assert asked(con, sql) != clean, fault.what
        except duckdb.Error as error:
            assert "DPSQL" not in str(error), fault.what


@pytest.mark.long
def test_a_condition_outside_of_try_is_stopped_by_a_row(con: Any) -> None:
    """filter_outside_try."""
    sql = "SELECT count(*) FROM visits WHERE CAST(note AS INTEGER) > 0"
    assert asked(con, sql) == [(0,)]
    with planted(*broken.FILTER_OUTSIDE_TRY.patches), pytest.raises(duckdb.Error, match=SECRET):
        asked(con, sql)


@pytest.mark.long
def test_a_replay_beyond_its_age(con: Any) -> None:
    """replay_beyond_max_age."""

    def releases(fault: Fault | None) -> int:
        with planted(*(fault.patches if fault else ())):
            con.execute(private(COUNT, "max_age := INTERVAL 0 second")).fetchall()
        [(found,)] = con.execute("SELECT releases FROM dp_budget()").fetchall()
        return int(found)

    first = releases(None)
    assert releases(None) == first + 1
    assert releases(broken.REPLAY_BEYOND_MAX_AGE) == first + 1, broken.REPLAY_BEYOND_MAX_AGE.what
