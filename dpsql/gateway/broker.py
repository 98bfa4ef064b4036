"""Run the broker: the gateway's only process with the database and the ledger. It has no network, and takes no SQL.

Frames come over a Unix socket with mode 0600 in a directory with mode 0700, from a process of the same user. If the
front has its own user, the socket has mode 0660 and that user's group, and both users may connect. Each connection has
a thread; `Desk` answers.

    python -m dpsql.gateway.broker hospital.duckdb --socket /run/dpsql/broker

A broker starts at the system's time, unless the ledger's last entry is later.
"""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import struct
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from dpsql.context import Context
from dpsql.dataclass import dataclass
from dpsql.errors import GatewayError
from dpsql.gateway.audit import Audit
from dpsql.gateway.desk import Desk, LeastEpsilon
from dpsql.gateway.frames import receive, send
from dpsql.gateway.limits import Buckets, Rates
from dpsql.ledger import clock
from dpsql.ledger.ledger import Ledger


def begin_time(ledger: Ledger, system: datetime) -> tuple[datetime, str]:
    """Return the start time of a broker, and a message about the gap to the ledger's last entry.

    A broker's entries are at most one hour ahead of the time. So a system clock up to one hour behind them was
    corrected, and the broker starts at the last entry.

    Parameters
    ----------
    ledger : Ledger
    system : datetime
        The system's time.

    Raises
    ------
    GatewayError
        G027: the system's clock was set back by more than an hour.
    """
    last = ledger.last_recorded()
    if last is None:
        return system, ""
    gap, at = system - last, f"the ledger's last entry is of {_text(last)}"
    if gap < -clock.MOST_AHEAD:
        raise GatewayError(
            "G027",
            f"the system's time is {_text(system)}, but {at}. Set the clock: sudo timedatectl set-ntp true. Grants and "
            "tokens that have ended would hold again.",
        )
    if gap < timedelta(0):
        return last, f"{at}, {_length(-gap)} after the system's time. Time begins there."
    return system, f"{at}, {_length(gap)} before the system's time. If the gap is too long, the clock was set forwards."


def _text(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _length(gap: timedelta) -> str:
    return str(timedelta(seconds=round(gap.total_seconds())))


_NO_NEW_PRIVS = 38
_MOST_CONNECTIONS = 256
# SQL names reach no Python variable, and DuckDB fetches no extension. The last setting locks them.
_SETTINGS = (
    "python_enable_replacements = false",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "lock_configuration = true",
)


@dataclass(frozen=True)
class BrokerSettings:
    """Settings of a broker.

    Attributes
    ----------
    database : str
        DuckDB file.
    socket : str
        Path of the socket; the broker makes a missing directory with mode 0700.
    ledger : str or None
        As in `dpsql.connect`.
    log : str or None
        The audit log.
    seconds : float
        Time limit of one release.
    rates : float
        Multiplies the limits of `dpsql.gateway.limits`.
    oidc_issuer, oidc_audience, oidc_keys : str or None
        Identity provider (see `dpsql.gateway.keys`), with its keys in a file.
    log_refused : bool
        Log refused statements with their text.
    fixed_time : float or None
        Seconds after which the answer to a new question leaves; by default one of a few times.
    least_epsilon : str or None
        Minimum epsilon of a new statement; by default `dpsql.gateway.desk.USUAL`.
    front_uid : int or None
        User of the front, if it is not this process's user.
    """

    database: str
    socket: str
    ledger: str | None = None
    log: str | None = None
    seconds: float = 120.0
    rates: float = 1.0
    fixed_time: float | None = None
    least_epsilon: str | None = None
    log_refused: bool = False
    oidc_issuer: str | None = None
    oidc_audience: str | None = None
    oidc_keys: str | None = None
    front_uid: int | None = None

    def login(self) -> Callable[[object], str | None] | None:
        """Return the function that maps a provider's token to its subject; None without a provider."""
        if not (self.oidc_issuer and self.oidc_audience and self.oidc_keys):
            return None
        login = import_module("dpsql.gateway.keys")  # loads libraries that only this login needs
        provider = login.Provider(self.oidc_issuer, self.oidc_audience, self.oidc_keys)
        subject_of: Callable[[object], str | None] = login.Login(provider).subject
        return subject_of


class Broker:
    """A listening broker.

    Parameters
    ----------
    settings : BrokerSettings
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self._context = Context(settings.database, ledger=settings.ledger, strict=True)
        for setting in _SETTINGS:
            self._context.sql(f"SET GLOBAL {setting}")
        rates = Rates(factor=settings.rates)
        buckets, audit = Buckets(settings.fixed_time), Audit(settings.log, refused=settings.log_refused)
        least = None if settings.least_epsilon is None else LeastEpsilon(Fraction(settings.least_epsilon))
        self._desk = Desk(
            self._context, audit, rates, seconds=settings.seconds, buckets=buckets, login=settings.login(), least=least
        )
        self._path, self._front_uid = settings.socket, settings.front_uid
        self._slots = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._listener = listen(settings.socket, shared=settings.front_uid is not None)

    def begin(self) -> None:
        """Start this process's clock, and print its distance from the ledger's last entry."""
        begin, notice = begin_time(self._context.ledger, clock.system())
        clock.steady(begin)
        if notice:
            print(f"dpsql: {notice}", file=sys.stderr, flush=True)

    def serve(self) -> None:
        """Accept connections until the listener closes."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if not is_own(connection, self._front_uid) or not self._slots.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Stop listening, and close the database."""
        self._listener.close()
        Path(self._path).unlink(missing_ok=True)
        self._context.close()

    def _talk(self, connection: socket.socket) -> None:
        try:
            with connection:
                while True:
                    request, _ = receive(connection, most_blobs=0)
                    reply, tables = self._desk.answer(request)
                    try:
                        send(connection, reply, [stream_of(table) for table in tables])
                    except GatewayError as error:  # larger than a frame; the releases stay charged
                        refusal = {"code": error.code.removeprefix("DPSQL-"), "message": error.message}
                        send(connection, {"error": refusal})
        except (OSError, EOFError, GatewayError):
            return
        finally:
            self._slots.release()


def stream_of(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def listen(path: str, *, shared: bool = False) -> socket.socket:
    """Return a socket at a path that only this user, and if `shared` the folder's group, can reach."""
    file = Path(path)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    others = 0o067 if shared else 0o077
    if stat.S_IMODE(file.parent.stat().st_mode) & others or file.parent.stat().st_uid != os.getuid():
        raise GatewayError("G035", "the directory of the socket must be yours, with mode 0700.")
    if file.is_socket():
        file.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o117 if shared else 0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(before)
    listener.listen(64)
    return listener


def is_own(connection: socket.socket, front_uid: int | None = None) -> bool:
    """Return whether the peer process has this process's user or the front's."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # only the directory's mode protects
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1] in (os.getuid(), front_uid)


def serve(settings: BrokerSettings) -> None:
    """Run a broker until its process ends."""
    os.umask(0o077)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    broker = Broker(settings)
    try:
        broker.begin()
        broker.serve()
    finally:
        broker.close()


@click.command()
@click.argument("database")
@click.option("--socket", "path", required=True)
@click.option("--ledger")
@click.option("--log")
@click.option("--seconds", type=float, default=120.0)
@click.option("--rates", type=float, default=1.0)
@click.option("--fixed-time", type=float)
@click.option("--least-epsilon")
@click.option("--log-refused", is_flag=True)
@click.option("--oidc-issuer")
@click.option("--oidc-audience")
@click.option("--oidc-keys")
@click.option("--front-uid", type=int)
def main(database: str, path: str, **options: Any) -> None:
    """Run the broker of a database."""
    serve(BrokerSettings(database, path, **options))


if __name__ == "__main__":
    main()
