"""Rows with more features than count: an equal share of each, the same integers on every engine and nothing chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import dpsql
import dpsql.polars
from dpsql.engines.attached import Attached, engines_of
from dpsql.engines.duckdb.installation import install
from dpsql.functions.feature_counts import FeatureCountsCall
from dpsql.statistics.presence import FeatureCounts
from support.arrow_engine import ArrowEngine
from support.broken.planting import planted
from support.cases import cases
from support.tasks import state_of, state_on, task_of

ROWS, WIDTH, MOST = 4000, 5, 2
NAMES = [f"x{number}" for number in range(WIDTH)]
WIDE = {"features": NAMES, "present_above": 0}
LONG = {"features": "word", "row_id": "id", "names": NAMES}


def equal_rows() -> pa.Table:
    """Rows that differ in nothing but their label: of a pair one has each."""
    return pa.table({"id": range(ROWS), "label": np.arange(ROWS) % 2 == 0, **dict.fromkeys(NAMES, np.ones(ROWS))})


def random_rows() -> pa.Table:
    """Rows of 60 patterns, with labels that have nothing to do with them."""
    rng = np.random.default_rng(4)
    patterns = rng.integers(0, 2, (WIDTH, 60))[:, rng.integers(0, 60, ROWS)]
    patterns[0] |= ~patterns.any(axis=0)  # a row without a cell is none in the long layout
    features = {name: patterns[number] for number, name in enumerate(NAMES)}
    return pa.table({"id": range(ROWS), "label": rng.random(ROWS) < 0.5, **features})


def cells(rows: pa.Table) -> pa.Table:
    """Return the same rows in the long layout, some cells twice, in another order."""
    frame = pl.DataFrame(rows).unpivot(NAMES, index=["id", "label"], variable_name="word", value_name="n")
    frame = frame.filter(pl.col("n") > 0).drop("n")
    return pl.concat([frame, frame[::3]]).sample(fraction=1, shuffle=True, seed=1).to_arrow()


def expected(rows: pa.Table) -> list[int]:
    """Counts by label and feature in units of 2**-20 rows, and the class sizes."""
    present, label = np.array([rows[name].to_numpy() > 0 for name in NAMES]), np.array(rows["label"])
    shares = [min(1 << 20, (MOST << 20) // max(1, int(held))) for held in present.sum(axis=0)]
    counts = [int(np.dot(have & (label == side), shares)) for side in (True, False) for have in present]
    return [*counts, int(label.sum()), int((~label).sum())]


def counted(table: pa.Table, arguments: dict[str, Any], engine: str | None) -> list[int]:
    """Return the exact counts of a call on an engine, or on DuckDB."""
    found: list[list[int]] = []
    counts = FeatureCountsCall.counts

    def noted(call: Any, statistic: FeatureCounts) -> Any:
        found.append(statistic.counts.tolist())
        return counts(call, statistic)

    given = {"target": "label", "max_features_per_row": MOST, "epsilon": 1, "threshold": 1, **arguments}
    with dpsql.Context() as context, planted((FeatureCountsCall, "counts", noted)):
        if engine is None:
            context.connection.register("rows", table)
        else:
            engines_of(install(context.connection)).attach(Attached("other", ArrowEngine({"rows": table}, 7), 5))
            given["engine"] = "other"
        context.dp_score_filter("rows", **given, dataset="d")
    return found[0]


@cases("engine", [None, "arrow"])
@cases("rows", [equal_rows, random_rows])
@cases("layout", ["wide", "long"])
def test_every_engine_counts_the_same(layout: str, rows: Callable[[], pa.Table], engine: str | None) -> None:
    table = rows()
    found = counted(table, WIDE, engine) if layout == "wide" else counted(cells(table), LONG, engine)
    assert found == expected(table)
    if rows is equal_rows:  # and so every difference of the classes is exactly 0
        assert found[:WIDTH] == found[WIDTH:-2]


@pytest.mark.parametrize("more", [{}, {"row_id": "id"}])
def test_a_task_counts_the_same_at_every_attempt_and_in_every_order(more: dict[str, str]) -> None:
    frame = pl.DataFrame(random_rows())
    with dpsql.polars.context({"rows": frame}) as context:
        task, columns = task_of(
            context, frame, "dp_naive_bayes", target="label", max_features_per_row=MOST, **WIDE, **more
        )
        found = state_on(context, frame, task, columns)
        assert found.equals(state_on(context, frame.reverse(), task, columns))
        assert found.equals(state_of(task, columns, frame.to_arrow()))
    assert found.column(0)[0].as_py() == expected(frame.to_arrow())
