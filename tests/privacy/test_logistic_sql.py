"""dp_logistic_regression through SQL: its exact law on two neighbours, what it costs, audits and planted faults."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.testing import audit_sql
from dpsql.testing.distribution import fit
from support.broken.logistic import BROKEN_LOGISTIC, broken_logistic
from support.cases import cases
from support.laws.logistic import Perturbation, Seen, Table, log_density, observed, spent
from support.laws.regression import Observation, Stated, observe, worst_case

COPIES = " FROM t, range({count}) AS r(copy) GROUP BY copy"
ROWS = [(1.0, 1), (0.5, 1), (-1.0, 0), (-0.4, 1), (0.3, 0)]


def script(rows: list[tuple[float, int]]) -> str:
    """Return the script of a table with these features and labels; those of label 1 are one unit."""
    values = ", ".join(f"({0 if y else i}, {x}, [{x}]::DOUBLE[1], {y})" for i, (x, y) in enumerate(rows, 1))
    return f"CREATE OR REPLACE TABLE t AS FROM (VALUES {values}) v(unit, f, x, y)"


def aggregate(more: str) -> str:
    call = f"dp_logistic_regression(x, y, lower := -1, upper := 1, dataset := 't', {more})"
    return f"SELECT list_transform({call}, lambda entry: entry.coefficient){COPIES}"


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    made = dpsql.connect()
    yield made
    made.close()


@pytest.mark.parametrize("missing", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_law_of_one_feature(con: duckdb.DuckDBPyConnection, missing: bool) -> None:
    """Intercept and slope together against the density of two columns; noise of other scales is told apart."""
    rows = ROWS[:-1] if missing else ROWS
    con.execute(script(rows))
    sql = aggregate("epsilon := 2, regularization := 0.8").replace("{count}", "500")
    found = np.array([row[0] for _ in range(4) for row in con.execute(sql).fetchall()]) * math.sqrt(2)
    signed = [[(2 * y - 1) / math.sqrt(2), (2 * y - 1) * x / math.sqrt(2)] for x, y in rows]
    table = Table.of(signed, width=2)
    noise = Perturbation("exponential", 1 / (2 * 0.99), 0.8)
    side = np.linspace(-14, 14, 701)
    grid = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    edges = np.linspace(-2.5, 2.5, 9)
    cells = np.searchsorted(edges, grid) @ np.array([1, 10])

    def law(factor: float) -> dict[int, float]:
        density = np.exp(log_density(grid, table, replace(noise, scale=noise.scale * factor)))
        mass = np.bincount(cells, density)
        assert mass.sum() * (side[1] - side[0]) ** 2 == pytest.approx(1.0, abs=2e-3)
        return {cell: float(share) for cell, share in enumerate(mass / mass.sum()) if share > 0}

    places = (np.searchsorted(edges, found) @ np.array([1, 10])).tolist()
    assert fit(places, law(1.0)).accepted
    for factor in (0.7, 1.3):
        assert not fit(places, law(factor)).accepted


# Arguments whose cost is looked at, with the claim: epsilon, delta, relation and rows per unit.
CALLS: dict[str, tuple[str, float, float, str, int]] = {
    "added": ("epsilon := 1", 1.0, 0.0, "add_remove", 1),
    "own ridge": ("epsilon := 1, regularization := 0.3", 1.0, 0.0, "add_remove", 1),
    "short rows": ("epsilon := 0.5, row_norm := 0.7", 0.5, 0.0, "add_remove", 1),
    "replaced": ("epsilon := 1, neighbours := 'replace'", 1.0, 0.0, "replace", 1),
    "units": ("epsilon := 1, privacy_unit := 'unit', max_rows_per_unit := 4", 1.0, 0.0, "add_remove", 4),
    "many columns": ("epsilon := 1, delta := 1e-6, standardize := false", 1.0, 1e-6, "add_remove", 1),
    "replaced units of many columns": (
        "epsilon := 2, delta := 1e-5, standardize := false, neighbours := 'replace', privacy_unit := 'unit', max_rows_per_unit := 3",
        2.0,
        1e-5,
        "replace",
        3,
    ),
}
CAUGHT_BY = {
    "constants for added rows": "replaced",
    "replaced rows as added ones": "replaced",
    "units as rows": "units",
    "determinants for free": "own ridge",
    "output noise for free": "added",
    "the whole delta for every row": "replaced units of many columns",
    "an intercept without noise": "added",
    "the error of the solver is not hidden": "added",
    "rows of any length": "short rows",
    "rows rounded after the clip": "rounded",
}
# With 100 equal features a coordinate that is rounded up makes the row longer; found by trying norms.
CALLS["rounded"] = ("epsilon := 1, row_norm := 1.36", 1.0, 0.0, "add_remove", 1)


def run(con: duckdb.DuckDBPyConnection, case: str) -> Seen:
    more = CALLS[case][0]
    width = 100 if case.endswith("columns") or case == "rounded" else 2
    con.execute(
        f"CREATE OR REPLACE TABLE w AS SELECT i % 3 AS unit, i % 2 AS y, "
        f"list_transform(range({width}), lambda j: CASE WHEN i % 5 = 0 THEN 1 ELSE sin(i * j) END)::DOUBLE[{width}] AS x "
        "FROM range(40) r(i)"
    )
    with observed() as seen:
        con.execute(
            f"FROM dp_logistic_regression('w', target := 'y', features := 'x', lower := -1, upper := 1, {more})"
        ).fetchall()
    assert len(seen) == 1
    return seen[0]


def within(seen: Seen, case: str) -> bool:
    _, epsilon, delta, neighbours, rows = CALLS[case]
    cost = spent(seen, epsilon=epsilon, neighbours=neighbours, max_rows_per_unit=rows)
    return cost[0] <= epsilon * (1 + 1e-9) and cost[1] <= delta * (1 + 1e-6)


@cases("case", CALLS)
def test_a_call_costs_what_it_says(con: duckdb.DuckDBPyConnection, case: str) -> None:
    seen = run(con, case)
    assert within(seen, case)
    assert seen.law == ("gaussian" if case.endswith("many columns") else "exponential")
    # Nearly all of it is spent, and the cap per unit holds.
    _, epsilon, delta, neighbours, rows = CALLS[case]
    cost = spent(seen, epsilon=epsilon, neighbours=neighbours, max_rows_per_unit=rows)
    assert cost[0] >= 0.99 * epsilon
    assert cost[1] >= 0.9 * delta
    assert len(seen.rows) == (40 if rows == 1 else 3 * rows)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("bounds", ["", ", lower := -1, upper := 1"])
def test_bounds_and_moments_have_their_shares(con: duckdb.DuckDBPyConnection, neighbours: str, bounds: str) -> None:
    """Of epsilon and delta 1/4 are for private bounds and 1/10 for moments, as noise is worth; the fit has the rest."""
    con.execute("CREATE OR REPLACE TABLE w AS SELECT i % 2 AS y, sin(i) AS a, sin(2 * i) AS b FROM range(4000) r(i)")
    sql = (
        f"FROM dp_logistic_regression('w', target := 'y', features := ['a', 'b'], epsilon := 2, delta := 1e-5, "
        f"neighbours := '{neighbours}'{bounds})"
    )
    with observed() as fits:
        releases = observe(lambda: con.execute(sql).fetchall()).releases
    scaling = [one for one in releases if one.role in ("cells", "moments")]
    assert [one.role for one in scaling] == ["cells"] * (0 if bounds else 2) + ["moments"]
    share = 0.1 if bounds else 0.35
    loss = worst_case(Observation(None, scaling), Stated(neighbours, 4000, features=2))
    assert loss.within(share * 2, share * 1e-5)
    assert not loss.within(0.99 * share * 2, share * 1e-5)
    cost = spent(fits[0], epsilon=2 * (1 - share), neighbours=neighbours, max_rows_per_unit=1)
    assert 0.99 * 2 * (1 - share) <= cost[0] <= 2 * (1 - share) * (1 + 1e-9)
    assert cost[1] <= 1e-5 * (1 - share) * (1 + 1e-6)
    assert con.execute("SELECT epsilon, delta FROM dp_ledger() WHERE kind = 'release'").fetchall()[-1][0] == 2


@cases("fault", BROKEN_LOGISTIC)
def test_planted_fault(con: duckdb.DuckDBPyConnection, fault: str) -> None:
    with broken_logistic(fault):
        assert not within(run(con, CAUGHT_BY[fault]), CAUGHT_BY[fault])
    assert within(run(con, CAUGHT_BY[fault]), CAUGHT_BY[fault])


def test_the_list_of_faults() -> None:
    assert CAUGHT_BY.keys() == BROKEN_LOGISTIC.keys()


def test_neighbours_differ_by_the_rows_of_a_unit(con: duckdb.DuckDBPyConnection) -> None:
    """Nothing but the unit's own rows depends on it: neither scales nor other rows."""
    found = []
    for unit in ("0, 1, 2", "0, 1"):
        con.execute(
            f"CREATE OR REPLACE TABLE w AS SELECT unit, i % 2 AS y, [unit + i / 10]::DOUBLE[1] AS x "
            f"FROM (SELECT unnest([{unit}]) AS unit), range(4) r(i)"
        )
        with observed() as seen:
            con.execute(
                "FROM dp_logistic_regression('w', target := 'y', features := 'x', lower := 0, upper := 3, "
                "epsilon := 1, privacy_unit := 'unit', max_rows_per_unit := 9)"
            ).fetchall()
        found.append(sorted(map(tuple, seen[0].rows.tolist())))
    whole, part = found
    assert len(whole) == 12
    assert len(part) == 8
    assert all(row in whole for row in part)


def test_long_rows_are_capped_per_unit(con: duckdb.DuckDBPyConnection) -> None:
    """A document is a row: of 8 documents of each of two units 3 count, whatever number of cells they have."""
    con.execute(
        "CREATE TABLE cells AS SELECT doc, doc % 2 AS unit, doc % 3 % 2 AS y, 'word' || word AS f "
        "FROM range(16) d(doc), range(5) w(word) WHERE word <= doc % 5"
    )
    with observed() as seen:
        con.execute(
            "FROM dp_logistic_regression('cells', target := 'y', features := 'f', row_id := 'doc', epsilon := 1, "
            "names := ['word0', 'word1', 'word2', 'word3', 'word4'], lower := 0, upper := 1, privacy_unit := 'unit', "
            "max_rows_per_unit := 3)"
        ).fetchall()
    assert seen[0].rows.shape == (6, 6)
    assert spent(seen[0], epsilon=1.0, neighbours="add_remove", max_rows_per_unit=3)[0] <= 1 + 1e-9


# Rows of label 0 that push the fit away; a row of label 1 among them moves b by all but its norm.
AUDITS = {
    "added": (aggregate("epsilon := 1"), (script([(1.0, 0)] * 60 + [(1.0, 1)]), script([(1.0, 0)] * 60))),
    "replaced": (
        aggregate("epsilon := 1, neighbours := 'replace'"),
        (script([(1.0, 0)] * 60 + [(1.0, 1)]), script([(1.0, 0)] * 60 + [(-1.0, 0)])),
    ),
    "units": (
        "SELECT coefficient FROM dp_logistic_regression('t', target := 'y', features := 'x', lower := -1, "
        "upper := 1, epsilon := 1, privacy_unit := 'unit', max_rows_per_unit := 9)",
        (script([(1.0, 0)] * 99 + [(1.0, 1)] * 9), script([(1.0, 0)] * 99)),
    ),
}


def binned(outcome: Any) -> int:
    values = [entry[0] if isinstance(entry, tuple) else entry for entry in outcome]
    return int(np.clip(np.floor(4 * sum(values)), -40, 40))


def run_audit(case: str, runs: int) -> Any:
    sql, tables = AUDITS[case]
    batch = 1 if case == "units" else 250
    views = [("log odds at the upper bound", binned)]
    return audit_sql(dpsql.connect, sql, tables, epsilon=1, runs=runs, confidence=1 - 1e-6, batch=batch, views=views)


@pytest.mark.slow
@pytest.mark.parametrize("case", AUDITS)
def test_audit(case: str) -> None:
    report = run_audit(case, 250 if case == "units" else 1000)
    assert report.verdict != "violates", str(report)


@pytest.mark.slow
def test_the_audit_catches_units_as_rows() -> None:
    with broken_logistic("units as rows"):
        report = run_audit("units", 250)
    assert report.verdict == "violates", str(report)
