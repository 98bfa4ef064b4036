"""Bounds at the ends of the doubles: each call that has bounds is refused and charges nothing, or its numbers are finite."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

import dpsql
from dpsql.errors import DpsqlError
from dpsql.functions.registry import FUNCTIONS
from support.cases import cases

LIMITS = (1e100, 1e101, 1e155, 1e200, 1e300, 1.7e308)
# Of the features, and of the target; one pair is as narrow as the other is wide.
PAIRS = (
    *(((-end, end), (-end, end)) for end in LIMITS),
    ((0.0, 1e-100), (-1e100, 1e100)),
    ((-1e100, 1e100), (0.0, 1e-100)),
    ((0.0, 1e-200), (-1e200, 1e200)),
    ((0.0, 5e-324), (-1e300, 1e300)),
    ((1e99, 1.0000000001e99), (0.0, 1.0)),
    ((-1e-300, 1e300), (1e300, 1.1e300)),
)
_MODEL = {"features": ["a", "b"], "target": "z", "target_lower": "target", "target_upper": "target"}
_PURE, _DELTA = {"epsilon": 1}, {"epsilon": 1, "delta": 1e-6}
# Every function that takes bounds, with what else it needs.
CALLS: dict[str, tuple[dict[str, Any], ...]] = {
    "dp_sum": ({"target": "a", **_PURE}, {"target": "a", "privacy_unit": "id", "max_rows_per_unit": 3, "unit_value": "sum", **_PURE}),
    "dp_avg": ({"target": "a", **_PURE},),
    "dp_variance": ({"target": "a", **_PURE}, {"target": "a", "by": "y", **_PURE}),
    "dp_stddev": ({"target": "a", **_PURE},),
    "dp_aggregate": ({"aggregates": ["sum", "avg", "variance"], "target": ["a", "b"], **_PURE},),
    "dp_histogram": ({"target": "a", "n_bins": 4, **_PURE},),
    "dp_sis": ({**_MODEL, "k": 1, **_PURE}, {**_MODEL, "k": 1, "center": "target", **_PURE}),
    "dp_best_subset": ({**_MODEL, "k": 1, **_PURE},),
    "dp_linear_regression": (
        {**_MODEL, **_DELTA},
        {**_MODEL, "method": "ada_ssp", **_DELTA},
        {**_MODEL, "method": "tukey", "blocks": 20, **_DELTA},
    ),
    "dp_pipeline": ({**_MODEL, "k": 1, **_DELTA},),
    "dp_logistic_regression": ({"features": ["a", "b"], "target": "y", **_PURE}, {"features": ["a"], "target": "y", **_DELTA}),
    "dp_quantile": ({"target": "a", **_PURE}, {"target": "a", "by": "y", **_PURE}),
    "dp_covariance": ({"features": ["a", "b"], **_PURE}, {"features": ["a", "b"], **_DELTA}),
    "dp_correlation": ({"features": ["a", "b"], **_PURE},),
    "dp_synthetic": ({"columns": ["a", "b", "y"], **_DELTA},),
    "dp_regression_metrics": ({"target": "a", "prediction": "b", **_PURE},),
    "dp_roc": ({"label": "y", "score": "s", **_PURE},),
    "dp_auc": ({"label": "y", "score": "s", **_PURE},),
    "dp_confusion": ({"label": "y", "score": "s", "thresholds": [0.5], **_PURE},),
    "dp_compare": (
        {"target": "a", "groups": "y", **_PURE},
        {"of": "auc", "scores": ["a", "s"], "label": "y", **_PURE},
        {"of": "error", "loss": "squared", "scores": ["a", "s"], "label": "z", **_PURE},
    ),
}  # fmt: skip
# A curve begins at the threshold that no score reaches.
_INFINITE = {("dp_roc", 0)}


@pytest.fixture(scope="module")
def context() -> Iterator[dpsql.Context]:
    with dpsql.Context() as opened:
        opened.connection.execute(
            "CREATE TABLE t AS SELECT random() * 10 AS a, random() * 5 AS b, random() AS s, range % 2 = 0 AS y, "
            "random() * 3 AS z, range AS id FROM range(200)"
        )
        yield opened


def _numbers(rows: list[tuple[Any, ...]], function: str) -> list[float]:
    return [
        value
        for place, row in enumerate(rows)
        for column, value in enumerate(row)
        if isinstance(value, float) and (place or (function, column) not in _INFINITE)
    ]


def test_every_function_with_bounds_is_asked() -> None:
    assert set(CALLS) == {name for name, known in FUNCTIONS.items() if known.spends and "lower" in known.plan.arguments}


@cases("function", [name for name, asked in CALLS.items() if asked])
def test_numbers_are_finite_or_the_call_is_refused(context: dpsql.Context, function: str) -> None:
    wrong = []
    for arguments in CALLS[function]:
        for features, target in PAIRS:
            given = {**arguments, "lower": features[0], "upper": features[1]}
            if arguments.get("target_lower") == "target":
                given |= {"target_lower": target[0], "target_upper": target[1]}
            before = context.sql("SELECT count(*) FROM dp_ledger()").to_pylist()
            try:
                rows = getattr(context, function)("t", **given).value.to_pylist()
            except DpsqlError as refused:
                charged = context.sql("SELECT count(*) FROM dp_ledger()").to_pylist() != before
                if charged or refused.code[:7] not in ("DPSQL-P", "DPSQL-S"):
                    wrong.append((given, refused.code, charged))
                continue
            found = _numbers([tuple(row.values()) for row in rows], function)
            if not all(map(math.isfinite, found)):
                wrong.append((given, found))
    assert wrong == []
