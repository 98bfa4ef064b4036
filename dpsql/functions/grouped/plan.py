"""The plan and the call of functions with groups: keys, contribution bounds, and the sums of every group.

Rows are bounded in this order, and each step looks at one privacy unit alone: rows without an id are dropped; keys are
mapped to groups, and rows of unlisted keys are dropped (or are the group `other`); at most g groups of a unit count, at
most r of its rows in each, and at most m rows in all (`dpsql.contract.relation`). The remaining rows are a keyed
sample, which does not depend on other units. If m implies a limit on groups, or on rows of a group, only m applies. The
result has every group with a public key, with noise, also if the group is empty.

The module also defines the arguments of these functions: grouping columns, keys, and the contribution limit of one
unit.

**Private bounds.** In functions of one call, the first pass draws one interval for each column without public bounds.
In a plain SQL query, one part draws the intervals for all other parts of its core (`dpsql.functions.query_bounds`).
Rows of all groups count together, and each privacy unit counts as many rows as its limits allow.

The released bounds are public in the next pass, which clips every row to them. The costs add up: the bounds cost
`bounds_share` of epsilon, and the later draws cost the rest. The exact ends of the data would not be private.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from typing import ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract import parameters
from dpsql.contract.arguments import (
    MAX_ROWS_PER_UNIT,
    NEIGHBOUR_RELATION,
    OPTIONAL_DELTA,
    PRIVACY_UNIT,
    Argument,
    integer,
    share,
    word,
)
from dpsql.contract.call import Call, TargetCode, check_condition, check_ids, refuse_lossless, require
from dpsql.contract.fold import Batch, RowTransform
from dpsql.contract.keys import Lists, PublicKeys, read_keys, values_of
from dpsql.contract.layout import Layout
from dpsql.contract.parameters import fold, narrow, show
from dpsql.contract.plan import COLLECTED, GROUPED, Pass, Plan, Quantity
from dpsql.contract.relation import Contribution
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError, SourceError
from dpsql.functions.value_cells import DerivedKey
from dpsql.kernels.columns import is_boolean, is_numeric, to_doubles
from dpsql.kernels.identity import has_identity
from dpsql.mechanisms.interval_scan import IntervalNoise, PrivateInterval, ScannedInterval
from dpsql.rendering import identifier
from dpsql.statistics.aggregates import ValueBlock
from dpsql.statistics.counts import MagnitudeHistogram


def _confidence(confidence: object) -> Fraction:
    number = parameters.open_unit_interval("confidence", confidence, hint="0.95 is usual.")
    parameters.within("confidence", number, Fraction(1, 100), 1 - Fraction(1, 10**6), hint="0.95 is usual.")
    return number


def _ddof(ddof: object) -> int:
    number = parameters.number_from_zero("ddof", ddof, hint="1 is usual.")
    parameters.within("ddof", number, 0, 1, hint="1 is usual.")
    return int(number)


BY = Argument(
    "by",
    "Names of the columns to group by: one name, or a list. All groups are one release.",
    names_column=True,
    table_only=True,
)
KEYS = Argument(
    "keys",
    "The groups, from public knowledge: a list of values, a struct of lists by column (all combinations), or a list "
    "of structs. BOOLEAN columns need none, nor ENUMs with declared labels. 'private' releases keys that many units "
    "have, and needs delta.",
    default_text="stated by the owner, or by the column's type",
    table_only=True,
    kind="Keys",
)
OTHER = Argument(
    "other",
    "Whether rows of all other keys form one group more, in which the column other is true.",
    False,
    check=partial(parameters.boolean, "other"),
    table_only=True,
)
MAX_GROUPS_PER_UNIT = integer(
    "max_groups_per_unit",
    "Groups in which one person may have rows. A random choice of them counts.",
    hint="Give the groups in which one privacy unit may have rows.",
    default_text="max_rows_per_unit",
    table_only=True,
)
MAX_ROWS_PER_UNIT_GROUP = integer(
    "max_rows_per_unit_group",
    "Rows that one person may contribute to a group. A random choice of them counts.",
    hint="Give the rows that one privacy unit may contribute to a group.",
    default_text="max_rows_per_unit",
    table_only=True,
)
UNIT_VALUE = Argument(
    "unit_value",
    "What a person contributes to a group: its 'rows', or the 'sum' of its values as one row, whose bounds are lower "
    "and upper.",
    "rows",
    check=partial(parameters.choice, "unit_value", options=("rows", "sum")),
    choices=("rows", "sum"),
    table_only=True,
)
AUTO = "auto"
NOISE = word("noise", "The law of the noise; 'auto' takes what is smaller.", (AUTO, "laplace", "gaussian"), AUTO)
CONFIDENCE = Argument(
    "confidence",
    "Chance, from 0.01 to 0.999999, that an interval holds the exact answer over the rows that count, each by itself.",
    0.95,
    check=_confidence,
    exact=True,
)
DDOF = Argument(
    "ddof", "What variances subtract from the number of rows: 1 as var_samp does, or 0 as var_pop does.", 1, check=_ddof
)
COUNT_DELTA = replace(
    OPTIONAL_DELTA,
    doc="Chance that the guarantee fails, from 1e-300 to 0.1. Without it pure DP; with it noise may be Gaussian.",
)
GROUP_LIMITS = (MAX_GROUPS_PER_UNIT, MAX_ROWS_PER_UNIT_GROUP)
GROUPS = (BY, KEYS, OTHER)
UNIT = (NEIGHBOUR_RELATION, PRIVACY_UNIT, MAX_ROWS_PER_UNIT, *GROUP_LIMITS)


def refuse_without_by(values: Mapping[str, object], arguments: Iterable[Argument]) -> None:
    """Raise if an argument about groups is given without groups."""
    for argument in arguments:
        value = values.get(argument.name)
        if value is not None and value is not argument.default:
            raise ParameterError("P046", f"{argument.name} needs by. Name the columns to group by, or leave it out.")


def read_noise(arguments: Mapping[str, object], delta: Argument) -> dict[str, object]:
    """Return the checked delta, the requested noise, and the confidence of intervals."""
    law, chance = NOISE.read(arguments), delta.read(arguments)
    if law == "gaussian" and chance is None:
        raise ParameterError("P046", "noise := 'gaussian' needs delta. Give delta, or leave noise out.")
    return {"delta": chance, "law": law, "confidence": CONFIDENCE.read(arguments)}


# SQL types with one text for each value, in any session settings.
_KEY_TYPES = (
    *("VARCHAR", "BOOLEAN", "DATE", "TIME", "UUID", "BLOB", "FLOAT", "DOUBLE", "INTEGER", "UINTEGER"),
    *("TINYINT", "UTINYINT", "SMALLINT", "USMALLINT", "BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT"),
    *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"),
)
_SPELLED_OUT = ("ENUM(", "DECIMAL(")
# A literal of this type depends on the session's time zone, so keys of it come from a table.
_ZONED_KEY = "TIMESTAMP WITH TIME ZONE"
_MOST_COLUMNS = 100
OTHER_KEY = "other"


@dataclass(frozen=True, kw_only=True)
class GroupedPlan(Plan):
    """The plan of a function with groups."""

    by: tuple[str, ...]  # empty for one group of all rows
    keys: Lists | None  # public keys by column, see `PublicKeys`; None if the keys are private
    key_rows: tuple[tuple[int, ...], ...] | None  # the combinations of keys that are groups; None for all
    keys_table: str | None  # the public table that lists the keys
    other: bool
    groups: int  # of one privacy unit
    rows_per_group: int  # of one privacy unit
    targets: tuple[str, ...]

    target_needs_bounds: ClassVar[bool] = False
    # Whether keys may be drawn from the rows.
    takes_private_keys: ClassVar[bool] = True
    # Whether there are several groups without `by`, because a derived key divides the rows.
    divides_rows: ClassVar[bool] = False
    # Columns of the result in addition to the keys.
    result_columns: ClassVar[tuple[str, ...]] = ("target", "aggregate", "value", "std_error", "lower", "upper")

    @classmethod
    def _layout(cls, arguments: Mapping[str, object]) -> Layout:
        unit = arguments.get("privacy_unit")
        if unit is not None:
            unit = parameters.text("privacy_unit", unit, hint="Give the name of the id's column.")
        return Layout("wide", "", (), None, None, None, None, unit)

    @classmethod
    def _fill(cls, arguments: dict[str, object], protection: dict[str, object], *, of_table: bool) -> None:
        """Fill in the owner's declared values: public keys for columns of `by` too."""
        keys = parameters.narrow(dict, protection.pop("keys", {}))
        by = _names("by", arguments.get("by"))
        lists = {name: keys[fold(name)] for name in by if fold(name) in keys}
        if lists and arguments.get("keys") is None:
            arguments["keys"] = lists
        arguments["by"] = by
        for bound in ("lower", "upper"):
            if _is_of_others(protection.get(bound), arguments.get("target")):
                del protection[bound]
        super()._fill(arguments, protection, of_table=of_table)
        public = read_keys(arguments["keys"], by) if by and arguments.get("keys") is not None else None
        arguments["keys"] = arguments.get("keys") if public is None else public

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        by = parameters.narrow(tuple, arguments["by"])
        keys = None
        if by:
            keys = read_keys(arguments.get("keys"), by)
            if keys is None and not cls.takes_private_keys:
                raise ParameterError(
                    "P066", f"{cls.function} takes public keys. Give keys := [...] from public knowledge."
                )
        else:
            refuse_without_by(arguments, (KEYS, *(() if cls.divides_rows else GROUP_LIMITS)))
            keys = PublicKeys(())
        other = bool(OTHER.read(arguments)) if "other" in cls.arguments else False
        if other and (keys is None or not by):
            raise ParameterError(
                "P045", "other is the group of unlisted keys. Give by and public keys, or leave it out."
            )
        for name in by:
            if fold(name) in (*cls.result_columns, *([OTHER_KEY] if other else [])):
                raise ParameterError(
                    "P044", f"by names {show(name)}, as another column of the result is called. Rename it in a view."
                )
        bounded = cls._contribution(arguments, layout, keys, other=other)
        return {
            "by": by,
            "keys": None if keys is None else keys.lists,
            "key_rows": None if keys is None else keys.rows,
            "keys_table": None if keys is None else keys.table,
            "other": other,
            "groups": bounded.groups,
            "rows_per_group": bounded.rows_per_group,
            "targets": _names("target", arguments.get("target")),
        }

    @classmethod
    def _contribution(
        cls, arguments: Mapping[str, object], layout: Layout, keys: PublicKeys | None, *, other: bool
    ) -> Contribution:
        """Return the contribution limit of one privacy unit, from the arguments."""
        limits = [
            arguments.get(name) for name in ("max_rows_per_unit", "max_groups_per_unit", "max_rows_per_unit_group")
        ]
        if layout.privacy_unit is None:
            if any(limit is not None for limit in limits):
                raise ParameterError(
                    "P009", "limits per unit need privacy_unit. Give the column of the id, or leave the limits out."
                )
            return Contribution("add_remove")
        rows, groups, group_rows = limits
        if rows is None and groups is None and group_rows is None:
            raise ParameterError(
                "P009",
                "privacy_unit needs a limit: max_rows_per_unit, or max_groups_per_unit with max_rows_per_unit_group. "
                "Write max_rows_per_unit := 10.",
            )
        count = cls._group_count(arguments, keys, other=other)
        return Contribution.of("add_remove", rows, groups, group_rows, key_count=count)

    @classmethod
    def _group_count(cls, arguments: Mapping[str, object], keys: PublicKeys | None, *, other: bool) -> int | None:
        """Return the most groups of a privacy unit; None if the number depends on the types."""
        return None if keys is None or keys.count is None else keys.count + other

    @classmethod
    def _rows_per_unit(cls, arguments: Mapping[str, object], layout: Layout) -> int:
        """Return the most rows of one privacy unit, in all groups together."""
        by = parameters.narrow(tuple, arguments["by"])
        keys = read_keys(arguments.get("keys"), by) if by else PublicKeys(())
        return cls._contribution(arguments, layout, keys, other=arguments.get("other") is True).rows

    def lacks_keys(self, kinds: Mapping[str, str]) -> bool:
        """Return whether a column of `by` has neither keys nor a type that lists them, of known SQL types.

        Private keys may take the place of all keys.
        """
        if not self.takes_private_keys or self.keys is None or self.keys_table is not None or self.other:
            return False
        lacking = [fold(name) for name, keys in zip(self.by, self.keys, strict=True) if keys is None]
        return any(name in kinds and values_of(kinds[name]) is None for name in lacking)

    @property
    def target_blocks(self) -> Sequence[ValueBlock | None]:
        """Return the codes of the values of each target; None for targets that are only counted."""
        return [None] * len(self.targets)

    @property
    def value_parts(self) -> tuple[str, ...]:
        """Return the parts of a row that hold its values, by their names in `row_columns`."""
        return tuple(f"t{number}" for number in range(len(self.targets)))

    def is_drawn(self, position: int) -> bool:
        """Return whether the bounds of a target are drawn before its values are coded."""
        return False

    @property
    def counts_items(self) -> bool:
        """Return whether distinct items are counted, in place of rows."""
        return False

    @property
    def counts_units(self) -> bool:
        """Return whether units of each group are counted next to its rows."""
        return False

    @property
    def weighs_units(self) -> bool:
        """Return whether a unit in k groups adds ``1 / sqrt(k)`` to each of them, in place of its rows."""
        return False

    @property
    def merges_units(self) -> bool:
        """Return whether the rows of one unit in one group are one row, with the sum of their values."""
        return False

    @property
    def measures_left_out(self) -> bool:
        """Return whether the release measures the rows beyond row limits."""
        return False

    @property
    def derived(self) -> DerivedKey | None:
        """Return a further key from the column v0 of the row, or None."""
        return None

    @property
    def group_count(self) -> int | None:
        """Return the most groups of a privacy unit; None if keys are private, or a type lists them."""
        keys, derived = self.public_keys, self.derived
        if keys is None or keys.count is None:
            return None
        return (keys.count + self.other) * (derived.count if derived is not None and derived.divides else 1)

    @property
    def contribution(self) -> Contribution:
        """Return the contribution limit of one privacy unit, with the neighbouring relation."""
        return Contribution(
            self.neighbours, self.max_rows_per_unit, self.groups, self.rows_per_group, keys=self.group_count
        )

    @property
    def has_private_keys(self) -> bool:
        """Return whether the keys are drawn from the rows."""
        return self.keys is None

    @property
    def public_keys(self) -> PublicKeys | None:
        """Return the public keys; None if the keys are private."""
        return None if self.keys is None else PublicKeys(self.keys, self.key_rows, self.keys_table)

    @property
    def lists_combinations(self) -> bool:
        """Return whether only some combinations of keys are groups."""
        return self.key_rows is not None or (self.keys_table is not None and len(self.by) > 1)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Return the names of the result columns that identify a row's group."""
        return (*self.by, OTHER_KEY) if self.other else self.by

    @property
    def row_columns(self) -> Mapping[str, str] | None:
        """Return keys k0, k1, …, and targets t0, t1, ….

        A column may have several parts.
        """
        keys = {f"k{number}": name for number, name in enumerate(self.by)}
        return keys | {f"t{number}": name for number, name in enumerate(self.targets)}

    def _passes(self) -> tuple[Pass, ...]:
        """Return one pass that adds up, in SQL if there is a table to scan; another pass makes labels of private keys.

        An engine may have one item in several parts of the rows, so counts of items do not add up.
        """
        hint = "Leave distinct_of out." if self.counts_items else ""
        scan = Pass(GROUPED if self.source else COLLECTED, keeps_rows=hint)
        return (scan, replace(scan, reads_rows=False)) if self.has_private_keys else (scan,)


def _names(argument: str, value: object) -> tuple[str, ...]:
    """Return one or more names of columns; none without a value."""
    if value is None:
        return ()
    hint = "Give the name of a column, or a list of names."
    names = parameters.text_list(argument, [value] if isinstance(value, str) else value, hint=hint)
    parameters.within(f"the number of columns in {argument}", len(names), None, _MOST_COLUMNS, hint=hint)
    parameters.refuse_duplicates(argument, names, fold_case=True)
    return names


def _is_of_others(bound: object, target: object) -> bool:
    """Return whether a declared bound is about other columns: it lists or names them."""
    if not isinstance(bound, Mapping):
        return isinstance(bound, (list, tuple))
    return not {fold(str(name)) for name in bound} & {fold(name) for name in _names("target", target)}


class Places:
    """The positions of groups with public keys, in the order of the keys; the group of other keys is the last.

    Parameters
    ----------
    keys : PublicKeys
        Keys with a list for every column.
    other : bool

    Attributes
    ----------
    count : int
        Number of groups.
    labels : list of (list of str or None)
        The key of every group, a list per column of the result.
    """

    def __init__(self, keys: PublicKeys, *, other: bool) -> None:
        sizes = [len(values or ()) for values in keys.lists]
        self._radix = [math.prod(sizes[column + 1 :]) for column in range(len(sizes))]
        if keys.rows is None:
            positions = np.indices(sizes, dtype=np.int64).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), int)
        else:
            positions = np.array(keys.rows, dtype=np.int64).reshape(-1, len(sizes)).T
        codes = self._code(positions, positions.shape[1])
        self._all = keys.rows is None
        self._order = np.argsort(codes, kind="stable")
        self._codes = codes[self._order]
        self.count = len(codes) + other
        self.labels: list[Sequence[str | None]] = []
        for values, position in zip(keys.lists, positions, strict=True):
            listed = np.array([*(values or ()), None], dtype=object)
            self.labels.append([*listed[position].tolist(), *([None] if other else [])])
        if other:
            self.labels.append([*["false"] * len(codes), "true"])

    def _code(self, positions: Sequence[NDArray[np.int64]] | NDArray[np.int64], count: int) -> NDArray[np.int64]:
        code = np.zeros(count, dtype=np.int64)
        for column, radix in zip(positions, self._radix, strict=True):
            code += column * radix
        return code

    def of(self, positions: Sequence[NDArray[np.int64]], count: int) -> NDArray[np.intp]:
        """Return the groups for the positions of keys in the lists, by column; all -1 means other keys."""
        if not positions:
            return np.zeros(count, dtype=np.intp)
        groups = self._code(positions, count)
        if not self._all:
            groups = self._order[np.minimum(np.searchsorted(self._codes, groups), len(self._codes) - 1)]
        return np.where(positions[0] < 0, self.count - 1, groups)


@dataclass(frozen=True)
class GroupedCall(Call):
    """A call with groups, with the column types of its source.

    Attributes
    ----------
    types : tuple of str
        SQL type of each column of `by`.
    listed : PublicKeys or None
        The keys of a public table, after they were read.
    """

    plan: GroupedPlan
    types: tuple[str, ...] = ()
    listed: PublicKeys | None = None

    @cached_property
    def keys(self) -> PublicKeys:
        """Return the public keys, a list for every column; a table's keys are missing before their read."""
        if self.plan.keys_table is not None:
            return self.listed or PublicKeys(((),) * len(self.plan.by))
        if self.plan.public_keys is None:
            raise InternalError("I032", "a call with private keys was asked for public ones. Report it.")
        return self.plan.public_keys.with_types(self.types, self.plan.by)

    @cached_property
    def places(self) -> Places:
        """Return the positions of the groups."""
        return Places(self.keys, other=self.plan.other)

    @classmethod
    def resolve(cls, plan: Plan, row: pa.DataType, others: dict[str, pa.DataType], types: Sequence[str] = ()) -> Self:
        """Resolve a plan against the column types of its source; parameters and errors as for `Call.resolve`."""
        if not isinstance(plan, GroupedPlan):
            raise TypeError("the call is of another plan")
        kinds = {field.name: field.type for field in row} if pa.types.is_struct(row) else {}
        if not plan.source:
            refuse_lossless(row)
            kinds = {part: kinds[name] for part, name in (plan.row_columns or {}).items()}
        check_ids(plan, others)
        if "condition" in others:
            check_condition(others["condition"])
        columns = plan.row_columns or {}
        targets = [(f"t{number}", block is not None) for number, block in enumerate(plan.target_blocks)]
        for part, is_coded in (*targets, *([("v0", True)] if plan.derived is not None else [])):
            kind = require(kinds.get(part), "target", columns[part])
            if is_coded and not (is_numeric(kind) or is_boolean(kind)):
                name = columns[part]
                raise SourceError(
                    "S003",
                    f"target {show(name)} is neither numeric nor boolean. Count its values, FROM dp_count('...', by := "
                    f"{show(name)}, ...). If they are numbers: Cast it in a view, CREATE TEMP VIEW chosen AS SELECT * "
                    f"REPLACE (TRY_CAST({identifier(name)} AS DOUBLE) AS {identifier(name)}) FROM ...",
                )
        counted = columns.get("d0")
        if counted is not None and not has_identity(require(kinds.get("d0"), "distinct_of", counted)):
            raise SourceError(
                "S003",
                f"distinct_of {show(counted)} has a type whose values cannot be told apart. Cast it to text in a view.",
            )
        for number, (name, spelled) in enumerate(zip(plan.by, types, strict=True)):
            require(kinds.get(f"k{number}"), "by", name)
            listed = spelled == _ZONED_KEY and plan.keys_table is not None
            if spelled not in _KEY_TYPES and not spelled.startswith(_SPELLED_OUT) and not listed:
                raise SourceError(
                    "S003", f"by {show(name)} has a type that keys cannot have. Cast it to text in a view."
                )
        of_cells = () if plan.derived is None else (kinds["v0"],)
        call = cls(plan, (), TargetCode(), (), kinds=of_cells, types=tuple(types))
        call.check()
        return call


BOUNDS_SHARE = share(
    "bounds_share",
    "Share of epsilon spent on private bounds where none are given, between 0 and 1.",
    0.25,
    hint="0.25 is usual.",
)
# Stand-ins for private bounds: before they are drawn, and if the draw does not determine them.
UNIT_BOUNDS = -1.0, 1.0
# Chance that one of the two claims about a private interval is false.
BOUNDS_FAILURE = Fraction(1, 100)


def are_missing(arguments: Mapping[str, object]) -> bool:
    """Return whether both bounds are missing; one bound alone is a mistake."""
    return arguments["lower"] is None and arguments["upper"] is None


def read_share(arguments: Mapping[str, object]) -> Fraction:
    """Return the checked share of epsilon for private bounds, or its default."""
    return narrow(Fraction, BOUNDS_SHARE.read({BOUNDS_SHARE.name: BOUNDS_SHARE.default, **arguments}))


def bounds_noise(epsilon: Fraction, neighbours: str, max_rows_per_unit: int, *, tails: bool) -> IntervalNoise:
    """Return the noise of the bounds of one column; with tails if values are clipped to them."""
    return IntervalNoise(epsilon, neighbours, max_rows_per_unit, BOUNDS_FAILURE, tails)


class ValueCode(NamedTuple):
    """The coding of a column's values within private bounds, for a statement.

    Attributes
    ----------
    lower, upper : float
        Bounds that clip the values.
    middle, scale : float
        A value x becomes ``(x - middle) * scale``, rounded down or to nearest, as the statement says.
    low, high : int
        The least and the greatest code.
    """

    lower: float
    upper: float
    middle: float
    scale: float
    low: int
    high: int


# For a column that is only counted.
NO_CODE = ValueCode(0.0, 0.0, 0.0, 0.0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class DrawnBoundsPlan(GroupedPlan):
    """The plan of a function that draws the bounds of its columns if they are missing."""

    bounds_share: Fraction | None  # of all columns together; None if no bounds are drawn

    clips: ClassVar[bool] = False  # whether values are clipped to the bounds and added up

    @property
    def draws_bounds(self) -> bool:
        """Whether the bounds of the columns are private."""
        return self.bounds_share is not None

    def is_drawn(self, position: int) -> bool:
        """Return whether the bounds of a target are drawn before its values are coded."""
        return self.draws_bounds

    def _passes(self) -> tuple[Pass, ...]:
        """Return the passes of the statistic, after a pass for private bounds if needed."""
        following = super()._passes()
        return (following[0], *following) if self.draws_bounds else following

    @cached_property
    def bounds_epsilon(self) -> Fraction:
        """Epsilon spent on private bounds; 0 for public bounds."""
        return Fraction(0) if self.bounds_share is None else self.epsilon * self.bounds_share

    @cached_property
    def remaining_epsilon(self) -> Fraction:
        """Epsilon that remains for draws within the bounds."""
        return self.epsilon - self.bounds_epsilon

    @cached_property
    def bounds_noise(self) -> IntervalNoise:
        """The noise of the private bounds of one column: all rows of a unit within its limits count."""
        columns = len(self.targets) or 1
        return bounds_noise(self.bounds_epsilon / columns, self.neighbours, self.contribution.rows, tails=self.clips)

    @property
    def bounds_scales(self) -> Iterable[Fraction]:
        """The scales of the noise of private bounds; empty for public bounds."""
        return self.bounds_noise.scales if self.draws_bounds else ()

    @property
    def bounds_needed(self) -> Quantity:
        """Number of rows from which bounds of a column are found."""
        return (
            "bounds_rows_needed",
            float(self.bounds_noise.rows_needed),
            "rows with a value from which bounds are found, but for noise",
        )


class TargetMagnitudes(RowTransform[MagnitudeHistogram]):
    """The pass that finds bounds: it counts rows by the universal cells of each column."""

    def __init__(self, columns: int) -> None:
        super().__init__(MagnitudeHistogram(columns, target=False))
        self._columns = columns

    def take(self, rows: pa.StructArray, batch: Batch) -> None:
        """Add a batch of rows; each row has the values of all columns."""
        values = np.empty((self._columns, len(rows)))
        for position in range(self._columns):
            values[position] = to_doubles(rows.field(position))
        self.add(np.zeros(len(rows)), values, batch)


def drawn_of(parts: Sequence[ScannedInterval], magnitudes: TargetMagnitudes) -> tuple[PrivateInterval, ...]:
    """Draw the bounds of each column with its part in `parts`, after the pass that counts rows by magnitude."""
    counts = magnitudes.inner.cells.counts
    return tuple(part.draw(column) for part, column in zip(parts, counts, strict=True))


class DrawnBoundsCall(GroupedCall):
    """A call that codes values within private bounds if public bounds are missing."""

    @property
    @abstractmethod
    def drawn_codes(self) -> Sequence[ValueCode]:
        """The code of each column, after the bounds were drawn."""
