"""Single flipped bits in a ledger's file: each is refused with a code, or touches nothing that is used."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import InternalError, LedgerError
from dpsql.ledger.ledger import Budget, Charge, Ledger

CALL: dict[str, Any] = {
    "event": {"mechanism": "exponential_noise", "epsilon": "0.1"},
    "function": "dp_sis",
    "arguments": {"k": 2},
}
NAMES = ("weekly", "monthly", "failed")
DATASETS = ("airports", "patients", "visits")


def fill(ledger: Ledger) -> None:
    """Three datasets with budgets, replaced budgets, named and failed releases, and declarations."""
    ledger.protect("patients", Budget.of(epsilon=3, delta=1e-6, lower=0, upper=1))
    ledger.protect("visits", Budget.of(rho=0.5, delta=1e-5, privacy_unit="pid", max_rows_per_unit=3))
    for number in range(12):
        dataset = DATASETS[number % 3]
        unit = {"privacy_unit": "pid"} if dataset == "visits" else {}
        name = NAMES[number % 2] if number < 6 else None
        ledger.charge(
            Charge(dataset, name=name, lineage={"own": dataset}, **unit, **CALL), lambda n=number: {"n": [n] * 20}
        )
    with pytest.raises(InternalError):
        ledger.charge(Charge("patients", name="failed", **CALL), lambda: 1 / 0)
    ledger.declare("public", "countries", {"force": False}, "dp_public")
    ledger.protect("patients", Budget.of(epsilon=2), replace=True)


def _charge(ledger: Ledger) -> Any:
    return ledger.charge(Charge("patients", **CALL), lambda: "new").sequence


def _replays(ledger: Ledger) -> Any:
    fingerprint = {dataset: Ledger.fingerprint(dataset, "dp_sis", {"k": 2}) for dataset in DATASETS}
    return [ledger.replay(dataset, name, fingerprint[dataset]) for dataset in DATASETS for name in NAMES]


def _spent(ledger: Ledger) -> Any:
    return {row.dataset: (row.budget, row.releases, row.epsilon_spent) for row in ledger.budgets()}


USES: dict[str, Callable[[Ledger], Any]] = {
    "policy": lambda ledger: [ledger.policy(dataset) for dataset in (*DATASETS, "nobody")],
    "check": lambda ledger: ledger.check(Charge("patients", **CALL)),
    "budgets": Ledger.budgets,
    "declarations": Ledger.declarations,
    "replay": _replays,
    "by name": lambda ledger: [ledger.releases(["dp_sis"], None, name) for name in NAMES],
    "by number": lambda ledger: [ledger.releases(["dp_sis"], None, number) for number in (1, 3, 9, 99)],
    "event": lambda ledger: ledger.event(7),
    "releases": lambda ledger: ledger.releases(["dp_sis"], "visits"),
    "entries": lambda ledger: (ledger.entries("airports"), len(ledger.entries())),
    "charge": _charge,
    "after": lambda ledger: (ledger.policy("patients"), _spent(ledger)),
}


def answers(path: Path) -> dict[str, Any]:
    """Return what every use answers, or the code of its error; anything else fails."""
    found: dict[str, Any] = {}
    ledger = None
    try:
        ledger = Ledger.open(path)
    except LedgerError as error:
        return dict.fromkeys(USES, error.code)
    for name, use in USES.items():
        try:
            found[name] = use(ledger)
        except LedgerError as error:
            assert re.fullmatch(r"DPSQL-L0\d\d", error.code)
            found[name] = error.code
    ledger.close()
    return found


@pytest.mark.long
@pytest.mark.parametrize("flips", [120, pytest.param(1000, marks=pytest.mark.slow)], ids=["a sample", "a thousand"])
def test_no_flipped_bit_is_believed(tmp_path: Path, flips: int) -> None:
    original, path = tmp_path / "original", tmp_path / "x"
    ledger = Ledger.open(original)
    fill(ledger)
    ledger.close()
    content = original.read_bytes()
    shutil.copyfile(original, path)
    right = answers(path)
    assert not [name for name, answer in right.items() if isinstance(answer, str)]
    policy, spent = right["after"]
    before = (policy, {**spent, "patients": ("epsilon 2", 5, 0.5)})  # where the charge is refused
    # Most of a small file is empty space, so most flips go to bytes that hold something.
    used = [place for place, byte in enumerate(content) if byte]
    generator = random.Random(flips)
    refused = 0
    for number in range(flips):
        place = generator.choice(used) if number % 10 else generator.randrange(len(content))
        flipped = bytearray(content)
        flipped[place] ^= 1 << generator.randrange(8)
        for each in tmp_path.glob("x*"):
            each.unlink()
        path.write_bytes(flipped)
        seen = answers(path)
        if isinstance(seen["charge"], str) and seen["after"] == before:
            seen["after"] = seen["charge"]
        wrong = {name: (answer, right[name]) for name, answer in seen.items() if answer != right[name]}
        believed = {name: each for name, each in wrong.items() if not isinstance(each[0], str)}
        assert not believed, (place, believed)
        refused += bool(wrong)
    assert flips * 0.3 < refused < flips
