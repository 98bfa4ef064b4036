"""The time of a broker: whoever sets the system's clock begins no period of a grant, and prolongs no token."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import dpsql
from dpsql.errors import GatewayError
from dpsql.gateway.audit import Audit
from dpsql.gateway.broker import begin_time
from dpsql.gateway.desk import Desk
from dpsql.gateway.limits import Buckets, Rates
from dpsql.ledger import clock
from support.gateway_broker import Gateway, count, made

BEGIN = datetime(2026, 10, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Times:
    """The system's time and the seconds that have passed, as a test has them."""

    def __init__(self) -> None:
        self.system, self.seconds = BEGIN, 0.0

    def passes(self, some: timedelta) -> None:
        """Let time pass."""
        self.system, self.seconds = self.system + some, self.seconds + some.total_seconds()

    @property
    def steady(self) -> clock.SteadyClock:
        """Return a clock that begins now."""
        return clock.SteadyClock(self.system, lambda: self.system, lambda: self.seconds)


@pytest.fixture
def times() -> Times:
    return Times()


def test_time_goes_by_what_passes_and_by_an_hour_more(times: Times) -> None:
    now = times.steady
    assert now() == BEGIN
    times.passes(HOUR / 4)
    assert now() == BEGIN + HOUR / 4
    times.system += HOUR / 2  # a step that counts
    assert now() == BEGIN + HOUR * 3 / 4
    for step in (HOUR, 24 * HOUR, 10_000 * HOUR):
        times.system += step
        assert now() == BEGIN + HOUR / 4 + HOUR
    times.passes(HOUR)
    assert now() == BEGIN + HOUR / 4 + 2 * HOUR
    times.system = BEGIN - 10_000 * HOUR
    assert now() == BEGIN + HOUR / 4 + HOUR  # no step back counts
    times.passes(48 * HOUR)
    assert now() == BEGIN + HOUR / 4 + 49 * HOUR


def test_the_seconds_are_of_a_clock_that_nobody_sets() -> None:
    first = clock.passed()
    assert clock.passed() >= first
    now = clock.SteadyClock(clock.system())
    assert abs(now() - clock.system()) < HOUR


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], Gateway]:
    """Return what makes a database whose ledger was written at a time."""

    def at(when: datetime) -> Gateway:
        with monkeypatch.context() as patched:
            patched.setattr(clock, "now", lambda: when)
            return made(tmp_path, ana={"epsilon": 1, "per": "month"})

    return at


@pytest.mark.long
def test_a_step_of_the_clock_begins_no_period(
    gateway: Callable[[datetime], Gateway], times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And planted: by the system's time alone a cap of a month is whole again after a step of five weeks."""
    found = gateway(BEGIN)

    def codes(now: Callable[[], datetime], *conditions: str) -> list[str]:
        monkeypatch.setattr(clock, "now", now)
        with dpsql.Context(found.database) as context:
            desk = Desk(context, Audit(None), Rates(factor=10_000.0), buckets=Buckets(sleep=lambda _: None))
            asked = {"token": found.tokens["ana"], "want": "call"}
            replies = [desk.answer({**asked, **count("0.6", condition=one)})[0] for one in conditions]
        return [str(reply.get("error", {}).get("code", "")) for reply in replies]

    steady = times.steady
    assert codes(steady, "age > 1", "age > 2") == ["", "G017"]
    times.system += timedelta(days=35)
    assert codes(steady, "age > 2") == ["G017"]
    assert codes(lambda: times.system, "age > 2") == [""]
    times.system = BEGIN
    times.passes(timedelta(days=35))
    assert codes(steady, "age > 3") == ["G017"]  # what was charged in that month by the planted clock
    times.passes(timedelta(days=35))
    assert codes(steady, "age > 3") == [""]


def test_a_broker_begins_at_no_time_before_the_last_entry(gateway: Callable[[datetime], Gateway]) -> None:
    with gateway(BEGIN).ledger() as ledger:
        assert ledger.last_recorded() == BEGIN
        begin, told = begin_time(ledger, BEGIN + 30 * HOUR)
        assert begin == BEGIN + 30 * HOUR
        assert told.startswith("the ledger's last entry is of 2026-10-30T12:00:00Z, 1 day, 6:00:00 before the system's")
        begin, told = begin_time(ledger, BEGIN - HOUR / 2)
        assert begin == BEGIN
        assert "0:30:00 after the system's time. Time begins there." in told
        for back in (1.01 * HOUR, 1000 * HOUR):
            with pytest.raises(GatewayError, match="G027"):
                begin_time(ledger, BEGIN - back)


@pytest.mark.long
def test_a_broker_says_the_gap_and_refuses_a_step_back(gateway: Callable[[datetime], Gateway]) -> None:
    found = gateway(datetime.now(UTC) + 30 * HOUR)
    words = [sys.executable, "-m", "dpsql.gateway.broker", found.database, "--socket", found.socket]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0
    assert "G027" in done.stderr
    words = [sys.executable, "-m", "dpsql", "serve", found.database, "--port", "0", "--no-flight"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0
    assert "Set the clock" in done.stderr
