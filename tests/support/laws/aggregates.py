"""Exact laws of noisy aggregates: from the definition of the noise, with coordinates and scales of the product."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.contract.relation import Contribution
from dpsql.mechanisms.aggregates import laplace_lattice
from dpsql.statistics.aggregates import Block, Sums

# Output -> probability.
Law = dict[Any, float]

# Outputs are clipped to these, the same for every table: a function of the output only hides.
LEAST, MOST = -3, 25


def noisy_law(values: Sequence[int], scale: Fraction) -> Law:
    """Return the law of integers with independent discrete Laplace noise of one scale, clipped to a public range."""
    marginals = [_marginal(int(value), Fraction(scale)) for value in values]
    return {at: math.prod(law[x] for law, x in zip(marginals, at, strict=True)) for at in itertools.product(*marginals)}


def grouped_law(parts: Sequence[tuple[Sequence[int], Fraction]]) -> Law:
    """Return the joint law of several vectors with noise of different scales."""
    laws = [noisy_law(values, scale) for values, scale in parts]
    joint: Law = {}
    for at in itertools.product(*laws):
        joint[at] = math.prod(law[x] for law, x in zip(laws, at, strict=True))
    return joint


def block_law(codes: Sequence[int | None], block: Block, neighbours: str, epsilon: Fraction) -> Law:
    """Return the law of a block with Laplace noise, without groups; None is a missing value."""
    present = np.array([code for code in codes if code is not None], dtype=np.int64)
    sums = Sums(*(np.array([total]) for total in (len(present), present.sum(), (present**2).sum())))
    lattice = laplace_lattice(block, Contribution(neighbours, keys=1), epsilon)
    return noisy_law(block.coordinates(sums)[:, 0].tolist(), lattice.spread)


def _marginal(value: int, scale: Fraction) -> dict[int, float]:
    a = math.exp(-1 / scale)
    law = {x: (1 - a) / (1 + a) * a ** abs(x - value) for x in range(LEAST + 1, MOST)}
    return law | {LEAST: _tail(a, value - LEAST), MOST: _tail(a, MOST - value)}


def _tail(a: float, distance: int) -> float:
    """Return the probability that noise is at least `distance` away on one side."""
    return a**distance / (1 + a) if distance >= 0 else 1 - a ** (1 - distance) / (1 + a)
