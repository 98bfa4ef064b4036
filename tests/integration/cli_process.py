"""Run the `dpsql` command in a process of its own, as a person or a job would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TABLE = "CREATE TABLE t AS SELECT i % 7 AS a, i % 5 AS b, i % 2 = 0 AS y FROM range(100) AS r(i);\n"
RELEASE = "SELECT * FROM dp_sis('t', target := 'y', k := 1, epsilon := 1, lower := 0, upper := 7)"


def environment(home: Path) -> dict[str, str]:
    """The surroundings of a test's process: this dpsql, its own state folder, no colour."""
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "FORCE_COLOR")}
    return kept | {
        "PYTHONPATH": os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry),
        "XDG_STATE_HOME": str(home / "state"),
        "NO_COLOR": "1",
        "TERM": "xterm",
        "PYTHONUTF8": "1",
    }


def dpsql(*arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run `dpsql` with arguments, in a folder."""
    command = [sys.executable, "-m", "dpsql", *arguments]
    return subprocess.run(
        command, cwd=cwd, env=environment(cwd), input=stdin, capture_output=True, encoding="utf-8", timeout=300
    )
