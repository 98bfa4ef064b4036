"""The parts that measurements are made of: each mechanism with its event, and the one way to sample it.

Those that choose, in place of adding noise to numbers, are in `dpsql.mechanisms.choices`.

A part holds its share of the loss, from which both its event and its noise follow. Where only the rows' types or what
was drawn before tell how many numbers there are, the sensitivity is given with the draw; the loss never is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Integers, Longs
from dpsql.contract.events import (
    Approximate,
    DiscreteLaplace,
    Event,
    GaussianDP,
    SmoothSensitivity,
    additive_noise,
)
from dpsql.contract.measurement import Part, one_of, sampled, take
from dpsql.errors import InternalError
from dpsql.kernels.clipped_rows import ClippedRows
from dpsql.kernels.logistic import SignedRows
from dpsql.mechanisms.ada_ssp import Boosting, LinearFit, ada_ssp, boosted_ada_ssp, boosting
from dpsql.mechanisms.gaussian import GaussianRelease, gaussian_counts, gaussian_release
from dpsql.mechanisms.interval_scan import IntervalNoise, PrivateInterval, interval_scan
from dpsql.mechanisms.objective_perturbation import (
    ObjectiveNoise,
    PerturbedFit,
    objective_event,
    objective_perturbation,
    perturbed_fit,
)
from dpsql.mechanisms.prefix_bounds import Interval, prefix_bounds
from dpsql.mechanisms.prefix_sums import (
    PrefixStrategy,
    PrefixSums,
    gaussian_deviation,
    laplace_scale,
    noisy_prefix_sums,
)
from dpsql.mechanisms.smooth import smooth_area, smooth_medians
from dpsql.mechanisms.standardisation import released_standard
from dpsql.mechanisms.tukey import tukey
from dpsql.noise.discrete import discrete_laplace, laplace_deviation
from dpsql.statistics.regression import Standard

# Share of the loss that the bounds of a target get, over that of a feature's bounds.
TARGET_WEIGHT = Fraction(2)
# Sums whose noise would be wider than the sampler draws are counted in a coarser unit.
_WIDEST = 1 << 48


@dataclass(frozen=True)
class LaplaceNoise(Part):
    """Longs with discrete Laplace noise.

    Attributes
    ----------
    epsilon : Fraction
    l1_sensitivity : Fraction or int or None
        Of all the integers together; None where it is given with the draw.
    """

    epsilon: Fraction
    l1_sensitivity: Fraction | int | None = None

    @property
    def event(self) -> Event:
        """What the ledger records."""
        return DiscreteLaplace(self.epsilon)

    def scale(self, l1_sensitivity: Fraction | int | None = None) -> Fraction:
        """Return the scale of the noise."""
        given = self.l1_sensitivity if l1_sensitivity is None else l1_sensitivity
        if given is None:
            raise InternalError("I032", f"the sensitivity of {self.name} is missing. Report it.")
        return Fraction(given) / self.epsilon

    @sampled
    def draw(self, values: Sequence[int], l1_sensitivity: Fraction | int | None = None) -> list[int]:
        """Return a few integers of any size with noise."""
        noise = discrete_laplace(self.scale(l1_sensitivity), len(values))
        return [int(value) + int(by) for value, by in zip(values, noise, strict=True)]

    @sampled
    def draw_counts(self, counts: Longs, l1_sensitivity: Fraction | int, *, one: int = 1) -> NDArray[np.float64]:
        """Return counts of rows with noise, in rows.

        Parameters
        ----------
        counts : ndarray of int64, shape (k,)
            In units of ``1 / one`` rows, which the noise has, too.
        l1_sensitivity : Fraction or int
            In rows.
        one : int
            A power of two.

        Notes
        -----
        - **Guarantee**: pure `epsilon`-DP: discrete Laplace noise, whose scale is the sensitivity over `epsilon`, both
          in that unit. Only the sum becomes a double.
        """
        noisy = counts + discrete_laplace(self.scale(l1_sensitivity) * one, len(counts))
        return noisy.astype(np.float64) / one


@dataclass(frozen=True)
class SumWithNoise(LaplaceNoise):
    """One sum with Laplace noise; counted in a coarser unit where the noise would be wider than the sampler draws."""

    @property
    def unit(self) -> int:
        """The unit that is counted in, a power of two."""
        return 1 << (math.floor(self.scale()) // _WIDEST).bit_length()

    @property
    def unit_scale(self) -> Fraction:
        """Scale of the noise in that unit: a sum that is rounded down moves by one more."""
        return self.scale() if self.unit == 1 else self.scale() / self.unit + 1 / self.epsilon

    @sampled
    def draw_sum(self, total: int) -> int:
        """Return the sum with noise.

        Notes
        -----
        - **Guarantee**: pure `epsilon`-DP.
        - **Sensitivity**: `l1_sensitivity`; of the sum in units, rounded down, one over the unit of that, plus one.
        """
        return (total // self.unit + int(discrete_laplace(self.unit_scale, 1)[0])) * self.unit


@dataclass(frozen=True)
class ScannedInterval(Part):
    """An interval that holds the bulk of one column, or of each of several disjoint groups of rows.

    The interval of every group costs what that of one costs; see `dpsql.mechanisms.interval_scan`.
    """

    noise: IntervalNoise

    @property
    def event(self) -> Event:
        """What the ledger records."""
        return self.noise.event

    @sampled
    def draw(self, counts: Longs) -> PrivateInterval:
        """Return the interval, from counts of shape (cells,)."""
        return interval_scan(counts, self.noise)

    @sampled
    def draw_groups(self, counts: Longs) -> list[PrivateInterval]:
        """Return the interval of each group, from counts of shape (groups, cells)."""
        return [interval_scan(group, self.noise, alone=False) for group in counts]


@dataclass(frozen=True)
class SmoothNoise(Part):
    """An area or medians by smooth sensitivity; see `dpsql.mechanisms.smooth`."""

    epsilon: Fraction
    neighbours: str
    max_rows_per_unit: int

    @property
    def event(self) -> Event:
        """What the ledger records."""
        return SmoothSensitivity(self.epsilon)

    @sampled
    def draw_area(self, negative: Longs, positive: Longs) -> Fraction:
        """Return the area under the ROC curve."""
        return smooth_area(
            negative,
            positive,
            epsilon=self.epsilon,
            neighbours=self.neighbours,
            max_rows_per_unit=self.max_rows_per_unit,
        )

    @sampled
    def draw_medians(self, counts: Longs, *, count: int) -> list[int]:
        """Return the cells of medians of all rows and of halves."""
        return smooth_medians(
            counts,
            count=count,
            epsilon=self.epsilon,
            neighbours=self.neighbours,
            max_rows_per_unit=self.max_rows_per_unit,
        )


@dataclass(frozen=True)
class CumulativeCounts(Part):
    """Noisy prefix sums of some histograms; see `dpsql.mechanisms.prefix_sums`.

    Attributes
    ----------
    epsilon : Fraction
    delta, mu : Fraction or None
        With them the noise is Gaussian, without them Laplace.
    neighbours : str
    max_rows_per_unit : int
    """

    epsilon: Fraction
    delta: Fraction | None
    mu: Fraction | None
    neighbours: str
    max_rows_per_unit: int

    @property
    def event(self) -> Event:
        """What the ledger records."""
        return additive_noise(self.epsilon, self.mu, self.delta)

    def laplace_scale(self, strategy: PrefixStrategy) -> Fraction:
        """Return the scale of Laplace noise."""
        return laplace_scale(strategy, self.epsilon, self.neighbours, self.max_rows_per_unit)

    def deviation(self, strategy: PrefixStrategy) -> float:
        """Return the standard deviation of the noise on every product, in rows."""
        if self.mu is None:
            found = laplace_deviation(self.laplace_scale(strategy))
        else:
            found = gaussian_deviation(strategy, self.mu, self.neighbours, self.max_rows_per_unit)
        return found * 2.0**-strategy.bits

    @sampled
    def draw(self, counts: Longs, strategy: PrefixStrategy) -> PrefixSums:
        """Return the sums."""
        return noisy_prefix_sums(
            counts,
            strategy=strategy,
            neighbours=self.neighbours,
            max_rows_per_unit=self.max_rows_per_unit,
            epsilon=self.epsilon if self.mu is None else None,
            mu=self.mu,
        )


@dataclass(frozen=True)
class GaussianNoise(Part):
    """Several releases with Gaussian noise that are charged as one: their mu add up in squares.

    Attributes
    ----------
    mu : Fraction
        Of all releases together.
    epsilon, delta : Fraction
        What mu was calibrated for.
    shares : tuple of (str, Fraction)
        The mu of each release, by its name.
    """

    mu: Fraction
    epsilon: Fraction
    delta: Fraction
    shares: tuple[tuple[str, Fraction], ...]

    @property
    def event(self) -> Event:
        """What the ledger records."""
        return GaussianDP(self.mu, self.epsilon, self.delta)

    def draws(self, share: str) -> int:
        """Return how often a release may be sampled: each once."""
        return one_of([name for name, _ in self.shares], share)

    def mu_of(self, share: str) -> Fraction:
        """Return the mu of one release."""
        return dict(self.shares)[share]

    def draw_counts(self, share: str, counts: Integers, *, squared_sensitivity: int, one: int = 1) -> GaussianRelease:
        """Return counts with noise; see `dpsql.mechanisms.gaussian.gaussian_counts`."""
        take(self, share)
        squared_mu = self.mu_of(share) ** 2
        return gaussian_counts(counts, squared_sensitivity=squared_sensitivity, squared_mu=squared_mu, one=one)

    def draw_sums(self, share: str, sums: Integers, *, squared_sensitivity: Fraction) -> GaussianRelease:
        """Return integers with noise; see `dpsql.mechanisms.gaussian.gaussian_release`."""
        take(self, share)
        sensitivity = math.isqrt(math.ceil(squared_sensitivity) - 1) + 1  # the root, rounded up
        return gaussian_release(sums, sensitivity=sensitivity, squared_mu=self.mu_of(share) ** 2)

    def draw_bounds(
        self, share: str, counts: Longs, *, last: bool, neighbours: str, max_rows_per_unit: int
    ) -> list[Interval | None]:
        """Return intervals; see `dpsql.mechanisms.prefix_bounds.prefix_bounds`.

        Parameters
        ----------
        last : bool
            Whether the last column is the target, without which there is no model: it gets `TARGET_WEIGHT` times as
            much of ``mu**2`` as another column.
        """
        take(self, share)
        return prefix_bounds(
            counts,
            squared_mus=self.bounds_losses(share, len(counts), last=last),
            neighbours=neighbours,
            max_rows_per_unit=max_rows_per_unit,
        )

    def bounds_losses(self, share: str, width: int, *, last: bool) -> list[Fraction]:
        """Return the share of ``mu**2`` of the bounds of each column; parameters as for `draw_bounds`."""
        weights = [Fraction(1)] * width
        if last:
            weights[-1] = TARGET_WEIGHT
        each = self.mu_of(share) ** 2 / sum(weights)
        return [weight * each for weight in weights]

    def draw_standard(self, share: str, moments: Integers, *, neighbours: str, max_rows_per_unit: int) -> Standard:
        """Return means and deviations; see `dpsql.mechanisms.standardisation.released_standard`."""
        take(self, share)
        return released_standard(
            moments,
            squared_mu=self.mu_of(share) ** 2,
            neighbours=neighbours,
            max_rows_per_unit=max_rows_per_unit,
        )

    def draw_fit(
        self, share: str, products: Integers, *, radius: int, neighbours: str, max_rows_per_unit: int
    ) -> LinearFit:
        """Return a fit; see `dpsql.mechanisms.ada_ssp.ada_ssp`."""
        take(self, share)
        return ada_ssp(
            products,
            radius=radius,
            mu=self.mu_of(share),
            neighbours=neighbours,
            max_rows_per_unit=max_rows_per_unit,
        )

    def draw_boosted(
        self,
        share: str,
        rows: ClippedRows,
        gram: Integers,
        *,
        radius: int,
        rounds: int,
        split: str,
        neighbours: str,
        max_rows_per_unit: int,
        progress: Callable[[float], None] | None,
    ) -> LinearFit:
        """Return a boosted fit; see `dpsql.mechanisms.ada_ssp.boosted_ada_ssp`."""
        take(self, share)
        return boosted_ada_ssp(
            rows,
            gram,
            radius=radius,
            mu=self.mu_of(share),
            neighbours=neighbours,
            rounds=rounds,
            split=split,
            max_rows_per_unit=max_rows_per_unit,
            progress=progress,
        )

    def start_boosting(
        self,
        share: str,
        gram: Integers,
        *,
        radius: int,
        rounds: int,
        split: str,
        neighbours: str,
        max_rows_per_unit: int,
    ) -> Boosting:
        """Return a boosted fit that asks for the products of each round; see `dpsql.mechanisms.ada_ssp.boosting`."""
        take(self, share)
        return boosting(
            gram,
            radius=radius,
            mu=self.mu_of(share),
            neighbours=neighbours,
            rounds=rounds,
            split=split,
            max_rows_per_unit=max_rows_per_unit,
        )


@dataclass(frozen=True)
class DeepModel(Part):
    """A point that is deep among models; see `dpsql.mechanisms.tukey`.

    Attributes
    ----------
    epsilon, delta : Fraction
        What is charged.
    budget : tuple of (Fraction, Fraction)
        Of that, epsilon and delta when one of the models is replaced.
    """

    epsilon: Fraction
    delta: Fraction
    budget: tuple[Fraction, Fraction]

    @property
    def event(self) -> Event:
        """What the ledger records."""
        return Approximate(self.epsilon, self.delta, "tukey")

    @sampled
    def draw(self, models: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Return the point; None where the test does not pass."""
        epsilon, delta = self.budget
        return tukey(models, epsilon_test=epsilon / 2, epsilon_draw=epsilon / 2, delta=delta)


@dataclass(frozen=True)
class PerturbedObjective(Part):
    """A fit whose objective is perturbed; see `dpsql.mechanisms.objective_perturbation`.

    Attributes
    ----------
    epsilon : Fraction
    delta : Fraction
        0 where the perturbation is not normal.
    """

    epsilon: Fraction
    delta: Fraction

    @property
    def event(self) -> Event:
        """What the ledger records."""
        return objective_event(self.epsilon, self.delta)

    def covers(self, other: Part) -> bool:
        """Whether `other` is this part, or the same without normal noise, which spends no delta."""
        return other in (self, replace(self, delta=Fraction(0)))

    def spent(self, noise: ObjectiveNoise) -> PerturbedObjective:
        """Return what sampling some calibrated noise spends."""
        return replace(self, epsilon=noise.epsilon, delta=noise.delta)

    @sampled
    def draw(
        self, rows: SignedRows, noise: ObjectiveNoise, *, tick: Callable[[], object] | None
    ) -> NDArray[np.float64]:
        """Return the coefficients, from noise that this part pays for."""
        self._check(noise)
        return objective_perturbation(rows, noise, tick=tick)

    @sampled
    def start(self, width: int, noise: ObjectiveNoise) -> PerturbedFit:
        """Return a fit that asks for the sums of the rows, from noise that this part pays for."""
        self._check(noise)
        return perturbed_fit(noise, width)

    def _check(self, noise: ObjectiveNoise) -> None:
        if not self.covers(self.spent(noise)):
            raise InternalError("I034", f"{self.name} was calibrated for another loss. Report it.")
