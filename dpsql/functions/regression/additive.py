"""An additive model: boosted AdaSSP first, then steps per feature on its residuals, read by the same two ways.

DuckDB's rows are kept, as one byte per feature; an engine reads its rows once for bins and the bound of residuals, and
once for every round.

What each stage gets is public: half of what is left after bounds and moments. Where the rows are few for the noise, by
their released number, the linear fit gets all of it, and there are no steps: `AdditiveModel.has_steps`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np

from dpsql.contract.fold import Collector, Ignoring
from dpsql.contract.gaussian_profile import share_of_mu
from dpsql.contract.json import Json
from dpsql.contract.plan import Pass, Quantity
from dpsql.errors import ParameterError
from dpsql.functions.regression.boosted import BoostedAdaSsp, BoostedRows
from dpsql.functions.regression.least_squares import Columns
from dpsql.functions.regression.method import KeptFeatures
from dpsql.mechanisms.ada_ssp import LinearFit
from dpsql.mechanisms.additive import MOST_ROUNDS, VISITS, AdditiveSteps, StepRounds
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.statistics.additive import CellRows, CodedRows, ResidualSums, StepRows
from dpsql.statistics.regression import RowMap, Scales

# Share of the linear fit, and shares of the steps: bins, the bound of residuals, and the rounds.
_LINEAR = Fraction(1, 2)
_STEPS = (("bins", Fraction(3, 20)), ("residuals", Fraction(3, 100)), ("steps", Fraction(82, 100)))
# Rows times mu, over the root of the features and per row of a unit, from which steps tell more than they cost: where
# the noise on a cell's rows is some twice the rows in it. `benchmarks/papers/additive_study.py` measures it.
WORTH_STEPS = 300.0


def steps_rows_needed(features: int, mu: float) -> float:
    """Return from how many rows there are steps, where a unit is a row and all Gaussian releases spend mu."""
    return WORTH_STEPS * math.sqrt(features) / mu


class AdditiveModel(BoostedAdaSsp):
    """Boosted AdaSSP, and steps on its residuals."""

    @classmethod
    def own_arguments(cls, given: Mapping[str, object]) -> Mapping[str, object]:
        """Refuse a norm, to which rows of a linear model alone are shortened."""
        if given.get("row_norm") is not None:
            raise ParameterError(
                "P045", "row_norm has no effect on the steps of method := 'additive'. Leave it out, or take another."
            )
        return super().own_arguments(given)

    @property
    def fit_parts(self) -> tuple[tuple[str, Fraction], ...]:
        """A half for the linear fit, and the rest for the steps."""
        return (("fit", _LINEAR), *((name, part * (1 - _LINEAR)) for name, part in _STEPS))

    @property
    def passes(self) -> tuple[Pass, ...]:
        """Those of boosting; on an engine one for bins and the bound of residuals, and one for each round of steps."""
        more = 0 if self.plan.engine is None else 1 + VISITS * MOST_ROUNDS
        return (*super().passes, *(Pass(),) * more)

    def has_steps(self, mapped: RowMap) -> bool:
        """Whether there are steps: always where the number of rows was not released, and some feature is kept."""
        features = len(mapped.scales.middle)
        rows = None if mapped.standard is None else mapped.standard.rows
        return features > 0 and (rows is None or rows >= self._rows_needed(features))

    def _rows_needed(self, features: int) -> float:
        """Return from how many rows there are steps."""
        return steps_rows_needed(features, float(self.mu)) * self.plan.max_rows_per_unit

    def spend_fit(self, mapped: RowMap) -> Fraction:
        """Return the mu of the linear fit: that of the steps, too, where there are none."""
        part: GaussianNoise = self.measurement["fit"]
        if self.has_steps(mapped):
            return part.spend("fit")
        squared = sum((part.spend(name) ** 2 for name, _ in self.fit_parts), Fraction(0))
        return share_of_mu(squared / self.mu**2, self.mu)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the linear stage would be, and from how many rows there are steps."""
        needed = self._rows_needed(max(1, n_features))
        return [
            *super().noise(n_features, n_rows),
            ("steps_rows_needed", needed, "rows from which there are steps, about; with fewer the model is linear"),
        ]

    def bounded(self, columns: Columns) -> Collector:
        """Return the collector of the rows, or on an engine of its first pass after the bounds."""
        return AdditiveRows(columns) if self.plan.engine is None else super().bounded(columns)

    def following(self, columns: Columns, fit: LinearFit, mapped: RowMap, scales: Scales) -> Collector:
        """Return the collector of bins and residuals; of nothing where there are no steps."""
        stage = StepStage(columns, fit, mapped, scales)
        return BinsAndResiduals(stage) if self.has_steps(mapped) else Finished(stage.result(None))


class StepStage:
    """The additive stage of a call, once its linear fit is drawn.

    Attributes
    ----------
    columns : Columns
    rows : StepRows
    """

    def __init__(self, columns: Columns, fit: LinearFit, mapped: RowMap, scales: Scales) -> None:
        self.columns = columns
        self.rows = StepRows.of(mapped, scales, fit.coefficients)
        self._fit = fit

    def rounds(self, counted: CellRows) -> StepRounds:
        """Draw bins and the bound of residuals, and return the rounds."""
        plan = self.columns.plan
        part: GaussianNoise = plan.measurement["fit"]
        standard = self.rows.mapped.standard
        return StepRounds.drawn(
            counted.cells,
            counted.sizes,
            plan.neighbours,
            plan.max_rows_per_unit,
            mus={name: part.spend(name) for name, _ in _STEPS},
            rows=None if standard is None else standard.rows,
        )

    def result(self, steps: AdditiveSteps | None) -> Callable[[], Json]:
        """Return the released model."""
        shapes = [] if steps is None else self._shapes(steps)
        return self.columns.result(self._fit, self.rows.mapped, self.rows.scales, shapes)

    def _shapes(self, steps: AdditiveSteps) -> list[Mapping[str, Json] | None]:
        """Return each feature's steps in the units of the columns; None for a feature without any."""
        unit = self.rows.scales.target_scale * self.columns.call.target_unit
        found: list[Mapping[str, Json] | None] = []
        for edges, values, errors in zip(self.rows.edges, steps.values, steps.std_errors, strict=True):
            starts = np.flatnonzero(np.diff(values) != 0.0)
            first = [0, *(starts + 1).tolist()]
            shape: Mapping[str, Json] = {
                "edges": edges[starts].tolist(),
                "values": (values[first] / unit).tolist(),
                "std_errors": (errors[first] / unit).tolist(),
            }
            found.append(shape if values.any() else None)
        return found


class AdditiveRows(BoostedRows):
    """The stored rows, which boosting reads and then the steps."""

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Json]:
        """Draw the linear fit, bins and the bound of residuals, and every round of steps."""
        columns = self._columns
        fit, mapped, scales = self.fitted(lambda done: progress(done / 2), last=False)
        stage = StepStage(columns, fit, mapped, scales)
        if not (isinstance(columns.method, AdditiveModel) and columns.method.has_steps(mapped)):
            return stage.result(None)
        kept, counted = CodedRows(stage.rows), CellRows(stage.rows)
        for quantised, target in self.inner.drained():
            kept.add_quantised(quantised, target)
        kept.into(counted)
        rounds = stage.rounds(counted)
        total = rounds.left
        while rounds.left:
            sums = ResidualSums(stage.rows, rounds.steps, rounds.places)
            kept.into(sums)
            rounds.take(sums.sums())
            progress(1 - rounds.left / total / 2)
        return stage.result(rounds.result())


class BinsAndResiduals(KeptFeatures[CellRows]):
    """The steps on an engine, before their first round."""

    ending = ("_stage",)

    def __init__(self, stage: StepStage) -> None:
        super().__init__(stage.columns.kept, CellRows(stage.rows))
        self._stage = stage

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw bins and the bound of residuals."""
        return _round(self._stage, self._stage.rounds(self.inner))


class StepRound(KeptFeatures[ResidualSums]):
    """A round of steps on an engine: one pass over the rows, with the steps that the rounds before released."""

    ending = ("_stage", "_rounds")

    def __init__(self, stage: StepStage, rounds: StepRounds) -> None:
        super().__init__(stage.columns.kept, ResidualSums(stage.rows, rounds.steps, rounds.places))
        self._stage, self._rounds = stage, rounds

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw this round, and begin the next."""
        self._rounds.take(self.inner.sums())
        return _round(self._stage, self._rounds)

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Json]:
        """Draw the last round."""
        self._rounds.take(self.inner.sums())
        return self._stage.result(self._rounds.result())


def _round(stage: StepStage, rounds: StepRounds) -> Collector:
    """Return the next round, or what is left of a call that has no more."""
    return StepRound(stage, rounds) if rounds.left else Finished(stage.result(rounds.result()))


class Finished(Ignoring):
    """The passes that are left out once the model is drawn."""

    def __init__(self, result: Callable[[], Json]) -> None:
        self._result = result

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Return itself."""
        return self

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Json]:
        """Return the model."""
        return self._result
