"""Partition selection: which keys of a private table are released; only those whose noisy count is large.

A key that a single privacy unit has must almost never be released, because without that unit it would not even be
known. "Almost" is what delta is for. Noise is added to the count of every key that occurs, and a key is released, with
its noisy count where that is wanted, when the noisy count is at least a threshold: statement and proof are in
`dpsql.mechanisms.key_threshold`. One delta pays for noise and threshold together. Three laws of noise are at hand, and
public numbers alone say which has the lowest threshold. At (1, 1e-6), add_remove, for a unit in g keys:

====  =========  ===========  ==========
g     Laplace    truncated    Gaussian
====  =========  ===========  ==========
1     15         15           21.1
2     30         28           30.2
3     45         41           37.4
5     76         67           48.9
20    324        264          101.6
====  =========  ===========  ==========

The keys are released in the order of their names: any other order might tell something about the counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Integers, Longs
from dpsql.contract.events import Approximate, Event
from dpsql.contract.measurement import Part, sampled
from dpsql.contract.relation import relation_of
from dpsql.errors import InternalError, ParameterError
from dpsql.mechanisms.count_noise import CountNoise, LaplaceCountNoise, gaussian_count_noise
from dpsql.mechanisms.gaussian_keys import gaussian_key_budget
from dpsql.mechanisms.key_limits import KeyLimits, limits_by_row
from dpsql.mechanisms.key_threshold import DROWNED, key_threshold, laplace_scale, truncated_count_noise
from dpsql.noise.entropy import SYSTEM, BitSource

# Keys that are drawn together.
_CHUNK = 1 << 20
# In counts: larger noise is useless.
_WIDEST = 2.0**40


@dataclass(frozen=True)
class PartitionSelection:
    """The public numbers of one selection of keys.

    Attributes
    ----------
    noise : CountNoise
        Law of the noise on each count.
    threshold : int
        In lattice steps of the noise: a key is released when its noisy count is at least this.
    """

    noise: CountNoise
    threshold: int

    @property
    def least_count(self) -> float:
        """The threshold in counts."""
        return self.threshold / self.noise.unit


@lru_cache(maxsize=256, typed=True)
def partition_selection(
    *, epsilon: Fraction, delta: Fraction, neighbours: str, limits: KeyLimits, law: str | None = None
) -> PartitionSelection:
    """Return the noise and the threshold of a selection of keys by their counts.

    Parameters
    ----------
    epsilon : Fraction
        Privacy loss, > 0; at most 2**19 with Gaussian noise.
    delta : Fraction
        In [1e-300, 1).
    neighbours : {'add_remove', 'replace'}
    limits : KeyLimits
        What one privacy unit may add to the counts; enforced.
    law : {'laplace', 'truncated', 'gaussian'}, optional
        Of the noise; by default the one with the lowest threshold.

    Returns
    -------
    selection : PartitionSelection

    Raises
    ------
    ParameterError
        P018; P001, P027, P038, when the noise would drown any table or is out of reach.
    """
    if law is not None:
        if law not in LAWS:
            raise ParameterError("P018", f"noise must be one of {', '.join(LAWS)}; got {law!r}.")
        return LAWS[law](epsilon, delta, neighbours, limits)
    found = [LAWS[name](epsilon, delta, neighbours, limits) for name in ("laplace", "truncated")]
    with suppress(ParameterError):  # too little or too much loss for it
        found.append(LAWS["gaussian"](epsilon, delta, neighbours, limits))
    return min(found, key=lambda selection: selection.least_count)


def _laplace(epsilon: Fraction, delta: Fraction, neighbours: str, limits: KeyLimits) -> PartitionSelection:
    noise = LaplaceCountNoise(scale=laplace_scale(epsilon, neighbours, limits))
    threshold = key_threshold(noise, epsilon=epsilon, delta=delta, neighbours=neighbours, limits=limits)
    return PartitionSelection(noise, threshold)


def _truncated(epsilon: Fraction, delta: Fraction, neighbours: str, limits: KeyLimits) -> PartitionSelection:
    noise = truncated_count_noise(epsilon=epsilon, delta=delta, neighbours=neighbours, limits=limits)
    return PartitionSelection(noise, noise.bound + 1)


def _gaussian(epsilon: Fraction, delta: Fraction, neighbours: str, limits: KeyLimits) -> PartitionSelection:
    mu = gaussian_key_budget(epsilon, delta, neighbours=neighbours, limits=limits).mu
    noise = gaussian_count_noise(relation_of(neighbours).changes * limits.squares, mu)
    if noise.deviation > _WIDEST:
        raise ParameterError("P038", DROWNED)
    threshold = key_threshold(noise, epsilon=epsilon, delta=delta, neighbours=neighbours, limits=limits, mu=mu)
    return PartitionSelection(noise, threshold)


LAWS = {"laplace": _laplace, "truncated": _truncated, "gaussian": _gaussian}


def release_partitions(
    names: Sequence[str], counts: NDArray[np.int64], selection: PartitionSelection, *, source: BitSource = SYSTEM
) -> list[tuple[str, Fraction]]:
    """Return the released keys in the order of their names, with their noisy counts.

    Parameters
    ----------
    names : sequence of str
        The keys that occur in the table, each once.
    counts : ndarray of int64, shape (keys,)
        The count of each key, >= 1.
    selection : PartitionSelection
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    released : list of (str, Fraction)
        Sorted by code points; possibly none.

    Raises
    ------
    InternalError
        I031, when a count is not positive or a name stands twice.

    Notes
    -----
    - **Guarantee**: (epsilon, delta)-DP of `partition_selection`, noisy counts included; it is not zCDP at any rho.
    - **Neighbouring relation**: the one of `partition_selection`.
    - **Sensitivity**: of the counts of keys that occur in both tables, L1 (Laplace) or L2 (Gaussian); of all others,
      how likely they are released at all.
    - **Randomness**: exact integer samplers, operating-system entropy, no seed.
    - **Assumes**: the counts keep the limits of `partition_selection`.
    - **Does not protect**: running time, which grows with the number of keys in the table.
    """
    unit = selection.noise.unit
    found = zip(*_released(names, counts, selection, source), strict=True)
    return sorted((names[position], Fraction(noisy, unit)) for position, noisy in found)


def select_partitions(
    names: Sequence[str], counts: NDArray[np.int64], selection: PartitionSelection, *, source: BitSource = SYSTEM
) -> list[str]:
    """Return the released keys in the order of their names: `release_partitions` without the noisy counts."""
    return sorted(names[position] for position in _released(names, counts, selection, source)[0])


def _released(
    names: Sequence[str], counts: NDArray[np.int64], selection: PartitionSelection, source: BitSource
) -> tuple[list[int], list[int]]:
    """Return the positions of released keys and their noisy counts in lattice steps."""
    values = np.asarray(counts, dtype=np.int64)
    if len(values) != len(names) or len(set(names)) != len(names) or not (values >= 1).all():
        raise InternalError("I031", "keys must be distinct and have a count of at least 1 each.")
    positions: list[int] = []
    steps: list[int] = []
    # Neighbouring tables differ in few keys, so that the noise's margins hold for more than one chunk.
    for start in range(0, len(values), _CHUNK):
        noisy = _noisy(values[start : start + _CHUNK], selection.noise, source)
        found = np.flatnonzero(noisy >= selection.threshold)
        positions += (found + start).tolist()
        steps += noisy[found].tolist()
    return positions, steps


def _noisy(values: NDArray[np.int64], noise: CountNoise, source: BitSource) -> Integers:
    """Return counts with noise, in lattice steps."""
    drawn = noise.draw(len(values), source=source)
    if noise.unit == 1:
        return values + drawn
    # Python's integers: a fine lattice takes more than 64 bits.
    exact: Integers = values.astype(object) * noise.unit + drawn.astype(object)
    return exact


@dataclass(frozen=True)
class PrivateNames(Part):
    """The names that enough rows have.

    Attributes
    ----------
    epsilon, delta : Fraction
    neighbours : str
    max_keys_per_row, max_rows_per_unit : int
    """

    epsilon: Fraction
    delta: Fraction
    neighbours: str
    max_keys_per_row: int
    max_rows_per_unit: int

    @property
    def event(self) -> Event:
        """What the ledger records."""
        return Approximate(self.epsilon, self.delta)

    @cached_property
    def selection(self) -> PartitionSelection:
        """Noise and threshold: whichever law has the lower threshold."""
        limits = limits_by_row(self.max_keys_per_row, self.max_rows_per_unit)
        return partition_selection(epsilon=self.epsilon, delta=self.delta, neighbours=self.neighbours, limits=limits)

    @sampled
    def draw(self, names: Sequence[str], counts: Longs) -> list[str]:
        """Return the names that are released."""
        return select_partitions(names, counts, self.selection)
