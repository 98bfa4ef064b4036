"""Every private function answers as it was recorded, from the same rows and the same entropy.

A refactoring must leave all of it as it is. After a change that is meant to change results, run
``python tests/recordings/record.py`` and look at the difference of ``recorded.json``: it shows what changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cases import Case, every_case
from replay import Replay, arithmetic, same

from dpsql.functions.registry import FUNCTIONS
from support.cases import cases

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text(encoding="utf-8"))
# On another kind of processor doubles may end in other bits; then rounding is forgiven, and charges are not.
EXACTLY = RECORDED.pop("arithmetic") == arithmetic()
CASES = every_case()


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    opened = Replay()
    yield opened
    opened.close()


def test_every_case_is_recorded() -> None:
    assert [case.name for case in CASES] == list(RECORDED)


def test_every_function_is_recorded() -> None:
    statements = "\n".join(statement for case in CASES for statement in case.statements)
    assert [name for name in FUNCTIONS if f" {name}(" not in statements] == []


@cases("case", CASES, ids=lambda case: case.name, quick=60)
def test_as_recorded(case: Case, replay: Replay) -> None:
    found, recorded = json.loads(json.dumps(replay.run(case))), RECORDED[case.name]
    if not same(found, recorded, exactly=EXACTLY):
        script = ";\n".join(case.statements)
        pytest.fail(
            f"{case.name}\n\n{script}\n\nfound    {json.dumps(found)}\nrecorded {json.dumps(recorded)}", pytrace=False
        )


@pytest.mark.long
@cases("case", [case for case in CASES if "no rows" in case.name], ids=lambda case: case.name)
def test_no_rows_are_answered_every_time(case: Case, replay: Replay) -> None:
    """Where a scan finds no row, DuckDB's threads race for the end of it; no step may hang on who wins."""
    found = {json.dumps(replay.run(case)) for _ in range(30)}
    assert len(found) == 1, found
