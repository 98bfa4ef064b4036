"""dp_linear_regression: a linear model under differential privacy, by one of three methods."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.arguments import (
    COLUMNS,
    DELTA,
    EPSILON,
    OPTIONAL_BOUNDS,
    PROTECTION,
    Signature,
    double,
    flag,
    integer,
    share,
    word,
)
from dpsql.contract.call import Call
from dpsql.contract.fold import Collector
from dpsql.contract.gaussian_profile import gaussian_mu, share_of_mu, usable_mu
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Draw, Measurement, Part, measurement_of
from dpsql.contract.parameters import Side, known
from dpsql.contract.plan import MOST_ROWS, Plan, Quantity, feature_bounds
from dpsql.errors import ParameterError
from dpsql.functions import least_squares, tukey
from dpsql.kernels.cells import GridCounts
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, affine_map
from dpsql.mechanisms.ada_ssp import SPLITS
from dpsql.mechanisms.choices import QuantileSelection
from dpsql.mechanisms.gaussian import MOST_COORDINATES
from dpsql.mechanisms.interval_scan import IntervalNoise
from dpsql.mechanisms.parts import DeepModel, GaussianNoise, LaplaceNoise, ScannedInterval
from dpsql.mechanisms.tukey import LARGEST_MODELS
from dpsql.mechanisms.tukey_budget import models_needed, row_budget
from dpsql.progress import Progress
from dpsql.statistics.regression import CELLS, largest_norm, standard_radius

METHODS = ("auto", "ada_ssp", "boosted_ada_ssp", "tukey")
Floats = NDArray[np.float64]
NO_CLIP: Mapping[str, Json] = {}
_public_hint = "Give a public number, not one from the table."
# Several copies of the products of this many columns are held in memory.
MOST_FEATURES = 2000
_MOST_ROUNDS = 100_000
_LARGEST_MODEL_EPSILON = Fraction(200)
# Chance that a claim about the range of predictions is false.
RANGE_FAILURE = Fraction(1, 100)
_share = partial(share, hint="0.05 is usual.")


@dataclass(frozen=True, kw_only=True)
class RegressionPlan(Plan):
    """The checked public arguments of one ``dp_linear_regression`` call.

    Attributes
    ----------
    delta : Fraction
        In (0, 1). The whole call is (epsilon, delta)-DP.
    method : {'ada_ssp', 'boosted_ada_ssp', 'tukey'}
        The method. 'auto' is already resolved, from public arguments alone.
    lower, upper : float, tuple of float, dict of float or None
        Public bounds of the features, by position or by name; None for private bounds, or for methods without bounds.
    row_norm : float or None
        Norm to which rows of features are clipped, in half widths of their bounds; None for no clipping.
    rounds : int
        Rounds of boosting, from 1 to 100,000.
    split : {'even', 'thirds'}
        How boosting splits its budget: equally, or a third each for the products, the ridge and all rounds.
    blocks : int or None
        Public number of blocks for the Tukey mechanism; None to derive it from the number of rows.
    n_rows : int or None
        Public lower bound on the number of rows, at most `MOST_ROWS`.
    standardize : bool
        Whether rows are measured in private standard deviations of their features. Not with a `row_norm`.
    bounds_share : Fraction
        Share of mu squared spent on private bounds, in (0, 1).
    moments_share : Fraction
        Share of what is left of mu squared that is spent on means and standard deviations, in (0, 1).
    scale_share : Fraction
        Share of epsilon spent on three private quantiles of the target, in (0, 1).
    count_share : Fraction
        Share of epsilon spent on a private number of rows, in (0, 1).
    count_failure : Fraction
        Chance that the private number exceeds the true one, in (0, 1).
    range_share : Fraction or None
        Share of epsilon spent on the range of predictions of the Tukey mechanism, in (0, 1); None for other methods.
    """

    delta: Fraction
    method: str
    lower: Side | None
    upper: Side | None
    row_norm: float | None
    rounds: int
    split: str
    blocks: int | None
    n_rows: int | None
    standardize: bool
    bounds_share: Fraction
    moments_share: Fraction
    scale_share: Fraction
    count_share: Fraction
    count_failure: Fraction
    range_share: Fraction | None

    function: ClassVar[str] = "dp_linear_regression"
    target_needs_bounds: ClassVar[bool] = False
    # Arguments of every function that fits a linear model, besides columns, budget, bounds and protection.
    fitting: ClassVar[Signature] = Signature(
        double(
            "row_norm",
            "Norm to which longer rows of features are scaled down, above 0. Each feature is then measured in half "
            "widths of its bounds, and nothing is standardized.",
            shown="sqrt(features), in standard deviations",
            hint="Give the longest row of features that is to count in full, or leave it out.",
        ),
        integer(
            "rounds",
            "Boosting: number of rounds, from 1 to 100000.",
            10,
            hint="10 is the usual value.",
            most=_MOST_ROUNDS,
        ),
        word("split", "Boosting: how the products, the ridge and the rounds share the budget.", SPLITS, "even"),
        integer("blocks", "Tukey: public number of blocks of rows.", hint=_public_hint, most=LARGEST_MODELS),
        integer(
            "n_rows",
            "Public lower bound on the number of rows, in place of a private count.",
            hint=_public_hint,
            most=MOST_ROWS,
        ),
        flag(
            "standardize",
            "Measure features in their private standard deviations; not for Tukey.",
            True,
            earlier=(None,),
        ),
        _share(
            "bounds_share", "Share of the budget spent on private bounds, between 0 and 1.", 0.4, earlier=(0.25, 0.1)
        ),
        _share(
            "moments_share",
            "Share of the rest spent on means and standard deviations of the features, between 0 and 1.",
            0.05,
            earlier=(None,),
        ),
        _share(
            "scale_share",
            "Boosting: share of epsilon spent on the target's quantiles, between 0 and 1.",
            0.1,
            earlier=(0.05,),
        ),
        _share("count_share", "Tukey: share of epsilon spent on a private row count, between 0 and 1.", 0.05),
        _share("count_failure", "Tukey: chance that the private row count is too high, between 0 and 1.", 0.0001),
        _share("range_share", "Tukey: share of epsilon spent on the range of predictions, between 0 and 1.", 0.05),
    )
    arguments: ClassVar[Signature] = Signature(
        *COLUMNS,
        EPSILON,
        DELTA,
        word("method", "How the model is fitted; docs/models.md says which to take when.", METHODS, "auto"),
        *OPTIONAL_BOUNDS,
        *fitting.values(),
        *PROTECTION,
    )

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = {
            **cls._read(given, "delta", "method", "rounds", "split", "blocks", "n_rows"),
            **cls._read(given, "standardize", "bounds_share", "moments_share"),
            **cls._read(given, "scale_share", "count_share", "count_failure", "range_share"),
            "lower": None,
            "upper": None,
        }
        if given["lower"] is not None or given["upper"] is not None:
            own |= feature_bounds(given)
        own |= cls._read(given, "row_norm")
        if own["method"] == "auto":
            blocks, rows = (None if own[name] is None else known(int, own[name]) for name in ("blocks", "n_rows"))
            budget = (known(Fraction, cost) for cost in (EPSILON.read(given), own["delta"]))
            own["method"] = automatic(cls._columns(given, layout), blocks, rows, *budget)
        if own["method"] != "tukey":
            own["range_share"] = None
        elif not sum(known(Fraction, own[name]) for name in ("count_share", "range_share")) < 1:
            raise ParameterError("P051", "count_share and range_share must be below 1 together. Lower one of them.")
        return own

    @classmethod
    def _columns(cls, given: Mapping[str, object], layout: Layout) -> int | None:
        """Return the number of features to fit; None if it depends on the column types."""
        if "n_fitted" in given:  # a pipeline states how many features it will select
            return known(int, given["n_fitted"])
        listed = layout.features if isinstance(layout.features, tuple) else layout.chosen or layout.names
        return len(listed) if listed else layout.n_features

    def check_features(self, count: int) -> None:
        """Raise if there are too many features, or if the number of bounds differs from that of features."""
        if count > MOST_FEATURES:
            raise ParameterError(
                "P026",
                f"{self.function} takes at most {MOST_FEATURES} features; got {count}. "
                "Select some first, and give features := release('the name of that release').",
            )
        if self.method == "tukey" and self.blocks is None:
            models_needed(count + 1, *self.model_budget)  # raises if no number of blocks suffices
        if self.target_bounds is not None:
            affine_map(*self.target_bounds)
        if self.method == "boosted_ada_ssp" and self.target_bounds is not None:
            GridCounts(*self.target_bounds, CELLS)  # raises if they are too narrow for the cells
        if self.method != "tukey" and least_squares.released_numbers(self, count) > MOST_COORDINATES:
            raise ParameterError(
                "P026",
                f"{count} features in {self.rounds} rounds are more noisy numbers than one call releases. "
                "Give bounds, or take fewer features or rounds.",
            )

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of the noise on a private number of rows, and for the range of predictions."""
        found = list(self.range_noise.scales) if self.draws_range else []
        if self.draws_count:
            part: LaplaceNoise = self.measurement["count"]
            found.append(part.scale())
        return found

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the shares of mu of the private bounds, of the moments, and of the fit's smallest release."""
        if self.method == "tukey":
            return ()
        fit = share_of_mu(least_squares.least_share(self), self.fit_mu)
        parts = (*(mu for name, mu in self.gaussian_shares if name != "fit"), fit)
        return (part / self.max_rows_per_unit for part in parts)

    @cached_property
    def public_arguments(self) -> dict[str, Json]:
        """The arguments as they are stored, without those of standardizing where nothing is."""
        unused = () if self.standardizes else ("standardize", "moments_share")
        return {name: value for name, value in super().public_arguments.items() if name not in unused}

    @property
    def target_is_bounded(self) -> bool:
        """Whether the target has public bounds."""
        return self.target_bounds is not None or self.target_levels is not None

    @property
    def draws_bounds(self) -> bool:
        """Whether some bounds are private."""
        return self.method != "tukey" and (self.lower is None or not self.target_is_bounded)

    @property
    def draws_count(self) -> bool:
        """Whether the number of blocks comes from a private number of rows."""
        return self.method == "tukey" and self.blocks is None and self.n_rows is None

    @property
    def draws_range(self) -> bool:
        """Whether the range of predictions is private; with public bounds of the target it is these."""
        return self.method == "tukey" and not self.target_is_bounded

    @property
    def passes(self) -> int:
        """Number of passes over the rows."""
        if self.method == "tukey":
            return 1 + self.draws_count + (self.lower is None or not self.target_is_bounded)
        if self.method == "ada_ssp":
            return 1 + self.draws_bounds + self.standardizes
        return self.draws_bounds + (1 if self.engine is None else self.scales_first + self.rounds)

    @property
    def scales_first(self) -> bool:
        """Whether boosting draws the scale of the target, or moments of the features, before its first round."""
        return bool(self.scale_epsilon) or self.standardizes

    @property
    def standardizes(self) -> bool:
        """Whether rows are measured in private standard deviations of their features."""
        return self.standardize and self.row_norm is None and self.method != "tukey"

    @property
    def in_blocks(self) -> bool:
        """Whether the block of a row depends on that row alone."""
        return self.method == "tukey"

    @cached_property
    def scale_epsilon(self) -> Fraction:
        """Epsilon spent on quantiles of the target; 0 if they are not needed."""
        needed = self.method == "boosted_ada_ssp" and self.target_levels is None
        return self.epsilon * self.scale_share if needed else Fraction(0)

    @cached_property
    def count_epsilon(self) -> Fraction:
        """Epsilon spent on the number of rows; 0 if it is public or not needed."""
        return self.epsilon * self.count_share if self.draws_count else Fraction(0)

    @cached_property
    def range_epsilon(self) -> Fraction:
        """Epsilon spent on the range of predictions; 0 if it is public or not needed."""
        needed = self.draws_range and self.range_share is not None
        return self.epsilon * known(Fraction, self.range_share) if needed else Fraction(0)

    @cached_property
    def range_noise(self) -> IntervalNoise:
        """The noise of that range."""
        return IntervalNoise(self.range_epsilon, self.neighbours, self.max_rows_per_unit, RANGE_FAILURE)

    @cached_property
    def model_epsilon(self) -> Fraction:
        """Epsilon that is left for the Tukey mechanism."""
        return self.epsilon - self.count_epsilon - self.range_epsilon

    @cached_property
    def mu(self) -> Fraction:
        """Gaussian privacy loss of all Gaussian releases together."""
        return usable_mu(self.epsilon - self.scale_epsilon, self.delta)

    @cached_property
    def gaussian_shares(self) -> tuple[tuple[str, Fraction], ...]:
        """The mu of each Gaussian release, by its name. Squares of mu add up."""
        rest = 1 - self.bounds_share if self.draws_bounds else Fraction(1)
        moments = self.moments_share * rest if self.standardizes else Fraction(0)
        shares = (("bounds", 1 - rest), ("moments", moments), ("fit", rest - moments))
        return tuple((name, share_of_mu(share, self.mu) if share < 1 else self.mu) for name, share in shares if share)

    @property
    def fit_mu(self) -> Fraction:
        """Mu left for the fit."""
        return dict(self.gaussian_shares)["fit"]

    @cached_property
    def model_budget(self) -> tuple[Fraction, Fraction]:
        """The (epsilon, delta) of the Tukey mechanism for one replaced model."""
        # The cap keeps integers short. Well below it the mechanism already returns the deepest point.
        epsilon = min(self.model_epsilon, _LARGEST_MODEL_EPSILON)
        return row_budget(self.neighbours, epsilon, self.delta)

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: count, range and model for Tukey, otherwise the target's scale and Gaussian releases."""
        unit = (self.neighbours, self.max_rows_per_unit)
        if self.method == "tukey":
            tukey_parts: list[Part] = []
            if self.draws_count:
                tukey_parts.append(LaplaceNoise("count", self.count_epsilon, self.max_rows_per_unit))
            if self.draws_range:
                tukey_parts.append(ScannedInterval("range", self.range_noise))
            return measurement_of(*tukey_parts, DeepModel("model", self.model_epsilon, self.delta, self.model_budget))
        rest = self.epsilon - self.scale_epsilon
        gaussian = GaussianNoise("fit", self.mu, rest, self.delta, self.gaussian_shares)
        if not self.scale_epsilon:
            return measurement_of(gaussian)
        scale = QuantileSelection("scale", self.scale_epsilon, least_squares.TARGET_QUANTILES, *unit)
        return measurement_of(scale, gaussian)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the call would be."""
        if self.method == "tukey":
            return tukey.noise(self, n_features, n_rows)
        return least_squares.noise(self, n_features, n_rows)

    def longest(self, n_features: int) -> int | None:
        """Return the norm to which rows of features are shortened, where nothing is standardized; None for no limit."""
        if self.row_norm is not None and self.row_norm < math.sqrt(n_features):
            return max(1, math.floor(self.row_norm * FIXED_POINT_ONE))
        return None

    def radius(self, n_features: int) -> int:
        """Return the largest norm of a row with its intercept, in units of S, or of `STANDARD_ONE` if standardized."""
        if self.standardizes:
            return standard_radius(n_features)
        return largest_norm(n_features, self.longest(n_features))


def automatic(
    n_features: int | None, blocks: int | None, n_rows: int | None, epsilon: Fraction, delta: Fraction
) -> str:
    """Return the method that 'auto' selects, from public arguments alone.

    Parameters
    ----------
    n_features : int or None
        None if it depends on the column types of the source.
    blocks : int or None
        If given, the Tukey mechanism is selected.
    n_rows : int or None
        Public lower bound on the number of rows.
    epsilon, delta : Fraction

    Notes
    -----
    Boosting is the most accurate when noise matters (`benchmarks/papers/dp_kendall.py`). On DuckDB it holds the rows in
    memory; on an engine it reads them in every round, so it takes ``rounds`` jobs more where AdaSSP takes one.
    If the noise on a sum of squares is certain to be below a thousandth of the number of rows, boosting gains nothing.
    AdaSSP is then selected: it reads the rows once and reports standard errors.
    """
    if blocks is not None:
        return "tukey"
    if n_rows is not None and n_features is not None:
        noise = math.sqrt(3) / float(gaussian_mu(epsilon, delta)) * (n_features + 1)
        if noise < n_rows / 1000:
            return "ada_ssp"
    return "boosted_ada_ssp"


class Fitting(Protocol):
    """The last pass of a fit."""

    def draw(self, progress: Progress) -> Callable[[], Json] | Draw:
        """Draw the model."""


class RegressionCall(Call):
    """A dp_linear_regression call, with the column types of its source."""

    plan: RegressionPlan

    def check(self) -> None:
        """Check the call as `Call.check` does, and raise if only some features have bounds, or too extreme ones."""
        super().check()
        self.refuse_extremes()

    def start(self) -> Collector:
        """Return the collector of the first pass."""
        start = tukey.start if self.plan.method == "tukey" else least_squares.start
        return start(self)

    def prepare(self, statistic: Fitting, progress: Progress) -> Callable[[], Json] | Draw:
        """Fit the model now: fitting takes too long for the ledger's transaction."""
        return statistic.draw(progress)

    @property
    def bounded_target(self) -> tuple[float, float] | None:
        """Public bounds of the target as this call reads it; None if there are none."""
        levels = (-float(FIXED_POINT_ONE), float(FIXED_POINT_ONE))
        return levels if self.target.levels is not None else self.plan.target_bounds

    def result(
        self,
        coefficients: Floats | None,
        std_errors: Floats | None = None,
        bounds: Sequence[tuple[float, float] | None] | None = None,
        reason: str = "",
        clips: Mapping[str, Json] = NO_CLIP,
    ) -> dict[str, Json]:
        """Return the fit as JSON values for the ledger: a model that `dpsql.released.model` reads back.

        Parameters
        ----------
        coefficients, std_errors : ndarray or None
            Intercept first.
        bounds : sequence of pairs, optional
            Public or private bounds of the features. Values are clipped to them, here and in predictions. None for a
            feature that the fit left out, because its bounds are undetermined.
        reason : str
            Why there is no model; empty if there is one.
        clips : mapping
            ``prediction_bounds`` that predictions are clipped to; None if they were to be drawn and are undetermined.
        """
        plan = self.plan
        left_out = [name for name, pair in zip(self.features, bounds or (), strict=False) if pair is None]
        return {
            "kind": "linear_regression",
            "method": plan.method,
            "terms": ["intercept", *self.features],
            "elements": None if self.elements is None else list(self.elements),
            "coefficients": None if coefficients is None else _finite(coefficients),
            "std_errors": None if std_errors is None else self._errors(std_errors, left_out),
            "bounds": None if bounds is None else [None if pair is None else [*map(float, pair)] for pair in bounds],
            **({"undetermined": left_out} if left_out else {}),
            **({"reason": reason} if reason else {}),
            **clips,
        }

    def _errors(self, std_errors: Floats, left_out: Sequence[str]) -> list[Json]:
        """Return standard errors: the largest double where one overflowed, NULL for what was left out."""
        found: list[Json] = list(_finite(std_errors, unknown=sys.float_info.max))
        for name in left_out:
            found[1 + self.features.index(name)] = None
        return found

    @property
    def target_unit(self) -> float:
        """One unit of the target in the collected integers; levels are coded as -1 and 1."""
        return float(FIXED_POINT_ONE) if self.target.levels is not None else 1.0


def _finite(values: Floats, unknown: float = 0.0) -> list[float]:
    return [float(value) for value in np.nan_to_num(np.asarray(values, dtype=np.float64), nan=unknown)]
