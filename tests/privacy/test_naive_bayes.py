"""dp_naive_bayes through SQL: what noise it draws, audits on neighbouring tables, and planted faults."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.contract.gaussian_profile import gaussian_mu
from dpsql.functions import naive_bayes
from dpsql.testing import audit_sql
from dpsql.testing.distribution import fit
from support.broken.naive_bayes import BROKEN_NAIVE_BAYES, broken_naive_bayes
from support.cases import cases

WIDTH = 400
LOG_ODDS = naive_bayes.log_odds


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    made = dpsql.connect()
    made.execute("CREATE TABLE t AS SELECT 1 AS unit, true AS y, [0]::DOUBLE[] AS x FROM range(0)")
    yield made
    made.close()


@pytest.fixture
def noisy(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray[Any, Any]]:
    """The counts of the calls of a test, with their noise: of features, then of rows."""
    seen: list[np.ndarray[Any, Any]] = []

    def log_odds(present: Any, rows: Any, smoothing: float) -> Any:
        seen.extend((np.ravel(present), rows))
        return LOG_ODDS(present, rows, smoothing)

    monkeypatch.setattr(naive_bayes, "log_odds", log_odds)
    return seen


def call(more: str) -> str:
    return f"FROM dp_naive_bayes('t', target := 'y', features := 'x', n_features := {WIDTH}, present_above := 0, shrink := false, {more})"


def laplace_law(scale: float, one: int = 1) -> dict[int, float]:
    """Return the law of discrete Laplace noise in multiples of ``1 / one``, rounded down."""
    ratio = math.exp(-1 / scale)
    if one == 1:
        return {value: (1 - ratio) / (1 + ratio) * ratio ** abs(value) for value in range(-4000, 4001)}
    step = math.exp(-1 / (scale * one))
    # From k >= 0 on there are values of one row each; below 0 the same mirrored, without the zero.
    above = (1 - ratio) / (1 + step)
    return {k: above * ratio**k if k >= 0 else above * step * ratio ** (-k - 1) for k in range(-4000, 4001)}


# Arguments, and the scales that a reading of the definition gives: of a feature's count, and of a number of rows.
SCALES = {
    "epsilon := 2, max_features_per_row := 5, count_share := 0.5": (5.0, 1.0),
    "epsilon := 2, max_features_per_row := 5, count_share := 0.5, neighbours := 'replace'": (10.0, 2.0),
    "epsilon := 4, max_features_per_row := 3, count_share := 0.25, privacy_unit := 'unit', max_rows_per_unit := 4": (
        4,
        4,
    ),
    # A row has no more features than there are.
    f"epsilon := {WIDTH}, max_features_per_row := 100000, count_share := 0.5": (2.0, 2 / WIDTH),
}


def drawn_noise(con: duckdb.DuckDBPyConnection, noisy: list[np.ndarray[Any, Any]], more: str) -> list[int]:
    """Return the counts of features of an empty table: they are the noise."""
    while sum(map(len, noisy[::2])) < 6000:
        con.execute(call(more)).fetchall()
    return [math.floor(value) for value in np.concatenate(noisy[::2])]


@cases("wrong", [1.0, 0.7, 1.3])
@cases("more", SCALES)
def test_laplace_noise(
    con: duckdb.DuckDBPyConnection, noisy: list[np.ndarray[Any, Any]], more: str, wrong: float
) -> None:
    feature, rows = SCALES[more]
    plan = naive_bayes.NaiveBayesPlan.from_arguments("t", _given(more))
    law = laplace_law(feature * wrong, plan.denominator(WIDTH))
    assert fit(drawn_noise(con, noisy, more), law).accepted == (wrong == 1.0)
    assert [float(scale) for scale in plan.scales(WIDTH)] == pytest.approx([rows, feature])


def _given(more: str) -> dict[str, Any]:
    pairs = dict(part.split(" := ") for part in more.split(", "))
    values = {name: value.strip("'") if "'" in value else float(value) for name, value in pairs.items()}
    return {"target": "y", "features": "x", "n_features": WIDTH, **values}


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_gaussian_noise(con: duckdb.DuckDBPyConnection, noisy: list[np.ndarray[Any, Any]], relation: str) -> None:
    more = f"epsilon := 1, delta := 1e-6, max_features_per_row := 5, count_share := 0.2, neighbours := '{relation}'"
    for _ in range(20):
        con.execute(call(more)).fetchall()
    mu = float(gaussian_mu(Fraction(1), Fraction(1, 10**6)))
    doubled = 2 if relation == "replace" else 1
    drawn = np.concatenate(noisy[::2])
    expected = math.sqrt(doubled * 5 / 0.8) / mu
    # The standard deviation of 16,000 draws is off by 3.2 % with a chance below one in a million.
    assert abs(drawn.std() / expected - 1) < 0.032
    plan = naive_bayes.NaiveBayesPlan.from_arguments("t", _given(more))
    noise = {name: value for name, value, _ in plan.noise(WIDTH, None)}
    assert noise["count_std_error"] == pytest.approx(expected, rel=1e-6)
    assert noise["rows_std_error"] == pytest.approx(math.sqrt(doubled / 0.2) / mu, rel=1e-6)


FULL, NONE = "[1, 1, 1, 1, 1, 1]", "[0, 0, 0, 0, 0, 0]"
COPIES = " FROM t, range({count}) AS r(copy) GROUP BY copy"


def rows(*kinds: tuple[str, str, int]) -> str:
    """Return the script of a table with so many rows of each label and vector, all of one unit."""
    parts = (f"SELECT 1 AS unit, {label} AS y, {vector}::INTEGER[6] AS x FROM range({n})" for label, vector, n in kinds)
    return f"CREATE TABLE t AS {' UNION ALL '.join(parts)}"


def aggregate(more: str) -> str:
    call = f"dp_naive_bayes(x, y, present_above := 0, dataset := 't', {more})"
    return f"SELECT list_transform({call}, lambda entry: entry.coefficient){COPIES}"


def table_form(more: str) -> str:
    return f"SELECT coefficient FROM dp_naive_bayes('t', target := 'y', features := 'x', present_above := 0, {more})"


HALVES = "max_features_per_row := 6, count_share := 0.5, epsilon := 1"
# Statement and two neighbouring tables; both claim to cost 1.
AUDITS: dict[str, tuple[str, tuple[str, str]]] = {
    "added": (aggregate(HALVES), (rows(("false", NONE, 1), ("true", FULL, 1)), rows(("false", NONE, 1)))),
    "rows alone": (
        aggregate("max_features_per_row := 6, count_share := 0.9, epsilon := 1"),
        (rows(("true", NONE, 3)), rows(("true", NONE, 2))),
    ),
}


def run_audit(case: str, runs: int) -> Any:
    sql, tables = AUDITS[case]
    return audit_sql(dpsql.connect, sql, tables, epsilon=1, runs=runs, confidence=1 - 1e-6, batch=200)


@pytest.mark.parametrize("case", AUDITS)
def test_audit(case: str) -> None:
    report = run_audit(case, 1000)
    assert report.verdict != "violates", str(report)


# Faults that the law of the noise shows, under the arguments that show them.
BY_LAW = dict(
    zip(
        ("noise of one feature for a row of many", "replaced rows as added ones", "units as rows"), SCALES, strict=False
    )
)


@pytest.mark.parametrize("fault", BY_LAW)
def test_planted_fault_in_the_noise(
    con: duckdb.DuckDBPyConnection, noisy: list[np.ndarray[Any, Any]], fault: str
) -> None:
    more = BY_LAW[fault]
    with broken_naive_bayes(fault):
        drawn = drawn_noise(con, noisy, more)
    plan = naive_bayes.NaiveBayesPlan.from_arguments("t", _given(more))
    assert not fit(drawn, laplace_law(SCALES[more][0], plan.denominator(WIDTH))).accepted


def test_planted_fault_in_the_rows() -> None:
    with broken_naive_bayes("numbers of rows without noise"):
        report = run_audit("rows alone", 1000)
    assert report.verdict == "violates", str(report)


@pytest.mark.parametrize("broken", [False, True])
def test_a_row_moves_no_more_counts_than_it_may(monkeypatch: pytest.MonkeyPatch, broken: bool) -> None:
    """Counts add up over rows, so one row alone shows what any row moves."""
    moved = []
    monkeypatch.setattr(naive_bayes.NaiveBayesCall, "draw", lambda call, counts: moved.append(counts) or 1 / 0)
    made = dpsql.connect()
    made.execute(f"CREATE TABLE t AS SELECT true AS y, {FULL}::INTEGER[6] AS x")
    with broken_naive_bayes("a row counts more than it may") if broken else nullcontext():
        for most in range(1, 8):
            with pytest.raises(duckdb.Error):
                made.execute(table_form(f"epsilon := 1, max_features_per_row := {most}")).fetchall()
    made.close()
    totals = [Fraction(int(counts.positive.sum() + counts.negative.sum()), counts.denominator) for counts in moved]
    # Shares of a row are rounded down, each by less than one unit.
    assert [math.ceil(total) for total in totals] == ([6] * 7 if broken else [1, 2, 3, 4, 5, 6, 6])
    assert broken or all(most - total < Fraction(6, 2**20) for most, total in zip(range(1, 7), totals, strict=False))


def test_the_list_of_faults() -> None:
    assert BROKEN_NAIVE_BAYES.keys() == {
        *BY_LAW,
        "numbers of rows without noise",
        "a row counts more than it may",
    }
