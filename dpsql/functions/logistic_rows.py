"""Rows of a logistic regression as integers of bounded norm: kept in memory, or added up for a step of the solver."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.contract.fold import Batch, Collector, Fold, Ignoring, KeptRows, field, numbers, record
from dpsql.errors import InternalError
from dpsql.functions.feature_scaling import Interval, KeptFeatures
from dpsql.kernels.clipped_rows import SHRINK
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, affine_maps
from dpsql.kernels.logistic import GradientSums, SignedRows
from dpsql.kernels.xty import BLOCK_ROWS
from dpsql.mechanisms.objective_perturbation import FINE_EPSILON, PerturbedFit
from dpsql.mechanisms.parts import PerturbedObjective
from dpsql.statistics.regression import RowMap, Scales, Standard

if TYPE_CHECKING:
    from dpsql.functions.logistic_regression import LogisticPlan

_CLOSE = 1e-9


@dataclass(frozen=True)
class Scaling:
    """The map from rows to integers whose norm, intercept included, is at most S.

    Attributes
    ----------
    low, high : ndarray of float64, shape (d,)
        Public or released bounds of the features.
    mapped : RowMap
        The map to integers in which the larger bound is S, or to standardised ones.
    shrink : float
        Factor from these to those of a row, in which the longest features have the norm `radius`.
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
    mapped: RowMap
    shrink: float
    intercept: int
    radius: int
    nearest: bool

    @classmethod
    def of(cls, plan: LogisticPlan, pairs: Sequence[Interval], standard: Standard | None = None) -> Scaling:
        """Derive the map from public arguments and what was released; `pairs` are the bounds of each feature.

        Raises
        ------
        ParameterError
            P036: an interval too narrow for doubles.
        """
        count = len(pairs)
        low, high = np.array(pairs, dtype=np.float64).reshape(-1, 2).T.copy()
        middle, scale = affine_maps([_around_zero(pair) for pair in pairs] if plan.about_zero else pairs)
        longest = plan.longest(count)
        mapped = RowMap(Scales(middle, scale, 0.0, 1.0), standard=standard)
        if standard is not None or longest**2 < count * (1 - _CLOSE):
            mapped = replace(mapped, longest=math.floor(longest * mapped.one))
        intercept = math.floor(FIXED_POINT_ONE / math.hypot(longest, 1.0))
        radius = math.isqrt(FIXED_POINT_ONE**2 - intercept**2)
        shrink = radius / (longest * mapped.one) if count else 1.0
        return cls(low, high, mapped, shrink, intercept, radius, plan.epsilon >= FINE_EPSILON)

    def rows(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows as integers, the intercept first.

        Parameters
        ----------
        features : ndarray of float64, shape (d, rows)
            NaN stands for NULL and counts as the middle of the bounds, as zero, or as the mean.

        Returns
        -------
        matrix : ndarray of float64, shape (rows, 1 + d)
            ``sum q_j**2 <= S**2`` holds exactly in every row. Rows are clipped, scaled by slightly less than needed to
            allow for rounding errors, and truncated toward zero. With `nearest`, a row is rounded to nearest instead if
            its norm stays within `radius`.
        """
        clipped = np.clip(features, self.low[:, np.newaxis], self.high[:, np.newaxis])
        matrix, _ = self.mapped.matrix(self.mapped.quantised(clipped))
        matrix[:, 0] = self.intercept
        quantised = matrix[:, 1:]
        np.multiply(quantised, self.shrink * SHRINK, out=quantised)
        nearest = np.rint(quantised) if self.nearest else None
        np.trunc(quantised, out=quantised)
        if nearest is not None:
            # Sums of integers below 2**53: exact in any order.
            short = np.einsum("ij,ij->i", nearest, nearest) <= float(self.radius**2)
            quantised[short] = nearest[short]
        return matrix

    def unmapped(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return coefficients in the units of the features, the intercept first."""
        middle, slope = self.mapped.columns
        slopes = coefficients[1:] * (self.shrink * slope / FIXED_POINT_ONE)
        intercept = coefficients[0] * self.intercept / FIXED_POINT_ONE - slopes @ middle
        return np.nan_to_num(np.concatenate(([intercept], slopes)))


def _around_zero(pair: tuple[float, float]) -> tuple[float, float]:
    """Return the bounds widened to be symmetric about zero, or unchanged if they exclude zero."""
    low, high = pair
    if not low <= 0.0 <= high:
        return pair
    far = max(-low, high)
    return -far, far


class LabelledRows(KeptFeatures["SignedFeatures"]):
    """Rows multiplied by their label, of the features that have bounds; the solver reads them in memory."""

    @property
    def scaling(self) -> Scaling:
        """The map of the rows."""
        return self.inner.scaling


def labelled_rows(kept: Sequence[int], scaling: Scaling) -> LabelledRows:
    """Return no rows, of the features at some positions."""
    return LabelledRows(kept, SignedFeatures(scaling))


class SignedFeatures(KeptRows):
    """Rows as integers, multiplied by their label -1 or 1. A row of neither level adds nothing to the objective."""

    def __init__(self, scaling: Scaling) -> None:
        self.scaling = scaling
        self.signed = SignedRows(1 + len(scaling.low))

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Keep the rows of a batch."""
        for matrix in _signed(self.scaling, target, features):
            self.signed.add(matrix)

    def zero(self) -> SignedFeatures:
        """Return no rows."""
        return SignedFeatures(self.scaling)

    def merge(self, other: SignedFeatures) -> None:
        """Append the rows of another collection."""
        self.signed.extend(other.signed)


def _signed(scaling: Scaling, target: NDArray[np.float64], features: NDArray[np.float64]) -> Iterator[Doubles]:
    """Yield rows as integers times their label, block by block; rows of neither level are left out."""
    signs = np.sign(target)
    for start in range(0, len(target), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        counted = signs[part] != 0.0
        block = features[:, part]
        matrix = scaling.rows(block if counted.all() else block[:, counted])
        matrix *= signs[part][counted][:, np.newaxis]
        yield matrix


class StepSums(Fold):
    """What the rows add to the gradient at some coefficients, for one step of the solver.

    These sums get no noise: the coefficients at the solver's end are what is released, and the proof of
    `dpsql.mechanisms.objective_perturbation` is about them. So a worker may compute them from any part of the rows.
    """

    def __init__(self, scaling: Scaling, multiples: list[int]) -> None:
        self.scaling = scaling
        self.sums = GradientSums(multiples)

    @property
    def size(self) -> int:
        """Bytes of the sums."""
        return 2 * (self.sums.digits.low.nbytes + self.sums.curvature.low.nbytes)

    def zero(self) -> StepSums:
        """Return empty sums at the same coefficients."""
        return StepSums(self.scaling, self.sums.multiples)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows."""
        for matrix in _signed(self.scaling, target, features):
            self.sums.add(matrix)

    def state(self) -> pa.RecordBatch:
        """Return the number of rows and the sums."""
        digits, curvature = self.sums.digits.column(), self.sums.curvature.column()
        return record({"rows": [self.sums.rows], "digits": digits, "curvature": curvature})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other sums."""
        self.sums.rows += int(numbers(state, "rows")[0])
        self.sums.digits.absorb(field(state, "digits"))
        self.sums.curvature.absorb(field(state, "curvature"))


class FitStep(KeptFeatures[StepSums]):
    """A step of the solver on an engine: one pass over the rows, at coefficients that follow from the passes before.

    Parameters
    ----------
    plan : LogisticPlan
    kept : sequence of int
        Positions of the features with bounds.
    scaling : Scaling
    at : list of int, optional
        The coefficients, by default zeros.
    run : PerturbedFit, optional
        The fit, which starts after the first pass.
    """

    ending = ("_plan", "_run")

    def __init__(
        self,
        plan: LogisticPlan,
        kept: Sequence[int],
        scaling: Scaling,
        at: list[int] | None = None,
        run: PerturbedFit | None = None,
    ) -> None:
        super().__init__(kept, StepSums(scaling, at or [0] * (1 + len(kept))))
        self._plan, self._run = plan, run

    @property
    def scaling(self) -> Scaling:
        """The map of the rows."""
        return self.inner.scaling

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Take a step; at the solver's end, draw."""
        plan, run = self._plan, self._run
        if run is None:
            part: PerturbedObjective = plan.measurement["coefficients"]
            run = part.start(1 + len(self.kept), plan.calibrated(len(self.kept)))
            next(run)  # the first coefficients are zeros
        try:
            return FitStep(plan, self.kept, self.scaling, run.send(self.inner.sums), run)
        except StopIteration as end:
            return Solved(self.kept, self.scaling, end.value)

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

    def __init__(self, kept: Sequence[int], scaling: Scaling, coefficients: NDArray[np.float64]) -> None:
        self.kept, self.scaling, self._coefficients = kept, scaling, coefficients

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Return itself."""
        return self

    def drawn(self) -> NDArray[np.float64]:
        """Return the coefficients."""
        return self._coefficients
