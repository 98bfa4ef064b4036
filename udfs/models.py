"""dp_predict and dp_models: what was released, put to use. Nothing here reads what is private or costs anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from dpsql.errors import ParameterError
from dpsql.kernels.columns import single_chunk
from dpsql.session import Session
from dpsql.udfs.spec import UdfSpec

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
    """Bind (model, dataset) → its number in the ledger. Pure: DuckDB finds it once, when it plans."""
    return lambda model, dataset: session.model(model, dataset).ledger_id


def predict(session: Session) -> Callable[..., pa.Array]:
    """Bind (number of the model, row or vector) → one prediction per row; NULL where a feature is."""

    def run(models: Any, rows: Any) -> pa.Array:
        numbers = single_chunk(models).to_numpy(zero_copy_only=False)
        if (numbers != numbers[0]).any():
            raise ParameterError("P030", "dp_predict takes one model per statement. Give its name as a constant.")
        predictions = session.model(int(numbers[0])).predict_rows(single_chunk(rows))
        if np.isnan(predictions.sum()):
            return pa.array(predictions, mask=np.isnan(predictions))
        return pa.array(predictions)

    return run


def models(session: Session) -> Callable[..., list[dict[str, Any]]]:
    """Bind () → one row per model in the ledger."""
    return session.models


SPECS = (
    UdfSpec("dpsql_model", model_number, "BIGINT", native=True, pure=True),
    UdfSpec("dpsql_predict", predict, "DOUBLE", pure=True),
    UdfSpec(
        "dpsql_models",
        models,
        "STRUCT(" + ", ".join(f"{name} {kind}" for name, kind in _MODELS.items()) + ")[]",
        native=True,
        nullary=True,
    ),
)
