"""The limit on a person's rows that a query draws: the 99th percentile of the rows per person of a core.

How many rows of a person count decides more than noise: a small limit leaves rows out, which no interval holds, and a
large one adds noise. The number of each person's rows is one value of one row of that person, so a quantile of them
moves as any quantile of a table with one row per person does. Numbers are told apart up to steps of a fourth root of
two, and what is drawn is the upper end of a step; so most people have no more.

What is drawn is public from then on, and the other parts of the core have it as their limit: mechanisms that are
chosen by it, which cost what they would cost with a stated one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, TypeVar

from dpsql.contract.fold import Collector, Ignoring
from dpsql.contract.json import Json
from dpsql.contract.measurement import Draw
from dpsql.contract.plan import Pass, Plan, Quantity
from dpsql.contract.relation import Contribution
from dpsql.errors import InternalError
from dpsql.functions.grouped.plan import GroupedPlan
from dpsql.functions.grouped.quantile import QuantileCall, QuantilePlan
from dpsql.progress import Progress
from dpsql.rendering import double
from dpsql.statistics.counts import GridHistogram

# What a call gives in place of a number, and the share of its epsilon that draws it.
DRAWN, SHARE = "drawn", Fraction(1, 20)
AT = 0.99
# The limits that may be drawn, ascending; no query needs more rows of one person.
MOST_ROWS = 1 << 16
LIMITS = tuple(sorted({math.ceil(2 ** (step / 4)) for step in range(4 * 16 + 1)}))
# A limit is at most so many times what the owner stated. Where there are few people, or little epsilon, any limit may
# be drawn; the noise is then wider by this at most.
_TIMES = 16
# The column of the steps of persons' numbers of rows.
STEPS = "dpsql_rows"
_Limited = TypeVar("_Limited", bound=Plan)


def limits_up_to(stated: object) -> tuple[int, ...]:
    """Return the limits that may be drawn where the owner stated one: a draw that fails is no further from it."""
    most = MOST_ROWS if not isinstance(stated, int) else _TIMES * stated
    return tuple(one for one in LIMITS if one <= most)


def step_of(number: str, limits: int) -> str:
    """Return SQL of the step of a number of rows, the middle of its cell; the last one holds all larger numbers."""
    known = enumerate(LIMITS[: limits - 1])
    cases = " ".join(f"WHEN {number} <= {most} THEN {double(at + 0.5)}" for at, most in known)
    last = double(limits - 0.5)
    return f"CASE {cases} ELSE {last} END" if cases else last


@dataclass(frozen=True, kw_only=True)
class RowsPlan(QuantilePlan):
    """The plan of the part that draws how many rows of a person count."""

    function: ClassVar[str] = "dp_query.rows"

    def _passes(self) -> tuple[Pass, ...]:
        """Return the pass over the persons; after it the limit is drawn, before any other part reads a row."""
        [one] = super()._passes()
        return (one, replace(one, reads_rows=False))

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return of how many persons the drawn limit may leave rows out, beside the share that it is to."""
        return [("persons_off", self.ranks, "persons by which the drawn limit on rows is off, in 95 % of calls")]


@dataclass(frozen=True)
class RowsCall(QuantileCall):
    """A call that draws the limit.

    Attributes
    ----------
    limit : int or None
        The rows of a person that count, once they were drawn.
    """

    plan: RowsPlan
    limit: int | None = None

    def after(self, collector: Collector) -> RowsCall:
        """Draw the limit; return the call that knows it.

        Notes
        -----
        - **Guarantee**: pure DP at ``plan.epsilon``, see `dpsql.mechanisms.quantile.quantiles`.
        - **Sensitivity**: as there; a privacy unit has one row.
        """
        if not isinstance(collector, GridHistogram):
            return self
        cells = collector.cells
        [found] = self.plan.selection.draw_tied(cells.counts)
        step = min(max(math.floor(cells.middle(found)), 0), (self.plan.cells or 1) - 1)
        return replace(self, limit=LIMITS[step])

    def turn(self, collector: Collector, progress: Progress) -> Collector:
        """Return the end of the part: no row is read again."""
        return Ignoring()

    def prepare(self, statistic: object, progress: Progress) -> Callable[[], Json] | Draw:
        """Return what was drawn."""
        if self.limit is None:
            raise InternalError("I032", "the rows of a person were not drawn. Report it.")
        record: dict[str, Json] = {"rows": self.limit}
        return lambda: record


def limited(plan: _Limited, rows: int) -> _Limited:
    """Return a plan whose units have so many rows; where one alone counts in a group, one still does.

    In one group of all rows that is one row of a unit, whatever is drawn: a person counts once among different persons.
    The largest limit that may be drawn is more than one row, so nothing but a limit of a group makes it one.
    """
    if not isinstance(plan, GroupedPlan) or plan.layout.privacy_unit is None:
        raise InternalError("I032", "the rows of a part have no limit. Report it.")
    keys = plan.public_keys
    count = None if keys is None else keys.count
    each = 1 if plan.rows_per_group == 1 else None
    found = Contribution.of("add_remove", rows, None, each, key_count=count)
    return replace(plan, max_rows_per_unit=found.rows, groups=found.groups, rows_per_group=found.rows_per_group)
