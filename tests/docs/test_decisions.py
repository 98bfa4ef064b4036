"""Decisions are numbered files in order of date, one screen each, and their README lists them."""

from __future__ import annotations

import re

from page_runner import ROOT

FOLDER = ROOT / "docs" / "decisions"
FILES = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
DECISION = re.compile(
    r"# (\d+)\. (.+)\n\nDate: (\d{4}-\d\d-\d\d)\n\n## Context\n\n.+\n\n## Decision\n\n.+\n\n## Consequence\n\n.+",
    re.DOTALL,
)


def test_every_decision_is_listed_in_order_of_date_and_fits_a_screen() -> None:
    rows, dates = [], []
    for number, path in enumerate(FILES, 1):
        content = path.read_text(encoding="utf-8")
        found = DECISION.fullmatch(content)
        assert found is not None, path.name
        assert (int(path.name[:4]), int(found[1])) == (number, number)
        assert content.count("\n") <= 40, path.name
        rows.append(f"| {number} | [{found[2]}]({path.name}) | {found[3]} |")
        dates.append(found[3])
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [line for line in listed.splitlines() if re.match(r"\| \d", line)] == rows
    assert dates == sorted(dates)


def test_their_lines_are_short() -> None:
    lines = [(path.name, line) for path in FOLDER.iterdir() for line in path.read_text(encoding="utf-8").splitlines()]
    assert [each for each in lines if len(each[1]) > 120] == []
