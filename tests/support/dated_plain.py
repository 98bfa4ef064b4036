"""The tables of `support.plain_tables` with periods: the orders have a date, and removed is a person in a month."""

from __future__ import annotations

import random
import re
from typing import Any

from support import plain_tables
from support.plain_tables import PROTECT, Database, random_rows

Owner = tuple[int, str | None]  # a person, and a month, 'undated', or None where a date is in no month
UNDATED = "undated"
# Dates of two months that calls name, of one that they may, and of none.
DAYS = ("'2024-01-31'", "'2024-01-02'", "'2024-02-29'", "'2024-02-01'", "'2025-12-31'", "NULL", "'infinity'")
DURING = ("'2024-01'", "'2024-02'", "'2024-01/2024-02'", "['2024-01', '2025-12']")
_WHO, _DAY = 1, 5
_PATHS = {"lines": ("orders", 0), "notes": ("orders", 0), "parts": ("lines", 1)}


def create(con: Any) -> None:
    """Make the tables and protect them, by the month of an order."""
    plain_tables.create(con, PROTECT.rstrip().removesuffix(")") + ", period := 'month', period_of := {orders: 'day'})")


def dated_rows(draw: random.Random) -> Database:
    """Return some rows of each table; most orders are in a month that calls name."""
    found = random_rows(draw)
    orders = [(*row[:_DAY], draw.choice(DAYS), *row[_DAY + 1 :]) for row in found["orders"]]
    return {**found, "orders": orders}


def owners(database: Database) -> dict[str, list[frozenset[Owner]]]:
    """Return to whom each row belongs, and in which month."""
    found: dict[str, list[frozenset[Owner]]] = {
        "people": [frozenset([(row[0], UNDATED)]) for row in database["people"]],
        "orders": [
            frozenset() if row[_WHO] is None else frozenset([(row[_WHO], _month(row[_DAY]))])
            for row in database["orders"]
        ],
    }
    for table, (parent, key) in _PATHS.items():
        pairs = list(zip(database[parent], found[parent], strict=True))
        found[table] = [
            frozenset(one for above, whose in pairs if row[0] is not None and above[key] == row[0] for one in whose)
            for row in database[table]
        ]
    return found


def _month(day: str) -> str | None:
    written = re.fullmatch(r"'(\d{4}-\d\d)-\d\d'", day)
    return None if written is None else written[1]


def neighbours(database: Database) -> list[tuple[Owner, Database]]:
    """Return the database without each owner; what others reach, too, stays."""
    whose = owners(database)
    leaving = sorted({one for rows in whose.values() for row in rows for one in row}, key=repr)
    return [
        (
            owner,
            {
                table: [row for place, row in enumerate(rows) if whose[table][place] != frozenset([owner])]
                for table, rows in database.items()
            },
        )
        for owner in leaving
    ]
