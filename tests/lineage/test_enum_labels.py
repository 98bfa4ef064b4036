"""Labels that rows have made are private: no door shows them, lists them as keys, or goes by their order.

Two tables have the same rows, and types with other labels, as if one of them had held one person more when its type was
made. Whatever is asked, both answer alike: the same exact integers before noise, the same texts and types, the same
refusals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

import dpsql
from dpsql.cli.commands import main
from dpsql.contract.query import cores
from dpsql.contract.query.relations import Splitting
from dpsql.engines.duckdb.lineage import labels, paths, queries
from dpsql.gateway.granted import Granted
from dpsql.ledger.grants import Grant
from support.broken.planting import planted
from support.cases import cases
from support.exact_parts import ExactCalls, exact_parts
from support.sessions import one_key, session_of

FEW, MORE = ("flu", "asthma"), ("asthma", "Huntington", "flu")
NAMES = ["flu", "asthma"] * 20


def _by_type(con: Any, known: tuple[str, ...]) -> None:
    con.execute("CREATE TABLE all_names AS SELECT unnest($1) AS name", [list(known)])
    con.execute("CREATE TYPE disease AS ENUM (SELECT name FROM all_names); DROP TABLE all_names")
    con.execute("CREATE TABLE raw AS SELECT unnest(range($1)) AS id, unnest($2) AS name", [len(NAMES), NAMES])
    con.execute("CREATE TABLE patients AS SELECT id, name::disease AS diag, id % 7 AS x FROM raw; DROP TABLE raw")


def _by_frame(con: Any, known: tuple[str, ...]) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": range(len(NAMES)), "diag": pandas.Categorical(NAMES, categories=known)})
    con.register("frame", frame)
    con.execute("CREATE TABLE patients AS SELECT *, id % 7 AS x FROM frame")
    con.unregister("frame")


MADE = {"a type of a query": _by_type, "a category of pandas": _by_frame}
VIEWS = {
    "passed": "SELECT id, diag, x FROM patients",
    "cast": "SELECT id, x, diag::VARCHAR AS diag FROM patients WHERE diag = 'flu'",
    "equal": "SELECT a.id, a.x, a.diag = b.diag AS same FROM patients a JOIN patients b USING (id)",
    "counted": "SELECT id, count(diag) AS n FROM patients GROUP BY id",
    "grouped": "SELECT id, diag, count(*) AS n FROM patients GROUP BY id, diag",
    "nested": "SELECT id, {'k': diag} AS s, [diag] AS l FROM patients",
}
# What goes by the position of a label, or shows one.
BY_LABELS = {
    "ordered": "SELECT id, x, row_number() OVER (PARTITION BY id ORDER BY diag, x) AS r FROM patients",
    "largest": "SELECT id, max(diag) AS m FROM patients GROUP BY id",
    "less": "SELECT id, diag < diag AS c FROM patients",
    "least": "SELECT id, least(diag, diag) AS c FROM patients",
    "between": "SELECT id, diag BETWEEN diag AND diag AS c FROM patients",
    "joined": "SELECT a.id FROM patients a JOIN patients b ON a.id = b.id AND a.diag <= b.diag",
    "arg_max": "SELECT id, arg_max(x, diag) AS m FROM patients GROUP BY id",
    "window": "SELECT id, max(diag) OVER (PARTITION BY id) AS m FROM patients",
    "list order": "SELECT id, list_sort(list(diag)) AS m FROM patients GROUP BY id",
    "code": "SELECT id, enum_code(diag) AS c FROM patients",
    "hash": "SELECT id, hash(diag) AS c FROM patients",
    "range": "SELECT id, len(enum_range(diag)) AS c FROM patients",
    "type": "SELECT id, length(typeof(diag)) AS c FROM patients",
}
QUERIES = (
    "SELECT diag, count(*) FROM patients GROUP BY diag",
    "SELECT diag, count(*) FROM patients GROUP BY diag ORDER BY diag LIMIT 1",
    "SELECT count(*) FROM patients WHERE diag = 'Huntington'",
    "SELECT count(*) FROM patients WHERE diag > 'b'",
    "SELECT count(*) FROM patients WHERE diag IN ('flu', 'Huntington')",
    "SELECT count(*) FROM patients WHERE diag = 'Huntington'::disease",
    "SELECT count(*) FROM patients WHERE coalesce(diag, 'Huntington') = 'flu'",
    "SELECT count(*) FROM patients WHERE CASE WHEN x = 1 THEN diag ELSE 'Huntington' END = 'flu'",
    "SELECT count(DISTINCT diag) FROM patients",
    "SELECT max(diag) FROM patients",
    "SELECT sum(diag) FROM patients",
    "SELECT count(*) FROM (SELECT id, max(diag) AS m FROM patients GROUP BY id) WHERE m = 'flu'",
    "SELECT count(*) FROM (SELECT id, row_number() OVER (PARTITION BY id ORDER BY diag) AS r FROM patients) WHERE r = 1",
    "SELECT count(*) FROM patients a JOIN patients b USING (id) WHERE a.diag < b.diag",
    "SELECT count(*) FROM patients WHERE cast(diag AS INTEGER) = 1",
    "SELECT decode(diag, 1, 2) FROM patients",
    "SELECT ward, count(*) FROM patients JOIN wards USING (diag) GROUP BY ward",
    "SELECT diag FROM patients LIMIT 0",
    "SELECT diag, count(*) FROM patients WHERE false GROUP BY diag",
    "DESCRIBE patients",
    "SHOW TABLES",
    "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'patients'",
    "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'patients'",
    "SELECT * FROM duckdb_types()",
    "SELECT * FROM pg_catalog.pg_enum",
    "SELECT enum_range(NULL::disease)",
)
CALLS = (
    "dp_count('patients', by := 'diag', epsilon := 8)",
    "dp_count('patients', by := 'diag', keys := 'private', epsilon := 8, delta := 1e-6)",
    "dp_count('patients', by := 'diag', keys := ['flu', 'Huntington'], epsilon := 8)",
    "dp_count('patients', by := 'diag', keys := ['flu'], other := true, epsilon := 8)",
    "dp_count('patients', condition := 'diag = ''Huntington''', epsilon := 8)",
    "dp_count('patients', condition := 'diag > ''b''', epsilon := 8)",
    "dp_count('patients', distinct_of := 'diag', epsilon := 8)",
    "dp_avg('patients', 'x', by := 'diag', lower := 0, upper := 6, epsilon := 8)",
    "dp_avg('patients', 'diag', lower := 0, upper := 6, epsilon := 8)",
    "dp_histogram('patients', 'x', by := 'diag', lower := 0, upper := 6, n_bins := 2, epsilon := 8)",
    "dp_crosstab('patients', 'diag', 'x', epsilon := 8)",
    "dp_synthetic('patients', ['diag', 'x'], lower := 0, upper := 6, epsilon := 8, delta := 1e-6)",
    "dp_logistic_regression('patients', target := 'diag', features := ['x'], lower := 0, upper := 6, epsilon := 8)",
    "dp_linear_regression('patients', target := 'x', features := ['diag'], epsilon := 8, delta := 1e-6)",
    "dp_estimate('dp_count', by := 'diag', epsilon := 8)",
)
ASKED = [
    *(f"dp_query($${sql}$$, epsilon := 8)" for sql in QUERIES),
    *CALLS,
    *(f"dp_query('DESCRIBE {name}', epsilon := 8)" for name in (*VIEWS, *BY_LABELS)),
    *(f"dp_query('SELECT count(*) FROM \"{name}\"', epsilon := 8)" for name in (*VIEWS, *BY_LABELS)),
    *(f"dp_count('\"{name}\"', epsilon := 8)" for name in (*VIEWS, *BY_LABELS)),
    "dp_count('passed', by := 'diag', epsilon := 8)",
    "dp_query('SELECT diag, count(*) FROM passed GROUP BY diag', epsilon := 8)",
    "dp_count('passed', condition := 'diag > ''b''', epsilon := 8)",
]


# A few of them, one for each door.
QUICK = [
    "dp_query('SELECT diag, count(*) FROM patients GROUP BY diag', epsilon := 8)",
    "dp_query($$SELECT count(*) FROM patients WHERE diag > 'b'$$, epsilon := 8)",
    "dp_query('SELECT decode(diag, 1, 2) FROM patients', epsilon := 8)",
    "dp_query('SELECT diag FROM patients LIMIT 0', epsilon := 8)",
    "dp_query('DESCRIBE patients', epsilon := 8)",
    "dp_query($$SELECT data_type FROM duckdb_columns() WHERE column_name = 'diag'$$, epsilon := 8)",
    "dp_count('patients', by := 'diag', epsilon := 8)",
    "dp_count('patients', by := 'diag', keys := ['flu', 'Huntington'], epsilon := 8)",
    "dp_count('patients', condition := 'diag > ''b''', epsilon := 8)",
    "dp_count('passed', by := 'diag', epsilon := 8)",
]


def opened(
    known: tuple[str, ...], made: str = "a type of a query", more: str = "", path: Path | None = None
) -> duckdb.DuckDBPyConnection:
    con = dpsql.connect(":memory:" if path is None else path)
    MADE[made](con, known)
    con.execute("CREATE TABLE wards AS SELECT unnest(['flu', 'asthma']) AS diag, unnest(['a', 'b']) AS ward")
    for name, sql in (VIEWS | BY_LABELS).items():
        con.execute(f'CREATE VIEW "{name}" AS {sql}')
    con.execute(
        "SELECT dp_protect('patients', epsilon := 1000, delta := 0.1, privacy_unit := 'id', max_rows_per_unit := 1, "
        f"public := ['wards'] {more})"
    ).fetchall()
    return con


def told(calls: ExactCalls, con: Any, sql: str) -> tuple[Any, ...]:
    """Return what is answered: types, rows without noise, and the exact integers; or the refusal."""
    try:
        call = calls.run(con, f"FROM {sql}")
    except duckdb.Error as error:
        lines = str(error).splitlines()
        return ("refused", next((line for line in lines if "DPSQL-" in line), lines[0]))
    exact = [(part.tag, [repr(vector) for vector in part.vectors], part.scales) for part in call.parts]
    return [(name, str(kind)) for name, kind in call.types], sorted(map(repr, call.rows)), exact


def differences(one: Any, other: Any, asked: Iterable[str]) -> list[str]:
    """Return what two databases answer differently."""
    with one_key(), exact_parts() as calls:
        return [sql for sql in asked if told(calls, one, sql) != told(calls, other, sql)]


@pytest.fixture(scope="module", params=MADE)
def neighbours(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    few, more = opened(FEW, request.param), opened(MORE, request.param)
    shown = "SELECT data_type FROM duckdb_columns() WHERE table_name = 'patients' AND column_name = 'diag'"
    assert few.execute(shown).fetchall() != more.execute(shown).fetchall(), "DuckDB's own catalog tells them apart"
    yield few, more
    few.close()
    more.close()


@pytest.mark.long
def test_neighbours_are_answered_alike(neighbours: tuple[Any, Any]) -> None:
    assert differences(*neighbours, QUICK) == []


@pytest.mark.long
def test_neighbours_are_answered_alike_whatever_is_asked(neighbours: tuple[Any, Any]) -> None:
    assert differences(*neighbours, ASKED) == []


@pytest.mark.long
def test_no_answer_shows_a_label_that_no_row_has(neighbours: tuple[Any, Any]) -> None:
    with one_key(), exact_parts() as calls:
        for sql in ASKED:
            if "Huntington" not in sql:
                assert "Huntington" not in repr(told(calls, neighbours[1], sql)), sql


def test_a_view_may_hand_labels_on(neighbours: tuple[Any, Any]) -> None:
    for name in VIEWS:
        with exact_parts() as calls:
            found = told(calls, neighbours[0], f"dp_count('{name}', epsilon := 8)")
        assert found[0] != "refused", (name, found)


def test_a_view_that_goes_by_labels_is_refused(neighbours: tuple[Any, Any]) -> None:
    for name in BY_LABELS:
        for ask in (
            f"dp_count('\"{name}\"', epsilon := 8)",
            f"dp_query('SELECT count(*) FROM \"{name}\"', epsilon := 8)",
        ):
            with exact_parts() as calls:
                found = told(calls, neighbours[0], ask)
            assert found[0] == "refused", (name, found)
            assert any(code in str(found[1]) for code in ("S067", "S041", "S042")), found


def test_the_order_is_that_of_texts() -> None:
    con = opened(("flu", "asthma"))
    kept = "dp_query($$SELECT count(*) FROM patients WHERE diag > 'b'$$, epsilon := 8)"
    first = "SELECT diag, count(*) AS n FROM patients GROUP BY diag ORDER BY diag LIMIT 1"
    with exact_parts() as calls:
        assert told(calls, con, kept)[1] == ["(20,)"]
        listed = told(calls, con, f"dp_query('{first}', keys := {{diag: ['flu', 'asthma']}}, epsilon := 8)")
    assert listed[1] == ["('asthma', 20)"]


# What owners declare.


def test_the_owner_is_told_which_columns_are_read_as_text() -> None:
    con = opened(FEW)
    [(said,)] = con.execute("SELECT dp_protect('patients', max_rows_per_unit := 1, replace := true)").fetchall()
    assert "read as text, as rows may have made their labels: diag (" in said
    assert "enum_labels := 'public', replace := true" in said
    [(said,)] = con.execute("SELECT dp_protect('patients', enum_labels := 'public', replace := true)").fetchall()
    assert "read as text" not in said
    assert "labels of ENUM columns public" in said
    stated = con.execute("SELECT value FROM dp_policy() WHERE argument = 'enum_labels'").fetchall()
    assert stated == [("'public'",)]


@pytest.mark.long
def test_declared_labels_are_keys_and_have_their_order() -> None:
    con = opened(MORE, more=", enum_labels := 'public'")
    with exact_parts() as calls:
        asked = told(calls, con, "dp_query('SELECT diag, count(*) AS n FROM patients GROUP BY diag', epsilon := 8)")
        counted = told(calls, con, "dp_count('patients', by := 'diag', epsilon := 8)")
        described = told(calls, con, "dp_query('DESCRIBE patients', epsilon := 8)")
        viewed = told(calls, con, "dp_count('largest', by := 'm', epsilon := 8)")
        ordered = told(calls, con, "dp_query('SELECT count(*) FROM ordered WHERE r = 1', epsilon := 8)")
    assert asked[1] == ["('Huntington', 0)", "('asthma', 20)", "('flu', 20)", "(None, 0)"]
    assert asked[0][0] == ("diag", "ENUM('asthma', 'Huntington', 'flu')")
    assert len(counted[1]) == len(viewed[1]) == 4
    assert "Huntington" in str(described[1])
    assert ordered[1] == ["(40,)"]


@pytest.mark.long
def test_listed_keys_are_public_and_labels_are_not() -> None:
    more = ", keys := {diag: ['flu', 'Huntington']}"
    few, many = opened(FEW, more=more), opened(MORE, more=more)
    assert differences(few, many, QUICK) == []
    with exact_parts() as calls:
        found = told(calls, few, "dp_query('SELECT diag, count(*) AS n FROM patients GROUP BY diag', epsilon := 8)")
    assert found[1] == ["('Huntington', 0)", "('flu', 20)"]


def test_keys_of_a_call_declare_nothing() -> None:
    con = opened(FEW)
    con.execute("FROM dp_count('patients', by := 'diag', keys := ['flu', 'asthma'], epsilon := 8)").fetchall()
    with pytest.raises(duckdb.Error, match="P065"):
        con.execute("FROM dp_count('patients', by := 'diag', epsilon := 8)")


CHANGES = {
    "another table": "CREATE OR REPLACE TABLE patients AS SELECT id, name::other AS diag, id % 7 AS x FROM kept",
    "another type": "ALTER TABLE patients ALTER diag TYPE other USING diag::VARCHAR::other",
}


@cases("change", CHANGES, quick=1)
def test_other_labels_than_were_declared_are_private(change: str) -> None:
    con = opened(FEW, more=", enum_labels := 'public'")
    for view in (*VIEWS, *BY_LABELS):
        con.execute(f'DROP VIEW "{view}"')
    con.execute("FROM dp_count('patients', by := 'diag', epsilon := 8)").fetchall()
    con.execute("CREATE TYPE other AS ENUM ('asthma', 'Huntington', 'flu')")
    con.execute("CREATE TABLE kept AS SELECT id, diag::VARCHAR AS name FROM patients")
    con.execute(CHANGES[change])
    for ask in ("dp_count('patients', by := 'diag'", "dp_query('SELECT diag, count(*) FROM patients GROUP BY diag'"):
        with pytest.raises(duckdb.Error, match="P065"):
            con.execute(f"FROM {ask}, epsilon := 8)")
    con.execute("SELECT dp_protect('patients', enum_labels := 'public', replace := true)").fetchall()
    assert len(con.execute("FROM dp_count('patients', by := 'diag', epsilon := 8)").fetchall()) == 3 + 1  # and NULL


def test_a_new_column_has_private_labels_beside_declared_ones() -> None:
    con = opened(FEW, more=", enum_labels := 'public'")
    con.execute("ALTER TABLE patients ADD COLUMN second disease")
    assert len(con.execute("FROM dp_count('patients', by := 'diag', epsilon := 8)").fetchall()) == 2 + 1  # and NULL
    with pytest.raises(duckdb.Error, match="P065"):
        con.execute("FROM dp_count('patients', by := 'second', epsilon := 8)")


@pytest.mark.long
def test_declared_labels_stay_keys_beside_private_ones() -> None:
    """Which labels are alike in two tables tells of the private ones: all of a query are text then."""
    found = []
    for known in (FEW, MORE):
        con = dpsql.connect(":memory:")
        _by_type(con, FEW)
        con.execute(f"CREATE TYPE others_type AS ENUM ({', '.join(map(repr, known))})")
        con.execute("CREATE TABLE others AS SELECT id, diag::VARCHAR::others_type AS diag FROM patients")
        tables = "tables := {patients: 'id'}, max_rows_per_unit := 1"
        con.execute(f"SELECT dp_protect('hospital', epsilon := 99, enum_labels := 'public', {tables})").fetchall()
        con.execute(
            "SELECT dp_protect('hospital', enum_labels := 'private', tables := {others: 'id'}, max_rows_per_unit := 1, "
            "replace := true)"
        ).fetchall()
        sql = "SELECT p.diag, count(*) AS n FROM patients p JOIN others o USING (id) WHERE o.diag > 'b' GROUP BY p.diag"
        with exact_parts() as calls:
            found.append(told(calls, con, f"dp_query($${sql}$$, epsilon := 8)"))
    assert found[0] == found[1]
    assert found[0][0][0] == ("diag", "VARCHAR")
    assert found[0][1] == ["('asthma', 0)", "('flu', 20)"]


def test_several_tables_declare_labels_together() -> None:
    con = dpsql.connect(":memory:")
    _by_type(con, FEW)
    con.execute("CREATE TABLE labs AS SELECT id, diag AS cause FROM patients")
    tables = "tables := {patients: 'id', labs: 'id'}, max_rows_per_unit := 1"
    [(said,)] = con.execute(f"SELECT dp_protect('hospital', epsilon := 100, {tables})").fetchall()
    assert "read as text, as rows may have made their labels: diag, cause (" in said
    with pytest.raises(duckdb.Error, match="P065"):
        con.execute("FROM dp_count('labs', by := 'cause', epsilon := 1)")
    con.execute(f"SELECT dp_protect('hospital', {tables}, enum_labels := 'public', replace := true)").fetchall()
    assert len(con.execute("FROM dp_count('labs', by := 'cause', epsilon := 1)").fetchall()) == 2 + 1  # and NULL


def test_a_person_may_be_named_by_a_label() -> None:
    con = dpsql.connect(":memory:")
    con.execute("CREATE TYPE person AS ENUM ('bo', 'al')")
    con.execute("CREATE TABLE visits AS SELECT unnest(['al', 'bo', 'al']::person[]) AS who, 1 AS x")
    con.execute("SELECT dp_protect('visits', epsilon := 99, privacy_unit := 'who', max_rows_per_unit := 1)").fetchall()
    twice = "SELECT count(*) FROM (SELECT who, sum(x) AS s FROM visits GROUP BY who) WHERE s = 2"
    with exact_parts() as calls:
        assert told(calls, con, "dp_query('SELECT count(*) FROM visits', epsilon := 8)")[1] == ["(2,)"]
        assert told(calls, con, f"dp_query('{twice}', epsilon := 8)")[1] == ["(1,)"]
        assert "2" in str(told(calls, con, "dp_count('visits', epsilon := 8)")[1])


FAULTS = {
    "labels are public without a declaration": ((labels.EnumLabels, "private", lambda *_: {}),),
    "the catalog shows labels": ((cores, "_WITHOUT_LABELS", "data_type"),),
    "DuckDB's words show labels": ((paths, "without_labels", lambda text: text),),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str) -> None:
    with planted(*FAULTS[fault]):
        few, more = opened(FEW), opened(MORE)
        assert differences(few, more, QUICK)


def test_what_is_written_of_a_query_is_judged_by_its_plan() -> None:
    """A query that was written without the casts is refused, whatever the splitter takes for private."""
    con = opened(FEW)
    with planted((queries.SeenTable, "as_text", lambda self: self.table)), exact_parts() as calls:
        found = told(calls, con, "dp_query('SELECT diag, count(*) FROM patients GROUP BY diag', epsilon := 8)")
    assert "I036" in str(found[1]), found


@pytest.mark.odds("0: looks at lines, and at how many rows come")
@pytest.mark.long
def test_doctor_prints_the_lines_to_paste(tmp_path: Path) -> None:
    """A table that was protected by an earlier version has undeclared labels."""
    con = dpsql.connect(tmp_path / "hospital.duckdb")
    _by_type(con, FEW)
    con.execute("CREATE TABLE labs AS SELECT id, diag AS cause FROM patients; CREATE TABLE visits AS FROM patients")
    con.execute("SELECT dp_protect('patients', epsilon := 9, privacy_unit := 'id', max_rows_per_unit := 1)").fetchall()
    tables = "tables := {visits: 'id', labs: 'id -> visits.id'}"
    con.execute(f"SELECT dp_protect('hospital', epsilon := 9, max_rows_per_unit := 1, {tables})").fetchall()
    found = session_of(con).sources.undeclared_labels()
    assert [one[:2] for one in found] == [("patients", ["diag"]), ("hospital", ["diag", "cause"])]
    con.close()
    shown = CliRunner().invoke(main, ["doctor", "--db", str(tmp_path / "hospital.duckdb")])
    lines = [line.strip() for line in shown.output.splitlines() if "enum_labels" in line]
    assert len(lines) == 2, shown.output
    con = dpsql.connect(tmp_path / "hospital.duckdb")
    for line in lines:
        con.execute(line).fetchall()
    assert session_of(con).sources.undeclared_labels() == []
    assert len(con.execute("FROM dp_count('labs', by := 'cause', epsilon := 1)").fetchall()) == 2 + 1  # and NULL
    con.close()


@pytest.mark.long
def test_the_gateway_tells_no_label(tmp_path: Path) -> None:
    told_of = []
    for known in (FEW, MORE):
        folder = tmp_path / str(len(known))
        folder.mkdir()
        opened(known, path=folder / "hospital.duckdb").close()
        with dpsql.Context(folder / "hospital.duckdb") as context:
            granted = Granted("ana", [Grant("ana", "patients")], context.ledger)
            described = granted.described("patients", context)
            told_of.append((described["columns"], granted.columns("patients", context).to_pylist()))
    assert told_of[0] == told_of[1]
    assert told_of[0][0][1] == {"name": "diag", "type": "VARCHAR"}


REPLAYED = (
    "dp_query('SELECT diag, count(*) AS n FROM patients GROUP BY diag', epsilon := 1)",
    "dp_query('SELECT diag, count(*) AS n FROM patients GROUP BY diag', epsilon := 1, release := 'weekly')",
    "dp_query($$SELECT count(*) FROM patients WHERE diag > 'b'$$, epsilon := 1)",
    "dp_query('SELECT diag, count(*) AS n FROM passed GROUP BY diag ORDER BY diag', epsilon := 1)",
    "dp_query('SELECT count(*) FROM largest', epsilon := 1)",
    "dp_count('patients', by := 'diag', epsilon := 1, release := 'a')",
    "dp_count('passed', by := 'diag', epsilon := 1, release := 'b')",
    "dp_count('patients', condition := 'diag > ''b''', epsilon := 1, release := 'c')",
    "dp_count('patients', by := 'diag', keys := ['flu'], epsilon := 1, release := 'd')",
)


@pytest.mark.long
def test_what_was_released_while_labels_were_public_replays() -> None:
    """Its name and arguments are those of a version that took every label for public, and NULL for no key."""
    as_then = (labels.EnumLabels, "private", lambda *_: {}), (Splitting, "revised", lambda *_: False)
    with planted(*as_then):
        con = opened(MORE)
        before = [con.execute(f"FROM {sql}").fetchall() for sql in REPLAYED]
    spent = con.execute("SELECT releases, epsilon_spent FROM dp_budget()").fetchall()
    assert [con.execute(f"FROM {sql}").fetchall() for sql in REPLAYED] == before
    assert con.execute("SELECT releases, epsilon_spent FROM dp_budget()").fetchall() == spent
    with pytest.raises(duckdb.Error, match="P065"):
        con.execute("FROM dp_query('SELECT diag, count(*) AS n FROM patients GROUP BY diag', epsilon := 2)")
    with pytest.raises(duckdb.Error, match="P065"):
        con.execute(f"FROM {REPLAYED[0].replace('epsilon', 'fresh := true, epsilon')}")


NAMED = (
    "dp_query($$SELECT count(*) FROM patients WHERE diag > 'b'$$, epsilon := 1)",
    "dp_query('SELECT diag, count(*) FROM passed GROUP BY diag', keys := {diag: ['flu']}, epsilon := 1)",
    "dp_count('passed', by := 'diag', keys := ['flu'], epsilon := 1, release := 'b')",
)


@cases("asked", NAMED, ids=["query of a table", "query of a view", "named count of a view"])
def test_names_of_releases_tell_of_no_label(asked: str) -> None:
    """A query is named by a digest of what it asks for, and whoever sees the name may try labels."""
    listed = []
    for known in (FEW, MORE):
        con = opened(known)
        con.execute(f"FROM {asked}").fetchall()
        fingerprints = session_of(con).ledger
        releases = [con.execute("SELECT kind, release, guarantee, event FROM dp_ledger()").fetchall()]
        releases += [sorted(one.arguments.items(), key=str) for one in fingerprints.releases(("dp_count", "dp_query"))]
        listed.append(repr(releases))
    assert listed[0] == listed[1]
