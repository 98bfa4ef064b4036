"""One running call: the plan, and what the source's column types make of it. Types are public, rows are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.errors import ParameterError, SourceError
from dpsql.kernels.columns import is_boolean, is_numeric, is_vector, to_doubles, to_texts
from dpsql.kernels.xty import column_cross_products, cross_products, vectors_to_matrix
from dpsql.parameters import fold, show
from dpsql.plan import SisPlan, refuse_large_k
from dpsql.statistics.fixed_point import FIXED_POINT_ONE, affine_map, affine_maps, quantise

# The type that a column has in the probe when the source does not have that column (statements.py).
_MISSING = "dpsql_missing"


def _is_missing(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind) and kind.num_fields == 1 and kind.field(0).name == _MISSING)


def _require(kind: pa.DataType | None, part: str, column: str) -> pa.DataType:
    """Return the column's type, or say that the source has no such column."""
    if kind is None or _is_missing(kind):
        raise SourceError("S002", f"{part} {show(column)} is not a column of the source. Check the name.")
    return kind


def _refuse_lossless(row: pa.StructType) -> None:
    """Raise when a session setting makes DuckDB hand booleans and HUGEINT over in a form of its own."""
    for field in row:
        kind = getattr(field.type, "value_type", field.type)
        if getattr(kind, "extension_name", None) in ("arrow.bool8", "arrow.opaque"):
            raise SourceError(
                "S008", f"column {show(field.name)} has no plain Arrow type. Run SET arrow_lossless_conversion = false."
            )


@dataclass(frozen=True)
class TargetCode:
    """How a target column becomes integers in ``[-S, S]``: by bounds, or by two public levels."""

    affine: tuple[float, float] | None
    levels: tuple[Any, Any] | None

    @classmethod
    def resolve(cls, plan: SisPlan, kind: pa.DataType, column: str) -> TargetCode:
        """Choose the coding from the arguments and the column's type.

        Raises
        ------
        SourceError
            A text target without levels, or a type that cannot be a target.
        ParameterError
            A numeric target without bounds.
        """
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)
        is_text = is_text or kind == pa.string_view()
        if not (is_text or is_boolean(kind) or is_numeric(kind)):
            raise SourceError("S003", f"target {show(column)} is neither numeric, text nor boolean. Cast it in a view.")
        levels = plan.target_levels
        if levels is not None:
            return cls(None, _levels(levels, kind, is_text, column))
        if plan.target_bounds is not None:
            if is_text:
                raise SourceError(
                    "S005", f"target {show(column)} is text. Give target_levels := [..., ...], its two public levels."
                )
            return cls(affine_map(*plan.target_bounds), None)
        if is_boolean(kind):
            return cls(None, ("false", "true"))
        if is_text:
            raise SourceError(
                "S005", f"target {show(column)} is text. Give target_levels := [..., ...], its two public levels."
            )
        raise ParameterError(
            "P004",
            f"target_lower and target_upper are missing for the numeric target {show(column)}. "
            "Give them from domain knowledge, not from the table, or give target_levels := [..., ...].",
        )

    def code(self, column: pa.Array) -> NDArray[np.float64]:
        """Return the quantised target, integers in ``[-S, S]`` stored as doubles; neutral is 0."""
        if self.affine is not None:
            return quantise(to_doubles(column), *self.affine)
        levels = self.levels or (None, None)
        out = np.zeros(len(column))
        comparable = to_doubles(column) if isinstance(levels[0], float) else to_texts(column)
        for level, coded in zip(levels, (-FIXED_POINT_ONE, FIXED_POINT_ONE), strict=True):
            if isinstance(comparable, np.ndarray):
                out[comparable == level] = coded
            else:
                out[pc.fill_null(pc.equal(comparable, level), False).to_numpy(zero_copy_only=False)] = coded
        return out


def _levels(levels: tuple[Any, Any], kind: pa.DataType, is_text: bool, column: str) -> tuple[Any, Any]:
    """Return the two levels in the form in which `TargetCode.code` compares them."""
    if is_boolean(kind):
        texts = tuple(str(level).lower() for level in levels)
        if set(texts) != {"false", "true"}:
            raise ParameterError("P012", f"target_levels of the boolean target {show(column)} must be false and true.")
        return texts[0], texts[1]
    needed, words = (str, "texts") if is_text else (float, "numbers")
    if not all(isinstance(level, needed) for level in levels):
        raise ParameterError("P012", f"target_levels of target {show(column)} must be two {words}, as its type is.")
    return levels


@dataclass(frozen=True)
class Call:
    """A plan joined to the types of its source.

    Attributes
    ----------
    plan : SisPlan
    features : tuple of str
        Public names of the features, in the order of the statistic.
    middle, scale : ndarray of float64, shape (d,)
        Affine maps of the features.
    target : TargetCode
    positions : tuple of int
        Where target and features stand in a row's struct.
    """

    plan: SisPlan
    features: tuple[str, ...]
    middle: NDArray[np.float64]
    scale: NDArray[np.float64]
    target: TargetCode
    positions: tuple[int, ...]

    @classmethod
    def resolve(cls, plan: SisPlan, row: pa.StructType, others: dict[str, pa.DataType]) -> Call:
        """Join a plan to the types of its source.

        Parameters
        ----------
        plan : SisPlan
        row : pyarrow struct type
            Types of the columns that hold target and features.
        others : dict of pyarrow types
            Types of privacy unit, row id and the long layout's columns, by their part.

        Raises
        ------
        SourceError, ParameterError
            A column that is absent or of the wrong type, or arguments that do not fit the types.
        """
        _refuse_lossless(row)
        layout = plan.layout
        kinds = {fold(field.name): (position, field) for position, field in enumerate(row)}
        target_position, target_kind = _column(kinds, "target", layout.target)
        target = TargetCode.resolve(plan, target_kind, layout.target)
        for part in ("privacy_unit", "row_id", "value"):
            column = getattr(layout, part)
            if column is not None and part in others:
                kind = _require(others[part], part, column)
                if part == "value" and not (is_numeric(kind) or is_boolean(kind)):
                    raise SourceError("S003", f"value {show(column)} is not numeric. Cast it in a view.")
        names: Sequence[str] = layout.names or ()
        positions: Sequence[int] = ()
        if layout.kind == "long":
            _require(others["features"], "features", str(layout.features))
        elif layout.kind == "array":
            position, kind = _column(kinds, "features", str(layout.features))
            names = _vector_names(str(layout.features), kind, layout.names, layout.n_features)
            positions = (position,)
        else:
            names, positions = _wide_columns(plan, kinds)
        refuse_large_k(plan.k, len(names))
        middle, scale = affine_maps(plan.lower, plan.upper, len(names), "the call")
        return cls(plan, tuple(names), middle, scale, target, (target_position, *positions))

    def quantised_target(self, rows: pa.StructArray, center: int = 0) -> NDArray[np.float64]:
        """Return the coded target minus `center`, clipped again to ``[-S, S]``."""
        coded = self.target.code(rows.field(self.positions[0]))
        if rows.null_count:
            coded[rows.is_null().to_numpy(zero_copy_only=False)] = 0.0
        return np.clip(coded - center, -FIXED_POINT_ONE, FIXED_POINT_ONE) if center else coded

    def target_sums(self, rows: pa.StructArray) -> NDArray[np.int64]:
        """Return ``[sum(S + t), sum(S - t)]`` over a batch of rows, exactly."""
        target = self.quantised_target(rows)
        return np.array([(FIXED_POINT_ONE + target).sum(), (FIXED_POINT_ONE - target).sum()]).astype(np.int64)

    def partial(self, rows: pa.StructArray, center: int = 0) -> NDArray[np.int64]:
        """Return the cross products of a batch of rows, exactly; shape (d,), in units of ``S**2``."""
        target = self.quantised_target(rows, center)
        positions: Sequence[int] = self.positions[1:]
        if self.plan.layout.kind == "array":
            column = rows.field(positions[0])
            if not pa.types.is_struct(column.type):
                return cross_products(target, vectors_to_matrix(column, len(self.features)), self.middle, self.scale)
            rows, positions = column, range(column.type.num_fields)
        return column_cross_products(target, rows, positions, self.middle, self.scale)


def _column(kinds: dict[str, tuple[int, pa.Field]], part: str, column: str) -> tuple[int, pa.DataType]:
    """Return position and type of a column of the row, by its name in any case."""
    position, field = kinds.get(fold(column), (-1, None))
    return position, _require(None if field is None else field.type, part, column)


def _wide_columns(plan: SisPlan, kinds: dict[str, tuple[int, pa.Field]]) -> tuple[list[str], list[int]]:
    """Return names and positions of the features of a wide source."""
    layout = plan.layout
    names, positions = [], []
    if layout.features is not None:
        for column in layout.features:
            position, kind = _column(kinds, "feature", column)
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
    apart = {fold(column) for column in (layout.target, layout.privacy_unit, layout.row_id) if column is not None}
    for column, (position, field) in kinds.items():
        if column not in apart and is_numeric(field.type):
            names.append(field.name)
            positions.append(position)
    if not names:
        raise SourceError("S007", "the source has no numeric column besides target and ids. Give features := [...].")
    return names, positions


def _vector_names(
    column: str, kind: pa.DataType, names: Sequence[str] | None, n_features: int | None
) -> tuple[str, ...]:
    """Return the features' names of a vector column: by `names`, or ``x[1]``, ``x[2]``, and so on."""
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
    length = len(names) if names is not None else n_features
    if pa.types.is_fixed_size_list(kind):
        if length is not None and length != kind.list_size:
            raise ParameterError(
                "P010",
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
    return tuple(names) if names is not None else tuple(f"{column}[{position}]" for position in range(1, length + 1))
