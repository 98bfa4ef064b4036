"""The tables of the suite: every awkward value, id and spelling, in three layouts, and in every type and source."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

NAN, INF = math.nan, math.inf
ROWS = 2400
# One letter in several forms: case twins, an accent in one or two code points, blanks at the end.
TWINS = ("a", "A", "á", "Á", "a\u0301", "a ", "ä", "ａ")
WORDS = (
    "word",
    "Word",
    "WORD",
    "wörd",
    "wo\u0308rd",
    "word ",
    "wOrd",
    "worD",
    "ｗord",
    "wÖrd",
    "other",
    "Other",
    "rare",
)
# Ids and words that no minimum or maximum of a file tells apart, which holds eight bytes of a text.
FAR = "https://example.org/one-and-the-same-beginning/"
# Doubles that are one number, or none, in several forms.
NANS = tuple(
    struct.unpack("<d", struct.pack("<Q", bits))[0]
    for bits in (0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 1, 0xFFFF_FFFF_FFFF_FFFF, (0x7FF8 << 48) + (5 << 32))
)
FORMS = (0.0, -0.0, *NANS, None, 1.0, 0.5, -1.0, 3.0)
NAMES = ("word", "Word", "wörd", "wo\u0308rd", "other", "never")
TABLES = ("wide", "vectors", "long")


@cache
def base(name: str) -> pa.Table:
    """Return one of the three tables in its plain types."""
    return {"wide": _wide, "vectors": _vectors, "long": _long}[name](random.Random(name))


def _unit(generator: random.Random) -> str | None:
    if generator.random() < 0.03:
        return None
    number = generator.randrange(90)
    return generator.choice(TWINS) if number == 0 else generator.choice((f"p{number}", f"P{number}"))


def _score(place: int, generator: random.Random) -> float | None:
    """Return a score; awkward ones stand together, so that whole row groups of a file hold nothing else."""
    if place < 300:
        return NAN
    if place < 500:
        return generator.choice((5e-324, -5e-324, 2.5e-308, -0.0, 0.0))
    if place < 700:
        return generator.choice((INF, -INF, NAN))
    if place < 800:
        return None
    return generator.choice((NAN, None, INF, -0.0, 0.5)) if place % 7 == 0 else generator.randrange(1025) / 1024


def _wide(generator: random.Random) -> pa.Table:
    rows = []
    for place in range(ROWS):
        unit, score = _unit(generator), _score(place, generator)
        eighth = generator.choice((None, *(number / 8 for number in range(-40, 41))))
        rows.append(
            {
                "id": place * 7 % ROWS,  # unique, not in the order of the rows
                "name": f"{generator.choice(TWINS)}{place // 8}.{place % 8}",
                "unit": unit,
                "unit_number": None if unit is None else sum(unit.encode()) % 150,
                "day": None if unit is None else 18_000 + len(unit) + place % 60,
                "s": score,
                "n": NAN if place % 3 == 0 or place < 200 else generator.randrange(64, 256) / 256,
                "e": generator.choice((1e308, -1e308, 5e-324, INF, -INF, NAN, None, 0.1, -0.0, 1e-300, 3.0)),
                "a": eighth,
                "b": generator.randrange(-32, 33) / 8,
                "k": generator.choice((None, *range(-3, 10))),
                "m": generator.randrange(-9999, 9999),
                "y": generator.choice((True, False, False, None)),
                "t": generator.choice((*TWINS, "b", "B", "b ", None)),
                "z": generator.choice((NAN, None, *(number / 4 for number in range(-8, 9)))),
                "c": NANS[place % 5] if place % 3 == 0 else 1.0,  # minimum and maximum are equal
                "d": NANS[place % 5] if place % 4 == 0 else 1.0,
                "f": FORMS[place * 5 % len(FORMS)],
                "far": None if place % 40 == 0 else f"{FAR}{place % 170}",
                "far_id": f"{FAR}{place}",
                "far_label": f"{FAR}{place * 11 % 4}",
            }
        )
    kinds = {"id": "int64", "name": "string", "unit": "string", "unit_number": "int64", "day": "date32", "k": "int64"}
    kinds |= {"m": "int64", "y": "bool", "t": "string"} | dict.fromkeys(("far", "far_id", "far_label"), "string")
    return _table(rows, kinds)


def _vectors(generator: random.Random) -> pa.Table:
    values = (None, NAN, INF, -INF, -0.0, 5e-324, 1e308, *(number / 8 for number in range(-16, 17)))
    rows = []
    for place in range(700):
        length = generator.choice((3, 3, 3, 3, 3, 0, 1, 2, 5))
        vector = None if generator.random() < 0.02 else [generator.choice(values) for _ in range(length)]
        solid = [generator.randrange(-16, 17) / 8 for _ in range(3)]
        y, z = generator.choice((True, False, None)), generator.randrange(-8, 9) / 4
        rows.append({"id": place * 3 % 700, "unit": _unit(generator), "x": vector, "w": solid, "y": y, "z": z})
    return _table(rows, {"id": "int64", "unit": "string", "x": "list", "w": "vector", "y": "bool"})


def _long(generator: random.Random) -> pa.Table:
    rows = []
    for place in range(1600):
        doc, unit = generator.randrange(160), generator.randrange(40)
        values = (None, NAN, INF, -0.0, 0.0, 1.0, 0.25, -2.0, 5e-324)
        rows.append(
            {
                "doc": generator.choice((f"d{doc}", f"D{doc}", f"d{doc}", generator.choice(TWINS))),
                "unit": None
                if place % 50 == 0
                else generator.choice((f"p{unit}", f"P{unit}", generator.choice(TWINS))),
                "word": generator.choice((*WORDS, "word", "other", None)),
                "v": generator.choice(values),
                "y": generator.choice((doc % 3 == 0, doc % 3 == 0, True, None)),
                "z": generator.randrange(-8, 9) / 4,
                "c": NANS[place % 5] if place % 3 == 0 else 1.0,
                "d": NANS[place % 5] if place % 4 == 0 else 1.0,
                "far": f"{FAR}{doc}",
                "far_word": f"{FAR}{place % 7}",
            }
        )
    return _table(rows, dict.fromkeys(("doc", "unit", "word", "far", "far_word"), "string") | {"y": "bool"})


_KINDS = {"list": pa.list_(pa.float64()), "vector": pa.list_(pa.float64(), 3)}


def _table(rows: list[dict[str, Any]], kinds: dict[str, str]) -> pa.Table:
    def kind(name: str) -> pa.DataType:
        text = kinds.get(name, "double")
        return _KINDS.get(text) or pa.type_for_alias(text)

    columns = {name: pa.array([row[name] for row in rows], type=kind(name), from_pandas=False) for name in rows[0]}
    return pa.table(columns)


# Types that hold the same values: SQL types by column, for all tables.
TYPES: dict[str, dict[str, str]] = {
    "plain": {},
    "float": {"b": "FLOAT", "z": "FLOAT", "c": "FLOAT", "d": "FLOAT", "f": "FLOAT", "w": "FLOAT[3]"},
    "decimal": {"a": "DECIMAL(9, 3)", "b": "DECIMAL(38, 5)", "k": "DECIMAL(4, 0)", "m": "DECIMAL(18, 0)"},
    "narrow": {"id": "SMALLINT", "unit_number": "UTINYINT", "k": "TINYINT", "m": "INTEGER"},
    "huge": {"id": "HUGEINT", "unit_number": "UBIGINT", "k": "HUGEINT", "m": "HUGEINT"},
    "enum": {"t": "ENUM", "unit": "ENUM", "word": "ENUM"},
    "timestamp": {"day": "TIMESTAMP"},
    "list": {"w": "DOUBLE[]"},
}
# Of these an id is another identity than of the plain type.
OTHER_IDENTITIES = ("HUGEINT", "UBIGINT", "ENUM", "TIMESTAMP")
COLLATIONS = ("NOCASE", "NOACCENT", "NFC", "NOCASE.NOACCENT.NFC", "de", "de.NOCASE")
ORDERS = ("as made", "reversed", "shuffled", "shuffled again", "by score")


@cache
def typed(name: str, types: str, order: str) -> pa.Table:
    """Return a table in other types and another order of its rows."""
    table = base(name)
    places = list(range(len(table)))
    if order == "reversed":
        places.reverse()
    elif order.startswith("shuffled"):
        random.Random(order).shuffle(places)
    elif order == "by score":
        column = table.column({"wide": "s", "vectors": "z", "long": "v"}[name]).to_pylist()
        places.sort(key=lambda place: (column[place] is None, str(column[place])))
    table = table.take(places)
    kinds = {column: kind for column, kind in TYPES[types].items() if column in table.column_names}
    return _cast(table, kinds) if kinds else table


def _cast(table: pa.Table, kinds: dict[str, str]) -> pa.Table:
    with duckdb.connect() as connection:
        connection.register("given", table)
        casts = []
        for column, kind in kinds.items():
            if kind == "ENUM":
                words = f"SELECT DISTINCT {column} FROM given WHERE {column} IS NOT NULL ORDER BY ALL"
                connection.execute(f"CREATE TYPE {column}_e AS ENUM ({words})")
                kind = f"{column}_e"
            casts.append(f"CAST({column} AS {kind}) AS {column}")
        return connection.sql(f"SELECT * REPLACE ({', '.join(casts)}) FROM given").to_arrow_table()


def _native(connection: Any, name: str, table: pa.Table, folder: Path, group: int, collation: str, what: str) -> None:
    """Create a table; its texts with a collation of their own."""
    connection.register("__given", table)
    described = connection.execute("DESCRIBE SELECT * FROM __given").fetchall()
    columns = ", ".join(
        f'"{column}" {kind}{f" COLLATE {collation}" if collation and kind == "VARCHAR" else ""}'
        for column, kind, *_ in described
    )
    connection.execute(f"CREATE {what} {name} ({columns})")
    connection.execute(f"INSERT INTO {name} SELECT * FROM __given")
    connection.unregister("__given")


def _table_source(connection: Any, name: str, table: pa.Table, folder: Path, group: int, collation: str) -> None:
    _native(connection, name, table, folder, group, collation, "TABLE")


def _temporary(connection: Any, name: str, table: pa.Table, folder: Path, group: int, collation: str) -> None:
    _native(connection, name, table, folder, group, collation, "TEMP TABLE")


def _view(connection: Any, name: str, table: pa.Table, folder: Path, group: int, collation: str) -> None:
    _native(connection, f"{name}_stored", table, folder, group, collation, "TABLE")
    connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {name}_stored")


def _file_table(connection: Any, name: str, table: pa.Table, folder: Path, group: int, collation: str) -> None:
    connection.execute(f"ATTACH IF NOT EXISTS '{folder / 'stored.duckdb'}' AS stored (ROW_GROUP_SIZE 2048)")
    _native(connection, f"stored.{name}_stored", table, folder, group, collation, "TABLE")
    connection.execute("CHECKPOINT stored")
    connection.execute(f"CREATE VIEW {name} AS SELECT * FROM stored.{name}_stored")


def _cast_view(connection: Any, name: str, table: pa.Table, folder: Path, group: int, collation: str) -> None:
    texts, casts = _as_texts(table)
    _native(connection, f"{name}_stored", texts, folder, group, "", "TABLE")
    connection.execute(f"CREATE VIEW {name} AS SELECT {_collated(casts, table, collation)} FROM {name}_stored")


def _csv(connection: Any, name: str, table: pa.Table, folder: Path, group: int, collation: str) -> None:
    texts, casts = _as_texts(table)
    path = folder / f"{name}.csv"
    with duckdb.connect() as plain:
        plain.register("given", texts)
        plain.execute(f"COPY given TO '{path}' (HEADER, NULLSTR '<null>', FORCE_QUOTE *)")
    read = (
        f"read_csv('{path}', all_varchar = true, header = true, nullstr = '<null>', quote = '\"', strict_mode = false)"
    )
    connection.execute(f"CREATE VIEW {name} AS SELECT {_collated(casts, table, collation)} FROM {read}")


def _as_texts(table: pa.Table) -> tuple[pa.Table, dict[str, str]]:
    """Return every column as text, and the types to cast them to."""
    with duckdb.connect() as plain:
        plain.register("given", table)
        described = plain.execute("DESCRIBE SELECT * FROM given").fetchall()
        texts = plain.sql("SELECT CAST(COLUMNS(*) AS VARCHAR) FROM given").to_arrow_table()
    return texts, {column: kind for column, kind, *_ in described}


def _collated(casts: dict[str, str], table: pa.Table, collation: str) -> str:
    def column(name: str, kind: str) -> str:
        if kind == "VARCHAR":
            return f'"{name}" COLLATE {collation} AS "{name}"' if collation else f'"{name}"'
        return f'CAST("{name}" AS {kind}) AS "{name}"'

    return ", ".join(column(name, kind) for name, kind in casts.items())


def _parquet(write: Callable[[pa.Table, Path, int], None]) -> Callable[..., None]:
    def make(connection: Any, name: str, table: pa.Table, folder: Path, group: int, collation: str) -> None:
        path = folder / f"{name}.parquet"
        write(table, path, group)
        texts = [field.name for field in table.schema if pa.types.is_string(field.type)] if collation else []
        replaced = ", ".join(f'"{text}" COLLATE {collation} AS "{text}"' for text in texts)
        columns = f"* REPLACE ({replaced})" if replaced else "*"
        connection.execute(f"CREATE VIEW {name} AS SELECT {columns} FROM '{path}'")

    return make


def _by_duckdb(table: pa.Table, path: Path, group: int) -> None:
    with duckdb.connect() as plain:
        plain.register("given", table)
        plain.execute(f"COPY given TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE {max(group, 2048)})")


def _frame(convert: Callable[[pa.Table, int], Any]) -> Callable[..., None]:
    def make(connection: Any, name: str, table: pa.Table, folder: Path, group: int, collation: str) -> None:
        texts = [field.name for field in table.schema if pa.types.is_string(field.type)] if collation else []
        registered = f"{name}_frame" if texts else name
        connection.register(registered, convert(table, group))
        if texts:
            replaced = ", ".join(f'"{text}" COLLATE {collation} AS "{text}"' for text in texts)
            connection.execute(f"CREATE TEMP VIEW {name} AS SELECT * REPLACE ({replaced}) FROM {registered}")

    return make


SOURCES: dict[str, Callable[..., None]] = {
    "table": _table_source,
    "temp table": _temporary,
    "table in a file": _file_table,
    "view": _view,
    "view with casts": _cast_view,
    "parquet by pyarrow": _parquet(lambda table, path, group: pq.write_table(table, path, row_group_size=group)),
    "parquet by polars": _parquet(
        lambda table, path, group: pl.DataFrame(table).write_parquet(path, row_group_size=group)
    ),
    "parquet by duckdb": _parquet(_by_duckdb),
    "csv": _csv,
    "arrow": _frame(lambda table, group: pa.Table.from_batches(table.to_batches(max_chunksize=group))),
    "polars": _frame(lambda table, group: pl.DataFrame(table)),
    "lazy": _frame(lambda table, group: pl.DataFrame(table).lazy()),
}
GROUPS = (100, 300, 5000)
