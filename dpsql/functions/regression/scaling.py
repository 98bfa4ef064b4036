"""The passes before a fit: private bounds of columns without public ones, and private means and deviations of features.

What a pass released is public for the next one, which maps rows one by one by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.fold import Batch, Collector, RowTransform
from dpsql.contract.plan import Plan, Quantity
from dpsql.kernels.cells import FINE_CELLS
from dpsql.mechanisms import standardisation
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.mechanisms.prefix_bounds import ZEROS, column_losses, draw_bounds, rows_needed
from dpsql.statistics.column_moments import ColumnMoments
from dpsql.statistics.counts import MagnitudeHistogram
from dpsql.statistics.regression import RowMap, Standard

Interval = tuple[float, float]
# The Gaussian part of a measurement, and its shares.
PART, BOUNDS, MOMENTS = "fit", "bounds", "moments"
Inner = TypeVar("Inner", bound=Collector)


class Magnitudes(RowTransform[MagnitudeHistogram]):
    """Histograms of magnitudes, one for each column without public bounds.

    Parameters
    ----------
    plan : Plan
    width : int
        Features whose bounds are drawn.
    target : bool
        Whether those of the target are.
    following : callable
        Takes the bounds of the features and those of the target, each None where undetermined or of zeros alone, and
        returns the next pass. What is not drawn is left out: no features, or None.
    """

    ending = ("_plan", "_following")

    def __init__(
        self,
        plan: Plan,
        width: int,
        target: bool,
        following: Callable[[Sequence[Interval | None], Interval | None], Collector],
    ) -> None:
        super().__init__(MagnitudeHistogram(width, target=target))
        self._plan, self._target, self._following = plan, target, following

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw the bounds."""
        plan, counts = self._plan, self.inner.cells.counts
        drawn: list[Interval | None] = []
        if len(counts):
            part: GaussianNoise = plan.measurement[PART]
            drawn = draw_bounds(
                part,
                BOUNDS,
                counts,
                last=self._target,
                neighbours=plan.neighbours,
                max_rows_per_unit=plan.max_rows_per_unit,
            )
        target = drawn.pop() if self._target else None
        # A feature of zeros tells nothing, and its coefficient would be as large as its interval is narrow.
        return self._following([None if pair == ZEROS else pair for pair in drawn], target)


class KeptFeatures(RowTransform[Inner]):
    """A pass over some of the features: those with bounds. Which these are was released, so they are public."""

    def __init__(self, kept: Sequence[int], inner: Inner) -> None:
        super().__init__(inner)
        self.kept = list(kept)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows."""
        self.inner.add(target, features if len(self.kept) == len(features) else features[self.kept], batch)


class Moments(KeptFeatures[ColumnMoments]):
    """Sums and sums of squares of the features.

    Parameters
    ----------
    plan : Plan
    kept : sequence of int
        Positions of the features with bounds, at least one.
    mapped : RowMap
        The map of these to [-1, 1].
    following : callable
        Takes means and deviations, and returns the next pass.
    """

    ending = ("_plan", "_following")

    def __init__(
        self, plan: Plan, kept: Sequence[int], mapped: RowMap, following: Callable[[Standard], Collector]
    ) -> None:
        super().__init__(kept, ColumnMoments(mapped))
        self._plan, self._following = plan, following

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw means and deviations."""
        return self._following(draw_standard(self._plan, self.inner))


def scaling_numbers(bounds: int, moments: int) -> int:
    """Return how many numbers get Gaussian noise: prefix sums of `bounds` columns, and moments of `moments`."""
    return FINE_CELLS * bounds + 2 * moments + 1


def bounds_needed(plan: Plan, width: int, target: bool) -> list[Quantity]:
    """Return how many rows a feature needs for its bounds to be found, where `width` bounds are drawn."""
    part: GaussianNoise = plan.measurement[PART]
    loss = column_losses(part.mu_of(BOUNDS) ** 2, width, last=target)[0]
    rows = rows_needed(loss, width, plan.neighbours, plan.max_rows_per_unit)
    return [("bounds_rows_needed", rows, "rows from which the bounds of a feature are found in most calls")]


def draw_standard(plan: Plan, moments: ColumnMoments) -> Standard:
    """Draw means and deviations of features."""
    part: GaussianNoise = plan.measurement[PART]
    return standardisation.draw_standard(
        part, MOMENTS, moments.total(), neighbours=plan.neighbours, max_rows_per_unit=plan.max_rows_per_unit
    )
