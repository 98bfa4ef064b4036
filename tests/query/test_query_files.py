"""Plain SQL over views on files: what is read, what is refused at no cost, and what becomes of a call on damaged files.

That files are answered as tables, and are as private, `tests/property/test_sensitivity_query_files.py` shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.cli.runner import Runner
from dpsql.engines.duckdb.lineage import placing
from dpsql.engines.duckdb.lineage.closure import Closure
from dpsql.engines.duckdb.lineage.texts import Catalogued, Macro
from dpsql.gateway.audit import Audit
from dpsql.gateway.desk import Desk
from dpsql.gateway.limits import Buckets, Rates
from dpsql.ledger.grants import Grant
from support.cases import cases
from support.gateway_broker import number, tree_of
from support.plain_tables import LINES

ROWS = "SELECT i AS vid, i % 50 AS patient, ['A', 'B', 'C'][1 + i % 3] AS ward, (i % 14)::INTEGER AS days FROM range(600) r(i)"
STATED = "epsilon := 1e9, delta := 1e-3, privacy_unit := 'patient', max_rows_per_unit := 12"
BY_WARD = "SELECT ward, count(*) AS n FROM visits WHERE ward IN ('A', 'B') AND days > 3 GROUP BY ward ORDER BY ward"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect() as plain:
        plain.execute(f"CREATE TABLE visits AS {ROWS}")
        for name in ("visits.parquet", "more.parquet", "visits.csv", "visits.json"):
            plain.execute(f"COPY visits TO '{tmp_path / name}'")
        plain.execute(f"COPY visits TO '{tmp_path / 'visits.txt'}' (FORMAT csv, DELIMITER '|')")
        plain.execute(f"COPY visits TO '{tmp_path / 'hive'}' (FORMAT parquet, PARTITION_BY (ward))")
    return tmp_path


@pytest.fixture
def con(folder: Path) -> Iterator[Any]:
    with dpsql.connect(folder / "hospital.duckdb") as opened:
        opened.execute("SET enable_external_file_cache = false")  # files are written anew within a moment
        opened.execute(f"CREATE VIEW visits AS FROM '{folder}/visits.parquet'")
        opened.execute(f"SELECT dp_protect('visits', {STATED})")
        yield opened


def ask(con: Any, sql: str, epsilon: float = 1e6) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = con.execute(
        "FROM dp_query(?, epsilon := ?, left_out_share := 0)", [sql, epsilon]
    ).fetchall()
    return rows


def spent(con: Any, dataset: str = "visits") -> float:
    [(epsilon,)] = con.execute("SELECT epsilon_spent FROM dp_budget() WHERE dataset = ?", [dataset]).fetchall()
    return float(epsilon)


def code(asking: Callable[[], object]) -> str:
    """Return the code of a refusal; '' if there is none."""
    try:
        asking()
    except duckdb.Error as error:
        found = re.search(r"DPSQL-([A-Z]\d{3})", str(error))
        return found[1] if found else str(error)
    return ""


CELLS = "SELECT vid, TRY_CAST(patient AS BIGINT) AS patient, ward, TRY_CAST(days AS INTEGER) AS days"
READ_LINES = (
    " FROM read_csv('{0}/visits.txt', columns := {{vid: 'VARCHAR', patient: 'VARCHAR', ward: 'VARCHAR', days: 'VARCHAR'}}, "
    + LINES
    + ")"
)

# Views over files, and the code with which plain SQL refuses them; a function answers each of them.
VIEWS = {
    "a file": ("FROM '{0}/visits.parquet'", ""),
    "columns that are computed": (
        "SELECT vid, patient, upper(ward) AS ward, days + 1 AS days FROM '{0}/visits.parquet'",
        "",
    ),
    "a glob": ("FROM '{0}/[mv]*.parquet'", ""),
    "a list": ("SELECT * FROM read_parquet(['{0}/visits.parquet', '{0}/more.parquet'])", ""),
    "a union": ("FROM '{0}/visits.parquet' UNION ALL FROM '{0}/more.parquet'", ""),
    "folders with values": (
        "SELECT * FROM read_parquet('{0}/hive/*/*.parquet', hive_partitioning := true, hive_types := {{'ward': VARCHAR}})",
        "",
    ),
    "union by name": ("SELECT * FROM read_parquet('{0}/visits.parquet', union_by_name := true)", "S069"),
    "union by name, in another form": (
        "SELECT * FROM read_parquet('{0}/visits.parquet', union_by_name = true)",
        "S069",
    ),
    "names of files": ("SELECT * FROM read_parquet('{0}/visits.parquet', filename := true)", "S069"),
    "places in files": ("SELECT * FROM read_parquet('{0}/visits.parquet', file_row_number := true)", "S069"),
    "a collation": ("SELECT vid, patient, days, ward COLLATE NOCASE AS ward FROM '{0}/visits.parquet'", "S069"),
    "labels": ("SELECT vid, patient, days, ward::ENUM('A', 'B', 'C') AS ward FROM '{0}/visits.parquet'", "S069"),
    "a table": ("SELECT f.* FROM '{0}/visits.parquet' AS f JOIN looked_up USING (ward)", "S069"),
    "lines": (CELLS + READ_LINES, ""),
    "lines of numbers": ("SELECT *" + READ_LINES.replace("days: 'VARCHAR'", "days: 'INTEGER'"), "S069"),
    "lines with a cast": (CELLS.replace("TRY_CAST(days", "CAST(days") + READ_LINES, "S069"),
    "lines with another option": (CELLS + READ_LINES.replace("quote :=", "nullstr := 'x', quote :="), "S069"),
    "a json file": (
        "SELECT * FROM read_json('{0}/visits.json', columns := "
        "{{vid: 'BIGINT', patient: 'BIGINT', ward: 'VARCHAR', days: 'INTEGER'}})",
        "S069",
    ),
}


@cases(("sql", "refused"), [pytest.param(*view, id=name) for name, view in VIEWS.items()], alone=True)
def test_what_a_view_may_read(con: Any, folder: Path, sql: str, refused: str) -> None:
    con.execute("CREATE TABLE looked_up AS FROM (VALUES ('A'), ('B')) AS t(ward)")
    con.execute(f"CREATE VIEW seen AS {sql.format(folder)}")
    con.execute(f"SELECT dp_protect('seen', {STATED})")
    assert code(lambda: con.execute("FROM dp_count('seen', epsilon := 1)")) == ""
    before = spent(con, "seen")
    by_ward = BY_WARD.replace("visits", "seen")
    assert code(lambda: ask(con, by_ward)) == refused
    if refused:
        assert spent(con, "seen") == before
    else:
        assert ask(con, by_ward) == [(ward, count) for ward, count in con.execute(by_ward).fetchall()]


def why_not(options: str, *macros: Macro) -> list[str]:
    """Return why plain SQL does not read lines with these options."""
    closure = Closure("seen", Catalogued(macros=macros))
    closure.query(f"FROM read_csv('visits.txt', {options})")
    [(_, listed)] = closure.readers
    return placing._of_lines(listed)


def test_every_option_of_lines_is_needed_once_with_its_value() -> None:
    options = ["columns := {vid: 'VARCHAR', days: 'varchar'}", *LINES.split(", ")]
    assert why_not(", ".join(options)) == []
    assert why_not(", ".join(options[::-1]).replace(":=", "=").replace("quote", "QUOTE")) == []
    for option in options:
        others, name = [other for other in options if other != option], option.split(" := ")[0]
        for more in ([], [f"{name} := 7"], [f"{name} := lower('x')"], [f"{name} := {{a: lower('x')}}"], [option] * 2):
            assert re.match(rf"read_csv\(\) needs {name} := \S", why_not(", ".join([*others, *more]))[0]), (name, more)
    for more in ("filename := true", "union_by_name := true", "types := {days: 'INTEGER'}", "'more.txt'"):
        assert re.match(r"read_csv\(\) has ", why_not(", ".join([*options, more]))[0]), more
    macro = Macro(("memory", "main", "struct_pack"), False, ("vid", "days"), (None, None), "map(['vid'], ['INTEGER'])")
    assert why_not(", ".join(options), macro)[0].startswith("read_csv() needs columns := ")
    both = why_not(", ".join(options).replace("quote := '', ", "").replace("parallel := false", "parallel := true"))
    assert both[0].startswith("read_csv() needs quote := '', parallel := false: without it")


def test_a_damaged_line_is_null_or_left_out(con: Any, folder: Path) -> None:
    """Cells that cannot be read are NULL, missing ones too; a column more is ignored, and text that is not UTF-8 left out."""
    good = [b"%d|%d|A|1" % (at, at) for at in range(50)]
    damaged = [b'"7|7|"A|1', b"8|8|A|x", b"9|9|A", b"1|1|\xff|1", b"1|1|A|1|1", b"y" * 3_000_000, b"", b"5\r"]
    (folder / "visits.txt").write_bytes(b"\n".join([b"head", *damaged, *good, *damaged[::-1], b""]))
    con.execute(f"CREATE VIEW seen AS {CELLS}{READ_LINES}".format(folder))
    con.execute(f"SELECT dp_protect('seen', {STATED})")
    sql = "SELECT ward, count(*) AS n, count(days) AS known FROM seen WHERE ward IN ('A', '\"A') GROUP BY ward"
    assert ask(con, sql + " ORDER BY known") == [('"A', 2, 2), ("A", 56, 52)]


@pytest.mark.odds("1e-9: of noise at an epsilon of a million; the door draws in a thread of its own")
def test_every_door_answers(con: Any, folder: Path) -> None:
    expected = con.execute(BY_WARD).fetchall()
    assert ask(con, BY_WARD) == expected
    assert spent(con) == 1e6
    with dpsql.Context(con) as context:
        answer = context.query(BY_WARD, epsilon=2e6, left_out_share=0)
        assert [tuple(row.values()) for row in answer.value.to_pylist()] == expected
        context.ledger.grant(Grant.of("ana", "visits", epsilon=1e8))
        token = context.ledger.issue_token("ana").text
        desk = Desk(context, Audit(folder / "audit"), Rates(factor=1e4), buckets=Buckets(sleep=lambda _: None))
        arguments = {"tree": tree_of(BY_WARD), "epsilon": number("3e6"), "left_out_share": number("0")}
        reply, tables = desk.answer(
            {"token": token, "want": "call", "function": "dp_query", "source": None, "arguments": arguments}
        )
        assert "error" not in reply, reply
        assert [tuple(row.values()) for row in tables[0].to_pylist()] == expected
    con.close()
    with Runner(str(folder / "hospital.duckdb")) as runner:
        result = runner.execute(f"FROM dp_query($${BY_WARD}$$, epsilon := 4e6, left_out_share := 0)")
        assert result is not None
        assert [tuple(row.values()) for row in result.table.to_pylist()] == expected


def test_asking_again_is_free_and_a_variable_of_the_name_is_nothing(con: Any) -> None:
    visits = pa.table({"patient": [1], "ward": ["A"], "days": [9]})
    first = ask(con, BY_WARD, 5)
    assert ask(con, BY_WARD, 5) == first
    assert ask(con, BY_WARD.replace("ORDER BY ward", "ORDER BY n, ward"), 5) is not None
    assert code(lambda: con.execute("FROM dp_count('visits', epsilon := 1)")) == ""
    assert spent(con) == 6
    assert visits.num_rows == 1


def test_probes_and_descriptions_cost_nothing_and_read_no_row(con: Any) -> None:
    assert ask(con, "SELECT * FROM visits LIMIT 0") == []
    assert [row[:2] for row in ask(con, "DESCRIBE visits")] == [
        row[:2] for row in con.execute("DESCRIBE visits").fetchall()
    ]
    assert code(lambda: ask(con, "SELECT * FROM visits")) == "P102"
    assert spent(con) == 0


def test_values_of_folders_are_private_keys(con: Any, folder: Path) -> None:
    con.execute(f"CREATE VIEW seen AS {VIEWS['folders with values'][0].format(folder)}")
    con.execute(f"SELECT dp_protect('seen', {STATED})")
    sql = "SELECT ward, count(*) AS n FROM seen GROUP BY ward ORDER BY ward"
    assert code(lambda: ask(con, sql)) == "P065"
    rows = con.execute("FROM dp_query(?, epsilon := 1e6, delta := 1e-6, left_out_share := 0)", [sql]).fetchall()
    assert [ward for ward, _ in rows] == ["A", "B", "C"]
    con.execute(f"SELECT dp_protect('seen', {STATED}, keys := {{ward: ['A', 'D']}}, replace := true)")
    assert [ward for ward, _ in ask(con, sql)] == ["A", "D"]


# What becomes of the files and their view after dp_protect, and the code with which a question is refused then.
CHANGES = {
    "another text": ("CREATE OR REPLACE VIEW visits AS FROM '{0}/more.parquet'", "B007"),
    "another type": (
        "COPY (SELECT vid, patient, ward, days::VARCHAR AS days FROM ({1})) TO '{0}/visits.parquet'",
        "S068",
    ),
    "a column less": ("COPY (SELECT vid, patient, ward FROM ({1})) TO '{0}/visits.parquet'", "S068"),
    "a column more": ("COPY (SELECT *, 1 AS x FROM ({1})) TO '{0}/visits.parquet'", "S068"),
    "no Parquet file": ("COPY (SELECT 'Alice' AS name) TO '{0}/visits.parquet' (FORMAT csv)", "S068"),
    "other rows": ("COPY (FROM ({1}) WHERE patient < 40) TO '{0}/visits.parquet'", ""),
    "the view is dropped": ("DROP VIEW visits", "S016"),
}


@cases(("change", "refused"), [pytest.param(*change, id=name) for name, change in CHANGES.items()], alone=True)
def test_what_changes_behind_a_view(con: Any, folder: Path, change: str, refused: str) -> None:
    con.execute(change.format(folder, ROWS))
    assert code(lambda: ask(con, BY_WARD)) == refused
    assert spent(con) == (0 if refused else 1e6)


def test_a_file_that_is_gone_is_named_to_nobody(con: Any, folder: Path) -> None:
    (folder / "visits.parquet").unlink()
    with pytest.raises(duckdb.Error, match="DPSQL-S068") as refused:
        ask(con, BY_WARD)
    assert "parquet" not in str(refused.value)
    assert spent(con) == 0


# Files with damage that no footer shows: bytes of a text that are no UTF-8, and a second file of another schema.
DAMAGE = {
    "a text": "COPY (SELECT i AS patient, 'Alice' || i AS ward, 1 AS days FROM range(5) r(i)) TO '{0}' (COMPRESSION uncompressed)",
    "another schema": "COPY (SELECT 'Alice' || i AS patient, 'B' AS ward, 1 AS days FROM range(5) r(i)) TO '{0}'",
}


@cases("damage", [pytest.param(sql, id=name) for name, sql in DAMAGE.items()], alone=True)
def test_a_damaged_file_costs_the_whole_charge_and_shows_no_cell(folder: Path, damage: str) -> None:
    place, damaged = folder / "parts", folder / "parts" / "2.parquet"
    place.mkdir()
    with dpsql.Context() as context:
        context.sql(f"COPY (SELECT i AS patient, 'A' AS ward, 1 AS days FROM range(5) r(i)) TO '{place}/1.parquet'")
        context.sql(damage.format(damaged))
        damaged.write_bytes(damaged.read_bytes().replace(b"Alice3", b"Alic\xff3"))
        context.sql(f"CREATE VIEW visits AS FROM '{place}/*.parquet'")
        context.dp_protect("visits", epsilon=10, privacy_unit="patient", max_rows_per_unit=1)
        with pytest.raises(dpsql.errors.DpsqlError, match=r"DPSQL-I001.*all files of the source") as refused:
            context.query("SELECT count(*) AS n FROM visits WHERE upper(ward) <> 'X' AND patient >= 0", epsilon=2)
        assert "Alic" not in str(refused.value)
        assert refused.value.__cause__ is None
        assert refused.value.__context__ is None
        assert context.sql("SELECT epsilon_spent FROM dp_budget()").to_pylist() == [{"epsilon_spent": 2.0}]


def test_statistics_of_a_file_decide_no_comparison_of_doubles(con: Any, folder: Path) -> None:
    con.execute(
        "COPY (SELECT i AS patient, CASE WHEN i % 2 = 0 THEN 'nan'::DOUBLE ELSE 1 END AS x FROM range(50) r(i)) "
        f"TO '{folder}/numbers.parquet'"
    )
    con.execute(f"CREATE VIEW numbers AS FROM '{folder}/numbers.parquet'")
    con.execute(f"SELECT dp_protect('numbers', {STATED})")
    for condition, count in (("x > 2", 25), ("isnan(x)", 25), ("x BETWEEN 0 AND 1", 25), ("NOT x <= 1", 25)):
        assert ask(con, f"SELECT count(*) AS n FROM numbers WHERE {condition}") == [(count,)], condition


def test_a_public_view_on_files_gives_keys_and_is_joined(con: Any, folder: Path) -> None:
    con.execute(f"COPY (FROM (VALUES ('A', 10), ('D', 5)) AS t(ward, beds)) TO '{folder}/wards.parquet'")
    con.execute(f"CREATE VIEW wards AS FROM '{folder}/wards.parquet'")
    con.execute("SELECT dp_public('wards')")
    sql = "SELECT w.ward, beds, count(vid) AS n FROM wards AS w LEFT JOIN visits AS v ON v.ward = w.ward GROUP BY ALL ORDER BY 1"
    assert ask(con, sql) == con.execute(sql).fetchall()
    con.execute(f"CREATE OR REPLACE VIEW wards AS SELECT ward, vid AS beds FROM '{folder}/visits.parquet'")
    assert code(lambda: ask(con, sql)) == "S068"
    assert code(lambda: ask(con, "SELECT * FROM wards")) == "S068"


def test_nobody_writes_a_twin(con: Any) -> None:
    """What looks like the scan of a twin counts as a scan of the view that it names; any other text is a text."""
    for mark in ("x", "[1]", '["hospital", "main", "visits", ""]', '["a", "b", "c", "d", "e"]', "{}", "7"):
        twin = f"repeat('dpsql_file {mark}', 3)"
        con.execute(f"CREATE OR REPLACE VIEW twin AS SELECT NULL::BIGINT AS patient, 'A' AS ward FROM {twin}")
        asked = (
            "FROM dp_count('twin', epsilon := 1)",
            "FROM dp_query('SELECT count(*) FROM twin', epsilon := 1)",
            f"FROM dp_query($$SELECT * FROM {twin}$$, epsilon := 1)",
        )
        codes = [code(lambda sql=sql: con.execute(sql).fetchall()) for sql in asked]  # type: ignore[misc]
        assert codes == (["S014"] * 3 if "visits" in mark else ["B006", "", ""]), mark
    assert spent(con) == 0


def test_protected_files_stand_in_no_free_part(con: Any) -> None:
    before = spent(con)
    for sql in (
        "SELECT (SELECT max(days) FROM visits) AS m",
        "SELECT ward FROM visits",
        "SELECT n, (SELECT first(ward ORDER BY ward) FROM visits) FROM (SELECT count(*) AS n FROM visits)",
    ):
        assert code(lambda sql=sql: ask(con, sql)).startswith("P"), sql  # type: ignore[misc]
    assert spent(con) == before
