"""Tasks of Spark that fail, die, are tried again or draw: one charge, the same integers, and no value in any text."""

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
from collections.abc import Iterable, Iterator, Sequence
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
import dpsql.spark
from dpsql.engines.attached import Attached
from dpsql.engines.port import Work
from dpsql.engines.spark import SparkEngine
from dpsql.errors import InternalError, SourceError
from support.spark_servers import SparkServer, sail
from support.tasks import merged, state_of

ROWS = 900
SECRET = "planted-4711"
Call = tuple[str, dict[str, Any]]
COUNT: Call = ("dp_avg", {"target": "a", "lower": -2, "upper": 2, "by": "name", "keys": [SECRET]})
UNITS: Call = ("dp_quantile", {"target": "a", "lower": -2, "upper": 2, "privacy_unit": "pid", "max_rows_per_unit": 2})


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
    """A work whose first attempt at every task goes wrong."""

    work: Work
    fault: str
    folder: str

    @property
    def record(self) -> pa.Schema:
        return self.work.record

    @property
    def is_wide(self) -> bool:
        return self.work.is_wide

    @property
    def parts(self) -> int:
        return self.work.parts

    def merge(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.work.merge(records)

    def split(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with drawing_fails() if self.fault == "entropy" else nullcontext():
            yield from list(self.work.split(batches))

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batches = list(batches)
        goes_wrong = bool(batches) and self._is_first(batches)
        if goes_wrong and self.fault == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if goes_wrong and self.fault == "waits":
            time.sleep(4)
        with drawing_fails() if self.fault == "entropy" else nullcontext():
            yield from list(self.work.run(self._broken(batches) if goes_wrong else batches))
        if goes_wrong and self.fault == "after":
            raise RuntimeError("planted")

    def _is_first(self, batches: Sequence[pa.RecordBatch]) -> bool:
        """Whether no attempt was made at these rows; every attempt leaves a file."""
        rows = hashlib.sha256(repr(batches[0].to_pydict()).encode()).hexdigest()[:16]
        for number in range(9):
            try:
                Path(self.folder, f"{rows}.{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            return number == 0
        raise RuntimeError("too many attempts")

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


@pytest.fixture(autouse=True, scope="module")
def _pickle_by_value() -> None:
    """Workers have dpsql, and not this module."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle", reason="no Spark: pip install 'dpsql[spark]'")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    for number in range(3):
        pq.write_table(rows().slice(300 * number, 300), folder / f"{number}.parquet")
    return folder


@pytest.fixture(scope="module")
def cluster_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Sail with workers that are processes of their own."""
    server = sail(tmp_path_factory.mktemp("cluster"), SAIL_MODE="local-cluster")
    yield server.session()
    server.stop()


def planted(session: Any, fault: str, tmp_path: Path) -> tuple[dpsql.Context, PlantedEngine]:
    folder = tmp_path / "attempts"
    folder.mkdir()
    engine = PlantedEngine(session, fault, folder)
    return dpsql.Context(engine=Attached("spark", engine, 2)), engine


def charges(context: dpsql.Context) -> list[bool]:
    """Return for every charge whether it has a result."""
    return [row.status == "released" for row in context.ledger.entries() if row.kind in ("release", "failure")]


def run(context: dpsql.Context, session: Any, folder: Path, call: Call) -> Any:
    function, arguments = call
    return getattr(context, function)(session.read.parquet(str(folder)), epsilon=1, **arguments)


def texts(error: BaseException | None) -> str:
    """Return all that an exception and those behind it say."""
    if error is None:
        return ""
    return f"{error!r} {error} {error.args} {texts(error.__cause__)} {texts(error.__context__)}"


def check_retried(
    session: Any, folder: Path, tmp_path: Path, fault: str, calls: Sequence[Call] = (COUNT, UNITS)
) -> None:
    """A fault at every first attempt: one charge, and the integers of one statement."""
    for number, call in enumerate(calls):
        place = tmp_path / str(number)
        place.mkdir()
        context, engine = planted(session, fault, place)
        run(context, session, folder, call)
        assert charges(context) == [True]
        for work, columns, records in engine.found:
            assert merged(work, records).equals(state_of(work, columns, rows()))
        assert engine.attempts >= 2 * len(engine.found[0][2])


def check_failed(
    session: Any, folder: Path, tmp_path: Path, fault: str, calls: Sequence[Call] = (COUNT, UNITS)
) -> None:
    """A fault that Spark does not try again: one charge without a result, and no value in a text."""
    for number, call in enumerate(calls):
        place = tmp_path / str(number)
        place.mkdir()
        context, _ = planted(session, fault, place)
        with pytest.raises(InternalError, match="I001") as raised:
            run(context, session, folder, call)
        assert SECRET not in texts(raised.value)
        assert charges(context) == [False]


@pytest.mark.jvm
@pytest.mark.parametrize("fault", ["before", "after", "dies"])
def test_apache_spark_tries_again(
    jvm_session: Any, jvm_server: SparkServer, folder: Path, tmp_path: Path, fault: str
) -> None:
    check_retried(jvm_session, folder, tmp_path, fault)
    assert SECRET not in jvm_server.log


@pytest.mark.long
@pytest.mark.parametrize("fault", ["before", "after"])
def test_sail_in_one_process_fails(
    sail_session: Any, sail_server: SparkServer, folder: Path, tmp_path: Path, fault: str
) -> None:
    check_failed(sail_session, folder, tmp_path, fault)
    assert SECRET not in sail_server.log


@pytest.mark.long
def test_sail_on_a_cluster_tries_again(cluster_session: Any, folder: Path, tmp_path: Path) -> None:
    check_retried(cluster_session, folder, tmp_path, "before")


@pytest.mark.long
def test_sail_on_a_cluster_takes_no_second_output(cluster_session: Any, folder: Path, tmp_path: Path) -> None:
    """Output that was read ends the job; output that was not is thrown away with its attempt."""
    for number, (call, check) in enumerate(((COUNT, check_failed), (UNITS, check_retried))):
        place = tmp_path / str(number)
        place.mkdir()
        check(cluster_session, folder, place, "after", [call])


@pytest.mark.long
def test_a_server_that_dies(folder: Path, tmp_path: Path) -> None:
    """Sail runs tasks in its own process, so a task that kills it takes the connection, too."""
    server = sail(tmp_path)
    session = server.session()
    try:
        context, _ = planted(session, "dies", tmp_path)
        with pytest.raises(InternalError, match="I001"):
            run(context, session, folder, COUNT)
        assert charges(context) == [False]
        with pytest.raises(SourceError, match="S030"):
            run(context, session, folder, COUNT)
        assert charges(context) == [False]
    finally:
        server.stop()


@pytest.mark.long
def test_an_interrupt(spark_session: Any, folder: Path, tmp_path: Path) -> None:
    context, engine = planted(spark_session, "waits", tmp_path)

    def interrupt() -> None:
        while not engine.attempts:
            time.sleep(0.05)
        time.sleep(1)  # the driver waits for the job
        os.kill(os.getpid(), signal.SIGINT)
        # Python ignores what is raised in a finalizer or a callback: then a person presses Ctrl-C again.
        while not stopped.wait(1.5):
            os.kill(os.getpid(), signal.SIGINT)

    stopped = threading.Event()
    thread = threading.Thread(target=interrupt)
    # A shell starts what runs in the background with SIGINT ignored, and then Python raises nothing.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.collect()
    gc.disable()  # Python ignores what is raised while it collects
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run(context, spark_session, folder, COUNT)
    finally:
        stopped.set()
        gc.enable()
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert charges(context) == [False]
    engine.fault = ""
    run(context, spark_session, folder, COUNT)
    assert charges(context) == [False, True]


@pytest.mark.parametrize(
    "call",
    [
        COUNT,
        UNITS,
        ("dp_quantile", {"target": "a", "lower": -2, "upper": 2}),
        ("dp_count", {"privacy_unit": "pid", "max_rows_per_unit": 2, "by": "name", "keys": [SECRET]}),
        (
            "dp_linear_regression",
            {
                "target": "a",
                "features": ["pid"],
                "method": "tukey",
                "blocks": 60,
                "row_id": "id",
                "delta": 1e-6,
                **{"lower": 0, "upper": 900, "target_lower": -2, "target_upper": 2},
            },
        ),
    ],
    ids=lambda call: call[0],
)
def test_no_worker_draws(spark_session: Any, folder: Path, tmp_path: Path, call: Call) -> None:
    context, _ = planted(spark_session, "entropy", tmp_path)
    run(context, spark_session, folder, call)
    assert charges(context) == [True]


def test_a_view_that_raises(spark_session: Any, folder: Path) -> None:
    """What Spark itself raises quotes a value; nothing of it reaches the caller."""
    context = dpsql.spark.context(spark_session)
    frame = spark_session.read.parquet(str(folder)).selectExpr("raise_error(name) AS y", "a")
    with pytest.raises(InternalError, match="I001") as raised:
        context.dp_count(frame, condition="y = 'x'", epsilon=1)
    assert SECRET not in texts(raised.value)
    assert charges(context) == [False]


def test_workers_of_another_version(spark_session: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = dpsql.spark.context(spark_session)
    monkeypatch.setattr("dpsql.engines.spark.__version__", "0.0.0")
    with pytest.raises(SourceError, match=f"S026.*have dpsql {dpsql.__version__}.*Install dpsql 0.0.0"):
        run(context, spark_session, folder, COUNT)
    assert charges(context) == []


@pytest.mark.long
def test_workers_without_dpsql(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "dpsql.py").write_text("raise ImportError('none here', name='dpsql')")
    server = sail(tmp_path, PYTHONPATH=str(tmp_path))
    try:
        session = server.session()
        context = dpsql.spark.context(session)
        with pytest.raises(SourceError, match=r"S026.*lack the package dpsql"):
            run(context, session, folder, COUNT)
        assert charges(context) == []
    finally:
        server.stop()
