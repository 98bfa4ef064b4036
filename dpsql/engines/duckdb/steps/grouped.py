"""The steps of a statement with groups: map keys, bound what each privacy unit contributes, and add up.

Keys become a number or text before they are compared (`keys.key`). So no collation applies, and no row's spelling
becomes a label. Public keys are cast to the column's type and written as texts again by the same rule; a row is in one
group or in none. Values become integers in SQL. Like scores, they have the gate's zero added first, which hides them
from column statistics. Nothing in these steps can fail for one row's value.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.engines.duckdb.steps import limits, public_keys, sums, values
from dpsql.engines.duckdb.steps.rows import statistic
from dpsql.engines.duckdb.steps.step import Frame, GroupedFrame, Step


def grouped_steps(frame: Frame) -> Iterator[Step]:
    """Yield the steps that add up the rows of every group; the last one is the statistic."""
    if not isinstance(frame, GroupedFrame):
        raise TypeError("the statistic is of another plan")
    plan, only = frame.plan, frame.only
    if only is not None and only > plan.readings:
        yield from sums.labels_alone(frame)
        return
    if not plan.has_private_keys:
        yield from public_keys.public_keys(frame)
    if frame.draws_bounds:
        if only in (None, 1):
            yield from values.bounds_pass(frame)
        if only == 1:
            yield statistic(frame, 1)
            return
        yield from values.drawn_bounds(frame)
    yield values.opened(frame)
    yield values.valued(frame)
    yield from limits.limited(frame)
    yield sums.grouped(frame)
    yield from sums.by_private_keys(frame) if plan.has_private_keys else sums.by_public_keys(frame)
