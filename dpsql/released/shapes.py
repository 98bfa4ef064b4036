"""Define the tidy rows of each kind of result, and their SQL types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dpsql.arrays import from_values, rounded_up
from dpsql.contract.covers import COVERING, UNDETERMINED
from dpsql.dataclass import dataclass
from dpsql.released.aggregates import entries as aggregate_entries
from dpsql.released.areas import area_rows
from dpsql.released.comparison import comparison_rows
from dpsql.released.covariance import correlation, covariance
from dpsql.released.crosstab import crosstab_rows
from dpsql.released.curves import confusion_rows, roc_rows
from dpsql.released.histogram import histogram_rows
from dpsql.released.intervals import coefficient_verdicts, interval_row, interval_verdict
from dpsql.released.quantile_spans import quantile_rows
from dpsql.released.results import (
    FeatureMoments,
    Fitted,
    ranked_rows,
    selected,
)
from dpsql.released.synthetic import report_rows

Rows = Sequence[Mapping[str, Any]]
NOT_RELEASED = "not released"
# Column with the key of a group, as a list of strings.
KEYS = "keys"
# Column of a row's verdict.
VERDICT = "verdict"
# Column of the verdict on all features, in the first row of a selection that judges only these.
SET_VERDICT = "set_verdict"
_WORD = {VERDICT: "VARCHAR"}
# Last columns if every row is a number of rows or of their values: the covered rows, twice in this version.
_SPOKEN = _WORD | dict.fromkeys(COVERING, "VARCHAR")
# Digits of a shown standard deviation.


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
        Reads the selected features from the stored result, if the result is a selection.
    ends : int
        Rows at either end of a result that have no noise, and so do not count in the verdict of a call.
    table : callable or None
        Does the same as `rows` for results of many rows: takes the stored result and the Arrow type of a row, and
        returns an Arrow array.
    """

    name: str
    columns: Mapping[str, str]
    rows: Callable[[Any], Rows]
    features: Callable[[Any], list[str]] | None = None
    ends: int = 0
    table: Callable[[Any, pa.StructType], pa.StructArray] | None = None

    @property
    def arrow(self) -> pa.StructType:
        """The Arrow type of one row."""
        kinds = {
            "BIGINT": pa.int64(),
            "VARCHAR": pa.string(),
            "DOUBLE": pa.float64(),
            "VARCHAR[]": pa.list_(pa.string()),
        }
        return pa.struct([(name, kinds[kind]) for name, kind in self.columns.items()])

    def entries(self, result: Any, covers: str | None = None) -> pa.StructArray:
        """Return the rows of a stored result as an Arrow array.

        Parameters
        ----------
        result : JSON values
            As stored in the ledger.
        covers : str, optional
            Which rows it covers (`dpsql.contract.covers`), if it has columns for that.
        """
        bare = pa.struct([field for field in self.arrow if field.name not in COVERING])
        array = from_values(self.rows(result), bare) if self.table is None else self.table(result, bare)
        columns = [rounded_up(column) if _is_error(name) else column for name, column in _fields(array)]
        columns += [from_values([covers] * len(array), pa.string()) for name in COVERING if name in self.columns]
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow))

    @property
    def without_keys(self) -> Shape:
        """The shape of one group's rows, as in the aggregate form."""
        return replace(self, columns={name: kind for name, kind in self.columns.items() if name != KEYS})

    @property
    def has_keys(self) -> bool:
        """Whether rows start with the key of a group; the call decides its columns and types."""
        return KEYS in self.columns

    @property
    def struct(self) -> str:
        """The SQL type of one row."""
        return "STRUCT(" + ", ".join(f"{name} {kind}" for name, kind in self.columns.items()) + ")"


def _fields(array: pa.StructArray) -> list[tuple[str, pa.Array]]:
    return list(zip((field.name for field in array.type), array.flatten(), strict=True))


def _is_error(name: str) -> bool:
    return name.endswith("std_error")


def _coefficients(result: Fitted) -> Rows:
    if result["coefficients"] is None:
        return [{"term": NOT_RELEASED, "coefficient": None, "std_error": None, VERDICT: UNDETERMINED}]
    errors: Sequence[float | None] = result["std_errors"] or [None] * len(result["terms"])
    numbers = result["terms"], result["coefficients"], errors
    verdicts = coefficient_verdicts(*numbers, result.get("undetermined") or (), result.get("unclear") or ())
    names = ("term", "coefficient", "std_error", VERDICT)
    return [dict(zip(names, row, strict=True)) for row in zip(*numbers, verdicts, strict=True)]


def _interval(result: Any) -> Rows:
    """Return the rows of an `Interval`, of `GroupedIntervals`, or of a pair of ends from a version without counts."""
    if not isinstance(result, Mapping):
        return [{KEYS: [], **interval_row(result, None)}]
    if "keys" not in result:
        return [{KEYS: [], **interval_row(result["interval"], result["std_error"])}]
    groups = zip(_group_keys(result), result["intervals"], strict=True)
    return [{KEYS: key, **interval_row(record, result.get("std_error"))} for key, record in groups]


def _group_keys(result: Any) -> list[list[str | None]]:
    """Return the keys of each group of a `Groups`."""
    return [list(key) for key in zip(*result["keys"], strict=True)]


def _metrics(result: Sequence[tuple[str, float | None, float | None, float | None]]) -> Rows:
    columns = ("metric", "value", "lower", "upper", VERDICT)
    return [
        dict(zip(columns, (name, value, low, high, interval_verdict(value, low, high)), strict=True))
        for name, value, low, high in result
    ]


def _aggregated_rows(result: Any) -> Rows:
    return _keyed(result, AGGREGATED)


def _keyed(result: Any, shape: Shape) -> Rows:
    """Return rows with their keys by column name, as strings."""
    rows = []
    for row in shape.entries(result).to_pylist():
        rest = {name: value for name, value in row.items() if name not in (KEYS, *COVERING)}
        rows.append({**dict(zip(result["columns"], row[KEYS], strict=True)), **rest})
    return rows


def _histogram_rows(result: Any) -> Rows:
    return _keyed(result, HISTOGRAM)


def key_types(result: Any) -> list[str]:
    """Return the SQL types of the keys in a stored result; none if it has no groups."""
    return list(result["types"]) if isinstance(result, Mapping) and KEYS in result else []


def _covariance(result: FeatureMoments) -> Rows:
    return list(covariance(result).rows(diagonal=True))


def _correlation(result: FeatureMoments) -> Rows:
    return list(correlation(result).rows(diagonal=False))


RANKED = Shape(
    "ranked",
    {"rank": "BIGINT", "feature": "VARCHAR", "score": "DOUBLE", "std_error": "DOUBLE"}
    | _WORD
    | {SET_VERDICT: "VARCHAR"},
    ranked_rows,
    selected,
)
COEFFICIENTS = Shape(
    "coefficients", {"term": "VARCHAR", "coefficient": "DOUBLE", "std_error": "DOUBLE"} | _WORD, _coefficients
)
QUANTILES = Shape(
    "quantiles",
    {KEYS: "VARCHAR[]"} | dict.fromkeys(("quantile", "value", "lower", "upper"), "DOUBLE") | _SPOKEN,
    quantile_rows,
)
INTERVAL = Shape(
    "interval",
    {KEYS: "VARCHAR[]"}
    | dict.fromkeys(("lower", "upper", "rows_inside", "rows_outside", "std_error"), "DOUBLE")
    | _WORD,
    _interval,
)
METRICS = Shape(
    "metrics", {"metric": "VARCHAR", "value": "DOUBLE", "lower": "DOUBLE", "upper": "DOUBLE"} | _WORD, _metrics
)
_RATES = ("threshold", "fpr", "tpr", "fpr_std_error", "tpr_std_error")
ROC = Shape("roc", dict.fromkeys(_RATES, "DOUBLE") | _WORD, roc_rows, ends=1)
AREA = Shape("area", dict.fromkeys(("auc", "std_error", "lower", "upper"), "DOUBLE") | _WORD, area_rows)
_COUNTS = ("true_positives", "false_positives", "false_negatives", "true_negatives")
_SHARES = ("accuracy", "precision", "recall", "f1")
CONFUSION = Shape(
    "confusion", dict.fromkeys(("threshold", *_COUNTS, *_SHARES, "std_error"), "DOUBLE") | _WORD, confusion_rows
)
_ESTIMATE = dict.fromkeys(("value", "std_error", "lower", "upper"), "DOUBLE") | _SPOKEN
AGGREGATED = Shape(
    "aggregated",
    {KEYS: "VARCHAR[]", "target": "VARCHAR", "aggregate": "VARCHAR"} | _ESTIMATE,
    _aggregated_rows,
    table=aggregate_entries,
)
_PAIR = dict.fromkeys(("feature_1", "feature_2"), "VARCHAR") | _ESTIMATE
COVARIANCE = Shape("covariance", _PAIR, _covariance)
CORRELATION = Shape("correlation", _PAIR, _correlation)
_BIN = ("lower", "upper", "count", "std_error", "count_lower", "count_upper", "cumulative", "cumulative_std_error")
HISTOGRAM = Shape(
    "histogram", {KEYS: "VARCHAR[]"} | dict.fromkeys(_BIN, "DOUBLE") | _SPOKEN, _histogram_rows, table=histogram_rows
)
CROSSTAB = Shape(
    "crosstab",
    {KEYS: "VARCHAR[]", "margin": "VARCHAR"}
    | dict.fromkeys(("count", "std_error", "lower", "upper"), "DOUBLE")
    | _SPOKEN,
    crosstab_rows,
)
COMPARISON = Shape(
    "comparison",
    dict.fromkeys(("first", "second", "difference", "std_error", "lower", "upper", "rows_needed"), "DOUBLE") | _WORD,
    comparison_rows,
)
SYNTHETIC = Shape(
    "synthetic",
    dict.fromkeys(("column_1", "column_2", "fit"), "VARCHAR")
    | dict.fromkeys(("error", "std_error", "lower", "upper"), "DOUBLE")
    | _WORD,
    report_rows,
)
SHAPES = (
    AGGREGATED,
    HISTOGRAM,
    CROSSTAB,
    RANKED,
    COEFFICIENTS,
    QUANTILES,
    INTERVAL,
    METRICS,
    ROC,
    AREA,
    CONFUSION,
    COVARIANCE,
    CORRELATION,
    COMPARISON,
    SYNTHETIC,
)
