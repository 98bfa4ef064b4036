"""No row of a source decides more than its own value: neither an error that costs nothing, nor another row's integers."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hostile import BENIGN, COLUMNS, HOSTILE, ROW_SOURCES, UNIT_SOURCES
from stage import code_of, totals

import dpsql
from support.cases import cases
from support.exact_sums import Seen, exact_sums
from support.sessions import one_key

OTHERS, MINE = range(6), 6
ARGUMENTS: dict[str, Any] = {
    "target": "v",
    "by": "id",
    "keys": [*OTHERS, MINE],
    "epsilon": 0.01,
    "lower": -4,
    "upper": 4,
}
UNIT = "privacy_unit := 'id', max_rows_per_unit := 3"
SOURCES = [(source, "") for source in ROW_SOURCES] + [(source, UNIT) for source in UNIT_SOURCES]
PARTS = 12


def row(number: int, column: str = "", value: str = "") -> str:
    """Return the values of a row, of which one may be another."""
    held = BENIGN | ({column: value} if column else {})
    return f"({number}, {', '.join(held.values())})"


class People:
    """A table of a few benign rows, beside one that changes."""

    def __init__(self, policy: str, *, protected: bool = True) -> None:
        self.con: Any = dpsql.connect()
        self.con.execute(f"CREATE TABLE people ({COLUMNS})")
        self.con.execute(f"INSERT INTO people VALUES {', '.join(map(row, OTHERS))}")
        self.con.execute("CREATE TABLE codes AS SELECT i AS code, i / 2 AS v FROM range(5) AS r(i)")
        given = ", ".join(part for part in ("'people'", "epsilon := 1e9", policy) if part)
        if protected:
            self.con.execute(f"SELECT dp_protect({given}); SELECT dp_public('codes')")
        self.context = dpsql.Context(self.con)

    def ask(self, source: str, mine: str, seen: list[Seen]) -> tuple[str, int, dict[Any, list[int]], str]:
        """Return the code of a refusal, what was charged, the integers of each row, and the message."""
        self.con.execute(f"DELETE FROM people WHERE id = {MINE}; INSERT INTO people VALUES {mine}")
        self.con.execute(f"CREATE OR REPLACE VIEW source AS {source}")
        before, text, code = totals(self.con).get("people", 0), "", ""
        del seen[:]
        try:
            self.context.dp_sum("source", **ARGUMENTS)
        except Exception as error:  # whatever it is, it is judged
            text = str(error)
            code = code_of(error) if isinstance(error, dpsql.DpsqlError) else f"{type(error).__name__}: {text[:80]}"
        charged = totals(self.con).get("people", 0) - before
        return code, charged, seen[-1].groups[0] if not code else {}, text


def wrong(people: People, source: str, hostile: Sequence[tuple[str, str]], seen: list[Seen]) -> Iterator[str]:
    """Yield what a hostile row decides beside its own value."""
    benign, charged, groups, _ = people.ask(source, row(MINE), seen)
    if benign not in ("", "S045"):  # the order of rows would decide: refused whatever they hold
        yield f"{source}: a benign row is refused: {benign}"
        return
    others = {key: value for key, value in groups.items() if key != (str(MINE),)}
    for column, value in hostile:
        what = f"{source}, {column} = {value[:40]}"
        code, cost, found, text = people.ask(source, row(MINE, column, value), seen)
        if benign:
            if (code, cost) != (benign, charged):
                yield f"{what}: {code or 'answered'}"
        elif code:
            if code[:1] not in "IS" or len(code) != 4:
                yield f"{what}: {code}"
            if cost != charged:
                yield f"{what}: {code} for nothing"
            shown = value.strip("'")
            if len(shown) > 4 and shown in text:
                yield f"{what}: the value is shown"
        elif cost != charged:
            yield f"{what}: charged {cost}"
        elif {key: sums for key, sums in found.items() if key != (str(MINE),)} != others:
            yield f"{what}: other rows' integers move"


@pytest.fixture(scope="module")
def everyone() -> Iterator[dict[str, People]]:
    opened = {policy: People(policy) for policy in ("", UNIT)}
    yield opened
    for people in opened.values():
        people.con.close()


def judge(everyone: dict[str, People], sources: Sequence[tuple[str, str]], count: int | None) -> None:
    found = []
    with one_key(), exact_sums() as seen:  # units keep the same rows in every call
        for source, policy in sources:
            chosen = _of(source) if count is None else random.Random(source).sample(_of(source), count)
            found += wrong(everyone[policy], source, chosen, seen)
    if found:
        pytest.fail(f"{len(found)} wrong\n" + "\n".join(found[:60]), pytrace=False)


def _of(source: str) -> list[tuple[str, str]]:
    """Return the hostile rows of the columns that a source reads."""
    words = {*re.findall(r"\w+", source)}
    return [(column, value) for column, value in HOSTILE if column in words]


@pytest.mark.long
@cases("part", range(PARTS))
def test_a_sample_of_hostile_rows(part: int, everyone: dict[str, People]) -> None:
    judge(everyone, SOURCES[part::PARTS][::5], 1)


@pytest.mark.long
@cases("part", range(2 * PARTS))
def test_every_hostile_row(part: int, everyone: dict[str, People]) -> None:
    judge(everyone, SOURCES[part :: 2 * PARTS], None)


def test_a_row_that_decides_for_others_is_noticed() -> None:
    """Where nothing is protected, a source may read all rows; then each of them moves with the hostile one."""
    people = People("", protected=False)
    with exact_sums() as seen:
        source = "SELECT id, sum(n) OVER () / 9 AS v FROM people"
        assert [*wrong(people, source, [("n", "0")], seen)] == [f"{source}, n = 0: other rows' integers move"]
    people.con.close()


def test_there_are_enough_pairs() -> None:
    assert len(SOURCES) >= 87
    assert len(HOSTILE) >= 120
    assert sum(len(_of(source)) for source, _ in SOURCES) >= 1_500
