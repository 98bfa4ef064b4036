"""Opens an engine over Parquet files that Polars reads."""

from __future__ import annotations

import polars

import dpsql.polars
from dpsql.engines.port import Engine


def open_engine(name: str, location: str) -> Engine:
    """Return the engine of Parquet files as one table."""
    frame = polars.scan_parquet(location)
    frame.collect_schema()
    return dpsql.polars.engine({name: frame})
