"""Broken aggregates: constants of another bound or relation, exact counts and means, and coordinates that do not add up.

Laws are exact, over codes q in [-S, S] of a tiny S; None is a missing value. The right laws are those of
`support.laws.aggregates`, which takes coordinates and scales from the product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from dpsql.contract.relation import Contribution
from dpsql.statistics.aggregates import Block, SharedCount
from support.laws.aggregates import Law, grouped_law, noisy_law

Codes = Sequence[int | None]


def _present(codes: Codes) -> list[int]:
    return [code for code in codes if code is not None]


def width_as_sensitivity_law(codes: Codes, lower: int, upper: int, epsilon: Fraction) -> Law:
    """Return the law of a sum of integers in [lower, upper], with noise for the width of the interval.

    Notes
    -----
    - **What is wrong**: a row that comes adds up to ``max(abs(lower), abs(upper))``, not ``upper - lower``.
    - **Caught by**: `check_exhaustively` under add_remove. Under replace the width is right, if no value is missing.
    - **Counter-example**: values in [90, 100] with sensitivity 10: loss 10 epsilon.
    """
    return noisy_law([sum(_present(codes))], Fraction(upper - lower) / epsilon)


def exact_count_mean_law(codes: Codes, one: int, epsilon: Fraction) -> Law:
    """Return the law of a noisy sum of codes divided by the exact number of rows.

    Notes
    -----
    - **What is wrong**: the result is a multiple of ``1 / n``, so that it tells n.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: one row or two: an odd multiple of 1/2 is impossible for one. Infinite loss.
    """
    present = _present(codes)
    law: Law = {}
    for (noisy,), probability in noisy_law([sum(present)], one / epsilon).items():
        at = (Fraction(int(noisy), max(1, len(present))),)
        law[at] = law.get(at, 0.0) + probability
    return law


def exactly_centred_law(codes: Codes, one: int, epsilon: Fraction) -> Law:
    """Return the law of the sum of squares about the exact mean, rounded, with noise for squares about the middle.

    Notes
    -----
    - **What is wrong**: about the middle of the bounds a square is at most ``S**2``. About the mean of the rows a new
      row at one end, with all others at the other, adds ``4 S**2 n / (n + 1)``.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: three rows at -S and one more at S: loss 3 epsilon.
    """
    present = _present(codes)
    if not present:
        return noisy_law([0], one**2 / epsilon)
    square = sum(code**2 for code in present) - Fraction(sum(present) ** 2, len(present))
    return noisy_law([round(square)], one**2 / epsilon)


def twice_epsilon_law(codes: Codes, one: int, epsilon: Fraction) -> Law:
    """Return the law of a count and a sum, each with noise for the whole of epsilon.

    Notes
    -----
    - **What is wrong**: a row moves both; the losses add up.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: a row with ``q = S``: loss 2 epsilon.
    """
    present = _present(codes)
    return grouped_law([([one * len(present)], one / epsilon), ([sum(present)], one / epsilon)])


def separately_rounded_law(values: Sequence[float | None], one: int, epsilon: Fraction) -> Law:
    """Return the law of the two sums of a transformed pair, where ``S + z`` and ``S - z`` are rounded on their own.

    Notes
    -----
    - **What is wrong**: both may be rounded up, and then a row adds more than 2 S to ``A + B``. One is to be 2 S less
      the other.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: S = 1, z = 1/2: the row adds (2, 1) instead of (2, 0) or (1, 1). Loss 1.5 epsilon.
    """
    present = [value for value in values if value is not None]
    up = sum(math.floor((1 + value) * one + 0.5) for value in present)
    down = sum(math.floor((1 - value) * one + 0.5) for value in present)
    return noisy_law([up, down], 2 * one / epsilon)


def overflowing_law(codes: Codes, one: int, epsilon: Fraction, bits: int) -> Law:
    """Return the law of the Bernstein sums where the engine raises an error beyond a number of bits.

    Notes
    -----
    - **What is wrong**: ``4 S**2 n`` leaves 64 bits at ``2**21`` rows, and DuckDB's BIGINT raises. An error that
      depends on the number of rows is a result.
    - **Caught by**: `check_exhaustively`, at fewer bits.
    - **Counter-example**: S = 1, 4 bits: three rows give numbers, a fourth an error. Infinite loss.
    """
    present = _present(codes)
    if 4 * one**2 * len(present) >= 1 << bits:
        return {"error": 1.0}
    return noisy_law(bernstein(present, one), 4 * one**2 / epsilon)


def coarse_without_charge_law(codes: Codes, one: int, epsilon: Fraction, bits: int) -> Law:
    """Return the law of the Bernstein sums, rounded to multiples of ``2**bits``, with the scale divided by that.

    Notes
    -----
    - **What is wrong**: each sum that is rounded moves by up to one more.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: S = 1, one bit: a row may move two sums by one each and the third by one more, at a scale
      for 2. Loss 1.5 epsilon.
    """
    half = 1 << (bits - 1)
    rounded = [(value + half) >> bits for value in bernstein(_present(codes), one)]
    return noisy_law(rounded, Fraction(4 * one**2 >> bits) / epsilon)


def bernstein(codes: Sequence[int], one: int) -> list[int]:
    """Return the sums of (S - q)**2, 2 (S - q) (S + q) and (S + q)**2."""
    return [
        sum((one - code) ** 2 for code in codes),
        sum(2 * (one - code) * (one + code) for code in codes),
        sum((one + code) ** 2 for code in codes),
    ]


def rows_as_squared_norm(contribution: Contribution) -> int:
    """Return the number of rows of a unit where K2 is needed.

    Notes
    -----
    - **What is wrong**: m rows in one group move its count by m, the squared norm by ``m**2``; only m rows in m groups
      have m.
    - **Caught by**: the joint sensitivity over all units within the caps.
    - **Counter-example**: m = r = 3, g = 1: 3 against 9, noise too narrow by ``sqrt(3)``.
    """
    return contribution.rows


def groups_as_squared_norm(contribution: Contribution) -> int:
    """Return K2 where the rows of a unit in one group have no cap.

    Notes
    -----
    - **What is wrong**: g groups were capped, and rows per group were not.
    - **Caught by**: as above.
    - **Counter-example**: g = 2, and two rows in each: 2 against 8.
    """
    return contribution.groups


def keys_of_the_rows(counts: Sequence[int], contribution: Contribution) -> int:
    """Return the L1 sensitivity of counts, with the number of keys that occur in the table.

    Notes
    -----
    - **What is wrong**: which keys occur is not public: a replaced row may bring another one. And the noise would tell.
    - **Caught by**: the counts of all pairs of small tables.
    - **Counter-example**: one row, replaced by one of another key: two counts move by 1, the noise is for 1.
    """
    present = max(1, sum(count > 0 for count in counts))
    return Contribution("replace", contribution.rows, contribution.groups, contribution.rows_per_group, present).norm(
        1, distance=0
    )


def constants_of_one_group(block: Block, contribution: Contribution) -> tuple[int, int]:
    """Return the sensitivities under replace that hold without groups, for any number of these.

    Notes
    -----
    - **What is wrong**: a count moves by m, since it lies between 0 and m in both tables; two counts move by 2 m.
    - **Caught by**: the joint sensitivity over all units within the caps.
    - **Counter-example**: one row in each of two tables, of different keys: 1 against 2.
    """
    one = Contribution("replace", contribution.rows, 1, contribution.rows, keys=1)
    return block.norm(one), block.squared_norm(one)


def count_for_nothing(block: SharedCount) -> tuple[int, int]:
    """Return the sensitivities of one row's sums, without the count that the targets share.

    Notes
    -----
    - **What is wrong**: a row that comes moves the count, too: by w, beside t sums.
    - **Caught by**: the joint sensitivity over all units within the caps.
    - **Counter-example**: one row with values at the bounds: t + w against t.
    """
    size = len(block.shared)
    return size * block.denominator, size * block.denominator**2


def width_of_the_bounds(lower: int, upper: int) -> int:
    """Return the width of the bounds as sensitivity of a sum without groups, under replace.

    Notes
    -----
    - **What is wrong**: a row may be replaced by one whose value is NULL, or that a condition leaves out. So 0 is one of
      the values, and [90, 100] is as wide as [0, 100].
    - **Caught by**: `check_exhaustively` under replace, with missing values.
    - **Counter-example**: 100 replaced by NULL: 100 against 10.
    """
    return upper - lower
