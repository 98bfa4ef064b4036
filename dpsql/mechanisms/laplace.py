"""Laplace noise on integers: discrete, and as exact as the sampler is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Longs
from dpsql.contract.events import DiscreteLaplace, Event
from dpsql.contract.measurement import Part, sampled
from dpsql.errors import InternalError
from dpsql.noise.discrete import discrete_laplace

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
        sensitivity = self.l1_sensitivity if l1_sensitivity is None else l1_sensitivity
        if sensitivity is None:
            raise InternalError("I032", f"the sensitivity of {self.name} is missing. Report it.")
        return Fraction(sensitivity) / self.epsilon

    @sampled
    def draw(self, values: Sequence[int], l1_sensitivity: Fraction | int | None = None) -> list[int]:
        """Return a few integers of any size with noise."""
        noise = discrete_laplace(self.scale(l1_sensitivity), len(values))
        return [int(value) + int(by) for value, by in zip(values, noise, strict=True)]

    @sampled
    def draw_counts(
        self, counts: Longs, l1_sensitivity: Fraction | int, *, denominator: int = 1
    ) -> NDArray[np.float64]:
        """Return counts of rows with noise, in rows.

        Parameters
        ----------
        counts : ndarray of int64, shape (k,)
            In units of ``1 / denominator`` rows, which the noise has, too.
        l1_sensitivity : Fraction or int
            In rows.
        denominator : int
            A power of two.

        Notes
        -----
        - **Guarantee**: pure `epsilon`-DP: discrete Laplace noise, whose scale is the sensitivity over `epsilon`, both
          in that unit. Only the sum becomes a double.
        """
        noisy = counts + discrete_laplace(self.scale(l1_sensitivity) * denominator, len(counts))
        return noisy.astype(np.float64) / denominator


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

    @property
    def width(self) -> Fraction:
        """Scale of the noise in the sum itself."""
        return self.unit_scale * self.unit

    @sampled
    def draw_sum(self, total: int) -> int:
        """Return the sum with noise.

        Notes
        -----
        - **Guarantee**: pure `epsilon`-DP.
        - **Sensitivity**: `l1_sensitivity`; of the sum in units, rounded down, one over the unit of that, plus one.
        """
        return (total // self.unit + int(discrete_laplace(self.unit_scale, 1)[0])) * self.unit
