from __future__ import annotations

import json
from typing import Any

import pytest

from dpsql.errors import LedgerError
from dpsql.ledger.chain import Last, canonical, genesis, note, row_hash
from dpsql.ledger.ledger import Budget, Charge, Ledger
from dpsql.ledger.schema import COLUMNS, add_last
from support.cases import cases

_other = {
    "sequence": "7",
    "releases": "17",
    "budget_sequence": "17",
    "hold": "7",
}  # the integer columns; text elsewhere


def filled(ledger: Ledger) -> Ledger:
    """Row 1 a budget, rows 2 to 5 releases of two datasets, row 4 without a result."""
    ledger.protect("patients", Budget.of(epsilon=3, delta=1e-6, lower=0, upper=1))
    for dataset, name in (("patients", "weekly"), ("other", None), ("other", "failed"), ("patients", None)):
        call: dict[str, Any] = {
            "event": {"mechanism": "gumbel_noise", "epsilon": "0.1", "rounds": 2},
            "function": "dp_sis",
            "arguments": {"k": 2},
            "name": name,
        }
        if name == "failed":
            ledger.charge_failure(Charge(dataset, **call))
        else:
            ledger.charge(Charge(dataset, **call), lambda: ["g17"])
    assert ledger.verify().ok
    return ledger


def statement(ledger: Ledger, *texts: str) -> None:
    """Run SQL as the database's administrator could, past the append-only triggers."""
    store = ledger._opened()

    def work(connection: Any) -> None:
        if connection.dialect.name == "sqlite":
            for operation in ("update", "delete"):
                connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS dpsql_ledger_no_{operation}")
        else:
            connection.exec_driver_sql("ALTER TABLE dpsql_ledger DISABLE TRIGGER ALL")
        for text in texts:
            assert connection.exec_driver_sql(text).rowcount > 0

    store.write(work)


@cases("column", COLUMNS, quick=1, alone=True)
def test_a_change_of_any_column_is_seen(ledger: Ledger, column: str) -> None:
    filled(ledger)
    row = 1 if column == "budget" else 2
    statement(
        ledger, f"UPDATE dpsql_ledger SET {column} = {_other.get(column, repr('changed'))} WHERE sequence = {row}"
    )
    report = ledger.verify()
    assert (report.ok, report.first_bad, report.entries) == (False, row, row - 1)


@cases(
    "column",
    ["name", "event", "epsilon", "rho", "epsilon_spent", "rho_spent", "budget_sequence", "result"],
    quick=2,
    alone=True,
)
def test_a_column_set_to_null_is_seen(ledger: Ledger, column: str) -> None:
    filled(ledger)
    statement(ledger, f"UPDATE dpsql_ledger SET {column} = NULL WHERE sequence = 2")
    assert ledger.verify().first_bad == 2


@cases("sequence", [1, 2, 4], quick=2, alone=True)
def test_a_removed_row_is_seen(ledger: Ledger, sequence: int) -> None:
    filled(ledger)
    statement(ledger, f"DELETE FROM dpsql_ledger WHERE sequence = {sequence}")
    report = ledger.verify()
    assert (report.ok, report.first_bad, report.problem) == (False, sequence, f"row {sequence} is missing")


def test_a_removed_row_is_seen_also_when_the_rest_is_renumbered(ledger: Ledger) -> None:
    filled(ledger)
    renumber = [f"UPDATE dpsql_ledger SET sequence = {n - 1} WHERE sequence = {n}" for n in (4, 5)]
    statement(ledger, "DELETE FROM dpsql_ledger WHERE sequence = 3", *renumber)
    assert ledger.verify().first_bad == 3


def test_swapped_rows_are_seen(ledger: Ledger) -> None:
    filled(ledger)
    swaps = [f"UPDATE dpsql_ledger SET sequence = {to} WHERE sequence = {of}" for of, to in ((3, 30), (5, 3), (30, 5))]
    statement(ledger, *swaps)
    assert ledger.verify().first_bad == 3


def test_an_inserted_copy_is_seen(ledger: Ledger) -> None:
    filled(ledger)
    others = ", ".join(column for column in COLUMNS if column != "sequence")
    statement(
        ledger, f"INSERT INTO dpsql_ledger (sequence, {others}) SELECT 6, {others} FROM dpsql_ledger WHERE sequence = 5"
    )
    assert ledger.verify().first_bad == 6


def test_a_chain_moved_to_another_ledger_is_seen(ledger: Ledger) -> None:
    filled(ledger)
    statement(ledger, "UPDATE dpsql_ledger_meta SET value = '00' WHERE key = 'ledger_id'")
    ledger._opened().ledger_id = "00"  # as the next process would read it
    assert ledger.verify().first_bad == 1


def rewrite(ledger: Ledger) -> None:
    """Write every hash anew, and what is noted of the last rows, as an insider could."""
    store = ledger._opened()

    def work(connection: Any) -> None:
        previous = genesis(store.ledger_id)
        lasts: dict[str, Last] = {}
        for found in connection.exec_driver_sql("SELECT * FROM dpsql_ledger ORDER BY sequence").mappings().all():
            previous = row_hash(previous, found)
            note(lasts, {**found, "hash": previous})
            connection.exec_driver_sql(
                f"UPDATE dpsql_ledger SET hash = '{previous}' WHERE sequence = {found['sequence']}"
            )
        connection.exec_driver_sql("DELETE FROM dpsql_ledger_last")
        names = ("key", "sequence", "hash", "number")
        connection.execute(add_last, [dict(zip(names, (key, *last), strict=True)) for key, last in lasts.items()])

    store.write(work)


def test_a_cut_off_tail_is_seen(ledger: Ledger) -> None:
    filled(ledger)
    statement(ledger, "DELETE FROM dpsql_ledger WHERE sequence > 3")
    report = ledger.verify()
    assert (report.ok, report.entries, report.first_bad) == (False, 3, 4)
    assert report.problem is not None
    assert "cut off" in report.problem
    for use in (ledger.entries, ledger.budgets, lambda: ledger.policy("patients")):
        with pytest.raises(LedgerError, match=r"DPSQL-L03[01]"):
            use()


def test_a_tail_cut_off_without_a_trace_is_seen_against_a_remembered_head_and_the_note_only(ledger: Ledger) -> None:
    filled(ledger)
    middle, head = ledger.entries()[2].hash, ledger.verify().head
    assert ledger.verify(head).ok
    assert ledger.verify(middle).ok  # the ledger may grow after a head was remembered
    statement(ledger, "DELETE FROM dpsql_ledger WHERE sequence > 3")
    rewrite(ledger)
    assert ledger.verify().ok is (ledger.read_note() is None)
    assert ledger.verify(noted=False).ok
    assert ledger.verify(middle, noted=False).ok
    report = ledger.verify(head)
    assert (report.ok, report.entries, report.first_bad) == (False, 3, None)
    assert report.problem is not None
    assert "head" in report.problem


def rechain(ledger: Ledger, changed: int = 2, **changes: str) -> None:
    """Change a row and write every later hash anew, as an insider could."""
    set_to = ", ".join(f"{column} = '{value}'" for column, value in changes.items())
    statement(ledger, f"UPDATE dpsql_ledger SET {set_to} WHERE sequence = {changed}")
    rewrite(ledger)


def test_a_rewritten_chain_is_seen_against_a_remembered_head_and_the_note_only(ledger: Ledger) -> None:
    head = filled(ledger).verify().head
    rechain(ledger, result='["g4"]')
    assert ledger.verify().ok is (ledger.read_note() is None)
    assert ledger.verify(noted=False).ok
    assert not ledger.verify(head).ok


@cases(
    ("column", "value"),
    [
        ("epsilon", "1"),
        ("delta", "1"),
        ("rho", "1"),
        ("epsilon_spent", "1"),
        ("rho_spent", "1"),
        ("delta", "x"),
        ("kind", "protect"),
    ],
    quick=2,
    alone=True,
)
def test_totals_that_do_not_add_up_are_seen_in_a_rewritten_chain(ledger: Ledger, column: str, value: str) -> None:
    filled(ledger)
    rechain(ledger, **{column: value})
    report = ledger.verify()
    assert (report.ok, report.first_bad) == (False, 2)


@cases(
    "changes",
    [
        {"renyi": "0"},
        {"pure": "1"},
        {"failure": "1"},
        {"before_epsilon": "1"},
        {"tail": "1"},
        {"order": "3"},
        {"releases": 7},
        {"order": "0"},
        {"pure": None},
        {"pure": "x"},
    ],
    quick=2,
    alone=True,
)
@cases("sequence", [1, 2])
def test_a_state_of_the_accountant_that_does_not_follow_is_seen(
    ledger: Ledger, changes: dict[str, Any], sequence: int
) -> None:
    if sequence == 1 and changes in ({"order": "3"}, {"renyi": "0"}):
        changes = {"renyi": "5"}  # any order is as good, and nothing is spent yet
    ledger.protect("patients", Budget.of(epsilon=3, delta=1e-6, accountant="rdp"))
    call: dict[str, Any] = {"event": {"mechanism": "discrete_laplace", "epsilon": "0.1"}, "function": "dp_sis"}
    ledger.charge(Charge("patients", arguments={}, **call), lambda: 1)
    assert ledger.verify().ok
    read = f"SELECT composition FROM dpsql_ledger WHERE sequence = {sequence}"
    state = ledger._opened().read(lambda connection: connection.exec_driver_sql(read).scalar_one())
    rechain(ledger, sequence, composition=canonical(json.loads(state) | changes))
    report = ledger.verify()
    assert (report.ok, report.first_bad) == (False, sequence)


@cases("change", ["UPDATE dpsql_ledger SET result = NULL", "DELETE FROM dpsql_ledger"], quick=1, alone=True)
def test_the_database_refuses_changes(ledger: Ledger, change: str) -> None:
    filled(ledger)
    with pytest.raises(LedgerError, match="DPSQL-L010"):
        ledger._opened().write(lambda connection: connection.exec_driver_sql(change))
    assert ledger.verify().entries == 5


def test_the_database_refuses_a_second_result_under_one_name(ledger: Ledger) -> None:
    filled(ledger)
    others = ", ".join(column for column in COLUMNS if column != "sequence")
    copy = f"INSERT INTO dpsql_ledger (sequence, {others}) SELECT 6, {others} FROM dpsql_ledger WHERE sequence = 2"
    with pytest.raises(LedgerError, match="DPSQL-L010"):
        ledger._opened().write(lambda connection: connection.exec_driver_sql(copy))
