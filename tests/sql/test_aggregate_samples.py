"""Which rows of a privacy unit count: limits hold, and the sample follows from the unit's own rows and a secret key."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

import dpsql
from support.cases import cases
from support.sessions import one_key

LIMITS = {
    "m": {"max_rows_per_unit": 5},
    "g": {"max_groups_per_unit": 2, "max_rows_per_unit_group": 1000},
    "r": {"max_groups_per_unit": 6, "max_rows_per_unit_group": 3},
    "g, r": {"max_groups_per_unit": 2, "max_rows_per_unit_group": 3},
    "m, g, r": {"max_rows_per_unit": 5, "max_groups_per_unit": 3, "max_rows_per_unit_group": 2},
    "m, large": {"max_rows_per_unit": 1 << 21},
}
KEPT = {"m": 5, "g": 20, "r": 18, "g, r": 6, "m, g, r": 5, "m, large": 60}


def sums(connection: duckdb.DuckDBPyConnection, source: str, limits: dict[str, int]) -> list[tuple[float, float]]:
    """Return the count and the sum of every group, as good as without noise."""
    given = {"by": "k", "keys": list(range(6)), "privacy_unit": "u", **limits}
    release = dpsql.Context(connection).dp_aggregate(
        source, aggregates=["count", "sum"], target="x", lower=0, upper=100, epsilon=10**12, **given
    )
    values = [round(value, 2) for value in release.to_arrow()["value"].to_pylist()]
    return list(zip(values[::2], values[1::2], strict=True))


@pytest.fixture
def con() -> Any:
    con = dpsql.connect(":memory:")
    # Every unit has ten rows in each of six groups, many of them equal.
    con.execute(
        "CREATE TABLE t AS SELECT i % 20 AS u, (i // 20) % 6 AS k, (hash(i) % 4 * 25)::DOUBLE AS x FROM range(1200) r(i)"
    )
    return con


@cases("limits", LIMITS)
def test_limits_and_foreign_units(con: Any, limits: str) -> None:
    """Every unit fills its limits; the sums of a table are those of its parts, in any order of the rows."""
    con.execute("CREATE TABLE shuffled AS FROM t ORDER BY hash(u, k, x), random()")
    con.execute("CREATE TABLE one AS FROM t WHERE u = 7")
    con.execute("CREATE TABLE others AS FROM t WHERE u <> 7")
    with one_key():
        whole, one, others = (sums(con, name, LIMITS[limits]) for name in ("shuffled", "one", "others"))
    assert sum(count for count, _ in whole) == 20 * KEPT[limits]
    assert sum(count for count, _ in one) == KEPT[limits]
    for all_of_them, (count, value), (other_count, other_value) in zip(whole, one, others, strict=True):
        assert all_of_them == pytest.approx((count + other_count, value + other_value), abs=0.05)


@pytest.mark.parametrize("limits", ["m", "r", "g, r"])
def test_rows_count_alike(con: Any, limits: str) -> None:
    """Of 100 equal rows and 20 others of each unit, the share in the sample is that in the table."""
    con.execute(
        "CREATE TABLE many AS SELECT i % 3000 AS u, (i // 3000) % 6 AS k, (i >= 300000)::INTEGER * 100 AS x "
        "FROM range(360000) r(i)"
    )
    found = sums(con, "many", LIMITS[limits])
    kept = sum(count for count, _ in found)
    share = sum(value for _, value in found) / 100 / kept
    assert share == pytest.approx(1 / 6, abs=5 * (1 / 6 * 5 / 6 / kept) ** 0.5)
    assert all(count == pytest.approx(kept / 6, abs=5 * kept**0.5) for count, _ in found)


def test_every_group_is_as_likely() -> None:
    """Which groups of a unit count does not depend on the key."""
    con = dpsql.connect(":memory:")
    con.execute("CREATE TABLE t AS SELECT i // 6 AS u, i % 6 AS k, 1 AS x FROM range(36000) r(i)")
    found = sums(con, "t", {"max_groups_per_unit": 2, "max_rows_per_unit_group": 1})
    assert sum(count for count, _ in found) == 12_000
    assert all(count == pytest.approx(2000, abs=5 * 2000**0.5) for count, _ in found)
