"""Calls on periods through SQL: which rows count, what is charged, what is refused, and that no row makes them fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dpsql
from support.cases import cases
from support.sessions import ledger_of

# The dates of a hostile table, each of a person of its own.
DATES = [
    *("2026-10-01", "2026-10-31", "infinity", "-infinity", "0001-01-01", "9999-12-31", "2025-12-31", "2027-01-01"),
    *("0044-03-15 (BC)", "20000-01-01"),
]
OWNER = (
    "SELECT dp_protect('visits', epsilon := 1e6, privacy_unit := 'patient', max_rows_per_unit := 2, period := '{}', "
    "period_of := '{}'{}, replace := true)"
)


@pytest.fixture
def con() -> Iterator[Any]:
    with dpsql.connect() as connection:
        yield connection


def protect(con: Any, period: str = "month", column: str = "day", more: str = "") -> None:
    con.execute(OWNER.format(period, column, more)).fetchall()


def count(con: Any, during: str, source: str = "visits", more: str = "") -> float:
    """Return a count whose noise is far below a row."""
    [row] = con.execute(f"FROM dp_count('{source}', epsilon := 50, during := {during}{more})").fetchall()
    return round(row[2])


def make(con: Any, kind: str = "DATE") -> None:
    con.execute(f"CREATE OR REPLACE TABLE visits (patient INTEGER, day {kind}, ward VARCHAR, days INTEGER)")
    for patient, date in enumerate([*DATES, None, "2026-10-10"]):
        con.execute("INSERT INTO visits VALUES (?, TRY_CAST(? AS DATE), 'A', 1)", [patient or None, date])


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP"])
def test_rows_count_in_the_period_of_their_date_and_no_date_makes_a_call_fail(con: Any, kind: str) -> None:
    make(con, kind)  # the first row is of nobody
    protect(con)
    assert count(con, "'2026-10'") == 2
    assert count(con, "'2025-12/2027-01'") == 4
    assert count(con, "['2025-12', '2027-01']") == 2
    assert count(con, "['0001-01', '9999-12']") == 2
    protect(con, "year")
    assert count(con, "['0001', '2026', '9999']") == 4
    protect(con, "day")
    assert count(con, "'2026-10-31'") == 1
    protect(con, "week")
    assert count(con, "'2026-W53'") == 1  # 2027-01-01 is a Friday
    protect(con, "quarter")
    assert count(con, "'2026-Q4'") == 2
    assert ledger_of(con).verify().ok


def test_a_column_with_a_time_zone_needs_one_that_no_session_sets(con: Any) -> None:
    con.execute(
        "CREATE TABLE visits AS SELECT patient, day, 'A' AS ward FROM (VALUES (1, make_timestamptz(1790812799000000)), "
        "(2, make_timestamptz(1790812800000000)), (3, NULL)) AS rows(patient, day)"  # around 2026-10-01 00:00 UTC
    )
    protect(con)
    with pytest.raises(Exception, match="DPSQL-S046"):
        count(con, "'2026-10'")
    protect(con, more=", period_zone := 'UTC'")
    for zone in ("UTC", "Asia/Tokyo", "America/Los_Angeles"):
        try:
            con.execute(f"SET TimeZone = '{zone}'")
        except Exception:  # without its extension DuckDB knows no other zone
            continue
        assert [count(con, f"'2026-{month}'") for month in ("09", "10")] == [1, 1]


@cases("kind", ["VARCHAR", "BIGINT", "TIMESTAMP_NS", "TIMESTAMP_S", "TIME", "STRUCT(a DATE)"])
def test_a_column_that_is_no_date_is_refused_before_a_row_is_read(con: Any, kind: str) -> None:
    con.execute(f"CREATE TABLE visits (patient INTEGER, day {kind})")
    protect(con)
    entries = ledger_of(con).head()[0]
    with pytest.raises(Exception, match="DPSQL-S046"):
        count(con, "'2026-10'")
    assert ledger_of(con).head()[0] == entries


def test_a_person_of_many_months_is_one_person(con: Any) -> None:
    con.execute(
        "CREATE TABLE visits AS SELECT p AS patient, make_date(2026, CAST(m AS INTEGER), 3) AS day, 'A' AS ward "
        "FROM range(30) AS people(p), range(1, 13) AS months(m)"
    )
    protect(con)
    during = "'2026-01/2026-12'"
    assert count(con, during, more=", distinct_of := 'patient'") == 30
    assert count(con, during) == 360  # two rows of each person and month may count
    by = ", distinct_of := 'patient', by := 'ward', keys := ['A', 'B']"
    rows = con.execute(f"FROM dp_count('visits', epsilon := 50, during := {during}{by})").fetchall()
    assert [round(row[3]) for row in rows] == [30, 0]


VIEWS = {
    "SELECT patient AS who, day AS at, ward FROM visits": "",
    "SELECT *, days * 2 AS twice FROM visits WHERE days > 0": "",
    "SELECT patient, day, count(*) AS rows FROM visits GROUP BY patient, day": "",
    "SELECT DISTINCT patient, day FROM visits": "",
    "SELECT patient, day, row_number() OVER (PARTITION BY patient, day ORDER BY days) AS nth FROM visits": "",
    "SELECT v.patient, v.day, w.beds FROM visits v JOIN wards w USING (ward)": "",
    "SELECT patient, day FROM visits UNION ALL SELECT patient, day FROM visits WHERE days > 1": "",
    "WITH v AS (SELECT * FROM visits) SELECT patient, day FROM v WHERE ward IN (SELECT ward FROM wards)": "",
    "SELECT patient, date_trunc('month', day) AS month, count(*) AS rows FROM visits GROUP BY ALL": "",
    "SELECT patient, CAST(date_trunc('day', day) AS DATE) AS day FROM visits": "",
    "SELECT DISTINCT patient, date_trunc('month', day) AS month, ward FROM visits": "",
    "SELECT patient, day, sum(days) OVER (PARTITION BY patient, date_trunc('month', day)) AS days FROM visits": "",
    "SELECT patient, date_trunc('month', day) AS month, beds FROM visits LEFT JOIN wards USING (ward)": "",
    "SELECT a.patient, a.day FROM visits a JOIN visits b ON a.patient = b.patient AND a.day = b.day": "",
    "SELECT a.patient, a.day FROM visits a, visits b WHERE a.patient = b.patient AND date_trunc('month', a.day) = "
    "date_trunc('month', b.day)": "",
    "SELECT patient, date_trunc('quarter', day) AS day FROM visits": "S017",
    "SELECT patient, date_trunc('week', day) AS day FROM visits": "S017",
    "SELECT patient, date_trunc('decade', day) AS day FROM visits": "S017",
    "SELECT patient, date_trunc(lower(ward), day) AS day FROM visits": "S017",
    "SELECT patient, date_trunc('month', CAST(day AS TIMESTAMPTZ)) AS day FROM visits": "S017",
    "SELECT patient, date_trunc('year', day) AS year, count(*) AS rows FROM visits GROUP BY ALL": "S012",
    "SELECT a.patient, a.day FROM visits a JOIN visits b ON a.patient = b.patient AND year(a.day) = year(b.day)": "S012",
    "SELECT patient, ward FROM visits": "S017",
    "SELECT patient, CAST('2026-10-01' AS DATE) AS day FROM visits": "S017",
    "SELECT patient, day + INTERVAL 1 MONTH AS day FROM visits": "S017",
    "SELECT patient, coalesce(day, CAST('2026-10-01' AS DATE)) AS day FROM visits": "S017",
    "SELECT patient, max(day) AS day FROM visits GROUP BY patient": "S012",
    "SELECT day, count(*) AS rows FROM visits GROUP BY day": "S012",
    "SELECT patient, day, sum(days) OVER (PARTITION BY patient) AS days FROM visits": "S012",
    "SELECT DISTINCT ON (patient) patient, day FROM visits ORDER BY days": "S012",
    "SELECT a.patient, a.day FROM visits a JOIN visits b USING (patient)": "S012",
    "SELECT patient, day FROM visits WHERE patient IN (SELECT patient FROM visits)": "S012",
    "SELECT patient, day FROM visits UNION ALL SELECT patient, born FROM patients": "S01",
    "SELECT v.patient, v.day FROM visits v JOIN patients p USING (patient)": "S012",
    "SELECT patient, day FROM visits UNION SELECT patient, day FROM visits": "",
    "SELECT patient, day FROM visits LIMIT 3": "S012",
}


@cases(("view", "code"), VIEWS.items())
def test_a_view_passes_unit_and_date_on_or_is_refused(con: Any, view: str, code: str) -> None:
    make(con)
    con.execute("CREATE TABLE wards AS SELECT 'A' AS ward, 10 AS beds; SELECT dp_public('wards')")
    con.execute("CREATE TABLE patients AS SELECT 1 AS patient, DATE '1970-01-01' AS born")
    con.execute("SELECT dp_protect('patients', epsilon := 9, privacy_unit := 'patient', max_rows_per_unit := 1)")
    protect(con)
    con.execute(f"CREATE VIEW seen AS {view}")
    entries = ledger_of(con).head()[0]
    if code:
        with pytest.raises(Exception, match=f"DPSQL-{code}"):
            count(con, "'2026-10'", "seen")
        assert ledger_of(con).head()[0] == entries
    else:
        count(con, "'2026-10'", "seen")
        assert ledger_of(con).head()[0] == entries + 2


def test_a_table_that_was_made_from_a_dated_one_is_refused(con: Any) -> None:
    make(con)
    protect(con)
    con.execute("CREATE TABLE made AS SELECT patient, day, sum(days) OVER (PARTITION BY patient) AS days FROM visits")
    con.execute("SELECT dp_derive('made', 'visits', own_rows_only := true)")
    with pytest.raises(Exception, match="DPSQL-S017"):
        count(con, "'2026-10'", "made")


@pytest.mark.parametrize(
    ("during", "code"),
    [("NULL", "P110"), ("'2026'", "P110"), ("'2026-13'", "P110"), ("['2026-10', '10']", "P110"), ("5", "P110")],
)
def test_periods_that_are_not_whole_are_refused(con: Any, during: str, code: str) -> None:
    make(con)
    protect(con)
    with pytest.raises(Exception, match=f"DPSQL-{code}"):
        count(con, during)
    con.execute("CREATE TABLE plain (patient INTEGER); SELECT dp_protect('plain', epsilon := 3)")
    with pytest.raises(Exception, match="DPSQL-P110"):
        count(con, "'2026-10'", "plain")
    with pytest.raises(Exception, match="DPSQL-B003"):
        count(con, "'2026-10'", more=", neighbours := 'replace'")
    assert [row[0] for row in con.execute("SELECT kind FROM dp_ledger()").fetchall()] == ["protect", "carry", "protect"]


def test_a_condition_on_the_date_does_not_choose_what_is_charged(con: Any) -> None:
    make(con)
    protect(con)
    assert count(con, "'2026-10'", more=", condition := 'day >= CAST(''2027-01-01'' AS DATE)'") == 0
    assert count(con, "'2025-12/2027-01'", more=", condition := 'day >= CAST(''2027-01-01'' AS DATE)'") == 1


def test_a_named_release_is_of_its_periods(con: Any) -> None:
    make(con)
    protect(con)
    first, again = (count(con, "'2026-10'", more=", release := 'monthly'") for _ in range(2))
    assert first == again
    with pytest.raises(Exception, match="DPSQL-P014"):
        count(con, "'2026-11'", more=", release := 'monthly'")
    kinds = [row[0] for row in con.execute("SELECT kind FROM dp_ledger()").fetchall()]
    assert kinds == ["protect", "carry", "release", "charge", "replay"]


def test_what_is_explained_and_what_is_left(tmp_path: Path) -> None:
    with dpsql.Context(tmp_path / "x.duckdb") as ctx:
        make(ctx.connection)
        ctx.connection.execute(
            "SELECT dp_protect('visits', epsilon := 1, privacy_unit := 'patient', max_rows_per_unit := 2, period := "
            "'month', period_of := 'day', epsilon_total := 3)"
        )
        text = ctx.explain("FROM dp_count('visits', epsilon := 0.25, during := '2026-01/2026-04')")
        assert "-- charges 4 blocks of visits, 2026-01/2026-04: pure 0.25-DP each; remaining epsilon 1 at least" in text
        assert "-- may cost one person pure 1-DP; remaining over all blocks epsilon 3" in text
        assert "add_remove of all rows of one patient in one month (at most 2 rows)" in text
        ctx.dp_count("visits", epsilon=0.25, during=["2026-01", "2026-03/2026-04"])
        assert ctx.connection.execute("SELECT block, spent FROM dp_budget()").fetchall() == [
            ("2026-01", "epsilon 0.25"),
            ("2026-03", "epsilon 0.25"),
            ("2026-04", "epsilon 0.25"),
            ("every other", "epsilon 0"),
            ("total", "epsilon 0.75"),
        ]


def test_the_table_of_budgets_folds_blocks_that_are_alike(tmp_path: Path) -> None:
    from dpsql.cli.output import budget_view

    with dpsql.Context(tmp_path / "x.duckdb") as ctx:
        make(ctx.connection)
        protect(ctx.connection)
        ctx.dp_count("visits", epsilon=0.25, during="2025-11/2026-10")
        ctx.dp_count("visits", epsilon=0.25, during="2026-03")
        view = budget_view(ledger_of(ctx.connection).budgets())
        assert list(view.columns[1].cells) == [
            "2025-11/2026-02", "2026-03", "2026-04/2026-10", "every other", "total",
        ]  # fmt: skip


def test_a_job_is_priced_by_its_blocks(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    with dpsql.Context(database) as ctx:
        make(ctx.connection)
        ctx.connection.execute(
            "SELECT dp_protect('visits', epsilon := 1, privacy_unit := 'patient', max_rows_per_unit := 2, period := "
            "'month', period_of := 'day')"
        )
    job = "\n".join(
        f"FROM dp_count('visits', epsilon := {epsilon}, during := '{during}');"
        for epsilon, during in ((0.6, "2026-01/2026-03"), (0.6, "2026-04"), (0.6, "2026-03"))
    )
    (tmp_path / "job.sql").write_text(job, encoding="utf-8")
    with pytest.raises(Exception, match=r"DPSQL-B001.*block 2026-03"):
        dpsql.run(tmp_path / "job.sql", database=database)
