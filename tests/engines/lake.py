"""An engine with a catalog, over Polars frames: names in any case, short and full, permanent and temporary views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from dpsql.contract.names import dotted, parts_of
from dpsql.engines.polars import PolarsEngine
from dpsql.errors import SourceError

CATALOG = "main"


def visits(people: int = 200, rows: int = 1000) -> pl.DataFrame:
    """Return some rows of people."""
    generator = np.random.default_rng(1)
    numbers = {name: generator.random(rows) for name in ("a", "b", "noise")}
    return pl.DataFrame(
        {
            "pid": generator.integers(0, people, rows),
            **numbers,
            "y": 0.8 * numbers["a"] + 0.2 * numbers["noise"],
            "ward": generator.choice(["A", "B"], rows),
        }
    )


class Lake(PolarsEngine):
    """Tables in databases of one catalog; as in Spark, names have no case, and a temporary view hides a table.

    Parameters
    ----------
    tables : mapping of (database, table) to frame
    views : mapping of str to frame
        Temporary views.
    """

    name = "lake"

    def __init__(self, tables: Mapping[tuple[str, str], Any], views: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.version = "1.2"
        self.tables = dict(tables)
        self.views = dict(views or {})
        self.read: list[object] = []

    def table(self, source: str) -> tuple[str, ...] | None:
        """Return the full name of a table."""
        if source.lower() in self.views:
            return None
        parts = parts_of(source.lower())
        if len(parts) == 3 and parts[0] == CATALOG:
            parts = parts[1:]
        if len(parts) == 1:
            parts = ["default", *parts]
        for database, name in self.tables:
            if [database.lower(), name.lower()] == parts:
                return CATALOG, database, name
        raise SourceError("S024", "engine lake has no table of this name. Check it.")

    def catalog(self) -> dict[str, tuple[str, ...]]:
        """Return the tables, with quotes around a name with a dot."""
        return {dotted((CATALOG, *name)): (CATALOG, *name) for name in self.tables}

    def _frame(self, source: object) -> pl.LazyFrame:
        self.read.append(source)
        if isinstance(source, str):
            return self._frame(self.views[source.lower()])
        if isinstance(source, tuple):
            return self._frame(self.tables[source[1:]])
        return super()._frame(source)
