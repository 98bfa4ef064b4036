"""The exact law of the Tukey mechanism, computed from its definition: an oracle that shares no code with the sampler.

The real line is cut where any cell of any model at hand begins or ends; depth is constant in between. All numbers are
fractions; exponentials are cut to 40 digits.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property

Model = tuple[float, ...]
Models = Sequence[Model]

_BITS = 30
_EXPONENTS = -200, 200
_DIGITS = 40


@dataclass(frozen=True)
class TukeyLaw:
    """The law of one call: None with probability ``1 - passing``, else a density that depends on the depth.

    Attributes
    ----------
    models : sequence of tuple of float
        The table, m models of p coefficients.
    passing : Fraction
        Probability in [0, 1] that the test passes.
    density : dict
        depth -> density of the draw per volume, given that the test passes.
    """

    models: Models
    passing: Fraction
    density: Mapping[int, Fraction]

    def depths(self) -> dict[int, float]:
        """Return depth -> probability of the draw, given that the test passes."""
        layers = volumes(self.models)
        return {i: float(value * (layers[i] - layers[i + 1])) for i, value in self.density.items()}

    @cached_property
    def _cuts(self) -> list[list[Fraction]]:
        """Where cells begin or end, for each coordinate."""
        return [sorted({end for value in column for end in cell(value)}) for column in zip(*self.models, strict=True)]

    def pieces(self) -> dict[tuple[int, ...] | None, float]:
        """Return outcome of `piece` -> probability, over everything that a call may return."""
        law: dict[tuple[int, ...] | None, float] = {None: float(1 - self.passing)}
        for numbers in itertools.product(*(range(len(cuts) - 1) for cuts in self._cuts)):
            ends = [(cuts[number], cuts[number + 1]) for number, cuts in zip(numbers, self._cuts, strict=True)]
            density = self.density.get(self._depth(ends), Fraction(0))
            volume = math.prod((high - low for low, high in ends), start=Fraction(1))
            law[numbers] = float(self.passing * density * volume)
        return law

    def piece(self, point: Sequence[float] | None) -> tuple[int, ...] | None:
        """Return the piece of space, cut where a cell of a model begins or ends, that a point lies in."""
        if point is None:
            return None
        return tuple(bisect.bisect_right(cuts, value) - 1 for value, cuts in zip(point, self._cuts, strict=True))

    def depth(self, point: Sequence[float]) -> int:
        """Return the depth of a point."""
        return self._depth([cell(value) for value in point])

    def _depth(self, ends: Sequence[tuple[Fraction, Fraction]]) -> int:
        columns = zip(zip(*self.models, strict=True), ends, strict=True)
        return min(_depth(list(map(cell, column)), low, high) for column, (low, high) in columns)


def exponential(exponent: Fraction) -> Fraction:
    """Return ``e**exponent`` to 40 digits."""
    with localcontext() as context:
        context.prec = _DIGITS
        return Fraction((Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp())


def cell(value: float) -> tuple[Fraction, Fraction]:
    """Return the ends of the cell of the public grid that a value lies in."""
    size = Fraction(abs(value))
    if size < Fraction(2) ** _EXPONENTS[0]:
        return -(Fraction(2) ** _EXPONENTS[0]), Fraction(2) ** _EXPONENTS[0]
    exponent = math.frexp(value)[1] - 1
    width = Fraction(2) ** (exponent - _BITS + 1)
    low = math.floor(size / width) * width
    if size >= Fraction(2) ** _EXPONENTS[1]:
        width = Fraction(2) ** (_EXPONENTS[1] - _BITS)
        low = Fraction(2) ** _EXPONENTS[1] - width
    return (low, low + width) if value > 0 else (-low - width, -low)


def volumes(models: Models) -> list[Fraction]:
    """Return ``V_i``, the volume of the points of depth i at least; entry 0 is not used, the last one is 0."""
    deepest = len(models) // 2
    found = [Fraction(0)] * (deepest + 2)
    columns = [sorted(map(cell, column)) for column in zip(*models, strict=True)]
    for i in range(1, deepest + 1):
        found[i] = math.prod((column[-i][1] - column[i - 1][0] for column in columns), start=Fraction(1))
    return found


def reach(models: Models, growth: Fraction, delta: Fraction) -> int:
    """Return K for a density that grows by `growth` per level of depth, by its definition."""
    start, deepest = len(models) // 4, len(models) // 2
    volume = volumes(models)
    found = -1
    for k in range(min(start - 1, deepest - start)):
        least = start + k + 1
        weight = sum((volume[i] - volume[i + 1]) * growth**i for i in range(least, deepest + 1))
        if not volume[start - k - 1] * growth**least <= delta / (1 + 2 * growth**2) * weight:
            break
        found = k
    return found


def passing_probability(score: int, scale: Fraction, threshold: Fraction) -> Fraction:
    """Return ``P(score + Z > threshold)``, Z discrete Laplace: ``P(z)`` proportional to ``e**(-|z| / scale)``."""
    ratio = exponential(-1 / scale)
    least = math.floor(threshold) + 1 - score
    return ratio**least / (1 + ratio) if least > 0 else 1 - ratio ** (1 - least) / (1 + ratio)


def threshold(epsilon_test: Fraction, delta: Fraction) -> Fraction:
    """Return ``log(1 / (2 delta)) / epsilon_test`` to 40 digits."""
    with localcontext() as context:
        context.prec = _DIGITS
        odds = 1 / (2 * delta)
        return Fraction((Decimal(odds.numerator) / Decimal(odds.denominator)).ln()) / epsilon_test


def growing_density(models: Models, growth: Fraction) -> dict[int, Fraction]:
    """Return depth -> density of a draw that grows by `growth` per level, from depth ``floor(m / 4)``."""
    volume = volumes(models)
    depths = range(len(models) // 4, len(models) // 2 + 1)
    total = sum((volume[i] - volume[i + 1]) * growth**i for i in depths)
    return {i: growth**i / total for i in depths}


def tukey_law(
    models: Models, *, epsilon_test: Fraction, delta: Fraction, growth: Fraction, noise: Fraction | None = None
) -> TukeyLaw:
    """Return the law of `dpsql.mechanisms.tukey.tukey`.

    Parameters
    ----------
    models : sequence of tuple of float
        m >= 8 models.
    epsilon_test, delta : Fraction
        As for the mechanism.
    growth : Fraction
        Factor per level of depth, at most ``e**(epsilon_draw / 2)``.
    noise : Fraction, optional
        Scale of the noise of the test, by default ``1 / epsilon_test``.
    """
    score = reach(models, growth, delta)
    passing = passing_probability(score, noise or 1 / epsilon_test, threshold(epsilon_test, delta))
    return TukeyLaw(models, passing, growing_density(models, growth))


def hockey_stick(first: TukeyLaw, second: TukeyLaw, epsilon: Fraction) -> float:
    """Return ``max_E P1(E) - e**epsilon P2(E)``, over None and all sets of points."""
    factor = exponential(epsilon)
    excess = max(Fraction(0), (1 - first.passing) - factor * (1 - second.passing))
    for (here, there), volume in common_volumes(first.models, second.models).items():
        one = first.passing * first.density.get(here, 0)
        other = second.passing * second.density.get(there, 0)
        excess += volume * max(Fraction(0), one - factor * other)
    return float(excess)


def common_volumes(first: Models, second: Models) -> dict[tuple[int, int], Fraction]:
    """Return (depth in the first table, depth in the second) -> volume, for depths of which one is positive."""
    columns = zip(zip(*first, strict=True), zip(*second, strict=True), strict=True)
    found: dict[tuple[int, int], Fraction] = {}
    pieces = [_pieces(*pair) for pair in columns]
    for combination in itertools.product(*pieces):
        depths = min(piece[1] for piece in combination), min(piece[2] for piece in combination)
        if depths != (0, 0):
            volume = math.prod((piece[0] for piece in combination), start=Fraction(1))
            found[depths] = found.get(depths, Fraction(0)) + volume
    return found


def _pieces(first: Sequence[float], second: Sequence[float]) -> list[tuple[Fraction, int, int]]:
    """Length and both depths of the pieces of one coordinate; pieces of the same depths are one."""
    tables = [[cell(value) for value in column] for column in (first, second)]
    cuts = sorted({end for table in tables for ends in table for end in ends})
    lengths: dict[tuple[int, int], Fraction] = {}
    for low, high in itertools.pairwise(cuts):
        here, there = (_depth(table, low, high) for table in tables)
        lengths[here, there] = lengths.get((here, there), Fraction(0)) + high - low
    return [(length, here, there) for (here, there), length in lengths.items()]


def _depth(cells: Sequence[tuple[Fraction, Fraction]], low: Fraction, high: Fraction) -> int:
    """Depth of the points between two cuts: a point is not below a model from the lower end of the model's cell on."""
    above, below = sum(ends[0] <= low for ends in cells), sum(ends[1] >= high for ends in cells)
    return min(len(cells) // 2, above, below)
