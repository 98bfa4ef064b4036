"""One count for the sums of several targets: a block of `dpsql.statistics.aggregates`.

`SharedCount` has one count w n, and the sums of t targets, whose NULL values count as the middle of the bounds, q = 0.
In units of S its row has the norm ``w + t``, squared ``w**2 + t``, ``D1 = 2 t``, ``D2 = 4 t`` and
``c = max(0, t - w**2)``: every sum moves by at most S, and two rows count the same. Pairs of a count and a sum for each
target, with a t-th of the loss, have noise of deviation ``2 t / epsilon`` or ``sqrt(2 t) / mu`` in a sum of z; here it
is ``sqrt(2) (w + t) / epsilon`` or ``sqrt(w**2 + t) / mu``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.contract.relation import Contribution
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.statistics.aggregates import GAUSSIAN, Block, RowBounds, Sums, ValueBlock, Words


@dataclass(frozen=True)
class SharedTarget(ValueBlock):
    """One target of a `SharedCount`: the weighted count, and the sum from the middle of the bounds.

    Attributes
    ----------
    weight : int
        w, > 0, where S is 1.
    """

    weight: int = FIXED_POINT_ONE

    kind = "shared_target"
    form = ((1, 0), (0, 1))

    @property
    def row(self) -> RowBounds:  # type: ignore[override]
        """That of a `SharedCount` of one target."""
        return _shared_row(Fraction(self.weight, self.one), 1)

    @property
    def moments(self) -> tuple[tuple[float, ...], ...]:  # type: ignore[override]
        """The number of rows is the count's coordinate over w."""
        return ((self.one / self.weight, 0.0), (0.0, 1.0))

    def words(self, sums: Sums) -> Words:
        """Return (w n, s1)."""
        return Words(np.stack([self.weight * sums.n, sums.s1]))


@dataclass(frozen=True)
class SharedCount(Block):
    """One count and the sums of several targets, of which NULL counts as the middle of the bounds.

    Attributes
    ----------
    shared : tuple of SharedTarget
        Of each target; all have one weight.
    """

    shared: tuple[SharedTarget, ...]

    kind = "shared_count"

    @property
    def targets(self) -> Sequence[Block]:
        """The count with each of the sums."""
        return self.shared

    def places_of(self, target: int) -> list[int]:
        """Return the coordinates of the count and of one sum."""
        return [0, target + 1]

    @property
    def weight(self) -> int:
        """The weight of the count, w."""
        return self.shared[0].weight

    @property
    def one(self) -> int:
        """S."""
        return self.shared[0].one

    @property
    def form(self) -> tuple[tuple[int, ...], ...]:  # type: ignore[override]
        """The count, and the sum of each target."""
        return ((1, 0), *((0, 1) for _ in self.shared))

    @property
    def moments(self) -> tuple[tuple[float, ...], ...]:  # type: ignore[override]
        """The number of rows; `targets` tell the rest."""
        return ((self.one / self.weight, *(0.0 for _ in self.shared)),)

    @property
    def row(self) -> RowBounds:  # type: ignore[override]
        """The count moves by w, and every sum by at most S."""
        return _shared_row(Fraction(self.weight, self.one), len(self.shared))

    def words(self, sums: Sums) -> Words:
        """Return w n, and s1 of every target, which is of shape (t, G)."""
        return Words(np.concatenate([self.weight * sums.n[np.newaxis], sums.s1]))


def _shared_row(weight: Fraction, count: int) -> RowBounds:
    return RowBounds(weight + count, weight**2 + count, 2 * count, 4 * count, max(Fraction(0), count - weight**2))


def shared_count(bounds: Sequence[tuple[float, float]], noise: str, contribution: Contribution) -> SharedCount:
    """Return the block of several targets with one count, with the weight that is best for means.

    Parameters
    ----------
    bounds : sequence of (float, float)
        Of each of t targets; public.
    noise : {'laplace', 'gaussian'}
    contribution : Contribution

    Notes
    -----
    The mean of values at a bound has the variance of a sum and of the count together. A weight of ``t**(1/4)`` with
    Gaussian noise, and of about ``t**(1/3)`` with Laplace noise, makes it least: ``(sqrt(t) + 1)**2 / mu**2`` in place
    of ``4 t / mu**2``. Under 'replace' without groups two rows differ by 2 t, and in squares by 4 t, so that a weight
    of t, or of ``sqrt(3 t)``, costs nothing.
    """
    count = len(bounds)
    if contribution.norm(1, distance=0) < contribution.norm(1, distance=2):
        root = math.sqrt(3 * count) if noise == GAUSSIAN else count
    else:
        root = count ** (1 / 4 if noise == GAUSSIAN else 1 / 3)
    # Of few bits, so that a row stays a whole number on a coarser lattice.
    weight = math.floor(root * 1024) * (FIXED_POINT_ONE // 1024)
    return SharedCount(tuple(SharedTarget(lower, upper, weight=weight) for lower, upper in bounds))
