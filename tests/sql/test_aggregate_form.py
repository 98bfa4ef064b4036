"""The aggregate form feeds the mechanism with the same integers as the table form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pytest
from exact_reference import exact

import dpsql
from dpsql.functions import sis
from dpsql.udfs import release, values
from support.cases import cases


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    opened = dpsql.connect()
    opened.execute(
        "CREATE TABLE t AS SELECT i, i % 3 AS g, ((i * 7919) % 1009) / 1009.0 AS a, ((i * 31) % 101) / 101.0 AS b, "
        "CASE WHEN i % 7 = 0 THEN NULL ELSE i % 2 = 0 END AS y FROM range(5000) AS r(i)"
    )
    yield opened
    opened.close()


@pytest.fixture
def utilities(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """What the mechanism is given, instead of what it draws."""
    seen: list[list[int]] = []

    def draw(plan: Any, utility: Any, features: Any) -> list[str]:
        seen.append([int(value) for value in utility])
        return list(features[: plan.k])

    monkeypatch.setattr(sis, "draw_selection", draw)
    return seen


B = "k := 1, epsilon := 1, lower := 0, upper := 1"


@pytest.mark.parametrize(
    "x", ["[a, b]", "[a, b]::FLOAT[]", "array_value(a, b)", "{'a': a, 'b': b}", "list_value(*COLUMNS(['a', 'b']))"]
)
def test_utilities_are_the_absolute_sums_of_the_table_form(con: Any, utilities: list[list[int]], x: str) -> None:
    # In their order: DuckDB 2.0.1 takes the arguments of a macro by place where *COLUMNS stands in one.
    given = B.replace("lower", "n_features := 2, names := NULL, lower") if x.startswith(("[", "list")) else B
    con.execute(f"SELECT dp_sis({x}, y, {given}) FROM t").fetchall()
    con.execute(f"SELECT * FROM dp_sis('t', target := 'y', features := ['a', 'b'], {B})").fetchall()
    expected = [abs(value) for value in exact(con, "t", target="y", features=["a", "b"], lower=0, upper=1)]
    if "FLOAT" in x:
        con.execute("CREATE OR REPLACE TABLE f AS SELECT a::FLOAT AS a, b::FLOAT AS b, y FROM t")
        single = [abs(value) for value in exact(con, "f", target="y", features=["a", "b"], lower=0, upper=1)]
        assert utilities == [single, expected]
    else:
        assert utilities == [expected, expected]


def test_groups_filters_and_no_rows(con: Any, utilities: list[list[int]]) -> None:
    rows = con.execute(f"SELECT g, dp_sis([a, b], y, n_features := 2, {B}) FROM t GROUP BY g ORDER BY g").fetchall()
    assert [row[0] for row in rows] == [0, 1, 2]
    for g in range(3):
        con.execute(f"CREATE OR REPLACE VIEW v AS SELECT a, b, y FROM t WHERE g = {g}")
        assert [abs(value) for value in exact(con, "v", target="y", lower=0, upper=1)] in utilities
    con.execute(f"SELECT dp_sis([a, b], y, n_features := 2, {B}) FROM t WHERE a > 5").fetchall()
    assert utilities[-1] == [0, 0]


def test_batches_add_up(con: Any, utilities: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "_BATCH", 999)
    con.execute(f"SELECT dp_sis([a, b], y, n_features := 2, {B}) FROM t").fetchall()
    monkeypatch.undo()
    assert utilities == [[abs(value) for value in exact(con, "t", target="y", features=["a", "b"], lower=0, upper=1)]]


def test_huge_sums_from_sql_stay_exact() -> None:
    con = duckdb.connect()
    seen: list[Any] = []

    def look(rows: Any) -> Any:
        seen.append(values.integers(rows[0], 3))
        return rows.combine_chunks().value_lengths()

    try:
        con.create_function("look", look, ["HUGEINT[]"], "BIGINT", type="arrow")
        for given in ([2**100, -(2**100), 5], [-(2**63), 1, 2], [2**63 - 1, 0, -1], [2**64, 2**63, -(2**64) - 1]):
            con.execute(f"SELECT look([{', '.join(f'{value}::HUGEINT' for value in given)}])").fetchall()
            assert [int(value) for value in np.abs(seen[-1])] == [abs(value) for value in given]
    finally:
        con.close()


def test_arguments_are_constants(con: Any) -> None:
    """An argument that follows the data would make epsilon, k or an error message tell about it."""
    for argument in ("max(i)", "count(*)", "g", "(SELECT max(i) FROM t)"):
        for name in ("k", "epsilon"):
            more = {"k": "1", "epsilon": "1", name: argument}
            named = ", ".join(f"{key} := {value}" for key, value in more.items())
            with pytest.raises(duckdb.Error) as failure:
                con.execute(
                    f"SELECT dp_sis([a, b], y, n_features := 2, lower := 0, upper := 1, {named}) FROM t GROUP BY g"
                ).fetchall()
            assert "4999" not in str(failure.value)
            assert "1666" not in str(failure.value)
    assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == [(0,)]
    assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_a_release_name_needs_one_group(con: Any) -> None:
    with pytest.raises(duckdb.Error, match="DPSQL-P047"):
        con.execute(f"SELECT dp_sis([a, b], y, n_features := 2, {B}, release := 'r') FROM t GROUP BY g").fetchall()
    assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == [(0,)]
    first = con.execute(f"SELECT dp_sis([a, b], y, n_features := 2, {B}, release := 'r') FROM t").fetchall()
    again = con.execute(f"SELECT dp_sis([a, b], y, n_features := 2, {B}, release := 'r') FROM t").fetchall()
    assert first == again
    assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == [(1,)]


@cases("groups", [1, 2, 5000])
@cases(
    "form",
    [
        "dp_sis([a, b], y, n_features := 2, k := 1, epsilon := 1, lower := 0, upper := 1, target_lower := 0, "
        "target_upper := 1, release := 'r')",
        "dp_bounds(y, epsilon := 1, release := 'r')",
    ],
)
def test_groups_never_share_the_name_of_a_release(form: str, groups: int) -> None:
    """A name with GROUP BY is refused before a row is read, whatever the groups turn out to be."""
    with dpsql.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT random() AS a, random() AS b, random() AS y, i AS g FROM range(5000) AS r(i)"
        )
        with pytest.raises(duckdb.Error, match="DPSQL-P047"):
            con.execute(f"SELECT g % {groups}, {form} FROM t GROUP BY 1").fetchall()
        [(number,)] = con.execute("SELECT count(*) FROM dp_ledger()").fetchall()
        assert number == 0
