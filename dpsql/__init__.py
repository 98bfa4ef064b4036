"""Differentially private analytics inside DuckDB: select, fit, evaluate and predict in SQL."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.version import __version__ as __version__

# In a checkout sql/, udfs/ and docs/ stand beside this package; in a wheel they are inside it.
_here = Path(__file__).resolve().parent
if not (_here / "udfs").exists() and (_here.parent / "udfs" / "__init__.py").exists():
    __path__.append(str(_here.parent))

if TYPE_CHECKING:
    from dpsql import datafusion, polars, spark
    from dpsql.connecting import connect
    from dpsql.context import Context
    from dpsql.engines.duckdb.installation import install
    from dpsql.errors import BudgetError, DpsqlError, InternalError, LedgerError, ParameterError, SourceError
    from dpsql.job import JobResult, run
    from dpsql.manual.demonstration import example
    from dpsql.named_engine import attach_engine
    from dpsql.released.model import LinearClassifier, LinearModel
    from dpsql.released.release import Release
    from dpsql.remote import connect_remote

# Heavy modules load on first use, so that `import dpsql` costs little beyond `import duckdb`.
_exports = {
    "connect": "dpsql.connecting",
    "connect_remote": "dpsql.remote",
    "install": "dpsql.engines.duckdb.installation",
    "Context": "dpsql.context",
    "attach_engine": "dpsql.named_engine",
    "JobResult": "dpsql.job",
    "run": "dpsql.job",
    "example": "dpsql.manual.demonstration",
    "Release": "dpsql.released.release",
    "LinearClassifier": "dpsql.released.model",
    "LinearModel": "dpsql.released.model",
    "DpsqlError": "dpsql.errors",
    "ParameterError": "dpsql.errors",
    "SourceError": "dpsql.errors",
    "BudgetError": "dpsql.errors",
    "LedgerError": "dpsql.errors",
    "InternalError": "dpsql.errors",
}

# One module for each engine, each with `context` and `engine`.
_engines = ("datafusion", "polars", "spark")

__all__ = [
    "BudgetError",
    "Context",
    "DpsqlError",
    "InternalError",
    "JobResult",
    "LedgerError",
    "LinearClassifier",
    "LinearModel",
    "ParameterError",
    "Release",
    "SourceError",
    "attach_engine",
    "connect",
    "connect_remote",
    "datafusion",
    "example",
    "install",
    "polars",
    "run",
    "spark",
]


def __getattr__(name: str) -> object:
    if name in _exports:
        return getattr(import_module(_exports[name]), name)
    if name in _engines:
        return import_module(f"dpsql.{name}")
    raise AttributeError(f"module 'dpsql' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_exports, *_engines})
