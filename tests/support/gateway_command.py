"""A gateway as its command starts it, in a folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpsql.gateway.sandbox import available

ROOT = Path(__file__).resolve().parents[2]
UNLOCKED = [] if available().is_complete else ["--without-os-sandbox"]


def _hears_ctrl_c() -> None:
    """Undo what a shell does to programs in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def serving(folder: Path, *options: str, safe: bool = False) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Run the command; yield its process, where it listens, and the token that it showed.

    A safe one finds no module in its folder, as the program `dpsql` does not.
    """
    command = [
        sys.executable,
        *(["-P"] if safe else []),
        "-m",
        "dpsql",
        "serve",
        "hospital.duckdb",
        "--port",
        "0",
        *UNLOCKED,
        *options,
    ]
    said = (folder / "said").open("w+")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=said,
        text=True,
        env=environment,
        start_new_session=True,
        preexec_fn=_hears_ctrl_c,
    )
    try:
        url = ""
        while not url:
            assert process.poll() is None, (folder / "said").read_text()
            found = [line for line in (folder / "said").read_text().splitlines() if " answers. " in line]
            url = found[0].split(" answers.")[0].removeprefix("dpsql: ") if found else ""
            time.sleep(0.05)
        assert process.stdout is not None
        token = process.stdout.readline().strip() if "--demo" in options else ""
        yield process, url, token
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        if process.stdout is not None:
            process.stdout.close()
        said.close()
