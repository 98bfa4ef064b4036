"""One-shot selection of the k best candidates: the mechanisms, their arguments, and their noise."""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction

from dpsql.contract.arguments import share, word
from dpsql.contract.plan import Quantity
from dpsql.contract.selection import SelectionPlan
from dpsql.functions.selection_verdict import Certainty, one_shot_certainty
from dpsql.mechanisms.one_shot import OneShotSelection

MECHANISMS = ("one_shot", "gumbel", "canonical_lipschitz")
ONE_SHOT = (
    word("mechanism", "How the features are drawn; docs/selection.md says which to take when.", MECHANISMS, "one_shot"),
    share("gamma", "Weight of the canonical Lipschitz loss, between 0 and 1.", 0.5, hint="1/2 is usual."),
)
CONFIDENCE = 0.95
# Up to this many features, counting subsets exactly takes no noticeable time.
_FEW = 100


def one_shot_noise(
    *, mechanism: str, gamma: Fraction, spread: float, epsilon: Fraction, k: int, count: int
) -> list[Quantity]:
    """Return the noise of a one-shot selection from `count` candidates whose scores have the range `spread`."""
    if mechanism == "canonical_lipschitz":
        scale = spread / float(epsilon)
        gap = scale / float(gamma) * log_of_other_subsets(count, k, 1 - CONFIDENCE)
    else:
        scale = k * spread / float(epsilon)
        rivals = k * (count - k)
        gap = scale * log_of_ratio(rivals, (1 - CONFIDENCE) * (2 if mechanism == "one_shot" else 1))
    return [
        ("score_sensitivity", spread / 2, "most that one privacy unit can move one score"),
        ("noise_scale", scale, "scale of the noise on a score"),
        ("score_gap", gap, "gap between the k-th and the next score that gives the exact top k in 95 % of calls"),
    ]


class OneShotPlan(SelectionPlan):
    """The plan of a function that draws all k features at once, with the arguments `ONE_SHOT`."""

    mechanism: str
    gamma: Fraction

    @property
    @abstractmethod
    def selection_epsilon(self) -> Fraction:
        """Epsilon spent on the selection."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """Range of the scores in the unit of `noise`."""

    @property
    def selection_part(self) -> OneShotSelection:
        """The part that draws the features."""
        return OneShotSelection("selection", self.mechanism, self.selection_epsilon, self.k, self.gamma)

    def selection_noise(self, count: int) -> list[Quantity]:
        """Return the expected noise of the selection from `count` features."""
        epsilon, k = self.selection_epsilon, self.k
        return one_shot_noise(
            mechanism=self.mechanism, gamma=self.gamma, spread=self.spread, epsilon=epsilon, k=k, count=count
        )

    def largest_score(self, rows: int) -> float:
        """Return the largest score of some rows, or votes of blocks, in the unit of `noise`."""
        return float(rows)

    def certainty(self, n_features: int) -> Certainty | None:
        """Return the rows or blocks from which a feature can be sure to be selected; None if unknown."""
        if self.mechanism == "canonical_lipschitz":
            return None
        noise = "exponential" if self.mechanism == "one_shot" else "gumbel"
        scale = self.k * self.spread / float(self.selection_epsilon)
        return one_shot_certainty(noise=noise, scale=scale, k=self.k, count=n_features, largest=self.largest_score)


def log_of_other_subsets(count: int, k: int, share: float) -> float:
    """Return ``log_of_ratio`` of the number of k-subsets less one; that number may have a million digits."""
    if min(k, count - k) <= _FEW:
        return log_of_ratio(math.comb(count, k) - 1, share)
    return math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) - math.log(share)


def few_subsets(count: int, k: int, most: int) -> bool:
    """Return whether there are at most `most` k-subsets; their number may have a million digits."""
    subsets, small = 1, min(k, count - k)
    for step in range(small):
        subsets = subsets * (count - step) // (step + 1)
        if subsets > most:
            return False
    return True


def log_of_ratio(number: int, share: float) -> float:
    """Return ``log(number / share)``, at least 0, for an integer of any size."""
    return max(0.0, math.log(number) - math.log(share)) if number > 0 else 0.0
