"""Broken measures of what limits leave out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dpsql.engines.duckdb.steps import grouped, rows
from dpsql.engines.duckdb.steps.step import GroupedFrame, Step
from support.broken.planting import Fault

_apart = rows.apart
_NO_LIMIT = 1 << 19


def _uncut(frame: GroupedFrame) -> Iterator[Step]:
    yield from _apart(replace(frame, plan=replace(frame.plan, max_rows_per_unit=_NO_LIMIT, rows_per_group=_NO_LIMIT)))


UNCUT = Fault(
    "The rows that fell away are counted as they are: a person of 1,006 rows, of which 6 count, moves their number by "
    "1,000, where the noise is for 6.",
    ((grouped, "apart", _uncut),),
)
