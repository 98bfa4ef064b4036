"""The grouping sets of a query as one vector: the groups of all sets, over the same rows.

A row counts if all its keys are listed; sampling happens once for all sets. So the exact numbers of a coarse set are
sums of the finest set, and the released numbers are fitted to agree (`dpsql.released.query`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from dpsql.contract.arguments import Argument, Signature
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.parameters import narrow
from dpsql.contract.relation import Contribution
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.grouped.aggregate import ReleasedKeys
from dpsql.functions.grouped.plan import AUTO
from dpsql.functions.query_vector import VectorCall, VectorPlan
from dpsql.mechanisms.aggregates import log_errors
from dpsql.mechanisms.keyed_aggregates import KeyedNoise, MarginsNoise, margins_noise
from dpsql.progress import Progress
from dpsql.released.aggregates import record_of
from dpsql.statistics.aggregates import GAUSSIAN, LAPLACE, UnitedGroups
from dpsql.statistics.grouped_sums import GroupedSums


def _sets(sets: object) -> tuple[tuple[int, ...], ...]:
    """Return the positions of the keys of each set."""
    return tuple(
        tuple(narrow(int, position) for position in narrow(tuple, positions)) for positions in narrow(tuple, sets)
    )


@dataclass(frozen=True, kw_only=True)
class MarginsPlan(VectorPlan):
    """The plan of a vector with the groups of several sets; the first set has all keys, which are public."""

    sets: tuple[tuple[int, ...], ...]

    function: ClassVar[str] = "dp_query.margins"
    arguments: ClassVar[Signature] = Signature(
        *VectorPlan.arguments.values(), Argument("sets", "The positions of the keys of each set.", check=_sets)
    )

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = {**super()._own(arguments, layout), **cls._read(arguments, "sets")}
        if own["keys"] is None:
            raise InternalError("I032", "margins of private keys were planned. Report it.")
        return own

    @property
    def contributions(self) -> tuple[Contribution, ...]:
        """The contribution of a unit to each set: all its rows, in at most the number of groups of the set."""
        finest, lists = self.contribution, self.keys or ()
        contributions = []
        for positions in self.sets:
            if len(positions) == len(self.by):
                contributions.append(finest)
                continue
            sizes = [len(values) for values in (lists[position] for position in positions) if values is not None]
            count = math.prod(sizes) if len(sizes) == len(positions) else None
            groups = finest.groups if count is None else min(finest.groups, count)
            contributions.append(Contribution(self.neighbours, finest.rows, groups, finest.rows, keys=count))
        return tuple(contributions)

    @cached_property
    def part(self) -> MarginsNoise:  # type: ignore[override]
        """The part that draws the noise: the available law with the smallest errors."""
        laws = (LAPLACE, GAUSSIAN) if self.law == AUTO and self.delta is not None else (self.law,)
        parts: list[MarginsNoise] = []
        refused = []
        for law in (LAPLACE if law == AUTO else law for law in laws):
            try:
                [best] = super()._parts(law)
                if isinstance(best, KeyedNoise):
                    raise InternalError("I032", "margins of private keys were planned. Report it.")
                parts.append(
                    margins_noise("sums", self.remaining_epsilon, self.delta, self.contributions, best.blocks, law)
                )
            except ParameterError as error:
                refused.append(error)
        if not parts:
            raise refused[0]
        return min(parts, key=self._all_errors)

    def _all_errors(self, part: MarginsNoise) -> float:
        pairs = (
            (block, lattice, names)
            for lattices in part.all_lattices
            for block, lattice, names in zip(part.blocks, lattices, self.wanted, strict=True)
        )
        return round(sum(log_errors((block,), (lattice,), names) for block, lattice, names in pairs), 9)


@dataclass(frozen=True)
class MarginsCall(VectorCall):
    """A call of all sets, with the column types of its source."""

    plan: MarginsPlan

    def prepare(self, statistic: GroupedSums | ReleasedKeys, progress: Progress) -> Callable[[], Json]:
        """Return the draw of all sets."""
        if isinstance(statistic, ReleasedKeys):
            raise InternalError("I032", "margins of private keys were drawn. Report it.")
        plan, index, all_sums = self.plan, self.places, statistic.sums()
        finest = [total.take(np.arange(index.count)) for total in plan.block_sums(*all_sums)]
        fallen = self._fallen(all_sums)
        margins = [UnitedGroups.of(index.labels, positions, index.count) for positions in plan.sets]
        sums = [[margin.sums(total) for total in finest] for margin in margins]

        def draw() -> Json:
            noisy = plan.part.draw(sums)
            records: list[Json] = []
            for positions, margin, blocks in zip(plan.sets, margins, noisy, strict=True):
                noisy_blocks = [
                    replace(noisy_block, block=block) for noisy_block, block in zip(blocks, self.blocks, strict=True)
                ]
                of_set = replace(plan, by=tuple(plan.by[position] for position in positions))
                types = [self.types[position] for position in positions]
                records.append(record_of(noisy_blocks, of_set, margin.labels, types, self.private_bounds))
            return {"sets": records} | self._left_out(fallen)

        return draw
