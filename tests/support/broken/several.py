"""Broken rules for several tables of the same people: rows that two share, keys that repeat, and caps in a wrong place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dpsql.engines.duckdb.lineage import bound, placing, sources, stability
from dpsql.engines.duckdb.lineage.rows import Equality, Rows
from dpsql.engines.duckdb.steps import grouped
from dpsql.functions.grouped.left_out import Enforced
from dpsql.ledger import charge, ledger
from dpsql.ledger.blocks import Ended
from support.broken.planting import Fault, Patch
from support.broken.row_orders import UNJUDGED

_identity, _of_people, _joined_from = stability._identity, stability.of_people, placing.joined_from
_aggregate, _window = stability._aggregate, stability._window


def _rule(kind: str, rule: Any) -> tuple[Patch, ...]:
    return ((stability, "_RULES", {**stability._RULES, kind: rule}),)


def _tied(left: Rows, right: Rows, name: str, equal: Sequence[Equality], *, choosing: bool) -> Any:
    """Let rows that have one key meet as if they belonged to one unit."""
    found = _of_people(left, right, name, equal, choosing=choosing)
    shared = {key for _, key in left.ties} & {key for _, key in right.ties}
    if found is None and shared and name == "INNER":
        return {"unit": left.unit, "pending": left.pending, "ties": left.ties}
    return found


def _through_anything(expression: object) -> int | None:
    """Return the column that an expression is made of, whatever is done with it."""
    found = [one for one in bound.references([expression]) if one is not None]
    return found[0] if len(found) == 1 else _identity(expression)


def _of_one(walking: Any, node: Any) -> Rows:
    """Take the least of the units in a group for the unit of all of its rows."""
    [below] = walking.inputs(node, 1)
    rows = _aggregate(walking, node)
    groups = bound.listed(node, "groups")
    chosen = {
        place
        for place, one in enumerate(bound.listed(node, "expressions"), start=len(groups))
        if bound.called(bound.as_node(one)) == "min" and set(bound.references([one])) & below.unit
    }
    ties = frozenset((place, key) for place, group in enumerate(groups) for key in below.tied(bound.reference(group)))
    return replace(rows, unit=frozenset(chosen), ties=ties, own_rows="") if chosen and ties else rows


def _over_all(walking: Any, node: Any) -> Rows:
    """Keep whose the rows are, whatever a window looks at."""
    [below] = walking.inputs(node, 1)
    return replace(_window(walking, node), unit=below.unit, ties=below.ties, own_rows=below.own_rows)


def _capped_first(path: Any, declarations: Any, catalog: Any) -> str | None:
    """Cap the rows of the table by the key that they point to, and join then."""
    item = _joined_from(path, declarations, catalog)
    if item is None:
        return None
    step = declarations.owner(catalog.table(path), path[0]).steps[0]
    table = ".".join(f'"{part}"' for part in path)
    few = f'(SELECT * FROM {table} QUALIFY row_number() OVER (PARTITION BY "{step.column}" ORDER BY "{step.column}") <= 2)'
    return item.replace(f"FROM {table} AS", f"FROM {few} AS", 1)


def _unlimited(*limits: int, **given: Any) -> Enforced:
    return Enforced(False, False, False)


# Each with the query of `tests/lineage/test_ties.py` that it lets through, where a rule is broken.
FAULTS: dict[str, tuple[Fault, str]] = {
    "parent_key_ties_parents": (
        Fault(
            "Rows that have one key meet: a key repeats, so they are of several people.",
            ((stability, "of_people", _tied),),
        ),
        "parents",
    ),
    "join_by_value": (
        Fault("Keys meet by what an expression makes of them.", ((stability, "_identity", _through_anything),)),
        "by value of keys",
    ),
    "oldest_owner": (
        Fault("A row that two people share goes to one of them.", _rule("AGGREGATE_AND_GROUP_BY", _of_one)),
        "oldest owner",
    ),
    "shared_rows_dropped": (
        Fault("A row that two people share is dropped.", _rule("AGGREGATE_AND_GROUP_BY", _of_one)),
        "shared rows dropped",
    ),
    "window_over_all": (
        Fault("A window numbers everybody's rows.", _rule("WINDOW", _over_all)),
        "window over all",
    ),
}
CAP_BEFORE_JOIN = Fault(
    "The cap is on the table, and a join repeats its rows afterwards.",
    (
        (sources, "joined_from", _capped_first),
        (placing, "joined_from", _capped_first),
        (placing, "follows", lambda *_: True),
        (grouped, "enforced_limits", _unlimited),
        *UNJUDGED,
    ),
)


def _largest(transaction: Any, dataset: str, ended: str, *, keeps_dates: bool = False) -> Ended:
    """Charge what was spent of one dataset, unless more is charged already."""
    before = transaction.state(dataset).spent.epsilon or 0
    if (transaction.state(ended).spent.epsilon or 0) > before:
        return charge.append_merged(transaction, dataset, ended, keeps_dates=keeps_dates)
    return charge.ended_of(transaction, ended, keeps_dates=keeps_dates)


MERGE_TAKES_MAX = Fault(
    "A merged dataset begins with the largest of what was spent: a person is in all of them.",
    ((ledger, "append_merged", _largest),),
)
