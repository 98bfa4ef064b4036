"""Every method of a context whose rows Polars holds, the engine in SQL, and the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner
from lake import visits

import dpsql
from dpsql.cli.commands import main
from dpsql.cli.options import EngineOption
from dpsql.engines.task import Task
from dpsql.errors import ParameterError, SourceError
from support.cases import cases

BOUNDS = {"target": "y", "lower": 0, "upper": 1, "target_lower": 0, "target_upper": 1}
ROWS = visits()


@pytest.fixture
def ctx() -> Iterator[dpsql.Context]:
    with dpsql.polars.context({"visits": ROWS.lazy()}, parts=8) as opened:
        yield opened


def test_a_source_is_a_name_or_a_frame(ctx: dpsql.Context) -> None:
    for source in ("visits", "polars.visits", ROWS, ROWS.lazy()):
        found = ctx.dp_sis(source, k=1, epsilon=50, features=["a", "b"], **BOUNDS)
        assert found.features == ["a"]
        assert found.dataset == ("visits" if isinstance(source, str) else "default")
    assert found.engine == f"polars {pl.__version__}"


def test_results_come_as_any_frame(ctx: dpsql.Context) -> None:
    found = ctx.dp_count("visits", by="ward", keys=["A", "B"], epsilon=1)
    assert isinstance(found.value, pa.Table)
    assert found.to_polars()["ward"].to_list() == found.to_pandas()["ward"].tolist() == ["A", "B"]

    class Session:
        def createDataFrame(self, table: pa.Table) -> tuple[str, pa.Table]:
            return "frame", table

    assert found.to_spark(Session()) == ("frame", found.value)  # type: ignore[arg-type, comparison-overlap]


def test_a_named_frame_is_protected_by_a_budget_that_calls_name(ctx: dpsql.Context) -> None:
    said = ctx.dp_protect("visits", epsilon=3, privacy_unit="pid", max_rows_per_unit=2)
    assert said == "visits: epsilon 3; privacy unit pid, at most 2 rows each"
    with pytest.raises(SourceError, match=r"S025.*dataset='visits'"):
        ctx.dp_count("visits", epsilon=0.5)
    for source in ("visits", ROWS):
        assert "one pid (at most 2 rows)" in ctx.dp_count(source, epsilon=0.5, dataset="visits").guarantee
    (row,) = ctx.dp_budget().to_pylist()
    assert (row["dataset"], row["epsilon_remaining"]) == ("visits", 2)
    assert ctx.dp_ledger().num_rows == 3
    assert ctx.dp_unplaced().num_rows == 0
    with pytest.raises(SourceError, match="S024"):
        ctx.dp_protect("nothing", epsilon=1)
    assert ctx.dp_protect("cohort", epsilon=1, source=False) == "cohort: epsilon 1; protects one row"


def test_nothing_is_declared_of_a_frame(ctx: dpsql.Context) -> None:
    """Polars has no catalog: a name stands for a frame, which may hold the rows of any table."""
    for budget in (False, True):
        if budget:
            ctx.dp_protect("visits", epsilon=3)
        for declare in (
            lambda: ctx.dp_public("visits"),
            lambda: ctx.dp_public("visits", force=True),
            lambda: ctx.dp_derive("visits", "visits", one_row_each=True),
        ):
            with pytest.raises(SourceError, match=r"S040.*'visits' is a view or a frame"):
                declare()
        for frame in (ROWS, ROWS.lazy()):
            with pytest.raises(ParameterError, match=r"P013.*Frame"):
                ctx.dp_public(frame)  # type: ignore[arg-type]
            with pytest.raises(ParameterError, match=r"P013.*Frame"):
                ctx.dp_derive("visits", frame, one_row_each=True)  # type: ignore[arg-type]
        assert ctx.dp_unplaced().num_rows == 0
    with pytest.raises(SourceError, match="S025"):
        ctx.dp_count("visits", epsilon=1)
    assert ctx.dp_ledger().num_rows == 1


def test_estimates_need_no_engine(ctx: dpsql.Context) -> None:
    assert ctx.dp_estimate("dp_count", epsilon=1) == dpsql.Context().dp_estimate("dp_count", epsilon=1)


def test_predictions_are_those_of_duckdb(ctx: dpsql.Context) -> None:
    fit = ctx.dp_linear_regression("visits", features=["a", "b"], epsilon=5, delta=1e-6, **BOUNDS)
    rows = ROWS.with_columns(a=pl.when(pl.col("b") > 0.9).then(None).otherwise(pl.col("a") * 2 - 0.5))
    found = ctx.dp_predict(fit, rows)
    assert isinstance(found, pl.LazyFrame)
    predicted = found.collect(engine="streaming")
    assert predicted.drop("prediction").equals(rows)
    with dpsql.Context(ctx.connection) as beside:  # the same ledger
        table = beside.dp_predict(fit, rows)
    np.testing.assert_allclose(predicted["prediction"].to_numpy(), table["prediction"].to_numpy(), rtol=1e-12)
    assert predicted["prediction"].null_count() == table["prediction"].null_count > 0
    # What follows on the frame may leave out what the model reads.
    assert found.select("prediction").collect().equals(predicted.select("prediction"))
    assert found.filter(pl.col("prediction") > 0.5).collect().equals(predicted.filter(pl.col("prediction") > 0.5))
    assert found.head(3).collect().equals(predicted.head(3))
    assert ctx.dp_predict(fit, rows.clear()).collect().schema == predicted.schema


def test_a_classifier_predicts_classes_and_probabilities(ctx: dpsql.Context) -> None:
    rows = ROWS.with_columns(ill=pl.col("y") > 0.5)
    with dpsql.Context(ctx.connection) as beside:  # the same ledger
        fit = beside.dp_logistic_regression(
            rows, target="ill", features=["a", "b"], epsilon=5, delta=1e-6, lower=0, upper=1
        )
        table = beside.dp_predict(fit, ROWS)
    predicted = ctx.dp_predict(fit, "visits").collect()
    assert predicted["prediction"].to_list() == table["prediction"].to_pylist()
    np.testing.assert_allclose(predicted["probability"].to_numpy(), table["probability"].to_numpy(), rtol=1e-9)
    assert ctx.model(fit).predict(ROWS.to_arrow()).shape == (len(ROWS),)


@cases(
    ("rows", "code"),
    [
        ("nothing", "S024"),
        (3, "S024"),
        (ROWS.lazy().select("unknown"), "S024"),
        (ROWS.select("a"), "S002"),
        (ROWS.with_columns(a=pl.lit("text")), "S003"),
        (ROWS.with_columns(Prediction=1), "S037"),
        (ROWS.with_columns(A=1), "S039"),
    ],
)
def test_rows_that_a_model_does_not_take_are_refused_before_they_are_read(
    ctx: dpsql.Context, rows: Any, code: str
) -> None:
    fit = ctx.dp_linear_regression("visits", features=["a", "b"], epsilon=5, delta=1e-6, **BOUNDS)
    with pytest.raises(SourceError, match=code):
        ctx.dp_predict(fit, rows)


def test_a_model_of_long_rows_needs_a_row_each(ctx: dpsql.Context) -> None:
    long = pl.DataFrame({"doc": [1, 1, 2], "word": ["u", "v", "u"], "spam": [True, True, False]})
    fit = ctx.dp_naive_bayes(long, target="spam", features="word", row_id="doc", names=["u", "v"], epsilon=5)
    with pytest.raises(SourceError, match=r"S010.*Pivot"):
        ctx.dp_predict(fit, long)


def test_explain_says_what_an_engine_does_and_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = dpsql.polars.engine({"visits": ROWS})
    ctx = dpsql.Context()
    dpsql.attach_engine(ctx, "lake", engine, parts=8)
    for verb in ("fold", "fold_parts", "map"):
        monkeypatch.delattr(type(engine), verb)
    call = "FROM dp_sis('visits', target := 'y', features := ['a', 'b'], k := 1, epsilon := 1, lower := 0, upper := 1, "
    call += "target_lower := 0, target_upper := 1, engine := 'lake'"
    shown = ctx.explain(f"{call})")
    for part in (
        "-- charges visits: pure 1-DP; remaining unlimited",
        f"-- engine lake: polars {pl.__version__}",
        "-- 1 pass over the rows; columns read: 'a', 'b', 'y'",
        "-- A worker adds up the rows of a partition in exact integers.",
    ):
        assert part in shown
    assert "SELECT" not in shown
    shown = ctx.explain(f"{call}, privacy_unit := 'pid', max_rows_per_unit := 2)")
    assert "grouped into 8 parts by a keyed hash; columns read: 'pid', 'a', 'b', 'y'" in shown
    assert "system.main.row_number() OVER" in shown
    assert "dpsql_gate" not in shown
    refused = ctx.explain("FROM dp_kendall('visits', target := 'y', k := 1, epsilon := 1, engine := 'lake')")
    assert "-- refused now: [DPSQL-P073]" in refused
    assert ctx.dp_ledger().num_rows == 0


def test_sql_names_an_engine_by_its_argument_alone() -> None:
    con = dpsql.connect()
    con.execute("SET python_enable_replacements = false; CREATE TABLE visits AS SELECT 1 AS a")
    dpsql.attach_engine(con, "Lake", dpsql.polars.engine({"visits": ROWS}))
    (there,) = con.sql("SELECT value FROM dp_count('lake.visits', epsilon := 5, engine := 'LAKE')").fetchall()
    (here,) = con.sql("SELECT value FROM dp_count('visits', epsilon := 5)").fetchall()
    assert there[0] > 500 > here[0]
    with pytest.raises(duckdb.Error, match="lake"):
        con.sql("SELECT value FROM dp_count('lake.visits', epsilon := 5)").fetchall()
    with pytest.raises(duckdb.Error, match=r"P074.*It has: lake\. .*dpsql\.attach_engine"):
        con.sql("FROM dp_count('visits', epsilon := 5, engine := 'pond')").fetchall()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for number, part in enumerate(ROWS.partition_by("ward")):
        part.write_parquet(tmp_path / f"part{number}.parquet")
    (tmp_path / "job.sql").write_text(
        "SELECT dp_protect('visits', epsilon := 3, engine := 'visits');\n"
        "FROM dp_count('visits', epsilon := 1, engine := 'visits', dataset := 'visits');\n"
    )
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_the_command_line_attaches_parquet_files() -> None:
    options = ["--engine", "visits=polars:part*.parquet"]
    done = CliRunner().invoke(main, ["run", "job.sql", *options, "--ledger", "kept"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert "visits: epsilon 3" in done.stdout
    sql = "SELECT value > 500 AS full FROM dp_count('visits', epsilon := 1, engine := 'visits', dataset := 'visits')"
    done = CliRunner().invoke(main, ["query", sql, *options, "--ledger", "kept", "--format", "csv"])
    assert done.stdout.split() == ["full", "true"]
    done = CliRunner().invoke(main, ["explain", sql, *options, "--ledger", "kept"])
    assert "-- engine visits: polars" in done.stdout


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("option", "status", "said"),
    [
        ("visits=polars:absent.parquet", 4, "S038"),
        ("lake=sc://localhost:1", 4, "S038"),
        ("visits", 2, "NAME=sc://HOST:PORT"),
        ("a.b=polars:part0.parquet", 2, "NAME=sc://HOST:PORT"),
        ("visits=csv:part0.csv", 2, "NAME=sc://HOST:PORT"),
    ],
)
def test_an_engine_that_cannot_be_opened_stops_the_command_line(option: str, status: int, said: str) -> None:
    done = CliRunner().invoke(main, ["run", "job.sql", "--engine", option, "--ledger", "kept"])
    assert (done.exit_code, said in done.stderr) == (status, True)


def test_a_location_is_in_no_message() -> None:
    option = EngineOption.read("lake=sc://localhost:1/;token=secret")
    with pytest.raises(SourceError, match="S038") as caught:
        option.engine()
    assert "secret" not in str(caught.value)


def test_parts_are_a_number(ctx: dpsql.Context) -> None:
    with pytest.raises(ParameterError, match="P021"):
        dpsql.polars.context(parts=0)
    found = [
        dpsql.polars.context({"visits": ROWS}, parts=parts).dp_count(
            "visits", epsilon=1000, privacy_unit="pid", max_rows_per_unit=2
        )
        for parts in (1, 7)
    ]
    assert found[0].value["value"] == found[1].value["value"]


CATEGORIES = {"text": pl.String, "category": pl.Categorical, "enum": pl.Enum([str(number) for number in range(30)])}


@cases("unit", CATEGORIES)
@cases("by", CATEGORIES)
def test_texts_of_every_kind_name_people_and_groups(unit: str, by: str) -> None:
    """Rows are grouped by person under one type for each kind of text; another type ended the call, and charged it."""
    people = pl.Series("pid", [str(number % 30) for number in range(300)]).cast(CATEGORIES[unit])
    groups = pl.Series("g", [str(number % 2) for number in range(300)]).cast(CATEGORIES[by])
    with dpsql.polars.context({"t": pl.DataFrame([people, groups])}, parts=3) as opened:
        limits = {"privacy_unit": "pid", "max_rows_per_unit": 4}
        counted = opened.dp_count("t", by="g", keys=["0", "1"], epsilon=1e6, **limits)
    assert counted.value["value"].to_pylist() == [60, 60]


def test_one_statement_reads_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement costs some ten milliseconds, and the engine's batches are small."""
    read: list[int] = []
    alone = Task.alone

    def counted(task: Task, table: pa.Table) -> Any:
        read.append(table.num_rows)
        return alone(task, table)

    monkeypatch.setattr(Task, "alone", counted)
    frame = pl.concat([pl.DataFrame({"ward": ["A", "B"] * 20_000})] * 10, rechunk=False)
    ctx = dpsql.polars.context()
    found = ctx.dp_count(frame.lazy(), by="ward", keys=["A", "B"], epsilon=50)
    assert [round(value, -2) for value in found.value["value"].to_pylist()] == [200_000, 200_000]
    assert read == [0, 400_000], "no rows as it is rehearsed, and then all of them"
