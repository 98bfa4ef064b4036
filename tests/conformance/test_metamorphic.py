"""Add, remove or replace the worst row: no statistic moves by more than its stated sensitivity."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from calls import CALLS, GROUPED, Call, share
from neighbours import PLACES, judge
from seam import Watch, watching
from tables import SOURCES, TABLES, base

import dpsql
from support.cases import cases

PAIRS = 12


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    with watching() as opened:
        yield opened


def _calls(table: str) -> list[tuple[int, Call]]:
    return [(number, call) for number, call in enumerate((*CALLS, *GROUPED)) if call.table == table]


@cases("table", TABLES)
@cases("place", PLACES)
def test_a_sample_of_neighbours(place: str, table: str, watch: Watch, tmp_path: Path) -> None:
    generator = random.Random(f"{place} {table}")
    calls = generator.sample(_calls(table), 5)
    judge(place, table, generator.randrange(PAIRS), calls, watch, tmp_path)


@pytest.mark.slow
@cases("number", range(PAIRS))
@cases("table", TABLES)
@cases("place", PLACES)
def test_all_neighbours(place: str, table: str, number: int, watch: Watch, tmp_path: Path) -> None:
    judge(place, table, number, share(_calls(table), f"{place} {table} {number}"), watch, tmp_path)


# Statements around a call that DuckDB plans in ways of its own.
SHAPES = {
    "correlated subquery": "SELECT (SELECT {value} FROM {source} WHERE id >= o.i) FROM range(2) AS o(i)",
    "correlated subquery over the table": "SELECT count(*) FROM {source} AS o WHERE (SELECT {value} FROM {source} AS t "
    "WHERE t.id >= o.id) IS NOT NULL",
    "lateral join": "SELECT count(*) FROM range(2) AS o(i), LATERAL (SELECT {value} FROM {source} WHERE id >= o.i) AS r",
    "window": "SELECT count(*) FROM (SELECT {value} OVER () AS v FROM {source}) WHERE v IS NOT NULL",
    "filter": "SELECT {value} FILTER (WHERE z > 0) FROM {source}",
    "groups": "SELECT count(*) FROM (SELECT {value} AS v FROM {source} GROUP BY z) WHERE v IS NULL",
}


@cases("shape", SHAPES)
def test_no_error_tells_how_many_rows_there_are(shape: str, watch: Watch) -> None:
    """What a statement says when it fails is the same for a table with one row more."""
    wrong, texts = [], {}
    for rows in (137, 138):
        with dpsql.connect() as connection:
            for name in TABLES[:2]:
                SOURCES["table"](connection, name, base(name).slice(0, rows), Path(), 0, "")
            for number, call in enumerate(CALLS):
                if "aggregate over" in call.name:
                    value = call.sql.removeprefix("SELECT ").removesuffix(" FROM {source}")
                    sql = SHAPES[shape].format(value=value, source=call.table)
                    watch.ask(connection, "SELECT 1", number)
                    texts.setdefault(call.name, []).append(_error(connection, sql))
    for name, (first, second) in texts.items():
        if first != second:
            wrong.append(f"{name}: {first} | {second}")
    if wrong:
        pytest.fail(f"{shape}: {len(wrong)} of {len(texts)} calls\n" + "\n".join(wrong), pytrace=False)


def _error(connection: Any, sql: str) -> str:
    try:
        connection.execute(sql).fetchall()
    except duckdb.Error as error:
        return " ".join(str(error).split("At:")[0].split())[:300]
    return ""
