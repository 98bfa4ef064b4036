"""Feature counts: SQL over long rows and the collector of dense rows count what a loop in Python counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql.contract.plan import COLLECTED, FEATURE_COUNTS, Pass
from dpsql.engines.duckdb.keys import exact_text
from dpsql.functions.feature_counts import Counts
from dpsql.functions.naive_bayes import NaiveBayesCall, NaiveBayesPlan
from support.cases import cases

NAMES = ["ant", "bee", "cat", "dog", "elk"]
LONG = "features := 'token', row_id := 'doc', names := ['ant', 'bee', 'cat', 'dog', 'elk']"
DRAW = NaiveBayesCall.draw


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    made = dpsql.connect()
    yield made
    made.close()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Counts]:
    """What the calls of a test counted, exactly."""
    seen: list[Counts] = []

    def draw(call: NaiveBayesCall, counts: Counts) -> Any:
        seen.append(counts)
        return DRAW(call, counts)

    monkeypatch.setattr(NaiveBayesCall, "draw", draw)
    return seen


def run(con: duckdb.DuckDBPyConnection, more: str = LONG, *, most: int = 100, source: str = "t") -> None:
    dense = "" if "row_id := 'doc'" in more else ", present_above := 0"
    con.execute(
        f"SELECT * FROM dp_naive_bayes('{source}', target := 'label', {more}, max_features_per_row := {most}{dense}, "
        "epsilon := 1.0)"
    ).fetchall()


def plain(counts: Counts) -> tuple[list[int], list[int], int, int]:
    return counts.positive.tolist(), counts.negative.tolist(), counts.positive_rows, counts.negative_rows


def documents(seed: int, rows: int = 400) -> list[tuple[int, int | None, set[str]]]:
    rng = np.random.default_rng(seed)
    labels: list[int | None] = [0, 1, 1, None, 7]
    return [
        (doc, labels[rng.integers(len(labels))], {name for name in (*NAMES, "rare") if rng.random() < 0.5})
        for doc in range(rows)
    ]


def long_rows(given: list[tuple[int, int | None, set[str]]], seed: int) -> list[tuple[int, int | None, str | None]]:
    """Return one row per token, some of them twice, and a row without a token for every document."""
    rng = np.random.default_rng(seed)
    cells: list[tuple[int, int | None, str | None]] = [(doc, label, None) for doc, label, _ in given]
    for doc, label, tokens in given:
        cells += [(doc, label, token) for token in tokens for _ in range(rng.integers(1, 4))]
    return [cells[place] for place in rng.permutation(len(cells))]


def expected(given: list[tuple[int, int | None, set[str]]]) -> tuple[list[int], list[int], int, int]:
    rows, features = Counter(), Counter()
    for _, label, tokens in given:
        rows[label] += 1
        features.update((label, token) for token in tokens)
    return [features[1, name] for name in NAMES], [features[0, name] for name in NAMES], rows[1], rows[0]


def load_long(con: duckdb.DuckDBPyConnection, rows: list[Any]) -> None:
    con.execute("CREATE TABLE t (doc INTEGER, label INTEGER, token VARCHAR)")
    con.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)


def test_long_rows(con: duckdb.DuckDBPyConnection, counted: list[Counts]) -> None:
    given = documents(1)
    load_long(con, long_rows(given, 2))
    run(con)
    assert plain(counted[0]) == expected(given)


@pytest.mark.parametrize("layout", ["wide", "array", "list", "booleans"])
def test_dense_rows(con: duckdb.DuckDBPyConnection, counted: list[Counts], layout: str) -> None:
    given = documents(3)
    columns = ", ".join(f"{name} DOUBLE" for name in NAMES)
    con.execute(f"CREATE TABLE w (doc INTEGER, label INTEGER, {columns})")
    # Whatever is above 0 is present.
    present, absent = [1.0, 2.5, math.inf], [0.0, None, math.nan, -0.0, -2.5, -math.inf]
    con.executemany(
        "INSERT INTO w VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (doc, label, *(present[doc % 3] if name in tokens else absent[doc % 6] for name in NAMES))
            for doc, label, tokens in given
        ],
    )
    vector = f"[{', '.join(NAMES)}]"
    select, more = {
        "wide": ("doc, label, " + ", ".join(NAMES), f"features := {NAMES!r}"),
        "array": (f"doc, label, {vector}::DOUBLE[5] AS x", "features := 'x'"),
        "list": (f"doc, label, {vector} AS x", "features := 'x', n_features := 5"),
        "booleans": (
            "label, " + ", ".join(f"coalesce({name} > 0 AND {name} <> 'nan', false) AS {name}" for name in NAMES),
            "row_id := NULL",
        ),
    }[layout]
    con.execute(f"CREATE TABLE t AS SELECT {select} FROM w")
    run(con, more)
    assert plain(counted[0]) == expected(given)


def test_the_aggregate_form_counts_the_same(con: duckdb.DuckDBPyConnection, counted: list[Counts]) -> None:
    given = documents(5)
    con.execute("CREATE TABLE t (label INTEGER, x INTEGER[5])")
    con.executemany(
        "INSERT INTO t VALUES (?, ?)", [(label, [int(name in tokens) for name in NAMES]) for _, label, tokens in given]
    )
    con.execute(
        "SELECT dp_naive_bayes(x, label, epsilon := 1, n_features := 5, present_above := 0, dataset := 't') FROM t"
    ).fetchall()
    assert plain(counted[0]) == expected(given)


@cases(
    ("kind", "levels", "argument"),
    [
        ("BOOLEAN", ("false", "true"), ""),
        ("BOOLEAN", ("false", "true"), "target_levels := ['True', 'False']"),
        ("VARCHAR", ("ham", "spam"), "target_levels := ['ham', 'spam']"),
        ("ENUM('ham', 'spam', 'eggs')", ("ham", "spam"), "target_levels := ['ham', 'spam']"),
        ("DOUBLE", ("-1", "0.5"), "target_levels := [-1, 0.5]"),
        ("DECIMAL(9, 2)", ("0", "1"), ""),
        ("HUGEINT", ("0", "1"), ""),
        ("VARCHAR", ("it's", 'a "b"'), "target_levels := ['it''s', 'a \"b\"']"),
    ],
)
def test_levels(
    con: duckdb.DuckDBPyConnection, counted: list[Counts], kind: str, levels: tuple[str, str], argument: str
) -> None:
    con.execute(f"CREATE TABLE t (doc INTEGER, label {kind}, token VARCHAR)")
    rows = [(0, levels[0], "ant"), (1, levels[1], "ant"), (2, levels[1], "bee"), (3, None, "ant")]
    con.executemany(f"INSERT INTO t VALUES (?, ?::{kind}, ?)", rows)
    run(con, f"{LONG}, {argument}" if argument else LONG)
    both = ([1, 1, 0, 0, 0], [1, 0, 0, 0, 0], 2, 1)
    swapped = ([1, 0, 0, 0, 0], [1, 1, 0, 0, 0], 1, 2)
    assert plain(counted[0]) == (swapped if "'True', 'False'" in argument else both)


def test_a_document_has_one_label(con: duckdb.DuckDBPyConnection, counted: list[Counts]) -> None:
    """Of several labels the positive one counts, and no label loses to any."""
    load_long(con, [(0, 0, "ant"), (0, 1, "bee"), (1, 0, "ant"), (1, None, "cat"), (1, 9, "dog")])
    run(con)
    assert plain(counted[0]) == ([1, 1, 0, 0, 0], [1, 0, 1, 1, 0], 1, 1)


def test_values_say_what_is_present(con: duckdb.DuckDBPyConnection, counted: list[Counts]) -> None:
    con.execute("CREATE TABLE t (doc INTEGER, label INTEGER, token VARCHAR, v DOUBLE)")
    values = [(0, 0.0), (1, None), (2, math.nan), (3, 2.0), (4, -1.0), (5, math.inf)]
    con.executemany("INSERT INTO t VALUES (?, 1, 'ant', ?)", values)
    run(con, LONG + ", value := 'v'")
    assert plain(counted[0]) == ([3, 0, 0, 0, 0], [0] * 5, 6, 0)


def test_rows_without_id_are_no_rows(con: duckdb.DuckDBPyConnection, counted: list[Counts]) -> None:
    load_long(con, [(None, 1, "ant"), (None, 1, "bee"), (3, 1, "ant")])
    run(con)
    assert plain(counted[0]) == ([1, 0, 0, 0, 0], [0] * 5, 1, 0)


@pytest.mark.parametrize("rows", [[], [(1, None, "ant"), (2, 5, "bee")]])
def test_no_row_that_counts(con: duckdb.DuckDBPyConnection, counted: list[Counts], rows: list[Any]) -> None:
    con.execute("CREATE TABLE t (doc INTEGER, label INTEGER, token VARCHAR)")
    for row in rows:
        con.execute("INSERT INTO t VALUES (?, ?, ?)", row)
    run(con)
    assert plain(counted[0]) == ([0] * 5, [0] * 5, 0, 0)


def test_a_long_token_and_none(con: duckdb.DuckDBPyConnection, counted: list[Counts]) -> None:
    load_long(con, [(0, 1, "x" * 10_000), (1, 1, None), (2, 0, ""), (3, 0, "ant")])
    run(con)
    assert plain(counted[0]) == ([0] * 5, [1, 0, 0, 0, 0], 2, 2)


@pytest.mark.parametrize("layout", ["long", "array", "wide"])
def test_rows_that_differ_in_their_label_alone_count_alike(
    con: duckdb.DuckDBPyConnection, counted: list[Counts], layout: str
) -> None:
    """Each of a row's five features counts two fifths of it, rounded down: nothing is chosen."""
    rows = 4000
    if layout == "long":
        con.execute(
            f"CREATE TABLE t AS SELECT doc, doc % 2 AS label, token FROM range({rows}) AS d(doc), "
            f"(SELECT unnest({NAMES + NAMES[:2]!r}) AS token)"
        )
        run(con, most=2)
    else:
        values = (
            ", ".join(f"1.0 AS {name}" for name in NAMES) if layout == "wide" else "[1, 1, 1, 1, 1]::DOUBLE[5] AS x"
        )
        con.execute(f"CREATE TABLE t AS SELECT doc % 2 AS label, {values} FROM range({rows}) AS d(doc)")
        run(con, "features := 'x'" if layout == "array" else f"features := {NAMES!r}", most=2)
    share = 2 * 2**20 // 5
    assert counted[0].denominator == 2**20
    assert plain(counted[0]) == ([rows // 2 * share] * 5, [rows // 2 * share] * 5, rows // 2, rows // 2)


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("kind", ["INTEGER", "VARCHAR"])
def test_random_rows_count_as_in_a_loop(
    con: duckdb.DuckDBPyConnection, counted: list[Counts], kind: str, unit: bool
) -> None:
    """Repeats, rows without a name or an id, several labels, and more features than count, in two orders of the rows."""
    rng = np.random.default_rng(12)
    names = [f"w{j}" for j in range(9)]
    rows = [
        (None if doc % 50 == 7 else doc, doc % 700, label, token)
        for doc, label, token in zip(
            rng.integers(0, 2500, 20_000).tolist(),
            rng.choice([0, 1, 2], 20_000, p=[0.6, 0.1, 0.3]).tolist(),
            rng.choice([*names, "rare", "W1", None], 20_000).tolist(),
            strict=True,
        )
    ]
    given: dict[Any, tuple[set[int], set[str]]] = {}
    for doc, person, label, token in rows:
        if doc is not None:
            labels, tokens = given.setdefault((person if unit else None, doc), (set(), set()))
            labels.add(label)
            tokens |= {token} & set(names)
    counts, sizes = np.zeros(18, dtype=np.int64), [0, 0]
    for labels, tokens in given.values():
        side = 0 if 1 in labels else 1 if 0 in labels else None
        if side is None:
            continue
        sizes[side] += 1
        for token in tokens:
            counts[9 * side + names.index(token)] += min(2**20, 3 * 2**20 // len(tokens))
    more = f"features := 'token', row_id := 'doc', names := {names!r}"
    more += ", privacy_unit := 'person', max_rows_per_unit := 100" if unit else ""
    for order in (np.arange(len(rows)), rng.permutation(len(rows))):
        columns = dict(
            zip(("doc", "person", "label", "token"), zip(*(rows[place] for place in order), strict=True), strict=True)
        )
        con.register("frame", pa.table({name: list(column) for name, column in columns.items()}))
        con.execute(f"CREATE OR REPLACE TABLE t AS SELECT * REPLACE (doc::{kind} AS doc) FROM frame")
        run(con, more, most=3)
        assert plain(counted[-1]) == (counts[:9].tolist(), counts[9:].tolist(), sizes[0], sizes[1])


def test_names_are_compared_byte_by_byte(con: duckdb.DuckDBPyConnection, counted: list[Counts]) -> None:
    """Whatever collation the column and the session have."""
    con.execute("CREATE TABLE t (doc INTEGER, label INTEGER, token VARCHAR COLLATE NOACCENT.NOCASE)")
    con.execute("INSERT INTO t VALUES (0, 1, 'ant'), (1, 1, 'Ant'), (2, 1, 'ánt'), (3, 0, 'ant '), (4, 1, 'BEE')")
    con.execute("SET default_collation = 'nocase'")
    run(con, "features := 'token', row_id := 'doc', names := ['ant', 'ANT', 'ánt', 'bee']")
    assert plain(counted[0]) == ([1, 0, 1, 0], [0] * 4, 4, 1)
    con.execute("ALTER TABLE t ADD COLUMN v INTEGER DEFAULT 1")
    run(con, "features := 'token', row_id := 'doc', value := 'v', names := ['ant', 'ANT', 'ánt', 'bee']")
    assert plain(counted[1]) == plain(counted[0])


@pytest.mark.parametrize("value", ["", ", value := 'v'"])
def test_private_names_are_compared_byte_by_byte(con: duckdb.DuckDBPyConnection, value: str) -> None:
    con.execute(
        "CREATE TABLE t AS SELECT i AS doc, 1 AS label, 1 AS v, (['ant', 'Ant', 'ánt'])[1 + i % 3] COLLATE NOCASE AS token "
        "FROM range(900) AS r(i)"
    )
    con.execute("SET default_collation = 'nocase'")
    found = con.execute(
        f"FROM dp_score_filter('t', target := 'label', features := 'token', row_id := 'doc', vocabulary := 'private'{value}, "
        "score := 'total_count', method := 'laplace', threshold := 100, epsilon := 20, delta := 0.01, max_features_per_row := 1)"
    ).fetchall()
    assert {row[1] for row in found} == {"ant", "Ant", "ánt"}
    assert all(abs(row[2] - 300) < 20 for row in found)


def test_no_join_of_names_is_decided_by_statistics(con: duckdb.DuckDBPyConnection) -> None:
    """Where no two texts are equal by minimum and maximum, DuckDB 2.0 joins with nothing instead."""
    con.execute("CREATE TABLE t AS SELECT 'a' || i AS token FROM range(10) AS r(i)")
    con.execute("CREATE TABLE v AS SELECT i AS j, 'z' || i AS token FROM range(10) AS r(i)")
    joined = (
        "EXPLAIN SELECT sum(j) FROM (SELECT {} AS name FROM t) LEFT JOIN (SELECT j, {} AS name FROM v) USING (name)"
    )
    con.create_function("zero", lambda: 0.0, [], "DOUBLE", side_effects=True)
    mine = exact_text("token", "(SELECT zero())")
    assert "EMPTY" not in con.execute(joined.format(mine, mine)).fetchall()[0][1].upper()
    if duckdb.__version__ >= "2":
        assert "EMPTY" in con.execute(joined.format("token", "token")).fetchall()[0][1].upper()


def test_a_unit_has_no_more_rows_than_it_may(con: duckdb.DuckDBPyConnection, counted: list[Counts]) -> None:
    con.execute(
        "CREATE TABLE t AS SELECT unit, 100 * unit + doc AS doc, 1 AS label, token "
        f"FROM range(10) AS u(unit), range(1 + unit) AS d(doc), (SELECT unnest({NAMES!r}) AS token)"
    )
    con.execute("INSERT INTO t VALUES (NULL, 9999, 1, 'ant'), (NULL, 9998, 1, 'ant')")
    run(con, LONG + ", privacy_unit := 'unit', max_rows_per_unit := 3")
    assert plain(counted[0]) == ([27] * 5, [0] * 5, 27, 0)


def test_a_frame_and_a_view_count_alike(con: duckdb.DuckDBPyConnection, counted: list[Counts]) -> None:
    given = documents(8, rows=50)
    load_long(con, long_rows(given, 9))
    con.execute("CREATE VIEW v AS SELECT * FROM t")
    run(con, source="v")
    frame = con.sql("FROM t").to_arrow_table()
    con.register("frame", frame)
    run(con, source="frame")
    assert plain(counted[0]) == plain(counted[1]) == expected(given)


def test_the_names_of_a_variable(con: duckdb.DuckDBPyConnection, counted: list[Counts]) -> None:
    given = documents(10, rows=50)
    load_long(con, long_rows(given, 11))
    con.execute(f"SET VARIABLE vocabulary = {NAMES!r}")
    run(con, "features := 'token', row_id := 'doc', names := getvariable('vocabulary')")
    assert plain(counted[0]) == expected(given)


@pytest.mark.parametrize("layout", ["long", "wide"])
def test_of_too_many_rows_any_may_stay(
    con: duckdb.DuckDBPyConnection, counted: list[Counts], monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """Rows that are alike do not stay or go together, whatever DuckDB's own seed is."""
    limited = Pass(FEATURE_COUNTS if layout == "long" else COLLECTED, most_rows=600)
    monkeypatch.setattr(NaiveBayesPlan, "passes", (limited,))
    con.execute("CREATE TABLE t AS SELECT doc, doc % 2 AS label, 'ant' AS token, 1 AS ant FROM range(2000) AS d(doc)")
    for _ in range(2):
        con.execute("SELECT setseed(0.5)").fetchall()
        run(con) if layout == "long" else run(con, "features := ['ant']")
    for counts in counted:
        assert counts.positive_rows + counts.negative_rows == 600
        assert counts.positive[0] == counts.positive_rows
        # Hypergeometric, with a standard deviation of 10.2: out of this range with a chance of one in a million.
        assert abs(counts.positive_rows - 300) < 51
