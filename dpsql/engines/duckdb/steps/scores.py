"""Counts of rows by label and cell of the score: the one statistic that SQL counts by comparing values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpsql.engines.duckdb.keys import text_bytes
from dpsql.engines.duckdb.steps.rows import counted
from dpsql.engines.duckdb.steps.step import Frame, Step, select
from dpsql.functions.score_histogram import ScorePlan
from dpsql.rendering import call, coalesce, field, plus, struct


def counts(frame: Frame) -> Iterator[Step]:
    """Yield the steps that count rows by label and cell; cells without rows are there too.

    Few functions see single rows: rows are grouped by the label, and labels are judged once per group. If the
    levels are texts, labels may be texts as well; they are grouped by their bytes too, so that no collation merges
    two of them.

    The gate's zero is added to every score. It does not change the score (except -0.0 to 0.0), but because it comes
    from a volatile function at run time, DuckDB has no statistics of the sum and cannot decide a comparison with it
    at planning time. It could for any function of the column alone, even `isnan`, when a Parquet file states equal
    minimum and maximum.
    """
    plan = frame.plan
    if not isinstance(plan, ScorePlan):
        raise TypeError("the statistic is of another plan")
    label, score = (field("dpsql_row", name) for name in (plan.layout.target, *(plan.layout.features or ())))
    opaque = plus(f"TRY_CAST({score} AS DOUBLE)", frame.zero)
    yield counted(frame, "rows", frame.ticket, keyed=False)
    note = "Label and score of every row. The gate adds 0 to each score, which hides it from column statistics."
    yield Step("scored", note, select([f"{label} AS label", f"{opaque} AS score"], frame.name("rows")))
    cells, count = plan.cells, plan.cells.count
    [missing] = cells.of(np.array([plan.missing_score])).tolist()
    cell = cells.clipped_sql("score", plan.lower, plan.upper, str(missing))
    texts = isinstance((plan.target_levels or (None,))[0], str)
    exact = [f"{text_bytes('label')} AS exact"] if texts else []
    columns = ["label", *exact, f"{cell} AS cell", f"{call('count_star')} AS s"]
    note = "Count rows by label and by cell of the score's public grid."
    yield Step("groups", note, select(columns, frame.name("scored"), "GROUP BY ALL"))
    target = call("dpsql_target", frame.ticket, struct({plan.layout.target: "label"}))
    note = "Say which of the two public levels a label is; other rows count for nothing."
    yield Step("judged", note, select([f"{target} AS target", "cell", "s"], frame.name("groups")))
    j = f"CASE WHEN target > 0 THEN {plus('cell', str(count))} WHEN target < 0 THEN cell END"
    columns = [f"{j} AS j", f"{call('sum', 's')} AS s"]
    yield Step("counts", "Counts by level and cell.", select(columns, frame.name("judged"), "GROUP BY 1"))
    places = f"{call('range', str(2 * count))} AS places(j)"
    yield Step(
        "statistic",
        "The exact counts, with 0 for a cell without rows. They never leave.",
        select(
            ["places.j", f"{coalesce('s', '0')}::HUGEINT AS s"],
            f"{places} LEFT JOIN {frame.name('counts')} USING (j)",
        ),
    )
