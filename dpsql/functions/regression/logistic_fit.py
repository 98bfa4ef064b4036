"""Fitting a classifier: rows that are kept, or on an engine one pass for each step of the solver; then maybe steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.call import Call
from dpsql.contract.fold import Collector
from dpsql.contract.json import Json
from dpsql.contract.measurement import Draw, exchange
from dpsql.errors import InternalError
from dpsql.functions.regression.logistic_plan import BINS, STEPS, LogisticPlan
from dpsql.functions.regression.method import KeptFeatures
from dpsql.functions.regression.stage import Finished, FirstWeights, Result, StepStage
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.mechanisms.additive import AdditiveSteps, StepRounds
from dpsql.mechanisms.objective_perturbation import PerturbedFit
from dpsql.progress import Progress
from dpsql.statistics.additive import CellWeights
from dpsql.statistics.logistic_rows import Scaling, SignedFeatures, StepSums
from dpsql.statistics.score_rows import LabelledFeatures, ScoreRows


def choose(plan: LogisticPlan, *, steps: bool, ends: Fraction = Fraction(0)) -> None:
    """Let the running call draw what moments decided, in place of what was planned."""
    if plan.first_choice is None:
        raise InternalError("I032", "a fit that has no choice was to choose. Report it.")
    exchange(plan.first_choice, plan.choice(steps=steps, ends=ends))


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
    has_steps : bool
        Whether steps follow the linear fit.
    ends : Fraction
        Share of epsilon and delta that was spent on ends of features within their public bounds.
    """

    def __init__(
        self,
        plan: LogisticPlan,
        call: Call,
        kept: Sequence[int],
        unclear: Sequence[str],
        scaling: Scaling,
        has_steps: bool,
        ends: Fraction = Fraction(0),
    ) -> None:
        self.plan, self.kept, self.scaling = plan, list(kept), scaling
        self._call, self._unclear = call, list(unclear)
        self.has_steps = has_steps
        self.ends = ends
        self._noise = plan.calibrated(len(self.kept), steps=has_steps, ends=ends)
        self._part = plan.coefficients(has_steps, ends)

    def start(self) -> Collector:
        """Return the collector of the rows, or on an engine of its first pass."""
        if self.plan.engine is not None:
            return FitStep(self)
        return ScoredRows(self) if self.has_steps else LabelledRows(self)

    def drawn(self, rows: SignedFeatures | LabelledFeatures, progress: Progress) -> NDArray[np.float64]:
        """Draw the coefficients of kept rows."""
        self._choose()
        return self._part.draw(rows.signed, self._noise, tick=progress.tick)

    def begin(self) -> PerturbedFit:
        """Begin a fit that asks for sums at coefficients step by step."""
        self._choose()
        return self._part.start(1 + len(self.kept), self._noise)

    def _choose(self) -> None:
        """Give the linear fit what the steps would have had, where there are none. With ends this was done before."""
        if self.plan.is_additive and not self.has_steps and not self.ends:
            choose(self.plan, steps=False)

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
        more = self.has_steps or self.ends
        spent = self.plan.choice(steps=self.has_steps, ends=self.ends) if more else self._part.spent(self._noise)
        return Draw(self.plan.after_scaling(spent), lambda: result)


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
        part = plan.steps_after(self._fit.ends)
        if part is None:
            raise InternalError("I032", "a linear fit was to have steps. Report it.")
        return StepRounds.of_scores(
            counted.cells,
            plan.neighbours,
            plan.max_rows_per_unit,
            mus={name: part.spend(name) for name in (BINS, STEPS)},
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
