"""Private bounds of columns without public ones, for functions of one call: the first pass draws them.

What the pass released is public for the next one, which clips rows one by one to it. Both parts add up: the bounds
cost `bounds_share` of epsilon, and what is drawn with them costs the rest. The ends of the data would not be private.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dpsql.contract.arguments import share
from dpsql.contract.parameters import known
from dpsql.contract.passes import Pass
from dpsql.contract.plan import Quantity
from dpsql.functions.grouped.plan import GroupedPlan
from dpsql.mechanisms.interval_scan import IntervalNoise

BOUNDS_SHARE = share(
    "bounds_share",
    "Share of epsilon spent on private bounds where none are given, between 0 and 1.",
    0.25,
    hint="0.25 is usual.",
)
# Chance that one of the two claims about a found interval is false.
BOUNDS_FAILURE = Fraction(1, 100)


def are_missing(given: Mapping[str, object]) -> bool:
    """Whether neither bound is given; one alone is a mistake."""
    return given["lower"] is None and given["upper"] is None


def read_share(given: Mapping[str, object]) -> Fraction:
    """Return the checked share of epsilon for private bounds."""
    return known(Fraction, BOUNDS_SHARE.read(given))


def bounds_noise(epsilon: Fraction, neighbours: str, max_rows_per_unit: int) -> IntervalNoise:
    """Return the noise of the bounds of one column."""
    return IntervalNoise(epsilon, neighbours, max_rows_per_unit, BOUNDS_FAILURE)


@dataclass(frozen=True, kw_only=True)
class DrawnBoundsPlan(GroupedPlan):
    """The plan of a function that draws the bounds of its columns where none are given."""

    bounds_share: Fraction | None  # of all columns together; None where no bounds are drawn

    @property
    def draws_bounds(self) -> bool:
        """Whether the bounds of the columns are private."""
        return self.bounds_share is not None

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes of the statistic, after one that draws bounds where these are private."""
        following = super().passes
        return (following[0], *following) if self.draws_bounds else following

    @cached_property
    def bounds_epsilon(self) -> Fraction:
        """Epsilon spent on private bounds; 0 with public ones."""
        return Fraction(0) if self.bounds_share is None else self.epsilon * self.bounds_share

    @cached_property
    def remaining_epsilon(self) -> Fraction:
        """Epsilon that is left for what is drawn within the bounds."""
        return self.epsilon - self.bounds_epsilon

    @cached_property
    def bounds_noise(self) -> IntervalNoise:
        """The noise of the private bounds of one column: all rows of a unit count that its limits leave."""
        columns = len(self.targets) or 1
        return bounds_noise(self.bounds_epsilon / columns, self.neighbours, self.contribution.rows)

    @property
    def bounds_scales(self) -> Iterable[Fraction]:
        """The scales of the noise of private bounds; none with public ones."""
        return self.bounds_noise.scales if self.draws_bounds else ()

    @property
    def bounds_needed(self) -> Quantity:
        """How many rows a column needs for its bounds to be found."""
        return (
            "bounds_rows_needed",
            float(self.bounds_noise.rows_needed),
            "rows with a value from which bounds are found, but for noise",
        )
