"""dp_count, dp_sum, dp_avg, dp_variance, dp_stddev and dp_aggregate: private aggregates, in groups, as one release.

All groups, targets and aggregates of a call get their noise in one draw, and the ledger shows one event. A privacy unit
contributes to few of the numbers (`dpsql.contract.relation` has the limit), so fifty groups cost as much as one.
`dpsql.statistics.aggregates` defines the integers that get noise, and `dpsql.released.covariance` the estimates.

Without public bounds a first pass draws an interval for every target, over the rows of all groups together
(`dpsql.functions.grouped.plan`), and the sums are of values clipped to it. This pass counts at most
``contribution.rows`` rows of a privacy unit, the call's limit over all groups. The code of values within their bounds
changes neither the sensitivity nor the noise of a block (`dpsql.statistics.aggregates`: every bound holds for any code
in [-S, S]), so the part that adds the noise is fixed before the bounds are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Longs, to_numbers
from dpsql.contract import parameters
from dpsql.contract.arguments import (
    BUDGET,
    COLUMN_BOUNDS,
    EPSILON,
    OPTIONAL_DELTA,
    REQUIRED,
    TARGET,
    Argument,
    Signature,
    flag,
)
from dpsql.contract.fold import Batch, Collector
from dpsql.contract.json import Json
from dpsql.contract.keys import PublicKeys
from dpsql.contract.layout import Layout, bounds_by_feature, feature_bounds, refuse_extremes
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.parameters import Side, fold
from dpsql.contract.plan import Quantity, refuse_small_part, refuse_wide_noise
from dpsql.contract.relation import Contribution
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.grouped.left_out import GROUP, LEFT_OUT_SHARE, RECORD, UNITS, LeftOutPlan
from dpsql.functions.grouped.plan import (
    AUTO,
    BOUNDS_SHARE,
    CONFIDENCE,
    DDOF,
    GROUPS,
    NO_CODE,
    NOISE,
    UNIT,
    UNIT_BOUNDS,
    UNIT_VALUE,
    DrawnBoundsCall,
    TargetMagnitudes,
    ValueCode,
    are_missing,
    drawn_of,
    read_noise,
    read_share,
)
from dpsql.kernels.columns import to_doubles
from dpsql.kernels.fixed_point import quantise
from dpsql.mechanisms.aggregates import (
    CubeVector,
    GroupedNoise,
    Lattice,
    NoisyBlock,
    expected_block,
    grouped_noise,
    log_errors,
    rows_to_sampling,
)
from dpsql.mechanisms.interval_scan import PrivateInterval, ScannedInterval
from dpsql.mechanisms.keyed_aggregates import KeyedNoise, keyed_noise
from dpsql.progress import Progress
from dpsql.released.aggregates import record_of, stored_block
from dpsql.released.covariance import estimates
from dpsql.statistics.aggregates import (
    AGGREGATES,
    AVG,
    COUNT,
    GAUSSIAN,
    LAPLACE,
    POWERS,
    STDDEV,
    SUM,
    VARIANCE,
    Block,
    CentredSum,
    GroupCount,
    GroupedSums,
    GroupRecords,
    KeyedSums,
    Labels,
    NamedSums,
    NumberedSums,
    SharedCount,
    Sums,
    UnitCount,
    ValueBlock,
    blocks_for,
    left_out_blocks,
    shared_count,
)

TARGETS = replace(
    TARGET,
    doc="Name of the column to aggregate, or a list of names. Rows whose value is NULL or NaN add nothing to it.",
    statistic=False,
    kind="Names",
)
BOUNDS = tuple(
    replace(
        bound,
        doc=f"Public {side} bound of the values: one number, a list with one per target, or a struct by name. "
        "Values are clipped to it.",
        statistic=False,
        default_text="drawn privately",
        stand_in=None,
    )
    for side, bound in zip(("lower", "upper"), COLUMN_BOUNDS, strict=True)
)
DELTA = replace(
    OPTIONAL_DELTA,
    doc="Chance that the guarantee fails, from 1e-300 to 0.1. Without it pure DP; with it noise may be Gaussian, and "
    "keys may be private.",
)
DISTINCT = Argument(
    "distinct_of",
    "Name of a column whose different values are counted, in place of rows: of the privacy unit, or of items, of which "
    "at most max_rows_per_unit_group of a person count in a group.",
    names_column=True,
    table_only=True,
)
GROUP_SIZES = Argument(
    "group_sizes",
    "Rows with a value in every group, where these are published: one number without by, or a list in the order of "
    "keys. Then only the sum from the middle of the bounds gets noise. A wrong number makes wrong answers, and no less "
    "privacy.",
    table_only=True,
    kind="Numbers",
)
SAMPLING = flag(
    "sampling",
    "Whether the interval of an average is about the population that the rows are from, rather than about these rows. "
    "The sum of squares that it needs comes with Laplace noise at no cost, and with Gaussian noise at 1.2 times the "
    "noise.",
    False,
)
_SIZED = {SUM, AVG}
NULLS = Argument(
    "nulls",
    "With 'middle' a row without a value counts as the middle of the bounds in an average. Then every row counts, so "
    "several targets share one count, which takes less noise.",
    default_text="left out",
    check=partial(parameters.choice, "nulls", options=("middle",)),
    choices=("middle",),
)
_COUNTED = {COUNT, SUM, AVG}
# Only averages and aggregates with squares allow sampling, so that every interval of a release is about the same thing.
_SAMPLED = {AVG, VARIANCE, STDDEV}
_MOST_SIZES, _LARGEST_SIZE = 1 << 20, 1 << 40


def _aggregates(aggregates: object) -> tuple[str, ...]:
    """Return the names of the aggregates."""
    hint = f"Give some of {', '.join(map(repr, AGGREGATES))}."
    listed = parameters.text_list("aggregates", [aggregates] if isinstance(aggregates, str) else aggregates, hint=hint)
    names = tuple(parameters.choice("aggregates", name, AGGREGATES) for name in listed)
    parameters.refuse_duplicates("aggregates", names, fold_case=False)
    return names


WHICH = Argument(
    "aggregates",
    "What to compute of every target: some of 'count', 'sum', 'avg', 'variance' and 'stddev', from the same noise.",
    default_text=REQUIRED,
    check=_aggregates,
    stand_in="count",
    kind="Names",
)


def read_sampling(arguments: Mapping[str, object], aggregates: Sequence[str]) -> bool | None:
    """Return True if the intervals of averages are about the population."""
    if arguments.get("sampling") is None or not SAMPLING.read(arguments):
        return None
    if AVG not in aggregates or not set(aggregates) <= _SAMPLED:
        raise ParameterError(
            "P045", "sampling is for averages, alone or with variance and stddev. Leave it out, or ask for these."
        )
    if arguments.get("group_sizes") is not None:
        raise ParameterError("P045", "group_sizes leave no squares to tell the sampling. Give one of both.")
    return True


def read_sizes(
    arguments: Mapping[str, object], aggregates: Sequence[str], own: Mapping[str, object]
) -> tuple[int, ...] | None:
    """Return the public number of rows of each group."""
    listed = arguments.get("group_sizes")
    if listed is None:
        return None
    if not set(aggregates) <= _SIZED:
        raise ParameterError("P045", "group_sizes is for sums and averages. Leave it out, or ask for these alone.")
    lists, rows = own["keys"], own["key_rows"]
    count = None
    if lists is not None:
        parts = parameters.narrow(tuple, lists), None if rows is None else parameters.narrow(tuple, rows)
        count = PublicKeys(*parts).count
    if count is None:
        raise ParameterError("P046", "group_sizes needs keys that are listed. Give keys := [...].")
    hint = "Give the public number of rows of every group, such as [120, 80]."
    items = parameters.list_items(listed, most=_MOST_SIZES)
    sizes = tuple(
        parameters.positive_integer("group_sizes", item, hint=hint, most=_LARGEST_SIZE)
        for item in ((listed,) if items is None else items)
    )
    count += bool(own["other"])
    if len(sizes) != count:
        raise ParameterError("P046", f"group_sizes has {len(sizes)} numbers for {count} groups. {hint}")
    return sizes


def read_nulls(arguments: Mapping[str, object], aggregates: Sequence[str]) -> str | None:
    """Return the value of a row without a value."""
    if arguments.get("nulls") is None:
        return None
    if not set(aggregates) <= _COUNTED or AVG not in aggregates:
        raise ParameterError(
            "P045", "nulls := 'middle' is for averages, and for counts and sums beside them. Leave it out."
        )
    if are_missing(arguments):
        raise ParameterError("P046", "nulls := 'middle' needs public bounds. Give lower and upper.")
    if merges_units(arguments) or arguments.get("group_sizes") is not None or read_sampling(arguments, aggregates):
        raise ParameterError("P045", "unit_value := 'sum', group_sizes and sampling exclude nulls. Leave nulls out.")
    return str(NULLS.read(arguments))


def merges_units(arguments: Mapping[str, object]) -> bool:
    """Return whether a unit's rows in a group are one row: its values add up, or only its presence counts."""
    distinct, unit = arguments.get("distinct_of"), arguments.get("privacy_unit")
    counts_units = isinstance(distinct, str) and isinstance(unit, str) and fold(distinct) == fold(unit)
    return counts_units or arguments.get("unit_value") == "sum"


@dataclass(frozen=True, kw_only=True)
class AggregatePlan(LeftOutPlan):
    """The checked public arguments of one ``dp_aggregate`` call."""

    aggregates: tuple[str, ...]
    delta: Fraction | None
    lower: Side | None  # None if rows are only counted, or bounds are private
    upper: Side | None
    law: str  # the requested noise
    unit_value: str
    distinct_of: str | None
    ddof: int
    confidence: Fraction
    group_sizes: tuple[int, ...] | None  # public; None if the sizes of groups are private
    nulls: str | None  # the value of a row without a value; None if it adds nothing
    sampling: bool | None  # None for false, as in records of earlier versions

    function: ClassVar[str] = "dp_aggregate"
    arguments: ClassVar[Signature] = Signature(
        WHICH, replace(TARGETS, default_text=""), EPSILON, DELTA,
        *BOUNDS, BOUNDS_SHARE,
        *GROUPS, *UNIT, LEFT_OUT_SHARE, UNIT_VALUE, NULLS, GROUP_SIZES, NOISE, DDOF, SAMPLING, CONFIDENCE, *BUDGET,
    )  # fmt: skip
    # The aggregates of a thin form.
    computes: ClassVar[tuple[str, ...]] = ()
    clips: ClassVar[bool] = True

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        arguments = {"unit_value": "rows", "distinct_of": None, "ddof": 1, "lower": None, "upper": None, **arguments}
        aggregates = cls.computes or parameters.narrow(tuple, WHICH.read(arguments))
        own = super()._own(arguments, layout)
        targets = parameters.narrow(tuple, own["targets"])
        if not targets and aggregates != (COUNT,):
            raise ParameterError(
                "P013", "target is missing. Name the column to aggregate; only rows are counted without one."
            )
        bounds: Mapping[str, object] = {"lower": None, "upper": None, "bounds_share": None}
        if aggregates != (COUNT,):
            bounds = cls._bounds(arguments, targets)
        noise = read_noise(arguments, DELTA)
        if own["keys"] is None and noise["delta"] is None:
            raise ParameterError(
                "P069",
                "keys := 'private' needs delta, the chance that a key of one unit alone shows. Give delta := 1e-6.",
            )
        return {
            **own, **bounds, **noise,
            "aggregates": aggregates, "unit_value": UNIT_VALUE.read(arguments),
            "distinct_of": cls._distinct(arguments), "ddof": DDOF.read(arguments),
            "group_sizes": read_sizes(arguments, aggregates, own), "sampling": read_sampling(arguments, aggregates),
            "nulls": read_nulls(arguments, aggregates),
            "left_out_share": cls._left_out_share(arguments, layout, own, bounds, alone=merges_units(arguments)),
        }  # fmt: skip

    @classmethod
    def stand_ins(cls, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return values for required arguments; the noise does not depend on public bounds."""
        bounds = {"lower": 0, "upper": 1} if merges_units(arguments) else {}
        return {**super().stand_ins(arguments), **bounds}

    @classmethod
    def _bounds(cls, arguments: Mapping[str, object], targets: Sequence[str]) -> Mapping[str, object]:
        """Return the public bounds of the targets, or the share of epsilon for private bounds."""
        if not are_missing(arguments):
            bounds = feature_bounds(arguments)
            refuse_extremes(bounds_by_feature(bounds["lower"], bounds["upper"], targets, fold_case=True))
            return {**bounds, "bounds_share": None}
        if merges_units(arguments):
            raise ParameterError(
                "P003",
                "lower and upper are missing: bounds of a person's sums are not drawn. "
                "Give both from domain knowledge, not from the table.",
            )
        return {"lower": None, "upper": None, "bounds_share": read_share(arguments)}

    @classmethod
    def _distinct(cls, arguments: Mapping[str, object]) -> str | None:
        if arguments.get("distinct_of") is None:
            return None
        if arguments.get("target") is not None:
            raise ParameterError("P045", "distinct_of and target exclude each other. Give one of them.")
        if arguments.get("privacy_unit") is None:
            raise ParameterError(
                "P046",
                "distinct_of needs privacy_unit: without it the guarantee would be for one row, and an item has many. "
                "Give the column of the id.",
            )
        return parameters.text("distinct_of", arguments["distinct_of"], hint="Give the name of a column.")

    @classmethod
    def _contribution(
        cls, arguments: Mapping[str, object], layout: Layout, keys: PublicKeys | None, *, other: bool
    ) -> Contribution:
        """Return the limit of one privacy unit's contribution; with merged rows, one row to each of its groups."""
        if not merges_units(arguments):
            return super()._contribution(arguments, layout, keys, other=other)
        if layout.privacy_unit is None:
            raise ParameterError("P046", "unit_value := 'sum' needs privacy_unit. Give the column of the id.")
        count = cls._group_count(arguments, keys, other=other)
        rows, groups = arguments.get("max_rows_per_unit"), arguments.get("max_groups_per_unit")
        if rows is None and groups is None and count is None:
            raise ParameterError("P046", "max_groups_per_unit is missing. Give the groups of one unit.")
        return Contribution.of("add_remove", rows, groups, 1, key_count=count)

    @property
    def merges_units(self) -> bool:
        """Return whether the rows of one unit in one group are one row."""
        return merges_units(self._block_options)

    @property
    def counts_items(self) -> bool:
        """Return whether distinct items are counted in place of rows; with periods, persons in several units.

        A unit then has one row in a group, of one person, and changes the number of persons by at most 1.
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
        """Return keys k0, k1, …, targets t0, t1, …, and the counted column d0."""
        columns = dict(super().row_columns or {})
        return columns | ({"d0": self.distinct_of} if self.counts_items and self.distinct_of is not None else {})

    @cached_property
    def bounds_parts(self) -> tuple[ScannedInterval, ...]:
        """Return the parts that draw the bounds of each target; none with public bounds."""
        positions = range(len(self.targets)) if self.draws_bounds else ()
        return tuple(ScannedInterval(f"bounds {position}", self.bounds_noise) for position in positions)

    @cached_property
    def part(self) -> GroupedNoise | KeyedNoise | CubeVector:
        """Return the part that draws."""
        return self._chosen()

    def _chosen(self) -> GroupedNoise | KeyedNoise | CubeVector:
        """Return the part of the requested law with the smallest errors.

        With 'auto' a law that cannot be drawn is left out, as long as another law can be drawn.
        """
        laws = (LAPLACE, GAUSSIAN) if self.law == AUTO and self.delta is not None else (self.law,)
        parts: list[GroupedNoise | KeyedNoise] = []
        refused = []
        for law in (LAPLACE if law == AUTO else law for law in laws):
            try:
                parts += self._parts(law)
            except ParameterError as error:
                refused.append(error)
        if not parts:
            raise refused[0]
        return min([part for part in parts if _is_drawable(part)] or parts, key=self._log_errors)

    def _parts(self, law: str) -> Sequence[GroupedNoise | KeyedNoise]:
        """Return the parts with noise of one law, for the best blocks of all targets, or for each block of one target.

        Targets have equal shares of the loss, so the best block of one target is best next to others. Only if the keys
        are private, and a block can count the units of a key, do the blocks of one target need different shares.
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
        """Return the block of several targets with one count, if every row counts in each of them."""
        if self.nulls is None or self.lower is None or self.upper is None or len(self.targets) < 2:
            return None
        pairs = bounds_by_feature(self.lower, self.upper, self.targets, fold_case=True)
        return shared_count(pairs, law, self.contribution)

    def _blocks(self, law: str) -> list[tuple[Block, ...]]:
        """Return the possible blocks of each target, or of all rows."""
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
        """Return the logarithms of the errors of the requested aggregates, rounded so that ties go to the first."""
        count = len(self.targets) or 1
        lattices = _grouped(part).lattices
        return round(log_errors(part.blocks[-count:], lattices[-count:], self.aggregates), 9)

    @property
    def target_laws(self) -> list[tuple[Block, Lattice]]:
        """Return the block of each target, or of all rows, and the law of its noise."""
        return self._laws_of(self.part)

    def noise_of_sum(self, target: int) -> tuple[float, int]:
        """Return half the width of the interval of a target's sum, or of its squares, and the power of the values.

        The unit is the width of the bounds, or its square, over many rows, by public arguments alone.
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
        """Return the requested aggregates of a target."""
        return self.aggregates

    def _laws_of(self, part: GroupedNoise | KeyedNoise | CubeVector) -> list[tuple[Block, Lattice]]:
        noise = _grouped(part)
        pairs = zip(noise.blocks, noise.lattices, strict=True)
        return [(target, law) for block, law in pairs for target in block.targets][-(len(self.targets) or 1) :]

    @property
    def _drawn_blocks(self) -> tuple[Block, ...]:
        """Return the drawn blocks: of the targets, or of all rows."""
        return self.part.blocks[-(len(self.targets) or 1) :]

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Return the statistic: a block for each target, or one block for all rows."""
        return tuple(block for drawn_block in self._drawn_blocks for block in drawn_block.targets)

    def counted(self, rows: Sums, *targets: Sums) -> list[Sums]:
        """Return the sums of each target over the rows that count in it, or the sums of all rows without targets."""
        if not targets:
            return [rows]
        return list(targets) if self.nulls is None else [replace(target, n=rows.n) for target in targets]

    def block_sums(self, rows: Sums, *targets: Sums) -> list[Sums]:
        """Return the sums for the draw of the blocks."""
        if isinstance(self._drawn_blocks[0], SharedCount):
            return [replace(rows, s1=np.stack([target.s1 for target in targets]))]
        return self.counted(rows, *targets)

    @cached_property
    def target_blocks(self) -> Sequence[ValueBlock | None]:
        """Return the codes of the values of each target; None for targets that are only counted."""
        blocks = self.blocks[: len(self.targets)]
        return [block if isinstance(block, ValueBlock) else None for block in blocks]

    @property
    def counts_units(self) -> bool:
        """Return whether units are counted in addition to rows, because their number decides the released keys."""
        return isinstance(self.part, KeyedNoise) and isinstance(self.part.blocks[0], UnitCount)

    @cached_property
    def measurement(self) -> Measurement:
        """Return the measurement: private bounds of each target, one mechanism for all numbers, and dropped rows."""
        return measurement_of(*self.bounds_parts, self.part, *self.left_out_parts)

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of all Laplace noise."""
        parts = (_grouped(self.part), *self.left_out_parts)
        return [*self.bounds_scales, *(scale for part in parts for scale in part.laplace_scales())]

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return mu of one row in each block."""
        return _grouped(self.part).gaussian_parts()

    def keys_noise(self) -> list[Quantity]:
        """Return what a private key needs to be released; nothing with public keys."""
        if not isinstance(self.part, KeyedNoise):
            return []
        counted = "persons" if self.layout.privacy_unit is not None else "rows"
        least, needed = self.part.least_count, f"{counted} that a key needs to be released in half of calls"
        enough = f"epsilon from which half as many {counted} are about enough"
        of_all: list[Quantity] = []
        if self.part.weighs_units and self.contribution.groups > 1:
            most = self.contribution.groups
            of_all = [("least_count", least * math.sqrt(most), f"{needed}, if each of them has {most} keys")]
            needed += ", if each of them has one key"
        return [("least_count", least, needed), *of_all, ("epsilon_needed", self.part.epsilon_needed, enough)]

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the noise of the call: the errors of each aggregate of a group, and the least count of a key."""
        rows = 1000 if n_rows is None else n_rows
        out = self.keys_noise()
        within = ""
        if self.draws_bounds:
            out.append(self.bounds_needed)
            within = ", in half widths of the bounds that are drawn"
        lattices = _grouped(self.part).lattices[-len(self._drawn_blocks) :]
        pairs = zip(self._drawn_blocks, lattices, strict=True)
        for block, lattice in dict.fromkeys((block, lattice) for vector, lattice in pairs for block in vector.targets):
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
    """Return whether the noise is within the samplers' range."""
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
        replace(TARGETS, default_text="", doc="Count the values of this column, or of several, in place of rows."),
        DISTINCT, EPSILON, DELTA, *GROUPS, *UNIT, LEFT_OUT_SHARE, NOISE, CONFIDENCE, *BUDGET,
    )  # fmt: skip


def _thin(aggregate: str, *, sizes: Iterable[Argument] = (), more: Iterable[Argument] = ()) -> type[AggregatePlan]:
    """Return the plan of the form with one aggregate; `sizes` and `more` are arguments of this form alone."""
    signature = Signature(
        TARGETS, EPSILON, DELTA, *BOUNDS, BOUNDS_SHARE,
        *GROUPS, *UNIT, LEFT_OUT_SHARE, UNIT_VALUE, *sizes, NOISE, *more, CONFIDENCE, *BUDGET,
    )  # fmt: skip
    function = f"dp_{aggregate}"
    own = {"function": function, "computes": (aggregate,), "arguments": signature}
    return type(f"{aggregate.capitalize()}Plan", (AggregatePlan,), {"__doc__": f"The plan of {function}.", **own})


# Every form, with its purpose in one sentence.
FORMS: tuple[tuple[type[AggregatePlan], str], ...] = (
    (CountPlan, "Count rows, values or distinct units privately, in groups."),
    (_thin("sum", sizes=[GROUP_SIZES]), "Add up a column privately, in groups."),
    (_thin("avg", sizes=[NULLS, GROUP_SIZES], more=[SAMPLING]), "Average a column privately, in groups."),
    (_thin("variance", more=[DDOF]), "Estimate the variance of a column privately, in groups."),
    (_thin("stddev", more=[DDOF]), "Estimate the standard deviation of a column privately, in groups."),
    (AggregatePlan, "Release several aggregates of several columns as one, in groups."),
)


@dataclass(frozen=True)
class AggregateCall(DrawnBoundsCall):
    """A call of dp_aggregate or of one of its thin forms, with the column types of its source.

    Attributes
    ----------
    private_bounds : tuple of (PrivateInterval or None)
        The private bounds of each target after their draw; None for a target without private bounds.
    """

    plan: AggregatePlan
    private_bounds: tuple[PrivateInterval | None, ...] = ()

    @property
    def remark(self) -> str:
        """Return the number of rows or units from which a private key is shown in half of calls."""
        if not isinstance(self.plan.part, KeyedNoise):
            return ""
        part, least = self.plan.part, math.ceil(self.plan.part.least_count)
        counted = "units" if self.plan.counts_units or self.plan.merges_units else "rows"
        remark = f"keys are shown that about {least} {counted} have, or more"
        if part.weighs_units and part.contribution.groups > 1:
            most = part.contribution.groups
            return f"{remark}, each with one key, or about {math.ceil(least * math.sqrt(most))} with {most} keys each"
        return remark

    def check(self) -> None:
        """Raise if the keys do not fit the types, or if the noise cannot be drawn."""
        self.plan.check_drawable(1)
        if not self.plan.has_private_keys:
            _ = self.places

    @cached_property
    def needs_squares(self) -> bool:
        """Return whether a target needs the sum of squares."""
        return any(block is not None and block.needs_squares for block in self.plan.target_blocks)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Return the blocks of the targets, within drawn bounds if any; a column without bounds has no values."""
        blocks = self.plan.blocks
        if not self.private_bounds:
            return blocks
        return tuple(
            block if interval is None else within(block, self._clipped_to(target, interval))
            for target, (block, interval) in enumerate(zip(blocks, self.private_bounds, strict=True))
        )

    def _clipped_to(self, target: int, interval: PrivateInterval) -> tuple[float, float] | None:
        """Return the ends to which a target's values are clipped.

        The number of groups that share the rows is public. With private keys it is not, and the ends are the drawn
        ends.
        """
        if self.plan.has_private_keys:
            return interval.ends
        noise, power = self.plan.noise_of_sum(target)
        # Of each unit one row may have been counted, between all of its rows and one of the most that count.
        times = math.sqrt(self.plan.contribution.rows) if interval.by_unit else 1.0
        return interval.widened(noise, times / max(1, self.places.count), power)

    @property
    def target_blocks(self) -> list[ValueBlock | None]:
        """Return the codes of the values of each target; None for targets that are only counted."""
        return [block if isinstance(block, ValueBlock) else None for block in self.blocks[: len(self.plan.targets)]]

    @property
    def drawn_codes(self) -> list[ValueCode]:
        """Return the codes of the values of each target within private bounds, after their draw."""
        if not self.private_bounds and (self.plan.has_private_keys or self.places.count):
            raise TypeError("no bounds were drawn")  # without groups DuckDB may read no row, and none counts
        return [
            NO_CODE if block is None else ValueCode(block.lower, block.upper, *block.affine, *block.limits)
            for block in self.target_blocks
        ]

    def start(self) -> Collector:
        """Return the collector of the first pass."""
        return self._sums() if not self.plan.draws_bounds else TargetMagnitudes(len(self.plan.targets))

    def _sums(self) -> Collector:
        """Return the collector of the groups' sums."""
        if self.plan.has_private_keys:
            targets = len(self.plan.targets)
            return NumberedSums(targets) if self.plan.engine is None else NamedSums(targets, len(self.plan.by))
        extra_groups = UNITS if self.plan.measures_left_out else 0
        return GroupedSums(self.places.count + extra_groups, len(self.plan.targets), squares=self.needs_squares)

    def collect(self, collector: Collector, rows: pa.StructArray, batch: Batch) -> None:
        """Pass the sums of some groups to the collector, or their labels; in the aggregate form a batch of rows.

        The pass that finds bounds accepts rows in either form.
        """
        if isinstance(collector, TargetMagnitudes):
            collector.take(rows, batch)
            return
        if isinstance(collector, Labels):
            collector.add_labels(rows, len(self.plan.by))
            return
        if isinstance(collector, NamedSums):
            collector.add_groups(rows)
            return
        if isinstance(collector, NumberedSums):
            numbers = to_numbers(rows.field("j"))
            collector.add_groups(numbers, GroupRecords.read(rows, len(self.plan.targets)))
            return
        if not isinstance(collector, GroupedSums):
            raise TypeError("the collector is of another call")
        if not self.plan.source:
            collector.add(np.zeros(len(rows)), self._codes(rows), batch)
            return
        columns = [to_numbers(rows.field(f"p{column}")) for column in range(len(self.plan.by))]
        groups = self.places.of(columns, len(rows))
        if self.plan.measures_left_out:
            record = to_numbers(rows.field(RECORD))
            groups = np.where(record == GROUP, groups, self.places.count - 1 + record)
        collector.add_groups(groups, GroupRecords.read(rows, len(self.plan.targets)))

    def _codes(self, rows: pa.StructArray) -> NDArray[np.float64]:
        """Return the codes of a batch of rows, shape (targets, rows); NaN for NULL."""
        codes = np.zeros((len(self.plan.targets), len(rows)))
        for position, block in enumerate(self.target_blocks):
            column = rows.field(position)
            if block is None:
                codes[position, column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)] = np.nan
                continue
            values = to_doubles(column)
            missing = np.isnan(values)
            codes[position] = quantise(np.clip(values, block.lower, block.upper), *block.affine)
            codes[position, missing] = np.nan
        return codes

    def after(self, collector: Collector) -> AggregateCall:
        """Draw the bounds at the end of the pass that finds them; return the call with these bounds.

        Notes
        -----
        - **Guarantee**: pure DP at ``plan.bounds_epsilon``, an equal part of it for each target, see
          `dpsql.mechanisms.interval_scan`.
        - **Sensitivity**: the same; the rows of a privacy unit are at most ``contribution.rows``.
        """
        if not isinstance(collector, TargetMagnitudes):
            return self
        return replace(self, private_bounds=drawn_of(self.plan.bounds_parts, collector))

    def turn(self, collector: Collector, progress: Progress) -> Collector:
        """Begin the sums; then draw the noise of private keys, and begin the labels of released keys."""
        if isinstance(collector, TargetMagnitudes):
            return self._sums()
        if not isinstance(collector, KeyedSums) or not isinstance(self.plan.part, KeyedNoise):
            raise TypeError("the collector is of another call")
        units, rows, *targets = collector.sums()
        sums = self.plan.block_sums(rows, *targets)
        positions, noisy = self.plan.part.draw([units, *sums] if self.plan.counts_units else sums)
        keys = collector.keys(positions) if isinstance(collector, NamedSums) else None
        return ReleasedKeys(positions.astype(np.int64) + 1, noisy[1:] if self.plan.counts_units else noisy, keys)

    def prepare(self, statistic: GroupedSums | ReleasedKeys, progress: Progress) -> Callable[[], Json]:
        """Return the draw of all groups; with private keys, the drawn numbers."""
        plan = self.plan
        if isinstance(statistic, ReleasedKeys):
            order, labels = statistic.in_order(len(plan.by))
            record = self._record([noisy.take(order) for noisy in statistic.noisy], labels)
            return lambda: record
        index = self.places
        sums = statistic.sums()
        groups = np.arange(index.count)
        beside = [total.take(groups) for total in plan.block_sums(*sums)]
        fallen = self._fallen(sums)

        def draw() -> Json:
            blocks = draw_aggregates(plan, beside)
            return self._record(blocks, index.labels) | self._left_out(fallen)

        return draw

    def _record(self, noisy: Sequence[NoisyBlock], labels: Sequence[Sequence[str | None]]) -> dict[str, Json]:
        """Return the record for the ledger: noise does not depend on bounds, but the results do."""
        blocks = [replace(noisy_block, block=block) for noisy_block, block in zip(noisy, self.blocks, strict=True)]
        return record_of(blocks, self.plan, labels, self.types, self.private_bounds)

    def _fallen(self, sums: Sequence[Sums]) -> list[Sums]:
        """Return the exact sums of dropped rows: of units, then of each target, or of all rows."""
        if not self.plan.measures_left_out:
            return []
        count = self.places.count
        rows, units = np.array([count]), np.array([count + 1])
        return [sums[0].take(units), *(total.take(rows) for total in self.plan.counted(*sums))]

    def _left_out(self, fallen: Sequence[Sums]) -> dict[str, Json]:
        """Draw the sums of dropped rows; return their record for the ledger, a `dpsql.released.aggregates.LeftOut`."""
        names = (None, *(self.plan.targets or (None,)))
        for part in self.plan.left_out_parts:
            noisy = part.draw(fallen)
            blocks = (noisy[0].block, *left_out_blocks(self.blocks)[1:])
            noisy_blocks = [replace(noisy_block, block=block) for noisy_block, block in zip(noisy, blocks, strict=True)]
            stored: list[Json] = [
                stored_block(name, noisy_block) for name, noisy_block in zip(names, noisy_blocks, strict=True)
            ]
            return {"left_out": {"most": self.plan.contribution.rows, "blocks": stored}}
        return {}


def within(block: Block, ends: tuple[float, float] | None) -> Block:
    """Return the block of values within other bounds; within `UNIT_BOUNDS` if there are none."""
    if not isinstance(block, ValueBlock):
        return block
    lower, upper = ends or UNIT_BOUNDS
    return replace(block, lower=lower, upper=upper)


class ReleasedKeys(Labels):
    """The labels of released keys, and their noisy numbers."""

    def __init__(self, numbers: Longs, noisy: list[NoisyBlock], keys: pa.Table | None = None) -> None:
        super().__init__(numbers, keys)
        self.noisy = noisy


def draw_aggregates(plan: AggregatePlan, sums: Sequence[Sums]) -> list[NoisyBlock]:
    """Draw the noisy numbers of each target, in all groups with public keys; the drawing part has the guarantee."""
    if not isinstance(plan.part, (GroupedNoise, CubeVector)):
        raise InternalError("I032", "the keys of a call are private, and were drawn as public. Report it.")
    return [target for noisy in plan.part.draw(sums) for target in noisy.targets]
