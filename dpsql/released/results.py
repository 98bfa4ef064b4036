"""The ledger's records of releases: JSON values, by the kind of result; and the rows of curves and selections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

from dpsql.contract.covers import CLEAR, NOT_MEASURED, UNCLEAR
from dpsql.contract.json import Json

Level = bool | float | str


class Ranked(TypedDict):
    """Selected features, by rank; their scores and the noise in them if these are released.

    `compared` is the number of features in the comparison, `threshold` the requested score, and `verdict` the verdict
    on all features together. A score is clear if it is above `level` by more than `reach`, and a set if its `lead` over
    shuffled targets is above `reach`. Releases of versions without verdicts lack these; without scores they are a list
    of names.
    """

    names: list[str]
    scores: NotRequired[list[float] | None]
    std_error: NotRequired[float | None]
    threshold: NotRequired[float | None]
    compared: NotRequired[int]
    verdict: NotRequired[str]
    rows: NotRequired[float]
    level: NotRequired[float]
    reach: NotRequired[float]
    lead: NotRequired[float]
    lead_std_error: NotRequired[float]


# A pipeline's record of the selection if all features were fitted.
NO_SELECTION = "none"


class FeatureSteps(TypedDict):
    """Steps of a feature: `values` has one more than `edges`, a value on an edge is on the step behind it.

    `std_errors` is the standard deviation of each value by the noise of the rounds, to first order.
    """

    edges: list[float]
    values: list[float]
    std_errors: list[float]


class Fitted(TypedDict):
    """A linear model, the intercept first; no coefficients if a test failed. Classifiers have two levels.

    A feature without bounds, if others have bounds, was left out of the fit: its coefficient is 0. `undetermined` names
    such features. `unclear` names the terms whose verdict is `unclear` at best, because an interval is not clear or a
    scale is absurd (`dpsql.functions.regression.method.unclear_terms`).
    In a pipeline `selection` is the selector, or `NO_SELECTION`.
    Predictions are clipped to `prediction_bounds`, if there are any: None means that they are undetermined.
    An additive model adds `steps`, None for a feature without steps.
    """

    kind: str
    method: str
    terms: list[str]
    coefficients: list[float] | None
    std_errors: list[float | None] | None
    bounds: Sequence[tuple[float, float] | None] | None
    elements: list[int] | None
    undetermined: NotRequired[list[str]]
    unclear: NotRequired[list[str]]
    prediction_bounds: NotRequired[tuple[float, float] | None]
    levels: NotRequired[tuple[Level, Level]]
    steps: NotRequired[list[FeatureSteps | None]]
    binary: NotRequired[bool]
    present_above: NotRequired[float | None]
    selection: NotRequired[str]


class Curve(TypedDict):
    """A curve, as `dpsql.released.curves.RocCounts` describes it."""

    thresholds: Sequence[float]
    positives: Sequence[float]
    negatives: Sequence[float]
    std_error: Sequence[float]
    covariance: Sequence[float]
    upper: float


class FeatureMoments(TypedDict):
    """Noisy moments of features in [-1, 1]; see `dpsql.released.covariance`.

    `products` has each pair once, ordered by the first, then by the second feature. `std_error` is the standard
    deviation of the noise in each number, in rows, and `reach` its largest size with a chance of 1 - 0.05 / 6. A
    covariance has `ddof`.
    """

    names: list[str]
    bounds: Sequence[tuple[float, float]]
    rows: float
    sums: list[float]
    squares: list[float]
    products: list[float]
    sampled: NotRequired[int]  # rows of a unit, if the intervals of correlations are about the population
    std_error: float
    reach: float
    ddof: NotRequired[int]


class Groups(TypedDict):
    """The groups of a release: names and SQL types of the key columns, and the keys of the groups by column."""

    columns: list[str]
    types: list[str]
    keys: list[list[str | None]]


def groups_record(
    columns: Sequence[str], keys: Sequence[Sequence[str | None]], types: Sequence[str]
) -> dict[str, Json]:
    """Return the ledger's record of groups, a `Groups`.

    Parameters
    ----------
    columns : sequence of str
        Names of the key columns.
    keys : sequence of sequence of str or None
        The key of each group, by column.
    types : sequence of str
        SQL type of each column of `by`; another key column is a BOOLEAN.
    """
    return {
        "columns": list(columns),
        "types": [*types, *["BOOLEAN"] * (len(columns) - len(types))],
        "keys": [list(column) for column in keys],
    }


class GroupedQuantiles(Groups):
    """Quantiles of several groups: the shares, and by group the values, the ends of their intervals and verdicts.

    Without a share for intervals there are only values.
    """

    quantiles: list[float]
    values: list[list[float]]
    lower: NotRequired[list[list[float | None]]]
    upper: NotRequired[list[list[float | None]]]
    verdicts: NotRequired[list[list[str]]]


class Quantiles(TypedDict):
    """Quantiles of all rows: pairs of share and value, the ends of their intervals and verdicts, and drawn bounds.

    A value is None without bounds, or if the verdict is `undetermined`.
    """

    values: list[tuple[float, float | None]]
    lower: NotRequired[list[float | None]]
    upper: NotRequired[list[float | None]]
    verdicts: NotRequired[list[str]]
    bounds: NotRequired[Interval]


class GroupedIntervals(Groups):
    """An interval of each group, as in `Interval`."""

    intervals: list[list[float | None]]
    std_error: NotRequired[float]


class Interval(TypedDict):
    """An interval (`dpsql.released.intervals.interval_record`), and the standard deviation of the noise in its rows."""

    interval: list[float | None]
    std_error: float


class Area(TypedDict):
    """The area under a curve, with its own noise."""

    auc: float


class ScaledArea(TypedDict):
    """The noisy numbers that determine an area; see `dpsql.released.curves`.

    Each number has the standard deviation of its noise, and a reach that its error exceeds with a chance of at most
    1/60.
    """

    concordance: float
    positives: float
    negatives: float
    concordance_error: float
    count_error: float
    concordance_reach: float
    count_reach: float
    sampled: NotRequired[int]  # rows of a unit, if the interval is about the population
    laplace: NotRequired[list[float]]  # scales of the noise in both, for Laplace noise
    fineness: NotRequired[list[float]]  # largest addition by rounding and discrete noise; not in earlier releases


class RocRow(TypedDict):
    """One point of an ROC curve."""

    threshold: float
    fpr: float
    tpr: float
    fpr_std_error: float | None
    tpr_std_error: float | None
    verdict: str


class PrecisionRow(TypedDict):
    """One point of a precision-recall curve."""

    threshold: float
    precision: float | None
    recall: float


class Bin(TypedDict):
    """One bin of a calibration curve."""

    lower: float
    upper: float
    mean_score: float
    positive_rate: float | None
    rows: float


class ConfusionRow(TypedDict):
    """The confusion matrix at one threshold."""

    threshold: float
    true_positives: float
    false_positives: float
    false_negatives: float
    true_negatives: float
    accuracy: float | None
    precision: float | None
    recall: float | None
    f1: float | None
    std_error: float
    verdict: str


def selected(result: Ranked | Sequence[str]) -> list[str]:
    """Return the names of the features, by rank."""
    return list(result["names"] if isinstance(result, Mapping) else result)


def ranked_rows(result: Ranked | Sequence[str]) -> list[Mapping[str, Json]]:
    """Return a row per feature, by rank; scores are NULL if none were released.

    Only the first row has statements about all features together.
    """
    names = selected(result)
    record: Ranked = result if isinstance(result, Mapping) else {"names": names}
    scores: Sequence[float | None] = record.get("scores") or [None] * len(names)
    verdicts = _verdicts(record)
    together = None if verdicts else record.get("verdict", NOT_MEASURED)
    error = record.get("std_error")
    return [
        {
            **{"rank": index + 1, "feature": name, "score": score, "std_error": error},
            "verdict": verdicts[index] if verdicts else NOT_MEASURED,
            "set_verdict": None if index else together,
        }
        for index, (name, score) in enumerate(zip(names, scores, strict=True))
    ]


def _verdicts(record: Ranked) -> list[str]:
    """Return the verdict of each feature; empty if only all features together are judged."""
    scores, level, reach = record.get("scores"), record.get("level"), record.get("reach")
    if scores is None or level is None or reach is None:
        return []
    return [CLEAR if score - reach > level else UNCLEAR for score in scores]
