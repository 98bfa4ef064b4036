"""The commands of the gateway: serve, and mcp for models."""

# ruff: noqa: D301 - click takes the character \b, not the two of a raw text, for "leave these lines alone".

from __future__ import annotations

import click

from dpsql.cli.options import ledger_option, runs

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
