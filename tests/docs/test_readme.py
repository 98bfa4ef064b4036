"""What the README shows runs as it stands there, prints what it says, and costs what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page_runner import ROOT, run_page

import dpsql

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")


@pytest.mark.long
def test_each_block_prints_what_is_shown_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(README)
    with dpsql.Context("hospital.duckdb") as ctx:
        spent = {row["dataset"]: row["epsilon_spent"] for row in ctx.dp_budget().to_pylist()}
    assert spent == {"patients": 1.0}  # people has the rows of patients


def test_it_is_short() -> None:
    assert len(TEXT.splitlines()) <= 120


def test_the_gate_finds_both_commands() -> None:
    for name in ("demo", "tests"):
        block = TEXT.split(f"<!-- {name} -->", 1)[1]
        assert re.match(r"\n```sh\n.+\n```\n", block)


def test_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#:]+)", TEXT)
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []
