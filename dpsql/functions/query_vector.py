"""The vector of one core of dp_query: several targets in the same groups, each with its own aggregates, in one draw.

If a query only counts the values of a target, the target is a count, and needs no bounds. With public keys the noise
may be that of a cube over all numbers of a group (`dpsql.mechanisms.aggregates`), and targets with a value in every
row share one count. Otherwise sensitivity, noise and shares come from the blocks, as for `dp_aggregate`. Public
arguments alone select the noise with the smallest errors.

The text of the query says that all rows have a value. If it is wrong, a row without a value counts as the middle of the
bounds: the guarantee holds for any rows.

**Exclusive counts.** The vector of a core that counts conditions, at most one of which holds for a row.

A row is in one cell at most, so one row changes one count by 1, for any number of counts
(`dpsql.statistics.aggregates`, with proof). The statement gives a row the first cell whose condition holds: the
guarantee does not depend on exclusive conditions. Public arguments alone select the noise with the smaller errors: the
noise of these counts, or of any vector.

**Pairs of columns.** The moments of pairs of columns of a core: three numbers of a row for each pair, in one vector
with all other pairs.

Let u and v be the values of both columns in units of half of their bounds, from their middle, and w the mean of u and
v. All three are between -1 and 1; if a row lacks a value in either column, it has none of them. Variances of u, v and w
determine the covariance, and all aggregates of a pair follow (`dpsql.released.query`). The sensitivity is that of a
vector of such targets, for any bounds: so another part may draw the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from dpsql.contract.arguments import Argument, Signature
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout, refuse_extremes
from dpsql.contract.parameters import narrow, text_list
from dpsql.contract.plan import Quantity
from dpsql.functions.grouped.aggregate import AggregateCall, AggregatePlan
from dpsql.functions.grouped.plan import UNIT_BOUNDS, ValueCode
from dpsql.functions.query_bounds import Intervals, WaitingCall
from dpsql.kernels.fixed_point import affine_map, quantise
from dpsql.mechanisms.aggregates import CubeTarget, CubeVector, GroupedNoise, NoisyBlock, expected_block, log_errors
from dpsql.mechanisms.interval_scan import PrivateInterval
from dpsql.mechanisms.keyed_aggregates import KeyedNoise
from dpsql.released.covariance import estimates
from dpsql.released.intervals import interval_record
from dpsql.statistics.aggregates import (
    AVG,
    COUNT,
    POWERS,
    SUM,
    VARIANCE,
    Block,
    CentredPair,
    Chebyshev,
    DirectSum,
    DisjointCounts,
    GroupCount,
    Sums,
    blocks_for,
)

_BOTH = (False, True)


def _target_aggregates(targets: object) -> tuple[tuple[str, ...], ...]:
    """Return the aggregates of every target."""
    return tuple(text_list("wanted", names, hint="") for names in narrow(tuple, targets))


def _flags(flags: object) -> tuple[bool, ...]:
    return tuple(narrow(bool, flag) for flag in narrow(tuple, flags))


def _ends(ends: object) -> tuple[float | None, ...]:
    return tuple(None if end is None else float(narrow(float, end)) for end in narrow(tuple, ends))


@dataclass(frozen=True, kw_only=True)
class VectorPlan(AggregatePlan):
    """The plan of one vector: the targets of a core, each with its requested aggregates.

    Bounds of a target are public, or another part of the core draws them; a target that is only counted has none.
    """

    wanted: tuple[tuple[str, ...], ...]
    lowest: tuple[float | None, ...]  # public bounds by target; None if it is only counted, or bounds are drawn
    highest: tuple[float | None, ...]
    whole: tuple[bool, ...]  # by target, whether all rows have a value

    function: ClassVar[str] = "dp_query.vector"
    result_columns: ClassVar[tuple[str, ...]] = ()
    computes: ClassVar[tuple[str, ...]] = (COUNT,)
    arguments: ClassVar[Signature] = Signature(
        *AggregatePlan.arguments.values(),
        Argument("wanted", "The aggregates of each target.", check=_target_aggregates),
        Argument("lowest", "The lower bound of each target.", check=_ends),
        Argument("highest", "The upper bound of each target.", check=_ends),
        Argument("whole", "Whether all rows have a value of each target.", check=_flags),
    )

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = dict(super()._own({**arguments, "lower": None, "upper": None}, layout))
        own |= cls._read(arguments, "wanted", "lowest", "highest", "whole")
        aggregates, lowest, highest = (narrow(tuple, own[name]) for name in ("wanted", "lowest", "highest"))
        valued = [position for position, names in enumerate(aggregates) if set(names) != {COUNT}]
        refuse_extremes([(lowest[position], highest[position]) for position in valued if lowest[position] is not None])
        return own

    def is_drawn(self, position: int) -> bool:
        """Return whether another part draws the bounds of a target, before its values are coded."""
        return set(self.wanted[position]) != {COUNT} and self.lowest[position] is None

    def aggregates_of(self, target: int) -> Sequence[str]:
        """Return the requested aggregates of a target."""
        return self.wanted[target]

    def _of_target(self, position: int, law: str) -> tuple[Block, ...]:
        """Return the possible blocks of a target."""
        names, lower, upper = self.wanted[position], self.lowest[position], self.highest[position]
        if set(names) == {COUNT}:
            return (GroupCount(),)
        bounds = UNIT_BOUNDS if lower is None or upper is None else (lower, upper)
        return blocks_for(names, *bounds, law)

    def _chosen(self) -> GroupedNoise | KeyedNoise | CubeVector:
        """Return the part with the smallest errors, among noise on each number and noise of a cube."""
        separate = super()._chosen()
        return separate if self.has_private_keys else min([separate, *self._cubes()], key=self._log_errors)

    def _cubes(self) -> list[CubeVector]:
        """Return the vectors with noise of a cube: sums about the middle of their bounds, or from 0 if possible."""
        vectors = (
            tuple(self._in_cube(position, direct=direct) for position in range(len(self.wanted))) for direct in _BOTH
        )
        cubes = (CubeVector("sums", self.remaining_epsilon, self.contribution, targets) for targets in vectors)
        return [cube for cube in dict.fromkeys(cubes) if cube.is_drawable]

    def _in_cube(self, position: int, *, direct: bool) -> CubeTarget:
        """Return a target's part in a vector with noise of a cube."""
        names, lower, upper = self.wanted[position], self.lowest[position], self.highest[position]
        if set(names) == {COUNT}:
            return CubeTarget(GroupCount(), self.whole[position])
        ends = UNIT_BOUNDS if lower is None or upper is None else (lower, upper)
        if max(POWERS[name] for name in names) > 1:
            return CubeTarget(Chebyshev(*ends), self.whole[position])
        if set(names) != {SUM}:
            return CubeTarget(CentredPair(*ends), self.whole[position])
        if lower is None or upper is None:
            return CubeTarget(CentredPair(*ends), self.whole[position])
        if direct or lower + upper == 0:
            return CubeTarget(DirectSum(*ends))
        # A missing value is 0 in a sum.
        nothing = int(quantise(np.zeros(1), *affine_map(lower, upper))[0]) if lower <= 0 <= upper else 0
        return CubeTarget(CentredPair(*ends), self.whole[position] or lower <= 0 <= upper, nothing)

    def block_sums(self, rows: Sums, *targets: Sums) -> list[Sums]:
        """Return the sums for the draw of the blocks; if targets may share a count, the sums of all rows come first."""
        sums = super().block_sums(rows, *targets)
        return [rows, *sums] if isinstance(self.part, CubeVector) else sums

    def _parts(self, law: str) -> Sequence[GroupedNoise | KeyedNoise]:
        """Return the part with noise of one law, for the best block of each target."""

        def errors(block: Block, names: Sequence[str]) -> float:
            return round(log_errors((block,), self._public((block,), law).lattices[-1:], names), 9)

        best = tuple(
            min(self._of_target(position, law), key=lambda block, names=names: errors(block, names))  # type: ignore[misc]
            for position, names in enumerate(self.wanted)
        )
        return [self._keyed(best, law) if self.has_private_keys else self._public(best, law)]

    def _log_errors(self, part: GroupedNoise | KeyedNoise | CubeVector) -> float:
        """Return the logarithms of the errors of the requested aggregates, rounded so that ties go to the first."""
        laws = zip(self._laws_of(part), self.wanted, strict=True)
        return round(sum(log_errors((block,), (lattice,), names) for (block, lattice), names in laws), 9)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the noise of the counts of the vector, and the least count of a private key."""
        part = self.part
        out: list[Quantity] = []
        if isinstance(part, KeyedNoise):
            out.append(("least_count", part.least_count, "count that a key needs to be released in half of calls"))
        for (block, lattice), names in zip(self.target_laws, self.wanted, strict=True):
            if COUNT in names:
                estimate = estimates(expected_block(block, lattice, n_rows or 1000), (COUNT,))[COUNT]
                error = float(estimate.std_error[0])
                out.append(("count_std_error", error, "standard deviation of the noise on count"))
        return out


@dataclass(frozen=True)
class VectorCall(AggregateCall, WaitingCall):
    """A call of one vector, with the column types of its source."""

    plan: VectorPlan

    def within(self, intervals: Intervals) -> Self:
        """Return the call with the bounds of its targets."""
        targets = enumerate(self.plan.targets)
        return replace(
            self,
            private_bounds=tuple(
                intervals[name] if self.plan.is_drawn(position) else None for position, name in targets
            ),
        )


@dataclass(frozen=True, kw_only=True)
class DisjointPlan(VectorPlan):
    """The plan of mutually exclusive counts; its keys are public."""

    function: ClassVar[str] = "dp_query.disjoint"

    def _parts(self, law: str) -> list[GroupedNoise | KeyedNoise]:
        """Return the parts with noise of one law: of the counts together, or of each count by itself."""
        return [*super()._parts(law), self._public((DisjointCounts(len(self.targets)),), law)]

    def block_sums(self, rows: Sums, *targets: Sums) -> list[Sums]:
        """Return the sums for the draw of the blocks."""
        if not isinstance(self.part, CubeVector) and isinstance(self.part.blocks[0], DisjointCounts):
            return [replace(rows, s1=np.stack([target.n for target in targets]))]
        return super().block_sums(rows, *targets)


@dataclass(frozen=True)
class DisjointCall(VectorCall):
    """A call of disjoint counts, with the column types of its source."""

    plan: DisjointPlan


Ends = tuple[float, float]
Pair = tuple[str, str]
_MOMENTS = (COUNT, AVG, VARIANCE)


def _pairs(pairs: object) -> tuple[Pair, ...]:
    return tuple((narrow(str, first), narrow(str, second)) for first, second in narrow(tuple, pairs))


def _bounds(bounds: object) -> tuple[tuple[str, Ends], ...]:
    listed = narrow(tuple, bounds)
    return tuple((narrow(str, name), (narrow(float, low), narrow(float, high))) for name, (low, high) in listed)


def half_units(lower: float, upper: float) -> ValueCode:
    """Return the middle of an interval, and half of its width as the scale."""
    return ValueCode(lower, upper, lower / 2 + upper / 2, upper / 2 - lower / 2, 0, 0)


@dataclass(frozen=True, kw_only=True)
class PairsPlan(VectorPlan):
    """The plan of the moments of all pairs of a core."""

    pairs: tuple[Pair, ...]
    ends: tuple[tuple[str, Ends], ...]  # public bounds by column; other columns have drawn bounds

    function: ClassVar[str] = "dp_query.pairs"
    arguments: ClassVar[Signature] = Signature(
        *VectorPlan.arguments.values(),
        Argument("pairs", "The columns of each pair.", check=_pairs),
        Argument("ends", "The public bounds of columns.", check=_bounds),
    )

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        return {**super()._own(arguments, layout), **cls._read(arguments, "pairs", "ends")}

    @cached_property
    def bounds_of(self) -> Mapping[str, Ends]:
        """Return the public bounds by column."""
        return dict(self.ends)

    @cached_property
    def unbounded(self) -> tuple[str, ...]:
        """Return the columns with bounds that another part draws."""
        names = dict.fromkeys(name for pair in self.pairs for name in pair)
        return tuple(name for name in names if name not in self.bounds_of)

    @property
    def row_columns(self) -> Mapping[str, str] | None:
        """Return the keys, and both columns of each pair; the third number of a pair follows from them."""
        columns = dict(super().row_columns or {})
        for number, (first, second) in enumerate(self.pairs):
            columns |= {f"t{3 * number}": first, f"t{3 * number + 1}": second, f"t{3 * number + 2}": second}
        return columns


def pair_arguments(pairs: Sequence[Pair], bounds: Mapping[str, Ends]) -> dict[str, object]:
    """Return the arguments of the plan of some pairs, with the public bounds of columns."""
    names = [f"dpsql_{name}{number}" for number in range(len(pairs)) for name in "uvw"]
    lower, upper = UNIT_BOUNDS
    return {
        "target": names,
        "wanted": (_MOMENTS,) * len(names),
        "whole": (False,) * len(names),
        "lowest": (lower,) * len(names),
        "highest": (upper,) * len(names),
        "pairs": tuple(pairs),
        "ends": tuple(bounds.items()),
    }


@dataclass(frozen=True)
class PairsCall(VectorCall):
    """A call of the moments of pairs.

    Attributes
    ----------
    column_bounds : tuple of PrivateInterval
        The bounds of each column without public bounds, after their draw.
    """

    plan: PairsPlan
    column_bounds: tuple[PrivateInterval, ...] = ()

    def within(self, intervals: Intervals) -> Self:
        """Return the call with the bounds of its columns."""
        return replace(self, column_bounds=tuple(intervals[name] for name in self.plan.unbounded))

    @property
    def drawn_codes(self) -> list[ValueCode]:
        """Return the middle and half of the width of the drawn bounds."""
        return [half_units(*(interval.ends or UNIT_BOUNDS)) for interval in self.column_bounds]

    def _record(self, noisy: Sequence[NoisyBlock], labels: Sequence[Sequence[str | None]]) -> dict[str, Json]:
        """Return the record for the ledger, with the drawn bounds."""
        pairs = zip(self.plan.unbounded, self.column_bounds, strict=True)
        intervals: dict[str, Json] = {name: interval_record(interval) for name, interval in pairs}
        return {**super()._record(noisy, labels), **({"intervals": intervals} if intervals else {})}
