"""The wheel and the source distribution hold what git tracks, and each works when installed elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What docs/audit.md promises of dpsql.testing: randomized response of loss ln 3, by its law, by its outputs, and in SQL.
AUDIT = """
import random
import dpsql
from dpsql.testing import audit, audit_sql, check_exhaustively

def law(table):
    return {bit: 0.75 if (bit,) == table[0] else 0.25 for bit in (0, 1)}

def release(bit, count):
    return [bit if draw.random() < 0.75 else 1 - bit for _ in range(count)]

draw = random.Random(0)
exact = check_exhaustively(law, [(0,), (1,)], 1, "replace")
print(exact.within(1.1), exact.within(1.0))
print(*(audit(release, (0, 1), epsilon=claim, runs=10_000).verdict for claim in (1.1, 0.5)))
query = "SELECT random() < CASE WHEN count(*) = 2 THEN 0.75 ELSE 0.25 END AS answer FROM t"
tables = tuple(f"CREATE TABLE t AS FROM range({rows}) AS r(x)" for rows in (2, 3))
print(audit_sql(dpsql.connect, query, tables, epsilon=0.5).verdict)
"""


def run(*command: object, cwd: Path | None = None) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    parts = [str(part) for part in command]
    done = subprocess.run(parts, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT)
    return {"wheel": next(out.glob("*.whl")), "sdist": next(out.glob("*.tar.gz"))}


def expected_modules() -> set[str]:
    names = set()
    for folder in ("dpsql", "sql", "udfs", "docs/functions"):
        inside = folder if folder == "dpsql" else f"dpsql/{folder}"
        for path in (ROOT / folder).rglob("*"):
            if (
                path.suffix in {".py", ".pyi", ".sql", ".md", ".toml", ".typed", ".txt", ".json", ".css", ".js", ".svg"}
                and "__pycache__" not in path.parts
            ):
                names.add(f"{inside}/{path.relative_to(ROOT / folder).as_posix()}")
    return names


@pytest.mark.odds("1e-17: the 8 words that the doctor draws are different ones")
@pytest.mark.long
def test_wheel_holds_every_module_and_sql_file_once(distributions: dict[str, Path]) -> None:
    with zipfile.ZipFile(distributions["wheel"]) as archive:
        names = archive.namelist()
    packaged = [name for name in names if ".dist-info/" not in name]
    assert len(packaged) == len(set(packaged))
    assert set(packaged) == expected_modules()


@pytest.mark.long
def test_sdist_holds_tests_and_licence(distributions: dict[str, Path]) -> None:
    with tarfile.open(distributions["sdist"]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    expected = {"LICENSE", "README.md", "CHANGELOG.md", "sql/dp/dp_sis.sql", "udfs/sis.py", "tests/conftest.py"}
    expected |= {"docs/index.md", "docs/functions/dp_sis.md", "docs/pictures/roc.svg", "zensical.toml"}
    assert {*expected, "tests/support/broken/__init__.py"} <= names


@pytest.mark.long
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_installs_elsewhere_and_doctor_is_content(kind: str, distributions: dict[str, Path], tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", venv)
    python = venv / "bin" / "python"
    # The dependencies are lent by this environment, behind the new one's own packages; dpsql itself is not.
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "lent.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}) + "\n")
    offline = ("--no-deps", "--no-index", "--no-build-isolation", "--force-reinstall")
    run(python, "-m", "pip", "install", "-q", *offline, distributions[kind])
    where = run(python, "-c", "import dpsql, dpsql.udfs, dpsql.sql; print(dpsql.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(venv)
    assert run(python, "-c", AUDIT, cwd=tmp_path).split() == ["True", "False", "passes", "violates", "violates"]
    report = run(venv / "bin" / "dpsql", "doctor", cwd=tmp_path)
    assert "dp_sis" in report
    helped = run(venv / "bin" / "dpsql", "query", "FROM dp_help('dp_sis')", cwd=tmp_path)
    assert "Guarantee. Pure epsilon-DP" in helped


def test_import_is_light(tmp_path: Path) -> None:
    loaded = run(sys.executable, "-c", "import sys, dpsql; print(*sys.modules)", cwd=ROOT).split()
    heavy = {"numpy", "pyarrow", "polars", "numba", "scipy", "sqlalchemy", "duckdb", "rich", "prompt_toolkit"}
    assert not heavy & set(loaded)


FIRST_CALLS = """
import sys
import dpsql
SLOW = {"numba", "scipy", "polars", "pandas", "sqlalchemy.dialects.postgresql"}
con = dpsql.connect()
print(*sorted((SLOW | {"sqlalchemy", "rich", "click", "dpsql.methods"}) & set(sys.modules)), end=";")
con.execute("CREATE TABLE t AS SELECT random() AS a, random() AS b, random() AS y, 'u' AS w FROM range(500)")
for call in (
    "SELECT dp_protect('t', epsilon := 100)",
    "FROM dp_count('t', epsilon := 1)",
    "FROM dp_count('t', by := 'w', keys := ['u', 'v'], epsilon := 1)",
    "FROM dp_quantile('t', target := 'a', lower := 0, upper := 1, epsilon := 1)",
    "FROM dp_query('SELECT w, count(*), sum(a) FROM t WHERE a < 0.5 AND w IN (''u'') GROUP BY w', epsilon := 1)",
    "FROM dp_sis('t', target := 'y', k := 1, epsilon := 1, lower := 0, upper := 1, target_lower := 0, target_upper := 1, "
    "features := ['a', 'b'])",
):
    con.execute(call).fetchall()
    print(*sorted(SLOW & set(sys.modules)), end=";")
con.close()
"""


@pytest.mark.odds("0: looks at what is imported")
@pytest.mark.long
def test_first_calls_of_a_process_load_nothing_that_takes_long() -> None:
    """Arrow itself imports pandas, where it is installed, to make an array of values."""
    loaded = run(sys.executable, "-c", FIRST_CALLS, cwd=ROOT)
    assert loaded.endswith(";" * 7), loaded  # on a busy machine DuckDB shows a progress bar first
