"""dp_two_stage on an engine: whole blocks vote in workers, with the votes that they have on DuckDB."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from dpsql.contract.fold import Batch
from dpsql.contract.plan import Pass
from dpsql.functions import two_stage
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.one_shot import OneShotSelection
from dpsql.statistics.votes import BlockVotes, VoteRule
from support.broken.planting import planted
from support.twins import context, release, spent

WIDTH, ROWS = 6, 600
NAMES = [f"x{number}" for number in range(WIDTH)]
CALL = {"target": "y", "features": NAMES, "k": 2, "epsilon": 10}


def frame() -> pl.DataFrame:
    generator = np.random.default_rng(7)
    x = generator.normal(size=(ROWS, WIDTH))
    x[::50, 1] = np.nan
    y = x[:, 0] + 0.8 * np.nan_to_num(x[:, 1]) + 0.5 * x[:, 2] + generator.normal(size=ROWS)
    units = generator.integers(0, 150, ROWS)
    return pl.DataFrame({"id": np.arange(ROWS), "u": units, "y": y, **dict(zip(NAMES, x.T, strict=True))})


@pytest.mark.parametrize(
    "asked",
    [
        {"blocks": 20, "row_id": "id"},
        {"blocks": 20, "row_id": "id", "condition": "x0 > -1"},
        {"blocks": 20, "privacy_unit": "u", "max_rows_per_unit": 3, "standardize": False},
        {"rows_per_block": 30, "row_id": "id"},
        {"rows_per_block": 30, "privacy_unit": "u", "max_rows_per_unit": 2, "row_id": "id"},
    ],
)
def test_votes_are_those_of_duckdb(asked: dict[str, Any]) -> None:
    votes: list[list[int]] = []

    def noted(part: OneShotSelection, counted: Any, *, utility_range: int) -> list[int]:
        votes.append(counted.tolist())
        return [0, 1]

    def exact(part: LaplaceNoise, counts: Any, **_: Any) -> Any:
        return counts

    with planted((OneShotSelection, "draw", noted), (LaplaceNoise, "draw", exact)):
        for engine in (False, True):
            release(frame(), "dp_two_stage", engine=engine, **{**CALL, **asked})
    assert votes[0] == votes[1]
    assert sum(votes[0]) > 10


def test_release_and_rows_without_an_id() -> None:
    with context(frame(), engine=True) as made:
        found = made.dp_two_stage("t", **{**CALL, "epsilon": 100}, rows_per_block=30)
        assert spent(made) == 100.0
    assert sorted(found.features) == ["x0", "x1"]


def test_a_pipeline_selects_by_votes() -> None:
    given = {"target": "y", "features": NAMES, "k": 2, "selector": "two_stage", "selection_blocks": 20}
    bounds = {"lower": -4, "upper": 4, "target_lower": -6, "target_upper": 6, "method": "ada_ssp"}
    with context(frame(), engine=True) as made:
        found = made.dp_pipeline("t", **given, **bounds, epsilon=100, delta=1e-6)
    assert {row["term"] for row in found.to_arrow().to_pylist()} == {"intercept", "x0", "x1"}


def votes_of(order: np.ndarray[Any, Any], cuts: int, secret: bytes = b"key") -> BlockVotes:
    """Return the votes of five blocks with two equal columns, whose rows come in some order and as some folds."""
    generator = np.random.default_rng(2)
    x = generator.normal(size=(3, 100))
    x[1] = x[0]
    blocks = np.arange(100, dtype=np.uint64) % np.uint64(5)
    whole = BlockVotes(3, 5, VoteRule(1, 0.1, True, True))
    for some in np.array_split(np.arange(5), cuts):
        fold = whole.zero()
        here = order[np.isin(blocks[order], some)]
        fold.add(x[0, here], x[:, here], Batch(blocks[here], np.full(len(here), 20), secret))
        whole.absorb(fold.state())
    return whole


def test_ties_follow_from_the_key_and_the_block() -> None:
    """Neither the order of rows, nor which worker has a block, nor the draw of an attempt decides a tie."""
    first = votes_of(np.arange(100), 1)
    shuffled = np.random.default_rng(3).permutation(100)
    assert first.votes.sum() == 5
    assert first.votes[2] == 0
    for cuts in (1, 2, 5):
        assert votes_of(shuffled, cuts).state() == first.state()
    seen = {tuple(votes_of(shuffled, 2, b"key %d" % number).votes.tolist()) for number in range(30)}
    assert len(seen) > 2


def test_workers_that_round_differently_do_not_vote_together() -> None:
    votes = votes_of(np.arange(100), 1)
    state = votes.state()
    other = pa.array([[state.column("arithmetic")[0].as_py()[0] + 1]])
    with pytest.raises(ValueError, match="processors"):
        votes.absorb(state.set_column(1, "arithmetic", other))
    votes.absorb(votes.zero().state())  # a worker without rows has computed nothing


def test_a_divided_block_is_refused() -> None:
    votes = BlockVotes(1, 2, VoteRule(1, 0.1, True, True))
    batch = Batch(np.zeros(3, dtype=np.uint64), np.full(3, 4), b"key")
    with pytest.raises(ValueError, match="not complete"):
        votes.add(np.zeros(3), np.zeros((1, 3)), batch)


def test_on_duckdb_the_number_of_blocks_costs_no_pass() -> None:
    plan = two_stage.TwoStagePlan.from_arguments("t", {**CALL, "rows_per_block": 10})
    assert plan.passes == (Pass(),)
