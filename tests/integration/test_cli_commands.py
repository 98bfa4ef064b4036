"""run, query, budget, ledger and the shell off a terminal, in real processes: exit codes, stdout, stderr."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cli_process import RELEASE, TABLE, dpsql, environment

from dpsql import connect
from support.cases import cases

pytestmark = pytest.mark.odds("0: looks at charges, codes and names, and at no noisy number")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with x.duckdb, whose table t has a budget of 3 and one release of 1."""
    with connect(tmp_path / "x.duckdb") as con:
        con.execute(f"{TABLE}SELECT dp_protect('t', epsilon := 3.0);\n{RELEASE}").fetchall()
    return tmp_path


def test_a_script_makes_a_table_and_a_release(tmp_path: Path) -> None:
    (tmp_path / "setup.sql").write_text(f"{TABLE}SELECT dp_protect('t', epsilon := 3.0);\n{RELEASE};\n")
    done = dpsql("run", "setup.sql", "--db", "x.duckdb", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "t: epsilon 3" in done.stdout
    assert "feature" in done.stdout


def spent(folder: Path) -> float:
    done = dpsql("budget", "--db", "x.duckdb", "--format", "json", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    (row,) = json.loads(done.stdout)
    return float(row["epsilon_spent"])


def test_run_stops_at_the_first_error_and_tells_where(folder: Path) -> None:
    script = "-- a remark; with a semicolon\nSELECT 6 * 7 AS answer;\n\nSELECT 'a;b',\n  error('late');\nSELECT 99;\n"
    (folder / "bad.sql").write_text(script)
    done = dpsql("run", "bad.sql", "--db", "x.duckdb", cwd=folder)
    assert done.returncode == 1
    assert "42" in done.stdout
    assert "99" not in done.stdout
    assert done.stderr.startswith("statement 2, line 4: [DPSQL-I040] it failed with InvalidInputException")


def test_run_shows_the_slip_of_a_statement_whose_error_it_hides(folder: Path) -> None:
    (folder / "slip.sql").write_text("SELECT 42;\nFROM dp_count('t', epsilon = 0.5);\n")
    done = dpsql("run", "slip.sql", "--db", "x.duckdb", cwd=folder)
    assert "[DPSQL-I040]" in done.stderr
    assert "Write FROM dp_count('t', epsilon := 0.5);" in " ".join(done.stderr.split())
    done = dpsql("query", "SELECT count(*) FROM patients", cwd=folder)
    assert "--db FILE" in done.stderr


def test_run_refuses_a_job_that_is_certain_to_fail(folder: Path) -> None:
    (folder / "bad.sql").write_text(f"SELECT 6 * 7 AS answer;\n{RELEASE};\nSELECT 'a;b'\n  FROM nowhere;\n")
    done = dpsql("run", "bad.sql", "--db", "x.duckdb", cwd=folder)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("statement 3, line 3: Catalog Error: Table with name nowhere does not exist!")
    assert done.stderr.endswith("Nothing was run.\n")
    assert spent(folder) == 1


def test_run_parses_the_whole_file_before_it_charges(folder: Path) -> None:
    (folder / "bad.sql").write_text(f"{RELEASE};\nSELEC 1;\n")
    done = dpsql("run", "bad.sql", "--db", "x.duckdb", cwd=folder)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("statement 2, line 2: Parser Error:")
    assert spent(folder) == 1


def test_a_refused_charge_is_one_clean_line(folder: Path) -> None:
    (folder / "dear.sql").write_text(RELEASE.replace("epsilon := 1", "epsilon := 100"))
    done = dpsql("run", "dear.sql", "--db", "x.duckdb", cwd=folder)
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith("statement 1, line 1: [DPSQL-B001] ")
    assert done.stderr.count("\n") == 1
    assert spent(folder) == 1


def test_every_statement_is_executed_exactly_once(folder: Path) -> None:
    cheap = RELEASE.replace("epsilon := 1", "epsilon := 0.1")
    forms = [["--format", form] for form in ("table", "csv", "json", "parquet")] + [["-o", "out.parquet"]]
    for extra in forms:
        command = [sys.executable, "-m", "dpsql", "query", cheap, "--db", "x.duckdb", *extra]
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            timeout=300,
        )
        assert (done.returncode, done.stderr) == (0, b"")
    done = dpsql("shell", "x.duckdb", cwd=folder, stdin=f"{cheap};\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert spent(folder) == pytest.approx(1 + 0.1 * (len(forms) + 1), abs=1e-12)


def test_query_writes_data_to_stdout_in_every_format(tmp_path: Path) -> None:
    sql = "SELECT 1 AS n, 'a,\"b' AS s, [1, 2] AS l UNION ALL SELECT NULL, 'é', NULL ORDER BY n"
    table = dpsql("query", sql, cwd=tmp_path)
    assert "│" in table.stdout
    rows = json.loads(dpsql("query", sql, "--format", "json", cwd=tmp_path).stdout)
    assert rows == [{"n": 1, "s": 'a,"b', "l": [1, 2]}, {"n": None, "s": "é", "l": None}]
    parsed = list(csv.reader(io.StringIO(dpsql("query", sql, "--format", "csv", cwd=tmp_path).stdout)))
    assert parsed == [["n", "s", "l"], ["1", 'a,"b', "[1, 2]"], ["", "é", ""]]
    done = dpsql("query", sql, "-o", "o'dd.parquet", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert pq.read_table(tmp_path / "o'dd.parquet").to_pylist() == rows
    done = dpsql("query", "SELECT 7 AS n", "-o", "n.csv", cwd=tmp_path)
    assert (tmp_path / "n.csv").read_text() == "n\n7\n"


def test_query_reads_standard_input_and_shows_statements_without_rows_as_nothing(tmp_path: Path) -> None:
    done = dpsql("query", "-", cwd=tmp_path, stdin="CREATE TABLE z(i INT); INSERT INTO z VALUES (1); FROM z")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("┌") == 1


def test_a_table_in_a_pipe_is_whole(tmp_path: Path) -> None:
    done = dpsql("query", "SELECT i, repeat('x', 300) AS s FROM range(200) AS r(i)", cwd=tmp_path)
    assert done.stdout.count("x" * 300) == 200


def test_an_output_that_cannot_be_written_is_refused_before_the_charge(folder: Path) -> None:
    done = dpsql("query", RELEASE, "--db", "x.duckdb", "-o", "no/such/folder.csv", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no/such/folder.csv" in done.stderr
    done = dpsql("query", f"{RELEASE}; {RELEASE}", "--db", "x.duckdb", "--format", "csv", cwd=folder)
    assert done.returncode == 2
    assert spent(folder) == 1


def test_a_failed_query_leaves_no_output_behind(tmp_path: Path) -> None:
    done = dpsql("query", "FROM nowhere", "-o", "out.csv", cwd=tmp_path)
    assert done.returncode == 4
    assert not (tmp_path / "out.csv").exists()
    (tmp_path / "kept.csv").write_text("before")
    dpsql("query", "FROM nowhere", "-o", "kept.csv", cwd=tmp_path)
    assert (tmp_path / "kept.csv").read_text() == "before"


@cases(
    ("arguments", "code", "says"),
    [
        (["query", "SELECT bad"], 4, "Binder Error"),
        (["query", ""], 2, "there is no statement"),
        (["query", "SELECT 1", "--format", "xml"], 2, "--format"),
        (["query", "SELECT 1", "--db", "no/such/x.duckdb"], 5, "[DPSQL-L055]"),
        (["query", "SELECT 1", "--db", "no/such/x.duckdb", "--create"], 4, "IO Error"),
        (["query", "SELECT 1", "--ledger", "no/such/x.dpsql-ledger"], 5, "[DPSQL-L001]"),
        (["run", "missing.sql"], 2, "missing.sql"),
        (["budget"], 2, "--ledger"),
        (["budget", "--db", "missing.duckdb"], 5, "[DPSQL-L016]"),
        (["ledger", "verify", "--ledger", "missing"], 5, "[DPSQL-L016]"),
        (["frobnicate"], 2, "frobnicate"),
    ],
)
def test_failures_go_to_stderr_with_their_exit_code(arguments: list[str], code: int, says: str, tmp_path: Path) -> None:
    done = dpsql(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*missing*"))


def test_read_only_and_strict(folder: Path) -> None:
    done = dpsql("query", "CREATE TABLE z(i INT)", "--db", "x.duckdb", "--read-only", cwd=folder)
    assert done.returncode == 1
    assert "read-only" in done.stderr
    done = dpsql("query", RELEASE, "--db", "x.duckdb", "--read-only", "--strict", cwd=folder)
    assert done.returncode == 0
    unprotected = RELEASE.replace("lower", "dataset := 'another', lower")
    done = dpsql("query", unprotected, "--db", "x.duckdb", "--strict", cwd=folder)
    assert done.returncode == 4
    assert done.stderr.startswith("[DPSQL-S015]")


def test_budget_and_ledger_work_while_another_process_holds_the_database(folder: Path) -> None:
    holder = (
        "import sys, duckdb; c = duckdb.connect('x.duckdb'); print('held', flush=True); sys.stdin.read(); c.close()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", holder], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert dpsql("query", "SELECT 1", "--db", "x.duckdb", cwd=folder).returncode == 4
        done = dpsql("budget", "--db", "x.duckdb", cwd=folder)
        assert done.returncode == 0
        assert "epsilon 2" in done.stdout
        done = dpsql("ledger", "--db", "x.duckdb", cwd=folder)
        assert done.returncode == 0
        assert "pure 1-DP" in done.stdout
    finally:
        process.communicate("", timeout=60)


def test_ledger_list_has_every_column_in_machine_formats(folder: Path) -> None:
    done = dpsql("ledger", "list", "--db", "x.duckdb", "--format", "json", cwd=folder)
    rows = json.loads(done.stdout)
    assert [row["kind"] for row in rows] == ["protect", "release"]
    assert rows[1]["epsilon"] == 1
    assert len(rows[1]["hash"]) == 64
    done = dpsql("ledger", "--db", "x.duckdb", "--format", "csv", cwd=folder)
    assert done.stdout.splitlines()[0].startswith("sequence,recorded_at,kind,dataset,block,function,release,epsilon")


def test_show_tells_what_a_release_read_and_gave(folder: Path) -> None:
    done = dpsql("show", "2", "--db", "x.duckdb", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    shown = json.loads(done.stdout)
    assert (shown["dataset"], shown["function"], shown["lineage"]["tables"]) == ("t", "dp_sis", ["t"])
    assert [row["feature"] for row in shown["rows"]]
    assert set(shown["noise"]) == {"verdict", "claim", "confidence", "resolution", "unit", "rows_needed"}
    assert shown["noise"]["verdict"] == "not measured"
    for name in ("nosuch", "1", "3"):
        done = dpsql("show", name, "--db", "x.duckdb", cwd=folder)
        assert (done.returncode, done.stdout) == (1, "")
        assert "[DPSQL-P030]" in done.stderr


def test_an_empty_ledger_still_has_its_columns(tmp_path: Path) -> None:
    dpsql("query", "SELECT 1", "--db", "x.duckdb", "--create", "--ledger", "new.dpsql-ledger", cwd=tmp_path)
    done = dpsql("budget", "--ledger", "new.dpsql-ledger", "--format", "csv", cwd=tmp_path)
    assert done.stdout.startswith("dataset,block,budget,releases,")
    assert len(done.stdout.splitlines()) == 1


def test_verify_sees_a_changed_row_and_a_lost_head(folder: Path) -> None:
    done = dpsql("ledger", "verify", "--db", "x.duckdb", cwd=folder)
    assert done.returncode == 0
    assert done.stdout.startswith("ok: 2 entries")
    head = done.stdout.split("head ")[1].strip()
    assert dpsql("ledger", "verify", "--db", "x.duckdb", "--head", head, cwd=folder).returncode == 0
    done = dpsql("ledger", "verify", "--db", "x.duckdb", "--head", "0" * 64, cwd=folder)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith("tampered: the remembered head")

    connection = sqlite3.connect(folder / "x.duckdb.dpsql-ledger")
    (table,) = (
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        if "epsilon" in {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
    )
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute(f"UPDATE {table} SET epsilon = '1' WHERE sequence = 2")
    connection.commit()
    connection.close()
    done = dpsql("ledger", "verify", "--db", "x.duckdb", cwd=folder)
    assert (done.returncode, done.stdout) == (5, "")
    assert "row 2 was changed" in done.stderr


def test_shell_off_a_terminal_reads_statements_and_goes_on_after_an_error(tmp_path: Path) -> None:
    (tmp_path / "part.sql").write_text("SELECT 'from ' ||\n 'file' AS r;\n")
    script = (
        "SELECT 10 + 1 AS n;\nSELECT 'a;\nb' AS two_lines,\n 12 AS m\n;\nFROM nowhere;\n.mode csv\n.read part.sql\n"
    )
    script += ".nonsense\nSELECT 13 AS n -- no semicolon at the end"
    done = dpsql("shell", cwd=tmp_path, stdin=script)
    assert done.returncode == 4
    assert "11" in done.stdout
    assert "12" in done.stdout
    assert done.stdout.endswith("r\nfrom file\nn\n13\n")
    assert done.stderr.startswith("line 6: Catalog Error: Table with name nowhere does not exist!")
    assert "there is no command .nonsense" in done.stderr


def test_dot_commands_off_a_terminal(folder: Path) -> None:
    commands = (
        ".tables\n.schema T\n.budget\n.ledger t\n.help\n.help dp_sis\n.timer on\nSELECT 1;\n.quit\nSELECT 'after';\n"
    )
    done = dpsql("shell", "x.duckdb", cwd=folder, stdin=commands)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["t", "t (a BIGINT, b BIGINT, y BOOLEAN)"]
    assert "epsilon 2" in done.stdout
    assert "released" in done.stdout
    assert "dp_protect" in done.stdout
    assert "target_levels" in done.stdout
    assert lines[-1].endswith(" s")
    assert "after" not in done.stdout


def worked(of_system: Path) -> int:
    """Return the CPU time of a process, in ticks."""
    return sum(map(int, of_system.read_text().rsplit(")", 1)[1].split()[11:13]))


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_stops_a_running_query_with_code_130(tmp_path: Path) -> None:
    endless = "SELECT 5 * 5 AS n; SELECT sum(hash(i)) FROM range(100000000000000) AS r(i)"
    process = subprocess.Popen(
        [sys.executable, "-m", "dpsql", "query", endless],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stdout is not None
    seen = ""
    while "25" not in seen:  # the first statement has answered, so the second one runs, or is about to
        line = process.stdout.readline()
        assert line
        seen += line
    if (of_system := Path(f"/proc/{process.pid}/stat")).exists():  # the second one has worked for 0.2 s of CPU
        begun, tick = worked(of_system), os.sysconf("SC_CLK_TCK")
        while worked(of_system) < begun + tick / 5 and process.poll() is None:
            time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert errors.startswith("Interrupted.")
    assert "Traceback" not in errors


def test_demo_shows_selection_receipt_and_what_remains(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    done = dpsql("demo", "--db", "demo.duckdb", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    expected = (
        "dp_protect(",
        "dp_count(",
        "std_error",
        "dp_sis(",
        "target_levels",
        "feature",
        "pure 0.9-DP",
        "epsilon 2",
    )
    for text in (*expected, "How to read it"):
        assert text in done.stdout
    assert dpsql("demo", "--db", "demo.duckdb", cwd=tmp_path).returncode == 0
    assert dpsql("demo", "--db", "demo.duckdb", cwd=tmp_path).returncode == 0
    done = dpsql("demo", "--db", "demo.duckdb", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith("[DPSQL-B001]")


def test_demo_without_scikit_learn_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "sklearn.py").write_text("raise ImportError('hidden by the test')\n")
    command = [sys.executable, "-m", "dpsql", "demo"]
    surroundings = environment(tmp_path)
    surroundings["PYTHONPATH"] = f"{tmp_path}:{surroundings['PYTHONPATH']}"
    done = subprocess.run(command, env=surroundings, capture_output=True, encoding="utf-8", timeout=300)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'dpsql[demo]'" in done.stderr


def test_doctor_finds_this_installation_healthy(tmp_path: Path) -> None:
    done = dpsql("doctor", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("│ ok ") == 7
    assert "FAILED" not in done.stdout


def test_help_names_every_command_and_loads_nothing_heavy(tmp_path: Path) -> None:
    done = dpsql("--help", cwd=tmp_path)
    assert done.returncode == 0
    for command in ("shell", "run", "query", "budget", "ledger", "demo", "doctor", "warmup"):
        assert f"  {command} " in done.stdout
        helped = dpsql(command, "--help", cwd=tmp_path)
        assert helped.returncode == 0
    check = (
        "import sys\nfrom dpsql.cli import main\n"
        "heavy = {'duckdb', 'numpy', 'pyarrow', 'polars', 'numba', 'sqlalchemy', 'prompt_toolkit'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], env=environment(tmp_path), capture_output=True, encoding="utf-8", timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_version(tmp_path: Path) -> None:
    done = dpsql("--version", cwd=tmp_path)
    assert done.stdout.startswith("dpsql, version ")


def test_warmup_compiles_every_kernel(tmp_path: Path) -> None:
    done = dpsql("warmup", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    kernels = ["xty", "kendall", "best_subsets", "subset_floors", "clipped_rows", "block_gram"]
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == kernels
