"""Laplace noise on integers: discrete, and as exact as the sampler."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Longs
from dpsql.contract.events import DiscreteLaplace, Event
from dpsql.contract.measurement import Part, sampled
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError
from dpsql.noise.discrete import discrete_laplace

# Sums with noise too wide for the sampler use a coarser unit.
_WIDEST = 1 << 48


@dataclass(frozen=True)
class LaplaceNoise(Part):
    """Integers with discrete Laplace noise.

    Attributes
    ----------
    epsilon : Fraction
    l1_sensitivity : Fraction or int or None
        Of all integers together; None if the draw gets it.
    """

    epsilon: Fraction
    l1_sensitivity: Fraction | int | None = None

    @property
    def event(self) -> Event:
        """Event for the ledger."""
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
            In units of ``1 / denominator`` rows, as the noise.
        l1_sensitivity : Fraction or int
            In rows.
        denominator : int
            A power of two.

        Notes
        -----
        - **Guarantee**: pure `epsilon`-DP: discrete Laplace noise. Its scale is the sensitivity over `epsilon`, in that
          unit. Only the sum becomes a double.
        """
        noisy = counts + discrete_laplace(self.scale(l1_sensitivity) * denominator, len(counts))
        return noisy.astype(np.float64) / denominator


@dataclass(frozen=True)
class SumWithNoise(LaplaceNoise):
    """One sum with Laplace noise; it uses a coarser unit if the noise is too wide for the sampler."""

    @property
    def unit(self) -> int:
        """The unit of the sum, a power of two."""
        return 1 << (math.floor(self.scale()) // _WIDEST).bit_length()

    @property
    def unit_scale(self) -> Fraction:
        """Scale of the noise in that unit: rounding a sum down adds one to its move."""
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
        - **Sensitivity**: `l1_sensitivity`; for the rounded-down sum in units, that over the unit, plus one.
        """
        return (total // self.unit + int(discrete_laplace(self.unit_scale, 1)[0])) * self.unit
