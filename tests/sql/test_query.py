"""dp_query through SQL: what is charged, what is free, which groups come back, and how a result looks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.contract.query.people import Lifter
from support.answers import described, private
from support.broken.planting import planted
from support.cases import cases
from support.sql_text import literal

PROTECT = """
SELECT dp_protect('clinic', epsilon := 1e11, delta := 0.09, max_rows_per_unit := 6,
  keys := {ward: ['A', 'B', 'C']}, lower := {days: 0, price: 0, age: 0}, upper := {days: 30, price: 100, age: 120},
  tables := {patients: 'id', visits: 'patient', labs: 'visit -> visits.vid'})
"""
COUNT = "SELECT ward, count(*) AS n FROM visits GROUP BY ward"


@pytest.fixture
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        opened.execute("""
            CREATE TABLE patients AS SELECT i AS id, CAST(i % 90 AS INTEGER) AS age FROM range(300) AS r(i);
            CREATE TABLE visits AS
              SELECT i AS vid, i % 300 AS patient, ['A', 'B'][1 + i % 2] AS ward, CAST(i % 14 AS INTEGER) AS days,
                CAST(i % 50 AS DECIMAL(9, 2)) AS price, DATE '2026-01-01' + CAST(i % 200 AS INTEGER) AS day,
                TIMESTAMPTZ '2026-01-01 00:30:00+00' + INTERVAL (i % 30) hour AS moment, 'k' || i % 5 AS tag
              FROM range(900) AS r(i);
            CREATE TABLE labs AS SELECT i % 900 AS visit, i % 7 AS level FROM range(1800) AS r(i);
            CREATE TABLE wards AS SELECT * FROM (VALUES ('A', 10), ('B', 20), ('D', 40)) AS v(ward, beds);
        """)
        opened.execute(PROTECT)
        opened.execute("SELECT dp_public('wards')")
        yield opened


def ask(con: Any, sql: str, more: str = "") -> list[tuple[Any, ...]]:
    """Return the answer of a query, rounded to whole numbers."""
    rows = con.execute(private(sql, more)).fetchall()
    return [tuple(round(one, 2) if isinstance(one, float) else one for one in row) for row in rows]


def releases(con: Any) -> int:
    [(found,)] = con.execute("SELECT releases FROM dp_budget() WHERE dataset = 'clinic'").fetchall()
    return int(found)


def spent(con: Any) -> float:
    [(found,)] = con.execute("SELECT epsilon_spent FROM dp_budget() WHERE dataset = 'clinic'").fetchall()
    return float(found)


def code(con: Any, call: str) -> str:
    with pytest.raises(duckdb.Error, match="DPSQL-") as raised:
        con.execute(call).fetchall()
    return str(raised.value).partition("DPSQL-")[2][:4]


def test_all_public_groups_come_back(con: Any) -> None:
    assert sorted(ask(con, COUNT)) == [("A", 450), ("B", 450), ("C", 0)]
    assert described(con, private(COUNT)) == [("ward", "VARCHAR"), ("n", "BIGINT")]


def test_a_statement_of_two_cores_is_one_charge(con: Any) -> None:
    sql = "SELECT n, m FROM (SELECT count(*) AS n FROM visits), (SELECT avg(days) AS m FROM visits WHERE days > 3)"
    [(n, m)] = ask(con, sql)
    assert (n, m) == (900, 8.55) or n == 900
    assert releases(con) == 1
    assert spent(con) == 1e8


@pytest.mark.long
def test_a_core_that_nothing_reads_is_drawn_and_charged_with_the_others(con: Any) -> None:
    """What was asked is one question: what it costs does not depend on what of it is looked at."""
    both = "SELECT n FROM (SELECT count(*) AS n FROM visits), (SELECT count(*) AS m FROM patients)"
    con.execute(f"SELECT 1 FROM dp_query({literal(both)}, epsilon := 10) LIMIT 1").fetchall()
    assert releases(con) <= 1
    con.execute(f"FROM dp_query({literal(both)}, epsilon := 10)").fetchall()
    assert releases(con) == 1
    assert spent(con) == 10


@pytest.mark.long
def test_looking_at_a_query_is_free(con: Any) -> None:
    call = private(COUNT)
    con.execute(f"DESCRIBE {call}").fetchall()
    con.execute(f"EXPLAIN {call}").fetchall()
    con.execute(f"PREPARE asked AS {call}")
    con.execute(f"CREATE VIEW shown AS {call}")
    con.execute("DESCRIBE shown").fetchall()
    assert con.execute(f"SELECT * FROM ({call}) LIMIT 0").fetchall() == []
    assert releases(con) == 0
    con.execute("EXECUTE asked").fetchall()
    assert releases(con) == 1


@pytest.mark.long
@cases(
    "other",
    [
        "SELECT ward, count(*) AS n FROM visits GROUP BY ward ORDER BY n DESC",
        "SELECT count(*) AS how_many, ward AS w FROM visits GROUP BY ward LIMIT 2",
        "SELECT ward, count(*) AS n FROM visits GROUP BY ward HAVING count(*) > 5",
        "SELECT v.ward, count(*) * 2 AS twice FROM visits AS v GROUP BY 1",
        "select WARD, COUNT(*) from Visits group by ward",
        "SELECT * FROM (SELECT ward, count(*) AS n FROM visits GROUP BY ward) ORDER BY n LIMIT 1",
        "SELECT ward, n, beds FROM (SELECT ward, count(*) AS n FROM visits GROUP BY ward) JOIN wards USING (ward)",
    ],
)
def test_the_same_cores_are_a_free_replay(con: Any, other: str) -> None:
    ask(con, COUNT)
    before = con.execute("FROM dp_budget()").fetchall()
    ask(con, other)
    ask(con, other, "delta := 1e-6")  # which nothing spends
    assert con.execute("FROM dp_budget()").fetchall() == before


@pytest.mark.long
@cases(
    ("other", "more"),
    [
        ("SELECT ward, count(*) AS n FROM visits WHERE days > 0 GROUP BY ward", ""),
        (COUNT, "max_rows_per_unit := 2"),
        (COUNT, "keys := {ward: ['A', 'B']}"),
        (COUNT, "fresh := true"),
        ("SELECT ward, count(patient) AS n FROM visits GROUP BY ward", "max_rows_per_unit := 3"),
    ],
)
def test_other_cores_are_charged(con: Any, other: str, more: str) -> None:
    ask(con, COUNT)
    ask(con, other, more)
    assert releases(con) == 2


@pytest.mark.long
def test_the_text_of_a_view_is_part_of_a_name(con: Any) -> None:
    con.execute("CREATE VIEW long AS SELECT * FROM visits WHERE days > 3")
    sql = "SELECT count(*) FROM long"
    assert ask(con, sql) == con.execute("SELECT count(*) FROM long").fetchall()
    con.execute("CREATE OR REPLACE VIEW long AS SELECT * FROM visits WHERE days > 10")
    assert ask(con, sql) == con.execute("SELECT count(*) FROM long").fetchall()
    assert releases(con) == 2


@pytest.mark.long
@pytest.mark.parametrize(
    "condition",
    [
        "CAST(moment AS DATE) = DATE '2026-01-01'",
        "moment < TIMESTAMP '2026-01-02 00:00:00'",
        "date_trunc('day', moment) = TIMESTAMP '2026-01-01 00:00:00'",
        "hour(moment) < 3",
    ],
)
def test_the_time_zone_is_part_of_a_name(con: Any, condition: str) -> None:
    """At half past midnight in UTC it is still yesterday in New York; what depends on that is asked anew, or refused."""
    sql = f"SELECT count(*) FROM visits WHERE {condition}"
    for asked, zone in enumerate(("UTC", "America/New_York")):
        con.execute(f"SET TimeZone = '{zone}'")
        try:
            answered = con.execute(private(sql)).fetchall()
        except duckdb.Error as error:
            assert "DPSQL-P0" in str(error) or "DPSQL-P1" in str(error)
            assert releases(con) == 0
            continue
        assert answered == con.execute(sql).fetchall()
        assert releases(con) == asked + 1


def test_an_answer_is_replayed_for_as_long_as_it_may(con: Any) -> None:
    ask(con, COUNT)
    ask(con, COUNT, "max_age := INTERVAL 1 hour")
    assert releases(con) == 1
    ask(con, COUNT, "max_age := INTERVAL 0 second")
    assert releases(con) == 2


@pytest.mark.long
def test_what_fails_afterwards_leaves_the_answer(con: Any) -> None:
    """The charge stays, and so does the release: the corrected query is free."""
    with pytest.raises(duckdb.Error):
        con.execute(private("SELECT CAST(ward AS INTEGER) AS w, count(*) FROM visits GROUP BY ward")).fetchall()
    after = releases(con)
    ask(con, COUNT)
    assert releases(con) == max(after, 1)


@pytest.mark.long
def test_errors_stand_beside_the_numbers(con: Any) -> None:
    sql = "SELECT ward, count(*) AS n, avg(days) AS mean, sum(count(*)) OVER () AS total FROM visits GROUP BY ward"
    call = f"FROM dp_query({literal(sql)}, epsilon := 1, errors := true)"
    names = [name for name, _ in described(con, call)]
    for column in ("n", "mean"):
        assert {f"{column}_error", f"{column}_lower", f"{column}_upper", f"{column}_verdict"} <= set(names)
    rows = {row[0]: dict(zip(names, row, strict=True)) for row in con.execute(call).fetchall()}
    assert set(rows) == {"A", "B", "C"}
    row = rows["A"]
    assert row["n_lower"] <= row["n"] <= row["n_upper"]
    assert row["n_verdict"] == "clear"
    # Of a group without rows one interval in twenty excludes 0.
    assert all((each["n_verdict"] == "clear") == (each["n_lower"] > 0 or each["n_upper"] < 0) for each in rows.values())
    assert row["total_error"] is None
    assert row["total_lower"] <= row["total"] <= row["total_upper"]
    # The interval of C, of which there is no row, ends at 0 below: it may have next to no width.
    assert row["total_upper"] - row["total_lower"] > 2 * (row["n_upper"] - row["n_lower"])


@pytest.mark.long
def test_intervals_hold_what_they_claim_in_most_calls(con: Any) -> None:
    """Of 60 answers, 95 % of intervals hold the exact count; fewer than 50 would happen once in a million."""
    call = f"SELECT n_lower <= 450 AND 450 <= n_upper FROM dp_query({literal(COUNT)}, epsilon := 1, errors := true, fresh := true) WHERE ward <> 'C'"
    held = [row[0] for _ in range(30) for row in con.execute(call).fetchall()]
    assert len(held) == 60
    assert sum(held) >= 50


KEYS = {
    "CASE": (
        "SELECT CASE WHEN days < 3 THEN 'short' WHEN days < 9 THEN 'long' END AS k, count(*) FROM visits GROUP BY 1",
        3,
    ),
    "condition, or none": ("SELECT days > 20 AS k, count(*) FROM visits GROUP BY k", 3),
    "range of months": (
        "SELECT date_trunc('month', day) AS k, count(*) FROM visits WHERE day >= DATE '2025-11-15' AND day < DATE "
        "'2026-02-02' GROUP BY 1",
        4,
    ),
    "between": (
        "SELECT day AS k, count(*) FROM visits WHERE day BETWEEN DATE '2026-01-01' AND DATE '2026-01-05' GROUP BY day",
        5,
    ),
    "month of the year": ("SELECT month(day) AS k, count(*) FROM visits GROUP BY 1", 13),
    "day of the week": ("SELECT isodow(day) AS k, count(*) FROM visits GROUP BY 1", 8),
    "IN": ("SELECT ward AS k, count(*) FROM visits WHERE ward IN ('A', 'X') GROUP BY 1", None),
    "equal": ("SELECT days AS k, count(*) FROM visits WHERE days = 5 GROUP BY 1", 1),
    "public table": ("SELECT beds AS k, count(*) FROM visits v JOIN wards w ON v.ward = w.ward GROUP BY 1", 3),
    "public table or nothing": (
        "SELECT beds AS k, count(*) FROM visits v LEFT JOIN wards w ON v.ward = w.ward GROUP BY 1",
        4,
    ),
    "bins": ("SELECT floor(days / 10) AS k, count(*) FROM visits GROUP BY 1", 5),
    "image": ("SELECT lower(ward) AS k, count(*) FROM visits GROUP BY 1", 3),
    "literal": ("SELECT 'all' AS k, count(*) FROM visits GROUP BY 1", 1),
    "no groups": ("SELECT count(*) AS k FROM visits", 1),
}


@pytest.mark.long
@cases("name", KEYS)
def test_keys_follow_from_what_is_public(con: Any, name: str) -> None:
    """They are the same whether there are rows or not, and counts are right where there are."""
    sql, groups = KEYS[name]
    full = {row[0]: row[-1] for row in ask(con, sql)}
    theirs = {row[0]: row[-1] for row in con.execute(sql).fetchall()}
    assert {key: count for key, count in full.items() if count} == {
        key: count for key, count in theirs.items() if count
    }
    con.execute("DELETE FROM visits")
    empty = {row[0] for row in ask(con, sql, "fresh := true")}
    if name != "no groups":
        assert empty == set(full)
    if groups is not None:
        assert len(full) == groups


@pytest.mark.long
def test_private_keys_need_a_delta(con: Any) -> None:
    sql = "SELECT tag AS k, count(*) FROM visits GROUP BY 1"
    assert code(con, private(sql)) == "P065"
    assert {row[0] for row in ask(con, sql, "delta := 1e-6")} == {"k0", "k1", "k2", "k3", "k4"}
    con.execute("DELETE FROM visits WHERE tag <> 'k0'")
    assert {row[0] for row in ask(con, sql, "delta := 1e-6, fresh := true")} == {"k0"}


def test_decimals_and_bounds_are_read_exactly(con: Any) -> None:
    """A literal 0.05 is 5 hundredths on every version; bounds of an expression follow from those of its columns."""
    sql = "SELECT sum(price * (1 - 0.05)) AS s, count(*) FILTER (WHERE price >= 0.05) AS n FROM visits"
    [ours], [theirs] = con.execute(private(sql)).fetchall(), con.execute(sql).fetchall()
    assert ours[1] == theirs[1]
    assert float(ours[0]) == pytest.approx(float(theirs[0]), abs=0.02)
    assert described(con, private(sql)) == described(con, sql)


def test_rows_of_a_path_are_joined(con: Any) -> None:
    assert ask(con, "SELECT count(*) FROM labs", "max_rows_per_unit := 12") == [(1800,)]
    sql = "SELECT count(*) FROM labs JOIN visits ON visit = vid WHERE ward = 'A'"
    assert ask(con, sql, "max_rows_per_unit := 12") == [(900,)]


def test_a_query_is_free_where_it_reads_nobody(con: Any) -> None:
    assert con.execute(private("SELECT sum(beds) FROM wards")).fetchall() == [(70,)]
    assert con.execute(private("SELECT 1 + 1 AS two")).fetchall() == [(2,)]
    assert con.execute(private("SELECT * FROM visits WHERE 1 = 0")).fetchall() == []
    assert releases(con) == 0


def test_a_budget_that_lacks_refuses_before_anything_is_read(con: Any) -> None:
    before = releases(con)
    assert code(con, f"FROM dp_query({literal(COUNT)}, epsilon := 1e12)") == "B001"
    assert releases(con) == before


def test_a_call_within_a_call_is_refused(con: Any) -> None:
    assert code(con, private("SELECT * FROM dp_count('visits', epsilon := 1)")) in {"P019", "P101", "P104"}


@cases("argument", ["epsilon := 0", "epsilon := -1", "epsilon := NULL", "epsilon := 1, confidence := 2"], quick=1)
def test_arguments_are_judged_first(con: Any, argument: str) -> None:
    assert code(con, f"FROM dp_query({literal(COUNT)}, {argument})").startswith("P")
    assert releases(con) == 0


@pytest.mark.long
def test_the_text_may_be_a_bound_parameter(con: Any) -> None:
    found = con.execute("FROM dp_query(?, epsilon := 1e8) ORDER BY ward", [COUNT]).fetchall()
    assert found == sorted(ask(con, COUNT))
    assert releases(con) == 1


@pytest.mark.long
def test_today_is_read_once_when_the_statement_is_bound(con: Any) -> None:
    con.execute("UPDATE visits SET day = CURRENT_DATE - CAST(vid % 40 AS INTEGER)")
    sql = (
        "SELECT day AS d, count(*) AS n FROM visits WHERE day >= CURRENT_DATE - 30 AND day < CURRENT_DATE GROUP BY day"
    )
    answered = ask(con, sql)
    assert len(answered) == 30
    assert all(isinstance(row[0], date) and not isinstance(row[0], datetime) for row in answered)
    assert sum(row[1] for row in answered) == con.execute(f"SELECT sum(n) FROM ({sql})").fetchone()[0]


@pytest.mark.long
def test_python_and_sql_are_one(con: Any) -> None:
    with dpsql.Context(con) as context:
        first = context.dp_query(COUNT, epsilon=1e8).to_arrow().to_pylist()
        assert sorted((row["ward"], row["n"]) for row in first) == sorted(ask(con, COUNT))
        assert releases(con) == 1


@pytest.mark.long
def test_periods_of_a_query_are_charged_alone() -> None:
    with dpsql.connect() as opened:
        opened.execute(
            "CREATE TABLE stays AS SELECT i % 50 AS who, DATE '2026-01-01' + CAST(i % 90 AS INTEGER) AS day, "
            "['A', 'B'][1 + i % 2] AS ward FROM range(500) AS r(i)"
        )
        opened.execute(
            "SELECT dp_protect('stays', epsilon := 1e9, privacy_unit := 'who', max_rows_per_unit := 20, period := 'month', "
            "period_of := 'day', keys := {ward: ['A', 'B']})"
        )
        sql = "SELECT ward, count(*) AS n FROM stays GROUP BY ward"
        assert code(opened, private(sql)) == "P110"
        answered = opened.execute(private(sql, "during := '2026-02'")).fetchall()
        exact = (
            "SELECT ward, count(*) FROM stays WHERE day >= DATE '2026-02-01' AND day < DATE '2026-03-01' GROUP BY ward"
        )
        assert sorted(answered) == sorted(opened.execute(exact).fetchall())
        blocks = opened.execute("SELECT block, releases FROM dp_budget() WHERE block = '2026-02'").fetchall()
        assert blocks == [("2026-02", 1)]
        opened.execute(private(sql, "during := '2026-03'")).fetchall()
        assert opened.execute("SELECT releases FROM dp_budget() WHERE block = '2026-03'").fetchall() == [(1,)]


@pytest.mark.long
def test_dated_and_undated_tables_of_a_query() -> None:
    """Rows without a date have a block of their own; in one query both would be charged to one."""
    with dpsql.connect() as opened:
        opened.execute("CREATE TABLE people AS SELECT i AS who, i % 90 AS age FROM range(50) AS r(i)")
        dated = "SELECT i % 50 AS who, DATE '2026-01-01' + CAST(i % 59 AS INTEGER) AS {} FROM range({}) AS r(i)"
        opened.execute(f"CREATE TABLE stays AS {dated.format('day', 500)}")
        opened.execute(f"CREATE TABLE calls AS {dated.format('since', 300)}")
        opened.execute(
            "SELECT dp_protect('hospital', epsilon := 1e9, max_rows_per_unit := 200, period := 'month', "
            "tables := {people: 'who', stays: 'who', calls: 'who'}, period_of := {stays: 'day', calls: 'since'})"
        )
        for rows, during, block in (
            ("people", "", "undated"),
            ("stays", "2026-01", "2026-01"),
            ("stays JOIN people USING (who) WHERE age > 20", "2026-02", "2026-02"),
            ("stays s JOIN calls c ON s.who = c.who AND s.day = c.since", "2026-02", "2026-02"),
        ):
            sql, more = f"SELECT count(*) AS n FROM {rows}", f"during := '{during}'" if during else ""
            before = dict(opened.execute("SELECT block, releases FROM dp_budget()").fetchall())
            [(found,)] = opened.execute(private(sql, more)).fetchall()
            months = {"2026-01": "< DATE '2026-02-01'", "2026-02": ">= DATE '2026-02-01'"}
            within = f" {'AND' if 'WHERE' in rows else 'WHERE'} day {months[during]}" if during else ""
            assert opened.execute(sql + within).fetchone() == (found,)
            after = dict(opened.execute("SELECT block, releases FROM dp_budget()").fetchall())
            assert {name for name in after if after[name] != before.get(name, 0)} == {block, "total"}
        both = "SELECT (SELECT count(*) FROM stays) / (SELECT count(*) FROM people) AS n"
        assert code(opened, private(both, "during := '2026-01'")) == "P110"
        assert code(opened, private(both)) == "P110"
        assert (
            code(opened, private("SELECT count(*) FROM stays JOIN calls USING (who)", "during := '2026-01'")) == "S012"
        )


@cases(
    "sql",
    [
        "SELECT (SELECT count(*) FROM visits) + (SELECT count(*) FROM beds)",
        "SELECT count(*) FROM visits JOIN beds ON vid = bed",
        "SELECT count(*) FROM beds JOIN visits ON vid = bed",
        "SELECT count(*) FROM visits WHERE vid IN (SELECT bed FROM beds)",
        "SELECT count(*) FROM (SELECT vid FROM visits UNION ALL SELECT bed FROM beds)",
    ],
    quick=1,
    alone=True,
)
def test_a_table_without_a_privacy_unit_beside_one_with_it_says_what_the_owner_writes(con: Any, sql: str) -> None:
    con.execute("CREATE TABLE beds AS SELECT i AS bed FROM range(9) AS r(i)")
    con.execute("SELECT dp_protect('beds', epsilon := 10)")
    with pytest.raises(duckdb.Error, match=r"DPSQL-S013.*dp_protect\('(memory.main.)?beds'.* replace := true"):
        con.execute(private(sql)).fetchall()


@pytest.mark.long
def test_what_the_owner_writes_then_is_answered(con: Any) -> None:
    con.execute("CREATE TABLE stays AS SELECT i AS stay, i % 300 AS who FROM range(900) AS r(i)")
    con.execute("SELECT dp_protect('stays', epsilon := 10)")
    unit = "privacy_unit := 'who', max_rows_per_unit := 3"
    con.execute(f"SELECT dp_protect('memory.main.stays', epsilon := 1e11, {unit}, replace := true)")
    both = "SELECT (SELECT count(*) FROM visits) + (SELECT count(*) FROM stays)"
    assert ask(con, both) == [(1800,)]


def test_rows_are_not_chosen_by_what_other_people_have(con: Any) -> None:
    """A splitter that takes any equality for one of a path: DuckDB's plan shows that it is none."""
    between = "SELECT count(*) FROM visits AS a WHERE EXISTS (SELECT 1 FROM visits AS b WHERE b.days = a.days)"
    parents = "SELECT count(*) FROM visits AS a WHERE EXISTS (SELECT 1 FROM visits AS b WHERE b.vid = a.vid)"
    for sql in (between, parents):
        assert code(con, private(sql)) == "S012"
        with planted((Lifter, "_keeps", lambda *_: True)):
            assert code(con, private(f"{sql} -- again")) in ("S012", "S014", "S017")
