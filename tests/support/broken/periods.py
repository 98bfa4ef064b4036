"""Broken periods: units, rows and accounts that are not those of a person in a period."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from dpsql.contract.periods import During
from dpsql.engines.duckdb.lineage.rows import Rows
from dpsql.engines.duckdb.steps import step
from dpsql.ledger import blocks, charge, ledger
from dpsql.ledger.blocks import FRESH, Blocks
from dpsql.ledger.budget import Budget, Spent
from dpsql.ledger.rows import State
from support.broken.planting import Fault

_dated = step.dated
_charged_names = blocks.charged_names
_fingerprint_of = charge.fingerprint_of
CAP = 1


def _per_person(rows: str, during: During, zero: str, *, filtered: bool) -> str:
    kept = f"(SELECT *, dpsql_unit AS person FROM {rows}) AS input"
    found = _dated(kept, during, zero, filtered=filtered)
    return f"(SELECT * EXCLUDE (dpsql_unit, person), person AS dpsql_unit FROM {found}) AS input"


def _capped_first(rows: str, during: During, zero: str, *, filtered: bool) -> str:
    order = "QUALIFY row_number() OVER (PARTITION BY dpsql_unit ORDER BY dpsql_row, dpsql_date NULLS FIRST)"
    return _dated(f"(SELECT * FROM {rows} {order} <= {CAP}) AS input", during, zero, filtered=filtered)


def _everywhere(rows: str, during: During, zero: str, *, filtered: bool) -> str:
    first = f"CAST('{{}}' AS {'TIMESTAMP' if during.dated.zone is None else 'TIMESTAMPTZ'})"
    day = during.blocks[0] + "-01 00:00:00"
    dated = f"* EXCLUDE (dpsql_date), coalesce(CAST(dpsql_date AS TIMESTAMP), {first.format(day)}) AS dpsql_date"
    return _dated(f"(SELECT {dated} FROM {rows}) AS input", during, zero, filtered=filtered)


def _one_person(self: Rows, keys: Collection[object], **_: Any) -> bool:
    return any(key in self.unit for key in keys)


def _without_during(dataset: str, function: str, arguments: str) -> str:
    given: dict[str, Any] = json.loads(arguments)
    given.pop("during", None)
    return _fingerprint_of(dataset, function, json.dumps(given, sort_keys=True, separators=(",", ":")))


CAP_PER_PERSON_ACROSS_PERIODS = Fault(
    "The cap is one for all periods of a person: the rows of one of two charged periods decide which rows of the other "
    "count, so a unit changes 2 rows where 1 is charged.",
    ((step, "dated", _per_person),),
)
CAP_BEFORE_DURING = Fault(
    "The cap comes before the choice of periods: rows of a period that is not charged decide which rows count.",
    ((step, "dated", _capped_first),),
)
NULL_PERIOD_EVERYWHERE = Fault(
    "Rows without a date count in every call, and no block is charged for them.", ((step, "dated", _everywhere),)
)
DOUBLE_SUM_PER_PERSON = Fault(
    "A sum over the rows of a person passes for one of a person in a period: rows of periods that are not charged are "
    "in it.",
    ((Rows, "one_unit", _one_person),),
)
REPLAY_ACROSS_DURING = Fault(
    "The name of a release says nothing of its step, so the answer of one is given for another.",
    ((ledger, "fingerprint_of", _without_during), (charge, "fingerprint_of", _without_during)),
)
BLOCK_CHARGED_ONCE_FOR_MANY = Fault(
    "A call on several blocks charges the first of them alone.",
    ((charge, "charged_names", lambda budget, during: _charged_names(budget, during)[:1]),),
)
DATED_MERGE_FORGETS = Fault(
    "Datasets with periods are merged, and the blocks of the new one begin with nothing.",
    ((ledger, "merged", lambda own, ended, after, begun=None: Blocks({FRESH: Spent()})),),
)
DATED_MERGE_TAKES_MAX = Fault(
    "A block of merged datasets begins with the largest of what was spent of it: a person is in all of them.",
    ((blocks, "_together", lambda parts: max(parts, key=lambda spent: spent.epsilon or 0)),),
)
TOTAL_NOT_CHECKED = Fault(
    "What one person may lose over all periods is stated, and refuses nothing.",
    ((Budget, "total_limits", property(lambda self: {})),),
)
UNDATED_FREE = Fault(
    "A call that names no periods is charged to no block.", ((State, "is_dated", property(lambda self: False)),)
)
