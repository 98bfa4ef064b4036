"""The macros are what the arguments say, and their signatures stay what users write against."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsql import generate
from dpsql.contract.arguments import Argument, Signature
from dpsql.engines.duckdb import macros
from dpsql.functions.registry import FUNCTIONS


def test_the_files_are_what_the_arguments_say() -> None:
    assert generate.main(["--check"]) == 0


def stale(told: str) -> set[str]:
    return {line.partition(": not")[0].rpartition("/")[2] for line in told.splitlines()}


def test_another_argument_shows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    plan = FUNCTIONS["dp_sis"].plan
    monkeypatch.setattr(plan, "arguments", Signature(*plan.arguments.values(), Argument("more", "One more.")))
    assert generate.main(["--check"]) == 1
    assert stale(capsys.readouterr().out) == {"dp_sis.sql", "dp_sis.md"}


@pytest.mark.long
def test_written_files_are_what_is_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, text in macros.generated():
        (tmp_path / path.name).write_text(text.replace("gamma := NULL, ", ""), encoding="utf-8")
    monkeypatch.setattr(macros, "SQL", tmp_path)
    assert generate.main(["--check"]) == 1
    assert "dp_sis.sql" in stale(capsys.readouterr().out)
    monkeypatch.setattr(generate, "write_manual", lambda words: 0)
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0


def test_parameters_and_their_order_stay() -> None:
    """A new parameter may be added to the list; none may go, or move."""
    line = "macro dp_x(a, b, c)"
    for later in (line, "macro dp_x(a, b, more, c)", f"macro dp_x(a)\n{line}"):
        assert generate.broken(f"{line}\n", f"{later}\n") == []
    for later in ("macro dp_x(a, c, b)", "macro dp_x(a, b)", "table_macro dp_x(a, b, c)", "macro dp_y(a, b, c)"):
        assert generate.broken(f"{line}\n", f"{later}\n") == [line]


def test_a_lost_parameter_is_not_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recorded = tmp_path / "signatures.txt"
    recorded.write_text("macro dp_sum(y, gone)\n", encoding="utf-8")
    monkeypatch.setattr(generate, "SIGNATURES", recorded)
    monkeypatch.setattr(generate, "generated", lambda: iter([(recorded, generate.signatures())]))
    with pytest.raises(SystemExit, match="gone"):
        generate.main([])
    assert recorded.read_text(encoding="utf-8") == "macro dp_sum(y, gone)\n"
