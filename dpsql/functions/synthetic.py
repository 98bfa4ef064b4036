"""dp_synthetic: one release of a private tree, which generates a table with the source's columns.

The passes over the rows are: private bounds of numbers without bounds; counts of the cells of every column, and of the
grains of its values; counts of the cells of every pair, and of single values. The values, the tree, its tables and the
report are drawn after the last pass. The plan has the arguments, the cost and the noise.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from dpsql.arrays import Doubles, Longs
from dpsql.contract import parameters
from dpsql.contract.arguments import (
    BUDGET,
    DELTA,
    EPSILON,
    FEATURE_BOUNDS,
    MAX_ROWS_PER_UNIT,
    NEIGHBOUR_RELATION,
    PRIVACY_UNIT,
    ROW_ID,
    Argument,
    Signature,
    flag,
    optional_share,
)
from dpsql.contract.call import Call, TargetCode, check_condition, check_ids, column_of, refuse_lossless
from dpsql.contract.fold import Batch, Collector, RowTransform
from dpsql.contract.json import Json
from dpsql.contract.keys import key_text
from dpsql.contract.layout import Layout, feature_bounds, refuse_extremes
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.parameters import FrozenMapping, Side, fold, show
from dpsql.contract.plan import Pass, Plan, Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError, SourceError
from dpsql.kernels.cells import SUBCELLS, TypedCells, decimals
from dpsql.kernels.columns import is_boolean
from dpsql.kernels.value_grid import ValueGrid
from dpsql.mechanisms.private_tree import (
    BOUNDS,
    CELLS,
    CROWDS,
    EDGES,
    GRAINS,
    ONE,
    REPORT,
    TREE,
    VALUES,
    NoisyTree,
    Pair,
    TreeNoise,
    distance,
    distance_sensitivity,
    draw_tree,
    floor_root,
    key_reach,
    most_tables,
    table_sensitivity,
)
from dpsql.noise.entropy import SYSTEM
from dpsql.progress import Progress
from dpsql.released.synthetic import synthetic_record
from dpsql.released.tree_fit import ColumnGrains, FittedTree, ReleasedColumns, fitted, on_simplex
from dpsql.statistics.coded_columns import (
    CodedColumn,
    ColumnCounts,
    PairTables,
    hashed,
    is_listed,
    number_type,
    to_numbers,
)
from dpsql.statistics.counts import MagnitudeHistogram

# A release stores a table for each pair on its tree, and a number for each pair.
MOST_COLUMNS = 100
_MOST_KEYS = 10_000
# Shares of the steps in the rho that bounds, crowds and the report leave.
_WEIGHTS = {
    CELLS: Fraction(28, 100),
    GRAINS: Fraction(2, 100),
    VALUES: Fraction(8, 100),
    TREE: Fraction(10, 100),
    EDGES: Fraction(52, 100),
}
_BOUNDS_SHARE = Fraction(1, 10)
# Share of the crowds, the dense cells within public bounds, in the rho that bounds and the report leave.
_CROWDS_SHARE = Fraction(3, 100)
# With drawn keys under 'replace' the chance of a failure grows with exp(epsilon).
_LARGEST_EPSILON = 100


def _names(argument: str, value: object) -> tuple[str, ...]:
    hint = "Give the names of the columns."
    names = parameters.text_list(argument, [value] if isinstance(value, str) else value, hint=hint)
    parameters.within(f"the number of {argument}", len(names), 1, MOST_COLUMNS, hint="Name fewer.")
    parameters.refuse_duplicates(argument, names, fold_case=True)
    return names


def _keys(lists: object) -> FrozenMapping[tuple[str, ...]]:
    hint = "Give keys := {'column': [...]} from public knowledge."
    if not isinstance(lists, Mapping):
        raise ParameterError("P066", f"keys must be a struct of lists by column; got {show(lists)}. {hint}")
    keys = {}
    for name, values in lists.items():
        items = parameters.list_items(values, _MOST_KEYS)
        if items is None or not 1 <= len(items) <= _MOST_KEYS:
            raise ParameterError("P066", f"keys of {show(name)} must be a list of 1 to {_MOST_KEYS} values. {hint}")
        texts = tuple(text for text in map(key_text, items) if text is not None)
        parameters.refuse_duplicates(f"keys of {show(name)}", texts, fold_case=False)
        keys[fold(str(name))] = texts
    return FrozenMapping(keys)


@dataclass(frozen=True, kw_only=True)
class SyntheticPlan(Plan):
    """The checked public arguments of one ``dp_synthetic`` call."""

    columns: tuple[str, ...] | None
    delta: Fraction
    target: str | None
    lower: Side | None
    upper: Side | None
    keys: FrozenMapping[tuple[str, ...]] | None
    private_keys: bool
    bounds_share: Fraction | None  # None if all numbers have public bounds
    report_share: Fraction | None

    function: ClassVar[str] = "dp_synthetic"
    arguments: ClassVar[Signature] = Signature(
        Argument(
            "columns",
            "Names of the columns of the table: numbers, texts, booleans, dates and timestamps.",
            default_text="every such column",
            names_column=True,
            table_only=True,
            kind="Names",
        ),
        EPSILON,
        DELTA,
        Argument(
            "target",
            "Name of a column that is to be predicted from the others: its pairs are all measured, and others are "
            "modelled by it. Without it a column is drawn that tells most of all others.",
            names_column=True,
            table_only=True,
            kind="str",
        ),
        *(
            replace(
                bound, doc=bound.doc.replace("of the features", "of the numbers, dates and timestamps"), statistic=False
            )
            for bound in FEATURE_BOUNDS
        ),
        Argument(
            "keys",
            "Public values of text columns: a struct of lists by column. All other values are one, 'other'.",
            default_text="stated by the owner",
            table_only=True,
            kind="Mapping[str, Iterable[object]]",
        ),
        flag(
            "private_keys",
            "Whether values of text columns without keys are drawn from the rows, at the price of half of delta: those "
            "that many rows have.",
            False,
        ),
        optional_share(
            "bounds_share",
            "Share of the loss for private bounds of numbers that have no public ones.",
            None,
            default_text="0.1 where lower and upper are left out",
            hint="0.1 is usual.",
        ),
        optional_share(
            "report_share",
            "Share of the loss for the error of every pair of columns. 0 leaves the errors out.",
            0.05,
            hint="0.05 is usual.",
        ),
        NEIGHBOUR_RELATION,
        PRIVACY_UNIT,
        MAX_ROWS_PER_UNIT,
        ROW_ID,
        *BUDGET,
    )
    stated_as: ClassVar[Mapping[str, str | None]] = dict.fromkeys(("target_lower", "target_upper", "target_levels"))
    target_needs_bounds: ClassVar[bool] = False

    @classmethod
    def _layout(cls, arguments: Mapping[str, object]) -> Layout:
        columns = None if arguments.get("columns") is None else _names("columns", arguments["columns"])
        ids = {}
        for part in ("privacy_unit", "row_id"):
            name = arguments.get(part)
            ids[part] = None if name is None else parameters.text(part, name, hint="Give the name of a column.")
        return Layout("wide", "", columns, None, None, None, ids["row_id"], ids["privacy_unit"])

    @classmethod
    def _fill(cls, arguments: dict[str, object], protection: dict[str, object], *, of_table: bool) -> None:
        """Fill in the owner's declared values; bounds only by name, because other bounds are for other columns."""
        keys = protection.pop("keys", None)
        if arguments["keys"] is None and keys:
            arguments["keys"] = {
                name: values for name, values in parameters.narrow(dict, keys).items() if values is not None
            } or None
        for bound in ("lower", "upper"):
            if not isinstance(protection.get(bound), Mapping):
                protection.pop(bound, None)
        super()._fill(arguments, protection, of_table=of_table)

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        arguments = {**arguments, **{side: _numbered(arguments[side]) for side in ("lower", "upper")}}
        own = cls._read(arguments, "delta", "private_keys", "bounds_share", "report_share")
        bounded = arguments["lower"] is not None or arguments["upper"] is not None
        bounds = feature_bounds(arguments, or_else="Or leave both out: they are drawn.") if bounded else {}
        share = own["bounds_share"]
        if not bounded and share is None:
            share = _BOUNDS_SHARE
        epsilon = EPSILON.read(arguments)
        if own["private_keys"] and not parameters.epsilon(epsilon) <= _LARGEST_EPSILON:
            raise ParameterError("P001", f"epsilon must be at most {_LARGEST_EPSILON} with private_keys. Lower it.")
        target = arguments.get("target")
        return {
            **own,
            "columns": layout.features,
            "target": None if target is None else parameters.text("target", target, hint="Give the name of a column."),
            "lower": bounds.get("lower"),
            "upper": bounds.get("upper"),
            "keys": None if arguments["keys"] is None else _keys(arguments["keys"]),
            "bounds_share": share,
        }

    def _passes(self) -> tuple[Pass, ...]:
        return (Pass(),) * 3

    @cached_property
    def noise_part(self) -> TreeNoise:
        """Return the part of all draws."""
        bounds, report = self.bounds_share or Fraction(0), self.report_share or Fraction(0)
        remainder = 1 - bounds - report
        if not remainder > 0:
            raise ParameterError(
                "P045", "bounds_share and report_share leave nothing for the table. Lower one of them."
            )
        crowds = remainder * _CROWDS_SHARE if self.lower is not None or self.upper is not None else Fraction(0)
        weights = {
            BOUNDS: bounds,
            CROWDS: crowds,
            REPORT: report,
            **{name: (remainder - crowds) * weight for name, weight in _WEIGHTS.items()},
        }
        return TreeNoise.of("tree", self.epsilon, self.delta, weights, draws_keys=self.private_keys)

    @cached_property
    def measurement(self) -> Measurement:
        """Return one part for all steps."""
        return measurement_of(self.noise_part)

    @property
    def unit(self) -> dict[str, Any]:
        """Return the relation and the rows of a unit."""
        return {"neighbours": self.neighbours, "rows": self.max_rows_per_unit}

    def deviations(self, count: int) -> tuple[float, float, float | None]:
        """Return the standard deviations of the noise: of a cell, of a cell of an edge, of a reported distance."""
        part, unit = self.noise_part, self.unit
        cells = table_sensitivity(count + self.private_keys, **unit) / (2 * part.rho_of(CELLS))
        edges = table_sensitivity(most_tables(count), **unit) / (2 * part.rho_of(EDGES))
        report = None
        if self.report_share is not None:
            pairs = max(1, math.comb(count, 2)) + count
            report = math.sqrt(distance_sensitivity(pairs, **unit) / (2 * part.rho_of(REPORT)))
        return math.sqrt(cells), math.sqrt(edges), report

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the smallest share of mu, per row."""
        pairs = max(1, math.comb(count, 2)) + count
        largest = max(table_sensitivity(most_tables(count) + 2, **self.unit), distance_sensitivity(pairs, **self.unit))
        for _, rho in self.noise_part.shares:
            yield floor_root(2 * rho / largest)

    def check_features(self, count: int) -> None:
        """Raise if there are no columns, or too many."""
        if not count:
            raise SourceError("S007", "the source has no column that dp_synthetic takes. Name columns := [...].")
        if count > MOST_COLUMNS:
            raise ParameterError("P026", f"dp_synthetic takes at most {MOST_COLUMNS} columns; got {count}. Name fewer.")

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the noise of the call."""
        cells, edges, report = self.deviations(n_features)
        out: list[Quantity] = [
            ("cell_std_error", cells, "standard deviation of the noise on a cell of a column, in rows"),
            ("pair_std_error", edges, "that on a cell of a pair, if the tree joins all columns"),
            ("rows_needed", math.ceil(48 * cells), "rows from which noise does not decide most cells"),
        ]
        if report is not None and n_rows is not None:
            out.append(("error_std_error", report / (2 * n_rows), "of the reported error of a pair, as a share"))
        return out


def _numbered(side: object) -> object:
    """Return bounds with dates as days and timestamps as microseconds since 1970."""
    if isinstance(side, Mapping):
        return {name: _numbered(value) for name, value in side.items()}
    if isinstance(side, datetime.datetime) and side.tzinfo is None:
        return (side - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    if isinstance(side, datetime.date) and not isinstance(side, datetime.datetime):
        return (side - datetime.date(1970, 1, 1)).days
    return side


# All tables of pairs together have at most about this many cells.
_MOST_CELLS = 1 << 24
# Tables in fine cells have at most this many cells, unless united cells are more.
_MOST_FINE = 1 << 23
# Cells of magnitudes count if they hold at least this many standard deviations of noise; they are divided so that a
# part holds about one in so many rows.
_STANDS_OUT, _CROWDED = 3.0, 128
# The least share of the rows in such cells; and the size of a number, as a share of the largest number, below which the
# noise of the many cells hides the number of rows.
_MOST, _SMALL = 0.75, 2.0**-14
_TYPES = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
}


class TreePass(RowTransform[PairTables]):
    """The last pass: the tables of all pairs, and the slots of values, in cells that follow from released counts."""

    ending = ("released", "whole")

    def __init__(self, released: ReleasedColumns) -> None:
        positions, unions, self.whole = released.fine_cells(math.isqrt(2 * _MOST_FINE) // len(released.columns))
        super().__init__(PairTables(released.columns, positions, unions, released.slots))
        self.released = released

    def add_columns(self, columns: Sequence[pa.Array]) -> None:
        """Count a batch of rows, given by column."""
        self.inner.add_columns(columns)


@dataclass(frozen=True)
class SyntheticCall(Call):
    """A dp_synthetic call, with the column types of its source."""

    plan: SyntheticPlan

    @classmethod
    def resolve(cls, plan: Plan, row: pa.StructType, others: dict[str, pa.DataType], types: Sequence[str] = ()) -> Self:
        """Resolve a plan against the column types of its source; parameters and errors as for `Call.resolve`."""
        refuse_lossless(row)
        check_ids(plan, others)
        if "condition" in others:
            check_condition(others["condition"])
        if not isinstance(plan, SyntheticPlan):
            raise TypeError("the plan is of another function")
        kinds = {fold(field.name): (position, field) for position, field in enumerate(row)}
        positions: list[int] = []
        left_out: list[int] = []
        if plan.columns is not None:
            for name in plan.columns:
                position, kind = column_of(kinds, "column", name)
                if not _is_taken(kind):
                    raise SourceError(
                        "S003", f"column {show(name)} has a type that dp_synthetic does not take. Cast it in a view."
                    )
                positions.append(position)
        else:
            apart = {fold(name) for name in (plan.layout.privacy_unit, plan.layout.row_id) if name is not None}
            for name, (position, field) in kinds.items():
                if name not in apart:
                    (positions if _is_taken(field.type) else left_out).append(position)
        names = tuple(row.field(position).name for position in positions)
        names_left_out = ", ".join(row.field(position).name for position in left_out[:20])
        call = cls(
            plan,
            names,
            TargetCode(),
            (-1, *positions),
            left_out=f"These columns are left out, because of their type: {names_left_out}." if left_out else "",
            kinds=tuple(row.field(position).type for position in positions),
        )
        call.check()
        return call

    def check(self) -> None:
        """Raise if a column lacks bounds or keys, or if noise cannot be drawn."""
        super().check()
        plan, names = self.plan, {fold(name) for name in self.features}
        if plan.target is not None and fold(plan.target) not in names:
            raise SourceError("S002", f"target {show(plan.target)} is not a column of the table. Check the name.")
        _ = self.coded, plan.noise_part

    @cached_property
    def coded(self) -> list[CodedColumn]:
        """Return the public cells of each column; numbers with drawn bounds have none yet."""
        return [self._coded(name, kind) for name, kind in zip(self.features, self.kinds, strict=True)]

    def _coded(self, name: str, kind: pa.DataType) -> CodedColumn:
        plan, spelled = self.plan, _spelled(kind)
        keys = None if plan.keys is None else plan.keys.get(fold(name))
        numbers = number_type(kind)
        if keys is None and is_boolean(kind):
            keys = ("false", "true")
        if keys is not None:
            if not is_listed(kind):
                raise ParameterError("P066", f"keys of {show(name)} are of no text. Give lower and upper instead.")
            return CodedColumn(name, spelled, keys, not is_boolean(kind), None, 0)
        if numbers is None:
            if not plan.private_keys:
                raise ParameterError(
                    "P065",
                    f"keys of {show(name)} are missing: which texts a private table has is private. Give keys := "
                    "{'column': [...]} from public knowledge. Or pay for private ones: private_keys := true.",
                )
            return CodedColumn(name, spelled, None, True, None, 0, draws_keys=True)
        bounds = self.public_bounds(name)
        if bounds is None and plan.bounds_share is None:
            raise ParameterError(
                "P003",
                f"lower and upper name no bound of {show(name)}. Give them from domain knowledge, not from the table, "
                "or pay for private ones: bounds_share := 0.1.",
            )
        return CodedColumn(name, spelled, None, False, _grid(numbers, bounds), decimals(numbers) or 0)

    def public_bounds(self, name: str) -> tuple[float, float] | None:
        """Return the public bounds of a column; None if it has none."""
        ends = []
        for side in (self.plan.lower, self.plan.upper):
            if isinstance(side, float):
                ends.append(side)
            elif isinstance(side, Mapping):
                folded = {fold(column): bound for column, bound in side.items()}
                ends.append(folded.get(fold(name), math.nan))
            elif side is not None:
                raise ParameterError("P037", "lower and upper must be structs by column, or one number each.")
        if len(ends) < 2 or math.isnan(ends[0]) or math.isnan(ends[1]):
            return None
        refuse_extremes([(ends[0], ends[1])])
        return ends[0], ends[1]

    @cached_property
    def spread(self) -> list[int]:
        """Return the positions of numbers with drawn bounds, and of numbers with wide cells within public bounds."""
        return [
            position
            for position, column in enumerate(self.coded)
            if column.keys is None and not column.draws_keys and (column.grid is None or column.steps)
        ]

    def start(self) -> Collector:
        """Return the collector of the first pass."""
        return MagnitudeHistogram(len(self.spread), target=False)

    def collect(self, collector: Any, rows: pa.StructArray, batch: Batch) -> None:
        """Pass a batch of rows to a collector."""
        columns = self._columns(rows)
        if isinstance(collector, MagnitudeHistogram):
            numbers = [to_numbers(columns[position]) for position in self.spread]
            collector.add(np.zeros(len(rows)), np.array(numbers).reshape(len(numbers), len(rows)), batch)
        else:
            collector.add_columns(columns)

    def read(self, rows: pa.StructArray) -> tuple[Doubles, Doubles]:
        """Return a batch of rows as doubles, which decide the rows of a privacy unit that count; strings by a hash."""
        numbers = [
            to_numbers(column) if number_type(column.type) is not None else hashed(column)
            for column in self._columns(rows)
        ]
        return np.full(len(rows), np.nan), np.array(numbers).reshape(len(numbers), len(rows))

    def _columns(self, rows: pa.StructArray) -> list[pa.Array]:
        """Return the columns of the table; NULL for missing rows."""
        columns = rows.flatten()
        return [columns[position] for position in self.positions[1:]]

    def turn(self, collector: Any, progress: Progress) -> Collector:
        """Draw bounds, or the counts of the columns, and return the collector of the next pass."""
        if isinstance(collector, MagnitudeHistogram):
            return ColumnCounts(draw_grids(self, dict(zip(self.spread, collector.cells.counts, strict=True))))
        return TreePass(draw_columns(self.plan, collector))

    def prepare(self, statistic: TreePass, progress: Progress) -> Callable[[], Json]:
        """Draw and fit now: fitting takes too long for the ledger's transaction."""
        record = draw_table(self.plan, statistic.released, statistic.inner, statistic.whole)
        return lambda: record


def _is_taken(kind: pa.DataType) -> bool:
    return is_listed(kind) or number_type(kind) is not None


def _spelled(kind: pa.DataType) -> str:
    """Return a type as SQL spells it; an ENUM as the type of its strings."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return _TYPES.get(kind, "VARCHAR" if is_listed(kind) else "DOUBLE")


def _grid(kind: pa.DataType, bounds: tuple[float, float] | None) -> ValueGrid | None:
    """Return the cells of numbers within bounds; None without bounds."""
    digits = decimals(kind)
    if bounds is None:
        return None
    if digits is None:
        return ValueGrid.of_doubles(*bounds)
    low, high = (Fraction(bound) * 10**digits for bound in bounds)
    return ValueGrid.of_integers(low, high)


def draw_grids(call: SyntheticCall, fine: Mapping[int, Longs]) -> list[CodedColumn]:
    """Draw the bounds of numbers without public bounds, and the crowds within public bounds.

    A column with undetermined bounds has NULL and 0 alone.

    Parameters
    ----------
    call : SyntheticCall
    fine : mapping of int to ndarray of int64
        Rows in the fine cells of the columns at `SyntheticCall.spread`.

    Notes
    -----
    - **Guarantee**: zCDP at the rho of these two steps.
    - **Neighbouring relation**: as in the plan.
    - **Sensitivity**: for bounds see `dpsql.mechanisms.prefix_bounds`; the squared mu of the columns add up. For crowds
      L2, of a table for each column: a row is in one of its cells.
    """
    plan, columns = call.plan, list(call.coded)
    kinds = {position: number_type(call.kinds[position]) for position in fine}
    public = {position: call.public_bounds(call.features[position]) for position in fine}
    cells = {
        position: TypedCells.of(kind) if ends is None else TypedCells.of(kind, SUBCELLS).within(*ends)
        for (position, kind), ends in zip(kinds.items(), public.values(), strict=True)
    }
    exact = {position: of.counts(fine[position]) for position, of in cells.items()}
    unbounded = [position for position, ends in public.items() if ends is None]
    if plan.bounds_share is not None:
        noisy_bounds = plan.noise_part.draw_bounds(
            [exact[position] for position in unbounded], [cells[position] for position in unbounded], **plan.unit
        )
        for position, bounds in zip(unbounded, noisy_bounds, strict=True):
            # A column with undetermined bounds keeps 0 alone, so that rows with values still have a value.
            is_whole = decimals(kinds[position]) is not None
            columns[position] = replace(
                columns[position],
                grid=_grid(kinds[position], bounds.interval) or ValueGrid((0.0,), 0.0, is_whole),
                is_drawn=True,
            )
    bounded = {
        position: grid
        for position in fine
        if (grid := columns[position].grid) is not None and position not in unbounded
    }
    if bounded:
        noisy = plan.noise_part.draw_parts(CROWDS, [exact[position] for position in bounded], **plan.unit)
        lengths = [len(exact[position]) for position in bounded]
        for (position, grid), counts in zip(
            bounded.items(), np.split(noisy.values, np.cumsum(lengths)[:-1]), strict=True
        ):
            crowds = _crowds(cells[position], counts, noisy.sigma, plan.deviations(len(columns))[0])
            columns[position] = replace(columns[position], grid=grid.refined(crowds))
    return columns


def _crowds(cells: TypedCells, noisy: Doubles, sigma: float, later: float) -> list[tuple[float, float, int]]:
    """Return the cells that hold many rows with their neighbours, and the number of parts of each.

    Parts hold more than their noise, which has standard deviation `later`. If most rows are in no such cell, there are
    none. Ends are in units of the column's last digit.
    """
    counts = np.where(noisy >= _STANDS_OUT * sigma, noisy, 0.0)
    sizes = np.maximum(np.abs(cells.low), np.abs(cells.high))
    if counts.sum() < _MOST * noisy[(sizes >= sizes.max() * _SMALL) | (counts > 0.0)].sum():
        return []
    beside = np.pad(counts, 1)
    parts = np.minimum(_CROWDED * counts / max(1.0, counts.sum()), counts / (_STANDS_OUT * later))
    parts = np.maximum(np.ceil(parts), beside[:-2] + beside[2:] > 0.0).astype(np.int64)
    unit = 10.0 ** (cells.digits or 0)
    return [(unit * cells.low[cell], unit * cells.high[cell], int(parts[cell])) for cell in np.flatnonzero(parts)]


def draw_columns(plan: SyntheticPlan, statistic: ColumnCounts) -> ReleasedColumns:
    """Draw the counts of every column's cells and of its grains, and the private keys of columns.

    Notes
    -----
    - **Guarantee**: zCDP at the rho of this step, except for `TreeNoise.key_delta`.
    - **Neighbouring relation**: as in the plan.
    - **Sensitivity**: L2, of a table for each column; with private keys, of one more table with a single cell, all
      rows: rows without a key are all rows less the rows of the keys. For the grains of w columns, L2 of w tables, with
      their own noise.
    """
    part, width = plan.noise_part, len(statistic.columns)
    most = plan.max_rows_per_unit
    # A string with so few rows is not shown at any noise, so that a column of ids does not add a number for each row.
    texts = {text: statistic.occurring(text, above=most) for text in statistic.texts}
    exact = [
        np.concatenate([counts, texts[position][1]]) if position in texts else counts
        for position, counts in enumerate(statistic.cell_counts)
    ]
    if plan.private_keys:
        exact.append(np.array([statistic.rows]))
    noisy = part.draw_columns(np.concatenate(exact), width + plan.private_keys, **plan.unit)
    parts = np.split(noisy.values, np.cumsum([len(counts) for counts in exact])[:-1])
    tables = [counts for position, counts in enumerate(parts) if position not in texts]
    weights = np.array([1.0 / len(counts) for counts in tables])
    total = max(1.0, float(np.dot([counts.sum() for counts in tables], weights) / weights.sum()))
    columns = list(statistic.columns)
    for position, (names, _) in texts.items():
        if part.key_delta is None:
            raise InternalError("I032", "private keys were to be drawn without their delta. Report it.")
        reach = key_reach(part.epsilon, part.key_delta, len(texts), plan.neighbours, plan.max_rows_per_unit)
        counts = parts[position]
        key_positions = np.flatnonzero(counts[1:] >= 2 * most + reach * noisy.sigma)
        key_counts = counts[1:][key_positions]
        keys = tuple(names[key] for key in key_positions.tolist())
        columns[position] = replace(columns[position], keys=keys, draws_keys=False)
        others = float(total - counts[0] - key_counts.sum())
        # The difference has the noise of all its terms.
        stand_out = others >= 3.0 * noisy.sigma * math.sqrt(len(key_counts) + 2)
        parts[position] = np.concatenate([counts[:1], key_counts, [others if stand_out else 0.0]])
    united = max(2, math.isqrt(2 * _MOST_CELLS) // width)
    grains = {}
    if statistic.grains:
        counted = part.draw_parts(GRAINS, list(statistic.grains.values()), **plan.unit)
        lengths = [len(counts) for counts in statistic.grains.values()]
        for grain, counts in zip(statistic.grains, np.split(counted.values, np.cumsum(lengths)[:-1]), strict=True):
            grains[grain] = ColumnGrains(counts, counted.sigma)
    released = ReleasedColumns.of(columns, parts[:width], noisy.sigma, total, united, grains)
    return replace(released, total_sigma=noisy.sigma / math.sqrt(weights.sum()))


def draw_values(plan: SyntheticPlan, released: ReleasedColumns, tables: PairTables) -> tuple[ReleasedColumns, Fraction]:
    """Draw the counts of listed values; return the columns with their atoms, and the unused rho.

    Notes
    -----
    - **Guarantee**: zCDP at the rho of this step.
    - **Neighbouring relation**: as in the plan.
    - **Sensitivity**: L2, of a table for each column that lists values: a row has one listed value of it, or none.
    """
    part = plan.noise_part
    spared = Fraction(0) if released.grains else part.rho_of(GRAINS)
    listing = {position: slots.listed for position, slots in released.slots.items() if slots.listed}
    if not listing:
        return released, spared + part.rho_of(VALUES)
    exact = [tables.values(position)[:length] for position, length in listing.items()]
    noisy = part.draw_parts(VALUES, exact, **plan.unit)
    parts = np.split(noisy.values, np.cumsum(list(listing.values()))[:-1])
    return released.with_atoms(dict(zip(listing, parts, strict=True)), noisy.sigma), spared


def draw_table(
    plan: SyntheticPlan, released: ReleasedColumns, tables: PairTables, flags: Sequence[bool]
) -> dict[str, Json]:
    """Draw the tree, its tables and the report, and return the fitted model as JSON values.

    Notes
    -----
    - **Guarantee**: zCDP at the rho of these steps.
    - **Neighbouring relation**: as in the plan.
    - **Sensitivity**: see `dpsql.mechanisms.private_tree`.
    """
    names = [fold(column.name) for column in released.columns]
    released, spared = draw_values(plan, released, tables)
    sums, variances, total = released.sums, released.variances, released.total

    def implied(star: NoisyTree) -> Mapping[Pair, Doubles]:
        return fitted(sums, variances, star, total).implied()

    tree = draw_tree(
        plan.noise_part,
        tables.table,
        [on_simplex(counts, total) for counts in sums],
        total,
        implied,
        hub=None if plan.target is None else names.index(fold(plan.target)),
        spared=spared,
        **plan.unit,
    )
    fit = fitted(sums, variances, tree, total)
    errors: Doubles | None = None
    sigma: float | None = None
    if plan.report_share is not None and len(names) > 1:
        pairs = fit.implied()
        exact, model = slot_tables(released, tables, fit)
        errors, sigma = draw_report(
            plan, [*map(tables.fine_table, pairs), *exact], [*fine_model(released, tables, pairs), *model]
        )
    return synthetic_record(released, tree, fit, errors, sigma, SYSTEM.words(2).tobytes().hex(), flags)


def fine_model(released: ReleasedColumns, tables: PairTables, pairs: Mapping[Pair, Doubles]) -> Iterator[Doubles]:
    """Return the model's counts of pairs in fine cells, from its counts in united cells."""
    fractions = [
        np.bincount(positions, weights=released.fractions(number), minlength=size)
        for number, (positions, size) in enumerate(zip(tables.positions, tables.sizes, strict=True))
    ]
    for (i, j), counts in pairs.items():
        yield counts[np.ix_(tables.unions[i], tables.unions[j])] * np.outer(fractions[i], fractions[j])


def slot_tables(released: ReleasedColumns, tables: PairTables, fit: FittedTree) -> tuple[list[Longs], list[Doubles]]:
    """Return exact counts and the model's counts of the parts of each column's slots, all other rows last."""
    exact, model = [], []
    rows = int(tables.fine_table((0, 1)).sum())
    for number in released.slots:
        parts, counts = released.slot_model(number, fit.margins[number])
        slots = np.zeros(len(counts) + 1, dtype=np.int64)
        np.add.at(slots, parts, tables.values(number))
        slots[-1] = rows - slots.sum()
        exact.append(slots)
        model.append(np.append(counts, max(0.0, released.total - counts.sum())))
    return exact, model


def draw_report(plan: SyntheticPlan, exact: Sequence[Longs], model: Sequence[Doubles]) -> tuple[Doubles, float]:
    """Draw the distance in rows between exact counts and the model's counts, for every pair and every column's slots.

    Returns
    -------
    distances : ndarray of float64
    sigma : float
        Standard deviation of their noise.

    Notes
    -----
    - **Guarantee**: zCDP at the rho of this step.
    - **Neighbouring relation**: as in the plan.
    - **Sensitivity**: L2, `distance_sensitivity`.
    """
    distances = [
        distance(table, np.rint(counts * ONE).astype(np.int64)) for table, counts in zip(exact, model, strict=True)
    ]
    noisy = plan.noise_part.draw_distances(distances, **plan.unit)
    return noisy.values, noisy.sigma
