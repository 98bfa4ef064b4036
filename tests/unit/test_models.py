"""A released model by itself: prediction, JSON, and what it refuses."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.errors import ParameterError, SourceError
from dpsql.ledger.rows import StoredRelease
from dpsql.released.model import LinearModel
from support.cases import cases

RESULT: dict[str, Any] = {
    "kind": "linear_regression",
    "method": "ada_ssp",
    "terms": ["intercept", "a", "b"],
    "elements": None,
    "coefficients": [1.0, 2.0, -3.0],
    "std_errors": [0.1, 0.1, 0.1],
    "bounds": [[-1.0, 1.0], [0.0, 10.0]],
}


def stored(**more: Any) -> StoredRelease:
    layout = {"kind": "wide", "target": "y", "features": ["a", "b"], **more.pop("layout", {})}
    return StoredRelease(
        sequence=7,
        dataset="t",
        name="m",
        function="dp_linear_regression",
        arguments={"layout": layout},
        result={**RESULT, **more},
        guarantee="(1, 1e-06)-DP, add_remove of one row",
        recorded_at="2025-01-01T00:00:00Z",
    )


def model(**more: Any) -> LinearModel:
    return LinearModel.read(stored(**more))


def test_read() -> None:
    read = model()
    assert (read.name, read.ledger_id, read.dataset, read.target, read.method) == ("m", 7, "t", "y", "ada_ssp")
    assert read.feature_names_in_.tolist() == ["a", "b"]
    assert read.coef_.tolist() == [2, -3]
    assert read.intercept_ == 1
    assert read.feature_bounds_ == ((-1, 1), (0, 10))
    assert read.vector is None
    assert read.elements is None


def test_nothing_released_is_no_model() -> None:
    with pytest.raises(ParameterError, match=r"P053.*'m' holds no model"):
        model(coefficients=None, reason="too few rows")


def test_features_outside_of_the_bounds_count_as_the_bound() -> None:
    rows = np.array([[0.5, 5.0], [9.0, -4.0], [-9.0, 99.0], [math.inf, -math.inf]])
    assert model().predict(rows).tolist() == [-13, 3, -31, 3]
    assert model(bounds=None).predict(rows[:3]).tolist() == [-13, 31, -314]


def test_predictions_outside_of_their_bounds_are_the_bound() -> None:
    rows = np.array([[0.5, 5], [5, -1], [-5, 50], [np.nan, 1]])
    clipped = model(prediction_bounds=[-20.0, 2.5])
    assert clipped.predict(rows[:3]).tolist() == [-13, 2.5, -20]
    assert np.isnan(clipped.predict(rows)[3])
    again = LinearModel.from_json(clipped.to_json())
    assert again.prediction_bounds_ == (-20, 2.5)
    assert again.predict(rows[:3]).tolist() == [-13, 2.5, -20]


def test_models_of_a_version_without_bounds_of_predictions_have_none() -> None:
    assert model().prediction_bounds_ is None
    assert model(prediction_bounds=None).prediction_bounds_ is None
    record = json.loads(model().to_json())
    del record["prediction_bounds_"]
    assert LinearModel.from_json(json.dumps(record)).prediction_bounds_ is None


def test_missing_features_give_nan() -> None:
    rows = np.array([[math.nan, 5.0], [0.5, math.nan], [0.5, 5.0]])
    assert np.isnan(model().predict(rows)).tolist() == [True, True, False]
    frame = pl.DataFrame({"a": [None, 0.5, 0.5], "b": [5.0, None, 5.0]})
    assert np.isnan(model().predict(frame)).tolist() == [True, True, False]


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"a": [0.5, 0.25], "b": [5, 6]}),
        pl.DataFrame({"B": [5, 6], "other": ["x", "y"], "A": [0.5, 0.25]}),
        pa.table({"b": pa.array([5, 6], pa.int8()), "a": pa.array([0.5, 0.25], pa.float32())}),
        pa.table({"b": pa.chunked_array([[5], [6]]), "a": pa.chunked_array([[0.5, 0.25]])}),
    ],
    ids=["in order", "any order and case", "narrow types", "chunks"],
)
def test_frames_by_name(frame: Any) -> None:
    assert model().predict(frame).tolist() == [-13, -16.5]


def test_no_rows() -> None:
    assert model().predict(np.empty((0, 2))).tolist() == []
    assert model().predict(pl.DataFrame({"a": [], "b": []}, schema={"a": pl.Float64, "b": pl.Float64})).tolist() == []


def test_pandas_frames() -> None:
    pandas = pytest.importorskip("pandas")
    assert model().predict(pandas.DataFrame({"b": [5], "a": [0.5]})).tolist() == [-13]


@cases(
    ("rows", "code"),
    [
        (np.zeros(2), "S010"),
        (np.zeros((4, 3)), "S010"),
        ([["1", "b"]], "S010"),
        ("a", "S010"),
        (None, "S010"),
        (pl.DataFrame({"a": [1.0]}), "S002"),
        (pl.DataFrame({"a": [1.0], "b": ["x"]}), "S003"),
        (pl.DataFrame({"a": [1.0], "b": [[1.0]]}), "S003"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_rows_that_do_not_fit_are_refused(rows: Any, code: str) -> None:
    with pytest.raises(SourceError, match=code):
        model().predict(rows)


def test_vectors_by_place() -> None:
    """Of a model of some elements of a vector the others do not matter, whatever they hold."""
    fitted = model(layout={"kind": "array", "features": "x"}, elements=[3, 1], bounds=None)
    assert fitted.vector == "x"
    for kind in (pa.list_(pa.float64()), pa.list_(pa.float64(), 4), pa.large_list(pa.float32())):
        rows = pa.array([[None, 5.0, 7.0, 0.5], [9.0, 6.0, None, 0.25], [1.0, None, 1.0, 1.0]], kind)
        found = fitted.predict_rows(rows)
        assert found[:2].tolist() == [-13, -16.5]
        assert np.isnan(found[2])
        assert fitted.predict(pa.table({"x": rows}))[:2].tolist() == [-13, -16.5]
    assert fitted.predict(pl.DataFrame({"a": [0.5], "b": [5.0]})).tolist() == [-13], "by name, too"
    assert np.isnan(fitted.predict_rows(pa.array([[1.0, 2.0], None], pa.list_(pa.float64())))).all()


finite = st.floats(allow_nan=False, allow_infinity=False)
names = st.lists(st.text(min_size=1), unique=True, min_size=1, max_size=5)


@pytest.mark.long
@settings(max_examples=30)
@given(st.data(), names, st.sampled_from([None, "x"]))
def test_json_round_trip(data: Any, features: list[str], vector: str | None) -> None:
    d = len(features)
    coefficients = data.draw(st.lists(finite, min_size=d + 1, max_size=d + 1))
    bounds = data.draw(st.none() | st.lists(st.lists(finite, min_size=2, max_size=2), min_size=d, max_size=d))
    made = model(
        terms=["intercept", *features],
        coefficients=coefficients,
        std_errors=None,
        bounds=bounds,
        elements=None if vector is None else list(range(d)),
        layout={"kind": "wide" if vector is None else "array", "features": vector or features},
    )
    again = LinearModel.from_json(made.to_json())
    assert again.to_json() == made.to_json()
    assert [again.intercept_, *again.coef_.tolist()] == coefficients
    assert again.feature_names_in_.tolist() == features
    assert again.feature_bounds_ == made.feature_bounds_
    assert (again.vector, again.elements) == (made.vector, made.elements)


def test_json_has_the_names_of_scikit_learn() -> None:
    record = json.loads(model().to_json())
    assert record["coef_"] == [2, -3]
    assert record["intercept_"] == 1
    assert record["n_features_in_"] == 2
    assert record["feature_names_in_"] == ["a", "b"]
    assert record["guarantee"] == "(1, 1e-06)-DP, add_remove of one row"


def test_json_carries_the_verdicts_and_does_without() -> None:
    fitted = model(coefficients=[1.0, 2.0, -3.0], std_errors=[0.1, None, 5.0], undetermined=["b"])
    assert fitted.verdicts == ("clear", "not measured", "undetermined")
    assert LinearModel.from_json(fitted.to_json()).verdicts == fitted.verdicts
    before = {name: value for name, value in json.loads(fitted.to_json()).items() if name != "verdicts"}
    assert LinearModel.from_json(json.dumps(before)).verdicts is None


@cases(
    "text",
    ["", "not JSON", "3", "null", "[]", "{}", '{"model": "tree"}', '{"model": "linear_regression", "coef_": [1]}'],
)
def test_other_text_is_no_model(text: str) -> None:
    with pytest.raises(ParameterError, match="P054"):
        LinearModel.from_json(text)


@cases(
    ("name", "value"),
    [
        ("coef_", None),
        ("coef_", ["x", "y"]),
        ("coef_", [1.0]),
        ("n_features_in_", 3),
        ("feature_bounds_", [1, 2]),
        ("surplus", 1),
    ],
)
def test_a_changed_model_is_refused(name: str, value: Any) -> None:
    record = {**json.loads(model().to_json()), name: value}
    with pytest.raises(ParameterError, match="P054"):
        LinearModel.from_json(json.dumps(record))
