"""What one privacy unit may add to the counts of keys, and what keys that only it has may cost.

A key is *lone* if a single unit has it. Noise Z is added to counts, and a key is released when its noisy count is at
least T. Let ``f(a) = -log(1 - P(Z >= T - a))`` for a lone key of a rows, so that no lone key is released with
probability ``exp(-sum of f)``. As the noise has one mode, its tail is convex where T is at least the rows. Then f is
convex as well, and lies below the chord between its ends. Let K2 be the most that the squares of a unit's rows per key
add up to.

- With at most g keys of at most r rows each: b lone keys have a sum of f of at most ``b f(r)``. Common keys can have
  the share ``left = min(K2, (g - b) r**2) / K2`` of the squares.
- With at most m rows of at most r keys each: the rows of the lone keys add up to some b, at most ``m r``, and by the
  chord their sum of f is at most ``b max(f(1), f(m) / m)``. Common keys have at most ``m r - b`` rows, of which no key
  has more than m, so squares of at most ``m (m r - b)``: ``left = 1 - b / (m r)``.

Both are a number of *pieces*. A piece costs at most a *rate* of f in lone keys, and takes some *weight* from the
others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import ParameterError
from dpsql.mechanisms.count_noise import exponential
from dpsql.noise.exact import log_bounds


@dataclass(frozen=True)
class KeyLimits:
    """What one privacy unit may add to the counts of keys; made by `limits_by_group` and `limits_by_row`.

    Attributes
    ----------
    pieces : int
        Number of pieces that lone keys can take.
    lone : tuple of (int, int)
        Lone keys of this many pieces and this many counts are the worst ones.
    weight : Fraction
        Share of the squared norm that common keys lose with a piece at least; see `left`.
    total : int
        Most counts of one unit, added up: the L1 norm under add_remove, half of it under replace.
    squares : int
        Most that their squares over keys add up to: the squared L2 norm under add_remove, half of it under replace.
    """

    pieces: int
    lone: tuple[tuple[int, int], ...]
    weight: Fraction
    total: int
    squares: int

    def left(self, pieces: int) -> Fraction:
        """Return the share of `squares` that common keys can have beside lone keys of so many pieces."""
        return min(Fraction(1), (self.pieces - pieces) * self.weight)


def limits_by_group(groups: int, rows: int = 1, most_rows: int | None = None) -> KeyLimits:
    """Return the limits of a unit with at most `groups` keys, of `rows` rows each, and `most_rows` rows in all.

    Raises
    ------
    ParameterError
        P018, when one of them is not an integer >= 1.
    """
    most = groups * rows if most_rows is None else most_rows
    _check_integers(max_groups_per_unit=groups, max_rows_per_unit_group=rows, max_rows_per_unit=most)
    groups, total = min(groups, most), min(most, groups * rows)
    full, rest = divmod(total, rows)
    squares = full * rows**2 + rest**2
    return KeyLimits(groups, ((1, rows),), Fraction(rows**2, squares), total, squares)


def limits_by_row(keys_per_row: int, rows: int = 1) -> KeyLimits:
    """Return the limits of a unit with at most `rows` rows, of at most `keys_per_row` different keys each.

    Raises
    ------
    ParameterError
        P018, when one of them is not an integer >= 1.
    """
    _check_integers(max_keys_per_row=keys_per_row, max_rows_per_unit=rows)
    pieces = keys_per_row * rows
    lone = ((1, 1), (rows, rows)) if rows > 1 else ((1, 1),)
    return KeyLimits(pieces, lone, Fraction(1, pieces), pieces, pieces * rows)


def _digits_of(value: Fraction) -> int:
    """Return how many digits after the point a number below 1 needs for 40 of its own."""
    return 40 + max(0, value.denominator.bit_length() - value.numerator.bit_length()) * 302 // 1000


def pure_rate(delta: Fraction, pieces: int) -> Fraction:
    """Return ``-log(1 - delta) / pieces``, rounded down."""
    digits = _digits_of(delta)
    log = log_bounds(delta.denominator, digits)[0] - log_bounds(delta.denominator - delta.numerator, digits)[1]
    return Fraction(log, 10**digits * pieces)


def chance_of_rate(rate: Fraction) -> Fraction:
    """Return ``1 - exp(-rate)``, rounded down."""
    digits = _digits_of(rate)
    near = min(Fraction(1), rate)
    return Fraction(math.floor((1 - exponential(-rate, near)[1]) * 10**digits), 10**digits)


def _check_integers(**values: int) -> None:
    for name, value in values.items():
        if not isinstance(value, int) or not value >= 1:
            raise ParameterError("P018", f"{name} must be an integer >= 1; got {value}.")
