"""The commands by which an owner lets others ask through the gateway: grant, revoke, token and principals."""

# ruff: noqa: D301 - click takes the character \b, not the two of a raw text, for "leave these lines alone".

from __future__ import annotations

import click

from dpsql.cli.options import place_options, rows_option, runs
from dpsql.contract.periods import PERIODS
from dpsql.ledger.grants import ROLES, USUAL_DAYS


@click.command(short_help="Let somebody ask about a dataset through the gateway.")
@click.argument("principal")
@click.option("--dataset", required=True, help="The budget that may be asked about.")
@click.option(
    "--epsilon", type=float, help="All that this principal may spend of it; by default its budget is the limit."
)
@click.option("--delta", type=float, help="The same of delta; none by default.")
@click.option("--rho", type=float, help="In place of epsilon and delta, for a budget in rho.")
@click.option("--per", type=click.Choice(PERIODS), help="The cap is for each such period of the calendar, in UTC.")
@click.option("--default-epsilon", type=float, help="What a question spends that does not say.")
@click.option("--functions", metavar="NAMES", help="Functions that may be called, separated by commas; all by default.")
@click.option("--sources", metavar="NAMES", help="Tables or views to ask about; those of the dataset by default.")
@click.option("--role", type=click.Choice(ROLES), default=ROLES[0], show_default=True)
@click.option("--expires", metavar="DAYS", default=f"{USUAL_DAYS}d", show_default=True, help="Or never.")
@click.option("--subject", help="What the identity provider of the gateway calls this principal.")
@click.option("--share", is_flag=True, help="Equal questions of all who share have one answer, charged once.")
@click.option("--total", is_flag=True, help="Show what is spent of the dataset as a whole.")
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
