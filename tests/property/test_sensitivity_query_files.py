"""Random plain SQL over views on Parquet and CSV files: as of tables with these rows, and as private as `test_sensitivity_query`.

What is judged is a twin of a view, and what runs reads its files. So a splitter that writes them apart is a planted
fault: it is refused, and without the comparison of both forms a person would be worth more than is charged.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
import test_sensitivity_query
from test_sensitivity_query import Found, asked, examine, outcome, random_queries

import dpsql
from dpsql.contract.query.split import Split
from dpsql.engines.duckdb import query_planner
from support.broken.planting import planted
from support.cases import cases
from support.exact_parts import Call, exact_parts
from support.plain_tables import LINES, Database, create, create_in_files, fill, fill_files, neighbours, random_rows
from support.sessions import one_key

_split: Callable[..., Split] = vars(query_planner)["split"]
# Tables that are no files here, and a column that is an ENUM in tables alone.
_ELSEWHERE = re.compile(r"\b(lines|notes|parts|bought|kind)\b")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def con(folder: Path) -> Iterator[Any]:
    with dpsql.connect() as opened:
        create_in_files(opened, folder)
        yield opened


def queries_of_files(draw: random.Random, count: int) -> list[tuple[str, str]]:
    """Return random queries of what is in files."""
    found: list[tuple[str, str]] = []
    while len(found) < count:
        found += [query for query in random_queries(draw, 10) if not _ELSEWHERE.search(query[0])]
    return found[:count]


def examined(con: Any, folder: Path, queries: list[tuple[str, str]], databases: list[Database]) -> Found:
    """Ask all queries of files with the rows of a database, and of its neighbours behind it."""
    with planted((test_sensitivity_query, "fill", lambda _, database: fill_files(folder, database))):
        return examine(con, queries, databases)


@cases("seed", [300, pytest.param(301, marks=pytest.mark.long), pytest.param(302, marks=pytest.mark.long)])
def test_a_person_in_files_is_worth_epsilon_at_most(con: Any, folder: Path, seed: int) -> None:
    draw = random.Random(seed)
    count = 4 if seed == 300 else 25
    found = examined(con, folder, queries_of_files(draw, count), neighbours(random_rows(draw)))
    assert found.wrong == []


@cases("seed", [320, pytest.param(321, marks=pytest.mark.long), pytest.param(322, marks=pytest.mark.long)])
def test_a_person_in_lines_is_worth_epsilon_at_most(tmp_path: Path, seed: int) -> None:
    """As `test_a_person_in_files_is_worth_epsilon_at_most`, of CSV files with damaged lines."""
    draw = random.Random(seed)
    with dpsql.connect() as con:
        create_in_files(con, tmp_path, lines=True)
        queries = queries_of_files(draw, 4 if seed == 320 else 25)
        found = examined(con, tmp_path, queries, neighbours(random_rows(draw)))
    assert found.wrong == []


def is_each_for_itself(path: Path, lines: list[bytes], options: str) -> bool:
    """Whether a file has the rows that each of its lines has alone."""
    head, columns = [b"a|b|c"] if "header := true" in options else [], "{a: 'VARCHAR', b: 'VARCHAR', c: 'VARCHAR'}"
    with duckdb.connect() as plain:

        def rows_of(some: list[bytes]) -> Counter[tuple[object, ...]]:
            path.write_bytes(b"".join(line + b"\n" for line in [*head, *some]))
            return Counter(plain.execute(f"FROM read_csv('{path}', columns := {columns}, {options})").fetchall())

        alone: Counter[tuple[object, ...]] = Counter()
        for line, count in Counter(lines).items():
            alone.update({row: times * count for row, times in rows_of([line]).items()})
        return rows_of(lines) == alone


_PIECES = (
    b"1",
    b"a",
    b'"',
    b"'",
    b"|",
    b"|",
    b"\\",
    b"\xff",
    b"\xc3",
    b"\xc3\xa9",
    b"\0",
    b"\r",
    b" ",
    b"#",
    b"\xef\xbb\xbf",
)
_SMALL_BUFFERS = ", max_line_size := 1000, buffer_size := 2000"


@cases("seed", [330, 331, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(332, 345))])
def test_each_line_is_read_for_itself(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    damaged = [b"".join(draw.choices(_PIECES, k=draw.randint(0, 8))) for _ in range(20)]
    lines = draw.choices([*damaged, b"x" * 1500, b"z|" * 50, *(b"%d|b|c" % i for i in range(20))], k=6_000)
    assert is_each_for_itself(tmp_path / "lines.csv", lines, LINES + _SMALL_BUFFERS)


# What the options of `LINES` are for: others with which a line changes what becomes of another, or fails the call.
COUNTER_EXAMPLES = {
    "a quote": ("quote := ''", "quote := '\"'", [b'"', b"1|b|c", b'"']),
    "no head": ("header := true", "header := false", [b"1|b|c", b"\xef\xbb\xbf2|b|c"]),
    "an error": ("ignore_errors := true", "ignore_errors := false", [b"1|b|c", b"\xff"]),
    "a lone carriage return": ("strict_mode := false", "strict_mode := true", [b"1|b\rc", b"2|b|c"]),
    "two threads": ("parallel := false", "parallel := true", []),
}


@cases(
    ("stated", "other", "lines"),
    [pytest.param(*value, id=name) for name, value in COUNTER_EXAMPLES.items()],
    alone=True,
)
def test_what_a_line_does_to_others(tmp_path: Path, stated: str, other: str, lines: list[bytes]) -> None:
    draw = random.Random(3)
    many = draw.choices([b"\xc3|#", b"\r", b"\r1", b"\xff|\r", b'"', *(b"%d|b|c" % i for i in range(20))], k=50_000)
    lines, path, options = lines or many, tmp_path / "lines.csv", LINES + _SMALL_BUFFERS
    assert stated in options
    assert is_each_for_itself(path, lines, options)
    with suppress(duckdb.Error):
        assert not is_each_for_itself(path, lines, options.replace(stated, other))


@cases("seed", [310, pytest.param(311, marks=pytest.mark.long), pytest.param(312, marks=pytest.mark.long)])
def test_files_are_answered_as_tables(con: Any, folder: Path, seed: int) -> None:
    """The exact integers of every part are those of tables with the same rows, and so is what follows from them."""
    draw = random.Random(seed)
    queries, database = queries_of_files(draw, 5 if seed == 310 else 40), random_rows(draw)
    with dpsql.connect() as stored, one_key(), exact_parts() as calls:
        create(stored)
        fill(stored, database)
        fill_files(folder, database)
        answered = 0
        for sql, more in queries:
            ours, theirs = outcome(con, calls, sql, more), outcome(stored, calls, sql, more)
            if isinstance(ours, Call) and isinstance(theirs, Call):
                answered += bool(ours.parts)
                assert ours.loss(theirs) == 0, sql
                assert sorted(map(repr, ours.rows)) == sorted(map(repr, theirs.rows)), sql  # NaN is not equal to NaN
            else:
                assert ours == theirs, sql
    assert answered > len(queries) // 4


def _apart(*given: Any) -> Split:
    """Return a split whose running form alone takes another column for a row's person."""
    found: Split = _split(*given)
    if any("dpsql_file" in table.item for table in given[1].tables.values()):
        return found
    sources = [core.source.replace('"who" AS "unit_of_row"', '"n" AS "unit_of_row"') for core in found.cores]
    cores = tuple(replace(core, source=source) for core, source in zip(found.cores, sources, strict=True))
    return replace(found, cores=cores)


def _unchecked(split: Split, twins: Split, files: Any) -> tuple[tuple[str, str], ...]:
    return tuple(zip(*(query_planner._texts(form) for form in (split, twins)), strict=True))


def test_what_runs_is_what_was_judged(con: Any, folder: Path) -> None:
    rows = [(1, 1 + at % 3, 1.0, at, "'A'", "NULL", "NULL", "NULL") for at in range(9)]
    databases = neighbours({"people": [], "orders": rows, "lines": [], "notes": [], "parts": []})
    queries = [(f"SELECT count(*) AS {name} FROM orders", "left_out_share := 0") for name in ("right", "unjudged")]
    assert examined(con, folder, queries[:1], databases).wrong == []
    with planted((query_planner, "split", _apart)), pytest.raises(duckdb.Error, match="DPSQL-I036"):
        con.execute(asked("SELECT count(*) AS wrong FROM orders"))
    with planted((query_planner, "split", _apart), (query_planner, "_twins", _unchecked)):
        assert "a person is worth" in examined(con, folder, queries[1:], databases).wrong[0]
