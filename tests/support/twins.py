"""One call on DuckDB and on Polars, with the same secret keys: the integers must be the same."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow as pa

import dpsql
from dpsql.engines.attached import Attached
from dpsql.engines.duckdb import running
from dpsql.engines.polars import PolarsEngine
from dpsql.engines.port import Work
from dpsql.noise.entropy import OperatingSystemEntropy
from dpsql.released.release import Release
from dpsql.testing.bits import SeededBits
from support.broken.planting import planted

KEY = b"k" * 16


class Sending(PolarsEngine):
    """Polars, whose workers get their work as a pickle, as those of other processes do."""

    def fold(self, source: object, columns: Sequence[str], work: Work) -> Iterator[pa.RecordBatch]:
        """Run the work over some rows after another."""
        return super().fold(source, columns, pickle.loads(pickle.dumps(work)))

    def fold_parts(self, source: object, columns: Sequence[str], work: Work) -> Iterator[pa.RecordBatch]:
        """Run the work over one part after another."""
        return super().fold_parts(source, columns, pickle.loads(pickle.dumps(work)))


@contextmanager
def same_draws() -> Iterator[None]:
    """Give every call the same keys and the same entropy."""
    fixed, bits = SimpleNamespace(token_bytes=lambda size: KEY[:size]), SeededBits(1)
    words = (OperatingSystemEntropy, "words", lambda self, size, /: bits.words(size))
    with planted((running, "secrets", fixed), words):
        yield


def context(frame: pl.DataFrame, *, engine: bool, parts: int = 7) -> dpsql.Context:
    """Return a context whose source t has the rows of a frame."""
    attached = Attached("polars", Sending({"t": frame.lazy()}), parts=parts) if engine else None
    made = dpsql.Context(engine=attached)
    if not engine:
        made.connection.execute("CREATE TABLE t AS FROM frame")
    return made


def release(frame: pl.DataFrame, function: str, *, engine: bool, **arguments: Any) -> Release:
    """Release from the rows of a frame, on Polars or as a table of DuckDB."""
    with same_draws(), context(frame, engine=engine) as made:
        found: Release = getattr(made, function)("t", **arguments)
        return found


def spent(made: dpsql.Context) -> float:
    """Return what the one dataset of a context has spent."""
    [budget] = made.dp_budget().to_pylist()
    return float(budget["epsilon_spent"])
