"""A front with a user of its own: what that user reaches, what starts again, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import GatewayError
from dpsql.gateway.sandbox import available
from dpsql.gateway.serving import FrontUser, environment
from support.cases import cases
from support.other_user import ROOT, entered, missing, user

NAME = f"dpsql-test-{os.getpid()}"
ANSWERED = 120
_lacking = missing()
as_root = pytest.mark.skipif(_lacking is not None, reason=str(_lacking))
locked = pytest.mark.skipif(not available().is_complete, reason="this system has no Landlock or no seccomp")
QUESTION = json.dumps({"sql": "SELECT count(*) AS n FROM patients", "epsilon": 0.5}).encode()
# What a front that was taken over would try, as its user: files, sockets and the processes of others.
TRIES = """
import json, os, sys
from dpsql.gateway.door import Door
found = {}
def attempt(name, work):
    try:
        work(); found[name] = "reached"
    except OSError as error:
        found[name] = type(error).__name__
for path in json.loads(sys.argv[1]):
    attempt(path, lambda: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1))
    attempt("write " + path, lambda: open(path, "r+b"))
    attempt("remove " + path, lambda: os.unlink(path))
for number in json.loads(sys.argv[2]):
    attempt(f"kill {number}", lambda: os.kill(number, 0))
found["broker"] = "reached" if Door(sys.argv[3]).health() == {"broker": "ok"} else "nothing"
print(json.dumps(found))
"""


def words(folder: Path, *options: str) -> list[str]:
    """Return the command that serves a folder's database."""
    command = [sys.executable, "-m", "dpsql", "serve", "hospital.duckdb", "--port", "0", "--no-flight", *options]
    return [*entered(folder.parent), *command]


def surroundings() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PGPASSWORD": "Zaphod-4711", "DPSQL_TOKEN": "Zaphod-4711"}


@contextmanager
def served(folder: Path, name: str) -> Iterator[tuple[int, str, str]]:
    """Serve the example tables with a front of another user: the process, where it listens, and a token."""
    with (folder / "said").open("w+") as said, (folder / "token").open("w+") as token:
        process = subprocess.Popen(
            words(folder, "--demo", "--front-user", name, "--owner-port", "0"),
            cwd=folder,
            stdout=token,
            stderr=said,
            env=surroundings(),
            start_new_session=True,
        )
        try:
            while not (folder / "token").read_text().strip():
                assert process.poll() is None, (folder / "said").read_text()
                time.sleep(0.1)
            url = next(one for one in (folder / "said").read_text().splitlines() if " answers. " in one).split()[0]
            yield process.pid, url, (folder / "token").read_text().strip()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def parts(process: int) -> dict[str, int]:
    """Return the processes of a gateway by their modules; of two fronts the one with the network."""
    found: dict[str, int] = {}
    for one in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        given = Path(f"/proc/{one}/cmdline").read_bytes().decode().split("\0")
        module = next((word.removeprefix("dpsql.gateway.") for word in given if word.startswith("dpsql.gateway.")), "")
        found[f"owner's {module}" if '"owner": true' in " ".join(given) else module] = int(one)
    return found


def asked(url: str, token: str) -> Any:
    """Return the answer's rows, waiting while a part begins again."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    end = time.monotonic() + ANSWERED
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/query", QUESTION, headers), timeout=60) as it:
                return json.load(it)["rows"]
        except urllib.error.HTTPError as refused:
            with refused:  # G099: the box was lost with the process that it is forked from
                assert json.load(refused)["code"] in ("G033", "G036", "G099")
        except (urllib.error.URLError, ConnectionError):
            pass
        assert time.monotonic() < end
        time.sleep(0.2)


def tried(name: str, paths: list[str], processes: list[int], broker: str, folder: Path) -> dict[str, str]:
    """Return what a process of a user reaches, without any lock of ours."""
    done = subprocess.run(
        [*entered(folder), sys.executable, "-c", _becoming(name) + TRIES, *map(json.dumps, (paths, processes)), broker],
        env=surroundings(),
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _becoming(name: str) -> str:
    become = f"found = pwd.getpwnam({name!r}); os.setgroups([]); os.setgid(found.pw_gid); os.setuid(found.pw_uid)\n"
    return f"import os, pwd; {become}"


@pytest.mark.odds("0: a number is compared with its own replay")
@pytest.mark.long
@as_root
@locked
def test_a_front_of_another_user_reaches_nothing_and_everything_starts_again(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    with user(NAME) as name, user(f"{NAME}x") as stranger, served(folder, name) as (process, url, token):
        rows = asked(url, token)
        running = parts(process)
        assert set(running) == {"broker", "zygote", "locked_front", "owner's locked_front"}
        number = FrontUser.from_name(name).uid
        owners = {part: os.stat(f"/proc/{one}").st_uid for part, one in running.items()}
        assert owners == {"broker": 0, "zygote": number, "locked_front": number, "owner's locked_front": number}
        for part, one in running.items():
            secret = b"Zaphod" in Path(f"/proc/{one}/environ").read_bytes()
            assert secret == (part == "broker"), part  # which may need it for its ledger
            kernel = Path(f"/proc/{one}/status").read_text()
            assert part == "broker" or "CapPrm:\t0000000000000000" in kernel
            groups = next(line.split()[1:] for line in kernel.splitlines() if line.startswith("Groups:"))
            assert part == "broker" or groups == []

        given = Path(f"/proc/{running['broker']}/cmdline").read_bytes().decode().split("\0")
        broker = Path(given[given.index("--socket") + 1])
        kept = {path.name: path for path in folder.iterdir() if path.name.startswith("hospital.duckdb")}
        assert {"hospital.duckdb", "hospital.duckdb.dpsql-ledger", "hospital.duckdb.dpsql-audit"} <= set(kept)
        assert stat.S_IMODE(kept["hospital.duckdb.dpsql-audit"].stat().st_mode) == 0o600
        of_broker = [f"/proc/{running['broker']}/{one}" for one in ("mem", "environ", "maps", "fd", "cwd/x", "root/x")]
        paths = [*map(str, kept.values()), *of_broker]
        others = [process, running["broker"]]
        found = tried(name, paths, others, str(broker), tmp_path)
        assert {one for one, told in found.items() if told == "reached"} == {"broker"}
        found = tried(stranger, [*paths, str(broker.parent)], others, str(broker), tmp_path)
        assert {one for one, told in found.items() if told == "reached"} == set()

        for part in ("broker", "zygote", "locked_front"):
            os.kill(running[part], signal.SIGKILL)
            assert asked(url, token) == rows, part
        again = parts(process)
        assert {part: os.stat(f"/proc/{one}").st_uid for part, one in again.items()} == owners
        os.kill(process, signal.SIGKILL)  # nobody is left to end them but the kernel
        end = time.monotonic() + 30
        while any(_runs(one) for one in again.values()):
            assert time.monotonic() < end
            time.sleep(0.1)


def _runs(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


@pytest.mark.long
@as_root
def test_a_database_that_the_front_could_read_is_refused_before_a_token_is_made() -> None:
    """The folder is everybody's to enter, as `mkdir` makes it, and so is the one above."""
    home = Path("/tmp") / NAME
    home.mkdir(mode=0o755)
    try:
        with user(NAME) as name:
            done = subprocess.run(
                words(home, "--demo", "--front-user", name),
                cwd=home,
                env=surroundings(),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode != 0
            assert "DPSQL-G044" in done.stderr
            assert "could read or replace" in done.stderr
            assert str(home / "hospital.duckdb") in done.stderr
            assert "Traceback" not in done.stderr
            assert done.stdout == ""
    finally:
        for path in home.iterdir():
            path.unlink()
        home.rmdir()


@as_root
def test_users_that_cannot_be_the_fronts_are_refused() -> None:
    for name, said in (("nobody-of-this-name", "there is no user"), ("root", "has the data"), ("\0", "no user")):
        with pytest.raises(GatewayError, match=said) as refused:
            FrontUser.from_name(name)
        assert refused.value.code == "DPSQL-G044"


@as_root
@cases(
    ("mode", "reached"),
    [(0o700, False), (0o711, False), (0o755, False), (0o777, True), (0o1777, False)],
    quick=1,
)
def test_what_a_user_reaches_is_tried_by_one(mode: int, reached: bool, tmp_path: Path) -> None:
    """A file of mode 0600 is replaced by whoever may write into its folder, unless only owners remove there."""
    folder = Path("/tmp") / f"{NAME}-{mode:o}"
    folder.mkdir()
    (folder / "kept").touch(mode=0o600)
    folder.chmod(mode)
    code = "from dpsql.gateway.serving import main; main()"
    given = json.dumps({"kept": [str(folder / "kept")], "needed": ["/etc/shadow"]})
    try:
        with user(NAME) as name:
            command = [*entered(tmp_path), sys.executable, "-c", _becoming(name) + code, given]
            done = subprocess.run(command, env=surroundings(), capture_output=True, text=True, check=True)
    finally:
        (folder / "kept").unlink()
        folder.rmdir()
    assert json.loads(done.stdout) == {
        "reached": [str(folder / "kept")] if reached else [],
        "lacking": ["/etc/shadow"],
    }


@pytest.mark.skipif(sys.platform != "linux", reason="rights are those of Linux")
def test_without_rights_no_other_user_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.gateway.serving._rights", lambda: 1 << 7)
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    with pytest.raises(GatewayError, match="CAP_SETGID, CAP_KILL") as refused:
        FrontUser.from_name("daemon")
    assert refused.value.code == "DPSQL-G044"


def test_no_password_reaches_a_process_without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGPASSWORD", "DPSQL_TOKEN", "AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "Zaphod-4711")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    passed = environment(None)
    assert "Zaphod-4711" not in passed.values()
    assert passed["LC_ALL"] == "C.UTF-8"
    assert "PATH" in passed
