"""What a private query answers is what DuckDB answers, but for noise: dashboards and TPC-H at a very large epsilon.

Names and types are those of the query itself, and asking for them is free.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import dpsql
from support.answers import described, differences, private
from support.cases import cases
from support.worlds import has_tpch, hospital, known_statements, protect_tpch, statements, tpch

DELTA = "delta := 1e-6"
# Which groups there are is drawn, so a key of few people is not shown.
DRAWN_KEYS = {"Superset no bounds", "Tableau set top 10"}
# A cell of a quantile is as wide as one unit of the column.
SLACK = {"buckets": 1.0, "p95": 2.0}
# Bounds of these would be drawn, and some values clipped to them.
BOUNDS = {
    "per-person first": "lower := {n: 0}, upper := {n: 7}",
    "window per person": "lower := {gap: 0}, upper := {gap: 2000}",
}
DASHBOARDS = {one["name"]: one for one in known_statements("dashboards")}
TPCH = {one["query"]: one["sql"].rstrip().rstrip(";") for one in known_statements("tpch")}
ANSWERED = [name for name, one in DASHBOARDS.items() if one["verdict"] == "ANSWER"]
FREE = [name for name, one in DASHBOARDS.items() if one["verdict"] == "FREE"]
# Keys of 9 and 13 are private; the lines of one customer are at most 400.
TPCH_ANSWERED = (1, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 19, 21)
TPCH_DRAWN_KEYS = {9, 13}
TPCH_BOUNDS = {9: "lower := {ps_supplycost: 0}, upper := {ps_supplycost: 1000}"}
TPCH_FREE = (2, 11, 16)


def spent(con: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = con.execute("SELECT dataset, releases, epsilon_spent FROM dp_budget()").fetchall()
    return found


@pytest.fixture(scope="module")
def by_id() -> Iterator[Any]:
    with dpsql.connect() as opened:
        hospital(opened)
        yield opened


@pytest.fixture(scope="module")
def by_patient() -> Iterator[Any]:
    """The hospital whose patients have their id in a column of the name that visits use."""
    with dpsql.connect() as opened:
        hospital(opened, person="patient")
        yield opened


@pytest.fixture(scope="module")
def shop() -> Iterator[Any]:
    with dpsql.connect() as opened:
        if has_tpch(opened):
            opened.execute("CALL dbgen(sf = 0.01)")
            protect_tpch(opened, 400)
        else:
            tpch(opened)
        yield opened


def test_the_statements_are_those_of_the_design() -> None:
    assert (len(statements("dashboards")), len(statements("tpch"))) == (55, 22)
    assert (len(ANSWERED), len(FREE)) == (34, 6)


def check(con: Any, sql: str, *, drawn_keys: bool, slack: float, more: str = "") -> None:
    call = private(sql, f"{DELTA}{', ' * bool(more)}{more}")
    before = spent(con)
    assert described(con, call) == described(con, sql)
    assert spent(con) == before
    theirs = con.execute(sql).fetchall()
    wrong = differences(con.execute(call.removesuffix(")") + ", fresh := true)").fetchall(), theirs, slack=slack)
    if drawn_keys:
        missing = [one for one in wrong if one.startswith("not answered")]
        assert len(missing) < 0.75 * len(theirs)
        wrong = [one for one in wrong if one not in missing]
    assert wrong == []
    [(_, releases, _)] = before
    assert spent(con)[0][1] == releases + 1
    assert len(con.execute(call).fetchall()) >= 0
    assert spent(con)[0][1] == releases + 1  # a replay is free


@cases("name", ANSWERED, quick=1)
def test_a_dashboard_shows_what_it_showed(by_id: Any, by_patient: Any, name: str) -> None:
    sql = DASHBOARDS[name]["sql"]
    con = by_patient if "USING (patient)" in sql else by_id
    check(con, sql, drawn_keys=name in DRAWN_KEYS, slack=SLACK.get(name, 1e-3), more=BOUNDS.get(name, ""))


@cases("name", FREE, quick=5)
def test_what_shows_no_rows_is_free(by_id: Any, name: str) -> None:
    sql = DASHBOARDS[name]["sql"]
    before = spent(by_id)
    call = private(sql)
    assert described(by_id, call) == described(
        by_id, f"({sql})" if sql.startswith("SELECT") else f"SELECT * FROM ({sql})"
    )
    answered = by_id.execute(call).fetchall()
    assert spent(by_id) == before
    if "WHERE 1=0" in sql or "LIMIT 0" in sql:
        assert answered == []
    else:
        assert answered


@cases("number", TPCH_ANSWERED if TPCH else (), quick=1)
def test_tpch_is_answered(shop: Any, number: int) -> None:
    check(shop, TPCH[number], drawn_keys=number in TPCH_DRAWN_KEYS, slack=10.0, more=TPCH_BOUNDS.get(number, ""))


@cases("number", TPCH_FREE if TPCH else (), quick=2)
def test_tpch_of_public_tables_is_free(shop: Any, number: int) -> None:
    before = spent(shop)
    call = private(TPCH[number])
    assert described(shop, call) == described(shop, TPCH[number])
    assert differences(shop.execute(call).fetchall(), shop.execute(TPCH[number]).fetchall()) == []
    assert spent(shop) == before
