"""Four tables of people and two public ones for random queries, with few and nasty rows; and their neighbours.

NaN, infinities, dates without end, keys that repeat, rows of nobody, and text that only looks like a number.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from zlib import crc32

import duckdb

from support.several import without

# Columns by table, with types; the keys are at the places that `support.several` reads.
COLUMNS: dict[str, dict[str, str]] = {
    "people": {
        "id": "BIGINT",
        "age": "DOUBLE",
        "sex": "VARCHAR",
        "born": "DATE",
        "score": "DECIMAL(9, 2)",
        "flag": "BOOLEAN",
    },
    "orders": {
        **{
            "ok": "BIGINT",
            "who": "BIGINT",
            "x": "DOUBLE",
            "n": "BIGINT",
            "ward": "VARCHAR",
            "day": "DATE",
            "kind": "KIND",
        },
        "note": "VARCHAR",
    },
    "lines": {
        "o": "BIGINT",
        "lk": "BIGINT",
        "price": "DOUBLE",
        "qty": "BIGINT",
        "code": "VARCHAR",
        "sent": "TIMESTAMP",
    },
    "notes": {"o": "BIGINT", "y": "DOUBLE"},
    "parts": {"l": "BIGINT", "w": "DOUBLE", "m": "INTEGER", "tag": "VARCHAR"},
    "wards": {"ward": "VARCHAR", "beds": "INTEGER", "building": "VARCHAR"},
    "calendar": {"d": "DATE", "month": "DATE", "holiday": "BOOLEAN"},
}
PEOPLE = (1, 2, 3)
CAP = 2
PROTECT = f"""
SELECT dp_protect('shop', epsilon := 1e11, delta := 0.09, max_rows_per_unit := {CAP},
  keys := {{sex: ['F', 'M', 'f'], ward: ['A', 'B', 'x'], code: ['A', 'é', '1'], tag: ['A', 'a']}},
  enum_labels := 'public',
  lower := {{age: 0, x: -4, n: 0, price: 0, qty: -2, w: 0, m: 0, y: 0}},
  upper := {{age: 120, x: 4, n: 9, price: 100, qty: 2, w: 1, m: 5, y: 8}},
  tables := {{people: 'id', orders: 'who', lines: 'o -> orders.ok', notes: 'o -> orders.ok', parts: 'l -> lines.lk'}})
"""
_DOUBLES = ("'nan'", "'-nan'", "'-0'", "0.0", "'inf'", "'-inf'", "NULL", "1.0", "2.5", "1e308", "-3.25", "5e-324")
_INTEGERS = ("NULL", "0", "1", "-1", "7", "9223372036854775807", "-9223372036854775808")
_SMALL = ("NULL", "0", "1", "-1", "5", "2147483647", "-2147483648")
_TEXTS = (
    "'A'",
    "'a'",
    "'B'",
    "'x'",
    "''",
    "' '",
    "NULL",
    "'1'",
    "'é'",
    "'e\u0301'",
    "'F'",
    "'M'",
    "'f'",
    "'2024-02-30'",
)
_DATES = (
    "NULL",
    "'infinity'",
    "'-infinity'",
    "'2024-01-31'",
    "'2024-02-29'",
    "'2025-12-31'",
    "'0044-03-15 (BC)'",
    "'9999-12-31'",
)
_VALUES = {
    "DOUBLE": _DOUBLES,
    "BIGINT": _INTEGERS,
    "INTEGER": _SMALL,
    "VARCHAR": _TEXTS,
    "DATE": _DATES,
    "TIMESTAMP": (
        "NULL",
        "'infinity'",
        "'2024-02-29 23:59:59.999999'",
        "'2025-01-01 00:00:00'",
        "'1969-12-31 12:00:00'",
    ),
    "BOOLEAN": ("NULL", "true", "false"),
    "DECIMAL(9, 2)": ("NULL", "0.05", "1.15", "-9999999.99", "15.00"),
    "KIND": ("NULL", "'a'", "'b'", "'c'"),
}
_KEYS = {"people": 1, "orders": 2, "lines": 2, "notes": 1, "parts": 1}
Database = dict[str, list[tuple[Any, ...]]]


def create(con: Any, protect: str = PROTECT) -> None:
    """Make the tables, the public ones with rows, and a view over two of them; protect them, if anybody does."""
    con.execute("CREATE TYPE KIND AS ENUM ('a', 'b', 'c')")
    for table, columns in COLUMNS.items():
        con.execute(f"CREATE TABLE {table} ({', '.join(f'{name} {kind}' for name, kind in columns.items())})")
    con.execute("INSERT INTO wards VALUES ('A', 3, 'N'), ('B', 0, 'S'), ('x', NULL, 'N'), ('A', 5, NULL)")
    con.execute(
        "INSERT INTO calendar SELECT d, date_trunc('month', d), day(d) = 1 FROM range(DATE '2024-01-30', DATE '2024-03-02', INTERVAL 1 day) r(d)"
    )
    con.execute("CREATE VIEW bought AS SELECT who, orders.x, ward, price, qty FROM orders JOIN lines ON ok = o")
    if not protect:
        return
    con.execute(protect)
    for table in ("wards", "calendar"):
        con.execute(f"SELECT dp_public('{table}')")


def random_rows(draw: random.Random) -> Database:
    """Return some rows of each table of people; keys repeat, children are shared, and ids and keys may be NULL."""

    def rows(table: str, *keys: tuple[int | None, ...], most: int = 6) -> list[tuple[Any, ...]]:
        kinds = [*COLUMNS[table].values()][len(keys) :]
        return [
            (*(draw.choice(one) for one in keys), *(draw.choice(_VALUES[kind]) for kind in kinds))
            for _ in range(draw.randint(0, most))
        ]

    some, who = (1, 2, 3, None), (1, 2, 3, None)
    return {
        "people": rows("people", (1, 2, 3), most=4),
        "orders": rows("orders", some, who),
        "lines": rows("lines", some, some),
        "notes": rows("notes", some, most=2),
        "parts": rows("parts", some),
    }


def tied_rows(draw: random.Random) -> Database:
    """Return rows of which each person has several that are alike in most columns, and equal in others.

    There are more people than may go: what changes for these shows.
    """
    orders = []
    for person in range(1, 13):
        day, kind = (draw.choice(_VALUES[one]) for one in ("DATE", "KIND"))
        for _ in range(draw.randint(2, 4)):
            x = draw.choice(("'-0'", "0.0", "'nan'", "'-nan'"))
            ward, n = draw.choice(("'A'", "'B'", "'x'")), draw.choice(("1", "5", "7"))
            orders.append((draw.choice((1, 2, 3)), person, x, n, ward, day, kind, draw.choice(_TEXTS)))
    draw.shuffle(orders)
    return random_rows(draw) | {"orders": orders}


def fill(con: Any, database: Database) -> None:
    """Put these rows in place of those that the tables of people have."""
    for table, rows in database.items():
        con.execute(f"DELETE FROM {table}")
        if rows:
            values = ", ".join(f"({', '.join('NULL' if one is None else str(one) for one in row)})" for row in rows)
            con.execute(f"INSERT INTO {table} VALUES {values}")


def neighbours(database: Database) -> list[Database]:
    """Return the database, and those without each of the people whose going changes it, their rows in another order."""
    others = [without(database, person) for person in PEOPLE]
    turned = [{table: rows[::-1] for table, rows in one.items()} for one in others if one != database]
    return [database, *turned]


# The tables that views over Parquet files can be: those whose rows name their person, and public ones.
PROTECTED_FILES = ("people", "orders")
IN_FILES = (*PROTECTED_FILES, "wards", "calendar")
PROTECT_FILES = f"""
SELECT dp_protect('shop', epsilon := 1e11, delta := 0.09, max_rows_per_unit := {CAP},
  keys := {{sex: ['F', 'M', 'f'], ward: ['A', 'B', 'x']}},
  lower := {{age: 0, x: -4, n: 0}}, upper := {{age: 120, x: 4, n: 9}}, tables := {{people: 'id', orders: 'who'}})
"""


# The options of `read_csv` with which plain SQL reads a CSV file, but for its columns.
LINES = (
    "auto_detect := false, header := true, delim := '|', quote := '', escape := '', new_line := '\\n', "
    "ignore_errors := true, null_padding := true, strict_mode := false, parallel := false"
)


def create_in_files(con: Any, folder: Path, *, lines: bool = False) -> None:
    """Make the tables of `IN_FILES` as views over files without rows of people, and protect them.

    The files are Parquet files; those of people have `lines` of text instead, if wanted.
    """
    con.execute("SET enable_external_file_cache = false")  # a file that is written anew within a moment
    with duckdb.connect() as plain:
        create(plain, protect="")
        for table in IN_FILES:
            plain.execute(f"COPY {table} TO '{folder / table}.parquet'")
            reader = f"FROM '{folder / table}.parquet'"
            if lines and table in PROTECTED_FILES:
                _write_lines(folder / f"{table}.csv", [])
                kinds = {name: kind.replace("KIND", "VARCHAR") for name, kind in COLUMNS[table].items()}
                cells = ", ".join(f"TRY_CAST({name} AS {kind}) AS {name}" for name, kind in kinds.items())
                columns = ", ".join(f"{name}: 'VARCHAR'" for name in kinds)
                reader = f"SELECT {cells} FROM read_csv('{folder / table}.csv', columns := {{{columns}}}, {LINES})"
            con.execute(f"CREATE VIEW {table} AS {reader}")
    con.execute(PROTECT_FILES)
    for table in ("wards", "calendar"):
        con.execute(f"SELECT dp_public('{table}')")


def fill_files(folder: Path, database: Database) -> None:
    """Write files with these rows in place of those of `create_in_files`."""
    with duckdb.connect() as plain:
        create(plain, protect="")
        fill(plain, database)
        for table in PROTECTED_FILES:
            plain.execute(f"COPY {table} TO '{folder / table}.parquet' (ROW_GROUP_SIZE 2048)")
            if (folder / f"{table}.csv").exists():
                cells = plain.execute(f"SELECT COLUMNS(*)::VARCHAR FROM {table}").fetchall()
                _write_lines(folder / f"{table}.csv", ["|".join(cell or "" for cell in row).encode() for row in cells])


def _write_lines(path: Path, lines: list[bytes]) -> None:
    """Write lines below a head, each with a damaged copy; the damage follows from the line alone."""
    damage = (b"%b|1|2|3|4|5", b'"%b', b"%b\xff", b"%b\r", b"%b\x00", b"\xef\xbb\xbf%b", b'%b"', b"\\%b", b"%.3b")
    copies = [damage[crc32(line) % len(damage)] % line for line in lines]
    path.write_bytes(b"".join(line + b"\n" for line in [b"head", *lines, *copies]))
