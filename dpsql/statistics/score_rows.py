"""Map the rows of an additive classifier: the residual of a released linear score, and its curvature.

Log odds are integers where S = ``2**20`` (`fixed_point`) is 1. `ScoreRows` maps a row to its start: the score that the
linear fit predicts for it, and its label y, 1 for the positive level and 0 for the negative one. With steps the score
moves, and p is ``1 / (1 + exp(-score))``, an integer in [0, S] for [0, 1] from a public table. The residual is ``y -
p``, in [-1, 1] for any score: so the bound B is S, and needs no release. The weight is ``4 p (1 - p)`` at the start, in
[0, 1]: a fourth of it is both the curvature of the loss in the score and the variance of the residual. A row of neither
level has residual and weight 0, so it does not count. All of this is a function of the row alone, and the same on every
platform: the table is computed in doubles that need no library (`dpsql.kernels.fixed_point`), and the score is an exact
integer sum.

So the sensitivities are as in `dpsql.statistics.additive`, for weights and for residuals with B = S. Under replace the
residuals of two rows in the same cells may be 1 and -1: labels differ, and so do scores, which cells do not decide.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.fold import Batch, KeptRows
from dpsql.dataclass import dataclass
from dpsql.kernels import fixed_point
from dpsql.kernels.fixed_point import FIXED_POINT_BITS, FIXED_POINT_ONE, quantise
from dpsql.kernels.gram import fixed_coefficients
from dpsql.kernels.logistic import SignedRows
from dpsql.kernels.xty import BLOCK_ROWS
from dpsql.statistics.additive import CellMap, CodedRows
from dpsql.statistics.logistic_rows import Scaling

# Scores are clipped here: no step that matters comes back from so far.
_FARTHEST_SCORE = 64.0 * FIXED_POINT_ONE
# Table entries of p per unit of the score, and the score at which p is 1 to within half a unit.
_FINENESS, _TABLE_END = 1 << 12, 16


@dataclass(frozen=True)
class ScoreRows(CellMap):
    """The map of a classifier.

    Attributes
    ----------
    scaling : Scaling
        Of the linear fit.
    factors : ndarray of float64, shape (1 + d,)
        Released: change of the score per unit of each column, in deviations or half widths, the intercept first.
    """

    scaling: Scaling
    factors: NDArray[np.float64]

    @classmethod
    def of(cls, scaling: Scaling, coefficients: NDArray[np.float64]) -> Self:
        """Return the map for the coefficients of rows that `scaling` maps, with cells between the features' ends.

        Rows are not shortened here, as in a prediction.
        """
        mapped = scaling.mapped
        within = [
            quantise(side.copy(), mapped.scales.middle, mapped.scales.scale) for side in (scaling.low, scaling.high)
        ]
        low, high = (np.clip(end, *within) for end in mapped.ends)
        factors = coefficients * scaling.shrink
        factors[0] = coefficients[0] * scaling.intercept / mapped.denominator
        return cls(mapped, cls.even(low, high), scaling, factors)

    def quantised(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return clipped features of shape (d, rows) as integers, shape (rows, d), NaN if missing."""
        return self.scaling.quantised(features)

    def start(self, quantised: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the score, an integer, and -1, 1 or 0 for the label; shape (rows, 2)."""
        integers, bits = fixed_coefficients(self.factors)
        starts = np.empty((len(target), 2))
        for first in range(0, len(target), BLOCK_ROWS):
            some = slice(first, first + BLOCK_ROWS)
            matrix = np.nan_to_num(self.mapped.in_deviations(quantised[some]))
            # Integers below 2**53: sums do not depend on their order.
            starts[some, 0] = (matrix @ integers[1:] + self.mapped.denominator * integers[0]) * 2.0**-bits
        np.clip(np.floor(starts[:, 0] + 0.5), -_FARTHEST_SCORE, _FARTHEST_SCORE, out=starts[:, 0])
        starts[:, 1] = np.nan_to_num(np.sign(target))
        return starts

    def residuals(self, start: NDArray[np.float64], moved: NDArray[np.float64], most: int) -> NDArray[np.float64]:
        """Return ``y - p`` after the move, shape (rows,): integers in [-most, most], 0 for a row of neither level."""
        residuals = np.where(start[:, 1] > 0.0, float(FIXED_POINT_ONE), 0.0) - _shares(start[:, 0] + moved)
        residuals[start[:, 1] == 0.0] = 0.0
        clipped: NDArray[np.float64] = np.clip(residuals, -most, most)
        return clipped

    def weights(self, start: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ``4 p (1 - p)`` at the start, shape (rows,): integers in [0, S], 0 for a row of neither level."""
        share = _shares(start[:, 0])
        weights = np.floor(4.0 * share * (FIXED_POINT_ONE - share) / FIXED_POINT_ONE)
        weights[start[:, 1] == 0.0] = 0.0
        return weights


class LabelledFeatures(KeptRows):
    """Quantised rows with their labels: for the linear fit, and later for codes and scores.

    Parameters
    ----------
    scaling : Scaling
    """

    def __init__(self, scaling: Scaling) -> None:
        self._scaling = scaling
        self._batches: list[tuple[NDArray[np.float32], NDArray[np.float64]]] = []

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows, without rows of neither level."""
        signs = np.nan_to_num(np.sign(target))
        counted = signs != 0.0
        # Exact in single precision: the integers have at most 21 bits.
        quantised = self._scaling.quantised(features if counted.all() else features[:, counted])
        self._batches.append((quantised.astype(np.float32), signs[counted]))

    def merge(self, other: LabelledFeatures) -> None:
        """Append the rows of another collection."""
        self._batches += other._batches

    @property
    def signed(self) -> SignedRows:
        """The rows of the linear fit, times their labels."""
        rows = SignedRows(1 + len(self._scaling.low))
        for quantised, signs in self._batches:
            for start in range(0, len(signs), BLOCK_ROWS):
                some = slice(start, start + BLOCK_ROWS)
                matrix = self._scaling.matrix(quantised[some].astype(np.float64))
                rows.add(matrix * signs[some, np.newaxis])
        return rows

    def given_up(self, rows: ScoreRows) -> CodedRows:
        """Return codes and starts, and free the rows."""
        coded_rows = CodedRows(rows)
        while self._batches:
            quantised, signs = self._batches.pop()
            coded_rows.add_quantised(quantised.astype(np.float64), signs)
        return coded_rows


def _shares(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``1 / (1 + exp(-score))`` as integers in [0, S], for scores in units of ``1 / S``."""
    end = _TABLE_END * _FINENESS
    positions = np.floor(scores * (_FINENESS / FIXED_POINT_ONE) + 0.5)
    shares: NDArray[np.float64] = _table()[(np.clip(positions, -end, end) + end).astype(np.intp)]
    return shares


@lru_cache(maxsize=1)
def _table() -> NDArray[np.float64]:
    end = _TABLE_END * _FINENESS
    margins = -np.arange(-end, end + 1, dtype=np.float64) / _FINENESS
    [shares] = fixed_point.digits(fixed_point.share((margins, np.zeros_like(margins))), FIXED_POINT_BITS, 1)
    return shares
