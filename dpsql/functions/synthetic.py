"""dp_synthetic: one release of a private tree, from which a table with the source's columns is made.

Passes over the rows: private bounds of numbers that have none; counts of the cells of every column; counts of the
united cells of every pair. The tree, its tables and the report are drawn after the last one.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations
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
from dpsql.contract.bounds import feature_bounds
from dpsql.contract.call import Call, TargetCode
from dpsql.contract.feature_columns import check_condition, check_ids, column_of, refuse_lossless
from dpsql.contract.fold import Batch, Collector, RowTransform
from dpsql.contract.json import Json
from dpsql.contract.keys import key_text
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.parameters import FrozenMapping, Side, fold, show
from dpsql.contract.plan import Pass, Plan, Quantity
from dpsql.errors import InternalError, ParameterError, SourceError
from dpsql.kernels.columns import is_boolean
from dpsql.kernels.typed_cells import TypedCells, decimals
from dpsql.kernels.value_grid import ValueGrid
from dpsql.mechanisms.gaussian import gaussian_counts
from dpsql.mechanisms.prefix_bounds import prefix_bounds
from dpsql.mechanisms.private_tree import (
    BOUNDS,
    CELLS,
    EDGES,
    ONE,
    REPORT,
    TREE,
    TreeNoise,
    distance,
    distance_sensitivity,
    draw_tree,
    floor_root,
    key_reach,
    noisy_tables,
    table_sensitivity,
)
from dpsql.noise.entropy import SYSTEM
from dpsql.progress import Progress
from dpsql.released.synthetic import synthetic_record
from dpsql.released.tree_fit import ReleasedColumns, fitted, on_simplex
from dpsql.statistics.coded_columns import (
    CodedColumn,
    ColumnCounts,
    PairTables,
    is_listed,
    number_type,
    to_numbers,
)
from dpsql.statistics.counts import MagnitudeHistogram

# A release keeps a table for each pair on its tree, and a number for each pair.
MOST_COLUMNS = 100
_MOST_KEYS = 10_000
# All tables of pairs have at most about so many cells.
_MOST_CELLS = 1 << 24
# What each step gets of rho that bounds and the report leave.
_WEIGHTS = {CELLS: Fraction(6, 19), TREE: Fraction(2, 19), EDGES: Fraction(11, 19)}
_BOUNDS_SHARE = Fraction(1, 10)
# With drawn keys under 'replace' the chance of a failure grows with exp(epsilon).
_LARGEST_EPSILON = 100
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


def _names(argument: str, given: object) -> tuple[str, ...]:
    hint = "Give the names of the columns."
    names = parameters.text_list(argument, [given] if isinstance(given, str) else given, hint=hint)
    parameters.within(f"the number of {argument}", len(names), 1, MOST_COLUMNS, hint="Name fewer.")
    parameters.refuse_duplicates(argument, names, fold_case=True)
    return names


def _keys(given: object) -> FrozenMapping[tuple[str, ...]]:
    hint = "Give keys := {'column': [...]} from public knowledge."
    if not isinstance(given, Mapping):
        raise ParameterError("P066", f"keys must be a struct of lists by column; got {show(given)}. {hint}")
    found = {}
    for name, values in given.items():
        items = parameters.list_items(values, _MOST_KEYS)
        if items is None or not 1 <= len(items) <= _MOST_KEYS:
            raise ParameterError("P066", f"keys of {show(name)} must be a list of 1 to {_MOST_KEYS} values. {hint}")
        texts = tuple(text for text in map(key_text, items) if text is not None)
        parameters.refuse_duplicates(f"keys of {show(name)}", texts, fold_case=False)
        found[fold(str(name))] = texts
    return FrozenMapping(found)


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
    bounds_share: Fraction | None  # None where all numbers have public bounds
    report_share: Fraction | None

    function: ClassVar[str] = "dp_synthetic"
    arguments: ClassVar[Signature] = Signature(
        Argument(
            "columns",
            "Names of the columns of the table: numbers, texts, booleans, dates and timestamps.",
            shown="every such column",
            names_column=True,
            table_only=True,
            kind="Names",
        ),
        EPSILON,
        DELTA,
        Argument(
            "target",
            "Name of a column that is to be predicted from the others: pairs with it count twice when the tree is "
            "chosen.",
            names_column=True,
            table_only=True,
            kind="str",
        ),
        *(
            replace(one, doc=one.doc.replace("of the features", "of the numbers, dates and timestamps"), statistic=False)
            for one in FEATURE_BOUNDS
        ),
        Argument(
            "keys",
            "Public values of text columns: a struct of lists by column. All other values are one, 'other'.",
            shown="stated by the owner",
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
            shown="0.1 where lower and upper are left out",
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
    def _layout(cls, given: Mapping[str, object]) -> Layout:
        columns = None if given.get("columns") is None else _names("columns", given["columns"])
        ids = {}
        for part in ("privacy_unit", "row_id"):
            name = given.get(part)
            ids[part] = None if name is None else parameters.text(part, name, hint="Give the name of a column.")
        return Layout("wide", "", columns, None, None, None, ids["row_id"], ids["privacy_unit"])

    @classmethod
    def _fill(cls, given: dict[str, object], stated: dict[str, object], *, of_table: bool) -> None:
        """Fill in the owner's stated values; bounds only where they are by name, as others are of other columns."""
        keys = stated.pop("keys", None)
        if given["keys"] is None and keys:
            given["keys"] = {
                name: values for name, values in parameters.known(dict, keys).items() if values is not None
            } or None
        for bound in ("lower", "upper"):
            if not isinstance(stated.get(bound), Mapping):
                stated.pop(bound, None)
        super()._fill(given, stated, of_table=of_table)

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        given = {**given, **{side: _numbered(given[side]) for side in ("lower", "upper")}}
        own = cls._read(given, "delta", "private_keys", "bounds_share", "report_share")
        bounded = given["lower"] is not None or given["upper"] is not None
        bounds = feature_bounds(given, or_else="Or leave both out: they are drawn.") if bounded else {}
        share = own["bounds_share"]
        if not bounded and share is None:
            share = _BOUNDS_SHARE
        epsilon = EPSILON.read(given)
        if own["private_keys"] and not parameters.known(Fraction, epsilon) <= _LARGEST_EPSILON:
            raise ParameterError("P001", f"epsilon must be at most {_LARGEST_EPSILON} with private_keys. Lower it.")
        target = given.get("target")
        return {
            **own,
            "columns": layout.features,
            "target": None if target is None else parameters.text("target", target, hint="Give the name of a column."),
            "lower": bounds.get("lower"),
            "upper": bounds.get("upper"),
            "keys": None if given["keys"] is None else _keys(given["keys"]),
            "bounds_share": share,
        }

    def _passes(self) -> tuple[Pass, ...]:
        return (Pass(),) * (2 + (self.bounds_share is not None))

    @cached_property
    def noise_part(self) -> TreeNoise:
        """All that is drawn."""
        bounds, report = self.bounds_share or Fraction(0), self.report_share or Fraction(0)
        left = 1 - bounds - report
        if not left > 0:
            raise ParameterError("P045", "bounds_share and report_share leave nothing for the table. Lower one of them.")
        weights = {BOUNDS: bounds, REPORT: report, **{name: left * weight for name, weight in _WEIGHTS.items()}}
        return TreeNoise.of("tree", self.epsilon, self.delta, weights, draws_keys=self.private_keys)

    @cached_property
    def measurement(self) -> Measurement:
        """One part for all steps."""
        return measurement_of(self.noise_part)

    @property
    def unit(self) -> dict[str, Any]:
        """The relation and the rows of a unit."""
        return {"neighbours": self.neighbours, "rows": self.max_rows_per_unit}

    def deviations(self, count: int) -> tuple[float, float, float | None]:
        """Return the standard deviations of the noise: of a cell, of a cell of an edge, of a reported distance."""
        part, unit = self.noise_part, self.unit
        cells = table_sensitivity(count + self.private_keys, **unit) / (2 * part.rho_of(CELLS))
        edges = table_sensitivity(max(1, count - 1), **unit) / (2 * part.rho_of(EDGES))
        report = None
        if self.report_share is not None:
            pairs = max(1, math.comb(count, 2))
            report = math.sqrt(distance_sensitivity(pairs, **unit) / (2 * part.rho_of(REPORT)))
        return math.sqrt(cells), math.sqrt(edges), report

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the smallest share of mu, per row."""
        pairs = max(1, math.comb(count, 2))
        largest = max(table_sensitivity(count + 1, **self.unit), distance_sensitivity(pairs, **self.unit))
        for _, rho in self.noise_part.shares:
            yield floor_root(2 * rho / largest)

    def check_features(self, count: int) -> None:
        """Raise if there are no columns, or too many."""
        if not count:
            raise SourceError("S007", "the source has no column that dp_synthetic takes. Name columns := [...].")
        if count > MOST_COLUMNS:
            raise ParameterError("P026", f"dp_synthetic takes at most {MOST_COLUMNS} columns; got {count}. Name fewer.")

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the call would be."""
        cells, edges, report = self.deviations(n_features)
        out: list[Quantity] = [
            ("cell_std_error", cells, "standard deviation of the noise on a cell of a column, in rows"),
            ("pair_std_error", edges, "that on a cell of a pair, if the tree has all columns"),
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


class TreePass(RowTransform[PairTables]):
    """The last pass: the tables of all pairs, in cells that were united by released counts."""

    ending = ("released",)

    def __init__(self, released: ReleasedColumns) -> None:
        super().__init__(PairTables(released.columns, released.places))
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
        positions, left_out = [], []
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
        told = ", ".join(row.field(position).name for position in left_out[:20])
        call = cls(
            plan,
            names,
            TargetCode(),
            (-1, *positions),
            left_out=f"These columns are left out, because of their type: {told}." if left_out else "",
            kinds=tuple(row.field(position).type for position in positions),
        )
        call.check()
        return call

    def check(self) -> None:
        """Raise if a column lacks bounds or keys, or if noise cannot be drawn."""
        super().check()
        plan, known = self.plan, {fold(name) for name in self.features}
        if plan.target is not None and fold(plan.target) not in known:
            raise SourceError("S002", f"target {show(plan.target)} is not a column of the table. Check the name.")
        _ = self.coded, plan.noise_part

    @cached_property
    def coded(self) -> list[CodedColumn]:
        """The cells of each column as far as they are public; numbers whose bounds are drawn have none yet."""
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
        bounds = self._bounds(name)
        if bounds is None and plan.bounds_share is None:
            raise ParameterError(
                "P003",
                f"lower and upper name no bound of {show(name)}. Give them from domain knowledge, not from the table, "
                "or pay for private ones: bounds_share := 0.1.",
            )
        return CodedColumn(name, spelled, None, False, _grid(numbers, bounds), decimals(numbers) or 0)

    def _bounds(self, name: str) -> tuple[float, float] | None:
        """Return the public bounds of a column; None if it has none."""
        found = []
        for side in (self.plan.lower, self.plan.upper):
            if isinstance(side, float):
                found.append(side)
            elif isinstance(side, Mapping):
                folded = {fold(column): bound for column, bound in side.items()}
                found.append(folded.get(fold(name), math.nan))
            elif side is not None:
                raise ParameterError("P037", "lower and upper must be structs by column, or one number each.")
        if len(found) < 2 or math.isnan(found[0]) or math.isnan(found[1]):
            return None
        return found[0], found[1]

    @cached_property
    def unbounded(self) -> list[int]:
        """Positions of the numbers whose bounds are drawn."""
        return [
            place
            for place, column in enumerate(self.coded)
            if column.grid is None and column.keys is None and not column.draws_keys
        ]

    def start(self) -> Collector:
        """Return the collector of the first pass."""
        if self.plan.bounds_share is None:
            return ColumnCounts(self.coded)
        return MagnitudeHistogram(len(self.unbounded), target=False)

    def collect(self, collector: Any, rows: pa.StructArray, batch: Batch) -> None:
        """Pass a batch of rows to a collector."""
        columns = rows.flatten()
        taken = [columns[position] for position in self.positions[1:]]
        if isinstance(collector, MagnitudeHistogram):
            found = [to_numbers(taken[place]) for place in self.unbounded]
            collector.add(np.empty(len(rows)), np.array(found).reshape(len(found), len(rows)), batch)
        else:
            collector.add_columns(taken)

    def turn(self, collector: Any, progress: Progress) -> Collector:
        """Draw bounds, or the counts of the columns, and return the collector of the next pass."""
        if isinstance(collector, MagnitudeHistogram):
            return ColumnCounts(draw_grids(self, collector.cells.counts))
        return TreePass(draw_columns(self.plan, collector))

    def prepare(self, statistic: TreePass, progress: Progress) -> Callable[[], Json]:
        """Draw and fit now: fitting takes too long for the ledger's transaction."""
        record = draw_table(self.plan, statistic.released, statistic.inner)
        return lambda: record


def _is_taken(kind: pa.DataType) -> bool:
    return is_listed(kind) or number_type(kind) is not None


def _spelled(kind: pa.DataType) -> str:
    """Return a type as SQL spells it; of an ENUM that of its texts."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return _TYPES.get(kind, "VARCHAR" if is_listed(kind) else "DOUBLE")


def _grid(kind: pa.DataType, bounds: tuple[float, float] | None) -> ValueGrid | None:
    """Return the cells of numbers within bounds; None where these are not known."""
    digits = decimals(kind)
    if bounds is None:
        return None
    if digits is None:
        return ValueGrid.of_doubles(*bounds)
    low, high = (Fraction(bound) * 10**digits for bound in bounds)
    return ValueGrid.of_integers(low, high)


def draw_grids(call: SyntheticCall, fine: Sequence[Longs]) -> list[CodedColumn]:
    """Draw the bounds of numbers without public ones; a column whose bounds are undetermined keeps NULL alone.

    Notes
    -----
    - **Guarantee**: zCDP at the rho of this step.
    - **Neighbouring relation**: that of the plan.
    - **Sensitivity**: see `dpsql.mechanisms.prefix_bounds`; the squared mu of the columns add up.
    """
    plan, columns = call.plan, list(call.coded)
    kinds = {place: number_type(call.kinds[place]) for place in call.unbounded}
    rho = plan.noise_part.spend(BOUNDS)
    if not kinds:
        return columns
    cells = [TypedCells.of(kind) for kind in kinds.values()]
    drawn = prefix_bounds(
        [of.counts(counts) for of, counts in zip(cells, fine, strict=True)],
        cells,
        squared_mus=[2 * rho / len(cells)] * len(cells),
        neighbours=plan.neighbours,
        max_rows_per_unit=plan.max_rows_per_unit,
    )
    for (place, kind), found in zip(kinds.items(), drawn, strict=True):
        columns[place] = replace(columns[place], grid=_grid(kind, found.interval))
    return columns


def draw_columns(plan: SyntheticPlan, statistic: ColumnCounts) -> ReleasedColumns:
    """Draw the counts of every column's cells, and with them the keys of columns whose keys are private.

    Notes
    -----
    - **Guarantee**: zCDP at the rho of this step, but for `TreeNoise.key_delta`.
    - **Neighbouring relation**: that of the plan.
    - **Sensitivity**: L2, of a table for each column; and of one more of a single cell, all rows, where keys are
      private: what no key has is what they leave of all rows.
    """
    part, width = plan.noise_part, len(statistic.columns)
    texts = {place: statistic.occurring(place) for place in statistic.texts}
    exact = [
        np.concatenate([counts, texts[place][1]]) if place in texts else counts
        for place, counts in enumerate(statistic.counts)
    ]
    if plan.private_keys:
        exact.append(np.array([statistic.rows]))
    noisy = noisy_tables(np.concatenate(exact), width + plan.private_keys, part.spend(CELLS), **plan.unit)
    parts = np.split(noisy.values, np.cumsum([len(counts) for counts in exact])[:-1])
    whole = [counts for place, counts in enumerate(parts) if place not in texts]
    weights = np.array([1.0 / len(counts) for counts in whole])
    total = max(1.0, float(np.dot([counts.sum() for counts in whole], weights) / weights.sum()))
    columns = list(statistic.columns)
    for place, (names, _) in texts.items():
        if part.key_delta is None:
            raise InternalError("I032", "private keys were to be drawn without their delta. Report it.")
        reach = key_reach(part.epsilon, part.key_delta, len(texts), plan.neighbours, plan.max_rows_per_unit)
        counts = parts[place]
        kept = np.flatnonzero(counts[1:] >= plan.max_rows_per_unit + reach * noisy.sigma)
        held = counts[1:][kept]
        keys = tuple(names[one] for one in kept.tolist())
        columns[place] = replace(columns[place], keys=keys, draws_keys=False)
        parts[place] = np.concatenate([counts[:1], held, [total - counts[0] - held.sum()]])
    most = max(2, math.isqrt(2 * _MOST_CELLS) // width)
    return ReleasedColumns.of(columns, parts[:width], noisy.sigma, total, most)


def draw_table(plan: SyntheticPlan, released: ReleasedColumns, tables: PairTables) -> dict[str, Json]:
    """Draw the tree, its tables and the report, and return the fitted model as JSON values.

    Notes
    -----
    - **Guarantee**: zCDP at the rho of these steps.
    - **Neighbouring relation**: that of the plan.
    - **Sensitivity**: see `dpsql.mechanisms.private_tree`.
    """
    width = len(released.columns)
    names = [fold(column.name) for column in released.columns]
    tree = draw_tree(
        plan.noise_part,
        tables.table,
        [on_simplex(sums, released.total) for sums in released.sums],
        released.total,
        favoured=None if plan.target is None else names.index(fold(plan.target)),
        **plan.unit,
    )
    fit = fitted(released.sums, released.variances, tree, released.total)
    pairs = list(combinations(range(width), 2))
    errors: Doubles | None = None
    sigma: float | None = None
    if plan.report_share is not None and pairs:
        errors, sigma = draw_report(plan, [tables.table(pair) for pair in pairs], [fit.implied(pair) for pair in pairs])
    return synthetic_record(released, tree, fit, errors, sigma, SYSTEM.words(2).tobytes().hex())


def draw_report(plan: SyntheticPlan, exact: Sequence[Longs], model: Sequence[Doubles]) -> tuple[Doubles, float]:
    """Draw the distance of the exact counts of every pair from those of the model, in rows.

    Returns
    -------
    distances : ndarray of float64
    sigma : float
        Standard deviation of their noise.

    Notes
    -----
    - **Guarantee**: zCDP at the rho of this step.
    - **Neighbouring relation**: that of the plan.
    - **Sensitivity**: L2, `distance_sensitivity`.
    """
    found = [
        distance(table, np.rint(counts * ONE).astype(np.int64)) for table, counts in zip(exact, model, strict=True)
    ]
    noisy = gaussian_counts(
        np.array(found, dtype=object),
        squared_sensitivity=distance_sensitivity(len(found), **plan.unit),
        squared_mu=2 * plan.noise_part.spend(REPORT),
        one=ONE,
    )
    return noisy.values, noisy.sigma
