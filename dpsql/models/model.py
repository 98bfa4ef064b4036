"""A released linear model as scikit-learn's users know one, read back from the ledger. Prediction costs nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ParameterError, SourceError
from dpsql.parameters import fold, show

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.ledger_rows import StoredRelease


# Rows that are worked on at once, in the nearest cache.
_BLOCK = 4096


@dataclass(frozen=True)
class LinearModel:
    """``prediction = intercept_ + coef_ . features``, features outside of the fit's bounds counting as the bound.

    Attributes
    ----------
    name : str or None
        Name of the release.
    ledger_id : int
        Its entry in the ledger.
    dataset, target, method, guarantee : str
        Whose rows it was fitted to, what it predicts, how, and what holds for whom.
    feature_names_in_ : tuple of str
    coef_ : ndarray of float64, shape (d,)
        In units of the target per unit of the feature. Levels of a target are coded -1 and 1.
    intercept_ : float
    feature_bounds_ : tuple of pairs of float, or None
        Bounds of the features in the fit, public or private; None where it had none.
    vector : str or None
        Column of the vectors that it was fitted to; None for a column per feature.
    elements : tuple of int or None
        Where the features stand in a vector, from 0; None where the vector holds just them.
    """

    name: str | None
    ledger_id: int
    dataset: str
    target: str
    method: str
    guarantee: str
    feature_names_in_: tuple[str, ...]
    coef_: NDArray[np.float64]
    intercept_: float
    feature_bounds_: tuple[tuple[float, float], ...] | None
    vector: str | None
    elements: tuple[int, ...] | None

    @classmethod
    def read(cls, stored: StoredRelease) -> LinearModel:
        """Read a release of a function that fits a linear model.

        Raises
        ------
        ParameterError
            P030: nothing was released, because the method's test failed.
        """
        result = stored.result
        if result["coefficients"] is None:
            raise ParameterError(
                "P030",
                f"release {show(stored.name or stored.sequence)} holds no model: its test failed. "
                "Fit again under another name, with more rows, fewer features or another method.",
            )
        intercept, *coefficients = result["coefficients"]
        layout = stored.arguments["layout"]
        return cls(
            name=stored.name,
            ledger_id=stored.sequence,
            dataset=stored.dataset,
            target=layout["target"],
            method=result["method"],
            guarantee=stored.guarantee,
            feature_names_in_=tuple(result["terms"][1:]),
            coef_=np.array(coefficients, dtype=np.float64),
            intercept_=float(intercept),
            feature_bounds_=_pairs(result["bounds"]),
            vector=layout["features"] if layout["kind"] == "array" else None,
            elements=None if result["elements"] is None else tuple(result["elements"]),
        )

    def to_json(self) -> str:
        """Return the model as JSON with the names of scikit-learn's attributes; `from_json` reads it back."""
        return json.dumps(
            {
                "model": "linear_regression",
                "name": self.name,
                "ledger_id": self.ledger_id,
                "dataset": self.dataset,
                "target": self.target,
                "method": self.method,
                "guarantee": self.guarantee,
                "n_features_in_": len(self.coef_),
                "feature_names_in_": list(self.feature_names_in_),
                "coef_": self.coef_.tolist(),
                "intercept_": self.intercept_,
                "feature_bounds_": self.feature_bounds_,
                "vector": self.vector,
                "elements": self.elements,
            },
            ensure_ascii=False,
        )

    @classmethod
    def from_json(cls, text: str) -> LinearModel:
        """Read what `to_json` wrote.

        Raises
        ------
        ParameterError
            P030: the text is something else.
        """
        try:
            record = json.loads(text)
            if record.pop("model") != "linear_regression" or record.pop("n_features_in_") != len(record["coef_"]):
                raise ValueError
            record["coef_"] = np.array(record["coef_"], dtype=np.float64)
            record["feature_names_in_"] = tuple(record["feature_names_in_"])
            record["feature_bounds_"] = _pairs(record["feature_bounds_"])
            record["elements"] = None if record["elements"] is None else tuple(record["elements"])
            return cls(**record)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ParameterError("P030", "the text is not a linear model of dpsql. Give what to_json wrote.") from None

    def predict(self, rows: Any) -> NDArray[np.float64]:
        """Return one prediction per row.

        Parameters
        ----------
        rows : ndarray of shape (n, d), or a frame (Polars, pandas, Arrow) with a column per feature or the vectors'
            NaN and NULL give NaN.

        Returns
        -------
        predictions : ndarray of float64, shape (n,)

        Raises
        ------
        SourceError
            S002: a feature is missing. S003: the shape does not fit.
        """
        if isinstance(rows, np.ndarray):
            if rows.ndim != 2 or rows.shape[1] != len(self.coef_):
                raise SourceError("S003", f"rows must have shape (n, {len(self.coef_)}); got {rows.shape}.")
            return self._combined(np.asarray(rows, dtype=np.float64).T)
        import pyarrow as pa

        from dpsql.kernels.columns import single_chunk

        table = rows if isinstance(rows, pa.Table) else _arrow(rows)
        if self.vector is not None and self.vector in table.column_names:
            return self.predict_rows(single_chunk(table.column(self.vector)))
        return self.predict_rows(table.to_struct_array().combine_chunks())

    def predict_rows(self, rows: pa.Array) -> NDArray[np.float64]:
        """Return one prediction per row of a struct column (by name) or of vectors (by place); NaN stands for NULL."""
        import pyarrow as pa

        from dpsql.kernels.columns import is_vector
        from dpsql.kernels.xty import vectors_to_matrix

        if pa.types.is_struct(rows.type):
            out = self._combined(self._matrix([rows.field(position) for position in self._positions(rows.type)]))
            if rows.null_count:
                out[rows.is_null().to_numpy(zero_copy_only=False)] = np.nan
            return out
        if not is_vector(rows.type):
            raise SourceError("S003", "dp_predict takes a row, struct or vector. Write dp_predict(model, t) FROM t.")
        matrix = vectors_to_matrix(rows, 1 + max(self._elements))
        # A longer vector of a fixed length comes whole.
        whole = self.elements is None and matrix.shape[1] == len(self.coef_)
        return self._combined((matrix if whole else matrix[:, self._elements]).T)

    def _matrix(self, fields: list[pa.Array]) -> NDArray[np.float64]:
        """Return columns as doubles, shape (d, rows), in few steps: at each one another thread may take its turn."""
        import pyarrow as pa

        from dpsql.kernels.columns import is_boolean, is_numeric, to_doubles

        double = pa.float64()
        if all(field.type == double and field.null_count == 0 for field in fields):
            return np.asarray(pa.concat_arrays(fields).to_numpy()).reshape(len(fields), -1)
        for name, field in zip(self.feature_names_in_, fields, strict=True):
            if not (is_numeric(field.type) or is_boolean(field.type) or pa.types.is_null(field.type)):
                raise SourceError("S003", f"feature {show(name)} is not numeric. Cast it in the row.")
        return np.stack([to_doubles(field) for field in fields])

    def _combined(self, columns: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return the predictions from features of shape (d, rows)."""
        predictions = np.empty(columns.shape[1])
        for first in range(0, len(predictions), _BLOCK):
            block = columns[:, first : first + _BLOCK]
            if self._limits is not None:
                block = np.clip(block, *self._limits)
            np.dot(self.coef_, block, out=predictions[first : first + _BLOCK])
        predictions += self.intercept_
        return predictions

    @cached_property
    def _limits(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """The bounds of the features, each of shape (d, 1)."""
        if self.feature_bounds_ is None:
            return None
        lower, upper = np.array(self.feature_bounds_).reshape(-1, 2).T
        return lower[:, np.newaxis], upper[:, np.newaxis]

    @cached_property
    def _elements(self) -> list[int]:
        return list(range(len(self.coef_)) if self.elements is None else self.elements)

    def _positions(self, kind: pa.StructType) -> list[int]:
        """Return where the features stand in a struct, by name in any case."""
        found = [kind.get_field_index(name) for name in self.feature_names_in_]
        if min(found) < 0:
            places = {fold(field.name): position for position, field in enumerate(kind)}
            for name in self.feature_names_in_:
                if fold(name) not in places:
                    raise SourceError("S002", f"feature {show(name)} is not a column of the row. Check the name.")
            found = [places[fold(name)] for name in self.feature_names_in_]
        return found


def _pairs(bounds: Any) -> tuple[tuple[float, float], ...] | None:
    return None if bounds is None else tuple((float(low), float(high)) for low, high in bounds)


def _arrow(rows: Any) -> pa.Table:
    import pyarrow as pa

    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    try:
        return pa.Table.from_pandas(rows, preserve_index=False)
    except (AttributeError, TypeError):
        raise SourceError("S003", f"rows must be an array or a frame; got {show(type(rows).__name__)}.") from None
