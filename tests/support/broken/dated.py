"""Broken rules for periods in a plan: rows of two periods that meet, and undated rows that carry them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpsql.engines.duckdb.lineage import rows, stability
from dpsql.engines.duckdb.lineage.rows import EVERY_PERIOD, Dates, Met
from dpsql.ledger import blocks, charge, verification
from support.broken.planting import Fault

_of_one_owner, _charged_names = rows.of_one_owner, blocks.charged_names


def _by_unit_alone(one: Dates, other: Dates, equal: Any) -> bool:
    return True


def _chosen(one: Dates | None, other: Dates | None, *given: Any, **more: Any) -> Met | None:
    """Let dated rows choose among the undated rows of their person."""
    met = _of_one_owner(one, other, *given, **more)
    is_undated = one is not None and one.static and other is not None and not other.static
    return Met(one) if met is None and is_undated else met


def _mixed(one: Dates | None, other: Dates | None, *given: Any, **more: Any) -> Met | None:
    """Take what comes of dated and undated rows for undated."""
    met = _of_one_owner(one, other, *given, **more)
    if met is None or met.date is None or one is None or other is None:
        return met
    return Met(replace(met.date, static=one.static or other.static))


# Each with the query of `tests/lineage/test_dated_ties.py` that it lets through, where a rule is broken.
FAULTS: dict[str, tuple[Fault, str]] = {
    "dated_join_by_unit_alone": (
        Fault(
            "Two dated tables meet by the person's id: a row is of two periods.",
            ((rows, "_in_one_period", _by_unit_alone),),
        ),
        "by the id alone",
    ),
    "undated_chosen_by_dated": (
        Fault("Undated rows are chosen by the rows of every period.", ((stability, "of_one_owner", _chosen),)),
        "undated rows chosen by dated ones",
    ),
    "undated_with_dated": (
        Fault("Undated rows that met dated ones pass for undated.", ((stability, "of_one_owner", _mixed),)),
        "dated rows of a person counted",
    ),
    "date_of_a_longer_period": (
        Fault(
            "The first day of the year passes for a date of the month.",
            ((rows, "_KEEPS", {**rows._KEEPS, "year": EVERY_PERIOD}),),
        ),
        "groups of a year",
    ),
}
UNDATED_FREE = Fault(
    "A call on rows without a date is charged to no block.",
    tuple(
        (module, "charged_names", lambda budget, during: [] if during.is_undated else _charged_names(budget, during))
        for module in (charge, verification)
    ),
)
