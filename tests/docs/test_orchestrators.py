"""The jobs on the page about orchestrators: they compile, and run wherever their orchestrator is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_runner import ROOT, Block, blocks, run_page

import dpsql

PAGE = ROOT / "docs" / "orchestrators.md"
NEEDS = {"dagster": "needs Dagster", "prefect": "needs Prefect"}


def blocks_of(package: str) -> list[Block]:
    return [block for block in blocks(PAGE) if block.reason == NEEDS[package]]


@pytest.mark.parametrize("package", NEEDS)
def test_jobs_compile(package: str) -> None:
    found = blocks_of(package)
    assert len(found) == 2
    for block in found:
        compile(block.text, str(PAGE), "exec")


@pytest.mark.long
@pytest.mark.parametrize("package", NEEDS)
@pytest.mark.filterwarnings("default")
def test_a_job_that_runs_twice_is_charged_once(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    monkeypatch.setenv("DAGSTER_HOME", "")
    scope = run_page(PAGE)
    for block in blocks_of(package):
        # Dagster reads annotations, which must be as a reader has them and not postponed as in this file.
        exec(compile(block.text, str(PAGE), "exec", dont_inherit=True), scope)
    with dpsql.Context("hospital.duckdb", ledger="hospital.dpsql-ledger") as ctx:
        rows = ctx.sql("SELECT kind, count(*) AS n FROM dp_ledger() WHERE kind <> 'protect' GROUP BY ALL").to_pylist()
    # The page's first blocks run a job of another day twice.
    assert {row["kind"]: row["n"] for row in rows} == {"release": 2, "replay": 2}
