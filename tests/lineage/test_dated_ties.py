"""What the rules say of several tables with periods holds for their rows: each is of one person in one period.

Removing a person in a period removes the dated rows of both, and what a path reaches from these alone. What is accepted
may then change in rows of that person in that period, and in no others; undated rows may change when undated rows do.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import duckdb
import pytest

from dpsql.contract.names import TableName
from dpsql.contract.periods import PARTS, PERIODS
from dpsql.engines.duckdb.lineage import bound
from dpsql.engines.duckdb.lineage.rows import PUBLIC, Key, Leaf, Rows, date_column
from dpsql.engines.duckdb.lineage.stability import walk
from support.broken.dated import FAULTS
from support.broken.planting import planted
from support.cases import cases
from support.dated import (
    Answers,
    Database,
    Row,
    create,
    everything_of,
    numbered,
    owners,
    random_database,
    small_databases,
    tables_of_visits,
    without,
)

KEYS = {
    name: Key(TableName("memory", "main", name), key)
    for name, key in (("people", "k"), ("visits", "vid"), ("labs", "lk"))
}
CLINIC = ("clinic",)
LEAVES = {
    "people": Leaf(CLINIC, "id", None, {"k": KEYS["people"]}, period="month", static=True),
    "notes": Leaf(CLINIC, "k", KEYS["people"], period="month", static=True),
    "visits": Leaf(CLINIC, "who", None, {"vid": KEYS["visits"]}, period="month", date="day"),
    "stays": Leaf(CLINIC, "who", period="month", date="since"),
    "labs": Leaf(CLINIC, "v", KEYS["visits"], {"lk": KEYS["labs"]}, period="month"),
    "parts": Leaf(CLINIC, "l", KEYS["labs"], period="month"),
    "public": PUBLIC,
}
_M = "date_trunc('month', {})"
DAY, SINCE = _M.format("day"), _M.format("since")
# As a query's text computes it, so that no row stops it.
_ONE = (
    "list_extract(list_transform([struct_pack(c0 := {})], "
    "lambda r: TRY(CAST(date_trunc('month', struct_extract(r, 'c0')) AS DATE))), 1)"
)
ONE_DAY, ONE_SINCE = _ONE.format("a.day"), _ONE.format("b.since")
MONTHS = f"a.who = b.who AND {_M.format('a.day')} = {_M.format('b.since')}"

# Accepted, with the person first and a date second.
ACCEPTED = {
    "rows": "SELECT who, day, x FROM visits",
    "month": f"SELECT who, {DAY}, x FROM visits",
    "day": "SELECT who, date_trunc('day', since), x FROM stays",
    "cast": f"SELECT who, CAST({DAY} AS DATE), CAST(day AS TIMESTAMP), x FROM visits",
    "twice": f"SELECT who, datetrunc('MONTH', {DAY}), x FROM visits",
    "of one row": f"SELECT who, {ONE_DAY}, x FROM visits a",
    "groups of one row": f"SELECT who, {ONE_DAY} AS m, sum(x) FROM visits a GROUP BY who, {ONE_DAY}",
    "groups of one row below": f"SELECT who, m, sum(x) FROM (SELECT who, {ONE_DAY} AS m, x FROM visits a) GROUP BY who, m",
    "a window of one row": f"SELECT who, day, count(*) OVER (PARTITION BY who, {ONE_DAY}) FROM visits a",
    "two tables of one row": f"SELECT a.who, day, b.x FROM visits a JOIN stays b ON a.who = b.who AND {ONE_DAY} = {ONE_SINCE}",
    "groups": f"SELECT who, {DAY} AS m, count(*), sum(x) FROM visits GROUP BY ALL",
    "groups of days": "SELECT who, day, count(*) FROM visits GROUP BY who, day",
    "groups of groups": f"SELECT who, {_M.format('d')} AS m, max(n) FROM (SELECT who, day AS d, count(*) AS n FROM visits GROUP BY ALL) GROUP BY who, m",
    "distinct": f"SELECT DISTINCT who, {DAY}, x FROM visits",
    "distinct on": f"SELECT DISTINCT ON (who, m) who, {DAY} AS m, x FROM visits ORDER BY x",
    "window": f"SELECT who, day, count(*) OVER (PARTITION BY who, {DAY}) FROM visits",
    "numbered": f"SELECT who, day, x FROM visits QUALIFY row_number() OVER (PARTITION BY {DAY}, who ORDER BY x, day) = 1",
    "public": "SELECT who, day, p FROM visits JOIN public ON visits.x = p",
    "all of public": "SELECT who, day, p FROM public LEFT JOIN visits ON visits.x = p",
    "looked up": "SELECT who, day, people.x FROM visits JOIN people ON id = who",
    "looked up from the left": "SELECT id, day, people.x FROM people JOIN visits ON id = who",
    "looked up if there": "SELECT who, day, people.x FROM visits LEFT JOIN people ON id = who",
    "chosen by undated": "SELECT who, day, x FROM visits SEMI JOIN people ON who = id",
    "not among undated": "SELECT who, day, x FROM visits ANTI JOIN (FROM people WHERE x = 1) p ON who = id",
    "among undated": "SELECT who, day, x FROM visits WHERE who IN (SELECT id FROM people)",
    "counted and looked up": "SELECT who, day, n FROM visits JOIN (SELECT id, count(*) AS n FROM people GROUP BY id) ON id = who",
    "notes": "SELECT who, day, notes.x FROM visits JOIN people ON id = who JOIN notes ON notes.k = people.k",
    "notes first": "SELECT who, day, notes.x FROM notes JOIN people ON notes.k = people.k JOIN visits ON id = who",
    "two tables": f"SELECT a.who, day, b.x FROM visits a JOIN stays b ON {MONTHS}",
    "two tables, the other date": f"SELECT b.who, since, a.x FROM visits a JOIN stays b ON {MONTHS}",
    "of one day": "SELECT a.who, day, b.x FROM visits a JOIN stays b ON a.who = b.who AND a.day = b.since",
    "by a day of the month": f"SELECT a.who, day, b.x FROM visits a JOIN stays b ON a.who = b.who AND a.day = {_M.format('b.since')}",
    "with itself": f"SELECT a.who, a.day, b.x FROM visits a JOIN visits b ON a.who = b.who AND {_M.format('a.day')} = {_M.format('b.day')}",
    "two tables if there": f"SELECT a.who, day, b.x FROM visits a LEFT JOIN stays b ON {MONTHS}",
    "comma": f"SELECT a.who, day, b.x FROM visits a, stays b WHERE {MONTHS}",
    "where": f"SELECT who, day, b.x FROM visits a JOIN stays b USING (who) WHERE {_M.format('a.day')} = {_M.format('b.since')}",
    "chosen by another": f"SELECT who, day, x FROM visits a SEMI JOIN stays b ON {MONTHS}",
    "not among another": f"SELECT who, day, x FROM visits a ANTI JOIN (FROM stays WHERE x = 1) b ON {MONTHS}",
    "nulls": "SELECT a.who, day, b.x FROM visits a JOIN stays b ON a.who IS NOT DISTINCT FROM b.who AND a.day IS NOT DISTINCT FROM b.since",
    "three": f"SELECT a.who, day, people.x FROM visits a JOIN stays b ON {MONTHS} JOIN people ON id = b.who",
    "labs": "SELECT who, day, labs.x FROM labs JOIN visits ON v = vid",
    "all labs": "SELECT who, day, labs.x FROM labs LEFT JOIN visits ON v = vid",
    "visits and labs": "SELECT who, day, labs.x FROM visits LEFT JOIN labs ON v = vid",
    "sums of labs": "SELECT who, day, s FROM visits JOIN (SELECT v, sum(x) AS s FROM labs GROUP BY v) ON v = vid",
    "visits with labs": "SELECT who, day, x FROM visits SEMI JOIN labs ON vid = v",
    "visits without labs": "SELECT who, day, x FROM visits ANTI JOIN labs ON vid = v",
    "parts": "SELECT who, day, parts.x FROM parts JOIN labs ON l = lk JOIN visits ON v = vid",
    "everything": f"SELECT a.who, day, labs.x FROM labs JOIN visits a ON v = vid JOIN people ON id = a.who JOIN stays b ON {MONTHS}",
    "union": "SELECT who, day, x FROM visits UNION ALL SELECT who, since, x FROM stays",
    "with": "WITH v AS (FROM visits WHERE x = 1) SELECT a.who, a.day, b.x FROM v a JOIN v b ON a.who = b.who AND a.day = b.day",
}
# Accepted, with the person first: undated rows alone.
UNDATED = {
    "people": "SELECT id, x FROM people",
    "people grouped": "SELECT id, count(*) FROM people GROUP BY id",
    "notes of people": "SELECT id, notes.x FROM notes JOIN people USING (k)",
    "people twice": "SELECT a.id, b.x FROM people a JOIN people b ON a.id = b.id",
}
# Refused, and wrong: some database changes in rows of others, of other periods, or where dated rows go.
REFUSED = {
    "by the id alone": "SELECT a.who, day, b.x FROM visits a JOIN stays b USING (who)",
    "with itself by the id": "SELECT a.who, a.day, b.x FROM visits a JOIN visits b USING (who)",
    "left by the id": "SELECT a.who, day, b.x FROM visits a LEFT JOIN stays b USING (who)",
    "chosen by the id": "SELECT who, day, x FROM visits a SEMI JOIN stays b USING (who)",
    "in by the id": "SELECT who, day, x FROM visits WHERE who IN (SELECT who FROM stays)",
    "by the date alone": "SELECT a.who, day, b.x FROM visits a JOIN stays b ON a.day = b.since",
    "by the year": "SELECT a.who, day, b.x FROM visits a JOIN stays b ON a.who = b.who AND year(a.day) = year(b.since)",
    "by the first day of the year": "SELECT a.who, day, b.x FROM visits a JOIN stays b ON a.who = b.who AND "
    "date_trunc('year', a.day) = date_trunc('year', b.since)",
    "by the week": "SELECT a.who, a.day, b.x FROM visits a JOIN visits b ON a.who = b.who AND "
    "date_trunc('week', a.day) = date_trunc('week', b.day)",
    "groups of a year": "SELECT who, date_trunc('year', day) AS d, count(*) FROM visits GROUP BY ALL",
    "groups of people": "SELECT who, min(day), count(*) FROM visits GROUP BY who",
    "groups of months": f"SELECT min(who), {DAY} AS d, count(*) FROM visits GROUP BY d",
    "a window of people": "SELECT who, day, count(*) OVER (PARTITION BY who) FROM visits",
    "a window of years": "SELECT who, day, count(*) OVER (PARTITION BY who, year(day)) FROM visits",
    "distinct people": "SELECT DISTINCT ON (who) who, day, x FROM visits ORDER BY day, x",
    "undated rows chosen by dated ones": "SELECT id, x FROM people SEMI JOIN visits ON id = who",
    "undated rows without dated ones": "SELECT id, x FROM people ANTI JOIN visits ON id = who",
    "undated rows in dated ones": "SELECT id, x FROM people WHERE id IN (SELECT who FROM visits)",
    "dated rows of a person counted": "SELECT id, count(*) FROM visits JOIN people ON id = who GROUP BY id",
    "undated rows and dated ones": "SELECT id, x FROM people UNION ALL SELECT who, x FROM visits",
    "another date": "SELECT a.who, CAST('2026-01-01' AS DATE), x FROM visits a",
    "a moved date": "SELECT who, day + INTERVAL 1 MONTH, x FROM visits",
    "a date for NULL": "SELECT who, coalesce(day, CAST('2026-01-01' AS DATE)), x FROM visits",
    "visits by their keys": "SELECT a.who, a.day, b.x FROM visits a JOIN visits b ON a.vid = b.vid",
    "labs by the oldest": "SELECT who, d, x FROM labs JOIN (SELECT vid, min(who) AS who, min(day) AS d FROM visits GROUP BY vid) ON v = vid",
    "labs by people": "SELECT id, day, labs.x FROM labs JOIN visits ON v = vid JOIN people ON people.k = visits.vid",
    "undated rows of others": "SELECT who, day, people.x FROM visits JOIN people ON vid = k",
}
# Refused, though no row shows it: what it would take is more than a plan says, or the rows are of nobody.
STRICT = {
    "people and their visits": "SELECT id, day, people.x FROM people LEFT JOIN visits ON id = who",
    "labs alone": "SELECT v, x FROM labs",
    "a text": "SELECT who, CAST(day AS VARCHAR), x FROM visits",
    "a zone": "SELECT who, date_trunc('month', CAST(day AS TIMESTAMPTZ)), x FROM visits",
    "the second of one": f"SELECT who, {ONE_DAY.removesuffix('1)')}2), x FROM visits a",
    "the first of two": f"SELECT who, {ONE_DAY.replace('a.day)]', 'a.day), struct_pack(c0 := a.day)]')}, x FROM visits a",
    "by its number": f"SELECT who, {ONE_DAY.replace('lambda r:', 'lambda r, i:')}, x FROM visits a",
    "one row and a column": f"SELECT who, {ONE_DAY.replace('(r,', '(CASE WHEN x = 1 THEN r END,')}, x FROM visits a",
    "another column of one row": f"SELECT who, {ONE_DAY.replace('a.day)', 'day + 31, c1 := a.day)')}, x FROM visits a",
    "a year of one row": f"SELECT who, {ONE_DAY.replace('month', 'year')}, x FROM visits a",
    "a part in a column": "SELECT who, date_trunc(CASE WHEN x = 1 THEN 'day' ELSE 'month' END, day), x FROM visits",
}


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute("SET threads = 1")  # the tables are small, and the queries many
        create(opened)
        yield opened


def judged(con: Any, query: str) -> Rows:
    [(text,)] = con.execute("SELECT json_serialize_plan(?)::VARCHAR", [query]).fetchall()
    node = bound.read(text)
    assert node is not None, text
    return walk(node, lambda path, _: LEAVES.get(path[2]), {})


def answered(rows: Rows) -> str:
    """Return how a query is answered: ``'dated'``, ``'undated'``, or not at all."""
    if (
        rows.public
        or not rows.by_unit
        or rows.own_rows
        or rows.pending is not None
        or 0 not in rows.unit
        or not rows.date
    ):
        return ""
    if rows.date.static:
        return "undated"
    return "dated" if 1 in rows.date.columns else ""


@cases("query", ACCEPTED.values(), ids=ACCEPTED)
def test_rows_of_one_person_in_one_period_are_accepted(con: Any, query: str) -> None:
    assert answered(judged(con, query)) == "dated"


ONCE = {"groups", "groups of one row", "groups of groups", "numbered", "people grouped"}


@cases("name", [*ACCEPTED, *UNDATED], quick=26)
def test_a_person_has_one_row_in_a_period(con: Any, name: str) -> None:
    """What a plan says of the rows of a person in one period is so; a day is no month."""
    query = {**ACCEPTED, **UNDATED}[name]
    assert judged(con, query).once == (name in ONCE)
    if name not in ONCE:
        return
    answers, draw = Answers(con, {name: numbered(query, dated=name not in UNDATED)}), random.Random(5)
    for database in (random_database(draw) for _ in range(10)):
        whose = Counter((row[0], row[1]) for row in answers.of(database)[name].elements())
        assert max([0, *(count for (period, unit), count in whose.items() if None not in (period, unit))]) <= 1


@pytest.mark.parametrize("query", UNDATED.values(), ids=UNDATED)
def test_undated_rows_alone_are_accepted(con: Any, query: str) -> None:
    assert answered(judged(con, query)) == "undated"


@cases("query", [*REFUSED.values(), *STRICT.values()], ids=[*REFUSED, *STRICT])
def test_rows_of_two_periods_are_refused(con: Any, query: str) -> None:
    assert answered(judged(con, query)) == ""


QUERIES = {
    **{name: numbered(query) for name, query in ACCEPTED.items()},
    **{name: numbered(query, dated=False) for name, query in UNDATED.items()},
}


def changes(answers: Answers, database: Database, neighbour: Database) -> Iterator[tuple[str, Row]]:
    """Yield each query's rows that differ between two databases; rows of nobody are dropped."""
    before, after = answers.of(database), answers.of(neighbour)
    for name in before:
        for row in (before[name] - after[name]) + (after[name] - before[name]):
            if row[1] is not None:
                yield name, row


def wrong(answers: Answers, database: Database) -> Iterator[tuple[str, object, Row]]:
    """Yield what changes that may not, where a person goes in one period, without dates, or altogether."""
    for owner in {one for whose in owners(database).values() for each in whose for one in each}:
        person, period = owner
        if period == "undated":
            continue  # what these add to dated rows is protected as the whole person is
        for name, row in changes(answers, database, without(database, owner)):
            # The number of a period that no call sees is NULL.
            if name in UNDATED or row[1] != person or row[0] != period:
                yield name, owner, row
    for person in (1, 2):
        for name, row in changes(answers, database, without(database, *everything_of(database, person))):
            if row[1] != person:
                yield name, person, row
        dated = {one for one in everything_of(database, person) if one[1] != "undated"}
        rest = without(database, *dated)
        gone = without(rest, *everything_of(rest, person))
        for name, row in changes(answers, rest, gone):
            if name not in UNDATED or row[1] != person:
                yield name, (person, "undated rows after the dated ones"), row


def hold(con: Any, databases: Iterable[Database]) -> int:
    answers, number = Answers(con, QUERIES), 0
    for database in databases:
        assert [*wrong(answers, database)] == [], database
        number += 1
    return number


def sampled(databases: Iterable[Database], share: float, seed: int) -> Iterator[Database]:
    draw = random.Random(seed)
    return (one for one in databases if draw.random() < share)


@pytest.mark.long
def test_small_tables_change_in_one_period(con: Any) -> None:
    assert hold(con, sampled(tables_of_visits(), 0.006, 1)) > 5


@pytest.mark.long
def test_small_databases_change_in_one_period(con: Any) -> None:
    assert hold(con, sampled(small_databases(), 0.008, 2)) > 10


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_random_databases_change_in_one_period(con: Any, seed: int) -> None:
    draw = random.Random(seed)
    hold(con, (random_database(draw) for _ in range(5)))


@pytest.mark.slow
def test_all_small_tables_change_in_one_period(con: Any) -> None:
    """Every table of at most four visits over two people, two periods and none, and two values."""
    assert hold(con, tables_of_visits()) == 1820


@pytest.mark.slow
def test_all_small_databases_change_in_one_period(con: Any) -> None:
    assert hold(con, small_databases()) == 3654


@pytest.mark.slow
@cases("seed", range(100, 110))
def test_many_random_databases_change_in_one_period(con: Any, seed: int) -> None:
    draw = random.Random(seed)
    hold(con, (random_database(draw) for _ in range(200)))


def leaks(con: Any, name: str) -> bool:
    """Whether some database shows why a query is refused: taken for what it looks like, it changes where it may not."""
    query = REFUSED[name]
    dated = len([*con.execute(f"DESCRIBE {query}").fetchall()]) > 2
    answers, draw = Answers(con, {name: numbered(query, dated=dated)}), random.Random(29)
    for _ in range(1500):
        database = random_database(draw)
        for owner in {one for whose in owners(database).values() for each in whose for one in each}:
            person, period = owner
            for _, row in changes(answers, database, without(database, owner)):
                if period != "undated" and (not dated or row[1] != person or row[0] != period):
                    return True
        for person in (1, 2):
            gone = without(database, *everything_of(database, person))
            if any(row[1] != person for _, row in changes(answers, database, gone)):
                return True
    return False


@cases("name", REFUSED, quick=1)
def test_what_is_refused_would_change_elsewhere(con: Any, name: str) -> None:
    assert leaks(con, name)


@cases("name", FAULTS, quick=2)
def test_a_broken_rule_of_periods_is_noticed(con: Any, name: str) -> None:
    fault, let_through = FAULTS[name]
    assert answered(judged(con, REFUSED[let_through])) == ""
    with planted(*fault.patches):
        assert answered(judged(con, REFUSED[let_through])), fault.what
    assert leaks(con, let_through)


CORPUS = [
    *("2026-10-05", "2026-12-31", "2027-01-03", "2024-12-30", "0001-01-01", "9999-12-31", "0044-03-15 (BC)"),
    *("20000-02-29", "290000-01-05", "infinity", "-infinity", None, "1969-12-31", "1970-01-01", "0000-01-03"),
]


@cases("period", PERIODS, quick=4)
def test_what_passes_for_a_date_has_the_period_of_the_date(con: Any, period: str) -> None:
    """The number of a period is that of `steps.step`, on dates that no name has, too."""
    con.execute("CREATE OR REPLACE TEMP TABLE corpus (d DATE, t TIMESTAMP)")
    con.executemany(
        "INSERT INTO corpus VALUES (?::VARCHAR::DATE, ?::VARCHAR::TIMESTAMP)", [[one, one] for one in CORPUS]
    )
    first, others = PARTS[period]

    def number(value: str) -> str:
        out = f"date_part('{first}', {value})"
        for part, values in others:
            out = f"{out} * {values} + date_part('{part}', {value}) - 1"
        return out

    parts = (
        "microsecond",
        "second",
        "hour",
        "day",
        "week",
        "month",
        "quarter",
        "year",
        "decade",
        "century",
        "millennium",
    )
    forms = [f"date_trunc('{part}', {column})" for part in parts for column in ("d", "t")]
    forms += ["CAST(d AS TIMESTAMP)", "CAST(t AS DATE)", "TRY_CAST(d AS TIMESTAMP)"]
    passed = 0
    for form in forms:
        [(text,)] = con.execute("SELECT json_serialize_plan(?)::VARCHAR", [f"SELECT {form} FROM corpus"]).fetchall()
        found = date_column(bound.listed(bound.read(text) or {}, "expressions")[0])
        if found is None or period not in found[1]:
            continue
        passed += 1
        column = "d" if "d)" in form or "(d" in form else "t"
        wrong = con.execute(
            f"SELECT {form}, {column} FROM corpus WHERE ({number(form)}) IS DISTINCT FROM ({number(column)})"
        ).fetchall()
        assert wrong == [], form
    assert passed >= 9
