"""The shell on a pseudo-terminal, driven as a person would."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_process import dpsql, environment

pexpect = pytest.importorskip("pexpect")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminal")

UP, TAB, ENTER, CTRL_C, CTRL_D = "\x1b[A", "\t", "\r", "\x03", "\x04"
PROMPT = "dpsql>"
_patience = 120  # seconds; a slow machine must not fail


class Person:
    """Types at the shell and reads the screen."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        # Without an answer to "where is the cursor" the prompt would warn; a real terminal gives one.
        surroundings = environment(folder) | {"PROMPT_TOOLKIT_NO_CPR": "1"}
        self.child = pexpect.spawn(
            sys.executable,
            ["-m", "dpsql", "shell", *arguments],
            cwd=str(folder),
            env=surroundings,
            encoding="utf-8",
            dimensions=(50, 160),
            timeout=_patience,
        )
        self.child.delaybeforesend = 0.05
        self.sees("Ctrl-D leaves")
        self.sees(PROMPT)

    def types(self, text: str) -> None:
        self.child.send(text)

    def sees(self, pattern: str) -> str:
        self.child.expect(pattern)
        return str(self.child.after)

    def asks(self, text: str, answer: str) -> str:
        """Type a statement, see an answer that is not in its own text, and the next prompt."""
        self.types(text + ENTER)
        found = self.sees(answer)
        self.sees(PROMPT)
        return found

    def leaves(self) -> int:
        self.types(CTRL_D)
        self.child.expect(pexpect.EOF)
        self.child.close()
        return int(self.child.exitstatus)


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    someone = Person(tmp_path, "x.duckdb", "--create")
    yield someone
    someone.child.close(force=True)


def test_a_session_as_a_person_has_it(person: Person, tmp_path: Path) -> None:
    # A statement of two lines: Enter continues it until the semicolon.
    person.types("CREATE TABLE t AS SELECT i % 7 AS a, i % 5 AS b," + ENTER)
    person.sees(r"\.\.\.")
    person.types("i % 2 = 0 AS y FROM range(100) AS r(i);" + ENTER)
    person.sees(PROMPT)
    person.asks("SELECT 10 * count(*) AS n FROM t;", r"│ +1000 │")
    person.asks(".schema", r"t \(a BIGINT, b BIGINT, y BOOLEAN\)")

    # Tab completes a function, then one of its arguments from a list.
    person.types("SELECT * FROM dp_si" + TAB)
    person.sees(r"s(\x1b\[[0-9;]*m)*\(")  # what came after a Tab must be there before the next key
    person.types("'t', targ" + TAB)
    person.sees("target_levels")
    person.types(TAB + ENTER)
    person.asks("'y', k := 1, epsilon := 1, lower := 0, upper := 7);", r"│ +1 │ [ab] +│")
    person.asks(".budget", "unlimited")
    person.asks("SELECT dp_protect('t', epsilon := 1.5);", r"│ t: epsilon 1\.5; protects one row +│")

    # The history brings the release back; the budget refuses it, in one clean line.
    refused = person.asks(UP + UP + UP, r"\[DPSQL-B001\][^\r]*\r")
    assert "0.5 remains of 1.5" in refused
    person.asks("FROM nowhere;", "Catalog Error: Table with name nowhere does not exist!")
    person.asks(".help dp_sys", "no function, topic or argument has")

    (tmp_path / "part.sql").write_text("SELECT 'from ' || 'file' AS r;\n")
    person.asks(".read part.sql", "from file")

    # Ctrl-C drops what is being typed.
    person.types("SELECT this is not")
    person.types(CTRL_C)
    person.sees(PROMPT)
    person.asks("SELECT 6 * 7 AS n;", r"│ +42 │")

    assert person.leaves() == 0
    done = dpsql("ledger", "verify", "--db", "x.duckdb", cwd=tmp_path)
    assert done.stdout.startswith("ok: 2 entries")


@pytest.mark.odds("0: the one feature that there is is chosen")
def test_ctrl_c_interrupts_a_query_and_keeps_session_and_ledger(person: Person, tmp_path: Path) -> None:
    person.types("CREATE TEMP TABLE t AS SELECT i % 7 AS a, i % 2 = 0 AS y FROM range(100) AS r(i);" + ENTER)
    person.sees(PROMPT)
    release = (
        "SELECT feature || '!' AS f FROM dp_sis('t', target := 'y', k := 1, epsilon := 1, lower := 0, upper := 7);"
    )
    person.asks(release, r"│ a! +│")
    person.types("SELECT sum(hash(i)) FROM range(100000000000000) AS r(i);" + ENTER)
    # The first one may come before the query has begun, and then belongs to the prompt.
    for _ in range(180):
        person.types(CTRL_C)
        if person.child.expect(["Interrupted", pexpect.TIMEOUT], timeout=1) == 0:
            break
    else:
        pytest.fail("Ctrl-C did not stop the query")
    person.sees(PROMPT)
    person.asks("SELECT 10 * count(*) AS n FROM t;", r"│ +1000 │")  # a temp table: it is the same session
    person.asks(".ledger", "released")
    assert person.leaves() == 0
    assert dpsql("ledger", "verify", "--db", "x.duckdb", cwd=tmp_path).stdout.startswith("ok: 1 entries")


def test_history_lasts_from_one_session_to_the_next(tmp_path: Path) -> None:
    first = Person(tmp_path)
    first.asks("SELECT 20 + 2 AS n;", r"│ +22 │")
    first.types(".quit" + ENTER)
    first.child.expect(pexpect.EOF)
    history = tmp_path / "state" / "dpsql" / "history"
    assert "20 + 2" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0

    second = Person(tmp_path)
    second.asks(UP + UP, r"│ +22 │")
    assert second.leaves() == 0


def test_parquet_is_refused_on_a_terminal_before_anything_runs(tmp_path: Path) -> None:
    child = pexpect.spawn(
        sys.executable,
        ["-m", "dpsql", "query", "CREATE TABLE z(i INT); FROM z", "--format", "parquet", "--db", "x.duckdb"],
        cwd=str(tmp_path),
        env=environment(tmp_path),
        encoding="utf-8",
        dimensions=(50, 160),
        timeout=_patience,
    )
    child.expect("parquet is not for a terminal")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 2
    assert not (tmp_path / "x.duckdb").exists()


@pytest.mark.parametrize("colour", [True, False])
def test_errors_are_red_on_a_terminal_unless_no_color_is_set(colour: bool, tmp_path: Path) -> None:
    surroundings = environment(tmp_path)
    if colour:
        del surroundings["NO_COLOR"]
    child = pexpect.spawn(
        sys.executable,
        ["-m", "dpsql", "query", "FROM nowhere"],
        cwd=str(tmp_path),
        env=surroundings,
        encoding="utf-8",
        timeout=_patience,
    )
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 4
    assert "Table with name nowhere does not exist!" in child.before
    assert ("\x1b[31m" in child.before) == colour
