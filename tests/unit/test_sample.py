"""The sample of parameters that the gate runs leaves no test out, and another commit looks at other parameters."""

from __future__ import annotations

import re
import subprocess
import sys
from math import ceil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = "tests/unit/test_noise_race.py"


def collected(*options: str) -> dict[str, list[str]]:
    """Return the chosen parameters by test."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "long or not long", *options, FILE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = {}
    for test, parameters in re.findall(r"::(\w+)(\[.*\])?$", done.stdout, re.MULTILINE):
        found.setdefault(test, []).append(parameters)
    return found


@pytest.mark.long
def test_every_test_runs_with_a_share_of_its_parameters() -> None:
    whole, some, same, others = (
        collected(*options)
        for options in (
            (),
            ("--sample", "0.25", "--sample-key", "a"),
            ("--sample", "0.25", "--sample-key", "a"),
            ("--sample", "0.25", "--sample-key", "b"),
        )
    )
    assert {test: ceil(len(all_) / 4) for test, all_ in whole.items()} == {test: len(one) for test, one in some.items()}
    assert some == same
    assert some != others
