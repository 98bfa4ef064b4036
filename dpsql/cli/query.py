"""`dpsql query`: statements that run once, of which one may return rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Unpack

import click

from dpsql.cli.output import Destination
from dpsql.cli.runner import Runner, RunnerOptions, protects
from dpsql.cli.splitting import check_syntax, split_all


def run_query(
    sql: str, database: str, form: str | None, output: Path | None, create: bool, **options: Unpack[RunnerOptions]
) -> None:
    """Run SQL, or what standard input holds, and write its rows."""
    destination = Destination(output, form)
    text = sys.stdin.read() if sql == "-" else sql
    with Runner(database, create=create or protects(text), **options) as runner:
        _run(runner, text, destination)


def _run(runner: Runner, text: str, destination: Destination) -> None:
    """Run one statement, or several of which one returns rows, and write the rows."""
    statements = split_all(text)
    if not statements:
        raise click.UsageError("there is no statement to run.")
    for statement in statements:
        check_syntax(runner.connection, statement)
    if len(statements) > 1 and (destination.form != "table" or destination.path is not None):
        # Checked here, before a release is charged whose rows could then not be written.
        raise click.UsageError(f"{destination.form} takes one statement; got {len(statements)}. Run them one by one.")
    for statement in statements:
        result = runner.execute(statement.text)
        runner.say_replays()
        if result is not None:
            destination.deliver(result, runner.receipts)
        runner.raise_if_stopped()
