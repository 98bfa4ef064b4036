"""The Tukey mechanism as passes over the rows: a row count, ranges per block, and products per block.

Blocks share no bounds, so a model may predict anything. Predictions are clipped to the public bounds of the target, or
else to its private interval (`dpsql.mechanisms.interval_scan`), drawn after the pass over the ranges. The interval
costs `range_epsilon`: pure DP, in addition to the count and the model. The ends of the data would not be private.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cached_property

import numpy as np

from dpsql.contract.fold import Collector, RowTransform, Several, Waiting
from dpsql.contract.json import Json
from dpsql.contract.measurement import Draw, Measurement, Part, measurement_of
from dpsql.contract.parameters import narrow
from dpsql.contract.plan import Pass, Quantity, refuse_wide_noise
from dpsql.errors import ParameterError
from dpsql.functions.regression.method import Method, NoModel, RegressionCall
from dpsql.kernels.fixed_point import affine_map, affine_maps
from dpsql.mechanisms.interval_scan import IntervalNoise, PrivateInterval, ScannedInterval
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.tukey import DeepModel, models_needed, row_budget
from dpsql.statistics.counts import MagnitudeHistogram, RowCount
from dpsql.statistics.votes import BlockProducts, ColumnRanges, blocks_from_count

# The call stops after the count with fewer rows per coefficient: the test would almost surely fail.
_FEWEST_MODELS = 500
_LARGEST_MODEL_EPSILON = Fraction(200)
# Chance that a claim about the range of predictions is false.
_RANGE_FAILURE = Fraction(1, 100)


class Tukey(Method):
    """The Tukey mechanism: a point of high depth among the models of blocks of rows."""

    @classmethod
    def own_arguments(cls, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Raise if the count and the range leave no budget for the model."""
        if not sum(narrow(Fraction, arguments[name]) for name in ("count_share", "range_share")) < 1:
            raise ParameterError("P051", "count_share and range_share must be below 1 together. Lower one of them.")
        return {}

    def check_features(self, count: int) -> None:
        """Raise if no number of blocks suffices."""
        if self.plan.blocks is None:
            models_needed(count + 1, *self.model_budget)

    @property
    def draws_count(self) -> bool:
        """Whether the number of blocks comes from a private number of rows."""
        return self.plan.blocks is None and self.plan.n_rows is None

    @property
    def draws_range(self) -> bool:
        """Whether the range of predictions is private; public bounds of the target replace it."""
        return self.plan.clip and not self.plan.target_is_bounded

    @property
    def passes(self) -> tuple[Pass, ...]:
        """A pass each for the count, the ranges and the products; all sort rows into the same blocks."""
        measured = self.plan.lower is None or not self.plan.target_is_bounded
        return (Pass(keyed=True),) * (1 + self.draws_count + measured)

    @cached_property
    def count_epsilon(self) -> Fraction:
        """Epsilon spent on the number of rows; 0 if it is public."""
        return self.plan.epsilon * self.plan.count_share if self.draws_count else Fraction(0)

    @cached_property
    def range_epsilon(self) -> Fraction:
        """Epsilon spent on the range of predictions; 0 if it is public."""
        needed = self.draws_range and self.plan.range_share is not None
        return self.plan.epsilon * narrow(Fraction, self.plan.range_share) if needed else Fraction(0)

    @cached_property
    def range_noise(self) -> IntervalNoise:
        """The noise of the range of predictions."""
        return IntervalNoise(self.range_epsilon, self.plan.neighbours, self.plan.max_rows_per_unit, _RANGE_FAILURE)

    @cached_property
    def model_epsilon(self) -> Fraction:
        """Epsilon that remains for the Tukey mechanism."""
        return self.plan.epsilon - self.count_epsilon - self.range_epsilon

    @cached_property
    def model_budget(self) -> tuple[Fraction, Fraction]:
        """The (epsilon, delta) of the Tukey mechanism for one replaced model."""
        # The cap keeps integers short. Well below it the mechanism already returns the deepest point.
        epsilon = min(self.model_epsilon, _LARGEST_MODEL_EPSILON)
        return row_budget(self.plan.neighbours, epsilon, self.plan.delta)

    @cached_property
    def measurement(self) -> Measurement:
        """The count and the range, if they are private, and the model."""
        parts: list[Part] = []
        if self.draws_count:
            parts.append(LaplaceNoise("count", self.count_epsilon, self.plan.max_rows_per_unit))
        if self.draws_range:
            parts.append(ScannedInterval("range", self.range_noise))
        return measurement_of(*parts, DeepModel("model", self.model_epsilon, self.plan.delta, self.model_budget))

    def check_drawable(self) -> None:
        """Raise if the noise on a private number of rows, or for the range of predictions, would be too wide."""
        for scale in self.range_noise.scales if self.draws_range else ():
            refuse_wide_noise(scale)
        if self.draws_count:
            part: LaplaceNoise = self.measurement["count"]
            refuse_wide_noise(part.scale())

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the blocks and rows that a call needs."""
        needed = models_needed(n_features + 1, *self.model_budget)
        fewest = float(_FEWEST_MODELS * (n_features + 1))
        out: list[Quantity] = [
            ("models_needed", float(needed), "blocks that make the test pass nearly always, for models that agree"),
            ("rows_needed", fewest, "fewer rows are refused, at the price of the count"),
        ]
        if self.draws_count:
            scale = self.plan.max_rows_per_unit / float(self.count_epsilon)
            out.append(("count_noise_scale", scale, "scale of the noise on the number of rows"))
        if self.draws_range:
            needed_rows = float(self.range_noise.rows_needed)
            out.append(("range_rows_needed", needed_rows, "rows from which predictions are clipped, but for noise"))
        if n_rows is not None:
            out.append(("rows_per_block", n_rows / max(1, min(needed, n_rows // (n_features + 1))), "rows of a block"))
        return out

    def start(self, call: RegressionCall) -> Collector:
        """Return the collector of the first pass."""
        if self.plan.blocks is not None:
            return self.blocked(call, self.plan.blocks)
        return Counted(self, call) if self.plan.n_rows is None else self.blocked_by_rows(call, self.plan.n_rows)

    def blocked_by_rows(self, call: RegressionCall, rows: int) -> Collector:
        """Return the pass that follows a lower bound `rows` on the number of rows.

        The blocks are enough for the test, and none is too small to fit.
        """
        columns = len(call.features) + 1
        return self.blocked(call, max(1, min(models_needed(columns, *self.model_budget), rows // columns)))

    def blocked(self, call: RegressionCall, blocks: int) -> Collector:
        """Return the pass that follows the number of blocks."""
        count = len(call.features)
        intervals = call.intervals
        if intervals is None or call.bounded_target is None:
            return Ranges(self, call, blocks)
        middle, scale = affine_maps(intervals)
        target_middle, target_scale = affine_map(*call.bounded_target)
        shape = (blocks, count + 1)
        middles = np.broadcast_to(np.append(middle, target_middle), shape)
        # The column type may reveal only now that the target is bounded; then the pass over the ranges is not needed.
        scales = np.broadcast_to(np.append(scale, target_scale), shape)
        products = Products(self, call, BlockProducts(middles, scales), intervals)
        return products if self.plan.target_is_bounded else Waiting(products)


class Counted(RowTransform[RowCount]):
    """The number of rows."""

    def __init__(self, method: Tukey, call: RegressionCall) -> None:
        super().__init__(RowCount())
        self._method, self._call = method, call

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw a lower bound on the number of rows, and derive the number of blocks.

        Notes
        -----
        - **Guarantee**: pure DP at ``Tukey.count_epsilon``.
        - **Sensitivity**: one privacy unit changes the number of rows by at most ``max_rows_per_unit``.
        """
        plan = self._call.plan
        epsilon = self._method.count_epsilon / plan.max_rows_per_unit
        part: LaplaceNoise = plan.measurement["count"]
        [noisy] = part.draw([self.inner.rows])
        rows = blocks_from_count(noisy, rows_per_block=1, epsilon=epsilon, failure=plan.count_failure)
        if rows < _FEWEST_MODELS * (len(self._call.features) + 1):
            return NoModel(self._call, "too few rows for so many features", self._call.plan.measurement.only("count"))
        return self._method.blocked_by_rows(self._call, rows)


class Ranges(RowTransform[Several]):
    """The range of every column in every block; and the target's magnitudes, if the range of predictions is private."""

    def __init__(self, method: Tukey, call: RegressionCall, blocks: int) -> None:
        # The column type may have revealed that the target has levels.
        needed = method.draws_range and call.bounded_target is None
        values = MagnitudeHistogram(0, target=needed)
        super().__init__(Several(ColumnRanges(blocks, len(call.features) + 1), values))
        self._method, self._call = method, call

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw the range of predictions, and scale every block by its own ranges.

        Notes
        -----
        - **Guarantee**: pure DP at ``Tukey.range_epsilon``, see `dpsql.mechanisms.interval_scan`.
        - **Sensitivity**: as there; a privacy unit has at most ``max_rows_per_unit`` rows.
        """
        interval, (ranges, values) = None, self.inner.folds
        if not isinstance(ranges, ColumnRanges) or not isinstance(values, MagnitudeHistogram):
            raise TypeError("the folds are of another pass")
        for counts in values.cells.counts:  # one column, or none
            part: ScannedInterval = self._call.plan.measurement["range"]
            interval = part.draw(counts)
        return Products(self._method, self._call, BlockProducts(*ranges.maps()), interval=interval)


class Products(RowTransform[BlockProducts]):
    """The products of the columns in every block."""

    def __init__(
        self,
        method: Tukey,
        call: RegressionCall,
        products: BlockProducts,
        bounds: list[tuple[float, float]] | None = None,
        interval: PrivateInterval | None = None,
    ) -> None:
        super().__init__(products)
        self._method, self._call = method, call
        self._bounds = bounds
        self._interval = interval

    @property
    def _clips(self) -> Mapping[str, Json]:
        """Bounds of predictions: private bounds, None if these are undetermined, or public bounds."""
        return self._call.clips(self._call.bounded_target if self._interval is None else self._interval.ends)

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Json] | Draw:
        """Fit every block, and draw a point of high Tukey depth among the models.

        Notes
        -----
        - **Guarantee**: (epsilon, delta)-DP at the budget that count and range leave (`dpsql.mechanisms.tukey.tukey`).
          Under replace two models may change; `dpsql.mechanisms.tukey.row_budget` allows for it.
        - **Assumes**: all rows of a privacy unit are in one block.
        """
        models = self.inner.models(progress)
        models[:] /= self._call.target_unit
        part: DeepModel = self._call.plan.measurement["model"]
        point = part.draw(models)
        reason = "" if point is not None else "the models of the blocks differ too much, or are too few"
        result = self._call.result(point, bounds=self._bounds, reason=reason, clips=self._clips)
        if self._method.draws_range and self._interval is None:  # not needed: the target has levels
            return Draw(self._method.measurement.only("count", "model"), lambda: result)
        return lambda: result
