"""No setting that a session can change moves an integer of a call: under a condition, by text, of units, in long rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from seam import Seen, Watch, watching
from session_settings import Setting, accepted, enumerate_settings
from tables import typed

import dpsql
from support import BEFORE_2_0
from support.cases import cases

FOUND = enumerate_settings()
# Settings that `session_settings` leaves out because they show or limit something; no integer may hang on them either.
SHOWN = (
    "errors_as_json",
    "python_enable_replacements",
    "max_expression_depth",
    "enable_profiling",
    "warnings_as_errors",
)
_SHOWN_VALUES = {
    "max_expression_depth": "900",
    "python_enable_replacements": "false",
    "enable_profiling": "'no_output'",
}
SETTINGS = (
    *FOUND.settings,
    *accepted(Setting(name, (f"SET {name} = {_SHOWN_VALUES.get(name, 'true')}",)) for name in SHOWN),
)
CALLS = (
    "dp_avg('wide', target := 'z', lower := -2, upper := 2, \"by\" := 't', keys := ['a', 'B'], other := true, epsilon := 1, "
    "condition := 'upper(name) <> ''A'' AND (day >= ''2019-05-01'' OR k / 3 > 1 OR s < 0.5)')",
    "dp_count('wide', \"by\" := 'name', keys := 'private', privacy_unit := 'unit', max_rows_per_unit := 2, epsilon := 1, "
    "delta := 1e-6)",
    "dp_score_filter('long', features := 'word', row_id := 'doc', names := ['word', 'Word'], target := 'y', epsilon := 1, "
    "delta := 1e-6, threshold := 5, max_features_per_row := 9)",
    "dp_linear_regression('wide', features := ['a', 'b'], target := 'z', epsilon := 1, delta := 1e-6)",
)
# Settings under which calls are refused before they read a row, with the code; pragmas under which DuckDB 1.5 runs
# every statement several times.
REFUSED = {"arrow_lossless_conversion": "DPSQL-S008"}
REPEATED = ("enable_verification",)
# A debug mode in which windows of DuckDB 1.5 leave private keys without any row: nothing is released but noise.
EMPTIED = {"debug_window_mode": "pass 1: 0 integers"} if BEFORE_2_0 else {}
# One of so many settings is looked at in the fast tests.
_SHARE = 40
GROUPS = [pytest.param(SETTINGS[place::_SHARE], id=str(place)) for place in range(_SHARE)]


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    with watching() as opened:
        yield opened


def _asked(watch: Watch, setting: Setting | None) -> list[Seen]:
    with dpsql.connect() as connection:
        for name in ("wide", "long"):
            connection.register("given", typed(name, "plain", "as made"))
            connection.execute(f"CREATE TABLE {name} AS FROM given")
        for statement in () if setting is None else setting.statements:
            connection.execute(statement)
        return [watch.ask(connection, f"SELECT * FROM {sql}", number) for number, sql in enumerate(CALLS)]


@pytest.fixture(scope="module")
def expected(watch: Watch) -> list[Seen]:
    found = _asked(watch, None)
    assert [one.error for one in found] == [None] * len(CALLS)
    return found


def _differences(watch: Watch, expected: list[Seen], settings: tuple[Setting, ...]) -> list[Any]:
    wrong = []
    for setting in settings:
        for number, (seen, plain) in enumerate(zip(_asked(watch, setting), expected, strict=True)):
            if seen.error is not None and seen.error == REFUSED.get(setting.name):
                continue
            if setting.name in REPEATED:
                seen.passes = seen.passes[: len(plain.passes)]
            differs = seen.differs(plain)
            if differs and not differs.startswith(EMPTIED.get(setting.name, differs + "!")):
                wrong.append((str(setting), number, differs))
    return wrong


def test_every_setting_is_known() -> None:
    """A new version's setting without a value to try is to be listed, in tests/conformance/session_settings.py."""
    assert FOUND.unknown == ()


@pytest.mark.long
def test_a_sample_of_settings_moves_no_integer(watch: Watch, expected: list[Seen]) -> None:
    assert _differences(watch, expected, SETTINGS[:: 2 * _SHARE]) == []


@pytest.mark.long
@cases("settings", GROUPS)
def test_no_setting_moves_an_integer(watch: Watch, expected: list[Seen], settings: tuple[Setting, ...]) -> None:
    assert _differences(watch, expected, settings) == []


def test_a_setting_that_is_believed_would_be_noticed(
    watch: Watch, expected: list[Seen], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: keys that are compared as the session's collation does."""
    from dpsql.engines.duckdb.steps import grouped, rows

    def spelled(column: str, zero: str, *, exact: Any = rows.key) -> tuple[str, str]:
        number, data = exact(column, zero)
        return number, data.replace(" COLLATE C", "")

    for steps in (rows, grouped):
        monkeypatch.setattr(steps, "key", partial(spelled))
    assert _differences(watch, expected, (Setting("default_collation", ("SET default_collation = 'nocase'",)),)) != []
