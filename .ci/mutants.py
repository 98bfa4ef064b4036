"""Plant faults that cost privacy, one by one, and demand that the gate's tests fail without the recordings.

``python .ci/mutants.py [WORDS...]`` runs the mutants of ``.ci/mutants.toml`` whose name or file holds one of the words,
by default all. Each gets the test files that it names as likely killers, long tests among them, and if these pass all
other tests that are not long. What was found is kept in ``.cache/mutants.jsonl``, so that a second run goes on where
the first one ended; a mutant is run again when it, its file or a test that it names has changed.

``--quick`` runs only the tests that pytest selects by default, in the named files too. A mutant that survives passes
README's command. Results of this mode are stored apart from the others.
``--sample 30 --key TEXT`` runs the 30 mutants whose names have the lowest hashes; another text chooses others.
``--part 2/8`` runs the second of eight parts of the list.
``--check`` only verifies that every mutant applies, and shows similar lines where one does not.
``-k 2`` runs two at a time. ``--named`` stops after the named test files.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / ".cache" / "mutants.jsonl"
# Recordings tell what was, not what is true; of the others no test looks at privacy.
LEFT_OUT = ("recordings", "docs", "packaging")
FIRST = ("property", "reference", "unit", "statistical", "privacy")
NOT_COPIED = (
    ".git",
    ".venv*",
    ".cache",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    "site",
    "results",
)
LONGEST = 3600  # seconds
KILLED, SURVIVED = "killed", "survived"
# These files decide which tests are quick.
SELECTION = ("pyproject.toml", "tests/conftest.py", "tests/quick.toml", "tests/support/cases.py")
# A line of pytest's summary about a failure; that of a subtest gives the name of the subtest before the test's.
FAILURE = re.compile(
    r"^(?:FAILED|ERROR|SUBFAILED(?P<subtest>[\[(].*?[\])])?) (?P<test>tests/.*?)(?: - .*)?$", re.MULTILINE
)


@dataclass(frozen=True)
class Mutant:
    """One planted fault, as `.ci/mutants.toml` states it."""

    name: str
    file: str
    old: str
    new: str
    leak: str
    killers: list[str]

    @property
    def text(self) -> str:
        """The file as it is in the checkout."""
        path = ROOT / self.file
        return path.read_text(encoding="utf-8") if path.exists() else ""

    @property
    def applies(self) -> bool:
        """Whether the old text occurs exactly once, and every named test is there."""
        return self.text.count(self.old) == 1 and all((ROOT / path).exists() for path in self.killers)

    def digest(self, *, quick: bool) -> str:
        """Return a digest of everything that a result depends on."""
        tests = [test for path in self.killers for test in sorted((ROOT / path).rglob("*.py")) or [ROOT / path]]
        tests += [ROOT / path for path in SELECTION if quick]
        parts = [self.old, self.new, self.text, *(test.read_text(encoding="utf-8") for test in tests)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    def place(self, key: str) -> str:
        """Return its hash under a key."""
        return hashlib.sha256(f"{key} {self.name}".encode()).hexdigest()

    def why_not(self) -> str:
        """Say why it does not apply, with the lines that are most like it."""
        missing = [path for path in self.killers if not (ROOT / path).exists()]
        if missing:
            return f"no test {', '.join(missing)}"
        count, first = self.text.count(self.old), self.old.strip().splitlines()[0]
        lines = {line.strip(): number for number, line in enumerate(self.text.splitlines(), 1)}
        near = difflib.get_close_matches(first, lines, n=3, cutoff=0.4)
        shown = "".join(f"\n    {self.file}:{lines[line]}: {line}" for line in near)
        return f"the old text occurs {count} times in {self.file}: {first}{shown}"


def mutants(words: list[str]) -> list[Mutant]:
    """Return the mutants whose name or file holds one of the words; without words all."""
    listed = tomllib.loads((ROOT / ".ci" / "mutants.toml").read_text(encoding="utf-8"))["mutant"]
    found = [Mutant(**entry) for entry in listed]
    names = [mutant.name for mutant in found]
    if len(set(names)) < len(names):
        raise SystemExit("two mutants have one name")
    return [m for m in found if not words or any(word in m.name or word in m.file for word in words)]


def part_of(chosen: list[Mutant], part: str) -> list[Mutant]:
    """Return one part of the list, such as 2/8: every eighth mutant from the second on."""
    number, _, count = part.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise SystemExit(f"--part {part}: give the number of the part and how many there are, such as 2/8")
    return chosen[int(number) - 1 :: int(count)]


def sample_of(chosen: list[Mutant], count: int, key: str) -> list[Mutant]:
    """Return the mutants with the lowest hashes under a key, in the order of the list."""
    lowest = {mutant.name for mutant in sorted(chosen, key=lambda mutant: mutant.place(key))[:count]}
    return [mutant for mutant in chosen if mutant.name in lowest]


def check(chosen: list[Mutant]) -> int:
    """Print the mutants that do not apply; return 1 if there are any."""
    stale = [mutant for mutant in chosen if not mutant.applies]
    for mutant in stale:
        print(f"{mutant.name}: {mutant.why_not()}")
    print(f"{len(chosen) - len(stale)} of {len(chosen)} mutants apply")
    return int(bool(stale))


def pytest(copy: Path, *arguments: str) -> tuple[bool, str]:
    """Run tests in a copy of the checkout; return whether they passed, and the first that failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", *arguments]
    options = {"cwd": copy, "env": {**os.environ, "PYTHONPATH": str(copy)}, "capture_output": True, "text": True}
    try:
        done = subprocess.run(command, **options, check=False, timeout=LONGEST)  # noqa: S603
    except subprocess.TimeoutExpired:
        return False, f"no end within {LONGEST} s"
    if done.returncode in (0, 5):  # or none of the named tests is run by default
        return True, ""
    failure = FAILURE.search(done.stdout)
    if failure is None and done.returncode != 1:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    if failure is None:
        return False, f"pytest ended with {done.returncode}"
    return False, " ".join(filter(None, (failure["test"], failure["subtest"])))


def outcome(mutant: Mutant, copy: Path, *, named_only: bool, quick: bool) -> dict[str, object]:
    """Plant the mutant in the copy, run the tests, and mend it."""
    path, start = copy / mutant.file, time.monotonic()
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace(mutant.old, mutant.new), encoding="utf-8")
    for cached in (copy / "dpsql" / "kernels").rglob("*.nb[ic]"):  # numba does not see what a kernel calls
        if mutant.file.startswith("dpsql/kernels/"):
            cached.unlink()
    try:
        passed, by = pytest(copy, *(() if quick else ("-m", "not slow")), *mutant.killers)
        if passed and not named_only:
            folders = [path.name for path in (copy / "tests").iterdir() if path.is_dir()]
            rest = [name for name in sorted(folders) if name not in (*FIRST, *LEFT_OUT)]
            rest = [name for name in rest if any((copy / "tests" / name).glob("test_*.py"))]
            ignored = [f"--ignore={path}" for path in mutant.killers]
            passed, by = pytest(copy, "-n", "2", *(f"tests/{name}" for name in (*FIRST, *rest)), *ignored)
    finally:
        path.write_text(whole, encoding="utf-8")
    seconds = round(time.monotonic() - start)
    verdict = SURVIVED if passed else KILLED
    mode = {"quick": quick, "named": named_only}
    return {"name": mutant.name, "verdict": verdict, "by": by, "seconds": seconds, **mode}


def known_results(*, named_only: bool, quick: bool) -> dict[str, dict[str, object]]:
    """Return the latest result of every mutant in this mode, by name.

    A mutant that survived the named tests has no result where the other tests run, too.
    """
    if not RESULTS.exists():
        return {}
    results = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    return {
        result["name"]: result
        for result in results
        if result.get("quick", False) == quick
        and (named_only or result["verdict"] == KILLED or not result.get("named", False))
    }


def run(chosen: list[Mutant], *, at_a_time: int, named_only: bool, quick: bool) -> int:
    """Run the mutants that have no result yet, and print a table of all; return 1 if one survived."""
    known = known_results(named_only=named_only, quick=quick)
    waiting: queue.SimpleQueue[tuple[Mutant, str]] = queue.SimpleQueue()
    for mutant in chosen:
        digest = mutant.digest(quick=quick)
        if known.get(mutant.name, {}).get("digest") != digest:
            known.pop(mutant.name, None)
            waiting.put((mutant, digest))
    RESULTS.parent.mkdir(exist_ok=True)
    lock = threading.Lock()

    def work() -> None:
        with tempfile.TemporaryDirectory(prefix="dpsql-mutants-") as folder:
            copy = Path(folder) / "dpsql"
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
            while not waiting.empty():
                mutant, digest = waiting.get()
                result = {**outcome(mutant, copy, named_only=named_only, quick=quick), "digest": digest}
                with lock, RESULTS.open("a", encoding="utf-8") as file:
                    known[mutant.name] = result
                    file.write(json.dumps(result) + "\n")
                    print(f"{result['verdict']:8} {result['seconds']:>4} s  {result['name']}", flush=True)

    workers = [threading.Thread(target=work) for _ in range(at_a_time)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"\n{'mutant':68} {'verdict':8} {'s':>5}  by")
    for mutant in chosen:
        result = known.get(mutant.name, {"verdict": "failed", "seconds": 0, "by": "the run ended early"})
        print(f"{mutant.name:68} {result['verdict']:8} {result['seconds']:>5}  {result['by']}")
    killed = sum(known.get(mutant.name, {}).get("verdict") == KILLED for mutant in chosen)
    print(f"{killed} of {len(chosen)} killed")
    return int(killed < len(chosen))


def main() -> int:
    """Check or run the mutants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of names or files; by default all mutants")
    parser.add_argument("--check", action="store_true", help="only verify that all apply")
    parser.add_argument("--named", action="store_true", help="run the named test files, and no others")
    parser.add_argument(
        "--quick", action="store_true", help="run the tests that pytest selects by default, and no others"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="run N mutants, chosen by the hashes of their names")
    parser.add_argument("--key", default="", metavar="TEXT", help="another text chooses another sample")
    parser.add_argument("--part", metavar="I/N", help="run part I of N of the list")
    parser.add_argument("-k", type=int, default=1, metavar="N", dest="at_a_time", help="mutants at a time")
    options = parser.parse_args()
    chosen = mutants(options.words)
    if options.sample is not None:
        chosen = sample_of(chosen, options.sample, options.key)
    if options.part:
        chosen = part_of(chosen, options.part)
    stale = check(chosen)
    if options.check or stale:
        return stale
    return run(chosen, at_a_time=options.at_a_time, named_only=options.named, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
