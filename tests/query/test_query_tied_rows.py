"""What DuckDB could choose, it does not: rows in another order, read by other threads, give the same exact integers.

The rows of a person tie in all that a query orders by, and hold values that are equal and spelled differently. Which
of them would come first follows from the order in which DuckDB reads rows, and so from those of other people.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pytest

import dpsql
from support.broken.planting import Fault, planted
from support.broken.row_orders import EQUAL_AS_ONE, EQUAL_VALUES_AS_READ, ORDER_AS_WRITTEN, ORDER_OF_SOME, UNJUDGED
from support.cases import cases
from support.exact_parts import exact_parts
from support.sql_text import literal

PEOPLE, EACH = 700, 6
COLUMNS = {
    **{"person": "BIGINT", "day": "DATE", "ward": "VARCHAR", "v": "INTEGER", "x": "DOUBLE", "f": "FLOAT"},
    **{"stay": "INTERVAL", "name": "VARCHAR COLLATE NOCASE", "list": "DOUBLE[]", "pair": "STRUCT(a FLOAT, b VARCHAR)"},
}
# Six rows of each person, all of one day.
ROWS = """
SELECT r // 6 AS person, DATE '2026-01-01' + CAST(r // 6 % 3 AS INTEGER) AS day, ['A', 'B', 'C'][r % 3 + 1] AS ward,
  CAST(hash(r) % 1000 AS INTEGER) AS v,
  (['0', '-0', 'nan', '-nan', '1', NULL]::DOUBLE[])[(r + r // 6) % 6 + 1] AS x,
  (['-0', '0', '2', 'nan', '-nan', NULL]::FLOAT[])[(r + r // 6) % 6 + 1] AS f,
  [INTERVAL '1 month', INTERVAL '30 days', INTERVAL '720 hours', NULL][(r + r // 6) % 4 + 1] AS stay,
  ['ann', 'Ann', 'ANN', NULL][(r + r // 6) % 4 + 1] AS name,
  ([['0'], ['-0'], NULL]::DOUBLE[][])[r % 3 + 1] AS list,
  struct_pack(a := (['0', '-0']::FLOAT[])[r % 2 + 1], b := 'b') AS pair
FROM range({}) t(r)
"""
OVER = "OVER (PARTITION BY person ORDER BY day)"
ROWS_2 = "OVER (PARTITION BY person ORDER BY day ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
GROUPS = "OVER (PARTITION BY person ORDER BY day GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW)"
ENDS = "OVER (PARTITION BY person ORDER BY day ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
# What is chosen is asked by a number that differs between rows that tie, or by how a value is spelled.
CHOOSING = {
    "distinct on": "SELECT DISTINCT ON (person) person, v AS n FROM visits ORDER BY person, day",
    "distinct on without an order": "SELECT DISTINCT ON (person) person, v AS n FROM visits",
    "distinct on a part": "SELECT DISTINCT ON (person, ward) person, v AS n FROM visits ORDER BY day",
    "row_number": f"SELECT person, v AS n FROM visits QUALIFY row_number() {OVER} = 2",
    "row_number without an order": (
        "SELECT person, v AS n FROM visits QUALIFY row_number() OVER (PARTITION BY person) = 1"
    ),
    "row_number by a part": (
        "SELECT person, v AS n FROM visits QUALIFY row_number() OVER (PARTITION BY person, ward ORDER BY day DESC) = 1"
    ),
    "row_number by a column that is not handed on": (
        "SELECT person, v * r AS n FROM (SELECT person, v, row_number() OVER (PARTITION BY person ORDER BY ward) AS r "
        "FROM visits)"
    ),
    "lag": f"SELECT person, v - lag(v) {OVER} AS n FROM visits",
    "lead": f"SELECT person, v * lead(v, 2, 0) {OVER} AS n FROM visits",
    "lag of what has a value": f"SELECT person, v * lag(CASE WHEN ward = 'B' THEN v END IGNORE NULLS) {OVER} AS n FROM visits",
    "first_value": f"SELECT person, first_value(v) {OVER} AS n FROM visits",
    "first_value without an order": "SELECT person, first_value(v) OVER (PARTITION BY person) AS n FROM visits",
    "first_value that is there": (
        f"SELECT person, first_value(CASE WHEN ward = 'B' THEN v END IGNORE NULLS) {OVER} AS n FROM visits"
    ),
    "last_value": f"SELECT person, last_value(v) {OVER} AS n FROM visits",
    "last_value without an order": "SELECT person, last_value(v) OVER (PARTITION BY person) AS n FROM visits",
    "last_value that is there": (
        f"SELECT person, last_value(CASE WHEN ward = 'B' THEN v END IGNORE NULLS) {OVER} AS n FROM visits"
    ),
    "last_value of all": f"SELECT person, last_value(v) {ENDS} AS n FROM visits",
    "first_value of rows": f"SELECT person, first_value(v) {ROWS_2} AS n FROM visits",
    "first_value of peers": f"SELECT person, first_value(v) {GROUPS} AS n FROM visits",
    "last_value of peers": f"SELECT person, last_value(v) {GROUPS} AS n FROM visits",
    "max of rows": f"SELECT person, max(v) {ROWS_2} AS n FROM visits",
    "count of rows": f"SELECT person, v * count(CASE WHEN ward = 'A' THEN 1 END) {ROWS_2} AS n FROM visits",
    "min of rows, two windows": (
        f"SELECT person, min(v) {ROWS_2} + row_number() {OVER} * v + rank() {OVER} AS n FROM visits"
    ),
    "rows of groups": (
        "SELECT person, ward, max(m) AS n FROM (SELECT person, ward, m, row_number() OVER (PARTITION BY person "
        "ORDER BY k) AS r FROM (SELECT person, ward, count(*) AS k, max(v) AS m FROM visits GROUP BY person, ward)) "
        "WHERE r = 1 GROUP BY person, ward"
    ),
    "rows of a join": (
        "SELECT DISTINCT ON (a.person) a.person, a.v * b.v AS n FROM visits a JOIN visits b ON a.person = b.person "
        "AND a.ward <> b.ward ORDER BY a.person, a.day"
    ),
    "rows of a union": (
        "SELECT DISTINCT ON (person) person, n FROM (SELECT person, day, v AS n FROM visits WHERE ward = 'A' UNION ALL "
        "SELECT person, day, -v FROM visits WHERE ward <> 'A') ORDER BY person, day"
    ),
}


def shown(column: str, value: str) -> str:
    """Return the text of a value; of one with a collation, by which texts are compared, a text without."""
    return f"CASE ascii({value}) WHEN 65 THEN 'Ann' ELSE 'ann' END" if column == "name" else f"CAST({value} AS VARCHAR)"


SPELLED = {
    **{
        f"{name} of {column}": f"SELECT person, CAST({name}({column}) AS VARCHAR) AS n FROM visits GROUP BY person"
        for column in ("x", "list")
        for name in ("min", "max")
    },
    **{
        f"{name} of {column} over rows": (
            f"SELECT person, {shown(column, 'w')} AS n FROM "
            f"(SELECT person, {name}({column}) OVER (PARTITION BY person) AS w FROM visits)"
        )
        for column in ("f", "stay", "name", "list")
        for name in ("min", "max")
    },
    "median": "SELECT person, CAST(median(-x) AS VARCHAR) AS n FROM visits GROUP BY person",
    "quantile_cont": "SELECT person, CAST(quantile_cont(f, 0.9) AS VARCHAR) AS n FROM visits GROUP BY person",
    **{
        f"groups of {column}": (
            f"SELECT person, CAST({column} AS VARCHAR) AS n, count(*) AS k FROM visits GROUP BY person, {column}"
        )
        for column in ("x", "f", "list")
    },
    "distinct": "SELECT person, CAST(x AS VARCHAR) AS n FROM (SELECT DISTINCT person, x FROM visits)",
    "union": "SELECT person, CAST(x AS VARCHAR) AS n FROM (SELECT person, x FROM visits UNION SELECT person, x FROM visits)",
    **{
        f"row_number, {column}": (
            f"SELECT person, {shown(column, column)} AS n FROM visits "
            f"QUALIFY row_number() OVER (PARTITION BY person ORDER BY {column}) = 1"
        )
        for column in ("x", "f", "stay", "name", "list")
    },
    "row_number, a field": (
        "SELECT person, CAST(pair.a AS VARCHAR) AS n FROM visits "
        "QUALIFY row_number() OVER (PARTITION BY person ORDER BY day) = 1"
    ),
    "parts of equal values": (
        "SELECT person, CAST(x AS VARCHAR) AS n FROM visits "
        "QUALIFY row_number() OVER (PARTITION BY person, x ORDER BY day) = 1"
    ),
}
# In the order as it is written these have none, which the plan shows, or the groups that they choose from do not tie.
REFUSED = {*(name for name in CHOOSING if "without an order" in name), "last_value", "rows of groups"}
NUMBERS = ("-0.0", "0.0", "nan", "-nan", "1 month", "30 days", "720:00:00", "ann", "Ann", "ANN", "[0.0]", "[-0.0]")


def asked(inner: str, *, spelled: bool) -> str:
    values = [f"count_if(n = '{one}')" for one in NUMBERS] if spelled else ["sum(n)", "count(n)"]
    sql = f"SELECT count(*), {', '.join(values)} FROM ({inner})"
    bounds = "" if spelled else "lower := -1048576, upper := 1048576, "
    return f"FROM dp_query({literal(sql)}, epsilon := 1, {bounds}fresh := true)"


FORMS = {**{name: asked(sql, spelled=False) for name, sql in CHOOSING.items()}}
FORMS |= {name: asked(sql, spelled=True) for name, sql in SPELLED.items()}
# What the plan of the query does not show to be in a total order.
UNSHOWN = {name: FORMS.pop(name) for name in ("groups of list", "row_number, a field")}


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        opened.execute("ATTACH ':memory:' AS small (ROW_GROUP_SIZE 2048)")  # so that threads share the rows
        opened.execute("USE small")
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        opened.execute(f"CREATE TABLE visits ({columns})")
        opened.execute(
            "SELECT dp_protect('hospital', epsilon := 1e9, max_rows_per_unit := 12, tables := {visits: 'person'})"
        )
        yield opened


# Shuffles of the rows, and how many threads read them.
READ = ((0, 1), (1, 1), (2, 4))


def integers(con: Any, forms: dict[str, str], read: Sequence[tuple[int, int]] = READ) -> dict[str, list[Any]]:
    """Return what each form answers, and the exact integers of its parts, of shuffled rows and threads."""
    found: dict[str, list[Any]] = {name: [] for name in forms}
    with exact_parts() as calls:
        for shuffle, threads in read:
            con.execute(f"SET threads = {threads}")
            con.execute("DELETE FROM visits")
            con.execute(
                f"INSERT INTO visits SELECT * FROM ({ROWS.format(PEOPLE * EACH)}) ORDER BY hash(v, ward, person, {shuffle})"
            )
            for name, sql in forms.items():
                call = calls.run(con, sql)
                numbers = [
                    sorted(map(str, vector)) if isinstance(vector, dict) else vector.tolist()
                    for part in call.parts
                    for vector in part.vectors
                ]
                found[name].append((call.rows, numbers))
    return found


@pytest.fixture(scope="module")
def found(con: Any) -> dict[str, list[Any]]:
    return integers(con, FORMS)


@pytest.mark.long
def test_no_order_of_rows_decides(found: dict[str, list[Any]]) -> None:
    assert changed(found) == []


@cases("name", UNSHOWN)
def test_an_order_that_the_plan_does_not_show_is_refused(con: Any, name: str) -> None:
    with pytest.raises(duckdb.Error, match="DPSQL-S045"):
        con.execute(UNSHOWN[name])


# A form for each way to fix a choice.
FEW = ("lag", "last_value", "groups of x", "row_number, x", "row_number, name")


def test_no_order_of_rows_decides_a_few_forms(con: Any) -> None:
    few = integers(con, {name: FORMS[name] for name in FEW}, READ[:2])
    assert changed(few) == []
    assert [name for name, several in few.items() if not any(several[0][0][0][1:])] == []


def changed(found: dict[str, list[Any]]) -> list[str]:
    return [name for name, several in found.items() if any(one != several[0] for one in several[1:])]


@pytest.mark.long
def test_something_is_chosen_and_spelled(found: dict[str, list[Any]]) -> None:
    """The integers are those of rows, and not all 0: the test above looks at something."""
    assert [name for name, several in found.items() if not any(several[0][0][0][1:])] == []


@pytest.mark.long
def test_last_values_are_those_of_peers(con: Any) -> None:
    """What is written anew means what was asked, where DuckDB has nothing to choose."""
    con.execute("DELETE FROM visits")
    con.execute(f"INSERT INTO visits SELECT * FROM ({ROWS.format(120)})")
    con.execute("UPDATE visits SET day = day + v")
    for name, inner in CHOOSING.items():
        if "without an order" in name or name.startswith("rows of") or "not handed on" in name:
            continue
        with exact_parts() as calls:
            [ours] = calls.run(con, FORMS[name]).rows
        theirs = con.execute(f"SELECT count(*), sum(n), count(n) FROM ({inner})").fetchone()
        assert tuple(map(float, ours)) == tuple(map(float, theirs)), name


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "forms"),
    [
        (ORDER_AS_WRITTEN, [name for name in CHOOSING if name not in REFUSED]),
        (ORDER_OF_SOME, ["row_number, x", "parts of equal values"]),
        (EQUAL_AS_ONE, ["row_number, stay", "row_number, name"]),
        (
            EQUAL_VALUES_AS_READ,
            ["min of x", "max of x", "groups of x", "distinct", "min of f over rows"],
        ),
    ],
    ids=lambda one: one.what if isinstance(one, Fault) else "",
)
def test_planted_faults_are_found(con: Any, fault: Fault, forms: list[str]) -> None:
    for name in forms:
        with planted(*fault.patches), pytest.raises(duckdb.Error, match="DPSQL-S045"):
            con.execute(FORMS[name]).fetchall()
    with planted(*fault.patches, *UNJUDGED):
        assert changed(integers(con, {name: FORMS[name] for name in forms}, READ[:2])) == forms
