"""The macros are what the arguments say, and their signatures stay what users write against."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpsql
from dpsql.contract.arguments import Argument, Signature
from dpsql.engines.duckdb import macros
from dpsql.functions.registry import FUNCTIONS

SIGNATURES = Path(__file__).with_name("signatures.txt")


def test_the_files_are_what_the_arguments_say() -> None:
    assert macros.main(["--check"]) == 0


def test_another_argument_shows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    plan = FUNCTIONS["dp_sis"].plan
    monkeypatch.setattr(plan, "arguments", Signature(*plan.arguments.values(), Argument("more", "One more.")))
    assert macros.main(["--check"]) == 1
    assert {line.rpartition(": not")[0].rpartition("/")[2] for line in capsys.readouterr().out.splitlines()} == {
        "dp_sis.sql"
    }


def test_written_files_are_what_is_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for path, text in macros.generated():
        (tmp_path / path.name).write_text(text.replace("gamma := NULL, ", ""), encoding="utf-8")
    monkeypatch.setattr(macros, "SQL", tmp_path)
    assert macros.main(["--check"]) == 1
    assert macros.main([]) == 0
    assert macros.main(["--check"]) == 0


def test_parameters_and_their_order_stay() -> None:
    """Recorded on 2026-11-22: a new argument may be added to the list; none may go, or move."""
    with dpsql.connect() as connection:
        found = connection.execute(
            "SELECT concat(function_type, ' ', function_name, '(', array_to_string(parameters, ', '), ')') AS line "
            "FROM duckdb_functions() WHERE database_name = 'temp' AND function_type LIKE '%macro' ORDER BY line"
        ).fetchall()
    assert [line for (line,) in found] == SIGNATURES.read_text(encoding="utf-8").splitlines()
