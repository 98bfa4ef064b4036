"""The SQL prompt, which also reads statements from a pipe or a file.

On a terminal, the prompt reads lines up to a semicolon, with highlighting, completion and history.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Unpack

import click
import duckdb
from prompt_toolkit import PromptSession
from prompt_toolkit.filters import completion_is_selected
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.output import ColorDepth

from dpsql.cli.completion import SqlCompleter
from dpsql.cli.dot_commands import DOT_COMMANDS, check_syntax, is_blank, run_dot_command, split, split_all
from dpsql.cli.messages import DONE, FAILED, clean_message, console, exit_code_of, is_expected, say_error, stop_message
from dpsql.cli.output import show
from dpsql.cli.private import Private
from dpsql.cli.prompted import KnownNames, Prompted
from dpsql.cli.runner import Runner, RunnerOptions
from dpsql.version import __version__


def is_complete(text: str) -> bool:
    """Return whether Enter runs the typed text: a dot command, a blank, or complete statements."""
    return text.startswith(".") or is_blank(text) or split(text)[1] == ""


def new_prompt(names: KnownNames) -> PromptSession[str]:
    """Return the prompt: highlighting, completion, history, and lines up to a semicolon."""
    keys = KeyBindings()

    @keys.add("enter", filter=~completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=False)

    @keys.add("enter", filter=completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    path = history_path()
    history: History = InMemoryHistory() if path is None else FileHistory(str(path))
    return PromptSession(
        "dpsql> ",
        history=history,
        lexer=PygmentsLexer.from_filename("statement.sql"),
        completer=SqlCompleter(names, DOT_COMMANDS),
        complete_while_typing=False,
        multiline=True,
        prompt_continuation="   ... ",
        key_bindings=keys,
        color_depth=ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None,
    )


def history_path() -> Path | None:
    """Return the history file, which only its owner can read; None if the file cannot be created."""
    if os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path = base / "dpsql" / "history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError:
        return None
    return path


class Leave(Exception):  # noqa: N818 - a request, not an error
    """Raised by ``.quit``."""


class Shell:
    """Reads statements and dot commands, runs each once, and shows the results.

    Parameters
    ----------
    runner : Prompted
    names : KnownNames, optional
        Names for completion; by default the database's names.
    mode : {'table', 'csv', 'json'}
        Format of the rows.
    timer : bool
        Print the wall time of each statement.
    """

    def __init__(
        self, runner: Prompted, names: KnownNames | None = None, *, mode: str = "table", timer: bool = False
    ) -> None:
        self.runner = runner
        self.names = KnownNames(runner) if names is None else names
        self.mode = mode
        self.timer = timer
        self.private: Private | None = None
        self.depth = 0
        self.failure: int | None = None

    def run(self) -> int:
        """Read until the end; return the exit code, which off a terminal is the first failure's."""
        if sys.stdin.isatty() and sys.stdout.isatty():
            self._converse()
            return DONE
        try:
            if not self.feed(sys.stdin):
                return self.failure or FAILED
        except Leave:
            pass
        return DONE

    def run_text(self, text: str, *, first_line: int | None = None) -> bool:
        """Run the statements of a text up to the first failure.

        Parameters
        ----------
        text : str
        first_line : int, optional
            Line of the file where the text begins; in errors.

        Returns
        -------
        done : bool
            False if one statement failed.

        Raises
        ------
        KeyboardInterrupt, Terminated
            Ctrl-C or SIGTERM stopped a statement.
        """
        where = ""
        try:
            statements = split_all(text)
            for statement in statements:
                where = f"line {first_line + statement.line - 1}: " if first_line else ""
                check_syntax(self.runner.connection, statement)
            for statement in statements:
                where = f"line {first_line + statement.line - 1}: " if first_line else ""
                self._run_statement(statement.text)
        except Exception as error:
            if not is_expected(error):
                raise
            self._say_failure(error, where)
            return False
        finally:
            self.names.refresh()
        return True

    def feed(self, lines: Iterable[str]) -> bool:
        """Run statements and dot commands from lines; continue after a failure.

        Returns
        -------
        done : bool
            False if at least one failed.
        """
        pending, begin, done = "", 1, True
        for number, line in enumerate(lines, 1):
            if not pending and line.startswith("."):
                done = self.run_dot(line) and done
                continue
            if not pending:
                begin = number
            pending += line
            if ";" in line and split(pending)[1] == "":
                done = self.run_text(pending, first_line=begin) and done
                pending = ""
        if not is_blank(pending):
            done = self.run_text(pending, first_line=begin) and done
        return done

    def run_dot(self, line: str) -> bool:
        """Run one dot command; False if it failed."""
        if line.split()[0] in (".quit", ".exit"):
            raise Leave
        try:
            return run_dot_command(self, line)
        except Exception as error:
            if not is_expected(error):
                raise
            self._say_failure(error)
            return False

    def _say_failure(self, error: Exception, where: str = "") -> None:
        say_error(where + clean_message(error))
        if self.failure is None:
            self.failure = exit_code_of(error)

    def _run_statement(self, text: str) -> None:
        if self.private is not None:
            text = self.private.applied(self.runner.connection, text)
        result = self.runner.execute(text)
        self.runner.say_receipts(private=self.private is not None)
        if result is not None:
            show(result, self.mode)
            if self.timer:
                click.echo(f"{result.seconds:.3f} s")
        self.runner.raise_if_stopped()

    def _converse(self) -> None:
        # The import loads prompt_toolkit, which a pipe does not need.
        from dpsql.cli.shell import new_prompt

        prompt = new_prompt(self.names)
        out = console()
        out.print(f"dpsql {__version__} on DuckDB {duckdb.__version__}", style="bold")
        out.print(self.runner.place)
        out.print("Statements end in a semicolon. Tab completes, .help helps, Ctrl-D leaves.")
        while True:
            try:
                text = prompt.prompt()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            try:
                if text.startswith("."):
                    self.run_dot(text)
                elif not is_blank(text):
                    self.run_text(text)
            except KeyboardInterrupt as stop:
                say_error(stop_message(stop))
            except Leave:
                return


def open_shell(database: str, create: bool, connect: str | None = None, **options: Unpack[RunnerOptions]) -> int:
    """Open a database or a gateway, run statements until the end, and return the exit code."""
    if connect is not None:
        return Shell(*import_module("dpsql.cli.remote_runner").prompted(connect)).run()
    with Runner(database, create=create, **options) as opened:
        return Shell(opened).run()
