"""Conditions judged by their types: a sample of what `tests/conformance/test_expressions.py` tries, and hostile settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.contract.expression.kinds import Type
from dpsql.engines.duckdb.keys import ONE
from dpsql.engines.duckdb.part import with_judged
from dpsql.engines.duckdb.typed_expression import judged, refuse_other_types
from dpsql.errors import ParameterError, original
from dpsql.functions.sis import SisPlan
from support.cases import cases
from support.condition_fuzz import fuzz, kept
from support.expressions import Trial, sampled

# What a session can set that DuckDB binds or computes by.
HOSTILE = (
    "default_collation = 'nocase'",
    "default_collation = 'de'",
    "TimeZone = 'Asia/Tokyo'",
    "Calendar = 'buddhist'",
    "integer_division = true",
    "ieee_floating_point_ops = false",
    "error_on_division_by_zero = false",
    "old_implicit_casting = true",
    "lambda_syntax = 'ENABLE_SINGLE_ARROW'",
    "default_null_order = 'nulls_first'",
    "default_order = 'desc'",
    "binary_as_string = true",
    "errors_as_json = true",
    "disable_timestamptz_casts = true",
    "disabled_optimizers = 'empty_result_pullup,filter_pushdown,expression_rewriter,statistics_propagation'",
    "scalar_subquery_error_on_multiple_rows = false",
    "arrow_large_buffer_size = true",
    "preserve_identifier_case = false",
)
ASKED: dict[str, object] = {
    **{"target": "y", "features": ["x"], "k": 1, "epsilon": 1, "lower": 0, "upper": 1, "target_lower": 0},
    **{"target_upper": 1, "condition": "x > 0.5"},
}
SETTLED = (
    "t = 'a' OR t < 'B'",
    "t IN ('A', 'b')",
    "t BETWEEN 'A' AND 'Z'",
    "CASE t WHEN 'A' THEN true ELSE n > 3 END",
    "greatest(t, 'B') = t",
    "place.city = 'C1'",
    "moment >= '2020-01-01 12:00:00'",
    "moment::DATE = DATE '2020-01-02'",
    "hour(moment) < 12 AND year(place.at) = 2020",
    "strftime(moment, '%Y-%m-%d') = '2020-01-01'",
    "n / z > 1",
    "n / 0.0 > 5",
    "n / 2 > 1.25",
    "n // z = 2 OR n > 5",
    "n % z = 0",
    "sqrt(n - 4) > 0 OR ln(n - 4) > 0 OR log(n - 4) < 1",
    "n = '3'",
    "day > '2020-01-03'",
)


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    with Trial() as opened:
        yield opened


@pytest.mark.long
def test_a_row_decides_nothing_but_its_own_value(trial: Trial) -> None:
    """One case of each entry, and a few more; all of them are tried in the long tests."""
    for case in sampled(1 / 100):
        trial.run(case)


@pytest.fixture
def con() -> Any:
    with dpsql.connect() as opened:
        opened.execute(
            "CREATE TABLE given AS SELECT i AS id, 1::DOUBLE AS one, i::DOUBLE AS n, i % 3 AS z, chr((65 + i % 2 * 32 + i % 3)::INTEGER) "
            "AS t, make_timestamptz(1577836800000000 + i * 13 * 3600000000) AS moment, {'city': 'c' || i % 2, 'at': "
            "make_timestamptz(1577836800000000 - i * 3600000000)} AS place, DATE '2020-01-01' + i::INTEGER AS day "
            "FROM range(9) AS r(i)"
        )
        yield opened


@pytest.mark.long
@cases("setting", HOSTILE)
def test_no_setting_moves_a_verdict(con: Any, setting: str) -> None:
    before = {condition: kept(con, condition) for condition in SETTLED}
    assert sum(0 < rows < 9 for rows in before.values()) > len(SETTLED) / 2
    try:
        con.execute(f"SET {setting}")
    except duckdb.CatalogException:
        pytest.skip("this version has no such setting")
    assert {condition: kept(con, condition) for condition in SETTLED} == before


def test_a_timestamp_with_time_zone_is_one_in_utc(con: Any) -> None:
    con.execute("SET TimeZone = 'America/New_York'")
    con.execute("INSERT INTO given (id, one, moment) VALUES (90, 1, 'infinity'), (91, 1, '-infinity')")
    assert kept(con, "moment < '2020-01-01 00:00:01'") == 2
    assert kept(con, "moment > TIMESTAMP '2020-01-04 00:00:00'") == 4
    assert kept(con, "moment::VARCHAR = '2020-01-01 13:00:00'") == 1
    assert kept(con, "isinf(moment)") == 2


def test_what_types_alone_decide_is_refused_before_rows_are_read(con: Any) -> None:
    """A predicate that a row meets used to end the statement, at no charge; another row's did not."""
    con.execute("SELECT dp_protect('given', epsilon := 1)")
    oracle = (
        "CASE WHEN t = '{}' THEN date_diff(''day'', CAST(''1'' || ''0:00'' AS TIME), CAST(''11:00'' AS TIME)) = 0 "
        "ELSE true END"
    )
    refused = set()
    for text in ("A", "nobody"):
        condition = oracle.replace("''", "'").format(text)
        with pytest.raises(duckdb.Error, match="DPSQL-P082") as error:
            con.execute("FROM dp_count('given', epsilon := 1, condition := $1)", [condition])
        refused.add(str(original(error.value)))
    assert len(refused) == 1
    assert con.execute("SELECT epsilon_spent FROM dp_budget()").fetchall() == [(0.0,)]


@pytest.mark.long
def test_random_conditions_are_answered_or_refused_by_a_code(con: Any) -> None:
    assert fuzz(con, 1, 80) > 5


def test_types_that_are_not_known_are_refused(con: Any, tmp_path: Path) -> None:
    con.execute(f"COPY (FROM given) TO '{tmp_path / 'given.parquet'}'")
    source = str(tmp_path / "given.parquet")
    assert kept(con, "n > 3", source) == 5
    con.execute(f"SET {HOSTILE[14]}")
    try:
        assert kept(con, "n > 3", source) == 5  # 1.5 shows the plan of a file
    except duckdb.Error as error:
        assert "DPSQL-P083" in str(error)
    with pytest.raises(duckdb.Error, match="DPSQL-S002"):
        kept(con, "nope > 3")


def test_a_constant_that_is_not_a_number_is_refused_by_a_code() -> None:
    """DuckDB computes it while it binds, and shows it as ``-nan``, which is no JSON."""
    with pytest.raises(ParameterError, match="P080"):
        judged("n LIKE isnan(sqrt(-1.5))", (("n", Type("BIGINT")),), ONE)


def test_other_types_than_those_that_were_judged_are_refused() -> None:
    plan = SimpleNamespace(condition="c > 3", judged=judged("c > 3", (("c", Type("INTEGER")),), ONE))
    refuse_other_types(plan, plan.judged.types)
    for types in (plan.judged.types.replace("INTEGER", "VARCHAR"), None):
        with pytest.raises(ParameterError, match="DPSQL-P083"):
            refuse_other_types(plan, types)


def test_a_worker_judges_for_the_types_of_its_rows() -> None:
    """A condition on an engine is judged by the driver; a worker whose rows have other types does not run it."""
    driver = with_judged(SisPlan.from_arguments("t", ASKED), pa.schema([("y", pa.float64()), ("x", pa.float64())]))
    assert driver.judged is not None
    other = with_judged(driver, pa.schema([("y", pa.float64()), ("x", pa.int32())]))
    assert other != driver
    with pytest.raises(ParameterError, match="DPSQL-P08"):
        with_judged(driver, pa.schema([("y", pa.float64()), ("x", pa.list_(pa.int32()))]))
