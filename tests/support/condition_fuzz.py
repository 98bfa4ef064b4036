"""Random conditions over columns of random types: each is answered as its rows demand, or refused by a code."""

from __future__ import annotations

import random
from typing import Any

import duckdb

from dpsql.errors import original
from support.extremes import VALUES


def kept(con: Any, condition: str, source: str = "given") -> int:
    """Return the number of rows that a call sees."""
    escaped = condition.replace("'", "''")
    rows = con.execute(
        f"SELECT * FROM exact_xty('{source}', target := 'one', target_lower := 0, target_upper := 1, features := ['id'], "
        f"lower := -2, upper := -1, condition := '{escaped}')"
    ).fetchall()
    return int(rows[0][1]) >> 40


_TERMS = (*("c{0}",) * 9, "3", "-1.5", "'a'", "'2020-01-01'", "NULL", "true", "DATE '2020-01-01'", "INTERVAL '1 day'")
_CALLS = (
    *("year({})", "date_part('hour', {})", "date_part({}, {})", "date_trunc('day', {})", "date_diff('day', {}, {})"),
    *(
        "lower({})",
        "length({})",
        "abs({})",
        "round({}, 1)",
        "sqrt({})",
        "coalesce({}, {})",
        "greatest({}, {})",
        "-({})",
    ),
    *("({}) + ({})", "({}) - ({})", "({}) * ({})", "({}) / ({})", "({}) // ({})", "({}) % ({})", "({}) || ({})"),
    *(
        "CAST({} AS DATE)",
        "CAST({} AS TIME)",
        "CAST({} AS INTEGER)",
        "TRY_CAST({} AS DOUBLE)",
        "({})::VARCHAR",
        "({})::UUID",
    ),
    *("CASE WHEN {} IS NULL THEN {} ELSE {} END", "substring({}, 1, 2)", "strptime({}, '%Y')", "strftime({}, '%d')"),
    *(
        "regexp_matches({}, 'a+')",
        "list_contains({}, {})",
        "contains({}, {})",
        "epoch_ms({})",
        "isnan({})",
        "last_day({})",
    ),
)
_USUAL = ("INTEGER", "DOUBLE", "DECIMAL(18, 3)", "VARCHAR", "DATE", "TIMESTAMP", "TIME", "INTERVAL", "BOOLEAN")
_TESTS = (
    "({}) = ({})",
    "({}) < ({})",
    "({}) IN ({}, {})",
    "({}) IS NULL",
    "({}) BETWEEN ({}) AND ({})",
    "({}) LIKE ({})",
)


def fuzzed(chosen: random.Random, depth: int) -> str:
    """Return a random expression over columns c0 to c2; its types may not fit."""
    if depth == 0 or chosen.random() < 0.25:
        return chosen.choice(_TERMS).format(chosen.randrange(3))
    shape = chosen.choice(_CALLS)
    return shape.format(*(fuzzed(chosen, depth - 1) for _ in range(shape.count("{}"))))


def fuzz(con: Any, seed: int, count: int) -> int:
    """Ask for random conditions over columns of random types; return how many were answered.

    Each is answered, with the same verdicts for benign rows whatever stands beside them, or refused by a code of ours.
    """
    chosen, answered = random.Random(seed), 0
    for number in range(count):
        if number % 10 == 0:
            kinds = [chosen.choice(list(VALUES)), *chosen.choices(_USUAL, k=2)]
            columns = ", ".join(f"c{place} {kind}" for place, kind in enumerate(kinds))
            for source in ("tame", "wild"):
                con.execute(f"CREATE OR REPLACE TABLE {source} (id INTEGER, one DOUBLE, {columns})")
                con.execute(
                    f"INSERT INTO {source} VALUES (1, 1, {', '.join(f'CAST({VALUES[kind][0][0]} AS {kind})' for kind in kinds)})"
                )
            for _ in range(12):
                row = ", ".join(f"CAST({chosen.choice(VALUES[kind][1])} AS {kind})" for kind in kinds)
                try:
                    con.execute(f"INSERT INTO wild VALUES (2, NULL, {row})")
                except duckdb.Error:
                    continue
        shape = chosen.choice(_TESTS)
        depth = chosen.randrange(3)
        condition = shape.format(*(fuzzed(chosen, depth) for _ in range(shape.count("{}"))))
        try:
            rows = kept(con, condition, "wild"), kept(con, condition, "tame")
        except duckdb.Error as error:
            ours = original(error)
            assert ours is not None, (kinds, condition, str(error)[:300])
            assert ours.code[-4:-2] in ("P0", "S0"), (kinds, condition, str(error)[:300])
            continue
        assert rows[0] == rows[1], (kinds, condition)
        answered += 1
    return answered
