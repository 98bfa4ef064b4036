"""The accounts of periods against a model of them: each block, one person over all blocks, and what restating keeps."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import date
from fractions import Fraction
from typing import Any

import pytest

from dpsql.contract.events import UNITS_PER_ONE, Cost
from dpsql.contract.periods import Dated, During, block_of, first_day, last_day, spans
from dpsql.errors import BudgetError, DpsqlError, InternalError, ParameterError
from dpsql.ledger.blocks import Blocks, charged_names, delta_over, of_person
from dpsql.ledger.ledger import Budget, Charge, Ledger
from dpsql.ledger.rows import EVERY_OTHER, TOTAL
from support.broken import periods as broken
from support.broken.planting import Fault, planted
from support.cases import cases

MONTH = Dated("month", "day")
STATED: dict[str, Any] = {
    "epsilon": 1, "delta": 1e-5, "privacy_unit": "pid", "max_rows_per_unit": 2, "period": "month", "period_of": "day",
}  # fmt: skip


def call(during: object, epsilon: object = "0.1", *, dated: Dated = MONTH, delta: str = "", **more: Any) -> Charge:
    read = During.read(during, dated)
    assert read is not None
    event: dict[str, object] = {"mechanism": "exponential_noise", "epsilon": str(epsilon)}
    if delta:
        event = {"mechanism": "approximate", "epsilon": str(epsilon), "delta": delta}
    arguments = {"k": 2, "during": read.to_json()}
    unit: dict[str, Any] = {"privacy_unit": "pid", "max_rows_per_unit": 2}
    return Charge("visits", event, "dp_sis", arguments, during=read, **unit, **more)


def spent(ledger: Ledger) -> dict[str, float | None]:
    return {str(row.block): row.epsilon_spent for row in ledger.budgets()}


class Model:
    """What blocks hold, in whole hundredths of epsilon: a dictionary and a sum."""

    def __init__(self, limit: int, total: int | None) -> None:
        self.limit, self.total, self.blocks, self.person = limit, total, dict[str, int](), 0

    def allows(self, names: tuple[str, ...], epsilon: int) -> bool:
        fits = all(self.blocks.get(name, 0) + epsilon <= self.limit for name in names)
        return fits and (self.total is None or self.person + epsilon * len(names) <= self.total)

    def charge(self, names: tuple[str, ...], epsilon: int) -> None:
        self.blocks |= {name: self.blocks.get(name, 0) + epsilon for name in names}
        self.person += epsilon * len(names)

    @property
    def spent(self) -> dict[str, float]:
        return {name: units / 100 for name, units in sorted(self.blocks.items())} | {
            EVERY_OTHER: 0.0, TOTAL: self.person / 100
        }  # fmt: skip


def follow(ledger: Ledger, seed: int, calls: int = 40) -> None:
    """Raise where a ledger allows what the model refuses, refuses what it allows, or keeps another sum."""
    draws = random.Random(seed)
    total = draws.choice([None, 500])
    stated = STATED if total is None else {**STATED, "epsilon_total": total / 100}
    ledger.protect("visits", Budget.of(**stated))
    model = Model(100, total)
    for _ in range(calls):
        first, number, epsilon = draws.randrange(24), draws.choice([1, 1, 2, 3, 12]), draws.choice([1, 5, 20, 40])
        months = [f"{2024 + month // 12}-{month % 12 + 1:02d}" for month in range(first, first + number)]
        during = f"{months[0]}/{months[-1]}" if draws.random() < 0.5 else months
        charge = call(during, Fraction(epsilon, 100))
        entries = ledger.head()[0]
        if not model.allows(tuple(months), epsilon):
            with pytest.raises(BudgetError, match="DPSQL-B001"):
                ledger.charge(charge, lambda: 1)
            assert ledger.head()[0] == entries  # all or none
            continue
        fails = draws.random() < 0.1
        if fails:
            with pytest.raises(InternalError, match="DPSQL-I001"):
                ledger.charge(charge, lambda: 1 / 0)
        else:
            ledger.charge(charge, lambda: 1)
        model.charge(tuple(months), epsilon)
        assert ledger.head()[0] == entries + 1 + number
    assert spent(ledger) == model.spent
    assert ledger.verify().ok


@pytest.mark.long
@cases("seed", range(3), quick=1)
def test_a_ledger_keeps_the_accounts_of_the_model(ledger: Ledger, seed: int) -> None:
    follow(ledger, seed)


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "seed"),
    [(broken.BLOCK_CHARGED_ONCE_FOR_MANY, 0), (broken.TOTAL_NOT_CHECKED, 1)],
    ids=["block_charged_once_for_many", "total_not_checked"],
)
def test_a_fault_in_the_accounts_is_found(fault: Fault, seed: int) -> None:
    with planted(*fault.patches), pytest.raises((AssertionError, pytest.fail.Exception)):
        for each in range(seed, seed + 6):
            follow(Ledger.open(None), each)


def test_a_call_that_names_no_periods_is_refused(ledger: Ledger) -> None:
    """`undated_free`: otherwise it would be charged to no block."""
    ledger.protect("visits", Budget.of(**STATED))
    event = {"mechanism": "exponential_noise", "epsilon": "0.1"}
    charge = Charge("visits", event, "dp_sis", {"k": 2}, privacy_unit="pid", max_rows_per_unit=2)
    with pytest.raises(ParameterError, match="DPSQL-P110"):
        ledger.charge(charge, lambda: 1)
    assert ledger.head()[0] == 2
    with planted(*broken.UNDATED_FREE.patches):
        ledger.charge(charge, lambda: 1)
        assert ledger.head()[0] == 3


def test_a_name_is_of_one_call_with_its_periods() -> None:
    """`replay_across_during`: otherwise the answer for January would be given for February."""

    def ask(ledger: Ledger, during: str) -> bool:
        return ledger.charge(call(during, name="monthly"), lambda: during).replayed

    ledger = Ledger.open(None)
    ledger.protect("visits", Budget.of(**STATED))
    assert [ask(ledger, "2026-01"), ask(ledger, "2026-01")] == [False, True]
    with pytest.raises(ParameterError, match="DPSQL-P014"):
        ask(ledger, "2026-02")
    with planted(*broken.REPLAY_ACROSS_DURING.patches):
        other = Ledger.open(None)
        other.protect("visits", Budget.of(**STATED))
        assert [ask(other, "2026-01"), ask(other, "2026-02")] == [False, True]


def test_a_refusal_names_the_blocks_that_lack_and_offers_the_others(ledger: Ledger) -> None:
    ledger.protect("visits", Budget.of(**STATED, epsilon_total=3))
    ledger.charge(call("2026-02/2026-03", "0.8"), lambda: 1)
    with pytest.raises(BudgetError) as refused:
        ledger.charge(call("2026-01/2026-05", "0.3"), lambda: 1)
    assert "each of the blocks 2026-02/2026-03 of dataset 'visits' needs epsilon 0.3, 0.2 remains" in str(refused.value)
    assert "during := ['2026-01', '2026-04/2026-05']" in str(refused.value)
    with pytest.raises(BudgetError, match=r"a person may lose epsilon 3, of which 1\.4 remains, and 4 blocks may cost"):
        ledger.charge(call("2026-04/2026-07", "0.4"), lambda: 1)
    assert ledger.verify().entries == 5


def test_a_block_under_rdp_has_the_numbers_of_a_dataset_without_periods() -> None:
    with_periods, without = Ledger.open(None), Ledger.open(None)
    stated = {**STATED, "accountant": "rdp"}
    with_periods.protect("visits", Budget.of(**stated))
    names = ("period", "period_of")
    without.protect("visits", Budget.of(**{name: one for name, one in stated.items() if name not in names}))
    for epsilon in ("0.01", "0.03", "0.01"):
        charge = call("2026-01/2026-02", epsilon)
        with_periods.charge(charge, lambda: 1)
        plain = Charge("visits", charge.event, "dp_sis", {"k": 2}, privacy_unit="pid", max_rows_per_unit=2)
        without.charge(plain, lambda: 1)
    blocks, state = with_periods.blocks("visits"), without.states(["visits"])["visits"]
    assert blocks is not None
    assert blocks.spent["2026-01"] == blocks.spent["2026-02"] == state.spent
    assert state.spent.composition is not None
    assert with_periods.verify().ok


def test_a_reservation_charges_its_blocks_once(ledger: Ledger) -> None:
    ledger.protect("visits", Budget.of(**STATED))
    charge = call("2026-01/2026-03", name="a")
    reserved = ledger.reserve(charge)
    assert ledger.reserve(charge).sequence == reserved.sequence
    assert ledger.is_reserved(charge)
    ledger.charge(charge, lambda: 1, reservation=reserved.sequence)
    assert spent(ledger)["2026-02"] == 0.1
    assert spent(ledger)[TOTAL] == 0.3
    assert ledger.verify().ok


def test_a_receipt_says_what_a_block_and_what_a_person_is_charged(ledger: Ledger) -> None:
    ledger.protect("visits", Budget.of(**STATED))
    receipts: list[Any] = []
    with ledger.watch(receipts.append):
        for _ in range(2):
            ledger.charge(call("2025-11/2026-01", "0.2", delta="1e-7", name="a"), lambda: 1)
    first, again = receipts
    assert (first.blocks, first.epsilon, first.epsilon_of_person) == (("2025-11/2026-01",), 0.2, 0.6)
    assert 3e-7 < first.delta_of_person < 4e-7
    assert (again.replayed, again.epsilon, again.epsilon_of_person) == (True, 0, 0)
    assert first.guarantee == "(0.2, 1e-07)-DP, add_remove of all rows of one pid in one month (at most 2 rows)"


# What is spent when periods are stated, changed or withdrawn.


def of_period(period: str) -> Budget:
    return Budget.of(**{**STATED, "period": period})


def test_what_was_spent_before_there_were_periods_counts_in_every_block(ledger: Ledger) -> None:
    plain = {name: one for name, one in STATED.items() if name not in ("period", "period_of")}
    ledger.protect("visits", Budget.of(**plain))
    event = {"mechanism": "exponential_noise", "epsilon": "0.4"}
    ledger.charge(Charge("visits", event, "dp_sis", {}, privacy_unit="pid", max_rows_per_unit=2), lambda: 1)
    ledger.protect("visits", of_period("month"), replace=True)
    assert spent(ledger) == {EVERY_OTHER: 0.4, TOTAL: 0.4}
    ledger.charge(call("2126-01", "0.6"), lambda: 1)
    with pytest.raises(BudgetError, match="block 2126-01"):
        ledger.charge(call("2126-01", "0.1"), lambda: 1)
    assert ledger.verify().ok


def test_rows_that_are_not_dated_ahead_leave_later_blocks_whole(ledger: Ledger) -> None:
    plain = {name: one for name, one in STATED.items() if name not in ("period", "period_of")}
    ledger.protect("visits", Budget.of(**plain))
    event = {"mechanism": "exponential_noise", "epsilon": "0.4"}
    ledger.charge(Charge("visits", event, "dp_sis", {}, privacy_unit="pid", max_rows_per_unit=2), lambda: 1)
    ledger.protect("visits", of_period("month"), replace=True, dated_ahead=False)
    ledger.charge(call("2126-01", "1"), lambda: 1)
    with pytest.raises(BudgetError, match=r"block 2020-01 .* 0\.6 remains"):
        ledger.charge(call("2020-01", "0.7"), lambda: 1)
    ledger.protect("visits", of_period("year"), replace=True)
    assert spent(ledger) == {"2126": 1.0, EVERY_OTHER: 0.4, TOTAL: 1.4}
    assert ledger.verify().ok


def test_coarser_periods_have_the_sum_and_finer_ones_inherit_all(ledger: Ledger) -> None:
    ledger.protect("visits", of_period("month"))
    ledger.charge(call("2026-01/2026-02", "0.2"), lambda: 1)
    ledger.charge(call("2026-02", "0.3"), lambda: 1)
    ledger.protect("visits", of_period("quarter"), replace=True)
    assert spent(ledger) == {"2026-Q1": 0.7, EVERY_OTHER: 0.0, TOTAL: 0.7}
    ledger.protect("visits", of_period("day"), replace=True)
    found = spent(ledger)
    assert len(found) == 90 + 2
    assert {found["2026-01-01"], found["2026-03-31"]} == {0.7}
    ledger.protect("visits", Budget.of(**{**STATED, "period": "none", "period_of": None}), replace=True)
    assert spent(ledger) == {"None": 0.7}
    ledger.protect("visits", of_period("month"), replace=True)  # accounts of before are none of now
    assert set(spent(ledger).values()) == {0.7}
    assert ledger.verify().ok


def test_periods_by_another_column_begin_with_what_a_person_lost(ledger: Ledger) -> None:
    ledger.protect("visits", of_period("month"))
    ledger.charge(call("2026-01/2026-02", "0.2"), lambda: 1)
    ledger.protect("visits", Budget.of(**{**STATED, "period_of": "billed"}), replace=True)
    assert spent(ledger) == {"2026-01": 0.4, "2026-02": 0.4, EVERY_OTHER: 0.4, TOTAL: 0.4}
    assert ledger.verify().ok


def test_merged_deltas_are_those_of_a_path() -> None:
    """A coin of two units shows that their sum is too little (`dpsql.ledger.blocks`)."""
    units = UNITS_PER_ONE
    merged = delta_over([(units, units // 1000)] * 2)
    assert merged > 3.7 * units // 1000 > 2 * units // 1000
    chances = [0.01, 2.718281828 * 0.01 + 0.001]
    chances.append(2.718281828 * chances[1] + 0.001)
    assert chances[2] > 7.389056 * chances[0] + 0.002  # not (2, 0.002)-DP
    assert chances[2] <= 7.38906 * chances[0] + merged / units


@cases("blocks", [1, 2, 12, 1200])
@cases(("epsilon", "delta"), [("0.1", "1e-9"), ("1", "0"), ("3", "1e-300"), ("0", "1e-6")])
def test_the_loss_of_a_person_is_that_of_group_privacy(blocks: int, epsilon: str, delta: str) -> None:
    cost = of_person(Cost(Fraction(epsilon), Fraction(delta), Fraction(1, 100)), blocks)
    assert (cost.epsilon, cost.rho) == (blocks * Fraction(epsilon), Fraction(blocks * blocks, 100))
    at_least = float(delta) * sum(2.718281828 ** min(700, float(epsilon) * number) for number in range(blocks))
    assert float(cost.delta) >= min(1.0, at_least) * (1 - 1e-6)
    if delta == "0":
        assert cost.delta == 0


def test_a_delta_without_an_epsilon_says_nothing_of_several_blocks() -> None:
    """Without a bound on what the first block's rows did, nothing bounds what those of the next one do."""
    cost = Cost(None, Fraction(1, 10**6), Fraction(1, 100))
    one, two = of_person(cost, 1), of_person(cost, 2)
    assert (one.epsilon, one.delta, one.rho) == (None, Fraction(1, 10**6), Fraction(1, 100))
    assert (two.epsilon, two.delta, two.rho) == (None, 1, Fraction(4, 100))
    assert of_person(Cost(None, Fraction(0), Fraction(1, 100)), 2).delta == 0


def test_a_call_that_fails_after_its_periods_were_restated_is_charged_to_all_that_it_touched() -> None:
    months = Budget.of(**STATED)
    for during, named in (
        (
            During.read(block_of("quarter", date(2026, 2, 3)), Dated("quarter", "day")),
            ["2026-01", "2026-02", "2026-03"],
        ),
        (During.read("2026-02/2026-03", MONTH), ["2026-02", "2026-03"]),
    ):
        assert during is not None
        assert charged_names(months, during) == named
        assert charged_names(None, during) == []


def test_dates_of_another_zone_or_column_are_other_dates() -> None:
    """Then what was spent moved all rows of a person, so no account of a block goes on."""
    stated = Dated("month", "day", zone="UTC")
    assert stated.goes_on(Dated("day", "day", zone="UTC"))
    assert not stated.goes_on(Dated("month", "day"))
    assert not stated.goes_on(Dated("month", "came", zone="UTC"))
    several = Dated("month", "", zone="UTC", tables=(("visits", "day"),))
    assert several.goes_on(Dated("month", "", zone="UTC", tables=(("visits", "day"), ("stays", "since"))))
    assert not several.goes_on(Dated("month", "", tables=(("visits", "day"),)))
    assert not several.goes_on(Dated("month", "", zone="UTC", tables=(("visits", "came"),)))


# Damage.


@pytest.mark.parametrize(
    "forge",
    [
        lambda row: {**row, "epsilon": "50000000000000000"},
        lambda row: {**row, "block": "2026-09"},
        lambda row: {**row, "kind": "release"},
        lambda row: {**row, "lineage": json.dumps({"of": 1})},
    ],
    ids=["amount", "block", "kind", "release"],
)
def test_a_forged_charge_of_a_block_is_found(forge: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Even where whoever forged it computed every hash anew."""
    from dpsql.ledger.chain import row_hash
    from dpsql.ledger.verification import verify

    ledger = Ledger.open(None)
    ledger.protect("visits", Budget.of(**STATED))
    ledger.charge(call("2026-01/2026-02"), lambda: 1)
    rows: list[Any] = ledger._read(lambda transaction: list(transaction.walk()))
    assert verify(ledger.id, rows, None, None).ok
    from dpsql.ledger.chain import genesis

    previous, forged = genesis(ledger.id), []
    for row in rows:
        changed: Any = forge(row) if row["block"] == "2026-01" else dict(row)
        changed["hash"] = previous = row_hash(previous, changed)
        forged.append(changed)
    assert not verify(ledger.id, forged, None, None).ok
    assert not verify(ledger.id, rows[:-1], None, None).ok


@cases(
    "given",
    [
        {"period": "month"},
        {"period_of": "day"},
        {"period": "fortnight", "period_of": "day"},
        {"period": "month", "period_of": "day", "privacy_unit": None, "max_rows_per_unit": None},
        {"period": "month", "period_of": "day", "neighbours": "replace"},
        {"period": "month", "period_of": "day", "epsilon": None, "rho": 1, "delta": None},
        {"period": "month", "period_of": "day", "period_zone": "Europe/Zurich"},
        {"epsilon_total": 3},
        {"period": "month", "period_of": "day", "epsilon_total": 0},
        {"period": "month", "period_of": "day", "delta_total": 2},
    ],
)
def test_a_statement_of_periods_that_does_not_hold_together_is_refused(given: dict[str, Any]) -> None:
    plain: dict[str, Any] = {"epsilon": 1, "privacy_unit": "pid", "max_rows_per_unit": 2}
    with pytest.raises(DpsqlError, match="DPSQL-P"):
        Budget.of(**{name: value for name, value in {**plain, **given}.items() if value is not None})


def test_a_budget_with_periods_is_read_back_and_restated() -> None:
    budget = Budget.of(**STATED, epsilon_total=24, delta_total=1e-4, period_zone="UTC")
    assert Budget.from_json(budget.to_json()) == budget
    assert budget.restated({"epsilon": 2}).dated == budget.dated == Dated("month", "day", "UTC")
    assert budget.restated({"period": "none"}).dated is None
    assert "period" not in Budget.of(epsilon=1).to_json()


@pytest.mark.parametrize("period", ["day", "week", "month", "quarter", "year"])
def test_names_of_periods_are_those_of_their_days(period: str) -> None:
    from datetime import date, timedelta

    draws = random.Random(1)
    for _ in range(300):
        day = date.fromordinal(draws.randint(1, date.max.toordinal()))
        name = block_of(period, day)
        first = first_day(period, name)
        assert first is not None
        assert first <= day <= last_day(period, name)
        if last_day(period, name) < date.max:
            after = block_of(period, last_day(period, name) + timedelta(days=1))
            assert spans(period, [name, after]) == [f"{name}/{after}"]
            assert During.read(f"{name}/{after}", Dated(period, "day")) == During(Dated(period, "day"), (name, after))


@cases(
    "during",
    ["2026-13", "2026-1", "2026", "2026-10/", "2026-02/2026-01", "0000-01", "", 5, True, [], ["2026-01", None]],
)
def test_what_is_no_period_is_refused(during: object) -> None:
    with pytest.raises(ParameterError, match="DPSQL-P110"):
        During.read(during, MONTH)
    assert Blocks().spent == {}


def test_a_call_in_flight_is_refused_where_rows_are_dated_by_another_column_now(ledger: Ledger) -> None:
    ledger.protect("visits", Budget.of(**STATED))
    of_view = call("2026-01", dated=Dated("month", "at", base="Day"))
    ledger.charge(of_view, lambda: 1)
    ledger.protect("visits", Budget.of(**{**STATED, "period_of": "billed"}), replace=True)
    for charge in (of_view, call("2026-01")):
        with pytest.raises(ParameterError, match="DPSQL-P110"):
            ledger.charge(charge, lambda: 1)
    assert ledger.verify().ok


SEVERAL = (("patients", None), ("visits", "day"))
OF_SEVERAL: dict[str, Any] = {**STATED, "period_of": dict(SEVERAL)}


def of_several(during: object, epsilon: object = "0.1", *, column: str = "day", more: Any = ()) -> Charge:
    return call(during, epsilon, dated=Dated("month", column, tables=tuple(sorted((*SEVERAL, *more)))))


def test_undated_rows_have_an_account_that_begins_with_what_was_spent(ledger: Ledger) -> None:
    """They were there before there were periods, whatever is said of rows to come."""
    plain = {name: one for name, one in STATED.items() if name not in ("period", "period_of")}
    ledger.protect("visits", Budget.of(**plain))
    event = {"mechanism": "exponential_noise", "epsilon": "0.4"}
    ledger.charge(Charge("visits", event, "dp_sis", {}, privacy_unit="pid", max_rows_per_unit=2), lambda: 1)
    ledger.protect("visits", Budget.of(**OF_SEVERAL), replace=True, dated_ahead=False)
    with pytest.raises(BudgetError, match=r"block undated .* 0\.6 remains"):
        ledger.charge(of_several(None, "0.7", column=""), lambda: 1)
    ledger.charge(of_several(None, "0.5", column=""), lambda: 1)
    ledger.charge(of_several("2126-01", "1"), lambda: 1)
    assert spent(ledger) == {"2126-01": 1.0, "undated": 0.9, EVERY_OTHER: 0.4, TOTAL: 1.9}
    ledger.protect("visits", Budget.of(**{**OF_SEVERAL, "period": "year"}), replace=True)
    assert spent(ledger) == {"2126": 1.0, "undated": 0.9, EVERY_OTHER: 0.4, TOTAL: 1.9}
    ledger.protect("visits", Budget.of(**OF_SEVERAL | {"accountant": "rdp"}), replace=True)
    assert spent(ledger)["undated"] == 0.9
    assert ledger.verify().ok


def test_tables_that_are_added_change_no_account_and_other_dates_all(ledger: Ledger) -> None:
    ledger.protect("visits", Budget.of(**OF_SEVERAL))
    ledger.charge(of_several("2026-01", "0.2"), lambda: 1)
    ledger.charge(of_several(None, "0.1", column=""), lambda: 1)
    before = spent(ledger)
    longer = {**dict(SEVERAL), "stays": "since"}
    ledger.protect("visits", Budget.of(**{**OF_SEVERAL, "period_of": longer}), replace=True)
    assert spent(ledger) == before
    ledger.charge(of_several("2026-01", "0.2"), lambda: 1)  # of a source that reads none of those that were added
    ledger.protect("visits", Budget.of(**{**OF_SEVERAL, "period_of": {**longer, "patients": "born"}}), replace=True)
    assert set(spent(ledger).values()) == {0.5}
    with pytest.raises(ParameterError, match=r"DPSQL-P110.*restated"):
        ledger.charge(of_several("2026-01", "0.2"), lambda: 1)
    ledger.protect("visits", Budget.of(**OF_SEVERAL), replace=True)
    assert spent(ledger) == {"2026-01": 0.5, "undated": 0.5, EVERY_OTHER: 0.5, TOTAL: 0.5}
    assert ledger.verify().ok


def test_a_reservation_charges_the_undated_block(ledger: Ledger) -> None:
    ledger.protect("visits", Budget.of(**OF_SEVERAL))

    reservation = ledger.reserve(of_several(None, "0.3", column=""))
    assert reservation.sequence
    assert spent(ledger)["undated"] == 0.3
    assert ledger.verify().ok
