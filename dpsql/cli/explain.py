"""Run `dpsql explain`: print the plan and the cost of a statement, or the meaning of an error code."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from dpsql.cli.options import EngineOption
from dpsql.contract.codes import CODES


def explain(what: str, database: str, ledger: str | None, engines: Sequence[EngineOption]) -> None:
    """Print the plan and the cost of a statement, or the meaning of an error code."""
    code = CODES.get(what.strip("[]").upper().removeprefix("DPSQL-"))
    if code is not None:
        click.echo(str(code))
        return
    if re.fullmatch(r"\[?(DPSQL-)?[A-Z]\d+\]?", what, re.IGNORECASE):
        raise click.UsageError(f"there is no error code {what!r}. docs/errors.md lists them all.")
    # Imported here because it loads DuckDB.
    from dpsql.cli.runner import Runner

    with Runner(database, ledger=ledger, engines=engines, create=False) as runner:
        click.echo(runner.context.explain(what))
