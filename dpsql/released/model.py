"""A released model with scikit-learn's names, read from the ledger. Prediction costs nothing.

The module also reads the shape of each feature in an additive model. A prediction is the intercept plus, for each
feature, coefficient times value plus the step of the value. A shape is this sum as a function of the feature, over the
interval in which values count: a value outside counts as the nearest end. All of this is post-processing of released
numbers, and free.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Floats, struct_rows
from dpsql.contract.boundary import public_methods
from dpsql.contract.json import Json
from dpsql.contract.parameters import fold, show
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError, SourceError
from dpsql.kernels.columns import is_boolean, is_numeric, is_vector, single_chunk, to_doubles
from dpsql.kernels.xty import vectors_to_matrix
from dpsql.released.metrics import Estimator
from dpsql.released.results import FeatureSteps, Fitted, Level
from dpsql.released.shapes import COEFFICIENTS, VERDICT
from dpsql.statistics.feature_counts import present_in

if TYPE_CHECKING:
    from dpsql.ledger.rows import StoredRelease

SHAPES_SCHEMA = pa.schema(
    [
        ("feature", pa.string()),
        *((name, pa.float64()) for name in ("lower", "upper", "at_lower", "at_upper", "std_error")),
    ]
)


class ShapePiece(TypedDict):
    """A piece of a shape: a line over an interval of the feature, and the noise of its step."""

    feature: str
    lower: float
    upper: float
    at_lower: float
    at_upper: float
    std_error: float


def steps_at(steps: FeatureSteps, values: Doubles) -> Doubles:
    """Return the step of each value; any step for NaN, because the linear part is NaN there."""
    heights: Doubles = np.array(steps["values"])[np.searchsorted(steps["edges"], values, side="right")]
    return heights


def pieces(result: Fitted) -> Iterator[ShapePiece]:
    """Yield the shapes of an additive model piece by piece, feature by feature, except features that were left out.

    `std_error` is the error of the step alone: the coefficient's error is in the release's rows.
    """
    features, slopes = result["terms"][1:], (result["coefficients"] or [])[1:]
    for name, slope, bounds, steps in zip(
        features, slopes, result["bounds"] or (), result.get("steps") or (None,) * len(features), strict=True
    ):
        if bounds is None:
            continue
        lower, upper = bounds
        inside = [edge for edge in (steps or _NO_STEPS)["edges"] if lower < edge < upper]
        ends = [lower, *inside, upper]
        middles = (np.array(ends[1:]) + np.array(ends[:-1])) / 2
        values, errors = np.zeros(len(middles)), np.zeros(len(middles))
        if steps is not None:
            values = steps_at(steps, middles)
            errors = steps_at({**steps, "values": steps["std_errors"]}, middles)
        for first, last, value, error in zip(ends[:-1], ends[1:], values.tolist(), errors.tolist(), strict=True):
            yield {
                "feature": name,
                "lower": first,
                "upper": last,
                "at_lower": slope * first + value,
                "at_upper": slope * last + value,
                "std_error": error,
            }


_NO_STEPS: FeatureSteps = {"edges": [], "values": [0.0], "std_errors": [0.0]}


def shapes_table(result: Fitted) -> pa.Table:
    """Return the pieces as a table."""
    return pa.Table.from_pylist([dict(piece) for piece in pieces(result)], schema=SHAPES_SCHEMA)


def by_feature(result: Fitted) -> list[tuple[str, float, list[ShapePiece]]]:
    """Return each feature, its effect on a prediction over its interval, and its pieces; the largest effect first."""
    features: dict[str, list[ShapePiece]] = {}
    for piece in pieces(result):
        features.setdefault(piece["feature"], []).append(piece)
    rows = [(name, _reach(of), of) for name, of in features.items()]
    return sorted(rows, key=lambda row: -row[1])


def glass_box(result: Any) -> list[Json]:
    """Return each feature's effect on a prediction over its interval, the largest first, as in the receipt."""
    return [{"feature": name, "adds": adds} for name, adds, _ in by_feature(result)]


def _reach(of: Sequence[ShapePiece]) -> float:
    ends = [end for piece in of for end in (piece["at_lower"], piece["at_upper"])]
    return float(max(ends) - min(ends))


# SQL types of features, as DuckDB's typeof names them; the last is the type of an untyped NULL.
_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_NUMERIC = {*_INTEGERS, *(f"U{kind}" for kind in _INTEGERS), "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN", '"NULL"'}
_LONG = ("row_id", "features", "value")
# Rows that are processed at once, within the nearest cache.
_BLOCK = 4096


@public_methods()
@dataclass(eq=False)
class LinearModel(Estimator):
    """``prediction = intercept_ + coef_ . features``; a feature outside of the fit's bounds counts as the bound.

    An additive model adds the step of each feature. If predictions have bounds, a prediction outside of them is the
    bound. To scikit-learn the model is a fitted regressor.

    Attributes
    ----------
    kind : str
        Kind of model: 'linear_regression', 'naive_bayes' or 'logistic_regression'.
    name : str or None
        Name of the release.
    ledger_id : int
        Its entry in the ledger.
    dataset, target, method, guarantee : str
        The budget of its rows, the predicted column, the method, and the privacy guarantee with its privacy unit.
    feature_names_in_ : ndarray of object, shape (d,)
        Strings.
    coef_ : ndarray of float64, shape (d,)
        In units of the target per unit of the feature. Levels of a target are coded -1 and 1.
    intercept_ : float
    feature_bounds_ : tuple of pairs of float or None, or None
        Bounds of the features in the fit, public or private; None without bounds. A feature without a pair was left out
        of the fit, because the noise hid its bounds: its values are not read, and its coefficient is 0.
    prediction_bounds_ : tuple of float, or None
        Bounds that predictions are clipped to, public or private; None if there are none.
    vector : str or None
        Column of the vectors in the fit; None for a column per feature.
    elements : tuple of int or None
        Positions of the features in a vector, from 0; None if the vector holds only the features.
    long : tuple of str or None
        Columns of the long rows in the fit: row id, feature and, if there is one, value.
    verdicts : tuple of str or None
        The verdict of each term, the intercept first; None for models of JSON of versions without verdicts.
    steps_ : tuple of dict or None, or None
        The steps of each feature of an additive model, None for a feature without steps: ``edges``, ``values``, one
        more than edges, and their ``std_errors``. A value on an edge is on the step behind it.
    """

    _estimator_type: ClassVar[str] = "regressor"

    kind: str
    name: str | None
    ledger_id: int
    dataset: str
    target: str
    method: str
    guarantee: str
    feature_names_in_: NDArray[np.object_]
    coef_: NDArray[np.float64]
    intercept_: float
    feature_bounds_: tuple[tuple[float, float] | None, ...] | None
    prediction_bounds_: tuple[float, float] | None
    vector: str | None
    elements: tuple[int, ...] | None
    long: tuple[str, ...] | None
    _: KW_ONLY
    verdicts: tuple[str, ...] | None = None
    steps_: tuple[FeatureSteps | None, ...] | None = None

    @classmethod
    def read(cls, stored: StoredRelease) -> LinearModel:
        """Read a release of a function that fits a model; the result for a classifier is a `LinearClassifier`.

        Raises
        ------
        ParameterError
            P053: nothing was released, because the method's test failed.
        """
        result: Fitted = stored.result
        if result["coefficients"] is None:
            raise ParameterError(
                "P053",
                f"release {show(stored.name or stored.sequence)} holds no model: its test failed, or noise hid "
                "the target. Fit again under another name, with more rows, fewer features, bounds or another method.",
            )
        model = _linear(stored, result, result["coefficients"])
        if "levels" not in result:
            return model
        negative, positive = result["levels"]
        return LinearClassifier(
            **vars(model),
            classes_=np.array([negative, positive]),
            binary=result.get("binary", False),
            present_above=result.get("present_above"),
        )

    def to_json(self) -> str:
        """Return the model as JSON with the names of scikit-learn's attributes; `from_json` reads it back."""
        record = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "kind"}
        record |= {"n_features_in_": self.n_features_in_}
        record |= {name: value.tolist() for name, value in record.items() if isinstance(value, np.ndarray)}
        return json.dumps({"model": self.kind, **record}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> LinearModel:
        """Read the JSON that `to_json` wrote; the result for a classifier is a `LinearClassifier`.

        Raises
        ------
        ParameterError
            P054: the text is not a model.
        """
        try:
            record = json.loads(text)
            if record.pop("n_features_in_") != len(record["coef_"]) or record["model"] not in _KINDS:
                raise ValueError
            kind = _KINDS[record["model"]]
            record["kind"] = record.pop("model")
            record["coef_"] = np.array(record["coef_"], dtype=np.float64)
            record["feature_names_in_"] = np.array(record["feature_names_in_"], dtype=object)
            if "classes_" in record:
                record["classes_"] = np.array(record["classes_"])
            record["feature_bounds_"] = _pairs(record["feature_bounds_"])
            record["prediction_bounds_"] = _pair(record.get("prediction_bounds_"))
            for name in ("elements", "long", "verdicts", "steps_"):
                if record.get(name) is not None:
                    record[name] = tuple(record[name])
            return kind(**record)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ParameterError(
                "P054", "the text is not a dpsql model. Give the text that to_json returned."
            ) from None

    def predict(self, rows: object) -> NDArray[Any]:
        """Return one prediction per row.

        Parameters
        ----------
        rows : array of shape (n, d), or a frame (Polars, pandas, Arrow) with a column per feature or the vectors'
            A Polars LazyFrame collects only these columns. NaN and NULL give NaN.

        Returns
        -------
        predictions : ndarray of float64, shape (n,)

        Raises
        ------
        SourceError
            S002: a feature is missing. S010: the shape does not fit.
        """
        return self._clipped(self._scores(rows))

    def _scores(self, rows: object) -> NDArray[np.float64]:
        """Return the linear form of each row."""
        if isinstance(rows, list) or (hasattr(rows, "__array__") and not hasattr(rows, "columns")):
            return self._combined(self._values(rows).T)
        table = rows if isinstance(rows, pa.Table) else self._arrow(rows)
        if self.vector is not None and self.vector in table.column_names:
            return self._row_scores(single_chunk(table.column(self.vector)))
        return self._row_scores(struct_rows(table))

    def _values(self, rows: Any) -> NDArray[np.float64]:
        """Return an array of shape (n, d) as doubles."""
        try:
            values = np.asarray(rows, dtype=np.float64)
        except (ValueError, TypeError):
            raise SourceError("S010", "rows must be numbers. Cast them, or give a frame.") from None
        if values.ndim != 2 or values.shape[1] != self.n_features_in_:
            raise SourceError("S010", f"rows must have shape (n, {self.n_features_in_}); got {values.shape}.")
        return values

    def predict_rows(self, rows: pa.Array) -> NDArray[np.float64]:
        """Return one number per row of a struct column (by name), of vectors (by place) or of lists of names.

        The number is the prediction, or a classifier's probability of its second class; NaN stands for NULL.
        """
        return self._clipped(self._row_scores(rows))

    def _clipped(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return predictions within their bounds; NaN stays."""
        return scores if self.prediction_bounds_ is None else np.clip(scores, *self.prediction_bounds_)

    def takes(self, types: Sequence[str]) -> bool:
        """Return true if the features may have these SQL types, given in the model's order.

        Raises
        ------
        SourceError
            S003: a type is neither numeric nor BOOLEAN.
        """
        for name, kind in zip(self.feature_names_in_, types, strict=True):
            if kind.partition("(")[0] not in _NUMERIC:
                raise _not_numeric(name)
        return True

    def _row_scores(self, rows: pa.Array) -> NDArray[np.float64]:
        """Return the linear form of each row; NaN stands for NULL."""
        if pa.types.is_struct(rows.type):
            out = self._combined(self._matrix([rows.field(position) for position in self._positions(rows.type)]))
            if rows.null_count:
                out[rows.is_null().to_numpy(zero_copy_only=False)] = np.nan
            return out
        if _is_names(rows.type):
            return self._present(rows)
        if not is_vector(rows.type):
            raise SourceError("S010", "dp_predict takes a row, struct or vector. Write dp_predict(model, t) FROM t.")
        if self.long is not None and pa.types.is_list(rows.type) and pa.types.is_integer(rows.type.value_type):
            # Names or places?
            raise SourceError(
                "S010", "the model is of long rows: give names as texts, dp_predict(model, list(x::VARCHAR))."
            )
        matrix = vectors_to_matrix(rows, 1 + max(self._elements))
        # A longer vector of a fixed length is passed whole.
        is_exact = self.elements is None and matrix.shape[1] == len(self.coef_)
        return self._combined((matrix if is_exact else matrix[:, self._elements]).T)

    def _matrix(self, fields: list[pa.Array]) -> NDArray[np.float64]:
        """Return columns as doubles, shape (d, rows), in few steps, because other threads may run between them."""
        double = pa.float64()
        if all(field.type == double and field.null_count == 0 for field in fields):
            return np.asarray(pa.concat_arrays(fields).to_numpy()).reshape(len(fields), -1)
        for name, field in zip(self.feature_names_in_, fields, strict=True):
            if not (is_numeric(field.type) or is_boolean(field.type) or pa.types.is_null(field.type)):
                raise _not_numeric(name)
        return np.stack([to_doubles(field) for field in fields])

    def _present(self, rows: pa.Array) -> NDArray[np.float64]:
        """Return the linear form of rows that name the features with value 1; all others are 0."""
        count = len(self.coef_)
        absent, present = self._combined(np.zeros((count, 1)))[0], np.ones(count)
        if self._limits is not None:
            low, high = (side[:, 0] for side in self._limits)
            present = np.clip(present, low, high) - np.clip(0.0, low, high)
        weights = self.coef_ * present
        for position, steps in self._steps:
            absent_step, present_step = steps_at(steps, np.array([0.0, 1.0]))
            weights[position] += present_step - absent_step
        names = pa.array(self.feature_names_in_, type=pa.string())
        positions = pc.index_in(pc.cast(rows.flatten(), pa.string()), value_set=names).fill_null(-1).to_numpy()
        row = pc.list_parent_indices(rows).to_numpy()
        # A name that occurs twice is kept once.
        pairs = np.unique((row * count + positions)[positions >= 0])
        out: NDArray[np.float64] = (
            np.bincount(pairs // max(1, count), weights[pairs % max(1, count)], len(rows)) + absent
        )
        if rows.null_count:
            out[rows.is_null().to_numpy(zero_copy_only=False)] = np.nan
        return out

    def _combined(self, columns: Floats) -> NDArray[np.float64]:
        """Return the linear form from features of shape (d, rows)."""
        predictions = np.empty(columns.shape[1])
        with np.errstate(all="ignore"):  # noise may leave coefficients near the largest double
            for first in range(0, len(predictions), _BLOCK):
                block = self._counted(columns[:, first : first + _BLOCK])
                part = predictions[first : first + _BLOCK]
                np.dot(self.coef_, block, out=part)
                for position, steps in self._steps:
                    part += steps_at(steps, block[position])
            predictions += self.intercept_
        return predictions

    def _counted(self, block: Floats) -> Floats:
        """Return features as the fit used them: clipped, and 0 if they were left out."""
        if self._limits is None:
            return block
        counted = np.clip(block, *self._limits)
        counted[self.left_out] = 0.0
        return counted

    def _arrow(self, rows: object) -> pa.Table:
        """Return the rows of a frame; for a lazy frame, only the columns that count."""
        if hasattr(rows, "collect"):  # a LazyFrame
            rows = self._collected(rows)
        if hasattr(rows, "__arrow_c_stream__"):
            return pa.table(rows)
        try:
            return pa.Table.from_pandas(rows, preserve_index=False)
        except (AttributeError, TypeError):
            raise SourceError(
                "S010", f"rows must be a dense array or a frame; got {show(type(rows).__name__)}."
            ) from None

    def _collected(self, rows: Any) -> Any:
        """Return the columns of a lazy frame that count, by name in any case."""
        names = {fold(name) for name in (*self.feature_names_in_, *filter(None, [self.vector]))}
        columns = [name for name in rows.collect_schema().names() if fold(name) in names]
        return rows.select(columns).collect(engine="streaming")

    @cached_property
    def _steps(self) -> list[tuple[int, FeatureSteps]]:
        """Return positions and steps of features with steps."""
        return [(position, steps) for position, steps in enumerate(self.steps_ or ()) if steps is not None]

    @cached_property
    def left_out(self) -> list[int]:
        """Return the positions of the features that were left out of the fit."""
        return [position for position, pair in enumerate(self.feature_bounds_ or ()) if pair is None]

    @cached_property
    def _limits(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Return the bounds of the features, each of shape (d, 1)."""
        if self.feature_bounds_ is None:
            return None
        lower, upper = np.array([pair or (0.0, 0.0) for pair in self.feature_bounds_]).reshape(-1, 2).T
        return lower[:, np.newaxis], upper[:, np.newaxis]

    @cached_property
    def _elements(self) -> list[int]:
        return list(range(len(self.coef_)) if self.elements is None else self.elements)

    def _positions(self, kind: pa.StructType) -> list[int]:
        """Return the positions of the features in a struct, by name in any case."""
        indices = [kind.get_field_index(name) for name in self.feature_names_in_]
        if min(indices) < 0:
            positions = {fold(field.name): position for position, field in enumerate(kind)}
            for name in self.feature_names_in_:
                if fold(name) not in positions:
                    raise SourceError("S002", f"feature {show(name)} is not a column of the row. Check the name.")
            indices = [positions[fold(name)] for name in self.feature_names_in_]
        return indices


@public_methods()
@dataclass(eq=False)
class LinearClassifier(LinearModel):
    """``P(classes_[1]) = 1 / (1 + exp(-(intercept_ + coef_ . features)))``; to scikit-learn a fitted classifier.

    Attributes
    ----------
    classes_ : ndarray, shape (2,)
        The two levels of the label, the negative level first.
    binary : bool
        Features count as present or absent.
    present_above : float or None
        In a binary model, a value above this counts as present; None if any value except 0 and NaN does.
    """

    _estimator_type: ClassVar[str] = "classifier"

    classes_: NDArray[Any]
    binary: bool
    present_above: float | None = None

    def decision_function(self, rows: object) -> NDArray[np.float64]:
        """Return the log odds of the second class, shape (n,); `rows` as for `predict`."""
        return self._scores(rows)

    def predict_proba(self, rows: object) -> NDArray[np.float64]:
        """Return the probabilities of both classes, shape (n, 2); `rows` as for `predict`."""
        second = _probability(self._scores(rows))
        return np.stack([1 - second, second], axis=1)

    def predict(self, rows: object) -> NDArray[Any]:
        """Return the likelier class of each row, shape (n,); `rows` as for `LinearModel.predict`, None for NaN."""
        scores = self._scores(rows)
        if not np.isnan(scores).any():
            likelier: NDArray[Any] = self.classes_[(scores > 0).astype(np.intp)]
            return likelier
        return self._classes(scores, np.array([*self.classes_.tolist(), None], dtype=object))

    def _score(self, truth: NDArray[Any], predicted: NDArray[Any], weights: Doubles) -> float:
        return float(np.average(truth == predicted, weights=weights))

    def predict_rows(self, rows: pa.Array) -> NDArray[np.float64]:
        """Return the probability of the second class for each row, as `LinearModel.predict_rows` does predictions."""
        return _probability(self._row_scores(rows))

    def predict_classes(self, rows: pa.Array) -> list[str | None]:
        """Return the likelier class of each row as a string."""
        texts = np.array([*self.class_texts, None], dtype=object)
        classes: list[str | None] = self._classes(self._row_scores(rows), texts).tolist()
        return classes

    @property
    def class_texts(self) -> tuple[str, str]:
        """Return the two classes as SQL prints them, the negative class first."""
        negative, positive = self.classes_.tolist()
        return _class_text(negative), _class_text(positive)

    @property
    def class_type(self) -> pa.DataType:
        """Return the type of the two classes: booleans, whole numbers, numbers or strings."""
        levels = self.classes_.tolist()
        if all(isinstance(level, bool) for level in levels):
            return pa.bool_()
        if not all(isinstance(level, float) for level in levels):
            return pa.string()
        return pa.int64() if all(level.is_integer() and abs(level) < _WHOLE for level in levels) else pa.float64()

    @staticmethod
    def _classes(scores: NDArray[np.float64], classes: NDArray[np.object_]) -> NDArray[np.object_]:
        """Return the negative class, the positive class, or the value for NaN."""
        return classes[np.where(np.isnan(scores), 2, scores > 0)]

    def _counted(self, block: Floats) -> Floats:
        if self.binary:
            return present_in(block, self.present_above).astype(np.float64)
        return super()._counted(block)


# Whole numbers below this are exact in a double, and in 64 bits.
_WHOLE = 2.0**53
_KINDS: dict[str, type[LinearModel]] = {
    "linear_regression": LinearModel,
    "naive_bayes": LinearClassifier,
    "logistic_regression": LinearClassifier,
}


def _not_numeric(feature: str) -> SourceError:
    return SourceError("S003", f"feature {show(feature)} is not numeric. Cast it in the row.")


def _linear(stored: StoredRelease, result: Fitted, coefficients: Sequence[float]) -> LinearModel:
    """Return the linear form of a release, the intercept first."""
    intercept, *slopes = coefficients
    layout = stored.arguments["layout"]
    return LinearModel(
        kind=result["kind"],
        name=stored.name,
        ledger_id=stored.sequence,
        dataset=stored.dataset,
        target=layout["target"],
        method=result["method"],
        guarantee=stored.guarantee,
        feature_names_in_=np.array(result["terms"][1:], dtype=object),
        coef_=np.array(slopes, dtype=np.float64),
        intercept_=float(intercept),
        feature_bounds_=_pairs(result["bounds"]),
        prediction_bounds_=_pair(result.get("prediction_bounds")),
        vector=layout["features"] if layout["kind"] == "array" else None,
        elements=None if result["elements"] is None else tuple(result["elements"]),
        long=tuple(layout[part] for part in _LONG if part in layout) if layout["kind"] == "long" else None,
        verdicts=tuple(row[VERDICT] for row in COEFFICIENTS.rows(result)),
        steps_=tuple(result["steps"]) if "steps" in result else None,
    )


def _probability(log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``1 / (1 + exp(-log_odds))`` without overflow."""
    with np.errstate(invalid="ignore"):  # NaN stays NaN
        probability: NDArray[np.float64] = np.exp(-np.logaddexp(0.0, -log_odds))
    return probability


def _class_text(level: Level) -> str:
    """Return a level as SQL prints it."""
    if isinstance(level, bool):
        return str(level).lower()
    return str(int(level)) if isinstance(level, float) and level.is_integer() else str(level)


def _is_names(kind: pa.DataType) -> bool:
    """Return whether a type is a list of strings."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    value = kind.value_type
    texts = pa.types.is_string(value) or pa.types.is_large_string(value) or value == pa.string_view()
    return bool(texts or pa.types.is_dictionary(value) or pa.types.is_null(value))


def _pairs(bounds: Iterable[tuple[float, float] | None] | None) -> tuple[tuple[float, float] | None, ...] | None:
    return (
        None if bounds is None else tuple(None if pair is None else (float(pair[0]), float(pair[1])) for pair in bounds)
    )


def _pair(bounds: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if bounds is None else (float(bounds[0]), float(bounds[1]))
