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
LONG_BUT_ONE = "tests/lineage/test_ties.py"


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
    assert collected(file=GUARDING) == collected("--sample", "0.25", file=GUARDING)


@pytest.mark.long
def test_one_parameter_of_a_test_that_is_long_with_the_others_is_quick() -> None:
    test = "test_random_databases_change_in_one_persons_rows"
    whole, *quick = (
        collected(*options, file=LONG_BUT_ONE)[test]
        for options in ((), *(("-m", "not long", "--sample-key", key) for key in "abcdefgh"))
    )
    assert len(whole) > 1
    assert all(len(chosen) == 1 and chosen[0] in whole for chosen in quick)
    assert len({chosen for (chosen,) in quick}) > 1
