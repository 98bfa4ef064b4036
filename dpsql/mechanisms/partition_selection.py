"""Partition selection: which keys of a private table are released; only those whose noisy count is large.

A key that a single privacy unit has must almost never be released, because without that unit it would not even be
known. "Almost" is what delta is for.

Let m be the most rows of a unit, r the most keys of a row, s = 1 under ``add_remove`` and 2 under ``replace``. The
count of a key is the number of rows that have it. Noise Z is added to the count of every key that occurs, and a key is
released when its noisy count is at least T. Between neighbouring tables there are

- keys that occur in both: their counts move by at most ``s m r`` in sum, and as a vector by ``m sqrt(s r)``. Noise
  for that makes their part of the release epsilon-DP (Laplace), or (epsilon, delta / 2)-DP (Gaussian);
- keys that occur in one table only, so only in the rows of the unit: counts ``a_j`` in [1, m], under ``replace`` in the
  old or in the new rows, and ``a_1 + a_2 + ... <= m r`` on each side. Such a key is released with probability
  ``h(a_j)``, ``h(a) = P(Z >= T - a)``, from one table and never from the other: its part is (0, h(a_j))-DP.

Noises are independent, so deltas add up to at most ``s`` times the largest possible ``h(a_1) + h(a_2) + ...``. For
T >= m h is convex on [1, m], and so below the line through its ends: ``h(a) <= a max(h(1), h(m) / m)``, and the sum is
at most ``m r max(h(1), h(m) / m) = r max(m h(1), h(m))``. T is the least threshold with::

    s r m P(Z >= T - 1) <= delta'    and    s r P(Z >= T - m) <= delta'

delta' being delta, or delta / 2 with Gaussian noise. For m = 1 both are one. With discrete Laplace noise of
``a = exp(-epsilon / (s m r))`` it is ``P(Z >= k) = a**k / (1 + a)``: the threshold of continuous Laplace noise,
``1 + ln(r / (2 delta)) r / epsilon``, is too low for it (`tests/support/broken/filters.py`). Nothing is lost by looking
at a replacement as a whole; two steps of half the epsilon would need ``delta / (1 + exp(epsilon / 2))`` for each.

The keys are released in the order of their names: any other order might tell something about the counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.gaussian_profile import SMALLEST_DELTA, usable_mu
from dpsql.contract.relation import relation_of
from dpsql.errors import InternalError, ParameterError
from dpsql.mechanisms.gaussian import counting_unit, gaussian_release
from dpsql.noise.discrete import LARGEST_SCALE, discrete_laplace, laplace_deviation
from dpsql.noise.entropy import SYSTEM, BitSource
from dpsql.noise.exact import exp_bounds, log_bounds

NOISES = ("laplace", "gaussian")

_DIGITS = 40
# Digits after the point of a double do not matter to a threshold of Gaussian noise: a share above them does.
_MARGIN = 2.0**-30
# In units of Gaussian noise: its variance at least, and keys that are drawn together.
_LEAST_VARIANCE = 1 << 64
_CHUNK = 1 << 20
# In rows: larger noise is useless.
_WIDEST = 2.0**40
_DROWNED = "epsilon is too small: the noise would drown any table. Raise epsilon."


@dataclass(frozen=True)
class PartitionSelection:
    """The public numbers of one selection of keys.

    Attributes
    ----------
    noise : {'laplace', 'gaussian'}
        Law of the noise on each count.
    scale : Fraction
        Of Laplace noise its scale, in rows; of Gaussian noise its standard deviation in units of ``2**-shift`` rows,
        times mu: the L2 sensitivity in that unit, rounded up.
    threshold : float
        A key is released when its noisy count is at least this. A whole number with Laplace noise.
    mu : Fraction
        Of Gaussian noise: the counts of keys that occur in both tables are released with mu-GDP. Else 0.
    shift : int
        Of Gaussian noise: counts are put in units of ``2**-shift`` rows, so that the noise is at least ``2**32`` units
        wide. Else 0.
    """

    noise: str
    scale: Fraction
    threshold: float
    mu: Fraction = Fraction(0)
    shift: int = 0

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise, in rows."""
        if self.noise == "gaussian":
            return float(self.scale / self.mu) * 2.0**-self.shift
        return laplace_deviation(self.scale)


def partition_selection(
    noise: str,
    *,
    epsilon: Fraction,
    delta: Fraction,
    neighbours: str,
    max_keys_per_row: int,
    max_rows_per_unit: int = 1,
) -> PartitionSelection:
    """Return the noise and the threshold of a selection of keys.

    Parameters
    ----------
    noise : {'laplace', 'gaussian'}
    epsilon : Fraction
        Privacy loss, > 0; at most 2**19 with Gaussian noise.
    delta : Fraction
        In (0, 1): chance at most that a key of one unit alone is released, and with Gaussian noise half of it.
    neighbours : {'add_remove', 'replace'}
    max_keys_per_row : int
        Distinct keys of one row at most, >= 1; enforced.
    max_rows_per_unit : int
        Rows of one privacy unit at most, >= 1.

    Returns
    -------
    selection : PartitionSelection

    Raises
    ------
    ParameterError
        P018; P038, when the noise would drown any table.
    """
    row = relation_of(neighbours)
    if noise not in NOISES:
        raise ParameterError("P018", f"noise must be one of {', '.join(NOISES)}; got {noise!r}.")
    if not isinstance(epsilon, Fraction) or not epsilon > 0:
        raise ParameterError("P018", f"epsilon must be a Fraction > 0; got {epsilon}.")
    if not isinstance(delta, Fraction) or not 0 < delta < 1:
        raise ParameterError("P018", f"delta must be strictly between 0 and 1; got {delta}. Try 1e-6.")
    for name, value in (("max_keys_per_row", max_keys_per_row), ("max_rows_per_unit", max_rows_per_unit)):
        if not isinstance(value, int) or not value >= 1:
            raise ParameterError("P018", f"{name} must be an integer >= 1; got {value}.")
    unit = relation_of(neighbours, max_rows_per_unit)
    keys, rows, total = row.norm(max_keys_per_row), unit.rise(1), unit.norm(max_keys_per_row)
    squared = unit.squared_norm(max_keys_per_row, opposing=False)
    if noise == "laplace":
        scale = Fraction(total) / epsilon
        if scale > LARGEST_SCALE:
            raise ParameterError("P038", _DROWNED)
        steps = max(1 + laplace_tail(scale, delta / total), rows + laplace_tail(scale, delta / keys))
        return PartitionSelection(noise, scale, float(steps))
    mu = usable_mu(epsilon, delta / 2)
    shift, root = counting_unit(squared, mu**2, _LEAST_VARIANCE)
    sensitivity = Fraction(root)
    deviation = float(sensitivity / mu) * 2.0**-shift
    if deviation > _WIDEST:
        raise ParameterError("P038", _DROWNED)
    threshold = max(
        1 + deviation * normal_tail(delta / (2 * total)), rows + deviation * normal_tail(delta / (2 * keys))
    )
    return PartitionSelection(noise, sensitivity, threshold * (1 + _MARGIN), mu, shift)


def select_partitions(
    names: Sequence[str], counts: NDArray[np.int64], selection: PartitionSelection, *, source: BitSource = SYSTEM
) -> list[str]:
    """Return the released keys in the order of their names.

    Parameters
    ----------
    names : sequence of str
        The keys that occur in the table, each once.
    counts : ndarray of int64, shape (keys,)
        Rows that have each key, >= 1.
    selection : PartitionSelection
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    released : list of str
        Sorted by code points; possibly none.

    Raises
    ------
    InternalError
        I031, when a count is not positive or a name stands twice.

    Notes
    -----
    - **Guarantee**: (epsilon, delta)-DP of `partition_selection`; it is not zCDP at any rho.
    - **Neighbouring relation**: the one of `partition_selection`.
    - **Sensitivity**: of the counts of keys that occur in both tables, L1 (Laplace) or L2 (Gaussian); of all others,
      how likely they are released at all.
    - **Randomness**: exact integer samplers, operating-system entropy, no seed.
    - **Assumes**: a row counts once for a key, and for at most `max_keys_per_row` keys.
    - **Does not protect**: running time, which grows with the number of keys in the table.
    """
    values = np.asarray(counts, dtype=np.int64)
    if len(values) != len(names) or len(set(names)) != len(names) or not (values >= 1).all():
        raise InternalError("I031", "keys must be distinct and have a count of at least 1 each.")
    if selection.noise == "laplace":
        noisy = (values + discrete_laplace(selection.scale, len(values), source=source)).astype(np.float64)
    else:
        chunks = [values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK)]
        noisy = np.concatenate([np.empty(0), *(_noisy(chunk, selection, source) for chunk in chunks)])
    return sorted(names[position] for position in np.flatnonzero(noisy >= selection.threshold).tolist())


def _noisy(values: NDArray[np.int64], selection: PartitionSelection, source: BitSource) -> NDArray[np.float64]:
    """Add Gaussian noise to some of the counts; neighbouring tables differ in few of them, however many there are."""
    fine = values.astype(object) << selection.shift
    release = gaussian_release(fine, sensitivity=int(selection.scale), squared_mu=selection.mu**2, source=source)
    return release.values * 2.0**-selection.shift


def laplace_tail(scale: Fraction, chance: Fraction) -> int:
    """Return the least k >= 1 with ``P(Z >= k) <= chance``, Z discrete Laplace of that scale; never too small.

    Parameters
    ----------
    scale : Fraction
        > 0.
    chance : Fraction
        In (0, 1).

    Notes
    -----
    ``P(Z >= k) = a**k / (1 + a)``, ``a = exp(-1 / scale)``: k is at least ``scale * -ln(chance (1 + a))``. Every
    rounding enlarges it, so that it is one too large only when `chance` agrees with one of these numbers to 30 digits.
    """
    unit = 10**_DIGITS
    exponent = (
        log_bounds(chance.denominator, _DIGITS)[1]
        - log_bounds(chance.numerator, _DIGITS)[0]
        + log_bounds(unit, _DIGITS)[1]
        - log_bounds(unit + exp_bounds(-1 / scale, _DIGITS)[0], _DIGITS)[0]
    )
    least: int = -(-exponent * scale.numerator // (unit * scale.denominator))
    return max(1, least)


def normal_tail(chance: Fraction) -> float:
    """Return a z >= 0 with ``P(Z >= z) <= chance`` for standard normal Z, at most a share of 1e-8 above the least.

    Parameters
    ----------
    chance : Fraction
        In [1e-300, 1).

    Raises
    ------
    ParameterError
        P038, when the chance is below that.

    Notes
    -----
    Doubles, with a share of ``2**-30`` for the error of ``erfc``, which is below ``2**-50``, and for the difference of
    discrete and continuous noise, below ``2**-38``.
    """
    if not chance >= SMALLEST_DELTA:
        raise ParameterError("P038", "delta is too small for so many features and rows per unit. Raise it.")
    goal = float(chance) * (1 - _MARGIN)
    low, high = 0.0, 40.0
    if math.erfc(0.0) / 2 <= goal:
        return 0.0
    while high - low > _MARGIN * high:
        middle = (low + high) / 2
        low, high = (low, middle) if math.erfc(middle / math.sqrt(2)) / 2 <= goal else (middle, high)
    return high
