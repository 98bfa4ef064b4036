"""One running call: a plan, resolved against the source's column types, and the columns that it reads.

Columns come from the arguments and the column types. Columns that do not fit are refused.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.contract.fold import Batch, Collector
from dpsql.contract.json import Json
from dpsql.contract.layout import bounds_by_feature, refuse_extremes
from dpsql.contract.measurement import Draw
from dpsql.contract.names import did_you_mean
from dpsql.contract.parameters import Level, fold, is_shown, show
from dpsql.contract.periods import Dated
from dpsql.contract.plan import Plan
from dpsql.contract.query.condition import columns_of
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError, SourceError
from dpsql.kernels.columns import is_boolean, is_numeric, is_text, is_vector, to_doubles, to_texts
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, affine_map, affine_maps, quantise
from dpsql.kernels.identity import has_identity, is_name
from dpsql.kernels.xty import vectors_to_matrix
from dpsql.progress import Progress

# Most elements of a vector: DuckDB's limit for arrays.
MOST_ELEMENTS = 100_000
# Type in the probe of a column that the source does not have (statements.py).
MISSING = "dpsql_missing"
# Most left-out columns in a message.
_MOST_NAMED = 20

# Position and field of each column of a row, by its folded name.
Kinds = Mapping[str, tuple[int, pa.Field]]


@dataclass(frozen=True)
class FeatureColumns:
    """The location of a call's features.

    Attributes
    ----------
    names : tuple of str
        Public names of the features, in the order of the statistic.
    positions : tuple of int
        Positions of the features, or of their vector, in a row's struct.
    elements : tuple of int or None
        Positions of the features in the vector; None for the whole vector.
    left_out : str
        Columns that a call for every suitable column leaves out, and the reason. Otherwise empty.
    kinds : tuple of pyarrow types
        Type of each feature in the source; BOOLEAN for long rows without a value, where a feature is 0 or 1.
    """

    names: tuple[str, ...]
    positions: tuple[int, ...] = ()
    elements: tuple[int, ...] | None = None
    left_out: str = ""
    kinds: tuple[pa.DataType, ...] = ()


def features_of(plan: Plan, kinds: Kinds, others: Mapping[str, pa.DataType]) -> FeatureColumns:
    """Return the location of a plan's features in a source; parameters and errors as in `Call.resolve`."""
    layout = plan.layout
    if layout.kind == "long":
        kind = require(others["features"], "features", str(layout.features))
        if not is_name(kind):
            raise SourceError(
                "S003", f"features {show(layout.features)} holds no names. Cast the column to text in a view."
            )
        values = pa.bool_() if layout.value is None else others.get("value", pa.float64())
        return FeatureColumns(layout.names or (), kinds=(values,) * len(layout.names or ()))
    if layout.kind == "array":
        position, kind = column_of(kinds, "features", str(layout.features))
        names = _vector_names(str(layout.features), kind, layout.names, layout.n_features)
        of = tuple(field.type for field in kind) if pa.types.is_struct(kind) else (kind.value_type,) * len(names)
        if layout.chosen is None:
            return FeatureColumns(names, (position,), kinds=of)
        elements = _elements(layout.chosen, names)
        return FeatureColumns(layout.chosen, (position,), elements, kinds=tuple(of[element] for element in elements))
    wide, positions = _wide_columns(plan, kinds)
    left_out = _left_out(plan, kinds, set(positions)) if layout.features is None else ""
    fields = dict(kinds.values())
    return FeatureColumns(
        tuple(wide), tuple(positions), left_out=left_out, kinds=tuple(fields[index].type for index in positions)
    )


def check_ids(plan: Plan, others: Mapping[str, pa.DataType]) -> None:
    """Raise if an id column's type cannot identify a person, a value is not numeric, or a date is not a date."""
    layout = plan.layout
    for part in ("privacy_unit", "row_id", "value"):
        column = getattr(layout, part)
        if column is not None and part in others:
            kind = require(others[part], part, column)
            if part != "value" and not has_identity(kind):
                raise SourceError(
                    "S003", f"{part} {show(column)} has a type that identifies nobody. Cast it to text in a view."
                )
            if part == "value" and not (is_numeric(kind) or is_boolean(kind)):
                raise SourceError("S003", f"value {show(column)} is not numeric. Cast it in a view.")
    if plan.chosen_by_date is not None and "date" in others:
        _check_date(plan.chosen_by_date.dated, others["date"])


def _check_date(dated: Dated, column_type: pa.DataType) -> None:
    """Raise if the column that dates rows is not a date; reading text as dates would affect the period."""
    kind = require(column_type, "period_of", dated.column)
    if dated.zone is not None:
        fits = pa.types.is_timestamp(kind) and kind.tz is not None
        raises = f"no TIMESTAMP WITH TIME ZONE, as period_zone := {show(dated.zone)} says"
    else:
        fits = kind == pa.date32() or kind == pa.timestamp("us")
        raises = "neither a DATE nor a TIMESTAMP"
    if not fits:
        raise SourceError(
            "S046",
            f"{show(dated.column)}, whose {dated.period} counts, is {raises}. Cast it in the table, such as "
            f"TRY_CAST({dated.column} AS DATE); the owner states a column with a time zone with period_zone := 'UTC'.",
        )


def check_condition(struct: pa.DataType) -> None:
    """Raise if the condition names a column that the source lacks; the fields of the type are its columns."""
    for column in struct:
        require(column.type, "condition's", column.name)


def check_named(plan: Plan, columns: Sequence[str]) -> None:
    """Raise if a plan names a column that its source lacks."""
    layout, names = plan.layout, set(map(fold, columns))
    target = (("target", layout.target),) if layout.target else ()
    others = (("column", name) for name in (plan.row_columns or {}).values())
    dated = plan.chosen_by_date
    date = (("period_of", dated.dated.column),) if dated is not None else ()
    ids = (*date, *((part, getattr(layout, part)) for part in ("privacy_unit", "row_id", "value")))
    long = (("features", layout.features),) if layout.kind == "long" else ()
    read = () if plan.condition is None else columns_of(plan.condition)
    for part, name in (*target, *others, *long, *ids, *(("condition's", name) for name in read)):
        if isinstance(name, str) and fold(name) not in names:
            require(None, part, name, columns)


def refuse_lossless(row: pa.StructType) -> None:
    """Raise if a session setting makes DuckDB export booleans and HUGEINT in its own Arrow format."""
    for field in row:
        kind = getattr(field.type, "value_type", field.type)
        if getattr(kind, "extension_name", None) in ("arrow.bool8", "arrow.opaque"):
            raise SourceError(
                "S008", f"column {show(field.name)} has no plain Arrow type. Run SET arrow_lossless_conversion = false."
            )


def _is_missing(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind) and kind.num_fields == 1 and kind.field(0).name == MISSING)


# Texts that people write for a column: an aggregate, several columns, and a formula.
_AGGREGATE = re.compile(
    r"\s*(?:count|sum|avg|mean|min|max|median|stddev|std|var|variance)\(\s*(\w+|\*)\s*\)\s*", re.IGNORECASE
)
_LISTED = re.compile(r"\s*\w+(?:\s*,\s*\w+)+\s*")
_FORMULA = re.compile(r"\s*(\w+)\s*~\s*(\w+(?:\s*\+\s*\w+)*)\s*")


def require(kind: pa.DataType | None, part: str, column: str, names: Iterable[str] = ()) -> pa.DataType:
    """Return the column's type, or raise if the source has no such column; the message suggests known columns."""
    if kind is None or _is_missing(kind):
        otherwise = _column_to_write(column) if is_shown(column) else "Check the name."
        if part == "condition's":
            otherwise += " A text in a condition has quotes of its own: condition := 'ward = ''A'''."
        step = did_you_mean(column, names, otherwise)
        raise SourceError("S002", f"{part} {show(column)} is not a column of the source. {step}")
    return kind


def _column_to_write(column: str) -> str:
    """Return what to write in place of a text that is not the name of a column."""
    aggregate = _AGGREGATE.fullmatch(column)
    if aggregate is not None and aggregate[1] != "*":
        return f"Name the column alone, {show(aggregate[1])}: the function says what is computed of it."
    if aggregate is not None or column.strip() == "*":
        return "Name columns, such as 'age': FROM dp_count counts rows."
    if _LISTED.fullmatch(column):
        names = ", ".join(show(name.strip()) for name in column.split(","))
        return f"Write several columns as a list: [{names}]."
    if (formula := _FORMULA.fullmatch(column)) is not None:
        features = ", ".join(show(name.strip()) for name in formula[2].split("+"))
        return f"Write target := {show(formula[1])}, features := [{features}]."
    if re.search(r"\w\s*[-+*/%|(<>=]", column) is None:
        return "Check the name."
    return (
        f"Compute it in a view: CREATE TEMP VIEW chosen AS SELECT *, {column} AS computed FROM ...; then name "
        "'computed' of 'chosen'."
    )


def column_of(kinds: Kinds, part: str, column: str) -> tuple[int, pa.DataType]:
    """Return position and type of a column in the row; names ignore case."""
    position, field = kinds.get(fold(column), (-1, None))
    names = () if field is not None else (other.name for _, other in kinds.values())
    return position, require(None if field is None else field.type, part, column, names)


def _wide_columns(plan: Plan, kinds: Kinds) -> tuple[list[str], list[int]]:
    """Return names and positions of the features of a wide source."""
    layout = plan.layout
    names, positions = [], []
    if layout.features is not None:
        for column in layout.features:
            position, kind = column_of(kinds, "feature", column)
            if not (is_numeric(kind) or is_boolean(kind)):
                hint = (
                    "Give features := as that column's name alone."
                    if is_vector(kind)
                    else "Leave it out, or cast it in a view."
                )
                raise SourceError("S003", f"feature {show(column)} is not numeric. {hint}")
            names.append(column)
            positions.append(position)
        return names, positions
    apart = _apart(plan)
    for column, (position, field) in kinds.items():
        if column not in apart and (is_numeric(field.type) or (plan.target_is_label and is_boolean(field.type))):
            names.append(field.name)
            positions.append(position)
    if not names:
        raise SourceError("S007", "the source has no numeric column besides target and ids. Give features := [...].")
    return names, positions


def _left_out(plan: Plan, kinds: Kinds, positions: set[int]) -> str:
    """Return the columns that a call for every numeric column leaves out, and the reason; may be empty."""
    apart = _apart(plan)
    others = [field for column, (position, field) in kinds.items() if column not in apart and position not in positions]
    if not others:
        return ""
    reasons = [f"{field.name} ({_why_not(field.type)})" for field in others[:_MOST_NAMED]]
    more = f", and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    columns = "1 column" if len(others) == 1 else f"{len(others)} columns"
    return f"left out {columns}: {', '.join(reasons)}{more}"


def _why_not(kind: pa.DataType) -> str:
    """Return why an unnamed column of this type is not a feature."""
    if is_boolean(kind):
        return "boolean: cast it to integer, or name it in features"
    if is_text(kind):
        return "text"
    if is_vector(kind):
        return "vector: give features := its name"
    return "date or time" if pa.types.is_temporal(kind) else "not a number"


def _apart(plan: Plan) -> set[str]:
    """Return the folded names of the target and id columns."""
    layout = plan.layout
    return {fold(column) for column in (layout.target, layout.privacy_unit, layout.row_id) if column}


def _elements(chosen: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    """Return the positions of the chosen features among all names of a vector."""
    positions = {name: position for position, name in enumerate(names)}
    for name in chosen:
        if name not in positions:
            raise ParameterError("P040", f"{show(name)} is not one of the vector's features. Check the release's name.")
    return tuple(positions[name] for name in chosen)


def _vector_names(
    column: str, kind: pa.DataType, names: Sequence[str] | None, n_features: int | None
) -> tuple[str, ...]:
    """Return the feature names of a vector column: `names`, or ``x[1]``, ``x[2]`` and so on."""
    if (
        pa.types.is_struct(kind)
        and kind.num_fields
        and all(is_numeric(field.type) or is_boolean(field.type) for field in kind)
    ):
        return tuple(field.name for field in kind)
    if not is_vector(kind):
        raise SourceError(
            "S003",
            f"features {show(column)} is not an array or a list of numbers. Write features := [{show(column)}] for "
            "columns.",
        )
    length = _length(column, kind, len(names) if names is not None else n_features)
    return tuple(names) if names is not None else tuple(f"{column}[{position}]" for position in range(1, length + 1))


def _length(column: str, kind: pa.DataType, length: int | None) -> int:
    """Return the length of a vector column, from its type or from the arguments."""
    if length is not None and length > MOST_ELEMENTS:
        raise ParameterError(
            "P026", f"vectors have at most {MOST_ELEMENTS} elements; got {length}. Give long rows, or fewer elements."
        )
    if pa.types.is_fixed_size_list(kind):
        if length is not None and length != kind.list_size:
            raise ParameterError(
                "P041",
                f"the arrays of {show(column)} have {kind.list_size} elements by type; the arguments say {length}. "
                "Leave n_features out.",
            )
        length = kind.list_size
    if length is None:
        raise SourceError(
            "S006",
            f"features {show(column)} is a list, and the length of a private list is private. "
            "Give n_features := or names := [...].",
        )
    return length


# Largest number of values in a dense copy of rows: 256 MB.
_MOST_CELLS = 1 << 25
# Fields of a row in the long layout after its cells are gathered (statements.py).
LONG_TARGET, LONG_POSITIONS, LONG_VALUES = "dpsql_target", "dpsql_j", "dpsql_values"


@dataclass(frozen=True)
class TargetCode:
    """The coding of a target column: integers in ``[-S, S]`` by bounds or two public levels, otherwise unchanged."""

    affine: tuple[float, float] | None = None
    levels: tuple[Level, Level] | None = None

    @classmethod
    def resolve(cls, plan: Plan, kind: pa.DataType, column: str) -> TargetCode:
        """Choose the coding from the arguments and the column's type.

        Raises
        ------
        SourceError
            A text target without levels, or a type that cannot be a target.
        ParameterError
            A numeric target without required bounds.
        """
        of_text = is_text(kind)
        if not (of_text or is_boolean(kind) or is_numeric(kind)):
            raise SourceError("S003", f"target {show(column)} is neither numeric, text nor boolean. Cast it in a view.")
        if "target_levels" not in plan.arguments:
            if of_text:
                raise SourceError("S003", f"{show(column)} is text, not numbers. Cast it in a view.")
            return cls()
        levels = plan.target_levels
        if levels is not None:
            return cls(levels=_levels(levels, kind, of_text, column))
        if plan.target_is_label and is_numeric(kind):
            return cls(levels=(0.0, 1.0))
        if of_text:
            raise SourceError(
                "S005",
                f"target {show(column)} is text. Give {plan.levels_argument} := [..., ...], its two public levels.",
            )
        if is_boolean(kind) and (plan.target_bounds is None or not plan.target_needs_bounds):
            return cls(levels=("false", "true"))
        if not plan.target_needs_bounds:
            return cls()
        return cls.of_bounds(plan, column)

    @classmethod
    def of_bounds(cls, plan: Plan, column: str) -> TargetCode:
        """Code a numeric target by its public bounds."""
        if plan.target_bounds is not None:
            return cls(affine=affine_map(*plan.target_bounds))
        raise ParameterError(
            "P004",
            f"target_lower and target_upper are missing for the numeric target {show(column)}. "
            "Give them from domain knowledge, not from the table, or give target_levels := [..., ...].",
        )

    @property
    def neutral(self) -> float:
        """The code of NULL."""
        return np.nan if self.affine is None and self.levels is None else 0.0

    def code(self, column: pa.Array) -> NDArray[np.float64]:
        """Return the target as doubles; they are integers in ``[-S, S]`` if the target is quantised."""
        if self.affine is not None:
            return quantise(to_doubles(column), *self.affine)
        if self.levels is None:
            return to_doubles(column)
        out = np.zeros(len(column))
        comparable = to_doubles(column) if isinstance(self.levels[0], float) else to_texts(column)
        for level, coded in zip(self.levels, (-FIXED_POINT_ONE, FIXED_POINT_ONE), strict=True):
            if isinstance(comparable, np.ndarray):
                out[comparable == level] = coded
            else:
                out[pc.fill_null(pc.equal(comparable, level), False).to_numpy(zero_copy_only=False)] = coded
        return out


def _levels(levels: tuple[Level, Level], kind: pa.DataType, is_text: bool, column: str) -> tuple[Level, Level]:
    """Return the two levels in the form that `TargetCode.code` compares."""
    if is_boolean(kind):
        texts = tuple(str(level).lower() for level in levels)
        if set(texts) != {"false", "true"}:
            raise ParameterError("P012", f"target_levels of the boolean target {show(column)} must be false and true.")
        return texts[0], texts[1]
    needed, words = (str, "texts") if is_text else (float, "numbers")
    if not all(isinstance(level, needed) for level in levels):
        raise ParameterError("P012", f"target_levels of target {show(column)} must be two {words}, as its type is.")
    if pa.types.is_float32(kind):  # rounded like the column's values
        first, second = levels
        return float(np.float32(first)), float(np.float32(second))
    return levels


@dataclass(frozen=True)
class Call(ABC):
    """A plan with the column types of its source.

    Attributes
    ----------
    plan : Plan
    features : tuple of str
        Public names of the features, in the order of the statistic.
    target : TargetCode
    positions : tuple of int
        Positions of the target and the features in a row's struct; -1 for no target.
    elements : tuple of int or None
        Positions of the features in a vector; None for the whole vector.
    left_out : str
        Columns that a call for every suitable column leaves out, and the reason. Otherwise empty.
    kinds : tuple of pyarrow types
        Type of each feature in the source, then of the target, if any.
    """

    plan: Plan
    features: tuple[str, ...]
    target: TargetCode
    positions: tuple[int, ...]
    elements: tuple[int, ...] | None = None
    left_out: str = ""
    kinds: tuple[pa.DataType, ...] = ()

    @property
    def remark(self) -> str:
        """Public note next to the guarantee: the columns or keys that the call leaves out; may be empty."""
        return self.left_out

    @classmethod
    def resolve(cls, plan: Plan, row: pa.StructType, others: dict[str, pa.DataType], types: Sequence[str] = ()) -> Self:
        """Resolve a plan against the column types of its source.

        Parameters
        ----------
        plan : Plan
        row : pyarrow struct type
            Types of the columns that hold target and features.
        others : dict of pyarrow types
            Types of privacy unit, row id and the long layout's columns, by role; for the condition, a struct of its
            columns.
        types : sequence of str
            SQL types of the group columns.

        Raises
        ------
        SourceError, ParameterError
            A column that is absent or of the wrong type, or arguments that do not fit the types.
        """
        refuse_lossless(row)
        layout = plan.layout
        kinds = {fold(field.name): (position, field) for position, field in enumerate(row)}
        position, target = -1, TargetCode()
        of_target: list[pa.DataType] = []
        if layout.target:
            position, kind = column_of(kinds, "target", layout.target)
            target = TargetCode.resolve(plan, kind, layout.target)
            of_target.append(kind)
        check_ids(plan, others)
        if "condition" in others:
            check_condition(others["condition"])
        features = features_of(plan, kinds, others)
        positions = (position, *features.positions)
        call = cls(
            plan, features.names, target, positions, features.elements, features.left_out, (*features.kinds, *of_target)
        )
        call.check()
        return call

    def check(self) -> None:
        """Raise if the arguments do not fit the features, or if dpsql cannot draw noise for a part of the budget.

        This check runs before any row is read: no later step may fail because of an argument.
        """
        self.plan.check_features(len(self.features))
        self.plan.check_drawable(len(self.features))

    @cached_property
    def intervals(self) -> list[tuple[float, float]] | None:
        """Public bounds, one pair per feature; None without bounds."""
        lower, upper = (getattr(self.plan, side, None) for side in ("lower", "upper"))
        if lower is None or upper is None:
            return None
        return bounds_by_feature(lower, upper, self.features, fold_case=self.plan.layout.kind == "wide")

    def refuse_extremes(self) -> None:
        """Raise if the public bounds allow products or ratios of the columns' values that are not doubles."""
        target = self.plan.target_bounds
        refuse_extremes([*(self.intervals or ()), *(() if target is None else (target,))])

    def start(self) -> Collector | None:
        """Return the collector of the first pass; None if SQL sums the statistic."""
        return None

    @property
    def statistic_length(self) -> int:
        """Length of the statistic if SQL sums it."""
        return len(self.features)

    @property
    def absent(self) -> NDArray[np.int64]:
        """Value of each feature where long rows have no cell for it, shape (d,)."""
        return np.zeros(len(self.features), dtype=np.int64)

    def collect(self, collector: Any, rows: pa.StructArray, batch: Batch) -> None:
        """Pass a batch of rows to a collector."""
        for part in self.read_parts(rows, batch):
            collector.add(*part)

    def after(self, collector: Any) -> Call:
        """Make the draws that the call itself remembers after a pass; return the call for `turn`.

        Parameters
        ----------
        collector : Collector
            Collector of the pass, with all rows.
        """
        return self

    def turn(self, collector: Any, progress: Progress) -> Collector:
        """Make the draws that the next pass over the rows needs, and return its collector.

        Parameters
        ----------
        collector : Collector
            Collector of the previous pass, with all rows.
        progress : Progress
        """
        following: Collector = collector.turn(progress)
        return following

    @abstractmethod
    def prepare(self, statistic: Any, progress: Progress) -> Callable[[], Json] | Draw:
        """Do all work that takes too long for the ledger's transaction, and return the function that draws.

        Parameters
        ----------
        statistic : ndarray or Collector
            Sums from SQL, or the collector of the last pass with all rows.
        progress : Progress

        Returns
        -------
        draw : callable or Draw
            Returns the result as JSON values.
        """

    @property
    def levels(self) -> tuple[Level, Level]:
        """The two levels of a label, as in the result, negative first."""
        levels = self.target.levels
        if levels is None:
            raise InternalError("I032", "a call without levels was asked for them. Report it.")
        return self.plan.target_levels or ((False, True) if levels == ("false", "true") else levels)

    def coded_target(self, rows: pa.StructArray) -> NDArray[np.float64]:
        """Return the target of a batch of rows as doubles; NaN if the function has no target."""
        if not self.plan.layout.target:
            return np.full(len(rows), np.nan)
        coded = self.target.code(rows.field(self.positions[0]))
        if rows.null_count:
            coded[rows.is_null().to_numpy(zero_copy_only=False)] = self.target.neutral
        return coded

    def parts(self, rows: pa.StructArray) -> Iterator[slice]:
        """Split a batch of rows into parts whose dense copies fit in memory, for rows of any width."""
        step = max(1, _MOST_CELLS // (1 + len(self.features)))
        return (slice(start, min(start + step, len(rows))) for start in range(0, len(rows), step))

    def read_parts(
        self, rows: pa.StructArray, batch: Batch
    ) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64], Batch]]:
        """Yield the arguments of `Collector.add` for each part of a batch."""
        for part in self.parts(rows):
            yield *self.read(rows[part]), batch.part(part)

    def read(self, rows: pa.StructArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a batch of rows as doubles; NaN stands for NULL.

        Returns
        -------
        target : ndarray of float64, shape (rows,)
        features : ndarray of float64, shape (d, rows)
        """
        layout = self.plan.layout
        if layout.kind == "long":
            return to_doubles(rows.field(LONG_TARGET)), _gathered(rows, len(self.features))
        target = self.coded_target(rows)
        positions: Sequence[int] = self.positions[1:]
        if layout.kind == "array":
            column = rows.field(positions[0])
            elements = range(len(self.features)) if self.elements is None else self.elements
            if not pa.types.is_struct(column.type):
                matrix = vectors_to_matrix(column, 1 + max(elements))
                return target, (matrix if self.elements is None else matrix[:, list(elements)]).T.astype(np.float64)
            rows, positions = column, elements
        features = np.empty((len(positions), len(rows)))
        absent = rows.is_null().to_numpy(zero_copy_only=False) if rows.null_count else None
        for row, position in enumerate(positions):
            features[row] = to_doubles(rows.field(position))
        if absent is not None:
            features[:, absent] = np.nan
        return target, features


class BoundedCall(Call):
    """A call whose features have public bounds and become integers in ``[-S, S]``."""

    def check(self) -> None:
        """Check the call like `Call.check`, and raise if a feature has no bounds."""
        super().check()
        _ = self.maps

    @cached_property
    def maps(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Middles and scales of the features' affine maps, each of shape (d,)."""
        return affine_maps(self.intervals or [])


def _gathered(rows: pa.StructArray, width: int) -> NDArray[np.float64]:
    """Return the gathered cells of long rows as a dense matrix, shape (width, rows); absent cells are 0."""
    positions = rows.field(LONG_POSITIONS)
    lengths = positions.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    features = np.zeros((width, len(rows)))
    row = np.repeat(np.arange(len(rows)), lengths)
    values = to_doubles(rows.field(LONG_VALUES).flatten())
    features[positions.flatten().to_numpy(zero_copy_only=False) - 1, row] = values
    return features
