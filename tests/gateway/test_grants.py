"""Grants, tokens and caps in the ledger, against a small model of them."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import dpsql
from dpsql.cli.commands import main
from dpsql.contract.periods import Dated, During, block_of, first_day
from dpsql.errors import BudgetError, DpsqlError, GatewayError, InternalError, ParameterError
from dpsql.ledger.grants import Grant, digest_of
from dpsql.ledger.ledger import Budget, Charge, Ledger
from dpsql.ledger.transaction import Transaction
from support.cases import cases

PRINCIPALS, DATASETS = ("ana", "ben"), ("patients", "visits")


def asked(principal: str | None, dataset: str, epsilon: str = "0.1", **more: Any) -> Charge:
    event = {"mechanism": "exponential_noise", "epsilon": epsilon}
    return Charge(dataset, event, "dp_sis", {"k": 2}, principal=principal, **more)


def now() -> datetime:
    return datetime.now(UTC)


def refused(code: str, call: Callable[[], object]) -> DpsqlError:
    with pytest.raises(DpsqlError) as caught:
        call()
    assert caught.value.code == f"DPSQL-{code}"
    return caught.value


class Model:
    """What may be charged, in plain sums."""

    def __init__(self) -> None:
        self.budgets = dict.fromkeys(DATASETS, Fraction(0))
        self.caps: dict[tuple[str, str], Fraction | None] = {}
        self.spent: dict[tuple[str, str], Fraction] = {}

    def refusal(self, principal: str, dataset: str, epsilon: Fraction, limit: Fraction) -> str | None:
        key = principal, dataset
        if key not in self.caps:
            return "G015"
        cap = self.caps[key]
        if cap is not None and self.spent.get(key, Fraction(0)) + epsilon > cap:
            return "G017"
        return "B001" if self.budgets[dataset] + epsilon > limit else None

    def charge(self, principal: str, dataset: str, epsilon: Fraction) -> None:
        self.budgets[dataset] += epsilon
        self.spent[principal, dataset] = self.spent.get((principal, dataset), Fraction(0)) + epsilon


def test_a_dataset_is_named_as_the_ledger_names_it(tmp_path: Path) -> None:
    """Its name ignores the case of A to Z alone; planted: a grant on 'übungen' for the budget of 'Übungen'."""
    database = str(tmp_path / "names.duckdb")
    with dpsql.Context(database) as context:
        context.sql('CREATE TABLE "Übungen" AS SELECT i AS id FROM range(9) AS r(i)')
        context.dp_protect("Übungen", epsilon=1)
        [dataset] = [row.dataset for row in context.ledger.budgets()]
    assert Grant.of("ana", "ÜBUNGEN").dataset == dataset
    told = CliRunner().invoke(main, ["grant", "ana", "--dataset", "Übungen", "--db", database])
    assert (told.exit_code, "no budget" in told.output) == (0, False)


def test_functions_that_are_none_are_not_granted(tmp_path: Path) -> None:
    database = str(tmp_path / "functions.duckdb")
    with dpsql.Context(database) as context:
        context.sql("CREATE TABLE t AS SELECT 1 AS id")
        context.dp_protect("t", epsilon=1)
    for name in ("dp_cuont", "dp_protect", "dp_count,x"):
        told = CliRunner().invoke(main, ["grant", "ana", "--dataset", "t", "--functions", name, "--db", database])
        assert (told.exit_code, "P005" in told.output) == (1, True)


@cases("seed", range(6), quick=1)
def test_random_grants_charges_and_revokes_are_as_in_the_model(seed: int) -> None:
    generator, ledger, model, limit = random.Random(seed), Ledger.open(), Model(), Fraction(2)
    for dataset in DATASETS:
        ledger.protect(dataset, Budget.of(epsilon=2))
    for _ in range(80):
        principal, dataset = generator.choice(PRINCIPALS), generator.choice(DATASETS)
        action = generator.random()
        if action < 0.15:
            cap = generator.choice([None, 0.2, 0.5, 1.5])
            ledger.grant(Grant.of(principal, dataset, epsilon=cap))
            model.caps[principal, dataset] = None if cap is None else Fraction(str(cap))
        elif action < 0.2 and (principal, dataset) in model.caps:
            ledger.revoke(principal, dataset)
            del model.caps[principal, dataset]
        else:
            epsilon = generator.choice(["0.05", "0.1", "0.3"])
            charge = asked(principal, dataset, epsilon)
            code = model.refusal(principal, dataset, Fraction(epsilon), limit)
            before = ledger.head()
            if code is not None:
                refused(code, lambda charge=charge: ledger.check(charge))
                refused(code, lambda charge=charge: ledger.charge(charge, lambda: 1))
                assert ledger.head() == before
                continue
            if action > 0.9:
                ledger.charge_failure(charge)
            else:
                ledger.charge(charge, lambda: 1)
            model.charge(principal, dataset, Fraction(epsilon))
    assert {row.dataset: row.epsilon_spent for row in ledger.budgets()} == {
        name: float(spent) for name, spent in model.budgets.items()
    }
    for principal in PRINCIPALS:
        for row in ledger.granted_budgets(principal):
            assert row.epsilon_spent == float(model.spent.get((principal, row.dataset), 0))
    assert ledger.verify().ok


class Clock:
    """A clock that stands where it was put."""

    def __init__(self, text: str) -> None:
        self.time = datetime.fromisoformat(text).replace(tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock("2026-10-05T08:00:00")
    monkeypatch.setattr("dpsql.ledger.clock.now", found)
    return found


def counted_by_hand(entries: list[tuple[datetime, Fraction]], now: datetime, per: str) -> Fraction:
    """Return the sum of what follows on the first entry of a period."""
    start = datetime.combine(first_day(per, block_of(per, now.date())) or now.date(), datetime.min.time(), UTC)
    first = next((place for place, (when, _) in enumerate(entries) if when >= start), len(entries))
    return sum((epsilon for _, epsilon in entries[first:]), Fraction(0))


@cases("seed", range(3), quick=1)
def test_caps_by_periods_are_as_in_a_model_of_the_calendar(seed: int, clock: Clock) -> None:
    generator, ledger = random.Random(seed), Ledger.open()
    entries: dict[tuple[str, str], list[tuple[datetime, Fraction]]] = {}
    grants: dict[tuple[str, str], Grant] = {}
    allowed = 0
    for _ in range(60):
        # Mostly on, sometimes back, and sometimes to the last or the first moment of a month.
        clock.time += timedelta(hours=generator.choice([1, 20, 100, 100, 300, -30]))
        if generator.random() < 0.2:
            month = clock.time.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
            clock.time = month - timedelta(milliseconds=generator.choice([0, 1]))
        key = generator.choice(PRINCIPALS), generator.choice(DATASETS)
        if key not in grants or generator.random() < 0.1:
            per = generator.choice([None, "day", "week", "month", "quarter", "year"])
            grants[key] = Grant.of(*key, epsilon=generator.choice([0.2, 0.5, 1]), per=per, days=None)
            ledger.grant(grants[key])
        grant, epsilon = grants[key], generator.choice(["0.05", "0.1", "0.3"])
        mine = entries.setdefault(key, [])
        before = (
            sum((each for _, each in mine), Fraction(0))
            if grant.per is None
            else counted_by_hand(mine, clock.time, grant.per)
        )
        [budget] = [row for row in ledger.granted_budgets(key[0]) if row.dataset == key[1]]
        assert (budget.epsilon_spent, budget.per) == (float(before), grant.per)
        assert budget.period == (None if grant.per is None else block_of(grant.per, clock.time.date()))
        assert grant.cap is not None
        assert grant.cap.epsilon is not None
        if before + Fraction(epsilon) > grant.cap.epsilon:
            head, charge = ledger.head(), asked(*key, epsilon)
            refused("G017", lambda charge=charge: ledger.check(charge))
            refused("G017", lambda charge=charge: ledger.charge(charge, lambda: 1))
            assert ledger.head() == head
        else:
            ledger.charge(asked(*key, epsilon), lambda: 1)
            mine.append((clock.time, Fraction(epsilon)))
            allowed += 1
    assert 10 < allowed < 60
    assert ledger.verify().ok


def test_a_cap_of_a_month_begins_anew_and_the_refusal_says_when(clock: Clock) -> None:
    ledger = Ledger.open()
    ledger.grant(Grant.of("ana", "patients", epsilon=0.2, per="month", days=None))
    ledger.charge(asked("ana", "patients", "0.2", name="kept"), lambda: 1)
    told = refused("G017", lambda: ledger.charge(asked("ana", "patients"), lambda: 1))
    assert "of month 2026-10" in told.message
    assert "The next month begins on 2026-11-01." in told.message
    assert ledger.charge(asked("ana", "patients", "0.2", name="kept"), lambda: 1).replayed
    clock.time = datetime(2026, 11, 1, tzinfo=UTC)
    ledger.charge(asked("ana", "patients", "0.2"), lambda: 1)
    refused("G017", lambda: ledger.charge(asked("ana", "patients"), lambda: 1))
    with pytest.raises(ParameterError):
        Grant.of("ana", "patients", per="month")
    with pytest.raises(ParameterError):
        Grant.of("ana", "patients", epsilon=1, per="decade")


def test_a_cap_of_a_month_composes_under_the_accountant(clock: Clock) -> None:
    ledger = Ledger.open()
    ledger.protect("patients", Budget.of(epsilon=20, delta=1e-4, accountant="rdp"))
    ledger.grant(Grant.of("ana", "patients", epsilon=1, delta=1e-6, per="month", days=None))

    def until_refused() -> int:
        done = 0
        while True:
            try:
                ledger.charge(asked("ana", "patients", "0.05"), lambda: 1)
            except GatewayError as error:
                assert error.code == "DPSQL-G017"
                return done
            done += 1

    first = until_refused()
    assert first > 20  # which basic composition allows
    clock.time = datetime(2026, 11, 2, tzinfo=UTC)
    assert until_refused() == first
    assert ledger.verify().ok


@pytest.mark.parametrize("lost", ["first", "middle", "last"])
def test_a_hidden_entry_of_a_period_is_seen(lost: str, tmp_path: Path, clock: Clock) -> None:
    place = tmp_path / "x.ledger"
    ledger = Ledger.open(place)
    ledger.grant(Grant.of("ana", "patients", epsilon=1, per="month", days=None))
    ledger.charge(asked("ana", "patients"), lambda: 1)
    clock.time += timedelta(days=31)
    for _ in range(3):
        ledger.charge(asked("ana", "patients"), lambda: 1)
    ledger.close()
    with sqlite3.connect(place) as connection:
        for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        rows = connection.execute("SELECT sequence FROM dpsql_ledger WHERE block = '@ana' ORDER BY sequence").fetchall()
        hidden = rows[{"first": 1, "middle": 2, "last": 3}[lost]][0]
        connection.execute("UPDATE dpsql_ledger SET block = '@ben' WHERE sequence = ?", [hidden])
    connection.close()
    refused("L030", lambda: Ledger.open(place).charge(asked("ana", "patients"), lambda: 1))


def test_a_refused_epsilon_raises_no_cap() -> None:
    ledger = Ledger.open()
    ledger.grant(Grant.of("ana", "patients", epsilon=0.2))
    for epsilon in ("-1", "0", "nan"):
        with pytest.raises((DpsqlError, ValueError, ArithmeticError)):
            ledger.charge(asked("ana", "patients", epsilon), lambda: 1)
    ledger.charge(asked("ana", "patients", "0.2"), lambda: 1)
    refused("G017", lambda: ledger.charge(asked("ana", "patients", "0.000001"), lambda: 1))


def test_a_failed_draw_is_charged_to_the_principal_too() -> None:
    ledger = Ledger.open()
    ledger.grant(Grant.of("ana", "patients", epsilon=0.2))
    with pytest.raises(InternalError):
        ledger.charge(asked("ana", "patients"), lambda: 1 / 0)
    assert ledger.granted_budgets("ana")[0].epsilon_spent == 0.1
    assert ledger.verify().ok


def test_a_call_on_two_datasets_needs_both_grants() -> None:
    ledger = Ledger.open()
    ledger.grant(Grant.of("ana", "patients", epsilon=1))
    both = asked("ana", "patients", also=["visits"])
    refused("G015", lambda: ledger.charge(both, lambda: 1))
    ledger.grant(Grant.of("ana", "visits", epsilon=0.1))
    ledger.charge(both, lambda: 1)
    refused("G017", lambda: ledger.charge(both, lambda: 1))
    assert [row.epsilon_spent for row in ledger.granted_budgets("ana")] == [0.1, 0.1]
    assert ledger.verify().ok


def test_caps_on_periods_are_of_one_person_over_all_of_them() -> None:
    ledger = Ledger.open()
    stated = {"privacy_unit": "pid", "max_rows_per_unit": 2}
    ledger.protect("stays", Budget.of(epsilon=1, period="month", period_of="day", **stated))
    ledger.grant(Grant.of("ana", "stays", epsilon=0.3))
    during = During.read("2026-10/2026-11", Dated("month", "day"))
    assert during is not None
    charge = Charge(
        "stays", {"mechanism": "exponential_noise", "epsilon": "0.1"}, "dp_sis", {"during": during.to_json()},
        during=during, principal="ana", **stated,
    )  # fmt: skip
    ledger.charge(charge, lambda: 1)
    assert ledger.granted_budgets("ana")[0].epsilon_spent == 0.2
    refused("G017", lambda: ledger.charge(charge, lambda: 1))
    assert {row.block: row.epsilon_spent for row in ledger.budgets()} == {
        "2026-10": 0.1, "2026-11": 0.1, "every other": 0.0, "total": 0.2,
    }  # fmt: skip
    assert ledger.verify().ok


@pytest.mark.long
def test_a_cap_adds_up_under_the_accountant_of_the_dataset() -> None:
    ledger = Ledger.open()
    ledger.protect("patients", Budget.of(epsilon=2, delta=1e-5, accountant="rdp"))
    ledger.grant(Grant.of("ana", "patients", epsilon=1, delta=1e-6))
    done = 0
    while True:
        try:
            ledger.charge(asked("ana", "patients", "0.01"), lambda: 1)
        except GatewayError as error:
            assert error.code == "DPSQL-G017"
            break
        done += 1
    assert done > 100  # which basic composition allows
    assert ledger.verify().ok


def test_a_budget_refuses_what_a_cap_allows() -> None:
    ledger = Ledger.open()
    ledger.protect("patients", Budget.of(epsilon=0.1))
    ledger.grant(Grant.of("ana", "patients", epsilon=5))
    refused("B001", lambda: ledger.charge(asked("ana", "patients", "0.2"), lambda: 1))
    with pytest.raises(BudgetError):
        ledger.check(asked("ana", "patients", "0.2"))


def test_nobody_passes_a_cap_at_once(tmp_path: Path) -> None:
    place = str(tmp_path / "x.ledger")
    first = Ledger.open(place)
    first.grant(Grant.of("ana", "patients", epsilon=1))
    opened = [first, *(Ledger.open(place) for _ in range(3))]

    def charge(number: int) -> bool:
        try:
            opened[number % 4].charge(asked("ana", "patients"), lambda: number)
        except GatewayError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(charge, range(24))) == 10
    assert first.granted_budgets("ana")[0].epsilon_remaining == 0
    assert first.verify().ok
    for ledger in opened:
        ledger.close()


def test_a_grant_that_expired_or_is_an_auditors_asks_nothing() -> None:
    ledger = Ledger.open()
    grant = Grant.of("ana", "patients")
    ledger.grant(Grant(**{**vars(grant), "expires": "2020-01-01T00:00:00.000Z"}))
    refused("G015", lambda: ledger.charge(asked("ana", "patients"), lambda: 1))
    ledger.grant(Grant.of("ana", "patients", role="auditor"))
    refused("G015", lambda: ledger.charge(asked("ana", "patients"), lambda: 1))


def test_tokens_are_kept_as_digests_alone(tmp_path: Path) -> None:
    place = tmp_path / "x.ledger"
    ledger = Ledger.open(place)
    ledger.grant(Grant.of("ana", "patients"))
    issued = ledger.issue_token("ana")
    ledger.close()
    assert len(issued.text) == len("dpsql_") + 43
    assert issued.text not in repr(issued)
    with sqlite3.connect(place) as connection:
        stored = repr(connection.execute("SELECT * FROM dpsql_ledger").fetchall())
    connection.close()
    assert issued.text[6:] not in stored
    assert digest_of(issued.text) in stored


def test_tokens_rotate_and_are_taken_back() -> None:
    ledger = Ledger.open()
    ledger.grant(Grant.of("ana", "patients"))
    first, second = ledger.issue_token("ana"), ledger.issue_token("ana")
    for issued in (first, second):
        assert ledger.grants().principal_of(issued.text, now()) == "ana"
    later = now() + timedelta(hours=25)
    refused("G020", lambda: ledger.grants().principal_of(first.text, later))
    assert ledger.grants().principal_of(second.text, later) == "ana"
    third = ledger.issue_token("ana", now=True)
    for issued in (first, second):
        refused("G020", lambda issued=issued: ledger.grants().principal_of(issued.text, now()))
    refused("G020", lambda: ledger.grants().principal_of(third.text, now() + timedelta(days=91)))
    ledger.revoke("ana", token=third.token.id)
    refused("G020", lambda: ledger.grants().principal_of(third.text, now()))
    refused("P013", lambda: ledger.revoke("ana", token=third.token.id))
    ledger.revoke("ana")
    refused("P013", lambda: ledger.issue_token("ana"))


def test_another_process_sees_a_revocation_at_once(tmp_path: Path) -> None:
    one, other = Ledger.open(tmp_path / "x.ledger"), Ledger.open(tmp_path / "x.ledger")
    one.grant(Grant.of("ana", "patients"))
    issued = one.issue_token("ana")
    assert other.grants().principal_of(issued.text, now()) == "ana"
    one.revoke("ana")
    refused("G020", lambda: other.grants().principal_of(issued.text, now()))
    one.close()
    other.close()


@cases(
    "text",
    ["", "dpsql_", None, 7, "DPSQL_" + "a" * 43, "dpsql_" + "a" * 42, "dpsql_" + "a" * 44, "dpsql_" + "a" * 43,
     " dpsql_" + "a" * 43, "dpsql_" + "é" * 43, "dpsql_" + "a" * 42 + "\x00", "a" * 10**6],
)  # fmt: skip
def test_what_is_no_token_has_one_refusal(text: object) -> None:
    ledger = Ledger.open()
    ledger.grant(Grant.of("ana", "patients"))
    issued = ledger.issue_token("ana")
    known = refused("G020", lambda: ledger.grants().principal_of(text, now()))
    expired = refused("G020", lambda: ledger.grants().principal_of(issued.text, now() + timedelta(days=400)))
    assert str(known) == str(expired)
    for other in (issued.text[:-1], issued.text.upper(), issued.text + "a"):
        refused("G020", lambda other=other: ledger.grants().principal_of(other, now()))


@cases("name", ["", "Ana", "a b", "@ana", "a/b", "a" * 64, "ana\n", "é", None, 7, "_a"])
def test_names_of_principals(name: object) -> None:
    refused("P013", lambda: Grant.of(name, "patients"))


def test_a_hidden_or_changed_row_of_a_grant_is_seen(tmp_path: Path) -> None:
    place = tmp_path / "x.ledger"
    ledger = Ledger.open(place)
    ledger.grant(Grant.of("ana", "patients", epsilon=1))
    ledger.charge(asked("ana", "patients"), lambda: 1)
    ledger.revoke("ana")
    ledger.close()
    for change in (
        "UPDATE dpsql_ledger SET kind = 'replay' WHERE kind = 'revoke'",
        "UPDATE dpsql_ledger SET principal = 'ben' WHERE kind = 'grant'",
        "UPDATE dpsql_ledger SET epsilon_spent = '1' WHERE block = '@ana'",
        "DELETE FROM dpsql_ledger_last WHERE key = 'granted'",
    ):
        copy = tmp_path / "copy.ledger"
        copy.write_bytes(place.read_bytes())
        with sqlite3.connect(copy) as connection:
            connection.execute("DROP TRIGGER dpsql_ledger_no_update")
            connection.execute(change)
        connection.close()
        damaged = Ledger.open(copy, read_only=True)
        assert not damaged.verify().ok
        damaged.close()
        with pytest.raises(DpsqlError, match=r"DPSQL-(L030|G015)"):
            Ledger.open(copy).charge(asked("ana", "patients"), lambda: 1)


def test_a_false_account_of_a_principal_does_not_verify(tmp_path: Path) -> None:
    """Rows that chain, but whose account is another principal's, or does not follow, are seen by adding up."""
    ledger = Ledger.open()
    ledger.grant(Grant.of("ana", "patients", epsilon=1))
    ledger.charge(asked("ana", "patients"), lambda: 1)
    store = ledger._opened()
    from dpsql.ledger import schema
    from dpsql.ledger.chain import row_hash
    from dpsql.ledger.verification import verify

    rows: list[Any] = store.read(lambda connection: list(schema.stream(connection, store.version)))
    for change in ({"epsilon": "0"}, {"epsilon_spent": "0"}, {"principal": "ben"}, {"block": "@ben"}, {"releases": 7}):
        changed, previous = [], None
        from dpsql.ledger.chain import genesis

        previous = genesis(store.ledger_id)
        for row in rows:
            row = {**row, **(change if row["block"] == "@ana" else {})}
            row["hash"] = previous = row_hash(previous, row)
            changed.append(row)
        assert not verify(store.ledger_id, changed, None, None).ok, change
    assert verify(store.ledger_id, rows, None, None).ok
    assert not verify(store.ledger_id, rows[:-1], None, None).ok  # the account is missing


def test_own_releases_are_those_of_the_principal() -> None:
    ledger = Ledger.open()
    for principal in PRINCIPALS:
        ledger.grant(Grant.of(principal, "patients"))
    ledger.charge(asked("ana", "patients", name="a"), lambda: 1)
    ledger.charge(asked("ben", "patients", name="b"), lambda: 2)
    ledger.charge(asked(None, "patients", name="c"), lambda: 3)
    assert [(row.name, row.result) for row in ledger.releases_by("ana")] == [("a", 1)]


def test_the_commands(tmp_path: Path) -> None:
    place = str(tmp_path / "x.ledger")
    Ledger.open(place).close()

    def run(*words: str) -> Any:
        return CliRunner().invoke(main, [*words, "--ledger", place])

    assert run("token", "ana").exit_code != 0
    granted = run("grant", "ana", "--dataset", "visits", "--epsilon", "0.5", "--functions", "dp_count, dp_query")
    assert granted.exit_code == 0, granted.output
    issued = run("token", "ana", "--expires", "30d")
    text = issued.stdout.strip().splitlines()[-1]
    ledger = Ledger.open(place)
    assert ledger.grants().principal_of(text, now()) == "ana"
    [grant] = ledger.grants().of("ana", now())
    assert (grant.functions, grant.cap) == (("dp_count", "dp_query"), Budget.of(epsilon=0.5))
    shown = run("principals", "--format", "json").stdout
    assert '"principal":"ana"' in shown
    assert text[6:14] in run("principals").stdout
    assert text not in run("principals").stdout
    assert run("revoke", "ana", "--token", text[6:14]).exit_code == 0
    assert run("revoke", "ana", "--token", text[6:14]).exit_code != 0
    assert ledger.grants().tokens == {}
    assert run("grant", "ana", "--dataset", "visits", "--expires", "soon").exit_code == 2
    with pytest.raises(ParameterError):
        Grant.of("ana", "visits", delta=1e-6)
    ledger.close()


@pytest.mark.long
@cases("seed", range(3))
@cases("accountant", ["basic", "rdp"])
def test_what_is_composed_on_is_what_is_composed_anew(
    accountant: str, seed: int, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes charge by turns, some transactions fail, the clock goes back, and the cap changes."""
    generator, place = random.Random(seed), tmp_path / "x.ledger"
    ledgers = [Ledger.open(place) for _ in range(2)]
    ledgers[0].protect("patients", Budget.of(epsilon=50, delta=1e-4, accountant=accountant))
    read: list[int] = []
    since = Transaction.charges_since

    def counting(self: Transaction, *given: Any) -> Any:
        found = since(self, *given)
        read.append(len(found))
        return found

    for step in range(40):
        clock.time += timedelta(hours=generator.choice([1, 5, 40, 200, -30]))
        if step == 0 or generator.random() < 0.1:
            cap = generator.choice([2, 3])
            ledgers[0].grant(Grant.of("ana", "patients", epsilon=cap, delta=1e-6, per="month", days=None))
        ledger, charge = generator.choice(ledgers), asked("ana", "patients", generator.choice(["0.05", "0.2"]))
        with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt, GatewayError):
            if generator.random() < 0.15:
                patched.setattr(Transaction, "append", lost_after(Transaction.append))
            ledger.charge(charge, lambda: 1)
        with contextlib.closing(Ledger.open(place)) as other:
            anew = other.granted_budgets("ana")
        assert [one.granted_budgets("ana") for one in ledgers] == [anew, anew]
    monkeypatch.setattr(Transaction, "charges_since", counting)
    ledgers[0].granted_budgets("ana")
    assert read in ([1], [0])  # the last entry alone; none in a new month
    assert ledgers[0].verify().ok


def lost_after(append: Any) -> Any:
    """Return what appends a row of an account, and loses its transaction."""

    def lost(self: Transaction, draft: Any, after: Any) -> Any:
        entry = append(self, draft, after)
        if draft["kind"] == "charge":
            raise KeyboardInterrupt
        return entry

    return lost


def test_planted_what_others_charged_since_is_forgotten(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Transaction, "charges_since", only_known(Transaction.charges_since))
    with pytest.raises(AssertionError):
        test_what_is_composed_on_is_what_is_composed_anew("basic", 0, tmp_path, clock, monkeypatch)


def only_known(since: Any) -> Any:
    def found(self: Transaction, dataset: str, block: str, start: str | int, number: int) -> Any:
        rows = since(self, dataset, block, start, number)
        return rows[:1] if isinstance(start, int) else rows

    return found
