"""Which rows the numbers of a release speak of: words that follow from public arguments alone."""

from __future__ import annotations

from typing import Any

import pytest

import dpsql
from dpsql.contract.speaks_of import speaks_of
from dpsql.functions.registry import FUNCTIONS
from dpsql.released.shapes import SPEAKS_OF
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
    assert words in speaks_of(plan.public_arguments)


@pytest.mark.long
def test_the_words_are_those_of_the_arguments_and_not_of_rows() -> None:
    ctx = dpsql.Context()
    for rows in (0, 50):
        ctx.connection.execute(
            f"CREATE OR REPLACE TABLE t AS SELECT i AS u, 'a' AS h, i AS x FROM range({rows}) AS r(i)"
        )
        release = ctx.dp_count("t", epsilon=1, **KEYS, **UNIT)
        words = "rows that count: at most 6 a unit, none without a unit, listed keys"
        assert release.value.column(SPEAKS_OF).unique().to_pylist() == [words]
        assert (release.speaks_of, release.policy[SPEAKS_OF]) == (words, words)
        assert words in repr(release)
        assert words in release._repr_html_()
        assert repr(release).count(words) == 1


@pytest.mark.long
def test_every_release_says_it() -> None:
    ctx = dpsql.Context()
    ctx.connection.execute("CREATE TABLE t AS SELECT i % 7 AS x, i % 5 AS y FROM range(400) AS r(i)")
    release = ctx.dp_linear_regression("t", target="y", features=["x"], epsilon=5, delta=1e-6)
    assert SPEAKS_OF not in release.value.column_names
    assert release.speaks_of == "all rows; values clipped to drawn bounds"
