"""Neighbouring tables of the worst content, and what calls on both came to, beside what their noise is wide enough for."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from calls import Call
from distances import Claim, claims
from seam import Seen, Watch
from tables import FAR, INF, NAMES, NAN, NANS, SOURCES, TWINS, WORDS, base

import dpsql

# Where the tables are, the collation of their texts, and the settings of the session.
PLACES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "table": ("table", "", ()),
    "collation by default": ("table", "", ("SET default_collation = 'nocase.noaccent'",)),
    "collation of columns": ("view", "NOCASE", ()),
    "parquet": ("parquet by pyarrow", "", ()),
    "parquet by polars": ("parquet by polars", "", ("SET preserve_insertion_order = false", "SET threads = 4")),
    "view with casts": (
        "view with casts",
        "",
        ("SET default_order = 'DESC'", "SET default_null_order = 'NULLS_FIRST'"),
    ),
}
RELATIONS = ("add_remove", "replace")
Row = dict[str, Any]

# Contents of a row, by kind: every number, or one part of it, at an extreme.
EXTREMES: tuple[Row, ...] = (
    {
        "s": 1.0,
        "e": 1e308,
        "n": 1.0,
        "a": 5.0,
        "b": 4.0,
        "k": 9,
        "m": 9999,
        "z": 2.0,
        "y": True,
        "t": "a",
        "c": 2.0,
        "d": 1.0,
        "f": 1.0,
    },
    {"s": -1e308, "e": -1e308, "n": -1e308, "a": -5.0, "b": -4.0, "k": -3, "m": -9999, "z": -2.0, "y": False, "t": "b"},
    {
        "s": NAN,
        "e": NAN,
        "n": NAN,
        "a": NAN,
        "b": NAN,
        "k": None,
        "z": NAN,
        "y": True,
        "t": "a",
        "c": NANS[1],
        "d": NANS[3],
        "f": NANS[2],
    },
    {
        "s": None,
        "e": None,
        "n": None,
        "a": None,
        "b": None,
        "k": None,
        "m": None,
        "z": None,
        "y": None,
        "t": None,
        "c": None,
        "d": None,
        "f": None,
    },
    {"s": INF, "e": INF, "n": INF, "a": INF, "b": INF, "z": INF, "y": True, "t": "A"},
    {"s": -INF, "e": -INF, "n": -INF, "a": -INF, "b": -INF, "z": -INF, "y": False, "t": "B"},
    {"s": 5e-324, "e": -5e-324, "n": -0.0, "a": -0.0, "b": 5e-324, "z": -0.0, "y": True, "t": "b ", "f": -0.0},
    {"n": 2.0, "s": 2.0, "z": NAN, "y": True, "t": "a\u0301"},
    {},
)
VECTORS = ([1e308] * 5, [-INF, NAN, None], [], None, [INF] * 3, [5e-324, -0.0, 4.0], [-4.0] * 3)


def _twin(taken: set[Any], generator: random.Random) -> str:
    """Return an id that nobody has, though some collation takes it for one that somebody has."""
    texts = sorted(text for text in taken if text)
    forms = [form for text in texts for form in (text.swapcase(), f"{text} ", text.upper()) if form not in taken]
    return generator.choice([*forms, *(twin for twin in TWINS if twin not in taken), "nobody"])


def pair(table: str, call: Call, relation: str, number: int) -> tuple[list[Row], list[Row]]:
    """Return two neighbouring tables, as the call's privacy unit has it."""
    generator = random.Random(f"{table} {number} {relation}")
    whole = base(table).to_pylist()
    forms = (NANS, (0.0, -0.0))[number % 2]  # one number
    if "f" in call.ids:  # a row without an id, or a number in several forms
        forms = forms if call.owner == "f" else (None,)
        whole = [row for row in whole if repr(row["f"]) not in map(repr, forms)]
    rows = generator.sample(whole, {"wide": 60, "vectors": 40, "long": 90}[table])
    extras = [_extra(table, call, rows, generator, number + step) for step in range(2)]
    if "f" in call.ids:
        extras = [[{**row, "f": form} for row, form in zip(extra, forms * 5, strict=False)] for extra in extras]
    if relation == "replace":
        return [*rows, *extras[0]], [*rows, *extras[1]]
    both = [rows, [*rows, *extras[0]]]
    return (both[0], both[1]) if number % 2 else (both[1], both[0])


def _extra(table: str, call: Call, rows: list[Row], generator: random.Random, number: int) -> list[Row]:
    """Return the rows of one more privacy unit: one row, one row id's, or one person's."""
    owned = bool(call.owner)
    unit = _twin({row["unit"] for row in rows}, generator) if owned else generator.choice(rows)["unit"]
    if table == "long":
        docs = [_twin({row["doc"] for row in rows}, generator) for _ in range(3 if owned else 1)]
        docs += [generator.choice(rows)["doc"]] if owned else []
        return [_cell(doc, unit, word, generator) for doc in docs for word in (*WORDS, *NAMES, None) for _ in range(2)]
    if not owned:
        return [_row(table, unit, rows, generator, number, number)]
    # All rows of a unit are alike, or of two kinds, or of five.
    kinds, first = (1, 2, 5)[number % 3], number // 3 * 2
    return [_row(table, unit, rows, generator, number + place, first + place % kinds) for place in range(5)]


def _cell(doc: str, unit: str | None, word: str | None, generator: random.Random) -> Row:
    value = generator.choice((NAN, INF, -INF, None, 0.0, 1e308, 1.0))
    row = {"doc": doc, "unit": unit, "word": word, "v": value, "y": generator.choice((True, False, None)), "z": 2.0}
    return row | {
        "c": generator.choice((1.0, NAN)),
        "d": generator.choice((1.0, NAN)),
        "far": f"{FAR}{doc}",
        "far_word": f"{FAR}{word}",
    }


def _row(table: str, unit: str | None, rows: list[Row], generator: random.Random, number: int, extreme: int) -> Row:
    row = {**generator.choice(rows), **EXTREMES[extreme % len(EXTREMES)], "unit": unit, "id": 100_000 + number}
    if table == "vectors":
        vector = VECTORS[number % len(VECTORS)]
        row |= {"x": vector, "w": [1e308, NAN, -INF] if number % 3 else [2.0] * 3}
        return {name: row[name] for name in rows[0]}
    row |= {"name": f"{row['name'].swapcase()}x{number}", "unit_number": 7_777, "day": None if number % 4 else 99}
    return row | {"far": f"{FAR}x", "far_id": f"{FAR}x{number}"}


def judged(
    place: str, table: str, number: int, calls: Sequence[tuple[int, Call]], watch: Watch, folder: Path
) -> Iterator[tuple[Call, str, Claim]]:
    """Yield every claim about each call on two neighbours, under both relations.

    Parameters
    ----------
    place : str
        One of `PLACES`.
    table : str
    number : int
        Of the pair.
    calls : sequence of tuple
        Calls on the table, each after the number of its entropy.
    watch : Watch
    folder : Path
    """
    source, collation, statements = PLACES[place]
    made: dict[tuple[str, ...], tuple[Any, tuple[str, str]]] = {}
    with dpsql.connect() as connection:
        for statement in statements:
            connection.execute(statement)
        for relation in RELATIONS:
            for entropy, call in calls:
                if relation == "replace" and not call.function.startswith("dp_"):
                    continue
                key = (relation, call.owner, *call.ids)
                if key not in made:
                    tables = pair(table, call, relation, number)
                    names = tuple(f"{table}_{len(made)}_{side}" for side in (0, 1))
                    for name, rows in zip(names, tables, strict=True):
                        arrow = pa.Table.from_pylist(rows, schema=base(table).schema)
                        SOURCES[source](connection, name, arrow, folder, 20, collation)
                    made[key] = tables, (names[0], names[1])
                tables, names = made[key]
                asked = call if relation == "add_remove" else call.under_replace()
                seen: list[Seen] = [watch.ask(connection, asked.sql.format(source=name), entropy) for name in names]
                for claim in claims(call, relation, seen, tables):
                    yield call, relation, claim


def judge(place: str, table: str, number: int, calls: Sequence[tuple[int, Call]], watch: Watch, folder: Path) -> None:
    """Fail if a claim is false; parameters as for `judged`."""
    wrong, count = [], 0
    for call, relation, (what, moved, bound) in judged(place, table, number, calls, watch, folder):
        count += 1
        if moved > bound:
            wrong.append(f"{call.name}, {relation}: {what} moved by {moved}, at most {bound} was stated")
    assert count
    if wrong:
        text = f"{place}, {table}, pair {number}: {len(wrong)} of {count} claims fail\n"
        pytest.fail(text + "\n".join(wrong), pytrace=False)
