"""Find the long cases without which no quick test reaches a block of the package, and make them quick.

A block is what a function, a branch, a loop or an `except` begins with; most refusals are one. While tests run with
``-p reach``, as those of ``.ci/nightly`` do, it is noted which blocks each case enters, in whichever thread; what other
processes enter is not. Then

``python .ci/reach.py`` says how many blocks the quick tests reach, and adds the cheap long cases that reach more to
`tests/quick.toml`, which pytest reads; ``--dry`` only shows them.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import importlib._bootstrap_external as loading
import os
import pickle
import sys
import time
import tomllib
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dpsql"
NOTES = ROOT / ".cache" / "reach"
CHOSEN = ROOT / "tests" / "quick.toml"
# A case that takes more seconds for each block that it adds is left long.
DEAREST = 0.15
# Tests of these look at no privacy, or are not what `.ci/mutants.py` may count on.
LEFT_OUT = ("recordings", "docs", "packaging", "unit/test_rooms", "unit/test_plots")
HEAD = """# Long cases that are quick all the same: without them no quick test would enter some block of the package, as
# `.ci/reach.py` finds after a night; or none would kill one of the mutants. An empty list stands for a whole test.

"""


# ---- what tests enter


_entered: set[str] = set()
_notes: list[Note] = []
_running = ""


@dataclass(frozen=True)
class Note:
    """Which blocks a case entered, or a test without its cases.

    Attributes
    ----------
    test : str
        Its file below `tests/`, and its name without parameters.
    case : str or None
    seconds : float
    blocks : frozenset of str
        Each a file and a line.
    quick : bool
    plain : bool
        Whether the test is one of a kind: neither a case nor one of several parameters.
    """

    test: str
    case: str | None
    seconds: float
    blocks: frozenset[str]
    quick: bool
    plain: bool


def notes_of_package() -> Path:
    """Return the folder of notes about the package as it is: in another state of it, a line is another block."""
    state = sha256(b"".join(path.read_bytes() for path in sorted(PACKAGE.rglob("*.py"))))
    return NOTES / state.hexdigest()[:16]


def blocks_of(node: ast.AST) -> Iterator[tuple[list[ast.stmt], int]]:
    """Yield the lists of statements that a node begins, each with the place of the first one after a docstring."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        if len(node.body) > 1 or ast.get_docstring(node) is None:
            yield node.body, int(ast.get_docstring(node) is not None)
    elif isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.ExceptHandler, ast.match_case)):
        yield node.body, 0
        if isinstance(node, ast.If) and node.orelse:
            yield node.orelse, 0


def noting(tree: ast.Module, name: str) -> ast.Module:
    """Return a module whose blocks note that they were entered."""
    for node in [*ast.walk(tree)]:
        for body, place in blocks_of(node):
            first = body[place]
            called = ast.Call(ast.Name("_dpsql_entered", ast.Load()), [ast.Constant(f"{name}:{first.lineno}")], [])
            body.insert(place, ast.copy_location(ast.Expr(called), first))
    return ast.fix_missing_locations(tree)


def install() -> None:
    """Let what is imported from here on note the blocks that are entered; what numba compiles stays as it is."""
    plain = loading.SourceLoader.source_to_code
    sys.pycache_prefix = str(NOTES / "compiled")
    builtins._dpsql_entered = _entered.add  # type: ignore[attr-defined]

    def source_to_code(self: Any, data: Any, path: Any, **options: Any) -> Any:
        where = Path(os.fspath(path))
        if PACKAGE not in where.parents or where.stem.endswith("compiled"):
            return plain(self, data, path, **options)
        return plain(self, noting(ast.parse(data), where.relative_to(ROOT).as_posix()), path, **options)

    loading.SourceLoader.source_to_code = source_to_code  # type: ignore[method-assign,assignment]


def note(test: str, case: str | None, since: float, *, quick: bool = False, plain: bool = False) -> None:
    """Note what was entered since a time, in a case or in a test."""
    _notes.append(Note(test, case, time.perf_counter() - since, frozenset(_entered), quick, plain))


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Begin before the package is imported."""
    install()


def pytest_configure() -> None:
    """Note each case on its own."""
    from support.fixed_bits import BITS

    kind = type(BITS)
    kind.of_case = noting_cases(kind.of_case)  # type: ignore[method-assign]


def noting_cases(whole: Any) -> Any:
    """Return the context of a case that notes what is entered in it."""

    @contextmanager
    def of_case(self: Any, name: str) -> Iterator[None]:
        before, since = set(_entered), time.perf_counter()
        _entered.clear()
        try:
            with whole(self, name):
                yield
        finally:
            note(_running, name, since)
            _entered.update(before)

    return of_case


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note what a test enters, with its fixtures."""
    from support.cases import name_of

    global _running
    _running, since = name_of(item), time.perf_counter()
    _entered.clear()
    try:
        return (yield)
    finally:
        marks = {mark.name for mark in item.iter_markers()}
        quick = "slow" not in marks and ("quick" in marks or "long" not in marks)
        note(_running, None, since, quick=quick, plain="[" not in item.nodeid)


def pytest_sessionfinish() -> None:
    """Keep what was noted."""
    notes = notes_of_package()
    notes.mkdir(parents=True, exist_ok=True)
    with (notes / f"{uuid.uuid4().hex}.pickle").open("wb") as file:
        pickle.dump([vars(one) for one in _notes], file)


# ---- which of them should be quick


def noted() -> list[Note]:
    """Return all notes, of tests whose results count; a case takes its share of what its test needs to be set up."""
    found = [Note(**one) for path in notes_of_package().glob("*.pickle") for one in pickle.loads(path.read_bytes())]  # noqa: S301
    found = [one for one in found if not one.test.startswith(LEFT_OUT)]
    rest = Counter[str]()  # what the cases of a test need beside their own time
    for one in found:
        if not one.quick:
            rest[one.test] += one.seconds if one.case is None else -one.seconds
    count = Counter(one.test for one in found if one.case is not None)
    return [
        replace(one, seconds=one.seconds + max(0.0, rest[one.test] / count[one.test])) if one.case is not None else one
        for one in found
    ]


def chosen_of(notes: list[Note], reached: set[str]) -> list[Note]:
    """Return the cases that reach more blocks, in the order of what a block costs."""
    left = [one for one in notes if not one.quick and (one.case is not None or one.plain) and one.blocks - reached]
    found, reached = [], set(reached)
    while left:
        left = [one for one in left if len(one.blocks - reached) * DEAREST >= one.seconds]
        if not left:
            break
        best = min(left, key=lambda one: (one.seconds / len(one.blocks - reached), one.test, one.case or ""))
        found.append(best)
        reached |= best.blocks
    return found


def write(chosen: Mapping[str, list[str]]) -> None:
    """Write the cases that are quick, by test."""
    lines = [f"{quoted(test)} = [{', '.join(map(quoted, sorted(cases)))}]" for test, cases in sorted(chosen.items())]
    CHOSEN.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def quoted(text: str) -> str:
    """Return a text of TOML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in escaped) + '"'


def main() -> int:
    """Say what is reached, and choose."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="write nothing")
    options = parser.parse_args()
    notes = noted()
    quick = {one.test for one in notes if one.quick}
    if not quick:
        print("no quick test was noted; run .ci/nightly 'README: tests' first")
        return 0
    reached = {block for one in notes if one.quick for block in one.blocks}
    everything = {block for one in notes for block in one.blocks}
    chosen = chosen_of(notes, reached)
    for one in chosen:
        print(f"{one.seconds:6.2f} s  {one.test} {one.case or ''}")
    print(f"{len(quick)} quick tests reach {len(reached)} of the {len(everything)} blocks that any test reaches;")
    more = set().union(*(one.blocks for one in chosen)) - reached
    print(f"{len(chosen)} cases reach {len(more)} more, in {sum(one.seconds for one in chosen):.0f} s of one processor")
    if not options.dry:
        kept: dict[str, list[str]] = tomllib.loads(CHOSEN.read_text(encoding="utf-8"))
        for one in chosen:
            cases = kept.setdefault(one.test, [])
            cases += [one.case] if one.case is not None and one.case not in cases else []
        write(kept)
    return 0


if __name__ == "__main__":
    sys.exit(main())
