"""What the README shows runs as it stands there, prints what it says, and costs what it says."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import page_data
import pytest
from click.testing import CliRunner
from page_runner import ROOT, blocks

from dpsql.cli.commands import main

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")


def printed(statement: str) -> str:
    done = CliRunner().invoke(main, ["query", statement, "--db", "patients.duckdb"])
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def test_each_block_prints_what_is_shown_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page_data.patients()
    shown = [text.strip() for text in re.findall(r"^```text\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)]
    with duckdb.connect() as parser:
        statements = [
            [one.query for one in parser.extract_statements(block.text)]
            for block in blocks(README)
            if block.language == "sql"
        ]
    counts, receipts = [[printed(one) for one in block][-1] for block in statements]
    assert receipts == shown[1]
    # A count of some 5,000 rows differs from run to run.
    assert re.sub(r"\d{4}\.0", "####.0", counts) == re.sub(r"\d{4}\.0", "####.0", shown[0])
    assert printed("SELECT epsilon_spent AS spent FROM dp_budget()").count("0.5") == 1


def test_the_gate_finds_both_commands() -> None:
    for name in ("demo", "tests"):
        block = TEXT.split(f"<!-- {name} -->", 1)[1]
        assert re.match(r"\n```sh\n.+\n```\n", block)


def test_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#:]+)", TEXT)
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []
