"""Grouped aggregates through SQL: at a huge epsilon they are DuckDB's own aggregates of the clipped rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from support.cases import cases

HUGE = "epsilon := 1e12"
ALL = "aggregates := ['count', 'sum', 'avg', 'variance', 'stddev']"
# Values are multiples of 1/4, and bounds powers of two: each is exact in fixed point.
ROWS = """
CREATE TABLE t AS SELECT
  i AS id, i % 60 AS unit, ['A', 'B', 'C', NULL][1 + i % 4] AS h,
  (['F', 'M', 'X'][1 + i % 3])::ENUM('F', 'M', 'X', 'none') AS sex, i % 5 = 0 AS adult, i % 6 AS ward,
  CASE WHEN i % 11 = 0 THEN NULL WHEN i % 13 = 0 THEN 'nan'::DOUBLE WHEN i % 17 = 0 THEN 'inf'::DOUBLE
       WHEN i % 19 = 0 THEN '-inf'::DOUBLE ELSE (i * 7 % 64) / 4 - 8 END AS x,
  CASE WHEN i % 4 <> 1 THEN (i * 5 % 32) / 4 END AS y,
  (i % 9 - 4)::HUGEINT * 1000000000000000000000000000000 AS wide, (i % 8)::DECIMAL(9, 2) / 4 AS price, i % 3 = 0 AS yes
FROM range(700) AS r(i)
"""
BOUNDS = {"x": (-4, 4), "y": (0, 8), "wide": (-2, 2), "price": (0, 1), "yes": (0, 1)}
OWN = {
    "count": "count({0})",
    "sum": "coalesce(sum({0}), 0)",
    "avg": "avg({0})",
    "variance": "var_samp({0})",
    "stddev": "stddev_samp({0})",
}


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    made = dpsql.connect()
    made.execute(ROWS)
    yield made
    made.close()


def clipped(target: str) -> str:
    """Return a target as DuckDB sees it after clipping: NaN is NULL, and infinities are bounds."""
    lower, upper = BOUNDS[target]
    value = f"{target}::DOUBLE"
    return f"(CASE WHEN NOT isnan({value}) THEN least(greatest({value}, {lower}), {upper}) END)"


def reference(
    con: Any, target: str | None, by: list[str], where: str = "true", source: str = "t", key: str = ""
) -> dict[Any, Any]:
    """Return DuckDB's own aggregates by group."""
    value = "*" if target is None else clipped(target)
    names = ["count"] if target is None else list(OWN)
    listed = ", ".join([*(key.split(", ") if key else by), *(OWN[name].format(value) for name in names)])
    grouped = f"GROUP BY {key or ', '.join(by)}" if by else ""
    rows = con.execute(f"SELECT {listed} FROM {source} WHERE {where} {grouped}").fetchall()
    return {tuple(row[: len(by)]): dict(zip(names, row[len(by) :], strict=True)) for row in rows}


def released(con: Any, sql: str, keys: int) -> dict[Any, Any]:
    """Return the values of a release by target and key."""
    found: dict[Any, Any] = {}
    for row in con.execute(sql).fetchall():
        target, aggregate, value, error, lower, upper, verdict, _, _ = row[keys:]
        group = found.setdefault(target, {}).setdefault(tuple(row[:keys]), {})
        assert aggregate not in group
        group[aggregate] = value
        if value is None or lower is None:
            assert verdict == "undetermined"
        elif aggregate == "avg":
            widest = BOUNDS[target][1] - BOUNDS[target][0]
            assert verdict == ("clear" if upper - lower <= widest / 2 else "unclear")
        else:
            assert verdict == ("clear" if lower > 0 or upper < 0 else "unclear")
        if value is not None and error is not None:
            assert error >= 0
            assert lower - 1e-6 <= max(value, 0 if aggregate == "count" else value) <= upper + 1e-6
    return found


def agree(found: dict[Any, Any], exact: dict[Any, Any], keys: list[Any]) -> None:
    """Compare groups: those without rows have a count of 0 and no mean that means anything."""
    assert list(found) == keys
    for group, values in found.items():
        own = exact.get(group, dict.fromkeys(values, 0))
        rows = round(values.get("count", own.get("count", 0)))
        for name, value in values.items():
            least = {"avg": 1, "variance": 2, "stddev": 2}.get(name, 0)
            if rows >= least:
                assert value == pytest.approx(own[name], rel=1e-6, abs=2e-5), (group, name)


@pytest.mark.parametrize("target", BOUNDS)
def test_no_groups(con: Any, target: str) -> None:
    lower, upper = BOUNDS[target]
    sql = f"SELECT * FROM dp_aggregate('t', {ALL}, target := '{target}', lower := {lower}, upper := {upper}, {HUGE})"
    agree(released(con, sql, 0)[target], reference(con, target, []), [()])


@cases("name", ["count", "sum", "avg", "variance", "stddev"])
@cases("noise", ["laplace", "gaussian"])
def test_thin_forms(con: Any, name: str, noise: str) -> None:
    law = "" if noise == "laplace" else "delta := 0.01, noise := 'gaussian',"
    loss = HUGE if noise == "laplace" else "epsilon := 500000"
    bounds = "" if name == "count" else "lower := -4, upper := 4,"
    sql = f"SELECT * FROM dp_{name}('t', target := 'x', {bounds} by := 'h', keys := ['A', 'B', 'none'], {law} {loss})"
    exact = reference(con, "x", ["h"])
    for group, values in released(con, sql, 1)["x"].items():
        own = exact.get(group, {name: 0})[name]
        if group != ("none",) or name in ("count", "sum"):
            assert values[name] == pytest.approx(own, rel=1e-3, abs=0.05), group


# The keys of a BOOLEAN by its type.
ADULT = (False, True, None)
KEYS = {
    "list": ("'h'", "['B', 'A', 'none']", [("B",), ("A",), ("none",)]),
    "NULL is a key": ("['h']", "['A', NULL]", [("A",), (None,)]),
    "struct of lists": (
        "['h', 'ward']",
        "{'ward': [5, 1], 'h': ['A', 'B']}",
        [("A", 5), ("A", 1), ("B", 5), ("B", 1)],
    ),
    "list of structs": (
        "['h', 'ward']",
        "[{'h': 'A', 'ward': 5}, {'h': 'B', 'ward': 77}, {'ward': 1, 'h': 'B'}, {'h': NULL, 'ward': 3}]",
        [("A", 5), ("B", 77), ("B", 1), (None, 3)],
    ),
    "by type": ("['sex', 'adult']", None, [(s, a) for s in ("F", "M", "X", "none", None) for a in ADULT]),
    "some by type": ("['adult', 'h']", "{'h': ['A']}", [(a, "A") for a in ADULT]),
    "a column in another case": ("['H', 'WARD']", "{'h': ['A'], 'Ward': [1]}", [("A", 1)]),
}


@cases("form", KEYS)
@cases("unit", [False, True])
def test_forms_of_keys(con: Any, form: str, unit: bool) -> None:
    by, keys, expected = KEYS[form]
    columns = [name.strip(" '[]") for name in by.split(",")]
    listed = "" if keys is None else f"keys := {keys}, "
    owner = "privacy_unit := 'id', max_rows_per_unit := 1, " if unit else ""
    sql = (
        f"SELECT * FROM dp_aggregate('t', {ALL}, target := ['x', 'y'], lower := {{'x': -4, 'y': 0}}, upper := [4, 8], "
    )
    found = released(con, f"{sql} by := {by}, {listed} {owner} {HUGE})", len(columns))
    assert list(found) == ["x", "y"]
    for target, groups in found.items():
        agree(groups, reference(con, target, columns), expected)


@cases("unit", ["", "privacy_unit := 'id', max_rows_per_unit := 1, "])
@cases(
    ("by", "keys", "listed"),
    [
        ("['h']", "['A', 'none']", "h = 'A'"),
        ("['h']", "['A', NULL]", "h = 'A' OR h IS NULL"),
        ("['h', 'ward']", "{'h': ['A', 'B'], 'ward': [1, 2]}", "h IN ('A', 'B') AND ward IN (1, 2)"),
        ("['h', 'ward']", "[{'h': 'A', 'ward': 4}, {'h': 'B', 'ward': 1}]", "(h, ward) IN (('A', 4), ('B', 1))"),
        ("['sex']", "['F']", "sex = 'F'"),
    ],
)
def test_other(con: Any, by: str, keys: str, listed: str, unit: str) -> None:
    """The group of other keys has every row that is in no listed one, and each row is counted once."""
    sql = f"SELECT * FROM dp_count('t', by := {by}, keys := {keys}, other := true, {unit} {HUGE})"
    rows = con.execute(sql).fetchall()
    names = [column[0] for column in con.description]
    place = names.index("other")
    assert [row[place] for row in rows] == [False] * (len(rows) - 1) + [True]
    assert rows[-1][:place] == (None,) * place
    [(inside, outside)] = con.execute(
        f"SELECT count(*) FILTER (coalesce({listed}, false)), count(*) FILTER (NOT coalesce({listed}, false)) FROM t"
    ).fetchall()
    counts = [row[names.index("value")] for row in rows]
    assert (sum(counts[:-1]), counts[-1]) == (inside, outside)


def test_owners_keys_and_bounds() -> None:
    with dpsql.connect() as con:
        con.execute(ROWS)
        con.execute(
            "SELECT dp_protect('t', epsilon := 1e15, keys := {'H': ['A', 'B']}, lower := {'x': -4}, upper := {'x': 4})"
        ).fetchall()
        found = released(con, f"SELECT * FROM dp_avg('t', target := 'x', by := ['h', 'adult'], {HUGE})", 2)
        agree(found["x"], reference(con, "x", ["h", "adult"]), [(h, a) for h in "AB" for a in ADULT])
        assert len(con.execute(f"SELECT * FROM dp_count('t', by := 'h', keys := ['C'], {HUGE})").fetchall()) == 1


@cases("by", ["", "by := 'h', keys := ['A', 'B'],"])
@cases("unit", ["", "privacy_unit := 'unit', max_rows_per_unit := 2,"])
@cases("rows", ["WHERE false", "WHERE x IS NULL", "WHERE isnan(x)"])
def test_tables_without_values(con: Any, by: str, unit: str, rows: str) -> None:
    """An empty table, and groups without any value: counts and sums of 0, within the bounds, and no error."""
    con.execute(f"CREATE OR REPLACE TEMP TABLE few AS FROM t {rows}")
    sql = f"SELECT * FROM dp_aggregate('few', {ALL}, target := 'x', lower := -4, upper := 4, {by} {unit} {HUGE})"
    for values in released(con, sql, 1 if by else 0)["x"].values():
        assert values["count"] == pytest.approx(0, abs=1e-6)
        assert values["sum"] == pytest.approx(0, abs=1e-6)
        # The mean of nobody is NULL, but for a chance of 5 % that noise is taken for rows.
        assert values["avg"] is None or -4 <= values["avg"] <= 4
        assert values["variance"] is None
    count = con.execute(f"SELECT value FROM dp_count('few', {by} {HUGE})").fetchall()
    if not by:
        assert count == con.execute("SELECT count(*) FROM few").fetchall()


def test_ddof(con: Any) -> None:
    more = f"target := 'y', lower := 0, upper := 8, {HUGE}"
    [(one,), (zero,)] = con.execute(
        f"SELECT value FROM dp_variance('t', {more}) UNION ALL SELECT value FROM dp_variance('t', ddof := 0, {more})"
    ).fetchall()
    [(sample, population)] = con.execute("SELECT var_samp(y), var_pop(y) FROM t").fetchall()
    assert (one, zero) == (pytest.approx(sample), pytest.approx(population))


@pytest.mark.parametrize("mine", ["sum", "avg"])
def test_bounds_without_zero(con: Any, mine: str) -> None:
    """A sum alone of bounds on either or one side of 0."""
    for lower, upper in ((-3, 2), (2, 16), (-16, -2), (0.5, 0.75)):
        sql = f"SELECT value FROM dp_{mine}('t', target := 'y', lower := {lower}, upper := {upper}, {HUGE})"
        [(own,)] = con.execute(
            f"SELECT {mine}(least(greatest(y, {lower}), {upper})) FROM t WHERE y IS NOT NULL"
        ).fetchall()
        assert con.execute(sql).fetchone()[0] == pytest.approx(own, rel=1e-5)


# Units.


def test_distinct_units_and_items(con: Any) -> None:
    owner = "privacy_unit := 'unit', max_groups_per_unit := 60, max_rows_per_unit_group := 60"
    for of in ("unit", "id", "ward", "x", "sex"):
        for by in ("", "by := 'h', keys := ['A', 'B', 'none'], "):
            limits = "max_rows_per_unit := 60, privacy_unit := 'unit'" if not by else owner
            sql = f"SELECT * FROM dp_count('t', distinct_of := '{of}', {by} {limits}, {HUGE})"
            found = released(con, sql, 1 if by else 0)[None]
            grouped = "GROUP BY h" if by else ""
            rows = con.execute(f"SELECT {'h, ' if by else ''} count(DISTINCT {of}) FROM t {grouped}").fetchall()
            own = {row[:-1]: row[-1] for row in rows}
            for group, values in found.items():
                assert values["count"] == own.get(group, 0), (of, group)


def test_sums_of_units(con: Any) -> None:
    sql = (
        f"SELECT * FROM dp_aggregate('t', {ALL}, target := 'y', lower := 0, upper := 16, unit_value := 'sum', "
        f"by := 'h', keys := ['A', 'B', 'C'], privacy_unit := 'unit', max_groups_per_unit := 3, {HUGE})"
    )
    con.execute(
        "CREATE OR REPLACE TEMP TABLE per AS SELECT unit, h, least(sum(y), 16) AS y FROM t WHERE y IS NOT NULL "
        "GROUP BY unit, h"
    )
    own = con.execute("SELECT h, count(y), sum(y), avg(y), var_samp(y), stddev_samp(y) FROM per GROUP BY h").fetchall()
    exact = {(row[0],): dict(zip(OWN, row[1:], strict=True)) for row in own}
    agree(released(con, sql, 1)["y"], exact, [("A",), ("B",), ("C",)])


@cases("by", ["'ward'", "['h', 'ward']", "'sex'", "'x'"])
@cases("unit", ["", "privacy_unit := 'id', max_groups_per_unit := 1, max_rows_per_unit_group := 1,"])
def test_private_keys(con: Any, by: str, unit: str) -> None:
    """Every key that many rows have, with its own values; the order is that of the keys' type."""
    columns = [name.strip(" '[]") for name in by.split(",")]
    sql = (
        f"SELECT * FROM dp_aggregate('t', {ALL}, target := 'y', lower := 0, upper := 8, by := {by}, keys := 'private', "
    )
    # Rows without a value count for no key.
    found = released(con, f"{sql} {unit} delta := 1e-6, noise := 'laplace', {HUGE})", len(columns))["y"]
    large = {key: own for key, own in reference(con, "y", columns).items() if own["count"] > 2}
    plain = {tuple("nan" if part != part else part for part in key): own for key, own in large.items()}
    named = {tuple("nan" if part != part else part for part in key): own for key, own in found.items()}
    assert set(named) == set(plain)
    agree(named, plain, list(named))
    order = con.execute(
        f"SELECT DISTINCT {', '.join(columns)} FROM t ORDER BY "
        + ", ".join(f"{name} ASC NULLS LAST" for name in columns)
    ).fetchall()
    ordered = [tuple("nan" if part != part else part for part in key) for key in order]
    assert list(named) == [key for key in ordered if key in named]


def test_an_empty_table_has_no_private_keys(con: Any) -> None:
    con.execute("CREATE OR REPLACE TEMP TABLE few AS FROM t WHERE false")
    for unit in ("", "privacy_unit := 'id', max_groups_per_unit := 1, max_rows_per_unit_group := 2,"):
        for name in ("count", "sum", "avg", "variance", "stddev"):
            for noise in ("laplace", "gaussian"):
                bounds = "" if name == "count" else "lower := 0, upper := 1,"
                sql = f"FROM dp_{name}('few', target := 'y', {bounds} by := 'h', keys := 'private', {unit} delta := 1e-6, "
                assert con.execute(f"{sql} noise := '{noise}', epsilon := 1)").fetchall() == []
                assert con.description[0][0] == "h"


# Where rows come from, and where the result goes.


def sources(con: Any, folder: Path) -> dict[str, str]:
    con.execute(
        "CREATE OR REPLACE VIEW v AS SELECT * FROM t WHERE id % 2 = 0 UNION ALL SELECT * FROM t WHERE id % 2 = 1"
    )
    con.execute(f"COPY (SELECT * EXCLUDE (sex), sex::VARCHAR AS sex FROM t) TO '{folder}/t.parquet'")
    con.execute(f"COPY t TO '{folder}/t.csv'")
    con.register("arrow", con.sql("FROM t").to_arrow_table())
    con.register("pandas", con.sql("FROM t").df())
    found = {"view": "v", "arrow": "arrow", "pandas": "pandas"}
    polars = pytest.importorskip("polars")
    con.register("polars", polars.from_arrow(con.sql("SELECT * EXCLUDE (wide) FROM t").to_arrow_table()))
    return found | {"polars": "polars", "parquet": f"{folder}/t.parquet", "csv": f"{folder}/t.csv"}


@pytest.mark.parametrize("unit", ["", "privacy_unit := 'id', max_rows_per_unit := 1, "])
def test_sources(con: Any, tmp_path: Path, unit: str) -> None:
    for name, source in sources(con, tmp_path).items():
        sql = f"SELECT * FROM dp_avg('{source}', target := 'x', lower := -4, upper := 4, by := ['h', 'ward'], {unit} "
        keys = "keys := {'h': ['A', 'B'], 'ward': [0, 1]}, dataset := 'mine', "
        found = released(con, f"{sql} {keys} {HUGE})", 2)["x"]
        # pandas has no NULL beside NaN, and both count for nothing.
        agree(found, reference(con, "x", ["h", "ward"]), [(h, w) for h in "AB" for w in (0, 1)])
        private = f"by := 'ward', keys := 'private', delta := 1e-6, dataset := 'mine', {unit} {HUGE}"
        rows = con.execute(f"SELECT ward, value FROM dp_count('{source}', {private})").fetchall()
        assert rows == con.execute("SELECT ward, count(*) FROM t GROUP BY ward ORDER BY ward").fetchall(), name


def test_inside_statements() -> None:
    with dpsql.connect() as con:
        con.execute(ROWS)
        form = f"dp_count('t', by := 'ward', keys := [0, 1, 9], {HUGE})"
        own = con.execute("SELECT count(*) FROM t WHERE ward = 1").fetchone()[0]
        con.execute(f"CREATE TABLE kept AS SELECT * FROM {form}")
        assert con.execute("SELECT value FROM kept WHERE ward = 1").fetchone() == (own,)
        assert con.execute("SELECT typeof(ward) FROM kept").fetchone() == ("BIGINT",)
        con.execute("CREATE TABLE names AS SELECT 1 AS ward, 'first' AS label")
        joined = f"WITH c AS (SELECT * FROM {form}) SELECT label, value FROM c JOIN names USING (ward)"
        assert con.execute(joined).fetchall() == [("first", own)]
        con.execute("BEGIN")
        con.execute("INSERT INTO t SELECT * REPLACE (1 AS ward) FROM t LIMIT 10")
        assert con.execute(f"SELECT value FROM {form} WHERE ward = 1").fetchone()[0] > own
        con.execute("ROLLBACK")
        assert con.execute(f"SELECT value FROM {form} WHERE ward = 1").fetchone() == (own,)
        con.execute(f"PREPARE again AS SELECT * FROM {form}")
        assert con.execute("EXECUTE again").fetchall() == con.execute("EXECUTE again").fetchall()
        con.execute(f"CREATE VIEW noisy AS SELECT * FROM {form}")
        assert len(con.execute("FROM noisy").fetchall()) == 3


def test_a_named_release_is_replayed() -> None:
    with dpsql.connect() as con:
        con.execute(ROWS)
        for keys in ("keys := ['A', 'B'], other := true", "keys := 'private', delta := 1e-6"):
            name = "r1" if "other" in keys else "r2"
            form = (
                f"SELECT * FROM dp_aggregate('t', aggregates := ['count', 'avg'], target := 'x', lower := -4, upper := 4, "
                f"by := 'h', {keys}, epsilon := 1, release := '{name}')"
            )
            first = con.execute(form).fetchall()
            types = [str(column[1]) for column in con.description]
            assert con.execute(form).fetchall() == first
            assert [str(column[1]) for column in con.description] == types
        assert len(con.execute("FROM dp_ledger() WHERE epsilon > 0").fetchall()) == 2


# The aggregate form, and Python.


@pytest.mark.parametrize("target", ["x", "y", "price", "yes"])
def test_the_aggregate_form(con: Any, target: str) -> None:
    lower, upper = BOUNDS[target]
    bounds = f"lower := {lower}, upper := {upper}"
    exact = reference(con, target, ["h"])
    rows = con.execute(
        f"SELECT h, dp_aggregate({target}, {ALL}, {bounds}, {HUGE}), dp_count({target}, {HUGE}), "
        f"dp_sum({target}, {bounds}, {HUGE}), dp_avg({target}, {bounds}, {HUGE}), "
        f"dp_variance({target}, {bounds}, {HUGE}), dp_stddev({target}, {bounds}, {HUGE}) FROM t GROUP BY h"
    ).fetchall()
    assert len(rows) == 4
    for h, several, *alone in rows:
        found = {entry["aggregate"]: entry["value"] for entry in several}
        agree({(h,): found}, exact, [(h,)])
        agree({(h,): {one["aggregate"]: one["value"] for [one] in alone}}, exact, [(h,)])


def test_python(con: Any) -> None:
    with dpsql.Context(con) as context:
        release = context.dp_aggregate(
            "t",
            aggregates=["count", "avg"],
            target=["x", "y"],
            lower={"x": -4, "y": 0},
            upper=[4, 8],
            by=["h", "adult"],
            keys={"h": ["A", None]},
            epsilon=1e12,
        )
        table = release.arrow() if hasattr(release, "arrow") else release.value
        found: dict[Any, Any] = {}
        for row in table.to_pylist():
            found.setdefault(row["target"], {}).setdefault((row["h"], row["adult"]), {})[row["aggregate"]] = row[
                "value"
            ]
        for target, groups in found.items():
            keys = [(h, a) for h in ("A", None) for a in ADULT]
            agree(groups, reference(con, target, ["h", "adult"]), keys)
        decimals = context.dp_count("t", by="price", keys=[Decimal("0.25"), 0.5, Decimal("1.00")], epsilon=1e12)
        table = decimals.arrow() if hasattr(decimals, "arrow") else decimals.value
        own = dict(con.execute("SELECT price, count(*) FROM t GROUP BY price").fetchall())
        for row in table.to_pylist():
            assert row["value"] == own.get(row["price"], math.nan)


def test_groups_of_public_sizes(con: Any) -> None:
    """At a huge epsilon sums and averages of the clipped rows, with the rows that were stated; NULL is in the middle."""
    con.execute("CREATE OR REPLACE TABLE sized AS SELECT i % 2 AS g, (i % 32) / 4 - 4 AS x FROM range(64) AS r(i)")
    exact = dict(con.execute("SELECT g, sum(x) FROM sized GROUP BY g").fetchall())
    call = (
        f"SELECT g, aggregate, value, upper - lower FROM dp_aggregate('sized', aggregates := ['sum', 'avg'], {HUGE}, "
        "target := 'x', lower := -4, upper := 4, by := 'g', keys := [1, 0], group_sizes := [32, 32], neighbours := 'replace')"
    )
    found = {(group, name): value for group, name, value, _ in con.execute(call).fetchall()}
    for group, total in exact.items():
        assert found[group, "sum"] == pytest.approx(total, abs=1e-6)
        assert found[group, "avg"] == pytest.approx(total / 32, abs=1e-6)
    con.execute("INSERT INTO sized VALUES (0, NULL), (1, 'nan'::DOUBLE)")
    alone = f"SELECT value FROM dp_avg('sized', target := 'x', lower := -4, upper := 4, {HUGE}, group_sizes := 66)"
    assert con.execute(alone).fetchone()[0] == pytest.approx(sum(exact.values()) / 66, abs=1e-6)
    named = alone.replace("group_sizes := 66", "group_sizes := 66, release := 'sized'")
    assert con.execute(named).fetchone() == con.execute(named).fetchone()
    other = alone.replace("group_sizes := 66", "group_sizes := 65, release := 'sized'")
    with pytest.raises(duckdb.Error, match="P014"):
        con.execute(other)


@cases(
    ("function", "more", "code"),
    [
        ("dp_avg", "group_sizes := [1, 2]", "P046.*2 numbers for 1 groups"),
        ("dp_avg", "group_sizes := 0", "P021"),
        ("dp_sum", "group_sizes := [3, 4], by := 'h', keys := 'private', delta := 1e-6", "P046.*keys"),
        ("dp_sum", "group_sizes := [3, 4], by := 'sex'", "P046.*keys"),
        ("dp_sum", "group_sizes := [3, 4], by := 'h', keys := ['A', 'B'], other := true", "P046.*3 groups"),
        ("dp_aggregate", "group_sizes := 4, aggregates := ['count', 'avg']", "P045"),
    ],
)
def test_sizes_that_are_refused(con: Any, function: str, more: str, code: str) -> None:
    with pytest.raises(duckdb.Error, match=code):
        con.execute(f"FROM {function}('t', target := 'x', lower := 0, upper := 1, epsilon := 1, {more})")
