"""What may end a broker costs the question that it came from, however it is ended; and no question is free twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.engines.duckdb.session import Session
from dpsql.gateway.audit import Audit
from dpsql.gateway.desk import Desk, watched
from dpsql.gateway.limits import Buckets, Rates
from dpsql.ledger.chain import RESERVED
from support.gateway_broker import Gateway, count, made, number

QUICK, AT_ONCE = Rates(factor=10_000.0), Buckets(sleep=lambda _: None)
SIS = {"target": "ward", "target_levels": ["A", "B"], "features": ["age"], "k": number("1")}
SIS |= {"lower": number("0"), "upper": number("90")}


def sis(epsilon: str) -> dict[str, object]:
    return {"function": "dp_sis", "source": "patients", "arguments": {"epsilon": number(epsilon), **SIS}}


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return made(tmp_path, ana={"epsilon": 5})


@contextmanager
def desk_of(gateway: Gateway, **more: Any) -> Iterator[tuple[Desk, dpsql.Context]]:
    with dpsql.Context(gateway.database) as context:
        yield Desk(context, Audit(None), QUICK, buckets=AT_ONCE, **more), context


def asked(desk: Desk, gateway: Gateway, call: dict[str, object]) -> dict[str, Any]:
    return desk.answer({"token": gateway.tokens["ana"], "want": "call", **call})[0]


def charged(context: dpsql.Context) -> tuple[float | None, int]:
    """Return what ana has spent, and how many charges that were."""
    [budget] = context.ledger.granted_budgets("ana")
    return budget.epsilon_spent, budget.releases


def statuses(context: dpsql.Context) -> list[str]:
    return [row.status for row in context.ledger.entries("patients") if row.kind == "release"]


class Killed(BaseException):
    """Stands for SIGKILL: nothing that would run after it runs."""


def killed_in_its_draw(desk: Desk, gateway: Gateway, call: dict[str, object], patch: pytest.MonkeyPatch) -> None:
    """Ask, and lose the process after rows were read: nothing more is written to the ledger."""

    def lost(*_: object, **__: object) -> None:
        raise Killed

    with patch.context() as patched:
        patched.setattr("dpsql.ledger.ledger.Ledger.charge", lost)
        patched.setattr("dpsql.ledger.ledger.Ledger.charge_failure", lost)
        assert "error" in asked(desk, gateway, call)


@pytest.mark.long
def test_a_broker_that_is_lost_in_long_work_leaves_its_charge(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk_of(gateway) as (desk, context):
        killed_in_its_draw(desk, gateway, sis("0.25"), monkeypatch)
        assert charged(context) == (0.25, 1)
        assert statuses(context) == [RESERVED]
    with desk_of(gateway) as (desk, context):
        assert statuses(context) == [RESERVED, "no result, charged in entry " + str(entry_of(context))]
        receipt = asked(desk, gateway, sis("0.25"))["receipts"][0]
        assert receipt["charged"]
        assert receipt["epsilon"] == "0.25"
        assert charged(context) == (0.5, 2)
        assert not asked(desk, gateway, sis("0.25"))["receipts"][0]["charged"]
        assert charged(context) == (0.5, 2)
        assert context.ledger.verify().ok
    with desk_of(gateway) as (_, context):
        assert len(statuses(context)) == 4


def entry_of(context: dpsql.Context) -> int:
    return next(row.sequence for row in context.ledger.entries("patients") if row.status == RESERVED)


@pytest.mark.long
def test_planted_a_desk_that_reserves_nothing_loses_the_charge(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.engines.duckdb.session.may_be_long", lambda plan: False)
    with desk_of(gateway) as (desk, context):
        killed_in_its_draw(desk, gateway, sis("0.25"), monkeypatch)
        assert charged(context)[1] == 0


@pytest.mark.long
def test_what_is_quick_is_charged_where_it_ends(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    with desk_of(gateway) as (desk, context):
        assert asked(desk, gateway, count("0.1"))["receipts"][0]["charged"]
        assert len(statuses(context)) == 1
        killed_in_its_draw(desk, gateway, count("0.2"), monkeypatch)
        assert charged(context)[1] == 1


@pytest.mark.long
@pytest.mark.parametrize("before", [False, True])
def test_what_is_not_quick_after_all_is_charged_before_its_process_ends(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """The watchdog's steps while rows are summed, or before the call has passed its gate."""
    seen: list[object] = []
    steps: dict[str, Callable[[], None]] = {}
    finish = Session.finish

    @contextmanager
    def staged(_: float, **given: Callable[[], None]) -> Iterator[None]:
        steps.update(given)
        if before:
            given["charge"]()
            given["end"]()
        yield

    def slow(self: Session, *arguments: Any) -> Any:
        if not before:
            steps["charge"]()
            seen.append(charged(contexts[0]))
            steps["end"]()
        return finish(self, *arguments)

    monkeypatch.setattr(Session, "finish", slow)
    monkeypatch.setattr("dpsql.gateway.desk.watched", staged)
    contexts: list[dpsql.Context] = []
    with desk_of(gateway, end=lambda: seen.append(charged(contexts[0]))) as (desk, ctx):
        contexts.append(ctx)
        assert "error" not in asked(desk, gateway, count("0.5"))
        assert seen == ([(0.5, 1)] if before else [(0.5, 1)] * 2)
        assert charged(ctx) == ((1.0, 2) if before else (0.5, 1))  # here nothing ended it, after all
        assert ctx.ledger.verify().ok


@pytest.mark.parametrize(
    ("until", "given", "seen"),
    [
        ("", {"seconds": 1000}, []),
        ("charge", {"seconds": 1000, "charged": 0.01}, ["charge"]),
        ("interrupt", {"seconds": 0.01, "patience": 1000}, ["charge", "interrupt"]),
        ("end", {"seconds": 0.01, "patience": 0.01}, ["charge", "interrupt", "charge", "end"]),
        ("fails", {"seconds": 1000, "charged": 0.01, "patience": 0.01}, ["charge", "interrupt"]),
    ],
)
def test_the_watchdog_ends_what_was_charged_and_nothing_else(
    until: str, given: dict[str, Any], seen: list[str]
) -> None:
    found: list[str] = []
    reached = {name: threading.Event() for name in ("charge", "interrupt", "end")}

    def step(name: str) -> None:
        found.append(name)
        reached[name].set()
        if name == "charge" and until == "fails":
            raise ValueError("the ledger is full")

    steps: dict[str, Any] = {name: partial(step, name) for name in reached}
    with watched(given.pop("seconds"), **steps, **given):
        if until == "fails":
            assert reached["interrupt"].wait(60)
            time.sleep(0.2)  # the end that must not come
        elif until:
            assert reached[until].wait(60)
    assert found == seen
