"""The network process: it answers requests, and has neither database nor ledger.

`dpsql.gateway.locked_front` starts it. It prints its addresses on standard output, and ends on request.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from starlette.applications import Starlette

from dpsql.gateway import flight
from dpsql.gateway.addresses import Addresses
from dpsql.gateway.box import Boxes
from dpsql.gateway.door import Door
from dpsql.gateway.http import application
from dpsql.gateway.listening import Front, FrontSettings
from dpsql.gateway.mcp import Purse, over_http
from dpsql.gateway.pages.asking import asking_routes
from dpsql.gateway.pages.owning import owning_routes


def serve(settings: FrontSettings, listens: Callable[[str, str], None]) -> None:
    """Answer requests until the process ends.

    Parameters
    ----------
    settings : FrontSettings
    listens : callable
        Gets the HTTP and Flight SQL addresses once both listen; the latter may be empty.
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
    """Serve by the JSON argument."""
    os.umask(0o077)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    serve(FrontSettings.from_json(sys.argv[1]), lambda *addresses: print(*addresses, flush=True))
