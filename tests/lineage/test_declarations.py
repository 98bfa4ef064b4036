"""What owners declare about tables, how it is kept, and what named releases and prepared statements make of it."""

from __future__ import annotations

import ctypes
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from support.cases import cases
from support.sessions import ledger_of, session_of

FIT = "target := 'y', features := ['a'], k := 1, epsilon := 0.01, lower := 0, upper := 1, target_lower := 0, target_upper := 1"
QUANTILE = "epsilon := 0.01, lower := 0, upper := 1, quantiles := [0.5]"


def fill(con: Any) -> None:
    con.execute("CREATE TABLE patients AS SELECT i AS id, (i % 10) / 10 AS a, (i % 7) / 7 AS y FROM range(70) AS r(i)")
    con.execute("CREATE TABLE visits AS SELECT id % 20 AS pid, a, y FROM patients")
    con.execute("CREATE TABLE airports AS SELECT i AS code, 0.5 AS a, 0.5 AS y FROM range(5) AS r(i)")


@pytest.fixture
def con(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    opened = dpsql.connect(tmp_path / "z.duckdb")
    fill(opened)
    yield opened
    opened.close()


@pytest.fixture
def governed(con: Any) -> Any:
    say(con, "dp_protect('patients', epsilon := 10)")
    say(con, "dp_protect('visits', epsilon := 10, privacy_unit := 'pid', max_rows_per_unit := 3)")
    return con


def say(con: Any, call: str) -> str:
    return str(con.execute(f"SELECT {call}").fetchall()[0][0])


def refused(con: Any, statement: str, code: str) -> str:
    before = ledger_of(con).entries()
    with pytest.raises(duckdb.Error, match=f"DPSQL-{code}") as caught:
        con.execute(statement).fetchall()
    assert ledger_of(con).entries() == before
    return str(caught.value)


def spent(con: Any) -> dict[str, int]:
    return {row.dataset: row.releases for row in ledger_of(con).budgets()}


def test_a_name_that_is_no_table(con: Any) -> None:
    text = refused(con, "SELECT dp_protect('pateints', epsilon := 1)", "S019")
    assert "Did you mean 'patients'?" in text
    assert "source := false" in text
    assert say(con, "dp_protect('rows of a frame', epsilon := 1, source := false)").startswith(
        "rows of a frame: epsilon 1"
    )


@pytest.mark.long
def test_protect_restates_and_echoes(governed: Any) -> None:
    assert say(governed, "dp_protect('visits', epsilon := 12, replace := true)") == (
        "visits: epsilon 12; privacy unit pid, at most 3 rows each"
    )
    assert "neighbours replace" in say(governed, "dp_protect('main.visits', neighbours := 'replace', replace := true)")
    policy = ledger_of(governed).policy("visits")
    assert policy is not None
    assert (policy.epsilon, policy.privacy_unit, policy.max_rows_per_unit) == (12, "pid", 3)
    refused(governed, "SELECT dp_protect('patients', privacy_unit := 'id', replace := true)", "P009")
    refused(
        governed,
        "SELECT dp_protect('patients', privacy_unit := 'nosuch', max_rows_per_unit := 1, replace := true)",
        "S002",
    )
    refused(governed, "SELECT dp_protect('visits', epsilon := 13)", "B005")
    text = say(governed, "dp_protect('visits', privacy_unit := 'row', replace := true)")
    assert text == "visits: epsilon 12; protects one row; neighbours replace"
    text = say(governed, "dp_protect('visits', rho := 0.5, replace := true)")
    assert text.startswith("visits: rho 0.5; ")


def test_protect_says_when_nothing_remains(con: Any) -> None:
    con.execute(f"FROM dp_sis('patients', {FIT.replace('0.01', '5')})").fetchall()
    assert say(con, "dp_protect('patients', epsilon := 5)").endswith("nothing remains: what was spent counts")


def test_policies_by_name(con: Any) -> None:
    say(
        con,
        "dp_protect('patients', epsilon := 10, lower := {a: 0, id: 0}, upper := {a: 1, id: 70}, target_levels := ['n', 'y'])",
    )
    con.execute("CREATE VIEW labelled AS SELECT id, a, CASE WHEN y > 0.5 THEN 'y' ELSE 'n' END AS label FROM patients")
    rows = con.execute(
        "FROM dp_sis('labelled', target := 'label', features := ['a', 'id'], k := 1, epsilon := 5)"
    ).fetchall()
    assert len(rows) == 1


@pytest.mark.long
def test_keys_are_the_levels_of_columns(con: Any) -> None:
    con.execute("CREATE VIEW labelled AS SELECT a, CASE WHEN y > 0.5 THEN 'y' ELSE 'n' END AS label, y FROM patients")
    fit = "features := ['a'], k := 1, epsilon := 1, lower := 0, upper := 1"
    refused(con, f"FROM dp_sis('labelled', target := 'label', {fit})", "S005")
    text = say(
        con, "dp_protect('patients', epsilon := 10, target_upper := 1, target_lower := 0, keys := {LABEL: ['n', 'y']})"
    )
    assert "keys {'label': ['n', 'y']}" in text
    assert con.execute(f"FROM dp_sis('labelled', target := 'Label', {fit})").fetchall() == [
        (1, "a", None, None, "not measured", "not measured")
    ]
    assert con.execute(f"FROM dp_sis('labelled', target := 'y', {fit})").fetchall() == [
        (1, "a", None, None, "not measured", "not measured")
    ]  # by its bounds
    for curve in ("dp_roc", "dp_auc", "dp_confusion"):
        threshold = ", thresholds := [0.5]" if curve == "dp_confusion" else ""
        call = f"{curve}('labelled', label := 'label', score := 'a', epsilon := 0.5{threshold})"
        assert con.execute(f"FROM {call}").fetchall()
    for keys in (
        "'label'",
        "{label: 'n'}",
        "{label: ['n', 'n']}",
        "{label: ['n', 1]}",
        "{label: []}",
        "{label: [NULL]}",
    ):
        with pytest.raises(duckdb.Error, match=r"DPSQL-P0(63|12)|Conversion Error"):  # DuckDB casts ['n', 1] by itself
            say(con, f"dp_protect('patients', keys := {keys}, replace := true)")


@pytest.mark.long
def test_public_tables_stated_with_the_budget(con: Any) -> None:
    before = len(ledger_of(con).entries())
    for public, code in (("['nowhere']", "S019"), ("['airports', 'patients']", "B009"), ("'airports'", "P043")):
        refused(con, f"SELECT dp_protect('patients', epsilon := 10, public := {public})", code)
    assert len(ledger_of(con).entries()) == before
    assert say(con, "dp_protect('patients', epsilon := 10, public := ['main.airports'])").endswith("; public airports")
    assert con.execute(f"FROM dp_sis('airports', {FIT})").fetchall() == [
        (1, "a", None, None, "not measured", "not measured")
    ]
    assert dpsql.Context(con).dp_protect("visits", epsilon=1, public=["airports"]).endswith("; public airports")


@pytest.mark.long
def test_tables_of_one_name_in_two_databases_share_a_budget(governed: Any, tmp_path: Path) -> None:
    governed.close()
    path = next(tmp_path.glob("*.dpsql-ledger"))
    with dpsql.connect(tmp_path / "other.duckdb", ledger=path) as con:
        fill(con)
        refused(con, f"FROM dp_sis('patients', {FIT})", "B006")
        assert "shared" in say(con, "dp_protect('patients', epsilon := 10)")
        con.execute(f"FROM dp_sis('patients', {FIT})").fetchall()
        entries = len(ledger_of(con).entries())
        assert "shared" in say(con, "dp_protect('patients', epsilon := 10)")
        assert len(ledger_of(con).entries()) == entries  # nothing new was said
    with dpsql.connect(tmp_path / "z.duckdb") as con:
        con.execute(f"FROM dp_sis('patients', {FIT})").fetchall()
        assert spent(con)["patients"] == 2


@pytest.mark.long
def test_a_public_table_of_one_name_in_two_databases(governed: Any, tmp_path: Path) -> None:
    say(governed, "dp_public('airports')")
    governed.close()
    path = next(tmp_path.glob("*.dpsql-ledger"))
    with dpsql.connect(tmp_path / "other.duckdb", ledger=path) as con:
        fill(con)
        say(con, "dp_derive('airports', 'patients', one_row_each := true)")
        con.execute(f"FROM dp_sis('airports', {FIT})").fetchall()
        assert spent(con)["patients"] == 1
    with dpsql.connect(tmp_path / "z.duckdb") as con:
        con.execute(f"FROM dp_sis('airports', {FIT})").fetchall()
        assert spent(con)["patients"] == 1


def test_other_threads_do_not_change_what_a_statement_is_bound_by(governed: Any, tmp_path: Path) -> None:
    """A planner asks twice: which queries to plan, and whose the rows are; both answers are of one catalog."""
    session = session_of(governed)
    sources = session.sources
    spelled = ("patients", "main", "z")
    seen = [
        (query, governed.execute("SELECT json_serialize_plan(?)::VARCHAR", [query]).fetchall()[0][0])
        for query in sources.spellings(*spelled) or ()
    ]

    def other() -> None:
        with governed.cursor() as cursor:
            cursor.execute(f"ATTACH '{tmp_path}/other.duckdb' AS other")
            cursor.execute("SELECT dpsql.dp_public('airports')")
            sources.spellings(*spelled)

    with ThreadPoolExecutor(1) as pool:
        before = sources.declarations().counter
        pool.submit(other).result()
    assert (
        sources.place("patients", seen, None, None, is_named=False).counter == before < sources.declarations().counter
    )


def test_a_thread_that_python_did_not_start(governed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a server's: what Python keeps for a thread is gone between the two questions of a planner."""
    sources = session_of(governed).sources
    asked = sources.spellings
    of_the_thread = ctypes.pythonapi.PyThreadState_GetDict
    of_the_thread.restype = ctypes.c_void_p  # a borrowed reference
    locals_of_the_thread = ctypes.cast(of_the_thread(), ctypes.py_object).value
    kept = dict(locals_of_the_thread)

    def forgetting(*arguments: Any, **named: Any) -> Any:
        answer = asked(*arguments, **named)
        locals_of_the_thread.clear()
        return answer

    monkeypatch.setattr(sources, "spellings", forgetting)
    try:
        assert governed.execute("FROM dp_count('patients', epsilon := 0.01)").fetchall()
    finally:
        locals_of_the_thread.update(kept)
    assert ledger_of(governed).entries()[-1].dataset == "patients"


def test_a_spelling_is_the_same_budget(governed: Any) -> None:
    say(governed, "dp_protect('z.main.PATIENTS', epsilon := 10)")
    assert [row.dataset for row in ledger_of(governed).budgets()] == ["patients", "visits"]
    refused(governed, "SELECT dp_protect('\"patients\"', epsilon := 11)", "B005")


@pytest.mark.long
def test_public_tables(governed: Any) -> None:
    text = refused(governed, f"FROM dp_sis('airports', {FIT})", "B006")
    assert "SELECT dp_public('airports')" in text
    assert governed.execute("SELECT table_name FROM dp_unplaced()").fetchall() == [("airports",)]
    assert say(governed, "dp_public('airports')") == "airports: public"
    assert governed.execute("FROM dp_unplaced()").fetchall() == []
    governed.execute(f"FROM dp_sis('airports', {FIT})").fetchall()
    assert spent(governed)["airports"] == 1
    refused(governed, "SELECT dp_public('patients')", "B009")
    governed.execute("CREATE VIEW inside AS SELECT count(*) AS n FROM patients")
    refused(governed, "SELECT dp_public('inside')", "B009")
    governed.execute("CREATE TABLE like_visits AS SELECT 1 AS pid")
    refused(governed, "SELECT dp_public('like_visits')", "B009")
    assert say(governed, "dp_public('like_visits', force := true)") == "like_visits: public"


@pytest.mark.long
def test_derived_tables(governed: Any) -> None:
    governed.execute("CREATE TABLE scored AS SELECT pid AS person, a, y FROM visits")
    governed.execute("CREATE TABLE cleaned AS SELECT a, y FROM patients")
    refused(governed, f"FROM dp_sis('scored', {FIT})", "B006")
    refused(governed, "SELECT dp_derive('scored', 'visits', own_rows_only := true)", "S017")
    refused(governed, "SELECT dp_derive('scored', 'visits', privacy_unit := 'person')", "P061")
    say(governed, "dp_derive('scored', 'visits', privacy_unit := 'person', own_rows_only := true)")
    refused(governed, "SELECT dp_derive('cleaned', 'patients')", "P061")
    say(governed, "dp_derive('cleaned', 'patients', one_row_each := true)")
    refused(governed, "SELECT dp_derive('cleaned', 'airports')", "B010")
    governed.execute(f"FROM dp_sis('scored', {FIT})").fetchall()
    governed.execute(f"FROM dp_sis('cleaned', {FIT})").fetchall()
    governed.execute("CREATE VIEW again AS SELECT * FROM scored WHERE a > 0.1")
    governed.execute(f"FROM dp_sis('again', {FIT})").fetchall()
    assert spent(governed) == {"cleaned": 0, "patients": 1, "scored": 0, "visits": 2} or spent(governed) == {
        "patients": 1,
        "visits": 2,
    }
    # A name that is dropped and made again keeps its declaration, as pipelines need it.
    governed.execute("CREATE OR REPLACE TABLE scored AS SELECT pid AS person, a, y FROM visits WHERE a > 0.5")
    governed.execute(f"FROM dp_sis('scored', {FIT})").fetchall()
    assert spent(governed)["visits"] == 3
    say(governed, "dp_derive('scored', 'visits', privacy_unit := 'person', own_rows_only := true)")


def test_a_derived_view_shows_it_by_itself(governed: Any) -> None:
    governed.execute(
        "CREATE VIEW latest AS SELECT * FROM visits QUALIFY row_number() OVER (PARTITION BY pid ORDER BY a, y) = 1"
    )
    say(governed, "dp_derive('latest', 'visits')")
    governed.execute("CREATE VIEW centred AS SELECT pid, a - avg(a) OVER () AS a, y FROM visits")
    refused(governed, "SELECT dp_derive('centred', 'visits')", "P061")


@pytest.mark.long
def test_a_protected_view_is_a_leaf(governed: Any) -> None:
    say(governed, "dp_public('airports')")
    governed.execute(
        "CREATE VIEW features AS SELECT id, patients.a, patients.y FROM patients JOIN airports ON id = code"
    )
    refused(governed, f"FROM dp_sis('features', {FIT})", "S012")
    governed.execute("CREATE TABLE raw AS SELECT i AS id, 0.5 AS a, 0.5 AS y FROM range(9) AS r(i)")
    governed.execute("CREATE VIEW pv AS SELECT raw.* FROM raw JOIN range(3) AS r(n) ON n >= 0")
    say(governed, "dp_protect('pv', epsilon := 5)")
    governed.execute(f"FROM dp_sis('pv', {FIT})").fetchall()
    governed.execute("CREATE VIEW below AS SELECT * FROM pv WHERE a > 0.1")
    governed.execute(f"FROM dp_sis('below', {FIT})").fetchall()
    assert spent(governed)["pv"] == 2
    governed.execute("CREATE VIEW twice AS SELECT pv.* FROM pv, range(2)")
    refused(governed, f"FROM dp_sis('twice', {FIT})", "S012")
    refused(governed, f"FROM dp_sis('raw', {FIT})", "B006")
    governed.execute("CREATE OR REPLACE VIEW pv AS SELECT raw.* FROM raw JOIN range(4) AS r(n) ON n >= 0")
    assert "Declare it again" in refused(governed, f"FROM dp_sis('pv', {FIT})", "B007")
    say(governed, "dp_protect('pv', epsilon := 5, replace := true)")
    governed.execute(f"FROM dp_sis('pv', {FIT})").fetchall()
    assert spent(governed)["pv"] == 3


def test_a_view_of_a_protected_view_and_table_charges_both(governed: Any) -> None:
    governed.execute("CREATE VIEW adults AS SELECT * FROM patients WHERE a > 0.1")
    say(governed, "dp_protect('adults', epsilon := 5)")
    governed.execute(f"FROM dp_sis('adults', {FIT})").fetchall()
    assert spent(governed) == {"adults": 1, "patients": 1, "visits": 0}
    governed.execute("CREATE VIEW times AS SELECT patients.* FROM patients, range(50)")
    say(governed, "dp_protect('times', epsilon := 5)")
    refused(governed, f"FROM dp_sis('times', {FIT})", "S012")


def test_all_budgets_are_charged_or_none(con: Any) -> None:
    con.execute("CREATE TABLE cohort AS FROM patients")
    say(con, "dp_protect('patients', epsilon := 10)")
    say(con, "dp_protect('cohort', epsilon := 0.005)")
    con.execute("CREATE VIEW joint AS FROM patients UNION ALL FROM cohort")
    refused(con, f"FROM dp_sis('joint', {FIT})", "B001")
    say(con, "dp_protect('cohort', epsilon := 1, replace := true)")
    con.execute(f"FROM dp_sis('joint', {FIT}, release := 'r')").fetchall()
    con.execute(f"FROM dp_sis('joint', {FIT}, release := 'r')").fetchall()
    assert spent(con) == {"cohort": 1, "patients": 1}
    assert ledger_of(con).verify().ok


def test_a_prepared_statement_is_prepared_again(con: Any) -> None:
    con.execute(f"PREPARE p AS FROM dp_sis('patients', {FIT})")
    say(con, "dp_protect('visits', epsilon := 1)")
    with pytest.raises(duckdb.Error, match=r"DPSQL-B00[68]"):
        con.execute("EXECUTE p").fetchall()
    assert "patients" not in spent(con)
    say(con, "dp_protect('patients', epsilon := 1)")
    con.execute(f"PREPARE q AS FROM dp_sis('patients', {FIT})")
    say(con, "dp_public('airports')")
    before = spent(con)["patients"]
    try:
        con.execute("EXECUTE q").fetchall()  # DuckDB 2.0 plans again
    except duckdb.Error as error:
        assert "DPSQL-B008" in str(error)
        assert spent(con)["patients"] == before


def test_a_named_release_knows_what_it_read(con: Any) -> None:
    con.execute("CREATE VIEW f AS SELECT * FROM patients WHERE a > 0.5")
    named = f"FROM dp_sis('f', {FIT}, release := 'r')"
    first = con.execute(named).fetchall()
    assert con.execute(named.replace("'f'", "'main.F'")).fetchall() == first
    con.execute("CREATE OR REPLACE VIEW f AS SELECT * FROM patients WHERE a <= 0.5")
    refused(con, named, "P014")
    con.execute("CREATE OR REPLACE VIEW f AS SELECT * FROM patients WHERE a > 0.5")
    con.execute("UPDATE patients SET a = 0.9")
    assert con.execute(named).fetchall() == first
    con.execute("CREATE SCHEMA s; CREATE TABLE s.patients AS FROM patients")
    named = f"FROM dp_sis('patients', {FIT}, release := 'q')"
    con.execute(named).fetchall()
    con.execute("USE s")
    refused(con, named, "P014")


@pytest.mark.long
def test_a_named_aggregate_knows_what_it_aggregated(con: Any) -> None:
    named = "SELECT dp_quantile({y}, " + QUANTILE + ", release := 'q') FROM {t}"
    first = con.execute(named.format(y="a", t="patients")).fetchall()
    assert con.execute(named.format(y="a", t="patients")).fetchall() == first
    assert spent(con) == {"default": 1}
    for other in ({"y": "y", "t": "patients"}, {"y": "a", "t": "visits"}, {"y": "a", "t": "patients WHERE a > 0.1"}):
        refused(con, named.format(**other), "P014")
    refused(con, named.format(y="a", t="patients GROUP BY id"), "P047")
    con.execute("PREPARE p AS " + named.format(y="a", t="patients"))
    refused(con, "EXECUTE p", "P062")


def test_a_replay_says_so(con: Any) -> None:
    named = f"FROM dp_sis('patients', {FIT}, release := 'r')"
    con.execute(named).fetchall()
    con.execute(named).fetchall()
    rows = con.execute("SELECT kind, status, release, epsilon FROM dp_ledger()").fetchall()
    assert [row[:3] for row in rows] == [("release", "released", "r"), ("replay", "replay of entry 1", "r")]
    context = dpsql.Context(con)
    arguments: dict[str, Any] = {"target": "y", "features": ["a"], "k": 1, "epsilon": 0.01, "lower": 0, "upper": 1}
    again = context.dp_sis("patients", **arguments, target_lower=0, target_upper=1, release="r")
    assert again.replayed
    assert again.replay.startswith("replay of entry 1 of 20")
    assert "replay of entry 1" in repr(again)
    assert spent(con) == {"patients": 1}
    assert ledger_of(con).verify().ok


def test_types_that_follow_from_rows(con: Any, tmp_path: Path) -> None:
    con.execute(f"COPY patients TO '{tmp_path}/p.csv'")
    con.execute(f"CREATE VIEW sniffed AS FROM read_csv('{tmp_path}/p.csv')")
    refused(con, "SELECT dp_protect('main.sniffed', epsilon := 1)", "S020")
    columns = "{'id': 'BIGINT', 'a': 'DOUBLE', 'y': 'DOUBLE'}"
    con.execute(f"CREATE VIEW typed AS FROM read_csv('{tmp_path}/p.csv', columns = {columns}, header = true)")
    say(con, "dp_protect('main.typed', epsilon := 1)")
    con.execute(f"FROM dp_sis('main.typed', {FIT})").fetchall()
    assert spent(con)["typed"] == 1
    refused(con, f"SELECT dp_protect('{tmp_path}/p.csv', epsilon := 1)", "S021")


@pytest.mark.long
def test_the_same_file_under_another_name(governed: Any, tmp_path: Path) -> None:
    governed.execute(f"FROM dp_sis('patients', {FIT})").fetchall()
    governed.close()
    ledger = next(tmp_path.glob("*.dpsql-ledger"))
    with dpsql.connect(ledger=ledger) as con:
        con.execute(f"ATTACH '{tmp_path}/z.duckdb' AS clinic")
        con.execute(f"FROM dp_sis('clinic.patients', {FIT})").fetchall()
        assert spent(con)["patients"] == 2
        con.execute("CREATE TABLE patients AS FROM clinic.patients")
        refused(con, f"FROM dp_sis('patients', {FIT})", "B006")
    shutil.copy(tmp_path / "z.duckdb", tmp_path / "copy.duckdb")
    with dpsql.connect(tmp_path / "copy.duckdb", ledger=ledger) as con:
        con.execute(f"FROM dp_sis('patients', {FIT})").fetchall()
        assert spent(con)["patients"] == 3


@cases("protected", [False, True], quick=1, alone=True)
def test_another_ledger_does_not_answer(governed: Any, tmp_path: Path, protected: bool) -> None:
    """A database whose budgets are in one ledger is not released from under another one."""
    governed.close()
    with dpsql.connect() as con:
        if protected:
            fill(con)
            say(con, "dp_protect('visits', epsilon := 1)")
        con.execute(f"ATTACH '{tmp_path}/z.duckdb' AS clinic")
        for statement in (
            f"FROM dp_sis('clinic.patients', {FIT})",
            f"SELECT dp_quantile(a, {QUANTILE}, dataset := 'visits') FROM clinic.patients",
        ):
            assert "clinic" in refused(con, statement, "L033")
        con.execute("DETACH clinic")


def test_a_fresh_file_inherits_nothing(governed: Any, tmp_path: Path) -> None:
    say(governed, "dp_public('airports')")
    governed.close()
    with dpsql.connect(tmp_path / "other.duckdb", ledger=next(tmp_path.glob("*.dpsql-ledger"))) as con:
        fill(con)
        refused(con, f"FROM dp_sis('airports', {FIT})", "B006")


def test_no_mark_where_none_is_wanted(con: Any) -> None:
    say(con, "dp_protect('patients', epsilon := 1, mark := false)")
    assert con.execute("FROM duckdb_schemas() WHERE schema_name LIKE 'dpsql%'").fetchall() == []
    con.execute(f"FROM dp_sis('patients', {FIT})").fetchall()
    assert spent(con) == {"patients": 1}


def test_budgets_from_before_there_was_lineage(con: Any) -> None:
    """A budget of an old ledger has a name alone: it stands for every table of that name."""
    from dpsql.ledger.budget import Budget

    ledger_of(con).protect("patients", Budget.of(epsilon=10))
    for source in ("patients", "main.patients", "z.main.Patients"):
        con.execute(f"FROM dp_sis('{source}', {FIT})").fetchall()
    assert spent(con) == {"patients": 3}
    refused(con, f"FROM dp_sis('visits', {FIT})", "B006")


def test_through_a_context(con: Any) -> None:
    context = dpsql.Context(con)
    assert context.dp_protect("patients", epsilon=3, lower={"a": 0}, upper={"a": 1}).startswith("patients: epsilon 3")
    assert context.dp_public("airports") == "airports: public"
    assert context.dp_unplaced().to_pylist()[0]["table_name"] == "visits"
    con.execute("CREATE TABLE copied AS FROM patients")
    assert context.dp_derive("copied", "patients", one_row_each=True) == "copied: derived from patients"
    with pytest.raises(dpsql.ParameterError, match="P016"):
        context.dp_protect("patients", espilon=3)
    with pytest.raises(dpsql.SourceError, match="S019"):
        context.dp_protect("pateints", epsilon=3)


def test_what_the_ledger_keeps(governed: Any) -> None:
    governed.execute("CREATE VIEW f AS SELECT * FROM patients WHERE a > 0.5")
    governed.execute(f"FROM dp_sis('F', {FIT}, release := 'r')").fetchall()
    [kept] = ledger_of(governed).releases(["dp_sis"], key="r")
    assert kept.lineage == {"source": "F", "read": "z.main.f", "tables": ["patients"], "charged": ["patients"]} | {
        "views": kept.lineage["views"]
    }
    json.dumps(kept.lineage)
