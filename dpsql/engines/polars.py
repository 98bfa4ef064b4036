"""Polars as an engine: the streaming engine's batches are folded one after another, and never collected together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars
import pyarrow as pa

from dpsql.contract.parameters import show
from dpsql.engines.delivery import JobNumbers, numbered_task
from dpsql.engines.polars_plan import provenance_of
from dpsql.engines.port import PART, Mapped, Work
from dpsql.engines.provenance import Provenance, UnseenError, seen_through
from dpsql.engines.task import plain
from dpsql.errors import SourceError

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
        self.version = str(polars.__version__)
        self._frames = dict(frames or {})
        self._streams = False  # until it was tried

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

    def provenance(self, source: object) -> Provenance:
        """Return what the rows of a frame come from."""
        try:
            return seen_through(self._frame(source), provenance_of)
        except UnseenError:
            self.schema(source)  # a frame that cannot be read is refused as such
            raise

    def check(self, work: Work) -> None:
        """Stream a row that is nobody's, once, as `fold` and `fold_parts` do; the work runs in this process.

        Polars 1.36 ends a stream early where a batch fails, and says nothing: a call would count a part of the rows.

        Raises
        ------
        SourceError
            S055: this Polars does not stream so.
        """
        if self._streams:
            return
        try:
            nobody = polars.LazyFrame({PART: [0]})
            kinds = nobody.collect_schema()
            list(self._batches(nobody.map_batches(lambda rows: rows, schema=kinds, streamable=True), in_order=False))
            list(self._batches(nobody.sort(PART), in_order=True))
            failing = nobody.map_batches(_fail, schema=kinds, streamable=True)
            told = False
            try:
                list(self._batches(failing, in_order=False))
            except ZeroDivisionError:
                told = True
        except Exception:
            told = False
        if not told:
            raise SourceError(
                "S055",
                f"polars {self.version} cannot stream batches of rows as dpsql needs. Install polars 1.37.1 or later.",
            )
        self._streams = True

    def fold(self, source: object, columns: Sequence[str], work: Work) -> Iterator[pa.RecordBatch]:
        """Run the work over each batch of the streaming engine, in the engine's own threads.

        A statement of the worker costs more than the rows of a batch, so where there is one it reads many batches.
        """
        if not work.is_direct:
            batches = self._batches(self._frame(source).select(list(columns)), in_order=False)
            yield from numbered_task(work.run(batches), work.record)
            return
        numbering = JobNumbers(work.record)
        kinds = polars.DataFrame(numbering.kind.empty_table()).schema

        def run(frame: polars.DataFrame) -> polars.DataFrame:
            records = numbering.task(work.run(_arrow(frame).to_batches()))
            return polars.DataFrame(pa.Table.from_batches(records, schema=numbering.kind))

        states = self._frame(source).select(list(columns)).map_batches(run, schema=kinds, streamable=True)
        for found in states.collect_batches(maintain_order=False, engine="streaming"):  # merged as they come
            yield from _arrow(found).cast(numbering.kind).to_batches()
        yield from numbering.last()

    def fold_parts(self, source: object, columns: Sequence[str], work: Work) -> Iterator[pa.RecordBatch]:
        """Sort the rows by part, and run the work over them."""
        frame = self._frame(source).select(list(columns))
        kinds = plain(_arrow(frame.collect_schema().to_frame()).schema).append(pa.field(PART, pa.int64()))
        nothing = polars.DataFrame(kinds.empty_table())  # its types are those of the rows that `work.split` yields

        def split(rows: polars.DataFrame) -> polars.DataFrame:
            found = [polars.DataFrame(batch) for batch in work.split(_arrow(rows).to_batches())]
            return polars.concat(found) if found else nothing

        rows = frame.map_batches(split, schema=nothing.schema, streamable=True).sort(PART)
        yield from numbered_task(work.run(self._batches(rows, in_order=True)), work.record)

    def _batches(self, rows: polars.LazyFrame, *, in_order: bool) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a frame as the streaming engine makes them."""
        for part in rows.collect_batches(chunk_size=_ROWS, maintain_order=in_order, engine="streaming"):
            yield from _arrow(part).to_batches()

    def map(self, source: object, function: Mapped, added: pa.Schema) -> polars.LazyFrame:
        """Return a lazy frame with more columns, which the streaming engine fills batch by batch."""
        frame = self._frame(source)

        def run(rows: polars.DataFrame) -> polars.DataFrame:
            found = [polars.DataFrame(batch.select(added.names)) for batch in function(_arrow(rows).to_batches())]
            return rows.hstack(polars.concat(found)) if found else rows.hstack(polars.DataFrame(added.empty_table()))

        kinds = {**frame.collect_schema(), **polars.DataFrame(added.empty_table()).schema}
        return frame.map_batches(
            run, schema=kinds, streamable=True, projection_pushdown=False, predicate_pushdown=False
        )

    def _frame(self, source: object) -> polars.LazyFrame:
        found: Any = self._frames.get(source) if isinstance(source, str) else source
        if not isinstance(found, polars.LazyFrame | polars.DataFrame):
            known = f" It has: {', '.join(sorted(self._frames))}." if self._frames else ""
            raise SourceError("S024", f"engine polars has no frame {show(source)}.{known} Give a frame, or its name.")
        return found.lazy()


def _fail(rows: polars.DataFrame) -> polars.DataFrame:
    raise ZeroDivisionError


def _arrow(frame: polars.DataFrame) -> pa.Table:
    return frame.to_arrow(compat_level=polars.CompatLevel.oldest())


def open_engine(name: str, location: str) -> PolarsEngine:
    """Return the engine of Parquet files as one table."""
    frame = polars.scan_parquet(location)
    frame.collect_schema()
    return PolarsEngine({name: frame})
