"""Private feature names on an engine: parts of the rows learn theirs, and count what DuckDB counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import dpsql
from dpsql.contract.fold import Batch
from dpsql.mechanisms.partition_selection import PrivateNames
from dpsql.statistics import presence
from dpsql.statistics.presence import FeatureCounts, NameCounts
from support.broken.planting import planted
from support.twins import context, release, spent

LONG = {"target": "y", "features": "word", "row_id": "id", "vocabulary": "private", "delta": 1e-5}
CALL = {**LONG, "epsilon": 5, "score": "total_count", "k": 4, "max_features_per_row": 3}


def frame() -> pl.DataFrame:
    """Return 400 documents of up to twelve words, some of which are rare."""
    generator = np.random.default_rng(9)
    words = np.array(["a", "A", "ä", "", "b", " b", "c", "d", "e", *(f"rare {number}" for number in range(90))])
    document = np.repeat(np.arange(400), generator.integers(1, 13, 400))
    word = words[(len(words) * generator.random(len(document)) ** 5).astype(int)]
    return pl.DataFrame({"id": document, "u": document // 3, "word": word, "y": document % 3 == 0}).with_columns(
        word=pl.when(pl.int_range(pl.len()) % 31 == 0).then(None).otherwise(pl.col("word")),
        n=pl.int_range(pl.len()) % 4,
    )


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"score": "difference_count", "privacy_unit": "u", "max_rows_per_unit": 2},
        {"value": "n"},
        {"condition": "n > 0", "method": "gaussian"},
        {"max_features_per_row": 12},
    ],
)
def test_names_and_counts_are_those_of_duckdb(asked: dict[str, Any]) -> None:
    names: list[dict[str, int]] = []
    counts: list[list[int]] = []

    def frequent(part: PrivateNames, listed: Any, counted: Any) -> list[str]:
        names.append(dict(zip(listed, counted.tolist(), strict=True)))
        return sorted(name for name, rows in names[-1].items() if rows >= 25)

    def noted(call: Any, statistic: FeatureCounts) -> Any:
        counts.append(statistic.counts.tolist())
        return counted(call, statistic)

    owner = dpsql.functions.feature_counts.FeatureCountsCall
    counted = owner.counts
    with planted((PrivateNames, "draw", frequent), (owner, "counts", noted)):
        for engine in (False, True):
            release(frame(), "dp_score_filter", engine=engine, **{**CALL, **asked})
    assert names[0] == names[1]
    assert counts[0] == counts[1]
    assert len(names[0]) > 20
    assert len(counts[0]) > 6


def test_release() -> None:
    with context(frame(), engine=True) as made:
        found = made.dp_score_filter("t", **{**CALL, "epsilon": 50})
        assert spent(made) == 50.0
    assert set(found.features) <= {"a", "A", "ä", "", "b", " b", "c", "d", "e"}
    assert len(found.features) == 4


def test_rows_without_names() -> None:
    with context(frame().with_columns(word=pl.lit(None, dtype=pl.String)), engine=True) as made:
        assert made.dp_score_filter("t", **CALL).features == []


def counts_of(names: list[bytes], numbers: list[int]) -> NameCounts:
    """Return the counts of a worker that has numbered its names in its own way; each row has one."""
    counts = NameCounts(3)
    counts.learn(names, b"key")
    lengths = np.ones(len(numbers), dtype=np.int64)
    counts.add_sparse(np.zeros(len(numbers)), lengths, np.array(numbers), Batch(secret=b"key"))
    return counts


def test_parts_that_number_names_in_their_own_way() -> None:
    parts = [counts_of([b"x", b"y"], [0, 0, 1]), counts_of([b"z", b"x"], [0, 1]), counts_of([b"y"], [0])]
    first, second = NameCounts(3), NameCounts(3)
    for part in parts:
        first.absorb(part.state())
    for part in reversed(parts):
        second.absorb(part.state())
    assert first.state() == second.state()
    assert first.state().to_pylist() == [{"names": [b"x", b"y", b"z"], "rows": [3, 2, 1]}]


@pytest.mark.parametrize("limit", [{"MOST_NAMES": 10}, {"MOST_NAME_BYTES": 20}])
def test_too_many_names_are_charged(monkeypatch: pytest.MonkeyPatch, limit: dict[str, int]) -> None:
    for name, most in limit.items():
        monkeypatch.setattr(presence, name, most)
    with context(frame(), engine=True) as made:
        with pytest.raises(dpsql.InternalError, match="I001"):
            made.dp_score_filter("t", **CALL)
        assert spent(made) == 5.0
