"""Broken orders of rows: DuckDB chooses among those that tie, and among equal values."""

from __future__ import annotations

from typing import Any

from dpsql.contract.query import spellings, stages
from dpsql.engines.duckdb.lineage import orders
from dpsql.engines.duckdb.lineage.rows import Rows
from support.broken.planting import Fault, Patch

# The judge of plans would refuse each of these faults; without it, the rows tell.
UNJUDGED: tuple[Patch, ...] = (
    (Rows, "unfixed_by", lambda rows, function, to_order="": rows),
    (orders, "_with_spelling", lambda expressions: set()),
)
ORDER_AS_WRITTEN = Fault(
    "Rows of a person stand in the order that the caller wrote, and ties as DuckDB reads them.",
    ((stages, "contents", lambda sql, kind: []),),
)
EQUAL_VALUES_AS_READ = Fault(
    "Of equal values the one that was read first stands for all.",
    (
        (stages, "has_one_spelling", lambda kind: True),
        (stages, "one_of_equals", lambda sql, kind: sql),
        (spellings, "has_one_spelling", lambda kind: True),
        (stages, "has_one_spelling", lambda kind: True),
    ),
)


def _of_texts(sql: str, kind: Any) -> list[str]:
    return [sql] if kind.kind != "DOUBLE" else []


ORDER_OF_SOME = Fault("Ties fall to some of the columns that are read.", ((stages, "contents", _of_texts),))
EQUAL_AS_ONE = Fault("Ties fall to columns as DuckDB compares them.", ((stages, "contents", lambda sql, kind: [sql]),))
