"""Several tables of the same people with periods: their neighbours, and all small databases of them.

What a row belongs to is a person in a period. Removing one removes the dated rows with the person's id and a date in
the period, and the rows that a path reaches from these alone; the rows of undated tables stay.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Row = tuple[Any, ...]
Database = Mapping[str, Sequence[Row]]
Owner = tuple[Any, Any]  # a person, and a period

COLUMNS = {
    "people": "id BIGINT, k BIGINT, x BIGINT",
    "notes": "k BIGINT, x BIGINT",
    "visits": "vid BIGINT, who BIGINT, day DATE, x BIGINT",
    "stays": "who BIGINT, since TIMESTAMP, x BIGINT",
    "labs": "v BIGINT, lk BIGINT, x BIGINT",
    "parts": "l BIGINT, x BIGINT",
    "public": "p BIGINT, x BIGINT",
}
# As `dp_protect` takes them.
TABLES = {
    "people": "id",
    "notes": "k -> people.k",
    "visits": "who",
    "stays": "who",
    "labs": "v -> visits.vid",
    "parts": "l -> labs.lk",
}
PERIOD_OF = {"visits": "day", "stays": "since"}
# Two dates of January, one of February, and two that are in no period.
DATES = {"2026-01-15": 1, "2026-01-31": 1, "2026-02-01": 2, None: None, "infinity": None}
PERSON_OF, DATE_OF = {"people": 0, "visits": 1, "stays": 0}, {"visits": 2, "stays": 1}
PATHS = {"notes": ("people", 1), "labs": ("visits", 0), "parts": ("labs", 1)}
# The number of the period of a date in a result.
NUMBER = "system.main.date_part('month', CAST({} AS TIMESTAMP))"


def create(con: Any) -> None:
    """Make the empty tables."""
    for table, columns in COLUMNS.items():
        con.execute(f"CREATE TABLE {table} ({columns})")


def protect(con: Any, cap: int) -> None:
    """Give all tables but the public one a budget by the month."""
    tables = ", ".join(f"{table}: '{path}'" for table, path in TABLES.items())
    dates = ", ".join(f"{table}: '{column}'" for table, column in PERIOD_OF.items())
    con.execute(
        f"SELECT dp_protect('clinic', epsilon := 1e9, delta := 0.5, max_rows_per_unit := {cap}, period := 'month', "
        f"period_of := {{{dates}}}, tables := {{{tables}}}, public := ['public'])"
    )


def owners(database: Database) -> dict[str, list[frozenset[Owner]]]:
    """Return to whom each row belongs, and in which period; of undated rows the period is 'undated'."""
    found: dict[str, list[frozenset[Owner]]] = {}
    for table, place in PERSON_OF.items():
        dates = DATE_OF.get(table)
        found[table] = [
            frozenset()
            if row[place] is None
            else frozenset([(row[place], "undated" if dates is None else DATES[row[dates]])])
            for row in database[table]
        ]
    for table, (parent, key) in PATHS.items():
        pairs = list(zip(database[parent], found[parent], strict=True))
        found[table] = [
            frozenset(one for above, whose in pairs if row[0] is not None and above[key] == row[0] for one in whose)
            for row in database[table]
        ]
    return found


def without(database: Database, *gone: Owner) -> Database:
    """Return the neighbour without some owners: what others reach, too, stays."""
    found, leaving = owners(database), frozenset(gone)
    return {
        table: [
            row
            for place, row in enumerate(rows)
            if table == "public" or not found[table][place] or not found[table][place] <= leaving
        ]
        for table, rows in database.items()
    }


def everything_of(database: Database, person: int) -> set[Owner]:
    """Return the owners that a person is."""
    return {one for whose in owners(database).values() for each in whose for one in each if one[0] == person}


def fill(con: Any, database: Database) -> None:
    """Put these rows in place of those that the tables have."""
    statements = []
    for table, rows in database.items():
        statements.append(f"DELETE FROM {table}")
        if rows:
            values = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)
            statements.append(f"INSERT INTO {table} VALUES {values}")
    con.execute("; ".join(statements))


def _literal(value: object) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def frozen(database: Database) -> tuple[tuple[Row, ...], ...]:
    """Return a database in a form that has a hash, whatever the order of its rows."""
    return tuple(tuple(sorted(database.get(table, ()), key=repr)) for table in COLUMNS)


def _database(**tables: Sequence[Row]) -> Database:
    return {table: list(tables.get(table, ())) for table in COLUMNS}


PERIODS = ("2026-01-15", "2026-02-01", None)
# Of {A, B} x {1, 2, NULL} x {0, 1}; the key repeats over people and periods.
_VISITS = [(x, who, day, x) for who, day, x in itertools.product((1, 2), PERIODS, (0, 1))]
_BESIDE = _database(
    people=[(1, 1, 0), (1, 2, 1), (2, 1, 1)],
    notes=[(1, 0), (2, 1)],
    stays=[(1, "2026-01-31", 1), (1, "2026-02-01", 0), (2, "2026-01-15", 1), (2, None, 1)],
    labs=[(0, 1, 1), (1, 1, 0), (1, None, 1)],
    parts=[(1, 1)],
    public=[(0, 1), (1, 1)],
)
_KINDS: list[tuple[str, Row]] = [
    *(("visits", row) for row in _VISITS),
    *(("stays", (who, since, 1)) for who, since in itertools.product((1, 2), ("2026-01-31", "2026-02-01", None))),
    *(("people", (who, 1, x)) for who, x in itertools.product((1, 2), (0, 1))),
    ("notes", (1, 1)),
    *(("labs", (v, 1, 1)) for v in (0, 1)),
    ("parts", (1, 1)),
]


def tables_of_visits(most: int = 4) -> Iterator[Database]:
    """Yield every table of at most so many visits, beside fixed rows of the others, up to the order of rows."""
    for count in range(most + 1):
        for rows in itertools.combinations_with_replacement(_VISITS, count):
            yield {**_BESIDE, "visits": list(rows)}


def small_databases(most: int = 3) -> Iterator[Database]:
    """Yield every database of at most so many rows in all tables, up to their order."""
    for count in range(most + 1):
        for rows in itertools.combinations_with_replacement(_KINDS, count):
            found: dict[str, list[Row]] = {table: [] for table in COLUMNS}
            for table, row in rows:
                found[table].append(row)
            yield {**found, "public": [(1, 1)]}


def random_database(draw: random.Random) -> Database:
    """Return some rows of each table; keys repeat, children are shared, and ids, keys and dates may be NULL."""
    some, people, dates = (1, 2, None), (1, 2, None), tuple(DATES)

    def rows(*values: Sequence[object], most: int = 4) -> list[Row]:
        return [tuple(draw.choice(each) for each in values) for _ in range(draw.randint(0, most))]

    return _database(
        people=rows(people, some, (0, 1), most=3),
        notes=rows(some, (0, 1), most=2),
        visits=rows(some, people, dates, (0, 1)),
        stays=rows(people, dates, (0, 1)),
        labs=rows(some, some, (0, 1), most=3),
        parts=rows(some, (0, 1), most=2),
        public=rows((0, 1), (0, 1), most=2),
    )


class Answers:
    """The rows of queries, each computed once per database: the number of the period, the person, and all as text."""

    def __init__(self, con: Any, queries: Mapping[str, str]) -> None:
        self._con, self._names = con, list(queries)
        self._statement = " UNION ALL ".join(
            f"SELECT {number}, dpsql_t, dpsql_u, CAST(q AS VARCHAR) FROM ({query}) AS q"
            for number, query in enumerate(queries.values())
        )
        self._known: dict[object, dict[str, Counter[Row]]] = {}

    def of(self, database: Database) -> dict[str, Counter[Row]]:
        """Return the rows of each query."""
        key = frozen(database)
        if key not in self._known:
            fill(self._con, database)
            found: dict[str, Counter[Row]] = {name: Counter() for name in self._names}
            for number, *row in self._con.execute(self._statement).fetchall():
                found[self._names[number]][tuple(row)] += 1
            self._known[key] = found
        return self._known[key]


def numbered(query: str, *, dated: bool = True) -> str:
    """Return a query with the number of the period first, of the date in the second column; then the person."""
    number = NUMBER.format("dpsql_d") if dated else "NULL"
    return f"SELECT {number} AS dpsql_t, q.* FROM ({query}) AS q(dpsql_u{', dpsql_d' if dated else ''})"
