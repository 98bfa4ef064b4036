"""Aggregates and quantiles whose bounds are drawn, through SQL: what they answer, charge, store and refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql.errors import DpsqlError
from dpsql.functions.registry import FUNCTIONS
from dpsql.functions.value_cells import EvenCells
from support.cases import cases

HUGE = 10**12
ROWS = """
CREATE TABLE t AS SELECT
  i AS id, i % 60 AS unit, ['A', 'B', 'C', NULL][1 + i % 4] AS h,
  CASE WHEN i % 11 = 0 THEN NULL WHEN i % 13 = 0 THEN 'nan'::DOUBLE WHEN i % 17 = 0 THEN 'inf'::DOUBLE
       WHEN i % 19 = 0 THEN '-inf'::DOUBLE ELSE (i * 7 % 64) / 4 - 8 END AS x,
  CASE WHEN i % 4 <> 1 THEN (i * 5 % 32) / 4 END AS y,
  (i % 9 - 4)::HUGEINT * 1000000000000000000000000000000 AS wide, (i % 8)::DECIMAL(9, 2) / 4 AS price, i % 3 = 0 AS yes
FROM range(700) AS r(i)
"""
ALL = ["count", "sum", "avg", "variance"]
GROUPS: dict[str, dict[str, Any]] = {
    "all rows": {},
    "condition": {"condition": "id >= 100"},
    "groups": {"by": "h", "keys": ["A", "B", "none"], "other": True},
    "private keys": {"by": "h", "keys": "private", "delta": 1e-5},
    "units": {"privacy_unit": "unit", "max_rows_per_unit": 1000},
    "groups of units": {
        "by": "h",
        "keys": ["A", "B"],
        "privacy_unit": "unit",
        "max_groups_per_unit": 4,
        "max_rows_per_unit_group": 500,
    },
}


@pytest.fixture(scope="module")
def context() -> Iterator[dpsql.Context]:
    made = dpsql.connect()
    made.execute(ROWS)
    yield dpsql.Context(made)
    made.close()


def spent(context: dpsql.Context, loss: str = "epsilon") -> float:
    sql = f"SELECT {loss} FROM dp_ledger() WHERE kind = 'release' ORDER BY sequence DESC LIMIT 1"
    [(last,)] = context.connection.execute(sql).fetchall()
    return float(last)


def values(release: Any) -> list[Any]:
    """Return the names and the values; those of groups without rows are noise, but for their counts and sums."""
    targets, names, found = (release.to_arrow()[name].to_pylist() for name in ("target", "aggregate", "value"))
    counts = [count for count in found[:: len(ALL)] for _ in ALL]
    kept = [
        value if name in ("count", "sum") or count > 1.5 else None
        for name, value, count in zip(names, found, counts, strict=True)
    ]
    return [targets, names, [float("nan") if value is None else value for value in kept]]


TARGETS = ["x", "y", "wide", "price", "yes"]
# Each of the groups with two of the targets.
PAIRS = [(TARGETS[(number + shift) % 5], groups) for number, groups in enumerate(GROUPS) for shift in (0, 2)]


@cases(("target", "groups"), PAIRS)
def test_aggregates_are_those_within_the_bounds_that_are_told(context: dpsql.Context, target: str, groups: str) -> None:
    """The same call with these bounds as public ones has the same answers, but for little noise."""
    given = {"aggregates": ALL, "target": target, "epsilon": HUGE, **GROUPS[groups]}
    drawn = context.dp_aggregate("t", **given)
    [block] = drawn.result["blocks"]
    least, most, inside, outside, *_ = block["drawn"]
    lower, upper = block["bounds"]  # the interval that was found, and on either side what tails may need
    assert lower <= least < most <= upper
    assert inside > 0 <= outside
    assert drawn.noise["bounds"] == [[lower, upper]]
    public = context.dp_aggregate("t", lower=lower, upper=upper, **given)
    assert "bounds" not in public.noise
    mine, theirs = values(drawn), values(public)
    assert mine[:2] == theirs[:2]
    assert mine[2] == pytest.approx(theirs[2], rel=1e-3, abs=1e-3 * max(1, abs(lower)), nan_ok=True)


def test_each_target_has_bounds_of_its_own(context: dpsql.Context) -> None:
    release = context.dp_aggregate("t", aggregates=["avg"], target=["price", "wide"], epsilon=HUGE)
    found = [block["drawn"][:2] for block in release.result["blocks"]]
    assert found[0] == pytest.approx((0, 1.75), rel=0.07, abs=1e-9)
    assert found[1] == [-(2.0**65), 2.0**65]
    # Values are clipped within what was found and what tails may need, which is less than half as much on either side.
    for (low, high), (least, most) in zip(found, release.noise["bounds"], strict=True):  # type: ignore[arg-type]
        assert low - (high - low) / 2 < least <= low < high <= most < high + (high - low) / 2


def test_frames_and_the_aggregate_form(context: dpsql.Context) -> None:
    frame = pa.table({"y": [float(i % 32) for i in range(4000)]})
    context.connection.register("frame", frame)
    sql = "SELECT value FROM dp_avg('frame', target := 'y', epsilon := 1e6)"
    [(value,)] = context.connection.execute(sql).fetchall()
    assert value == pytest.approx(15.5, abs=0.1)
    sql = "SELECT dp_sum(y, epsilon := 1e6)[1].value, dp_quantile(y, epsilon := 1e6)[1].value FROM frame"
    [(total, middle)] = context.connection.execute(sql).fetchall()
    assert total == pytest.approx(62_000, rel=0.01)
    assert middle == pytest.approx(15.5, abs=1)


def test_too_few_rows(context: dpsql.Context) -> None:
    """Counts need no bounds; what does is NULL, and the charge stands. Quantiles are not drawn, nor charged."""
    release = context.dp_aggregate("t", aggregates=["count", "avg"], target=["x", "y"], epsilon=0.1)
    rows = release.to_arrow().to_pylist()
    assert [row["value"] is None for row in rows] == [False, True] * 2
    assert [row["verdict"] == "undetermined" for row in rows] == [False, True] * 2
    assert all(row["std_error"] is None and row["lower"] is None for row in rows[1::2])
    assert release.noise["bounds"] == [None, None]
    assert spent(context) == 0.1
    context.dp_quantile("t", target="y", quantiles=[0.1, 0.5], epsilon=0.1, bounds_share=0.5)
    assert spent(context) == 0.05


@pytest.mark.parametrize("method", ["ada_ssp", "boosted_ada_ssp"])
def test_a_model_without_a_target_costs_its_bounds(context: dpsql.Context, method: str) -> None:
    """What was not drawn is not charged in rho: moments, the scale of the target, and the fit."""
    for name, rows in ("few", 3), ("many", 3000):
        context.connection.execute(
            f"CREATE OR REPLACE TABLE {name} AS SELECT i + 0.5 AS x, i % 7 AS z, i / 300 AS y FROM range({rows}) AS r(i)"
        )
    model = {"target": "y", "features": ["x", "z"], "delta": 1e-6, "method": method}
    # Noise alone finds a target in one of 40 calls.
    asked = (context.dp_linear_regression, {}, 0.1), (context.dp_pipeline, {"k": 1, "selection_share": 0.5}, 0.05)
    for call, more, left in asked:
        released = (call("few", epsilon=0.1, **model, **more).to_arrow()["term"].to_pylist() for _ in range(5))
        assert ["not released"] in released
        stopped = spent(context, "rho")
        call("many", epsilon=0.1, **model, **more)
        whole = spent(context, "rho")
        context.dp_linear_regression("many", epsilon=left, **model)
        fit = spent(context, "rho")
        assert 0.3 * fit < whole - stopped < 0.9 * fit


def test_quantiles_are_within_the_bounds_that_are_told(context: dpsql.Context) -> None:
    release = context.dp_quantile("t", target="y", quantiles=[0.1, 0.5, 0.9], epsilon=1000, bounds_share=0.25)
    lower, upper = release.result["bounds"]["interval"][:2]
    found = release.to_arrow()["value"].to_pylist()
    assert found == pytest.approx([0.7, 3.9, 7.1], abs=0.5)
    assert lower < found[0] < found[2] < upper
    assert release.noise["bounds"] == [[lower, upper]]
    assert spent(context) == 1000


@pytest.mark.parametrize("groups", ["groups", "groups of units"])
def test_quantiles_of_groups_are_those_within_the_bounds_that_are_told(context: dpsql.Context, groups: str) -> None:
    """All groups have one interval, and the same call with it as public bounds has the same cells."""
    given = {"target": "y", "quantiles": [0.1, 0.5, 0.9], **GROUPS[groups]}
    drawn = context.dp_quantile("t", epsilon=HUGE, **given)
    lower, upper = drawn.result["bounds"]["interval"][:2]
    public = context.dp_quantile("t", epsilon=HUGE, lower=lower, upper=upper, **given)
    rows, others = (one.to_arrow().to_pylist() for one in (drawn, public))
    assert len(rows) == len(others) > 3
    for row, other in zip(rows, others, strict=True):
        if row["h"] == "A" or row.get("other"):
            assert row["value"] == pytest.approx(other["value"], abs=0.3)
        assert row["value"] is None or lower <= row["value"] <= upper  # NULL where a group has no rows
    assert any(row["value"] is not None for row in rows)
    assert all("drawn bounds" in row["covers"] for row in rows)
    assert spent(context) == HUGE


def test_quantiles_of_groups_without_bounds_cost_the_bounds(context: dpsql.Context) -> None:
    release = context.dp_quantile("t", target="y", by="h", keys=["A", "B"], epsilon=0.1)
    rows = release.to_arrow().to_pylist()
    assert {(row["value"], row["lower"], row["upper"], row["verdict"]) for row in rows} == {
        (None, None, None, "undetermined")
    }
    assert spent(context) == 0.025
    wide = context.dp_quantile("t", target="wide", by="h", keys=["A", "B"], epsilon=HUGE).to_arrow().to_pylist()
    assert all(abs(row["value"]) <= 2.0**65 for row in wide)


def test_a_named_release_is_replayed(context: dpsql.Context) -> None:
    for function in ("dp_avg", "dp_quantile"):
        call = getattr(context, function)
        first = call("t", target="y", epsilon=50, release=function)
        again = call("t", target="y", epsilon=50, release=function)
        assert first.to_arrow().equals(again.to_arrow())
        assert first.noise == again.noise
        with pytest.raises(DpsqlError, match="P014"):
            call("t", target="y", epsilon=50, release=function, bounds_share=0.5)


def test_a_share_that_is_not_used_is_not_recorded() -> None:
    for kind in (FUNCTIONS["dp_avg"].plan, FUNCTIONS["dp_quantile"].plan):
        given = {"target": "y", "epsilon": 1, "bounds_share": 0.5}
        assert kind.from_arguments("t", given).public_arguments["bounds_share"] == "1/2"
        public = kind.from_arguments("t", {**given, "lower": 0, "upper": 1})
        assert "bounds_share" not in public.public_arguments
        assert "bounds" not in [part.name for part in public.measurement.leaves]


@cases(
    ("function", "given", "code"),
    [
        ("dp_avg", {"lower": 0}, "P003"),
        ("dp_quantile", {"upper": 0}, "P003"),
        ("dp_quantile", {"by": "h", "keys": ["A"], "bounds_share": 1e-15, "epsilon": 1e-6}, "P038"),
        (
            "dp_sum",
            {"unit_value": "sum", "privacy_unit": "unit", "by": "h", "keys": ["A"], "max_groups_per_unit": 1},
            "P003",
        ),
        ("dp_avg", {"bounds_share": 1}, "P0"),
        ("dp_avg", {"bounds_share": 1e-15, "epsilon": 1e-6}, "P038"),
    ],
)
def test_refusals(context: dpsql.Context, function: str, given: dict[str, Any], code: str) -> None:
    count = "SELECT count(*) FROM dp_ledger()"
    before = context.connection.execute(count).fetchall()
    with pytest.raises(DpsqlError, match=code):
        getattr(context, function)("t", **{"target": "y", "epsilon": 1, **given})
    assert context.connection.execute(count).fetchall() == before


def test_keys_of_a_public_table() -> None:
    """The keys are learned before the pass that draws bounds, and what that pass drew is not forgotten."""
    with dpsql.connect() as connection:
        connection.execute(ROWS)
        connection.execute("CREATE TABLE listed AS SELECT unnest(['A', 'C']) AS h")
        connection.execute("SELECT dp_protect('t', epsilon := 1e9), dp_public('listed')").fetchall()
        sql = "SELECT h, value FROM dp_sum('t', target := 'y', epsilon := 1e6, by := 'h', keys := {})"
        public, listed = (connection.execute(sql.format(keys)).fetchall() for keys in ("'listed'", "['A', 'C']"))
    assert [row[0] for row in public] == [row[0] for row in listed] == ["A", "C"]
    assert public[0][1] == pytest.approx(listed[0][1], rel=0.2)


def test_bounds_that_the_owner_stated_of_other_columns() -> None:
    with dpsql.connect() as connection:
        connection.execute(ROWS)
        connection.execute("SELECT dp_protect('t', epsilon := 1e9, lower := {'y': 0}, upper := {'Y': 8})").fetchall()
        context = dpsql.Context(connection)
        assert "bounds" not in context.dp_avg("t", target="y", epsilon=1e6).noise
        assert "bounds" in context.dp_avg("t", target="price", epsilon=1e6).noise
        with pytest.raises(DpsqlError, match="P003"):
            context.dp_aggregate("t", aggregates=["avg"], target=["y", "price"], epsilon=1e6)


def test_what_a_call_would_need(context: dpsql.Context) -> None:
    for function in ("dp_avg", "dp_quantile"):
        drawn = f"FROM dp_estimate('{function}', epsilon := 1, bounds_share := 0.25)"
        rows = context.connection.execute(drawn).fetchall()
        found = {name: value for name, value, _ in rows}
        assert found["bounds_rows_needed"] == 553
        public = context.connection.execute(
            f"FROM dp_estimate('{function}', epsilon := 1, lower := 0, upper := 1)"
        ).fetchall()
        assert "bounds_rows_needed" not in {name for name, _, _ in public}
        # An interval of a quantile needs bounds first; noise on a mean is small long before.
        assert found["rows_needed"] == 553 or function == "dp_avg"


def test_quantiles_of_groups_on_both_sides_of_zero() -> None:
    """Doubles beside zero are finer than what the cells add them to: there are cells all the same."""
    with dpsql.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i % 2 AS g, (i % 47 - 24)::DOUBLE + 0.01 AS x FROM range(4000) AS r(i)"
        )
        sql = "SELECT value FROM dp_quantile('t', target := 'x', by := 'g', keys := [0, 1], epsilon := 1000)"
        assert [value for (value,) in connection.execute(sql).fetchall()] == pytest.approx([-1, -1], abs=1.1)
    for lower, upper, count in ((-24.0, 23.0, 6016), (-22.0, 19.0, 5248), (-3.0, 1e6, 4096)):
        cells = EvenCells(lower, upper, count)
        wanted = np.arange(1, count)
        assert (cells.of(cells.edges) == wanted).all()
        assert (cells.of(np.nextafter(cells.edges, -np.inf)) == wanted - 1).all()
