"""The shapes of results: the tidy rows of each kind of result, and their SQL types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dpsql.released.results import (
    Area,
    Curve,
    FeatureMoments,
    Filtered,
    Fitted,
    GroupedQuantiles,
    ScaledArea,
)

if TYPE_CHECKING:
    import pyarrow as pa

Rows = Sequence[Mapping[str, Any]]
NOT_RELEASED = "not released"
# The column that holds the key of a group, as a list of texts.
KEYS = "keys"


@dataclass(frozen=True)
class Shape:
    """One kind of result.

    Attributes
    ----------
    name : str
        Ends the names of the functions that return it.
    columns : dict
        SQL type by column.
    rows : callable
        Turns the stored result, JSON values, into tidy rows.
    features : callable or None
        Reads the features that were selected out of the stored result, where the result is a selection.
    table : callable or None
        Does the same as `rows` for results of many rows: takes the stored result and the Arrow type of a row, and
        returns an Arrow array.
    """

    name: str
    columns: Mapping[str, str]
    rows: Callable[[Any], Rows]
    features: Callable[[Any], list[str]] | None = None
    table: Callable[[Any, pa.StructType], pa.StructArray] | None = None

    @property
    def arrow(self) -> pa.StructType:
        """The Arrow type of one row."""
        import pyarrow as pa

        kinds = {
            "BIGINT": pa.int64(),
            "VARCHAR": pa.string(),
            "DOUBLE": pa.float64(),
            "VARCHAR[]": pa.list_(pa.string()),
        }
        return pa.struct([(name, kinds[kind]) for name, kind in self.columns.items()])

    def entries(self, result: Any) -> pa.StructArray:
        """Return the rows of a stored result as an Arrow array."""
        import pyarrow as pa

        if self.table is not None:
            return self.table(result, self.arrow)
        return pa.array(self.rows(result), type=self.arrow)

    @property
    def without_keys(self) -> Shape:
        """The shape of one group's rows: that of the aggregate form."""
        return replace(self, columns={name: kind for name, kind in self.columns.items() if name != KEYS})

    @property
    def has_keys(self) -> bool:
        """Whether rows start with the key of a group, whose columns and their types the call decides."""
        return KEYS in self.columns

    @property
    def struct(self) -> str:
        """The SQL type of one row."""
        return "STRUCT(" + ", ".join(f"{name} {kind}" for name, kind in self.columns.items()) + ")"


def _ranked(result: Sequence[str]) -> Rows:
    return [{"rank": position, "feature": name} for position, name in enumerate(result, start=1)]


def _filtered(result: Filtered) -> Rows:
    scores: Sequence[float | None] = result["scores"] or [None] * len(result["names"])
    pairs = enumerate(zip(result["names"], scores, strict=True), start=1)
    error = result["std_error"]
    return [{"rank": rank, "feature": name, "score": score, "std_error": error} for rank, (name, score) in pairs]


def _coefficients(result: Fitted) -> Rows:
    if result["coefficients"] is None:
        return [{"term": NOT_RELEASED, "coefficient": None, "std_error": None}]
    errors: Sequence[float | None] = result["std_errors"] or [None] * len(result["terms"])
    columns = zip(result["terms"], result["coefficients"], errors, strict=True)
    return [{"term": term, "coefficient": value, "std_error": error} for term, value, error in columns]


def _quantiles(result: Sequence[tuple[float, float]] | GroupedQuantiles) -> Rows:
    if not isinstance(result, Mapping):
        return [{KEYS: [], "quantile": quantile, "value": value} for quantile, value in result]
    groups = zip(_group_keys(result), result["values"], strict=True)
    return [
        {KEYS: key, "quantile": quantile, "value": value}
        for key, values in groups
        for quantile, value in zip(result["quantiles"], values, strict=True)
    ]


def _interval(result: Any) -> Rows:
    """Return the rows of an `Interval`, of `GroupedIntervals`, or of a pair of ends from a version without counts."""
    from dpsql.released.bounds import interval_row

    if not isinstance(result, Mapping):
        return [{KEYS: [], **interval_row(result, None)}]
    if "keys" not in result:
        return [{KEYS: [], **interval_row(result["interval"], result["std_error"])}]
    groups = zip(_group_keys(result), result["intervals"], strict=True)
    return [{KEYS: key, **interval_row(record, result.get("std_error"))} for key, record in groups]


def _group_keys(result: Any) -> list[list[str | None]]:
    """Return the keys of each group of a `Groups`."""
    return [list(key) for key in zip(*result["keys"], strict=True)]


def _metrics(result: Sequence[Sequence[str | float | None]]) -> Rows:
    return [dict(zip(("metric", "value", "lower", "upper"), row, strict=True)) for row in result]


def _roc(result: Curve) -> Rows:
    from dpsql.released.curves import roc_rows

    return roc_rows(result)


def _area(result: Area | ScaledArea) -> Rows:
    from dpsql.released.auc import area_rows

    return area_rows(result)


def _confusion(result: Curve) -> Rows:
    from dpsql.released.curves import confusion_rows

    return confusion_rows(result)


def _aggregated(result: Any, kind: pa.StructType) -> pa.StructArray:
    from dpsql.released.aggregates import entries

    return entries(result, kind)


def _aggregated_rows(result: Any) -> Rows:
    return _keyed(result, AGGREGATED)


def _keyed(result: Any, shape: Shape) -> Rows:
    """Return rows with their keys by the names of the columns, as texts."""
    found = []
    for row in shape.entries(result).to_pylist():
        found.append({**dict(zip(result["columns"], row.pop(KEYS), strict=True)), **row})
    return found


def _crosstab(result: Any) -> Rows:
    from dpsql.released.crosstab import crosstab_rows

    return crosstab_rows(result)


def _histogram(result: Any, kind: pa.StructType) -> pa.StructArray:
    from dpsql.released.histogram import histogram_rows

    return histogram_rows(result, kind)


def _histogram_rows(result: Any) -> Rows:
    return _keyed(result, HISTOGRAM)


def key_types(result: Any) -> list[str]:
    """Return the SQL types of the keys in a stored result; none where it has no groups."""
    return list(result["types"]) if isinstance(result, Mapping) and KEYS in result else []


def _covariance(result: FeatureMoments) -> Rows:
    from dpsql.released.covariance import covariance

    return list(covariance(result).rows(diagonal=True))


def _correlation(result: FeatureMoments) -> Rows:
    from dpsql.released.covariance import correlation

    return list(correlation(result).rows(diagonal=False))


RANKED = Shape("ranked", {"rank": "BIGINT", "feature": "VARCHAR"}, _ranked, list)
FILTERED = Shape(
    "filtered",
    {"rank": "BIGINT", "feature": "VARCHAR", "score": "DOUBLE", "std_error": "DOUBLE"},
    _filtered,
    lambda result: list(result["names"]),
)
COEFFICIENTS = Shape("coefficients", {"term": "VARCHAR", "coefficient": "DOUBLE", "std_error": "DOUBLE"}, _coefficients)
QUANTILES = Shape("quantiles", {KEYS: "VARCHAR[]", "quantile": "DOUBLE", "value": "DOUBLE"}, _quantiles)
INTERVAL = Shape(
    "interval",
    {KEYS: "VARCHAR[]"}
    | dict.fromkeys(("lower", "upper", "rows_inside", "rows_outside", "std_error"), "DOUBLE")
    | {"verdict": "VARCHAR"},
    _interval,
)
METRICS = Shape("metrics", {"metric": "VARCHAR", "value": "DOUBLE", "lower": "DOUBLE", "upper": "DOUBLE"}, _metrics)
ROC = Shape("roc", dict.fromkeys(("threshold", "fpr", "tpr"), "DOUBLE"), _roc)
AREA = Shape("area", dict.fromkeys(("auc", "std_error", "lower", "upper"), "DOUBLE") | {"verdict": "VARCHAR"}, _area)
_COUNTS = ("true_positives", "false_positives", "false_negatives", "true_negatives")
_RATES = ("accuracy", "precision", "recall", "f1")
CONFUSION = Shape("confusion", dict.fromkeys(("threshold", *_COUNTS, *_RATES, "std_error"), "DOUBLE"), _confusion)
AGGREGATED = Shape(
    "aggregated",
    {KEYS: "VARCHAR[]", "target": "VARCHAR", "aggregate": "VARCHAR"}
    | dict.fromkeys(("value", "std_error", "lower", "upper"), "DOUBLE"),
    _aggregated_rows,
    table=_aggregated,
)
_PAIR = {
    **dict.fromkeys(("feature_1", "feature_2"), "VARCHAR"),
    **dict.fromkeys(("value", "std_error", "lower", "upper"), "DOUBLE"),
}
COVARIANCE = Shape("covariance", _PAIR, _covariance)
CORRELATION = Shape("correlation", _PAIR, _correlation)
_BIN = ("lower", "upper", "count", "std_error", "count_lower", "count_upper", "cumulative", "cumulative_std_error")
HISTOGRAM = Shape("histogram", {KEYS: "VARCHAR[]"} | dict.fromkeys(_BIN, "DOUBLE"), _histogram_rows, table=_histogram)
CROSSTAB = Shape(
    "crosstab",
    {KEYS: "VARCHAR[]", "margin": "VARCHAR"} | dict.fromkeys(("count", "std_error", "lower", "upper"), "DOUBLE"),
    _crosstab,
)
SHAPES = (
    AGGREGATED,
    HISTOGRAM,
    CROSSTAB,
    RANKED,
    FILTERED,
    COEFFICIENTS,
    QUANTILES,
    INTERVAL,
    METRICS,
    ROC,
    AREA,
    CONFUSION,
    COVARIANCE,
    CORRELATION,
)
