"""The arguments of dp_logistic_regression, and what of its budget goes where."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import ClassVar

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
from dpsql.contract.bounds import feature_bounds
from dpsql.contract.gaussian_profile import share_of_mu, usable_mu
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.parameters import Side, known
from dpsql.contract.plan import Pass, Plan, Quantity
from dpsql.errors import ParameterError
from dpsql.functions.regression.method import (
    BOUNDS,
    MOMENTS,
    PART,
    Interval,
    bounds_needed,
    refuse_too_many,
    scaling_numbers,
)
from dpsql.kernels.logistic import MOST_FACTORISED
from dpsql.mechanisms.additive import MOST_ROUNDS, VISITS
from dpsql.mechanisms.gaussian import MOST_COORDINATES, GaussianNoise
from dpsql.mechanisms.objective_perturbation import (
    FINE_EPSILON,
    ObjectiveNoise,
    PerturbedObjective,
    calibrate,
)
from dpsql.statistics.logistic_rows import Scaling
from dpsql.statistics.regression import DEVIATIONS, Standard

MOST_FEATURES = 20_000
# With steps a feature has 128 cells, and 32 bins in each of two visits.
_MOST_WITH_STEPS = 2_000
# Default for the long layout: rows with up to this many features at their bounds are not scaled down.
_LONG_FEATURES = 10
# From this norm on, fixed point resolves rows finely enough.
_LEAST_NORM = 2.0**-10
# Steps of the solver on an engine, of which each reads the rows; some ten are usual.
MOST_STEPS = 300
# Standardised rows are as long as one deviation in every feature, beside which there is the least noise. A shorter row
# biases the coefficients, so from this epsilon on they may be longer, up to what no row exceeds.
_PLENTY = 4.0
# Of what is left after bounds and moments: the linear fit, and the steps; of these the bins, and the rounds.
_LINEAR = Fraction(1, 2)
_BINS = Fraction(3, 20)
# Rows times the mu of the steps, over the root of the features and per row of a unit, from which there are steps.
# `benchmarks/papers/additive_classifiers.py` measures it.
WORTH_STEPS = 300.0
LINEAR, ADDITIVE = "linear", "additive"
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
        own: dict[str, object] = {**cls._read(given, "row_norm", "delta", "method"), "lower": None, "upper": None}
        if own["method"] == ADDITIVE and own["delta"] is None:
            raise ParameterError(
                "P046",
                "method := 'additive' needs delta: the noise of its steps is Gaussian. Give delta, such as 1e-6.",
            )
        if own["method"] == ADDITIVE and layout.kind == "long":
            raise ParameterError(
                "P045", "method := 'additive' has no steps for features of long rows. Leave it out, or give columns."
            )
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
        refuse_too_many(self.function, count, _MOST_WITH_STEPS if self.is_additive else MOST_FEATURES)
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
            "method": not self.is_additive,  # as calls were recorded before there was this
        }
        return {name: value for name, value in super().public_arguments.items() if not unused.get(name)}

    @property
    def is_additive(self) -> bool:
        """Whether steps follow the linear fit, if there are rows enough."""
        return self.method == ADDITIVE

    @property
    def draws_bounds(self) -> bool:
        """Whether the bounds of the features are private."""
        return self.lower is None

    @property
    def standardizes(self) -> bool:
        """Whether rows are measured in private standard deviations of their features."""
        return self.standardize and self.delta is not None and not self.about_zero

    def _passes(self) -> tuple[Pass, ...]:
        """Return a pass each for bounds, moments and the fit.

        On an engine one for every step of the solver, one for the weights of cells, and one for each round of steps.
        """
        rounds = 1 + VISITS * MOST_ROUNDS if self.is_additive else 0
        steps = (Pass(),) if self.engine is None else (Pass(may_stop=True),) * (MOST_STEPS + rounds)
        return (Pass(),) * (self.draws_bounds + self.standardizes) + steps

    @cached_property
    def scaling_share(self) -> Fraction:
        """Share of epsilon and delta spent on bounds and moments; 0 where there are none."""
        moments = self.moments_share if self.standardizes else Fraction(0)
        return moments + (self.bounds_share if self.draws_bounds else 0)

    @property
    def steps_share(self) -> Fraction:
        """Share of epsilon and delta spent on steps; 0 where there are none."""
        return (1 - self.scaling_share) * (1 - _LINEAR) if self.is_additive else Fraction(0)

    @property
    def objective_epsilon(self) -> Fraction:
        """Epsilon that is left for the coefficients."""
        return self.epsilon * (1 - self.scaling_share - self.steps_share)

    @property
    def objective_delta(self) -> Fraction | None:
        """Delta that is left for the coefficients."""
        return None if self.delta is None else self.delta * (1 - self.scaling_share - self.steps_share)

    @cached_property
    def gaussian_part(self) -> GaussianNoise | None:
        """The part that draws bounds, moments and steps; None where there are none of these."""
        bounds = self.bounds_share if self.draws_bounds else Fraction(0)
        steps = self.steps_share
        shares = (
            (BOUNDS, bounds),
            (MOMENTS, self.scaling_share - bounds),
            ("bins", steps * _BINS),
            ("steps", steps * (1 - _BINS)),
        )
        whole = self.scaling_share + steps
        if not whole or self.delta is None:
            return None
        epsilon, delta = self.epsilon * whole, self.delta * whole
        mu = usable_mu(epsilon, delta)
        parts = tuple((name, share_of_mu(part / whole, mu) if part < whole else mu) for name, part in shares if part)
        return GaussianNoise(PART, mu, epsilon, delta, parts)

    @cached_property
    def scaling_part(self) -> GaussianNoise | None:
        """What bounds and moments alone spend; None where there are neither."""
        part = self.gaussian_part
        if part is None or not self.scaling_share:
            return None
        return part.spent(BOUNDS, MOMENTS) if self.is_additive else part

    @cached_property
    def steps_mu(self) -> float:
        """Gaussian privacy loss of all steps, with their bins."""
        part = self.gaussian_part
        return (
            0.0 if part is None else math.hypot(*(float(mu) for name, mu in part.shares if name in ("bins", "steps")))
        )

    def steps_rows_needed(self, count: int) -> float:
        """Return from how many rows there are steps, where their number is released."""
        return WORTH_STEPS * math.sqrt(count) / self.steps_mu * self.max_rows_per_unit

    def has_steps(self, count: int, rows: float | None) -> bool:
        """Whether there are steps for `count` features that are fitted, of so many released rows; None for none."""
        return self.is_additive and count > 0 and (rows is None or rows >= self.steps_rows_needed(count))

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the shares of mu of bounds and moments, for one row of a unit."""
        part = self.gaussian_part
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
        return measurement_of(fit) if self.gaussian_part is None else measurement_of(self.gaussian_part, fit)

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
        if self.is_additive:
            rounds = math.sqrt(n_features * VISITS) * self.relation.norm(1)
            steps_noise = rounds / float(dict(self.gaussian_part.shares)["steps"]) if self.gaussian_part else math.inf
            out.append(("steps_noise", steps_noise, "standard deviation of the noise on residuals of a bin, in rows"))
            if self.standardizes:
                needed = self.steps_rows_needed(n_features)
                out.append(("steps_rows_needed", needed, "rows from which there are steps; with fewer it is linear"))
        if n_rows is not None:
            out.append(("linear_share", linear / n_rows, "linear_std_error as a share of n_rows"))
        return out
