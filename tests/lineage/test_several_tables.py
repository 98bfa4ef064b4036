"""One dataset of several tables: what an owner may state, what calls on each table are charged to, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from stage import code_of, outcome, totals

import dpsql
from dpsql.contract.names import TableName
from dpsql.engines.duckdb.lineage.declarations import Owner
from dpsql.ledger import ledger as ledgers
from support.broken.planting import planted
from support.broken.several import MERGE_TAKES_MAX
from support.cases import cases
from support.sessions import ledger_of, session_of

STAGE = """
CREATE TABLE patients AS SELECT i AS id, i % 5 AS age, 'p' || i AS name FROM range(60) AS r(i);
CREATE TABLE visits AS SELECT i::BIGINT AS vid, (i % 60)::INTEGER AS patient, i % 3 AS ward FROM range(120) AS r(i);
CREATE TABLE labs AS SELECT (i % 120)::INTEGER AS visit, i AS lab, i % 7 AS value, i % 2 AS high FROM range(240) AS r(i);
CREATE TABLE images AS SELECT i AS lab, i % 4 AS dose FROM range(240) AS r(i);
CREATE TABLE wards AS SELECT i AS ward, 'w' || i AS called FROM range(3) AS r(i);
"""
TABLES = "{patients: 'id', visits: 'patient', labs: 'visit -> visits.vid', images: 'lab -> labs.lab'}"
PROTECT = f"SELECT dp_protect('hospital', epsilon := 1e9, delta := 1e-3, max_rows_per_unit := 9, tables := {TABLES}"


@pytest.fixture
def con(tmp_path: Path) -> Iterator[Any]:
    with dpsql.connect(tmp_path / "z.duckdb") as opened:
        opened.execute(STAGE)
        yield opened


def ask(con: Any, source: str, more: str = "") -> tuple[str, str]:
    return outcome(con, lambda: con.execute(f"FROM dp_count('{source}', epsilon := 1000{more})").fetchall())


def counted(con: Any, source: str) -> int:
    [(value,)] = con.execute(f"SELECT value FROM dp_count('{source}', epsilon := 1e5)").fetchall()
    return round(value)


def refusal(con: Any, statement: str) -> str:
    before = con.execute("SELECT count(*) FROM dp_ledger()").fetchall()
    with pytest.raises((duckdb.Error, dpsql.DpsqlError)) as caught:
        con.execute(statement).fetchall()
    assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == before
    return str(caught.value)


@pytest.mark.long
def test_each_table_is_charged_to_the_dataset_once(con: Any) -> None:
    [(said,)] = con.execute(f"{PROTECT}, public := ['wards'])").fetchall()
    assert said.endswith(
        "public wards; tables patients (id), visits (patient), labs (visit -> visits.vid), images (lab -> labs.lab)"
    )
    con.execute("CREATE VIEW two AS FROM patients JOIN visits ON id = patient")
    con.execute(
        "CREATE VIEW everything AS SELECT patients.*, ward, value FROM patients JOIN visits ON id = patient JOIN labs ON visit = vid"
    )
    con.execute(
        "CREATE VIEW by_ward AS SELECT labs.*, patient, called FROM labs JOIN visits ON visit = vid JOIN wards USING (ward)"
    )
    for source in ("patients", "visits", "labs", "main.labs", '"LABS"', "images", "two", "everything", "by_ward"):
        assert ask(con, source) == ("hospital", ""), source
    assert [row.dataset for row in ledger_of(con).budgets()] == ["hospital"]
    assert [counted(con, table) for table in ("patients", "visits", "labs", "images")] == [60, 120, 240, 240]


CALLS = (
    "dp_sum('labs', target := 'value', by := 'high', keys := [0, 1], lower := 0, upper := 6, epsilon := 1)",
    "dp_quantile('labs', target := 'value', lower := 0, upper := 6, quantiles := [0.5], epsilon := 1)",
    "dp_histogram('labs', target := 'value', n_bins := 3, lower := 0, upper := 6, epsilon := 1)",
    "dp_count('labs', distinct_of := 'patient', epsilon := 1)",
    "dp_count('labs', by := 'patient', keys := [1, 2], epsilon := 1, condition := 'value > 1')",
    "dp_sis('labs', target := 'value', features := ['lab', 'high'], k := 1, epsilon := 1, lower := 0, upper := 240, "
    "target_lower := 0, target_upper := 6)",
    "dp_kendall('images', target := 'dose', features := ['lab'], k := 1, epsilon := 1)",
    "dp_two_stage('labs', target := 'high', features := ['lab', 'value'], k := 1, epsilon := 1, target_levels := [0, 1], "
    "blocks := 4)",
    "dp_linear_regression('labs', target := 'value', features := ['high'], epsilon := 1, delta := 1e-6, lower := 0, upper := 1, "
    "target_lower := 0, target_upper := 6)",
    "dp_logistic_regression('labs', target := 'high', features := ['value'], epsilon := 1, lower := 0, upper := 6, "
    "target_levels := [0, 1])",
    "dp_correlation('labs', features := ['value', 'high'], epsilon := 1, lower := 0, upper := 6)",
)


@cases("call", CALLS, ids=[call.partition("(")[0] for call in CALLS], quick=1, alone=True)
def test_every_kind_of_function_takes_the_end_of_a_path(con: Any, call: str) -> None:
    con.execute(f"{PROTECT})")
    assert outcome(con, lambda: con.execute(f"FROM {call}").fetchall()) == ("hospital", ""), call


def test_an_undeclared_column_is_refused_before_a_row_is_read(con: Any) -> None:
    con.execute(f"{PROTECT})")
    assert code_of(Exception(refusal(con, "FROM dp_count('labs', by := 'ward', keys := [1], epsilon := 1)"))) == "S002"


STATED = {
    "relation": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, neighbours := 'replace', tables := {patients: 'id'})",
        "P111",
    ),
    "unit": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, privacy_unit := 'id', tables := {patients: 'id'})",
        "P111",
    ),
    "source": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, source := false, tables := {patients: 'id'})",
        "P111",
    ),
    "engine": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, engine := 'e', tables := {patients: 'id'})",
        "P111",
    ),
    "no column": ("SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, tables := {patients: 'ids'})", "S002"),
    "no table": ("SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, tables := {patient: 'id'})", "S019"),
    "no cap": ("SELECT dp_protect('h', epsilon := 1, tables := {patients: 'id'})", "P009"),
    "text": ("SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, tables := 'patients')", "P013"),
    "number": ("SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, tables := {patients: 1})", "P013"),
    "no end": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, tables := {visits: 'patient', labs: 'visit -> visits'})",
        "P111",
    ),
    "nothing": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, tables := {visits: 'patient', labs: 'visit -> '})",
        "P111",
    ),
    "no parent": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, tables := {labs: 'visit -> visits.vid'})",
        "P111",
    ),
    "no key": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, tables := {visits: 'patient', labs: 'visit -> visits.id'})",
        "S002",
    ),
    "types": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, tables := {patients: 'name', visits: 'patient -> patients.name'})",
        "P111",
    ),
    "ids": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, tables := {patients: 'name', visits: 'patient'})",
        "P111",
    ),
    "loose": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, tables := {patients: 'id', floating: 'd -> patients.id'})",
        "P111",
    ),
    "many forms": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, tables := {floating: 'd'})",
        "P111",
    ),
    "circle": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, tables := {labs: 'lab -> images.lab', images: 'lab -> labs.lab'})",
        "P111",
    ),
    "itself": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, tables := {labs: 'lab -> labs.lab'})",
        "P111",
    ),
    "view": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, tables := {seen: 'patient', labs: 'visit -> seen.vid'})",
        "P111",
    ),
    "deep": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, tables := {d0: 'p', "
        + ", ".join(f"d{i}: 'p -> d{i - 1}.k'" for i in range(1, 7))
        + "})",
        "P111",
    ),
    "another": ("SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, tables := {mine: 'id'})", "P111"),
    "its name": ("SELECT dp_protect('mine', epsilon := 1, max_rows_per_unit := 2, tables := {patients: 'id'})", "P111"),
    "merge alone": ("SELECT dp_protect('h', epsilon := 1, source := false, merge := ['mine'])", "P111"),
    "merge of nothing": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, merge := ['no'], tables := {patients: 'id'})",
        "P111",
    ),
    "left behind": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, merge := ['mine'], tables := {patients: 'id'})",
        "P111",
    ),
    "other unit": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, merge := ['mine'], tables := {mine: 'x'})",
        "P111",
    ),
    "rows": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, merge := ['rows'], tables := {rows: 'id'})",
        "P111",
    ),
    "persons who are replaced": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, merge := ['changing'], tables := {changing: 'id'})",
        "P111",
    ),
    "other path": (
        "SELECT dp_protect('h', epsilon := 1, max_rows_per_unit := 2, merge := ['steps'], tables := {e0: 'p', e1: 'p -> e0.p'})",
        "P111",
    ),
}


@pytest.fixture(scope="module")
def staged() -> Iterator[Any]:
    with dpsql.connect() as opened:
        opened.execute(STAGE)
        opened.execute(
            "CREATE TABLE floating (d DOUBLE); CREATE VIEW seen AS FROM visits; CREATE TABLE rows (id BIGINT)"
        )
        opened.execute("CREATE TABLE mine (id BIGINT, x BIGINT)")
        opened.execute("".join(f"CREATE TABLE d{i} (p BIGINT, k BIGINT);" for i in range(7)))
        opened.execute("SELECT dp_protect('mine', epsilon := 1, privacy_unit := 'id', max_rows_per_unit := 2)")
        opened.execute("SELECT dp_protect('rows', epsilon := 1)")
        opened.execute("CREATE TABLE changing (id BIGINT)")
        opened.execute(
            "SELECT dp_protect('changing', epsilon := 1, privacy_unit := 'id', max_rows_per_unit := 2, neighbours := 'replace')"
        )
        opened.execute("CREATE TABLE e0 (p BIGINT, k BIGINT); CREATE TABLE e1 (p BIGINT)")
        opened.execute(
            "SELECT dp_protect('steps', epsilon := 1, max_rows_per_unit := 2, tables := {e0: 'p', e1: 'p -> e0.k'})"
        )
        yield opened


@cases(("statement", "code"), STATED.values(), ids=STATED, quick=2)
def test_what_does_not_fit_is_refused_and_nothing_is_recorded(staged: Any, statement: str, code: str) -> None:
    assert f"DPSQL-{code}" in refusal(staged, statement)


def test_five_steps_are_taken(staged: Any) -> None:
    tables = "d0: 'p', " + ", ".join(f"d{i}: 'p -> d{i - 1}.k'" for i in range(1, 6))
    staged.execute(f"SELECT dp_protect('deep', epsilon := 9, max_rows_per_unit := 2, tables := {{{tables}}})")
    staged.execute("FROM dp_count('d5', epsilon := 1)").fetchall()
    assert totals(staged)["deep"] == 1


LATER = {
    "public": ("SELECT dp_public('labs')", "B009"),
    "public by force": ("SELECT dp_public('labs', force := true)", "B009"),
    "looks like a child": ("SELECT dp_public('prints')", "B009"),
    "one of them": (
        "SELECT dp_protect('visits', epsilon := 9, privacy_unit := 'patient', max_rows_per_unit := 1, replace := true)",
        "P111",
    ),
    "the name": ("SELECT dp_protect('hospital', epsilon := 9, source := false, replace := true)", "P111"),
    "twice": (
        "SELECT dp_protect('other', epsilon := 9, max_rows_per_unit := 2, tables := {visits: 'patient'})",
        "P111",
    ),
    "another path": (PROTECT.replace("'visit -> visits.vid'", "'lab -> visits.vid'") + ")", "B005"),
    "another limit": (PROTECT.replace("1e9", "1e10") + ")", "B005"),
    "replaced rows": ("FROM dp_count('labs', neighbours := 'replace', epsilon := 1)", "B003"),
    "another unit": ("FROM dp_count('visits', privacy_unit := 'ward', epsilon := 1)", "B003"),
    "comma without": ("FROM dp_count('crossed', epsilon := 1)", "S012"),
    "rank": ("FROM dp_count('ranked', epsilon := 1)", "S012"),
    "pending": ("FROM dp_count('high_labs', epsilon := 1)", "S017"),
    "keys of a child": ("FROM dp_count('visits', by := 'ward', keys := 'labs', epsilon := 1)", "P071"),
}


@pytest.fixture(scope="module")
def protected() -> Iterator[Any]:
    with dpsql.connect() as opened:
        opened.execute(STAGE)
        opened.execute("SELECT dp_public('labs')")  # before it has a budget, which then takes precedence
        opened.execute("CREATE TABLE prints (visit INTEGER, text VARCHAR)")
        opened.execute("CREATE VIEW crossed AS SELECT patients.* FROM patients, visits")
        opened.execute("CREATE VIEW ranked AS SELECT *, row_number() OVER (ORDER BY ward) AS place FROM visits")
        opened.execute("CREATE VIEW high_labs AS FROM labs WHERE high = 1")
        opened.execute(f"{PROTECT})")
        yield opened


@cases(("statement", "code"), LATER.values(), ids=LATER, quick=4)
def test_what_several_tables_refuse(protected: Any, statement: str, code: str) -> None:
    assert f"DPSQL-{code}" in refusal(protected, statement)


def test_a_refused_view_is_told_the_join_to_write(protected: Any) -> None:
    text = refusal(protected, "FROM dp_count('high_labs', epsilon := 1)")
    assert "JOIN visits ON labs.visit = visits.vid, and select visits.patient" in text
    assert "EXISTS and IN as JOIN (SELECT DISTINCT unit" in refusal(protected, "FROM dp_count('crossed', epsilon := 1)")
    for name, query in {
        "joined": "SELECT labs.*, visits.patient FROM labs JOIN visits ON labs.visit = visits.vid WHERE high = 1",
        "present": "FROM patients JOIN (SELECT DISTINCT patient FROM visits) ON patient = id",
        "absent": "SELECT patients.* FROM patients LEFT JOIN (SELECT DISTINCT patient FROM visits) ON patient = id WHERE patient IS NULL",
        "valued": "SELECT patients.*, w FROM patients LEFT JOIN (SELECT patient, max(ward) AS w FROM visits GROUP BY patient) ON patient = id",
        "crossing": "SELECT patients.* FROM patients, visits WHERE patient = id",
    }.items():
        protected.execute(f"CREATE VIEW {name} AS {query}")
        assert ask(protected, name) == ("hospital", ""), name


@pytest.mark.long
def test_the_declarations_outlive_the_session(tmp_path: Path) -> None:
    for number in range(2):
        with closing(dpsql.connect(tmp_path / "z.duckdb")) as con:
            if not number:
                con.execute(STAGE)
            con.execute(f"{PROTECT})")
            assert ask(con, "images") == ("hospital", "")
            assert con.execute("SELECT count(*) FROM dp_ledger() WHERE kind = 'protect'").fetchall() == [(1,)]
    with closing(dpsql.connect(tmp_path / "z.duckdb")) as con:
        assert ask(con, "labs") == ("hospital", "")
        found = con.execute("SELECT column_name, value FROM dp_policy() WHERE argument = 'tables'").fetchall()
        assert ("labs", "'visit -> visits.vid'") in found
        con.execute("SELECT dp_derive('wards', 'labs', privacy_unit := 'ward', own_rows_only := true)")
        assert ask(con, "wards") == ("hospital", "")


def test_a_table_is_added_and_its_path_replaced(con: Any) -> None:
    con.execute("SELECT dp_protect('patients', epsilon := 1e6, privacy_unit := 'id', max_rows_per_unit := 1)")
    con.execute(
        "SELECT dp_protect('patients', tables := {patients: 'id', visits: 'patient'}, max_rows_per_unit := 9, replace := true)"
    )
    assert ask(con, "visits") == ("patients", "")
    both = "visits: 'patient', labs: 'visit -> visits.vid'"
    con.execute(f"SELECT dp_protect('patients', tables := {{{both}}}, replace := true)")
    assert ask(con, "labs") == ("patients", "")
    assert ask(con, "patients") == ("patients", "")


@pytest.mark.long
def test_each_table_has_a_cap_of_its_own(con: Any) -> None:
    con.execute(PROTECT.replace(":= 9", ":= {patients: 1, visits: 1, labs: 3, images: 9}") + ")")
    con.execute("CREATE VIEW two AS FROM patients JOIN visits ON id = patient")
    con.execute(
        "CREATE VIEW deep AS SELECT patients.*, value FROM patients JOIN visits ON id = patient JOIN labs ON visit = vid"
    )
    assert {source: counted(con, source) for source in ("patients", "visits", "two", "labs", "deep", "images")} == {
        "patients": 60,
        "visits": 60,
        "two": 60,
        "labs": 180,
        "deep": 180,
        "images": 240,
    }
    found = con.execute("SELECT column_name, value FROM dp_policy() WHERE argument = 'max_rows_per_unit'").fetchall()
    assert ("labs", "3") in found
    assert "P111" in refusal(con, PROTECT.replace(":= 9", ":= {visit: 1}") + ", replace := true)")
    con.execute("ALTER TABLE labs ADD COLUMN more BIGINT")
    con.execute(PROTECT.replace(":= 9", ":= {patients: 1, visits: 1, labs: 3, images: 9}") + ")")
    assert counted(con, "labs") == 180


def test_a_table_that_is_added_has_ids_of_the_same_type(con: Any) -> None:
    con.execute(f"{PROTECT})")
    con.execute("CREATE TABLE allergies (person VARCHAR)")
    assert "different types" in refusal(con, PROTECT.replace(TABLES, "{allergies: 'person'}") + ")")


def test_a_path_that_leads_elsewhere_is_refused(con: Any) -> None:
    con.execute(f"{PROTECT})")
    con.execute("ALTER TABLE visits RENAME TO visits_2; CREATE VIEW visits AS FROM visits_2")
    assert ask(con, "labs")[1] in ("B006", "B007")
    con.execute("DROP VIEW visits; CREATE TABLE visits AS SELECT vid::VARCHAR AS vid, patient FROM visits_2")
    assert ask(con, "labs")[1] == "B007"
    con.execute("DROP TABLE visits")
    assert ask(con, "labs")[1] == "B007"


@cases("collation", ["", "COLLATE NOCASE"], quick=1, alone=True)
def test_text_is_compared_by_its_bytes(con: Any, collation: str) -> None:
    con.execute(
        f"CREATE TABLE orders (ok VARCHAR {collation}, who BIGINT); CREATE TABLE lines (o VARCHAR {collation}, x BIGINT)"
    )
    con.execute(
        "INSERT INTO orders VALUES ('a', 1), ('A', 2), ('é', 3); INSERT INTO lines VALUES ('a', 1), ('A', 2), ('É', 3)"
    )
    con.execute("SET default_collation = 'NOCASE'")
    con.execute(
        "SELECT dp_protect('shop', epsilon := 1e9, max_rows_per_unit := 9, tables := {orders: 'who', lines: 'o -> orders.ok'})"
    )
    assert counted(con, "lines") == 2
    con.execute("CREATE VIEW alike AS SELECT who, x FROM lines JOIN orders ON o = ok")
    assert ask(con, "alike")[1] == "S012"


def test_a_path_is_told_to_those_who_write_joins(con: Any) -> None:
    con.execute(f"{PROTECT})")
    sources = session_of(con).sources
    declarations, catalog = sources.declarations(), sources.catalog()

    def owner(name: str) -> Owner | None:
        return declarations.owner(catalog.table(("z", "main", name)), "z")

    found = owner("images")
    assert found is not None
    assert found.unit == "patient"
    assert [(step.column, step.parent.name, step.key, step.is_text) for step in found.steps] == [
        ("lab", "labs", "lab", False),
        ("visit", "visits", "vid", False),
    ]
    assert owner("patients") == Owner("id", ())
    assert owner("wards") is None
    assert isinstance(found.steps[0].parent, TableName)


def test_python_takes_a_dictionary(tmp_path: Path) -> None:
    ctx = dpsql.Context(tmp_path / "z.duckdb")
    with ctx:
        ctx.sql("CREATE TABLE patients AS SELECT i AS id FROM range(9) AS r(i)")
        ctx.sql("CREATE TABLE visits AS SELECT i AS patient FROM range(9) AS r(i)")
        said = ctx.dp_protect("h", epsilon=1e6, max_rows_per_unit=2, tables={"patients": "id", "visits": "patient"})
        assert "tables patients (id), visits (patient)" in said
        ctx.dp_count("visits", epsilon=1e4)
        assert ctx.dp_budget().column("dataset").to_pylist() == ["h"]


def test_a_dataset_with_entries_takes_no_other(con: Any) -> None:
    """What was spent of the two was spent apart, and one sum would hide it; nor is a merged name free again."""
    con.execute("SELECT dp_protect('patients', epsilon := 9, privacy_unit := 'id', max_rows_per_unit := 9)")
    con.execute("FROM dp_count('patients', epsilon := 0.5)").fetchall()
    two = PROTECT.replace(TABLES, "{visits: 'patient', labs: 'visit -> visits.vid'}")
    con.execute(f"{two})")
    con.execute("FROM dp_count('labs', epsilon := 0.25)").fetchall()
    said = "{patients: 'id', visits: 'patient', labs: 'visit -> visits.vid'}, merge := ['patients'], replace := true"
    assert "'patients' cannot be merged into 'hospital', which has entries of its own" in refusal(
        con, f"{PROTECT.replace(TABLES, said)})"
    )
    assert spent(con) == {"patients": 0.5, "hospital": 0.25}
    said = said.replace("'patients']", "'patients', 'hospital']")
    con.execute(f"{PROTECT.replace('hospital', 'everyone').replace(TABLES, said)})")
    assert spent(con) == {"everyone": 0.75}
    again = "SELECT dp_protect('hospital', epsilon := 9, max_rows_per_unit := 9, tables := {wards: 'ward'})"
    assert "'hospital' was merged into 'everyone'" in refusal(con, again)


def merged(con: Any) -> None:
    con.execute("SELECT dp_protect('patients', epsilon := 3, privacy_unit := 'id', max_rows_per_unit := 9)")
    con.execute(
        "SELECT dp_protect('visits', epsilon := 3, delta := 1e-6, privacy_unit := 'patient', max_rows_per_unit := 9)"
    )
    con.execute("CREATE TABLE copied AS FROM patients; SELECT dp_derive('copied', 'patients', own_rows_only := true)")
    con.execute("FROM dp_count('patients', epsilon := 0.5, release := 'n')").fetchall()
    con.execute("FROM dp_count('copied', epsilon := 0.125)").fetchall()
    con.execute("FROM dp_count('visits', epsilon := 0.25)").fetchall()
    con.execute(
        "SELECT dp_protect('hospital', epsilon := 4, delta := 1e-6, max_rows_per_unit := 9, merge := ['patients', 'Visits'], "
        "tables := {patients: 'id', visits: 'patient', labs: 'visit -> visits.vid'})"
    )


def spent(con: Any) -> dict[str, float]:
    return dict(con.execute("SELECT dataset, epsilon_spent FROM dp_budget()").fetchall())


@pytest.mark.long
def test_a_merged_dataset_begins_with_the_sum(con: Any) -> None:
    merged(con)
    assert spent(con) == {"hospital": 0.875}
    with pytest.raises(duckdb.Error, match=r"B001.*3\.125 remains of 4"):
        con.execute("FROM dp_count('labs', epsilon := 3.2)")
    assert ledger_of(con).verify().ok


@pytest.mark.long
def test_a_merge_that_takes_the_largest_is_noticed(con: Any) -> None:
    with planted(*MERGE_TAKES_MAX.patches):
        merged(con)
    assert spent(con) != {"hospital": 0.875}


@pytest.mark.long
def test_old_names_stand_for_the_merged_dataset(con: Any) -> None:
    merged(con)
    first = con.execute("SELECT value FROM dp_count('patients', epsilon := 0.5, release := 'n')").fetchall()
    assert spent(con) == {"hospital": 0.875}
    assert first == con.execute("SELECT value FROM dp_count('patients', epsilon := 0.5, release := 'n')").fetchall()
    for source in ("patients", "visits", "labs", "copied"):
        con.execute(f"FROM dp_count('{source}', epsilon := 0.125)").fetchall()
    con.execute("FROM dp_count('copied', epsilon := 0.125, dataset := 'patients')").fetchall()
    assert spent(con) == {"hospital": 1.5}
    for statement in (
        "SELECT dp_protect('patients', epsilon := 9, source := false, replace := true)",
        "SELECT dp_protect('visits', epsilon := 9, privacy_unit := 'patient', max_rows_per_unit := 9, replace := true)",
    ):
        assert "P111" in refusal(con, statement)


@pytest.mark.long
def test_a_call_that_was_admitted_before_a_merge_is_not_charged_to_what_has_ended(con: Any) -> None:
    merged(con)
    ledger = ledger_of(con)
    event = {"mechanism": "discrete_laplace", "epsilon": "0.1"}
    charge = ledgers.Charge("patients", event, "dp_count", {}, neighbours="add_remove")
    with pytest.raises(dpsql.DpsqlError, match="B001"):
        ledger.charge(charge, lambda: 1)
