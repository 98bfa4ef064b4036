"""Broken parts of a query: faults that are small enough to look right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dpsql.engines.duckdb.steps import grouped, rows
from dpsql.engines.duckdb.steps.step import Frame, GroupedFrame, Step
from dpsql.functions import query_rows
from dpsql.functions.query_bounds import CoreBoundsCall
from dpsql.functions.query_rows import RowsCall
from dpsql.kernels.cells import fine_interval
from dpsql.mechanisms import keyed_aggregates
from dpsql.mechanisms.aggregates import CubeTarget, CubeVector
from dpsql.mechanisms.interval_scan import PrivateInterval
from dpsql.mechanisms.key_limits import KeyLimits, limits_by_weight
from dpsql.mechanisms.keyed_aggregates import MarginsNoise
from dpsql.rendering import call, cast
from dpsql.statistics.aggregates import UNIT_WEIGHTS, Sums, WeightedUnits
from support.broken.planting import Fault


def _keys_of_rows(frame: GroupedFrame, keyed: GroupedFrame) -> Step:
    rows = call("list", call("list_value", *(cast(f"k{column}", "VARCHAR") for column in keyed.columns)))
    learned = call("dpsql_learn_keys", frame.ticket, f"(SELECT {rows} FROM {keyed.name('numbered')})")
    return Step("learned", "", f"SELECT {learned} AS ticket", is_materialized=True)


WEIGHTS_OF_ONE = Fault(
    "A person counts fully in each of its keys, and noise hides weights of one person in one key.",
    ((grouped, "UNIT_WEIGHTS", (0, *[WeightedUnits.corners] * (len(UNIT_WEIGHTS) - 1))),),
)


def _one_key_alone(groups: int) -> KeyLimits:
    return limits_by_weight(1)


ONE_KEY_ALONE = Fault(
    "The threshold of weights is for one key that a person alone has, though several may show.",
    ((keyed_aggregates, "limits_by_weight", _one_key_alone),),
)
KEYS_OF_ROWS = Fault(
    "A part of private keys answers all keys that occur, in place of those that are released.",
    ((grouped, "released_keys", _keys_of_rows),),
)


def _all_rows(frame: Frame) -> str:
    return str(frame.plan.max_rows_per_unit)


def _of_pairs(frame: Frame) -> list[str]:
    return ["dpsql_unit // 2 AS unit_number", "''::BLOB AS unit_bytes"][: len(frame.unit)]


def _most_of_all(running: RowsCall, collector: Any) -> RowsCall:
    counts = np.flatnonzero(collector.cells.counts)
    return replace(running, limit=query_rows.LIMITS[int(counts.max()) if len(counts) else 0])


NO_LIMIT = Fault(
    "Noise is for the limit on rows that was drawn, and all rows count.",
    ((Frame, "most_of_unit", property(_all_rows)),),
)
ROWS_OF_TWO = Fault(
    "Rows are counted for each value that DuckDB calls equal, which may be two persons.",
    ((rows, "units", _of_pairs),),
)
MOST_OF_ALL = Fault("The limit is the number of rows of the person with most.", ((RowsCall, "after", _most_of_all),))


_all_lattices: Any = vars(MarginsNoise)["all_lattices"].func


def _all_lattices_of_each(part: MarginsNoise) -> Any:
    return _all_lattices(replace(part, epsilon=part.epsilon * len(part.contributions)))


EPSILON_FOR_EACH_SET = Fault(
    "Every grouping set has all of epsilon.", ((MarginsNoise, "all_lattices", property(_all_lattices_of_each)),)
)


def _own_sums(target: CubeTarget, rows: Sums, own: Sums) -> Sums:
    return own


def _of_one_row(part: CubeVector, fine: int) -> int:
    return 1 << fine


OWN_COUNTS_WITH_ONE_NOISE = Fault(
    "Numbers of values that differ have the noise of one shared count.", ((CubeTarget, "sums", _own_sums),)
)
VECTOR_OF_ONE_ROW = Fault(
    "The noise of a vector hides one row, whatever a person may have.", ((CubeVector, "sensitivity", _of_one_row),)
)


def _ends_of_the_data(running: CoreBoundsCall, collector: Any) -> CoreBoundsCall:
    drawn = []
    for counts in collector.inner.cells.counts:
        cells = np.flatnonzero(counts)
        ends = fine_interval(int(cells[0]), int(cells[-1])) if len(cells) else None
        drawn.append(PrivateInterval(ends, 1 << 30, 0))
    return replace(running, private_bounds=tuple(drawn))


def _all_of_a_unit(ticket: str, owner: Any, order: Any, most: Any) -> str:
    return "true"


BOUNDS_OF_THE_DATA = Fault(
    "The bounds of a column are those of its values.", ((CoreBoundsCall, "after", _ends_of_the_data),)
)
ROWS_BEYOND_THE_LIMIT = Fault(
    "All rows of a person count where bounds are drawn.", ((rows, "sampled", _all_of_a_unit),)
)


def _every_cell(count: int) -> Iterator[str]:
    return (f"CASE WHEN v{cell} >= 0.5 THEN 0 END AS v{cell}" for cell in range(count))


CELLS_OVERLAP = Fault("A row counts in every cell whose condition holds.", ((rows, "_exclusive_cells", _every_cell),))
