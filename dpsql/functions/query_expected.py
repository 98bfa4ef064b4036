"""The expected cost and noise of a query, from public arguments alone, before dpsql reads anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpsql.contract.query.split import QueryAggregate, Split
from dpsql.dataclass import dataclass
from dpsql.functions.grouped.aggregate import AggregatePlan
from dpsql.functions.grouped.quantile import QuantilePlan
from dpsql.functions.query import MarginsPlan, QueryPart, QueryPlan
from dpsql.functions.query_rows import ExtremesPlan, RowsPlan, limited
from dpsql.mechanisms.aggregates import expected_block
from dpsql.released.covariance import estimates, rows_needed
from dpsql.statistics.aggregates import COUNT, SUM

# Errors of averages and deviations are for a group of so many rows, half of them at each bound.
_ROWS = 1000
_TOLD_OF_PARTS = ("least_count", "epsilon_needed", "persons_off", "bounds_rows_needed")


@dataclass(frozen=True)
class Expected:
    """One line of the expected cost and noise.

    Attributes
    ----------
    column : str or None
        Column of the result; None for the query as a whole.
    quantity : str
    value : float or None
        None if it depends on the rows.
    meaning : str
    """

    column: str | None
    quantity: str
    value: float | None
    meaning: str


def expected(plan: QueryPlan | None, split: Split, answers: Sequence[Mapping[str, Any]]) -> list[Expected]:
    """Return the cost of a query and the noise of each of its columns.

    Parameters
    ----------
    plan : QueryPlan or None
        None for a query that reads no row of people.
    split : Split
    answers : sequence of mapping
        Places of the answers of each core, see `dpsql.functions.query_parts.Answers`.
    """
    if plan is None:
        return [Expected(None, "epsilon", 0.0, "nothing is charged: no row of people is read")]
    cost = plan.measurement.event.cost
    lines = [Expected(None, "epsilon", float(cost.epsilon or plan.epsilon), "privacy loss charged, basic composition")]
    if cost.delta:
        lines.append(Expected(None, "delta", float(cost.delta), "chance that the guarantee fails"))
    for part in plan.parts:
        if part.rows_of is None:
            times = float(plan.epsilon / part.plan.epsilon)  # for epsilon of the whole query
            lines += [
                Expected(None, quantity, amount * (times if quantity == "epsilon_needed" else 1.0), meaning)
                for quantity, amount, meaning in part.plan.noise(0, None)
                if quantity in _TOLD_OF_PARTS
            ]
    where = {
        (core.name, aggregate.name): (aggregate, answer)
        for core, listed in zip(split.cores, answers, strict=True)
        for aggregate, answer in zip(core.aggregates, listed["answers"], strict=True)
    }
    for (name, _), numbers in zip(split.columns, split.noisy, strict=False):  # errors follow the columns
        for number in dict.fromkeys(numbers):
            aggregate, answer = where[number]
            for quantity, value, meaning in _noise(aggregate, answer, plan.parts[answer["part"]]):
                beside = f"; the column has {len(set(numbers))} such numbers" if len(set(numbers)) > 1 else ""
                lines.append(Expected(name, quantity, value, f"{meaning}{beside}"))
    return list(dict.fromkeys(lines))


def _noise(
    aggregate: QueryAggregate, answer: Mapping[str, Any], part: QueryPart
) -> Iterator[tuple[str, float | None, str]]:
    """Yield the expected errors of one number of a core."""
    plan, remark = part.plan, ""
    if part.rows_of is not None and not isinstance(plan, RowsPlan):
        remark = ", times the limit on rows that is drawn" if limited(plan, 2).max_rows_per_unit > 1 else ""
        plan = limited(plan, 1)
    if isinstance(plan, ExtremesPlan):
        yield from plan.noise(0, None)
    elif isinstance(plan, QuantilePlan):
        whose = "rows of its group" if plan.by else "rows"
        yield "rank_error", plan.ranks, f"{whose} that a quantile is off by, in 95 % of calls{remark}"
    elif not isinstance(plan, AggregatePlan) or "aggregate" not in answer:
        yield "std_error", None, f"of {aggregate.kind}: it depends on the rows"
    else:
        yield from _deviation(aggregate, answer, plan, remark)


def _deviation(
    aggregate: QueryAggregate, answer: Mapping[str, Any], plan: AggregatePlan, remark: str
) -> Iterator[tuple[str, float | None, str]]:
    if isinstance(plan, MarginsPlan):
        laws = list(zip(plan.part.blocks, plan.part.all_lattices[answer["set"]], strict=True))
        remark = f", before sets are fitted to each other{remark}"
    else:
        laws = plan.target_laws
    block, lattice = laws[answer["place"]]
    name = answer["aggregate"]
    kind = "stddev" if aggregate.kind.startswith("stddev") else name
    error = float(estimates(expected_block(block, lattice, _ROWS), (kind,), ddof=answer["ddof"])[kind].std_error[0])
    what = "count" if name == COUNT else aggregate.kind
    meaning = f"standard deviation of the noise on {what}"
    if name not in (COUNT, SUM):
        meaning += f" of {_ROWS} rows, half of them at each bound"
    if name != COUNT and plan.is_drawn(answer["place"]):
        meaning += ", in half widths of the bounds that are drawn"
    yield "std_error", error, f"{meaning}{remark}"
    if name not in (COUNT, SUM):
        needed = rows_needed(block, lattice, kind, confidence=float(plan.confidence))
        meaning = f"rows that a group needs for its {what} not to be NULL in half of calls"
        yield "rows_needed", needed, f"{meaning}{remark}; half as many at twice the epsilon"
