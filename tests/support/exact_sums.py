"""The exact integers of grouped aggregates, as tests read them: draws without noise, of the statements that run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsql.contract.relation import Contribution
from dpsql.functions.grouped import aggregate
from dpsql.mechanisms.aggregates import GroupedNoise, NoisyBlock, on_lattice
from dpsql.mechanisms.keyed_aggregates import KeyedNoise
from dpsql.released.aggregates import record_of
from dpsql.statistics.aggregates import Block, Sums
from support.broken.planting import planted

Group = tuple[str | None, ...]


@dataclass
class Seen:
    """What one call added up.

    Attributes
    ----------
    contribution : Contribution
    blocks : list of Block
        In the order in which they get noise; the count of units is the first where it decides.
    groups : list of dict
        For each block the exact coordinates by group.
    sums : list of Sums
        What the blocks are made of, in the order of public keys, or of the numbers of private ones.
    """

    contribution: Contribution
    blocks: list[Block]
    sums: list[Sums]
    groups: list[dict[Group, list[int]]] = field(default_factory=list)

    def name(self, labels: Sequence[Sequence[str | None]], order: Sequence[int] | None = None) -> None:
        """Say which group each coordinate is of."""
        for block, sums in zip(self.blocks, self.sums, strict=True):
            columns = block.coordinates(sums).T.tolist()
            columns = columns if order is None else [columns[place] for place in order]
            keys = list(zip(*labels, strict=True)) if labels else [()]
            self.groups.append(dict(zip(keys, columns, strict=True)))


def distances(first: Seen, second: Seen) -> Iterator[tuple[int, int, int, int]]:
    """Yield L1 and squared L2 distance of every block, each before the bound that the noise is drawn for."""
    for number, block in enumerate(first.blocks):
        before, after = first.groups[number], second.groups[number]
        nothing = [0] * block.size
        change = [
            a - b
            for group in before.keys() | after.keys()
            for a, b in zip(before.get(group, nothing), after.get(group, nothing), strict=True)
        ]
        contribution = first.contribution
        yield (
            sum(map(abs, change)),
            block.norm(contribution),
            sum(c * c for c in change),
            block.squared_norm(contribution),
        )


@contextmanager
def exact_sums() -> Iterator[list[Seen]]:
    """Note what each call adds up, and draw nothing: every key is released. Never private; for tests only.

    What limits left out is not noted.
    """
    seen: list[Seen] = []

    def unchanged(part: GroupedNoise, sums: Sequence[Sums]) -> list[NoisyBlock]:
        return [
            NoisyBlock(block, lattice, on_lattice(block.words(given), lattice.bits))
            for block, lattice, given in zip(part.blocks, part.lattices, sums, strict=True)
        ]

    def public(part: GroupedNoise, sums: Sequence[Sums]) -> list[NoisyBlock]:
        if part.name != "left out":
            seen.append(Seen(part.contribution, list(part.blocks), list(sums)))
        return unchanged(part, sums)

    def keyed(part: KeyedNoise, sums: Sequence[Sums]) -> tuple[Any, list[NoisyBlock]]:
        seen.append(Seen(part.contribution, list(part.blocks), list(sums)))
        return np.arange(len(sums[0].n)), unchanged(part.noise, sums)

    in_order = aggregate.ReleasedKeys.in_order

    def ordered(collector: Any, columns: int) -> Any:
        order, labels = in_order(collector, columns)
        seen[-1].name(labels, order.tolist())
        return order, labels

    def recorded(noisy: Any, plan: Any, labels: Any, types: Any, drawn: Any) -> Any:
        if not seen[-1].groups:
            seen[-1].name(labels)
        return record_of(noisy, plan, labels, types, drawn)

    class Released(aggregate.ReleasedKeys):
        in_order = ordered

    patches = (
        (GroupedNoise, "draw", public),
        (KeyedNoise, "draw", keyed),
        (aggregate, "ReleasedKeys", Released),
        (aggregate, "record_of", recorded),
    )
    with planted(*patches):
        yield seen
