"""dp_logistic_regression: a linear classifier by objective perturbation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.contract import parameters
from dpsql.contract.arguments import (
    CLASSES,
    COLUMNS,
    EPSILON,
    LOWER,
    OPTIONAL_DELTA,
    PROTECTION,
    UPPER,
    Argument,
    Signature,
    double,
)
from dpsql.contract.call import Call
from dpsql.contract.fold import Batch, Collector, KeptRows
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Draw, Measurement, measurement_of
from dpsql.contract.parameters import Side
from dpsql.contract.plan import Plan, Quantity, feature_bounds
from dpsql.errors import ParameterError
from dpsql.kernels.clipped_rows import SHRINK, clip_rows
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, affine_maps, quantise
from dpsql.kernels.logistic import SignedRows
from dpsql.kernels.xty import BLOCK_ROWS
from dpsql.mechanisms.objective_perturbation import (
    FINE_EPSILON,
    ObjectiveNoise,
    calibrate,
)
from dpsql.mechanisms.parts import PerturbedObjective
from dpsql.progress import Progress

MOST_FEATURES = 20_000
# Default for the long layout: rows with up to this many features at their bounds are not scaled down.
_LONG_FEATURES = 10
# From this norm on, fixed point resolves rows finely enough.
_LEAST_NORM = 2.0**-10
_CLOSE = 1e-9
_norm_hint = "Give the longest row of features that is to count in full, or leave it out."
_ridge_hint = "Give a public number, or leave it out for the usual value."


def _row_norm(given: object) -> float:
    norm = parameters.positive_float("row_norm", given, hint=_norm_hint)
    parameters.within("row_norm", norm, _LEAST_NORM, None, hint=_norm_hint)
    return norm


@dataclass(frozen=True, kw_only=True)
class LogisticPlan(Plan):
    """The checked public arguments of one ``dp_logistic_regression`` call.

    Attributes
    ----------
    delta : Fraction or None
        If given, the perturbation is Gaussian whenever that is smaller.
    lower, upper : float, tuple of float or dict of float
        Public bounds of the features, by position or by name.
    row_norm : float or None
        Norm to which longer rows of features are scaled down; a feature at its bound is 1. None means no limit, or in
        the long layout the square root of 10, the norm of ten features at their bounds.
    regularization : float or None
        Ridge penalty against the summed loss, for rows with a norm of at most 1, intercept included; None for the
        default.
    """

    delta: Fraction | None
    lower: Side
    upper: Side
    row_norm: float | None
    regularization: float | None

    function: ClassVar[str] = "dp_logistic_regression"
    target_needs_bounds: ClassVar[bool] = False
    target_is_label: ClassVar[bool] = True
    arguments: ClassVar[Signature] = Signature(
        *COLUMNS,
        EPSILON,
        OPTIONAL_DELTA,
        LOWER,
        UPPER,
        Argument(
            "row_norm",
            "Norm to which longer rows of features are scaled down, at least 2**-10. Each feature is measured in half "
            "widths of its bounds.",
            shown="none is shortened",
            check=_row_norm,
        ),
        double(
            "regularization",
            "Ridge penalty: weight of the squared coefficients against the loss summed over all rows, above 0.",
            shown="chosen from the public arguments",
            hint=_ridge_hint,
        ),
        CLASSES,
        *PROTECTION,
    )
    names_after: ClassVar[str | None] = "delta"

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = cls._read(given, "row_norm", "delta")
        return {**own, **feature_bounds(given), **cls._read(given, "regularization")}

    def check_features(self, count: int) -> None:
        """Raise if there are too many features."""
        if count > MOST_FEATURES:
            raise ParameterError(
                "P026",
                f"{self.function} takes at most {MOST_FEATURES} features; got {count}. "
                "Select some first, and give features := release('the name of that release').",
            )

    def check_drawable(self, count: int) -> None:
        """Raise if no perturbation meets the guarantee."""
        self.calibrated(count)

    def calibrated(self, count: int) -> ObjectiveNoise:
        """Return the perturbation for `count` features."""
        return calibrate(
            self.epsilon,
            self.delta,
            width=count + 1,
            neighbours=self.neighbours,
            max_rows_per_unit=self.max_rows_per_unit,
            regularization=self.regularization,
        )

    @cached_property
    def about_zero(self) -> bool:
        """Whether features are centred at zero, so that rows with few features have a small norm."""
        return self.row_norm is not None or self.layout.kind == "long"

    def longest(self, count: int) -> float:
        """Return the norm to which longer rows of `count` features are scaled down."""
        root = math.sqrt(count)
        if self.row_norm is None:
            return min(root, math.sqrt(_LONG_FEATURES)) if self.layout.kind == "long" else root
        return min(root, self.row_norm)

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement, as an upper bound: without Gaussian noise a call spends no delta."""
        return measurement_of(PerturbedObjective("coefficients", self.epsilon, self.delta or Fraction(0)))

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
        if n_rows is not None:
            out.append(("linear_share", linear / n_rows, "linear_std_error as a share of n_rows"))
        return out


@dataclass(frozen=True)
class Scaling:
    """The map from rows to integers whose norm, intercept included, is at most S.

    Attributes
    ----------
    low, high : ndarray of float64, shape (d,)
        Public bounds of the features.
    middle, scale : ndarray of float64, shape (d,)
        Affine map of a feature to units in which the larger bound is S.
    limit : int or None
        Norm to which longer rows of features are scaled down, in these units; None for no limit.
    shrink : float
        Factor from these units to those of a row, in which `limit` becomes `radius`.
    intercept : int
        The first coordinate of every row.
    radius : int
        Largest norm of the other coordinates: ``intercept**2 + radius**2 <= S**2``.
    nearest : bool
        Whether rows are rounded to nearest if their norm stays within `radius`. At very large epsilon the bias of
        truncation, half a unit toward zero, would show.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    middle: NDArray[np.float64]
    scale: NDArray[np.float64]
    limit: int | None
    shrink: float
    intercept: int
    radius: int
    nearest: bool

    @classmethod
    def of(cls, plan: LogisticPlan, pairs: Sequence[tuple[float, float]]) -> Scaling:
        """Derive the map from public arguments alone; `pairs` are the bounds of each feature.

        Raises
        ------
        ParameterError
            P036: an interval too narrow for doubles.
        """
        count = len(pairs)
        low, high = np.array(pairs, dtype=np.float64).reshape(-1, 2).T.copy()
        middle, scale = affine_maps([_around_zero(pair) for pair in pairs] if plan.about_zero else pairs)
        longest = plan.longest(count)
        intercept = math.floor(FIXED_POINT_ONE / math.hypot(longest, 1.0))
        radius = math.isqrt(FIXED_POINT_ONE**2 - intercept**2)
        return cls(
            low,
            high,
            middle,
            scale,
            math.floor(longest * FIXED_POINT_ONE) if longest**2 < count * (1 - _CLOSE) else None,
            radius / (longest * FIXED_POINT_ONE),
            intercept,
            radius,
            plan.epsilon >= FINE_EPSILON,
        )

    def rows(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows as integers, the intercept first.

        Parameters
        ----------
        features : ndarray of float64, shape (rows, d)
            NaN stands for NULL and counts as the middle of the bounds, or as zero. The array is overwritten.

        Returns
        -------
        matrix : ndarray of float64, shape (rows, 1 + d)
            ``sum q_j**2 <= S**2`` holds exactly in every row. Rows are clipped, scaled by slightly less than needed to
            allow for rounding errors, and truncated toward zero. With `nearest`, a row is rounded to nearest instead if
            its norm stays within `radius`.
        """
        np.clip(features, self.low, self.high, out=features)
        quantised = quantise(features, self.middle, self.scale)
        if self.limit is not None:
            clip_rows(quantised, self.limit)
        np.multiply(quantised, self.shrink * SHRINK, out=quantised)
        matrix = np.empty((len(features), 1 + features.shape[1]))
        matrix[:, 0] = self.intercept
        np.trunc(quantised, out=matrix[:, 1:])
        if self.nearest:
            np.rint(quantised, out=quantised)
            # Sums of integers below 2**53: exact in any order.
            short = np.einsum("ij,ij->i", quantised, quantised) <= float(self.radius**2)
            matrix[short, 1:] = quantised[short]
        return matrix

    def unmapped(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return coefficients in the units of the features, the intercept first."""
        slopes = coefficients[1:] * (self.shrink * self.scale / FIXED_POINT_ONE)
        intercept = coefficients[0] * self.intercept / FIXED_POINT_ONE - slopes @ self.middle
        return np.nan_to_num(np.concatenate(([intercept], slopes)))


def _around_zero(pair: tuple[float, float]) -> tuple[float, float]:
    """Return the bounds widened to be symmetric about zero, or unchanged if they exclude zero."""
    low, high = pair
    if not low <= 0.0 <= high:
        return pair
    far = max(-low, high)
    return -far, far


class LogisticCall(Call):
    """A dp_logistic_regression call, with the column types of its source."""

    plan: LogisticPlan

    def check(self) -> None:
        """Check the call as `Call.check` does, and raise if a feature has no bounds or too narrow ones."""
        super().check()
        _ = self.scaling

    @cached_property
    def scaling(self) -> Scaling:
        """The map from the call's rows to integers."""
        return Scaling.of(self.plan, self.intervals or [])

    def start(self) -> Collector:
        """Return an empty collection of rows."""
        return LabelledRows(self.scaling)

    def prepare(self, statistic: LabelledRows, progress: Progress) -> Callable[[], Json] | Draw:
        """Fit the model now: fitting takes too long for the ledger's transaction."""
        plan = self.plan
        noise = plan.calibrated(len(self.features))
        part: PerturbedObjective = plan.measurement["coefficients"]
        coefficients = statistic.scaling.unmapped(part.draw(statistic.signed, noise, tick=progress.tick))
        result: dict[str, Json] = {
            "kind": "logistic_regression",
            "method": "objective_perturbation",
            "terms": ["intercept", *self.features],
            "elements": None if self.elements is None else list(self.elements),
            "coefficients": coefficients.tolist(),
            "std_errors": None,
            "bounds": np.column_stack((statistic.scaling.low, statistic.scaling.high)).tolist(),
            "levels": list(self.levels),
            "regularization": float(noise.regularization),
        }
        return Draw(measurement_of(part.spent(noise)), lambda: result)


class LabelledRows(KeptRows):
    """Rows as integers, multiplied by their label -1 or 1. A row of neither level adds nothing to the objective."""

    def __init__(self, scaling: Scaling) -> None:
        self.scaling = scaling
        self.signed = SignedRows(1 + len(scaling.low))

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Keep the rows of a batch."""
        signs = np.sign(target)
        for start in range(0, len(target), BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            counted = signs[part] != 0.0
            block = np.ascontiguousarray(features[:, part].T)
            matrix = self.scaling.rows(block if counted.all() else block[counted])
            matrix *= signs[part][counted][:, np.newaxis]
            self.signed.add(matrix)

    def zero(self) -> LabelledRows:
        """Return no rows."""
        return LabelledRows(self.scaling)

    def merge(self, other: LabelledRows) -> None:
        """Append the rows of another collection."""
        self.signed.extend(other.signed)
