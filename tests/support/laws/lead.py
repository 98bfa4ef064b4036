"""The exact law of the lead of a selection over shuffled targets, by enumeration, without the product's code."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from dpsql.testing.neighbours import Table

# Leads of up to five rows and two features are multiples of one over this.
UNIT = 24
Order = tuple[int, ...]


def scores(table: Table) -> list[Fraction]:
    """Return ``|S_j| / (n - 1)`` of every feature with the target, a row's last value."""
    rows, width = len(table), len(table[0]) - 1
    pairs = list(itertools.combinations(table, 2))
    return [
        Fraction(abs(sum(_sign(p[j], q[j]) * _sign(p[-1], q[-1]) for p, q in pairs)), max(1, rows - 1))
        for j in range(width)
    ]


def _sign(one: Any, other: Any) -> int:
    return 0 if None in (one, other) else (one > other) - (one < other)


def shuffled(table: Table, order: Sequence[int]) -> Table:
    """Return the table whose row i has the target of row ``order[i]``, or a missing one where there is no such row."""
    targets = [table[place][-1] if place < len(table) else None for place in order]
    return tuple((*row[:-1], target) for row, target in zip(table, targets, strict=False))


def top(table: Table, k: int) -> Fraction:
    """Return the mean of the k largest scores."""
    return sum(sorted(scores(table), reverse=True)[:k], Fraction(0)) / k


def top_law(table: Table, k: int, orders: Iterable[Sequence[int]] | None = None) -> dict[Fraction, float]:
    """Return the law of the top of one shuffled target: over all permutations, or over those that are given."""
    found = Counter(top(shuffled(table, order), k) for order in orders or itertools.permutations(range(len(table))))
    total = found.total()
    return {value: times / total for value, times in found.items()}


def place_law(law: Mapping[Fraction, float], count: int, place: int) -> dict[Fraction, float]:
    """Return the law of the `place`-th largest of `count` independent values."""

    def fewer(reached: float) -> float:
        """Return the chance that fewer than `place` values are so large."""
        return sum(math.comb(count, i) * reached**i * (1 - reached) ** (count - i) for i in range(place))

    found, above = {}, 0.0
    for value in sorted(law, reverse=True):
        found[value] = fewer(above) - fewer(min(1.0, above + law[value]))
        above += law[value]
    return found


def lead_law(
    table: Table,
    chosen: Sequence[int],
    *,
    epsilon: float,
    delta: float,
    count: int = 9,
    place: int = 1,
    orders: Sequence[Order] | None = None,
    reach: int = 400,
) -> dict[int, float]:
    """Return the law of the noisy lead, in units of ``1 / UNIT``, cut off at -reach and reach.

    Parameters
    ----------
    table : tuple of tuple
        One row or more, the target last; None is missing.
    chosen : sequence of int
        The released features.
    epsilon, delta : float
        Noise has the scale ``delta / epsilon``.
    count, place : int
        How many permutations there are, and which of their largest tops counts.
    orders : sequence of tuple, optional
        What the permutations are, where they are not drawn.
    reach : int
    """
    k = len(chosen)
    found = scores(table)
    mean = sum((found[j] for j in chosen), Fraction(0)) / k
    if orders is None:
        law = place_law(top_law(table, k), count, place)
    else:
        law = {sorted((top(shuffled(table, one), k) for one in orders), reverse=True)[place - 1]: 1.0}
    decay = math.exp(-epsilon / (delta * UNIT))
    out = dict.fromkeys(range(-reach, reach + 1), 0.0)
    for value, chance in law.items():
        centre = int((mean - value) * UNIT)
        for step in out:
            end = 1 if abs(step) == reach else 1 - decay
            out[step] += chance * decay ** abs(step - centre) / (1 + decay) * end
    return out


def chance_above(table: Table, k: int, law: Mapping[Fraction, float], count: int, place: int) -> float:
    """Return the chance that the top of a target whose orders are equally likely is above the `place`-th of shuffled ones.

    Parameters
    ----------
    table : tuple of tuple
    k : int
    law : mapping
        Of the top of one shuffled target.
    count, place : int
    """
    total = 0.0
    for value, chance in top_law(table, k).items():
        reached = sum(share for one, share in law.items() if one >= value)
        total += chance * sum(math.comb(count, i) * reached**i * (1 - reached) ** (count - i) for i in range(place))
    return total


def loss(first: Mapping[Any, float], second: Mapping[Any, float]) -> float:
    """Return the largest log ratio of two laws; infinite where only one has an output."""
    if {key for key, chance in first.items() if chance} != {key for key, chance in second.items() if chance}:
        return math.inf
    return max(abs(math.log(first[key] / second[key])) for key, chance in first.items() if chance)
