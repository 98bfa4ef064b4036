"""A connection that is lost at COMMIT: the call is answered if its charge stands, and else it is not."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import duckdb
import pytest
from commit_proxy import Action, CommitLink, CommitProxy, after, before, late
from postgres_server import PostgresServer
from sqlalchemy import Engine, event

import dpsql
from dpsql.errors import LedgerError
from dpsql.ledger.ledger import Budget, Charge, Ledger
from support.cases import cases

CALL: dict[str, Any] = {
    "event": {"mechanism": "exponential_noise", "epsilon": "0.1"},
    "function": "dp_sis",
    "arguments": {"k": 2},
}


class Fleet:
    """A ledger on a server that is reached directly, and through a proxy that loses connections."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.url = server.new_url()
        self.proxy = CommitProxy(server.directory)
        self.direct = Ledger.open(self.url)
        self.direct.protect("patients", Budget.of(epsilon=100))
        self.ledger = Ledger.open(self.proxy.url_of(self.url))
        self.drawn = 0

    def draw(self, action: Action | None = None, *, away: bool = False) -> Callable[[], int]:
        """Return a draw after which the connection is lost at COMMIT."""

        def draw() -> int:
            if action is not None:
                self.proxy.at_commit(action)
            self.proxy.away = away
            self.drawn += 1
            return self.drawn

        return draw

    @property
    def recorded(self) -> int:
        """How many charges stand on the server."""
        report = self.direct.verify()
        assert report.ok, report
        return report.entries - 1

    def close(self) -> None:
        self.ledger.close()
        self.direct.close()
        self.proxy.close()


@pytest.fixture
def fleet(postgres: PostgresServer) -> Iterator[Fleet]:
    opened = Fleet(postgres)
    yield opened
    opened.close()


@cases("action", [after, late], quick=1, alone=True)
def test_a_charge_whose_commit_lost_its_answer_is_answered_and_stands_once(fleet: Fleet, action: Action) -> None:
    entry = fleet.ledger.charge(Charge("patients", **CALL), fleet.draw(action))
    assert (entry.result, entry.replayed, fleet.drawn) == (1, False, 1)
    assert fleet.recorded == 1
    assert fleet.direct.entries()[-1].hash == entry.hash
    assert fleet.ledger.charge(Charge("patients", **CALL), fleet.draw()).sequence == entry.sequence + 1


def test_a_charge_whose_commit_was_lost_is_not_answered_and_is_not_charged(fleet: Fleet) -> None:
    with pytest.raises(LedgerError, match=r"DPSQL-L006.*nothing was released") as caught:
        fleet.ledger.charge(Charge("patients", **CALL), fleet.draw(before))
    assert caught.value.__context__ is None  # it would hold the result that was not delivered
    assert (fleet.drawn, fleet.recorded) == (1, 0)
    assert fleet.ledger.charge(Charge("patients", **CALL), fleet.draw()).result == 2


def test_another_s_charge_at_the_same_place_is_not_taken_for_it(fleet: Fleet) -> None:
    def overtaken(link: CommitLink, commit: bytes) -> None:
        link.silent = True  # or the client would look for its charge before the other one is there
        link.hang_up(link.server)
        fleet.direct.charge(Charge("patients", **CALL), lambda: "another")
        link.hang_up()

    with pytest.raises(LedgerError, match="DPSQL-L006"):
        fleet.ledger.charge(Charge("patients", **CALL), fleet.draw(overtaken))
    assert [row.status for row in fleet.direct.entries()[1:]] == ["released"]


@cases("action", [before, after], quick=1, alone=True)
def test_whatever_is_written_is_resolved_in_the_same_way(fleet: Fleet, action: Action) -> None:
    ledger, made = fleet.ledger, 1 if action is after else 0
    writes: dict[str, Callable[[], object]] = {
        "reserve": lambda: ledger.reserve(Charge("patients", **CALL)),
        "charge_failure": lambda: ledger.charge_failure(Charge("patients", **CALL)),
        "protect": lambda: ledger.protect("other", Budget.of(epsilon=1)),
        "declare": lambda: ledger.declare("public", "airports", {"a": 1}, "dp_public"),
    }
    ledger.charge(Charge("patients", **CALL), lambda: 1)
    for name, write in writes.items():
        found = fleet.recorded
        fleet.proxy.at_commit(action)
        if made:
            write()
        else:
            with pytest.raises(LedgerError, match="DPSQL-L006"):
                write()
        assert fleet.recorded == found + made, name


@pytest.mark.long
@pytest.mark.parametrize("action", [before, after])
@pytest.mark.usefixtures("short_waits")
def test_where_the_server_stays_away_nothing_is_answered_and_its_ledger_is_the_truth(
    fleet: Fleet, action: Action
) -> None:
    with pytest.raises(LedgerError, match=r"DPSQL-L049.*nothing was released.*dpsql ledger once") as caught:
        fleet.ledger.charge(Charge("patients", name="weekly", **CALL), fleet.draw(action, away=True))
    assert caught.value.__context__ is None
    stood = 1 if action is after else 0
    assert fleet.recorded == stood
    fleet.proxy.away = False
    again = fleet.ledger.charge(Charge("patients", name="weekly", **CALL), fleet.draw())
    assert (again.replayed, again.result, fleet.recorded) == (bool(stood), 2 - stood, 1)


@pytest.mark.long
@pytest.mark.usefixtures("short_waits")
def test_a_commit_that_is_still_on_its_way_is_in_doubt(postgres: PostgresServer) -> None:
    arrive = threading.Event()

    def stuck(link: CommitLink, commit: bytes) -> None:
        link.silent = True
        link.hang_up(link.client)
        arrive.wait()
        after(link, commit)
        done.set()

    done = threading.Event()
    fleet = Fleet(postgres)
    with pytest.raises(LedgerError, match="DPSQL-L049"):
        fleet.ledger.charge(Charge("patients", **CALL), fleet.draw(stuck))
    assert fleet.recorded == 0
    arrive.set()
    assert done.wait(30)
    assert fleet.recorded == 1
    fleet.close()


@pytest.mark.long
@pytest.mark.parametrize("committed", [False, True])
def test_a_server_that_restarts_at_commit(fleet: Fleet, committed: bool) -> None:
    def crash(link: CommitLink, commit: bytes) -> None:
        if committed:
            link.silent = True
            link.server.sendall(commit)
            link.committed.wait(30)
        link.hang_up(link.client)
        fleet.server.crash_and_restart()

    if committed:
        assert fleet.ledger.charge(Charge("patients", **CALL), fleet.draw(crash)).result == 1
    else:
        with pytest.raises(LedgerError, match=r"DPSQL-L0(06|46)"):
            fleet.ledger.charge(Charge("patients", **CALL), fleet.draw(crash))
    assert fleet.recorded == int(committed)


@pytest.mark.long
def test_drivers_that_lose_connections_are_charged_for_what_they_were_answered(fleet: Fleet) -> None:
    actions = itertools.cycle([None, before, None, after, late])
    guard = threading.Lock()

    def work(ledger: Ledger) -> list[str]:
        answered = []
        for number in range(12):
            with guard:
                action = next(actions)
            try:
                entry = ledger.charge(Charge("patients", **CALL | {"arguments": {"k": number}}), fleet.draw(action))
            except LedgerError as error:
                assert error.code == "DPSQL-L006"
            else:
                answered.append(entry.hash)
        ledger.close()
        return answered

    # All are open before a connection is lost: an open that meets a loss is refused, and charges nothing.
    drivers = [Ledger.open(fleet.proxy.url_of(fleet.url)) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        answered = [digest for each in pool.map(work, drivers) for digest in each]
    assert sorted(answered) == sorted(row.hash for row in fleet.direct.entries() if row.kind == "release")
    assert 24 <= len(answered) < 48
    assert fleet.direct.budgets()[0].epsilon_spent == pytest.approx(0.1 * fleet.recorded)
    assert fleet.recorded == len(answered)


@pytest.mark.long
def test_a_call_in_sql_is_answered_and_charged_once(fleet: Fleet, request: pytest.FixtureRequest) -> None:
    actions = iter([after, before])

    def lose(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("INSERT INTO dpsql_ledger "):
            fleet.proxy.at_commit(next(actions))

    connection = dpsql.connect(ledger=fleet.proxy.url_of(fleet.url))
    connection.execute("CREATE TABLE t AS SELECT i % 5 AS a, i % 3 AS b, i % 2 = 0 AS y FROM range(60) AS r(i)")
    connection.execute("SELECT dp_protect('t', epsilon := 5)")
    event.listen(Engine, "before_cursor_execute", lose)
    request.addfinalizer(lambda: event.remove(Engine, "before_cursor_execute", lose))
    call = "FROM dp_sis('t', target := 'y', k := 1, epsilon := 1, lower := 0, upper := 5)"
    assert len(connection.execute(call).fetchall()) == 1
    with pytest.raises(duckdb.Error, match="DPSQL-L006"):
        connection.execute(call)
    assert [row.status for row in fleet.direct.entries() if row.kind == "release"] == ["released"]
    connection.close()
