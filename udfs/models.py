"""Register dp_predict and dp_models, which use released models: they read no private rows and cost nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from dpsql.contract.covers import COVERING
from dpsql.contract.parameters import text
from dpsql.engines.duckdb.prediction import predictions_sql
from dpsql.engines.duckdb.releases import ModelRow
from dpsql.engines.duckdb.session import Session
from dpsql.engines.duckdb.synthetic_table import read_count, read_seed, synthetic_sql
from dpsql.errors import ParameterError
from dpsql.kernels.columns import single_chunk
from dpsql.released import areas
from dpsql.released import curves as roc
from dpsql.released.histogram import Histogram, histogram_quantiles
from dpsql.released.model import LinearClassifier, LinearModel
from dpsql.released.results import Curve
from dpsql.released.shapes import AREA, QUANTILES
from dpsql.released.synthetic_rows import synthetic_columns
from dpsql.udfs.values import UdfSpec, struct_list

_Rows = TypeVar("_Rows")
_MODELS = {
    "model": "VARCHAR",
    "ledger_id": "BIGINT",
    "dataset": "VARCHAR",
    "function": "VARCHAR",
    "method": "VARCHAR",
    "target": "VARCHAR",
    "features": "VARCHAR[]",
    "status": "VARCHAR",
    "guarantee": "VARCHAR",
    "recorded_at": "VARCHAR",
    "json": "VARCHAR",
}


def model_number(session: Session) -> Callable[..., int]:
    """Bind (model, dataset) → its number in the ledger. Pure: DuckDB evaluates constants once, at planning time.

    The arguments may be columns, whose cells no message shows.
    """

    def run(model: object, dataset: str | None) -> int:
        try:
            return session.model(model, dataset).ledger_id
        except ParameterError as error:
            if error.code not in ("DPSQL-P013", "DPSQL-P030", "DPSQL-P055"):
                raise
            reason = "no model has this name or number."
            step = "SELECT * FROM dp_models() lists them. Write its name in quotes: dp_predict('NAME', x)."
            if error.code == "DPSQL-P055":
                reason = "more than one dataset has a model of this name."
                step = "Name one: dp_predict('NAME', x, dataset := '...')."
            raise error.saying(f"{reason} {step}") from None

    return run


def predictions(session: Session) -> Callable[..., str]:
    """Bind (model, dataset, source) → the SQL to run. Pure."""

    def run(model: object, dataset: str | None, source: object) -> str:
        name = text("source", source, hint="Give the name of a table, view or registered frame.")
        return predictions_sql(session.model(model, dataset), name)

    return run


def numeric(session: Session) -> Callable[..., bool]:
    """Bind (number of the model, names of the features' SQL types) → true. Pure: DuckDB evaluates it while planning."""
    return lambda number, types: session.model(number).takes(types)


def predict(session: Session) -> Callable[..., pa.Array]:
    """Bind (number of the model, row or vector) → one prediction per row; NULL if a feature is NULL."""

    def run(models: pa.Array, rows: pa.Array) -> pa.Array:
        predictions = _one_model(session, models).predict_rows(single_chunk(rows))
        if np.isnan(predictions.sum()):
            return pa.array(predictions, mask=np.isnan(predictions))
        return pa.array(predictions)

    return run


def predict_class(session: Session) -> Callable[..., pa.Array]:
    """Bind (number of the model, row, vector or names) → the likelier class of each row, as a string."""

    def run(models: pa.Array, rows: pa.Array) -> pa.Array:
        model = _one_model(session, models)
        if not isinstance(model, LinearClassifier):
            raise ParameterError("P057", "dp_predict_class takes a classifier. Write dp_predict for a number.")
        return pa.array(model.predict_classes(single_chunk(rows)), type=pa.string())

    return run


def _one_model(session: Session, models: pa.Array) -> LinearModel:
    """Return the one model of a batch of rows."""
    numbers = single_chunk(models).to_numpy(zero_copy_only=False)
    if (numbers != numbers[0]).any():
        raise ParameterError("P056", "dp_predict takes one model per statement. Give its name as a constant.")
    return session.model(int(numbers[0]))


def models(session: Session) -> Callable[..., list[ModelRow]]:
    """Bind () → one row per model in the ledger."""
    return session.past.models


def curve(view: Callable[[Curve], _Rows], session: Session) -> Callable[..., _Rows]:
    """Bind (release, dataset) → a view of a released ROC curve."""
    return lambda key, dataset: session.past.curve(key, dataset, view)


def histogram_quantile(session: Session) -> Callable[..., list[dict[str, object]]]:
    """Bind (release, quantiles, dataset) → the quantiles of a released histogram, and the rows that they cover."""

    def run(key: object, quantiles: object, dataset: str | None) -> list[dict[str, object]]:
        def view(result: Histogram, covers: str) -> list[dict[str, object]]:
            return [{**row, **dict.fromkeys(COVERING, covers)} for row in histogram_quantiles(result, quantiles)]

        return session.past.histogram(key, dataset, view)

    return run


def synthetic(session: Session) -> Callable[..., str]:
    """Bind (release, number of rows, seed, dataset) → the SQL to run. Pure."""

    def run(key: object, count: object, seed: object, dataset: str | None) -> str:
        return synthetic_sql(session.past.synthetic(key, dataset), read_count(count), read_seed(seed))

    return run


def synthetic_rows(session: Session) -> Callable[..., pa.Array]:
    """Bind (number of the release, number of rows, seed) → the columns of a synthetic table, as lists of strings."""

    def run(keys: pa.Array, counts: pa.Array, seeds: pa.Array) -> pa.Array:
        tables = []
        for key, count, seed in zip(keys.to_pylist(), counts.to_pylist(), seeds.to_pylist(), strict=True):
            columns = synthetic_columns(session.past.synthetic(key, None).result, count, seed)
            ends = np.cumsum([0, *map(len, columns)])
            values = pa.concat_arrays(columns)
            tables.append(pa.ListArray.from_arrays(pa.array(ends, type=pa.int32()), values))
        ends = np.cumsum([0, *map(len, tables)])
        return pa.ListArray.from_arrays(pa.array(ends, type=pa.int32()), pa.concat_arrays(tables))

    return run


SPECS = (
    UdfSpec("dpsql_model", model_number, "BIGINT", native=True, pure=True),
    UdfSpec("dpsql_predictions", predictions, "VARCHAR", native=True, pure=True),
    UdfSpec("dpsql_synthetic", synthetic, "VARCHAR", native=True, pure=True, spoken=True),
    UdfSpec("dpsql_synthetic_columns", synthetic_rows, "VARCHAR[][]"),
    UdfSpec("dpsql_numeric", numeric, "BOOLEAN", native=True, pure=True),
    UdfSpec("dpsql_predict", predict, "DOUBLE", pure=True),
    UdfSpec("dpsql_predict_class", predict_class, "VARCHAR", pure=True),
    UdfSpec("dpsql_models", models, struct_list(_MODELS), native=True, nullary=True),
    UdfSpec(
        "dpsql_precision_recall",
        partial(curve, roc.precision_recall),
        struct_list(dict.fromkeys(("threshold", "precision", "recall"), "DOUBLE")),
        native=True,
    ),
    UdfSpec(
        "dpsql_calibration",
        partial(curve, roc.calibration),
        struct_list(dict.fromkeys(("lower", "upper", "mean_score", "positive_rate", "rows"), "DOUBLE")),
        native=True,
    ),
    UdfSpec("dpsql_curve_area", partial(curve, areas.curve_area), struct_list(AREA.columns), native=True),
    UdfSpec(
        "dpsql_histogram_quantile",
        histogram_quantile,
        struct_list(QUANTILES.columns),
        native=True,
    ),
)
