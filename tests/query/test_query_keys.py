"""Where keys of groups come from, and bounds of what is summed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.errors import ParameterError
from support.cases import cases
from tests.support.split_queries import hospital, split_of


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    found = hospital()
    yield found
    found.close()


def keys(con: duckdb.DuckDBPyConnection, key: str, where: str = "true", source: str = "visits") -> list[object]:
    """Return the values of the one key of a query."""
    sql = f"SELECT {key} AS k, count(*) FROM {source} WHERE {where} GROUP BY k"
    [core] = split_of(con, sql, delta=False).cores
    [found] = core.keys
    if found.query is None:
        assert found.values is not None
        return list(found.values)
    assert "visits" not in found.query
    assert "people" not in found.query
    rows = [value for (value,) in con.execute(found.query).fetchall()]
    assert len(set(rows)) == len(rows)
    assert con.execute(f"SELECT typeof(v) FROM ({found.query}) AS q(v) LIMIT 1").fetchall() == [(found.type,)]
    return sorted(rows, key=lambda one: (one is not None, str(one)))


def test_declared_enum_and_boolean(con: duckdb.DuckDBPyConnection) -> None:
    assert keys(con, "ward") == ["A", "B", "C", "D"]
    assert keys(con, "outcome") == ["well", "ill", "dead", None]
    assert keys(con, "smoker", source="patients") == ["true", "false", None]


def test_case_booleans_and_literals(con: duckdb.DuckDBPyConnection) -> None:
    assert keys(con, "CASE WHEN days > 3 THEN 'long' ELSE 'short' END") == ["long", "short"]
    assert keys(con, "CASE days WHEN 1 THEN 'one' WHEN 2 THEN 'two' END") == ["one", "two", None]
    assert keys(con, "days > 3") == ["true", "false", None]
    assert keys(con, "days IS NULL") == ["true", "false"]
    assert keys(con, "CASE WHEN days > 3 THEN ward ELSE 'none' END") == ["A", "B", "C", "D", "none"]


def test_dates_between_literals(con: duckdb.DuckDBPyConnection) -> None:
    bounded = "visit_date >= DATE '2024-02-10' AND visit_date < DATE '2024-04-01'"
    assert [str(one)[:10] for one in keys(con, "date_trunc('month', visit_date)", bounded)] == [
        "2024-02-01",
        "2024-03-01",
    ]
    assert len(keys(con, "visit_date", bounded)) == 51
    assert keys(con, "year(visit_date)", "visit_date BETWEEN '2023-12-31' AND '2025-01-01'") == [2023, 2024, 2025]
    assert len(keys(con, "date_trunc('hour', CAST(visit_date AS TIMESTAMP))", "visit_date = DATE '2024-02-10'")) == 1
    of_a_day = "CAST(CAST(visit_date AS TIMESTAMP) AS DATE) = DATE '2024-02-10'"
    assert len(keys(con, "hour(CAST(visit_date AS TIMESTAMP))", of_a_day)) == 24
    assert len(keys(con, "date_trunc('hour', CAST(visit_date AS TIMESTAMP))", of_a_day)) == 24
    twice = bounded + " AND visit_date >= DATE '2024-03-02' AND visit_date <= DATE '2024-12-01'"
    assert [str(one)[:10] for one in keys(con, "date_trunc('month', visit_date)", twice)] == ["2024-03-01"]
    last = "visit_date > CURRENT_DATE - INTERVAL 30 DAY AND visit_date <= CURRENT_DATE"
    assert keys(con, "visit_date", last)[-1].isoformat() == "2026-11-26"  # type: ignore[attr-defined]
    [(first,)] = con.execute("SELECT time_bucket(INTERVAL '2 weeks', DATE '2024-02-10')").fetchall()
    assert keys(con, "time_bucket(INTERVAL '2 weeks', visit_date)", bounded)[0] == first


@cases(
    ("where", "first", "last"),
    [
        ("year(visit_date) = 2024", "2024-01-01", "2024-12-31"),
        ("extract(year FROM visit_date) BETWEEN 2023 AND 2024", "2023-01-01", "2024-12-31"),
        ("2024 < year(visit_date) AND year(visit_date) <= 2025", "2025-01-01", "2025-12-31"),
        ("year(visit_date) IN (2025, 2023)", "2023-01-01", "2025-12-31"),
        ("year(visit_date) = 2024 AND visit_date < DATE '2024-03-01'", "2024-01-01", "2024-02-29"),
        ("date_trunc('month', visit_date) = DATE '2024-02-01'", "2024-02-01", "2024-02-29"),
        ("date_trunc('quarter', visit_date) BETWEEN '2024-04-01' AND '2024-07-01'", "2024-04-01", "2024-09-30"),
        ("date_trunc('month', visit_date) > DATE '2024-02-10' AND year(visit_date) < 2025", "2024-03-01", "2024-12-31"),
        ("CAST(date_trunc('year', visit_date) AS DATE) = '2024-01-01'", "2024-01-01", "2024-12-31"),
        ("date_trunc('week', visit_date) = DATE '2024-02-05'", "2024-02-05", "2024-02-11"),
        (
            "date_trunc('week', visit_date) > DATE '2024-02-07' AND visit_date < '2025-01-01'",
            "2024-02-12",
            "2024-12-31",
        ),
        ("date_trunc('day', visit_date) BETWEEN '2024-02-28' AND '2024-03-01'", "2024-02-28", "2024-03-01"),
        (
            "date_trunc('week', visit_date) >= date_trunc('week', TIMESTAMP '2024-01-10 10:00:00') "
            "AND date_trunc('month', visit_date) < date_trunc('quarter', DATE '2024-05-05')",
            "2024-01-08",
            "2024-03-31",
        ),
    ],
    quick=7,
)
def test_dates_whose_parts_are_bounded(con: duckdb.DuckDBPyConnection, where: str, first: str, last: str) -> None:
    """No day that the condition keeps is left out, and the first and the last day are among those that it keeps."""
    found = [str(one) for one in keys(con, "visit_date", where)]
    kept = con.execute(
        f"SELECT visit_date FROM (SELECT unnest(generate_series(DATE '2000-01-01', DATE '2050-01-01', INTERVAL 1 DAY))::DATE "
        f"AS visit_date) WHERE {where} ORDER BY ALL"
    ).fetchall()
    assert {str(day) for (day,) in kept} <= set(found)
    assert (found[0], found[-1]) == (first, last) == (str(kept[0][0]), str(kept[-1][0]))


@cases(
    "where",
    [
        "year(visit_date) = 99999",
        "year(visit_date) = 0",
        "year(visit_date) > 9998",
        "year(visit_date) = 2024.5",
        "month(visit_date) = 3",
        "year(visit_date) = days",
        "year(visit_date) = 2024 OR days > 3",
    ],
)
def test_parts_that_bound_no_date(con: duckdb.DuckDBPyConnection, where: str) -> None:
    with pytest.raises(ParameterError, match="P065"):
        keys(con, "visit_date", where)


NARROWED = """
ward | ward <> 'A'
ward | ward NOT IN ('A', 'B') AND ward < 'D'
ward | ward IN ('A', 'B') AND ward <> 'A'
ward | lower(ward) = 'c'
lower(ward) | ward <> 'A'
lower(ward) || '!' | lower(ward) > 'b' AND lower(ward) || '!' <> 'c!'
CASE ward WHEN 'A' THEN 'first' ELSE 'other' END | CASE ward WHEN 'A' THEN 'first' ELSE 'other' END = 'first'
outcome | outcome <> 'dead'
outcome | outcome IS NULL
outcome = 'ill' | outcome = 'ill'
days | days > 360
days | days >= 350 AND days % 7 = 0
days | days >= 2.5 AND days < 4.5
days // 10 * 10 | days // 10 * 10 BETWEEN 100 AND 120
days // 10 * 10 | days < 30
days / 100 | days / 100 > 3.6
days + 1 | days + 1 < 4
month(visit_date) | month(visit_date) BETWEEN 3 AND 5
month(visit_date) | extract(month FROM visit_date) > 10
date_part('dayofweek', visit_date) | dayofweek(visit_date) NOT IN (0, 6)
quarter(visit_date) | quarter(visit_date) IN (1, 2) AND quarter(visit_date) <> 1
visit_date | visit_date >= '2024-02-01' AND visit_date < '2024-03-01' AND dayofweek(visit_date) = 1
date_trunc('month', visit_date) | year(visit_date) = 2024 AND month(visit_date) IN (2, 5)
strftime(visit_date, '%a') | visit_date BETWEEN '2024-02-01' AND '2024-02-20' AND day(visit_date) > 18
date_trunc('month', visit_date) | date_trunc('month', visit_date) >= DATE '2024-04-10' AND visit_date < '2024-07-01'
"""


@cases(("key", "where"), [line.split(" | ") for line in NARROWED.strip().splitlines()], quick=12)
def test_conditions_on_a_key_leave_values_out(con: duckdb.DuckDBPyConnection, key: str, where: str) -> None:
    """The values are those of a table with a row for each value that a column may have."""
    rows = """
        SELECT ward, outcome, days, DATE '2024-01-01' + days AS visit_date FROM (SELECT unnest(['A', 'B', 'C', 'D']) AS ward),
        (SELECT unnest([NULL, 'well', 'ill', 'dead'])::outcome AS outcome), (SELECT unnest(range(366))::INTEGER AS days)
    """
    exact = con.execute(f"SELECT DISTINCT ({key})::VARCHAR FROM ({rows}) WHERE {where}").fetchall()
    found = [
        None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        for value in keys(con, key, where)
    ]
    assert sorted(found, key=str) == sorted((value for (value,) in exact), key=str)


def test_a_condition_on_more_than_a_key_leaves_its_values(con: duckdb.DuckDBPyConnection) -> None:
    for where in ("ward <> 'A' OR days > 3", "ward <> doctor", "days > 3"):
        assert keys(con, "ward", where) == ["A", "B", "C", "D"]


def test_parts_of_dates(con: duckdb.DuckDBPyConnection) -> None:
    assert keys(con, "month(visit_date)") == [*(str(one) for one in range(1, 13)), None]
    assert len(keys(con, "extract(isodow FROM visit_date)")) == 7 + 1
    assert len(keys(con, "week(visit_date)")) == 53 + 1


@cases(
    ("key", "format"),
    [
        ("dayname(visit_date)", "%A"),
        ("monthname(visit_date)", "%B"),
        *((f"strftime(visit_date, '{form}')", form) for form in ("%a", "%m-%d", "%j", "%d %a", "%U", "%b %W")),
        *((f"strftime(CAST(visit_date AS TIMESTAMP), '{form}')", form) for form in ("%H", "%H:%M", "%I %p")),
    ],
    quick=5,
)
def test_texts_of_dates_that_come_again(con: duckdb.DuckDBPyConnection, key: str, format: str) -> None:
    """Their values are those of all days of 400 years, after which the calendar repeats, or of all minutes."""
    days, step = ("2400-12-31", "1 DAY") if not set(format) & set("HIMp") else ("2001-01-02", "1 MINUTE")
    moments = f"SELECT unnest(generate_series(TIMESTAMP '2001-01-01', TIMESTAMP '{days}', INTERVAL {step})) AS d"
    exact = con.execute(f"SELECT DISTINCT strftime(d, '{format}') AS v FROM ({moments}) ORDER BY v").fetchall()
    assert keys(con, key) == [None, *(value for (value,) in exact)]
    assert keys(con, key, "visit_date IS NOT NULL") == [value for (value,) in exact]


@cases("form", ["%Y", "%V", "%m %H", "%y-%m", "%S"])
def test_texts_of_dates_that_do_not_come_again(con: duckdb.DuckDBPyConnection, form: str) -> None:
    with pytest.raises(ParameterError, match="P065"):
        keys(con, f"strftime(visit_date, '{form}')")


def test_values_in_where(con: duckdb.DuckDBPyConnection) -> None:
    assert keys(con, "doctor", "doctor IN ('Ann', 'Bob')") == ["Ann", "Bob"]
    assert keys(con, "doctor", "doctor = 'Ann'") == ["Ann"]
    assert keys(con, "doctor", "(doctor = 'Ann' AND days > 1) OR (days < 1 AND doctor = 'Bob')") == ["Ann", "Bob"]
    with pytest.raises(ParameterError, match="P065"):
        keys(con, "doctor", "doctor = 'Ann' OR days > 1")
    with pytest.raises(ParameterError, match="P065"):
        keys(con, "doctor", "NOT (doctor = 'Ann')")


def test_columns_of_public_tables(con: duckdb.DuckDBPyConnection) -> None:
    joined = "visits JOIN wards USING (ward)"
    assert keys(con, "building", source=joined) == ["N", "S"]
    assert keys(con, "building", "beds > 8", joined) == ["N", "S"]
    assert keys(con, "beds", "building = 'N'", joined) == [10, 5]
    assert keys(con, "building", source="visits LEFT JOIN wards ON wards.ward = visits.ward") == [None, "N", "S"]


def test_an_outer_join_leaves_the_values_that_where_leaves(con: duckdb.DuckDBPyConnection) -> None:
    joined = "visits LEFT JOIN wards ON wards.ward = visits.ward"
    for key, where in (
        ("building", "beds > 8"),
        ("building", "beds < 6"),
        ("beds", "building = 'N'"),
        ("beds", "beds > 5"),
    ):
        theirs = con.execute(f"SELECT DISTINCT {key} FROM wards WHERE {where}").fetchall()
        assert sorted(keys(con, key, where, joined), key=str) == sorted((one for (one,) in theirs), key=str)
    assert keys(con, "beds", "building IS NULL", joined) == [None]
    assert None in keys(con, "beds", "coalesce(building, 'none') <> 'S'", joined)


def test_a_column_that_equals_a_public_one_has_its_values(con: duckdb.DuckDBPyConnection) -> None:
    of_wards = [beds for (beds,) in con.execute("SELECT DISTINCT beds FROM wards ORDER BY ALL").fetchall()]
    assert keys(con, "days", source="visits JOIN wards ON days = beds") == sorted(of_wards, key=str)
    assert keys(con, "days + 1", source="visits, wards", where="beds = days") == sorted(
        (beds + 1 for beds in of_wards), key=str
    )
    assert keys(
        con,
        "v",
        source="(SELECT patient, doctor AS v FROM visits) JOIN (SELECT DISTINCT building AS v FROM wards) USING (v)",
    ) == ["N", "S"]
    for source in ("visits LEFT JOIN wards ON doctor = building", "visits JOIN wards ON doctor >= building"):
        with pytest.raises(ParameterError, match="P065"):
            keys(con, "doctor", source=source)


@pytest.mark.parametrize(
    ("source", "where", "wanted"),
    [
        ("visits JOIN wards USING (ward)", "true", "SELECT building, beds % 10 FROM wards"),
        ("visits JOIN wards USING (ward)", "beds > 8", "SELECT building, beds % 10 FROM wards WHERE beds > 8"),
        ("visits v LEFT JOIN wards w ON w.ward = v.ward", "true", "SELECT building, beds % 10 FROM wards UNION SELECT NULL, NULL"),
    ],
)  # fmt: skip
def test_columns_of_one_public_table_have_the_values_of_its_rows(
    con: duckdb.DuckDBPyConnection, source: str, where: str, wanted: str
) -> None:
    sql = f"SELECT building, days > 3, beds % 10, count(*) FROM {source} WHERE {where} GROUP BY ALL"
    [core] = split_of(con, sql, delta=False).cores
    building, long, beds = core.keys
    assert building.together == beds.together == (building.column, beds.column)
    assert building.query == beds.query is not None
    assert long.together == ()
    theirs = con.execute(f"SELECT DISTINCT * FROM ({wanted})").fetchall()
    assert sorted(con.execute(building.query).fetchall(), key=str) == sorted(theirs, key=str)


def test_stated_keys_and_grouping_sets_stand_by_themselves(con: duckdb.DuckDBPyConnection) -> None:
    joined = "visits JOIN wards USING (ward)"
    [core] = split_of(con, f"SELECT building, ward, count(*) FROM {joined} GROUP BY ALL", delta=False).cores
    assert [key.together for key in core.keys] == [("k0", "k1")] * 2  # declared keys of people that equal public ones
    [core] = split_of(
        con,
        "SELECT building, doctor, count(*) FROM visits JOIN wards ON beds = days GROUP BY ALL",
        delta=False,
        keys={"doctor": ("Ann",)},
    ).cores
    assert [key.together for key in core.keys] == [(), ()]
    for core in split_of(con, f"SELECT building, beds, count(*) FROM {joined} GROUP BY CUBE (1, 2)", delta=False).cores:
        assert all(key.together == () for key in core.keys)


@cases(
    ("source", "where", "rows"),
    [
        ("visits JOIN wards USING (ward)", "true", "wards WHERE true"),
        ("visits v JOIN wards w ON v.ward = w.ward", "v.ward <> 'A'", "wards WHERE ward <> 'A'"),
        ("visits v, wards w", "v.ward = w.ward AND w.ward < 'C' AND beds > 10", "wards WHERE ward = 'B'"),
        ("visits JOIN (SELECT * FROM wards UNION ALL VALUES ('E', 1, 'N')) USING (ward)", "true", "wards WHERE true"),
    ],
)
def test_declared_keys_that_equal_public_ones_have_the_values_of_their_rows(
    con: duckdb.DuckDBPyConnection, source: str, where: str, rows: str
) -> None:
    """The public table has no rows for a declared key that it lacks, and its other keys are not declared."""
    sql = f"SELECT {'v.' if ' v' in source else ''}ward AS k, beds AS b, count(*) FROM {source} WHERE {where} GROUP BY k, b"
    for kept, more in ({"k": ("A", "B", "X")}, " AND ward < 'C'"), ({}, ""):
        [core] = split_of(con, sql, delta=False, keys=kept).cores
        ward, beds = core.keys
        assert ward.query == beds.query is not None
        found = con.execute(ward.query).fetchall()
        assert sorted(found) == sorted(con.execute(f"SELECT ward, beds FROM {rows}{more}").fetchall())


def test_bins_and_images(con: duckdb.DuckDBPyConnection) -> None:
    assert keys(con, "floor(age / 50) * 50", source="patients") == [None, 0.0, 100.0, 50.0]
    assert len(keys(con, "age // 10", source="patients")) == 13 + 1
    assert keys(con, "lower(ward) || '!'") == ["a!", "b!", "c!", "d!"]
    assert len(keys(con, "ward || sex", source="visits JOIN patients USING (patient)")) == 8
    assert keys(con, "least(age // 60, 1)", source="patients") == [0, 1]


def test_keys_that_are_stated_or_drawn(con: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT doctor AS d, count(*) FROM visits GROUP BY d"
    with pytest.raises(ParameterError, match="P065"):
        split_of(con, sql, delta=False)
    for name in ("doctor", "D"):
        [core] = split_of(con, sql, delta=False, keys={name: ("Ann",)}).cores
        assert core.keys[0].values == ("Ann",)
    [core] = split_of(con, sql).cores
    assert core.private_keys
    [core] = split_of(con, "SELECT ward, count(*) FROM visits GROUP BY ward", private_keys=True).cores
    assert core.private_keys
    assert core.keys[0].values is None


def test_keys_of_a_table_that_groups_are_joined_with(con: duckdb.DuckDBPyConnection) -> None:
    sql = """
        SELECT beds, n FROM wards w, (SELECT upper(note) AS u, count(*) AS n FROM visits GROUP BY u) v WHERE w.ward = v.u
    """
    [core] = split_of(con, sql, delta=False).cores
    assert core.keys[0].origin == "the public wards"
    outer = sql.replace("FROM wards w, (", "FROM (").replace(") v WHERE", ") v LEFT JOIN wards w ON")
    with pytest.raises(ParameterError, match="P065"):
        split_of(con, outer, delta=False)


@cases(
    ("value", "low", "high"),
    [
        ("days", 0, 365),
        ("days * 2 + 1", 1, 731),
        ("-days", -365, 0),
        ("abs(days - 100)", 0, 265),
        ("days / 4.0", 0, Fraction(365, 4)),
        ("CASE WHEN outcome = 'dead' THEN 1 ELSE 0 END", 0, 1),
        ("CASE WHEN outcome = 'dead' THEN 1 END", 0, 1),
        ("coalesce(days, -1)", -1, 365),
        ("least(days, 30)", 0, 30),
        ("greatest(days, 30)", 30, 365),
        ("CAST(days > 3 AS INTEGER)", 0, 1),
        ("month(visit_date)", 1, 12),
        ("days % 7", 0, 7),
        ("days * (1 - days / 365.0)", 0, 365),
    ],
    quick=13,
)
def test_bounds_by_interval_arithmetic(con: duckdb.DuckDBPyConnection, value: str, low: object, high: object) -> None:
    [core] = split_of(con, f"SELECT sum({value}) FROM visits").cores
    [one] = core.aggregates
    assert (one.lower, one.upper) == (low, high)


@pytest.mark.parametrize("value", ["cost", "1 / days", "days / (days - 10)", "sqrt(days)", "cost * days"])
def test_bounds_that_are_drawn(con: duckdb.DuckDBPyConnection, value: str) -> None:
    [core] = split_of(con, f"SELECT sum({value}) FROM visits").cores
    assert core.aggregates[0].lower is None
    assert core.aggregates[0].bounds_from == "drawn"


def test_bounds_that_where_or_the_caller_says(con: duckdb.DuckDBPyConnection) -> None:
    [core] = split_of(con, "SELECT sum(cost) FROM visits WHERE cost BETWEEN 10 AND 200.5").cores
    assert (core.aggregates[0].lower, core.aggregates[0].upper) == (10, Fraction(401, 2))
    stated = {"lower": {"cost": Fraction(0)}, "upper": {"cost": Fraction(900)}}
    [core] = split_of(con, "SELECT avg(cost / 2) FROM visits", **stated).cores
    assert (core.aggregates[0].lower, core.aggregates[0].upper) == (0, 450)


def test_what_stands_for_null(con: duckdb.DuckDBPyConnection) -> None:
    assert keys(con, "coalesce(ward, 'none')") == ["A", "B", "C", "D", "none"]
    assert keys(con, "upper(ifnull(ward, 'none'))") == ["A", "B", "C", "D", "NONE"]
    assert keys(con, "concat(ward, '!')") == ["A!", "B!", "C!", "D!"]
    assert keys(con, "coalesce(days > 3, false)") == [False, True]


def test_short_buckets_and_written_dates(con: duckdb.DuckDBPyConnection) -> None:
    bounded = "visit_date >= DATE '2024-02-10' AND visit_date < DATE '2024-04-01'"
    assert keys(con, "strftime(visit_date, '%Y-%m')", bounded) == ["2024-02", "2024-03"]
    moment = "CAST(visit_date AS TIMESTAMP)"
    hours = f"{moment} >= '2024-02-10 00:10:00' AND {moment} < '2024-02-10 02:00:00'"
    assert [str(one)[11:16] for one in keys(con, f"time_bucket(INTERVAL '30 minutes', {moment})", hours)] == [
        *("00:00", "00:30", "01:00", "01:30"),
    ]
    assert keys(con, f"strftime('%H', {moment})", hours) == ["00", "01"]
    assert len(keys(con, f"strftime('%H:%M', {moment})", hours)) == 110


@contextmanager
def moments(first: str, last: str) -> Iterator[Any]:
    """Yield a connection with a protected table: a row for every quarter of an hour, in Paris, also with its zone."""
    with dpsql.connect() as con:
        con.execute("SET TimeZone = 'Europe/Paris'")
        con.execute(
            "CREATE TABLE visits AS SELECT moment, moment AT TIME ZONE 'Europe/Paris' AS z FROM "
            f"(SELECT unnest(generate_series(TIMESTAMP '{first}', TIMESTAMP '{last}', INTERVAL 15 MINUTE)) AS moment)"
        )
        con.execute("SELECT dp_protect('visits', epsilon := 1e6)").fetchall()
        yield con


LOCAL = """
date_trunc('week', moment + INTERVAL 1 DAY) - INTERVAL 1 DAY
date_trunc('month', moment - INTERVAL '5 hours')
date_trunc('quarter', moment + INTERVAL 2 MONTH)
dayofweek(moment + INTERVAL 30 MINUTE)
hour(moment + INTERVAL 30 MINUTE)
CAST(z AT TIME ZONE 'Europe/Berlin' AS DATE)
date_trunc('day', moment AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin')
hour(moment AT TIME ZONE 'UTC' AT TIME ZONE 'Asia/Kolkata')
date_trunc('hour', moment AT TIME ZONE 'America/New_York' AT TIME ZONE 'Europe/Paris')
CAST((moment AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin') + INTERVAL 5 HOUR AS DATE)
date_trunc('day', moment AT TIME ZONE 'UTC')
CAST(z AT TIME ZONE 'UTC' AT TIME ZONE 'Asia/Tokyo' AT TIME ZONE 'Europe/London' AS DATE)
date_trunc('hour', z AT TIME ZONE 'Europe/Berlin')
date_trunc('hour', z AT TIME ZONE 'UTC')
date_trunc('month', z AT TIME ZONE 'Asia/Kolkata')
date_trunc('hour', z AT TIME ZONE 'Australia/Lord_Howe')
strftime(z AT TIME ZONE 'America/New_York', '%a %H')
dayofweek(z AT TIME ZONE 'Pacific/Apia')
date_trunc('month', z)
date_trunc('day', z)
date_trunc('hour', z)
"""


@cases("expression", LOCAL.strip().splitlines())
def test_local_times_between_literals(expression: str) -> None:
    """The groups are those of a moment in every quarter of an hour, also where clocks go forward or back."""
    column = "z" if re.search(r"\bz\b", expression) else "moment"
    where = f"{column} >= TIMESTAMP '2024-03-29 10:00:00' AND {column} < TIMESTAMP '2024-04-08 00:15:00'"
    text = f"SELECT {expression} AS k, count(*) AS n FROM visits WHERE {where} GROUP BY k ORDER BY k"
    with moments("2024-03-25", "2024-04-12") as con:
        asked = con.execute("SELECT k::VARCHAR, n FROM dp_query(?, epsilon := 1e5)", [text]).fetchall()
        assert asked == con.execute(f"SELECT k::VARCHAR, n FROM ({text})").fetchall()


OF_HOURS = """
hour(moment) | hour(moment) BETWEEN 8 AND 10 | all
date_trunc('hour', moment) | hour(moment) BETWEEN 8 AND 10 | all
date_trunc('hour', moment) | extract(hour FROM moment) < 2 AND dayofweek(moment) = 2 | all
date_trunc('day', moment) | dayofweek(moment) IN (1, 2) AND hour(moment) > 5 | some
CAST(moment AS DATE) | strftime(moment, '%H') = '23' | some
date_trunc('hour', z AT TIME ZONE 'Europe/Berlin') | hour(z AT TIME ZONE 'Europe/Berlin') = 2 | all
date_trunc('day', moment AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin') | isodow(moment AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin') > 5 | all
dayname(moment + INTERVAL 30 MINUTE) | dayname(moment + INTERVAL 30 MINUTE) LIKE 'M%' | all
date_trunc('hour', moment) | minute(moment) = 15 | some
strftime(moment, '%H:%M') | minute(moment) = 15 | all
"""


@cases(("expression", "where", "listed"), [line.split(" | ") for line in OF_HOURS.strip().splitlines()], quick=6)
def test_conditions_on_times_between_literals(expression: str, where: str, listed: str) -> None:
    """All groups have rows; if the condition changes within a step of the list, some have."""
    column = "z" if re.search(r"\bz\b", expression) else "moment"
    bounded = f"{column} >= TIMESTAMP '2024-03-29 10:00:00' AND {column} < TIMESTAMP '2024-04-08 00:15:00'"
    text = f"SELECT {expression} AS k, count(*) AS n FROM visits WHERE {bounded} AND {where} GROUP BY k ORDER BY k"
    with moments("2024-03-25", "2024-04-12") as con:
        asked = con.execute("SELECT k::VARCHAR, n FROM dp_query(?, epsilon := 1e5)", [text]).fetchall()
        assert [row for row in asked if row[1]] == con.execute(f"SELECT k::VARCHAR, n FROM ({text})").fetchall()
        assert all(count for _, count in asked) == (listed == "all")


@cases("bounded", ["moment + INTERVAL 1 DAY", "z AT TIME ZONE 'Asia/Tokyo'"])
def test_local_times_that_are_bounded_themselves(bounded: str) -> None:
    where = f"{bounded} >= TIMESTAMP '2024-03-29 10:00:00' AND {bounded} < TIMESTAMP '2024-04-08 00:15:00'"
    text = f"SELECT date_trunc('day', {bounded}) AS k, count(*) AS n FROM visits WHERE {where} GROUP BY k ORDER BY k"
    with moments("2024-03-25", "2024-04-12") as con:
        asked = con.execute("FROM dp_query(?, epsilon := 1e5)", [text]).fetchall()
        assert asked == con.execute(text).fetchall()


@cases(
    ("literal", "other"),
    [
        ("TIMESTAMPTZ '2024-03-30 10:00:00+02'", "TIMESTAMP '2024-03-30 08:00:00' AT TIME ZONE 'UTC'"),
        ("TIMESTAMP WITH TIME ZONE '2024-03-30 10:00:00Z'", "TIMESTAMP '2024-03-30 10:00:00' AT TIME ZONE 'UTC'"),
        ("TIMESTAMPTZ '2024-03-30 10:00:00'", "TIMESTAMP '2024-03-30 10:00:00' AT TIME ZONE 'Europe/Paris'"),
        ("TIMESTAMP '2024-03-30T10:00:00.000Z'", "TIMESTAMP '2024-03-30 10:00:00'"),
    ],
)
def test_literal_times_with_a_zone(literal: str, other: str) -> None:
    """As DuckDB reads them, in rows and in answers."""
    with moments("2024-03-30", "2024-03-31") as con:
        column = "z" if "TZ" in literal or "ZONE" in literal else "moment"
        text = "SELECT count(*) AS n, {0} >= TIMESTAMP '2024-03-30 09:30:00' AS late FROM visits WHERE {1} >= {0}"
        exact = con.execute(text.format(literal, column)).fetchall()
        assert con.execute(text.format(other, column)).fetchall() == exact
        assert con.execute("FROM dp_query(?, epsilon := 1e5)", [text.format(literal, column)]).fetchall() == exact
        assert exact[0][0] > 0


@cases(
    ("literal", "code"),
    [
        ("TIMESTAMPTZ '0001-01-01 00:00:00+05'", "P070"),
        ("TIMESTAMP '9999-12-31 23:30:00-05'", "P082"),
        ("TIMESTAMP '2024-03-30 10:00:00+02'", "P082"),
    ],
)
def test_literal_times_that_are_refused(literal: str, code: str) -> None:
    with moments("2024-03-30", "2024-03-31") as con, pytest.raises(duckdb.Error, match=f"DPSQL-{code}"):
        con.execute("FROM dp_query(?, epsilon := 1)", [f"SELECT count(*) FROM visits WHERE moment >= {literal}"])


def test_a_condition_has_no_time_zone() -> None:
    with moments("2024-03-30", "2024-03-31") as con, pytest.raises(duckdb.Error, match="DPSQL-P070"):
        con.execute("FROM dp_count('visits', epsilon := 1, condition := $$z > TIMESTAMPTZ '2024-03-30 10:00:00+02'$$)")


@cases(
    ("key", "first", "last", "count"),
    [
        ("year(visit_date)", "'0001-01-01'", "'9999-01-01'", 9998),
        ("strftime(CAST(visit_date AS TIMESTAMP), '%H:%M')", "'1990-01-01'", "'2010-01-01'", 1440),
        ("date_part('hour', CAST(visit_date AS TIMESTAMP))", "'0001-01-01'", "'100000-01-01'", 24),
        ("visit_date", "'0001-01-01'", "CURRENT_DATE", 739_945),
        ("visit_date", "CURRENT_DATE - INTERVAL 900 YEAR", "CURRENT_DATE - INTERVAL 800 YEAR", 36525),
        ("visit_date", "'0001-01-01'", "'9999-01-01'", None),
        ("date_trunc('hour', CAST(visit_date AS TIMESTAMP))", "CURRENT_DATE - INTERVAL 999 YEAR", "CURRENT_DATE", None),
        ("strftime(CAST(visit_date AS TIMESTAMP), '%H:%M')", "'0990-01-01'", "'2010-01-01'", None),
    ],
    quick=9,
)
def test_bounds_that_are_far_apart(con: Any, key: str, first: str, last: str, count: int | None) -> None:
    """Moments are listed a thousand at a time; a key with too many of them is refused before they are."""
    where = f"visit_date >= {first} AND visit_date < {last}"
    if count is None:
        with pytest.raises(ParameterError, match="P068"):
            keys(con, key, where)
    else:
        [core] = split_of(con, f"SELECT {key} AS k, count(*) FROM visits WHERE {where} GROUP BY k", delta=False).cores
        values, query = core.keys[0].values, core.keys[0].query
        listed = len(values or con.execute(f"SELECT DISTINCT v FROM ({query}) AS q(v)").fetchall())
        assert listed == count


@pytest.fixture(scope="module")
def dated() -> Iterator[Any]:
    """Yield tables of the same people with months; a plain DuckDB has the rows of three of them."""
    with dpsql.connect() as opened, duckdb.connect() as plain:
        for con, kept in ((opened, "true"), (plain, "{0} >= '2026-01-01' AND {0} < '2026-04-01'")):
            con.execute(f"""
                CREATE TABLE visits AS SELECT * FROM (SELECT i % 50 AS pid, DATE '2025-11-01' + (i * 7 % 420)::INTEGER AS day,
                  TIMESTAMP '2025-11-01' + INTERVAL 5 HOUR * (i * 7 % 420) AS came, i % 5 AS n FROM range(3000) AS r(i))
                  WHERE {kept.format("day")};
                CREATE TABLE stays AS SELECT * FROM (SELECT i % 50 AS pid, DATE '2025-11-01' + (i * 11 % 420)::INTEGER AS since
                  FROM range(200) AS r(i)) WHERE {kept.format("since")};
                """)
        opened.execute("""
            SELECT dp_protect('clinic', epsilon := 1e11, max_rows_per_unit := 400, period := 'month', epsilon_total := 1e11,
              tables := {visits: 'pid', stays: 'pid'}, period_of := {visits: 'day', stays: 'since'},
              lower := {n: 0}, upper := {n: 4})""")
        yield opened, plain


MONTHS = "during := '2026-01/2026-03', lower := {s: 0, r: 0}, upper := {s: 200, r: 200}"
BY_MONTH = """
SELECT date_trunc('month', day) AS m, count(*) AS n, sum(n) AS s FROM visits GROUP BY m
SELECT strftime(day, '%Y-%m') AS m, count(*) AS n FROM visits GROUP BY m
SELECT month(day) AS m, count(*) AS n FROM visits GROUP BY m
SELECT day, count(*) AS n FROM visits GROUP BY day HAVING count(*) > 0
SELECT m, avg(s) AS a FROM (SELECT pid, date_trunc('month', day) AS m, sum(n) AS s FROM visits GROUP BY pid, m) GROUP BY m
SELECT date_trunc('month', d) AS m, count(*) AS n FROM (SELECT day AS d, pid FROM visits UNION ALL SELECT since, pid FROM stays) GROUP BY m
SELECT avg(s) AS a FROM (SELECT pid, sum(n) AS s FROM visits GROUP BY pid, date_trunc('month', day))
SELECT avg(s) AS a FROM (SELECT pid, sum(DISTINCT n) + avg(DISTINCT n) AS s FROM visits GROUP BY pid, date_trunc('month', day))
SELECT avg(s) AS a FROM (SELECT pid, sum(n) AS s FROM visits GROUP BY pid, CAST(date_trunc('month', day) AS DATE))
SELECT avg(s) AS a FROM (SELECT pid, sum(n) AS s FROM visits GROUP BY pid, date_trunc('week', day), month(day), year(day))
SELECT avg(s) AS a FROM (SELECT pid, sum(n) AS s FROM visits GROUP BY pid, year(day), month(day))
SELECT avg(s) AS a FROM (SELECT pid, sum(n) AS s FROM visits GROUP BY pid, strftime(day, '%b of %Y'))
SELECT avg(s) AS a FROM (SELECT pid, sum(n) AS s FROM visits GROUP BY pid, date_part('year', day), date_part('doy', day))
SELECT count(*) AS n FROM (SELECT DISTINCT pid, date_trunc('month', day) FROM visits)
SELECT avg(r) AS a FROM (SELECT pid, day, row_number() OVER (PARTITION BY pid, date_trunc('month', day) ORDER BY day) AS r FROM visits)
SELECT avg(r) AS a FROM (SELECT pid, day, count(*) OVER (PARTITION BY pid, year(day), month(day)) AS r FROM visits)
SELECT count(*) AS n FROM visits JOIN stays ON visits.pid = stays.pid AND date_trunc('month', day) = date_trunc('month', since)
SELECT count(*) AS n FROM visits WHERE EXISTS (SELECT 1 FROM stays WHERE stays.pid = visits.pid AND date_trunc('month', day) = date_trunc('month', since))
SELECT count(*) AS n FROM visits JOIN (SELECT DISTINCT pid, date_trunc('month', since) AS m FROM stays) USING (pid) WHERE date_trunc('month', day) = m
SELECT sum(s) AS s FROM (SELECT pid, date_trunc('month', day) AS m, count(*) AS s FROM visits GROUP BY ALL UNION ALL SELECT pid, date_trunc('month', since), count(*) FROM stays GROUP BY ALL)
"""


@cases("text", BY_MONTH.strip().splitlines(), quick=6)
def test_months_of_a_budget_with_months(dated: Any, text: str) -> None:
    """The months that a call names are groups, and a person in a month has groups of its own."""
    con, plain = dated
    asked = con.execute(f"SELECT * FROM dp_query(?, epsilon := 1e8, {MONTHS}) ORDER BY 1", [text]).fetchall()
    exact = plain.execute(f"SELECT * FROM ({text}) ORDER BY 1").fetchall()
    assert [[f"{x:.3f}" if isinstance(x, (int, float)) else x for x in row] for row in asked] == [
        [f"{float(x):.3f}" if isinstance(x, (int, float)) else x for x in row] for row in exact
    ]


@cases(
    ("where", "during", "months"),
    [
        ("true", "['2026-01', '2026-04']", [1, 4]),
        ("day >= DATE '2026-02-01' AND day < DATE '2026-06-01'", "'2025-12/2026-03'", [2, 3]),
        ("day = DATE '2026-02-03'", "'2026-02'", [2]),
        ("day >= DATE '2026-06-01'", "['2026-05', '2026-07/2026-08']", [7, 8]),
    ],
)
def test_months_between_those_that_are_named_are_no_groups(
    dated: Any, where: str, during: str, months: list[int]
) -> None:
    text = f"SELECT month(m) AS k FROM (SELECT date_trunc('month', day) AS m, count(*) AS n FROM visits WHERE {where} GROUP BY m)"
    asked = dated[0].execute(f"SELECT * FROM dp_query(?, epsilon := 1e5, during := {during}) ORDER BY k", [text])
    assert [month for (month,) in asked.fetchall()] == months


@cases(
    ("groups", "code"),
    [
        *(("pid", "S012"), ("pid, month(day)", "S012"), ("pid, date_trunc('year', day)", "S012")),
        *(("pid, year(came), month(came)", "S012"), ("pid, strftime(day, '%Y-%-m')", "S012")),
    ],
)
def test_groups_of_a_person_that_mix_months(dated: Any, groups: str, code: str) -> None:
    text = f"SELECT avg(s) AS a FROM (SELECT pid, sum(n) AS s FROM visits GROUP BY {groups})"
    with pytest.raises(duckdb.Error, match=f"DPSQL-{code}"):
        dated[0].execute(f"FROM dp_query(?, epsilon := 1, {MONTHS})", [text])


@pytest.fixture(scope="module")
def aged() -> Iterator[Any]:
    """Yield a table of people up to 81 years old, of whom 1,000 have no age, with bounds up to 120."""
    with dpsql.connect() as opened:
        opened.execute(
            "CREATE TABLE people AS SELECT i AS pid, CASE WHEN i < 4000 THEN 2 * (i % 42) - 1 END AS age, i % 3 AS n FROM range(5000) AS r(i)"
        )
        opened.execute("""
            SELECT dp_protect('people', epsilon := 1e9, privacy_unit := 'pid', max_rows_per_unit := 1,
              lower := {age: 0, n: 0}, upper := {age: 120, n: 2})""")
        yield opened


@cases(
    ("query", "found"),
    [
        ("age, count(*) AS n FROM people GROUP BY age ORDER BY age DESC NULLS LAST LIMIT 3", [81, 79, 77]),
        ("age, sum(n) AS n FROM people GROUP BY age ORDER BY age DESC NULLS LAST LIMIT 3", [81, 79, 77]),
        ("age, count(DISTINCT pid) AS n FROM people WHERE age > 70 GROUP BY age ORDER BY age LIMIT 2", [71, 73]),
        (
            "age // 10 AS d, count(*) AS n FROM people WHERE age BETWEEN 0 AND 120 GROUP BY d ORDER BY d DESC LIMIT 2",
            [8, 7],
        ),
        ("age, count(*) AS n FROM people GROUP BY age ORDER BY age LIMIT 2 OFFSET 1", [3, 5]),
        (
            "age, count(*) AS n FROM people WHERE age >= 78 GROUP BY age ORDER BY age DESC LIMIT 43",
            [*range(120, 77, -1)],
        ),
        ("age, count(*) AS n FROM people WHERE age >= 82 GROUP BY age ORDER BY age LIMIT 2", [82, 83]),
        ("age, median(n) AS n FROM people WHERE age > 70 GROUP BY age ORDER BY age DESC LIMIT 2", [120, 119]),
    ],
    quick=5,
)
def test_the_first_whole_numbers_of_a_limit_have_rows(aged: Any, query: str, found: list[int]) -> None:
    """Where LIMIT keeps all groups, or none surely has rows, all are shown."""
    asked = aged.execute("FROM dp_query(?, epsilon := 10)", [f"SELECT {query}"]).fetchall()
    assert [row[0] for row in asked] == found


def test_a_limit_by_a_whole_number_is_chosen_by_noise(aged: Any) -> None:
    """The groups follow from the stored release, and their intervals hold for all groups at once."""
    asked = "SELECT age, count(*) AS n FROM people GROUP BY age ORDER BY age DESC NULLS LAST{}"
    call = "SELECT age, n, n_upper - n FROM dp_query(?, epsilon := 0.5, errors := true)"
    spent = "SELECT epsilon_spent FROM dp_budget()"
    every = aged.execute(call, [asked.format("")]).fetchall()
    entries = aged.execute(spent).fetchall()
    some = aged.execute(call, [asked.format(" LIMIT 5")]).fetchall()
    assert aged.execute(spent).fetchall() == entries
    assert [row[:2] for row in some] == [row[:2] for row in every if row[0] is not None and row[1] - some[0][2] > 0][:5]
    assert some[0][2] > every[0][2]


LARGE = """
big | big BETWEEN 9007199254740993 AND 9007199254740995
big | big >= 9007199254740993 AND big < 9007199254740996
big + 1 | big IN (9007199254740993, 9007199254740995)
big::HUGEINT + 18014398509481984000 | big::HUGEINT + 18014398509481984000 BETWEEN 18023405708736724993 AND 18023405708736724995
-(big::HUGEINT) - 9223372036854775807 | -(big::HUGEINT) - 9223372036854775807 BETWEEN -9232379236109516802 AND -9232379236109516800
CAST(big AS DECIMAL(18, 0)) | CAST(big AS DECIMAL(18, 0)) BETWEEN 9007199254740993 AND 9007199254740995
big | true
"""


@cases(("key", "where"), [line.split(" | ") for line in LARGE.strip().splitlines()], quick=7)
def test_whole_numbers_beyond_those_of_doubles(numbered: Any, key: str, where: str) -> None:
    """Bounds of a condition, of the owner and of the caller are the numbers that they wrote."""
    asked = f"SELECT {key} AS k, count(*) AS n FROM numbers WHERE {where} GROUP BY k"
    bounds = ", lower := {big: 9007199254740993}, upper := {big: 9007199254740995}" if where == "true" else ""
    exact = numbered.execute(f"SELECT * FROM ({asked}) ORDER BY k").fetchall()
    for more in ("", bounds):
        found = numbered.execute(f"FROM dp_query(?, epsilon := 1e6{more})", [asked]).fetchall()
        assert sorted(row for row in found if row[0] is not None) == exact


@pytest.fixture(scope="module")
def numbered() -> Iterator[Any]:
    """Yield a table of three whole numbers that no double is."""
    with dpsql.connect() as opened:
        opened.execute(
            "CREATE TABLE numbers AS SELECT i AS pid, 9007199254740993 + i % 3 AS big FROM range(300) AS r(i)"
        )
        opened.execute("""
            SELECT dp_protect('numbers', epsilon := 1e9, privacy_unit := 'pid', max_rows_per_unit := 1,
              lower := {big: 9007199254740993}, upper := {big: 9007199254740995})""")
        yield opened


@cases("aggregate", ["count(*)", "avg(n)", "avg(n * 2 + sqrt(n))", "median(n)", "corr(n, age)", "count(DISTINCT pid)"])
def test_conditions_that_leave_no_value_leave_no_group(aged: Any, aggregate: str) -> None:
    for where in ("age BETWEEN 40 AND 30", "age > 30 AND age // 10 <> age // 10"):
        text = f"SELECT age, {aggregate} FROM people WHERE {where} GROUP BY age"
        assert aged.execute("FROM dp_query(?, epsilon := 1)", [text]).fetchall() == []
