"""Broken grouped aggregates: faults planted into the statements and draws of the product, for tests through SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpsql.engines.duckdb import keys
from dpsql.engines.duckdb.steps import grouped, rows, step
from dpsql.engines.duckdb.steps.step import UNIT, GroupedFrame, Step
from dpsql.functions.grouped import aggregate
from dpsql.functions.grouped.aggregate import AggregateCall, AggregatePlan
from dpsql.functions.grouped.plan import DrawnBoundsPlan, bounds_noise
from dpsql.mechanisms.aggregates import NoisyBlock, on_lattice
from dpsql.mechanisms.interval_scan import IntervalNoise
from dpsql.mechanisms.keyed_aggregates import KeyedNoise
from dpsql.released.aggregates import record_of
from support.broken.planting import Fault

_kept, _sampled, _draw = grouped.sample_rows, keys.sampled, KeyedNoise.draw
_bounds_pass = rows.bounds_pass
_NO_LIMIT = 1 << 19


def _without(*names: str) -> Callable[..., Iterator[Step]]:
    """Return what bounds nothing by some limits of the plan."""

    def kept(frame: GroupedFrame, rows: str) -> Iterator[Step]:
        looser: dict[str, Any] = dict.fromkeys((*names, "max_rows_per_unit"), _NO_LIMIT)
        return _kept(replace(frame, plan=replace(frame.plan, **looser)), rows)

    return kept


def _by_accident(*_: Any) -> str:
    return "CAST(system.main.random() * 4294967296 AS UBIGINT)"


def _over_all(ticket: str, owner: list[str], sorted_by: list[str], most: int) -> str:
    return _sampled(ticket, ["true"], [*owner, *sorted_by], most)


def _capped_first(frame: GroupedFrame) -> Iterator[Step]:
    """Bound each unit by its own keys, and map these afterwards."""
    unmapped = replace(frame, plan=replace(frame.plan, keys=None, key_rows=None, other=False))
    *before, last = _kept(unmapped, "valued")
    yield from before
    yield replace(last, name="mapped")
    yield grouped.mapped(frame, "kept", frame.name("mapped"), *UNIT, *frame.codes)


def _uncapped_bounds(frame: GroupedFrame) -> Iterator[Step]:
    yield from _bounds_pass(replace(frame, plan=replace(frame.plan, max_rows_per_unit=_NO_LIMIT)))


def _bounds_of_rows(plan: AggregatePlan) -> IntervalNoise:
    return bounds_noise(plan.bounds_epsilon / len(plan.targets), plan.neighbours, 1, tails=True)


def _released(choose: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a draw whose groups follow from exact counts."""

    def prepare(call: AggregateCall, statistic: Any, progress: object) -> Callable[[], Any]:
        sums, plan = statistic.sums(), call.plan
        chosen = choose(sums[0].n)
        labels = [[column[place] for place in chosen] for column in call.places.labels]
        given = sums[1:] if plan.targets else sums[:1]
        drawn = aggregate.draw_aggregates
        return lambda: record_of([noisy.take(chosen) for noisy in drawn(plan, given)], plan, labels, call.types)

    return prepare


def _exact_counts(part: KeyedNoise, sums: Sequence[Any]) -> tuple[Any, list[NoisyBlock]]:
    places, noisy = _draw(part, sums)
    block, lattice = noisy[0].block, noisy[0].lattice
    exact = on_lattice(block.words(sums[0]), lattice.bits).take(places)
    return places, [NoisyBlock(block, lattice, exact), *noisy[1:]]


CAPPED_FIRST = Fault(
    "A unit's groups and rows are bounded before keys are mapped: several groups of it become one. With g = 2 and r = 1 "
    "it has two rows in the group of other keys, and a squared norm of 4 instead of 2.",
    ((grouped, "limited", _capped_first),),
)
OVER_ALL_ROWS = Fault(
    "The first rows of the table count, and not of each unit: a new unit displaces the rows of others.",
    ((grouped, "sampled", _over_all), (rows, "sampled", _over_all)),
)
BY_ACCIDENT = Fault(
    "Which rows of a unit count hangs on their place in the table: rows of other units move.",
    ((step, "short_place", _by_accident), (keys, "short_place", _by_accident)),
)
GROUPS_ALONE = Fault(
    "Groups of a unit are bounded, and its rows in each are not.",
    ((grouped, "sample_rows", _without("rows_per_group")),),
)
ROWS_ALONE = Fault(
    "Rows of a unit in each group are bounded, and its groups are not.",
    ((grouped, "sample_rows", _without("groups")),),
)
ROWS_FOR_UNITS = Fault(
    "All rows of a unit count, and noise is drawn for what one row adds.",
    ((grouped, "sample_rows", _without("groups", "rows_per_group")),),
)
NOT_EMPTY = Fault(
    "Public keys without rows are not in the result: one row makes a key appear, with any noise.",
    ((AggregateCall, "prepare", _released(np.flatnonzero)),),
)
BY_COUNT = Fault(
    "Groups are in the order of their exact counts: of counts (1, 0) and (1, 2) the order tells which.",
    ((AggregateCall, "prepare", _released(lambda counts: np.argsort(-counts, kind="stable"))),),
)
DISTINCT_KEYS = Fault(
    "Every key that occurs is released, with noise on its count: a key that one unit alone has shows itself.",
    ((KeyedNoise, "threshold", property(lambda part: -(1 << 62))),),
)
EXACT_COUNTS = Fault(
    "Keys are chosen by noisy counts, and shown with exact ones.",
    ((KeyedNoise, "draw", _exact_counts),),
)
BOUNDS_OF_ALL_ROWS = Fault(
    "The pass that draws bounds counts all rows of a unit, at the noise for as many as its limits leave. With m = 4 and "
    "40 rows the scans cost ten times what is charged for them.",
    ((grouped, "bounds_pass", _uncapped_bounds),),
)
BOUNDS_FOR_ROWS = Fault(
    "Bounds are drawn at the noise for one row, while m = 4 rows of a unit count: they cost four times their charge.",
    ((DrawnBoundsPlan, "bounds_noise", property(_bounds_of_rows)),),
)
MOVES = (CAPPED_FIRST, OVER_ALL_ROWS, BY_ACCIDENT, GROUPS_ALONE, ROWS_ALONE, ROWS_FOR_UNITS)
