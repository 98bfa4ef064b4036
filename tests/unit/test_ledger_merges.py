"""Datasets with periods that one takes the place of, against a model: what each block of the new one begins with."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest

from dpsql.contract.periods import Dated, During, block_of
from dpsql.errors import BudgetError, InternalError, ParameterError
from dpsql.ledger.blocks import FRESH, Blocks, Ended, merged
from dpsql.ledger.budget import Budget, Spent
from dpsql.ledger.chain import genesis, row_hash
from dpsql.ledger.ledger import Charge, Ledger
from dpsql.ledger.rows import EVERY_OTHER, TOTAL
from dpsql.ledger.verification import verify
from support.broken.periods import DATED_MERGE_FORGETS, DATED_MERGE_TAKES_MAX
from support.broken.planting import Fault, planted
from support.cases import cases

LIMIT = 300  # hundredths of epsilon
UNIT: dict[str, Any] = {"privacy_unit": "pid", "max_rows_per_unit": 2}
TABLES = {"visits": "day", "stays": "since", "people": None}
NEW = {**UNIT, "epsilon": LIMIT / 100, "delta": 0.1, "period": "month", "period_of": TABLES}
TODAY = datetime.now(UTC).date()
MONTHS = [block_of("month", TODAY + timedelta(days=31 * step)) for step in range(-6, 7)]
BEGUN = {name for name in MONTHS if name <= block_of("month", TODAY + timedelta(days=1))}


def charge(dataset: str, dated: Dated | None, during: object, epsilon: int, *, delta: str = "") -> Charge:
    event: dict[str, object] = {"mechanism": "exponential_noise", "epsilon": str(Fraction(epsilon, 100))}
    if delta:
        event = {"mechanism": "approximate", "epsilon": str(Fraction(epsilon, 100)), "delta": delta}
    read = During.read(during, dated)
    arguments: dict[str, Any] = {"k": 2} if read is None else {"k": 2, "during": read.to_json()}
    return Charge(dataset, event, "dp_sis", arguments, during=read, **UNIT)


def spent(ledger: Ledger, dataset: str) -> dict[str, int]:
    rows = [row for row in ledger.budgets() if row.dataset == dataset]
    return {str(row.block): round(100 * (row.epsilon_spent or 0)) for row in rows}


class Model:
    """What each dataset has spent of each block, and of a person, in hundredths."""

    def __init__(self) -> None:
        self.blocks: dict[str, int] = {}
        self.before = 0  # spent while there were no periods
        self.person = 0

    def begins(self, month: str) -> int:
        return self.before + sum(units for name, units in self.blocks.items() if name.startswith(month))


def follow(ledger: Ledger, seed: int) -> None:
    """Raise where blocks of a merged dataset begin with something else than the sum of what they were charged."""
    draw = random.Random(seed)
    kinds = {name: draw.choice(["kept", "kept", "moved", "none", "by day", "later"]) for name in ("visits", "stays")}
    kinds["people"] = "none"
    columns = {"visits": "day", "stays": "since"}
    models = {name: Model() for name in kinds}
    for name, kind in kinds.items():
        period = {"none": {}, "later": {}}.get(kind, {"period": "day" if kind == "by day" else "month"})
        of = {"period_of": "came" if kind == "moved" else columns[name]} if period else {}
        ledger.protect(name, Budget.of(epsilon=9, delta=0.5, **UNIT, **period, **of))
        model = models[name]
        if kind == "later":  # periods that began after something was spent
            ledger.charge(charge(name, None, None, 7), lambda: 1)
            model.before = model.person = 7
            of, period = {"period_of": columns[name]}, {"period": "month"}
            ledger.protect(name, Budget.of(epsilon=9, delta=0.5, **UNIT, **period, **of), replace=True)
        dated = Dated(str(period["period"]), str(of["period_of"])) if period else None
        for _ in range(draw.randint(0, 5)):
            names = [f"{month}-11" if kind == "by day" else month for month in draw.sample(MONTHS, draw.randint(1, 4))]
            epsilon = draw.choice([1, 2, 5])
            ledger.charge(charge(name, dated, names if dated else None, epsilon), lambda: 1)
            model.person += epsilon * (len(names) if dated else 1)
            for each in names if dated else ():
                model.blocks[each] = model.blocks.get(each, 0) + epsilon
    dated_ahead = draw.random() < 0.6
    kept = [name for name, kind in kinds.items() if kind in ("kept", "by day", "later")]
    ledger.protect("hospital", Budget.of(**NEW), merge=[*kinds], keep_dates=kept, dated_ahead=dated_ahead)
    assert ledger.verify().ok
    dated = Dated("month", "day", tables=tuple(sorted(TABLES.items())))
    # Losses from before there were periods count in all blocks as soon as those of one dataset do.
    everywhere = dated_ahead or "later" in kinds.values()
    bounds = {
        month: sum(
            (model.person if everywhere or month in BEGUN else 0)
            if kinds[name] in ("none", "moved")
            else model.begins(month)
            for name, model in models.items()
        )
        for month in MONTHS
    }
    told = spent(ledger, "hospital")
    for month, begins in bounds.items():
        assert told.get(month, told[EVERY_OTHER] if everywhere or month in BEGUN else 0) == begins, (kinds, month)
        with pytest.raises(BudgetError, match="DPSQL-B001"):
            ledger.charge(charge("hospital", dated, month, LIMIT - begins + 1), lambda: 1)
        ledger.charge(charge("hospital", dated, month, LIMIT - begins), lambda: 1)
    everybody = sum(model.person for model in models.values()) + sum(LIMIT - begins for begins in bounds.values())
    assert spent(ledger, "hospital")[TOTAL] == everybody
    assert not {*kinds} & {row.dataset for row in ledger.budgets()}
    assert ledger.verify().ok


@cases("seed", range(4), quick=1)
def test_blocks_of_merged_datasets_begin_with_the_sum(seed: int) -> None:
    follow(Ledger.open(None), seed)


@pytest.mark.long
def test_blocks_of_merged_datasets_begin_with_the_sum_wherever_the_ledger_is(ledger: Ledger) -> None:
    follow(ledger, 5)


@pytest.mark.long
@cases("seed", range(100, 160))
def test_blocks_of_merged_datasets_begin_with_the_sum_in_many(seed: int) -> None:
    follow(Ledger.open(None), seed)


@pytest.mark.parametrize("fault", [DATED_MERGE_FORGETS, DATED_MERGE_TAKES_MAX], ids=["forgets", "takes_max"])
def test_a_merge_that_loses_what_was_spent_is_found(fault: Fault) -> None:
    with planted(*fault.patches), pytest.raises((AssertionError, pytest.fail.Exception, BudgetError)):
        for seed in range(4):
            follow(Ledger.open(None), seed)


def test_a_block_that_had_begun_for_one_dataset_begins_with_what_both_had_spent() -> None:
    """Where losses from before there were periods count in the blocks that had begun, on another day for each dataset."""
    budget = Budget.of(**{**UNIT, "epsilon": 9, "delta": 0.5, "period": "month", "period_of": "day"})
    nothing = Ended(None, Spent(), Blocks({FRESH: Spent()}), keeps_dates=False)
    parts = [
        Ended(budget, amount, Blocks({FRESH: amount}, begun), keeps_dates=True)
        for amount, begun in ((Spent(5, 1, 2, 1), date(2026, 2, 1)), (Spent(7, 3, 4, 1), date(2026, 5, 20)))
    ]
    for order in (parts, parts[::-1]):
        found = merged(nothing, order, budget)
        assert found is not None
        for month, losses in (("2026-01", (12, 4, 6)), ("2026-04", (12, 4, 6)), ("2026-06", (0, 0, 0))):
            assert found.of(budget, month).losses == losses


def two(ledger: Ledger, *, accountant: str = "basic", delta: str = "") -> tuple[Dated, float]:
    """Charge one block of each of two datasets, and merge them; return how rows are dated, and both blocks' delta."""
    for name, column in (("visits", "day"), ("stays", "since")):
        budget = Budget.of(epsilon=9, delta=0.4, accountant=accountant, **UNIT, period="month", period_of=column)
        ledger.protect(name, budget)
        for _ in range(3):
            ledger.charge(charge(name, Dated("month", column), "2026-01", 10, delta=delta), lambda: 1)
    deltas = sum(row.delta_spent for row in ledger.budgets() if row.block == "2026-01")
    stated = {**NEW, "accountant": accountant, "delta": 0.9}
    ledger.protect("hospital", Budget.of(**stated), merge=["visits", "stays"], keep_dates=["visits", "stays"])
    return Dated("month", "day", tables=tuple(sorted(TABLES.items()))), deltas


def test_undated_rows_begin_with_nothing_of_dated_ones(ledger: Ledger) -> None:
    two(ledger)
    assert spent(ledger, "hospital") == {"2026-01": 60, EVERY_OTHER: 0, TOTAL: 60}
    undated = Dated("month", "", tables=tuple(sorted(TABLES.items())))
    ledger.charge(charge("hospital", undated, None, LIMIT), lambda: 1)
    assert ledger.verify().ok


@cases("accountant", ["basic", "rdp"], quick=1, alone=True)
def test_deltas_add_up_and_every_accountant_begins_anew(ledger: Ledger, accountant: str) -> None:
    dated, deltas = two(ledger, delta="0.001", accountant=accountant)
    assert deltas >= 0.006
    [january] = [row for row in ledger.budgets() if row.block == "2026-01"]
    assert january.delta_spent == pytest.approx(deltas, rel=1e-12)
    ledger.charge(charge("hospital", dated, "2026-01", 10, delta="0.001"), lambda: 1)
    [january] = [row for row in ledger.budgets() if row.block == "2026-01"]
    assert january.delta_spent >= deltas + 0.001 * (1 - 1e-9)
    assert ledger.verify().ok


def test_a_call_in_flight_is_refused_and_one_that_failed_is_charged_to_the_new_dataset(ledger: Ledger) -> None:
    two(ledger)
    late = charge("visits", Dated("month", "day"), "2026-01", 10)
    with pytest.raises(ParameterError, match="DPSQL-P110"):
        ledger.charge(late, lambda: 1)
    ledger.charge_failure(late)
    assert spent(ledger, "hospital") == {"2026-01": 70, EVERY_OTHER: 0, TOTAL: 70}
    both = charge("visits", None, None, 10)
    ledger.charge_failure(Charge(**{**vars(both), "also": ("stays",)}))
    assert spent(ledger, "hospital")[TOTAL] == 80  # both stand for one dataset
    assert ledger.verify().ok


def test_merges_follow_on_each_other(ledger: Ledger) -> None:
    two(ledger)
    ledger.protect("wards", Budget.of(epsilon=9, delta=0.5, **UNIT, period="month", period_of="opened"))
    ledger.charge(charge("wards", Dated("month", "opened"), ["2026-01", "2026-02"], 5), lambda: 1)
    tables = {**TABLES, "wards": "opened"}
    ledger.protect(
        "region",
        Budget.of(**{**NEW, "period_of": tables}),
        merge=["hospital", "wards"],
        keep_dates=["hospital", "wards"],
    )
    assert spent(ledger, "region") == {"2026-01": 65, "2026-02": 5, EVERY_OTHER: 0, TOTAL: 70}
    assert ledger.verify().ok
    with pytest.raises(InternalError, match="DPSQL-I001"):
        ledger.charge(
            charge("region", Dated("month", "day", tables=tuple(sorted(tables.items()))), "2026-01", 5), lambda: 1 / 0
        )
    assert spent(ledger, "region")["2026-01"] == 70


@cases(
    "forge",
    [
        lambda row: {**row, "lineage": json.dumps({"merged": "stays"})} if row["status"].endswith("merge") else row,
        lambda row: {**row, "epsilon": "0"} if row["status"].endswith("merge") else row,
        lambda row: {**row, "epsilon_spent": "1"} if row["status"] == "carried over" else row,
        lambda row: {**row, "arguments": '{"begun":"2020-01-01"}'} if row["block"] == "*" else row,
    ],
    ids=["another dataset", "less", "a block with less", "blocks that begin later"],
    quick=1,
)
def test_a_forged_merge_is_found(forge: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Even where whoever forged it computed every hash anew."""
    ledger = Ledger.open(None)
    ledger.protect("people", Budget.of(epsilon=9, delta=0.5, **UNIT))
    ledger.charge(charge("people", None, None, 3), lambda: 1)
    two(ledger)
    ledger.protect("all", Budget.of(**NEW), merge=["hospital", "people"], keep_dates=["hospital"])
    rows: list[Any] = ledger._read(lambda transaction: list(transaction.walk()))
    assert verify(ledger.id, rows, None, None).ok
    previous, forged = genesis(ledger.id), []
    for row in rows:
        changed: Any = dict(forge(row))
        changed["hash"] = previous = row_hash(previous, changed)
        forged.append(changed)
    assert not verify(ledger.id, forged, None, None).ok
