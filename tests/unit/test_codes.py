"""The registry of error codes: complete, without a code that nobody raises, and the page that is made of it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from dpsql import errors
from dpsql.cli.commands import main
from dpsql.cli.messages import clean_message
from dpsql.contract import parameters
from dpsql.contract.codes import CODES, KINDS, page
from support.cases import cases

_root = Path(__file__).resolve().parents[2]
_code = re.compile(r"[PSBLIG]\d{3}")
_raised_by = {
    "ParameterError": "P",
    "SourceError": "S",
    "BudgetError": "B",
    "LedgerError": "L",
    "InternalError": "I",
    "GatewayError": "G",
}
# Errors whose code comes from a table of `dpsql/ledger/store.py`, as (code, message).
_from_tables = 1


def _files() -> list[Path]:
    return [
        path
        for folder in ("dpsql", "udfs")
        for path in sorted((_root / folder).rglob("*.py"))
        if not {"testing"} & set(path.parts)
    ]


def _raises() -> tuple[dict[str, list[str]], list[str]]:
    """Return where each code is raised, and the raises whose code is no literal."""
    found: dict[str, list[str]] = defaultdict(list)
    other = []
    for path in _files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Tuple) and len(node.elts) == 2:
                first = node.elts[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str) and _code.fullmatch(first.value):
                    found[first.value].append(f"{path.name}:{node.lineno}")
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _raised_by):
                continue
            place = f"{path.name}:{node.lineno}"
            first = node.args[0]
            if isinstance(first, ast.Constant):
                assert str(first.value)[0] == _raised_by[node.func.id], place
                found[first.value].append(place)
            else:
                other.append(place)
    return found, other


@pytest.mark.long
def test_every_raised_code_is_registered():
    found, other = _raises()
    assert sorted(set(found) - set(CODES)) == [], {code: found[code] for code in set(found) - set(CODES)}
    assert len(other) == _from_tables, other


@pytest.mark.long
def test_every_registered_code_is_raised():
    assert sorted(set(CODES) - set(_raises()[0])) == []


def test_every_code_in_the_package_is_registered():
    written = {
        code
        for path in [*_files(), _root / "README.md", *(_root / "docs").rglob("*.md"), *(_root / "sql").rglob("*.sql")]
        for code in re.findall(r"(?<!noqa: )\b[PSBLIG]\d{3}\b", path.read_text(encoding="utf-8"))
    }
    assert written - set(CODES) == set()


def test_entries_are_ordered_distinct_and_whole_sentences():
    assert list(CODES) == sorted(CODES, key=lambda code: ("PSBLIG".index(code[0]), code))
    assert (
        {code[0] for code in CODES} == set(KINDS) == {*errors._kinds, "G"}
    )  # a room that `import dpsql` leaves alone has the last
    for entry in CODES.values():
        assert _code.fullmatch(entry.code)
        for sentence in (entry.when, entry.what_to_do):
            assert sentence.endswith(".")
            assert "|" not in sentence
            assert sentence[0].isupper() or sentence[0] == "`"
    whens = [entry.when for entry in CODES.values()]
    assert len(set(whens)) == len(whens)


def test_the_page_is_what_the_registry_says():
    assert (_root / "docs" / "errors.md").read_text(encoding="utf-8") == page()


@cases(
    ("given", "shown"),
    [
        (1e9, "1000000000"),
        (1e300, "1e+300"),
        (float("nan"), "nan"),
        (parameters._as_fraction(1e9), "1000000000"),
        (parameters._as_fraction(0.1), "0.1"),
        (parameters._as_fraction(1e300), "1e+300"),
        (parameters._as_fraction(1e-7), "1e-07"),
        (None, "NULL"),
        (True, "true"),
        ("a", "'a'"),
    ],
)
def test_numbers_are_shown_as_given(given, shown):
    assert parameters.show(given) == shown


def test_the_text_that_duckdb_shows_starts_on_a_line_of_its_own():
    error = errors.BudgetError("B001", "dataset 't' needs epsilon 1, 0 remains. Lower it.")
    with duckdb.connect() as connection:

        def refuse(_: int) -> int:
            raise error.in_duckdb()

        connection.create_function("refuse", refuse, ["BIGINT"], "BIGINT", side_effects=True)
        with pytest.raises(duckdb.InvalidInputException) as caught:
            connection.execute("SELECT refuse(1)").fetchall()
    assert str(caught.value).splitlines()[1] == str(error)
    ours = errors.original(caught.value)
    assert type(ours) is errors.BudgetError
    assert (ours.code, str(ours)) == (error.code, str(error))
    assert clean_message(caught.value) == str(error)


@pytest.mark.parametrize("written", ["P001", "p001", "DPSQL-P001", "[DPSQL-P001]"])
def test_explain(written):
    shown = CliRunner().invoke(main, ["explain", written])
    assert shown.exit_code == 0
    assert shown.output == f"{CODES['P001']}\n"


def test_explain_of_no_code():
    assert CliRunner().invoke(main, ["explain", "P999"]).exit_code == 2
