"""Contexts on engines that have a catalog: DataFusion and Sail. Names, budgets, predictions and results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lake import visits

import dpsql
from dpsql.engines.attached import engines_of
from dpsql.errors import BudgetError, SourceError

ROWS = visits()
BOUNDS = {"target": "y", "lower": 0, "upper": 1, "target_lower": 0, "target_upper": 1}


@dataclass
class Place:
    """A session with the table clinic.visits, and a context on it.

    Attributes
    ----------
    own : str
        The name of its budget.
    folder : Path
        Where its file is.
    made : list of str
        Other tables, as SQL.
    """

    ctx: dpsql.Context
    session: Any
    own: str
    folder: Path
    made: list[str] = field(default_factory=list)

    def table(self, name: str) -> None:
        """Make another table in the folder of visits, with its rows; it is gone with the place."""
        quote = '"' if self.own.startswith("datafusion") else "`"
        stored = "STORED AS PARQUET" if quote == '"' else "USING parquet"
        written = f"clinic.{quote}{name}{quote}"
        self.session.sql(f"DROP TABLE IF EXISTS {written}")
        create = "CREATE EXTERNAL TABLE" if quote == '"' else "CREATE TABLE"
        self.session.sql(f"{create} {written} {stored} LOCATION '{self.folder}/visits.parquet'")
        self.made.append(written)

    def temporary_view(self, name: str, query: str) -> None:
        if self.own.startswith("datafusion"):
            self.session.register_view(name, self.session.sql(query))
        else:
            self.session.sql(query).createOrReplaceTempView(name)


@pytest.fixture(params=["datafusion", "sail"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    ROWS.write_parquet(tmp_path / "visits.parquet")
    if request.param == "datafusion":
        from datafusion import SessionConfig, SessionContext

        session = SessionContext(SessionConfig().set("datafusion.execution.collect_statistics", "false"))
        session.sql("CREATE SCHEMA clinic")
        session.sql(f"CREATE EXTERNAL TABLE clinic.visits STORED AS PARQUET LOCATION '{tmp_path}/visits.parquet'")
        with dpsql.datafusion.context(session) as ctx:
            yield Place(ctx, session, "datafusion.datafusion.clinic.visits", tmp_path)
        return
    session = request.getfixturevalue("sail_session")
    session.sql("CREATE DATABASE IF NOT EXISTS clinic")
    session.sql("DROP TABLE IF EXISTS clinic.visits")
    session.sql(f"CREATE TABLE clinic.visits USING parquet LOCATION '{tmp_path}/visits.parquet'")
    with dpsql.spark.context(session, name="lake") as ctx:
        found = Place(ctx, session, "lake.sail.clinic.visits", tmp_path)
        yield found
    for written in found.made:  # the server is shared
        session.sql(f"DROP TABLE {written}")


def test_one_table_has_one_budget(place: Place) -> None:
    ctx, (engine, catalog, *_) = place.ctx, place.own.split(".")
    assert ctx.dp_protect("clinic.visits", epsilon=3).startswith(f"{place.own}: epsilon 3")
    other = "LAKE.clinic.visits" if engine == "lake" else "CLINIC.Visits"  # on Sail only the engine's name has no case
    spellings = ["clinic.visits", other, f"{catalog}.clinic.visits", f"{engine}.clinic.visits", place.own]
    for number, spelling in enumerate(spellings, 1):
        found = ctx.dp_count(spelling, epsilon=0.5)
        assert found.value["value"][0].as_py() == pytest.approx(len(ROWS), abs=100)
        (row,) = ctx.dp_budget().to_pylist()
        assert (row["dataset"], row["epsilon_spent"]) == (place.own, 0.5 * number)


def test_views_and_frames_have_the_budget_of_what_they_are_seen_to_read(place: Place) -> None:
    """DataFusion shows the plans of views and queries; a client of Spark has its own frames' plans alone."""
    ctx = place.ctx
    ctx.dp_protect("clinic.visits", epsilon=30)
    place.temporary_view("recent", "SELECT pid, a FROM clinic.visits")
    hidden = ["recent", place.session.sql("SELECT * FROM clinic.visits")]
    shown = [place.session.table("clinic.visits").select("pid")]
    for source in [*shown, *(hidden if place.own.startswith("datafusion") else [])]:
        for dataset in (None, place.own):
            found = ctx.dp_count(source, epsilon=0.5, dataset=dataset)
            assert (found.dataset, "claimed" in found.guarantee) == (place.own, False)
    if place.own.startswith("datafusion"):
        return
    for source in hidden:
        with pytest.raises(SourceError, match=r"S025"):
            ctx.dp_count(source, epsilon=0.5)
        with pytest.raises(SourceError, match=r"S053"):
            ctx.dp_count(source, epsilon=0.5, dataset=place.own)
    ctx.dp_protect("clinic.visits", epsilon=30, claims="all", replace=True)
    assert ctx.dp_count("recent", epsilon=0.5, dataset=place.own).guarantee.endswith(", as claimed")


def test_a_view_is_no_table(place: Place) -> None:
    place.ctx.dp_protect("clinic.visits", epsilon=3)
    place.temporary_view("all_visits", "SELECT * FROM clinic.visits")
    assert engines_of(place.ctx._session).named(place.own.split(".")[0]).table("all_visits") is None
    if place.own.startswith("datafusion"):
        assert place.ctx.dp_count("all_visits", epsilon=0.5).dataset == place.own
        return
    with pytest.raises(SourceError, match=r"S025.*a view or a frame"):
        place.ctx.dp_count("all_visits", epsilon=0.5)


def test_a_table_without_a_budget_is_not_answered_whatever_is_claimed(place: Place) -> None:
    place.ctx.dp_protect("clinic.visits", epsilon=3)
    place.table("codes")
    for dataset in (None, place.own, "clinic.visits", "clinic.codes"):
        with pytest.raises(BudgetError, match="B006"):
            place.ctx.dp_count("clinic.codes", epsilon=1, dataset=dataset)
    assert [(row["dataset"], row["releases"]) for row in place.ctx.dp_budget().to_pylist()] == [(place.own, 0)]
    place.ctx.dp_protect("clinic.codes", epsilon=3)
    with pytest.raises(SourceError, match="S015"):
        place.ctx.dp_count("clinic.codes", epsilon=1, dataset=place.own)


def test_owners_declare_tables_and_no_views(place: Place) -> None:
    ctx, codes = place.ctx, place.own.replace("visits", "codes")
    ctx.dp_protect("clinic.visits", epsilon=3, privacy_unit="pid", max_rows_per_unit=2)
    place.table("codes")
    place.table("copied")
    place.temporary_view("all_codes", "SELECT * FROM clinic.codes")
    with pytest.raises(BudgetError, match="B009"):
        ctx.dp_public("clinic.codes")  # it has the columns of visits
    assert ctx.dp_public("clinic.codes", force=True) == f"{codes}: public"
    assert ctx.dp_count("clinic.codes", epsilon=1).dataset == codes
    ctx.dp_derive("clinic.copied", "clinic.visits", own_rows_only=True)
    found = ctx.dp_count("clinic.copied", epsilon=1)
    assert (found.dataset, "one pid (at most 2 rows)" in found.guarantee) == (place.own, True)
    for declare in (ctx.dp_public, lambda view: ctx.dp_derive(view, "clinic.visits", own_rows_only=True)):
        with pytest.raises(SourceError, match="S040"):
            declare("all_codes")
    place.temporary_view("codes", "SELECT * FROM clinic.visits")  # takes the name of a public table, without its schema
    if place.own.startswith("datafusion"):
        assert ctx.dp_count("codes", epsilon=1).dataset == place.own
        return
    with pytest.raises(SourceError, match="S025"):
        ctx.dp_count("codes", epsilon=1)


def test_tables_without_a_place_are_listed(place: Place) -> None:
    ctx, (engine, *_) = place.ctx, place.own.split(".")
    for name in ("codes", "Codes", "odd.name"):
        place.table(name)
    place.temporary_view("all_visits", "SELECT * FROM clinic.visits")
    ctx.dp_protect("clinic.visits", epsilon=3)

    def listed() -> list[dict[str, str]]:
        return [row for row in ctx.dp_unplaced().to_pylist() if ".clinic." in row["table_name"]]

    prefix = place.own.removesuffix("visits")
    assert [row["table_name"] for row in listed()] == [f'{prefix}"odd.name"', f"{prefix}Codes", f"{prefix}codes"]
    for number, row in enumerate(listed(), 1):
        said = row["if_public"].replace("engine :=", "force := true, engine :=")
        assert said.endswith(f"engine := '{engine}');")
        assert ctx.connection.execute(said).fetchall() == [(f"{row['table_name'].lower()}: public",)]
        assert len(listed()) == 3 - number  # the statement is about the table that it is listed with
    assert ctx.dp_unplaced(engine=None).num_rows == 0


def test_a_catalog_of_spark_lists_tables_and_no_views(spark_session: Any, tmp_path: Path) -> None:
    ROWS.write_parquet(tmp_path / "rows.parquet")
    for database in ("listed", "`select`"):
        spark_session.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
        spark_session.sql(f"DROP TABLE IF EXISTS {database}.rows")
        spark_session.sql(f"CREATE TABLE {database}.rows USING parquet LOCATION '{tmp_path}/rows.parquet'")
    spark_session.sql("CREATE OR REPLACE VIEW listed.kept AS SELECT a FROM listed.rows")
    spark_session.sql("SELECT 1 AS a").createOrReplaceTempView("passing")
    from dpsql.engines.spark import SparkEngine

    engine = SparkEngine(spark_session)
    found = engine.catalog()
    assert {parts[1:] for parts in found.values() if parts[1] in ("listed", "select")} == {
        ("listed", "rows"),
        ("select", "rows"),
    }
    assert {"kept", "passing"}.isdisjoint(parts[-1] for parts in found.values())
    for spelled, parts in found.items():
        assert engine.table(spelled) == parts
    catalog, *_ = found["".join(name for name in found if name.endswith("listed.rows"))]
    with dpsql.spark.context(spark_session, name="lake") as ctx:
        ctx.dp_protect("listed.rows", epsilon=3)
        with pytest.raises(BudgetError, match="B006"):
            ctx.dp_count("select.rows", epsilon=1, dataset=f"lake.{catalog}.listed.rows")
        for view in ("listed.kept", "passing"):
            with pytest.raises(SourceError, match="S040"):
                ctx.dp_public(view)
        ctx.dp_public("select.rows", force=True)
        assert ctx.dp_count("select.rows", epsilon=1).dataset == f"lake.{catalog}.select.rows"
    for database in ("listed", "`select`"):
        spark_session.sql(f"DROP TABLE {database}.rows")


def test_tables_of_sail_that_differ_in_case_share_a_budget_and_no_rows(sail_session: Any, tmp_path: Path) -> None:
    sail_session.sql("CREATE DATABASE IF NOT EXISTS clinic")
    for name, rows in (("visits", ROWS), ("Visits", ROWS.head(10))):
        rows.write_parquet(tmp_path / f"{name}.parquet")
        sail_session.sql(f"DROP TABLE IF EXISTS clinic.{name}")
        sail_session.sql(f"CREATE TABLE clinic.{name} USING parquet LOCATION '{tmp_path}/{name}.parquet'")
    with dpsql.spark.context(sail_session, name="lake") as ctx:
        ctx.dp_protect("clinic.visits", epsilon=30)
        counts = [ctx.dp_count(f"clinic.{name}", epsilon=10).value["value"][0].as_py() for name in ("visits", "Visits")]
        assert counts == [pytest.approx(len(ROWS), abs=10), pytest.approx(10, abs=10)]
        assert ctx.dp_budget().to_pylist()[0]["epsilon_spent"] == 20


def test_predictions_and_results_are_frames_of_the_engine(place: Place) -> None:
    ctx = place.ctx
    fit = ctx.dp_linear_regression("clinic.visits", features=["a", "b"], epsilon=5, delta=1e-6, **BOUNDS)
    found = ctx.dp_predict(fit, "clinic.visits")
    assert type(found) is type(place.session.sql("SELECT 1 AS one"))
    found = found.select("noise", "prediction")
    predicted = (found.to_arrow_table() if hasattr(found, "to_arrow_table") else found.toArrow()).sort_by("noise")
    expected = ctx.model(fit).predict(ROWS.sort("noise").to_arrow())
    np.testing.assert_allclose(predicted["prediction"].to_numpy(), expected, rtol=1e-12)
    if place.own.startswith("lake"):
        assert fit.to_spark(place.session).toArrow().num_rows == 3
