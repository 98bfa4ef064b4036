"""Grant access through the gateway, on the command line."""

from __future__ import annotations

import re
from contextlib import closing
from datetime import UTC, datetime

import click

from dpsql.cli.messages import console, say
from dpsql.cli.output import Destination, Result, as_arrow, empty_view, ledger_location, open_ledger
from dpsql.contract.parameters import show
from dpsql.functions.registry import check_askable
from dpsql.ledger.granting import GrantedRow
from dpsql.ledger.grants import Grant
from dpsql.ledger.ledger import Ledger

_days = re.compile(r"([0-9]{1,5})d?").fullmatch


def give_grant(
    principal: str,
    dataset: str,
    functions: str | None,
    sources: str | None,
    expires: str,
    database: str | None,
    ledger: str | None,
    **terms: object,
) -> None:
    """Record a grant."""
    check_askable(_listed(functions) or ())
    grant = Grant.of(
        principal,
        dataset,
        functions=_listed(functions),
        sources=_listed(sources),
        days=None if expires == "never" else _read_days(expires),
        **terms,  # type: ignore[arg-type]
    )
    with closing(Ledger.open(ledger_location(database, ledger))) as opened:
        if opened.policy(grant.dataset) is None:
            say(f"Note: dataset '{grant.dataset}' has no budget yet. Give it one with dp_protect.")
        opened.grant(grant)
    until = "" if grant.expires is None else f" until {grant.expires[:10]}"
    click.echo(f"ok: {principal} may ask about {grant.dataset}{until}.")


def take_back(principal: str, dataset: str | None, token: str | None, database: str | None, ledger: str | None) -> None:
    """Record that a grant, a token or everything is revoked."""
    with closing(Ledger.open(ledger_location(database, ledger))) as opened:
        opened.revoke(principal, dataset, token)
    what = f"the grant on {dataset}" if dataset else f"token {token}" if token else "every grant and token"
    click.echo(f"ok: {what} of {principal} no longer holds.")


def make_token(principal: str, expires: str, now: bool, database: str | None, ledger: str | None) -> None:
    """Make a token, and print it alone on standard output."""
    with closing(Ledger.open(ledger_location(database, ledger))) as opened:
        issued = opened.issue_token(principal, days=_read_days(expires), now=now)
    say(f"Token {issued.token.id} of {principal}, until {issued.token.expires[:10]}. It is not shown again.")
    click.echo(issued.text)


def print_principals(database: str | None, ledger: str | None, form: str) -> None:
    """Print one row per grant, and on a terminal the tokens behind them."""
    with closing(open_ledger(database, ledger)) as opened:
        rows, grants = opened.granted_rows(), opened.grants()
    if form != "table":
        Destination(None, form).deliver(Result(as_arrow(GrantedRow, rows), False, 0.0))
        return
    view = empty_view("principal", "role", "dataset", "spent", "of", "functions", "expires", "notes")
    for row in rows:
        notes = ", ".join(name for name in ("share", "total") if getattr(row, name))
        cells = (row.principal, row.role, row.dataset, row.spent, row.cap or "the budget", row.functions or "all")
        view.add_row(*cells, (row.expires or "never")[:10], notes)
    console().print(view)
    token_view = empty_view("principal", "token", "expires")
    now = datetime.now(UTC)
    for principal in grants.principals:
        for token in grants.tokens_of(principal):
            token_view.add_row(principal, token.id, token.expires[:16] if token.stands(now) else "has expired")
    console().print(token_view)


def _read_days(text: str) -> int:
    match = _days(text)
    if match is None:
        raise click.UsageError(f"--expires must be a number of days, such as 90d; got {show(text)}.")
    return int(match.group(1))


def _listed(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]
