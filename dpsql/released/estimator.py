"""What scikit-learn asks of a fitted estimator, for released models. They are frozen: fitting them does nothing.

scikit-learn itself is imported by the one method that it alone calls, and is no dependency.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.arrays import Doubles

if TYPE_CHECKING:
    from sklearn.utils import Tags


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
