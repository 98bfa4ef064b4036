"""dp_query: a query of plain SQL, as one release of all its private aggregates.

The query is split (`dpsql.contract.query`) into cores and the results that follow from their answers. A core is
answered in parts: its counts and sums as one vector, the quantiles of each column, moments of pairs of columns, and
numbers of different items. Every part has an equal share of epsilon; the parts that need delta get equal shares of it.
All parts are one measurement: they have one ticket, one gate and one charge, and one transaction draws their noise.

By basic composition the parts together cost epsilon and delta: they read tables that differ in one privacy unit, and
each part bounds the unit by itself.

With ``max_rows_per_unit := 'drawn'`` a part of each core draws how many rows of a person count, and the other parts use
this limit (`dpsql.functions.query_rows`). The draw costs its share. The limit chooses the other mechanisms, and each
costs its own share at any limit.

If columns have no public bounds, a part of each core draws them once, for all other parts that need them
(`dpsql.functions.query_bounds`); each of these parts gives up a quarter of its share for the bounds.

If a core has private keys, its first part draws the groups once, by the persons that have them, at half of the core's
epsilon and the core's share of delta (`dpsql.mechanisms.partition_selection`). It counts persons over the rows that all
parts limit alike; one without an id counts nowhere. The part is the count of persons if the core asks for it, and the
count of rows if that is all it asks for and a person has one. Every other part of the core answers exactly these
groups: the keys are public after their release, so the part is a mechanism with public keys, chosen by earlier
releases. Such a part costs its share of epsilon for any keys, and composition is basic for adaptively chosen mechanisms
too: all parts cost epsilon, and the part that draws keys also costs delta. Each part limits a unit's rows by itself,
over the rows of its groups.

**The vector of a core** has several targets in the same groups, each with its own aggregates, in one draw. If a query
only counts the values of a target, the target is a count, and needs no bounds. With public keys the noise may be that
of a cube over all numbers of a group (`dpsql.mechanisms.aggregates`), and targets with a value in every row share one
count. Otherwise sensitivity, noise and shares come from the blocks, as for `dp_aggregate`. Public arguments alone
select the noise with the smallest errors.

The text of the query says that all rows have a value. If it is wrong, a row without a value counts as the middle of the
bounds: the guarantee holds for any rows.

**Exclusive counts** are a vector that counts conditions, at most one of which holds for a row. A row is in one cell at
most, so one row changes one count by 1, for any number of counts (`dpsql.statistics.aggregates`, with proof). The
statement gives a row the first cell whose condition holds: the guarantee does not depend on exclusive conditions.
Public arguments alone select the noise with the smaller errors: the noise of these counts, or of any vector.

**Pairs of columns** have moments: three numbers of a row for each pair, in one vector with all other pairs.

Let u and v be the values of both columns in units of half of their bounds, from their middle, and w the mean of u and
v. All three are between -1 and 1; if a row lacks a value in either column, it has none of them. Variances of u, v and w
determine the covariance, and all aggregates of a pair follow (`dpsql.released.query`). The sensitivity is that of a
vector of such targets, for any bounds: so another part may draw the bounds.

**Grouping sets** are one vector, too: the groups of all sets, over the same rows. A row counts if all its keys are
listed; sampling happens once for all sets. So the exact numbers of a coarse set are sums of the finest set, and the
released numbers are fitted to agree (`dpsql.released.query`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from dpsql.contract import parameters
from dpsql.contract.arguments import EPSILON, OPTIONAL_DELTA, RELEASE, REQUIRED, Argument, Signature, flag
from dpsql.contract.call import Call, TargetCode
from dpsql.contract.fold import Collector
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout, refuse_extremes
from dpsql.contract.measurement import Draw, Measurement, measurement_of
from dpsql.contract.parameters import narrow, text_list
from dpsql.contract.plan import Plan, Quantity
from dpsql.contract.relation import Contribution
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.grouped.aggregate import AggregateCall, AggregatePlan, CountPlan, ReleasedKeys
from dpsql.functions.grouped.left_out import LEFT_OUT_SHARE, USUAL_SHARE, LeftOutPlan
from dpsql.functions.grouped.plan import AUTO, CONFIDENCE, MAX_GROUPS_PER_UNIT, UNIT_BOUNDS, ValueCode
from dpsql.functions.query_bounds import CoreBoundsCall, CoreBoundsPlan, Intervals, WaitingCall
from dpsql.functions.query_rows import (
    CoreQuantileCall,
    CoreQuantilePlan,
    ExtremesCall,
    ExtremesPlan,
    RowsCall,
    RowsPlan,
)
from dpsql.kernels.fixed_point import affine_map, quantise
from dpsql.mechanisms.aggregates import CubeTarget, CubeVector, GroupedNoise, NoisyBlock, expected_block, log_errors
from dpsql.mechanisms.interval_scan import PrivateInterval
from dpsql.mechanisms.keyed_aggregates import KeyedNoise, MarginsNoise, deciding_noise, margins_noise
from dpsql.progress import Progress
from dpsql.released.aggregates import record_of
from dpsql.released.covariance import estimates
from dpsql.released.intervals import interval_record
from dpsql.statistics.aggregates import (
    AVG,
    COUNT,
    GAUSSIAN,
    LAPLACE,
    POWERS,
    SUM,
    VARIANCE,
    Block,
    CentredPair,
    Chebyshev,
    DirectSum,
    DisjointCounts,
    GroupCount,
    GroupedSums,
    Sums,
    UnitedGroups,
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
        out = self.keys_noise()
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
class KeysPlan(CountPlan):
    """The plan of the part that releases the private keys of a core, by the privacy units that have them.

    Of all laws it takes the one that needs the fewest units. A unit with periods is a person in one period.
    """

    function: ClassVar[str] = "dp_query.keys"

    @property
    def counts_items(self) -> bool:
        """Return False: a unit has one row in each of its groups."""
        return False

    @property
    def weighs_units(self) -> bool:
        """Return whether a unit in k groups adds ``1 / sqrt(k)`` to each of them."""
        return isinstance(self.part, KeyedNoise) and self.part.weighs_units

    def _parts(self, law: str) -> Sequence[GroupedNoise | KeyedNoise]:
        """Return the parts with noise of one law."""
        if self.delta is None:
            raise InternalError("I032", "private keys came without a delta. Report it.")
        return deciding_noise("sums", self.remaining_epsilon, self.delta, self.contribution, GroupCount(), law)

    def _log_errors(self, part: GroupedNoise | KeyedNoise | CubeVector) -> float:
        """Return the units that a key needs, in place of the errors of their number."""
        return part.usual_count if isinstance(part, KeyedNoise) else math.inf

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the persons that a key needs."""
        return self.keys_noise()


@dataclass(frozen=True)
class KeysCall(AggregateCall):
    """A call that releases keys, with the column types of its source."""

    plan: KeysPlan


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


# The plans and calls of parts, by the names of their functions.
PARTS: Mapping[str, tuple[type[Plan], type[Call]]] = {
    VectorPlan.function: (VectorPlan, VectorCall),
    DisjointPlan.function: (DisjointPlan, DisjointCall),
    CountPlan.function: (CountPlan, AggregateCall),
    KeysPlan.function: (KeysPlan, KeysCall),
    CoreBoundsPlan.function: (CoreBoundsPlan, CoreBoundsCall),
    CoreQuantilePlan.function: (CoreQuantilePlan, CoreQuantileCall),
    ExtremesPlan.function: (ExtremesPlan, ExtremesCall),
    PairsPlan.function: (PairsPlan, PairsCall),
    RowsPlan.function: (RowsPlan, RowsCall),
    MarginsPlan.function: (MarginsPlan, MarginsCall),
}

_SHARE = LEFT_OUT_SHARE.name
# The fields that name the earlier parts of a part.
_EARLIER = ("keys_of", "rows_of", "bounds_of")

SQL = Argument(
    "sql", "One SELECT of at most 100,000 characters, as text or as a parameter.", default_text=REQUIRED, kind="str"
)
ARGUMENTS = Signature(
    EPSILON,
    replace(
        OPTIONAL_DELTA,
        doc="Chance that the guarantee fails, from 1e-300 to 0.1. Without it pure DP; with it noise may be Gaussian, "
        "and keys may be private.",
    ),
    flag("errors", "Whether every column of noisy numbers has its error, interval and verdict beside it.", False),
    Argument(
        "keys",
        "Public values of the columns to group by, which the owner has not stated: a struct of lists by column. "
        "'private' releases keys that many units have, and needs delta.",
        default_text="what the query and the owner say",
        kind="Keys",
    ),
    Argument(
        "lower",
        "Public lower bounds of columns whose values are summed, a struct by column.",
        default_text="what the query and the owner say, or drawn privately",
        kind="Bounds",
    ),
    Argument("upper", "Public upper bounds, in the same form as lower.", default_text="as lower", kind="Bounds"),
    Argument(
        "during",
        "Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12' "
        "from the first to the last.",
        default_text="required where the owner stated periods",
        kind="Names",
    ),
    Argument(
        "max_rows_per_unit",
        "Rows that one person may contribute, from 1 to 1000000000, of those that a core groups. A random choice of "
        "them counts. 'drawn' spends 5 % of epsilon to draw it: the 99th percentile of the rows per person.",
        default_text="stated by the owner",
        kind="Integer",
    ),
    MAX_GROUPS_PER_UNIT,
    replace(
        LEFT_OUT_SHARE,
        doc="Share of epsilon, from 0 to below 1, that tells how many persons have more rows than count, and how much "
        "fell away. Numbers are 'biased' where that is more than their intervals show.",
        default_text="0.05, where a person may have more rows than count",
        earlier=(),
    ),
    CONFIDENCE,
    RELEASE,
    Argument(
        "max_age",
        "How old an answer to the same query may be to be returned again at no cost: an INTERVAL, or a number of "
        "hours.",
        default_text="24 hours; with release, any age",
        kind="Number",
    ),
    flag(
        "estimate",
        "Whether it is only told what the query would cost, and how noisy its columns would be; nothing is read or "
        "charged.",
        False,
    ),
    flag("fresh", "Whether the query is asked anew, at a charge, although its answer is stored.", False),
)


@dataclass(frozen=True)
class QueryPart:
    """One part of a query.

    Attributes
    ----------
    core : int
        The number of its core, from 0.
    plan : Plan
    keys_of : int or None
        The number of an earlier part of the same core, whose released keys are the groups of this part.
    rows_of : int or None
        The number of the earlier part that draws how many rows of a person count in this part.
    bounds_of : int or None
        The number of the earlier part that draws the bounds of its columns.
    unused : mapping
        Arguments that the part does not use, as earlier versions recorded them.
    """

    core: int
    plan: Plan
    keys_of: int | None = None
    rows_of: int | None = None
    bounds_of: int | None = None
    unused: Mapping[str, Json] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """Return the part as JSON values."""
        numbers = {name: getattr(self, name) for name in _EARLIER}
        known_of = {name: part for name, part in numbers.items() if part is not None}
        unused: dict[str, Json] = {"unused": dict(self.unused)} if self.unused else {}
        return {"core": self.core, "plan": self.plan.to_json(), **known_of, **unused}

    @classmethod
    def read(cls, record: Mapping[str, object]) -> Self:
        """Return the part that `to_json` wrote."""
        plan = json.loads(narrow(str, record["plan"]))
        numbers = {name: record.get(name) for name in _EARLIER}
        earlier = {name: None if part is None else narrow(int, part) for name, part in numbers.items()}
        unused = narrow(dict, record.get("unused") or {})
        kind = PARTS[plan.pop("function")][0]
        return cls(narrow(int, record["core"]), kind.from_record(plan), **earlier, unused=unused)

    @property
    def call(self) -> type[Call]:
        """Return the class of its call."""
        return PARTS[self.plan.function][1]


@dataclass(frozen=True, kw_only=True)
class QueryPlan(Plan):
    """The checked public arguments of one ``dp_query`` call, with the plans of its parts."""

    delta: Fraction | None
    parts: tuple[QueryPart, ...]
    answer: str = ""  # how rows follow from the answers of all parts, as JSON text; not part of the call's name
    remark: str = ""  # next to the guarantee; not part of the call's name
    untold: bool = False  # whether the call skips the measure of rows beyond row limits

    function: ClassVar[str] = "dp_query"
    target_needs_bounds: ClassVar[bool] = False
    arguments: ClassVar[Signature] = ARGUMENTS

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        raise InternalError("I032", "a query was planned without its parts. Report it.")

    @property
    def told_rows(self) -> int | None:
        """Return how many rows of a unit count at most; None if the limit is drawn."""
        return None if any(part.rows_of is not None for part in self.parts) else self.max_rows_per_unit

    @property
    def lineage(self) -> dict[str, Json] | None:
        """Return the source of the rows for the ledger, with the rules for the rows of the result."""
        lineage = super().lineage
        return lineage if lineage is None or not self.answer else {**lineage, "answer": json.loads(self.answer)}

    @cached_property
    def measurement(self) -> Measurement:
        """Return the measurements of all parts."""
        return measurement_of(*(part.plan.measurement for part in self.parts))

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return nothing: the function of each part returns its own noise."""
        return []

    @cached_property
    def public_arguments(self) -> dict[str, Json]:
        """Return the arguments of every part, see `Plan.public_arguments`."""
        parts: list[Json] = [
            {"core": part.core, "function": part.plan.function, "arguments": part.plan.public_arguments}
            for part in self.parts
        ]
        record = {
            "source": self.source,
            "dataset": self.dataset,
            "epsilon": str(self.epsilon),
            "delta": str(self.delta) if self._spends_delta else None,
            "neighbours": self.neighbours,
            "max_rows_per_unit": self.max_rows_per_unit,
            "layout": {name: value for name, value in vars(self.layout).items() if value is not None},
            "during": None if self.during is None else self.during.to_json(),
            "parts": parts,
            _SHARE: "0" if self.untold else None,
        }
        return {name: value for name, value in record.items() if value is not None}

    @property
    def _spends_delta(self) -> bool:
        return self.delta is not None and any(getattr(part.plan, "delta", None) is not None for part in self.parts)

    def earlier_arguments(self) -> Iterator[dict[str, Json]]:
        """Yield the arguments of earlier versions, which did not measure rows beyond row limits.

        Older versions also stored settings that no part uses.
        """
        yield from super().earlier_arguments()
        yield from self._untold_before(self.public_arguments)
        if any(part.unused for part in self.parts):
            recorded = narrow(list, self.public_arguments["parts"])
            parts: list[Json] = [
                {**record, "arguments": {**record["arguments"], **part.unused}}
                for part, record in zip(self.parts, recorded, strict=True)
            ]
            delta: dict[str, Json] = {} if self.delta is None else {"delta": str(self.delta)}
            arguments = {**self.public_arguments, **delta, "parts": parts}
            yield arguments
            yield from self._untold_before(arguments)

    def _untold_before(self, arguments: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
        """Yield the arguments of earlier versions, which did not measure rows beyond row limits."""
        if self.untold:
            yield {name: value for name, value in arguments.items() if name != _SHARE}
        flags = [isinstance(part.plan, LeftOutPlan) and part.plan.left_out_share == USUAL_SHARE for part in self.parts]
        if any(flags):
            parts: list[Json] = []
            for tells, part in zip(flags, narrow(list, arguments["parts"]), strict=True):
                own = {name: value for name, value in part["arguments"].items() if not tells or name != _SHARE}
                parts.append({**part, "arguments": own})
            yield {**arguments, "parts": parts}

    def _record(self) -> dict[str, object]:
        return {**super()._record(), "parts": [part.to_json() for part in self.parts]}

    @classmethod
    def from_record(cls, record: Mapping[str, Json]) -> Self:
        """Return the plan that `to_json` wrote."""
        parts = tuple(QueryPart.read(narrow(dict, part)) for part in narrow(list, record["parts"]))
        return replace(super().from_record({**record, "parts": []}), parts=parts)


@dataclass(frozen=True)
class QueryCall(Call):
    """A call of dp_query, with the calls of its parts.

    Attributes
    ----------
    calls : tuple of Call
        The calls of the parts, each with the column types of its core.
    """

    plan: QueryPlan
    calls: tuple[Call, ...] = ()

    def told(self, calls: Iterable[Call]) -> Self:
        """Return the call with the remarks of its parts: how many rows of a person count, which keys are shown."""
        parts = list(calls)
        limits = [str(call.limit) for call in parts if isinstance(call, RowsCall)]
        remarks = [f"rows per {self.plan.layout.privacy_unit} that count, drawn: {', '.join(limits)}"] if limits else []
        remarks += dict.fromkeys(filter(None, (*(call.remark for call in parts), self.plan.remark)))
        return replace(self, left_out="; ".join(remarks)) if remarks else self

    @classmethod
    def of(cls, plan: QueryPlan, calls: Iterable[Call]) -> Self:
        """Return the call with resolved parts."""
        return cls(plan, (), TargetCode(), (), calls=tuple(calls))

    def start(self) -> Collector | None:
        """Return nothing: every part has its own collector."""
        return None

    def prepare(self, statistic: Sequence[tuple[Call, Collector]], progress: Progress) -> Callable[[], Json] | Draw:
        """Return the draw of all parts, from their calls and collectors at the end of their last passes."""
        draws = [call.prepare(collector, progress) for call, collector in statistic]
        run = [draw.run if isinstance(draw, Draw) else draw for draw in draws]

        def all_parts() -> Json:
            return {"parts": [draw() for draw in run]}

        if not any(isinstance(draw, Draw) for draw in draws):
            return all_parts
        spent = (
            draw.measurement if isinstance(draw, Draw) else call.plan.measurement
            for draw, (call, _) in zip(draws, statistic, strict=True)
        )
        return Draw(measurement_of(*spent), all_parts)


def read_age(max_age: object) -> float | None:
    """Return `max_age` in seconds; None without it.

    Raises
    ------
    ParameterError
        P021: it is not a length of time.
    """
    if max_age is None:
        return None
    seconds = getattr(max_age, "total_seconds", None)
    hint = "Give an INTERVAL, or a number of hours such as 24."
    if seconds is not None:
        age = float(seconds())
    else:
        age = 3600.0 * float(parameters.number_from_zero("max_age", max_age, hint=hint))
    if not age >= 0:
        raise ParameterError("P021", f"max_age must not be negative. {hint}")
    return age
