"""Boxes for tests: the process that they are forked from, while a test runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpsql.gateway import sandbox
from dpsql.gateway.box import Boxes
from dpsql.gateway.serving import Process, boxes_at

LOCKED = sandbox.available().is_complete


@contextmanager
def boxes_in(folder: Path) -> Iterator[Boxes]:
    """Serve boxes by a socket in a folder, which is made where it is not there."""
    folder.mkdir(mode=0o700, exist_ok=True)
    with running(boxes_at(str(folder / "zygote"), locked=LOCKED), folder / "zygote") as found:
        yield found


@contextmanager
def running(process: Process, path: Path) -> Iterator[Boxes]:
    """Run a process that serves boxes, and wait until it listens."""
    process.start()
    try:
        end = time.monotonic() + 300
        while not path.exists():
            assert process.runs, "the process that boxes are forked from has ended"
            assert time.monotonic() < end, "it does not listen"
            time.sleep(0.02)
        yield Boxes(path, seconds=120)
    finally:
        process.end()
