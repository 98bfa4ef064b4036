"""Translation between DuckDB and dpsql: one short spec per SQL function, without any decisions."""

from __future__ import annotations

from dpsql.udfs import budget, kendall, manual, models, release, sis
from dpsql.udfs.spec import UdfSpec

SPECS: tuple[UdfSpec, ...] = (*release.SPECS, *sis.SPECS, *kendall.SPECS, *models.SPECS, *budget.SPECS, *manual.SPECS)
