"""dp_score_filter in SQL: long, wide and array layouts against plain counts, private vocabularies, rows of all kinds."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from support.cases import cases
from support.sql_text import literal

NAMES = ["ant", "bee", "cat", "dog", "elk", "fox"]
SURE = 10**5
LONG = {"features": "token", "row_id": "doc", "names": NAMES}
LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "long": ("tokens", LONG),
    "long with values": ("weighted", {**LONG, "value": "weight"}),
    "wide": ("wide", {"features": NAMES}),
    "array": ("arrays", {"features": "x", "names": NAMES}),
    "short array": ("shorts", {"features": "x", "n_features": 6}),
}
SCORES = ("total_count", "difference_count", "purity", "information_gain")


def documents(seed: int = 0, rows: int = 600) -> list[tuple[int, int | None, set[str]]]:
    """Number, label (None and 7 are neither) and tokens; rarer ones later, some that tell the label."""
    generator = np.random.default_rng(seed)
    found = []
    for doc in range(rows):
        label = [0, 0, 1, 1, 1, None, 7][generator.integers(7)]
        tilt = {"bee": 0.3 * (label == 1), "dog": 0.4 * (label == 0)}
        tokens = {
            name
            for place, name in enumerate(NAMES[:-1])
            if generator.random() < 0.45 - 0.08 * place + tilt.get(name, 0)
        }
        found.append((doc, label, tokens))
    return found


def table_of(given: list[tuple[int, int | None, set[str]]]) -> dict[str, np.ndarray]:
    """n11, n10, n01, n00 of every name, from a plain loop."""
    has, rows = Counter(), Counter()
    for _, label, tokens in given:
        rows[label] += 1
        has.update((label, token) for token in tokens)
    n11, n10 = (np.array([has[label, name] for name in NAMES], dtype=float) for label in (1, 0))
    return {"n11": n11, "n10": n10, "n01": rows[1] - n11, "n00": rows[0] - n10}


def exact(score: str, given: list[tuple[int, int | None, set[str]]]) -> dict[str, float]:
    cells = table_of(given)
    n11, n10, n01, n00 = cells.values()
    if score == "information_gain":
        n = n11 + n10 + n01 + n00
        total = np.zeros(len(NAMES))
        for cell, feature, label in (
            (n11, n11 + n10, n11 + n01),
            (n10, n11 + n10, n10 + n00),
            (n01, n01 + n00, n11 + n01),
            (n00, n01 + n00, n10 + n00),
        ):
            total += np.where(
                cell > 0, cell * np.log(np.where(cell > 0, cell * n / (feature * label + (cell == 0)), 1)), 0
            )
        values = total
    else:
        difference = abs(n11 - n10)
        values = {
            "total_count": n11 + n10,
            "difference_count": difference,
            "purity": np.maximum(difference, abs(n01 - n00)),
        }[score]
    return dict(zip(NAMES, values.tolist(), strict=True))


def run(con: Any, source: str, **more: Any) -> list[tuple[Any, ...]]:
    given = {"target": "label", "epsilon": SURE, "dataset": "d", **more}
    if "row_id" not in given or "n_features" in given:
        given.setdefault("present_above", 0)
    text = ", ".join(f"{name} := {literal(value)}" for name, value in given.items())
    found: list[tuple[Any, ...]] = con.execute(f"FROM dp_score_filter('{source}', {text})").fetchall()
    assert [row[0] for row in found] == list(range(1, len(found) + 1))
    return found


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """One set of documents in every layout."""
    opened = dpsql.connect()
    opened.execute("CREATE TABLE tokens (doc INT, label INT, token VARCHAR)")
    opened.execute(f"CREATE TABLE wide (label INT, {', '.join(f'{name} BOOLEAN' for name in NAMES)})")
    opened.execute("CREATE TABLE arrays (label INT, x DOUBLE[6])")
    given = documents()
    opened.executemany(
        "INSERT INTO tokens VALUES (?, ?, ?)",
        [(doc, label, token) for doc, label, tokens in given for token in (None, *tokens, *sorted(tokens)[:1])],
    )
    flags = [(label, [name in tokens for name in NAMES]) for _, label, tokens in given]
    opened.executemany(f"INSERT INTO wide VALUES ({', '.join('?' * 7)})", [(label, *bits) for label, bits in flags])
    opened.executemany(
        "INSERT INTO arrays VALUES (?, ?)", [(label, [float(bit) for bit in bits]) for label, bits in flags]
    )
    opened.execute("CREATE TABLE shorts AS SELECT label, x::FLOAT[] AS x FROM arrays")
    opened.execute(
        "CREATE TABLE weighted AS SELECT *, 2.5 AS weight FROM tokens "
        "UNION ALL SELECT doc, label, 'fox', CASE doc % 3 WHEN 0 THEN 0 WHEN 1 THEN 'nan'::DOUBLE END FROM tokens"
    )
    yield opened
    opened.close()


@cases(
    ("score", "layout"),
    [
        pytest.param(score, layout, marks=[] if layout == "long" or score == "purity" else [pytest.mark.slow])
        for score, layout in itertools.product(SCORES, LAYOUTS)
    ],
)
def test_scores_are_those_of_plain_counts(con: Any, score: str, layout: str) -> None:
    source, columns = LAYOUTS[layout]
    expected = exact(score, documents())
    names = [f"x[{j}]" for j in range(1, 7)] if layout == "short array" else NAMES
    expected = dict(zip(names, expected.values(), strict=True))
    for method, more in (("laplace", {}), ("gaussian", {"delta": 0.01})):
        found = run(con, source, score=score, k=6, method=method, **more, **columns)
        assert {feature: value for _, feature, value, *_ in found} == pytest.approx(expected, abs=0.6)
        values = [value for _, _, value, *_ in found]
        assert values == sorted(values, reverse=True)
        assert all((error is None) == (score == "information_gain") for _, _, _, error, *_ in found)
    # A threshold in the widest gap.
    order = sorted(expected, key=lambda name: -expected[name])
    gaps = [expected[a] - expected[b] for a, b in itertools.pairwise(order)]
    cut = int(np.argmax(gaps)) + 1
    threshold = (expected[order[cut - 1]] + expected[order[cut]]) / 2
    limits = {"n_max": 2000} if score == "information_gain" else {}
    for more in ({}, {"delta": 0.01}, {"method": "svt", "cutoff": 6, **limits}):
        found = run(con, source, score=score, threshold=threshold, **more, **columns)
        assert {row[1] for row in found} == set(order[:cut])
    for method in ("one_shot", "gumbel", "canonical_lipschitz", "laplace"):
        more = limits if method != "laplace" else {}
        found = run(con, source, score=score, k=cut, method=method, **more, **columns)
        assert {row[1] for row in found} == set(order[:cut])
        if method != "canonical_lipschitz":
            assert [row[1] for row in found] == sorted(order[:cut], key=lambda name: -expected[name])


def test_a_feature_that_no_row_has_is_noise(con: Any) -> None:
    [row] = [row for row in run(con, "tokens", k=6, epsilon=1, method="laplace", **LONG) if row[1] == "fox"]
    assert row[2] == int(row[2])
    spread = [
        run(
            con,
            "tokens",
            score="total_count",
            k=6,
            epsilon=0.1,
            method="laplace",
            names=["fox", *NAMES[:5]],
            features="token",
            row_id="doc",
        )
        for _ in range(20)
    ]
    values = {row[2] for found in spread for row in found if row[1] == "fox"}
    assert len(values) > 5


def test_names_may_come_from_a_variable(con: Any) -> None:
    con.execute("SET VARIABLE vocabulary = ['bee', 'dog']")
    found = con.execute(
        "FROM dp_score_filter('tokens', target := 'label', features := 'token', row_id := 'doc', "
        f"names := getvariable('vocabulary'), k := 1, epsilon := {SURE}, dataset := 'd')"
    ).fetchall()
    expected = exact("difference_count", documents())
    assert [row[1] for row in found] == [max(("bee", "dog"), key=lambda name: expected[name])]


def test_levels_of_a_text_label(con: Any) -> None:
    con.execute(
        "CREATE OR REPLACE TABLE texts AS SELECT doc, token, CASE label WHEN 1 THEN 'spam' WHEN 0 THEN 'ham' WHEN 7 THEN 'other' END AS label FROM tokens"
    )
    found = run(con, "texts", score="difference_count", k=6, target_levels=["ham", "spam"], method="laplace", **LONG)
    assert {row[1]: row[2] for row in found} == pytest.approx(exact("difference_count", documents()), abs=0.6)
    with pytest.raises(duckdb.Error, match="S005"):
        run(con, "texts", k=6, **LONG)


def test_aggregate_form(con: Any) -> None:
    for source, vector, names in (
        ("arrays", "x", NAMES),
        ("wide", f"{{{', '.join(f'{name!r}: {name}' for name in NAMES)}}}", None),
    ):
        given = "" if names is None else f", names := {literal(names)}"
        [(found,)] = con.execute(
            f"SELECT dp_score_filter({vector}, label, score := 'purity', k := 6, method := 'laplace', present_above := 0, "
            f"epsilon := {SURE}, dataset := 'd'{given}) FROM {source}"
        ).fetchall()
        assert {row["feature"]: row["score"] for row in found} == pytest.approx(exact("purity", documents()), abs=0.6)
    with pytest.raises(duckdb.Error, match="P045"):
        con.execute(
            "SELECT dp_score_filter(x, label, k := 2, epsilon := 1, delta := 1e-6, vocabulary := 'private', "
            "n_features := 6, present_above := 0, dataset := 'd') FROM arrays"
        ).fetchall()


def test_rows_with_too_many_features_share_what_counts(con: Any) -> None:
    """Each of k features counts r / k of the row: nothing is chosen, so every call and every layout says the same."""
    given = [(doc, label, tokens & set(NAMES)) for doc, label, tokens in documents() if label in (0, 1)]
    for most in (1, 2):
        expected = {name: sum(min(1, most / len(tokens)) for _, _, tokens in given if name in tokens) for name in NAMES}
        for layout in ("long", "wide", "array"):
            source, columns = LAYOUTS[layout]
            for _ in range(2):
                found = run(
                    con, source, score="total_count", k=6, max_features_per_row=most, method="laplace", **columns
                )
                assert {row[1]: row[2] for row in found} == pytest.approx(expected, abs=0.01)


def test_a_limit_of_rows(con: Any) -> None:
    """400 rows whose feature tells the label: of n rows that count the score is about n ln 2."""
    con.execute(
        "CREATE OR REPLACE TABLE halves AS SELECT i AS doc, i % 2 AS label, ['a', 'b'][i % 2 + 1] AS token FROM range(400) AS r(i)"
    )
    more = {
        "score": "information_gain",
        "features": "token",
        "row_id": "doc",
        "names": ["a", "b"],
        "method": "svt",
        "cutoff": 2,
    }
    for n_max, threshold, count in (
        (40, 60 * math.log(2), 0),
        (40, 20 * math.log(2), 2),
        (400, 390 * math.log(2), 2),
        (4000, 390 * math.log(2), 2),
    ):
        assert len(run(con, "halves", n_max=n_max, threshold=threshold, **more)) == count
    con.execute("CREATE OR REPLACE TABLE wide_halves AS SELECT doc, label, label = 0 AS a, label = 1 AS b FROM halves")
    wide = {**more, "features": ["a", "b"]}
    del wide["names"]
    for n_max, threshold, count in ((40, 60 * math.log(2), 0), (40, 20 * math.log(2), 2), (400, 390 * math.log(2), 2)):
        assert len(run(con, "wide_halves", n_max=n_max, threshold=threshold, **wide)) == count


def test_units_of_several_rows(con: Any) -> None:
    """Each of 50 units has 10 documents with one token; three of them count."""
    con.execute(
        "CREATE OR REPLACE TABLE owned AS SELECT i AS doc, i % 50 AS person, 1 AS label, 'ant' AS token FROM range(500) AS r(i)"
    )
    found = run(
        con, "owned", score="total_count", k=1, method="laplace", privacy_unit="person", max_rows_per_unit=3, **LONG
    )
    assert found[0][1:3] == ("ant", pytest.approx(150, abs=1))


def test_a_private_vocabulary(con: Any) -> None:
    """Frequent tokens come out, whatever their names; those of one document do not, and nothing else is reported."""
    con.execute(
        "CREATE OR REPLACE TABLE open_words AS SELECT * FROM tokens UNION ALL SELECT doc, label, 'private ' || doc FROM tokens"
    )
    options = {"features": "token", "row_id": "doc", "vocabulary": "private", "delta": 1e-6}
    found = run(con, "open_words", score="total_count", k=50, epsilon=30, method="laplace", **options)
    expected = exact("total_count", documents())
    assert {row[1] for row in found} == set(NAMES[:5])
    assert {row[1]: row[2] for row in found} == pytest.approx({name: expected[name] for name in NAMES[:5]}, abs=25)
    cost = con.execute(
        "SELECT epsilon, delta FROM dp_ledger() WHERE kind = 'release' ORDER BY sequence DESC LIMIT 1"
    ).fetchone()
    assert cost == (30, 1e-6)
    # Too little to tell any name: an empty result, not an error; and the same for a table without rows.
    assert run(con, "open_words", threshold=1, epsilon=0.01, **options) == []
    con.execute("CREATE OR REPLACE TABLE no_words AS FROM tokens WHERE false")
    for method in ({}, {"method": "one_shot"}, {"method": "gumbel"}, {"method": "canonical_lipschitz"}):
        assert run(con, "no_words", k=3, epsilon=1, **options, **method) == []
    for more in ({"threshold": 1}, {"threshold": 1, "method": "svt", "cutoff": 2}, {"method": "cluster"}):
        assert run(con, "no_words", epsilon=1, **options, **more) == []
        assert {row[1] for row in run(con, "open_words", epsilon=50, **options, **more)} <= set(NAMES)
    for source, columns in (("wide", {"features": NAMES}), ("shorts", {"features": "x", "n_features": 6})):
        with pytest.raises(duckdb.Error, match="P045"):
            run(con, source, k=1, epsilon=1, vocabulary="private", delta=1e-6, **columns)


def test_a_vocabulary_is_never_read_for_free(con: Any) -> None:
    """Names are public, or paid for: the error says so, and nothing is charged."""
    before = con.execute("SELECT count(*) FROM dp_ledger()").fetchall()
    with pytest.raises(duckdb.Error, match=r"P042.*names is missing.*private.*vocabulary := 'private'"):
        run(con, "tokens", k=1, epsilon=1, features="token", row_id="doc")
    with pytest.raises(duckdb.Error, match="P046"):
        run(con, "tokens", k=1, epsilon=1, features="token", row_id="doc", vocabulary="private")
    assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == before


METHODS: list[dict[str, Any]] = [
    {"threshold": 3},
    {"threshold": 3, "delta": 1e-6},
    {"threshold": 3, "method": "svt", "cutoff": 2},
    {"method": "cluster"},
    {"k": 2, "method": "one_shot"},
    {"k": 2, "method": "gumbel", "score": "information_gain", "n_max": 10},
    {"k": 2, "score": "purity"},
]
ROWS = {
    "nothing": "SELECT 1 AS doc, 1 AS label, 'ant' AS token WHERE false",
    "no token": "SELECT 1 AS doc, 1 AS label, NULL::VARCHAR AS token FROM range(3)",
    "long token": "SELECT i AS doc, 1 AS label, repeat('x', 10000) AS token FROM range(3) AS r(i)",
    "no label": "SELECT i AS doc, NULL::INT AS label, 'ant' AS token FROM range(3) AS r(i)",
    "other label": "SELECT i AS doc, -5 AS label, 'ant' AS token FROM range(3) AS r(i)",
    "two labels": "SELECT 1 AS doc, i::INT AS label, 'ant' AS token FROM range(2) AS r(i)",
    "no id": "SELECT NULL::INT AS doc, 1 AS label, 'ant' AS token FROM range(3)",
    "empty token": "SELECT i AS doc, 1 AS label, '' AS token FROM range(3) AS r(i)",
    "odd tokens": "SELECT i AS doc, 1 AS label, unnest(['ant', 'ANT', 'ant ', 'ä', chr(128512), 'x''; DROP TABLE t']) AS token FROM range(3) AS r(i)",
    "repeats": "SELECT 1 AS doc, 1 AS label, 'ant' AS token FROM range(1000)",
}


@cases("kind", ROWS)
def test_no_row_makes_a_call_fail(con: Any, kind: str) -> None:
    con.execute(f"CREATE OR REPLACE TABLE bad AS {ROWS[kind]}")
    for more in METHODS:
        run(con, "bad", **{"epsilon": 1, **LONG, **more})
        if "delta" not in more and kind != "nothing":
            options = {"features": "token", "row_id": "doc", "vocabulary": "private", "delta": 1e-3}
            run(con, "bad", **{"epsilon": 1, **options, **more})


def test_repeats_and_odd_rows_count_once_or_not_at_all(con: Any) -> None:
    con.execute(f"CREATE OR REPLACE TABLE bad AS {ROWS['repeats']}")
    found = run(con, "bad", score="total_count", k=6, method="laplace", **LONG)
    assert found[0][1:3] == ("ant", pytest.approx(1, abs=0.1))
    for kind in ("no label", "other label", "no id", "long token", "empty token"):
        con.execute(f"CREATE OR REPLACE TABLE bad AS {ROWS[kind]}")
        assert all(
            row[2] == pytest.approx(0, abs=0.1)
            for row in run(con, "bad", score="total_count", k=6, method="laplace", **LONG)
        )


@pytest.mark.parametrize("layout", ["wide", "array"])
def test_missing_values_are_absent(con: Any, layout: str) -> None:
    columns = {"wide": {"features": ["a", "b"]}, "array": {"features": "x", "n_features": 2}}[layout]
    con.execute(
        "CREATE OR REPLACE TABLE holes AS SELECT 1 AS label, NULL::DOUBLE AS a, 'nan'::DOUBLE AS b, "
        "CASE i WHEN 0 THEN NULL WHEN 1 THEN [NULL, 'nan'::DOUBLE] ELSE [0, 0] END::DOUBLE[] AS x FROM range(3) AS r(i)"
    )
    found = run(con, "holes", score="total_count", k=2, method="laplace", **columns)
    assert [row[2] for row in found] == pytest.approx([0, 0], abs=0.1)


def test_a_release_is_replayed_and_feeds_other_calls(con: Any) -> None:
    first = run(con, "wide", k=2, epsilon=50, release="telling", features=NAMES)
    assert run(con, "wide", k=2, epsilon=50, release="telling", features=NAMES) == first
    again = con.execute(
        "FROM dp_score_filter('wide', target := 'label', features := release('telling'), k := 1, present_above := 0, "
        f"epsilon := {SURE}, dataset := 'd')"
    ).fetchall()
    assert again[0][1] in {row[1] for row in first}


def test_the_python_api() -> None:
    with dpsql.Context() as context:
        context.connection.execute(
            "CREATE TABLE t AS SELECT i % 2 = 0 AS y, i % 2 = 0 AS a, true AS b FROM range(100) AS r(i)"
        )
        release = context.dp_score_filter("t", target="y", features=["a", "b"], k=1, epsilon=100)
        assert release.value.to_pylist()[0]["feature"] == "a"


def test_names_that_no_row_keeps_do_not_fail_the_call() -> None:
    """One row has a hundred names and keeps one: the other names have no row at all."""
    with dpsql.connect() as con:
        con.execute(
            "CREATE TABLE wide_rows AS SELECT 1 AS doc, 1 AS y, 'w' || i AS word FROM range(100) AS r(i) "
            "UNION ALL SELECT 2 + i, i % 2, 'common' FROM range(500) AS r(i)"
        )
        rows = con.execute(
            "FROM dp_score_filter('wide_rows', target := 'y', features := 'word', row_id := 'doc', threshold := 100, "
            "score := 'total_count', vocabulary := 'private', epsilon := 10, delta := 1e-6, max_features_per_row := 1)"
        ).fetchall()
        assert [row[1] for row in rows] == ["common"]
