"""Mistakes that people make: each message names the fix, in the words of the interface, and costs nothing."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from click.testing import CliRunner

import dpsql
import dpsql.polars
from dpsql.cli.commands import main
from dpsql.cli.runner import Runner
from dpsql.cli.shell import Shell
from dpsql.contract.names import MEANT, OTHER_NAMES, in_python, on_frames
from dpsql.contract.parameters import near_names
from dpsql.functions.registry import FUNCTIONS
from dpsql.manual.catalogue import MANUAL, nearest, search
from dpsql.manual.demonstration import BUDGETS, STATEMENTS
from support.cases import cases

MISTAKES: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text("utf-8"))
_SQL_SIGN = re.compile(r"\w :=|\b(FROM|SELECT) dp_")


# Tables that the mended statements declare: each by one of them.
_NAMES = "stays nurses doctors shifts meals scans tests drugs labs surgeries rooms"
_UNDECLARED = [
    *(f"CREATE TABLE {name} AS SELECT i AS id FROM range(9) AS r(i)" for name in _NAMES.split()),
    *(f"CREATE TABLE {name} AS SELECT 1 AS bed" for name in ("beds", "wardrobes")),
]


@dataclass(frozen=True)
class Interfaces:
    """One database, as the shell and Python see it."""

    runner: Runner
    names: dict[str, Any]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interfaces]:
    path = tmp_path_factory.mktemp("mistakes") / "patients.duckdb"
    owner = dpsql.polars.use()
    with Runner(str(path)) as runner:
        for statement in (*STATEMENTS, *BUDGETS, "CREATE TABLE wards AS SELECT 'A' AS ward", *_UNDECLARED):
            runner.execute(statement)
        frame = pl.DataFrame(runner.context.sql("FROM patients"))
        mine = frame.dp.of("patients")  # type: ignore[attr-defined]
        mine.dp.protect(epsilon=100)
        with dpsql.Context(strict=True) as strict:
            names = {"ctx": runner.context, "frame": frame, "rows": frame, "mine": mine, "strict": strict, "pl": pl}
            yield Interfaces(runner, names)
    owner.close()


def _spent(there: Interfaces) -> list[Any]:
    contexts = there.runner.context, dpsql.frames._context()
    return [context.sql("SELECT dataset, releases, epsilon_spent FROM dp_budget()").to_pylist() for context in contexts]


_GRADES = ("grade_1", "plain")


def test_there_are_enough_mistakes() -> None:
    assert sum(len(kind) for name, kind in MISTAKES.items() if name not in _GRADES) >= 100
    fixed = len(MISTAKES["fixed"]) + len(MISTAKES["fixed_calls"])
    assert fixed >= 80
    assert MISTAKES["plain"].keys() <= MISTAKES["fixed"].keys()
    assert len(MISTAKES["grade_1"]) <= 3
    assert all(MISTAKES["grade_1"].values())


@pytest.mark.odds("0: looks at messages and charges")
@cases("statement", MISTAKES["sql"], quick=4)
def test_a_statement(there: Interfaces, capsys: pytest.CaptureFixture[str], statement: str) -> None:
    """In the shell, and in Python."""
    before = _spent(there)
    assert not Shell(there.runner).run_text(statement)
    said = " ".join(capsys.readouterr().err.split())
    with pytest.raises((duckdb.Error, dpsql.errors.DpsqlError)) as caught:
        there.runner.context.sql(statement)
    for word in MISTAKES["sql"][statement]:
        assert word in said
        assert word in str(caught.value)
    assert _spent(there) == before


@cases("call", [*MISTAKES["python"], *MISTAKES["frames"]], quick=7)
def test_a_call(there: Interfaces, call: str) -> None:
    before = _spent(there)
    with pytest.raises((AttributeError, dpsql.errors.DpsqlError)) as caught:
        eval(call, dict(there.names))
    for word in {**MISTAKES["python"], **MISTAKES["frames"]}[call]:
        assert word in str(caught.value)
    assert not _SQL_SIGN.search(str(caught.value))
    assert _spent(there) == before


@pytest.mark.odds("0: looks at messages and charges")
@cases("statement", MISTAKES["fixed"], quick=8)
def test_a_statement_and_its_remedy(there: Interfaces, statement: str) -> None:
    """The message has the words of the remedy, in the shell and, where DuckDB lets it, on a plain connection."""
    words, *line = MISTAKES["fixed"][statement]
    remedy, before, plain = (line or [words])[0], _spent(there), there.runner.connection
    with pytest.raises((duckdb.Error, dpsql.errors.DpsqlError)) as caught:
        there.runner.context.sql(statement)
    assert words in " ".join(str(caught.value).split())
    with pytest.raises(duckdb.Error) as bare:
        plain.execute(statement)
    assert (words in " ".join(str(bare.value).split())) == (statement not in MISTAKES["plain"])
    assert _spent(there) == before
    assert words in remedy
    try:
        plain.execute(remedy).fetchall()
    finally:
        plain.execute("DROP VIEW IF EXISTS chosen")


# Statements around a call: DuckDB binds, explains, prepares, counts or drops its rows.
_AROUND = (
    *("FROM {}", "SELECT count(*) FROM {}", "SELECT 1 FROM {} LIMIT 0", "DESCRIBE FROM {}", "EXPLAIN FROM {}"),
    *("PREPARE p AS FROM {}", "CREATE TEMP TABLE taken AS FROM {}", "CREATE TEMP VIEW taken AS FROM {}"),
    *("SELECT 1 UNION ALL SELECT 2 FROM {}", "SELECT 1 WHERE EXISTS (FROM {})", "WITH w AS (FROM {}) SELECT 1 FROM w"),
)


@pytest.mark.odds("0: looks at messages and charges")
@pytest.mark.parametrize(
    "call",
    [
        "dp_count('patients')",
        "dp_count('patient', epsilon := 1)",
        "dp_count('patients', condition := 'agee > 40', epsilon := 1)",
        "dp_query('SELECT max(age) FROM patients', epsilon := 1)",
        "dp_query('SELECT avg(agee) FROM patients', epsilon := 1)",
        "dp_query('FROM', epsilon := 1)",
        "dp_mean('patients', epsilon := 1)",
        "dp_protect('patients', epsilon := 2000)",
        "exact_xty('patient')",
    ],
)
def test_a_refusal_at_binding_is_raised_without_duckdb_s_words(there: Interfaces, call: str) -> None:
    """A function returns the refusal as its text, and `dpsql_said` raises it: in no statement does a call go on."""
    before = _spent(there)
    for around in _AROUND:
        with pytest.raises(duckdb.Error) as caught:
            there.runner.connection.execute(around.format(call)).fetchall()
        assert str(caught.value).startswith("Invalid Input Error: [DPSQL-"), around
        found = dpsql.errors.original(caught.value)
        assert found is not None
        assert "\n\n" not in found.message
    assert _spent(there) == before


def test_another_name_shows_no_value_of_a_row(there: Interfaces) -> None:
    """An argument may be a column: DuckDB refuses it, or the message leaves it out."""
    tables = "CREATE OR REPLACE TEMP TABLE secret AS SELECT 'HUSH-' || i AS word, 8675309 + i AS number FROM range(3) AS r(i)"
    there.runner.connection.execute(tables)
    for name in OTHER_NAMES:
        for call in ("word, epsilon := 1", "word, epsilon := number", "number, lower := number, dataset := word"):
            with pytest.raises(duckdb.Error) as caught:
                there.runner.connection.execute(f"SELECT {name}({call}) FROM secret").fetchall()
            assert "HUSH" not in str(caught.value)
            assert "86753" not in str(caught.value)
        with pytest.raises(duckdb.Error) as caught:
            there.runner.connection.execute(f"FROM secret, {name}('patients', target := secret.word)").fetchall()
        assert "HUSH" not in str(caught.value)


def test_a_model_named_by_a_column_shows_no_cell(there: Interfaces) -> None:
    connection = there.runner.connection
    connection.execute("CREATE OR REPLACE TEMP TABLE secret AS SELECT 'HUSH' AS word, 8675309 AS number")
    for model in ("word", "number", "number::DOUBLE"):
        for call in (f"dp_predict({model}, [number])", f"dp_predict_class({model}, secret)"):
            with pytest.raises(duckdb.Error, match="DPSQL-P") as caught:
                connection.execute(f"SELECT {call} FROM secret").fetchall()
            assert "HUSH" not in str(caught.value)
            assert "86753" not in str(caught.value)


def test_a_taken_name_tells_the_arguments_that_differ(there: Interfaces) -> None:
    connection, call = (
        there.runner.connection,
        "FROM dp_sum('patients', target := 'days', epsilon := 1, release := 'taken')",
    )
    question = "FROM dp_query('SELECT count(*) FROM patients', epsilon := 1, release := 'asked')"
    for statement in (call, question):
        connection.execute(statement).fetchall()
    before = _spent(there)
    for statement, words in (
        (call.replace("1,", "2,"), "it differs in epsilon,"),
        (call.replace("days", "age"), "it differs in target,"),
        (call.replace("1,", "2, condition := 'age > 4',"), "it differs in epsilon and condition,"),
        (question.replace("1,", "2,"), "it differs in epsilon,"),
        (question.replace("count(*)", "avg(age)"), "it differs in sql, keys or bounds,"),
    ):
        with pytest.raises(duckdb.Error, match="DPSQL-P014") as caught:
            connection.execute(statement).fetchall()
        assert words in str(caught.value)
        assert "age" not in str(caught.value).partition("LINE")[0]
    assert _spent(there) == before


@cases(
    ("word", "names", "meant"),
    [
        ("patient", ["visits", "patients", "patient_id"], ["patient_id", "patients"]),
        ("public.patients", ["visits", "patients"], ["patients"]),
        ("FORM", ["FROM", "SELECT"], ["FROM"]),
        ("cont", ["cot", "count", "round"], ["count", "cot"]),
        ("agee", ["page", "age", "ages"], ["ages", "age"]),
        ("max_rows", ["max_groups_per_unit", "max_rows_per_unit"], ["max_rows_per_unit"]),
        ("age * 2", ["age"], []),
        ("ward", ["word"], ["word"]),
        ("x", ["y", "xy"], ["xy", "y"]),
        ("a" * 65, ["a" * 64], []),
        ("", ["a"], []),
    ],
)
def test_near_names_are_few_letters_away(word: str, names: list[str], meant: list[str]) -> None:
    assert near_names(word, names) == meant


@cases("call", MISTAKES["fixed_calls"], quick=3)
def test_a_call_and_its_remedy(there: Interfaces, call: str) -> None:
    words, remedy = MISTAKES["fixed_calls"][call]
    with pytest.raises((AttributeError, dpsql.errors.DpsqlError)) as caught:
        eval(call, dict(there.names))
    assert words in str(caught.value)
    assert words in remedy
    assert eval(remedy, dict(there.names)) is not None


@cases("line", MISTAKES["commands"], quick=1)
def test_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.chdir(tmp_path)
    dpsql.connect("patients.duckdb").close()
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code
    for word in MISTAKES["commands"][line]:
        assert word in done.output


@pytest.mark.parametrize("line", MISTAKES["shell"])
def test_a_line_of_the_shell(there: Interfaces, capsys: pytest.CaptureFixture[str], line: str) -> None:
    assert not Shell(there.runner).run_dot(line)
    said = capsys.readouterr().err
    assert all(word in said for word in MISTAKES["shell"][line])


@pytest.mark.parametrize("call", MISTAKES["grade_1"])
def test_what_is_still_of_grade_1_fails(there: Interfaces, call: str) -> None:
    with pytest.raises((TypeError, dpsql.errors.DpsqlError)):
        eval(call, dict(there.names))


@cases(
    ("word", "function"),
    [
        ("median", "dp_quantile"),
        ("mean", "dp_avg"),
        ("average", "dp_avg"),
        ("averages", "dp_avg"),
        ("percentile", "dp_quantile"),
        ("regression", "dp_linear_regression"),
        ("classification", "dp_logistic_regression"),
        ("significance", "dp_linear_regression"),
        ("top", "dp_sis"),
        ("correlation", "dp_correlation"),
        ("share", "dp_avg"),
        ("percentage", "dp_avg"),
        ("histogram", "dp_histogram"),
        ("unique", "dp_count"),
        ("forecast", "dp_linear_regression"),
        ("medain", "dp_quantile"),
    ],
)
def test_a_word_leads_to_its_function(there: Interfaces, word: str, function: str) -> None:
    assert nearest(word)[0] == function
    if word != "medain":
        assert function in search(word)
        assert "dp_roc" not in search(word)
        helped = there.runner.context.sql(f"FROM dp_help('{word}')").column("help").to_pylist()
        assert any(function in line for line in helped)


def test_synonyms_are_of_functions_and_no_names_themselves() -> None:
    assert {name for name, known in FUNCTIONS.items() if known.spends} <= {
        name for name, page in MANUAL.items() if page.synonyms
    }
    for words in (page.synonyms for page in MANUAL.values()):
        assert len(set(words)) == len(words)
        assert all(word == word.lower() and f"dp_{word}" not in words for word in words)


def test_words_for_arguments_lead_to_arguments() -> None:
    known = {name for function in FUNCTIONS.values() for name in function.plan.arguments} | {"source"}
    assert {name for names in MEANT.values() for name in names} <= known


@cases(
    ("sql", "python", "frame"),
    [
        ("Give epsilon := 1.0.", "Give epsilon=1.0.", "Give epsilon=1.0."),
        ("Give lower := and upper := from x.", "Give lower=... and upper=... from x.", "Give lower=... and upper=... from x."),
        ("FROM dp_count('t', a := true)", "ctx.dp_count('t', a=True)", "frame.dp.count(a=True)"),
        ("SELECT * FROM dp_models() lists", "ctx.dp_models() lists", "ctx.dp_models() lists"),
        ("got 'a := b', the owner's", "got 'a := b', the owner's", "got 'a := b', the owner's"),
        ("SELECT dp_protect('t', epsilon := 1)", "ctx.dp_protect('t', epsilon=1)", "frame.dp.of('t').dp.protect(epsilon=1)"),
        ("dataset := 'patients'", "dataset='patients'", "frame.dp.of('patients')"),
        ("features := release('r')", "features=ctx.release('r')", "features=ctx.release('r')"),
    ],
)  # fmt: skip
def test_a_message_is_spelled_for_its_interface(sql: str, python: str, frame: str) -> None:
    assert in_python(sql) == python
    assert in_python(python) == python
    assert on_frames(sql) == frame
    assert on_frames(python) == frame
