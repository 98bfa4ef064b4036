"""Polars as an engine: the streaming engine's batches are folded one after another, and never collected together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpsql.contract.parameters import show
from dpsql.engines.port import PART, Mapped, Work
from dpsql.engines.task import plain
from dpsql.errors import SourceError

if TYPE_CHECKING:
    import polars

# Rows of a batch.
_ROWS = 1 << 17


class PolarsEngine:
    """Frames of Polars.

    Parameters
    ----------
    frames : mapping of str to polars.LazyFrame or polars.DataFrame, optional
        Frames by the names under which SQL refers to them.
    """

    name = "polars"

    def __init__(self, frames: Mapping[str, polars.LazyFrame | polars.DataFrame] | None = None) -> None:
        import polars

        self.version = str(polars.__version__)
        self._frames = dict(frames or {})

    def table(self, source: str) -> tuple[str, ...] | None:
        """Return None: Polars has no catalog, and a frame may hold the rows of any table."""
        self._frame(source)
        return None

    def catalog(self) -> dict[str, tuple[str, ...]]:
        """Return nothing: a name stands for a frame."""
        return {}

    def schema(self, source: object) -> pa.Schema:
        """Return the column types; a lazy frame resolves them without reading rows."""
        frame = self._frame(source)
        try:
            schema = frame.collect_schema()
        except Exception as error:
            raise SourceError(
                "S024",
                f"frame {show(source if isinstance(source, str) else type(source).__name__)} cannot be read "
                f"({type(error).__name__}). Check it: frame.collect_schema().",
            ) from None
        return _arrow(schema.to_frame()).schema

    def check(self, work: Work) -> None:
        """Do nothing: the work runs in this process."""

    def fold(self, source: object, columns: Sequence[str], work: Work) -> Iterator[pa.RecordBatch]:
        """Run the work over each batch of the streaming engine, in the engine's own threads."""
        import polars

        kinds = polars.DataFrame(work.record.empty_table()).schema

        def run(frame: polars.DataFrame) -> polars.DataFrame:
            return polars.DataFrame(pa.Table.from_batches(work.run(_arrow(frame).to_batches()), schema=work.record))

        states = self._frame(source).select(list(columns)).map_batches(run, schema=kinds, streamable=True)
        for found in states.collect_batches(maintain_order=False, engine="streaming"):  # merged as they come
            yield from _arrow(found).cast(work.record).to_batches()

    def fold_parts(self, source: object, columns: Sequence[str], work: Work) -> Iterator[pa.RecordBatch]:
        """Sort the rows by part, and run the work over them."""
        import polars

        frame = self._frame(source).select(list(columns))
        kinds = plain(_arrow(frame.collect_schema().to_frame()).schema).append(pa.field(PART, pa.int64()))
        nothing = polars.DataFrame(kinds.empty_table())  # its types are those of the rows that `work.split` yields

        def split(rows: polars.DataFrame) -> polars.DataFrame:
            found = [polars.DataFrame(batch) for batch in work.split(_arrow(rows).to_batches())]
            return polars.concat(found) if found else nothing

        rows = frame.map_batches(split, schema=nothing.schema, streamable=True).sort(PART)
        batches = (
            batch
            for part in rows.collect_batches(chunk_size=_ROWS, maintain_order=True, engine="streaming")
            for batch in _arrow(part).to_batches()
        )
        yield from work.run(batches)

    def map(self, source: object, function: Mapped, added: pa.Schema) -> polars.LazyFrame:
        """Return a lazy frame with more columns, which the streaming engine fills batch by batch."""
        import polars

        frame = self._frame(source)

        def run(rows: polars.DataFrame) -> polars.DataFrame:
            found = [polars.DataFrame(batch.select(added.names)) for batch in function(_arrow(rows).to_batches())]
            return rows.hstack(polars.concat(found)) if found else rows.hstack(polars.DataFrame(added.empty_table()))

        kinds = {**frame.collect_schema(), **polars.DataFrame(added.empty_table()).schema}
        return frame.map_batches(
            run, schema=kinds, streamable=True, projection_pushdown=False, predicate_pushdown=False
        )

    def _frame(self, source: object) -> polars.LazyFrame:
        import polars

        found: Any = self._frames.get(source) if isinstance(source, str) else source
        if not isinstance(found, polars.LazyFrame | polars.DataFrame):
            known = f" It has: {', '.join(sorted(self._frames))}." if self._frames else ""
            raise SourceError("S024", f"engine polars has no frame {show(source)}.{known} Give a frame, or its name.")
        return found.lazy()


def _arrow(frame: polars.DataFrame) -> pa.Table:
    import polars

    return frame.to_arrow(compat_level=polars.CompatLevel.oldest())
