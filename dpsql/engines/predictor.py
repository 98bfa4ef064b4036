"""A released model over the rows of an engine: what a worker runs on each batch. It reads nothing private."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpsql.contract.parameters import fold, show
from dpsql.errors import SourceError
from dpsql.released.model import LinearClassifier, LinearModel


@dataclass(frozen=True)
class Predictor:
    """Adds the columns of `dp_predictions` to batches of rows: ``prediction``, of a classifier ``probability``, too.

    Attributes
    ----------
    model : LinearModel
    """

    model: LinearModel

    @property
    def added(self) -> pa.Schema:
        """The columns that it adds."""
        if isinstance(self.model, LinearClassifier):
            return pa.schema([("prediction", pa.string()), ("probability", pa.float64())])
        return pa.schema([("prediction", pa.float64())])

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each batch with the columns of its predictions."""
        for batch in batches:
            for field, values in zip(self.added, self._predicted(batch), strict=True):
                batch = batch.append_column(field, values)
            yield batch

    def check(self, schema: pa.Schema) -> None:
        """Raise if rows of these columns are not what the model was fitted to; nothing is read.

        Raises
        ------
        SourceError
            S002: a feature is missing. S003: a feature is not numeric. S010: the model is of long rows. S037: the
            source has a column of the name of an added one.
        """
        if self.model.long is not None:
            raise SourceError(
                "S010",
                "the model was fitted to long rows, and an engine predicts from one row each. Pivot the rows in a view "
                "of the engine, and give ctx.model(...).predict its frame; or copy them to DuckDB.",
            )
        names = set(map(fold, schema.names))
        for name in self.added.names:
            if name in names:
                raise SourceError("S037", f"the source has a column {show(name)} already. Rename it in a view.")
        if self.model.vector is not None and fold(self.model.vector) not in names:
            raise SourceError("S002", f"vector {show(self.model.vector)} is not a column of the row. Check the name.")
        list(self.run(schema.empty_table().to_batches() or [pa.RecordBatch.from_pylist([], schema=schema)]))

    def _predicted(self, batch: pa.RecordBatch) -> list[pa.Array]:
        rows = self._rows(batch)
        numbers = self.model.predict_rows(rows)
        found = pa.array(numbers, mask=np.isnan(numbers))
        if not isinstance(self.model, LinearClassifier):
            return [found]
        return [pa.array(self.model.predict_classes(rows), type=pa.string()), found]

    def _rows(self, batch: pa.RecordBatch) -> pa.Array:
        """Return what the model reads: a column of vectors, or all columns as one of structs."""
        if self.model.vector is None:
            return pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
        return batch.column([fold(name) for name in batch.schema.names].index(fold(self.model.vector)))
