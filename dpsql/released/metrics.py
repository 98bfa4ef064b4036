"""Metrics of a regression from noisy sums: post-processing, so they cost no privacy.

*Intervals.* A metric x is compatible with the noisy sums if a linear form of them, which is 0 for the exact sums, is no
farther from 0 than its noise, except for a chance of 5 %: ``e2 - x rows`` for the mean square x, and likewise for the
mean size. The noise of a form is a sum of Laplace variables with known weights, whose quantile is exact
(`dpsql.released.intervals`). R² is ``1 - v / (1 - v)`` for the v with ``(1 - v) e2 = v (t2 - 2 m t + m**2 rows)``, m
being the mean of the target: a hundredth of chance goes to an interval of m, and v is compatible if it is compatible
for one of these m. So each interval holds its metric with a chance of 95 %, one by one.

*Values.* Errors are at most B, so the metrics of any rows satisfy ``mae <= rmse`` and ``rmse**2 <= B mae``, and no
variance of a target within [-1, 1] exceeds 1. Noise can violate these limits. So

* an mae above the rmse and that rmse are moved to the middle between them, and an rmse that is too large for the mae to
the largest allowed rmse;
* R² follows from that rmse, and is moved into its interval; the other intervals are widened to hold their values.

If noise hides the variance of the target, there is no R². All metrics but R² are in half widths of the bounds, and
multiplied by `half_width` last.

**Estimators.** Released models have the interface of fitted scikit-learn estimators. They are frozen: fitting them does
nothing. Only the one method that scikit-learn alone calls imports scikit-learn, which is no dependency.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.arrays import Doubles
from dpsql.contract.boundary import public
from dpsql.contract.json import Json
from dpsql.released.intervals import compatible, laplace_quantile

if TYPE_CHECKING:
    from sklearn.utils import Tags


class NoisySum(NamedTuple):
    """A sum with Laplace noise, in rows or half widths of the bounds.

    Attributes
    ----------
    value : float
        About the centre.
    scale : float
        Scale of the noise.
    step : float
        Most that rounding and discrete noise add to it.
    centre : float
        Number subtracted per row.
    """

    value: float
    scale: float
    step: float
    centre: float


# Chance that an interval does not hold its metric; for R² a fifth of it goes to the mean of the target, and for the
# rmse a tenth to the mae, which is no larger.
_FAILURE, _OF_MEAN, _OF_SIZE = 0.05, 0.2, 0.1
# If no metric is compatible, this smaller chance allows for larger noise.
_RARE = 1e-3
# Nodes of a ratio, and of the mean of the target; quantiles between nodes of the mean are raised by a thousandth.
_NODES, _MEAN_NODES, _BETWEEN = 65, np.linspace(-1.0, 1.0, 129), 1.001
_MEANS = 9

# Public facts about a noisy sum: scale, step and centre.
_Noise = tuple[float, float, float]


def metric_rows(sums: Sequence[NoisySum], *, bound: float, half_width: float) -> list[list[Json]]:
    """Return rows of name, value, and lower and upper end of the interval.

    Parameters
    ----------
    sums : sequence of NoisySum, length 5
        Rows, and sums of t, its square, the square of the error and its size.
    bound : float
        The largest error B, > 0.
    half_width : float
        Half width of the bounds.
    """
    rows, _, _, squares, sizes = sums
    count = max(1.0, rows.value)
    mean_square, mae = (_mean(total, rows, count, most) for total, most in ((squares, bound**2), (sizes, bound)))
    rmse = math.sqrt(mean_square)
    if mae > rmse:
        # The nearest equal values, each weighted by its variance to first order.
        doubt, of_mae = (
            _deviation(total, rows, mean) / count for total, mean in ((squares, mean_square), (sizes, mae))
        )
        weight = of_mae**2 * max(4 * mean_square, doubt)
        mae = rmse = (mae * doubt**2 + rmse * weight) / (doubt**2 + weight) if doubt + weight > 0 else mae
    rmse = max(mae, min(rmse, math.sqrt(bound * mae)))
    reach = rows.scale * math.log(1 / _FAILURE) + rows.step
    square_low, square_high = _quotient(squares, rows, bound**2, _FAILURE * (1 - _OF_SIZE))
    least_size, _ = _quotient(sizes, rows, bound, _FAILURE * _OF_SIZE)
    ends = {
        "rmse": (max(math.sqrt(square_low), min(least_size, math.sqrt(square_high))), math.sqrt(square_high)),
        "mae": _quotient(sizes, rows, bound, _FAILURE),
        "rows": (max(0.0, rows.value - reach), max(0.0, rows.value + reach)),
    }
    table: list[list[Json]] = [["r2", *_share_explained(sums, count, rmse)]]
    for name, value, unit in (("rmse", rmse, half_width), ("mae", mae, half_width), ("rows", max(0.0, rows.value), 1)):
        low, high = ends[name]
        table.append([name, unit * value, unit * min(low, value), unit * max(high, value)])
    return table


def _mean(total: NoisySum, rows: NoisySum, count: float, most: float) -> float:
    """Return the mean of terms in [0, most]."""
    return min(most, max(0.0, (total.value + total.centre * rows.value) / count))


def _deviation(total: NoisySum, rows: NoisySum, mean: float) -> float:
    """Return the standard deviation of the noise in a mean, times the rows, to first order."""
    return math.sqrt(2) * math.hypot(total.scale, (total.centre - mean) * rows.scale)


def _quotient(total: NoisySum, rows: NoisySum, most: float, failure: float) -> tuple[float, float]:
    """Return the interval of the mean of terms in [0, most]."""

    def form(x: Doubles) -> Doubles:
        return total.value + (total.centre - x) * rows.value

    return _interval(form, (0.0, most), total[1:], rows[1:], failure)


def _interval(
    form: Callable[[Doubles], Doubles], ends: tuple[float, float], total: _Noise, rows: _Noise, tail: float
) -> tuple[float, float]:
    """Return the means between two ends that are compatible with a noisy total and noisy rows; both ends if none is."""
    for chance in (tail, _RARE * tail):
        nodes, table = _mean_table(ends, total, rows, chance)

        def quantile(x: Doubles, nodes: Doubles = nodes, table: Doubles = table) -> Doubles:
            numbers: Doubles = np.interp(x, nodes, table)
            return numbers

        low, high = compatible(form, quantile, nodes[:1], nodes[-1:])
        if not np.isnan(low[0]):
            return float(low[0]), float(high[0])
    return ends


@lru_cache(maxsize=256, typed=True)
def _mean_table(ends: tuple[float, float], total: _Noise, rows: _Noise, tail: float) -> tuple[Doubles, Doubles]:
    """Return nodes of a mean, and bounds there on the noise of the total less the mean times the rows."""
    nodes = np.union1d(np.linspace(*ends, _NODES), [min(max(total[2], ends[0]), ends[1])])
    weights = np.stack([np.ones_like(nodes), np.abs(total[2] - nodes)], axis=-1)
    return nodes, _quantiles(weights, (total, rows), tail)


def _quantiles(weights: Doubles, noise: Sequence[_Noise], tail: float) -> Doubles:
    """Return bounds that the noise of forms exceeds with chance `tail` at most, from weights of shape (…, sums)."""
    scales, steps = (np.array([part[index] for part in noise]) for index in (0, 1))
    quantiles: Doubles = laplace_quantile(weights * scales, tail) + weights @ steps
    return quantiles


def _share_explained(
    sums: Sequence[NoisySum], count: float, rmse: float
) -> tuple[float | None, float | None, float | None]:
    """Return R² with its interval; None if the noise hides the variance of the target."""
    rows, total, squares = sums[:3]
    spread = min(squares.value + squares.centre * rows.value - total.value**2 / count, count)
    low, high = _errors_of_both(sums)
    lower, upper = (1 - end / (1 - end) if end < 1 else None for end in (high, low))
    upper = 1.0 if upper is None else upper
    if not spread > 0:
        return None, lower, upper
    value = min(1 - count * rmse**2 / spread, upper)
    return value if lower is None else max(value, lower), lower, upper


def _errors_of_both(sums: Sequence[NoisySum]) -> tuple[float, float]:
    """Return the interval of v, the squared errors as a share of their sum with the target's squares about its mean."""
    rows, total, squares, errors = sums[:4]
    mean = _interval(lambda m: total.value - m * rows.value, (-1.0, 1.0), total[1:], rows[1:], _FAILURE * _OF_MEAN)
    vertex = total.value / rows.value if rows.value > 0 else 0.0
    means = np.append(np.linspace(*mean, _MEANS), min(max(vertex, mean[0]), mean[1]))
    left = errors.value + errors.centre * rows.value
    right = squares.value - 2 * means * total.value + (squares.centre + means**2) * rows.value
    columns = np.arange(len(means))

    def form(v: Doubles) -> Doubles:
        return (1 - v) * left - v * right

    def quantile(v: Doubles, table: Doubles) -> Doubles:
        index = np.clip((v * (_NODES - 1)).astype(np.intp), 0, _NODES - 2)
        way = v * (_NODES - 1) - index
        numbers: Doubles = table[columns, index] * (1 - way) + table[columns, index + 1] * way
        return numbers

    for chance in (_FAILURE * (1 - _OF_MEAN), _FAILURE * _RARE):
        table = _ratio_table(errors[1:], squares[1:], total[1:], rows[1:], chance)
        steps = (means - _MEAN_NODES[0]) / (_MEAN_NODES[1] - _MEAN_NODES[0])
        node = np.clip(steps.astype(np.intp), 0, len(_MEAN_NODES) - 2)
        way = (steps - node)[:, np.newaxis]
        between = _BETWEEN * (table[node] * (1 - way) + table[node + 1] * way)
        low, high = compatible(form, partial(quantile, table=between), np.zeros_like(means), np.ones_like(means))
        if not np.isnan(low).all():
            return float(np.nanmin(low)), float(np.nanmax(high))
    return 0.0, 1.0


@lru_cache(maxsize=64, typed=True)
def _ratio_table(errors: _Noise, squares: _Noise, total: _Noise, rows: _Noise, tail: float) -> Doubles:
    """Return bounds on the noise of ``(1 - v) e2 - v (t2 - 2 m t + m**2 rows)``, by the nodes of m and of v."""
    v, m = np.linspace(0.0, 1.0, _NODES), _MEAN_NODES[:, np.newaxis]
    of_rows = np.abs((1 - v) * errors[2] - v * (squares[2] + m**2))
    weights = np.stack(np.broadcast_arrays(1 - v, v, 2 * v * np.abs(m), of_rows), axis=-1)
    return _quantiles(weights, (errors, squares, total, rows), tail)


class Estimator:
    """A fitted estimator without parameters, like `sklearn.frozen.FrozenEstimator`.

    It works wherever scikit-learn takes a fitted model: in a `Pipeline`, in `sklearn.inspection`, and in displays made
    `from_estimator`. `clone` returns the model itself.
    """

    _estimator_type: ClassVar[str]
    coef_: NDArray[np.float64]

    @property
    def n_features_in_(self) -> int:
        """Return the number of features."""
        return len(self.coef_)

    def fit(self, X: object, y: object = None) -> Self:
        """Return the model unchanged: it was fitted before its release, and reads neither argument."""
        return self

    def predict(self, rows: object) -> Any:
        """Return one prediction per row."""
        raise NotImplementedError

    @public
    def score(self, X: object, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return R² of the predictions, or the accuracy of a classifier, as scikit-learn's estimators do.

        The score is not private: it is about these rows. For rows about people use `dp_regression_metrics`, `dp_roc` or
        `dp_confusion` instead.

        Parameters
        ----------
        X : ndarray of shape (n, d), or a frame, as for `predict`
        y : array of shape (n,)
        sample_weight : array of shape (n,), optional

        Returns
        -------
        score : float
            At most 1. For constant `y`, R² is 1 if the predictions equal it, and otherwise 0.
        """
        truth = np.asarray(y)
        weights = np.ones(len(truth)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        return self._score(truth, self.predict(X), weights)

    def _score(self, truth: NDArray[Any], predicted: NDArray[Any], weights: Doubles) -> float:
        wrong, mean = truth - predicted, np.average(truth, weights=weights)
        lost, spread = (float((weights * part**2).sum()) for part in (wrong, truth - mean))
        return 1 - lost / spread if spread else float(lost == 0)

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return the available parameters: none."""
        return {}

    def set_params(self, **parameters: object) -> Self:
        """Return the model; there is no parameter to set.

        Raises
        ------
        ValueError
            A parameter is given.
        """
        if parameters:
            raise ValueError(f"a released model has no parameters; got {', '.join(parameters)}. Fit another one.")
        return self

    def __sklearn_clone__(self) -> Self:
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Tags:
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        is_classifier = self._estimator_type == "classifier"
        return Tags(
            estimator_type="classifier" if is_classifier else "regressor",
            target_tags=TargetTags(required=False),
            classifier_tags=ClassifierTags(multi_class=False) if is_classifier else None,
            regressor_tags=None if is_classifier else RegressorTags(),
            input_tags=InputTags(allow_nan=True),
            requires_fit=False,
        )
