"""Contexts on engines that have a catalog: DataFusion and Sail. Names, budgets, predictions and results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lake import visits

import dpsql
from dpsql.errors import SourceError

ROWS = visits()
BOUNDS = {"target": "y", "lower": 0, "upper": 1, "target_lower": 0, "target_upper": 1}


@dataclass
class Place:
    """A session with the table clinic.visits, and a context on it.

    Attributes
    ----------
    own : str
        The name of its budget.
    """

    ctx: dpsql.Context
    session: Any
    own: str

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
            yield Place(ctx, session, "datafusion.datafusion.clinic.visits")
        return
    session = request.getfixturevalue("sail_session")
    session.sql("CREATE DATABASE IF NOT EXISTS clinic")
    session.sql("DROP TABLE IF EXISTS clinic.visits")
    session.sql(f"CREATE TABLE clinic.visits USING parquet LOCATION '{tmp_path}/visits.parquet'")
    with dpsql.spark.context(session, name="lake") as ctx:
        yield Place(ctx, session, "lake.sail.clinic.visits")


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


def test_views_and_frames_are_claimed(place: Place) -> None:
    ctx = place.ctx
    ctx.dp_protect("clinic.visits", epsilon=3)
    place.temporary_view("recent", "SELECT pid, a FROM clinic.visits")
    frame = place.session.sql("SELECT * FROM clinic.visits")
    for source in ("recent", frame):
        with pytest.raises(SourceError, match=r"S025"):
            ctx.dp_count(source, epsilon=0.5)
        assert ctx.dp_count(source, epsilon=0.5, dataset=place.own).dataset == place.own


def test_a_view_is_no_table(place: Place) -> None:
    place.ctx.dp_protect("clinic.visits", epsilon=3)
    place.temporary_view("all_visits", "SELECT * FROM clinic.visits")
    assert place.ctx._session.engine(place.own.split(".")[0]).table("all_visits") is None
    with pytest.raises(SourceError, match=r"S025.*a view or a frame"):
        place.ctx.dp_count("all_visits", epsilon=0.5)


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
