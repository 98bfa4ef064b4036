"""One-shot selection: the primitive behind every mechanism that chooses from a list."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.arrays import Integers
from dpsql.contract.events import Event, ExponentialNoise, GumbelNoise
from dpsql.contract.measurement import Part, sampled
from dpsql.errors import ParameterError
from dpsql.noise.entropy import SYSTEM, BitSource
from dpsql.noise.race import Noise, top_k


def select(
    utility: ArrayLike,
    *,
    utility_range: int,
    epsilon: Fraction,
    k: int,
    noise: Noise = "exponential",
    source: BitSource = SYSTEM,
) -> NDArray[np.intp]:
    """Select k of d candidates with large utility, in order, in one shot.

    Every candidate scores ``epsilon / (k * utility_range) * utility_j + Z_j``; the k largest win.

    Parameters
    ----------
    utility : array_like of int, shape (d,)
        Exact scores: int64, or Python ints of any size. d is public.
    utility_range : int
        >= 1, in the unit of the scores: bound, over neighbouring tables D and D', on
        ``max_j(u_j(D') - u_j(D)) - min_j(u_j(D') - u_j(D))``. For scores that each move by at most Delta
        in either direction this is ``2 Delta``; for scores that all move in the same direction, Delta.
    epsilon : Fraction
        Privacy loss of the whole release, > 0.
    k : int
        In [1, d], public.
    noise : {'exponential', 'gumbel'}
        Law of ``Z_j``. 'exponential': for k = 1 the permute-and-flip mechanism, never worse in expected
        utility than the exponential mechanism. 'gumbel': k rounds of the exponential mechanism without
        replacement (peeling); costs less under zCDP.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    winners : ndarray of intp, shape (k,)
        Distinct positions, largest noisy score first. The order is part of the release and is private.

    Raises
    ------
    ParameterError
        Depends on public parameters only: P018 (epsilon, k, noise, utility, range).

    Notes
    -----
    - **Guarantee**: pure ``epsilon``-DP for the ordered output. With Gumbel noise also
      ``epsilon**2 / (8 k)``-zCDP: k rounds that are each ``epsilon / k``-bounded-range. With exponential
      noise ``epsilon**2 / 2``-zCDP, which holds for any pure guarantee.
    - **Neighbouring relation**: the relation behind `utility_range`.
    - **Sensitivity**: range (not a norm), see `utility_range`.
    - **Randomness**: exact race on real numbers, operating-system entropy, no seed.
    - **Assumes**: exact integer scores; floating-point scores would break `utility_range`.
    - **Does not protect**: running time (see `dpsql.noise.race.top_k`); d and k.

    Proof. The winners do not change when all scores shift, so let all scores rise from D to D' by ``r_j`` in [0,
    range], in units where the coefficient is ``c = epsilon / (k range)``. Fix an ordered output ``(y_1, ..., y_k)``. It
    occurs when ``Z_{y_1} + c u_{y_1} > ... > Z_{y_k} + c u_{y_k}`` and every other score is below the last. On D'
    substitute ``z_{y_i} -> z_{y_i} + c (R - r_{y_i})`` with R the range: then every winner's score is at least as far
    above every loser's as on D, and the order of the winners is as on D. The density of each Exp(1) variable falls by a
    factor of at most ``exp(c (R - r))`` under this shift, so the probability falls by at most ``exp(c k R) =
    exp(epsilon)``. In the other direction (from D' back to D) substitute ``z_{y_i} + c r_{y_i}``. With Gumbel noise the
    k rounds are exponential mechanisms, each ``c range``-DP [3]_.

    References
    ----------
    .. [1] R. McKenna, D. Sheldon, Permute-and-Flip: A new mechanism for differentially private selection,
       NeurIPS 2020.
    .. [2] Z. Ding, D. Kifer, et al., The permute-and-flip mechanism is identical to report-noisy-max with
       exponential noise, 2021.
    .. [3] D. Durfee, R. Rogers, Practical differentially private top-k selection with pay-what-you-get
       composition, NeurIPS 2019.
    """
    check_selection(utility_range, epsilon)
    if not k >= 1:
        raise ParameterError("P018", f"k must be >= 1; got {k}. Give the number of candidates to select.")
    return top_k(utility, epsilon / (k * utility_range), k, noise=noise, source=source)


def check_selection(utility_range: int, epsilon: Fraction) -> None:
    """Refuse a range or a privacy loss without a possible guarantee (P018)."""
    if not isinstance(epsilon, Fraction) or not epsilon > 0:
        raise ParameterError("P018", f"epsilon must be a Fraction > 0; got {epsilon}. Give the privacy loss to spend.")
    if not isinstance(utility_range, int) or not utility_range >= 1:
        raise ParameterError("P018", f"utility_range must be an integer >= 1; got {utility_range}.")


@dataclass(frozen=True)
class SelectionRounds(Part):
    """Rounds of report-noisy-max, each at the same share of epsilon.

    Attributes
    ----------
    noise : {'gumbel', 'exponential'}
    epsilon : Fraction
        Of all rounds together.
    rounds : int
    """

    noise: str
    epsilon: Fraction
    rounds: int

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        kind = {"gumbel": GumbelNoise, "exponential": ExponentialNoise}[self.noise]
        return kind(self.epsilon, self.rounds, rounds=self.rounds)

    def draws(self, share: str) -> int:
        """Return the number of draws: one per round."""
        return 0 if share else self.rounds

    @property
    def round_epsilon(self) -> Fraction:
        """The loss of one round."""
        return self.epsilon / self.rounds

    @sampled
    def draw(self, utility: Integers, *, utility_range: int) -> int:
        """Return the winner of one round; parameters as in `select`."""
        noise: Noise = "gumbel" if self.noise == "gumbel" else "exponential"
        [winner] = select(utility, utility_range=utility_range, epsilon=self.round_epsilon, k=1, noise=noise)
        return int(winner)
