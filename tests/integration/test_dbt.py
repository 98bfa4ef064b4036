"""dbt with the plugin: an example project that is built again and again is charged once."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("dbt.adapters.duckdb")

import dpsql

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "dbt.md"
DAY = ("--vars", "day: 2026-01-01")
pytestmark = pytest.mark.long


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return shutil.copytree(
        ROOT / "examples" / "dbt", tmp_path / "project", ignore=shutil.ignore_patterns("target", "logs")
    )


def dbt(project: Path, *arguments: str) -> tuple[int, str]:
    """Run dbt in a process of its own; return its code and what it printed, on one line."""
    done = subprocess.run(
        [sys.executable, "-m", "dbt.cli.main", *arguments, "--no-use-colors"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr)


def statuses(project: Path) -> dict[str, str]:
    """Return what became of each node in the last run, by its name."""
    results = json.loads((project / "target" / "run_results.json").read_text(encoding="utf-8"))["results"]
    return {result["unique_id"].split(".")[2]: result["status"] for result in results}


def rows(project: Path, query: str) -> list[tuple[object, ...]]:
    con = dpsql.connect(project / "clinic.duckdb")
    try:
        return con.execute(query).fetchall()
    finally:
        con.close()


def configure(project: Path, config: str, path: str = "clinic.duckdb") -> None:
    (project / "profiles.yml").write_text(
        f"clinic: {{target: dev, outputs: {{dev: {{type: duckdb, path: '{path}', threads: 8, settings: {{threads: 1}},"
        f" plugins: [{{module: dpsql.dbt, config: {config}}}]}}}}}}",
        encoding="utf-8",
    )


def command(project: Path, *arguments: str) -> None:
    """Run a dpsql command in the project."""
    done = subprocess.run(
        [sys.executable, "-m", "dpsql", *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr


PUBLISHED = ("patients_by_ward", "stay_factors", "stay_model", "stays_by_ward", "ward_history")


def test_a_build_that_is_repeated_is_charged_once(project: Path) -> None:
    runs = []
    for _ in range(2):
        code, shown = dbt(project, "build", *DAY)
        assert code == 0, shown
        runs.append({name: rows(project, f"FROM {name} ORDER BY ALL") for name in PUBLISHED})
    assert runs[0] == runs[1]
    assert rows(project, "SELECT dataset, releases, epsilon_spent, delta_spent FROM dp_budget()") == [
        ("patients", 5, 2.5, 1e-7)
    ]
    kinds = rows(project, "SELECT kind, count(*) FROM dp_ledger() GROUP BY ALL ORDER BY ALL")
    assert kinds == [("protect", 1), ("release", 5), ("replay", 5)]
    command(project, "ledger", "verify", "--ledger", "clinic.duckdb.dpsql-ledger")
    if importlib.util.find_spec("matplotlib"):
        command(project, "plot", "stay model", "--db", "clinic.duckdb", "-o", "model.svg")
        assert (project / "model.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")


def private_model(project: Path, name: str, sql: str, **arguments: object) -> None:
    (project / "models" / "published" / f"{name}.sql").write_text(
        f"{{{{ config(materialized='private', meta={{'dpsql': {arguments!r}}}) }}}}\n{sql}", encoding="utf-8"
    )


def test_a_plain_select_is_a_private_model(project: Path) -> None:
    people = "FROM {{ ref('patients') }}"
    private_model(
        project,
        "literals",
        "-- it's a comment; with 'quotes' and {braces}\n"
        f"SELECT CASE WHEN age >= 65 THEN 'it''s old' ELSE 'young' END AS band, count(*) AS n {people} GROUP BY 1 "
        "HAVING count(*) > 100 ORDER BY n DESC",
        epsilon=0.1,
        errors=True,
        release="it's a name",
        max_rows_per_unit=None,
    )
    private_model(
        project,
        "keyed",
        f"SELECT ward, count(*) AS n, avg(dose) AS mean {people} GROUP BY ward",
        epsilon=0.1,
        keys={"ward": ["A", "B", "it's"]},
        lower={"dose": 0},
        upper={"dose": 9.5},
    )
    private_model(project, "people", f"SELECT ward, age {people}", epsilon=0.1)
    private_model(project, "misspelt", f"SELECT count(*) AS n {people}", epsilom=0.1)
    private_model(project, "unstated", f"SELECT count(*) AS n {people}")
    (project / "models" / "published" / "unstated.sql").write_text(
        f"{{{{ config(materialized='private') }}}} SELECT count(*) AS n {people}", encoding="utf-8"
    )
    names = ("literals", "keyed", "people", "misspelt", "unstated")
    for _ in range(2):
        code, shown = dbt(project, "build", "--select", "patients", *names)
        assert code == 1
        for message in ("[DPSQL-P102]", "dp_query()", "a private model says what it may spend"):
            assert message in shown
        found = statuses(project)
        assert {name: found[name] for name in names} == {
            **dict.fromkeys(names, "error"),
            **dict.fromkeys(("literals", "keyed"), "success"),
        }
    assert rows(project, "SELECT band FROM literals ORDER BY n DESC") == [("young",), ("it's old",)]
    assert [row[0] for row in rows(project, "DESCRIBE literals")][:3] == ["band", "n", "n_error"]
    assert rows(project, "SELECT ward FROM keyed ORDER BY ward") == [("A",), ("B",), ("it's",)]
    assert rows(project, "SELECT releases, round(epsilon_spent, 6) FROM dp_budget()") == [(2, 0.2)]
    tables = [
        row[0]
        for row in rows(project, "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main' ORDER BY ALL")
    ]
    assert tables == ["keyed", "literals", "patients"]  # nor anything that was begun


def test_another_day_is_another_release(project: Path) -> None:
    for day in ("2026-01-01", "2026-01-02"):
        code, shown = dbt(project, "build", "--select", "+ward_history", "--vars", f"day: {day}")
        assert code == 0, shown
    assert rows(project, "SELECT day::VARCHAR, count(*) FROM ward_history GROUP BY ALL ORDER BY ALL") == [
        ("2026-01-01", 3),
        ("2026-01-02", 3),
    ]
    assert rows(project, "SELECT epsilon_spent FROM dp_budget()") == [(0.2,)]


@pytest.mark.odds("0: looks at charges and codes")
def test_a_budget_that_is_used_up_fails_its_model_alone(project: Path) -> None:
    (project / "models" / "published" / "too_much.sql").write_text(
        "-- depends_on: {{ ref('stay_model') }}\n"
        "SELECT * FROM dp_count('{{ ref(\"patients\") }}', epsilon := 1.5, release := 'too much')",
        encoding="utf-8",
    )
    (project / "models" / "published" / "after.sql").write_text("FROM {{ ref('too_much') }}", encoding="utf-8")
    code, shown = dbt(project, "build", *DAY)
    assert code == 1
    assert "[DPSQL-B001] dataset 'patients' needs epsilon 1.5, 0.5 remains of 3." in shown
    found = statuses(project)
    assert {name: found[name] for name in (*PUBLISHED, "too_much", "after")} == {
        **dict.fromkeys(PUBLISHED, "success"),
        "too_much": "error",
        "after": "skipped",
    }
    assert len(rows(project, "FROM patients_by_ward")) == 3
    assert rows(project, "SELECT epsilon_spent FROM dp_budget()") == [(2.5,)]


@pytest.mark.odds("0: looks at charges and codes")
def test_threads_and_catalogs_share_one_ledger(project: Path) -> None:
    """Eight models at once, of tables in three places, under one ledger elsewhere."""
    profile = (project / "profiles.yml").read_text(encoding="utf-8")
    profile = profile.replace("threads: 4", "threads: 8\n      attach: [{path: other.duckdb, alias: other}]")
    (project / "profiles.yml").write_text(
        profile.replace("clinic.duckdb.dpsql-ledger", "budgets.dpsql-ledger"), encoding="utf-8"
    )
    places = {"here": "", "raw": "schema='raw',", "there": "database='other',"}
    for name, place in places.items():
        (project / "models" / "clinic" / f"{name}.sql").write_text(
            f"{{{{ config({place} materialized='table', post_hook=\"SELECT dp_protect('{{{{ this }}}}', epsilon := 1)\") }}}}\n"
            "SELECT i AS patient FROM range(500) AS r(i)",
            encoding="utf-8",
        )
        for number in range(5):
            (project / "models" / "published" / f"{name}_{number}.sql").write_text(
                f"SELECT * FROM dp_count('{{{{ ref(\"{name}\") }}}}', epsilon := 0.1, release := '{name} {number}')",
                encoding="utf-8",
            )
    # Tables first: a declaration beside a running call may refuse it (B008), and does so on purpose.
    for part in (["--select", "path:models/clinic"], []):
        code, shown = dbt(project, "build", *DAY, *part)
        assert code == 0, shown
    con = dpsql.connect(project / "clinic.duckdb", ledger=project / "budgets.dpsql-ledger")
    try:
        spent = con.execute("SELECT dataset, epsilon_spent FROM dp_budget() ORDER BY ALL").fetchall()
    finally:
        con.close()
    assert spent == [("here", 0.5), ("main_raw.raw", 0.5), ("other.main.there", 0.5), ("patients", 2.5)]


def test_two_builds_at_once_are_charged_once(project: Path) -> None:
    """In two databases with a table of the same name, whose ledger, and so whose budget, is one."""
    configure(project, f"{{ledger: '{project.parent / 'shared.dpsql-ledger'}', strict: true}}")
    projects = [project, shutil.copytree(project, project.parent / "second")]
    for one in projects:
        code, shown = dbt(one, "build", "--select", "patients", "adults")
        assert code == 0, shown
    with ThreadPoolExecutor() as pool:
        for code, shown in pool.map(lambda one: dbt(one, "build", *DAY, "--exclude", "patients"), projects):
            assert code == 0, shown
    found = []
    for one in projects:
        con = dpsql.connect(one / "clinic.duckdb", ledger=project.parent / "shared.dpsql-ledger")
        found.append([con.execute(f"FROM {name} ORDER BY ALL").fetchall() for name in PUBLISHED])
        spent = con.execute("SELECT releases, epsilon_spent FROM dp_budget()").fetchall()
        con.close()
    assert found[0] == found[1]
    assert spent == [(5, 2.5)]


@pytest.mark.odds("0: looks at charges and codes")
def test_a_source_is_protected_when_a_run_starts(project: Path) -> None:
    con = dpsql.connect(project / "clinic.duckdb")
    con.execute("CREATE SCHEMA raw; CREATE TABLE raw.visits AS SELECT i AS visit FROM range(800) AS r(i)")
    con.close()
    with (project / "dbt_project.yml").open("a", encoding="utf-8") as file:
        file.write(re.search(r"^on-run-start: .*\n", PAGE.read_text(encoding="utf-8"), re.MULTILINE)[0])
    (project / "models" / "clinic" / "raw.yml").write_text(
        "sources: [{name: raw, tables: [{name: visits}]}]", encoding="utf-8"
    )
    (project / "models" / "published" / "visits.sql").write_text(
        "FROM dp_count('{{ source(\"raw\", \"visits\") }}', epsilon := 0.25, release := 'visits')", encoding="utf-8"
    )
    for _ in range(2):
        code, shown = dbt(project, "build", "--select", "visits")
        assert code == 0, shown
    assert rows(project, "SELECT dataset, epsilon_spent FROM dp_budget()") == [("raw.visits", 0.25)]


@pytest.mark.odds("0: looks at charges and codes")
def test_what_stands_between_a_table_and_a_release(project: Path) -> None:
    """A copy is a source once it is declared, also when it is built anew; an ephemeral model never is."""
    derive = """post_hook="SELECT dp_derive('{{ this }}', '{{ ref("patients") }}', one_row_each := true)\""""
    assert derive.removeprefix('post_hook="').removesuffix('"') in PAGE.read_text(encoding="utf-8")
    for name, config in {
        "copied": "materialized='table'",
        "declared": "materialized='table', " + derive.replace('ref("patients")', "ref('patients')"),
        "ephemeral": "materialized='ephemeral'",
    }.items():
        (project / "models" / "clinic" / f"{name}.sql").write_text(
            f"{{{{ config({config}) }}}} SELECT * FROM {{{{ ref('patients') }}}}", encoding="utf-8"
        )
        (project / "models" / "published" / f"of_{name}.sql").write_text(
            f"FROM dp_count('{{{{ ref(\"{name}\") }}}}', epsilon := 0.1, release := '{name}')", encoding="utf-8"
        )
    for _ in range(2):
        code, shown = dbt(project, "build", "--select", "+of_copied", "+of_declared", "+of_ephemeral")
        assert code == 1
        assert "[DPSQL-B006] 'copied' has no budget" in shown
        assert "[DPSQL-S016]" in shown
        assert statuses(project)["of_declared"] == "success", shown
    assert rows(project, "SELECT epsilon_spent FROM dp_budget()") == [(0.1,)]


def quoted(name: str) -> str:
    """Return a model of the page that the example project does not have."""
    page, form = PAGE.read_text(encoding="utf-8"), rf"^```sql no-run: a dbt model, {name}\n(.*?)^```$"
    found = re.search(form, page, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def test_a_synthetic_table_is_a_model(project: Path) -> None:
    """One model is charged once; the table that is made of it is free, and the same in each build."""
    published = project / "models" / "published"
    for name in ("twin_report", "twin"):
        (published / f"{name}.sql").write_text(quoted(name), encoding="utf-8")
    made = []
    for _ in range(2):
        code, shown = dbt(project, "build", "--select", "+twin")
        assert code == 0, shown
        made.append(rows(project, "FROM twin"))
    assert made[0] == made[1]
    assert abs(len(made[0]) - 6000) < 100
    assert rows(project, "SELECT column_name FROM (DESCRIBE twin)") == [("ward",), ("age",)]
    assert rows(project, "SELECT epsilon_spent FROM dp_budget()") == [(2.0,)]


def test_a_table_whose_protection_fails_is_not_made(project: Path) -> None:
    patients = project / "models" / "clinic" / "patients.sql"
    patients.write_text(patients.read_text(encoding="utf-8").replace("epsilon := 3.0", "epsilon := -3.0"), "utf-8")
    code, shown = dbt(project, "build", "--select", "patients")
    assert code == 1
    assert "[DPSQL-P024]" in shown
    assert rows(project, "SHOW TABLES") == []


@pytest.mark.odds("0: looks at charges and codes")
def test_a_strict_project_refuses_a_table_without_a_budget(project: Path) -> None:
    (project / "models" / "clinic" / "staff.sql").write_text(
        "{{ config(materialized='table') }} FROM range(9)", "utf-8"
    )
    (project / "models" / "published" / "staff_count.sql").write_text(
        "FROM dp_count('{{ ref(\"staff\") }}', epsilon := 0.1, release := 'staff')", encoding="utf-8"
    )
    code, shown = dbt(project, "build", "--select", "staff", "staff_count")
    assert code == 1
    assert statuses(project) == {"staff": "success", "staff_count": "error"}
    assert "[DPSQL-B" in shown


@pytest.mark.parametrize(
    ("config", "path", "message"),
    [
        ("{}", ":memory:", "[DPSQL-L017] the database of the profile is in memory"),
        ("{legder: x}", "clinic.duckdb", "has no argument 'legder'. Did you mean ledger?"),
        ("{strict: maybe}", "clinic.duckdb", "[DPSQL-P023] strict must be true or false"),
        ("{ledger: 3}", "clinic.duckdb", "[DPSQL-P013] ledger must be text"),
        ("{ledger: absent/folder/x}", "clinic.duckdb", "[DPSQL-L001]"),
    ],
)
def test_a_wrong_configuration_is_named(project: Path, config: str, path: str, message: str) -> None:
    configure(project, config, path)
    code, shown = dbt(project, "build")
    assert code == 2
    assert message in shown
    assert "Traceback" not in shown


def test_without_configuration_the_ledger_is_beside_the_database(project: Path) -> None:
    configure(project, "{}")
    code, shown = dbt(project, "build", *DAY)
    assert code == 0, shown
    assert (project / "clinic.duckdb.dpsql-ledger").exists()
    assert rows(project, "SELECT epsilon_spent FROM dp_budget()") == [(2.5,)]
