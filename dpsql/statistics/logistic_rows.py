"""Map rows of a logistic regression to integers of bounded norm, and store them or add them up for a solver step.

The norm, intercept included, is at most S in every row. The guarantee needs no more: one row moves the gradient of the
objective by a vector of norm S at most, see `dpsql.mechanisms.objective_perturbation`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.contract.fold import Batch, Fold, KeptRows, field, numbers, record
from dpsql.dataclass import dataclass
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, affine_maps
from dpsql.kernels.gram import SHRINK
from dpsql.kernels.logistic import GradientSums, SignedRows
from dpsql.kernels.xty import BLOCK_ROWS
from dpsql.statistics.regression import RowMap, Scales, Standard

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
        Factor from these to a row's, in which the longest features have the norm `radius`.
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
    def of(
        cls,
        pairs: Sequence[tuple[float, float]],
        standard: Standard | None,
        *,
        longest: float,
        about_zero: bool,
        nearest: bool,
    ) -> Scaling:
        """Derive the map from public arguments and released numbers.

        Parameters
        ----------
        pairs : sequence of (float, float)
            Bounds of each feature.
        standard : Standard or None
            Released means and deviations for standardising rows.
        longest : float
            Norm to which longer rows of features are scaled down, > 0.
        about_zero : bool
            Whether features are centred at zero, if their bounds include it.
        nearest : bool
            As the attribute.

        Raises
        ------
        ParameterError
            P036: an interval too narrow for doubles.
        """
        count = len(pairs)
        low, high = np.array(pairs, dtype=np.float64).reshape(-1, 2).T.copy()
        middle, scale = affine_maps([_around_zero(pair) for pair in pairs] if about_zero else pairs)
        mapped = RowMap(Scales(middle, scale, 0.0, 1.0), standard=standard)
        if standard is not None or longest**2 < count * (1 - _CLOSE):
            mapped = replace(mapped, longest=math.floor(longest * mapped.denominator))
        intercept = math.floor(FIXED_POINT_ONE / math.hypot(longest, 1.0))
        radius = math.isqrt(FIXED_POINT_ONE**2 - intercept**2)
        shrink = radius / (longest * mapped.denominator) if count else 1.0
        return cls(low, high, mapped, shrink, intercept, radius, nearest)

    def rows(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows as integers, the intercept first.

        Parameters
        ----------
        features : ndarray of float64, shape (d, rows)
            NaN is NULL and counts as the middle of the bounds, as zero, or as the mean.

        Returns
        -------
        matrix : ndarray of float64, shape (rows, 1 + d)
            ``sum q_j**2 <= S**2`` holds exactly in every row. Rows are clipped, scaled by slightly less than needed to
            allow for rounding errors, and truncated toward zero. With `nearest`, a row is rounded to nearest instead if
            its norm stays within `radius`.
        """
        return self.matrix(self.quantised(features))

    def quantised(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return clipped features of shape (d, rows) as integers in [-S, S], shape (rows, d), NaN if missing."""
        return self.mapped.quantised(np.clip(features, self.low[:, np.newaxis], self.high[:, np.newaxis]))

    def matrix(self, quantised: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the rows of quantised features."""
        matrix, _ = self.mapped.matrix(quantised)
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


class SignedFeatures(KeptRows):
    """Rows as integers, multiplied by their label -1 or 1. A row of neither level adds nothing to the objective."""

    def __init__(self, scaling: Scaling) -> None:
        self.scaling = scaling
        self.signed = SignedRows(1 + len(scaling.low))

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add the rows of a batch."""
        for matrix in _signed(self.scaling, target, features):
            self.signed.add(matrix)

    def merge(self, other: SignedFeatures) -> None:
        """Append the rows of another collection."""
        self.signed.extend(other.signed)


def _signed(scaling: Scaling, target: NDArray[np.float64], features: NDArray[np.float64]) -> Iterator[Doubles]:
    """Yield rows as integers times their label, block by block, without rows of neither level."""
    signs = np.sign(target)
    for start in range(0, len(target), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        counted = signs[part] != 0.0
        block = features[:, part]
        matrix = scaling.rows(block if counted.all() else block[:, counted])
        matrix *= signs[part][counted][:, np.newaxis]
        yield matrix


class StepSums(Fold):
    """The rows' part of the gradient at some coefficients, for one step of the solver.

    These sums get no noise: the release is the solver's final coefficients, and the proof of
    `dpsql.mechanisms.objective_perturbation` is about them. So a worker may compute these sums from any part of the
    rows.
    """

    def __init__(self, scaling: Scaling, multiples: list[int]) -> None:
        self.scaling = scaling
        self.sums = GradientSums(multiples)

    @property
    def size(self) -> int:
        """Bytes of the sums."""
        return 2 * (self.sums.digits.low.nbytes + self.sums.curvature.low.nbytes)

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
