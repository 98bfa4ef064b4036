"""A real PostgreSQL for the tests: Debian's binaries, a temporary directory, a Unix socket, no TCP port."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path


class UnavailableError(Exception):
    """PostgreSQL cannot be started here; the text says why."""


class PostgresServer:
    """A server of its own, with one database in which each ledger gets a schema of its own."""

    def __init__(self) -> None:
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"), key=lambda path: int(path.split("/")[4]))
        on_path = shutil.which("postgres")
        if not found and not on_path:
            raise UnavailableError("no PostgreSQL server: apt-get install -y postgresql")
        self._bin = Path(found[-1] if found else str(on_path)).parent
        self._directory = Path(tempfile.mkdtemp(prefix="dpsql-pg-"))  # short: a socket's path has 107 bytes
        self._as_user: list[str] = []
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            names = {entry.pw_name for entry in pwd.getpwall()}
            user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
            os.chown(self._directory, user.pw_uid, user.pw_gid)
            self._as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        self._schemas = 0
        try:
            self._run("initdb", "-D", self._data, "-U", "dpsql", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
            self._start()
        except UnavailableError:
            shutil.rmtree(self._directory)
            raise

    @property
    def _data(self) -> str:
        return str(self._directory / "data")

    def _start(self) -> None:
        options = f"-c listen_addresses='' -c unix_socket_directories='{self._directory}'"
        log = str(self._directory / "log")
        self._run("pg_ctl", "-D", self._data, "-l", log, "-w", "-o", options, "start")

    def new_url(self, **settings: str) -> str:
        """Return the URL of an empty schema, with server settings for its sessions."""
        import psycopg

        self._schemas += 1
        schema = f"ledger_{self._schemas}"
        with psycopg.connect(f"host={self._directory} user=dpsql dbname=postgres", autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
        return self.url_of(schema, **settings)

    def url_of(self, schema: str, **settings: str) -> str:
        """Return the URL of a schema."""
        options = "%20".join(f"-c{name}%3D{value}" for name, value in {"search_path": schema, **settings}.items())
        return f"postgresql://dpsql@/postgres?host={self._directory}&options={options}"

    def new_user(self, name: str, *, password: str = "", settings: str = "") -> None:
        """Create a user, who must give a password where one is set, with a schema of the same name."""
        secret = f"PASSWORD '{password}'" if password else ""
        self.execute(f"CREATE ROLE {name} LOGIN {settings} {secret}")
        self.execute(f"CREATE SCHEMA {name} AUTHORIZATION {name}")
        if password:
            access = Path(self._data) / "pg_hba.conf"
            rules = access.read_text(encoding="utf-8")
            access.write_text(f"local all {name} scram-sha-256\n{rules}", encoding="utf-8")
            self.execute("SELECT pg_reload_conf()")

    @property
    def directory(self) -> Path:
        """Where the server's socket is."""
        return self._directory

    def execute(self, statement: str) -> None:
        """Run a statement as the server's administrator."""
        import psycopg

        with psycopg.connect(f"host={self._directory} user=dpsql dbname=postgres", autocommit=True) as connection:
            connection.execute(statement)

    def crash_and_restart(self) -> None:
        """End every server process at once, as a power cut would, and recover from the log."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "stop")
        self._start()

    def stop(self) -> None:
        """Stop the server and delete its files."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "stop")
        shutil.rmtree(self._directory)

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_user, str(self._bin / program), *arguments]
        try:
            # Output goes to a file: a server that inherits a pipe would keep it open.
            with tempfile.TemporaryFile() as output:
                done = subprocess.run(command, stdout=output, stderr=output, cwd="/", timeout=60, check=False)
                output.seek(0)
                text = output.read().decode(errors="replace")
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnavailableError(f"{program} did not run: {type(error).__name__}") from None
        if done.returncode:
            raise UnavailableError(f"{program} failed: {text[-500:]}")
