"""Fitting a classifier: rows that are kept, or on an engine one pass for each step of the solver; then maybe steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.call import Call
from dpsql.contract.fold import Collector
from dpsql.contract.json import Json
from dpsql.contract.measurement import Draw, measurement_of
from dpsql.errors import InternalError
from dpsql.functions.regression.logistic_plan import LogisticPlan
from dpsql.functions.regression.method import PART, KeptFeatures
from dpsql.functions.regression.stage import Finished, FirstWeights, Result, StepStage
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.mechanisms.additive import AdditiveSteps, StepRounds
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.mechanisms.objective_perturbation import PerturbedFit, PerturbedObjective
from dpsql.progress import Progress
from dpsql.statistics.additive import CellWeights
from dpsql.statistics.logistic_rows import Scaling, SignedFeatures, StepSums
from dpsql.statistics.score_rows import LabelledFeatures, ScoreRows


class Classifier:
    """The fit of a call, once its features and the map of its rows are known.

    Parameters
    ----------
    plan : LogisticPlan
    call : Call
        With this plan.
    kept : sequence of int
        Positions of the features that are fitted.
    unclear : sequence of str
        Features whose bounds are not clear.
    scaling : Scaling
    rows : float or None
        Rows, released before.
    """

    def __init__(
        self,
        plan: LogisticPlan,
        call: Call,
        kept: Sequence[int],
        unclear: Sequence[str],
        scaling: Scaling,
        rows: float | None,
    ) -> None:
        self.plan, self.kept, self.scaling = plan, list(kept), scaling
        self._call, self._unclear = call, list(unclear)
        self._noise = plan.calibrated(len(self.kept))
        self.has_steps = plan.has_steps(len(self.kept), rows)

    def start(self) -> Collector:
        """Return the collector of the rows, or on an engine of its first pass."""
        if self.plan.engine is not None:
            return FitStep(self)
        return ScoredRows(self) if self.has_steps else LabelledRows(self)

    @property
    def _part(self) -> PerturbedObjective:
        part: PerturbedObjective = self.plan.measurement["coefficients"]
        return part

    def drawn(self, rows: SignedFeatures | LabelledFeatures, progress: Progress) -> NDArray[np.float64]:
        """Draw the coefficients of kept rows."""
        return self._part.draw(rows.signed, self._noise, tick=progress.tick)

    def begin(self) -> PerturbedFit:
        """Begin a fit that asks for sums at coefficients step by step."""
        return self._part.start(1 + len(self.kept), self._noise)

    def following(self, coefficients: NDArray[np.float64]) -> Collector:
        """Return the first pass after the solver's end on an engine."""
        if self.has_steps:
            return FirstWeights(ScoreStage(self, coefficients))
        return Finished(self.result(coefficients))

    def result(self, drawn: NDArray[np.float64], shapes: Sequence[Mapping[str, Json] | None] = ()) -> Draw:
        """Return the released model, and what was spent on it; `shapes` has the steps of each feature that is kept."""
        scaling, features = self.scaling, self._call.features
        coefficients = np.zeros(1 + len(features))
        coefficients[[0, *(1 + place for place in self.kept)]] = scaling.unmapped(drawn)
        bounds: list[Json] = [None] * len(features)
        for place, pair in zip(self.kept, scaling.mapped.counted(scaling.low, scaling.high), strict=True):
            bounds[place] = list(pair)
        steps: list[Json] = [None] * len(features)
        for place, shape in zip(self.kept, shapes or [None] * len(self.kept), strict=True):
            steps[place] = shape
        left_out = [name for name, pair in zip(features, bounds, strict=True) if pair is None]
        result: dict[str, Json] = {
            "kind": "logistic_regression",
            "method": "additive" if self.plan.is_additive else "objective_perturbation",
            "terms": ["intercept", *features],
            "elements": None if self._call.elements is None else list(self._call.elements),
            "coefficients": coefficients.tolist(),
            "std_errors": None,
            "bounds": bounds,
            "levels": list(self._call.levels),
            "regularization": float(self._noise.regularization),
            **({"undetermined": left_out} if left_out else {}),
            **({"unclear": self._unclear} if self._unclear else {}),
            **({"steps": steps} if any(steps) else {}),
        }
        spent = self._part.spent(self._noise)
        gaussian = self.plan.gaussian_part if self.has_steps else self.plan.scaling_part
        return Draw(measurement_of(spent) if gaussian is None else measurement_of(gaussian, spent), lambda: result)


class ScoreStage(StepStage):
    """The additive stage of a classifier, once its linear fit is drawn."""

    rows: ScoreRows

    def __init__(self, fit: Classifier, coefficients: NDArray[np.float64]) -> None:
        self.kept, self.rows = fit.kept, ScoreRows.of(fit.scaling, coefficients)
        self._fit, self._coefficients = fit, coefficients

    def weights(self) -> CellWeights:
        """Return the empty weights per cell."""
        return CellWeights(self.rows)

    def rounds(self, counted: CellWeights) -> StepRounds:
        """Draw the bins, and return the rounds."""
        plan = self._fit.plan
        part: GaussianNoise = plan.measurement[PART]
        return StepRounds.of_scores(
            counted.cells,
            plan.neighbours,
            plan.max_rows_per_unit,
            mus={name: part.spend(name) for name in ("bins", "steps")},
        )

    def result(self, steps: AdditiveSteps | None) -> Draw:
        """Return the released model."""
        return self._fit.result(self._coefficients, () if steps is None else self.shapes(steps, FIXED_POINT_ONE))


class LabelledRows(KeptFeatures[SignedFeatures]):
    """Rows multiplied by their label, of the features that have bounds; the solver reads them in memory."""

    def __init__(self, fit: Classifier) -> None:
        super().__init__(fit.kept, SignedFeatures(fit.scaling))
        self._fit = fit

    def draw(self, progress: Progress) -> Draw:
        """Draw the model."""
        return self._fit.result(self._fit.drawn(self.inner, progress))


class ScoredRows(KeptFeatures[LabelledFeatures]):
    """Rows with their label, of the features that have bounds; the solver reads them in memory, and then the steps."""

    def __init__(self, fit: Classifier) -> None:
        super().__init__(fit.kept, LabelledFeatures(fit.scaling))
        self._fit = fit

    def draw(self, progress: Progress) -> Result:
        """Draw the linear fit, the bins and every round of steps."""
        stage = ScoreStage(self._fit, self._fit.drawn(self.inner, progress))
        return stage.draw(self.inner.given_up(stage.rows), progress)


class FitStep(KeptFeatures[StepSums]):
    """A step of the solver on an engine: one pass over the rows, at coefficients that follow from the passes before.

    Parameters
    ----------
    fit : Classifier
    at : list of int, optional
        The coefficients, by default zeros.
    run : PerturbedFit, optional
        The solver, once it has begun: after the first pass.
    """

    ending = ("_fit", "_run")

    def __init__(self, fit: Classifier, at: list[int] | None = None, run: PerturbedFit | None = None) -> None:
        super().__init__(fit.kept, StepSums(fit.scaling, at or [0] * (1 + len(fit.kept))))
        self._fit, self._run = fit, run

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Take a step; at the solver's end, draw."""
        run = self._run
        if run is None:
            run = self._fit.begin()
            next(run)  # the first coefficients are zeros
        try:
            at = run.send(self.inner.sums)
        except StopIteration as end:
            return self._fit.following(end.value)
        return FitStep(self._fit, at, run)

    def draw(self, progress: Callable[[float], None]) -> Result:
        """Return the model, drawn after the last pass.

        Raises
        ------
        InternalError
            I022: the solver would need another pass.
        """
        last = self.turn(progress)
        if not isinstance(last, Finished):
            raise InternalError("I022", "the fit did not converge. Raise regularization.")
        return last.draw(progress)
