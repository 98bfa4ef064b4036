"""Which blocks a test enters is noted, and the cheapest cases that enter more are chosen."""

from __future__ import annotations

import ast
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from support.cases import CHOSEN

ROOT = Path(__file__).resolve().parents[2]
TEXT = '''
def judged(x):
    """Say what it is."""
    if x > 2:
        return "large"
    elif x < 0:
        raise ValueError(x)
    else:
        for one in range(x):
            pass
    return "small"
'''


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = spec_from_file_location("reach", ROOT / ".ci" / "reach.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "reach", module)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec.loader.exec_module(module)
    return module


def test_a_block_is_noted_where_it_begins(reach: Any) -> None:
    entered: set[str] = set()
    scope: dict[str, Any] = {"_dpsql_entered": entered.add}
    exec(compile(reach.noting(ast.parse(TEXT), "f"), "f", "exec"), scope)
    assert scope["judged"].__doc__ == "Say what it is."
    assert scope["judged"](3) == "large"
    assert entered == {"f:4", "f:5"}
    assert scope["judged"](1) == "small"
    assert entered == {"f:4", "f:5", "f:6", "f:9", "f:10"}
    with pytest.raises(ValueError, match="-1"):
        scope["judged"](-1)
    assert "f:7" in entered


def test_the_cheapest_cases_are_chosen_and_none_that_adds_nothing(reach: Any) -> None:
    def note(name: str, seconds: float, *blocks: int, quick: bool = False) -> Any:
        return reach.Note("unit/test_a.py::test_b", name, seconds, frozenset(map(str, blocks)), quick, False)

    notes = [
        note("quick", 1.0, 1, 2, quick=True),
        note("known", 0.1, 1, 2),
        note("dear", 0.3, 3, 4),
        note("cheap", 0.1, 3),
        note("too dear", 9.0, 5),
        note("both", 0.2, 2, 3, 4),
    ]
    assert [one.case for one in reach.chosen_of(notes, {"1", "2"})] == ["both"]
    assert [one.case for one in reach.chosen_of(notes, {"1", "2", "4"})] == ["cheap"]


def test_the_list_is_read_as_it_was_written(reach: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "CHOSEN", tmp_path / "quick.toml")
    chosen = {"unit/test_a.py::test_b": ['a "name"', "back\\slash", "two\nlines"], "unit/test_a.py::test_c": []}
    reach.write(chosen)
    read = tomllib.loads((tmp_path / "quick.toml").read_text(encoding="utf-8"))
    assert {test: sorted(cases) for test, cases in read.items()} == {
        test: sorted(cases) for test, cases in chosen.items()
    }


def test_what_is_quick_is_there() -> None:
    """Cases that are gone are noticed when they are collected."""
    for test in CHOSEN:
        path, _, name = test.partition("::")
        assert f"def {name.rpartition('::')[2]}(" in (ROOT / "tests" / path).read_text(encoding="utf-8"), test
