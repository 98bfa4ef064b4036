"""Metrics of a regression from noisy sums: post-processing, so it costs no privacy.

Errors are at most B, so the metrics of any rows meet ``mae <= rmse`` and ``rmse**2 <= B mae``, and no variance of a
target within [-1, 1] exceeds 1. Noise does not know that. So

* each interval is cut to what the others allow, which loses nothing where all of them hold;
* values are moved into their intervals, an mae above the rmse and that rmse to the middle between them, and an rmse
  that is too large for the mae to the largest one;
* R² follows from that rmse, and is in its interval.

Where no metrics at all are compatible with the noisy sums, which has a chance of at most 5 %, there are no values. All
but R² are in half widths of the bounds, and multiplied by `half_width` last.

**Estimators.** What scikit-learn asks of a fitted estimator, for released models. They are frozen: fitting them does
nothing.

scikit-learn itself is imported by the one method that it alone calls, and is no dependency.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.arrays import Doubles
from dpsql.contract.json import Json

if TYPE_CHECKING:
    from sklearn.utils import Tags


class Range(NamedTuple):
    """A number with the ends of its interval."""

    value: float
    low: float
    high: float

    def cut(self, low: float, high: float) -> Range:
        """Return the interval's part between two numbers, and the value moved into it; low > high if there is none."""
        low, high = max(self.low, low), min(self.high, high)
        return Range(min(max(self.value, low), high), low, high)


def consistent_metrics(sums: Sequence[Range], *, bound: float, half_width: float) -> list[list[Json]]:
    """Return rows of name, value, and lower and upper end of the interval.

    Parameters
    ----------
    sums : sequence of Range, length 5
        Rows, and sums of t, its square, the square of the error and its size, in half widths of the bounds.
    bound : float
        The largest error B, > 0.
    half_width : float
        Of the bounds.
    """
    rows, _, _, squares, sizes = sums
    count = Range(*(max(1.0, side) for side in rows))
    means = [
        Range(*(min(bound**power, max(0.0, part)) for part in (total.value / count.value, *_quotient(total, count))))
        for total, power in ((squares, 2), (sizes, 1))
    ]
    rmse, mae = Range(*map(math.sqrt, means[0])), means[1]
    rmse = rmse.cut(mae.low, math.sqrt(bound * mae.high))
    mae = mae.cut(rmse.low**2 / bound, rmse.high)
    if rmse.low > rmse.high or mae.low > mae.high:
        unknown: list[list[Json]] = [[name, None, None, None] for name in ("r2", "rmse", "mae")]
        return [*unknown, _row("rows", Range(*(max(0.0, side) for side in rows)))]
    if mae.value > rmse.value:
        middle = (mae.value + rmse.value) / 2
        mae, rmse = mae._replace(value=middle), rmse._replace(value=middle)
    rmse = rmse._replace(value=max(mae.value, min(rmse.value, math.sqrt(bound * mae.value))))
    metrics = [_row(name, Range(*(half_width * side for side in one))) for name, one in (("rmse", rmse), ("mae", mae))]
    return [
        ["r2", *_share_explained(sums, count, rmse.value)],
        *metrics,
        _row("rows", Range(*(max(0.0, side) for side in rows))),
    ]


def _row(name: str, one: Range) -> list[Json]:
    return [name, *one]


def _quotient(total: Range, count: Range) -> tuple[float, float]:
    """Return the least and the largest quotient in the box of a total, clipped at 0, and a count."""
    return max(0.0, total.low) / count.high, max(0.0, total.high) / count.low


def _share_explained(
    sums: Sequence[Range], count: Range, rmse: float
) -> tuple[float | None, float | None, float | None]:
    """Return R² with its interval; None if the noise hides the variance of the target."""
    _, total, squares, errors, _ = sums
    closest = 0.0 if total.low <= 0 <= total.high else min(abs(total.low), abs(total.high))
    farthest = max(abs(total.low), abs(total.high))
    spread = min(squares.value - total.value**2 / count.value, count.value)
    least = squares.low - farthest**2 / count.low
    largest = min(squares.high - closest**2 / count.high, count.high)
    lower = 1 - max(0.0, errors.high) / least if least > 0 else None
    upper = 1 - max(0.0, errors.low) / largest if largest > 0 else 1.0
    if not spread > 0:
        return None, lower, upper
    value = min(1 - count.value * rmse**2 / spread, upper)
    return value if lower is None else max(value, lower), lower, upper


class Estimator:
    """A fitted estimator without parameters, as `sklearn.frozen.FrozenEstimator` is one.

    It works wherever scikit-learn takes a fitted model: in a `Pipeline`, in `sklearn.inspection`, and in displays made
    `from_estimator`. `clone` returns the model itself.
    """

    _estimator_type: ClassVar[str]
    coef_: NDArray[np.float64]

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return len(self.coef_)

    def fit(self, X: object, y: object = None) -> Self:
        """Return the model as it is: it was fitted when it was released, and reads neither argument."""
        return self

    def predict(self, rows: object) -> Any:
        """Return one prediction per row."""
        raise NotImplementedError

    def score(self, X: object, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return R² of the predictions, or the accuracy of a classifier, as scikit-learn's estimators do.

        Not private: the number tells about these rows. Where they are about people, ask `dp_regression_metrics`,
        `dp_roc` or `dp_confusion` instead.

        Parameters
        ----------
        X : ndarray of shape (n, d), or a frame, as for `predict`
        y : array of shape (n,)
        sample_weight : array of shape (n,), optional

        Returns
        -------
        score : float
            At most 1. R² is 1 or 0 where `y` is constant, as the predictions equal it or not.
        """
        truth = np.asarray(y)
        weights = np.ones(len(truth)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        return self._score(truth, self.predict(X), weights)

    def _score(self, truth: NDArray[Any], predicted: NDArray[Any], weights: Doubles) -> float:
        wrong, mean = truth - predicted, np.average(truth, weights=weights)
        lost, spread = (float((weights * part**2).sum()) for part in (wrong, truth - mean))
        return 1 - lost / spread if spread else float(lost == 0)

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return the parameters that could be set: none."""
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
