"""Every example runs; those on data that is not here skip with their own reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.long
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    if "not here" in done.stdout:
        pytest.skip(done.stdout.strip())
    assert done.stdout.strip()


@pytest.mark.parametrize(
    ("name", "releases"), [("select", 3), ("model", 6), ("classify", 6), ("many_questions", 5), ("nothing_known", 7)]
)
def test_sql_example_runs(name: str, releases: int) -> None:
    import dpsql

    con = dpsql.connect()
    try:
        for statement in con.extract_statements((ROOT / "examples" / f"{name}.sql").read_text(encoding="utf-8")):
            con.execute(statement).fetchall()
        assert con.execute("SELECT count(*) FROM dp_ledger() WHERE status = 'released'").fetchall() == [(releases,)]
    finally:
        con.close()
