"""SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (…): options are arguments, at every door, and change nothing silently."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.cli.dot_commands import split_all
from dpsql.contract.query.nodes import query_sql
from dpsql.contract.query.tree import read_tree
from dpsql.parsing import PARSER, in_dp_query, with_call, without_call
from support.cases import cases
from support.sql_text import literal

DP = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS"
GROUPED = "zone, count(*) AS n FROM rides GROUP BY zone ORDER BY zone"


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    """2,000 riders in 'a' and 'b', and 30 in 'c'."""
    with dpsql.connect() as opened:
        opened.execute(
            "CREATE TABLE rides AS SELECT i % 2000 AS rider, CASE WHEN i < 60 THEN 'c' WHEN i % 2 = 0 THEN 'a' ELSE 'b' END AS zone, "
            "i % 50 AS fare FROM range(4000) r(i)"
        )
        opened.execute("CREATE TABLE codes AS SELECT 'a' AS zone")
        opened.execute("SELECT dp_public('codes')")
        opened.execute(
            "SELECT dp_protect('rides', epsilon := 1e6, delta := 1e-2, privacy_unit := 'rider', max_rows_per_unit := 2, "
            "keys := {zone: ['a', 'b', 'c']})"
        )
        yield opened


def ask(con: Any, sql: str, more: str = "") -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = con.execute(f"FROM dp_query({literal(sql)}{more})").fetchall()
    return found


def entries(con: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = con.execute("SELECT kind, epsilon, guarantee FROM dp_ledger()").fetchall()
    return found


@cases(
    ("options", "arguments"),
    [
        ("(epsilon = 3)", "epsilon := 3"),
        ("(epsilon = 4.0, delta = 1e-6)", "epsilon := 4, delta := 0.000001"),
        ("(epsilon = 5, max_rows_contributed = 1)", "epsilon := 5, max_rows_per_unit := 1"),
        (
            "(epsilon = 6, max_groups_contributed = 1, privacy_unit_column = rider)",
            "epsilon := 6, max_groups_per_unit := 1",
        ),
        ("(epsilon = 8, max_groups_contributed = NULL)", "epsilon := 8"),
        ("(EPSILON = 7, privacy_unit_column = r.Rider)", "epsilon := 7"),
    ],
)
def test_options_are_arguments(con: Any, options: str, arguments: str) -> None:
    """One is the replay of the other."""
    answer = ask(con, f"{DP} {options} {GROUPED.replace('rides', 'rides r')}")
    before = len(entries(con))
    assert ask(con, f"SELECT {GROUPED}", f", {arguments}") == answer
    assert [kind for kind, _, _ in entries(con)[before:]] == ["replay"]


def test_every_door_reads_them(con: Any) -> None:
    sql = f"{DP} (epsilon = 11)\n {GROUPED}"
    answer, before = ask(con, sql), len(entries(con))
    context = dpsql.Context(con)
    assert ask(con, sql, ", epsilon := 11") == answer
    assert [tuple(row.values()) for row in context.query(sql).value.to_pylist()] == answer
    assert [tuple(row.values()) for row in context.sql(sql).to_pylist()] == answer
    [piece] = split_all(f"{sql};")
    assert con.execute(piece.text).fetchall() == answer
    assert ask(con, f"SELECT zone, n FROM ({sql}) ORDER BY 1") == answer
    assert (
        ask(
            con,
            f"WITH x AS ({DP.replace('DIFFERENTIAL_PRIVACY', 'anonymization')} (epsilon = 11) {GROUPED}) FROM x ORDER BY 1",
        )
        == answer
    )
    assert {kind for kind, _, _ in entries(con)[before:]} == {"replay"}
    estimated = "SELECT value FROM dp_estimate('dp_query', sql := {}) WHERE quantity = 'epsilon'"
    assert con.execute(estimated.format(literal(sql))).fetchall() == [(11.0,)]


@cases(
    ("sql", "arguments", "words"),
    [
        (f"{DP} (epsilon = 1, noise = 2) {GROUPED}", "", ("P016", "no option 'noise'", "min_privacy_units_per_group")),
        (f"{DP} (epsilon) {GROUPED}", "", ("P016", "no NAME = VALUE")),
        (f"{DP} (epsilon = fare) {GROUPED}", "", ("P016", "must be a number, written out")),
        (f"{DP} (epsilon = 0) {GROUPED}", "", ("P001", "epsilon must be a number")),
        (f"{DP} (epsilon = 1, epsilon = 1) {GROUPED}", "", ("P045", "twice")),
        (f"{DP} (epsilon = 1, kappa = 1, max_groups_contributed = 1) {GROUPED}", "", ("P045", "twice")),
        (f"{DP} (epsilon = 1) {GROUPED}", ", epsilon := 2", ("P045", "epsilon is 1 in the statement's OPTIONS and 2")),
        (
            f"{DP} (epsilon = 1, max_rows_contributed = 1) {GROUPED}",
            ", max_rows_per_unit := 'drawn'",
            ("P045", "'drawn'"),
        ),
        (f"{DP} (epsilon = 1, privacy_unit_column = zone) {GROUPED}", "", ("B003", "the owner stated 'rider'")),
        (f"{DP} (epsilon = 1, privacy_unit_column = 'rider') {GROUPED}", "", ("P016", "name of a column")),
        (f"{DP} (epsilon = 1, min_privacy_units_per_group = 1.5) {GROUPED}", "", ("min_privacy_units_per_group",)),
        (f"SELECT ({DP} (epsilon = 1) count(*) FROM rides)", "", ("P100", "subquery of an expression")),
        (f"{DP} (epsilon = 1) n FROM ({DP} (epsilon = 1) {GROUPED})", "", ("P100", "more than once")),
        (
            f"{DP} (epsilon = 1) sum(fare, contribution_bounds_per_group => (0, 9)) FROM rides",
            "",
            ("P106", "no contribution bounds"),
        ),
        (
            f"{DP} (epsilon = 1) count(*, contribution_bounds_per_group => (0, 9)) FROM rides",
            "",
            ("P106", "no contribution bounds"),
        ),
        (f"{DP} (epsilon = 1)\n nowhere, count(*) FROM rides GROUP BY 1", "", ("nowhere",)),
        (f"{DP} (epsilon = 1)\n zone, mode(fare) FROM rides GROUP BY 1", "", ("P106", "line 2, column 8: 'mode(fare)")),
    ],
)
def test_refused_calls_are_free(con: Any, sql: str, arguments: str, words: tuple[str, ...]) -> None:
    """Positions are those of the text as it was written."""
    before = entries(con)
    with pytest.raises(duckdb.Error) as refused:
        ask(con, sql, arguments)
    assert [word for word in words if word not in str(refused.value)] == []
    assert entries(con) == before


def test_groups_of_few_persons_are_not_shown(con: Any) -> None:
    """By the noisy number of persons that is released, over all rows and any HAVING; without groups there is none."""
    options = "(epsilon = 500, min_privacy_units_per_group = {})"
    for least, zones in ((1, "abc"), (200, "ab"), (1500, "")):
        found = ask(
            con,
            f"{DP} {options.format(least)} zone, sum(fare) AS s FROM rides GROUP BY zone ORDER BY zone",
            ", lower := 0, upper := 50",
        )
        assert "".join(zone for zone, _ in found) == zones
    noisy = [
        bool(
            ask(
                con,
                f"{DP} (epsilon = 0.1, min_privacy_units_per_group = 1000) zone, count(*) FROM rides WHERE zone = 'a' GROUP BY zone",
                ", fresh := true",
            )
        )
        for _ in range(60)
    ]
    assert True in noisy
    assert False in noisy
    assert len(ask(con, f"{DP} {options.format(10**6)} count(*) FROM rides")) == 1
    found = ask(
        con,
        f"{DP} {options.format(200)} zone, count(*) AS n FROM rides GROUP BY zone HAVING n > 10 ORDER BY 1",
        ", errors := true",
    )
    assert [row[0] for row in found] == ["a", "b"]


def test_an_average_is_of_rows_and_says_so(con: Any) -> None:
    words = "avg is the average of rows, not of the averages of persons"
    [row] = ask(con, f"{DP} (epsilon = 20) avg(fare) FROM rides", ", errors := true")
    assert row[-1].endswith(words)
    assert entries(con)[-1][-1].endswith(words)
    [row] = ask(con, f"{DP} (epsilon = 20) sum(fare) FROM rides", ", errors := true")
    assert words not in row[-1]
    assert words not in entries(con)[-1][-1]


@cases(
    ("sql", "parsed"),
    [
        (f"{DP}(epsilon=1)x", "SELECT dpsql_privacy(                   epsilon=1),x"),
        ("SELECT /* é */ WITH differential_privacy count(*)", "SELECT /* é */ dpsql_privacy(),          count(*)"),
        (f"SELECT '{DP} (epsilon = 1)', \"WITH\"", None),
        (f"-- {DP} (epsilon = 1)\nSELECT 1", None),
        ("SELECT differential_privacy FROM t", None),
        (f"{DP} (epsilon = (1", None),
        ("FROM dp_query($$SELECT WITH DIFFERENTIAL_PRIVACY 1$$)", None),
    ],
)
def test_offsets_stay(sql: str, parsed: str | None) -> None:
    """A clause in a string, a comment or a quoted name is none."""
    assert with_call(sql) == (sql if parsed is None else parsed) or "(1" in sql
    texts = (sql, with_call(sql), without_call(sql))
    assert len({len(text.encode()) for text in texts}) == 1
    assert (in_dp_query(sql) == sql) is (with_call(sql) == sql)
    if parsed is not None:
        tree = PARSER.tree(with_call(sql))
        assert '"error":false' in tree
        assert "dpsql_privacy" not in without_call(query_sql(read_tree(tree)))
