"""Noisy sums of several grouping sets, fitted so that sums of finer groups are those of coarser ones.

What is fitted is the exact number of every finest group; each noisy number is a sum of these, with noise of a variance
that its set has. The weighted least squares of a full product of keys fall apart into the components of an analysis of
variance: for each subset T of the keys, what is left of a table of T once all coarser tables are taken out. A set S
with all keys of T sees that component ``N`` times, where N is the number of finest groups that a group of S unites, and
averages noise over as many groups as S has for one of T. So a component is a weighted mean of what the sets see of it,
and the components of one set have uncorrelated noise.

The fitted numbers are linear in the noisy ones, without bias, and none has a larger variance than it had: this is
post-processing. They add up exactly, but for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from dpsql.arrays import Doubles
from dpsql.mechanisms.aggregates import Lattice, NoisyBlock
from dpsql.released.stored_blocks import restored_block
from dpsql.statistics.aggregates import GAUSSIAN, LAPLACE

# From this confidence on, an interval of Laplace noise is wider than that of normal noise of the same variance.
_WIDER = 0.92
_FINER_BITS = 8
# Noise that is no wider, relative to the widest, is taken to be as wide: at a huge epsilon there is next to none.
_LEAST = 1e-6


@dataclass(frozen=True, eq=False)
class FittedBlock(NoisyBlock):
    """The coordinates of a block after the fit.

    Attributes
    ----------
    fitted : ndarray of float64, shape (size, G)
    """

    fitted: Doubles

    @property
    def values(self) -> Doubles:
        """The coordinates, in units of the block's `unit`."""
        return self.fitted


def fitted_block(sets: Sequence[Mapping[str, Any]], number: int, place: int, confidence: float | None) -> NoisyBlock:
    """Return the block of one target in one set; as it was drawn, where the keys are no full product.

    Parameters
    ----------
    sets : sequence of mapping
        What the ledger keeps of each set; the first has all keys.
    number : int
        Of the set.
    place : int
        Of the target.
    confidence : float or None
        Of the intervals that are asked for: they are those of the law that is wider there.
    """
    blocks = [restored_block(one["blocks"][place]) for one in sets]
    table = _Table.of(sets)
    wanted = blocks[number]
    if table is None:
        return wanted
    values = [table.cells(block.values, which) for which, block in enumerate(blocks)]
    widest = max(block.deviation for block in blocks) or 1.0
    variances = [max(block.deviation / widest, _LEAST) ** 2 for block in blocks]
    fitted, variance = table.fit(values, variances, number)
    ratio = math.sqrt(min(1.0, variance / variances[number]))
    return FittedBlock(wanted.block, _narrower(wanted, ratio, confidence), wanted.words, table.groups(fitted, number))


def _narrower(noisy: NoisyBlock, ratio: float, confidence: float | None) -> Lattice:
    """Return a law of noise with a part of the deviation, on a finer lattice."""
    lattice = noisy.lattice
    finer = Fraction(1 << _FINER_BITS)
    part = Fraction(ratio)
    bits = lattice.bits - _FINER_BITS
    if lattice.noise == LAPLACE and (confidence is None or confidence >= _WIDER):
        return replace(lattice, bits=bits, spread=lattice.spread * finer * part)
    return Lattice(GAUSSIAN, bits, (Fraction(lattice.deviation) * finer * part) ** 2)


def _subsets(items: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for count in range(len(items) + 1):
        yield from combinations(items, count)


@dataclass(frozen=True, eq=False)
class _Table:
    """The full product of some keys.

    Attributes
    ----------
    sizes : tuple of int
        Number of values of each key column.
    sets : list of tuple of int
        The columns of each set.
    places : list of ndarray
        Of each set, the cell of each of its groups, in the order of the product.
    """

    sizes: tuple[int, ...]
    sets: list[tuple[int, ...]]
    places: list[Any]

    @classmethod
    def of(cls, sets: Sequence[Mapping[str, Any]]) -> _Table | None:
        """Return the table of the sets' keys; None where some combination is missing."""
        names = list(sets[0]["columns"])
        known = [{text: at for at, text in enumerate(dict.fromkeys(column))} for column in sets[0]["keys"]]
        sizes = tuple(map(len, known))
        columns, places = [], []
        for one in sets:
            mine = tuple(names.index(name) for name in one["columns"])
            count = math.prod(sizes[column] for column in mine)
            rows = list(zip(*one["keys"], strict=True)) if mine else [()]
            if len(rows) != count or not count:
                return None
            codes = np.zeros(len(rows), dtype=np.int64)
            for column, listed in zip(mine, one["keys"], strict=True):
                codes = codes * sizes[column] + np.array([known[column][text] for text in listed], dtype=np.int64)
            columns.append(mine)
            places.append(codes)
        return cls(sizes, columns, places)

    def cells(self, values: Doubles, number: int) -> Doubles:
        """Return the numbers of a set's groups as a table: an axis of coordinates, and one for each key column."""
        own = self.sets[number]
        out = np.zeros_like(values)
        out[:, self.places[number]] = values
        table = out.reshape(len(values), *(self.sizes[column] for column in own))
        order = np.argsort(own, kind="stable")
        table = table.transpose(0, *(1 + order))
        shape = [size if column in own else 1 for column, size in enumerate(self.sizes)]
        return table.reshape(len(values), *shape)

    def groups(self, table: Doubles, number: int) -> Doubles:
        """Return a table of a set as the numbers of its groups."""
        own = self.sets[number]
        kept = table.reshape(len(table), *(self.sizes[column] for column in sorted(own)))
        back = np.argsort(np.argsort(own, kind="stable"), kind="stable")
        flat = kept.transpose(0, *(1 + back)).reshape(len(table), -1)
        found: Doubles = flat[:, self.places[number]]
        return found

    def _united(self, columns: Sequence[int]) -> float:
        """Return how many combinations the other columns have."""
        return float(math.prod(size for column, size in enumerate(self.sizes) if column not in columns))

    def fit(self, values: Sequence[Doubles], variances: Sequence[float], number: int) -> tuple[Doubles, float]:
        """Return the fitted table of a set, and the variance of each of its numbers."""
        wanted = self.sets[number]
        scale = self._united(wanted)
        fitted = np.zeros_like(values[number])
        variance = 0.0
        for component in _subsets(sorted(wanted)):
            total, weights = np.zeros(1), 0.0
            for own, table, noise in zip(self.sets, values, variances, strict=True):
                if not set(component) <= set(own):
                    continue
                seen = self._united(own)
                over = math.prod(self.sizes[column] for column in own if column not in component)
                weight = seen * over / noise
                total = total + weight * self._component(table, component)
                weights += seen * weight
            fitted = fitted + scale * total / weights
            free = math.prod((self.sizes[column] - 1) / self.sizes[column] for column in component)
            variance += scale**2 * free / weights
        return fitted, variance

    def _component(self, table: Doubles, component: Sequence[int]) -> Doubles:
        """Return what is left of a table once it is averaged over other keys, and coarser tables are taken out."""
        for column in range(len(self.sizes)):
            mean = table.mean(axis=column + 1, keepdims=True)
            table = table - mean if column in component else mean
        return table
