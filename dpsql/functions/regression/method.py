"""The methods of linear regression: their interface, and the plan and the call that use it.

The module also has the passes before a fit: private bounds of columns without public bounds, and private means and
deviations of features. Numbers released by a pass are public for the next pass, which maps rows one by one.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Longs
from dpsql.contract.call import Call
from dpsql.contract.fold import Batch, Collector, Ignoring, RowTransform, Several
from dpsql.contract.json import Json
from dpsql.contract.measurement import Draw, Measurement
from dpsql.contract.parameters import Side
from dpsql.contract.plan import Pass, Plan, Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.kernels.cells import MOST_CELLS, TypedCells
from dpsql.kernels.columns import is_boolean
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.mechanisms import prefix_bounds
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.mechanisms.prefix_bounds import ColumnBounds, column_losses, draw_bounds, rows_needed
from dpsql.progress import Progress
from dpsql.statistics.counts import MagnitudeHistogram
from dpsql.statistics.regression import ColumnMoments, RowMap, Standard

Interval = tuple[float, float]
# The Gaussian part of a measurement, and its shares.
PART, BOUNDS, MOMENTS = "fit", "bounds", "moments"
Inner = TypeVar("Inner", bound=Collector)


class Magnitudes(RowTransform[MagnitudeHistogram]):
    """Histograms of magnitudes, one for each column without public bounds; the type of a column decides its cells.

    A BOOLEAN column has the bounds 0 and 1, and is not counted.

    Parameters
    ----------
    plan : Plan
    features : sequence of pyarrow types
        Types of all features if their bounds are drawn; otherwise empty.
    target : pyarrow type or None
        Type of the target if its bounds are drawn.
    following : callable
        Takes the bounds of the features and of the target, and returns the next pass. Bounds that are not drawn are
        left out: no features, or None.
    """

    ending = ("_plan", "_following", "_width")

    def __init__(
        self,
        plan: Plan,
        features: Sequence[pa.DataType],
        target: pa.DataType | None,
        following: Callable[[Sequence[ColumnBounds], ColumnBounds | None], Collector],
    ) -> None:
        self._positions = [position for position, kind in enumerate(features) if not is_boolean(kind)]
        self._cells = [TypedCells.of(features[position]) for position in self._positions]
        self._target = None if target is None else TypedCells.of(target)
        super().__init__(MagnitudeHistogram(len(self._positions), target=target is not None))
        self._plan, self._following, self._width = plan, following, len(features)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows."""
        coded = np.empty((len(self._positions), len(target)))
        for row, (position, cells) in enumerate(zip(self._positions, self._cells, strict=True)):
            coded[row] = cells.coded(features[position])
        self.inner.add(target if self._target is None else self._target.coded(target), coded, batch)

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw the bounds."""
        plan, fine = self._plan, self.inner.cells.counts
        cells = [*self._cells, *([] if self._target is None else [self._target])]
        part: GaussianNoise = plan.measurement[PART]
        bounds = draw_bounds(
            part,
            BOUNDS,
            [of.counts(counts) for of, counts in zip(cells, fine, strict=True)],
            cells,
            last=self._target is not None,
            neighbours=plan.neighbours,
            max_rows_per_unit=plan.max_rows_per_unit,
        )
        target = None if self._target is None else bounds.pop()
        by_position = dict(zip(self._positions, bounds, strict=True))
        return self._following(
            [by_position.get(position, ColumnBounds((0.0, 1.0))) for position in range(self._width)], target
        )


class KeptFeatures(RowTransform[Inner]):
    """A pass over the features with bounds. The bounds were released, so the choice of features is public."""

    def __init__(self, positions: Sequence[int], inner: Inner) -> None:
        super().__init__(inner)
        self.positions = list(positions)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows."""
        self.inner.add(target, features if len(self.positions) == len(features) else features[self.positions], batch)


class Moments(KeptFeatures[ColumnMoments]):
    """Sums and sums of squares of the features.

    Parameters
    ----------
    plan : Plan
    positions : sequence of int
        Positions of the features with bounds, at least one.
    mapped : RowMap
        The map of these features to [-1, 1].
    reach : sequence of float
        How many deviations from the mean the bounds of each feature are at most; infinite if values may be clipped.
    following : callable
        Takes means and deviations, and returns the next pass.
    least_rows : float
        See `dpsql.mechanisms.prefix_bounds.released_standard`.
    """

    ending = ("_plan", "_reach", "_following", "_least_rows")

    def __init__(
        self,
        plan: Plan,
        positions: Sequence[int],
        mapped: RowMap,
        reach: Sequence[float],
        following: Callable[[Standard], Collector],
        least_rows: float = 0.0,
    ) -> None:
        super().__init__(positions, ColumnMoments(mapped))
        self._plan, self._reach, self._following, self._least_rows = plan, reach, following, least_rows

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw means and deviations."""
        return self._following(draw_standard(self._plan, self.inner, self._reach, self._least_rows))


class Spreads(KeptFeatures[Several]):
    """Moments of all features, and magnitudes of features that are no flags, within public bounds.

    One pass counts both. At its end the moments are drawn, and then the ends of the features whose bounds are far wider
    than the bulk of their values (`dpsql.mechanisms.prefix_bounds.far_bounds`). Other counts are never released.

    Parameters
    ----------
    plan : Plan
    mapped : RowMap
        The map of all features to [-1, 1].
    reach : sequence of float
        How many deviations from the mean the bounds of each feature are at most; infinite for features that are no
        flags.
    pairs : sequence of (float, float)
        Public bounds of each feature.
    kinds : sequence of pyarrow types
    following : callable
        Takes means and deviations, and, by position, the cells of features that are no flags with their rows; returns
        the next pass.
    least_rows : float
        See `dpsql.mechanisms.prefix_bounds.released_standard`.
    """

    ending = ("_plan", "_reach", "_following", "_least_rows")

    def __init__(
        self,
        plan: Plan,
        mapped: RowMap,
        reach: Sequence[float],
        pairs: Sequence[Interval],
        kinds: Sequence[pa.DataType],
        following: Callable[[Standard, Mapping[int, Magnitude]], Collector],
        least_rows: float = 0.0,
    ) -> None:
        self._pairs = {position: pairs[position] for position, most in enumerate(reach) if math.isinf(most)}
        self._cells = {position: TypedCells.of(kinds[position]) for position in self._pairs}
        super().__init__(
            range(len(pairs)), Several(ColumnMoments(mapped), MagnitudeHistogram(len(self._pairs), target=False))
        )
        self._plan, self._reach, self._following, self._least_rows = plan, reach, following, least_rows

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows."""
        moments, magnitudes = self.inner.folds
        moments.add(target, features, batch)
        if isinstance(magnitudes, MagnitudeHistogram):
            # Values beyond the bounds are in cells beyond, which count as the outermost cells within.
            magnitudes.cells.add([cells.coded(features[position]) for position, cells in self._cells.items()])

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw means and deviations."""
        moments, magnitudes = self.inner.folds
        if not isinstance(moments, ColumnMoments) or not isinstance(magnitudes, MagnitudeHistogram):
            raise TypeError("the folds are of another pass")
        counted = {
            position: magnitude(self._cells[position], self._pairs[position], fine)
            for position, fine in zip(self._pairs, magnitudes.cells.counts, strict=True)
        }
        return self._following(draw_standard(self._plan, moments, self._reach, self._least_rows), counted)


Magnitude = tuple[TypedCells, Longs]


def magnitude(cells: TypedCells, pair: Interval, fine: Longs) -> Magnitude:
    """Return the cells of a column that are within public bounds, and the rows in them."""
    within = cells.within(*pair)
    return within, within.counts(fine)


def refuse_too_many(function: str, count: int, most: int) -> None:
    """Raise if a model has more features than `most`."""
    if count > most:
        raise ParameterError(
            "P026",
            f"{function} takes at most {most} features; got {count}. "
            "Select some first, and give features := release('the name of that release').",
        )


def scaling_numbers(bounds: int, moments: int) -> int:
    """Return how many numbers get Gaussian noise at most: prefix sums of `bounds` columns, moments of `moments`."""
    return MOST_CELLS * bounds + 2 * moments + 1


def bounds_needed(plan: Plan, width: int, target: bool) -> list[Quantity]:
    """Return how many rows a feature needs for clear bounds, if `width` bounds are drawn."""
    part: GaussianNoise = plan.measurement[PART]
    loss = column_losses(part.mu_of(BOUNDS) ** 2, width, last=target)[0]
    rows = rows_needed(loss, width, plan.neighbours, plan.max_rows_per_unit)
    return [("bounds_rows_needed", rows, "rows from which the bounds of a feature are clear in most calls")]


def draw_standard(plan: Plan, moments: ColumnMoments, reach: Sequence[float], least_rows: float = 0.0) -> Standard:
    """Draw means and deviations of features; `reach` limits how many deviations from the mean their bounds are."""
    part: GaussianNoise = plan.measurement[PART]
    return prefix_bounds.released_standard(
        moments.total(),
        squared_mu=part.spend(MOMENTS) ** 2,
        neighbours=plan.neighbours,
        max_rows_per_unit=plan.max_rows_per_unit,
        reach=reach,
        least_rows=least_rows,
    )


Floats = NDArray[np.float64]
NO_CLIP: Mapping[str, Json] = {}


@dataclass(frozen=True, kw_only=True)
class FittingPlan(Plan):
    """The checked public arguments of a linear regression, for its method.

    Each field has the meaning of the argument with the same name. `method` is never 'auto', which follows from public
    arguments alone; `range_share` is None for methods that draw no range.
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
    clip: bool
    standardize: bool
    bounds_share: Fraction
    moments_share: Fraction
    scale_share: Fraction
    count_share: Fraction
    count_failure: Fraction
    range_share: Fraction | None
    sampling: bool | None = None  # None for false, as in records of earlier versions
    automatic: bool | None = None  # whether 'auto' chose the method, else None

    @property
    @abstractmethod
    def fit(self) -> Method:
        """Return the method, with these arguments."""

    @property
    def target_is_bounded(self) -> bool:
        """Return whether the target has public bounds."""
        return self.target_bounds is not None or self.target_levels is not None


class Method(ABC):
    """One way to fit a linear model: its cost, its passes, and its noise."""

    def __init__(self, plan: FittingPlan) -> None:
        self.plan = plan

    @classmethod
    def own_arguments(cls, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Return the values of arguments that this method changes.

        Raises
        ------
        ParameterError
            The arguments exclude each other.
        """
        return {"range_share": None}

    @property
    def unused(self) -> tuple[str, ...]:
        """Return the names of the arguments that the call does not use or store."""
        return ("standardize", "moments_share")

    @abstractmethod
    def check_features(self, count: int) -> None:
        """Raise a ParameterError if the arguments do not fit `count` features."""

    @property
    @abstractmethod
    def passes(self) -> tuple[Pass, ...]:
        """Return the passes of the call."""

    @property
    @abstractmethod
    def measurement(self) -> Measurement:
        """Return the measurement of the call."""

    @abstractmethod
    def check_drawable(self) -> None:
        """Raise unless every part of the budget can be drawn, see `Plan.check_drawable`."""

    @abstractmethod
    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the noise of the call, see `Plan.noise`."""

    @abstractmethod
    def start(self, call: RegressionCall) -> Collector:
        """Return the collector of the first pass; the collector of the last pass is a `Fitting`."""


class Fitting(Protocol):
    """The last pass of a fit."""

    def draw(self, progress: Progress) -> Callable[[], Json] | Draw:
        """Draw the model."""


class RegressionCall(Call):
    """A dp_linear_regression call, with the column types of its source."""

    plan: FittingPlan

    def check(self) -> None:
        """Check the call as `Call.check` does, and raise if only some features have bounds, or too extreme bounds."""
        super().check()
        self.refuse_extremes()

    def start(self) -> Collector:
        """Return the collector of the first pass."""
        return self.plan.fit.start(self)

    def prepare(self, statistic: Fitting, progress: Progress) -> Callable[[], Json] | Draw:
        """Fit the model now: fitting takes too long for the ledger's transaction."""
        return statistic.draw(progress)

    @property
    def given_bounds(self) -> list[ColumnBounds] | None:
        """Return the public bounds of the features; None if bounds are drawn."""
        return None if self.intervals is None else [ColumnBounds(pair) for pair in self.intervals]

    @property
    def bounded_target(self) -> tuple[float, float] | None:
        """Return the public bounds of the target for this call; None without bounds."""
        levels = (-float(FIXED_POINT_ONE), float(FIXED_POINT_ONE))
        return levels if self.target.levels is not None else self.plan.target_bounds

    def result(
        self,
        coefficients: Floats | None,
        std_errors: Floats | None = None,
        bounds: Sequence[tuple[float, float] | None] | None = None,
        reason: str = "",
        clips: Mapping[str, Json] = NO_CLIP,
        unclear: Sequence[str] = (),
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
            ``prediction_bounds`` that predictions are clipped to; None if they are drawn bounds that are undetermined.
        unclear : sequence of str
            Terms whose verdict is `unclear` at best, for any standard error; see `unclear_terms`.
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
            **({"unclear": list(unclear)} if unclear else {}),
            **({"reason": reason} if reason else {}),
            **clips,
        }

    def clips(self, ends: Interval | None) -> Mapping[str, Json]:
        """Return the result's fields on predictions, which are clipped to an interval of the target unless turned off.

        Parameters
        ----------
        ends : (float, float) or None
            Public or released ends, as `bounded_target`; None if undetermined.
        """
        if not self.plan.clip:
            return NO_CLIP
        return {"prediction_bounds": None if ends is None else [end / self.target_unit for end in ends]}

    def _errors(self, std_errors: Floats, left_out: Sequence[str]) -> list[Json]:
        """Return standard errors: the largest double after an overflow, NULL for features that were left out."""
        errors: list[Json] = list(_finite(std_errors, unknown=sys.float_info.max))
        for name in left_out:
            errors[1 + self.features.index(name)] = None
        return errors

    @property
    def target_unit(self) -> float:
        """Return one unit of the target in the collected integers; levels are coded as -1 and 1."""
        return float(FIXED_POINT_ONE) if self.target.levels is not None else 1.0


class NoModel(Ignoring):
    """The rest of a call whose passes leave nothing to fit.

    Parameters
    ----------
    call : RegressionCall
    reason : str
        Why there is no model.
    spent : Measurement
        The drawn parts, which are all that the call is charged.
    """

    def __init__(self, call: RegressionCall, reason: str, spent: Measurement) -> None:
        self._call, self._reason, self._spent = call, reason, spent

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Return itself."""
        return self

    def draw(self, progress: Callable[[float], None]) -> Draw:
        """Return a result without a model."""
        result = self._call.result(None, reason=self._reason)
        return Draw(self._spent, lambda: result)


def _finite(values: Floats, unknown: float = 0.0) -> list[float]:
    return [float(value) for value in np.nan_to_num(np.asarray(values, dtype=np.float64), nan=unknown)]


# A feature that moves a prediction by a larger share of the target's interval has no slope of the data.
_LARGEST_SCALE = 100.0


def unclear_terms(
    features: Sequence[str],
    slopes: Floats,
    columns: Sequence[ColumnBounds],
    counted: Sequence[Interval | None],
    target: ColumnBounds,
) -> list[str]:
    """Return the terms whose verdict is `unclear` at best; post-processing of released numbers.

    An unclear interval may be anywhere, so nothing is clear about its coefficient. The scale of a coefficient is the
    change of the prediction while the feature goes through its interval, as a share of the target's interval.

    Parameters
    ----------
    features : sequence of str
    slopes : ndarray of float64, shape (d,)
        Slopes in the unit of `target`.
    columns : sequence of ColumnBounds
        Knowledge about the bounds of each feature.
    counted : sequence of (float, float) or None
        The interval to which each feature is clipped; None for a feature that was left out.
    target : ColumnBounds
    """
    if not target.clear or target.interval is None:
        return ["intercept", *features]
    width = target.interval[1] - target.interval[0]
    return [
        name
        for name, slope, column, ends in zip(features, slopes.tolist(), columns, counted, strict=True)
        if ends is not None and not (column.clear and abs(slope) * (ends[1] - ends[0]) <= _LARGEST_SCALE * width)
    ]
