"""How far one unit moves a vector with noise of a cube: all units of few rows, whose values are at ends or missing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from dpsql.contract.relation import Contribution
from dpsql.kernels.fixed_point import FIXED_POINT_ONE as ONE
from dpsql.mechanisms.aggregates import CubeTarget, CubeVector, on_lattice
from dpsql.statistics.aggregates import CentredPair, Chebyshev, DirectSum, GroupCount, Sums
from support.cases import cases

VECTORS = {
    "all rows and a sum": (CubeTarget(GroupCount(), True), CubeTarget(CentredPair(0.0, 8.0), True)),
    "a sum in which nothing is 0": (CubeTarget(CentredPair(0.0, 8.0), True, -ONE), CubeTarget(GroupCount(), True)),
    "numbers of values": (CubeTarget(GroupCount()), CubeTarget(CentredPair(-1.0, 1.0))),
    "a deviation": (CubeTarget(Chebyshev(0.0, 8.0), True), CubeTarget(CentredPair(0.0, 8.0), True)),
    "from zero": (CubeTarget(DirectSum(-2.0, 8.0)), CubeTarget(GroupCount())),
    "two numbers of values": (CubeTarget(GroupCount()), CubeTarget(GroupCount())),
    "all rows": (CubeTarget(GroupCount(), True), CubeTarget(GroupCount(), True)),
}
SHAPES = [(1, 1, 1), (2, 1, 2), (2, 2, 1), (2, 2, 2), pytest.param((3, 2, 2), marks=pytest.mark.long)]
GROUPS = 2
# A row: its code in each target; None without a value.
CODES = (-ONE, ONE // 3, ONE, None)
Row = tuple[int, tuple[int | None, int | None]]


def units(rows: int, groups: int, each: int) -> Iterator[tuple[Row, ...]]:
    kinds = list(itertools.product(range(GROUPS), itertools.product(CODES, repeat=2)))
    for count in range(rows + 1):
        for unit in itertools.combinations_with_replacement(kinds, count):
            places = [group for group, _ in unit]
            if len(set(places)) <= groups and all(places.count(group) <= each for group in places):
                yield unit


def exact(part: CubeVector, unit: tuple[Row, ...]) -> np.ndarray:
    """Return the exact vector of each group on the lattice, shape (d, groups)."""
    rows = Sums(np.bincount([group for group, _ in unit], minlength=GROUPS), np.zeros(GROUPS, dtype=np.int64))
    vector = np.zeros((part.coordinates, GROUPS), dtype=object)
    for number, (target, places, lattice) in enumerate(zip(part.targets, part.positions, part.lattices, strict=True)):
        low, high = getattr(target.block, "limits", (-ONE, ONE))
        own = np.zeros((3, GROUPS), dtype=np.int64)
        for group, codes in unit:
            code = codes[number]
            if code is not None:
                clipped = min(max(code, low), high)
                own[:, group] += (1, clipped, clipped**2)
        words = target.block.words(target.sums(rows, Sums(*own)))
        vector[list(places)] = on_lattice(words, lattice.bits).integers()
    return vector


@cases("name", VECTORS)
@cases("shape", SHAPES, ids=str)
def test_one_unit_more_moves_as_stated(name: str, shape: tuple[int, int, int]) -> None:
    """The bound is reached: by rows whose values are all at the same end."""
    part = CubeVector("sums", Fraction(1), Contribution("add_remove", *shape, GROUPS), VECTORS[name])
    most = max(int(np.abs(exact(part, unit)).max(axis=0).sum()) for unit in units(*shape))
    assert most == part.sensitivity(part.fine) - (shape[1] if part.fine < 40 and name == "a deviation" else 0)


@cases("name", VECTORS)
@cases("keys", [1, 2])
def test_another_unit_moves_no_more_than_stated_and_more_than_half_of_it(name: str, keys: int) -> None:
    part = CubeVector("sums", Fraction(1), Contribution("replace", 1, 1, 1, keys), VECTORS[name])
    found = [exact(part, unit) for unit in units(1, 1, 1) if keys == GROUPS or not any(group for group, _ in unit)]
    most = max(int(np.abs(one - other).max(axis=0).sum()) for one in found for other in found)
    assert part.sensitivity(part.fine) / 2 < most <= part.sensitivity(part.fine)


def test_the_shared_count_is_one_number() -> None:
    """Targets that share it are drawn from the same exact number, whatever values their rows lack."""
    part = CubeVector("sums", Fraction(1), Contribution("add_remove", 2, 1, 2, GROUPS), VECTORS["all rows and a sum"])
    rows = Sums(np.array([5, 7]), np.zeros(2, dtype=np.int64))
    lacking = Sums(np.array([1, 2]), np.array([3, 4]))
    counts = [
        on_lattice(one.block.words(one.sums(rows, lacking)), lattice.bits).integers()[0].tolist()
        for one, lattice in zip(part.targets, part.lattices, strict=True)
    ]
    assert counts[0] == counts[1]
    assert part.positions == ((0,), (0, 1))
