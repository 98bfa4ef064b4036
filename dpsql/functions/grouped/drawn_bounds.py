"""Private bounds of columns: the pass that counts rows by magnitude, and the plans of functions that need the bounds.

In functions of one call, the first pass draws one interval for each column without public bounds. In a plain SQL
query, one part draws the intervals for all other parts of its core (`dpsql.functions.query_bounds`). Rows of all
groups count together, and each privacy unit counts as many rows as its limits allow.

The released bounds are public in the next pass, which clips every row to them. The costs add up: the bounds cost
`bounds_share` of epsilon, and the later draws cost the rest. The exact ends of the data would not be private.
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
# Stand-ins for private bounds: before they are drawn, and if the draw does not determine them.
UNIT_BOUNDS = -1.0, 1.0
# Chance that one of the two claims about a private interval is false.
BOUNDS_FAILURE = Fraction(1, 100)


def are_missing(arguments: Mapping[str, object]) -> bool:
    """Return whether both bounds are missing; one bound alone is a mistake."""
    return arguments["lower"] is None and arguments["upper"] is None


def read_share(arguments: Mapping[str, object]) -> Fraction:
    """Return the checked share of epsilon for private bounds, or its default."""
    return narrow(Fraction, BOUNDS_SHARE.read({BOUNDS_SHARE.name: BOUNDS_SHARE.default, **arguments}))


def bounds_noise(epsilon: Fraction, neighbours: str, max_rows_per_unit: int, *, tails: bool) -> IntervalNoise:
    """Return the noise of the bounds of one column; with tails if values are clipped to them."""
    return IntervalNoise(epsilon, neighbours, max_rows_per_unit, BOUNDS_FAILURE, tails)


class ValueCode(NamedTuple):
    """The coding of a column's values within private bounds, for a statement.

    Attributes
    ----------
    lower, upper : float
        Bounds that clip the values.
    middle, scale : float
        A value x becomes ``(x - middle) * scale``, rounded down or to nearest, as the statement says.
    low, high : int
        The least and the greatest code.
    """

    lower: float
    upper: float
    middle: float
    scale: float
    low: int
    high: int


# For a column that is only counted.
NO_CODE = ValueCode(0.0, 0.0, 0.0, 0.0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class DrawnBoundsPlan(GroupedPlan):
    """The plan of a function that draws the bounds of its columns if they are missing."""

    bounds_share: Fraction | None  # of all columns together; None if no bounds are drawn

    clips: ClassVar[bool] = False  # whether values are clipped to the bounds and added up

    @property
    def draws_bounds(self) -> bool:
        """Whether the bounds of the columns are private."""
        return self.bounds_share is not None

    def is_drawn(self, position: int) -> bool:
        """Return whether the bounds of a target are drawn before its values are coded."""
        return self.draws_bounds

    def _passes(self) -> tuple[Pass, ...]:
        """Return the passes of the statistic, after a pass for private bounds if needed."""
        following = super()._passes()
        return (following[0], *following) if self.draws_bounds else following

    @cached_property
    def bounds_epsilon(self) -> Fraction:
        """Epsilon spent on private bounds; 0 for public bounds."""
        return Fraction(0) if self.bounds_share is None else self.epsilon * self.bounds_share

    @cached_property
    def remaining_epsilon(self) -> Fraction:
        """Epsilon that remains for draws within the bounds."""
        return self.epsilon - self.bounds_epsilon

    @cached_property
    def bounds_noise(self) -> IntervalNoise:
        """The noise of the private bounds of one column: all rows of a unit within its limits count."""
        columns = len(self.targets) or 1
        return bounds_noise(self.bounds_epsilon / columns, self.neighbours, self.contribution.rows, tails=self.clips)

    @property
    def bounds_scales(self) -> Iterable[Fraction]:
        """The scales of the noise of private bounds; empty for public bounds."""
        return self.bounds_noise.scales if self.draws_bounds else ()

    @property
    def bounds_needed(self) -> Quantity:
        """Number of rows from which bounds of a column are found."""
        return (
            "bounds_rows_needed",
            float(self.bounds_noise.rows_needed),
            "rows with a value from which bounds are found, but for noise",
        )


class TargetMagnitudes(RowTransform[MagnitudeHistogram]):
    """The pass that finds bounds: it counts rows by the universal cells of each column."""

    def __init__(self, columns: int) -> None:
        super().__init__(MagnitudeHistogram(columns, target=False))
        self._columns = columns

    def take(self, rows: pa.StructArray, batch: Batch) -> None:
        """Add a batch of rows; each row has the values of all columns."""
        values = np.empty((self._columns, len(rows)))
        for position in range(self._columns):
            values[position] = to_doubles(rows.field(position))
        self.add(np.zeros(len(rows)), values, batch)


def drawn_of(parts: Sequence[ScannedInterval], magnitudes: TargetMagnitudes) -> tuple[PrivateInterval, ...]:
    """Draw the bounds of each column with its part in `parts`, after the pass that counts rows by magnitude."""
    counts = magnitudes.inner.cells.counts
    return tuple(part.draw(column) for part, column in zip(parts, counts, strict=True))


class DrawnBoundsCall(GroupedCall):
    """A call that codes values within private bounds if public bounds are missing."""

    @property
    @abstractmethod
    def drawn_codes(self) -> Sequence[ValueCode]:
        """The code of each column, after the bounds were drawn."""
