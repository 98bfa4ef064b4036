"""The run of everything: its record is read as it was written, and what failed is run again, in the way it ran."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`.ci/nightly` as it is."""
    loader = SourceFileLoader("nightly", str(ROOT / ".ci" / "nightly"))
    spec = spec_from_loader("nightly", loader)
    assert spec is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "nightly", module)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    return module


@pytest.fixture
def nightly(whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same, whose files are elsewhere, with four parts, of which the shell runs what they say."""
    module = whole
    monkeypatch.setattr(module, "RESULT", tmp_path / "result.md")
    monkeypatch.setattr(module, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(module, "newer", lambda: None)
    passing, failing = tmp_path / "passing.txt", tmp_path / "failing.txt"
    passing.write_text("............\n12 passed, 3 skipped, 40 deselected in 5.21s\n")
    failing.write_text(
        "FAILED tests/unit/test_a.py::test_one[cases 2] - assert [1] == [2]\n"
        "SUBFAILED[a case] tests/unit/test_a.py::test_two[cases 1] - it is wrong\n"
        "ERROR tests/unit/test_b.py::TestThings::test_three - no file\n"
        "= 3 failed, 9 passed, 1 error in 61.00s (0:01:01) =\n"
    )
    mutants = tmp_path / "mutants.txt"
    mutants.write_text("killed    12 s  a wrong scale\nsurvived   61 s  a rule: it's left out\n1 of 2 killed\n")
    listed = (
        module.Part("shell", "cat", str(passing)),
        module.Part("shown", "cat", str(failing), before="true &&"),
        module.Part("broken", "cat", str(failing), again="false"),
        module.Part("mutants", "cat", str(mutants)),
    )
    monkeypatch.setattr(module, "parts", lambda: iter(listed))
    return module


def by_name(module: Any) -> dict[str, Any]:
    return {part.name: part for part in module.parts()}


def test_what_is_printed_is_counted(nightly: Any) -> None:
    found = {name: nightly.run(part) for name, part in by_name(nightly).items()}
    counts = {name: (one.passed, one.failed, one.skipped, one.red) for name, one in found.items()}
    assert counts == {
        "shell": (12, 0, 3, False),
        "shown": (9, 4, 0, True),
        "broken": (9, 4, 0, True),
        "mutants": (1, 1, 0, True),
    }
    tests = ["tests/unit/test_a.py::test_one", "tests/unit/test_a.py::test_two"]
    assert found["shown"].failures == [*tests, "tests/unit/test_b.py::TestThings::test_three"]
    assert found["mutants"].failures == ["a rule: it's left out"]


def test_a_part_that_ends_before_its_tests_has_failed(nightly: Any) -> None:
    outcome = nightly.run(nightly.Part("gone", "cat", "/no/such/file"))
    assert (outcome.passed, outcome.failed, outcome.failures) == (0, 1, [])


def test_a_part_without_tests_is_none_that_failed(nightly: Any) -> None:
    outcome = nightly.run(nightly.Part("none", "exit 5"))
    assert (outcome.passed, outcome.failed) == (0, 0)


def test_the_record_is_read_as_it_was_written(nightly: Any) -> None:
    found = {name: nightly.run(part) for name, part in by_name(nightly).items()}
    nightly.write(found)
    assert nightly.outcomes() == found


def test_what_failed_runs_as_it_ran(nightly: Any) -> None:
    parts = by_name(nightly)
    assert parts["shown"].command_again(["tests/a.py::test_one"]) == "true && cat tests/a.py::test_one"
    assert parts["mutants"].command_again(["a rule: it's left out"]) == """cat 'a rule: it'"'"'s left out'"""
    assert parts["broken"].command_again(["tests/a.py::test_one"]) == "false tests/a.py::test_one"
    whole = nightly.Part("whole", "cat")
    assert whole.command_again(["tests/a.py::test_one"]) == "cat"
    assert parts["shown"].command_again([]) == parts["shown"].command()


def test_what_passes_again_is_mended(nightly: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record says so, and it does not run a third time; what fails again leaves the status at 1."""
    found = {name: nightly.run(part) for name, part in by_name(nightly).items()}
    nightly.write(found)
    monkeypatch.setattr(nightly, "age", lambda commit: 0)
    ran = []

    def shell(command: str, log: Path) -> int:
        ran.append(command)
        return int(command.startswith("false"))

    monkeypatch.setattr(nightly, "shell", shell)
    assert nightly.again() == 1
    assert len(ran) == 3
    mended = {name: one.mended for name, one in nightly.outcomes().items()}
    assert mended == {"shell": 0, "shown": 4, "broken": 0, "mutants": 1}
    monkeypatch.setattr(nightly, "shell", lambda command, log: ran.append(command) or 0)
    assert nightly.again() == 0
    assert len(ran) == 4
    assert nightly.again() == 0
    assert len(ran) == 4


@pytest.mark.parametrize(
    ("age", "status", "words"), [(300, 0, ""), (301, 0, "301 commits old"), (3001, 1, "3001 commits")]
)
def test_a_record_grows_old(
    nightly: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], age: int, status: int, words: str
) -> None:
    nightly.write({name: replace(nightly.run(part), failed=0) for name, part in by_name(nightly).items()})
    monkeypatch.setattr(nightly, "age", lambda commit: age)
    assert nightly.again() == status
    assert words in capsys.readouterr().out


def test_a_part_without_a_result_fails(
    nightly: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nightly.write({"shell": nightly.run(by_name(nightly)["shell"])})
    monkeypatch.setattr(nightly, "age", lambda commit: 0)
    assert nightly.again() == 1
    assert "no result of shown, broken, mutants: run .ci/nightly" in capsys.readouterr().out


def test_every_part_has_what_it_runs(whole: Any) -> None:
    """Functions of `.ci/parts.sh` run it, in folders that are there."""
    defined = (ROOT / ".ci" / "parts.sh").read_text(encoding="utf-8")
    listed = list(whole.parts())
    assert len({part.name for part in listed}) == len(listed)
    for part in listed:
        assert f"\n{part.runner.split()[0]}() {{" in defined, part
        for place in part.places.split():
            assert not place.startswith("tests/") or (ROOT / place).exists(), part
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    assert folders == {part.name.removeprefix("long: ") for part in listed if part.name.startswith("long: ")}


def test_what_changed_since_a_part_ran_is_found(nightly: Any, tmp_path: Path) -> None:
    """In whichever commit since, of several that land at once; and a part that is not on record ran before everything."""

    def git(*arguments: str) -> str:
        names = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        command = ["git", *names, "-C", str(tmp_path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def commit(path: str) -> str:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(path)
        git("add", path)
        git("commit", "-m", path)
        return git("rev-parse", "HEAD")

    def changed(part: str, pattern: str) -> bool:
        script = f'. {ROOT / ".ci" / "parts.sh"}; changed "$@"'
        return subprocess.run(["bash", "-c", script, "bash", part, pattern], cwd=tmp_path, check=False).returncode == 0

    git("init", "-q")
    before, after = commit("docs/first.md"), commit("docs/second.md")
    commit("tests/first.py")
    (tmp_path / ".ci").mkdir()
    commits = {"README: demo": before, "dbt": after}
    nightly.RESULT = tmp_path / ".ci" / "nightly-result.md"
    nightly.parts = lambda: (nightly.Part(name, "cat") for name in commits)
    nightly.write({name: nightly.Outcome(name, 1, 0, 0, 0, 1, at, "2026-11-29") for name, at in commits.items()})
    assert changed("README: demo", "^docs/")
    assert not changed("dbt", "^docs/")
    assert changed("dbt", "^tests/first")
    assert not changed("README: demo", "^dpsql/")
    assert changed("README", "^dpsql/")
