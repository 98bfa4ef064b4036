"""Questions without epsilon or delta: the owner's defaults, what needs a delta, and keys that are private by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.installation import session_of
from support.cases import cases

QUERY = "FROM dp_query($$ {} $$, max_rows_per_unit := 1{})"
DEFAULTS = "default_epsilon := 1, default_delta := 1e-6, default_daily_epsilon := 100"
FRESH = ("max_rows", "fresh := true, max_rows")
BY_TAG = "SELECT tag, count(*) FROM visits GROUP BY tag"
BY_WARD = "SELECT ward, count(*) FROM visits GROUP BY ward"


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """Visits with private tags and declared wards; the owner states both defaults."""
    connection = dpsql.connect()
    connection.execute(
        "CREATE TABLE visits AS SELECT i AS patient, 't' || (i % 2) AS tag, ['A', 'B'][i % 2 + 1] AS ward, i % 9 AS days, "
        "DATE '2026-01-01' + (i % 90)::INTEGER AS day, i % 3 = 0 AS smoker FROM range(4000) r(i)"
    )
    connection.execute("CREATE TABLE labs AS SELECT i AS patient, i % 7 AS level FROM range(4000) r(i)")
    protect(connection, DEFAULTS)
    yield connection
    connection.close()


def protect(con: duckdb.DuckDBPyConnection, defaults: str, table: str = "visits", **more: str) -> None:
    keys = "keys := {ward: ['A', 'B']}, " if table == "visits" else ""
    con.execute(
        f"SELECT dp_protect('{table}', epsilon := 1000, delta := 0.01, privacy_unit := 'patient', max_rows_per_unit := 1, "
        f"{keys}replace := true, {defaults})"
    )


def asked(sql: str, arguments: str = "") -> str:
    return QUERY.format(sql, f", {arguments}" if arguments else "")


def last(con: duckdb.DuckDBPyConnection) -> tuple[Any, ...]:
    """Return epsilon, delta and which amounts were defaults, of the ledger's last entry."""
    entry = session_of(con).ledger.entries()[-1]
    of_default = entry.guarantee.partition("; ")[2].partition(" by default")[0]
    return entry.kind, entry.epsilon, entry.delta, of_default if " by default" in entry.guarantee else ""


@cases(
    ("statement", "entry"),
    [
        (asked("SELECT count(*) FROM visits"), (1, 0, "epsilon")),
        (asked("SELECT count(*) FROM visits", "epsilon := 2"), (2, 0, "")),
        (asked(BY_WARD), (1, 0, "epsilon")),
        (asked("SELECT smoker, count(*) FROM visits GROUP BY smoker"), (1, 0, "epsilon")),
        (asked("SELECT day, count(*) FROM visits WHERE day BETWEEN '2026-01-01' AND '2026-01-09' GROUP BY day"), (1, 0, "epsilon")),
        (asked("SELECT days, count(*) FROM visits WHERE days IN (1, 2) GROUP BY days"), (1, 0, "epsilon")),
        (asked(BY_TAG, "keys := {tag: ['t0', 't1']}"), (1, 0, "epsilon")),
        (asked(BY_TAG), (1, 1e-6, "epsilon and delta")),
        (asked(BY_TAG, "epsilon := 2"), (2, 1e-6, "delta")),
        (asked(BY_TAG, "delta := 1e-7"), (1, 1e-7, "epsilon")),
        (asked(BY_TAG, "keys := 'private'"), (1, 1e-6, "epsilon and delta")),
        (asked(BY_WARD, "keys := 'private'"), (1, 1e-6, "epsilon and delta")),
        ("FROM dp_count('visits')", (1, 0, "epsilon")),
        ("FROM dp_count('visits', by := 'ward')", (1, 0, "epsilon")),
        ("FROM dp_count('visits', by := 'smoker')", (1, 0, "epsilon")),
        ("FROM dp_count('visits', by := 'tag', keys := ['t0'])", (1, 0, "epsilon")),
        ("FROM dp_count('visits', by := 'tag')", (1, 1e-6, "epsilon and delta")),
        ("FROM dp_count('visits', by := ['ward', 'tag'])", (1, 1e-6, "epsilon and delta")),
        ("FROM dp_count('visits', by := 'tag', epsilon := 2, delta := 1e-7)", (2, 1e-7, "")),
        ("FROM dp_count('visits', noise := 'gaussian')", (1, 1e-6, "epsilon and delta")),
        ("FROM dp_aggregate('visits', target := 'days', aggregates := 'sum', lower := 0, upper := 9, by := 'tag')", (1, 1e-6, "epsilon and delta")),
    ],
)  # fmt: skip
def test_what_a_question_spends(con: duckdb.DuckDBPyConnection, statement: str, entry: tuple[Any, ...]) -> None:
    """Delta is spent where a part needs one alone, and public keys go before private ones."""
    con.execute(statement.replace(*FRESH)).fetchall()
    assert last(con) == ("release", *entry)


@cases(
    ("left_out", "stated"),
    [
        (asked("SELECT count(*) FROM visits"), asked("SELECT count(*) FROM visits", "epsilon := 1.0")),
        (asked(BY_TAG), asked(BY_TAG, "epsilon := 1, delta := 0.000001")),
        (asked(BY_TAG), asked(BY_TAG, "epsilon := 1, delta := 1e-6, keys := 'private'")),
        ("FROM dp_count('visits', release := 'all')", "FROM dp_count('visits', epsilon := 1, release := 'all')"),
        (
            "FROM dp_count('visits', by := 'tag', release := 'tags')",
            "FROM dp_count('visits', by := 'tag', epsilon := 1, delta := 1e-6, keys := 'private', release := 'tags')",
        ),
    ],
)
def test_a_default_is_the_amount_that_it_states(con: duckdb.DuckDBPyConnection, left_out: str, stated: str) -> None:
    """Both are one question, in either order: the second is a replay."""
    for number, pair in enumerate(((left_out, stated), (stated, left_out))):
        first, second = (statement.replace("release := '", f"release := '{number}") for statement in pair)
        answer = con.execute(first.replace(*FRESH)).fetchall()
        assert con.execute(second).fetchall() == answer
        assert session_of(con).ledger.entries()[-1].kind == "replay"


def test_no_row_decides_what_a_question_spends(con: duckdb.DuckDBPyConnection) -> None:
    """Plans over no rows, few rows and all rows are the same; planted: delta where groups are few."""
    statements = (asked(BY_TAG), asked(BY_WARD), "FROM dp_count('visits', by := 'tag')", "FROM dp_count('visits')")
    spent = []
    for rows in ("true", "tag = 't0'", "false"):
        con.execute(f"DELETE FROM visits WHERE NOT ({rows})")
        for statement in statements:
            con.execute(statement.replace(*FRESH)).fetchall()
            spent.append(last(con))
    assert spent == spent[: len(statements)] * 3


def refusal(con: duckdb.DuckDBPyConnection, statement: str) -> str:
    """Return the text of a refusal; nothing is charged."""
    before = len(session_of(con).ledger.entries())
    with pytest.raises(duckdb.Error) as caught:
        con.execute(statement).fetchall()
    assert len(session_of(con).ledger.entries()) == before
    return str(caught.value)


@cases(
    ("statement", "code", "fixes"),
    [
        (asked("SELECT count(*) FROM visits"), "P001", ["epsilon := 1.0", "default_epsilon := 0.1, replace := true"]),
        ("FROM dp_count('visits')", "P001", ["epsilon := 1.0", "default_epsilon := 0.1, replace := true"]),
        (asked(BY_TAG, "epsilon := 1"), "P065", ["keys := {", "public table", "delta := 1e-6"]),
        (asked("SELECT day, count(*) FROM visits GROUP BY day", "epsilon := 1"), "P065", ["WHERE", "DATE", "delta := 1e-6"]),
        (asked("SELECT days, count(*) FROM visits GROUP BY days", "epsilon := 1"), "P065", ["BETWEEN", "delta := 1e-6"]),
        (asked("SELECT year(day), count(*) FROM visits GROUP BY 1", "epsilon := 1"), "P065", ["\"day\" >=", "delta := 1e-6"]),
        ("FROM dp_count('visits', by := 'tag', epsilon := 1)", "P065", ["keys := [...]", "delta := 1e-6"]),
    ],
)  # fmt: skip
def test_without_defaults_a_refusal_names_the_free_fix_first(
    con: duckdb.DuckDBPyConnection, statement: str, code: str, fixes: list[str]
) -> None:
    protect(con, "default_epsilon := 'none', default_delta := 'none'")
    text = refusal(con, statement)
    assert code in text
    places = [text.index(fix) for fix in fixes]
    assert places == sorted(places)


def test_the_fix_of_the_owner_works(con: duckdb.DuckDBPyConnection) -> None:
    protect(con, "default_epsilon := 'none', default_delta := 'none'")
    text = refusal(con, "FROM dp_count('visits')")
    con.execute(text[text.index("SELECT dp_protect(") :].splitlines()[0])
    con.execute("FROM dp_count('visits')").fetchall()
    assert last(con)[1] == 0.1


def test_the_smallest_default_of_several_budgets(con: duckdb.DuckDBPyConnection) -> None:
    both = asked("SELECT count(*) FROM visits JOIN labs USING (patient)")
    for stated, spent in (
        ("default_epsilon := 0.5", 0.5),
        ("default_epsilon := 3", 1),
        ("default_epsilon := 'none'", 1),
    ):
        protect(con, stated, "labs")
        con.execute(both.replace(*FRESH)).fetchall()
        assert last(con)[1] == spent
        [of_visits, of_labs] = session_of(con).ledger.entries()[-2:]
        assert {of_visits.dataset, of_labs.dataset} == {"visits", "labs"}
        assert of_visits.epsilon == of_labs.epsilon


def test_a_day_of_questions_that_state_no_epsilon(con: duckdb.DuckDBPyConnection) -> None:
    protect(con, "default_daily_epsilon := 2")
    for _ in range(2):
        con.execute("FROM dp_count('visits')").fetchall()
    for statement in ("FROM dp_count('visits')", asked(BY_TAG), "FROM dp_count('visits', by := 'tag')"):
        text = refusal(con, statement)
        assert "B022" in text
        assert "epsilon := 1." in text
    con.execute("FROM dp_count('visits', epsilon := 1)").fetchall()
    assert last(con) == ("release", 1, 0, "")
    con.execute("SELECT dp_protect('visits', default_daily_epsilon := 3, replace := true)")
    con.execute("FROM dp_count('visits')").fetchall()


def test_what_dp_policy_says(con: duckdb.DuckDBPyConnection) -> None:
    stated = "SELECT argument, value FROM dp_policy() WHERE argument LIKE 'default%'"
    assert con.execute(stated).fetchall() == [
        ("default_epsilon", "1"),
        ("default_delta", "1e-06"),
        ("default_daily_epsilon", "100"),
    ]
    protect(con, DEFAULTS.replace("1e-6", "'none'").replace("100", "'none'").replace("1,", "'none',"))
    assert con.execute(stated).fetchall() == []


def test_what_a_question_would_spend(con: duckdb.DuckDBPyConnection) -> None:
    lines = con.execute(f"SELECT quantity, value FROM ({asked(BY_TAG, 'estimate := true')})").fetchall()
    assert ("epsilon", 1.0) in lines
    assert ("delta", 1e-6) in lines
