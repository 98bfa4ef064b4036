"""Define the specs of all functions that dpsql registers in DuckDB."""

from __future__ import annotations

from dpsql.udfs import budget, kendall, manual, models, query, release, sis
from dpsql.udfs.rows import SPECS as ROW_SPECS
from dpsql.udfs.values import UdfSpec

SPECS: tuple[UdfSpec, ...] = (
    *ROW_SPECS,
    *release.SPECS,
    *query.SPECS,
    *sis.SPECS,
    *kendall.SPECS,
    *models.SPECS,
    *budget.SPECS,
    *manual.SPECS,
)
