"""Rows with more features than count: on an engine a hash chooses, which every attempt repeats, and favours none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest

import dpsql
import dpsql.polars
from support.tasks import state_of, state_on, task_of

ROWS, WIDTH, MOST = 4000, 5, 2
NAMES = [f"x{number}" for number in range(WIDTH)]


@pytest.mark.parametrize("told_apart_by", ["contents", "row_id"])
def test_every_feature_of_a_crowded_row_is_as_likely_to_count(told_apart_by: str) -> None:
    values = np.random.default_rng(3).random((WIDTH, ROWS)) + 1
    by_id: dict[str, Any] = {"row_id": "id"} if told_apart_by == "row_id" else {}
    frame = pl.DataFrame(
        {
            "id": np.arange(ROWS),
            "label": np.arange(ROWS) % 2 == 0,
            **{name: np.ones(ROWS) if by_id else values[number] for number, name in enumerate(NAMES)},
        }
    )
    with dpsql.polars.context({"rows": frame}) as context:
        task, columns = task_of(
            context,
            frame,
            "dp_naive_bayes",
            target="label",
            features=NAMES,
            present_above=0,
            max_features_per_row=MOST,
            **by_id,
        )
        found = state_on(context, frame, task, columns)
        again = state_on(context, frame.reverse(), task, columns)
        assert found.equals(again)
        assert found.equals(state_of(task, columns, frame.to_arrow()))
    counts = np.array(found.column(0)[0].as_py())
    assert counts[-2:].tolist() == [ROWS // 2, ROWS // 2]
    assert counts[:WIDTH].sum() == counts[WIDTH:-2].sum() == ROWS // 2 * MOST
    # A count is binomial with ROWS / 2 trials of 2/5, but for an event of one in a million.
    reach = 5.5 * math.sqrt(ROWS / 2 * 0.4 * 0.6)
    assert np.abs(counts[:-2] - ROWS / 2 * MOST / WIDTH).max() < reach
