"""Noise on the concordance of a score and on the rows of both classes, as one mechanism and one event.

`dpsql.statistics.auc` defines the statistic and the steps of one row. Every number gets independent noise for its own
sensitivity at its share of the loss, epsilon (Laplace, ``sensitivity / (share epsilon)``) or mu (Gaussian,
``sensitivity / (share mu)``). With m rows per unit:

==========  ========  ===============  =================  ================  ==============================
relation    noise     share of T       scale of T         share of counts   scale of each count
==========  ========  ===============  =================  ================  ==============================
add_remove  Laplace   3/5              m / (.6 epsilon)   2/5               m / (.4 epsilon)
add_remove  Gaussian  4/5              m / (.8 mu)        3/5               m / (.6 mu)
replace     Laplace   1                2 m / epsilon      1/2               4 m / epsilon
replace     Gaussian  1                2 m / mu           433/500           sqrt(2) m / (.866 mu)
==========  ========  ===============  =================  ================  ==============================

*Add or remove.* T moves by at most m, and the counts by at most m together. Losses are at most ``.6 + .4`` of epsilon,
squared distances at most ``.64 + .36`` of ``mu**2``.

*Replace.* A step of one row spends at most ``epsilon / m``, or moves the numbers by at most ``mu / m`` standard
deviations. A unit is at most m steps, and distances at most add up.

==========================  =========================  ===============================
step                        of epsilon / m             of ``mu**2 / m**2``
==========================  =========================  ===============================
within a class              2/2 = 1                    ``(2/2)**2 = 1``
to the other class          1/2 + 1/4 + 1/4 = 1        ``1/4 + (433/500)**2 <= 1``
to or from no class,        1/2 + 1/4 = 3/4            ``1/4 + (433/500)**2 / 2 < 1``
added or removed
==========================  =========================  ===============================
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import ClassVar

import numpy as np

from dpsql.contract.events import Event, additive_noise
from dpsql.contract.measurement import Part, sampled
from dpsql.contract.relation import Relation, relation_of
from dpsql.dataclass import dataclass
from dpsql.mechanisms.count_noise import laplace_reach
from dpsql.mechanisms.gaussian import counting_unit, gaussian_counts
from dpsql.noise.discrete import discrete_laplace, laplace_deviation
from dpsql.statistics.auc import Concordance, class_sensitivity, concordance_sensitivity, squared_class_sensitivity

# Shares of the concordance and of the counts. The last share's square is below 3/4.
_LAPLACE = ((Fraction(3, 5), Fraction(2, 5)), (Fraction(1), Fraction(1, 2)))
_GAUSSIAN = ((Fraction(4, 5), Fraction(3, 5)), (Fraction(1), Fraction(433, 500)))
# The concordance is a multiple of 2**-20, or of a coarser unit if noise has more bits than this.
_FINEST, _WIDEST = 20, 1 << 47


@dataclass(frozen=True)
class NoisyConcordance:
    """The concordance and the rows of both classes, each with noise.

    Attributes
    ----------
    concordance : float
        T.
    positives, negatives : float
        In rows.
    """

    concordance: float
    positives: float
    negatives: float


@dataclass(frozen=True)
class ConcordanceNoise(Part):
    """The concordance and the rows of both classes, as one mechanism.

    Attributes
    ----------
    epsilon : Fraction
    delta, mu : Fraction or None
        Set for Gaussian noise, with mu calibrated for epsilon and delta; None for Laplace noise.
    neighbours : {'add_remove', 'replace'}
    max_rows_per_unit : int

    Notes
    -----
    - **Guarantee**: Laplace, pure `epsilon`-DP; Gaussian, mu-GDP in the sense of `gaussian_mu`, hence (epsilon,
      delta)-DP.
    - **Neighbouring relation**: add or remove one unit, or replace one.
    - **Sensitivity**: `dpsql.statistics.auc`; shares of the loss in the module's text.
    - **Randomness**: exact integer samplers, operating-system entropy, no seed.
    - **Assumes**: exact counts of rows; every row is in one cell of one class, by its values alone, or in none.
    - **Does not protect**: running time, which depends on the noise.
    """

    epsilon: Fraction
    delta: Fraction | None
    mu: Fraction | None
    neighbours: str
    max_rows_per_unit: int

    # Largest move of a released concordance by rounding, in its unit.
    rounded: ClassVar[float] = 0.5

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        return additive_noise(self.epsilon, self.mu, self.delta)

    @property
    def relation(self) -> Relation:
        """The neighbouring relation."""
        return relation_of(self.neighbours, self.max_rows_per_unit)

    @property
    def moved(self) -> int:
        """Largest move of the released concordance by a privacy unit."""
        return concordance_sensitivity(self.relation)

    @cached_property
    def losses(self) -> tuple[Fraction, Fraction]:
        """Epsilon or mu of the concordance and of the counts."""
        budget, shares = (self.epsilon, _LAPLACE) if self.mu is None else (self.mu, _GAUSSIAN)
        first, second = self.relation.pick(*shares)
        return budget * first, budget * second

    @cached_property
    def bits(self) -> int:
        """Bits of the public unit ``2**-bits`` of T, in which no noise needs rounding."""
        width = self.moved / self.losses[0]
        return next((bits for bits in range(_FINEST, 0, -1) if width * (1 << bits) <= _WIDEST), 0)

    @property
    def scales(self) -> tuple[Fraction, Fraction]:
        """Scales of Laplace noise: of the concordance in units of ``2**-bits``, and of each count."""
        scaled, counted = self.losses
        moved = self.moved << self.bits
        return moved / scaled, class_sensitivity(self.relation) / counted

    @property
    def _squares(self) -> tuple[int, int]:
        """Squared L2 sensitivities: of the concordance in units of ``2**-bits``, and of the counts."""
        moved = self.moved << self.bits
        return moved**2, squared_class_sensitivity(self.relation)

    @cached_property
    def deviations(self) -> tuple[float, float]:
        """Standard deviations of the noise on T and on each count."""
        if self.mu is None:
            both = [laplace_deviation(scale) for scale in self.scales]
        else:
            both = [_gaussian_deviation(square, mu) for square, mu in zip(self._squares, self.losses, strict=True)]
        return math.ldexp(both[0], -self.bits), both[1]

    def reaches(self, failure: Fraction) -> tuple[float, float]:
        """Return bounds that the errors of T (rounded) and of a count each exceed with at most that chance."""
        rounding = math.ldexp(self.rounded, -self.bits)
        if self.mu is None:
            scaled, counted = (laplace_reach(scale, failure) for scale in self.scales)
            return math.ldexp(scaled, -self.bits) + rounding, float(counted)
        # Noise this fine has the quantile of the continuous law, to within a share of 2**-60.
        normal = NormalDist().inv_cdf(1 - float(failure) / 2)
        return normal * self.deviations[0] + rounding, normal * self.deviations[1]

    @sampled
    def draw(self, exact: Concordance) -> NoisyConcordance:
        """Return the numbers with noise."""
        [concordance], [positives, negatives] = self._noisy([exact.scaled(self.bits)], exact)
        return NoisyConcordance(math.ldexp(concordance, -self.bits), positives, negatives)

    def _noisy(self, scaled: list[int], exact: Concordance) -> list[list[float]]:
        """Return the scaled numbers, and the rows of both classes, positives first, with noise."""
        counts = [exact.positives, exact.negatives]
        if self.mu is None:
            return [_with_laplace(numbers, scale) for numbers, scale in zip((scaled, counts), self.scales, strict=True)]
        triples = zip((scaled, counts), self._squares, self.losses, strict=True)
        return [_with_gaussian(numbers, square, mu) for numbers, square, mu in triples]


@dataclass(frozen=True)
class NoisyPair:
    """Two concordances and the rows of both classes, each with noise.

    Attributes
    ----------
    difference, total : float
        D = T1 - T2, and M = T1 + T2.
    positives, negatives : float
        In rows.
    """

    difference: float
    total: float
    positives: float
    negatives: float


@dataclass(frozen=True)
class PairedConcordanceNoise(ConcordanceNoise):
    """Difference and sum of two concordances on the same rows, and the rows of both classes, as one mechanism.

    Notes
    -----
    - **Guarantee**: as for `ConcordanceNoise`, for the same epsilon or mu.
    - **Sensitivity**: difference and sum together move by twice the move of one concordance, in the L1 norm and in the
      L2 norm (`dpsql.statistics.comparison`). So every step of the module's table spends the same share, with noise of
      twice the scale.
    """

    rounded: ClassVar[float] = 1.0

    @property
    def moved(self) -> int:
        """Largest joint move of difference and sum by a unit."""
        return 2 * super().moved

    @sampled
    def draw_pair(self, first: Concordance, second: Concordance) -> NoisyPair:
        """Return the numbers with noise; both concordances cover the same rows."""
        left, right = first.scaled(self.bits), second.scaled(self.bits)
        [difference, total], [positives, negatives] = self._noisy([left - right, left + right], first)
        return NoisyPair(math.ldexp(difference, -self.bits), math.ldexp(total, -self.bits), positives, negatives)


def _with_laplace(values: list[int], scale: Fraction) -> list[float]:
    noise = discrete_laplace(scale, len(values)).tolist()
    return [float(value + by) for value, by in zip(values, noise, strict=True)]


def _with_gaussian(values: list[int], squared_sensitivity: int, mu: Fraction) -> list[float]:
    integers = np.array(values, dtype=object)
    release = gaussian_counts(integers, squared_sensitivity=squared_sensitivity, squared_mu=mu**2)
    return [float(value) for value in release.values]


def _gaussian_deviation(squared_sensitivity: int, mu: Fraction) -> float:
    shift, sensitivity = counting_unit(squared_sensitivity, mu**2)
    return math.ldexp(float(sensitivity / mu), -shift)
