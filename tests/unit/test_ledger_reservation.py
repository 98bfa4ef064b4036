"""A call that draws before its release is charged first: once, however it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from dpsql.contract.measurement import Permit, measurement_of
from dpsql.errors import BudgetError, InternalError, ParameterError
from dpsql.ledger.budget import Budget, Spent
from dpsql.ledger.chain import Row, row_hash
from dpsql.ledger.copies import backup
from dpsql.ledger.grants import Grant
from dpsql.ledger.ledger import Charge, Entry, Ledger
from dpsql.ledger.schema import append
from dpsql.ledger.verification import verify
from dpsql.mechanisms.laplace import LaplaceNoise
from support.cases import cases

CALL: dict[str, Any] = {
    "event": {"mechanism": "exponential_noise", "epsilon": "0.1"},
    "function": "dp_linear_regression",
    "arguments": {"rounds": 3},
}


def spent(ledger: Ledger, dataset: str = "patients") -> Spent:
    return ledger._read(lambda transaction: transaction.state(dataset)).spent


def released(
    ledger: Ledger, reservation: int, *, draw: Callable[[], Any] = lambda: "theta", remark: str = "", **changes: Any
) -> Entry:
    return ledger.charge(Charge("patients", **CALL | changes), draw, remark=remark, reservation=reservation)


def statuses(ledger: Ledger) -> list[tuple[str, str, float | None]]:
    return [(row.dataset, row.status, row.epsilon) for row in ledger.entries() if row.kind == "release"]


def test_a_reserved_call_is_charged_at_once_and_not_again(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(epsilon=0.1))
    reserved = ledger.reserve(Charge("patients", **CALL))
    charged = spent(ledger)
    assert (charged.epsilon, charged.releases, reserved.result, reserved.replayed) == (10**17, 1, None, False)
    with pytest.raises(BudgetError, match="DPSQL-B001"):
        ledger.reserve(Charge("patients", **CALL))
    entry = released(ledger, reserved.sequence, remark="no x")
    assert (entry.result, entry.guarantee) == ("theta", f"{reserved.guarantee}; no x")
    assert spent(ledger) == charged
    assert ledger.event(entry.sequence) == ledger.event(reserved.sequence) == CALL["event"]
    assert [row.result for row in ledger.releases(["dp_linear_regression"])] == ["theta"]
    assert statuses(ledger) == [
        ("patients", "held, charged before the first draw", 0.1),
        ("patients", "released, charged in entry 2", 0.0),
    ]
    assert ledger.verify(reserved.hash).head == entry.hash


def test_a_reserved_call_that_fails_is_not_charged_again(ledger: Ledger) -> None:
    reserved = ledger.reserve(Charge("patients", name="weekly", **CALL))
    end = ledger.charge_failure(Charge("patients", name="weekly", **CALL), reservation=reserved.sequence)
    assert statuses(ledger)[end - 1] == ("patients", "no result, charged in entry 1", 0.0)
    assert spent(ledger).releases == 1
    again = ledger.reserve(Charge("patients", name="weekly", **CALL))
    assert again.sequence == end + 1  # what failed may have shown something
    assert spent(ledger).releases == 2
    assert ledger.verify().entries == 3


def test_a_last_draw_that_fails_ends_the_reservation(ledger: Ledger) -> None:
    reserved = ledger.reserve(Charge("patients", **CALL))
    with pytest.raises(InternalError, match="DPSQL-I001"):
        released(ledger, reserved.sequence, draw=lambda: 1 / 0)
    assert statuses(ledger)[-1] == ("patients", "no result, charged in entry 1", 0.0)
    assert spent(ledger).releases == 1
    assert ledger.verify().ok


def test_a_killed_driver_leaves_a_charge_that_the_same_name_completes(durable_location: str) -> None:
    """One release comes of it, so it is charged once, however often a driver dies."""
    killed = Ledger.open(durable_location)
    killed.protect("patients", Budget.of(epsilon=0.2))
    first = killed.reserve(Charge("patients", name="weekly", **CALL))
    killed._opened().close()
    ledger = Ledger.open(durable_location)
    fingerprint = Ledger.fingerprint("patients", CALL["function"], CALL["arguments"])
    assert ledger.replay("patients", "weekly", fingerprint) is None
    told: list[float | None] = []
    with ledger.watch(lambda receipt: told.append(receipt.epsilon)):
        again = [ledger.reserve(Charge("patients", name="weekly", **CALL)) for _ in range(3)]
        assert {(entry.sequence, entry.hash, entry.replayed) for entry in again} == {
            (first.sequence, first.hash, False)
        }
        assert released(ledger, first.sequence, name="weekly").result == "theta"
    assert told == [0.0] * 4
    assert ledger.budgets()[0].epsilon_spent == 0.1
    replayed = ledger.reserve(Charge("patients", name="weekly", **CALL))
    assert (replayed.replayed, replayed.result, replayed.sequence) == (True, "theta", first.sequence + 1)
    with pytest.raises(ParameterError, match="DPSQL-P014"):
        ledger.reserve(Charge("patients", name="weekly", **CALL | {"arguments": {"rounds": 4}}))
    assert ledger.verify().entries == 3
    ledger.close()


OPEN: list[dict[str, Any]] = [
    {"name": "monthly"},
    {"name": None},
    {"arguments": {"rounds": 4}},
    {"function": "dp_sis"},
    {"event": {"mechanism": "exponential_noise", "epsilon": "0.2"}},
    {"also": ["visits"]},
]


@cases("change", OPEN, quick=2, alone=True)
def test_only_the_very_call_of_an_open_reservation_completes_it(ledger: Ledger, change: dict[str, Any]) -> None:
    name = None if change == {"name": None} else "weekly"  # without a name no two calls are the same
    first = ledger.reserve(Charge("patients", **CALL | {"name": name}))
    again = ledger.reserve(Charge("patients", **CALL | {"name": "weekly"} | change))
    other = ledger.reserve(Charge("other", **CALL | {"name": "weekly"}))
    assert first.sequence < again.sequence < other.sequence
    assert (spent(ledger).releases, spent(ledger, "other").releases) == (2, 1)


def test_two_drivers_with_one_name_get_one_result_for_one_charge(ledger: Ledger) -> None:
    first = ledger.reserve(Charge("patients", name="weekly", **CALL))
    second = ledger.reserve(Charge("patients", name="weekly", **CALL))
    assert first.sequence == second.sequence
    a = released(ledger, second.sequence, name="weekly")
    b = released(ledger, first.sequence, name="weekly", draw=lambda: pytest.fail("drawn twice"))
    assert (a.replayed, b.replayed, b.result, b.sequence) == (False, True, "theta", a.sequence)
    assert [status for _, status, _ in statuses(ledger)[1:]] == ["released, charged in entry 1"]
    assert spent(ledger).releases == 1
    assert ledger.verify().ok


@cases("other", ["fails", "releases"], quick=3, alone=True)
def test_a_driver_that_finds_its_reservation_ended_is_charged_itself(ledger: Ledger, other: str) -> None:
    """A failure tells something, too: with it two outcomes were seen."""
    ledger.protect("patients", Budget.of(epsilon=0.15))
    reservation = ledger.reserve(Charge("patients", name="weekly", **CALL)).sequence
    ledger.charge_failure(Charge("patients", name="weekly", **CALL), reservation=reservation)
    if other == "fails":
        ledger.charge_failure(Charge("patients", name="weekly", **CALL), reservation=reservation)
        assert spent(ledger).releases == 2
    else:
        with pytest.raises(BudgetError, match="B001"):
            released(ledger, reservation, name="weekly", draw=lambda: pytest.fail("drawn"))
        ledger.protect("patients", Budget.of(epsilon=0.2), replace=True)
        assert released(ledger, reservation, name="weekly").result == "theta"
        assert spent(ledger).releases == 2
    assert ledger.verify().ok


def test_all_datasets_of_a_call_are_reserved_or_none(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(epsilon=1))
    ledger.protect("visits", Budget.of(rho=0.006))
    reserved = ledger.reserve(Charge("Patients", also=["Visits"], **CALL))
    assert [row.status for row in ledger.entries("visits")][1:] == ["held, charged before the first draw"]
    with pytest.raises(InternalError, match=r"DPSQL-I035.*does not reserve"):
        released(ledger, reserved.sequence, also=["airports"])
    released(ledger, reserved.sequence, also=["visits"])
    assert {row.dataset: row.releases for row in ledger.budgets()} == {"patients": 1, "visits": 1}
    with pytest.raises(BudgetError, match=r"DPSQL-B001.*visits"):
        ledger.reserve(Charge("patients", also=["visits"], **CALL))
    assert spent(ledger).releases == 1
    assert ledger.verify().ok


@cases("accountant", ["basic", "rdp"], quick=1, alone=True)
def test_every_accountant_counts_a_reserved_call_once(ledger: Ledger, accountant: str) -> None:
    budget = Budget.of(epsilon=1, delta=1e-6, accountant=accountant)
    for dataset in ("patients", "other"):
        ledger.protect(dataset, budget)
    events = [{"mechanism": "discrete_gaussian", "rho": "0.001"}, CALL["event"]]
    for event in events * (accountant == "rdp") or [CALL["event"]]:
        call = CALL | {"event": event}
        ledger.charge(Charge("other", **call), lambda: 1)
        reserved = ledger.reserve(Charge("patients", **call))
        if event is CALL["event"]:  # a policy that is restated meanwhile changes nothing about what was charged
            ledger.protect("patients", Budget.of(epsilon=2, delta=1e-6, accountant=accountant), replace=True)
        released(ledger, reserved.sequence, event=event)
    assert spent(ledger) == spent(ledger, "other")
    assert ledger.verify().ok


OTHER_CALLS: list[dict[str, Any]] = [
    {"event": {"mechanism": "exponential_noise", "epsilon": "0.01"}},
    {"function": "dp_sis"},
    {"arguments": {"rounds": 4}},
    {"name": "weekly"},
    {"reservation": 1},
    {"reservation": 3},
    {"reservation": 4},
]


@cases("change", OTHER_CALLS, quick=2, alone=True)
def test_only_the_call_that_was_reserved_may_use_a_reservation(ledger: Ledger, change: dict[str, Any]) -> None:
    ledger.charge(Charge("patients", **CALL), lambda: 1)  # an entry of the same call that is no reservation
    reserved = ledger.reserve(Charge("patients", **CALL))
    ledger.reserve(Charge("other", **CALL))
    with pytest.raises(InternalError, match="DPSQL-I035"):
        released(ledger, **({"reservation": reserved.sequence} | change))
    assert released(ledger, reserved.sequence).sequence == 4  # and nothing was recorded before
    assert ledger.verify().ok


def test_drivers_that_race_to_complete_one_reservation_get_one_result(ledger: Ledger) -> None:
    reserved = ledger.reserve(Charge("patients", **CALL))
    start = threading.Barrier(4)

    def work(_: int) -> int:
        start.wait()
        try:
            released(ledger, reserved.sequence)
        except InternalError:
            return 0
        return 1

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) == 1
    assert ledger.verify().entries == 2


FORGERIES: list[Callable[[Row], Any]] = [
    lambda row: row | {"hold": 1},
    lambda row: row | {"hold": 2},
    lambda row: row | {"hold": 4},
    lambda row: row | {"fingerprint": "of another call"},
]


@cases("forge", FORGERIES, quick=2, alone=True)
def test_verify_sees_a_chained_release_that_no_reservation_has_charged(
    ledger: Ledger, forge: Callable[[Row], Any]
) -> None:
    ledger.charge(Charge("patients", **CALL), lambda: 1)
    ledger.charge(Charge("other", **CALL), lambda: 1)
    reserved = ledger.reserve(Charge("patients", **CALL))
    released(ledger, reserved.sequence)
    rows = ledger._read(lambda transaction: list(transaction.walk()))
    forged: Any = forge(rows[3] | {"hold": 3})
    forged["hash"] = row_hash(rows[2]["hash"], forged)
    assert ledger.verify().ok
    found = verify(ledger.id, [*rows[:3], forged], None, None)
    assert (found.ok, found.first_bad) == (False, 4)
    assert "none of the same call" in (found.problem or "")


def test_the_database_refuses_to_complete_a_reservation_twice(ledger: Ledger) -> None:
    reserved = ledger.reserve(Charge("patients", **CALL))
    released(ledger, reserved.sequence)
    row: Any = ledger._read(lambda transaction: list(transaction.walk()))[1]

    def work(connection: Any) -> None:
        with pytest.raises(IntegrityError), connection.begin_nested():
            connection.execute(append, row | {"sequence": 3, "result": None})

    ledger._opened().write(work)
    assert ledger.verify().entries == 2


def test_a_backup_holds_what_was_reserved(ledger: Ledger, tmp_path: Path) -> None:
    reserved = ledger.reserve(Charge("patients", **CALL))
    assert backup(ledger, str(tmp_path / "copy")) == 1
    released(ledger, reserved.sequence)
    assert backup(ledger, str(tmp_path / "copy")) == 2
    copy = Ledger.open(tmp_path / "copy")
    assert copy.entries() == ledger.entries()
    with pytest.raises(InternalError, match=r"DPSQL-I035.*has ended"):
        released(copy, reserved.sequence)
    copy.close()


def test_a_reserved_permit_is_charged_as_a_whole(ledger: Ledger) -> None:
    parts = [LaplaceNoise(name, Fraction(1, 10), 1) for name in ("bounds", "sums")]
    permit = Permit(measurement_of(*parts))
    whole = permit.event
    reserved = ledger.reserve(Charge("patients", **CALL | {"event": permit}))
    with permit.drawing():
        parts[0].draw([3])
    permit.reduce(measurement_of(parts[0]))
    assert permit.event == whole
    released(ledger, reserved.sequence, event=permit)
    assert spent(ledger).epsilon == 2 * 10**17
    assert ledger.verify().ok


def test_what_a_principal_reserved_of_several_datasets_ends_once(ledger: Ledger) -> None:
    call = CALL | {"name": "p:ana 1", "principal": "ana", "also": ["visits"]}
    for dataset in ("patients", "visits"):
        ledger.protect(dataset, Budget.of(epsilon=1))
        ledger.grant(Grant.of("ana", dataset, epsilon=1))
    reserved = ledger.reserve(Charge("patients", **call))
    entry = ledger.charge(Charge("patients", **call), lambda: "theta", reservation=reserved.sequence)
    assert entry.result == "theta"
    assert ledger.end_lost_reservations() == []
    lost = ledger.reserve(Charge("patients", **(call | {"name": "p:ana 2"})))
    by_engine = ledger.reserve(Charge("patients", **(CALL | {"name": "mine"})))  # whose driver may still run
    assert ledger.end_lost_reservations() == [lost.sequence]
    assert ledger.end_lost_reservations() == []
    assert ledger.is_reserved(Charge("patients", **(CALL | {"name": "mine"})))
    assert [budget.releases for budget in ledger.granted_budgets("ana")] == [2, 2]
    again = ledger.reserve(Charge("patients", **(call | {"name": "p:ana 2"})))
    assert again.sequence > by_engine.sequence
    assert [budget.releases for budget in ledger.granted_budgets("ana")] == [3, 3]
    assert ledger.verify().ok
