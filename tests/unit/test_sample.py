"""The sample that the gate runs leaves no quick test out that guards privacy; another commit looks at others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = "tests/unit/test_noise_race.py"
GUARDING = "tests/property/test_sensitivity_roc.py"


def collected(*options: str, file: str = FILE) -> dict[str, list[str]]:
    """Return the chosen parameters by test."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "long or not long", *options, file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = {}
    for test, parameters in re.findall(r"::(\w+)(\[.*\])?$", done.stdout, re.MULTILINE):
        found.setdefault(test, []).append(parameters)
    return found


@pytest.mark.long
def test_a_sample_is_a_share_of_the_tests_that_the_key_chooses() -> None:
    whole, some, same, others = (
        collected(*options)
        for options in (
            (),
            ("--sample", "0.25", "--sample-key", "a"),
            ("--sample", "0.25", "--sample-key", "a"),
            ("--sample", "0.25", "--sample-key", "b"),
        )
    )
    count, chosen = (sum(map(len, found.values())) for found in (whole, some))
    assert abs(chosen - count / 4) < 5 * (count * 3 / 16) ** 0.5
    assert some == same
    assert some != others


@pytest.mark.long
def test_a_sample_has_whatever_guards_privacy_and_is_not_long() -> None:
    quick = ("-m", "not long and not slow")
    assert collected(*quick, file=GUARDING) == collected(*quick, "--sample", "0.25", file=GUARDING) != {}


@pytest.mark.long
def test_a_case_is_chosen_by_its_name() -> None:
    chosen = collected("--case", "7-gumbel")
    assert [*chosen] == ["test_same_order_as_high_precision_arithmetic"]
    assert chosen.keys() < collected().keys()
