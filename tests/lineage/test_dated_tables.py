"""Several tables with periods: what an owner may state, which blocks a call charges, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dpsql
from support.broken.dated import UNDATED_FREE
from support.broken.planting import planted
from support.cases import cases
from support.sessions import ledger_of

STAGE = """
CREATE TABLE patients AS SELECT i AS id, i % 5 AS age FROM range(60) AS r(i);
CREATE TABLE allergies AS SELECT i % 60 AS pid, i AS what FROM range(80) AS r(i);
CREATE TABLE visits AS SELECT i AS vid, i % 60 AS patient, i % 3 AS ward, make_date(2026, CAST(1 + i % 3 AS INTEGER), 3) AS day
  FROM range(120) AS r(i);
CREATE TABLE stays AS SELECT i % 60 AS patient, i % 4 AS nights, make_timestamp(2026, 1 + i % 3, 5, 0, 0, 0.0) AS since
  FROM range(120) AS r(i);
CREATE TABLE labs AS SELECT i % 120 AS visit, i AS lab, i % 7 AS value, 'a' AS day FROM range(240) AS r(i);
CREATE TABLE parts AS SELECT i % 240 AS lab, i AS dose FROM range(240) AS r(i);
"""
TABLES = (
    "{patients: 'id', visits: 'patient', stays: 'patient', labs: 'visit -> visits.vid', parts: 'lab -> labs.lab', "
    "allergies: 'pid -> patients.id'}"
)
DATES = "{visits: 'day', stays: 'since'}"
PROTECT = (
    "SELECT dp_protect('hospital', epsilon := 1e6, delta := 1e-3, max_rows_per_unit := 9, period := 'month', "
    "period_of := {}, tables := {}{})"
)
JANUARY, BOTH = "'2026-01'", "'2026-01/2026-02'"


@pytest.fixture
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        opened.execute(STAGE)
        yield opened


def protect(con: Any, dates: str = DATES, tables: str = TABLES, more: str = "") -> str:
    [(said,)] = con.execute(PROTECT.format(dates, tables, more)).fetchall()
    return str(said)


def counted(con: Any, source: str, during: str | None = None, more: str = "") -> int:
    given = "" if during is None else f", during := {during}"
    value: float = con.execute(f"FROM dp_count('{source}', epsilon := 100{given}{more})").fetchone()[2]
    return round(value)


def spent(con: Any) -> dict[str, str]:
    return {str(block): str(said) for block, said in con.execute("SELECT block, spent FROM dp_budget()").fetchall()}


def refusal(con: Any, statement: str) -> str:
    before = con.execute("SELECT count(*) FROM dp_ledger()").fetchall()
    with pytest.raises(Exception, match="DPSQL-") as caught:
        con.execute(statement).fetchall()
    assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == before
    return str(caught.value)


@pytest.mark.long
def test_each_table_is_charged_to_its_blocks(con: Any) -> None:
    said = protect(con)
    assert "for each month of stays.since, visits.day" in said
    assert counted(con, "visits", JANUARY) == 40
    assert counted(con, "labs", JANUARY) == 80
    assert counted(con, "parts", JANUARY) == 80
    assert spent(con) == {
        "2026-01": "epsilon 300", "every other": "epsilon 0", "total": "epsilon 300"
    }  # fmt: skip
    assert counted(con, "stays", BOTH) == 80
    assert counted(con, "patients") == 60
    assert counted(con, "allergies", "'undated'") == 80
    assert spent(con) == {
        "2026-01": "epsilon 400", "2026-02": "epsilon 100", "undated": "epsilon 200", "every other": "epsilon 0",
        "total": "epsilon 700",
    }  # fmt: skip
    assert ledger_of(con).verify().ok


def test_a_query_of_two_datasets_with_periods_is_refused(con: Any) -> None:
    """One release has one list of periods, and the blocks of two datasets are not the same ones."""
    protect(con)
    con.execute("CREATE TABLE shifts AS FROM visits")
    con.execute(
        "SELECT dp_protect('shifts', epsilon := 9, privacy_unit := 'patient', max_rows_per_unit := 9, "
        "period := 'month', period_of := 'day')"
    ).fetchall()
    both = "SELECT (SELECT count(*) FROM visits) AS n, (SELECT count(*) FROM shifts) AS m"
    assert "S012" in refusal(con, f"FROM dp_query('{both}', epsilon := 1, during := {JANUARY})")


VIEWS = {
    "SELECT patient, day, ward, age FROM visits JOIN patients ON id = patient": 40,
    "SELECT patient, day AS at, ward, age FROM patients JOIN visits ON id = patient": 40,
    "SELECT visits.*, what FROM visits JOIN patients ON id = patient JOIN allergies ON pid = id": 54,
    "SELECT visits.* FROM visits SEMI JOIN (FROM patients WHERE age = 1) p ON id = patient": 8,
    "SELECT v.patient, v.day, nights FROM visits v JOIN stays s ON v.patient = s.patient AND date_trunc('month', v.day) = "
    "date_trunc('month', s.since)": 80,
    "SELECT v.patient, since, nights FROM visits v, stays s WHERE v.patient = s.patient AND date_trunc('month', v.day) = "
    "date_trunc('month', since)": 80,
    "SELECT patient, date_trunc('month', day) AS month, count(*) AS n FROM visits GROUP BY ALL": 20,
    "SELECT patient, visits.day, value, age FROM labs JOIN visits ON visit = vid JOIN patients ON id = patient": 80,
    "SELECT patient, visits.day, s FROM visits JOIN (SELECT visit, sum(value) AS s FROM labs GROUP BY visit) ON visit = vid": 40,
}


@cases(("view", "rows"), VIEWS.items(), quick=1, alone=True)
def test_a_view_over_dated_tables_is_charged_to_the_months_that_are_named(con: Any, view: str, rows: int) -> None:
    protect(con)
    con.execute(f"CREATE VIEW seen AS {view}")
    assert "during is missing" in refusal(con, "FROM dp_count('seen', epsilon := 1)")
    assert counted(con, "seen", JANUARY) == rows
    assert "2026-01" in spent(con)
    assert counted(con, "seen", BOTH, ", distinct_of := 'patient'") in (8, 12, 40)


REFUSED = {
    "SELECT v.patient, v.day, nights FROM visits v JOIN stays s USING (patient)": "S012",
    "SELECT patients.* FROM patients SEMI JOIN visits ON id = patient": "S012",
    "SELECT patients.*, day FROM patients LEFT JOIN visits ON id = patient": "S012",
    "SELECT id, count(*) AS n FROM patients JOIN visits ON id = patient GROUP BY id": "S012",
    "SELECT patient, day, count(*) OVER (PARTITION BY patient) AS n FROM visits": "S012",
    "SELECT patient, date_trunc('year', day) AS year, ward FROM visits": "S017",
    "SELECT patient, ward FROM visits JOIN patients ON id = patient": "S017",
    "SELECT patient, day FROM visits UNION ALL SELECT id, NULL FROM patients": "S017",
    "SELECT visit, value FROM labs": "S017",
    "SELECT patient, labs.day FROM labs JOIN visits ON visit = vid": "S017",
}


@cases(("view", "code"), REFUSED.items(), quick=1, alone=True)
def test_a_view_that_mixes_periods_is_refused(con: Any, view: str, code: str) -> None:
    protect(con)
    con.execute(f"CREATE VIEW seen AS {view}")
    for during in ("", f", during := {JANUARY}"):
        assert f"DPSQL-{code}" in refusal(con, f"FROM dp_count('seen', epsilon := 1{during})")


def test_rows_without_a_date_are_in_no_block(con: Any) -> None:
    """Neither in that of a call without periods, nor in those that a call names."""
    protect(con)
    for number, view in enumerate(view for view, code in REFUSED.items() if code == "S017"):
        con.execute(f"CREATE VIEW seen{number} AS {view}")
        during = f", during := {JANUARY}" if number % 2 else ""
        assert "DPSQL-S017" in refusal(con, f"FROM dp_count('seen{number}', epsilon := 1{during})"), view


STATED = {
    "the date of a path": ("{visits: 'day', labs: 'day'}", TABLES, "", "P111"),
    "a table that is none": ("{visit: 'day'}", TABLES, "", "P111"),
    "no column": ("{visits: 'date'}", TABLES, "", "S002"),
    "no column anywhere": ("'date'", TABLES, "", "S002"),
    "no date": ("{visits: 'ward'}", TABLES, "", "P112"),
    "nothing": ("{patients: NULL}", TABLES, "", "P112"),
    "no zone": (DATES, TABLES, ", period_zone := 'UTC'", "P112"),
    "replaced rows": (DATES, TABLES, ", neighbours := 'replace'", "P111"),
    "a number": ("{visits: 1}", TABLES, "", "P013"),
}


@cases(("dates", "tables", "more", "code"), STATED.values(), ids=STATED, quick=1, alone=True)
def test_dates_that_do_not_fit_are_refused(con: Any, dates: str, tables: str, more: str, code: str) -> None:
    assert f"DPSQL-{code}" in refusal(con, PROTECT.format(dates, tables, more))


def test_dates_of_one_table_are_a_name(con: Any) -> None:
    statement = "SELECT dp_protect('visits', epsilon := 1, privacy_unit := 'patient', max_rows_per_unit := 2, period := 'month', "
    assert "DPSQL-P112" in refusal(con, f"{statement} period_of := {{visits: 'day'}})")


def test_a_name_is_of_every_table_with_a_column_of_it(con: Any) -> None:
    assert "for each month of visits.day;" in protect(con, "'day'")
    assert counted(con, "visits", JANUARY) == 40
    assert counted(con, "stays") == 120
    found = con.execute("SELECT column_name, value FROM dp_policy() WHERE argument = 'period_of'").fetchall()
    assert found == [("visits", "'day'")]


def test_undated_rows_have_one_block_that_is_never_renewed(con: Any) -> None:
    con.execute(PROTECT.format(DATES, TABLES, "").replace("1e6", "1"))
    ask = "FROM dp_count('patients', epsilon := 0.6{})"
    con.execute(ask.format("")).fetchall()
    text = refusal(con, ask.format(", during := 'undated'"))
    assert "block undated of dataset 'hospital' needs epsilon 0.6, 0.4 remains of 1" in text
    assert "DPSQL-P110" in refusal(con, ask.format(f", during := {JANUARY}"))
    assert "DPSQL-P110" in refusal(con, "FROM dp_count('visits', epsilon := 0.1, during := 'undated')")
    con.execute(f"FROM dp_count('visits', epsilon := 0.6, during := {JANUARY})").fetchall()


def test_undated_rows_that_are_free_are_noticed(con: Any) -> None:
    """`undated_free`: otherwise calls on rows without a date would go on for ever."""

    def holds() -> bool:
        ask = "FROM dp_count('patients', epsilon := 0.6)"
        con.execute(ask).fetchall()
        try:
            con.execute(ask).fetchall()
        except Exception as error:
            return "DPSQL-B001" in str(error)
        return False

    con.execute(PROTECT.format(DATES, TABLES, "").replace("1e6", "1"))
    with planted(*UNDATED_FREE.patches):
        assert not holds()
    assert not ledger_of(con).verify().ok  # the rows of the block are missing


def test_a_receipt_says_what_is_protected(con: Any) -> None:
    protect(con)
    for source, during in (("patients", ""), ("visits", f", during := {JANUARY}")):
        con.execute(f"FROM dp_count('{source}', epsilon := 1{during})").fetchall()
    found = con.execute("SELECT guarantee FROM dp_ledger() WHERE kind = 'release'").fetchall()
    assert [row[0].partition(", ")[2] for row in found] == [
        "add_remove of all rows of one id without a date (at most 9 rows)",
        "add_remove of all rows of one patient in one month (at most 9 rows)",
    ]


def test_a_table_is_added_and_nothing_is_forgotten(con: Any) -> None:
    few = "{patients: 'id', visits: 'patient'}"
    protect(con, "{visits: 'day'}", few)
    first = counted(con, "visits", JANUARY, ", release := 'n'")
    counted(con, "patients")
    before = spent(con)
    protect(con, "{stays: 'since'}", "{visits: 'patient', stays: 'patient', labs: 'visit -> visits.vid'}")
    assert spent(con) == before
    assert counted(con, "visits", JANUARY, ", release := 'n'") == first
    assert spent(con) == before
    assert counted(con, "stays", JANUARY) == 40
    protect(con, DATES, "{stays: 'patient'}")
    assert ledger_of(con).verify().ok


def test_a_table_that_gets_another_date_begins_with_what_a_person_lost(con: Any) -> None:
    few = "{patients: 'id', visits: 'patient'}"
    con.execute("ALTER TABLE patients ADD COLUMN born DATE")
    protect(con, "{visits: 'day'}", few)
    counted(con, "visits", BOTH)
    counted(con, "patients")
    both = "{visits: 'day', patients: 'born'}"
    assert "DPSQL-B005" in refusal(con, PROTECT.format(both, few, ""))
    protect(con, both, few, ", replace := true")
    assert set(spent(con).values()) == {"epsilon 300"}
    assert "undated" not in spent(con)
    assert counted(con, "patients", JANUARY) == 0
    assert spent(con)["2026-01"] == "epsilon 400"
    assert ledger_of(con).verify().ok


@pytest.mark.long
def test_a_path_that_leads_elsewhere_begins_with_what_a_person_lost(con: Any) -> None:
    protect(con)
    counted(con, "labs", JANUARY)
    elsewhere = TABLES.replace("visit -> visits.vid", "visit -> stays.patient")
    assert "DPSQL-B005" in refusal(con, PROTECT.format(DATES, elsewhere, ""))
    protect(con, DATES, elsewhere, ", replace := true")
    assert set(spent(con).values()) == {"epsilon 100"}
    con.execute("CREATE SCHEMA other; CREATE TABLE other.stays AS FROM stays")
    again = elsewhere.replace("visit -> stays", "visit -> other.stays").replace(
        "patients: 'id'", "patients: 'id', 'other.stays': 'patient'"
    )
    protect(con, "{visits: 'day', stays: 'since', 'other.stays': 'since'}", again, ", replace := true")
    counted(con, "labs", JANUARY)
    assert spent(con)["2026-01"] == "epsilon 200"
    assert ledger_of(con).verify().ok


@pytest.mark.long
def test_other_periods_leave_the_undated_block_as_it_is(con: Any) -> None:
    protect(con)
    counted(con, "visits", BOTH)
    counted(con, "patients")
    con.execute("SELECT dp_protect('hospital', tables := {visits: 'patient'}, period := 'quarter', replace := true)")
    assert spent(con) == {
        "2026-Q1": "epsilon 200", "undated": "epsilon 100", "every other": "epsilon 0", "total": "epsilon 300"
    }  # fmt: skip
    con.execute("SELECT dp_protect('hospital', tables := {visits: 'patient'}, period := 'none', replace := true)")
    assert con.execute("SELECT block, spent FROM dp_budget()").fetchall() == [(None, "epsilon 300")]
    assert counted(con, "labs") == 240
    assert ledger_of(con).verify().ok


@pytest.mark.long
def test_budgets_that_are_merged_count_in_every_block(con: Any) -> None:
    for table, column in (("patients", "id"), ("visits", "patient")):
        con.execute(f"SELECT dp_protect('{table}', epsilon := 3, privacy_unit := '{column}', max_rows_per_unit := 9)")
        con.execute(f"FROM dp_count('{table}', epsilon := 0.5)").fetchall()
    protect(con, more=", merge := ['patients', 'visits']")
    assert spent(con) == {"every other": "epsilon 1", "total": "epsilon 1"}
    counted(con, "patients")
    assert spent(con)["undated"] == "epsilon 101"
    assert ledger_of(con).verify().ok


def dated_alone(con: Any) -> None:
    """Give visits and stays budgets of their own, by months, and ask each of them."""
    for table, column in (("visits", "day"), ("stays", "since")):
        con.execute(
            f"SELECT dp_protect('{table}', epsilon := 1e4, delta := 1e-3, privacy_unit := 'patient', "
            f"max_rows_per_unit := 9, period := 'month', period_of := '{column}')"
        )
    assert counted(con, "visits", JANUARY, ", release := 'mine'") == 40
    counted(con, "stays", BOTH)


@pytest.mark.long
def test_blocks_of_dated_budgets_add_up(con: Any) -> None:
    dated_alone(con)
    protect(con, more=", merge := ['visits', 'stays']")
    assert spent(con) == {
        "2026-01": "epsilon 200", "2026-02": "epsilon 100", "every other": "epsilon 0", "total": "epsilon 300"
    }  # fmt: skip
    counted(con, "labs", JANUARY)
    counted(con, "patients")
    assert {"2026-01": "epsilon 300", "undated": "epsilon 100"}.items() <= spent(con).items()
    counted(con, "visits", JANUARY, ", dataset := 'stays'")  # the old names stand for the new budget
    assert spent(con)["2026-01"] == "epsilon 400"
    assert ledger_of(con).verify().ok


@pytest.mark.long
def test_names_of_dated_releases_are_replayed_after_a_merge(con: Any) -> None:
    dated_alone(con)
    con.execute("CREATE VIEW seen AS SELECT patient, day AS came FROM visits")
    counted(con, "seen", BOTH, ", release := 'of a view'")
    protect(con, more=", merge := ['visits', 'stays']")
    before = spent(con)
    counted(con, "visits", JANUARY, ", release := 'mine'")
    counted(con, "seen", BOTH, ", release := 'of a view'")
    assert spent(con) == before
    assert "DPSQL-P014" in refusal(
        con, "FROM dp_count('visits', epsilon := 100, during := '2026-02', release := 'mine')"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("dates", "zone"), [("{visits: 'day', stays: NULL}", ""), ("{visits: 'day', stays: 'until'}", "")]
)
def test_dates_that_a_merge_changes_begin_with_what_a_person_lost(con: Any, dates: str, zone: str) -> None:
    con.execute("ALTER TABLE stays ADD COLUMN until DATE DEFAULT DATE '2026-03-01'")
    dated_alone(con)
    protect(con, dates, more=f", merge := ['visits', 'stays']{zone}")
    # Stays have lost 200 in all, of which nobody knows the new months; visits 100 in January.
    assert {"2026-01": "epsilon 300", "every other": "epsilon 200"}.items() <= spent(con).items()
    assert ledger_of(con).verify().ok


@pytest.mark.long
def test_periods_that_a_merge_changes_or_ends(con: Any) -> None:
    dated_alone(con)
    con.execute(PROTECT.replace("'month'", "'quarter'").format(DATES, TABLES, ", merge := ['visits', 'stays']"))
    assert spent(con)["2026-Q1"] == "epsilon 300"
    con.execute(
        f"SELECT dp_protect('whole', epsilon := 1e6, max_rows_per_unit := 9, merge := ['hospital'], tables := {TABLES})"
    )
    assert con.execute("SELECT block, spent FROM dp_budget()").fetchall() == [(None, "epsilon 300")]
    assert counted(con, "labs") == 240
    assert ledger_of(con).verify().ok


def test_rows_that_no_plan_shows_are_of_no_table_and_refused(con: Any, tmp_path: Path) -> None:
    protect(con)
    frame = pd.DataFrame({"patient": [1], "day": [pd.Timestamp("2026-01-05")]})
    con.register("frame", frame)
    text = refusal(con, f"FROM dp_count('frame', dataset := 'hospital', epsilon := 1, during := {JANUARY})")
    assert "DPSQL-S01" in text


def test_what_was_made_from_a_dated_table_is_refused(con: Any) -> None:
    protect(con)
    con.execute("CREATE TABLE made AS FROM visits; SELECT dp_derive('made', 'visits', own_rows_only := true)")
    assert "DPSQL-S0" in refusal(con, f"FROM dp_count('made', epsilon := 1, during := {JANUARY})")
    assert "DPSQL-" in refusal(con, "FROM dp_count('made', epsilon := 1)")


@cases("call", [
    "dp_sum('labs', target := 'value', by := 'lab', keys := [0, 1], lower := 0, upper := 6, epsilon := 1{})",
    "dp_quantile('labs', target := 'value', lower := 0, upper := 6, quantiles := [0.5], epsilon := 1{})",
    "dp_count('labs', distinct_of := 'patient', epsilon := 1{})",
    "dp_correlation('labs', features := ['value', 'lab'], epsilon := 1, lower := 0, upper := 240{})",
    "dp_kendall('parts', target := 'dose', features := ['lab'], k := 1, epsilon := 1{})",
    "dp_linear_regression('visits', target := 'ward', features := ['vid'], epsilon := 1, delta := 1e-6, lower := 0, "
    "upper := 120, target_lower := 0, target_upper := 2{})",
    "dp_count('patients', by := 'age', keys := [0, 1], epsilon := 1)",
    "dp_kendall('allergies', target := 'what', features := ['pid'], k := 1, epsilon := 1)",
    "dp_avg('allergies', target := 'what', lower := 0, upper := 80, condition := 'what > 3', epsilon := 1)",
], quick=1, alone=True)  # fmt: skip
def test_every_kind_of_function_takes_dated_and_undated_tables(con: Any, call: str) -> None:
    protect(con)
    con.execute(f"FROM {call.format(f', during := {BOTH}')}").fetchall()
    blocks = ["undated"] if "{}" not in call else ["2026-01", "2026-02"]
    assert [*spent(con)][:-2] == blocks


def test_what_is_explained(tmp_path: Path) -> None:
    with dpsql.Context(tmp_path / "x.duckdb") as ctx:
        ctx.connection.execute(STAGE)
        ctx.dp_protect(
            "hospital", epsilon=1, max_rows_per_unit=9, period="month", period_of={"visits": "day"}, epsilon_total=4,
            tables={"patients": "id", "visits": "patient"},
        )  # fmt: skip
        text = ctx.explain("FROM dp_count('patients', epsilon := 0.25)")
        assert "-- charges 1 block of hospital, undated: pure 0.25-DP each; remaining epsilon 1" in text
        assert "all rows of one id without a date" in text
        ctx.dp_count("patients", epsilon=0.25)
        ctx.dp_count("visits", epsilon=0.25, during="2026-01/2026-03")
        blocks = ctx.dp_budget().column("block").to_pylist()
        assert blocks == ["2026-01", "2026-02", "2026-03", "undated", "every other", "total"]


@pytest.mark.long
def test_the_declarations_outlive_the_session(tmp_path: Path) -> None:
    for number in range(2):
        with dpsql.connect(tmp_path / "z.duckdb") as con:
            if not number:
                con.execute(STAGE)
            protect(con)
            assert con.execute("SELECT count(*) FROM dp_ledger() WHERE kind = 'protect'").fetchall() == [(1,)]
            assert counted(con, "labs", JANUARY) == 80
            assert counted(con, "patients") == 60
