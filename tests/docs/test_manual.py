"""The manual is complete, its examples run, and its pages are what it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import duckdb
import pytest

import dpsql
from dpsql.functions.registry import FUNCTIONS
from dpsql.manual.__main__ import main, runs
from dpsql.manual.catalogue import MANUAL, arguments_of, summary_of
from dpsql.manual.entry import TOPICS
from dpsql.manual.pages import FOLDER, Run


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with runs() as made:
        yield made


@pytest.mark.parametrize("name", MANUAL)
def test_every_field_says_something(name: str) -> None:
    entry = MANUAL[name]
    assert entry.topic in TOPICS
    assert summary_of(name).endswith(".")
    for one in fields(entry):
        value = getattr(entry, one.name)
        if one.name not in ("summary", "signature", "arguments"):
            assert value, one.name
        # A sentence that lost its end.
        assert not isinstance(value, str) or value == value.strip(), one.name
        if one.name in ("guarantee", "neighbours", "sensitivity", "unprotected", "missing"):
            assert value.endswith("."), value
    for argument in arguments_of(name).values():
        assert argument.meaning


@pytest.mark.parametrize("name", MANUAL)
def test_an_example_runs_and_returns_rows(name: str, run: Run) -> None:
    shown = run(MANUAL[name].example)
    assert len(shown.strip().split("\n")) > 2, shown


def test_every_private_function_has_a_page_and_stands_in_python() -> None:
    assert set(FUNCTIONS) <= set(MANUAL)
    for name in MANUAL:
        assert (FOLDER / f"{name}.md").exists(), f"run python -m dpsql.manual: {name}"
    for name, known in FUNCTIONS.items():
        if known.spends:
            assert f"ctx.{name}(" in MANUAL[name].example.python
            assert f".dp.{name.removeprefix('dp_')}(" in MANUAL[name].example.frame


def test_the_columns_are_those_of_the_result() -> None:
    for name, known in FUNCTIONS.items():
        listed = {"keys" if column.startswith("the columns of") else column for column in MANUAL[name].columns}
        assert listed == set(known.shape.columns), name


def test_pages_are_what_the_manual_says() -> None:
    assert main(["--check"]) == 0


def test_macros_that_a_caller_makes_do_not_change_help() -> None:
    with dpsql.connect() as con:
        con.execute("CREATE TABLE dp_sis (x INTEGER)")
        assert con.execute("SELECT count(*) FROM dp_functions()").fetchall() == [(len(MANUAL),)]
        with pytest.raises(duckdb.Error):
            con.execute("FROM dp_help(1, 2)")
