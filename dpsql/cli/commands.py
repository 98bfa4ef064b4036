"""The `dpsql` commands: options and help; the modules next to this one do the work.

Owners let others query through the gateway with grant, revoke, token and principals. `serve` runs the gateway, and
`mcp` connects models to one.
"""

# ruff: noqa: D301 - click reads the character \b, not the two of a raw string, as "leave these lines alone".

from __future__ import annotations

import gc
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
    """Answer queries on DATABASE from clients with a token; nobody sees a row.

    dpsql grant and dpsql token let clients in. On first start, dpsql creates one token for all datasets with a budget
    and prints it once. Ctrl-C stops the gateway; the ledger keeps every charge.

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
    """Speak MCP on standard input and output, and query the gateway at URL with the token in DPSQL_TOKEN.

    For programs that start their own server; others connect to URL/mcp. Needs pip install 'dpsql[serve]'.

    \b
    DPSQL_TOKEN=dpsql_... dpsql mcp http://127.0.0.1:8642
    """


SERVE_COMMANDS = (serve, mcp)


Command = Callable[..., None]


def _option(field: GrantField) -> Callable[[Command], Command]:
    """Return the option for one field of a grant."""
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
    """Add an option for each field of a grant to a command."""
    for field in reversed(GRANT_FIELDS):
        command = _option(field)(command)
    return command


@click.command(short_help="Let somebody ask about a dataset through the gateway.")
@click.argument("principal")
@_grant_options
@place_options
@runs("principals.give_grant")
def grant() -> None:
    """Let PRINCIPAL query a dataset; this replaces an earlier grant. dpsql token makes a token.

    Caps share a budget: their sum may exceed the budget, and the budget decides last.

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
    """Revoke a grant, a token, or all grants and tokens of PRINCIPAL, from the next request on.

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
    """Make a token for PRINCIPAL and print it once: the ledger stores only its digest.

    \b
    dpsql token ana --db hospital.duckdb
    """


@click.command(short_help="Who may ask for what, and what they have spent.")
@place_options
@rows_option
@runs("principals.print_principals")
def principals() -> None:
    """Show every grant with its spending, and the tokens of each principal.

    \b
    dpsql principals --db hospital.duckdb
    """


PRINCIPAL_COMMANDS = (grant, revoke, token, principals)


class _Main(click.Group):
    """Command group that prints failures as one line on standard error and sets an exit code."""

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
            raise  # click exits quietly: the reader has closed the pipe
        except Exception as error:
            if isinstance(error, (click.ClickException, click.exceptions.Exit)):
                raise
            is_known = is_expected(error)
            say_error(clean_message(error) if is_known else str(unshown("the command", error, "Report it.")))
            ctx.exit(exit_code_of(error))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; if a database file is in its place, name the command that opens the file."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if not args[0].endswith((".duckdb", ".db")):
                raise
            message = f"{error.format_message()} An SQL prompt on it is dpsql shell {args[0]}."
            raise click.UsageError(message, ctx) from None

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the exit codes, which all commands share."""
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
    dpsql budget --db hospital.duckdb       spent and remaining budget
    """
    gc.set_threshold(100_000)  # what a command loads is no garbage: to look through it costs a tenth of a short one


@main.command()
@click.argument("database", required=False, default=MEMORY)
@click.option("--connect", metavar="URL", help="Ask a gateway, with the token in DPSQL_TOKEN.")
@database_options
@runs("shell.open_shell")
def shell() -> None:
    """Open an SQL prompt on DATABASE, or on an empty database in memory.

    Statements end in a semicolon. Tab completes, Ctrl-C stops a statement, Ctrl-D leaves, .help helps.
    Without a terminal, dpsql runs all statements from standard input; the exit code is the code
    of the first failure.

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

    Before it runs anything, dpsql parses the whole file, replaces each $NAME by its value, and prices the job. If the
    budgets cannot pay for the whole job, or a statement is certain to fail, dpsql runs nothing.

    A value is a number, true, false, a JSON list, or text. -o writes the rows of the last statement that has rows.

    A named release in the ledger is returned again at no cost, so you can run a job again after a failure.

    Calls name an engine as engine := 'lake'. Parquet files form one table with the engine's name.

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
    """Run SQL (- for standard input) once. Rows go to standard output, messages to standard error.

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
    """Show the total, spent and remaining budget of each dataset.

    Reads only the ledger, so it works while another process has the database open.

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
    """Show the owners' declarations for all datasets, or DATASET: limits, privacy units, bounds, keys; public tables.

    Reads only the ledger, so it works while another process has the database open.

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
    """Show a release by its name or ledger number: its call, its inputs, its guarantee and its result.

    With -o or --format, write its rows again, as the call returned them. This costs nothing.

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
    """Check the hash chain and every total; exit code 5 if something was changed."""


@ledger.command("backup")
@click.argument("destination", metavar="FILE")
@place_options
@runs("ledger_commands.backup_ledger")
def ledger_backup() -> None:
    """Copy the ledger into FILE, even while the ledger is in use; update an earlier backup in FILE.

    A backup never loses entries: FILE must be new or hold an earlier state of the same ledger.
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

    Restoring never loses entries: the ledger must hold an earlier state of the backup. Otherwise the command does
    nothing, unless you give --set-aside. With --db, the command prints the spending that the backup lacks;
    dpsql ledger accept charges it.
    """


@ledger.command("accept")
@place_options
@runs("ledger_commands.accept_ledger")
def ledger_accept() -> None:
    """Continue with a ledger that lost entries, was replaced, copied or moved.

    The database remembers the spending of each budget, period and grant. With --db, the command charges the ledger for
    spending that it lacks; if the amount is unknown, as for another ledger, it charges all remaining budget. The ledger
    records the charge. Close the database everywhere first.

    \b
    dpsql ledger accept --db hospital.duckdb
    """


@ledger.command("adopt")
@click.argument("database")
@ledger_option
@runs("ledger_commands.adopt_ledger")
def ledger_adopt() -> None:
    """Tie DATABASE to a ledger from now on; that ledger records the change as an entry.

    A database with a budget stores its ledger's ID and accepts no other ledger. Use this after you replace a ledger
    on purpose. Budgets do not come back: dpsql charges the new ledger for all that remained under the earlier ledger.
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
    """Draw a release, given by its name or ledger number, as it was released; this costs nothing.

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
    """Select features privately from a real clinical table, and show the receipt.

    Needs scikit-learn, which ships the table: pip install 'dpsql[demo]'.
    """


@main.command(short_help="Make a database of invented patients.")
@click.argument("database")
@runs("demo.make_example")
def example() -> None:
    """Create the documentation's example tables in DATABASE: invented patients, visits, scores and words.

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
    """Show the SQL that a STATEMENT would run, step by step, and its cost; or explain an error CODE.

    Reads, draws and charges nothing.

    \b
    dpsql explain "FROM dp_sis('patients', target := 'relapse', k := 3, epsilon := 1)" --db hospital.duckdb
    dpsql explain P001
    """


@main.command(short_help="Compile the kernels now.")
@runs("doctor.warm_up")
def warmup() -> None:
    """Compile the kernels now, into the cache on disk, rather than in the background of large work.

    Useful when you build a container image. Without it, nothing waits for a compiler: small work runs in NumPy.
    """


@main.command(short_help="Check that this installation works.")
@click.option("--db", "database", default=None, metavar="DATABASE", help="Also look at what is declared in this file.")
@runs("doctor.run_doctor")
def doctor() -> None:
    """Check that this installation works; exit code 1 if a check fails.

    With --db it lists the tables whose ENUM columns dpsql reads as text, because nothing declares that their labels are
    public, and prints the lines that declare them.
    """


for _command in (*PRINCIPAL_COMMANDS, *SERVE_COMMANDS):
    main.add_command(_command)
