"""What a database remembers of its ledger, and what a ledger is charged that has forgotten some of it.

One person's budget must not come back: not from a backup of the ledger, nor from an empty file in its place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner, Result

import dpsql
from dpsql.cli.commands import main
from dpsql.contract.periods import Dated, During
from dpsql.engines.duckdb import spending_record
from dpsql.engines.duckdb.spending_record import ROWS, marks_of
from dpsql.errors import LedgerError, LedgerWarning
from dpsql.ledger import ledger
from dpsql.ledger.budget import Spent
from dpsql.ledger.grants import Grant
from dpsql.ledger.ledger import Budget, Charge, Ledger
from dpsql.ledger.spending import Totals
from support.broken.planting import planted
from support.cases import cases
from support.sessions import ledger_of

GAUSSIAN = {"mechanism": "discrete_gaussian", "rho": "0.002", "delta": "1e-8"}
Accounts = dict[tuple[str, str | None], Spent]


def pure(epsilon: str) -> dict[str, Any]:
    return {"mechanism": "exponential_noise", "epsilon": epsilon}


def charged(ledger: Ledger, event: dict[str, Any], dataset: str = "visits", **more: Any) -> None:
    during = more.get("during")
    arguments = {"k": 2} if during is None else {"k": 2, "during": during.to_json()}
    ledger.charge(Charge(dataset, event, "dp_sis", arguments, **more), lambda: 1)


def accounts(ledger: Ledger) -> Accounts:
    """Return what is spent of every account, in the numbers of its accountant."""
    found = {(one.dataset, one.block): one.spent for one in ledger.totals_since(0)}
    composed = {key: one.composition for key, one in found.items()}
    return {
        key: one if composed[key] is None else replace(one, composition=replace(composed[key], releases=0))
        for key, one in found.items()
        if not key[0].startswith(("database ", "ledger "))
    }


class Place:
    """A folder with a database, and the ledger beside it."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "clinic.duckdb"
        self.ledger = folder / "clinic.duckdb.dpsql-ledger"

    def connect(self, **more: Any) -> duckdb.DuckDBPyConnection:
        return dpsql.connect(self.database, **more)

    def keep(self) -> Path:
        """Copy the ledger as it is now, as a backup does."""
        shutil.copyfile(self.ledger, self.ledger.with_suffix(".kept"))
        return self.ledger.with_suffix(".kept")

    def lose(self, kept: Path | None) -> None:
        """Put another file in the place of the ledger; None for no file."""
        for name in (self.ledger, Path(f"{self.ledger}.head")):
            name.unlink(missing_ok=True)
        if kept is not None:
            shutil.copyfile(kept, self.ledger)

    def accept(self) -> Result:
        done = CliRunner().invoke(main, ["ledger", "accept", "--db", str(self.database)])
        assert done.exit_code == 0, done.output
        assert CliRunner().invoke(main, ["ledger", "verify", "--db", str(self.database)]).output.startswith("ok: ")
        return done

    def accounts(self) -> Accounts:
        ledger = Ledger.open(self.ledger, read_only=True)
        found = accounts(ledger)
        ledger.close()
        return found

    def remembered(self) -> list[Totals]:
        with duckdb.connect(self.database) as connection:
            [(name, mark)] = marks_of(connection.execute(ROWS).fetchall()).items()
            return spending_record.read(connection, name, mark).totals


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path)
    with duckdb.connect(found.database) as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT i % 50 AS patient, DATE '2026-01-01' + CAST(i % 90 AS INTEGER) AS day, "
            "i % 12 AS days FROM range(300) AS r(i)"
        )
    return found


def protect(place: Place, **stated: Any) -> duckdb.DuckDBPyConnection:
    connection = place.connect()
    given = ", ".join(f"{name} := {value!r}" for name, value in stated.items())
    connection.execute(f"SELECT dp_protect('visits', {given})")
    return connection


PERIODS = {"privacy_unit": "patient", "max_rows_per_unit": 3, "period": "month", "period_of": "day"}
WORLDS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]] = {
    "basic": ({"epsilon": 3}, [{"event": pure("1/2")}], [{"event": pure("1/4")}, {"event": pure("1/8")}]),
    "rdp": (
        {"epsilon": 3, "delta": 1e-6, "accountant": "rdp"},
        [{"event": pure("1/20")}] * 2,
        [{"event": pure("1/20")}] * 5 + [{"event": GAUSSIAN}],
    ),
    "rdp whose first release is lost": (
        {"epsilon": 3, "delta": 1e-6, "accountant": "rdp"},
        [],
        [{"event": pure("1/20")}] * 5,
    ),
    "rho": ({"rho": 1}, [{"event": GAUSSIAN}], [{"event": GAUSSIAN}, {"event": pure("1/4")}]),
    "periods": (
        {"epsilon": 3, "delta": 1e-6, **PERIODS},
        [{"event": pure("1/2"), "during": ["2026-01"]}],
        [{"event": pure("1/4"), "during": ["2026-01", "2026-02"]}, {"event": pure("1/8"), "during": ["2026-03"]}],
    ),
    "periods by rdp": (
        {"epsilon": 3, "delta": 1e-6, "accountant": "rdp", **PERIODS},
        [{"event": pure("1/2"), "during": ["2026-01"]}],
        [{"event": pure("1/4"), "during": ["2026-01", "2026-02"]}],
    ),
    "grants": (
        {"epsilon": 3},
        [{"event": pure("1/2"), "principal": "ana"}],
        [{"event": pure("1/4"), "principal": "ana"}, {"event": pure("1/8"), "principal": "ben"}],
    ),
    "grants by rdp": (
        {"epsilon": 3, "delta": 1e-6, "accountant": "rdp"},
        [{"event": pure("1/4"), "principal": "ana"}],
        [{"event": pure("1/4"), "principal": "ana"}] * 3,
    ),
}


def run(ledger: Ledger, calls: list[dict[str, Any]], stated: dict[str, Any]) -> None:
    for call in calls:
        more = dict(call)
        if "during" in more:
            more["during"] = During.read(more["during"], Dated("month", "day"))
            more |= {"privacy_unit": "patient", "max_rows_per_unit": 3}
        charged(ledger, **more)


# One with an accountant is quick.
@pytest.mark.parametrize(
    "world", [pytest.param(world, marks=[] if world == "rdp" else pytest.mark.long) for world in WORLDS]
)
def test_a_ledger_from_a_backup_is_charged_what_it_forgot(place: Place, world: str) -> None:
    stated, before, after = WORLDS[world]
    with protect(place, **stated) as connection:
        ledger = ledger_of(connection)
        for principal in ("ana", "ben") if "grants" in world else ():
            delta = 1e-7 if stated.get("delta") else None
            ledger.grant(Grant.of(principal, "visits", epsilon=2, delta=delta, days=None))
        run(ledger, before, stated)
    kept = place.keep()
    with place.connect() as connection:
        run(ledger_of(connection), after, stated)
    spent = place.accounts()
    place.lose(kept)
    forgotten = place.accounts()
    with pytest.raises(LedgerError, match=r"DPSQL-L057.*dpsql ledger accept --db"):
        place.connect()
    assert place.accounts() == forgotten  # a refusal changes nothing
    assert "Charged again" in place.accept().output
    assert forgotten != spent
    assert place.accounts() == spent
    with place.connect() as connection:  # and goes on
        run(ledger_of(connection), after[:1], stated)
    assert place.accept().output.count("remembers") == 1  # nothing more is charged


@pytest.mark.long
def test_what_a_grant_by_months_has_spent_counts_in_this_month(place: Place) -> None:
    with protect(place, epsilon=3) as connection:
        ledger_of(connection).grant(Grant.of("ana", "visits", epsilon=1, per="month", days=None))
    kept = place.keep()
    with place.connect() as connection:
        charged(ledger_of(connection), pure("3/4"), principal="ana")
    place.lose(kept)
    place.accept()
    with place.connect() as connection:
        [found] = ledger_of(connection).granted_budgets("ana")
        assert found.epsilon_spent == 0.75
        with pytest.raises(dpsql.DpsqlError, match="DPSQL-G017"):
            charged(ledger_of(connection), pure("1/2"), principal="ana")


@pytest.mark.long
def test_a_new_ledger_in_the_place_of_a_lost_one_has_no_budget_left(place: Place) -> None:
    with protect(place, epsilon=3, delta=1e-6) as connection:
        charged(ledger_of(connection), pure("1/2"))
    place.lose(None)
    with pytest.raises(LedgerError, match=r"DPSQL-L033.*dpsql ledger accept --db"):
        place.connect()
    Ledger.open(place.ledger).close()  # an empty one, with another id
    with pytest.raises(LedgerError, match="DPSQL-L033"):
        place.connect()
    assert "visits: epsilon 3, delta 1e-06 (all that remained)" in place.accept().output
    with protect(place, epsilon=3, delta=1e-6) as connection, pytest.raises(dpsql.DpsqlError, match="nothing remains"):
        charged(ledger_of(connection), pure("1/8"))
    with place.connect() as connection:  # an owner may raise it, by a decision of their own
        connection.execute("SELECT dp_protect('visits', epsilon := 3.5, replace := true)")
        charged(ledger_of(connection), pure("1/2"))


def test_periods_of_a_new_ledger_have_nothing_left(place: Place) -> None:
    stated = {"epsilon": 1, "epsilon_total": 24, **PERIODS}
    with protect(place, **stated) as connection:
        run(ledger_of(connection), [{"event": pure("1/2"), "during": ["2026-01"]}], stated)
    place.lose(None)
    place.accept()
    with protect(place, **stated) as connection:
        for month in ("2026-01", "2026-11", "2031-01"):
            with pytest.raises(dpsql.DpsqlError, match="DPSQL-B001"):
                run(ledger_of(connection), [{"event": pure("1/8"), "during": [month]}], stated)


@pytest.mark.parametrize(
    "budget", ["basic", *(pytest.param(world, marks=pytest.mark.long) for world in ("rdp", "periods", "grants by rdp"))]
)
def test_all_that_remains_is_charged_where_another_ledger_has_budgets(place: Place, budget: str) -> None:
    stated, before, after = WORLDS[budget]
    with protect(place, **stated) as connection:
        if "grants" in budget:
            ledger_of(connection).grant(Grant.of("ana", "visits", epsilon=2, delta=1e-7, days=None))
        run(ledger_of(connection), before, stated)
    other = Ledger.open(place.ledger.with_name("other"))
    other.protect("visits", Budget.of(**stated))
    if "grants" in budget:
        other.grant(Grant.of("ana", "visits", epsilon=2, delta=1e-7, days=None))
    run(other, before, stated)
    other.close()
    done = CliRunner().invoke(main, ["ledger", "accept", "--db", str(place.database), "--ledger", other_path(place)])
    assert done.exit_code == 0, done.output
    assert "all that remained" in done.output
    other = Ledger.open(place.ledger.with_name("other"))
    assert other.verify().ok
    for call in (*before, *after):
        with pytest.raises(dpsql.DpsqlError, match=r"DPSQL-(B001|G017)"):
            run(other, [call], stated)
    other.close()


def other_path(place: Place) -> str:
    return str(place.ledger.with_name("other"))


def test_two_databases_of_one_ledger_and_a_fork(place: Place, tmp_path: Path) -> None:
    """A charge that came after the copy, on another database, is not taken for one that the copy holds."""
    with protect(place, epsilon=9) as connection:
        charged(ledger_of(connection), pure("1/2"))
    kept = place.keep()
    with place.connect() as connection:
        charged(ledger_of(connection), pure("1/4"))
        charged(ledger_of(connection), pure("1/4"))
    place.lose(kept)
    ledger = Ledger.open(place.ledger, accept=True)  # another database, which remembers nothing of this, goes on
    for _ in range(3):
        charged(ledger, pure("1/8"))
    ledger.close()
    with pytest.raises(LedgerError, match="DPSQL-L057"):
        place.connect()
    place.accept()
    assert place.accounts()["visits", None].epsilon == (4 + 4 + 3) * 10**18 // 8
    with place.connect() as connection:
        charged(ledger_of(connection), pure("1/8"))


@pytest.mark.long
def test_an_accept_that_was_ended_charges_once(place: Place) -> None:
    with protect(place, epsilon=9) as connection:
        pass
    kept = place.keep()
    with place.connect() as connection:
        charged(ledger_of(connection), pure("1/4"))
    place.lose(kept)

    def end(*_: Any) -> int:
        raise KeyboardInterrupt

    with planted((spending_record, "write", end)):
        CliRunner().invoke(main, ["ledger", "accept", "--db", str(place.database)])
    assert place.accounts()["visits", None].epsilon == 10**18 // 4
    place.accept()
    assert place.accounts()["visits", None].epsilon == 10**18 // 4
    with place.connect() as connection:
        connection.execute("FROM dp_count('visits', epsilon := 0.5)")


@pytest.mark.long
def test_a_moved_ledger_warns_until_it_is_accepted(place: Place, tmp_path: Path) -> None:
    with protect(place, epsilon=3) as connection:
        charged(ledger_of(connection), pure("1/2"))
    shutil.copytree(tmp_path, tmp_path / "copy")
    copy = Place(tmp_path / "copy")
    with pytest.warns(LedgerWarning, match=r"was copied or moved: it was at '.*', and is at '.*copy"):
        copy.connect().close()
    copy.accept()
    copy.connect().close()  # and says nothing: a warning is an error here
    place.connect().close()
    shutil.copyfile(place.ledger, place.ledger.with_name("again"))
    os.replace(place.ledger.with_name("again"), place.ledger)
    with pytest.warns(LedgerWarning, match="another file there"):
        place.connect().close()


@pytest.mark.long
def test_a_read_only_database_lags(place: Place) -> None:
    with protect(place, epsilon=3) as connection:
        charged(ledger_of(connection), pure("1/2"))
    last = place.remembered()[-1].sequence
    with place.connect(read_only=True) as connection:
        connection.execute("FROM dp_count('visits', epsilon := 0.5)")
        assert place_of(connection)[-1].sequence == last
    with place.connect() as connection:
        connection.execute("FROM dp_count('visits', epsilon := 0.25)")
    found = place.remembered()
    assert [one.sequence for one in found[-2:]] == [last, last + 2]
    assert found[-1].spent.epsilon == 10**18 * 5 // 4


def place_of(connection: duckdb.DuckDBPyConnection) -> list[Totals]:
    [(name, mark)] = marks_of(connection.execute(ROWS).fetchall()).items()
    return spending_record.read(connection, name, mark).totals


def test_what_the_database_missed_is_charged_once_it_remembers_it(place: Place) -> None:
    with protect(place, epsilon=3) as connection:
        connection.execute("CREATE TABLE wards AS SELECT 1 AS beds; SELECT dp_protect('wards', epsilon := 3)")
    kept = place.keep()
    with place.connect(read_only=True) as connection:
        connection.execute("FROM dp_count('wards', epsilon := 0.5)")
    with place.connect() as connection:
        connection.execute("FROM dp_count('visits', epsilon := 0.25)")
    spent = place.accounts()
    place.lose(kept)
    place.accept()
    assert place.accounts() == spent


@pytest.mark.long
def test_old_rows_are_forgotten_and_no_charge_with_them(place: Place) -> None:
    with protect(place, epsilon=9) as connection:
        charged(ledger_of(connection), pure("1/2"))
    kept = place.keep()
    with place.connect() as connection:
        for _ in range(20):
            charged(ledger_of(connection), pure("1/8"))
    with planted((spending_record, "_MOST", 5)):
        place.connect().close()
    found = place.remembered()
    assert [one.sequence for one in found] == [1, *range(17, 23)]
    spent = place.accounts()
    place.lose(kept)
    place.accept()
    assert place.accounts()["visits", None].epsilon == (spent["visits", None].epsilon or 0) + 10**18 // 2
    with place.connect() as connection:
        assert ledger_of(connection).verify().ok


KILLED = """
import os, sys, dpsql
from dpsql.engines.duckdb import spending_record
connection = dpsql.connect(sys.argv[1])
spending_record._insert = lambda *_: os._exit(7)
connection.execute("FROM dp_count('visits', epsilon := 0.5)")
"""


@pytest.mark.odds("0: looks at charges")
@pytest.mark.long
def test_a_process_that_ends_before_the_database_is_told_refuses_nothing(place: Place) -> None:
    protect(place, epsilon=3).close()
    done = subprocess.run([sys.executable, "-c", KILLED, str(place.database)], check=False)
    assert done.returncode == 7
    assert place.accounts()["visits", None].epsilon == 10**18 // 2
    assert place.remembered()[-1].spent.epsilon == 0
    with place.connect() as connection:
        connection.execute("FROM dp_count('visits', epsilon := 0.5)")
    assert place.remembered()[-1].spent.epsilon == 10**18


@cases("end", ["ROLLBACK", "COMMIT"], quick=1, alone=True)
def test_the_caller_s_transaction_changes_nothing(place: Place, end: str) -> None:
    with protect(place, epsilon=3) as connection:
        connection.execute("BEGIN; CREATE TABLE mine AS SELECT 1 AS a; INSERT INTO visits SELECT * FROM visits")
        connection.execute("FROM dp_count('visits', epsilon := 0.5)")
        connection.execute("FROM dp_count('visits', epsilon := 0.5)")
        connection.execute(end)
        assert place_of(connection)[-1].spent.epsilon == 10**18


def test_a_record_that_cannot_be_written_fails_no_release(place: Place) -> None:
    def refuse(*_: Any) -> None:
        raise duckdb.TransactionException("Conflict on update!")

    with protect(place, epsilon=3) as connection:
        with planted((spending_record, "_insert", refuse)):
            assert connection.execute("FROM dp_count('visits', epsilon := 0.5)").fetchall()
        assert place_of(connection)[-1].spent.epsilon == 0
        connection.execute("FROM dp_count('visits', epsilon := 0.25)")
        assert [one.spent.epsilon for one in place_of(connection)[-1:]] == [10**18 * 3 // 4]


def test_threads_and_processes_leave_the_last_entry(place: Place) -> None:
    with protect(place, epsilon=9) as connection:
        ledger = ledger_of(connection)
        other = Ledger.open(place.ledger)  # another process, which has not this database
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda i: charged(other if i % 4 == 0 else ledger, pure("1/8")), range(24)))
        charged(ledger, pure("1/8"))
        found = place_of(connection)
        assert [one.sequence for one in found] == sorted({one.sequence for one in found})
        assert (found[-1].sequence, found[-1].spent.epsilon) == (ledger.head()[0], 25 * 10**18 // 8)
        other.close()


def test_a_database_of_an_earlier_version_is_opened_and_remembers_from_its_next_release(place: Place) -> None:
    with protect(place, epsilon=9) as connection:
        charged(ledger_of(connection), pure("1/2"))
    with duckdb.connect(place.database) as connection:
        [(_, mark)] = marks_of(connection.execute(ROWS).fetchall()).items()
        connection.execute(f"DROP TABLE {mark.schema}.spent; DROP TABLE {mark.schema}.place")
    with place.connect() as connection:
        assert place_of(connection) == []
        connection.execute("FROM dp_count('visits', epsilon := 0.5)")
        [found] = place_of(connection)
        assert found.spent.epsilon == 10**18
        assert found.budget is not None


@pytest.fixture
def protected(place: Place) -> Iterator[duckdb.DuckDBPyConnection]:
    with protect(place, epsilon=9) as connection:
        [mark] = marks_of(connection.execute(ROWS).fetchall()).values()
        connection.execute(f"CREATE VIEW seen AS SELECT sequence AS days FROM {mark.schema}.spent")
        yield connection


@cases(
    "statement",
    [
        "FROM dp_query($$SELECT count(*) FROM {schema}.spent$$, epsilon := 1)",
        "FROM dp_query($$SELECT count(*) FROM visits WHERE days < (SELECT max(sequence) FROM {schema}.spent)$$, epsilon := 1)",
        "FROM dp_count('{schema}.spent', epsilon := 1)",
        "FROM dp_count('seen', epsilon := 1)",
        "FROM dp_count('seen', dataset := 'visits', epsilon := 1)",
        "FROM dp_query($$SELECT count(*) FROM seen$$, epsilon := 1)",
        "SELECT dp_public('{schema}.spent')",
        "SELECT dp_public('seen')",
        "SELECT dp_public('{schema}.place', force := true)",
        "SELECT dp_protect('{schema}.spent', epsilon := 3)",
        "SELECT dp_derive('{schema}.spent', 'visits', one_row_each := true)",
    ],
)
def test_no_call_reads_it(protected: duckdb.DuckDBPyConnection, statement: str) -> None:
    [mark] = marks_of(protected.execute(ROWS).fetchall()).values()
    before = ledger_of(protected).head()
    with pytest.raises(duckdb.Error, match="DPSQL-"):
        protected.execute(statement.format(schema=mark.schema)).fetchall()
    assert ledger_of(protected).head() == before
    assert protected.execute("FROM dp_unplaced()").fetchall() == []


def test_restoring_says_what_the_backup_does_not_hold(place: Place) -> None:
    with protect(place, epsilon=9) as connection:
        charged(ledger_of(connection), pure("1/2"))
    kept = place.keep()
    with place.connect() as connection:
        charged(ledger_of(connection), pure("1/4"))
    place.lose(None)
    done = CliRunner().invoke(main, ["ledger", "restore", str(kept), "--db", str(place.database)])
    assert done.exit_code == 0
    assert "  visits: epsilon 0.25\n" in done.output
    assert f"dpsql ledger accept --db {place.database}" in done.output


def test_the_checks_see_a_record_that_is_written_too_early(place: Place) -> None:
    """Planted: the database is told before the ledger's commit, which then fails."""
    with protect(place, epsilon=9) as connection:
        ledger = ledger_of(connection)
        [record] = ledger.recorders

        def draw() -> object:
            head = ledger.head()
            row = {**dict.fromkeys(Totals.__annotations__), "sequence": head[0] + 1, "hash": "f" * 64}
            row |= {"dataset": "visits", "block": None, "composition": None, "budget": None}
            row |= {"epsilon_spent": "1", "delta_spent": "0", "rho_spent": "0"}
            record([row])  # type: ignore[list-item]
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            ledger.charge(Charge("visits", pure("1/2"), "dp_sis", {}), draw)
    with pytest.raises(LedgerError, match="DPSQL-L057"):
        place.connect()


def test_the_checks_see_an_accept_that_charges_nothing(place: Place) -> None:
    with protect(place, epsilon=9) as connection:
        pass
    kept = place.keep()
    with place.connect() as connection:
        charged(ledger_of(connection), pure("1/2"))
    spent = place.accounts()
    place.lose(kept)
    with planted((ledger, "append_lost", lambda *_: None)):
        place.accept()
    assert place.accounts() != spent


def test_no_warning_where_nothing_was_moved(place: Place) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        protect(place, epsilon=3).close()
        place.connect().close()
