"""The plan of dp_synthetic: its arguments, what it spends, and how noisy it is."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

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
from dpsql.contract.keys import key_text
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.parameters import FrozenMapping, Side, fold, show
from dpsql.contract.plan import Pass, Plan, Quantity
from dpsql.errors import ParameterError, SourceError
from dpsql.mechanisms.private_tree import (
    BOUNDS,
    CELLS,
    CROWDS,
    EDGES,
    GRAINS,
    REPORT,
    TREE,
    VALUES,
    TreeNoise,
    distance_sensitivity,
    floor_root,
    most_tables,
    table_sensitivity,
)

# A release keeps a table for each pair on its tree, and a number for each pair.
MOST_COLUMNS = 100
_MOST_KEYS = 10_000
# What each step gets of rho that bounds, crowds and the report leave.
_WEIGHTS = {
    CELLS: Fraction(28, 100),
    GRAINS: Fraction(2, 100),
    VALUES: Fraction(8, 100),
    TREE: Fraction(10, 100),
    EDGES: Fraction(52, 100),
}
_BOUNDS_SHARE = Fraction(1, 10)
# Of what bounds and the report leave: what tells within public bounds where the values crowd.
_CROWDS_SHARE = Fraction(3, 100)
# With drawn keys under 'replace' the chance of a failure grows with exp(epsilon).
_LARGEST_EPSILON = 100


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
    keys = {}
    for name, values in given.items():
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
        return (Pass(),) * 3

    @cached_property
    def noise_part(self) -> TreeNoise:
        """All that is drawn."""
        bounds, report = self.bounds_share or Fraction(0), self.report_share or Fraction(0)
        left = 1 - bounds - report
        if not left > 0:
            raise ParameterError(
                "P045", "bounds_share and report_share leave nothing for the table. Lower one of them."
            )
        crowds = left * _CROWDS_SHARE if self.lower is not None or self.upper is not None else Fraction(0)
        weights = {
            BOUNDS: bounds,
            CROWDS: crowds,
            REPORT: report,
            **{name: (left - crowds) * weight for name, weight in _WEIGHTS.items()},
        }
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
        """Return how noisy the call would be."""
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
