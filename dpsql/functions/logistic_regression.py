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
# Features at their bound that a long row counts in full, where nothing is said.
_LONG_FEATURES = 10
# Rows of at least this norm have a fair number of integers to lie on.
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
        With it the perturbation may be normal, and is where that is the smaller.
    lower, upper : float, tuple of float or dict of float
        Public bounds of the features, by their order or their names.
    row_norm : float or None
        Longest row of features that counts in full, where a feature is 1 at its bound; longer ones are shortened. None
        for all rows, in long rows for the root of 10: ten features at their bounds.
    regularization : float or None
        Ridge on the sum over all rows, whose features and intercept have a norm of at most 1; None for the usual one.
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
            "Longest row of features that counts in full, at least 2**-10, in half widths of their bounds. Longer rows "
            "are shortened.",
            shown="none is shortened",
            check=_row_norm,
        ),
        double(
            "regularization",
            "Weight of the squared coefficients, above 0, on the sum over all rows.",
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
        """Raise when there are too many features."""
        if count > MOST_FEATURES:
            raise ParameterError(
                "P026",
                f"{self.function} takes at most {MOST_FEATURES} features; got {count}. "
                "Select some first, and give features := release('the name of that release').",
            )

    def check_drawable(self, count: int) -> None:
        """Raise when no noise would do."""
        self.calibrated(count)

    def calibrated(self, count: int) -> ObjectiveNoise:
        """Return the noise for so many features."""
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
        """Whether features are measured from zero, so that rows of few features are short."""
        return self.row_norm is not None or self.layout.kind == "long"

    def longest(self, count: int) -> float:
        """Return the longest row of so many features that counts in full."""
        root = math.sqrt(count)
        if self.row_norm is None:
            return min(root, math.sqrt(_LONG_FEATURES)) if self.layout.kind == "long" else root
        return min(root, self.row_norm)

    @cached_property
    def measurement(self) -> Measurement:
        """What is drawn at most: without normal noise a call spends no delta."""
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
    """How a row becomes integers whose norm is at most S, the intercept's among them.

    Attributes
    ----------
    low, high : ndarray of float64, shape (d,)
        Public bounds of the features.
    middle, scale : ndarray of float64, shape (d,)
        From a feature to units where S is the larger bound.
    limit : int or None
        Longest row of features that counts in full, in these units; None for all.
    shrink : float
        From there to the units of a row, in which that is `radius`.
    intercept : int
        The first coordinate of every row.
    radius : int
        Largest norm of the others: ``intercept**2 + radius**2 <= S**2``.
    nearest : bool
        Whether rows are rounded to nearest where that leaves them short enough: beyond any usual epsilon the bias of
        half a unit toward zero would be seen.
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
        """Derive it from public arguments alone, of which `pairs` are the bounds of each feature.

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
            NaN stands for NULL and counts as the middle, or as zero. Overwritten.

        Returns
        -------
        matrix : ndarray of float64, shape (rows, 1 + d)
            ``sum q_j**2 <= S**2`` in every row, exactly: rows are clipped, scaled by slightly less than would do, so
            that roundings are made up for, and cut off toward zero; with `nearest` those that stay within `radius` are
            rounded instead, each row by itself.
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
    """Return an interval with zero as its middle; the pair itself where zero is outside."""
    low, high = pair
    if not low <= 0.0 <= high:
        return pair
    far = max(-low, high)
    return -far, far


class LogisticCall(Call):
    """A dp_logistic_regression call joined to its source's types."""

    plan: LogisticPlan

    def check(self) -> None:
        """Raise when a feature has no bounds, too, or bounds too narrow."""
        super().check()
        _ = self.scaling

    @cached_property
    def scaling(self) -> Scaling:
        """How its rows become integers."""
        return Scaling.of(self.plan, self.intervals or [])

    def start(self) -> Collector:
        """Return what keeps the rows."""
        return LabelledRows(self.scaling)

    def prepare(self, statistic: LabelledRows, progress: Progress) -> Callable[[], Json] | Draw:
        """Fit the model; the work is too long for the ledger's transaction."""
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
    """Rows of either level, as integers, times -1 or 1. A row of no level adds nothing to the objective."""

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
        """Put the rows of another one behind these."""
        self.signed.extend(other.signed)
