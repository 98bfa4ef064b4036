"""How far the integers of a call with groups moved, beside what the noise that its part draws is wide enough for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from seam import Pass

from dpsql.contract.relation import relation_of
from dpsql.mechanisms.aggregates import GroupedNoise, on_lattice
from dpsql.mechanisms.interval_scan import ScannedInterval
from dpsql.mechanisms.keyed_aggregates import KeyedNoise
from dpsql.mechanisms.prefix_sums import CumulativeCounts, PrefixStrategy, gaussian_sensitivity
from dpsql.mechanisms.quantile import GroupQuantileSelection
from dpsql.statistics.aggregates import LAPLACE, Block, Sums

# What moved, by how much, and the most that it may.
Claim = tuple[str, Any, Any]
Labels = dict[tuple[str | None, ...], int]


def group_claims(relation: str, before: Pass, after: Pass, keys: Sequence[Labels | None]) -> Iterator[Claim]:
    """Yield a claim for each number that noise is added to, from what the part was given on two neighbouring tables.

    Parameters
    ----------
    relation : {'add_remove', 'replace'}
        How the tables differ.
    before, after : Pass
        That gave a part something.
    keys : two mappings, or two None
        The places of private keys.
    """
    assert before.given is not None
    assert after.given is not None
    part, *first = before.given
    other, *second = after.given
    yield "what the noise is drawn for", int(part != other), 0
    if isinstance(part, (GroupedNoise, KeyedNoise)):
        yield "another relation", _other(part.contribution.neighbours, relation), 0
        yield from _blocks(part, first[0], second[0], keys)
        return
    if isinstance(part, ScannedInterval):
        relation_asked, rows = part.noise.neighbours, part.noise.max_rows_per_unit
    else:
        relation_asked, rows = part.neighbours, part.max_rows_per_unit
    yield "another relation", _other(relation_asked, relation), 0
    moved = (second[0] - first[0]).astype(object)
    if isinstance(part, CumulativeCounts):
        yield from _products(part, first[1], moved)
    else:
        assert isinstance(part, (ScannedInterval, GroupQuantileSelection))
        yield "rows in cells", int(abs(moved).sum()), relation_of(relation).norm(rows)


def _other(relation: str, asked: str) -> int:
    """Return 1 if noise for fewer neighbours was drawn than were asked for; replacing a row is the wider relation."""
    return int(asked == "replace" and relation != asked)


def _blocks(
    part: GroupedNoise | KeyedNoise, first: Sequence[Sums], second: Sequence[Sums], keys: Sequence[Labels | None]
) -> Iterator[Claim]:
    """Judge the coordinates of all groups: as they are by their sensitivity, and on the lattice by the noise."""
    noise = part.noise if isinstance(part, KeyedNoise) else part
    truncated = isinstance(part, KeyedNoise) and part.truncated
    for number, block in enumerate(noise.blocks):
        exact = _moved(block, first[number], second[number], keys, None)
        yield f"{block.kind}, L1", sum(map(abs, exact)), block.norm(part.contribution)
        yield f"{block.kind}, squared L2", sum(c * c for c in exact), block.squared_norm(part.contribution)
        yield f"{block.kind}, coordinates", sum(map(bool, exact)), block.moved(part.contribution)
        if truncated:
            continue  # whose noise is drawn in whole rows
        lattice, share = noise.lattices[number], noise.shares[number]
        rounded = _moved(block, first[number], second[number], keys, lattice.bits)
        if lattice.noise == LAPLACE:
            yield f"{block.kind}, loss", Fraction(sum(map(abs, rounded))) / lattice.spread, noise.epsilon * share
        else:
            assert noise.mu is not None
            squares = Fraction(sum(c * c for c in rounded))
            yield f"{block.kind}, squared mu", squares / lattice.spread, noise.mu**2 * share


def _moved(block: Block, first: Sums, second: Sums, keys: Sequence[Labels | None], bits: int | None) -> list[int]:
    """Return by how much each coordinate of each group moved; a key that one table lacks has nothing there."""
    columns = []
    for sums in (first, second):
        words = block.words(sums)
        words = words if bits is None else on_lattice(words, bits)
        columns.append(words.integers().T.tolist())
    if keys[0] is None or keys[1] is None:
        pairs = list(zip(*columns, strict=True))
    else:
        nothing = [0] * block.size
        groups = [
            {key: found[place] for key, place in named.items()} for found, named in zip(columns, keys, strict=True)
        ]
        pairs = [(groups[0].get(key, nothing), groups[1].get(key, nothing)) for key in groups[0] | groups[1]]
    return [b - a for group in pairs for a, b in zip(*group, strict=True)]


def _products(part: CumulativeCounts, strategy: PrefixStrategy, moved: Any) -> Iterator[Claim]:
    """Judge the products of a strategy, of all histograms together."""
    products = (moved @ np.array(strategy.matrix.T, dtype=object)).ravel().tolist()
    if part.mu is None:
        loss = Fraction(sum(map(abs, products))) / part.laplace_scale(strategy)
        yield "products of counts, loss", loss, part.epsilon
    else:
        bound = gaussian_sensitivity(strategy, part.neighbours, part.max_rows_per_unit)
        yield "products of counts, squared L2", sum(value * value for value in products), bound
