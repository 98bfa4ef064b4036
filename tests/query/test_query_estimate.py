"""``estimate := true``: what a query would cost and how noisy it would be, without asking it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from support.answers import described
from support.cases import cases
from support.sql_text import literal


@pytest.fixture
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        opened.execute("""
            CREATE TABLE visits AS SELECT i % 500 AS patient, ['A', 'B'][1 + i % 2] AS ward, CAST(i % 14 AS INTEGER) AS days
            FROM range(1500) AS r(i)
        """)
        opened.execute("CREATE TABLE wards AS SELECT 'A' AS ward, 10 AS beds")
        opened.execute("""
            SELECT dp_protect('visits', epsilon := 3, delta := 0.01, max_rows_per_unit := 3, privacy_unit := 'patient',
              keys := {ward: ['A', 'B']}, lower := {days: 0}, upper := {days: 14})
        """).fetchall()
        opened.execute("SELECT dp_public('wards')").fetchall()
        yield opened


def told(con: Any, sql: str, more: str = "", epsilon: float = 1.0) -> list[tuple[Any, ...]]:
    call = f"FROM dp_query({literal(sql)}, epsilon := {epsilon}, estimate := true{more})"
    found: list[tuple[Any, ...]] = con.execute(call).fetchall()
    return found


QUERY = "SELECT ward, count(*) AS n, sum(days) AS s, sum(days) / count(*) AS r, median(days) AS m, 2 AS two FROM visits GROUP BY ward"


def test_it_has_a_line_for_each_noisy_number_of_a_column(con: Any) -> None:
    lines = told(con, QUERY)
    assert [(column, quantity) for column, quantity, _, _ in lines] == [
        (None, "epsilon"),
        ("n", "std_error"),
        ("s", "std_error"),
        ("r", "std_error"),
        ("r", "std_error"),
        ("m", "rank_error"),
    ]
    assert lines[0][2] == 1


def test_nothing_is_charged_or_stored(con: Any) -> None:
    before = con.execute("FROM dp_budget()").fetchall(), con.execute("FROM dp_ledger()").fetchall()
    told(con, QUERY)
    told(con, QUERY, epsilon=100.0)  # more than the budget has
    con.execute("DROP TABLE IF EXISTS nothing")
    assert (con.execute("FROM dp_budget()").fetchall(), con.execute("FROM dp_ledger()").fetchall()) == before


@cases("more", ["", ", delta := 1e-6", ", keys := 'private', delta := 1e-6", ", max_rows_per_unit := 1"], quick=1)
def test_counts_and_sums_are_as_noisy_as_it_says(con: Any, more: str) -> None:
    sql = "SELECT ward, count(*) AS n, sum(days) AS s FROM visits GROUP BY ward"
    expected = {column: value for column, quantity, value, _ in told(con, sql, more) if quantity == "std_error"}
    call = f"FROM dp_query({literal(sql)}, epsilon := 1.0, errors := true{more})"
    for n, s in con.execute(f"SELECT n_error, s_error {call}").fetchall():
        assert (n, s) == pytest.approx((expected["n"], expected["s"]), rel=0.01)


def test_a_drawn_limit_is_a_factor(con: Any) -> None:
    sql = "SELECT count(*) AS n FROM visits"
    lines = told(con, sql, ", max_rows_per_unit := 'drawn'")
    assert [one[1] for one in lines] == ["epsilon", "persons_off", "std_error"]
    assert lines[2][3].endswith("times the limit on rows that is drawn")
    [(_, _, one, _)] = [line for line in told(con, sql, ", max_rows_per_unit := 1") if line[1] == "std_error"]
    assert lines[2][2] == pytest.approx(one / 0.95, rel=0.01)


def test_a_drawn_limit_is_no_factor_of_a_number_of_persons(con: Any) -> None:
    """Each counts once, in noise as in words."""
    sql = "SELECT count(DISTINCT patient) AS n FROM visits"
    [(_, _, drawn, meaning)] = [
        one for one in told(con, sql, ", max_rows_per_unit := 'drawn'") if one[1] == "std_error"
    ]
    assert "limit" not in meaning
    [(_, _, one, _)] = [line for line in told(con, sql, ", max_rows_per_unit := 5") if line[1] == "std_error"]
    assert drawn == pytest.approx(one / 0.95, rel=0.01)


def test_a_query_of_public_tables_costs_nothing(con: Any) -> None:
    assert [line[:3] for line in told(con, "SELECT beds FROM wards")] == [(None, "epsilon", 0.0)]


def test_its_columns_are_always_the_same(con: Any) -> None:
    call = f"FROM dp_query({literal(QUERY)}, epsilon := 1, estimate := true)"
    kinds = [("column", "VARCHAR"), ("quantity", "VARCHAR"), ("value", "DOUBLE"), ("meaning", "VARCHAR")]
    assert described(con, call) == kinds


def test_what_is_refused_is_refused_here_too(con: Any) -> None:
    with pytest.raises(duckdb.Error, match="P102"):
        told(con, "SELECT * FROM visits")


ASKED = {
    "groups": (QUERY, ""),
    "a cap that is drawn": ("SELECT count(*) AS n FROM visits", ", max_rows_per_unit := 'drawn'"),
    "private keys": ("SELECT days, count(*) AS n FROM visits GROUP BY days", ", keys := 'private', delta := 1e-6"),
    "bounds": ("SELECT avg(days * 2) AS a FROM visits", ", lower := {days: 0}, upper := {days: 7}"),
    "nobody": ("SELECT 1 AS one", ""),
    "the present": ("SELECT count(*) AS n FROM visits WHERE days < date_part('year', now())", ""),
}


@cases("name", ASKED, quick=1)
def test_dp_estimate_has_the_lines_of_the_query(con: Any, name: str) -> None:
    sql, more = ASKED[name]
    expected = [
        (quantity if column is None else f"{quantity} of {column}", value, meaning)
        for column, quantity, value, meaning in told(con, sql, more)
    ]

    def call(sql: str, epsilon: str) -> str:
        return f"FROM dp_estimate('dp_query', sql := {sql}, epsilon := {epsilon}{more})"

    assert con.execute(call(literal(sql), "1")).fetchall() == expected
    assert con.execute(call("?", "1"), [sql]).fetchall() == expected
    each = con.execute(f"SELECT e.* FROM (VALUES (1.0)) AS v(x), LATERAL ({call(literal(sql), 'x')}) AS e")
    assert sorted(each.fetchall()) == sorted(expected)  # no join promises an order
    assert con.execute("SELECT releases FROM dp_budget()").fetchall() == [(0,)]


def test_dp_estimate_is_the_same_in_python(con: Any) -> None:
    ctx = dpsql.Context(con)
    rows = ctx.dp_estimate("dp_query", sql=QUERY, epsilon=1).to_pylist()
    assert [tuple(row.values()) for row in rows] == con.execute(
        f"FROM dp_estimate('dp_query', sql := {literal(QUERY)}, epsilon := 1)"
    ).fetchall()


def test_dp_estimate_of_dated_rows_takes_periods(con: Any) -> None:
    con.execute(
        "CREATE TABLE stays AS SELECT i AS patient, DATE '2026-01-01' + CAST(i AS INTEGER) AS day FROM range(90) AS r(i)"
    )
    con.execute(
        "SELECT dp_protect('stays', epsilon := 3, privacy_unit := 'patient', max_rows_per_unit := 1, period := 'month', "
        "period_of := 'day')"
    ).fetchall()
    call = "FROM dp_estimate('dp_query', sql := 'SELECT count(*) AS n FROM stays', epsilon := 1{})"
    with pytest.raises(duckdb.Error, match="P110"):
        con.execute(call.format("")).fetchall()
    assert con.execute(call.format(", during := '2026-02'")).fetchall()[0][:2] == ("epsilon", 1.0)


@cases(
    ("arguments", "code"),
    [
        ("epsilon := 1", "P100"),
        ("sql := 7, epsilon := 1", "P1"),
        ("sql := 'SELECT count(*) FROM visits'", "P001"),
        ("sql := 'SELECT * FROM visits', epsilon := 1", "P102"),
        ("sql := 'SELECT count(*) FROM visits', epsilon := 1, n_rows := 5", "P016"),
        ("sql := 'SELECT count(*) FROM visits', epsilon := 1, k := 5", "P016"),
    ],
    quick=1,
)
def test_what_dp_estimate_refuses_of_a_query(con: Any, arguments: str, code: str) -> None:
    with pytest.raises(duckdb.Error, match=code):
        con.execute(f"FROM dp_estimate('dp_query', {arguments})").fetchall()


@cases("argument", ["sql := 'SELECT 1'", "during := '2026-01'"], quick=1, alone=True)
def test_other_functions_have_no_statement(con: Any, argument: str) -> None:
    with pytest.raises(duckdb.Error, match="P016"):
        con.execute(f"FROM dp_estimate('dp_count', epsilon := 1, {argument})").fetchall()


@cases("aggregate", ["avg(days)", "var_samp(days)", "stddev_pop(days)"], quick=1)
def test_what_may_be_undetermined_says_how_many_rows_it_takes(aggregate: str) -> None:
    """A group of the rows that are told is there in about half of calls: without rows it is seldom there, with 16 times as many always."""
    with dpsql.connect() as con:
        con.execute("CREATE TABLE t AS SELECT 0 AS g, 0.0::DOUBLE AS days FROM range(0)")
        con.execute("SELECT dp_protect('t', epsilon := 1e6, keys := {g: [0]}, lower := {days: 0}, upper := {days: 14})")
        sql = f"SELECT g, {aggregate} AS a FROM t GROUP BY g"
        [needed] = [value for _, quantity, value, _ in told(con, sql) if quantity == "rows_needed"]
        shown = []
        for rows in (0, 16 * needed):
            con.execute(f"INSERT INTO t SELECT 0, 14.0 * (i % 2) FROM range({int(rows)}) AS r(i)")
            call = f"SELECT a, covers FROM dp_query({literal(sql)}, epsilon := 1, errors := true, fresh := true)"
            shown.append([con.execute(call).fetchone() for _ in range(8)])
    words = f"; undetermined: a group needs about {int(needed)} rows, or half as many at twice the epsilon"
    for value, covers in (*shown[0], *shown[1]):
        assert (value is None) == covers.endswith(words)
    # Noise beyond 95 % of itself 8 times, or beyond 40 scales: wrong with a chance below 1e-10.
    assert any(value is None for value, _ in shown[0])
    assert all(value is not None for value, _ in shown[1])
