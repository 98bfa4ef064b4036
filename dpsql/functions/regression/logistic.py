"""dp_logistic_regression: a linear classifier by objective perturbation.

**Objective perturbation.** As passes over the rows: kept rows, or on an engine one pass for each step of the solver.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
)
from dpsql.contract.bounds import feature_bounds
from dpsql.contract.call import Call
from dpsql.contract.fold import Collector, Ignoring, Waiting
from dpsql.contract.gaussian_profile import share_of_mu, usable_mu
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Draw, Measurement, measurement_of
from dpsql.contract.parameters import Side, known
from dpsql.contract.plan import Pass, Plan, Quantity
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.regression.method import (
    BOUNDS,
    MOMENTS,
    PART,
    Interval,
    KeptFeatures,
    Magnitudes,
    Moments,
    bounds_needed,
    refuse_too_many,
    scaling_numbers,
)
from dpsql.kernels.logistic import MOST_FACTORISED
from dpsql.kernels.typed_cells import is_few
from dpsql.mechanisms.gaussian import MOST_COORDINATES, GaussianNoise
from dpsql.mechanisms.objective_perturbation import (
    FINE_EPSILON,
    ObjectiveNoise,
    PerturbedFit,
    PerturbedObjective,
    calibrate,
)
from dpsql.mechanisms.prefix_bounds import ColumnBounds
from dpsql.progress import Progress
from dpsql.statistics.logistic_rows import Scaling, SignedFeatures, StepSums
from dpsql.statistics.regression import DEVIATIONS, Standard


class LabelledRows(KeptFeatures[SignedFeatures]):
    """Rows multiplied by their label, of the features that have bounds; the solver reads them in memory.

    `unclear` names the features whose bounds are not clear, here and in the classes that follow.
    """

    ending = ("unclear",)

    def __init__(self, kept: Sequence[int], unclear: Sequence[str], inner: SignedFeatures) -> None:
        super().__init__(kept, inner)
        self.unclear = unclear

    @property
    def scaling(self) -> Scaling:
        """The map of the rows."""
        return self.inner.scaling


class FitStep(KeptFeatures[StepSums]):
    """A step of the solver on an engine: one pass over the rows, at coefficients that follow from the passes before.

    Parameters
    ----------
    begin : callable
        Returns the fit, which asks for sums at coefficients step by step; called after the first pass.
    kept : sequence of int
        Positions of the features with bounds.
    unclear : sequence of str
    scaling : Scaling
    at : list of int, optional
        The coefficients, by default zeros.
    run : PerturbedFit, optional
        The fit, once it has begun.
    """

    ending = ("_begin", "_run", "unclear")

    def __init__(
        self,
        begin: Callable[[], PerturbedFit],
        kept: Sequence[int],
        unclear: Sequence[str],
        scaling: Scaling,
        at: list[int] | None = None,
        run: PerturbedFit | None = None,
    ) -> None:
        super().__init__(kept, StepSums(scaling, at or [0] * (1 + len(kept))))
        self._begin, self._run, self.unclear = begin, run, unclear

    @property
    def scaling(self) -> Scaling:
        """The map of the rows."""
        return self.inner.scaling

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Take a step; at the solver's end, draw."""
        run = self._run
        if run is None:
            run = self._begin()
            next(run)  # the first coefficients are zeros
        try:
            at = run.send(self.inner.sums)
        except StopIteration as end:
            return Solved(self.kept, self.unclear, self.scaling, end.value)
        return FitStep(self._begin, self.kept, self.unclear, self.scaling, at, run)

    def drawn(self) -> NDArray[np.float64]:
        """Return the coefficients, drawn after the last pass.

        Raises
        ------
        InternalError
            I022: the solver would need another pass.
        """
        last = self.turn(lambda _: None)
        if not isinstance(last, Solved):
            raise InternalError("I022", "the fit did not converge. Raise regularization.")
        return last.drawn()


class Solved(Ignoring):
    """The passes after the solver's end: none of them reads rows."""

    def __init__(
        self, kept: Sequence[int], unclear: Sequence[str], scaling: Scaling, coefficients: NDArray[np.float64]
    ) -> None:
        self.kept, self.unclear, self.scaling, self._coefficients = kept, unclear, scaling, coefficients

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Return itself."""
        return self

    def drawn(self) -> NDArray[np.float64]:
        """Return the coefficients."""
        return self._coefficients


MOST_FEATURES = 20_000
# Default for the long layout: rows with up to this many features at their bounds are not scaled down.
_LONG_FEATURES = 10
# From this norm on, fixed point resolves rows finely enough.
_LEAST_NORM = 2.0**-10
# Steps of the solver on an engine, of which each reads the rows; some ten are usual.
MOST_STEPS = 300
# Standardised rows are as long as one deviation in every feature, beside which there is the least noise. A shorter row
# biases the coefficients, so from this epsilon on they may be longer, up to what no row exceeds.
_PLENTY = 4.0
# Where rows are fewer than so many deviations of the noise in moments, features are measured in half widths of bounds.
_LEAST_ROWS = 4.0
_norm_hint = "Give the longest row of features that is to count in full, or leave it out."
_share = partial(share, hint="0.1 is usual.")
_ridge_hint = "Give a public number, or leave it out for the usual value."


def _row_norm(given: object) -> float:
    norm = parameters.positive_float("row_norm", given, hint=_norm_hint)
    parameters.within("row_norm", norm, _LEAST_NORM, None, hint=_norm_hint)
    return norm


@dataclass(frozen=True, kw_only=True)
class LogisticPlan(Plan):
    """The checked public arguments of one ``dp_logistic_regression`` call; `arguments` says what each means."""

    delta: Fraction | None
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
        *FEATURE_BOUNDS,
        Argument(
            "row_norm",
            "Norm to which longer rows of features are scaled down, at least 2**-10. Each feature is then measured in "
            "half widths of its bounds, and nothing is standardized.",
            shown="sqrt(features), in standard deviations; without delta none is shortened",
            check=_row_norm,
            kind="Number",
        ),
        double(
            "regularization",
            "Ridge penalty: weight of the squared coefficients against the loss summed over all rows, above 0.",
            shown="chosen from the public arguments",
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
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own: dict[str, object] = {**cls._read(given, "row_norm", "delta"), "lower": None, "upper": None}
        if layout.kind == "long" and layout.value is None and given["lower"] is given["upper"] is None:
            given = {**given, "lower": 0, "upper": 1}  # a feature is there, or not
        if given["lower"] is not None or given["upper"] is not None:
            own |= feature_bounds(given)
        elif own["delta"] is None or layout.kind == "long":
            other = ", or delta, such as 1e-6, to draw private ones" if layout.kind != "long" else ""
            raise ParameterError("P003", f"{cls.function} needs lower and upper, from domain knowledge{other}.")
        own |= cls._read(given, "regularization", "standardize", "bounds_share", "moments_share")
        if not known(Fraction, own["bounds_share"]) + known(Fraction, own["moments_share"]) < 1:
            raise ParameterError("P051", "bounds_share and moments_share must be below 1 together. Lower one of them.")
        return own

    def check_features(self, count: int) -> None:
        """Raise if there are too many features."""
        refuse_too_many(self.function, count, MOST_FEATURES)
        if self.engine is not None and count >= MOST_FACTORISED:
            raise ParameterError(
                "P073",
                f"on an engine {self.function} takes at most {MOST_FACTORISED - 1} features; got {count}. "
                "Select some first, and give features := release('the name of that release').",
            )
        drawn = count if self.draws_bounds else 0, count if self.standardizes else 0
        if scaling_numbers(*drawn) > MOST_COORDINATES:
            raise ParameterError(
                "P026",
                f"bounds of {count} features are more noisy numbers than one call releases. "
                "Give bounds, or take fewer features.",
            )

    def check_drawable(self, count: int) -> None:
        """Raise if no perturbation meets the guarantee, or if a part of the budget is too small to draw."""
        super().check_drawable(count)
        self.calibrated(count)

    def calibrated(self, count: int) -> ObjectiveNoise:
        """Return the perturbation for `count` features."""
        return calibrate(
            self.objective_epsilon,
            self.objective_delta,
            width=count + 1,
            neighbours=self.neighbours,
            max_rows_per_unit=self.max_rows_per_unit,
            regularization=self.regularization,
        )

    @cached_property
    def public_arguments(self) -> dict[str, Json]:
        """The arguments as they are stored, without those that this call does not use."""
        unused = {
            "standardize": not self.standardizes,
            "moments_share": not self.standardizes,
            "bounds_share": not self.draws_bounds,
        }
        return {name: value for name, value in super().public_arguments.items() if not unused.get(name)}

    @property
    def draws_bounds(self) -> bool:
        """Whether the bounds of the features are private."""
        return self.lower is None

    @property
    def standardizes(self) -> bool:
        """Whether rows are measured in private standard deviations of their features."""
        return self.standardize and self.delta is not None and not self.about_zero

    def _passes(self) -> tuple[Pass, ...]:
        """Return a pass each for bounds, moments and the fit; on an engine one for every step of the solver."""
        steps = (Pass(),) if self.engine is None else (Pass(may_stop=True),) * MOST_STEPS
        return (Pass(),) * (self.draws_bounds + self.standardizes) + steps

    @cached_property
    def scaling_share(self) -> Fraction:
        """Share of epsilon and delta spent on bounds and moments; 0 where there are none."""
        moments = self.moments_share if self.standardizes else Fraction(0)
        return moments + (self.bounds_share if self.draws_bounds else 0)

    @property
    def objective_epsilon(self) -> Fraction:
        """Epsilon that is left for the coefficients."""
        return self.epsilon * (1 - self.scaling_share)

    @property
    def objective_delta(self) -> Fraction | None:
        """Delta that is left for the coefficients."""
        return None if self.delta is None else self.delta * (1 - self.scaling_share)

    @cached_property
    def scaling_part(self) -> GaussianNoise | None:
        """The part that draws bounds and moments; None where there are neither."""
        share = self.scaling_share
        if not share or self.delta is None:
            return None
        epsilon, delta = self.epsilon * share, self.delta * share
        mu = usable_mu(epsilon, delta)
        bounds = self.bounds_share / share if self.draws_bounds else Fraction(0)
        parts = ((BOUNDS, bounds), (MOMENTS, 1 - bounds))
        shares = tuple((name, share_of_mu(part, mu) if part < 1 else mu) for name, part in parts if part)
        return GaussianNoise(PART, mu, epsilon, delta, shares)

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the shares of mu of bounds and moments, for one row of a unit."""
        part = self.scaling_part
        return () if part is None else (mu / self.max_rows_per_unit for _, mu in part.shares)

    @cached_property
    def about_zero(self) -> bool:
        """Whether features are centred at zero, so that rows with few features have a small norm."""
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
        """Return the map of rows from public arguments and what was released; `pairs` are the features' bounds."""
        return Scaling.of(
            pairs,
            standard,
            longest=self.longest(len(pairs)),
            about_zero=self.about_zero,
            nearest=self.epsilon >= FINE_EPSILON,
        )

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement, as an upper bound: without Gaussian noise a call spends no delta."""
        fit = PerturbedObjective("coefficients", self.objective_epsilon, self.objective_delta or Fraction(0))
        return measurement_of(fit) if self.scaling_part is None else measurement_of(self.scaling_part, fit)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how strong the perturbation would be."""
        noise = self.calibrated(n_features)
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
        if n_rows is not None:
            out.append(("linear_share", linear / n_rows, "linear_std_error as a share of n_rows"))
        return out


class LogisticCall(Call):
    """A dp_logistic_regression call, with the column types of its source."""

    plan: LogisticPlan

    def check(self) -> None:
        """Check the call as `Call.check` does, and raise if a feature has no bounds or too extreme ones."""
        super().check()
        self.refuse_extremes()
        self.plan.scaling(self.intervals or [])

    def start(self) -> Collector:
        """Return the collector of the first pass."""
        if self.intervals is not None:
            return self._bounded([ColumnBounds(pair) for pair in self.intervals], None)
        return Magnitudes(self.plan, self.kinds[: len(self.features)], None, self._bounded)

    def _bounded(self, bounds: Sequence[ColumnBounds], target: ColumnBounds | None) -> Collector:
        """Return the collector that follows once the bounds are known."""
        kept = [place for place, column in enumerate(bounds) if column.interval is not None]
        pairs = [column.interval for column in bounds if column.interval is not None]
        unclear = [self.features[place] for place in kept if not bounds[place].clear]

        def fitted(standard: Standard | None) -> Collector:
            worth = range(len(kept)) if standard is None else self._worth_fitting(standard)
            chosen, limits = [kept[place] for place in worth], [pairs[place] for place in worth]
            scaling = self.plan.scaling(limits, None if standard is None else standard.of(worth))
            if self.plan.engine is None:
                return LabelledRows(chosen, unclear, SignedFeatures(scaling))
            return FitStep(partial(_begin, self.plan, len(chosen)), chosen, unclear, scaling)

        if not self.plan.standardizes:
            return fitted(None)
        if not kept:
            return Waiting(fitted(None))
        reach = [self._reach(bounds[place], self.kinds[place], len(kept)) for place in kept]
        return Moments(self.plan, kept, self.plan.scaling(pairs).mapped, reach, fitted, _LEAST_ROWS)

    def _worth_fitting(self, standard: Standard) -> list[int]:
        """Return the places of the features of which the noise in the fit leaves something, by released moments.

        A row has a norm of at most 1, so beside k others a feature has a share of ``1 / (k + 2)`` of its square. The
        rows then hold its coefficient in place by at most a quarter of its weight times that share; the ridge, which is
        as strong as noise demands, pulls it to zero. Where the ridge is stronger, the coefficient is noise, and its
        column only makes all rows shorter. Rare levels are such columns. A feature with half the weight of the heaviest
        one is fitted whatever the noise.
        """
        assert standard.weight is not None  # noqa: S101
        order = np.argsort(-standard.weight, kind="stable")
        weights = standard.weight[order]

        def is_noise(count: int) -> bool:
            """Whether the last of so many features is; if it is, so it is beside more."""
            held = weights[count - 1] / 4 / (1 + self.plan.longest(count) ** 2)
            return bool(held < self.plan.calibrated(count).regularization)

        heavy = int(np.count_nonzero(2 * weights >= weights[0]))
        light = range(heavy + 1, len(order) + 1)
        return sorted(order[: heavy + bisect_left(light, True, key=is_noise)].tolist())

    def _reach(self, column: ColumnBounds, kind: pa.DataType, count: int) -> float:
        """Return how many deviations from the mean a feature's bounds are at most.

        A row with a rare flag must not be longer than what rows are shortened to, or that alone would make the flag's
        coefficient larger. Other columns keep three deviations: less would drown wide ones in noise.
        """
        if column.interval is not None and is_few(column.interval, kind):
            return self.plan.longest(count) / math.sqrt(count)
        return DEVIATIONS if column.whole else math.inf

    def prepare(self, statistic: LabelledRows | FitStep | Solved, progress: Progress) -> Callable[[], Json] | Draw:
        """Fit the model now: fitting takes too long for the ledger's transaction."""
        plan, scaling = self.plan, statistic.scaling
        noise = plan.calibrated(len(statistic.kept))
        part: PerturbedObjective = plan.measurement["coefficients"]
        if isinstance(statistic, LabelledRows):
            drawn = part.draw(statistic.inner.signed, noise, tick=progress.tick)
        else:
            drawn = statistic.drawn()
        found = scaling.unmapped(drawn)
        coefficients = np.zeros(1 + len(self.features))
        coefficients[[0, *(1 + place for place in statistic.kept)]] = found
        bounds: list[Json] = [None] * len(self.features)
        for place, pair in zip(statistic.kept, scaling.mapped.counted(scaling.low, scaling.high), strict=True):
            bounds[place] = list(pair)
        left_out = [name for name, pair in zip(self.features, bounds, strict=True) if pair is None]
        result: dict[str, Json] = {
            "kind": "logistic_regression",
            "method": "objective_perturbation",
            "terms": ["intercept", *self.features],
            "elements": None if self.elements is None else list(self.elements),
            "coefficients": coefficients.tolist(),
            "std_errors": None,
            "bounds": bounds,
            "levels": list(self.levels),
            "regularization": float(noise.regularization),
            **({"undetermined": left_out} if left_out else {}),
            **({"unclear": list(statistic.unclear)} if statistic.unclear else {}),
        }
        spent = part.spent(noise)
        scaled = plan.scaling_part
        return Draw(measurement_of(spent) if scaled is None else measurement_of(scaled, spent), lambda: result)


def _begin(plan: LogisticPlan, features: int) -> PerturbedFit:
    part: PerturbedObjective = plan.measurement["coefficients"]
    return part.start(1 + features, plan.calibrated(features))
