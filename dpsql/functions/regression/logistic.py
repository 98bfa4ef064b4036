"""dp_logistic_regression: a linear classifier by objective perturbation, and maybe steps per feature on its scores.

**Objective perturbation.** As passes over the rows: kept rows, or on an engine one pass for each step of the solver.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa

from dpsql.contract.call import Call
from dpsql.contract.fold import Collector, Waiting
from dpsql.contract.json import Json
from dpsql.contract.measurement import Draw
from dpsql.errors import ParameterError
from dpsql.functions.regression.logistic_fit import Classifier, choose
from dpsql.functions.regression.logistic_plan import LogisticPlan
from dpsql.functions.regression.method import (
    BOUNDS,
    Fitting,
    Interval,
    Magnitude,
    Magnitudes,
    Moments,
    Spreads,
    scaling_numbers,
)
from dpsql.kernels.typed_cells import TypedCells, is_few
from dpsql.mechanisms.gaussian import MOST_COORDINATES
from dpsql.mechanisms.prefix_bounds import ColumnBounds, draw_bounds, ends_factor, far_bounds
from dpsql.mechanisms.prefix_bounds import narrowed as narrow
from dpsql.progress import Progress
from dpsql.statistics.regression import Standard

# Where rows are fewer than so many deviations of the noise in moments, features are measured in half widths of bounds.
_LEAST_ROWS = 4.0
# Magnitudes of more features take too much memory; then public bounds are used as they are.
_MOST_COUNTED = 2000


class LogisticCall(Call):
    """A dp_logistic_regression call, with the column types of its source."""

    plan: LogisticPlan

    def check(self) -> None:
        """Check the call as `Call.check` does, and raise if a feature has no bounds or too extreme ones."""
        super().check()
        self.refuse_extremes()
        self.plan.scaling(self.intervals or [])

    def start(self) -> Collector:
        """Return the collector of the first pass."""
        if self.intervals is not None:
            return self._bounded([ColumnBounds(pair) for pair in self.intervals], None)
        return Magnitudes(self.plan, self.kinds[: len(self.features)], None, self._bounded)

    def _bounded(self, bounds: Sequence[ColumnBounds], target: ColumnBounds | None) -> Collector:
        """Return the collector that follows once the bounds are known."""
        kept = [place for place, column in enumerate(bounds) if column.interval is not None]
        pairs = [column.interval for column in bounds if column.interval is not None]
        unclear = [self.features[place] for place in kept if not bounds[place].clear]

        def fitted(
            standard: Standard | None, limits: Sequence[Interval] = pairs, ends: Fraction = Fraction(0)
        ) -> Collector:
            has_steps = self.plan.has_steps(len(kept), None if standard is None else standard.rows)
            worth = list(range(len(kept)))
            if standard is not None:
                worth = self._worth_fitting(standard, steps=has_steps, ends=ends)
            chosen, limits = [kept[feature] for feature in worth], [limits[feature] for feature in worth]
            scaling = self.plan.scaling(limits, None if standard is None else standard.of(worth))
            return Classifier(self.plan, self, chosen, unclear, scaling, has_steps, ends).start()

        if not self.plan.standardizes:
            return fitted(None)
        if not kept:
            return Waiting(fitted(None))
        reach = [self._reach(pair, self.kinds[place], len(kept)) for place, pair in zip(kept, pairs, strict=True)]
        mapped = self.plan.scaling(pairs).mapped
        if not self.plan.may_narrow or not 0 < reach.count(math.inf) <= _MOST_COUNTED:
            return Moments(self.plan, kept, mapped, reach, fitted, _LEAST_ROWS)

        def narrowed(standard: Standard, counted: Mapping[int, Magnitude]) -> Collector:
            far = far_bounds(standard, counted)
            ends = self._ends(standard, [counted[position][0] for position in far], len(counted))
            if not ends:
                return fitted(standard)
            choose(self.plan, steps=self.plan.has_steps(len(kept), standard.rows), ends=ends)
            ends_of = draw_bounds(
                self.plan.ends_part(ends),
                BOUNDS,
                [counted[position][1] for position in far],
                [counted[position][0] for position in far],
                last=False,
                neighbours=self.plan.neighbours,
                max_rows_per_unit=self.plan.max_rows_per_unit,
            )
            by_position = dict(zip(far, ends_of, strict=True))
            unclear.extend(self.features[position] for position, column in by_position.items() if not column.clear)
            return fitted(*narrow(standard, pairs, by_position), ends)

        return Spreads(self.plan, mapped, reach, pairs, self.kinds, narrowed, _LEAST_ROWS)

    def _ends(self, standard: Standard, far: Sequence[TypedCells], count: int) -> Fraction:
        """Return the share of epsilon and delta for the ends of features with far too wide bounds; 0 for no ends.

        It is as small as the rows allow, by their released number. Where they are too few to see any end, there are
        none. `far` has the cells of these features, of `count` that may be drawn.
        """
        if not far or standard.rows is None or scaling_numbers(len(far), len(self.features)) > MOST_COORDINATES:
            return Fraction(0)
        most = self.plan.ends_share(len(far), count)
        try:
            loss = self.plan.ends_part(most).mu ** 2 / len(far)
        except ParameterError:  # so little that nothing could be seen
            return Fraction(0)
        factor = ends_factor(standard.rows, [loss] * len(far), far, self.plan.neighbours, self.plan.max_rows_per_unit)
        return most * Fraction(math.isqrt(factor.numerator), math.isqrt(factor.denominator))

    def _worth_fitting(self, standard: Standard, *, steps: bool, ends: Fraction) -> list[int]:
        """Return the places of the features of which the noise in the fit leaves something, by released moments.

        `steps` says whether steps follow the fit, and `ends` what was spent on ends.

        A row has a norm of at most 1, so beside k others a feature has a share of ``1 / (k + 2)`` of its square. The
        rows then hold its coefficient in place by at most a quarter of its weight times that share; the ridge, which is
        as strong as noise demands, pulls it to zero. Where the ridge is stronger, the coefficient is noise, and its
        column only makes all rows shorter. Rare levels are such columns. A feature with half the weight of the heaviest
        one is fitted whatever the noise.
        """
        assert standard.weight is not None  # noqa: S101
        order = np.argsort(-standard.weight, kind="stable")
        weights = standard.weight[order]

        def is_noise(count: int) -> bool:
            """Whether the last of so many features is; if it is, so it is beside more."""
            held = weights[count - 1] / 4 / (1 + self.plan.longest(count) ** 2)
            return bool(held < self.plan.calibrated(count, steps=steps, ends=ends).regularization)

        heavy = int(np.count_nonzero(2 * weights >= weights[0]))
        light = range(heavy + 1, len(order) + 1)
        return sorted(order[: heavy + bisect_left(light, True, key=is_noise)].tolist())

    def _reach(self, pair: Interval, kind: pa.DataType, count: int) -> float:
        """Return how many deviations from the mean a feature's bounds are at most.

        A row with a rare flag must not be longer than what rows are shortened to, or that alone would make the flag's
        coefficient larger. Other columns are clipped at three deviations: units that are wide enough for their farthest
        values drown them in noise.
        """
        return self.plan.longest(count) / math.sqrt(count) if is_few(pair, kind) else math.inf

    def prepare(self, statistic: Fitting, progress: Progress) -> Callable[[], Json] | Draw:
        """Fit the model now: fitting takes too long for the ledger's transaction."""
        return statistic.draw(progress)
