"""Published attacks on systems that answer privately, through the broker's desk; each with the fault that it would find.

Haeberlen, Pierce, Narayan: Differential Privacy Under Fire (USENIX Security 2011): the channels of state, budget and
time. Averaging of equal questions, and differences of filters, are older than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.engines.duckdb.session import Session
from dpsql.errors import BudgetError
from dpsql.gateway.audit import Audit
from dpsql.gateway.desk import Desk
from dpsql.gateway.limits import Buckets, Rates
from dpsql.ledger.budget import Spent
from dpsql.ledger.ledger import Ledger
from support.gateway_broker import Gateway, count, made, number, tree_of

QUICK, AT_ONCE = Rates(factor=10_000.0), Buckets(sleep=lambda _: None)
VICTIM = 7


@contextmanager
def desk_over(folder: Path, *, victim: bool, buckets: Buckets = AT_ONCE, cap: float = 5) -> Iterator[Asking]:
    """Yield a desk over patients with the victim, or without."""
    folder.mkdir()
    gateway = made(folder, ana={"epsilon": cap}, ben={})
    with dpsql.Context(gateway.database) as context:
        if not victim:
            context.sql(f"DELETE FROM patients WHERE id = {VICTIM}")
        yield Asking(Desk(context, Audit(None), QUICK, buckets=buckets), gateway, context, victim)


class Asking:
    """A desk, and who asks it."""

    def __init__(self, desk: Desk, gateway: Gateway, context: dpsql.Context, victim: bool) -> None:
        self.desk, self.gateway, self.context, self.victim = desk, gateway, context, victim

    def __call__(self, want: str = "call", principal: str = "ana", **request: Any) -> tuple[dict[str, Any], list[Any]]:
        """Ask."""
        return self.desk.answer({"token": self.gateway.tokens[principal], "want": want, **request})

    def code(self, **request: Any) -> str:
        """Ask; return the code of a refusal, or ''."""
        return str(self(**request)[0].get("error", {}).get("code", ""))


@pytest.fixture
def neighbours(tmp_path: Path) -> Iterator[tuple[Asking, Asking]]:
    with (
        desk_over(tmp_path / "with", victim=True, cap=1) as one,
        desk_over(tmp_path / "without", victim=False, cap=1) as other,
    ):
        yield one, other


def counted(epsilon: str, **arguments: Any) -> dict[str, Any]:
    return count(epsilon, **arguments)


def query(sql: str, epsilon: str = "0.1") -> dict[str, Any]:
    return {"function": "dp_query", "source": None, "arguments": {"tree": tree_of(sql), "epsilon": number(epsilon)}}


ADAPTED = [
    *(counted(epsilon) for epsilon in ("0.3", "0.3", "-1", "0.4", "2", "0.25", "0.2", "0.05")),
    *(counted("0.01", condition=text) for text in (f"id = {VICTIM}", f"1 / (id - {VICTIM}) > 0", "nope > 1")),
    query(f"SELECT sum(CASE WHEN id = {VICTIM} THEN age END) AS s FROM patients", "0.01"),
    query("SELECT name FROM patients"),
]


def seen(asking: Asking) -> list[object]:
    """Return all that an analyst sees of a session but the noisy numbers and the times."""
    found: list[object] = []
    for call in ADAPTED:
        price = asking("estimate", **call)[0]
        reply, tables = asking(**call)
        receipts = [{**one, "recorded_at": "", "noise": ""} for one in reply.get("receipts", [])]
        found += [price, reply.get("error"), receipts, [table.schema for table in tables], asking("budget")[0]]
    return found


@pytest.mark.long
def test_refusals_and_budgets_are_the_same_on_neighbours(neighbours: tuple[Asking, Asking]) -> None:
    one, other = map(seen, neighbours)
    assert one == other
    assert any(isinstance(error, dict) and error.get("code") == "G017" for error in one)


@pytest.mark.long
def test_planted_a_budget_that_depends_on_a_row_is_seen(
    neighbours: tuple[Asking, Asking], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {id(one.context.ledger): one.victim for one in neighbours}
    check = Ledger.check

    def leaking(self: Ledger, charge: Any) -> None:
        if rows.get(id(self)):
            raise BudgetError("B001", "nothing is left.")
        check(self, charge)

    monkeypatch.setattr(Ledger, "check", leaking)
    assert seen(neighbours[0]) != seen(neighbours[1])


def state(context: dpsql.Context) -> list[object]:
    """Return what statements can leave behind in a database."""
    found = []
    for table in ("duckdb_settings()", "duckdb_tables()", "duckdb_views()", "duckdb_sequences()", "duckdb_types()"):
        order = "ALL" if table != "duckdb_settings()" else "name"
        found.append(
            context.sql(
                f"SELECT * EXCLUDE (estimated_size) FROM {table} ORDER BY {order}".replace(
                    " EXCLUDE (estimated_size)", " EXCLUDE (estimated_size)" if table == "duckdb_tables()" else ""
                )
            ).to_pylist()
        )
    return found


@pytest.mark.long
def test_a_question_leaves_nothing_behind_that_another_one_sees(tmp_path: Path) -> None:
    with desk_over(tmp_path / "x", victim=True) as asking:
        asking(**counted("0.1"))
        before, budget = state(asking.context), asking("budget", "ben")[0]
        for call in ADAPTED:
            asking(**call)
        assert state(asking.context) == before
        assert asking("budget", "ben")[0] == budget
        asking.context.sql("SET GLOBAL default_null_order = 'nulls_first'")  # planted
        assert state(asking.context) != before


def averaged(asking: Asking, times: int) -> set[object]:
    return {
        str(asking(**counted(f"0.1{'0' * (place % 9)}"))[1][0].column("value").to_pylist()) for place in range(times)
    }


@pytest.mark.long
@pytest.mark.parametrize("times", [20, pytest.param(10_000, marks=pytest.mark.slow)])
def test_an_equal_question_has_one_number_however_often_it_is_asked(tmp_path: Path, times: int) -> None:
    with desk_over(tmp_path / "x", victim=True) as asking:
        assert len(averaged(asking, times)) == 1
        assert asking.context.ledger.granted_budgets("ana")[0].releases == 1


@pytest.mark.long
def test_planted_names_that_differ_by_spelling_average_the_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(range(1000))
    digest = "dpsql.engines.duckdb.releases.digest_of"
    with desk_over(tmp_path / "x", victim=True) as asking:
        monkeypatch.setattr(digest, lambda *_: str(next(names)))
        assert len(averaged(asking, 8)) > 1


def differences(asking: Asking) -> tuple[int, int]:
    """Ask about everybody and about everybody but one, in many ways; return how many questions, and charges."""
    filters = [f"id <> {VICTIM}", f"id < {VICTIM} OR id > {VICTIM}", f"NOT id = {VICTIM}", "age >= 0", f"id = {VICTIM}"]
    before = asking.context.ledger.granted_budgets("ana")[0].releases
    answers = [asking(**counted("0.1", condition=text))[0] for text in filters]
    charged = sum(answer["receipts"][0]["charged"] for answer in answers)
    assert asking.context.ledger.granted_budgets("ana")[0].releases - before == charged
    return len(filters), charged


@pytest.mark.long
def test_differences_of_filters_are_charged(tmp_path: Path) -> None:
    with desk_over(tmp_path / "x", victim=True) as asking:
        asked, charged = differences(asking)
        assert charged == asked
        codes = [
            asking.code(**counted("0.4", condition=f"id <> {VICTIM} AND id <> {other}")) for other in range(1000, 1014)
        ]
        assert codes[-1] == "G017"  # the cap ends it


def difference(asking: Asking, pairs: int = 24) -> float | None:
    """Ask how many there are, and how many but the victim, at an epsilon that tells one from none, until it is refused.

    The mean of the differences is .06 from the truth, on average. None if there is no pair.
    """
    asking.context.dp_protect("patients", epsilon=10_000, replace=True)  # so that the cap alone is in the way
    found = []
    for place in range(1000, 1000 + pairs):
        asked = [counted("4", condition=f"{text} AND id <> {place}") for text in ("age >= 0", f"id <> {VICTIM}")]
        answers = [asking(**call) for call in asked]
        if any("error" in reply for reply, _ in answers):
            break
        everybody, others = (tables[0].column("value")[0].as_py() for _, tables in answers)
        found.append(everybody - others)
    return sum(found) / len(found) if found else None


@pytest.mark.long
def test_differences_of_filters_end_before_they_tell(tmp_path: Path) -> None:
    assert told_apart(tmp_path) == [None, None]


@pytest.mark.long
def test_planted_a_cap_that_forgets_tells_who_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.ledger.accounts.account", lambda *_: Spent())
    assert told_apart(tmp_path) == [pytest.approx(1, abs=0.5), pytest.approx(0, abs=0.5)]


def told_apart(folder: Path) -> list[float | None]:
    """Return the differences with the victim, and without; the cap allows one of the questions, and not two."""
    found = []
    for victim in (True, False):
        with desk_over(folder / str(victim), victim=victim, cap=5) as asking:
            found.append(difference(asking))
    return found


class Clock:
    """Time that passes where somebody sleeps or works, and nowhere else."""

    def __init__(self) -> None:
        self.now = 0.0

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


def times(
    folder: Path, patch: pytest.MonkeyPatch, slow: float, made_of: Callable[[Clock], Buckets], runs: int = 4
) -> list[list[float]]:
    """Return how long answers take with the victim, whose row is slow, and without."""
    found, finish, clock = [], Session.finish, Clock()
    for victim in (True, False):
        with (
            desk_over(folder / str(victim), victim=victim, buckets=made_of(clock)) as asking,
            patch.context() as patched,
        ):

            def work(self: Session, *arguments: Any, cost: float = slow if victim else 0.001) -> Any:
                clock.pass_by(cost)
                return finish(self, *arguments)

            patched.setattr(Session, "finish", work)
            taken = []
            for run in range(runs):
                began = clock.now
                assert not asking.code(**counted(f"0.0{run + 1}"))
                taken.append(round(clock.now - began, 9))
            found.append(taken)
    return found


@pytest.mark.long
def test_with_a_fixed_time_a_slow_row_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = times(tmp_path, monkeypatch, 2.5, lambda clock: Buckets(4.0, lambda: clock.now, clock.pass_by))
    assert one == other == [4.0] * 4


@pytest.mark.long
def test_without_it_a_slow_row_shows_as_one_of_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = times(tmp_path, monkeypatch, 2.5, lambda clock: Buckets(None, lambda: clock.now, clock.pass_by))
    assert one == [3.2] * 4
    assert other == [0.1] * 4


@pytest.mark.long
def test_planted_answers_that_leave_when_they_are_ready_show_a_slow_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Buckets, "leaves", lambda self, took: took)
    one, other = times(
        tmp_path, monkeypatch, 0.07, lambda clock: Buckets(4.0, lambda: clock.now, clock.pass_by), runs=1
    )
    assert one != other


@pytest.mark.long
def test_a_row_that_never_ends_is_answered_at_the_fixed_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is interrupted a fifth before it; the clock of the answers passes by as much."""
    finish, interrupted = Session.finish, []
    for victim in (True, False):
        clock = Clock()
        buckets = Buckets(4.0, lambda clock=clock: clock.now, clock.pass_by)  # type: ignore[misc]
        with desk_over(tmp_path / str(victim), victim=victim, buckets=buckets, cap=50) as asking:

            def stuck(running: Any, clock: Clock = clock, buckets: Buckets = buckets) -> None:
                interrupted.append(running.stopped.wait(60))
                clock.pass_by(buckets.most(120.0))
                raise TimeoutError

            def work(self: Session, ticket: int, running: Any, statistic: Any, victim: bool = victim) -> Any:
                if victim:
                    self.guarded(ticket, stuck)
                return finish(self, ticket, running, statistic)

            with monkeypatch.context() as patched:
                patched.setattr(Session, "finish", work)
                for run in range(3):
                    began = clock.now
                    asking(**counted(f"0.0{run + 100}"))
                    assert clock.now - began == pytest.approx(4.0)
            assert asking.context.ledger.granted_budgets("ana")[0].releases == 3
    assert interrupted == [True] * 3
