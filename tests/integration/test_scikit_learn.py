"""Released models are fitted estimators to scikit-learn: its own checks, and its tools that take a fitted model."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.inspection import permutation_importance
from sklearn.metrics import RocCurveDisplay, accuracy_score, r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted

import dpsql
from dpsql.errors import SourceError
from dpsql.released.model import LinearClassifier, LinearModel

FEATURES = ["a", "b"]
_FITTED = "it was fitted when it was released: fit reads nothing, so it cannot refuse"
# Why a released model does not pass a check, and should not.
ARGUED = {
    "check_do_not_raise_errors_in_init_or_set_params": "it has no parameters, and says so",
    "check_parameters_default_constructible": "it is made by a release, not by its class",
    "check_n_features_in": "it has features before it is fitted again",
    "check_n_features_in_after_fitting": "its features are those of the release, not of the data that fit is given",
    "check_regressors_train": _FITTED,
    "check_classifiers_train": _FITTED,
    "check_fit1d": _FITTED,
    "check_supervised_y_2d": _FITTED,
    "check_supervised_y_no_nan": _FITTED,
    "check_estimators_empty_data_messages": _FITTED,
    "check_classifiers_regression_target": _FITTED,
    "check_classifier_not_supporting_multiclass": _FITTED,
    "check_estimator_sparse_tag": _FITTED,
    "check_classifiers_classes": "its classes are those of the release",
    "check_complex_data": _FITTED,
    "check_dtype_object": _FITTED,
    "check_fit2d_predict1d": "it refuses, with a SourceError that names the shape; the check asks for a ValueError",
    "check_estimator_sparse_array": "it refuses, with a SourceError; the check asks for a ValueError",
    "check_estimator_sparse_matrix": "it refuses, with a SourceError; the check asks for a ValueError",
    "check_regressor_data_not_an_array": "the frame of the check has other columns: features are found by name",
    "check_classifier_data_not_an_array": "the frame of the check has other columns: features are found by name",
    "check_estimators_pickle": "where a feature is NaN the class is None, which the check subtracts",
}


def made(kind: str, count: int) -> LinearModel:
    """Return a model of so many features, as a release would hold it."""
    given: dict[str, Any] = {
        "name": None,
        "ledger_id": 1,
        "dataset": "t",
        "target": "y",
        "method": "made",
        "guarantee": "",
        "feature_names_in_": np.array([f"x{place}" for place in range(count)], dtype=object),
        "coef_": np.linspace(-1, 1, count) + 0.5,
        "intercept_": 0.1,
        "feature_bounds_": ((-3.0, 3.0),) * count,
        "prediction_bounds_": None,
        "vector": None,
        "elements": None,
        "long": None,
    }
    if kind == "linear_regression":
        return LinearModel(kind=kind, **given)
    return LinearClassifier(kind=kind, **given, classes_=np.array([0, 1]), binary=False)


def failing(kind: str) -> set[str]:
    """Return the checks that a model fails at every width: of the data that a check makes, one of these is the width."""
    failed: list[set[str]] = []
    for count in (2, 3, 1, 4, 5, 10, 20):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = check_estimator(made(kind, count), on_fail=None, on_skip=None)
        assert len(found) > 40
        failed.append({one["check_name"] for one in found if one["status"] == "failed"})
    return set.intersection(*failed)


@pytest.mark.long
def test_checks_of_estimators() -> None:
    """Each check passes for a model as wide as the data that it makes, or is argued above."""
    assert failing("linear_regression") | failing("logistic_regression") == set(ARGUED)


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    place = np.arange(2000)
    a, b = place % 11 / 10, place % 7 / 6
    return pl.DataFrame({"a": a, "b": b, "y": a - b / 2, "z": a > b})


@pytest.fixture(scope="module")
def models(rows: pl.DataFrame) -> Iterator[tuple[LinearModel, LinearClassifier]]:
    with dpsql.Context() as ctx:
        limits: dict[str, Any] = {"features": FEATURES, "epsilon": 1000, "lower": 0, "upper": 1, "dataset": "d"}
        line = ctx.dp_linear_regression(rows, target="y", delta=1e-6, target_lower=-1, target_upper=1, **limits)
        curve = ctx.dp_logistic_regression(rows, target="z", **limits)
        fitted = ctx.model(curve)
        assert isinstance(fitted, LinearClassifier)
        yield ctx.model(line), fitted


def test_a_model_is_a_fitted_estimator(models: tuple[LinearModel, LinearClassifier], rows: pl.DataFrame) -> None:
    line, curve = models
    assert is_regressor(line)
    assert is_classifier(curve)
    for model in models:
        check_is_fitted(model)
        assert clone(model) is model
        assert model.fit(rows, rows["y"]) is model
        assert (model.n_features_in_, model.feature_names_in_.tolist()) == (2, FEATURES)
        assert (model.get_params(), model.set_params()) == ({}, model)
        with pytest.raises(ValueError, match="alpha"):
            model.set_params(alpha=1)
        again = pickle.loads(pickle.dumps(model))
        assert again.predict(rows).tolist() == model.predict(rows).tolist()
    weights = 1 + np.arange(rows.height) % 3
    y, z = rows["y"].to_numpy(), rows["z"].to_numpy()
    assert line.score(rows, y) > 0.99
    assert line.score(rows, y, weights) == pytest.approx(r2_score(y, line.predict(rows), sample_weight=weights))
    assert curve.score(rows, z) > 0.9
    assert curve.score(rows, z, weights) == accuracy_score(z, curve.predict(rows), sample_weight=weights)
    assert (line.score(rows, np.ones(rows.height)), curve.score(rows, ~z)) == (0.0, 1 - curve.score(rows, z))


def test_tools_that_take_a_fitted_model(models: tuple[LinearModel, LinearClassifier], rows: pl.DataFrame) -> None:
    line, curve = models
    x, y, z = rows.select(FEATURES).to_pandas(), rows["y"].to_numpy(), rows["z"].to_numpy()
    shown = RocCurveDisplay.from_estimator(curve, x, z, ax=Figure().add_subplot())
    assert shown.roc_auc > 0.95
    both = permutation_importance(line, x, y, n_repeats=2, random_state=0).importances_mean
    assert both[0] > both[1] > 0
    assert make_pipeline(FunctionTransformer(), curve).fit(x, z).score(x, z) == curve.score(x, z)


def test_a_lazy_frame_is_collected_in_the_columns_that_count(
    models: tuple[LinearModel, LinearClassifier], rows: pl.DataFrame
) -> None:
    def fail(_: pl.Series) -> pl.Series:
        raise AssertionError("a column was read that is no feature")

    line, curve = models
    lazy = rows.lazy().with_columns(pl.col("z").map_batches(fail, return_dtype=pl.Boolean)).rename({"a": "A"})
    assert line.predict(lazy).tolist() == line.predict(rows).tolist()
    assert curve.predict_proba(lazy).tolist() == curve.predict_proba(rows).tolist()
    with pytest.raises(SourceError, match="S002"):
        line.predict(lazy.drop("b"))


def test_arrays_that_do_not_fit_are_refused(models: tuple[LinearModel, LinearClassifier]) -> None:
    line, _ = models
    assert line.predict([[0.5, 0.5]]).shape == (1,)
    for wrong in (np.ones(2), np.ones((2, 3)), [["x", "y"]], [[1.0], [1.0, 2.0]]):
        with pytest.raises(SourceError, match="S010"):
            line.predict(wrong)
