"""The Tukey mechanism as passes over the rows: a row count, ranges per block, and products per block.

Blocks have no bounds in common, so a model may predict anything. Its predictions are clipped to the public bounds of
the target, or else to a private interval of it (`dpsql.mechanisms.interval_scan`), drawn after the pass over the ranges
at `range_epsilon`: pure, and added to what the count and the model spend. The ends of the data would not be private.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from dpsql.contract.fold import Collector, Ignoring, Pass, Several, Waiting
from dpsql.contract.json import Json
from dpsql.contract.measurement import Draw
from dpsql.contract.plan import Quantity
from dpsql.kernels.fixed_point import affine_map, affine_maps
from dpsql.mechanisms.interval_scan import PrivateInterval
from dpsql.mechanisms.parts import DeepModel, LaplaceNoise, ScannedInterval
from dpsql.mechanisms.tukey_budget import models_needed
from dpsql.statistics.block_sums import BlockProducts, ColumnRanges
from dpsql.statistics.counts import MagnitudeHistogram, RowCount
from dpsql.statistics.votes import blocks_from_count

if TYPE_CHECKING:
    from dpsql.functions.linear_regression import RegressionCall, RegressionPlan

# With fewer rows per coefficient the call stops after the count, because the test would almost surely fail.
_FEWEST_MODELS = 500


def start(call: RegressionCall) -> Collector:
    """Return the collector of the first pass."""
    plan = call.plan
    if plan.blocks is not None:
        return _blocks(call, plan.blocks)
    return Counted(call) if plan.n_rows is None else _blocks(call, blocks_for(call, plan.n_rows))


def blocks_for(call: RegressionCall, rows: int) -> int:
    """Return the number of blocks for at least `rows` rows: enough for the test, and none too small to fit."""
    columns = len(call.features) + 1
    return max(1, min(models_needed(columns, *call.plan.model_budget), rows // columns))


def _blocks(call: RegressionCall, blocks: int) -> Collector:
    plan, count = call.plan, len(call.features)
    intervals = call.intervals
    if intervals is None or call.bounded_target is None:
        return Ranges(call, blocks)
    middle, scale = affine_maps(intervals)
    target_middle, target_scale = affine_map(*call.bounded_target)
    shape = (blocks, count + 1)
    middles = np.broadcast_to(np.append(middle, target_middle), shape)
    # The column type may reveal only now that the target is bounded; then the pass over the ranges is not needed.
    scales = np.broadcast_to(np.append(scale, target_scale), shape)
    products = Products(call, BlockProducts(middles, scales), intervals)
    return products if plan.target_is_bounded else Waiting(products)


class Counted(Pass[RowCount]):
    """The number of rows."""

    def __init__(self, call: RegressionCall) -> None:
        super().__init__(RowCount())
        self._call = call

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw a lower bound on the number of rows, and derive the number of blocks.

        Notes
        -----
        - **Guarantee**: pure DP at ``plan.count_epsilon``.
        - **Sensitivity**: one privacy unit changes the number of rows by at most ``max_rows_per_unit``.
        """
        plan = self._call.plan
        epsilon = plan.count_epsilon / plan.max_rows_per_unit
        part: LaplaceNoise = plan.measurement["count"]
        [noisy] = part.draw([self.inner.rows])
        rows = blocks_from_count(noisy, rows_per_block=1, epsilon=epsilon, failure=plan.count_failure)
        if rows < _FEWEST_MODELS * (len(self._call.features) + 1):
            return Refused(self._call)
        return _blocks(self._call, blocks_for(self._call, rows))


class Refused(Ignoring):
    """The end of a call with too few rows: only the count is charged."""

    def __init__(self, call: RegressionCall) -> None:
        self._call = call

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Return the last collector."""
        return self

    def draw(self, progress: Callable[[float], None]) -> Draw:
        """Return a result without a model."""
        result = self._call.result(None, reason="too few rows for so many features")
        return Draw(self._call.plan.measurement.only("count"), lambda: result)


class Ranges(Pass[Several]):
    """The range of every column in every block; and the target's magnitudes, if the range of predictions is private."""

    def __init__(self, call: RegressionCall, blocks: int) -> None:
        # The column type may have revealed that the target has levels.
        needed = call.plan.draws_range and call.bounded_target is None
        values = MagnitudeHistogram(0, target=needed)
        super().__init__(Several(ColumnRanges(blocks, len(call.features) + 1), values))
        self._call = call

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw the range of predictions, and scale every block by its own ranges.

        Notes
        -----
        - **Guarantee**: pure DP at ``plan.range_epsilon``, see `dpsql.mechanisms.interval_scan`.
        - **Sensitivity**: as there; the rows of a privacy unit are at most ``max_rows_per_unit``.
        """
        drawn, (ranges, values) = None, self.inner.folds
        if not isinstance(ranges, ColumnRanges) or not isinstance(values, MagnitudeHistogram):
            raise TypeError("the folds are of another pass")
        for counts in values.cells.counts:  # one column, or none
            part: ScannedInterval = self._call.plan.measurement["range"]
            drawn = part.draw(counts)
        return Products(self._call, BlockProducts(*ranges.maps()), drawn=drawn)


class Products(Pass[BlockProducts]):
    """The products of the columns in every block."""

    def __init__(
        self,
        call: RegressionCall,
        products: BlockProducts,
        bounds: list[tuple[float, float]] | None = None,
        drawn: PrivateInterval | None = None,
    ) -> None:
        super().__init__(products)
        self._call = call
        self._bounds = bounds
        self._drawn = drawn

    @property
    def _clips(self) -> Mapping[str, Json]:
        """Bounds of predictions: private ones, None if these are undetermined, or public ones; nothing for levels."""
        known = self._call.plan.target_bounds if self._drawn is None else self._drawn.ends
        if known is None:
            return {} if self._drawn is None else {"prediction_bounds": None}
        return {"prediction_bounds": list(known)}

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Json] | Draw:
        """Fit every block, and draw a point of high Tukey depth among the models.

        Notes
        -----
        - **Guarantee**: (epsilon, delta)-DP at the budget that count and range leave (`dpsql.mechanisms.tukey.tukey`).
          Under replace two models may change; `dpsql.mechanisms.tukey_budget.row_budget` allows for it.
        - **Assumes**: all rows of a privacy unit are in one block.
        """
        models = self.inner.models(progress)
        models[:] /= self._call.target_unit
        part: DeepModel = self._call.plan.measurement["model"]
        point = part.draw(models)
        reason = "" if point is not None else "the models of the blocks differ too much, or are too few"
        result = self._call.result(point, bounds=self._bounds, reason=reason, clips=self._clips)
        plan = self._call.plan
        if plan.draws_range and self._drawn is None:  # for nothing: the target has levels
            return Draw(plan.measurement.only("count", "model"), lambda: result)
        return lambda: result


def noise(plan: RegressionPlan, n_features: int, n_rows: int | None) -> list[Quantity]:
    """Return how many blocks and rows a call would need."""
    needed = models_needed(n_features + 1, *plan.model_budget)
    out: list[Quantity] = [
        ("models_needed", float(needed), "blocks that make the test pass nearly always, for models that agree"),
        ("rows_needed", float(_FEWEST_MODELS * (n_features + 1)), "fewer rows are refused, at the price of the count"),
    ]
    if plan.draws_count:
        scale = plan.max_rows_per_unit / float(plan.count_epsilon)
        out.append(("count_noise_scale", scale, "scale of the noise on the number of rows"))
    if plan.draws_range:
        needed_rows = float(plan.range_noise.rows_needed)
        out.append(("range_rows_needed", needed_rows, "rows from which predictions are clipped, but for noise"))
    if n_rows is not None:
        out.append(("rows_per_block", n_rows / max(1, min(needed, n_rows // (n_features + 1))), "rows of a block"))
    return out
