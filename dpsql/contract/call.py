"""One running call: a plan, resolved against the source's column types. Types are public; rows are not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.contract.feature_columns import check_condition, check_ids, column_of, features_of, refuse_lossless
from dpsql.contract.fold import Batch, Collector
from dpsql.contract.json import Json
from dpsql.contract.layout import bounds_by_feature, refuse_extremes
from dpsql.contract.measurement import Draw
from dpsql.contract.parameters import Level, fold, show
from dpsql.contract.plan import Plan
from dpsql.errors import InternalError, ParameterError, SourceError
from dpsql.kernels.columns import is_boolean, is_numeric, is_text, to_doubles, to_texts
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, affine_map, affine_maps, quantise
from dpsql.kernels.xty import vectors_to_matrix
from dpsql.progress import Progress

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
