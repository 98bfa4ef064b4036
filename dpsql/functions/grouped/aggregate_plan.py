"""The plans of dp_aggregate and its thin forms: aggregates of columns, in groups, and the noise on them.

Without public bounds a first pass draws an interval for every target, over the rows of all groups together
(`dpsql.functions.grouped.drawn_bounds`), and the sums are of values clipped to it. Of a privacy unit that pass counts
as many rows as the call's limits leave in all groups, ``contribution.rows``. How values are coded within their bounds
changes neither the sensitivity nor the noise of a block (`dpsql.statistics.aggregates`: every bound holds for any code
in [-S, S]), so the part that adds the noise is known before the bounds are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from dpsql.contract import parameters
from dpsql.contract.arguments import (
    BUDGET,
    EPSILON,
    Argument,
    Signature,
)
from dpsql.contract.bounds import bounds_by_feature, feature_bounds, refuse_extremes
from dpsql.contract.keys import PublicKeys
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.parameters import Side
from dpsql.contract.plan import Quantity, refuse_small_part, refuse_wide_noise
from dpsql.contract.relation import Contribution
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.grouped.aggregate_arguments import (
    BOUNDS,
    DELTA,
    DISTINCT,
    GROUP_SIZES,
    NULLS,
    SAMPLING,
    TARGETS,
    WHICH,
    merges_units,
    read_nulls,
    read_sampling,
    read_sizes,
)
from dpsql.functions.grouped.arguments import AUTO, CONFIDENCE, DDOF, GROUPS, NOISE, UNIT, UNIT_VALUE, read_noise
from dpsql.functions.grouped.drawn_bounds import BOUNDS_SHARE, UNIT_BOUNDS, are_missing, read_share
from dpsql.functions.grouped.left_out import LEFT_OUT_SHARE, LeftOutPlan
from dpsql.mechanisms.aggregates import (
    GroupedNoise,
    Lattice,
    expected_block,
    grouped_noise,
    log_errors,
    rows_to_sampling,
)
from dpsql.mechanisms.cube_vector import CubeVector
from dpsql.mechanisms.interval_scan import ScannedInterval
from dpsql.mechanisms.keyed_aggregates import KeyedNoise, keyed_noise
from dpsql.released.covariance import estimates
from dpsql.statistics.aggregates import (
    AVG,
    COUNT,
    GAUSSIAN,
    LAPLACE,
    POWERS,
    SUM,
    VARIANCE,
    Block,
    CentredSum,
    GroupCount,
    Sums,
    UnitCount,
    ValueBlock,
    blocks_for,
)
from dpsql.statistics.shared_count import SharedCount, shared_count


@dataclass(frozen=True, kw_only=True)
class AggregatePlan(LeftOutPlan):
    """The checked public arguments of one ``dp_aggregate`` call."""

    aggregates: tuple[str, ...]
    delta: Fraction | None
    lower: Side | None  # None where rows are only counted, or bounds are private
    upper: Side | None
    law: str  # the noise that was asked for
    unit_value: str
    distinct_of: str | None
    ddof: int
    confidence: Fraction
    group_sizes: tuple[int, ...] | None  # public; None where the sizes of groups are private
    nulls: str | None  # what a row without a value counts as; None where it adds nothing
    sampling: bool | None  # None for false, as calls were recorded before there was this

    function: ClassVar[str] = "dp_aggregate"
    arguments: ClassVar[Signature] = Signature(
        WHICH, replace(TARGETS, shown=""), EPSILON, DELTA,
        *BOUNDS, BOUNDS_SHARE,
        *GROUPS, *UNIT, LEFT_OUT_SHARE, UNIT_VALUE, NULLS, GROUP_SIZES, NOISE, DDOF, SAMPLING, CONFIDENCE, *BUDGET,
    )  # fmt: skip
    # What a thin form computes.
    computes: ClassVar[tuple[str, ...]] = ()
    clips: ClassVar[bool] = True

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        given = {"unit_value": "rows", "distinct_of": None, "ddof": 1, "lower": None, "upper": None, **given}
        aggregates = cls.computes or parameters.known(tuple, WHICH.read(given))
        own = super()._own(given, layout)
        targets = parameters.known(tuple, own["targets"])
        if not targets and aggregates != (COUNT,):
            raise ParameterError(
                "P013", "target is missing. Name the column to aggregate; only rows are counted without one."
            )
        bounds: Mapping[str, object] = {"lower": None, "upper": None, "bounds_share": None}
        if aggregates != (COUNT,):
            bounds = cls._bounds(given, targets)
        noise = read_noise(given, DELTA)
        if own["keys"] is None and noise["delta"] is None:
            raise ParameterError(
                "P069", "keys := 'private' needs delta, the chance that a key of one unit alone shows. 1e-6 is usual."
            )
        return {
            **own, **bounds, **noise,
            "aggregates": aggregates, "unit_value": UNIT_VALUE.read(given),
            "distinct_of": cls._distinct(given), "ddof": DDOF.read(given),
            "group_sizes": read_sizes(given, aggregates, own), "sampling": read_sampling(given, aggregates),
            "nulls": read_nulls(given, aggregates),
            "left_out_share": cls._left_out_share(given, layout, own, bounds, alone=merges_units(given)),
        }  # fmt: skip

    @classmethod
    def stand_ins(cls, given: Mapping[str, object]) -> dict[str, object]:
        """Return values for required arguments; the noise does not depend on public bounds."""
        bounds = {"lower": 0, "upper": 1} if merges_units(given) else {}
        return {**super().stand_ins(given), **bounds}

    @classmethod
    def _bounds(cls, given: Mapping[str, object], targets: Sequence[str]) -> Mapping[str, object]:
        """Return the public bounds of the targets, or the share of epsilon that private ones cost."""
        if not are_missing(given):
            bounds = feature_bounds(given)
            refuse_extremes(bounds_by_feature(bounds["lower"], bounds["upper"], targets, fold_case=True))
            return {**bounds, "bounds_share": None}
        if merges_units(given):
            raise ParameterError(
                "P003",
                "lower and upper are missing: bounds of a person's sums are not drawn. "
                "Give both from domain knowledge, not from the table.",
            )
        return {"lower": None, "upper": None, "bounds_share": read_share(given)}

    @classmethod
    def _distinct(cls, given: Mapping[str, object]) -> str | None:
        if given.get("distinct_of") is None:
            return None
        if given.get("target") is not None:
            raise ParameterError("P045", "distinct_of and target exclude each other. Give one of them.")
        if given.get("privacy_unit") is None:
            raise ParameterError(
                "P046",
                "distinct_of needs privacy_unit: without it the guarantee would be for one row, and an item has many. "
                "Give the column of the id.",
            )
        return parameters.text("distinct_of", given["distinct_of"], hint="Give the name of a column.")

    @classmethod
    def _contribution(
        cls, given: Mapping[str, object], layout: Layout, keys: PublicKeys | None, *, other: bool
    ) -> Contribution:
        """Return what one privacy unit may contribute; where its rows are merged, one row to each of its groups."""
        if not merges_units(given):
            return super()._contribution(given, layout, keys, other=other)
        if layout.privacy_unit is None:
            raise ParameterError("P046", "unit_value := 'sum' needs privacy_unit. Give the column of the id.")
        count = cls._group_count(given, keys, other=other)
        rows, groups = given.get("max_rows_per_unit"), given.get("max_groups_per_unit")
        if rows is None and groups is None and count is None:
            raise ParameterError("P046", "max_groups_per_unit is missing. Give the groups of one unit.")
        return Contribution.of("add_remove", rows, groups, 1, key_count=count)

    @property
    def merges_units(self) -> bool:
        """Whether the rows of one unit in one group are one row."""
        return merges_units(self._block_options)

    @property
    def counts_items(self) -> bool:
        """Whether distinct items are counted, in place of rows; with periods, persons, who are of several units.

        A unit has one row in a group then, of one person, and moves their number by at most 1.
        """
        return self.distinct_of is not None and (self.chosen_by_date is not None or not self.merges_units)

    @property
    def _block_options(self) -> Mapping[str, object]:
        return {
            "unit_value": self.unit_value,
            "distinct_of": self.distinct_of,
            "privacy_unit": self.layout.privacy_unit,
        }

    @property
    def row_columns(self) -> Mapping[str, str] | None:
        """Keys are k0, k1, …, targets t0, t1, …, and what is counted is d0."""
        columns = dict(super().row_columns or {})
        return columns | ({"d0": self.distinct_of} if self.counts_items and self.distinct_of is not None else {})

    @cached_property
    def bounds_parts(self) -> tuple[ScannedInterval, ...]:
        """The parts that draw the bounds of each target; none with public bounds."""
        drawn = range(len(self.targets)) if self.draws_bounds else ()
        return tuple(ScannedInterval(f"bounds {position}", self.bounds_noise) for position in drawn)

    @cached_property
    def part(self) -> GroupedNoise | KeyedNoise | CubeVector:
        """The part that draws."""
        return self._chosen()

    def _chosen(self) -> GroupedNoise | KeyedNoise | CubeVector:
        """Return, of the parts of the law that was asked for, the one with the smallest errors.

        With 'auto' a law that cannot be drawn is not among them, as long as another one can.
        """
        laws = (LAPLACE, GAUSSIAN) if self.law == AUTO and self.delta is not None else (self.law,)
        found: list[GroupedNoise | KeyedNoise] = []
        refused = []
        for law in (LAPLACE if law == AUTO else law for law in laws):
            try:
                found += self._parts(law)
            except ParameterError as error:
                refused.append(error)
        if not found:
            raise refused[0]
        return min([part for part in found if _is_drawable(part)] or found, key=self._log_errors)

    def _parts(self, law: str) -> Sequence[GroupedNoise | KeyedNoise]:
        """Return the parts that have noise of one law, for the best blocks of all targets, or for each of one target.

        Targets have equal shares of the loss, so the block that is best for one is best beside others. Only where the
        keys are private, and a block can tell how many units a key has, do the blocks of one target need different
        shares.
        """
        blocks = self._blocks(law)
        if self.has_private_keys and len(blocks) == 1:
            return [self._keyed((block,), law) for block in blocks[0]]
        best = tuple(min(some, key=lambda block: self._log_errors(self._public((block,), law))) for some in blocks)
        if self.has_private_keys:
            return [self._keyed(best, law)]
        shared = self._shared(law)
        return [self._public(best, law), *([] if shared is None else [self._public((shared,), law)])]

    def _shared(self, law: str) -> SharedCount | None:
        """Return the block of several targets with one count, where every row counts in each of them."""
        if self.nulls is None or self.lower is None or self.upper is None or len(self.targets) < 2:
            return None
        pairs = bounds_by_feature(self.lower, self.upper, self.targets, fold_case=True)
        return shared_count(pairs, law, self.contribution)

    def _blocks(self, law: str) -> list[tuple[Block, ...]]:
        """Return the blocks that each target may have, or those of all rows."""
        if not self.targets:
            return [(GroupCount(),)]
        if self.draws_bounds:
            return [self._blocks_of(UNIT_BOUNDS, law)] * len(self.targets)
        if self.lower is None or self.upper is None:
            return [(GroupCount(),)] * len(self.targets)
        pairs = bounds_by_feature(self.lower, self.upper, self.targets, fold_case=True)
        return [self._blocks_of(pair, law) for pair in pairs]

    def _blocks_of(self, bounds: tuple[float, float], law: str) -> tuple[Block, ...]:
        if self.group_sizes is not None:
            return (CentredSum(*bounds),)
        squares = (VARIANCE,) if self.sampling else ()
        return blocks_for((*self.aggregates, *squares), *bounds, law)

    def _public(self, blocks: tuple[Block, ...], law: str) -> GroupedNoise:
        return grouped_noise("sums", self.remaining_epsilon, self.delta, self.contribution, blocks, law)

    def _keyed(self, blocks: tuple[Block, ...], law: str) -> KeyedNoise:
        if self.delta is None:
            raise InternalError("I032", "private keys came without a delta. Report it.")
        return keyed_noise("sums", self.remaining_epsilon, self.delta, self.contribution, blocks, law)

    def _log_errors(self, part: GroupedNoise | KeyedNoise | CubeVector) -> float:
        """Return the logarithms of the errors of what was asked, so far rounded that ties go to the first."""
        count = len(self.targets) or 1
        lattices = _grouped(part).lattices
        return round(log_errors(part.blocks[-count:], lattices[-count:], self.aggregates), 9)

    @property
    def target_laws(self) -> list[tuple[Block, Lattice]]:
        """The block of each target, or of all rows, and the law of its noise."""
        return self._laws_of(self.part)

    def noise_of_sum(self, target: int) -> tuple[float, int]:
        """Return half the width of the interval of a target's sum, or of its squares, and which power it is of.

        In units of the width of the bounds, or of its square; over many rows, by public arguments alone.
        """
        block, lattice = self.target_laws[target]
        names = self.aggregates_of(target)
        power = max(POWERS[name] for name in names)
        name = VARIANCE if power > 1 else AVG if AVG in names else SUM
        rows = 1 << 20
        [expected] = estimates(expected_block(block, lattice, rows), (name,), ddof=0).values()
        half = float(expected.upper[0] - expected.lower[0]) / 2.0
        return half * (1 if name == SUM else rows) / 2.0**power, power

    def aggregates_of(self, target: int) -> Sequence[str]:
        """Return the aggregates that are asked of a target."""
        return self.aggregates

    def _laws_of(self, part: GroupedNoise | KeyedNoise | CubeVector) -> list[tuple[Block, Lattice]]:
        noise = _grouped(part)
        pairs = zip(noise.blocks, noise.lattices, strict=True)
        return [(target, law) for block, law in pairs for target in block.targets][-(len(self.targets) or 1) :]

    @property
    def _drawn_blocks(self) -> tuple[Block, ...]:
        """The blocks that are drawn: of the targets, or of all rows."""
        return self.part.blocks[-(len(self.targets) or 1) :]

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The statistic: a block for each target, or one for all rows."""
        return tuple(block for drawn in self._drawn_blocks for block in drawn.targets)

    def counted(self, rows: Sums, *targets: Sums) -> list[Sums]:
        """Return the sums of each target over the rows that count in it, or those of all rows if there is none."""
        if not targets:
            return [rows]
        return list(targets) if self.nulls is None else [replace(each, n=rows.n) for each in targets]

    def given(self, rows: Sums, *targets: Sums) -> list[Sums]:
        """Return the sums that the blocks are drawn from."""
        if isinstance(self._drawn_blocks[0], SharedCount):
            return [replace(rows, s1=np.stack([each.s1 for each in targets]))]
        return self.counted(rows, *targets)

    @cached_property
    def target_blocks(self) -> Sequence[ValueBlock | None]:
        """How the values of each target are coded; None where they are only counted."""
        found = self.blocks[: len(self.targets)]
        return [block if isinstance(block, ValueBlock) else None for block in found]

    @property
    def counts_units(self) -> bool:
        """Whether units are counted beside rows, because their number decides which keys are released."""
        return isinstance(self.part, KeyedNoise) and isinstance(self.part.blocks[0], UnitCount)

    @cached_property
    def measurement(self) -> Measurement:
        """The private bounds of each target, one mechanism for all groups and targets, and what was left out."""
        return measurement_of(*self.bounds_parts, self.part, *self.left_out_parts)

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of all Laplace noise."""
        parts = (_grouped(self.part), *self.left_out_parts)
        return [*self.bounds_scales, *(scale for part in parts for scale in part.laplace_scales())]

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the mu of one row in each block."""
        return _grouped(self.part).gaussian_parts()

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the call would be: the errors of each aggregate of a group, and the least count of a key."""
        rows = 1000 if n_rows is None else n_rows
        out: list[Quantity] = []
        if isinstance(self.part, KeyedNoise):
            counted = "persons" if self.layout.privacy_unit is not None else "rows"
            out.append(
                ("least_count", self.part.least_count, f"{counted} that a key needs to be released in half of calls")
            )
        within = ""
        if self.draws_bounds:
            out.append(self.bounds_needed)
            within = ", in half widths of the bounds that are drawn"
        lattices = _grouped(self.part).lattices[-len(self._drawn_blocks) :]
        pairs = zip(self._drawn_blocks, lattices, strict=True)
        for block, lattice in dict.fromkeys((block, lattice) for drawn, lattice in pairs for block in drawn.targets):
            sizes = None if self.group_sizes is None else self.group_sizes[:1] if n_rows is None else [rows]
            expected = estimates(expected_block(block, lattice, rows), self.aggregates, ddof=self.ddof, sizes=sizes)
            for name in self.aggregates:
                meaning = f"standard deviation of the noise on {name}"
                if name not in (COUNT, "sum"):
                    meaning += f" of {rows} rows, half of them at each bound"
                meaning += "" if name == COUNT else within
                out.append((f"{name}_std_error", float(expected[name].std_error[0]), meaning))
        for part in self.left_out_parts:
            deviation = part.lattices[0].deviation
            out.append(("units_over_std_error", deviation, "that of how many units have more rows than count"))
        if set(self.aggregates) & {COUNT, AVG} and self.group_sizes is None:
            least = rows_to_sampling(self._drawn_blocks, lattices, self.aggregates)
            meaning = "rows of a group from which noise on counts and means is no larger than sampling error"
            out.append(("rows_needed", least, meaning))
        return out


def _grouped(part: GroupedNoise | KeyedNoise | CubeVector) -> GroupedNoise | CubeVector:
    return part.noise if isinstance(part, KeyedNoise) else part


def _is_drawable(part: GroupedNoise | KeyedNoise) -> bool:
    """Whether the noise is within the samplers' range."""
    try:
        noise = _grouped(part)
        for scale in noise.laplace_scales():
            refuse_wide_noise(scale)
        for share in noise.gaussian_parts():
            refuse_small_part(share)
    except ParameterError:
        return False
    return True


class CountPlan(AggregatePlan):
    """The plan of dp_count."""

    function = "dp_count"
    computes = (COUNT,)
    arguments = Signature(
        replace(TARGETS, shown="", doc="Count the values of this column, or of several, in place of rows."),
        DISTINCT, EPSILON, DELTA, *GROUPS, *UNIT, LEFT_OUT_SHARE, NOISE, CONFIDENCE, *BUDGET,
    )  # fmt: skip


def _thin(aggregate: str, *, sizes: Iterable[Argument] = (), more: Iterable[Argument] = ()) -> type[AggregatePlan]:
    """Return the plan of the form that computes one aggregate; `sizes` and `more` are arguments of this one alone."""
    signature = Signature(
        TARGETS, EPSILON, DELTA, *BOUNDS, BOUNDS_SHARE,
        *GROUPS, *UNIT, LEFT_OUT_SHARE, UNIT_VALUE, *sizes, NOISE, *more, CONFIDENCE, *BUDGET,
    )  # fmt: skip
    function = f"dp_{aggregate}"
    own = {"function": function, "computes": (aggregate,), "arguments": signature}
    return type(f"{aggregate.capitalize()}Plan", (AggregatePlan,), {"__doc__": f"The plan of {function}.", **own})


# Every form, with what it does in one sentence.
FORMS: tuple[tuple[type[AggregatePlan], str], ...] = (
    (CountPlan, "Count rows, values or distinct units privately, in groups."),
    (_thin("sum", sizes=[GROUP_SIZES]), "Add up a column privately, in groups."),
    (_thin("avg", sizes=[NULLS, GROUP_SIZES], more=[SAMPLING]), "Average a column privately, in groups."),
    (_thin("variance", more=[DDOF]), "Estimate the variance of a column privately, in groups."),
    (_thin("stddev", more=[DDOF]), "Estimate the standard deviation of a column privately, in groups."),
    (AggregatePlan, "Release several aggregates of several columns as one, in groups."),
)
