"""Runs the code blocks of a page of the documentation as a reader would, from top to bottom.

- ``python`` blocks share one namespace.
- ``sql`` blocks run statement by statement on the connection `con` of that namespace; if there is none, on the
  database ``patients.duckdb`` with dpsql installed, which `con` then is.
- ``sh`` blocks run in bash, with the commands of this environment.
- A block that cannot run says why behind its language: ``sh no-run: needs a cluster``.

All run in one empty folder. ``<!-- data: patients -->`` on a page asks for a file of `page_data`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import page_data

import dpsql

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = ("python", "sql", "sh")
_FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<language>\w*) *(?P<more>[^\n]*)\n(?P<text>.*?)^(?P=fence) *$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """One code block of a page.

    Attributes
    ----------
    language, more, text : str
        The word behind the fence, what follows it, and the code.
    line : int
        Where the code begins in its page.
    """

    language: str
    more: str
    text: str
    line: int

    @property
    def reason(self) -> str:
        """Why it does not run; '' if it does."""
        return self.more.partition("no-run:")[2].strip()


def blocks(page: Path) -> list[Block]:
    """Return the code blocks of a page in the languages that run."""
    text = page.read_text(encoding="utf-8")
    found = [
        Block(one["language"], one["more"], one["text"], text.count("\n", 0, one.start("text")) + 1)
        for one in _FENCE.finditer(text)
    ]
    return [block for block in found if block.language in LANGUAGES]


def run_page(page: Path, scope: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run a page in the current folder; return the namespace of its Python blocks."""
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"<!-- data: (\w+) -->", text):
        getattr(page_data, name)()
    scope = {"__name__": "__main__"} if scope is None else scope
    try:
        for block in blocks(page):
            if not block.reason:
                _RUN[block.language](block, page, scope)
    finally:
        if "con" in scope:
            scope["con"].close()
    return scope


def _python(block: Block, page: Path, scope: dict[str, Any]) -> None:
    # As many empty lines as stand before it, so that errors name the page's line.
    exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), scope)


def _sql(block: Block, page: Path, scope: dict[str, Any]) -> None:
    if "con" not in scope:
        scope["con"] = dpsql.connect("patients.duckdb")
    for statement in _statements(scope["con"], block.text):
        try:
            scope["con"].execute(statement).fetchall()
        except Exception as error:
            raise AssertionError(f"{page.name}:{block.line}: {error}") from error


def _statements(con: Any, text: str) -> Iterator[Any]:
    yield from con.extract_statements(text)


def _sh(block: Block, page: Path, scope: dict[str, Any]) -> None:
    if "con" in scope:  # another process may open the file
        scope.pop("con").close()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    python_path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        ["bash", "-euc", block.text],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path, "PYTHONPATH": python_path},
    )
    assert done.returncode == 0, f"{page.name}:{block.line}: {done.stdout}{done.stderr}"


_RUN = {"python": _python, "sql": _sql, "sh": _sh}
