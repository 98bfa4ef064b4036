"""An additive model: boosted AdaSSP first, then steps per feature on its residuals.

DuckDB keeps its rows. An engine reads its rows once for bins and the bound of residuals, and once for every round.

The budget of each stage is public: half of the rest after bounds and moments. If the released number of rows is small
for the noise, the linear fit gets the whole rest, and there are no steps: `AdditiveModel.has_steps`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

from dpsql.contract.fold import Collector
from dpsql.contract.gaussian_profile import share_of_mu
from dpsql.contract.json import Json
from dpsql.contract.plan import Pass, Quantity
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.regression.boosted import BoostedAdaSsp, BoostedRows
from dpsql.functions.regression.least_squares import Columns
from dpsql.functions.regression.stage import Finished, FirstWeights, Result, StepStage
from dpsql.mechanisms.ada_ssp import LinearFit
from dpsql.mechanisms.additive import MOST_ROUNDS, VISITS, AdditiveSteps, StepRounds
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.statistics.additive import CellRows, CellWeights, CodedRows, StepRows
from dpsql.statistics.regression import RowMap, Scales

# Share of the linear fit, and shares of the steps: bins, the bound of residuals, and the rounds.
_LINEAR = Fraction(1, 2)
_STEPS = (("bins", Fraction(3, 20)), ("residuals", Fraction(3, 100)), ("steps", Fraction(82, 100)))
# Steps gain more than they cost from this value of rows times mu, over the root of the features and the row limit per
# unit: there the noise on a cell's rows is about twice its rows. `benchmarks/papers/additive_study.py` measures it.
WORTH_STEPS = 300.0
# Part of the share of bounds for ends within public bounds, if only the features or only the target have public bounds.
_FEATURES, _TARGET = Fraction(1, 2), Fraction(1, 5)


def steps_rows_needed(features: int, mu: float) -> float:
    """Return the rows from which there are steps, if a unit is a row and all Gaussian releases spend mu."""
    return WORTH_STEPS * math.sqrt(features) / mu


class AdditiveModel(BoostedAdaSsp):
    """Boosted AdaSSP, and steps on its residuals."""

    @classmethod
    def own_arguments(cls, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Refuse a norm: only a linear model shortens rows to it."""
        if arguments.get("row_norm") is not None:
            raise ParameterError(
                "P045", "row_norm has no effect on the steps of method := 'additive'. Leave it out, or take another."
            )
        return super().own_arguments(arguments)

    @property
    def fit_parts(self) -> tuple[tuple[str, Fraction], ...]:
        """Half for the linear fit, and the rest for the steps."""
        return (("fit", _LINEAR), *((name, part * (1 - _LINEAR)) for name, part in _STEPS))

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes of boosting; on an engine also one for bins and the bound of residuals, one per round of steps."""
        more = 0 if self.plan.engine is None else 1 + VISITS * MOST_ROUNDS
        return (*super().passes, *(Pass(),) * more)

    def has_steps(self, mapped: RowMap) -> bool:
        """Return whether there are steps: if a feature is kept, and the rows suffice or their number is unreleased."""
        features = len(mapped.scales.middle)
        rows = None if mapped.standard is None else mapped.standard.rows
        return features > 0 and (rows is None or rows >= self._rows_needed(features))

    def _rows_needed(self, features: int) -> float:
        """Return the rows from which there are steps."""
        return steps_rows_needed(features, float(self.mu)) * self.plan.max_rows_per_unit

    def spend_fit(self, columns: Columns, mapped: RowMap) -> Fraction:
        """Return the mu of the linear fit, with the mu of the steps if there are none."""
        part: GaussianNoise = self.measurement["fit"]
        if self.has_steps(mapped):
            return self.spend_part(columns, "fit")
        squared = sum((part.spend(name) ** 2 for name, _ in self.fit_parts), Fraction(0))
        return share_of_mu(columns.more * squared / self.mu**2, self.mu)

    def spend_part(self, columns: Columns, name: str) -> Fraction:
        """Spend a part of the fit, with its share of the unspent mu of ends within public bounds; return its mu."""
        part: GaussianNoise = self.measurement["fit"]
        spent = part.spend(name)
        return spent if columns.more == 1 else share_of_mu(columns.more * spent**2 / self.mu**2, self.mu)

    @property
    def narrows_features(self) -> bool:
        """Whether features have public bounds, and the fit standardizes them."""
        return self.standardizes and self.plan.lower is not None

    @property
    def narrows_target(self) -> bool:
        """Whether the target has public bounds, and the number of rows is released."""
        return self.standardizes and self.plan.target_bounds is not None

    @property
    def ends_share(self) -> Fraction:
        """The share of bounds; a part of it if only the features, or only the target, have public bounds."""
        features = self.narrows_features
        if features and self.plan.target_is_bounded:
            return self.plan.bounds_share
        return (
            self.plan.bounds_share * (_FEATURES if features else _TARGET)
            if features or self.narrows_target
            else Fraction(0)
        )

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the expected noise of the linear stage, and the rows from which there are steps."""
        needed = self._rows_needed(max(1, n_features))
        return [
            *super().noise(n_features, n_rows),
            ("steps_rows_needed", needed, "rows from which there are steps, about; with fewer the model is linear"),
        ]

    def bounded(self, columns: Columns) -> Collector:
        """Return the collector of the rows, or on an engine of its first pass after the bounds."""
        return AdditiveRows(columns) if self.plan.engine is None else super().bounded(columns)

    def following(self, columns: Columns, fit: LinearFit, mapped: RowMap, scales: Scales) -> Collector:
        """Return the collector of bins and residuals, or the finished call if there are no steps."""
        stage = RegressionStage(columns, fit, mapped, scales)
        return FirstWeights(stage) if self.has_steps(mapped) else Finished(stage.result(None))


class RegressionStage(StepStage):
    """The additive stage of least squares."""

    rows: StepRows

    def __init__(self, columns: Columns, fit: LinearFit, mapped: RowMap, scales: Scales) -> None:
        self.columns, self.positions = columns, columns.positions
        self.rows = StepRows.of(mapped, scales, fit.coefficients)
        self._fit = fit

    def weights(self) -> CellRows:
        """Return the empty counts of rows per cell, and per size of their residual."""
        return CellRows(self.rows)

    def rounds(self, counted: CellWeights) -> StepRounds:
        """Draw bins and the bound of residuals, and return the rounds."""
        if not isinstance(counted, CellRows):
            raise InternalError("I032", "the counts are of another pass. Report it.")
        plan = self.columns.plan
        method = self.columns.method
        if not isinstance(method, AdditiveModel):
            raise InternalError("I032", "steps follow a fit that has none. Report it.")
        standard = self.rows.mapped.standard
        return StepRounds.draw(
            counted.cells,
            counted.sizes,
            plan.neighbours,
            plan.max_rows_per_unit,
            mus={name: method.spend_part(self.columns, name) for name, _ in _STEPS},
            rows=None if standard is None else standard.rows,
        )

    def result(self, steps: AdditiveSteps | None) -> Callable[[], Json]:
        """Return the released model."""
        unit = self.rows.scales.target_scale * self.columns.call.target_unit
        shapes = [] if steps is None else self.shapes(steps, unit)
        return self.columns.result(self._fit, self.rows.mapped, self.rows.scales, shapes)


class AdditiveRows(BoostedRows):
    """The stored rows: boosting reads them, then the steps."""

    def draw(self, progress: Callable[[float], None]) -> Result:
        """Draw the linear fit, bins and the bound of residuals, and every round of steps."""
        columns = self._columns
        fit, mapped, scales = self.fitted(lambda done: progress(done / 2), last=False)
        stage = RegressionStage(columns, fit, mapped, scales)
        if not (isinstance(columns.method, AdditiveModel) and columns.method.has_steps(mapped)):
            return stage.result(None)
        rows = CodedRows(stage.rows)
        for quantised, target in self.inner.drained():
            rows.add_quantised(quantised, target)
        return stage.draw(rows, progress)
