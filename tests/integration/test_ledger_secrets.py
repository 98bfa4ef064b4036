"""No form of a ledger's URL shows its password, and what a server refuses has a text and a code of its own."""

from __future__ import annotations

import logging
import os
import socket
import traceback
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner
from postgres_server import PostgresServer

import dpsql
from dpsql.cli.commands import main
from dpsql.errors import LedgerError
from dpsql.ledger.ledger import Budget, Charge, Ledger
from dpsql.ledger.store import describe, url_of
from support.cases import cases

# Each part of a password that a wrong cut could leave; no text below may show one of them.
SECRETS = ("Secret99", "ret99", "Sec@", "Sec%40", "tail77", "54321")
URLS = [
    "postgresql://u:Secret99@localhost:1/db",
    "postgresql://u:Secret99@/db?host={folder}",
    "postgresql://u:Secret99/db",
    "postgresql://u:Secret99",
    "postgresql://u:54321/db",
    "postgresql://u:Sec@ret99@localhost:1/db",
    "postgresql://u:Sec@ret99/db",
    "postgresql://u:Sec/ret99@localhost:1/db",
    "postgresql://u:Sec@r/ret99@localhost:1/db",
    "postgresql://u:Sec?ret99@localhost:1/db",
    "postgresql://u:Sec@r?ret99@localhost:1/db",
    "postgresql://u:Sec#ret99@localhost:1/db",
    "postgresql://u:Sec%40ret99@localhost:1/db",
    "postgresql://u:Sec%ret99@localhost:1/db",
    "postgresql://u:%53ecret99@localhost:1/db",
    "postgresql://u%3ASecret99@localhost:1/db",
    "postgresql://u:Secret 99tail77@localhost:1/db",
    "postgresql://u :Secret99 @localhost:1/db",
    " postgresql://u:Secret99@localhost:1/db",
    "postgresql ://u:Secret99@localhost:1/db",
    "postgresql://u:Secret99@localhost:port/db",
    "postgresql://u:Secret99@localhost:0/db",
    "postgresql://u:Secret99@localhost:65536/db",
    "postgresql://u:Secret99@localhost:-1/db",
    "postgresql://u:Secret99@localhost:/db",
    "postgresql://u:Secret99@[::1]:1/db",
    "postgresql://u:Secret99@[::1/db",
    "postgresql://u:Secret99@::1/db",
    "postgresql://u:Secret99@no host/db",
    "postgresql://u:Secret99@\udcff/db",
    "postgresql://u:Secret99@x\x00y/db",
    "postgresql://u:Secret99@" + "x" * 300 + "/db",
    "postgresql://u:Secret99@localhost:1/db/tail77",
    "postgresql://localhost:1/db?user=u&password=Secret99",
    "postgresql://localhost:1/db?password=Secret99&password=tail77",
    "postgresql://localhost:1/db?passwrd=Secret99",
    "postgresql://localhost:1/db?port=Secret99",
    "postgresql://localhost:1/db?sslpassword=Secret99&sslmode=Secret99",
    "postgresql://localhost:1/db?passfile=/tail77/Secret99",
    "postgresql://localhost:1/db?options=-cSecret99",
    "postgresql://localhost:1/db?service=Secret99",
    "postgresql://localhost:1/db?host=u:Secret99@localhost",
    "postgresql://localhost:1/db?Secret99",
    "postgresql://u:Secret99@localhost:1/db?autocommit=Secret99",
    "postgresql+psycopg2://u:Secret99@localhost:1/db",
    "postgresql+Secret99://u:Secret99@localhost:1/db",
    "postgres://u:Secret99@localhost:1/db",
    "postgresql:/u:Secret99@localhost:1/db",
    "postgresql:u:Secret99@localhost/db",
    "postgresql//u:Secret99@localhost/db",
    "mysql://u:Secret99@h/db",
    "mysql+pymysql://u:Secret99@h/db?password=tail77",
    "sqlite://u:Secret99@h/db",
    "Secret99://u:Secret99@h/db",
    "://u:Secret99@h/db",
    "u:Secret99@h/db",
    "u:Secret99/db",
    "host=localhost password=Secret99",
    "dbname=db user=u password='Secret99'",
    "password = Secret99 host=h",
    "HOST=h;PASSWORD=Secret99",
]


def shown(caught: BaseException) -> str:
    """Return all that any way to print an exception shows, and everything that hangs on it."""
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [caught]
    while waiting:
        error = waiting.pop()
        if error is not None and error not in seen:
            seen.append(error)
            waiting += [error.__cause__, error.__context__]
    printed = [f"{error} {error!r} {error.args} {getattr(error, '__notes__', '')}" for error in seen]
    return "\n".join(printed + traceback.format_exception(caught))


def leaks(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


@cases("url", URLS)
def test_no_url_shows_its_password(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)
    url = url.format(folder=tmp_path)
    with pytest.raises(LedgerError) as caught:
        Ledger.open(url)
    # The lines of this file in a traceback hold no URL.
    assert leaks(shown(caught.value)) == []
    assert caught.value.__context__ is None
    assert leaks(caplog.text) == []
    assert list(tmp_path.iterdir()) == []  # no file was made of it


@cases("url", URLS[::3], quick=1, alone=True)
def test_neither_command_nor_connection_shows_a_password(url: str, tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.chdir(tmp_path)
    url = url.format(folder=tmp_path)
    if url.isprintable():
        for command in (["budget"], ["ledger", "verify"], ["query", "SELECT 1"]):
            result = CliRunner().invoke(main, [*command, "--ledger", url])
            assert result.exit_code == 5
            assert leaks(result.output) == []
            assert result.exception is None or isinstance(result.exception, SystemExit)
    with pytest.raises(LedgerError) as caught:
        dpsql.connect(ledger=url)
    assert leaks(shown(caught.value)) == []


@cases(
    ("url", "unproven", "proven"),
    [
        ("postgresql://u@host.example:5433/db", "postgresql://host.example:5433/db", None),
        ("postgresql://host/db", "postgresql://host/db", None),
        ("postgresql://u:Secret99@host:5433/db", "postgresql://...", "postgresql://host:5433/db"),
        ("postgresql://u:Secret99@[::1]:5433/db?sslmode=require", "postgresql://...", "postgresql://[::1]:5433/db"),
        ("postgresql://u:54321/db", "postgresql://...", "postgresql://u:54321/db"),
        ("postgresql://u:Sec@ret99@host/db", "postgresql://...", "postgresql://..."),
        ("postgresql:///db?host=/run/postgresql", "postgresql:///db?host=/run/postgresql", None),
        ("postgresql://", "postgresql:///", None),
        ("/data/host=5/x.ledger", "/data/host=5/x.ledger", None),
    ],
)
def test_a_place_is_described_by_what_is_known_to_be_no_secret(url: str, unproven: str, proven: str | None) -> None:
    assert describe(url_of(url), proven=False) == unproven
    assert describe(url_of(url), proven=True) == (proven or unproven)


@cases(
    ("url", "code"),
    [
        ("postgresql://u:Secret99/db", "L040"),
        ("postgresql://u@h:99999/db", "L040"),
        ("postgresql://u@h/db?port=none", "L040"),
        ("postgresql://u@h/db?autocommit=1", "L041"),
        ("host=h password=Secret99", "L008"),
        ("mysql://u@h/db", "L008"),
        ("sqlite://h/db", "L008"),
        ("postgresql://u@localhost:1/db", "L006"),
    ],
)
def test_what_is_wrong_with_a_url_has_a_code(url: str, code: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError, match=f"DPSQL-{code}"):
        Ledger.open(url)


def charge(ledger: Ledger, draw: Any = lambda: 1) -> None:
    event = {"mechanism": "exponential_noise", "epsilon": "0.1"}
    ledger.charge(Charge("patients", event=event, function="dp_sis", arguments={}), draw)


def url_for(postgres: PostgresServer, user: str, password: str = "", **settings: str) -> str:
    url = postgres.url_of(settings.pop("schema", user), **settings)
    return url.replace("dpsql@", f"{user}{':' + password if password else ''}@")


@pytest.fixture(scope="module")
def guarded(postgres: PostgresServer) -> str:
    """A user with a password."""
    postgres.new_user("guarded", password="Sec@ret99")
    return "guarded"


@pytest.mark.long
def test_a_password_in_the_url_is_shown_nowhere(
    postgres: PostgresServer, guarded: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    con = dpsql.connect(ledger=url_for(postgres, guarded, "Sec%40ret99"))
    con.execute("CREATE TABLE t AS SELECT i::DOUBLE AS x FROM range(100) AS r(i)")
    con.execute("SELECT dp_protect('t', epsilon := 3)").fetchall()
    con.execute("SELECT * FROM dp_quantile('t', target := 'x', epsilon := 1, lower := 0, upper := 100)").fetchall()
    printed = str(con.execute("FROM dp_ledger()").fetchall()) + str(con.execute("FROM dp_budget()").fetchall())
    other = url_for(postgres, guarded, SECRETS[-2])
    with pytest.raises(LedgerError, match="DPSQL-L011") as caught:
        dpsql.install(con, ledger=other)
    con.close()
    ledger = Ledger.open(url_for(postgres, guarded, "Sec%40ret99"))
    store = ledger._opened()
    printed += f"{ledger!r} {ledger.location} {store!r} {store._engine!r} {store._engine.url} {store._engine.pool!r}"
    assert ledger.location == f"postgresql:///postgres?host={postgres.directory}"
    ledger.close()
    assert leaks(printed + shown(caught.value) + caplog.text) == []


def test_refused_logins(postgres: PostgresServer, guarded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSFILE", os.devnull)
    for url in (
        url_for(postgres, guarded, "tail77"),
        url_for(postgres, guarded),
        url_for(postgres, "nobody_of_this_name", "tail77"),
    ):
        with pytest.raises(LedgerError, match=r"DPSQL-L042.*user and the password") as caught:
            Ledger.open(url)
        assert leaks(shown(caught.value)) == []
    with pytest.raises(LedgerError, match="DPSQL-L043"):
        Ledger.open(postgres.url_of("x").replace("/postgres?", "/missing?"))


def test_password_file_service_and_environment(
    postgres: PostgresServer, guarded: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As docs/budgets.md says: the URL may be empty, and the password in a file."""
    passwords, services = tmp_path / "pgpass", tmp_path / "services"
    passwords.write_text("*:*:*:guarded:Sec@ret99\n")
    passwords.chmod(0o600)
    services.write_text(f"[ledger]\nhost={postgres.directory}\nuser=guarded\ndbname=postgres\npassword=Sec@ret99\n")
    with_file = {"PGPASSFILE": str(passwords)}
    with_service = {"PGSERVICEFILE": str(services)}
    environment = {"PGHOST": str(postgres.directory), "PGUSER": "guarded", "PGDATABASE": "postgres"}
    ways: list[tuple[str, dict[str, str]]] = [
        (url_for(postgres, guarded), with_file),
        ("postgresql:///?service=ledger", with_service),
        ("postgresql://", with_service | {"PGSERVICE": "ledger"}),
        ("postgresql://", environment | with_file),
        ("postgresql://", environment | {"PGPASSWORD": "Sec@ret99"}),
    ]
    counts = []
    for url, variables in ways:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            ledger = Ledger.open(url)
            charge(ledger)
            counts.append(ledger.budgets()[0].releases)
            assert leaks(ledger.location) == []
            ledger.close()
    assert counts == sorted(set(counts))  # all of them lead to one ledger


def test_a_time_limit_of_the_server(postgres: PostgresServer) -> None:
    ledger = Ledger.open(postgres.new_url(statement_timeout="200ms"))
    with pytest.raises(LedgerError, match=r"DPSQL-L045.*statement_timeout"):
        ledger._opened().read(lambda connection: connection.exec_driver_sql("SELECT pg_sleep(5)").all())
    charge(ledger)
    ledger.close()


@pytest.mark.long
@pytest.mark.usefixtures("short_waits")
def test_a_lock_timeout_of_the_server(postgres: PostgresServer) -> None:
    url = postgres.new_url()
    ledger, other = Ledger.open(url), Ledger.open(url)

    def draw() -> int:
        with pytest.raises(LedgerError, match="DPSQL-L002"):
            charge(other)
        return 1

    charge(ledger, draw)
    ledger.close()
    other.close()


def test_a_user_without_a_connection_left(postgres: PostgresServer) -> None:
    postgres.new_user("single", settings="CONNECTION LIMIT 1")
    ledger = Ledger.open(url_for(postgres, "single"))

    def draw() -> int:
        with pytest.raises(LedgerError, match=r"DPSQL-L044.*connection"):
            Ledger.open(url_for(postgres, "single"))
        return 1

    charge(ledger, draw)
    ledger.close()


def test_a_user_who_may_not_write(postgres: PostgresServer) -> None:
    postgres.new_user("owner")
    owner = Ledger.open(url_for(postgres, "owner"))
    owner.protect("patients", Budget.of(epsilon=1))
    postgres.new_user("reader")
    postgres.execute("GRANT USAGE ON SCHEMA owner TO reader")
    postgres.execute("GRANT SELECT ON ALL TABLES IN SCHEMA owner TO reader")
    reader = Ledger.open(url_for(postgres, "reader", schema="owner"))
    assert reader.budgets() == owner.budgets()
    with pytest.raises(LedgerError, match="DPSQL-L003"):
        charge(reader)
    assert reader.verify().entries == 1
    for ledger in (owner, reader):
        ledger.close()


def test_a_user_with_the_rights_that_the_documentation_names(postgres: PostgresServer) -> None:
    postgres.new_user("founder")
    founder = Ledger.open(url_for(postgres, "founder"))
    postgres.new_user("writer")
    postgres.execute("GRANT USAGE ON SCHEMA founder TO writer")
    postgres.execute("GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA founder TO writer")
    postgres.execute("GRANT UPDATE ON founder.dpsql_ledger_last TO writer")
    writer = Ledger.open(url_for(postgres, "writer", schema="founder"))
    writer.protect("patients", Budget.of(epsilon=1, delta=1e-6, accountant="rdp"))
    charge(writer)
    assert founder.budgets() == writer.budgets()
    assert founder.verify().entries == 2
    for ledger in (founder, writer):
        ledger.close()


def test_a_server_that_ends_the_connection(postgres: PostgresServer) -> None:
    ledger = Ledger.open(postgres.new_url())

    def draw() -> int:
        postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state LIKE 'idle in%'"
        )
        return 1

    with pytest.raises(LedgerError, match="DPSQL-L046"):
        charge(ledger, draw)
    assert ledger.entries() == []
    charge(ledger)
    ledger.close()


@pytest.mark.long
def test_a_server_that_does_not_answer() -> None:
    pytest.importorskip("psycopg")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        with pytest.raises(LedgerError, match="DPSQL-L047"):
            Ledger.open(f"postgresql://u:Secret99@127.0.0.1:{port}/db?connect_timeout=2")


def locals_of(error: BaseException) -> list[str]:
    """Return what a display of variables shows of every frame behind an error, but for those of this file."""
    shown, errors = [], [error]
    while errors:
        one = errors.pop()
        errors += [each for each in (one.__cause__, one.__context__) if each is not None]
        for frame, _ in traceback.walk_tb(one.__traceback__):
            if frame.f_code.co_filename != __file__:
                shown += [f"{frame.f_code.co_name}: {name} = {value!r}" for name, value in frame.f_locals.items()]
    return shown


@cases("url", URLS)
def test_no_frame_of_a_failing_ledger_shows_a_password(url: str, tmp_path: Path) -> None:
    place = url.format(folder=tmp_path)
    with pytest.raises(LedgerError) as caught:
        Ledger.open(place)
    assert not [line for line in locals_of(caught.value) if any(secret in line for secret in SECRETS)]


def test_no_frame_of_a_failing_connection_shows_a_password() -> None:
    place = "postgresql://u:Secret99@localhost:1/db"
    for attempt in (
        lambda: dpsql.connect(ledger=place),
        lambda: dpsql.Context(ledger=place),
        lambda: dpsql.install(duckdb.connect(), ledger=place),
    ):
        with pytest.raises(LedgerError) as caught:
            attempt()
        assert not [line for line in locals_of(caught.value) if any(secret in line for secret in SECRETS)]
