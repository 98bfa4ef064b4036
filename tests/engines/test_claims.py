"""Claims: rows that no plan of DuckDB shows, and of which a caller says whose they are.

The guarantee says so wherever it stands. The owner decides which claims are answered. A view or a frame of an engine
counts as one row for each row only where the engine's plan shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
import dpsql.polars
from dpsql.errors import BudgetError, ParameterError, SourceError
from support.cases import cases

PEOPLE = pl.DataFrame(
    {"pid": [1, 1, 2, 3], "age": [30, 31, 50, 70], "ward": ["A", "A", "B", "B"], "weight": [1.0, 2, 3, 4]}
)


@pytest.fixture
def rows(tmp_path: Path) -> pl.LazyFrame:
    PEOPLE.write_parquet(tmp_path / "people.parquet")
    return pl.scan_parquet(tmp_path / "people.parquet")


@pytest.fixture
def ctx(rows: pl.LazyFrame) -> Iterator[dpsql.Context]:
    with dpsql.polars.context({"people": rows}) as opened:
        yield opened


def protect(ctx: dpsql.Context, **more: Any) -> str:
    return ctx.dp_protect("people", epsilon=100, source=False, **more)


UNIT = {"privacy_unit": "pid", "max_rows_per_unit": 1}
REPEATED = {
    "a join": lambda rows: rows.join(rows, on="pid"),
    "a cross join": lambda rows: rows.join(pl.LazyFrame({"n": [1, 2]}), how="cross"),
    "itself again": lambda rows: pl.concat([rows.filter(pl.col("age") > 0), rows]),
    "the first": lambda rows: rows.head(2),
    "numbers": lambda rows: rows.with_row_index(),
    "a window": lambda rows: rows.with_columns(pl.col("age").max().over("ward")),
    "groups": lambda rows: rows.group_by("ward").agg(pl.col("age").first()),
    "Python": lambda rows: rows.map_batches(lambda frame: pl.concat([frame, frame])),
}


@pytest.mark.long
@cases("way", REPEATED)
def test_a_frame_that_may_repeat_rows_is_refused(ctx: dpsql.Context, rows: pl.LazyFrame, way: str) -> None:
    frame = REPEATED[way](rows)
    assert ctx.dp_count(frame, epsilon=1).value is not None, "nothing is protected yet"
    protect(ctx)
    with pytest.raises(SourceError, match=r"S053.*claims='all'|S012"):
        ctx.dp_count(frame, epsilon=1, dataset="people")
    assert ctx.dp_budget().to_pylist()[0]["epsilon_spent"] == 1, "what was counted before"
    if way != "itself again":
        protect(ctx, claims="all", replace=True)
        assert ctx.dp_count(frame, epsilon=1, dataset="people").guarantee.endswith("of one row, as claimed")


@pytest.mark.long
@pytest.mark.parametrize("collected", [False, True])
def test_a_frame_that_is_read_as_it_is_is_answered(ctx: dpsql.Context, rows: pl.LazyFrame, collected: bool) -> None:
    protect(ctx)
    frame = rows.filter(pl.col("ward") != "rand(").select("pid", years=pl.col("age") + 1)
    found = ctx.dp_count(frame.collect() if collected else frame, epsilon=1, dataset="people")
    assert found.guarantee == "pure 1-DP, add_remove of one row, as claimed"


@pytest.mark.long
def test_the_column_of_the_unit_is_the_files_own(ctx: dpsql.Context, rows: pl.LazyFrame) -> None:
    """Otherwise each row might be a person of its own."""
    protect(ctx, **UNIT)
    good = rows.with_columns(age=pl.col("age") + 1)
    assert ctx.dp_count(good, epsilon=1, dataset="people").guarantee.endswith(
        "of all rows of one pid (at most 1 row), as claimed"
    )
    made_up = [
        rows.with_columns(pid=pl.col("age")),
        rows.with_columns(pid=pl.col("pid") * 1000 + pl.col("age")),
        rows.select("age", pid="ward"),
    ]
    for frame in made_up:
        with pytest.raises(SourceError, match="S017"):
            ctx.dp_count(frame, epsilon=1, dataset="people")
    with pytest.raises(SourceError, match="S053"):
        ctx.dp_count(rows.with_columns(pid=pl.int_range(pl.len())), epsilon=1, dataset="people")


@pytest.mark.long
def test_a_file_that_is_named_twice_is_refused_always(ctx: dpsql.Context, tmp_path: Path, rows: pl.LazyFrame) -> None:
    path = tmp_path / "people.parquet"
    for more in ({}, {"claims": "all"}):
        with pytest.raises(SourceError, match="S052"):
            ctx.dp_count(pl.scan_parquet([path, path]), epsilon=1, dataset="people")
        protect(ctx, **more, replace=True)
    assert not [entry for entry in ctx.ledger.entries() if entry.function == "dp_count"]


@pytest.mark.long
def test_the_guarantee_says_as_claimed_everywhere(ctx: dpsql.Context, rows: pl.LazyFrame) -> None:
    assert "claimed" not in ctx.dp_count("people", epsilon=1).guarantee
    protect(ctx)
    found = ctx.dp_quantile("people", target="age", epsilon=1, dataset="people", release="half")  # of several passes
    assert found.guarantee.partition(";")[0] == "pure 1-DP, add_remove of one row, as claimed"
    assert (
        ctx.dp_quantile("people", target="age", epsilon=1, dataset="people", release="half").guarantee
        == found.guarantee
    )
    listed = [row["guarantee"] for row in ctx.dp_ledger().to_pylist() if row["function"] == "dp_quantile"]
    assert listed
    assert all(", as claimed" in one for one in listed)
    statement = "FROM dp_count('people', epsilon := 1, engine := 'polars', dataset := 'people')"
    assert "of one row, as claimed" in ctx.explain(statement)


@pytest.fixture
def con(tmp_path: Path) -> Iterator[Any]:
    pq.write_table(PEOPLE.to_arrow(), tmp_path / "people.parquet")
    with dpsql.connect() as connection:
        connection.execute(f"CREATE TABLE people AS FROM '{tmp_path / 'people.parquet'}'")
        yield connection


def last_guarantee(con: Any) -> str:
    [found] = con.execute("SELECT arg_max(guarantee, sequence) FROM dp_ledger() WHERE function = 'dp_count'").fetchone()
    return str(found)


@pytest.mark.long
def test_duckdbs_claims_follow_the_same_policy(con: Any, tmp_path: Path) -> None:
    con.execute("SELECT dp_protect('people', epsilon := 100)")
    file = f"FROM dp_count('{tmp_path / 'people.parquet'}', epsilon := 1, dataset := 'people')"
    con.execute(file)
    assert last_guarantee(con) == "pure 1-DP, add_remove of one row, as claimed"
    con.execute("SELECT dp_protect('people', epsilon := 100, claims := 'none', replace := true)")
    spent = con.execute("SELECT epsilon_spent FROM dp_budget()").fetchone()
    aggregate = f"SELECT dp_sis(age, [pid], k := 1, epsilon := 1, target_lower := 0, target_upper := 9, lower := 0, upper := 9, dataset := 'people') FROM '{tmp_path / 'people.parquet'}'"
    for call in (file, aggregate):
        with pytest.raises(Exception, match="B015"):
            con.execute(call)
    assert con.execute("SELECT epsilon_spent FROM dp_budget()").fetchone() == spent
    con.execute("FROM dp_count('people', epsilon := 1)")
    assert "claimed" not in last_guarantee(con)


@pytest.mark.long
def test_an_owner_may_answer_no_claims_on_an_engine(ctx: dpsql.Context, rows: pl.LazyFrame) -> None:
    assert "claims none" in protect(ctx, claims="none")
    for source in ("people", rows, rows.collect(), rows.head(1)):
        with pytest.raises(BudgetError, match="B015"):
            ctx.dp_count(source, epsilon=1, dataset="people")
    assert "claims none" in protect(ctx, replace=True, max_rows_per_unit=None), "kept unless it is stated again"
    assert "claims" not in protect(ctx, claims="rows", replace=True)
    assert ctx.dp_count("people", epsilon=1, dataset="people").value is not None


@pytest.mark.long
def test_a_policy_of_claims_is_one_of_three(ctx: dpsql.Context) -> None:
    with pytest.raises(ParameterError, match=r"P005.*claims"):
        protect(ctx, claims="some")


@pytest.mark.long
def test_parts_of_a_split_and_predictions_are_seen(rows: pl.LazyFrame) -> None:
    """A function of Python stands in their plans, which is dpsql's own."""
    context = dpsql.polars.use()
    context.dp_protect("people", epsilon=100, delta=1e-3, source=False, **UNIT)
    frame = rows.dp.of("people")
    for part in (*frame.dp.split("pid"), *frame.collect().dp.of("people").dp.split("pid")):
        assert part.dp.count(epsilon=1).dp.release.guarantee.endswith("as claimed")
    fit = frame.dp.linear_regression(
        target="age", features=["weight"], epsilon=1, delta=1e-6, lower=0, upper=9, target_lower=0, target_upper=99
    )
    predicted = frame.dp.predict(fit)
    scores = predicted.dp.regression_metrics(target="age", prediction="prediction", lower=0, upper=99, epsilon=1)
    assert scores.dp.release.guarantee.endswith("as claimed")


@pytest.mark.long
def test_a_view_over_declared_tables_is_charged_to_them() -> None:
    """Nothing is claimed of it, and a table that it reads beside the claimed one is charged, too, or refused."""
    datafusion = pytest.importorskip("datafusion")
    import dpsql.datafusion

    session = datafusion.SessionContext()
    for name in ("people", "others", "codes"):
        session.register_record_batches(name, [[pa.RecordBatch.from_pylist(PEOPLE.to_dicts())]])
    session.sql("CREATE VIEW older AS SELECT pid AS person, age FROM people WHERE age > 30")
    ctx = dpsql.datafusion.context(session, name="lake")
    ctx.dp_protect("people", epsilon=100, **UNIT)
    own = "lake.datafusion.public.people"
    found = ctx.dp_count("older", epsilon=1, privacy_unit="person")
    assert (found.dataset, found.guarantee) == (own, "pure 1-DP, add_remove of all rows of one person (at most 1 row)")
    with pytest.raises(SourceError, match="S017"):
        ctx.dp_count(session.sql("SELECT age AS pid FROM people"), epsilon=1)
    with pytest.raises(BudgetError, match="B006"):
        ctx.dp_count(session.sql("SELECT * FROM others"), epsilon=1, dataset=own)
    ctx.dp_protect("others", epsilon=100, **UNIT)
    with pytest.raises(SourceError, match="S015"):
        ctx.dp_count(session.sql("SELECT * FROM others"), epsilon=1, dataset=own)
    both = ctx.dp_count(session.sql("SELECT * FROM people UNION ALL SELECT * FROM others"), epsilon=1)
    spent = {row["dataset"]: row["epsilon_spent"] for row in ctx.dp_budget().to_pylist()}
    assert (spent[own], spent["lake.datafusion.public.others"], both.dataset) == (2, 1, own)
    ctx.dp_public("codes", force=True)
    assert ctx.dp_count(session.sql("SELECT * FROM codes"), epsilon=1).dataset == "lake.datafusion.public.codes"
