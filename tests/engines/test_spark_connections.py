"""A connection to a living server that is lost in the middle of a call: one charge, the same integers, and no hang."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dpsql
import dpsql.spark
from dpsql.engines.driver import IncompleteError, received
from dpsql.errors import InternalError, SourceError
from support.cases import cases
from support.planted_work import (
    COUNT,
    UNITS,
    Call,
    PlantedEngine,
    charges,
    check_records,
    interrupted,
    planted,
    rows,
    run,
    while_held,
)
from support.proxy import Proxy
from support.spark_servers import SparkServer, be_patient
from support.tasks import merged, state_of, task_of


class Route:
    """A server of Spark Connect, and a way to it that can be cut.

    Attributes
    ----------
    name : {'sail', 'jvm'}
    server : SparkServer
    direct : SparkSession
        Past the proxy.
    proxy : Proxy
    session : SparkSession
        Through the proxy.
    """

    def __init__(self, name: str, server: SparkServer, direct: Any) -> None:
        self.name, self.server, self.direct = name, server, direct
        self.renew()

    def renew(self) -> None:
        """Find another way: a client waits before it tries an address again that did not answer."""
        self.proxy = Proxy(lambda: socket.create_connection(("127.0.0.1", self.server.port)))
        self.session: Any = self.server.session(self.proxy.port)


# PySpark tells of retries that were in vain.
pytestmark = pytest.mark.filterwarnings("ignore:.*RETRIES_EXCEEDED")


@pytest.fixture(scope="module", params=["sail", pytest.param("jvm", marks=pytest.mark.jvm)])
def found(request: pytest.FixtureRequest) -> Route:
    """The server; its proxies stay, because PySpark releases jobs later on."""
    return Route(request.param, *(request.getfixturevalue(f"{request.param}_{what}") for what in ("server", "session")))


@pytest.fixture
def route(found: Route) -> Route:
    """The server, with a way to it that is not cut."""
    if found.proxy.away:
        found.renew()
    return found


def before_jobs(engine: PlantedEngine, monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> None:
    """Let an engine do something before it submits a job."""

    def folding(verb: Callable[..., Any], *given: Any) -> Any:
        do()
        return verb(*given)

    for name in ("fold", "fold_parts"):
        monkeypatch.setattr(engine, name, partial(folding, getattr(engine, name)))


def check_that_calls_go_on(route: Route, place: Path, folder: Path, call: Call) -> None:
    """The next call on a healthy connection is charged like any other, and the ledger adds up."""
    with dpsql.spark.context(route.direct, ledger=str(place / "ledger"), parts=2) as healthy:
        before = charges(healthy)
        run(healthy, route.direct, folder, call)
        assert charges(healthy) == [*before, True]
        assert sum(row.epsilon or 0 for row in healthy.ledger.entries()) == len(before) + 1


@pytest.mark.parametrize("stage", ["schema", "check"])
def test_before_a_row_is_read_nothing_is_charged(
    route: Route, rows_folder: Path, tmp_path: Path, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, engine = planted(route.session, "", tmp_path)
    real = getattr(engine, stage)

    def cut(given: Any) -> Any:
        route.proxy.cut(away=True)
        return real(given)

    monkeypatch.setattr(engine, stage, cut)
    with pytest.raises(SourceError, match=r"S030.*Nothing was charged"):
        run(context, route.session, rows_folder, COUNT)
    assert engine.found == []
    assert charges(context) == []
    check_that_calls_go_on(route, tmp_path, rows_folder, COUNT)


@pytest.mark.parametrize("call", [COUNT, UNITS], ids=["rows", "units"])
def test_a_cut_while_workers_read_changes_nothing(route: Route, rows_folder: Path, tmp_path: Path, call: Call) -> None:
    """The client comes back to the job that it began."""
    context, engine = planted(route.session, "held", tmp_path)
    with while_held(engine, partial(route.proxy.cut, away=False)):
        run(context, route.session, rows_folder, call)
    assert charges(context) == [True]
    check_records(engine)
    check_that_calls_go_on(route, tmp_path, rows_folder, call)


@pytest.mark.parametrize("call", [COUNT, UNITS], ids=["rows", "units"])
def test_a_server_out_of_reach_while_workers_read(route: Route, rows_folder: Path, tmp_path: Path, call: Call) -> None:
    context, engine = planted(route.session, "held", tmp_path)
    with while_held(engine, partial(route.proxy.cut, away=True)), pytest.raises(InternalError, match="I001"):
        run(context, route.session, rows_folder, call)
    assert charges(context) == [False]
    check_that_calls_go_on(route, tmp_path, rows_folder, call)


@cases("call", [COUNT, UNITS], ids=["rows", "units"])
@cases(
    ("percent", "away"),
    [
        (60, False),
        (60, True),
        pytest.param(30, False, marks=pytest.mark.long),
        pytest.param(80, False, marks=pytest.mark.long),
    ],
)
def test_a_cut_in_the_middle_of_the_result(
    route: Route,
    rows_folder: Path,
    tmp_path: Path,
    call: Call,
    percent: int,
    away: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever was lost of it: the integers are those of one statement, or there is no result; and one charge."""
    context, engine = planted(route.session, "", tmp_path / "whole")
    before: list[int] = []
    before_jobs(engine, monkeypatch, lambda: before.append(route.proxy.answered))
    run(context, route.session, rows_folder, call)
    size, cuts = (route.proxy.answered - before[0]) * percent // 100, route.proxy.cuts
    context, engine = planted(route.session, "", tmp_path)
    before_jobs(engine, monkeypatch, lambda: route.proxy.cut_after(size, away=away))
    try:
        run(context, route.session, rows_folder, call)
    except InternalError as error:
        assert error.code in ("DPSQL-I001", "DPSQL-I008")
        assert charges(context) == [False]
    else:
        assert charges(context) == [True]
        check_records(engine)
    assert route.proxy.cuts == cuts + 1
    check_that_calls_go_on(route, tmp_path, rows_folder, call)


def test_a_job_that_is_begun_anew_counts_no_row_twice(route: Route, rows_folder: Path) -> None:
    """A client that does not come back to its job begins it anew, and PySpark may add the new result to the old one."""
    session = route.server.session(route.proxy.port)
    session.client.disable_reattachable_execute()
    from dpsql.engines.spark import SparkEngine

    engine = SparkEngine(session)
    frame = session.read.parquet(str(rows_folder)).repartition(4)
    with dpsql.spark.context(session) as context:
        task, columns = task_of(context, frame, "dp_quantile", target="a", lower=-2, upper=2)
    before = route.proxy.answered
    expected = state_of(task, columns, rows())
    assert merged(task, received(engine.fold(frame, columns, task))).equals(expected)
    size, cuts = route.proxy.answered - before, route.proxy.cuts
    for percent in range(10, 100, 10):
        route.proxy.cut_after(size * percent // 100)
        try:
            assert merged(task, received(engine.fold(frame, columns, task))).equals(expected)
        except InternalError as error:
            assert "I001" in str(error)
        except IncompleteError:
            pass
    route.proxy.cut_after(float("inf"))
    assert route.proxy.cuts > cuts


# What a client makes of a result whose connection was lost: the first records, and then all of them; all but the last
# batch; but the first; nothing at all.
LOST: dict[str, Callable[[pa.Table], pa.Table]] = {
    "begun anew": lambda found: pa.concat_tables([found.slice(0, 1), found]),
    "the last": lambda found: found.slice(0, found.num_rows - 1),
    "the first": lambda found: found.slice(1),
    "one for another": lambda found: pa.concat_tables([found.slice(0, 1), found.slice(0, 1), found.slice(2)]),
    "everything": lambda found: found.slice(0, 0),
}


@cases("lost", LOST)
def test_a_record_that_is_lost_or_comes_twice_ends_the_call(
    route: Route, rows_folder: Path, tmp_path: Path, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, _ = planted(route.direct, "", tmp_path)
    whole, change = type(route.direct.range(1)).toArrow, LOST[lost]
    results: list[int] = []

    def changed(result: Any) -> pa.Table:
        results.append(1)
        found = whole(result)
        return found if len(results) == 1 else change(found)  # the first is that of the check

    monkeypatch.setattr(type(route.direct.range(1)), "toArrow", changed)
    with pytest.raises(InternalError, match="I008"):
        run(context, route.direct, rows_folder, ("dp_quantile", {"target": "a", "lower": -2, "upper": 2}))
    assert charges(context) == [False]
    assert len(results) == 2
    monkeypatch.undo()
    check_that_calls_go_on(route, tmp_path, rows_folder, COUNT)


@pytest.mark.long
def test_an_interrupt_while_the_client_tries_again(route: Route, rows_folder: Path, tmp_path: Path) -> None:
    """PySpark tries for ten minutes to reach a server; whoever does not want to wait presses Ctrl-C, and again."""
    be_patient(route.session, max_retries=600, max_backoff=1000)
    context, engine = planted(route.session, "held", tmp_path)
    pressed = interrupted(lambda: route.proxy.away)
    with while_held(engine, partial(route.proxy.cut, away=True)), pressed, pytest.raises(KeyboardInterrupt):
        run(context, route.session, rows_folder, COUNT)
    route.proxy.away = False  # a thread of PySpark's still wants to release the job, and Python waits for it
    be_patient(route.session)  # and PySpark asks again when Python ends, and the server may have ended before
    assert charges(context) == [False]
    check_that_calls_go_on(route, tmp_path, rows_folder, COUNT)
