"""What plans of Spark show of where rows come from: of a client of Spark Connect, and of the driver's own JVM."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql.spark
from dpsql.engines.provenance import Provenance, Scan, UnseenError
from dpsql.errors import SourceError
from support.cases import cases
from support.spark_servers import spark_home

ROWS = pa.table({"a": [3, 1, 2], "s": ["b", "a", None]})
Change = Callable[[Any, Any], Any]
SEEN: dict[str, tuple[Change, dict[str, str | None]]] = {
    "all": (lambda rows, f: rows.select("*"), {"a": "a", "s": "s"}),
    "a filter": (lambda rows, f: rows.filter((rows.s != "rand(") & rows.a.between(1, 3)), {"a": "a", "s": "s"}),
    "a filter in words": (lambda rows, f: rows.filter("a > 1 AND s <> 'rand('"), {"a": "a", "s": "s"}),
    "a new name": (lambda rows, f: rows.withColumnRenamed("a", "pid"), {"pid": "a", "s": "s"}),
    "names": (lambda rows, f: rows.toDF("x", "y").drop("y"), {"x": "a"}),
    "computed": (
        lambda rows, f: rows.select((rows.a + 1).alias("b"), f.upper("s").alias("u"), "a"),
        {"b": None, "u": None, "a": "a"},
    ),
    "in its place": (lambda rows, f: rows.withColumn("a", f.when(rows.a > 1, 1).otherwise(0)), {"a": None, "s": "s"}),
    "a name of its own": (lambda rows, f: rows.alias("q").select("q.a"), {"a": "a"}),
    "fewer tasks": (lambda rows, f: rows.coalesce(1), {"a": "a", "s": "s"}),
}
UNSEEN: dict[str, Change] = {
    "the first": lambda rows, f: rows.limit(2),
    "numbers": lambda rows, f: rows.select(f.monotonically_increasing_id().alias("pid")),
    "places": lambda rows, f: rows.select("_metadata.row_index"),
    "the date": lambda rows, f: rows.filter(f.current_timestamp() > f.lit("2020-01-01")),
    "at random": lambda rows, f: rows.filter(f.rand() < 0.5),
    "at random in words": lambda rows, f: rows.filter("rand() < 0.5"),
    "an escape": lambda rows, f: rows.filter("s = 'a\\'' OR rand() < 1 OR s = ''"),
    "a comment": lambda rows, f: rows.filter("a > 1 -- '\n OR rand() < 1 -- '"),
    "a comment in the middle": lambda rows, f: rows.filter("a > 1 /* ' */ OR rand() < 1 /* ' */"),
    "a sample": lambda rows, f: rows.sample(0.5),
    "groups": lambda rows, f: rows.groupBy("s").agg(f.first("a")),
    "distinct": lambda rows, f: rows.distinct(),
    "lists": lambda rows, f: rows.select(f.explode(f.array("a", "a")).alias("a")),
    "a join": lambda rows, f: rows.crossJoin(rows),
    "Python": lambda rows, f: rows.select(f.udf(lambda one: one, rows.schema["a"].dataType)("a").alias("a")),
}
# Texts that only Spark has read, where its plan holds them as they are.
UNREAD: dict[str, Change] = {
    "another quote": lambda rows, f: rows.filter("s = \"a' OR rand() < 1 OR '\""),
    "a prefix": lambda rows, f: rows.filter("s = r'a' OR a > 1"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    for number in range(2):
        pq.write_table(ROWS.slice(number, 1), folder / f"{number}.parquet")
    return folder


def seen(frame: Any, session: Any) -> Provenance:
    return dpsql.spark.engine(session).provenance(frame)


def columns(found: Provenance) -> dict[str, str | None]:
    return {name: passed[0] if passed else None for name, passed in found.columns}


@pytest.mark.long
@cases("way", SEEN)
def test_a_client_shows_columns_and_filters(spark_session: Any, folder: Path, way: str) -> None:
    from pyspark.sql.connect import functions

    change, expected = SEEN[way]
    found = seen(change(spark_session.read.parquet(str(folder)), functions), spark_session)
    assert (found.scans, columns(found)) == ((Scan(files=(str(folder),)),), expected)


@pytest.mark.long
@cases("way", [*UNSEEN, *UNREAD])
def test_a_client_shows_nothing_else(spark_session: Any, folder: Path, way: str) -> None:
    from pyspark.sql.connect import functions

    with pytest.raises(UnseenError):
        seen((UNSEEN | UNREAD)[way](spark_session.read.parquet(str(folder)), functions), spark_session)


@pytest.mark.long
def test_a_client_shows_files_tables_and_rows_of_its_own(spark_session: Any, folder: Path) -> None:
    read, files = spark_session.read.parquet, [str(folder / f"{number}.parquet") for number in range(2)]
    for frame, scans in (
        (read(*files), (Scan(files=tuple(files)),)),
        (read(files[0]).union(read(files[1])), (Scan(files=tuple(files)),)),
        (read(files[0]).union(read(files[0])), (Scan(files=(files[0],)),) * 2),
        (spark_session.range(3), (Scan(),)),
        (spark_session.createDataFrame([(1,)], "a int"), (Scan(),)),
    ):
        assert seen(frame, spark_session).scans == scans
    for twice in ([str(folder)] * 2, [str(folder), files[0]], [f"{folder}/", f"file://{folder}"]):
        with pytest.raises(SourceError, match="S052"):
            seen(read(*twice), spark_session)
    for unknown in (read(f"{folder}/*.parquet", f"{folder}/0*"), spark_session.sql("SELECT 1 AS a")):
        with pytest.raises(UnseenError):
            seen(unknown, spark_session)


@pytest.mark.long
def test_a_client_does_not_show_the_views_of_its_server(spark_session: Any, folder: Path) -> None:
    spark_session.sql("DROP TABLE IF EXISTS shown")
    spark_session.sql(f"CREATE TABLE shown USING parquet LOCATION '{folder}'")
    table = (spark_session.catalog.currentCatalog(), "default", "shown")
    assert seen(spark_session.table("shown").filter("a > 1"), spark_session).scans == (Scan(table),)
    with pytest.raises(UnseenError, match="options"):
        seen(spark_session.read.option("readChangeFeed", "true").table("shown"), spark_session)
    with pytest.raises(UnseenError, match="path"):
        seen(spark_session.read.option("path", str(folder)).parquet(str(folder)), spark_session)
    spark_session.table("shown").createOrReplaceTempView("hidden")
    for hidden in ("hidden", spark_session.table("hidden")):
        with pytest.raises(UnseenError):
            seen(hidden, spark_session)


def expressions() -> Iterator[tuple[str, Any]]:
    """Yield every function of Spark that takes a column, and small constants."""
    from pyspark.sql import functions as listed
    from pyspark.sql.connect import functions

    for name in sorted(listed.__all__):
        for column in ("a", "s"):
            for given in ((), (1,), ("a",), (functions.lit(1),)):
                try:
                    made = getattr(functions, name)(functions.col(column), *given)
                except Exception:
                    continue
                if type(made).__name__ == "Column":
                    yield f"{name}({column}, {given})", made.alias("result")


@pytest.mark.long
def test_whatever_a_client_shows_as_known_looks_at_one_row(sail_session: Any) -> None:
    """Of every function: each value is the one that the row has alone."""
    frame = sail_session.createDataFrame(ROWS)
    single = [sail_session.createDataFrame(ROWS.slice(place, 1)) for place in range(len(ROWS))]
    tried, known = 0, set()
    with warnings.catch_warnings(action="ignore"):
        for name, made in expressions():
            tried += 1
            try:
                seen(frame.select("a", made), sail_session)
            except UnseenError:
                continue
            if name.partition("(")[0] in known:
                continue
            try:
                together = frame.select(made).toArrow()["result"].to_pylist()
            except Exception:
                continue
            known.add(name.partition("(")[0])
            alone = [one.select(made).toArrow()["result"].to_pylist()[0] for one in single]
            assert repr(alone) == repr(together), name
    assert len(known) > 25
    assert tried > 500


@pytest.mark.jvm
def test_the_jvm_shows_views_and_queries(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark_home()
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession, functions

    builder = SparkSession.builder.master("local[1]").config("spark.driver.host", "127.0.0.1")
    settings = {"spark.ui.enabled": "false", "spark.sql.warehouse.dir": str(tmp_path), "spark.api.mode": "classic"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings(action="ignore"):
        session = builder.getOrCreate()
        try:
            rows = session.read.parquet(str(folder))
            for change, expected in SEEN.values():
                assert columns(seen(change(rows, functions), session)) == expected
            for way in UNSEEN.values():
                with pytest.raises(UnseenError):
                    seen(way(rows, functions), session)
            with pytest.raises(SourceError, match="S052"):
                seen(session.read.parquet(str(folder), str(folder)), session)
            session.sql(f"CREATE TABLE shown USING parquet LOCATION '{folder}'")
            session.sql("CREATE VIEW kept AS SELECT a AS pid, upper(s) AS u FROM shown WHERE a BETWEEN 1 AND 3")
            session.table("kept").createOrReplaceTempView("hidden")
            for source in ("kept", "hidden", session.sql("SELECT * FROM kept")):
                found = seen(source, session)
                assert (found.scans, columns(found)) == (
                    (Scan(("spark_catalog", "default", "shown")),),
                    {"pid": "a", "u": None},
                )
            with pytest.raises(UnseenError):
                seen(session.sql("SELECT row_number() OVER (ORDER BY a) AS pid FROM shown"), session)
        finally:
            session.stop()
            for leftover in ("metastore_db", "derby.log"):
                assert not os.path.exists(leftover)
