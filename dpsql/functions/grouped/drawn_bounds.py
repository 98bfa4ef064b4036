"""Private bounds of columns: the pass that counts rows by magnitude, and the plans of functions that draw them.

Of columns without public bounds, for functions of one call, the first pass draws an interval for each; in a query of
plain SQL one part draws them for all others of its core (`dpsql.functions.query_bounds`). The rows of all groups count
together, and of each privacy unit as many as its limits leave.

What the pass released is public for the next one, which clips rows one by one to it. Both parts add up: the bounds
cost `bounds_share` of epsilon, and what is drawn with them costs the rest. The ends of the data would not be private.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from dpsql.contract.arguments import share
from dpsql.contract.fold import Batch, RowTransform
from dpsql.contract.parameters import narrow
from dpsql.contract.plan import Pass, Quantity
from dpsql.functions.grouped.plan import GroupedCall, GroupedPlan
from dpsql.kernels.columns import to_doubles
from dpsql.mechanisms.interval_scan import IntervalNoise, PrivateInterval, ScannedInterval
from dpsql.statistics.counts import MagnitudeHistogram

BOUNDS_SHARE = share(
    "bounds_share",
    "Share of epsilon spent on private bounds where none are given, between 0 and 1.",
    0.25,
    hint="0.25 is usual.",
)
# The bounds that values have in place of private ones: before these are drawn, and where they are not determined.
UNIT_BOUNDS = -1.0, 1.0
# Chance that one of the two claims about a found interval is false.
BOUNDS_FAILURE = Fraction(1, 100)


def are_missing(arguments: Mapping[str, object]) -> bool:
    """Whether neither bound is given; one alone is a mistake."""
    return arguments["lower"] is None and arguments["upper"] is None


def read_share(arguments: Mapping[str, object]) -> Fraction:
    """Return the checked share of epsilon for private bounds; the usual one where none is given."""
    return narrow(Fraction, BOUNDS_SHARE.read({BOUNDS_SHARE.name: BOUNDS_SHARE.default, **arguments}))


def bounds_noise(epsilon: Fraction, neighbours: str, max_rows_per_unit: int, *, tails: bool) -> IntervalNoise:
    """Return the noise of the bounds of one column; with tails where values are clipped to them."""
    return IntervalNoise(epsilon, neighbours, max_rows_per_unit, BOUNDS_FAILURE, tails)


class ValueCode(NamedTuple):
    """How the values of a column are coded within drawn bounds, on its way into a statement.

    Attributes
    ----------
    lower, upper : float
        To which they are clipped.
    middle, scale : float
        A value x becomes the integer below ``(x - middle) * scale``, or rounded to it, as the statement says.
    low, high : int
        The least and the greatest of these.
    """

    lower: float
    upper: float
    middle: float
    scale: float
    low: int
    high: int


# Of a column that is only counted.
NO_CODE = ValueCode(0.0, 0.0, 0.0, 0.0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class DrawnBoundsPlan(GroupedPlan):
    """The plan of a function that draws the bounds of its columns where none are given."""

    bounds_share: Fraction | None  # of all columns together; None where no bounds are drawn

    clips: ClassVar[bool] = False  # whether values are clipped to the bounds and added up

    @property
    def draws_bounds(self) -> bool:
        """Whether the bounds of the columns are private."""
        return self.bounds_share is not None

    def is_drawn(self, position: int) -> bool:
        """Whether the bounds of a target are drawn before its values are coded."""
        return self.draws_bounds

    def _passes(self) -> tuple[Pass, ...]:
        """Return the passes of the statistic, after one that draws bounds where these are private."""
        following = super()._passes()
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
        return bounds_noise(self.bounds_epsilon / columns, self.neighbours, self.contribution.rows, tails=self.clips)

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


class TargetMagnitudes(RowTransform[MagnitudeHistogram]):
    """The pass that finds bounds: the rows by the universal cells of each column."""

    def __init__(self, columns: int) -> None:
        super().__init__(MagnitudeHistogram(columns, target=False))
        self._columns = columns

    def take(self, rows: pa.StructArray, batch: Batch) -> None:
        """Take in a batch of rows, of which each has the values of all columns."""
        values = np.empty((self._columns, len(rows)))
        for position in range(self._columns):
            values[position] = to_doubles(rows.field(position))
        self.add(np.zeros(len(rows)), values, batch)


def drawn_of(parts: Sequence[ScannedInterval], magnitudes: TargetMagnitudes) -> tuple[PrivateInterval, ...]:
    """Draw the bounds of each column at the end of the pass that counts its rows by magnitude; `parts` say how."""
    counts = magnitudes.inner.cells.counts
    return tuple(part.draw(column) for part, column in zip(parts, counts, strict=True))


class DrawnBoundsCall(GroupedCall):
    """A call whose values are coded within drawn bounds, where no public ones are given."""

    @property
    @abstractmethod
    def drawn_codes(self) -> Sequence[ValueCode]:
        """How they are coded, once the bounds were drawn."""
