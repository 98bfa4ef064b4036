"""Audit a mechanism: neighbouring tables, exact checks on small domains, statistical checks, broken examples.

==========================  ==========================================================================
`neighbouring_pairs`        every pair of neighbouring tables over a small domain of rows
`random_pairs`              random neighbours with NULL, NaN, infinities, ties and wild values
`random_unit_pairs`         random tables that differ in all rows of one privacy unit
`check_exhaustively`        largest log ratio of an exact output law over all neighbouring tables
`check_sensitivity`         how far a statistic moves over all neighbouring tables, exactly
`SisLaw`, `CentredSisLaw`   exact output laws of dp_sis along the product's own path
`BestSubsetLaw`             the same of dp_best_subset
`TwoStageLaw`               exact laws of the parts of dp_two_stage
`KendallLaw`                the same of dp_kendall
`audit`, `audit_sql`        lower bound on epsilon, with a stated confidence, from outputs alone
`check_fresh_draws`         whether repeated executions of a query draw anew
`fit`, `runs_needed`        chi-square against an exact law, and the samples that it needs
``dpsql.testing.broken``    mechanisms that are not private, for all of the above to catch
==========================  ==========================================================================

SciPy and PyArrow are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsql.testing.auditor import AuditReport, audit
    from dpsql.testing.best_subset import BestSubsetLaw
    from dpsql.testing.distribution import Fit, fit, runs_needed
    from dpsql.testing.exhaustive import ExhaustiveReport, SensitivityReport, check_exhaustively, check_sensitivity
    from dpsql.testing.kendall import KendallLaw
    from dpsql.testing.neighbours import neighbouring_pairs, random_pairs, random_unit_pairs, tables, to_arrow
    from dpsql.testing.sis import CentredSisLaw, SisLaw
    from dpsql.testing.sql import DrawReport, SqlRelease, audit_sql, check_fresh_draws
    from dpsql.testing.two_stage import TwoStageLaw
    from dpsql.testing.views import default_views

_exports = {
    "AuditReport": "auditor",
    "audit": "auditor",
    "BestSubsetLaw": "best_subset",
    "Fit": "distribution",
    "fit": "distribution",
    "runs_needed": "distribution",
    "ExhaustiveReport": "exhaustive",
    "SensitivityReport": "exhaustive",
    "check_exhaustively": "exhaustive",
    "check_sensitivity": "exhaustive",
    "KendallLaw": "kendall",
    "neighbouring_pairs": "neighbours",
    "random_pairs": "neighbours",
    "random_unit_pairs": "neighbours",
    "tables": "neighbours",
    "to_arrow": "neighbours",
    "CentredSisLaw": "sis",
    "SisLaw": "sis",
    "DrawReport": "sql",
    "SqlRelease": "sql",
    "audit_sql": "sql",
    "check_fresh_draws": "sql",
    "TwoStageLaw": "two_stage",
    "default_views": "views",
}

__all__ = [
    "AuditReport",
    "BestSubsetLaw",
    "CentredSisLaw",
    "DrawReport",
    "ExhaustiveReport",
    "Fit",
    "KendallLaw",
    "SensitivityReport",
    "SisLaw",
    "SqlRelease",
    "TwoStageLaw",
    "audit",
    "audit_sql",
    "check_exhaustively",
    "check_fresh_draws",
    "check_sensitivity",
    "default_views",
    "fit",
    "neighbouring_pairs",
    "random_pairs",
    "random_unit_pairs",
    "runs_needed",
    "tables",
    "to_arrow",
]


def __getattr__(name: str) -> Any:
    if name in _exports:
        found = getattr(import_module(f"dpsql.testing.{_exports[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'dpsql.testing' has no attribute {name!r}")
