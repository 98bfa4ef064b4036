"""Which rows the numbers of a release speak of: words that follow from public arguments alone."""

from __future__ import annotations

from typing import Any

import pytest

import dpsql
from dpsql.contract.covers import COVERING, covers
from dpsql.functions.registry import FUNCTIONS
from support.cases import cases

UNIT = {"privacy_unit": "u", "max_rows_per_unit": 6}
BOUNDS = {"lower": 0, "upper": 100}
KEYS = {"by": "h", "keys": ["a", "b"]}
SPOKEN: list[tuple[str, dict[str, Any], str]] = [
    ("dp_count", {}, "all rows"),
    ("dp_count", KEYS, "rows that count: listed keys"),
    ("dp_count", {**KEYS, "other": True}, "all rows"),
    ("dp_count", {"by": "h"}, "rows that count: keys of the type"),
    ("dp_count", {"by": "h", "keys": "private", "delta": 1e-6}, "rows that count: released keys"),
    ("dp_count", {"condition": "x > 1"}, "rows that count: where the condition holds"),
    ("dp_avg", {"target": "x"}, "all rows; values clipped to drawn bounds"),
    ("dp_avg", {"target": "x", "lower": [0], "upper": {"x": 2.5}}, "all rows; values clipped to [0, 2.5]"),
    ("dp_avg", {"target": ["x", "y"], "lower": [0, 1], "upper": 9}, "all rows; values clipped to their bounds"),
    ("dp_sum", {"target": "x", **BOUNDS, **UNIT, **KEYS}, "at most 6 a unit, none without a unit, listed keys; values"),
    (
        "dp_count",
        {**KEYS, "privacy_unit": "u", "max_groups_per_unit": 1, "max_rows_per_unit_group": 2},
        "rows that count: at most 2 a unit in 1 group, none without a unit, listed keys",
    ),
    ("dp_quantile", {"target": "x", "quantiles": [0.5], **BOUNDS}, "all rows; values clipped to [0, 100]"),
    ("dp_histogram", {"target": "x", "bins": [1], "null_bin": False}, "rows that count: with a value"),
    ("dp_crosstab", {"rows": "h", "columns": "k", "keys": {"h": ["a"], "k": ["b"]}}, "rows that count: listed keys"),
    ("dp_linear_regression", {"target": "x", "delta": 1e-6}, "all rows; values clipped to drawn bounds"),
]


@cases(("function", "given", "words"), SPOKEN)
def test_words(function: str, given: dict[str, Any], words: str) -> None:
    plan = FUNCTIONS[function].plan.from_arguments("t", {"epsilon": 1, **given})
    assert words in covers(plan.public_arguments)


QUERIES: list[tuple[str, dict[str, Any], str]] = [
    ("SELECT count(*) FROM visits", {}, "at most 6 a unit, none without a unit"),
    (
        "SELECT count(*) FROM visits",
        {"left_out_share": 0},
        "at most 6 a unit, none without a unit; row limit: not measured",
    ),
    ("SELECT count(*) FROM (SELECT DISTINCT who FROM visits)", {}, "at most 1 a unit, none without a unit"),
    (
        "SELECT h, avg(x) FROM visits GROUP BY h",
        {},
        "at most 6 a unit, none without a unit, listed keys; values clipped to [0, 9]",
    ),
    (
        "SELECT avg(x), sum(y) FROM visits",
        {"upper": {"y": 5}, "lower": {"y": 0}},
        "at most 6 a unit, none without a unit; values clipped to their bounds",
    ),
    ("SELECT sum(y) FROM visits", {}, "at most 6 a unit, none without a unit; values clipped to drawn bounds"),
    (
        "SELECT median(x) FROM visits",
        {},
        "at most 6 a unit, none without a unit; values clipped to [0, 9]; row limit: not measured",
    ),
    ("SELECT count(*) FROM rows_alone", {}, ""),
]


@cases(("sql", "given", "words"), QUERIES, quick=2)
def test_words_of_queries(clinic: dpsql.Context, sql: str, given: dict[str, Any], words: str) -> None:
    """They stand in the answer, too, in a column that has no name of the query's own."""
    release = clinic.query(f"{sql} ", epsilon=1, errors=True, fresh=True, **given)
    assert release.covers == (f"rows that count: {words}" if words else "all rows")
    assert release.value.column("covers").unique().to_pylist() == [release.covers]
    named = clinic.query(f"SELECT 1 AS covers, * FROM ({sql})", epsilon=1, errors=True, fresh=True, **given)
    assert named.value.column("covers_1").unique().to_pylist() == [release.covers]


@pytest.fixture(scope="module")
def clinic() -> dpsql.Context:
    ctx = dpsql.Context()
    ctx.connection.execute("""
        CREATE TABLE visits AS SELECT i // 3 AS who, i % 9 AS x, i % 5 AS y, ['a', 'b'][1 + i % 2] AS h FROM range(300) AS r(i);
        CREATE TABLE rows_alone AS FROM visits;
        SELECT dp_protect('visits', epsilon := 1e4, privacy_unit := 'who', max_rows_per_unit := 6, keys := {h: ['a', 'b']},
          lower := {x: 0}, upper := {x: 9});
        SELECT dp_protect('rows_alone', epsilon := 1e4)""")
    return ctx


@pytest.mark.long
def test_the_words_are_those_of_the_arguments_and_not_of_rows() -> None:
    ctx = dpsql.Context()
    for rows in (0, 50):
        ctx.connection.execute(
            f"CREATE OR REPLACE TABLE t AS SELECT i AS u, 'a' AS h, i AS x FROM range({rows}) AS r(i)"
        )
        release = ctx.dp_count("t", epsilon=1, **KEYS, **UNIT)
        words = "rows that count: at most 6 a unit, none without a unit, listed keys"
        assert release.value.column("covers").unique().to_pylist() == [words]
        assert (release.covers, release.speaks_of, release.policy["covers"]) == (words, words, words)
        assert words in repr(release)
        assert words in release._repr_html_()
        assert repr(release).count(words) == 1


@pytest.mark.long
def test_every_release_says_it() -> None:
    ctx = dpsql.Context()
    ctx.connection.execute("CREATE TABLE t AS SELECT i % 7 AS x, i % 5 AS y FROM range(400) AS r(i)")
    release = ctx.dp_linear_regression("t", target="y", features=["x"], epsilon=5, delta=1e-6)
    assert not {*COVERING} & {*release.value.column_names}
    assert release.covers == "all rows; values clipped to drawn bounds"
