"""Broken thresholds of private keys: of another law, of another number of noises, of other neighbours, or none.

Each function gives a selection or a bound as somebody would build it; `support.laws.keys` says what it costs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from dpsql.contract.gaussian_profile import gaussian_mu
from dpsql.mechanisms.count_noise import GaussianCountNoise, LaplaceCountNoise, gaussian_count_noise
from dpsql.mechanisms.key_limits import KeyLimits
from dpsql.mechanisms.partition_selection import PartitionSelection, partition_selection, truncated_count_noise


def continuous_threshold(epsilon: Fraction, delta: Fraction, *, groups: int = 1) -> PartitionSelection:
    """Return discrete Laplace noise with the threshold of continuous noise, rounded down.

    Parameters
    ----------
    epsilon, delta : Fraction
        Claimed, under add_remove.
    groups : int
        Keys of one unit.

    Notes
    -----
    - **What is wrong**: discrete Laplace noise has ``2 / (1 + exp(-epsilon / g))`` times the tail at whole numbers, and
      rounding down gives up to ``exp(epsilon / g)`` more.
    - **Caught by**: the exact delta of the joint law.
    - **Counter-example**: (1, 1e-6): 1.65e-6.
    """
    scale = Fraction(groups) / epsilon
    threshold = math.floor(1 + float(scale) * math.log(groups / (2 * float(delta))))
    return PartitionSelection(LaplaceCountNoise(scale=scale), threshold)


def laplace_threshold(epsilon: Fraction, delta: Fraction, *, limits: KeyLimits) -> PartitionSelection:
    """Return Gaussian noise with the threshold of Laplace noise.

    Notes
    -----
    - **What is wrong**: the threshold belongs to the law that is drawn.
    - **Counter-example**: (1, 1e-6), T = 15 and a standard deviation of 4.23: 4.7e-4.
    """
    laplace = partition_selection(epsilon=epsilon, delta=delta, neighbours="add_remove", limits=limits, law="laplace")
    noise = gaussian_count_noise(limits.squares, gaussian_mu(epsilon, delta))
    return PartitionSelection(noise, laplace.threshold * noise.unit)


def threshold_of_one(right: PartitionSelection) -> PartitionSelection:
    """Release a key where its noisy count is at least 1.

    Notes
    -----
    - **What is wrong**: a key of one unit is released with a probability above 1/2. Noise hides a count, and not that
      there is one.
    - **Counter-example**: (1, 1e-6): 0.73.
    """
    return replace(right, threshold=right.noise.unit)


def threshold_of_two_noises(epsilon: Fraction, delta: Fraction, *, steps: int) -> tuple[LaplaceCountNoise, int]:
    """Return the noise of the sum of three noisy numbers, with the threshold for the sum of two.

    Parameters
    ----------
    epsilon, delta : Fraction
        Claimed, under add_remove and for one key per unit.
    steps : int
        Lattice steps of one count, and L1 norm of a row.

    Notes
    -----
    - **What is wrong**: the count of three Bernstein sums has three noises.
    - **Counter-example**: (1, 1e-6), T = 16.3: 4.5e-6.
    """
    two = LaplaceCountNoise(scale=steps / epsilon, unit=steps, terms=2)
    return replace(two, terms=3), steps + two.least(delta)


def continuous_gaussian(deviation: Fraction, threshold: Fraction) -> tuple[GaussianCountNoise, int]:
    """Return integer Gaussian noise with the threshold of continuous noise.

    Notes
    -----
    - **What is wrong**: ``P(Z >= k)`` is about that of ``k - 1/2``, not of k.
    - **Counter-example**: delta 1e-3, a deviation of 2.588 and T = 8.996: 1.77e-3.
    """
    return GaussianCountNoise(variance=deviation**2), math.ceil(threshold)


def lost_on_one_side(epsilon: Fraction, delta: Fraction, *, limits: KeyLimits) -> PartitionSelection:
    """Return truncated noise under replace that counts the keys of one unit only, as is right for other noise.

    Notes
    -----
    - **What is wrong**: every count that moves loses values, also those of the unit that comes in.
    - **Counter-example**: a unit that changes its key, (2, 0.068): 1.92 times delta.
    """
    scale = Fraction(2 * limits.total) / epsilon
    noise = truncated_count_noise(epsilon=limits.total / scale, delta=delta, neighbours="add_remove", limits=limits)
    return PartitionSelection(noise, noise.bound + 1)


def shares_by_key(limits: KeyLimits) -> KeyLimits:
    """Return limits by which every lone key takes the same share of the squared norm.

    Notes
    -----
    - **What is wrong**: it does not where a unit cannot fill all of its keys.
    - **Counter-example**: at most 5 rows, 2 to a key, in 3 keys; one of them is a lone key's. The others still have 8 of
      9 squares, and not two thirds: 1.09 times delta at (0.1, 0.05).
    """
    return replace(limits, weight=Fraction(1, limits.pieces))
