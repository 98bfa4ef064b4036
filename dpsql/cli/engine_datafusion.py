"""Opens an engine over Parquet files that DataFusion reads."""

from __future__ import annotations

from datafusion import SessionConfig, SessionContext

import dpsql.datafusion
from dpsql.engines.port import Engine


def open_engine(name: str, location: str) -> Engine:
    """Return the engine of Parquet files as one table."""
    session = SessionContext(SessionConfig().set("datafusion.execution.collect_statistics", "false"))
    session.register_parquet(name, location)
    return dpsql.datafusion.engine(session)
