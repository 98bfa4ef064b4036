"""The commands by which an owner lets others ask through the gateway: grant, revoke, token and principals."""

# ruff: noqa: D301 - click takes the character \b, not the two of a raw text, for "leave these lines alone".

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from dpsql.cli.options import place_options, rows_option, runs
from dpsql.contract.grant_fields import GRANT_FIELDS, USUAL_DAYS, GrantField

Command = Callable[..., None]


def _option(field: GrantField) -> Callable[[Command], Command]:
    """Return the option that says one thing of a grant."""
    if field.kind == "days":
        return click.option(
            "--expires", metavar="DAYS", default=f"{USUAL_DAYS}d", show_default=True, help=field.help or None
        )
    kinds: dict[str, dict[str, Any]] = {"number": {"type": float}, "names": {"metavar": "NAMES"}, "text": {}}
    kinds["flag"] = {"is_flag": True}
    if field.kind == "choice":
        words = [one for one in field.choices if one]
        usual = {} if "" in field.choices else {"default": words[0], "show_default": True}
        kinds["choice"] = {"type": click.Choice(words), **usual}
    name = field.name.replace("_", "-")
    return click.option(f"--{name}", help=field.help or None, required=field.needed, **kinds[field.kind])


def _grant_options(command: Command) -> Command:
    """Give a command an option for all that is said of a grant."""
    for field in reversed(GRANT_FIELDS):
        command = _option(field)(command)
    return command


@click.command(short_help="Let somebody ask about a dataset through the gateway.")
@click.argument("principal")
@_grant_options
@place_options
@runs("principals.give_grant")
def grant() -> None:
    """Let PRINCIPAL ask about a dataset, in place of what was granted before; dpsql token makes a token.

    Caps share out a budget: they may sum to more than it, and the budget decides last.

    \b
    dpsql grant ana --dataset visits --epsilon 5 --delta 1e-6 --db hospital.duckdb
    dpsql grant ben --dataset visits --epsilon 1 --per month --db hospital.duckdb
    dpsql grant board --dataset visits --functions dp_count,dp_query --share \\
        --default-epsilon 0.1 --expires 30d --db hospital.duckdb
    """


@click.command(short_help="Take back a grant, a token, or everything.")
@click.argument("principal")
@click.option("--dataset", help="Only the grant on this dataset.")
@click.option("--token", metavar="ID", help="Only the token whose first characters behind dpsql_ are these.")
@place_options
@runs("principals.take_back")
def revoke() -> None:
    """Take from PRINCIPAL a grant, a token, or all of them; it holds from the next request on.

    \b
    dpsql revoke ana --db hospital.duckdb
    dpsql revoke ana --token BSyYEDuq --db hospital.duckdb
    """


@click.command(short_help="Make a token, which is shown this once.")
@click.argument("principal")
@click.option("--expires", metavar="DAYS", default=f"{USUAL_DAYS}d", show_default=True)
@click.option("--now", is_flag=True, help="End earlier tokens at once; else they hold for 24 hours more.")
@place_options
@runs("principals.make_token")
def token() -> None:
    """Make a token of PRINCIPAL and print it. The ledger keeps its digest only, so it cannot be shown again.

    \b
    dpsql token ana --db hospital.duckdb
    """


@click.command(short_help="Who may ask for what, and what they have spent.")
@place_options
@rows_option
@runs("principals.print_principals")
def principals() -> None:
    """Show every grant with what was spent of it, and the tokens of each principal.

    \b
    dpsql principals --db hospital.duckdb
    """


PRINCIPAL_COMMANDS = (grant, revoke, token, principals)
