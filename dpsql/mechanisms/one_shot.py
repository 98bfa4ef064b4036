"""One selection of the k best of a list, by one of three mechanisms."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from dpsql.arrays import Integers
from dpsql.contract.events import CanonicalLipschitz, Event, ExponentialNoise, GumbelNoise
from dpsql.contract.measurement import Part, sampled
from dpsql.mechanisms.canonical_lipschitz import canonical_lipschitz
from dpsql.mechanisms.select import select


@dataclass(frozen=True)
class OneShotSelection(Part):
    """The k best of a list.

    Attributes
    ----------
    mechanism : {'one_shot', 'gumbel', 'canonical_lipschitz'}
    epsilon : Fraction
    k : int
        All, where there are fewer.
    gamma : Fraction
        Weight of the canonical Lipschitz loss, in (0, 1).
    """

    mechanism: str
    epsilon: Fraction
    k: int
    gamma: Fraction

    @property
    def event(self) -> Event:
        """What the ledger records."""
        if self.mechanism == "one_shot":
            return ExponentialNoise(self.epsilon, self.k)
        if self.mechanism == "gumbel":
            return GumbelNoise(self.epsilon, self.k, rounds=self.k)
        return CanonicalLipschitz(self.epsilon, self.k, str(self.gamma))

    @sampled
    def draw(self, utility: Integers, *, utility_range: int) -> list[int]:
        """Select positions.

        Parameters
        ----------
        utility : ndarray of integers, shape (d,)
        utility_range : int
            As for `dpsql.mechanisms.select`, in the unit of the utility.

        Returns
        -------
        positions : list of int
            By rank; ascending for the canonical Lipschitz mechanism, which draws a set.

        Notes
        -----
        - **Guarantee**: pure `epsilon`-DP under the relation that `utility_range` was derived for.
        """
        if self.mechanism == "canonical_lipschitz":
            run = partial(canonical_lipschitz, gamma=self.gamma)
        else:
            run = partial(select, noise="exponential" if self.mechanism == "one_shot" else "gumbel")
        chosen = run(utility, utility_range=utility_range, epsilon=self.epsilon, k=min(self.k, len(utility)))
        return [int(position) for position in chosen]
