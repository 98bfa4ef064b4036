"""Queries that were answered when DuckDB chose among rows that tie: their releases replay, and nothing runs as then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.contract.grant_fields import Asker
from dpsql.contract.query.catalogue import BEFORE_NARROW_KEYS, BEFORE_TOTAL_ORDERS
from dpsql.engines.duckdb import planner, query_planner
from dpsql.engines.duckdb.lineage.placing import place_text
from dpsql.engines.duckdb.planner import _with_public_keys as with_public_keys
from dpsql.engines.duckdb.query_planner import read_options
from dpsql.ledger.grants import Grant
from support.broken.planting import planted
from support.sql_text import literal

OVER = "OVER (PARTITION BY person ORDER BY day)"
# What is written otherwise now.
CHOOSING = {
    "distinct on": "SELECT DISTINCT ON (person) person, n FROM visits ORDER BY person, day",
    "row_number": f"SELECT n FROM visits QUALIFY row_number() {OVER} = 1",
    "lag": f"SELECT n - lag(n) {OVER} AS n FROM visits",
    "lead with a frame": f"SELECT lead(n) {OVER.replace('day)', 'day ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)')} AS n FROM visits",
    "first_value": f"SELECT first_value(n IGNORE NULLS) {OVER} AS n FROM visits",
    "last_value": f"SELECT last_value(n) {OVER} AS n FROM visits",
    "rows": f"SELECT min(n) {OVER.replace('day)', 'day ROWS 1 PRECEDING)')} AS n FROM visits",
    "max over": f"SELECT max(x) {OVER} AS n FROM visits",
    "max": "SELECT person, max(x) AS n FROM visits GROUP BY person",
    "max of a list": "SELECT person, max(l) AS m, count(*) AS n FROM visits GROUP BY person",
    "median": "SELECT person, median(x) AS n FROM visits GROUP BY person",
    "group": "SELECT person, x AS n FROM visits GROUP BY person, x",
    "distinct": "SELECT DISTINCT person, x + 1 AS n FROM visits",
    "a view": "SELECT n FROM highest",
    # Refused now.
    "ties left out": f"SELECT first_value(n) {OVER.replace('day)', 'day ROWS 1 PRECEDING EXCLUDE TIES)')} AS n FROM visits",
}
SAME = {
    "no choice": "SELECT n FROM visits",
    "rank": f"SELECT rank() {OVER} AS n FROM visits",
    "max of integers": "SELECT person, max(n) AS n FROM visits GROUP BY person",
    "count over": f"SELECT count(*) {OVER} AS n FROM visits",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "clinic.duckdb"
    with dpsql.Context(made) as ctx:
        con = ctx.connection
        con.execute("""
            CREATE TABLE visits AS SELECT i % 300 AS person, DATE '2026-01-01' + CAST(i % 7 AS INTEGER) AS day,
              CAST(i % 11 AS INTEGER) AS n, CAST(i % 11 AS DOUBLE) AS x, [x] AS l FROM range(900) AS r(i);
            CREATE VIEW highest AS SELECT person, max(x) AS n FROM visits GROUP BY person
        """)
        con.execute("""
            SELECT dp_protect('visits', epsilon := 900, max_rows_per_unit := 3, privacy_unit := 'person')
        """).fetchall()
        for name in ("ana", "ben"):
            ctx.ledger.grant(Grant.of(name, "visits"))
    return made


@contextmanager
def opened(path: Path) -> Iterator[dpsql.Context]:
    """Nothing that an earlier text left is remembered."""
    with dpsql.Context(path) as ctx:
        yield ctx


@contextmanager
def earlier(path: Path, version: int = BEFORE_TOTAL_ORDERS) -> Iterator[dpsql.Context]:
    """A version that writes every text as before."""
    oldest = {"replayed": version == BEFORE_TOTAL_ORDERS}

    def unnarrowed(*given: Any) -> tuple[Any, Any]:
        _, before = with_public_keys(*given)
        return before, before

    faults = (
        (query_planner, "read_options", lambda *given, **named: read_options(*given, **{**named, "earlier": version})),
        (query_planner, "place_text", lambda *given, **named: place_text(*given, **{**named, **oldest})),
        (planner, "_with_public_keys", unnarrowed),
    )
    with planted(*faults), opened(path) as ctx:
        yield ctx


def counted(rows: str) -> str:
    return f"SELECT count(*) AS a FROM ({rows}) WHERE n > 1"


def asked(ctx: dpsql.Context, sql: str, more: str = "") -> list[tuple[Any, ...]]:
    return ctx.connection.execute(f"FROM dp_query({literal(sql)}, epsilon := 1{more})").fetchall()


def charged(ctx: dpsql.Context) -> int:
    return int(ctx.dp_budget()["releases"].to_pylist()[0])


@pytest.mark.long
@pytest.mark.parametrize("more", ["", "release", "errors"])
def test_a_stored_release_replays(path: Path, more: str) -> None:
    texts = {**CHOOSING, **SAME} if more != "errors" else {"lag": CHOOSING["lag"]}
    given = {"": "", "release": ", release := 'weekly {}'", "errors": ", errors := true"}[more]
    with earlier(path) as ctx:
        before = {name: asked(ctx, counted(sql), given.format(name)) for name, sql in texts.items()}
    with opened(path) as ctx:
        assert {name: asked(ctx, counted(sql), given.format(name)) for name, sql in texts.items()} == before
        assert charged(ctx) == len(texts)


@pytest.mark.long
def test_it_is_read_and_nothing_else(path: Path) -> None:
    with earlier(path) as ctx:
        sources = {}
        for name, rows in {**CHOOSING, **SAME}.items():
            ctx.query(counted(rows), epsilon=1)
            sources[name] = source_of(ctx, counted(rows))
    with opened(path) as ctx:
        for name, source in sources.items():
            sql = counted({**CHOOSING, **SAME}[name])
            assert ctx.query(sql, epsilon=1).replayed, name
            found = ctx.planned_query(sql, {"epsilon": 1})
            assert found is not None
            assert found.split.cores[0].source == source, name
            assert found.replayed == (name in CHOOSING), name
            assert (found.sql() == found.stored_sql()) == (name in CHOOSING), name
        assert charged(ctx) == len(sources)


NARROWED = (
    "dp_query('SELECT n, count(*) AS a FROM visits WHERE n > 3 AND n <= 9 GROUP BY n', epsilon := 1)",
    "dp_query('SELECT month(day) AS m, count(*) AS a FROM visits WHERE month(day) BETWEEN 1 AND 3 GROUP BY m', epsilon := 1)",
    "dp_count('visits', by := 'n', condition := 'n > 3 AND n <= 9', epsilon := 1, release := 'high')",
)


def test_a_release_before_conditions_narrowed_keys_replays(path: Path) -> None:
    with earlier(path, BEFORE_NARROW_KEYS) as ctx:
        before = [sorted(ctx.connection.execute(f"FROM {call}").fetchall(), key=repr) for call in NARROWED]
    with opened(path) as ctx:
        assert [sorted(ctx.connection.execute(f"FROM {call}").fetchall(), key=repr) for call in NARROWED] == before
        assert charged(ctx) == len(NARROWED)
        anew = [
            ctx.connection.execute(f"FROM {call.replace('1)', '2)').replace('high', 'new')}").fetchall()
            for call in NARROWED
        ]
        assert [len(before) - len(anew) for before, anew in zip(before, anew, strict=True)] == [1, 9, 1]


def source_of(ctx: dpsql.Context, sql: str) -> str:
    found = ctx.planned_query(sql, {"epsilon": 1})
    assert found is not None
    return found.split.cores[0].source


@pytest.mark.long
def test_what_is_not_stored_is_not_run_as_then(path: Path) -> None:
    others: list[dict[str, object]] = [
        {"epsilon": 2},
        {"epsilon": 1, "fresh": True},
        {"epsilon": 1, "release": "daily"},
        {"epsilon": 1, "max_age": 0},
    ]
    with earlier(path) as ctx:
        sources = {}
        for name, rows in CHOOSING.items():
            ctx.query(counted(rows), epsilon=1)
            sources[name] = source_of(ctx, counted(rows))
    with opened(path) as ctx:
        for name, source in sources.items():
            for given in others:
                if name == "ties left out":
                    with pytest.raises(dpsql.ParameterError, match="P104"):
                        ctx.planned_query(counted(CHOOSING[name]), given)
                    continue
                found = ctx.planned_query(counted(CHOOSING[name]), given)
                assert found is not None
                assert not found.replayed, (name, given)
                assert found.split.cores[0].source != source, (name, given)
                assert source not in found.sql(), (name, given)


@pytest.mark.long
def test_an_asker_has_answers_of_its_own(path: Path) -> None:
    """What the owner asked for is no answer to an asker, whose question is written as it is now."""
    sql = counted(CHOOSING["row_number"])
    with earlier(path) as ctx:
        asked(ctx, sql)
        before = ctx.asked_by(Asker("ana")).query(sql, epsilon=1).value
        source = source_of(ctx, sql)
    with opened(path) as ctx:
        mine = ctx.asked_by(Asker("ana")).query(sql, epsilon=1)
        assert (mine.replayed, mine.value.equals(before)) == (True, True)
        for other in (Asker("ben"), Asker("ana", fresh=True), Asker("ana", fresh=True, key="k")):
            found = ctx.asked_by(other).planned_query(sql, {"epsilon": 1})
            assert found is not None
            assert not found.replayed
            assert source not in found.sql()
        assert charged(ctx) == 2


@pytest.mark.long
def test_a_release_that_is_gone_is_not_asked_anew(path: Path) -> None:
    """A statement over a stored release reads that release, whatever became of it since."""
    sql = counted(CHOOSING["lag"])
    with earlier(path) as ctx:
        asked(ctx, sql)
    with opened(path) as ctx:
        found = ctx.planned_query(sql, {"epsilon": 1})
        assert found is not None
        with (
            planted((type(ctx._session.past), "replay", lambda *_: None)),
            pytest.raises((dpsql.InternalError, duckdb.Error)),
        ):
            ctx.run_planned(found)
        assert charged(ctx) == 1


@pytest.mark.long
def test_queries_that_choose_nothing_are_split_once(path: Path) -> None:
    split = vars(query_planner)["split"]
    calls: list[int] = []

    def counting(query: Any, catalogue: Any, options: Any) -> Any:
        calls.append(options.earlier)
        return split(query, catalogue, options)

    with planted((query_planner, "split", counting)), opened(path) as ctx:
        for sql in SAME.values():
            asked(ctx, counted(sql))
        assert not any(calls)
        asked(ctx, counted(CHOOSING["lag"]))
        assert any(calls)
