"""Compute the statistics of an additive stage: weights per cell, sizes of residuals, and residuals per cell.

Features are integers ``q_j`` in [-S, S], ``S = 2**20`` (`fixed_point`). The target and its residuals are integers where
S is the scale of the preceding linear fit. A `CellMap` maps a row to its *codes*, one per feature: the cell of q_j, or
none if the feature is missing; to its *start*, the target less the linear fit; and to its *weight*, in [0, 1]. Cells,
coefficients and steps are public, or released before. The steps of a row's cells add up to its *move*. Start and move
determine its residual, within [-B, B] with B public. All of this is a function of the row alone: products of rows and
coefficients are exact integers, whatever the batch.

In least squares (`StepRows`) a start is the target less the linear fit's prediction, and a residual is this less the
move, clipped; every row weighs 1. A classifier has the residuals and weights of `dpsql.statistics.score_rows`.

The table has sensitivities of the *squared* L2 norm, with a unit of at most m rows, c counted features, and the
residuals of g features summed at once:

=====================================  ============  =============  ================================================
statistic                              add_remove    replace        why
=====================================  ============  =============  ================================================
weights per cell, c features           c m**2        2 c m**2       a row adds its weight, of at most 1, to one cell
                                                                    of each feature, or to none; such vectors have
                                                                    no negative products
rows per size of the residual          m**2          2 m**2         the same, one histogram
sums of residuals per cell, g          g B**2 m**2   4 g B**2 m**2  a row adds its residual, of at most B, to one
features                                                            cell of each of the g features
=====================================  ============  =============  ================================================

Rows of the same cells and opposite residuals attain the last one under replace. Later sums use steps that depend on
earlier sums, which changes nothing: the earlier sums were released.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Integers, Longs
from dpsql.contract.fold import Batch, Fold, KeptRows, field, record
from dpsql.contract.relation import relation_of
from dpsql.dataclass import dataclass
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, WideSums
from dpsql.kernels.gram import fixed_coefficients
from dpsql.kernels.xty import BLOCK_ROWS
from dpsql.statistics.regression import FARTHEST_TARGET, RowMap, Scales

# Cells of a feature. Missing values have the code after the last cell.
CELLS = 128
# Upper ends of residual sizes, for absolute values: half octaves, down to a hundredth of the scale of the target.
SIZES: Longs = np.array([round(4 * FIXED_POINT_ONE * 2.0 ** (-step / 2)) for step in range(1, 18)], dtype=np.int64)
# Smaller weights of rows count as this weight.
_LEAST_WEIGHT = 2.0**-16
# Largest absolute value of a step: sums of steps are exact in doubles.
LARGEST_STEP = FARTHEST_TARGET

Codes = NDArray[np.uint8]


def cells_sensitivity(neighbours: str, features: int, max_rows_per_unit: int = 1) -> int:
    """Return the squared L2 sensitivity of the weights per cell of some features, each weight at most 1.

    Parameters
    ----------
    neighbours : {'add_remove', 'replace'}
    features : int
        c, >= 1.
    max_rows_per_unit : int
        m, >= 1.
    """
    return relation_of(neighbours, max_rows_per_unit).squared_norm(features, opposing=False)


def sizes_sensitivity(neighbours: str, max_rows_per_unit: int = 1) -> int:
    """Return the squared L2 sensitivity of the rows per size of the residual; parameters as for `cells_sensitivity`."""
    return relation_of(neighbours, max_rows_per_unit).squared_norm(1, opposing=False)


def residuals_sensitivity(neighbours: str, features: int, most: int, max_rows_per_unit: int = 1) -> int:
    """Return the squared L2 sensitivity of the sums of residuals per cell.

    Parameters
    ----------
    neighbours : {'add_remove', 'replace'}
    features : int
        g, >= 1: the features summed at once.
    most : int
        B, >= 1: bound on the absolute value of a residual.
    max_rows_per_unit : int
        m, >= 1.
    """
    return relation_of(neighbours, max_rows_per_unit).squared_norm(features * most**2, opposing=True)


@dataclass(frozen=True)
class CellMap(ABC):
    """The map from rows to their codes, start, weight and residual; a function of each row alone.

    Attributes
    ----------
    mapped : RowMap
        Of the linear fit.
    starts : ndarray of float64, shape (d, CELLS - 1)
        Integers: the start of each cell but the first, ascending in each row.
    """

    mapped: RowMap
    starts: NDArray[np.float64]

    @staticmethod
    def even(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the starts of equal cells, between integers of shape (d,)."""
        return np.ceil(low[:, None] + (high - low)[:, None] * (np.arange(1, CELLS) / CELLS))

    @property
    def edges(self) -> NDArray[np.float64]:
        """The starts of cells, in column units: half an integer before the first one in the cell."""
        scales = self.mapped.scales
        edges: NDArray[np.float64] = scales.middle[:, None] + (self.starts - 0.5) / scales.scale[:, None]
        return edges

    def quantised(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return features of shape (d, rows) as integers, shape (rows, d), NaN if missing."""
        return self.mapped.quantised(features)

    def codes(self, quantised: NDArray[np.float64]) -> Codes:
        """Return the cell of each feature, shape (rows, d), `CELLS` for NaN."""
        codes = np.empty(quantised.shape, dtype=np.uint8)
        for feature, starts in enumerate(self.starts):
            codes[:, feature] = np.searchsorted(starts, quantised[:, feature], side="right")
        codes[np.isnan(quantised)] = CELLS
        return codes

    @abstractmethod
    def start(self, quantised: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the starts of rows; the first axis is the rows."""

    @abstractmethod
    def residuals(self, start: NDArray[np.float64], moved: NDArray[np.float64], most: int) -> NDArray[np.float64]:
        """Return the residuals of moved rows, shape (rows,): integers in [-most, most]."""

    def weights(self, start: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Return the weights of rows, integers in [0, S] for [0, 1]; None if each row counts 1, in units of 1."""
        return None


@dataclass(frozen=True)
class StepRows(CellMap):
    """The map of least squares.

    Attributes
    ----------
    scales : Scales
        Residuals have the target's scale.
    coefficients : ndarray of float64, shape (1 + d,)
        Of the linear fit, in mapped units; released.
    """

    scales: Scales
    coefficients: NDArray[np.float64]

    @classmethod
    def of(cls, mapped: RowMap, scales: Scales, coefficients: NDArray[np.float64]) -> Self:
        """Return the map with cells of equal width between the feature ends of the linear fit."""
        return cls(mapped, cls.even(*mapped.ends), scales, coefficients)

    def start(self, quantised: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the residuals of the linear fit, shape (rows,): integers within `FARTHEST_TARGET`, 0 without a target.

        If the linear fit scaled a row down, its residual is scaled up again.
        """
        integers, bits = fixed_coefficients(self.coefficients)
        residuals = np.empty(len(target))
        for first in range(0, len(target), BLOCK_ROWS):
            some = slice(first, first + BLOCK_ROWS)
            matrix, weights = self.mapped.matrix(quantised[some])
            with np.errstate(over="ignore", invalid="ignore"):
                moved = (target[some] - self.scales.target_middle) * self.scales.target_scale
            np.clip(moved, -FARTHEST_TARGET, FARTHEST_TARGET, out=moved)
            # Integers below 2**53: sums do not depend on their order.
            predicted = matrix @ integers * 2.0**-bits
            residuals[some] = moved - predicted / np.maximum(weights, _LEAST_WEIGHT)
        np.clip(residuals, -FARTHEST_TARGET, FARTHEST_TARGET, out=residuals)
        return np.nan_to_num(np.floor(residuals + 0.5))

    def residuals(self, start: NDArray[np.float64], moved: NDArray[np.float64], most: int) -> NDArray[np.float64]:
        """Return the residuals of the linear fit less the steps, clipped."""
        clipped: NDArray[np.float64] = np.clip(start - moved, -most, most)
        return clipped


@dataclass(frozen=True)
class Steps:
    """Public steps, and the bound of residuals.

    Attributes
    ----------
    values : ndarray of float64, shape (d, CELLS + 1)
        Integers within `LARGEST_STEP`; the last one, of missing values, is 0.
    most : int
        B.
    """

    values: NDArray[np.float64]
    most: int

    def moved(self, codes: Codes) -> NDArray[np.float64]:
        """Return the sum of the steps of each row, shape (rows,): integers."""
        sums = np.zeros(len(codes))
        for feature, values in enumerate(self.values):
            if values.any():
                sums += values[codes[:, feature]]
        return sums


def _per_cell(codes: Codes, weights: NDArray[np.float64] | None, features: list[int]) -> NDArray[np.int64]:
    """Return exact sums of integers per cell, shape (features, CELLS), without missing values."""
    counts = np.empty((len(features), CELLS), dtype=np.int64)
    for row, feature in enumerate(features):
        counts[row] = np.bincount(codes[:, feature], weights, minlength=CELLS + 1)[:CELLS]
    return counts


def _sizes(start: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the rows per size of a residual, the largest first, shape (1 + sizes,)."""
    return np.bincount(np.searchsorted(-SIZES, -abs(start), side="left"), minlength=len(SIZES) + 1)


class CellWeights(Fold):
    """Weights per cell of each feature.

    Parameters
    ----------
    rows : CellMap

    Attributes
    ----------
    cells : ndarray of int64, shape (d, CELLS)
        In units of 1 if every row weighs 1, else of ``1 / S``.
    """

    def __init__(self, rows: CellMap) -> None:
        self._rows = rows
        self.cells = np.zeros((len(rows.starts), CELLS), dtype=np.int64)

    @property
    def size(self) -> int:
        """Bytes of the weights."""
        return self.cells.nbytes

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows."""
        quantised = self._rows.quantised(features)
        self.add_coded(self._rows.codes(quantised), self._rows.start(quantised, target))

    def add_coded(self, codes: Codes, start: NDArray[np.float64]) -> None:
        """Add rows of known codes and starts, few enough for doubles."""
        self.cells += _per_cell(codes, self._rows.weights(start), list(range(len(self.cells))))

    def state(self) -> pa.RecordBatch:
        """Return the weights."""
        return record({"cells": self.cells})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other weights."""
        self.cells += field(state, "cells").to_numpy(zero_copy_only=False).reshape(self.cells.shape)


class CellRows(CellWeights):
    """Rows per cell of each feature, and rows per residual size of the linear fit; same parameters."""

    def __init__(self, rows: StepRows) -> None:
        super().__init__(rows)
        self.sizes = np.zeros(len(SIZES) + 1, dtype=np.int64)

    def add_coded(self, codes: Codes, start: NDArray[np.float64]) -> None:
        """Count rows of known codes and starts."""
        super().add_coded(codes, start)
        self.sizes += _sizes(start)

    def state(self) -> pa.RecordBatch:
        """Return the counts."""
        return record({"cells": self.cells, "sizes": self.sizes})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other counts."""
        super().absorb(state)
        self.sizes += field(state, "sizes").to_numpy(zero_copy_only=False)


class ResidualSums(Fold):
    """Sums of residuals per cell of some features, at given steps.

    Parameters
    ----------
    rows : CellMap
    steps : Steps
    features : list of int
        These features.
    """

    def __init__(self, rows: CellMap, steps: Steps, features: list[int]) -> None:
        self._rows, self._steps, self._features = rows, steps, features
        self._sums = WideSums((len(features), CELLS))

    @property
    def size(self) -> int:
        """Bytes of the sums."""
        return 2 * self._sums.low.nbytes

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows."""
        quantised = self._rows.quantised(features)
        self.add_coded(self._rows.codes(quantised), self._rows.start(quantised, target))

    def add_coded(self, codes: Codes, start: NDArray[np.float64]) -> None:
        """Add rows of known codes and starts, few enough for doubles: fewer than ``2**25``."""
        residuals = self._rows.residuals(start, self._steps.moved(codes), self._steps.most)
        self._sums.add(_per_cell(codes, residuals, self._features))

    def sums(self) -> Integers:
        """Return the sums, shape (features, CELLS), as Python ints."""
        return self._sums.total()

    def state(self) -> pa.RecordBatch:
        """Return the sums."""
        return record({"sums": self._sums.column()})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other sums."""
        self._sums.absorb(field(state, "sums"))


class CodedRows(KeptRows):
    """Codes and starts of rows for every round of the additive stage: a byte per feature.

    Parameters
    ----------
    rows : CellMap
    """

    def __init__(self, rows: CellMap) -> None:
        self._rows = rows
        self._batches: list[tuple[Codes, NDArray[np.float64]]] = []

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows."""
        self.add_quantised(self._rows.quantised(features), target)

    def add_quantised(self, quantised: NDArray[np.float64], target: NDArray[np.float64]) -> None:
        """Store quantised rows."""
        self._batches.append((self._rows.codes(quantised), self._rows.start(quantised, target)))

    def merge(self, other: CodedRows) -> None:
        """Append the rows of another collection."""
        self._batches += other._batches

    def into(self, fold: CellWeights | ResidualSums) -> None:
        """Add all rows to a fold, in pieces that doubles add up exactly."""
        for codes, start in self._batches:
            for first in range(0, len(start), _PIECE):
                fold.add_coded(codes[first : first + _PIECE], start[first : first + _PIECE])


# Residuals are below 2**28: so many of them sum exactly in a double.
_PIECE = 1 << 20
