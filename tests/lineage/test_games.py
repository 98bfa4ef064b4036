"""Games with names: whatever is renamed, replaced, attached or shadowed, rows of people are charged or not counted.

The games are data, `cases/games.toml`, whose first lines say what a step holds.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from stage import code_of, filled, outcome, read, stage, totals

import dpsql
from support.cases import cases
from support.sessions import ledger_of

FILE = read("games")
FRAME = pa.table({"id": range(9), "a": range(9), "pid": range(9)})
LIMITED = ("patients", "s.cohort", "visits")


class Board:
    """A database in the middle of a game."""

    def __init__(self, path: Path) -> None:
        self.path, self.shown = path, [*globals()]
        self.con: Any = stage(path, FILE["stage"])

    def play(self, step: Any) -> None:
        """Take one step."""
        if isinstance(step, str):
            self.con.execute(filled(step, self.path)).fetchall()
        elif "copy" in step:
            old, new = step["copy"]
            self.con.execute("CHECKPOINT")
            shutil.copy(self.path / old, self.path / new)
        elif "open" in step:
            self.con.close()
            self.open(step)
        elif "frame" in step:
            globals()[step["frame"]] = FRAME
        elif "register" in step:
            self.con.register(step["register"], FRAME)
        else:
            self.ask(step)

    def open(self, step: dict[str, Any]) -> None:
        """Open another database or ledger, or see that this is refused."""
        given = {"ledger": self.path / step["ledger"]} if "ledger" in step else {}
        try:
            self.con = dpsql.connect(self.path / step["open"], **given)
        except dpsql.DpsqlError as error:
            assert code_of(error) == step.get("refused"), error
        else:
            assert "refused" not in step, "it was opened"

    def ask(self, step: dict[str, Any]) -> None:
        """Run a call, and judge what it was charged to, how many rows it counted, or why it was refused."""
        sql = step.get("run") or f"SELECT value FROM dp_count('{step['ask']}', epsilon := 10000)"
        answers: list[Any] = []
        charged, code = outcome(self.con, lambda: answers.extend(self.con.execute(filled(sql, self.path)).fetchall()))
        if code and (step.get("or_refused") or (step.get("refused") == "*" and code != "DuckDB")):
            return
        assert code == step.get("refused", ""), (step, code, charged)
        if code:
            return
        wanted = step["charged"]
        if wanted == "*":  # what tells of nobody is charged to a name of its own
            assert not {*charged.split()} & {*LIMITED}, (step, charged)
        else:
            assert charged in (wanted, step.get("or_charged")) or step.get("or_charged") == "*", (step, charged)
        if "rows" in step:
            [(counted,)] = answers
            assert round(counted) == step["rows"], (step, counted)

    def close(self) -> None:
        self.con.close()
        for name in {*globals()} - {*self.shown}:
            del globals()[name]


def games() -> list[Any]:
    out = []
    for number, game in enumerate(FILE["game"]):
        marks = [pytest.mark.long] if number % 3 else []
        out.append(pytest.param(number, marks=marks, id=game["name"]))
    return out


@pytest.mark.long
@cases("number", games())
def test_a_game(number: int, tmp_path: Path) -> None:
    game, board = FILE["game"][number], Board(tmp_path)
    try:
        for step in game["steps"]:
            board.play(step)
        if game["total"] != "*" and not any("refused" in step and "open" in step for step in game["steps"]):
            wanted = {
                name: int(count) for name, count in (one.rsplit(" ", 1) for one in game["total"].split(", ") if one)
            }
            spent = totals(board.con)
            limited = {*LIMITED, *wanted}
            assert {name: count for name, count in spent.items() if count and name in limited} == wanted
            assert ledger_of(board.con).verify().ok
    finally:
        board.close()


def test_there_are_enough_games() -> None:
    assert len(FILE["game"]) >= 50
    assert len({game["name"] for game in FILE["game"]}) == len(FILE["game"])


@pytest.mark.odds("1e-99: noise of epsilon 10,000 rounds to none")
@pytest.mark.long
def test_a_view_that_others_replace_meanwhile(tmp_path: Path) -> None:
    """Rows and budget are of one bind: 70 rows are charged to patients, and 5 never are."""
    board = Board(tmp_path)
    con = board.con
    con.execute("CREATE VIEW f AS FROM airports")

    def replace(number: int) -> None:
        with con.cursor() as cursor:
            for step in range(20):
                cursor.execute(f"CREATE OR REPLACE VIEW f AS FROM {('patients', 'airports')[(step + number) % 2]}")

    def ask(_: int) -> list[float]:
        found: list[float] = []
        with con.cursor() as cursor:
            for _ in range(12):
                try:
                    rows = cursor.execute("SELECT value FROM dpsql.dp_count('f', epsilon := 10000)").fetchall()
                except duckdb.Error as error:
                    assert "DPSQL-" in str(error) or "Conflict" in str(error) or "altered" in str(error), error
                else:
                    found += [value for (value,) in rows]
        return found

    with ThreadPoolExecutor(4) as pool:
        replaced = [pool.submit(replace, number) for number in range(1)]
        asked = [pool.submit(ask, number) for number in range(3)]
        counts = [round(count) for one in asked for count in one.result()]
        for one in replaced:
            one.result()
    assert {*counts} <= {5, 70}
    assert totals(con).get("patients", 0) == counts.count(70)
    assert sum(count for name, count in totals(con).items() if name not in LIMITED) == counts.count(5)
    board.close()


@pytest.mark.long
def test_two_connections_to_one_ledger(tmp_path: Path) -> None:
    """A table that one process protects is no longer public for the other."""
    board = Board(tmp_path)
    board.con.execute("CREATE TABLE fresh AS FROM patients")
    with board.con.cursor() as other:
        board.con.execute("SELECT dp_public('fresh', force := true)").fetchall()
        sql = "SELECT value FROM dpsql.dp_count('fresh', epsilon := 10000)"
        assert round(other.execute(sql).fetchall()[0][0]) == 70
        board.con.execute("SELECT dp_protect('fresh', epsilon := 25000)").fetchall()
        assert round(other.execute(sql).fetchall()[0][0]) == 70
        with pytest.raises(duckdb.Error, match="DPSQL-B001"):
            other.execute(sql).fetchall()
    board.close()
