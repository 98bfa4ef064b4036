"""What grouped aggregates cost, and when: one event for a call, and nothing for what is refused or only planned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.statistics.aggregates import Labels
from support.cases import cases

ALL = "aggregates := ['count', 'sum', 'avg', 'stddev'], target := ['x', 'y'], lower := 0, upper := 10"
PUBLIC = f"dp_aggregate('t', {ALL}, by := 'h', keys := range(50), epsilon := 0.5)"
PRIVATE = f"dp_aggregate('t', {ALL}, by := 'h', keys := 'private', delta := 1e-6, epsilon := 0.5)"


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    made = dpsql.connect()
    made.execute("CREATE TABLE t AS SELECT i % 5 AS h, i % 11 AS x, i % 7 AS y, i AS unit FROM range(500) AS r(i)")
    made.execute("SELECT dp_protect('t', epsilon := 2, delta := 1e-5)").fetchall()
    yield made
    made.close()


def spent(con: Any) -> list[tuple[float, float]]:
    return con.execute(
        "SELECT epsilon, coalesce(delta, 0) FROM dp_ledger() WHERE kind = 'release' ORDER BY ALL"
    ).fetchall()


@pytest.mark.parametrize(("call", "cost"), [(PUBLIC, (0.5, 0.0)), (PRIVATE, (0.5, 1e-6))])
def test_one_event_for_all_groups_and_aggregates(con: Any, call: str, cost: tuple[float, float]) -> None:
    con.execute(f"FROM {call}").fetchall()
    assert spent(con) == [pytest.approx(cost)]


@cases("call", [PUBLIC, PRIVATE])
@cases(
    "way",
    ["EXPLAIN FROM {}", "DESCRIBE FROM {}", "PREPARE p AS FROM {}", "CREATE VIEW v AS FROM {}", "FROM {} LIMIT 0"],
)
def test_what_is_only_planned_is_free(con: Any, call: str, way: str) -> None:
    con.execute(way.format(call)).fetchall()
    assert spent(con) == []


@cases(
    ("more", "code"),
    [
        ("by := 'h', keys := ['a']", "P067"),
        ("by := 'h', keys := ['1', '01']", "P044"),
        ("by := 'h'", "P065"),
        ("by := 'h', keys := 'private'", "P069"),
        ("by := 'h', keys := [1], noise := 'gaussian'", "P046"),
        ("by := 'nowhere', keys := [1]", "S"),
        ("keys := [1]", "P046"),
        ("other := true", "P045"),
        ("max_groups_per_unit := 2", "P0"),
        ("by := 'h', keys := [1], privacy_unit := 'unit'", "P009"),
        ("unit_value := 'sum'", "P046"),
        ("by := 'h', keys := [1], confidence := 1", "P"),
    ],
)
def test_what_is_refused_is_free(con: Any, more: str, code: str) -> None:
    with pytest.raises(duckdb.Error, match=f"DPSQL-{code}"):
        con.execute(f"FROM dp_avg('t', target := 'x', lower := 0, upper := 10, epsilon := 0.5, {more})").fetchall()
    assert spent(con) == []


def test_the_budget_is_one_for_all_groups(con: Any) -> None:
    for _ in range(4):
        con.execute(f"FROM {PUBLIC}").fetchall()
    with pytest.raises(duckdb.Error, match="B001"):
        con.execute(f"FROM {PUBLIC}").fetchall()
    assert len(spent(con)) == 4


@pytest.mark.parametrize("failing", ["add_labels", "in_order"])
def test_a_failure_after_the_noise_was_drawn_is_charged_once(
    con: Any, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("a secret of the rows")

    monkeypatch.setattr(Labels, failing, fail)
    with pytest.raises(duckdb.Error, match="DPSQL-I") as failure:
        con.execute(f"FROM {PRIVATE}").fetchall()
    assert "secret" not in str(failure.value)
    assert spent(con) == [pytest.approx((0.5, 1e-6))]
    monkeypatch.undo()
    con.execute(f"FROM {PRIVATE}").fetchall()
    assert len(spent(con)) == 2


def test_correlated_calls_are_refused(con: Any) -> None:
    call = "dp_count('t', by := 'h', keys := [o.h], epsilon := 0.1)"
    with pytest.raises(duckdb.Error):
        con.execute(f"SELECT (SELECT value FROM {call}) FROM (SELECT 1 AS h) AS o").fetchall()
    own = "SELECT (SELECT dp_count(x, epsilon := 0.1) FROM t WHERE t.h = o.h) FROM (SELECT DISTINCT h FROM t) AS o"
    with pytest.raises(duckdb.Error, match="DPSQL"):
        con.execute(own).fetchall()
    assert spent(con) == []


def test_groups_of_a_protected_table_are_no_groups_of_the_aggregate_form(con: Any) -> None:
    with pytest.raises(duckdb.Error, match="DPSQL"):
        con.execute("SELECT h, dp_count(x, epsilon := 0.1) FROM t GROUP BY h").fetchall()
    assert spent(con) == []


def test_private_keys_have_no_rho() -> None:
    """Their loss is no zCDP at any rho: a budget under rho refuses them, and the RDP accountant takes their epsilon."""
    private = "FROM dp_count('t', by := 'h', keys := 'private', delta := 1e-6, epsilon := {})"
    for budget, code in (("rho := 0.5", "DPSQL-"), ("epsilon := 1, delta := 1e-5, accountant := 'rdp'", "B001")):
        with dpsql.connect() as con:
            con.execute("CREATE TABLE t AS SELECT i % 5 AS h, i AS x FROM range(500) AS r(i)")
            con.execute(f"SELECT dp_protect('t', {budget})").fetchall()
            if "rho" not in budget:
                con.execute(private.format(0.5)).fetchall()
            with pytest.raises(duckdb.Error, match=code) as refusal:
                con.execute(private.format(0.9)).fetchall()
            assert "rho" not in budget or "rho" in str(refusal.value)
            assert len(spent(con)) == ("rho" not in budget)


def test_the_owners_limits(con: Any) -> None:
    """With a stated privacy unit a call takes it, and no other."""
    con.execute("SELECT dp_protect('t', privacy_unit := 'unit', max_rows_per_unit := 2, replace := true)").fetchall()
    con.execute("FROM dp_count('t', by := 'h', keys := [1, 2], epsilon := 0.1)").fetchall()
    [(guarantee,)] = con.execute("SELECT guarantee FROM dp_ledger() WHERE kind = 'release'").fetchall()
    assert "unit" in guarantee
    with pytest.raises(duckdb.Error, match="DPSQL"):
        con.execute(
            "FROM dp_count('t', by := 'h', keys := [1], privacy_unit := 'x', max_rows_per_unit := 1, epsilon := 0.1)"
        )
