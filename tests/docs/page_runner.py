"""Runs the code blocks of a page of the documentation as a stranger would, from top to bottom, from what is visible.

- ``python`` blocks share one namespace.
- ``sh`` blocks run in bash, with the commands of this environment; a line ``dpsql shell x.duckdb`` opens the database
  for the ``sql`` blocks after it.
- ``sql`` blocks run statement by statement on the connection `con` of the namespace, or on the database that a shell
  has opened.
- A ``text`` block is the output of the block before it: of its last statement that returns rows, or what it prints. They
  are compared with noise masked (`shown_output`), of ``text noisy`` in all columns, unless there is none to compare:
  ``text no-run: reason``.
- A block that cannot run says why behind its language: ``sh no-run: needs a cluster``. The gate runs what stands below
  a comment, such as ``<!-- demo -->``.

All run in one empty folder. No comment of a page brings data that a reader does not see.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shown_output import differences

import dpsql
from dpsql.cli.output import Result, show
from support.fixed_bits import BITS

ROOT = Path(__file__).resolve().parents[2]
# Of pages for who changes the code: they are read in the repository, and stand in no site.
DECISIONS = "decisions"
LANGUAGES = ("python", "sql", "sh")
OUTPUT = "text"
# Whole blocks of code, also those that a list indents.
FENCED = re.compile(r"^ *```.*?^ *``` *$", re.DOTALL | re.MULTILINE)
_SHELL = re.compile(r"^dpsql shell (\S+)\n?", re.MULTILINE)
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
    return [block for block in all_blocks(page) if block.language in LANGUAGES]


def all_blocks(page: Path) -> list[Block]:
    """Return the code blocks of a page, with the outputs that it shows."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(one["language"], _more(text, one), one["text"], text.count("\n", 0, one.start("text")) + 1)
        for one in _FENCE.finditer(text)
    ]


def _more(text: str, one: re.Match[str]) -> str:
    """Return what follows a block's language; a command that a comment names is the gate's to run."""
    return "no-run: the gate runs it" if text[: one.start()].endswith("-->\n") else one["more"]


def run_page(page: Path, scope: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run a page in the current folder; return the namespace of its Python blocks."""
    scope = {"__name__": "__main__"} if scope is None else scope
    printed: str | None = None
    try:
        for block in all_blocks(page):
            if block.language == OUTPUT and not block.reason and printed is not None:
                wrong = differences(block.text, printed, noisy=block.more == "noisy")
                assert not wrong, f"{page.name}:{block.line}: {wrong}"
            printed = None
            if block.language in LANGUAGES and not block.reason:
                printed = _RUN[block.language](block, page, scope)
    finally:
        if "con" in scope:
            scope["con"].close()
    return scope


def _python(block: Block, page: Path, scope: dict[str, Any]) -> str:
    said = io.StringIO()
    # Threads draw in no fixed order, so that nothing may compare what they drew.
    drawn = BITS.of(None) if "ThreadPool" in block.text else contextlib.nullcontext()
    with contextlib.redirect_stdout(said), drawn:
        # As many empty lines as stand before it, so that errors name the page's line.
        exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), scope)
    return said.getvalue()


def _sql(block: Block, page: Path, scope: dict[str, Any]) -> str:
    """Run the statements of a block; return the rows of the last one, as the shell shows them."""
    if "con" not in scope:
        scope["con"] = dpsql.connect(scope.get("opened", ":memory:"))
    said = ""
    for statement in scope["con"].extract_statements(block.text):
        try:
            with warnings.catch_warnings():  # 2.0 says that this copies the rows; a relation would run again
                warnings.simplefilter("ignore")
                table = scope["con"].execute(statement).to_arrow_table()
        except Exception as error:
            raise AssertionError(f"{page.name}:{block.line}: {error}") from error
        if table.num_rows:
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                show(Result(table, False, 0.0))
            said = shown.getvalue()
    return said


def _sh(block: Block, page: Path, scope: dict[str, Any]) -> str:
    if "con" in scope:  # another process may open the file
        scope.pop("con").close()
    for opened in _SHELL.findall(block.text):
        scope["opened"] = opened
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    python_path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        ["bash", "-euc", _SHELL.sub("", block.text)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "PATH": path, "PYTHONPATH": python_path},
    )
    assert done.returncode == 0, f"{page.name}:{block.line}: {done.stdout}"
    return done.stdout


_RUN = {"python": _python, "sql": _sql, "sh": _sh}
