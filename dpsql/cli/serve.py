"""Run a gateway from the command line: prepare the database, show the first token, and watch the processes."""

from __future__ import annotations

import math
import os
from contextlib import closing
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any

import click

from dpsql.cli.messages import say
from dpsql.cli.output import ledger_location, ledger_place
from dpsql.cli.runner import Runner
from dpsql.contract.parameters import show
from dpsql.errors import GatewayError
from dpsql.ledger import clock
from dpsql.ledger.grants import Grant, Issued
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.location import is_url
from dpsql.manual.demonstration import TABLES, fill

FIRST = "analyst"
# Budgets of the tables that --demo makes, with the hospital's wards, so that GROUP BY ward is answered as it is.
_WARDS = "keys := {ward: ['A', 'B', 'C']}"
_BUDGETS = (
    f"SELECT dp_protect('patients', epsilon := 10, delta := 1e-6, {_WARDS})",
    "SELECT dp_protect('visits', epsilon := 10, delta := 1e-6, privacy_unit := 'patient_id', max_rows_per_unit := 3, "
    f"{_WARDS})",
)


def serve_database(
    database: str | None,
    ledger: str | None,
    demo: bool,
    log: str | None,
    log_refused: bool,
    seconds: float,
    fixed_time: float | None,
    least_epsilon: str | None,
    serial: bool,
    without_os_sandbox: bool,
    agent_epsilon: str | None,
    oidc_issuer: str | None,
    oidc_audience: str | None,
    oidc_keys: str | None,
    owner_port: int | None,
    flight_port: int | None,
    no_flight: bool,
    front_user: str | None,
    **where: Any,
) -> None:
    """Serve a database until Ctrl-C or SIGTERM."""
    listening = _needing_extra("dpsql.gateway.listening")
    _check_provider(oidc_issuer, oidc_audience, oidc_keys)
    serving = import_module("dpsql.gateway.serving")
    cap, least_epsilon = _amount(agent_epsilon), _amount(least_epsilon, "--least-epsilon")
    _check_seconds(seconds, fixed_time)
    address = listening.Listening(**where)
    address.check()
    user = None if front_user is None else serving.FrontUser.from_name(front_user)
    if no_flight and flight_port is not None:
        raise click.UsageError("--flight-port has no effect beside --no-flight. Leave one of them out.")
    if flight_port is None:
        flight_port = address.port + 1 if 0 < address.port < 65535 else 0
    if database is None and not demo:
        raise click.UsageError("give DATABASE, or --demo for the example tables.")
    if database is not None and not demo and not Path(database).exists():
        raise click.UsageError(
            f"there is no database {show(database)}. Give one whose tables have a budget, or --demo."
        )
    owners = None if owner_port is None else listening.Listening(port=owner_port)
    flight = None if no_flight else replace(address, port=flight_port)
    _check_ports(address, owners, flight)
    log = _log_of(database, log, ledger)
    database = database or str(Path(mkdtemp(prefix="dpsql-demo-"), "demo.duckdb"))
    if demo and not Path(database).exists():
        _make_demo(database, ledger)
    with Runner(database, ledger=ledger, create=False) as runner:  # refused here rather than in another process
        import_module("dpsql.gateway.broker").begin_time(runner.ledger, clock.system())
        datasets = [row.dataset for row in runner.ledger.budgets()]
        for name, parts in import_module("dpsql.gateway.raising").raising(runner.context).items():
            say(
                f"Note: {name} may raise an error on a row, which tells of it: {', '.join(parts)}. Write TRY_CAST, TRY."
            )
    place_of_ledger, log = ledger_place(database, ledger), log or f"{database}.dpsql-audit"
    if user is not None:
        files = [database, log, *([] if is_url(place_of_ledger) else [place_of_ledger])]
        user.check(stores=files, needed=[path for path in (address.tls_cert, address.tls_key) if path is not None])
    first = _lets_nobody_in(ledger_location(database, ledger))
    if first and not datasets:
        raise click.ClickException("no dataset has a budget, so there is nothing to ask. Give one with dp_protect.")

    def front_settings(broker: str, boxes: str) -> str:
        port, locked = None if no_flight else flight_port, not without_os_sandbox
        return str(listening.FrontSettings(broker, boxes, address, cap, serial, port, locked).to_json())

    def owning(broker: str, boxes: str) -> str:
        return str(listening.FrontSettings(broker, boxes, owners, locked=not without_os_sandbox, owner=True).to_json())

    settings = serving.ServeSettings(
        database,
        front_settings,
        ledger=place_of_ledger,
        log=log,
        log_refused=log_refused,
        seconds=seconds,
        fixed_time=fixed_time,
        least_epsilon=least_epsilon,
        oidc_issuer=oidc_issuer,
        oidc_audience=oidc_audience,
        oidc_keys=oidc_keys,
        without_os_sandbox=without_os_sandbox,
        owner=None if owner_port is None else owning,
        front_user=user,
    )
    with serving.Serving(settings) as running:
        say(f"{running.url} answers. Ctrl-C ends it.")
        if running.owner_url:
            say(f"{running.owner_url} is for owners and auditors.")
        if running.flight_url:
            say(f"{running.flight_url} is for drivers of Arrow Flight SQL.")
        if first:  # only now: a failed start would lose the token
            issued = _first_token(ledger_location(database, ledger), list(dict.fromkeys(datasets)))
            say(f"Token of {FIRST}, until {issued.token.expires[:10]}; it is not shown again:")
            click.echo(issued.text)
        running.watch()


def serve_models(url: str, agent_epsilon: str | None) -> None:
    """Speak MCP over standard input and output, for a remote gateway."""
    mcp = _needing_extra("dpsql.gateway.mcp")
    remote = import_module("dpsql.remote")
    cap = _amount(agent_epsilon)
    purse = mcp.Purse(None if cap is None else Decimal(cap))
    token = remote.saved_token(url)
    mcp.over_stdio(import_module("dpsql.gateway.afar").DoorAfar(url, token), token, purse)


def _needing_extra(module: str) -> ModuleType:
    """Return a module of the extra `serve`, or name the missing extra."""
    if not all(map(find_spec, ("starlette", "uvicorn", "mcp", "grpc"))):
        raise click.ClickException("a gateway needs more packages. Run: pip install 'dpsql[serve]'")
    return import_module(module)


def _check_provider(issuer: str | None, audience: str | None, keys: str | None) -> None:
    """Refuse an incomplete identity provider, and a file without keys."""
    if issuer is None and audience is None and keys is None:
        return
    if not (issuer and audience and keys):
        raise GatewayError("G025", "an identity provider needs --oidc-issuer, --oidc-audience and --oidc-keys.")
    if not all(map(find_spec, ("jwt", "cryptography"))):
        raise click.ClickException("tokens of an identity provider need more packages: pip install 'dpsql[oidc]'")
    try:
        usable = "://" in keys or bool(import_module("dpsql.gateway.keys").keys_of(Path(keys).read_bytes()))
    except (OSError, ValueError):
        usable = False
    if not usable:
        raise GatewayError("G025", "the file of --oidc-keys is not there, or has no keys that can be used.")


def _check_ports(*addresses: Any) -> None:
    """Refuse ports that are in use, or named twice."""
    listeners = [address for address in addresses if address is not None]
    ports = [listener.port for listener in listeners if listener.port != 0]
    if len(ports) != len(set(ports)):
        raise click.UsageError("--port, --owner-port and --flight-port must be different ones.")
    for listener in listeners:
        listener.check_free()


def _log_of(database: str | None, log: str | None, ledger: str | None) -> str | None:
    """Return the place of the log; refuse a place that is not writable, or contains something else."""
    if log is None:
        return None
    path = Path(log)
    others = [Path(location) for location in (database, ledger) if location is not None and not is_url(location)]
    others += [] if database is None else [Path(ledger_place(database, None))]
    if path.resolve() in [other.resolve() for other in others]:
        raise click.UsageError("--log would write into the database or the ledger. Give another file.")
    if path.is_dir() or not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise click.UsageError(f"--log cannot be written to {show(log)}. Give a file in a folder that is there.")
    return log


def _amount(text: str | None, option: str = "--agent-epsilon") -> str | None:
    try:
        good = text is None or (Decimal(text).is_finite() and Decimal(text) >= 0)
    except InvalidOperation:
        good = False
    if not good:
        raise click.UsageError(f"{option} must be a number from 0 on; got {show(text)}.")
    return text


def _check_seconds(seconds: float, fixed_time: float | None) -> None:
    """Refuse invalid times, and times that would interrupt every answer."""
    if not math.isfinite(seconds) or not (fixed_time is None or math.isfinite(fixed_time)):
        raise click.UsageError("--seconds and --fixed-time must be finite.")


def _make_demo(database: str, ledger: str | None) -> None:
    with Runner(database, ledger=ledger) as runner:
        fill(runner.context)
        for statement in _BUDGETS:
            runner.context.sql(statement)
    say(f"{database}: made, with the example tables {', '.join(TABLES)}; two of them have a budget.")


def _lets_nobody_in(location: str) -> bool:
    """Whether no principal has access yet."""
    with closing(Ledger.open(location)) as opened:
        return not opened.grants().principals


def _first_token(location: str, datasets: list[str]) -> Issued:
    """Give one principal access to all datasets, and return its token."""
    with closing(Ledger.open(location)) as opened:
        for dataset in datasets:
            opened.grant(Grant(FIRST, dataset))
        return opened.issue_token(FIRST)
