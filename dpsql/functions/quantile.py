"""dp_quantile: private quantiles of one column within public bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

from dpsql.contract import parameters
from dpsql.contract.arguments import (
    COLUMN_BOUNDS,
    EPSILON,
    REQUIRED,
    TARGET,
    Argument,
    Signature,
    integer,
)
from dpsql.contract.call import Call
from dpsql.contract.fold import Collector
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import Quantity, feature_bounds
from dpsql.errors import ParameterError
from dpsql.functions.column import GROUPED_COLUMN, ColumnPlan
from dpsql.kernels.cells import GridCounts
from dpsql.mechanisms.choices import QuantileSelection
from dpsql.mechanisms.quantile import halving_levels, parts_of_a_cell
from dpsql.progress import Progress
from dpsql.statistics.counts import GridHistogram, rank_utility_range

_MOST_CELLS = 1 << 20
_MOST_QUANTILES = 1000


def _quantiles(given: object) -> tuple[str, ...]:
    """Return the quantiles as exact decimals, ascending."""
    items = parameters.list_items(given, most=_MOST_QUANTILES)
    items = (given,) if items is None else items
    hint = "0.5 is the median; give ascending numbers such as [0.25, 0.5, 0.75]."
    checked = [parameters.open_unit_interval("a quantile", item, hint=hint) for item in items]
    if not checked or len(checked) > _MOST_QUANTILES or any(a >= b for a, b in pairwise(checked)):
        raise ParameterError("P029", f"quantiles must be 1 to {_MOST_QUANTILES} ascending numbers. {hint}")
    return tuple(str(quantile) for quantile in checked)


@dataclass(frozen=True, kw_only=True)
class QuantilePlan(ColumnPlan):
    """The checked public arguments of one ``dp_quantile`` call.

    Attributes
    ----------
    quantiles : tuple of str
        Exact decimals in ascending order, each in (0, 1).
    lower, upper : float
        Public bounds of the column.
    cells : int
        Number of equal-width cells between the bounds, at most ``2**20``. A quantile is the midpoint of a cell.
    """

    quantiles: tuple[str, ...]
    lower: float
    upper: float
    cells: int

    function: ClassVar[str] = "dp_quantile"
    arguments: ClassVar[Signature] = Signature(
        TARGET,
        Argument(
            "quantiles",
            "The quantiles to draw: one number between 0 and 1, or up to 1000 in ascending order.",
            0.5,
            check=_quantiles,
        ),
        EPSILON,
        *(replace(one, shown=REQUIRED) for one in COLUMN_BOUNDS),
        integer(
            "cells",
            "Number of cells between the bounds, from 1 to 1048576. A quantile is the midpoint of a cell.",
            1024,
            hint="1024 is the usual value.",
            most=_MOST_CELLS,
        ),
        *GROUPED_COLUMN,
    )

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        return read_grid(given)

    @cached_property
    def levels(self) -> int:
        """Number of rounds of halving; each spends the same share of epsilon."""
        return halving_levels(len(self.quantiles))

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: one exponential mechanism per level."""
        at = tuple(Fraction(quantile) for quantile in self.quantiles)
        return measurement_of(QuantileSelection("quantiles", self.epsilon, at, self.neighbours, self.max_rows_per_unit))

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the call would be, as the error of a quantile in ranks (rows)."""
        ranks = self.ranks
        out: list[Quantity] = [("rank_error", ranks, "rows that the first quantile drawn is off by, in 95 % of calls")]
        if n_rows is not None:
            out.append(("rank_error_share", ranks / n_rows, "that as a share of the rows"))
        needed = self.rows_needed
        meaning = "rows from which that error leaves rows on both sides of the outermost quantile"
        if n_rows is not None and n_rows < needed:
            meaning += f"; with {n_rows:,} rows the noise may put it beyond all rows"
        out.append(("rows_needed", needed, meaning))
        return out

    @property
    def ranks(self) -> float:
        """Rows that the first quantile drawn is off by, in 95 % of calls."""
        middle = Fraction(self.quantiles[len(self.quantiles) // 2])
        spread = rank_utility_range(middle, self.neighbours, whole=True, max_rows_per_unit=self.max_rows_per_unit)
        return rank_error(self.cells, len(self.quantiles), spread, self.epsilon)

    @property
    def rows_needed(self) -> int:
        """Rows from which that error leaves rows on both sides of every quantile."""
        return math.ceil(self.ranks / float(min(min(at, 1 - at) for at in map(Fraction, self.quantiles))))


def read_grid(given: Mapping[str, object]) -> dict[str, object]:
    """Return the checked quantiles, and the bounds and number of the cells."""
    bounds = feature_bounds(given)
    if not all(isinstance(side, float) for side in bounds.values()):
        raise ParameterError("P037", "lower and upper must be one number each: dp_quantile reads one column.")
    return {**bounds, **{name: QuantilePlan.arguments[name].read(given) for name in ("cells", "quantiles")}}


def rank_error(cells: int, count: int, spread: Fraction, epsilon: Fraction) -> float:
    """Return the ranks by which the first of `count` quantiles drawn is off in 5 % of calls.

    A cell r ranks off is exp(-c r) times as likely. With a chance of 95 %, the error is below log(20 cells) / c.
    """
    candidates = cells * parts_of_a_cell(cells, count)
    return math.log(20 * candidates) * float(spread * halving_levels(count) / epsilon)


class QuantileCall(Call):
    """A dp_quantile call, with the column types of its source."""

    plan: QuantilePlan

    def start(self) -> Collector:
        """Return an empty histogram."""
        return GridHistogram(GridCounts(self.plan.lower, self.plan.upper, self.plan.cells))

    def prepare(self, statistic: GridHistogram, progress: Progress) -> Callable[[], Json]:
        """Return the draw of the quantiles."""
        plan = self.plan
        return lambda: draw_quantiles(plan, statistic.cells)


def draw_quantiles(plan: QuantilePlan, cells: GridCounts) -> list[list[float]]:
    """Draw the quantiles; return pairs of quantile and value.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.epsilon``, see `dpsql.mechanisms.quantile.quantiles`.
    """
    part: QuantileSelection = plan.measurement["quantiles"]
    found = part.draw_tied(cells.counts)
    shares = [float(Fraction(quantile)) for quantile in plan.quantiles]
    return [[share, cells.middle(cell)] for share, cell in zip(shares, found, strict=True)]
