"""dp_logistic_regression: a linear classifier by objective perturbation, and maybe steps per feature on its scores.

The fit keeps the rows in memory, or on an engine makes one pass over them for each step of the solver; steps may
follow. The module has the arguments of the function, and splits its budget between the parts.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract import parameters
from dpsql.contract.arguments import (
    CLASSES,
    COLUMNS,
    EPSILON,
    FEATURE_BOUNDS,
    OPTIONAL_DELTA,
    PROTECTION,
    Argument,
    Signature,
    double,
    flag,
    share,
    word,
)
from dpsql.contract.call import Call
from dpsql.contract.events import Approximate
from dpsql.contract.fold import Collector, Waiting
from dpsql.contract.gaussian_profile import share_of_mu, usable_mu
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout, feature_bounds
from dpsql.contract.measurement import Draw, Measurement, Part, Within, exchange, measurement_of
from dpsql.contract.parameters import Side, narrow
from dpsql.contract.plan import Pass, Plan, Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.regression.method import (
    BOUNDS,
    MOMENTS,
    PART,
    Fitting,
    Interval,
    KeptFeatures,
    Magnitude,
    Magnitudes,
    Moments,
    Spreads,
    bounds_needed,
    refuse_too_many,
    scaling_numbers,
)
from dpsql.functions.regression.stage import Finished, FirstWeights, Result, StepStage
from dpsql.kernels.cells import TypedCells, is_few
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.logistic import MOST_FACTORISED
from dpsql.mechanisms.additive import MOST_ROUNDS, VISITS, AdditiveSteps, StepRounds
from dpsql.mechanisms.gaussian import MOST_COORDINATES, GaussianNoise
from dpsql.mechanisms.objective_perturbation import (
    FINE_EPSILON,
    ObjectiveNoise,
    PerturbedFit,
    PerturbedObjective,
    calibrate,
)
from dpsql.mechanisms.prefix_bounds import ColumnBounds, draw_bounds, ends_factor, far_bounds
from dpsql.mechanisms.prefix_bounds import narrowed as narrow_bounds
from dpsql.progress import Progress
from dpsql.statistics.additive import CellWeights
from dpsql.statistics.logistic_rows import Scaling, SignedFeatures, StepSums
from dpsql.statistics.regression import DEVIATIONS, Standard
from dpsql.statistics.score_rows import LabelledFeatures, ScoreRows

MOST_FEATURES = 20_000
# With steps a feature has 128 cells, and 32 bins in each of two visits.
_MOST_WITH_STEPS = 2_000
# Default for the long layout: rows with up to this many features at their bounds are not scaled down.
_LONG_FEATURES = 10
# From this norm on, fixed point resolves rows finely enough.
_LEAST_NORM = 2.0**-10
# Most steps of the solver on an engine, each of which reads the rows; ten or so are usual.
MOST_STEPS = 300
# Standardised rows are as long as one deviation in every feature, which has the least noise. A shorter row biases the
# coefficients, so from this epsilon on rows may be longer, up to the bound on any row.
_PLENTY = 4.0
# Shares of the budget after bounds and moments: linear fit and steps; the steps' share is divided into bins and rounds.
_LINEAR = Fraction(1, 2)
_BINS = Fraction(3, 20)
# Least rows times the mu of the steps, over the root of the features and per row of a unit, for steps.
# `benchmarks/papers/additive_classifiers.py` measures it.
WORTH_STEPS = 300.0
LINEAR, ADDITIVE = "linear", "additive"
# The Gaussian releases of the steps.
BINS, STEPS = "bins", "steps"
_norm_hint = "Give the longest row of features that is to count in full, or leave it out."
# The Gaussian release of the ends of features within their public bounds, and the resolution of its share.
ENDS = "ends"
_PARTS = 1000
_NO_ENDS = Fraction(0)
_BOUNDS = Fraction(1, 4)
_share = partial(share, hint="0.1 is usual.")
_ridge_hint = "Give a public number, or leave it out for the usual value."


def _row_norm(row_norm: object) -> float:
    norm = parameters.positive_float("row_norm", row_norm, hint=_norm_hint)
    parameters.within("row_norm", norm, _LEAST_NORM, None, hint=_norm_hint)
    return norm


@dataclass(frozen=True, kw_only=True)
class LogisticPlan(Plan):
    """The checked public arguments of one ``dp_logistic_regression`` call; `arguments` says what each means."""

    delta: Fraction | None
    method: str
    lower: Side | None
    upper: Side | None
    row_norm: float | None
    regularization: float | None
    standardize: bool
    bounds_share: Fraction
    moments_share: Fraction

    function: ClassVar[str] = "dp_logistic_regression"
    target_needs_bounds: ClassVar[bool] = False
    target_is_label: ClassVar[bool] = True
    arguments: ClassVar[Signature] = Signature(
        *COLUMNS,
        EPSILON,
        OPTIONAL_DELTA,
        word(
            "method",
            "A linear fit with all of the budget, or with half of it, and steps per feature with the other half. "
            "'additive' needs delta, and features in columns or vectors.",
            (LINEAR, ADDITIVE),
            LINEAR,
        ),
        *FEATURE_BOUNDS,
        Argument(
            "row_norm",
            "Norm to which longer rows of features are scaled down, at least 2**-10. Each feature is then measured in "
            "half widths of its bounds, and nothing is standardized.",
            default_text="sqrt(features), in standard deviations; without delta none is shortened",
            check=_row_norm,
            kind="Number",
        ),
        double(
            "regularization",
            "Ridge penalty: weight of the squared coefficients against the loss summed over all rows, above 0.",
            default_text="chosen from the public arguments",
            hint=_ridge_hint,
        ),
        flag(
            "standardize",
            "Measure features in their private standard deviations; needs delta, not for long rows.",
            True,
        ),
        _share("bounds_share", "Share of the budget spent on private bounds, between 0 and 1.", 0.25),
        _share("moments_share", "Share of the budget spent on means and standard deviations, between 0 and 1.", 0.1),
        CLASSES,
        *PROTECTION,
    )
    names_after: ClassVar[str | None] = "delta"

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own: dict[str, object] = {**cls._read(arguments, "row_norm", "delta", "method"), "lower": None, "upper": None}
        if own["method"] == ADDITIVE and own["delta"] is None:
            raise ParameterError(
                "P046",
                "method := 'additive' needs delta: the noise of its steps is Gaussian. Give delta, such as 1e-6.",
            )
        if own["method"] == ADDITIVE and layout.kind == "long":
            raise ParameterError(
                "P045", "method := 'additive' has no steps for features of long rows. Leave it out, or give columns."
            )
        if layout.kind == "long" and layout.value is None and arguments["lower"] is arguments["upper"] is None:
            arguments = {**arguments, "lower": 0, "upper": 1}  # a feature is present, or not
        if arguments["lower"] is not None or arguments["upper"] is not None:
            own |= feature_bounds(arguments)
        elif own["delta"] is None or layout.kind == "long":
            other = ", or delta, such as 1e-6, to draw private ones" if layout.kind != "long" else ""
            raise ParameterError("P003", f"{cls.function} needs lower and upper, from domain knowledge{other}.")
        own |= cls._read(arguments, "regularization", "standardize", "bounds_share", "moments_share")
        if not narrow(Fraction, own["bounds_share"]) + narrow(Fraction, own["moments_share"]) < 1:
            raise ParameterError("P051", "bounds_share and moments_share must be below 1 together. Lower one of them.")
        return own

    def check_features(self, count: int) -> None:
        """Raise if there are too many features."""
        refuse_too_many(self.function, count, _MOST_WITH_STEPS if self.is_additive else MOST_FEATURES)
        if self.engine is not None and count >= MOST_FACTORISED:
            raise ParameterError(
                "P073",
                f"on an engine {self.function} takes at most {MOST_FACTORISED - 1} features; got {count}. "
                "Select some first, and give features := release('the name of that release').",
            )
        counts = count if self.draws_bounds else 0, count if self.standardizes else 0
        if scaling_numbers(*counts) > MOST_COORDINATES:
            raise ParameterError(
                "P026",
                f"bounds of {count} features are more noisy numbers than one call releases. "
                "Give bounds, or take fewer features.",
            )

    def check_drawable(self, count: int) -> None:
        """Raise if no perturbation meets the guarantee, or if a part of the budget is too small to draw."""
        super().check_drawable(count)
        self.calibrated(count, steps=self.is_additive)

    def calibrated(self, count: int, *, steps: bool = False, ends: Fraction = _NO_ENDS) -> ObjectiveNoise:
        """Return the perturbation for `count` features, with steps or without, and with drawn ends or without."""
        return calibrate(
            *self.objective(steps, ends),
            width=count + 1,
            neighbours=self.neighbours,
            max_rows_per_unit=self.max_rows_per_unit,
            regularization=self.regularization,
        )

    @cached_property
    def public_arguments(self) -> dict[str, Json]:
        """Return the stored arguments, without those that this call does not use."""
        unused = {
            "standardize": not self.standardizes,
            "moments_share": not self.standardizes,
            "bounds_share": not self.draws_bounds and not (self.may_narrow and self.bounds_share != _BOUNDS),
            "method": not self.is_additive,  # earlier versions recorded calls without it
        }
        return {name: value for name, value in super().public_arguments.items() if not unused.get(name)}

    @property
    def is_additive(self) -> bool:
        """Return whether steps follow the linear fit, if there are enough rows."""
        return self.method == ADDITIVE

    @property
    def draws_bounds(self) -> bool:
        """Return whether the bounds of the features are private."""
        return self.lower is None

    @property
    def standardizes(self) -> bool:
        """Return whether rows are measured in private standard deviations of their features."""
        return self.standardize and self.delta is not None and not self.about_zero

    def _passes(self) -> tuple[Pass, ...]:
        """Return a pass each for bounds, moments and the fit.

        An engine has one pass for every step of the solver, one for the weights of cells, and one for each round of
        steps.
        """
        rounds = 1 + VISITS * MOST_ROUNDS if self.is_additive else 0
        steps = (Pass(),) if self.engine is None else (Pass(may_stop=True),) * (MOST_STEPS + rounds)
        return (Pass(),) * (self.draws_bounds + self.standardizes) + steps

    @cached_property
    def scaling_share(self) -> Fraction:
        """Return the share of epsilon and delta for bounds and moments; 0 without them."""
        moments = self.moments_share if self.standardizes else Fraction(0)
        return moments + (self.bounds_share if self.draws_bounds else 0)

    @property
    def rest(self) -> tuple[Fraction, Fraction | None]:
        """Return the epsilon and delta that bounds and moments leave."""
        rest = 1 - self.scaling_share
        return self.epsilon * rest, None if self.delta is None else self.delta * rest

    def objective(self, steps: bool, ends: Fraction = _NO_ENDS) -> tuple[Fraction, Fraction | None]:
        """Return epsilon and delta of the coefficients, with steps or without, and with drawn ends or without."""
        epsilon, delta = self._remainder(ends)
        share = _LINEAR if steps else Fraction(1)
        return epsilon * share, None if delta is None else delta * share

    def _remainder(self, ends: Fraction) -> tuple[Fraction, Fraction | None]:
        """Return the epsilon and delta that bounds, moments and ends leave."""
        epsilon, delta = self.rest
        return epsilon - self.epsilon * ends, None if self.delta is None or delta is None else delta - self.delta * ends

    def coefficients(self, steps: bool, ends: Fraction = _NO_ENDS) -> PerturbedObjective:
        """Return the part that draws the coefficients, with steps or without."""
        epsilon, delta = self.objective(steps, ends)
        return PerturbedObjective("coefficients", epsilon, delta or Fraction(0))

    @property
    def may_narrow(self) -> bool:
        """Return whether the call may draw ends of features within public bounds that are far too wide."""
        return self.standardizes and not self.draws_bounds

    def ends_share(self, far: int, count: int) -> Fraction:
        """Return the largest share of epsilon and delta for the ends of `far` of `count` features.

        Each end gets the mu that it would have without public bounds: mu squared is proportional to the number of
        features.
        """
        return self.bounds_share * Fraction(math.ceil(math.sqrt(far / count) * _PARTS), _PARTS)

    def ends_part(self, ends: Fraction) -> GaussianNoise:
        """Return the part that draws the ends of features within their public bounds."""
        return _gaussian(ENDS, self.epsilon * ends, (self.delta or Fraction(0)) * ends, {BOUNDS: Fraction(1)})

    @cached_property
    def scaling_part(self) -> GaussianNoise | None:
        """Return the part that draws bounds and moments; None without both."""
        share = self.scaling_share
        if not share or self.delta is None:
            return None
        bounds = self.bounds_share / share if self.draws_bounds else Fraction(0)
        return _gaussian(PART, self.epsilon * share, self.delta * share, {BOUNDS: bounds, MOMENTS: 1 - bounds})

    @cached_property
    def steps_part(self) -> GaussianNoise | None:
        """Return the part that draws bins and steps without ends; None for a linear fit."""
        return self.steps_after(_NO_ENDS)

    def steps_after(self, ends: Fraction) -> GaussianNoise | None:
        """Return the part that draws bins and steps; None for a linear fit."""
        epsilon, delta = self._remainder(ends)
        if not self.is_additive or delta is None:
            return None
        return _gaussian(STEPS, epsilon * (1 - _LINEAR), delta * (1 - _LINEAR), {BINS: _BINS, STEPS: 1 - _BINS})

    def choice(self, *, steps: bool, ends: Fraction = _NO_ENDS) -> Within:
        """Return the parts after bounds and moments: the fit, maybe after ends, maybe before steps. All cost the same.

        The choice follows from released moments, before any of it is sampled. So it is one (epsilon, delta) event, as
        the steps alone are in an additive call.
        """
        parts: list[Part] = [self.ends_part(ends)] if ends else []
        parts.append(self.coefficients(steps, ends))
        after = self.steps_after(ends) if steps else None
        epsilon, delta = self.rest
        name = "additive_classifier" if self.is_additive else "objective_perturbation"
        return Within((*parts, *([] if after is None else [after])), Approximate(epsilon, delta or Fraction(0), name))

    @cached_property
    def first_choice(self) -> Within | None:
        """Return the parts after bounds and moments before these decide; None if they decide nothing."""
        return self.choice(steps=self.is_additive) if self.is_additive or self.may_narrow else None

    def steps_rows_needed(self, count: int) -> float:
        """Return the number of rows from which there are steps, if the call releases it."""
        mu = math.inf if self.steps_part is None else float(self.steps_part.mu)
        return WORTH_STEPS * math.sqrt(count) / mu * self.max_rows_per_unit

    def has_steps(self, count: int, rows: float | None) -> bool:
        """Return whether there are steps for `count` fitted features and `rows` released rows; None means no number."""
        return self.is_additive and count > 0 and (rows is None or rows >= self.steps_rows_needed(count))

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the shares of mu of bounds, moments and steps, for one row of a unit."""
        parts = filter(None, (self.scaling_part, self.steps_part))
        return (mu / self.max_rows_per_unit for part in parts for _, mu in part.shares)

    @cached_property
    def about_zero(self) -> bool:
        """Return whether features are centred at zero, so that rows with few features have a small norm."""
        return self.row_norm is not None or self.layout.kind == "long"

    def longest(self, count: int) -> float:
        """Return the norm to which longer rows of `count` features are scaled down."""
        root = math.sqrt(count)
        if self.standardizes:
            return root * min(max(1.0, float(self.epsilon) / _PLENTY), float(DEVIATIONS))
        if self.row_norm is None:
            return min(root, math.sqrt(_LONG_FEATURES)) if self.layout.kind == "long" else root
        return min(root, self.row_norm)

    def scaling(self, pairs: Sequence[Interval], standard: Standard | None = None) -> Scaling:
        """Return the map of rows from public arguments and released numbers; `pairs` are the features' bounds."""
        return Scaling.of(
            pairs,
            standard,
            longest=self.longest(len(pairs)),
            about_zero=self.about_zero,
            nearest=self.epsilon >= FINE_EPSILON,
        )

    @cached_property
    def measurement(self) -> Measurement:
        """Return the measurement, as an upper bound: without Gaussian noise a call spends no delta."""
        return self.after_scaling(self.coefficients(False) if self.first_choice is None else self.first_choice)

    def after_scaling(self, fit: Part | Measurement) -> Measurement:
        """Return the measurement of bounds and moments, if there are any, and of a fit."""
        return measurement_of(fit) if self.scaling_part is None else measurement_of(self.scaling_part, fit)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the strength of the perturbation."""
        steps = self.has_steps(n_features, n_rows if self.standardizes else None)
        noise = self.calibrated(n_features, steps=steps)
        width = n_features + 1
        ridge, linear = float(noise.regularization), noise.linear_deviation(width)
        out: list[Quantity] = [
            ("regularization", ridge, "ridge on the sum over all rows, scaled to a norm of at most 1"),
            ("linear_std_error", linear, "standard deviation of each coordinate of the random term, in rows"),
            ("coefficient_std_error", linear / ridge, "of each coefficient of scaled rows, where no row speaks"),
            ("rounding_std_error", noise.output_deviation(width), "of the noise that hides the solver's error"),
        ]
        if self.draws_bounds:
            out += bounds_needed(self, n_features, False)
        if self.steps_part is not None:
            deviation = math.sqrt(n_features * VISITS) * self.relation.norm(1) / float(self.steps_part.mu_of(STEPS))
            out.append(("steps_noise", deviation, "standard deviation of the noise on the residuals of a bin, in rows"))
            if self.standardizes:
                needed = self.steps_rows_needed(n_features)
                out.append(("steps_rows_needed", needed, "rows from which there are steps; with fewer it is linear"))
        if n_rows is not None:
            out.append(("linear_share", linear / n_rows, "linear_std_error as a share of n_rows"))
        return out


def _gaussian(name: str, epsilon: Fraction, delta: Fraction, parts: Mapping[str, Fraction]) -> GaussianNoise:
    """Return a part whose releases have these shares of its mu squared; the shares add up to 1."""
    mu = usable_mu(epsilon, delta)
    shares = tuple((of, share_of_mu(part, mu) if part < 1 else mu) for of, part in parts.items() if part)
    return GaussianNoise(name, mu, epsilon, delta, shares)


def choose(plan: LogisticPlan, *, steps: bool, ends: Fraction = Fraction(0)) -> None:
    """Let the running call draw the parts that the moments decided, not the planned parts."""
    if plan.first_choice is None:
        raise InternalError("I032", "a fit that has no choice was to choose. Report it.")
    exchange(plan.first_choice, plan.choice(steps=steps, ends=ends))


class Classifier:
    """The fit of a call with known features and a known map of its rows.

    Parameters
    ----------
    plan : LogisticPlan
    call : Call
        The call with this plan.
    positions : sequence of int
        Positions of the fitted features.
    unclear : sequence of str
        Features with unclear bounds.
    scaling : Scaling
    has_steps : bool
        Whether steps follow the linear fit.
    ends : Fraction
        Share of epsilon and delta for drawn ends of features within their public bounds.
    """

    def __init__(
        self,
        plan: LogisticPlan,
        call: Call,
        positions: Sequence[int],
        unclear: Sequence[str],
        scaling: Scaling,
        has_steps: bool,
        ends: Fraction = Fraction(0),
    ) -> None:
        self.plan, self.positions, self.scaling = plan, list(positions), scaling
        self._call, self._unclear = call, list(unclear)
        self.has_steps = has_steps
        self.ends = ends
        self._noise = plan.calibrated(len(self.positions), steps=has_steps, ends=ends)
        self._part = plan.coefficients(has_steps, ends)

    def start(self) -> Collector:
        """Return the collector of the rows, or on an engine of its first pass."""
        if self.plan.engine is not None:
            return FitStep(self)
        return ScoredRows(self) if self.has_steps else LabelledRows(self)

    def draw(self, rows: SignedFeatures | LabelledFeatures, progress: Progress) -> NDArray[np.float64]:
        """Draw the coefficients of kept rows."""
        self._choose()
        return self._part.draw(rows.signed, self._noise, tick=progress.tick)

    def begin(self) -> PerturbedFit:
        """Begin a fit that requests sums at coefficients step by step."""
        self._choose()
        return self._part.start(1 + len(self.positions), self._noise)

    def _choose(self) -> None:
        """Give the linear fit the steps' share if there are no steps. With ends this is done earlier."""
        if self.plan.is_additive and not self.has_steps and not self.ends:
            choose(self.plan, steps=False)

    def following(self, coefficients: NDArray[np.float64]) -> Collector:
        """Return the first pass after the solver's end on an engine."""
        if self.has_steps:
            return FirstWeights(ScoreStage(self, coefficients))
        return Finished(self.result(coefficients))

    def result(self, solution: NDArray[np.float64], shapes: Sequence[Mapping[str, Json] | None] = ()) -> Draw:
        """Return the released model, and its cost; `shapes` has the steps of each kept feature."""
        scaling, features = self.scaling, self._call.features
        coefficients = np.zeros(1 + len(features))
        coefficients[[0, *(1 + position for position in self.positions)]] = scaling.unmapped(solution)
        bounds: list[Json] = [None] * len(features)
        for position, pair in zip(self.positions, scaling.mapped.counted(scaling.low, scaling.high), strict=True):
            bounds[position] = list(pair)
        steps: list[Json] = [None] * len(features)
        for position, shape in zip(self.positions, shapes or [None] * len(self.positions), strict=True):
            steps[position] = shape
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
    """The additive stage of a classifier, after the draw of its linear fit."""

    rows: ScoreRows

    def __init__(self, fit: Classifier, coefficients: NDArray[np.float64]) -> None:
        self.positions, self.rows = fit.positions, ScoreRows.of(fit.scaling, coefficients)
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
    """Rows multiplied by their label, with features that have bounds; the solver reads them in memory."""

    def __init__(self, fit: Classifier) -> None:
        super().__init__(fit.positions, SignedFeatures(fit.scaling))
        self._fit = fit

    def draw(self, progress: Progress) -> Draw:
        """Draw the model."""
        return self._fit.result(self._fit.draw(self.inner, progress))


class ScoredRows(KeptFeatures[LabelledFeatures]):
    """Rows with their label, with features that have bounds; the solver and then the steps read them in memory."""

    def __init__(self, fit: Classifier) -> None:
        super().__init__(fit.positions, LabelledFeatures(fit.scaling))
        self._fit = fit

    def draw(self, progress: Progress) -> Result:
        """Draw the linear fit, the bins and every round of steps."""
        stage = ScoreStage(self._fit, self._fit.draw(self.inner, progress))
        return stage.draw(self.inner.given_up(stage.rows), progress)


class FitStep(KeptFeatures[StepSums]):
    """A step of the solver on an engine: one pass over the rows, at coefficients from earlier passes.

    Parameters
    ----------
    fit : Classifier
    at : list of int, optional
        The coefficients, by default zeros.
    run : PerturbedFit, optional
        The solver after its start: after the first pass.
    """

    ending = ("_fit", "_run")

    def __init__(self, fit: Classifier, at: list[int] | None = None, run: PerturbedFit | None = None) -> None:
        super().__init__(fit.positions, StepSums(fit.scaling, at or [0] * (1 + len(fit.positions))))
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


# If rows are fewer than this many deviations of the noise in moments, features are measured in half widths of bounds.
_LEAST_ROWS = 4.0
# Magnitudes of more features take too much memory; then public bounds are used unchanged.
_MOST_COUNTED = 2000


class LogisticCall(Call):
    """A dp_logistic_regression call, with the column types of its source."""

    plan: LogisticPlan

    def check(self) -> None:
        """Check the call as `Call.check` does, and raise if a feature has no bounds or too extreme bounds."""
        super().check()
        self.refuse_extremes()
        self.plan.scaling(self.intervals or [])

    def start(self) -> Collector:
        """Return the collector of the first pass."""
        if self.intervals is not None:
            return self._bounded([ColumnBounds(pair) for pair in self.intervals], None)
        return Magnitudes(self.plan, self.kinds[: len(self.features)], None, self._bounded)

    def _bounded(self, bounds: Sequence[ColumnBounds], target: ColumnBounds | None) -> Collector:
        """Return the next collector after the bounds."""
        positions = [position for position, column in enumerate(bounds) if column.interval is not None]
        pairs = [column.interval for column in bounds if column.interval is not None]
        unclear = [self.features[position] for position in positions if not bounds[position].clear]

        def fitted(
            standard: Standard | None, limits: Sequence[Interval] = pairs, ends: Fraction = Fraction(0)
        ) -> Collector:
            has_steps = self.plan.has_steps(len(positions), None if standard is None else standard.rows)
            worth = list(range(len(positions)))
            if standard is not None:
                worth = self._worth_fitting(standard, steps=has_steps, ends=ends)
            chosen, limits = [positions[feature] for feature in worth], [limits[feature] for feature in worth]
            scaling = self.plan.scaling(limits, None if standard is None else standard.of(worth))
            return Classifier(self.plan, self, chosen, unclear, scaling, has_steps, ends).start()

        if not self.plan.standardizes:
            return fitted(None)
        if not positions:
            return Waiting(fitted(None))
        reach = [
            self._reach(pair, self.kinds[position], len(positions))
            for position, pair in zip(positions, pairs, strict=True)
        ]
        mapped = self.plan.scaling(pairs).mapped
        if not self.plan.may_narrow or not 0 < reach.count(math.inf) <= _MOST_COUNTED:
            return Moments(self.plan, positions, mapped, reach, fitted, _LEAST_ROWS)

        def narrowed(standard: Standard, counted: Mapping[int, Magnitude]) -> Collector:
            far = far_bounds(standard, counted)
            ends = self._ends(standard, [counted[position][0] for position in far], len(counted))
            if not ends:
                return fitted(standard)
            choose(self.plan, steps=self.plan.has_steps(len(positions), standard.rows), ends=ends)
            ends_of = draw_bounds(
                self.plan.ends_part(ends),
                BOUNDS,
                [counted[position][1] for position in far],
                [counted[position][0] for position in far],
                last=False,
                neighbours=self.plan.neighbours,
                max_rows_per_unit=self.plan.max_rows_per_unit,
            )
            by_position = dict(zip(far, ends_of, strict=True))
            unclear.extend(self.features[position] for position, column in by_position.items() if not column.clear)
            return fitted(*narrow_bounds(standard, pairs, by_position), ends)

        return Spreads(self.plan, mapped, reach, pairs, self.kinds, narrowed, _LEAST_ROWS)

    def _ends(self, standard: Standard, far: Sequence[TypedCells], count: int) -> Fraction:
        """Return the share of epsilon and delta for the ends of features with far too wide bounds; 0 for no ends.

        The share is as small as the released number of rows allows, and 0 if the rows are too few for any end. `far`
        has the cells of these features; `count` features may be drawn.
        """
        if not far or standard.rows is None or scaling_numbers(len(far), len(self.features)) > MOST_COORDINATES:
            return Fraction(0)
        most = self.plan.ends_share(len(far), count)
        try:
            loss = self.plan.ends_part(most).mu ** 2 / len(far)
        except ParameterError:  # too small a share for any end
            return Fraction(0)
        factor = ends_factor(standard.rows, [loss] * len(far), far, self.plan.neighbours, self.plan.max_rows_per_unit)
        return most * Fraction(math.isqrt(factor.numerator), math.isqrt(factor.denominator))

    def _worth_fitting(self, standard: Standard, *, steps: bool, ends: Fraction) -> list[int]:
        """Return the positions of features whose coefficients exceed the noise in the fit, by released moments.

        `steps` says whether steps follow the fit, and `ends` is the share for ends.

        A row has a norm of at most 1, so next to k others a feature has a share of ``1 / (k + 2)`` of its square. The
        rows then hold its coefficient in place by at most a quarter of its weight times that share; the ridge, which is
        as strong as noise demands, pulls it to zero. If the ridge is stronger, the coefficient is noise, and its column
        only makes all rows shorter. Rare levels are such columns. A feature with half the weight of the heaviest
        feature is fitted at any noise.
        """
        assert standard.weight is not None  # noqa: S101
        order = np.argsort(-standard.weight, kind="stable")
        weights = standard.weight[order]

        def is_noise(count: int) -> bool:
            """Return whether the last of `count` features is noise; then it is noise next to more."""
            strength = weights[count - 1] / 4 / (1 + self.plan.longest(count) ** 2)
            return bool(strength < self.plan.calibrated(count, steps=steps, ends=ends).regularization)

        heavy = int(np.count_nonzero(2 * weights >= weights[0]))
        light = range(heavy + 1, len(order) + 1)
        return sorted(order[: heavy + bisect_left(light, True, key=is_noise)].tolist())

    def _reach(self, pair: Interval, kind: pa.DataType, count: int) -> float:
        """Return how many deviations from the mean a feature's bounds are at most.

        A row with a rare flag must not exceed the maximum length of rows, or shortening alone would make the flag's
        coefficient larger. Other columns are clipped at three deviations: units wide enough for their farthest values
        drown them in noise.
        """
        return self.plan.longest(count) / math.sqrt(count) if is_few(pair, kind) else math.inf

    def prepare(self, statistic: Fitting, progress: Progress) -> Callable[[], Json] | Draw:
        """Fit the model now: fitting takes too long for the ledger's transaction."""
        return statistic.draw(progress)
