"""Sources that an engine cannot read as they are: what is refused has a code and a next step, and charges nothing."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql.polars
import dpsql.spark
from dpsql.cli.options import EngineOption
from dpsql.errors import InternalError, ParameterError, SourceError
from support.spark_servers import EXACT_SAIL, SparkServer, sail

ROWS = pl.DataFrame({"y": [1.0, 2.0, 3.0, 4.0], "a": [0.1, 0.2, 0.3, 0.4], "b": [0.4, 0.2, 0.3, 0.1]})
FIT: dict[str, Any] = {
    "target": "y",
    "features": ["a", "b"],
    "epsilon": 5,
    "delta": 1e-6,
    "target_lower": 0,
    "target_upper": 9,
}


def entries(ctx: dpsql.Context) -> int:
    return len(ctx.ledger.entries())


@pytest.mark.long
def test_the_way_to_a_pipeline_on_an_engine_works() -> None:
    """The default selector compares all pairs of rows; the refusal says what to give instead."""
    with dpsql.polars.context() as ctx:
        with pytest.raises(
            ParameterError, match=r"P073.*Give selector='sis', and lower and upper with it\."
        ) as refused:
            ctx.dp_pipeline(ROWS, k=1, **FIT)
        assert "blocks" not in str(refused.value)
        assert entries(ctx) == 0
        assert ctx.dp_pipeline(ROWS, k=1, selector="sis", lower=0, upper=1, **FIT).value.num_rows > 0


@pytest.mark.long
@pytest.mark.parametrize("verb", ["collect_batches", "map_batches"])
def test_a_polars_that_cannot_stream_is_refused_before_the_charge(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with dpsql.polars.context() as ctx:
        with monkeypatch.context() as older:
            older.delattr(pl.LazyFrame, verb)
            with pytest.raises(SourceError, match=r"S055.*Install polars"):
                ctx.dp_count(ROWS, epsilon=1)
        assert entries(ctx) == 0
        assert ctx.dp_count(ROWS, epsilon=1).value is not None


@pytest.mark.long
def test_a_polars_that_hides_failures_is_refused_before_the_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Polars 1.36 does: a batch that fails ends its stream, and what was counted until then would be released."""
    stream = pl.LazyFrame.collect_batches

    def hiding(frame: pl.LazyFrame, **how: Any) -> Any:
        try:
            yield from list(stream(frame, **how))
        except Exception:
            return

    monkeypatch.setattr(pl.LazyFrame, "collect_batches", hiding)
    with dpsql.polars.context() as ctx:
        with pytest.raises(SourceError, match="S055"):
            ctx.dp_count(ROWS, epsilon=1)
        assert entries(ctx) == 0


@pytest.mark.long
@pytest.mark.parametrize("frame", [pl.DataFrame(), pl.LazyFrame(), ROWS.lazy().select([])])
def test_a_frame_without_columns_is_refused(frame: Any) -> None:
    with dpsql.polars.context() as ctx:
        with pytest.raises(SourceError, match="S056"):
            ctx.dp_count(frame, epsilon=1)
        assert entries(ctx) == 0


@pytest.mark.long
def test_a_file_that_changes_says_what_to_check(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    ROWS.write_parquet(path)
    frame = pl.scan_parquet(path)
    frame.collect_schema()
    pl.DataFrame({"other": ["text"]}).write_parquet(path)
    with dpsql.polars.context() as ctx, pytest.raises(InternalError, match=r"I001.*Check that all files") as failed:
        ctx.dp_avg(frame, target="y", lower=0, upper=9, epsilon=1)
    assert "doctor" not in str(failed.value)


@pytest.mark.long
def test_files_of_several_types_are_no_lost_server(sail_session: Any, tmp_path: Path) -> None:
    for number, values in enumerate(([1, 2], ["x"])):
        pq.write_table(pa.table({"a": values}), tmp_path / f"{number}.parquet")
    with dpsql.spark.context(sail_session) as ctx:
        with pytest.raises(SourceError, match=r"S054.*same columns and types"):
            ctx.dp_count(sail_session.read.parquet(str(tmp_path)), epsilon=1)
        with pytest.raises(SourceError, match="S056"):
            ctx.dp_count(sail_session.read.parquet(str(tmp_path / "nowhere")), epsilon=1)
        assert entries(ctx) == 0


@pytest.mark.long
def test_a_receipt_names_sail(sail_session: Any) -> None:
    import pysail

    with dpsql.spark.context(sail_session) as ctx:
        assert ctx.dp_count(sail_session.range(3), epsilon=1).engine == f"sail {pysail.__version__}"


@pytest.mark.long
def test_the_command_line_reaches_the_tables_of_a_session_of_sail(sail_server: SparkServer, tmp_path: Path) -> None:
    from pyspark.sql.connect.session import SparkSession

    ROWS.write_parquet(tmp_path / "rows.parquet")
    url = f"{sail_server.address}/;session_id={uuid.uuid4()};user_id=ada"
    session: Any = SparkSession.builder.remote(url).create()
    session.sql(f"CREATE TABLE kept USING parquet LOCATION '{tmp_path}'")
    found = EngineOption.read(f"lake={url}").engine().table("kept")
    assert found == ("sail", "default", "kept")
    with pytest.raises(SourceError, match=r"S024.*;session_id="):
        EngineOption.read(f"lake={sail_server.address}/;session_id={uuid.uuid4()}").engine().table("kept")


@pytest.mark.long
def test_what_a_session_says_of_parquet_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of a count tells whether it comes from the statistics of files."""
    monkeypatch.delitem(EXACT_SAIL, "SAIL_EXECUTION__COLLECT_STATISTICS")
    pq.write_table(pa.table({"x": [1.0, float("nan"), 1.0]}), tmp_path / "rows.parquet")
    server = sail(tmp_path)
    try:
        session: Any = server.session()  # which says dpsql.exactParquet
        with dpsql.spark.context(session) as ctx:
            with pytest.raises(SourceError, match="S034"):
                ctx.dp_count(session.read.parquet(str(tmp_path / "rows.parquet")), epsilon=1)
            assert entries(ctx) == 0
    finally:
        server.stop()
