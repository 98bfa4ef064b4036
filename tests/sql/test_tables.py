"""dp_histogram, dp_crosstab, and dp_quantile and dp_bounds of groups, through SQL: what they count, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.functions.value_cells import BinCells, DerivedKey, EvenCells, MagnitudeCells
from dpsql.testing import audit_sql
from support.audits import connecting
from support.cases import cases

# So little noise that counts are exact.
EXACT = "epsilon := 1000"
ODD = [0.0, -0.0, 1.0, 1.5, 2.0, math.nextafter(2.0, 3), 5.0, 7.25, -3.0, 1e300, -1e300, math.inf, -math.inf, 5e-324]


@pytest.fixture
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        opened.execute("CREATE TABLE t (x DOUBLE, g VARCHAR, h INTEGER, p INTEGER)")
        values = [(x, "ab"[i % 2], i % 3, i) for i, x in enumerate([*ODD, None, math.nan])]
        opened.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", values)
        yield opened


def rows(con: Any, sql: str) -> list[tuple[Any, ...]]:
    return con.execute(sql).fetchall()  # type: ignore[no-any-return]


def test_bins_are_those_of_duckdb(con: Any) -> None:
    """Bins hold their upper end, and what is above all edges is in the last one; NaN is NULL."""
    edges = [-1, 0, 1, 2, 5]
    found = rows(con, f"SELECT upper, count FROM dp_histogram('t', target := 'x', bins := {edges}, {EXACT})")
    [(theirs,)] = rows(con, f"SELECT histogram(x, {edges}::DOUBLE[]) FROM t WHERE x IS NOT NULL AND NOT isnan(x)")
    known = {edge: count for edge, count in theirs.items() if math.isfinite(edge)}
    assert dict(found[: len(edges)]) == known
    assert found[len(edges)] == (None, sum(theirs.values()) - sum(known.values()))
    assert found[-1] == (None, 2)


def test_rows_of_a_histogram(con: Any) -> None:
    sql = f"FROM dp_histogram('t', target := 'x', lower := 0, upper := 10, n_bins := 2, null_bin := false, {EXACT})"
    [first, second] = rows(con, f"SELECT lower, upper, count, cumulative, std_error < 1e-9 {sql}")
    assert (first, second) == ((0, 5, 11, 11, True), (5, 10, 3, 14, True))


def test_a_bare_number_of_bins_is_so_many_bins(con: Any) -> None:
    """`bins := 2` is `n_bins := 2`, down to the fingerprint; a list holds edges, also a list of one."""
    ends = f"target := 'x', lower := 0, upper := 10, {EXACT}"
    named = [
        rows(con, f"FROM dp_histogram('t', {ends}, {bins}, release := 'h')") for bins in ("n_bins := 2", "bins := 2")
    ]
    assert named[0] == named[1]
    assert [row[:2] for row in named[0]] == [(0, 5), (5, 10), (None, None)]
    [(listed,)] = rows(con, f"SELECT dp_histogram(x, lower := 0, upper := 10, bins := 2, {EXACT}) FROM t")
    assert len(listed) == 3
    [edge, above, _] = rows(con, f"FROM dp_histogram('t', target := 'x', bins := [2], {EXACT})")
    assert (edge[:2], above[:2]) == ((None, 2), (2, None))
    estimates = [
        rows(con, f"FROM dp_estimate('dp_histogram', epsilon := 1, {bins})") for bins in ("n_bins := 9", "bins := 9")
    ]
    assert estimates[0] == estimates[1]


def test_groups_of_bins(con: Any) -> None:
    """Each listed key has all bins, also an empty one; other keys are one group more."""
    sql = f"FROM dp_histogram('t', target := 'x', bins := [1], by := 'g', keys := ['a', 'z'], other := true, {EXACT})"
    assert rows(con, f"SELECT g, other, upper, count, cumulative {sql}") == [
        ("a", False, 1.0, 5, 5), ("a", False, None, 2, 7), ("a", False, None, 1, None),
        ("z", False, 1.0, 0, 0), ("z", False, None, 0, 0), ("z", False, None, 0, None),
        (None, True, 1.0, 2, 2), (None, True, None, 5, 7), (None, True, None, 1, None),
    ]  # fmt: skip


@pytest.mark.parametrize("curve", ["tree", "wavelet", "toeplitz", "auto"])
def test_a_curve_counts_the_same(con: Any, curve: str) -> None:
    sql = "FROM dp_histogram('t', target := 'x', lower := 0, upper := 8, n_bins := 16, epsilon := 1e5, delta := 1e-6"
    found = rows(con, f"SELECT round(count, 1), round(cumulative, 1) {sql}, curve := '{curve}')")
    assert found == rows(con, f"SELECT count, cumulative {sql}, noise := 'laplace')")


def test_a_unit_counts_in_few_bins(con: Any) -> None:
    """The group that max_groups_per_unit counts is a pair of key and bin."""
    con.execute("CREATE TABLE u AS SELECT i % 5 AS p, i % 7 + 0.5 AS x, i % 2 AS g FROM range(1000) AS r(i)")
    base = f"SELECT sum(count) FROM dp_histogram('u', target := 'x', lower := 0, upper := 7, n_bins := 7, {EXACT}"
    limits = "privacy_unit := 'p', max_groups_per_unit := 2, max_rows_per_unit_group := 3"
    assert rows(con, f"{base}, {limits})") == [(5 * 2 * 3,)]
    assert rows(con, f"{base}, {limits}, by := 'g', keys := [0, 1])") == [(5 * 2 * 3,)]
    assert rows(con, f"{base}, privacy_unit := 'p', max_rows_per_unit := 4)") == [(5 * 4,)]


def test_the_aggregate_form(con: Any) -> None:
    table = rows(con, f"SELECT count FROM dp_histogram('t', target := 'x', bins := [0, 2], {EXACT})")
    [(listed,)] = rows(con, f"SELECT dp_histogram(x, bins := [0, 2], {EXACT}) FROM t")
    assert [(row["count"],) for row in listed] == table


def test_cells_of_sql_and_python_agree(con: Any) -> None:
    numbers = np.random.default_rng(3).normal(size=2000) * 10.0 ** np.random.default_rng(4).integers(-30, 30, size=2000)
    powers = [
        sign * 2.0**e * (1 + f / 16) for sign in (1, -1) for e in (-65, -64, -1, 0, 1, 63, 64, 65) for f in range(16)
    ]
    values = np.array([*ODD, math.nan, *numbers, *powers, *np.nextafter(powers, 0), *np.linspace(-4, 4, 801)])
    cells = {
        "even": DerivedKey(EvenCells(-3.3, 4.7, 1000), -3.3, 4.7, missing=False, divides=False),
        "bins": DerivedKey(BinCells(np.linspace(-3.3, 3.9, 101)), -math.inf, math.inf, missing=True, divides=True),
        "magnitudes": DerivedKey(MagnitudeCells(), -math.inf, math.inf, missing=False, divides=False),
    }
    con.execute("CREATE TABLE v (i INTEGER, x DOUBLE)")
    con.executemany("INSERT INTO v VALUES (?, ?)", list(enumerate(values.tolist())))
    for name, key in cells.items():
        found = dict(rows(con, f"SELECT i, cell FROM ({key.query('SELECT i, x AS number FROM v')})"))
        assert [found.get(i, -1) for i in range(len(values))] == key.of(values).tolist(), name


def test_quantiles_read_off_a_histogram(con: Any) -> None:
    con.execute("CREATE TABLE even AS SELECT i / 1000 AS x, i % 2 AS g FROM range(1, 1001) AS r(i)")
    given = f"target := 'x', lower := 0, upper := 1, n_bins := 10, by := 'g', keys := [0, 1], {EXACT}, release := 'h'"
    con.execute(f"FROM dp_histogram('even', {given})").fetchall()
    found = rows(
        con, "SELECT keys, quantile, round(value, 2) FROM dp_histogram_quantile('h', quantiles := [0.25, 0.5])"
    )
    assert found == [([key], at, at) for key in ("0", "1") for at in (0.25, 0.5)]
    context = dpsql.Context(con)
    assert context.dp_histogram_quantile("h", [0.25, 0.5]).num_rows == 4
    for wrong in ("'x'", "[0.5, 1.5]", "NULL"):
        with pytest.raises(duckdb.Error, match="DPSQL-P029"):
            rows(con, f"FROM dp_histogram_quantile('h', quantiles := {wrong})")
    with pytest.raises(duckdb.Error, match="DPSQL-P030"):
        rows(con, "FROM dp_histogram_quantile('nothing')")
    assert len(rows(con, "FROM dp_ledger()")) == 1


def test_a_table_and_its_margins(con: Any) -> None:
    """A row with an unlisted key is in no marginal; margins are sums of cells."""
    keys = "{'g': ['b', 'a'], 'h': [0, 2]}"
    sql = f"FROM dp_crosstab('t', rows := 'g', columns := 'h', keys := {keys}, noise := 'laplace', {EXACT})"
    assert rows(con, f"SELECT g, h, margin, round(count, 9) {sql}") == [
        (None, None, "total", 11), ("b", None, "g", 5), ("a", None, "g", 6), (None, 0, "h", 6), (None, 2, "h", 5),
        ("b", 0, "cells", 3), ("b", 2, "cells", 2), ("a", 0, "cells", 3), ("a", 2, "cells", 3),
    ]  # fmt: skip
    cells = rows(con, f"SELECT g, h, count {sql.replace('noise :=', 'margins := false, noise :=')}")
    assert cells == [("b", 0, 3), ("b", 2, 2), ("a", 0, 3), ("a", 2, 3)]


def test_noisy_margins_agree(con: Any) -> None:
    keys = "{'g': ['a', 'b'], 'h': [0, 1, 2], 'p': [1, 2, 3, 4]}"
    for noise in ("epsilon := 0.1, noise := 'laplace'", "epsilon := 1, delta := 1e-6, noise := 'gaussian'"):
        found = rows(
            con, f"SELECT g, h, p, count FROM dp_crosstab('t', by := ['g', 'h', 'p'], keys := {keys}, {noise})"
        )
        counts = {row[:3]: row[3] for row in found}
        assert len(found) == 1 + 2 + 3 + 4 + 6 + 8 + 12
        total = counts[None, None, None]
        assert sum(counts[g, None, None] for g in "ab") == pytest.approx(total)
        for g in "ab":
            assert sum(counts[g, h, None] for h in range(3)) == pytest.approx(counts[g, None, None])
            assert sum(counts[g, None, p] for p in range(1, 5)) == pytest.approx(counts[g, None, None])


def test_null_is_a_key_where_it_is_listed(con: Any) -> None:
    con.execute("INSERT INTO t VALUES (1, NULL, 0, 99)")
    sql = f"FROM dp_crosstab('t', rows := 'g', columns := 'h', keys := {{'g': ['a', NULL], 'h': [0]}}, {EXACT})"
    assert rows(con, f"SELECT margin, g, count {sql} WHERE margin <> 'total'") == [
        ("g", "a", 3), ("g", None, 1), ("h", None, 4), ("cells", "a", 3), ("cells", None, 1),
    ]  # fmt: skip


def test_quantiles_and_bounds_of_groups(con: Any) -> None:
    con.execute(
        "CREATE TABLE w AS SELECT i % 2 AS g, 10 * (i % 2) + (i % 100) / 100 AS x, i % 50 AS p FROM range(4000) AS r(i)"
    )
    grid = "target := 'x', lower := 0, upper := 20, quantiles := [0.25, 0.75], by := 'g', keys := [1, 0], epsilon := 50"
    for more in ("", ", neighbours := 'replace'", ", privacy_unit := 'p', max_rows_per_unit := 20"):
        found = rows(con, f"SELECT g, quantile, value FROM dp_quantile('w', {grid}{more})")
        assert [row[:2] for row in found] == [(1, 0.25), (1, 0.75), (0, 0.25), (0, 0.75)]
        assert np.abs(np.array([row[2] for row in found]) - [10.25, 10.75, 0.25, 0.75]).max() < 0.2
    for more in ("", ", neighbours := 'replace'", ", privacy_unit := 'p', max_rows_per_unit := 5"):
        found = rows(con, f"FROM dp_bounds('w', target := 'x', by := 'g', keys := [0, 1, 2], epsilon := 100{more})")
        assert [(row[0], row[-1]) for row in found] == [(0, "clear"), (1, "clear"), (2, "undetermined")]
        # Two ends that each pass an octave have a chance below 1e-4.
        assert 9 < found[1][1] <= 10.5
        assert 10.5 < found[1][2] <= 12
        assert -0.1 < found[0][1] < 0.2
        assert 0.8 < found[0][2] <= 2.0
        assert found[2][1:3] == (None, None)
        limit = 250 if "max_rows" in more else 4000
        assert abs(found[0][3] + found[0][4] - limit / 2) < 40 * found[0][5]
        assert abs(found[2][3]) < 40 * found[2][5]


BAD = {
    "no bins": ("dp_histogram", "target := 'x'", "P046"),
    "a number of bins without ends": ("dp_histogram", "target := 'x', bins := 10", "P046"),
    "a number of bins with one end": ("dp_histogram", "target := 'x', bins := 10, lower := 0", "P046"),
    "two numbers of bins": ("dp_histogram", "target := 'x', bins := 10, n_bins := 10, lower := 0, upper := 1", "P045"),
    "edges and a number of bins": ("dp_histogram", "target := 'x', bins := [1], n_bins := 10", "P045"),
    "half a bin": ("dp_histogram", "target := 'x', bins := 1.5, lower := 0, upper := 1", "P021"),
    "no bin": ("dp_histogram", "target := 'x', bins := 0, lower := 0, upper := 1", "P021"),
    "bins as a text": ("dp_histogram", "target := 'x', bins := '10', lower := 0, upper := 1", "P021"),
    "more bins than there may be": ("dp_histogram", "target := 'x', bins := 1024, lower := 0, upper := 1", "P050"),
    "bins and bounds": ("dp_histogram", "target := 'x', bins := [1], lower := 0", "P045"),
    "bins that fall": ("dp_histogram", "target := 'x', bins := [2, 1]", "P032"),
    "bins that are equal": ("dp_histogram", "target := 'x', bins := [1, 1.0]", "P032"),
    "a bin that is not finite": ("dp_histogram", "target := 'x', bins := [1, 'inf'::DOUBLE]", "P024"),
    "too many bins": ("dp_histogram", "target := 'x', lower := 0, upper := 1, n_bins := 1024", "P050"),
    "bins that are too fine": ("dp_histogram", "target := 'x', lower := 1, upper := 1.0000000000000002, n_bins := 3", "P036"),
    "private keys": ("dp_histogram", "target := 'x', bins := [1], by := 'g', keys := 'private', delta := 1e-6", "P066"),
    "keys without by": ("dp_histogram", "target := 'x', bins := [1], keys := ['a']", "P046"),
    "a text": ("dp_histogram", "target := 'g', bins := [1]", "S003"),
    "no such column": ("dp_histogram", "target := 'y', bins := [1]", "S002"),
    "toeplitz": ("dp_histogram", "target := 'x', bins := [1], curve := 'toeplitz'", "P046"),
    "gaussian": ("dp_histogram", "target := 'x', bins := [1], noise := 'gaussian'", "P046"),
    "one column": ("dp_crosstab", "rows := 'g', keys := {'g': ['a']}", "P046"),
    "by and rows": ("dp_crosstab", "rows := 'g', by := ['g', 'h'], keys := {'g': ['a'], 'h': [1]}", "P045"),
    "missing keys": ("dp_crosstab", "rows := 'g', columns := 'h', keys := {'g': ['a']}", "P065"),
    "private margins": ("dp_crosstab", "rows := 'g', columns := 'h', keys := 'private', delta := 1e-6", "P066"),
    "keys as structs": ("dp_crosstab", "rows := 'g', columns := 'h', keys := [{'g': 'a', 'h': 1}]", "P066"),
    "one column twice": ("dp_crosstab", "rows := 'g', columns := 'G', keys := {'g': ['a']}", "P044"),
    "a key of another type": ("dp_crosstab", "rows := 'g', columns := 'h', keys := {'g': ['a'], 'h': ['x']}", "P067"),
    "too many cells": ("dp_crosstab", "rows := 'p', columns := 'h', keys := {'p': range(2000), 'h': range(2000)}", "P068"),
    "quantile, keys alone": ("dp_quantile", "target := 'x', lower := 0, upper := 1, keys := ['a']", "P046"),
    "quantile, a row id": ("dp_quantile", "target := 'x', lower := 0, upper := 1, by := 'g', keys := ['a'], row_id := 'p'", "P045"),
    "quantile, no keys": ("dp_quantile", "target := 'x', lower := 0, upper := 1, by := 'g'", "P065"),
    "quantile, private keys": ("dp_quantile", "target := 'x', lower := 0, upper := 1, by := 'g', keys := 'private'", "P066"),
    "quantile, too many": (
        "dp_quantile", "target := 'x', lower := 0, upper := 1, cells := 1000000, by := 'h', keys := range(100)", "P068",
    ),
    "bounds, a limit alone": ("dp_bounds", "target := 'x', max_groups_per_unit := 2", "P046"),
}  # fmt: skip


@cases("name", BAD)
def test_what_is_refused_costs_nothing(con: Any, name: str) -> None:
    function, given, code = BAD[name]
    with pytest.raises(duckdb.Error, match=f"DPSQL-{code}"):
        rows(con, f"FROM {function}('t', {given}, epsilon := 1)")
    assert rows(con, "FROM dp_ledger()") == []


def test_what_is_charged_is_one_release(con: Any) -> None:
    con.execute("SELECT dp_protect('t', epsilon := 4)")
    rows(con, "FROM dp_histogram('t', target := 'x', bins := [1, 2], by := 'g', keys := ['a', 'b'], epsilon := 1)")
    rows(con, "FROM dp_crosstab('t', rows := 'g', columns := 'h', keys := {'g': ['a'], 'h': [1]}, epsilon := 1)")
    rows(
        con, "FROM dp_quantile('t', target := 'x', lower := 0, upper := 1, by := 'g', keys := ['a', 'b'], epsilon := 1)"
    )
    rows(con, "FROM dp_bounds('t', target := 'x', by := 'g', keys := ['a', 'b'], epsilon := 1)")
    assert rows(con, "SELECT releases, epsilon_spent FROM dp_budget()") == [(4, 4.0)]
    with pytest.raises(duckdb.Error, match="DPSQL-B001"):
        rows(con, "FROM dp_histogram('t', target := 'x', bins := [1], epsilon := 0.1)")


def test_a_named_release_is_the_same_again(con: Any) -> None:
    for call in (
        "dp_histogram('t', target := 'x', bins := [1, 2], by := 'h', keys := [0, 1], epsilon := 1, release := 'a')",
        "dp_crosstab('t', rows := 'g', columns := 'h', keys := {'g': ['a'], 'h': [1]}, epsilon := 1, release := 'b')",
        "dp_quantile('t', target := 'x', lower := 0, upper := 1, by := 'h', keys := [0], epsilon := 1, release := 'c')",
        "dp_bounds('t', target := 'x', by := 'h', keys := [0], epsilon := 1, release := 'd')",
    ):
        assert rows(con, f"FROM {call}") == rows(con, f"FROM {call}")
        types = [rows(con, f"DESCRIBE FROM {call}") for _ in range(2)]
        assert types[0] == types[1]


def test_plots(con: Any) -> None:
    pytest.importorskip("matplotlib")
    context = dpsql.Context(con)
    for bins in ([1], [0, 1, 2]):
        made = context.dp_histogram("t", target="x", bins=bins, by="g", keys=["a", "b"], epsilon=1)
        assert made.plot().get_ylabel() == "rows"
    table = context.dp_crosstab("t", rows="g", columns="h", keys={"g": ["a", "b"], "h": [0, 1]}, epsilon=1)
    assert table.plot("heat_map").get_xlabel() == "h"
    assert "cells" in repr(table)


AUDITED = {
    "bins": "SELECT count FROM dp_histogram('t', target := 'x', bins := [1], null_bin := false, epsilon := 1",
    "groups": "SELECT count FROM dp_histogram('t', target := 'x', bins := [1], null_bin := false, by := 'g', keys := [0, 1], "
    "epsilon := 1",
    "table": "SELECT round(count * 9)::INTEGER FROM dp_crosstab('t', rows := 'g', columns := 'h', keys := {'g': [0, 1], 'h': [0, 1]}, "
    "epsilon := 1, noise := 'laplace'",
    "quantiles": "SELECT value FROM dp_quantile('t', target := 'x', quantiles := [0.9], lower := 0, upper := 4, cells := 4, "
    "by := 'g', keys := [0, 1], epsilon := 1",
}  # fmt: skip


@pytest.mark.slow
@cases("neighbours", ["add_remove", "replace"])
@cases("name", AUDITED)
def test_audits(name: str, neighbours: str) -> None:
    """A row comes, or leaves one group for the other; a right release is accused with a chance of 1e-6."""
    import pyarrow as pa

    stay = [(0.5, 0, 0)] * 4 + [(3.5, 1, 1)] * 4
    more = [(3.5, 0, 0)]
    less = [] if neighbours == "add_remove" else [(0.5, 1, 1)]
    tables = tuple(
        pa.table(dict(zip(("x", "g", "h"), map(list, zip(*stay, *extra, strict=True)), strict=True)))
        for extra in (more, less)
    )
    opened: list[Any] = []
    try:
        sql = f"{AUDITED[name]}, neighbours := '{neighbours}')"
        report = audit_sql(connecting(opened), sql, tables, epsilon=1.0, runs=1500, confidence=1 - 1e-6)
    finally:
        for connection in opened:
            connection.close()
    assert report.verdict != "violates", str(report)


@pytest.mark.long
@pytest.mark.parametrize("function", ["dp_histogram(x, bins := [1], null_bin := false, epsilon := 1)"])
def test_an_audit_of_the_aggregate_form(function: str) -> None:
    """Many releases per statement, so that the audit resolves the claim: it is nearly reached, and not exceeded.

    With 1,500 of them judged, what is seen has a standard deviation of 0.045, and so has what is proved, of 0.73.
    """
    import pyarrow as pa

    tables = tuple(pa.table({"x": [0.5] * count + [3.5] * 3}) for count in (4, 3))
    sql = f"SELECT list_transform({function}, lambda bin: bin.count) FROM t, range({{count}}) AS r(copy) GROUP BY copy"
    opened: list[Any] = []
    try:
        report = audit_sql(connecting(opened), sql, tables, epsilon=1.0, runs=2500, confidence=1 - 1e-6, batch=2500)
    finally:
        for connection in opened:
            connection.close()
    assert report.verdict == "passes", str(report)
    assert report.epsilon_seen > 0.7, str(report)
