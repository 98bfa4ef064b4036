"""The manual is complete, its examples run, and its pages are what it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.functions.registry import FUNCTIONS
from dpsql.manual.__main__ import main, runs
from dpsql.manual.catalogue import MANUAL, arguments_of, summary_of
from dpsql.manual.demonstration import TABLES, fill
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


@pytest.fixture(scope="module")
def bare() -> Iterator[dpsql.Context]:
    """The tables that one command makes, none of which has a budget."""
    with dpsql.Context() as made:
        fill(made)
        yield made


@pytest.mark.parametrize("name", MANUAL)
def test_an_example_runs_for_who_has_just_made_the_tables(name: str, bare: dpsql.Context) -> None:
    """A stranger pastes the blocks of a page. What protects a table has a database of its own."""
    statements = (*MANUAL[name].example.before, MANUAL[name].example.sql)
    if not any("dp_protect(" in one or "dp_p" in one.partition("(")[0] for one in statements):
        for one in statements:
            bare.connection.execute(one).fetchall()
        return
    with dpsql.Context() as own:
        fill(own)
        for one in statements:
            own.connection.execute(one).fetchall()


def test_the_example_tables_are_the_same_everywhere_and_made_once(tmp_path: Path) -> None:
    digests = set()
    for number in range(2):
        path = tmp_path / f"{number}.duckdb"
        assert dpsql.example(path) == list(TABLES)
        with dpsql.Context(path) as ctx:
            assert ctx.dp_budget().num_rows == 0
            found = [ctx.sql(f"SELECT md5(string_agg(t::VARCHAR, ';')) AS d FROM {name} AS t") for name in TABLES]
            digests.add(tuple(one.to_pylist()[0]["d"] for one in found))
        with pytest.raises(dpsql.ParameterError, match=r"P091.*'patients'"):
            dpsql.example(path)
    assert len(digests) == 1


def test_an_example_stands_before_its_guarantee() -> None:
    for name in MANUAL:
        text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
        assert text.index("## Example") < text.index("## Guarantee") < text.index("**Sensitivity.**")


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
