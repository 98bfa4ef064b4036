"""The splitter may be wrong about meaning, never about privacy: whatever it writes, DuckDB's plans of it decide.

A wrong split takes the place of the right one. It is refused, and nothing is charged.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.contract.query.split import Split
from dpsql.engines.duckdb import query_planner
from support.answers import private
from support.broken.planting import planted
from support.cases import cases
from support.worlds import hospital

_TOLD = itertools.count()
COUNT = "SELECT ward, count(*) AS n, avg(days) AS mean FROM visits GROUP BY ward"


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        hospital(opened, people=40)
        yield opened


def asked_of(con: Any, wrong: Callable[[Split], Split], before: str = "") -> Any:
    """Ask a query that is split wrongly; return its answer. Its text is a new one: a split is remembered."""
    split = query_planner.split

    def splitting(*given: Any) -> Split:
        return wrong(split(*given))

    with planted((query_planner, "split", splitting)):
        return con.execute(before + private(f"{COUNT} -- {next(_TOLD)}", "fresh := true")).fetchall()


def refusal(con: Any, wrong: Callable[[Split], Split], before: str = "") -> str:
    spent = con.execute("FROM dp_budget()").fetchall()
    with pytest.raises(duckdb.Error) as raised:
        asked_of(con, wrong, before)
    assert con.execute("FROM dp_budget()").fetchall() == spent
    found = re.search(r"DPSQL-([A-Z]\d{3})", str(raised.value))
    assert found, str(raised.value)
    return found[1]


def of_source(write: Callable[[str, str, str, str], str]) -> Callable[[Split], Split]:
    """Return a splitter that writes another source; `write` gets its own, the names of key, value and unit."""

    def wrong(split: Split) -> Split:
        [core] = split.cores
        value = next(one.column for one in core.aggregates if one.column)
        assert core.unit is not None
        names = (f'"{name}"' for name in (core.keys[0].column, value, core.unit))
        return replace(split, cores=(replace(core, source=write(core.source, *names)),))

    return wrong


# By what is wrong: the source of a core, from the right one and the names of its key, value and unit.
SOURCES: dict[str, Callable[[str, str, str, str], str]] = {
    "another person": lambda s, k, v, u: (
        f"SELECT s.{k}, s.{v}, p.id AS {u} FROM ({s}) s, memory.main.patients p WHERE s.{v} = p.age"
    ),
    "everybody is one": lambda s, k, v, u: f"SELECT {k}, {v}, 1 AS {u} FROM ({s})",
    "a person by name": lambda s, k, v, u: f"SELECT {k}, {v}, hash({u}) AS {u} FROM ({s})",
    "every row a person": lambda s, k, v, u: f"SELECT {k}, {v}, row_number() OVER () AS {u} FROM ({s})",
    "shifted": lambda s, k, v, u: f"SELECT {k}, {v}, {u} + 1 AS {u} FROM ({s})",
    "the value of others": lambda s, k, v, u: f"SELECT {k}, sum({v}) OVER () AS {v}, {u} FROM ({s})",
    "the rank among all": lambda s, k, v, u: f"SELECT {k}, rank() OVER (ORDER BY {v}) AS {v}, {u} FROM ({s})",
    "the greatest of a ward": lambda s, k, v, u: (
        f"SELECT {k}, max({v}) AS {v}, any_value({u}) AS {u} FROM ({s}) GROUP BY {k}"
    ),
    "the first of a ward": lambda s, k, v, u: f"SELECT DISTINCT ON ({k}) {k}, {v}, {u} FROM ({s})",
    "some rows": lambda s, k, v, u: f"SELECT {k}, {v}, {u} FROM ({s}) ORDER BY {v} LIMIT 3",
    "a sample": lambda s, k, v, u: f"SELECT {k}, {v}, {u} FROM ({s}) USING SAMPLE 50%",
    "who is unlike others": lambda s, k, v, u: (
        f"SELECT {k}, {v}, {u} FROM ({s}) WHERE {v} > (SELECT avg({v}) FROM ({s}))"
    ),
    "who has no twin": lambda s, k, v, u: f"SELECT {k}, {v}, {u} FROM ({s}) s ANTI JOIN ({s}) o ON s.{v} = o.{v} + 1",
    "who has a twin": lambda s, k, v, u: f"SELECT {k}, {v}, {u} FROM ({s}) s WHERE {v} IN (SELECT {v} + 1 FROM ({s}))",
    "all but others": lambda s, k, v, u: f"FROM ({s}) EXCEPT SELECT {k}, {v}, {u} + 1 FROM ({s})",
    "what others have": lambda s, k, v, u: f"FROM ({s}) INTERSECT SELECT {k}, {v}, {u} + 1 FROM ({s})",
    "pairs of people": lambda s, k, v, u: f"SELECT a.{k}, b.{v}, a.{u} FROM ({s}) a JOIN ({s}) b ON a.{k} = b.{k}",
    "a person per test": lambda s, k, v, u: f"SELECT 'A' AS {k}, result AS {v}, visit AS {u} FROM memory.main.labs",
    "no rows of people": lambda s, k, v, u: f"SELECT ward AS {k}, beds AS {v}, beds AS {u} FROM memory.main.wards",
    "unit_not_carried": lambda s, k, v, u: f"SELECT {k}, {v} FROM ({s})",
    "the unit elsewhere": lambda s, k, v, u: f"SELECT {u} AS {k}, {v}, {k} AS {u} FROM ({s})",
    "by position": lambda s, k, v, u: f"SELECT * FROM ({s}) POSITIONAL JOIN memory.main.wards",
    "recursion": lambda s, k, v, u: (
        f"WITH RECURSIVE r AS (SELECT {k}, {v}, {u} FROM ({s}) UNION SELECT {k}, {v} + 1, {u} FROM r WHERE {v} < 2) FROM r"
    ),
    "a file": lambda s, k, v, u: f"SELECT {k}, {v}, {u} FROM ({s}) JOIN read_csv('x.csv') ON true",
    "nothing that binds": lambda s, k, v, u: "SELECT nothing FROM nowhere",
}


@cases("name", SOURCES, quick=4)
def test_a_wrong_source_is_refused(con: Any, name: str) -> None:
    assert refusal(con, of_source(SOURCES[name]))[0] in "SIPB"


POSTS = {
    "rows of people": "SELECT ward, days AS n, cost AS mean FROM memory.main.visits",
    "the exact number": "SELECT ward, (SELECT count(*) FROM memory.main.visits) AS n, 1e0 AS mean FROM memory.main.wards",
    "who is known": 'SELECT * FROM "__dp_0" WHERE EXISTS (SELECT 1 FROM memory.main.patients WHERE age > 90)',
    "in an order of rows": (
        'SELECT d.* FROM "__dp_0" d ORDER BY (SELECT count(*) FROM memory.main.visits v WHERE v.cost = 3) LIMIT 2'
    ),
    "groups that occur": 'SELECT d.* FROM "__dp_0" d SEMI JOIN memory.main.visits v ON true',
    "a limit of rows": 'SELECT * FROM "__dp_0" LIMIT (SELECT count(*) FROM memory.main.visits)',
    "by a function": "SELECT ward, 1 AS n, 1e0 AS mean FROM query('FROM visits')",
    "by a name": "SELECT ward, 1 AS n, 1e0 AS mean FROM query_table('visits')",
    "of the catalog": "SELECT table_name AS ward, estimated_size AS n, 1e0 AS mean FROM duckdb_tables()",
    "of statistics": "SELECT column_name AS ward, count AS n, 1e0 AS mean FROM pragma_storage_info('visits')",
    "other columns": 'SELECT 1 AS one FROM "__dp_0"',
}


@cases("name", POSTS, quick=5)
def test_a_post_text_that_reads_people_is_refused(con: Any, name: str) -> None:
    assert refusal(con, lambda split: replace(split, post=POSTS[name]))[0] in "SIP"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT ward FROM memory.main.visits",
        "SELECT unnest((SELECT list(ward) FROM memory.main.visits))",
        "SELECT ward FROM memory.main.wards WHERE beds < (SELECT count(*) FROM memory.main.visits)",
        "SELECT ward FROM memory.main.wards SEMI JOIN memory.main.visits USING (ward)",
    ],
)
def test_keys_that_are_read_from_people_are_refused(con: Any, query: str) -> None:
    def wrong(split: Split) -> Split:
        [core] = split.cores
        [key] = core.keys
        return replace(split, cores=(replace(core, keys=(replace(key, values=None, query=query),)),))

    assert refusal(con, wrong)[0] in "SIP"


def test_a_name_that_a_caller_could_capture_is_refused(con: Any) -> None:
    """A table's name that is not whole is the caller's CTE of that name when the text runs, and not what was judged."""
    names = "WITH wards AS (SELECT name AS ward, 1 AS beds FROM patients) "
    rows = "WITH visits AS (SELECT 'A' AS ward, 1.0 AS days, visit AS patient FROM labs) "
    post = 'SELECT w.ward, a0 AS n, a1 AS mean FROM "__dp_0" FULL JOIN wards w ON true'

    def source(split: Split) -> Split:
        [core] = split.cores
        return replace(
            split,
            cores=(replace(core, source=core.source.replace("memory.main.", "").replace('"memory"."main".', "")),),
        )

    def keys(split: Split) -> Split:
        [core] = split.cores
        [key] = core.keys
        return replace(split, cores=(replace(core, keys=(replace(key, values=None, query="SELECT ward FROM wards"),)),))

    for before in ("", names):
        assert refusal(con, lambda split: replace(split, post=post), before)[0] in "SIP"
        assert refusal(con, keys, before)[0] in "SIP"
    for before in ("", rows):
        assert refusal(con, source, before)[0] in "SIP"


def test_a_core_that_is_forgotten_is_not_free(con: Any) -> None:
    """A split without cores is public, so its text may read nobody."""
    text = "SELECT ward, count(*) AS n, avg(days) AS mean FROM memory.main.visits GROUP BY ward"
    assert refusal(con, lambda split: replace(split, cores=(), post=text))[0] in "SIP"


def test_the_right_split_is_answered(con: Any) -> None:
    """The texts above fail for what is wrong with them: written in the same way, the right ones are answered."""
    assert asked_of(con, of_source(lambda s, k, v, u: f"SELECT {k}, {v}, {u} FROM ({s}) WHERE {v} < 5"))
    assert asked_of(con, lambda split: replace(split, post=f"SELECT * FROM ({split.post}) LIMIT 2"))
