"""The parts of the command line by themselves: splitting, messages, completion, one execution, interruption."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import duckdb
import pytest
from click.testing import CliRunner
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from dpsql.cli.commands import main
from dpsql.cli.completion import SqlCompleter
from dpsql.cli.demo import MEASUREMENTS, upper_bounds
from dpsql.cli.dot_commands import DOT_COMMANDS, is_blank, split, split_all
from dpsql.cli.messages import clean_message
from dpsql.cli.output import coloured, show
from dpsql.cli.prompted import KnownNames
from dpsql.cli.runner import Runner
from dpsql.cli.shell import Shell, is_complete
from dpsql.errors import DpsqlError
from dpsql.functions.registry import FUNCTIONS
from dpsql.manual.catalogue import MANUAL, by_topic, signature_of
from support.cases import cases


@pytest.fixture
def runner() -> Iterator[Runner]:
    with Runner() as opened:
        opened.execute('CREATE TABLE patients AS SELECT i AS age, i % 2 = 0 AS "re lapse" FROM range(9) AS r(i)')
        opened.execute("CREATE TEMP VIEW visits AS SELECT 1 AS day")
        yield opened


@cases(
    ("text", "statements", "rest"),
    [
        ("", [], ""),
        ("  -- only; a remark\n /* and ; another */ ", [], ""),
        ("SELECT 1", [], "SELECT 1"),
        ("SELECT 1;", ["SELECT 1"], ""),
        ("SELECT 1; -- done;", ["SELECT 1"], ""),
        (";;SELECT 1;;", ["SELECT 1"], ""),
        ("SELECT 'a;''b'; SELECT \"c;\" FROM t; x", ["SELECT 'a;''b'", 'SELECT "c;" FROM t'], " x"),
        ("SELECT $$a;b$$; SELECT $t$ ; $t$;", ["SELECT $$a;b$$", "SELECT $t$ ; $t$"], ""),
        ("SELECT e'a\\';b';", ["SELECT e'a\\';b'"], ""),
        ("SELECT 'é€😀;' ; SELECT 2;", ["SELECT 'é€😀;'", "SELECT 2"], ""),
        ("SELECT 1 /* ; */ + 2;", ["SELECT 1 /* ; */ + 2"], ""),
        ("SELECT 'open;", [], "SELECT 'open;"),
        ('SELECT "open;', [], 'SELECT "open;'),
        ("SELECT /* open;", [], "SELECT /* open;"),
        ("SELECT 1; 'open;", ["SELECT 1"], " 'open;"),
    ],
)
def test_split_cuts_where_duckdb_sees_a_semicolon(text: str, statements: list[str], rest: str) -> None:
    found, left = split(text)
    assert [statement.text for statement in found] == statements
    assert left == rest
    assert is_complete(text) == (rest == "")


def test_split_all_takes_the_last_statement_without_semicolon_and_knows_the_lines() -> None:
    text = "-- head\n\nSELECT 1;\n/* two\nlines */ SELECT\n2; SELECT 3"
    assert [(statement.text, statement.line) for statement in split_all(text)] == [
        ("SELECT 1", 3),
        ("SELECT\n2", 5),
        ("SELECT 3", 6),
    ]
    assert is_blank("\n -- x\n/* */")
    assert not is_blank("/* open")


def test_clean_message_keeps_the_coded_line_alone(runner: Runner) -> None:
    for arguments, code in (("epsilon := 0, lower := 0, upper := 5", "P001"), ("epsilon := 1, lower := 5", "P003")):
        with pytest.raises(duckdb.Error, match="Invalid Input Error: ") as caught:
            runner.connection.execute(f"FROM dp_sis('patients', target := 're lapse', k := 1, {arguments})")
        message = clean_message(caught.value)
        assert message.startswith(f"[DPSQL-{code}] ")
        assert "\n" not in message


def test_clean_message_drops_the_stack_that_duckdb_1_5_appends() -> None:
    wrapped = "Invalid Input Error: Python exception occurred while executing the UDF: "
    stack = "\n\nAt:\n  /home/someone/dpsql/contract/plan.py(51): positive_number\n  <stdin>(1): <module>\n"
    place = "\n\nLINE 1: FROM dp_sis(...\n             ^"
    coded = "[DPSQL-P001] epsilon must be > 0; got 0. Give one."
    for after in ("", stack, place, stack + place):
        assert clean_message(ValueError(f"{wrapped}ParameterError: {coded}{after}")) == coded
    assert clean_message(ValueError(f"{wrapped}KeyError: 'x'{stack}")) == "KeyError: 'x'"
    assert clean_message(ValueError("INTERNAL Error: broken\n\nStack Trace:\n\n/home/x.so(+0x1)\n")) == (
        "INTERNAL Error: broken"
    )
    assert clean_message(FileNotFoundError(2, "No such file or directory", "a.sql")) == (
        "a.sql: No such file or directory"
    )
    assert clean_message(ValueError()) == "ValueError"


def completions(runner: Runner, text: str) -> list[str]:
    completer = SqlCompleter(KnownNames(runner), DOT_COMMANDS)
    return [found.text for found in completer.get_completions(Document(text), CompleteEvent())]


@cases(
    ("text", "among", "never"),
    [
        ("SELECT * FROM dp_s", ["dp_sis("], ["SELECT"]),
        ("select dp_b", ["dp_budget("], []),
        ("FROM pat", ["patients"], ["PARTITION"]),
        ("FROM vi", ["visits"], []),
        ("SELECT ag", ["age"], []),
        ("SELECT re", ['"re lapse"'], []),
        ("sel", ["select"], ["SELECT"]),
        ("SEL", ["SELECT"], ["select"]),
        ("FROM dp_sis('pat", ["patients'"], []),
        ("FROM dp_sis('patients', tar", ["target := ", "target_levels := "], ["epsilon := "]),
        ("FROM dp_sis('patients', ", ["target := ", "epsilon := "], ["source := ", "x := ", "SELECT"]),
        ("FROM dp_sis('patients', k := 5, ", ["target := "], ["k := "]),
        ("SELECT dp_sis(x, y, ", ["k := "], ["x := ", "y := ", "privacy_unit := "]),
        ("FROM dp_sis('patients', target := '", ["age'", "re lapse'"], []),
        ("FROM dp_sis('patients', features := ['ag", ["age'"], []),
        ("FROM dp_sis('patients', mechanism := 'g", ["gumbel'"], ["one_shot'"]),
        ("FROM dp_sis('patients', neighbours := '", ["add_remove'", "replace'"], []),
        ("SELECT 1; FROM dp_sis('patients', lo", ["lower := "], []),
        ("SELECT 'FROM dp_", [], ["dp_sis("]),
        ("SELECT dp_prot", ["dp_protect("], []),
        (".bu", [".budget"], [".help"]),
        (".help dp_s", ["dp_sis"], []),
        (".mode ", ["table", "csv", "json"], []),
        (".schema pa", ["patients"], []),
    ],
    quick=1,
)
def test_completion(runner: Runner, text: str, among: list[str], never: list[str]) -> None:
    found = completions(runner, text)
    assert set(among) <= set(found)
    assert not set(never) & set(found)
    assert len(found) == len(set(found))


def test_completion_survives_an_aborted_transaction(runner: Runner) -> None:
    runner.execute("BEGIN")
    with pytest.raises(Exception, match="nope"):
        runner.execute("SELECT error('nope')")
    assert completions(runner, "FROM pat") == []
    runner.execute("ROLLBACK")
    assert completions(runner, "FROM pat") == ["patients"]


def test_completing_charges_nothing(runner: Runner) -> None:
    for text in ("FROM dp_sis('patients', ", "SELECT dp_protect('patients', ep"):
        completions(runner, text)
    assert runner.ledger.entries() == []


@cases(
    ("statement", "said"),
    [
        ("FROM dp_count('t', where := 'x > 1')", "dp_count has no argument where. Did you mean condition?"),
        ("FROM dp_count('t', epsilon := 1,\n distinct := 'x')", "Did you mean distinct_of?"),
        ("FROM dp_count('patients')", "epsilon is missing. Give epsilon := 1.0"),
        ("FROM dp_sis('patients', target := 'aged', k := 1, epsilon := 1, score := 'rank')", "Did you mean 'age'?"),
        ("FROM dp_count('patient', epsilon := 1)", "Did you mean 'patients'?"),
        ("SELECT dp_count('patients', epsilon := 1)", "FROM dp_count('...', ...)"),
    ],
    quick=1,
)
def test_a_refusal_says_what_was_meant(runner: Runner, statement: str, said: str) -> None:
    runner.execute("SELECT dp_protect('patients', epsilon := 3)")
    with pytest.raises((duckdb.Error, DpsqlError)) as refused:
        runner.execute(statement)
    assert said in clean_message(refused.value)


def test_every_dp_function_is_in_the_manual(runner: Runner) -> None:
    assert {function.name for function in KnownNames(runner).functions} <= set(MANUAL)


def help_of(runner: Runner, line: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert Shell(runner).run_dot(line)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80, [one for one in lines if len(one) > 80]
    return lines


@cases("function", MANUAL, quick=1)
def test_help_of_a_function(runner: Runner, function: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It fits 80 columns, and has the signature with its defaults, every argument, the guarantee and the example."""
    lines = help_of(runner, f".help {function}", capsys)
    whole = " ".join(" ".join(lines).split())
    page = MANUAL[function]
    for said in (page.summary, page.guarantee, *page.facts.values(), f"{function}("):
        assert " ".join(said.split()) in whole
    assert set(page.example.split("\n")) <= set(lines)
    for name in page.arguments:
        assert any(line.strip().startswith(name) for line in lines)
    for argument in signature_of(function).values():
        assert f"{argument.name} := " in whole


@cases(
    ("word", "found"),
    [("quantile", "dp_quantile"), ("roc", "dp_roc"), ("EVALUATE", "dp_confusion"), ("blocks", "dp_kendall")],
    quick=1,
)
def test_help_finds_what_has_a_word(runner: Runner, word: str, found: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = help_of(runner, f".help {word}", capsys)
    assert any(line.strip().startswith(found) for line in lines)
    assert not any(line.strip().startswith("dp_protect ") for line in lines)


def test_help_lists_all_by_topic_and_suggests(runner: Runner, capsys: pytest.CaptureFixture[str]) -> None:
    lines = help_of(runner, ".help", capsys)
    assert [line for line in lines if line in by_topic()] == list(by_topic())
    assert not Shell(runner).run_dot(".help dp_siss")
    assert "Did you mean dp_sis" in capsys.readouterr().err


@pytest.mark.long
def test_examples_of_the_manual_run_in_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    with Runner(":memory:") as runner:
        shell = Shell(runner)
        assert shell.run_dot(".examples")
        assert shell.run_text(MANUAL["dp_sis"].example)
        assert not shell.run_dot(".examples")
    assert "there is a table 'patients' already" in capsys.readouterr().err


def test_any_client_can_read_the_manual(runner: Runner) -> None:
    rows = runner.connection.execute("SELECT name, signature, guarantee, example FROM dp_functions()").fetchall()
    assert [row[0] for row in rows] == list(MANUAL)
    assert all(all(row) for row in rows)
    [first, *_] = runner.connection.execute("FROM dp_help('dp_roc')").fetchall()
    assert first == (f"dp_roc: {FUNCTIONS['dp_roc'].doc}",)
    assert "Did you mean dp_roc" in runner.connection.execute("FROM dp_help('dp_rocc')").fetchall()[0][0]


def test_duckdb_lists_what_each_function_does(runner: Runner) -> None:
    found = runner.connection.execute(
        "SELECT DISTINCT function_name, comment FROM duckdb_functions() WHERE database_name = 'dpsql' "
        "AND regexp_matches(function_name, '^(dp|exact)_')"
    ).fetchall()
    assert len(found) == len({name for name, _ in found}) > 30
    assert all(comment for _, comment in found)
    assert dict(found)["dp_sis"] == MANUAL["dp_sis"].comment


def test_a_misspelt_table_is_not_taken_from_python(runner: Runner) -> None:
    with pytest.raises(Exception, match="does not exist"):
        runner.execute("FROM statement")


@cases(
    ("statement", "has_rows"),
    [
        ("SELECT 1", True),
        ('SELECT true AS "Success" WHERE false', True),
        ('SELECT 5 AS "Count"', True),
        ("CREATE TABLE z AS SELECT 1", False),
        ("INSERT INTO patients VALUES (1, true)", False),
        ("INSERT INTO patients VALUES (1, true) RETURNING age", True),
        ("PIVOT (SELECT 1 AS a, 2 AS b) ON a", True),
        ("SET threads = 2", False),
        ("EXPLAIN SELECT 1", True),
        ("DESCRIBE patients", True),
    ],
    quick=1,
)
def test_which_statements_have_rows(runner: Runner, statement: str, has_rows: bool) -> None:
    assert (runner.execute(statement) is not None) == has_rows


def test_interrupt_from_another_thread_of_the_program(runner: Runner) -> None:
    """The query runs off the main thread, so DuckDB can be told to stop while Python waits."""
    stop = threading.Event()

    def nag() -> None:
        while not stop.wait(0.05):
            runner.connection.interrupt()

    thread = threading.Thread(target=nag)
    thread.start()
    try:
        with pytest.raises(Exception, match=r"(?i)interrupt"):
            runner.execute("SELECT sum(hash(i)) FROM range(100000000000000) AS r(i)")
    finally:
        stop.set()
        thread.join()
    assert runner.execute("SELECT 1") is not None


@pytest.mark.long
def test_files_that_read_one_another_come_to_an_end(
    runner: Runner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = tmp_path / "loop.sql"
    loop.write_text(f"SELECT 1;\n.read '{loop}'\n")
    assert not Shell(runner).run_dot(f".read '{loop}'")
    assert "more than 16 files" in capsys.readouterr().err


@cases("line", [".mode xml", ".timer", ".read", ".read nowhere.sql", ".schema nowhere", ".help 'x", "."], quick=1)
def test_wrong_dot_commands_are_told_and_leave_the_shell_going(
    runner: Runner, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not Shell(runner).run_dot(line)
    assert capsys.readouterr().err


def test_demo_bounds_cover_the_table() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    bounds = [bound for part in upper_bounds() for bound in part]
    table = datasets.load_breast_cancer()
    names = [f"{part} {name}" for part in ("mean", "error", "worst") for name in MEASUREMENTS]
    given = [
        name if not name.endswith(" error") else "error " + name.removesuffix(" error") for name in table.feature_names
    ]
    assert names == given
    assert (table.data >= 0).all()
    assert (table.data <= bounds).all()


def test_the_verdict_is_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the column of that name alone, wherever it stands; a terminal that wants no colours gets none."""
    drawing = (
        "│ a       │ verdict │ b │\n│ varchar │ varchar │   │\n│ clear   │ clear   │ 1 │\n│ clear   │ unclear │ 2 │\n"
    )
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert coloured(drawing) == drawing.replace("│ clear   │ 1", "│\x1b[32m clear   \x1b[0m│ 1").replace(
        " unclear ", "\x1b[33m unclear \x1b[0m"
    )
    assert coloured("│ a │\n│ clear │\n") == "│ a │\n│ clear │\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured(drawing) == drawing


@cases("budget", ["epsilon := 3, delta := 1e-6", "rho := 0.5, delta := 1e-6"], quick=1, alone=True)
def test_budgets_fit_80_columns_and_show_what_is_spent_and_left(
    runner: Runner, budget: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.execute(f"SELECT dp_protect('patients', {budget})")
    runner.execute("FROM dp_count('patients', epsilon := 0.25)")
    [(spent, remaining)] = runner.context.connection.execute("SELECT spent, remaining FROM dp_budget()").fetchall()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert Shell(runner).run_dot(".budget")
    for drawn in (capsys.readouterr().out, _drawn(runner, "FROM dp_budget()", capsys)):
        text = click.unstyle(drawn)
        assert max(map(len, text.splitlines())) <= 80
        for words in (spent, remaining):
            assert words.partition(", ")[0] in text


def _drawn(runner: Runner, statement: str, capsys: pytest.CaptureFixture[str]) -> str:
    show(runner.execute(statement))
    return capsys.readouterr().out


@cases(
    "command",
    [
        ["shell", "patinets.duckdb"],
        ["query", "FROM dp_budget()", "--db", "patinets.duckdb"],
        ["run", "job.sql", "--db", "patinets.duckdb"],
    ],
    quick=1,
)
def test_a_misspelt_database_gets_no_new_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:

    monkeypatch.chdir(tmp_path)
    duckdb.connect("patients.duckdb").close()
    Path("job.sql").write_text("FROM dp_budget();")
    before = sorted(tmp_path.iterdir())
    done = CliRunner().invoke(main, command, input="")
    assert done.exit_code == 5, done.output
    assert "DPSQL-L055" in done.output
    assert "Did you mean 'patients.duckdb'?" in done.output
    assert sorted(tmp_path.iterdir()) == before
    assert CliRunner().invoke(main, [*command, "--create"], input="").exit_code == 0
    assert Path("patinets.duckdb.dpsql-ledger").is_file()


def test_statements_that_protect_a_table_may_begin_a_database(tmp_path: Path) -> None:
    job = tmp_path / "job.sql"
    job.write_text("CREATE TABLE t AS SELECT 1 AS a; SELECT dp_protect('t', epsilon := 1);")
    done = CliRunner().invoke(main, ["run", str(job), "--db", str(tmp_path / "new.duckdb")])
    assert done.exit_code == 0, done.output


def commands(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        yield from commands(command) if isinstance(command, click.Group) else (command,)


@cases("command", list(commands(main)), ids=lambda command: command.callback.__name__)
def test_what_a_command_runs_takes_its_parameters(command: click.Command) -> None:
    """A module is named by a text, so that it is loaded late, and no checker of types compares the two."""
    assert command.callback is not None
    place = inspect.getclosurevars(command.callback).nonlocals
    work = getattr(import_module(f"dpsql.cli.{place['module']}"), place["name"])
    inspect.signature(work).bind(**{str(one.name): None for one in command.params})
