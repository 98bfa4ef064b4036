"""Apache Spark on two hosts: tasks that run twice at once, executors and hosts that are lost."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpsql.engines.driver import received
from dpsql.engines.port import Work
from dpsql.errors import InternalError
from support.planted_work import (
    COUNT,
    UNITS,
    Call,
    PlantedEngine,
    charges,
    check_records,
    planted,
    run,
    while_held,
)
from support.spark_cluster import Host, SparkCluster, spark_cluster

__all__ = ["spark_cluster"]

pytestmark = pytest.mark.jvm
CALLS = pytest.mark.parametrize("call", [COUNT, UNITS], ids=["rows", "units"])


@pytest.fixture(scope="module")
def session(spark_cluster: SparkCluster) -> Any:
    from pyspark.cloudpickle import register_pickle_by_value

    register_pickle_by_value(sys.modules[__name__])
    return spark_cluster.server.session()


@pytest.fixture
def cluster(spark_cluster: SparkCluster) -> SparkCluster:
    """The cluster, with an executor on each host."""
    spark_cluster.restore()
    return spark_cluster


def attempts(engine: PlantedEngine) -> dict[str, list[Path]]:
    """Return the attempts at the same rows, in the order in which they began."""
    found: dict[str, list[Path]] = {}
    for file in sorted(engine.folder.iterdir()):
        found.setdefault(file.stem, []).append(file)
    return found


@CALLS
def test_a_task_that_runs_twice_at_once(
    cluster: SparkCluster, session: Any, rows_folder: Path, tmp_path: Path, call: Call
) -> None:
    """The copy on the other host is taken while the first attempt, which has its record, still waits."""
    context, engine = planted(session, "straggles", tmp_path)
    before = len(cluster.events)
    try:
        run(context, session, rows_folder, call)
    finally:
        engine.go_on()
    hosts = [[cluster.host_of(file).address for file in files] for files in attempts(engine).values()]
    twice = [found for found in hosts if len(found) > 1]
    assert twice
    assert all(len(set(found)) == len(found) for found in twice)
    started = [json.loads(line) for line in cluster.events[before:] if '"SparkListenerTaskStart"' in line]
    copies = [event["Task Info"]["Host"] for event in started if event["Task Info"]["Speculative"]]
    assert {second for _, second in twice} <= set(copies)
    assert charges(context) == [True]
    check_records(engine)


@CALLS
@pytest.mark.parametrize("what", ["executor", "worker"])
def test_what_is_lost_changes_nothing(
    cluster: SparkCluster, session: Any, rows_folder: Path, tmp_path: Path, call: Call, what: str
) -> None:
    """With its executor a host loses what it has shuffled, too; with its worker it is gone."""
    context, engine = planted(session, "held", tmp_path)
    lost: list[Host] = []

    def lose() -> None:
        first = next(iter(attempts(engine).values()))[0]
        lost.append(cluster.host_of(first))
        getattr(cluster, f"kill_{what}")(lost[0])

    with while_held(engine, lose):
        run(context, session, rows_folder, call)
    assert any(len(files) > 1 for files in attempts(engine).values())
    assert charges(context) == [True]
    check_records(engine)
    failed = [line for line in cluster.events if '"ExecutorLostFailure"' in line and lost[0].address in line]
    assert failed


@dataclass
class Noting:
    """A work that writes its records to files, as an accumulator would: it also sees attempts that do not count."""

    work: Work
    folder: str

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.work, name)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for record in self.work.run(batches):
            with pa.OSFile(f"{self.folder}/{time.time_ns()}", "wb") as file, pa.ipc.new_file(file, record.schema) as to:
                to.write_batch(record)
            yield record


class NotingEngine(PlantedEngine):
    """Spark as an engine must not use it: what attempts noted, in place of the result of the job."""

    def fold_parts(self, source: object, columns: Sequence[str], work: Work) -> list[pa.RecordBatch]:
        folder = Path(f"{self.folder}.notes")
        folder.mkdir()
        super().fold_parts(source, columns, Noting(work, str(folder)))
        self.noted = [pa.ipc.open_file(str(file)).get_batch(0) for file in folder.iterdir()]
        return self.noted


def test_records_of_all_attempts_are_refused(
    cluster: SparkCluster, session: Any, rows_folder: Path, tmp_path: Path
) -> None:
    """They would count the straggler's rows twice."""
    context, engine = planted(session, "straggles", tmp_path, NotingEngine)
    try:
        with pytest.raises(InternalError, match="I001"):
            run(context, session, rows_folder, UNITS)
    finally:
        engine.go_on()
    assert len(engine.noted) > sum(batch.num_rows for batch in received(engine.found[0][2]))
    assert charges(context) == [False]
