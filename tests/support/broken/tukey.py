"""Broken Tukey mechanisms: what is wrong with the reference code, as laws and samplers, and blocks by position.

References
----------
.. [1] google-research/dp_regression, ``tukey.py``.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.tukey import (
    DepthBoxes,
    cell_at,
    cells,
    draw_depth,
    growth_per_level,
    lower_end,
    midpoint,
    tail_weights,
)
from dpsql.noise.entropy import BitSource, WordReader
from support.laws.tukey import (
    Models,
    TukeyLaw,
    exponential,
    growing_density,
    passing_probability,
    reach,
    threshold,
    tukey_law,
    volumes,
)


def inverted_noise_law(models: Models, *, epsilon_test: Fraction, epsilon_draw: Fraction, delta: Fraction) -> TukeyLaw:
    """Return the law of a test whose noise has the scale ``epsilon_test``.

    Notes
    -----
    - **What is wrong**: the scale should be ``1 / epsilon_test``; the test costs ``1 / epsilon_test`` per step of K.
    - **Caught by**: `hockey_stick`.
    - **Counter-example**: epsilon 0.4 and 0.4, delta 0.075; the integers from 0 to 147, of which the first moves
      to 74.5: K is 5 and 4.
    """
    growth = exponential(epsilon_draw / 2)
    return tukey_law(models, epsilon_test=epsilon_test, delta=delta, growth=growth, noise=epsilon_test)


def off_by_one_law(models: Models, *, epsilon_test: Fraction, epsilon_draw: Fraction, delta: Fraction) -> TukeyLaw:
    """Return the law of a test that takes K + 1 for K.

    Notes
    -----
    - **What is wrong**: unsafe tables count as K = 0 and pass more often than delta allows.
    - **Caught by**: `hockey_stick`.
    - **Counter-example**: epsilon_test = 1/2, delta just above ``e**-1.5 / 2``; eight models, six 0 and two 1, against
      seven 0 and one 1: 0.139 where 0.112 is claimed.
    """
    growth = exponential(epsilon_draw / 2)
    score = reach(models, growth, delta) + 1
    passing = passing_probability(score, 1 / epsilon_test, threshold(epsilon_test, delta))
    return TukeyLaw(models, passing, growing_density(models, growth))


def monotone_law(models: Models, *, epsilon_test: Fraction, epsilon_draw: Fraction, delta: Fraction) -> TukeyLaw:
    """Return the law of a density that grows by ``e**epsilon_draw`` per level of depth, twice as fast as allowed.

    Notes
    -----
    - **What is wrong**: depth is taken for monotone, which it is when a model is added. A row more replaces the model
      of its block: depth falls on one side and rises on the other.
    - **Caught by**: `hockey_stick`.
    - **Counter-example**: 120 models on a line, the upper gaps ten times as wide as the lower ones; the lowest model
      becomes the highest. epsilon 0.3 and 2, delta 0.01.
    """
    return tukey_law(models, epsilon_test=epsilon_test, delta=delta, growth=exponential(epsilon_draw))


def too_deep_law(models: Models, *, epsilon_test: Fraction, epsilon_draw: Fraction, delta: Fraction) -> TukeyLaw:
    """Return the law of a draw one level too deep: the depth i is drawn rightly, the point has depth i + 1.

    Parameters
    ----------
    models : sequence of tuple of float
        Without ties: every depth has points.
    epsilon_test, epsilon_draw, delta : Fraction
        As for the mechanism.

    Notes
    -----
    - **What is wrong**: points of depth ``floor(m / 4)`` never come out, and the density of others depends on the
      ratio of the volumes of two depths, which one model can change at will.
    - **Caught by**: `hockey_stick`; `fit` against the exact law.
    - **Counter-example**: 120 models on a line, the gaps about 1 but for one of a thousandth near the middle; the last
      of one side moves to make such a gap on the other side of the middle.
    """
    right = tukey_law(models, epsilon_test=epsilon_test, delta=delta, growth=exponential(epsilon_draw / 2))
    layers = volumes(models)
    deepest = len(models) // 2
    mass = dict.fromkeys(right.density, Fraction(0))
    for i, density in right.density.items():
        mass[min(i + 1, deepest)] += density * (layers[i] - layers[i + 1])
    return TukeyLaw(models, right.passing, {i: mass[i] / (layers[i] - layers[i + 1]) for i in mass})


def too_deep_point(models: NDArray[np.float64], *, epsilon_draw: Fraction, source: BitSource) -> NDArray[np.float64]:
    """Draw a point one level too deep, see `too_deep_law`; without a test."""
    boxes, growth, reader = DepthBoxes(models), growth_per_level(epsilon_draw), WordReader(source)
    depth = draw_depth(boxes, tail_weights(boxes, growth), growth, reader)
    return boxes.point(min(depth + 1, boxes.deepest), reader)


def inner_slabs_point(models: NDArray[np.float64], *, epsilon_draw: Fraction, source: BitSource) -> NDArray[np.float64]:
    """Draw a point whose slab has weights with inner widths on both sides; without a test.

    Notes
    -----
    - **What is wrong**: coordinates after the slab's range over the outer box, so its weight has their outer widths.
    - **Caught by**: `fit` against the exact law.
    - **Counter-example**: two coordinates with outer widths (2, 3) and inner widths (1, 1): weights 1 : 2 for the
      slabs, where 3 : 2 is uniform.
    """
    boxes, growth, reader = DepthBoxes(models), growth_per_level(epsilon_draw), WordReader(source)
    depth = draw_depth(boxes, tail_weights(boxes, growth), growth, reader)
    ends = [_ends(models[:, column], depth) for column in range(models.shape[1])]
    weights = []
    for slab, (outer, inner) in enumerate(ends):
        weight = _width(outer) - _width(inner)
        for column, (_, other) in enumerate(ends):
            weight *= 1 if column == slab else _width(other)
        weights.append(weight)
    if not any(weights):  # the deepest box
        return boxes.point(depth, reader)
    rest, slab = reader.below(sum(weights)), 0
    while rest >= weights[slab]:
        rest -= weights[slab]
        slab += 1
    point = np.empty(len(ends))
    for column, (outer, inner) in enumerate(ends):
        low, high = inner if column < slab else outer
        position = low + reader.below(high - low)
        while column == slab and inner[0] <= position < inner[1]:
            position = low + reader.below(high - low)
        point[column] = midpoint(cell_at(position))
    return point


def _ends(values: NDArray[np.float64], depth: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the ends of the outer and of the inner interval of a coordinate, in units of the finest cell."""
    ordered = sorted(cells(values).tolist())

    def interval(i: int) -> tuple[int, int]:
        return lower_end(ordered[i - 1]), lower_end(ordered[-i] + 1)

    deeper = interval(depth + 1) if depth < len(ordered) // 2 else (0, 0)
    return interval(depth), deeper


def _width(interval: tuple[int, int]) -> int:
    return interval[1] - interval[0]


def position_blocks(rows: int, blocks: int) -> NDArray[np.int64]:
    """Assign rows to blocks of ``floor(rows / blocks)`` consecutive rows; what remains is in no block (-1).

    Notes
    -----
    - **What is wrong**: one row more may shift the borders of all blocks, and so change all models.
    - **Caught by**: comparing the models of neighbouring tables.
    - **Counter-example**: 49 and 50 rows in 10 blocks.
    """
    size = rows // blocks
    assigned = np.full(rows, -1, dtype=np.int64)
    assigned[: size * blocks] = np.repeat(np.arange(blocks), size)
    return assigned
