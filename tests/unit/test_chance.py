"""No test fails by chance: its bits of noise are fixed (`support/fixed_bits.py`), or it states how often it may fail.

Bits of another process are not fixed, and threads get them in any order. So a test that starts one, and asks for noise, has
the mark ``odds``. Tests of which threads drew in fact fail without it when they run.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from dpsql.engines.duckdb.running import RunningCall
from dpsql.functions.registry import FUNCTIONS
from dpsql.noise.entropy import SYSTEM
from support.cases import cases
from support.fixed_bits import FixedBits, stated

TESTS = Path(__file__).resolve().parents[1]
# What starts a process or a thread: by itself, as a function of `HELPERS`, or as the gateway that a fixture made.
STARTS = (
    r"\bsubprocess\.(?:run|Popen|check_output)\(|\bPopen\(|\bos\.fork\(|\bProcess\(|\.spawn\("
    r"|\bServing\(|[gG]ateway\.start\(|\bThread(?:PoolExecutor)?\("
)
HELPERS = {"cli_process", "page_runner", "support.gateway_command", "test_ledger_concurrency"}
# What asks for noise: a private function, a question to a gateway, or a text of `HELPERS`.
PRIVATE = [name for name, function in FUNCTIONS.items() if function.spends]
NOISE = [rf"\b(?:{'|'.join(PRIVATE)})\(", "[\"']sql[\"']", r"(?<!\.)\bcount\([\"'\w]", r"\bRELEASE\b"]

DOCSTRING = re.compile(r'^ +""".*?"""', re.DOTALL | re.MULTILINE)


def unstated(source: str) -> Iterator[str]:
    """Yield the tests of a file that start a process or a thread and ask for noise, without odds of their own or of the file.

    A test has what it says, and what the functions, classes, fixtures and values of its file say that it names.
    """
    tree = ast.parse(source)
    helpers = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in HELPERS
        for alias in node.names
    }
    starts = re.compile("|".join([STARTS, *(rf"\b{name}\(" for name in helpers if name.islower())]))
    asks = re.compile("|".join(NOISE))
    lines, text = source.splitlines(), dict[str, str]()
    for node in tree.body:
        names = [getattr(node, "name", "")]
        if isinstance(node, ast.Assign):
            names = [part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        first = min(one.lineno for one in (node, *getattr(node, "decorator_list", ())))
        written = "\n".join(lines[first - 1 : node.end_lineno])
        text |= dict.fromkeys(names, DOCSTRING.sub("", written))
    if "mark.odds(" in text.get("pytestmark", ""):
        return
    said = {name: set(re.findall(r"\w+", each)) & text.keys() for name, each in text.items()}
    for name in text:
        if not name.startswith("test_") or "mark.odds(" in text[name]:
            continue
        reached, ahead = {name}, [name]
        while ahead:
            new = said[ahead.pop()] - reached
            reached |= new
            ahead += new
        if any(starts.search(text[one]) for one in reached) and any(asks.search(text[one]) for one in reached):
            yield name


PLANTED = '''
import subprocess, sys, dpsql, pytest
from cli_process import RELEASE, dpsql as run
ONE = """FROM dp_count('t', epsilon := 1)"""
PROGRAM = f"import dpsql; print(dpsql.connect().execute({ONE!r}).fetchall())"

@pytest.fixture
def counted():
    return subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True)

def test_in_a_process(): assert run("query", ONE) == run("query", ONE)

def test_through_a_fixture(counted): assert b"7" in counted.stdout

def test_in_threads(con):
    with ThreadPoolExecutor(2) as pool: assert [*pool.map(con.execute, [ONE] * 2)] == [7, 7]

def test_through_a_text(): assert "a" in run("query", RELEASE).stdout

@pytest.mark.odds("1e-9: noise of scale 1 is below 20")
def test_with_odds(): assert run("query", ONE).stdout == "7"

def test_here(con): assert con.execute(ONE).fetchall() == [(7,)]

def test_without_noise(): assert run("query", "SELECT 1").stdout == "1"
'''


def test_planted_noise_of_another_process_or_thread_is_found() -> None:
    assert [*unstated(PLANTED)] == [
        "test_in_a_process",
        "test_through_a_fixture",
        "test_in_threads",
        "test_through_a_text",
    ]
    assert [*unstated(f'{PLANTED}\npytestmark = pytest.mark.odds("1e-9: why")')] == []


@cases(
    ("odds", "holds"),
    [
        *(
            ("0: a number is its own replay", True),
            ("1e-6: a fit", True),
            ("2.5e-9: noise", True),
            ("1e-5: a fit", False),
        ),
        *(("1e-9", False), ("1e-9: ", False), ("small: why", False), ("0.0001: why", False), ("", False)),
    ],
)
def test_odds_are_small_and_have_a_reason(odds: str, holds: bool) -> None:
    assert stated(odds) == holds


def drawn() -> list[int]:
    return SYSTEM.words(3).tolist()


def test_a_name_fixes_the_bits() -> None:
    """Of a test, and of a case in any of its parts."""
    bits = FixedBits()
    bits.install()
    try:
        found = []
        for name, case in (("a", ""), ("a", ""), ("b", ""), ("a[cases 1]", "x"), ("a[cases 2]", "x"), ("a", "y")):
            with bits.of(name), bits.of_case(case) if case else nullcontext():
                found.append((drawn(), RunningCall.__dataclass_fields__["key"].default_factory()))  # type: ignore[misc]
        with bits.of("a"):
            assert os.urandom(24) != os.urandom(24) != np.array(found[0][0], np.uint64).tobytes()  # what is no noise
            assert drawn() == found[0][0] != drawn()
            with bits.of(None), bits.of_case("x"):
                assert drawn() not in [words for words, _ in found]
    finally:
        bits.pytest_unconfigure()
    assert found[0] == found[1]
    assert found[3] == found[4]
    assert len({str(each) for each in found}) == 4


THREADS = """
import sys, threading, pytest
from dpsql.noise.entropy import SYSTEM

def drawing():
    for _ in range(2):
        thread = threading.Thread(target=SYSTEM.words, args=(3,))
        thread.start()
        thread.join()
    SYSTEM.words(3)

def test_threads(): drawing()

@pytest.mark.odds("0: looks at no noise")
def test_stated(): drawing()

def test_one_thread(): print("words", SYSTEM.words(3))
"""


@pytest.mark.long
def test_planted_draws_in_threads_and_high_odds_are_refused(tmp_path: Path) -> None:
    configure = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from support.fixed_bits import BITS

def pytest_configure(config):
    config.pluginmanager.register(BITS)
    BITS.install()
"""
    (tmp_path / "conftest.py").write_text(configure)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = odds(text): why\n")
    planted = tmp_path / "test_planted.py"

    def ran(source: str) -> str:
        planted.write_text(source)
        command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", str(planted)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    first, again = ran(THREADS), ran(THREADS)
    assert "draws in several threads" in first
    assert "1 failed, 2 passed" in first
    [words, same] = [[line for line in found.splitlines() if "words [" in line] for found in (first, again)]
    assert words == same != []
    assert "odds are at most 1e-06" in ran(THREADS.replace("0: looks", "1e-3: looks"))


def test_noise_of_other_processes_and_threads_has_odds() -> None:
    files = [file for file in sorted(TESTS.glob("*/test_*.py")) if file != Path(__file__)]
    found = [f"{file.relative_to(TESTS)}::{name}" for file in files for name in unstated_in(file)]
    assert not found, "these state no odds (tests/README.md, Rules):\n" + "\n".join(found)


def unstated_in(file: Path) -> list[str]:
    """Return the tests of a file that state no odds; a file that starts none is not parsed."""
    source = file.read_text(encoding="utf-8")
    starts = ("subprocess", "Popen", "fork(", "Process(", "spawn(", "Serving(", "ateway.start(", "Thread", *HELPERS)
    return [*unstated(source)] if any(word in source for word in starts) else []


# Randomness that no test fixes, and the files that need it: keys that must be others, and what replaces randomness.
UNFIXED = re.compile(
    r"default_rng\(\)|SystemRandom|(?<![\w.])random\.(?:random|choices?|sample|shuffle|rand\w+)\(|\bsecrets\.t"
)
MAY = {"conformance/test_engine_faults.py", "recordings/replay.py", "support/fixed_bits.py", "unit/test_chance.py"}


def test_other_randomness_has_a_seed() -> None:
    texts = {file.relative_to(TESTS).as_posix(): file.read_text(encoding="utf-8") for file in TESTS.rglob("*.py")}
    assert {name for name, text in texts.items() if UNFIXED.search(text)} == MAY | {"unit/test_rooms.py"}
