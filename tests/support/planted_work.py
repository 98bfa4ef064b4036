"""Spark with faults planted in its workers: tasks that fail, die, wait or draw, and what their calls are charged."""

from __future__ import annotations

import gc
import hashlib
import os
import random
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.engines.attached import Attached
from dpsql.engines.driver import received
from dpsql.engines.port import Work
from support.tasks import merged, state_of

try:
    from dpsql.engines.spark import SparkEngine
except ModuleNotFoundError:  # the tests on Spark are skipped
    SparkEngine = object  # type: ignore[assignment, misc]

ROWS = 900
SECRET = "planted-4711"
Call = tuple[str, dict[str, Any]]
COUNT: Call = ("dp_avg", {"target": "a", "lower": -2, "upper": 2, "by": "name", "keys": [SECRET]})
UNITS: Call = (
    "dp_quantile",
    {"target": "a", "lower": -2, "upper": 2, "cells": 1024, "privacy_unit": "pid", "max_rows_per_unit": 2},
)


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for what will be true soon, or raise."""
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("what a test waits for does not come")
        time.sleep(0.02)


@contextmanager
def drawing_fails() -> Iterator[None]:
    """Let everything that draws raise."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a worker draws")

    sources: list[tuple[Any, str]] = [(os, "urandom"), (secrets, "token_bytes"), (random, "random")]
    sources += [(np.random, "default_rng"), (np.random, "random")]
    with ExitStack() as stack:
        for owner, name in sources:
            stack.enter_context(patch.object(owner, name, fail))
        # Names in a statement are drawn, so that no source can have them; they decide nothing.
        stack.enter_context(patch.object(secrets, "token_hex", lambda size: "a" * size))
        yield


@dataclass
class Planted:
    """A work whose first attempt at every task goes wrong.

    Attributes
    ----------
    work : Work
    fault : str
        Before or after its record the attempt raises (``'before'``, ``'after'``); its process dies (``'dies'``); it
        waits (``'waits'``), or until the engine lets it go on (``'held'``); one alone does so with its record made
        (``'straggles'``); none may draw (``'entropy'``).
    folder : str
        Every attempt at some rows leaves a file there, which names its host.
    """

    work: Work
    fault: str
    folder: str

    @property
    def record(self) -> pa.Schema:
        return self.work.record

    @property
    def is_direct(self) -> bool:
        return self.work.is_direct

    @property
    def is_wide(self) -> bool:
        return self.work.is_wide

    @property
    def parts(self) -> int:
        return self.work.parts

    def merge(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.work.merge(records)

    def part_of(self, rows: pa.Table) -> pa.Array:
        return self.work.part_of(rows)

    def split(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with drawing_fails() if self.fault == "entropy" else nullcontext():
            yield from list(self.work.split(batches))

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batches = list(batches)
        goes_wrong = bool(batches) and self._is_first(batches) and (self.fault != "straggles" or self._is_alone())
        if goes_wrong and self.fault == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if goes_wrong and self.fault == "waits":
            time.sleep(4)
        if goes_wrong and self.fault == "held":
            wait_until(Path(f"{self.folder}.go").exists)
        with drawing_fails() if self.fault == "entropy" else nullcontext():
            records = list(self.work.run(self._broken(batches) if goes_wrong else batches))
        if goes_wrong and self.fault == "straggles":
            wait_until(Path(f"{self.folder}.go").exists)
        yield from records
        if goes_wrong and self.fault == "after":
            raise RuntimeError("planted")

    def _is_first(self, batches: Sequence[pa.RecordBatch]) -> bool:
        """Whether no attempt was made at these rows; every attempt leaves a file."""
        # A shuffle may bring them in another order.
        shown = sorted(repr(row) for batch in batches for row in batch.to_pylist())
        rows = hashlib.sha256("\n".join(shown).encode()).hexdigest()[:16]
        for number in range(9):
            try:
                with Path(self.folder, f"{rows}.{number}").open("x") as file:
                    file.write(os.readlink("/proc/self/ns/net"))
            except FileExistsError:
                continue
            return number == 0
        raise RuntimeError("too many attempts")

    def _is_alone(self) -> bool:
        """Whether no other attempt has asked this."""
        try:
            Path(f"{self.folder}.one").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _broken(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if self.fault == "before":
            raise ValueError(f"cannot read {SECRET}")


class PlantedEngine(SparkEngine):
    """Spark with a fault in its workers."""

    def __init__(self, session: Any, fault: str, folder: Path) -> None:
        super().__init__(session)
        self.fault, self.folder = fault, folder
        self.found: list[tuple[Any, list[str], list[pa.RecordBatch]]] = []

    def fold(self, source: object, columns: Sequence[str], work: Work) -> list[pa.RecordBatch]:
        records = super().fold(source, columns, Planted(work, self.fault, str(self.folder)))
        self.found.append((work, list(columns), records))
        return records

    def fold_parts(self, source: object, columns: Sequence[str], work: Work) -> list[pa.RecordBatch]:
        records = super().fold_parts(source, columns, Planted(work, self.fault, str(self.folder)))
        self.found.append((work, list(columns), records))
        return records

    @property
    def attempts(self) -> int:
        return len(list(self.folder.iterdir()))

    def go_on(self) -> None:
        """Let the attempts go on that are held."""
        Path(f"{self.folder}.go").touch()


@contextmanager
def while_held(engine: PlantedEngine, strike: Callable[[], None]) -> Iterator[None]:
    """Strike from another thread once an attempt holds rows, and then let the attempts go on."""

    def act() -> None:
        wait_until(lambda: engine.attempts)
        strike()
        engine.go_on()

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def rows() -> pa.Table:
    generator = np.random.default_rng(8)
    return pa.table(
        {
            "a": generator.normal(size=ROWS),
            "pid": generator.integers(0, 200, ROWS),
            "id": np.arange(ROWS),
            "name": [SECRET] * ROWS,
        }
    )


@pytest.fixture(scope="session")
def rows_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of Parquet with the rows. Workers, which have dpsql, get this module with what they run."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle", reason="no Spark: pip install 'dpsql[spark]'")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    folder = tmp_path_factory.mktemp("rows")
    for number in range(3):
        pq.write_table(rows().slice(300 * number, 300), folder / f"{number}.parquet")
    return folder


def planted(
    session: Any, fault: str, place: Path, kind: type[PlantedEngine] = PlantedEngine
) -> tuple[dpsql.Context, PlantedEngine]:
    """Return a context with a ledger of its own, and its engine."""
    place.mkdir(parents=True, exist_ok=True)
    folder = place / "attempts"
    folder.mkdir()
    engine = kind(session, fault, folder)
    return dpsql.Context(engine=Attached("spark", engine, 2), ledger=str(place / "ledger")), engine


def charges(context: dpsql.Context) -> list[bool]:
    """Return for every charge whether it has a result."""
    return [row.status == "released" for row in context.ledger.entries() if row.kind in ("release", "failure")]


def run(context: dpsql.Context, session: Any, folder: Path, call: Call) -> Any:
    function, arguments = call
    return getattr(context, function)(session.read.parquet(str(folder)), epsilon=1, **arguments)


def check_records(engine: PlantedEngine) -> None:
    """The integers of every pass are those of the statement that DuckDB runs on its own tables."""
    for work, columns, records in engine.found:
        assert merged(work, received(records)).equals(state_of(work, columns, rows()))
    assert engine.found


@contextmanager
def interrupted(ready: Callable[[], object]) -> Iterator[None]:
    """Press Ctrl-C in the body of a with statement, once something is true, and again until the body ends."""

    def press() -> None:
        wait_until(ready)
        # Python ignores what is raised in a finalizer or a callback: then a person presses Ctrl-C again.
        while not stopped.wait(1.5):
            os.kill(os.getpid(), signal.SIGINT)

    stopped = threading.Event()
    thread = threading.Thread(target=press)
    # A shell starts what runs in the background with SIGINT ignored, and then Python raises nothing.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.collect()
    gc.disable()  # Python ignores what is raised while it collects
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        gc.enable()
        thread.join()
        signal.signal(signal.SIGINT, before)


def texts(error: BaseException | None) -> str:
    """Return all that an exception and those behind it say."""
    if error is None:
        return ""
    return f"{error!r} {error} {error.args} {texts(error.__cause__)} {texts(error.__context__)}"
