"""Apache Spark on two hosts: tasks that run twice at once, executors and hosts that are lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.planted_work import (
    COUNT,
    UNITS,
    Call,
    PlantedEngine,
    charges,
    check_records,
    planted,
    run,
)
from support.spark_cluster import SparkCluster, spark_cluster

__all__ = ["spark_cluster"]

pytestmark = pytest.mark.jvm
CALLS = pytest.mark.parametrize("call", [COUNT, UNITS], ids=["rows", "units"])


@pytest.fixture(scope="module")
def session(spark_cluster: SparkCluster) -> Any:
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
    twice = [files for files in attempts(engine).values() if len(files) > 1]
    assert len(twice) == 1
    first, second = (cluster.host_of(file).address for file in twice[0])
    assert first != second
    started = [json.loads(line) for line in cluster.events[before:] if '"SparkListenerTaskStart"' in line]
    copies = [event["Task Info"]["Host"] for event in started if event["Task Info"]["Speculative"]]
    assert second in copies
    assert charges(context) == [True]
    check_records(engine)
