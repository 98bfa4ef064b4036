"""Groups with private keys on an engine: the sums of every key, its label and its place are those of DuckDB."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import dpsql
from dpsql.statistics.aggregates import NamedSums, Words
from support.cases import cases
from support.exact_sums import exact_sums
from support.twins import context, release, spent

PRIVATE = {"keys": "private", "delta": 1e-6, "epsilon": 1}
VALUES = {"aggregates": ["count", "sum", "variance"], "target": ["x", "y"], "lower": -5, "upper": 5}
ROWS = 3000


def frame() -> pl.DataFrame:
    generator = np.random.default_rng(3)
    names = np.array(["", "a", "A", "ä", " a", "10", "9", None], dtype=object)
    number = generator.integers(-3, 12, ROWS)
    floats = np.array([0.0, -0.0, np.nan, np.inf, 2.5, 10.0])
    return pl.DataFrame(
        {
            "u": generator.integers(0, 200, ROWS),
            "a": names[generator.integers(0, len(names), ROWS)].tolist(),
            "n": pl.Series(number, dtype=pl.Int16).scatter(range(0, ROWS, 17), None),
            "f": floats[generator.integers(0, len(floats), ROWS)],
            "d": pl.Series(generator.integers(-400, 400, ROWS) // 100).cast(pl.Int32).cast(pl.Date),
            "x": generator.normal(0, 4, ROWS),
            "y": generator.integers(-9, 9, ROWS),
        }
    )


@cases(
    "asked",
    [
        {"by": ["a", "n"], **VALUES},
        {"by": ["f", "d"], **VALUES},
        {"by": "n"},
        {"by": "a", "target": "y", "aggregates": ["count"]},
        {"by": "a", "privacy_unit": "u", "max_groups_per_unit": 2, "max_rows_per_unit_group": 2, **VALUES},
        {"by": ["d", "a"], "privacy_unit": "u", "max_rows_per_unit": 5, **VALUES},
        {"by": "n", "privacy_unit": "u", "max_groups_per_unit": 3, **VALUES, "unit_value": "sum"},
        {"by": "n", "condition": "y > 3", **VALUES},
        {"by": "n", "condition": "y > 100", **VALUES},
        {"by": "a", **VALUES, "lower": None, "upper": None, "epsilon": 1000},
    ],
)
def test_sums_and_labels_are_those_of_duckdb(asked: dict[str, Any]) -> None:
    if asked.get("lower", 0) is None:  # private bounds: drawn alike, because epsilon hides nothing
        asked = {name: value for name, value in asked.items() if value is not None}
    found = []
    for engine in (False, True):
        with exact_sums() as seen:
            released = release(frame(), "dp_aggregate", engine=engine, **{"aggregates": ["count"], **PRIVATE, **asked})
        found.append((seen[-1].groups, released.to_arrow().to_pylist()))
    assert repr(found[0]) == repr(found[1])
    assert found[0][1] or asked["by"] == "n"


def test_release(tmp_path: Any) -> None:
    with context(frame(), engine=True) as made:
        given = {"by": ["a", "d"], **PRIVATE, "privacy_unit": "u", "max_rows_per_unit": 3, "epsilon": 20}
        first = made.dp_count("t", **given, release="r")
        again = made.dp_count("t", **given, release="r")
        assert spent(made) == 20.0
    assert first.to_arrow().num_rows > 10
    assert first.to_arrow() == again.to_arrow()
    assert first.to_arrow().schema.field("d").type == pa.date32()


def test_keys_of_one_unit_stay_private() -> None:
    """Noise decides on an engine, too: a table whose keys have one row each shows none of them."""
    with context(frame().head(200).with_columns(k=pl.int_range(200)), engine=True) as made:
        assert made.dp_count("t", by="k", **PRIVATE).to_arrow().num_rows == 0


def test_failing_labels_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("a secret of the rows")

    monkeypatch.setattr(dpsql.statistics.aggregates.Labels, "add_labels", fail)
    with context(frame(), engine=True) as made:
        with pytest.raises(dpsql.InternalError, match="I001") as failure:
            made.dp_count("t", by="a", **{**PRIVATE, "epsilon": 20})
        assert spent(made) == 20.0
    assert "secret" not in str(failure.value)


def groups(generator: np.random.Generator) -> pa.StructArray:
    """Return sums of some keys, as a worker's statement hands them over."""
    size = int(generator.integers(0, 40))
    fields = {
        "k0_number": pa.array(generator.integers(0, 4, size), mask=generator.random(size) < 0.2),
        "k0_data": pa.array([""] * size, type=pa.string()),
        "k1_number": pa.array(np.zeros(size, dtype=np.int64)),
        "k1_data": pa.array([[None, "a", "b"][place] for place in generator.integers(0, 3, size)], type=pa.string()),
        "n": pa.array(generator.integers(1, 9, size)),
        "units": pa.array(generator.integers(1, 9, size)),
        "n0": pa.array(generator.integers(0, 9, size)),
        "s0": pa.array(generator.integers(-(2**40), 2**40, size)),
        "high0": pa.array(generator.integers(0, 2**20, size)),
        "low0": pa.array(generator.integers(0, 2**32, size)),
    }
    return pa.StructArray.from_arrays(list(fields.values()), names=list(fields))


def test_merging_in_any_tree_gives_the_same_state() -> None:
    generator = np.random.default_rng(5)
    parts = [groups(generator) for _ in range(12)]
    whole = NamedSums(1, 2)
    for part in parts:
        whole.add_groups(part)
    for _ in range(5):
        folds = []
        for part in generator.permutation(np.array([*range(len(parts)), -1])).tolist():
            folds.append(NamedSums(1, 2))
            if part >= 0:
                folds[-1].add_groups(parts[part])
        while len(folds) > 1:
            one, other = folds.pop(int(generator.integers(len(folds)))), folds.pop(0)
            other.merge(one)
            folds.append(other)
        assert folds[0].state() == whole.state()
        assert [list(one.n) for one in folds[0].sums()] == [list(one.n) for one in whole.sums()]
    squares = whole.sums()[2].s2
    assert isinstance(squares, Words)
    exact = sum((row["high0"] << 32) + row["low0"] for part in parts for row in part.to_pylist())  # what Python adds up
    assert sum(squares.integers()) == exact


def test_no_keys_at_all() -> None:
    nothing = NamedSums(2, 1)
    nothing.merge(NamedSums(2, 1))
    assert [len(one.n) for one in nothing.sums()] == [0, 0, 0, 0]
