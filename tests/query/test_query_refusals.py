"""What a private query refuses: before a row is read, at no charge, and with a next step that runs.

A reader that fails stands behind the tables, so that a refusal that reads rows would be seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.session import Session
from support.answers import private
from support.broken.planting import planted
from support.cases import cases
from support.worlds import ANSWERED_SINCE, hospital, known_statements, tpch

DASHBOARDS = {one["name"]: one for one in known_statements("dashboards")}
TPCH = {one["query"]: one["sql"].rstrip().rstrip(";") for one in known_statements("tpch")}
DEEP = 60
# By code: queries that are refused with it.
REFUSED: dict[str, tuple[str, ...]] = {
    "P100": (
        "PIVOT visits ON ward USING count(*)",
        "SELECT 1; SELECT 2",
        "INSERT INTO visits SELECT * FROM visits",
        "SELECT count(*) FROM",
        "",
        "COPY visits TO 'x.csv'",
        f"SELECT {'(' * 60}1{')' * 60}{' + 1' * 50} FROM visits",
        "SELECT " + " + ".join(["days"] * 400) + " FROM visits",
        "SELECT count(*) FROM " + "(SELECT * FROM " * 30 + "visits" + ")" * 30,
        "SELECT count(*) FROM visits WHERE days IN (" + ", ".join(map(str, range(12000))) + ")",
        "SELECT 1 -- " + "x" * 100_001,
    ),
    "P101": (
        "SUMMARIZE visits",
        "SELECT estimated_size FROM duckdb_tables()",
        "SELECT count(*) FROM visits, LATERAL (SELECT days + 1)",
        "WITH dpsql_w AS (SELECT 1) SELECT count(*) FROM visits, dpsql_w",
        "WITH __dp_0 AS (SELECT 1) SELECT count(*) FROM visits, __dp_0",
        "SELECT count(*) FROM (VALUES (1)) AS dpsql_v(x), visits",
    ),
    "P102": (
        "SELECT * FROM visits LIMIT 1001",
        "SELECT patient, count(*) FROM visits GROUP BY patient",
        "SELECT DISTINCT patient FROM visits",
        "SELECT name FROM patients WHERE age > 90",
        "SELECT days FROM visits UNION ALL SELECT age FROM patients",
        "SELECT v.ward, p.name FROM visits v JOIN patients p ON p.id = v.patient",
        "SELECT ward, (SELECT count(*) FROM labs l WHERE l.visit = v.id) FROM visits v",
    ),
    "P103": (
        "SELECT avg(days) FROM (SELECT * FROM visits ORDER BY visit_date DESC LIMIT 1000)",
        "SELECT count(*) FROM visits TABLESAMPLE 10%",
        "SELECT count(*) FROM (SELECT patient FROM visits EXCEPT SELECT id FROM patients)",
        "SELECT count(*) FROM (SELECT patient FROM visits INTERSECT SELECT id FROM patients)",
        "SELECT count(*) FROM visits POSITIONAL JOIN patients",
        "SELECT count(*) FROM visits v ASOF JOIN patients p ON v.patient = p.id AND v.visit_date >= p.born",
        "SELECT avg(days) FROM (SELECT DISTINCT ON (ward) * FROM visits)",
        "WITH RECURSIVE r AS (SELECT patient FROM visits UNION ALL SELECT patient + 1 FROM r WHERE patient < 3) "
        "SELECT count(*) FROM r",
    ),
    "P104": (
        "SELECT * FROM pragma_storage_info('visits')",
        "SELECT count(*) FROM read_csv('x.csv')",
        "SELECT count(*) FROM query('SELECT * FROM visits')",
        "SELECT sql FROM duckdb_views()",
        "SELECT * FROM duckdb_settings()",
        "SELECT avg(s) FROM (SELECT patient, stddev(days) AS s FROM visits GROUP BY patient)",
        "SELECT avg(s) FROM (SELECT patient, skewness(days) AS s FROM visits GROUP BY patient)",
        "SELECT avg(s) FROM (SELECT patient, corr(days, cost) AS s FROM visits GROUP BY patient)",
        "SELECT avg(len(s)) FROM (SELECT patient, string_agg(doctor, ',') AS s FROM visits GROUP BY patient)",
        "SELECT avg(len(s)) FROM (SELECT patient, list(days) AS s FROM visits GROUP BY patient)",
        "SELECT avg(s) FROM (SELECT patient, arg_max(days, cost) AS s FROM visits GROUP BY patient)",
        "SELECT avg(s) FROM (SELECT patient, product(days) AS s FROM visits GROUP BY patient)",
    ),
    "P105": (
        "SELECT count(*) FROM visits WHERE days > (SELECT avg(days) FROM visits)",
        "SELECT t0.ward, SUM(t0.days) / SUM(t1.n) AS r FROM visits t0 JOIN (SELECT ward, COUNT(1) AS n FROM visits "
        "GROUP BY 1) t1 ON t0.ward = t1.ward GROUP BY 1",
        "SELECT count(*) FROM visits WHERE ward IN (SELECT ward FROM visits GROUP BY ward HAVING count(*) > 100)",
        "SELECT avg(days - m) FROM visits, (SELECT avg(days) AS m FROM visits)",
        "WITH m AS (SELECT median(age) AS a FROM patients) SELECT count(*) FROM patients, m WHERE age > a",
        "SELECT sum(days) FROM visits v WHERE EXISTS (SELECT 1 FROM (SELECT count(*) AS n FROM patients) WHERE n > 5)",
    ),
    "P106": (
        "SELECT min(visit_date), max(visit_date) FROM visits",
        "SELECT ward, string_agg(doctor, ',') FROM visits GROUP BY ward",
        "SELECT ward, arg_max(doctor, days) FROM visits GROUP BY ward",
        "SELECT mode(ward) FROM visits",
        "SELECT list(days) FROM visits",
        "SELECT first(name) FROM patients",
        "SELECT any_value(name) FROM patients",
        "SELECT histogram(days) FROM visits",
        "SELECT bool_or(smoker) FROM patients",
        "SELECT sum(DISTINCT days) FROM visits",
        "SELECT median(smoker) FROM patients",
        "SELECT quantile_disc(days > 3, [0.1, 0.9]) FROM visits",
        "SELECT percentile_disc(0.3) WITHIN GROUP (ORDER BY smoker) FROM patients",
    ),
    "P107": (
        "SELECT w.ward, (SELECT count(*) FROM visits v WHERE v.ward = w.ward) FROM wards w",
        "SELECT w.ward FROM wards w WHERE w.beds > (SELECT count(*) FROM visits v WHERE v.ward = w.ward)",
        "SELECT c.d, (SELECT sum(days) FROM visits v WHERE v.visit_date = c.d) FROM calendar c",
        "SELECT w.ward FROM wards w WHERE EXISTS (SELECT count(*) FROM visits v WHERE v.ward = w.ward HAVING count(*) > 5)",
        "SELECT max(w.beds * (SELECT avg(days) FROM visits v WHERE v.ward = w.ward)) FROM wards w",
    ),
    "P065": (
        "SELECT doctor, count(*) FROM visits GROUP BY doctor",
        "SELECT date_trunc('day', visit_date), count(*) FROM visits GROUP BY 1",
        "SELECT city, avg(age) FROM patients GROUP BY city",
        "SELECT born, count(*) FROM patients GROUP BY born",
        "SELECT ward, note, count(*) FROM visits GROUP BY ward, note",
        "SELECT cost, count(*) FROM visits GROUP BY ROLLUP (cost)",
    ),
    "P070": (
        "SELECT count(*) FROM visits WHERE hash(days) > 3",
        "SELECT count(*) FROM visits WHERE getvariable('x') = ward",
        "SELECT count(*) FROM visits WHERE random() < 0.5",
        "SELECT count(*) FROM visits WHERE uuid() IS NULL",
        "SELECT count(*) FROM visits WHERE current_setting('TimeZone') = note",
    ),
    "P082": (
        "SELECT count(*) FROM visits WHERE date_part(ward, visit_date) > 3",
        "SELECT count(*) FROM visits WHERE regexp_matches(doctor, ward)",
        "SELECT count(*) FROM visits WHERE date_trunc(note, visit_date) > DATE '2024-01-01'",
        "SELECT count(*) FROM visits WHERE regexp_matches(note, doctor)",
        "SELECT count(*) FROM visits WHERE date_diff(ward, visit_date, DATE '2024-01-01') > 3",
    ),
    "P019": (
        "SELECT * FROM dp_count('visits', epsilon := 1)",
        "SELECT * FROM dp_query('SELECT 1', epsilon := 1)",
        "SELECT count(*) FROM visits, dp_sum('visits', target := 'days', epsilon := 1)",
        "SELECT dpsql_query_plan(1)",
        "SELECT count(*) FROM visits WHERE days > (SELECT count FROM dp_count('visits', epsilon := 1))",
    ),
    "S016": (
        "SELECT count(*) FROM nowhere",
        "SELECT count(*) FROM visits JOIN nowhere USING (ward)",
        "SELECT count(*) FROM nowhere n, patients p WHERE n.id = p.id",
        "SELECT count(*) FROM patients WHERE id IN (SELECT patient FROM nowhere)",
        "WITH v AS (SELECT * FROM nowhere) SELECT count(*) FROM v",
    ),
    "S002": (
        "SELECT sum(nothing) FROM visits",
        "SELECT count(*) FROM visits WHERE nothing > 3",
        "SELECT ward, days, count(*) FROM visits GROUP BY ward",
        "SELECT count(*) FROM visits v JOIN patients p ON v.patient = p.nothing",
        "SELECT count(v.name) FROM visits v",
    ),
    "S012": (
        "SELECT avg(r) FROM (SELECT patient, rank() OVER (ORDER BY days) AS r FROM visits)",
        "SELECT count(*) FROM labs l JOIN visits v ON l.taken = v.visit_date",
        "SELECT count(*) FROM visits a JOIN visits b ON a.ward = b.ward AND a.visit_date = b.visit_date",
        "SELECT count(*) FROM visits a JOIN patients b ON a.days = b.age",
        "SELECT count(*) FROM patients a, patients b",
        "SELECT count(*) FROM patients WHERE age IN (SELECT days FROM visits)",
        "SELECT count(*) FROM patients p WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.days = p.age)",
    ),
}
# By what was refused: the query that its message asks for.
MENDED = {
    "SELECT * FROM visits LIMIT 1001": "SELECT ward, count(*) FROM visits GROUP BY ward LIMIT 1001",
    "SELECT avg(days) FROM (SELECT * FROM visits ORDER BY visit_date DESC LIMIT 1000)": (
        "SELECT avg(days) FROM visits WHERE visit_date >= DATE '2026-01-01'"
    ),
    "SELECT avg(s) FROM (SELECT patient, stddev(days) AS s FROM visits GROUP BY patient)": (
        "SELECT avg(s) FROM (SELECT patient, avg(days) AS s FROM visits GROUP BY patient)"
    ),
    "SELECT count(*) FROM visits WHERE days > (SELECT avg(days) FROM visits)": (
        "SELECT count(*) FROM visits WHERE days > 14.5"
    ),
    "SELECT min(visit_date), max(visit_date) FROM visits": "SELECT quantile_cont(days, 0.01) FROM visits",
    "SELECT w.ward, (SELECT count(*) FROM visits v WHERE v.ward = w.ward) FROM wards w": (
        "SELECT w.ward, v.n FROM wards w JOIN (SELECT ward, count(*) AS n FROM visits GROUP BY ward) v USING (ward)"
    ),
    "SELECT count(*) FROM visits a JOIN visits b ON a.ward = b.ward AND a.visit_date = b.visit_date": (
        "SELECT count(*) FROM visits a JOIN visits b ON a.patient = b.patient AND a.visit_date = b.visit_date"
    ),
    "SELECT count(*) FROM visits TABLESAMPLE 10%": "SELECT count(*) FROM visits",
    "PIVOT visits ON ward USING count(*)": "SELECT ward, count(*) FROM visits GROUP BY ward",
}
TPCH_CODES = {3: "P102", 10: "P102", 17: "P105", 18: "P102", 20: "P107", 22: "P105"}


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        hospital(opened)
        yield opened


@pytest.fixture(scope="module")
def shop() -> Iterator[Any]:
    with dpsql.connect() as opened:
        tpch(opened)
        yield opened


@contextmanager
def opened_calls() -> Iterator[list[int]]:
    """Note the calls that get tickets."""
    opened: list[int] = []
    opening = Session.open_query

    def noted(session: Session, *given: Any) -> Any:
        opened.append(len(opened))
        return opening(session, *given)

    with planted((Session, "open_query", noted)):
        yield opened


def refusal(con: Any, sql: str, more: str = "") -> str:
    """Return the message with which a query is refused; nothing may be charged, and no call be opened.

    Every scan of people waits for the ticket of an opened call, so that no row is read without one.
    """
    before = con.execute("FROM dp_budget()").fetchall()
    with opened_calls() as opened, pytest.raises(duckdb.Error) as raised:
        con.execute(private(sql, more)).fetchall()
    assert con.execute("FROM dp_budget()").fetchall() == before
    assert opened == []
    return str(raised.value)


def code_of(message: str) -> str:
    """Return the code of a message of ours; '' for one of DuckDB's."""
    found = re.search(r"DPSQL-([A-Z]\d{3})", message)
    return found[1] if found else ""


@cases(("code", "sql"), [(code, sql) for code, listed in REFUSED.items() for sql in listed], quick=5)
def test_a_refusal_has_its_code_and_costs_nothing(con: Any, code: str, sql: str) -> None:
    message = refusal(con, sql)
    assert code_of(message) == code, message
    said = message.partition("] ")[2].partition("\n\n")[0].rstrip()
    assert said.endswith("."), said


@cases("sql", MENDED, quick=1)
def test_what_a_refusal_advises_runs(con: Any, sql: str) -> None:
    refusal(con, sql)
    assert con.execute(private(MENDED[sql])).fetchall()


def test_what_is_answered_opens_a_call(con: Any) -> None:
    """Without this no refusal could be seen to open one."""
    with opened_calls() as opened:
        con.execute(private("SELECT count(*) FROM visits", "fresh := true")).fetchall()
    assert opened == [0]


_PARTS = "week({0}), minute(CAST({0} AS TIMESTAMP)), hour(CAST({0} AS TIMESTAMP)), day({0})".format("visit_date")
_DAYS = "FROM visits WHERE visit_date BETWEEN DATE '1900-01-01' AND DATE '2100-01-01' GROUP BY ALL"
# Groups of which there are too many: lists are made when the statement runs, and counted before a row is read.
TOO_MANY = (
    "SELECT i, count(*) FROM visits JOIN range(1100000) r(i) ON r.i = days GROUP BY i",
    f"SELECT {_PARTS}, count(*) FROM visits GROUP BY ALL",
    f"SELECT count(*) FROM visits GROUP BY CUBE ({_PARTS})",
    f"SELECT CAST(visit_date AS DATE), {_PARTS}, count(*) {_DAYS}",
    f"SELECT CAST(visit_date AS DATE), minute(CAST(visit_date AS TIMESTAMP)), count(*) {_DAYS}",
    f"SELECT CAST(visit_date AS DATE), CAST(visit_date AS DATE) + 1, median(days) {_DAYS}",
)
_SLOWER = (TOO_MANY[0], *TOO_MANY[3:])


@cases("sql", [*TOO_MANY[1:3], *(pytest.param(sql, marks=pytest.mark.long) for sql in _SLOWER)])
def test_too_many_groups_are_refused_before_they_are_made(con: Any, sql: str) -> None:
    """All of the largest of these, 1.4e11, have no place in any memory."""
    before = con.execute("FROM dp_budget()").fetchall()
    con.execute("SET memory_limit = '2GB'")
    try:
        with pytest.raises(duckdb.Error, match="DPSQL-P068"):
            con.execute(private(sql)).fetchall()
    finally:
        con.execute("RESET memory_limit")
    assert con.execute("FROM dp_budget()").fetchall() == before


@cases("code", REFUSED)
def test_every_code_is_asked_for_often(code: str) -> None:
    assert len(REFUSED[code]) >= 5


@cases("code", REFUSED, quick=1)
def test_a_refusal_comes_while_the_statement_is_bound(con: Any, code: str) -> None:
    """DESCRIBE binds and runs nothing, so whatever it refuses has read no row."""
    before = con.execute("FROM dp_budget()").fetchall()
    for sql in REFUSED[code]:
        with pytest.raises(duckdb.Error) as raised:
            con.execute(f"DESCRIBE {private(sql)}").fetchall()
        assert code_of(str(raised.value)) == code_of(refusal(con, sql)), sql
    assert con.execute("FROM dp_budget()").fetchall() == before


DATED = (
    "SELECT count(*) FROM stays",
    "SELECT ward, avg(n) FROM stays GROUP BY ward",
    "SELECT count(*) FROM stays WHERE day >= DATE '2026-01-01'",
    "SELECT count(*) FROM stays WHERE day < DATE '2026-03-01' OR n > 3",
    "SELECT (SELECT count(*) FROM stays WHERE day = DATE '2026-01-05') AS a, (SELECT count(*) FROM stays) AS b",
    "SELECT median(n) FROM stays WHERE ward = 'A'",
)


def test_what_names_no_period_is_refused() -> None:
    with dpsql.connect() as opened:
        opened.execute(
            "CREATE TABLE stays AS SELECT i % 50 AS who, DATE '2026-01-01' + CAST(i % 90 AS INTEGER) AS day, i % 7 AS n, "
            "['A', 'B'][1 + i % 2] AS ward FROM range(500) AS r(i)"
        )
        opened.execute(
            "SELECT dp_protect('stays', epsilon := 1e9, privacy_unit := 'who', max_rows_per_unit := 20, period := 'month', "
            "period_of := 'day', keys := {ward: ['A', 'B']}, lower := {n: 0}, upper := {n: 20})"
        )
        before = opened.execute("FROM dp_budget()").fetchall()
        for sql in DATED:
            for call in (private(sql), f"DESCRIBE {private(sql)}"):
                with pytest.raises(duckdb.Error, match="DPSQL-P110"):
                    opened.execute(call).fetchall()
        assert opened.execute("FROM dp_budget()").fetchall() == before


@cases(
    "name",
    [name for name, one in DASHBOARDS.items() if one["verdict"] == "REFUSE" and name not in ANSWERED_SINCE],
    quick=6,
)
def test_a_dashboard_that_asks_too_much_is_refused(con: Any, name: str) -> None:
    message = refusal(con, DASHBOARDS[name]["sql"], "delta := 1e-6")
    assert code_of(message) == DASHBOARDS[name]["why"][:4], message


@cases("number", TPCH_CODES if TPCH else (), quick=1)
def test_tpch_that_asks_too_much_is_refused(shop: Any, number: int) -> None:
    message = refusal(shop, TPCH[number], "delta := 1e-6")
    assert code_of(message) == TPCH_CODES[number], message


def test_no_refusal_reads_a_row() -> None:
    """Behind the table stands a reader that fails: what is refused never comes to it, what is answered does."""
    pyarrow = pytest.importorskip("pyarrow")
    read: list[int] = []

    def batches() -> Iterator[Any]:
        read.append(1)
        yield pyarrow.record_batch({"id": [1], "ward": ["A"], "days": [3]})

    schema = pyarrow.schema({"id": pyarrow.int64(), "ward": pyarrow.string(), "days": pyarrow.int64()})
    with dpsql.connect() as opened:
        opened.register("stays", pyarrow.RecordBatchReader.from_batches(schema, batches()))
        for sql in (
            "SELECT * FROM stays",
            "SELECT max(days) FROM stays",
            "SELECT count(*) FROM stays WHERE days > (SELECT avg(days) FROM stays)",
            "SELECT ward, count(*) FROM stays GROUP BY ward",
        ):
            with pytest.raises(duckdb.Error):
                opened.execute(private(sql, "max_rows_per_unit := 1")).fetchall()
        assert read == []
