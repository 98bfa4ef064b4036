"""The quantiles of a core of dp_query: those of `dp_quantile`, with intervals for any confidence.

A column of a query that is made of j numbers takes each of them within an interval that fails with a j-th of the
chance. What is released has an interval for each j of a few; all are functions of the same noisy counts, so they cost
nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from dpsql.contract.arguments import Signature
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.functions.grouped.arguments import CONFIDENCE
from dpsql.functions.grouped.quantile import QuantileCall, QuantilePlan
from dpsql.functions.query_bounds import Intervals, WaitingCall

# Of so many numbers at most a column with a quantile in it has an interval.
MOST_NUMBERS = 6


@dataclass(frozen=True, kw_only=True)
class CoreQuantilePlan(QuantilePlan):
    """The plan of the quantiles of one column of a core."""

    confidence: float

    function: ClassVar[str] = "dp_query.quantile"
    arguments: ClassVar[Signature] = Signature(*QuantilePlan.arguments.values(), CONFIDENCE)

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        """Return the checked arguments; bounds that are missing are drawn by another part."""
        return {**super()._own(given, layout), **cls._read(given, "confidence"), "bounds_share": None}

    @property
    def failures(self) -> tuple[float, ...]:
        """The chances with which intervals may fail, for columns that are made of 1, 2 and more numbers."""
        return tuple((1.0 - float(self.confidence)) / numbers for numbers in range(1, MOST_NUMBERS + 1))


@dataclass(frozen=True)
class CoreQuantileCall(QuantileCall, WaitingCall):
    """A call of the quantiles of one column of a core."""

    plan: CoreQuantilePlan

    def within(self, found: Intervals) -> Self:
        """Return the call that knows the bounds of its column."""
        return replace(self, drawn=found[self.plan.target])

    def _without_bounds(self, record: dict[str, Json]) -> Callable[[], Json]:
        """Return the end of a part whose bounds were not found: what the query is charged does not depend on it."""
        return lambda: record
