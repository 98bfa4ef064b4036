"""Several tables of the same people, with paths of one and two steps: their neighbours, and random rows of them.

Removing a person removes the rows with the person's id, and the rows that a path reaches from that person alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

Row = tuple[int | None, ...]
Database = dict[str, list[Row]]
COLUMNS = {
    "people": ("id", "x"),
    "orders": ("ok", "who", "x"),
    "lines": ("o", "lk", "x"),
    "notes": ("o", "x"),
    "parts": ("l", "x"),
    "public": ("p", "x"),
}
# As `dp_protect` takes them.
TABLES = {
    "people": "id",
    "orders": "who",
    "lines": "o -> orders.ok",
    "notes": "o -> orders.ok",
    "parts": "l -> lines.lk",
}


def create(con: Any) -> None:
    """Make the empty tables."""
    for table, columns in COLUMNS.items():
        con.execute(f"CREATE TABLE {table} ({', '.join(f'{name} BIGINT' for name in columns)})")


def owners(database: Database) -> dict[str, list[frozenset[int]]]:
    """Return to whom each row belongs."""
    found = {
        "people": [frozenset(_known(row[0])) for row in database["people"]],
        "orders": [frozenset(_known(row[1])) for row in database["orders"]],
    }

    def reached(children: Sequence[Row], parents: str, key: int) -> list[frozenset[int]]:
        pairs = list(zip(database[parents], found[parents], strict=True))
        return [
            frozenset(one for parent, whose in pairs if row[0] is not None and parent[key] == row[0] for one in whose)
            for row in children
        ]

    found["lines"] = reached(database["lines"], "orders", 0)
    found["notes"] = reached(database["notes"], "orders", 0)
    found["parts"] = reached(database["parts"], "lines", 1)
    return found


def _known(value: int | None) -> list[int]:
    return [] if value is None else [value]


def without(database: Database, person: int) -> Database:
    """Return the neighbour without a person: what others reach, too, stays."""
    found = owners(database)
    return {
        table: [
            row for place, row in enumerate(rows) if table == "public" or found[table][place] != frozenset((person,))
        ]
        for table, rows in database.items()
    }


def fill(con: Any, database: Database) -> None:
    """Put these rows in place of those that the tables have."""
    for table, rows in database.items():
        con.execute(f"DELETE FROM {table}")
        if rows:
            values = ", ".join(f"({', '.join('NULL' if one is None else str(one) for one in row)})" for row in rows)
            con.execute(f"INSERT INTO {table} VALUES {values}")


def random_database(draw: random.Random) -> Database:
    """Return some rows of each table; keys repeat, children are shared, and ids and keys may be NULL."""
    some = (1, 2, None)

    def rows(*values: Sequence[int | None], most: int = 4) -> list[Row]:
        return [tuple(draw.choice(each) for each in values) for _ in range(draw.randint(0, most))]

    return {
        "people": rows((1, 2, 3), (0, 1)),
        "orders": rows(some, (1, 2, 3, None), (0, 1)),
        "lines": rows(some, some, (0, 1)),
        "notes": rows(some, (0, 1), most=2),
        "parts": rows(some, (0, 1)),
        "public": rows((0, 1), (0, 1), most=2),
    }
