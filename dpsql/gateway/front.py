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

from dpsql.gateway.box import Boxes
from dpsql.gateway.door import Door
from dpsql.gateway.http import application
from dpsql.gateway.listening import Front, Listening
from dpsql.gateway.mcp import Purse, over_http


@dataclass(frozen=True)
class FrontSettings:
    """What a front is told when it is started, as JSON.

    Attributes
    ----------
    broker, boxes : str
        Their sockets.
    where : Listening
    public_names : list of str
    agent_epsilon : str or None
        What models may spend for each token.
    locked : bool
        Whether the operating system keeps the process from files.
    """

    broker: str
    boxes: str
    where: Listening
    public_names: list[str]
    agent_epsilon: str | None = None
    locked: bool = True

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
    door = Door(settings.broker, Boxes(Path(settings.boxes)))
    cap = None if settings.agent_epsilon is None else Decimal(settings.agent_epsilon)
    route, lifespan = over_http(door, Purse(cap), public_names=settings.public_names)
    Front(application(door, more=[route], lifespan=lifespan), settings.where, listens).run()


def main() -> None:
    """Serve as the one argument says."""
    os.umask(0o077)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    serve(FrontSettings.from_json(sys.argv[1]), lambda where: print(where.url, flush=True))
