"""Planted faults of how queries are named, charged, joined and added up: each is noticed, and the product is not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from support.answers import private
from support.broken import queries as broken
from support.broken.planting import Fault, planted
from support.broken.several import CAP_BEFORE_JOIN
from support.cases import cases
from support.exact_parts import Call, exact_parts
from support.plain_tables import create, fill, neighbours
from support.sessions import one_key
from support.sql_text import literal
from support.worlds import hospital

_TOLD = itertools.count()
SECRET = "Zoe Zwilling"
TWO = (
    "SELECT a, b FROM (SELECT count(*) AS a FROM visits), (SELECT count(DISTINCT id) AS b FROM patients WHERE age > 9)"
)


@pytest.fixture
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        hospital(opened, people=40)
        opened.execute(f"UPDATE visits SET note = '{SECRET}'")
        yield opened


def under(fault: Fault | None) -> Any:
    return planted(*(fault.patches if fault else ()))


def told(sql: str) -> str:
    """Return a text that was not split before."""
    return f"{sql} -- {next(_TOLD)}"


def spent(con: Any) -> tuple[float, int]:
    [found] = con.execute("SELECT epsilon_spent, releases FROM dp_budget()").fetchall()
    return float(found[0]), int(found[1])


def charged(con: Any, sql: str, fault: Fault | None) -> tuple[float, int] | str:
    """Return what a query costs, and how many entries it makes; the code if it fails."""
    before = spent(con)
    with under(fault):
        try:
            con.execute(f"FROM dp_query({literal(told(sql))}, epsilon := 3, fresh := true)").fetchall()
        except duckdb.Error as error:
            return str(error).partition("DPSQL-")[2][:4]  # a draw that is not charged for is not made
    after = spent(con)
    return round(after[0] - before[0], 9), after[1] - before[1]


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [broken.TWO_COMMITS, broken.UNREAD_CORE_UNCHARGED, broken.CORES_OF_DIFFERENT_PEOPLE],
    ids=["two_commits", "unread_core_uncharged_but_shown", "distinct_across_cores_shared"],
)
def test_all_cores_are_one_charge_of_all_of_epsilon(con: Any, fault: Fault) -> None:
    assert charged(con, TWO, None) == (3.0, 1)
    assert charged(con, TWO, fault) != (3.0, 1), fault.what


@pytest.mark.long
def test_a_core_that_is_not_read_is_charged_with_the_others(con: Any) -> None:
    """unread_core_uncharged_but_shown: whichever of the answers is looked at, the price is that of the statement."""
    for shown in ("a", "b", "a, b", "a + 1"):
        assert charged(con, TWO.replace("a, b", shown, 1), None) == (3.0, 1)


def test_all_parts_are_one_charge_of_all_of_epsilon_and_delta(con: Any) -> None:
    """Two cores share epsilon. If both draw their keys, each may fail with half of delta."""
    assert charged(con, TWO, None) == (3.0, 1)
    sql = (
        "SELECT a.n, b.m FROM (SELECT doctor, count(*) AS n, median(days) AS d FROM visits GROUP BY doctor) a "
        "LEFT JOIN (SELECT city, count(*) AS m FROM patients GROUP BY city) b ON a.doctor = b.city"
    )
    [(before,)] = con.execute("SELECT delta_spent FROM dp_budget()").fetchall()
    con.execute(f"FROM dp_query({literal(sql)}, epsilon := 3, delta := 1e-6)").fetchall()
    [(after,)] = con.execute("SELECT delta_spent FROM dp_budget()").fetchall()
    assert float(after) - float(before) == pytest.approx(1e-6)


@pytest.mark.long
def test_a_part_that_fails_takes_the_others_with_it(con: Any) -> None:
    """two_commits: nothing of a query is stored unless all is, and what may have been drawn is charged once."""
    from dpsql.functions.grouped.quantile import QuantileCall

    def failing(*_: object) -> object:
        raise MemoryError(SECRET)

    before = spent(con)
    sql = "SELECT ward, count(*), median(days) FROM visits GROUP BY ward"
    with planted((QuantileCall, "prepare", failing)), pytest.raises(duckdb.Error, match=r"DPSQL-I001") as raised:
        con.execute(f"FROM dp_query({literal(sql)}, epsilon := 3)").fetchall()
    assert SECRET not in str(raised.value)
    after = spent(con)
    assert (after[0] - before[0], after[1] - before[1]) == (3.0, 1)
    again = con.execute(f"FROM dp_query({literal(sql)}, epsilon := 3)").fetchall()
    assert len(again) == 4
    assert spent(con)[0] == after[0] + 3.0


@cases("fault", [None, broken.JOIN_KEY_CAST], ids=["product", "join_key_cast"], quick=3)
@cases(
    "sql",
    [
        "SELECT count(*) FROM visits v JOIN wards w ON v.note = w.beds",
        "SELECT count(*) FROM visits v, wards w WHERE w.beds = v.note",
        "SELECT count(*) FROM visits v JOIN calendar c ON v.note = c.d",
        "SELECT count(*) FROM visits v JOIN patients p ON v.patient = p.id AND v.note = p.age",
    ],
)
def test_a_key_of_another_type_stops_nothing(con: Any, sql: str, fault: Fault | None) -> None:
    with under(fault):
        try:
            assert con.execute(private(told(sql))).fetchall() == [(0,)]
        except duckdb.Error as error:
            refused = "DPSQL-S" in str(error) or "DPSQL-P" in str(error)
            assert (fault is None) == refused, str(error)
        else:
            assert fault is None


@pytest.mark.long
@pytest.mark.parametrize("fault", [None, broken.PER_PERSON_SUM_HUGEINT], ids=["product", "per_person_sum_hugeint"])
def test_a_persons_sum_stops_nothing(con: Any, fault: Fault | None) -> None:
    value = "CASE WHEN days >= 0 THEN CAST('170141183460469231731687303715884105727' AS HUGEINT) END"
    sql = f"SELECT count(s) FROM (SELECT patient, sum({value}) AS s FROM visits GROUP BY patient)"
    with under(fault):
        if fault is None:
            assert con.execute(private(told(sql))).fetchall() == [(40,)]
        else:
            with pytest.raises(duckdb.Error, match=r"(?i)overflow|out of range"):
                con.execute(private(told(sql))).fetchall()


ZONED = "SELECT count(*) FROM by_day WHERE day = DATE '2026-01-01'"


@pytest.fixture
def by_day() -> Iterator[Any]:
    """A view whose days are those of the session's time zone."""
    with dpsql.connect() as opened:
        opened.execute(
            "CREATE TABLE moments AS SELECT i % 40 AS patient, TIMESTAMPTZ '2026-01-01 00:30:00+00' AS moment FROM range(80) r(i)"
        )
        opened.execute(
            "SELECT dp_protect('moments', epsilon := 1e11, privacy_unit := 'patient', max_rows_per_unit := 4); "
            "CREATE VIEW by_day AS SELECT patient, CAST(moment AS DATE) AS day FROM moments"
        )
        yield opened


def asked_in_two_zones(con: Any, fault: Fault | None) -> list[Any]:
    found = []
    with under(fault):
        for zone in ("UTC", "America/New_York"):
            con.execute(f"SET TimeZone = '{zone}'")
            found.append(con.execute(private(ZONED)).fetchall())
    return found


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (None, [[(80,)], [(0,)]]),
        pytest.param(broken.WITHOUT_ZONE, [[(80,)], [(80,)]], marks=pytest.mark.long),
    ],
    ids=["product", "fingerprint_without_zone"],
)
def test_a_view_that_reads_the_time_zone_is_named_with_it(by_day: Any, fault: Fault | None, found: list[Any]) -> None:
    """What the texts say is the same in both zones, and the rows are not."""
    assert asked_in_two_zones(by_day, fault) == found


@cases("fault", [None, broken.WITHOUT_VIEW_TEXT], ids=["product", "fingerprint_without_view_text"], quick=1, alone=True)
def test_a_view_of_another_text_is_asked_anew(con: Any, fault: Fault | None) -> None:
    con.execute("CREATE VIEW long AS SELECT * FROM visits WHERE days > 3")
    first, second = "SELECT count(*) FROM long", "SELECT count(*) FROM visits WHERE days > 20"
    with under(fault):
        before = con.execute(private(first)).fetchall()
        con.execute("CREATE OR REPLACE VIEW long AS SELECT * FROM visits WHERE days > 20")
        if fault is None:
            assert con.execute(private(first)).fetchall() == con.execute(second).fetchall() != before
        else:
            assert con.execute(private(first)).fetchall() == before


@pytest.mark.parametrize(
    "fault", [None, pytest.param(broken.ONE_CONFIDENCE, marks=pytest.mark.long)], ids=["product", "one_confidence"]
)
def test_an_interval_of_two_numbers_holds_both(con: Any, fault: Fault | None) -> None:
    """It is wider than those of the two together, each of which fails with the whole chance."""
    sql = "SELECT count(*) AS n, count(doctor) AS k, count(*) + count(doctor) AS both FROM visits"
    with under(fault):
        rows = con.execute(f"FROM dp_query({literal(told(sql))}, epsilon := 1, errors := true)")
        names = [column[0] for column in rows.description]
        row = dict(zip(names, rows.fetchone(), strict=True))
    apart = sum(row[f"{name}_upper"] - row[f"{name}_lower"] for name in ("n", "k"))
    wider = row["both_upper"] - row["both_lower"]
    if fault is None:
        assert wider > apart + 1e-6
    else:
        assert wider == pytest.approx(apart)


@pytest.mark.long
def test_a_subquery_carries_the_unit(con: Any) -> None:
    """unit_not_carried: without it the plan has no owner in its last column, and the query is refused."""
    sql = "SELECT ward, avg(days) FROM (SELECT ward, days FROM (SELECT * FROM visits) WHERE days > 3) GROUP BY ward"
    assert con.execute(private(told(sql))).fetchall()
    before = spent(con)
    with under(broken.UNIT_NOT_CARRIED), pytest.raises(duckdb.Error, match=r"DPSQL-[SIP]"):
        con.execute(private(told(sql))).fetchall()
    assert spent(con) == before


@pytest.mark.long
@pytest.mark.parametrize("fault", [None, CAP_BEFORE_JOIN], ids=["product", "cap_before_join"])
def test_the_cap_comes_after_the_last_join(fault: Fault | None) -> None:
    """cap_before_join: two lines of each order are many of a person who has many orders."""
    database: dict[str, Any] = {"people": [], "notes": [], "parts": []}
    database["orders"] = [(key, 1, *["NULL"] * 6) for key in (1, 2, 3)]
    database["lines"] = [(key, at, *["NULL"] * 4) for key in (1, 2, 3) for at in (1, 2, 3)]
    found: list[Call] = []
    with dpsql.connect() as opened:
        create(opened)
        with under(fault), one_key(), exact_parts() as calls:
            for each in neighbours(database):
                fill(opened, each)
                text = literal(told("SELECT count(*), count(*) FILTER (WHERE o = 1) FROM lines"))
                found.append(calls.run(opened, f"FROM dp_query({text}, epsilon := 1, fresh := true)"))
    losses = [found[0].loss(other) for other in found[1:]]
    assert (max(losses) <= 1) == (fault is None), losses
