"""dp_synthetic on sources of every kind: periods, tables of a dataset, views, plain SQL over its rows, and its picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql.errors import ParameterError
from dpsql.released.plots import save


def rows(con: Any, sql: str) -> list[Any]:
    found: list[Any] = con.execute(sql).fetchall()
    return found


@pytest.mark.long
def test_on_a_period_its_rows_are_those_and_its_budget_is_charged() -> None:
    with dpsql.connect() as con:
        con.execute("CREATE TABLE nights AS SELECT i % 500 AS person, DATE '2026-01-01' + (i % 59)::INTEGER AS day, "
                    "['A', 'B'][1 + (i % 59 > 30)::INTEGER] AS ward, i % 9 AS n FROM range(5900) AS r(i)")  # fmt: skip
        con.execute(
            "SELECT dp_protect('nights', epsilon := 100, delta := 1e-4, privacy_unit := 'person', max_rows_per_unit := 20, "
            "period := 'month', period_of := 'day')"
        )
        call = (
            "FROM dp_synthetic('nights', columns := ['ward', 'n'], keys := {{ward: ['A', 'B']}}, lower := {{n: 0}}, "
            "upper := {{n: 8}}, epsilon := 50, delta := 1e-6{})"
        )
        with pytest.raises(Exception, match="DPSQL-P"):  # the owner stated periods
            con.execute(call.format(""))
        con.execute(call.format(", during := '2026-01', release := 'january'"))
        twin = dict(rows(con, "SELECT ward, count(*) FROM dp_synthetic_rows('january') GROUP BY ALL"))
        assert abs(twin["A"] - 3100) < 100
        assert twin.get("B", 0) < 100
        con.execute(call.format(", during := '2026-02', release := 'february'"))
        [(kept,)] = rows(con, "SELECT count(*) FROM dp_synthetic_rows('february') WHERE ward = 'B'")
        assert abs(kept - 2800) < 150
        blocks = dict(rows(con, "SELECT block, delta_spent FROM dp_budget()"))
        assert (blocks["2026-01"], blocks["2026-02"], blocks["every other"]) == (1e-6, 1e-6, 0.0)


@pytest.mark.long
def test_on_tables_of_one_person() -> None:
    """A table at the end of a path, and a view over several, are charged to their one budget."""
    with dpsql.connect() as con:
        con.execute("CREATE TABLE patients AS SELECT i AS id, 20 + i % 70 AS age FROM range(2000) AS r(i)")
        con.execute(
            "CREATE TABLE visits AS SELECT i AS vid, i % 2000 AS patient, i % 14 AS days FROM range(6000) AS r(i)"
        )
        con.execute("CREATE TABLE labs AS SELECT i % 6000 AS visit, 4 + (i % 40) / 10 AS potassium, i % 3 = 0 AS fasting "
                    "FROM range(18000) AS r(i)")  # fmt: skip
        con.execute("CREATE VIEW stays AS SELECT patients.age, visits.days, visits.patient FROM patients "
                    "JOIN visits ON patients.id = visits.patient")  # fmt: skip
        con.execute("SELECT dp_protect('hospital', epsilon := 100, delta := 1e-4, max_rows_per_unit := 20, "
                    "tables := {patients: 'id', visits: 'patient', labs: 'visit -> visits.vid'})")  # fmt: skip
        con.execute(
            "FROM dp_synthetic('labs', columns := ['potassium', 'fasting'], lower := {potassium: 2}, "
            "upper := {potassium: 9}, epsilon := 20, delta := 1e-6, release := 'labs')"
        )
        con.execute(
            "FROM dp_synthetic('stays', columns := ['age', 'days'], lower := {age: 0, days: 0}, "
            "upper := {age: 100, days: 13}, epsilon := 20, delta := 1e-6, release := 'stays')"
        )
        [(count, share)] = rows(con, "SELECT count(*), avg(fasting::INTEGER) FROM dp_synthetic_rows('labs')")
        assert abs(count - 18_000) < 1000
        assert abs(share - 1 / 3) < 0.05
        [(count, low, high)] = rows(con, "SELECT count(*), min(age), max(age) FROM dp_synthetic_rows('stays')")
        assert abs(count - 6000) < 700
        assert 0 <= low <= high <= 100
        assert rows(con, "SELECT dataset, epsilon_spent FROM dp_budget()") == [("hospital", 40.0)]


def released() -> Any:
    """A release of four columns, of which three go together."""
    with dpsql.Context() as context:
        table = pa.table({name: np.arange(2000) % size for name, size in (("a", 5), ("b", 5), ("c", 10), ("d", 7))})
        return context.dp_synthetic(table, lower=0, upper=9, epsilon=10, delta=1e-6, dataset="d", release="d")


@pytest.mark.long
def test_its_picture_has_a_cell_for_each_pair(tmp_path: Path) -> None:
    release = released()
    picture = release.plot()
    shown = picture.images[0].get_array()
    report = release.value.to_pylist()
    assert shown.count() == len(report) == 6
    assert shown[1, 0] == pytest.approx(report[0]["error"])
    points = {tuple(map(int, point)) for point in picture.collections[0].get_offsets()}
    names = ["a", "b", "c", "d"]
    assert points == {
        (names.index(row["column_1"]), names.index(row["column_2"])) for row in report if row["fit"] == "measured"
    }
    save(picture, tmp_path / "pairs.svg")
    with pytest.raises(ParameterError, match="P005"):
        release.plot("bars")


@pytest.mark.long
def test_a_job_makes_a_table_of_it_and_a_second_run_charges_nothing(tmp_path: Path) -> None:
    with dpsql.connect(tmp_path / "d.duckdb") as con:
        con.execute("CREATE TABLE t AS SELECT i % 10 AS a, ['x', 'y'][1 + i % 2] AS g FROM range(3000) AS r(i)")
        con.execute("SELECT dp_protect('t', epsilon := 9, delta := 1e-5)")
    (tmp_path / "job.sql").write_text(
        "FROM dp_synthetic('t', keys := {g: ['x', 'y']}, lower := {a: 0}, upper := {a: 9}, epsilon := 5, delta := 1e-6, "
        "release := 'twin-' || $day);\n"
        "CREATE OR REPLACE TABLE twin AS FROM dp_synthetic_rows('twin-' || $day);\n"
        "SELECT g, count(*) AS n FROM dp_synthetic_rows('twin-' || $day) GROUP BY g ORDER BY g;",
        encoding="utf-8",
    )
    for _ in range(2):
        dpsql.run(tmp_path / "job.sql", database=tmp_path / "d.duckdb", parameters={"day": "2026-01-01"})
    with dpsql.connect(tmp_path / "d.duckdb") as con:
        assert rows(con, "SELECT epsilon_spent FROM dp_budget()") == [(5.0,)]
        [(count,)] = rows(con, "SELECT count(*) FROM twin")
        assert abs(count - 3000) < 100
