"""From which noisy count on a key is released, so that one delta pays for the noise and for the threshold together.

A table has keys, and for each key that occurs in it a vector of numbers; the threshold looks at one of them, the count.
Every number gets independent noise. A key is released, with its noisy vector, when its noisy count is at least T. A key
without rows is never released, because nobody knows it.

Take two neighbouring tables. A key is *lone* if only the unit in which they differ has it, so that it occurs in one of
the tables: b1 keys in the first table and b2 in the second. Under ``add_remove`` one of these is 0. All other keys are
*common*. Let P and Q be the laws of the common keys' noisy vectors, G1 and G2 the chances that no lone key of either
table is released. Which coordinates there are does not matter, only how P and Q differ: a lone key shows itself by
being released, whatever comes with it. As noises are independent, the excess of the first table's law over
``exp(epsilon)`` times the second's is::

    1 - G1 + sup over events E of (G1 P(E) - exp(epsilon) G2 Q(E))                                       (1)

**Laplace.** Noise that makes all vectors together epsilon-DP has ``P <= exp(epsilon) Q``, so (1) is at most
``1 - G1 + max(0, G1 - G2) = 1 - min(G1, G2)``, for any b1 and b2 and under both relations: what is lone in the second
table costs nothing beyond, and there is no condition on epsilon. With chances h of the lone keys of one table, that is
``1 - product(1 - h) <= delta``: ``g h`` under either relation, and not ``2 g h`` under replace.

**Truncated Laplace.** Noise of one number per key within ``[-K, K]``, and ``T = K + 1``: a key without rows would never
be released if it was known, so lone keys are no special case. The release of every noisy count, below T as well, of all
keys that there might be, tells no less. Of a count that moves by a, the a last values have no counterpart, with
probability ``P(Z >= T - a)``; all others are within ``exp(a / scale)``. So the condition is ``1 - product(1 - h) <=
delta`` once more, over all keys of a unit, or of both units under replace. These h are smaller by ``1 - exp(-1 /
scale)``.

**Gaussian.** See `dpsql.mechanisms.gaussian_keys`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from dpsql.contract.gaussian_profile import SMALLEST_DELTA
from dpsql.contract.relation import relation_of
from dpsql.errors import ParameterError
from dpsql.mechanisms.count_noise import CountNoise, TruncatedCountNoise
from dpsql.mechanisms.gaussian_keys import gaussian_rate
from dpsql.mechanisms.key_limits import KeyLimits, chance_of_rate, pure_rate
from dpsql.noise.discrete import LARGEST_SCALE

DROWNED = "epsilon is too small: the noise would drown any table. Raise epsilon."


def laplace_scale(epsilon: Fraction, neighbours: str, limits: KeyLimits) -> Fraction:
    """Return the scale of Laplace noise that makes the counts of all keys epsilon-DP.

    Raises
    ------
    ParameterError
        P018; P038, when the noise would drown any table.
    """
    _check_loss(epsilon)
    scale = Fraction(relation_of(neighbours).changes * limits.total) / epsilon
    if scale > LARGEST_SCALE:
        raise ParameterError("P038", DROWNED)
    return scale


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
        Law of the noise of the number that is compared with the threshold, as it is drawn: of the count, or of the sum
        of noisy numbers that is used as one.
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
        In lattice steps: a key is released when its noisy count is at least this.

    Raises
    ------
    ParameterError
        P018, P027; P038, when the noise leaves nothing of delta.

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


def truncated_count_noise(
    *, epsilon: Fraction, delta: Fraction, neighbours: str, limits: KeyLimits
) -> TruncatedCountNoise:
    """Return the truncated noise for counts of which those above its bound are released.

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
        Its bound is the least that holds, and at least its scale. The threshold is ``bound + 1``.

    Raises
    ------
    ParameterError
        P018, P027; P038, when the noise would drown any table.

    Notes
    -----
    - **Guarantee**: (epsilon, delta)-DP of the released keys and noisy counts. For one key per unit and add_remove it
      is the selection of keys that no other surpasses, at the delta that its bound has (Desfontaines et al. 2022).
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
    """Return the least integer from `low` on for which something that is monotone holds."""
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
