"""Partition selection: release only those keys of a private table that have a large noisy count.

A key of a single privacy unit must almost never be released, because the table without that unit does not have it.
Delta bounds the exceptions. The mechanism adds noise to the count of every existing key, and releases a key, with its
noisy count on request, when the noisy count is at least a threshold: the proof is below. One delta pays for noise and
threshold together. Public numbers alone choose the law of noise with the lowest threshold, out of three. At (1, 1e-6),
add_remove, for a unit in g keys:

====  =========  ===========  ==========
g     Laplace    truncated    Gaussian
====  =========  ===========  ==========
1     15         15           21.1
2     30         28           30.2
3     45         41           37.4
5     76         67           48.9
20    324        264          101.6
====  =========  ===========  ==========

The release sorts keys by name: any other order might reveal something about the counts.

**The threshold** is the least noisy count of a released key, such that one delta pays for noise and threshold together.

A table has keys, and a vector of numbers for each existing key; the threshold applies to one number, the count. Every
number gets independent noise. A key is released, with its noisy vector, when its noisy count is at least T. A key
without rows is never released, because the mechanism does not know it.

Take two neighbouring tables. A key is *lone* if only the unit in which they differ has it, so that it occurs in one of
the tables: b1 keys in the first table and b2 in the second. Under ``add_remove`` one of these is 0. All other keys are
*common*. Let P and Q be the laws of the common keys' noisy vectors, G1 and G2 the chances that no lone key of either
table is released. The coordinates do not matter, only the difference of P and Q: a lone key reveals itself by its
release, with any vector. The noises are independent, so the excess of the first table's law over ``exp(epsilon)`` times
the second's is::

    1 - G1 + sup over events E of (G1 P(E) - exp(epsilon) G2 Q(E))                                       (1)

**Laplace.** Noise that makes all vectors together epsilon-DP has ``P <= exp(epsilon) Q``, so (1) is at most ``1 - G1 +
max(0, G1 - G2) = 1 - min(G1, G2)``, for any b1 and b2 and under both relations: lone keys of the second table cost
nothing more, and there is no condition on epsilon. With chances h of the lone keys of one table, that is ``1 -
product(1 - h) <= delta``: ``g h`` under either relation, and not ``2 g h`` under replace.

**Truncated Laplace.** Noise of one number per key within ``[-K, K]``, and ``T = K + 1``: a key without rows would never
be released even if it were known, so lone keys are no special case. The release of every noisy count of all possible
keys, also below T, reveals no less. If a count moves by a, its a last values have no counterpart, with probability
``P(Z >= T - a)``; all others are within ``exp(a / scale)``. So the condition is ``1 - product(1 - h) <= delta`` once
more, over all keys of a unit, or of both units under replace. These h are smaller by ``1 - exp(-1 / scale)``.

**Gaussian.** See `dpsql.mechanisms.key_limits`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Integers, Longs
from dpsql.contract.events import Approximate, Event
from dpsql.contract.gaussian_profile import SMALLEST_DELTA
from dpsql.contract.measurement import Part, sampled
from dpsql.contract.parameters import show
from dpsql.contract.relation import relation_of
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.mechanisms.count_noise import CountNoise, LaplaceCountNoise, TruncatedCountNoise, gaussian_count_noise
from dpsql.mechanisms.key_limits import (
    KeyLimits,
    chance_of_rate,
    gaussian_key_budget,
    gaussian_rate,
    limits_by_row,
    pure_rate,
)
from dpsql.noise.discrete import LARGEST_SCALE
from dpsql.noise.entropy import SYSTEM, BitSource

DROWNED = "epsilon is too small: the noise would drown any table. Raise epsilon."


def laplace_scale(epsilon: Fraction, neighbours: str, limits: KeyLimits) -> Fraction:
    """Return the scale of Laplace noise that makes the counts of all keys epsilon-DP.

    Raises
    ------
    ParameterError
        P018; P038, when the noise is too large for any table.
    """
    _check_loss(epsilon)
    scale = Fraction(relation_of(neighbours).changes * limits.total) / epsilon
    if scale > LARGEST_SCALE:
        raise ParameterError("P038", DROWNED)
    return scale


@lru_cache(maxsize=1024, typed=True)
def key_threshold(
    noise: CountNoise,
    *,
    epsilon: Fraction,
    delta: Fraction,
    neighbours: str,
    limits: KeyLimits,
    mu: Fraction | None = None,
) -> int:
    """Return the least threshold for which keys with their noisy vectors are (epsilon, delta)-DP.

    Parameters
    ----------
    noise : CountNoise
        Sampled law of the noise of the number that meets the threshold: a count, or a sum of noisy numbers used as a
        count.
    epsilon : Fraction
        > 0. Without `mu`, the noisy vectors of all keys together must be epsilon-DP.
    delta : Fraction
        In [1e-300, 1).
    neighbours : {'add_remove', 'replace'}
    limits : KeyLimits
    mu : Fraction, optional
        The noisy vectors of all keys together are mu-GDP, all coordinates included.

    Returns
    -------
    threshold : int
        In lattice steps: a key with at least this noisy count is released.

    Raises
    ------
    ParameterError
        P018, P027; P038, when the noise uses all of delta.

    Notes
    -----
    - **Guarantee**: (epsilon, delta)-DP of released keys and vectors; it is not zCDP at any rho. Not for truncated
      noise, whose threshold is its bound plus 1: `truncated_count_noise`.
    - **Neighbouring relation**: `neighbours`.
    - **Sensitivity**: see the module's docstring.
    """
    _check_loss(epsilon, delta)
    changes = relation_of(neighbours).changes
    rate = pure_rate(delta, limits.pieces) if mu is None else gaussian_rate(epsilon, delta, mu, changes, limits)
    return max(rows * noise.unit + noise.least(chance_of_rate(pieces * rate)) for pieces, rows in limits.lone)


@lru_cache(maxsize=1024, typed=True)
def truncated_count_noise(
    *, epsilon: Fraction, delta: Fraction, neighbours: str, limits: KeyLimits
) -> TruncatedCountNoise:
    """Return the truncated noise for counts that are released above its bound.

    Parameters
    ----------
    epsilon : Fraction
        > 0.
    delta : Fraction
        In [1e-300, 1).
    neighbours : {'add_remove', 'replace'}
    limits : KeyLimits

    Returns
    -------
    noise : TruncatedCountNoise
        Its bound is the least valid bound, and at least its scale. The threshold is ``bound + 1``.

    Raises
    ------
    ParameterError
        P018, P027; P038, when the noise is too large for any table.

    Notes
    -----
    - **Guarantee**: (epsilon, delta)-DP of the released keys and noisy counts. For one key per unit and add_remove it
      is the optimal selection of keys, at the delta of its bound (Desfontaines et al. 2022).
    - **Neighbouring relation**: `neighbours`.
    - **Sensitivity**: see the module's docstring.
    """
    _check_loss(epsilon, delta)
    changes = relation_of(neighbours).changes
    scale = laplace_scale(epsilon, neighbours, limits)
    rate = pure_rate(delta, changes * limits.pieces)
    chances = [(chance_of_rate(pieces * rate), rows) for pieces, rows in limits.lone]

    def with_bound(bound: int) -> TruncatedCountNoise:
        return TruncatedCountNoise(scale=scale, bound=bound)

    def holds(bound: int) -> bool:
        return all(with_bound(bound).tail(bound + 1 - rows) <= chance for chance, rows in chances)

    low = max(math.ceil(scale), *(rows for _, rows in chances))
    return with_bound(_least(holds, low))


def _check_loss(epsilon: Fraction, delta: Fraction = Fraction(1, 2)) -> None:
    if not isinstance(epsilon, Fraction) or not epsilon > 0:
        raise ParameterError("P018", f"epsilon must be a Fraction > 0; got {epsilon}.")
    if not isinstance(delta, Fraction) or not 0 < delta < 1:
        raise ParameterError("P018", f"delta must be strictly between 0 and 1; got {delta}. Try 1e-6.")
    if delta < SMALLEST_DELTA:
        raise ParameterError("P027", "delta must be at least 1e-300 where keys are private. 1e-6 is usual.")


def _least(holds: Callable[[int], bool], low: int) -> int:
    """Return the least integer from `low` on that satisfies a monotone predicate."""
    if holds(low):
        return low
    step = 1
    while not holds(low + step):
        low, step = low + step, 2 * step
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# Keys per draw.
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
        In lattice steps of the noise: a key with at least this noisy count is released.
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
        Enforced bounds on one privacy unit's counts.
    law : {'laplace', 'truncated', 'gaussian'}, optional
        Of the noise; by default the law with the lowest threshold.

    Returns
    -------
    selection : PartitionSelection

    Raises
    ------
    ParameterError
        P018; P001, P027, P038, when the noise is too large for any table or out of reach.
    """
    if law is not None:
        if law not in LAWS:
            raise ParameterError("P018", f"noise must be one of {', '.join(LAWS)}; got {show(law)}.")
        return LAWS[law](epsilon, delta, neighbours, limits)
    selections = [LAWS[name](epsilon, delta, neighbours, limits) for name in ("laplace", "truncated")]
    with suppress(ParameterError):  # too little or too much loss for it
        selections.append(LAWS["gaussian"](epsilon, delta, neighbours, limits))
    return min(selections, key=lambda selection: selection.least_count)


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
        The keys of the table, each once.
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
        I031, when a count is not positive or a name occurs twice.

    Notes
    -----
    - **Guarantee**: (epsilon, delta)-DP of `partition_selection`, noisy counts included; it is not zCDP at any rho.
    - **Neighbouring relation**: as in `partition_selection`.
    - **Sensitivity**: L1 (Laplace) or L2 (Gaussian) of the counts of keys in both tables; for all other keys, the
      chance of their release.
    - **Randomness**: exact integer samplers, operating-system entropy, no seed.
    - **Assumes**: the counts keep the limits of `partition_selection`.
    - **Does not protect**: running time, which grows with the number of keys in the table.
    """
    unit = selection.noise.unit
    pairs = zip(*_released(names, counts, selection, source), strict=True)
    return sorted((names[position], Fraction(noisy, unit)) for position, noisy in pairs)


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
    # Neighbouring tables differ in few keys, so the noise's margins hold for more than one chunk.
    for start in range(0, len(values), _CHUNK):
        noisy = _noisy(values[start : start + _CHUNK], selection.noise, source)
        indices = np.flatnonzero(noisy >= selection.threshold)
        positions += (indices + start).tolist()
        steps += noisy[indices].tolist()
    return positions, steps


def _noisy(values: NDArray[np.int64], noise: CountNoise, source: BitSource) -> Integers:
    """Return counts with noise, in lattice steps."""
    steps = noise.draw(len(values), source=source)
    if noise.unit == 1:
        return values + steps
    # Python's integers: a fine lattice takes more than 64 bits.
    exact: Integers = values.astype(object) * noise.unit + steps.astype(object)
    return exact


@dataclass(frozen=True)
class PrivateNames(Part):
    """The names in enough rows.

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
        """Event for the ledger."""
        return Approximate(self.epsilon, self.delta)

    @cached_property
    def selection(self) -> PartitionSelection:
        """Noise and threshold of the law with the lower threshold."""
        limits = limits_by_row(self.max_keys_per_row, self.max_rows_per_unit)
        return partition_selection(epsilon=self.epsilon, delta=self.delta, neighbours=self.neighbours, limits=limits)

    @sampled
    def draw(self, names: Sequence[str], counts: Longs) -> list[str]:
        """Return the released names."""
        return select_partitions(names, counts, self.selection)
