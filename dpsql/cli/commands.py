"""The `dpsql` commands: options and help; the modules beside this one do the work.

**Grants.** The commands by which an owner lets others ask through the gateway: grant, revoke, token and principals.

**Gateway.** The commands of the gateway: serve, and mcp for models.
"""

# ruff: noqa: D301 - click takes the character \b, not the two of a raw text, for "leave these lines alone".

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dpsql.cli.messages import (
    MEANING,
    clean_message,
    exit_code_of,
    is_expected,
    never_fail_to_print,
    say_error,
    stand_in_for_closed_streams,
    stop_message,
)
from dpsql.cli.options import (
    FILE,
    MEMORY,
    database_options,
    db_option,
    engine_option,
    format_option,
    ledger_option,
    output_option,
    place_options,
    rows_option,
    runs,
)
from dpsql.cli.stopping import Terminated, raise_on_terminate
from dpsql.contract.boundary import unshown
from dpsql.contract.grant_fields import GRANT_FIELDS, USUAL_DAYS, GrantField
from dpsql.version import __version__

_agent_option = click.option(
    "--agent-epsilon", metavar="EPSILON", help="All that a model may spend with one token until this program ends."
)


@click.command(short_help="Let others ask with a token: HTTP, Flight SQL, MCP.")
@click.argument("database", required=False)
@ledger_option
@click.option(
    "--demo", is_flag=True, help="Make the example tables, with budgets, if DATABASE is not there or not given."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8642, show_default=True, help="0 for one that is free.")
@click.option(
    "--owner-port", type=click.IntRange(0, 65535), help="Pages for owners and auditors, on this machine alone."
)
@click.option(
    "--flight-port", type=click.IntRange(0, 65535), help="For Arrow Flight SQL; the one after --port by default."
)
@click.option("--no-flight", is_flag=True, help="Do not speak Arrow Flight SQL.")
@click.option("--tls-cert", metavar="FILE", help="Certificate, in PEM.")
@click.option("--tls-key", metavar="FILE", help="Its key.")
@click.option("--insecure-plaintext", is_flag=True, help="Listen on other addresses than this machine's without TLS.")
@click.option("--public-name", "public_names", multiple=True, metavar="NAME", help="Name by which clients find it.")
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Proxy whose X-Forwarded-For says who asks; any other's is ignored.",
)
@click.option("--oidc-issuer", metavar="URL", help="Identity provider whose tokens (JWT) are taken, too.")
@click.option("--oidc-audience", metavar="NAME", help="What its tokens call this gateway.")
@click.option(
    "--oidc-keys", metavar="FILE|URL", help="Its public keys, a JWK Set; fetched from a URL every ten minutes."
)
@_agent_option
@click.option("--seconds", type=click.FloatRange(1), default=120, show_default=True, help="The most for one release.")
@click.option("--fixed-time", type=click.FloatRange(0.1), help="New answers all come after so many seconds.")
@click.option(
    "--least-epsilon",
    metavar="EPSILON",
    default="0.01",
    show_default=True,
    help="What a new question spends at least, so that its response time has a price; 0 for no such limit.",
)
@click.option("--serial", is_flag=True, help="No statement is read while another one's release runs.")
@click.option("--log", metavar="FILE", help="Who asked what and when; x.duckdb.dpsql-audit beside x.duckdb by default.")
@click.option("--log-refused", is_flag=True, help="Write there what was refused, as it was asked.")
@click.option("--front-user", metavar="NAME", help="User of the processes without data; needs root, or its rights.")
@click.option("--without-os-sandbox", is_flag=True, help="Where the system cannot lock processes (no Landlock).")
@runs("serve.serve_database")
def serve() -> None:
    """Answer questions about DATABASE for those who have a token; nobody sees a row.

    dpsql grant and dpsql token let somebody in. Where nobody was let in yet, one token for all datasets with a
    budget is made, and shown this once. Ctrl-C ends it; what was charged is kept.

    Needs pip install 'dpsql[serve]'.

    \b
    dpsql serve --demo
    dpsql serve hospital.duckdb
    dpsql serve hospital.duckdb --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
    """


@click.command(short_help="Let a model on this machine ask a gateway.")
@click.argument("url")
@_agent_option
@runs("serve.serve_models")
def mcp() -> None:
    """Speak MCP on standard input and output, and ask the gateway at URL with the token in DPSQL_TOKEN.

    For programs that start a server of their own; others connect to URL/mcp. Needs pip install 'dpsql[serve]'.

    \b
    DPSQL_TOKEN=dpsql_... dpsql mcp http://127.0.0.1:8642
    """


SERVE_COMMANDS = (serve, mcp)


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
        words = [choice for choice in field.choices if choice]
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


class _Main(click.Group):
    """A group that turns failures into one line on standard error and an exit code."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        stand_in_for_closed_streams()
        never_fail_to_print()
        raise_on_terminate()
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, Terminated) as stop:
            say_error(stop_message(stop))
            ctx.exit(exit_code_of(stop))
        except BrokenPipeError:
            raise  # click exits quietly: nobody reads the output any more
        except Exception as error:
            if isinstance(error, (click.ClickException, click.exceptions.Exit)):
                raise
            is_known = is_expected(error)
            say_error(clean_message(error) if is_known else str(unshown("the command", error, "Report it.")))
            ctx.exit(exit_code_of(error))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; where a database stands in its place, name the command that opens it."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if not args[0].endswith((".duckdb", ".db")):
                raise
            message = f"{error.format_message()} An SQL prompt on it is dpsql shell {args[0]}."
            raise click.UsageError(message, ctx) from None

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the exit codes, which are those of every command."""
        with formatter.section("Exit codes of every command"):
            formatter.write_dl([(str(code), meaning) for code, meaning in MEANING.items()])


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="dpsql")
def main() -> None:
    """Differentially private analytics inside DuckDB, under one durable budget.

    \b
    dpsql demo                              a private selection on real data
    dpsql shell hospital.duckdb             an SQL prompt with the dp_ functions
    dpsql query "FROM dp_budget()" --db hospital.duckdb --format json
    dpsql budget --db hospital.duckdb       what is spent, what remains
    """


@main.command()
@click.argument("database", required=False, default=MEMORY)
@click.option("--connect", metavar="URL", help="Ask a gateway, with the token in DPSQL_TOKEN.")
@database_options
@runs("shell.open_shell")
def shell() -> None:
    """Open an SQL prompt on DATABASE, or on an empty one in memory.

    Statements end in a semicolon. Tab completes, Ctrl-C stops a statement, Ctrl-D leaves, .help helps.
    Off a terminal, statements are read from standard input; all are run, and the exit code is that
    of the first one that failed.

    \b
    dpsql shell hospital.duckdb --strict
    dpsql shell --connect https://dpsql.example.org
    echo "FROM dp_ledger();" | dpsql shell hospital.duckdb
    """


@main.command(short_help="Run the statements of a file as a job, up to the first error.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@db_option
@click.option("-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE", help="The value of $NAME.")
@click.option("--dry-run", is_flag=True, help="Show what the job would cost; read no row, and charge nothing.")
@output_option
@format_option
@click.option(
    "--receipt", type=FILE, help="Write here, as JSON, what ran and what it was charged; also after a failure."
)
@click.option(
    "--log-format", type=click.Choice(("text", "json")), default="text", help="Of what is told on standard error."
)
@database_options
@runs("job_command.run_file")
def run() -> None:
    """Run the statements of FILE (- for standard input) in order, up to the first error.

    Before anything is run, the whole file is parsed, values stand in place of $NAME, and the job is priced: if its
    budgets cannot pay for all of it, or a statement is certain to fail, nothing is run.

    A value is a number, true, false, a JSON list, or text. -o takes the rows of the last statement that has any.

    A named release that is in the ledger is returned again at no cost, so a job can be run again after a failure.

    An engine's name is what calls give as engine := 'lake'. Parquet files are one table, of the engine's name.

    \b
    dpsql run release.sql --db hospital.duckdb
    dpsql run nightly.sql --db hospital.duckdb -p day=2026-11-23 -p epsilon=0.5 --dry-run
    dpsql run nightly.sql --db hospital.duckdb -p day=2026-11-23 -p epsilon=0.5 --receipt receipt.json
    dpsql run release.sql --engine lake=sc://localhost:15002 --ledger postgresql://dpsql@host/ledger
    dpsql run release.sql --engine visits=polars:/data/visits/*.parquet --ledger visits.dpsql-ledger
    """


@main.command(short_help="Run SQL once; print its rows or write them to a file.")
@click.argument("sql")
@db_option
@format_option
@output_option
@click.option("--private", is_flag=True, help="SQL is one SELECT of plain SQL, which dp_query answers privately.")
@click.option("--epsilon", help="What a private query may spend.")
@click.option("--delta", help="Chance that the guarantee of a private query fails; without it pure DP.")
@database_options
@runs("release_commands.run_query")
def query() -> None:
    """Run SQL (- for standard input) once, and print its rows: data on standard output, all else on standard error.

    \b
    dpsql query --private "SELECT ward, count(*) FROM visits GROUP BY ward" --epsilon 0.5 --db hospital.duckdb
    dpsql query "FROM dp_sis('t', target := 'y', k := 5, epsilon := 1, lower := 0, upper := 9)" \\
        --db hospital.duckdb --format csv -o selection.csv
    """


@main.command()
@place_options
@rows_option
@runs("ledger_commands.print_budget")
def budget() -> None:
    """Show what each dataset may spend, has spent, and has left.

    Reads the ledger alone, so it works while another process has the database open.

    \b
    dpsql budget --db hospital.duckdb
    dpsql budget --ledger postgresql://dpsql@host/ledger --format json
    """


@main.command(short_help="What the data's owners stated: bounds, keys and limits.")
@click.argument("dataset", required=False)
@place_options
@rows_option
@runs("ledger_commands.print_policy")
def policy() -> None:
    """Show what owners stated of all datasets, or of DATASET: limits, privacy units, bounds, keys; public tables.

    Reads the ledger alone, so it works while another process has the database open.

    \b
    dpsql policy --db hospital.duckdb
    dpsql policy patients --db hospital.duckdb --format json
    """


@main.command("show", short_help="What a release was, what it read, and what it gave.")
@click.argument("release")
@click.option("--dataset", help="Only of this dataset, where several have a release of the name.")
@output_option
@format_option
@place_options
@runs("release_commands.print_release")
def show_release() -> None:
    """Show a release by its name or its number in the ledger: its call, what it read, its guarantee and its result.

    With -o or --format, write its rows again, as the call returned them. It costs nothing.

    \b
    dpsql show sel --db hospital.duckdb
    dpsql show 12 --ledger postgresql://dpsql@host/ledger
    dpsql show 12 --db hospital.duckdb -o counts.parquet
    """


@main.group(invoke_without_command=True)
@place_options
@rows_option
@click.pass_context
def ledger(context: click.Context, /, **options: object) -> None:
    """Show the entries of a ledger; verify, back up, restore, accept or adopt it.

    \b
    dpsql ledger --db hospital.duckdb
    dpsql ledger verify --db hospital.duckdb --head 0c3dd8db…
    dpsql ledger backup --db hospital.duckdb /backups/patients.dpsql-ledger
    """
    if context.invoked_subcommand is None:
        context.invoke(ledger_list, **options)


@ledger.command("list")
@place_options
@rows_option
@runs("ledger_commands.print_ledger")
def ledger_list() -> None:
    """Show the entries, oldest first."""


@ledger.command("verify")
@place_options
@click.option(
    "--head", metavar="HASH", help="A hash noted earlier: shows whether rows were cut off or rewritten since."
)
@runs("ledger_commands.verify_ledger")
def ledger_verify() -> None:
    """Walk the hash chain and add up every total; exit code 5 when something was changed."""


@ledger.command("backup")
@click.argument("destination", metavar="FILE")
@place_options
@runs("ledger_commands.backup_ledger")
def ledger_backup() -> None:
    """Copy the ledger into FILE, also while it is in use; an earlier backup there is brought up to date.

    A backup never loses entries: FILE may hold an earlier state of the same ledger, and nothing else.
    """


@ledger.command("restore")
@click.argument("source", metavar="FILE")
@place_options
@click.option(
    "--set-aside",
    is_flag=True,
    help="Rename a ledger that has other entries, or is damaged, and begin again from FILE.",
)
@runs("ledger_commands.restore_ledger")
def ledger_restore() -> None:
    """Bring the ledger up to the backup FILE.

    Entries that only the ledger has are never lost: it must hold an earlier state of the backup. Otherwise nothing
    is done, unless you say --set-aside. With --db, the command says what the database remembers beyond the backup;
    dpsql ledger accept charges it.
    """


@ledger.command("accept")
@place_options
@runs("ledger_commands.accept_ledger")
def ledger_accept() -> None:
    """Go on with a ledger that has lost entries, was replaced, or was copied or moved.

    The database remembers what was spent of each budget, period and grant. With --db, the ledger is charged what it
    does not hold of that; where nobody knows how much that was, as for another ledger, all that remains. The ledger
    records it. Close the database everywhere first.

    \b
    dpsql ledger accept --db hospital.duckdb
    """


@ledger.command("adopt")
@click.argument("database")
@ledger_option
@runs("ledger_commands.adopt_ledger")
def ledger_adopt() -> None:
    """Tie DATABASE to a ledger from now on; the change is an entry of that ledger.

    A database with a budget is marked with its ledger, and no other ledger is accepted. Use this after a ledger
    was deliberately replaced. Budgets do not come back: the new ledger is charged all that remained of them under the
    earlier one.
    """


@main.command(short_help="Draw a release, or the budgets.")
@click.argument("release", required=False)
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="A .png, .svg or .pdf file."
)
@click.option("--kind", help="Of a ROC curve: roc, precision_recall or calibration.")
@click.option("--budget", "budgets", is_flag=True, help="Draw what each dataset has spent instead of a release.")
@click.option("--dataset", help="The dataset of the release, where two have one of that name.")
@place_options
@runs("release_commands.draw")
def plot() -> None:
    """Draw a release, named by its name or its number in the ledger, as it was released; costs nothing.

    Needs Matplotlib: pip install 'dpsql[plot]'.

    \b
    dpsql plot roc_of_may --db hospital.duckdb -o roc.svg
    dpsql plot 12 --kind calibration --db hospital.duckdb -o calibration.png
    dpsql plot --budget --db hospital.duckdb -o budget.png
    """


@main.command(short_help="A private selection on real clinical data, with its receipt.")
@click.option("--db", "database", default=MEMORY, metavar="DATABASE", help="Keep table and ledger in this DuckDB file.")
@ledger_option
@runs("demo.run_demo")
def demo() -> None:
    """Select features privately from a real clinical table, and read the receipt.

    Needs scikit-learn, which ships the table: pip install 'dpsql[demo]'.
    """


@main.command(short_help="Make a database of invented patients.")
@click.argument("database")
@runs("demo.make_example")
def example() -> None:
    """Make the example tables of the documentation in DATABASE: invented patients, visits, scores and words.

    \b
    dpsql example hospital.duckdb
    dpsql shell hospital.duckdb
    """


@main.command(short_help="What a statement would run and charge, or what an error code means.")
@click.argument("what", metavar="STATEMENT|CODE")
@db_option
@engine_option
@ledger_option
@runs("explain.explain")
def explain() -> None:
    """Show the SQL that a STATEMENT would run, step by step, and what it would charge; or explain an error CODE.

    Nothing is read, drawn or charged.

    \b
    dpsql explain "FROM dp_sis('patients', target := 'relapse', k := 3, epsilon := 1)" --db hospital.duckdb
    dpsql explain P001
    """


@main.command(short_help="Compile the kernels now.")
@runs("doctor.warm_up")
def warmup() -> None:
    """Compile the kernels now, into the cache on disk, rather than in the background of large work.

    Worth a line in the recipe of a container image. Without it nothing waits for a compiler: small work runs in NumPy.
    """


@main.command(short_help="Check that this installation works.")
@click.option("--db", "database", default=None, metavar="DATABASE", help="Also look at what is declared in this file.")
@runs("doctor.run_doctor")
def doctor() -> None:
    """Check that this installation works; exit code 1 when something does not.

    With --db it lists the tables whose ENUM columns are read as text, since nothing says that their labels were known
    without the rows, with the lines that declare them.
    """


for _command in (*PRINCIPAL_COMMANDS, *SERVE_COMMANDS):
    main.add_command(_command)
