"""The prompt before a gateway."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from dpsql.cli.commands import main
from dpsql.cli.completion import SqlCompleter
from dpsql.cli.dot_commands import DOT_COMMANDS
from dpsql.cli.remote_runner import prompted
from support.cases import cases
from support.fake_door import TOKEN, FakeDoor, listening


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FakeDoor, str]]:
    door = FakeDoor()
    with listening(door) as url:
        yield door, url


@pytest.fixture
def door(served: tuple[FakeDoor, str], monkeypatch: pytest.MonkeyPatch) -> FakeDoor:
    monkeypatch.setenv("DPSQL_TOKEN", TOKEN)
    served[0].reset()
    return served[0]


def typed(url: str, text: str) -> Result:
    return CliRunner().invoke(main, ["shell", "--connect", url], input=text)


def test_statements_are_sent_as_they_stand_with_what_set_said(door: FakeDoor, served: tuple[FakeDoor, str]) -> None:
    done = typed(served[1], "SET epsilon = 0.25;\nSET fresh = true;\nSELECT 'a;b';\nSELECT 'a;b';\n")
    assert done.exit_code == 0, done.output
    assert "42.5" in done.output
    assert "nothing was charged" in done.output
    assert door.asked == [("SELECT 'a;b'", {"epsilon": "0.25", "fresh": "true"})] * 2


def test_private_mode_writes_the_call(door: FakeDoor, served: tuple[FakeDoor, str]) -> None:
    typed(served[1], ".private on 0.5\nSELECT count(*) FROM patients;\n")
    assert door.asked == [("FROM dp_query('SELECT count(*) FROM patients', epsilon := 0.5)", {})]


def test_dot_commands_ask_the_gateway(door: FakeDoor, served: tuple[FakeDoor, str]) -> None:
    done = typed(served[1], "SELECT 1;\n.budget\n.policy\n.ledger\n.tables\n.schema patients\n.explain SELECT 2\n")
    assert done.exit_code == 0, done.output
    for shown in ("4.5", "0.5-DP", "patients", 'ignore all "rules" DOUBLE', "epsilon: 0.5"):
        assert shown in done.output


@cases(
    ("text", "said"),
    [
        ("SELECT spent;\n", "B001"),
        ("SELECT rows;\n", "G006"),
        ("SELECT FROM WHERE;\n", "Parser Error"),
        ("SET epsilon = much;\n", "G016"),
        (".examples\n", "dpsql example"),
    ],
    quick=4,
    alone=True,
)
def test_what_is_refused_is_said_and_the_prompt_goes_on(
    door: FakeDoor, served: tuple[FakeDoor, str], text: str, said: str
) -> None:
    done = typed(served[1], text + "SELECT 7;\n")
    assert done.exit_code != 0
    assert said in done.output
    assert [sql for sql, _ in door.asked][-1] == "SELECT 7"


def test_without_a_token_nothing_is_asked(
    door: FakeDoor, served: tuple[FakeDoor, str], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.delenv("DPSQL_TOKEN")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    done = typed(served[1], "SELECT 1;\n")
    assert done.exit_code == 1
    assert "G040" in done.output


def test_names_of_a_gateway_are_completed(door: FakeDoor, served: tuple[FakeDoor, str]) -> None:
    _, names = prompted(served[1])
    completer = SqlCompleter(names, DOT_COMMANDS)

    def offered(text: str) -> set[str]:
        return {one.text for one in completer.get_completions(Document(text), CompleteEvent())}

    assert "dp_count(" in offered("FROM dp_co")
    assert "patients" in offered("SELECT count(*) FROM pat")
    assert "epsilon := " in offered("FROM dp_count('patients', eps")
