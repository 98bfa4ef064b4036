"""Grouping sets whose sums are fitted to each other: the weighted least squares, and how certain the fitted numbers are."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from dpsql.arrays import Doubles
from dpsql.contract.measurement import Measurement, Permit
from dpsql.contract.relation import Contribution
from dpsql.mechanisms.aggregates import Lattice, NoisyBlock, gaussian_lattice, laplace_lattice
from dpsql.mechanisms.keyed_aggregates import MarginsNoise
from dpsql.released.aggregates import stored_block
from dpsql.released.covariance import estimates
from dpsql.released.query import fitted_block
from dpsql.statistics.aggregates import GAUSSIAN, LAPLACE, DirectSum, GroupCount, Sums, UnitedGroups, Words
from support.cases import cases

CASES = [
    ((3, 2), ((0, 1), (0,), (1,), ())),
    ((3, 2), ((1, 0), ())),
    ((4,), ((0,), ())),
    ((2, 3, 2), ((0, 1, 2), (0, 1), (0,), ())),
    ((2, 3, 2), ((2, 0, 1), (1, 2), (2,), (0, 1))),
    ((1, 3), ((0, 1), (0,), (1,), ())),
]


def labels(sizes: Sequence[int], draw: np.random.Generator) -> list[list[str | None]]:
    """Return the keys of the finest groups in some order; one of them is NULL."""
    rows = [*product(*(range(size) for size in sizes))]
    rows = [rows[at] for at in draw.permutation(len(rows))]
    return [[None if one == 0 else f"v{one}" for one in column] for column in zip(*rows, strict=True)]


def stored(
    sizes: Sequence[int], sets: Sequence[Sequence[int]], law: str, draw: np.random.Generator
) -> tuple[list[dict[str, Any]], list[UnitedGroups], list[Doubles]]:
    """Return what the ledger keeps of some sets of one count, their margins, and their noisy counts."""
    keys = labels(sizes, draw)
    finest = [keys[column] for column in sets[0]]
    groups = len(keys[0])
    exact = draw.integers(0, 100, groups)
    found, margins, noisy = [], [], []
    for place, one in enumerate(sets):
        margin = UnitedGroups.of(keys, one, groups)
        counts = margin.sums(Sums(exact, exact)).n + draw.integers(-20, 20, margin.count)
        block = NoisyBlock(GroupCount(), Lattice(law, 0, Fraction(4 + 3 * place)), Words(counts[np.newaxis, :]))
        columns = [f"k{column}" for column in one]
        found.append({"columns": columns, "keys": margin.labels, "blocks": [stored_block(None, block)]})
        margins.append(margin)
        noisy.append(block.values[0])
    assert finest == found[0]["keys"]
    return found, margins, noisy


@cases(("sizes", "sets"), CASES)
@cases("law", [LAPLACE, GAUSSIAN])
def test_it_is_the_weighted_least_squares(sizes: tuple[int, ...], sets: tuple[tuple[int, ...], ...], law: str) -> None:
    found, margins, noisy = stored(sizes, sets, law, np.random.default_rng(7))
    design = [np.eye(margin.count)[margin.positions].T for margin in margins]
    deviations = [Lattice(law, 0, Fraction(4 + 3 * at)).deviation for at in range(len(sets))]
    weights = np.concatenate([np.full(margin.count, 1 / one) for margin, one in zip(margins, deviations, strict=True)])
    whole = np.concatenate(design) * weights[:, np.newaxis]
    finest, *_ = np.linalg.lstsq(whole, np.concatenate(noisy) * weights, rcond=None)
    covariance = np.linalg.inv(whole.T @ whole)
    for number, matrix in enumerate(design):
        block = fitted_block(found, number, 0, 0.95)
        assert np.allclose(block.values[0], matrix @ finest)
        spread = np.sqrt(np.diag(matrix @ covariance @ matrix.T))
        assert np.allclose(block.deviation, spread, rtol=0.03)
        assert np.ptp(spread) < 1e-9


@cases(("sizes", "sets"), CASES)
def test_finer_groups_add_up_to_coarser_ones(sizes: tuple[int, ...], sets: tuple[tuple[int, ...], ...]) -> None:
    found, margins, _ = stored(sizes, sets, LAPLACE, np.random.default_rng(3))
    finest = fitted_block(found, 0, 0, 0.95).values[0]
    for number, margin in enumerate(margins):
        total = np.zeros(margin.count)
        np.add.at(total, margin.positions, finest)
        assert np.allclose(fitted_block(found, number, 0, 0.95).values[0], total)


def test_what_is_no_full_product_stays_as_it_was_drawn() -> None:
    found, _, noisy = stored((2, 2), ((0, 1), (0,)), LAPLACE, np.random.default_rng(1))
    found[0]["keys"] = [column[:3] for column in found[0]["keys"]]
    found[0]["blocks"][0]["words"] = [[row[:3] for row in part] for part in found[0]["blocks"][0]["words"]]
    assert np.array_equal(fitted_block(found, 1, 0, 0.95).values[0], noisy[1])


@pytest.mark.long
@cases("confidence", [0.5, 0.8, 0.9, 0.95, 0.99])
@cases("sizes", [(2,), (3, 4)])
def test_intervals_cover_as_they_say(confidence: float, sizes: tuple[int, ...]) -> None:
    """Of Laplace noise alone, of normal noise, and of what is between them."""
    sets = ((*range(len(sizes)),), ())
    draw = np.random.default_rng(5)
    keys = labels(sizes, draw)
    margins = [UnitedGroups.of(keys, one, len(keys[0])) for one in sets]
    exact = np.full(len(keys[0]), 1000, dtype=np.int64)
    part = MarginsNoise("sums", Fraction(1), None, None, (Contribution("add_remove"),) * 2, (GroupCount(),))
    inside, asked = 0, 0
    for _ in range(1500):
        with Permit(Measurement((part,))).drawing():
            noisy = part.draw([[margin.sums(Sums(exact, exact))] for margin in margins])
        found = [
            {"columns": [f"k{c}" for c in one], "keys": margin.labels, "blocks": [stored_block(None, blocks[0])]}
            for one, margin, blocks in zip(sets, margins, noisy, strict=True)
        ]
        for number, margin in enumerate(margins):
            block = fitted_block(found, number, 0, confidence)
            told = estimates(block, ("count",), confidence=confidence)["count"]
            truth = margin.sums(Sums(exact, exact)).n
            inside += int(((told.lower <= truth) & (truth <= told.upper)).sum())
            asked += len(truth)
    assert inside / asked >= confidence - 0.03


def test_each_set_has_its_share() -> None:
    """Laplace: losses add up to epsilon; normal noise: squares of mu do."""
    contributions = (Contribution("add_remove", 3, 2, 3), Contribution("add_remove", 3, 1, 3, keys=1))
    blocks = (GroupCount(), DirectSum(0.0, 4.0))
    part = MarginsNoise("sums", Fraction(2), None, None, contributions, blocks)
    loss = sum(
        Fraction(block.norm(one)) / (lattice.spread * 2**lattice.bits)
        for one, lattices in zip(contributions, part.all_lattices, strict=True)
        for block, lattice in zip(blocks, lattices, strict=True)
    )
    assert loss == 2
    normal = MarginsNoise("sums", Fraction(2), Fraction(1, 10**6), Fraction(1, 3), contributions, blocks)
    squares = sum(
        float(block.squared_norm(one)) / (float(lattice.spread) * 4.0**lattice.bits)
        for one, lattices in zip(contributions, normal.all_lattices, strict=True)
        for block, lattice in zip(blocks, lattices, strict=True)
    )
    assert squares <= 1 / 9 * (1 + 1e-9)


def test_all_sets_and_blocks_share_the_loss() -> None:
    """Each has the noise that it has alone with its share of epsilon, or of mu squared: for what a unit moves in it."""
    shapes = Contribution("replace", 4, 2, 3, keys=6), Contribution("replace", 4, 1, 4, keys=1)
    blocks = GroupCount(), DirectSum(-1.0, 2.0)
    mu = Fraction(1, 5)
    pure = MarginsNoise("sums", Fraction(1), None, None, shapes, blocks)
    gaussian = MarginsNoise("sums", Fraction(1), Fraction(1, 10**6), mu, shapes, blocks)
    for place, shape in enumerate(shapes):
        for number, block in enumerate(blocks):
            assert pure.all_lattices[place][number] == laplace_lattice(block, shape, Fraction(1, 4))
            assert gaussian.all_lattices[place][number] == gaussian_lattice(block, shape, mu**2 / 4)
