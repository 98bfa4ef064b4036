"""Calls on periods, whose rows an engine holds: the rows that count, the unit (person, period), and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
import dpsql.polars
from dpsql.errors import ParameterError, SourceError

# Each person has three rows in October and one in November; somebody has no date, and a row is nobody's.
DAYS = [date(2026, 10, 1), date(2026, 10, 31), date(2026, 10, 7), date(2026, 11, 2)]
ROWS = [(person, day) for person in range(20) for day in DAYS]
VISITS = pa.table(
    {
        "patient": pa.array([*(person for person, _ in ROWS), 3, None], pa.int64()),
        "day": pa.array([*(day for _, day in ROWS), None, DAYS[0]], pa.date32()),
        "days": pa.array([2.0] * (len(ROWS) + 2)),
    }
)
OWNER: dict[str, Any] = {"epsilon": 1e6, "privacy_unit": "patient", "period": "month", "period_of": "day"}


Opened = Iterator[tuple[dpsql.Context, dict[str, Any]]]


@contextmanager
def on_polars(table: pa.Table) -> Opened:
    """Open a context, with what calls say: nobody sees whose rows a frame holds."""
    with dpsql.polars.context({"visits": pl.DataFrame(table).lazy()}, name="lake") as opened:
        yield opened, {"dataset": "visits"}


@contextmanager
def on_datafusion(table: pa.Table) -> Opened:
    datafusion = pytest.importorskip("datafusion")
    import dpsql.datafusion

    session = datafusion.SessionContext()
    session.register_record_batches("visits", [table.to_batches(max_chunksize=7)])
    with dpsql.datafusion.context(session, name="lake", parts=4) as opened:
        yield opened, {}


ENGINES = pytest.mark.parametrize("engine", [on_polars, on_datafusion], ids=["polars", "datafusion"])


def count(ctx: dpsql.Context, named: dict[str, Any], during: object, source: str = "visits", **more: Any) -> int:
    """Return a count whose noise is far below a row."""
    [row] = ctx.dp_count(source, epsilon=100, during=during, **named, **more).to_arrow().to_pylist()
    return round(row["value"])


@pytest.mark.long
@ENGINES
def test_rows_count_in_their_period_and_the_cap_is_of_a_person_in_it(engine: Any) -> None:
    with engine(VISITS) as (ctx, named):
        ctx.dp_protect("visits", **OWNER, max_rows_per_unit=2)
        assert count(ctx, named, "2026-10") == 40
        assert count(ctx, named, "2026-11") == 20
        assert count(ctx, named, "2026-10/2026-11") == 60
        assert count(ctx, named, "2026-10", max_rows_per_unit=3, condition="days > 1") == 60
        assert count(ctx, named, "2026-12") == 0
        spent = {row["block"]: row["epsilon_spent"] for row in ctx.dp_budget().to_pylist()}
        assert spent == {"2026-10": 300, "2026-11": 200, "2026-12": 100, "every other": 0, "total": 600}


@pytest.mark.long
@ENGINES
def test_a_sum_has_the_rows_of_its_periods(engine: Any) -> None:
    with engine(VISITS) as (ctx, named):
        ctx.dp_protect("visits", **OWNER, max_rows_per_unit=3)
        given = {"target": "days", "lower": 0, "upper": 10, "epsilon": 1000}
        for during, expected in (("2026-10", 120), ("2026-11", 40), ("2026-10/2026-11", 160)):
            [row] = ctx.dp_sum("visits", **given, **named, during=during).to_arrow().to_pylist()
            assert row["value"] == pytest.approx(expected, abs=1)


@pytest.mark.long
@ENGINES
def test_what_is_refused(engine: Any) -> None:
    with engine(VISITS) as (ctx, named):
        ctx.dp_protect("visits", **OWNER, max_rows_per_unit=3)
        with pytest.raises(ParameterError, match="P110"):
            ctx.dp_count("visits", epsilon=1, **named)
        with pytest.raises((ParameterError, SourceError), match="P073"):
            ctx.dp_count("visits", epsilon=1, distinct_of="patient", during="2026-10", **named)
        assert {row["epsilon_spent"] for row in ctx.dp_budget().to_pylist()} == {0}


@pytest.mark.long
@ENGINES
def test_a_text_is_no_date_and_a_moment_needs_its_zone(engine: Any) -> None:
    texts = VISITS.set_column(1, "day", VISITS["day"].cast(pa.string()))
    moments = VISITS.set_column(1, "day", pa.array([datetime(2026, 10, 1)] * len(VISITS), pa.timestamp("us", "UTC")))
    for table in (texts, moments):
        with engine(table) as (ctx, named):
            ctx.dp_protect("visits", **OWNER, max_rows_per_unit=3)
            with pytest.raises(SourceError, match="S046"):
                ctx.dp_count("visits", epsilon=1, during="2026-10", **named)
    with engine(moments) as (ctx, named):
        ctx.dp_protect("visits", **OWNER, period_zone="UTC", max_rows_per_unit=3)
        assert count(ctx, named, "2026-10") == 60


@pytest.mark.long
def test_rows_of_sail_count_in_their_period(sail_session: Any, tmp_path: Path) -> None:
    import dpsql.spark

    pq.write_table(VISITS, tmp_path / "dated.parquet")
    sail_session.sql("CREATE DATABASE IF NOT EXISTS clinic")
    sail_session.sql("DROP TABLE IF EXISTS clinic.dated")
    sail_session.sql(f"CREATE TABLE clinic.dated USING parquet LOCATION '{tmp_path}/dated.parquet'")
    with dpsql.spark.context(sail_session, name="lake") as ctx:
        ctx.dp_protect("clinic.dated", **OWNER, max_rows_per_unit=2)
        assert [count(ctx, {}, during, "clinic.dated") for during in ("2026-10", "2026-11", "2026-12")] == [40, 20, 0]
