"""Show and plot releases of the ledger (`dpsql show`, `dpsql plot`), and run statements once (`dpsql query`)."""

from __future__ import annotations

import dataclasses
import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Unpack

import click
import duckdb
import pyarrow as pa

from dpsql.cli.dot_commands import check_syntax, split_all
from dpsql.cli.output import Destination, Result, open_ledger
from dpsql.cli.private import Private
from dpsql.cli.runner import Runner, RunnerOptions, protects
from dpsql.contract.covers import covers
from dpsql.contract.parameters import show
from dpsql.engines.duckdb.releases import stored_rows
from dpsql.errors import ParameterError
from dpsql.functions.noise_statement import noise_statement
from dpsql.functions.registry import FUNCTIONS, QUERY
from dpsql.ledger.policy import in_force
from dpsql.ledger.rows import StoredRelease
from dpsql.released.plots import plot_budgets, plot_release, save


def print_release(
    release: str, dataset: str | None, output: Path | None, form: str | None, database: str | None, ledger: str | None
) -> None:
    """Print the releases of a name, or the release of a number, as JSON.

    `rows` are the rows that the call returned, `noise` describes its noise, and `policy` its policy. With a file or a
    format, print the rows of one release, as its call returned them.

    Raises
    ------
    ParameterError
        There is no such release, or several releases have rows.
    """
    destination = None if output is None and form is None else Destination(output, form)
    with closing(open_ledger(database, ledger)) as opened:
        releases = opened.releases((*FUNCTIONS, QUERY), dataset, release)
        if not releases and release.isdigit():
            releases = opened.releases((*FUNCTIONS, QUERY), dataset, int(release))
    if not releases:
        raise ParameterError("P030", f"nothing was released as {show(release)}. dpsql ledger lists what was.")
    if destination is not None:
        if len(releases) > 1:
            raise ParameterError(
                "P055", f"more than one dataset has a release {show(release)}. Give --dataset as well."
            )
        destination.deliver(Result(_rows_of(releases[0]), False, 0.0))
        return
    for entry in releases:
        description = dataclasses.asdict(entry)
        del description["result"]
        if entry.lineage is not None:
            description["lineage"] = {name: value for name, value in entry.lineage.items() if name != "answer"}
        description |= {
            **({"rows": _rows_of(entry).to_pylist()} if entry.function != QUERY else _of_query(entry)),
            "noise": noise_statement(entry.function, entry.arguments, entry.result),
            "policy": in_force(entry.arguments),
        }
        click.echo(json.dumps(description, indent=2, ensure_ascii=False, default=str))


def _rows_of(release: StoredRelease) -> pa.Table:
    """Return the rows of a release, as the call returned them."""
    with duckdb.connect() as connection:
        return stored_rows(connection, release)


def _of_query(release: StoredRelease) -> dict[str, object]:
    """Return the rows of a query as first asked, if they follow from its answers alone; and the answers."""
    try:
        rows: object = _rows_of(release).to_pylist()
    except ParameterError:
        rows = None
    return {"rows": rows, "parts": release.result["parts"]}


def draw(
    release: str | None,
    output: Path,
    kind: str | None,
    budgets: bool,
    dataset: str | None,
    database: str | None,
    ledger: str | None,
) -> None:
    """Draw a release, or by default the budgets, into a file."""
    if (release is None) != budgets:
        raise click.UsageError("give the name or the number of a release, or --budget.")
    with closing(open_ledger(database, ledger)) as opened:
        if release is None:
            save(plot_budgets(opened.budgets()), output)
            return
        releases = opened.releases(tuple(FUNCTIONS), dataset, int(release) if release.isdigit() else release)
    if not releases:
        raise ParameterError("P030", f"nothing was released as {show(release)}. `dpsql ledger` lists what was.")
    if len(releases) > 1:
        raise ParameterError("P055", f"more than one dataset has a release {show(release)}. Give --dataset as well.")
    entry = releases[0]
    rows = FUNCTIONS[entry.function].shape.rows(entry.result)
    save(plot_release(entry.function, entry.result, rows, covers=covers(entry.arguments), kind=kind), output)


def run_query(
    sql: str,
    database: str,
    form: str | None,
    output: Path | None,
    create: bool,
    private: bool,
    epsilon: str | None,
    delta: str | None,
    **options: Unpack[RunnerOptions],
) -> None:
    """Run SQL from an argument or standard input, and write its rows; answer a `private` statement like `dp_query`."""
    destination = Destination(output, form)
    text = sys.stdin.read() if sql == "-" else sql
    if private:
        text = Private.of(epsilon, delta).written(text)
    elif epsilon is not None or delta is not None:
        raise click.UsageError("--epsilon and --delta are for --private. Give them in the call, epsilon := 0.5.")
    with Runner(database, create=create or protects(text), **options) as runner:
        _run(runner, text, destination, private=private)


def _run(runner: Runner, text: str, destination: Destination, *, private: bool) -> None:
    """Run one statement, or several of which one returns rows; write the rows."""
    statements = split_all(text)
    if not statements:
        raise click.UsageError("there is no statement to run.")
    for statement in statements:
        check_syntax(runner.connection, statement)
    if len(statements) > 1 and (destination.form != "table" or destination.path is not None):
        # Checked here, before a release is charged whose rows dpsql could not write.
        raise click.UsageError(f"{destination.form} takes one statement; got {len(statements)}. Run them one by one.")
    for statement in statements:
        result = runner.execute(statement.text)
        runner.say_receipts(private=private)
        if result is not None:
            destination.deliver(result, runner.receipts)
        runner.raise_if_stopped()
