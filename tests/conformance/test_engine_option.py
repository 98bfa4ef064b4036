"""The command that compares an engine compares it, and fails where it would compare nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent


def collected(*arguments: str) -> tuple[int, str]:
    """Return the exit code of a collection, and what it prints."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *arguments]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_naming_an_engine_compares_a_sample() -> None:
    code, found = collected("tests/conformance", "--engine", "polars")
    assert code == 0
    assert re.findall(r"test_a_sample_of_calls\[.*", found) == ["test_a_sample_of_calls[cases 1-polars]"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tests/conformance", "--engine", "polars,datafusion", "-k", "faults"), "compares polars, datafusion"),
        (("tests/unit/test_rooms.py", "--engine", "sail"), "compares sail"),
        (("tests/conformance", "--engine", "polar"), "no engine polar"),
    ],
)
def test_comparing_nothing_fails(arguments: tuple[str, ...], words: str) -> None:
    code, found = collected(*arguments)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert words in found
