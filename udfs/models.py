"""dp_predict and dp_models: what was released, put to use. Nothing here reads what is private or costs anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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


def predict(session: Session) -> Callable[..., pa.Array]:
    """Bind (model, row or vector, dataset) → one prediction per row; NULL where a feature is."""

    def run(models: Any, rows: Any, datasets: Any) -> pa.Array:
        keys, named = single_chunk(models), single_chunk(datasets)
        if keys.null_count or not pc.all(pc.equal(keys, keys[0]), skip_nulls=False).as_py():
            raise ParameterError("P030", "dp_predict takes one model per statement. Give its name as a constant.")
        model = session.model(keys[0].as_py(), named[0].as_py())
        predictions = model.predict_rows(single_chunk(rows))
        missing = np.isnan(predictions)
        return pa.array(predictions, mask=missing) if missing.any() else pa.array(predictions)

    return run


def models(session: Session) -> Callable[..., list[dict[str, Any]]]:
    """Bind () → one row per model in the ledger."""
    return session.models


SPECS = (
    UdfSpec("dpsql_predict", predict, "DOUBLE", pure=True),
    UdfSpec(
        "dpsql_models",
        models,
        "STRUCT(" + ", ".join(f"{name} {kind}" for name, kind in _MODELS.items()) + ")[]",
        native=True,
        nullary=True,
    ),
)
