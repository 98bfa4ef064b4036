"""The process with the network: it takes requests, and has neither database nor ledger.

`dpsql.gateway.locked_front` starts it. It says on standard output where it listens, and ends when it is told to.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from pathlib import Path

from starlette.applications import Starlette

from dpsql.gateway import flight
from dpsql.gateway.addresses import Addresses
from dpsql.gateway.box import Boxes
from dpsql.gateway.door import Door
from dpsql.gateway.http import application
from dpsql.gateway.listening import Front, Listening
from dpsql.gateway.mcp import Purse, over_http
from dpsql.gateway.pages.asking import asking_routes
from dpsql.gateway.pages.owning import owning_routes


@dataclass(frozen=True)
class FrontSettings:
    """What a front is told when it is started, as JSON.

    Attributes
    ----------
    broker, boxes : str
        Their sockets.
    where : Listening
    agent_epsilon : str or None
        What models may spend for each token.
    serial : bool
        As of `Door`.
    flight_port : int or None
        Where Flight SQL is spoken; None for nowhere, 0 for a port that is free.
    locked : bool
        Whether the operating system keeps the process from files.
    owner : bool
        Whether this front has the pages of owners and auditors, and nothing else.
    """

    broker: str
    boxes: str
    where: Listening
    agent_epsilon: str | None = None
    serial: bool = False
    flight_port: int | None = None
    locked: bool = True
    owner: bool = False

    def to_json(self) -> str:
        """Return the settings as one argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, argument: str) -> FrontSettings:
        """Return the settings of an argument."""
        fields = json.loads(argument)
        return cls(**{**fields, "where": Listening(**fields["where"])})


def serve(settings: FrontSettings, listens: Callable[[str, str], None]) -> None:
    """Answer requests until the process is told to end.

    Parameters
    ----------
    settings : FrontSettings
    listens : callable
        Is told the addresses of HTTP and of Flight SQL, which may be empty, once both listen.
    """
    if settings.owner:
        Front(
            Starlette(routes=owning_routes(Door(settings.broker))),
            settings.where,
            lambda where: listens(where.url, ""),
        ).run()
        return
    door = Door(settings.broker, Boxes(Path(settings.boxes)), serial=settings.serial)
    cap = None if settings.agent_epsilon is None else Decimal(settings.agent_epsilon)
    route, models = over_http(door, Purse(cap), public_names=settings.where.public_names)
    spoken: list[str] = []
    addresses = Addresses(settings.where.trusted_proxies)

    @asynccontextmanager
    async def beside(app: Starlette) -> AsyncIterator[None]:
        async with models(app):
            if settings.flight_port is None:
                yield
                return
            endpoint = replace(settings.where, port=settings.flight_port)
            async with flight.serving(door, endpoint, spoken.append, addresses=addresses):
                yield

    Front(
        application(door, more=[route, *asking_routes(door)], lifespan=beside),
        settings.where,
        lambda where: listens(where.url, "".join(spoken)),
        addresses,
    ).run()


def main() -> None:
    """Serve as the one argument says."""
    os.umask(0o077)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    serve(FrontSettings.from_json(sys.argv[1]), lambda *addresses: print(*addresses, flush=True))
