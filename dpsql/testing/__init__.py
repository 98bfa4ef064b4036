"""Audit a private function: neighbouring tables, exact checks on small domains, and statistical checks.

========================  ==============================================================================
`neighbouring_pairs`      every pair of neighbouring tables over a small domain of rows
`random_pairs`            random neighbours with NULL, NaN, infinities, ties and extreme values
`random_unit_pairs`       random tables that differ in all rows of one privacy unit
`check_exhaustively`      the largest log ratio of an exact output law over all neighbouring tables
`check_sensitivity`       how far a statistic moves over all neighbouring tables, exactly
`audit`, `audit_sql`      a lower bound on epsilon, with a stated confidence, from outputs alone
`check_fresh_draws`       whether repeated executions of a query draw anew
`fit`, `runs_needed`      a chi-square test against an exact law, and the number of samples that it needs
========================  ==============================================================================

SciPy and PyArrow are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsql.testing.auditor import AuditReport, audit
    from dpsql.testing.distribution import Fit, fit, runs_needed
    from dpsql.testing.exhaustive import ExhaustiveReport, SensitivityReport, check_exhaustively, check_sensitivity
    from dpsql.testing.neighbours import neighbouring_pairs, random_pairs, random_unit_pairs, tables, to_arrow
    from dpsql.testing.sql import DrawReport, SqlRelease, audit_sql, check_fresh_draws
    from dpsql.testing.views import default_views

_exports = {
    "AuditReport": "auditor",
    "audit": "auditor",
    "Fit": "distribution",
    "fit": "distribution",
    "runs_needed": "distribution",
    "ExhaustiveReport": "exhaustive",
    "SensitivityReport": "exhaustive",
    "check_exhaustively": "exhaustive",
    "check_sensitivity": "exhaustive",
    "neighbouring_pairs": "neighbours",
    "random_pairs": "neighbours",
    "random_unit_pairs": "neighbours",
    "tables": "neighbours",
    "to_arrow": "neighbours",
    "DrawReport": "sql",
    "SqlRelease": "sql",
    "audit_sql": "sql",
    "check_fresh_draws": "sql",
    "default_views": "views",
}

__all__ = [
    "AuditReport",
    "DrawReport",
    "ExhaustiveReport",
    "Fit",
    "SensitivityReport",
    "SqlRelease",
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
        member = getattr(import_module(f"dpsql.testing.{_exports[name]}"), name)
        globals()[name] = member
        return member
    raise AttributeError(f"module 'dpsql.testing' has no attribute {name!r}")
