"""Tasks of Spark that fail, die, are tried again or draw: one charge, the same integers, and no value in any text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import dpsql
import dpsql.spark
from dpsql.engines.driver import received
from dpsql.errors import InternalError, SourceError
from support.cases import cases
from support.planted_work import (
    COUNT,
    SECRET,
    UNITS,
    Call,
    charges,
    check_records,
    interrupted,
    planted,
    run,
    texts,
)
from support.spark_servers import SparkServer, sail


@pytest.fixture(scope="module")
def cluster_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Sail with workers that are processes of their own."""
    server = sail(tmp_path_factory.mktemp("cluster"), SAIL_MODE="local-cluster")
    yield server.session()
    server.stop()


def check_retried(
    session: Any, rows_folder: Path, tmp_path: Path, fault: str, calls: Sequence[Call] = (COUNT, UNITS)
) -> None:
    """A fault at every first attempt: one charge, and the integers of one statement."""
    for number, call in enumerate(calls):
        place = tmp_path / str(number)
        context, engine = planted(session, fault, place)
        run(context, session, rows_folder, call)
        assert charges(context) == [True]
        check_records(engine)
        assert engine.attempts >= 2 * len([*received(engine.found[0][2])])


def check_failed(
    session: Any, rows_folder: Path, tmp_path: Path, fault: str, calls: Sequence[Call] = (COUNT, UNITS)
) -> None:
    """A fault that Spark does not try again: one charge without a result, and no value in a text."""
    for number, call in enumerate(calls):
        place = tmp_path / str(number)
        context, _ = planted(session, fault, place)
        with pytest.raises(InternalError, match="I001") as raised:
            run(context, session, rows_folder, call)
        assert SECRET not in texts(raised.value)
        assert charges(context) == [False]


@pytest.mark.jvm
@pytest.mark.parametrize("fault", ["before", "after", "dies"])
def test_apache_spark_tries_again(
    jvm_session: Any, jvm_server: SparkServer, rows_folder: Path, tmp_path: Path, fault: str
) -> None:
    check_retried(jvm_session, rows_folder, tmp_path, fault)
    assert SECRET not in jvm_server.log


@pytest.mark.long
@pytest.mark.parametrize("fault", ["before", "after"])
def test_sail_in_one_process_fails(
    sail_session: Any, sail_server: SparkServer, rows_folder: Path, tmp_path: Path, fault: str
) -> None:
    check_failed(sail_session, rows_folder, tmp_path, fault)
    assert SECRET not in sail_server.log


@pytest.mark.long
def test_sail_on_a_cluster_tries_again(cluster_session: Any, rows_folder: Path, tmp_path: Path) -> None:
    check_retried(cluster_session, rows_folder, tmp_path, "before")


@pytest.mark.long
def test_sail_on_a_cluster_takes_no_second_output(cluster_session: Any, rows_folder: Path, tmp_path: Path) -> None:
    """Output that was read ends the job; output that was not is thrown away with its attempt."""
    for number, (call, check) in enumerate(((COUNT, check_failed), (UNITS, check_retried))):
        place = tmp_path / str(number)
        check(cluster_session, rows_folder, place, "after", [call])


@pytest.mark.long
def test_a_server_that_dies(rows_folder: Path, tmp_path: Path) -> None:
    """Sail runs tasks in its own process, so a task that kills it takes the connection, too."""
    server = sail(tmp_path)
    session = server.session()
    try:
        context, _ = planted(session, "dies", tmp_path)
        with pytest.raises(InternalError, match="I001"):
            run(context, session, rows_folder, COUNT)
        assert charges(context) == [False]
        with pytest.raises(SourceError, match="S030"):
            run(context, session, rows_folder, COUNT)
        assert charges(context) == [False]
    finally:
        server.stop()


@pytest.mark.long
def test_an_interrupt(spark_session: Any, rows_folder: Path, tmp_path: Path) -> None:
    context, engine = planted(spark_session, "waits", tmp_path)
    with interrupted(lambda: engine.attempts), pytest.raises(KeyboardInterrupt):
        run(context, spark_session, rows_folder, COUNT)
    assert charges(context) == [False]
    engine.fault = ""
    run(context, spark_session, rows_folder, COUNT)
    assert charges(context) == [False, True]


@pytest.mark.long
@cases(
    "call",
    [
        COUNT,
        UNITS,
        ("dp_quantile", {"target": "a", "lower": -2, "upper": 2}),
        (
            "dp_naive_bayes",
            {
                "target": "name",
                "target_levels": [SECRET, "other"],
                "features": ["a", "pid", "id"],
                "present_above": 0,
                "max_features_per_row": 1,
            },
        ),
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
def test_no_worker_draws(spark_session: Any, rows_folder: Path, tmp_path: Path, call: Call) -> None:
    context, _ = planted(spark_session, "entropy", tmp_path)
    run(context, spark_session, rows_folder, call)
    assert charges(context) == [True]


@pytest.mark.long
def test_a_view_that_raises(spark_session: Any, rows_folder: Path) -> None:
    """What Spark itself raises quotes a value; nothing of it reaches the caller."""
    context = dpsql.spark.context(spark_session)
    frame = spark_session.read.parquet(str(rows_folder)).selectExpr("raise_error(name) AS y", "a")
    with pytest.raises(InternalError, match="I001") as raised:
        context.dp_count(frame, condition="y = 'x'", epsilon=1)
    assert SECRET not in texts(raised.value)
    assert charges(context) == [False]


@pytest.mark.long
def test_workers_of_another_version(spark_session: Any, rows_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = dpsql.spark.context(spark_session)
    monkeypatch.setattr("dpsql.engines.spark.__version__", "0.0.0")
    with pytest.raises(SourceError, match=f"S026.*have dpsql {dpsql.__version__}.*Install dpsql 0.0.0"):
        run(context, spark_session, rows_folder, COUNT)
    assert charges(context) == []


@pytest.mark.long
def test_workers_without_dpsql(rows_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "dpsql.py").write_text("raise ImportError('none here', name='dpsql')")
    server = sail(tmp_path, PYTHONPATH=str(tmp_path))
    try:
        session = server.session()
        context = dpsql.spark.context(session)
        with pytest.raises(SourceError, match=r"S026.*lack the package dpsql"):
            run(context, session, rows_folder, COUNT)
        assert charges(context) == []
    finally:
        server.stop()
