"""Private bounds of columns without public ones, for functions of one call: the first pass draws them.

What the pass released is public for the next one, which clips rows one by one to it. Both parts add up: the bounds
cost `bounds_share` of epsilon, and what is drawn with them costs the rest. The ends of the data would not be private.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from dpsql.contract.arguments import share
from dpsql.contract.parameters import known
from dpsql.contract.plan import Quantity
from dpsql.mechanisms.interval_scan import IntervalNoise

BOUNDS_SHARE = share(
    "bounds_share",
    "Share of epsilon spent on private bounds where none are given, between 0 and 1.",
    0.25,
    hint="0.25 is usual.",
)
# Chance that one of the two claims about a found interval is false.
BOUNDS_FAILURE = Fraction(1, 100)


def are_missing(given: Mapping[str, object]) -> bool:
    """Whether neither bound is given; one alone is a mistake."""
    return given["lower"] is None and given["upper"] is None


def read_share(given: Mapping[str, object]) -> Fraction:
    """Return the checked share of epsilon for private bounds."""
    return known(Fraction, BOUNDS_SHARE.read(given))


def bounds_noise(epsilon: Fraction, neighbours: str, max_rows_per_unit: int) -> IntervalNoise:
    """Return the noise of the bounds of one column."""
    return IntervalNoise(epsilon, neighbours, max_rows_per_unit, BOUNDS_FAILURE)


def bounds_needed(noise: IntervalNoise) -> Quantity:
    """Return how many rows a column needs for its bounds to be found."""
    return (
        "bounds_rows_needed",
        float(noise.rows_needed),
        "rows with a value from which bounds are found, but for noise",
    )
