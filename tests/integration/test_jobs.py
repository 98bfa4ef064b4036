"""Jobs: exit codes by cause, parameters, dry runs, outputs, receipts and logs, and what is left when one is killed."""

from __future__ import annotations

import datetime
import io
import json
import os
import shlex
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_process import environment
from click.testing import CliRunner, Result

import dpsql
from dpsql.cli import main
from dpsql.cli.dot_commands import split_all
from dpsql.cli.job_statement import filled, read_parameters
from dpsql.cli.messages import MEANING, exit_code_of
from dpsql.ledger.ledger import Ledger
from support.cases import cases

COUNT = "FROM dp_count('t', by := ['b'], keys := [0, 1, 2], epsilon := $epsilon, release := 'counts-' || $day)"
JOB = f"CREATE TEMP VIEW v AS FROM t WHERE a < 150;\n{COUNT};\n-- the sum\nFROM dp_sum('v', target := 'a',\n  lower := 0, upper := 200, epsilon := 0.25, release := 'sum-' || $day);\n"
GIVEN = ("-p", "epsilon=0.5", "-p", "day=2026-11-23")
DAY = {"epsilon": 0.5, "day": "2026-11-23"}


COSTS = pytest.mark.odds("0: looks at costs, names and files, and at no noisy number")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with x.duckdb, whose table t has a budget of (3, 1e-5), and a job."""
    with dpsql.connect(tmp_path / "x.duckdb") as con:
        con.execute("CREATE TABLE t AS SELECT range a, range % 3 b, range % 2 = 0 y, range % 7 c FROM range(200)")
        con.execute("SELECT dp_protect('t', epsilon := 3, delta := 1e-5)").fetchall()
    (tmp_path / "job.sql").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cli(*arguments: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, arguments)


def job(text: str, *arguments: str) -> Result:
    """Run a text as a job on the prepared database."""
    Path("text.sql").write_text(text)
    return cli("run", "text.sql", "--db", "x.duckdb", *arguments)


def entries() -> list[Any]:
    """The releases in the ledger."""
    ledger = Ledger.open("x.duckdb.dpsql-ledger", read_only=True)
    try:
        assert ledger.verify().ok
        return [row for row in ledger.entries() if row.kind == "release"]
    finally:
        ledger.close()


# Exit codes.


@cases(
    ("text", "code"),
    [
        ("SELECT 1", 0),
        ("SELECT 1 +", 1),
        ("SELECT error('x')", 1),
        ("SELECT no_such_function(1)", 1),
        ("FROM dp_count('t', epsilon := -1)", 1),
        ("SELECT CAST('x' AS INT)", 1),
        ("SELECT $missing", 2),
        ("FROM dp_count('t', epsilon := 100)", 3),
        ("SELECT dp_protect('t', epsilon := 9)", 3),
        ("FROM nowhere", 4),
        ("FROM no_schema.nowhere", 4),
        ("SELECT nothing FROM t", 4),
        ("SELECT t.nothing FROM t", 4),
        ("FROM 'missing.parquet'", 4),
        ("FROM 'broken.parquet'", 4),
        ("FROM 'broken.json'", 4),
        ("FROM dp_count('nowhere', epsilon := 0.1)", 4),
        ("SELECT dp_protect('nowhere', epsilon := 1)", 4),
    ],
)
def test_the_exit_code_tells_the_cause(text: str, code: int, folder: Path) -> None:
    (folder / "broken.parquet").write_text("this is no Parquet file, though long enough")
    (folder / "broken.json").write_text('{"a": ')
    assert job(text).exit_code == code
    if "$" not in text:
        assert cli("query", text, "--db", "x.duckdb").exit_code == code
        shell = CliRunner().invoke(main, ["shell", "x.duckdb"], input=f"{text};\nSELECT 1;\n")
        assert shell.exit_code == code


def test_a_ledger_has_a_code_of_its_own(folder: Path) -> None:
    assert job("SELECT 1", "--ledger", "no/such.dpsql-ledger").exit_code == 5
    (folder / "x.duckdb.dpsql-ledger").write_bytes(b"not a ledger, and longer than the header of one" * 99)
    assert job("SELECT 1").exit_code == 5
    assert cli("budget", "--db", "x.duckdb").exit_code == 5
    assert cli("query", "SELECT 1", "--db", "x.duckdb").exit_code == 5


def test_an_engine_that_does_not_answer_is_a_data_source(folder: Path) -> None:
    pytest.importorskip("polars")
    assert job("SELECT 1", "--engine", "lake=polars:missing/*.parquet").exit_code == 4


def test_the_help_lists_every_code() -> None:
    shown = cli("--help").stdout
    for code in (0, 1, 2, 3, 4, 5, 130, 143):
        assert f"\n  {code:<3}  " in shown
    assert set(MEANING) == {0, 1, 2, 3, 4, 5, 130, 143}
    assert exit_code_of(KeyboardInterrupt()) == 130


# Parameters.


def test_a_value_is_read_as_json_or_as_text() -> None:
    given = ["a=0.5", "b=true", "c=2026-11-23", "d=[1, 2]", 'e="5"', "f=", "g=a=b", "h=null", "i=NaN", "j=007"]
    assert read_parameters(given) == {
        "a": Decimal("0.5"),
        "b": True,
        "c": "2026-11-23",
        "d": [1, 2],
        "e": "5",
        "f": "",
        "g": "a=b",
        "h": None,
        "i": "NaN",
        "j": "007",
    }


TRAPS = [
    "it's",
    "'; DROP TABLE t; --",
    "\\'",
    "$x",
    "$$",
    "/* */",
    "--",
    "a\nb",
    "é☃",
    '"',
    "''",
    "x' OR 'a' = 'a",
    ";",
]


@cases("trap", TRAPS)
def test_a_text_stays_a_text(trap: str) -> None:
    with duckdb.connect() as con:
        text = "SELECT $x, [$x, 'a'][1], '$x', $$ $x $$ -- $x\n, 1 AS \"$x\" /* $x */, $X || '.', $y['k']"
        (statement,) = filled(con, split_all(text), {"x": trap, "y": {"k": trap}})
        assert len(con.extract_statements(statement.text)) == 1
        assert con.execute(statement.text).fetchall() == [(trap, trap, "$x", " $x ", 1, f"{trap}.", trap)]


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (-3, 8),
        (0.5, 4.5),
        (1e-7, 5 - 1e-7),
        (Decimal("0.1"), Decimal("4.9")),
    ],
)
def test_a_number_is_one_expression(value: object, answer: object) -> None:
    with duckdb.connect() as con:
        (statement,) = filled(con, split_all("SELECT 5-$x"), {"x": value})
        assert con.execute(statement.text).fetchall() == [(answer,)]


def test_parameters_stand_where_prepared_ones_cannot() -> None:
    with duckdb.connect() as con:
        text = "CREATE VIEW v AS SELECT range AS i FROM range($n); CREATE MACRO m() AS $n; SET VARIABLE d = $d;"
        text += (
            "SELECT count(*), m(), $d::DATE, getvariable('d') FROM v; PREPARE p AS SELECT $free; EXECUTE p(free := 7)"
        )
        for statement in filled(con, split_all(text), {"n": 4, "d": datetime.date(2026, 11, 23)}):
            con.execute(statement.text)
            if statement.text.startswith("SELECT"):
                assert con.fetchall() == [(4, 4, datetime.date(2026, 11, 23), "2026-11-23")]
        assert con.fetchall() == [(7,)]


@cases(
    ("text", "given"),
    [
        ("SELECT $a", []),
        ("SELECT 1", ["-p", "a=1"]),
        ("SELECT '$a'", ["-p", "a=1"]),
        ("SELECT $a", ["-p", "a=1", "-p", "A=2"]),
        ("SELECT $a", ["-p", "a"]),
        ("SELECT $1", ["-p", "1=2"]),
        ("SELECT ?", []),
        ('SELECT $"a"', ["-p", "a=1"]),
    ],
)
def test_a_wrong_parameter_is_a_usage_error_before_anything_runs(text: str, given: list[str], folder: Path) -> None:
    done = job(f"CREATE TABLE made(i INT); {text}", *given)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "[DPSQL-P090]" in done.stderr
    assert done.stderr.rstrip().endswith("Nothing was run.")
    with duckdb.connect("x.duckdb") as con:
        found = con.execute("FROM duckdb_tables() SELECT table_name WHERE schema_name = 'main'").fetchall()
    assert found == [("t",)]


def test_a_parameter_means_what_the_typed_value_means(folder: Path) -> None:
    assert job(f"{COUNT};", *GIVEN).exit_code == 0
    typed = COUNT.replace("$epsilon", "0.5").replace("$day", "'2026-11-23'")
    done = job(f"{typed};")
    assert done.exit_code == 0
    assert "replay of entry 2" in done.stderr  # the same call, to the ledger
    assert dpsql.run(COUNT, database="x.duckdb", parameters=DAY).releases[0].replayed


# Dry runs.

SEVERAL = """
CREATE TABLE d AS SELECT a, b FROM t;
CREATE VIEW v AS FROM t WHERE a > 3;
FROM dp_count('v', by := ['b'], keys := [0, 1, 2], epsilon := 0.5, release := 'n');
CREATE TABLE r AS FROM dp_quantile('t', target := 'a', lower := 0, upper := 200, quantiles := [0.5], epsilon := 0.25);
FROM dp_sis('t', target := 'y', features := ['a', 'b'], k := 1, epsilon := 0.125, lower := 0, upper := 7);
FROM dp_linear_regression('t', target := 'c', features := ['a', 'b'], epsilon := 0.5, delta := 1e-6, lower := 0,
  upper := 7, target_lower := 0, target_upper := 7);
SELECT dp_count(a, epsilon := 0.1, dataset := 't'), dp_count(b, epsilon := 0.1, dataset := 't') FROM t;
FROM dp_count('v', by := ['b'], keys := [0, 1, 2], epsilon := 0.5, release := 'n');
SELECT (SELECT value FROM dp_count('t', epsilon := 0.1)) - (SELECT value FROM dp_count('t', epsilon := 0.1));
FROM r;
"""


@COSTS
def test_a_dry_run_tells_what_the_job_then_costs(folder: Path) -> None:
    expected = dpsql.run(SEVERAL, database="x.duckdb", dry_run=True).forecast
    assert entries() == []
    assert expected.is_whole
    done = dpsql.run(SEVERAL, database="x.duckdb")
    statements: Any = done.receipt["statements"]
    assert [[call["epsilon"] for call in one["calls"]] for one in statements] == [
        [call.epsilon for call in one.calls] for one in expected.statements
    ]
    assert [[call["delta"] for call in one["calls"]] for one in statements] == [
        [call.delta for call in one.calls] for one in expected.statements
    ]
    assert sum(len(one.calls) for one in expected.statements) == 9
    (budget,) = expected.budgets
    assert (budget.job, budget.after) == ("epsilon 1.775, delta 1e-06", "epsilon 1.225, delta 9e-06")
    ledger = Ledger.open("x.duckdb.dpsql-ledger", read_only=True)
    assert ledger.budgets()[0].remaining_text == budget.after
    ledger.close()


@COSTS
@pytest.mark.parametrize("budget", ["rho := 2", "epsilon := 5, delta := 1e-5, accountant := 'rdp'"])
def test_a_dry_run_adds_up_as_each_budget_does(budget: str, folder: Path) -> None:
    with dpsql.connect("x.duckdb") as con:
        con.execute("CREATE TABLE u AS SELECT a AS z, c FROM t; CREATE TABLE w AS SELECT a, c FROM t")
        con.execute(f"SELECT dp_protect('u', {budget}), dp_protect('w', epsilon := 2)").fetchall()
    text = "CREATE VIEW two AS SELECT z, c FROM u UNION ALL SELECT a, c FROM w; FROM dp_count('two', epsilon := 0.5);"
    text += "FROM dp_count('u', epsilon := 0.3); FROM dp_count('u', epsilon := 0.3)"
    expected = dpsql.run(text, database="x.duckdb", dry_run=True).forecast
    assert expected.statements[1].calls[0].datasets == ("u", "w")
    dpsql.run(text, database="x.duckdb")
    ledger = Ledger.open("x.duckdb.dpsql-ledger", read_only=True)
    remaining = {row.dataset: row.remaining_text for row in ledger.budgets()}
    ledger.close()
    assert {row.dataset: row.after for row in expected.budgets} == {name: remaining[name] for name in ("u", "w")}


def test_an_engine_is_part_of_a_dry_run(folder: Path) -> None:
    pytest.importorskip("polars")
    with duckdb.connect("x.duckdb") as con:
        con.execute("COPY t TO 'visits.parquet'")
    on = ("--engine", "visits=polars:visits.parquet", "--ledger", "visits.ledger")
    Path("owner.sql").write_text("SELECT dp_protect('visits', epsilon := 3, delta := 1e-5, engine := 'visits')")
    Path("fit.sql").write_text(
        "FROM dp_logistic_regression('visits', target := 'y', features := ['a', 'b'], lower := 0, upper := 200, "
        "epsilon := 1, delta := 1e-6, engine := 'visits', dataset := 'visits')"
    )
    assert cli("run", "owner.sql", *on).exit_code == 0
    told = json.loads(cli("run", "fit.sql", *on, "--dry-run", "--format", "json").stdout)
    assert told["budgets"][0]["after"] == "epsilon 2, delta 9e-06"
    assert cli("run", "fit.sql", *on, "--receipt", "receipt.json").exit_code == 0
    (statement,) = json.loads(Path("receipt.json").read_text())["statements"]
    # The call is held: one entry charges it before its first draw, and another one is its release.
    assert [call["epsilon"] for call in statement["calls"]] == [1, 0]
    assert [call["status"].split(",")[0] for call in statement["calls"]] == ["held", "released"]
    budgets = json.loads(cli("budget", "--ledger", "visits.ledger", "--format", "json").stdout)
    assert budgets[0]["epsilon_remaining"] == 2


@COSTS
def test_a_dry_run_shows_replays_and_leaves_nothing_behind(folder: Path) -> None:
    before = {path.name for path in folder.iterdir()} | {"text.sql"}
    done = job(JOB, *GIVEN, "--dry-run")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "counts-2026-11-23" in done.stdout
    assert "epsilon 0.75" in done.stdout
    assert "epsilon 2.25" in done.stdout
    assert entries() == []
    assert job(JOB, *GIVEN).exit_code == 0
    (first, _) = entries()
    done = job(JOB, *GIVEN, "--dry-run", "--format", "json")
    told = json.loads(done.stdout)
    assert [call["replay"] for one in told["statements"] for call in one["calls"]] == [
        f"entry {entry.sequence} of {entry.recorded_at}" for entry in entries()
    ]
    assert told["budgets"] == []
    assert told["known"]
    assert first.recorded_at in done.stdout
    assert {path.name for path in folder.iterdir()} == before
    assert len(entries()) == 2


QUERIES = """
CREATE TEMP VIEW adults AS FROM people WHERE age >= 18;
FROM dp_query('SELECT ward, count(*) AS n FROM adults GROUP BY ward', epsilon := $epsilon);
FROM dp_query('SELECT ward, count(*) AS n FROM adults GROUP BY ward ORDER BY n DESC LIMIT 1', epsilon := $epsilon);
CREATE OR REPLACE TABLE wards AS
  FROM dp_query('SELECT ward, avg(age) AS m FROM adults GROUP BY ward', epsilon := $epsilon, release := 'wards-' || $day);
FROM dp_query('SELECT 1 AS one', epsilon := 1);
FROM dp_estimate('dp_query', sql := $sql, epsilon := 0.1);
FROM dp_query($sql, epsilon := 0.1);
"""


@COSTS
def test_queries_of_plain_sql_are_priced_and_run(tmp_path: Path) -> None:
    database = tmp_path / "clinic.duckdb"
    with dpsql.Context(database) as ctx:
        ctx.connection.execute(
            "CREATE TABLE people AS SELECT ['A', 'B'][1 + i % 2] AS ward, CAST(i % 90 AS INTEGER) AS age FROM range(900) AS r(i)"
        )
        ctx.connection.execute(
            "SELECT dp_protect('people', epsilon := 1, keys := {ward: ['A', 'B']}, lower := 0, upper := {age: 90})"
        ).fetchall()
    given = {"epsilon": 0.25, "day": "2026-11-23", "sql": "SELECT count(*) AS n FROM people WHERE age > 64"}

    def spent() -> Any:
        with dpsql.Context(database) as opened:
            return opened.dp_budget()["epsilon_spent"].to_pylist()

    first = dpsql.run(QUERIES, database=database, parameters=given, dry_run=True).forecast
    calls = {one.statement: one.calls for one in first.statements}
    assert [len(calls[number]) for number in range(1, 8)] == [0, 1, 1, 1, 0, 0, 1]
    assert [calls[number][0].loss for number in (2, 3, 4, 7)] == [
        "pure 0.25-DP",
        "nothing",
        "pure 0.25-DP",
        "pure 0.1-DP",
    ]
    assert calls[3][0].replay == "statement 2, line 3"  # sorted and cut, it is the same release
    assert calls[4][0].release == "wards-2026-11-23"
    assert all(not one.unknown for one in first.statements)
    assert [one.job for one in first.budgets] == ["epsilon 0.6"]
    assert spent() == [0.0]

    done = dpsql.run(QUERIES, database=database, parameters=given)
    assert [one.replayed for one in done.releases] == [False, True, False, False]
    assert done.rows is not None
    assert done.rows.column_names == ["n"]
    assert spent() == [0.6]
    again = dpsql.run(QUERIES, database=database, parameters=given)
    assert [one.loss for statement in again.forecast.statements for one in statement.calls] == ["nothing"] * 4
    assert all(one.replayed for one in again.releases)
    assert again.rows == done.rows
    assert spent() == [0.6]


@pytest.mark.parametrize(
    ("sql", "epsilon", "code"), [("SELECT * FROM people", 0.1, "P102"), ("SELECT count(*) AS n FROM people", 5, "B001")]
)
def test_a_job_with_a_query_that_is_refused_is_not_begun(sql: str, epsilon: float, code: str, tmp_path: Path) -> None:
    database = tmp_path / "clinic.duckdb"
    with dpsql.Context(database) as ctx:
        ctx.connection.execute("CREATE TABLE people AS SELECT i AS age FROM range(90) AS r(i)")
        ctx.connection.execute("SELECT dp_protect('people', epsilon := 1)").fetchall()
    text = f"CREATE TABLE before AS SELECT 1 AS one; FROM dp_query($sql, epsilon := {epsilon})"
    for dry in (True, False):
        with pytest.raises(Exception, match=code):
            dpsql.run(text, database=database, parameters={"sql": sql}, dry_run=dry)
    with dpsql.Context(database) as ctx:
        assert ctx.dp_budget()["epsilon_spent"].to_pylist() == [0.0]
        assert ctx.connection.execute(
            "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'before'"
        ).fetchone() == (0,)


def test_a_dry_run_reads_no_row(folder: Path) -> None:
    text = "CREATE TABLE c AS SELECT error('read') AS e, a FROM t; FROM c; INSERT INTO c SELECT error('read'), 1;"
    text += "CREATE VIEW w AS SELECT error('read') AS e, a FROM t; FROM dp_count('w', epsilon := 0.1)"
    expected = dpsql.run(text, database="x.duckdb", dry_run=True).forecast
    assert [len(one.calls) for one in expected.statements] == [0, 0, 0, 0, 1]
    assert expected.is_whole
    text = "CREATE MACRO m() AS (SELECT error('read') FROM t LIMIT 1); SET VARIABLE x = m();"
    text += "SET VARIABLE y = (SELECT error('read') FROM t); CREATE TYPE e AS ENUM (SELECT error('read') FROM t);"
    text += "CREATE TABLE c AS PIVOT (SELECT error('read') AS e, a FROM t) ON a USING sum(e)"
    assert not any(one.calls for one in dpsql.run(text, database="x.duckdb", dry_run=True).forecast.statements)


def test_looking_ahead_changes_nothing_for_the_statements_before(folder: Path) -> None:
    with duckdb.connect("other.duckdb") as con:
        con.execute("CREATE TABLE p AS SELECT 5 AS i")
    text = """
        SELECT current_database() AS first, current_setting('TimeZone') <> 'Asia/Tokyo' AS here FROM 't.csv';
        ATTACH 'other.duckdb' AS other;
        CREATE VIEW v AS FROM other.p;
        CREATE TABLE other.q AS FROM v;
        USE other; SET TimeZone = 'Asia/Tokyo'; SET VARIABLE n = 7;
        SET enable_external_access = false;
        SELECT current_database() AS last, i + getvariable('n') AS twelve FROM q
    """
    Path("t.csv").write_text("a\n1\n")
    before = dpsql.run(text.split(";")[0], database="x.duckdb").rows
    assert before is not None
    assert before.to_pylist() == [{"first": "x", "here": True}]
    assert dpsql.run(text, database="x.duckdb", dry_run=True).forecast.budgets == ()
    done = dpsql.run(text, database="x.duckdb")
    assert done.rows is not None
    assert done.rows.to_pylist() == [{"last": "other", "twelve": 12}]


@COSTS
@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        (
            "FROM dp_sis('t', target := 'y', features := ['a', 'b'], k := 1, epsilon := 0.1, lower := 0, upper := 7, "
            "release := 'sel'); FROM dp_linear_regression('t', target := 'c', features := release('sel'), "
            "epsilon := 0.1, delta := 1e-6, lower := 0, upper := 7, target_lower := 0, target_upper := 7)",
            "release that is not made yet",
        ),
        (
            "CREATE TABLE d AS FROM t; SELECT dp_derive('d', 't', one_row_each := true); FROM dp_count('d', epsilon := 0.1)",
            "statement 2",
        ),
        ("PREPARE p AS FROM dp_count('t', epsilon := 0.1); EXECUTE p", "only when it runs"),
        ("EXPLAIN ANALYZE FROM dp_count('t', epsilon := 0.1)", "only when it runs"),
    ],
)
def test_a_dry_run_says_what_it_does_not_know(text: str, unknown: str, folder: Path) -> None:
    expected = dpsql.run(text, database="x.duckdb", dry_run=True).forecast
    assert unknown in expected.statements[-1].unknown
    assert not expected.is_whole
    assert "unknown until it runs" in job(text, "--dry-run").stdout
    assert entries() == []
    assert job(text).exit_code == 0


@pytest.mark.parametrize("dry", [True, False])
def test_a_job_that_does_not_fit_is_not_begun(dry: bool, folder: Path) -> None:
    text = "SELECT 42; FROM dp_count('t', epsilon := 2);\n\nFROM dp_sum('t', target := 'a', lower := 0, upper := 9, epsilon := 2)"
    done = job(text, *["--dry-run"] * dry)
    assert done.exit_code == 3
    assert done.stderr.startswith("statement 3, line 3: [DPSQL-B001] dataset 't' needs epsilon 2, 1 remains of 3.")
    assert ("42" in done.stdout) is False
    assert entries() == []
    with pytest.raises(dpsql.BudgetError) as caught:
        dpsql.run(text, database="x.duckdb", dry_run=dry)
    assert caught.value.__notes__ == ["statement 3, line 3 of the job"]


def test_a_job_may_raise_its_own_budget(folder: Path) -> None:
    text = "SELECT dp_protect('t', epsilon := 9, replace := true); FROM dp_count('t', epsilon := 8)"
    assert job(text.replace(", replace := true", "")).exit_code == 3
    assert entries() == []
    assert job(text).exit_code == 0


def test_one_name_for_two_calls_of_a_job_is_refused(folder: Path) -> None:
    text = "FROM dp_count('t', epsilon := {}, release := 'a');"
    done = job(text.format(1) + text.format(2))
    assert done.exit_code == 1
    assert "[DPSQL-P014]" in done.stderr
    assert entries() == []


# Outputs.


def test_the_ending_tells_the_format(folder: Path) -> None:
    assert job(f"{COUNT}; SELECT 1 AS last", *GIVEN, "-o", "last.parquet").exit_code == 0
    assert pq.read_table("last.parquet").to_pylist() == [{"last": 1}]
    shown = {}
    for ending in ("parquet", "arrow", "json", "csv"):
        assert cli("show", "2", "--db", "x.duckdb", "-o", f"shown.{ending}").exit_code == 0
        done = cli(
            "query",
            COUNT.replace("$epsilon", "0.5").replace("$day", "'2026-11-23'"),
            "--db",
            "x.duckdb",
            "-o",
            f"query.{ending}",
        )
        assert done.exit_code == 0
        assert Path(f"shown.{ending}").read_bytes() == Path(f"query.{ending}").read_bytes() or ending == "parquet"
        shown[ending] = Path(f"shown.{ending}")
    rows = pq.read_table(shown["parquet"]).to_pylist()
    assert [row["b"] for row in rows] == [0, 1, 2]
    assert pa.ipc.open_file(shown["arrow"]).read_all().to_pylist() == rows == json.loads(shown["json"].read_text())
    assert shown["csv"].read_text().startswith("b,target,aggregate,value")
    arrow = cli("show", "counts-2026-11-23", "--db", "x.duckdb", "--format", "arrow")
    assert pa.ipc.open_file(io.BytesIO(arrow.stdout_bytes)).read_all().to_pylist() == rows


@pytest.mark.parametrize("place", ["out.xlsx", "out", "/proc/out.csv", "missing/out.csv", "."])
def test_an_output_is_tried_before_anything_is_charged(place: str, folder: Path) -> None:
    for command in (("run", "job.sql", *GIVEN), ("query", "FROM dp_count('t', epsilon := 0.1)")):
        done = cli(*command, "--db", "x.duckdb", "-o", place)
        assert done.exit_code == (2 if place.startswith(("out", ".")) else 1)
        assert done.stderr.count(f"{place}:") <= 1
        assert place in done.stderr
    assert cli("run", "job.sql", *GIVEN, "--db", "x.duckdb", "--receipt", "missing/receipt.json").exit_code == 1
    assert entries() == []


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_access_is_refused_before_anything_is_charged(folder: Path) -> None:
    (folder / "closed").mkdir(mode=0o500)
    assert cli("run", "job.sql", *GIVEN, "--db", "x.duckdb", "-o", "closed/out.csv").exit_code == 1
    assert entries() == []


def process(*arguments: str, folder: Path, more: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dpsql", *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=environment(folder) | (more or {}), stdin=subprocess.DEVNULL, text=True, **options
    )


@pytest.mark.odds("0: looks at charges, and at numbers beside their own replays")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_tells_how_to_read_the_result_again(folder: Path) -> None:
    count = "FROM dp_count('t', epsilon := 0.1)"
    (folder / "full.csv").symlink_to("/dev/full")
    done = cli("query", count, "--db", "x.duckdb", "-o", "full.csv")
    assert done.exit_code == 1
    assert "No space left on device. The result is entry 2 of the ledger" in done.stderr
    assert "dpsql show 2" in done.stderr
    (folder / "count.sql").write_text(count)
    with open("/dev/full", "w") as full:
        running = process("run", "count.sql", "--db", "x.duckdb", folder=folder, stdout=full, stderr=subprocess.PIPE)
        _, errors = running.communicate(timeout=300)
    assert running.returncode == 1
    assert errors.startswith("statement 1, line 1: standard output: No space left on device. The result is entry 3")
    assert len(errors.splitlines()) == 1
    assert json.loads(cli("show", "3", "--db", "x.duckdb").stdout)["sequence"] == 3


@pytest.mark.odds("0: looks at charges, and at numbers beside their own replays")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("log", ["text", "json"])
def test_a_job_goes_on_where_its_log_cannot_be_written(log: str, folder: Path) -> None:
    for _ in range(2):  # the second run has replays to tell
        with open("/dev/full", "w") as full:
            command = ("run", "job.sql", *GIVEN, "--db", "x.duckdb", "--log-format", log, "-o", "out.csv")
            running = process(*command, folder=folder, stdout=subprocess.DEVNULL, stderr=full)
            assert running.wait(timeout=300) == 0
        assert Path("out.csv").exists()
        Path("out.csv").unlink()
    assert len(entries()) == 2


@pytest.mark.odds("0: looks at charges, and at numbers beside their own replays")
@pytest.mark.skipif(os.name == "nt", reason="pipes")
def test_a_broken_pipe_tells_how_to_read_the_result_again(folder: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    count = "FROM dp_count('t', epsilon := 0.1)"
    running = process("query", count, "--db", "x.duckdb", folder=folder, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    _, errors = running.communicate(timeout=300)
    assert running.returncode == 1
    assert errors == (
        "standard output: Broken pipe. The result is entry 2 of the ledger; read it again with dpsql show 2.\n"
    )


@pytest.mark.odds("0: looks at charges, and at numbers beside their own replays")
def test_a_terminal_without_box_characters_gets_plain_ones(folder: Path) -> None:
    more = {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    running = process("run", "job.sql", *GIVEN, "--db", "x.duckdb", folder=folder, more=more, stdout=subprocess.PIPE)
    shown, _ = running.communicate(timeout=300)
    assert running.returncode == 0
    assert shown.isascii()
    assert "+-------" in shown
    assert len(entries()) == 2


# Receipts and logs.


@COSTS
def test_a_receipt_tells_what_ran_and_holds_no_data(folder: Path) -> None:
    for replayed in (False, True):
        assert job(JOB, *GIVEN, "--receipt", "receipt.json").exit_code == 0
        told = json.loads(Path("receipt.json").read_text())
        assert (told["outcome"], told["exit_code"], told["dpsql"]) == ("done", 0, dpsql.__version__)
        assert (told["job"], told["database"]) == ("text.sql", "x.duckdb")
        assert told["duckdb"] == duckdb.__version__
        assert [one["line"] for one in told["statements"]] == [1, 2, 4]
        calls = [call for one in told["statements"] for call in one["calls"]]
        assert [call["entry"] for call in calls] == [2, 3]
        assert [call["source"] for call in calls] == ["t", "v"]
        assert [call["epsilon"] for call in calls] == ([0, 0] if replayed else [0.5, 0.25])
        assert [call["replayed"] for call in calls] == [replayed] * 2
        assert [call["recorded_at"] for call in calls] == [entry.recorded_at for entry in entries()]
        assert told["ledger"]["entries"] == (5 if replayed else 3)
        assert cli("ledger", "verify", "--db", "x.duckdb", "--head", told["ledger"]["head"]).exit_code == 0
        assert not {"value", "result", "rows"} & set(_keys(told))


def _keys(value: object) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(key for item in value.values() for key in _keys(item))]
    return [key for item in value for key in _keys(item)] if isinstance(value, list) else []


def test_a_receipt_is_written_after_a_failure_without_what_rows_hold(folder: Path) -> None:
    text = f"{COUNT};\nSELECT CAST('secret-' || a AS INT) FROM t;\nSELECT 1"
    for log in ("text", "json"):
        done = job(text, *GIVEN, "--receipt", "receipt.json", "--log-format", log)
        assert done.exit_code == 1
        written = Path("receipt.json").read_text()
        assert "secret" not in written
        told = json.loads(written)
        assert (told["outcome"], told["exit_code"]) == ("failed", 1)
        assert told["cause"] == {"statement": 2, "error": "ConversionException"}
        assert [one["outcome"] for one in told["statements"]] == ["done", "failed", "not run"]
    assert "secret" not in done.stderr
    dear = job(COUNT, "-p", "epsilon=90", "-p", "day=x", "--receipt", "receipt.json")
    told = json.loads(Path("receipt.json").read_text())
    assert (dear.exit_code, told["exit_code"], told["cause"]["error"]) == (3, 3, "DPSQL-B001")
    assert job("SELECT 1", "--ledger", "no/such", "--receipt", "receipt.json").exit_code == 5
    told = json.loads(Path("receipt.json").read_text())
    assert (told["exit_code"], told["ledger"]) == (5, None)
    assert sorted(path.name for path in folder.glob("*receipt*") if path.name != "receipt.json") == []


@COSTS
def test_a_log_has_one_json_line_for_each_event(folder: Path) -> None:
    def events(done: Result) -> list[dict[str, Any]]:
        return [json.loads(line) for line in done.stderr.splitlines()]

    first, again = (events(job(JOB, *GIVEN, "--log-format", "json")) for _ in range(2))
    names = ["start", "statement", "statement", "charged", "statement", "charged", "done"]
    assert [event["event"] for event in first] == names
    assert [event["event"] for event in again] == [name.replace("charged", "replayed") for name in names]
    assert [event["functions"] for event in first if event["event"] == "statement"] == [[], ["dp_count"], ["dp_sum"]]
    assert [event["line"] for event in first if event["event"] == "charged"] == [2, 4]
    failed = events(job("SELECT 1; SELECT error('secret')", "--log-format", "json"))
    assert failed[-1]["event"] == "failed"
    assert (failed[-1]["exit_code"], failed[-1]["statement"], failed[-1]["error"]) == (1, 2, "InvalidInputException")
    wrong = events(job("SELECT $a", "--log-format", "json"))
    assert (wrong[-1]["exit_code"], wrong[-1]["error"], wrong[-1]["nothing_ran"]) == (2, "DPSQL-P090", True)
    (unknown,) = events(job("SELECT 1", "--log-format", "json", "-o", "rows.xlsx"))
    assert (unknown["event"], unknown["exit_code"], "rows.xlsx" in unknown["message"]) == ("failed", 2, True)


def test_a_replay_says_that_it_is_one_and_of_when(folder: Path) -> None:
    call = COUNT.replace("$epsilon", "0.5").replace("$day", "'d'")
    assert cli("query", call, "--db", "x.duckdb").stderr == ""
    (entry,) = entries()
    said = f"dp_count 'counts-d': replay of entry 2 of {entry.recorded_at}; nothing was charged.\n"
    assert cli("query", call, "--db", "x.duckdb").stderr == said
    assert job(call).stderr == said
    assert CliRunner().invoke(main, ["shell", "x.duckdb"], input=f"{call};").stderr == said


# Python.


def test_a_job_in_python(folder: Path) -> None:
    done = dpsql.run(Path("job.sql"), database="x.duckdb", parameters=DAY)
    assert [release.function for release in done.releases] == ["dp_count", "dp_sum"]
    assert [release.replayed for release in done.releases] == [False, False]
    assert done.rows is not None
    assert done.releases[1].value.num_rows == done.rows.num_rows
    again = dpsql.run("job.sql", database="x.duckdb", parameters=DAY)
    assert [release.replayed for release in again.releases] == [True, True]
    assert again.releases[0].value.equals(done.releases[0].value)
    assert [release.ledger_id for release in again.releases] == [2, 3]
    assert dpsql.run("SELECT 1 AS one").rows.to_pylist() == [{"one": 1}]  # type: ignore[union-attr]
    with pytest.raises(dpsql.ParameterError, match="P090"):
        dpsql.run("SELECT 1", parameters={"a": 1})
    with pytest.raises(duckdb.CatalogException):
        dpsql.run("FROM nowhere")


# What is left when a job is killed.


@pytest.mark.odds("0: looks at charges, and at numbers beside their own replays")
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_sigterm_stops_a_running_statement_with_code_143(folder: Path) -> None:
    endless = f"{COUNT};\nSELECT sum(hash(i)) FROM range(100000000000000) AS r(i)"
    (folder / "endless.sql").write_text(endless)
    command = ("run", "endless.sql", "--db", "x.duckdb", *GIVEN, "--log-format", "json", "--receipt", "receipt.json")
    with process(*command, folder=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
        assert running.stderr is not None
        for line in running.stderr:
            event = json.loads(line)
            if event["event"] == "statement" and event["statement"] == 2:
                running.send_signal(signal.SIGTERM)
                break
        *_, last = running.stderr
        assert running.wait(timeout=300) == 143
    assert (json.loads(last)["event"], json.loads(last)["exit_code"]) == ("failed", 143)
    told = json.loads((folder / "receipt.json").read_text())
    assert (told["exit_code"], told["cause"]) == (143, {"statement": 2, "error": "Terminated"})
    assert [entry.status for entry in entries()] == ["released"]


@pytest.mark.odds("0: looks at charges, and at numbers beside their own replays")
@pytest.mark.skipif(os.name == "nt", reason="a shell script")
def test_the_nightly_example_spends_once(folder: Path) -> None:
    with dpsql.connect("x.duckdb") as con:
        con.execute("CREATE TABLE patients AS SELECT i AS days, chr(65 + (i % 4)::INT) AS ward FROM range(300) AS r(i)")
        con.execute("SELECT dp_protect('patients', epsilon := 1)").fetchall()
    command = folder / "dpsql"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dpsql "$@"\n')
    command.chmod(0o755)
    surroundings = environment(folder) | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    script = Path(__file__).resolve().parents[2] / "examples" / "nightly" / "nightly.sh"
    rows = []
    for _ in range(2):
        subprocess.run([script, "x.duckdb", ".", "2026-11-23"], env=surroundings, check=True, timeout=300)
        rows.append(pq.read_table("wards-2026-11-23.parquet"))
    assert rows[0].equals(rows[1])
    assert rows[0].column("ward").to_pylist() == ["A", "B", "C", "D"]
    assert [(entry.release, entry.epsilon) for entry in entries()] == [
        ("days-2026-11-23", 0.1),
        ("wards-2026-11-23", 0.1),
    ]
    told = json.loads(Path("receipt-2026-11-23.json").read_text())
    assert [call["replayed"] for one in told["statements"] for call in one["calls"]] == [True, True]
    drawn = [command, "plot", "wards-2026-11-23", "--db", "x.duckdb", "-o", "wards.svg"]
    subprocess.run(drawn, env=surroundings, check=True, timeout=300)
    assert "<svg" in Path("wards.svg").read_text(encoding="utf-8")


KILLED = """CREATE TEMP VIEW v AS FROM t WHERE a < 150;
FROM dp_count('t', by := ['b'], keys := [0, 1, 2], epsilon := 0.25, release := 'counts-' || $day);
FROM dp_sum('v', target := 'a', lower := 0, upper := 200, epsilon := 0.25, release := 'sum-' || $day);
FROM dp_kendall('t', target := 'y', features := ['a', 'b', 'c'], k := 1, epsilon := 0.25, release := 'sel-' || $day);
SELECT count(*) AS done FROM dp_ledger() WHERE status = 'released';
"""
_RESULTS = {"counts-x", "sum-x", "sel-x"}


@pytest.mark.odds("0: looks at charges, and at numbers beside their own replays")
@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_that_is_killed_anywhere_and_started_again_is_paid_once(number: signal.Signals, folder: Path) -> None:
    """It is stopped at every event of its log in turn, or a little later, and started again until it is done."""
    (folder / "killed.sql").write_text(KILLED)
    command = ("run", "killed.sql", "--db", "x.duckdb", "-p", "day=x", "--log-format", "json")
    command += ("-o", "out.json", "--receipt", "r.json")
    stopped = 0
    for stage in range(30):
        with process(*command, folder=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
            assert running.stderr is not None
            for seen, _ in enumerate(running.stderr):
                if seen == stage:
                    with suppress(subprocess.TimeoutExpired):
                        running.wait(timeout=0.004 * (stage % 3))
                    running.send_signal(number)
                    break
            running.stderr.read()
            code = running.wait(timeout=300)
        if code == 0:
            break
        stopped += 1
        assert code in (-number, 128 + number)
        names = Counter(entry.release for entry in entries() if entry.status == "released")
        assert set(names.values()) <= {1}
    assert stopped > 5
    found = entries()
    assert Counter(entry.release for entry in found if entry.status == "released") == dict.fromkeys(_RESULTS, 1)
    unpaid = [entry for entry in found if entry.status != "released"]
    # A signal that dpsql may answer lets a call that had read rows stand, charged without a result.
    assert not unpaid or number != signal.SIGKILL
    assert {entry.status for entry in unpaid} <= {"charged, no result"}
    assert json.loads((folder / "out.json").read_text()) == [{"done": 3}]
    assert json.loads((folder / "r.json").read_text())["outcome"] == "done"


@pytest.mark.odds("0: looks at charges, and at numbers beside their own replays")
@pytest.mark.skipif(os.name == "nt", reason="streams of a POSIX shell")
def test_closed_streams_charge_nothing_and_replay(tmp_path: Path) -> None:
    """Without standard output nothing is charged; without standard error a release is returned as ever."""
    (tmp_path / "setup.sql").write_text("CREATE TABLE t AS SELECT 1 AS a; SELECT dp_protect('t', epsilon := 5);")
    (tmp_path / "count.sql").write_text("FROM dp_count('t', epsilon := 1, release := 'rows');")

    def run(name: str, streams: str) -> subprocess.CompletedProcess[str]:
        command = f"{shlex.quote(sys.executable)} -m dpsql run {name} --db x.duckdb {streams}"
        return subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert run("setup.sql", "> /dev/null").returncode == 0
    refused = run("count.sql", ">&-")
    assert refused.returncode == 2
    assert "standard output is closed" in refused.stderr
    assert "Traceback" not in refused.stderr
    ledger = Ledger.open(tmp_path / "x.duckdb.dpsql-ledger")
    assert len(ledger.entries()) == 1
    ledger.close()
    first, again = run("count.sql", "2>&-"), run("count.sql", "2>&-")
    assert (first.returncode, again.returncode) == (0, 0)
    assert first.stdout == again.stdout
    assert "count" in first.stdout
