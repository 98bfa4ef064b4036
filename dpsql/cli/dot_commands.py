"""The commands of the shell that begin with a dot."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape
from rich.table import Table

from dpsql.cli.known_names import KnownFunction, signature_of
from dpsql.cli.messages import console, say_error
from dpsql.cli.receipts import budget_view, ledger_view
from dpsql.contract.arguments import Argument
from dpsql.engines.duckdb.headers import headers, summaries
from dpsql.functions.registry import FUNCTIONS

if TYPE_CHECKING:
    from dpsql.cli.shell import Shell

_deepest_read = 16


@dataclass(frozen=True)
class DotCommand:
    """One command: what it does, and how it is called.

    Attributes
    ----------
    run : callable
        Takes the shell and the words after the name; returns False when it failed.
    usage, help : str
    most : int
        Words that it takes at most.
    least : int
        Words that it needs.
    whole : bool
        Take the rest of the line as one word, quotes and all: it is SQL.
    """

    run: Callable[[Shell, list[str]], bool | None]
    usage: str
    help: str
    most: int = 0
    least: int = 0
    whole: bool = False


def run_dot_command(shell: Shell, line: str) -> bool:
    """Run the command of one line; False when there is none, or it failed."""
    name, _, rest = line.strip().partition(" ")
    command = DOT_COMMANDS.get(name)
    if command is None:
        say_error(f"there is no command {name}. Type .help for the list.")
        return False
    try:
        words = [rest.strip()] * bool(rest) if command.whole else shlex.split(rest)
    except ValueError as error:
        say_error(f"{line.strip()}: {error}.")
        return False
    if not command.least <= len(words) <= command.most:
        say_error(f"usage: {command.usage}")
        return False
    return command.run(shell, words) is not False


def _budget(shell: Shell, _: list[str]) -> None:
    console().print(budget_view(shell.runner.ledger.budgets()))


def _ledger(shell: Shell, words: list[str]) -> None:
    console().print(ledger_view(shell.runner.ledger.entries(*words)))


def _explain(shell: Shell, words: list[str]) -> None:
    click.echo(shell.runner.context.explain(words[0].rstrip("; ")))


def _tables(shell: Shell, _: list[str]) -> None:
    for name in shell.names.columns:
        click.echo(name)


def _schema(shell: Shell, words: list[str]) -> bool:
    tables = shell.names.columns
    chosen = [name for name in tables if not words or name.lower() == words[0].lower()]
    if words and not chosen:
        say_error(f"there is no table {words[0]!r}.")
        return False
    for name in chosen:
        click.echo(f"{name} (" + ", ".join(f"{column} {kind}" for column, kind in tables[name]) + ")")
    return True


def _read(shell: Shell, words: list[str]) -> bool:
    if shell.depth >= _deepest_read:
        say_error(f"{words[0]}: more than {_deepest_read} files read one another.")
        return False
    shell.depth += 1
    try:
        with Path(words[0]).expanduser().open(encoding="utf-8") as lines:
            return shell.feed(lines)
    finally:
        shell.depth -= 1


def _mode(shell: Shell, words: list[str]) -> bool:
    if words[0] not in ("table", "csv", "json"):
        say_error(f"usage: {DOT_COMMANDS['.mode'].usage}")
        return False
    shell.mode = words[0]
    return True


def _timer(shell: Shell, words: list[str]) -> bool:
    if words[0] not in ("on", "off"):
        say_error(f"usage: {DOT_COMMANDS['.timer'].usage}")
        return False
    shell.timer = words[0] == "on"
    return True


def _help(shell: Shell, words: list[str]) -> bool:
    if not words:
        texts = summaries()
        names = dict.fromkeys(function.name for function in shell.names.functions)
        rows = [(command.usage, command.help) for command in DOT_COMMANDS.values()]
        _show_columns([*rows, ("", ""), *((name, texts.get(name, "")) for name in names)])
        return True
    forms = [function for function in shell.names.functions if function.name == words[0].lower()]
    if not forms:
        say_error(f"there is no function {words[0]!r}. Type .help for the list.")
        return False
    name = forms[0].name
    if name in FUNCTIONS:
        click.echo(f"{FUNCTIONS[name].doc}\n")
    if name in (texts := headers()):
        click.echo(f"{texts[name]}\n")
    for form in forms:
        click.echo(_call(form))
    signature = signature_of(name)
    taken = [signature[argument] for argument in signature if any(argument in form.arguments for form in forms)]
    if taken:
        click.echo()
        _show_columns([(argument.name, argument.shown_default, argument.meaning) for argument in taken])
    return True


def _call(form: KnownFunction) -> str:
    """Return a call of one form as SQL, with the defaults that it has."""
    signature = signature_of(form.name)
    parts = [name if name not in signature else f"{name} := {_default(signature[name])}" for name in form.arguments]
    kept = [part.replace(" ", "\0") for part in parts]  # a line ends between arguments
    call = f"{'SELECT * FROM' if form.is_table else 'SELECT'} {form.name}({', '.join(kept)})"
    lines = textwrap.fill(call, width=120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")


def _default(argument: Argument) -> str:
    """Return what stands for an argument that a call leaves out, or an ellipsis where it must not."""
    if argument.required:
        return "…"
    return "NULL" if argument.default is None else argument.shown_default


def _show_columns(rows: Iterable[tuple[str, ...]]) -> None:
    """Print rows below one another, each column as wide as it needs to be."""
    view = Table.grid(padding=(0, 2))
    for row in rows:
        view.add_row(*map(escape, row))
    console().print(view)


def _quit(_shell: Shell, _: list[str]) -> None:
    """Stand in the list; the shell itself sees to leaving."""


DOT_COMMANDS: dict[str, DotCommand] = {
    ".budget": DotCommand(_budget, ".budget", "what each dataset may spend, has spent, has left"),
    ".ledger": DotCommand(_ledger, ".ledger [DATASET]", "every entry of the ledger", most=1),
    ".explain": DotCommand(
        _explain,
        ".explain STATEMENT",
        "the SQL that it would run, and what it would charge",
        most=1,
        least=1,
        whole=True,
    ),
    ".tables": DotCommand(_tables, ".tables", "tables and views"),
    ".schema": DotCommand(_schema, ".schema [TABLE]", "columns and their types", most=1),
    ".read": DotCommand(_read, ".read FILE", "run the statements of a file", most=1, least=1),
    ".mode": DotCommand(_mode, ".mode table|csv|json", "how rows are shown", most=1, least=1),
    ".timer": DotCommand(_timer, ".timer on|off", "tell the time of each statement", most=1, least=1),
    ".help": DotCommand(_help, ".help [FUNCTION]", "this list, or what a function does", most=1),
    ".quit": DotCommand(_quit, ".quit", "leave; Ctrl-D does the same"),
}
