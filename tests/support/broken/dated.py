"""Broken rules for periods in a plan: rows of two periods that meet, and undated rows that carry them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpsql.engines.duckdb.lineage import dates, joins
from dpsql.engines.duckdb.lineage.dates import EVERY_PERIOD, Dates, Met
from dpsql.ledger import blocks, charge, verification
from support.broken.planting import Fault

_of_one_owner, _charged_names = dates.of_one_owner, blocks.charged_names


def _by_unit_alone(one: Dates, other: Dates, equal: Any) -> bool:
    return True


def _chosen(left: Any, right: Any, name: str, equal: Any) -> Met | None:
    """Let dated rows choose among the undated rows of their person."""
    met = _of_one_owner(left, right, name, equal)
    is_undated = left.date is not None and left.date.static and right.date is not None and not right.date.static
    return Met(left.date) if met is None and is_undated else met


def _mixed(left: Any, right: Any, name: str, equal: Any) -> Met | None:
    """Take what comes of dated and undated rows for undated."""
    met = _of_one_owner(left, right, name, equal)
    if met is None or met.date is None or left.date is None or right.date is None:
        return met
    return Met(replace(met.date, static=left.date.static or right.date.static))


# Each with the query of `tests/lineage/test_dated_ties.py` that it lets through, where a rule is broken.
FAULTS: dict[str, tuple[Fault, str]] = {
    "dated_join_by_unit_alone": (
        Fault(
            "Two dated tables meet by the person's id: a row is of two periods.",
            ((dates, "_in_one_period", _by_unit_alone),),
        ),
        "by the id alone",
    ),
    "undated_chosen_by_dated": (
        Fault("Undated rows are chosen by the rows of every period.", ((joins, "of_one_owner", _chosen),)),
        "undated rows chosen by dated ones",
    ),
    "undated_with_dated": (
        Fault("Undated rows that met dated ones pass for undated.", ((joins, "of_one_owner", _mixed),)),
        "dated rows of a person counted",
    ),
    "date_of_a_longer_period": (
        Fault(
            "The first day of the year passes for a date of the month.",
            ((dates, "_KEEPS", {**dates._KEEPS, "year": EVERY_PERIOD}),),
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
