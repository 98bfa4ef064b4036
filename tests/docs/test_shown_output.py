"""The comparison of outputs finds what is stale, and lets noise differ."""

from __future__ import annotations

import pytest
from shown_output import differences

from support.cases import cases

TABLE = """
┌──────┬────────┬───────────┬─────────┐
│ ward │ value  │ std_error │ verdict │
├──────┼────────┼───────────┼─────────┤
│ A    │ 1331.0 │       2.8 │ clear   │
│ B    │   12.0 │       2.8 │ unclear │
└──────┴────────┴───────────┴─────────┘
"""
TEXT = "Release 2 of dp_count: pure 0.5-DP\n  A  count  1331  2.8  clear\nhead 748b52e8fcd1caef7eed10a8d7084bac"


@pytest.mark.parametrize(
    "change",
    [
        ("1331.0", "1340.0"),
        ("1331.0", " -7.5 "),
        ("│ unclear", "│ clear  "),
        ("│ ward │", "│ ward      │"),
    ],
)
def test_noise_may_differ(change: tuple[str, str]) -> None:
    assert differences(TABLE, TABLE.replace(*change)) == []


@cases(
    "change",
    [
        ("ward", "unit"),
        ("│ A ", "│ D "),
        ("      2.8", "2.7991777"),
        ("│ clear  ", "│ undetermined"),
        ("│ B    │   12.0 │       2.8 │ unclear │\n", ""),
        ("1331.0", "NULL"),
        (" │ std_error", " │ confidence │ std_error"),
    ],
)
def test_what_is_stale_is_found(change: tuple[str, str]) -> None:
    assert change[0] in TABLE
    assert differences(TABLE.replace(*change), TABLE)


def test_numbers_of_any_name_may_differ_where_all_are_noisy() -> None:
    answer = TABLE.replace("value ", "visits")
    assert differences(answer, answer.replace("1331.0", "1340.0")) != []
    assert differences(answer, answer.replace("1331.0", "1340.0"), noisy=True) == []
    for stale in (("│ A ", "│ D "), ("1331.0", "  NULL"), ("visits", "people")):
        assert differences(answer.replace(*stale), answer, noisy=True)


def test_texts_are_compared_word_by_word() -> None:
    assert differences(TEXT, TEXT.replace("1331", "1298").replace("748b", "1c3e")) == []
    assert differences("replay of 2026-11-23T02:00:01.482Z.", "replay of 2027-01-01T00:10:59.1Z.") == []
    for stale in ("pure ", "  A  count", "  clear"):
        assert differences(TEXT.replace(stale, "  B  "), TEXT)
    assert differences(TEXT + "\none more line", TEXT)
    assert differences("Release 2 of dp_count: pure 0.5-DP\n…", TEXT) == []
