"""AdaSSP: one noisy release of the products of all columns, after private bounds and moments if they are needed."""

from __future__ import annotations

from collections.abc import Callable

from dpsql.contract.fold import Collector, Waiting
from dpsql.contract.json import Json
from dpsql.contract.plan import Pass
from dpsql.functions.regression.least_squares import Columns, LeastSquares
from dpsql.functions.regression.method import KeptFeatures, Moments
from dpsql.mechanisms import ada_ssp
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.statistics.regression import RowMap, RowProducts


class AdaSsp(LeastSquares):
    """AdaSSP."""

    @property
    def passes(self) -> tuple[Pass, ...]:
        """A pass each for bounds, moments and products."""
        return (Pass(),) * (1 + self.draws_bounds + self.standardizes)

    def bounded(self, columns: Columns) -> Collector:
        """Return the collector of the moments, or of the products."""
        if not self.standardizes:
            return Products(columns, columns.mapped)
        if not columns.kept:
            return Waiting(Products(columns, columns.mapped))
        mapped = columns.mapped
        return Moments(
            self.plan,
            columns.kept,
            mapped,
            columns.reach,
            lambda standard: Products(columns, columns.standardised(standard)),
        )


class Products(KeptFeatures[RowProducts]):
    """Exact products of all columns."""

    def __init__(self, columns: Columns, mapped: RowMap) -> None:
        super().__init__(columns.kept, RowProducts(mapped, columns.target))
        self._columns, self._mapped = columns, mapped

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Json]:
        """Draw the noisy products and solve."""
        plan = self._columns.plan
        part: GaussianNoise = plan.measurement["fit"]
        fit = ada_ssp.ada_ssp(
            self.inner.products(),
            radius=self._mapped.radius,
            mu=part.spend("fit"),
            neighbours=plan.neighbours,
            max_rows_per_unit=plan.max_rows_per_unit,
            one=self._mapped.one,
            squares_mu=part.spend("squares") if plan.sampling else None,
        )
        return self._columns.result(fit, self._mapped, self._columns.scales)
