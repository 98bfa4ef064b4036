"""The shell's dot commands, and the splitter that cuts text into statements.

DuckDB's own tokenizer finds the semicolons.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import click
import duckdb

from dpsql.cli.messages import console, say_error
from dpsql.cli.output import example_text
from dpsql.cli.private import Private
from dpsql.cli.prompted import KnownNames, Prompted
from dpsql.contract.names import did_you_mean
from dpsql.dataclass import dataclass
from dpsql.manual.catalogue import WIDTH, columns, help_lines, suggestion
from dpsql.manual.slips import mended
from dpsql.parsing import in_dp_query

_blank = re.compile(r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*", re.DOTALL)


@dataclass(frozen=True)
class Piece:
    """One statement of a text.

    Attributes
    ----------
    text : str
        The statement, without the semicolon and leading comments.
    line : int
        Its first line in the text, from 1.
    """

    text: str
    line: int


def is_blank(text: str) -> bool:
    """Return whether `text` holds only white space and comments."""
    return _blank.fullmatch(text) is not None


def split(text: str) -> tuple[list[Piece], str]:
    """Cut `text` into the statements that a semicolon ends, and the rest.

    Parameters
    ----------
    text : str
        SQL, possibly incomplete.

    Returns
    -------
    statements : list of Piece
        The complete statements, in order; empty statements are dropped.
    rest : str
        The text after the last semicolon; ``''`` if it is only white space and comments.
    """
    data = text.encode()
    # Offsets are in bytes. The tokenizer stops at an open quote or comment, so a semicolon inside
    # does not count; `extract_statements` refuses such a text as a whole.
    tokens = duckdb.tokenize(text)
    cuts = [offset for offset, _ in tokens if data[offset : offset + 1] == b";"]
    statements = []
    begin = 0
    for cut in cuts:
        statement = _statement(data, begin, cut)
        if statement is not None:
            statements.append(statement)
        begin = cut + 1
    rest = data[begin:].decode()
    return statements, "" if is_blank(rest) else rest


def split_all(text: str) -> list[Piece]:
    """Cut `text` into statements; the last one need not end in a semicolon."""
    statements, rest = split(text)
    if rest:
        data = text.encode()
        last = _statement(data, len(data) - len(rest.encode()), len(data))
        statements += [last] if last else []
    return statements


def check_syntax(connection: duckdb.DuckDBPyConnection, statement: Piece) -> None:
    """Raise DuckDB's parser error, with the next step, if `statement` does not parse; run and bind nothing."""
    try:
        connection.extract_statements(statement.text)
    except Exception as error:
        raise mended(error, statement.text) from None


def _statement(data: bytes, begin: int, end: int) -> Piece | None:
    piece = data[begin:end].decode()
    lead = _blank.match(piece)
    skipped = lead.group() if lead else ""
    body = piece[len(skipped) :].strip()
    if not body:
        return None
    return Piece(in_dp_query(body), data[:begin].count(b"\n") + skipped.count("\n") + 1)


_deepest_read = 16
# Longer lines are hard to read.
_widest_help = 100


class _Shell(Protocol):
    """The parts of `dpsql.cli.shell.Shell` that a command may use and set."""

    @property
    def runner(self) -> Prompted:
        """Runs statements."""

    names: KnownNames
    mode: str
    timer: bool
    private: Private | None
    depth: int

    def feed(self, lines: Iterable[str]) -> bool:
        """Run statements and dot commands from lines; False if one failed."""


@dataclass(frozen=True)
class DotCommand:
    """One command: its function and its usage.

    Attributes
    ----------
    run : callable
        Takes the shell and the words after the name; returns False on failure.
    usage, help : str
    most : int
        Maximum number of words.
    least : int
        Minimum number of words.
    choices : tuple of str
        Allowed first words; empty allows any word.
    takes_rest : bool
        Take the rest of the line as one word, with quotes: it is SQL.
    """

    run: Callable[[_Shell, list[str]], bool | None]
    usage: str
    help: str
    most: int = 0
    least: int = 0
    choices: tuple[str, ...] = ()
    takes_rest: bool = False


def run_dot_command(shell: _Shell, line: str) -> bool:
    """Run the command of one line; False if it is unknown or failed."""
    name, _, rest = line.strip().partition(" ")
    command = DOT_COMMANDS.get(name)
    if command is None:
        step = did_you_mean(name, DOT_COMMANDS, "Type .help for the list.")
        say_error(f"there is no command {name}. {step}")
        return False
    try:
        words = [rest.strip()] * bool(rest) if command.takes_rest else shlex.split(rest)
    except ValueError as error:
        say_error(f"{line.strip()}: {error}.")
        return False
    is_chosen = not command.choices or set(words[:1]) <= set(command.choices)
    if not command.least <= len(words) <= command.most or not is_chosen:
        say_error(f"usage: {command.usage}")
        return False
    return command.run(shell, words) is not False


def _budget(shell: _Shell, _: list[str]) -> None:
    console().print(shell.runner.budgets())


def _policy(shell: _Shell, words: list[str]) -> None:
    console().print(shell.runner.policies(*words))


def _ledger(shell: _Shell, words: list[str]) -> None:
    console().print(shell.runner.entries(*words))


def _explain(shell: _Shell, words: list[str]) -> None:
    click.echo(shell.runner.explain(words[0].rstrip("; ")))


def _tables(shell: _Shell, _: list[str]) -> None:
    for name in shell.names.columns:
        click.echo(name)


def _schema(shell: _Shell, words: list[str]) -> bool:
    tables = shell.names.columns
    chosen = [name for name in tables if not words or name.lower() == words[0].lower()]
    if words and not chosen:
        say_error(f"there is no table {words[0]!r}. {did_you_mean(words[0], tables, '.tables lists what there is.')}")
        return False
    for name in chosen:
        click.echo(f"{name} (" + ", ".join(f"{column} {kind}" for column, kind in tables[name]) + ")")
    return True


def _read(shell: _Shell, words: list[str]) -> bool:
    if shell.depth >= _deepest_read:
        say_error(f"{words[0]}: more than {_deepest_read} files read one another.")
        return False
    shell.depth += 1
    try:
        with Path(words[0]).expanduser().open(encoding="utf-8") as lines:
            return shell.feed(lines)
    finally:
        shell.depth -= 1


def _mode(shell: _Shell, words: list[str]) -> None:
    shell.mode = words[0]


def _timer(shell: _Shell, words: list[str]) -> None:
    shell.timer = words[0] == "on"


def _private(shell: _Shell, words: list[str]) -> bool:
    if words[0] == "off":
        shell.private = None
        return True
    try:
        shell.private = Private.of(*[*words[1:], None, None][:2])
    except click.UsageError as error:
        say_error(f".private on: {error.format_message()}")
        return False
    return True


def _help(shell: _Shell, words: list[str]) -> bool:
    is_shown = sys.stdin.isatty() and sys.stdout.isatty()
    width = min(console().width, _widest_help) if is_shown else WIDTH
    lines = help_lines(*words, width=width)
    if lines is None:
        say_error(f"no function, topic or argument has {words[0]!r}. {suggestion(words[0])}")
        return False
    if not words:
        commands = columns([(command.usage, command.help) for command in DOT_COMMANDS.values()], width)
        lines = [*commands, "", *lines, "", ".help dp_sis explains a function, .help quantile finds what has a word."]
    text = "\n".join(lines)
    if is_shown and len(lines) > console().height:
        click.echo_via_pager(text + "\n")
    else:
        click.echo(text)
    return True


def _examples(shell: _Shell, _: list[str]) -> bool:
    tables = shell.runner.fill()
    shell.names.refresh()
    click.echo(example_text(tables))
    return True


def _quit(_shell: _Shell, _: list[str]) -> None:
    """Stand in the list; the shell itself handles leaving."""


DOT_COMMANDS: dict[str, DotCommand] = {
    ".budget": DotCommand(_budget, ".budget", "what each dataset may spend, has spent, has left"),
    ".policy": DotCommand(_policy, ".policy [DATASET]", "what the data's owners stated: bounds, keys, limits", most=1),
    ".ledger": DotCommand(_ledger, ".ledger [DATASET]", "every entry of the ledger", most=1),
    ".explain": DotCommand(
        _explain,
        ".explain STATEMENT",
        "the SQL that it would run, and what it would charge",
        most=1,
        least=1,
        takes_rest=True,
    ),
    ".tables": DotCommand(_tables, ".tables", "tables and views"),
    ".schema": DotCommand(_schema, ".schema [TABLE]", "columns and their types", most=1),
    ".read": DotCommand(_read, ".read FILE", "run the statements of a file", most=1, least=1),
    ".mode": DotCommand(
        _mode,
        ".mode table|csv|json",
        "how rows are shown",
        most=1,
        least=1,
        choices=("table", "csv", "json"),
    ),
    ".private": DotCommand(
        _private,
        ".private on EPSILON [DELTA] | off",
        "answer every SELECT without a dp_ function privately, as dp_query",
        most=3,
        least=1,
        choices=("on", "off"),
    ),
    ".timer": DotCommand(
        _timer, ".timer on|off", "tell the time of each statement", most=1, least=1, choices=("on", "off")
    ),
    ".examples": DotCommand(_examples, ".examples", "make the tables that the examples of .help run on"),
    ".help": DotCommand(_help, ".help [WORD]", "this list, what a function does, or what has a word", most=1),
    ".quit": DotCommand(_quit, ".quit", "leave; Ctrl-D does the same"),
}
