"""Spark gives the integers of DuckDB's own statement, and is told nothing but tasks; refusals come before rows."""

from __future__ import annotations

import datetime
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import dpsql
import dpsql.spark
from dpsql.cli.options import EngineOption
from dpsql.engines.driver import received
from dpsql.errors import BudgetError, ParameterError, SourceError
from support.cases import cases
from support.tasks import merged, state_of, state_on, task_of

spark_engine = pytest.importorskip("dpsql.engines.spark", reason="no Spark: pip install 'dpsql[spark]'")
ROWS = 2400
VALUES = {"features": ["a", "b"], "lower": -2, "upper": 2}
TARGET = {"target": "y", "target_lower": -2, "target_upper": 2}
# One call for every way from rows to a state.
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "values": ("dp_best_subset", {**VALUES, **TARGET, "k": 1}),
    "vectors": ("dp_sis", {**TARGET, "features": "vector", "n_features": 3, "k": 1, "lower": -2, "upper": 2}),
    "units": ("dp_quantile", {"target": "y", "lower": -2, "upper": 2, "privacy_unit": "pid", "max_rows_per_unit": 2}),
    "a condition": ("dp_bounds", {"target": "y", "condition": "a > 0 AND site <> 'x'"}),
    "groups": ("dp_avg", {"target": "y", "lower": -2, "upper": 2, "by": ["site"], "keys": ["x", "z", "other"]}),
    "groups of units": (
        "dp_count",
        {"by": ["site"], "keys": ["x", "z"], "privacy_unit": "pid", "max_rows_per_unit": 3},
    ),
    "blocks": ("dp_kendall", {**VALUES, "target": "y", "k": 1, "blocks": 7, "row_id": "id"}),
    "long rows": (
        "dp_sis",
        {
            **TARGET,
            "features": "site",
            "names": ["x", "z"],
            "row_id": "pid",
            "value": "a",
            "k": 1,
            "lower": -2,
            "upper": 2,
        },
    ),
    "scores": ("dp_roc", {"label": "label", "target_levels": ["no", "yes"], "score": "a"}),
}


def rows() -> pa.Table:
    generator = np.random.default_rng(3)
    values = {name: generator.normal(size=ROWS) for name in ("y", "a", "b")}
    values["a"][::97] = np.nan
    people = np.array(["Ada", "ada", "é", "e\u0301", "Zoë ", "Zoë", *map(str, range(300))])
    table = pa.table(
        {
            **values,
            "id": np.arange(ROWS),
            "pid": pa.array(generator.choice(people, ROWS), mask=np.arange(ROWS) % 50 == 0),
            "site": generator.choice(["x", "z", "w"], ROWS),
            "label": generator.choice(["yes", "no"], ROWS),
        }
    )
    vectors = pa.array(generator.normal(size=(ROWS, 3)).tolist(), type=pa.list_(pa.float64()))
    return table.append_column("vector", vectors)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows as Parquet, in three files of different lengths."""
    folder = tmp_path_factory.mktemp("rows")
    for number, (start, stop) in enumerate([(0, 100), (100, 1500), (1500, ROWS)]):
        pq.write_table(rows().slice(start, stop - start), folder / f"{number}.parquet")
    return folder


@pytest.fixture
def spark(spark_session: Any) -> dpsql.Context:
    return dpsql.spark.context(spark_session)


@pytest.mark.long
@cases("way", CALLS, alone=True)
def test_states_are_those_of_one_statement(spark: dpsql.Context, spark_session: Any, folder: Path, way: str) -> None:
    function, arguments = CALLS[way]
    frame = spark_session.read.parquet(str(folder))
    task, columns = task_of(spark, frame, function, **arguments)
    found = state_on(spark, frame, task, columns)
    assert found.equals(state_of(task, columns, rows()))
    assert not found.equals(state_of(task, columns, rows().slice(ROWS // 2)))


@pytest.mark.long
@pytest.mark.parametrize(("features", "records"), [(3, 8), (60, 1)])
def test_wide_records_are_merged_before_they_reach_the_driver(
    spark: dpsql.Context, spark_session: Any, features: int, records: int
) -> None:
    """Eight partitions have the same rows, so their states share a node."""
    names = [f"x{number}" for number in range(features)]
    columns = [f"cast((id + {number}) % 10 as double) AS {name}" for number, name in enumerate(names)]
    frame = spark_session.range(0, 80, 1, 8).selectExpr(*columns)
    task, read = task_of(spark, frame, "dp_covariance", features=names, lower=0, upper=9, delta=1e-6)
    found = list(received(dpsql.spark.engine(spark_session).fold(frame, read, task)))
    assert sum(batch.num_rows for batch in found) == records
    rows = pa.table({name: (np.arange(80) + number) % 10.0 for number, name in enumerate(names)})
    assert merged(task, found).equals(state_of(task, read, rows))


class _Elastic:
    """A session whose server allocates executors as it needs them."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.conf = self

    def get(self, name: str, default: str) -> str:
        return "true" if name == "spark.dynamicAllocation.enabled" else str(self.session.conf.get(name, default))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


@pytest.mark.long
@cases(("tasks", "elastic"), [(3, False), (3, True), (None, False), (None, True)], alone=True)
def test_no_more_tasks_than_are_worth_it(
    spark: dpsql.Context, spark_session: Any, tasks: int | None, elastic: bool
) -> None:
    """Many small partitions are read together; without the user's word not where executors come when there is work."""
    frame = spark_session.range(0, 120, 1, 60).selectExpr("cast(id as double) AS a", "1.0D AS b")
    task, read = task_of(spark, frame, "dp_regression_metrics", target="a", prediction="b", lower=0, upper=120)
    engine = dpsql.spark.engine(_Elastic(spark_session) if elastic else spark_session, tasks=tasks)
    engine.check(task)
    found = list(received(engine.fold(frame, read, task)))
    expected = tasks or (60 if elastic else 4 * (os.cpu_count() or 1))
    assert sum(batch.num_rows for batch in found) == min(expected, 60)
    assert merged(task, found).equals(state_of(task, read, pa.table({"a": np.arange(120.0), "b": np.ones(120)})))


@cases("tasks", [0, 1.5, "many"], quick=1, alone=True)
def test_a_number_of_tasks_is_a_positive_integer(spark_session: Any, tasks: Any) -> None:
    with pytest.raises(ParameterError, match="P021"):
        dpsql.spark.context(spark_session, tasks=tasks)


@pytest.mark.long
def test_releases(spark: dpsql.Context, spark_session: Any, folder: Path) -> None:
    frame = spark_session.read.parquet(str(folder))
    average = spark.dp_avg(frame, target="a", lower=-2, upper=2, epsilon=1e6, condition="b > 0", release="mean")
    chosen = rows().filter(pc.greater(rows()["b"], 0))["a"].to_numpy()
    assert average.value["value"][0].as_py() == pytest.approx(np.nanmean(np.clip(chosen, -2, 2)), abs=1e-3)
    again = spark.dp_avg(frame, target="a", lower=-2, upper=2, epsilon=1e6, condition="b > 0", release="mean")
    assert again.replayed
    quartiles = spark.dp_quantile(
        frame, target="a", epsilon=1e6, quantiles=[0.25, 0.75]
    )  # bounds in a pass of their own
    expected = np.nanquantile(rows()["a"].to_numpy(), [0.25, 0.75])
    assert quartiles.value["value"].to_numpy() == pytest.approx(expected, abs=0.05)
    assert sum(entry.status.startswith("released") for entry in spark.ledger.entries()) == 2


KINDS = {
    "decimal": (pa.decimal128(12, 3), [Decimal("1.500"), Decimal("-7.250")]),
    "date": (pa.date32(), [datetime.date(2026, 1, 31), datetime.date(1969, 12, 31)]),
    "zoned": (
        pa.timestamp("us", tz="UTC"),
        [datetime.datetime(2026, 1, 1, 12), datetime.datetime(1950, 5, 5, 1, 2, 3)],
    ),
    "local": (pa.timestamp("us"), [datetime.datetime(2026, 1, 1, 12), datetime.datetime(1950, 5, 5, 1, 2, 3)]),
    "bytes": (pa.binary(), [b"\x00\xff", b""]),
    "truth": (pa.bool_(), [True, False]),
    "short": (pa.int16(), [-32768, 7]),
    "byte": (pa.int8(), [-128, 7]),
    "whole": (pa.int32(), [1, -(2**31)]),
    "single": (pa.float32(), [0.1, float("inf")]),
    "double": (pa.float64(), [-0.0, float("nan")]),
}


@pytest.fixture(scope="module")
def kinds_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = np.random.default_rng(5)
    columns = {
        name: pa.array([None if chosen > 1 else values[chosen] for chosen in generator.integers(0, 3, 60)], type=kind)
        for name, (kind, values) in KINDS.items()
    }
    columns["y"] = pa.array(generator.normal(size=60))
    columns["pair"] = pa.array([{"x": value, "z": -value} for value in generator.normal(size=60)])
    path = tmp_path_factory.mktemp("kinds") / "kinds.parquet"
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def kinds(spark_session: Any, kinds_file: Path) -> Any:
    return spark_session.read.parquet(str(kinds_file))


@pytest.mark.long
def test_types_are_those_of_the_server(spark: dpsql.Context, kinds: Any) -> None:
    found = dpsql.spark.engine(kinds.sparkSession).schema(kinds)
    assert {name: found.field(name).type for name in KINDS} == {name: kind for name, (kind, _) in KINDS.items()}
    assert found.field("pair").type == pa.struct([("x", pa.float64()), ("z", pa.float64())])


@pytest.mark.long
@cases("name", KINDS, alone=True)
def test_values_of_every_type_reach_the_workers_as_they_are(
    spark: dpsql.Context, kinds: Any, kinds_file: Path, name: str
) -> None:
    """Units of every type: the keyed hash of their values decides which rows count."""
    arguments = {"target": "y", "lower": -2, "upper": 2, "privacy_unit": name, "max_rows_per_unit": 3}
    task, columns = task_of(spark, kinds, "dp_quantile", **arguments)
    assert state_on(spark, kinds, task, columns).equals(state_of(task, columns, pq.read_table(kinds_file)))


@pytest.mark.long
def test_values_are_read_from_every_type(spark: dpsql.Context, kinds: Any, kinds_file: Path) -> None:
    numbers = ["decimal", "short", "byte", "whole", "single", "double", "truth"]
    for features in (numbers, "pair"):
        arguments = {"target": "y", "target_lower": -2, "target_upper": 2, "lower": -9, "upper": 9, "k": 1}
        task, columns = task_of(spark, kinds, "dp_sis", features=features, **arguments)
        assert state_on(spark, kinds, task, columns).equals(state_of(task, columns, pq.read_table(kinds_file)))


@pytest.mark.long
def test_a_table_of_the_catalog_has_the_budget_of_its_full_name(
    spark: dpsql.Context, spark_session: Any, folder: Path
) -> None:
    spark_session.sql("DROP TABLE IF EXISTS visits")
    spark_session.sql(f"CREATE TABLE visits USING parquet LOCATION '{folder}'")
    spark_session.table("visits").createOrReplaceTempView("some_visits")
    engine = dpsql.spark.engine(spark_session)
    full = (spark_session.catalog.currentCatalog(), "default", "visits")
    assert {engine.table(name) for name in ("visits", "default.visits", ".".join(full))} == {full}
    assert engine.table("some_visits") is None
    own = ".".join(("spark", *full))
    spark.dp_protect(own, epsilon=1, source=False)
    assert spark.dp_count("default.visits", epsilon=0.75).dataset == own
    with pytest.raises(BudgetError, match="B001"):
        spark.dp_count("visits", epsilon=0.75)
    with pytest.raises(SourceError, match="S025"):
        spark.dp_count("some_visits", epsilon=0.1)
    with pytest.raises(SourceError, match=r"S053.*a view by its name"):  # what a view of the server reads is not shown
        spark.dp_count("some_visits", epsilon=0.1, dataset=own)
    spark.dp_protect(own, epsilon=1, source=False, claims="all", replace=True)
    assert spark.dp_count("some_visits", epsilon=0.1, dataset=own).guarantee.endswith(", as claimed")


@pytest.mark.long
def test_columns_of_other_types_are_left_out(spark_session: Any) -> None:
    frame = spark_session.sql("SELECT id, map('a', id) AS pairs, named_struct('m', map(1, 2)) AS nested FROM range(3)")
    assert dpsql.spark.engine(spark_session).schema(frame).names == ["id"]


@pytest.mark.long
def test_names_are_quoted(spark: dpsql.Context, spark_session: Any) -> None:
    frame = spark_session.createDataFrame([(1.0, 2.0)], schema="`a.b` double, `c``d` double")
    found = spark.dp_sum(frame, target="a.b", lower=0, upper=5, epsilon=1e6)
    other = spark.dp_sum(frame, target="c`d", lower=0, upper=5, epsilon=1e6)
    assert [round(one.value["value"][0].as_py()) for one in (found, other)] == [1, 2]


def entries(context: dpsql.Context) -> int:
    return len(context.ledger.entries())


@pytest.mark.long
@cases(
    "query",
    [
        "SELECT id, rand() AS y FROM range(9)",
        "SELECT id, randn() AS y FROM range(9)",
        "SELECT id, uuid() AS y FROM range(9)",
        "SELECT id FROM (SELECT id FROM range(9) WHERE rand() < 0.5)",
    ],
    alone=True,
)
def test_what_draws_at_random_is_refused(spark: dpsql.Context, spark_session: Any, query: str) -> None:
    with pytest.raises(SourceError, match="S031"):
        spark.dp_count(spark_session.sql(query), epsilon=1)
    assert entries(spark) == 0


@pytest.mark.long
def test_a_text_is_no_draw(spark: dpsql.Context, spark_session: Any) -> None:
    """The plan's text has the words of a draw, and the plan itself has none."""
    frame = spark_session.createDataFrame([("A",)], "ward string")
    assert spark.dp_count(frame.filter("ward <> 'rand('"), epsilon=1).value is not None


@pytest.mark.long
def test_a_sample_is_refused(spark: dpsql.Context, spark_session: Any) -> None:
    with pytest.raises(SourceError, match="S031"):
        spark.dp_count(spark_session.range(9).sample(0.5), epsilon=1)
    assert spark.dp_count(spark_session.range(9).repartition(3).limit(5), epsilon=1).value is not None


@pytest.mark.long
def test_what_is_not_there_costs_nothing(spark: dpsql.Context, spark_session: Any) -> None:
    frame = spark_session.range(9)
    for source, code in (
        ("no_such_table", "S024"),
        (7, "S024"),
        (frame.select("no_such_column"), "S024"),
        (frame.selectExpr("id", "id AS ID"), "S039"),
    ):
        with pytest.raises(SourceError, match=code) as raised:
            spark.dp_count(source, epsilon=1)
        assert raised.value.__context__ is None
    assert entries(spark) == 0


@pytest.mark.long
def test_sail_that_would_leave_out_nan_is_refused(spark: dpsql.Context, spark_session: Any, tmp_path: Path) -> None:
    """It takes a column for a constant whose minimum and maximum in the file are equal, whatever NaN there are."""
    pq.write_table(pa.table({"x": [1.0, float("nan"), 1.0]}), tmp_path / "rows.parquet")
    frame = spark_session.read.parquet(str(tmp_path))
    assert frame.toArrow()["x"].to_pylist()[1] != 1.0
    if spark_session.catalog.currentCatalog() != "sail":
        return
    spark_session.conf.set("dpsql.exactParquet", "false")
    try:
        with pytest.raises(SourceError, match="S034"):
            spark.dp_count(frame, epsilon=1)
    finally:
        spark_session.conf.set("dpsql.exactParquet", "true")


@pytest.mark.long
def test_the_command_line_can_say_that_sail_reads_values(sail_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_engine, "SparkEngine", lambda session: session.conf.get("dpsql.exactParquet", None))
    for setting in ("false", "true"):
        option = EngineOption.read(f"lake={sail_server.address}/;user_id=a;dpsql.exactParquet={setting}")
        assert option.engine() == setting
