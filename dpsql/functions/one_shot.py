"""One-shot selection of the k best of a list: which mechanism, at what cost, and the rows that come out."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.contract.events import CanonicalLipschitz, Event, ExponentialNoise, GumbelNoise
from dpsql.mechanisms.canonical_lipschitz import canonical_lipschitz
from dpsql.mechanisms.select import select

MECHANISMS = ("one_shot", "gumbel", "canonical_lipschitz")
CONFIDENCE = 0.95
# Subsets of so many features are counted exactly in no time.
_FEW = 100


def one_shot_event(mechanism: str, epsilon: Fraction, k: int, gamma: Fraction) -> Event:
    """Return what the ledger records of a one-shot selection."""
    if mechanism == "one_shot":
        return ExponentialNoise(epsilon, k)
    if mechanism == "gumbel":
        return GumbelNoise(epsilon, k, rounds=k)
    return CanonicalLipschitz(epsilon, k, str(gamma))


def one_shot(
    utility: np.ndarray[Any, Any], *, mechanism: str, gamma: Fraction, utility_range: int, epsilon: Fraction, k: int
) -> list[int]:
    """Select k positions by one of `MECHANISMS`.

    Parameters
    ----------
    utility : ndarray of integers, shape (d,)
    mechanism : str
    gamma : Fraction
        Weight of the canonical Lipschitz loss, in (0, 1).
    utility_range : int
        As for `dpsql.mechanisms.select`, in the unit of the utility.
    epsilon : Fraction
        Privacy loss, > 0.
    k : int

    Returns
    -------
    positions : list of int, length k
        By rank; ascending for the canonical Lipschitz mechanism, which draws a set.

    Notes
    -----
    - **Guarantee**: pure `epsilon`-DP under the relation that `utility_range` was derived for.
    """
    if mechanism == "canonical_lipschitz":
        chosen = canonical_lipschitz(utility, utility_range=utility_range, epsilon=epsilon, k=k, gamma=gamma)
    else:
        noise: Any = {"one_shot": "exponential", "gumbel": "gumbel"}[mechanism]
        chosen = select(utility, utility_range=utility_range, epsilon=epsilon, k=k, noise=noise)
    return [int(position) for position in chosen]


def one_shot_noise(
    *, mechanism: str, gamma: Fraction, spread: float, epsilon: Fraction, k: int, count: int
) -> list[tuple[str, float, str]]:
    """Return how noisy a one-shot selection is; arguments as for `one_shot`, of `count` candidates."""
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


def log_of_other_subsets(count: int, k: int, share: float) -> float:
    """Return ``log_of_ratio`` of all k-subsets of some features but one; their number may have a million digits."""
    if min(k, count - k) <= _FEW:
        return log_of_ratio(math.comb(count, k) - 1, share)
    return math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) - math.log(share)


def log_of_ratio(number: int, share: float) -> float:
    """Return ``log(number / share)``, at least 0, for an integer of any size."""
    return max(0.0, math.log(number) - math.log(share)) if number > 0 else 0.0
