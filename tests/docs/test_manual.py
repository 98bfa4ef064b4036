"""The manual is complete, its examples run, and its tables are what the code says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.functions.registry import FUNCTIONS
from dpsql.manual.__main__ import FOLDER, Run, main, runs
from dpsql.manual.catalogue import MANUAL, Page, by_topic
from dpsql.manual.demonstration import TABLES, fill
from support.cases import cases


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with runs() as made:
        yield made


FACTS = ["Neighbours", "Sensitivity", "Not protected", "Missing values"]


@cases("name", MANUAL)
def test_every_part_says_something(name: str) -> None:
    page = MANUAL[name]
    assert page.name == name
    assert name in by_topic()[page.topic]
    assert list(page.facts) == FACTS
    # Neither a sentence that lost its end, nor a mark of Markdown.
    for sentence in (page.summary, page.guarantee, *page.facts.values()):
        assert sentence.endswith(".")
        assert "<!--" not in sentence
    assert page.calls
    assert all(page.columns.values())
    assert all(meaning for _, meaning in page.arguments.values())


def test_a_page_is_read_as_it_is_written() -> None:
    page = MANUAL["dp_auc"]
    assert page.calls[-1] == "FROM dp_auc(release := 'roc', dataset := NULL)"
    assert page.arguments["source"] == ("required", "A table, view, file or registered frame.")
    assert page.arguments["cells"][0] == "none"
    assert page.facts["Not protected"].endswith(" use rows that it has not seen.")
    assert page.synonyms[0] == "auroc"
    # Lines may be broken anywhere in a paragraph.
    assert Page(page.markdown.replace(" reads a released", "\nreads a released")).guarantee == page.guarantee
    assert Page(page.markdown.replace(" moves both by", "\nmoves both by")).facts == page.facts


@cases("name", MANUAL, quick=2)
def test_an_example_runs_and_returns_rows(name: str, run: Run) -> None:
    shown = run(MANUAL[name])
    assert len(shown.strip().split("\n")) > 2, shown


@pytest.fixture(scope="module")
def bare() -> Iterator[dpsql.Context]:
    """The tables that one command makes, none of which has a budget."""
    with dpsql.Context() as made:
        fill(made)
        yield made


@cases("name", MANUAL, quick=2)
def test_an_example_runs_for_who_has_just_made_the_tables(name: str, bare: dpsql.Context) -> None:
    """A stranger pastes the blocks of a page. What protects a table has a database of its own."""
    statements = MANUAL[name].statements
    if not any("dp_protect(" in one or "dp_p" in one.partition("(")[0] for one in statements):
        for one in statements:
            bare.connection.execute(one).fetchall()
        return
    with dpsql.Context() as own:
        fill(own)
        for one in statements:
            own.connection.execute(one).fetchall()


@pytest.mark.long
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


def test_every_private_function_has_a_page_that_the_code_fills_in() -> None:
    assert set(FUNCTIONS) <= set(MANUAL)
    assert {path.stem for path in FOLDER.glob("*.md")} == {*MANUAL, "index"}
    for name in FUNCTIONS:
        text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
        for block in ("call", "python", "arguments"):
            assert f"<!-- {block} -->" in text, (name, block)


@cases("name", [name for name, known in FUNCTIONS.items() if known.spends], quick=2)
def test_an_example_is_the_same_call_in_python(name: str, bare: dpsql.Context) -> None:
    """What stands on the page in three languages is one plan."""
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    context_call, frame_call = re.findall(r"^```python\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)
    bare.connection.execute(MANUAL[name].example).fetchall()
    eval(context_call, {"ctx": bare})
    ledger = bare.connection.execute("SELECT event, guarantee FROM dp_ledger() ORDER BY sequence DESC LIMIT 2")
    in_python, in_sql = ledger.fetchall()
    # A release that is read again charges no event; that it was found says that both are one call.
    assert in_python[1] == in_sql[1]
    assert in_python[0] in (None, in_sql[0])
    source = context_call.split('"')[1]
    assert frame_call.startswith(f"{source}.dp.{name.removeprefix('dp_')}(")
    first, second = (ast.parse(call, mode="eval").body for call in (context_call, frame_call))
    assert isinstance(first, ast.Call)
    assert isinstance(second, ast.Call)
    assert list(map(ast.dump, first.keywords)) == list(map(ast.dump, second.keywords))


def test_the_columns_are_those_of_the_result() -> None:
    for name, known in FUNCTIONS.items():
        listed = {"keys" if column.startswith("the columns of") else column for column in MANUAL[name].columns}
        assert listed == set(known.shape.columns), name


def test_pages_are_what_the_code_says() -> None:
    assert main(["--check"]) == 0


def test_macros_that_a_caller_makes_do_not_change_help() -> None:
    with dpsql.connect() as con:
        con.execute("CREATE TABLE dp_sis (x INTEGER)")
        assert con.execute("SELECT count(*) FROM dp_functions()").fetchall() == [(len(MANUAL),)]
        with pytest.raises(duckdb.Error):
            con.execute("FROM dp_help(1, 2)")
