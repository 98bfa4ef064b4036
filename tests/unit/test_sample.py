"""The sample that the gate runs leaves no file out and no test that guards privacy; another commit looks at others."""

from __future__ import annotations

import re
import subprocess
import sys
from math import ceil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = "tests/unit/test_noise_race.py"
GUARDING = "tests/property/test_sensitivity_roc.py"
LONG = "tests/statistical/test_verdicts.py"


def collected(*options: str, file: str = FILE) -> dict[str, list[str]]:
    """Return the chosen parameters by test."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "long or not long", *options, file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = {}
    for test, parameters in re.findall(r"::(\w+)(\[.*\])?$", done.stdout, re.MULTILINE):
        found.setdefault(test, []).append(parameters)
    return found


@pytest.mark.long
def test_a_sample_has_a_share_of_parameters_and_of_the_tests_without_any() -> None:
    whole, some, same, others = (
        collected(*options)
        for options in (
            (),
            ("--sample", "0.25", "--sample-key", "a"),
            ("--sample", "0.25", "--sample-key", "a"),
            ("--sample", "0.25", "--sample-key", "b"),
        )
    )
    plain = {test for test, all_ in whole.items() if all_ == [""]}
    assert {test: ceil(len(all_) / 4) for test, all_ in whole.items() if test not in plain} == {
        test: len(one) for test, one in some.items() if test not in plain
    }
    assert 0 < len(plain & {*some}) == ceil(len(plain) / 4) < len(plain)
    assert some == same
    assert some != others


@pytest.mark.long
def test_a_sample_has_whatever_guards_privacy_and_is_not_long() -> None:
    assert collected(file=GUARDING) == collected("--sample", "0.25", file=GUARDING)


@pytest.mark.long
def test_a_sample_has_every_long_test_that_guards_privacy() -> None:
    whole, some = collected(file=LONG), collected("--sample", "0.25", file=LONG)
    assert {test: ceil(len(all_) / 4) for test, all_ in whole.items()} == {test: len(one) for test, one in some.items()}
