"""The process with the network: it takes requests, and has neither database nor ledger.

`dpsql.gateway.locked_front` starts it. It says on standard output where it listens, and ends when it is told to.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path

from starlette.applications import Starlette

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
    locked: bool = True
    owner: bool = False

    def to_json(self) -> str:
        """Return the settings as one argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, given: str) -> FrontSettings:
        """Return the settings of an argument."""
        found = json.loads(given)
        return cls(**{**found, "where": Listening(**found["where"])})


def serve(settings: FrontSettings, listens: Callable[[Listening], None]) -> None:
    """Answer requests until the process is told to end."""
    if settings.owner:
        Front(Starlette(routes=owning_routes(Door(settings.broker))), settings.where, listens).run()
        return
    door = Door(settings.broker, Boxes(Path(settings.boxes)), serial=settings.serial)
    cap = None if settings.agent_epsilon is None else Decimal(settings.agent_epsilon)
    route, lifespan = over_http(door, Purse(cap), public_names=settings.where.public_names)
    Front(application(door, more=[route, *asking_routes(door)], lifespan=lifespan), settings.where, listens).run()


def main() -> None:
    """Serve as the one argument says."""
    os.umask(0o077)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    serve(FrontSettings.from_json(sys.argv[1]), lambda where: print(where.url, flush=True))
