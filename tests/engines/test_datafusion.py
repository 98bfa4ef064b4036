"""DataFusion's names, and what it must not believe."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.engines.driver import received
from dpsql.errors import SourceError

datafusion = pytest.importorskip("datafusion")

import dpsql.datafusion  # noqa: E402

ROWS = 60


@pytest.fixture
def session(tmp_path: Path) -> Any:
    opened = datafusion.SessionContext()
    table = pa.table({"Unit": [f"p{row % 20}" for row in range(ROWS)], 'a"b.c': [1.0, math.nan, 1.0] * (ROWS // 3)})
    opened.register_record_batches("people", [table.to_batches(max_chunksize=7)])
    pq.write_table(table, tmp_path / "people.parquet")
    opened.register_parquet("stored", str(tmp_path / "people.parquet"))
    return opened


@pytest.fixture
def dp(session: Any) -> Iterator[dpsql.Context]:
    with dpsql.datafusion.context(session, name="lake", parts=4) as opened:
        yield opened


COUNT = {"target": 'a"b.c', "lower": 0, "upper": 2, "epsilon": 1000, "aggregates": ["count", "sum"]}
EXACT = "SET datafusion.execution.collect_statistics = false"


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("people", ("datafusion", "public", "people")),
        ("PEOPLE", ("datafusion", "public", "people")),
        ('public."people"', ("datafusion", "public", "people")),
        ("near.mine", ("datafusion", "near", "mine")),
        ("seen", None),
    ],
)
def test_tables_have_the_names_that_datafusion_gives_them(session: Any, source: str, expected: Any) -> None:
    session.sql("CREATE SCHEMA near").collect()
    session.sql("CREATE TABLE near.mine AS SELECT 1 AS a").collect()
    session.sql("CREATE VIEW seen AS SELECT * FROM people").collect()
    engine = dpsql.datafusion.engine(session)
    assert engine.table(source) == expected


def test_defaults_of_the_session_complete_a_name() -> None:
    config = datafusion.SessionConfig().with_default_catalog_and_schema("lake", "raw").with_information_schema(False)
    session = datafusion.SessionContext(config)
    session.from_pydict({"a": [1]}, name="people")
    assert dpsql.datafusion.engine(session).table("people") == ("lake", "raw", "people")


@pytest.mark.long
def test_an_unknown_table_is_refused(dp: dpsql.Context) -> None:
    with pytest.raises(SourceError, match="S024"):
        dp.dp_count("nowhere", epsilon=1)
    assert len(dp.ledger.entries()) == 0


@pytest.mark.long
def test_columns_of_any_name_are_read(dp: dpsql.Context, session: Any) -> None:
    for given in ({}, {"privacy_unit": "Unit", "max_rows_per_unit": 3}):
        count, total = dp.dp_aggregate("people", **COUNT, **given).value["value"].to_pylist()
        assert (count, total) == pytest.approx((40, 40), abs=1)
    assert dp.dp_count(session.table("people").limit(30), epsilon=1000, dataset="x").value["value"][0].as_py() == 30


@pytest.mark.long
def test_nan_beside_a_constant_is_not_taken_for_it(dp: dpsql.Context, session: Any) -> None:
    """DataFusion 55 reads a column whose minimum and maximum are equal as that value, which one row more changes."""
    early = session.table("stored")
    assert early.count() == ROWS
    assert early.to_pydict()['a"b.c'] == [1.0] * ROWS, "DataFusion tells NaN now: S034 may go"
    for source in ("stored", early):
        with pytest.raises(SourceError, match="S034"):
            dp.dp_aggregate(source, **COUNT, dataset="x")
    assert len(dp.ledger.entries()) == 0
    session.sql(EXACT).collect()
    for source in ("stored", early):
        assert dp.dp_aggregate(source, **COUNT, dataset="x").value["value"][0].as_py() == pytest.approx(40, abs=1)


@pytest.mark.long
def test_a_filter_that_skips_rows_by_their_minimum_is_refused(dp: dpsql.Context, session: Any) -> None:
    session.sql(EXACT).collect()
    some = session.sql('SELECT * FROM stored WHERE "a""b.c" <> 1')
    with pytest.raises(SourceError, match="S034"):
        dp.dp_count(some, epsilon=1, dataset="x")
    counted = dp.dp_count("stored", condition='"a""b.c" = 1', epsilon=1000, dataset="x")
    assert counted.value["value"][0].as_py() == pytest.approx(40, abs=1)


@pytest.mark.long
def test_rows_of_parts_survive_a_small_memory_pool() -> None:
    """A sort of 46 MB in a pool of 32 spills."""
    runtime = datafusion.RuntimeEnvBuilder().with_disk_manager_os().with_fair_spill_pool(32 << 20)
    session = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1), runtime)
    session.sql(
        "CREATE VIEW many AS SELECT value, value % 50000 AS pid, CAST(value AS VARCHAR) || repeat('x', 80) AS t "
        "FROM range(0, 400000)"
    ).collect()
    with dpsql.datafusion.context(session) as dp:
        counted = dp.dp_count("many", target="t", privacy_unit="pid", max_rows_per_unit=2, epsilon=1000)
    assert counted.value["value"][0].as_py() == pytest.approx(100_000, abs=20)


class _Meeting:
    """A work that waits until as many run at once as may, and counts them."""

    record = pa.schema([("rows", pa.int64())])

    def __init__(self, expected: int) -> None:
        self.at_work = self.most = 0
        self._expected, self._changed = expected, threading.Condition()

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self._changed:
            self.at_work += 1
            self.most = max(self.most, self.at_work)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.most >= self._expected, timeout=30)
        rows = sum(batch.num_rows for batch in batches)
        with self._changed:
            self.at_work -= 1
        yield pa.RecordBatch.from_arrays([pa.array([rows])], schema=self.record)


@pytest.mark.long
@pytest.mark.parametrize(("query", "at_once"), [("SELECT a FROM many", 6), ("SELECT DISTINCT a FROM many", 40)])
def test_many_partitions_run_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch, query: str, at_once: int) -> None:
    """Unless rows are dealt out to them: those of a partition that waits would be kept."""
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    session = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(40))
    session.register_record_batches("many", [[pa.record_batch({"a": [part, part + 100]})] for part in range(50)])
    work: Any = _Meeting(at_once)
    records = list(received(dpsql.datafusion.engine(session).fold(session.sql(query), ["a"], work)))
    assert work.most == at_once
    assert sum(record.column(0)[0].as_py() for record in records) == 100
