"""A copy of the checkout in which a test writes, and runs of Python in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from page_runner import ROOT


def copy_to(folder: Path) -> None:
    """Copy what `dpsql.generate` reads and writes."""
    for name in ("dpsql", "sql", "udfs", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests" / "docs").mkdir(parents=True)
    for name in ("tests/docs/signatures.txt", "zensical.toml"):
        shutil.copy(ROOT / name, folder / name)


def replace_once(path: Path, edits: dict[str, str]) -> None:
    """Replace texts of a file, each of which it has once."""
    text = path.read_text(encoding="utf-8")
    for before, after in edits.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    path.write_text(text, encoding="utf-8")


def run(folder: Path, *words: str) -> None:
    """Run Python in the copy; it must succeed."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
