"""Columns that a call reads, from its arguments and the column types; errors for columns that do not fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dpsql.contract.names import did_you_mean
from dpsql.contract.parameters import fold, show
from dpsql.contract.periods import Dated
from dpsql.contract.plan import Plan
from dpsql.contract.query.condition import columns_of
from dpsql.errors import ParameterError, SourceError
from dpsql.kernels.columns import is_boolean, is_numeric, is_text, is_vector
from dpsql.kernels.identity import has_identity, is_name

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


def require(kind: pa.DataType | None, part: str, column: str, names: Iterable[str] = ()) -> pa.DataType:
    """Return the column's type, or raise if the source has no such column; the message suggests known columns."""
    if kind is None or _is_missing(kind):
        step = did_you_mean(column, names, "Check the name.")
        raise SourceError("S002", f"{part} {show(column)} is not a column of the source. {step}")
    return kind


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
            "S003", f"features {show(column)} is not an array or a list of numbers. Give features := [...] for columns."
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
