"""A call that takes every numeric column says which columns it left out, in its receipt: SQL, Python and shell."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import dpsql
from dpsql.cli.commands import main

_TABLE = """
    CREATE TABLE t AS SELECT (i % 10)::DOUBLE AS y, (i * 7 % 13)::DOUBLE AS a, (i % 5)::INTEGER AS b, 'x' AS name,
      i % 2 = 0 AS smoker, DATE '2020-01-01' AS seen, [1.0, 2.0] AS v, i AS person FROM range(300) AS r(i)
"""
_LEFT_OUT = (
    "left out 4 columns: name (text), smoker (boolean: cast it to integer, or name it in features), "
    "seen (date or time), v (vector: give features := its name)"
)


@pytest.fixture
def ctx() -> dpsql.Context:
    with dpsql.Context() as context:
        context.connection.execute(_TABLE)
        yield context


def test_the_receipt_says_what_was_left_out(ctx: dpsql.Context) -> None:
    release = ctx.dp_kendall("t", target="y", k=1, epsilon=1, privacy_unit="person", max_rows_per_unit=1, release="r")
    assert release.left_out == _LEFT_OUT
    assert release.guarantee.endswith("; " + _LEFT_OUT)
    assert _LEFT_OUT in repr(release)
    again = ctx.dp_kendall("t", target="y", k=1, epsilon=1, privacy_unit="person", max_rows_per_unit=1, release="r")
    assert again.replayed
    assert again.left_out == _LEFT_OUT
    (row,) = ctx.connection.execute("SELECT guarantee FROM dp_ledger() WHERE kind = 'release'").fetchall()
    assert row[0].endswith(_LEFT_OUT)


def test_nothing_is_left_out_where_features_are_named(ctx: dpsql.Context) -> None:
    release = ctx.dp_kendall("t", target="y", k=1, epsilon=1, features=["a", "smoker"])
    assert release.left_out == ""
    assert ";" not in release.guarantee


def test_a_label_makes_booleans_features(ctx: dpsql.Context) -> None:
    ctx.connection.execute("CREATE TABLE u AS SELECT y > 4 AS y, smoker, a > 3 AS high, name FROM t")
    release = ctx.dp_naive_bayes("u", target="y", epsilon=1)
    assert release.features == ["smoker", "high"]
    assert release.left_out == "left out 1 column: name (text)"


def test_many_columns_are_counted(ctx: dpsql.Context) -> None:
    texts = ", ".join(f"'x' AS c{i}" for i in range(25))
    ctx.connection.execute(f"CREATE TABLE wide AS SELECT y, a, {texts} FROM t")
    release = ctx.dp_kendall("wide", target="y", k=1, epsilon=1)
    assert release.left_out.startswith("left out 25 columns: c0 (text), c1 (text)")
    assert release.left_out.endswith("c19 (text), and 5 more")


def test_the_shell_shows_it(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    with dpsql.connect(database) as connection:
        connection.execute(_TABLE)
        connection.execute("FROM dp_kendall('t', target := 'y', k := 1, epsilon := 1)").fetchall()
    shown = CliRunner().invoke(main, ["ledger", "--db", str(database), "--format", "csv"])
    assert shown.exit_code == 0, shown.output
    assert "left out 4 columns: name (text)" in shown.output
